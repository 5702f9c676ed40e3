"""Positions: their order, their text, the numbers of files, and where to stop.

A position is written ``binlog.000003:1234`` (file and byte offset) or as a GTID set. A changefeed of TiDB has neither:
its position is a commit timestamp (TSO), written ``tso:430000000000000000``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import ClassVar

from migverify.changes.events import FIRST_OFFSET
from migverify.changes.gtid import GtidSet, parse_gtids
from migverify.changes.model import Begin, Commit, Idle, Item, Position
from migverify.errors import ChangeError, UsageError

_FILE = re.compile(r"([^\s:/]+\.[0-9]{1,20}):([0-9]{1,20})")
_NUMBERED = re.compile(r"([^/]+)\.([0-9]+)")
_TSO = "tso"
_TIMESTAMP = re.compile(r"(?:tso:|tidb-binlog:)?([0-9]{15,20})")


def tso_position(tso: int) -> Position:
    """Return the place behind the transactions that TiDB committed up to a timestamp."""
    return Position(_TSO, tso)


def shown_timestamp(tso: int) -> str:
    """Return a timestamp of TiDB as people read it: ``tso:430000000000000000 (2021-12-31 23:59:59.123 UTC)``."""
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(tso_time(tso)))
    return f"{tso_position(tso)} ({moment}.{(tso >> 18) % 1000:03d} UTC)"


def tso_time(tso: int) -> float:
    """Return Unix time of a timestamp of TiDB: milliseconds, above 18 bits of a counter."""
    return (tso >> 18) / 1000


def time_tso(time: float) -> int:
    """Return the first timestamp of TiDB at a Unix time; of seconds, how many timestamps they are."""
    return int(time * 1000) << 18


class TimestampOrdinals:
    """What sources share that are followed by timestamps of TiDB: the timestamp is the ordinal of a position."""

    __slots__ = ()
    hides_cascades: ClassVar[bool] = False
    """TiDB writes what a foreign key changes as rows of their own, and a changefeed carries them."""

    def ordinal(self, position: Position) -> int:
        """Return the timestamp."""
        return position.offset

    def shown(self, ordinal: int, like: Position | None) -> str:
        """Return ``tso:`` and the timestamp, and its time."""
        del like
        return shown_timestamp(ordinal)


@lru_cache(maxsize=1024)
def file_number(name: str) -> int | None:
    """Return the number at the end of a binlog's name, None where it has none; it grows past six digits."""
    found = _NUMBERED.fullmatch(name)
    return None if found is None else int(found[2])


def next_name(name: str) -> str:
    """Name of the binlog file after this one: ``binlog.000009`` -> ``binlog.000010``; empty if it has no number."""
    found = _NUMBERED.fullmatch(name)
    return "" if found is None else f"{found[1]}.{int(found[2]) + 1:0{len(found[2])}d}"


def parse_position(text: str) -> Position:
    """Read ``file:offset``, a GTID set, or a timestamp of TiDB, ``tso:430000000000000000``.

    Raises
    ------
    UsageError
        none of them.
    """
    stamp = _TIMESTAMP.fullmatch(text.strip())
    if stamp:
        return tso_position(int(stamp[1]))
    found = _FILE.fullmatch(text.strip())
    if found:
        return Position(found[1], max(int(found[2]), FIRST_OFFSET))
    try:
        gtids = parse_gtids(text)
    except ChangeError:
        gtids = GtidSet()
    if not gtids:
        raise UsageError(
            f"not a position: {text[:200]!r}",
            hint="Write binlog.000003:1234, a GTID set such as uuid:1-5, or tso:430000000000000000 for TiDB.",
        )
    return Position("", 0, str(gtids))


def shown(position: Position | None) -> str:
    """Return a position for people: file and offset, else its set; empty for None."""
    if position is None:
        return ""
    return str(position) if position.file else position.gtids


def before(one: Position, other: Position) -> bool:
    """Whether a place in the files, or of a timestamp, lies before another one of the same source."""
    return _order(one) < _order(other)


def _order(place: Position) -> tuple[str, int, int]:
    return place.file.rpartition(".")[0], file_number(place.file) or 0, place.offset


def until_position(
    stream: Iterator[Item], until: Position | None, since: Position | None = None, *, may_end: bool = False
) -> Iterator[Item]:
    """Pass on items up to a position: transactions that start before it, or those of its GTID set.

    Parameters
    ----------
    stream
        Whole transactions (see ``buffer.whole``).
    until
        None passes on everything.
    since
        Where the stream starts; what it covers of ``until`` needs no reading.
    may_end
        The stream ends by itself where ``until`` is or later: a server that leaves out what is known need not name it.
    """
    if until is None:
        yield from stream
        return
    yield from _by_place(stream, until, may_end=may_end) if until.file else _by_set(stream, until, since)


def _by_place(stream: Iterator[Item], until: Position, *, may_end: bool) -> Iterator[Item]:
    at: Position | None = None
    for item in stream:
        kind = type(item)
        if kind is Begin and not before(item.start, until):  # type: ignore[union-attr]
            return
        yield item
        if kind is Commit or kind is Idle:
            at = item.end if isinstance(item, Commit) else item.at  # type: ignore[union-attr]
            if not before(at, until):
                return
    if not may_end:
        raise _not_reached(until, at)


def _by_set(stream: Iterator[Item], until: Position, since: Position | None) -> Iterator[Item]:
    wanted = parse_gtids(until.gtids)
    at: Position | None = since if since is not None and since.gtids else None
    if at is not None and _covers(at.gtids, wanted):
        return
    checked = ""
    for item in stream:
        if isinstance(item, Begin) and not checked:
            # What was executed before the first transaction counts, and its start states it.
            checked = item.start.gtids or " "
            if item.start.gtids and _covers(item.start.gtids, wanted):
                return
        yield item
        if isinstance(item, Commit):
            at = item.end
            # Only a transaction of the set can complete it.
            if item.gtid and not parse_gtids(item.gtid) - wanted and _covers(at.gtids, wanted):
                return
        elif isinstance(item, Idle):
            at = item.at
            if _covers(at.gtids, wanted):
                return
    raise _not_reached(until, at)


def _covers(text: str, wanted: GtidSet) -> bool:
    return bool(text) and not wanted - parse_gtids(text)


def _not_reached(until: Position, at: Position | None) -> ChangeError:
    return ChangeError(
        f"the changes end at {at if at is not None else 'their start'}, before {shown(until)} was reached.",
        hint="Give more binlog files, or an earlier end.",
    )
