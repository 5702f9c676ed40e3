"""The last row diff of each key: how it is kept, and how it is read by the page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Insert, Table, delete, insert, select, union_all
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.sql.compiler import SQLCompiler

from migverify.errors import UsageError
from migverify.model import LiveState, RowDiff
from migverify.store import codec
from migverify.store import schema as t
from migverify.store.schema import IN_LIST


def encode_diffs(diffs: Sequence[RowDiff]) -> dict[str, list[dict[str, Any]]]:
    """Return the columns of row diffs by pair, in their order."""
    by_pair: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for diff in diffs:
        by_pair[diff.pair].append(codec.encode_diff(diff))
    return by_pair


def move_heads(
    connection: Connection,
    scope: int,
    heads: dict[bytes, dict[str, Any]],
    *,
    table: Table = t.row_diff_heads,
    changing: Sequence[str] = ("number", "kind", "state"),
) -> None:
    """Point each key at its last row diff (or finding): the one place where a row changes."""
    rows = list(heads.values())
    keys = ("scope", "key_hash")
    match connection.dialect.name:
        case "sqlite":
            lite = sqlite.insert(table)
            moved = {name: lite.excluded[name] for name in changing}
            insert_many(connection, lite.on_conflict_do_update(index_elements=keys, set_=moved), rows)
        case "postgresql":
            post = postgresql.insert(table)
            moved = {name: post.excluded[name] for name in changing}
            insert_many(connection, post.on_conflict_do_update(index_elements=keys, set_=moved), rows)
        case "mysql" | "mariadb":
            my = mysql.insert(table)
            insert_many(connection, my.on_duplicate_key_update({n: my.inserted[n] for n in changing}), rows)
        case _:
            hashes = list(heads)
            for start in range(0, len(hashes), IN_LIST):
                some = hashes[start : start + IN_LIST]
                connection.execute(delete(table).where(table.c.scope == scope, table.c.key_hash.in_(some)))
            insert_many(connection, insert(table), rows)


def insert_many(connection: Connection, statement: Insert, rows: Sequence[dict[str, Any]]) -> None:
    """Run one insert for many rows of the same columns.

    SQLAlchemy handles each value of each row by itself, which takes twice as long as SQLite needs to store it.
    The columns written here are plain texts, numbers and bytes: they go to the driver as they are.
    """
    compiled = statement.compile(dialect=connection.dialect, column_keys=list(rows[0]))
    # Only where a value is a plain `?` or `%s`: other drivers want casts, which SQLAlchemy knows to add.
    plain = connection.dialect.name in ("sqlite", "mysql", "mariadb")
    names = compiled.positiontup if plain and isinstance(compiled, SQLCompiler) else None
    if names is not None:
        connection.exec_driver_sql(str(compiled), [*map(itemgetter(*names), rows)])
    else:
        connection.execute(statement, rows)


def head_numbers(connection: Connection, scope: int, states: Sequence[LiveState], after: int, limit: int) -> list[int]:
    """Numbers of the next heads of these states. One index range per state: skipping costs nothing."""
    heads = t.row_diff_heads.c
    ranges = [
        select(heads.number)
        .where(heads.scope == scope, heads.state == state.value, heads.number > after)
        .order_by(heads.number)
        .limit(limit)
        .subquery()
        for state in states
    ]
    together = union_all(*(select(part.c.number) for part in ranges)).subquery()
    query = select(together.c.number).order_by(together.c.number).limit(limit)
    return [int(number) for number in connection.scalars(query)]


def live_states(states: Sequence[str] | None) -> list[LiveState]:
    """Return the live states of these names, all of them for None; ``UsageError`` for an unknown name."""
    if states is None:
        return list(LiveState)
    try:
        return list(dict.fromkeys(LiveState(state) for state in states))
    except ValueError as exc:
        known = ", ".join(LiveState)
        raise UsageError(f"there is no live state like this: {exc}", hint=f"The states are {known}.") from exc
