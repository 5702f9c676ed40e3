"""Moments, and the clocks that tell them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from migverify.store.process import boot_id

__all__ = ["Clock", "Moment", "SystemClock", "system_clock"]


@dataclass(frozen=True, slots=True)
class Moment:
    """A point of time: Unix seconds, and nanoseconds of the monotonic clock of one boot of one machine."""

    wall: float
    mono: int
    boot: str


class Clock(Protocol):
    """What tells the time."""

    def now(self) -> Moment:
        """Return this moment."""
        ...


class SystemClock:
    """The machine's clocks. The monotonic one goes on while the machine sleeps."""

    def __init__(self) -> None:
        self._boot = boot_id()
        self._clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> Moment:
        """Return this moment."""
        return Moment(time.time(), time.clock_gettime_ns(self._clock), self._boot)


system_clock: Clock = SystemClock()
