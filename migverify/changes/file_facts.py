"""What one binlog file says about itself, gathered event by event: times, GTIDs, whole transactions, XA.

No row is decoded. The GTIDs inside a file are counted one by one, so that the next file's PREVIOUS_GTIDS, which the
server writes from its own books, is an independent proof that no transaction is missing.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from migverify.changes.events import HEADER_BYTES, EventType, RawEvent
from migverify.changes.gtid import Executed, GtidSet, decode_gtid_list, decode_gtids
from migverify.changes.headers import read_gtid, read_mariadb_gtid, read_query, read_tagged_gtid
from migverify.changes.manifest import OpenXa
from migverify.changes.payload import payload_events, unpack_mariadb
from migverify.changes.statements import classify
from migverify.errors import ChangeError

_XA_PREPARE = struct.Struct("<?iII")
_XID_SQL = 1024
"""Longest text of a statement that begins or ends a transaction: an XA id has two parts of up to 64 bytes, in hex."""
_BEGINS = frozenset({EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED, EventType.MARIADB_GTID})
_ABOUT_FILE = frozenset({EventType.FORMAT_DESCRIPTION, EventType.PREVIOUS_GTIDS, EventType.MARIADB_GTID_LIST,
                         EventType.ROTATE, EventType.STOP})  # fmt: skip


@dataclass(slots=True)
class FileFacts:
    """Gathers the facts of one file; ``add`` takes its events in order, from the format description on."""

    name: str
    whole: int = 4
    first_time: int = 0
    last_time: int = 0
    gtids_before: str = ""
    executed: Executed = field(default_factory=lambda: Executed(GtidSet()))
    anonymous: int = 0
    server_version: str = ""
    checksum: str = ""
    xa: bool = False
    xa_open: dict[str, OpenXa] = field(default_factory=dict)
    xa_closed: list[str] = field(default_factory=list)
    following: str = ""
    _group: int = 0
    _in_transaction: bool = False
    _xid: str = ""

    def add(self, event: RawEvent, end: int) -> None:
        """Take one event that ends at byte ``end`` of the file (the header's own figure has 32 bits only)."""
        start = end - event.size
        if event.time:
            self.first_time = self.first_time or event.time
            self.last_time = event.time
        kind = event.type
        if kind in _BEGINS:
            self._begin(event, start)
        elif kind in (EventType.QUERY, EventType.QUERY_COMPRESSED):
            self._query(event, start, end)
        elif kind == EventType.XID:
            self._finish(end)
        elif kind == EventType.XA_PREPARE:
            self._prepared(event.body, end)
        elif kind == EventType.TRANSACTION_PAYLOAD:
            self._payload(event, start, end)
        else:
            if kind in _ABOUT_FILE:
                self._about_file(event)
            if not self._group and not self._in_transaction:
                self.whole = end

    def _begin(self, event: RawEvent, start: int) -> None:
        self._group = start
        self._in_transaction = False
        if event.type == EventType.ANONYMOUS_GTID:
            self.anonymous += 1
        elif event.type == EventType.MARIADB_GTID:
            found = read_mariadb_gtid(event.body)
            self._in_transaction = not found.alone
            self.executed.add_mariadb(found.domain, event.server_id, found.number)
        else:
            gtid = read_gtid(event.body) if event.type == EventType.GTID else read_tagged_gtid(event.body)
            self.executed.add((gtid.server, gtid.tag), gtid.number)

    def _query(self, event: RawEvent, start: int, end: int) -> None:
        sql = read_query(event.body).sql
        if event.type == EventType.QUERY_COMPRESSED:
            sql = unpack_mariadb(sql, f"{self.name}:{start}")
        if sql == b"BEGIN":
            self._in_transaction = True
            self._group = self._group or start
            return
        said = classify(sql.decode(errors="replace"), "") if len(sql) <= _XID_SQL else None
        verb = said.verb if said else ""
        if verb in ("BEGIN", "XA START"):
            self._in_transaction = True
            self._group = self._group or start
        elif verb in ("XA COMMIT", "XA ROLLBACK"):
            self._closed(str(said.xid) if said else "")
            self._finish(end)
        elif verb in ("COMMIT", "ROLLBACK") or not self._in_transaction:
            self._finish(end)

    def _closed(self, xid: str) -> None:
        self.xa = True
        if self.xa_open.pop(xid, None) is None:
            self.xa_closed.append(xid)

    def _payload(self, event: RawEvent, start: int, end: int) -> None:
        """A compressed transaction; its first event tells an XA one, so that others need not be unpacked."""
        inner = payload_events(event.body, f"{self.name}:{start}")
        first = next(inner, None)
        if first is not None and first.type == EventType.QUERY and read_query(first.body).sql.startswith(b"XA "):
            for one in inner:
                if one.type == EventType.XA_PREPARE:
                    self._prepared(one.body, end)
        self._finish(end)

    def _prepared(self, body: bytes, end: int) -> None:
        try:
            one_phase, form, gtrid, bqual = _XA_PREPARE.unpack_from(body)
        except struct.error as error:
            raise ChangeError(f"{self.name}:{end}: an XA PREPARE is cut.") from error
        data = body[_XA_PREPARE.size :]
        xid = f"X'{data[:gtrid].hex()}',X'{data[gtrid : gtrid + bqual].hex()}',{form}"
        self.xa = True
        if not one_phase:
            self.xa_open[xid] = OpenXa(xid, self._group, end)
        self._finish(end)

    def _finish(self, end: int) -> None:
        self._group = 0
        self._in_transaction = False
        self.whole = end

    def _about_file(self, event: RawEvent) -> None:
        kind, body = event.type, event.body
        if kind == EventType.FORMAT_DESCRIPTION:
            self.server_version = body[2:52].rstrip(b"\0").decode("ascii", "replace")
            self.checksum = "crc32" if event.size > HEADER_BYTES + len(body) else "none"
        elif kind == EventType.PREVIOUS_GTIDS:
            self.gtids_before = str(decode_gtids(body))
        elif kind == EventType.MARIADB_GTID_LIST:
            self.gtids_before = str(decode_gtid_list(body))
        elif kind == EventType.ROTATE:
            self.following = body[8:].decode("utf-8", "replace")

    @property
    def gtids(self) -> str:
        """What the file adds to the executed set."""
        return str(self.executed)
