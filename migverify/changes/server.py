"""Change items from a running server: ask for its binlog as a replica does, read until told to stop.

The connection is PyMySQL's, opened and pinned like every other (``migverify.db.session``); the dump itself is asked for
and cut here. mysql-replication is not used for it: its reader repeats transactions after a lost connection, cannot
send tagged GTIDs, and drops events that it does not know.

A lost connection is opened again and the stream goes on after the last whole transaction. Transactions are given out
whole only, so nothing is given twice or in part.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass

from migverify.changes.dump import dump, packet_events
from migverify.changes.events import EventType, RawEvent
from migverify.changes.gtid import MariadbPosition, parse_gtids
from migverify.changes.held import Held, whole
from migverify.changes.model import Commit, Idle, Item, Position
from migverify.changes.positions import FIRST_OFFSET, before, until_position
from migverify.changes.statements import Xid
from migverify.changes.transactions import items, prepared_before
from migverify.db.server_state import binary_logs, binlog_status
from migverify.db.session import Session, open_session
from migverify.errors import (
    ChangeError,
    EndpointError,
    MigverifyError,
    PrivilegeError,
    PurgedError,
    RetryableReadError,
)
from migverify.model import Endpoint, Flavor, Side

HEARTBEAT_SECONDS = 5.0
RECONNECT_SECONDS = 300.0
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 15.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SourceState:
    """What a server says about its binlog. ``end`` is its end now, ``first`` the oldest place that it still has."""

    server: str
    flavor: Flavor
    gtids: bool
    first: Position
    end: Position
    executed: str


def source_state(session: Session) -> SourceState:
    """Ask a server where its binlog begins and ends.

    Raises
    ------
    ChangeError
        it writes no binlog.
    PrivilegeError
        the user lacks REPLICATION CLIENT.
    """
    if session.flavor is Flavor.TIDB:
        raise ChangeError(
            f"{session.endpoint.name} is a TiDB, which has no binlog to read.",
            hint="Read its changes from TiCDC (canal-json or open protocol).",
        )
    status = binlog_status(session)
    logs = binary_logs(session) if status is not None else []
    if status is None or not logs:
        raise ChangeError(f"{session.endpoint.name} writes no binlog.", hint="Set log_bin on the source.")
    end = Position(status.file, status.offset)
    first = Position(logs[0].name, FIRST_OFFSET)
    if session.flavor is Flavor.MARIADB:
        answer = session.query(f"SELECT BINLOG_GTID_POS('{end.file}', {end.offset}), @@server_uid")
        executed, uid = answer[0][0] or "", answer[0][1] or ""
        return SourceState(uid, session.flavor, bool(executed), first, end, executed)
    mode, server = session.query("SELECT @@GLOBAL.gtid_mode, @@server_uuid")[0]
    executed = str(parse_gtids(status.gtids))
    return SourceState(server or "", session.flavor, mode == "ON", first, end, executed)


def current_position(session: Session) -> Position:
    """Return the place where a reader that starts now begins.

    With GTIDs it is the executed set alone: a server names file and offset of transactions that it has written but
    not committed yet, so set and offset of one answer need not agree.
    """
    state = source_state(session)
    return Position("", 0, state.executed) if state.gtids and state.executed else state.end


def first_position(endpoint: Endpoint, password: str | None) -> Position:
    """Return the oldest place that the server still has."""
    with open_session(endpoint, password, side=Side.SOURCE) as session:
        return source_state(session).first


def read_server(
    endpoint: Endpoint,
    password: str | None,
    since: Position | None,
    *,
    until: Position | None = None,
    follow: bool,
    heartbeat_seconds: float = HEARTBEAT_SECONDS,
    reconnect_seconds: float = RECONNECT_SECONDS,
    any_table: bool = False,
) -> Iterator[Item]:
    """Yield the transactions of a server, whole ones only; Idle whenever it had nothing to send for a heartbeat.

    Parameters
    ----------
    endpoint, password
        The source; its user needs REPLICATION SLAVE and REPLICATION CLIENT.
    since
        Where to start: file and offset, a GTID set, or both (then the set counts where the server has GTIDs); None
        is now. A file and offset must lie between two transactions.
    until
        Stop after the last transaction that starts before this position, or once its GTID set was read.
    follow
        Go on as the server writes. Otherwise stop where its binlog ended when this was called.
    heartbeat_seconds
        Longest silence between two items while nothing is written.
    reconnect_seconds
        How long to try again after the connection is lost, counted from the last sign of life.
    any_table
        As for ``items``: statements that cannot be read do not end the stream.

    Raises
    ------
    ChangeError
        the stream cannot be read exactly from here on, or the connection stays lost.
    PurgedError
        the server no longer has what ``since`` asks for.
    EndpointError
        the first connection fails.
    """
    reader = _Reader(endpoint, password, follow=follow, heartbeat=heartbeat_seconds, patience=reconnect_seconds)
    with open_session(endpoint, password, side=Side.SOURCE) as session:
        state = source_state(session)
    reader.server, reader.any_table = state.server, any_table
    start = since
    if start is None:
        start = Position("", 0, state.executed) if state.gtids and state.executed else state.end
    if start.file and before(state.end, start):
        raise ChangeError(
            f"{endpoint.name}: {start} lies beyond the end of the binlog, {state.end}.",
            hint="Is this the server that the position comes from?",
        )
    to_the_end = not follow and until is None
    if to_the_end:
        until = state.end
    reader.ends_at_place = until is not None and bool(until.file)
    yield from until_position(reader.read(start, state), until, start, may_end=to_the_end)


class Reconnection:
    """A growing wait before a lost connection is opened again, and when to stop trying, by the last sign of life."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.alive()

    def alive(self) -> None:
        """Take note of a sign of life."""
        self._since, self._wait = time.monotonic(), _FIRST_WAIT

    @property
    def is_hopeless(self) -> bool:
        """Whether the connection stayed lost for longer than the patience."""
        return time.monotonic() - self._since > self.patience

    def wait(self) -> None:
        """Wait before the next attempt."""
        time.sleep(self._wait * random.uniform(0.5, 1.0))
        self._wait = min(2 * self._wait, _LONGEST_WAIT)


