"""Two definitions of one table: what differs, how much it matters, and which columns can be paired.

``column_pairs`` matches columns by name, ``compare_tables`` reads the rest off the matched columns and keys. A
difference never hides the data: what has a partner is compared, the rest is listed as not covered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from migverify.model import ColumnDef, IndexDef, NotCovered, SchemaClass, SchemaDifference, TableDef
from migverify.sql.fingerprint import (
    Renamed,
    automatic,
    implied_keys,
    key_shape,
    normal_collation,
    on_update,
    plain_json,
    sharding,
)
from migverify.sql.parts import Parts
from migverify.sql.spelling import fold_label, grouped_equally, normal_default, normal_expression, rewritten_alike
from migverify.tables.schema_parts import compare_parts, difference, matched
from migverify.tables.type_change import collation_change, type_change

_BREAKS, _LOSES, _COSMETIC = SchemaClass.BREAKS_COMPARISON, SchemaClass.MAY_LOSE_DATA, SchemaClass.COSMETIC
_ORDER = {_BREAKS: 0, _LOSES: 1, _COSMETIC: 2}

Pairs = list[tuple[ColumnDef, ColumnDef]]


def column_pairs(
    source: TableDef,
    target: TableDef,
    renames: Mapping[str, str] | None = None,
    ignored: Collection[str] = (),
) -> tuple[Pairs, list[NotCovered]]:
    """Match the columns of two tables.

    Parameters
    ----------
    source, target
        The two definitions. Generated and invisible columns take part like all others.
    renames
        Name on the source -> name on the target; found in any case. A rename is binding: a column whose new
        name the target lacks is not matched by its old one.
    ignored
        Names (of the source, or of a column only the target has) that the configuration leaves out; any case.

    Returns
    -------
    pairs, not_covered
        Pairs in the source's order: renamed ones, then exact names, then names that differ in case alone and
        have one candidate. Every column of either side is in a pair or in ``not_covered`` with its reason.
    """
    matched, lone_source, lone_target = _match(source, target, renames or {})
    skip = {name.casefold() for name in ignored}
    pairs: Pairs = []
    not_covered: list[NotCovered] = []
    for ours, theirs in matched:
        if ours.name.casefold() in skip:
            not_covered.append(NotCovered(ours.name, "ignored by configuration"))
        else:
            pairs.append((ours, theirs))
    for lone, where in ((lone_source, "source"), (lone_target, "target")):
        for column, reason in lone:
            ignored_here = column.name.casefold() in skip
            said = "ignored by configuration" if ignored_here else reason or f"only the {where} has this column"
            not_covered.append(NotCovered(column.name, said))
    return pairs, not_covered


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
        then they are not looked at.
    renamed
        Name of a source's table -> name on the target, for what foreign keys refer to.
    """
    if parts is not None:
        (source, source_parts), (target, target_parts) = plain_json(source, parts[0]), plain_json(target, parts[1])
        parts = source_parts, target_parts
    matched, lone_source, lone_target = _match(source, target, renames or {})
    skip = {name.casefold() for name in ignored}
    found: list[SchemaDifference] = []
    alike = _likely_renames(lone_source, lone_target)
    for lone, on_source in ((lone_source, True), (lone_target, False)):
        found += [
            _lone(column, why, on_source, alike.get((column.name, on_source), ""))
            for column, why in lone
            if column.name.casefold() not in skip
        ]
    kept = [(ours, theirs) for ours, theirs in matched if ours.name.casefold() not in skip]
    by_configuration = {name.casefold() for name in renames or {}}
    for ours, theirs in kept:
        unique = _in_unique_key(source, ours.name) or _in_unique_key(target, theirs.name)
        found += _compare_columns(ours, theirs, in_unique_key=unique, renamed=ours.name.casefold() in by_configuration)
    found += _compare_order(kept)
    names = {one.name: other.name for one, other in matched}
    found += _compare_keys(source, target, names, parts or (Parts(), Parts()))
    found += _compare_options(source, target, partitions=parts is None)
    if parts is not None:
        found += compare_parts(source, target, *parts, renamed, names)
    return sorted(found, key=lambda difference: _ORDER[difference.level])


# --- matching columns ---------------------------------------------------------------------------------------


