"""Where every byte of a binlog went: events by type, positions without a jump, GTIDs, table maps and their rows.

This is a second reader beside ``migverify.changes.transactions``. It understands less - headers and table ids - and so
sees independently what the first one might pass over, and it goes on behind a place where the first one had to stop.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from migverify.changes.events import (
    ARTIFICIAL,
    END_BITS,
    FIRST_OFFSET,
    GTID_EVENTS,
    HEARTBEATS,
    NO_TABLE,
    ROWS_EVENTS,
    EventType,
    RawEvent,
)
from migverify.changes.gtid import Executed, Gtid, GtidSet, Interval, Source, decode_gtids, parse_gtids
from migverify.changes.headers import read_gtid
from migverify.changes.model import Position, Wanted
from migverify.changes.payload import payload_events
from migverify.changes.positions import before

RELAY_LOG = 0x0040
_STATEMENT_END = 0x0001
_PLACES = 100
_BETWEEN = GTID_EVENTS | {EventType.ROTATE, EventType.STOP, EventType.PREVIOUS_GTIDS}
_GROUP = frozenset({EventType.TRANSACTION_CONTEXT, EventType.VIEW_CHANGE})


@dataclass(frozen=True, slots=True)
class Gaps:
    """What the numbers prove, as texts of GTID sets, empty for none.

    ``lost`` are transactions that a server has and the stream lacks, ``holes`` numbers that the stream lacks without a
    server's word about them, ``repeated`` transactions that came again, ``foreign`` ones that the stream has and a
    later word of the server has not.
    """

    lost: str = ""
    holes: str = ""
    repeated: str = ""
    foreign: str = ""

    def __bool__(self) -> bool:
        return bool(self.lost or self.holes or self.repeated or self.foreign)


@dataclass(slots=True)
class Numbers:
    """The transaction numbers of a stream; memory grows with the intervals, not with the transactions.

    MySQL numbers the transactions of each UUID and tag without a gap. But a server may itself never have executed a
    number (a replica that skipped, a group that hands out blocks), and a replica may log numbers out of order. So a
    hole is compared with what the server states - the set at the start of each binlog file, the executed set at the
    end - wherever there is one: what the server has and the stream lacks is lost; what both lack never was.

    ``base`` is what was executed before the stream begins, None where nobody says; then only numbers from the first
    one on are compared.
    """

    base: GtidSet | None = None
    seen: Executed = field(default_factory=lambda: Executed(GtidSet()))
    repeated: GtidSet = field(default_factory=GtidSet)
    lost: GtidSet = field(default_factory=GtidSet)
    foreign: GtidSet = field(default_factory=GtidSet)
    _stated: GtidSet | None = None

    def start(self, executed: GtidSet) -> None:
        """Say what was executed before the first transaction."""
        self.base = self._stated = executed

    def add(self, gtid: Gtid) -> None:
        """Count one transaction, in the order of the stream."""
        source, number = gtid.source, gtid.number
        if self.seen.has(source, number) or (self.base is not None and self.base.has(source, number)):
            self.repeated |= _span(source, number, number)
        self.seen.add(gtid)

    def executed(self) -> GtidSet:
        """Return what was executed at this place of the stream, as far as it tells."""
        seen = self.seen.value()
        return seen if self.base is None else self.base | seen

    def word(self, executed: GtidSet, *, exact: bool) -> None:
        """Take a server's word for what was executed up to here.

        Parameters
        ----------
        executed
            The set it states.
        exact
            Whether it speaks of this very place: then what the stream has beyond it is foreign.
        """
        seen = self.seen.value()
        stated = executed if self.base is not None else _from_first(executed, seen)
        self.lost |= stated - self.executed()
        if exact:
            self.foreign |= seen - stated
        self._stated = stated

    def gaps(self) -> Gaps:
        """Return what is proved so far."""
        executed = dict((self.executed() | self.lost).sources)
        stated = dict(self._stated.sources) if self._stated is not None else {}
        holes = GtidSet()
        for source, intervals in self.seen.value().sources:
            first = intervals[0][0] if self.base is None else 1
            lacking = _span(source, first, intervals[-1][1]) - _of(source, executed[source])
            if source in stated:  # numbers that the server's own set passes over were never executed there
                lacking -= _span(source, 1, stated[source][-1][1]) - _of(source, stated[source])
            holes |= lacking
        return Gaps(str(self.lost), str(holes), str(self.repeated), str(self.foreign))


def _span(source: Source, first: int, last: int) -> GtidSet:
    return GtidSet(((source, ((first, last),)),)) if last >= first else GtidSet()


def _of(source: Source, intervals: tuple[Interval, ...]) -> GtidSet:
    return GtidSet(((source, intervals),)) if intervals else GtidSet()


def _from_first(executed: GtidSet, seen: GtidSet) -> GtidSet:
    """Leave out what may have been executed before a stream whose start nobody knows."""
    stated = dict(executed.sources)
    found = GtidSet()
    for source, intervals in seen.sources:
        found |= _of(source, stated.get(source, ())) - _span(source, 1, intervals[0][0] - 1)
    return found


@dataclass(slots=True)
class FileAccounting:
    """What was read of one file. ``offset`` is where the next event must begin; ``size`` is 0 where nobody knows."""

    name: str
    size: int = 0
    offset: int = FIRST_OFFSET
    events: int = 0
    bytes: int = FIRST_OFFSET
    in_use: bool = False
    closed: bool = False


@dataclass(slots=True)
class ByteAccounting:
    """Takes raw events in order. ``wanted`` says which (database, table) are in scope.

    Events, anonymous transactions, rows and table maps count from ``since`` to ``until``; files, positions and
    GTIDs are proved over everything that is read, because a file is read from its head.
    ``missing_bytes`` are places where an event begins behind the end of the one before it, ``misplaced`` places where
    the positions fit in no other way. ``broken`` says that a file could not be read to its end,
    ``jumps`` that the server leaves out transactions the reader has.
    """

    wanted: Wanted
    jumps: bool = False
    since: Position | None = None
    until: Position | None = None
    files: list[FileAccounting] = field(default_factory=list)
    by_type: dict[int, list[int]] = field(default_factory=dict)
    numbers: Numbers = field(default_factory=Numbers)
    transactions: int = 0
    anonymous: int = 0
    heartbeats: int = 0
    rows_events: int = 0
    left_out_bytes: int = 0
    missing_bytes: list[str] = field(default_factory=list)
    misplaced: list[str] = field(default_factory=list)
    orphan_rows: list[str] = field(default_factory=list)
    barren_maps: list[str] = field(default_factory=list)
    silent_maps: Counter[str] = field(default_factory=Counter)
    relay: bool = False
    broken: bool = False
    group: bool = False
    _sizes: dict[str, int] = field(default_factory=dict)
    _maps: dict[int, tuple[str, str]] = field(default_factory=dict)
    _with_rows: set[int] = field(default_factory=set)
    _started: bool = False
    _left_out: GtidSet | None = None
    _until: GtidSet | None = None
    _named: bool = True
    _inside: bool = True

    def __post_init__(self) -> None:
        if self.since is not None and not self.since.file:
            self._left_out, self._named = parse_gtids(self.since.gtids), False
        if self.until is not None and not self.until.file:
            self._until = parse_gtids(self.until.gtids)

    def sizes(self, sizes: dict[str, int]) -> None:
        """Say how large the files are that are going to come, by the names their ROTATE events give."""
        self._sizes = dict(sizes)

    def begin_after(self, gtids: str) -> None:
        """Say which transactions come before the first event, for a stream that begins inside of a file."""
        self.numbers.start(parse_gtids(gtids))
        self._started = True

    def take(self, event: RawEvent) -> None:
        """Count one event."""
        kind = event.type
        if kind == EventType.ROTATE and event.is_artificial:
            self._open(event)
            return
        if not self.files:
            self.files.append(FileAccounting(""))
        self._count(event)
        if kind in HEARTBEATS:
            self.heartbeats += 1
            return
        if kind == EventType.FORMAT_DESCRIPTION:
            self.relay = self.relay or bool(event.flags & RELAY_LOG)
        elif kind in (EventType.ROTATE, EventType.STOP):
            self.files[-1].closed = True
        elif kind == EventType.PREVIOUS_GTIDS:
            self._word(event)
        elif kind in GTID_EVENTS:
            self._gtid(event)
        elif kind in _GROUP:
            self.group = True
        elif kind == EventType.TRANSACTION_PAYLOAD:
            for inner in payload_events(event.body, self._where()):
                self._rows_or_map(inner)
        else:
            self._rows_or_map(event)

    def _open(self, event: RawEvent) -> None:
        name, offset = event.rotates_to()
        if not self.files or self.files[-1].name != name:
            self.files.append(FileAccounting(name, self._sizes.get(name, 0), offset))
            self._maps.clear()
            self._with_rows.clear()

    def _count(self, event: RawEvent) -> None:
        file = self.files[-1]
        self._inside = self._in_range(event)
        if self._inside:
            kept = self.by_type.setdefault(event.type, [0, 0])
            kept[0] += 1
            kept[1] += event.size
        if event.type in HEARTBEATS or event.flags & ARTIFICIAL:
            return
        if event.type == EventType.FORMAT_DESCRIPTION:
            file.in_use = bool(event.flags & 1)
            if not event.end or file.offset != FIRST_OFFSET:  # sent again to a reader that starts inside of the file
                return
        file.events += 1
        file.bytes += event.size
        self._place(file, event)

    def _in_range(self, event: RawEvent) -> bool:
        """Whether an event lies in the range: by its place, and as the transaction that it belongs to."""
        if self.since is None and self.until is None:
            return True
        gtid = read_gtid(event) if event.type in GTID_EVENTS else None
        if gtid is not None and gtid.number:
            left_out = self._left_out is not None and self._left_out.has(gtid.source, gtid.number)
            self._named = not left_out and (self._until is None or self._until.has(gtid.source, gtid.number))
        since, until, at = self.since, self.until, Position(self.files[-1].name, self.files[-1].offset)
        begun = since is None or not since.file or not before(at, since)
        return self._named and begun and (until is None or not until.file or before(at, until))

    def _place(self, file: FileAccounting, event: RawEvent) -> None:
        begins = event.end - event.size & END_BITS
        if begins == file.offset & END_BITS or self.relay:
            file.offset += event.size
            return
        ahead = begins - file.offset & END_BITS
        at = f"{file.name}:{file.offset}"
        if ahead <= END_BITS // 2:
            if self.jumps and event.type in _BETWEEN:
                self.left_out_bytes += ahead
            else:
                _keep(self.missing_bytes, f"{ahead} bytes behind {at}")
            file.offset += ahead + event.size
        else:
            _keep(self.misplaced, f"{at}: an event of type {event.type} says it begins at {begins}")
            file.offset += event.size

    def _where(self) -> str:
        return f"{self.files[-1].name}:{self.files[-1].offset}"

    def _word(self, event: RawEvent) -> None:
        executed = decode_gtids(event.body)
        if not self._started:
            self.numbers.start(executed)
            self._started = True
        elif executed:
            self.numbers.word(executed, exact=not self.jumps)

    def _gtid(self, event: RawEvent) -> None:
        self._end_statement(finished=False)
        self._maps.clear()
        self._with_rows.clear()
        self.transactions += 1
        gtid = read_gtid(event)
        if gtid.number:
            self.numbers.add(gtid)
        elif self._inside:
            self.anonymous += 1

    def _rows_or_map(self, event: RawEvent) -> None:
        if not self._inside:
            return
        body = event.body
        if event.type == EventType.TABLE_MAP and len(body) > 10:
            self._maps[int.from_bytes(body[:6], "little")] = _names(body)
        elif event.type in ROWS_EVENTS and len(body) >= 8:
            table_id = int.from_bytes(body[:6], "little")
            if table_id in self._maps:
                self.rows_events += 1
                self._with_rows.add(table_id)
            elif table_id < NO_TABLE:
                _keep(self.orphan_rows, f"{self._where()}: rows of table id {table_id}")
            if int.from_bytes(body[6:8], "little") & _STATEMENT_END:
                self._end_statement(finished=True)
                self._maps.clear()
                self._with_rows.clear()

    def _end_statement(self, *, finished: bool) -> None:
        """Judge the table maps of a statement.

        A statement maps every table it may write (those of triggers, too), so a map without rows means nothing beside
        others that have some; a statement of maps alone lost its rows.
        """
        if not self._maps or (not finished and self._with_rows):
            return
        scope = [".".join(name) for i, name in self._maps.items() if i not in self._with_rows and self.wanted(*name)]
        if not self._with_rows and not finished:
            for name in scope:
                _keep(self.barren_maps, f"{self._where()}: {name}")
        else:
            self.silent_maps.update(scope)

    def finish(self) -> None:
        """Judge what is open at the end."""
        self._end_statement(finished=False)

    @property
    def bytes_in(self) -> int:
        """Bytes of the events and file heads that were read."""
        return sum(file.bytes for file in self.files)

    @property
    def bytes_of_files(self) -> int:
        """Bytes that the files have, 0 from a server."""
        return sum(file.size for file in self.files)

    def unread(self) -> list[str]:
        """Return the files whose events do not add up to their size, with both figures."""
        return [
            f"{file.name}: events add up to {file.bytes} bytes, the file has {file.size}"
            for file in self.files
            if file.size and file.bytes != file.size
        ]


def _keep(places: list[str], place: str) -> None:
    """Append a place; after a hundred one line says that there are more."""
    if len(places) < _PLACES:
        places.append(place)
    elif len(places) == _PLACES:
        places.append(f"and more from {place} on")


def _names(body: bytes) -> tuple[str, str]:
    size = body[8]
    database = body[9 : 9 + size]
    at = 9 + size + 1
    table = body[at + 1 : at + 1 + body[at]] if at < len(body) else b""
    return database.decode("utf-8", "replace"), table.decode("utf-8", "replace")
