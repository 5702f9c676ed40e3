"""Kinds that sum groups: equal aggregates, sums of zero, balances of entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, ClassVar, Literal

from pydantic import Field

from migverify.recon.amounts import amount, distance
from migverify.recon.build import Built, RuleInputs, null_checks, rows_of, time_checks
from migverify.recon.fields import Measures, Money, Names, Tolerances
from migverify.recon.groups import group_relation, measure_of, read_columns, sum_of
from migverify.recon.judging import JudgeInputs, word
from migverify.recon.kinds.rows import (
    KIND,
    TARGET,
    TOLERANCE,
    SameRows,
    bad_tolerances,
    compared_with_itself,
    different_keys,
    other_length,
    same_rows,
)
from migverify.recon.model import Class, Dataset, Deviation, QueryPart, RuleFinding, TablePart
from migverify.recon.relation import JoinFilter, Pairing, SqlRead
from migverify.recon.rule import Problems, Rule
from migverify.recon.sides import slot
from migverify.sql import recon as sql

GROUPS = Field(description="Columns of a group.")
CURRENCY = Field(default=None, min_length=1, description="Column of the currency; amounts are summed for each.")


class SameGroups(Rule):
    """Every group has equal aggregates on both sides."""

    sums_groups: ClassVar[bool] = True
    rereads_keys: ClassVar[bool] = True

    kind: Literal["same_groups"] = KIND
    target: str = TARGET
    groups: Names = GROUPS
    measures: Measures = Field(
        min_length=1, description="`count`, `count(x)`, `sum(x)`, `min(x)`, `max(x)`, `checksum(a, b)`."
    )
    compare: Names = Field(default=(), description="Columns compared in rows of groups that differ.")
    tolerance: Tolerances = TOLERANCE
    drill: bool | None = Field(
        default=None,
        description="Whether rows of groups that differ are compared by key. Default: where there is a key.",
    )

    def with_key(self, sides: Sequence[Dataset]) -> Rule:
        rule = super().with_key(sides)
        return rule if self.drill is not None else rule.model_copy(update={"drill": bool(rule.key)})

    def problems(self, sides: Sequence[Dataset]) -> Problems:
        if self.drill and not self.key:
            yield ("kind",), f"{self.kind} needs a key", "Write key: [column, ...] here or in the dataset."
        yield from different_keys(self, sides)
        compared = (*map(str, self.measures), *self.compare)
        yield from bad_tolerances(self.tolerance, compared, f"Compared are {', '.join(compared)}.")
        yield from compared_with_itself(self)

    def sentence(self, source: str, target: str) -> str:
        drill = ", then rows by " + ", ".join(self.key) if self.drill else ""
        measures, groups = ", ".join(map(str, self.measures)), ", ".join(self.groups)
        return f"{measures} of {source} and {target} agree per {groups}{drill}"

    def relations(self, inputs: RuleInputs) -> Built:
        key = inputs.slots(self.groups, "group", exact=True)
        values = [measure_of(measure, inputs.sides, inputs.refusal) for measure in self.measures]
        ours, theirs = (
            group_relation(side, number, key, values, inputs.refusal) for number, side in enumerate(inputs.both)
        )
        rows = None
        if self.drill or (self.drill is None and (inputs.rule_key or any(side.dataset.key for side in inputs.sides))):
            groups = tuple(
                tuple(read.lookup if isinstance(read, SqlRead) else () for read in relation.reads)
                for relation in (ours, theirs)
            )
            rows = replace(same_rows(inputs, self.compare, JoinFilter()), groups=groups)
        checks = time_checks(inputs.sides)
        return Built(ours, theirs, JoinFilter(repeated=False), read_columns(values), checks=checks, drill=rows)

    def rows_rule(self) -> Rule:
        """Return the rule that the rows behind a group have to meet."""
        fields: dict[str, Any] = {
            name: getattr(self, name) for name in SameRows.model_fields if name in type(self).model_fields
        }
        rule = SameRows.model_construct(**{**fields, "kind": "same_rows"})
        rule._place = self.place
        return rule

    def judge(self, inputs: JudgeInputs, pairing: Pairing) -> RuleFinding | None:
        sum_of_money = f"sum({inputs.money.column})" if inputs.money is not None else ""
        if pairing.source is None and pairing.target is None:
            return None
        risk = inputs.risk_of_sums(pairing, sum_of_money)
        if pairing.source is None or pairing.target is None:
            return inputs.missing(pairing, "on {here}, no rows on {there}", risk)
        deviations = inputs.deviations(pairing, [column.name for column in inputs.source.values])
        if not deviations:
            return None
        return inputs.finding(pairing, Class.VALUE_MISMATCH, inputs.describe(deviations), deviations, risk=risk)


def _with_currency(names: Sequence[str], currency: str | None) -> tuple[str, ...]:
    is_column = currency is not None and Money(column="-", currency=currency).constant is None
    return (*names, currency) if currency is not None and is_column and currency not in names else tuple(names)


class ZeroSum(Rule):
    """The amounts of each group sum to zero."""

    sums_groups: ClassVar[bool] = True
    rereads_keys: ClassVar[bool] = True

    kind: Literal["zero_sum"] = KIND
    groups: Names = GROUPS
    amount: str = Field(min_length=1, description="Column that is summed.")
    currency: str | None = CURRENCY
    tolerance: Tolerances = TOLERANCE

    @property
    def money_columns(self) -> Money | None:
        return self.money or (Money(column=self.amount, currency=self.currency) if self.currency else None)

    def problems(self, sides: Sequence[Dataset]) -> Problems:
        return bad_tolerances(self.tolerance, (self.amount, f"sum({self.amount})"), "Only the amount has one.")

    def sentence(self, source: str, target: str) -> str:
        groups = ", ".join([*self.groups, *([self.currency] if self.currency else [])])
        return f"{self.amount} of {source} sums to 0 per {groups}"

    def relations(self, inputs: RuleInputs) -> Built:
        source = inputs.source
        key = inputs.slots(_with_currency(self.groups, self.currency), "group", exact=True)
        total = sum_of(self.amount, inputs.own_slot(self.amount, "amount"), inputs.refusal)
        having = ""
        if len(source.parts) == 1 and isinstance(source.parts[0].part, TablePart | QueryPart):
            having = sql.not_zero(total.sql(source.parts[0], 0))
        relation = group_relation(source, 0, key, [total], inputs.refusal, having=having)
        checks = (*time_checks(inputs.sides), *null_checks(source, self.amount))
        return Built(relation, None, JoinFilter(all=True), read_columns([total]), checks=checks)

    def judge(self, inputs: JudgeInputs, pairing: Pairing) -> RuleFinding | None:
        rows, measure = pairing.source, f"sum({self.amount})"
        if rows is None:
            return None
        text = inputs.text(rows, pairing.key, measure)
        value = amount(text)
        if value is not None and value.copy_abs() <= (inputs.tolerance_of(measure) or Decimal(0)):
            return None
        if value is None:
            shown = "NULL" if text is None else "not a number"
        else:
            shown = word(text) if inputs.show else "another value"
        return inputs.finding(
            pairing, Class.VIOLATION, f"{measure} of {inputs.names[0]} is {shown}, not 0",
            (Deviation(measure, text, "0", "value"),), risk=inputs.risk_of_sums(pairing, measure),
        )  # fmt: skip


class Balance(Rule):
    """Each balance is the sum of its entries."""

    asks_all_rows: ClassVar[bool] = True
    needs_key: ClassVar[bool] = True
    sums_groups: ClassVar[bool] = True
    rereads_keys: ClassVar[bool] = True

    kind: Literal["balance"] = KIND
    target: str = Field(min_length=1, description="The dataset of the entries.")
    balance: str = Field(min_length=1, description="Column of the balance.")
    entries_key: Names = Field(description="Columns of an entry that name its balance, in the order of `key`.")
    amount: str = Field(min_length=1, description="Column of an entry that is summed.")
    currency: str | None = CURRENCY
    tolerance: Tolerances = TOLERANCE

    @property
    def money_columns(self) -> Money | None:
        return self.money or (Money(column=self.amount, currency=self.currency) if self.currency else None)

    def key_sides(self, sides: Sequence[Dataset]) -> Sequence[Dataset]:
        return sides[:1]

    def problems(self, sides: Sequence[Dataset]) -> Problems:
        yield from other_length(self, "entries_key", self.entries_key)
        yield from bad_tolerances(self.tolerance, (self.balance,), "Only the balance has one.")
        yield from compared_with_itself(self)

    def sentence(self, source: str, target: str) -> str:
        summed = f"{self.amount} of {target} by {', '.join(self.entries_key)}"
        return f"{self.balance} of {source} by {', '.join(self.key)} is the sum of {summed}"

    def relations(self, inputs: RuleInputs) -> Built:
        target = inputs.both[1]
        names = _with_currency(inputs.key, self.currency)
        key = inputs.paired_slots(
            names, (*self.entries_key, *names[len(inputs.key) :]), "entries_key", "key"
        )  # fmt: skip
        one = slot(inputs.sides, (self.balance, self.amount), inputs.refusal, "balance and amount")
        theirs = group_relation(target, 1, key, [sum_of(self.amount, one, inputs.refusal)], inputs.refusal)
        checks = (*time_checks(inputs.sides), *null_checks(target, self.amount))
        return Built(rows_of(inputs, 0, key, [one]), theirs, JoinFilter(), (one.read_column,), checks=checks)

    def judge(self, inputs: JudgeInputs, pairing: Pairing) -> RuleFinding | None:
        source, target, names = pairing.source, pairing.target, inputs.names
        index = inputs.index(self.balance) or 0
        if source is None:
            return inputs.missing(pairing)
        if source.count > 1:
            words = f"{source.count:,} rows on {names[0]}: an account has one balance"
            return inputs.finding(pairing, Class.DUPLICATE, words)
        balance = source.values[index]
        # No entries, or only NULL ones, sum to nothing: the balance has to be zero.
        entries = target.values[index] if target is not None else "0"
        values = amount(balance), amount(entries)
        limit = inputs.tolerance_of(self.balance) or Decimal(0)
        if values[0] is not None and values[1] is not None and distance(values[0], values[1]) <= limit:
            return None
        words = f"{self.balance} on {names[0]} is not the sum of {names[1]}"
        if inputs.show:
            words = f"{self.balance} {word(balance)} on {names[0]}, entries sum to {word(entries)} on {names[1]}"
        return inputs.finding(
            pairing, Class.VALUE_MISMATCH if target is not None else Class.MISSING_ON_TARGET, words,
            (Deviation(self.balance, balance, entries, "null" if None in values else "value"),),
            risk=inputs.risk_of_values(pairing, values),
        )  # fmt: skip
