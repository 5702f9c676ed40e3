"""Moments, and the clocks that tell them."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

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
        self._boot = _boot_id()
        self._clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> Moment:
        """Return this moment."""
        return Moment(time.time(), time.clock_gettime_ns(self._clock), self._boot)


_FIRST_NAMESPACE = "time:[4026531834]"
"""The name of the time namespace that a machine boots with (PROC_TIME_INIT_INO of Linux)."""


def _boot_id() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # A container may have a monotonic clock of its own, days ahead: its moments are compared by the wall clock.
        namespace = Path("/proc/self/ns/time")
        name = str(namespace.readlink()) if namespace.is_symlink() else _FIRST_NAMESPACE
        return boot if name == _FIRST_NAMESPACE else f"{boot} {name}"
    except OSError:
        # Without a name of the boot no two processes share a monotonic clock: durations fall back to the wall clock.
        return f"process-{os.getpid()}-{time.time_ns()}"


system_clock: Clock = SystemClock()
