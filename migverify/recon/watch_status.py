"""What a watch of rules knows at one moment, and the verdict of that moment.

MATCH only when windows are closed, all of them matched, none is late, every watermark is known and moves, and rows were
read at all. Everything else has a reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from migverify.exposition import VERDICTS, Metric, number
from migverify.model import NextStep, Verdict
from migverify.recon.model import Class, Severity
from migverify.recon.watch_rule import RuleWatch
from migverify.recon.watch_state import WindowPhase
from migverify.recon.watermark import SourceWatermark, spread
from migverify.recon.windows import closing, shown
from migverify.watch.status import WatchStatus, gauges

LATE_SECONDS = 300.0
"""How much later than its own width a window may close, unless the command line says otherwise."""

STUCK_SECONDS = 60.0
OFFSET_SECONDS = 1.0
SHOWN_REASONS = 3
MISMATCHED = ("value mismatch", "missing on source", "missing on target", "duplicate", "violation")
FINDINGS = (*MISMATCHED, "pending", "late then matched", "known exception")
WINDOWS = ("matched", "mismatch", "carrying", "unsure", "reopened", "evaluating")
"""Zeros are shown too: a series that vanishes looks like one that was never there."""


@dataclass(frozen=True, slots=True)
class RuleStatus:
    """One rule. ``through`` is the end of the last window before which every one matched, UTC text, empty for none.

    ``findings`` are counts by class; ``money`` is the sum at risk of findings that are mismatches or pending, by
    currency, exact text. ``late`` is how many seconds ago the next window could have closed. ``reasons`` say why the
    verdict is not MATCH, ``notices`` what is blind or a guess.
    """

    rule: str
    kind: str
    severity: str
    owner: str
    verdict: Verdict
    through: str
    windows: dict[str, int]
    findings: dict[str, int]
    money: dict[str, dict[str, str]]
    rows_source: int
    rows_target: int
    matched: int
    crossed: int
    reopened: int
    late: float
    seconds: float
    error: str
    reasons: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The rule's name."""
        return self.rule

    @property
    def mismatches(self) -> int:
        """Findings that are mismatches; those of a warning count nothing."""
        return 0 if self.severity == "warning" else sum(self.findings.get(name, 0) for name in MISMATCHED)

    @property
    def rank(self) -> tuple[int, int]:
        """Mismatches, then findings that are pending."""
        return self.mismatches, self.findings.get("pending", 0)

    @property
    def failing(self) -> int:
        """1 while its last step failed."""
        return int(bool(self.error))

    def cells(self) -> dict[str, str]:
        """Return what a table shows of it, by column."""
        numbers = {"windows": sum(self.windows.values()), "rows": self.rows_source, "on target": self.rows_target,
                   "mismatches": self.mismatches, "pending": self.rank[1]}  # fmt: skip
        return {"matched up to": self.through, **{name: f"{count:,}" for name, count in numbers.items()}}

    def notes(self) -> Iterator[str]:
        """Yield its totals, and what is blind or a guess."""
        through = f", all matched up to {self.through} UTC" if self.through else ""
        yield (
            f"{self.verdict.value}, {sum(self.windows.values()):,} windows,"
            f" {self.rows_source:,} and {self.rows_target:,} rows{through}"
        )
        yield from (f"note: {notice}" for notice in self.notices)


