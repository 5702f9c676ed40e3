"""Rules as JSON, JUnit test cases and Prometheus samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from migverify.model import Verdict
from migverify.report.rules import FindingSample, RuleReport, amounts
from migverify.report.rules_text import coverage_words

Sample = tuple[dict[str, str], str]
"""Labels and the exact text of a value."""


def rule_as_dict(rule: RuleReport) -> dict[str, Any]:
    """Return a rule as plain values; amounts are texts, because a reader's float would round them."""
    result = rule.result
    return {
        "rule": result.pair, "verdict": str(result.verdict), "reasons": list(result.reasons), "kind": rule.kind,
        "severity": rule.severity, "owner": rule.owner, "description": rule.description, "place": rule.place,
        "source": result.source, "target": result.target, "findings": dict(rule.counts),
        "money_at_risk": [{"class": kind, "currency": unit, "amount": value} for kind, unit, value in rule.money],
        "unexplained": dict(rule.unexplained), "volume": dict(rule.volume), "covered": dict(rule.covered),
        "windows": {name: int(value) if value.isdecimal() else value for name, value in rule.windows},
        "anchors": [{"endpoint": a.endpoint, "moment": a.words, "exact": a.exact} for a in rule.anchors],
        "seconds": round(result.seconds, 3),
        "finding_samples": {
            "shown": len(rule.findings), "stored": rule.stored, "findings": [_finding(f) for f in rule.findings],
        },
    }  # fmt: skip


def _finding(finding: FindingSample) -> dict[str, Any]:
    return {
        "key": list(finding.key), "class": finding.kind, "of": finding.of, "message": finding.message,
        "deviations": [
            {"column": d.column, "kind": d.kind, "masked": d.masked,
             **({} if d.masked else {"source": d.source, "target": d.target})}
            for d in finding.deviations
        ],
        "money": [{"amount": value, "currency": currency} for value, currency in finding.money],
        "window": finding.window, "shard": finding.shard, "reason": finding.reason, "reads": finding.reads,
    }  # fmt: skip


def story(rule: RuleReport) -> Iterator[str]:
    """Yield the lines of a test case that failed: the rule's counts, reasons, money, coverage, the first findings."""
    if rule.headline:
        yield rule.headline
    yield from rule.result.reasons
    yield f"{rule.kind}, severity {rule.severity}" + (f", owner {rule.owner}" if rule.owner else "")
    if rule.unexplained:
        yield f"unexplained money: {amounts(rule.unexplained)}"
    yield f"covered: {coverage_words(rule)}"
    yield from (f"read: {anchor.endpoint}: {anchor.words}" for anchor in rule.anchors)
    yield from (f"{finding.kind}: {finding.message}" for finding in rule.findings[:20])
    if rule.stored > min(20, len(rule.findings)):
        yield f"{rule.stored:,} findings are stored"


def metrics(rules: Sequence[RuleReport]) -> Iterator[tuple[str, str, list[Sample]]]:
    """Yield (name, help, samples) of gauges; nothing where the run holds no rule."""
    if not rules:
        return
    yield "migverify_rule_verdict", "1 for the verdict of the rule, 0 for the others.", [
        ({**_names(rule), "verdict": str(each)}, str(int(each is rule.result.verdict)))
        for rule in rules for each in Verdict
    ]  # fmt: skip
    yield "migverify_rule_findings", "Findings of the rule by class.", [
        ({**_names(rule), "class": kind}, str(number)) for rule in rules for kind, number in rule.counts
    ]  # fmt: skip
    yield "migverify_rule_money_at_risk", "Money at risk by class and currency; the sum is exact.", [
        ({**_names(rule), "class": kind, "currency": currency}, value)
        for rule in rules for kind, currency, value in rule.money
    ]  # fmt: skip
    yield "migverify_rule_unexplained_money", "Money at risk that nothing explains, by currency; the sum is exact.", [
        ({**_names(rule), "currency": currency}, value) for rule in rules for currency, value in rule.unexplained
    ]  # fmt: skip
    yield "migverify_rule_rows", "Rows read per side.", [
        ({**_names(rule), "side": side}, "NaN" if rows is None else str(rows)) for rule in rules
        for side, rows in (("source", rule.result.rows_source), ("target", rule.result.rows_target))
    ]  # fmt: skip
    yield "migverify_rule_windows", "Windows that were evaluated.", [(_names(r), str(r.result.chunks)) for r in rules]
    yield "migverify_rule_seconds", "Wall time of the rule.", [(_names(r), repr(r.result.seconds)) for r in rules]


def _names(rule: RuleReport) -> dict[str, str]:
    return {"rule": rule.result.pair, "kind": rule.kind, "severity": rule.severity, "owner": rule.owner}
