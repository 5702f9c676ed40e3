"""Endpoint -> pinned session.

Both sides must make the same text of the same value, so everything that changes text is pinned here and nowhere
else: time zone +00:00, utf8mb4, an empty ``sql_mode`` save ALLOW_INVALID_DATES (zero and partial dates stay
readable and usable as bounds), no TiFlash (its text conversion is another implementation). And what decides when a
session reads, as a server's administrator may have made it otherwise for new sessions: REPEATABLE READ (a source's
READ UNCOMMITTED shows rows that are rolled back), on TiDB no timestamp of the past. A source session is read-only by
the server's own means. Values arrive as the server's text, never through a driver's type conversion.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import pymysql
from pymysql.constants import CLIENT, FIELD_TYPE
from pymysql.cursors import SSCursor

from migverify.db import tls
from migverify.errors import (
    EndpointError,
    LoginError,
    PrivilegeError,
    ReadError,
    RetryableReadError,
    TimeLimitError,
    UnreachableError,
)
from migverify.model import READS_NOW, Endpoint, Flavor, Side, Tls
from migverify.secrets import Secret, scrub
from migverify.sql.grants import check_grants
from migverify.sql.stamp import TABLESPACES_SQL

Row = tuple[bytes | None, ...]

CONNECT_SECONDS = 10.0
REPEATABLE = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
LOCK_SECONDS = 60  # MySQL's own wait for a table that LOCK TABLES or an ALTER holds is a year
DIGITS_OF_A_TIME = 14  # 20260131120000; a TSO has 18
IDLE_READ_SECONDS = 3600.0  # a server that says nothing for an hour is gone, even without a query limit
GROUP_CONCAT_BYTES = 1 << 30  # servers cap it to max_allowed_packet; truncation is checked by counting

# Encoders only: without decoders every value stays the bytes that the server sent.
_RAW: dict[Any, Any] = {**pymysql.converters.encoders}
# Times stay text: Python has no zero dates, and no times beyond a day.
_TIMES = {FIELD_TYPE.DATE, FIELD_TYPE.NEWDATE, FIELD_TYPE.DATETIME, FIELD_TYPE.TIMESTAMP, FIELD_TYPE.TIME}
_TYPED: dict[Any, Any] = {k: v for k, v in pymysql.converters.decoders.items() if k not in _TIMES}
_DENIED = {1044, 1142, 1143, 1227, 1370, 8121}
_TIME_LIMIT = {3024, 1969}
_TIDB_TIME_LIMIT = ("context deadline exceeded", "context canceled")  # its other words for max_execution_time
_FULL = {1040, 1203, 1226}  # no connection left: of the server, of the user, of the user's hour
_GONE_SNAPSHOT = {8055, 9006}  # TiDB's garbage collection is past the snapshot: no retry brings it back
_UNDETERMINED = 8501
_REFUSED = {1045, 1698, 1130, 1049, 3118, 1862, 3159}
# Connection gone, lock waits, kills, time limits; 9001-9013 are TiDB's "region or store is not there right now".
_RETRYABLE = {
    *(1028, 1040, 1053, 1080, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1205, 1213, 1226, 1317, 1927, 2003, 2006),
    *(2013, 2014, 2055, 3572, 4031, 8027, 8028, 8175, 8229, *range(9001, 9014)),
}


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
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall())
        except (pymysql.MySQLError, OSError, struct.error) as error:
            raise self._failure(error, sql) from error

    def query_named(self, sql: str) -> list[dict[str, str | None]]:
        """Like ``query``, each row as column name -> text; for SHOW statements, whose columns vary by version."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql)
                names = [str(column[0]) for column in cursor.description or ()]
                rows = list(cursor.fetchall())
        except (pymysql.MySQLError, OSError, struct.error) as error:
            raise self._failure(error, sql) from error
        return [dict(zip(names, self._texts(row), strict=True)) for row in rows]

    def result_columns(self, sql: str) -> list[ResultColumn]:
        """Run one statement and return what the server says of its result's columns; the rows are dropped."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql)
                fields = cursor._result.fields if cursor._result else []  # all else hides the flags
                return [
                    ResultColumn(_decoded(f.name), f.type_code, f.charsetnr, f.length, f.flags, f.scale) for f in fields
                ]  # fmt: skip
        except (pymysql.MySQLError, OSError, struct.error) as error:
            raise self._failure(error, sql) from error

    def stream(self, sql: str, rows_at_once: int = 1000) -> Iterator[Row]:
        """Like ``query_bytes`` without holding the result; a cut connection raises instead of ending early."""
        try:
            with self._connection.cursor(SSCursor) as cursor:
                cursor.execute(sql)
                while rows := cursor.fetchmany(rows_at_once):
                    yield from rows
        except (pymysql.MySQLError, OSError, struct.error) as error:
            raise self._failure(error, sql) from error

    def execute(self, sql: str) -> int:
        """Run a statement that changes something; returns the affected rows. For targets and the lab only."""
        try:
            with self._connection.cursor() as cursor:
                return int(cursor.execute(sql))
        except (pymysql.MySQLError, OSError, struct.error) as error:
            raise self._failure(error, sql) from error

    def warnings(self) -> list[str]:
        """Warnings of the last statement."""
        return [f"{row[1]}: {row[2]}" for row in self.query("SHOW WARNINGS")]

    @contextmanager
    def driver(self) -> Iterator[Any]:
        """Lend the connection itself, for a library that speaks DB-API: numbers come as int and Decimal, times as text.

        It stays pinned, open, and in the transaction it is in: ``commit``, ``rollback`` and ``close`` do nothing
        meanwhile, as nothing is written and each would end the snapshot that all reads share. The session must not be
        used meanwhile.
        """
        lent: Any = self._connection
        kept = lent.decoders, lent.use_unicode
        lent.decoders, lent.use_unicode = _TYPED, True
        lent.commit = lent.rollback = lent.close = lambda: None
        try:
            yield lent
        finally:
            del lent.commit, lent.rollback, lent.close
            lent.decoders, lent.use_unicode = kept

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

    def _failure(self, error: Exception, sql: str) -> ReadError | PrivilegeError:
        code, text = _code_and_text(error)
        where = f"{self.endpoint.name} ({self.endpoint.host}:{self.endpoint.port})"
        shown = sql if len(sql) <= 2000 else f"{sql[:2000]} ... ({len(sql)} characters)"
        message = f"{where}: {text} [{code}]\n  SQL: {shown}"
        if code in _DENIED:
            return PrivilegeError(message, hint=_grant_hint(code, text, self.endpoint))
        if code in _TIME_LIMIT or (code in (1105, 1317) and "maximum statement execution time" in text):
            return TimeLimitError(message)
        if code == 1105 and self.endpoint.query_seconds and any(words in text for words in _TIDB_TIME_LIMIT):
            return TimeLimitError(message)
        if code in _GONE_SNAPSHOT:
            return ReadError(message, hint="The snapshot is older than tidb_gc_life_time; take a new one, or raise it.")
        gone = isinstance(error, OSError | struct.error | pymysql.InterfaceError)
        deadline = code == 1105 and any(w in text for w in ("deadline", "timeout", "Timeout", "try again"))
        if gone or deadline or code in _RETRYABLE:
            return RetryableReadError(message)
        return ReadError(message)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def server_answered(error: ReadError) -> bool:
    """Tell whether the server itself refused or ended a statement: it does not run it any more.

    A lost connection is no answer, and neither is TiDB's "execution result undetermined" (8501).
    """
    cause = error.__cause__
    code, _ = _code_and_text(cause) if isinstance(cause, pymysql.MySQLError) else (0, "")
    return code > 0 and code != _UNDETERMINED and not 2000 <= code < 3000  # the client library's own codes


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
    try:
        connection = tls.Connection(
            host=endpoint.host, port=endpoint.port, user=endpoint.user, password=(password or "").encode(),
            charset="utf8mb4", use_unicode=False, conv=_RAW, autocommit=True,
            connect_timeout=int(CONNECT_SECONDS), read_timeout=CONNECT_SECONDS, write_timeout=60,
            client_flag=CLIENT.FOUND_ROWS, program_name="migverify", **tls.options(endpoint.tls),
        )  # fmt: skip
    except (pymysql.MySQLError, OSError, struct.error, RuntimeError) as error:
        raise connect_failure(endpoint, error) from error
    session = Session(connection, endpoint)
    source = endpoint.name.split(".")[0] == "source" if side is None else side is Side.SOURCE
    try:
        _pin(session, source=source)
    except BaseException:
        session.close()
        raise
    _keep_alive(connection._sock)  # type: ignore[attr-defined]
    wait = endpoint.query_seconds + 10.0 if endpoint.query_seconds else IDLE_READ_SECONDS
    connection._read_timeout = wait  # type: ignore[attr-defined]  # the short limit was for the greeting, which connect_timeout leaves out
    return session


@dataclass(frozen=True, slots=True)
class Opened:
    """An authenticated connection that is nobody's yet: its socket (blocking), and what the server said of itself."""

    socket: socket.socket
    version: str
    flavor: Flavor
    thread_id: int


