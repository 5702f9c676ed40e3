"""One table pair of a quick answer: its counts, or the key ranges of its sample, in the place of all of its rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from migverify.codec import decode, encode
from migverify.errors import ReadError
from migverify.model import KeyRange, KeyText, LiveState, TableResult
from migverify.tables.outcome import conclude_counts
from migverify.tables.pair_run import PairRun
from migverify.tables.quick import Level, PairPart, parse_share, sampled_slices
from migverify.tables.tasks import PairPlan, Task, TaskOutcome

SAMPLE = "sample"
"""Name of the blob with the key ranges of a sample: a run that is resumed reads these, not new ones."""
MORE_READS = 3
"""Reads more than of a row: rows that come and go can show one and the same difference several times."""
MARKS_AT_MOST = 10_000
SMALLEST_PIECE = 100


class CountRun(PairRun):
    """Counts both sides once, and where they differ again, until that is stable or gone."""

    counts: tuple[int, ...] = ()
    state = LiveState.UNCONFIRMED

    def _begin_reading(self) -> None:
        self.ready.append(self._task("counts"))

    def _take(self, task: Task, outcome: TaskOutcome) -> None:
        del task
        self.counts, self.state = outcome.counts, outcome.state
        if self.state is LiveState.UNCONFIRMED:
            rules = self._rules_of_second_read()
            if rules.still_reads > 1:  # the source may be written
                rules = replace(rules, still_reads=rules.still_reads + MORE_READS)
            self.ready.append(self._task("counts", counts=self.counts, rules=rules))

    def idle(self) -> bool:
        """Whether both sides are counted for certain."""
        return not self.ready and not self.busy

    def result(self) -> TableResult:
        """Return the end result."""
        return conclude_counts(self.pair, self.counts, self.state, self.failures, self.seconds, replaced=self._replaced)


class SampleRun(PairRun):
    """Reads a share of the key space: ranges of whole numbers by their value, others by a walk over the index."""

    def _begin_reading(self) -> None:
        recorded = list(self._store.blobs(self._run, self.pair.id, SAMPLE))
        if recorded:
            self._resume_sample(decode(tuple[KeyRange, ...], json.loads(recorded[0])))
        else:
            self.ready.append(self._task("edges", parts=0))

    def _resume_sample(self, ranges: Sequence[KeyRange]) -> None:
        spans = self._store.spans(self._run, self.pair.id)
        for number, key_range in spans:
            self._chain.begin(number, key_range)
        self._reuse_chunks()
        self._go_on(spans)
        self._record_spans(ranges[len(spans) :])

    def _take(self, task: Task, outcome: TaskOutcome) -> None:
        if outcome.kind == "edges":
            self._take_edges(outcome.keys)
        elif outcome.kind == "marks":
            bounds: list[KeyText | None] = [None, *outcome.marks, None]
            self._begin_sample([KeyRange(bounds[first], bounds[last]) for first, last in self._slices(len(bounds) - 1)])
        else:
            super()._take(task, outcome)

    def _take_edges(self, keys: Sequence[str]) -> None:
        """Cut whole numbers by their value, if they are not a few values of many rows each."""
        if not keys:
            self._begin_sample([])
            return
        if self.pair.sides[0].sql.range_key[0].family == "integer":
            low, high = min(map(int, keys)), max(map(int, keys))
            if high - low >= self.pair.rows // 10:
                ranges = self._slices(high - low + 1)
                self._begin_sample([KeyRange((str(low + a - 1),), (str(low + b - 1),)) for a, b in ranges])
                return
        pieces = min(MARKS_AT_MOST, round(64 / self._share) + 1)
        rows = max(SMALLEST_PIECE, self.pair.rows // pieces)
        self.ready.append(self._task("marks", parts=MARKS_AT_MOST * 100, rows=rows))

    @property
    def _part(self) -> PairPart:
        if self.pair.part is None:
            raise ReadError(f"{self.pair.id}: nothing says which part is read")
        return self.pair.part

    @property
    def _share(self) -> float:
        return parse_share(self._part.read.share)

    def _slices(self, size: int) -> list[tuple[int, int]]:
        return list(sampled_slices(size, self._share, self._part.read.seed, self.pair.id))

    def _begin_sample(self, ranges: Sequence[KeyRange]) -> None:
        self._store.add_blob(self._run, self.pair.id, SAMPLE, json.dumps(encode(tuple(ranges))).encode("utf-8"))
        self._record_spans(ranges)

    def result(self) -> TableResult:
        """Return the end result, with the key ranges that were read."""
        result = super().result()
        ranges = [str(key_range) for _, key_range in self._store.spans(self._run, self.pair.id)]
        return replace(result, details={**result.details, "ranges": ranges})

    def _count_if_due(self) -> None:
        """Count nothing: a sample adds up to no table."""


def run_class(pair: PairPlan) -> type[PairRun]:
    """Return what runs a pair."""
    if pair.part is None or pair.part.refused:
        return PairRun
    if pair.part.read.level is Level.COUNTS:
        return CountRun
    return SampleRun if pair.part.read.share else PairRun
