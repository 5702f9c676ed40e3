"""Runs in the database of a result store: for executors and people on several machines."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from migverify.errors import StoreError, UsageError
from migverify.model import Tls
from migverify.runbook.clock import Clock, system_clock
from migverify.runbook.events import Event
from migverify.runbook.fold.whole import verify_run
from migverify.runbook.model import Runbook, RunKind
from migverify.runbook.record.chain import Problem
from migverify.runbook.record.heads import Head
from migverify.runbook.record.journal_db import DbJournal
from migverify.runbook.record.room import LAST, check_id, written_whole
from migverify.runbook.record.run_record import RunRecord, new_run_id
from migverify.secrets import Secret, remember
from migverify.store.database import Connection, Database
from migverify.store.journals import end_of, newest_run, open_database, run_ids

__all__ = ["DbRoom", "open_db_room"]


class DbRoom:
    """Runs in a database; may be shared by threads, the records that it opens may not.

    Parameters
    ----------
    here
        Folder of this machine for what effects leave. It has to outlive a process, not a boot.
    """

    def __init__(self, database: Database, *, here: Path | None = None, clock: Clock = system_clock) -> None:
        self.database, self._clock = database, clock
        name = hashlib.sha256(database.label.encode()).hexdigest()[:16]
        own = Path(tempfile.gettempdir()) / f"migverify-{os.getuid()}"
        self._here = here or own / name
        self._guarded = () if here is not None else (own, self._here)

    @property
    def name(self) -> str:
        """The store, without its password."""
        return self.database.label

    def ids(self) -> list[str]:
        """Return the ids of all runs, the one that was started first in front."""
        return self.database.read("cannot list the runs of", run_ids)

    def create(
        self, runbook: Runbook, kind: RunKind, actor: str, *, run: str | None = None, schema_fingerprint: str = "",
        autopilot: bool = False,
    ) -> RunRecord:  # fmt: skip
        """Start a run, chained to the run that was begun in the database last."""
        journal = self._journal(check_id(run or new_run_id(runbook.id)), runbook.sha)
        return RunRecord.begin(
            journal, runbook, kind, actor, schema_fingerprint=schema_fingerprint, autopilot=autopilot,
            previous=self.database.read("cannot list the runs of", _last_head),
        )  # fmt: skip

    def begun(self) -> list[Head]:
        """Return nothing: a database keeps no list of runs beside their rows."""
        return []

    def open(self, run: str) -> RunRecord:
        """Open a run by its id or ``last``."""
        return RunRecord.of(self._journal(self._find(run)))

    def events(self, run: str) -> Iterator[Event]:
        """Yield the events of a run by its id or ``last``."""
        return self._journal(self._find(run)).events()

    def folder(self, run: str) -> Path:
        """Return a folder of this machine, only its user's; other machines have one of their own."""
        folder = self._here / check_id(run)
        try:
            for one in self._guarded:
                one.mkdir(exist_ok=True, mode=0o700)
                # Anybody may make a folder of that name in /tmp before us, or a link to another one.
                facts = one.lstat()
                if facts.st_uid != os.getuid() or not stat.S_ISDIR(facts.st_mode) or facts.st_mode & 0o022:
                    raise StoreError(f"{one} is not ours alone", hint="Remove it, or set TMPDIR to a folder of yours.")
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StoreError(f"{folder} cannot be made: {error.strerror}") from error
        return folder

    def verify(self, run: str) -> list[Problem]:
        """Check a run's journal as ``verify_run`` checks a file, and that the database's row about it agrees."""
        journal = self._journal(self._find(run))
        end = journal.end()
        with tempfile.TemporaryDirectory(prefix="migverify-") as folder:
            path = Path(folder) / "journal.jsonl"
            last = _copy(journal, path)
            problems = verify_run(path)
        if end is not None and last < end.events:
            problems.append(Problem(last + 1, f"cut off: the run has {end.events} events, and {last} are there"))
        return problems

    def export(self, run: str, path: Path) -> None:
        """Write a run's journal to a file, line by line as it is; ``verify-journal`` judges that file."""
        journal = self._journal(self._find(run))
        with written_whole(path) as fresh:
            _copy(journal, fresh)

    def _journal(self, run: str, runbook: str = "") -> DbJournal:
        return DbJournal(self.database, run, runbook, folder=self.folder(run), clock=self._clock)

    def _find(self, run: str) -> str:
        def work(connection: Connection) -> str | None:
            if run == LAST:
                return newest_run(connection)
            return run if end_of(connection, check_id(run), locked=False) is not None else None

        found = self.database.read("cannot look for a run in", work)
        if found is None and run == LAST:
            raise UsageError(f"{self.name} holds no run", hint="Start one, or name another room with --runs.")
        if found is None:
            raise UsageError(f"there is no run {run} in {self.name}", hint="`last` names the newest one.")
        return str(found)


def _copy(journal: DbJournal, path: Path) -> int:
    count = 0
    with path.open("wb") as file:
        for line in journal.lines():
            file.write(line)
            count += 1
    return count


def _last_head(connection: Connection) -> Head | None:
    run = newest_run(connection)
    end = end_of(connection, run, locked=False) if run is not None else None
    return Head(run, end.events - 1, end.head) if run is not None and end is not None else None


def open_db_room(
    url: str,
    *,
    password: str | None = None,
    forbidden: Sequence[tuple[str, int]] = (),
    tls: Tls | None = None,
    clock: Clock = system_clock,
) -> DbRoom:
    """Open the runs of a result store; see ``store.open`` for the URL, and for what is forbidden.

    Raises
    ------
    StoreError
        the store cannot be opened, or cannot keep runs.
    """
    database = open_database(url, password=password, forbidden=forbidden, tls=tls)
    if database.secret:
        remember(Secret(str(database.secret)))  # no line of a journal may hold it
    return DbRoom(database, clock=clock)
