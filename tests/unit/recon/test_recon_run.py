"""Runs of rules: what is kept when, what is done again, what is refused; no server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from migverify.errors import ConfigError, EndpointError, PlanError, UsageError
from migverify.model import StoredKind, Verdict
from migverify.recon.build import Built
from migverify.recon.fields import WindowRule
from migverify.recon.model import Window
from migverify.recon.rule import Rule, RuleSet
from migverify.recon.run import IMMUTABLE, RulesRequest, RuleTools, run_rules
from migverify.recon.steps import EvaluationPeriod, steps_of
from migverify.recon.windows import moment_of
from tests.fakes import FakeStore
from tests.rule_fakes import (
    START,
    Clock,
    FakeEngine,
    Rows,
    built,
    changed,
    column,
    excused,
    held,
    relation,
    rule_of,
    rule_set,
)

PAY = rule_of("same_rows", target="payments", name="pay", rereads=0)
NEXT = changed(PAY, name="next")
KEY, VALUES = [column("id", "bigint")], [column("amount")]
READS = built(relation("orders", KEY, VALUES), relation("payments", KEY, VALUES))
EQUAL: Mapping[str, Rows] = {"orders": {("1",): held("1")}, "payments": {("1",): held("1")}}
UNLIKE: Mapping[str, Rows] = {"orders": {("1",): held("1")}, "payments": {("1",): held("2")}}
HOUR = timedelta(hours=1)
NOW = moment_of(START)


def both(*rules: Rule) -> RuleSet:
    return replace(rule_set(rules[0]), rules=tuple(rules))


class Builder:
    """Counts what is built, and fails where a test says so."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Window | None]] = []
        self.errors: dict[str, BaseException] = {}

    def __call__(self, rule: Rule, window: Window | None) -> Built:
        self.calls.append((rule.name, window))
        if rule.name in self.errors:
            raise self.errors[rule.name]
        return READS


def tools(engine: FakeEngine, clock: Clock, builder: Builder | None = None) -> RuleTools:
    return RuleTools(engine, builder or Builder(), conditions=clock.conditions())


def test_the_worst_rule_is_the_verdict_of_the_run_and_each_has_a_result() -> None:
    clock, store = Clock(), FakeStore()
    run_id, verdict = run_rules(
        both(PAY, NEXT), tools(FakeEngine(clock, UNLIKE), clock), store, RulesRequest("recon run")
    )
    results = {result.pair: result for result in store.table_results(run_id)}
    assert verdict is Verdict.MISMATCH
    assert set(results) == {"pay", "next"}
    assert store.load_run(run_id).verdict is Verdict.MISMATCH
    assert results["pay"].details["recon"]["counts"] == {"value mismatch": 1}


def test_an_error_of_one_rule_does_not_stop_the_others() -> None:
    clock, store, builder = Clock(), FakeStore(), Builder()
    builder.errors["pay"] = EndpointError("source: connection refused")
    run_id, verdict = run_rules(
        both(PAY, NEXT), tools(FakeEngine(clock, EQUAL), clock, builder), store, RulesRequest("recon run")
    )
    results = {result.pair: result for result in store.table_results(run_id)}
    assert verdict is Verdict.INCONCLUSIVE
    assert results["pay"].reasons == ("not evaluated: source: connection refused",)
    assert results["next"].verdict is Verdict.MATCH


def test_a_rule_that_does_not_fit_is_refused_before_anything_runs() -> None:
    clock, store, builder = Clock(), FakeStore(), Builder()
    builder.errors["next"] = ConfigError("rules.yaml:9: rule next: no column x")
    with pytest.raises(ConfigError, match="no column x"):
        run_rules(both(PAY, NEXT), tools(FakeEngine(clock, EQUAL), clock, builder), store, RulesRequest("recon run"))
    assert store.runs() == []


def test_all_rules_that_do_not_fit_are_refused_together() -> None:
    clock, store, builder = Clock(), FakeStore(), Builder()
    third = changed(PAY, name="third")
    suite = rule_of("expectations", name="suite", suite=[])
    builder.errors |= {
        "pay": ConfigError("rules.yaml:7: rule pay: no column x"), "next": EndpointError("source: connection refused"),
        "third": ConfigError("rules.yaml:9: rule third: no column y"),
        "suite": ConfigError("rules.yaml:7: rule suite: no column z"),
    }  # fmt: skip
    with pytest.raises(ConfigError) as refused:
        run_rules(
            both(PAY, NEXT, third, suite),
            tools(FakeEngine(clock, EQUAL), clock, builder),
            store,
            RulesRequest("recon run"),
        )
    for words in ("3 problems, and nothing was run", "rule pay: no column", "rule third: no column", "rule suite: "):
        assert words in refused.value.message
    assert "connection refused" not in refused.value.message
    assert store.runs() == []


