"""A generator of snowflake ids for the lab, whose clock can be shifted from outside while it runs.

41 bits of milliseconds since 2020, 10 bits of worker, 12 bits of sequence. The careful one never goes back: when the
clock does, it goes on from its last millisecond; when a millisecond is used up, it borrows the next one. The naive one
trusts the clock, and makes ids twice as soon as that is set back.
"""

from __future__ import annotations

import time
from pathlib import Path

from migverify.errors import LabError

EPOCH_MS = 1_577_836_800_000
WORKER_BITS, SEQUENCE_BITS = 10, 12


class Snowflake:
    """Makes ids of one worker; not shared by threads.

    Parameters
    ----------
    clock
        A file that holds by how many milliseconds this process's clock is wrong; None, or no such file: by none.
    careful
        False: trust the clock, and start each millisecond at sequence 0.
    """

    def __init__(self, worker: int, clock: Path | None = None, *, careful: bool = True) -> None:
        if not 0 <= worker < 1 << WORKER_BITS:
            raise LabError(f"worker {worker}", hint=f"0 to {(1 << WORKER_BITS) - 1} are possible.")
        self._worker, self._clock, self._careful = worker, clock, careful
        self._last, self._sequence = -1, -1

    def next(self) -> int:
        """Return the next id."""
        now = self._now()
        if self._careful:
            now = max(now, self._last)
        if now != self._last:
            self._last, self._sequence = now, 0
        elif self._sequence + 1 < 1 << SEQUENCE_BITS:
            self._sequence += 1
        else:
            self._last, self._sequence = now + 1, 0
        return (self._last - EPOCH_MS) << (WORKER_BITS + SEQUENCE_BITS) | self._worker << SEQUENCE_BITS | self._sequence

    def _now(self) -> int:
        shift = 0
        if self._clock is not None:
            try:
                shift = int(self._clock.read_text())
            except FileNotFoundError:
                shift = 0
        return time.time_ns() // 1_000_000 + shift


def moment_of(id_: int) -> float:
    """Return the Unix time in seconds that an id carries."""
    return ((id_ >> (WORKER_BITS + SEQUENCE_BITS)) + EPOCH_MS) / 1000
