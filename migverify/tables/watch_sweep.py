"""Read tables in ranges beside the stream: slowly all of them in rounds, and at once one that may hold other rows.

A write on the target that did not come from replication touches no key of the stream. The sweep compares range after
range at a given number of rows a second. A statement that may give a name other rows (RENAME, TRUNCATE, DDL that no
binlog shows) makes a pair stale: a ``Comparison`` reads its whole table. Rows that differ become touched keys, and go
the way of all others: read again until they are equal, or twice the same after the target applied what was written.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from migverify.errors import ReadError
from migverify.model import KeyRange, KeyText, RowDiff
from migverify.tables.compare import compare_lists, same_checksum
from migverify.tables.diff import PairReader, list_diffs, locate
from migverify.tables.tasks import PairPlan
from migverify.tables.touched import Watched
from migverify.tables.watch_identity import Identities

MOST_ROWS = 32_768
AGAIN_SECONDS = 3.0
"""How long a table waits that could not be compared."""
MOST_DIFFERENT = 50_000
"""A comparison that found this many rows goes on when they are fewer: they are all in the ledger."""


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


@dataclass(slots=True)
class Stale:
    """A pair whose names may mean other rows than those compared: why, and what must be applied before it is read.

    ``waits`` are places by source number, ``changes`` counts what made it stale, ``due`` is the monotonic time of the
    next attempt, ``failure`` the last one's.
    """

    waits: dict[int, int] = field(default_factory=dict)
    changes: int = 0
    due: float = 0.0
    failure: str = ""


@dataclass(slots=True)
class Comparison:
    """One comparison of a whole table: how many changes it settles, the pair as planned for it, and how far it is."""

    number: int
    changes: int
    watched: Sequence[Watched]
    identities: Identities
    rows: int = 0
    different: int = 0
    reached: KeyText | None = None


def sweepable(pair: PairPlan) -> bool:
    """Whether a table can be read in ranges and its rows by key; the others are not swept."""
    return pair.readable and not pair.whole and bool(pair.sides[0].sql.range_key and pair.sides[0].sql.key)


def sweep_range(reader: PairReader, lower: KeyText | None, rate: int) -> Swept:
    """Compare the next range of a table, of about a second's rows.

    Raises
    ------
    ReadError
        a side did not answer.
    """
    if not sweepable(reader.pair):
        return _whole(reader)
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


def _whole(reader: PairReader) -> Swept:
    """Compare a table that cannot be cut, in one statement a side."""
    source, target = reader.checksums(KeyRange())
    if source.hashed < source.rows or target.hashed < target.rows:
        raise ReadError(f"{reader.pair.id}: a row is too long to hash at once")
    if same_checksum(source, target):
        return Swept(source.rows, (), None)
    diffs = tuple(locate(reader, KeyRange(), (source.rows, target.rows)))
    if diffs and not reader.key:
        raise ReadError(f"{reader.pair.id}: {len(diffs)} rows differ, and the table has no key to read them again by")
    return Swept(source.rows, diffs, None)
