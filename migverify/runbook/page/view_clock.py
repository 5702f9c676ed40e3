"""Clocks as a page shows them: by the moment at which they stand at zero, so that a reader counts on by itself.

A view that holds no ticking number stays the same while nothing happens, and need not be sent again.
"""

from __future__ import annotations

from dataclasses import dataclass

from migverify.runbook.clock import Moment
from migverify.runbook.state import Span, between

__all__ = ["Clock", "down_to", "since", "still", "up_from"]


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock of the page.

    Parameters
    ----------
    runs
        ``up``: shows the time since ``zero``. ``down``: the time left until ``zero``, negative behind it. ``still``:
        shows ``seconds`` for good.
    zero
        Unix seconds, to a tenth; None where it stands still.
    exact
        False: taken from wall clocks, which may have been set meanwhile.
    """

    runs: str
    zero: float | None = None
    seconds: float | None = None
    exact: bool = True

    def at(self, wall: float) -> float:
        """Return the seconds that it shows at a moment, Unix time."""
        if self.zero is None:
            return self.seconds or 0.0
        return wall - self.zero if self.runs == "up" else self.zero - wall


def since(first: Moment, now: Moment) -> Clock:
    """Return a clock that counts up from a moment."""
    return up_from(between(first, now), now)


def up_from(span: Span, now: Moment) -> Clock:
    """Return a clock that shows ``span`` now, and counts up."""
    return Clock("up", round(now.wall - span.seconds, 1), exact=span.exact)


def down_to(wall: float) -> Clock:
    """Return a clock that counts down to a moment, Unix time."""
    return Clock("down", round(wall, 1))


def still(span: Span) -> Clock:
    """Return a clock that stands."""
    return Clock("still", seconds=round(span.seconds, 1), exact=span.exact)
