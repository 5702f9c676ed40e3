"""The lab's reverse feed: carries what the target has to the source by comparing whole small tables, again and again.

Not a change feed: the lab's TiDB has no TiKV that one could read from, and so no TiCDC. It makes the source's tables
equal to the target's, in rounds. That is enough for rehearsals of tables that fit in memory, and for nothing else. Like
a real one it must never run beside a forward feed: it takes back what that one has not brought yet.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.sql.quoting import quote_name
from migverify_lab.columns import unique_key
from migverify_lab.cutover import CANARY, DATABASE, FEED_USER, rehearsal, server_as
from migverify_lab.session import connect, text_literal

if TYPE_CHECKING:
    from pymysql.connections import Connection

PAUSE = 0.3
SCOPES = {"none": (), "canary": (CANARY,), "all": (CANARY, f"{DATABASE}.customers", f"{DATABASE}.orders")}


@dataclass(frozen=True, slots=True)
class TableDifference:
    """What makes a table of the source equal to the target's: rows to be put, keys to be taken away."""

    put: list[tuple[str | None, ...]]
    gone: list[tuple[str | None, ...]]


def difference(
    source: list[tuple[str | None, ...]], target: list[tuple[str | None, ...]], key: tuple[int, ...]
) -> TableDifference:
    """Compare two readings by their key's places."""

    def by_key(rows: list[tuple[str | None, ...]]) -> dict[tuple[str | None, ...], tuple[str | None, ...]]:
        return {tuple(row[place] for place in key): row for row in rows}

    old, new = by_key(source), by_key(target)
    return TableDifference([row for name, row in new.items() if old.get(name) != row], [n for n in old if n not in new])


def be_feed(directory: Path, arguments: Sequence[str], stop: threading.Event) -> None:
    """Carry the tables of a scope until stopped."""
    one, tables = rehearsal(directory), SCOPES[arguments[0]]
    with connect(server_as(one.pair.source, FEED_USER)) as source, connect(one.pair.target) as target:
        keys = {table: unique_key(target, *table.split(".")) for table in tables}
        while not stop.wait(PAUSE):
            for table in tables:
                _carry(source, target, table, keys[table])


def _carry(source: Connection, target: Connection, table: str, key: Any) -> None:
    names, new = _read(target, table)
    _, old = _read(source, table)
    places = tuple(names.index(column) for column in key)
    found = difference(old, new, places)
    if not found.put and not found.gone:
        return
    source.begin()
    with source.cursor() as cursor:
        for row in found.gone:
            where = " AND ".join(f"{quote_name(names[place])} = {_literal(value)}"
                                 for place, value in zip(places, row, strict=True))  # fmt: skip
            cursor.execute(f"DELETE FROM {table} WHERE {where}")  # noqa: S608
        for start in range(0, len(found.put), 200):
            rows = ", ".join(f"({', '.join(map(_literal, row))})" for row in found.put[start : start + 200])
            cursor.execute(f"REPLACE INTO {table} ({', '.join(map(quote_name, names))}) VALUES {rows}")  # noqa: S608
    source.commit()


def _read(connection: Connection, table: str) -> tuple[list[str], list[tuple[str | None, ...]]]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")  # noqa: S608
        names = [str(column[0]) for column in cursor.description]
        rows = [tuple(None if value is None else str(value) for value in row) for row in cursor.fetchall()]
    return names, rows


def _literal(text: str | None) -> str:
    return "NULL" if text is None else text_literal(text)
