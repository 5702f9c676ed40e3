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
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO, Protocol, cast

from migverify.changes.events import (
    ARTIFICIAL,
    HEADER,
    IN_USE,
    MAGIC,
    EventType,
    RawEvent,
    file_events,
)  # fmt: skip
from migverify.changes.file_facts import FileFacts
from migverify.changes.manifest import (
    FileEntry,
    FileState,
    Gap,
    Manifest,
    number,
    read_manifest,
    write_entry,
    write_gap,
)  # fmt: skip
from migverify.changes.model import Position
from migverify.changes.positions import FIRST_OFFSET
from migverify.changes.server import HEARTBEAT_SECONDS, RECONNECT_SECONDS, Reconnection, server_events, source_state
from migverify.changes.storage import LocalStorage, Storage, Window, WorkFile
from migverify.db.server_state import BinaryLog, binary_logs
from migverify.db.session import Session, open_session
from migverify.errors import ChangeError, EndpointError, PrivilegeError, PurgedError, RetryableReadError, UsageError
from migverify.model import Endpoint, Side

LOG = logging.getLogger(__name__)

LOCAL_SECONDS, REMOTE_SECONDS = 1.0, 60.0
_32_BITS = 0xFFFFFFFF
_HEARTBEATS = (EventType.HEARTBEAT, EventType.HEARTBEAT_V2)

Say = Callable[[str], None]


class BinlogServer(Protocol):
    """What the archive asks of a server."""

    uuid: str
    """The server's UUID; empty where it has none."""

    def logs(self) -> Sequence[BinaryLog]:
        """The binlog files it has, in their order."""

    def events(self, file: str, offset: int, *, follow: bool) -> Iterator[RawEvent]:
        """Everything it sends from there on over one connection, artificial events and heartbeats included.

        Ends at the newest event, with ``follow`` at no event. Checksums are verified. Raises RetryableReadError when
        the connection is lost, and ChangeError when another server answers than before.
        """


class LiveServer:
    """A MySQL or MariaDB over the network; see ``BinlogServer``.

    Parameters
    ----------
    endpoint, password
        Its user needs REPLICATION SLAVE and REPLICATION CLIENT.

    Raises
    ------
    ChangeError
        it writes no binlog.
    EndpointError
        it cannot be reached, or refuses the user.
    """

    def __init__(
        self, endpoint: Endpoint, password: str | None, *, heartbeat_seconds: float = HEARTBEAT_SECONDS
    ) -> None:
        self._endpoint = endpoint
        self._password = password
        self._heartbeat = heartbeat_seconds
        with self._session() as session:
            self.uuid = source_state(session).server

    def _session(self) -> Session:
        return open_session(self._endpoint, self._password, side=Side.SOURCE)

    def logs(self) -> list[BinaryLog]:
        """Its binlog files now, in their order."""
        with self._session() as session:
            return binary_logs(session)

    def events(self, file: str, offset: int, *, follow: bool) -> Iterator[RawEvent]:
        """Everything it sends from there on over one connection."""
        try:
            with self._session() as session:
                server = source_state(session).server
            if server != self.uuid:
                raise ChangeError(
                    f"{self._endpoint.name} is another server now (its uuid was {self.uuid}, is {server}).",
                    hint="Its binlog files are others: give it an archive of its own.",
                )
            yield from server_events(
                self._endpoint, self._password, Position(file, offset), follow=follow, heartbeat_seconds=self._heartbeat
            )
        except PrivilegeError:
            raise
        except EndpointError as error:  # it answered before, so it may answer again
            raise RetryableReadError(error.message, hint=error.hint) from error


def event_bytes(event: RawEvent) -> bytes:
    """Return an event as its file holds it."""
    flags = event.flags
    if event.type == EventType.FORMAT_DESCRIPTION:
        flags &= ~IN_USE
    data = HEADER.pack(event.time, event.type, event.server_id, event.size, event.end, flags) + event.body
    if event.size == len(data):
        return data
    return data + zlib.crc32(data).to_bytes(4, "little")


