"""Packets of a trace, pcap or pcapng, down to TCP segments.

Written by hand over ``struct``: every packet keeps its place in the file, which packet libraries do not tell.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import IO

_LONGEST = 64 << 20
"""A packet record longer than this is damage, not a packet."""

ETHERNET, NULL, RAW, SLL, SLL2 = 1, 0, 101, 113, 276
_RAWS = frozenset({RAW, 12, 14, 228, 229})
_IP4, _IP6, _VLANS = 0x0800, 0x86DD, frozenset({0x8100, 0x88A8, 0x9100})
_TCP, _UDP, _VXLAN_PORT = 6, 17, 4789
_EXTENSIONS = frozenset({0, 43, 60})

CUT_RECORD = "packet record cut short"
CUT_PACKET = "packet cut by the snap length"
DAMAGED = "damaged file"
NO_LINK = "unknown link type"
FRAGMENT = "IP fragment"
NO_IP = "no IP header"


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet record, or bytes between: then ``data`` is None, and ``reject`` or ``noise`` says what they are."""

    offset: int
    length: int
    line: int
    time: int = 0
    link: int = RAW
    data: bytes | None = None
    cut: bool = False
    reject: str = ""
    noise: str = ""


@dataclass(frozen=True, slots=True)
class TcpSegment:
    """A TCP segment."""

    source: tuple[bytes, int]
    target: tuple[bytes, int]
    sequence: int
    syn: bool
    fin: bool
    rst: bool
    acknowledged: int | None
    payload: bytes


class NotTcpError(Exception):
    """No TCP segment; the argument says why it is a reject, or is empty when it is of another kind."""


def address(raw: bytes) -> str:
    """Return an IP address as text."""
    return str(ip_address(raw))


def packets(file: IO[bytes]) -> Iterator[Packet]:
    """Yield the packets of a pcap or pcapng file; what follows damage is one reject."""
    magic = file.read(4)
    forms = {b"\xd4\xc3\xb2\xa1": ("<", 1), b"\xa1\xb2\xc3\xd4": (">", 1), b"\x4d\x3c\xb2\xa1": ("<", 1000),
             b"\xa1\xb2\x3c\x4d": (">", 1000)}  # fmt: skip
    if magic == b"\x0a\x0d\x0d\x0a":
        yield from _pcapng(file)
    elif magic in forms:
        yield from _pcap(file, *forms[magic])
    else:
        yield from _rest(file, 0, len(magic), DAMAGED)


def _rest(file: IO[bytes], offset: int, read: int, reason: str) -> Iterator[Packet]:
    length = read
    while part := file.read(1 << 20):
        length += len(part)
    if length:
        yield Packet(offset, length, 1, reject=reason)


def _pcap(file: IO[bytes], order: str, divisor: int) -> Iterator[Packet]:
    head = file.read(20)
    if len(head) < 20:
        yield Packet(0, 4 + len(head), 1, reject=CUT_RECORD)
        return
    yield Packet(0, 24, 1, noise="file header")
    link = struct.unpack(order + "I", head[16:20])[0] & 0xFFFF
    record = struct.Struct(order + "IIII")
    offset, number = 24, 0
    while head := file.read(16):
        if len(head) < 16:
            yield Packet(offset, len(head), number + 1, reject=CUT_RECORD)
            return
        seconds, fraction, size, whole = record.unpack(head)
        if size > _LONGEST:
            yield from _rest(file, offset, 16, DAMAGED)
            return
        data = file.read(size)
        number += 1
        if len(data) < size:
            yield Packet(offset, 16 + len(data), number, reject=CUT_RECORD)
            return
        moment = seconds * 1_000_000 + fraction // divisor
        yield Packet(offset, 16 + size, number, moment, link, data, size < whole)
        offset += 16 + size


