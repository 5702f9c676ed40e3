"""Where runs live: an SQLite file in a folder, or the database of a result store for several machines."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from migverify.config.urls import check_store_url
from migverify.errors import StoreError, UsageError
from migverify.files import written_whole
from migverify.model import Tls
from migverify.runbook.clock import Clock, system_clock
from migverify.runbook.events import Event
from migverify.runbook.kinds import RunKind
from migverify.runbook.model import Runbook
from migverify.runbook.record.chain import JournalProblem
from migverify.runbook.record.heads import Head, note_begun, runs_begun
from migverify.runbook.record.journal import RunJournal
from migverify.runbook.record.journal_file import NAME, verify_run
from migverify.runbook.record.run_record import RunRecord, new_run_id
from migverify.secrets import Secret, remember
from migverify.store.database import Connection, Database
from migverify.store.journals import JournalStart, end_of, newest_run, open_database, run_ids, starts

__all__ = ["FILE", "LAST", "RunStore", "check_id", "open_run_store"]

FILE = "runs.db"
"""The SQLite file in a folder of runs."""
LAST = "last"
"""Names the run that was started last."""
PASSWORD_VARIABLE = "MIGVERIFY_RUNS_PASSWORD"  # noqa: S105 - the name of one
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
"""What an id may be: it is a folder's name here and a key there."""


class RunStore:
    """Runs in one database; may be shared by threads, the records that it opens may not.

    Parameters
    ----------
    folder
        Of this machine, for what effects leave. It has to outlive a process, not a boot.
    database
        None: the SQLite file of the folder, which is made with the first run.
    guarded
        Folders that have to be this user's alone, from the outside in.
    """

    def __init__(
        self, folder: Path, database: Database | None = None, *, clock: Clock = system_clock,
        guarded: tuple[Path, ...] = (),
    ) -> None:  # fmt: skip
        self.path, self._clock, self._guarded = folder, clock, guarded
        self._file = folder / FILE if database is None else None
        self._opened = database

    @property
    def name(self) -> str:
        """What the store is called in messages; it holds no secret."""
        return str(self.path) if self._file is not None else self.database.label

    @property
    def is_folder(self) -> bool:
        """Whether the runs are in a folder of this machine."""
        return self._file is not None

    @property
    def database(self) -> Database:
        """The database, opened when it is first used; raises StoreError."""
        if self._opened is None:
            for suffix in ("", "-wal", "-shm", "-journal"):
                file = self.path / f"{FILE}{suffix}"
                if file.is_symlink():
                    raise StoreError(f"{file} is a symbolic link, and is not followed",
                                     hint="Files of a run belong to the run: look who put it there.")  # fmt: skip
            self._opened = open_database(str(self.path / FILE), password=None, forbidden=())
        return self._opened

    def ids(self) -> list[str]:
        """Return the ids of all runs, the one that was started first in front."""
        return self.database.read("cannot list the runs of", run_ids) if self._is_there() else []

    @contextmanager
    def one_reading(self) -> Iterator[None]:
        """Let all reads be of one moment, by one connection; nothing is written meanwhile, and no thread shares it.

        Raises StoreError: the database cannot be opened or reached.
        """
        if not self._is_there():
            yield
            return
        before = self.database
        with before.one_reading() as self._opened:
            try:
                yield
            finally:
                self._opened = before

    def begun(self) -> list[Head]:
        """Return the first heads of all runs that were ever begun in the folder; a server has no such list."""
        return runs_begun(self.path) if self._file is not None else []

    def create(
        self, runbook: Runbook, kind: RunKind, actor: str, *, run: str | None = None, schema_fingerprint: str = "",
        autopilot: bool = False,
    ) -> RunRecord:  # fmt: skip
        """Start a run, chained to the run that was begun last; see ``RunRecord.begin``.

        Raises UsageError: there is a run of that id, or the id cannot be one.
        """
        journal = self._journal(check_id(new_run_id(runbook.service) if run is None else run), runbook.sha, first=True)
        begun = self.begun()
        gone = begun[-1] if begun and begun[-1].run not in self.ids() else None
        record = RunRecord.begin(
            journal, runbook, kind, actor, schema_fingerprint=schema_fingerprint, autopilot=autopilot, previous=gone
        )
        if self._file is not None:
            note_begun(self.path, next(journal.events()))
        return record

    def open_journal(self, run: str) -> RunJournal:
        """Return the journal of a run by its id or ``last``; raises ``UsageError`` when there is none."""
        return self._journal(self._find(run))

    def starts(self) -> dict[str, JournalStart]:
        """Return how the journal of each run starts, the run that was started first in front."""
        return self.database.read("cannot list the runs of", starts) if self._is_there() else {}

    def listed(self, run: str, start: JournalStart) -> RunJournal:
        """Return the journal of a run that ``starts`` has named, as it was then; it is not looked for again."""
        return self._journal(run, start=start)

    def open(self, run: str) -> RunRecord:
        """Open a run by its id or ``last``. Not shared by threads: each one opens its own.

        Raises ``UsageError`` when there is none, ``JournalError`` when its journal is damaged.
        """
        return RunRecord.of(self.open_journal(run))

    def events(self, run: str) -> Iterator[Event]:
        """Yield the events of a run by its id or ``last``, streaming; raises as ``open``."""
        return self.open_journal(run).events()

    def folder(self, run: str) -> Path:
        """Return a run's folder on this machine, only its user's; other machines have one of their own."""
        folder = self.path / check_id(run)
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

    def verify(self, run: str) -> list[JournalProblem]:
        """Check a run's journal as ``verify_run`` checks a file, and that the database's row about it agrees."""
        journal = self.open_journal(run)
        end = journal.end()
        with tempfile.TemporaryDirectory(prefix="migverify-") as folder:
            path = Path(folder) / NAME
            with path.open("wb") as file:
                last = _copy(journal, file)
            problems = verify_run(path)
        if end is not None and last < end.events:
            problems.append(JournalProblem(last + 1, f"cut off: the run has {end.events} events, and {last} are there"))
        return problems

    def export(self, run: str, path: Path) -> None:
        """Write a run's journal to a file, line by line as it is; ``verify_run`` judges that file."""
        journal = self.open_journal(run)
        try:
            with written_whole(path) as file:
                _copy(journal, file)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error.strerror}") from error

    def _journal(
        self, run: str, runbook: str = "", *, first: bool = False, start: JournalStart | None = None
    ) -> RunJournal:
        if first:
            self._is_there()
        return RunJournal(self.database, run, runbook, folder=self.folder(run), clock=self._clock, start=start)

    def _is_there(self) -> bool:
        """Tell whether there is a database.

        Raises UsageError: the folder holds runs of an earlier release, which kept each as a file of lines.
        """
        if self._file is None or self._file.exists() or self._file.is_symlink():
            return True
        old = sorted(self.path.glob(f"*/{NAME}")) if self.path.is_dir() else []
        if old:
            raise UsageError(
                f"{self.path} holds runs of an earlier release ({old[0].parent.name}/{NAME} ...), which are not read",
                hint="Name another folder with --runs, and hold the drills again; a file can still be verified.",
            )
        return False

    def _find(self, run: str) -> str:
        def work(connection: Connection) -> str | None:
            if run == LAST:
                return newest_run(connection)
            return run if end_of(connection, run, locked=False) is not None else None

        if run != LAST:
            check_id(run)
        found = self.database.read("cannot look for a run in", work) if self._is_there() else None
        if found is None and run == LAST:
            raise UsageError(f"{self.name} holds no run", hint="Start one, or name another store of runs with --runs.")
        if found is None:
            raise UsageError(f"there is no run {run} in {self.name}", hint="`last` names the newest one.")
        return str(found)


