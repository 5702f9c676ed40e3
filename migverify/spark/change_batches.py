"""Changes as Arrow record batches: the rows of ``read_archive`` and of the Parquet outputs.

One row per changed row, or per table that a statement names. ``(file, position, ordinal)``
names a change: ``position`` is the end of its event in the file, ``ordinal`` counts from 0 inside its transaction. The
rows of an XA transaction have the GTID and the time of its commit, and the file and position where they were prepared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import chain

import pyarrow as pa

from migverify.changes.decode import decoder
from migverify.changes.model import Begin, Item, Op, Rows, Statement, TableMap, Texts

BATCH_ROWS = 8192
_LAYOUTS = 1000
_CACHED_KEYS = 200
_PIECE_VALUES = 1500

_IMAGE = pa.map_(pa.string(), pa.string())
SCHEMA = pa.schema([
    ("op", pa.string()), ("database", pa.string()), ("table", pa.string()), ("before", _IMAGE), ("after", _IMAGE),
    ("gtid", pa.string()), ("file", pa.string()), ("position", pa.int64()), ("ordinal", pa.int64()),
    ("time", pa.timestamp("us", "UTC")), ("sql", pa.string()),
])  # fmt: skip
"""``before`` and ``after`` map column -> the text that SELECT gives; null where a change has no such image."""

SPARK_SCHEMA = (
    "op string, database string, table string, before map<string,string>, after map<string,string>, gtid string,"
    " file string, position bigint, ordinal bigint, time timestamp, sql string"
)


class TableFilter:
    """Which tables are wanted: patterns with ``*`` and ``?`` on ``database.table``; none means every table."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._patterns = tuple(patterns)
        self._known: dict[tuple[str, str], bool] = {}

    def __call__(self, database: str, table: str) -> bool:
        """Whether the table is wanted."""
        if not self._patterns:
            return True
        found = self._known.get((database, table))
        if found is None:
            found = any(fnmatchcase(f"{database}.{table}", pattern) for pattern in self._patterns)
            self._known[database, table] = found
        return found

    def named(self, statement: Statement) -> list[tuple[str, str]]:
        """The wanted tables that a statement names: ``*`` for a whole database, two empty names where none is known.

        Statements on a database, and those whose tables are not known, are always wanted.
        """
        if not statement.tables:
            return [("", "")]
        return [(one, table or "*") for one, table in statement.tables if not table or self(one, table)]


def batches(items: Iterator[Item], wanted: TableFilter, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """Decode a stream into record batches of :data:`SCHEMA`, about ``batch_rows`` rows each."""
    rows = _Columns()
    gtid, micros, ordinal = "", 0, 0
    for item in items:
        kind = type(item)
        if kind is Rows:
            if wanted(item.table.database, item.table.table):  # type: ignore[union-attr]
                ordinal += rows.add_rows(item, gtid, micros, ordinal)  # type: ignore[arg-type]
        elif isinstance(item, Begin):
            gtid, micros, ordinal = item.gtid, round(item.time * 1_000_000), 0
        elif isinstance(item, Statement):
            names = wanted.named(item)
            rows.add_statement(item, names, gtid, micros, ordinal)
            ordinal += len(names)
        if rows.count >= batch_rows:
            yield rows.batch()
            rows = _Columns()
    if rows.count:
        yield rows.batch()


@lru_cache(maxsize=_LAYOUTS)
def _names(table: TableMap) -> tuple[str, ...]:
    return tuple(column.name for column in table.columns)


@lru_cache(maxsize=_CACHED_KEYS)
def _repeated(names: tuple[str, ...], times: int) -> pa.Array:
    """Column names of so many images; making them anew would cost as much as the values."""
    return pa.array(names * times, pa.string())


class _Images:
    """One map column: keys and values of all rows behind each other, and where each row's begin."""

    def __init__(self) -> None:
        self._values: list[str | None] = []
        self._pieces: list[pa.Array] = []
        self._count = 0
        self._offsets: list[int | None] = []
        self._runs: list[tuple[tuple[str, ...], int]] = []  # column names, and how many images in a row have them

    def add(self, names: tuple[str, ...], texts: Sequence[Texts]) -> None:
        """Append an image per row."""
        start, count, width = self._count, len(texts), len(names)
        self._values += chain.from_iterable(texts)
        self._count += width * count
        self._offsets += range(start, self._count, width)
        if self._runs and self._runs[-1][0] is names:
            count += self._runs.pop()[1]
        self._runs.append((names, count))
        if len(self._values) >= _PIECE_VALUES:
            self._pack()

    def _pack(self) -> None:
        """Copy the texts out of Python soon: strings that live long cost the decoder its warm memory."""
        self._pieces.append(pa.array(self._values, pa.string()))
        self._values.clear()

    def nothing(self, count: int) -> None:
        """Append rows without an image."""
        self._offsets += [None] * count

    def array(self) -> pa.Array:
        """The column."""
        self._pack()
        offsets = pa.array([*self._offsets, self._count], pa.int32())
        keys = [self._keys(names, count) for names, count in self._runs]
        joined = pa.concat_arrays(keys) if keys else pa.array([], pa.string())
        return pa.MapArray.from_arrays(offsets, joined, pa.concat_arrays(self._pieces))

    @staticmethod
    def _keys(names: tuple[str, ...], count: int) -> pa.Array:
        # Rounded up, so that few sizes are kept.
        kept = _repeated(names, 1 << max(0, count - 1).bit_length())
        return kept.slice(0, len(names) * count)


class _Columns:
    """Rows of one batch, column by column."""

    def __init__(self) -> None:
        self.count = 0
        self.same: list[list[object]] = [[] for _ in range(7)]  # op, database, table, gtid, file, position, time
        self.ordinals: list[int] = []
        self.sql: list[str | None] = []
        self.before, self.after = _Images(), _Images()

    def add_rows(self, item: Rows, gtid: str, micros: int, ordinal: int) -> int:
        """Take one rows event; returns how many changes it holds."""
        table, op = item.table, item.op
        texts = decoder(table).texts(item.images)
        names = _names(table)
        if op is Op.UPDATE:
            count = len(texts) // 2
            self.before.add(names, texts[0::2])
            self.after.add(names, texts[1::2])
        else:
            count = len(texts)
            filled, empty = (self.after, self.before) if op is Op.INSERT else (self.before, self.after)
            filled.add(names, texts)
            empty.nothing(count)
        self._same(count, (op.value, table.database, table.table, gtid, item.file, item.offset, micros))
        self.ordinals += range(ordinal, ordinal + count)
        self.sql += [None] * count
        return count

    def add_statement(
        self, item: Statement, names: list[tuple[str, str]], gtid: str, micros: int, ordinal: int
    ) -> None:
        """Take a statement, once for each table."""
        for place, name in enumerate(names):
            self._same(1, (item.op.value, *name, gtid, item.file, item.offset, micros))
            self.ordinals.append(ordinal + place)
            self.sql.append(item.sql)
        self.before.nothing(len(names))
        self.after.nothing(len(names))

    def _same(self, count: int, values: tuple[object, ...]) -> None:
        self.count += count
        for column, value in zip(self.same, values, strict=True):
            column += [value] * count

    def batch(self) -> pa.RecordBatch:
        op, database, table, gtid, file, position, micros = self.same
        columns = [op, database, table, self.before.array(), self.after.array(), gtid, file, position, self.ordinals,
                   micros, self.sql]  # fmt: skip
        arrays = [
            column if isinstance(column, pa.Array) else pa.array(column, field.type)
            for column, field in zip(columns, SCHEMA, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
