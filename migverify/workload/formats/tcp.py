"""One direction of a TCP connection: segments in any order become bytes in order, and every byte knows its packet."""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

_PATIENCE_BYTES = 8 << 20
_PATIENCE_SEGMENTS = 512
_WRAP = 1 << 32
_HALF = 1 << 31

Tag = TypeVar("Tag")
Address = tuple[bytes, int]
"""The bytes of an IP address, and a port."""


def joined_session(client: Address, server: Address) -> int:
    """Return a number for a connection whose id no packet shows; it never is that of a server's connection."""
    return -1 - zlib.crc32(repr((client, server)).encode())


@dataclass(slots=True)
class ByteStream(Generic[Tag]):
    """Bytes in order, not yet taken by the reader, with the tags of the segments they came in.

    Attributes
    ----------
    end
        The sequence number of the other side's FIN.
    lost
        Bytes are missing in front of ``data``; the reader has to find its feet again, and sets this back.
    """

    next: int | None = None
    data: bytearray = field(default_factory=bytearray)
    lost: bool = False
    end: int | None = None
    released: list[Tag] = field(default_factory=list)
    _marks: deque[tuple[int, Tag]] = field(default_factory=deque)
    _taken: int = 0
    _waiting: dict[int, tuple[bytes, Tag]] = field(default_factory=dict)
    _waiting_bytes: int = 0

    def start(self, sequence: int) -> None:
        """Begin at a sequence number: the one behind a SYN."""
        self.next = sequence % _WRAP

    def add(self, sequence: int, payload: bytes, tag: Tag) -> None:
        """Take in a segment: a repeated one adds nothing, one from the future waits for those before it."""
        if not payload:
            return
        if self.next is None:
            self.next = sequence
        ahead = (sequence - self.next) % _WRAP
        if ahead >= _HALF:  # repeated, in whole or in part
            known = _WRAP - ahead
            if known >= len(payload):
                self.released.append(tag)
                return
            payload, ahead = payload[known:], 0
        if ahead:
            held = self._waiting.get(sequence)
            if held is None or len(held[0]) < len(payload):
                if held is not None:
                    self.released.append(held[1])
                self._waiting_bytes += len(payload) - (0 if held is None else len(held[0]))
                self._waiting[sequence] = (payload, tag)
            else:
                self.released.append(tag)
            if len(self._waiting) > _PATIENCE_SEGMENTS or self._waiting_bytes > _PATIENCE_BYTES:
                self.skip()
            return
        self._append(payload, tag)
        self._settle()

    def behind(self, acknowledged: int) -> bool:
        """Has the receiver got bytes that are missing here? Then they were lost on their way into the trace."""
        if self.next is None:
            return False
        return 0 < (acknowledged - self.next) % _WRAP < _HALF

    def jump(self, acknowledged: int) -> None:
        """Give up on all bytes up to an acknowledged place."""
        self._forget()
        self.next = acknowledged
        self._settle()

    def _forget(self) -> None:
        self.data.clear()
        self.released += [tag for _, tag in self._marks]
        self._marks.clear()
        self._taken = 0
        self.lost = True

    def skip(self) -> bool:
        """Give up on missing bytes and go on with what waits; say whether there was anything."""
        if not self._waiting or self.next is None:
            return False
        here = self.next
        nearest = min(self._waiting, key=lambda sequence: (sequence - here) % _WRAP)
        self._forget()
        self.next = nearest
        self._settle()
        return True

    def _settle(self) -> None:
        while self._waiting and self.next is not None:
            found = None
            for sequence, (payload, tag) in self._waiting.items():
                behind = (self.next - sequence) % _WRAP
                if behind < _HALF:
                    found = sequence, payload[behind:], tag
                    break
            if found is None:
                return
            sequence, payload, tag = found
            self._waiting_bytes -= len(self._waiting.pop(sequence)[0])
            if payload:
                self._append(payload, tag)
            else:
                self.released.append(tag)

    def _append(self, payload: bytes, tag: Tag) -> None:
        self._marks.append((self._taken + len(self.data), tag))
        self.data += payload
        self.next = ((self.next or 0) + len(payload)) % _WRAP

    def tag_at(self, place: int) -> Tag:
        """Return the tag of the segment that brought the byte at this place of ``data``."""
        wanted = self._taken + place
        found = self._marks[0][1]
        for start, tag in self._marks:
            if start > wanted:
                break
            found = tag
        return found

    def take(self, size: int) -> None:
        """Drop bytes from the front."""
        del self.data[:size]
        self._taken += size
        while len(self._marks) > 1 and self._marks[1][0] <= self._taken:
            self.released.append(self._marks.popleft()[1])
        if self._marks and not self.data:
            self.released.append(self._marks.popleft()[1])
