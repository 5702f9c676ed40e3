"""Where runs live: a folder, or the database of a result store. Whoever drives, watches or reads a run asks a room."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from migverify.config.urls import check_store_url
from migverify.errors import StoreError, UsageError
from migverify.model import Tls
from migverify.runbook.clock import Clock, system_clock
from migverify.runbook.events import Event
from migverify.runbook.fold.whole import verify_run
from migverify.runbook.model import Runbook, RunKind
from migverify.runbook.record.chain import Problem
from migverify.runbook.record.heads import Head
from migverify.runbook.record.journal import NAME, read_events
from migverify.runbook.record.run_chain import first_events, in_order, runs_begun
from migverify.runbook.record.run_record import RunRecord

__all__ = ["LAST", "FolderRoom", "Room", "check_id", "open_room", "written_whole"]

LAST = "last"
"""Names the run that was started last."""
PASSWORD_VARIABLE = "MIGVERIFY_RUNS_PASSWORD"  # noqa: S105 - the name of one
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
"""What an id may be: it is a folder's name here and a key there."""


class Room(Protocol):
    """A place of runs. Every method raises ``StoreError`` when the place cannot be read or written."""

    @property
    def name(self) -> str:
        """What the room is called in messages; it holds no secret."""
        ...

    def ids(self) -> list[str]:
        """Return the ids of all runs, the one that was started first in front."""
        ...

    def begun(self) -> list[Head]:
        """Return the first heads of all runs that were ever begun here, as far as the place keeps them by itself."""
        ...

    def create(
        self, runbook: Runbook, kind: RunKind, actor: str, *, run: str | None = None, schema_fingerprint: str = "",
        autopilot: bool = False,
    ) -> RunRecord:  # fmt: skip
        """Start a run, as ``RunRecord.create`` says; raises ``UsageError`` when there is one of that id."""
        ...

    def open(self, run: str) -> RunRecord:
        """Open a run by its id or ``last``. Not shared by threads: each one opens its own.

        Raises ``UsageError`` when there is none, ``JournalError`` when its journal is damaged.
        """
        ...

    def events(self, run: str) -> Iterator[Event]:
        """Yield the events of a run by its id or ``last``, streaming; raises as ``open``."""
        ...

    def folder(self, run: str) -> Path:
        """Return a folder on this machine for what effects of a run leave here: locks, files of evidence."""
        ...

    def verify(self, run: str) -> list[Problem]:
        """Return what is wrong with a run's journal, by its id or ``last``; empty: nothing."""
        ...

    def export(self, run: str, path: Path) -> None:
        """Write a run's journal to a file that ``verify_run`` takes; raises ``StoreError``."""
        ...


class FolderRoom:
    """Runs in folders of one folder, which several machines may share; see ``journal`` for what NFS does to that.

    Parameters
    ----------
    path
        It is made with the first run.
    """

    def __init__(self, path: Path, *, clock: Clock = system_clock) -> None:
        self.path, self._clock = path, clock

    @property
    def name(self) -> str:
        """The folder."""
        return str(self.path)

    def ids(self) -> list[str]:
        """Return the ids of all runs, the one that was started first in front; of damaged ones too, before those.

        A folder whose journal has not one whole line is no run: nothing of it was acknowledged to anybody.
        """
        firsts = first_events(self.path)
        damaged = sorted(run for run, first in firsts.items() if first is None)
        return [*damaged, *in_order({run: first for run, first in firsts.items() if first is not None})]

    def begun(self) -> list[Head]:
        """Return the first heads of all runs that were ever begun in the folder."""
        return runs_begun(self.path)

    def create(
        self, runbook: Runbook, kind: RunKind, actor: str, *, run: str | None = None, schema_fingerprint: str = "",
        autopilot: bool = False,
    ) -> RunRecord:  # fmt: skip
        """Start a run in a folder of its own."""
        if run is not None:
            check_id(run)
        return RunRecord.create(
            self.path, runbook, kind, actor, run=run, schema_fingerprint=schema_fingerprint, autopilot=autopilot,
            clock=self._clock,
        )  # fmt: skip

    def open(self, run: str) -> RunRecord:
        """Open a run by its id or ``last``."""
        return RunRecord.open(self.folder(self._find(run)), clock=self._clock)

    def events(self, run: str) -> Iterator[Event]:
        """Yield the events of a run by its id or ``last``."""
        return read_events(self.folder(self._find(run)) / NAME)

    def folder(self, run: str) -> Path:
        """Return the run's folder."""
        return self.path / check_id(run)

    def verify(self, run: str) -> list[Problem]:
        """Return what is wrong with a run's journal."""
        return verify_run(self.folder(self._find(run)) / NAME)

    def export(self, run: str, path: Path) -> None:
        """Write a copy of a run's journal, byte for byte."""
        journal = self.folder(self._find(run)) / NAME
        with written_whole(path) as fresh, journal.open("rb") as source, fresh.open("wb") as file:
            shutil.copyfileobj(source, file)

    def _find(self, run: str) -> str:
        if run == LAST:
            ids = self.ids()
            if not ids:
                raise UsageError(f"{self.path} holds no run", hint="Start one, or name another room with --runs.")
            return ids[-1]
        if not (self.folder(run) / NAME).exists():
            raise UsageError(f"there is no run {run} in {self.path}", hint="`last` names the newest one.")
        return run


def check_id(run: str) -> str:
    """Return an id that can be one.

    Raises
    ------
    UsageError
        it could be a path, or a name that some file system or database does not take.
    """
    if run == LAST or not _ID.fullmatch(run):
        raise UsageError(
            f"{run!r} is not an id of a run", hint="Letters, digits, `.`, `_` and `-`, at most 120; not `last`."
        )
    return run


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Lend a path beside the one that is meant, and move it there when everything is written.

    Raises
    ------
    StoreError
        it cannot be written; an older file of that name stays as it was.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield fresh
        with fresh.open("rb") as file:
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):  # it is where it belongs, or what kept it from being made was said above
            fresh.unlink()


def open_room(
    text: str, *, password: str | None = None, forbidden: Sequence[tuple[str, int]] = (), tls: Tls | None = None
) -> Room:
    """Open a room: a folder's path, or the URL of a result store (``mysql+pymysql://...``, ``sqlite:///...``).

    Parameters
    ----------
    password
        Of the store, instead of the URL's; by default that of the variable ``MIGVERIFY_RUNS_PASSWORD``, if it is set.
    forbidden
        (host, port) of the endpoints under test: what is verified is never written.
    tls
        See ``store.open.open_store``.

    Raises
    ------
    UsageError
        the text is empty, or holds a password.
    StoreError
        the store cannot be opened.
    """
    if not text.strip():
        raise UsageError("the room's name is empty", hint="Name a folder, or the URL of a result store.")
    if "://" not in text:
        return FolderRoom(Path(text).expanduser())
    try:
        check_store_url(text, f"put it into the variable {PASSWORD_VARIABLE}")
    except ValueError as error:
        raise UsageError(f"--runs: {error}") from None
    from migverify.runbook.record.room_db import open_db_room  # SQLAlchemy takes longer to load than a folder to read

    return open_db_room(text, password=password or os.environ.get(PASSWORD_VARIABLE), forbidden=forbidden, tls=tls)
