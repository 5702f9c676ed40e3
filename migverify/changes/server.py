"""The binlog of a running server, requested as a replica does: a transport of ``changes.source``, and its state.

The connection is PyMySQL's, opened and pinned like every other (``migverify.db.session``). mysql-replication is not
used for it: its reader repeats transactions after a lost connection, cannot send tagged GTIDs, and drops events that
it does not know.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from migverify.changes.buffer import ItemBuffer
from migverify.changes.dump import dump, packet_events
from migverify.changes.events import FIRST_OFFSET, EventType, RawEvent
from migverify.changes.gtid import parse_gtids
from migverify.changes.model import Position
from migverify.changes.places import EventStream
from migverify.changes.positions import before, shown
from migverify.changes.statements import Xid
from migverify.changes.transactions import Transport
from migverify.db.server_state import BinaryLog, binary_logs, binlog_status, global_variables, replica_status
from migverify.db.session import Session, open_session
from migverify.errors import ChangeError, EndpointError, PrivilegeError, PurgedError, RetryableReadError
from migverify.model import Endpoint, Flavor, Side

HEARTBEAT_SECONDS = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SourceState:
    """The state of a server's binlog. ``end`` is its end now, ``first`` the oldest place that it still has."""

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
        return SourceState("", session.flavor, gtids=False, first=first, end=end, executed="")
    mode, server = session.query("SELECT @@GLOBAL.gtid_mode, @@server_uuid")[0]
    executed = str(parse_gtids(status.gtids))
    return SourceState(server or "", session.flavor, mode == "ON", first, end, executed)


def refuse_incomplete(session: Session, databases: Iterable[str]) -> None:
    """Refuse a server whose binlog leaves out writes to some databases."""
    status = binlog_status(session)
    filters = status.filters if status is not None else {}
    kept, ignored = ({n.strip().casefold() for n in filters.get(option, "").split(",") if n.strip()}
                     for option in ("binlog_do_db", "binlog_ignore_db"))  # fmt: skip
    for database in sorted(databases):
        if database.casefold() in ignored or (kept and database.casefold() not in kept):
            raise ChangeError(
                f"{session.endpoint.name}: its binlog leaves out database {database} ("
                + ", ".join(f"{name}: {value}" for name, value in filters.items()) + ")",
                hint="Read a server without binlog filters.",
            )  # fmt: skip
    variables = global_variables(session)
    logs = variables.get("log_replica_updates") or variables.get("log_slave_updates")
    if logs == "OFF" and replica_status(session)[1]:
        raise ChangeError(
            f"{session.endpoint.name} is a replica that does not log what it applies (log_replica_updates=OFF).",
            hint="Read its source, or set log_replica_updates there.",
        )


def current_position(session: Session) -> Position:
    """Return the place where a reader that starts now begins.

    With GTIDs it is the executed set alone: a server names file and offset of transactions that it has written but
    not committed yet, so set and offset of one answer need not agree.
    """
    return _newest(source_state(session))


