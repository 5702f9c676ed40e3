"""Is the pipeline itself sound? Lag, skew, batching, order, and rows in = rows carried = rows applied.

Every question is one ``PipelineFinding`` with its value, its limit and pass, fail or inconclusive; what was not
measured is inconclusive, never a pass. Counts are compared as they are: the source's and the carrier's must cover the
same range.

Memory is bounded: the rows of a transaction may be spread over partitions, so ``OPEN`` transactions are kept open;
beyond that the one begun longest ago is counted as it is, and the sizes are no longer exact.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from migverify.changes.carriers.base import Carried, CarriedItem, Carrier, Reject, Watermark
from migverify.changes.carriers.dead_letters import DeadLetterFile
from migverify.changes.carriers.sequence import LIMIT, Completeness, OrderCounts, OrderTracker
from migverify.changes.decode import count_rows
from migverify.changes.model import Commit, Item, Rows
from migverify.changes.positions import tso_time
from migverify.changes.source import read_files
from migverify.model import Verdict

OPEN = 100_000
SIZES = (1, 10, 100, 1000)
"""Upper bounds of the classes of transaction sizes, in rows; one class more is open above."""
_LETTERS = 1000
_REASONS = 10_000
_Partition = tuple[str, int]


# --- counting --------------------------------------------------------------------------------------------------------


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


@dataclass(slots=True)
class PartitionTraffic:
    """One partition: what was read of it, and how far the applier is.

    ``applied`` is the next offset that the applier has committed, None when that is not known; ``pending`` the offsets
    from there to ``end``. Times are Unix times of commits on the source, 0.0 when no change was seen.
    """

    topic: str
    partition: int
    rows: int = 0
    first_time: float = 0.0
    last_time: float = 0.0
    end: int = 0
    applied: int | None = None
    pending: int | None = None
    oldest_pending: float | None = None

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


class SizeCollector:
    """Collects transaction sizes from rows that come one by one, those of a transaction not always together."""

    def __init__(self, limit: int = OPEN) -> None:
        self._limit = limit
        self._open: OrderedDict[str, int] = OrderedDict()
        self._classes = [0] * (len(SIZES) + 1)
        self._count = self._rows = self._largest = 0
        self._exact = True

    def row(self, transaction: str) -> None:
        """Count a row of a transaction."""
        self._open[transaction] = self._open.get(transaction, 0) + 1
        if len(self._open) > self._limit:
            self._exact = False
            self.add(self._open.popitem(last=False)[1])

    def add(self, rows: int) -> None:
        """Count a complete transaction; one without rows does not count."""
        if rows:
            self._classes[next((at for at, most in enumerate(SIZES) if rows <= most), len(SIZES))] += 1
            self._count += 1
            self._rows += rows
            self._largest = max(self._largest, rows)

    def result(self) -> TransactionSizes:
        """Return the sizes; every transaction that is open counts as complete."""
        while self._open:
            self.add(self._open.popitem(last=False)[1])
        return TransactionSizes(self._count, self._rows, tuple(self._classes), self._largest, self._exact)


def count_source(items: Iterable[Item], rows_of: Callable[[Rows], int] = count_rows) -> SourceCounts:
    """Count what a binlog holds. Rows of a transaction without its commit do not count."""
    tables: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    sizes = SizeCollector()
    for item in items:
        if isinstance(item, Rows):
            waiting[item.table.name] += rows_of(item)
        elif isinstance(item, Commit):
            sizes.add(waiting.total())
            tables.update(waiting)
            waiting.clear()
    return SourceCounts(dict(tables), sizes.result())


@dataclass(slots=True)
class TrafficCounter:
    """Counts the items handed on by ``through``.

    Parameters
    ----------
    order
        Watches the order; duplicates it finds do not count as rows.
    applied
        (topic, partition) -> next offset that the applier has committed; None where the group has none. None for all:
        the applier's progress is not known.
    """

    order: OrderTracker
    applied: Mapping[_Partition, int | None] | None = None
    _tables: Counter[str] = field(default_factory=Counter)
    _done: Counter[str] = field(default_factory=Counter)
    _sizes: SizeCollector = field(default_factory=SizeCollector)
    _partitions: dict[_Partition, PartitionTraffic] = field(default_factory=dict)
    _transit: float | None = None
    _last: float = 0.0

    def through(self, items: Iterable[CarriedItem]) -> Iterator[CarriedItem]:
        """Yield the items as they are, and count them."""
        for item in items:
            if self.order.see(item) and isinstance(item, Carried):
                self._count(item)
            elif isinstance(item, Watermark):
                self._last = max(self._last, item.time)
            yield item

    def result(self, ends: Mapping[_Partition, int]) -> CarriedCounts:
        """Return what was counted; ``ends`` are the ends of the partitions."""
        parts = []
        for here, end in sorted(ends.items()):
            applied = None if self.applied is None else self.applied.get(here) or 0
            pending = None if applied is None else max(0, end - applied)
            part = self._partitions.get(here) or PartitionTraffic(*here)
            parts.append(replace(part, end=end, applied=applied, pending=pending))
        done = None if self.applied is None else dict(self._done)
        return CarriedCounts(dict(self._tables), done, self._sizes.result(), tuple(parts), self._transit, self._last)

    def _count(self, item: Carried) -> None:
        if not isinstance(item.event, Rows) or item.snapshot:
            return
        table, time, here = item.event.table.name, item.time, (item.place.topic, item.place.partition)
        part = self._partitions.setdefault(here, PartitionTraffic(*here, first_time=time))
        part.rows += 1
        part.last_time = max(part.last_time, time)
        self._last = max(self._last, time)
        self._tables[table] += 1
        self._sizes.row(item.gtid or f"{here}@{item.place.offset}")
        if item.sent:
            self._transit = max(item.sent - time, self._transit or 0.0)
        if self.applied is None:
            return
        if item.place.offset < (self.applied.get(here) or 0):
            self._done[table] += 1
        elif part.oldest_pending is None or time < part.oldest_pending:
            part.oldest_pending = time


# --- questions -------------------------------------------------------------------------------------------------------


class PipelineOutcome(StrEnum):
    """The answer to one question."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


