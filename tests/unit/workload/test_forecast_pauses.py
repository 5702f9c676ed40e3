"""One pause of the target is one event, however many calls it makes late; what goes on or comes again is a miss."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.config.settings import ServiceLevel
from migverify.workload.forecast.levels import latency_without_pause, level_forecast
from migverify.workload.forecast.make import ForecastOptions, forecast
from migverify.workload.forecast.model import CallTrace, LevelState
from migverify.workload.forecast.pauses import LONGEST_PAUSE, MOST_OF_RUN, longest_pause
from migverify.workload.replay.latency import Histogram
from migverify.workload.replay.slo import ONE_PAUSE, ReplayMeasurement, judge_level

LEVEL = ServiceLevel(writes=0, reads=1, seconds=0.25, headroom=1.0)
TEXTS = {"d": "select 1"}
SECOND = 1_000_000


def trace(calls: int, seconds: int, stalls: Sequence[tuple[float, float]], service: int = 5_000) -> CallTrace:
    """Calls at random moments to a target that answers nothing while it stalls."""
    chance = random.Random(1)
    moments = sorted(chance.randrange(seconds * SECOND) for _ in range(calls))
    services = []
    for moment in moments:
        end = moment + int(service * chance.uniform(0.5, 2))
        for begins, ends in stalls:
            if moment < ends * SECOND and end >= begins * SECOND:
                end = int(ends * SECOND) + chance.randrange(20_000)
        services.append(end - moment)
    return CallTrace(1.0, moments, moments, services, services, [0] * calls, [0] * calls, ("d",))


def state(found: CallTrace) -> tuple[LevelState, tuple[str, ...]]:
    level = level_forecast("checkout", LEVEL, [found], None, TEXTS)
    return level.captured, level.measured[0].reasons


def judged(found: CallTrace) -> bool | None:
    measured = ReplayMeasurement(
        0, found.count, 60.0, Histogram.of(list(found.latencies)),
        steady=latency_without_pause(found, LEVEL, TEXTS),
    )  # fmt: skip
    result = judge_level("checkout", LEVEL, measured)
    assert result.met is not None or any(ONE_PAUSE in reason for reason in result.reasons)
    return result.met


@pytest.mark.parametrize(("calls", "seconds"), [(1_000, 60), (6_000, 60), (600, 30)])
def test_one_pause_of_two_seconds_is_no_miss(calls: int, seconds: int) -> None:
    paused = trace(calls, seconds, [(20, 22)])
    assert sum(late >= 250_000 for late in paused.latencies) > 20
    assert state(paused) == (LevelState.NOT_KNOWN, (ONE_PAUSE,))
    assert judged(paused) is None


@pytest.mark.parametrize("stalls", [
    [(10, 12), (30, 32)],  # it comes again
    [(20, 35)],  # it goes on
    [(20, 33)],  # a fifth of the run and more
])  # fmt: skip
def test_what_comes_again_or_goes_on_is_a_miss(stalls: list[tuple[float, float]]) -> None:
    slow = trace(3_000, 60, stalls)
    assert state(slow)[0] is LevelState.MISSED
    assert judged(slow) is False


def test_calls_that_are_each_slow_are_a_miss() -> None:
    slow = trace(1_000, 60, [], service=300_000)
    assert state(slow)[0] is LevelState.MISSED
    assert judged(slow) is False


def test_a_queue_that_grows_until_the_end_is_a_miss() -> None:
    count = 2_000
    moments = [number * 30_000 for number in range(count)]
    latencies = [5_000 + number * 1_000 for number in range(count)]
    growing = CallTrace(1.0, moments, moments, latencies, latencies, [0] * count, [0] * count, ("d",))
    assert state(growing)[0] is LevelState.MISSED


spans = st.tuples(st.integers(0, 10**8), st.integers(1, 2 * 10**6))


@given(st.lists(spans, max_size=60), st.integers(1, 10**6))
def test_a_pause_is_short_and_all_of_its_calls_are_late(calls: list[tuple[int, int]], limit: int) -> None:
    begins, services = [begin for begin, _ in calls], [service for _, service in calls]
    found = longest_pause(range(len(calls)), begins, services, services, limit)
    if found is None:
        return
    run = max(begin + service for begin, service in calls)
    assert found.end - found.begin <= min(LONGEST_PAUSE * SECOND, MOST_OF_RUN * run)
    assert all(services[one] >= limit for one in found.calls)
    assert found.begin == min(begins[one] for one in found.calls)


def test_calls_that_take_no_time_have_a_forecast() -> None:
    moments = [number * 60_000 for number in range(1_000)]
    none = [0] * len(moments)
    level = ForecastOptions({"checkout": LEVEL})
    found = forecast([CallTrace(1.0, moments, moments, none, none, none, none, ("d",))], 60.0, TEXTS, level)
    assert found.levels[0].captured is LevelState.MET
