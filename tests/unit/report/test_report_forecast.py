"""The load of a replay in every form of its report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from migverify.model import StoredKind
from migverify.report.forecast import interval_text, limit_text, seconds_text
from migverify.report.forecast_chart import load_chart
from migverify.report.model import ReportOptions
from migverify.report.read import read_report
from migverify.report.render import Format, render
from migverify.store.open import open_store
from migverify.store.results import ResultStore
from migverify.workload.forecast.levels import judge_headroom
from migverify.workload.forecast.model import (
    DigestUse,
    ForecastPoint,
    LevelAtLoad,
    LevelForecast,
    LevelState,
    LoadForecast,
    LoadLimit,
    MeasuredLoad,
    Parallelism,
)
from migverify.workload.forecast.store import write_forecast
from migverify.workload.replay.model import JudgedCall, Judgement
from migverify.workload.replay.store import write_replay
from migverify.workload.replay.tally import ReplayTally
from migverify.workload.replay.verdict import verdict

HOSTILE = "SELECT `</text><script>alert(1)</script>`"
LEVEL = LevelForecast(
    "checkout", "*item*", 0.99, 0.25,
    (LevelAtLoad(1.0, 5_000, 0.05, 0.04, 0.06, LevelState.MET),
     LevelAtLoad(1.3, 5_000, 2.8, 2.7, 2.9, LevelState.MISSED)),
    (ForecastPoint(0.5, 0.02, 0.05), ForecastPoint(1.0, 0.04, 0.3), ForecastPoint(1.3, 0.1, None)),
    LoadLimit(1.1, False, 1.3, True), LevelState.MET, 1.3, LevelState.MISSED,
)  # fmt: skip
LOAD = LoadForecast(
    60.0, 83.3, 120.0, 10.0, Parallelism(4, 6), (0.4, 0.6), (0.55, 0.82),
    (MeasuredLoad(1.0, 5_000, 60.0, 83.3, 2.5, 0.002), MeasuredLoad(1.3, 5_000, 46.0, 108.0, 9.0, 0.003)),
    (LEVEL,), (DigestUse("d1", HOSTILE, 0.6, 40.0, 55.0, 0.02, 2_400),),
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with closing(open_store(f"sqlite:///{tmp_path}/store.db")) as opened:
        yield opened


def written(store: ResultStore, load: LoadForecast | None) -> str:
    """Write a run whose target is slower on one digest."""
    tally = ReplayTally()
    for number in range(1_000):
        service = 30_000 + number
        tally.add(JudgedCall("a", number, "d1", Judgement.SAME, source_latency=1_000 + number % 100,
                             target_latency=service, source_service=1_000, target_service=service))  # fmt: skip
    tally.describe("d1", "SELECT `v` FROM `item`", "read")
    levels = [] if load is None else judge_headroom(load)
    found = verdict(tally, slo=levels)
    run = store.start_run("workload replay c", "h", {"kind": "replay"}, {}, kind=StoredKind.REPLAY)
    if load is not None:
        write_forecast(store, run, load)
    write_replay(store, run, tally, found, facts={"slo": [asdict(one) for one in levels]}, seconds=60.0)
    store.finish_run(run, found.verdict, {"seconds": 60.0, "reasons": list(found.reasons)})
    return run


def forms(store: ResultStore, load: LoadForecast | None) -> dict[Format, str]:
    report = read_report(store, written(store, load), ReportOptions())
    return {form: render(report, form) for form in Format}


def test_every_form_tells_the_load(store: ResultStore) -> None:
    made = forms(store, LOAD)
    text = made[Format.TEXT]
    assert text.startswith("MISMATCH")
    assert "83.3 calls/s in 60.0 s, 120/s in the busiest 10.0 s" in text
    assert "4 to 6 statements (measured)" in text
    assert "forecast of utilization  40 % to 60 %; in the busiest 10.0 s 55 % to 82 %" in text
    assert "between 1.1x (forecast) and 1.3x (measured) of the captured load" in text
    assert "at 1.3x the captured load: missed" in text
    body = json.loads(made[Format.JSON])
    assert LoadForecast.from_json(body["forecast"]) == LOAD
    assert body["service_levels"][0]["interval"] == [2.7, 2.9]
    cases = {case.get("name"): case for case in Xml.fromstring(made[Format.JUNIT]).iter("testcase")}  # noqa: S314 - our own
    failure = cases["service level checkout at 1.3x"].find("failure")
    assert failure is not None
    assert "p99 is 2.800 s at 1.3x the captured load, not below 0.25 s" in str(failure.get("message"))
    assert '<svg class="load"' in made[Format.HTML]
    assert "<script>alert" not in made[Format.HTML]
    assert (
        'migverify_replay_load_limit{level="checkout",bound="latest",by="measurement"} 1.3' in made[Format.PROMETHEUS]
    )


def test_every_form_tells_quantiles_with_intervals_and_what_is_slower_for_certain(store: ResultStore) -> None:
    made = forms(store, None)
    assert "slower on the target for certain: 1 digest" in made[Format.TEXT]
    for form in (Format.TEXT, Format.HTML):
        assert "Latency of digests" in made[form]
        assert "30.2 ms to 30.7 ms" in made[form]  # p50 of the target, by the edges of its buckets
    quantiles = json.loads(made[Format.JSON])["digests"][0]["latency_quantiles"]
    assert quantiles["target"]["p50"] == {"value": 30_719, "low": 30_208, "high": 30_719, "count": 1_000}
    (out,) = (case.findtext("system-out") for case in Xml.fromstring(made[Format.JUNIT]).iter("testcase")  # noqa: S314 - our own
              if str(case.get("name")).startswith("SELECT"))  # fmt: skip
    assert out is not None
    assert "latency on the target: p50" in out
    assert "slower for certain at p50 by" in out


def test_a_run_without_a_forecast_has_no_section_of_it(store: ResultStore) -> None:
    made = forms(store, None)
    assert "forecast" not in json.loads(made[Format.JSON])
    assert 'id="load"' not in made[Format.HTML]


def test_what_is_not_known_is_said_first_with_its_remedy(store: ResultStore) -> None:
    reason = "the run was resumed: replay without a stop"
    level = replace(LEVEL, measured=(), curve=(), limit=LoadLimit(None, False, None, False),
                    captured=LevelState.NOT_KNOWN, at_headroom=LevelState.NOT_KNOWN)  # fmt: skip
    unknown = replace(LOAD, reasons=(reason,), parallelism=None, utilization=None, peak_utilization=None,
                      loads=(MeasuredLoad(1.0, 0, 0.0, 0.0, 0.0, None, (reason,)),), levels=(level,),
                      uses=())  # fmt: skip
    made = forms(store, unknown)
    assert made[Format.TEXT].startswith("INCONCLUSIVE")
    assert "at 1.3x the captured load: not known" in made[Format.TEXT]
    assert made[Format.TEXT].count(reason) >= 2
    assert '<svg class="load"' not in made[Format.HTML]
    errors = [case.get("name") for case in Xml.fromstring(made[Format.JUNIT]).iter("testcase")  # noqa: S314 - our own
              if case.find("error") is not None]  # fmt: skip
    assert "service level checkout at 1.3x" in errors


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (LoadLimit(None, False, None, False), "at which load the level stops being met is not known"),
        (LoadLimit(2.0, True, None, False), "the level is met up to 2x (measured) of the captured load; how much more"),
        (LoadLimit(None, False, 1.0, True), "the level is missed at 1x (measured) of the captured load and beyond"),
        (LoadLimit(1.0, True, 1.24, False), "between 1x (measured) and 1.24x (forecast) of the captured load"),
    ],
)
def test_the_limit_is_one_sentence(limit: LoadLimit, said: str) -> None:
    assert said in limit_text(limit)


def test_figures() -> None:
    assert (seconds_text(None), seconds_text(0.0123), seconds_text(2.5)) == ("-", "12.3 ms", "2.5 s")
    assert [interval_text(*ends) for ends in ((0.1, 0.2), (0.1, None), (None, 0.2), (None, None))] == [
        "100 ms to 200 ms", "100 ms or more", "up to 200 ms", "not bounded",
    ]  # fmt: skip


def test_the_chart_draws_what_has_no_upper_bound_to_its_top() -> None:
    drawing = str(load_chart(LEVEL))
    assert 'class="band"' in drawing
    assert drawing.count('class="measured"') == 2
    assert "nan" not in drawing
    assert "inf" not in drawing
    assert load_chart(replace(LEVEL, measured=())) == ""