def check_id(run: str) -> str:
    """Return an id that can be one.

    Raises UsageError: it could be a path, or a name that some file system or database does not take.
    """
    if run == LAST or not _ID.fullmatch(run):
        raise UsageError(
            f"{run!r} is not an id of a run", hint="Letters, digits, `.`, `_` and `-`, at most 120; not `last`."
        )
    return run


def _copy(journal: RunJournal, file: BinaryIO) -> int:
    count = 0
    for line in journal.lines():
        file.write(line)
        count += 1
    return count


def open_run_store(
    text: str, *, password: str | None = None, forbidden: Sequence[tuple[str, int]] = (), tls: Tls | None = None,
    clock: Clock = system_clock,
) -> RunStore:  # fmt: skip
    """Open a store of runs: a folder's path, or the URL of a result store (``mysql+pymysql://...``, ``sqlite:///...``).

    Parameters
    ----------
    password
        Of the store, instead of the URL's; by default that of the variable ``MIGVERIFY_RUNS_PASSWORD``, if it is set.
    forbidden
        (host, port) of the endpoints under test: what is verified is never written.
    tls
        See ``store.open.open_store``.

    Raises UsageError: the text is empty, or holds a password; StoreError: the store cannot be opened.
    """
    if not text.strip():
        raise UsageError("the name of the store of runs is empty", hint="Name a folder, or the URL of a result store.")
    if "://" not in text:
        return RunStore(Path(text).expanduser(), clock=clock)
    try:
        check_store_url(text, f"put it into the variable {PASSWORD_VARIABLE}")
    except ValueError as error:
        raise UsageError(f"--runs: {error}") from None
    password = password or os.environ.get(PASSWORD_VARIABLE)
    database = open_database(text, password=password, forbidden=forbidden, tls=tls)
    if database.secret:
        remember(Secret(str(database.secret)))  # no line of a journal may hold it
    own = Path(tempfile.gettempdir()) / f"migverify-{os.getuid()}"
    folder = own / hashlib.sha256(database.label.encode()).hexdigest()[:16]
    return RunStore(folder, database, clock=clock, guarded=(own, folder))
