"""Kinds that look at groups: equal aggregates, sums of zero, balances, coverage, freshness."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from migverify.recon.kinds.amounts import amount, distance, plain
from migverify.recon.kinds.risk import risk_of_sums
from migverify.recon.kinds.rows import missing
from migverify.recon.kinds.scene import JudgeInputs, moment_of, money_rule, word
from migverify.recon.model import Class, Deviation, RuleFinding
from migverify.recon.relation import KeyRows, Pairing
from migverify.recon.words import duration_text

COUNT = "count(*)"


@dataclass(frozen=True, slots=True)
class SameGroups:
    """Equal aggregates per group."""

    scene: JudgeInputs

    def judge(self, pairing: Pairing) -> RuleFinding | None:
        """Return what is unlike in one group; None where all measures agree within their tolerances."""
        if pairing.source is None and pairing.target is None:
            return None
        if pairing.source is None or pairing.target is None:
            return self._missing(pairing)
        deviations = self.scene.deviations(pairing, [column.name for column in self.scene.source.values])
        if not deviations:
            return None
        money, reason = risk_of_sums(self.scene, pairing, self._sum_of_money)
        return self.scene.finding(
            pairing, Class.VALUE_MISMATCH, self.scene.tell(deviations), deviations, money=money, reason=reason
        )

    @property
    def _sum_of_money(self) -> str:
        money = money_rule(self.scene.rule)
        return f"sum({money.column})" if money is not None else ""

    def _missing(self, pairing: Pairing) -> RuleFinding | None:
        finding = missing(self.scene, pairing)
        if finding is None:
            return None
        source, target = self.scene.names
        have, lack = (target, source) if pairing.source is None else (source, target)
        money, reason = risk_of_sums(self.scene, pairing, self._sum_of_money)
        return self.scene.finding(pairing, finding.of, f"on {have}, no rows on {lack}", money=money, reason=reason)


@dataclass(frozen=True, slots=True)
class ZeroSum:
    """The entries of a group sum to zero, exactly or within the tolerance."""

    scene: JudgeInputs

    def judge(self, pairing: Pairing) -> RuleFinding | None:
        """Return the finding of a group whose sum is not zero, or whose amounts are NULL."""
        held = pairing.source
        if held is None:
            return None
        measure = sum_name(self.scene)
        text = self.scene.text(held, pairing.key, measure)
        value = amount(text)
        limit = _tolerance(self.scene, measure) or Decimal(0)
        if value is not None and value.copy_abs() <= limit:
            return None
        money, reason = risk_of_sums(self.scene, pairing, measure)
        told = word(text) if self.scene.show else "another value"
        if value is None:
            words = f"{measure} of {self.scene.names[0]} is {'NULL' if text is None else 'not a number'}, not 0"
        else:
            words = f"{measure} of {self.scene.names[0]} is {told}, not 0"
        return self.scene.finding(
            pairing, Class.VIOLATION, words, (Deviation(measure, text, "0", "value"),), money=money, reason=reason
        )


@dataclass(frozen=True, slots=True)
class Balance:
    """A balance equals the sum of its entries; without entries it is zero. Source are balances, target entries."""

    scene: JudgeInputs

    def judge(self, pairing: Pairing) -> RuleFinding | None:
        """Return the finding of one account; None where balance and entries agree within the tolerance."""
        source, target = pairing.source, pairing.target
        where = self._place
        if source is None:
            return missing(self.scene, pairing) if target is not None else None
        if source.count > 1:
            words = f"{source.count:,} rows on {self.scene.names[0]}: an account has one balance"
            return self.scene.finding(pairing, Class.DUPLICATE, words)
        balance = source.values[where]
        # No entries, or only NULL ones, sum to nothing: the balance has to be zero.
        entries = target.values[where] if target is not None else "0"
        values = amount(balance), amount(entries)
        limit = _tolerance(self.scene, self._name) or Decimal(0)
        if values[0] is not None and values[1] is not None and distance(values[0], values[1]) <= limit:
            return None
        of = Class.VALUE_MISMATCH if target is not None else Class.MISSING_ON_TARGET
        deviation = Deviation(self._name, balance, entries, "null" if None in values else "value")
        names = self.scene.names
        if self.scene.show:
            words = f"{self._name} {word(balance)} on {names[0]}, entries sum to {word(entries)} on {names[1]}"
        else:
            words = f"{self._name} on {names[0]} is not the sum of {names[1]}"
        money, reason = self._risk(pairing, values)
        return self.scene.finding(pairing, of, words, (deviation,), money=money, reason=reason)

    @property
    def _name(self) -> str:
        return str(self.scene.rule.options.get("balance", self.scene.source.values[0].name))

    @property
    def _place(self) -> int:
        where = self.scene.place(self._name)
        return 0 if where is None else where

    def _risk(
        self, pairing: Pairing, values: tuple[Decimal | None, Decimal | None]
    ) -> tuple[tuple[tuple[str, Decimal], ...], str]:
        money = money_rule(self.scene.rule)
        if money is None:
            return (), ""
        if values[0] is None or values[1] is None:
            return (), "money is not known: the balance or the sum is NULL or not a number"
        held = pairing.source or pairing.target
        currency = money.constant or self.scene.text(held, pairing.key, money.currency)
        if currency is None:
            return (), f"money is not known: {money.currency} is NULL"
        return ((currency, distance(values[0], values[1])),), ""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Enough rows hold a value: per group, count(column) is at least a share of count(*)."""

    scene: JudgeInputs

    def judge(self, pairing: Pairing) -> RuleFinding | None:
        """Return the finding of a group in which a column is NULL too often."""
        held = pairing.source
        if held is None:
            return None
        counted = self._count(held, pairing, COUNT)
        all_rows = held.count if counted is None else counted
        if not all_rows:
            return None
        bad, words = [], []
        for name, share in least_shares(self.scene.rule.options):
            filled = self._count(held, pairing, f"count({name})")
            # count / rows >= share, without a division that could round.
            if filled is None or Decimal(filled) < share * all_rows:
                bad.append(Deviation(name, str(filled), f">= {plain(share)} of {all_rows}", "null"))
                least = plain(share)
                words.append(f"{name} is there in {filled or 0:,} of {all_rows:,} rows, the least share is {least}")
        if not bad:
            return None
        return self.scene.finding(pairing, Class.VIOLATION, "; ".join(words), tuple(bad))

    def _count(self, held: KeyRows | None, pairing: Pairing, column: str) -> int | None:
        value = amount(self.scene.text(held, pairing.key, column))
        return None if value is None else int(value)


