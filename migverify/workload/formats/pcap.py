"""Packet traces: pcap and pcapng files."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from migverify.workload.formats.answers import PacketEntry, give_up
from migverify.workload.formats.conversation import Conversation
from migverify.workload.formats.packets import (
    NotTcpError,
    Packet,
    TcpSegment,
    packets,
    segment,
)
from migverify.workload.lines import open_log
from migverify.workload.model import Noise, Origin, Piece, Rejected

MOST_HELD = 200_000
"""So many packets wait for the answer to one of them; then it is given up."""


class Pcap:
    """Reads pcap and pcapng; ``port`` is the server's."""

    name = "pcap"

    def __init__(self, port: int = 3306, most_held: int = MOST_HELD) -> None:
        self._port, self._most_held = port, most_held

    def sniff(self, head: bytes) -> float:
        """Tell by the magic number."""
        magics = (
            b"\xd4\xc3\xb2\xa1",
            b"\xa1\xb2\xc3\xd4",
            b"\x4d\x3c\xb2\xa1",
            b"\xa1\xb2\x3c\x4d",
            b"\x0a\x0d\x0d\x0a",
        )
        return 1.0 if head[:4] in magics else 0.0

    def read(self, path: str) -> Iterator[Piece]:
        """Yield pieces."""
        with open_log(path) as file:
            yield from _Trace(path, self._port, self._most_held).pieces(packets(file))


class _Trace:
    """All connections of one trace, and its packets in order until their meaning is known."""

    def __init__(self, path: str, port: int, most_held: int) -> None:
        self._path, self._port, self._most_held = path, port, most_held
        self._open: dict[tuple[object, object], Conversation] = {}
        self._held: deque[PacketEntry] = deque()

    def pieces(self, found: Iterator[Packet]) -> Iterator[Piece]:
        for packet in found:
            entry = PacketEntry(packet)
            self._held.append(entry)
            if packet.data is None:
                entry.reject, entry.noise = packet.reject, packet.noise
            else:
                self._take(entry)
            yield from self._settled(self._most_held)
        for conversation in self._open.values():
            conversation.close()
        yield from self._settled(-1)

    def _take(self, entry: PacketEntry) -> None:
        try:
            one = segment(entry.packet)
        except NotTcpError as why:
            entry.reject, entry.noise = str(why), "packet of another protocol"
            return
        ports = (one.source[1], one.target[1])
        if self._port not in ports:
            entry.noise = "packet of another port"
            return
        to_server = ports[1] == self._port
        client, server = (one.source, one.target) if to_server else (one.target, one.source)
        key = (client, server)
        conversation = self._open.get(key)
        if one.syn and to_server and conversation is not None:
            conversation.close()  # the client's port is used again
            conversation = None
        if conversation is None:
            if not one.syn and not one.payload:
                return
            conversation = self._open[key] = Conversation(self._path, client, server, fresh=one.syn)
        if one.syn:
            conversation.open(one)
        if one.payload:
            conversation.add(one, entry)
        self._end(one, key, conversation)

    def _end(self, one: TcpSegment, key: tuple[object, object], conversation: Conversation) -> None:
        if one.rst:
            conversation.close()
            del self._open[key]
        elif one.fin:
            conversation.end(one)
        if conversation.ended_by_both and not conversation.ended:
            conversation.close()  # it stays known: a segment that is sent again must not begin another one

    def _settled(self, most: int) -> Iterator[Piece]:
        held = self._held
        while held and (not held[0].open or len(held) > most):
            entry = held.popleft()
            entry.settled = True
            for asked in entry.asked:
                if not asked.done:
                    give_up(asked)
            yield from _pieces(self._path, entry)


def _pieces(path: str, entry: PacketEntry) -> Iterator[Piece]:
    packet = entry.packet
    origin = Origin(path, packet.offset, packet.line, packet.length)
    if not entry.records:
        yield Rejected(origin, entry.reject) if entry.reject else Noise(origin, entry.noise)
        return
    # More commands in the same packet: the first one has its bytes.
    behind = Origin(path, packet.offset + packet.length, packet.line, 0)
    for number, record in enumerate(entry.records):
        record.origin = behind if number else origin
        yield record
