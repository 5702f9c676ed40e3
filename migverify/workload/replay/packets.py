"""Packets of the MySQL protocol: how they are framed, and what stands in those that are no rows."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from migverify.workload.replay.binary import text
from migverify.workload.replay.model import AnswerColumn

MAX_PACKET = (1 << 24) - 1
NULL_LENGTH = 251

QUIT, QUERY, PREPARE, EXECUTE, CLOSE_STATEMENT = 0x01, 0x03, 0x16, 0x17, 0x19

MORE_RESULTS = 0x0008
"""The status flag that says another result follows."""

_COLUMN = struct.Struct("<HIBHB")


class ProtocolError(Exception):
    """The server sent what the protocol does not know here; nothing behind it can be understood."""


@dataclass(frozen=True, slots=True)
class Ended:
    """An OK packet."""

    affected: int
    insert_id: int
    status: int
    warnings: int
    info: str


@dataclass(frozen=True, slots=True)
class Failed:
    """An ERR packet."""

    errno: int
    sqlstate: str
    message: str


def frame(payload: bytes) -> bytes:
    """Return a command as packets; 16 MiB and more is split, and a last part of 16 MiB gets an empty one behind it."""
    length = len(payload)
    if length < MAX_PACKET:
        return length.to_bytes(4, "little") + payload
    parts: list[bytes] = []
    for number, start in enumerate(range(0, length + 1, MAX_PACKET)):
        part = payload[start : start + MAX_PACKET]
        parts += [len(part).to_bytes(3, "little"), bytes((number & 255,)), part]
    return b"".join(parts)


def number(data: bytes, at: int) -> tuple[int, int]:
    """Read a length-encoded integer; returns it and the place behind it."""
    first = data[at]
    if first < NULL_LENGTH:
        return first, at + 1
    width = {252: 2, 253: 3, 254: 8}.get(first)
    if width is None or at + 1 + width > len(data):
        raise ProtocolError(f"a length that begins with {first}")
    return int.from_bytes(data[at + 1 : at + 1 + width], "little"), at + 1 + width


def ended(data: bytes, start: int, end: int) -> Ended:
    """Read an OK packet."""
    affected, at = number(data, start + 1)
    insert_id, at = number(data, at)
    status, warnings = struct.unpack_from("<HH", data, at)
    rest = data[at + 4 : end]
    if rest and rest[0] < NULL_LENGTH and rest[0] == len(rest) - 1:
        rest = rest[1:]
    return Ended(affected, insert_id, status, warnings, words(rest))


def failed(data: bytes, start: int, end: int) -> Failed:
    """Read an ERR packet."""
    errno = data[start + 1] | data[start + 2] << 8
    rest = data[start + 3 : end]
    if rest[:1] == b"#":
        return Failed(errno, words(rest[1:6]), words(rest[6:]))
    return Failed(errno, "", words(rest))


def column(payload: bytes) -> AnswerColumn:
    """Read the definition of a column of an answer."""
    at = 0
    parts: list[bytes] = []
    for _ in range(6):  # catalog, database, table, table as stored, name, name as stored
        part, at = text(payload, at)
        parts.append(part)
    if at + 11 > len(payload):
        raise ProtocolError("a column definition that ends too early")
    charset, length, kind, flags, decimals = _COLUMN.unpack_from(payload, at + 1)
    return AnswerColumn(parts[4], parts[5], parts[2], kind, charset, length, flags, decimals)


def words(raw: bytes) -> str:
    """Return the server's words; bytes that are no UTF-8 are shown escaped."""
    return raw.decode("utf-8", "backslashreplace")
