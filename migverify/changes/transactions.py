"""Raw events -> Begin, Rows, Statement, Commit: the grammar of a binlog, read without a guess.

A transaction starts with a GTID event (anonymous ones too) and ends with XID, COMMIT, XA PREPARE, or the one statement
that it consists of. Whatever is not known here, or known to hide row changes (statements that change rows, an
incident), ends the stream with a ``ChangeError``: what was given before is certain, nothing after it is. Rows whose
images cannot be read (columns are missing) come with an ``UnreadableTable``: they end only a reader that has the table
in scope.

Rows of an XA transaction are held from XA START until XA COMMIT, perhaps hours and many transactions later, and come
out under the GTID of that commit; XA ROLLBACK drops them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import NamedTuple

from migverify.changes.events import ARTIFICIAL, IGNORABLE, EventType, RawEvent
from migverify.changes.gtid import GtidSet, MariadbPosition
from migverify.changes.headers import (
    MariadbGtid,
    read_gtid,
    read_mariadb_gtid,
    read_query,
    read_tagged_gtid,
)
from migverify.changes.held import Held
from migverify.changes.model import Begin, Commit, Idle, Item, Op, Position, Rows, Statement, TableMap, UnreadableTable
from migverify.changes.partial_json import full_images
from migverify.changes.payload import PLAIN, packed_integer, payload_events, unpack_mariadb
from migverify.changes.places import WRAP, Places
from migverify.changes.statements import Kind, Xid, classify
from migverify.changes.table_map import parse_table_map
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
_SILENT = (EventType.ROWS_QUERY, EventType.ANNOTATE_ROWS, EventType.TRANSACTION_CONTEXT, EventType.VIEW_CHANGE,
           EventType.BINLOG_CHECKPOINT)  # fmt: skip
_BY_STATEMENT = (EventType.INTVAR, EventType.RAND, EventType.USER_VAR, EventType.LOAD, EventType.NEW_LOAD,
                 EventType.CREATE_FILE, EventType.APPEND_BLOCK, EventType.EXEC_LOAD, EventType.DELETE_FILE,
                 EventType.BEGIN_LOAD_QUERY, EventType.EXECUTE_LOAD_QUERY)  # fmt: skip
_HINT_ROW = "Set binlog_format=ROW on the source, for running sessions too, and verify the tables in full once."
_REFUSED = {
    **dict.fromkeys(_BY_STATEMENT, ("changes rows by statement, so no image says which rows", _HINT_ROW)),
    EventType.INCIDENT: ("says that the server lost events here", "Verify the tables in full from here on."),
    EventType.START_ENCRYPTION: (
        "says that the rest of the file is encrypted", "Read it from the server, which decrypts it."
    ),
}  # fmt: skip


class _Layout(NamedTuple):
    """A table map, and what must stand before the images of a rows event: width, and bitmaps of all columns."""

    table_id: int
    table: TableMap
    head: bytes
    update_head: bytes


Found = Item | list[Item] | Generator[Item, None, None] | None
_ONE = frozenset((Begin, Rows, Statement, Commit, Idle))
_NAMES = {kind.value: kind.name for kind in EventType}
LookBack = Callable[[Xid, Position], Held | None]
Handler = Callable[[RawEvent], Found]


def items(
    events: Iterable[RawEvent],
    start: Position,
    *,
    since: Position | None = None,
    gaps: bool = False,
    prepared: dict[Xid, Held] | None = None,
    look_back: LookBack | None = None,
    any_table: bool = False,
) -> Iterator[Item]:
    """Read transactions from events.

    Rows of a transaction are given as they come, before its Commit is known; ``held.whole`` waits for it.

    Parameters
    ----------
    events
        From one or more files in their order. Between two files, and at the start of a server's dump, stands an
        artificial ROTATE event that names the file, as servers send it.
    start
        Where the first event after the format description stands. Its ``gtids`` are the executed set there; empty
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

    Raises
    ------
    ChangeError
        an event that is not understood, damaged, missing or that hides row changes; the message says where.
    """
    stream = _Stream(start, since, {} if prepared is None else prepared, gaps=gaps)
    stream.look_back, stream.any_table = look_back, any_table
    yield from _run(stream, events)
    yield stream.end()


def prepared_before(events: Iterable[RawEvent], start: Position, stop: Position | None) -> dict[Xid, Held]:
    """Return the XA transactions that are prepared and neither committed nor rolled back at a place.

    Parameters
    ----------
    events, start
        As for ``items``: one file from its head.
    stop
        The place; None is the end of the file.
    """
    found: dict[Xid, Held] = {}
    stream = _Stream(start, None, found, gaps=True)
    stream.skip_all = True

    def until_stop() -> Iterator[RawEvent]:
        for event in events:
            if stop is not None and stream.file == stop.file and stream.offset >= stop.offset:
                return
            if stream.file not in ("", start.file):
                return
            yield event

    for _ in _run(stream, until_stop()):
        raise AssertionError("nothing is given while everything is left out")
    return found


def _run(stream: _Stream, events: Iterable[RawEvent]) -> Iterator[Item]:
    for event in events:
        kind = event.type
        try:
            if event.end and kind not in _UNPLACED and not event.flags & ARTIFICIAL:
                offset = stream.offset + event.size
                if offset & WRAP != event.end:
                    offset = stream.jump(event)
                stream.offset = offset
            handler = stream.handlers.get(kind)
            found = stream.refuse(event) if handler is None else handler(event)
            if found is None:
                continue
            if type(found) in _ONE:
                yield found  # type: ignore[misc]
            else:
                yield from found  # type: ignore[misc]
        except ChangeError as error:
            raise stream.placed(error) from error


_UNPLACED = (EventType.FORMAT_DESCRIPTION, EventType.HEARTBEAT, EventType.HEARTBEAT_V2)


class _Stream(Places):
    """Where the stream stands. One handler per event type, each returns what the event gives."""

    def __init__(self, start: Position, since: Position | None, prepared: dict[Xid, Held], *, gaps: bool) -> None:
        super().__init__(start, since, gaps=gaps)
        self.begun = self.changed = False
        self.gtid_text, self.time = "", 0.0
        self.tables: dict[int, _Layout] = {}
        self.unreadable: dict[str, UnreadableTable] = {}
        self.layouts: dict[bytes, _Layout] = {}
        self.held: Held | None = None
        self.prepared = prepared
        self.look_back: LookBack | None = None
        self.skip_all = self.any_table = False
        self.ignored: Counter[int] = Counter()
        self.handlers: dict[int, Handler] = {
            EventType.FORMAT_DESCRIPTION: self.format_description,
            EventType.PREVIOUS_GTIDS: self.previous_gtids,
            EventType.MARIADB_GTID_LIST: self.gtid_list,
            EventType.ROTATE: self.rotate,
            EventType.STOP: self.stop,
            EventType.HEARTBEAT: self.heartbeat,
            EventType.HEARTBEAT_V2: self.heartbeat,
            EventType.GTID: self.gtid,
            EventType.ANONYMOUS_GTID: self.gtid,
            EventType.GTID_TAGGED: self.gtid,
            EventType.MARIADB_GTID: self.mariadb_gtid,
            EventType.QUERY: self.query,
            EventType.QUERY_COMPRESSED: self.query,
            EventType.TABLE_MAP: self.table_map,
            EventType.XID: self.xid,
            EventType.XA_PREPARE: self.xa_prepare,
            EventType.TRANSACTION_PAYLOAD: self.payload,
            **dict.fromkeys((*_OPS, *(kind for kind in PLAIN if kind != EventType.QUERY_COMPRESSED)), self.rows),
            **dict.fromkeys(_SILENT, self.silent),
        }

    def gtid(self, event: RawEvent) -> Found:
        found = read_tagged_gtid(event.body) if event.type == EventType.GTID_TAGGED else read_gtid(event.body)
        begin_at = self.offset - event.size
        source = (found.server, found.tag)
        skip, text = isinstance(self.skip, GtidSet) and self.skip.has(source, found.number), self.end_gtids
        if not found.number:
            # A set does not name anonymous transactions, so from here on no set says how far we are.
            self.executed, text = None, ""
        elif self.executed is not None and not skip:
            text = self.executed.add(source, found.number)
        return self._begin(begin_at, skip, Begin(str(found), self.at, found.time or event.time, found.bytes), text)

    def mariadb_gtid(self, event: RawEvent) -> Found:
        found: MariadbGtid = read_mariadb_gtid(event.body)
        begin_at = self.offset - event.size
        gtid = f"{found.domain}-{event.server_id}-{found.number}"
        skip = isinstance(self.skip, MariadbPosition) and gtid in self.skip
        text = self.end_gtids
        if self.executed is not None and not skip:
            text = self.executed.add_mariadb(found.domain, event.server_id, found.number)
        begin = self._begin(begin_at, skip, Begin(gtid, self.at, float(event.time)), text)
        self.begun = not found.alone
        if found.xa:
            self.held = Held()
        return begin

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
        self.open, self.begun, self.changed, self.skipping = True, False, False, skip
        self.gtid_text, self.time, self.end_gtids = begin.gtid, begin.time, gtids
        return None if skip else begin

    def _commit(self) -> Found:
        if self.held is not None:
            self.held.clear()
            self.held = None
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
                f"an event of type {event.type} stands outside of a transaction.",
                hint="If you chose this position: it must lie between two transactions.",
            )

    def xid(self, event: RawEvent) -> Found:
        self._inside(event)
        return self._commit()

    def payload(self, event: RawEvent) -> Generator[Item, None, None]:
        self._inside(event)
        for inner in payload_events(event.body, f"{self.file}:{self.offset}"):
            handler = self.handlers.get(inner.type)
            found = self.refuse(inner) if handler is None else handler(inner)
            if type(found) in _ONE:
                yield found  # type: ignore[misc]
            elif found is not None:
                yield from found  # type: ignore[misc]
        self._nothing_open("the end of a compressed transaction")

    # Rows.

    def table_map(self, event: RawEvent) -> Found:
        self._inside(event)
        layout = self.layouts.get(event.body)
        if layout is None:
            if self.skipping and self.held is None:
                return None
            layout = self._layout(event.body)
        self.tables[layout.table_id] = layout
        return None

    def _layout(self, body: bytes) -> _Layout:
        table_id, table = parse_table_map(body, mariadb=self.mariadb)
        if isinstance(table, UnreadableTable):
            placed = ChangeError(f"{self.file}:{self.offset}: {table.error.message}", hint=table.error.hint)
            table, width = UnreadableTable(table.database, table.table, table.width, placed), table.width
        else:
            width = len(table.columns)
        full = b"\xff" * ((width + 7) // 8)
        packed = bytes((width,)) if width < 251 else b"\xfc" + width.to_bytes(2, "little")
        if len(self.layouts) >= _LAYOUTS:  # table ids grow with every DDL and every restart
            self.layouts.clear()
        layout = self.layouts[body] = _Layout(table_id, table, packed + full, packed + full + full)
        return layout

    def rows(self, event: RawEvent) -> Found:
        if not self.open:
            self._inside(event)
        if self.skipping and self.held is None:
            return None
        body, kind = event.body, event.type
        plain = PLAIN.get(kind, kind)  # type: ignore[call-overload]
        if len(body) < 10:
            raise ChangeError("a rows event is too short.")
        at = 8 if plain not in _V2 else 8 + (body[8] | body[9] << 8)  # the length of extra data counts itself
        table_id = int.from_bytes(body[:6], "little")
        layout = self.tables.get(table_id)
        if layout is None:
            return self._rows_of_nothing(table_id, body, at)
        op = _OPS[plain]
        head = layout.update_head if op is Op.UPDATE else layout.head
        if not body.startswith(head, at):
            _check_width(body, at, layout)
        table, images = layout.table, body[at + len(head) :]
        try:
            if not body.startswith(head, at):
                _check_full(body, at, layout, op)
            if kind == EventType.PARTIAL_UPDATE_ROWS and not isinstance(table, UnreadableTable):
                images = full_images(table, images)
        except ChangeError as error:
            table = self.unreadable.get(table.name) or self._unreadable(layout, error)
        if kind != plain:
            images = unpack_mariadb(images, f"{self.file}:{self.offset}")
        if not images:
            return None
        self.changed = True
        found = Rows(op, table, images, self.file, self.offset, event.time)
        if self.held is not None:
            self.held.add(found)
            return None
        return found

    def _unreadable(self, layout: _Layout, error: ChangeError) -> UnreadableTable:
        """Return a layout that gives this error to whoever has the table in scope: one for a table and transaction."""
        table, width = layout.table, packed_integer(layout.head, 0)[0]
        found = UnreadableTable(table.database, table.table, width, self.placed(error))
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

    def query(self, event: RawEvent) -> Found:
        self._inside(event)
        query = read_query(event.body)
        if event.type == EventType.QUERY_COMPRESSED:
            query = query._replace(sql=unpack_mariadb(query.sql, f"{self.file}:{self.offset}"))
        if query.sql == b"BEGIN":
            self.begun = True
            return None
        if query.sql == b"COMMIT":
            return self._commit()
        sql = query.text()
        database = query.database.decode("utf-8", "backslashreplace")
        read = classify(sql, database, backslash=query.backslash_escapes())
        if read.kind is Kind.CONTROL:
            return self._control(read.verb, read.xid)
        if self.skipping:
            return None if self.begun or read.stays_open else self._commit()
        opaque = read.kind in (Kind.ROWS, Kind.UNKNOWN)
        if opaque and not self.any_table:
            what = "changes rows by statement" if read.kind is Kind.ROWS else "is a statement that is not known"
            raise ChangeError(
                f"{self.file}:{self.offset}: {what}, so no image says which rows it changed: {sql[:300]}",
                hint=_HINT_ROW if read.kind is Kind.ROWS else "Verify the tables in full from here on.",
            )
        found: list[Item] = []
        if read.kind is not Kind.HARMLESS:
            op = Op.TRUNCATE if read.kind is Kind.TRUNCATE else Op.DDL
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
            self.held = Held()
        elif verb == "XA COMMIT" and xid is not None:
            return self._xa_commit(xid)
        elif verb == "XA ROLLBACK" and xid is not None:
            dropped = self.prepared.pop(xid, None)
            if dropped is not None:
                dropped.clear()
            return self._commit()
        elif verb == "XA PREPARE":
            raise ChangeError("XA PREPARE as a statement is not known.")
        return None

    def xa_prepare(self, event: RawEvent) -> Found:
        self._inside(event)
        body = event.body
        if len(body) < 13:
            raise ChangeError("an XA PREPARE event is too short.")
        size, branch = int.from_bytes(body[5:9], "little"), int.from_bytes(body[9:13], "little")
        if len(body) < 13 + size + branch:
            raise ChangeError("an XA PREPARE event is shorter than its id.")
        gtrid, bqual = body[13 : 13 + size], body[13 + size : 13 + size + branch]
        xid = Xid(int.from_bytes(body[1:5], "little"), gtrid, bqual)
        if self.held is None:
            raise ChangeError(f"XA PREPARE of {xid} without its XA START.")
        held, self.held = self.held, None
        if body[0]:  # prepared and committed in one
            return self._release(held)
        self.prepared[xid] = held
        return self._commit()

    def _xa_commit(self, xid: Xid) -> Found:
        held = self.prepared.pop(xid, None)
        if held is None and not self.skipping and self.look_back is not None:
            held = self.look_back(xid, self.at)
        if held is not None:
            return self._release(held)
        if self.skipping:
            return self._commit()
        raise ChangeError(
            f"XA COMMIT of {xid}, whose XA PREPARE lies before the start of this stream: its rows are not known.",
            hint="Start before that XA PREPARE; rows that come twice are harmless for a verification.",
        )

    def _release(self, held: Held) -> Generator[Item, None, None]:
        if not self.skipping:
            yield from held
        held.clear()
        commit = self._commit()
        if isinstance(commit, Commit):
            yield commit

    def refuse(self, event: RawEvent) -> Found:
        """End the stream at an event that this program does not understand, or understands too well.

        An event that says that it may be ignored is passed over and counted: the first of each type is logged.
        """
        if self.skipping:
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


def _check_width(body: bytes, at: int, layout: _Layout) -> None:
    """Refuse a rows event that does not fit its table map: nothing says where its images begin."""
    width, mapped = packed_integer(body, at)[0], packed_integer(layout.head, 0)[0]
    if width != mapped:
        raise ChangeError(f"rows of {layout.table.name} have {width} columns, its table map has {mapped}.")


def _check_full(body: bytes, at: int, layout: _Layout, op: Op) -> None:
    """Say why the images of a rows event are not full; bits above the last column may be anything."""
    width, at = packed_integer(body, at)
    size = (width + 7) // 8
    every = (1 << width) - 1
    for _ in range(2 if op is Op.UPDATE else 1):
        present = int.from_bytes(body[at : at + size], "little") & every
        if present != every:
            raise ChangeError(
                f"an {op.value} of {layout.table.name} holds {present.bit_count()} of {width} columns.",
                hint="Set binlog_row_image=FULL on the source, for running sessions too, and verify the table in full.",
            )
        at += size
