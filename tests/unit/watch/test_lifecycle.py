"""The life of a finding: what a row of reads may conclude, whatever the reads are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.model import LiveState
from migverify.watch.lifecycle import Criteria, Finding, Read, advance, read_once

READS = st.lists(
    st.builds(Read, st.integers(0, 2), st.booleans() | st.just(value=False), st.booleans() | st.just(value=True)),
    max_size=12,
)
CRITERIA = st.builds(Criteria, st.integers(0, 4), st.none() | st.integers(1, 8))
SETTLE = 5


def after(reads: Sequence[Read], criteria: Criteria, begin: Finding | None = None) -> Finding:
    finding = begin or Finding()
    for read in reads:
        finding = advance(finding, read, criteria)
    return finding


@given(READS, CRITERIA)
def test_nothing_is_diverged_but_what_stood_still_after_the_target_had_applied_past(
    reads: list[Read], criteria: Criteria
) -> None:
    finding = after(reads, criteria)
    last = reads[-1:]
    same: list[Read] = []  # the reads that showed what the last one did, since one side moved or both were equal
    for read in reversed(reads):
        if read.equal or read.look != last[0].look:
            break
        same.insert(0, read)
    proved = any(read.applied_past for read in same[criteria.still_reads :])
    assert (finding.state is LiveState.DIVERGED) == proved


@given(READS, CRITERIA)
def test_converged_is_what_the_last_read_found_equal_and_nothing_else(reads: list[Read], criteria: Criteria) -> None:
    finding = after(reads, criteria)
    assert (finding.state is LiveState.CONVERGED) == bool(reads and reads[-1].equal)
    if reads and reads[-1].equal:
        assert not finding.reported
        assert finding.look is None


@given(READS, READS, CRITERIA)
def test_what_is_hot_ends_by_an_equal_read_or_by_standing_still(
    before: list[Read], reads: list[Read], criteria: Criteria
) -> None:
    hot = replace(after(before, criteria), state=LiveState.HOT)
    differing = [replace(read, equal=False) for read in reads]
    assert after(differing, criteria, hot).state is not LiveState.CONVERGED


@given(READS, CRITERIA)
def test_a_difference_is_hot_only_when_its_reads_are_used_up_and_it_moves(
    reads: list[Read], criteria: Criteria
) -> None:
    finding = after(reads, criteria)
    if finding.state is LiveState.HOT:
        assert criteria.most_reads is not None
        assert finding.reads >= criteria.most_reads
        assert finding.still < criteria.still_reads


@given(READS, READS, CRITERIA)
def test_a_difference_after_an_agreement_is_a_new_one(
    before: list[Read], reads: list[Read], criteria: Criteria
) -> None:
    unbounded = replace(criteria, most_reads=None)  # only the number of reads goes on
    again = after([*before, Read(equal=True), *reads], unbounded)
    fresh = after(reads, unbounded)
    if reads:
        assert replace(again, reads=0) == replace(fresh, reads=0)


@given(READS, st.randoms(use_true_random=False), CRITERIA, st.integers(0, 2))
def test_the_order_of_reads_before_a_move_does_not_matter(
    reads: list[Read], rng: object, criteria: Criteria, look: int
) -> None:
    """What was seen before a row moved concludes nothing, so its order cannot: only that it was reported remains."""
    unreported = [replace(read, applied_past=False) for read in reads]
    shuffled = unreported.copy()
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    move = [Read(("moved", look)), Read(("moved", look))]
    assert after([*unreported, *move], criteria) == after([*shuffled, *move], criteria)


@given(st.lists(st.tuples(READS, st.integers(0, 3)), max_size=3), CRITERIA)
def test_keys_do_not_know_of_each_other(keys: list[tuple[list[Read], int]], criteria: Criteria) -> None:
    together = [Finding()] * len(keys)
    for number in range(12):
        for at, (reads, _) in enumerate(keys):
            if number < len(reads):
                together[at] = advance(together[at], reads[number], criteria)
    assert together == [after(reads, criteria) for reads, _ in keys]


@given(READS, CRITERIA)
def test_what_was_reported_is_taken_back_by_an_equal_read_alone(reads: list[Read], criteria: Criteria) -> None:
    reported = Finding("x", LiveState.DIVERGED, 2, 1, reported=True)
    assert after(reads, criteria, reported).reported or any(read.equal for read in reads)


@given(st.integers(1, 4), st.lists(st.integers(0, 2), min_size=1, max_size=6))
def test_an_unread_key_needs_one_read_more(still_reads: int, looks: list[int]) -> None:
    """A key known from the binlog alone was not read yet: its first read is what the next is compared with."""
    reads = [Read(look) for look in looks]
    unread = after(reads, Criteria(still_reads))
    seen = after(reads[1:], Criteria(still_reads), read_once(looks[0]))
    assert unread == seen


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=12),
    st.integers(0, SETTLE),
    st.lists(st.integers(0, 80), min_size=1, max_size=14),
    st.integers(1, 3),
)
def test_a_target_that_applies_within_the_settle_time_has_no_diverged_row(
    writes: list[tuple[int, int]], lag: int, times: list[int], still_reads: int
) -> None:
    """One row, written at some moments, and a target that is up to the settle time behind."""
    writes = sorted(dict(writes).items())

    def value(at: int) -> int:
        return next((v for t, v in reversed(writes) if t <= at), -1)

    finding = Finding()
    for at in sorted(times):
        source, target = value(at), value(at - lag)
        last = max((t for t, _ in writes if t <= at), default=-SETTLE)
        read = Read((source, target), source == target, at - last >= SETTLE)
        finding = advance(finding, read, Criteria(still_reads))
        assert finding.state is not LiveState.DIVERGED


@pytest.mark.parametrize(
    ("reads", "state"),
    [
        ([Read("a")], LiveState.UNCONFIRMED),
        ([Read("a"), Read("a")], LiveState.DIVERGED),
        ([Read("a"), Read("a", applied_past=False)], LiveState.UNCONFIRMED),
        ([Read("a"), Read("a", applied_past=False), Read("a")], LiveState.DIVERGED),
        ([Read("a"), Read("b"), Read("b")], LiveState.DIVERGED),
        ([Read("a"), Read("b"), Read("a")], LiveState.HOT),
        ([Read("a"), Read("b"), Read("a"), Read("a")], LiveState.DIVERGED),
        ([Read("a"), Read("b"), Read(equal=True)], LiveState.CONVERGED),
        ([Read("a"), Read("a"), Read("b")], LiveState.HOT),
        ([Read("a"), Read("a"), Read("a", applied_past=False)], LiveState.DIVERGED),
        ([Read("a"), Read("a"), Read("b"), Read("b", applied_past=False)], LiveState.UNCONFIRMED),
    ],
)
def test_stories(reads: list[Read], state: LiveState) -> None:
    assert after(reads, Criteria(1, 3)).state is state


def test_where_nothing_moves_one_read_concludes() -> None:
    assert advance(Finding(), Read("a"), Criteria(0)).state is LiveState.DIVERGED
    assert advance(Finding(), Read("a", applied_past=False), Criteria(0)).state is LiveState.UNCONFIRMED
