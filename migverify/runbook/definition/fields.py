"""Values of single keys of a runbook: what text may stand there, and what it becomes.

Times that cannot be (negative, zero, not a number) pass here on purpose: ``lint`` refuses them with a rule of its own,
together with everything else that is wrong.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

DURATION = re.compile(r"(-?)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")
_UNITS = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


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


def _bound(value: object) -> object:
    """A bound of a check: a number, or a duration as seconds."""
    return parse_duration(value) if isinstance(value, str) else value


def _scalar(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _before(check: Any, schema: Any) -> BeforeValidator:
    return BeforeValidator(check, json_schema_input_type=schema)


Duration = Annotated[float, _before(parse_duration, str)]
Moment = Annotated[float, _before(parse_moment, str)]
Id = Annotated[str, _before(_id, str), Field(min_length=1, max_length=100)]
StepId = Annotated[str, _before(_reference, str), Field(min_length=1)]
Names = Annotated[list[Annotated[str, Field(min_length=1)]], _before(_one_or_many, str | list[str])]
Bound = Annotated[float, _before(_bound, float | str)]
Text = Annotated[str, Field(min_length=1)]
Scalar = Annotated[str, _before(_scalar, str | int | float | bool)]
