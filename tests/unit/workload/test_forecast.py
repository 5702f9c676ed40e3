"""The forecast of a target's load: against simulated queues, by its laws, and what it must not claim."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.config import ServiceLevel
from migverify.errors import StoreError, UsageError
from migverify.model import StoredKind
from migverify.store.open import open_store
from migverify.workload.forecast.levels import judge_headroom, latency_alone, level_forecast
from migverify.workload.forecast.make import ForecastOptions, forecast
from migverify.workload.forecast.model import CallTrace, LevelState, LoadForecast, Parallelism
from migverify.workload.forecast.parallelism import parallelism, under_way
from migverify.workload.forecast.queueing import (
    Arrivals,
    Demand,
    arrivals_of,
    chance_above,
    demand,
    greatest_multiple,
    response_quantile,
    waiting_chance,
)
from migverify.workload.forecast.steps import parse_rates
from migverify.workload.forecast.store import load_forecast, write_forecast
from migverify.workload.forecast.trace import read_trace
from migverify.workload.replay.connections import EngineOptions
from migverify.workload.replay.latency import Histogram
from migverify.workload.replay.model import JudgedCall, Judgement
from migverify.workload.replay.outcomes import Outcomes
from migverify.workload.replay.pace import parse_pace
from migverify.workload.replay.plan import CallSelection
from migverify.workload.replay.run import finish
from migverify.workload.replay.runfile import RunFile
from migverify.workload.replay.slo import ReplayMeasurement, covers, judge_level
from migverify.workload.replay.store import RULE
from migverify.workload.replay.waits import waits
from tests.unit.replay_fakes import planned, row

Draw = Callable[[random.Random], float]
EXPONENTIAL: Draw = lambda rng: rng.expovariate(1.0)  # noqa: E731
CONSTANT: Draw = lambda _: 1.0  # noqa: E731
TWO_KINDS: Draw = lambda rng: 0.5 if rng.random() < 0.9 else 5.5  # noqa: E731
SELECT = "SELECT `a` FROM `t` WHERE `id` = ?"


def responses(arrivals: Sequence[float], services: Sequence[float], servers: int) -> list[float]:
    """Simulate one queue before several servers, first come first served; return the response times."""
    free = [0.0] * servers
    found = []
    for arrival, service in zip(arrivals, services, strict=True):
        end = max(arrival, heapq.heappop(free)) + service
        heapq.heappush(free, end)
        found.append(end - arrival)
    return found


def shared(arrivals: Sequence[float], services: Sequence[float], cores: int) -> list[float]:
    """Simulate cores that all calls share, as an operating system shares them; return the response times."""
    left: dict[int, float] = {}
    found, now, upcoming = [0.0] * len(arrivals), 0.0, 0
    while left or upcoming < len(arrivals):
        speed = min(1.0, cores / len(left)) if left else 1.0
        ends = min(left.values()) / speed if left else math.inf
        until = arrivals[upcoming] - now if upcoming < len(arrivals) else math.inf
        step = min(ends, until)
        now += step
        left = {call: rest - step * speed for call, rest in left.items()}
        for call in [call for call, rest in left.items() if rest <= 1e-12]:
            found[call] = now - arrivals[call]
            del left[call]
        if until <= ends:
            left[upcoming] = services[upcoming]
            upcoming += 1
    return found


def poisson(rng: random.Random, rate: float, count: int) -> list[float]:
    moments, now = [], 0.0
    for _ in range(count):
        now += rng.expovariate(rate)
        moments.append(now)
    return moments


def trace(
    multiple: float | None, moments: Sequence[float], services: Sequence[float], servers: int, *, own: int = 0,
    names: tuple[str, ...] = ("d",), digests: Sequence[int] | None = None,
) -> CallTrace:  # fmt: skip
    """Play a load, at a multiple of its pace, on a simulated target that works on so many statements at once."""
    begins = [moment / (multiple or 1.0) for moment in moments]
    took = [round(one * 1e6) for one in responses(begins, services, servers)]
    return CallTrace(
        multiple, [round(one * 1e6) for one in moments], [round(one * 1e6) for one in begins], took, took,
        digests or [0] * len(took), [own] * len(took), names,
    )  # fmt: skip


def made(
    traces: Sequence[CallTrace], seconds: float, level: ServiceLevel | None = None, **more: object
) -> LoadForecast:
    levels = {} if level is None else {"checkout": level}
    return forecast(traces, seconds, {"d": SELECT}, ForecastOptions(levels, **more))  # type: ignore[arg-type]


def limit(seconds: float, **more: object) -> ServiceLevel:
    return ServiceLevel(writes=0.0, reads=1.0, seconds=seconds, **more)  # type: ignore[arg-type]


# --- the queue -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("servers", [1, 2, 8])
@pytest.mark.parametrize("utilization", [0.5, 0.8])
@pytest.mark.parametrize(("draw", "variation"), [(EXPONENTIAL, 1.0), (CONSTANT, 0.0), (TWO_KINDS, 2.25)])
def test_the_model_agrees_with_a_simulated_queue(
    servers: int, utilization: float, draw: Draw, variation: float
) -> None:
    rng = random.Random(servers * 100 + int(utilization * 10))
    count = 60_000
    services = [draw(rng) for _ in range(count)]
    moments = poisson(rng, utilization * servers, count)
    simulated = sorted(responses(moments, services, servers))
    model = demand((value, 1.0) for value in services[:5_000])
    assert model.variation == pytest.approx(variation, abs=0.25)
    steady = Arrivals(((utilization * servers, 1.0),), 1.0)
    for quantile in (0.95, 0.99):
        expected = response_quantile(steady, model, servers, 1.0, quantile)
        assert expected is not None
        assert expected == pytest.approx(simulated[int(quantile * count)], rel=0.25)


def test_one_exponential_server_is_exact() -> None:
    model = demand((-math.log(1 - (part + 0.5) / 4000), 1.0) for part in range(4000))
    expected = response_quantile(Arrivals(((0.7, 1.0),), 1.0), model, 1, 1.0, 0.99)
    assert expected == pytest.approx(-math.log(0.01) / 0.3, rel=0.02)
    assert waiting_chance(1, 0.7) == pytest.approx(0.7)


LOADS = st.builds(
    lambda rates, variation: Arrivals(tuple((rate, 1 / len(rates)) for rate in rates), variation),
    st.lists(st.floats(0.01, 50), min_size=1, max_size=4),
    st.floats(0, 5),
)
DEMANDS = st.lists(st.tuples(st.floats(0.001, 2), st.floats(0.1, 10)), min_size=1, max_size=6).map(demand)
SERVERS = st.integers(1, 40)


@given(LOADS, DEMANDS, SERVERS, st.floats(0.1, 5), st.floats(1, 3), st.floats(0.001, 20))
def test_a_heavier_load_is_never_faster(
    load: Arrivals, model: Demand, servers: int, multiple: float, more: float, seconds: float
) -> None:
    lighter = chance_above(load, model, servers, multiple, seconds)
    heavier = chance_above(load, model, servers, multiple * more, seconds)
    assert 0 <= lighter <= heavier + 1e-9 <= 1 + 1e-6
    assert chance_above(load, model, servers + 1, multiple, seconds) <= lighter + 1e-9
    assert chance_above(load, model, servers, multiple, seconds * 2) <= lighter + 1e-9


@given(LOADS, DEMANDS, SERVERS, st.floats(0.01, 100))
def test_another_unit_of_time_changes_nothing(load: Arrivals, model: Demand, servers: int, unit: float) -> None:
    slower = Arrivals(tuple((rate / unit, share) for rate, share in load.stretches), load.variation)
    longer = demand((value * unit, share) for value, share in model.parts)
    here = greatest_multiple(load, model, servers, 0.99, 0.5, 10)
    there = greatest_multiple(slower, longer, servers, 0.99, 0.5 * unit, 10)
    assert (here is None) == (there is None)
    assert here is None or here == pytest.approx(there, abs=1e-3)


@given(LOADS, DEMANDS, SERVERS, st.floats(0.01, 5))
def test_up_to_the_greatest_multiple_the_quantile_is_within_its_limit(
    load: Arrivals, model: Demand, servers: int, seconds: float
) -> None:
    most = greatest_multiple(load, model, servers, 0.95, seconds, 10)
    if most is not None and most > 0.01:
        below = response_quantile(load, model, servers, most * 0.99, 0.95)
        assert below is not None
        assert below <= seconds * 1.001
        beyond = response_quantile(load, model, servers, most * 1.01, 0.95)
        assert beyond is None or beyond >= seconds * 0.999


def test_peaks_count_and_not_the_mean_alone() -> None:
    busy = [number * 10_000 for number in range(1_000)]  # 100 a second in the first ten seconds, 10 after these
    quiet = [10_000_000 + number * 100_000 for number in range(500)]
    arrivals = arrivals_of(busy + quiet, 60.0)
    assert arrivals.peak == pytest.approx(100, rel=0.01)
    assert sum(share for _, share in arrivals.stretches) == pytest.approx(1)
    assert arrivals.variation < 0.01  # evenly spaced within each stretch
    model = demand([(0.05, 1.0)])
    alone = Arrivals(((1_500 / 60, 1.0),), arrivals.variation)
    assert greatest_multiple(alone, model, 6, 0.99, 0.2, 10) == pytest.approx(6 / 0.05 / 25, rel=0.05)
    assert greatest_multiple(arrivals, model, 6, 0.99, 0.2, 10) == pytest.approx(6 / 0.05 / 100, rel=0.05)


# --- how many at once ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("servers", [1, 2, 4, 8])
def test_bounds_of_parallelism_hold_the_true_number(servers: int) -> None:
    rng = random.Random(servers)
    moments = poisson(rng, 0.75 * servers / 0.05, 20_000)
    services = [0.05 * rng.uniform(0.8, 1.2) for _ in moments]
    quiet = poisson(rng, 0.2 / 0.05, 500)
    lighter = trace(0.5, quiet, [0.05 * rng.uniform(0.8, 1.2) for _ in quiet], servers)
    bounds = parallelism([lighter, trace(1.0, moments, services, servers)])
    assert bounds is not None
    assert bounds.least <= servers
    assert bounds.most is not None
    assert servers <= bounds.most <= 2 * servers + 1


def test_a_light_load_gives_no_upper_bound_and_too_few_calls_no_bound_at_all() -> None:
    moments = [number * 0.1 for number in range(1_000)]
    bounds = parallelism([trace(1.0, moments, [0.05] * 1_000, 4)])
    assert bounds == Parallelism(1, None)
    assert parallelism([trace(1.0, moments[:20], [0.05] * 20, 4)]) is None


def test_calls_under_way() -> None:
    one = trace(1.0, [0.0, 0.1, 0.2, 1.0], [0.5, 0.5, 0.1, 0.1], 10)
    assert under_way(one) == [1, 2, 3, 1]


# --- levels ----------------------------------------------------------------------------------------------------


def even(rate: float, seconds: float) -> list[float]:
    return [number / rate for number in range(int(rate * seconds))]


def test_a_level_that_is_missed_at_1_3x_alone_is_found() -> None:
    moments, services = even(85.0, 60.0), [0.01] * 5_100
    loads = [trace(multiple, moments, services, 1) for multiple in (1.0, 1.3)]
    result = made(loads, 60.0, limit(0.2, headroom=1.3))
    (level,) = result.levels
    assert (level.captured, level.at_headroom) == (LevelState.MET, LevelState.MISSED)
    assert level.limit.latest_measured
    assert level.limit.latest == 1.3
    assert level.limit.earliest is not None
    assert 1.0 <= level.limit.earliest < 1.3
    (judged,) = judge_headroom(result)
    assert (judged.name, judged.met) == ("checkout at 1.3x", False)
    assert "at 1.3x the captured load, not below 0.2 s" in judged.reasons[0]


def test_headroom_that_was_not_measured_is_not_known_and_the_forecast_says_where_to_look() -> None:
    moments, services = even(85.0, 60.0), [0.01] * 5_100
    result = made([trace(1.0, moments, services, 1)], 60.0, limit(0.2, headroom=1.3), parallelism=1)
    (level,) = result.levels
    assert (level.captured, level.at_headroom) == (LevelState.MET, LevelState.NOT_KNOWN)
    assert not level.limit.latest_measured
    assert level.limit.latest == pytest.approx(1 / 0.85, rel=0.05)
    (judged,) = judge_headroom(result)
    assert judged.met is None
    assert "--rates 1.3" in judged.reasons[0]
    assert any("forecast: the level is missed beyond 1.1" in reason for reason in judged.reasons)
    assert result.utilization == pytest.approx((0.85, 0.85), rel=0.02)


def test_a_heavier_load_that_was_measured_proves_the_headroom() -> None:
    moments, services = even(40.0, 60.0), [0.01] * 2_400
    result = made([trace(multiple, moments, services, 1) for multiple in (1.0, 2.0)], 60.0, limit(0.2, headroom=1.3))
    (level,) = result.levels
    assert (level.captured, level.at_headroom) == (LevelState.MET, LevelState.MET)


def test_single_slow_calls_raise_no_alarm() -> None:
    """A first execution of each statement, and a garbage collection that stops the target once."""
    rng = random.Random(3)
    moments = even(20.0, 60.0)
    services = [0.01 * rng.uniform(0.9, 1.1) for _ in moments]
    services[0] = services[1] = 3.0
    services[600] = 2.0
    (level,) = made([trace(1.0, moments, services, 16)], 60.0, limit(0.5)).levels
    assert level.captured is LevelState.MET
    few = made([trace(1.0, moments[:60], services[:60], 16)], 60.0, limit(0.5)).levels[0]
    assert few.captured is LevelState.NOT_KNOWN  # 60 calls say nothing of p99, neither well nor ill
    assert "60 calls do not bound p99" in few.measured[0].reasons[0]


@pytest.mark.parametrize(
    ("pattern", "covered"),
    [("select `a` FROM*", True), ("*from `t` where*", True), ("select", False), ("*[a]*", False), ("SELECT*= ?", True)],
)
def test_patterns_of_statements(pattern: str, covered: bool) -> None:
    assert covers(limit(1.0, statements=pattern), SELECT) is covered


def test_few_slow_calls_are_no_miss_of_a_service_level() -> None:
    latency = Histogram()
    latency.add(5_000, 58)
    latency.add(3_000_000, 2)
    result = judge_level("checkout", limit(0.5), ReplayMeasurement(0, 60, 10.0, latency))
    assert result.met is None
    assert "too few" in result.reasons[0]
    latency.add(3_000_000, 40)
    assert judge_level("checkout", limit(0.5), ReplayMeasurement(0, 100, 10.0, latency)).met is False


def test_a_level_of_one_kind_of_statement() -> None:
    moments = even(20.0, 120.0)
    digests = [number % 2 for number in range(len(moments))]
    services = [0.01 if digest else 0.4 for digest in digests]
    asked = trace(1.0, moments, services, 16, names=("d", "e"), digests=digests)
    levels = {
        "slow": limit(0.2, statements="select `a`*"), "fast": limit(0.2, statements="*FROM `u`*"), "all": limit(0.2),
    }  # fmt: skip
    result = forecast([asked], 120.0, {"d": SELECT, "e": "SELECT 1 FROM `u`"}, ForecastOptions(levels))
    states = {level.name: level.captured for level in result.levels}
    assert states == {"slow": LevelState.MISSED, "fast": LevelState.MET, "all": LevelState.MISSED}
    assert [use.digest for use in result.uses] == ["d", "e"]
    assert result.uses[0].share == pytest.approx(40 / 41, rel=0.01)
    assert result.uses[0].rate == pytest.approx(10, rel=0.01)


# --- what is not known -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "seconds", "said"),
    [
        ({"multiple": None, "problems": ("at pace fast the target was not asked at the captured pace",)}, 60.0, "pace"),
        ({"problems": ("the run was resumed",)}, 60.0, "resumed"),
        ({}, 20.0, "covers 20.0 s"),
    ],
)
def test_nothing_is_claimed_of_a_load_that_was_not_there(change: dict[str, object], seconds: float, said: str) -> None:
    good = trace(1.0, even(85.0, 60.0), [0.01] * 5_100, 1)
    result = made([replace(good, **change)], seconds, limit(0.2, headroom=1.3))  # type: ignore[arg-type]
    assert any(said in reason for reason in result.reasons)
    (level,) = result.levels
    assert level.at_headroom is LevelState.NOT_KNOWN
    assert level.curve == ()
    assert level.captured is LevelState.NOT_KNOWN
    assert said in level.measured[0].reasons[0] if level.measured else change


def test_a_replay_that_held_calls_back_itself_proves_nothing() -> None:
    held = trace(1.0, even(85.0, 60.0), [0.01] * 5_100, 1, own=100_000)
    (level,) = made([held], 60.0, limit(0.2)).levels
    assert level.captured is LevelState.NOT_KNOWN
    assert "the replay itself held calls back" in level.measured[0].reasons[0]
    assert level.curve == ()


def test_a_queue_that_grows_proves_nothing_however_short_the_run_kept_it() -> None:
    quiet = trace(0.5, even(101.0, 60.0), [0.01] * 6_060, 1)
    result = made([trace(1.0, even(101.0, 60.0), [0.01] * 6_060, 1), quiet], 60.0, limit(2.0), parallelism=1)
    (level,) = result.levels
    assert level.captured is LevelState.NOT_KNOWN  # half a second after a minute, a minute after two hours
    assert "utilization is 1.01" in level.measured[1].reasons[0]


def test_a_heavier_load_that_met_what_a_lighter_one_missed_is_a_contradiction() -> None:
    moments = even(40.0, 60.0)
    slow, quick = (trace(multiple, moments, [service] * 2_400, 8) for multiple, service in ((1.0, 0.1), (1.3, 0.01)))
    result = made([slow, quick], 60.0, limit(0.05, headroom=1.3))
    (level,) = result.levels
    assert level.at_headroom is LevelState.NOT_KNOWN
    assert (level.limit.earliest, level.limit.latest) == (None, None)
    assert any("measure again" in reason for reason in level.reasons)
    assert judge_headroom(result)[0].met is None


@pytest.mark.parametrize("cores", [1, 4])
def test_a_target_whose_cores_are_shared_is_judged_by_what_it_does(cores: int) -> None:
    """No queue in front of servers: the model is another one, and no measured load may be called off by it."""
    rng = random.Random(cores)
    loads = []
    for multiple in (0.25, 1.0, 1.5):
        moments = poisson(rng, 0.5 * cores / 0.02, 4_000)
        begins = [moment / multiple for moment in moments]
        services = shared(begins, [0.02 * rng.uniform(0.7, 1.3) for _ in begins], cores)
        took = [round(each * 1e6) for each in services]
        at = ([round(each * 1e6) for each in moments], [round(each * 1e6) for each in begins])
        loads.append(CallTrace(multiple, *at, took, took, [0] * len(took), [0] * len(took), ("d",)))
    result = made(loads, 4_000 / (0.5 * cores / 0.02), limit(1.0, headroom=1.5), least_seconds=1.0)
    (level,) = result.levels
    assert (level.captured, level.at_headroom) == (LevelState.MET, LevelState.MET)
    assert result.parallelism is not None
    assert result.parallelism.least <= cores
    assert result.parallelism.most is None or result.parallelism.most >= cores
    assert level.curve  # the band meets all three loads


def test_an_overloaded_target_is_said_to_be() -> None:
    loads = [trace(multiple, even(120.0, 60.0), [0.01] * 7_200, 1) for multiple in (1.0, 0.5)]
    result = made(loads, 60.0, limit(0.2), parallelism=1)
    assert result.levels[0].captured is LevelState.MISSED  # as measured
    assert any("grows" in reason for reason in result.reasons)
    alone = made(loads[:1], 60.0, limit(0.2), parallelism=1)
    assert alone.levels[0].captured is LevelState.MISSED
    assert "fewer than 30 calls met no other" in alone.reasons[0]


def test_a_model_that_does_not_meet_the_measurement_expects_nothing() -> None:
    """The target is slow all at once for a reason of its own: no number of servers explains it."""
    moments = even(10.0, 120.0)
    good = trace(1.0, moments, [0.01] * len(moments), 4)
    slow = [3_000_000 if place % 10 == 0 else took for place, took in enumerate(good.latencies)]
    (level,) = made([replace(good, latencies=slow)], 120.0, limit(0.2)).levels
    assert level.curve == ()
    assert "no forecast" in level.reasons[0]
    assert level.captured is LevelState.MISSED


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1, 2, 5]), st.floats(0.1, 1.2))
def test_a_forecast_survives_its_json_and_never_claims_what_was_not_measured(
    seed: int, servers: int, utilization: float
) -> None:
    rng = random.Random(seed)
    moments = poisson(rng, utilization * servers / 0.02, 1_500)
    services = [rng.expovariate(1 / 0.02) for _ in moments]
    result = made([trace(1.0, moments, services, servers)], moments[-1], limit(0.3, headroom=2.0), least_seconds=1.0)
    assert LoadForecast.from_json(result.as_json()) == result
    (level,) = result.levels
    assert level.at_headroom in (LevelState.NOT_KNOWN, LevelState.MISSED)
    if level.at_headroom is LevelState.MISSED:
        assert level.captured is LevelState.MISSED
    highs = [point.high for point in level.curve if point.high is not None]
    assert highs == sorted(highs)
    if level.limit.earliest is not None and level.limit.latest is not None:
        assert level.limit.earliest <= level.limit.latest


# --- options and the store -------------------------------------------------------------------------------------


def test_rates() -> None:
    assert parse_rates("2,1,x1.3,2") == (1.0, 1.3, 2.0)
    for text in ("", "fast", "0", "1;2", "-1", "nan", "101", "1e-9"):
        with pytest.raises(UsageError, match="--rates"):
            parse_rates(text)


def test_a_forecast_is_in_the_store_beside_its_run(tmp_path: Path) -> None:
    result = made([trace(1.0, even(85.0, 60.0), [0.01] * 5_100, 1)], 60.0, limit(0.2, headroom=1.3))
    with closing(open_store(f"sqlite:///{tmp_path}/s.db")) as store:
        run = store.start_run("workload replay c", "h", {"kind": "replay"}, {}, kind=StoredKind.REPLAY)
        assert load_forecast(store, run) is None
        write_forecast(store, run, result)
        assert load_forecast(store, run) == result
        other = store.start_run("workload replay c", "h", {"kind": "replay"}, {}, kind=StoredKind.REPLAY)
        store.add_window(other, RULE, {"window": "forecast", "state": "done", "forecast": {"rate": 1}}, [])
        with pytest.raises(StoreError, match="forecast"):
            load_forecast(store, other)


# --- what a run file tells -------------------------------------------------------------------------------------


def asked(
    folder: Path, services: Sequence[int], *, source: int = 900, lag: Sequence[int] = (), pace: str = "real",
    errors: int = 0, attempts: int = 1, **more: object,
) -> CallTrace:  # fmt: skip
    """Return the trace of one session's calls, 10 ms apart, with these services; microseconds."""
    plan = planned([row("a", n, f"SELECT {n}", 10_000 * n) for n in range(len(services))], folder, **more)
    outcomes = Outcomes(folder)
    late = lag or [0] * len(services)
    for n, (service, behind) in enumerate(zip(services, late, strict=True)):
        details = {"target_errno": "1105"} if n < errors else {}
        outcomes.end(n, JudgedCall(
            "a", n, "d", Judgement.SAME, target_latency=behind + service, target_service=service,
            source_latency=behind + source, source_service=source, lag=behind, details=details,
        ))  # fmt: skip
    outcomes.close()
    with RunFile(folder) as run:
        run.set_fact("attempts", attempts)
        run.set_fact("stop", "")
        chosen = parse_pace(pace)
        return read_trace(run, chosen, finish(run, plan, 1.0, EngineOptions(pace=chosen)))


