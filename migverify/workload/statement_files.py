"""Captured statements as Parquet: written batch by batch, read back without a JVM.

Times are UTC timestamps in microseconds, texts of statements are binary: a log holds any bytes the client sent.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from migverify.errors import ReadError, UsageError
from migverify.workload.model import SUMMARY
from migverify.workload.private import private, private_folder
from migverify.workload.sessions import SessionStatement

GROUP_ROWS = 50_000
GROUP_BYTES = 64 << 20
FILE_ROWS = 4_000_000

_TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([
    ("session", pa.string()), ("position", pa.int64()), ("server", pa.string()), ("connection", pa.int64()),
    ("command", pa.string()), ("sql", pa.binary()),
    ("database", pa.string()), ("user", pa.string()), ("host", pa.string()),
    ("start", _TIME), ("end", _TIME), ("clock", _TIME), ("duration_s", pa.float64()),
    ("errno", pa.int32()), ("rows_sent", pa.int64()), ("rows_affected", pa.int64()),
    ("last_insert_id", pa.uint64()), ("insert_id", pa.uint64()),
    ("statement_id", pa.int64()),
    ("parameters", pa.list_(pa.struct([("kind", pa.string()), ("value", pa.binary())]))),
    ("charset", pa.string()), ("sql_mode", pa.string()), ("time_zone", pa.string()), ("autocommit", pa.bool_()),
    ("isolation", pa.string()), ("in_transaction", pa.bool_()), ("state", pa.string()),
    ("partial", pa.string()),
    ("source_file", pa.string()), ("source_offset", pa.int64()), ("source_line", pa.int64()),
    ("source_length", pa.int64()), ("number", pa.int64()), ("details", pa.string()),
])  # fmt: skip
"""One row for each statement, sorted by session and position.

``start`` is computed from ``end`` and the duration where the capture tells those two only. ``partial`` says why a
statement cannot be replayed or judged as it is; it is empty, never NULL, when there is no reason. ``state`` and
``details`` are JSON objects or empty.
"""

_REPEATED = [
    "session", "server", "command", "database", "user", "host", "charset", "sql_mode", "time_zone", "isolation",
    "state", "partial", "source_file", "details",
]  # fmt: skip
_ENCODINGS = dict.fromkeys(
    ("position", "start", "end", "source_offset", "source_line", "number"), "DELTA_BINARY_PACKED"
)
"""A dictionary for what does not repeat costs a third of the time of writing, and room."""


class StatementFiles:
    """Writes statements into files ``statements-00000.parquet`` and so on of a folder, which is made if missing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: list[SessionStatement] = []
        self._bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self._files = 0
        self._rows = 0
        private_folder(folder, exist_ok=True)

    def add(self, statement: SessionStatement) -> None:
        """Take in one statement."""
        self._held.append(statement)
        self._bytes += len(statement.record.sql) + len(statement.state.rest)
        if len(self._held) >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._write()

    def close(self) -> None:
        """Write what is left; a capture without statements still has a file with its columns."""
        if self._held or not self._files:
            self._write()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self) -> None:
        if self._writer is None:
            path = self._folder / f"statements-{self._files:05d}.parquet"
            os.close(private(path, os.O_WRONLY | os.O_CREAT))
            self._writer = pq.ParquetWriter(
                path, SCHEMA, compression="zstd", use_dictionary=_REPEATED, column_encoding=_ENCODINGS
            )
            self._files += 1
        table = table_of(self._held)
        self._writer.write_table(table)
        self._rows += len(table)
        self._held, self._bytes = [], 0
        if self._rows >= FILE_ROWS:
            self._writer.close()
            self._writer = None
            self._rows = 0


def table_of(statements: Sequence[SessionStatement]) -> pa.Table:
    """Return statements as a table of ``SCHEMA``."""
    records = [statement.record for statement in statements]
    states = [statement.state for statement in statements]
    starts = [
        record.end - record.duration
        if record.start is None and record.end is not None and record.duration is not None
        else record.start
        for record in records
    ]
    columns: list[list[object]] = [
        [one.session for one in statements], [one.position for one in statements],
        [one.server for one in records], [one.session for one in records],
        [one.command.value for one in records], [one.sql for one in records],
        [one.database for one in states], [one.user for one in records], [one.host for one in records],
        [*starts], [one.end for one in records], [one.clock for one in records],
        [None if one.duration is None else one.duration / 1e6 for one in records],
        [one.errno for one in records], [one.rows_sent for one in records], [one.rows_affected for one in records],
        [one.last_insert_id for one in records], [one.insert_id for one in records],
        [one.statement_id for one in records],
        [
            None if one.parameters is None else [{"kind": p.kind, "value": p.value} for p in one.parameters]
            for one in records
        ],
        [one.charset for one in states], [one.sql_mode for one in states], [one.time_zone for one in states],
        [one.autocommit for one in states], [one.isolation for one in states],
        [one.transaction for one in states], [one.rest for one in states],
        [one.partial for one in statements],
        [one.origin.file for one in records], [one.origin.offset for one in records],
        [one.origin.line for one in records], [one.origin.length for one in records],
        [one.number for one in records],
        [json.dumps(one.details, ensure_ascii=False) if one.details else "" for one in records],
    ]  # fmt: skip
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def statement_files(folder: Path) -> list[Path]:
    """Return the files of a complete capture in order.

    Raises UsageError: the folder holds no complete capture.
    """
    found = sorted(folder.glob("statements-*.parquet"))
    if not found or not (folder / SUMMARY).exists():
        raise UsageError(f"{folder} holds no capture.", hint="Make one: migverify workload capture FILE --out DIR.")
    return found


def read_columns(folder: Path, columns: Sequence[str], rows: int = GROUP_ROWS) -> Iterator[dict[str, list[object]]]:
    """Yield batches of a capture's columns in the order of the files; times are Unix microseconds.

    Raises ReadError: a file is damaged, or is none of a capture.
    """
    for path in statement_files(folder):
        try:
            yield from _read_file(path, columns, rows)
        except (pa.ArrowException, OSError) as error:
            first = str(error).partition("\n")[0]
            raise ReadError(
                f"{path} cannot be read, it may be cut or damaged: {first}", hint="Make the capture again."
            ) from error


def _read_file(path: Path, columns: Sequence[str], rows: int) -> Iterator[dict[str, list[object]]]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=rows, columns=list(columns)):
            yield {
                name: (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }


def read_rows(folder: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a capture by column; see ``read_columns``."""
    for batch in read_columns(folder, columns):
        for row in zip(*(batch[name] for name in columns), strict=True):
            yield dict(zip(columns, row, strict=True))
