"""Relations of the kinds that look at groups: same aggregates, zero sums, balances, freshness, coverage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from migverify.model import KeyText
from migverify.recon.groups import (
    COUNT,
    Aggregate,
    count_of,
    edge_of,
    group_relation,
    measure_of,
    sum_of,
)
from migverify.recon.model import Measure, Money, QueryPart, TablePart
from migverify.recon.relation import JoinFilter, Relation, SqlRead
from migverify.recon.shape import Built, Check, RuleInputs, need_target, rows_of, time_checks
from migverify.recon.shapes_rows import parents_and_children, same_rows
from migverify.recon.sides import Side, read_column_of, slot
from migverify.sql import recon as sql
from migverify.sql.key_range import KeyColumn
from migverify.tables.tasks import ReadColumn


def same_groups(scene: RuleInputs) -> Built:
    """Groups have the same aggregates on both sides."""
    target = need_target(scene)
    groups = scene.names("groups")
    key = scene.slots(groups, "group", exact=True)
    wanted = scene.option("measures") or (COUNT,)
    measures = [m for m in wanted if isinstance(m, Measure)] if isinstance(wanted, tuple | list) else [COUNT]
    values = [measure_of(measure, scene.sides, scene.refusal) for measure in measures]
    relations = [
        group_relation(side, place, key, values, scene.refusal) for place, side in enumerate((scene.source, target))
    ]
    rows = None
    has_key = scene.rule.key or scene.source.dataset.key or target.dataset.key
    drill = scene.option("drill")
    if drill or (drill is None and has_key):
        rows = same_rows(scene)
        columns = tuple(
            tuple(_group_columns(read) for read in relation.reads) for relation in relations
        )  # fmt: skip
        rows = replace(rows, groups=columns)
    return Built(
        relations[0],
        relations[1],
        JoinFilter(repeated=False),
        _columns(values),
        checks=time_checks(scene.sides),
        drill=rows,
    )


def _group_columns(read: object) -> tuple[KeyColumn, ...]:
    return read.lookup if isinstance(read, SqlRead) else ()


def drilled(built: Built, groups: Sequence[KeyText]) -> Built | None:
    """Return the comparison of the rows behind some groups; None where the rule has no key for it.

    Rows are those of exactly these groups, also where a collation takes more as equal.
    """
    rows = built.drill
    if rows is None or rows.target is None or any(not columns for side in rows.groups for columns in side):
        return None
    source, target = (
        _within(relation, columns, groups)
        for relation, columns in zip((rows.source, rows.target), rows.groups, strict=True)
    )
    return replace(rows, source=source, target=target, groups=())


def _within(relation: Relation, columns: Sequence[Sequence[KeyColumn]], groups: Sequence[KeyText]) -> Relation:
    reads = tuple(
        replace(read, where=sql.both(read.where, sql.exact_keys_condition(these, groups)), cut=None, rows=-1)
        if isinstance(read, SqlRead) else read
        for read, these in zip(relation.reads, columns, strict=True)
    )  # fmt: skip
    return replace(relation, reads=reads)


def _columns(values: Sequence[Aggregate]) -> tuple[ReadColumn, ...]:
    return tuple(read_column_of(value.definition) for value in values)


def _with_currency(scene: RuleInputs, groups: tuple[str, ...]) -> tuple[str, ...]:
    currency = scene.option("currency")
    if not isinstance(currency, str) or currency in groups or Money("", currency).constant is not None:
        return groups
    return (*groups, currency)


def zero_sum(scene: RuleInputs) -> Built:
    """The amounts of a group sum to zero."""
    groups = _with_currency(scene, scene.names("groups"))
    key = scene.slots(groups, "group", exact=True)
    amount = scene.name("amount")
    one = slot(scene.sides[:1], [amount], scene.refusal, "amount")
    total = sum_of(amount, one, scene.refusal)
    relation = group_relation(scene.source, 0, key, [total], scene.refusal)
    if len(scene.source.parts) == 1 and isinstance(scene.source.parts[0].part, TablePart | QueryPart):
        having = sql.not_zero(total.sql(scene.source.parts[0], 0))
        relation = group_relation(scene.source, 0, key, [total], scene.refusal, having=having)
    checks = (*time_checks(scene.sides[:1]), *_null_checks(scene.source, amount))
    return Built(relation, None, JoinFilter(all=True), _columns([total]), checks=checks)


def _null_checks(side: Side, name: str) -> tuple[Check, ...]:
    """An amount that is NULL adds nothing to a sum, so that a sum says nothing while there are any."""
    found = []
    for part in side.parts:
        if isinstance(part.part, TablePart | QueryPart) and part.columns[name].definition.nullable:
            text = sql.nulls_sql(part.table, part.columns[name].sql, part.where)
            found.append(Check(part.part.endpoint, text, f"{{}} rows of {side.dataset.name} have no {name}"))
    return tuple(found)


def balance(scene: RuleInputs) -> Built:
    """A balance is the sum of its entries. Source are the balances, target the entries."""
    target = need_target(scene)
    balances, entries = list(scene.key()), list(scene.names("entries_key"))
    if len(balances) != len(entries):
        raise scene.refusal.error(
            f"entries_key has {len(entries)} columns and the key {len(balances)}", "Both name an account in one order."
        )
    for name in _with_currency(scene, tuple(balances))[len(balances) :]:
        balances.append(name)
        entries.append(name)
    key = [
        slot(scene.sides, pair, scene.refusal, "key", exact=True) for pair in zip(balances, entries, strict=True)
    ]  # fmt: skip
    names = (scene.name("balance"), scene.name("amount"))
    one = slot(scene.sides, names, scene.refusal, "balance and amount")
    total = sum_of(names[1], one, scene.refusal)
    ours = rows_of(scene, 0, key, [one])
    theirs = group_relation(target, 1, key, [total], scene.refusal)
    checks = (*time_checks(scene.sides), *_null_checks(target, names[1]))
    return Built(ours, theirs, JoinFilter(), (one.read_column,), checks=checks)


def freshness(scene: RuleInputs) -> Built:
    """Return the newest time of each group."""
    given = scene.option("column") or scene.source.dataset.time
    if not isinstance(given, str):
        raise scene.refusal.error("which column tells the age of a row?", "Write column: a time column.")
    key = scene.slots(scene.names("groups"), "group", exact=True)
    one = slot(scene.sides, [given] * len(scene.sides), scene.refusal, "time column")
    if one.unified.family not in ("datetime", "date"):
        raise scene.refusal.error(f"{given} is {one.unified.widest.column_type}, not a DATETIME or TIMESTAMP in UTC")
    newest = edge_of(given, one, scene.refusal, greatest=True)
    relation = group_relation(scene.source, 0, key, [newest], scene.refusal)
    return Built(relation, None, JoinFilter(all=True), _columns([newest]))


def coverage(scene: RuleInputs) -> Built:
    """Return counts of values per group; and with a target, references beside what they refer to."""
    shares = scene.option("columns")
    names = list(shares) if isinstance(shares, dict) else []
    built: list[Built] = []
    if scene.target is not None:
        reference = scene.names("reference")
        swapped = replace(scene, rule=replace(scene.rule, money=None))
        built.append(
            parents_and_children(swapped, scene.key_of(1), reference, 1, scene.source, optional=True, both=False)
        )
    if names or not built:
        key = scene.slots(scene.names("groups"), "group", exact=True) if scene.target is None else [
            slot(scene.sides, (n, None), scene.refusal, "group", exact=True) for n in scene.names("groups")
        ]  # fmt: skip
        for name in names:
            if scene.source.told and name not in scene.source.names:
                raise scene.refusal.unknown(name, scene.source, scene.source.names)
        values = [count_of(None, [None]), *(count_of(name, [name]) for name in names)]
        relation = group_relation(scene.source, 0, key, values, scene.refusal)
        checks = time_checks(scene.sides[:1])
        built.append(Built(relation, None, JoinFilter(all=True), _columns(values), checks=checks))
    return replace(built[0], more=tuple(built[1:]))
