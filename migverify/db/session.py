"""Endpoint -> pinned session.

Both sides must make the same text of the same value, so everything that changes text is pinned here and nowhere
else: time zone +00:00, utf8mb4, an empty ``sql_mode`` save ALLOW_INVALID_DATES (zero and partial dates stay
readable and usable as bounds), no TiFlash (its text conversion is another implementation). And what decides when a
session reads, as a server's administrator may have made it otherwise for new sessions: REPEATABLE READ (a source's
READ UNCOMMITTED shows rows that are rolled back), on TiDB no timestamp of the past. A source session is read-only by
the server's own means. Values arrive as the server's text, never through a driver's type conversion.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import pymysql
from pymysql.constants import CLIENT
from pymysql.cursors import Cursor, SSCursor

from migverify.db import tls
from migverify.db.failures import CONNECT_FAILURES, QUERY_FAILURES, connect_failure, query_failure
from migverify.errors import (
    EndpointError,
    IncompleteReadError,
    PrivilegeError,
    ReadError,
    RetryableReadError,
    UnreachableError,
)
from migverify.model import READS_NOW, Endpoint, Flavor, Side
from migverify.secrets import Secret, scrub
from migverify.sql.grants import check_grants
from migverify.sql.identity import TABLESPACES_SQL

Row = tuple[bytes | None, ...]

CONNECT_SECONDS = 10.0
REPEATABLE = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
LOCK_SECONDS = 60  # MySQL's own wait for a table that LOCK TABLES or an ALTER holds is a year
IDLE_READ_SECONDS = 3600.0  # a server that says nothing for an hour is gone, even without a query limit
GROUP_CONCAT_BYTES = 1 << 30  # servers cap it to max_allowed_packet; truncation is checked by counting

TOO_LONG = "1301"
"""The warning of a text that became NULL, as it is longer than max_allowed_packet."""
# Out of range, truncated, not a number or time, division by zero, cut: the answer is of other values than the table's.
_ALTERED = {"1260", "1264", "1265", "1292", TOO_LONG, "1365", "1366", "1411", "1525", "1690"}
# TiDB warns where CAST(... AS DECIMAL(p, s)) rounds a number to the scale that was requested, as MySQL does silently.
_ROUNDED = re.compile(r"1292: Truncated incorrect DECIMAL value: '-?[0-9]+\.[0-9]+'")


def is_altered(warning: str) -> bool:
    """Whether a warning (code: text) says that an answer is of another value than the one that was read."""
    return warning.partition(":")[0] in _ALTERED and not _ROUNDED.fullmatch(warning)


# Encoders only: without decoders every value stays the bytes that the server sent.
_RAW: dict[Any, Any] = {**pymysql.converters.encoders}


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of a result as the protocol describes it.

    ``type_code`` and ``flags`` are the protocol's numbers, ``charset`` the number of a collation (63 is binary; of text
    it is the session's, not the column's), ``length`` in bytes or digits, ``decimals`` 31 where it is not known.
    """

    name: str
    type_code: int
    charset: int
    length: int
    flags: int
    decimals: int


@dataclass(frozen=True, slots=True)
class Encryption:
    """What a connection negotiated. ``expires``: end of the certificate, Unix seconds; None: not verified."""

    version: str
    cipher: str
    expires: float | None


def _decoded(name: str | bytes) -> str:
    return name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name


