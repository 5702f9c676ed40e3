"""Is a range of the binlog complete, in files or on a running server? Two readers over the same bytes must agree.

``byte_accounting`` adds up raw events: every byte, every position, every GTID. ``transactions`` reads rows and
statements. The range is complete when no number and no byte is missing, when both readers count the same, and when
nothing was refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from migverify.changes.buffer import whole
from migverify.changes.byte_accounting import ByteAccounting, Gaps
from migverify.changes.ddl import DdlFinding, ddl_finding
from migverify.changes.decode import count_rows
from migverify.changes.events import FIRST_OFFSET, EventType, RawEvent
from migverify.changes.files import BinlogFiles, Opener
from migverify.changes.gtid import parse_gtids
from migverify.changes.model import Begin, Commit, Item, Position, Rows, Statement, Wanted
from migverify.changes.places import EventStream
from migverify.changes.positions import before, until_position
from migverify.changes.server import BinlogServer, source_state
from migverify.changes.storage import open_file
from migverify.changes.transactions import items
from migverify.db.server_state import executed_gtids
from migverify.db.session import open_session
from migverify.errors import ChangeError
from migverify.model import Endpoint, Side, Verdict

MOST_DDL = 10_000
BLIND_SPOTS = (
    "writes of sessions with sql_log_bin = 0: they are in no binlog",
    "whole transactions cut off at the very end of the last file: no later file says that they were executed",
)


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest transaction by bytes in the binlog, counted from its GTID event to its end."""

    gtid: str
    bytes: int
    rows: int
    at: Position


@dataclass(frozen=True, slots=True)
class AuditScope:
    """What an audit is about.

    ``wanted`` says which (database, table) are in scope, ``wanted_database`` which databases hold any that could be.
    """

    wanted: Wanted
    wanted_database: Callable[[str], bool]


@dataclass(slots=True)
class StreamAudit:
    """What is known of a range: counts of what the reader of transactions gives, then the verdict.

    ``accounting`` is the other reader. ``tables`` maps ``database.table`` in scope to rows by op. ``first`` and
    ``last`` bound the range; times are Unix time of commits on the source, 0 without any. ``idle_until`` is when a
    running server had no more to send, by this machine's clock (0 for files). ``reasons`` say why the verdict is not
    MATCH; ``notes`` are worth knowing.
    """

    scope: AuditScope
    accounting: ByteAccounting
    verdict: Verdict = Verdict.INCONCLUSIVE
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    blind_spots: tuple[str, ...] = BLIND_SPOTS
    gaps: Gaps = field(default_factory=Gaps)
    transactions: int = 0
    rows_events: int = 0
    tables: dict[str, Counter[str]] = field(default_factory=dict)
    ddl: list[DdlFinding] = field(default_factory=list)
    ddl_count: int = 0
    first: Position | None = None
    last: Position | None = None
    first_time: float = 0.0
    last_time: float = 0.0
    idle_until: float = 0.0
    largest: Largest | None = None
    _begin: Begin | None = None
    _rows: int = 0

    @property
    def events(self) -> dict[str, tuple[int, int]]:
        """The name of each event type -> (events, bytes)."""
        return {_name(kind): (count, size) for kind, (count, size) in sorted(self.accounting.by_type.items())}

    def take(self, item: Item) -> None:
        """Count one item."""
        if isinstance(item, Rows):
            self._take_rows(item)
        elif isinstance(item, Begin):
            self._begin, self._rows = item, 0
            self.first = self.first or item.start
            self.first_time = self.first_time or item.time
        elif isinstance(item, Commit):
            self._commit(item)
        elif isinstance(item, Statement):
            self._statement(item)
        else:
            self.idle_until = item.time
            self.first = self.first or item.at
            self.last = item.at

    def _take_rows(self, item: Rows) -> None:
        self.rows_events += 1
        if self.scope.wanted(item.table.database, item.table.table):
            rows = count_rows(item)
            self._rows += rows
            self.tables.setdefault(item.table.name, Counter())[item.op.value] += rows

    def _statement(self, item: Statement) -> None:
        # A statement whose tables are unknown may concern any of them.
        if item.tables and not any(
            self.scope.wanted(d, t) if t else self.scope.wanted_database(d) for d, t in item.tables
        ):
            return
        self.ddl_count += 1
        if len(self.ddl) < MOST_DDL:
            self.ddl.append(ddl_finding(item, self._begin.gtid if self._begin else ""))

    def _commit(self, item: Commit) -> None:
        self.transactions += 1
        self.last, self.last_time = item.end, item.time
        begin = self._begin
        if begin is not None and begin.start.file == item.end.file:
            size = item.end.offset - begin.start.offset
            if self.largest is None or size > self.largest.bytes:
                self.largest = Largest(begin.gtid, size, self._rows, begin.start)
        self._begin = None


