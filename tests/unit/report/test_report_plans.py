"""The report of plans: what hurts first, what is not known is not green, and a run without an end proves nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from migverify.model import Side, Verdict
from migverify.report.read import read_report
from migverify.report.render import Format, render
from migverify.store.open import open_store
from migverify.store.results import ResultStore
from migverify.workload.plans.drift import PlanRecord
from migverify.workload.plans.judge import JudgedPlans, PlanState
from migverify.workload.plans.model import (
    AccessPath,
    DigestPlans,
    Harm,
    PlanAnswer,
    PlanFinding,
    QueryPlan,
    SamplePlans,
    TableAccess,
    TrialResult,
)
from migverify.workload.plans.store import add_plans, finish_plans, plans_run, start_plans, stored_plans

PLAN = PlanAnswer(QueryPlan((TableAccess("orders", AccessPath.FULL_SCAN, "", 50_000.0),)))
HURTS = PlanFinding(Harm.FULL_SCAN, "orders", "whole table orders", "Try a hint.")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with closing(open_store(f"sqlite:///{tmp_path}/store.db")) as opened:
        yield opened


def judged(letter: str, *findings: PlanFinding, doubts: tuple[str, ...] = (), seconds: float = 1.0) -> JudgedPlans:
    sample = SamplePlans("x.log:1", b"SELECT 1", {Side.SOURCE: PLAN, Side.TARGET: PLAN})
    plans = DigestPlans(letter * 64, f"SELECT `{letter}`\x1b[31m <b>", "shop", ("orders",), 10, seconds, (sample,))
    return JudgedPlans(plans, findings, doubts)


def run_of(store: ResultStore, *found: JudgedPlans, verdict: Verdict | None = Verdict.MATCH) -> str:
    run_id = start_plans(store, "workload plans", "capture", {})
    for one in found:
        add_plans(store, run_id, one, PlanRecord(one.plans.digest, "8.5.0", {"whole table orders": 50_000.0}))
    if verdict is not None:
        finish_plans(store, run_id, verdict, (), 1.5)
    return run_id


def test_what_hurts_comes_first_then_what_is_not_known(store: ResultStore) -> None:
    run_id = run_of(store, judged("a", seconds=9), judged("b", doubts=("no plan",)), judged("c", HURTS, seconds=2),
                    judged("d", HURTS, seconds=3), verdict=Verdict.MISMATCH)  # fmt: skip
    data = read_report(store, run_id)
    assert data.verdict is Verdict.MISMATCH
    assert [one["digest"][0] for one in data.document["digests"]] == ["d", "c", "b", "a"]
    assert data.reasons == ("2 of 4 digests: hurts", "1 of 4 digests: not known")
    text = render(data, Format.TEXT)
    assert "Try a hint." in text
    assert text.index("full scan: whole table orders") < text.index("not known: no plan")
    assert "\x1b[31m" not in text


@pytest.mark.parametrize("form", list(Format))
def test_every_form_is_rendered_and_nothing_is_markup(store: ResultStore, form: Format) -> None:
    text = render(read_report(store, run_of(store, judged("a", HURTS), verdict=Verdict.MISMATCH)), form)
    assert "MISMATCH" in text or 'verdict="MISMATCH"' in text or "failures=" in text
    if form is Format.HTML:
        assert "31m <b>" not in text
        assert "31m &lt;b&gt;" in text


def test_a_run_says_no_more_than_its_digests(store: ResultStore) -> None:
    """Not of a run that was cut off, not of one that claims MATCH over a bad digest, not of one without digests."""
    assert read_report(store, run_of(store, judged("a"))).verdict is Verdict.MATCH
    assert read_report(store, run_of(store, judged("a"), verdict=None)).verdict is Verdict.INCONCLUSIVE
    assert read_report(store, run_of(store, judged("a", HURTS))).verdict is Verdict.MISMATCH
    assert read_report(store, run_of(store)).verdict is Verdict.INCONCLUSIVE


def test_what_was_tried_on_a_clone_is_shown_with_its_figures(store: ResultStore) -> None:
    """Also for a digest that is not known: ANALYZE is a remedy, too."""
    trial = TrialResult("ALTER TABLE t ADD INDEX c (code)", "drill-3", (10_000.0, 12.0), (8_000, 400), (30, 30), True)
    tried = replace(judged("a", HURTS), trials=(trial,))
    run_id = run_of(store, tried, judged("b"), verdict=Verdict.MISMATCH)
    data = read_report(store, run_id)
    shown = "tried on clone drill-3: rows 10,000 -> 12, p50 8.0 ms -> 0.4 ms in 30 and 30 calls"
    for form in (Format.TEXT, Format.HTML):
        text = render(data, form).replace("&gt;", ">")
        assert shown in text
        assert "ALTER TABLE t ADD INDEX c (code)" in text
    assert data.document["digests"][0]["trials"][0]["rows"] == [10_000.0, 12.0]
    assert "trials" not in data.document["digests"][1]
    assert [one.trials for one in stored_plans(store, run_id)] == [(trial,), ()]


def test_what_is_stored_is_read_again(store: ResultStore) -> None:
    first = run_of(store, judged("a", HURTS, doubts=("why",)), verdict=Verdict.MISMATCH)
    run_of(store, judged("b"), verdict=None)
    assert plans_run(store, "last").run_id == first, "one without an end is no baseline"
    (one,) = stored_plans(store, first)
    assert (one.findings, one.doubts, one.state, one.plans["target"]) == (
        (HURTS,), ("why",), PlanState.HURTS, "whole table orders (about 50,000 rows)",
    )  # fmt: skip
    assert json.loads(json.dumps(one.as_json())) == one.as_json()
