"""The base of all parts of a YAML file, and the values of single keys: what text is allowed, and what it becomes.

Each check raises ValueError with one sentence that shows nothing of a value that could be a secret.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetPydanticSchema,
    ValidationInfo,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import core_schema

from migverify.config.patterns import TablePattern, parse_pattern
from migverify.config.urls import check_http_url, check_store_url, parse_endpoint_url
from migverify.config.zones import ZONE_HINT, find_zone
from migverify.sql.lexer import TokenKind
from migverify.sql.tokens import SqlProblem, tokens

Item = TypeVar("Item")

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SHARD = re.compile(r"[A-Za-z0-9_-]+")


_HIDDEN: Any = SkipJsonSchema


class Strict(BaseModel):
    """Base of all parts: frozen, no unknown keys, no conversion between types."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        hide_input_in_errors=True,
        regex_engine="python-re",
    )


def file_fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields that a file has, by its keys; those that are left out of the schema are none of them."""
    return {
        str(field.validation_alias or name): field
        for name, field in model.model_fields.items()
        if not any(type(mark) is _HIDDEN for mark in field.metadata)
    }


def _endpoint_url(text: str) -> str:
    parse_endpoint_url(text)
    return text


def _http_url(text: str) -> str:
    check_http_url(text)
    return text.rstrip("/")


def _checked(check: Any) -> BeforeValidator:
    return BeforeValidator(lambda value: check(value) if isinstance(value, str) else value, json_schema_input_type=str)


def _variable(text: str) -> str:
    if not NAME.fullmatch(text):
        # Most often the text is the secret itself, by mistake: it is not shown.
        raise ValueError("this is the name of an environment variable: letters, digits and _")
    return text


def _scalar(yes: str, no: str) -> BeforeValidator:
    """Return what makes text of a number, and of a boolean one of two words."""

    def text(value: object) -> object:
        if isinstance(value, bool):
            return yes if value else no
        return str(value) if isinstance(value, int | float) else value

    return BeforeValidator(text, json_schema_input_type=str | int | float | bool)


def _moment(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("this is an ISO date and time, for example 2026-01-31 or 2026-01-31T12:00:00+09:00") from None
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return moment.isoformat(sep=" ")


def _snapshot(value: object) -> object:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str) and not re.fullmatch(r"[0-9A-Za-z :.+-]+", text):
        raise ValueError("this is a date and time or a TSO, for example 2026-01-31 12:00:00")
    return text


def _zone_name(text: str) -> str:
    if text:
        try:
            find_zone(text)
        except ValueError:
            raise ValueError(f"this is no time zone that is known here. {ZONE_HINT}") from None
    return text


def _table_name(text: str) -> str:
    database, dot, table = text.partition(".")
    if not database or not dot or not table:
        raise ValueError("this is the name of a table with its database: database.table")
    return text


def check_condition(text: str) -> str:
    """Return a ``where`` condition without surrounding space: SQL that ends up in parentheses inside ours.

    A comment or an unclosed parenthesis would swallow the range condition that follows, and fewer rows would be
    compared than the report says.

    Raises
    ------
    ValueError
        it is empty, holds a comment or a ``;``, or leaves a quote or parenthesis open.
    """
    depth = 0
    try:
        for token in tokens(text):
            if token.kind in (TokenKind.COMMENT, TokenKind.HINT):
                raise ValueError("the condition holds a comment (--, # or /*); put the comment into the YAML")
            if token.text == ";":
                raise ValueError("the condition holds a ; outside quotes; it is one expression")
            depth += (token.text == "(") - (token.text == ")")
            if depth < 0:
                raise ValueError("the condition closes a parenthesis that it did not open")
    except SqlProblem as problem:
        words = problem.problem.removeprefix("the SQL ")
        raise ValueError(f"the condition {words if words != problem.problem else 'holds ' + words}") from None
    if depth:
        raise ValueError("the condition leaves a parenthesis open")
    if not text.strip():
        raise ValueError("the condition is empty")
    return text.strip()


def in_folder(text: str, info: ValidationInfo) -> str:
    """Return a path of the file; a relative one starts at the folder of the file, which the reader gives."""
    return str(folder_of(info) / text)


def folder_of(info: ValidationInfo) -> Path:
    """Return the folder of the file that is read; the current one for settings that come from no file."""
    path: Path = (info.context or {}).get("path", Path())
    return path.parent


def _pace(text: str) -> str:
    factor = re.fullmatch(r"x([0-9]+(?:\.[0-9]+)?)|([0-9]+(?:\.[0-9]+)?)/s", text)
    if text not in ("real", "fast") and (factor is None or float(factor[1] or factor[2]) == 0):
        raise ValueError("this is real, x2 (twice as fast), x0.5, 3000/s (that many calls a second) or fast")
    return text


Pace = Annotated[str, _checked(_pace)]
TableName = Annotated[str, _checked(_table_name)]
ZoneName = Annotated[str, _checked(_zone_name)]
Pattern = Annotated[
    TablePattern,
    GetPydanticSchema(lambda _, handler: core_schema.no_info_after_validator_function(parse_pattern, handler(str))),
]
Many = Annotated[tuple[Item, ...], Field(strict=False)]
"""A list of the file."""

PathInFolder = Annotated[str, Field(min_length=1), AfterValidator(in_folder)]
VariableName = Annotated[str, _checked(_variable)]
SessionValue = Annotated[str, _scalar("ON", "OFF")]
SparkValue = Annotated[str, _scalar("true", "false")]
Tolerance = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
EndpointUrl = Annotated[str, _checked(_endpoint_url)]
HttpUrl = Annotated[str, _checked(_http_url)]
StoreUrl = Annotated[str, _checked(check_store_url)]
Condition = Annotated[str, _checked(check_condition)]
Snapshot = Annotated[str, BeforeValidator(_snapshot, json_schema_input_type=str | int)]
Moment = Annotated[str, BeforeValidator(_moment, json_schema_input_type=str)]
