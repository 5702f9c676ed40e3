"""GTID sets: which transactions were executed, as values.

``uuid:1-5:7`` and, since MySQL 8.3, with tags: ``uuid:1-5:billing:1-9``. Format on the wire from MySQL's
``Gtid_set::encode`` (untagged and tagged).
"""

from __future__ import annotations

import re
import struct
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from migverify.errors import ChangeError

Interval = tuple[int, int]
"""First and last number, both included."""
Source = tuple[str, str]
"""UUID in lower case with dashes, and tag (empty for none)."""

_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_INTERVAL = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?")
_LAST = (1 << 63) - 2
_TAGGED = 1


class Gtid(NamedTuple):
    """The GTID event of a transaction. ``number`` is 0 for an anonymous one; times are Unix seconds, 0 if unknown.

    ``text`` is the GTID as the server writes it, empty for an anonymous transaction.
    """

    source: Source
    number: int
    text: str
    time: float = 0.0
    bytes: int = 0


@dataclass(frozen=True)
class GtidSet:
    """A set of MySQL GTIDs. ``intervals`` are sorted, apart from each other, and never empty."""

    sources: tuple[tuple[Source, tuple[Interval, ...]], ...] = ()

    @cached_property
    def _map(self) -> dict[Source, tuple[Interval, ...]]:
        return dict(self.sources)

    def __bool__(self) -> bool:
        return bool(self.sources)

    def __len__(self) -> int:
        return sum(last - first + 1 for _, intervals in self.sources for first, last in intervals)

    def has(self, source: Source, number: int) -> bool:
        """Whether one transaction is in the set."""
        intervals = self._map.get(source, ())
        at = bisect_right(intervals, (number, _LAST + 1)) - 1
        return at >= 0 and number <= intervals[at][1]

    def __or__(self, other: GtidSet) -> GtidSet:
        return _sorted({
            source: [*self._map.get(source, ()), *other._map.get(source, ())]
            for source in {*self._map, *other._map}
        })  # fmt: skip

    def __sub__(self, other: GtidSet) -> GtidSet:
        return _sorted({
            source: list(_without(intervals, other._map.get(source, ()))) for source, intervals in self.sources
        })  # fmt: skip

    def __str__(self) -> str:
        """The server's own text, without line breaks."""
        return "".join(_pieces(self.sources))

    def encode(self) -> bytes:
        """Bytes as COM_BINLOG_DUMP_GTID and PREVIOUS_GTIDS carry them."""
        tagged = any(tag for (_, tag), _ in self.sources)
        count = len(self.sources)
        packed = [struct.pack("<Q", _TAGGED << 56 | count << 8 | _TAGGED if tagged else count)]
        for (server, tag), intervals in self.sources:
            packed.append(uuid.UUID(server).bytes)
            if tagged:
                packed.append(bytes((len(tag) << 1,)) + tag.encode("ascii"))
            packed.append(struct.pack("<Q", len(intervals)))
            packed += [struct.pack("<QQ", first, last + 1) for first, last in intervals]
        return b"".join(packed)


def parse_gtids(text: str) -> GtidSet:
    """Read a set in the server's text; empty text is the empty set."""
    collected: dict[Source, list[Interval]] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        _read_source(part, collected)
    return _sorted(collected)


def _read_source(text: str, collected: dict[Source, list[Interval]]) -> None:
    head, *rest = (piece.strip().lower() for piece in text.split(":"))
    if not _UUID.fullmatch(head) or not rest:
        raise _not_a_set(text)
    server, tag, fresh = str(uuid.UUID(head)), "", False
    for piece in rest:
        interval = _INTERVAL.fullmatch(piece)
        if interval:
            first, last = int(interval[1]), int(interval[2] or interval[1])
            if not 0 < first <= last <= _LAST:
                raise _not_a_set(text)
            collected.setdefault((server, tag), []).append((first, last))
            fresh = False
        elif _TAG.fullmatch(piece) and not fresh:
            tag, fresh = piece, True
        else:
            raise _not_a_set(text)
    if fresh:  # a tag without numbers
        raise _not_a_set(text)


def _not_a_set(text: str) -> ChangeError:
    return ChangeError(
        f"not a GTID set: {text[:200]!r}",
        hint="A set looks like 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-23, with tags after a colon.",
    )