def test_a_trace_is_what_the_target_answered(tmp_path: Path) -> None:
    found = asked(tmp_path, [1_000, 25_000, 1_000, 1_000], lag=[0, 0, 15_000, 6_000])
    assert (list(found.arrivals), list(found.begins)) == ([0, 10_000, 20_000, 30_000], [0, 10_000, 35_000, 36_000])
    assert list(found.latencies) == [1_000, 25_000, 16_000, 7_000]
    assert list(found.own) == [0, 0, 0, 0]  # late because of the target, whose answers the session waited for
    assert (found.multiple, found.problems, found.names) == (1.0, (), ("d",))


def test_a_slower_source_and_a_slow_replay_are_their_own_delay(tmp_path: Path) -> None:
    found = asked(tmp_path, [1_000, 1_000, 1_000], source=50_000, lag=[0, 40_000, 80_000])
    assert list(found.own) == [0, 40_000, 49_000]


def stalled(folder: Path, services: Sequence[int], stalls: Sequence[int], lag: Sequence[int]) -> CallTrace:
    """Return the trace of one session in whose calls the replay stood still, microseconds each."""
    plan = planned([row("a", n, f"SELECT {n}", 10_000 * n) for n in range(len(services))], folder)
    outcomes = Outcomes(folder)
    for n, (service, stall, behind) in enumerate(zip(services, stalls, lag, strict=True)):
        outcomes.end(n, JudgedCall(
            "a", n, "d", Judgement.SAME, target_latency=behind + service, target_service=service,
            source_latency=behind + service, source_service=service, lag=behind,
            details={"stalled": str(stall)} if stall else {},
        ))  # fmt: skip
    outcomes.close()
    with RunFile(folder) as run:
        run.set_fact("attempts", 1)
        run.set_fact("stop", "")
        return read_trace(run, parse_pace("real"), finish(run, plan, 1.0, EngineOptions(pace=parse_pace("real"))))


