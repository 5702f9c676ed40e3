"""What the commands of a run share: which room, which run, who acts, and what was said."""

from __future__ import annotations

import hashlib
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.console import DEFAULT_CONFIG, say
from migverify.errors import StoreError, UsageError

if TYPE_CHECKING:
    from migverify.runbook.record.heads import Head
    from migverify.runbook.record.run_record import RunRecord
    from migverify.runbook.record.run_store import RunStore
    from migverify.runbook.state import RunStatus

__all__ = [
    "DEFAULT_ROOM", "AsOption", "HeadsOption", "RoomOption", "RunOption", "SignOption", "announced_heads",
    "evidence_of", "find_run", "open_runs", "person_of", "room_of", "suffix_of", "who_acts",
]  # fmt: skip

DEFAULT_ROOM = "runs"
PASSWORD = "MIGVERIFY_RUNS_PASSWORD"  # noqa: S105 - the variable's name
FILE_BYTES = 1 << 20
_LOOKED_AT = 20
"""Of the newest runs, to see which of them are not over."""

RoomOption = Annotated[
    str,
    typer.Option(
        "--runs", envvar="MIGVERIFY_RUNS", show_envvar=True, metavar="ROOM",
        help="Where runs live: a folder, or the URL of a result store.",
    ),
]  # fmt: skip
RunOption = Annotated[
    str | None,
    typer.Option("--run", metavar="RUN", help="The run's id, or `last`; default: the one that is not over."),
]
AsOption = Annotated[
    str | None,
    typer.Option(
        "--as", envvar="MIGVERIFY_PERSON", show_envvar=True, metavar="PERSON", help="Who you are, as the runbook says."
    ),
]
HeadsOption = Annotated[
    Path | None,
    typer.Option("--heads", metavar="FILE", help="A saved channel, mail or log in which heads were announced."),
]
SignOption = Annotated[
    Path | None, typer.Option("--sign", metavar="KEY", help="Sign it with this SSH key, by ssh-keygen -Y sign.")
]


def room_of(text: str) -> RunStore:
    """Open a room: a folder, or a result store, whose password may stand in MIGVERIFY_RUNS_PASSWORD.

    Raises
    ------
    StoreError
        the store cannot be opened, or lies on an endpoint of the configuration: what is verified is never written.
    """
    import os

    from migverify.runbook.record.run_store import open_run_store

    if "://" not in text:
        return open_run_store(text)
    from migverify.config import load_config
    from migverify.secrets import Secret, remember

    config = Path(os.environ.get("MIGVERIFY_CONFIG", DEFAULT_CONFIG))
    forbidden = [(e.host, e.port) for e in load_config(config).all_endpoints] if config.exists() else []
    password = os.environ.get(PASSWORD)
    own = remember(Secret(password)).reveal() if password else None
    return open_run_store(text, password=own, forbidden=forbidden)


def who_acts(person: str | None) -> str:
    """Return who acts.

    Raises
    ------
    UsageError
        nobody said.
    """
    if not person:
        raise UsageError("--as is missing", hint="Say who you are: --as PERSON, or MIGVERIFY_PERSON=PERSON.")
    return person


def person_of(status: RunStatus, name: str) -> str:
    """Return the person of a name or alias.

    Raises
    ------
    UsageError
        the runbook knows nobody of that name.
    """
    found = status.cast.person(name)
    if found is None:
        known = ", ".join(status.runbook.people)
        raise UsageError(f"{name!r} is none of the runbook's people", hint=f"They are {known}, as it is written.")
    return found


def find_run(room: RunStore, run: str | None, *, over_too: bool = False) -> RunRecord:
    """Open the run that is meant: of that id, or the only one that is not over.

    Parameters
    ----------
    over_too
        When none is under way, the last one.

    Raises
    ------
    UsageError
        there is none, or there are several.
    """
    if run is not None:
        return room.open(run)
    open_, damaged = open_runs(room)
    if len(open_) == 1:
        return open_[0]
    if len(open_) > 1:
        names = ", ".join(one.status.run for one in open_)
        raise UsageError(f"{len(open_)} runs in {room.name} are not over", hint=f"Name one with --run: {names}.")
    if over_too:
        return room.open("last")
    hint = "Begin one with `migverify runbook run`, or name another room with --runs."
    if damaged:
        hint = f"{', '.join(damaged)} cannot be read: see `migverify runbook report --verify`."
    raise UsageError(f"no run in {room.name} is under way", hint=hint)


def open_runs(room: RunStore) -> tuple[list[RunRecord], list[str]]:
    """Return the newest runs that are not over, and the ids of those that cannot be read, which is also said."""
    found, damaged = [], []
    for id_ in reversed(room.ids()[-_LOOKED_AT:]):
        try:
            record = room.open(id_)
        except StoreError as error:
            damaged.append(id_)
            say(f"warning: run {id_} cannot be read: {error.message}")
            continue
        if not record.status.over:
            found.append(record)
    return found, damaged


def suffix_of(room: str, run: str | None = None) -> str:
    """Return what a command needs besides to mean a run in a room: nothing where that is plain.

    Parameters
    ----------
    room
        As it was given.
    run
        Its id, where it has to be named; None: it is the only one that is not over.
    """
    import os

    shown = re.sub(r"(://[^:/@]*):[^@]*@", r"\1@", room)  # a store's URL may hold a password
    option = "" if room in (DEFAULT_ROOM, os.environ.get("MIGVERIFY_RUNS")) else f" --runs {shlex.quote(shown)}"
    return f"{f' --run {run}' if run else ''}{option}"


def announced_heads(path: Path | None) -> list[Head]:
    """Return the heads that a saved channel holds; without a file none.

    Raises
    ------
    UsageError
        it cannot be read, or holds none.
    """
    from migverify.runbook.record.heads import heads_in

    if path is None:
        return []
    if path.exists() and not path.is_file():  # a pipe is empty at the next evaluation, and a device has no end
        raise UsageError(f"--heads {path}: not a regular file", hint="Save the channel to a file.")
    try:
        found = heads_in(path.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise UsageError(f"--heads {path}: cannot be read: {error.strerror}") from None
    if not found:
        raise UsageError(f"{path} holds no announced head", hint="Heads look like `HEAD run number hash`.")
    return found


def known_keys(path: Path) -> dict[str, str]:
    """Return the fingerprint of each person's key in a file; raises UsageError."""
    from migverify.runbook.record.signatures import keys_in

    try:
        return keys_in(path.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise UsageError(f"--keys {path}: cannot be read: {error.strerror}") from None


def evidence_of(facts: list[str] | None, files: list[Path] | None) -> dict[str, Any]:
    """Return what shows it, as it is kept: facts by their names, and of files name, size and hash.

    Raises
    ------
    UsageError
        a fact has no `=`, a name is given twice, a file cannot be read.
    """
    found: dict[str, Any] = {}
    for text in facts or []:
        name, equals, value = text.partition("=")
        if not equals or not name or name == "files":
            raise UsageError(f"--evidence {text}: this is no KEY=VALUE", hint="Write --evidence rows=1200.")
        if name in found:
            raise UsageError(f"--evidence {name} is given twice")
        found[name] = value
    if files:
        found["files"] = [_file(path) for path in files]
    return found


def _file(path: Path) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as opened:
            while part := opened.read(FILE_BYTES):
                digest.update(part)
                size += len(part)
    except OSError as error:
        raise UsageError(f"--file {path}: cannot be read: {error.strerror}") from None
    return {"name": path.name, "bytes": size, "sha256": digest.hexdigest()}
