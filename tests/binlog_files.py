"""Binlog files made by hand, and a server that sends them: for tests of what keeps and reads files."""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from migverify.changes.events import ARTIFICIAL, HEADER, HEADER_BYTES, IN_USE, MAGIC, EventType, RawEvent
from migverify.changes.gtid import parse_gtids
from migverify.changes.model import Position
from migverify.changes.server import BinlogServer
from migverify.db.server_state import BinaryLog
from migverify.errors import PurgedError, RetryableReadError

SERVER = "11111111-2222-3333-4444-555555555555"
TIME = 1_800_000_000
TABLE_ID = (91).to_bytes(6, "little")


@dataclass
class BinlogFile:
    """A file under construction. Transactions are numbered by the caller."""

    name: str
    checksum: bool = True
    created: int = TIME
    data: bytearray = field(default_factory=lambda: bytearray(MAGIC))
    ends: list[int] = field(default_factory=list)

    def event(self, kind: int, body: bytes, *, time: int | None = None, flags: int = 0) -> None:
        own = self.checksum or kind == EventType.FORMAT_DESCRIPTION
        size = HEADER_BYTES + len(body) + (4 if own else 0)
        head = HEADER.pack(
            self.created if time is None else time, kind, 1, size, len(self.data) + size & 0xFFFFFFFF, flags
        )
        data = head + body
        self.data += data + (zlib.crc32(data).to_bytes(4, "little") if own else b"")

    def head(self, before: str = "") -> BinlogFile:
        lengths = bytes(
            {2: 13, 4: 8, 19: 8, 23: 8, 24: 8, 25: 8, 30: 10, 31: 10, 32: 10}.get(k, 0) for k in range(1, 43)
        )
        version = b"9.7.4".ljust(50, b"\0")
        body = struct.pack("<H", 4) + version + struct.pack("<IB", self.created, 19) + lengths
        self.event(EventType.FORMAT_DESCRIPTION, body + bytes((self.checksum,)))
        encoded = parse_gtids(before).encode() if before else struct.pack("<Q", 0)
        self.event(EventType.PREVIOUS_GTIDS, encoded)
        return self

    def gtid(self, number: int) -> None:
        self.event(EventType.GTID, b"\1" + uuid.UUID(SERVER).bytes + struct.pack("<q", number))

    def query(self, sql: str, database: str = "app") -> None:
        name = database.encode()
        body = struct.pack("<IIBHH", 1, 0, len(name), 0, 0) + name + b"\0" + sql.encode()
        self.event(EventType.QUERY, body)

    def transaction(self, number: int, rows: bytes = b"", *, payload: int = 20) -> None:
        """BEGIN, an event that nobody needs to understand, and XID."""
        self.gtid(number)
        self.query("BEGIN")
        self.event(EventType.ROWS_QUERY, rows or bytes((payload % 256,)) * payload)
        self.event(EventType.XID, struct.pack("<Q", number))
        self.ends.append(len(self.data))

    def insert(self, number: int, *rows: tuple[int, str | None], table: str = "t") -> None:
        """One transaction that inserts rows of ``app.<table> (id INT PRIMARY KEY, v VARCHAR(50))``."""
        self.gtid(number)
        self.query("BEGIN")
        self.table_map(table)
        self.rows(EventType.WRITE_ROWS, rows)
        self.event(EventType.XID, struct.pack("<Q", number))
        self.ends.append(len(self.data))

    def update(self, number: int, *rows: tuple[int, str | None], table: str = "t") -> None:
        """One transaction that updates rows; before and after take turns."""
        self.gtid(number)
        self.query("BEGIN")
        self.table_map(table)
        self.rows(EventType.UPDATE_ROWS, rows)
        self.event(EventType.XID, struct.pack("<Q", number))
        self.ends.append(len(self.data))

    def delete(self, number: int, *rows: tuple[int, str | None], table: str = "t") -> None:
        """One transaction that deletes rows."""
        self.gtid(number)
        self.query("BEGIN")
        self.table_map(table)
        self.rows(EventType.DELETE_ROWS, rows)
        self.event(EventType.XID, struct.pack("<Q", number))
        self.ends.append(len(self.data))

    def table_map(self, table: str) -> None:
        names = b"".join(bytes((len(name),)) + name for name in (b"id", b"v"))
        extra = [(1, b"\0"), (2, b"\x2d"), (4, names), (8, b"\0")]  # signed; utf8mb4; names; primary key
        fields = b"".join(bytes((kind, len(value))) + value for kind, value in extra)
        name = table.encode()
        body = TABLE_ID + b"\1\0" + b"\3app\0" + bytes((len(name),)) + name + b"\0"
        body += bytes((2, 3, 15)) + bytes((2,)) + struct.pack("<H", 200) + b"\2" + fields
        self.event(EventType.TABLE_MAP, body)

    def rows(self, kind: EventType, rows: Sequence[tuple[int, str | None]]) -> None:
        head = b"\2" + (b"\xff\xff" if kind == EventType.UPDATE_ROWS else b"\xff")
        images = b"".join(row_image(*row) for row in rows)
        self.event(kind, TABLE_ID + b"\1\0" + struct.pack("<H", 2) + head + images)

    def ddl(self, number: int, sql: str) -> None:
        self.gtid(number)
        self.query(sql)
        self.ends.append(len(self.data))

    def xa_prepare(self, number: int, gtrid: bytes, *rows: tuple[int, str | None]) -> None:
        self.gtid(number)
        self.query(f"XA START X'{gtrid.hex()}',X'',1")
        if rows:
            self.table_map("t")
            self.rows(EventType.WRITE_ROWS, rows)
        self.query(f"XA END X'{gtrid.hex()}',X'',1")
        self.event(EventType.XA_PREPARE, struct.pack("<?iII", False, 1, len(gtrid), 0) + gtrid)
        self.ends.append(len(self.data))

    def packed(self, number: int, other: BinlogFile, first: int) -> None:
        """A transaction payload (not compressed) with what is in another file from an offset on."""
        self.gtid(number)
        inner = bytes(other.data[first:])
        size = b"\xfd" + len(inner).to_bytes(3, "little")
        fields = bytes((2, 3)) + b"\xfc\xff\x00" + bytes((1, 4)) + size + bytes((3, 4)) + size + b"\0"
        self.event(EventType.TRANSACTION_PAYLOAD, fields + inner)
        self.ends.append(len(self.data))

    def xa_prepare_packed(self, number: int, gtrid: bytes, *rows: tuple[int, str | None]) -> None:
        """The same as ``xa_prepare`` in a payload."""
        other = BinlogFile("inside", checksum=False)
        other.xa_prepare(number, gtrid, *rows)
        self.packed(number, other, 4 + int.from_bytes(other.data[13:17], "little"))

    def xa_commit(self, number: int, gtrid: bytes) -> None:
        self.gtid(number)
        self.query(f"XA COMMIT X'{gtrid.hex()}',X'',1")
        self.ends.append(len(self.data))

    def rotate(self, following: str) -> None:
        self.event(EventType.ROTATE, struct.pack("<Q", 4) + following.encode())

    def stop(self) -> None:
        self.event(EventType.STOP, b"")

    def events(self, offset: int) -> Iterator[RawEvent]:
        """The events from an offset on, as a server sends them: its format description first, without a place."""
        at = 4
        while at < len(self.data):
            size = struct.unpack_from("<I", self.data, at + 9)[0]
            time, kind, server, _, end, flags = HEADER.unpack_from(self.data, at)
            own = self.checksum  # the format description has the field always, and it means nothing without
            body = bytes(self.data[at + HEADER_BYTES : at + size - (4 if own else 0)])
            if at >= offset:
                yield RawEvent(kind, time, server, size, end, flags & ~IN_USE, body)
            elif at == 4:
                yield RawEvent(kind, time, server, size, 0, flags & ~IN_USE, body)
            at += size


