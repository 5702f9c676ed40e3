"""A run of rules in every form of the report, and as CSV: exact amounts, masks, hostile names."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.db.snapshot import ReadSnapshot
from migverify.model import StoredKind, Verdict
from migverify.recon.fields import Money
from migverify.recon.listing import COLUMNS, safe, unsafe, write_csv
from migverify.recon.model import Class, CoveredWindows, Deviation, RuleFinding, RuleResult, Severity
from migverify.recon.rule import Rule
from migverify.recon.run import keep_window, known_windows
from migverify.recon.verdict import rule_result
from migverify.recon.watch_status import RulesStatus, RuleStatus
from migverify.report.model import Report, ReportOptions
from migverify.report.read import read_report
from migverify.report.render import Format, render
from migverify.report.rules import RuleReport, money_text, read_rules
from migverify.store.results import ResultStore
from tests.fakes import FakeStore
from tests.report_runs import HOSTILE
from tests.rule_fakes import changed, rule_of, rule_set

PAY = rule_of("same_rows", target="payments", name="pay", money=Money(column="amount", currency="'EUR'"), owner="ann")
BIG = "9007199254740993.0001"


def finding(key: str, kind: Class = Class.VALUE_MISMATCH, **more: Any) -> RuleFinding:
    deviation = Deviation("amount", "secret 1", "secret 2", "value")
    fields: dict[str, Any] = {"message": f"payment {key}: amount secret 1 on orders, secret 2 on payments",
                              "deviations": (deviation,), "money": Decimal(BIG), "currency": "EUR", "counts": (1, 1),
                              "reads": 3, "at": 1_800_000_000.0}  # fmt: skip
    return RuleFinding("pay", (key,), kind, Class.VALUE_MISMATCH, **{**fields, **more})


def stored(store: ResultStore, rule: Rule = PAY, *findings: RuleFinding, verdict: Verdict = Verdict.MISMATCH) -> str:
    run = store.start_run(
        "recon run",
        "plan",
        {"rules": [rule.name], "pairs": [{"id": rule.name}]},
        {"engine": "local"},
        kind=StoredKind.RULES,
    )
    found = findings or (finding("1"), finding("2", Class.KNOWN_EXCEPTION, reason="known exception of bob"))
    counts: dict[Class, int] = {}
    for one in found:
        counts[one.kind] = counts.get(one.kind, 0) + 1
    snapshot = ReadSnapshot("source", "mysql", "consistent snapshot", "binlog.000012:4711", "", True, 1.0)
    result = RuleResult(
        rule.name, None, verdict, ("1 key has different values",), CoveredWindows(10, 11, 9), counts,
        {(kind, "EUR"): Decimal(BIG) for kind in counts}, (snapshot,), 1.5, {"EUR": Decimal(BIG)},
    )  # fmt: skip

    def evaluate(sink: Any) -> RuleResult:
        sink(found)
        return result

    keep_window(store, run, rule.name, None, evaluate, show=True)
    store.add_table_result(run, rule_result(rule, rule_set(rule), [result], planned=1))
    store.finish_run(run, verdict, {"seconds": 2.0})
    return run


def rules_of(store: ResultStore, run: str) -> list[RuleReport]:
    return read_rules(store, run, store.table_results(run), ReportOptions(values=True))


def report(*, values: bool = True, rule: Rule = PAY, found: tuple[RuleFinding, ...] = ()) -> Report:
    store = FakeStore()
    return read_report(store, stored(store, rule, *found), ReportOptions(values=values))


@pytest.mark.parametrize("form", Format)
def test_every_form_tells_the_rule_its_findings_and_its_money_exactly(form: Format) -> None:
    text = render(report(), form)
    # People read amounts with their thousands apart, programs as they are.
    amount = BIG if form in (Format.JSON, Format.PROMETHEUS) else "9,007,199,254,740,993.0001"
    for part in ("pay", amount, "ann", "same_rows", "critical", "known exception"):
        assert part in text, part
    if amount != BIG:
        assert BIG not in text
    if form is not Format.PROMETHEUS:
        assert "binlog.000012:4711" in text
        assert "secret 1 on orders" in text


@pytest.mark.parametrize("form", Format)
def test_values_are_withheld_unless_asked_for(form: Format) -> None:
    assert "secret" not in render(report(values=False), form)


@pytest.mark.parametrize("form", Format)
def test_hostile_names_stay_text(form: Format) -> None:
    for name in HOSTILE:
        rule = changed(rule_of("no_rows"), name=name, owner=name, description=name)
        bad = finding(name, message=name, reason=name, shard=name, currency=name)
        text = render(report(rule=rule, found=(RuleFinding(**{**_fields(bad), "rule": name}),)), form)
        if form is Format.JUNIT:
            ElementTree.fromstring(text)  # noqa: S314 - our own text
        if form is Format.JSON:
            json.loads(text)
        if form is Format.HTML:
            assert "<script>alert(1)" not in text


def _fields(one: RuleFinding) -> dict[str, Any]:
    return {name: getattr(one, name) for name in RuleFinding.__dataclass_fields__}


def test_json_holds_rules_beside_tables() -> None:
    body = report().document
    assert set(body) == {"run_id", "verdict", "exit_code", "seconds", "tables", "rules"}
    (rule,) = body["rules"]
    assert body["tables"] == []
    assert (rule["rule"], rule["verdict"], rule["findings"]) == (
        "pay", "MISMATCH", {"value mismatch": 1, "known exception": 1},
    )  # fmt: skip
    assert {"class": "value mismatch", "currency": "EUR", "amount": BIG} in rule["money_at_risk"]
    assert rule["unexplained"] == {"EUR": BIG}
    assert rule["covered"]["matched"] == 9


def test_a_rule_without_a_result_is_not_finished() -> None:
    store = FakeStore()
    run = store.start_run("recon run", "plan", {"rules": ["pay"], "pairs": [{"id": "pay"}]}, {}, kind=StoredKind.RULES)
    store.finish_run(run, Verdict.MATCH, {})
    data = read_report(store, run)
    assert data.verdict is Verdict.INCONCLUSIVE
    assert [rule["verdict"] for rule in data.document["rules"]] == ["INCONCLUSIVE"]


def test_a_window_that_was_cut_off_is_evaluated_again_from_its_beginning() -> None:
    store = FakeStore()
    run = store.start_run("recon run", "plan", {}, {}, kind=StoredKind.RULES)

    def killed(sink: Any) -> RuleResult:
        sink([finding("1"), finding("2")])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        keep_window(store, run, "pay", None, killed, show=True)
    assert known_windows(store, run, "pay") == {"": False}

    def ended(sink: Any) -> RuleResult:
        sink([finding("2")])
        return RuleResult("pay", None, Verdict.MISMATCH, (), CoveredWindows(), {}, {}, (), 0.0)

    keep_window(store, run, "pay", None, ended, show=True)
    assert known_windows(store, run, "pay") == {"": True}
    assert [body["key"] for _, body in store.findings(run, "pay")] == [["2"]]


def test_masked_findings_never_reach_the_store() -> None:
    store = FakeStore()
    run = store.start_run("recon run", "plan", {}, {}, kind=StoredKind.RULES)

    def evaluate(sink: Any) -> RuleResult:
        sink([finding("1", message="payment 1: amount differs")])
        return RuleResult("pay", None, Verdict.MISMATCH, (), CoveredWindows(), {}, {}, (), 0.0)

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


def several_rules(store: FakeStore) -> str:
    """A critical rule whose two windows found three keys, a warning about the same keys, and a rule that matches."""
    warning = rule_of("same_rows", target="payments", name="warn", severity=Severity.WARNING, money=PAY.money)
    fine = rule_of("same_rows", target="payments", name="fine")
    names = [rule.name for rule in (PAY, warning, fine)]
    run = store.start_run(
        "recon run", "plan", {"rules": names, "pairs": [{"id": n} for n in names]}, {}, kind=StoredKind.RULES
    )
    for rule, counts, verdict in (
        (PAY, ({Class.VALUE_MISMATCH: 2, Class.PENDING: 4}, {Class.MISSING_ON_TARGET: 1, Class.LATE_MATCHED: 7}),
         Verdict.MISMATCH),
        (warning, ({Class.VALUE_MISMATCH: 50},), Verdict.MATCH), (fine, ({Class.KNOWN_EXCEPTION: 5},), Verdict.MATCH),
    ):  # fmt: skip
        windows = [
            RuleResult(rule.name, None, verdict, (f"window {n}: some keys",), CoveredWindows(10, 10, 9), found,
                       {(Class.VALUE_MISMATCH, "EUR"): Decimal(90)} if rule is warning else {}, (), 1.0,
                       {"EUR": Decimal(90)} if rule is warning else {})
            for n, found in enumerate(counts)
        ]  # fmt: skip
        store.add_table_result(run, rule_result(rule, rule_set(rule), windows, planned=len(windows)))
    store.finish_run(run, Verdict.MISMATCH, {"seconds": 2.0})
    return run


def test_headlines_count_what_each_rule_found_without_warnings_and_without_sums_over_rules() -> None:
    store = FakeStore()
    run = several_rules(store)
    data = read_report(store, run)
    by_name = {rule.result.pair: rule for rule in rules_of(store, run)}
    assert {name: rule.unexplained_findings for name, rule in by_name.items()} == {"pay": 3, "warn": 0, "fine": 0}
    assert by_name["pay"].headline == "2 value mismatch, 1 missing on target, 4 pending"
    assert (by_name["warn"].headline, by_name["fine"].headline) == ("50 warnings", "")
    text = render(data, Format.TEXT)
    table = text[text.index("verdict  ") :].partition("\n\n")[0]
    rows = {line.split()[1]: line.split() for line in table.splitlines()}
    assert rows["pay"][5] == "3"
    assert rows["warn"][5:9] == ["0", "+", "50", "warnings"]
    assert rows["fine"][5] == "0"
    assert text.splitlines()[0] == "MISMATCH  (3 rules: 1 MISMATCH, 2 MATCH, 50 warnings in 1 rule)"
    assert "unexplained money" in table
    html = render(data, Format.HTML)
    assert "rows read as source" not in html
    assert "unexplained in the worst rule" not in html
    assert '<span class="sum">50 warnings</span>' in html
    assert "<b>50</b> warnings in 1 rule</li>" in html
    assert '<td class="n">0 + 50 warnings</td>' in html
    assert '<span class="sum">2 value mismatch, 1 missing on target, 4 pending</span>' in html
    root = ElementTree.fromstring(render(data, Format.JUNIT))  # noqa: S314 - our own text
    (failure,) = root.iter("failure")
    assert failure.get("message") == "2 value mismatch, 1 missing on target, 4 pending"


def test_money_is_shown_only_where_a_rule_has_money() -> None:
    bare = rule_of("same_rows", target="payments", name="bare")
    store = FakeStore()
    run = store.start_run(
        "recon run",
        "plan",
        {"rules": ["bare"], "pairs": [{"id": "bare"}]},
        {"windows at": 1.8e9},
        kind=StoredKind.RULES,
    )
    counts = {Class.VALUE_MISMATCH: 1200}
    result = RuleResult(
        "bare", None, Verdict.MISMATCH, ("1,200 keys differ",), CoveredWindows(1, 1, 0), counts, {}, (), 1.0
    )

    def evaluate(sink: Any) -> RuleResult:
        sink([replace(finding("1"), rule="bare", money=None, currency=None)])
        return result

    keep_window(store, run, "bare", None, evaluate, show=True)
    store.add_table_result(run, rule_result(bare, rule_set(bare), [result], planned=1))
    store.finish_run(run, Verdict.MISMATCH, {"seconds": 2.0})
    data = read_report(store, run)
    for form in (Format.TEXT, Format.HTML, Format.JUNIT):
        text = render(data, form)
        assert "oney" not in text.partition("<style>")[0] + text.rpartition("</style>")[2], form
        assert "1,200" in text
        if form is not Format.JUNIT:
            assert "2027-01-15 08:00:00 UTC" in text
            assert "1800000000" not in text


@pytest.mark.parametrize(
    ("exact", "shown"),
    [("0", "0"), ("1000", "1,000"), ("-1234567.8900", "-1,234,567.8900"), ("999.5", "999.5"), ("1E+3", "1E+3")],
)
def test_amounts_keep_every_digit(exact: str, shown: str) -> None:
    assert money_text(exact) == shown


def test_the_headline_of_a_watch_names_its_worst_rule_and_sums_nothing_over_rules() -> None:
    def status(name: str, verdict: Verdict, severity: str = "critical", **findings: int) -> RuleStatus:
        counts = {word.replace("_", " "): number for word, number in findings.items()}
        return RuleStatus(name, "same_rows", severity, "", verdict, "", {"matched": 9}, counts, {}, 1, 1, 1, 0, 0, 0.0,
                          0.0, "")  # fmt: skip

    rules = (
        status("warn", Verdict.MATCH, "warning", value_mismatch=500),
        status("pay", Verdict.MISMATCH, value_mismatch=2, missing_on_target=1, pending=4),
        status("book", Verdict.MISMATCH, value_mismatch=2),
    )
    said = _watched(Verdict.MISMATCH, rules).headline()
    assert said == "MISMATCH; 1 of 3 rules match; pay: 3 mismatches, 4 pending"
    assert _watched(Verdict.MATCH, rules[:1]).headline() == "MATCH; 1 of 1 rules match"


def _watched(verdict: Verdict, rules: tuple[RuleStatus, ...]) -> RulesStatus:
    return RulesStatus(run_id="run", at=0.0, verdict=verdict, rules=rules, sources=())
