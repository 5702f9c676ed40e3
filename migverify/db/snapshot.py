"""One snapshot of an endpoint: held for a whole run, or shared by several sessions.

TiDB: a transaction gives a timestamp, and every other session reads as of it. Garbage collection never passes the start
of an open transaction (for at most ``tidb_gc_max_wait_time``, a day by default), so the snapshot stays readable without
a change to any global setting. MySQL and MariaDB: several sessions begin a consistent snapshot each; they saw one state
when nothing was committed meanwhile, which the position of the binlog before and after tells. On a server that writes
all the time that never happens: then one session does all the reads, which is one state too, at a place between two
positions.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from migverify.db.server_state import binlog_status, executed_gtids
from migverify.db.session import Session, open_session
from migverify.errors import EndpointError, MigverifyError, PrivilegeError, ReadError, RetryableReadError
from migverify.model import Endpoint, Flavor, Side

NOW = "now"
TOUCH_SECONDS = 30.0
DIGITS_OF_A_TIME = 14  # 20260131120000; a TSO has 18
ATTEMPTS = 5
SETTLE_SECONDS = 0.02
BEGIN = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
ROLLBACK = "ROLLBACK"
CURRENT_TSO = "SELECT TIDB_CURRENT_TSO()"

_MILLISECOND = 18  # bits of a TSO below its milliseconds
_CLOCK_SECONDS = 0.005
_CLOCK_LOOKS = 200

Open = Callable[[Endpoint, str | None], Session]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReadSnapshot:
    """The moment of an endpoint that was read.

    ``exact`` when all reads saw one state: a MySQL consistent snapshot at ``position`` (GTID set or file:offset), a
    TiDB snapshot at the TSO ``position``, a change stream up to ``position``. Otherwise the reads lie between
    ``position`` and ``until``.
    """

    endpoint: str
    flavor: str
    how: str
    position: str
    until: str
    exact: bool
    at: float


@dataclass(frozen=True, slots=True)
class SnapshotSessions:
    """Sessions of one endpoint that read one snapshot, at least one.

    ``begin`` are the statements that open the snapshot, or one near it, in a session of another process (None where
    that was not requested), and ``probe`` the cheap read that proves a ``tidb_snapshot`` there.
    """

    sessions: tuple[Session, ...]
    snapshot: ReadSnapshot
    begin: tuple[str, ...] | None = None
    probe: str = ""

    def at_end(self) -> ReadSnapshot:
        """Return the snapshot, when everything was read: other processes may have begun theirs at a later position."""
        if not self.begin or self.snapshot.exact:
            return self.snapshot
        until = _settled_position(self.sessions[0])
        exact = bool(until) and until == self.snapshot.position
        return replace(self.snapshot, until=until, exact=exact)


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
        when the session reads current data although a snapshot is configured.
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
    info = session.query("SELECT @@tidb_last_query_info")[0][0]
    return int(json.loads(info or "{}").get("start_ts", 0))


@contextmanager
def held_snapshot(endpoint: Endpoint, password: str | None) -> Iterator[Endpoint]:
    """Yield an endpoint with ``snapshot: now`` replaced by a timestamp that is held meanwhile.

    Raises
    ------
    EndpointError
        the endpoint is no TiDB, or cannot be reached.
    """
    if endpoint.snapshot != NOW:
        yield endpoint
        return
    with open_session(replace(endpoint, snapshot=None), password) as session:
        if session.flavor is not Flavor.TIDB:
            raise EndpointError(
                f"{endpoint.name}: snapshot: now needs TiDB, and this is {session.flavor}",
                hint=f"Remove snapshot from the {endpoint.name}.",
            )
        timestamp = transaction_start(session)
        ended = threading.Event()
        keeper = threading.Thread(target=_touch, args=(session, ended), name="snapshot", daemon=True)
        keeper.start()
        try:
            yield replace(endpoint, snapshot=timestamp)
        finally:
            ended.set()
            keeper.join()


def _touch(session: Session, ended: threading.Event) -> None:
    """Keep the connection from being closed as idle.

    When it is lost all the same, a read of a snapshot that garbage collection passed fails with a message of its own
    (8055), so nothing wrong is ever read.
    """
    while not ended.wait(TOUCH_SECONDS):
        try:
            session.query("SELECT 1")
        except MigverifyError:
            return


def transaction_start(session: Session) -> str:
    """Begin a transaction on TiDB and return its start timestamp (TSO)."""
    session.query(BEGIN)
    stamp = session.query(CURRENT_TSO)[0][0] or "0"
    if not stamp.isdigit() or stamp == "0":
        raise EndpointError(f"{session.endpoint.name}: the server gives no timestamp for a transaction")
    return stamp


def current_timestamp(session: Session) -> int:
    """Return a timestamp (TSO) of TiDB that is newer than all that is committed by now.

    Raises
    ------
    EndpointError
        the server is no TiDB.
    """
    if session.flavor is not Flavor.TIDB:
        raise EndpointError(f"{session.endpoint.name} is no TiDB, and has no TSO")
    try:
        return int(transaction_start(session))
    finally:
        session.query(ROLLBACK)


def _open(endpoint: Endpoint, password: str | None) -> Session:
    return open_session(endpoint, password, side=Side.SOURCE)


@contextmanager
def open_snapshot(
    endpoint: Endpoint, secrets: Mapping[str, str], wanted: int, probe: str = "", opener: Open = _open,
    *, shared: bool = False,
) -> Iterator[SnapshotSessions]:  # fmt: skip
    """Open up to ``wanted`` sessions that read one snapshot of an endpoint.

    Fewer come back where one snapshot for all cannot be had. ``probe`` is a cheap read of a table, to prove that a
    TiDB snapshot is in force. With ``shared`` one session comes back, and what sessions of other processes begin with.

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
        wanted = 1 if shared else max(1, min(wanted, endpoint.connections))
        if first.flavor is not Flavor.TIDB:
            others = tuple(stack.enter_context(opener(current, password)) for _ in range(wanted - 1))
            yield _mysql_shared(first) if shared else _mysql((first, *others))
        elif shared and not fixed:
            yield _tidb_shared(stack, first, current, password, opener)
        else:
            found = _tidb(stack, first, current, password, wanted, probe, opener)
            yield replace(found, begin=(), probe=probe) if shared else found


