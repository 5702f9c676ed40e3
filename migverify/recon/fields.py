"""Values of single keys of a rules file: what is allowed, and what it becomes. Decimals never pass a float."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, GetPydanticSchema, PrivateAttr
from pydantic_core import core_schema

from migverify.config.fields import SHARD, Many, Strict
from migverify.recon.model import RulePlace, Severity

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d{1,6})?)s)?(?:(\d+)ms)?")
_UNITS = (Decimal(86_400), Decimal(3_600), Decimal(60), Decimal(1), Decimal("0.001"))
_DECIMAL = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
_MEASURE = re.compile(r"(count|sum|min|max|checksum)\s*\(\s*(.*?)\s*\)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def parse_duration(value: object) -> object:
    """``90s``, ``5m``, ``1h30m``, ``1d``, ``500ms`` -> seconds; ``0`` needs no unit."""
    if value == 0 and not isinstance(value, bool):
        return 0.0
    if isinstance(value, int | Decimal) and not isinstance(value, bool):  # a float is no value of a rules file
        raise ValueError("a duration needs a unit, for example 30s, 5m, 1h or 1d")
    if not isinstance(value, str):
        return value
    found = _DURATION.fullmatch(value.strip().replace(" ", ""))
    if value.strip() == "0":
        return 0.0
    if not found or not any(found.groups()):
        raise ValueError("this is a duration, for example 30s, 5m, 1h30m or 1d")
    parts = zip(found.groups(), _UNITS, strict=True)
    return float(sum((Decimal(count) * unit for count, unit in parts if count), Decimal(0)))


def duration_text(seconds: float) -> str:
    """Seconds as rules write them: ``1h30m``, ``0.5s``, ``0s``."""
    rest, parts = Decimal(str(seconds)), []
    for unit, size in zip("dhm", _UNITS, strict=False):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count:.0f}{unit}")
    if rest or not parts:
        parts.append(f"{rest.normalize():f}s")
    return "".join(parts)


def _exact(value: object) -> object:
    if isinstance(value, bool | float):
        raise ValueError("this takes an exact decimal, for example 0.01")
    if isinstance(value, int):
        value = Decimal(value)
    if isinstance(value, str):
        if not _DECIMAL.fullmatch(value.strip()):
            raise ValueError("this takes an exact decimal that is not negative, for example 0.01")
        value = Decimal(value.strip())
    if isinstance(value, Decimal) and not (value.is_finite() and value >= 0):
        raise ValueError("this takes an exact decimal that is not negative, for example 0.01")
    return value


def scalar_text(value: object) -> object:
    """Text of a plain value as it was written: ``7``, ``0.10``, ``true``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value) if isinstance(value, int) else value


def _names(value: object) -> object:
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        if len(set(names)) < len(names) or "" in names:
            raise ValueError("a column is empty or named twice")
        if not names:
            raise ValueError("this must not be empty")
    return names


@dataclass(frozen=True, slots=True)
class Measure:
    """One aggregate of a group: ``function`` is count, sum, min, max or checksum, over a column (None for count)."""

    function: str
    column: str | None

    def __str__(self) -> str:
        return f"{self.function}({self.column or '*'})"


def _measure(value: str) -> Measure:
    text = value.strip()
    if text in ("count", "count(*)", "count()"):
        return Measure("count", None)
    found = _MEASURE.fullmatch(text)
    columns = [column.strip() for column in found[2].split(",")] if found else []
    many = found is not None and found[1] == "checksum"
    if found is None or not all(columns) or (len(columns) > 1 and not many) or "*" in columns:
        raise ValueError("a measure is count, count(x), sum(x), min(x), max(x) or checksum(a, b)")
    return Measure(found[1], ",".join(columns))


def _measure_name(name: str) -> str:
    """Spell a measure as ``str`` of a ``Measure`` does; the name of a column stays."""
    return re.sub(r"\s+", "", name) if "(" in name else "count(*)" if name == "count" else name


def _name(value: object) -> object:
    if isinstance(value, str) and not _NAME.fullmatch(value):
        raise ValueError("a name holds letters, digits, _, - and ., and begins with a letter or digit")
    return value


def _shards(value: object) -> object:
    texts = [scalar_text(one) for one in value] if isinstance(value, list) else value
    if isinstance(texts, list):
        if any(isinstance(one, str) and not SHARD.fullmatch(one) for one in texts):
            raise ValueError("names of shards hold letters, digits, _ and -")
        if len(set(map(str, texts))) < len(texts):
            raise ValueError("a shard is named twice")
    return texts


