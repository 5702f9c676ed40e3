"""The grid of windows: which there are, which may close, what lies on a border.

Pure. Times are naive datetimes that mean UTC, as in ``Window``; watermarks are Unix times. Windows are half open, of
one width and without a gap, so that every time from the first window on lies in exactly one of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from migverify.errors import ConfigError
from migverify.recon.fields import WindowRule
from migverify.recon.model import Window
from migverify.recon.rule import Rule

EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Closing:
    """Whether a window may close; ``reasons`` say who holds it open, each in one sentence."""

    closed: bool
    reasons: tuple[str, ...] = ()


def unix_time(moment: datetime) -> float:
    """Return the Unix time of a naive UTC datetime."""
    return moment.replace(tzinfo=UTC).timestamp()


def moment_of(seconds: float) -> datetime:
    """Return the naive UTC datetime of a Unix time."""
    return EPOCH + timedelta(seconds=seconds)


def require_grid(grid: WindowRule, where: str) -> None:
    """Refuse a grid whose windows have the same text, which counts whole seconds.

    Raises ConfigError: the width is no positive whole number of seconds, or the start has a fraction of a second or a
    time zone.
    """
    if not (math.isfinite(grid.every) and grid.every >= 1 and grid.every == int(grid.every)):
        raise ConfigError(f"{where}: a window of {grid.every} s", hint="Windows are whole seconds, at least 1.")
    if grid.start is not None and (grid.start.microsecond or grid.start.tzinfo is not None):
        raise ConfigError(
            f"{where}: windows cannot start at {grid.start.isoformat()}",
            hint="Write a UTC time in whole seconds, as 2026-01-31 00:00:00.",
        )


def window_at(grid: WindowRule, moment: datetime) -> Window | None:
    """Return the window that holds a moment; None before the start of the grid. Without a start it has none."""
    origin = grid.start or EPOCH
    if grid.start is not None and moment < origin:
        return None
    width = timedelta(seconds=grid.every)
    # Floor division of timedeltas counts whole microseconds: no float decides on which side of a border a row lies.
    start = origin + width * ((moment - origin) // width)
    return Window(start, start + width)


def shifted(window: Window, steps: int) -> Window:
    """Return the window that many places later, or earlier for a negative number."""
    by = (window.end - window.start) * steps
    return Window(window.start + by, window.end + by)


def windows_from(first: Window) -> Iterator[Window]:
    """Yield a window and all after it, without end."""
    window = first
    while True:
        yield window
        window = shifted(window, 1)


def closing(window: Window, settle: float, marks: Mapping[str, float | None]) -> Closing:
    """Say whether every watermark has passed the end of the window and the settle time.

    ``settle``: Seconds; the measured offset between the clocks is added by the caller. ``marks``: Per source its
    watermark as Unix time, None where it is not known. No source at all closes nothing.
    """
    if not marks:
        return Closing(False, (f"{window}: no source reported up to when its rows are complete",))
    wanted = unix_time(window.end) + settle
    reasons = []
    for name, mark in marks.items():
        if mark is None:
            reasons.append(f"{window}: up to when {name} is complete is not known")
        elif mark < wanted:
            reasons.append(f"{window}: {name} is complete up to {shown(mark)}, {wanted - mark:.1f} s are missing")
    return Closing(not reasons, tuple(reasons))


def due(following: Window, settle: float, marks: Mapping[str, float | None]) -> Iterator[Window]:
    """Yield the windows from ``following`` on that may close now, in their order and without a gap.

    A watermark at infinity (nothing writes there) closes nothing by itself: who has only such ones asks for an end.
    """
    if marks and all(mark is not None and math.isinf(mark) for mark in marks.values()):
        return
    for window in windows_from(following):
        if not closing(window, settle, marks).closed:
            return
        yield window


def is_immutable(grid: WindowRule, window: Window, now: float) -> bool:
    """Whether rows of the window do not change any more, so that it is not read again once it matched."""
    return grid.immutable is not None and now >= unix_time(window.end) + grid.immutable


def reach(window: Window, settle: float) -> int:
    """Return how many windows on either side may hold the counterpart of a row: the settle time, at least one."""
    width = (window.end - window.start).total_seconds()
    return max(1, math.ceil(settle / width))


def around(window: Window, before: int, after: int) -> Window:
    """Return the window widened by whole windows on either side."""
    width = window.end - window.start
    return Window(window.start - width * before, window.end + width * after)


def judged_after(window: Window, settle: float) -> datetime:
    """Return the end of the window that has to be closed before a carried key of this one is judged."""
    return shifted(window, reach(window, settle)).end


def settle_of(rule: Rule) -> float:
    """Return the settle time of a rule in seconds; 0 where no dataset is live."""
    return rule.settle or 0.0


def shown(seconds: float) -> str:
    """Return a Unix time as UTC text."""
    if math.isinf(seconds):
        return "the end of time"
    return f"{moment_of(seconds):%Y-%m-%d %H:%M:%S}"
