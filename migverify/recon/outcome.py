"""All windows of a rule -> one result, in the form that the store and the reports know table pairs by.

A rule is a result whose pair is the rule's name; what only rules have stands in ``details["recon"]``, money as exact
decimal text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

from migverify.db.snapshot import Anchor
from migverify.model import TableResult, Verdict
from migverify.recon.bodies import texts_of, window_text
from migverify.recon.kinds.amounts import EXACT, add_to, plain
from migverify.recon.model import (
    MISMATCHES,
    ChangesPart,
    Class,
    Covered,
    Dataset,
    FilePart,
    Rule,
    RuleResult,
    RuleSet,
    TablePart,
)

DETAILS = "recon"
MOST_REASONS = 20


@dataclass(slots=True)
class Sums:
    """What windows of a rule add up to; constant in memory but for the reasons, of which the first are kept."""

    windows: int = 0
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    left_out: int = 0
    covered: Covered = field(default_factory=Covered)
    counts: Counter[Class] = field(default_factory=Counter)
    money: dict[tuple[Class, str], Decimal] = field(default_factory=dict)
    unexplained: dict[str, Decimal] = field(default_factory=dict)
    volume: dict[str, Decimal] = field(default_factory=dict)
    anchors: dict[str, tuple[Anchor, Anchor]] = field(default_factory=dict)
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
        self.counts.update(result.counts)
        for place, value in result.money.items():
            self.money[place] = EXACT.add(self.money.get(place, Decimal(0)), value)
        for sums, more in ((self.unexplained, result.unexplained), (self.volume, result.volume)):
            for currency, value in more.items():
                add_to(sums, currency, value)
        for anchor in result.anchors:
            first, _ = self.anchors.get(anchor.endpoint, (anchor, anchor))
            self.anchors[anchor.endpoint] = first, anchor
        self.seconds += result.seconds

    @property
    def verdict(self) -> Verdict:
        """The worst of all windows; INCONCLUSIVE without any."""
        return Verdict.worst(list(self.verdicts))


def rule_result(rule: Rule, rules: RuleSet, results: Iterable[RuleResult], *, planned: int) -> TableResult:
    """Sum up a rule.

    Parameters
    ----------
    results
        Its windows; read once.
    planned
        How many windows there should be: fewer results are a reason, and no MATCH.
    """
    sums = Sums()
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
    counts = sums.counts
    others = sum(counts[kind] for kind in MISMATCHES - {Class.MISSING_ON_SOURCE, Class.MISSING_ON_TARGET})
    target = rule.target if rule.target is not None else rule.source
    return TableResult(
        pair=rule.name, source=described(rules.datasets.get(rule.source), rule.source),
        target=described(rules.datasets.get(target), target), verdict=verdict, reasons=tuple(reasons),
        rows_source=sums.covered.rows_source, rows_target=sums.covered.rows_target, chunks=sums.windows, lanes=(),
        missing_on_target=counts[Class.MISSING_ON_TARGET], missing_on_source=counts[Class.MISSING_ON_SOURCE],
        value_differs=others, not_covered=(), schema=(), seconds=sums.seconds,
        details={DETAILS: _details(rule, sums)},
    )  # fmt: skip


def described(dataset: Dataset | None, name: str) -> str:
    """Return how reports call a dataset: its name, and where its rows lie."""
    if dataset is None or not dataset.parts:
        return name
    first = dataset.parts[0]
    match first:
        case TablePart():
            where = f"{first.endpoint}: {first.database}.{first.table}"
        case ChangesPart():
            where = f"changes of {first.database}.{first.table} ({first.endpoint or first.path})"
        case FilePart():
            where = first.path
        case _:
            where = f"{first.endpoint}: a query"
    more = f" and {len(dataset.parts) - 1:,} more" if len(dataset.parts) > 1 else ""
    return f"{name} ({where}{more})"


def _details(rule: Rule, sums: Sums) -> dict[str, Any]:
    return {
        "kind": str(rule.kind), "severity": str(rule.severity), "owner": rule.owner, "description": rule.description,
        "place": str(rule.place), "datasets": [rule.source, rule.target],
        "counts": {str(kind): sums.counts[kind] for kind in Class if sums.counts[kind]},
        "money": [[str(kind), currency, plain(value)] for (kind, currency), value in sorted(sums.money.items())],
        "unexplained": texts_of(sums.unexplained), "volume": texts_of(sums.volume),
        "covered": asdict(sums.covered),
        "windows": {
            "count": sums.windows, "first": sums.first, "last": sums.last,
            **{str(verdict): n for verdict, n in sorted(sums.verdicts.items())},
        },
        "anchors": [asdict(anchor) for first, last in sums.anchors.values() for anchor in dict.fromkeys((first, last))],
    }  # fmt: skip
