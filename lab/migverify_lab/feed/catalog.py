"""The catalog of TiDB as the feed needs it, and rows as texts."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from migverify.changes.model import Texts
from migverify.errors import LabError
from migverify.sql.quoting import quote_name, quote_text
from migverify_lab.columns import unique_key
from migverify_lab.feed.model import FeedColumn, FeedTable
from migverify_lab.session import LabServer, connect, query

if TYPE_CHECKING:
    import pymysql

    Connection: TypeAlias = pymysql.connections.Connection[Any]


def text_session(server: LabServer, database: str | None = None) -> Connection:
    """Open a session whose values come as the server's own texts; byte strings as bytes."""
    connection = connect(server, database)
    connection.decoders = {}
    return connection


@dataclass(slots=True)
class Catalog:
    """Definitions of tables, read once until ``forget``; safe for several threads."""

    server: LabServer
    _tables: dict[str, FeedTable] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def table(self, database: str, table: str) -> FeedTable:
        """Return a table's definition.

        Raises
        ------
        LabError
            there is no such table, or it has no key: TiCDC does not carry such tables (``force-replicate`` is off).
        """
        name = f"{database}.{table}"
        with self._lock:
            if name not in self._tables:
                self._tables[name] = read_feed_table(self.server, database, table)
            return self._tables[name]

    def forget(self) -> None:
        """Read definitions again from now on: a DDL was run."""
        with self._lock:
            self._tables.clear()

    def types(self) -> Mapping[str, Mapping[str, str]]:
        """Return the declared types of the tables that were read, as readers of a carrier want them."""
        with self._lock:
            return {name: table.types for name, table in self._tables.items()}


def read_feed_table(server: LabServer, database: str, table: str) -> FeedTable:
    """Read a table's definition; LabError as in ``Catalog.table``."""
    with connect(server) as connection:
        rows = query(
            connection,
            "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, CHARACTER_SET_NAME, COLUMN_KEY, EXTRA"  # noqa: S608
            f" FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = {quote_text(database)}"
            f" AND TABLE_NAME = {quote_text(table)} ORDER BY ORDINAL_POSITION",
        )
        if not rows:
            raise LabError(f"TiDB has no table {database}.{table}", hint="Make it before the feed begins.")
        key = set(unique_key(connection, database, table))
    if not key:
        raise LabError(
            f"{database}.{table} has no key: TiCDC does not carry it (force-replicate is off)",
            hint="Leave the table out, or give it a primary key.",
        )
    columns = [
        FeedColumn(str(name), str(base).lower(), str(kind), nullable == "YES", str(charset or ""), name in key,
                   column_key == "PRI" and name in key, "STORED" in str(extra).upper())
        for name, base, kind, nullable, charset, column_key, extra in rows if "VIRTUAL" not in str(extra).upper()
    ]  # fmt: skip
    return FeedTable.of(database, table, columns)


def select_list(table: FeedTable) -> str:
    """Return the columns of a SELECT that gives rows for ``texts_of``."""
    # The text of a FLOAT has six digits where it has an exponent; as DOUBLE it has all.
    return ", ".join(
        f"{quote_name(column.name)} + 0e0" if column.base == "float" else quote_name(column.name)
        for column in table.columns
    )


def quoted(table: FeedTable) -> str:
    """Return database and table in backticks."""
    return f"{quote_name(table.database)}.{quote_name(table.table)}"


def texts_of(table: FeedTable, row: tuple[Any, ...]) -> Texts:
    """Return a row of ``select_list`` as texts: byte strings as ``0x`` and hex digits, BIT as a number."""
    if not any(isinstance(value, bytes) for value in row):
        return row
    return tuple(
        value if not isinstance(value, bytes)
        else str(int.from_bytes(value, "big")) if column.base == "bit" else "0x" + value.hex()
        for column, value in zip(table.columns, row, strict=True)
    )  # fmt: skip
