"""Makes binlog events, byte for byte, for tests without a server."""

from __future__ import annotations

import struct
import uuid
import zlib
from pathlib import Path

from migverify.changes.events import ARTIFICIAL, MAGIC, EventType, RawEvent, split_event

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
TIME = 1_800_000_000


class Binlog:
    """One file that grows event by event. ``boundaries`` are the offsets between transactions."""

    def __init__(self, name: str = "binlog.000001", previous: bytes = b"\0" * 8, *, checksum: bool = True) -> None:
        self.name, self.checksum = name, checksum
        self.data = bytearray(MAGIC)
        self.number = 0
        lengths = bytearray(42)
        for kind, length in {2: 13, 4: 8, 19: 8, 23: 8, 24: 8, 25: 8, 30: 10, 31: 10, 32: 10}.items():
            lengths[kind - 1] = length
        described = struct.pack("<H50sIB", 4, b"9.7.4", TIME, 19) + bytes(lengths) + bytes((int(checksum),))
        self.add(EventType.FORMAT_DESCRIPTION, described)
        self.add(EventType.PREVIOUS_GTIDS, previous, flags=0x80)
        self.boundaries = [len(self.data)]

    def add(self, kind: int, body: bytes, *, flags: int = 0, end: int | None = None) -> Binlog:
        summed = self.checksum or kind == EventType.FORMAT_DESCRIPTION
        size = 19 + len(body) + (4 if summed else 0)
        head = struct.pack("<IBIIIH", TIME, kind, 1, size, len(self.data) + size if end is None else end, flags)
        self.data += head + body
        if summed:
            self.data += struct.pack("<I", zlib.crc32(head + body))
        return self

    def gtid(self, number: int | None = None, size: int = 0) -> Binlog:
        self.number = self.number + 1 if number is None else number
        kind = EventType.GTID if self.number else EventType.ANONYMOUS_GTID
        body = struct.pack("<B16sqBqq", 0, uuid.UUID(SERVER).bytes, self.number, 2, 0, 1)
        return self.add(kind, body + (TIME * 1_000_000).to_bytes(7, "little") + bytes((size,)))

    def query(self, sql: str, database: str = "d", status: bytes = b"") -> Binlog:
        named = database.encode()
        head = struct.pack("<IIBHH", 1, 0, len(named), 0, len(status))
        return self.add(EventType.QUERY, head + status + named + b"\0" + sql.encode())

    def begin(self) -> Binlog:
        return self.gtid().query("BEGIN")

    def table(self, table_id: int = 9, name: str = "t") -> Binlog:
        """Columns ``id int`` and ``v varchar(20)``."""
        body = table_id.to_bytes(6, "little") + b"\1\0" + b"\1d\0" + bytes((len(name),)) + name.encode() + b"\0"
        body += b"\2\x03\x0f\2\x50\0\2" + b"\1\1\0" + b"\2\3\xfc\xff\0" + b"\4\5\2id\1v" + b"\x08\1\0"
        return self.add(EventType.TABLE_MAP, body)

    def strange_table(self, table_id: int = 10, name: str = "vectors", code: int = 200) -> Binlog:
        """Columns ``id int`` and one of a type that nobody knows, so its metadata have an unknown length."""
        body = table_id.to_bytes(6, "little") + b"\1\0" + b"\1d\0" + bytes((len(name),)) + name.encode() + b"\0"
        body += b"\2\x03" + bytes((code,)) + b"\5\1\2\3\4\5\0" + b"\1\1\0" + b"\4\5\2id\1v" + b"\x08\1\0"
        return self.add(EventType.TABLE_MAP, body)

    def rows(
        self, *images: bytes, kind: int = EventType.WRITE_ROWS, table_id: int = 9, present: bytes = b"\xff"
    ) -> Binlog:
        maps = present * 2 if kind in (EventType.UPDATE_ROWS, EventType.UPDATE_ROWS_V1) else present
        extra = b"\2\0" if kind >= EventType.WRITE_ROWS else b""
        return self.add(kind, table_id.to_bytes(6, "little") + b"\1\0" + extra + b"\2" + maps + b"".join(images))

    def xid(self) -> Binlog:
        self.add(EventType.XID, struct.pack("<Q", self.number))
        return self.boundary()

    def boundary(self) -> Binlog:
        self.boundaries.append(len(self.data))
        return self

    def insert(self, number: int, text: str = "x") -> Binlog:
        """A whole transaction of one row."""
        return self.begin().table().rows(image(number, text)).xid()

    def rotate(self, name: str) -> Binlog:
        return self.add(EventType.ROTATE, struct.pack("<Q", 4) + name.encode())

    def write(self, folder: Path) -> str:
        path = folder / self.name
        path.write_bytes(bytes(self.data))
        return str(path)

    def events(self) -> list[RawEvent]:
        found, at = [], 4
        while at < len(self.data):
            size = int.from_bytes(self.data[at + 9 : at + 13], "little")
            data = bytes(self.data[at : at + size])
            found.append(split_event(data, self.checksum or data[4] == EventType.FORMAT_DESCRIPTION, self.name))
            at += size
        return found


def image(number: int, text: str | None) -> bytes:
    """One row of the table of ``Binlog.table``."""
    if text is None:
        return b"\2" + struct.pack("<i", number)
    return b"\0" + struct.pack("<i", number) + bytes((len(text.encode()),)) + text.encode()


def numbers(images: bytes) -> list[int]:
    """The ids of packed images."""
    found, at = [], 0
    while at < len(images):
        found.append(struct.unpack_from("<i", images, at + 1)[0])
        at += 5 if images[at] & 2 else 6 + images[at + 5]
    return found


def made_rotate(name: str, offset: int = 4) -> RawEvent:
    """The ROTATE that a server makes to name the file it sends."""
    body = struct.pack("<Q", offset) + name.encode()
    return RawEvent(EventType.ROTATE, 0, 1, 19 + len(body), 0, ARTIFICIAL, body)
