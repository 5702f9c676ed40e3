"""Raw events -> Begin, Rows, Statement, Commit: the grammar of a binlog, read without a guess.

A transaction starts with a GTID event (anonymous ones too) and ends with XID, COMMIT, XA PREPARE, or the one statement
that it consists of. What is not known here, or known to hide row changes (statements that change rows, an
incident), ends the stream with a ``ChangeError``: what was given before is certain, nothing after it is. Rows whose
images cannot be read (columns are missing) come with an ``UnreadableTable``: they end only a reader that has the table
in scope.

Rows of an XA transaction wait from XA START until XA COMMIT, perhaps hours and many transactions later, and come out
under the GTID of that commit; XA ROLLBACK drops them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field

from migverify.changes.buffer import ItemBuffer
from migverify.changes.events import ARTIFICIAL, IGNORABLE, EventType, RawEvent
from migverify.changes.gtid import Gtid
from migverify.changes.headers import GTID_EVENTS, read_gtid, read_query, read_xa_prepare
from migverify.changes.model import Begin, Commit, Idle, Item, Op, Position, Rows, Statement, UnreadableTable
from migverify.changes.payload import packed_integer, payload_events
from migverify.changes.places import WRAP, PositionTracker
from migverify.changes.statements import QueryKind, Xid, classify
from migverify.changes.table_map import RowsLayout, parse_table_map
from migverify.errors import ChangeError

_log = logging.getLogger(__name__)

_LAYOUTS = 20_000
_DUMMY_TABLE = 0xFFFFFF
"""Table id of a rows event that only ends a statement."""

_OPS = {
    **dict.fromkeys((EventType.WRITE_ROWS_V1, EventType.WRITE_ROWS), Op.INSERT),
    **dict.fromkeys((EventType.UPDATE_ROWS_V1, EventType.UPDATE_ROWS, EventType.PARTIAL_UPDATE_ROWS), Op.UPDATE),
    **dict.fromkeys((EventType.DELETE_ROWS_V1, EventType.DELETE_ROWS), Op.DELETE),
}
_V2 = (EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS, EventType.PARTIAL_UPDATE_ROWS)
_SILENT = (EventType.ROWS_QUERY, EventType.TRANSACTION_CONTEXT, EventType.VIEW_CHANGE)
_BY_STATEMENT = (EventType.INTVAR, EventType.RAND, EventType.USER_VAR, EventType.LOAD, EventType.NEW_LOAD,
                 EventType.CREATE_FILE, EventType.APPEND_BLOCK, EventType.EXEC_LOAD, EventType.DELETE_FILE,
                 EventType.BEGIN_LOAD_QUERY, EventType.EXECUTE_LOAD_QUERY)  # fmt: skip
_HINT_PARTIAL = "Set binlog_row_value_options='' on the source, for running sessions too, and verify the table in full."
_HINT_ROW = "Set binlog_format=ROW on the source, for running sessions too, and verify the tables in full once."
_REFUSED = {
    **dict.fromkeys(_BY_STATEMENT, ("changes rows by statement, so no image says which rows", _HINT_ROW)),
    EventType.INCIDENT: ("says that the server lost events here", "Verify the tables in full from here on."),
}


Found = Item | list[Item] | Generator[Item, None, None] | None
_ONE = frozenset((Begin, Rows, Statement, Commit, Idle))
_NAMES = {kind.value: kind.name for kind in EventType}
LookBack = Callable[[Xid, Position], ItemBuffer | None]
Handler = Callable[[RawEvent], Found]


@dataclass(frozen=True, slots=True)
class EventStream:
    """Events and what ``items`` needs to read them: its parameters of these names."""

    events: Iterable[RawEvent]
    start: Position
    since: Position | None = None
    gaps: bool = False
    prepared: dict[Xid, ItemBuffer] = field(default_factory=dict)


def items(
    events: Iterable[RawEvent],
    start: Position,
    *,
    since: Position | None = None,
    gaps: bool = False,
    prepared: dict[Xid, ItemBuffer] | None = None,
    look_back: LookBack | None = None,
    any_table: bool = False,
) -> Iterator[Item]:
    """Read transactions from events.

    Rows of a transaction are given as they come, before its Commit is known; ``buffer.whole`` waits for it.

    Parameters
    ----------
    events
        From one or more files in their order. Between two files, and at the start of a server's dump, comes an
        artificial ROTATE event that names the file, as servers send it.
    start
        Where the first event after the format description is. Its ``gtids`` are the executed set there; empty
        means unknown: a PREVIOUS_GTIDS event tells then. With an empty ``file`` the first ROTATE says where.
    since
        Leave out what this position covers: what starts before its offset, where it has a file, else the
        transactions of its GTID set. Events left out are not judged, except that XA transactions are kept.
    gaps
        The server leaves out transactions that the reader has; offsets may jump between transactions.
    prepared
        XA transactions prepared so far, for a stream that goes on where another one was cut.
    look_back
        Finds the rows of an XA transaction that was prepared before the start; called when its XA COMMIT comes, with
        the place where that begins.
    any_table
        Give a statement that is not known or changes rows by statement as a DDL that names no table, instead of ending
        the stream: for a reader that then reads every table again.
    """
    reader = TransactionReader(start, since, {} if prepared is None else prepared, gaps=gaps)
    reader.look_back, reader.any_table = look_back, any_table
    yield from read(reader, events)
    yield reader.end()


def prepared_before(events: Iterable[RawEvent], start: Position, stop: Position | None) -> dict[Xid, ItemBuffer]:
    """Return the XA transactions that are prepared and neither committed nor rolled back at a place.

    Parameters
    ----------
    events, start
        As for ``items``: one file from its head.
    stop
        The place; None is the end of the file.
    """
    found: dict[Xid, ItemBuffer] = {}
    reader = TransactionReader(start, None, found, gaps=True)
    reader.skip_all = True

    def until_stop() -> Iterator[RawEvent]:
        for event in events:
            if stop is not None and reader.file == stop.file and reader.offset >= stop.offset:
                return
            if reader.file not in ("", start.file):
                return
            yield event

    for _ in read(reader, until_stop()):
        pass  # an Idle at most
    return found


def read(reader: TransactionReader, events: Iterable[RawEvent]) -> Iterator[Item]:
    """Yield what a reader makes of events."""
    for event in events:
        kind = event.type
        try:
            if event.end and kind not in _UNPLACED and not event.flags & ARTIFICIAL:
                offset = reader.offset + event.size
                if offset & WRAP != event.end:
                    offset = reader.jump(event)
                reader.offset = offset
            handler = reader.handlers.get(kind)
            found = reader.refuse(event) if handler is None else handler(event)
            if found is None:
                continue
            if type(found) in _ONE:
                yield found  # type: ignore[misc]
            else:
                yield from found  # type: ignore[misc]
        except ChangeError as error:
            raise reader.placed(error) from error


_UNPLACED = (EventType.FORMAT_DESCRIPTION, EventType.HEARTBEAT, EventType.HEARTBEAT_V2)


class TransactionReader(PositionTracker):
    """The state of a stream. One handler per event type, each returns what the event gives.

    ``skip_all`` gives out nothing and follows transactions only; then rows of XA transactions are still buffered unless
    ``keep_rows`` is False. ``foreign_xa`` are XA transactions that ended here and were prepared before the start.
    """

    def __init__(self, start: Position, since: Position | None, prepared: dict[Xid, ItemBuffer], *, gaps: bool) -> None:
        super().__init__(start, since, gaps=gaps)
        self.current: Gtid | None = None
        self.begun = self.changed = False
        self.begin_at = start.offset
        self.gtid_text, self.time = "", 0.0
        self.tables: dict[int, RowsLayout] = {}
        self.unreadable: dict[str, UnreadableTable] = {}
        self.layouts: dict[bytes, RowsLayout] = {}
        self.xa_rows: ItemBuffer | None = None
        self.prepared = prepared
        self.look_back: LookBack | None = None
        self.skip_all = self.any_table = False
        self.keep_rows = True
        self.foreign_xa: list[Xid] = []
        self.ignored: Counter[int] = Counter()
        self.handlers: dict[int, Handler] = {
            EventType.FORMAT_DESCRIPTION: self.format_description,
            EventType.PREVIOUS_GTIDS: self.previous_gtids,
            EventType.ROTATE: self.rotate,
            EventType.STOP: self.stop,
            EventType.HEARTBEAT: self.heartbeat,
            EventType.HEARTBEAT_V2: self.heartbeat,
            **dict.fromkeys(GTID_EVENTS, self._gtid),
            EventType.QUERY: self._query,
            EventType.TABLE_MAP: self._table_map,
            EventType.XID: self._xid,
            EventType.XA_PREPARE: self._xa_prepare,
            EventType.TRANSACTION_PAYLOAD: self._payload,
            **dict.fromkeys(_OPS, self._rows),
            **dict.fromkeys(_SILENT, self.silent),
        }

    def _gtid(self, event: RawEvent) -> Found:
        found = self.current = read_gtid(event)
        begin_at = self.offset - event.size
        skip, text = self.skip is not None and self.skip.has(found.source, found.number), self.end_gtids
        if not found.number:
            # A set does not name anonymous transactions, so from here on no set says how far we are.
            self.executed, text = None, ""
        elif self.executed is not None and not skip:
            text = self.executed.add(found)
        time = float(found.time or event.time)
        return self._begin(begin_at, skip, Begin(found.text, self.at, time, found.bytes), text)

    def _begin(self, begin_at: int, skip: bool, begin: Begin, gtids: str) -> Found:
        if self.open and not self.skipping:
            raise ChangeError("a transaction starts before the one in front of it has ended.")
        if self.must_prove:
            raise ChangeError(
                f"{self.file}: the file before it has no end mark, and nothing proves that it was complete.",
                hint="Copy the files from the server again; if it crashed there, start at this file's first position.",
            )
        if self.skip_to is not None and self.file == self.skip_to.file:
            self.between.add(begin_at)
            skip = begin_at < self.skip_to.offset
            if not skip:
                self.check_since(at_end=False)
        if self.at.offset != begin_at:  # behind the head of a file, or transactions left out
            self.at = Position(self.file, begin_at, self.end_gtids)
            begin = Begin(begin.gtid, self.at, begin.time, begin.bytes)
        skip = skip or self.skip_all
        self.open, self.begun, self.changed, self.skipping, self.begin_at = True, False, False, skip, begin_at
        self.gtid_text, self.time, self.end_gtids = begin.gtid, begin.time, gtids
        return None if skip else begin

    def _commit(self) -> Found:
        if self.xa_rows is not None:
            self.xa_rows.clear()
            self.xa_rows = None
        self.open = self.begun = False
        self.tables.clear()
        self.unreadable.clear()
        self.at = Position(self.file, self.offset, self.end_gtids)
        if self.skip_to is not None:
            self.between.add(self.offset)
        return None if self.skipping else Commit(self.gtid_text, self.at, self.time)

    def _inside(self, event: RawEvent) -> None:
        if not self.open:
            raise ChangeError(
                f"an event of type {event.type} is outside of a transaction.",
                hint="If you chose this position: it must lie between two transactions.",
            )

    def _xid(self, event: RawEvent) -> Found:
        self._inside(event)
        return self._commit()

    def _payload(self, event: RawEvent) -> Generator[Item, None, None]:
        self._inside(event)
        for inner in payload_events(event.body, f"{self.file}:{self.offset}"):
            if not self.keep_rows and self.xa_rows is None and b"XA " not in inner.body:
                self._commit()  # the first event tells an XA transaction, so that others need not be unpacked
                return
            handler = self.handlers.get(inner.type)
            found = self.refuse(inner) if handler is None else handler(inner)
            if type(found) in _ONE:
                yield found  # type: ignore[misc]
            elif found is not None:
                yield from found  # type: ignore[misc]
        self._nothing_open("the end of a compressed transaction")

    # Rows.

    def _table_map(self, event: RawEvent) -> Found:
        self._inside(event)
        layout = self.layouts.get(event.body)
        if layout is None:
            if self.skipping and (self.xa_rows is None or not self.keep_rows):
                return None
            layout = self._layout(event.body)
        self.tables[layout.table_id] = layout
        return None

    def _layout(self, body: bytes) -> RowsLayout:
        table_id, table = parse_table_map(body)
        if isinstance(table, UnreadableTable):
            placed = ChangeError(f"{self.file}:{self.offset}: {table.error.message}", hint=table.error.hint)
            table = UnreadableTable(table.database, table.table, table.width, placed)
        if len(self.layouts) >= _LAYOUTS:  # table ids grow with every DDL and every restart
            self.layouts.clear()
        layout = self.layouts[body] = RowsLayout.of(table_id, table)
        return layout

    def _rows(self, event: RawEvent) -> Found:
        if not self.open:
            self._inside(event)
        if self.skipping and (self.xa_rows is None or not self.keep_rows):
            return None
        body, kind = event.body, event.type
        if len(body) < 10:
            raise ChangeError("a rows event is too short.")
        at = 8 if kind not in _V2 else 8 + (body[8] | body[9] << 8)  # the length of extra data counts itself
        table_id = int.from_bytes(body[:6], "little")
        layout = self.tables.get(table_id)
        if layout is None:
            return self._rows_of_nothing(table_id, body, at)
        op = _OPS[kind]  # type: ignore[index]
        head = layout.update_head if op is Op.UPDATE else layout.head
        if not body.startswith(head, at):
            layout.check_width(body, at)
        table, images = layout.table, body[at + len(head) :]
        try:
            if not body.startswith(head, at):
                layout.check_full(body, at, op)
            if kind == EventType.PARTIAL_UPDATE_ROWS:
                raise ChangeError(
                    f"an update of {table.name} holds parts of JSON values, not rows.", hint=_HINT_PARTIAL
                )
        except ChangeError as error:
            table = self.unreadable.get(table.name) or self._unreadable(layout, error)
        if not images:
            return None
        self.changed = True
        found = Rows(op, table, images, self.file, self.offset, event.time)
        if self.xa_rows is not None:
            self.xa_rows.add(found)
            return None
        return found

    def _unreadable(self, layout: RowsLayout, error: ChangeError) -> UnreadableTable:
        """Return a layout that gives this error to whoever has the table in scope: one for a table and transaction."""
        table = layout.table
        found = UnreadableTable(table.database, table.table, layout.width, self.placed(error))
        self.unreadable[table.name] = found
        return found

    def _rows_of_nothing(self, table_id: int, body: bytes, at: int) -> Found:
        if table_id >= _DUMMY_TABLE and not packed_integer(body, at)[0]:
            return None
        raise ChangeError(
            f"rows of table id {table_id} come without a table map.",
            hint="If you chose this position: it must lie between two transactions.",
        )

    # Statements.

    def _query(self, event: RawEvent) -> Found:
        self._inside(event)
        query = read_query(event.body)
        if query.sql == b"BEGIN":
            self.begun = True
            return None
        if query.sql == b"COMMIT":
            return self._commit()
        sql = query.text()
        database = query.database.decode("utf-8", "backslashreplace")
        read = classify(sql, database, backslash=query.backslash_escapes())
        if read.kind is QueryKind.CONTROL:
            return self._control(read.verb, read.xid)
        if self.skipping:
            return None if self.begun or read.stays_open else self._commit()
        opaque = read.kind in (QueryKind.ROWS, QueryKind.UNKNOWN)
        if opaque and not self.any_table:
            what = "changes rows by statement" if read.kind is QueryKind.ROWS else "is a statement that is not known"
            raise ChangeError(
                f"{self.file}:{self.offset}: {what}, so no image says which rows it changed: {sql[:300]}",
                hint=_HINT_ROW if read.kind is QueryKind.ROWS else "Verify the tables in full from here on.",
            )
        found: list[Item] = []
        if read.kind is not QueryKind.HARMLESS:
            op = Op.TRUNCATE if read.kind is QueryKind.TRUNCATE else Op.DDL
            tables = () if opaque else read.tables
            found.append(
                Statement(op, tables, sql, database, self.file, self.offset, event.time, query.invoker(), query.thread)
            )
        if not self.begun and not read.stays_open:
            found.append(self._commit())  # type: ignore[arg-type]  # not skipping, so a Commit
        return found

    def _control(self, verb: str, xid: Xid | None) -> Found:
        if verb == "BEGIN":
            self.begun = True
        elif verb == "COMMIT":
            return self._commit()
        elif verb in ("ROLLBACK", "ROLLBACK TO"):
            if self.changed and not self.skipping:
                raise ChangeError(
                    f"{verb} after row changes: tables without transactions keep theirs, and the binlog does not say "
                    "which tables those are.", hint="Verify the tables in full from here on.",
                )  # fmt: skip
            return self._commit() if verb == "ROLLBACK" else None
        elif verb == "XA START":
            self.xa_rows = ItemBuffer()
        elif verb == "XA COMMIT" and xid is not None:
            return self._xa_commit(xid)
        elif verb == "XA ROLLBACK" and xid is not None:
            dropped = self.prepared.pop(xid, None)
            if dropped is None:
                self.foreign_xa.append(xid)
            else:
                dropped.clear()
            return self._commit()
        elif verb == "XA PREPARE":
            raise ChangeError("XA PREPARE as a statement is not known.")
        return None

    def _xa_prepare(self, event: RawEvent) -> Found:
        self._inside(event)
        xid, one_phase = read_xa_prepare(event.body)
        if self.xa_rows is None:
            raise ChangeError(f"XA PREPARE of {xid} without its XA START.")
        rows, self.xa_rows = self.xa_rows, None
        if one_phase:
            return self._release(rows)
        self.prepared[xid] = rows
        return self._commit()

    def _xa_commit(self, xid: Xid) -> Found:
        rows = self.prepared.pop(xid, None)
        if rows is None and not self.skipping and self.look_back is not None:
            rows = self.look_back(xid, self.at)
        if rows is not None:
            return self._release(rows)
        self.foreign_xa.append(xid)
        if self.skipping:
            return self._commit()
        raise ChangeError(
            f"XA COMMIT of {xid}, whose XA PREPARE lies before the start of this stream: its rows are not known.",
            hint="Start before that XA PREPARE; rows that come twice are harmless for a verification.",
        )

    def _release(self, rows: ItemBuffer) -> Generator[Item, None, None]:
        if not self.skipping:
            yield from rows
        rows.clear()
        commit = self._commit()
        if isinstance(commit, Commit):
            yield commit

    def refuse(self, event: RawEvent) -> Found:
        """End the stream at an event that this program does not understand, or understands too well.

        An event that says that it may be ignored is passed over and counted: the first of each type is logged.
        """
        if self.skipping or self.skip_all:
            return None
        name = _NAMES.get(event.type, "unknown")
        if self.any_table and self.open and event.type in _BY_STATEMENT:
            text = f"rows changed by statement ({name})"
            return Statement(Op.DDL, (), text, "", self.file, self.offset, event.time)
        if event.flags & IGNORABLE and event.type not in _REFUSED:
            self.ignored[event.type] += 1
            if self.ignored[event.type] == 1:
                _log.warning("%s:%d: events of type %d (%s) are not known to this version and passed over: their flag "
                             "says that readers may ignore them", self.file, self.offset, event.type, name)  # fmt: skip
            return None
        why, hint = _REFUSED.get(event.type, ("is not known to this version", "Verify the tables in full."))  # type: ignore[call-overload]
        raise ChangeError(f"{self.file}:{self.offset}: an event of type {event.type} ({name}) {why}.", hint=hint)
