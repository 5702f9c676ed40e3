"""The ``binlog`` data source: archived binlog files as a Spark table, in one batch or as a stream.

::

    session.dataSource.register(BinlogDataSource)
    session.read.format("binlog").load("/archive")
    session.readStream.format("binlog").option("maxFilesPerTrigger", 20).load("/archive")

``migverify.spark.binlog_frame`` says what is read and what executors need. Python data sources need Spark 4.
A stream's offset is ``{"file": ..., "pos": ...}``, always between two transactions; with a checkpoint and a sink that
commits by batch every change arrives exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from migverify.changes.model import Position
from migverify.changes.positions import FIRST_OFFSET
from migverify.changes.ranges import FileRange, file_ranges
from migverify.spark.binlog_frame import BinlogOptions, archived, decoded, read_options
from migverify.spark.change_batches import SPARK_SCHEMA

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

try:  # Spark 4.2
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Spark before 4.2 takes everything in one micro-batch."""


class BinlogDataSource(DataSource):
    """Registered under the name ``binlog``; see the module."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "binlog"

    def schema(self) -> str:
        """See ``migverify.spark.change_batches``."""
        return SPARK_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read once what is archived now."""
        del schema
        return BinlogReader(read_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        """Read what is archived now and later."""
        del schema
        return BinlogStreamReader(read_options(self.options))


@dataclass
class BinlogPartition(InputPartition):
    """One range of one file, as an executor gets it."""

    path: str
    wanted: FileRange
    tables: tuple[str, ...]


def _read(partition: BinlogPartition) -> Iterator[pa.RecordBatch]:
    return decoded(partition.path, partition.wanted, partition.tables)


class BinlogReader(DataSourceReader):
    """The batch reader."""

    def __init__(self, options: BinlogOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per file."""
        chosen = self._options
        manifest = archived(chosen.path)
        ranges = file_ranges(manifest, chosen.since, chosen.until)
        return [BinlogPartition(chosen.path, wanted, chosen.tables) for wanted in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Decode one range."""
        # Where there are no partitions Spark asks for one read of none, or of a partition of its own.
        return _read(partition) if isinstance(partition, BinlogPartition) else iter(())


class BinlogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming reader."""

    def __init__(self, options: BinlogOptions) -> None:
        self._options = options
        self._until = options.until

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's name)
        """Keep to what is archived now, however many micro-batches it takes."""
        ranges = file_ranges(archived(self._options.path), self._options.since, self._until)
        if ranges:
            self._until = Position(ranges[-1].file, ranges[-1].end)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """The place to start without a checkpoint."""
        since = self._options.since or Position(archived(self._options.path).files[0].name, FIRST_OFFSET)
        return {"file": since.file, "pos": since.offset}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802  (Spark's name)
        """Spark 4.2: how much a micro-batch may take."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

        return ReadMaxFiles(self._options.max_files) if self._options.max_files else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """The end of the last whole transaction, or of as many files as a micro-batch may take.

        Spark before 4.2 calls it without arguments and cannot bound a micro-batch.
        """
        manifest = archived(self._options.path)
        ranges = file_ranges(manifest, _offset(start) if start else self._options.since, self._until)
        if not ranges:
            return start or self.initialOffset()
        most = getattr(limit, "max_files", 0) or len(ranges)
        last = ranges[:most][-1]
        return {"file": last.file, "pos": last.end}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One partition per file between two offsets."""
        chosen = self._options
        ranges = file_ranges(archived(chosen.path), _offset(start), _offset(end))
        return [BinlogPartition(chosen.path, wanted, chosen.tables) for wanted in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Decode one range."""
        return _read(cast("BinlogPartition", partition))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the archive keeps its files."""

    def stop(self) -> None:
        """Nothing is held open."""


def _offset(offset: Mapping[str, Any]) -> Position:
    return Position(str(offset["file"]), int(offset["pos"]))
