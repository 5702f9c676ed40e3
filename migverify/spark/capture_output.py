"""Followed rows become tables of statements: what was marked for stretches of rows is filled in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from migverify.spark.capture_rows import COMMANDS, NONE, Names, Rows, is_constant
from migverify.spark.statements import SCHEMA
from migverify.workload.sessions import HELD_BYTES, OPEN_AT_END, PREPARED_BEFORE, joined_reasons
from migverify.workload.state import State

_MICROS = 1e6


@dataclass(slots=True)
class Marks:
    """What is known of a slice's rows: each list holds the row from which on something holds."""

    states: list[tuple[int, int]] = field(default_factory=list)
    sessions: list[tuple[int, str, int, str]] = field(default_factory=list)
    open: list[tuple[int, int]] = field(default_factory=list)
    unprepared: list[int] = field(default_factory=list)


def table_of_rows(rows: Rows, marks: Marks, names: Names, states_told: Sequence[State]) -> pa.Table:
    """Return rows as a table of ``SCHEMA``."""
    count = len(rows)
    columns = rows.columns
    texts = pa.array(names.texts, pa.string())

    def text(name: str) -> pa.Array:
        return _texts(texts, columns[name])

    first = np.array([at for at, *_ in marks.sessions])
    lengths = np.diff([*first, count])
    bases = np.array([base - at for at, _, base, _ in marks.sessions])
    named = np.repeat(np.arange(len(first)), lengths)
    states = _filled(marks.states, states_told, count)
    start = columns["start"]
    computed = (start == NONE) & (columns["end"] != NONE) & (columns["duration"] != NONE)
    if computed.any():
        start = np.where(computed, columns["end"] - columns["duration"], start)
    duration = columns["duration"]
    ids = columns["ids"]
    number = columns["session"]
    made: dict[str, pa.Array] = {
        "session": pa.array([name for _, name, _, _ in marks.sessions]).take(pa.array(named)),
        "position": pa.array(np.arange(count) + np.repeat(bases, lengths)),
        "server": text("server"), "connection": pa.array(number, mask=number < 0),
        "command": pa.array([one.value for one in COMMANDS]).take(pa.array(columns["command"])),
        "sql": rows.sql, "user": text("user"), "host": text("host"),
        "start": _number(start), "end": _number(columns["end"]), "clock": _number(columns["clock"]),
        "duration_s": pa.array(duration / _MICROS, mask=duration == NONE),
        "errno": _number(columns["errno"]), "rows_sent": _number(columns["rows_sent"]),
        "rows_affected": _number(columns["rows_affected"]),
        "last_insert_id": pa.array(columns["last_insert_id"].view(np.uint64), mask=ids & 1 == 0),
        "insert_id": pa.array(columns["insert_id"].view(np.uint64), mask=ids & 2 == 0),
        "partial": _partial(columns["partial"], marks, named, names),
        "source_file": text("file"), "source_offset": pa.array(columns["offset"]),
        "source_line": pa.array(columns["line"]), "source_length": pa.array(columns["length"]),
        "number": pa.array(columns["number"]), "details": text("details"),
        "statement_id": _number(columns["statement_id"]), "parameters": rows.bound,
        **states,
    }  # fmt: skip
    arrays = [made[one.name].cast(one.type) if one.name in made else pa.nulls(count, one.type) for one in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _filled(marks: list[tuple[int, int]], told_states: Sequence[State], count: int) -> dict[str, pa.Array]:
    """Return the columns of the states that hold from some rows on."""
    used, places = np.unique([code for _, code in marks], return_inverse=True)
    codes = pa.array(np.repeat(places, np.diff([*(at for at, _ in marks), count])))
    states = [told_states[code] for code in used]
    told = {
        "database": [one.database for one in states], "charset": [one.charset for one in states],
        "sql_mode": [one.sql_mode for one in states], "time_zone": [one.time_zone for one in states],
        "autocommit": [one.autocommit for one in states], "isolation": [one.isolation for one in states],
        "in_transaction": [one.transaction for one in states], "state": [one.rest for one in states],
    }  # fmt: skip
    return {name: pa.array(values, SCHEMA.field(name).type).take(codes) for name, values in told.items()}


def _partial(own: NDArray[Any], marks: Marks, named: NDArray[Any], names: Names) -> pa.Array:
    count = len(own)
    reasons = ["", *dict.fromkeys(reason for *_, reason in marks.sessions if reason)]
    of_session = np.array([reasons.index(reason) for *_, reason in marks.sessions])
    flags = np.zeros(count, np.int64)
    flags[marks.unprepared] = 1
    for start, end in marks.open:
        flags[start:end] |= 2
    key = (own.astype(np.int64) * len(reasons) + of_session[named]) * 4 + flags
    used, places = np.unique(key, return_inverse=True) if (key != key[0]).any() else (key[:1], np.zeros(count, int))
    texts = []
    for one in used.tolist():
        rest, flag = divmod(one, 4)
        record, reason = divmod(rest, len(reasons))
        told = joined_reasons(names.texts[record], reasons[reason], PREPARED_BEFORE if flag & 1 else "")
        texts.append(joined_reasons(told, OPEN_AT_END if flag & 2 else ""))
    return pa.array(texts, pa.string()).take(pa.array(places))


def _texts(texts: pa.Array, places: NDArray[Any]) -> pa.Array:
    if is_constant(places):
        return pa.repeat(texts[int(places[0])] if places[0] >= 0 else pa.scalar(None, pa.string()), len(places))
    missing = places < 0
    if missing.all():
        return pa.nulls(len(places), pa.string())
    return texts.take(pa.array(places, mask=missing if missing.any() else None))


def _number(column: NDArray[Any]) -> pa.Array:
    if is_constant(column) and column[0] == NONE:
        return pa.nulls(len(column), pa.int64())
    missing = column == NONE
    return pa.array(column, mask=missing if missing.any() else None)


def with_reason(table: pa.Table, reason: str) -> pa.Table:
    """Return statements with one reason more for being partial."""
    partial = table["partial"].combine_chunks().dictionary_encode()
    if isinstance(partial, pa.ChunkedArray):
        partial = partial.combine_chunks()
    texts = pa.array([joined_reasons(one, reason) for one in partial.dictionary.to_pylist()], pa.string())
    return table.set_column(
        table.schema.get_field_index("partial"), SCHEMA.field("partial"), texts.take(partial.indices)
    )


class Held:
    """The rows of one open transaction, until it is known how it ended; on disk when they are many."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "held"
        self._tables: list[pa.Table] = []
        self._bytes = 0
        self._writer: pa.RecordBatchStreamWriter | None = None
        self.reason = ""

    def add(self, table: pa.Table) -> None:
        """Take in rows."""
        self._tables.append(table)
        self._bytes += table.nbytes
        if self._bytes >= HELD_BYTES:
            if self._writer is None:
                self._file = pa.OSFile(str(self._path), "wb")
                self._writer = pa.ipc.new_stream(self._file, SCHEMA)
            for one in self._tables:
                self._writer.write_table(one)
            self._tables, self._bytes = [], 0

    def release(self) -> Iterator[pa.Table]:
        """Yield all rows, and forget them and the reason."""
        if self._writer is not None:
            self._writer.close()
            self._file.close()
            with pa.OSFile(str(self._path), "rb") as file, pa.ipc.open_stream(file) as reader:
                for batch in reader:
                    yield pa.Table.from_batches([batch])
            self._path.unlink()
            self._writer = None
        yield from self._tables
        self._tables, self._bytes, self.reason = [], 0, ""
