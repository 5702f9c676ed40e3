"""Typed parameters: ``:name`` in a rule's SQL becomes a literal of its type, never pasted text.

A literal holds digits, signs and dots, or hex digits between quotes: nothing of a value can end it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal

from migverify.errors import UsageError
from migverify.recon.model import Parameter, ParameterValue, RuleSet, Window
from migverify.sql.tokens import Form, SqlProblem, tokens

WINDOW_PARAMETERS = ("window_start", "window_end")
"""Parameters of every rule with windows: datetimes, UTC, start inclusive and end exclusive."""

_INTEGER = re.compile(r"[-+]?[0-9]+")
_DECIMAL = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LEAST, _GREATEST = -(1 << 63), (1 << 64) - 1
_MAX_DIGITS, _MAX_SCALE = 65, 30  # of a DECIMAL


def parameters_of(sql: str) -> dict[str, int]:
    """Names of the parameters of an SQL text, with the offset of their first use.

    Raises
    ------
    SqlProblem
        the text cannot be read.
    """
    found: dict[str, int] = {}
    for token in tokens(sql):
        if token.form is Form.PARAMETER:
            found.setdefault(token.name, token.start)
    return found


def bind(sql: str, values: Mapping[str, ParameterValue]) -> str:
    """Put typed literals in the place of ``:name``.

    Quotes, names in backticks, comments, ``::``, ``:=`` and JSON paths stay as they are. Values that the text does not
    use are ignored.

    Raises
    ------
    UsageError
        a parameter has no value, a value cannot be a literal, or the text cannot be read.
    """
    parts = []
    try:
        for token in tokens(sql):
            if token.form is not Form.PARAMETER:
                parts.append(token.text)
                continue
            if token.name not in values:
                raise UsageError(
                    f"the parameter :{token.name} has no value", hint=f"Give one: --param {token.name}=..."
                )
            parts.append(literal(values[token.name], token.name))
    except SqlProblem as problem:
        raise UsageError(f"SQL of a rule: {problem.problem}", hint=problem.hint) from None
    return "".join(parts)


def literal(value: ParameterValue, name: str = "") -> str:
    """Return a value as an SQL literal that every server and ``sql_mode`` reads as that value.

    Text is hex with the introducer ``_utf8mb4``; a date and a datetime (UTC, without a zone) are typed literals; a
    negative number stands in parentheses, so that ``-:x`` is never ``--``.

    Raises
    ------
    UsageError
        the value is not one that a server can hold.
    """
    if isinstance(value, str):
        try:
            return f"_utf8mb4 x'{value.encode('utf-8').hex().upper()}'"
        except UnicodeEncodeError:
            raise _unfit(name, "is not valid Unicode") from None
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            raise _unfit(name, "has a time zone; give it in UTC without one")
        return f"TIMESTAMP'{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE'{value.isoformat()}'"
    if isinstance(value, Decimal):
        return _number(_decimal_text(value, name))
    if isinstance(value, bool) or not _LEAST <= value <= _GREATEST:
        raise _unfit(name, "is not a whole number of 64 bits")
    return _number(str(value))


def _number(text: str) -> str:
    return f"({text})" if text.startswith("-") else text


def _decimal_text(value: Decimal, name: str) -> str:
    if not value.is_finite():
        raise _unfit(name, "is not a finite number")
    text = format(value, "f")  # an exponent would make it a DOUBLE
    whole, _, fraction = text.lstrip("-").partition(".")
    if len(whole.lstrip("0") + fraction) > _MAX_DIGITS or len(fraction) > _MAX_SCALE:
        raise _unfit(name, f"has more than {_MAX_DIGITS} digits, or more than {_MAX_SCALE} after the point")
    return text if fraction else f"{text}.0"  # DECIMAL, not an integer


def _unfit(name: str, why: str) -> UsageError:
    return UsageError(f"the value of :{name} {why}" if name else f"the value {why}")


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text) or len(text) > _MAX_DIGITS or not _LEAST <= int(text) <= _GREATEST:
        raise ValueError("this is a whole number of 64 bits, for example 42")
    return int(text)


def _decimal(text: str) -> Decimal:
    if not _DECIMAL.fullmatch(text):
        raise ValueError("this is an exact decimal, for example 0.01")
    try:
        _decimal_text(Decimal(text), "")
    except UsageError as error:
        raise ValueError(f"this {error.message.removeprefix('the value ')}") from None
    return Decimal(text)


def _text(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("this is not valid Unicode") from None
    return text


def _date(text: str) -> date:
    try:
        if _DATE.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass  # a 30th of February: the same words as for any other text
    raise ValueError("this is a date, for example 2026-01-31")


def parse_moment(text: str) -> datetime:
    """ISO date and time -> naive UTC; a text without an offset is UTC.

    Raises
    ------
    ValueError
        it is none.
    """
    try:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise ValueError("this is an ISO date and time, for example 2026-01-31 or 2026-01-31T12:00:00+09:00") from None


_PARSERS: dict[str, Callable[[str], ParameterValue]] = {
    "integer": _integer, "decimal": _decimal, "text": _text, "date": _date, "datetime": parse_moment,
}  # fmt: skip
TYPES = tuple(_PARSERS)


def parse_value(kind: str, text: str) -> ParameterValue:
    """Read a value of one of ``TYPES`` from text.

    Raises
    ------
    ValueError
        the text is no such value; says what one looks like.
    """
    return _PARSERS[kind](text)


def parse_given(parameters: Mapping[str, Parameter], given: Iterable[str]) -> dict[str, ParameterValue]:
    """Read ``name=value`` texts of the command line by the types that the rules declare.

    Raises
    ------
    UsageError
        no ``=``, an unknown name, a name twice, a value of another type.
    """
    values: dict[str, ParameterValue] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--param {name}: the value is missing", hint="Write --param name=value.")
        if name not in parameters:
            known = ", ".join(parameters) or "none"
            raise UsageError(f"--param {name}: the rules have no such parameter", hint=f"They have: {known}.")
        if name in values:
            raise UsageError(f"--param {name} is given twice")
        try:
            values[name] = parse_value(parameters[name].type, value)
        except ValueError as error:
            raise UsageError(f"--param {name}: {error}", hint=f"{name} is of type {parameters[name].type}.") from None
    return values


def values_for(
    rules: RuleSet, given: Mapping[str, ParameterValue], window: Window | None = None
) -> dict[str, ParameterValue]:
    """All values that ``bind`` needs: defaults, what was given, and the bounds of the window.

    Raises
    ------
    UsageError
        a parameter without a default was not given.
    """
    values: dict[str, ParameterValue] = {}
    for name, parameter in rules.parameters.items():
        value = given.get(name, parameter.default)
        if value is None:
            raise UsageError(
                f"{parameter.place}: the parameter {name} has no default and was not given",
                hint=f"Give it: --param {name}=VALUE ({parameter.type}).",
            )
        values[name] = value
    if window is not None:
        values |= dict(zip(WINDOW_PARAMETERS, (window.start, window.end), strict=True))
    return values