def _tidb(
    stack: ExitStack, first: Session, endpoint: Endpoint, password: str | None, wanted: int, probe: str, opener: Open
) -> SnapshotSessions:  # fmt: skip
    at = time.time()
    if endpoint.snapshot:
        check_snapshot(first, probe)
    stamp = endpoint.snapshot or transaction_start(first)
    sessions = [first]
    try:
        for _ in range(wanted - 1):
            session = stack.enter_context(opener(replace(endpoint, snapshot=stamp), password))
            check_snapshot(session, probe)
            sessions.append(session)
    except PrivilegeError:
        raise
    except EndpointError as error:
        # A server without a GC safe point cannot read as of a time; the transaction reads one snapshot all the same.
        if endpoint.snapshot or ("tidb_snapshot" not in error.message and "safe_point" not in error.message):
            raise
        sessions = [first]
    how = "tidb_snapshot" if endpoint.snapshot or len(sessions) > 1 else "transaction"
    return SnapshotSessions(tuple(sessions), _exact(endpoint, how, stamp, at))


def _tidb_shared(
    stack: ExitStack, first: Session, endpoint: Endpoint, password: str | None, opener: Open
) -> SnapshotSessions:
    """Hold a timestamp: garbage collection does not pass the start of the first session's open transaction."""
    at = time.time()
    stamp = next_millisecond(int(transaction_start(first)))
    reader = stack.enter_context(opener(endpoint, password))
    begin = begin_as_of(reader, stamp)
    return SnapshotSessions((reader,), _exact(endpoint, "as of timestamp", str(stamp), at), (begin,))


def next_millisecond(tso: int) -> int:
    """Return the first moment after a timestamp that AS OF TIMESTAMP takes: it takes whole milliseconds."""
    return ((tso >> _MILLISECOND) + 1) << _MILLISECOND


