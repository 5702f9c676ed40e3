"""The one loop of every watch: check what is due, record it, report the status, and end for one of four reasons."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol, TypeVar

STATUS_SHARE = 20
"""Making a status may take this small a part of the time: counting a ledger of millions takes a while."""


class Ending(StrEnum):
    """Why a watch ends."""

    DONE = "done"  # everything it was to decide is decided
    FAILED = "failed"  # nothing more can come
    TIMED_OUT = "timed out"
    STOPPED = "stopped"


Work = TypeVar("Work")
Status = TypeVar("Status")
StatusOut = TypeVar("StatusOut", covariant=True)


class Watchable(Protocol[Work, StatusOut]):
    """What can be watched. All methods are called by the thread of the loop."""

    def due(self, began: float) -> float:
        """Return the seconds until there is something to check again; ``began`` is when this turn began."""
        ...

    def check(self, stop: Callable[[], bool]) -> Work:
        """Read what is due, or begin to, and return what was read; gives up early when ``stop`` says so."""
        ...

    def record(self, work: Work) -> None:
        """Keep what was read, so that a process that is killed afterwards neither loses nor repeats it."""
        ...

    def ending(self) -> Ending | None:
        """Return DONE or FAILED when no further turn can change the verdict; None while one can."""
        ...

    def status(self, ending: Ending | None = None) -> StatusOut:
        """Return what is known now; with ``ending`` it is the last status."""
        ...


def watch(
    watched: Watchable[Work, Status],
    *,
    stop: Callable[[], bool] = lambda: False,
    time_limit: float | None = None,
    on_status: Callable[[Status], None] = lambda _: None,
    status_seconds: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], object] = time.sleep,
) -> Status:
    """Watch until it ends, and return the last status, which ``on_status`` does not receive.

    Parameters
    ----------
    time_limit
        Seconds; None for no limit.
    status_seconds
        The least time between two statuses; 0 reports one after each turn.
    wait
        Waits so many seconds, or less where it is woken (an Event's ``wait``).
    """
    deadline = None if time_limit is None else clock() + time_limit
    report_at = clock()
    while True:
        began = clock()
        watched.record(watched.check(stop))
        ending = watched.ending()
        if ending is None and stop():
            ending = Ending.STOPPED
        if ending is None and deadline is not None and clock() >= deadline:
            ending = Ending.TIMED_OUT
        if ending is not None:
            return watched.status(ending)
        if clock() >= report_at:
            reporting = clock()
            on_status(watched.status())
            if status_seconds:
                report_at = clock() + max(status_seconds, STATUS_SHARE * (clock() - reporting))
        wait(max(0.0, watched.due(began)))
        if stop():
            return watched.status(Ending.STOPPED)
