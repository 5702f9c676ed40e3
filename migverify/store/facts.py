"""Keyed facts with their latest state: row diffs by key, findings of rules and guards by window and key.

Every state that was ever written stays, numbered in the order of its writing; a second table points from each key to
its last number, in the same transaction. A finding without a kind withdraws the one before it: a window that is
evaluated again starts so, and nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Select, Table, bindparam, func, insert, select, union_all
from sqlalchemy.dialects import mysql, sqlite
from sqlalchemy.sql.compiler import SQLCompiler

from migverify.store import schema as t
from migverify.store.codec import DIFF_COLUMNS, digest
from migverify.store.schema import IN_LIST

Page = list[tuple[int, tuple[Any, ...]]]
"""Facts by number: the number, and the columns that ``FactTables`` names."""

WITHDRAWN = ""
"""The kind of a finding that takes back the earlier one of its window and key."""


@dataclass(frozen=True, slots=True)
class FactTables:
    """The two tables of one sort of facts; ``state`` is the column of ``heads`` by which they are selected."""

    rows: Table
    heads: Table
    state: Column[Any]
    columns: tuple[str, ...]


ROW_DIFFS = FactTables(t.row_diffs, t.row_diff_heads, t.row_diff_heads.c.state, DIFF_COLUMNS)
FINDINGS = FactTables(t.findings, t.finding_heads, t.finding_heads.c.kind, ("body",))


def append(connection: Connection, facts: FactTables, scope: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add facts; each is the last of its key from here on, also within one call."""
    if not rows:
        return
    first = next_number(connection, facts.rows.c.number, facts.rows.c.scope == scope)
    numbered = [{"scope": scope, "number": first + n, **row} for n, row in enumerate(rows)]
    insert_many(connection, facts.rows, numbered)
    if facts is FINDINGS:
        insert_many(connection, t.finding_windows, numbered)
    insert_many(connection, facts.heads, list({row["key_hash"]: row for row in numbered}.values()), replace=True)


def next_number(connection: Connection, column: Column[Any], *where: ColumnElement[bool], first: int = 1) -> int:
    """Return the number after the last one of some rows; ``first`` when there is none."""
    last = connection.scalar(select(func.max(column)).where(*where))
    return first if last is None else int(last) + 1


def insert_many(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], *, replace: bool = False
) -> None:
    """Insert many rows, each with all columns of the table; what else a row holds is left out.

    SQLAlchemy handles each value of each row by itself, which takes twice as long as SQLite needs to store it.
    The columns written here are plain texts, numbers and bytes: they go to the driver as they are.

    Parameters
    ----------
    replace
        Replace the row of the same primary key.
    """
    if not rows:
        return
    names = [column.name for column in table.columns]
    moved = [column.name for column in table.columns if not column.primary_key]
    plain = connection.dialect.name in ("sqlite", "mysql", "mariadb")
    if not replace:
        statement: Any = insert(table)
    elif connection.dialect.name in ("mysql", "mariadb"):
        upsert = mysql.insert(table)
        statement = upsert.on_duplicate_key_update({name: upsert.inserted[name] for name in moved})
    else:
        if plain:
            put: Any = sqlite.insert(table)
        else:
            from sqlalchemy.dialects import postgresql  # slow to load, and few stores are on it

            put = postgresql.insert(table)
        keys = [column.name for column in table.primary_key]
        statement = put.on_conflict_do_update(index_elements=keys, set_={name: put.excluded[name] for name in moved})
    compiled = statement.compile(dialect=connection.dialect, column_keys=names)
    # Only where a value is a plain `?` or `%s`: PostgreSQL's drivers want casts, which SQLAlchemy knows to add.
    if plain and isinstance(compiled, SQLCompiler) and compiled.positiontup:
        connection.exec_driver_sql(str(compiled), [*map(itemgetter(*compiled.positiontup), rows)])
    else:
        connection.execute(statement, [{name: row[name] for name in names} for row in rows])


def page(
    connection: Connection, facts: FactTables, scope: int, states: Sequence[str] | None, after: int, limit: int,
    window: str | None = None,
) -> Page:  # fmt: skip
    """Return number and columns of the next last facts by number; of these states only, or all but withdrawn ones.

    ``window``: of these findings only those of a window, by the index of windows.
    """
    heads, state, windows = facts.heads.c, facts.state, t.finding_windows.c
    if window is None and states is None:
        numbers = connection.scalars(_next_numbers(facts), {"scope": scope, "after": after, "most": limit}).all()
        return _facts_of(connection, facts, scope, numbers)
    if window is not None:
        query = select(windows.number).where(
            windows.scope == scope, windows.window_hash == digest(window), windows.number > after,
            heads.scope == scope, heads.number == windows.number,
            state != WITHDRAWN if states is None else state.in_(list(states)),
        )  # fmt: skip
    else:
        # One range of the index for each state: skipping others costs nothing.
        following = select(heads.number).where(heads.scope == scope, heads.number > after)
        first = following.order_by(heads.number).limit(limit)
        ranges = [first.where(state == one).subquery() for one in dict.fromkeys(states or ())]
        if not ranges:
            return []
        query = select(union_all(*(select(part.c.number) for part in ranges)).subquery().c.number)
    numbers = connection.scalars(query.order_by(query.selected_columns.number).limit(limit)).all()
    return _facts_of(connection, facts, scope, numbers)


def _facts_of(connection: Connection, facts: FactTables, scope: int, numbers: Sequence[int]) -> Page:
    found: Page = []
    for start in range(0, len(numbers), IN_LIST):
        values = {"scope": scope, "numbers": numbers[start : start + IN_LIST]}
        found += [(int(row[0]), tuple(row[1:])) for row in connection.execute(_rows_by_number(facts), values)]
    return found


# Made once, as those of ``migverify.store.runs`` are.
@cache
def _next_numbers(facts: FactTables) -> Select[Any]:
    heads = facts.heads.c
    mine = heads.scope == bindparam("scope"), heads.number > bindparam("after"), facts.state != WITHDRAWN
    return select(heads.number).where(*mine).order_by(heads.number).limit(bindparam("most"))


@cache
def _rows_by_number(facts: FactTables) -> Select[Any]:
    table = facts.rows.c
    mine = table.scope == bindparam("scope"), table.number.in_(bindparam("numbers", expanding=True))
    return select(table.number, *(table[name] for name in facts.columns)).where(*mine).order_by(table.number)
