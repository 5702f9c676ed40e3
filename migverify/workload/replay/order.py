"""The order of calls across sessions, as far as the capture proves one.

Within a session the order is exact. Across sessions two calls have an order only where they touch the same rows, at
least one writes, and one's transaction had ended before the other began: then the later one waits for the end of the
earlier one's transaction. Where the intervals overlap, the capture does not tell who came first: both are racy.

Calls are taken in captured order (``Key``), which agrees with the order within every session. A call only ever waits
for transactions all of whose calls come before it in that order, so that waiting cannot go in a circle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from migverify.workload.replay.touches import EVERYTHING, RowKey, Touch

Key: TypeAlias = tuple[int, int, int]
"""Start, number of the session, number of the call: the captured order."""

WINDOW = 100_000
"""How many calls back rows are remembered; the engine never lets a call run further ahead of those before it."""

NOBODY = -1
"""No session."""

_CROWD = 32
_SWEPT = 4
_MOST_TAINTED = 200_000


@dataclass(frozen=True, slots=True)
class Unit:
    """A transaction, or a statement of its own. ``end`` is when its last call ended, ``last`` that call's key."""

    session: int
    end: int
    last: Key

    @property
    def last_call(self) -> int:
        """Number of the call whose end is the unit's."""
        return self.last[2]

    def before(self, key: Key) -> bool:
        """Tell whether the unit had ended, in time and in captured order, when the call with this key began."""
        return self.end <= key[0] and self.last < key


@dataclass(slots=True)
class _Entry:
    """What one unit did to one thing: from its first touch, whose key this is, on."""

    unit: Unit
    key: Key
    calls: list[int] = field(default_factory=list)


_Found: TypeAlias = tuple[_Entry, bool]
"""A unit's touch, and whether it writes."""


@dataclass(frozen=True, slots=True)
class CallDependencies:
    """What was found for one call.

    ``waits`` are calls to wait for. ``racy`` are calls without an order among them, each with the session of the other:
    this one and those it overlaps with. ``after`` is the session of an earlier race between writes of the same rows:
    what they hold since is undefined; ``NOBODY`` for none.
    """

    waits: tuple[int, ...] = ()
    racy: tuple[tuple[int, int], ...] = ()
    after: int = NOBODY


class _Thing:
    """Who touched one row, one table or everything: the latest unit of each session, writers and readers apart.

    That is enough: a session's units follow each other, so one that has ended before is waited for with the later one,
    and none of a session's earlier units still runs when a later one touches.
    """

    __slots__ = ("limit", "readers", "tainted", "writers")

    def __init__(self) -> None:
        self.writers: dict[int, list[_Entry]] = {}
        self.readers: dict[int, list[_Entry]] = {}
        self.limit = _CROWD
        self.tainted = NOBODY

    def touch(self, unit: Unit, key: Key, *, writes: bool) -> None:
        entries = (self.writers if writes else self.readers).setdefault(unit.session, [])
        if entries and entries[-1].unit is unit:
            entries[-1].calls.append(key[2])
            return
        # the one before stays: it has ended, and the new one may not have when somebody comes to wait
        del entries[:-1]
        entries.append(_Entry(unit, key, [key[2]]))

    def others(self, key: Key, oldest: Key, *, writes: bool) -> Iterator[_Found]:
        """Yield what a touch by the call with this key may conflict with."""
        if len(self.writers) + len(self.readers) > self.limit:
            self.forget(oldest)
            self._thin(key)
        for by_session in (self.writers, self.readers) if writes else (self.writers,):
            for session, entries in by_session.items():
                if session != key[1]:
                    for entry in entries:
                        yield entry, by_session is self.writers

    def _thin(self, key: Key) -> None:
        """Drop whom the last writer that has ended waited for: whoever waits for it waits for them."""
        ended = [one for each in self.writers.values() for one in each if one.unit.before(key)]
        last = max((one.key for one in ended), default=None)
        for by_session in (self.writers, self.readers):
            for session in list(by_session):
                open_calls = [one for one in by_session[session] if last is None or not one.unit.before(last)]
                if open_calls:
                    by_session[session] = open_calls
                else:
                    del by_session[session]
        self.limit = max(_CROWD, 2 * (len(self.writers) + len(self.readers)))

    def forget(self, oldest: Key) -> None:
        """Drop units that had ended before the window began."""
        for by_session in (self.writers, self.readers):
            for session in list(by_session):
                by_session[session] = [one for one in by_session[session] if one.unit.last >= oldest]
                if not by_session[session]:
                    del by_session[session]

    def __bool__(self) -> bool:
        return bool(self.writers or self.readers) or self.tainted != NOBODY


class _Table:
    __slots__ = ("all", "keys", "whole")

    def __init__(self) -> None:
        self.all = _Thing()  # every touch, of any key
        self.whole = _Thing()  # touches of the whole table
        self.keys: dict[RowKey, _Thing] = {}