WINDOWED = changed(PAY, window=WindowRule(every=3600.0))
DAY = EvaluationPeriod(datetime(2027, 1, 14), datetime(2027, 1, 14, 4))


def windowed_set(rule: Rule = WINDOWED) -> RuleSet:
    rules = rule_set(rule)
    return replace(rules, datasets={n: replace(d, time="at") for n, d in rules.datasets.items()})


class Interrupting(FakeEngine):
    """Stops like Ctrl-C at the n-th join."""

    def __init__(self, clock: Clock, world: Mapping[str, Rows], at: int) -> None:
        super().__init__(clock, world)
        self.left = at

    def join(self, source: Any, target: Any, keep: Any) -> Any:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt
        return super().join(source, target, keep)


@pytest.mark.parametrize("at", [1, 2, 4])
def test_ctrl_c_keeps_what_is_finished_and_resume_skips_it(at: int) -> None:
    clock, store = Clock(), FakeStore()
    request = RulesRequest("recon run", DAY)
    with pytest.raises(KeyboardInterrupt):
        run_rules(windowed_set(), tools(Interrupting(clock, UNLIKE, at), clock), store, request)
    info = store.runs()[0]
    assert (info.verdict, info.facts["reasons"]) == (Verdict.INCONCLUSIVE, ["interrupted; resume it"])
    first = {body["window"]: body for body in store.windows(info.run_id, "pay") if body["state"] == "done"}
    assert len(first) == at - 1
    engine = Interrupting(clock, UNLIKE, 100)
    store.start_run("migverify check", "", {"guards": ["check"]}, {}, kind=StoredKind.GUARDS)
    run_id, verdict = run_rules(windowed_set(), tools(engine, clock), store, replace(request, resume="last"))
    assert (run_id, verdict) == (info.run_id, Verdict.MISMATCH)
    assert 100 - engine.left == 4 - len(first)
    ended = {body["window"]: body for body in store.windows(run_id, "pay")}
    assert len(ended) == 4
    assert all(ended[name] == body for name, body in first.items())
    assert len(store.findings(run_id, "pay")) == 4


def test_a_run_of_other_rules_is_not_resumed() -> None:
    clock, store = Clock(), FakeStore()
    run_id, _ = run_rules(both(PAY), tools(FakeEngine(clock, EQUAL), clock), store, RulesRequest("recon run"))
    with pytest.raises(PlanError, match="other rules"):
        run_rules(
            both(PAY, NEXT), tools(FakeEngine(clock, EQUAL), clock), store, RulesRequest("recon run", resume=run_id)
        )


def test_immutable_windows_that_matched_are_not_read_again() -> None:
    rules = windowed_set(changed(WINDOWED, window=WindowRule(every=3600.0, immutable=3600.0)))
    clock, store = Clock(), FakeStore()
    run_rules(rules, tools(FakeEngine(clock, EQUAL), clock), store, RulesRequest("recon run", DAY))
    for number in (2, 3):
        engine = Interrupting(clock, EQUAL, 100)
        run_id, verdict = run_rules(rules, tools(engine, clock), store, RulesRequest(f"run {number}", DAY))
        assert (verdict, engine.left) == (Verdict.MATCH, 100)
        (result,) = store.table_results(run_id)
        assert result.reasons[0].endswith(f"{IMMUTABLE} run-000001"), "the run that read it is named, not a later one"
        assert (result.rows_source, result.chunks) == (4, 4)
    engine = Interrupting(clock, EQUAL, 100)
    run_rules(rules, tools(engine, clock), store, RulesRequest("recon run", DAY, full=True))
    assert engine.left == 96


@pytest.mark.parametrize(
    ("values", "address", "read"),
    [({"tenant": 7}, "db1:3306", 0), ({"tenant": 8}, "db1:3306", 4), ({"tenant": 7}, "staging:3306", 4)],
)
def test_immutable_windows_of_other_parameters_or_servers_are_read(values: Any, address: str, read: int) -> None:
    """They were MATCH of another tenant, or of staging, whatever this one has."""
    rules = windowed_set(changed(WINDOWED, window=WindowRule(every=3600.0, immutable=3600.0)))
    clock, store = Clock(), FakeStore()

    def asked(at: str, given: Any) -> RulesRequest:
        return RulesRequest("recon run", DAY, given, facts={"endpoints": {"source": {"address": at}}})

    run_rules(rules, tools(FakeEngine(clock, EQUAL), clock), store, asked("DB1:3306", {"tenant": 7}))
    engine = Interrupting(clock, UNLIKE, 100)
    verdict = run_rules(rules, tools(engine, clock), store, asked(address, values))[1]
    assert verdict is (Verdict.MISMATCH if read else Verdict.MATCH)
    assert (100 - engine.left > 0) is bool(read)


