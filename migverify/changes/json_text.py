"""MySQL's binary JSON -> the text that SELECT gives.

Source of the format: MySQL's ``sql-common/json_binary.h``. A value is a type byte and its data; objects and arrays hold
a table of entries with offsets from their own start, small values are in the table itself. SELECT writes ``": "`` and
``", "``, keys in the order in which they are stored, doubles with ``.0`` where they would read as integers.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable

from migverify.changes.numbers import MOST_JSON_DIGITS, decimal_bytes, decimal_reader, double_text
from migverify.changes.temporal import packed_date, packed_datetime, packed_time
from migverify.errors import ChangeError

MOST_DEPTH = 101
"""MySQL stores documents of at most 100 levels."""
_LITERALS = {0: "null", 1: "true", 2: "false"}
_LARGE_OBJECT, _LARGE_ARRAY = 1, 3
_LARGE = (_LARGE_OBJECT, _LARGE_ARRAY)
_STRING, _OPAQUE = 12, 15
SCALARS = (4, 5, 6, 7, 8, 9, 10, 11, _STRING, _OPAQUE)
_SIZES = {4: 1, 5: 2, 6: 2, 7: 4, 8: 4, 9: 8, 10: 8, 11: 8}
_INLINE, _INLINE_LARGE = frozenset({4, 5, 6}), frozenset({4, 5, 6, 7, 8})
"""Types whose values are in the table of entries itself."""
_SHORT_AT, _LONG_AT = struct.Struct("<H").unpack_from, struct.Struct("<I").unpack_from
_DECIMAL, _DATE, _TIME, _DATETIME, _TIMESTAMP = 246, 10, 11, 12, 7
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_TABLE = str.maketrans({**{chr(n): f"\\u{n:04x}" for n in range(0x20)}, **_ESCAPES})
_LINE = 76
_MOMENT_BYTES = 8


def json_text(data: bytes) -> str:
    """Return the text of a JSON value.

    Parameters
    ----------
    data
        The value as a row image holds it, without its length. Empty is what a server stores for a column that was
        added later: the JSON ``null``.
    """
    if not data:
        return "null"
    try:
        return _value(data[0], data, 1, 0, [len(data)])
    except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise ChangeError(f"a JSON value of {len(data)} bytes is damaged: {error}") from error


def _value(kind: int, data: bytes, at: int, depth: int, left: list[int]) -> str:
    if depth > MOST_DEPTH:
        raise ChangeError(f"a JSON value is deeper than {MOST_DEPTH - 1} levels.")
    if kind <= _LARGE_ARRAY:
        return _container(kind, data, at, depth, left)
    if kind not in _SCALARS:
        raise ChangeError(f"a JSON value holds a type that is not known: {kind}.")
    size, start = _SIZES.get(kind), at
    if size is None:  # the type of an opaque value comes before its length
        length, start = _length(data, at + (kind == _OPAQUE))
        size = start - at + length
    return _SCALARS[kind](_piece(data, at, size, left), start - at)


def _piece(data: bytes, at: int, size: int, left: list[int]) -> bytes:
    found = data[at : at + size]
    if len(found) < size:
        raise ChangeError(f"a JSON value is cut: {size} bytes are wanted, {len(found)} are left.")
    left[0] -= size
    if left[0] < 0:
        _spend(left, 0)
    return found


def _spend(left: list[int], size: int) -> None:
    """Take entries or bytes from what a value of this length can hold.

    Each has a place of its own. Damaged offsets may make one place serve two, at every level, and the value grow
    without bound.
    """
    left[0] -= size
    if left[0] < 0:
        raise ChangeError("a JSON value holds more than fits its bytes: its offsets are damaged.")


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Read a length of 7 bits a byte, low ones first; returns it and the place behind it."""
    size = shift = 0
    for place in range(at, at + 5):
        size |= (data[place] & 0x7F) << shift
        if not data[place] & 0x80:
            return size, place + 1
        shift += 7
    raise ChangeError("a JSON value holds a length of more than five bytes.")


