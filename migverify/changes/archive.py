"""Keeps a server's binlog files, byte for byte.

The server sends events; an event's bytes are its header, its body and the checksum that was verified when it came.
What it sends besides - rotate events and format descriptions that only say where the stream is, heartbeats - is not
in its files and not in the archive. Each event must end where its header says, right after the one before: a byte
that did not come cannot go unnoticed. The one bit that differs from the server's file while that is written is the
mark "in use" (22nd byte), which the server clears when it sends the file and when it finishes it.

What was written is published about every second (an object store: every minute) and at each file's end: first the
bytes, then the manifest. After kill -9 the manifest says how many bytes are certain; the rest is cut off and read anew.
"""

from __future__ import annotations

import hashlib
import logging
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, BinaryIO, NamedTuple, cast

from migverify.changes.events import (
    END_BITS,
    FIRST_OFFSET,
    GTID_EVENTS,
    HEADER,
    HEADER_BYTES,
    HEARTBEATS,
    IN_USE,
    MAGIC,
    EventType,
    RawEvent,
    file_events,
)
from migverify.changes.gtid import Executed, GtidSet, decode_gtids
from migverify.changes.manifest import (
    ArchiveGap,
    FileEntry,
    FileState,
    Manifest,
    OpenXa,
    breaks,
    number,
    read_manifest,
    write_entry,
    write_gap,
)  # fmt: skip
from migverify.changes.model import Position
from migverify.changes.places import EventStream
from migverify.changes.server import BinlogServer
from migverify.changes.source import RECONNECT_SECONDS, reconnecting
from migverify.changes.statements import Xid
from migverify.changes.storage import ByteWindow, Storage, WorkFile
from migverify.changes.transactions import TransactionReader, read
from migverify.db.server_state import BinaryLog
from migverify.errors import ChangeError, PurgedError, RetryableReadError, UsageError

LOG = logging.getLogger(__name__)

LOCAL_SECONDS, REMOTE_SECONDS = 1.0, 60.0

Say = Callable[[str], None]
_CHECKED = ("whole", "gtids_before", "gtids", "anonymous")


def event_bytes(event: RawEvent) -> bytes:
    """Return an event as its file holds it."""
    flags = event.flags
    if event.type == EventType.FORMAT_DESCRIPTION:
        flags &= ~IN_USE
    data = HEADER.pack(event.time, event.type, event.server_id, event.size, event.end, flags) + event.body
    if event.size == len(data):
        return data
    return data + zlib.crc32(data).to_bytes(4, "little")


_MAY_BE_XA = frozenset({EventType.QUERY, EventType.XA_PREPARE, EventType.TRANSACTION_PAYLOAD})


class FileFacts:
    """Gathers the facts of one file; ``add`` takes its events in order, from the format description on.

    No row is decoded. The GTIDs inside a file are counted one by one, so that the next file's PREVIOUS_GTIDS, which the
    server writes from its own records, is an independent proof that no transaction is missing. The fields are those of
    ``manifest.FileEntry``.
    """

    def __init__(self, name: str) -> None:
        self.whole = FIRST_OFFSET
        self.first_time = self.last_time = self.anonymous = 0
        self.gtids_before = self.checksum = self.following = ""
        self._xa_open: dict[Xid, OpenXa] = {}
        self._finished_xa = False
        self._executed = Executed(GtidSet())
        self._reader = TransactionReader(EventStream((), Position(name, FIRST_OFFSET), gaps=True))
        self._reader.skip_all, self._reader.keep_rows = True, False

    def add(self, event: RawEvent, end: int) -> None:
        """Take one event that ends at byte ``end`` of the file (the header's own figure has 32 bits only)."""
        if event.time:
            self.first_time = self.first_time or event.time
            self.last_time = event.time
        kind, reader = event.type, self._reader
        if kind == EventType.FORMAT_DESCRIPTION:
            self.checksum = "crc32" if event.size > HEADER_BYTES + len(event.body) else "none"
        elif kind == EventType.PREVIOUS_GTIDS:
            self.gtids_before = str(decode_gtids(event.body))
        elif kind == EventType.ROTATE:
            self.following = event.rotates_to()[0]
        for _ in read(reader, (event,)):
            pass  # an Idle at most
        if kind in GTID_EVENTS and reader.current is not None:
            if reader.current.number:
                self._executed.add(reader.current)
            else:
                self.anonymous += 1
        elif kind in _MAY_BE_XA:
            for xid in reader.prepared.keys() - self._xa_open.keys():
                self._xa_open[xid] = OpenXa(str(xid), reader.begin_at, end)
            for xid in self._xa_open.keys() - reader.prepared.keys():
                del self._xa_open[xid]
                self._finished_xa = True
        if not reader.open:
            self.whole = end

    def fields(self) -> dict[str, Any]:
        """Return the fields of a ``FileEntry`` that the events give."""
        reader = self._reader
        return {
            "whole": self.whole, "first_time": self.first_time, "last_time": self.last_time,
            "gtids_before": self.gtids_before, "gtids": str(self._executed), "anonymous": self.anonymous,
            "server_version": reader.version, "checksum": self.checksum,
            "xa": bool(self._xa_open or reader.foreign_xa or self._finished_xa),
            "xa_open": tuple(self._xa_open.values()), "xa_closed": tuple(map(str, reader.foreign_xa)),
        }  # fmt: skip


