"""The status of a watch of rules in the Prometheus text format 0.0.4."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from migverify.exposition import Metric, page
from migverify.model import Verdict
from migverify.recon.watch_status import ReconStatus, RuleStatus

_Sample = tuple[dict[str, str], str]
_Metric = tuple[str, str, Iterable[_Sample]]
_CODES = {Verdict.MATCH: "0", Verdict.MISMATCH: "1", Verdict.INCONCLUSIVE: "3"}
DECIDED = ("value mismatch", "missing on source", "missing on target", "duplicate", "violation", "pending")


def prometheus_text(status: ReconStatus) -> str:
    """Return the status as gauges; an unknown number is ``NaN``, never left out and never 0.

    Money stands with all its digits; Prometheus itself keeps it as a float.
    """
    return page(Metric(*metric) for metric in _metrics(status))


def _metrics(status: ReconStatus) -> Iterator[_Metric]:
    rules = status.rules
    yield "migverify_recon_verdict", "0 match, 1 mismatch, 3 inconclusive.", [({}, _CODES[status.verdict])]
    yield "migverify_recon_time_seconds", "Unix time of this page.", [({}, f"{status.at:.3f}")]
    yield (
        "migverify_recon_rule_verdict",
        "Verdict of the rule: 0 match, 1 mismatch, 3 inconclusive.",
        [({**_rule(r), "owner": r.owner}, _CODES[r.verdict]) for r in rules],
    )
    yield (
        "migverify_recon_windows",
        "Windows that were closed, by their state.",
        [({**_rule(r), "state": state}, str(count)) for r in rules for state, count in _states(r)],
    )
    yield (
        "migverify_recon_findings",
        "Findings by class.",
        [({**_rule(r), "class": kind}, str(count)) for r in rules for kind, count in _classes(r)],
    )
    yield (
        "migverify_recon_money_at_risk",
        "Money in findings, by class and currency.",
        [
            ({**_rule(r), "class": kind, "currency": currency}, amount)
            for r in rules
            for kind, amounts in r.money.items()
            for currency, amount in amounts.items()
        ],
    )
    yield "migverify_recon_rows", "Rows that were read, by side.", [
        ({**_rule(r), "side": side}, str(rows))
        for r in rules
        for side, rows in (("source", r.rows_source), ("target", r.rows_target))
    ]  # fmt: skip
    yield (
        "migverify_recon_late_seconds",
        "How long ago the next window could have closed.",
        [(_rule(r), f"{r.late:.3f}") for r in rules],
    )
    yield (
        "migverify_recon_evaluation_seconds",
        "Wall time of the last evaluation of a window.",
        [(_rule(r), f"{r.seconds:.3f}") for r in rules],
    )
    yield (
        "migverify_recon_failing",
        "1 while the last step of the rule failed; the log and the JSON say why.",
        [(_rule(r), "1" if r.error else "0") for r in rules],
    )
    yield (
        "migverify_recon_watermark_age_seconds",
        "How far the watermark is behind the clock of its source; NaN when it cannot be told.",
        [({"source": s.source}, _number(s.age, s.at)) for s in status.sources],
    )
    yield (
        "migverify_recon_clock_offset_seconds",
        "Clock of the source minus the clock here; NaN without one.",
        [({"source": s.source}, "NaN" if s.offset is None else f"{s.offset:.6f}") for s in status.sources],
    )


def _rule(rule: RuleStatus) -> dict[str, str]:
    return {"rule": rule.rule, "severity": rule.severity}


def _states(rule: RuleStatus) -> list[tuple[str, int]]:
    names = ("matched", "mismatch", "carrying", "unsure", "reopened", "evaluating")
    return [(name, rule.windows.get(name, 0)) for name in names]


def _classes(rule: RuleStatus) -> list[tuple[str, int]]:
    # Zeros too: a series that vanishes looks like one that was never there.
    names = (*DECIDED, "late then matched", "known exception")
    return [(name, rule.findings.get(name, 0)) for name in names]


def _number(age: float | None, at: str) -> str:
    if age is not None and not math.isnan(age):
        return f"{age:.3f}"
    return "0" if at else "NaN"  # a source that nothing writes to is complete
