"""Windows cover time exactly once, close only when every source is complete, and are the same after a restart."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.errors import ConfigError
from migverify.recon.fields import WindowRule
from migverify.recon.model import Window
from migverify.recon.windows import (
    closing,
    due,
    is_immutable,
    require_grid,
    shifted,
    unix_time,
    window_at,
    windows_from,
)

MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2060, 1, 1))
WIDTHS = st.integers(1, 100_000)
STARTS = st.none() | st.datetimes(datetime(2010, 1, 1), datetime(2030, 1, 1)).map(lambda d: d.replace(microsecond=0))


@given(WIDTHS, STARTS, st.lists(MOMENTS, max_size=30), st.integers(0, 40))
def test_every_time_is_covered_exactly_once(
    width: int, start: datetime | None, times: list[datetime], closed: int
) -> None:
    grid = WindowRule(every=float(width), start=start)
    first = window_at(grid, max(datetime(2015, 1, 1), start or datetime(2015, 1, 1)))
    assert first is not None
    windows = list(islice(windows_from(first), closed + 1))
    following = windows.pop()
    for moment in times:
        homes = [w for w in windows if w.start <= moment < w.end]
        assert len(homes) + (moment < first.start) + (moment >= following.start) == 1
        if homes:
            assert window_at(WindowRule(every=float(width), start=first.start), moment) == homes[0]


@given(WIDTHS, STARTS, MOMENTS)
def test_a_moment_lies_in_its_window_or_before_the_grid(width: int, start: datetime | None, moment: datetime) -> None:
    window = window_at(WindowRule(every=float(width), start=start), moment)
    if window is None:
        assert start is not None
        assert moment < start
    else:
        assert window.start <= moment < window.end
        assert (window.start - (start or datetime(1970, 1, 1))) % timedelta(seconds=width) == timedelta(0)


@given(WIDTHS, STARTS, MOMENTS, st.integers(0, 50))
def test_windows_follow_each_other_without_a_gap_and_resume_anywhere(
    width: int, start: datetime | None, moment: datetime, at: int
) -> None:
    first = window_at(WindowRule(every=float(width), start=start), moment)
    if first is None:
        return
    all_ = list(islice(windows_from(first), 60))
    assert all(a.end == b.start for a, b in pairwise(all_))
    # Who stopped after any window and goes on from its successor sees the same windows.
    assert list(islice(windows_from(shifted(all_[at], 1)), 5)) == all_[at + 1 : at + 6]
    again = window_at(WindowRule(every=float(width), start=start), all_[at].end)
    assert again == all_[at + 1]


MARKS = st.dictionaries(
    st.sampled_from("abc"), st.none() | st.floats(1.4e9, 1.4e9 + 3000) | st.just(math.inf), min_size=1
)


@given(MARKS, MARKS, st.floats(0, 600))
def test_closing_is_monotone(before: dict[str, float | None], steps: dict[str, float | None], settle: float) -> None:
    first = window_at(WindowRule(every=60.0), datetime.fromtimestamp(1.4e9, UTC).replace(tzinfo=None))
    assert first is not None
    # Later, every watermark is known and stands where it stood or further.
    later = {name: max(mark or 0.0, steps.get(name) or 0.0) for name, mark in before.items()}
    if all(math.isinf(mark) for mark in later.values()):
        return
    closed, then = list(due(first, settle, before)), list(due(first, settle, later))
    assert then[: len(closed)] == closed
    # Going on from what was closed gives the rest, no window twice and none left out.
    following = shifted(closed[-1], 1) if closed else first
    assert closed + list(due(following, settle, later)) == then


@given(MARKS, st.floats(0, 600))
def test_a_window_closes_when_every_watermark_has_passed(marks: dict[str, float | None], settle: float) -> None:
    window = window_at(WindowRule(every=60.0), datetime(2014, 5, 13, 16, 53, 30))
    assert window is not None
    found = closing(window, settle, marks)
    passed = all(m is not None and m >= unix_time(window.end) + settle for m in marks.values())
    assert found.closed is passed
    assert bool(found.reasons) is not passed


def test_nobody_closes_a_window_by_saying_nothing() -> None:
    window = Window(datetime(2026, 1, 1), datetime(2026, 1, 2))
    assert not closing(window, 0, {}).closed
    assert not list(due(window, 0, {}))
    assert not list(islice(due(window, 0, {"a": math.inf}), 1))
    assert list(islice(due(window, 0, {"a": math.inf, "b": unix_time(window.end)}), 2)) == [window]


def test_the_reason_names_who_holds_the_window_open() -> None:
    window = Window(datetime(2026, 1, 1), datetime(2026, 1, 2))
    found = closing(window, 10, {"ledger": None, "orders": unix_time(window.end) + 4, "wallet": math.inf})
    assert found.reasons == (
        "[2026-01-01 00:00:00, 2026-01-02 00:00:00): up to when ledger is complete is not known",
        "[2026-01-01 00:00:00, 2026-01-02 00:00:00): orders is complete up to 2026-01-02 00:00:04, 6.0 s are missing",
    )


def test_immutable_from_a_moment_on() -> None:
    window = Window(datetime(2026, 1, 1), datetime(2026, 1, 2))
    end = unix_time(window.end)
    assert not is_immutable(WindowRule(every=86400.0, immutable=60.0), window, end + 59.9)
    assert is_immutable(WindowRule(every=86400.0, immutable=60.0), window, end + 60)
    assert not is_immutable(WindowRule(every=86400.0), window, end + 1e9)


@pytest.mark.parametrize(
    "grid",
    [
        WindowRule(every=0.5),
        WindowRule(every=0.0),
        WindowRule(every=-60.0),
        WindowRule(every=math.inf),
        WindowRule(every=60.0, start=datetime(2026, 1, 1, 0, 0, 0, 5)),
        WindowRule(every=60.0, start=datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_windows_that_have_no_text_of_their_own_are_refused(grid: WindowRule) -> None:
    with pytest.raises(ConfigError, match=r"rules\.yaml:7"):
        require_grid(grid, "rules.yaml:7")