def _pcapng(file: IO[bytes]) -> Iterator[Packet]:
    offset, number, order = 0, 0, "<"
    links: list[tuple[int, int]] = []
    head = b"\x0a\x0d\x0d\x0a" + file.read(8)
    while head:
        if len(head) < 12:
            yield Packet(offset, len(head), number + 1, reject=CUT_RECORD)
            return
        if head[:4] == b"\x0a\x0d\x0d\x0a":
            order = "<" if head[8:12] == b"\x4d\x3c\x2b\x1a" else ">"
            links = []
        kind, size = struct.unpack(order + "II", head[:8])
        if size < 12 or size > _LONGEST or size % 4:
            yield from _rest(file, offset, len(head), DAMAGED)
            return
        body = head[8:] + file.read(size - 12)
        if len(body) < size - 8:
            yield Packet(offset, 8 + len(body), number + 1, reject=CUT_RECORD)
            return
        body = body[:-4]
        if kind == 6 and len(body) >= 20:
            number += 1
            face, high, low, caught, whole = struct.unpack(order + "IIIII", body[:20])
            if face < len(links) and len(body) >= 20 + caught:
                link, per_second = links[face]
                moment = ((high << 32) | low) * 1_000_000 // per_second
                yield Packet(offset, size, number, moment, link, body[20 : 20 + caught], caught < whole)
            else:
                yield Packet(offset, size, number, reject=DAMAGED)
        elif kind == 3:
            number += 1
            yield Packet(offset, size, number, reject="packet without a time")
        else:
            if kind == 1 and len(body) >= 8:
                links.append((struct.unpack(order + "H", body[:2])[0], _resolution(body[8:], order)))
            yield Packet(offset, size, number + 1, noise="file header")
        offset += size
        head = file.read(12)


def _resolution(options: bytes, order: str) -> int:
    """Return how many units of time a second has on an interface."""
    at = 0
    while at + 4 <= len(options):
        code, size = struct.unpack(order + "HH", options[at : at + 4])
        if code == 9 and size:
            value = options[at + 4]
            return int(2 ** (value & 0x7F)) if value & 0x80 else int(10**value)
        if code == 0:
            break
        at += 4 + (size + 3) // 4 * 4
    return 1_000_000


def segment(packet: Packet) -> TcpSegment:
    """Return the TCP segment of a packet, out of VLAN and VXLAN.

    Raises
    ------
    NotTcpError
        there is none.
    """
    try:
        return _network(packet.link, packet.data or b"")
    except (struct.error, IndexError) as error:
        raise NotTcpError(CUT_PACKET) from error


def _network(link: int, data: bytes) -> TcpSegment:
    if link in _RAWS:
        return _ip(data)
    if link == ETHERNET:
        return _ethernet(data)
    if link == NULL:
        return _ip(data[4:])
    if link in (SLL, SLL2):
        at, size = (14, 16) if link == SLL else (0, 20)
        kind = int.from_bytes(data[at : at + 2], "big")
        if kind not in (_IP4, _IP6):
            raise NotTcpError("")
        return _ip(data[size:])
    raise NotTcpError(NO_LINK)


def _ethernet(data: bytes) -> TcpSegment:
    at = 12
    kind = int.from_bytes(data[at : at + 2], "big")
    while kind in _VLANS:
        at += 4
        kind = int.from_bytes(data[at : at + 2], "big")
    if kind not in (_IP4, _IP6):
        raise NotTcpError("")
    return _ip(data[at + 2 :])


def _ip(data: bytes) -> TcpSegment:
    version = data[0] >> 4
    if version == 4:
        size = (data[0] & 15) * 4
        whole = int.from_bytes(data[2:4], "big") or len(data)  # 0: the card cut it into packets later
        kind, source, target = data[9], data[12:16], data[16:20]
        if int.from_bytes(data[6:8], "big") & 0x3FFF:
            raise NotTcpError(FRAGMENT if kind == _TCP else "")
        return _transport(kind, source, target, data[size:whole])
    if version == 6:
        whole = 40 + int.from_bytes(data[4:6], "big") if data[4:6] != b"\0\0" else len(data)
        kind, at = data[6], 40
        while kind in _EXTENSIONS:
            kind, at = data[at], at + 8 + data[at + 1] * 8
        return _transport(kind, data[8:24], data[24:40], data[at:whole])
    raise NotTcpError(NO_IP)


def _transport(kind: int, source: bytes, target: bytes, data: bytes) -> TcpSegment:
    if kind == _UDP:
        if len(data) > 16 and int.from_bytes(data[2:4], "big") == _VXLAN_PORT:
            return _ethernet(data[16:])
        raise NotTcpError("")
    if kind != _TCP:
        raise NotTcpError("")
    from_port, to_port, sequence, acknowledged, size, flags = struct.unpack(">HHIIBB", data[:14])
    return TcpSegment(
        (source, from_port), (target, to_port), sequence, bool(flags & 2), bool(flags & 1), bool(flags & 4),
        acknowledged if flags & 16 else None,
        data[(size >> 4) * 4 :],
    )  # fmt: skip
