"""How many reads may be asked: a rate, and what the target can take by its latency and by its running threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

TAIL = 0.95
LONGEST_PAUSE = 60.0


@dataclass(slots=True)
class RateLimit:
    """At most so many reads a second, on the average of a second; None is no limit."""

    per_second: float | None
    clock: Callable[[], float] = time.monotonic
    _left: float = 0.0
    _at: float | None = None

    def allowance(self, most: int) -> int:
        """Return how many reads may be asked now, ``most`` of them."""
        if self.per_second is None:
            return most
        now = self.clock()
        since = 1.0 if self._at is None else now - self._at
        self._left = min(max(self.per_second, 1.0), self._left + since * self.per_second)
        self._at = now
        return min(most, int(self._left))

    def spend(self, reads: int) -> None:
        """Note how many were asked."""
        self._left -= reads if self.per_second is not None else 0


@dataclass(slots=True)
class TargetGovernor:
    """Asks the target less where it becomes slow: half the lanes, then a pause; one lane more while it is fast.

    Parameters
    ----------
    lanes
        Connections at most.
    seconds
        What 95 % of the target's answers must not exceed; 0 is no limit.
    """

    lanes: int
    seconds: float
    clock: Callable[[], float] = time.monotonic
    allowed: int = field(init=False)
    _pause: float = 1.0
    _until: float = 0.0

    def __post_init__(self) -> None:
        """Begin with all lanes."""
        self.allowed = self.lanes

    @property
    def is_paused(self) -> bool:
        """Whether nothing may be asked now."""
        return self.clock() < self._until

    @property
    def is_holding(self) -> bool:
        """Whether fewer reads are asked than could be."""
        return self.is_paused or self.allowed < self.lanes

    def hold(self) -> None:
        """Pause; each pause that follows another is twice as long."""
        self._until = self.clock() + self._pause
        self._pause = min(LONGEST_PAUSE, 2 * self._pause)

    def note(self, services: Sequence[int]) -> None:
        """Take in how long the target took for the reads of a turn, microseconds."""
        if not services or not self.seconds:
            return
        tail = sorted(services)[min(len(services) - 1, int(TAIL * len(services)))]
        if tail <= self.seconds * 1e6:
            self.allowed, self._pause = min(self.lanes, self.allowed + 1), 1.0
        elif self.allowed > 1:
            self.allowed //= 2
        else:
            self.hold()
