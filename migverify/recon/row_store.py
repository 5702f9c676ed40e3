"""Rows of a local join on disk, and DuckDB that joins them: memory does not grow with the tables.

Every writer appends Parquet files that DuckDB divides by the hash of the key; the join runs over one partition at a
time, and over a part of it where it is large. So the largest aggregation fits ``MEMORY``, and a sort goes to disk.
DuckDB reads and writes the folder of its store and nothing else: no network, no extensions.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from migverify.errors import CanceledError, ReadError
from migverify.recon.join import PAGE, PartCombiner, batches_of
from migverify.sql.recon_join import allow_folder_sql, partition_sql, sorted_rows_sql, write_partitions_sql

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

T = TypeVar("T")

MEMORY = "800MB"
"""Memory of DuckDB; Python's batches come on top."""
THREADS = 2
PARTITIONS = 16
FLUSH_BYTES = 16 << 20
LARGE_BYTES = 96 << 20
"""Bytes of rows, not compressed, that one statement joins."""


class RowStore:
    """Rows in a folder; see ``migverify.recon.join.COLUMNS``. Close it before the folder is removed."""

    def __init__(self, folder: Path) -> None:
        import duckdb

        self.folder = folder
        self._bytes: dict[str, int] = {}
        self._rows: dict[str, int] = {}
        self._files = 0
        self._lock = threading.Lock()
        self._canceled = False
        self._running: duckdb.DuckDBPyConnection | None = None
        self._names: list[str] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="recon-join")
        with self.errors():
            self._connection = duckdb.connect(
                ":memory:",
                config={
                    "memory_limit": MEMORY, "threads": THREADS, "temp_directory": str(folder / "sorts"),
                    "preserve_insertion_order": False, "python_enable_replacements": False,
                    "autoinstall_known_extensions": False, "autoload_known_extensions": False,
                },
            )  # fmt: skip
            for setting in allow_folder_sql(folder):
                self._connection.execute(setting)

    def clear(self) -> None:
        """Remove all rows: a read begins anew."""
        for path in self.folder.iterdir():
            shutil.rmtree(path)
        self._bytes.clear()
        self._rows.clear()

    def writer(self, *, parts: bool = False) -> RowWriter:
        """Return a writer for one thread; ``parts`` are combined before they are joined."""
        return RowWriter(self, "parts" if parts else "rows")

    def write(self, batches: list[pa.RecordBatch], kind: str) -> None:
        """Append batches to the files of their partitions.

        Raises
        ------
        ReadError
            the disk is full or fails.
        """
        import pyarrow as pa
        from pyarrow import compute

        table = pa.Table.from_batches(batches)
        with self._lock:
            self._files += 1
            name = str(self._files)
            self._bytes[kind] = self._bytes.get(kind, 0) + table.nbytes
            self._rows[kind] = self._rows.get(kind, 0) + (compute.sum(table["n"]).as_py() or 0)
        with self.errors(), self._connection.cursor() as cursor:
            cursor.register("batches", table)
            cursor.execute(write_partitions_sql("batches", self.folder / kind, name, PARTITIONS))

    def combine(self, combiner: PartCombiner) -> None:
        """Combine the parts of groups; they become rows."""
        if "parts" not in self._bytes:
            return
        statement = sorted_rows_sql(self.folder / "parts" / "*" / "*.parquet")
        before = self._rows.get("rows", 0)
        writer = self.writer()
        parts = (part for page in self._pages(statement) for part in page)
        for batch in batches_of(combiner.rows(parts)):
            writer.add(batch)
        writer.flush()
        self._refuse_lost(self._rows["parts"], self._rows.get("rows", 0) - before)
        shutil.rmtree(self.folder / "parts")

    def check_joined(self, rows: int) -> None:
        """Raise ReadError unless a join counted as many rows as were written: a file that is gone is no agreement."""
        self._refuse_lost(self._rows.get("rows", 0), rows)

    def _refuse_lost(self, written: int, counted: int) -> None:
        if written != counted:
            raise ReadError(
                f"{written:,} rows were written to {self.folder.parent}, and {counted:,} were read back",
                hint="Another process changed the files there, or the disk fails. Point TMPDIR at another disk.",
            )

    def join(self, statement: Callable[[str], str]) -> Iterator[list[dict[str, Any]]]:
        """Run a join, made from what follows FROM, over all rows; yield pages of its rows by name.

        Raises
        ------
        ReadError
            the disk is full or fails, or the memory does not suffice.
        CanceledError
            ``interrupt`` was called.
        """
        folders = sorted(self.folder.glob("rows/p=*"))
        sizes = [sum(path.stat().st_size for path in folder.iterdir()) for folder in folders]
        for folder, size in zip(folders, sizes, strict=True):
            passes = 1 + size * self._bytes["rows"] // sum(sizes) // LARGE_BYTES
            for number in range(passes):
                rows = partition_sql(folder / "*.parquet", PARTITIONS, passes, number)
                for page in self._pages(statement(rows)):
                    names = self._names
                    yield [dict(zip(names, row, strict=True)) for row in page]

    def _pages(self, statement: str) -> Iterator[list[Any]]:
        with self._connection.cursor() as cursor:
            self._running = cursor
            try:
                with self.errors():
                    self._wait(cursor, partial(cursor.execute, statement))
                    self._names = [column[0] for column in cursor.description]
                while True:
                    with self.errors():
                        page = self._wait(cursor, partial(cursor.fetchmany, PAGE))
                    if not page:
                        return
                    yield page
            finally:
                self._running = None

    def _wait(self, cursor: duckdb.DuckDBPyConnection, work: Callable[[], T]) -> T:
        """Let a thread do work of DuckDB, which looks at signals between its tasks only, and these may be long."""
        future = self._thread.submit(work)
        try:
            return future.result()
        except BaseException:
            cursor.interrupt()
            wait([future])
            raise

    def interrupt(self) -> None:
        """End a statement that runs; from another thread or a signal handler."""
        self._canceled = True
        running = self._running
        if running is not None:
            running.interrupt()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise DuckDB's errors as ours."""
        import duckdb

        if self._canceled:
            raise CanceledError("the run was told to stop")
        try:
            yield
        except duckdb.InterruptException:
            raise CanceledError("the run was told to stop") from None
        except duckdb.Error as error:
            raise ReadError(
                f"the rows that were read could not be joined in {self.folder.parent}: {error}",
                hint="Free disk space there, or point TMPDIR at a larger disk.",
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown()
        self._connection.close()


class RowWriter:
    """Appends rows to a store, many at a time. For one thread; ``flush`` at the end."""

    def __init__(self, store: RowStore, kind: str) -> None:
        self._store, self._kind = store, kind
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take some rows."""
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows that are in memory."""
        if self._batches:
            self._store.write(self._batches, self._kind)
        self._batches, self._bytes = [], 0
