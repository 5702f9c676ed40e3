"""Counts what a pipeline carries: rows per table and partition, sizes of transactions, what is not applied yet.

Memory is bounded: the rows of a transaction may be spread over partitions, so ``OPEN`` transactions are kept open;
beyond that the one begun longest ago is counted as it is, and the sizes are no longer exact.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from migverify.changes.carriers.base import Carried, CarriedItem, Watermark
from migverify.changes.carriers.sequence import Sequence
from migverify.changes.model import Commit, Item, Op, Rows

OPEN = 100_000
SIZES = (1, 10, 100, 1000)
"""Upper bounds of the classes of transaction sizes, in rows; one class more is open above."""


@dataclass(frozen=True, slots=True)
class TransactionSizes:
    """How many rows transactions write. ``classes`` counts transactions by ``SIZES``; ``exact`` as in the module."""

    count: int
    rows: int
    classes: tuple[int, ...]
    largest: int
    exact: bool = True

    @property
    def single_row_share(self) -> float | None:
        """The share of rows written by transactions of one row; None when there were no rows."""
        return self.classes[0] / self.rows if self.rows else None


@dataclass(frozen=True, slots=True)
class PartitionTraffic:
    """One partition: what was read of it, and how far the applier is.

    ``applied`` is the next offset that the applier has committed, None when that is not known; ``pending`` the offsets
    from there to ``end``. Times are Unix times of commits on the source, 0.0 when no change was seen.
    """

    topic: str
    partition: int
    rows: int
    first_time: float
    last_time: float
    end: int
    applied: int | None
    pending: int | None
    oldest_pending: float | None

    @property
    def rows_per_second(self) -> float | None:
        """Rows by the time of their commits; None when they span no time."""
        seconds = self.last_time - self.first_time
        return self.rows / seconds if seconds > 0 else None


@dataclass(frozen=True, slots=True)
class SourceCounts:
    """What the source wrote: rows per table, and the sizes of its transactions."""

    tables: Mapping[str, int]
    sizes: TransactionSizes


@dataclass(frozen=True, slots=True)
class CarriedCounts:
    """What the carrier holds. Rows count once; ``applied`` is None where the applier's progress is not known.

    ``longest_transit`` is the most seconds from a commit to its message, None where messages have no time.
    """

    tables: Mapping[str, int]
    applied: Mapping[str, int] | None
    sizes: TransactionSizes
    partitions: tuple[PartitionTraffic, ...]
    longest_transit: float | None
    last_time: float


class Sizes:
    """Collects transaction sizes from rows that come one by one, those of a transaction not always together."""

    def __init__(self, limit: int = OPEN) -> None:
        self._limit = limit
        self._open: OrderedDict[str, int] = OrderedDict()
        self._classes = [0] * (len(SIZES) + 1)
        self._count = self._rows = self._largest = 0
        self._exact = True

    def row(self, transaction: str, rows: int = 1) -> None:
        """Count rows of a transaction."""
        self._open[transaction] = self._open.get(transaction, 0) + rows
        if len(self._open) > self._limit:
            self._exact = False
            self._close(self._open.popitem(last=False)[1])

    def end(self, transaction: str) -> None:
        """Count a transaction as complete."""
        self._close(self._open.pop(transaction, 0))

    def result(self) -> TransactionSizes:
        """Return the sizes; every transaction that is open counts as complete."""
        while self._open:
            self._close(self._open.popitem(last=False)[1])
        return TransactionSizes(self._count, self._rows, tuple(self._classes), self._largest, self._exact)

    def _close(self, rows: int) -> None:
        if not rows:
            return
        place = next((at for at, most in enumerate(SIZES) if rows <= most), len(SIZES))
        self._classes[place] += 1
        self._count += 1
        self._rows += rows
        self._largest = max(self._largest, rows)


def count_source(items: Iterable[Item], count_rows: Callable[[Rows], int]) -> SourceCounts:
    """Count what a binlog holds; ``count_rows`` tells the rows of one event (see ``decode.count_rows``).

    Rows of a transaction without its commit do not count.
    """
    tables: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    sizes = Sizes()
    for item in items:
        if isinstance(item, Rows):
            waiting[item.table.name] += count_rows(item)
        elif isinstance(item, Commit):
            sizes.row("", waiting.total())
            sizes.end("")
            tables.update(waiting)
            waiting.clear()
    return SourceCounts(dict(tables), sizes.result())


@dataclass(slots=True)
class _Partition:
    rows: int = 0
    first_time: float = 0.0
    last_time: float = 0.0
    oldest_pending: float | None = None


@dataclass(slots=True)
class Traffic:
    """Counts the items handed on by ``through``.

    Parameters
    ----------
    sequence
        Watches the order; duplicates it finds do not count as rows.
    applied
        (topic, partition) -> next offset that the applier has committed; None where the group has none. None for all:
        the applier's progress is not known.
    """

    sequence: Sequence
    applied: Mapping[tuple[str, int], int | None] | None = None
    _tables: Counter[str] = field(default_factory=Counter)
    _done: Counter[str] = field(default_factory=Counter)
    _sizes: Sizes = field(default_factory=Sizes)
    _partitions: dict[tuple[str, int], _Partition] = field(default_factory=dict)
    _transit: float | None = None
    _last: float = 0.0

    def through(self, items: Iterable[CarriedItem]) -> Iterator[CarriedItem]:
        """Yield the items as they are, and count them."""
        for item in items:
            if self.sequence.see(item) and isinstance(item, Carried):
                self._count(item)
            elif isinstance(item, Watermark):
                self._last = max(self._last, item.time)
            yield item

    def result(self, ends: Mapping[tuple[str, int], int]) -> CarriedCounts:
        """Return what was counted; ``ends`` are the ends of the partitions."""
        parts = tuple(self._partition(here, end) for here, end in sorted(ends.items()))
        done = None if self.applied is None else dict(self._done)
        return CarriedCounts(dict(self._tables), done, self._sizes.result(), parts, self._transit, self._last)

    def _count(self, item: Carried) -> None:
        if item.change.op in (Op.TRUNCATE, Op.DDL) or item.snapshot:
            return
        change, here = item.change, (item.place.topic, item.place.partition)
        part = self._partitions.setdefault(here, _Partition(first_time=change.time))
        part.rows += 1
        part.last_time = max(part.last_time, change.time)
        self._last = max(self._last, change.time)
        self._tables[change.table] += 1
        self._sizes.row(change.gtid or f"{here}@{item.place.offset}")
        if item.sent:
            self._transit = max(item.sent - change.time, self._transit or 0.0)
        if self.applied is None:
            return
        if item.place.offset < (self.applied.get(here) or 0):
            self._done[change.table] += 1
        elif part.oldest_pending is None or change.time < part.oldest_pending:
            part.oldest_pending = change.time

    def _partition(self, here: tuple[str, int], end: int) -> PartitionTraffic:
        part = self._partitions.get(here, _Partition())
        applied = None if self.applied is None else self.applied.get(here) or 0
        pending = None if applied is None else max(0, end - applied)
        return PartitionTraffic(
            *here, part.rows, part.first_time, part.last_time, end, applied, pending, part.oldest_pending
        )
