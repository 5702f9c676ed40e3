"""Ask a server for its binlog over its own protocol: COM_BINLOG_DUMP and COM_BINLOG_DUMP_GTID.

Source of the format: the MySQL internals manual ("Replication protocol").
"""

from __future__ import annotations

import random
import struct
import uuid
import zlib
from collections.abc import Iterator
from typing import Any

import pymysql

from migverify.changes.events import (
    ARTIFICIAL,
    FIRST_OFFSET,
    HEADER_BYTES,
    HEARTBEATS,
    EventType,
    RawEvent,
    has_checksum,
    split_event,
)
from migverify.changes.gtid import parse_gtids
from migverify.changes.model import Position
from migverify.db.failures import query_failure
from migverify.db.session import Session
from migverify.errors import ChangeError, MigverifyError, PurgedError, RetryableReadError

SILENCE_SECONDS = 30.0
"""A server that sends neither an event nor a heartbeat for so long is treated as gone."""
_DUMP, _DUMP_GTID = 0x12, 0x1E
_NO_WAIT = 0x01
_THROUGH_GTID = 0x04
_PACKET = 0xFFFFFF
_END, _ERROR = 0xFE, 0xFF
_FATAL = 1236
_GONE = {1053, 1158, 1159, 1160, 1161, 1317, 1927, 2006, 2013, 3169, 4031}


def dump(session: Session, start: Position, gtids: str, *, wait: bool, heartbeat: float) -> Iterator[bytes]:
    """Ask for the binlog and yield its events as whole packets, without the protocol's status byte.

    Parameters
    ----------
    session
        Its connection serves nothing else from here on; closing the session ends the dump.
    start
        File and offset of the first event wanted. Ignored where ``gtids`` is given.
    gtids
        The executed set; the server sends what is not in it.
    wait
        Whether to wait for more at the end of the binlog; else the iteration ends there.
    heartbeat
        Seconds of silence after which the server sends a heartbeat event.

    Raises
    ------
    RetryableReadError
        the connection is lost, or nothing came for ``SILENCE_SECONDS``.
    PurgedError, ChangeError
        the server refuses the position.
    """
    for statement in _setup(heartbeat):
        session.execute(statement)
    connection: Any = session._connection
    number = random.randrange(1 << 31, (1 << 32) - 2)
    flags = 0 if wait else _NO_WAIT
    if gtids:
        data = parse_gtids(gtids).encode()
        body = struct.pack("<HIIQI", flags | _THROUGH_GTID, number, 0, FIRST_OFFSET, len(data)) + data
        command = _DUMP_GTID
    else:
        if start.offset >= 1 << 32:
            raise ChangeError(f"{start}: the protocol has no offsets beyond 4 GiB.", hint="Start by GTID set.")
        body = struct.pack("<IHI", start.offset, flags, number) + start.file.encode()
        command = _DUMP
    try:
        connection._execute_command(command, body)
        connection._sock.settimeout(max(SILENCE_SECONDS, 3 * heartbeat))
        yield from _packets(connection, session)
    except (OSError, pymysql.err.InterfaceError, pymysql.err.OperationalError) as error:
        raise RetryableReadError(f"{session.endpoint.name}: the connection is lost: {error}") from error
    finally:
        connection._force_close()


def _setup(heartbeat: float) -> list[str]:
    nanoseconds = max(1, int(heartbeat * 1_000_000_000))
    return [
        f"SET @master_binlog_checksum=@@GLOBAL.binlog_checksum, @master_heartbeat_period={nanoseconds}",
        f"SET @source_binlog_checksum=@@GLOBAL.binlog_checksum, @source_heartbeat_period={nanoseconds}",
        # A dump thread of the same uuid would be ended by this one; every connection has its own.
        f"SET @slave_uuid='{(fresh := uuid.uuid4())}', @replica_uuid='{fresh}'",
    ]


def _packets(connection: Any, session: Session) -> Iterator[bytes]:
    """Cut packets; one of 16 MB less a byte or more goes on in the next."""
    read = connection._rfile.read
    expected: int | None = None
    while True:
        pieces: list[bytes] = []
        size = _PACKET
        while size == _PACKET:
            head = read(4)
            if len(head) < 4:
                raise OSError("the server closed it")
            size, sequence = head[0] | head[1] << 8 | head[2] << 16, head[3]
            if expected is not None and sequence != expected:
                raise OSError(f"packet {sequence} came, {expected} was next")
            expected = sequence + 1 & 0xFF
            pieces.append(read(size))
            if len(pieces[-1]) < size:
                raise OSError("the server closed it in the middle of a packet")
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        status = data[0] if data else _ERROR
        if status == 0:
            yield data[1:]
        elif status == _END and len(data) < 9:
            return
        else:
            raise _refusal(data, session)


def _refusal(data: bytes, session: Session) -> MigverifyError:
    """What an error packet of the server means."""
    code = int.from_bytes(data[1:3], "little")
    text = data[3:].decode("utf-8", "replace")
    text = text[6:] if text.startswith("#") else text
    name = session.endpoint.name
    if code in _GONE or (code == _FATAL and "same server_" in text):
        return RetryableReadError(f"{name}: {text} [{code}]")
    if code in (_FATAL, 1789):
        lowered = text.lower()
        if "purged" in lowered or "could not find first log" in lowered or "not find gtid state" in lowered:
            return PurgedError(f"{text} [{code}]")
        return ChangeError(f"{name}: the server cannot send its binlog: {text} [{code}]")
    return query_failure(session.endpoint, pymysql.err.OperationalError(code, text), "COM_BINLOG_DUMP")


def packet_events(packets: Iterator[bytes]) -> Iterator[RawEvent]:
    """Cut the packets of a dump into events; verifies checksums."""
    checksum = False
    for data in packets:
        kind = data[4] if len(data) >= HEADER_BYTES else 0
        if kind == EventType.FORMAT_DESCRIPTION:
            checksum = has_checksum(data)
        made = kind == EventType.ROTATE and int.from_bytes(data[17:19], "little") & ARTIFICIAL
        if made or kind in HEARTBEATS:
            # The server made this event for us, perhaps before any format description says how.
            own = len(data) > 4 and zlib.crc32(memoryview(data)[:-4]) == int.from_bytes(data[-4:], "little")
            yield split_event(data, own, "dump")
        else:
            yield split_event(data, checksum, "dump")
