"""Puts a case on two servers, and takes it away again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pymysql

from bench.faults.adapter import Endpoint
from bench.faults.cases import Case, quote

if TYPE_CHECKING:
    from pymysql.connections import Connection

SESSION = ("SET SESSION sql_mode = ''", "SET SESSION time_zone = '+00:00'")
"""Zero dates and instants must go in as the cases write them."""


@contextmanager
def connect(side: Endpoint, seconds: float, *, use: bool = True) -> Iterator[Connection]:
    """Open a session on a side; ``use`` makes its database the current one."""
    connection = pymysql.connect(
        host=side.host, port=side.port, user=side.user, database=side.database if use else None, charset="utf8mb4",
        autocommit=True, connect_timeout=10, read_timeout=seconds, write_timeout=seconds,
    )  # fmt: skip
    with connection:
        yield connection


def query(connection: Connection, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement and return its rows."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


@contextmanager
def loaded(case: Case, source: Endpoint, target: Endpoint, seconds: float = 600.0) -> Iterator[None]:
    """Make both databases of a case, and drop them at the end. Databases of these names are replaced."""
    try:
        for name, side in (("source", source), ("target", target)):
            _drop(side, seconds)
            with connect(side, seconds, use=False) as connection:
                database = quote(side.database)
                query(connection, f"CREATE DATABASE {database} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
                for statement in (f"USE {database}", *SESSION, *case.statements(name)):
                    query(connection, statement)
        yield
    finally:
        for side in (source, target):
            _drop(side, seconds)


def _drop(side: Endpoint, seconds: float) -> None:
    with connect(side, seconds, use=False) as connection:
        query(connection, f"DROP DATABASE IF EXISTS {quote(side.database)}")
