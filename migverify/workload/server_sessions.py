"""What a server knows of its sessions: a dump for sessions whose beginning no capture saw.

Connection pools live for hours, so most sessions began before the capture, and only their database, user and settings
are unknown. ``dump_sessions`` reads them with SELECTs: from performance_schema.threads and variables_by_thread on
MySQL, from the process list on MariaDB and TiDB, which do not show the settings of other sessions.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from migverify.codec import decode, parse_json
from migverify.db.session import Session
from migverify.errors import ReadError, UsageError
from migverify.model import Flavor
from migverify.sql.quoting import quote_texts

VERSION = 1
SETTINGS = (
    "character_set_client", "collation_connection", "sql_mode", "time_zone", "transaction_isolation", "autocommit",
    "group_concat_max_len", "div_precision_increment", "lc_time_names", "default_week_format", "sql_select_limit",
    "sql_safe_updates", "sql_auto_is_null", "foreign_key_checks", "unique_checks", "auto_increment_increment",
    "auto_increment_offset", "max_execution_time", "long_query_time",
)  # fmt: skip
"""Session variables that can change an answer, and ``long_query_time``, which decides what a slow log shows."""

_MYSQL = (
    "SELECT PROCESSLIST_ID, THREAD_ID FROM performance_schema.threads"
    " WHERE TYPE = 'FOREGROUND' AND PROCESSLIST_ID IS NOT NULL"
)
_SESSIONS = "SELECT ID, USER, DB, HOST FROM information_schema.{} WHERE ID <> CONNECTION_ID()"


@dataclass(frozen=True, slots=True)
class ServerSession:
    """One session. ``settings`` are its variables by name, None where the server does not show them.

    ``client`` is the IP address and port of its client: packets of a connection joined midway show nothing else.
    """

    id: int
    user: str | None = None
    database: str | None = None
    client: str = ""
    settings: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class SessionDump:
    """The sessions of one server at one moment (Unix microseconds by the server's clock).

    ``addresses`` are the server's IP addresses, each with its port.
    ``defaults`` are the server's global values.
    """

    server: str
    flavor: str
    at: int
    addresses: tuple[str, ...] = ()
    defaults: dict[str, str] = field(default_factory=dict)
    sessions: tuple[ServerSession, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the dump as a JSON object; ``read_sessions`` reads it."""
        moment = datetime.fromtimestamp(self.at / 1_000_000, UTC).isoformat(timespec="microseconds")
        return {**asdict(self), "version": VERSION, "at": moment}


def dump_sessions(session: Session, server: str) -> SessionDump:
    """Read the sessions of a server.

    Raises PrivilegeError, ReadError: the server does not show them.
    """
    ((at, *defaults),) = session.query(
        "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED), " + ", ".join(_globals(session))
    )
    known = {name: value for name, value in zip(SETTINGS, defaults, strict=True) if value is not None}
    settings: dict[str, dict[str, str]] = {}
    if session.flavor is Flavor.MYSQL:
        threads = {str(thread): str(number) for number, thread in session.query(_MYSQL)}
        for thread, name, value in session.query(
            "SELECT THREAD_ID, VARIABLE_NAME, VARIABLE_VALUE FROM performance_schema.variables_by_thread"  # noqa: S608
            f" WHERE VARIABLE_NAME IN ({quote_texts(SETTINGS)})"
        ):
            settings.setdefault(threads.get(str(thread), ""), {})[str(name)] = value or ""
    table = "CLUSTER_PROCESSLIST" if session.flavor is Flavor.TIDB else "PROCESSLIST"
    resolved: dict[str, list[str]] = {}
    sessions = tuple(
        ServerSession(int(number or 0), user, database or "", _client(host or "", resolved), settings.get(str(number)))
        for number, user, database, host in session.query(_SESSIONS.format(table))
    )
    endpoint = session.endpoint
    addresses = tuple(f"{ip}:{endpoint.port}" for ip in _addresses(endpoint.host, resolved))
    return SessionDump(server, session.flavor.value, int(at or 0), addresses, known, sessions)


def _client(host: str, resolved: dict[str, list[str]]) -> str:
    name, _, port = host.rpartition(":")
    found = _addresses(name, resolved) if name and port.isdecimal() else []
    return f"{found[0]}:{port}" if found else ""


def _addresses(name: str, resolved: dict[str, list[str]]) -> list[str]:
    """Return the IP addresses of a host; none where its name is not known here."""
    if name not in resolved:
        try:
            resolved[name] = list(dict.fromkeys(str(one[4][0]) for one in socket.getaddrinfo(name, None)))
        except OSError:
            resolved[name] = []
        resolved[name].sort(key=lambda ip: ":" in ip)
    return resolved[name]


def _globals(session: Session) -> Iterator[str]:
    missing = {Flavor.MARIADB: {"max_execution_time", "transaction_isolation"}, Flavor.TIDB: {"long_query_time"}}
    for name in SETTINGS:
        yield "NULL" if name in missing.get(session.flavor, ()) else f"@@global.{name}"


def read_sessions(path: Path) -> SessionDump:
    """Return the dump of a file that ``migverify workload sessions`` wrote.

    Raises UsageError: the file cannot be read, or is none.
    """
    try:
        body = parse_json(path.read_text(encoding="utf-8"))
        version = body.pop("version")
        if version != VERSION:
            raise ValueError(f"version {version}")
        if body.pop("others", None) is not None:
            raise ValueError("`others` is no longer read: give the database with --assume-database")
        body["at"] = round(datetime.fromisoformat(body["at"]).timestamp() * 1_000_000)
        return decode(SessionDump, body)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(
            f"{path} is no dump of sessions: {type(error).__name__} {error}",
            hint="Make one while the capture runs: migverify workload sessions --out FILE.",
        ) from error


def unseen_by_slow_log(dumps: Sequence[SessionDump]) -> tuple[int, int]:
    """Return how many sessions keep a greater ``long_query_time`` than the server's, and how many are known.

    A slow log never holds their faster statements: a session that was open when the global value was lowered keeps its
    old one.

    Raises ReadError: a value is no number.
    """
    hidden = known = 0
    for dump in dumps:
        limit = dump.defaults.get("long_query_time")
        for one in dump.sessions:
            own = None if one.settings is None else one.settings.get("long_query_time")
            if limit is None or own is None:
                continue
            try:
                hidden += float(own) > float(limit)
            except ValueError as error:
                raise ReadError(f"long_query_time of session {one.id} is no number: {own!r}") from error
            known += 1
    return hidden, known
