"""The lab's servers as clients see them, and connections that may write, as ``migverify.db.session`` has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from migverify.errors import LabError

if TYPE_CHECKING:
    from pymysql.connections import Connection

SESSION = (
    "SET SESSION sql_mode = ''",  # zero and partial dates must go in as they are written
    "SET SESSION time_zone = '+00:00'",
)

_ESCAPES = str.maketrans({"\\": "\\\\", "'": "''", "\0": "\\0", "\x1a": "\\Z", "\r": "\\r", "\n": "\\n"})


@dataclass(frozen=True, slots=True)
class LabServer:
    """One server of the lab. ``flavor``: ``mysql``, ``tidb`` or ``mariadb``; ``status_port``: TiDB's HTTP port."""

    host: str
    port: int
    user: str
    flavor: str
    version: str
    status_port: int | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class LabServers:
    """The pair, and the MariaDB of the services' ledger where that is up."""

    source: LabServer
    target: LabServer
    ledger: LabServer | None = None

    @property
    def stand_in(self) -> bool:
        """Whether the target is a second MySQL in place of TiDB."""
        return self.target.flavor != "tidb"


def text_literal(text: str) -> str:
    """Return a text as SQL for a session of ``connect``: backslashes escape there, and it speaks utf8mb4."""
    return f"'{text.translate(_ESCAPES)}'"


def connect(server: LabServer, database: str | None = None, *, seconds: float = 600.0) -> Connection:
    """Open an autocommit session: utf8mb4, empty sql_mode, UTC, LOAD DATA LOCAL allowed.

    Parameters
    ----------
    server
        A server of the lab; it has no password.
    database
        Current database, or None.
    seconds
        Longest wait for one answer. PyMySQL's connect timeout does not cover the server's greeting, so the
        read timeout guards that too.

    Raises
    ------
    LabError
        When the server does not answer.
    """
    import pymysql

    from migverify.db import tls

    try:
        connection = tls.Connection(
            host=server.host,
            port=server.port,
            user=server.user,
            database=database,
            charset="utf8mb4",
            autocommit=True,
            local_infile=True,
            connect_timeout=10,
            read_timeout=seconds,
            write_timeout=seconds,
        )
    except pymysql.err.MySQLError as error:
        raise LabError(
            f"{server.host}:{server.port} does not let {server.user} in: {error}",
            hint="See `migverify lab status`.",
        ) from error
    with connection.cursor() as cursor:
        for statement in SESSION:
            cursor.execute(statement)
    return connection


def query(connection: Connection, sql: str, values: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
    """Run a SELECT of the lab's own and return its rows."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return list(cursor.fetchall())


def execute(connection: Connection, *statements: str) -> None:
    """Run statements of the lab's own, one after the other, as the session commits."""
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def run(connection: Connection, statements: Sequence[str]) -> list[int]:
    """Run statements in one transaction; returns the rows each affected.

    Raises
    ------
    LabError
        the server refuses one.
    """
    import pymysql

    affected = []
    try:
        with connection.cursor() as cursor:
            connection.begin()
            for sql in statements:
                affected.append(int(cursor.execute(sql)))
            connection.commit()
    except pymysql.err.MySQLError as error:
        connection.rollback()
        raise LabError(f"the server refuses {sql[:200]!r}: {error}", hint="Load the data of the lab again.") from error
    return affected