def _match(
    source: TableDef, target: TableDef, renames: Mapping[str, str]
) -> tuple[Pairs, list[tuple[ColumnDef, str]], list[tuple[ColumnDef, str]]]:
    """Return matched columns and, for each side, the rest with a reason ("" where the name says it)."""
    free = {column.name: column for column in target.columns}
    waiting = list(source.columns)
    found: dict[str, ColumnDef] = {}
    reasons: dict[str, str] = {}
    wanted = {old.casefold(): new for old, new in renames.items()}
    for column in source.columns:
        new = wanted.get(column.name.casefold())
        if new is None:
            continue
        waiting.remove(column)
        partner = _of_name(new, free.values())
        if partner is None:
            reasons[column.name] = f"renamed to {new} by configuration, and the target has no such column left"
        else:
            found[column.name] = free.pop(partner.name)
    for column in list(waiting):
        if column.name in free:
            found[column.name] = free.pop(column.name)
            waiting.remove(column)
    folded = Counter(column.name.casefold() for column in waiting)
    for column in waiting:
        partner = _of_name(column.name, free.values())
        if partner is not None and folded[column.name.casefold()] == 1:
            found[column.name] = free.pop(partner.name)
    pairs = [(column, found[column.name]) for column in source.columns if column.name in found]
    lone = [(column, reasons.get(column.name, "")) for column in source.columns if column.name not in found]
    return pairs, lone, [(column, "") for column in target.columns if column.name in free]


def _of_name(name: str, columns: Iterable[ColumnDef]) -> ColumnDef | None:
    """Return the column of that name: exactly, or in another case where there is one such."""
    candidates = [column for column in columns if column.name.casefold() == name.casefold()]
    for column in candidates:
        if column.name == name:
            return column
    return candidates[0] if len(candidates) == 1 else None


# --- columns ------------------------------------------------------------------------------------------------


def _likely_renames(
    lone_source: Sequence[tuple[ColumnDef, str]], lone_target: Sequence[tuple[ColumnDef, str]]
) -> dict[tuple[str, bool], str]:
    """Return (lone column, whether it is the source's) -> the column of the other side that may be the same one.

    Both are defined alike, and have similar names, or the same place where nothing else comes into question.
    """
    alike = [
        (name_likeness(one.name, other.name), one, other)
        for one, why in lone_source
        for other, _ in lone_target
        if not why and one.nullable == other.nullable and bool(one.generation) == bool(other.generation)
        and not list(type_change(one, other))
    ]  # fmt: skip
    found: dict[tuple[str, bool], str] = {}
    for likeness, one, other in sorted(alike, key=lambda pair: (-pair[0], pair[1].position, pair[2].position)):
        only = len(lone_source) == len(lone_target) == 1 and one.position == other.position
        if (likeness >= ALIKE or only) and (one.name, True) not in found and (other.name, False) not in found:
            found[one.name, True], found[other.name, False] = other.name, one.name
    return found


ALIKE = 0.5
"""From which likeness on two names may be one that was changed."""


def name_likeness(one: str, other: str) -> float:
    """Return how much of two names is equal, from 0 to 1; case does not count."""
    return SequenceMatcher(None, one.casefold(), other.casefold(), autojunk=False).ratio()


def _lone(column: ColumnDef, reason: str, on_source: bool, alike: str = "") -> SchemaDifference:
    shown = _describe(column)
    side = "target" if on_source else "source"
    renamed = f"; renamed? {alike} of the {side} is defined equally: `overrides[].rename`" if alike else ""
    if on_source:
        why = reason or "the target has no such column"
        message = f"column {column.name}: {why}; it is not compared{renamed}"
        return SchemaDifference("column-missing", column.name, shown, None, _BREAKS, message)
    refuses = not column.nullable and column.default is None and not column.generation
    refuses = refuses and "auto_" not in column.extra.lower()
    more = "; it is NOT NULL without a default, so that inserts made for the source fail" if refuses else ""
    message = f"column {column.name}: only the target has it; it is not compared{more}{renamed}"
    return SchemaDifference("column-extra", column.name, None, shown, _BREAKS, message)


