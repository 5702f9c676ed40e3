"""One table pair while it is verified: which tasks are due, what their answers mean, what the end result is.

The order: count both sides and cut the key space into spans; walk the spans; read every row that differed again;
add up. The run keeps no list of chunks: a span is a range and the number of its next chunk, and a task's answer says
what is left of it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from migverify.db.reader import check_stamp
from migverify.errors import ReadError, ReplacedError
from migverify.model import (
    ChunkChecksum,
    ChunkResult,
    ChunkState,
    KeyRange,
    KeyText,
    LiveState,
    RowDiff,
    TableResult,
)
from migverify.store.results import ResultStore
from migverify.tables.chain import Chain, missing_spans
from migverify.tables.confirm import JITTER
from migverify.tables.outcome import ChunkTotals, conclude, may_miss_moves
from migverify.tables.plan import buckets_of, check_same_plan, plan_digest, read_statements
from migverify.tables.tasks import ONE_CHUNK, PairPlan, Rules, Task, TaskOutcome, with_stamps
from migverify.tables.whole import add_sums, differing

CONFIRM_AT_ONCE = 2000
FAILED_SPAN_TRIES = 2
STAMPS = "stamps"
"""Name of the blob with the stamps of a pair's sides, separated by blanks."""


class PairRun:
    """The state of one pair in one run. Used by one thread, the driver's."""

    def __init__(
        self,
        pair: PairPlan,
        rules: Rules,
        store: ResultStore,
        run_id: str,
        slots: int,
        source_still_since: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.pair = pair
        self.tally = ChunkTotals()
        self.ready: deque[Task] = deque()
        self.failures: list[str] = []
        self.busy = 0
        self.stopped = False
        self._replaced = False
        self._counting = False
        self._asked_behind_condition = False
        self._open_chunk = False
        self._rules = rules
        self._store = store
        self._run = run_id
        self._slots = slots
        self._started = time.monotonic()
        self._sums: dict[int, tuple[tuple[int, ChunkChecksum], ...]] = {}
        self._next_span = 0
        self._tries: dict[int, int] = {}
        self._confirm_after: int | None = None
        self._chain = Chain()
        self._source_still_since = source_still_since
        self._second_read: Rules | None = None
        self._waiting = 0
        self._last_candidate = 0.0

    # -- what is due ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Put the first tasks on the list; a resumed pair goes on where the store says it stopped."""
        if not self.pair.readable:
            return
        recorded = list(self._store.blobs(self._run, self.pair.id, "plan"))
        check_same_plan(self.pair, recorded, self._run)
        if not recorded:
            self._store.add_blob(self._run, self.pair.id, "plan", plan_digest(self.pair).encode("ascii"))
            self._record_sql()
        stamps = list(self._store.blobs(self._run, self.pair.id, STAMPS))
        if stamps:
            self.pair = with_stamps(self.pair, stamps[-1].decode("ascii").split())
        if self.pair.part is not None and self.pair.part.refused:
            self.failures.append(self.pair.part.refused)
            self.stopped = True
            return
        self._begin_reading()

    def _begin_reading(self) -> None:
        sides = range(len(self.pair.sides))
        if self.pair.spread and not self.pair.whole:
            self._count()
        spans = self._store.spans(self._run, self.pair.id)
        for number, key_range in spans:
            self._chain.begin(number, key_range)
        last = self._reuse_chunks()
        if self.pair.whole:
            if not self._whole_is_equal(last):
                self.ready.extend(self._task("sums", side=n, buckets=buckets_of(self.pair)) for n in sides)
        elif spans:
            self._resume(spans)
        elif self.pair.spread:
            integer = self.pair.sides[0].sql.range_key[0].family == "integer"
            kind = "edges" if integer else "marks"
            parts = 4 * self._slots
            self.ready.append(self._task(kind, parts=parts, rows=max(1, self.pair.rows // parts)))
        else:
            self._add_spans([])

    def _count(self) -> None:
        self._counting = True
        self.ready.extend(self._task("count", side=n) for n in range(len(self.pair.sides)))

    def _record_sql(self) -> None:
        for side in self.pair.sides:
            for purpose, text in read_statements(self.pair, side).items():
                self._store.add_sql(self._run, self.pair.id, side.endpoint.name, purpose, text)

    def _reuse_chunks(self) -> ChunkResult | None:
        """Count what an earlier process finished, make due again what failed; returns the last chunk."""
        chunk: ChunkResult | None = None
        for chunk in self._store.chunks(self._run, self.pair.id):
            self._chain.add(chunk)
            if chunk.state is ChunkState.FAILED and not self.pair.whole:
                self.ready.append(self._span_task(chunk.span, chunk.range, chunk.number, ONE_CHUNK))
            else:
                self.tally.add(chunk)
        return chunk

    def _whole_is_equal(self, last: ChunkResult | None) -> bool:
        """Whether an earlier process found the whole table equal; a different one is summed again for its buckets."""
        if last is None or last.state is not ChunkState.EQUAL or last.source is None or last.target is None:
            self.tally, self._chain = ChunkTotals(), Chain()
            return False
        self.tally.count_source, self.tally.count_target = last.source.rows, last.target.rows
        return True

    def _go_on(self, spans: Sequence[tuple[int, KeyRange]]) -> None:
        """Put what is left of the recorded spans on the list."""
        for number, _ in spans:
            self._next_span = max(self._next_span, number + 1)
            rest = self._chain.rest(number)
            if rest is not None:
                self.ready.append(self._span_task(number, rest[1], rest[0]))

    def _resume(self, spans: Sequence[tuple[int, KeyRange]]) -> None:
        self._go_on(spans)
        try:
            missing = missing_spans(spans, nullable=self._null_keys)
        except ValueError as error:
            self.failures.append(f"the recorded spans are no cut of the key: {error}")
            return
        self._record_spans(missing)

    @property
    def _null_keys(self) -> bool:
        return any(column.nullable for column in self.pair.sides[0].sql.range_key)

    def _add_spans(self, marks: Sequence[KeyText]) -> None:
        """Cut the key space at the marks; the edges stay open, and NULL keys get a span of their own."""
        bounds: list[KeyText | None] = [None, *marks, None]
        ranges = [KeyRange(lower, upper) for lower, upper in pairwise(bounds)]
        if self._null_keys:
            ranges.append(KeyRange(nulls=True))
        self._record_spans(ranges)

    def _record_spans(self, ranges: Sequence[KeyRange]) -> None:
        for key_range in ranges:
            self._store.add_span(self._run, self.pair.id, self._next_span, key_range)
            self._chain.begin(self._next_span, key_range)
            self.ready.append(self._span_task(self._next_span, key_range, 0))
            self._next_span += 1

    def _span_task(self, span: int, key_range: KeyRange, number: int, rows: int = 0, *, dense: bool = False) -> Task:
        by_bytes = max(256, 64_000_000 // self.pair.row_bytes)
        rows = rows or min(self._rules.chunk_rows, by_bytes)
        return self._task("span", span=span, range=key_range, number=number, rows=rows, dense=dense)

    def _task(self, kind: str, **fields: object) -> Task:
        return replace(Task(kind, self.pair, self._rules), **fields)  # type: ignore[arg-type]

    # -- what the answers mean -----------------------------------------------------------------------------------

    def take(self, task: Task, outcome: TaskOutcome) -> None:
        """Record an answer and put what follows from it on the list."""
        try:
            self._keep_stamps(outcome.stamps)
        except ReplacedError as error:
            self.failed(task, error)
            return
        self._take(task, outcome)

    def _take(self, task: Task, outcome: TaskOutcome) -> None:
        if outcome.kind == "count":
            self._take_count(task, outcome.count)
        elif outcome.kind == "any":
            if outcome.count:
                self.tally.behind_condition.append(self.pair.sides[task.side].endpoint.name)
        elif outcome.kind == "edges":
            self._add_spans(self._even_marks(outcome.keys, task.parts))
        elif outcome.kind == "marks":
            self._add_spans(outcome.marks)
        elif outcome.kind == "span":
            self._take_span(task, outcome)
        elif outcome.kind == "sums":
            self._take_sums(task, outcome)
        elif outcome.kind == "bucket_rows":
            self._store.add_row_diffs(self._run, outcome.diffs)
            self.tally.candidates += len(outcome.diffs)
            if outcome.next_group is not None:
                self.ready.append(replace(task, number=outcome.next_group))
        elif outcome.kind == "confirm":
            self._store.add_row_diffs(self._run, outcome.diffs)
            for diff in outcome.diffs:
                if diff.shard:
                    self.tally.shared_keys += 1
                    self.tally.first_shared = (
                        self.tally.first_shared or f"{', '.join(map(str, diff.key))} ({diff.shard})"
                    )

    def failed(self, task: Task, error: ReadError) -> None:
        """Record that a task failed; spans get another try, everything else makes the pair INCONCLUSIVE."""
        if isinstance(error, ReplacedError):
            if not self._replaced:
                self.failures.append(error.line)
            self._replaced = self.stopped = True
            self.ready.clear()
            return
        if task.kind == "span" and not self.stopped:
            self._tries[task.span] = self._tries.get(task.span, 0) + 1
            if self._tries[task.span] < FAILED_SPAN_TRIES:
                self.ready.append(task)
                return
        what = f"{task.range}" if task.kind == "span" else task.kind
        self.failures.append(f"{what}: {error.message}")

    def _keep_stamps(self, stamps: Sequence[str]) -> None:
        """Keep the stamps of the first answers, which all others must have; ReplacedError where one has not.

        They are recorded before the first chunk, so that a run that is resumed goes on with these tables or not at all.
        """
        sides = self.pair.sides
        if not stamps:
            return  # an engine of tests has none
        for side, new in zip(sides, stamps, strict=True):
            check_stamp(side, new, side.stamp)
        known = [side.stamp or new for side, new in zip(sides, stamps, strict=True)]
        if known != [side.stamp for side in sides]:
            self.pair = with_stamps(self.pair, known)
            if all(known):
                self._store.add_blob(self._run, self.pair.id, STAMPS, " ".join(known).encode("ascii"))
            self.ready = deque(replace(task, pair=self.pair) for task in self.ready)

    def _take_count(self, task: Task, count: int) -> None:
        if task.side == len(self.pair.sides) - 1:
            self.tally.count_target = count
        else:
            self.tally.count_source = (self.tally.count_source or 0) + count

    @staticmethod
    def _even_marks(keys: Sequence[str], parts: int) -> list[KeyText]:
        """Cut [smallest, largest] into equal steps; any integers, signed or above 2**63."""
        if not keys:
            return []
        low, high = min(map(int, keys)), max(map(int, keys))
        found = {low + (high - low) * n // parts for n in range(1, parts)}
        return [(str(value),) for value in sorted(found) if low <= value < high]

    def _take_span(self, task: Task, outcome: TaskOutcome) -> None:
        self._store.add_chunks(self._run, outcome.chunks, outcome.diffs)
        for chunk in outcome.chunks:
            self.tally.add(chunk)
            self._chain.add(chunk)
            self._open_chunk = chunk.range == KeyRange()
        self.tally.candidates += len(outcome.diffs)
        if outcome.diffs:
            self._waiting += len(outcome.diffs)
            self._last_candidate = time.time()
        limit = self._rules.max_row_diffs
        if limit is not None and self.tally.candidates > limit and not self.stopped:
            self.stopped = True
            self.ready.clear()
            self.failures.append(f"stopped after {self.tally.candidates:,} differing rows (limits.max_row_diffs)")
        if self.stopped:
            return
        number = task.number + len(outcome.chunks)
        if outcome.failures:
            rest = replace(task, range=outcome.rest or task.range, number=number)
            if any(chunk.state is not ChunkState.FAILED for chunk in outcome.chunks):
                self._tries.pop(task.span, None)
            self.failed(rest, ReadError(outcome.failures[0]))
        elif outcome.rest is not None:
            self._tries.pop(task.span, None)
            self.ready.append(self._span_task(task.span, outcome.rest, number, outcome.rows, dense=outcome.dense))
        if outcome.dense:
            self._expect_differences()
        self._confirm_meanwhile()

    def _expect_differences(self) -> None:
        """Let waiting spans begin with row lists: where chunks differ all over the table, a sum is read in vain."""
        self.ready = deque(replace(t, dense=True) if t.kind == "span" else t for t in self.ready)

    def _take_sums(self, task: Task, outcome: TaskOutcome) -> None:
        self._sums[task.side] = outcome.sums
        sides = len(self.pair.sides)
        if len(self._sums) < sides:
            return
        source, target = add_sums([self._sums[n] for n in range(sides - 1)]), self._sums[sides - 1]
        wanted = differing(source, target)
        total = [sum((c for _, c in part), ChunkChecksum(0, 0, 0)) for part in (source, target)]
        self.tally.count_source, self.tally.count_target = total[0].rows, total[1].rows
        state = ChunkState.DIFFERENT if wanted else ChunkState.EQUAL
        chunk = ChunkResult(self.pair.id, 0, 0, KeyRange(), state, total[0], total[1],
                            time.time() - outcome.seconds, outcome.seconds)  # fmt: skip
        self._store.add_span(self._run, self.pair.id, 0, KeyRange())
        self._store.add_chunks(self._run, [chunk], [])
        self._chain.begin(0, KeyRange())
        self._chain.add(chunk)
        self.tally.add(chunk)
        if wanted:
            self.ready.append(self._task("bucket_rows", buckets=task.buckets, wanted=tuple(wanted)))

    # -- the end -------------------------------------------------------------------------------------------------

    def idle(self) -> bool:
        """Whether nothing is due and nothing runs; asks the store for rows that wait for their second read."""
        if self.ready or self.busy:
            return False
        if self._replaced:
            return True
        self._count_if_due()
        self._look_behind_condition()
        return not self.ready and not self._confirm_more()

    def _count_if_due(self) -> None:
        """Count a table that was not counted at the start, unless one chunk without a condition counted it."""
        if not self.pair.readable or self.pair.whole or self._counting or self.stopped:
            return
        if self.tally.chunks == 1 and self._open_chunk and not self.tally.failed and not self._null_keys:
            self.tally.count_source, self.tally.count_target = self.tally.rows_source, self.tally.rows_target
            self._counting = True
        else:
            self._count()

    def _look_behind_condition(self) -> None:
        """Ask whether a table has rows of which its configured condition left none to read: then nothing is proved."""
        pair, read = self.pair, self.tally.rows_source + self.tally.rows_target
        if not pair.filtered or read or self._asked_behind_condition or self.stopped:
            return
        if pair.immutable_in or pair.part is not None:
            return  # what an interval, or rows declared immutable, leave of a table may rightly be nothing
        self._asked_behind_condition = True
        self.ready.extend(self._task("any", side=n) for n, side in enumerate(pair.sides) if side.sql.where)

    def _confirm_meanwhile(self) -> None:
        """Have a few rows read again while spans are still read: their delay is over, and nobody waits for it.

        Many are left for the end, where pages that waited long enough come one after the other.
        """
        rest = self._rules.delay_seconds * (1 + JITTER)
        if 0 < self._waiting <= CONFIRM_AT_ONCE and time.time() - self._last_candidate > rest:
            due = self.ready
            self.ready = deque()
            self._confirm_more()
            self._second_read = None  # the source may be written before the next rows are read
            self.ready.extend(due)

    def _confirm_more(self) -> bool:
        """Put the next rows to be read again on the list; pages, so memory does not grow with the differences."""
        after = self._confirm_after or 0
        for _ in range(2 * self._slots):
            page = self._store.row_diffs(
                self._run, self.pair.id, states=[LiveState.UNCONFIRMED.value], after=after, limit=CONFIRM_AT_ONCE
            )
            if not page:
                break
            after = page[-1][0]
            rules = self._rules_of_second_read()
            self.ready.append(replace(self._task("confirm", diffs=tuple(diff for _, diff in page)), rules=rules))
        self._confirm_after = after
        self._waiting = 0
        return bool(self.ready)

    def _rules_of_second_read(self) -> Rules:
        """Return how rows that differ are read again: once, where the source has not been written since the run began.

        Nothing is on its way then but what the target was behind by before the run. So what must have passed by the
        second read is the time a target may take, counted from the last moment the source can have been written.
        """
        if self._second_read is None:
            self._second_read = rules = self._rules
            since = self._source_still_since() if rules.still_reads > 1 else None
            if since is not None:
                rest = rules.still_reads * rules.delay_seconds
                delay = 0.0 if time.time() - since > rest else rest
                self._second_read = replace(rules, still_reads=1, delay_seconds=delay)
        return self._second_read

    @property
    def seconds(self) -> float:
        """How long the pair has been under way."""
        return time.monotonic() - self._started

    def result(self) -> TableResult:
        """Return the end result; asks the store for the exact numbers of row diffs."""
        counts = self._store.count_row_diffs(self._run, self.pair.id)
        failures = self.failures or self._chain.gaps()
        distinct = self._store.count_row_diffs(self._run, self.pair.id, distinct=True)
        still = may_miss_moves(self.pair, self.tally) and self._source_still_since() is not None
        return conclude(
            self.pair, self.tally, failures, counts, self.seconds, distinct=distinct, live=self._rules.live,
            replaced=self._replaced, source_still=still,
        )  # fmt: skip

    def example(self) -> list[RowDiff]:
        """Return a few confirmed row diffs, for the terminal."""
        page = self._store.row_diffs(self._run, self.pair.id, states=[LiveState.DIVERGED.value], limit=5)
        return [diff for _, diff in page]
