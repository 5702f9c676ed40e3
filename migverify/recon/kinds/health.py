"""Kinds that ask how a dataset fares: fresh rows, columns with values."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import ClassVar, Literal

from pydantic import Field

from migverify.recon.amounts import amount, plain
from migverify.recon.build import Built, RuleInputs, time_checks
from migverify.recon.fields import Duration, Names, Share, duration_text
from migverify.recon.groups import count_of, edge_of, group_relation, read_columns
from migverify.recon.judging import JudgeInputs, moment_of
from migverify.recon.kinds.rows import KIND
from migverify.recon.model import Class, Dataset, Deviation, RuleFinding
from migverify.recon.relation import JoinFilter, KeyRows, Pairing
from migverify.recon.rule import Problems, Rule

NO_GROUPS = Field(default=(), description="Columns of a group. Default: all rows are one.")


class Freshness(Rule):
    """The newest row is not too old."""

    asks_all_rows: ClassVar[bool] = True

    kind: Literal["freshness"] = KIND
    limit: Duration = Field(description="How old the newest row may be, as a duration.")
    column: str | None = Field(
        default=None, min_length=1, description="Column of the time. Default: that of the dataset."
    )
    groups: Names = NO_GROUPS

    @property
    def cut(self) -> tuple[bool, bool]:
        """Whether windows cut the source and the target: the newest row of all counts."""
        return False, False

    def problems(self, sides: Sequence[Dataset]) -> Problems:
        if self.window is not None:
            yield ("window",), "freshness looks at the newest row of all, so windows say nothing", "Remove `window`."
        if self.column is None and sides[0].time is None:
            yield ("kind",), "freshness needs the column of the time", "Write column: name, or `time` in the dataset."

    def sentence(self, source: str, target: str) -> str:
        per = f" per {', '.join(self.groups)}" if self.groups else ""
        return f"the newest row of {source}{per} is at most {duration_text(self.limit)} old"

    def relations(self, inputs: RuleInputs) -> Built:
        name = self.column or inputs.source.dataset.time
        if name is None:
            raise inputs.refusal.error("the column of a row's age is not known", "Write column: a time column.")
        key = inputs.slots(self.groups, "group", exact=True)
        one = inputs.own_slot(name, "time column")
        if one.unified.family not in ("datetime", "date"):
            raise inputs.refusal.error(
                f"{name} is {one.unified.widest.column_type}, not a DATETIME or TIMESTAMP in UTC"
            )
        newest = edge_of(name, one, inputs.refusal, greatest=True)
        relation = group_relation(inputs.source, 0, key, [newest], inputs.refusal)
        return Built(relation, None, JoinFilter(all=True), read_columns([newest]))

    def judge(self, inputs: JudgeInputs, pairing: Pairing) -> RuleFinding | None:
        if pairing.source is None:
            return None
        dataset = inputs.names[0]
        name = next((c.name for c in inputs.source.values if c.name.startswith("max(")), "")
        text = inputs.text(pairing.source, pairing.key, name)
        newest = moment_of(text)
        if newest is None:
            words = f"{dataset} holds no {'time' if text is None else 'readable time'}"
            return inputs.finding(pairing, Class.VIOLATION, words, (Deviation(name, text, None, "null"),))
        age = (inputs.now - newest).total_seconds()
        if age <= self.limit:
            return None
        words = (
            f"the newest row of {dataset} is {duration_text(round(age, 1))} old ({text} UTC),"
            f" the limit is {duration_text(self.limit)}"
        )
        return inputs.finding(pairing, Class.VIOLATION, words, (Deviation(name, text, None, "value"),))


class Coverage(Rule):
    """Enough rows hold a value."""

    kind: Literal["coverage"] = KIND
    columns: dict[str, Share] = Field(
        min_length=1, description="Per column, the least share of rows that are not NULL, from 0 to 1."
    )
    groups: Names = NO_GROUPS

    def sentence(self, source: str, target: str) -> str:
        asks = [f"{name} is not NULL in {share:f} of the rows" for name, share in self.columns.items()]
        return f"in {source}{' per ' + ', '.join(self.groups) if self.groups else ''}, {' and '.join(asks)}"

    def relations(self, inputs: RuleInputs) -> Built:
        groups = inputs.slots(self.groups, "group", exact=True)
        for name in self.columns:
            if inputs.source.is_known and name not in inputs.source.names:
                raise inputs.refusal.unknown(name, inputs.source, inputs.source.names)
        values = [count_of(None, [None]), *(count_of(name, [name]) for name in self.columns)]
        relation = group_relation(inputs.source, 0, groups, values, inputs.refusal)
        return Built(relation, None, JoinFilter(all=True), read_columns(values), checks=time_checks(inputs.sides))

    def judge(self, inputs: JudgeInputs, pairing: Pairing) -> RuleFinding | None:
        rows = pairing.source
        if rows is None:
            return None
        counted = _count(inputs, rows, pairing, "count(*)")
        all_of_them = rows.count if counted is None else counted
        deviations, words = [], []
        for name, share in self.columns.items() if all_of_them else ():
            filled = _count(inputs, rows, pairing, f"count({name})")
            # count / rows >= share, without a division that could round.
            if filled is None or Decimal(filled) < share * all_of_them:
                least = plain(share)
                deviations.append(Deviation(name, str(filled), f">= {least} of {all_of_them}", "null"))
                words.append(f"{name} is there in {filled or 0:,} of {all_of_them:,} rows, the least share is {least}")
        if not deviations:
            return None
        return inputs.finding(pairing, Class.VIOLATION, "; ".join(words), tuple(deviations))


def _count(inputs: JudgeInputs, rows: KeyRows, pairing: Pairing, column: str) -> int | None:
    value = amount(inputs.text(rows, pairing.key, column))
    return None if value is None else int(value)