def audit_files(
    paths: Sequence[str], scope: AuditScope, *, since: Position | None = None, until: Position | None = None,
    opener: Opener = open_file,
) -> StreamAudit:  # fmt: skip
    """Audit binlog files.

    Parameters
    ----------
    paths
        As for ``BinlogFiles``.
    since, until
        The range whose rows are counted; None is the start of the first file and the end of the last. Every file from
        the one with ``since`` on is read from its head, because GTIDs are compared with the set there.
    """
    files = BinlogFiles(paths, since, opener)
    accounting = ByteAccounting(scope.wanted, since=since, until=until)
    accounting.sizes(files.sizes())
    audit = StreamAudit(scope, accounting)
    refused = _read(files.events(), audit, start=files.start, since=since, until=until, rest=files.events)
    return _conclude(audit, refused, partial=since is not None or until is not None)


def audit_server(
    endpoint: Endpoint, password: str | None, scope: AuditScope, *, since: Position | None = None,
    until: Position | None = None,
) -> StreamAudit:  # fmt: skip
    """Audit what a running server has, up to its end when the audit begins, or to ``until``.

    Parameters
    ----------
    since
        File and offset, or a GTID set; None is the oldest log that the server has.

    Raises
    ------
    ChangeError
        the server has no binlog, or no longer what ``since`` asks for.
    EndpointError
        it cannot be reached, or the user lacks a grant.
    """
    with open_session(endpoint, password, side=Side.SOURCE) as session:
        # The set first: a server names offsets of transactions before it counts them as executed, never after.
        executed = executed_gtids(session)
        state = source_state(session)
    by_set = since is not None and not since.file
    accounting = ByteAccounting(scope.wanted, jumps=by_set, since=since, until=until)
    audit = StreamAudit(scope, accounting)
    if by_set and since is not None:
        accounting.begin_after(since.gtids)
        origin, asked = Position("", 0), Position("", 0, since.gtids)
    else:
        # From the head of the file: it states what was executed before.
        origin = asked = Position(since.file if since is not None else state.first.file, FIRST_OFFSET)
    events = BinlogServer(endpoint, password).events(asked)
    refused = _read(events, audit, start=origin, since=since, until=until)
    more = []
    if until is None:
        if executed:
            accounting.numbers.word(parse_gtids(executed), exact=False)
        if not refused and _short_of(accounting, state.end):
            more.append(f"the server ended the stream before {state.end}, where it stood when the audit began")
    partial = since is not None or until is not None
    return _conclude(audit, refused, partial=partial, live=until is None, more=more)


def _short_of(accounting: ByteAccounting, end: Position) -> bool:
    if not accounting.files:
        return True
    last = accounting.files[-1]
    return before(Position(last.name, last.offset), end)


def _read(
    events: Iterable[RawEvent], audit: StreamAudit, *, start: Position,
    since: Position | None, until: Position | None, rest: Callable[[], Iterator[RawEvent]] | None = None,
) -> str:  # fmt: skip
    """Read a stream with both readers; return what the reader of transactions refused, empty if nothing.

    ``events`` have an artificial ROTATE in front of each file. After an error that ended them, ``rest`` yields what is
    left: the files behind a damaged one. Raw events behind the refused place are counted on.
    """
    accounting = audit.accounting
    watched = _watched(events, accounting)
    try:
        stream = EventStream(watched, start, since, accounting.jumps)
        for item in until_position(whole(items(stream)), until, since):
            audit.take(item)
    except ChangeError as error:
        refused = error.message + (f" {error.hint}" if error.hint else "")
    else:
        accounting.finish()
        return ""
    try:
        for _ in watched:
            pass
        for _ in _watched(rest() if rest is not None else (), accounting):
            pass
    except ChangeError as error:
        if error.message not in refused:
            refused += "; " + error.message
    accounting.finish()
    return refused


def _watched(events: Iterable[RawEvent], accounting: ByteAccounting) -> Iterator[RawEvent]:
    try:
        for event in events:
            accounting.take(event)
            yield event
    except ChangeError:
        accounting.broken = True
        raise


