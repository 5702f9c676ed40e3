"""Records of a capture as columns.

A column is an array of integers; texts that repeat (users, databases, reasons) are places in a list of names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from migverify.spark.statements import SCHEMA
from migverify.workload.model import Command, Origin, Parameter, Record
from migverify.workload.sessions import EDGES
from migverify.workload.state import Short

NONE = np.iinfo(np.int64).min
"""What stands for a value that a record does not have."""
RUN_ROW_BYTES = 180
"""What a row takes beside its text."""

COMMANDS = tuple(Command)
COMMAND_CODES = {command: code for code, command in enumerate(COMMANDS)}
NUMBERS = (
    "session", "time", "number", "start", "end", "clock", "duration", "errno", "rows_sent", "rows_affected",
    "last_insert_id", "insert_id", "offset", "line", "length", "statement_id",
)  # fmt: skip
TEXTS = ("server", "user", "host", "database", "partial", "details", "file")
SMALL = ("command", "edge", "plain", "ids", "rank")
"""``plain``: 1 where the text can change nothing of its session's state but begin a transaction, else a place in
``SHORTS`` or 0."""
SHORTS: tuple[Short | None, ...] = (None, None, "end", "open", "on", "off")
FIELDS = (*NUMBERS, *TEXTS, *SMALL)
_HIGHEST = 1 << 63
ORDER = ("server", "session", "time", "edge", "number", "rank", "offset")

PARAMETERS = SCHEMA.field("parameters").type

Column: TypeAlias = NDArray[Any]
Key: TypeAlias = tuple[int, ...]


class Names:
    """Texts that repeat, each with its place; None is -1."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str | None) -> int:
        """Return the place of a text, a new one where it is new."""
        if text is None:
            return -1
        found = self._places.get(text)
        if found is None:
            found = self._places[text] = len(self.texts)
            self.texts.append(text)
        return found

    def text(self, place: int) -> str | None:
        """Return the text at a place."""
        return None if place < 0 else self.texts[place]

    def ranks(self) -> NDArray[np.int64]:
        """Return the rank of each text among all, in the order of texts."""
        order = sorted(range(len(self.texts)), key=self.texts.__getitem__)
        ranks = np.empty(len(order) + 1, np.int64)
        ranks[order] = np.arange(len(order))
        ranks[-1] = -1
        return ranks


@dataclass(slots=True)
class Rows:
    """Records as columns of ``FIELDS``, their texts, and their bound values where any has some."""

    columns: dict[str, Column]
    sql: pa.BinaryArray
    parameters: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.sql)

    @property
    def bytes(self) -> int:
        """What the rows take in memory, about."""
        return len(self) * RUN_ROW_BYTES + text_bytes(self.sql)

    def take(self, places: NDArray[np.int64]) -> Rows:
        """Return the rows at some places."""
        columns = {
            name: one[: len(places)] if is_constant(one) and len(places) <= len(one) else one[places]
            for name, one in self.columns.items()
        }
        at = pa.array(places)
        return Rows(columns, self.sql.take(at), None if self.parameters is None else self.parameters.take(at))

    def part(self, start: int, end: int) -> Rows:
        """Return the rows from one place to another."""
        columns = {name: one[start:end] for name, one in self.columns.items()}
        count = end - start
        bound = None if self.parameters is None else self.parameters.slice(start, count)
        return Rows(columns, self.sql.slice(start, count), bound)

    @property
    def bound(self) -> pa.Array:
        """The bound values, NULL where a row has none."""
        return pa.nulls(len(self), PARAMETERS) if self.parameters is None else self.parameters

    def key(self, at: int, ranks: NDArray[np.int64]) -> Key:
        """Return what orders a row among all."""
        columns = self.columns
        return (int(ranks[columns["server"][at]]), *(int(columns[name][at]) for name in ORDER[1:]))


def text_bytes(sql: pa.BinaryArray) -> int:
    """Return the bytes of the texts of an array."""
    if not len(sql):
        return 0
    offsets = np.frombuffer(sql.buffers()[1], np.int32)
    return int(offsets[sql.offset + len(sql)] - offsets[sql.offset])


def constant(value: int, count: int, name: str) -> Column:
    """Return a column that holds one value: it takes no room, and most columns of a log are such."""
    return np.broadcast_to(np.array(value, type_of(name)), (count,))


def is_constant(column: Column) -> bool:
    """Tell whether ``constant`` made a column."""
    return column.strides == (0,)


def joined(parts: Sequence[Rows]) -> Rows:
    """Return rows behind each other."""
    if len(parts) == 1:
        return parts[0]
    count = sum(map(len, parts))
    columns = {}
    for name in parts[0].columns:
        found = [part.columns[name] for part in parts]
        same = all(map(is_constant, found)) and len({int(one[0]) for one in found if len(one)}) == 1
        columns[name] = constant(int(found[0][0]), count, name) if same and len(found[0]) else np.concatenate(found)
    bound = None
    if any(part.parameters is not None for part in parts):
        bound = pa.concat_arrays([part.bound for part in parts])
    return Rows(columns, pa.concat_arrays([part.sql for part in parts]), bound)


