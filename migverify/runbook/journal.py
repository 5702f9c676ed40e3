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
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from migverify.errors import FencedError, JournalError, StoreError
from migverify.runbook.clock import Clock, Moment, system_clock
from migverify.runbook.events import Event, EventKind
from migverify.runbook.locks import locked
from migverify.secrets import known_secrets, scrub

__all__ = [
    "GENESIS", "Disk", "Draft", "FolderJournal", "Journal", "Problem", "Reader", "SystemDisk",
    "canonical", "event_line", "read_events", "verify_journal",
]  # fmt: skip

GENESIS = "0" * 64
NAME = "journal.jsonl"
_FIELDS = frozenset(Event.__dataclass_fields__)
_KINDS = {kind.value: kind for kind in EventKind}
# In the order of canonical JSON, so that a line that is written otherwise is none.
_ORDER = sorted(_FIELDS)
_TYPES = tuple({"wall": float, "data": dict, **dict.fromkeys(("seq", "attempt", "mono", "epoch"), int)}.get(name, str)
               for name in _ORDER)  # fmt: skip
_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False, check_circular=False
).encode


def canonical(value: Any) -> bytes:
    """Return canonical JSON: keys sorted, no spaces, ASCII only, no NaN.

    Raises
    ------
    ValueError, TypeError
        the value has no such form.
    """
    return _encode(value).encode("ascii")


@dataclass(frozen=True, slots=True)
class Draft:
    """An event before it has a place in the journal. ``attempt`` counts from 1; 0 for events of the run."""

    kind: EventKind
    actor: str
    role: str = ""
    step: str = ""
    attempt: int = 0
    data: dict[str, Any] = field(default_factory=dict)


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
    """Where a run's events are kept. The folder's is here; a database can be another."""

    def new(self) -> Iterator[Event]:
        """Yield the events that came since the last call."""
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


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a journal; ``line`` counts from 1. A torn last line is not ``fatal``: nobody acted on it."""

    line: int
    what: str
    fatal: bool = True

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}"


def event_line(event_fields: dict[str, Any]) -> tuple[str, bytes]:
    """Return (sha, line with its newline) of an event's fields without ``sha``."""
    sha = hashlib.sha256(canonical(event_fields)).hexdigest()
    return sha, canonical({**event_fields, "sha": sha}) + b"\n"


class Reader:
    """Reads a journal file onward from where it stood; memory is one line.

    Attributes
    ----------
    offset, line, head
        Bytes and lines read so far, and the last line's hash.
    torn
        Bytes after the last newline at the last look: a write under way, or one that a crash cut.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset, self.line, self.head, self.torn, self.epoch = 0, 0, GENESIS, 0, 0
        self.run: str | None = None
        self.line_start = 0
        self.bad = 0  # the line that was refused, from 1

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
        event, why = _parse(raw, self.line, self.head, self.run)
        if event is not None and event.epoch < self.epoch:
            why, event = f"has epoch {event.epoch} after {self.epoch}", None
        if event is None:
            self.bad = self.line + 1
            raise JournalError(
                f"{self.path}:{self.line + 1}: {why}",
                hint="The journal was changed after it was written; `verify-journal` names all that is wrong.",
            )
        self.line_start = self.offset
        self.offset += len(raw)
        self.line += 1
        self.head, self.epoch, self.run = event.sha, event.epoch, event.run
        return event


def _parse(raw: bytes, seq: int, previous: str, run: str | None) -> tuple[Event | None, str]:
    """Return the event of a line, or None and why it is none."""
    # Quotes inside a JSON text are escaped, so these bytes stand only where the field begins.
    at = raw.rfind(b',"sha":"')
    sha = raw[at + 8 : at + 72].decode("ascii", "replace")
    if at < 0 or raw[at + 72 : at + 73] != b'"':
        return None, "is not an event"
    if hashlib.sha256(raw[:at] + raw[at + 73 : -1]).hexdigest() != sha:
        return None, "its hash is not that of its text"
    try:
        told = json.loads(raw)
        if type(told) is not dict or list(told) != _ORDER or told["sha"] != sha:
            return None, "has not the fields of an event"
        if tuple(map(type, told.values())) != _TYPES:
            return None, "has a field of another type"
        told["kind"] = _KINDS[told["kind"]]
        event = Event(**told)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return None, f"is not an event: {error}"
    if event.previous != previous:
        return None, "is not chained to the line before: lines were dropped, swapped or inserted"
    if event.seq != seq:
        return None, f"has number {event.seq} where {seq} was expected"
    if run is not None and event.run != run:
        return None, f"belongs to run {event.run}"
    return event, ""


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
            fields = {name: getattr(event, name) for name in _FIELDS}
            if canonical(fields) + b"\n" != _line_at(path, reader):
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
        self.clock = clock
        self._disk = disk or SystemDisk()
        self._reader = Reader(self.path)

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
            if epoch is not None and epoch != self._reader.epoch and not _takes(drafts, epoch):
                raise FencedError(
                    f"run {self.run}: epoch {epoch} is over, the run is at {self._reader.epoch}",
                    hint="Another executor took the run over; this one has to end.",
                )
            return self._write(drafts, judge) if drafts else []

    def _write(self, drafts: Sequence[Draft], judge: Callable[[list[Event]], None] | None) -> list[Event]:
        reader = self._reader
        torn = [_torn_note(self.path, reader)] if reader.torn else []
        now, head, epoch = self.clock.now(), reader.head, reader.epoch
        lines, events = list[bytes](), list[Event]()
        for place, draft in enumerate([*torn, *drafts]):
            fields = self._fields(draft, reader.line + place, head, epoch, now)
            head, line = event_line(fields)
            epoch = fields["epoch"]
            lines.append(line)
            events.append(Event(**{**fields, "sha": head, "kind": draft.kind}))
        if judge is not None:
            judge(events)
        self._put(b"".join(lines), reader.offset)
        return list(self.new())

    def _fields(self, draft: Draft, seq: int, previous: str, epoch: int, now: Moment) -> dict[str, Any]:
        if draft.kind is EventKind.LEASE:
            epoch = int(draft.data["epoch"])
        data = _without_secrets(draft.data) if known_secrets() else draft.data
        fields = {
            "seq": seq, "previous": previous, "run": self.run, "step": draft.step, "attempt": draft.attempt,
            "kind": draft.kind.value, "actor": draft.actor, "role": draft.role, "wall": now.wall, "mono": now.mono,
            "boot": now.boot, "epoch": epoch, "runbook": self.runbook, "data": data,
        }  # fmt: skip
        try:
            canonical(fields)
        except (TypeError, ValueError) as error:
            raise StoreError(f"an event {draft.kind.value} of {draft.step or 'the run'} has no JSON: {error}") from None
        return fields

    def _put(self, data: bytes, offset: int) -> None:
        fresh = not self.path.exists()
        handle = -1
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o640)
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


def _takes(drafts: Sequence[Draft], epoch: int) -> bool:
    return bool(drafts) and drafts[0].kind is EventKind.LEASE and drafts[0].data.get("epoch") == epoch


def _torn_note(path: Path, reader: Reader) -> Draft:
    with path.open("rb") as file:
        file.seek(reader.offset)
        rest = file.read()
    told = {"torn_bytes": len(rest), "torn_sha": hashlib.sha256(rest).hexdigest()}
    return Draft(EventKind.NOTE, "journal", data=told)


def _without_secrets(value: Any) -> Any:
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {scrub(str(key)): _without_secrets(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(one) for one in value]
    return value


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
