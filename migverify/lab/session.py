"""Connections to the lab's own servers. Unlike ``migverify.db.session`` these may write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migverify.errors import LabError

if TYPE_CHECKING:
    from pymysql.connections import Connection

    from migverify.lab.servers import LabServer

SESSION = (
    "SET SESSION sql_mode = ''",  # zero and partial dates must go in as they are written
    "SET SESSION time_zone = '+00:00'",
)

_ESCAPES = str.maketrans({"\\": "\\\\", "'": "''", "\0": "\\0", "\x1a": "\\Z", "\r": "\\r", "\n": "\\n"})


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
