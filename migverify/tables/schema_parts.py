"""The rest of two definitions: foreign keys, CHECK constraints, triggers, partitions, TiDB's own attributes.

``tables.schema`` compares columns and keys, and calls ``compare_parts`` where the parts were read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from migverify.model import SchemaClass, SchemaDifference, TableDef
from migverify.sql.fingerprint import Renamed, check_form, foreign_key_form, normal_bound, partitioning_form, zerofilled
from migverify.sql.parts import Check, ForeignKey, Partitioning, Parts, Trigger
from migverify.sql.spelling import fold_label, grouped_equally

_LOSES, _COSMETIC = SchemaClass.MAY_LOSE_DATA, SchemaClass.COSMETIC
_LOSING_ATTRIBUTES = {"ttl": "the server deletes rows by their age"}

Part = TypeVar("Part")
Form = dict[str, Any]


def compare_parts(
    source: TableDef, target: TableDef, ours: Parts, theirs: Parts, renamed: Renamed, names: Mapping[str, str]
) -> Iterator[SchemaDifference]:
    """List how the parts of two tables differ.

    Parameters
    ----------
    renamed
        Name of a source's table -> name on the target.
    names
        Column of the source -> column of the target.
    """
    yield from _foreign_keys(source, target, ours.foreign_keys, theirs.foreign_keys, renamed, names)
    yield from _checks(source, target, ours.checks, theirs.checks)
    yield from _triggers(ours.triggers, theirs.triggers)
    yield from _partitioning(source, target, ours.partitioning, theirs.partitioning)
    yield from _attributes(dict(ours.attributes), dict(theirs.attributes))
    yield from _zerofill(source, target, ours, theirs, names)
    if (source.engine or "").casefold() != (target.engine or "").casefold():
        text = f"engine {source.engine} became {target.engine}"
        yield difference("engine", "table", source.engine, target.engine, _COSMETIC, text)


def difference(
    kind: str, where: str, source: str | None, target: str | None, level: SchemaClass, text: str
) -> SchemaDifference:
    """Return a difference whose message begins with its place."""
    return SchemaDifference(kind, where, source, target, level, f"{where}: {text}")


Formed = tuple[Part, Form]


def matched(
    ours: Sequence[Formed[Part]], theirs: Sequence[Formed[Part]], core: Callable[[Form], object]
) -> tuple[list[tuple[Formed[Part], Formed[Part]]], list[Formed[Part]], list[Formed[Part]]]:
    """Pair parts of equal cores, namesakes first, so that none takes another's partner; return pairs and the rest."""
    waiting, pairs, lone = list(theirs), [], []
    whole = [form for _, form in theirs]
    for one in sorted(ours, key=lambda part: part[1] not in whole):
        same = [other for other in waiting if core(other[1]) == core(one[1])]
        if not same:
            lone.append(one)
            continue
        partner = min(same, key=lambda other: (other[1] != one[1], other[1]["name"] != one[1]["name"]))
        waiting.remove(partner)
        pairs.append((one, partner))
    return pairs, lone, waiting


def _foreign_keys(
    source: TableDef, target: TableDef, ours: Sequence[ForeignKey], theirs: Sequence[ForeignKey], renamed: Renamed,
    names: Mapping[str, str],
) -> Iterator[SchemaDifference]:  # fmt: skip
    moved = [replace(key, columns=tuple(names.get(c, c) for c in key.columns)) for key in ours]  # the target's names
    pairs, lone, extra = matched(
        [(key, foreign_key_form(source, one, renamed)) for key, one in zip(ours, moved, strict=True)],
        [(key, foreign_key_form(target, key, lambda database, table: (database, table))) for key in theirs],
        lambda form: tuple(str(form[name]) for name in ("columns", "references", "referenced")),
    )
    for (one, form), (other, found) in pairs:
        where = f"foreign key {one.name}"
        for rule in ("on_delete", "on_update"):
            if form[rule] != found[rule]:
                text = f"{_words(rule)} {form[rule]} became {found[rule]}: other child rows go or stay"
                kind = f"foreign-key-{rule.replace('_', '-')}"
                yield difference(kind, where, form[rule], found[rule], _LOSES, text)
        if form["name"] != found["name"]:
            text = f"has another name on the target: {other.name}"
            yield difference("foreign-key-name", where, one.name, other.name, _COSMETIC, text)
    for one, form in lone:
        text = f"{_shown(form)} is missing on the target: rows without a parent can come in"
        yield difference("foreign-key-missing", f"foreign key {one.name}", _shown(form), None, _LOSES, text)
    for one, form in extra:
        text = f"only the target has {_shown(form)}: rows that the source accepts are refused"
        yield difference("foreign-key-extra", f"foreign key {one.name}", None, _shown(form), _LOSES, text)


