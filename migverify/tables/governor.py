"""How many tasks of a run read at once: between 1 and the limit, by how long the servers take. Pure but for the clock.

Additive increase, multiplicative decrease, as TCP has it: after each round of answers one connection more while the
servers are nearly as fast as at their best, half as many as soon as one of them is slower than the allowed factor. At
first the number doubles, so that a run that begins in the night has its connections within a few rounds.

The seconds that a row takes are compared with the best of the same table on the same side: tables differ in the length
of their rows, servers in their speed. How many statements run on a server beside ours is compared with what it was at
the beginning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sized
from dataclasses import dataclass, field
from typing import Any

from migverify.tables.tasks import TaskOutcome

FORGET = 1.005
"""What the best time is multiplied by in each round with one connection: what is slow then is not slow because of us,
and rows that were read fast once must not hold a whole night down."""
OTHERS_ALLOWED = 4
"""So many statements of others may come beside those that ran at the beginning, however few these were."""
CHANGES_KEPT = 200


@dataclass(frozen=True, slots=True)
class ConnectionChange:
    """A change of the number of connections, ``at`` seconds after the run began."""

    at: float
    connections: int
    reason: str


@dataclass(slots=True)
class _Round:
    """The answers since the last decision: seconds and rows of each side, statements that ran on it beside ours."""

    answers: int = 0
    seconds: list[float] = field(default_factory=lambda: [0.0, 0.0])
    rows: list[int] = field(default_factory=lambda: [0, 0])
    others: list[int | None] = field(default_factory=lambda: [None, None])


@dataclass(slots=True)
class ConnectionGovernor:
    """Grows and shrinks the number of tasks that may read at once.

    Parameters
    ----------
    limit
        Tasks at most, as the engine has slots.
    factor
        How many times its best a row may take before fewer tasks read.
    """

    limit: int
    factor: float
    clock: Callable[[], float] = time.monotonic
    allowed: int = 1
    changes: list[ConnectionChange] = field(default_factory=list)
    decreases: int = 0
    most: int = 1
    _doubling: bool = True
    _round: dict[str, _Round] = field(default_factory=dict)
    _best: dict[tuple[str, int], float] = field(default_factory=dict)
    _others: list[int | None] = field(default_factory=lambda: [None, None])
    _begun: float | None = None
    _ignored: int = 0

    def note(self, outcome: TaskOutcome, active: int) -> None:
        """Take in an answer; ``active`` is how many tasks were under way, this one included."""
        self._begun = self.clock() if self._begun is None else self._begun
        sums = [chunk for chunk in outcome.chunks if chunk.source is not None and chunk.target is not None]
        if not sums:
            return
        if self._ignored:
            self._ignored -= 1  # it was read beside as many as before the last decision
            return
        this = self._round.setdefault(outcome.pair, _Round())
        this.answers += 1
        for chunk in sums:
            for side, seconds, rows in (
                (0, chunk.source_seconds, chunk.source.rows if chunk.source else 0),
                (1, chunk.target_seconds, chunk.target.rows if chunk.target else 0),
            ):
                if rows:
                    this.seconds[side] += seconds
                    this.rows[side] += rows
        for side, running in enumerate(outcome.running):
            if running is not None:
                this.others[side] = max(this.others[side] or 0, max(0, running - active))
        if sum(one.answers for one in self._round.values()) >= self.allowed + 1:
            self._decide()

    def _decide(self) -> None:
        reason = self._too_slow() or self._too_busy()
        before = self.allowed
        if reason:
            self._doubling = False
            self.decreases += 1
            self.allowed = max(1, self.allowed // 2)
        else:
            self.allowed = min(self.limit, 2 * self.allowed if self._doubling else self.allowed + 1)
        self._round.clear()
        if self.allowed != before:
            self._ignored = before
            self.most = max(self.most, self.allowed)
            if len(self.changes) < CHANGES_KEPT:
                at = self.clock() - (self._begun or 0.0)
                self.changes.append(ConnectionChange(round(at, 1), self.allowed, reason or "the servers are fast"))

    def _too_slow(self) -> str:
        """Return which side of which table takes longer than it may; learns the best times."""
        slow, forget = "", FORGET if self.allowed == 1 else 1.0
        for pair, read in self._round.items():
            for side, name in enumerate(("source", "target")):
                if not read.rows[side]:
                    continue
                now = read.seconds[side] / read.rows[side]
                best = min(now, forget * self._best.get((pair, side), now))
                self._best[pair, side] = best
                if now > self.factor * best:
                    slow = slow or f"a row of {pair} takes the {name} {now / best:.1f} times as long as at its best"
        return slow

    def _too_busy(self) -> str:
        """Return which server runs more statements of others than at the beginning."""
        for side, name in enumerate(("source", "target")):
            seen = [read.others[side] for read in self._round.values() if read.others[side] is not None]
            if not seen:
                continue
            now = max(number for number in seen if number is not None)
            before = self._others[side]
            if before is None:
                self._others[side] = now
            elif now > max(before + OTHERS_ALLOWED, self.factor * before):
                return f"{now} statements of others run on the {name}, {before} at the beginning"
        return ""

    def facts(self) -> dict[str, Any]:
        """Return what the run keeps of it."""
        read = [name for name, seen in zip(("source", "target"), self._others, strict=True) if seen is not None]
        return {
            "limit": self.limit, "most": self.most, "at the end": self.allowed, "decreases": self.decreases,
            "signals": ["seconds a row", *(f"running statements of the {name}" for name in read)],
            "changes": [f"{change.at:g} s: {change.connections} ({change.reason})" for change in self.changes],
        }  # fmt: skip


def room(governor: ConnectionGovernor | None, slots: int, waiting: int, under_way: Sized) -> bool:
    """Whether one more task may be handed out: a few wait inside the engine only where all of its slots are used."""
    if governor is None or governor.allowed >= slots:
        return len(under_way) < slots + waiting
    return len(under_way) < governor.allowed
