"""Is a range of the stream complete? Two readers over the same bytes, and what both of them say.

``accounts`` adds up raw events: every byte, every position, every GTID. ``transactions`` reads rows and statements. The
range is complete when no number and no byte is missing, when both readers count the same, and when nothing was refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from migverify.changes.accounts import Accounts
from migverify.changes.ddl import DdlFinding, ddl_finding
from migverify.changes.decode import count_rows
from migverify.changes.events import EventType, RawEvent
from migverify.changes.gaps import Gaps
from migverify.changes.held import whole
from migverify.changes.model import Begin, Commit, Item, Position, Rows, Statement
from migverify.changes.positions import until_position
from migverify.changes.transactions import items
from migverify.errors import ChangeError
from migverify.model import Verdict

MOST_DDL = 10_000
BLIND_SPOTS = (
    "writes of sessions with sql_log_bin = 0: they are in no binlog",
    "whole transactions cut off at the very end of the last file: no later file says that they were executed",
)


@dataclass(frozen=True, slots=True)
class FileSum:
    """One file: ``bytes`` of its events and head, ``size`` of the file (0 where the server gave none)."""

    name: str
    events: int
    bytes: int
    size: int
    in_use: bool


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest transaction by bytes in the binlog, counted from its GTID event to its end."""

    gtid: str
    bytes: int
    rows: int
    at: Position


