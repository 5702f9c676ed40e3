"""From the items of a change stream to whole transactions of what is replicated, and their rows one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from migverify.changes.decode import decoder
from migverify.changes.model import Begin, Commit, Idle, Item, Op, Position, Rows, Statement
from migverify_lab.replicator_plan import RowChange, TargetTable

OpenStream: TypeAlias = Callable[[Position], Iterator[Item]]
"""Begins a change stream behind a position."""


@dataclass(frozen=True, slots=True)
class StreamTransaction:
    """One transaction of the stream, cut down to what is in scope."""

    events: tuple[Rows | Statement, ...]
    end: Position
    gtid: str
    time: float


def transactions(items: Iterable[Item], databases: frozenset[str]) -> Iterator[StreamTransaction]:
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
            yield StreamTransaction(tuple(events), item.end, item.gtid, item.time)
            events = []
        elif isinstance(item, Idle) and item.at.file:
            yield StreamTransaction((), item.at, "", item.time)


def row_changes(event: Rows, table: TargetTable, at: Position) -> Iterator[RowChange]:
    """Decode a rows event into changes, one per row.

    Raises
    ------
    ChangeError
        the images do not fit the layout.
    """
    # What SELECT gives of a FLOAT has six digits: written to the target it would be another number.
    rows = decoder(event.table, exact=True).texts(event.images)
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