def _shown(form: Form) -> str:
    columns, referenced = ", ".join(form["columns"]), ", ".join(form["referenced"])
    rules = [f" {_words(name)} {form[name]}" for name in ("on_delete", "on_update") if form[name] != "RESTRICT"]
    return f"({columns}) REFERENCES {form['references']} ({referenced}){''.join(rules)}"


def _words(rule: str) -> str:
    return rule.replace("_", " ").upper()


def _checks(
    source: TableDef, target: TableDef, ours: Sequence[Check], theirs: Sequence[Check]
) -> Iterator[SchemaDifference]:
    forms = [[(one, check_form(table, one)) for one in found] for table, found in ((source, ours), (target, theirs))]
    pairs, lone, extra = matched(forms[0], forms[1], lambda form: form["clause"])
    # A clause that became another one under a name that somebody gave is one difference, not two.
    for one, form in list(lone):
        other = next((o for o in extra if form["name"] and o[1]["name"] == form["name"]), None)
        if other is not None:
            lone.remove((one, form))
            extra.remove(other)
            text = f"{one.clause} became {other[0].clause}: other rows are refused"
            yield difference("check", f"check {one.name}", one.clause, other[0].clause, _LOSES, text)
    for (one, form), (partner, found) in pairs:
        where = f"check {one.name}"
        if form["enforced"] != found["enforced"]:
            words = ["ENFORCED" if enforced else "NOT ENFORCED" for enforced in (one.enforced, partner.enforced)]
            text = f"{words[0]} became {words[1]}: other rows are refused"
            yield difference("check-enforced", where, words[0], words[1], _LOSES, text)
        if not grouped_equally(one.clause, partner.clause):
            text = f"{one.clause} and {partner.clause} are grouped otherwise: other rows are refused"
            yield difference("check", where, one.clause, partner.clause, _LOSES, text)
        if form["name"] != found["name"]:
            text = f"has another name on the target: {partner.name}"
            yield difference("check-name", where, one.name, partner.name, _COSMETIC, text)
    for one, _ in lone:
        text = f"{one.clause} is missing on the target: rows that the source refuses can come in"
        yield difference("check-missing", f"check {one.name}", one.clause, None, _LOSES, text)
    for one, _ in extra:
        text = f"only the target has {one.clause}: rows that the source accepts are refused"
        yield difference("check-extra", f"check {one.name}", None, one.clause, _LOSES, text)


def _triggers(ours: Sequence[Trigger], theirs: Sequence[Trigger]) -> Iterator[SchemaDifference]:
    here, there = {one.name: _spoken(one) for one in ours}, {one.name: _spoken(one) for one in theirs}
    for name in sorted({*here, *there}):
        one, other, where = here.get(name), there.get(name), f"trigger {name}"
        if one == other:
            continue
        if other is None:
            text = "missing on the target (TiDB has no triggers): what it writes or refuses is not done there"
            yield difference("trigger-missing", where, one, None, _LOSES, text)
        elif one is None:
            text = "only the target has it: it changes what replication writes"
            yield difference("trigger-extra", where, None, other, _LOSES, text)
        else:
            yield difference("trigger", where, one, other, _LOSES, "does something else on the target")


def _spoken(trigger: Trigger) -> str:
    text = " ".join(trigger.statement.split())
    return f"{trigger.timing} {trigger.event} ({trigger.order}): {text}"