def row_image(key: int, value: str | None) -> bytes:
    """One image of ``(id INT, v VARCHAR(50))`` as rows events hold it; unused bits of the NULL map are set."""
    packed = b"" if value is None else bytes((len(value.encode()),)) + value.encode()
    return bytes((0xFC | (2 if value is None else 0),)) + struct.pack("<i", key) + packed


@dataclass
class FakeServer(BinlogServer):
    """Sends files as a server does. ``lose_after`` cuts each connection after that many events."""

    files: Sequence[BinlogFile]
    uuid: str = SERVER  # type: ignore[assignment]
    lose_after: int = 0
    resend_from_start: bool = False
    connections: int = 0

    def logs(self) -> list[BinaryLog]:
        return [BinaryLog(file.name, len(file.data)) for file in self.files]

    def events(self, start: Position, *, follow: bool = False) -> Iterator[RawEvent]:
        del follow
        file, offset = start.file, start.offset
        self.connections += 1
        sent = 0
        if self.resend_from_start:
            offset = 4
        names = [one.name for one in self.files]
        if file not in names:
            raise PurgedError(f"no {file}")
        for one in self.files[names.index(file) :]:
            yield fake_rotate(one.name, offset)
            for event in one.events(offset):
                if self.lose_after and sent >= self.lose_after:
                    raise RetryableReadError("cut by the test")
                yield event
                sent += 1
            offset = 4
        yield RawEvent(EventType.HEARTBEAT, 0, 1, HEADER_BYTES, len(self.files[-1].data) & 0xFFFFFFFF, 0, b"")


