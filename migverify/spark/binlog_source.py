"""Archived binlog files as a frame of Spark: ``read_archive(session, "/archive", tables="app.pay*")``.

Reads what ``migverify changes archive`` keeps, without a server: one task per file, at the same time. Executors need
migverify, PyMySQL and pyarrow, zstandard for compressed transactions, and a way to the files: a shared folder, or the
fsspec package of the URL. ``spark_jobs/read_changes.py`` reads what is new into Parquet, each change exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from migverify.changes.events import FIRST_OFFSET
from migverify.changes.files import FileRange, file_ranges
from migverify.changes.model import Position
from migverify.errors import ConfigError
from migverify.spark.change_batches import SPARK_SCHEMA
from migverify.spark.changes_output import ArchiveSource
from migverify.spark.engine import each_number

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class ReadRanges:
    """Decodes one of several ranges by its number; what an executor does."""

    source: ArchiveSource
    ranges: tuple[FileRange, ...]

    @classmethod
    def of(cls, path: str, *, tables: str = "", since: str = "", until: str = "") -> ReadRanges:
        """Return the ranges of an archive, one a file; parameters and errors as ``read_archive``."""
        patterns = tuple(filter(None, (part.strip() for part in tables.split(","))))
        source = ArchiveSource(path, patterns)
        return cls(source, tuple(file_ranges(source.manifest(), _position(since), _position(until))))

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield record batches of ``change_batches.SCHEMA``."""
        return self.source.batches(self.ranges[number])


def read_archive(session: SparkSession, path: str, *, tables: str = "", since: str = "", until: str = "") -> DataFrame:
    """Return what is archived now as a frame of ``change_batches.SPARK_SCHEMA``.

    Parameters
    ----------
    path
        The archive: a folder or an fsspec URL that the driver and all executors reach.
    tables
        Patterns of ``database.table`` with ``*`` and ``?``, parted by commas.
    since, until
        ``FILE`` or ``FILE:OFFSET``, both between two transactions; ``until`` a file alone means up to its beginning.

    Raises
    ------
    ConfigError
        a place is malformed.
    ChangeError
        there is no archive, or a file of it is missing. A damaged file fails the job that reads the frame.
    """
    ranges = ReadRanges.of(path, tables=tables, since=since, until=until)
    return each_number(session, len(ranges.ranges), ranges, SPARK_SCHEMA)


def _position(text: str) -> Position | None:
    if not text:
        return None
    file, colon, offset = text.rpartition(":")
    if not colon:
        return Position(text, FIRST_OFFSET)
    if not offset.isdigit():
        raise ConfigError(f"a place is FILE or FILE:OFFSET, not {text!r}.")
    return Position(file, int(offset))
