"""Allowed drift: differences of definitions that somebody answers for, until a day.

allowed:
  - table: 'app.*'
    path: 'columns.*.comment'
    class: cosmetic
    owner: ana
    reason: comments are translated after the cutover
    expires: 2026-12-31
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from pydantic import Field

from migverify.config.allowances import Allowance, Allowances, Text, load_allowances
from migverify.config.fields import Many, Pattern, Strict
from migverify.guards.schema_model import RANK, DefinitionComparison, DefinitionDifference, split_name
from migverify.model import SchemaClass


class AllowedDifference(Allowance):
    """One entry; ``level`` is the gravest class that it covers, ``path`` takes ``*`` for any text."""

    table: Pattern = Field(
        description="The tables, as database.table with * or a /regular expression/; names of the source."
    )
    path: Text = Field(description="The place of the difference, with * for any text: columns.*.comment.")
    level: Annotated[SchemaClass, Field(strict=False)] = Field(
        validation_alias="class", description="The gravest class that is allowed."
    )

    def covers(self, table: str, found: DefinitionDifference) -> bool:
        """Whether it speaks of a difference; the day is not considered."""
        return (
            self.table.matches(*split_name(table))
            and fnmatchcase(found.path, self.path)
            and RANK[found.level] <= RANK[self.level]
        )

    def __str__(self) -> str:
        return f"{self.owner}: {self.reason} (until {self.expires})"


class DriftDocument(Strict):
    """A file of allowed drift."""

    allowed: Many[AllowedDifference] = Field(description="Differences of definitions that somebody answers for.")


TITLE = "Allowed drift of definitions"


@dataclass(frozen=True, slots=True)
class Drift(Allowances[AllowedDifference]):
    """The entries of a file: those that hold and those that have expired."""

    def apply(self, comparisons: Sequence[DefinitionComparison]) -> list[DefinitionComparison]:
        """Mark every difference that an entry covers with its owner, reason and day."""
        return [replace(c, differences=tuple(self._marked(c.table, d) for d in c.differences)) for c in comparisons]

    def _marked(self, table: str, found: DefinitionDifference) -> DefinitionDifference:
        entry = next((one for one in self.holding if one.covers(table, found)), None)
        if entry is not None:
            return replace(found, allowed=f"{entry} [{entry.where}]")
        late = next((one for one in self.expired if one.covers(table, found)), None)
        if late is None:
            return found
        return replace(found, message=f"{found.message} (allowed by {late.owner} until {late.expires}, {late.where})")

    def unused(self, comparisons: Sequence[DefinitionComparison]) -> list[AllowedDifference]:
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
        the file cannot be read, or an entry is not complete; the message names file and line.
    """
    found = load_allowances(path, DriftDocument, "allowed", AllowedDifference, today)
    return Drift(found.holding, found.expired)
