"""The volume of a rule's money: what its money at risk is a share of.

Summed are the absolute amounts of the rows that the rule judges, each row once, by currency: entries that sum to zero
have a volume all the same. Where a kind finds no money, or reads nothing but what it finds, there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from migverify.errors import ConfigError
from migverify.model import ColumnDef
from migverify.recon.groups import Aggregate, edge_of, group_relation, number, sum_of
from migverify.recon.kinds.scene import money_rule
from migverify.recon.model import ChangesPart, FilePart, Kind, Money, Rule, Window
from migverify.recon.relation import ChangeRead, Combine, JoinFilter
from migverify.recon.shape import Built, RuleInputs
from migverify.recon.sides import OpenPart, Side, read_column_of, slot
from migverify.sql import recon as sql

VOLUME = "volume"
"""The option of the rules that ``volume_of`` makes; no rules file can hold it."""
Build: TypeAlias = Callable[[Rule, Window | None], Built]

_JUDGED = frozenset(
    {Kind.SAME_ROWS, Kind.SAME_GROUPS, Kind.ZERO_SUM, Kind.BALANCE, Kind.TRANSITIONS, Kind.ORPHANS, Kind.UNIQUE}
)
"""Kinds that read rows that are fine beside those that are not, and tell money of the latter."""


def volume_of(rule: Rule, window: Window | None, build: Build) -> tuple[Built | None, str]:
    """Return what sums the volume of a rule in a window, by currency.

    With the reason where no exact sum can be had; nothing and no reason for a rule without money or without a volume.

    Raises
    ------
    EndpointError
        an endpoint cannot be reached.
    """
    money = money_rule(rule)
    if money is None or rule.kind not in _JUDGED:
        return None, ""
    found: list[Built] = []
    problem = ""
    for name in _datasets(rule):
        try:
            found.append(build(_summing(rule, name, money), window))
        except ConfigError as error:
            problem = problem or f"the volume of money is not known: {error.message}"
            continue
        if not (rule.kind is Kind.ORPHANS and rule.options.get("both")):
            break  # rows of one side are all of the money; the other side holds it once more
    if not found:
        return None, problem
    return replace(found[0], more=tuple(found[1:])), ""


def _datasets(rule: Rule) -> Iterator[str]:
    """Yield the datasets that may hold the money, the one whose rows are judged first."""
    names = [name for name in (rule.source, rule.target) if name is not None]
    yield from reversed(names) if rule.kind is Kind.ORPHANS else names[:1] if rule.kind is Kind.BALANCE else names


def _summing(rule: Rule, dataset: str, money: Money) -> Rule:
    column = str(rule.options["balance"]) if rule.kind is Kind.BALANCE else money.column
    options = {"groups": (), "amount": column, "currency": money.currency, VOLUME: True}
    if rule.kind is Kind.TRANSITIONS:
        options["column"] = rule.options["column"]
    return replace(
        rule, kind=Kind.ZERO_SUM, source=dataset, target=None, options=options, money=None, compare=(), tolerance=()
    )


def volume(scene: RuleInputs) -> Built:
    """Return the sums of absolute amounts by currency, see ``volume_of``.

    Where rows lie in no database, nothing computes absolute amounts before they are summed: the plain sum and the least
    amount are read, and the sum counts where no amount is negative.
    """
    amount, currency = scene.name("amount"), scene.name("currency")
    groups = () if Money("", currency).constant is not None else (currency,)
    key = scene.slots(groups, "group", exact=True)
    one = slot(scene.sides[:1], [amount], scene.refusal, "amount")
    total = sum_of(amount, one, scene.refusal)
    if _in_databases(scene.source):
        values = [_absolute(amount, total, one.names[0] or "")]
    else:
        values = [total, edge_of(amount, one, scene.refusal, greatest=False)]
    relation = group_relation(scene.source, 0, key, values, scene.refusal)
    changed = scene.option("column")
    if isinstance(changed, str):
        # A change that leaves the state as it was is not judged.
        reads = tuple(replace(r, changed=changed) if isinstance(r, ChangeRead) else r for r in relation.reads)
        relation = replace(relation, reads=reads)
    columns = tuple(read_column_of(value.definition) for value in values)
    return Built(relation, None, JoinFilter(all=True), columns)


def _in_databases(side: Side) -> bool:
    return not any(isinstance(part.part, FilePart | ChangesPart) for part in side.parts)


def _absolute(name: str, total: Aggregate, column: str) -> Aggregate:
    scale = total.definition.scale or 0

    def text(part: OpenPart, side: int) -> str:
        del side
        one = part.columns[column]
        return sql.exact_sum(sql.absolute(one.sql, one.definition), one.definition, scale)

    definition: ColumnDef = number(f"sum(abs({name}))", scale)
    return Aggregate(definition, Combine.SUM, text, lambda _side: None)