def open_socket(
    endpoint: Endpoint, password: str | None, *, found_rows: bool = True, several: bool = False, results: bool = True
) -> Opened:
    """Connect and authenticate as any client does, pin nothing, and hand over the socket itself.

    Only ``SET NAMES utf8mb4`` was said in the session. LOCAL INFILE is off.

    Parameters
    ----------
    found_rows
        An UPDATE tells how many rows it found, not how many it changed: what Connector/J asks for.
    several
        One text may hold several statements.
    results
        A prepared statement (CALL) may answer with several results.

    Raises
    ------
    EndpointError
        nothing answers, or the server refuses the user.
    """
    flags = (found_rows and CLIENT.FOUND_ROWS) | (several and CLIENT.MULTI_STATEMENTS)
    try:
        connection: Any = tls.Connection(
            host=endpoint.host, port=endpoint.port, user=endpoint.user, password=(password or "").encode(),
            charset="utf8mb4", use_unicode=False, autocommit=None, local_infile=False,
            connect_timeout=int(CONNECT_SECONDS), read_timeout=CONNECT_SECONDS, write_timeout=60,
            client_flag=flags | (results and CLIENT.PS_MULTI_RESULTS), program_name="migverify",
            **tls.options(endpoint.tls),
        )  # fmt: skip
    except (pymysql.MySQLError, OSError, struct.error, RuntimeError) as error:
        raise connect_failure(endpoint, error) from error
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


