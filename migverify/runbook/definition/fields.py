"""The base of all parts of a runbook, and the values of single keys: what text may stand there, and what it becomes.

A file is validated with a context, a journal and code without one: they give times in seconds. Times that cannot be
(negative, zero, not a number) pass here on purpose: ``lint`` refuses them with a rule of its own, together with
everything else that is wrong.
"""

from __future__ import annotations

import re
import shlex
from datetime import datetime
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticKnownError

from migverify.config.fields import Many, Strict, file_fields

Item = TypeVar("Item")


class RunbookPart(Strict):
    """Base of all parts of a runbook: a file has the aliases of its fields, code and journals their names."""

    model_config = ConfigDict(validate_by_name=True)

    @classmethod
    @cache
    def file_keys(cls) -> frozenset[str]:
        """Return the keys that a file may have here."""
        return frozenset(file_fields(cls))


def _not_empty(value: tuple[Item, ...]) -> tuple[Item, ...]:
    if not value:
        raise PydanticKnownError("too_short", {"field_type": "List", "min_length": 1, "actual_length": 0})
    return value


def _not_of_a_file(value: object, info: ValidationInfo) -> object:
    if info.context is not None:
        raise PydanticKnownError("extra_forbidden")
    return value


GATHERED: Any = SkipJsonSchema()  # type: ignore[type-arg]  # a class when it runs
"""Marks a field into which a model gathers what a file says elsewhere."""
DERIVED = (GATHERED, BeforeValidator(_not_of_a_file))
"""Marks a field that reading a file fills in; as a key of the file it is unknown."""

DURATION = re.compile(r"(-?)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")
_UNITS = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


_LONGEST = 100 * 365.25 * 86_400
"""Seconds. Beyond it no clock, calendar or waiting thread can count."""


def parse_duration(value: object) -> object:
    """``90s``, ``5m``, ``1h30m``, ``500ms`` -> seconds; ``T+110m`` counts from the start; ``0`` needs no unit.

    Raises ValueError: it is no duration.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    if not isinstance(value, str):
        if value == 0 or value != value or value in (float("inf"), float("-inf")):
            return float(value)
        raise ValueError("a duration needs a unit, for example 30s, 5m or 1h30m")
    text = value.strip().removeprefix("T+").replace(" ", "")
    found = DURATION.fullmatch(text)
    if text == "0":
        return 0.0
    if not found or not any(found.groups()[1:]):
        raise ValueError("this is a duration, for example 30s, 5m or 1h30m")
    seconds = sum(float(count) * unit for count, unit in zip(found.groups()[1:], _UNITS, strict=True) if count)
    if seconds > _LONGEST:
        raise ValueError("this is longer than 100 years")
    return -seconds if found[1] else seconds


def parse_moment(value: object) -> object:
    """Date and time with its offset -> Unix seconds; raises ValueError."""
    if not isinstance(value, str):
        return value
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("this is a date and time with its offset, for example 2026-02-02T02:00+09:00") from None
    if moment.tzinfo is None:
        raise ValueError("this has no offset, and people in two places would read two times; add +09:00 or Z")
    return moment.timestamp()


def _id(value: object) -> object:
    if isinstance(value, str) and not _ID.fullmatch(value) and "{{" not in value:
        raise ValueError("this holds letters, digits, _, - and ., and begins with a letter or digit")
    return value


def _reference(value: object) -> object:
    return value.removeprefix("step:") if isinstance(value, str) else value


def _one_or_many(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _seconds(value: object, info: ValidationInfo) -> object:
    return value if info.context is None and not isinstance(value, str) else parse_duration(value)


def _bound(value: object) -> object:
    """A bound of a check: a number, or a duration as seconds."""
    return parse_duration(value) if isinstance(value, str) else value


def _scalar(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _before(check: Any, schema: Any) -> BeforeValidator:
    return BeforeValidator(check, json_schema_input_type=schema)


def as_written(form: Any) -> BeforeValidator:
    """Return what names the form that a value has in a file, before names are filled in."""
    return BeforeValidator(lambda value: value, json_schema_input_type=form)


Duration = Annotated[float, _before(_seconds, str)]
Moment = Annotated[float, _before(parse_moment, str)]
Id = Annotated[str, _before(_id, str), Field(min_length=1, max_length=100)]
StepId = Annotated[str, _before(_reference, str), Field(min_length=1)]
Some = Annotated[Many[Item], AfterValidator(_not_empty), Field(json_schema_extra={"minItems": 1})]
"""A list of the file that is not empty; a bound on its length would be reported beside what is wrong with an item."""
Word = Annotated[Item, Field(strict=False)]
"""An enum, which a file names by its text."""
Names = Annotated[Many[Annotated[str, Field(min_length=1)]], _before(_one_or_many, str | list[str])]
Bound = Annotated[float, _before(_bound, float | str)]
Text = Annotated[str, Field(min_length=1)]
Scalar = Annotated[str, _before(_scalar, str | int | float | bool)]


class NamedPart(RunbookPart):
    """A part that a file has under its name."""

    name: Annotated[str, *DERIVED] = Field(default="", exclude=True)


Named = TypeVar("Named", bound=NamedPart)


def named(parts: dict[str, Named]) -> dict[str, Named]:
    """Return parts that know the names they are under."""
    return {name: one if one.name == name else one.model_copy(update={"name": name}) for name, one in parts.items()}


def with_arguments(part: type[RunbookPart], data: Any) -> Any:
    """Gather the keys of a file that are none of the part's own: they are arguments."""
    if not isinstance(data, dict):
        return data
    own = part.file_keys()
    gathered = {key: value for key, value in data.items() if key not in own}
    return {key: value for key, value in data.items() if key in own} | {"arguments": gathered}


def split_run(data: Any) -> Any:
    """``run: "a b"`` -> ``argv: [a, b]``: a command line without a shell."""
    if not isinstance(data, dict) or not isinstance(data.get("run"), str):
        return data
    if "argv" in data:
        raise ValueError("give `run` or `argv`, one of them")
    text = data["run"]
    plain = text.isascii() and text.isprintable() and not set(text) & set("'\"\\")
    try:
        words = text.split() if plain else shlex.split(text)  # the same words, in a thirtieth of the time
    except ValueError:
        raise ValueError("`run` has a quote that does not end") from None
    return {key: value for key, value in data.items() if key != "run"} | {"argv": words}
