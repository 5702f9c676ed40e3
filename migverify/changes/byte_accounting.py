"""Where every byte of a binlog went: events by type, positions without a jump, GTIDs, table maps and their rows.

This is a second reader beside ``migverify.changes.transactions``. It understands less - headers and table ids - and so
sees independently what the first one might pass over, and it goes on behind a place where the first one had to stop.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from migverify.changes.events import ARTIFICIAL, EventType, RawEvent
from migverify.changes.gaps import Numbers
from migverify.changes.gtid import GtidSet, decode_gtids, parse_gtids
from migverify.changes.headers import GTID_EVENTS, read_gtid
from migverify.changes.model import Position, Wanted
from migverify.changes.payload import payload_events
from migverify.changes.positions import before

MAGIC_BYTES = 4
RELAY_LOG = 0x0040
_WRAP = 1 << 32
_STATEMENT_END = 0x0001
_PLACES = 100
_NO_TABLE = 0xFFFFFF
"""Table id of a rows event that only ends a statement."""

ROWS_EVENTS = frozenset({
    EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1, EventType.WRITE_ROWS,
    EventType.UPDATE_ROWS, EventType.DELETE_ROWS, EventType.PARTIAL_UPDATE_ROWS,
})  # fmt: skip
_UNPLACED = frozenset({EventType.HEARTBEAT, EventType.HEARTBEAT_V2})
_BETWEEN = GTID_EVENTS | {EventType.ROTATE, EventType.STOP, EventType.PREVIOUS_GTIDS}
_GROUP = frozenset({EventType.TRANSACTION_CONTEXT, EventType.VIEW_CHANGE})


@dataclass(slots=True)
class FileAccounting:
    """What was read of one file. ``offset`` is where the next event must begin; ``size`` is 0 where nobody knows."""

    name: str
    size: int = 0
    offset: int = MAGIC_BYTES
    events: int = 0
    bytes: int = MAGIC_BYTES
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
        if kind == EventType.ROTATE and (event.flags & ARTIFICIAL or not event.end):
            self._open(event)
            return
        if not self.files:
            self.files.append(FileAccounting(""))
        self._count(event)
        if kind in _UNPLACED:
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
        name = event.body[8:].decode("utf-8", "replace")
        offset = int.from_bytes(event.body[:8], "little")
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
        if event.type in _UNPLACED or event.flags & ARTIFICIAL:
            return
        if event.type == EventType.FORMAT_DESCRIPTION:
            file.in_use = bool(event.flags & 1)
            if not event.end or file.offset != MAGIC_BYTES:  # sent again to a reader that starts inside of the file
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
        begins = (event.end - event.size) % _WRAP
        if begins == file.offset % _WRAP or self.relay:
            file.offset += event.size
            return
        ahead = (begins - file.offset) % _WRAP
        at = f"{file.name}:{file.offset}"
        if ahead < _WRAP // 2:
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
            self.numbers.add(gtid.source, gtid.number)
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
            elif table_id < _NO_TABLE:
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
