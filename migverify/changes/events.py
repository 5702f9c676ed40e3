"""Binlog events as bytes: header, type, and the walk over a file.

Source of the format: the MySQL internals manual (binlog version 4). An event has a 19-byte header - time (4), type (1),
server id (4), size (4), end position (4), flags (2) - a body, and four bytes of CRC32 over all of it where the file's
format description says so.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import BinaryIO, NamedTuple

from migverify.errors import ChangeError

MAGIC = b"\xfebin"
HEADER = struct.Struct("<IBIIIH")
HEADER_BYTES = 19
IN_USE = 0x0001
"""Flag of a format description: the server still writes this file, or died while it did."""
ARTIFICIAL = 0x0020
IGNORABLE = 0x0080
"""Flag of an event that a reader who does not know its type may pass over: it changes nothing."""
FIRST_OFFSET = len(MAGIC)
"""Offset of the first event of a binlog file."""
END_BITS = 0xFFFFFFFF
"""The end position of an event has 32 bits, a file may be longer."""
NO_TABLE = 0xFFFFFF
"""Table id of a rows event that only ends a statement."""


class EventType(IntEnum):
    """The event types of MySQL up to 9.7."""

    UNKNOWN = 0
    START_V3 = 1
    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    LOAD = 6
    SLAVE = 7
    CREATE_FILE = 8
    APPEND_BLOCK = 9
    EXEC_LOAD = 10
    DELETE_FILE = 11
    NEW_LOAD = 12
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42


HEARTBEATS = frozenset({EventType.HEARTBEAT, EventType.HEARTBEAT_V2})
"""They have no place in a file: a server makes them when it has nothing to send."""
GTID_EVENTS = frozenset({EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED})
ROWS_EVENTS = frozenset({
    EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1, EventType.WRITE_ROWS,
    EventType.UPDATE_ROWS, EventType.DELETE_ROWS, EventType.PARTIAL_UPDATE_ROWS,
})  # fmt: skip


class RawEvent(NamedTuple):
    """One event as it came. ``body`` excludes the header and the checksum; ``end`` is where the event ends in its file.

    ``type`` stays a number: a server may send one that this program does not know, and somebody must say so.
    """

    type: int
    time: int
    server_id: int
    size: int
    end: int
    flags: int
    body: bytes

    @property
    def is_artificial(self) -> bool:
        """Whether the server made it for this reader: it is in no file at this place."""
        return bool(self.flags & ARTIFICIAL) or not self.end

    def rotates_to(self) -> tuple[str, int]:
        """Return the file that a ROTATE event names, and the offset in it."""
        if len(self.body) < 9:
            raise ChangeError("a ROTATE event is too short.")
        return self.body[8:].decode("utf-8", "replace"), int.from_bytes(self.body[:8], "little")


def split_event(data: bytes, checksum: bool, where: str) -> RawEvent:
    """Cut one whole event into header fields and body.

    Parameters
    ----------
    data
        The event from its header to its last byte.
    checksum
        Whether its last four bytes are a CRC32; it is verified then.
    where
        Place in the stream, for the message.
    """
    if len(data) < HEADER_BYTES:
        raise ChangeError(f"{where}: an event of {len(data)} bytes is shorter than its header (19 bytes).")
    time, kind, server_id, size, end, flags = HEADER.unpack_from(data)
    if size != len(data):
        raise ChangeError(f"{where}: event of type {kind} says {size} bytes, {len(data)} bytes came.")
    if not checksum:
        return RawEvent(kind, time, server_id, size, end, flags, data[HEADER_BYTES:])
    if size < HEADER_BYTES + 4:
        raise ChangeError(f"{where}: event of type {kind} is too short for its checksum.")
    covered = zlib.crc32(memoryview(data)[:-4])
    if kind == EventType.FORMAT_DESCRIPTION and flags & IN_USE:
        # The server sets this flag after it summed the event; the sum is over the event without it.
        clean = bytearray(data[:-4])
        clean[17] &= ~IN_USE & 0xFF
        covered = zlib.crc32(clean)
    if covered != int.from_bytes(data[-4:], "little"):
        raise ChangeError(f"{where}: event of type {kind} fails its checksum: the binlog is damaged here.")
    return RawEvent(kind, time, server_id, size, end, flags, data[HEADER_BYTES:-4])


def has_checksum(format_description: bytes) -> bool:
    """Whether events after this format description (header included, as read) carry a CRC32.

    MySQL since 5.6.1 ends the event with one byte of algorithm and four bytes of checksum, even
    where the algorithm is 0 (none).
    """
    if len(format_description) < HEADER_BYTES + 62:
        return False
    algorithm = format_description[-5]
    if algorithm > 1:
        raise ChangeError(f"the binlog's checksum algorithm {algorithm} is not known, or the file is damaged.")
    return algorithm == 1


def file_events(stream: BinaryIO, name: str, start: int = FIRST_OFFSET) -> Iterator[RawEvent]:
    """Yield the events of one binlog file from its format description, then those at or after ``start``.

    Parameters
    ----------
    stream
        The file, opened for bytes and seekable, at any place.
    name
        Its name in messages.
    start
        Offset of the first event wanted. Must be the start of an event.
    """
    stream.seek(0)
    magic = stream.read(len(MAGIC))
    if magic != MAGIC:
        raise ChangeError(f"{name}: not a binlog file (it begins with {magic!r}).",
                          hint="An encrypted binlog must be read from the server.")  # fmt: skip
    checksum, offset = False, FIRST_OFFSET
    while data := _next_event(stream, f"{name}:{offset}"):
        described = data[4] == EventType.FORMAT_DESCRIPTION
        if described:
            checksum = has_checksum(data)
        # A format description carries a right checksum even where it says that other events have none.
        yield split_event(data, checksum or described, f"{name}:{offset}")
        offset += len(data)
        if offset < start:
            stream.seek(start)
            offset = start


def _next_event(stream: BinaryIO, where: str) -> bytes:
    header = stream.read(HEADER_BYTES)
    if not header:
        return b""
    if len(header) < HEADER_BYTES:
        raise ChangeError(f"{where}: the file ends inside an event header.")
    size = int.from_bytes(header[9:13], "little")
    if size < HEADER_BYTES:
        raise ChangeError(f"{where}: an event says it is {size} bytes long: the binlog is damaged here.")
    body = stream.read(size - HEADER_BYTES)
    if len(body) < size - HEADER_BYTES:
        raise ChangeError(f"{where}: the file ends inside an event of {size} bytes.")
    return header + body