class _Reader:
    """Reads one server over as many connections as it takes."""

    def __init__(
        self, endpoint: Endpoint, password: str | None, *, follow: bool, heartbeat: float, patience: float
    ) -> None:
        self.endpoint, self.password = endpoint, password
        self.follow, self.heartbeat, self.reconnection = follow, heartbeat, Reconnection(patience)
        self.server = ""
        self.ends_at_place = self.any_table = False
        self.prepared: dict[Xid, Held] = {}
        self.left_out: Position | None = None

    def read(self, start: Position, state: SourceState) -> Iterator[Item]:
        """Yield items from the start on, over lost connections."""
        done: Position | None = None
        while True:
            stream = self._connect(start if done is None else done, state, again=done is not None)
            try:
                for item in stream:
                    if isinstance(item, Commit):
                        done = item.end
                    elif isinstance(item, Idle):
                        done = item.at
                    self.reconnection.alive()
                    yield item
            except (RetryableReadError, EndpointError) as error:
                if isinstance(error, PrivilegeError) or (done is None and isinstance(error, EndpointError)):
                    raise
                self._wait_or_give_up(error, done)
            else:
                return

    def _wait_or_give_up(self, error: MigverifyError, done: Position | None) -> None:
        if self.reconnection.is_hopeless:
            raise ChangeError(
                f"{self.endpoint.name}: the connection stayed lost for {self.reconnection.patience:.0f} s:"
                f" {error.message}",
                hint=f"Everything up to {_shown(done)} was read; go on from there." if done else error.hint,
            ) from error
        _log.info("%s: reading again from %s: %s", self.endpoint.name, _shown(done), error.message)
        self.reconnection.wait()

    def _connect(self, start: Position, state: SourceState, *, again: bool) -> Iterator[Item]:
        with open_session(self.endpoint, self.password, side=Side.SOURCE) as session:
            if again:
                state = source_state(session)
                start = self._same_server(start, state)
            origin, since, gtids = self._plan(start, state, again=again)
            packets = dump(session, origin, gtids, wait=self.follow, heartbeat=self.heartbeat)
            gaps = bool(gtids) or state.flavor is Flavor.MARIADB
            events = packet_events(packets)
            try:
                yield from whole(
                    items(
                        events, origin, since=since, gaps=gaps, prepared=self.prepared,
                        look_back=self._look_back, any_table=self.any_table,
                    )
                )  # fmt: skip
            except PurgedError as error:
                raise _purged(self.endpoint, error, start, self.password) from error
            if self.follow:
                raise RetryableReadError(f"{self.endpoint.name}: the server ended the stream.")

    def _plan(self, start: Position, state: SourceState, *, again: bool) -> tuple[Position, Position | None, str]:
        """What to ask the server for: where to begin, what to leave out of it, and the set that it may leave out."""
        if again and start.file:
            # The offset is exact on the same server. The set of the first start may name later transactions too.
            return start, self.left_out, ""
        if start.gtids and isinstance(parse_gtids(start.gtids), MariadbPosition) != (state.flavor is Flavor.MARIADB):
            raise ChangeError(
                f"{self.endpoint.name} is a {state.flavor.value} server, which knows nothing of {start.gtids[:200]}.",
                hint="MySQL: uuid:1-5; MariaDB: domain-server-sequence.",
            )
        if start.gtids and state.gtids:
            self.left_out = Position("", 0, start.gtids)
            return Position("", 0), self.left_out, start.gtids
        if not start.file:
            raise ChangeError(
                f"{self.endpoint.name} cannot start by a GTID set: it does not write GTIDs (gtid_mode is not ON).",
                hint="Start at file and offset, such as binlog.000003:4.",
            )
        if start.gtids or not state.gtids:
            return start, None, ""
        # The set there is not known: read the file from its head, which tells it.
        return Position(start.file, FIRST_OFFSET), start, ""

    def _look_back(self, xid: Xid, at: Position) -> Held | None:
        """Find an XA transaction that was prepared before the start, in the files that the server still has."""
        with open_session(self.endpoint, self.password, side=Side.SOURCE) as session:
            names = [log.name for log in binary_logs(session)]
        for name in reversed(names):
            head = Position(name, FIRST_OFFSET)
            if before(at, head):
                continue
            _log.info("%s: looking for XA PREPARE of %s in %s", self.endpoint.name, xid, name)
            with open_session(self.endpoint, self.password, side=Side.SOURCE) as session:
                packets = dump(session, head, "", wait=False, heartbeat=self.heartbeat)
                found = prepared_before(packet_events(packets), head, at if at.file == name else None)
            if xid in found:
                return found[xid]
        return None

    def _same_server(self, start: Position, state: SourceState) -> Position:
        """Where to go on; after a failover only a GTID set means the same place."""
        if state.server == self.server:
            return start
        if not start.gtids or not state.gtids or self.ends_at_place:
            raise ChangeError(
                f"{self.endpoint.name} is another server now (its uuid was {self.server}, is {state.server}): "
                "a file and offset of the one mean nothing on the other.",
                hint="With gtid_mode=ON, start (and end) by a GTID set; without it, verify the tables in full.",
            )
        self.server = state.server
        _log.warning("%s is another server now (uuid %s)", self.endpoint.name, state.server)
        return Position("", 0, start.gtids)


