"""The rest of two definitions: foreign keys, CHECK constraints, triggers, partitions, TiDB's own attributes.

``tables.schema`` compares columns and keys, and calls ``compare_parts`` where the parts were read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from migverify.model import SchemaClass, SchemaDifference, TableDef
from migverify.sql.definitions import Name
from migverify.sql.fingerprint import Renamed, check_form, foreign_key_form, normal_bound, partitioning_form, zerofilled
from migverify.sql.parts import Check, ForeignKey, Partitioning, Parts, Trigger
from migverify.sql.spelling import fold_label, grouped_equally

__all__ = ["Renamed", "compare_parts"]

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
        message = f"table: engine {source.engine} became {target.engine}"
        yield SchemaDifference("engine", "table", source.engine, target.engine, _COSMETIC, message)


def _foreign_keys(
    source: TableDef, target: TableDef, ours: Sequence[ForeignKey], theirs: Sequence[ForeignKey], renamed: Renamed,
    names: Mapping[str, str],
) -> Iterator[SchemaDifference]:  # fmt: skip
    here = [
        (replace(k, columns=tuple(names.get(c, c) for c in k.columns)), k) for k in ours
    ]  # columns in the target's names
    ours_forms = [(key, foreign_key_form(source, moved, renamed)) for moved, key in here]
    theirs_forms = [(key, foreign_key_form(target, key, _same)) for key in theirs]
    core = ("columns", "references", "referenced")
    pairs, lone, extra = _matched(ours_forms, theirs_forms, lambda form: tuple(str(form[name]) for name in core))
    for (one, form), (other, found) in pairs:
        where = f"foreign key {one.name}"
        for rule in ("on_delete", "on_update"):
            if form[rule] != found[rule]:
                said = rule.replace("_", " ").upper()
                text = f"{where}: {said} {form[rule]} became {found[rule]}: other child rows go or stay"
                yield SchemaDifference(f"foreign-key-{rule.replace('_', '-')}", where, form[rule], found[rule], _LOSES,
                                       text)  # fmt: skip
        if form["name"] != found["name"]:
            text = f"{where}: has another name on the target: {other.name}"
            yield SchemaDifference("foreign-key-name", where, one.name, other.name, _COSMETIC, text)
    for one, form in lone:
        text = f"foreign key {one.name}: {_shown(form)} is missing on the target: rows without a parent can come in"
        yield SchemaDifference("foreign-key-missing", f"foreign key {one.name}", _shown(form), None, _LOSES, text)
    for one, form in extra:
        text = f"foreign key {one.name}: only the target has {_shown(form)}: rows that the source accepts are refused"
        yield SchemaDifference("foreign-key-extra", f"foreign key {one.name}", None, _shown(form), _LOSES, text)


def _same(database: str, table: str) -> Name:
    return database, table


def _shown(form: Form) -> str:
    columns, referenced = ", ".join(form["columns"]), ", ".join(form["referenced"])
    rules = "".join(
        f" {name.replace('_', ' ').upper()} {form[name]}"
        for name in ("on_delete", "on_update")
        if form[name] != "RESTRICT"
    )
    return f"({columns}) REFERENCES {form['references']} ({referenced}){rules}"


def _matched(
    ours: Sequence[tuple[Part, Form]], theirs: Sequence[tuple[Part, Form]], core: Callable[[Form], object]
) -> tuple[
    list[tuple[tuple[Part, Form], tuple[Part, Form]]], list[tuple[Part, Form]], list[tuple[Part, Form]]
]:  # fmt: skip
    """Pair by what they say, then namesakes first, so that none takes another's partner; return pairs and the rest."""
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


def _checks(
    source: TableDef, target: TableDef, ours: Sequence[Check], theirs: Sequence[Check]
) -> Iterator[SchemaDifference]:
    forms = [[(one, check_form(table, one)) for one in found] for table, found in ((source, ours), (target, theirs))]
    pairs, lone, extra = _matched(forms[0], forms[1], lambda form: form["clause"])
    # A clause that became another one under a name that somebody gave is one difference, not two.
    for one, form in list(lone):
        other = next((o for o in extra if form["name"] and o[1]["name"] == form["name"]), None)
        if other is not None:
            lone.remove((one, form))
            extra.remove(other)
            where = f"check {one.name}"
            text = f"{where}: {one.clause} became {other[0].clause}: other rows are refused"
            yield SchemaDifference("check", where, one.clause, other[0].clause, _LOSES, text)
    for (one, form), (other_check, found) in pairs:
        where = f"check {one.name}"
        if form["enforced"] != found["enforced"]:
            words = ["ENFORCED" if enforced else "NOT ENFORCED" for enforced in (one.enforced, other_check.enforced)]
            text = f"{where}: {words[0]} became {words[1]}: other rows are refused"
            yield SchemaDifference("check-enforced", where, words[0], words[1], _LOSES, text)
        if not grouped_equally(one.clause, other_check.clause):
            text = f"{where}: {one.clause} and {other_check.clause} are grouped otherwise: other rows are refused"
            yield SchemaDifference("check", where, one.clause, other_check.clause, _LOSES, text)
        if form["name"] != found["name"]:
            text = f"{where}: has another name on the target: {other_check.name}"
            yield SchemaDifference("check-name", where, one.name, other_check.name, _COSMETIC, text)
    for one, _ in lone:
        text = f"check {one.name}: {one.clause} is missing on the target: rows that the source refuses can come in"
        yield SchemaDifference("check-missing", f"check {one.name}", one.clause, None, _LOSES, text)
    for one, _ in extra:
        text = f"check {one.name}: only the target has {one.clause}: rows that the source accepts are refused"
        yield SchemaDifference("check-extra", f"check {one.name}", None, one.clause, _LOSES, text)


