"""Statements that ask how far a target has applied, and those of the marker table."""

from __future__ import annotations

from collections.abc import Sequence

from migverify.sql.quoting import quote_name, quote_text

MARKER_NAME_WIDTH = 64
MARKER_COLUMNS = (
    f"name VARCHAR({MARKER_NAME_WIDTH}) NOT NULL PRIMARY KEY, number BIGINT NOT NULL, written DATETIME(6) NOT NULL"
)
"""What a marker table needs; its owner makes it on the source, replication carries it over."""


def qualified(name: str) -> str:
    """Return ``database.table`` quoted."""
    database, _, table = name.partition(".")
    return f"{quote_name(database)}.{quote_name(table)}"


def columns_sql(name: str) -> str:
    """Return the statement that lists the columns of ``database.table``, in lower case."""
    database, _, table = name.partition(".")
    return (
        "SELECT LOWER(COLUMN_NAME) FROM information_schema.COLUMNS "
        f"WHERE TABLE_SCHEMA={quote_text(database)} AND TABLE_NAME={quote_text(table)}"
    )


def checkpoint_sql(name: str, columns: Sequence[str], *, id_column: str, row: str | None, only_global: bool) -> str:
    """Return the statement that reads a checkpoint table; ``row`` is the id of this source's row."""
    where = ["is_global=1"] if only_global else []
    if row is not None:
        where.append(f"{quote_name(id_column)}={quote_text(row)}")
    condition = f" WHERE {' AND '.join(where)}" if where else ""
    return f"SELECT {','.join(map(quote_name, columns))} FROM {qualified(name)}{condition}"


def write_marker_sql(table: str, name: str, number: int) -> str:
    """Return the statement that writes a marker row."""
    return (
        f"REPLACE INTO {qualified(table)} (name, number, written) "
        f"VALUES ({quote_text(name)}, {number}, UTC_TIMESTAMP(6))"
    )


def read_marker_sql(table: str, name: str) -> str:
    """Return the statement that reads a marker's number."""
    return f"SELECT number FROM {qualified(table)} WHERE name={quote_text(name)}"


def syncpoint_sql(table: str) -> str:
    """Return the statement that reads the newest sync point of TiCDC."""
    return f"SELECT MAX(CAST(primary_ts AS UNSIGNED)) FROM {qualified(table)}"