def in_order(rows: Rows, ranks: NDArray[np.int64]) -> Rows:
    """Return rows sorted by server, session, time, edge, number, file and place in it."""
    keys = []
    for name in ORDER:
        column = rows.columns[name]
        if is_constant(column):
            continue
        column = ranks[column] if name == "server" else column
        if len(column) and (column != column[0]).any():
            keys.append(column)
    if not keys:
        return rows
    return rows.take(np.lexsort(keys[::-1]))


def rows_of(records: Sequence[Record], names: Names, rank: int, plain: Callable[[Record], bool]) -> Rows:
    """Return records as rows; their ``time`` is ``NONE`` where they have none of their own."""
    made: dict[str, list[Any]] = {name: [] for name in FIELDS}
    for record in records:
        own = record.start if record.end is None else record.end
        origin = record.origin
        told = {
            "session": -1 if record.session is None else record.session, "time": own, "number": record.number,
            "start": record.start, "end": record.end, "clock": record.clock, "duration": record.duration,
            "errno": record.errno, "rows_sent": record.rows_sent, "rows_affected": record.rows_affected,
            "last_insert_id": _signed(record.last_insert_id), "insert_id": _signed(record.insert_id),
            "offset": origin.offset, "line": origin.line, "length": origin.length, "statement_id": record.statement_id,
            "command": COMMAND_CODES[record.command], "edge": EDGES.get(record.command, 0), "plain": plain(record),
            "ids": ids_of(record.last_insert_id, record.insert_id), "rank": rank,
            "server": names.place(record.server), "user": names.place(record.user),
            "host": names.place(record.host), "database": names.place(record.database),
            "partial": names.place(record.partial), "file": names.place(origin.file),
            "details": names.place(json.dumps(record.details, ensure_ascii=False) if record.details else ""),
        }  # fmt: skip
        for name, column in made.items():
            value = told[name]
            column.append(NONE if value is None else value)
    columns = {name: np.array(column, type_of(name)) for name, column in made.items()}
    bound = None
    if any(record.parameters is not None for record in records):
        bound = pa.array([_bound(record.parameters) for record in records], PARAMETERS)
    return Rows(columns, pa.array([record.sql for record in records], pa.binary()), bound)


def _bound(parameters: tuple[Parameter, ...] | None) -> list[dict[str, object]] | None:
    return None if parameters is None else [{"kind": one.kind, "value": one.value} for one in parameters]


def record_of(rows: Rows, at: int, names: Names, sql: bytes) -> Record:
    """Return the record that a row was made of, without its insert ids and bound values, which change no state."""
    columns = rows.columns

    def number(name: str) -> int | None:
        value = int(columns[name][at])
        return None if value == NONE else value

    def text(name: str) -> str | None:
        return names.text(int(columns[name][at]))

    session = int(columns["session"][at])
    details = text("details")
    origin = Origin(text("file") or "", *(int(columns[name][at]) for name in ("offset", "line", "length")))
    return Record(
        origin, COMMANDS[columns["command"][at]], sql, None if session < 0 else session, text("user"), text("host"),
        text("database"), number("start"), number("end"), number("clock"), number("duration"), number("errno"),
        number("rows_sent"), number("rows_affected"), int(columns["number"][at]), number("statement_id"),
        partial=text("partial") or "", server=text("server") or "", details=json.loads(details) if details else {},
    )  # fmt: skip


def type_of(name: str) -> Any:
    """Return the type of a column."""
    return np.int64 if name in NUMBERS else np.int32 if name in TEXTS or name == "rank" else np.int8


def _signed(value: int | None) -> int:
    """Return an unsigned number as the signed one of the same bits; ``ids`` tells which are there."""
    return 0 if value is None else value if value < _HIGHEST else value - 2 * _HIGHEST


def ids_of(last: object, own: object) -> int:
    """Return which of both insert ids a record has: 1 the last one, 2 its own."""
    return (last is not None) + 2 * (own is not None)


ROWS = pa.schema([
    *((name, pa.from_numpy_dtype(type_of(name))) for name in FIELDS), ("sql", pa.binary()), ("bound", PARAMETERS),
])  # fmt: skip
"""Rows as they are stored and sent; texts are places in a list of names."""


def batch_of(rows: Rows) -> pa.RecordBatch:
    """Return rows as a batch of ``ROWS``."""
    return pa.record_batch([*(pa.array(rows.columns[name]) for name in FIELDS), rows.sql, rows.bound], schema=ROWS)


def rows_in(batch: pa.RecordBatch) -> Rows:
    """Return the rows of a batch."""
    columns = {name: batch.column(at).to_numpy() for at, name in enumerate(FIELDS)}
    bound = batch.column(len(FIELDS) + 1)
    return Rows(columns, batch.column(len(FIELDS)), None if bound.null_count == len(bound) else bound)