_VERDICTS = dict(zip(PipelineOutcome, (Verdict.MATCH, Verdict.MISMATCH, Verdict.INCONCLUSIVE), strict=True))


@dataclass(frozen=True, slots=True)
class PipelineLimits:
    """What is still good. Seconds, shares from 0 to 1, and ``skew``: the busiest partition by the mean of all."""

    lag_seconds: float = 30.0
    transit_seconds: float = 10.0
    pending_seconds: float = 60.0
    skew: float = 3.0
    single_row_share: float = 0.5
    duplicate_share: float = 0.01


@dataclass(frozen=True, slots=True)
class PipelineFacts:
    """Everything that was measured; None is not measured. ``at`` is Unix time of the measurement.

    ``reject_reason`` is the reason that most rejects have.
    """

    at: float
    carried: CarriedCounts
    counts: OrderCounts
    completeness: Completeness
    source: SourceCounts | None = None
    dead_letters: int | None = None
    reject_reason: str = ""


@dataclass(frozen=True, slots=True)
class PipelineFinding:
    """One question: what was measured (None: nothing), what is allowed, the answer and, unless it passed, why."""

    name: str
    value: float | None
    limit: float | None
    unit: str
    outcome: PipelineOutcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of one table at each station; None is not known."""

    table: str
    source: int | None
    carried: int
    applied: int | None


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """The audit of a pipeline, as data."""

    verdict: Verdict
    findings: tuple[PipelineFinding, ...]
    tables: tuple[TableRows, ...]
    partitions: tuple[PartitionTraffic, ...]
    source_sizes: TransactionSizes | None
    carried_sizes: TransactionSizes
    completeness: Completeness


def audit(facts: PipelineFacts, limits: PipelineLimits) -> PipelineReport:
    """Answer every question about the pipeline; MATCH only when each one passed."""
    source, carried = facts.source, facts.carried
    names = sorted(set(carried.tables) | set({} if source is None else source.tables))
    tables = tuple(
        TableRows(
            table,
            None if source is None else source.tables.get(table, 0),
            carried.tables.get(table, 0),
            None if carried.applied is None else carried.applied.get(table, 0),
        )
        for table in names
    )
    findings = (
        _lag(facts, limits),
        _judge("longest transit", carried.longest_transit, limits.transit_seconds, "s",
               "a message was sent that long after its commit", "the messages carry no time of their own"),
        _pending(facts, limits),
        _skew(carried.partitions, limits),
        _single_rows(source, carried.sizes, limits),
        _rows("rows carried", [(row.table, row.source, row.carried) for row in tables]),
        _rows("rows applied", [(row.table, row.carried, row.applied) for row in tables]),
        *_order(facts, limits),
    )  # fmt: skip
    verdict = Verdict.worst([_VERDICTS[finding.outcome] for finding in findings])
    source_sizes = None if source is None else source.sizes
    return PipelineReport(
        verdict, findings, tables, carried.partitions, source_sizes, carried.sizes, facts.completeness
    )


def _judge(name: str, value: float | None, limit: float, unit: str, reason: str, unknown: str = "") -> PipelineFinding:
    """Compare a value with its limit; ``reason`` is given where it is above, ``unknown`` where there is none."""
    if value is None:
        return PipelineFinding(name, None, limit, unit, PipelineOutcome.INCONCLUSIVE, unknown)
    if value > limit:
        return PipelineFinding(name, value, limit, unit, PipelineOutcome.FAIL, reason)
    return PipelineFinding(name, value, limit, unit, PipelineOutcome.PASS)


def _lag(facts: PipelineFacts, limits: PipelineLimits) -> PipelineFinding:
    """By the watermark; without one, a fresh change proves that there is no lag, its absence proves nothing."""
    complete_to, last = facts.completeness.complete_to, facts.carried.last_time
    lag = None
    if complete_to is not None:
        lag = facts.at - tso_time(complete_to)
    elif last and facts.at - last <= limits.lag_seconds:
        lag = facts.at - last
    unknown = "no watermark on every partition and no recent change: an idle source looks the same"
    return _judge("lag", lag, limits.lag_seconds, "s", "the carrier is complete only up to then", unknown)


def _pending(facts: PipelineFacts, limits: PipelineLimits) -> PipelineFinding:
    parts, age, where = facts.carried.partitions, None, ""
    if parts and all(part.pending is not None for part in parts):
        age = 0.0
        if waiting := [part for part in parts if part.oldest_pending is not None]:
            slowest = min(waiting, key=lambda part: part.oldest_pending or 0.0)
            age = facts.at - (slowest.oldest_pending or 0.0)
            where = f"slowest is {slowest.topic}/{slowest.partition}, {slowest.pending} messages behind"
    unknown = "the applier has committed no offset, or its consumer group was not named"
    return _judge("oldest unapplied", age, limits.pending_seconds, "s", where, unknown)


def _skew(parts: Sequence[PartitionTraffic], limits: PipelineLimits) -> PipelineFinding:
    total, share, where = sum(part.rows for part in parts), None, ""
    if total:
        busiest = max(parts, key=lambda part: part.rows)
        share = busiest.rows * len(parts) / total
        where = f"{busiest.topic}/{busiest.partition} has {busiest.rows} of {total} rows in {len(parts)} partitions"
    unknown = "no rows were carried" if parts else "files have no partitions"
    return _judge("skew", share, limits.skew, "x mean", where, unknown)


def _single_rows(source: SourceCounts | None, carried: TransactionSizes, limits: PipelineLimits) -> PipelineFinding:
    """Single rows are the pipeline's doing only when the source wrote larger transactions."""
    share = carried.single_row_share
    wrote = None if source is None else source.sizes.single_row_share
    on_source = "" if wrote is None else f"; on the source {wrote:.2f}"
    reason = f"{carried.rows} rows in {carried.count} transactions{on_source}"
    finding = _judge("rows written one by one", share, limits.single_row_share, "share", reason, "no rows were carried")
    if share is None or carried.exact:
        return finding
    reason = f"more than {carried.count} transactions at a time: their sizes are not exact"
    return replace(finding, outcome=PipelineOutcome.INCONCLUSIVE, reason=reason)