def _container(kind: int, data: bytes, start: int, depth: int, left: list[int]) -> str:
    large, is_object = kind in _LARGE, kind <= _LARGE_OBJECT
    width = 4 if large else 2
    offset_at, inline = (_LONG_AT, _INLINE_LARGE) if large else (_SHORT_AT, _INLINE)
    count = offset_at(data, start)[0]
    table = start + 2 * width
    entries = table + count * (width + 2) if is_object else table
    if entries + count * (width + 1) > len(data):
        raise ChangeError("a JSON value is cut inside its table of entries.")
    _spend(left, count)
    scalars, values = _SCALARS, []
    for entry in range(entries, entries + count * (width + 1), width + 1):
        of = data[entry]
        # What fits into the offset is in its place.
        at = entry + 1 if of in inline else start + offset_at(data, entry + 1)[0]
        size = _SIZES.get(of)
        if size is None:
            values.append(_value(of, data, at, depth + 1, left))
        else:  # the same without a call: most values are numbers
            values.append(scalars[of](_piece(data, at, size, left), 0))
    if not is_object:
        return f"[{', '.join(values)}]"
    names = [
        _piece(data, start + offset_at(data, place)[0], _SHORT_AT(data, place + width)[0], left)
        for place in range(table, entries, width + 2)
    ]
    return _object_text(names, values)


# --- text -----------------------------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    """Return a JSON string as MySQL writes it: control characters escaped, all others as they are."""
    return f'"{text.translate(_TABLE)}"'


def _literal(data: bytes, _: int) -> str:
    if data[0] not in _LITERALS:
        raise ChangeError(f"a JSON value holds a literal that is not known: {data[0]}.")
    return _LITERALS[data[0]]


def _signed(data: bytes, _: int) -> str:
    return str(int.from_bytes(data, "little", signed=True))


def _unsigned(data: bytes, _: int) -> str:
    return str(int.from_bytes(data, "little"))


def _double(data: bytes, _: int) -> str:
    text = double_text(struct.unpack("<d", data)[0])
    return text if "." in text or "e" in text else f"{text}.0"


def _string(data: bytes, start: int) -> str:
    return quoted(data[start:].decode("utf-8"))


def _object_text(names: list[bytes], values: list[str]) -> str:
    members = (f"{quoted(name.decode('utf-8'))}: {value}" for name, value in zip(names, values, strict=True))
    return f"{{{', '.join(members)}}}"


def _opaque(data: bytes, start: int) -> str:
    kind, raw = data[0], data[start:]
    if kind == _DECIMAL:
        read = decimal_reader(raw[0], raw[1], MOST_JSON_DIGITS)
        _sized(raw, 2 + decimal_bytes(raw[0], raw[1]))
        return read(raw[2:])
    shown = _MOMENTS.get(kind)
    if shown is not None:
        _sized(raw, _MOMENT_BYTES)
        return f'"{shown(int.from_bytes(raw, "little", signed=True))}"'
    # MySQL breaks base64 into lines of 76 characters, and escapes the line ends.
    text = base64.b64encode(raw).decode("ascii")
    lines = "\\n".join(text[n : n + _LINE] for n in range(0, len(text), _LINE))
    return f'"base64:type{kind}:{lines}"'


def _sized(raw: bytes, size: int) -> None:
    if len(raw) != size:
        raise ChangeError(f"a JSON value holds a number of {len(raw)} bytes where {size} are wanted.")


_MOMENTS: dict[int, Callable[[int], str]] = {
    _DATE: packed_date, _DATETIME: packed_datetime, _TIMESTAMP: packed_datetime, _TIME: packed_time,
}  # fmt: skip

_SCALARS: dict[int, Callable[[bytes, int], str]] = {
    4: _literal, **dict.fromkeys((5, 7, 9), _signed), **dict.fromkeys((6, 8, 10), _unsigned), 11: _double,
    _STRING: _string, _OPAQUE: _opaque,
}  # fmt: skip
"""Type of a scalar -> what reads its bytes, of which the content begins at an offset."""