def decode_gtids(data: bytes) -> GtidSet:
    """Read a set from the body of a PREVIOUS_GTIDS event."""
    try:
        found, end = _decode(data)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ChangeError("a GTID set in the binlog is cut or damaged.") from error
    if end != len(data):
        raise ChangeError(f"a GTID set in the binlog has {len(data) - end} bytes too many.")
    return found


def _decode(data: bytes) -> tuple[GtidSet, int]:
    (count,) = struct.unpack_from("<Q", data)
    tagged, at = count >> 56 == _TAGGED, 8
    if tagged:
        count = count >> 8 & (1 << 48) - 1
    collected: dict[Source, list[Interval]] = {}
    for _ in range(count):
        if len(data) < at + 16:
            raise IndexError
        server, tag = str(uuid.UUID(bytes=data[at : at + 16])), ""
        at += 16
        if tagged:
            length = data[at] >> 1
            tag = data[at + 1 : at + 1 + length].decode("ascii")
            at += 1 + length
        (intervals,) = struct.unpack_from("<Q", data, at)
        at += 8
        for _ in range(intervals):
            first, after = struct.unpack_from("<QQ", data, at)
            collected.setdefault((server, tag), []).append((first, after - 1))
            at += 16
    return _sorted(collected), at


def _sorted(collected: dict[Source, list[Interval]]) -> GtidSet:
    merged = ((source, tuple(_merged(intervals))) for source, intervals in sorted(collected.items()))
    return GtidSet(tuple((source, intervals) for source, intervals in merged if intervals))


def _merged(intervals: Iterable[Interval]) -> Iterator[Interval]:
    start, end = 0, -1
    for first, last in sorted(intervals):
        if first > end + 1:
            if end >= start:
                yield start, end
            start, end = first, last
        else:
            end = max(end, last)
    if end >= start:
        yield start, end


def _without(intervals: Iterable[Interval], removed: tuple[Interval, ...]) -> Iterator[Interval]:
    for first, last in intervals:
        for cut_first, cut_last in removed:
            if cut_last < first:
                continue
            if cut_first > last:
                break
            if cut_first > first:
                yield first, cut_first - 1
            first = cut_last + 1
            if first > last:
                break
        if first <= last:
            yield first, last


class Executed:
    """The executed set while a stream goes on: adds one transaction at a time and has the text ready.

    Transactions of one server come one after the other nearly always, so the text of the next set is the text of the
    last one with another number in one place.
    """

    def __init__(self, start: GtidSet) -> None:
        self._set = start
        self._text = str(start)
        self._source: Source = ("", "")
        self._first = self._next = self._limit = 0
        self._around = ("", "")

    def __str__(self) -> str:
        return self._text

    def has(self, source: Source, number: int) -> bool:
        """Whether one transaction is in the set."""
        return (source == self._source and self._first <= number < self._next) or self._set.has(source, number)

    def value(self) -> GtidSet:
        """The set as a value."""
        if self._next:
            self._set |= _sorted({self._source: [(self._first, self._next - 1)]})
        return self._set

    def add(self, gtid: Gtid) -> str:
        """Add a transaction and return the text of the set."""
        source, number = gtid.source, gtid.number
        if number == self._next < self._limit and source == self._source:
            self._next += 1
            self._text = f"{self._around[0]}{number}{self._around[1]}"
            return self._text
        self._set = self.value() | _sorted({source: [(number, number)]})
        self._text = str(self._set)
        self._open_run(source, number)
        return self._text

    def _open_run(self, source: Source, number: int) -> None:
        """Cut the text at the last number of the interval that ends with this one, if one does."""
        intervals = self._set.sources
        before, mark, after = "".join(_pieces(intervals, source, number)).partition("\0")
        self._around, self._source = (before, after), source
        self._first, self._next = number, number + 1 if mark else 0
        # Where the interval meets the one after it, the text has to be made anew.
        following = (first for first, _ in dict(intervals)[source] if first > number)
        self._limit = next(following, _LAST + 1) - 1


def _pieces(
    sources: tuple[tuple[Source, tuple[Interval, ...]], ...], marked: Source = ("", ""), number: int = 0
) -> Iterator[str]:
    """Text of a set in pieces; of one source's interval that ends with a number, NUL is written for that."""
    server = ""
    for (name, tag), intervals in sources:
        head = (":" if name == server else f"{',' if server else ''}{name}:") + (f"{tag}:" if tag else "")
        server = name
        for first, last in intervals:
            if last == number and (name, tag) == marked:
                yield f"{head}{first}-\0"
            else:
                yield f"{head}{first}" if first == last else f"{head}{first}-{last}"
            head = ":"