@dataclass(frozen=True, slots=True)
class SourceMark:
    """The watermark of one source: ``age`` is how far it is behind the source's clock, None where it is not known."""

    source: str
    at: str
    age: float | None
    how: str
    reason: str
    proof: bool
    offset: float | None

    @property
    def name(self) -> str:
        """The source's name."""
        return self.source

    @property
    def waiting(self) -> float | None:
        """Its age; 0 for a source that nothing writes to, which is complete."""
        return 0.0 if self.age is None and self.at else self.age


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesStatus(WatchStatus):
    """The status of a watch of rules."""

    prefix: ClassVar[str] = "migverify_recon"
    rules: tuple[RuleStatus, ...]
    sources: tuple[SourceMark, ...]

    @property
    def parts(self) -> Sequence[RuleStatus]:
        """The rules."""
        return self.rules

    def headline(self) -> str:
        """Return the state of the watch in one line."""
        through = min((rule.through for rule in self.rules if rule.through), default="")
        matched = sum(rule.verdict is Verdict.MATCH for rule in self.rules)
        said = [self.verdict.value, f"{matched:,} of {len(self.rules):,} rules match"]
        # Not summed over rules: several may speak of one row.
        worst = max(self.rules, key=lambda rule: rule.rank, default=None)
        if worst is not None and any(worst.rank):
            said.append(f"{worst.rule}: {worst.rank[0]:,} mismatches, {worst.rank[1]:,} pending")
        if through:
            said.insert(1, f"all matched up to {through} UTC")
        return "; ".join(said)

    def next_steps(self) -> Iterator[NextStep]:
        """Yield the command that shows the findings."""
        yield NextStep(f"migverify report {self.run_id}", "shows the findings")

    def metrics(self) -> Iterator[Metric]:
        """Yield the gauges of rules and sources."""
        rules, prefix = self.rules, self.prefix
        labels = {r.rule: {"rule": r.rule, "severity": r.severity} for r in rules}
        yield Metric(
            f"{prefix}_rule_verdict", "Verdict of the rule: 0 match, 1 mismatch, 3 inconclusive.",
            [({**labels[r.rule], "owner": r.owner}, VERDICTS[r.verdict]) for r in rules],
        )  # fmt: skip
        yield Metric(
            f"{prefix}_windows", "Windows that were closed, by their state.",
            [({**labels[r.rule], "state": s}, str(r.windows.get(s, 0))) for r in rules for s in WINDOWS],
        )  # fmt: skip
        yield Metric(
            f"{prefix}_findings", "Findings by class.",
            [({**labels[r.rule], "class": k}, str(r.findings.get(k, 0))) for r in rules for k in FINDINGS],
        )  # fmt: skip
        yield Metric(
            f"{prefix}_money_at_risk", "Money in findings, by class and currency.",
            [({**labels[r.rule], "class": kind, "currency": currency}, amount)
             for r in rules for kind, amounts in r.money.items() for currency, amount in amounts.items()],
        )  # fmt: skip
        yield Metric(
            f"{prefix}_rows", "Rows that were read, by side.",
            [({**labels[r.rule], "side": side}, str(getattr(r, f"rows_{side}")))
             for r in rules for side in ("source", "target")],
        )  # fmt: skip
        for name, attribute, text in (
            ("late_seconds", "late", "How long ago the next window could have closed."),
            ("evaluation_seconds", "seconds", "Wall time of the last evaluation of a window."),
            ("failing", "failing", "1 while the last step of the rule failed; the log and the JSON say why."),
        ):
            yield Metric(f"{prefix}_{name}", text, [(labels[r.rule], number(getattr(r, attribute))) for r in rules])
        yield from gauges(prefix, "source", self.sources, (
            ("watermark_age_seconds", "waiting", "How far the watermark is behind its source's clock; NaN: unknown."),
            ("clock_offset_seconds", "offset", "Clock of the source minus the clock here; NaN without one."),
        ))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Patience:
    """How late a window may be (None: its width and 5 minutes) and how long a watermark may not move, in seconds."""

    max_lag: float | None = None
    stuck: float = STUCK_SECONDS


def status_of(
    run_id: str, rules: Sequence[RuleWatch], now: float, patience: Patience, *, final: bool = False, reason: str = ""
) -> RulesStatus:
    """Return the status at one moment.

    ``now``: Unix time of this machine. ``final``: The watch ends: what waits for a later window is not decided any
    more. ``reason``: Why the end is no good one, such as a time limit; makes a MATCH INCONCLUSIVE.
    """
    statuses = tuple(rule_status(one, now, patience, final=final) for one in rules)
    verdict = Verdict.worst([one.verdict for one in statuses])
    if reason and verdict is Verdict.MATCH:
        verdict = Verdict.INCONCLUSIVE
    marks = {mark.source: mark for one in rules for mark in one.marks.values()}
    sources = tuple(_source(mark, now) for mark in sorted(marks.values(), key=lambda m: m.source))
    return RulesStatus(
        run_id=run_id, at=now, verdict=verdict, rules=statuses, sources=sources, reasons=(reason,) if reason else (),
        final=final,
    )  # fmt: skip


def rule_status(one: RuleWatch, now: float, patience: Patience, *, final: bool) -> RuleStatus:
    """Return the status of one rule."""
    sums, rule = one.sums, one.rule
    mismatches, notices = _mismatches(one)
    gaps = [*_gaps(one, now, patience), *_pending(one, notices, final=final)]
    verdict = Verdict.MISMATCH if mismatches else Verdict.INCONCLUSIVE if gaps else Verdict.MATCH
    through = one.matched_through()
    money: dict[str, dict[str, str]] = {}
    for (kind, currency), amount in sorted(sums.tally.money.items()):
        money.setdefault(str(kind), {})[currency] = f"{amount:f}"
    return RuleStatus(
        rule.name, str(rule.kind), str(rule.severity), rule.owner, verdict,
        f"{through:%Y-%m-%d %H:%M:%S}" if through is not None else "",
        {str(state): count for state, count in sorted(sums.states.items()) if count},
        {str(kind): count for kind, count in sorted(sums.tally.counts.items())}, money,
        sums.covered.rows_source, sums.covered.rows_target, sums.covered.matched, sums.covered.crossed, one.reopened,
        one.late_by(now), one.seconds, "; ".join(one.errors.values()), (*mismatches, *gaps),
        (*notices, *_notices(one)),
    )  # fmt: skip