class BinlogServer(Transport):
    """The binlog of a MySQL over the network.

    Parameters
    ----------
    endpoint, password
        Its user needs REPLICATION SLAVE and REPLICATION CLIENT.
    follow
        Go on as the server writes. Otherwise stop where its binlog ends when it is first opened.
    heartbeat_seconds
        Longest silence between two events while nothing is written.
    """

    def __init__(
        self, endpoint: Endpoint, password: str | None, *, follow: bool = False,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:  # fmt: skip
        self.name = endpoint.name
        self._endpoint, self._password = endpoint, password
        self._follow, self._heartbeat = follow, heartbeat_seconds
        self._prepared: dict[Xid, ItemBuffer] = {}
        self._left_out: Position | None = None
        self._ends_at_offset = False

    @cached_property
    def state(self) -> SourceState:
        """The state at the first use.

        Raises
        ------
        ChangeError
            it writes no binlog.
        EndpointError
            it cannot be reached, or refuses the user.
        """
        with self._session() as session:
            state = source_state(session)
        if state.flavor is not Flavor.MYSQL:
            raise ChangeError(f"{self.name} is a {state.flavor.value} server: only MySQL's binlog can be read.")
        return state

    @property
    def uuid(self) -> str:
        """The server's UUID; empty where it has none."""
        return self.state.server

    def logs(self) -> list[BinaryLog]:
        """Return its binlog files now, in their order."""
        with self._session() as session:
            return binary_logs(session)

    def events(self, start: Position, *, follow: bool = False) -> Iterator[RawEvent]:
        """Yield everything it sends over one connection, artificial events and heartbeats included.

        Starts at file and offset, or behind the position's set where it has no file. Ends at the newest event, with
        ``follow`` at no event.

        Raises
        ------
        RetryableReadError
            the connection is lost.
        ChangeError
            another server answers than before.
        """
        uuid = self.uuid
        try:
            with self._session() as session:
                server = source_state(session).server
                if server != uuid:
                    raise ChangeError(
                        f"{self.name} is another server now (its uuid was {uuid}, is {server}).",
                        hint="Its binlog files are others: give it an archive of its own.",
                    )
                gtids = "" if start.file else start.gtids
                yield from packet_events(dump(session, start, gtids, wait=follow, heartbeat=self._heartbeat))
        except PrivilegeError:
            raise
        except EndpointError as error:  # it answered before, so it may answer again
            raise RetryableReadError(error.message, hint=error.hint) from error

    def range(self, since: Position | None, until: Position | None) -> tuple[Position, Position | None, bool]:
        """See Transport: None is now, and the end of the binlog unless this follows it."""
        state = self.state
        start = since or _newest(state)
        if start.file and before(state.end, start):
            raise ChangeError(
                f"{self.name}: {start} lies beyond the end of the binlog, {state.end}.",
                hint="Is this the server that the position comes from?",
            )
        to_the_end = not self._follow and until is None
        until = state.end if to_the_end else until
        self._ends_at_offset = until is not None and bool(until.file)
        return start, until, to_the_end

    @contextmanager
    def opened(self, start: Position | None, *, again: bool) -> Iterator[EventStream]:
        """See Transport; after a failover the stream goes on by its GTID set."""
        start = start or _newest(self.state)
        with self._session() as session:
            if again:
                start = self._same_server(start, source_state(session))
            origin, since, gtids = self._plan(start, again=again)
            events = packet_events(dump(session, origin, gtids, wait=self._follow, heartbeat=self._heartbeat))
            gaps = bool(gtids)
            try:
                yield EventStream(events, origin, since, gaps, self._prepared)
            except PurgedError as error:
                raise self._purged(error, start) from error
            if self._follow:
                raise RetryableReadError(f"{self.name}: the server ended the stream.")

    def files_back(self, at: Position) -> Iterator[tuple[Position, Iterator[RawEvent]]]:
        """See Transport: the files that the server still has."""
        for log in reversed(self.logs()):
            head = Position(log.name, FIRST_OFFSET)
            if not before(at, head):
                _log.info("%s: looking for an XA PREPARE in %s", self.name, log.name)
                with self._session() as session:
                    yield head, packet_events(dump(session, head, "", wait=False, heartbeat=self._heartbeat))

    def _session(self) -> Session:
        return open_session(self._endpoint, self._password, side=Side.SOURCE)

    def _plan(self, start: Position, *, again: bool) -> tuple[Position, Position | None, str]:
        """What to request of the server: where to begin, what to leave out of it, and the set that it may leave out."""
        state = self.state
        if again and start.file:
            # The offset is exact on the same server. The set of the first start may name later transactions too.
            return start, self._left_out, ""
        if start.gtids and state.gtids:
            self._left_out = Position("", 0, start.gtids)
            return Position("", 0), self._left_out, start.gtids
        if not start.file:
            raise ChangeError(
                f"{self.name} cannot start by a GTID set: it does not write GTIDs (gtid_mode is not ON).",
                hint="Start at file and offset, such as binlog.000003:4.",
            )
        if start.gtids or not state.gtids:
            return start, None, ""
        # The set there is not known: read the file from its head, which gives it.
        return Position(start.file, FIRST_OFFSET), start, ""

    def _same_server(self, start: Position, state: SourceState) -> Position:
        """Where to go on; after a failover only a GTID set means the same place."""
        former, self.state = self.state, state
        if state.server == former.server:
            return start
        if not start.gtids or not state.gtids or self._ends_at_offset:
            raise ChangeError(
                f"{self.name} is another server now (its uuid was {former.server}, is {state.server}): "
                "a file and offset of the one mean nothing on the other.",
                hint="With gtid_mode=ON, start (and end) by a GTID set; without it, verify the tables in full.",
            )
        _log.warning("%s is another server now (uuid %s)", self.name, state.server)
        return Position("", 0, start.gtids)

    def _purged(self, error: PurgedError, start: Position) -> PurgedError:
        """The same error, with the oldest place that is left and what to do."""
        with self._session() as session:
            state = source_state(session)
        return PurgedError(
            f"{self.name}: the changes after {shown(start)} are not on the server any more: {error.message}",
            hint=f"The oldest place it has is {state.first}. Read what lies before it from archived files "
            "(changes tail --file), or verify the tables in full and start at a current position. Keep binlogs longer: "
            "binlog_expire_logs_seconds, on Aurora and RDS `binlog retention hours`.",
        )


def _newest(state: SourceState) -> Position:
    return Position("", 0, state.executed) if state.gtids and state.executed else state.end


def log_begun(endpoint: Endpoint, password: str | None, name: str) -> float:
    """Return the Unix time at which a server began a binlog file, from the head of the file."""
    events = BinlogServer(endpoint, password).events(Position(name, FIRST_OFFSET))
    with closing(cast("Generator[RawEvent]", events)):  # ends the connection, long before the end of the log
        for event in events:
            if event.type == EventType.FORMAT_DESCRIPTION and event.time:
                return float(event.time)
            if event.type not in (EventType.ROTATE, EventType.FORMAT_DESCRIPTION):
                break
    raise ChangeError(f"{endpoint.name}: {name} does not say when it was begun.")
