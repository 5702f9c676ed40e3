"""Packet traces made by hand: Ethernet, IPv4, TCP and MySQL's framing."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable

CLIENT, SERVER = ("10.0.0.9", 51000), ("10.0.0.1", 3306)
CAPABILITIES = 0x0008_A2BF & ~0x20 & ~0x800  # 4.1, secure connection, database; no TLS, no compression
ATTRIBUTES = 1 << 27


def packet(payload: bytes, sequence: int = 0) -> bytes:
    """Return payload with MySQL's header, cut where it is too long for one packet."""
    parts = [payload[at : at + 0xFFFFFF] for at in range(0, len(payload) + 1, 0xFFFFFF)]
    return b"".join(
        len(part).to_bytes(3, "little") + bytes([(sequence + number) % 256]) + part for number, part in enumerate(parts)
    )


def counted(value: bytes) -> bytes:
    return bytes([len(value)]) + value


def ok(affected: int = 0, insert_id: int = 0, status: int = 2, warnings: int = 0, kind: int = 0) -> bytes:
    return bytes([kind, affected, insert_id]) + struct.pack("<HH", status, warnings)


def error(code: int, text: str = "no") -> bytes:
    return b"\xff" + struct.pack("<H", code) + b"#HY000" + text.encode()


def eof(status: int = 2) -> bytes:
    return b"\xfe" + struct.pack("<HH", 0, status)


def column(name: str) -> bytes:
    return counted(b"def") + counted(b"") * 3 + counted(name.encode()) * 2 + b"\x0c" + bytes(12)


def result(rows: Iterable[bytes], *, deprecate_eof: bool = False, status: int = 2, sequence: int = 1) -> bytes:
    """Return the packets of a result with one column."""
    parts = [b"\x01", column("a")]
    if not deprecate_eof:
        parts.append(eof(status))
    parts += [counted(row) for row in rows]
    parts.append(ok(status=status, kind=0xFE) + b"\0\0" if deprecate_eof else eof(status))
    return b"".join(packet(part, sequence + number) for number, part in enumerate(parts))


def greeting(connection: int = 7, capabilities: int = CAPABILITIES) -> bytes:
    low, high = capabilities & 0xFFFF, capabilities >> 16
    return packet(
        b"\x0a9.7.4\0" + struct.pack("<I", connection) + b"12345678\0" + struct.pack("<H", low) + b"\xff"
        + struct.pack("<HH", 2, high) + b"\x15" + bytes(10) + b"123456789012\0caching_sha2_password\0"
    )  # fmt: skip


def login(user: str = "app", database: str = "pay", capabilities: int = CAPABILITIES, sequence: int = 1) -> bytes:
    return packet(
        struct.pack("<IIB", capabilities, 1 << 24, 255) + bytes(23) + user.encode() + b"\0" + counted(b"secret")
        + database.encode() + b"\0caching_sha2_password\0",
        sequence,
    )  # fmt: skip


class Trace:
    """Collects packets of connections; ``client`` and ``server`` send bytes, a segment each."""

    def __init__(self, size: int = 1400) -> None:
        self.packets: list[tuple[int, bytes]] = []
        self.clock = 1_700_000_000_000_000
        self.size = size
        self._next: dict[tuple[tuple[str, int], tuple[str, int]], int] = {}

    def client(self, data: bytes, port: int = CLIENT[1], *, lose: bool = False) -> None:
        self._send((CLIENT[0], port), SERVER, data, lose=lose)

    def server(self, data: bytes, port: int = CLIENT[1], *, lose: bool = False) -> None:
        self._send(SERVER, (CLIENT[0], port), data, lose=lose)

    def syn(self, port: int = CLIENT[1]) -> None:
        for ends in (((CLIENT[0], port), SERVER), (SERVER, (CLIENT[0], port))):
            self._next[ends] = 0xFFFFFF00  # wraps around soon
            self._frame(*ends, b"", flags=2)
            self._next[ends] += 1

    def connect(self, port: int = CLIENT[1], connection: int = 7, capabilities: int = CAPABILITIES) -> None:
        self.syn(port)
        self.server(greeting(connection, capabilities), port)
        self.client(login(capabilities=capabilities), port)
        self.server(packet(b"\xfemysql_native_password\0salt", 2), port)
        self.client(packet(b"hash", 3), port)
        self.server(packet(ok(), 4), port)

    def end(self, sides: int = 2, port: int = CLIENT[1]) -> None:
        """Send a FIN: of the client, then of the server."""
        for ends in (((CLIENT[0], port), SERVER), (SERVER, (CLIENT[0], port)))[:sides]:
            self._frame(*ends, b"", flags=1)

    def ask(self, payload: bytes, reply: bytes, port: int = CLIENT[1]) -> None:
        self.client(packet(payload), port)
        self.server(reply, port)

    def _send(self, source: tuple[str, int], target: tuple[str, int], data: bytes, *, lose: bool) -> None:
        for at in range(0, len(data), self.size):
            part = data[at : at + self.size]
            if not lose:
                self._frame(source, target, part)
            ends = (source, target)
            self._next[ends] = (self._next.get(ends, 1000) + len(part)) % (1 << 32)

    def _frame(self, source: tuple[str, int], target: tuple[str, int], data: bytes, flags: int = 0x08) -> None:
        sequence = self._next.get((source, target), 1000) % (1 << 32)
        seen = self._next.get((target, source))
        flags |= 0 if seen is None else 0x10
        tcp = (
            struct.pack(">HHIIBBHHH", source[1], target[1], sequence, (seen or 0) % (1 << 32), 0x50, flags, 1024, 0, 0)
            + data
        )
        ip = struct.pack(
            ">BBHHHBBH4s4s",
            0x45,
            0,
            20 + len(tcp),
            1,
            0,
            64,
            6,
            0,
            socket.inet_aton(source[0]),
            socket.inet_aton(target[0]),
        )
        self.clock += 1000
        self.packets.append((self.clock, ip + tcp))

    def pcap(self, *, nano: bool = False) -> bytes:
        """Return the trace as a pcap file of Ethernet frames."""
        magic = 0xA1B23C4D if nano else 0xA1B2C3D4
        parts = [struct.pack("<IHHiIII", magic, 2, 4, 0, 0, 1 << 18, 1)]
        for moment, data in self.packets:
            frame = bytes(12) + b"\x08\x00" + data
            part = moment % 1_000_000 * (1000 if nano else 1)
            parts.append(struct.pack("<IIII", moment // 1_000_000, part, len(frame), len(frame)) + frame)
        return b"".join(parts)

    def pcapng(self) -> bytes:
        """Return the trace as a pcapng file."""

        def block(kind: int, body: bytes) -> bytes:
            body += bytes(-len(body) % 4)
            size = struct.pack("<I", 12 + len(body))
            return struct.pack("<I", kind) + size + body + size

        parts = [
            block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)),
            block(1, struct.pack("<HHI", 101, 0, 0) + struct.pack("<HHB3x", 9, 1, 9) + bytes(4)),
        ]
        for moment, data in self.packets:
            high, low = divmod(moment * 1000, 1 << 32)
            parts.append(block(6, struct.pack("<IIIII", 0, high, low, len(data), len(data)) + data))
        return b"".join(parts)
