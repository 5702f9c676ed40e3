"""Puts the museum on both sides, and fails where a value does not go in as it is written."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from migverify.errors import LabError, UsageError
from migverify.sql.quoting import quote_name
from migverify_lab.cache import Progress
from migverify_lab.museum import TABLES, MuseumTable
from migverify_lab.servers import LabServer, LabServers
from migverify_lab.session import connect

if TYPE_CHECKING:
    from pymysql.connections import Connection


def choose(names: tuple[str, ...] = (), wide: bool = False) -> tuple[MuseumTable, ...]:
    """Return the tables of these names, or all; the 1,000-column table only by name or with ``wide``.

    Raises
    ------
    UsageError
        For a name the museum does not have.
    """
    known = {table.name for table in TABLES}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"the museum has no table {', '.join(unknown)}", hint=f"It has {', '.join(sorted(known))}.")
    return tuple(table for table in TABLES if (table.name in names if names else wide or not table.wide))


def load(
    servers: LabServers, database: str, names: tuple[str, ...], wide: bool, on_progress: Progress
) -> dict[str, int]:
    """Make the museum's tables on both sides; tables of these names are replaced. Returns rows per table.

    Raises
    ------
    UsageError
        For a name the museum does not have.
    LabError
        When a server refuses a table or changes a value.
    """
    tables = choose(names, wide)
    sides = (("source", servers.source), ("target", servers.target))
    with ThreadPoolExecutor(len(sides)) as pool:
        futures = [pool.submit(_fill, side, server, database, tables) for side, server in sides]
        for future in futures:
            future.result()
    on_progress(f"{len(tables)} tables in {database} on each side")
    return {table.name: len(table.rows) for table in tables}


def _fill(side: str, server: LabServer, database: str, tables: tuple[MuseumTable, ...]) -> None:
    with connect(server) as connection:
        quoted = quote_name(database)
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {quoted} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        for table in tables:
            hang(connection, side, database, table)


def hang(connection: Connection, side: str, database: str, table: MuseumTable) -> None:
    """Make one table on ``source`` or ``target`` and fill it, in a session of ``lab.session.connect``.

    Raises
    ------
    LabError
        When the server refuses the table, or warns that it stored another value than the literal.
    """
    import pymysql

    name = f"{quote_name(database)}.{quote_name(table.name_on(side))}"
    statement = f"DROP TABLE IF EXISTS {name}"
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            statement = table.create_statement(side, database)
            cursor.execute(statement)
            for statement in table.insert_statements(side, database):
                cursor.execute(statement)
                cursor.execute("SHOW WARNINGS")
                warnings = cursor.fetchall()
                if warnings:
                    raise LabError(
                        f"{name} on the {side} changed a value: {warnings[0][1]} {warnings[0][2]}",
                        hint="This server cannot hold the museum; load other tables with --tables.",
                    )
    except pymysql.err.MySQLError as error:
        raise LabError(
            f"the {side} refuses {name}: {error}\n{statement[:300]}",
            hint="This server cannot hold the museum; load other tables with --tables.",
        ) from error
