"""Differences that somebody answers for until a day: waivers of a replay, allowed drift of definitions.

An entry without an owner, a reason or a last day is refused. One that has expired counts no more, and is reported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, PrivateAttr

from migverify.config.fields import Strict
from migverify.config.problems import at, problem_at, read_document, refuse, validate

LONGEST_DAYS = 366
"""What is allowed for more than a year is a decision, and belongs into the application or the definitions."""

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def _day(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        if _DAY.fullmatch(value):
            return date.fromisoformat(value)
    except ValueError:
        pass
    raise ValueError("this takes a day, as 2026-01-31")


Text = Annotated[str, Field(min_length=1)]
Day = Annotated[date, BeforeValidator(_day, json_schema_input_type=str)]


class Allowance(Strict):
    """One entry. It holds up to and with the day ``expires`` (UTC)."""

    owner: Text = Field(description="Who answers for it.")
    reason: Text = Field(description="Why it is no obstacle.")
    expires: Day = Field(description="The last day (UTC) on which it holds, at most a year from now: 2026-01-31.")
    _where: str = PrivateAttr(default="")

    @property
    def where(self) -> str:
        """``file:line:column``; empty for an entry that comes from no file."""
        return self._where

    def holds(self, today: date) -> bool:
        """Whether it has not expired."""
        return today <= self.expires


Entry = TypeVar("Entry", bound=Allowance)


@dataclass(frozen=True, slots=True)
class Allowances(Generic[Entry]):
    """The entries of a file: those that hold and those that have expired."""

    holding: tuple[Entry, ...] = ()
    expired: tuple[Entry, ...] = ()


def load_allowances(
    path: Path, root: type[BaseModel], key: str, entries: type[Entry], today: date | None = None
) -> Allowances[Entry]:
    """Read a file of allowances.

    Parameters
    ----------
    root, key, entries
        The model of the file, its one key, and the model of the entries of that list.
    today
        The day (UTC) that decides what has expired; None is today.

    Raises
    ------
    ConfigError
        the file cannot be read, or an entry is not complete; the message names file, line and column.
    """
    _, document = read_document(path, f"file of {key}", f"A file with `{key}: []` allows nothing.", variables=False)
    if not isinstance(document.data, dict):
        refuse(path, [problem_at(path, document.place(()), f"the key {key} is missing", f"{key}: [] allows nothing.")])
    found: tuple[Entry, ...] = getattr(validate(path, document, root), key)
    day = datetime.now(UTC).date() if today is None else today
    late = [
        problem_at(path, document.place((key, number, "expires")), f"expires: at most {LONGEST_DAYS} days from now")
        for number, entry in enumerate(found)
        if isinstance(entry, entries) and (entry.expires - day).days > LONGEST_DAYS
    ]
    if late:
        refuse(path, late)
    for number, entry in enumerate(found):
        entry._where = at(path, document.place((key, number)))
    return Allowances(tuple(e for e in found if e.holds(day)), tuple(e for e in found if not e.holds(day)))