class Conflicts:
    """Finds waits and races while calls go by in captured order.

    Parameters
    ----------
    window
        How many calls back rows are remembered. Memory holds what that many calls touched, and what transactions that
        are still open did.
    """

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._tables: dict[str, _Table] = {}
        self._all = _Thing()
        self._everything = _Thing()
        self._recent: deque[Key] = deque()
        self._touched: dict[tuple[str, RowKey], None] = {}  # in the order in which they are looked at
        self._oldest: Key = (0, -1, -1)
        self._tainted = 0

    def place(self, key: Key, unit: Unit, touched: Sequence[Touch]) -> CallDependencies:
        """Return what a call waits for and races with, and remember what it touches. Keys must ascend."""
        _, session, call = key
        waits: dict[int, Unit] = {}
        racy: dict[tuple[int, int], None] = {}
        after = NOBODY
        for touch in touched:
            after = after if after != NOBODY else self._taint(touch)
            for entry, wrote in self._conflicting(touch, key):
                other = entry.unit
                if other.before(key):
                    best = waits.get(other.session)
                    if best is None or best.last < other.last:
                        waits[other.session] = other
                else:
                    racy[call, other.session] = None
                    racy.update(dict.fromkeys((one, session) for one in entry.calls))
                    if wrote and touch.writes:
                        self._set_taint(touch, entry, other.session)
        for touch in touched:
            self._remember(touch, unit, key)
        self._recent.append(key)
        if len(self._recent) > self._window:
            self._forget(self._recent.popleft())
        return CallDependencies(tuple(sorted(one.last_call for one in waits.values())), tuple(racy), after)

    def _taint(self, touch: Touch) -> int:
        """Return the session of an earlier race between writes of these rows."""
        if self._everything.tainted != NOBODY or touch.table == EVERYTHING:
            return self._everything.tainted if self._everything.tainted != NOBODY else self._all.tainted
        table = self._tables.get(touch.table)
        if table is None:
            return NOBODY
        if touch.key is None:
            return table.all.tainted
        thing = table.keys.get(touch.key)
        return table.whole.tainted if thing is None or thing.tainted == NOBODY else thing.tainted

    def _set_taint(self, touch: Touch, entry: _Entry, session: int) -> None:
        self._all.tainted = session
        table = self._tables.get(touch.table)
        if table is None:  # one of them may have written anything
            self._everything.tainted = session
            return
        table.all.tainted = session
        thing = None if touch.key is None else table.keys.get(touch.key)
        there = [] if thing is None else thing.writers.get(session, [])
        if thing is None or self._tainted > _MOST_TAINTED or not any(one is entry for one in there):
            table.whole.tainted = session
        else:
            self._tainted += thing.tainted == NOBODY
            thing.tainted = session

    def _conflicting(self, touch: Touch, key: Key) -> Iterator[_Found]:
        if touch.table == EVERYTHING:
            yield from self._all.others(key, self._oldest, writes=touch.writes)
            return
        yield from self._everything.others(key, self._oldest, writes=touch.writes)
        table = self._tables.get(touch.table)
        if table is None:
            return
        if touch.key is None:
            yield from table.all.others(key, self._oldest, writes=touch.writes)
            return
        yield from table.whole.others(key, self._oldest, writes=touch.writes)
        thing = table.keys.get(touch.key)
        if thing is not None:
            yield from thing.others(key, self._oldest, writes=touch.writes)

    def _remember(self, touch: Touch, unit: Unit, key: Key) -> None:
        things = [self._all]
        if touch.table == EVERYTHING:
            things.append(self._everything)
        else:
            table = self._tables.setdefault(touch.table, _Table())
            things.append(table.all)
            things.append(table.whole if touch.key is None else table.keys.setdefault(touch.key, _Thing()))
            if touch.key is not None:
                self._touched[touch.table, touch.key] = None
        for thing in things:
            thing.touch(unit, key, writes=touch.writes)

    def _forget(self, oldest: Key) -> None:
        """Drop rows of units that ended before the window: the engine has finished those before it runs on."""
        self._oldest = oldest
        for _ in range(_SWEPT):
            name = next(iter(self._touched), None)
            if name is None:
                return
            del self._touched[name]
            things = self._tables[name[0]].keys
            things[name[1]].forget(oldest)
            if things[name[1]]:
                self._touched[name] = None  # again when all others were looked at
            else:
                del things[name[1]]


def components(edges: Sequence[tuple[int, int]], sizes: Sequence[int], most: int) -> list[int]:
    """Put sessions that conflict into one group, as long as a group stays within ``most`` calls.

    Parameters
    ----------
    edges
        Pairs of sessions, the most important first.
    sizes
        Calls of each session.

    Returns
    -------
    list of int
        The group's number of each session: the smallest session in it.
    """
    parent = list(range(len(sizes)))
    weight = list(sizes)

    def root(one: int) -> int:
        while parent[one] != one:
            parent[one] = parent[parent[one]]
            one = parent[one]
        return one

    for a, b in edges:
        first, second = sorted((root(a), root(b)))
        if first != second and weight[first] + weight[second] <= most:
            parent[second] = first
            weight[first] += weight[second]
    return [root(one) for one in range(len(sizes))]
