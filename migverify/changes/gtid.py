"""GTID sets: which transactions were executed, as values.

MySQL: ``uuid:1-5:7`` and, since 8.3, with tags: ``uuid:1-5:billing:1-9``. MariaDB: ``domain-server-sequence``, where a
position holds the last transaction of each domain. Format on the wire from MySQL's ``Gtid_set::encode`` (untagged
and tagged) and MariaDB's ``Gtid_list_log_event``, as the servers write them.
"""

from __future__ import annotations

import re
import struct
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from migverify.errors import ChangeError

Interval = tuple[int, int]
"""First and last number, both included."""
Source = tuple[str, str]
"""UUID in lower case with dashes, and tag (empty for none)."""

_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_INTERVAL = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?")
_MARIADB = re.compile(r"([0-9]{1,10})-([0-9]{1,10})-([0-9]{1,20})")
_LAST = (1 << 63) - 2
_TAGGED = 1


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

    def __contains__(self, gtid: str) -> bool:
        source, number = split_gtid(gtid)
        return self.has(source, number)

    def has(self, source: Source, number: int) -> bool:
        """Whether one transaction is in the set."""
        intervals = self._map.get(source, ())
        at = bisect_right(intervals, (number, _LAST + 1)) - 1
        return at >= 0 and number <= intervals[at][1]

    def add(self, gtid: str) -> GtidSet:
        """Return the set with one transaction more."""
        source, number = split_gtid(gtid)
        return self | _sorted({source: [(number, number)]})

    def __or__(self, other: GtidSet) -> GtidSet:
        return _sorted({
            source: [*self._map.get(source, ()), *other._map.get(source, ())]
            for source in {*self._map, *other._map}
        })  # fmt: skip

    def __sub__(self, other: GtidSet) -> GtidSet:
        return _sorted({
            source: list(_without(intervals, other._map.get(source, ()))) for source, intervals in self.sources
        })  # fmt: skip

    def missing(self, wanted: GtidSet) -> GtidSet:
        """Return what ``wanted`` has and this set lacks."""
        return wanted - self

    def __le__(self, other: GtidSet) -> bool:
        return not self - other

    def __ge__(self, other: GtidSet) -> bool:
        return other <= self

    def __str__(self) -> str:
        """The server's own text, without line breaks."""
        return "".join(_pieces(self))

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


@dataclass(frozen=True)
class MariadbPosition:
    """The last GTID of each MariaDB domain: everything before it in the domain was executed."""

    domains: tuple[tuple[int, int, int], ...] = ()
    """``(domain, server, sequence)``, sorted by domain."""

    @cached_property
    def _map(self) -> dict[int, tuple[int, int]]:
        return {domain: (server, sequence) for domain, server, sequence in self.domains}

    def __bool__(self) -> bool:
        return bool(self.domains)

    def __contains__(self, gtid: str) -> bool:
        domain, _, sequence = split_mariadb(gtid)
        return domain in self._map and sequence <= self._map[domain][1]

    def add(self, gtid: str) -> MariadbPosition:
        """Return the position with one transaction more."""
        return self | MariadbPosition((split_mariadb(gtid),))

    def __or__(self, other: MariadbPosition) -> MariadbPosition:
        best = dict(self._map)
        for domain, server, sequence in other.domains:
            if domain not in best or best[domain][1] < sequence:
                best[domain] = (server, sequence)
        return MariadbPosition(tuple((domain, *best[domain]) for domain in sorted(best)))

    def missing(self, wanted: MariadbPosition) -> MariadbPosition:
        """Return the domains of ``wanted`` that are further than here."""
        return MariadbPosition(
            tuple(d for d in wanted.domains if d[0] not in self._map or self._map[d[0]][1] < d[2])
        )  # fmt: skip

    def __le__(self, other: MariadbPosition) -> bool:
        return not other.missing(self)

    def __ge__(self, other: MariadbPosition) -> bool:
        return other <= self

    def __str__(self) -> str:
        return ",".join("-".join(map(str, domain)) for domain in self.domains)


def parse_gtids(text: str) -> GtidSet | MariadbPosition:
    """Read a set in either server's text; empty text is the empty MySQL set.

    Raises
    ------
    ChangeError
        not a GTID set.
    """
    parts = [part.strip() for part in text.split(",")]
    if parts and _MARIADB.fullmatch(parts[0]):
        found = MariadbPosition()
        for part in parts:
            found = found.add(part)
        return found
    collected: dict[Source, list[Interval]] = {}
    for part in parts:
        if part:
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
        hint="MySQL: 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-23 (tags after a colon); MariaDB: 0-1-100.",
    )


def split_gtid(gtid: str) -> tuple[Source, int]:
    """Cut one MySQL GTID, ``uuid:5`` or ``uuid:tag:5``, into source and number."""
    found = parse_gtids(gtid)
    if not isinstance(found, GtidSet) or len(found) != 1:
        raise ChangeError(f"not one GTID: {gtid[:200]!r}")
    source, intervals = found.sources[0]
    return source, intervals[0][0]


