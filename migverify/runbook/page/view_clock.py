"""Clocks as a page shows them: by the moment at which they stand at zero, so that a reader counts on by itself.

A view that holds no ticking number stays the same while nothing happens, and need not be sent again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from migverify.runbook.clock import Moment
from migverify.runbook.state import ElapsedTime, between

__all__ = ["ClockView", "clock_words", "down_to", "since", "still", "up_from", "utc_words"]


@dataclass(frozen=True, slots=True)
class ClockView:
    """A clock of the page.

    Parameters
    ----------
    runs
        ``up``: shows the time since ``zero``. ``down``: the time left until ``zero``, negative behind it. ``still``:
        shows ``seconds`` for good.
    zero
        Unix seconds, to a tenth; None where it does not run.
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


def since(first: Moment, now: Moment) -> ClockView:
    """Return a clock that counts up from a moment."""
    return up_from(between(first, now), now)


def up_from(span: ElapsedTime, now: Moment) -> ClockView:
    """Return a clock that shows ``span`` now, and counts up."""
    return ClockView("up", round(now.wall - span.seconds, 1), exact=span.exact)


def down_to(wall: float) -> ClockView:
    """Return a clock that counts down to a moment, Unix time."""
    return ClockView("down", round(wall, 1))


def still(span: ElapsedTime) -> ClockView:
    """Return a clock that does not run."""
    return ClockView("still", seconds=round(span.seconds, 1), exact=span.exact)


def clock_words(seconds: float | None) -> str:
    """Spell seconds as ``1:02:03``, or ``2:03`` below an hour; None as a dash. Tenths are cut."""
    if seconds is None:
        return "-"
    whole = int(abs(seconds) + 1e-6)
    hours, minutes = whole // 3600, whole // 60 % 60
    text = f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
    return f"-{text}" if seconds < 0 and whole else text


def utc_words(wall: float | None, *, date: bool = True) -> str:
    """Spell Unix seconds as UTC; None as a dash."""
    if wall is None:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S UTC" if date else "%H:%M:%S", time.gmtime(wall))
