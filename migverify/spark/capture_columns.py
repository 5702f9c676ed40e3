"""The road of columns: logs become Parquet without an object for each statement.

Blocks of a file -> rows (``capture_logs``) -> sorted runs (``capture_rows``) -> sessions (``capture_follow``) ->
Parquet. What comes out is what the road of objects in ``migverify.workload.capture`` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from migverify.spark.capture_follow import Follower
from migverify.spark.capture_mask import masks, write_sessions
from migverify.spark.capture_rows import COMMAND_CODES, Names
from migverify.spark.capture_runs import RUN_BYTES, Runs
from migverify.spark.capture_sources import open_source
from migverify.spark.capture_times import Entry, Times, check
from migverify.workload.capture import (
    CaptureInput,
    CaptureOptions,
    CaptureSummary,
    FileCount,
    add_up,
    compressed,
    reject,
    tells_connects,
    unaccounted,
)
from migverify.workload.formats.audit import Audit
from migverify.workload.formats.general import GeneralLog
from migverify.workload.formats.slow import SlowLog
from migverify.workload.lines import BLOCK
from migverify.workload.model import Command, Noise

CONNECT = COMMAND_CODES[Command.CONNECT]


class Columns:
    """Reads files as columns; ``progress`` is told bytes read and rows written as they become more."""

    def __init__(self, progress: Callable[[int, int], None] | None = None, block: int = BLOCK) -> None:
        self._block = block
        self._progress = progress or (lambda _read, _written: None)

    def takes(self, inputs: Sequence[CaptureInput], options: CaptureOptions) -> bool:
        """Slow and general logs and audit CSV are read."""
        return masks(options) and all(isinstance(one.format, SlowLog | GeneralLog | Audit) for one in inputs)

    def run(
        self,
        inputs: Sequence[CaptureInput],
        folder: Path,
        options: CaptureOptions,
        summary: CaptureSummary,
        rejects: IO[str],
    ) -> None:
        """Write the statements of files, which stand in the order of their times, and the summary's figures."""
        names = Names()
        runs = Runs(folder, names, options.run_bytes or RUN_BYTES)
        connects: set[str] = set()
        for rank, one in enumerate(inputs):
            count = FileCount(str(one.path), one.format.name, one.server)
            summary.files.append(count)
            self._read(one, rank, runs, names, count, summary, rejects, connects)
        telling = tells_connects(inputs)
        follower = Follower(names, lambda server: telling or server in connects, folder, options.text_mask)
        write_sessions(
            runs, follower, folder, masked=options.mask is not None,
            progress=lambda written: self._progress(summary.bytes, written),
        )  # fmt: skip
        follower.counts.add_to(summary)

    def _read(
        self,
        one: CaptureInput,
        rank: int,
        runs: Runs,
        names: Names,
        count: FileCount,
        summary: CaptureSummary,
        rejects: IO[str],
        connects: set[str],
    ) -> None:
        size = one.path.stat().st_size
        times = Times(count)
        expected = 0
        with open_source(one, rank, names, Entry(), None, self._block) as source:
            for batch in source.batches():
                check(one, expected, batch)
                expected = batch.end
                columns = batch.rows.columns
                for piece in batch.others:
                    if isinstance(piece, Noise):
                        count.noise_bytes += piece.origin.length
                        summary.noise[piece.what] += 1
                    else:
                        reject(piece, count, summary, rejects)
                if not len(batch.rows):
                    continue
                summary.untimed += times.take(columns["time"])
                count.records += len(batch.rows)
                here = columns["command"] == CONNECT
                if here.any():
                    connects.update(names.texts[place] for place in np.unique(columns["server"][here]))
                runs.add(batch.rows)
                self._progress(summary.bytes + expected, 0)
        if expected < size and not compressed(one.path):
            raise unaccounted(one, expected, size)
        count.bytes = expected
        add_up(summary, count)