def _compare_columns(
    source: ColumnDef, target: ColumnDef, *, in_unique_key: bool, renamed: bool
) -> Iterator[SchemaDifference]:
    def difference(kind: str, ours: str | None, theirs: str | None, level: SchemaClass, text: str) -> SchemaDifference:
        return SchemaDifference(kind, source.name, ours, theirs, level, f"column {source.name}: {text}")

    if source.name != target.name:
        why = "renamed by configuration" if renamed else "the names differ in case"
        yield difference("column-name", source.name, target.name, _COSMETIC, why)
    for change in type_change(source, target):
        ours, theirs = (
            (source.charset, target.charset) if change.kind == "charset" else (source.column_type, target.column_type)
        )
        yield difference(change.kind, ours, theirs, change.level, f"{ours} became {theirs}: {change.message}")
    for level, text in _labels(source, target):
        yield difference("members", source.column_type, target.column_type, level, text)
    if (
        source.collation
        and target.collation
        and normal_collation(source.collation) != normal_collation(target.collation)
    ):
        text, otherwise = collation_change(source.collation, target.collation)
        where = ", and a unique key holds this column" if in_unique_key else ""
        level = _LOSES if otherwise or (in_unique_key and "single characters" in text) else _COSMETIC
        message = f"{source.collation} became {target.collation}{where}: {text}"
        yield difference("collation", source.collation, target.collation, level, message)
    if source.nullable != target.nullable:
        words = ("NULL", "NOT NULL") if source.nullable else ("NOT NULL", "NULL")
        level = _LOSES if source.nullable else _COSMETIC
        text = "NULL is refused or becomes another value" if source.nullable else "NULL is accepted"
        yield difference("nullability", *words, level, f"{words[0]} became {words[1]}: {text} on the target")
    yield from (difference(*parts) for parts in _attributes(source, target))


def _labels(source: ColumnDef, target: ColumnDef) -> Iterator[tuple[SchemaClass, str]]:
    """Compare the labels of two ENUMs or two SETs."""
    if source.data_type != target.data_type or source.members == target.members:
        return
    ours, theirs = [[fold_label(label) for label in column.members] for column in (source, target)]
    if ours == theirs:
        yield _COSMETIC, "the labels look the same, but one of the catalogs cannot tell them apart exactly"
        return
    missing = [label for label, folded in zip(source.members, ours, strict=True) if folded not in theirs]
    added = [label for label, folded in zip(target.members, theirs, strict=True) if folded not in ours]
    if missing:
        yield _LOSES, f"the target lacks {_some(missing)}"
    if added:
        yield _COSMETIC, f"only the target has {_some(added)}"
    if [label for label in ours if label in theirs] != [label for label in theirs if label in ours]:
        yield _LOSES, "the labels stand in another order: their numbers, and what sorts by them, differ"
    elif added and theirs[: len(ours)] != ours and not missing:
        yield _LOSES, "labels were added before others: the numbers of the later ones differ"


def _some(labels: Sequence[str]) -> str:
    shown = ", ".join(repr(label) for label in labels[:5])
    return shown if len(labels) <= 5 else f"{shown} and {len(labels) - 5} more"


_Attribute = tuple[str, str | None, str | None, SchemaClass, str]


def _attributes(source: ColumnDef, target: ColumnDef) -> Iterator[_Attribute]:
    """Compare defaults, generation, automatic values and visibility."""
    if bool(source.generation) != bool(target.generation):
        side = "source" if source.generation else "target"
        text = f"generated on the {side} only: the other side takes what is written, not what is computed"
        yield "generated", source.generation or None, target.generation or None, _LOSES, text
    elif source.generation:
        if normal_expression(source.generation) != normal_expression(target.generation):
            level, text = _LOSES, "another generation expression, so that new rows may get other values"
            if rewritten_alike(source.generation, target.generation):
                level, text = _COSMETIC, "conditions are printed unlike; the values are compared row by row"
            yield "generated", source.generation, target.generation, level, text
        elif not grouped_equally(source.generation, target.generation):
            text = "the generation expression is grouped otherwise, so that new rows get other values"
            yield "generated", source.generation, target.generation, _LOSES, text
        if source.stored != target.stored:
            ours, theirs = ("STORED" if column.stored else "VIRTUAL" for column in (source, target))
            yield "generated", ours, theirs, _COSMETIC, f"{ours} became {theirs}"
    elif normal_default(source) != normal_default(target):
        yield "default", source.default, target.default, _LOSES, _default_text(source, target)
    ours, theirs = (on_update(column) for column in (source, target))
    if ours != theirs:
        text = "the moment of the last change is not kept alike"
        yield "on-update", ours or None, theirs or None, _LOSES, f"{text}: {ours or 'none'} became {theirs or 'none'}"
    ours, theirs = (automatic(column) for column in (source, target))
    if ours != theirs:
        yield "auto", ours or None, theirs or None, *_automatic_text(ours, theirs)
    if source.invisible != target.invisible:
        ours, theirs = ("INVISIBLE" if column.invisible else "VISIBLE" for column in (source, target))
        yield "visibility", ours, theirs, _COSMETIC, f"{ours} became {theirs}: SELECT * gives other columns"
    if fold_label(source.comment) != fold_label(target.comment):
        yield "comment", source.comment, target.comment, _COSMETIC, "the comments differ"