def check_snapshot(session: Session, probe: str) -> None:
    """Prove that ``tidb_snapshot`` really holds.

    A server without a GC safe point refuses the SET and yet shows the value from then on while it reads current data,
    so the variable proves nothing. The start timestamp of a read does: under a snapshot every read has the same one,
    and each current read a new one.

    Parameters
    ----------
    probe
        A cheap statement that reads a table the user may read; two are needed, so it runs twice.

    Raises
    ------
    EndpointError
        when the session reads current data although a snapshot was asked for.
    """
    snapshot = session.endpoint.snapshot
    if not snapshot:
        return
    seen = {_start_timestamp(session, probe) for _ in range(2)}
    pinned = len(seen) == 1 and 0 not in seen
    if not pinned or (snapshot.isdigit() and len(snapshot) > DIGITS_OF_A_TIME and int(snapshot) not in seen):
        raise EndpointError(
            f"{session.endpoint.name}: tidb_snapshot={snapshot} is not in force: reads see current data",
            hint="The server may have no GC safe point (row tikv_gc_safe_point in mysql.tidb); drop the snapshot.",
        )


def _start_timestamp(session: Session, probe: str) -> int:
    """Return the timestamp (TSO) as of which a read saw the data; 0 when the server does not tell."""
    if not probe:
        return 0
    session.query(probe)
    told = session.query("SELECT @@tidb_last_query_info")[0][0]
    return int(json.loads(told or "{}").get("start_ts", 0))


def _identify(connection: pymysql.connections.Connection[Any]) -> tuple[str, Flavor]:
    version = str(connection.get_server_info())  # type: ignore[no-untyped-call]
    lowered = version.lower()
    if "tidb" in lowered:
        return version, Flavor.TIDB
    return version, Flavor.MARIADB if "mariadb" in lowered else Flavor.MYSQL


def _code_and_text(error: BaseException) -> tuple[int, str]:
    if error.args and isinstance(error.args[0], int):
        return error.args[0], str(error.args[1]) if len(error.args) > 1 else str(error)
    return 0, str(error) or type(error).__name__


