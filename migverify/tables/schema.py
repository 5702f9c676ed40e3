"""Two definitions of one table: what differs, and how much it matters.

``compare_tables`` walks one table of attributes for each kind of part: columns, keys, options, foreign keys, CHECK
constraints, partitions. A difference never hides the data: what has a partner is compared, the rest is listed as not
covered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from migverify.model import ColumnDef, IndexDef, SchemaClass, SchemaDifference, TableDef
from migverify.sql.fingerprint import (
    Renamed,
    check_form,
    foreign_key_form,
    implied_keys,
    key_shape,
    normal_bound,
    normal_rule,
    partitioning_form,
    plain_json,
    zerofilled,
)
from migverify.sql.parts import ForeignKey, Partition, Partitioning, Parts, TriggerDef
from migverify.tables.columns import Pairs, likely_renames, match_columns
from migverify.tables.schema_attributes import (
    CHECK,
    ENGINE,
    FOREIGN_KEY,
    KEY,
    OPTIONS,
    PARTITIONED,
    PARTITIONING,
    Attribute,
    column_attributes,
    comment_attribute,
    difference,
    walk,
)

_BREAKS, _LOSES, _COSMETIC = SchemaClass.BREAKS_COMPARISON, SchemaClass.MAY_LOSE_DATA, SchemaClass.COSMETIC
_ORDER = {_BREAKS: 0, _LOSES: 1, _COSMETIC: 2}


def compare_tables(
    source: TableDef,
    target: TableDef,
    renames: Mapping[str, str] | None = None,
    ignored: Collection[str] = (),
    parts: tuple[Parts, Parts] | None = None,
    renamed: Renamed = lambda d, t: (d, t),
) -> list[SchemaDifference]:
    """List how the target's definition differs from the source's, the gravest first.

    Spellings of one meaning (display widths, ``'1.00'`` and ``'1'``, ``curdate()`` and ``CURRENT_DATE``, DEFAULT
    NULL printed or not) are no differences. Ignored columns are left out, save where a key holds them.

    Parameters
    ----------
    renames, ignored
        As in ``column_pairs``.
    parts
        Foreign keys, CHECK constraints, triggers and partitions of both tables; None where they were not read, and
        then they are not compared.
    renamed
        Name of a source's table -> name on the target, for what foreign keys refer to.
    """
    ours, theirs = parts or (Parts(), Parts())
    if parts is not None:
        (source, ours), (target, theirs) = plain_json(source, ours), plain_json(target, theirs)
    matched, lone_source, lone_target = match_columns(source, target, renames or {})
    skip = {name.casefold() for name in ignored}
    similar = likely_renames(lone_source, lone_target)
    found = [
        _lone(column, why, on_source, similar.get((column.name, on_source), ""))
        for lone, on_source in ((lone_source, True), (lone_target, False))
        for column, why in lone if column.name.casefold() not in skip
    ]  # fmt: skip
    compared = [(one, other) for one, other in matched if one.name.casefold() not in skip]
    for one, other in compared:
        unique = any(i.unique and n in i.columns for t, n in ((source, one.name), (target, other.name))
                     for i in t.indexes)  # fmt: skip
        differences = walk(column_attributes(unique=unique), one.name, one, other)
        found += [replace(d, message=f"column {d.message}") for d in differences]
    found += _compare_order(compared)
    names = {one.name: other.name for one, other in matched}
    found += _compare_keys(source, target, names, (ours, theirs))
    found += walk(OPTIONS if parts is not None else (*OPTIONS, PARTITIONED), "table", source, target)
    if parts is not None:
        found += _foreign_keys(source, target, ours.foreign_keys, theirs.foreign_keys, renamed, names)
        found += _checks(source, target, ours, theirs)
        found += _triggers(ours.triggers, theirs.triggers)
        found += _partitioning(source, target, ours.partitioning, theirs.partitioning)
        found += _tidb_attributes(source, target, ours, theirs, names)
        found += walk((ENGINE,), "table", source, target)
    return sorted(found, key=lambda difference: _ORDER[difference.level])


# --- columns ------------------------------------------------------------------------------------------------


def _lone(column: ColumnDef, reason: str, on_source: bool, similar: str = "") -> SchemaDifference:
    shown = f"{column.column_type} {'NULL' if column.nullable else 'NOT NULL'}"
    side = "target" if on_source else "source"
    renamed = f"; renamed? {similar} of the {side} is defined equally: `overrides[].rename`" if similar else ""
    if on_source:
        why = reason or "the target has no such column"
        message = f"column {column.name}: {why}; it is not compared{renamed}"
        return SchemaDifference("column-missing", column.name, shown, None, _BREAKS, message)
    refuses = not column.nullable and column.default is None and not column.generation
    refuses = refuses and "auto_" not in column.extra.lower()
    more = "; it is NOT NULL without a default, so that inserts made for the source fail" if refuses else ""
    message = f"column {column.name}: only the target has it; it is not compared{more}{renamed}"
    return SchemaDifference("column-extra", column.name, None, shown, _BREAKS, message)


def _compare_order(pairs: Pairs) -> Iterator[SchemaDifference]:
    positions = [target.position for _, target in pairs]
    moved = [s.name for (s, t), place in zip(pairs, sorted(positions), strict=True) if t.position != place]
    if moved:
        shown = ", ".join(moved[:5]) + (" ..." if len(moved) > 5 else "")
        message = f"the columns are in another order ({shown}): INSERT without a column list goes wrong"
        yield SchemaDifference("column-order", "table", None, None, _COSMETIC, message)


# --- keys and constraints -----------------------------------------------------------------------------------

Part = TypeVar("Part")
Form = dict[str, Any]
Formed = tuple[Part, Form]


def _matched(
    ours: Sequence[Formed[Part]], theirs: Sequence[Formed[Part]], core: Callable[[Form], object]
) -> tuple[list[tuple[Formed[Part], Formed[Part]]], list[Formed[Part]], list[Formed[Part]]]:
    """Pair parts of equal cores, namesakes first, so that none takes another's partner; return pairs and the rest."""
    waiting, pairs, lone = list(theirs), [], []
    forms = [form for _, form in theirs]
    for one in sorted(ours, key=lambda part: part[1] not in forms):
        same = [other for other in waiting if core(other[1]) == core(one[1])]
        if not same:
            lone.append(one)
            continue
        partner = min(same, key=lambda other: (other[1] != one[1], other[1]["name"] != one[1]["name"]))
        waiting.remove(partner)
        pairs.append((one, partner))
    return pairs, lone, waiting