def _default_text(source: ColumnDef, target: ColumnDef) -> str:
    ours, theirs = ("none" if column.default is None else repr(column.default) for column in (source, target))
    return f"default {ours} became {theirs}: rows written without this column get another value or are refused"


def _automatic_text(source: str, target: str) -> tuple[SchemaClass, str]:
    if not target:
        return _LOSES, f"{source} is missing on the target: inserts without an id are refused or all get one id"
    if not source:
        return _COSMETIC, f"only the target has {target}"
    return _COSMETIC, f"{source} became {target}: new ids come from another sequence and need not ascend"


def _compare_order(pairs: Pairs) -> Iterator[SchemaDifference]:
    positions = [target.position for _, target in pairs]
    if positions != sorted(positions):
        moved = [
            source.name
            for (source, target), place in zip(pairs, sorted(positions), strict=True)
            if target.position != place
        ]
        shown = ", ".join(moved[:5]) + (" ..." if len(moved) > 5 else "")
        message = f"the columns stand in another order ({shown}): INSERT without a column list goes wrong"
        yield SchemaDifference("column-order", "table", None, None, _COSMETIC, message)


def _describe(column: ColumnDef) -> str:
    return f"{column.column_type} {'NULL' if column.nullable else 'NOT NULL'}"


# --- keys ---------------------------------------------------------------------------------------------------


def _in_unique_key(table: TableDef, column: str) -> bool:
    return any(index.unique and column in index.columns for index in table.indexes)


def _compare_keys(
    source: TableDef, target: TableDef, names: Mapping[str, str], parts: tuple[Parts, Parts]
) -> Iterator[SchemaDifference]:
    """Match keys by what they cover, not by name, since the servers name them differently.

    What a server made by itself for a foreign key that both have is no difference, whether the other did so or not.
    """
    made = [implied_keys(t, p.foreign_keys) for t, p in zip((source, target), parts, strict=True)]
    pairs, lone, extra = matched(
        [(index, _form(source, index, names)) for index in source.indexes],
        [(index, _form(target, index, {})) for index in target.indexes],
        lambda form: form["covers"],
    )
    for (index, _), (partner, _) in pairs:
        if index.name not in made[0] or partner.name not in made[1]:
            yield from _compare_matched(index, partner)
    # What a server makes for a foreign key is no difference where the other has that foreign key.
    keyed = [
        {tuple(names.get(c, c).casefold() for c in key.columns) for key in parts[0].foreign_keys},
        {tuple(c.casefold() for c in key.columns) for key in parts[1].foreign_keys},
    ]
    for index, _ in lone:
        if (
            index.name not in made[0]
            or tuple(names.get(c or "", c or "").casefold() for c in index.columns) not in keyed[1]
        ):
            yield _key_difference(index, _partner(source, index, names, target), on_source=True)
    for index, _ in extra:
        if index.name not in made[1] or tuple((c or "").casefold() for c in index.columns) not in keyed[0]:
            yield _key_difference(index, None, on_source=False)


def _form(table: TableDef, index: IndexDef, names: Mapping[str, str]) -> dict[str, object]:
    return {"covers": (index.primary, index.unique, key_shape(table, index, names)), "name": index.name.lower()}