def test_what_the_replay_stood_still_is_its_own_delay_and_that_of_the_calls_behind(tmp_path: Path) -> None:
    found = stalled(tmp_path, [1_000, 501_000, 1_000, 1_000], [0, 500_000, 0, 0], [0, 0, 491_000, 482_000])
    assert list(found.alone) == [1_000] * 4
    assert found.own[1] == 500_000
    slow = stalled(tmp_path / "slow", [1_000, 501_000, 1_000], [0, 0, 0], [0, 0, 491_000])
    assert list(slow.alone) == list(slow.latencies) == [1_000, 501_000, 492_000]


@pytest.mark.parametrize("stall", [True, False])
def test_a_level_that_the_player_missed_by_standing_still_is_not_known(tmp_path: Path, stall: bool) -> None:
    """A target that is slow for certain misses it, whatever the replay held back."""
    services = [1_000] * 400 + [901_000] * 400
    found = stalled(tmp_path, services, [900_000 * stall * (one > 1_000) for one in services], [0] * 800)
    latency, alone = Histogram.of(list(found.latencies)), latency_alone(found, limit(0.5), {})
    result = judge_level("checkout", limit(0.5), ReplayMeasurement(0, 800, 10.0, latency, alone=alone))
    assert result.met is (None if stall else False)
    assert ("stood still" in result.reasons[-1]) is stall
    state = level_forecast("checkout", limit(0.5), [found], None, {}).captured
    assert state is (LevelState.NOT_KNOWN if stall else LevelState.MISSED)