def connect_failure(endpoint: Endpoint, error: Exception) -> EndpointError:
    """Return what a failed attempt to connect means: nothing answers, or the login or a grant is refused."""
    code, text = _code_and_text(error)
    where = f"{endpoint.name}: {endpoint.user}@{endpoint.host}:{endpoint.port}"
    if code in _DENIED:
        return PrivilegeError(f"{where}: {text} [{code}]", hint=_grant_hint(code, text, endpoint))
    if code in _REFUSED:
        secret = endpoint.password_env or endpoint.password_command
        hint = (
            f"Check the user and the password from {secret}."
            if secret
            else "No password is configured: set password_env."
        )
        return LoginError(f"{where}: the server refuses the user: {text} [{code}]", hint=hint)
    if code in _FULL:
        hint = "Lower `connections`, or raise max_connections or the user's MAX_USER_CONNECTIONS."
        return UnreachableError(f"{where}: no connection is left: {text} [{code}]", hint=hint)
    remedy = tls.remedy(error)
    if remedy is not None:
        refused = LoginError if isinstance(error, tls.CleartextRefusedError) else UnreachableError
        return refused(f"{where}: TLS: {text}", hint=remedy)
    return UnreachableError(
        f"{where}: cannot connect: {text}",
        hint="Check host and port, that the server runs, and firewalls between.",
    )


def _grant_hint(code: int, text: str, endpoint: Endpoint) -> str:
    needed = re.search(r"at least one of\) the (.+?) privilege", text)
    if needed:
        word = needed[1].split(",")[-1].strip()
        return f"Run as an administrator: GRANT {word} ON *.* TO {_account(text, endpoint)} (see docs/privileges.md)."
    if code == 1227:
        return f"Grant what is named above to {_account(text, endpoint)}, or leave out the option that needs it."
    command = re.match(r"(\w+) command denied", text)
    word = command[1].upper() if command else "SELECT"
    database = re.search(r"to database '(.+?)'$", text)
    table = re.search(r"for table '(.+?)'$", text)
    column = re.search(r"for column '(.+?)' in table '(.+?)'$", text)
    what = (f"table {table[1]}" if table else f"all columns of table {column[2]}" if column
            else f"database {database[1]}" if database else "what it may not read")  # fmt: skip
    return (f"{_account(text, endpoint)} lacks {word} on {what}. Run as an administrator: "
            f"GRANT {word} ON <database>.<table> TO <that user> (see docs/privileges.md).")  # fmt: skip


def _account(text: str, endpoint: Endpoint) -> str:
    told = re.search(r"'[^']*'@'[^']*'", text)
    return told[0] if told else endpoint.user


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


class AdminSession:
    """A session on the admin interface of a proxy that speaks MySQL's protocol: nothing is pinned, values are text."""

    def __init__(self, connection: pymysql.connections.Connection[Any], place: str) -> None:
        self._connection, self._place = connection, place

    def query(self, sql: str) -> list[tuple[str, ...]]:
        """Return the rows of a statement, NULL as an empty text; raises ReadError."""
        with self._connection.cursor() as cursor:
            self._execute(cursor, sql)
            return [tuple("" if one is None else _plain_text(one) for one in row) for row in cursor.fetchall()]

    def execute(self, sql: str) -> int:
        """Carry a statement out; returns how many rows it changed. Raises ReadError."""
        with self._connection.cursor() as cursor:
            return self._execute(cursor, sql)

    def _execute(self, cursor: Any, sql: str) -> int:
        try:
            return int(cursor.execute(sql))
        except (pymysql.MySQLError, OSError, struct.error) as error:
            raise ReadError(f"{self._place}: {_code_and_text(error)[1]}\n  {sql}") from error

    def close(self) -> None:
        """End the session."""
        self._connection.close()


def _plain_text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def open_admin(
    host: str, port: int, user: str, password: str, encryption: Tls, seconds: float = CONNECT_SECONDS
) -> AdminSession:
    """Open a session on the admin interface of a proxy.

    Raises
    ------
    EndpointError
        nothing answers, or the user is refused.
    """
    place = f"admin interface {host}:{port}"
    try:
        connection: Any = tls.Connection(
            host=host, port=port, user=user, password=password, charset="utf8mb4", autocommit=None, local_infile=False,
            connect_timeout=max(1, int(seconds)), read_timeout=seconds, write_timeout=seconds, program_name="migverify",
            **tls.options(encryption),
        )  # fmt: skip
    except (pymysql.MySQLError, OSError, struct.error, RuntimeError) as error:
        code, text = _code_and_text(error)
        kind = LoginError if code in _REFUSED else UnreachableError
        hint = tls.remedy(error) or "Check its host, port, user and password, and that it runs."
        raise kind(f"{place}: cannot connect: {text}", hint=hint) from error
    return AdminSession(connection, place)
