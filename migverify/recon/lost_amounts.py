"""Money in lost rows, exactly: the amount that a rule defines, of the rows that the source does not hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from migverify.recon.amounts import EXACT, add_to, amount, distance
from migverify.recon.fields import Money
from migverify.recon.model import Dataset, TablePart
from migverify.recon.rule import Rule, RuleSet
from migverify.tables.diff import Texts
from migverify.tables.tasks import PairPlan

_NAME = re.compile(r"`([^`]+)`|(\w+)")
_EXACT = ("decimal", "integer")

Renames = Callable[[PairPlan], Mapping[str, str]]
"""Pair -> name of a column on the source to that on the target, where they differ."""


@dataclass(frozen=True, slots=True)
class _AmountColumn:
    """Where the amount of a rule is in the rows of one pair: positions among the compared columns."""

    rule: str
    amount: int
    currency: int | None
    constant: str
    names: Mapping[str, str]


@dataclass(slots=True)
class LostAmount:
    """The amount of one rule in the lost rows of one table, by currency.

    ``source`` and ``target`` are the sums of the rows on each side. ``at_risk`` adds up the difference of every key
    without its sign, so that what one key gained does not hide what another one lost. ``without`` counts rows whose
    amount or currency is NULL or no number.
    """

    rule: str
    table: str
    source: dict[str, Decimal] = field(default_factory=dict)
    target: dict[str, Decimal] = field(default_factory=dict)
    at_risk: dict[str, Decimal] = field(default_factory=dict)
    without: int = 0

    def difference(self, currency: str) -> Decimal:
        """Return what the target's rows hold more than those of the source."""
        zero = Decimal(0)
        return EXACT.subtract(self.target.get(currency, zero), self.source.get(currency, zero))


class LostAmounts:
    """Sums of the rules that define an amount in a table of some pairs; ``tables.loss.LostRows``.

    ``unstated`` says of which rules there is no sum, and why.
    """

    def __init__(self, rules: RuleSet, pairs: Sequence[PairPlan], renames: Renames) -> None:
        self.unstated: list[str] = []
        self._columns: dict[str, list[_AmountColumn]] = {}
        self._sums: dict[tuple[str, str], LostAmount] = {}
        for rule in rules.rules:
            self._use(rule, rules.sides(rule), pairs, renames)

    def needs(self, pair: PairPlan) -> bool:
        """Whether a rule defines an amount of the pair."""
        return pair.id in self._columns

    def add(self, pair: PairPlan, rows: Sequence[tuple[Sequence[Texts], Sequence[Texts]]]) -> None:
        """Add the rows of some keys: those on the source and those on the target."""
        for column in self._columns[pair.id]:
            sums = self._sums[column.rule, pair.id]
            for ours, theirs in rows:
                one, other = _of_key(column, ours, sums), _of_key(column, theirs, sums)
                for currency in one.keys() | other.keys():
                    before, after = one.get(currency, Decimal(0)), other.get(currency, Decimal(0))
                    add_to(sums.source, currency, before)
                    add_to(sums.target, currency, after)
                    add_to(sums.at_risk, currency, distance(after, before))

    def sums(self) -> list[LostAmount]:
        """Return the sums, also those of nothing."""
        return list(self._sums.values())

    def _use(self, rule: Rule, sides: Sequence[Dataset], pairs: Sequence[PairPlan], renames: Renames) -> None:
        money = rule.money_columns
        if money is None:
            self.unstated.append(f"rule {rule.name} defines no amount (money)")
            return
        reasons: list[str] = []
        for pair in pairs:
            # Both datasets of a rule may be sides of one pair: either says where the amount is.
            for dataset, on_target in _datasets_of(pair, sides):
                found = _column(rule.name, money, dataset, pair, dict(renames(pair)) if on_target else {})
                if isinstance(found, str):
                    reasons.append(f"rule {rule.name}: {found}")
                    continue
                self._columns.setdefault(pair.id, []).append(found)
                self._sums[rule.name, pair.id] = LostAmount(rule.name, pair.source)
                break
        if not any(name == rule.name for name, _ in self._sums):
            self.unstated += reasons or [f"rule {rule.name}: none of its datasets is a watched table"]


def _datasets_of(pair: PairPlan, sides: Sequence[Dataset]) -> Iterator[tuple[Dataset, bool]]:
    """Yield the datasets over a table of a pair, and whether it is the target's."""
    for dataset in sides:
        names = {(p.endpoint, p.database, p.table) for p in dataset.parts if isinstance(p, TablePart)}
        for side in pair.sides:
            if (side.endpoint.name, side.database, side.table) in names:
                yield dataset, side is pair.target_side
                break


def _column(
    rule: str, money: Money, dataset: Dataset, pair: PairPlan, renamed: Mapping[str, str]
) -> _AmountColumn | str:
    """Return where the amount is in the pair's rows, or why it is not there."""
    if any(isinstance(part, TablePart) and part.where for part in dataset.parts):
        return f"dataset {dataset.name} has a condition, which cannot be asked of single rows"
    values = {name: dict(texts) for name, texts in dataset.values}
    if money.column in values:
        return f"dataset {dataset.name} replaces values of {money.column}"
    place = _place(money.column, dataset, pair, renamed)
    if isinstance(place, str):
        return place
    if pair.columns[place].family not in _EXACT:
        return f"column {money.column} is a {pair.columns[place].family}, which is not summed exactly"
    if money.constant is not None:
        return _AmountColumn(rule, place, None, money.constant, {})
    currency = _place(money.currency, dataset, pair, renamed)
    if isinstance(currency, str):
        return currency
    return _AmountColumn(rule, place, currency, "", values.get(money.currency, {}))


def _place(name: str, dataset: Dataset, pair: PairPlan, renamed: Mapping[str, str]) -> int | str:
    expression = dict(dataset.columns).get(name, "") if dataset.columns else f"`{name}`"
    bare = _NAME.fullmatch(expression.strip())
    if bare is None:
        return f"column {name} of dataset {dataset.name} is an expression, which cannot be asked of single rows"
    column = bare[1] or bare[2]
    on_source = {new.casefold(): old for old, new in renamed.items()}.get(column.casefold(), column)
    names = [one.name.casefold() for one in pair.columns]
    if on_source.casefold() not in names:
        return f"column {column} of {pair.source} is not compared"
    return names.index(on_source.casefold())


def _of_key(column: _AmountColumn, rows: Sequence[Texts], sums: LostAmount) -> dict[str, Decimal]:
    found: dict[str, Decimal] = {}
    for texts in rows:
        value = amount(texts[column.amount])
        currency = column.constant if column.currency is None else texts[column.currency]
        if value is None or currency is None:
            sums.without += 1
            continue
        add_to(found, column.names.get(currency, currency), value)
    return found
