"""Packet traces: pcap and pcapng files, and the text of ``tcpdump -x``, as percona-toolkit takes it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import IO

from migverify.workload.formats.answers import Entry, give_up
from migverify.workload.formats.conversation import Conversation
from migverify.workload.formats.packets import (
    NotTcpError,
    Packet,
    Segment,
    packets,
    segment,
    text_packets,
)
from migverify.workload.lines import GZIP, open_log
from migverify.workload.model import Noise, Origin, Piece, Rejected

MOST_HELD = 200_000
"""So many packets wait for the answer to one of them; then it is given up."""
_TEXT_LINES = b" IP "


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

    def _packets(self, file: IO[bytes]) -> Iterator[Packet]:
        return packets(file)

    def read(self, path: str, start: int = 0, end: int | None = None) -> Iterator[Piece]:
        """Yield pieces; connections span the whole file, so every range reads all of it and yields its part."""
        with open_log(path) as file:
            for piece in _Trace(path, self._port, self._most_held).pieces(self._packets(file)):
                if piece.origin.offset >= start and (end is None or piece.origin.offset < end):
                    yield piece


class PcapText(Pcap):
    """Reads the text of ``tcpdump -x -tttt``."""

    name = "pcap-text"

    def sniff(self, head: bytes) -> float:
        """Tell by a packet's first line and the hex dump under it."""
        if head[:2] == GZIP:
            return 0.0
        return 0.95 if _TEXT_LINES in head[:400] and b"0x0000:" in head[:2000] else 0.0

    def _packets(self, file: IO[bytes]) -> Iterator[Packet]:
        return text_packets(file)


class _Trace:
    """All connections of one trace, and its packets in order until their meaning is known."""

    def __init__(self, path: str, port: int, most_held: int) -> None:
        self._path, self._port, self._most_held = path, port, most_held
        self._open: dict[tuple[object, object], Conversation] = {}
        self._held: deque[Entry] = deque()

    def pieces(self, found: Iterator[Packet]) -> Iterator[Piece]:
        for packet in found:
            entry = Entry(packet)
            self._held.append(entry)
            if packet.data is None:
                entry.reject, entry.noise = packet.reject, packet.noise
            else:
                self._take(entry)
            yield from self._settled(self._most_held)
        for conversation in self._open.values():
            conversation.close()
        yield from self._settled(-1)

    def _take(self, entry: Entry) -> None:
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

    def _end(self, one: Segment, key: tuple[object, object], conversation: Conversation) -> None:
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


def _pieces(path: str, entry: Entry) -> Iterator[Piece]:
    packet = entry.packet
    origin = Origin(path, packet.offset, packet.line, packet.length)
    if not entry.records:
        yield Rejected(origin, entry.reject) if entry.reject else Noise(origin, entry.noise)
        return
    yield replace(entry.records[0], origin=origin)
    # More commands in the same packet: the first one has its bytes.
    behind = Origin(path, packet.offset + packet.length, packet.line, 0)
    for record in entry.records[1:]:
        yield replace(record, origin=behind)
