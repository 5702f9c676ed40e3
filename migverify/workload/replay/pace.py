"""When each call is due: as captured, faster or slower, at a rate, or as fast as the servers answer.

Open loop: a call's due time comes from the captured clock alone, never from when an earlier answer came. A slow server
makes the replay late, which is kept as lag and is part of every latency; it never makes the load lighter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from migverify.errors import UsageError

_FACTOR = re.compile(r"x(\d+(?:\.\d+)?)\Z")
_RATE = re.compile(r"(\d+(?:\.\d+)?)/s\Z")


class PaceKind(StrEnum):
    """How due times are made."""

    TIMED = "timed"  # by the captured clock, scaled
    RATE = "rate"  # by the captured order, so many a second
    FAST = "fast"  # due when everything it waits for is done


@dataclass(frozen=True, slots=True)
class Pace:
    """A pace. ``factor`` scales the captured clock (2 is twice as fast); ``rate`` is calls per second."""

    kind: PaceKind = PaceKind.TIMED
    factor: float = 1.0
    rate: float = 0.0

    def due(self, captured: int, sequence: int) -> int:
        """Return nanoseconds after the run's beginning at which a call is due.

        Parameters
        ----------
        captured
            Microseconds after the first call's start by the captured clock, idle time taken out.
        sequence
            The call's place among all calls, from 0.
        """
        if self.kind is PaceKind.FAST:
            return 0
        if self.kind is PaceKind.RATE:
            return int(sequence * 1e9 / self.rate)
        return int(captured * 1000 / self.factor)

    @property
    def open_loop(self) -> bool:
        """Whether due times are known before the run begins."""
        return self.kind is not PaceKind.FAST

    def __str__(self) -> str:
        if self.kind is PaceKind.FAST:
            return "fast"
        if self.kind is PaceKind.RATE:
            return f"{self.rate:g}/s"
        return "real" if self.factor == 1.0 else f"x{self.factor:g}"


def parse_pace(text: str) -> Pace:
    """Read ``real``, ``x2``, ``x0.5``, ``3000/s`` or ``fast``.

    Raises UsageError: it is none of these.
    """
    if text == "real":
        return Pace()
    if text == "fast":
        return Pace(PaceKind.FAST)
    if (found := _FACTOR.match(text)) and float(found[1]) > 0:
        return Pace(factor=float(found[1]))
    if (found := _RATE.match(text)) and float(found[1]) > 0:
        return Pace(PaceKind.RATE, rate=float(found[1]))
    raise UsageError(
        f"{text!r} is no pace", hint="Say real, x2 (twice as fast), x0.5, 3000/s (that many calls a second) or fast."
    )


class Timeline:
    """Turns captured times into microseconds after the beginning; times must come in ascending order of ``start``.

    Parameters
    ----------
    idle
        The longest time in microseconds in which nothing runs; longer ones are shortened to it. None keeps them.
    """

    def __init__(self, idle: int | None = None) -> None:
        self._idle = idle
        self._begin: int | None = None
        self._busy_until = 0
        self.skipped = 0
        """Microseconds taken out so far."""

    def at(self, start: int, end: int) -> int:
        """Return when a call that ran from ``start`` to ``end`` is due."""
        if self._begin is None:
            self._begin = self._busy_until = start
        gap = start - self._busy_until
        if self._idle is not None and gap > self._idle:
            self.skipped += gap - self._idle
        self._busy_until = max(self._busy_until, end, start)
        return start - self._begin - self.skipped