@dataclass(frozen=True, slots=True)
class Audit:
    """What is known of a range. ``reasons`` say why the verdict is not MATCH; ``notes`` are worth knowing.

    ``tables`` maps ``database.table`` in scope to rows by op, ``events`` the event type's name to (events, bytes).
    ``bytes_in`` is what was read, ``bytes_of_files`` what the files hold (0 from a server). ``first`` and ``last``
    bound the range; times are Unix time of commits on the source, 0 without any. ``idle`` counts heartbeats;
    ``idle_until`` is when a running server had no more to send, by this machine's clock (0 for files).
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    first: Position | None
    last: Position | None
    first_time: float
    last_time: float
    files: tuple[FileSum, ...]
    events: dict[str, tuple[int, int]]
    bytes_in: int
    bytes_of_files: int
    transactions: int
    anonymous: int
    rows_events: int
    tables: dict[str, dict[str, int]]
    ddl: tuple[DdlFinding, ...]
    ddl_count: int
    largest: Largest | None
    gaps: Gaps
    idle: int
    idle_until: float
    blind_spots: tuple[str, ...] = BLIND_SPOTS


@dataclass(slots=True)
class Books:
    """Counts what the reader of transactions gives. ``also`` gets every item after it was counted.

    ``wanted`` says which (database, table) are in scope, ``wanted_database`` which databases hold any that could be.
    """

    wanted: Callable[[str, str], bool]
    wanted_database: Callable[[str], bool]
    also: Callable[[Item], None] | None = None
    transactions: int = 0
    begun: int = 0
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
        if self.also is not None:
            self.also(item)

    def _take_rows(self, item: Rows) -> None:
        self.rows_events += 1
        if self.wanted(item.table.database, item.table.table):
            rows = count_rows(item)
            self._rows += rows
            self.tables.setdefault(item.table.name, Counter())[item.op.value] += rows

    def _statement(self, item: Statement) -> None:
        # A statement whose tables cannot be told may concern any of them.
        if item.tables and not any(self.wanted(d, t) if t else self.wanted_database(d) for d, t in item.tables):
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


def run_audit(
    events: Iterable[RawEvent], accounts: Accounts, books: Books, *, start: Position, since: Position | None,
    until: Position | None, rest: Callable[[], Iterator[RawEvent]] | None = None,
) -> str:  # fmt: skip
    """Read a stream with both readers.

    Parameters
    ----------
    events
        Raw events with an artificial ROTATE in front of each file.
    start, since
        As for ``transactions.items``.
    until
        Where to stop, None for the end of the events.
    rest
        Yields what is left after an error that ended ``events`` itself: the files behind a damaged one.

    Returns
    -------
    str
        What the reader of transactions refused, empty if nothing. Raw events behind that place are counted on.
    """
    watched = _watched(events, accounts)
    try:
        for item in until_position(whole(items(watched, start, since=since, gaps=accounts.jumps)), until, since):
            books.take(item)
    except ChangeError as error:
        refused = error.message + (f" {error.hint}" if error.hint else "")
    else:
        accounts.finish()
        return ""
    try:
        for _ in watched:
            pass
        for _ in _watched(rest() if rest is not None else (), accounts):
            pass
    except ChangeError as error:
        if error.message not in refused:
            refused += "; " + error.message
    accounts.finish()
    return refused


def _watched(events: Iterable[RawEvent], accounts: Accounts) -> Iterator[RawEvent]:
    try:
        for event in events:
            accounts.take(event)
            yield event
    except ChangeError:
        accounts.broken = True
        raise


def conclude(
    accounts: Accounts, books: Books, refused: str, *, partial: bool, live: bool = False, more: Iterable[str] = ()
) -> Audit:
    """Judge what was read.

    Parameters
    ----------
    refused
        What ``run_audit`` returned.
    partial
        The range begins or ends inside of what the accounts saw, so both readers need not count the same.
    live
        A running server told what it has executed, so nothing can be missing behind the end.
    more
        Further reasons for INCONCLUSIVE.
    """
    gaps = accounts.numbers.gaps()
    proven = list(_proven(accounts, gaps))
    doubts = [*_doubts(accounts, books, gaps, partial=partial or bool(refused)), *more]
    if accounts.broken:  # what was not read may hold what seems to be missing
        doubts, proven = [*proven, *doubts], []
    if refused:
        doubts.insert(0, f"the stream cannot be read on: {refused}")
    verdict = Verdict.MISMATCH if proven else Verdict.INCONCLUSIVE if doubts else Verdict.MATCH
    return Audit(
        verdict, (*proven, *doubts), tuple(_notes(accounts, books)), books.first, books.last, books.first_time,
        books.last_time, tuple(FileSum(f.name, f.events, f.bytes, f.size, f.in_use) for f in accounts.files),
        {_name(kind): (count, size) for kind, (count, size) in sorted(accounts.by_type.items())},
        accounts.bytes_in, sum(file.size for file in accounts.files), books.transactions, accounts.anonymous,
        accounts.rows_events, {name: dict(ops) for name, ops in sorted(books.tables.items())}, tuple(books.ddl),
        books.ddl_count, books.largest, gaps, accounts.heartbeats, books.idle_until if live else 0.0,
        BLIND_SPOTS[:1] if live else BLIND_SPOTS,
    )  # fmt: skip


def _proven(accounts: Accounts, gaps: Gaps) -> Iterator[str]:
    if gaps.lost:
        yield f"transactions that the server executed are not in the stream: {gaps.lost}"
    if gaps.holes and not accounts.group and not accounts.mariadb:
        yield f"transactions are missing between others of their source: {gaps.holes}"
    if gaps.repeated:
        yield f"transactions came more than once: {gaps.repeated}"
    for place in accounts.missing_bytes:
        yield f"bytes are missing: {place}"


def _doubts(accounts: Accounts, books: Books, gaps: Gaps, *, partial: bool) -> Iterator[str]:
    if not any(file.events for file in accounts.files):
        yield "nothing was read"
    if accounts.relay:
        yield "this is a relay log: its positions are those of another server; audit the source's own binlog"
    if gaps.foreign:
        yield f"the stream holds transactions that a later file of the server does not know: {gaps.foreign}"
    if gaps.holes and accounts.group:
        yield f"numbers are missing, which group replication may leave out by itself: {gaps.holes}"
    if gaps.holes and accounts.mariadb:
        # MariaDB states how far a domain came, not what it skipped, so nobody contradicts a number that never was.
        yield f"numbers are missing; they were lost, or skipped by hand (gtid_seq_no): {gaps.holes}"
    for place in accounts.misplaced:
        yield f"positions do not fit: {place}"
    for place in accounts.orphan_rows:
        yield f"rows without a table map: {place}"
    for place in accounts.barren_maps:
        yield f"a table map without any rows behind it: {place}"
    if not partial:
        yield from accounts.unread()
        yield from _unlike(accounts, books)


def _unlike(accounts: Accounts, books: Books) -> Iterator[str]:
    """Say where the two readers disagree."""
    if accounts.transactions != books.transactions:
        yield f"{accounts.transactions} transactions begin, {books.transactions} were read to their end"
    # Rows of a prepared XA transaction come with its commit, those of one that was rolled back never.
    xa = EventType.XA_PREPARE in accounts.by_type
    if accounts.rows_events != books.rows_events and not (xa and books.rows_events < accounts.rows_events):
        yield f"{accounts.rows_events} rows events are in the stream, {books.rows_events} were given out"


def _notes(accounts: Accounts, books: Books) -> Iterator[str]:
    if accounts.anonymous:
        yield f"{accounts.anonymous} transactions have no GTID: that none is missing rests on positions alone"
    if accounts.numbers.base is None and accounts.transactions > accounts.anonymous:
        yield "no set of executed transactions stands before the range: only numbers from its first one on are judged"
    for name, count in accounts.silent_maps.most_common(20):
        yield f"{name}: {count} table maps without rows of their own (a statement maps all tables it may write)"
    if accounts.left_out_bytes:
        yield f"the server left out {accounts.left_out_bytes} bytes between transactions, as the start position asks"
    if EventType.XA_PREPARE in accounts.by_type:
        yield "XA transactions: rows count where they are committed; prepared ones without an end are not counted"
    if accounts.files and accounts.files[-1].in_use and not accounts.files[-1].closed and accounts.files[-1].size:
        yield f"{accounts.files[-1].name} was still written, or its server died: the range ends where the copy ends"
    if books.ddl_count > len(books.ddl):
        yield f"{books.ddl_count} schema changes; the first {len(books.ddl)} are listed"


def _name(kind: int) -> str:
    return EventType(kind).name if kind in set(EventType) else f"UNKNOWN_{kind}"
