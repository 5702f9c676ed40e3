"""Two services in memory whose events are stamped and arrive at times that a test chooses: the truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from migverify.errors import ReadError
from migverify.model import Verdict
from migverify.recon.evaluate import Sink
from migverify.recon.fields import WindowRule
from migverify.recon.model import Class, CoveredWindows, Deviation, RuleFinding, RulePlace, RuleResult, Severity, Window
from migverify.recon.rule import Rule
from migverify.recon.watermark import SourceWatermark
from migverify.recon.windows import around, moment_of, reach
from tests.rule_fakes import rule_of

START = datetime(2026, 1, 1)
T0 = START.timestamp() - datetime(1970, 1, 1).timestamp()
"""Unix time of the first window."""


def make_rule(
    name: str = "paid", *, kind: str = "same_rows", seconds: float | None = 60, settle: float = 10,
    severity: Severity = Severity.CRITICAL, immutable: float | None = None, rereads: int = 2,
) -> Rule:  # fmt: skip
    window = None if seconds is None else WindowRule(every=float(seconds), start=START, immutable=immutable)
    return rule_of(
        kind, target="payments" if kind in ("same_rows", "same_groups") else None, name=name,
        place=RulePlace("rules.yaml", 1), key=("id",), settle=float(settle), severity=severity, window=window,
        rereads=rereads, **(NEEDED.get(kind, {})),
    )  # fmt: skip


NEEDED = {
    "same_groups": {"groups": ("currency",), "measures": ["count"]}, "sequence": {"column": "n"},
    "transitions": {"column": "state", "allowed": {"new": []}}, "freshness": {"limit": 60.0},
    "expectations": {"suite": "suite.json"},
}  # fmt: skip
"""What a rule of a kind cannot be without."""


@dataclass
class Row:
    """One row of a side: its time and its value as seconds and text, and from when on a read sees it."""

    key: str
    at: float
    value: str = "10"
    seen: float = 0.0


@dataclass
class World:
    """The rows of both sides and a clock; times are seconds from the start."""

    now: float = 0.0
    source: list[Row] = field(default_factory=list)
    target: list[Row] = field(default_factory=list)
    lags: dict[str, float] = field(default_factory=lambda: {"orders": 0.0, "payments": 0.0})
    stuck: dict[str, float | None] = field(default_factory=dict)
    broken: bool = False
    checksums: bool = True
    lookups: bool = True
    evaluated: list[str] = field(default_factory=list)
    looked: int = 0
    signed: list[Window] = field(default_factory=list)
    gaps: tuple[str, ...] = ()
    unread: bool = False

    def clock(self) -> float:
        return T0 + self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.001)

    def event(self, key: str, at: float, *, target_at: float | None = None, value: str = "10", late: float = 0.0,
              lost: bool = False, wrong: str | None = None, times: int = 1) -> None:  # fmt: skip
        """One event on both sides; ``late`` is when the target's row is seen after it is stamped."""
        self.source.append(Row(key, at, value, at))
        there = at if target_at is None else target_at
        if not lost:
            self.target += [Row(key, there, wrong or value, there + late)] * times

    # -- RuleReads -----------------------------------------------------------------------------------------------

    def watermarks(self, rule: Rule) -> Sequence[SourceWatermark]:
        del rule
        found = []
        for name, lag in self.lags.items():
            at = self.stuck.get(name, self.now - lag)
            mark = None if at is None else T0 + at
            found.append(
                SourceWatermark(name, mark, "clock", "" if mark is not None else "it does not tell", offset=0.0)
            )
        return found

    def rows(self, side: list[Row], span: Window | None) -> dict[str, list[str]]:
        if self.broken:
            raise ReadError("payments: no answer")
        found: dict[str, list[str]] = {}
        for row in side:
            if row.seen <= self.now and (span is None or span.start <= moment_of(T0 + row.at) < span.end):
                found.setdefault(row.key, []).append(row.value)
        return found

    def difference(self, rule: Rule, key: str, ours: list[str] | None, theirs: list[str] | None) -> RuleFinding | None:
        if rule.kind == "same_groups":
            ours, theirs = ([str(sum(map(Decimal, v)))] if v else None for v in (ours, theirs))
        if ours == theirs:
            return None
        counts = (len(ours or ()), len(theirs or ()))
        if not ours or not theirs:
            of = Class.MISSING_ON_TARGET if ours else Class.MISSING_ON_SOURCE
        else:
            of = Class.DUPLICATE if counts[0] != counts[1] else Class.VALUE_MISMATCH
        deviations = (Deviation("amount", ours[0], theirs[0]),) if ours and theirs and ours[0] != theirs[0] else ()
        money = Decimal((ours or theirs or ["0"])[0])
        return RuleFinding(rule.name, (key,), of, of, f"{key}: {of}", deviations, money, "EUR", counts)

    def compare(self, rule: Rule, span: Window | None, keys: Sequence[str] | None = None) -> dict[str, RuleFinding]:
        ours, theirs = self.rows(self.source, span), self.rows(self.target, span)
        found = {}
        for key in sorted(ours.keys() | theirs.keys()) if keys is None else keys:
            finding = self.difference(rule, key, ours.get(key), theirs.get(key))
            if finding is not None:
                found[key] = finding
        return found

    def evaluate(self, rule: Rule, window: Window | None, sink: Sink) -> RuleResult:
        self.evaluated.append(str(window))
        if self.unread:
            gap = ("not read: payments: no answer",)
            return RuleResult(rule.name, window, Verdict.INCONCLUSIVE, gap, CoveredWindows(), {}, {}, (), 0.1)
        own = self.compare(rule, window)
        findings, crossed = list(own.values()), 0
        if rule.crosses_windows and window is not None:  # as an evaluation does: keys are looked for over the border
            steps = reach(window, rule.settle or 0.0)
            findings = list(self.compare(rule, around(window, steps, steps), list(own)).values())
            gone = own.keys() - {str(f.key[0]) for f in findings}
            crossed = sum(own[key].of is not Class.MISSING_ON_SOURCE for key in gone)
        for n in range(0, len(findings), 7):
            sink(findings[n : n + 7])
        counts = {of: sum(f.of is of for f in findings) for of in {f.of for f in findings}}
        rows = [sum(map(len, self.rows(side, window).values())) for side in (self.source, self.target)]
        verdict = Verdict.MISMATCH if findings else Verdict.INCONCLUSIVE if self.gaps else Verdict.MATCH
        covered = CoveredWindows(rows[0], rows[1], max(0, rows[0] - len(findings)), crossed=crossed)
        return RuleResult(rule.name, window, verdict, self.gaps, covered, counts, {}, (), 0.1)

    def look(
        self, rule: Rule, span: Window | None, findings: Sequence[RuleFinding]
    ) -> Sequence[RuleFinding | None] | None:
        if not self.lookups:
            return None
        self.looked += len(findings)
        found = self.compare(rule, span, [str(f.key[0]) for f in findings])
        return [found.get(str(f.key[0])) for f in findings]

    def signature(self, rule: Rule, window: Window) -> str | None:
        del rule
        self.signed.append(window)
        if not self.checksums:
            return None
        sides = [sorted((k, tuple(v)) for k, v in self.rows(s, window).items()) for s in (self.source, self.target)]
        return str(sides)