def nearest(name: str, known: Collection[str], noun: str) -> str:
    """Advice for an unknown name: the one that was meant, or what there is."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    if close:
        return f"Did you mean {close[0]}?"
    listed = ", ".join(sorted(known)[:12])
    return f"Known {noun}: {listed}." if listed else f"There are no {noun}."


def split_table(text: str) -> tuple[str, str]:
    """``database.table`` -> both names; backticks surround a name with a dot.

    Raises ValueError: it is not two names.
    """
    found = re.fullmatch(r"(`(?:[^`]|``)+`|[^`.\s]+)\.(`(?:[^`]|``)+`|[^`.\s]+)", text.strip())
    if found is None:
        raise ValueError("this is the name of a table with its database: database.table")
    first, second = (part[1:-1].replace("``", "`") if part.startswith("`") else part for part in found.groups())
    return first, second


def _table(value: object) -> object:
    if isinstance(value, str):
        split_table(value)
    return value


def parse_moment(text: str) -> datetime:
    """ISO date and time -> naive UTC; a text without an offset is UTC.

    Raises ValueError: it is none.
    """
    try:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise ValueError("this is an ISO date and time, for example 2026-01-31 or 2026-01-31T12:00:00+09:00") from None


def _before(check: Any, schema: Any) -> BeforeValidator:
    return BeforeValidator(check, json_schema_input_type=schema)


def _after(make: Any, schema: Any) -> GetPydanticSchema:
    """Read a value as ``schema``, then make what it means."""
    return GetPydanticSchema(lambda _, handler: core_schema.no_info_after_validator_function(make, handler(schema)))


class PlacedPart(Strict):
    """A part of a rules file that knows where it is."""

    _place: RulePlace = PrivateAttr(default=RulePlace("", 0))

    @property
    def place(self) -> RulePlace:
        """Where the part is in its file."""
        return self._place

    def at(self, place: RulePlace, **fields: Any) -> Self:
        """Return the part with its place, and with other values of some fields."""
        part = self.model_copy(update=fields)
        part._place = place
        return part


Duration = Annotated[float, _before(parse_duration, str)]
Exact = Annotated[Decimal, _before(_exact, str | float)]
Share = Annotated[Decimal, _before(_exact, str | float), Field(le=1)]
ScalarText = Annotated[str, _before(scalar_text, str | int | float | bool)]
Names = Annotated[tuple[str, ...], _before(_names, str | list[str]), Field(strict=False)]
Measures = Many[Annotated[Measure, _after(_measure, str)]]
Tolerances = dict[Annotated[str, AfterValidator(_measure_name)], Exact]
RuleName = Annotated[str, _before(_name, str), Field(max_length=100)]
Shards = Annotated[
    tuple[str, ...],
    Field(min_length=1, strict=False),
    _before(_shards, Annotated[list[str | int], Field(min_length=1)]),
]
Table = Annotated[str, _before(_table, str)]
Moment = Annotated[datetime, _before(lambda value: parse_moment(value) if isinstance(value, str) else value, str)]
SeverityName = Annotated[Severity, _after(Severity, Literal["critical", "major", "warning"])]


class Money(Strict):
    """Which column is money."""

    column: str = Field(min_length=1, description="Column of the amount.")
    currency: str = Field(min_length=1, description="Column of its currency, or a constant in quotes: `\"'JPY'\"`.")

    @property
    def constant(self) -> str | None:
        """The currency where it is the same for all rows."""
        quoted = len(self.currency) > 1 and self.currency[0] == self.currency[-1] == "'"
        return self.currency[1:-1] if quoted else None


class WindowRule(Strict):
    """How time is cut."""

    every: Duration = Field(description="Width of a window: whole seconds, for example `5m`, `1h`, `1d`.")
    start: Moment | None = Field(default=None, description="Where the first window begins; UTC unless it says so.")
    immutable: Duration | None = Field(
        default=None, description="A window that matched is not read again when its end is older than this."
    )


WindowPart = Annotated[
    WindowRule,
    BeforeValidator(
        lambda value: {"every": "0" if value == "none" else value} if isinstance(value, str) else value,
        json_schema_input_type=str | WindowRule,
    ),
]
