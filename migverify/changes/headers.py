"""Parts of events that say where a transaction is: GTID events, format description, heartbeat, QUERY, XA PREPARE.

Sources: MySQL internals manual ("Gtid_event", "Query_event", "Heartbeat_event_v2", and the serialization format of
tagged GTID events).
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from migverify.changes.charsets import charset_of_collation, text_decoder
from migverify.changes.events import EventType, RawEvent
from migverify.changes.gtid import Gtid
from migverify.changes.payload import packed_integer
from migverify.changes.statements import Xid
from migverify.errors import ChangeError

_COMMIT_TIME_AT = 42
_SECOND_TIME = 1 << 55
_TAGGED_FIELDS = 12
_STATUS_SIZES = {0: 4, 1: 8, 3: 4, 4: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 16: 1, 17: 8, 18: 2, 19: 1, 20: 1}
_NO_BACKSLASH_ESCAPES = 1 << 20


class Query(NamedTuple):
    """A QUERY event. ``sql`` is its bytes; ``text`` decodes them. ``thread`` is the connection that sent it."""

    database: bytes
    sql: bytes
    status: bytes
    thread: int = 0

    def text(self) -> str:
        """The statement, decoded by the character set of the session that sent it; undecodable bytes as escapes."""
        for code, value in _status(self.status):
            decode = text_decoder(charset_of_collation(int.from_bytes(value[:2], "little"))) if code == 4 else None
            if decode is not None:
                try:
                    return decode(self.sql)
                except UnicodeDecodeError:  # a session may send what is not of its character set
                    break
        return self.sql.decode("utf-8", "backslashreplace")

    def invoker(self) -> str:
        """``user@host`` where the server logged it, else empty."""
        for code, value in _status(self.status):
            if code == 11:
                size = value[0]
                user, host = value[1 : 1 + size], value[2 + size :]
                return f"{user.decode('utf-8', 'replace')}@{host.decode('utf-8', 'replace')}"
        return ""

    def backslash_escapes(self) -> bool:
        """Whether a backslash escapes in this statement's strings."""
        for code, value in _status(self.status):
            if code == 1:
                return not int.from_bytes(value, "little") & _NO_BACKSLASH_ESCAPES
        return True