def test_an_exception_that_has_expired_excuses_no_immutable_window() -> None:
    clock, store = Clock(), FakeStore()
    rules = windowed_set(changed(WINDOWED, window=WindowRule(every=3600.0, immutable=3600.0)))
    rules = replace(rules, exceptions=(excused("pay", None, "ann", "ticket 7", NOW + HOUR),))

    def verdict_now() -> tuple[Verdict, int]:
        engine = Interrupting(clock, UNLIKE, 100)
        return run_rules(rules, tools(engine, clock), store, RulesRequest("recon run", DAY))[1], engine.left

    assert verdict_now()[0] is Verdict.MATCH
    assert verdict_now() == (Verdict.MATCH, 100), "it is known, and is not read again"
    clock.at += 7200
    assert verdict_now()[0] is Verdict.MISMATCH


def test_the_last_run_to_resume_is_of_these_servers() -> None:
    """Staging has the same rules and shares the store: its windows would be those of production."""
    clock, store = Clock(), FakeStore()

    def run_at(address: str, resume: str | None = None, reads: int = 100) -> str:
        facts = {"endpoints": {"source": {"address": address}}}
        request = RulesRequest("recon run", DAY, resume=resume, facts=facts)
        return run_rules(windowed_set(), tools(Interrupting(clock, EQUAL, reads), clock), store, request)[0]

    with pytest.raises(KeyboardInterrupt):
        run_at("db1:3306", reads=1)
    with pytest.raises(KeyboardInterrupt):
        run_at("staging:3306", reads=1)
    with pytest.raises(UsageError, match="no run of rules yet that `last` could mean"):
        run_at("db2:3306", "last")
    with pytest.raises(PlanError, match="source is db2:3306 now; run run-000001 read another server, db1:3306"):
        run_at("db2:3306", "run-000001")
    assert run_at("DB1:3306", "last") == "run-000001"


def test_windows_that_did_not_match_are_read_again() -> None:
    rules = windowed_set(changed(WINDOWED, window=WindowRule(every=3600.0, immutable=3600.0)))
    clock, store = Clock(), FakeStore()
    run_rules(rules, tools(FakeEngine(clock, UNLIKE), clock), store, RulesRequest("recon run", DAY))
    engine = Interrupting(clock, EQUAL, 100)
    assert run_rules(rules, tools(engine, clock), store, RulesRequest("recon run", DAY))[1] is Verdict.MATCH
    assert engine.left == 96


def test_a_rule_whose_windows_are_all_open_is_no_match() -> None:
    rules = replace(windowed_set(), rules=(WINDOWED, NEXT))
    clock, store = Clock(), FakeStore()
    late = EvaluationPeriod(NOW, NOW + HOUR)
    run_id, verdict = run_rules(rules, tools(FakeEngine(clock, EQUAL), clock), store, RulesRequest("recon run", late))
    results = {result.pair: result for result in store.table_results(run_id)}
    assert verdict is Verdict.INCONCLUSIVE
    assert "no window is closed" in results["pay"].reasons[0]
    assert results["next"].verdict is Verdict.MATCH


class TestSteps:
    def windows(
        self, span: EvaluationPeriod, settle: float = 0.0, start: datetime | None = None
    ) -> list[Window | None]:
        rule = changed(WINDOWED, settle=settle, window=WindowRule(every=3600.0, start=start))
        return [step.window for step in steps_of(windowed_set(rule), span, START)]

    def test_windows_have_no_gap_and_end_with_the_span(self) -> None:
        found = [window for window in self.windows(DAY) if window is not None]
        assert [(w.start.hour, w.end.hour) for w in found] == [(0, 1), (1, 2), (2, 3), (3, 4)]

    def test_a_window_counts_when_its_settle_time_is_past(self) -> None:
        start = NOW - 3 * HOUR
        assert len(self.windows(EvaluationPeriod(start))) == 3
        assert len(self.windows(EvaluationPeriod(start), settle=1.0)) == 2

    def test_without_a_beginning_all_that_is_settled_is_one_window(self) -> None:
        (window,) = self.windows(EvaluationPeriod())
        assert window is not None
        assert (window.start.year, window.end) == (1970, NOW)

    def test_the_grid_may_have_a_beginning(self) -> None:
        assert len(self.windows(EvaluationPeriod(), start=NOW - 5 * HOUR)) == 5

    def test_an_empty_span_is_refused(self) -> None:
        with pytest.raises(UsageError, match="--from is not before --to"):
            list(steps_of(windowed_set(), EvaluationPeriod(NOW, NOW), START))

    def test_a_rule_without_time_is_one_step(self) -> None:
        assert [step.window for step in steps_of(both(PAY), DAY, START)] == [None]