def _compare_matched(source: IndexDef, target: IndexDef) -> Iterator[SchemaDifference]:
    where = f"key {source.name}"
    if source.name != target.name:
        yield difference("key-name", where, source.name, target.name, _COSMETIC, "has another name")
    if source.visible != target.visible:
        ours, theirs = ("VISIBLE" if index.visible else "INVISIBLE" for index in (source, target))
        text = f"{ours} became {theirs}: queries may use another plan"
        yield difference("key-visibility", where, ours, theirs, _COSMETIC, text)
    if source.kind != target.kind:
        text = f"{source.kind} became {target.kind}"
        yield difference("key-kind", where, source.kind, target.kind, _COSMETIC, text)
    if source.descending != target.descending:
        ours, theirs = (_direction(index) for index in (source, target))
        text = f"{ours} became {theirs}: queries that sort by it may use another plan"
        yield difference("key-order", where, ours, theirs, _COSMETIC, text)
    if fold_label(source.comment) != fold_label(target.comment):
        yield difference("key-comment", where, source.comment, target.comment, _COSMETIC, "the comments differ")


def _direction(index: IndexDef) -> str:
    return ", ".join("DESC" if down else "ASC" for down in index.descending) or "ASC"


def _partner(source: TableDef, index: IndexDef, names: Mapping[str, str], target: TableDef) -> IndexDef | None:
    """Find the target's key that covers the same but is of another kind (primary, unique or neither)."""
    shape = key_shape(source, index, names)
    return next((other for other in target.indexes if key_shape(target, other, {}) == shape), None)


def _key_difference(index: IndexDef, partner: IndexDef | None, *, on_source: bool) -> SchemaDifference:
    where, shown = f"key {index.name}", _describe_key(index)
    if not on_source:
        text = f"only the target has {shown}"
        text += ": rows that the source accepts are refused" if index.unique else ""
        level = _LOSES if index.unique else _COSMETIC
        return difference("key-extra", where, None, shown, level, text)
    theirs = None if partner is None else _describe_key(partner)
    became = "is missing on the target" if theirs is None else f"became {theirs}"
    if not index.unique:
        text = f"{shown} {became}: queries may be slower"
        level = _COSMETIC
    elif partner is not None and partner.unique:
        text = f"{shown} {became}: uniqueness is still enforced"
        level = _COSMETIC
    else:
        text = f"{shown} {became}: uniqueness is not enforced, so that duplicates can come in"
        level = _LOSES
    return difference("key-missing", where, shown, theirs, level, text)


def _describe_key(index: IndexDef) -> str:
    expressions = index.expressions or (None,) * len(index.columns)
    parts = []
    for column, prefix, expression in zip(index.columns, index.prefixes, expressions, strict=True):
        name = f"({expression})" if column is None else column
        parts.append(name if prefix is None else f"{name}({prefix})")
    kind = "PRIMARY KEY" if index.primary else "UNIQUE KEY" if index.unique else "KEY"
    more = "" if index.kind == "BTREE" else f"{index.kind} "
    return f"{more}{kind} ({', '.join(parts)})"


# --- table --------------------------------------------------------------------------------------------------


def _compare_options(source: TableDef, target: TableDef, *, partitions: bool) -> Iterator[SchemaDifference]:
    ours, theirs = source.ref.table, target.ref.table
    if ours != theirs and ours.casefold() == theirs.casefold():
        yield _option("table-name", ours, theirs, "the names differ in case")
    if normal_collation(source.collation) != normal_collation(target.collation):
        yield _option(
            "table-collation", source.collation, target.collation, "columns added later get another collation"
        )
    if sharding(source) != sharding(target):
        yield _option("sharding", sharding(source) or None, sharding(target) or None, "row ids are spread otherwise")
    if partitions and source.partitioned != target.partitioned:
        ours, theirs = ("partitioned" if table.partitioned else "not partitioned" for table in (source, target))
        yield _option("partitioning", ours, theirs, "rows are placed otherwise")
    if fold_label(source.comment) != fold_label(target.comment):
        yield _option("comment", source.comment, target.comment, "the comments differ")


def _option(kind: str, source: str | None, target: str | None, text: str) -> SchemaDifference:
    shown = f"{source or 'none'} became {target or 'none'}" if kind != "comment" else "comment"
    return difference(kind, "table", source, target, _COSMETIC, f"{shown}: {text}")
