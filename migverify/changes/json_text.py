"""MySQL's binary JSON -> the text that SELECT gives.

Source of the format: MySQL's ``sql-common/json_binary.h``. A value is a type byte and its data; objects and arrays hold
a table of entries with offsets from their own start, small values stand in the table itself. SELECT writes ``": "`` and
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
_OBJECTS, _ARRAYS = (0, 1), (2, 3)
_LITERAL, _STRING, _OPAQUE = 4, 12, 15
_NUMBERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_DOUBLE = 11
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

    Raises
    ------
    ChangeError
        damaged, deeper than MySQL allows, or a type that is not known.
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
    if kind in _OBJECTS:
        return _container(data, at, depth, left, large=kind == _OBJECTS[1], object_=True)
    if kind in _ARRAYS:
        return _container(data, at, depth, left, large=kind == _ARRAYS[1], object_=False)
    if kind == _LITERAL:
        return _LITERALS[data[at]] if data[at] in _LITERALS else _unknown("literal", data[at])
    if kind in _NUMBERS:
        return str(struct.unpack_from(_NUMBERS[kind], data, at)[0])
    if kind == _DOUBLE:
        return _double(struct.unpack_from("<d", data, at)[0])
    if kind == _STRING:
        size, at = _length(data, at)
        return quoted(_piece(data, at, size, left).decode("utf-8"))
    if kind == _OPAQUE:
        return _opaque(data[at], data, at + 1, left)
    return _unknown("type", kind)


def _unknown(what: str, number: int) -> str:
    raise ChangeError(f"a JSON value holds a {what} that is not known: {number}.")


def quoted(text: str) -> str:
    """Return a JSON string as MySQL writes it: control characters escaped, all others as they are."""
    return f'"{text.translate(_TABLE)}"'


def _double(value: float) -> str:
    text = double_text(value)
    return text if "." in text or "e" in text else f"{text}.0"


def _piece(data: bytes, at: int, size: int, left: list[int]) -> bytes:
    found = data[at : at + size]
    if len(found) < size:
        raise ChangeError(f"a JSON value is cut: {size} bytes are wanted, {len(found)} are left.")
    _spend(left, size)
    return found


def _spend(left: list[int], size: int) -> None:
    """Take entries or bytes of text from what a value of this length can hold.

    Each has a place of its own. Damaged offsets may make one place serve two, at every level, and the text grow without
    bound.
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


def _container(data: bytes, start: int, depth: int, left: list[int], *, large: bool, object_: bool) -> str:
    width, word = (4, "<I") if large else (2, "<H")
    count = struct.unpack_from(word, data, start)[0]
    table = start + 2 * width
    entries = table + count * (width + 2) if object_ else table
    if entries + count * (width + 1) > len(data):
        raise ChangeError("a JSON value is cut inside its table of entries.")
    _spend(left, count)
    parts = []
    for n in range(count):
        entry = entries + n * (width + 1)
        text = _entry(data, start, entry, depth, left, word, large=large)
        if object_:
            place = table + n * (width + 2)
            offset = start + struct.unpack_from(word, data, place)[0]
            size = struct.unpack_from("<H", data, place + width)[0]
            text = f"{quoted(_piece(data, offset, size, left).decode('utf-8'))}: {text}"
        parts.append(text)
    inner = ", ".join(parts)
    return f"{{{inner}}}" if object_ else f"[{inner}]"


def _entry(data: bytes, start: int, entry: int, depth: int, left: list[int], word: str, *, large: bool) -> str:
    kind = data[entry]
    # What fits into the offset stands there itself.
    if kind in (_LITERAL, 5, 6) or (large and kind in (7, 8)):
        return _value(kind, data, entry + 1, depth + 1, left)
    offset = struct.unpack_from(word, data, entry + 1)[0]
    return _value(kind, data, start + offset, depth + 1, left)


def _opaque(kind: int, data: bytes, at: int, left: list[int]) -> str:
    size, at = _length(data, at)
    raw = _piece(data, at, size, left)
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
