"""Enters the order into a plan: each call's place in captured order, when it is due, what it waits for.

Sessions lie one after the other in the run file, each in its own order; sorted by time they are the captured order.
Memory holds one transaction of each session and the rows that the last calls touched.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from migverify.workload.replay.order import NOBODY, CallDependencies, Conflicts, Unit
from migverify.workload.replay.pace import Timeline
from migverify.workload.replay.runfile import SKIPPED, WRITES, PlannedCall, RunFile
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


def arrange(run: RunFile, keys: Keys, *, idle: int | None, window: int, writes: bool) -> Arranged:
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
    turns = _Turns(run)
    for sequence, (place, unit) in enumerate(captured_order(run)):
        due = timeline.at(place.start, place.end)
        found.first = place.start if found.first is None else found.first
        found.last = max(found.last or place.end, place.end)
        waits: tuple[int, ...] = ()
        if conflicts is not None and not place.flags & SKIPPED:
            placed = _placed(conflicts, run.read(place.index), unit, keys)
            waits = placed.waits
            for call, other in placed.racy:
                found.racy += _mark_racy(run, call, other)
            if placed.after != NOBODY:
                found.undefined += _mark_racy(run, place.index, placed.after)
        turns.add(_Turn(place, sequence, due, waits), unit)
    turns.close()
    found.waits = turns.waits
    found.span, found.idle = due + timeline.skipped, timeline.skipped
    return found


def _mark_racy(run: RunFile, index: int, session: int) -> int:
    """Enter that the order of a call and one of ``session`` is undefined; 0 where it is already with another."""
    return run.change("UPDATE calls SET racy = ? WHERE id = ? AND racy IS NULL", (session, index))


EARLY = 2_000_000
"""Microseconds that a transaction may begin later than its pace says, to wait before it holds locks."""
_LONGEST = 10_000
"""Calls of a transaction that are held; a longer one waits where it must, call by call."""


@dataclass(frozen=True, slots=True)
class _CallPosition:
    index: int
    session: int
    start: int
    end: int
    flags: int


@dataclass(frozen=True, slots=True)
class _Turn:
    place: _CallPosition
    sequence: int
    due: int
    waits: tuple[int, ...]


@dataclass(slots=True)
class _Turns:
    """Writes turns, those of a transaction together: what one of its calls waits for, its first call waits for.

    A transaction that waits in its middle holds locks that the one it waits for may need: gaps that InnoDB locks touch
    rows that no conflict of rows shows. Waiting before the first lock cannot go in a circle: whoever is waited for
    ended before, and its own waiting is over when it holds locks. Where that would begin a transaction much too late,
    the wait stays where it is.
    """

    run: RunFile
    waits: int = 0
    waiting: dict[int, list[_Turn]] = field(default_factory=dict)

    def add(self, turn: _Turn, unit: Unit) -> None:
        """Take in one call's turn; in captured order."""
        calls = self.waiting.setdefault(unit.session, [])
        calls.append(turn)
        if turn.place.index == unit.last_call or len(calls) >= _LONGEST:
            self._write(self.waiting.pop(unit.session))

    def close(self) -> None:
        """Write what is left."""
        for calls in self.waiting.values():
            self._write(calls)
        self.waiting = {}

    def _write(self, calls: Sequence[_Turn]) -> None:
        turns = self._early(calls)
        self.waits += sum(bool(turn.waits) for turn in turns)
        self.run.db.executemany(
            "UPDATE calls SET sequence = ?, due = ?, waits = ? WHERE id = ?",
            [
                (turn.sequence, turn.due, json.dumps(turn.waits) if turn.waits else None, turn.place.index)
                for turn in turns
            ],
        )

    def _early(self, calls: Sequence[_Turn]) -> list[_Turn]:
        first = next((at for at, turn in enumerate(calls) if not turn.place.flags & SKIPPED), None)
        if first is None or not any(turn.waits for turn in calls[first + 1 :]):
            return list(calls)
        latest = calls[first].place.start + EARLY
        early = set(calls[first].waits)
        turns = list(calls)
        for at in range(first + 1, len(calls)):
            now = {one for one in calls[at].waits if self._end(one) <= latest}
            early |= now
            turns[at] = replace(calls[at], waits=tuple(one for one in calls[at].waits if one not in now))
        turns[first] = replace(calls[first], waits=tuple(sorted(early)))
        return turns

    def _end(self, index: int) -> int:
        return int(self.run.db.execute("SELECT end FROM calls WHERE id = ?", (index,)).fetchone()[0])


def _placed(conflicts: Conflicts, planned: PlannedCall, unit: Unit, keys: Keys) -> CallDependencies:
    call = planned.call
    touched = touches(
        call.sql, planned.meaning, call.state.database, keys, call.state.modes, writes=bool(planned.flags & WRITES)
    )
    return conflicts.place((planned.start, planned.session, planned.index), unit, touched)


def captured_order(run: RunFile) -> Iterator[tuple[_CallPosition, Unit]]:
    """Yield place and transaction of every call in captured order."""
    units: dict[int, tuple[int, Unit]] = {}
    order = "SELECT id, session, start, end, flags, unit FROM calls ORDER BY start, session, id"
    for *columns, number in run.db.execute(order):
        place = _CallPosition(*columns)
        known = units.get(place.session)
        if known is None or known[0] != number:
            known = units[place.session] = number, _unit(run, number, place.session)
        yield place, known[1]


def _unit(run: RunFile, number: int, session: int) -> Unit:
    last = "SELECT id, start, end FROM calls WHERE unit = ? ORDER BY id DESC LIMIT 1"
    index, start, end = run.db.execute(last, (number,)).fetchone()
    return Unit(session, end, (start, session, index))
