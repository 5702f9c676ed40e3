"""Changes from Kafka into Parquet, exactly once: each message is in the result once, whatever was killed in between.

Spark writes the offsets of a micro-batch into the checkpoint before the batch runs, so a batch that is run again has
the same offsets. Its output goes into a folder of its own (``changes/batch=N``), is replaced when the batch runs again,
and counts once ``batches/N.json`` is there, which names the offsets it holds. Rejects go to the dead letters first,
once per place. The folder of the result must be a local or shared file system.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify import codec
from migverify.changes.carriers.base import Place, Reject
from migverify.changes.carriers.dead_letters import DeadLetterFile
from migverify.errors import ChangeError, ConfigError, StoreError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_IS_ROW = "kind = 'change' AND op NOT IN ('ddl', 'truncate')"
_ERROR = re.compile(r"migverify\.errors\.(\w+): (.*)")


@dataclass(frozen=True, slots=True)
class Span:
    """What one batch holds of one topic partition: offsets ``first`` to ``last``, in ``messages`` messages."""

    topic: str
    partition: int
    first: int
    last: int
    messages: int
    changes: int
    rejects: int


@dataclass(frozen=True, slots=True)
class TableCount:
    """Rows that a batch carries for a table, without statements."""

    table: str
    rows: int


@dataclass(frozen=True, slots=True)
class Batch:
    """One finished batch of the result."""

    number: int
    spans: tuple[Span, ...]
    tables: tuple[TableCount, ...]


@dataclass(frozen=True, slots=True)
class Delivery:
    """What the result holds. ``gaps`` counts offsets between first and last that hold no message."""

    batches: int
    offsets: Mapping[tuple[str, int], tuple[int, int]]
    messages: int
    changes: int
    rejects: int
    gaps: int
    tables: Mapping[str, int]


def read_stream(session: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return the streaming frame of a source; ConfigError for wrong options, before Spark starts a worker."""
    source = _register(session, options)
    return session.readStream.format(source).options(**options).load()


