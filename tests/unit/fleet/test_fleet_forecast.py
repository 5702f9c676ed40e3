"""Forecasts: from the drills of all services, the same every time; a wave that does not fit is a finding."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.fleet.board import fleet_report, read_state
from migverify.fleet.forecast import makespan, runbook_forecasts
from migverify.fleet.load import load_fleet
from migverify.fleet.model import ServiceStanding
from migverify.fleet.read import read_fleet
from migverify.model import Verdict
from migverify.runbook.definition.forecast import Estimate, Progress, duration_of, forecast
from migverify.runbook.history.past import past_runs
from migverify.runbook.kinds import RunKind
from migverify.runbook.record.run_store import RunStore
from migverify_lab.fleet import MadeFleet


def test_a_service_without_a_drill_is_forecast_from_those_of_others(fleet: MadeFleet) -> None:
    for number in range(2):
        fleet.drill("orders", number)
    views = read_fleet(load_fleet(fleet.write()))
    found = runbook_forecasts(views)
    assert found["orders"] == found["users"]
    assert (found["users"].drills, found["users"].unknown) == (2, ())
    planned = duration_of(fleet.runbook("users"), RunKind.LIVE)([60.0] * fleet.steps)
    assert found["users"].p90 is not None
    assert found["users"].p50 < planned, "the drills took no time, the plan does"  # type: ignore[operator]
    assert runbook_forecasts(views) == found


def test_without_drills_the_plan_counts_and_without_either_it_is_not_known(fleet: MadeFleet) -> None:
    views = read_fleet(load_fleet(fleet.write()))
    planned = duration_of(fleet.runbook("users"), RunKind.LIVE)([60.0] * fleet.steps)
    found = runbook_forecasts(views)["users"]
    assert (found.p50, found.p90, found.drills) == (planned, planned, 0)
    path = fleet.folder / "cutover.yaml"
    path.write_text(path.read_text().replace("time: {plan: 60s, max: 10m}", "time: {max: 10m}"))
    state = read_state(load_fleet(fleet.folder / "fleet.yaml"), 0.0)
    found = state.forecasts["users"]
    assert (found.p50, len(found.unknown)) == (None, fleet.steps)
    assert state.waves[0].fits is None
    assert "it is not known how long the cutover of orders, users takes" in state.waves[0].finding


@pytest.mark.parametrize(("parallel", "fits"), [(1, False), (2, True)])
def test_a_wave_that_does_not_fit_into_its_window_is_a_finding(fleet: MadeFleet, parallel: int, fits: bool) -> None:
    for name in fleet.services:
        fleet.all_fine(name)
    took = runbook_forecasts(read_fleet(load_fleet(fleet.write())))["users"].p90 or 0.0
    window = {"start": "2030-01-01T00:00", "duration": f"{took * 1.5:.0f}s"}
    fleet.write(waves=[{"name": "first", "window": window, "parallel": parallel}])
    state = read_state(load_fleet(fleet.folder / "fleet.yaml"), 0.0)
    (wave,) = state.waves
    assert wave.fits is fits
    assert (wave.finding == "") is fits
    if not fits:
        assert "2 cutovers, one after the other, take" in wave.finding
        assert state.verdict is Verdict.MISMATCH
    one = read_state(load_fleet(fleet.folder / "fleet.yaml"), 0.0, lambda service: service.name == "users")
    assert one.waves[0].fits is fits, "all services of the wave count, whichever are shown"


def test_what_counts_is_what_an_open_window_has_left(fleet: MadeFleet) -> None:
    for name in fleet.services:
        fleet.all_fine(name)
    took = runbook_forecasts(read_fleet(load_fleet(fleet.write())))["users"].p90 or 0.0
    now = time.time()
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    fleet.write(waves=[{"name": "first", "window": {"start": start, "duration": f"{took * 4:.0f}s"}}])
    definition = load_fleet(fleet.folder / "fleet.yaml")
    opens = definition.waves[0].window.opens
    for left, fits in ((4.0, True), (2.5, True), (1.5, False), (0.1, False)):
        (wave,) = read_state(definition, opens + took * (4 - left)).waves
        assert wave.fits is fits, left
        assert ("left" in wave.finding) is not fits
    (wave,) = read_state(definition, opens - 3600).waves
    assert wave.fits is True
    fleet.drill("orders", 9, live=True, ends=False)  # it goes on, and has been for a while
    began = max(run.started for run in past_runs(RunStore(fleet.folder / "drills")))
    fleet.write(waves=[{"name": "first", "window": {"start": start, "duration": f"{took * 4:.0f}s"}}])
    (wave,) = read_state(definition, max(began, opens) + took * 0.8).waves
    assert wave.p90 is not None
    assert wave.p90 <= took * 1.3, "what the one that goes on has behind it is not left"
    (wave,) = read_state(definition, max(began, opens) + took * 1.1).waves
    assert wave.fits is None, "it takes longer than it can, or nobody is at it any more"
    assert "orders: it goes on for " in wave.finding
    time.sleep(0.01)
    fleet.drill("orders", 10, live=True, ends=False)  # the one before it was left
    newest = max(run.started for run in past_runs(RunStore(fleet.folder / "drills")))
    (wave,) = read_state(definition, newest + 0.001).waves
    assert wave.p90 is not None
    assert wave.p90 > took * 1.5, "it has begun just now"


def test_cutovers_that_do_not_fit_are_too_many_whatever_the_unknown_ones_take(fleet: MadeFleet) -> None:
    for name in fleet.services:
        fleet.all_fine(name)
    took = runbook_forecasts(read_fleet(load_fleet(fleet.write())))["users"].p90 or 0.0
    fleet.add("bills")
    entries = [fleet.entry("orders"), fleet.entry("users"), {**fleet.entry("bills"), "runbook": None}]
    for share, fits in ((1.5, False), (2.5, None)):
        window = {"start": "2030-01-01T00:00", "duration": f"{took * share:.0f}s"}
        fleet.write(waves=[{"name": "first", "window": window}], services=entries)
        (wave,) = read_state(load_fleet(fleet.folder / "fleet.yaml"), 0.0).waves
        assert (wave.fits, wave.p90) == (fits, None)
        assert ("2 cutovers, one after the other, take" in wave.finding) is (fits is False)
        assert wave.finding.endswith("it is not known how long the cutover of bills takes (bills: no runbook is named)")


def test_a_window_that_is_over_is_a_finding_of_its_wave_and_of_its_services(ready: MadeFleet) -> None:
    ready.drill("users", 1, live=True)
    path = ready.write(waves=[{"name": "first", "window": {"start": "2020-01-01T22:00", "duration": "4h"}}])
    state = read_state(load_fleet(path), time.time())
    (wave,) = state.waves
    assert (wave.is_over, wave.verdict, state.verdict) == (True, Verdict.MISMATCH, Verdict.MISMATCH)
    assert "and 1 service of it is not cut over" in wave.finding
    orders, users = state.views
    assert (orders.state.standing, users.state.standing) == (ServiceStanding.NOT_READY, ServiceStanding.CUT_OVER)
    report = fleet_report(state)
    assert report.headline.startswith("No window opens within a day; the window of 1 service is over.")
    metrics = {metric.name: metric for metric in report.metrics}
    assert not list(metrics["migverify_fleet_wave_fits"].samples)
    ready.drill("orders", 1, live=True)
    state = read_state(load_fleet(path), time.time())
    assert (state.waves[0].is_over, state.verdict) == (False, Verdict.MATCH)


def test_what_is_prepared_for_samples_is_what_a_forecast_says(fleet: MadeFleet) -> None:
    book = fleet.runbook("orders")
    lasts = [10.0 * (number + 1) for number in range(fleet.steps)]
    expected = {step.id: Estimate(took, took, 1) for step, took in zip(book.steps, lasts, strict=True)}
    for kind in (RunKind.LIVE, RunKind.REHEARSAL, RunKind.DRY):
        told = forecast(book, kind, expected, Progress(), 0.0)
        assert duration_of(book, kind)(lasts) == pytest.approx(told.finish_p90)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20), st.integers(1, 30))
def test_the_time_of_a_wave_is_between_its_longest_cutover_and_the_sum(durations: list[float], parallel: int) -> None:
    found = makespan(durations, parallel)
    assert max(durations) <= found <= sum(durations) * (1 + 1e-9)
    assert makespan(durations, 1) == pytest.approx(sum(durations))
    assert makespan(durations, 100) == max(durations)
