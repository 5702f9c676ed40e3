"""One replay at a time plays a run: workers that outlive their parent by a moment are waited for, a second is refused.

Locks are the operating system's: they end with the process that holds them, however it ends.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from migverify.errors import PlanError

LOCK = "lock"
PATIENCE = 15.0
"""Seconds that workers of a killed replay get to end: longer than calls under way may take after a stop."""


class RunLock:
    """The lock of a run, held alone until ``share``."""

    def __init__(self, number: int) -> None:
        self._number = number

    def share(self) -> None:
        """Let workers in; others stay out."""
        fcntl.flock(self._number, fcntl.LOCK_SH)


@contextmanager
def alone(folder: Path, patience: float = PATIENCE) -> Iterator[RunLock]:
    """Hold a run's lock; nobody else plays it.

    Raises
    ------
    PlanError
        another replay, or a worker of one that was killed, still plays it.
    """
    with (folder / LOCK).open("a") as file:
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise PlanError(
                        f"{folder} is being played by another replay", hint="Wait for it, or stop it with Ctrl-C."
                    ) from None
                time.sleep(0.05)
        yield RunLock(file.fileno())


@contextmanager
def among_workers(folder: Path) -> Iterator[None]:
    """Hold a run's lock beside the other workers."""
    with (folder / LOCK).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield
