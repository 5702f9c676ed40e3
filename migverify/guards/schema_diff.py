"""Compares definitions: every source with the target, or an endpoint with what it was before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from migverify.config import override_for
from migverify.errors import UsageError
from migverify.guards.schema_model import (
    RANK,
    DefinitionComparison,
    DefinitionDifference,
    SideSchema,
    Snapshot,
    TableSchema,
    path_of,
)
from migverify.guards.schema_read import pairs_of
from migverify.guards.scope import Scope
from migverify.model import SchemaClass, SchemaDifference
from migverify.sql.definitions import Name
from migverify.sql.fingerprint import Renamed, table_form
from migverify.sql.parts import DatabaseObject
from migverify.tables.columns import SIMILAR, name_likeness
from migverify.tables.pairs import FoundPair
from migverify.tables.schema import compare_tables

_BREAKS, _LOSES, _COSMETIC = SchemaClass.BREAKS_COMPARISON, SchemaClass.MAY_LOSE_DATA, SchemaClass.COSMETIC


def compare_snapshot(scope: Scope, snapshot: Snapshot) -> list[DefinitionComparison]:
    """Compare the sources of a snapshot with its target, in the order of the tables' names.

    Raises
    ------
    UsageError
        the snapshot lacks an endpoint of the configuration.
    """
    sides = {side.endpoint: side for side in snapshot.sides}
    missing = [e.name for e in (*scope.config.sources, scope.config.target) if e.name not in sides]
    if missing:
        raise UsageError(f"{snapshot.label or 'the snapshot'} holds no {', '.join(missing)}",
                         hint=f"It holds {', '.join(sides) or 'nothing'}.")  # fmt: skip
    sources = [sides[e.name] for e in scope.config.sources]
    return compare_sides(scope, sources, sides[scope.config.target.name])


def compare_sides(scope: Scope, sources: Sequence[SideSchema], target: SideSchema) -> list[DefinitionComparison]:
    """Compare sources with the target."""
    known = {(side.endpoint, t.name): t for side in (*sources, target) for t in side.tables}
    pairs = list(pairs_of(scope, sources, target))
    renames = _likely_renames(pairs)
    found = [_compare_pair(scope, pair, known, renames.get(pair.name, "")) for pair in pairs]
    found += _objects(
        {key: o for s in sources for key, o in _keyed(s.objects, scope.renamed(s.endpoint)).items()},
        _keyed(target.objects),
    )
    return sorted(found, key=lambda one: one.table)


def compare_over_time(before: SideSchema, after: SideSchema) -> list[DefinitionComparison]:
    """Compare an endpoint with what it was before: only tables that changed are returned."""
    was, now = before.by_name(), after.by_name()
    found = []
    for name in sorted({*was, *now}):
        old, new = was.get(name), now.get(name)
        prints = {f"{label}/{name}": t.fingerprint for label, t in (("before", old), ("after", new)) if t is not None}
        if old is None or new is None:
            text = f"{name}: {'was dropped or renamed' if new is None else 'is new'}"
            words = (None if old is None else "table", None if new is None else "table")
            found.append(DefinitionComparison(name, (DefinitionDifference("table", *words, _BREAKS, text),), prints))
        else:
            reported = _changed(old, new) if old.fingerprint != new.fingerprint else ()
            if before.version == after.version:
                reported = (*reported, *_regrouped(old, new, reported))
            if reported:
                found.append(DefinitionComparison(name, reported, prints))
    return found + list(_objects(_keyed(before.objects), _keyed(after.objects), views=True))


def _changed(old: TableSchema, new: TableSchema) -> tuple[DefinitionDifference, ...]:
    reported = compare_tables(old.table, new.table, parts=(old.parts, new.parts))
    # A column that cannot be compared between two engines breaks nothing where it is the same as before.
    kept = [d for d in reported if d.source != d.target or d.kind != "type"]
    return _with_the_rest([_difference(d) for d in kept], old, new)


def _regrouped(
    old: TableSchema, new: TableSchema, reported: Sequence[DefinitionDifference]
) -> Iterator[DefinitionDifference]:
    """Report expressions whose text alone changed: one server prints one expression in one way.

    Between two servers parentheses do not count, since one prints all of them and one those that were typed.
    """
    texts = [exact_texts(schema) for schema in (old, new)]
    known = {one.path for one in reported}
    for path in sorted(texts[0].keys() & texts[1].keys()):
        one, other = texts[0][path], texts[1][path]
        if one != other and path not in known:
            yield DefinitionDifference(
                path, one, other, _LOSES, f"{path}: the expression is grouped or written otherwise"
            )


def exact_texts(schema: TableSchema) -> dict[str, str]:
    """Return the expressions of a table as its server prints them, by their place."""
    columns = {f"columns.{c.name}.generated": c.generation for c in schema.table.columns if c.generation}
    return columns | {f"checks.{check.name}": check.clause for check in schema.parts.checks}


_MOST_PAIRS = 250_000
"""Lone tables of one side times those of the other for which names are compared: a moment's work."""
_SHARED = 0.8


def _likely_renames(pairs: Sequence[FoundPair]) -> dict[Name, str]:
    """Return, for tables that one side lacks, the table of the other side that may be the same under another name.

    Four fifths of their columns have the same names, and so do the tables in part, unless no other comes into question.
    """
    lone = [p.sources[0] for p in pairs if p.target is None], [p.target for p in pairs if not p.sources and p.target]
    if len(lone[0]) * len(lone[1]) > _MOST_PAIRS:
        return {}
    names = {id(t): {c.name.casefold() for c in t.columns} for side in lone for t in side}
    routed = {id(p.sources[0]): p.name for p in pairs if p.target is None}
    scored = []
    for one in lone[0]:
        for other in lone[1]:
            shared = len(names[id(one)] & names[id(other)]) / max(1, len(names[id(one)] | names[id(other)]))
            if shared >= _SHARED:
                scored.append((shared + name_likeness(one.ref.table, other.ref.table), one, other))
    found: dict[Name, str] = {}
    for score, one, other in sorted(scored, key=lambda pair: (-pair[0], pair[1].ref, pair[2].ref)):
        ours, theirs = routed[id(one)], (other.ref.database, other.ref.table)
        if (score >= _SHARED + SIMILAR or len(scored) == 1) and ours not in found and theirs not in found:
            found[ours], found[theirs] = f"{other.ref} of the target", f"{one.ref} of the source"
    return found


def _compare_pair(
    scope: Scope, pair: FoundPair, known: dict[tuple[str, str], TableSchema], alike: str = ""
) -> DefinitionComparison:  # fmt: skip
    ours = [known[t.ref.endpoint, str(t.ref)] for t in pair.sources]
    theirs = None if pair.target is None else known[pair.target.ref.endpoint, str(pair.target.ref)]
    everyone = [*ours, *([theirs] if theirs is not None else [])]
    prints = {f"{t.table.ref.endpoint}/{t.name}": t.fingerprint for t in everyone}
    name = everyone[0].name
    if theirs is None or not ours:
        lone = DefinitionDifference(
            "table", None if not ours else "table", None if theirs is None else "table", _BREAKS,
            (pair.reason or f"only the {'source' if theirs is None else 'target'} has this table")
            + (f"; renamed? {alike} has the same columns: `routes`" if alike else ""),
        )  # fmt: skip
        return DefinitionComparison(name, (lone,), prints)
    override = override_for(scope.config, *_name(ours[0]))
    renames = override.rename
    found: list[DefinitionDifference] = [_difference(d) for d in pair.differences]
    for one in ours:
        reported = compare_tables(
            one.table, theirs.table, renames, override.ignore, (one.parts, theirs.parts),
            scope.renamed(one.table.ref.endpoint),
        )  # fmt: skip
        several = f"{one.table.ref.endpoint}/{one.name}: " if len(ours) > 1 else ""
        mine = [_difference(d, several) for d in reported]
        if not renames and not override.ignore:
            mine = list(_with_the_rest(mine, one, theirs))
        found += [d for d in mine if d not in found]
    return DefinitionComparison(name, tuple(sorted(found, key=lambda d: -RANK[d.level])), prints)


def _name(schema: TableSchema) -> tuple[str, str]:
    return schema.table.ref.database, schema.table.ref.table


def _difference(found: SchemaDifference, before: str = "") -> DefinitionDifference:
    return DefinitionDifference(path_of(found), found.source, found.target, found.level, before + found.message)


def _with_the_rest(
    found: Sequence[DefinitionDifference], old: TableSchema, new: TableSchema
) -> tuple[DefinitionDifference, ...]:
    """Add what the fingerprints see and no rule speaks of, so that different fingerprints are never called equal."""
    if found or old.fingerprint == new.fingerprint:
        return tuple(found)
    forms = [table_form(t.table, t.parts, lambda _, table: ("", table)) for t in (old, new)]
    rooms = [room for room in forms[0] if forms[0][room] != forms[1][room]]
    text = "the definitions differ in a way that has no name here"
    return tuple(
        DefinitionDifference(room, str(forms[0][room])[:500], str(forms[1][room])[:500], _COSMETIC, f"{room}: {text}")
        for room in rooms or ["fingerprint"]
    )


_Key = tuple[str, str, str]


def _keyed(objects: Iterable[DatabaseObject], renamed: Renamed = lambda d, t: (d, t)) -> dict[_Key, DatabaseObject]:
    return {(*renamed(o.database, o.name), o.kind): o for o in objects}


def _objects(
    ours: dict[_Key, DatabaseObject], theirs: dict[_Key, DatabaseObject], *, views: bool = False
) -> Iterator[DefinitionComparison]:
    """Compare views, routines and events; the texts of views only over time, as each server has words of its own."""
    for key in sorted({*ours, *theirs}):
        one, other, (database, name, kind) = ours.get(key), theirs.get(key), key
        text = f"{database}.{name}"
        if one is None or other is None:
            level = _COSMETIC if one is None else _LOSES
            words = (None if one is None else kind, None if other is None else kind)
            which = "only the target has" if one is None else "the target lacks"
            found = DefinitionDifference(kind, *words, level, f"{which} the {kind} {text}")
        elif one.text != other.text and (views or kind != "view"):
            found = DefinitionDifference(f"{kind}.text", one.text, other.text, _LOSES, f"the {kind} {text} differs")
        else:
            continue
        yield DefinitionComparison(text, (found,), {})