def _shown(position: Position | None) -> str:
    if position is None:
        return "the start"
    return str(position) if position.file else position.gtids


def _purged(endpoint: Endpoint, error: PurgedError, start: Position, password: str | None) -> PurgedError:
    """The same error, with the oldest place that is left and the ways out."""
    with open_session(endpoint, password, side=Side.SOURCE) as session:
        state = source_state(session)
    return PurgedError(
        f"{endpoint.name}: the changes after {_shown(start)} are not on the server any more: {error.message}",
        hint=f"The oldest place it has is {state.first}. Read what lies before it from archived files "
        "(changes tail --file), or verify the tables in full and start at a current position. Keep binlogs longer: "
        "binlog_expire_logs_seconds, on Aurora and RDS `binlog retention hours`.",
    )


def server_events(
    endpoint: Endpoint,
    password: str | None,
    since: Position | None,
    *,
    follow: bool,
    heartbeat_seconds: float = HEARTBEAT_SECONDS,
) -> Iterator[RawEvent]:
    """Yield the raw events of one connection, with artificial ROTATE and heartbeats as the server sends them.

    Starts by the position's set where it has one and no file, else at file and offset; None is now. Does not
    reconnect.
    """
    with open_session(endpoint, password, side=Side.SOURCE) as session:
        start = current_position(session) if since is None else since
        gtids = "" if start.file else start.gtids
        yield from packet_events(dump(session, start, gtids, wait=follow, heartbeat=heartbeat_seconds))


def stood_still(endpoint: Endpoint, password: str | None, since: Position | None) -> bool:
    """Whether a source has written nothing since a place of its binlog; False where that cannot be told."""
    if since is None:
        return False
    with open_session(endpoint, password, side=Side.SOURCE) as session:
        state = source_state(session)
    if since.gtids and state.executed:
        then, now = parse_gtids(since.gtids), parse_gtids(state.executed)
        return not then.missing(now)  # type: ignore[arg-type]  # both of one server
    return not before(since, state.end)


def log_begun(endpoint: Endpoint, password: str | None, name: str) -> float:
    """Return the Unix time at which a server began a binlog file, from the head of the file.

    Raises
    ------
    ChangeError
        the server does not send it, or it begins with something else.
    """

    def head() -> Generator[RawEvent, None, None]:
        yield from server_events(endpoint, password, Position(name, FIRST_OFFSET), follow=False)

    with closing(head()) as events:  # closing it ends the connection, long before the end of the log
        for event in events:
            if event.type == EventType.FORMAT_DESCRIPTION and event.time:
                return float(event.time)
            if event.type not in (EventType.ROTATE, EventType.FORMAT_DESCRIPTION):
                break
    raise ChangeError(f"{endpoint.name}: {name} does not say when it was begun.")
