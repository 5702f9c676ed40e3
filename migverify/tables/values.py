"""Equality of values whose texts may differ, and the class of a difference.

JSON is equal by value: objects with the same members in any order, arrays in order, numbers of the same exact
decimal value (1, 1.0 and 1e0 are one; integers keep every digit, nothing passes through a float), strings by
characters. true and 1 differ. Repeated keys cannot be seen: both servers keep one.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from migverify.model import ColumnDiff
from migverify.tables.tasks import ReadColumn

_MOMENT = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d+))?)?\Z")


def same_value(column: ReadColumn, source: str | None, target: str | None) -> bool:
    """Whether two canonical texts of a column are one value; NULL equals only NULL."""
    if source == target:
        return True
    if source is None or target is None:
        return False
    if column.compare == "json":
        return json_form(source) == json_form(target)
    if column.compare == "number":
        return _same_number(source, target, column.tolerance)
    if column.compare == "labels":
        return sorted(source.split(",")) == sorted(target.split(","))
    return False


def value_form(column: ReadColumn, text: str | None) -> str:
    """Return a text that is the same exactly for equal values; for multisets, where nothing pairs the rows.

    A tolerance is no equivalence, so columns with one keep their text here.
    """
    if text is None:
        return "N"
    if column.compare == "json":
        return json_form(text)
    if column.compare == "number" and column.tolerance is None:
        return _number_form(Decimal(text))
    if column.compare == "labels":
        return "=" + ",".join(sorted(text.split(",")))
    return "=" + text


def json_form(text: str) -> str:
    """Return the canonical form of a JSON text; text that is no JSON is returned with a mark."""
    try:
        value = json.loads(text, parse_float=Decimal, parse_int=Decimal, parse_constant=_no_number, strict=False)
    except (ValueError, RecursionError, InvalidOperation):
        return "not JSON: " + text
    return _json_form(value)


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _json_form(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{_json_form(value[k])}" for k in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_json_form(part) for part in value) + "]"
    if isinstance(value, Decimal):
        return _number_form(value)
    return json.dumps(value)


def _number_form(value: Decimal) -> str:
    if not value.is_finite():
        return str(value)
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    if not text:
        return "0"
    stripped = text.rstrip("0")
    # Digits and exponent, never a plain expansion: 1e308 stays short.
    return f"{'-' if sign else ''}{stripped}e{int(exponent) + len(text) - len(stripped)}"


def _same_number(source: str, target: str, tolerance: float | None) -> bool:
    try:
        one, other = Decimal(source), Decimal(target)
    except InvalidOperation:
        return False
    if one == other:
        return True
    return tolerance is not None and abs(Fraction(one) - Fraction(other)) <= Fraction(Decimal(repr(tolerance)))


def column_diff(column: ReadColumn, source: str | None, target: str | None, *, keep: bool) -> ColumnDiff:
    """Return the difference of one column; values are kept only when ``keep`` says so."""
    kind = difference_kind(column, source, target)
    return ColumnDiff(column.name, source if keep else None, target if keep else None, kind, masked=not keep)


def difference_kind(column: ReadColumn, source: str | None, target: str | None) -> str:
    """Name the class of a difference, so that masked reports still say what happened."""
    if source is None or target is None:
        other = target if source is None else source
        return "empty-or-null" if other == "" else "zero-or-null" if _is_zero(other) else "null"
    if column.compare == "json":
        return "json"
    if column.family in ("date", "datetime", "time"):
        return _moment_kind(source, target)
    if column.family in ("integer", "decimal", "float", "bit", "year"):
        return _number_kind(source, target, exact=column.family == "decimal")
    return _text_kind(source, target)


def _is_zero(text: str | None) -> bool:
    try:
        return text is not None and Decimal(text) == 0
    except InvalidOperation:
        return False


def _text_kind(source: str, target: str) -> str:
    if not source or not target:
        return "empty"
    if source.rstrip(" ") == target.rstrip(" "):
        return "trailing-space"
    if source.casefold() == target.casefold():
        return "case"
    if source.startswith(target) or target.startswith(source):
        return "truncated" if len(target) < len(source) else "appended"
    if _mangled(source, target) or _mangled(target, source):
        return "charset"
    if len(source) == len(target) and any(t == "?" != s for s, t in zip(source, target, strict=True)):
        return "charset"
    return "value"


def _mangled(clean: str, spoiled: str) -> bool:
    try:
        return clean.encode("utf-8").decode("cp1252", "replace") == spoiled or (
            clean.encode("utf-8").decode("latin-1") == spoiled
        )
    except UnicodeEncodeError:
        return False


def _number_kind(source: str, target: str, *, exact: bool) -> str:
    try:
        one, other = Decimal(source), Decimal(target)
    except InvalidOperation:
        return "value"
    if one == -other:
        return "sign"
    if abs(one - other) in (2**8, 2**16, 2**24, 2**32, 2**64):
        return "sign"
    if exact:
        return "precision" if _is_rounded(one, other) else "value"
    span = max(abs(one), abs(other))
    if one != one.to_integral_value() or other != other.to_integral_value() or span > 2**53:
        return "precision" if abs(one - other) <= span * Decimal("1e-5") else "value"
    return "value"


def _is_rounded(one: Decimal, other: Decimal, exact_digits: int = 2) -> bool:
    """Whether one is the other with fewer digits, beyond cents: a cent more or less is another value."""
    coarse, fine = sorted(_fraction_digits(number) for number in (one, other))
    return fine > max(coarse, exact_digits) and abs(one - other) < Decimal(1).scaleb(-coarse)


def _fraction_digits(number: Decimal) -> int:
    exponent = number.normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _moment_kind(source: str, target: str) -> str:
    one, other = _microseconds(source), _microseconds(target)
    if one is None or other is None:
        return "zero-date" if source.startswith("0000") or target.startswith("0000") else "value"
    delta = other - one
    if delta % 1_800_000_000 == 0 and abs(delta) <= 14 * 3_600_000_000:
        return f"shifted {delta / 3_600_000_000:+g}h"
    is_rounded = _is_rounded(Decimal(one).scaleb(-6), Decimal(other).scaleb(-6), exact_digits=0)
    return "precision" if is_rounded else "value"


def _microseconds(text: str) -> int | None:
    if found := _MOMENT.match(text):
        year, month, day = (int(part) for part in found.group(1, 2, 3))
        clock = [int(part or 0) for part in found.group(4, 5, 6)]
        if not month or not day:
            return None
        # Days by the civil calendar (Howard Hinnant, "chrono-compatible low-level date algorithms").
        shifted = year - (month <= 2)
        era_day = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
        days = shifted * 365 + shifted // 4 - shifted // 100 + shifted // 400 + era_day
        seconds = ((days * 24 + clock[0]) * 60 + clock[1]) * 60 + clock[2]
        return seconds * 1_000_000 + int((found.group(7) or "0").ljust(6, "0"))
    if found := re.match(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?\Z", text):
        seconds = (int(found.group(2)) * 60 + int(found.group(3))) * 60 + int(found.group(4))
        micro = seconds * 1_000_000 + int((found.group(5) or "0").ljust(6, "0"))
        return -micro if found.group(1) else micro
    return None