def least_shares(options: dict[str, object]) -> list[tuple[str, Decimal]]:
    """Return (column, least share) of a coverage rule; shares are exact, never a float's digits."""
    columns = options.get("columns")
    if not isinstance(columns, dict):
        return []
    return [(str(name), Decimal(str(share))) for name, share in columns.items()]


@dataclass(frozen=True, slots=True)
class Freshness:
    """The newest row of each group is not older than the limit; ``now`` is Unix time's UTC moment of the judgment."""

    scene: JudgeInputs
    now: datetime
    limit: float

    def judge(self, pairing: Pairing) -> RuleFinding | None:
        """Return the finding of a group that has gone stale, or that holds no time at all."""
        held = pairing.source
        if held is None:
            return None
        name = next((c.name for c in self.scene.source.values if c.name.startswith("max(")), "")
        text = self.scene.text(held, pairing.key, name)
        newest = moment_of(text)
        if newest is None:
            words = f"{self.scene.names[0]} holds no {'time' if text is None else 'readable time'}"
            return self.scene.finding(pairing, Class.VIOLATION, words, (Deviation(name, text, None, "null"),))
        age = (self.now - newest).total_seconds()
        if age <= self.limit:
            return None
        dataset = self.scene.names[0]
        words = (
            f"the newest row of {dataset} is {duration_text(round(age, 1))} old ({text} UTC),"
            f" the limit is {duration_text(self.limit)}"
        )
        return self.scene.finding(pairing, Class.VIOLATION, words, (Deviation(name, text, None, "value"),))


def sum_name(scene: JudgeInputs) -> str:
    """Return the name of the value column that holds the sum: ``sum(amount)``."""
    wanted = f"sum({scene.rule.options.get('amount', '')})"
    if scene.place(wanted) is not None:
        return wanted
    return next((c.name for c in scene.source.values if c.name.startswith("sum(")), scene.source.values[0].name)


def _tolerance(scene: JudgeInputs, measure: str) -> Decimal | None:
    """Return the tolerance of a measure, told by its own name or by its column's."""
    inner = measure[measure.find("(") + 1 :].rstrip(")")
    found = scene.tolerance(measure)
    return scene.tolerance(inner) if found is None else found
