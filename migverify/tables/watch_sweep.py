"""Re-read the tables slowly, round after round, beside the stream: finds what no change of the source explains.

A write on the target that did not come from replication touches no key of the stream. The sweep compares range after
range at a given number of rows a second; rows that differ become touched keys, and go the way of all others: pending
until the target has applied what was written before they were read, then read twice more.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from migverify.errors import ReadError
from migverify.model import KeyRange, KeyText, RowDiff
from migverify.tables.compare import compare_lists, same_checksum
from migverify.tables.diff import PairReader, list_diffs
from migverify.tables.tasks import PairPlan

MOST_ROWS = 32_768


@dataclass(frozen=True, slots=True)
class Swept:
    """One range: its rows on the source, the rows that differ, and where the next range begins (None: the end)."""

    rows: int
    diffs: tuple[RowDiff, ...]
    reached: KeyText | None


@dataclass(slots=True)
class Sweep:
    """Which range is due. ``rate`` is rows a second, 0 for no sweep; ``rounds`` counts whole tours over all tables."""

    rate: int
    numbers: Sequence[int]
    rounds: int = 0
    rows: int = 0
    _place: int = 0
    _reached: KeyText | None = None
    _due: float = field(default_factory=time.monotonic)

    def due(self) -> int | None:
        """Return the number of the pair whose next range is due; None when nothing is."""
        if not self.rate or not self.numbers or time.monotonic() < self._due:
            return None
        return self.numbers[self._place]

    def lower(self) -> KeyText | None:
        """Return where the next range begins."""
        return self._reached

    def took(self, swept: Swept) -> None:
        """Go on behind a range that was read."""
        self.rows += swept.rows
        self._due = time.monotonic() + max(swept.rows, 1) / self.rate
        self._reached = swept.reached
        if swept.reached is None:
            self._next()

    def failed(self) -> None:
        """Leave a table that could not be read for the next round."""
        self._due = time.monotonic() + 1.0
        self._next()

    def _next(self) -> None:
        self._reached = None
        self._place = (self._place + 1) % len(self.numbers)
        self.rounds += self._place == 0


def sweepable(pair: PairPlan) -> bool:
    """Whether a table can be read in ranges and its rows by key; the others are not swept.

    Nor are tables of several shards: which shard a row came from is not known, so nothing says what to wait for.
    """
    sql = pair.sides[0].sql
    return len(pair.sources) == 1 and pair.readable and not pair.whole and bool(sql.range_key and sql.key)


def sweep_range(reader: PairReader, lower: KeyText | None, rate: int) -> Swept:
    """Compare the next range of a table, of about a second's rows.

    Raises
    ------
    ReadError
        a side did not answer.
    """
    walker = reader.walker
    rest = KeyRange(lower)
    upper = walker.later(partial(walker.boundary, rest, min(MOST_ROWS, max(1, rate)))).result()
    key_range = KeyRange(lower, upper)
    source, target = reader.checksums(key_range)
    if source.hashed < source.rows or target.hashed < target.rows:
        raise ReadError(f"{reader.pair.id} {key_range}: a row is too long to hash at once")
    if same_checksum(source, target):
        return Swept(source.rows, (), upper)
    return Swept(source.rows, tuple(list_diffs(reader, compare_lists(*reader.lists(key_range)))), upper)