class _HashedBytes(ByteWindow):
    """A window that is read once from its start; ``hash`` is that of what was read."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        super().__init__(stream, size)
        self.hash = hashlib.sha256()

    def read(self, count: int) -> bytes:
        """Read and hash."""
        data = super().read(count)
        self.hash.update(data)
        return data


def _read_again(stream: BinaryIO, entry: FileEntry) -> tuple[FileFacts, _HashedBytes, int]:
    """Return what the archived bytes of a file hold, the window over them, and the number of events."""
    window, facts, events = _HashedBytes(stream, entry.bytes), FileFacts(entry.name), 0
    offset = FIRST_OFFSET
    for event in file_events(cast("BinaryIO", window), entry.name):
        offset += event.size
        events += 1
        facts.add(event, offset)
    return facts, window, events


class _GrowingFile:
    """One file under construction."""

    def __init__(self, storage: Storage, uuid: str, name: str, previous: str) -> None:
        number(name)
        self.name = name
        self.facts = FileFacts(name)
        self.offset = 0
        self._storage = storage
        self._uuid = uuid
        self._previous = previous
        self._hash = hashlib.sha256()
        self._published = -1
        self._work: WorkFile | None = None

    def resume(self, entry: FileEntry) -> None:
        """Take over what is certain of a growing file; start anew where it is damaged."""
        try:
            with self._storage.open(self.name) as stream:
                facts, window, _ = _read_again(stream, entry)
            if (window.offset, window.hash.hexdigest()) != (entry.bytes, entry.sha256):
                raise ChangeError(f"{self.name}: the archived bytes are not those of the manifest.")
            self.facts, self.offset, self._hash = facts, window.offset, window.hash
        except ChangeError as error:
            LOG.warning("%s; the file is read from the server again", error.message)

    def open(self) -> None:
        """Cut the file to what is certain, ready to go on."""
        self._work = self._storage.work_file(self.name, self.offset)
        if not self.offset:
            self._write(MAGIC)

    def _write(self, data: bytes) -> None:
        if self._work is None:
            raise ChangeError(f"{self.name}: written before it was opened.")
        self._work.file.write(data)
        self._hash.update(data)
        self.offset += len(data)

    def add(self, event: RawEvent) -> None:
        """Append one event of the file."""
        if self.offset == FIRST_OFFSET and event.type != EventType.FORMAT_DESCRIPTION:
            raise ChangeError(f"{self.name}: the server's first event has type {event.type}, not a format description.")
        self._write(event_bytes(event))
        self.facts.add(event, self.offset)

    def publish(self, state: FileState = FileState.GROWING, following: str = "") -> None:
        """Make the bytes durable, then say so in the manifest."""
        if self._work is None or (self.offset == self._published and state is FileState.GROWING):
            return
        self._work.publish()
        entry = FileEntry(
            name=self.name, state=state, bytes=self.offset, sha256=self._hash.hexdigest(), server_uuid=self._uuid,
            in_use_cleared=state is FileState.GROWING, previous=self._previous, following=following,
            **self.facts.fields(),
        )  # fmt: skip
        write_entry(self._storage, entry)
        self._published = self.offset

    def close(self) -> None:
        if self._work is not None:
            self._work.close()
            self._work = None


def archive(
    storage: Storage,
    server: BinlogServer,
    *,
    since: str = "",
    follow: bool = False,
    publish_seconds: float | None = None,
    say: Say = LOG.info,
) -> Manifest:
    """Bring an archive up to the server's newest event; with ``follow`` go on until interrupted.

    Parameters
    ----------
    since
        First file of a new archive (default: the oldest that the server has), or the file to go on with after a gap.
    publish_seconds
        How long written bytes may wait to become durable; default 1 on a disk, 60 elsewhere.
    say
        Receives one sentence for each finished file and each gap.

    Raises
    ------
    PurgedError
        The server deleted a file before it was archived; the gap is in the manifest.
    ChangeError
        The archive is of another server, the server's binlogs were reset, or the stream is damaged. What was
        published before stays.
    UsageError
        ``since`` would leave out files that the server has.
    """
    if publish_seconds is None:
        publish_seconds = LOCAL_SECONDS if storage.is_local else REMOTE_SECONDS
    with storage.lock():
        manifest = read_manifest(storage)
        logs = server.logs()
        if not logs:
            raise ChangeError("the server has no binlog files.", hint="log_bin is off: see `migverify changes check`.")
        _same_history(manifest, server.uuid, logs)
        for one, other in _holes(manifest):
            start = _Start(one.following, one.name)
            _require_there(storage, start, logs, one, other.name, say)
            _ArchiveWriter(storage, server, publish_seconds, say).run(start, other.name, follow=False)
        start = _tail(storage, manifest, logs, since, say)
        _ArchiveWriter(storage, server, publish_seconds, say).run(start, "", follow=follow)
    return read_manifest(storage)


class _Start(NamedTuple):
    """The file to go on with, the one before it, and what the archive has of it."""

    name: str
    previous: str = ""
    growing: FileEntry | None = None


def _same_history(manifest: Manifest, uuid: str, logs: Sequence[BinaryLog]) -> None:
    """Refuse to mix two servers, or two lives of one server, in one archive."""
    for entry in manifest.files:
        if entry.server_uuid and uuid and entry.server_uuid != uuid:
            raise ChangeError(f"the archive holds binlogs of server {entry.server_uuid}, and this is {uuid}.",
                              hint="Give each server an archive of its own.")  # fmt: skip
    sizes = {log.name: log.size for log in logs if not log.encrypted}
    for entry in manifest.files:
        size = sizes.get(entry.name, entry.bytes)
        if size < entry.bytes or (size > entry.bytes and entry.state is FileState.COMPLETE):
            raise ChangeError(
                f"{entry.name}: the server's file has {size} bytes, the archive {entry.bytes}.",
                hint="The server's binlogs were reset since: begin a new archive in another folder.",
            )


def _holes(manifest: Manifest) -> Iterator[tuple[FileEntry, FileEntry]]:
    """Neighbors of the manifest between which an entry is missing: it was deleted by hand, to be read again."""
    known = {(gap.after, gap.resumes) for gap in manifest.gaps}
    for one, other in pairwise(manifest.files):
        finished = one.state is FileState.COMPLETE and (one.name, other.name) not in known
        if finished and number(one.following) < number(other.name):
            yield one, other


def _tail(storage: Storage, manifest: Manifest, logs: Sequence[BinaryLog], since: str, say: Say) -> _Start:
    """Where to go on at the newest end."""
    last = manifest.last
    if last is None:
        if since and since not in {log.name for log in logs}:
            raise PurgedError(f"the server has no {since}.", hint=f"Its oldest binlog is {logs[0].name}.")
        return _Start(since or logs[0].name)
    growing = last.state is FileState.GROWING
    start = _Start(last.name, last.previous, last) if growing else _Start(last.following, last.name)
    if not since or since == start.name:
        _require_there(storage, start, logs, last, "", say)
        return start
    names = [log.name for log in logs]
    if start.name in names or since not in names:
        raise UsageError(f"--since {since}: the archive goes on with {start.name}.",
                         hint="--since is for a new archive, or to go on after a gap.")  # fmt: skip
    write_gap(storage, ArchiveGap(last.name, last.bytes, since, int(time.time())))
    return _Start(since, last.name)


def _require_there(
    storage: Storage, start: _Start, logs: Sequence[BinaryLog], last: FileEntry, resumes: str, say: Say
) -> None:
    """Record a gap where the server no longer has the file to go on with."""
    if start.name in {log.name for log in logs}:
        return
    gap = ArchiveGap(last.name, last.bytes, resumes or logs[0].name, int(time.time()))
    write_gap(storage, gap)
    say(f"gap: {start.name} is gone from the server; the archive ends at byte {last.bytes} of {last.name}")
    raise PurgedError(
        f"the server deleted {start.name} before it was archived; the archive ends at {last.name}:{last.bytes}.",
        hint=f"Go on after the gap with --since {gap.resumes}; verify again what changed in between.",
    )


class _ArchiveWriter:
    """Takes the server's events into files."""

    def __init__(self, storage: Storage, server: BinlogServer, publish_seconds: float, say: Say) -> None:
        self._storage = storage
        self._server = server
        self._seconds = publish_seconds
        self._say = say
        self._file: _GrowingFile
        self._place = 0  # where the next event of the stream begins in its file
        self._due = 0.0

    def run(self, start: _Start, stop_before: str, *, follow: bool) -> None:
        """Fetch from a file on, up to the newest event or to the file named."""
        self._file = self._open(start)
        events = reconnecting(
            lambda: self._from_here(follow=follow), "the archive", RECONNECT_SECONDS,
            lambda: f"{self._file.name}:{self._file.offset}",
        )  # fmt: skip
        try:
            for event in events:
                if self._take(event, stop_before):
                    return
            following = self._file.facts.following
            self._file.publish(FileState.COMPLETE if following else FileState.GROWING, following)
        except BaseException:
            # Whole events only are in the file: what came before the failure is certain.
            self._file.publish()
            raise
        finally:
            self._file.close()

    def _from_here(self, *, follow: bool) -> Iterator[RawEvent]:
        file = self._file
        # The protocol has 32 bits for the offset; what comes twice is left out.
        self._place = max(file.offset, FIRST_OFFSET) if file.offset <= END_BITS else FIRST_OFFSET
        try:
            yield from self._server.events(Position(file.name, self._place), follow=follow)
        except RetryableReadError:
            self._file.publish()
            raise
        if follow:
            raise RetryableReadError("the server ended the stream")

    def _open(self, start: _Start) -> _GrowingFile:
        file = _GrowingFile(self._storage, self._server.uuid, start.name, start.previous)
        if start.growing is not None:
            file.resume(start.growing)
        file.open()
        self._due = time.monotonic() + self._seconds
        return file

    def _take(self, event: RawEvent, stop_before: str) -> bool:
        """Take one event; returns whether the file to stop before has come."""
        if event.type == EventType.ROTATE and (event.is_artificial or not event.time):
            name, place = event.rotates_to()
            if name != self._file.name:
                self._file.publish(FileState.COMPLETE, name)
                self._file.close()
                self._say(f"{self._file.name}: complete, {self._file.offset:,} bytes")
                if name == stop_before:
                    return True
                self._file = self._open(_Start(name, self._file.name))
            self._place = place
            if self._place > self._file.offset:
                raise ChangeError(f"{name}: the server goes on at {self._place}, after {self._file.offset}.")
        else:
            self._append(self._file, event)
        return False

    def _append(self, file: _GrowingFile, event: RawEvent) -> None:
        if event.type in HEARTBEATS:
            file.publish()
            return
        if event.is_artificial:
            # A format description at the start of a connection, not in the file at this place.
            described = event.type == EventType.FORMAT_DESCRIPTION and event.time and file.offset > FIRST_OFFSET
            if described and event.time != file.facts.first_time:
                raise ChangeError(
                    f"{file.name}: the server's file of this name began at another time than the archived one.",
                    hint="The server's binlogs were reset since: begin a new archive in another folder.",
                )
            return
        self._place += event.size
        if event.end != self._place & END_BITS:
            raise ChangeError(
                f"{file.name}: an event of type {event.type} ends at {event.end}, expected {self._place & END_BITS}.",
                hint="Bytes of the stream are missing or repeated; run the command again.",
            )
        if self._place <= file.offset:  # sent again after a reconnect
            return
        file.add(event)
        if time.monotonic() >= self._due:
            file.publish()
            self._due = time.monotonic() + self._seconds


