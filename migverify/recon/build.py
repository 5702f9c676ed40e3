"""What a rule becomes before anything is read: relations and checks, and the pieces that all kinds build them from.

A kind says which columns are the key, which are values and how values of one key are combined. Value columns have the
names that the kind looks for: a column's own, or a measure's (``sum(amount)``). Columns that are only read along
(money, currency, the time of a row) come last and make no rows different.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from migverify.model import KeyText
from migverify.recon.fields import Money
from migverify.recon.model import QueryPart, TablePart
from migverify.recon.relation import Combine, JoinFilter, Read, Relation, SqlRead
from migverify.recon.sides import DatasetSide, RuleRefusal, Slot, other_read, row_read, slot
from migverify.sql import recon as sql
from migverify.sql.key_range import KeyColumn
from migverify.tables.tasks import ReadColumn


@dataclass(frozen=True, slots=True)
class KindCheck:
    """A question beside the relations: a number that must be 0, or the rule cannot be a MATCH.

    ``message`` is the reason, with ``{}`` for the number.
    """

    endpoint: str
    sql: str
    message: str


@dataclass(frozen=True, slots=True)
class Shown:
    """One statement of a rule, for ``recon explain``."""

    dataset: str
    endpoint: str
    shard: str
    sql: str


@dataclass(frozen=True, slots=True)
class Built:
    """What a rule reads in one window.

    ``columns`` say, per value column, how different texts are compared (``migverify.tables.values.same_value``).
    ``times`` names the time column among the values of each side, None where it is not read. ``checks`` are asked
    once per evaluation.  ``drill`` are the rows behind groups, see ``drilled``.
    ``groups`` then holds the columns of the groups, per side and read. ``left_out`` names columns that one side alone
    has, where the rule does not say what is compared.
    """

    source: Relation
    target: Relation | None
    keep: JoinFilter
    columns: tuple[ReadColumn, ...]
    times: tuple[str | None, str | None] = (None, None)
    checks: tuple[KindCheck, ...] = ()
    drill: Built | None = None
    groups: tuple[tuple[tuple[KeyColumn, ...], ...], ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def shown(self) -> tuple[Shown, ...]:
        """The statements that read the rows, and those of the checks."""
        found = []
        for relation in (self.source, self.target):
            for read in relation.reads if relation is not None else ():
                text = sql.read_sql(read) if isinstance(read, SqlRead) else str(read)
                endpoint = read.endpoint if isinstance(read, SqlRead) else ""
                shard = read.shard if isinstance(read, SqlRead) else read.part.shard
                found.append(Shown(relation.dataset if relation else "", endpoint, shard, text))
        return (*found, *(Shown("", check.endpoint, "", check.sql) for check in self.checks))


@dataclass(frozen=True, slots=True)
class RuleInputs:
    """The opened datasets of a rule, with its key and its money."""

    source: DatasetSide
    target: DatasetSide | None
    refusal: RuleRefusal
    rule_key: tuple[str, ...] = ()
    money: Money | None = None

    @property
    def sides(self) -> tuple[DatasetSide, ...]:
        """The datasets of the rule, the source first."""
        return (self.source,) if self.target is None else (self.source, self.target)

    @property
    def both(self) -> tuple[DatasetSide, DatasetSide]:
        """The datasets of a kind that compares two."""
        if self.target is None:
            raise self.refusal.error("this rule needs a target")
        return self.source, self.target

    @property
    def key(self) -> tuple[str, ...]:
        """The key: the rule's, or that of a dataset."""
        key = self.rule_key or next((side.dataset.key for side in self.sides if side.dataset.key), ())
        if not key:
            raise self.refusal.error("neither the rule nor its datasets have a key", "Write key: [column, ...].")
        return key

    def slots(self, names: Sequence[str], what: str, *, exact: bool = False) -> list[Slot]:
        """Return the slots of columns that have one name on all sides."""
        return [slot(self.sides, [n] * len(self.sides), self.refusal, what, exact=exact) for n in names]

    def own_slot(self, name: str, what: str, *, exact: bool = False) -> Slot:
        """Return the slot of a column of the source alone."""
        return slot(self.sides[:1], [name], self.refusal, what, exact=exact)

    def paired_slots(self, key: Sequence[str], named: Sequence[str], option: str, what: str) -> list[Slot]:
        """Return the slots of a key that the other side knows by the columns that ``option`` names, in one order."""
        if len(named) != len(key):
            raise self.refusal.error(
                f"{option} has {len(named)} columns and the key {len(key)}", "Both name the same columns in one order."
            )
        return [slot(self.sides, pair, self.refusal, what, exact=True) for pair in zip(key, named, strict=True)]


