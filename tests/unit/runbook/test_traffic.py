"""Shares, steps, sides of keys, and what a measured share says of the one that was asked for."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.errors import UsageError
from migverify.runbook.traffic.measure import default_tolerance, judge_share, wilson
from migverify.runbook.traffic.model import (
    FULL,
    LADDER,
    check_ladder,
    check_step,
    goes_to_new,
    hundredths,
    murmur2,
    percent,
)

shares = st.integers(0, FULL)


@given(st.binary(max_size=40), shares, shares)
def test_a_higher_share_never_moves_a_key_back(key: bytes, one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert goes_to_new(key, low) <= goes_to_new(key, high)


@given(st.binary(max_size=40))
def test_nothing_is_on_the_new_side_at_0_and_nothing_on_the_old_at_100(key: bytes) -> None:
    assert not goes_to_new(key, 0)
    assert goes_to_new(key, FULL)


def test_a_request_without_a_key_stays_until_100() -> None:
    assert murmur2(b"") == 0  # by hash alone it would be the first to move
    assert not any(goes_to_new(b"", share) for share in range(FULL))


def test_the_hash_is_murmur2() -> None:
    # Worked out by hand from the definition: one byte, h = len ^ byte, then the three final mixes.
    def by_hand(byte: int) -> int:
        h = (1 ^ byte) * 0x5BD1E995 & 0xFFFFFFFF
        h = (h ^ h >> 13) * 0x5BD1E995 & 0xFFFFFFFF
        return h ^ h >> 15

    assert all(murmur2(bytes([byte])) == by_hand(byte) for byte in range(256))


@pytest.mark.parametrize("share", [100, 5000])
def test_about_so_many_keys_go_to_the_new_side(share: int) -> None:
    found = sum(goes_to_new(f"user-{n}".encode(), share) for n in range(20_000))
    low, high = wilson(found, 20_000, 99.99)
    assert low <= share / FULL <= high


@given(st.integers(0, FULL))
def test_a_share_is_read_as_it_is_spelled(share: int) -> None:
    assert hundredths(float(percent(share))) == share


@pytest.mark.parametrize("share", [-1, 100.01, math.nan, math.inf, 0.001, 33.333])
def test_what_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(UsageError):
        hundredths(share)


@pytest.mark.parametrize(
    ("now", "wanted", "refused"),
    [
        (0, 100, ""), (100, 500, ""), (5000, FULL, ""), (FULL, 0, ""), (2500, 100, ""), (500, 500, ""),
        (0, 500, "leaves out 1 %"), (100, FULL, "leaves out 5, 25, 50 %"), (0, 300, "no step"), (0, 200, "no step"),
    ],
)  # fmt: skip
def test_steps_go_up_one_by_one_and_down_to_anywhere(now: int, wanted: int, refused: str) -> None:
    if not refused:
        check_step(LADDER, now, wanted)
        return
    with pytest.raises(UsageError, match=refused):
        check_step(LADDER, now, wanted)


@pytest.mark.parametrize("rungs", [(), (100, 500), (500, 100, FULL), (100, 100, FULL), (0, FULL)])
def test_a_ladder_that_nobody_should_climb_is_refused(rungs: tuple[int, ...]) -> None:
    with pytest.raises(UsageError):
        check_ladder(rungs, sticky=True, writes=False)


def test_writes_are_never_split_by_chance() -> None:
    check_ladder(LADDER, sticky=True, writes=True)
    check_ladder(LADDER, sticky=False, writes=False)
    check_ladder((FULL,), sticky=False, writes=True)
    with pytest.raises(UsageError, match="one side"):
        check_ladder(LADDER, sticky=False, writes=True)


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_holds_the_share_that_was_seen(counts: tuple[int, int]) -> None:
    hits, total = counts
    low, high = wilson(hits, total)
    assert 0 <= low <= hits / total <= high <= 1
    narrow = wilson(hits, total, 80)
    assert low <= narrow[0] <= narrow[1] <= high


@pytest.mark.parametrize(
    ("asked", "new", "total", "state"),
    [
        (500, 250, 5000, "pass"), (500, 500, 5000, "fail"), (500, 0, 5000, "fail"),
        (500, 5, 99, "inconclusive"), (500, 5, 110, "inconclusive"),
        (100, 0, 200, "inconclusive"), (100, 0, 5000, "fail"),
        (0, 0, 100, "pass"), (0, 0, 99, "inconclusive"), (0, 1, 1_000_000, "fail"), (0, 1, 1, "fail"),
        (FULL, 100, 100, "pass"), (FULL, 999_999, 1_000_000, "fail"), (FULL, 5, 5, "inconclusive"),
        (5000, 0, 0, "inconclusive"), (5000, 5000, 10_000, "pass"),
    ],
)  # fmt: skip
def test_a_share_passes_fails_or_is_not_known(asked: int, new: int, total: int, state: str) -> None:
    found = judge_share(asked, new, total)
    assert found[0] == state, found[1]


@given(st.integers(1, FULL - 1), st.integers(100, 20_000), st.data())
def test_a_pass_is_never_far_off(asked: int, total: int, data: st.DataObject) -> None:
    new = data.draw(st.integers(0, total))
    found = judge_share(asked, new, total)
    if found[0] == "pass":
        assert abs(100 * new / total - asked / 100) <= default_tolerance(asked)
        assert 0 < new < total


@pytest.mark.parametrize("tolerance", [-1, math.nan, math.inf])
def test_a_tolerance_that_is_none_is_refused(tolerance: float) -> None:
    with pytest.raises(UsageError):
        judge_share(500, 5, 100, tolerance=tolerance)


def test_a_wide_tolerance_does_not_hide_an_empty_side() -> None:
    assert judge_share(100, 0, 100_000, tolerance=5)[0] == "inconclusive"
