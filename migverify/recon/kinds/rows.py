"""Kinds that look at rows: the same rows on both sides, parents of children, unique keys, no rows at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from migverify.recon.build import Built, RuleInputs, carried_slots, only_with_reference, rows_of, time_checks
from migverify.recon.fields import Names, Tolerances
from migverify.recon.groups import group_relation, one_value_of
from migverify.recon.judging import JudgeInputs, count_text, word
from migverify.recon.model import Class, Dataset, Deviation, RuleFinding
from migverify.recon.relation import JoinFilter, Pairing
from migverify.recon.rule import Problems, Rule
from migverify.sql import recon as sql

KIND = Field(description="What the rule asks; see the kinds below.")
TARGET = Field(min_length=1, description="The dataset that `source` is compared with.")
TOLERANCE: Any = Field(
    default_factory=dict, description="Per column or measure, the largest difference that counts as equal; exact."
)


def compared_with_itself(rule: Rule) -> Problems:
    """Yield the problem of a rule whose source is its target."""
    if len(set(rule.datasets)) < len(rule.datasets):
        yield ("target",), f"the rule compares {rule.source} with itself", "Name another dataset."


def different_keys(rule: Rule, sides: Sequence[Dataset]) -> Problems:
    """Yield the problem of two datasets that are compared by key and have different ones."""
    keys = [side.key for side in sides if side.key]
    if rule.key in keys and len(set(keys)) > 1:
        names = " and ".join(f"{side.name} by {', '.join(side.key)}" for side in sides)
        yield (
            ("target",), f"the datasets have different keys: {names}",
            "Write the key that both have: key: [column, ...].",
        )  # fmt: skip


def other_length(rule: Rule, option: str, columns: Sequence[str]) -> Problems:
    """Yield the problem of columns that name a key and are more or fewer than its columns."""
    if columns and rule.key and len(columns) != len(rule.key):
        yield (
            (option,), f"{option} has {len(columns)} columns, the key has {len(rule.key)}",
            f"The key is {', '.join(rule.key)}; name one column for each.",
        )  # fmt: skip


def bad_tolerances(tolerance: Tolerances, compared: Sequence[str], hint: str) -> Problems:
    """Yield the problems of tolerances for what is not compared."""
    for name in tolerance:
        if name not in compared:
            yield ("tolerance", name), f"a tolerance for {name}, which is not compared", hint


class SameRows(Rule):
    """Every key is on both sides, with equal values."""

    needs_key: ClassVar[bool] = True
    rereads_keys: ClassVar[bool] = True
    crosses_windows: ClassVar[bool] = True

    kind: Literal["same_rows"] = KIND
    target: str = TARGET
    compare: Names = Field(default=(), description="Columns that are compared. Default: all that both sides have.")
    tolerance: Tolerances = TOLERANCE
    duplicates: Literal["allow", "report"] = Field(
        default="report", description="Whether a key that a side holds more than once is a finding."
    )

    def problems(self, sides: Sequence[Dataset]) -> Problems:
        yield from different_keys(self, sides)
        if self.compare:
            yield from bad_tolerances(
                self.tolerance, self.compare, "Add it to `compare`, or remove the tolerance."
            )  # fmt: skip
        else:
            others = [name for name in self.tolerance if name not in self.key]
            yield from bad_tolerances(self.tolerance, others, "Keys are compared exactly.")
        yield from compared_with_itself(self)

    def sentence(self, source: str, target: str) -> str:
        compared = ", ".join(self.compare) or "all columns"
        return f"rows of {source} and {target} by {', '.join(self.key)} have equal {compared}"

    def relations(self, inputs: RuleInputs) -> Built:
        return same_rows(inputs, self.compare, JoinFilter(repeated=self.duplicates == "report"))

    def judge(self, inputs: JudgeInputs, pairing: Pairing) -> RuleFinding | None:
        source, target = pairing.source, pairing.target
        if source is None or target is None:
            return inputs.missing(pairing)
        # All but the columns that are only read along, where the rule does not name them.
        compared = self.compare or [column.name for column in inputs.source.values[: inputs.source.compared]]
        deviations = inputs.deviations(pairing, compared)
        words = inputs.describe(deviations)
        names = inputs.names
        if self.duplicates == "report" and max(source.count, target.count) > 1:
            counts = f"{count_text(source.count)} on {names[0]}, {target.count:,} on {names[1]}"
            words = f"{counts}; {words}" if words else counts
            return inputs.finding(pairing, Class.DUPLICATE, words, deviations, risk=inputs.risk_of_extra(pairing))
        if not deviations and (source.differing or target.differing):
            words = f"rows of this key hold different values on {names[not source.differing]}"
        if not words:
            return None
        return inputs.finding(pairing, Class.VALUE_MISMATCH, words, deviations, risk=inputs.risk(pairing))


def same_rows(inputs: RuleInputs, compare: Sequence[str], keep: JoinFilter) -> Built:
    """Return rows of both sides by key, with the compared columns: the named ones, or all that both sides have."""
    source, target = inputs.both
    names = inputs.key
    left_out: tuple[str, ...] = ()
    if not compare:
        if not (source.is_known or target.is_known):
            raise inputs.refusal.error(
                "the columns are not known before the files are read", "Write compare: [columns]."
            )  # fmt: skip
        ours, theirs = source.names, target.names
        if not source.is_known or not target.is_known:
            compare = tuple(n for n in ours or theirs if n not in names)
        else:
            compare = tuple(n for n in ours if n in theirs and n not in names)
            if not compare and any(n not in names for n in (*ours, *theirs)):
                raise inputs.refusal.error(
                    f"no column but the key is in both {source.dataset.name} and {target.dataset.name}",
                    "Give both datasets the same names with `columns`, or write compare: [columns].",
                )
            left_out = tuple(n for n in (*ours, *theirs) if (n in ours) is not (n in theirs))
    key = inputs.slots(names, "key", exact=True)
    values = inputs.slots([n for n in compare if n not in names], "compared column")
    carried, times = carried_slots(inputs, [*names, *compare])
    return Built(
        rows_of(inputs, 0, key, values, carried), rows_of(inputs, 1, key, values, carried), keep,
        tuple(s.read_column for s in (*values, *carried)), times, time_checks(inputs.sides), left_out=left_out,
    )  # fmt: skip


class Orphans(Rule):
    """Every child has its parent."""

    needs_key: ClassVar[bool] = True
    rereads_keys: ClassVar[bool] = True
    crosses_windows: ClassVar[bool] = True

    kind: Literal["orphans"] = KIND
    target: str = Field(min_length=1, description="The dataset of the children.")
    reference: Names = Field(description="Columns of a child that name its parent, in the order of `key`.")
    both: bool = Field(default=False, description="true: a parent without a child is a finding too.")
    optional: bool = Field(default=False, description="true: a child without a reference (NULL) is fine.")

    @property
    def cut(self) -> tuple[bool, bool]:
        """Whether windows cut the source and the target: a parent may be older than the window of its child."""
        return self.both, True

    def key_sides(self, sides: Sequence[Dataset]) -> Sequence[Dataset]:
        return sides[:1]

    def problems(self, sides: Sequence[Dataset]) -> Problems:
        yield from other_length(self, "reference", self.reference)
        yield from compared_with_itself(self)

    def sentence(self, source: str, target: str) -> str:
        both = ", and each parent a child" if self.both else ""
        return f"every {', '.join(self.reference)} of {target} is a {', '.join(self.key)} of {source}{both}"

    def relations(self, inputs: RuleInputs) -> Built:
        slots = inputs.paired_slots(inputs.key, self.reference, "reference", "reference")
        # Where money is at risk the children are rows, else groups: the database then sends each reference once.
        carried, times = carried_slots(inputs, []) if inputs.money is not None else ([], (None, None))
        if carried:
            children = rows_of(inputs, 1, slots, (), carried)
            children = only_with_reference(children) if self.optional else children
        else:
            children = group_relation(
                inputs.both[1], 1, slots, (), inputs.refusal,
                where=lambda part: (
                    sql.all_not_null([part.columns[n].sql for n in self.reference]) if self.optional else ""
                ),
            )  # fmt: skip
        keep = JoinFilter(missing_source=True, missing_target=self.both, differing=False, repeated=False)
        parents, columns = rows_of(inputs, 0, slots, (), carried), tuple(s.read_column for s in carried)
        return Built(parents, children, keep, columns, times, time_checks(inputs.sides))

    def judge(self, inputs: JudgeInputs, pairing: Pairing) -> RuleFinding | None:
        parents, children = inputs.names
        if pairing.target is None:
            if pairing.source is None or not self.both:
                return None
            words = f"on {parents}, without {children}"
            return inputs.finding(pairing, Class.MISSING_ON_TARGET, words, risk=inputs.risk(pairing))
        rows = count_text(pairing.target.count)
        # A reference that is NULL in part refers to nothing, as in a foreign key of the database (MATCH SIMPLE).
        if any(part is None for part in pairing.key):
            if self.optional:
                return None
            of, words = Class.VIOLATION, f"{rows} of {children} whose reference is NULL"
        elif pairing.source is not None:
            return None
        else:
            of, words = Class.MISSING_ON_SOURCE, f"{rows} of {children} without {parents}"
        # What is at risk are the children alone.
        return inputs.finding(pairing, of, words, risk=inputs.risk(replace(pairing, source=None)))


class Unique(Rule):
    """A key occurs once, over all shards."""

    asks_all_rows: ClassVar[bool] = True
    needs_key: ClassVar[bool] = True
    rereads_keys: ClassVar[bool] = True

    kind: Literal["unique"] = KIND
    ignore_null: bool = Field(default=True, description="true: keys with a NULL may repeat, as in a unique index.")

    def sentence(self, source: str, target: str) -> str:
        return f"{', '.join(self.key)} occurs once in {source}"

    def relations(self, inputs: RuleInputs) -> Built:
        names = inputs.key
        key = inputs.slots(names, "key", exact=True)
        carried, _ = carried_slots(inputs, names) if inputs.money is not None else ([], None)
        if carried and len(inputs.source.parts) > 1:
            rows = rows_of(inputs, 0, key, (), carried)
            rows = only_with_reference(rows) if self.ignore_null else rows
        else:
            rows = group_relation(
                inputs.source, 0, key, [one_value_of(s, s.names[0] or "") for s in carried], inputs.refusal,
                having=sql.more_than_one(),
                where=lambda part: sql.all_not_null([part.columns[n].sql for n in names]) if self.ignore_null else "",
            )  # fmt: skip
        columns = tuple(s.read_column for s in carried)
        return Built(rows, None, JoinFilter(), columns, (None, None), time_checks(inputs.sides))

    def judge(self, inputs: JudgeInputs, pairing: Pairing) -> RuleFinding | None:
        rows = pairing.source
        if rows is None or rows.count < 2 or (self.ignore_null and any(part is None for part in pairing.key)):
            return None
        words = f"{count_text(rows.count)} on {inputs.names[0]}"
        shards = [shard for shard in rows.shards if shard]
        if len(shards) > 1:
            words += f" (shards {', '.join(shards)})"
        return inputs.finding(pairing, Class.DUPLICATE, words, risk=inputs.risk_of_extra(pairing))


class NoRows(Rule):
    """The dataset is empty."""

    accepts_no_rows: ClassVar[bool] = True

    kind: Literal["no_rows"] = KIND
    show: Names | None = Field(default=None, description="Columns of a row that a finding shows. Default: all.")
    limit: int = Field(default=1000, ge=1, description="How many rows are kept as findings; all are counted.")

    @property
    def finding_limit(self) -> int | None:
        return self.limit

    @property
    def key_is_row(self) -> bool:
        return not (self.key or self.show)

    def sentence(self, source: str, target: str) -> str:
        return f"{source} is empty"

    def relations(self, inputs: RuleInputs) -> Built:
        """Return every row of the dataset, by its key, or by all its columns where it has none."""
        names, show = inputs.source.names, self.show or ()
        if not inputs.source.is_known:
            raise inputs.refusal.error("the columns are not known before the files are read", "Use a table or sql.")
        for name in show:
            if name not in names:
                raise inputs.refusal.unknown(name, inputs.source, names)
        key_names = inputs.rule_key or inputs.source.dataset.key
        slots = inputs.slots(key_names, "key", exact=True)
        others = inputs.slots([n for n in (show or names) if n not in key_names], "column")
        if not key_names:
            slots = [s for s in others if s.unified.compare == "text"]
            others = [s for s in others if s.unified.compare != "text"]
        carried, times = carried_slots(inputs, [s.names[0] or "" for s in (*slots, *others)])
        rows = rows_of(inputs, 0, slots, others, carried)
        columns = tuple(s.read_column for s in (*others, *carried))
        return Built(rows, None, JoinFilter(all=True), columns, times, time_checks(inputs.sides))

    def judge(self, inputs: JudgeInputs, pairing: Pairing) -> RuleFinding | None:
        rows = pairing.source
        if rows is None:
            return None
        names = [column.name for column in inputs.source.values[: inputs.source.compared]]
        shown = [n for n in self.show or () if n in names] or names
        texts = [(name, inputs.text(rows, pairing.key, name)) for name in shown]
        words = "must not be there"
        if inputs.show and texts:
            words += f" ({', '.join(f'{name} {word(text)}' for name, text in texts)})"
        if rows.count > 1:
            words += f", {rows.count:,} rows"
        deviations = tuple(Deviation(name, text, None, "value") for name, text in texts)
        return inputs.finding(pairing, Class.VIOLATION, words, deviations, risk=inputs.risk(pairing))
