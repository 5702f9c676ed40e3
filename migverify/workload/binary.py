"""MySQL's client protocol, what captures and replays share: commands, frames, lengths, values of prepared statements.

The text of a binary value is that of the text protocol, but for floats: theirs is the shortest that reads back to them,
on every server, because floats are compared by value.

Source: the "Client/Server Protocol" chapter of MySQL's developer documentation.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import TypeAlias

from migverify.workload.model import Parameter

COM_QUIT, COM_INIT_DB, COM_QUERY, COM_FIELD_LIST, COM_STATISTICS = 0x01, 0x02, 0x03, 0x04, 0x09
COM_CHANGE_USER, COM_BINLOG_DUMP, COM_BINLOG_DUMP_GTID = 0x11, 0x12, 0x1E
COM_PREPARE, COM_EXECUTE, COM_LONG_DATA, COM_CLOSE, COM_RESET_STATEMENT = 0x16, 0x17, 0x18, 0x19, 0x1A
COM_FETCH, COM_RESET_CONNECTION = 0x1C, 0x1F
LAST_COMMAND = 0x21

IN_TRANSACTION, MORE_RESULTS, CURSOR_EXISTS = 0x0001, 0x0008, 0x0040
"""Status flags of an answer."""

MAX_PACKET = (1 << 24) - 1
NULL_LENGTH = 251


class ProtocolError(ValueError):
    """A packet does not hold what the protocol says: it ends too early, goes on behind its end, or is none of it."""


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


# --- values of the binary protocol -----------------------------------------------------------------------

Decoder: TypeAlias = Callable[[bytes, int], tuple[bytes, int]]
"""Bytes and the place of a value in them -> its text and the place behind it."""

_TINY, _SHORT, _LONG, _FLOAT, _DOUBLE, _NULL, _TIMESTAMP, _LONGLONG, _INT24 = 1, 2, 3, 4, 5, 6, 7, 8, 9
_DATE, _TIME, _DATETIME, _YEAR, _NEWDATE, _BLOB, _VAR_STRING, _NEWDECIMAL = 10, 11, 12, 13, 14, 252, 253, 246
_INTEGERS = {_TINY: ("b", 1), _SHORT: ("h", 2), _LONG: ("i", 4), _INT24: ("i", 4), _LONGLONG: ("q", 8)}
_DATETIME_PARTS = struct.Struct("<HBBBBB")
_MICROSECONDS = 6

KINDS: dict[int, str] = {
    **dict.fromkeys((*_INTEGERS, _YEAR), "integer"), _FLOAT: "float", _DOUBLE: "double", _NULL: "null",
    **dict.fromkeys((_TIMESTAMP, _DATETIME), "datetime"), **dict.fromkeys((_DATE, _NEWDATE), "date"), _TIME: "time",
    **dict.fromkeys((0x00, _NEWDECIMAL), "decimal"),
    **dict.fromkeys((0x0F, _VAR_STRING, 0xFE, 0xF5, 0xF7, 0xF8), "text"),
    **dict.fromkeys((0x10, 0xF9, 0xFA, 0xFB, _BLOB, 0xFF), "bytes"),
}  # fmt: skip
"""What a type holds, as ``Parameter`` calls it, by the protocol's number."""
SIZES = {"datetime": frozenset({0, 4, 7, 11}), "date": frozenset({0, 4, 7, 11}), "time": frozenset({0, 8, 12})}
"""The lengths that values of these kinds may have."""


def decoder(code: int, *, unsigned: bool, digits: int | None = None) -> Decoder:
    """Return what reads values of a type; IndexError or struct.error where the bytes end too early.

    Parameters
    ----------
    digits
        Digits of a second's fraction; None: six where the value has a fraction.
    """
    if code in _INTEGERS:
        form, width = _INTEGERS[code]
        return _integer(form.upper() if unsigned else form, width)
    if code == _YEAR:
        return lambda data, at: (b"%04d" % (data[at] | data[at + 1] << 8), at + 2)
    if code in (_FLOAT, _DOUBLE):
        return _float if code == _FLOAT else _double
    if code in (_DATE, _NEWDATE):
        return _date
    digits = None if digits is None else min(digits, _MICROSECONDS)
    if code in (_DATETIME, _TIMESTAMP):
        return _moment(digits)
    return _span(digits) if code == _TIME else text


def row(data: bytes, start: int, made: Sequence[Decoder]) -> tuple[tuple[bytes | None, ...], int]:
    """Decode a row whose packet begins at ``start``; returns its cells and the place behind them.

    Raises IndexError, struct.error: the packet is shorter than its columns need.
    """
    at = start + 1 + (len(made) + 9) // 8
    cells: list[bytes | None] = []
    for number, decode in enumerate(made, 2):
        if data[start + 1 + (number >> 3)] >> (number & 7) & 1:
            cells.append(None)
        else:
            cell, at = decode(data, at)
            cells.append(cell)
    return tuple(cells), at


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


def _moment(digits: int | None) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[bytes, int]:
        length = data[at]
        parts: tuple[int, ...] = (0,) * 6
        if length >= 7:
            parts = _DATETIME_PARTS.unpack_from(data, at + 1)
        elif length >= 4:
            parts = (data[at + 1] | data[at + 2] << 8, data[at + 3], data[at + 4], 0, 0, 0)
        micro = int.from_bytes(data[at + 8 : at + 12], "little") if length >= 11 else None
        return b"%04d-%02d-%02d %02d:%02d:%02d" % parts + _fraction(micro, digits), at + 1 + length

    return decode


def _span(digits: int | None) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[bytes, int]:
        length = data[at]
        if not length:
            return b"00:00:00" + _fraction(None, digits), at + 1
        hours = int.from_bytes(data[at + 2 : at + 6], "little") * 24 + data[at + 6]
        micro = int.from_bytes(data[at + 9 : at + 13], "little") if length >= 12 else None
        sign = b"-" if data[at + 1] else b""
        made = b"%b%02d:%02d:%02d" % (sign, hours, data[at + 7], data[at + 8]) + _fraction(micro, digits)
        return made, at + 1 + length

    return decode


def _fraction(micro: int | None, digits: int | None) -> bytes:
    if digits is None:
        return b"" if micro is None else b".%06d" % micro
    return b"." + (b"%06d" % (micro or 0))[:digits] if digits else b""


# --- parameters ------------------------------------------------------------------------------------------

_MOMENT = re.compile(rb"(\d{1,4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,6}))?)?\Z")
_SPAN = re.compile(rb"(-?)(\d{1,3}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,6}))?\Z")


def execute(statement: int, parameters: Sequence[Parameter]) -> bytes:
    """Return the payload of COM_STMT_EXECUTE: no cursor, types always sent.

    A parameter whose text is not of its kind (an integer beyond 64 bits, a date with a thirteenth month) is sent as
    text, as a client that holds it in a string would.
    """
    head = struct.pack("<BIBI", COM_EXECUTE, statement, 0, 1)
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
