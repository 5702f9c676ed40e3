"""The journal of a run: append-only JSONL, one event a line, chained by hashes, on disk before and after each effect.

Several processes on several machines may write to one journal. A writer holds an exclusive lock on ``journal.lock``
while it reads what is new, decides, and appends; ``O_APPEND`` and one ``write`` keep the lines whole. An executor says
under which epoch it writes: a newer one in the journal refuses it (``FencedError``), whatever its lease file says.

On a local file system the lock is ``flock``. On NFS, Linux turns it into a byte-range lock of the server (NFSv4, or
NFSv3 with lockd): it excludes other machines, and it is lost when the client cannot renew it; the chain of hashes then
shows two writers, and no verdict is made of a journal that forks. A mount with ``nolock`` or ``local_lock`` excludes
nobody: use the store's database there.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from migverify.errors import JournalError, StoreError
from migverify.runbook.clock import Clock, system_clock
from migverify.runbook.events import Event, EventKind
from migverify.runbook.record.chain import GENESIS, Draft, Link, Problem, canonical, event_line, fence, line_of
from migverify.runbook.record.lease_place import FolderLease, LeasePlace
from migverify.runbook.record.locks import locked, open_own

__all__ = [
    "GENESIS", "Disk", "Draft", "FolderJournal", "Journal", "Problem", "Reader", "SystemDisk",
    "canonical", "event_line", "read_events", "verify_journal",
]  # fmt: skip

NAME = "journal.jsonl"


class Disk(Protocol):
    """What writes and syncs. The only seam between the journal and the operating system."""

    def write(self, handle: int, data: bytes) -> int:
        """Write some of the bytes, and return how many."""
        ...

    def sync(self, handle: int) -> None:
        """Return when the file is on the disk."""
        ...


class SystemDisk:
    """The operating system's own calls."""

    def write(self, handle: int, data: bytes) -> int:
        """Write some of the bytes, and return how many."""
        return os.write(handle, data)

    def sync(self, handle: int) -> None:
        """Return when the file is on the disk."""
        os.fsync(handle)


class Journal(Protocol):
    """Where a run's events are kept: a file (``FolderJournal``), or a database (``journal_db``).

    Attributes
    ----------
    run, runbook
        What stands in every line: the run's id and the runbook's hash.
    folder
        Where effects of the run leave things on this machine: locks, files of evidence.
    seen_everywhere
        Whether locks in that folder show to every machine that may drive the run.
    """

    run: str
    runbook: str
    clock: Clock
    folder: Path
    seen_everywhere: bool

    @property
    def label(self) -> str:
        """Its name in messages; it holds no secret."""
        ...

    def lease(self) -> LeasePlace:
        """Return where the run's lease is."""
        ...

    def new(self) -> Iterator[Event]:
        """Yield the events that came since the last call."""
        ...

    def events(self) -> Iterator[Event]:
        """Yield all events from the first on, whatever ``new`` has yielded."""
        ...

    def append(
        self,
        decide: Callable[[], Sequence[Draft]],
        *,
        epoch: int | None = None,
        judge: Callable[[list[Event]], None] | None = None,
    ) -> list[Event]:
        """Lock, have ``decide`` look at what is new and say what to write, write it, and return it."""
        ...


class Reader(Link):
    """Reads a journal file onward from where it stood; memory is one line.

    Attributes
    ----------
    offset, line_start
        Bytes read so far, and where the last line began.
    torn
        Bytes after the last newline at the last look: a write under way, or one that a crash cut.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.offset, self.line_start, self.torn = 0, 0, 0

    def new(self) -> Iterator[Event]:
        """Yield the events that came since.

        Raises
        ------
        JournalError
            a line is damaged, is not chained to the one before, or what was read before has been cut off.
        StoreError
            the file cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < self.offset:
                    raise JournalError(f"{self.path}: cut off before line {self.line + 1}, which was read before")
                file.seek(self.offset)
                for raw in file:
                    if not raw.endswith(b"\n"):
                        self.torn = len(raw)
                        return
                    yield self._take(raw)
                self.torn = 0
        except FileNotFoundError:
            if self.offset:
                raise JournalError(f"{self.path} is gone") from None
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read: {error.strerror}") from error

    def _take(self, raw: bytes) -> Event:
        event = self.take(raw, str(self.path))
        self.line_start = self.offset
        self.offset += len(raw)
        return event


def read_events(path: Path) -> Iterator[Event]:
    """Yield all events of a journal file, streaming; a torn last line is left out.

    Raises
    ------
    JournalError
        as ``Reader.new``.
    """
    if not path.exists():
        raise JournalError(f"{path}: there is no such journal")
    yield from Reader(path).new()


