"""Measures a pipeline: reads what it carries once, and beside it what the source wrote and what was applied."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from migverify.changes.carriers import kafka as kafka_carrier
from migverify.changes.carriers.base import CarriedItem, ChangeSource, Parser, Reject
from migverify.changes.carriers.dead_letters import DeadLetters
from migverify.changes.carriers.files import FileSource, StorageFolder, json_lines, open_protocol_events
from migverify.changes.carriers.sequence import LIMIT
from migverify.changes.carriers.sequence import Sequence as Order
from migverify.changes.pipeline import Facts
from migverify.changes.traffic import SourceCounts, Traffic, count_source, rows_of
from migverify.errors import UsageError

_LETTERS = 1000
_REASONS = 10_000


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

    return count_source(read_files(paths), rows_of)


def measure(
    opened: Opened, source: SourceCounts | None = None, letters: DeadLetters | None = None, limit: int = LIMIT
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
