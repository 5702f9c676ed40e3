"""Is the pipeline itself sound? Lag, skew, batching, order, and rows in = rows carried = rows applied.

Every question is one ``PipelineFinding`` with its value, its limit and pass, fail or inconclusive; what was not
measured is inconclusive, never a pass. Counts are compared as they are: the source's and the carrier's must cover the
same range.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from migverify.changes.carriers import kafka as kafka_carrier
from migverify.changes.carriers.base import CarriedItem, ChangeSource, Parser, Reject, tso_time
from migverify.changes.carriers.dead_letters import DeadLetterFile
from migverify.changes.carriers.files import FileSource, StorageFolder, json_lines, open_protocol_events
from migverify.changes.carriers.sequence import LIMIT, Completeness, Counts
from migverify.changes.carriers.sequence import Sequence as Order
from migverify.changes.decode import count_rows
from migverify.changes.traffic import (
    CarriedCounts,
    PartitionTraffic,
    SourceCounts,
    Traffic,
    TransactionSizes,
    count_source,
)
from migverify.errors import UsageError
from migverify.model import Verdict

_LETTERS = 1000
_REASONS = 10_000


class Outcome(StrEnum):
    """The answer to one question."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Limits:
    """What is still good. Seconds, shares from 0 to 1, and ``skew``: the busiest partition by the mean of all."""

    lag_seconds: float = 30.0
    transit_seconds: float = 10.0
    pending_seconds: float = 60.0
    skew: float = 3.0
    single_row_share: float = 0.5
    duplicate_share: float = 0.01


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that was measured; None is not measured. ``at`` is Unix time of the measurement.

    ``reject_reason`` is the reason that most rejects have.
    """

    at: float
    carried: CarriedCounts
    counts: Counts
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
    outcome: Outcome
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


def audit(facts: Facts, limits: Limits) -> PipelineReport:
    """Answer every question about the pipeline; MATCH only when each one passed."""
    tables = tuple(_tables(facts))
    findings = (
        _lag(facts, limits),
        _transit(facts, limits),
        *_pending(facts, limits),
        _skew(facts, limits),
        _single_rows(facts.source, facts.carried.sizes, limits),
        _rows("rows carried", {row.table: row.source for row in tables}, {row.table: row.carried for row in tables}),
        _rows("rows applied", {row.table: row.carried for row in tables}, {row.table: row.applied for row in tables}),
        *_order(facts, limits),
    )
    verdict = Verdict.worst([_VERDICTS[finding.outcome] for finding in findings])
    source_sizes = None if facts.source is None else facts.source.sizes
    return PipelineReport(
        verdict, findings, tables, facts.carried.partitions, source_sizes, facts.carried.sizes, facts.completeness
    )


_VERDICTS = {
    Outcome.PASS: Verdict.MATCH,
    Outcome.FAIL: Verdict.MISMATCH,
    Outcome.INCONCLUSIVE: Verdict.INCONCLUSIVE,
}


def _measured(name: str, value: float | None, limit: float, unit: str, reason: str, unknown: str) -> PipelineFinding:
    if value is None:
        return PipelineFinding(name, None, limit, unit, Outcome.INCONCLUSIVE, unknown)
    if value > limit:
        return PipelineFinding(name, value, limit, unit, Outcome.FAIL, reason)
    return PipelineFinding(name, value, limit, unit, Outcome.PASS)


def _lag(facts: Facts, limits: Limits) -> PipelineFinding:
    """By the watermark; without one, a fresh change proves that there is no lag, its absence proves nothing."""
    complete_to = facts.completeness.complete_to
    if complete_to is not None:
        lag = facts.at - tso_time(complete_to)
        return _measured("lag", lag, limits.lag_seconds, "s", "the carrier is complete only up to then", "")
    age = facts.at - facts.carried.last_time
    if facts.carried.last_time and age <= limits.lag_seconds:
        return PipelineFinding("lag", age, limits.lag_seconds, "s", Outcome.PASS)
    reason = "no watermark on every partition and no recent change: an idle source looks the same"
    return PipelineFinding("lag", None, limits.lag_seconds, "s", Outcome.INCONCLUSIVE, reason)


def _transit(facts: Facts, limits: Limits) -> PipelineFinding:
    return _measured(
        "longest transit", facts.carried.longest_transit, limits.transit_seconds, "s",
        "a message was sent that long after its commit", "the messages carry no time of their own",
    )  # fmt: skip


def _pending(facts: Facts, limits: Limits) -> Iterator[PipelineFinding]:
    parts = facts.carried.partitions
    known = [part for part in parts if part.pending is not None]
    if not parts or len(known) < len(parts):
        unknown = "the applier has committed no offset, or its consumer group was not named"
        yield PipelineFinding("oldest unapplied", None, limits.pending_seconds, "s", Outcome.INCONCLUSIVE, unknown)
        return
    waiting = [part for part in known if part.oldest_pending is not None]
    slowest = min(waiting, key=lambda part: part.oldest_pending or 0.0, default=None)
    age = 0.0 if slowest is None else facts.at - (slowest.oldest_pending or 0.0)
    where = (
        "" if slowest is None else f"slowest is {slowest.topic}/{slowest.partition}, {slowest.pending} messages behind"
    )
    yield _measured("oldest unapplied", age, limits.pending_seconds, "s", where, "")


def _skew(facts: Facts, limits: Limits) -> PipelineFinding:
    parts = facts.carried.partitions
    if not parts:
        return PipelineFinding("skew", None, limits.skew, "x mean", Outcome.INCONCLUSIVE, "files have no partitions")
    total = sum(part.rows for part in parts)
    if not total:
        return PipelineFinding("skew", None, limits.skew, "x mean", Outcome.INCONCLUSIVE, "no rows were carried")
    busiest = max(parts, key=lambda part: part.rows)
    share = busiest.rows * len(parts) / total
    where = f"{busiest.topic}/{busiest.partition} has {busiest.rows} of {total} rows in {len(parts)} partitions"
    return _measured("skew", share, limits.skew, "x mean", where, "")


def _single_rows(source: SourceCounts | None, carried: TransactionSizes, limits: Limits) -> PipelineFinding:
    """Single rows are the pipeline's doing only when the source wrote larger transactions."""
    share = carried.single_row_share
    name, limit, unit = "rows written one by one", limits.single_row_share, "share"
    if share is not None and not carried.exact:
        reason = f"more than {carried.count} transactions at a time: their sizes are not exact"
        return PipelineFinding(name, share, limit, unit, Outcome.INCONCLUSIVE, reason)
    wrote = None if source is None else source.sizes.single_row_share
    said = "" if wrote is None else f"; on the source {wrote:.2f}"
    reason = f"{carried.rows} rows in {carried.count} transactions{said}"
    return _measured(name, share, limit, unit, reason, "no rows were carried")


