"""One moment of an endpoint for all sessions of an evaluation.

TiDB: a transaction gives a timestamp, and every other session reads as of it. MySQL and MariaDB: several sessions begin
a consistent snapshot each; they saw one state when nothing was committed meanwhile, which the position of the binlog
before and after tells. On a server that writes all the time that never happens: then one session does all the reads,
which is one state too, at a place between two positions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from migverify.db.session import Session, check_snapshot, open_session
from migverify.errors import EndpointError, PrivilegeError, ReadError, RetryableReadError
from migverify.model import Endpoint, Flavor, Side
from migverify.recon.model import Anchor

ATTEMPTS = 5
LOOK_AGAIN_SECONDS = 0.02
BEGIN = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
NOW = "now"

Open = Callable[[Endpoint, str | None], Session]


@dataclass(frozen=True, slots=True)
class Anchored:
    """Sessions of one endpoint that read one moment, at least one."""

    sessions: tuple[Session, ...]
    anchor: Anchor


def _open(endpoint: Endpoint, password: str | None) -> Session:
    return open_session(endpoint, password, side=Side.SOURCE)


@contextmanager
def anchored(
    endpoint: Endpoint, secrets: Mapping[str, str], wanted: int, probe: str = "", opener: Open = _open
) -> Iterator[Anchored]:
    """Open up to ``wanted`` sessions that read one moment of an endpoint.

    Fewer come back where one moment for all cannot be had. ``probe`` is a cheap read of a table, to prove that a
    TiDB snapshot is in force.

    Raises
    ------
    EndpointError
        the server cannot be reached, or refuses the snapshot that is configured.
    """
    with ExitStack() as stack:
        password = secrets.get(endpoint.name)
        fixed = endpoint.snapshot if endpoint.snapshot != NOW else None
        current = replace(endpoint, snapshot=fixed)
        first = stack.enter_context(opener(current, password))
        wanted = max(1, min(wanted, endpoint.connections))
        if first.flavor is Flavor.TIDB:
            yield _tidb(stack, first, current, password, wanted, probe, opener)
        else:
            others = tuple(stack.enter_context(opener(current, password)) for _ in range(wanted - 1))
            yield _mysql((first, *others))


def _tidb(
    stack: ExitStack, first: Session, endpoint: Endpoint, password: str | None, wanted: int, probe: str, opener: Open
) -> Anchored:  # fmt: skip
    at = time.time()
    if endpoint.snapshot:
        check_snapshot(first, probe)
        sessions = [first, *(stack.enter_context(opener(endpoint, password)) for _ in range(wanted - 1))]
        for session in sessions[1:]:
            check_snapshot(session, probe)
        return Anchored(tuple(sessions), _exact(endpoint, "tidb", "tidb_snapshot", endpoint.snapshot, at))
    first.query(BEGIN)
    stamp = first.query("SELECT TIDB_CURRENT_TSO()")[0][0] or "0"
    if not stamp.isdigit() or stamp == "0":
        raise EndpointError(f"{endpoint.name}: the server gives no timestamp for a transaction")
    sessions = [first]
    pinned = replace(endpoint, snapshot=stamp)
    try:
        for _ in range(wanted - 1):
            session = stack.enter_context(opener(pinned, password))
            check_snapshot(session, probe)
            sessions.append(session)
    except PrivilegeError:
        raise
    except EndpointError as error:
        # A server without a GC safe point cannot read as of a time; the transaction reads one moment all the same.
        if "tidb_snapshot" not in error.message and "safe_point" not in error.message:
            raise
        sessions = [first]
    how = "tidb_snapshot" if len(sessions) > 1 else "transaction"
    return Anchored(tuple(sessions), _exact(endpoint, "tidb", how, stamp, at))


def _exact(endpoint: Endpoint, flavor: str, how: str, position: str, at: float) -> Anchor:
    return Anchor(endpoint.name, flavor, how, position, position, exact=True, at=at)


def _mysql(sessions: tuple[Session, ...]) -> Anchored:
    for _ in range(ATTEMPTS):
        found = _begin(sessions)
        if found.exact:
            return Anchored(sessions, found)
        for session in sessions:
            session.query("ROLLBACK")
    # One session sees one state, whatever is written meanwhile.
    one = _begin(sessions[:1])
    return Anchored(sessions[:1], one)


def _begin(sessions: tuple[Session, ...]) -> Anchor:
    """Begin a snapshot in every session; exact when the position tells that all see one state."""
    first = sessions[0]
    before = binlog_place(first)
    at = time.time()
    for session in sessions:
        session.query(BEGIN)
    flavor = first.flavor.value
    if first.flavor is Flavor.MARIADB:
        seen = {_mariadb_snapshot(session) for session in sessions}
        if len(seen) == 1 and "" not in seen:
            position = seen.pop()
            return Anchor(first.endpoint.name, flavor, "consistent snapshot", position, position, exact=True, at=at)
    after = binlog_place(first)
    if before and before == after:
        # A transaction may be visible a moment before the server counts it: it would be counted by now.
        time.sleep(LOOK_AGAIN_SECONDS)
        after = binlog_place(first)
    exact = bool(before) and before == after
    how = "consistent snapshot" if exact or len(sessions) > 1 else "one session's consistent snapshot"
    return Anchor(first.endpoint.name, flavor, how, before, after, exact=exact, at=at)


def begin_moment(session: Session, begin: Sequence[str], probe: str) -> None:
    """Open a moment in a new session, and prove a configured ``tidb_snapshot``, which a server may show and not keep.

    Raises
    ------
    EndpointError
        the session reads current data although a snapshot is configured.
    """
    for statement in begin:
        session.execute(statement)
    check_snapshot(session, probe)


def binlog_place(session: Session) -> str:
    """Return the GTID set and the binlog's end, as far as the user may see them; empty for neither.

    Both together: the end of the file moves before a transaction becomes visible, the GTID set after it.
    """
    parts = []
    if session.flavor is Flavor.MYSQL:
        executed = session.query("SELECT @@GLOBAL.gtid_executed")[0][0]
        parts.append((executed or "").replace("\n", ""))
    elif session.flavor is Flavor.MARIADB:
        parts.append(session.query("SELECT @@GLOBAL.gtid_binlog_pos")[0][0] or "")
    words = ["SHOW MASTER STATUS"]
    if session.flavor is Flavor.MYSQL:
        words.insert(0, "SHOW BINARY LOG STATUS")
    for statement in words:
        try:
            rows = session.query_named(statement)
        except PrivilegeError:
            break  # without the grant, the GTID set alone must do
        except RetryableReadError:
            raise
        except ReadError:
            continue  # MySQL before 8.2 knows the older words only
        if rows:
            parts.append(f"{rows[0].get('File')}:{rows[0].get('Position')}")
        break
    return " ".join(part for part in parts if part)


def _mariadb_snapshot(session: Session) -> str:
    """The place in the binlog of this session's snapshot, which MariaDB tells exactly."""
    rows = session.query("SHOW STATUS LIKE 'binlog_snapshot%'")
    found = {(name or "").lower(): value or "" for name, value in rows}
    file, offset = found.get("binlog_snapshot_file", ""), found.get("binlog_snapshot_position", "")
    return f"{file}:{offset}" if file else ""
