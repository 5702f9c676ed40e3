"""A run of rules in every form of the report, and as CSV: exact amounts, masks, hostile names."""

from __future__ import annotations

import csv
import json
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.model import Verdict
from migverify.recon.keep import keep_window, known_windows
from migverify.recon.listing import COLUMNS, safe, unsafe, write_csv
from migverify.recon.model import Anchor, Class, Covered, Deviation, Finding, Kind, Money, Rule, RuleResult
from migverify.recon.outcome import rule_result
from migverify.report.as_json import run_as_dict
from migverify.report.render import Format, render
from migverify.report.summary import ReportData, ReportOptions, read_report
from migverify.store.base import ResultStore
from tests.fakes import FakeStore
from tests.report_runs import HOSTILE
from tests.rule_fakes import PLACE, rule_set

PAY = Rule("pay", Kind.SAME_ROWS, "orders", "payments", PLACE, money=Money("amount", "'EUR'"), owner="ann")
BIG = "9007199254740993.0001"


def finding(key: str, kind: Class = Class.VALUE_MISMATCH, **more: Any) -> Finding:
    deviation = Deviation("amount", "secret 1", "secret 2", "value")
    fields: dict[str, Any] = {"message": f"payment {key}: amount secret 1 on orders, secret 2 on payments",
                              "deviations": (deviation,), "money": Decimal(BIG), "currency": "EUR", "counts": (1, 1),
                              "reads": 3, "at": 1_800_000_000.0}  # fmt: skip
    return Finding("pay", (key,), kind, Class.VALUE_MISMATCH, **{**fields, **more})


def stored(store: ResultStore, rule: Rule = PAY, *findings: Finding, verdict: Verdict = Verdict.MISMATCH) -> str:
    run = store.start_run(
        "recon run", "plan", {"rules": [rule.name], "pairs": [{"id": rule.name}]}, {"engine": "local"}
    )
    found = findings or (finding("1"), finding("2", Class.KNOWN_EXCEPTION, reason="known exception of bob"))
    counts: dict[Class, int] = {}
    for one in found:
        counts[one.kind] = counts.get(one.kind, 0) + 1
    anchor = Anchor("source", "mysql", "consistent snapshot", "binlog.000012:4711", "", True, 1.0)
    result = RuleResult(
        rule.name, None, verdict, ("1 key has unlike values",), Covered(10, 11, 9), counts,
        {(kind, "EUR"): Decimal(BIG) for kind in counts}, (anchor,), 1.5, {"EUR": Decimal(BIG)},
        {"EUR": Decimal("90071992547409930.001")},
    )  # fmt: skip

    def evaluate(sink: Any) -> RuleResult:
        sink(found)
        return result

    keep_window(store, run, rule.name, None, evaluate, show=True)
    store.add_table_result(run, rule_result(rule, rule_set(rule), [result], planned=1))
    store.finish_run(run, verdict, {"seconds": 2.0})
    return run


def report(*, values: bool = True, rule: Rule = PAY, found: tuple[Finding, ...] = ()) -> ReportData:
    store = FakeStore()
    return read_report(store, stored(store, rule, *found), ReportOptions(values=values))


@pytest.mark.parametrize("form", Format)
def test_every_form_tells_the_rule_its_findings_and_its_money_exactly(form: Format) -> None:
    text = render(report(), form)
    for part in ("pay", BIG, "ann", "same_rows", "critical", "known exception"):
        assert part in text, part
    if form is not Format.PROMETHEUS:
        assert "binlog.000012:4711" in text
        assert "secret 1 on orders" in text


@pytest.mark.parametrize("form", Format)
def test_values_are_withheld_unless_asked_for(form: Format) -> None:
    assert "secret" not in render(report(values=False), form)


@pytest.mark.parametrize("form", Format)
def test_hostile_names_stay_text(form: Format) -> None:
    for name in HOSTILE:
        rule = Rule(name, Kind.NO_ROWS, "orders", None, PLACE, owner=name, description=name)
        bad = finding(name, message=name, reason=name, shard=name, currency=name)
        text = render(report(rule=rule, found=(Finding(**{**_fields(bad), "rule": name}),)), form)
        if form is Format.JUNIT:
            ElementTree.fromstring(text)  # noqa: S314 - our own text
        if form is Format.JSON:
            json.loads(text)
        if form is Format.HTML:
            assert "<script>alert(1)" not in text


