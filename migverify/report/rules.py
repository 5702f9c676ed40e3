"""What a report shows of a rule: findings by class, money at risk, coverage, the moments that were read.

Read from the rule's result (``details["recon"]``) and from a sample of its findings; all of it is plain text, escaped
by the renderers. Amounts are the exact texts of the store.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

from migverify.model import KeyText, TableResult, Verdict
from migverify.recon.model import MISMATCHES, Class, Severity
from migverify.store.base import ResultStore

_PAGE = 50
_ORDER = (
    tuple(str(kind) for kind in Class if kind in MISMATCHES),
    (str(Class.PENDING),), (str(Class.KNOWN_EXCEPTION),), (str(Class.LATE_MATCHED),),
)  # fmt: skip
_AMOUNT = re.compile(r"(-?)([0-9]+)((?:\.[0-9]+)?)")
UNEXPLAINED = frozenset(str(kind) for kind in MISMATCHES)


@dataclass(frozen=True, slots=True)
class DeviationSample:
    """One column of a finding; ``masked`` True: both values are withheld."""

    column: str
    kind: str
    masked: bool
    source: str | None
    target: str | None


@dataclass(frozen=True, slots=True)
class FindingSample:
    """One finding as a report shows it. ``money`` holds (amount, currency), the first one the source's."""

    key: KeyText
    kind: str
    of: str
    message: str
    deviations: tuple[DeviationSample, ...]
    money: tuple[tuple[str, str], ...]
    window: str
    shard: str
    reason: str
    reads: int


@dataclass(frozen=True, slots=True)
class AnchorFacts:
    """The moment of an endpoint that was read."""

    endpoint: str
    words: str
    exact: bool


@dataclass(frozen=True, slots=True)
class RuleReport:
    """One rule. ``counts`` are findings by class, ``money`` is (class, currency, amount at risk), exact texts.

    ``stored`` is how many findings the store holds, ``findings`` the first of them.
    """

    result: TableResult
    kind: str
    severity: str
    owner: str
    description: str
    place: str
    counts: tuple[tuple[str, int], ...]
    money: tuple[tuple[str, str, str], ...]
    unexplained: tuple[tuple[str, str], ...]
    volume: tuple[tuple[str, str], ...]
    covered: tuple[tuple[str, int], ...]
    windows: tuple[tuple[str, str], ...]
    anchors: tuple[AnchorFacts, ...]
    findings: tuple[FindingSample, ...]
    stored: int

    @property
    def unexplained_counts(self) -> tuple[tuple[str, int], ...]:
        """Findings that nothing explains, by class; none of a rule that only warns."""
        return () if self.only_warns else tuple((kind, n) for kind, n in self.counts if kind in UNEXPLAINED and n)

    @property
    def unexplained_findings(self) -> int:
        """Findings that nothing explains; 0 for a rule that only warns."""
        return sum(number for _, number in self.unexplained_counts)

    @property
    def warnings(self) -> int:
        """Findings of a rule that only warns, which nothing explains; 0 for every other rule."""
        return sum(n for kind, n in self.counts if kind in UNEXPLAINED) if self.only_warns else 0

    @property
    def at_stake(self) -> tuple[tuple[str, str], ...]:
        """Money that nothing explains, by currency; none of a rule that only warns."""
        return () if self.only_warns else self.unexplained

    @property
    def has_money(self) -> bool:
        """Whether amounts of the rule are known."""
        return bool(self.money or self.unexplained or self.volume)

    @property
    def only_warns(self) -> bool:
        """Whether its findings make no mismatch."""
        return self.severity == Severity.WARNING

    @property
    def headline(self) -> str:
        """How many findings the rule has, over all of its windows; empty for none. Warnings are called so."""
        words = ", ".join(f"{number:,} {kind}" for kind, number in self.unexplained_counts)
        pending = dict(self.counts).get(str(Class.PENDING), 0)
        parts = [words, warning_words(self.warnings), f"{pending:,} pending" if pending else ""]
        return ", ".join(filter(None, parts))

    def share(self, currency: str) -> str:
        """Return the unexplained share of the volume in a currency as percent text; empty where it is not known."""
        risk, volume = dict(self.unexplained).get(currency), dict(self.volume).get(currency)
        if risk is None or volume is None or not Decimal(volume):
            return ""
        with localcontext() as context:
            context.prec = 28
            percent = Decimal(risk) * 100 / abs(Decimal(volume))
        return f"{percent:.6f}".rstrip("0").rstrip(".") + " %" if percent >= Decimal("0.000001") else "< 0.000001 %"