class _Keeper:
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
                window = cast("BinaryIO", Window(stream, entry.bytes))
                for event in file_events(window, self.name):
                    self._count(MAGIC if not self.offset else b"")
                    self._count(event_bytes(event))
                    self.facts.add(event, self.offset)
            if (self.offset, self._hash.hexdigest()) != (entry.bytes, entry.sha256):
                raise ChangeError(f"{self.name}: the archived bytes are not those of the manifest.")
        except ChangeError as error:
            LOG.warning("%s; the file is read from the server again", error.message)
            self.facts, self.offset, self._hash = FileFacts(self.name), 0, hashlib.sha256()

    def _count(self, data: bytes) -> None:
        self._hash.update(data)
        self.offset += len(data)

    def open(self) -> None:
        """Cut the file to what is certain, ready to go on."""
        self._work = self._storage.work_file(self.name, self.offset)
        if not self.offset:
            self._write(MAGIC)

    def _write(self, data: bytes) -> None:
        if self._work is None:
            raise ChangeError(f"{self.name}: written before it was opened.")
        self._work.file.write(data)
        self._count(data)

    def add(self, event: RawEvent) -> None:
        """Append one event of the file."""
        if self.offset == len(MAGIC) and event.type != EventType.FORMAT_DESCRIPTION:
            raise ChangeError(f"{self.name}: the server's first event has type {event.type}, not a format description.")
        self._write(event_bytes(event))
        self.facts.add(event, self.offset)

    def publish(self, state: FileState = FileState.GROWING, following: str = "") -> None:
        """Make the bytes durable, then say so in the manifest."""
        if self._work is None or (self.offset == self._published and state is FileState.GROWING):
            return
        self._work.publish()
        facts = self.facts
        growing = state is FileState.GROWING
        entry = FileEntry(
            name=self.name, state=state, bytes=self.offset, sha256=self._hash.hexdigest(), whole=facts.whole,
            first_time=facts.first_time, last_time=facts.last_time, gtids_before=facts.gtids_before,
            gtids=facts.gtids, anonymous=facts.anonymous, server_uuid=self._uuid,
            server_version=facts.server_version, checksum=facts.checksum, in_use_cleared=growing, xa=facts.xa,
            xa_open=tuple(facts.xa_open.values()), xa_closed=tuple(facts.xa_closed), previous=self._previous,
            following=following,
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
        Told each finished file and each gap, one sentence.

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
        publish_seconds = LOCAL_SECONDS if isinstance(storage, LocalStorage) else REMOTE_SECONDS
    with storage.lock():
        manifest = read_manifest(storage)
        logs = server.logs()
        if not logs:
            raise ChangeError("the server has no binlog files.", hint="log_bin is off: see `migverify changes check`.")
        _same_history(manifest, server.uuid, logs)
        for one, other in _holes(manifest):
            start = _Start(one.following, one.name, None)
            _require_there(storage, start, logs, one, other.name, say)
            _Stream(storage, server, publish_seconds, say).run(start, other.name, follow=False)
        start = _tail(storage, manifest, logs, since, say)
        _Stream(storage, server, publish_seconds, say).run(start, "", follow=follow)
    return read_manifest(storage)


@dataclass(frozen=True, slots=True)
class _Start:
    name: str
    previous: str
    growing: FileEntry | None


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
        return _Start(since or logs[0].name, "", None)
    growing = last.state is FileState.GROWING
    start = _Start(last.name, last.previous, last) if growing else _Start(last.following, last.name, None)
    if not since or since == start.name:
        _require_there(storage, start, logs, last, "", say)
        return start
    names = [log.name for log in logs]
    if start.name in names or since not in names:
        raise UsageError(f"--since {since}: the archive goes on with {start.name}.",
                         hint="--since is for a new archive, or to go on after a gap.")  # fmt: skip
    write_gap(storage, Gap(last.name, last.bytes, since, int(time.time())))
    return _Start(since, last.name, None)


def _require_there(
    storage: Storage, start: _Start, logs: Sequence[BinaryLog], last: FileEntry, resumes: str, say: Say
) -> None:
    """Record a gap where the server no longer has the file to go on with."""
    if start.name in {log.name for log in logs}:
        return
    gap = Gap(last.name, last.bytes, resumes or logs[0].name, int(time.time()))
    write_gap(storage, gap)
    say(f"gap: {start.name} is gone from the server; the archive ends at byte {last.bytes} of {last.name}")
    raise PurgedError(
        f"the server deleted {start.name} before it was archived; the archive ends at {last.name}:{last.bytes}.",
        hint=f"Go on after the gap with --since {gap.resumes}; verify again what changed in between.",
    )


class _Stream:
    """Takes the server's events into files."""

    def __init__(self, storage: Storage, server: BinlogServer, publish_seconds: float, say: Say) -> None:
        self._storage = storage
        self._server = server
        self._seconds = publish_seconds
        self._say = say
        self._keeper: _Keeper
        self._place = 0  # where the next event of the stream begins in its file
        self._due = 0.0

    def run(self, start: _Start, stop_before: str, *, follow: bool) -> None:
        """Fetch from a file on, up to the newest event or to the file named."""
        self._keeper = self._open(start)
        reconnection = Reconnection(RECONNECT_SECONDS)
        try:
            while True:
                try:
                    for event in self._from_here(follow=follow):
                        reconnection.alive()
                        if self._take(event, stop_before):
                            return
                    if not follow:
                        break
                    raise RetryableReadError("the server ended the stream")
                except RetryableReadError as error:
                    self._keeper.publish()
                    if reconnection.is_hopeless:
                        raise ChangeError(f"the connection stayed lost: {error.message}", hint=error.hint) from error
                    LOG.info("reading again from %s:%d: %s", self._keeper.name, self._keeper.offset, error.message)
                    reconnection.wait()
            self._finish(self._keeper)
        except BaseException:
            # Whole events only are in the file: what came before the failure is certain.
            self._keeper.publish()
            raise
        finally:
            self._keeper.close()

    def _from_here(self, *, follow: bool) -> Iterator[RawEvent]:
        keeper = self._keeper
        # The protocol asks for an offset by 32 bits; what comes twice is left out.
        self._place = max(keeper.offset, FIRST_OFFSET) if keeper.offset <= _32_BITS else FIRST_OFFSET
        return self._server.events(keeper.name, self._place, follow=follow)

    def _open(self, start: _Start) -> _Keeper:
        keeper = _Keeper(self._storage, self._server.uuid, start.name, start.previous)
        if start.growing is not None:
            keeper.resume(start.growing)
        keeper.open()
        self._due = time.monotonic() + self._seconds
        return keeper

    def _take(self, event: RawEvent, stop_before: str) -> bool:
        """Take one event; returns whether the file to stop before has come."""
        if event.type == EventType.ROTATE and (event.flags & ARTIFICIAL or not event.time):
            name = event.body[8:].decode("utf-8", "replace")
            if name != self._keeper.name:
                self._complete(name)
                if name == stop_before:
                    return True
                self._keeper = self._open(_Start(name, self._keeper.name, None))
            self._place = int.from_bytes(event.body[:8], "little")
            if self._place > self._keeper.offset:
                raise ChangeError(f"{name}: the server goes on at {self._place}, after {self._keeper.offset}.")
        else:
            self._append(self._keeper, event)
        return False

    def _append(self, keeper: _Keeper, event: RawEvent) -> None:
        if event.type in _HEARTBEATS:
            keeper.publish()
            return
        if event.flags & ARTIFICIAL or not event.end:
            # A format description at the start of a connection, not in the file at this place.
            if event.type == EventType.FORMAT_DESCRIPTION and event.time and keeper.offset > 4:
                self._same_file(keeper, event)
            return
        self._place += event.size
        if event.end != self._place & _32_BITS:
            raise ChangeError(
                f"{keeper.name}: an event of type {event.type} ends at {event.end}, expected {self._place & _32_BITS}.",
                hint="Bytes of the stream are missing or repeated; run the command again.",
            )
        if self._place <= keeper.offset:  # sent again after a reconnect
            return
        keeper.add(event)
        if time.monotonic() >= self._due:
            keeper.publish()
            self._due = time.monotonic() + self._seconds

    @staticmethod
    def _same_file(keeper: _Keeper, event: RawEvent) -> None:
        if event.time != keeper.facts.first_time:
            raise ChangeError(
                f"{keeper.name}: the server's file of this name began at another time than the archived one.",
                hint="The server's binlogs were reset since: begin a new archive in another folder.",
            )

    def _complete(self, following: str) -> None:
        keeper = self._keeper
        keeper.publish(FileState.COMPLETE, following)
        keeper.close()
        self._say(f"{keeper.name}: complete, {keeper.offset:,} bytes")

    def _finish(self, keeper: _Keeper) -> None:
        if keeper.facts.following:
            keeper.publish(FileState.COMPLETE, keeper.facts.following)
        else:
            keeper.publish()
