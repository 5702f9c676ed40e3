"""Enters the order into a plan: each call's place in captured order, when it is due, what it waits for.

Sessions lie one after the other on disk, each in its own order; merged by time they are the captured order. Memory
holds one call of each session and the rows that the last calls touched.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from migverify.workload.private import private
from migverify.workload.replay.order import NOBODY, Conflicts, Placed, Unit
from migverify.workload.replay.pace import Timeline
from migverify.workload.replay.spool import FIRST_OF_UNIT, SKIPPED, WAITS, WRITES, Place, Spool, Stored, pack_waits
from migverify.workload.replay.touches import Keys, touches


@dataclass(slots=True)
class Arranged:
    """What arranging found; see ``Plan``. Times are microseconds."""

    span: int = 0
    idle: int = 0
    waits: int = 0
    racy: int = 0
    undefined: int = 0
    first: int | None = None
    last: int | None = None


def arrange(spool: Spool, keys: Keys, *, idle: int | None, window: int, writes: bool) -> Arranged:
    """Enter every call's turn.

    Parameters
    ----------
    idle
        The longest time in microseconds in which nothing runs; None keeps all.
    writes
        May any call write? Reads alone have no conflicts.
    """
    found = Arranged()
    timeline = Timeline(idle)
    conflicts = Conflicts(window) if writes else None
    due = 0
    with open(spool.folder / WAITS, "wb", opener=private) as file:
        turns = _Turns(spool, file)
        for sequence, (index, place, unit) in enumerate(captured_order(spool)):
            due = timeline.at(place.start, place.end)
            found.first = place.start if found.first is None else found.first
            found.last = max(found.last or place.end, place.end)
            waits: tuple[int, ...] = ()
            if conflicts is not None and not place.flags & SKIPPED:
                placed = _placed(conflicts, spool.read(index), place, unit, keys)
                waits = placed.waits
                for call, other in placed.racy:
                    found.racy += spool.set_racy(call, other)
                if placed.after != NOBODY:
                    found.undefined += spool.set_racy(index, placed.after)
            turns.add(_Turn(index, sequence, due, place, waits), unit)
        turns.close()
    found.waits = turns.waits
    found.span, found.idle = due + timeline.skipped, timeline.skipped
    return found


EARLY = 2_000_000
"""Microseconds that a transaction may begin later than its pace says, to wait before it holds locks."""
_LONGEST = 10_000
"""Calls of a transaction that are held; a longer one waits where it must, call by call."""


@dataclass(frozen=True, slots=True)
class _Turn:
    index: int
    sequence: int
    due: int
    place: Place
    waits: tuple[int, ...]


@dataclass(slots=True)
class _Turns:
    """Writes turns, those of a transaction together: what one of its calls waits for, its first call waits for.

    A transaction that waits in its middle holds locks that the one it waits for may need: gaps that InnoDB locks touch
    rows that no conflict of rows shows. Waiting before the first lock cannot go in a circle: whoever is waited for
    ended before, and its own waiting is over when it holds locks. Where that would begin a transaction much too late,
    the wait stays where it is.
    """

    spool: Spool
    file: BinaryIO
    waits: int = 0
    offset: int = 0
    held: dict[int, list[_Turn]] = field(default_factory=dict)

    def add(self, turn: _Turn, unit: Unit) -> None:
        """Take in one call's turn; in captured order."""
        calls = self.held.setdefault(unit.session, [])
        calls.append(turn)
        if turn.index == unit.last_call or len(calls) >= _LONGEST:
            self._write(self.held.pop(unit.session))

    def close(self) -> None:
        """Write what is left."""
        for calls in self.held.values():
            self._write(calls)
        self.held = {}

    def _write(self, calls: Sequence[_Turn]) -> None:
        for turn in self._early(calls):
            self.spool.set_turn(turn.index, turn.sequence, turn.due, turn.waits, self.offset)
            if turn.waits:
                self.waits += 1
                self.offset += self.file.write(pack_waits(turn.waits))

    def _early(self, calls: Sequence[_Turn]) -> list[_Turn]:
        first = next((at for at, turn in enumerate(calls) if not turn.place.flags & SKIPPED), None)
        if first is None or not any(turn.waits for turn in calls[first + 1 :]):
            return list(calls)
        latest = calls[first].place.start + EARLY
        early = set(calls[first].waits)
        told = list(calls)
        for at in range(first + 1, len(calls)):
            now = {one for one in calls[at].waits if self.spool.place(one).end <= latest}
            early |= now
            told[at] = replace(calls[at], waits=tuple(one for one in calls[at].waits if one not in now))
        told[first] = replace(calls[first], waits=tuple(sorted(early)))
        return told


def _placed(conflicts: Conflicts, stored: Stored, place: Place, unit: Unit, keys: Keys) -> Placed:
    call = stored.call
    touched = touches(
        call.sql, stored.meaning, call.state.database, keys, call.state.modes, writes=bool(stored.flags & WRITES)
    )
    return conflicts.place((place.start, place.session, stored.index), unit, touched)


def captured_order(spool: Spool) -> Iterator[tuple[int, Place, Unit]]:
    """Yield number, place and transaction of every call in captured order; memory holds one call of each session."""
    heap: list[tuple[int, int, int]] = []
    units: dict[int, Unit] = {}
    for number, session in enumerate(spool.sessions):
        heapq.heappush(heap, (spool.place(session.first).start, number, session.first))
    while heap:
        _, number, index = heap[0]
        place = spool.place(index)
        stop = spool.sessions[number].first + spool.sessions[number].count
        unit = units.get(number)
        if unit is None or place.flags & FIRST_OF_UNIT:
            unit = units[number] = _unit(spool, index, stop, number)
        yield index, place, unit
        if index + 1 < stop:
            heapq.heapreplace(heap, (spool.place(index + 1).start, number, index + 1))
        else:
            heapq.heappop(heap)
            del units[number]


def _unit(spool: Spool, first: int, stop: int, session: int) -> Unit:
    last = first
    while last + 1 < stop and not spool.place(last + 1).flags & FIRST_OF_UNIT:
        last += 1
    place = spool.place(last)
    return Unit(session, place.end, (place.start, session, last))
