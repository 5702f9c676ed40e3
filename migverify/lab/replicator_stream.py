"""From the items of a change stream to whole transactions of what is replicated, and their rows one by one."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

from migverify.changes.decode import decoder
from migverify.changes.model import Begin, Commit, Idle, Item, Op, Position, Rows, Statement, TableMap, Texts
from migverify.lab.replicator_plan import RowChange, TargetTable

OpenStream: TypeAlias = Callable[[Position], Iterator[Item]]
"""Begins a change stream behind a position."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction of the stream, cut down to what is in scope."""

    events: tuple[Rows | Statement, ...]
    end: Position
    gtid: str
    time: float


def transactions(items: Iterable[Item], databases: frozenset[str]) -> Iterator[Transaction]:
    """Yield whole transactions with the events of some databases; one without events only moves the position."""
    events: list[Rows | Statement] = []
    for item in items:
        if isinstance(item, Begin):
            events.clear()  # of one that was cut off and begins again after a reconnect
        elif isinstance(item, Rows):
            if item.table.database in databases:
                events.append(item)
        elif isinstance(item, Statement):
            if in_scope(item.tables, item.database, databases):
                events.append(item)
        elif isinstance(item, Commit):
            yield Transaction(tuple(events), item.end, item.gtid, item.time)
            events = []
        elif isinstance(item, Idle) and item.at.file:
            yield Transaction((), item.at, "", item.time)


_FLOAT, _LONG = 4, 3


def exact_texts(table: TableMap, images: bytes) -> list[Texts]:
    """Decode images; a FLOAT becomes the text of the double of the same value.

    The text that SELECT gives of a FLOAT has six digits on MySQL: written to the target it would be another number.
    So the decoder is told that the four bytes are an integer.
    """
    places = [place for place, column in enumerate(table.columns) if column.type_code == _FLOAT]
    if not places:
        return decoder(table).texts(images)
    rows = []
    for texts in decoder(_with_integers(table)).texts(images):
        row = list(texts)
        for place in places:
            bits = row[place]
            if bits is not None:
                row[place] = repr(struct.unpack("<f", int(bits).to_bytes(4, "little"))[0])
        rows.append(tuple(row))
    return rows


@lru_cache(maxsize=256)
def _with_integers(table: TableMap) -> TableMap:
    columns = (
        replace(column, type_code=_LONG, meta=0, unsigned=True) if column.type_code == _FLOAT else column
        for column in table.columns
    )
    return replace(table, columns=tuple(columns))


def row_changes(event: Rows, table: TargetTable, at: Position) -> Iterator[RowChange]:
    """Decode a rows event into changes, one per row.

    Raises
    ------
    ChangeError
        the images do not fit the layout.
    """
    rows = exact_texts(event.table, event.images)
    if event.op is Op.INSERT:
        for row in rows:
            yield RowChange(Op.INSERT, table, None, row, at)
    elif event.op is Op.DELETE:
        for row in rows:
            yield RowChange(Op.DELETE, table, row, None, at)
    else:
        for before, after in zip(rows[::2], rows[1::2], strict=True):
            yield RowChange(Op.UPDATE, table, before, after, at)


def in_scope(tables: Iterable[tuple[str, str]], database: str, databases: frozenset[str]) -> bool:
    """Whether a statement is about one of the databases; by its current database where it names no table."""
    named = {name for name, _ in tables}
    return bool(named & databases) if named else database in databases