def _rows(name: str, wanted: Mapping[str, int | None], found: Mapping[str, int | None]) -> PipelineFinding:
    unknown = [table for table in wanted if wanted[table] is None or found[table] is None]
    differing = [table for table in wanted if table not in unknown and wanted[table] != found[table]]
    if differing:
        worst = max(differing, key=lambda table: abs((wanted[table] or 0) - (found[table] or 0)))
        off = sum(abs((wanted[table] or 0) - (found[table] or 0)) for table in differing)
        reason = f"{len(differing)} tables differ; {worst}: {wanted[worst]} and {found[worst]}"
        return PipelineFinding(name, off, 0, "rows off", Outcome.FAIL, reason)
    if unknown or not wanted:
        reason = f"not counted for {unknown[0]}" if unknown else "no table was counted"
        return PipelineFinding(name, None, 0, "rows off", Outcome.INCONCLUSIVE, reason)
    return PipelineFinding(name, 0, 0, "rows off", Outcome.PASS)


def _order(facts: Facts, limits: Limits) -> Iterator[PipelineFinding]:
    counts = facts.counts
    share = counts.duplicates / counts.changes if counts.changes else None
    yield _bounded(
        _measured("duplicates", share, limits.duplicate_share, "share", f"{counts.duplicates} changes came twice",
                  "no change was carried"), counts,
    )  # fmt: skip
    yield _bounded(
        _none("out of order", counts.out_of_order, "changes", "a later change of the row came before"), counts
    )
    moved = "the row's changes are on several partitions: their order is not kept"
    yield _bounded(_none("moved between partitions", counts.moved, "changes", moved), counts)
    yield _none("after their watermark", counts.late, "changes", "a watermark had promised that there were none")
    yield _none("undecodable", counts.rejects, "messages", f"most often: {facts.reject_reason}")
    for name, count, reason in (
        ("missing offsets", counts.offset_gaps, "compaction or markers of transactions, or lost messages"),
        ("without key", counts.without_key, "their order cannot be checked"),
    ):
        outcome = Outcome.INCONCLUSIVE if count else Outcome.PASS
        yield PipelineFinding(name, count, 0, "messages", outcome, reason if count else "")
    if facts.dead_letters is not None:
        yield _none("dead letters kept", facts.dead_letters, "messages", "messages of earlier runs are not decoded yet")


