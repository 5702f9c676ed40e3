"""When two cells hold the same value: by what both sides say the column is.

=============  ===================================================================================
joint kind     equal when
=============  ===================================================================================
exact number   the decimal values are equal, of any length; another scale is
               ``decimal-scale``, another spelling ``form``
float          they agree to 6 significant digits: half a unit of the sixth digit of the greater one at most, where one
               text has more digits than that; two texts of 6 digits or fewer must be equal in value. Only where
               both sides say float: a float beside another number is compared as a double
double         at most 4 units in the last place apart, or 1e-12 of the greater one
bits           the bytes are equal; leading zero bytes apart (``form``)
json           the values are equal: numbers by decimal value, keys in any order; 1 and 1.0 are ``json-form``,
               another text of the same value (order of keys, spaces) is ``json-text``
temporal       the texts are equal without trailing zeros of the fraction (``temporal-fraction``)
text, bytes    the bytes are equal; what differs only by case or by trailing spaces is named so
=============  ===================================================================================

NULL equals NULL only. A kind both sides do not share is compared exactly, but for numbers, which stay numbers.
"""

from __future__ import annotations

import json
import math
import re
import struct
import unicodedata
from collections.abc import Hashable
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from enum import StrEnum

from migverify.workload.replay.model import AnswerColumn, Cell, DifferenceSeverity

FLOAT_DIGITS = 6
DOUBLE_ULPS = 4
DOUBLE_RELATIVE = 1e-12

BINARY = 63
"""The protocol's number of the character set ``binary``."""

_ZEROFILL = 64
_LEVELS = 150
_BRACKET = re.compile(rb'[\[\]{}]|"(?:[^"\\]|\\.)*"', re.DOTALL)
_WIDE = Context(prec=800)


