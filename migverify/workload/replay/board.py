"""What the workers of one replay tell each other and their parent while they run: a small file, mapped by all.

One byte a call says that it is over, so that a call of one process can wait for one of another's; and each worker has a
row of counters of its own, which nobody else writes.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass, fields
from pathlib import Path

from migverify.workload.private import private_folder

DONE = "done.bin"
ROWS = "board.bin"
_ROW = 32  # counters of one worker, with room to spare
_NUMBER = struct.Struct("<q")


@dataclass(slots=True)
class Counters:
    """Counters of one worker, or their sum. Times are microseconds.

    ``low`` is the sequence of its earliest call that is not over. ``lag`` is how late the worst call is that is due and
    has not begun; ``lag_most`` the worst so far; ``lag_sum`` over all calls begun. ``forced`` counts calls that no
    longer waited for another session, ``held`` those that waited for a connection.
    """

    low: int = 0
    begun: int = 0
    ended: int = 0
    different: int = 0
    undecided: int = 0
    unjudged: int = 0
    reads: int = 0
    writes: int = 0
    flying: int = 0
    lag: int = 0
    lag_most: int = 0
    lag_sum: int = 0
    waited: int = 0
    forced: int = 0
    held: int = 0
    connections: int = 0
    source_asked: int = 0
    target_asked: int = 0
    finished: int = 0


_NAMES = tuple(field.name for field in fields(Counters))
_WORST = frozenset({"lag", "lag_most"})


class Board:
    """The mapped files; ``worker`` is whose counters ``publish`` writes."""

    def __init__(self, folder: Path, worker: int = 0) -> None:
        self._worker = worker
        self._done = _mapped(folder / DONE)
        self._rows = _mapped(folder / ROWS)
        self.workers = len(self._rows) // (_ROW * _NUMBER.size) - 1

    @staticmethod
    def make(folder: Path, calls: int, workers: int) -> None:
        """Write empty files for so many calls and workers."""
        private_folder(folder, exist_ok=True)
        (folder / DONE).write_bytes(bytes(max(calls, 1)))
        (folder / ROWS).write_bytes(bytes(_ROW * _NUMBER.size * (max(workers, 1) + 1)))

    def over(self, index: int) -> bool:
        """Tell whether a call is over, in whichever process."""
        return self._done[index] != 0

    def set_over(self, index: int) -> None:
        """Say that a call is over."""
        self._done[index] = 1

    def publish(self, counters: Counters) -> None:
        """Show this worker's counters."""
        at = self._worker * _ROW * _NUMBER.size
        for number, name in enumerate(_NAMES):
            _NUMBER.pack_into(self._rows, at + number * _NUMBER.size, getattr(counters, name))

    def read(self, worker: int) -> Counters:
        """Return one worker's counters."""
        at = worker * _ROW * _NUMBER.size
        return Counters(*struct.unpack_from(f"<{len(_NAMES)}q", self._rows, at))

    def ask_stop(self, reason: str) -> None:
        """Tell all workers to stop; the first reason stays."""
        if not self.stop_reason():
            at = self.workers * _ROW * _NUMBER.size
            text = reason.encode()[: _ROW * _NUMBER.size - 1]
            self._rows[at : at + len(text)] = text

    def stop_reason(self) -> str:
        """Return why the run stops, empty while it does not."""
        at = self.workers * _ROW * _NUMBER.size
        if not self._rows[at]:
            return ""
        return bytes(self._rows[at:]).rstrip(b"\0").decode("utf-8", "replace")

    def low(self) -> int:
        """Return the sequence of the earliest call that is not over, among all workers."""
        rows = [self.read(worker) for worker in range(self.workers)]
        return min((row.low for row in rows if not row.finished), default=1 << 62)

    def total(self) -> Counters:
        """Return the sums over all workers; of lags the worst."""
        found = Counters()
        for row in (self.read(worker) for worker in range(self.workers)):
            for name in _NAMES:
                ours, theirs = getattr(found, name), getattr(row, name)
                setattr(found, name, max(ours, theirs) if name in _WORST else ours + theirs)
        return found

    def close(self) -> None:
        """Unmap."""
        self._done.close()
        self._rows.close()


def _mapped(path: Path) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)