def _none(name: str, count: int, unit: str, reason: str) -> PipelineFinding:
    return _measured(name, count, 0, unit, reason, "")


def _bounded(finding: PipelineFinding, counts: Counts) -> PipelineFinding:
    """A count that passed is a lower bound once something had to be forgotten."""
    if counts.exact or finding.outcome is not Outcome.PASS:
        return finding
    reason = "at least: more rows than can be remembered"
    return PipelineFinding(finding.name, finding.value, finding.limit, finding.unit, Outcome.INCONCLUSIVE, reason)


def _tables(facts: Facts) -> Iterator[TableRows]:
    source = {} if facts.source is None else facts.source.tables
    carried, applied = facts.carried.tables, facts.carried.applied
    for table in sorted(set(source) | set(carried)):
        yield TableRows(
            table,
            None if facts.source is None else source.get(table, 0),
            carried.get(table, 0),
            None if applied is None else applied.get(table, 0),
        )


# --- measuring ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opened:
    """A carrier to read, the ends of its partitions (none for files), and the applier's offsets where known."""

    source: ChangeSource
    ends: Mapping[tuple[str, int], int] = field(default_factory=dict)
    applied: Mapping[tuple[str, int], int | None] | None = None


def open_kafka(login: kafka_carrier.Resolved, topics: Sequence[str], parser: Parser, group: str = "") -> Opened:
    """Open topics from the first message that the brokers have to the last of now.

    What the group has applied is asked first: a change applied meanwhile counts as pending, never the other way. A
    group that has committed nothing at all may be a wrong name: then nothing is known.
    """
    consumer = kafka_carrier.connect(login)
    try:
        partitions = sorted(kafka_carrier.bounds(login, consumer, topics))
    finally:
        consumer.close()
    applied = kafka_carrier.committed(login, group, partitions) if group else None
    if applied is not None and all(offset is None for offset in applied.values()):
        applied = None
    source = kafka_carrier.KafkaSource(login, topics, parser)
    return Opened(source, {here: high for here, (_, high) in source.bounds.items()}, applied)


def open_files(paths: Sequence[Path], format_name: str, parser: Parser) -> Opened:
    """Open files of messages, or one folder of TiCDC's storage sink.

    Raises
    ------
    UsageError
        A folder is named beside something else, or its format is not canal-json.
    """
    if any(path.is_dir() for path in paths):
        if len(paths) > 1 or format_name != "canal-json":
            raise UsageError("a folder of TiCDC's storage sink is read alone, as canal-json")
        return Opened(StorageFolder(paths[0], parser))
    split = open_protocol_events if format_name == "open-protocol" else json_lines
    return Opened(FileSource(paths, parser, split))


def count_binlog(paths: Sequence[Path]) -> SourceCounts:
    """Count rows and transactions in binlog files; ChangeError where one cannot be read exactly."""
    from migverify.changes.files import read_files

    return count_source(read_files(paths), count_rows)


def measure(
    opened: Opened, source: SourceCounts | None = None, letters: DeadLetterFile | None = None, limit: int = LIMIT
) -> Facts:
    """Read the carrier to its end and return everything that was measured.

    Parameters
    ----------
    source
        What the source wrote in the range that the carrier covers, where that is known.
    letters
        Where rejects are kept. What it held before and this run did not meet again counts as dead letters kept.
    limit
        How many row keys and changes the order is checked over.
    """
    order = Order(limit, frozenset(opened.ends))
    traffic = Traffic(order, opened.applied)
    met = 0
    reasons: Counter[str] = Counter()
    for rejects in _rejects(traffic.through(opened.source.items())):
        met += len(rejects)
        if len(reasons) < _REASONS:  # reasons may hold values: as many as there are messages
            reasons.update(reject.reason for reject in rejects)
        if letters is not None:
            letters.add(rejects)
    kept = None if letters is None else max(0, sum(1 for _ in letters.read()) - met)
    carried = traffic.result(opened.ends)
    return Facts(time.time(), carried, order.counts, order.completeness(), source, kept, _first(reasons))


def _first(reasons: Counter[str]) -> str:
    return reasons.most_common(1)[0][0] if reasons else ""


def _rejects(items: Iterable[CarriedItem]) -> Iterator[list[Reject]]:
    """Yield the rejects in small groups."""
    group: list[Reject] = []
    for item in items:
        if isinstance(item, Reject):
            group.append(item)
            if len(group) >= _LETTERS:
                yield group
                group = []
    yield group