@dataclass(frozen=True, slots=True)
class ArchiveCheck:
    """What was read, and what is wrong: one sentence per finding, none where the archive is good.

    ``gtids`` are those that were seen in the files, not those that the manifest claims.
    """

    manifest: Manifest
    events: int
    bytes: int
    gtids: str
    findings: tuple[str, ...]


def check_archive(storage: Storage, say: Callable[[str], None]) -> ArchiveCheck:
    """Read every archived byte: hashes, event checksums, what the manifest says of each file, GTIDs without a gap."""
    manifest = read_manifest(storage)
    if not manifest.files:
        raise ChangeError(f"there is no archive at {storage.url}.",
                          hint="Make one with `migverify changes archive --to DIR`.")  # fmt: skip
    findings: list[str] = []
    events = size = 0
    for entry in manifest.files:
        try:
            events += _check_file(storage, entry, findings)
        except ChangeError as error:
            findings.append(error.message)
        size += entry.bytes
        say(f"{entry.name}: read")
    known = {entry.name for entry in manifest.files}
    findings += (
        f"{name}: lies in the archive, but the manifest does not know it." for name in storage.names()
        if name not in known and not name.startswith(".")
    )  # fmt: skip
    findings += breaks(manifest)
    return ArchiveCheck(manifest, events, size, manifest.covered(), tuple(findings))


def _check_file(storage: Storage, entry: FileEntry, findings: list[str]) -> int:
    with closing(storage.open(entry.name)) as stream:
        facts, window, events = _read_again(stream, entry)
        longer = bool(stream.read(1))
    if window.hash.hexdigest() != entry.sha256:
        findings.append(f"{entry.name}: its first {entry.bytes} bytes do not have the manifest's SHA-256.")
    if longer and entry.state is FileState.COMPLETE:
        findings.append(f"{entry.name}: is complete with {entry.bytes} bytes, and has more.")
    fields = facts.fields()
    stated = (entry.bytes, *(getattr(entry, name) for name in _CHECKED))
    if (window.offset, *(fields[name] for name in _CHECKED)) != stated:
        findings.append(f"{entry.name}: its events are not those that the manifest describes.")
    return events
