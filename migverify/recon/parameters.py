"""Typed parameters: ``:name`` in a rule's SQL becomes a literal of its type, never pasted text.

A literal holds digits, signs and dots, or hex digits between quotes: nothing of a value can end it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from migverify.errors import UsageError
from migverify.recon.fields import PlacedPart, ScalarText, parse_moment
from migverify.recon.model import ParameterValue
from migverify.sql.quoting import MOST_DIGITS, decimal_literal
from migverify.sql.tokens import SqlProblem, TokenForm, tokens

WINDOW_PARAMETERS = ("window_start", "window_end")
"""Parameters of every rule with windows: datetimes, UTC, start inclusive and end exclusive."""

_INTEGER = re.compile(r"[-+]?[0-9]+")
_DECIMAL = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LEAST, _GREATEST = -(1 << 63), (1 << 64) - 1


def parameters_of(sql: str) -> dict[str, int]:
    """Names of the parameters of an SQL text, with the offset of their first use.

    Raises SqlProblem: the text cannot be read.
    """
    found: dict[str, int] = {}
    for token in tokens(sql):
        if token.form is TokenForm.PARAMETER:
            found.setdefault(token.name, token.start)
    return found


def bind(sql: str, values: Mapping[str, ParameterValue]) -> str:
    """Put typed literals in the place of ``:name``.

    Quotes, names in backticks, comments, ``::``, ``:=`` and JSON paths stay as they are. Values that the text does not
    use are ignored.

    Raises UsageError: a parameter has no value, a value cannot be a literal, or the text cannot be read.
    """
    parts = []
    try:
        for token in tokens(sql):
            if token.form is not TokenForm.PARAMETER:
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
    negative number is in parentheses, so that ``-:x`` is never ``--``.

    Raises UsageError: the value is not one that a server can hold.
    """
    if isinstance(value, str):
        try:
            return f"_utf8mb4 x'{value.encode('utf-8').hex().upper()}'"
        except UnicodeEncodeError:
            raise _unfit(name, "it is not valid Unicode") from None
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            raise _unfit(name, "it has a time zone; give it in UTC without one")
        return f"TIMESTAMP'{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE'{value.isoformat()}'"
    if isinstance(value, bool) or (isinstance(value, int) and not _LEAST <= value <= _GREATEST):
        raise _unfit(name, "it is not a whole number of 64 bits")
    text = str(value)
    if isinstance(value, Decimal):
        try:
            text = decimal_literal(value)
        except UsageError as error:
            raise _unfit(name, error.message) from None
        text += "" if "." in text else ".0"  # a DECIMAL, not an integer
    return f"({text})" if text.startswith("-") else text


def _unfit(name: str, why: str) -> UsageError:
    return UsageError(f"the value of :{name} cannot be a literal: {why}")


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text) or len(text) > MOST_DIGITS or not _LEAST <= int(text) <= _GREATEST:
        raise ValueError("this is a whole number of 64 bits, for example 42")
    return int(text)


def _decimal(text: str) -> Decimal:
    if not _DECIMAL.fullmatch(text):
        raise ValueError("this is an exact decimal, for example 0.01")
    try:
        decimal_literal(Decimal(text))
    except UsageError as error:
        raise ValueError(f"this has more digits than a DECIMAL holds: {error.message}") from None
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


_PARSERS: dict[str, Callable[[str], ParameterValue]] = {
    "integer": _integer, "decimal": _decimal, "text": _text, "date": _date, "datetime": parse_moment,
}  # fmt: skip
TYPES = tuple(_PARSERS)


def _type(value: object) -> object:
    if isinstance(value, str) and value not in TYPES:
        raise ValueError(f"this takes one of {', '.join(TYPES)}")
    return value


def parse_value(kind: str, text: str) -> ParameterValue:
    """Read a value of one of ``TYPES`` from text.

    Raises ValueError: the text is no such value; says what one looks like.
    """
    return _PARSERS[kind](text)


class RuleParameter(PlacedPart):
    """A typed parameter."""

    type: Annotated[str, BeforeValidator(_type, json_schema_input_type=str)] = Field(
        description="`integer`, `decimal`, `text`, `date` or `datetime` (UTC)."
    )
    default: ScalarText | None = Field(default=None, description="Its value where none is given.")

    @model_validator(mode="after")
    def _of_its_type(self) -> RuleParameter:
        if self.default is not None:
            parse_value(self.type, self.default)
        return self

    @property
    def value(self) -> ParameterValue | None:
        """The default as a value of its type."""
        return None if self.default is None else parse_value(self.type, self.default)


def parse_given(parameters: Mapping[str, RuleParameter], given: Iterable[str]) -> dict[str, ParameterValue]:
    """Read ``name=value`` texts of the command line by the types that the rules declare.

    Raises UsageError: no ``=``, an unknown name, a name twice, a value of another type.
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
