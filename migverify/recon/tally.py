"""Findings of a rule counted by class, and their money added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal

from migverify.recon.kinds.amounts import EXACT, add_to
from migverify.recon.model import MISMATCHES, Class, RuleFinding


@dataclass(slots=True)
class Tally:
    """Findings by class, and money at risk by class and currency; exact."""

    counts: Counter[Class] = field(default_factory=Counter)
    money: dict[tuple[Class, str], Decimal] = field(default_factory=dict)

    @classmethod
    def of(cls, findings: Iterable[RuleFinding]) -> Tally:
        """Count findings."""
        total = cls()
        for finding in findings:
            total.add(finding)
        return total

    def copy(self) -> Tally:
        """Return a tally that changes by itself."""
        return Tally(self.counts.copy(), dict(self.money))

    def add(self, finding: RuleFinding, sign: int = 1) -> None:
        """Count a finding in, or out with -1."""
        self.counts[finding.kind] += sign
        amounts = [] if finding.money is None else [(finding.currency or "", finding.money)]
        for currency, value in (*amounts, *finding.also):
            self._amount((finding.kind, currency), sign * value)

    def join(self, other: Tally, sign: int = 1) -> None:
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