def split_mariadb(gtid: str) -> tuple[int, int, int]:
    """Cut one MariaDB GTID into domain, server and sequence number."""
    found = _MARIADB.fullmatch(gtid.strip())
    if found is None:
        raise ChangeError(f"not a MariaDB GTID: {gtid[:200]!r}")
    return int(found[1]), int(found[2]), int(found[3])


def decode_gtids(data: bytes) -> GtidSet:
    """Read a set from the body of a PREVIOUS_GTIDS event.

    Raises
    ------
    ChangeError
        the bytes do not fit.
    """
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


def decode_gtid_list(data: bytes) -> MariadbPosition:
    """Read the last GTID of each domain from the body of MariaDB's GTID_LIST event.

    The list holds one entry per domain and server; of a domain the last entry is the newest.
    """
    (head,) = struct.unpack_from("<I", data) if len(data) >= 4 else (0,)
    count = head & 0x0FFFFFFF
    if len(data) < 4 + 16 * count:
        raise ChangeError("a GTID list in the binlog is cut or damaged.")
    last = {}
    for at in range(4, 4 + 16 * count, 16):
        domain, server, sequence = struct.unpack_from("<IIQ", data, at)
        last[domain] = (server, sequence)
    return MariadbPosition(tuple((domain, *last[domain]) for domain in sorted(last)))


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
    """The executed set while a stream goes on: adds one transaction at a time and keeps the text at hand.

    Transactions of one server come one after the other nearly always, so the text of the next set is the text of the
    last one with another number in one place.
    """

    def __init__(self, start: GtidSet | MariadbPosition) -> None:
        self._set = start
        self._text = str(start)
        self._source: Source = ("", "")
        self._next = 0
        self._limit = 0
        self._around = ("", "")
        self._run: Interval | None = None

    def __str__(self) -> str:
        return self._text

    def value(self) -> GtidSet | MariadbPosition:
        """The set as a value."""
        if self._run is not None and isinstance(self._set, GtidSet):
            self._set |= _sorted({self._source: [self._run]})
            self._run = None
        return self._set

    def add(self, source: Source, number: int) -> str:
        """Add a MySQL transaction; returns the text of the set."""
        if number == self._next and source == self._source and self._run is not None:
            self._run = (self._run[0], number)
            # At the limit the interval meets the one after it: then the text has to be made anew.
            self._next = number + 1 if number + 1 < self._limit else 0
            self._text = f"{self._around[0]}{number}{self._around[1]}"
            return self._text
        known = self.value()
        if not isinstance(known, GtidSet):
            if known:
                raise ChangeError("a MySQL GTID in a stream that began with a MariaDB position.")
            known = GtidSet()
        self._set = known | _sorted({source: [(number, number)]})
        self._text = str(self._set)
        self._source, self._run = source, (number, number)
        self._next = self._split_text(self._set, source, number)
        return self._text

    def _split_text(self, now: GtidSet, source: Source, number: int) -> int:
        """Cut the text where the last number of an interval stands; returns the number that may replace it, or 0."""
        intervals = dict(now.sources)[source]
        at = next(i for i, (first, last) in enumerate(intervals) if first <= number <= last)
        first, last = intervals[at]
        self._limit = intervals[at + 1][0] - 1 if at + 1 < len(intervals) else _LAST
        if last != number or number + 1 >= self._limit:
            return 0
        before, after = _around(now, source, at)
        self._around = (f"{before}{first}-", after)
        return number + 1

    def add_mariadb(self, domain: int, server: int, sequence: int) -> str:
        """Add a MariaDB transaction; returns the text of the position."""
        known = self._set
        if isinstance(known, GtidSet):
            if known:
                raise ChangeError("a MariaDB GTID in a stream that began with a MySQL set.")
            known = MariadbPosition()
        if len(known.domains) == 1 and known.domains[0][0] == domain and known.domains[0][2] < sequence:
            self._set = MariadbPosition(((domain, server, sequence),))
        else:
            self._set = known | MariadbPosition(((domain, server, sequence),))
        self._text = str(self._set)
        return self._text


def _pieces(of: GtidSet) -> Iterator[str]:
    """Text of a set, one piece an interval with what stands before it."""
    server = ""
    for (name, tag), intervals in of.sources:
        head = (":" if name == server else f"{',' if server else ''}{name}:") + (f"{tag}:" if tag else "")
        server = name
        for first, last in intervals:
            yield f"{head}{first}" if first == last else f"{head}{first}-{last}"
            head = ":"


def _around(of: GtidSet, source: Source, at: int) -> tuple[str, str]:
    """Text before and after the ``at``-th interval of a source."""
    pieces, place = list(_pieces(of)), at
    for name, intervals in of.sources:
        if name == source:
            break
        place += len(intervals)
    mine = pieces[place]
    first, last = dict(of.sources)[source][at]
    shown = str(first) if first == last else f"{first}-{last}"
    return "".join(pieces[:place]) + mine.removesuffix(shown), "".join(pieces[place + 1 :])
