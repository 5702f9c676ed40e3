"""One source's change stream on a thread: collects touched keys and findings until the watch takes them.

The thread waits while more keys are collected than the watch has taken, so memory does not grow with a watch that is
slow; the binlog keeps the rest.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field

from migverify.changes.ddl import ddl_finding
from migverify.changes.decode import decoder
from migverify.changes.model import Begin, Commit, Idle, Item, Op, Position, Rows, Statement
from migverify.errors import MigverifyError
from migverify.model import KeyText
from migverify.tables.touched import Touches, Watched, immutable_changes, touched_keys
from migverify.watch.applied import Applied, Marker
from migverify.watch.ledger import place

MOST_COLLECTED = 100_000
POINT_COMMITS = 16
"""How exact the lag in transactions is."""
MarkerTable = tuple[str, str]


@dataclass(frozen=True, slots=True)
class StreamFinding:
    """Something in the stream that is not a row to read again.

    ``kind``: ``ddl``, ``truncate`` (both with the statement as ``text``), ``immutable``, ``keyless``, ``uncovered`` (a
    table in scope that no pair covers, ``text`` as ``uncovered_text`` gives it). ``pair`` is the pair's number or -1,
    ``seq`` the place.
    """

    kind: str
    pair: int
    seq: int
    text: str
    at: float


@dataclass(slots=True)
class Collected:
    """What was read since it was last taken; ``position`` None when no transaction ended since."""

    keys: dict[tuple[int, KeyText], tuple[int, int, int]] = field(default_factory=dict)
    position: Position | None = None
    points: list[tuple[int, float, int]] = field(default_factory=list)
    heard_at: float = 0.0
    findings: list[StreamFinding] = field(default_factory=list)
    failure: MigverifyError | None = None
    ended: bool = False


def uncovered_text(endpoint: str, database: str, table: str) -> str:
    """Return how a table in scope that no pair covers is kept."""
    return json.dumps([endpoint, database, table], ensure_ascii=False)


class StreamReader:
    """Reads one source's stream until it is told to stop, fails, or ends.

    Parameters
    ----------
    number
        The source's number in the ledger.
    endpoint
        The source's name.
    tables
        (database, table) -> pair, as the binlog spells them.
    in_scope
        Whether a table that no pair covers should have one.
    commits
        How many transactions were read before, by an earlier process.
    """

    def __init__(
        self,
        number: int,
        endpoint: str,
        open_stream: Callable[[], Iterator[Item]],
        tables: Mapping[tuple[str, str], Watched],
        in_scope: Callable[[str, str], bool],
        applied: Applied,
        marker_table: MarkerTable | None = None,
        commits: int = 0,
    ) -> None:
        self.number = number
        self.endpoint = endpoint
        self._commits = commits
        self._point: tuple[int, float, int] | None = None
        self._open = open_stream
        self._tables = dict(tables)
        self._in_scope = in_scope
        self._marker = applied if isinstance(applied, Marker) else None
        self._marker_table = marker_table
        self._marked = 0
        self._touches = Touches()
        self._box = Collected()
        self._lock = threading.Condition()
        self._stop = threading.Event()
        self._pending: list[tuple[str, int, str, float]] = []
        self.cascades: Mapping[tuple[str, str], Set[tuple[str, str]]] = {}
        """Tables that foreign keys change with a row of another table, without a row of theirs in the binlog."""
        self._thread = threading.Thread(target=self._run, name=f"binlog-{number}", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Tell the thread to end after the item it has; does not wait for a server that is silent."""
        self._stop.set()
        with self._lock:
            self._lock.notify_all()

    def replace(self, watched: Watched) -> None:
        """Use another plan for a table from now on."""
        with self._lock:
            self._tables[watched.database, watched.table] = watched

    def take(self) -> Collected:
        """Return what was collected and begin anew."""
        with self._lock:
            taken = self._box
            taken.keys, self._touches.done = self._touches.done, {}
            if self._point is not None:
                taken.points.append(self._point)
                self._point = None
            self._box = Collected(heard_at=taken.heard_at, failure=taken.failure, ended=taken.ended)
            self._lock.notify_all()
            return taken

    def _run(self) -> None:
        try:
            for item in self._open():
                if self._stop.is_set():
                    return
                self._take_item(item)
        except MigverifyError as error:
            self._end(error)
        except Exception as error:  # noqa: BLE001 - a thread that dies silently would leave the stream unread
            self._end(MigverifyError(f"the change stream of source {self.number} broke: {error!r}"))
        else:
            self._end(None)

    def _end(self, failure: MigverifyError | None) -> None:
        with self._lock:
            self._touches.forget()
            self._box.failure, self._box.ended = failure, True

    def _take_item(self, item: Item) -> None:
        if isinstance(item, Rows):
            self._take_rows(item)
        elif isinstance(item, Commit):
            self._commit(item.end, item.time)
        elif isinstance(item, Begin):
            self._touches.forget()  # a transaction that was cut off begins again after a reconnect
            self._pending.clear()
        elif isinstance(item, Statement):
            self._take_statement(item)
        elif isinstance(item, Idle):
            with self._lock:
                self._box.position, self._box.heard_at = item.at, time.time()

    def _take_rows(self, event: Rows) -> None:
        name = (event.table.database, event.table.table)
        watched = self._tables.get(name)
        if event.op is not Op.INSERT:
            self._take_cascades(name, event.time)
        if watched is not None:
            if watched.names and self._has_key(watched, event):
                self._touches.add(watched.number, touched_keys(watched, event))
                changed = immutable_changes(watched, event)
                if changed:
                    some = ", ".join(map(str, changed[:3]))
                    self._find("immutable", watched.number, f"{len(changed)} rows declared immutable changed: {some}",
                               event.time)  # fmt: skip
            elif not watched.names:
                self._find("keyless", watched.number, "rows were written, and the table has no key to read them by",
                           event.time)  # fmt: skip
        elif name == self._marker_table:
            numbers = decoder(event.table, ("number",)).texts(event.images)
            self._marked = max(self._marked, *(int(n[0] or 0) for n in numbers))
        elif self._in_scope(*name):
            self._find("uncovered", -1, uncovered_text(self.endpoint, *name), event.time)

    def _take_cascades(self, name: tuple[str, str], at: float) -> None:
        for child in self.cascades.get(name, ()):
            watched = self._tables.get(child)
            text = f"rows of {name[0]}.{name[1]} were changed, and what its foreign keys do here is in no binlog"
            if watched is not None and ("ddl", watched.number, text, at) not in self._pending[-len(self.cascades) :]:
                self._find("ddl", watched.number, text, at)

    def _has_key(self, watched: Watched, event: Rows) -> bool:
        """Whether the rows have the key's columns: those of another table under this name need not."""
        missing = set(watched.names) - {column.name for column in event.table.columns}
        if missing:
            text = f"rows were written without the key column {', '.join(sorted(missing))}"
            self._find("ddl", watched.number, text, event.time)
        return not missing

    def _take_statement(self, item: Statement) -> None:
        kind = "truncate" if item.op is Op.TRUNCATE else "ddl"
        finding = ddl_finding(item)
        text = finding.sql[:500] + (f" by {item.user}" if item.user else "")
        # Without a table's name the statement is about the whole database, without any name about every table. A server
        # may take names in any case: one table too many costs a comparison.
        named = {(database.casefold(), table.casefold()) for database, table in item.tables}
        for watched in self._tables.values():
            database, table = watched.database.casefold(), watched.table.casefold()
            if not named or {(database, table), (database, "")} & named:
                self._find(kind, watched.number, text, item.time)
        for name in item.tables:
            if name[1] and name not in self._tables and self._in_scope(*name):
                self._find("uncovered", -1, uncovered_text(self.endpoint, *name), item.time)

    def _find(self, kind: str, pair: int, text: str, at: float) -> None:
        self._pending.append((kind, pair, text, at))

    def _commit(self, end: Position, at: float) -> None:
        seq = place(end)
        with self._lock:
            while len(self._touches.done) > MOST_COLLECTED and not self._stop.is_set():
                self._lock.wait(0.5)
            # Keys that a TRUNCATE of the same transaction forgets come before it: one transaction, one place.
            self._touches.commit(seq, self.number)
            for kind, pair, text, moment in self._pending:
                self._box.findings.append(StreamFinding(kind, pair, seq, text, moment))
            self._pending.clear()
            if self._marked and self._marker is not None:
                self._marker.passed(self._marked, seq)
                self._marked = 0
            self._commits += 1
            self._point = (seq, at, self._commits)
            if self._commits % POINT_COMMITS == 0:
                self._box.points.append(self._point)
                self._point = None
            self._box.position, self._box.heard_at = end, time.time()