def fake_rotate(name: str, offset: int) -> RawEvent:
    body = struct.pack("<Q", offset) + name.encode()
    return RawEvent(EventType.ROTATE, 0, 1, HEADER_BYTES + len(body), 0, ARTIFICIAL, body)


def history(counts: Sequence[int], *, checksum: bool = True, first: int = 1) -> list[BinlogFile]:
    """Files with so many transactions each; every file but the last ends with a ROTATE."""
    files, done = [], first - 1
    for place, count in enumerate(counts):
        before = f"{SERVER}:{first}-{done}" if done >= first else ""
        file = BinlogFile(f"binlog.{place + 1:06d}", checksum, TIME + 100 * place).head(before)
        for _ in range(count):
            done += 1
            file.transaction(done, payload=done % 50 + 1)
        if place + 1 < len(counts):
            file.rotate(f"binlog.{place + 2:06d}")
        files.append(file)
    return files


def position(file: BinlogFile, place: int) -> Position:
    """End of the ``place``-th transaction of a file."""
    return Position(file.name, file.ends[place])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["insert", "update", "delete", "ddl", "rotate"]), st.just(0)),
        st.tuples(st.sampled_from(["prepare", "packed", "commit"]), st.integers(0, 3)),
    ),
    max_size=30,
)


def build(steps: list[tuple[str, int]]) -> list[BinlogFile]:
    """Files with transactions of every kind; XA transactions stay prepared over as many files as the steps say."""
    files = [BinlogFile("binlog.000001").head()]
    number, prepared = 0, set()
    for step, xid in steps:
        file = files[-1]
        if step == "rotate":
            file.rotate(f"binlog.{len(files) + 1:06d}")
            files.append(BinlogFile(f"binlog.{len(files) + 1:06d}").head(f"{SERVER}:1-{number}" if number else ""))
            continue
        if (step in ("prepare", "packed") and xid in prepared) or (step == "commit" and xid not in prepared):
            continue
        number += 1
        if step == "insert":
            file.insert(number, (number, "a"), (-number, None))
        elif step == "update":
            file.update(number, (number, "a"), (number, "b"))
        elif step == "delete":
            file.delete(number, (number, "é"))
        elif step == "ddl":
            file.ddl(number, f"CREATE TABLE n{number} (id INT)")
        elif step in ("prepare", "packed"):
            prepared.add(xid)
            write = file.xa_prepare if step == "prepare" else file.xa_prepare_packed
            write(number, b"x%d" % xid, (1000 + number, "xa"))
        else:
            prepared.discard(xid)
            file.xa_commit(number, b"x%d" % xid)
    return files