def _partitioning(
    source: TableDef, target: TableDef, ours: Partitioning | None, theirs: Partitioning | None
) -> Iterator[SchemaDifference]:
    forms = [None if p is None else partitioning_form(t, p) for t, p in ((source, ours), (target, theirs))]
    if forms[0] == forms[1]:
        return
    if ours is None or theirs is None or forms[0] is None or forms[1] is None:
        # A RANGE or LIST without a partition for the rest refuses rows; HASH and KEY have a place for each.
        refuses = theirs is not None and _refuses(theirs)
        words = [None if p is None else _described(p) for p in (ours, theirs)]
        more = "rows outside of the target's partitions are refused" if refuses else "rows are placed otherwise"
        text = f"{words[0] or 'not partitioned'} became {words[1] or 'not partitioned'}: {more}"
        yield difference("partitioning", "table", words[0], words[1], _LOSES if refuses else _COSMETIC, text)
        return
    for name in ("method", "expression", "sub_method", "sub_expression", "sub_count"):
        if forms[0][name] != forms[1][name]:
            one, other = (str(form[name]) if form[name] else None for form in (forms[0], forms[1]))
            text = f"partitions: {name.replace('_', ' ')} {one or 'none'} became {other or 'none'}"
            kind = f"partition-{name.replace('_', '-')}"
            yield difference(kind, "table", one, other, _COSMETIC, f"{text}: rows are placed otherwise")
    yield from _each_partition(ours, theirs)


def _each_partition(ours: Partitioning, theirs: Partitioning) -> Iterator[SchemaDifference]:
    here, there = {p.name: p for p in ours.partitions}, {p.name: p for p in theirs.partitions}
    method = ours.method
    bounds = {normal_bound(p.bound, method) for p in theirs.partitions}
    for name, one in here.items():
        other, where = there.get(name), f"partition {name}"
        if other is None:
            # Its rows have a place where another partition reaches as far, or takes all the rest.
            lost = bool(one.bound) and _refuses(theirs) and normal_bound(one.bound, method) not in bounds
            more = "its rows may be refused there" if lost else "rows are placed otherwise"
            text, level = f"the target has no such partition: {more}", _LOSES if lost else _COSMETIC
            yield difference("partition-missing", where, one.bound or name, None, level, text)
            continue
        if normal_bound(one.bound, method) != normal_bound(other.bound, method):
            level = _LOSES if _refuses(theirs) else _COSMETIC
            text = f"{one.bound} became {other.bound}: rows are placed otherwise or refused"
            yield difference("partition-bound", where, one.bound, other.bound, level, text)
        if fold_label(one.comment) != fold_label(other.comment):
            yield difference("partition-comment", where, one.comment, other.comment, _COSMETIC, "the comments differ")
    for name, other in there.items():
        if name not in here:
            text = "only the target has it: rows are placed otherwise"
            yield difference("partition-extra", f"partition {name}", None, other.bound or name, _COSMETIC, text)
    if list(here) != list(there) and sorted(here) == sorted(there):
        text = "partitions stand in another order"
        yield difference("partition-order", "table", ", ".join(here), ", ".join(there), _COSMETIC, text)


def _refuses(found: Partitioning) -> bool:
    """Whether a row may have no place."""
    return found.method.startswith(("RANGE", "LIST")) and not any(
        "MAXVALUE" in p.bound.upper() or p.bound.upper() == "DEFAULT" for p in found.partitions
    )


def _described(found: Partitioning) -> str:
    return f"{found.method} ({found.expression}), {len(found.partitions)} partitions"


def _attributes(ours: Mapping[str, str], theirs: Mapping[str, str]) -> Iterator[SchemaDifference]:
    for name in sorted({*ours, *theirs} - {"zerofill"}):
        one, other = ours.get(name), theirs.get(name)
        if one == other:
            continue
        losing = _LOSING_ATTRIBUTES.get(name)
        text = f"table: {one or f'no {name}'} became {other or f'no {name}'}"
        level = _LOSES if losing else _COSMETIC
        yield SchemaDifference("attribute", name, one, other, level, f"{text}: {losing}" if losing else text)


def _zerofill(
    source: TableDef, target: TableDef, ours: Parts, theirs: Parts, names: Mapping[str, str]
) -> Iterator[SchemaDifference]:
    """Compare ZEROFILL, which decides what clients read: ``00042`` or ``42``."""
    here = {names.get(name, name) for name in zerofilled(source, ours)}
    there = zerofilled(target, theirs)
    known = {column.name for column in target.columns}
    for name in sorted((here ^ there) & known):
        one, other = ("ZEROFILL", None) if name in here else (None, "ZEROFILL")
        text = f"ZEROFILL {'is lost' if name in here else 'is new'}: clients read other text, 00042 or 42"
        yield difference("zerofill", name, one, other, _LOSES, text)