class CellKind(StrEnum):
    """How the cells of a column are compared."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    DOUBLE = "double"
    BITS = "bits"
    JSON = "json"
    DATE = "date"
    TIME = "time"
    DATETIME = "datetime"
    TEXT = "text"
    BYTES = "bytes"
    NOTHING = "nothing"  # a column that is NULL by its type


_CODES = {
    0: CellKind.DECIMAL, 246: CellKind.DECIMAL,
    1: CellKind.INTEGER, 2: CellKind.INTEGER, 3: CellKind.INTEGER, 8: CellKind.INTEGER, 9: CellKind.INTEGER,
    13: CellKind.INTEGER, 4: CellKind.FLOAT, 5: CellKind.DOUBLE, 6: CellKind.NOTHING,
    7: CellKind.DATETIME, 12: CellKind.DATETIME, 10: CellKind.DATE, 14: CellKind.DATE, 11: CellKind.TIME,
    16: CellKind.BITS, 245: CellKind.JSON, 242: CellKind.BYTES, 255: CellKind.BYTES,
}  # fmt: skip
_NUMBERS = frozenset({CellKind.INTEGER, CellKind.DECIMAL, CellKind.FLOAT, CellKind.DOUBLE})
_EXACT = frozenset({CellKind.INTEGER, CellKind.TEXT, CellKind.BYTES, CellKind.DATE})


def kind_of(column: AnswerColumn) -> CellKind:
    """Return the kind of a column as its side describes it."""
    found = _CODES.get(column.type_code)
    if found is not None:
        return found
    return CellKind.BYTES if column.charset == BINARY else CellKind.TEXT


def joint(source: AnswerColumn, target: AnswerColumn) -> CellKind:
    """Return the kind both cells of a column are compared as."""
    first, second = kind_of(source), kind_of(target)
    if first is second or second is CellKind.NOTHING:
        return first
    if first is CellKind.NOTHING:
        return second
    both = {first, second}
    if both <= _NUMBERS:
        return CellKind.DOUBLE if both & {CellKind.FLOAT, CellKind.DOUBLE} else CellKind.DECIMAL
    if both == {CellKind.JSON, CellKind.TEXT}:
        return CellKind.JSON
    return CellKind.BYTES


def same_text_is_same(source: AnswerColumn, target: AnswerColumn) -> bool:
    """Tell whether different texts of this column are always different values: checksums of texts then decide."""
    first, second = kind_of(source), kind_of(target)
    return first is second and first in _EXACT and (source.flags & _ZEROFILL) == (target.flags & _ZEROFILL)


@dataclass(frozen=True, slots=True)
class CellDifference:
    """How two cells differ. A ``METADATA`` difference is one of form: the values are equal."""

    aspect: str
    severity: DifferenceSeverity
    detail: str = ""


_NULL = CellDifference("null", DifferenceSeverity.BLOCKER)
_EMPTY = CellDifference("null", DifferenceSeverity.BLOCKER, "NULL and empty")
_VALUE = CellDifference("value", DifferenceSeverity.BLOCKER)
_CASE = CellDifference("value", DifferenceSeverity.BLOCKER, "case")
_SPACE = CellDifference("value", DifferenceSeverity.BLOCKER, "trailing spaces")
_CHARSET = CellDifference("value", DifferenceSeverity.BLOCKER, "character set")
_FLOAT = CellDifference("float", DifferenceSeverity.BLOCKER)
_DECIMAL = CellDifference("value", DifferenceSeverity.BLOCKER, "decimal")
_SCALE = CellDifference("decimal-scale", DifferenceSeverity.METADATA)
_FORM = CellDifference("form", DifferenceSeverity.METADATA)
_JSON = CellDifference("json", DifferenceSeverity.BLOCKER)
_JSON_FORM = CellDifference("json-form", DifferenceSeverity.METADATA)
_JSON_TEXT = CellDifference("json-text", DifferenceSeverity.METADATA)
_TEMPORAL = CellDifference("temporal", DifferenceSeverity.BLOCKER)
_FRACTION = CellDifference("temporal-fraction", DifferenceSeverity.METADATA)


def compare_cells(source: Cell, target: Cell, kind: CellKind) -> CellDifference | None:
    """Return how two cells of one column differ; None where they hold the same value in the same form."""
    if source == target:
        return None
    if source is None or target is None:
        return _EMPTY if source == b"" or target == b"" else _NULL
    if kind is CellKind.FLOAT or kind is CellKind.DOUBLE:
        return None if near(source, target, kind) else _FLOAT
    same = canonical(source, kind) == canonical(target, kind)
    match kind:
        case CellKind.INTEGER:
            return _FORM if same else _VALUE
        case CellKind.DECIMAL:
            return _SCALE if same else _DECIMAL
        case CellKind.BITS:
            return _FORM if same else _VALUE
        case CellKind.JSON:
            if not same:
                return _JSON
            return _JSON_TEXT if _typed(source) == _typed(target) else _JSON_FORM
        case CellKind.TIME | CellKind.DATETIME:
            return _FRACTION if same else _TEMPORAL
        case CellKind.DATE:
            return _TEMPORAL
        case CellKind.TEXT:
            return _text_difference(source, target)
        case _:
            return _VALUE


def approximate(kind: CellKind) -> bool:
    """Tell whether values of this kind are compared with a tolerance, which no key can express."""
    return kind in (CellKind.FLOAT, CellKind.DOUBLE)


def canonical(cell: Cell, kind: CellKind) -> Hashable:
    """Return what is equal for two cells of an exact kind if and only if their values are; None for NULL."""
    if cell is None:
        return None
    match kind:
        case CellKind.INTEGER | CellKind.DECIMAL:
            return _number(cell)
        case CellKind.BITS:
            return cell.lstrip(b"\x00")
        case CellKind.JSON:
            return _json_key(cell, typed=False)
        case CellKind.TIME | CellKind.DATETIME:
            return _temporal(cell)
        case CellKind.FLOAT | CellKind.DOUBLE:
            return _approximate_key(cell)
        case _:
            return cell


def _number(text: bytes) -> Hashable:
    """Return sign, digits and exponent without zeros at the ends; the bytes where it is no number."""
    try:
        value = Decimal(text.decode("ascii"))
    except (InvalidOperation, UnicodeDecodeError):
        return text
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return text
    first, last = 0, len(digits)
    while first < last and digits[first] == 0:
        first += 1
    while last > first and digits[last - 1] == 0:
        last -= 1
    if first == last:
        return (0, (), 0)
    return sign, digits[first:last], exponent + len(digits) - last


def _approximate_key(text: bytes) -> Hashable:
    try:
        return float(text) + 0.0
    except ValueError:
        return text


def near(source: bytes, target: bytes, kind: CellKind) -> bool:
    """Tell whether two approximate numbers agree within the tolerance of their kind. Symmetric and reflexive."""
    if source == target:
        return True
    return _near_float(source, target) if kind is CellKind.FLOAT else _near_double(source, target)


def _near_float(source: bytes, target: bytes) -> bool:
    try:
        first, second = Decimal(source.decode("ascii")), Decimal(target.decode("ascii"))
    except (InvalidOperation, UnicodeDecodeError):
        return False
    if not (first.is_finite() and second.is_finite()):
        return False
    if first == second:
        return True
    if max(_digits(first), _digits(second)) <= FLOAT_DIGITS or not first or not second:
        return False
    unit = Decimal(1).scaleb(max(first.adjusted(), second.adjusted()) - FLOAT_DIGITS + 1)
    return 2 * abs(_WIDE.subtract(first, second)) <= unit


def _digits(value: Decimal) -> int:
    found = _number(format(value, "f").encode())
    return len(found[1]) if isinstance(found, tuple) else 0


def _near_double(source: bytes, target: bytes) -> bool:
    try:
        first, second = float(source), float(target)
    except ValueError:
        return False
    if not (math.isfinite(first) and math.isfinite(second)):
        return False
    if first == second or abs(first - second) <= DOUBLE_RELATIVE * max(abs(first), abs(second)):
        return True
    return abs(_ordinal(first) - _ordinal(second)) <= DOUBLE_ULPS


def _ordinal(value: float) -> int:
    """Number the doubles in their order, without a gap; both zeros are 0."""
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits if bits >= 0 else -(bits & 0x7FFF_FFFF_FFFF_FFFF)


_TEMPORAL_TEXT = re.compile(rb"([^.]*)(?:\.(\d*))?")


def _temporal(text: bytes) -> Hashable:
    found = _TEMPORAL_TEXT.fullmatch(text)
    return text if found is None else (found[1], (found[2] or b"").rstrip(b"0"))


def _text_difference(source: bytes, target: bytes) -> CellDifference:
    if source.rstrip(b" ") == target.rstrip(b" "):
        return _SPACE
    try:
        first, second = source.decode("utf-8"), target.decode("utf-8")
    except UnicodeDecodeError:
        return _CHARSET if _reread(source, target) else _VALUE
    if first.casefold() == second.casefold():
        return _CASE
    return _CHARSET if _reread(source, target) else _VALUE


def _reread(source: bytes, target: bytes) -> bool:
    """Tell whether one text is the other, read in a wrong character set."""
    return any(
        one.decode("latin-1").encode("utf-8") == other or (b"?" in other and other == _lost(one))
        for one, other in ((source, target), (target, source))
    )


def _lost(text: bytes) -> bytes:
    return text.decode("utf-8", "replace").encode("ascii", "replace")


def fold(cell: Cell) -> Hashable:
    """Return what texts have in common that some collation holds equal: without case, accents, trailing spaces."""
    if cell is None:
        return None
    try:
        text = cell.decode("utf-8")
    except UnicodeDecodeError:
        return cell.rstrip(b" ").lower()
    parts = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in parts if not unicodedata.combining(char)).rstrip(" ")


def _typed(text: bytes) -> Hashable:
    return _json_key(text, typed=True)


def _json_key(text: bytes, *, typed: bool) -> Hashable:
    """Return a JSON value as nested tuples; numbers by value, and with ``typed`` also by integer or not."""

    def number(form: str, digits: str) -> tuple[str, Hashable]:
        return (form if typed else "number", _number(digits.encode()))

    def constant(name: str) -> object:
        raise ValueError(name)

    if _deep(text):
        return text
    try:
        value = json.loads(
            text.decode("utf-8"),
            parse_int=lambda digits: number("integer", digits),
            parse_float=lambda digits: number("float", digits),
            parse_constant=constant,
            object_pairs_hook=_object,
        )
        return _frozen(value)
    except (ValueError, RecursionError):
        return text


def _deep(text: bytes) -> bool:
    """Tell whether a text may be nested deeper than values are compared; servers stop at 100 levels."""
    if text.count(b"[") + text.count(b"{") <= _LEVELS:
        return False
    level = deepest = 0
    for found in _BRACKET.finditer(text):
        level += 1 if found[0] in b"[{" else -1 if found[0] in b"]}" else 0
        deepest = max(deepest, level)
    return deepest > _LEVELS


def _object(pairs: list[tuple[str, object]]) -> tuple[str, Hashable]:
    # one value a name, so sorting never looks at values
    return "object", tuple(sorted((name, _frozen(value)) for name, value in dict(pairs).items()))


def _frozen(value: object) -> Hashable:
    if isinstance(value, list):
        return ("array", tuple(_frozen(one) for one in value))
    if isinstance(value, bool) or value is None:
        return ("constant", str(value))
    if isinstance(value, str):
        return ("text", value)
    if isinstance(value, tuple):
        return value
    raise ValueError(f"no JSON value: {type(value).__name__}")
