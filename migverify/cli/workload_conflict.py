"""``migverify workload explain-conflict``: both statements of a conflict, and who the hidden writer was."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.console import DEFAULT_CONFIG, JsonOption, StoreOption, command_line, examples, say
from migverify.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from migverify.store.results import ResultStore
    from migverify.workload.conflict.model import Explanation
    from migverify.workload.conflict.sources import ConflictFindings, Near, Query

_MOST_INPUT = 64 << 20
EPILOG = examples(
    "migverify workload explain-conflict 'Write conflict, txnStartTS=..., conflictStartTS=..., ...'",
    "migverify workload explain-conflict --log tidb.log --log tidb-slow.log --config migverify.yaml",
    "migverify workload explain-conflict --capture capture --json < message.txt",
)


def explain_conflict(
    message: Annotated[
        str | None, typer.Argument(metavar="[MESSAGE]", help="An error message, or - for standard input.")
    ] = None,
    logs: Annotated[
        list[Path] | None, typer.Option("--log", metavar="FILE", help="A log or slow log of TiDB; several are fine.")
    ] = None,
    captures: Annotated[
        list[Path] | None, typer.Option("--capture", metavar="DIR", help="A capture that shows the clients' side.")
    ] = None,
    replays: Annotated[
        list[Path] | None, typer.Option("--replay", metavar="DIR", help="A replay's folder: conflicts it met.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", metavar="FILE", help="Asks its target for names of table ids.")
    ] = None,
    replicator: Annotated[
        list[str] | None, typer.Option(metavar="USER", help="A user that replicates; several are fine.")
    ] = None,
    skew: Annotated[
        int, typer.Option(min=0, max=60_000, metavar="MS", help="How far the capture's clock may be off TiDB's.")
    ] = 20,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="How many conflicts of logs to explain.")] = 20,
    mask: Annotated[bool, typer.Option("--mask", help="Replace literals of statements and values of keys.")] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Explain a conflict of TiDB: both statements, sessions, key, times, overlap, and the hidden writer.

    Takes a message of error 9007, 8002, 8005, 8022, 8028 or 8147, or TiDB's logs. Exit 3: the evidence does not
    decide, or there is no conflict in a log or in a replay that did not end; 0: each has a cause, or a whole replay met
    none. With --config or --store the result is kept in the store, without literals.
    """
    from migverify.workload.conflict.explain import explain, unknown
    from migverify.workload.conflict.sources import is_whole, statements_near, with_names
    from migverify.workload.conflict.text import as_json as json_of
    from migverify.workload.conflict.text import as_text
    from migverify.workload.conflict.transactions import Statements
    from migverify.workload.mask import mask_text

    began = time.monotonic()
    files, folders = logs or [], captures or []
    found = _found(message, files, replays or [], limit)
    with _names(config) as query:
        conflicts = with_names(found.conflicts, query)
    near = statements_near(files, folders, conflicts)
    statements = Statements(near.statements)
    found_causes = [explain(one, statements, replicators=replicator or (), skew=skew * 1000) for one in conflicts]
    masked = mask_text if mask else None
    run_id = ""
    if config is not None or store is not None:
        from migverify.cli.report import open_run_store

        with closing(open_run_store(store, config or DEFAULT_CONFIG)) as opened:
            run_id = _kept(opened, found_causes, found.left_out, replays or [], message, time.monotonic() - began)
    if as_json:
        body = {
            **({"run_id": run_id} if run_id else {}),
            "conflicts": [json_of(one, masked) for one in found_causes], "lines": found.lines,
            "repeated": found.repeated, "left_out": found.left_out, "statements_near": len(near.statements),
            "statements_read": near.read, "statements_left_out": near.left_out,
        }  # fmt: skip
        typer.echo(json.dumps(body))
    else:
        typer.echo("\n\n".join(as_text(one, masked) for one in found_causes))
        _tell(found, near)
        if run_id:
            say(f"run {run_id}")
    shows_none = message is None and bool(replays) and all(map(is_whole, replays or []))
    if any(unknown(one) for one in found_causes) or not (found_causes or shows_none):
        raise typer.Exit(int(ExitCode.INCONCLUSIVE))


def _kept(
    store: ResultStore, explained: Sequence[Explanation], left_out: int, replays: Sequence[Path], message: str | None,
    seconds: float,
) -> str:  # fmt: skip
    """Keep what was explained; of a single replay also what it rests on."""
    from migverify.workload.conflict.store import KEPT_OF_REPLAY, store_conflicts

    facts: dict[str, Any] = {}
    replay = replays[0].resolve().name if len(replays) == 1 and message is None else ""
    if replay:
        try:
            known = store.load_run(replay).facts
        except UsageError:
            known = {}  # a replay of another store: what it rests on is not known
        facts = {name: known[name] for name in KEPT_OF_REPLAY if name in known}
    return store_conflicts(
        store, command_line(), explained, facts, replay=replay, left_out=left_out, seconds=seconds
    )  # fmt: skip


def _found(message: str | None, files: list[Path], replays: list[Path], limit: int) -> ConflictFindings:
    from migverify.workload.conflict.sources import ConflictFindings, find, messages

    if message is None and replays:
        from migverify.workload.conflict.sources import replay_conflicts

        met = [one for folder in replays for one in replay_conflicts(folder)]
        if not met:
            say(f"{', '.join(map(str, replays))}: no statement met a conflict.")
        return ConflictFindings(met[:limit], left_out=max(len(met) - limit, 0))
    if message is None and not files:
        if sys.stdin.isatty():
            raise UsageError("there is nothing to explain.", hint="Give a message, or --log with TiDB's log.")
        message = "-"
    if message is None:
        found = find(files, limit)
        if not found.conflicts:
            say(f"{found.lines:,} lines hold no conflict.")
        return found
    text = message
    if message == "-":
        raw = sys.stdin.buffer.read(_MOST_INPUT + 1)
        if len(raw) > _MOST_INPUT:
            raise UsageError("standard input is longer than 64 MiB.", hint="Name the log with --log: it is streamed.")
        text = raw.decode("utf-8", "backslashreplace")
    conflicts = messages(text)
    if not conflicts:
        raise UsageError(
            "the message is none of a conflict that is known.",
            hint="Give the whole text of error 9007, 8002, 8005, 8022, 8028 or 8147, or of a line with KeyIsLocked.",
        )
    return ConflictFindings(conflicts[:limit], text.count("\n") + 1, 0, max(len(conflicts) - limit, 0))


@contextmanager
def _names(config: Path | None) -> Iterator[Query | None]:
    if config is None:
        yield None
        return
    from migverify.config import load_config
    from migverify.db.session import open_session
    from migverify.secrets import resolve_password

    target = load_config(config).target
    with open_session(target, resolve_password(target).reveal() or None) as session:
        yield session.query


def _tell(found: ConflictFindings, near: Near) -> None:
    say(
        f"{len(found.conflicts)} conflicts explained, {found.left_out} left out (--limit), {found.repeated} repeated"
        f" lines; {len(near.statements):,} of {near.read:,} statements are near them"
        + (f", {near.left_out:,} more were not kept" if near.left_out else "")
    )