def _fields(one: Finding) -> dict[str, Any]:
    return {name: getattr(one, name) for name in Finding.__dataclass_fields__}


def test_json_holds_rules_beside_tables() -> None:
    body = run_as_dict(report())
    assert set(body) == {"run_id", "verdict", "exit_code", "seconds", "tables", "rules"}
    (rule,) = body["rules"]
    assert body["tables"] == []
    assert (rule["rule"], rule["verdict"], rule["findings"]) == (
        "pay", "MISMATCH", {"value mismatch": 1, "known exception": 1},
    )  # fmt: skip
    assert {"class": "value mismatch", "currency": "EUR", "amount": BIG} in rule["money_at_risk"]
    assert rule["unexplained"] == {"EUR": BIG}
    assert rule["covered"]["matched"] == 9


def test_the_share_of_the_volume_is_told() -> None:
    (rule,) = report().rules
    assert rule.share("EUR") == "10 %"
    assert rule.share("JPY") == ""


def test_a_rule_without_a_result_is_not_finished() -> None:
    store = FakeStore()
    run = store.start_run("recon run", "plan", {"rules": ["pay"], "pairs": [{"id": "pay"}]}, {})
    store.finish_run(run, Verdict.MATCH, {})
    data = read_report(store, run)
    assert data.verdict is Verdict.INCONCLUSIVE
    assert [r.result.verdict for r in data.rules] == [Verdict.INCONCLUSIVE]


def test_a_window_that_was_cut_off_is_evaluated_again_from_its_beginning() -> None:
    store = FakeStore()
    run = store.start_run("recon run", "plan", {}, {})

    def killed(sink: Any) -> RuleResult:
        sink([finding("1"), finding("2")])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        keep_window(store, run, "pay", None, killed, show=True)
    assert known_windows(store, run, "pay") == {"": False}

    def ended(sink: Any) -> RuleResult:
        sink([finding("2")])
        return RuleResult("pay", None, Verdict.MISMATCH, (), Covered(), {}, {}, (), 0.0)

    keep_window(store, run, "pay", None, ended, show=True)
    assert known_windows(store, run, "pay") == {"": True}
    assert [body["key"] for _, body in store.findings(run, "pay")] == [["2"]]


def test_masked_findings_never_reach_the_store() -> None:
    store = FakeStore()
    run = store.start_run("recon run", "plan", {}, {})

    def evaluate(sink: Any) -> RuleResult:
        sink([finding("1", message="payment 1: amount differs")])
        return RuleResult("pay", None, Verdict.MISMATCH, (), Covered(), {}, {}, (), 0.0)

    keep_window(store, run, "pay", None, evaluate, show=False)
    assert "secret" not in json.dumps(store.findings(run, "pay"))


def test_csv_reads_back_exactly(tmp_path: Path) -> None:
    store = FakeStore()
    bad = [finding(name, message=name, reason=name, shard=name.replace("\udc80", "")) for name in HOSTILE]
    run = stored(store, PAY, *bad)
    path = tmp_path / "f.csv"
    assert write_csv(store, run, path) == len(HOSTILE)
    with path.open(newline="", encoding="utf-8") as file:
        rows = [dict(zip(COLUMNS, map(unsafe, row), strict=True)) for row in csv.reader(file)]
    assert list(rows[0].values()) == list(COLUMNS)
    keys = [json.loads(row["key"])[0] for row in rows[1:]]
    assert keys == list(HOSTILE)
    assert {row["money"] for row in rows[1:]} == {BIG}


@given(st.text())
def test_no_cell_begins_like_a_formula_and_each_reads_back(text: str) -> None:
    assert unsafe(safe(text)) == text
    assert not safe(text).startswith(("=", "+", "-", "@", "\t", "\r"))
