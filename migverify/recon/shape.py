"""What a rule becomes before anything is read: relations, checks, and the parts that all kinds build them from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from migverify.recon.model import QueryPart, Rule, TablePart, Window
from migverify.recon.relation import Combine, JoinFilter, Read, Relation, SqlRead
from migverify.recon.sides import Refusal, Side, Slot, other_read, row_read, slot
from migverify.sql import recon as sql
from migverify.sql.key_range import KeyColumn
from migverify.tables.tasks import ReadColumn


@dataclass(frozen=True, slots=True)
class Check:
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

    ``columns`` tell, per value column, how unlike texts are compared (``migverify.tables.values.same_value``).
    ``times`` names the time column among the values of each side, None where it is not read. ``checks`` are asked
    once per evaluation. ``more`` holds what a rule asks besides. ``drill`` are the rows behind groups, see ``drilled``.
    ``groups`` then holds the columns of the groups, per side and read. ``left_out`` names columns that one side alone
    has, where the rule does not say what is compared.
    """

    source: Relation
    target: Relation | None
    keep: JoinFilter
    columns: tuple[ReadColumn, ...]
    times: tuple[str | None, str | None] = (None, None)
    checks: tuple[Check, ...] = ()
    more: tuple[Built, ...] = ()
    drill: Built | None = None
    groups: tuple[tuple[tuple[KeyColumn, ...], ...], ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def shown(self) -> tuple[Shown, ...]:
        """The statements that read the rows, and those of the checks."""
        found = []
        for relation in (self.source, self.target, *(r for built in self.more for r in (built.source, built.target))):
            for read in relation.reads if relation is not None else ():
                text = sql.read_sql(read) if isinstance(read, SqlRead) else str(read)
                endpoint = read.endpoint if isinstance(read, SqlRead) else ""
                shard = read.shard if isinstance(read, SqlRead) else read.part.shard
                found.append(Shown(relation.dataset if relation else "", endpoint, shard, text))
        return (*found, *(Shown("", check.endpoint, "", check.sql) for check in self.checks))


@dataclass(frozen=True, slots=True)
class RuleInputs:
    """A rule with its datasets opened."""

    rule: Rule
    source: Side
    target: Side | None
    refusal: Refusal
    window: Window | None

    @property
    def sides(self) -> tuple[Side, ...]:
        """The datasets of the rule, the source first."""
        return (self.source,) if self.target is None else (self.source, self.target)

    def option(self, name: str, default: object = None) -> object:
        """Return an option of the rule's kind."""
        return self.rule.options.get(name, default)

    def names(self, option: str) -> tuple[str, ...]:
        """Return an option that lists columns; a single name is a list of one."""
        value = self.rule.options.get(option) or ()
        return (value,) if isinstance(value, str) else tuple(str(name) for name in value)

    def name(self, option: str) -> str:
        """Return an option that names a column and must be there."""
        value = self.rule.options.get(option)
        if not isinstance(value, str) or not value:
            raise self.refusal.error(f"a rule of kind {self.rule.kind} needs `{option}`, the name of a column")
        return value

    def key(self) -> tuple[str, ...]:
        """Return the key: the rule's, or that of a dataset."""
        key = self.rule.key or next((side.dataset.key for side in self.sides if side.dataset.key), ())
        if not key:
            raise self.refusal.error("neither the rule nor its datasets have a key", "Write key: [column, ...].")
        return key

    def key_of(self, number: int) -> tuple[str, ...]:
        """Return the key of one side: its dataset's, or the rule's."""
        key = self.sides[number].dataset.key or self.rule.key
        if not key:
            raise self.refusal.error(
                f"dataset {self.sides[number].dataset.name} has no key", "Write key: [column, ...] there."
            )
        return key

    def slots(self, names: Sequence[str], what: str, *, exact: bool = False) -> list[Slot]:
        """Return the slots of columns that have one name on all sides."""
        return [slot(self.sides, [n] * len(self.sides), self.refusal, what, exact=exact) for n in names]


def need_target(scene: RuleInputs) -> Side:
    """Return the target of a kind that compares two datasets."""
    if scene.target is None:
        raise scene.refusal.error(f"a rule of kind {scene.rule.kind} needs a target")
    return scene.target


def time_checks(sides: Sequence[Side]) -> tuple[Check, ...]:
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
                found.append(Check(part.part.endpoint, text, message))
    return tuple(found)


def rows_of(
    scene: RuleInputs, number: int, key: Sequence[Slot], values: Sequence[Slot], carried: Sequence[Slot] = ()
) -> Relation:
    """Return the relation of the rows of one side: key, compared values, carried values."""
    side = scene.sides[number]
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


def carried_slots(scene: RuleInputs, known: Sequence[str]) -> tuple[list[Slot], tuple[str | None, str | None]]:
    """Return the columns that are read along, and the names of the time columns among all values.

    Money, its currency and the time of a row, as far as they are not in ``known`` and a side has them.
    """
    money = scene.rule.money
    wanted = [] if money is None else [money.column, *([] if money.constant else [money.currency])]
    found: list[Slot] = []
    for name in dict.fromkeys(n for n in wanted if n not in known):
        has = [name if not side.told or name in side.names else None for side in scene.sides]
        if not any(has):
            raise scene.refusal.unknown(name, scene.source, scene.source.names)
        found.append(slot(scene.sides, has, scene.refusal, "money column"))
    times: list[str | None] = [side.dataset.time for side in scene.sides]
    read = [*known, *wanted]
    if any(name is not None and name not in read for name in times):
        lacking = [None if name in read else name for name in times]
        found.append(slot(scene.sides, lacking, scene.refusal, "time column"))
    return found, (times[0], times[1] if len(times) > 1 else None)