def begin_as_of(session: Session, tso: int) -> str:
    """Begin a transaction that reads TiDB as of a whole millisecond; returns the statement.

    Raises
    ------
    ReadError
        the timestamp lies in the future, or behind garbage collection.
    """
    begin = f"START TRANSACTION READ ONLY AS OF TIMESTAMP TIDB_PARSE_TSO({tso})"
    for attempt in range(_CLOCK_LOOKS):  # the timestamp may be some milliseconds ahead of the cluster's clock
        try:
            session.execute(begin)
            break
        except RetryableReadError:
            raise
        except ReadError:
            if attempt == _CLOCK_LOOKS - 1:
                raise
            time.sleep(_CLOCK_SECONDS)
    return begin


def read_as_of(session: Session, tso: int, read: Callable[[Session], T]) -> T:
    """Run one read of TiDB as of a whole millisecond; raises as ``begin_as_of`` and the read do."""
    begin_as_of(session, tso)
    found = read(session)
    session.execute(ROLLBACK)
    return found


def _exact(endpoint: Endpoint, how: str, position: str, at: float) -> ReadSnapshot:
    return ReadSnapshot(endpoint.name, "tidb", how, position, position, exact=True, at=at)


def _mysql(sessions: tuple[Session, ...]) -> SnapshotSessions:
    for _ in range(ATTEMPTS):
        found = _begin(sessions)
        if found.exact:
            return SnapshotSessions(sessions, found)
        for session in sessions:
            session.query(ROLLBACK)
    # One session sees one state, however much is written meanwhile.
    return SnapshotSessions(sessions[:1], _begin(sessions[:1]))


def _mysql_shared(session: Session) -> SnapshotSessions:
    position, name = binlog_place(session), session.endpoint.name
    how = "consistent snapshots"
    snapshot = ReadSnapshot(name, session.flavor.value, how, position, position, exact=False, at=time.time())
    return SnapshotSessions((session,), snapshot, (BEGIN,))


def _begin(sessions: tuple[Session, ...]) -> ReadSnapshot:
    """Begin a snapshot in every session; exact when the position shows that all see one state."""
    first = sessions[0]
    before = binlog_place(first)
    at = time.time()
    for session in sessions:
        session.query(BEGIN)
    name, flavor = first.endpoint.name, first.flavor.value
    if first.flavor is Flavor.MARIADB:
        seen = {_mariadb_snapshot(session) for session in sessions}
        if len(seen) == 1 and "" not in seen:
            position = seen.pop()
            return ReadSnapshot(name, flavor, "consistent snapshot", position, position, exact=True, at=at)
    after = binlog_place(first)
    if before and before == after:
        after = _settled_position(first)
    exact = bool(before) and before == after
    how = "consistent snapshot" if exact or len(sessions) > 1 else "one session's consistent snapshot"
    return ReadSnapshot(name, flavor, how, before, after, exact=exact, at=at)


def begin_snapshot(session: Session, begin: Sequence[str], probe: str) -> None:
    """Open a shared snapshot in a new session, and prove a configured ``tidb_snapshot``.

    Raises
    ------
    EndpointError
        the session reads current data although a snapshot is configured.
    """
    for statement in begin:
        session.execute(statement)
    check_snapshot(session, probe)


def _settled_position(session: Session) -> str:
    """Return the position once every visible transaction is counted: it may be visible a moment before."""
    time.sleep(SETTLE_SECONDS)
    return binlog_place(session)


def binlog_place(session: Session) -> str:
    """Return the GTID set and the binlog's end, as far as the user may see them; empty for neither.

    Both together: the end of the file moves before a transaction becomes visible, the GTID set after it.
    """
    parts = [executed_gtids(session)]
    try:
        status = binlog_status(session)
    except RetryableReadError:
        raise
    except (PrivilegeError, ReadError):
        status = None  # without the grant, the GTID set alone must do
    if status is not None:
        parts.append(f"{status.file}:{status.offset}")
    return " ".join(part for part in parts if part)


def _mariadb_snapshot(session: Session) -> str:
    """The place in the binlog of this session's snapshot, which MariaDB reports exactly."""
    rows = session.query("SHOW STATUS LIKE 'binlog_snapshot%'")
    found = {(name or "").lower(): value or "" for name, value in rows}
    file, offset = found.get("binlog_snapshot_file", ""), found.get("binlog_snapshot_position", "")
    return f"{file}:{offset}" if file else ""
