"""One task on one span: chunks without a gap, and what is left goes back."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.errors import CanceledError, PrivilegeError, ReadError, RetryableReadError, TimeLimitError
from migverify.model import ChunkState, KeyRange
from migverify.tables.diff import PairReader
from migverify.tables.span import run_span
from migverify.tables.tasks import ONE_CHUNK, Task, TaskOutcome
from tests.toy_tables import RULES, Rows, ToyReader, ToySide, differences, make_pair, random_rows, spoil

ROWS: Rows = dict.fromkeys(range(1000), "a")


def walk(source: ToySide, target: ToySide, task: Task | None = None, **change: object) -> TaskOutcome:
    pair = make_pair(1000)
    task = replace(task or Task("span", pair, RULES, rows=16), **change)  # type: ignore[arg-type]
    sides = [ToyReader(s, t, task.rules) for s, t in zip(pair.sides, (source, target), strict=True)]
    return run_span(PairReader(pair, sides[:1], sides[1], task.rules), task)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_answers_of_any_budget_add_up_to_the_range(seed: int) -> None:
    rng = random.Random(seed)
    source = random_rows(rng, rng.randrange(0, 100))
    target = spoil(rng, source, rng.randrange(0, 5))
    bounds = sorted({rng.randrange(-60, 500) for _ in range(2)})
    whole = KeyRange((str(bounds[0]),), (str(bounds[-1]),)) if rng.random() < 0.5 and len(bounds) == 2 else KeyRange()
    rules = replace(RULES, budget_seconds=rng.choice([0.0, 0.001, 10.0]))
    left: KeyRange | None = whole
    edge, number, found = whole.lower, 0, set()
    rows, dense = rng.choice([1, 5, 1000]), rng.random() < 0.2
    while left is not None:
        outcome = walk(ToySide(source), ToySide(target), rules=rules, range=left, number=number, rows=rows, dense=dense)
        for chunk in outcome.chunks:
            assert (chunk.number, chunk.range.lower) == (number, edge)
            number, edge = number + 1, chunk.range.upper
        assert outcome.chunks
        found |= {diff.key for diff in outcome.diffs}
        left, rows, dense = outcome.rest, outcome.rows, outcome.dense
    assert edge == whole.upper
    low, high = (int((b or ("0",))[0] or "") for b in (whole.lower, whole.upper))
    inside = {
        k for k in differences(source, target)
        if whole == KeyRange() or low < int(k[0] or "") <= high
    }  # fmt: skip
    assert found == inside


def test_a_chunk_that_failed_once_is_read_again_as_one_chunk() -> None:
    outcome = walk(ToySide(ROWS), ToySide(ROWS), range=KeyRange(("100",), ("300",)), number=7, rows=ONE_CHUNK)
    (chunk,) = outcome.chunks
    assert (chunk.number, chunk.range, outcome.rest) == (7, KeyRange(("100",), ("300",)), None)


def failing(error: Exception, what: str = "checksum", after: int = 0) -> ToySide:
    seen = [0]

    def before(read: str, _: KeyRange | None) -> None:
        seen[0] += read == what
        if read == what and seen[0] > after:
            raise error

    return ToySide(ROWS, before)


@pytest.mark.parametrize("error", [RetryableReadError("lost"), PrivilegeError("denied"), ReadError("bad")])
def test_finished_chunks_survive_the_failure_of_later_ones(error: Exception) -> None:
    outcome = walk(ToySide(ROWS), failing(error, after=5))
    good = [chunk for chunk in outcome.chunks if chunk.state is ChunkState.EQUAL]
    bad = [chunk for chunk in outcome.chunks if chunk.state is ChunkState.FAILED]
    assert len(good) == 5
    assert 2 <= len(bad) <= 4  # two in a row end the walk; chunks that were requested ahead are recorded too
    assert all(chunk.reason == str(error) for chunk in bad)
    assert outcome.failures == (str(error),)
    assert outcome.rest is not None
    assert outcome.rest.lower == outcome.chunks[-1].range.upper


def test_half_a_comparison_gives_no_row_diff_and_no_checksum() -> None:
    target = {**ROWS, 3: "b"}
    side = ToySide(target)

    def before(read: str, _: KeyRange | None) -> None:
        if read == "list":
            raise RetryableReadError("lost")

    side.before_read = before
    outcome = walk(ToySide(ROWS), side)
    bad = [chunk for chunk in outcome.chunks if chunk.state is ChunkState.FAILED]
    assert bad
    assert not outcome.diffs
    assert {(chunk.source, chunk.target) for chunk in bad} == {(None, None)}


def test_a_canceled_read_ends_the_task_without_an_answer() -> None:
    for what in ("checksum", "walk"):
        with pytest.raises(CanceledError):
            walk(failing(CanceledError("stop"), what, after=3), ToySide(ROWS))


def test_a_range_over_the_time_limit_is_read_in_pieces_and_stays_one_chunk() -> None:
    rows: Rows = dict.fromkeys(range(5000), "a")
    slow = ToySide(rows)

    def before(read: str, key_range: KeyRange | None) -> None:
        if read == "checksum" and key_range is not None and len(slow.within(key_range)) > 700:
            raise TimeLimitError("maximum statement execution time exceeded")

    slow.before_read = before
    rules = replace(RULES, chunk_rows=4000, max_chunk_rows=4000)
    outcome = walk(slow, ToySide(rows), rules=rules, rows=4000)
    assert {chunk.state for chunk in outcome.chunks} == {ChunkState.EQUAL}
    first = outcome.chunks[0]
    assert first.source is not None
    assert first.source.rows == 4000


def test_a_walk_over_the_time_limit_takes_smaller_steps() -> None:
    rows: Rows = dict.fromkeys(range(5000), "a")
    asked: list[int] = []

    class Slow(ToyReader):
        def walk(self, key_range: KeyRange, rows: int) -> tuple[str | None, ...] | None:
            asked.append(rows)
            if rows > 600:
                raise TimeLimitError("slow")
            return super().walk(key_range, rows)

    pair = make_pair(5000)
    task = Task("span", pair, RULES, rows=4000)
    sides = [Slow(s, ToySide(rows), task.rules) for s in pair.sides]
    outcome = run_span(PairReader(pair, sides[:1], sides[1], task.rules), task)
    assert not outcome.failures
    assert asked[0] == 4000
    assert sum(chunk.source.rows for chunk in outcome.chunks if chunk.source) == 5000


def test_sums_that_differ_without_a_row_that_does_are_a_failure() -> None:
    class Lying(ToyReader):
        def checksum(self, key_range: KeyRange, *, wide: bool = False) -> tuple[object, float]:
            found, seconds = super().checksum(key_range, wide=wide)
            return replace(found, exact=found.exact + 1), seconds

    pair = make_pair(10)
    task = Task("span", pair, RULES, rows=16)
    rows: Rows = dict.fromkeys(range(10), "a")
    sides = [ToyReader(pair.sides[0], ToySide(rows), RULES), Lying(pair.sides[1], ToySide(rows), RULES)]
    (chunk,) = run_span(PairReader(pair, sides[:1], sides[1], RULES), task).chunks
    assert chunk.state is ChunkState.FAILED
    assert "no row that does was found" in chunk.reason


def test_rows_that_become_equal_between_the_reads_are_equal() -> None:
    source, target = ToySide(dict(ROWS)), ToySide({**ROWS, 3: "b"})

    def catch_up(read: str, _: KeyRange | None) -> None:
        if read == "list":
            target.rows[3] = "a"

    source.before_read = catch_up
    outcome = walk(source, target)
    assert {chunk.state for chunk in outcome.chunks} == {ChunkState.EQUAL}
    assert not outcome.diffs
