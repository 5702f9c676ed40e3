"""Allowed drift: differences of definitions that somebody answers for, until a day.

    allowed:
      - table: 'app.*'
        path: 'columns.*.comment'
        class: cosmetic
        owner: ana
        reason: comments are translated after the cutover
        expires: 2026-12-31

An entry without owner, reason or day is refused. One that has expired is left out, and said so each time. ``class`` is
the gravest class that it covers; ``path`` takes ``*`` for any text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NoReturn

from migverify.config import TablePattern, parse_pattern
from migverify.config.yaml_text import Steps, YamlDocument, YamlProblem, read_yaml
from migverify.errors import ConfigError
from migverify.guards.schema_model import RANK, Difference, TableComparison, split_name
from migverify.model import SchemaClass

LONGEST_DAYS = 366
"""What is allowed for more than a year is no drift, and belongs into both definitions."""
FIELDS = ("table", "path", "class", "owner", "reason", "expires")


@dataclass(frozen=True, slots=True)
class Allowed:
    """One entry; it holds up to and with the day ``expires`` (UTC). ``where`` is its file and line."""

    table: TablePattern
    path: str
    level: SchemaClass
    owner: str
    reason: str
    expires: date
    where: str

    def covers(self, table: str, found: Difference) -> bool:
        """Whether it speaks of a difference; it does not look at its day."""
        return (
            self.table.matches(*split_name(table))
            and fnmatchcase(found.path, self.path)
            and RANK[found.level] <= RANK[self.level]
        )

    def __str__(self) -> str:
        return f"{self.owner}: {self.reason} (until {self.expires})"


@dataclass(frozen=True, slots=True)
class Drift:
    """The entries of a file: those that hold and those that have expired."""

    holding: tuple[Allowed, ...] = ()
    expired: tuple[Allowed, ...] = ()

    def apply(self, comparisons: Sequence[TableComparison]) -> list[TableComparison]:
        """Mark every difference that an entry covers with its owner, reason and day."""
        return [replace(c, differences=tuple(self._marked(c.table, d) for d in c.differences)) for c in comparisons]

    def _marked(self, table: str, found: Difference) -> Difference:
        entry = next((one for one in self.holding if one.covers(table, found)), None)
        if entry is not None:
            return replace(found, allowed=f"{entry} [{entry.where}]")
        late = next((one for one in self.expired if one.covers(table, found)), None)
        if late is None:
            return found
        return replace(found, message=f"{found.message} (allowed by {late.owner} until {late.expires}, {late.where})")

    def unused(self, comparisons: Sequence[TableComparison]) -> list[Allowed]:
        """Return entries that cover nothing: what they allowed is gone, or they are misspelled."""
        return [
            one for one in self.holding
            if not any(one.covers(c.table, d) for c in comparisons for d in c.differences)
        ]  # fmt: skip


def load_drift(path: Path, *, today: date | None = None) -> Drift:
    """Read a file of allowed drift.

    Parameters
    ----------
    today
        The day (UTC) that decides what has expired; None is today.

    Raises
    ------
    ConfigError
        the file cannot be read, or an entry is not whole; the message names file and line.
    """
    try:
        document = read_yaml(path.read_text(encoding="utf-8"), variables=False)
    except YamlProblem as problem:
        line = f":{problem.place.line}" if problem.place else ""
        raise ConfigError(f"{path}{line}: {problem.problem}", hint=problem.hint) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="Name a file of allowed drift.") from error
    reader = _Reader(path, document)
    day = datetime.now(UTC).date() if today is None else today
    found = [reader.entry(number, day) for number in range(reader.count())]
    return Drift(tuple(e for e in found if day <= e.expires), tuple(e for e in found if day > e.expires))


@dataclass(frozen=True, slots=True)
class _Reader:
    path: Path
    document: YamlDocument

    def refuse(self, steps: Steps, text: str, hint: str = "") -> NoReturn:
        place = self.document.place(steps)
        raise ConfigError(f"{self.path}:{place.line if place else 1}: {text}", hint=hint)

    def count(self) -> int:
        data = self.document.data
        if not isinstance(data, dict) or set(data) != {"allowed"} or not isinstance(data["allowed"], list):
            self.refuse((), "a file of allowed drift holds `allowed`, a list", "allowed: [] allows nothing.")
        return len(data["allowed"])

    def entry(self, number: int, today: date) -> Allowed:
        steps: Steps = ("allowed", number)
        data = self.document.data["allowed"][number]  # type: ignore[index]  # count() looked
        if not isinstance(data, dict):
            self.refuse(steps, "an entry takes " + ", ".join(FIELDS))
        for key in data:
            if key not in FIELDS:
                self.refuse((*steps, key), f"unknown key {key}", f"Known keys: {', '.join(FIELDS)}.")
        texts = {}
        for key in FIELDS:
            value = data.get(key)
            if not isinstance(value, str) or not value.strip():
                self.refuse((*steps, key) if key in data else steps, f"an entry of allowed drift needs {key}, a text",
                            "What nobody answers for is not allowed.")  # fmt: skip
            texts[key] = value.strip()
        place = self.document.place(steps)
        return Allowed(
            self._pattern(steps, texts["table"]), texts["path"], self._level(steps, texts["class"]), texts["owner"],
            texts["reason"], self._day(steps, texts["expires"], today), f"{self.path}:{place.line if place else 1}",
        )  # fmt: skip

    def _pattern(self, steps: Steps, text: str) -> TablePattern:
        try:
            return parse_pattern(text)
        except (ConfigError, ValueError) as error:
            self.refuse((*steps, "table"), f"table: {error}")

    def _level(self, steps: Steps, text: str) -> SchemaClass:
        try:
            return SchemaClass(text)
        except ValueError:
            self.refuse((*steps, "class"), f"class: one of {', '.join(c.value for c in SchemaClass)}")

    def _day(self, steps: Steps, text: str, today: date) -> date:
        try:
            day = date.fromisoformat(text)
        except ValueError:
            self.refuse((*steps, "expires"), "expires: this takes a day, as 2026-01-31")
        if (day - today).days > LONGEST_DAYS:
            self.refuse((*steps, "expires"), f"expires: at most {LONGEST_DAYS} days from now")
        return day
