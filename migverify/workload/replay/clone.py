"""Proof that an endpoint is a rehearsal clone: a row that names that very server, written there by hand, with an end.

The row holds the server's own identity and the address it was marked at. A backup of the clone restored elsewhere, a
replica of it, or the production server it was copied from carry the row at most, never the identity in it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from migverify.db.session import Session
from migverify.errors import EndpointError, ReadError
from migverify.model import Flavor
from migverify.sql.quoting import quote_path, quote_text
from migverify.sql.server import CLUSTER

LONGEST_DAYS = 92
"""A proof ends: who still needs the clone after a quarter marks it again."""

_NO_TABLE = ("[1146]", "[1049]")
_COLUMNS = "name, flavor, server, host, port, marked_at, expires_at"


@dataclass(frozen=True, slots=True)
class Identity:
    """Which server answers: its flavor, its own id, and the address it was reached at.

    ``server`` is MySQL's server_uuid, or TiDB's cluster id with the place of the data where the server tells it.
    """

    flavor: Flavor
    server: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.flavor.value} {self.server} at {self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class CloneMark:
    """A valid mark: of the drill ``name``, on this server, until ``expires_at`` (Unix seconds)."""

    name: str
    identity: Identity
    marked_at: int
    expires_at: int
    marker: str

    @property
    def until(self) -> str:
        """The end, to be read."""
        return _utc(self.expires_at)


def identify(session: Session) -> Identity:
    """Ask a server who it is.

    Raises EndpointError: it does not tell an id of its own.
    """
    endpoint = session.endpoint
    if session.flavor is Flavor.TIDB:
        try:
            rows = session.query(CLUSTER)
        except ReadError as error:
            raise EndpointError(
                f"{endpoint.name}: the cluster id cannot be read: {error.message}",
                hint="GRANT SELECT ON mysql.tidb to this user.",
            ) from error
        server = f"cluster {rows[0][0]}" if rows and rows[0][0] else ""
    elif session.flavor is Flavor.MARIADB:
        server = session.query("SELECT CONCAT('server ', @@server_uid)")[0][0] or ""
    else:
        server = session.query("SELECT @@server_uuid")[0][0] or ""
    if not server:
        raise EndpointError(
            f"{endpoint.name}: the server tells no id of its own, so nothing can prove that it is a clone",
            hint="Replay reads only on this endpoint.",
        )
    return Identity(session.flavor, server, endpoint.host, endpoint.port)


def mark(session: Session, marker: str, name: str, days: float, *, now: float | None = None) -> CloneMark:
    """Write the row that marks the session's server as the clone of a drill. An older row of that name is replaced.

    Parameters
    ----------
    marker
        ``database.table``, from ``workload.clone_marker`` of the configuration; created where it is not there.
    name
        Of the drill.
    days
        How long it holds, up to ``LONGEST_DAYS``.

    Raises EndpointError: the name or the time cannot be used, or the server tells no id; ReadError: the server refuses
    the table or the row.
    """
    if not name or len(name) > 100:
        raise EndpointError("a clone's mark needs the name of its drill, of 1 to 100 characters", hint="--name DRILL")
    if not 0 < days <= LONGEST_DAYS:
        raise EndpointError(f"a clone's mark holds up to {LONGEST_DAYS} days, not {days:g}", hint="--expires 7d")
    identity = identify(session)
    marked_at = int(time.time() if now is None else now)
    expires_at = marked_at + int(days * 86_400)
    database, table = _path(marker)
    session.execute(f"CREATE DATABASE IF NOT EXISTS {quote_path(database)}")
    session.execute(
        f"CREATE TABLE IF NOT EXISTS {quote_path(database, table)} (name VARCHAR(100) NOT NULL,"
        " flavor VARCHAR(16) NOT NULL, server VARCHAR(190) NOT NULL, host VARCHAR(255) NOT NULL, port INT NOT NULL,"
        " marked_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, PRIMARY KEY (name)) DEFAULT CHARSET=utf8mb4"
    )
    texts = ", ".join(map(quote_text, (name, identity.flavor.value, identity.server, identity.host)))
    values = f"{texts}, {identity.port}, {marked_at}, {expires_at}"
    session.execute(f"REPLACE INTO {quote_path(database, table)} ({_COLUMNS}) VALUES ({values})")  # noqa: S608
    return prove(session, marker, now=marked_at, name=name)


def prove(session: Session, marker: str | None, *, name: str | None = None, now: float | None = None) -> CloneMark:
    """Return the proof that the session's server is a clone that may be written.

    Parameters
    ----------
    marker
        ``database.table`` that the configuration names; None where it names none.
    name
        Of the drill; None takes any.

    Raises EndpointError: no valid row names this server; the message says what is there instead.
    """
    where = f"{session.endpoint.name} ({session.endpoint.host}:{session.endpoint.port})"
    hint = f"migverify workload replay --mark-clone {session.endpoint.name} --name DRILL --expires 7d"
    if marker is None:
        raise EndpointError(
            f"{where} may not be written: the configuration names no table that marks a rehearsal clone",
            hint=f"Set workload.clone_marker: database.table, then: {hint}",
        )
    identity = identify(session)
    moment = time.time() if now is None else now
    rows = _rows(session, marker, where, hint)
    reasons: list[str] = []
    for found, flavor, server, host, port, marked_at, expires_at in rows:
        if name is not None and found != name:
            continue
        marked = f"{flavor} {server} at {host}:{port}"
        if marked != str(identity):
            reasons.append(f"{found}: it was made for {marked}, this is {identity}")
        elif not int(marked_at) - 300 <= moment < int(expires_at):
            reasons.append(f"{found}: it holds from {_utc(int(marked_at))} to {_utc(int(expires_at))}")
        else:
            return CloneMark(found, identity, int(marked_at), int(expires_at), marker)
    said = "; ".join(reasons) or ("no mark" if name is None else f"no mark of the name {name}")
    raise EndpointError(f"{where} may not be written: {marker} does not prove a rehearsal clone: {said}", hint=hint)


def _rows(session: Session, marker: str, where: str, hint: str) -> list[tuple[str, ...]]:
    try:
        rows = session.query(
            f"SELECT {_COLUMNS} FROM {quote_path(*_path(marker))} ORDER BY expires_at DESC LIMIT 1000"  # noqa: S608
        )
    except ReadError as error:
        if any(code in error.message for code in _NO_TABLE):
            raise EndpointError(f"{where} may not be written: it has no table {marker}", hint=hint) from error
        raise EndpointError(f"{where} may not be written: {error.message}", hint=hint) from error
    return [tuple(cell or "" for cell in row) for row in rows]


def _path(marker: str) -> tuple[str, str]:
    database, dot, table = marker.partition(".")
    if not dot or not database or not table or "." in table:
        raise EndpointError(f"not the name of a table: {marker!r}", hint="workload.clone_marker: database.table")
    return database, table


def _utc(moment: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(moment))
