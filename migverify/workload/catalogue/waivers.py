"""Waivers: differences of a replay that somebody answers for, until a date.

A waiver without an owner, a reason or an end is refused; one that has expired is left out, and said so. A scope that a
caller cannot check covers nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from migverify.errors import ConfigError
from migverify.workload.catalogue.load import load
from migverify.workload.catalogue.model import ASPECTS
from migverify.workload.catalogue.reading import Node, read_file

_DIGEST = re.compile(r"[0-9a-f]{64}|[0-9a-f]{32}")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
LONGEST_DAYS = 366
"""A waiver of more than a year is a decision, and belongs into the application."""


@dataclass(frozen=True, slots=True)
class Waiver:
    """One difference that somebody answers for.

    ``entry`` is a catalogue id, ``digest`` that of a statement; one of them, or both, which then must both fit.
    ``aspects`` empty means all of them. ``database``, ``user`` and ``count`` narrow it; None does not. It holds up to
    and with the day ``expires`` (UTC). ``where`` is its file and line.
    """

    owner: str
    reason: str
    expires: date
    entry: str = ""
    digest: str = ""
    aspects: frozenset[str] = frozenset()
    database: str | None = None
    user: str | None = None
    count: int | None = None
    where: str = ""

    def holds(self, today: date) -> bool:
        """Tell whether it has not expired."""
        return today <= self.expires

    def covers(
        self,
        digest: str,
        text: str,
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
        digest, text
            The statement's digest and its text.
        aspect
            Of the difference.
        ids
            The catalogue's entries that explain it.
        databases, users
            Where and by whom the statement was sent; all of them must be those of the scope, and none known is not.
        count
            How often the difference came; None is not known, and not covered by a waiver that limits it.
        """
        del text
        if self.entry and self.entry not in ids:
            return False
        if self.digest and self.digest != digest.lower():
            return False
        if self.aspects and aspect not in self.aspects:
            return False
        if self.database is not None and set(databases) != {self.database}:
            return False
        if self.user is not None and set(users) != {self.user}:
            return False
        return self.count is None or (count is not None and count <= self.count)


@dataclass(frozen=True, slots=True)
class Waivers:
    """What a file holds: those that hold, those that have expired, and what a reader must be told of the latter."""

    holding: tuple[Waiver, ...]
    expired: tuple[Waiver, ...]

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
        the file cannot be read, or a waiver is not whole: no owner, no reason, no date, no such entry; one error names
        file and line.
    """
    root = read_file(path)
    root.only("waivers")
    if not root.has("waivers"):
        raise ConfigError(f"{root.where}: the key waivers is missing", hint="waivers: [] is a file without any.")
    day = datetime.now(UTC).date() if today is None else today
    found = [_waiver(node, day) for node in root.sequence("waivers")]
    return Waivers(tuple(one for one in found if one.holds(day)), tuple(one for one in found if not one.holds(day)))


def _waiver(node: Node, today: date) -> Waiver:
    node.only("entry", "digest", "owner", "reason", "expires", "scope")
    entry, digest = node.text("entry", ""), node.text("digest", "").lower()
    if not entry and not digest:
        node.refuse("a waiver names an entry of the catalogue, or a digest")
    if entry and entry not in {one.id for one in load().entries}:
        node.refuse(f"the catalogue has no entry {entry!r}", "`migverify workload probe --list` shows all of them.")
    if digest and not _DIGEST.fullmatch(digest):
        node.refuse("digest: 64 (or 32) hexadecimal digits, as `migverify workload digest` prints them")
    scope = node.child("scope")
    aspects: tuple[str, ...] = ()
    database = user = count = None
    if scope is not None:
        scope.only("database", "user", "aspects", "count")
        aspects = scope.texts("aspects")
        for aspect in aspects:
            if aspect not in ASPECTS:
                scope.refuse(f"aspects: {aspect!r} is none of {', '.join(ASPECTS)}")
        database = scope.text("database") if scope.has("database") else None
        user = scope.text("user") if scope.has("user") else None
        count = scope.number("count")
    return Waiver(
        owner=node.text("owner"), reason=node.text("reason"), expires=_expires(node, today), entry=entry,
        digest=digest, aspects=frozenset(aspects), database=database, user=user, count=count, where=node.where,
    )  # fmt: skip


def _expires(node: Node, today: date) -> date:
    text = node.text("expires")
    place = node.child("expires") or node
    try:
        day = date.fromisoformat(text) if _DATE.fullmatch(text) else None
    except ValueError:
        day = None
    if day is None:
        place.refuse("expires: this takes a day, as 2026-01-31")
    if (day - today).days > LONGEST_DAYS:
        place.refuse(f"expires: at most {LONGEST_DAYS} days from now", "Who still needs it then, writes it again.")
    return day
