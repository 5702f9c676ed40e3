"""Rows sorted in runs and merged in slices; memory stays bounded.

Runs that do not fit go to files of their own, and a slice of the sorted whole is put together from the next rows of
every run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from migverify.spark.capture_rows import ORDER, ROWS, Key, Names, Rows, batch_of, in_order, joined, rows_in

RUN_BYTES = 64 << 20
BATCH_ROWS = 4096
SLICE_ROWS = 1 << 16
MOST_RUNS = 48


class Runs:
    """Sorts rows, in files where they are many; gives them back in slices of their order.

    Parameters
    ----------
    folder
        Where runs are written; they are removed when read to their end.
    """

    def __init__(self, folder: Path, names: Names, run_bytes: int = RUN_BYTES) -> None:
        self._folder, self._names, self._run_bytes = folder, names, run_bytes
        self._held: list[Rows] = []
        self._bytes = 0
        self._runs: list[_Run] = []
        self._made = 0

    def add(self, rows: Rows) -> None:
        """Take in rows."""
        self._held.append(rows)
        self._bytes += rows.bytes
        if self._bytes >= self._run_bytes:
            self._write([self._sorted()])
            if len(self._runs) >= MOST_RUNS:
                old, self._runs = self._runs, []
                self._write(_merged(old, self._names.ranks()))

    def _sorted(self) -> Rows:
        held, self._held, self._bytes = joined(self._held), [], 0
        return in_order(held, self._names.ranks())

    def _write(self, parts: Iterable[Rows]) -> None:
        run = _Run(self._folder / f"run-{self._made:05d}", self._names)
        self._made += 1
        run.write(parts)
        self._runs.append(run)

    def slices(self) -> Iterator[Rows]:
        """Yield all rows in order; once."""
        if not self._runs:
            if self._held:
                rows = self._sorted()
                for start in range(0, len(rows), SLICE_ROWS):
                    yield rows.part(start, min(len(rows), start + SLICE_ROWS))
            return
        if self._held:
            self._write([self._sorted()])
        runs, self._runs = self._runs, []
        yield from _merged(runs, self._names.ranks())


class _Run:
    """Sorted rows in a file, and the first key of each of its batches."""

    def __init__(self, path: Path, names: Names) -> None:
        self._path, self._names = path, names
        self._firsts: list[dict[str, int]] = []
        self._file: pa.ipc.RecordBatchFileReader | None = None
        self._next = 0
        self.rows: Rows | None = None

    def write(self, parts: Iterable[Rows]) -> None:
        """Write sorted rows, once."""
        with pa.OSFile(str(self._path), "wb") as file, pa.ipc.new_file(file, ROWS) as writer:
            for part in parts:
                for start in range(0, len(part), BATCH_ROWS):
                    rows = part.part(start, min(len(part), start + BATCH_ROWS))
                    self._firsts.append({name: int(rows.columns[name][0]) for name in ORDER})
                    writer.write_batch(batch_of(rows))

    def read(self) -> None:
        """Put the next batch behind the rows that are left."""
        if self._next == len(self._firsts):
            return
        if self._file is None:
            self._file = pa.ipc.open_file(pa.OSFile(str(self._path), "rb"))
        batch = self._file.get_batch(self._next)
        self._next += 1
        rows = rows_in(batch)
        self.rows = rows if self.rows is None or not len(self.rows) else joined([self.rows, rows])

    def bound(self, ranks: NDArray[np.int64]) -> Key | None:
        """Return the key of the first row that is not read yet; None when all are."""
        if self._next == len(self._firsts):
            return None
        first = self._firsts[self._next]
        return (int(ranks[first["server"]]), *(first[name] for name in ORDER[1:]))

    def cut(self, bound: Key | None, ranks: NDArray[np.int64]) -> Rows | None:
        """Return the rows below a key, and keep the others."""
        rows = self.rows
        if rows is None:
            return None
        low, high = 0, len(rows)
        if bound is not None:
            while low < high:
                middle = (low + high) // 2
                if rows.key(middle, ranks) < bound:
                    low = middle + 1
                else:
                    high = middle
        self.rows = rows.part(high, len(rows))
        return rows.part(0, high)

    def close(self) -> None:
        """Remove the file."""
        self._file = None
        self._path.unlink()


def _merged(runs: Sequence[_Run], ranks: NDArray[np.int64]) -> Iterator[Rows]:
    """Yield the rows of sorted runs in their order, slice by slice.

    Below the least of the keys that no run has read yet, everything is at hand.
    """
    ahead = max(1, SLICE_ROWS // BATCH_ROWS // len(runs))
    for run in runs:
        for _ in range(ahead):
            run.read()
    while True:
        bounds = [bound for run in runs if (bound := run.bound(ranks)) is not None]
        least = min(bounds) if bounds else None
        parts = [part for run in runs if (part := run.cut(least, ranks)) is not None and len(part)]
        if parts:
            yield in_order(joined(parts), ranks)
        if least is None:
            break
        for run in runs:
            while run.rows is not None and len(run.rows) < BATCH_ROWS * ahead and run.bound(ranks) is not None:
                run.read()
    for run in runs:
        run.close()