def verify_journal(path: Path, judge: Callable[[Iterator[Event]], object] | None = None) -> list[Problem]:
    """Check a journal offline, and return what is wrong, the first bad line first; empty: nothing.

    Parameters
    ----------
    judge
        Reads the events and raises JournalError where they say what cannot have happened (``fold``); None: the
        chain alone is checked.
    """
    reader, problems = Reader(path), list[Problem]()
    if not path.exists():
        return [Problem(0, f"{path}: there is no such journal")]

    def watched() -> Iterator[Event]:
        for event in reader.new():
            if line_of(event) != _line_at(path, reader):
                raise JournalError(f"{path}:{reader.line}: is not written as canonical JSON")
            yield event

    try:
        if judge is None:
            for _ in watched():
                pass
        else:
            judge(watched())
    except JournalError as error:
        # The reader names a line that breaks the chain; what the fold refuses is the last line that was read.
        return [Problem(reader.bad or reader.line, _without_line(error.message))]
    if reader.line == 0:
        problems.append(Problem(0, "holds no event"))
    if reader.torn:
        problems.append(Problem(reader.line + 1, f"torn: {reader.torn} bytes without an end", fatal=False))
    return problems


def _without_line(message: str) -> str:
    place, _, rest = message.partition(": ")
    return rest if rest and (place.startswith("line ") or place.rpartition(":")[2].isdigit()) else message


def _line_at(path: Path, reader: Reader) -> bytes:
    # Reads each line a second time: an offline check may, and the reader stays small.
    with path.open("rb") as file:
        file.seek(reader.line_start)
        return file.read(reader.offset - reader.line_start)


class FolderJournal:
    """A journal in a folder that may be shared.

    Parameters
    ----------
    folder
        The run's own; it is made when it is not there.
    run, runbook
        What stands in every line: the run's id and the runbook's hash.

    Raises
    ------
    StoreError
        the folder cannot be made.
    """

    def __init__(
        self, folder: Path, run: str, runbook: str = "", *, clock: Clock = system_clock, disk: Disk | None = None
    ) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{folder} cannot be made: {error.strerror}") from error
        self.folder, self.path, self.run, self.runbook = folder, folder / NAME, run, runbook
        self.clock, self.seen_everywhere = clock, True
        self._disk = disk or SystemDisk()
        self._reader = Reader(self.path)

    @property
    def label(self) -> str:
        """The file."""
        return str(self.path)

    def lease(self) -> LeasePlace:
        """Return where the run's lease is."""
        return FolderLease(self.folder)

    @property
    def head(self) -> str:
        """Hash of the last line that was read."""
        return self._reader.head

    def new(self) -> Iterator[Event]:
        """Yield the events that came since the last call."""
        for event in self._reader.new():
            self.runbook = event.runbook
            if event.run != self.run:
                raise JournalError(f"{self.path}: belongs to run {event.run}, not to {self.run}")
            yield event

    def events(self) -> Iterator[Event]:
        """Yield all events from the first on, whatever ``new`` has yielded."""
        return read_events(self.path)

    def append(
        self,
        decide: Callable[[], Sequence[Draft]],
        *,
        epoch: int | None = None,
        judge: Callable[[list[Event]], None] | None = None,
    ) -> list[Event]:
        """Lock, have ``decide`` look at what is new and say what to write, write it to the disk, and return it.

        ``decide`` has to consume ``new()``. The returned events were taken as read: ``new`` does not yield them again.

        Parameters
        ----------
        epoch
            Under which an executor writes; None: a person, who is not fenced.
        judge
            Sees the events before they are written; what it raises keeps them out.

        Raises
        ------
        FencedError
            the journal has a newer epoch.
        StoreError
            the lock is not to be had, or the disk does not take the lines; nothing of them is kept then.
        JournalError
            the journal is damaged: nothing is added to it.
        """
        with self._locked():
            drafts = decide()
            for event in self.new():
                raise JournalError(f"{self.path}: event {event.seq} came while the lock was held: it excludes nobody")
            fence(self._reader, drafts, epoch, self.run)
            return self._write(drafts, judge) if drafts else []

    def _write(self, drafts: Sequence[Draft], judge: Callable[[list[Event]], None] | None) -> list[Event]:
        reader = self._reader
        torn = [_torn_note(self.path, reader)] if reader.torn else []
        made = reader.make([*torn, *drafts], self.run, self.runbook, self.clock.now())
        if judge is not None:
            judge(made.events)
        self._put(b"".join(made.lines), reader.offset)
        return list(self.new())

    def _put(self, data: bytes, offset: int) -> None:
        fresh = not self.path.exists()
        handle = -1
        try:
            handle = open_own(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            # A torn line was never acknowledged, so nobody acted on it; the note that follows keeps its hash.
            os.ftruncate(handle, offset)
            rest = data
            while rest:
                rest = rest[self._disk.write(handle, rest) :]
            self._disk.sync(handle)
            if fresh:
                _sync_folder(self.folder)
        except OSError as error:
            if handle >= 0:
                os.ftruncate(handle, offset)  # half a batch must not stay: a reader would take its first lines
            raise StoreError(
                f"{self.path} cannot be written: {error.strerror}", hint="Is the disk full? Nothing was done."
            ) from error
        finally:
            if handle >= 0:
                os.close(handle)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with locked(self.folder / "journal.lock"):
            yield


def _torn_note(path: Path, reader: Reader) -> Draft:
    with path.open("rb") as file:
        file.seek(reader.offset)
        rest = file.read()
    told = {"torn_bytes": len(rest), "torn_sha": hashlib.sha256(rest).hexdigest()}
    return Draft(EventKind.NOTE, "journal", data=told)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
