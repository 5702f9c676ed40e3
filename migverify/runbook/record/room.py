"""Where runs live: a folder, or the database of a result store. Whoever drives, watches or reads a run asks a room."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from migverify.errors import JournalError, StoreError, UsageError
from migverify.runbook.clock import Clock, system_clock
from migverify.runbook.events import Event
from migverify.runbook.fold.whole import verify_run
from migverify.runbook.model import Runbook, RunKind
from migverify.runbook.record.chain import Problem
from migverify.runbook.record.journal import NAME, Reader, read_events
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
        try:
            journals = sorted(self.path.glob(f"*/{NAME}")) if self.path.exists() else []
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read: {error.strerror}") from error
        began = {journal.parent.name: _began(journal) for journal in journals}
        return sorted((id_ for id_, at in began.items() if at is not None), key=lambda id_: (began[id_], id_))

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


def _began(journal: Path) -> float | None:
    try:
        first = next(Reader(journal).new(), None)
    except JournalError:
        return 0.0  # it is listed, so that whoever opens it is told what is wrong
    return first.wall if first is not None else None


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


def open_room(text: str, *, password: str | None = None, forbidden: Sequence[tuple[str, int]] = ()) -> Room:
    """Open a room: a folder's path, or the URL of a result store (``mysql+pymysql://...``, ``sqlite:///...``).

    Parameters
    ----------
    password
        Of the store, instead of the URL's; by default that of the variable ``MIGVERIFY_RUNS_PASSWORD``, if it is set.
    forbidden
        (host, port) of the endpoints under test: what is verified is never written.

    Raises
    ------
    UsageError
        the text is empty.
    StoreError
        the store cannot be opened.
    """
    if not text.strip():
        raise UsageError("the room's name is empty", hint="Name a folder, or the URL of a result store.")
    if "://" not in text:
        return FolderRoom(Path(text).expanduser())
    from migverify.runbook.record.room_db import open_db_room  # SQLAlchemy takes longer to load than a folder to read

    return open_db_room(text, password=password or os.environ.get(PASSWORD_VARIABLE), forbidden=forbidden)
