"""The ``binlog`` data source: archived binlog files as a Spark table, in one batch or as a stream.

::

    session.dataSource.register(BinlogDataSource)
    session.read.format("binlog").load("/archive")
    session.readStream.format("binlog").option("maxFilesPerTrigger", 20).load("/archive")

Reads what ``migverify changes archive`` keeps, without a server: one partition per file, at the same time. Executors
need migverify, PyMySQL and pyarrow, zstandard for compressed transactions, and a way to the files: a shared folder,
or the fsspec package of the URL. A stream's offset is ``{"file": ..., "pos": ...}``, always between two transactions;
with a checkpoint and a sink that commits by batch every change arrives exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from migverify.changes.manifest import Manifest, read_manifest
from migverify.changes.model import Position
from migverify.changes.positions import FIRST_OFFSET
from migverify.changes.ranges import FileRange, file_ranges, read_range
from migverify.changes.storage import open_storage
from migverify.errors import ChangeError, ConfigError
from migverify.spark.change_batches import SPARK_SCHEMA, TableFilter, batches

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

try:  # Spark 4.2
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Spark before 4.2 takes everything in one micro-batch."""


_KNOWN = ("path", "since", "until", "tables", "maxfilespertrigger")


@dataclass(frozen=True, slots=True)
class BinlogOptions:
    """Options of the data source.

    ``path`` is the archive. ``since`` and ``until`` are ``FILE`` or ``FILE:OFFSET``, both between two transactions;
    ``until`` a file alone means up to its beginning. ``tables`` are patterns of ``database.table``, parted by commas.
    ``max_files`` bounds a micro-batch; 0 is no bound.
    """

    path: str
    since: Position | None
    until: Position | None
    tables: tuple[str, ...]
    max_files: int


def read_options(options: Mapping[str, str]) -> BinlogOptions:
    """Check the options of a reader.

    Raises
    ------
    ConfigError
        one is missing, unknown or malformed.
    """
    given = {key.lower(): value for key, value in options.items()}
    unknown = sorted(given.keys() - set(_KNOWN))
    if unknown:
        raise ConfigError(f"the binlog source has no option {unknown[0]}.", hint=f"It has {', '.join(_KNOWN)}.")
    if not given.get("path"):
        raise ConfigError("the binlog source needs the archive's path.", hint='Write .load("/archive").')
    count = given.get("maxfilespertrigger", "0")
    if not count.isdigit():
        raise ConfigError(f"maxFilesPerTrigger is a number of files, not {count!r}.")
    tables = tuple(filter(None, (part.strip() for part in given.get("tables", "").split(","))))
    return BinlogOptions(given["path"], _position(given, "since"), _position(given, "until"), tables, int(count))


def _position(options: Mapping[str, str], name: str) -> Position | None:
    text = options.get(name)
    if not text:
        return None
    file, colon, offset = text.rpartition(":")
    if not colon:
        return Position(text, FIRST_OFFSET)
    if not offset.isdigit():
        raise ConfigError(f"{name} is FILE or FILE:OFFSET, not {text!r}.")
    return Position(file, int(offset))


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
    items = read_range(open_storage(partition.path), partition.wanted)
    return batches(items, TableFilter(partition.tables))


class BinlogReader(DataSourceReader):
    """The batch reader."""

    def __init__(self, options: BinlogOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per file."""
        chosen = self._options
        manifest = _manifest(chosen.path)
        ranges = file_ranges(manifest, chosen.since, chosen.until)
        return [BinlogPartition(chosen.path, wanted, chosen.tables) for wanted in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Decode one range."""
        # Spark asks for one empty read where there are no partitions.
        return iter(()) if partition is None else _read(cast("BinlogPartition", partition))


class BinlogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming reader."""

    def __init__(self, options: BinlogOptions) -> None:
        self._options = options
        self._until = options.until

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's name)
        """Keep to what is archived now, however many micro-batches it takes."""
        ranges = file_ranges(_manifest(self._options.path), self._options.since, self._until)
        if ranges:
            self._until = Position(ranges[-1].file, ranges[-1].end)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """The place to start without a checkpoint."""
        since = self._options.since or Position(_manifest(self._options.path).files[0].name, FIRST_OFFSET)
        return {"file": since.file, "pos": since.offset}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802  (Spark's name)
        """Spark 4.2: how much a micro-batch may take."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

        return ReadMaxFiles(self._options.max_files) if self._options.max_files else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """The end of the last whole transaction, or of as many files as a micro-batch may take.

        Spark before 4.2 calls it without arguments and cannot bound a micro-batch.
        """
        manifest = _manifest(self._options.path)
        ranges = file_ranges(manifest, _offset(start) if start else self._options.since, self._until)
        if not ranges:
            return start or self.initialOffset()
        most = getattr(limit, "max_files", 0) or len(ranges)
        last = ranges[:most][-1]
        return {"file": last.file, "pos": last.end}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One partition per file between two offsets."""
        chosen = self._options
        ranges = file_ranges(_manifest(chosen.path), _offset(start), _offset(end))
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


def _manifest(path: str) -> Manifest:
    manifest = read_manifest(open_storage(path))
    if not manifest.files:
        raise ChangeError(f"there is no archive at {open_storage(path).url}.",
                          hint="Make one with `migverify changes archive --to DIR`.")  # fmt: skip
    return manifest