def test_a_target_that_is_slow_for_certain_misses_a_level_although_calls_were_held_back() -> None:
    held = trace(1.0, even(85.0, 60.0), [0.9] * 5_100, 100, own=200_000)
    (level,) = made([replace(held, alone=[900_000] * 5_100)], 60.0, limit(0.5)).levels
    assert level.captured is LevelState.MISSED
    (level,) = made([replace(held, alone=[100_000] * 5_100)], 60.0, limit(0.5)).levels
    assert level.captured is LevelState.NOT_KNOWN


def test_a_late_call_names_what_it_waited_for_and_when(tmp_path: Path) -> None:
    plan = planned([row("a", n, f"SELECT {n}", 1_000_000 * n) for n in range(4)], tmp_path)
    outcomes = Outcomes(tmp_path)
    late = [
        (3_000_000, 1_500_000, 0),
        (1_000, 3_000_000, 2_000_000),
        (1_000, 1_000, 4_000_000),
        (1_000, 1_000, 5_000_000),
    ]
    for n, (target, source, lag) in enumerate(late):
        outcomes.end(n, JudgedCall(
            "a", n, "d", Judgement.SAME, target_latency=lag + target, target_service=target,
            source_latency=lag + source, source_service=source, lag=lag,
        ))  # fmt: skip
    outcomes.close()
    assert plan.calls == 4
    with RunFile(tmp_path) as run:
        found = waits(run, parse_pace("real"))
    assert found == [
        "both sides at once: 3 calls, 4.5 s in all; at most 3.0 s, 3.0 s after the beginning",
        "the source: 1 call, 3.0 s in all; at most 3.0 s, 3.0 s after the beginning",
        "the replay itself: 1 call, 2.0 s in all; at most 2.0 s, 6.0 s after the beginning",
        "the target: 1 call, 1.5 s in all; at most 1.5 s, 1.5 s after the beginning",
    ]


