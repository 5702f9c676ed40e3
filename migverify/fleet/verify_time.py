"""Whether a verification can end at all, by its measured speed: a run that is too old begins anew. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from migverify.decision.decide import age_text
from migverify.figures import amount, duration
from migverify.fleet.definition import DailyWindow

_DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class VerifySpeed:
    """What one process did of a verification: ``read`` of its ``tables`` in so many seconds."""

    read: int
    tables: int
    seconds: float

    @property
    def needed(self) -> float | None:
        """How long all tables take; None: not known, as no table was read to its end."""
        return self.seconds * self.tables / self.read if self.read > 0 and self.seconds > 0 else None


def why_it_never_ends(speed: VerifySpeed, window: DailyWindow | None, most_age: float) -> str:
    """Return why a verification is too old before the last window that it needs, and what to do; empty: it is not.

    Tables count alike, of any size. Without a window nothing interrupts it.
    """
    needed = speed.needed
    if needed is None or window is None:
        return ""
    hours = min(window.duration, _DAY_SECONDS)
    windows = math.ceil(needed / hours)
    if (windows - 1) * _DAY_SECONDS <= most_age:
        return ""
    return (
        f"it read {speed.read:,} of {amount(speed.tables, 'table')} in {duration(speed.seconds)}, so all need about"
        f" {duration(needed)}, which is {windows:,} windows of limits.verify ({duration(hours)} a day); a run older"
        f" than proof_max_age ({age_text(most_age)}) begins anew, so it never ends: give limits.verify more hours,"
        " raise `connections`, or raise proof_max_age"
    )