def null_checks(side: DatasetSide, name: str) -> tuple[KindCheck, ...]:
    """Return the checks that no amount is NULL: it adds nothing to a sum, so that the sum proves nothing."""
    return tuple(
        KindCheck(
            part.part.endpoint, sql.nulls_sql(part.table, part.columns[name].sql, part.where),
            f"{{}} rows of {side.dataset.name} have no {name}",
        )
        for part in side.parts
        if isinstance(part.part, TablePart | QueryPart) and part.columns[name].definition.nullable
    )  # fmt: skip


def time_checks(sides: Sequence[DatasetSide]) -> tuple[KindCheck, ...]:
    """Return the checks that no row of a windowed dataset lacks a time: it would be in no window."""
    found = []
    for side in sides:
        for part in side.parts:
            time = part.columns.get(side.dataset.time or "")
            if side.window is None or time is None or not time.sql or not time.definition.nullable:
                continue
            if isinstance(part.part, TablePart | QueryPart):
                where = f"{side.dataset.name}{' shard ' + part.part.shard if part.part.shard else ''}"
                message = f"{{}} rows of {where} have no {side.dataset.time} and are in no window"
                text = sql.nulls_sql(part.table, time.sql, part.base)
                found.append(KindCheck(part.part.endpoint, text, message))
    return tuple(found)


def rows_of(
    inputs: RuleInputs, number: int, key: Sequence[Slot], values: Sequence[Slot], carried: Sequence[Slot] = ()
) -> Relation:
    """Return the relation of the rows of one side: key, compared values, carried values."""
    side = inputs.sides[number]
    every = [*values, *carried]
    reads: list[Read] = []
    for part in side.parts:
        if isinstance(part.part, TablePart | QueryPart):
            reads.append(row_read(part, number, key, every, side.window is not None))
        else:
            reads.append(other_read(part, side, number, key, every))
    return Relation(
        side.dataset.name, tuple(reads), tuple(s.definition(number) for s in key),
        tuple(s.definition(number) for s in every), (Combine.ROW,) * len(every), len(carried),
    )  # fmt: skip


def carried_slots(inputs: RuleInputs, known: Sequence[str]) -> tuple[list[Slot], tuple[str | None, str | None]]:
    """Return the columns that are read along, and the names of the time columns among all values.

    Money, its currency and the time of a row, as far as they are not in ``known`` and a side has them.
    """
    money = inputs.money
    wanted = [] if money is None else [money.column, *([] if money.constant else [money.currency])]
    found: list[Slot] = []
    for name in dict.fromkeys(n for n in wanted if n not in known):
        has = [name if not side.is_known or name in side.names else None for side in inputs.sides]
        if not any(has):
            raise inputs.refusal.unknown(name, inputs.source, inputs.source.names)
        found.append(slot(inputs.sides, has, inputs.refusal, "money column"))
    times: list[str | None] = [side.dataset.time for side in inputs.sides]
    read = [*known, *wanted]
    if any(name is not None and name not in read for name in times):
        lacking = [None if name in read else name for name in times]
        found.append(slot(inputs.sides, lacking, inputs.refusal, "time column"))
    return found, (times[0], times[1] if len(times) > 1 else None)


def only_with_reference(relation: Relation) -> Relation:
    """Return a relation without the rows whose key is NULL in part."""
    reads = tuple(
        replace(read, where=sql.both(read.where, sql.all_not_null([column.name for column in read.lookup])))
        if isinstance(read, SqlRead) else read
        for read in relation.reads
    )  # fmt: skip
    return replace(relation, reads=reads)


def drilled(built: Built, groups: Sequence[KeyText]) -> Built | None:
    """Return the comparison of the rows behind some groups; None where the rule has no key for it.

    Rows are those of exactly these groups, also where a collation takes more as equal.
    """
    rows = built.drill
    if rows is None or rows.target is None or any(not columns for side in rows.groups for columns in side):
        return None
    source, target = (
        replace(relation, reads=tuple(
            replace(read, where=sql.both(read.where, sql.exact_keys_condition(these, groups)), cut=None, rows=-1)
            if isinstance(read, SqlRead) else read
            for read, these in zip(relation.reads, columns, strict=True)
        ))
        for relation, columns in zip((rows.source, rows.target), rows.groups, strict=True)
    )  # fmt: skip
    return replace(rows, source=source, target=target, groups=())