def test_a_faster_pace_is_a_multiple(tmp_path: Path) -> None:
    found = asked(tmp_path, [100] * 4, pace="x2")
    assert (found.multiple, list(found.arrivals)) == (2.0, [0, 10_000, 20_000, 30_000])
    assert list(found.begins) == [0, 5_000, 10_000, 15_000]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"pace": "fast"}, "at pace fast"),
        ({"pace": "50/s"}, "at pace 50/s"),
        ({"attempts": 2}, "resumed"),
        ({"errors": 3}, "the target refused 3 of 4"),
        ({"selection": CallSelection(sessions=("a",))}, "only some sessions"),
    ],
)
def test_a_trace_says_why_it_is_not_the_captured_load(tmp_path: Path, more: dict[str, object], said: str) -> None:
    found = asked(tmp_path, [100] * 4, **more)  # type: ignore[arg-type]
    assert [said in problem for problem in found.problems] == [True]


def test_calls_that_were_not_asked_make_the_load_lighter(tmp_path: Path) -> None:
    rows = [row("a", 0, "SELECT 1", 0), row("a", 1, "UPDATE t SET v = 1", 10), row("a", 2, "SET @a = 1", 20)]
    plan = planned(rows, tmp_path)
    with RunFile(tmp_path) as run:
        found = read_trace(run, parse_pace("real"), finish(run, plan, 1.0, EngineOptions()))
    assert any("1 of 2 captured statements were not asked" in problem for problem in found.problems)