def _rows(name: str, tables: Sequence[tuple[str, int | None, int | None]]) -> PipelineFinding:
    """Compare the rows of each table at two stations."""
    known = [(table, before, after) for table, before, after in tables if before is not None and after is not None]
    differing = [(abs(before - after), table, before, after) for table, before, after in known if before != after]
    unknown = next((f"not counted for {table}" for table, *counts in tables if None in counts), "no table was counted")
    if differing:
        _, worst, before, after = max(differing, key=lambda found: found[0])
        reason = f"{len(differing)} tables differ; {worst}: {before} and {after}"
        return _judge(name, sum(off for off, *_ in differing), 0, "rows off", reason)
    return _judge(name, 0 if known and len(known) == len(tables) else None, 0, "rows off", "", unknown)


def _order(facts: PipelineFacts, limits: PipelineLimits) -> Iterator[PipelineFinding]:
    counts = facts.counts
    share = counts.duplicates / counts.changes if counts.changes else None
    for finding in (
        _judge("duplicates", share, limits.duplicate_share, "share", f"{counts.duplicates} changes came twice",
               "no change was carried"),
        _judge("out of order", counts.out_of_order, 0, "changes", "a later change of the row came before"),
        _judge("moved between partitions", counts.moved, 0, "changes",
               "the row's changes are on several partitions: their order is not kept"),
    ):  # fmt: skip
        if counts.exact or finding.outcome is not PipelineOutcome.PASS:
            yield finding
        else:  # a lower bound, once something had to be forgotten
            yield replace(
                finding, outcome=PipelineOutcome.INCONCLUSIVE, reason="at least: more rows than can be remembered"
            )
    yield _judge("after their watermark", counts.late, 0, "changes", "a watermark had promised that there were none")
    yield _judge("undecodable", counts.rejects, 0, "messages", f"most often: {facts.reject_reason}")
    for name, count, reason in (
        ("missing offsets", counts.offset_gaps, "compaction or markers of transactions, or lost messages"),
        ("without key", counts.without_key, "their order cannot be checked"),
    ):
        outcome = PipelineOutcome.INCONCLUSIVE if count else PipelineOutcome.PASS
        yield PipelineFinding(name, count, 0, "messages", outcome, reason if count else "")
    if facts.dead_letters is not None:
        reason = "messages of earlier runs are not decoded yet"
        yield _judge("dead letters kept", facts.dead_letters, 0, "messages", reason)


