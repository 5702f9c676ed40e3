"""One source's changes on a thread: collects touched keys and findings until the watch takes them.

The thread waits while more keys are collected than the watch has taken, so memory does not grow with a watch that is
slow; the source of the changes keeps the rest.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Protocol

from migverify.changes.carriers.committed import VOID
from migverify.changes.ddl import ddl_finding
from migverify.changes.decode import decoder
from migverify.changes.model import AfterImages, Begin, Commit, Idle, Item, Op, Position, Rows, Statement
from migverify.changes.server import source_state
from migverify.changes.source import read_server
from migverify.db.session import Session
from migverify.errors import ChangeError, MigverifyError
from migverify.model import Endpoint, KeyText
from migverify.watch.applied import Applied
from migverify.watch.ledger import ordinal_of, shown
from migverify.watch.touched import Touches, WatchedTable, immutable_changes, leaves_rows, touched_keys

HEARTBEAT_SECONDS = 1.0
"""How often a silent source says that nothing was written."""
MOST_COLLECTED = 100_000
POINT_COMMITS = 16
"""How exact the lag in transactions is."""
MOST_POINTS = 20_000
_FEW_PENDING = 100
"""Findings of a transaction among which an equal one is looked for."""
_MARKER = re.compile(r"[0-9]{1,18}\Z")
"""The number of a marker; a row with anything else is none."""


class FollowedSource(Protocol):
    """The committed changes of one source, in order and from a position on: a binlog, or what a carrier made of one.

    An *ordinal* is a number that grows along the changes. Ordinals of two sources have no common order.
    """

    @property
    def hides_cascades(self) -> bool:
        """Whether rows that a foreign key changes may be missing."""
        ...

    def open(self, since: Position | None) -> Iterator[Item]:
        """Begin after a position; None is "from now on"."""
        ...

    def head(self, session: Session) -> Position:
        """Return where the changes end: all that is committed by now is before it."""
        ...

    def ordinal(self, position: Position) -> int:
        """Return the ordinal of a position."""
        ...

    def shown(self, ordinal: int, like: Position | None) -> str:
        """Return an ordinal as the source writes positions; ``like`` is any position of it."""
        ...


@dataclass(frozen=True, slots=True)
class FollowedBinlog:
    """The binlog of a server."""

    endpoint: Endpoint
    password: str | None = field(repr=False)
    hides_cascades: ClassVar[bool] = True

    def open(self, since: Position | None) -> Iterator[Item]:
        """Follow the server as a replica does."""
        return read_server(
            self.endpoint, self.password, since, follow=True, heartbeat_seconds=HEARTBEAT_SECONDS, any_table=True
        )

    def head(self, session: Session) -> Position:
        """Return the end of the binlog."""
        return source_state(session).end

    def ordinal(self, position: Position) -> int:
        """Return file number and offset as one number."""
        return ordinal_of(position)

    def shown(self, ordinal: int, like: Position | None) -> str:
        """Return file and offset."""
        return shown(ordinal, like)


@dataclass(frozen=True, slots=True)
class Stream:
    """One source endpoint: its changes, and how to learn what the target applied of them.

    ``start`` is where the changes begin when the ledger does not know. ``marker_table`` holds the rows of
    watches, ``marker_name`` is this one's. ``set_aside`` keeps rows whose keys cannot be read, and the reason: then
    their table is compared as a whole. None where such rows end the stream.
    """

    endpoint: Endpoint
    changes: FollowedSource
    applied: Applied
    start: Position | None
    marker_table: tuple[str, str] | None = None
    marker_name: str = ""
    set_aside: Callable[[Rows, str], None] | None = None


@dataclass(frozen=True, slots=True)
class StreamFinding:
    """Something in the stream that is not a row to read again.

    ``kind``: ``ddl``, ``truncate`` (both with the statement as ``text``), ``immutable``, ``keyless``, ``uncovered`` (a
    table in scope that no pair covers: endpoint, database and table as JSON). ``pair`` is the pair's number or -1.
    """

    kind: str
    pair: int
    ordinal: int
    text: str
    at: float


@dataclass(slots=True)
class Collected:
    """What was read since it was last taken; ``position`` None when no transaction ended since.

    ``there`` are the keys whose last change left a row, ``firsts`` the places of first changes, as for ``Touches``.
    ``failure`` says why nothing more comes.
    """

    keys: dict[tuple[int, KeyText], tuple[int, int, int]] = field(default_factory=dict)
    there: set[tuple[int, KeyText]] = field(default_factory=set)
    firsts: dict[tuple[int, KeyText], int] = field(default_factory=dict)
    position: Position | None = None
    points: list[tuple[int, float, int]] = field(default_factory=list)
    received_at: float = 0.0
    findings: list[StreamFinding] = field(default_factory=list)
    failure: MigverifyError | None = None


@dataclass(slots=True)
class SourceProgress:
    """How far one source was read and applied, with points of commit times: enough to say how far behind a place is.

    A point is (ordinal, time of the commit on the source, commits up to it). ``failure`` says why the stream ended.
    ``moved_at`` is the monotonic time at which the place moved on last.
    """

    stream: Stream
    commits: int = 0
    position: Position | None = None
    ordinal: int = 0
    received_at: float = 0.0
    moved_at: float = field(default_factory=time.monotonic)
    applied: int | None = None
    failure: str = ""
    points: deque[tuple[int, float, int]] = field(default_factory=deque)
    behind: int = -1

    def moved(self, taken: Collected) -> None:
        """Note that the stream was read to a place."""
        if taken.position is None:
            return
        if self.behind < 0:
            self.behind = self.commits
        before = self.ordinal
        self.position, self.ordinal = taken.position, self.stream.changes.ordinal(taken.position)
        if self.ordinal > before:
            self.moved_at = time.monotonic()
        self.received_at = taken.received_at
        self.points.extend(taken.points)
        if taken.points:
            self.commits = taken.points[-1][2]
        if len(self.points) > MOST_POINTS:
            self.points = deque(p for n, p in enumerate(self.points) if n % 2)

    def lag(self, now: float) -> tuple[float | None, int | None]:
        """Return seconds and transactions that the target is behind what was read."""
        if self.applied is None or self.position is None:
            return None, None
        while self.points and self.points[0][0] <= self.applied:
            self.behind = self.points.popleft()[2]
        if not self.points:
            return 0.0, 0
        return max(0.0, now - self.points[0][1]), max(1, self.commits - self.behind)

    def shown(self, ordinal: int) -> str:
        """Return an ordinal as the source writes positions."""
        return self.stream.changes.shown(ordinal, self.position)


class StreamReader:
    """Reads one source's changes until it is stopped, fails, or ends.

    Parameters
    ----------
    number
        The source's number in the ledger.
    tables
        (database, table) -> pair, as the stream spells them.
    in_scope
        Whether a table that no pair covers should have one.
    begin
        Where to begin.
    commits
        How many transactions were read before, by an earlier process.
    """

    def __init__(
        self,
        number: int,
        stream: Stream,
        tables: Mapping[tuple[str, str], WatchedTable],
        in_scope: Callable[[str, str], bool],
        begin: Position | None,
        commits: int = 0,
    ) -> None:
        self.number, self._stream, self._commits = number, stream, commits
        self._open = partial(stream.changes.open, begin)
        self._tables = dict(tables)
        self._in_scope = in_scope
        self._point: tuple[int, float, int] | None = None
        self._marked = 0
        self._touches = Touches()
        self._box = Collected()
        self._lock = threading.Condition()
        self._stop = threading.Event()
        self._pending: list[tuple[str, int, str, float]] = []
        self.cascades: Mapping[tuple[str, str], Set[tuple[str, str]]] = {}
        """Tables that foreign keys change with a row of another table, without a row of theirs in the stream."""
        self.observe: Callable[[Item], None] = lambda _: None
        """Receives every item too, on the thread of the stream."""
        self._thread = threading.Thread(target=self._run, name=f"changes-{number}", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the item it has; does not wait for a server that is silent."""
        self._stop.set()
        with self._lock:
            self._lock.notify_all()

    def replace(self, watched: WatchedTable) -> None:
        """Use another plan for a table from now on."""
        with self._lock:
            self._tables[watched.database, watched.table] = watched

    def take(self) -> Collected:
        """Return what was collected and begin anew."""
        with self._lock:
            taken = self._box
            taken.keys, self._touches.done = self._touches.done, {}
            taken.there, self._touches.there = self._touches.there, set()
            taken.firsts, self._touches.firsts = self._touches.firsts, {}
            if self._point is not None:
                taken.points.append(self._point)
                self._point = None
            self._box = Collected(received_at=taken.received_at, failure=taken.failure)
            self._lock.notify_all()
            return taken

    def _run(self) -> None:
        failure: MigverifyError = ChangeError("the stream ended")
        try:
            for item in self._open():
                if self._stop.is_set():
                    return
                self._take_item(item)
        except MigverifyError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - a thread that dies silently would leave the stream unread
            failure = MigverifyError(f"the change stream of source {self.number} broke: {error!r}")
        with self._lock:
            self._touches.forget()
            self._box.failure = failure

    def _take_item(self, item: Item) -> None:
        self.observe(item)
        if isinstance(item, Rows):
            self._take_rows(item)
        elif isinstance(item, Commit):
            self._commit(item)
        elif isinstance(item, Begin):
            self._touches.forget()  # a transaction that was cut off begins again after a reconnect
            self._pending.clear()
        elif isinstance(item, Statement):
            self._take_statement(item)
        elif isinstance(item, Idle):
            with self._lock:
                self._box.position, self._box.received_at = item.at, time.time()

    def _take_rows(self, event: Rows) -> None:
        name = (event.table.database, event.table.table)
        watched = self._tables.get(name)
        if event.op is not Op.INSERT:
            self._take_cascades(name, event.time)
        if watched is not None:
            if watched.names and self._has_key(watched, event):
                self._take_keys(watched, event)
            elif not watched.names:
                text = "rows were written, and the table has no key to read them by"
                self._find("keyless", watched.number, text, event.time)
        elif name == self._stream.marker_table:
            # Another watch may use the same table, one of the other direction above all.
            for owner, marked in decoder(event.table, ("name", "number")).texts(event.images):
                if owner == self._stream.marker_name and _MARKER.match(marked or ""):
                    self._marked = max(self._marked, int(marked or 0))
        elif self._in_scope(*name):
            self._find_uncovered(name, event.time)

    def _take_keys(self, watched: WatchedTable, event: Rows) -> None:
        try:
            self._touches.add(watched.number, touched_keys(watched, event), leaves_rows(event))
            changed = immutable_changes(watched, event)
        except ChangeError as error:
            if self._stream.set_aside is None:
                raise
            self._stream.set_aside(event, error.message)
            text = f"rows were written whose keys cannot be read: {error.message}"
            self._find_once("ddl", watched.number, text, event.time)
            return
        self._take_unknown_keys(watched, event)
        if changed:
            some = ", ".join(map(str, changed[:3]))
            text = f"{len(changed)} rows declared immutable changed: {some}"
            self._find("immutable", watched.number, text, event.time)

    def _take_cascades(self, name: tuple[str, str], at: float) -> None:
        for child in self.cascades.get(name, ()):
            watched = self._tables.get(child)
            text = f"rows of {name[0]}.{name[1]} were changed, and what its foreign keys do here is in no binlog"
            if watched is not None and ("ddl", watched.number, text, at) not in self._pending[-len(self.cascades) :]:
                self._find("ddl", watched.number, text, at)

    def _take_unknown_keys(self, watched: WatchedTable, event: Rows) -> None:
        """Find that the key of a row before an update is not known: the message's own key tells of no other key."""
        if not isinstance(event.table, AfterImages):
            return
        named = {event.table.columns[place].name for place in event.table.key}
        if missing := sorted(set(watched.names) - named):
            text = f"rows were updated, and the changefeed sends no old values of the key column {', '.join(missing)}"
            self._find_once("ddl", watched.number, text, event.time)

    def _has_key(self, watched: WatchedTable, event: Rows) -> bool:
        """Whether the rows have the key's columns: those of another table under this name need not."""
        missing = set(watched.names) - {column.name for column in event.table.columns}
        if missing:
            text = f"rows were written without the key column {', '.join(sorted(missing))}"
            self._find("ddl", watched.number, text, event.time)
        return not missing

    def _take_statement(self, item: Statement) -> None:
        kind = "truncate" if item.op is Op.TRUNCATE else "ddl"
        text = _shown(item) + (f" by {item.user}" if item.user else "")
        for watched in concerned(item, self._tables.values()):
            self._find(kind, watched.number, text, item.time)
        for name in item.tables:
            if name[1] and name not in self._tables and self._in_scope(*name):
                self._find_uncovered(name, item.time)

    def _find_uncovered(self, name: Sequence[str], at: float) -> None:
        self._find("uncovered", -1, uncovered_text(self._stream.endpoint, name), at)

    def _find(self, kind: str, pair: int, text: str, at: float) -> None:
        self._pending.append((kind, pair, text, at))

    def _find_once(self, kind: str, pair: int, text: str, at: float) -> None:
        """Find what may be found of each of many rows."""
        if (kind, pair, text, at) not in self._pending[-_FEW_PENDING:]:
            self._find(kind, pair, text, at)

    def _commit(self, item: Commit) -> None:
        end, at = item.end, item.time
        ordinal = self._stream.changes.ordinal(end)
        if item.is_late:  # before its keys can be due: a marker that is on the target already says nothing of them
            self._stream.applied.hold(ordinal)
        with self._lock:
            while len(self._touches.done) > MOST_COLLECTED and not self._stop.is_set():
                self._lock.wait(0.5)
            # Keys that a TRUNCATE of the same transaction forgets come before it: one transaction, one place.
            self._touches.commit(ordinal, self.number, int(item.gtid) if item.is_late else None)
            for kind, pair, text, moment in self._pending:
                self._box.findings.append(StreamFinding(kind, pair, ordinal, text, moment))
            self._pending.clear()
            if self._marked:
                self._stream.applied.passed(self._marked, ordinal)
                self._marked = 0
            self._commits += 1
            self._point = (ordinal, at, self._commits)
            if self._commits % POINT_COMMITS == 0:
                self._box.points.append(self._point)
                self._point = None
            self._box.position, self._box.received_at = end, time.time()


def uncovered_text(endpoint: Endpoint, name: Sequence[str]) -> str:
    """Return the text of an ``uncovered`` finding about a table, (database, table)."""
    return json.dumps([endpoint.name, *name], ensure_ascii=False)


def concerned(item: Statement, tables: Iterable[WatchedTable]) -> Iterator[WatchedTable]:
    """Yield the tables that a statement may be about.

    Without a table's name it is about the whole database, without any name about every table. A server may take names
    in any case: one table too many costs a comparison.
    """
    named = {(database.casefold(), table.casefold()) for database, table in item.tables}
    for watched in tables:
        database, table = watched.database.casefold(), watched.table.casefold()
        if not named or {(database, table), (database, "")} & named:
            yield watched


def _shown(item: Statement) -> str:
    """Return a statement as findings show it. One that changes rows of unknown tables has values: only its verb."""
    if item.sql.startswith(VOID):
        return item.sql[:500]
    if item.tables or item.op is not Op.DDL:
        return ddl_finding(item).sql[:500]
    verb = item.sql.split(None, 1)[0][:20].upper() if item.sql.strip() else "a statement"
    return f"{verb} was logged as a statement, without rows: any table may have changed"