def read_once(session: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return the batch frame of a source: from ``starting`` to the ends of when it is run."""
    source = _register(session, options)
    return session.read.format(source).options(**options).load()


def write_parquet(frame: DataFrame, folder: Path, *, until_now: bool = True) -> StreamingQuery:
    """Start to write a stream into a folder and return the query.

    Parameters
    ----------
    folder
        Of the result: ``changes``, ``batches``, ``checkpoint`` and ``dead-letters.jsonl`` lie in it.
    until_now
        Whether to end at the offsets of now; otherwise the query runs until it is stopped.

    Raises
    ------
    ChangeError
        The folder holds a result without its checkpoint: a new query would number its batches anew.
    """
    batches = folder / "batches"
    if batches.exists() and any(batches.iterdir()) and not (folder / "checkpoint" / "offsets").exists():
        raise ChangeError(
            f"{folder} holds a result, and its checkpoint is gone", hint="Read into a new folder, from the start."
        )
    batches.mkdir(parents=True, exist_ok=True)
    writer = frame.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    writer = writer.foreachBatch(lambda batch, number: write_batch(batch, number, folder))
    return (writer.trigger(availableNow=True) if until_now else writer.trigger(processingTime="1 second")).start()


def run_query(query: StreamingQuery) -> None:
    """Wait until a query ends; what went wrong in a worker becomes one error without a stack trace."""
    from pyspark.errors import PySparkException

    try:
        query.awaitTermination()
    except PySparkException as error:
        raise _cause(str(error)) from None


def write_batch(batch: DataFrame, number: int, folder: Path) -> None:
    """Write one micro-batch: dead letters, then the rows, then the line that makes them count."""
    done = folder / "batches" / f"{number:09d}.json"
    if done.exists():
        _refuse_other(batch, number, folder)
        return
    batch.persist()
    try:
        letters = DeadLetterFile(folder / "dead-letters.jsonl")
        rejects = batch.where("kind = 'reject'").select(
            "topic", "partition", "offset", "reason", "raw_key", "raw_value"
        )
        letters.add(_reject(row) for row in rejects.toLocalIterator())
        batch.write.mode("overwrite").parquet(str(folder / "changes" / f"batch={number}"))
        written = Batch(number, tuple(_spans(batch)), tuple(_tables(batch)))
    finally:
        batch.unpersist()
    before = read_batches(folder)
    _refuse_overlap(before, written, folder)
    part = done.with_suffix(".part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(codec.encode(written), file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(done)


def read_batches(folder: Path) -> list[Batch]:
    """Return the finished batches of a result, in order; StoreError when one is damaged."""
    found = []
    for path in sorted((folder / "batches").glob("*.json")):
        try:
            found.append(codec.decode(Batch, json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError) as error:
            raise StoreError(f"{path} is damaged: {error}", hint="Read into a new folder, from the start.") from error
    return found


def delivery(folder: Path) -> Delivery:
    """Sum up what a result holds.

    Raises
    ------
    ChangeError
        Two batches hold the same offsets.
    """
    batches = read_batches(folder)
    offsets: dict[tuple[str, int], tuple[int, int]] = {}
    tables: dict[str, int] = {}
    messages = 0
    for batch in batches:
        for span in batch.spans:
            here = (span.topic, span.partition)
            first, last = offsets.get(here, (span.first, span.first - 1))
            if span.first <= last:
                raise ChangeError(f"{folder}: batch {batch.number} repeats offset {span.first} of {here[0]}/{here[1]}")
            offsets[here] = (first, span.last)
            messages += span.messages
        for count in batch.tables:
            tables[count.table] = tables.get(count.table, 0) + count.rows
    spans = [span for batch in batches for span in batch.spans]
    gaps = sum(last - first + 1 for first, last in offsets.values()) - messages
    changes, rejects = sum(span.changes for span in spans), sum(span.rejects for span in spans)
    return Delivery(len(batches), offsets, messages, changes, rejects, gaps, tables)


def _register(session: SparkSession, options: Mapping[str, str]) -> str:
    import pyspark

    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < (4, 2):
        raise ConfigError(f"reading Kafka needs pyspark 4.2, and {pyspark.__version__} is installed")
    from migverify.spark.kafka_source import NAME, KafkaChanges, Settings

    Settings.of(options).login.resolve()
    session.dataSource.register(KafkaChanges)
    return NAME


def _spans(batch: DataFrame) -> Iterator[Span]:
    grouped = batch.groupBy("topic", "partition").agg(*map(_expression, (
        "min(offset) AS first", "max(offset) AS last", "count(DISTINCT offset) AS messages",
        f"count_if({_IS_ROW}) AS changes", "count_if(kind = 'reject') AS rejects",
    )))  # fmt: skip
    for row in sorted(grouped.collect()):
        yield Span(*row)


def _tables(batch: DataFrame) -> Iterator[TableCount]:
    for row in sorted(batch.where(_IS_ROW).groupBy("table").count().collect()):
        yield TableCount(*row)


def _expression(text: str) -> Any:
    from pyspark.sql.functions import expr

    return expr(text)


def _refuse_other(batch: DataFrame, number: int, folder: Path) -> None:
    """A batch that is there may run again, with the offsets it had: Spark was killed before it took note."""
    held = next(found for found in read_batches(folder) if found.number == number)
    if held.spans != tuple(_spans(batch)):
        raise ChangeError(
            f"{folder}: batch {number} is there with other offsets",
            hint="Is another query writing here, or was the checkpoint replaced?",
        )


def _refuse_overlap(before: list[Batch], written: Batch, folder: Path) -> None:
    last = {(span.topic, span.partition): span.last for batch in before for span in batch.spans}
    for span in written.spans:
        if span.first <= last.get((span.topic, span.partition), -1):
            raise ChangeError(
                f"{folder}: batch {written.number} begins at {span.first} of {span.topic}/{span.partition}, which an"
                " earlier batch holds", hint="Is another query writing here, or was the checkpoint replaced?",
            )  # fmt: skip


def _reject(row: Any) -> Reject:
    def raw(value: Any) -> bytes | None:
        return None if value is None else bytes(value)

    return Reject(row.reason, Place(row.topic, row.partition, row.offset), raw(row.raw_key), raw(row.raw_value))


def _cause(text: str) -> ChangeError:
    """Find what a worker or the source raised in what Spark made of it."""
    from migverify import errors
    from migverify.secrets import scrub

    match = _ERROR.search(text)
    if match is None:
        line = next((part.strip() for part in text.splitlines() if part.strip()), "no reason given")
        return ChangeError(scrub(f"the Spark query ended: {line[:300]}"))
    kind = getattr(errors, match[1], ChangeError)
    raised = kind if isinstance(kind, type) and issubclass(kind, ChangeError) else ChangeError
    return raised(scrub(match[2].strip()[:500]))
