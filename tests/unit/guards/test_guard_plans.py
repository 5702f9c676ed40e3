"""The guard of plans: what is drift and what is not known; an answer about nothing is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from migverify.guards.model import AnswerState
from migverify.guards.plans import DigestDrift, PlanDrifts, PlansGuard
from migverify.model import Side, Verdict
from migverify.workload.plans.doubts import write_remedy
from migverify.workload.plans.drift import PlanRecord, not_compared
from migverify.workload.plans.model import DigestPlans, PlanAnswer, QueryPlan, SamplePlans

SAME = DigestDrift("a" * 64, "SELECT ?", 10, "index lookup by_code of o")
NO_WORSE = replace(SAME, digest="b" * 64, change="x became y", before=10, now=20)
WORSE = replace(SAME, digest="c" * 64, change="x became y; since then: o lost index by_code", is_worse=True)
NEW = replace(SAME, digest="d" * 64, unknown="the baseline has no plan of it")
DRIFTS = PlanDrifts("r1", "2026-01-01 00:00:00 UTC", 4, "8.5.1", "8.5.1")


def asked(*digests: DigestDrift, drifts: PlanDrifts = DRIFTS) -> PlansGuard:
    return PlansGuard(lambda: replace(drifts, digests=digests), "captures/peak")


@pytest.mark.parametrize(
    ("digests", "verdict"),
    [((SAME,), Verdict.MATCH), ((SAME, NO_WORSE), Verdict.MATCH), ((SAME, NEW), Verdict.INCONCLUSIVE),
     ((NEW, WORSE), Verdict.MISMATCH), ((), Verdict.INCONCLUSIVE)],
)  # fmt: skip
def test_only_plans_that_are_known_and_no_worse_pass(digests: tuple[DigestDrift, ...], verdict: Verdict) -> None:
    assert asked(*digests).ask().verdict is verdict


def test_what_is_not_known_has_advice_of_its_own() -> None:
    """A binding holds a plan; it does not help where there is none."""
    denied = replace(
        NEW, unknown="no plan of the target: 1142 INSERT command denied", todo=write_remedy("INSERT command denied")
    )
    first, second = asked(NEW, replace(denied, digest="e" * 64)).ask().answers[1:]
    assert "CREATE GLOBAL BINDING" not in first.todo + second.todo
    assert "migverify workload plans" in first.todo
    assert "--reads-only" in second.todo
    assert "CREATE GLOBAL BINDING" in asked(WORSE).ask().answers[1].todo


def test_without_a_baseline_nothing_is_known() -> None:
    found = asked(SAME, drifts=replace(DRIFTS, run="", held=0)).ask()
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "migverify workload plans" in found.answers[0].todo


def test_another_version_is_told_and_alone_no_failure() -> None:
    (first, *_) = asked(SAME, drifts=replace(DRIFTS, version_now="8.5.2")).ask().answers
    assert (first.state, "the target is 8.5.2 now" in first.value) == (AnswerState.WARN, True)


def test_an_answer_names_what_changed_and_the_command_that_shows_it() -> None:
    answer = asked(WORSE).ask().answers[1]
    assert (answer.subject, answer.state) == (f"target/{'c' * 16}", AnswerState.FAIL)
    assert "o lost index by_code" in answer.value
    assert answer.query == f"migverify workload plans captures/peak --digest {'c' * 16} --since r1"


def test_what_cannot_be_compared_is_said() -> None:
    def plans(*answers: PlanAnswer, skipped: str = "") -> DigestPlans:
        samples = tuple(SamplePlans("x:1", b"SELECT 1", {Side.TARGET: one}) for one in answers)
        return DigestPlans("d", "SELECT ?", "shop", ("o",), 1, None, samples, skipped)

    seen, read = PlanRecord("d", "8.5.1", {"x": 1.0}), PlanAnswer(QueryPlan())
    assert not_compared(seen, plans(read)) == ""
    assert "1146" in not_compared(seen, plans(read, PlanAnswer(reason="1146 no table")))
    assert not_compared(seen, plans(skipped="masked")) == "masked"
    assert "no call" in not_compared(seen, plans())
    assert "has no plan of it" in not_compared(None, plans(read))
    failed = SamplePlans("x:1", b"SELECT x", {Side.TARGET: PlanAnswer(reason="1054", errno=1054)}, 1054)
    assert not_compared(replace(seen, shapes={}), replace(plans(), samples=(failed,))) == ""
    assert "is not known" in not_compared(replace(seen, shapes={}), plans(read))
