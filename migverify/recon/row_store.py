"""Rows of a local join, and DuckDB that joins them: memory does not grow with the tables.

Few rows stay in memory, and DuckDB reads them there. More are appended to Parquet files that DuckDB divides by the hash
of the key; the join runs over one partition at a time, and over a part of it where it is large. So the largest
aggregation fits ``MEMORY``, and a sort goes to disk.
DuckDB reads and writes the folder of its store and nothing else: no network, no extensions.
"""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from migverify.errors import CanceledError, ReadError
from migverify.recon.join import PAGE
from migverify.recon.rows import PartCombiner, batches_of
from migverify.sql.recon_join import allow_folder_sql, parquet_sql, partition_sql, sorted_rows_sql, write_partitions_sql

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

T = TypeVar("T")

MEMORY = "800MB"
"""Memory of DuckDB; Python's batches come on top."""
THREADS = 2
PARTITIONS = 16
WAITING = "waiting"
"""The name of rows in memory."""
FLUSH_BYTES = 64 << 20
"""Bytes of rows in memory, before they are written."""
LARGE_BYTES = 96 << 20
"""Bytes of rows, not compressed, that one statement joins."""


class RowStore:
    """Rows in a folder; see ``migverify.recon.rows.COLUMNS``. Close it before the folder is removed."""

    def __init__(self, folder: Path) -> None:
        import duckdb

        self.folder = folder
        self._waiting: dict[str, list[pa.RecordBatch]] = {"rows": [], "parts": []}
        self._sizes: Counter[str] = Counter()
        self._written: Counter[str] = Counter()
        self._rows: Counter[str] = Counter()
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
        for counts in (self._sizes, self._written, self._rows):
            counts.clear()
        self._waiting = {"rows": [], "parts": []}

    def add(self, batch: pa.RecordBatch, *, parts: bool = False) -> None:
        """Take rows; ``parts`` are combined before they are joined. From any thread.

        Raises ReadError: the disk is full or fails.
        """
        from pyarrow import compute

        kind = "parts" if parts else "rows"
        with self._lock:
            self._rows[kind] += compute.sum(batch["n"]).as_py() or 0
            waiting = self._waiting[kind]
            waiting.append(batch)
            self._sizes[kind] += batch.nbytes
            if self._sizes[kind] <= FLUSH_BYTES:
                return
            self._waiting[kind] = []
            del self._sizes[kind]
        self._write(waiting, kind)

    def _write(self, batches: list[pa.RecordBatch], kind: str) -> None:
        import pyarrow as pa

        table = pa.Table.from_batches(batches)
        with self._lock:
            self._files += 1
            name = str(self._files)
            self._written[kind] += table.nbytes
        with self.errors(), self._connection.cursor() as cursor:
            cursor.register(WAITING, table)
            cursor.execute(write_partitions_sql(WAITING, self.folder / kind, name, PARTITIONS))

    def _in_memory(self, kind: str) -> list[pa.RecordBatch] | None:
        """Return all rows where they are in memory; None where they are in files, in which all of them are then."""
        batches, self._waiting[kind] = self._waiting[kind], []
        if not self._written[kind]:
            return batches
        if batches:
            self._write(batches, kind)
        return None

    def combine(self, combiner: PartCombiner) -> None:
        """Combine the parts of groups; they become rows."""
        if not self._rows["parts"]:
            return
        batches, before = self._in_memory("parts"), self._rows["rows"]
        table = WAITING if batches else parquet_sql(self.folder / "parts" / "*" / "*.parquet")
        parts = (part for page in self._pages(sorted_rows_sql(table), batches) for part in page)
        for batch in batches_of(combiner.rows(parts)):
            self.add(batch)
        self._refuse_lost(self._rows["parts"], self._rows["rows"] - before)
        shutil.rmtree(self.folder / "parts", ignore_errors=True)

    def check_joined(self, rows: int) -> None:
        """Raise ReadError unless a join counted as many rows as were written: a file that is gone is no agreement."""
        self._refuse_lost(self._rows["rows"], rows)

    def _refuse_lost(self, written: int, counted: int) -> None:
        if written != counted:
            raise ReadError(
                f"{written:,} rows were written to {self.folder.parent}, and {counted:,} were read back",
                hint="Another process changed the files there, or the disk fails. Point TMPDIR at another disk.",
            )

    def join(self, statement: Callable[[str], str]) -> Iterator[dict[str, Any]]:
        """Run a join, made from what follows FROM, over all rows; yield its rows by name.

        Raises ReadError: the disk is full or fails, or the memory does not suffice; CanceledError: ``interrupt`` was
        called.
        """
        batches = self._in_memory("rows")
        if batches is not None:
            yield from self._named(statement(f"{WAITING} AS r"), batches)
            return
        folders = sorted(self.folder.glob("rows/p=*"))
        sizes = [sum(path.stat().st_size for path in folder.iterdir()) for folder in folders]
        for folder, size in zip(folders, sizes, strict=True):
            passes = 1 + size * self._written["rows"] // sum(sizes) // LARGE_BYTES
            for number in range(passes):
                rows = partition_sql(folder / "*.parquet", PARTITIONS, passes, number)
                yield from self._named(statement(rows))

    def _named(self, statement: str, batches: list[pa.RecordBatch] | None = None) -> Iterator[dict[str, Any]]:
        for page in self._pages(statement, batches):
            names = self._names
            yield from (dict(zip(names, row, strict=True)) for row in page)

    def _pages(self, statement: str, batches: list[pa.RecordBatch] | None = None) -> Iterator[list[Any]]:
        """Run a statement over files, or over the rows of ``batches``."""
        if batches is not None and not batches:
            return
        with self._connection.cursor() as cursor:
            self._running = cursor
            try:
                with self.errors():
                    if batches:
                        import pyarrow as pa

                        cursor.register(WAITING, pa.Table.from_batches(batches))
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
            raise CanceledError("the run was canceled")
        try:
            yield
        except duckdb.InterruptException:
            raise CanceledError("the run was canceled") from None
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