def _conclude(
    audit: StreamAudit, refused: str, *, partial: bool, live: bool = False, more: Iterable[str] = ()
) -> StreamAudit:  # fmt: skip
    """Judge what was read.

    ``partial``: the range begins or ends inside of what the accounting saw, so both readers need not count the same.
    ``live``: a running server reported what it has executed, so nothing can be missing behind the end. ``more`` are
    further reasons for INCONCLUSIVE.
    """
    accounting = audit.accounting
    gaps = audit.gaps = accounting.numbers.gaps()
    proven = list(_proven(accounting, gaps))
    doubts = [*_doubts(audit, partial=partial or bool(refused)), *more]
    if accounting.broken:  # what was not read may hold what seems to be missing
        doubts, proven = [*proven, *doubts], []
    if refused:
        doubts.insert(0, f"the stream cannot be read on: {refused}")
    audit.verdict = Verdict.MISMATCH if proven else Verdict.INCONCLUSIVE if doubts else Verdict.MATCH
    audit.reasons, audit.notes = (*proven, *doubts), tuple(_notes(audit))
    if live:
        audit.blind_spots = BLIND_SPOTS[:1]
    else:
        audit.idle_until = 0.0
    return audit


def _proven(accounting: ByteAccounting, gaps: Gaps) -> Iterator[str]:
    if gaps.lost:
        yield f"transactions that the server executed are not in the stream: {gaps.lost}"
    if gaps.holes and not accounting.group:
        yield f"transactions are missing between others of their source: {gaps.holes}"
    if gaps.repeated:
        yield f"transactions came more than once: {gaps.repeated}"
    for place in accounting.missing_bytes:
        yield f"bytes are missing: {place}"


def _doubts(audit: StreamAudit, *, partial: bool) -> Iterator[str]:
    accounting, gaps = audit.accounting, audit.gaps
    if not any(file.events for file in accounting.files):
        yield "nothing was read"
    if accounting.relay:
        yield "this is a relay log: its positions are those of another server; audit the source's own binlog"
    if gaps.foreign:
        yield f"the stream holds transactions that a later file of the server does not know: {gaps.foreign}"
    if gaps.holes and accounting.group:
        yield f"numbers are missing, which group replication may leave out by itself: {gaps.holes}"
    for place in accounting.misplaced:
        yield f"positions do not fit: {place}"
    for place in accounting.orphan_rows:
        yield f"rows without a table map: {place}"
    for place in accounting.barren_maps:
        yield f"a table map without any rows behind it: {place}"
    if not partial:
        yield from accounting.unread()
        yield from _different(audit)


def _different(audit: StreamAudit) -> Iterator[str]:
    """Say where the two readers disagree."""
    accounting = audit.accounting
    if accounting.transactions != audit.transactions:
        yield f"{accounting.transactions} transactions begin, {audit.transactions} were read to their end"
    # Rows of a prepared XA transaction come with its commit, those of one that was rolled back never.
    xa = EventType.XA_PREPARE in accounting.by_type
    if accounting.rows_events != audit.rows_events and not (xa and audit.rows_events < accounting.rows_events):
        yield f"{accounting.rows_events} rows events are in the stream, {audit.rows_events} were given out"


def _notes(audit: StreamAudit) -> Iterator[str]:
    accounting = audit.accounting
    if accounting.anonymous:
        yield f"{accounting.anonymous} transactions have no GTID: that none is missing rests on positions alone"
    if accounting.numbers.base is None and accounting.transactions > accounting.anonymous:
        yield "no set of executed transactions precedes the range: only numbers from its first one on are judged"
    for name, count in accounting.silent_maps.most_common(20):
        yield f"{name}: {count} table maps without rows of their own (a statement maps all tables it may write)"
    if accounting.left_out_bytes:
        yield f"the server left out {accounting.left_out_bytes} bytes between transactions, as the start position asks"
    if EventType.XA_PREPARE in accounting.by_type:
        yield "XA transactions: rows count where they are committed; prepared ones without an end are not counted"
    last = accounting.files[-1] if accounting.files else None
    if last is not None and last.in_use and not last.closed and last.size:
        yield f"{last.name} was still written, or its server died: the range ends where the copy ends"
    if audit.ddl_count > len(audit.ddl):
        yield f"{audit.ddl_count} schema changes; the first {len(audit.ddl)} are listed"


def _name(kind: int) -> str:
    return EventType(kind).name if kind in set(EventType) else f"UNKNOWN_{kind}"
