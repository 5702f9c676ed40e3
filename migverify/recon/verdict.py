"""Findings -> tally -> verdict and reasons of a rule in one window -> one result a rule. Pure.

There is no path to MATCH but the last line of ``conclude``. A rule is a result in the form that the store and the
reports know table pairs by: its pair is the rule's name; what only rules have is in ``details["recon"]``, money as
exact decimal text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

from migverify.db.snapshot import ReadSnapshot
from migverify.model import TableResult, Verdict
from migverify.recon.amounts import EXACT, add_to, plain
from migverify.recon.bodies import texts_of, window_text
from migverify.recon.model import (
    MISMATCHES,
    Class,
    CoveredWindows,
    RuleFinding,
    RuleResult,
    Severity,
    Window,
)
from migverify.recon.rule import Rule, RuleSet

DETAILS = "recon"
MOST_REASONS = 20
WORDS = {
    Class.VALUE_MISMATCH: ("1 key has different values", "keys have different values"),
    Class.MISSING_ON_SOURCE: ("1 key is missing on the source", "keys are missing on the source"),
    Class.MISSING_ON_TARGET: ("1 key is missing on the target", "keys are missing on the target"),
    Class.DUPLICATE: ("1 duplicate key", "duplicate keys"),
    Class.VIOLATION: ("1 finding is against the rule", "findings are against the rule"),
}


@dataclass(slots=True)
class FindingTally:
    """Findings by class, and money at risk by class and currency; exact."""

    counts: Counter[Class] = field(default_factory=Counter)
    money: dict[tuple[Class, str], Decimal] = field(default_factory=dict)

    @classmethod
    def of(cls, findings: Iterable[RuleFinding]) -> FindingTally:
        """Count findings."""
        total = cls()
        for finding in findings:
            total.add(finding)
        return total

    def copy(self) -> FindingTally:
        """Return a tally that changes by itself."""
        return FindingTally(self.counts.copy(), dict(self.money))

    def add(self, finding: RuleFinding, sign: int = 1) -> None:
        """Count a finding in, or out with -1."""
        self.counts[finding.kind] += sign
        amounts = [] if finding.money is None else [(finding.currency or "", finding.money)]
        for currency, value in (*amounts, *finding.also):
            self._amount((finding.kind, currency), sign * value)

    def join(self, other: FindingTally, sign: int = 1) -> None:
        """Add the sums of another tally, or take them out with -1."""
        for kind, count in list(other.counts.items()):
            self.counts[kind] += sign * count
        for place, value in list(other.money.items()):
            self._amount(place, sign * value)
        self.prune()

    def prune(self) -> None:
        """Drop classes without a finding and amounts of 0, which are left where findings were counted out."""
        self.counts = Counter({kind: count for kind, count in self.counts.items() if count})
        self.money = {place: value for place, value in self.money.items() if value}

    def _amount(self, place: tuple[Class, str], by: Decimal) -> None:
        self.money[place] = EXACT.add(self.money.get(place, Decimal(0)), by)

    @property
    def mismatches(self) -> int:
        """Findings that make a verdict MISMATCH."""
        return sum(count for kind, count in self.counts.items() if kind in MISMATCHES)

    @property
    def pending(self) -> int:
        """Findings that are not decided."""
        return self.counts.get(Class.PENDING, 0)

    @property
    def open(self) -> int:
        """Findings that are looked up again."""
        return self.mismatches + self.pending

    def at_risk(self) -> dict[str, Decimal]:
        """Return the money in mismatches by currency."""
        sums: dict[str, Decimal] = {}
        for (kind, currency), value in self.money.items():
            if kind in MISMATCHES:
                add_to(sums, currency, value)
        return sums


def conclude(
    rule: Rule,
    window: Window | None,
    counts: Mapping[Class, int],
    covered: CoveredWindows,
    gaps: Sequence[str],
) -> tuple[Verdict, tuple[str, ...]]:
    """Judge one window of a rule.

    ``counts``: Exact numbers of findings by class. ``gaps``: What was not read or is not known; each makes a MATCH
    impossible.

    Returns
    -------
    Verdict, reasons
        MISMATCH where a finding of a critical or major rule is unexplained; INCONCLUSIVE where something is pending or
        was not read, or where there was nothing to compare (save in a window, which may be empty); else MATCH.
    """
    found = [one if counts[kind] == 1 else f"{counts[kind]:,} {many}"
             for kind, (one, many) in WORDS.items() if counts.get(kind)]  # fmt: skip
    decides = rule.severity is not Severity.WARNING
    unread = nothing_read(rule, window, counts, covered)
    notes = [f"{text} (a warning)" for text in found] if not decides else []
    open_ends = list(gaps)
    if pending := counts.get(Class.PENDING, 0):
        text = f"{pending:,} {'key differs' if pending == 1 else 'keys differ'}, and it is too early to judge (pending)"
        (open_ends if decides else notes).append(text)
    if unread and window is None:
        open_ends.append(unread)
    elif unread:
        notes.append(unread)
    explained = {Class.KNOWN_EXCEPTION: "explained by a known exception", Class.LATE_MATCHED: "late, then matched"}
    for kind, words in explained.items():
        if counts.get(kind):
            notes.append(f"{counts[kind]:,} {words}")
    if found and decides:
        verdict = Verdict.MISMATCH
    elif open_ends:
        verdict = Verdict.INCONCLUSIVE
    else:
        verdict = Verdict.MATCH
    return verdict, (*(found if decides else ()), *open_ends, *notes)


def nothing_read(rule: Rule, window: Window | None, counts: Mapping[Class, int], covered: CoveredWindows) -> str:
    """Return the words for an evaluation that read no row, empty otherwise; without a window they are a gap."""
    if covered.rows_source + covered.rows_target + covered.events or rule.accepts_no_rows:
        return ""
    if any(counts.get(kind) for kind in MISMATCHES):
        return ""
    if window is not None:
        return f"there are no rows in {window}"
    return "there was nothing to compare: no rows were read"


@dataclass(slots=True)
class RuleSums:
    """What windows of a rule add up to; constant in memory but for the reasons, of which the first are kept."""

    windows: int = 0
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    left_out: int = 0
    covered: CoveredWindows = field(default_factory=CoveredWindows)
    tally: FindingTally = field(default_factory=FindingTally)
    unexplained: dict[str, Decimal] = field(default_factory=dict)
    snapshots: dict[str, tuple[ReadSnapshot, ReadSnapshot]] = field(default_factory=dict)
    first: str = ""
    last: str = ""
    seconds: float = 0.0

    def add(self, result: RuleResult) -> None:
        """Add one window."""
        name = window_text(result.window)
        self.windows += 1
        self.verdicts[result.verdict] += 1
        self.first = min(filter(None, (self.first, name)), default="")
        self.last = max(self.last, name)
        for reason in result.reasons:
            if reason in self.reasons:
                continue
            if len(self.reasons) < MOST_REASONS:
                self.reasons[reason] = name
            else:
                self.left_out += 1
        self.covered += result.covered
        self.tally.join(FindingTally(Counter(result.counts), dict(result.money)))
        for currency, value in result.unexplained.items():
            add_to(self.unexplained, currency, value)
        for snapshot in result.snapshots:
            first, _ = self.snapshots.get(snapshot.endpoint, (snapshot, snapshot))
            self.snapshots[snapshot.endpoint] = first, snapshot
        self.seconds += result.seconds

    @property
    def verdict(self) -> Verdict:
        """The worst of all windows; INCONCLUSIVE without any."""
        return Verdict.worst(list(self.verdicts))


def rule_result(rule: Rule, rules: RuleSet, results: Iterable[RuleResult], *, planned: int) -> TableResult:
    """Sum up a rule.

    ``results``: Its windows; read once. ``planned``: How many windows there should be: fewer results are a reason, and
    no MATCH.
    """
    sums = RuleSums()
    for result in results:
        sums.add(result)
    reasons = [f"{window}: {text}" if window else text for text, window in sums.reasons.items()]
    if sums.left_out:
        reasons.append(f"{sums.left_out:,} more reasons of other windows are in the store")
    verdict = sums.verdict
    if not planned:
        reasons.append("no window is closed: each ends after now less the settle time, or outside of --from and --to")
    if sums.windows < planned:
        reasons.append(f"{planned - sums.windows:,} of {planned:,} windows were not evaluated")
        verdict = Verdict.worst([verdict, Verdict.INCONCLUSIVE])
    counts = sums.tally.counts
    others = sum(counts[kind] for kind in MISMATCHES - {Class.MISSING_ON_SOURCE, Class.MISSING_ON_TARGET})
    source, target = (
        rules.datasets[name].described if name in rules.datasets else name for name in (rule.source, rule.datasets[-1])
    )
    return TableResult(
        pair=rule.name, source=source, target=target, verdict=verdict, reasons=tuple(reasons),
        rows_source=sums.covered.rows_source, rows_target=sums.covered.rows_target, chunks=sums.windows, lanes=(),
        missing_on_target=counts[Class.MISSING_ON_TARGET], missing_on_source=counts[Class.MISSING_ON_SOURCE],
        value_differs=others, not_covered=(), schema=(), seconds=sums.seconds,
        details={DETAILS: _details(rule, sums)},
    )  # fmt: skip


def _details(rule: Rule, sums: RuleSums) -> dict[str, Any]:
    return {
        "kind": str(rule.kind), "severity": str(rule.severity), "owner": rule.owner, "description": rule.description,
        "place": str(rule.place), "datasets": [*rule.datasets, None][:2],
        "counts": {str(kind): sums.tally.counts[kind] for kind in Class if sums.tally.counts[kind]},
        "money": [[str(kind), currency, plain(value)] for (kind, currency), value in sorted(sums.tally.money.items())],
        "unexplained": texts_of(sums.unexplained), "covered": asdict(sums.covered),
        "windows": {
            "count": sums.windows, "first": sums.first, "last": sums.last,
            **{str(verdict): n for verdict, n in sorted(sums.verdicts.items())},
        },
        "anchors": [asdict(one) for first, last in sums.snapshots.values() for one in dict.fromkeys((first, last))],
    }  # fmt: skip
