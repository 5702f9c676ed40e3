"""Where a reading of a file begins, what went before in it, and the proof that its pieces leave no gap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from migverify.spark.capture_bytes import Ints
from migverify.spark.capture_logs import Batch
from migverify.spark.capture_rows import NONE
from migverify.workload.capture import DISORDER, CaptureInput, FileCount, unaccounted
from migverify.workload.formats.statements import Carry


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a reading begins, and what the bytes before that place say for those behind it.

    ``last`` is the time of the record before, ``newest`` the newest of all before; -1: none. ``carry`` is None at
    the first byte of a file.
    """

    begin: int = 0
    line: int = 1
    carry: Carry | None = None
    last: int = -1
    newest: int = -1


def check(one: CaptureInput, expected: int, batch: Batch) -> None:
    """Check that the pieces of a block follow each other without a gap.

    Raises
    ------
    ReadError
        they do not.
    """
    columns = batch.rows.columns
    others = [(piece.origin.offset, piece.origin.length) for piece in batch.others]
    offsets = np.concatenate([columns["offset"], np.array([at for at, _ in others], np.int64)])
    lengths = np.concatenate([columns["length"], np.array([length for _, length in others], np.int64)])
    if others:
        order = np.argsort(offsets, kind="stable")
        offsets, lengths = offsets[order], lengths[order]
    ends = np.concatenate([[expected], offsets + lengths])
    wrong = np.flatnonzero(offsets != ends[:-1])
    if len(wrong):
        raise unaccounted(one, int(ends[wrong[0]]), int(offsets[wrong[0]]))
    if ends[-1] != batch.end:
        raise unaccounted(one, int(ends[-1]), batch.end)


class Times:
    """The times of a file's records: the last one serves a record that has none."""

    def __init__(self, count: FileCount, last: int = -1, newest: int = -1) -> None:
        self._count = count
        self.last, self.newest = last, newest

    def take(self, time: Ints) -> int:
        """Fill in missing times of rows in the order of the file; returns how many were missing."""
        known = time != NONE
        missing = len(time) - int(known.sum())
        own = time[known]
        count = self._count
        if len(own):
            first, last = int(own.min()), int(own.max())
            count.first = first if count.first is None else min(count.first, first)
            count.last = last if count.last is None else max(count.last, last)
            newest = np.maximum(np.maximum.accumulate(own), self.newest)
            behind = newest - own
            late = behind > DISORDER
            if late.any():
                count.disordered += int(late.sum())
                count.disorder_s = max(count.disorder_s, float(behind.max()) / 1e6)
            self.newest = int(newest[-1])
        if missing:
            at = np.cumsum(known)
            time[:] = np.concatenate([[self.last], own])[at]
        if len(time):
            self.last = int(time[-1])
        return missing