# --- measuring -------------------------------------------------------------------------------------------------------


def count_binlog(paths: Sequence[Path]) -> SourceCounts:
    """Count rows and transactions in binlog files; ChangeError where one cannot be read exactly."""
    return count_source(read_files(paths))


def measure(
    carrier: Carrier, applied: Mapping[_Partition, int | None] | None = None, source: SourceCounts | None = None,
    letters: DeadLetterFile | None = None, limit: int = LIMIT,
) -> PipelineFacts:  # fmt: skip
    """Read the carrier to its end and return everything that was measured.

    Parameters
    ----------
    applied
        As for ``TrafficCounter``.
    source
        What the source wrote in the range that the carrier covers, where that is known.
    letters
        Where rejects are kept. What it held before and this run did not meet again counts as dead letters kept.
    limit
        How many row keys and changes the order is checked over.
    """
    order = OrderTracker(limit, carrier.ends)
    traffic = TrafficCounter(order, applied)
    reasons: Counter[str] = Counter()
    group: list[Reject] = []
    for item in traffic.through(carrier.read()):
        if not isinstance(item, Reject):
            continue
        if len(reasons) < _REASONS:  # reasons may hold values: as many as there are messages
            reasons[item.reason] += 1
        group.append(item)
        if letters is not None and len(group) >= _LETTERS:
            letters.add(group)
        if len(group) >= _LETTERS:
            group.clear()
    kept = None
    if letters is not None:
        letters.add(group)
        kept = max(0, len(letters) - order.counts.rejects)
    carried = traffic.result(carrier.ends)
    reason = reasons.most_common(1)[0][0] if reasons else ""
    return PipelineFacts(time.time(), carried, order.counts, order.completeness(), source, kept, reason)
