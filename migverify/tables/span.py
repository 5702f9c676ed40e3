"""Walk a span of the key space chunk by chunk, both sides at the same time.

The walker side finds the next boundary, both sides sum the chunk, and while the slower side still sums one chunk the
other begins the next: at most ``AHEAD`` chunks are under way. A span ends when its budget is spent; what is left goes
back to the driver as the rest of the range, so that no worker and no driver ever holds a list of chunks.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from migverify.db.reader import Reader
from migverify.errors import (
    CanceledError,
    EndpointError,
    IncompleteReadError,
    LoginError,
    ReadError,
    ReplacedError,
    TimeLimitError,
)
from migverify.model import ChunkChecksum, ChunkResult, ChunkState, KeyRange, KeyText, RowDiff
from migverify.tables.diff import PairReader, checksum_of, compare_lists, list_diffs, locate, same_checksum
from migverify.tables.tasks import ONE_CHUNK, Task, TaskOutcome

AHEAD = 3
DENSE_AFTER = 2
SMALLEST_CHUNK = 256
PIECES = 8
DENSE_ROWS = 4096
"""How many rows a row list begins with where chunks differ: every row may be a row diff, and they travel together."""
MOST_DIFFS = 4096
"""An answer that holds so many row diffs is sent before the budget is spent."""
FAILED_IN_A_ROW = 2
LOCATE_TRIES = 3
_END = (CanceledError, LoginError, ReplacedError)
"""What no other chunk of the table can come through either."""

Answer = tuple[ChunkChecksum, float]


@dataclass(slots=True)
class _UnderWay:
    """One chunk whose reads are submitted; ``lists`` when rows are read at once instead of sums."""

    range: KeyRange
    started: float
    sums: list[Future[Answer]]
    lists: list[Future[tuple[list[bytes], float]]]


def run_span(reader: PairReader, task: Task) -> TaskOutcome:
    """Verify chunks of ``task.range`` until it ends or the budget is spent.

    Returns
    -------
    Outcome
        The finished chunks in order without a gap from ``task.number``, their unconfirmed row diffs, and the rest
        of the range or None.
    """
    return _SpanWalk(reader, task).run()


class _SpanWalk:
    """The state of one walk; lives as long as the task."""

    def __init__(self, reader: PairReader, task: Task) -> None:
        self.reader = reader
        self.task = task
        self.rows = max(task.rows, 1)
        self.position = task.range.lower
        self.ended = False
        self.failure = ""
        self.failed = 0
        self.under_way: deque[_UnderWay] = deque()
        self.chunks: list[ChunkResult] = []
        self.diffs: list[RowDiff] = []
        self.different = DENSE_AFTER if task.dense else 0
        self.list_rows = DENSE_ROWS

    def run(self) -> TaskOutcome:
        deadline = time.monotonic() + self.task.rules.budget_seconds
        while True:
            while not self._stopped() and len(self.under_way) < AHEAD and time.monotonic() < deadline:
                self._ask()
            if not self.under_way:
                if self._stopped() or self.chunks:
                    break
                self._ask()  # a budget of nothing still makes progress
                continue
            self._finish(self.under_way.popleft())
            if len(self.diffs) >= MOST_DIFFS and self.under_way:
                self._go_back(self.under_way[0].range.lower)
                break
        rest = None if self.ended else KeyRange(self.position, self.task.range.upper)
        return TaskOutcome(
            "span", self.task.pair.id, self.task.span, tuple(self.chunks), tuple(self.diffs), rest, self.rows,
            self.different >= DENSE_AFTER, failures=(self.failure,) if self.failure else (),
        )  # fmt: skip

    def _go_back(self, bound: KeyText | None) -> None:
        """Forget the chunks that begin at ``bound``: the rest of the span is read again from there."""
        for chunk in self.under_way:
            for asked in chunk.sums:
                asked.cancel()
            for listed in chunk.lists:
                listed.cancel()
        self.under_way.clear()
        self.position = bound
        self.ended = False

    def _stopped(self) -> bool:
        return self.ended or bool(self.failure)

    def _ask(self) -> None:
        """Find the next boundary and ask both sides for the chunk up to it."""
        try:
            chunk = self._next_range()
        except _END:
            raise
        except (ReadError, EndpointError) as error:
            if isinstance(error, TimeLimitError) and self.rows > SMALLEST_CHUNK:
                self.rows = max(SMALLEST_CHUNK, self.rows // PIECES)
                return
            # What is finished must reach the store; the driver decides whether the rest is tried again.
            self.failure = error.message
            return
        started = time.time()
        under_way = _UnderWay(chunk, started, [], [])
        for side in self.reader.readers:
            if self.different >= DENSE_AFTER:
                under_way.lists.append(side.later(partial(_timed_list, side, chunk)))
            else:
                under_way.sums.append(side.later(partial(side.checksum, chunk)))
        self.under_way.append(under_way)

    def _next_range(self) -> KeyRange:
        whole = KeyRange(self.position, self.task.range.upper, self.task.range.nulls)
        if whole.nulls or self.task.rows >= ONE_CHUNK or not self.reader.target.sql.range_key:
            self.ended = True
            return whole
        upper = None
        # The last piece of the walker may be a mountain on the other side, so the others are asked as well.
        for side in (self.reader.walker, *(r for r in self.reader.readers if r is not self.reader.walker)):
            most = min(self.rows, self.list_rows) if self.different >= DENSE_AFTER else self.rows
            rows = most if side is self.reader.walker else 2 * most
            upper = side.later(partial(side.boundary, whole, rows)).result()
            if upper is not None:
                break
        if upper is None or upper in (self.position, whole.upper):
            self.ended = True
            return whole
        chunk, self.position = KeyRange(self.position, upper), upper
        return chunk

    def _finish(self, chunk: _UnderWay) -> None:
        """Wait for the answers of the oldest chunk, compare, and keep the result."""
        state, reason = ChunkState.EQUAL, ""
        diffs: list[RowDiff] = []
        source: ChunkChecksum | None = None
        target: ChunkChecksum | None = None
        seconds = [0.0, 0.0]
        try:
            if self._too_slow(chunk):
                source, target, diffs = self._examine(chunk, *self._sum_in_pieces(chunk.range))
            elif _cut_off(chunk):
                source, target, diffs = self._examine(chunk, *self.reader.checksums(chunk.range))
                self.rows = max(SMALLEST_CHUNK, self.rows // 2)
            elif chunk.lists:
                *ours, theirs = [f.result() for f in chunk.lists]
                source_list, target_list = [e for part, _ in ours for e in part], theirs[0]
                lane = self.reader.pair.value_lane
                source, target = (checksum_of(x, value_lane=lane) for x in (source_list, target_list))
                seconds = [max(s for _, s in ours), theirs[1]]
                if source.hashed == source.rows and target.hashed == target.rows:
                    diffs = list(list_diffs(self.reader, compare_lists(source_list, target_list)))
                    self._adapt_lists(len(diffs))
                else:
                    source, target, diffs = self._examine(chunk, source, target)
            else:
                *parts, theirs_sum = [f.result() for f in chunk.sums]
                source, target = sum((p for p, _ in parts), ChunkChecksum(0, 0, 0)), theirs_sum[0]
                seconds = [max(s for _, s in parts), theirs_sum[1]]
                source, target, diffs = self._examine(chunk, source, target)
        except _END:
            raise
        except (ReadError, EndpointError) as error:
            # What was learned before the failure does not count: half a comparison is none.
            state, reason, source, target, diffs = ChunkState.FAILED, error.message, None, None, []
        if diffs:
            state = ChunkState.DIFFERENT
        self.different = self.different + 1 if diffs else 0
        self._adapt(max(seconds))
        number = self.task.number + len(self.chunks)
        self.chunks.append(ChunkResult(
            self.task.pair.id, self.task.span, number, chunk.range, state, source, target, chunk.started,
            time.time() - chunk.started, seconds[0], seconds[1], reason=reason,
        ))  # fmt: skip
        self.diffs += diffs
        self.failed = self.failed + 1 if state is ChunkState.FAILED else 0
        if self.failed >= FAILED_IN_A_ROW and not self._stopped():
            # A server that is gone would fail every chunk of the table, each after all its retries.
            self.failure = reason

    def _sum_in_pieces(self, key_range: KeyRange) -> tuple[ChunkChecksum, ChunkChecksum]:
        """Sum a range that hit the time limit in smaller and smaller pieces; raises when the smallest hit it too."""
        self.rows = min(self.rows, self.task.rules.chunk_rows)
        while True:
            self.rows = max(SMALLEST_CHUNK, self.rows // PIECES)
            try:
                return self.reader.checksums_in_pieces(key_range, self.rows)
            except TimeLimitError:
                if self.rows == SMALLEST_CHUNK:
                    raise

    def _too_slow(self, chunk: _UnderWay) -> bool:
        """Whether a query hit its time limit on a range that can be cut smaller."""
        failures = [f.exception() for f in chunk.sums] + [f.exception() for f in chunk.lists]
        limited = any(isinstance(failure, TimeLimitError) for failure in failures)
        return limited and not chunk.range.nulls and bool(self.reader.target.sql.range_key)

    def _examine(
        self, chunk: _UnderWay, source: ChunkChecksum, target: ChunkChecksum
    ) -> tuple[ChunkChecksum, ChunkChecksum, list[RowDiff]]:
        """Return the checksums that count, and the row diffs when they differ.

        A chunk in which many rows differ shrinks to its first rows.
        """
        key_range = chunk.range
        wide = source.hashed < source.rows or target.hashed < target.rows
        if wide:
            source, target = self.reader.checksums(key_range, wide=True)
            if source.hashed < source.rows or target.hashed < target.rows:
                raise ReadError(f"{self.task.pair.id} {key_range}: a row is too long even to hash its columns")
        if same_checksum(source, target):
            return source, target, []
        if not wide and max(source.rows, target.rows) > DENSE_ROWS:
            dense = self._first_rows(chunk)
            if dense is not None:
                return dense
        for _ in range(LOCATE_TRIES):
            diffs = list(locate(self.reader, key_range, (source.rows, target.rows), wide=wide))
            if diffs or (source.rows, source.exact) == (target.rows, target.exact):
                return source, target, diffs
            # The rows became equal between the reads, or the locating missed something: the sums must say which.
            source, target = self.reader.checksums(key_range, wide=wide)
            if same_checksum(source, target):
                return source, target, []
        raise ReadError(f"{self.task.pair.id} {key_range}: the checksums differ, and no row that does was found")

    def _first_rows(self, chunk: _UnderWay) -> tuple[ChunkChecksum, ChunkChecksum, list[RowDiff]] | None:
        """Cut a chunk to its first rows when many of them differ, so that no answer holds a large chunk of row diffs.

        What follows goes back to the span, and is read in small row lists from now on. None: the chunk is not dense,
        or cannot be cut.
        """
        whole = chunk.range
        if whole.nulls or self.task.rows >= ONE_CHUNK or not self.reader.target.sql.range_key:
            return None
        walker = self.reader.walker
        bound = walker.later(partial(walker.boundary, whole, DENSE_ROWS)).result()
        if bound is None or bound in (whole.lower, whole.upper):
            return None
        piece = KeyRange(whole.lower, bound)
        lists = self.reader.lists(piece)
        diffs = list(list_diffs(self.reader, compare_lists(*lists)))
        sums = [checksum_of(part, value_lane=self.reader.pair.value_lane) for part in lists]
        if len(diffs) < DENSE_ROWS // 8 or any(found.hashed < found.rows for found in sums):
            return None
        chunk.range = piece
        self._go_back(bound)
        self.different = DENSE_AFTER
        return sums[0], sums[1], diffs

    def _adapt_lists(self, diffs: int) -> None:
        """Let row lists grow while few of their rows differ; what is read as a list need not be summed before."""
        few = diffs < DENSE_ROWS // 8
        self.list_rows = min(self.task.rules.leaf_rows, 2 * self.list_rows) if few else DENSE_ROWS

    def _adapt(self, seconds: float) -> None:
        """Aim at ``chunk_seconds``: shrink fast when a server is slow, grow gently when it is not."""
        rules = self.task.rules
        if seconds > 5 * rules.chunk_seconds:
            self.rows = max(SMALLEST_CHUNK, self.rows // 5)
        elif seconds > rules.chunk_seconds:
            self.rows = max(SMALLEST_CHUNK, int(self.rows * rules.chunk_seconds / seconds))
        elif 0 < seconds < rules.chunk_seconds / 2:
            self.rows = min(rules.max_chunk_rows, int(self.rows * 1.5) + 1)


def _cut_off(chunk: _UnderWay) -> bool:
    """Whether a server cut a row list: the chunk is then summed and cut like any other."""
    return any(isinstance(f.exception(), IncompleteReadError) for f in chunk.lists)


def _timed_list(side: Reader, key_range: KeyRange) -> tuple[list[bytes], float]:
    started = time.monotonic()
    rows = side.row_list(key_range)
    return rows, time.monotonic() - started