def _mismatches(one: RuleWatch) -> tuple[list[str], list[str]]:
    """Return mismatches as reasons, or as notices where they are warnings only."""
    found = one.sums.tally.mismatches
    if not found:
        return [], []
    at_risk = ", ".join(f"{amount:f} {currency}".strip() for currency, amount in one.sums.tally.at_risk().items())
    text = f"{found:,} {'key does' if found == 1 else 'keys do'} not match" + (
        f", {at_risk} at risk" if at_risk else ""
    )
    return ([], [f"warning: {text}"]) if one.rule.severity is Severity.WARNING else ([text], [])


def _gaps(one: RuleWatch, now: float, patience: Patience) -> list[str]:
    gaps = [*one.errors.values(), *_mark_gaps(one, patience)]
    limit = patience.max_lag if patience.max_lag is not None else _window_seconds(one) + LATE_SECONDS
    late = one.late_by(now)
    if one.sums.closed == 0:
        gaps.append("no window is closed yet" if one.first is not None else "it was not evaluated yet")
    if late > limit and one.following is not None:
        gaps.append(f"{one.following} is {late - limit:.0f} s later than it may be ({limit:.0f} s)")
        gaps += closing(one.following, one.settle, {n: m.at for n, m in one.marks.items()}).reasons[:SHOWN_REASONS]
    whole = one.windows.get("") if one.first is None else None
    if whole is not None and now - whole.at > one.limits.whole + limit:
        gaps.append(f"it was last evaluated {now - whole.at:.0f} s ago")
    again = [k for k in one.open_windows if k.is_undone]
    if again:
        gaps.append(f"{len(again):,} windows are to be evaluated again: {'; '.join(again[0].gaps) or 'not finished'}")
    if one.unsure_since is not None:
        gaps.append(f"from {one.unsure_since} on: {'; '.join(one.unsure)}")
    unread = [k for k in one.open_windows if k.gaps and not k.is_undone]
    gaps += [f"{k.window or 'all rows'}: {'; '.join(k.gaps)}" for k in unread[:SHOWN_REASONS]]
    if len(unread) > SHOWN_REASONS:
        gaps.append(f"and {len(unread) - SHOWN_REASONS:,} more windows that were not read in full")
    covered = one.sums.covered
    if one.sums.closed and not (covered.rows_source or covered.rows_target or covered.groups or covered.events):
        gaps.append("no row was read: there is nothing that matched")
    elif one.is_idle:
        gaps.append(f"no row in the last {one.limits.idle} windows: is its source idle?")
    return gaps


def _window_seconds(one: RuleWatch) -> float:
    return one.rule.window.every if one.rule.window is not None else 0.0


def _mark_gaps(one: RuleWatch, patience: Patience) -> list[str]:
    if not one.marks and "watermark" not in one.errors:
        return ["no source was asked yet up to when it is complete"]
    gaps = []
    for name, mark in one.marks.items():
        if mark.at is None:
            gaps.append(f"{name}: up to when it is complete is not known: {mark.reason}")
            continue
        moved = one.moved.get(name)
        if moved is not None and not math.isinf(mark.at) and one.asked - moved[1] > patience.stuck:
            gaps.append(
                f"{name}: its watermark has been {shown(mark.at)} for {one.asked - moved[1]:.0f} s ({mark.how})"
            )
    return gaps


def _pending(one: RuleWatch, notices: list[str], *, final: bool) -> list[str]:
    """Keys that are not decided: a reason where they could be, a notice where they wait for the next window."""
    waiting = sum(k.tally.pending for k in one.waiting)
    carried = one.sums.tally.pending - waiting
    words = "1 key differs and is" if waiting == 1 else f"{waiting:,} keys differ and are"
    gaps = [f"{words} being read again"] if waiting else []
    if carried > 0:
        text = f"{carried:,} sums of a window wait for the next one"
        if final:
            gaps.append(text)
        else:
            notices.append(text)
    return gaps


def _notices(one: RuleWatch) -> list[str]:
    found = [f"{name}: {m.how}" for name, m in one.marks.items() if not m.proof and m.at is not None]
    apart = spread(one.marks)
    if apart > OFFSET_SECONDS:
        found.append(f"the clocks of its sources are up to {apart:.1f} s apart: added to the settle time")
    if one.first is not None and one.limits.lookback == 0:
        found.append("rows that come into a closed window are not seen (--lookback 0)")
    elif one.blind:
        found.append("rows that come into a closed window are not seen: its sources give no checksum")
    known = one.sums.tally.counts.get(Class.KNOWN_EXCEPTION, 0)
    if known:
        found.append(f"{known:,} known exceptions")
    if one.sums.states.get(WindowPhase.REOPENED):
        found.append("windows were reopened")
    return found


def _source(mark: SourceWatermark, now: float) -> SourceMark:
    finite = mark.at is not None and not math.isinf(mark.at)
    age = max(0.0, now + (mark.offset or 0.0) - mark.at) if finite and mark.at is not None else None
    at = "" if mark.at is None else shown(mark.at)
    return SourceMark(mark.source, at, age, mark.how, mark.reason, mark.proof, mark.offset)
