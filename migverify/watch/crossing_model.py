"""What the change streams of both sides show together: the kinds of findings, their words, counts and ranges of ids."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from migverify.watch.key_changes import KeyChange

MOST_RANGES = 4_096
FEW_UNEQUAL = 20
"""Changes of a pair that may be the feed's in another text, and are found all the same."""


class CrossingKind(StrEnum):
    """What two streams show together.

    ``STALE`` says what the row is, so reading it decides: what foreign keys delete on the following side is not in its
    stream. The others say what was done, and hold where the rows are equal again.
    """

    WRITTEN = "written"  # a client wrote on the following side
    COLLISION = "collision"  # and the leading side changed the key before the feed had brought that: one write is lost
    SAME_ID = "same id"  # a collision of two inserts: both sides gave out the id
    STALE = "stale"  # the following side had an earlier image last, and the feed sends the newer one no more
    CIRCLES = "circles"  # images come back on both sides: what the feed brings is carried back
    ID_RANGES = "id ranges"  # both sides insert ids of one range
    SAME_WORKER = "same worker"  # both sides insert snowflake ids of one worker


@dataclass(frozen=True, slots=True)
class CrossingFinding:
    """One finding. ``change`` is that of the following side; ``rounds`` and ``ids`` (first, last) are of their kinds.

    ``ids`` of ``SAME_WORKER`` are the worker, twice.
    ``change`` of ``ID_RANGES`` is the insert, of either side, with which the ranges met.
    """

    kind: CrossingKind
    change: KeyChange
    rounds: int = 0
    ids: tuple[int, int] | None = None


def sentence(finding: CrossingFinding, leading: str, following: str, place: str) -> str:
    """Return a finding in words, with the names of both endpoints; ``place`` is the position on the following one."""
    change = finding.change
    key = f"key {', '.join('NULL' if part is None else part for part in change.key)}"
    if finding.kind is CrossingKind.ID_RANGES:
        first, last = finding.ids or (0, 0)
        return f"both sides insert ids from {first} to {last}: {key} at {place}"
    if finding.kind is CrossingKind.SAME_WORKER:
        worker = (finding.ids or (0, 0))[0]
        return f"both sides insert ids of worker {worker}, which may give out the same id: {key} at {place}"
    deed = "deleted" if change.image is None else "inserted" if change.inserted else "written"
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(change.time))
    at = f"{key} was {deed} on {following} at {place} ({moment} UTC)"
    return {
        CrossingKind.WRITTEN: f"{at}, and {leading} has no such change: another than the feed writes on"
        f" {following}, or the feed alters values",
        CrossingKind.COLLISION: f"{at}, and {leading} changed it meanwhile: one of the two writes is lost,"
        " or the feed alters values",
        CrossingKind.SAME_ID: f"{at}, and {leading} inserted another row with this id: one of the two is"
        " lost, or the feed alters values",
        CrossingKind.STALE: f"{at} with an earlier image of {leading}, and the feed sends the newer one no more",
        CrossingKind.CIRCLES: f"{at} again, {finding.rounds} rounds without a new image: it goes in circles",
    }[finding.kind]


@dataclass(slots=True)
class CrossingCounts:
    """What was matched.

    ``explained`` following changes are the feed's, ``repeated`` of them not for the first time. ``unchanged`` ones
    changed nothing, or their writer is the feed. ``unjudged`` ones are explained by nothing that is remembered.
    ``is_exact``: all was judged and remembered; else ``findings`` are lower bounds. ``returned`` counts images that
    came back on both sides: an application that sets values to and fro does that too.
    """

    leading: int = 0
    following: int = 0
    explained: int = 0
    repeated: int = 0
    unchanged: int = 0
    unjudged: int = 0
    returned: int = 0
    findings: Counter[CrossingKind] = field(default_factory=Counter)
    is_exact: bool = True


@dataclass(slots=True)
class TextProof:
    """Whether the images of both sides have one text, per pair: with a wrong time zone no image is equal.

    ``equal`` counts explained images, ``different`` changes that may be an image of the leading side in another text.
    ``unequal`` are pairs in which those are more.
    """

    equal: Counter[int] = field(default_factory=Counter)
    different: Counter[int] = field(default_factory=Counter)
    unequal: set[int] = field(default_factory=set)

    def differ(self, pair: int) -> bool:
        """Count a change that may be another text; returns whether the pair cannot be judged."""
        self.different[pair] += 1
        if self.different[pair] > max(FEW_UNEQUAL, self.equal[pair]):
            self.unequal.add(pair)
        return pair in self.unequal

    def are_proved(self, pair: int) -> bool:
        """Whether an image of the pair was equal on both sides."""
        return self.equal[pair] > 0


@dataclass(slots=True)
class IdRanges:
    """The ranges of ids that each side gave out itself, per pair and generator; see ``Crossing``."""

    generators: Mapping[int, Callable[[int], int]]
    _ranges: dict[tuple[int, int], dict[bool, tuple[int, int]]] = field(default_factory=dict)
    _met: set[tuple[int, int]] = field(default_factory=set)

    def add(self, change: KeyChange, *, is_leading: bool) -> tuple[int, int] | None:
        """Take an inserted id; return first and last id that both ranges have when they meet for the first time."""
        generator = self.generators.get(change.pair)
        if generator is None or len(change.key) != 1 or change.key[0] is None:
            return None
        number = int(change.key[0])
        name = (change.pair, generator(number))
        if name not in self._ranges and len(self._ranges) >= MOST_RANGES:
            return None
        sides = self._ranges.setdefault(name, {})
        first, last = sides.get(is_leading, (number, number))
        sides[is_leading] = min(first, number), max(last, number)
        if name in self._met or (both := _overlap(sides)) is None:
            return None
        self._met.add(name)
        return both


def _overlap(sides: Mapping[bool, tuple[int, int]]) -> tuple[int, int] | None:
    if len(sides) < 2:
        return None
    first, last = max(side[0] for side in sides.values()), min(side[1] for side in sides.values())
    return (first, last) if first <= last else None