def _compare_keys(
    source: TableDef, target: TableDef, names: Mapping[str, str], parts: tuple[Parts, Parts]
) -> Iterator[SchemaDifference]:
    """Match keys by what they cover, not by name, since the servers name them differently.

    What a server made by itself for a foreign key that both have is no difference, whether the other did so or not.
    """

    def forms(table: TableDef, names: Mapping[str, str]) -> list[Formed[IndexDef]]:
        return [(i, {"covers": (i.primary, i.unique, key_shape(table, i, names)), "name": i.name.lower()})
                for i in table.indexes]  # fmt: skip

    def folded(columns: Iterable[str | None], names: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(names.get(c or "", c or "").casefold() for c in columns)

    made = [implied_keys(t, p.foreign_keys) for t, p in zip((source, target), parts, strict=True)]
    keyed = [{folded(key.columns, n) for key in p.foreign_keys} for p, n in zip(parts, (names, {}), strict=True)]
    pairs, lone, extra = _matched(forms(source, names), forms(target, {}), lambda form: form["covers"])
    for (index, _), (partner, _) in pairs:
        if index.name not in made[0] or partner.name not in made[1]:
            yield from walk(KEY, f"key {index.name}", index, partner)
    for index, _ in lone:
        if index.name not in made[0] or folded(index.columns, names) not in keyed[1]:
            yield _missing_key(source, index, names, target)
    for index, _ in extra:
        if index.name not in made[1] or folded(index.columns, {}) not in keyed[0]:
            shown, level, text = _describe_key(index), _COSMETIC, ""
            if index.unique:
                level, text = _LOSES, ": rows that the source accepts are refused"
            yield difference("key-extra", f"key {index.name}", None, shown, level, f"only the target has {shown}{text}")


def _missing_key(source: TableDef, index: IndexDef, names: Mapping[str, str], target: TableDef) -> SchemaDifference:
    # The target's key that covers the same but is of another kind (primary, unique or neither).
    shape = key_shape(source, index, names)
    partner = next((other for other in target.indexes if key_shape(target, other, {}) == shape), None)
    theirs = None if partner is None else _describe_key(partner)
    level, text = _COSMETIC, "queries may be slower"
    if index.unique and partner is not None and partner.unique:
        text = "uniqueness is still enforced"
    elif index.unique:
        level, text = _LOSES, "uniqueness is not enforced, so that duplicates can come in"
    became = "is missing on the target" if theirs is None else f"became {theirs}"
    shown = _describe_key(index)
    return difference("key-missing", f"key {index.name}", shown, theirs, level, f"{shown} {became}: {text}")


def _describe_key(index: IndexDef) -> str:
    expressions = index.expressions or (None,) * len(index.columns)
    parts = []
    for column, prefix, expression in zip(index.columns, index.prefixes, expressions, strict=True):
        name = f"({expression})" if column is None else column
        parts.append(name if prefix is None else f"{name}({prefix})")
    kind = "PRIMARY KEY" if index.primary else "UNIQUE KEY" if index.unique else "KEY"
    more = "" if index.kind == "BTREE" else f"{index.kind} "
    return f"{more}{kind} ({', '.join(parts)})"


def _other_name(kind: str, where: str, one: Formed[Any], other: Formed[Any]) -> Iterator[SchemaDifference]:
    if one[1]["name"] != other[1]["name"]:
        text = f"has another name on the target: {other[0].name}"
        yield difference(kind, where, one[0].name, other[0].name, _COSMETIC, text)


def _foreign_keys(
    source: TableDef, target: TableDef, ours: Sequence[ForeignKey], theirs: Sequence[ForeignKey], renamed: Renamed,
    names: Mapping[str, str],
) -> Iterator[SchemaDifference]:  # fmt: skip
    moved = [replace(key, columns=tuple(names.get(c, c) for c in key.columns)) for key in ours]  # the target's names
    pairs, lone, extra = _matched(
        [(key, foreign_key_form(source, one, renamed)) for key, one in zip(ours, moved, strict=True)],
        [(key, foreign_key_form(target, key, lambda database, table: (database, table))) for key in theirs],
        lambda form: tuple(str(form[name]) for name in ("columns", "references", "referenced")),
    )
    for one, other in pairs:
        where = f"foreign key {one[0].name}"
        yield from walk(FOREIGN_KEY, where, one[1], other[1])
        yield from _other_name("foreign-key-name", where, one, other)
    for key, form in lone:
        text = f"{_shown(form)} is missing on the target: rows without a parent can come in"
        yield difference("foreign-key-missing", f"foreign key {key.name}", _shown(form), None, _LOSES, text)
    for key, form in extra:
        text = f"only the target has {_shown(form)}: rows that the source accepts are refused"
        yield difference("foreign-key-extra", f"foreign key {key.name}", None, _shown(form), _LOSES, text)


def _shown(form: Form) -> str:
    columns, referenced = ", ".join(form["columns"]), ", ".join(form["referenced"])
    rules = [f" {words} {form[name]}" for name, words in (("on_delete", "ON DELETE"), ("on_update", "ON UPDATE"))
             if form[name] != normal_rule("")]  # fmt: skip
    return f"({columns}) REFERENCES {form['references']} ({referenced}){''.join(rules)}"


def _checks(source: TableDef, target: TableDef, ours: Parts, theirs: Parts) -> Iterator[SchemaDifference]:
    forms = [[(c, check_form(t, c)) for c in parts.checks] for t, parts in ((source, ours), (target, theirs))]
    pairs, lone, extra = _matched(forms[0], forms[1], lambda form: form["clause"])
    # A clause that became another one under a name that somebody gave is one difference, not two.
    for one in list(lone):
        other = next((o for o in extra if one[1]["name"] and o[1]["name"] == one[1]["name"]), None)
        if other is not None:
            lone.remove(one)
            extra.remove(other)
            clauses = one[0].clause, other[0].clause
            text = f"{clauses[0]} became {clauses[1]}: other rows are refused"
            yield difference("check", f"check {one[0].name}", *clauses, _LOSES, text)
    for one, other in pairs:
        where = f"check {one[0].name}"
        yield from walk(CHECK, where, one[0], other[0])
        yield from _other_name("check-name", where, one, other)
    for check, _ in lone:
        text = f"{check.clause} is missing on the target: rows that the source refuses can come in"
        yield difference("check-missing", f"check {check.name}", check.clause, None, _LOSES, text)
    for check, _ in extra:
        text = f"only the target has {check.clause}: rows that the source accepts are refused"
        yield difference("check-extra", f"check {check.name}", None, check.clause, _LOSES, text)


def _triggers(ours: Sequence[TriggerDef], theirs: Sequence[TriggerDef]) -> Iterator[SchemaDifference]:
    def texts(triggers: Sequence[TriggerDef]) -> dict[str, str]:
        return {t.name: f"{t.timing} {t.event} ({t.order}): {' '.join(t.statement.split())}" for t in triggers}

    here, there = texts(ours), texts(theirs)
    for name in sorted(name for name in {*here, *there} if here.get(name) != there.get(name)):
        kind, text = "trigger", "does something else on the target"
        if name not in there:
            kind = "trigger-missing"
            text = "missing on the target (TiDB has no triggers): what it writes or refuses is not done there"
        elif name not in here:
            kind, text = "trigger-extra", "only the target has it: it changes what replication writes"
        yield difference(kind, f"trigger {name}", here.get(name), there.get(name), _LOSES, text)


# --- partitions and TiDB's own attributes -------------------------------------------------------------------


def _partitioning(
    source: TableDef, target: TableDef, ours: Partitioning | None, theirs: Partitioning | None
) -> Iterator[SchemaDifference]:
    if ours is not None and theirs is not None:
        forms = partitioning_form(source, ours), partitioning_form(target, theirs)
        if forms[0] != forms[1]:
            yield from walk(PARTITIONING, "table", *forms)
            yield from _each_partition(ours, theirs)
    elif ours is not theirs:
        # A RANGE or LIST without a partition for the rest refuses rows; HASH and KEY have a place for each.
        refuses = theirs is not None and _refuses(theirs)
        words = [None if p is None else f"{p.method} ({p.expression}), {len(p.partitions)} partitions"
                 for p in (ours, theirs)]  # fmt: skip
        more = "rows outside of the target's partitions are refused" if refuses else "rows are placed otherwise"
        text = f"{words[0] or 'not partitioned'} became {words[1] or 'not partitioned'}: {more}"
        yield difference("partitioning", "table", words[0], words[1], _LOSES if refuses else _COSMETIC, text)


def _each_partition(ours: Partitioning, theirs: Partitioning) -> Iterator[SchemaDifference]:
    here, there = {p.name: p for p in ours.partitions}, {p.name: p for p in theirs.partitions}
    refuses = _refuses(theirs)

    def bound(partition: Partition) -> str:
        return normal_bound(partition.bound, ours.method)

    attributes = (
        Attribute("partition-bound", bound,
                  (_LOSES if refuses else _COSMETIC, "rows are placed otherwise or refused"), lambda p: p.bound),
        comment_attribute("partition-comment"),
    )  # fmt: skip
    bounds = {bound(p) for p in theirs.partitions}
    for name, one in here.items():
        if name in there:
            yield from walk(attributes, f"partition {name}", one, there[name])
            continue
        # Its rows have a place where another partition reaches as far, or takes all the rest.
        lost = bool(one.bound) and refuses and bound(one) not in bounds
        more = "its rows may be refused there" if lost else "rows are placed otherwise"
        text, level = f"the target has no such partition: {more}", _LOSES if lost else _COSMETIC
        yield difference("partition-missing", f"partition {name}", one.bound or name, None, level, text)
    for name, other in there.items():
        if name not in here:
            text = "only the target has it: rows are placed otherwise"
            yield difference("partition-extra", f"partition {name}", None, other.bound or name, _COSMETIC, text)
    if list(here) != list(there) and sorted(here) == sorted(there):
        text = "partitions are in another order"
        yield difference("partition-order", "table", ", ".join(here), ", ".join(there), _COSMETIC, text)


def _refuses(partitioning: Partitioning) -> bool:
    """Whether a row may have no place."""
    return partitioning.method.startswith(("RANGE", "LIST")) and not any(
        "MAXVALUE" in p.bound.upper() or p.bound.upper() == "DEFAULT" for p in partitioning.partitions
    )


def _tidb_attributes(
    source: TableDef, target: TableDef, ours: Parts, theirs: Parts, names: Mapping[str, str]
) -> Iterator[SchemaDifference]:
    """Compare TiDB's own attributes, and ZEROFILL, which decides what clients read: ``00042`` or ``42``."""
    here, there = dict(ours.attributes), dict(theirs.attributes)
    for name in sorted({*here, *there} - {"zerofill"}):
        one, other = here.get(name), there.get(name)
        if one != other:
            level, more = (_LOSES, ": the server deletes rows by their age") if name == "ttl" else (_COSMETIC, "")
            text = f"table: {one or f'no {name}'} became {other or f'no {name}'}{more}"
            yield SchemaDifference("attribute", name, one, other, level, text)
    filled = {names.get(name, name) for name in zerofilled(source, ours)}
    for name in sorted((filled ^ zerofilled(target, theirs)) & {column.name for column in target.columns}):
        one, other = ("ZEROFILL", None) if name in filled else (None, "ZEROFILL")
        text = f"ZEROFILL {'is lost' if name in filled else 'is new'}: clients read other text, 00042 or 42"
        yield difference("zerofill", name, one, other, _LOSES, text)
