"""Archived binlog files as a frame of Spark, and the options of both ways to read them.

::

    frame = read_archive(session, "/archive", tables="app.pay*")

Reads what ``migverify changes archive`` keeps, without a server: one task per file, at the same time. Executors need
migverify, PyMySQL and pyarrow, zstandard for compressed transactions, and a way to the files: a shared folder, or the
fsspec package of the URL. ``migverify.spark.binlog_source`` is the same as a data source, for batches and streams, and
needs Spark 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from migverify.changes.manifest import Manifest, read_manifest
from migverify.changes.model import Position
from migverify.changes.positions import FIRST_OFFSET
from migverify.changes.ranges import FileRange, file_ranges, read_range
from migverify.changes.storage import open_storage
from migverify.errors import ChangeError, ConfigError
from migverify.spark.change_batches import SPARK_SCHEMA, TableFilter, batches

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

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


def read_archive(session: SparkSession, path: str, **options: str) -> DataFrame:
    """Return what is archived now as a frame of ``change_batches.SPARK_SCHEMA``.

    Parameters
    ----------
    path
        The archive: a folder or an fsspec URL that the driver and all executors reach.
    options
        ``since``, ``until`` and ``tables``, see :class:`BinlogOptions`.

    Raises
    ------
    ConfigError
        an option is unknown or malformed.
    ChangeError
        there is no archive, or a file of it is missing. A damaged file fails the job that reads the frame.
    """
    chosen = read_options({"path": path, **options})
    ranges = file_ranges(archived(chosen.path), chosen.since, chosen.until)
    if not ranges:
        return session.createDataFrame([], SPARK_SCHEMA)
    numbers = session.range(0, len(ranges), 1, len(ranges))
    return numbers.mapInArrow(ReadRanges(chosen.path, tuple(ranges), chosen.tables), SPARK_SCHEMA)


@dataclass(frozen=True, slots=True)
class ReadRanges:
    """Decodes the ranges whose numbers come in; one row of a partition is the number of one range."""

    path: str
    ranges: tuple[FileRange, ...]
    tables: tuple[str, ...]

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield record batches of ``change_batches.SCHEMA``."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from decoded(self.path, self.ranges[number], self.tables)


def decoded(path: str, wanted: FileRange, tables: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Decode one range of one file; what an executor does."""
    return batches(read_range(open_storage(path), wanted), TableFilter(tables))


def archived(path: str) -> Manifest:
    """Return the manifest of an archive; ChangeError where there is none."""
    manifest = read_manifest(open_storage(path))
    if not manifest.files:
        raise ChangeError(f"there is no archive at {open_storage(path).url}.",
                          hint="Make one with `migverify changes archive --to DIR`.")  # fmt: skip
    return manifest
