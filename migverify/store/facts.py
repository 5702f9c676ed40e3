"""Keyed facts with their latest state: row diffs by key, findings of rules and guards by window and key.

Every state that was ever written stays, numbered in the order of its writing; a second table points from each key to
its last number, in the same transaction. A finding without a kind withdraws the one before it: a window that is
evaluated again starts so, and nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from sqlalchemy import Column, Connection, Insert, RowMapping, Table, and_, delete, func, insert, select, union_all
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.sql.compiler import SQLCompiler

from migverify.errors import StoreError
from migverify.store import codec
from migverify.store import schema as t
from migverify.store.schema import IN_LIST

WITHDRAWN = ""
"""The kind of a finding that takes back the earlier one of its window and key."""

_KEY = ("scope", "key_hash")


@dataclass(frozen=True, slots=True)
class Facts:
    """The two tables of one sort of facts; ``state`` is the column of ``heads`` by which they are selected."""

    rows: Table
    heads: Table
    state: Column[Any]


ROW_DIFFS = Facts(t.row_diffs, t.row_diff_heads, t.row_diff_heads.c.state)
FINDINGS = Facts(t.findings, t.finding_heads, t.finding_heads.c.kind)


def append(connection: Connection, facts: Facts, scope: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add facts; each is the last of its key from here on, also within one call."""
    if not rows:
        return
    first = next_number(connection, facts.rows, scope)
    numbered = [{"scope": scope, "number": first + n, **row} for n, row in enumerate(rows)]
    insert_many(connection, insert(facts.rows), numbered)
    if facts is FINDINGS:
        insert_many(connection, insert(t.finding_windows), numbered)
    _move_heads(connection, facts.heads, scope, {row["key_hash"]: row for row in numbered})


def next_number(connection: Connection, table: Table, scope: int, column: str = "number") -> int:
    """Return the number after the last one of a scope; 1 when there is none."""
    last = connection.scalar(select(func.max(table.c[column])).where(table.c.scope == scope))
    return 1 if last is None else int(last) + 1


def _move_heads(connection: Connection, heads: Table, scope: int, last: Mapping[bytes, dict[str, Any]]) -> None:
    """Point each key at its last fact: the one place where a row changes."""
    rows = list(last.values())
    changing = [column.name for column in heads.columns if column.name not in _KEY]
    match connection.dialect.name:
        case "sqlite" | "postgresql" as name:
            put = sqlite.insert(heads) if name == "sqlite" else postgresql.insert(heads)
            moved = {column: put.excluded[column] for column in changing}
            insert_many(connection, put.on_conflict_do_update(index_elements=_KEY, set_=moved), rows)
        case "mysql" | "mariadb":
            my = mysql.insert(heads)
            insert_many(connection, my.on_duplicate_key_update({n: my.inserted[n] for n in changing}), rows)
        case _:
            hashes = list(last)
            for start in range(0, len(hashes), IN_LIST):
                some = heads.c.key_hash.in_(hashes[start : start + IN_LIST])
                connection.execute(delete(heads).where(heads.c.scope == scope, some))
            insert_many(connection, insert(heads), rows)


def insert_many(connection: Connection, statement: Insert, rows: Sequence[dict[str, Any]]) -> None:
    """Run one insert for many rows, each with all columns of the table; what else a row holds is left out.

    SQLAlchemy handles each value of each row by itself, which takes twice as long as SQLite needs to store it.
    The columns written here are plain texts, numbers and bytes: they go to the driver as they are.
    """
    columns = [column.name for column in statement.table.columns]
    compiled = statement.compile(dialect=connection.dialect, column_keys=columns)
    # Only where a value is a plain `?` or `%s`: other drivers want casts, which SQLAlchemy knows to add.
    plain = connection.dialect.name in ("sqlite", "mysql", "mariadb")
    names = compiled.positiontup if plain and isinstance(compiled, SQLCompiler) else None
    if names is not None:
        connection.exec_driver_sql(str(compiled), [*map(itemgetter(*names), rows)])
    else:
        connection.execute(statement, [{name: row[name] for name in columns} for row in rows])


def page(
    connection: Connection, facts: Facts, scope: int, states: Sequence[str] | None, after: int, limit: int
) -> list[RowMapping]:
    """Return the next last facts by number; of these states only, or all that are not withdrawn for None."""
    heads, state = facts.heads.c, facts.state
    following = (heads.scope == scope, heads.number > after)
    if states is None:
        query = select(heads.number).where(*following, state != WITHDRAWN).order_by(heads.number).limit(limit)
    else:
        # One range of the index for each state: skipping others costs nothing.
        ranges = [
            select(heads.number).where(*following, state == one).order_by(heads.number).limit(limit).subquery()
            for one in dict.fromkeys(states)
        ]
        if not ranges:
            return []
        together = union_all(*(select(part.c.number) for part in ranges)).subquery()
        query = select(together.c.number).order_by(together.c.number).limit(limit)
    return _numbered(connection, facts, scope, list(connection.scalars(query)))


def _numbered(connection: Connection, facts: Facts, scope: int, numbers: Sequence[int]) -> list[RowMapping]:
    found: list[RowMapping] = []
    table = facts.rows
    for start in range(0, len(numbers), IN_LIST):
        some = table.c.number.in_(numbers[start : start + IN_LIST])
        found += connection.execute(select(table).where(table.c.scope == scope, some)).mappings()
    return sorted(found, key=lambda row: int(row["number"]))


def encode_finding(rule: str, finding: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a finding; ``StoreError`` for one without key, window or kind."""
    key, window, kind = finding.get("key"), finding.get("window"), finding.get("kind")
    if not isinstance(key, list | tuple) or not isinstance(window, str) or not isinstance(kind, str):
        raise StoreError(f"a finding of {rule} has no `key`, `window` or `kind`: it cannot be stored")
    # Window and key together: the same key in another window is another finding.
    place = codec.encode_json([window, list(key)], f"the key of a finding of {rule}")
    return {
        "key_hash": codec.key_digest(place),
        "kind": kind,
        "body": codec.encode_json(dict(finding), f"a finding of {rule}"),
        "window_hash": codec.text_digest(window),
    }


def window_page(
    connection: Connection, scope: int, window: str, kinds: Sequence[str] | None, after: int, limit: int
) -> list[RowMapping]:
    """Return the next last findings of one window by number; ``kinds`` as the states of ``page``."""
    heads, places = t.finding_heads.c, t.finding_windows.c
    joined = t.finding_windows.join(
        t.finding_heads, and_(heads.scope == places.scope, heads.number == places.number)
    )  # fmt: skip
    kind = heads.kind != WITHDRAWN if kinds is None else heads.kind.in_(list(dict.fromkeys(kinds)))
    mine = and_(places.scope == scope, places.window_hash == codec.text_digest(window), places.number > after)
    query = select(places.number).select_from(joined).where(mine, kind).order_by(places.number).limit(limit)
    return _numbered(connection, FINDINGS, scope, list(connection.scalars(query)))


def has_all_windows(connection: Connection, scope: int) -> bool:
    """Whether the window of every finding is indexed: those of an older migverify are not."""
    first = [connection.scalar(select(func.min(table.c.number)).where(table.c.scope == scope))
             for table in (t.findings, t.finding_windows)]  # fmt: skip
    return bool(first[0] == first[1])
