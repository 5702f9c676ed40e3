"""Waivers: differences of a replay that somebody answers for, until a date.

A scope that a caller cannot check covers nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from migverify.config.allowances import Allowance, Allowances, Text, load_allowances
from migverify.config.fields import Many, Strict
from migverify.workload.catalogue.expected import Several
from migverify.workload.catalogue.load import load
from migverify.workload.catalogue.model import Aspect

TITLE = "migverify waivers"
_DIGEST = re.compile(r"[0-9a-f]{64}|[0-9a-f]{32}")


def _entry(text: str) -> str:
    if text and text not in {one.id for one in load().entries}:
        raise ValueError(f"the catalogue has no entry {text!r}; `migverify workload probe --list` shows all of them")
    return text


def _digest(text: str) -> str:
    if text and not _DIGEST.fullmatch(text.lower()):
        raise ValueError("64 (or 32) hexadecimal digits, as `migverify workload digest` prints them")
    return text.lower()


class WaiverScope(Strict):
    """What narrows a waiver; None and an empty list do not."""

    database: Text | None = Field(default=None, description="Only statements of this database.")
    user: Text | None = Field(default=None, description="Only statements of this user.")
    aspects: Several[Aspect] = Field(default=(), description="Only these aspects.")
    count: int | None = Field(default=None, ge=0, description="At most so many.")


class Waiver(Allowance):
    """One difference that somebody answers for: a catalogue entry, a statement, or both, which then must both fit."""

    entry: Annotated[str, AfterValidator(_entry)] = Field(default="", description="An id of the catalogue.")
    digest: Annotated[str, AfterValidator(_digest)] = Field(default="", description="A statement's digest.")
    scope: WaiverScope = Field(default=WaiverScope(), description="What narrows it.")

    @model_validator(mode="after")
    def _names_something(self) -> Waiver:
        if not self.entry and not self.digest:
            raise ValueError("a waiver names an entry of the catalogue, or a digest")
        return self

    def covers(
        self,
        digest: str,
        aspect: str,
        ids: Sequence[str],
        *,
        databases: Sequence[str] = (),
        users: Sequence[str] = (),
        count: int | None = None,
    ) -> bool:
        """Tell whether it speaks of an aspect of a statement; it does not look at its date.

        Parameters
        ----------
        digest
            The statement's.
        aspect
            Of the difference.
        ids
            The catalogue's entries that explain it.
        databases, users
            Where and by whom the statement was sent; all of them must be those of the scope, and none known is not.
        count
            How often the difference came; None is not known, and not covered by a waiver that limits it.
        """
        scope = self.scope
        if self.entry and self.entry not in ids:
            return False
        if self.digest and self.digest != digest.lower():
            return False
        if scope.aspects and aspect not in scope.aspects:
            return False
        if scope.database is not None and set(databases) != {scope.database}:
            return False
        if scope.user is not None and set(users) != {scope.user}:
            return False
        return scope.count is None or (count is not None and count <= scope.count)


class WaiversDocument(Strict):
    """A file of waivers."""

    waivers: Many[Waiver] = Field(description="Differences that somebody answers for.")


@dataclass(frozen=True, slots=True)
class Waivers(Allowances[Waiver]):
    """The waivers of a file: those that hold and those that have expired."""

    def notes(self) -> list[str]:
        """Return a line for each that has expired."""
        return [
            f"{one.where}: the waiver of {one.owner} for {one.entry or one.digest} expired on {one.expires}; "
            "it counts no more"
            for one in self.expired
        ]


def load_waivers(path: Path, *, today: date | None = None) -> Waivers:
    """Read a file of waivers.

    Parameters
    ----------
    today
        The day (UTC) that decides what has expired; None is today.

    Raises
    ------
    ConfigError
        the file cannot be read, or a waiver is not complete: no owner, no reason, no date, no such entry.
    """
    found = load_allowances(path, WaiversDocument, "waivers", Waiver, today)
    return Waivers(found.holding, found.expired)