def _status(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Status variables of a QUERY event up to the first that is not known: its length is not known either."""
    at = 0
    while at < len(data):
        code, start = data[at], at + 1
        if code in _STATUS_SIZES:
            end = start + _STATUS_SIZES[code]
        elif code in (5, 6) and start < len(data):
            end = start + 1 + data[start]
        elif code == 2 and start < len(data):
            end = start + 2 + data[start]
        elif code == 11 and start < len(data):
            host = start + 1 + data[start]
            end = host + 1 + (data[host] if host < len(data) else 0)
        elif code == 12 and start < len(data):
            end = start + 1
            for _ in range(data[start] if data[start] < 254 else 0):
                end = data.find(b"\0", end) + 1 or len(data)
        else:
            return
        if end > len(data):
            return
        yield code, data[start:end]
        at = end


def read_query(body: bytes) -> Query:
    """Cut the body of a QUERY event."""
    if len(body) < 13:
        raise ChangeError("a QUERY event is too short.")
    database_at = 13 + (body[11] | body[12] << 8)
    sql_at = database_at + body[8] + 1
    if sql_at > len(body):
        raise ChangeError("a QUERY event is shorter than its parts.")
    thread = int.from_bytes(body[:4], "little")
    return Query(body[database_at : sql_at - 1], body[sql_at:], body[13:database_at], thread)


@lru_cache(maxsize=256)
def _server(data: bytes) -> str:
    return str(uuid.UUID(bytes=data))


_HEAD = struct.Struct("<B16sq")


def read_gtid(event: RawEvent) -> Gtid:
    """Read a GTID event of any kind: 33, 34 (anonymous), 42 (tagged)."""
    body = event.body
    if event.type == EventType.GTID_TAGGED:
        try:
            return _tagged(body)
        except IndexError as error:
            raise ChangeError("a tagged GTID event is cut or damaged.") from error
    if len(body) < _HEAD.size:
        raise ChangeError("a GTID event is too short.")
    _, raw, number = _HEAD.unpack_from(body)
    if number < 0:
        raise ChangeError(f"a GTID event has the number {number}.")
    server = _server(raw)
    text = f"{server}:{number}" if number else ""
    if len(body) < _COMMIT_TIME_AT + 7 or body[25] != 2:  # MySQL 5.7 gives no time
        return Gtid((server, ""), number, text)
    micros = int.from_bytes(body[42:49], "little")
    at = 49
    if micros & _SECOND_TIME:
        micros, at = micros & ~_SECOND_TIME, 56
    size = packed_integer(body, at)[0] if at < len(body) else 0
    return Gtid((server, ""), number, text, micros / 1e6, size)


def _tagged(body: bytes) -> Gtid:
    version, at = _variable(body, 0)
    size, at = _variable(body, at)
    _, at = _variable(body, at)  # the last field that a reader must know
    if version != 1 or size != len(body):
        raise ChangeError("a tagged GTID event has a layout that is not known.")
    server, tag, found = b"", "", dict.fromkeys(range(_TAGGED_FIELDS), 0)
    while at < len(body):
        field, at = _variable(body, at)
        if field == 1:
            octets = []
            for _ in range(16):
                octet, at = _variable(body, at)
                octets.append(octet)
            server = bytes(octets)
        elif field == 3:
            length, at = _variable(body, at)
            tag = body[at : at + length].decode("ascii", "replace")
            at += length
        elif field < _TAGGED_FIELDS:
            found[field], at = _variable(body, at)
        else:
            raise ChangeError(f"a tagged GTID event has a field {field}, which is not known.")
    number = found[2] >> 1 ^ -(found[2] & 1)  # signed numbers take turns: 0, -1, 1, -2
    if len(server) != 16 or number <= 0:
        raise ChangeError("a tagged GTID event names no transaction.")
    source = _server(server), tag
    return Gtid(source, number, ":".join(filter(None, (*source, str(number)))), found[6] / 1e6, found[8])


def _variable(body: bytes, at: int) -> tuple[int, int]:
    """An integer whose first byte says in trailing one bits how many bytes follow."""
    first = body[at]
    more = ((first + 1) & ~first).bit_length() - 1
    if at + 1 + more > len(body):
        raise IndexError
    if more == 8:
        return int.from_bytes(body[at + 1 : at + 9], "little"), at + 9
    return int.from_bytes(body[at : at + 1 + more], "little") >> more + 1, at + 1 + more


def read_xa_prepare(body: bytes) -> tuple[Xid, bool]:
    """Return the id that an XA_PREPARE event (38) names, and whether it commits too (one phase)."""
    size, branch = int.from_bytes(body[5:9], "little"), int.from_bytes(body[9:13], "little")
    if len(body) < 13 + size + branch:
        raise ChangeError("an XA PREPARE event is shorter than its id.")
    gtrid, bqual = body[13 : 13 + size], body[13 + size : 13 + size + branch]
    return Xid(int.from_bytes(body[1:5], "little"), gtrid, bqual), bool(body[0])


def read_heartbeat_v2(body: bytes) -> tuple[str, int]:
    """File and position of a HEARTBEAT_V2 event (41)."""
    name, position, at = "", 0, 0
    while True:
        kind, at = packed_integer(body, at)
        if kind == 0:
            return name, position
        size, at = packed_integer(body, at)
        if kind == 1:
            name = body[at : at + size].decode("utf-8", "replace")
        elif kind == 2:
            position = packed_integer(body, at)[0]
        at += size


# Lengths that this program relies on: the part of an event before its variable part.
_LAYOUT = {2: 13, 4: 8, 19: 8, 23: 8, 24: 8, 25: 8, 30: 10, 31: 10, 32: 10}


def check_layout(body: bytes, where: str) -> str:
    """Check a format description; returns the version of the server that wrote it."""
    if len(body) < 57 or body[0] | body[1] << 8 != 4 or body[56] != 19:
        raise ChangeError(f"{where}: not a binlog of version 4.")
    lengths = body[57:]
    for kind, expected in _LAYOUT.items():
        if kind <= len(lengths) and lengths[kind - 1] not in (expected, 0):  # 0: this server does not write the type
            head = lengths[kind - 1]
            raise ChangeError(f"{where}: events of type {kind} have a head of {head} bytes, not {expected}.")
    version = body[2:52].rstrip(b"\0").decode("ascii", "replace")
    if "MariaDB" in version:
        raise ChangeError(f"{where}: written by {version}: only MySQL's binlog can be read.")
    return version