def warning_words(number: int) -> str:
    """Return ``1 warning`` or ``2,000 warnings``; empty for none."""
    return f"{number:,} {'warning' if number == 1 else 'warnings'}" if number else ""


def is_rule(result: TableResult, planned: frozenset[str]) -> bool:
    """Whether a result is a rule's; ``planned`` are the names of the rules of the run."""
    return isinstance(result.details.get("recon"), Mapping) or result.pair in planned


def read_rule(store: ResultStore, run_id: str, result: TableResult, samples: int, *, values: bool) -> RuleReport:
    """Read what is shown of a rule; ``values`` False withholds the values of columns, and messages that hold them."""
    found = result.details.get("recon")
    facts: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    return RuleReport(
        result=result, kind=str(facts.get("kind", "")), severity=str(facts.get("severity", "")),
        owner=str(facts.get("owner", "")), description=str(facts.get("description", "")),
        place=str(facts.get("place", "")),
        counts=tuple((str(kind), int(n)) for kind, n in dict(facts.get("counts", {})).items()),
        money=tuple((str(kind), str(currency), str(value)) for kind, currency, value in facts.get("money", ())),
        unexplained=_pairs(facts.get("unexplained")), volume=_pairs(facts.get("volume")),
        covered=tuple((str(name), int(n)) for name, n in dict(facts.get("covered", {})).items()),
        windows=_pairs(facts.get("windows")), anchors=tuple(_anchor(body) for body in facts.get("anchors", ())),
        findings=_samples(store, run_id, result.pair, samples, values=values),
        stored=sum(store.count_findings(run_id, result.pair).values()),
    )  # fmt: skip


def _pairs(found: object) -> tuple[tuple[str, str], ...]:
    return tuple((str(name), str(value)) for name, value in found.items()) if isinstance(found, Mapping) else ()


def _anchor(body: Mapping[str, Any]) -> AnchorFacts:
    exact = bool(body.get("exact"))
    words = f"{body.get('how')} at {body.get('position')}" if exact else (
        f"between {body.get('position')} and {body.get('until')}: {body.get('how')}"
    )  # fmt: skip
    return AnchorFacts(str(body.get("endpoint")), words, exact)


def _samples(store: ResultStore, run_id: str, rule: str, limit: int, *, values: bool) -> tuple[FindingSample, ...]:
    out: list[FindingSample] = []
    # What nothing explains comes first: what matched late must not push it out of the sample.
    for kinds in _ORDER:
        after = 0
        while len(out) < limit:
            page = store.findings(run_id, rule, kinds=kinds, after=after, limit=min(_PAGE, limit - len(out)))
            if not page:
                break
            out += [_sample(body, values=values) for _, body in page]
            after = page[-1][0]
    return tuple(out)


def _sample(body: Mapping[str, Any], *, values: bool) -> FindingSample:
    deviations = []
    for parts in body.get("deviations", ()):
        column, source, target, kind, masked = (*parts, "", False)[:5] if len(parts) < 5 else parts
        hidden = bool(masked) or not values
        deviations.append(DeviationSample(column, kind, hidden, None if hidden else source, None if hidden else target))
    money = [] if body.get("money") is None else [(str(body["money"]), str(body.get("currency") or ""))]
    money += [(str(value), str(currency)) for currency, value in body.get("also", ())]
    message = str(body.get("message", ""))
    if not values and any(not parts[4] for parts in body.get("deviations", ()) if len(parts) == 5):
        # The run kept values, this report may not show them: its message holds some.
        message = f"{', '.join('NULL' if p is None else p for p in body['key'])}: {body.get('of', '')}"
    return FindingSample(
        tuple(body["key"]), str(body["kind"]), str(body.get("of", "")), message, tuple(deviations), tuple(money),
        str(body.get("window", "")), str(body.get("shard", "")), str(body.get("reason", "")), int(body.get("reads", 1)),
    )  # fmt: skip


def urgency(rule: RuleReport) -> tuple[int, str]:
    """Order rules: MISMATCH first, then by name."""
    order = (Verdict.MISMATCH, Verdict.INCONCLUSIVE, Verdict.MATCH)
    return order.index(rule.result.verdict), rule.result.pair


def amounts(sums: tuple[tuple[str, str], ...]) -> str:
    """Return sums by currency as one phrase: ``1,210.00 EUR, 3 JPY``; ``none`` for no sum."""
    return ", ".join(f"{money_text(value)} {currency}" for currency, value in sums) or "none"


def money_text(value: str) -> str:
    """Return an exact amount with its thousands apart: ``-1,234.50``; every digit stays."""
    found = _AMOUNT.fullmatch(value)
    return value if found is None else f"{found[1]}{int(found[2]):,}{found[3]}"