class Session:
    """One pinned connection. Not thread-safe; ``abort`` alone may be called from another thread."""

    def __init__(self, connection: pymysql.connections.Connection[Any], endpoint: Endpoint) -> None:
        self._connection = connection
        self.endpoint = endpoint
        self._warned = 0
        self.version, self.flavor = _identify(connection)
        self.thread_id = int(connection.thread_id())  # type: ignore[no-untyped-call]

    def query(self, sql: str) -> list[tuple[str | None, ...]]:
        """Run one statement; every value is the server's text decoded as UTF-8, None is NULL."""
        return [self._texts(row) for row in self.query_bytes(sql)]

    @staticmethod
    def _texts(row: Row) -> tuple[str | None, ...]:
        return tuple(None if value is None else value.decode("utf-8", "surrogateescape") for value in row)

    def query_bytes(self, sql: str) -> list[Row]:
        """Run one statement; values are the bytes the server sent.

        Raises
        ------
        RetryableReadError
            connection lost, lock wait, killed or over its time limit.
        PrivilegeError
            a grant is missing.
        ReadError
            any other refusal; the message holds the server's words and the statement.
        """
        with self._ran(sql) as cursor:
            return list(cursor.fetchall())

    def query_named(self, sql: str) -> list[dict[str, str | None]]:
        """Like ``query``, each row as column name -> text; for SHOW statements, whose columns vary by version."""
        with self._ran(sql) as cursor:
            names = [str(column[0]) for column in cursor.description or ()]
            return [dict(zip(names, self._texts(row), strict=True)) for row in cursor.fetchall()]

    def result_columns(self, sql: str) -> list[ResultColumn]:
        """Run one statement and return what the server says of its result's columns; the rows are dropped."""
        with self._ran(sql) as cursor:
            fields = cursor._result.fields if cursor._result else []  # all else hides the flags
            return [
                ResultColumn(_decoded(f.name), f.type_code, f.charsetnr, f.length, f.flags, f.scale) for f in fields
            ]  # fmt: skip

    def stream(self, sql: str, rows_at_once: int = 1000) -> Iterator[Row]:
        """Like ``query_bytes`` without holding the result; a cut connection raises instead of ending early."""
        with self._ran(sql, SSCursor) as cursor:
            while rows := cursor.fetchmany(rows_at_once):
                yield from rows

    def execute(self, sql: str) -> int:
        """Run a statement that changes something; returns the affected rows. For targets and the lab only."""
        with self._ran(sql) as cursor:
            return int(cursor.rowcount)

    @contextmanager
    def _ran(self, sql: str, kind: type[Cursor] = Cursor) -> Iterator[Any]:
        """Lend the cursor of a statement that was run; failures are raised as what they mean."""
        try:
            with self._connection.cursor(kind) as cursor:
                cursor.execute(sql)
                yield cursor
                self._warned = cursor.warning_count
        except QUERY_FAILURES as error:
            raise query_failure(self.endpoint, error, sql) from error

    def warnings(self) -> list[str]:
        """Warnings of the last statement."""
        return [f"{row[1]}: {row[2]}" for row in self.query("SHOW WARNINGS")]

    def refuse_altered(self, *allowed: str) -> None:
        """Refuse the answer of the last statement where it is not of the values that the table holds.

        ``allowed`` are codes that the caller handles. Asks the server only where the answer came with warnings.

        Raises IncompleteReadError: the server warned that it cut a value, or could not read one.
        """
        for warning in self.warnings() if self._warned else ():
            if is_altered(warning) and warning.partition(":")[0] not in allowed:
                raise IncompleteReadError(
                    f"{self.endpoint.name}: the server warned that a value is not what it was: {warning}",
                    hint="Write a condition or CAST that the server can compute for every row.",
                )

    def encryption(self) -> Encryption | None:
        """Return what was negotiated with the other end of the socket, None for a connection in clear."""
        sock = self._connection._sock  # type: ignore[attr-defined]  # a proxy between may encrypt on one side only
        if not isinstance(sock, ssl.SSLSocket):
            return None
        certificate = sock.getpeercert()  # empty where it was not verified
        ends = certificate.get("notAfter") if certificate else None
        expires = float(ssl.cert_time_to_seconds(ends)) if isinstance(ends, str) else None
        cipher = sock.cipher()
        return Encryption(sock.version() or "", cipher[0] if cipher else "", expires)

    @cached_property
    def sees_table_ids(self) -> bool:
        """Whether this user may read the ids by which a replaced table is recognized; asked once."""
        if self.flavor is not Flavor.MYSQL:
            return self.flavor is Flavor.TIDB
        try:
            self.query_bytes(TABLESPACES_SQL)
        except RetryableReadError:
            raise
        except (PrivilegeError, ReadError):
            return False
        return True

    @cached_property
    def sees_all_sessions(self) -> bool:
        """Whether TiDB shows this user the sessions of others; asked once, as it says nothing where it does not."""
        return check_grants(self).allows("PROCESS")

    def alive(self) -> bool:
        """Whether the connection still answers."""
        try:
            self._connection.ping(reconnect=False)
        except (pymysql.MySQLError, OSError):
            return False
        return True

    def close(self) -> None:
        """Close the connection; closing one that is already broken is fine."""
        try:
            self._connection.close()
        except (pymysql.MySQLError, OSError):
            self._connection._force_close()  # type: ignore[attr-defined]  # only our socket is left to release

    def abort(self) -> None:
        """Cut the connection under a thread that waits for an answer: it gets an error at once."""
        # Read once: PyMySQL forgets its socket the moment the other thread meets an error of its own.
        waiting = self._connection._sock  # type: ignore[attr-defined]
        if waiting is None:
            return
        with suppress(OSError):  # closed meanwhile, so nobody waits
            # The plain shutdown: that of a TLS socket changes state which the waiting thread still uses.
            socket.socket.shutdown(waiting, socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_session(endpoint: Endpoint, password: str | None, *, side: Side | None = None) -> Session:
    """Connect to an endpoint and pin the session.

    Parameters
    ----------
    endpoint
        Where to connect. ``query_seconds`` > 0 limits every SELECT on the server and the wait for its answer.
    password
        The secret itself, or None for none.
    side
        SOURCE sessions are made read-only by the server (not on TiDB, which has no such mode); None means
        ``endpoint.name`` decides.

    Raises
    ------
    EndpointError
        nothing answers, or the server refuses the user; PrivilegeError when a grant is missing.
    """
    connection = _connect(endpoint, password, conv=_RAW, autocommit=True, client_flag=CLIENT.FOUND_ROWS)
    session = Session(connection, endpoint)
    source = endpoint.name.split(".")[0] == "source" if side is None else side is Side.SOURCE
    try:
        _pin(session, source=source)
    except BaseException:
        session.close()
        raise
    _keep_alive(connection._sock)
    # The short limit was for the greeting, which connect_timeout leaves out.
    connection._read_timeout = endpoint.query_seconds + 10.0 if endpoint.query_seconds else IDLE_READ_SECONDS
    return session


def _connect(endpoint: Endpoint, password: str | None, **options: Any) -> Any:
    """Return an authenticated connection of PyMySQL; raises EndpointError."""
    try:
        return tls.Connection(
            host=endpoint.host, port=endpoint.port, user=endpoint.user, password=(password or "").encode(),
            charset="utf8mb4", use_unicode=False, connect_timeout=int(CONNECT_SECONDS), read_timeout=CONNECT_SECONDS,
            write_timeout=60, program_name="migverify", **options, **tls.options(endpoint.tls),
        )  # fmt: skip
    except CONNECT_FAILURES as error:
        raise connect_failure(endpoint, error) from error


@dataclass(frozen=True, slots=True)
class Opened:
    """An authenticated connection that is nobody's yet: its socket (blocking), and what the server said of itself."""

    socket: socket.socket
    version: str
    flavor: Flavor
    thread_id: int


def open_socket(endpoint: Endpoint, password: str | None, *, found_rows: bool = True, several: bool = False) -> Opened:
    """Connect and authenticate as any client does, pin nothing, and hand over the socket itself.

    Only ``SET NAMES utf8mb4`` was said in the session. LOCAL INFILE is off; a prepared statement (CALL) may answer with
    several results.

    Parameters
    ----------
    found_rows
        An UPDATE reports how many rows it found, not how many it changed: what Connector/J asks for.
    several
        One text may hold several statements.

    Raises
    ------
    EndpointError
        nothing answers, or the server refuses the user.
    """
    flags = (found_rows and CLIENT.FOUND_ROWS) | (several and CLIENT.MULTI_STATEMENTS) | CLIENT.PS_MULTI_RESULTS
    connection = _connect(endpoint, password, autocommit=None, local_infile=False, client_flag=flags)
    version, flavor = _identify(connection)
    opened = Opened(connection._sock, version, flavor, int(connection.thread_id()))
    _keep_alive(opened.socket)
    connection._rfile.close()  # its buffer is empty: a server says nothing unasked behind an answer
    connection._sock = connection._rfile = None  # or the garbage collector would close it
    return opened


def _pin(session: Session, *, source: bool) -> None:
    endpoint = session.endpoint
    if endpoint.snapshot and session.flavor is not Flavor.TIDB:
        raise EndpointError(
            f"{endpoint.name}: a snapshot is configured, but the server is {session.flavor.value}",
            hint="Only TiDB reads as of a time; remove `snapshot`.",
        )
    for statement in session_statements(session.flavor, endpoint, source=source):
        try:
            session.execute(statement)
        except RetryableReadError as error:
            raise UnreachableError(error.message, hint=error.hint) from error
        except ReadError as error:
            hint = "The server refuses a setting of the session: check snapshot, resource_group and session."
            values = [Secret(value) for _, value in endpoint.session if isinstance(value, str) and len(value) > 3]
            raise EndpointError(scrub(error.message, values), hint=error.hint or hint) from error


def _keep_alive(sock: socket.socket) -> None:
    """Notice within two minutes that the host or the network is gone, even while no query limit is set."""
    for option, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def session_statements(flavor: Flavor, endpoint: Endpoint, *, source: bool) -> list[str]:
    """Return the statements that pin a session, in order; part of every report."""
    pins = ["time_zone='+00:00'", "sql_mode='ALLOW_INVALID_DATES'", f"group_concat_max_len={GROUP_CONCAT_BYTES}",
            "sql_select_limit=18446744073709551615", "net_write_timeout=600", "net_read_timeout=600"]  # fmt: skip
    milliseconds = int(endpoint.query_seconds * 1000)
    if flavor is Flavor.TIDB:
        pins += ["tidb_isolation_read_engines='tikv,tidb'", f"max_execution_time={milliseconds}"]
        pins += [f"{name}={value}" for name, value in READS_NOW.items()]
    elif flavor is Flavor.MYSQL:
        pins += [f"max_execution_time={milliseconds}", "information_schema_stats_expiry=0",
                 f"lock_wait_timeout={LOCK_SECONDS}"]  # fmt: skip
    else:
        pins += [f"max_statement_time={endpoint.query_seconds}", f"lock_wait_timeout={LOCK_SECONDS}"]
    statements = ["SET NAMES utf8mb4 COLLATE utf8mb4_bin", "SET SESSION " + ", SESSION ".join(pins)]
    if source and flavor is not Flavor.TIDB:
        statements.append("SET SESSION TRANSACTION READ ONLY")
    if flavor is Flavor.TIDB:
        if endpoint.low_priority:
            statements.append("SET SESSION tidb_force_priority='LOW_PRIORITY'")
        if endpoint.resource_group:
            statements.append(f"SET RESOURCE GROUP `{endpoint.resource_group.replace('`', '``')}`")
        if endpoint.snapshot:
            statements.append(f"SET SESSION tidb_snapshot='{_plain(endpoint.snapshot)}'")
    statements += [f"SET SESSION {_variable(name)}={_setting(value)}" for name, value in endpoint.session]
    return [*statements, REPEATABLE]


def _identify(connection: pymysql.connections.Connection[Any]) -> tuple[str, Flavor]:
    version = str(connection.get_server_info())  # type: ignore[no-untyped-call]
    lowered = version.lower()
    if "tidb" in lowered:
        return version, Flavor.TIDB
    return version, Flavor.MARIADB if "mariadb" in lowered else Flavor.MYSQL


def _plain(value: str) -> str:
    if not all(c.isalnum() or c in " :.+-" for c in value):
        raise EndpointError(f"not a snapshot time or TSO: {value!r}", hint="Use 2026-01-31 12:00:00 or a TSO.")
    return value


def _variable(name: str) -> str:
    if not name.replace("_", "").replace(".", "").isalnum():
        raise EndpointError(f"not a session variable: {name!r}", hint="Names hold letters, digits and _.")
    return name


def _setting(value: str) -> str:
    if value.lstrip("-").replace(".", "", 1).isdigit() or value.upper() in {"ON", "OFF", "DEFAULT"}:
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