def _triggers(ours: Sequence[Trigger], theirs: Sequence[Trigger]) -> Iterator[SchemaDifference]:
    here, there = {one.name: _spoken(one) for one in ours}, {one.name: _spoken(one) for one in theirs}
    for name in sorted({*here, *there}):
        one, other, where = here.get(name), there.get(name), f"trigger {name}"
        if one == other:
            continue
        if other is None:
            text = f"{where}: missing on the target (TiDB has no triggers): what it writes or refuses is not done there"
            yield SchemaDifference("trigger-missing", where, one, None, _LOSES, text)
        elif one is None:
            text = f"{where}: only the target has it: it changes what replication writes"
            yield SchemaDifference("trigger-extra", where, None, other, _LOSES, text)
        else:
            yield SchemaDifference("trigger", where, one, other, _LOSES, f"{where}: does something else on the target")


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
        level = _LOSES if refuses else _COSMETIC
        words = [None if p is None else _described(p) for p in (ours, theirs)]
        more = ": rows outside of the target's partitions are refused" if refuses else ": rows are placed otherwise"
        text = f"table: {words[0] or 'not partitioned'} became {words[1] or 'not partitioned'}{more}"
        yield SchemaDifference("partitioning", "table", words[0], words[1], level, text)
        return
    for name in ("method", "expression", "sub_method", "sub_expression", "sub_count"):
        if forms[0][name] != forms[1][name]:
            one, other = _told(forms[0][name]), _told(forms[1][name])
            text = f"table: partitions: {name.replace('_', ' ')} {one or 'none'} became {other or 'none'}"
            yield SchemaDifference(f"partition-{name.replace('_', '-')}", "table", one, other, _COSMETIC,
                                   f"{text}: rows are placed otherwise")  # fmt: skip
    yield from _each_partition(ours, theirs)


def _told(value: object) -> str | None:
    return str(value) if value else None


def _each_partition(ours: Partitioning, theirs: Partitioning) -> Iterator[SchemaDifference]:
    here, there = {p.name: p for p in ours.partitions}, {p.name: p for p in theirs.partitions}
    method = ours.method
    bounds = {normal_bound(p.bound, method) for p in theirs.partitions}
    for name, one in here.items():
        other, where = there.get(name), f"partition {name}"
        if other is None:
            # Its rows have a place where another partition reaches as far, or takes all the rest.
            lost = bool(one.bound) and _refuses(theirs) and normal_bound(one.bound, method) not in bounds
            level = _LOSES if lost else _COSMETIC
            more = "its rows may be refused there" if lost else "rows are placed otherwise"
            yield SchemaDifference("partition-missing", where, one.bound or name, None, level,
                                   f"{where}: the target has no such partition: {more}")  # fmt: skip
            continue
        if normal_bound(one.bound, method) != normal_bound(other.bound, method):
            level = _LOSES if _refuses(theirs) else _COSMETIC
            text = f"{where}: {one.bound} became {other.bound}: rows are placed otherwise or refused"
            yield SchemaDifference("partition-bound", where, one.bound, other.bound, level, text)
        if fold_label(one.comment) != fold_label(other.comment):
            yield SchemaDifference("partition-comment", where, one.comment, other.comment, _COSMETIC,
                                   f"{where}: the comments differ")  # fmt: skip
    for name, other in there.items():
        if name not in here:
            text = f"partition {name}: only the target has it: rows are placed otherwise"
            yield SchemaDifference("partition-extra", f"partition {name}", None, other.bound or name, _COSMETIC, text)
    if list(here) != list(there) and sorted(here) == sorted(there):
        text = "table: partitions stand in another order"
        yield SchemaDifference("partition-order", "table", ", ".join(here), ", ".join(there), _COSMETIC, text)


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
        text = f"{name}: ZEROFILL {'is lost' if name in here else 'is new'}: clients read other text, 00042 or 42"
        yield SchemaDifference("zerofill", name, one, other, _LOSES, text)
