"""Values of the binary protocol: parameters to bytes, and rows to the texts that the text protocol has for them.

The text of a value is the server's own, so it depends on the server where MySQL and TiDB write unlike: FLOAT (6 digits
on MySQL, the shortest text on TiDB), the exponents of both floating types, and fixed decimals of expressions.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TypeAlias

from migverify.model import Flavor
from migverify.workload.model import Parameter
from migverify.workload.replay.model import AnswerColumn, Cell

Decoder: TypeAlias = Callable[[bytes, int], tuple[bytes, int]]
"""Bytes and the place of a value in them -> its text and the place behind it."""

UNSIGNED = 0x20
ZEROFILL = 0x40
_NOT_FIXED = 31  # decimals of a floating type without them, and of what no expression tells
_MICROSECONDS = 6

_TINY, _SHORT, _LONG, _FLOAT, _DOUBLE, _NULL, _TIMESTAMP, _LONGLONG, _INT24 = 1, 2, 3, 4, 5, 6, 7, 8, 9
_DATE, _TIME, _DATETIME, _YEAR, _NEWDATE, _BLOB, _VAR_STRING, _NEWDECIMAL = 10, 11, 12, 13, 14, 252, 253, 246
_INTEGERS = {_TINY: ("b", 1), _SHORT: ("h", 2), _LONG: ("i", 4), _INT24: ("i", 4), _LONGLONG: ("q", 8)}
_DATETIME_PARTS = struct.Struct("<HBBBBB")
_SHORTEST = 1e-4, 1e15  # within them the shortest text has no exponent, in Python as on both servers


def decoders(columns: Sequence[AnswerColumn], flavor: Flavor) -> tuple[Decoder, ...]:
    """Return one decoder a column, for rows of the binary protocol that have these columns."""
    return tuple(_decoder(column, flavor) for column in columns)


def row(data: bytes, start: int, made: Sequence[Decoder]) -> tuple[tuple[Cell, ...], int]:
    """Decode a row whose packet begins at ``start``; returns its cells and the place behind them.

    Raises
    ------
    IndexError, struct.error
        the packet is shorter than its columns need.
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


def _decoder(column: AnswerColumn, flavor: Flavor) -> Decoder:
    kind = column.type_code
    if kind in _INTEGERS:
        return _integer(column, flavor, *_INTEGERS[kind])
    if kind == _YEAR:
        return lambda data, at: (b"%04d" % (data[at] | data[at + 1] << 8), at + 2)
    if kind in (_FLOAT, _DOUBLE):
        return _floating(column, flavor)
    if kind in (_DATE, _NEWDATE):
        return _date
    if kind in (_DATETIME, _TIMESTAMP):
        return _moment(_digits(column.decimals))
    if kind == _TIME:
        return _span(_digits(column.decimals))
    return text


def inexact(column: AnswerColumn, flavor: Flavor) -> str:
    """Return why a binary value's text may differ from the text protocol's of the same server, empty where it cannot.

    TiDB writes a moment that an expression made (GREATEST, IFNULL over columns of unlike precision) with the value's
    own number of fraction digits, which the binary protocol does not tell: trailing zeros may differ, the value not.
    """
    if flavor is Flavor.TIDB and column.type_code in (_DATETIME, _TIMESTAMP) and not column.table and column.decimals:
        return "fraction digits of an expression"
    return ""


def _digits(decimals: int) -> int:
    return min(decimals, _MICROSECONDS)


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


def _integer(column: AnswerColumn, flavor: Flavor, code: str, width: int) -> Decoder:
    unpack = struct.Struct("<" + (code.upper() if column.flags & UNSIGNED else code)).unpack_from
    if column.flags & ZEROFILL and flavor is not Flavor.TIDB:  # TiDB pads nothing
        return lambda data, at: (b"%0*d" % (column.length, unpack(data, at)[0]), at + width)
    return lambda data, at: (b"%d" % unpack(data, at)[0], at + width)


def _floating(column: AnswerColumn, flavor: Flavor) -> Decoder:
    single = column.type_code == _FLOAT
    unpack = struct.Struct("<f" if single else "<d").unpack_from
    width = 4 if single else 8
    fixed = column.decimals if column.decimals < _NOT_FIXED else None
    if flavor is Flavor.TIDB and fixed is not None and (column.table or not fixed):
        fixed = None  # TiDB pads expressions to their decimals, and columns never
    pad = column.length if column.flags & ZEROFILL and flavor is not Flavor.TIDB else 0

    def decode(data: bytes, at: int) -> tuple[bytes, int]:
        value = unpack(data, at)[0]
        if fixed is None:
            made = float_text(value, flavor, single=single)
        else:
            made = _with_decimals(value, fixed, flavor, single=single)
        return made.encode().rjust(pad, b"0"), at + width

    return decode


def _with_decimals(value: float, decimals: int, flavor: Flavor, *, single: bool) -> str:
    if flavor is Flavor.TIDB:
        if value and not 1e-15 <= abs(value) < _SHORTEST[1]:
            digits, _, exponent = f"{value:.{5 if single else decimals}e}".partition("e")
            return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits}e{int(exponent)}"
        return format(value, f".{decimals}f")
    shortest = Decimal(repr(value))
    exponent_of = shortest.as_tuple().exponent
    if isinstance(exponent_of, int) and -exponent_of <= decimals:
        return format(shortest, f".{decimals}f")
    return format(value, f".{decimals}f")


def _shortest(value: float) -> str:
    """Return the shortest text that a 4-byte float reads back from."""
    for digits in range(6, 10):
        made = f"{value:.{digits - 1}e}"
        if struct.unpack("<f", struct.pack("<f", float(made)))[0] == value:
            return made
    return repr(value)


def float_text(value: float, flavor: Flavor, *, single: bool) -> str:
    """Return a float as a server's text protocol writes it.

    MySQL writes a FLOAT with 6 significant digits and a DOUBLE with the fewest that read back to it; TiDB writes the
    fewest for both, but a FLOAT with an exponent with 6. Exponents are used below 1e-15 and from 1e15 on, on MySQL
    not where digits stand behind the point.
    """
    if not single and _SHORTEST[0] <= abs(value) < _SHORTEST[1]:
        return repr(value).removesuffix(".0")
    made = repr(value)
    if single:
        plain = flavor is Flavor.TIDB and 1e-15 <= abs(value) < _SHORTEST[1]
        made = _shortest(value) if plain else f"{value:.5e}"
    sign, digits, exponent = Decimal(made).as_tuple()
    if not isinstance(exponent, int):
        return "0" if flavor is Flavor.TIDB else made
    places = "".join(map(str, digits)).lstrip("0")
    exponent += len(places) - len(places := places.rstrip("0"))
    minus = "-" if sign else ""
    if not places:
        return minus + "0"
    point = len(places) + exponent  # the place of the decimal point behind the first digits
    whole = point >= len(places) or flavor is Flavor.TIDB  # MySQL shows digits behind the point wherever there are
    if (point > 15 and whole) or point < -14:
        rest = "." + places[1:] if len(places) > 1 else ""
        return f"{minus}{places[0]}{rest}e{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{places}"
    if point >= len(places):
        return minus + places + "0" * (point - len(places))
    return f"{minus}{places[:point]}.{places[point:]}"


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
