"""Packets of the MySQL protocol: framing, what the packets hold that are no rows, and values of the binary protocol.

The text of a binary value is that of the text protocol, but for floats: theirs is the shortest that reads back to them,
on every server, because floats are compared by value.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import TypeAlias

from migverify.workload.model import Parameter
from migverify.workload.replay.model import Answer, AnswerColumn, Cell

MAX_PACKET = (1 << 24) - 1
NULL_LENGTH = 251

QUIT, QUERY, PREPARE, EXECUTE, CLOSE_STATEMENT = 0x01, 0x03, 0x16, 0x17, 0x19

MORE_RESULTS = 0x0008
"""The status flag that says another result follows."""

_COLUMN = struct.Struct("<HIBHB")


class ProtocolError(Exception):
    """The server sent what the protocol does not know here; nothing behind it can be understood."""


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


def ended(data: bytes, start: int, end: int, *, prepared: bool) -> Answer:
    """Read an OK packet."""
    affected, at = number(data, start + 1)
    insert_id, at = number(data, at)
    status, warnings = struct.unpack_from("<HH", data, at)
    rest = data[at + 4 : end]
    if rest and rest[0] < NULL_LENGTH and rest[0] == len(rest) - 1:
        rest = rest[1:]
    return Answer(
        affected=affected, insert_id=insert_id, status=status, warnings=warnings, info=words(rest), prepared=prepared
    )


def failed(data: bytes, start: int, end: int, *, prepared: bool = False) -> Answer:
    """Read an ERR packet."""
    errno = data[start + 1] | data[start + 2] << 8
    rest = data[start + 3 : end]
    if rest[:1] == b"#":
        return Answer(errno=errno, sqlstate=words(rest[1:6]), message=words(rest[6:]), prepared=prepared)
    return Answer(errno=errno, message=words(rest), prepared=prepared)


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


# --- rows of the binary protocol ---------------------------------------------------------------------------

Decoder: TypeAlias = Callable[[bytes, int], tuple[bytes, int]]
"""Bytes and the place of a value in them -> its text and the place behind it."""

UNSIGNED = 0x20
_MICROSECONDS = 6

_TINY, _SHORT, _LONG, _FLOAT, _DOUBLE, _NULL, _TIMESTAMP, _LONGLONG, _INT24 = 1, 2, 3, 4, 5, 6, 7, 8, 9
_DATE, _TIME, _DATETIME, _YEAR, _NEWDATE, _BLOB, _VAR_STRING, _NEWDECIMAL = 10, 11, 12, 13, 14, 252, 253, 246
_INTEGERS = {_TINY: ("b", 1), _SHORT: ("h", 2), _LONG: ("i", 4), _INT24: ("i", 4), _LONGLONG: ("q", 8)}
_DATETIME_PARTS = struct.Struct("<HBBBBB")


def decoders(columns: Sequence[AnswerColumn]) -> tuple[Decoder, ...]:
    """Return one decoder a column, for rows of the binary protocol that have these columns."""
    return tuple(_decoder(column) for column in columns)


def row(data: bytes, start: int, made: Sequence[Decoder]) -> tuple[tuple[Cell, ...], int]:
    """Decode a row whose packet begins at ``start``; returns its cells and the place behind them.

    Raises IndexError, struct.error: the packet is shorter than its columns need.
    """
    at = start + 1 + (len(made) + 9) // 8
    cells: list[Cell] = []
    for number, decode in enumerate(made, 2):
        if data[start + 1 + (number >> 3)] >> (number & 7) & 1:
            cells.append(None)
        else:
            cell, at = decode(data, at)
            cells.append(cell)
    return tuple(cells), at


def _decoder(column: AnswerColumn) -> Decoder:
    kind = column.type_code
    if kind in _INTEGERS:
        code, width = _INTEGERS[kind]
        return _integer(code.upper() if column.flags & UNSIGNED else code, width)
    if kind == _YEAR:
        return lambda data, at: (b"%04d" % (data[at] | data[at + 1] << 8), at + 2)
    if kind in (_FLOAT, _DOUBLE):
        return _float if kind == _FLOAT else _double
    if kind in (_DATE, _NEWDATE):
        return _date
    if kind in (_DATETIME, _TIMESTAMP):
        return _moment(min(column.decimals, _MICROSECONDS))
    if kind == _TIME:
        return _span(min(column.decimals, _MICROSECONDS))
    return text


def text(data: bytes, at: int) -> tuple[bytes, int]:
    """Read bytes behind their length: every type that the binary protocol sends as text."""
    length = data[at]
    at += 1
    if length > 250:  # 251 is NULL in text rows, which have no such value here
        width = {252: 2, 253: 3, 254: 8}[length] if 252 <= length <= 254 else _malformed(length)
        length = int.from_bytes(data[at : at + width], "little")
        at += width
    return data[at : at + length], at + length


def _malformed(length: int) -> int:
    raise IndexError(f"a value's length cannot begin with {length}")


def _integer(code: str, width: int) -> Decoder:
    unpack = struct.Struct("<" + code).unpack_from
    return lambda data, at: (b"%d" % unpack(data, at)[0], at + width)


def _double(data: bytes, at: int) -> tuple[bytes, int]:
    return _number_text(repr(struct.unpack_from("<d", data, at)[0])), at + 8


def _float(data: bytes, at: int) -> tuple[bytes, int]:
    """Read a 4-byte float; its text is the shortest that reads back to it."""
    value = struct.unpack_from("<f", data, at)[0]
    for digits in range(6, 10):
        made = float(f"{value:.{digits - 1}e}")
        if struct.unpack("<f", struct.pack("<f", made))[0] == value:
            return _number_text(repr(made)), at + 4
    return _number_text(repr(value)), at + 4


def _number_text(made: str) -> bytes:
    return made.removesuffix(".0").encode()


def _date(data: bytes, at: int) -> tuple[bytes, int]:
    if not data[at]:
        return b"0000-00-00", at + 1
    return b"%04d-%02d-%02d" % (data[at + 1] | data[at + 2] << 8, data[at + 3], data[at + 4]), at + 1 + data[at]


def _moment(digits: int) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[bytes, int]:
        length = data[at]
        parts: tuple[int, ...] = (0,) * 6
        if length >= 7:
            parts = _DATETIME_PARTS.unpack_from(data, at + 1)
        elif length >= 4:
            parts = (data[at + 1] | data[at + 2] << 8, data[at + 3], data[at + 4], 0, 0, 0)
        micro = int.from_bytes(data[at + 8 : at + 12], "little") if length >= 11 else 0
        return b"%04d-%02d-%02d %02d:%02d:%02d" % parts + _fraction(micro, digits), at + 1 + length

    return decode


def _span(digits: int) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[bytes, int]:
        length = data[at]
        if not length:
            return b"00:00:00" + _fraction(0, digits), at + 1
        hours = int.from_bytes(data[at + 2 : at + 6], "little") * 24 + data[at + 6]
        micro = int.from_bytes(data[at + 9 : at + 13], "little") if length >= 12 else 0
        sign = b"-" if data[at + 1] else b""
        made = b"%b%02d:%02d:%02d" % (sign, hours, data[at + 7], data[at + 8]) + _fraction(micro, digits)
        return made, at + 1 + length

    return decode


def _fraction(micro: int, digits: int) -> bytes:
    return b"." + (b"%06d" % micro)[:digits] if digits else b""


# --- parameters ------------------------------------------------------------------------------------------

_MOMENT = re.compile(rb"(\d{1,4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,6}))?)?\Z")
_SPAN = re.compile(rb"(-?)(\d{1,3}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,6}))?\Z")


def execute(statement: int, parameters: Sequence[Parameter]) -> bytes:
    """Return the payload of COM_STMT_EXECUTE: no cursor, types always sent.

    A parameter whose text is not of its kind (an integer beyond 64 bits, a date with a thirteenth month) is sent as
    text, as a client that holds it in a string would.
    """
    head = struct.pack("<BIBI", 0x17, statement, 0, 1)
    if not parameters:
        return head
    nulls = bytearray((len(parameters) + 7) // 8)
    types = bytearray()
    values: list[bytes] = []
    for number, parameter in enumerate(parameters):
        if parameter.value is None:
            nulls[number >> 3] |= 1 << (number & 7)
            types += struct.pack("<BB", _NULL, 0)
            continue
        kind, flag, value = _bound(parameter.kind, parameter.value)
        types += struct.pack("<BB", kind, flag)
        values.append(value)
    return b"".join((head, nulls, b"\x01", types, *values))


def framed(value: bytes) -> bytes:
    """Return bytes behind their length, as the protocol frames them."""
    length = len(value)
    if length < 251:
        return bytes((length,)) + value
    if length < 1 << 16:
        return b"\xfc" + length.to_bytes(2, "little") + value
    if length < 1 << 24:
        return b"\xfd" + length.to_bytes(3, "little") + value
    return b"\xfe" + length.to_bytes(8, "little") + value


def _bound(kind: str, value: bytes) -> tuple[int, int, bytes]:
    match kind:
        case "integer" | "unsigned":
            number = int(value) if re.fullmatch(rb"[+-]?\d{1,20}", value) else None
            if number is not None and -(1 << 63) <= number < 1 << 63:
                return _LONGLONG, 0, struct.pack("<q", number)
            if number is not None and 0 <= number < 1 << 64:
                return _LONGLONG, 0x80, struct.pack("<Q", number)
            return _NEWDECIMAL, 0, framed(value)
        case "double" | "float":
            try:
                made = struct.pack("<d" if kind == "double" else "<f", float(value))
            except (ValueError, OverflowError):
                return _VAR_STRING, 0, framed(value)
            return _DOUBLE if kind == "double" else _FLOAT, 0, made
        case "decimal":
            return _NEWDECIMAL, 0, framed(value)
        case "bytes":
            return _BLOB, 0, framed(value)
        case "date" | "datetime" | "time":
            return _bound_time(kind, value)
        case _:
            return _VAR_STRING, 0, framed(value)


def _bound_time(kind: str, value: bytes) -> tuple[int, int, bytes]:
    if kind == "time":
        span = _SPAN.match(value)
        if span is None:
            return _VAR_STRING, 0, framed(value)
        hours, minutes, seconds = int(span[2]), int(span[3]), int(span[4])
        days, hours = divmod(hours, 24)
        micro = int((span[5] or b"").ljust(6, b"0"))
        body = struct.pack("<BIBBB", span[1] == b"-", days, hours, minutes, seconds)
        return _TIME, 0, framed(body + struct.pack("<I", micro) if micro else body)
    moment = _MOMENT.match(value)
    if moment is None or int(moment[2]) > 12 or int(moment[3]) > 31 or (kind == "date") != (moment[4] is None):
        return _VAR_STRING, 0, framed(value)
    year, month, day = int(moment[1]), int(moment[2]), int(moment[3])
    if kind == "date":
        return _DATE, 0, framed(struct.pack("<HBB", year, month, day))
    body = _DATETIME_PARTS.pack(year, month, day, int(moment[4]), int(moment[5]), int(moment[6]))
    micro = int((moment[7] or b"").ljust(6, b"0"))
    return _DATETIME, 0, framed(body + struct.pack("<I", micro) if micro else body)
