"""Relations of the kinds that look at rows: same rows, orphans, unique keys, rows that must not be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from migverify.recon.groups import group_relation, one_value_of
from migverify.recon.relation import JoinFilter, Relation, SqlRead
from migverify.recon.shape import Built, RuleInputs, carried_slots, need_target, rows_of, time_checks
from migverify.recon.sides import Side, Slot, slot
from migverify.sql import recon as sql


def same_rows(scene: RuleInputs) -> Built:
    """Rows of one key hold the same values on both sides."""
    target = need_target(scene)
    names = scene.key()
    compared, left_out = _compared(scene, scene.source, target, names)
    key = scene.slots(names, "key", exact=True)
    values = scene.slots([n for n in compared if n not in names], "compared column")
    carried, times = carried_slots(scene, [*names, *compared])
    report = scene.option("duplicates", "report") == "report"
    return Built(
        rows_of(scene, 0, key, values, carried), rows_of(scene, 1, key, values, carried), JoinFilter(repeated=report),
        tuple(s.read_column for s in (*values, *carried)), times, time_checks(scene.sides), left_out=left_out,
    )  # fmt: skip


def _compared(
    scene: RuleInputs, source: Side, target: Side, key: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the compared columns, and those that only one side has."""
    if scene.rule.compare:
        return scene.rule.compare, ()
    if not (source.told or target.told):
        raise scene.refusal.error("the columns are not known before the files are read", "Write compare: [columns].")
    ours, theirs = source.names, target.names
    if not source.told or not target.told:
        return tuple(n for n in ours or theirs if n not in key), ()
    common = tuple(n for n in ours if n in theirs and n not in key)
    if not common and any(n not in key for n in (*ours, *theirs)):
        raise scene.refusal.error(
            f"no column but the key is in both {source.dataset.name} and {target.dataset.name}",
            "Give both datasets the same names with `columns`, or write compare: [columns].",
        )
    lone = tuple(n for n in (*ours, *theirs) if (n in ours) is not (n in theirs))
    return common, lone


def orphans(scene: RuleInputs) -> Built:
    """Every child has its parent. Source are the parents, target the children."""
    target = need_target(scene)
    reference = scene.names("reference")
    return parents_and_children(
        scene, scene.key(), reference, 0, target, optional=bool(scene.option("optional", False)),
        both=bool(scene.option("both", False)),
    )  # fmt: skip


def parents_and_children(
    scene: RuleInputs,
    key: Sequence[str],
    reference: Sequence[str],
    parents: int,
    children: Side,
    *,
    optional: bool,
    both: bool,
) -> Built:
    """Return parents (by key) and children (by reference) as source and target.

    ``parents`` is the number of the parents' side in the scene. Where money is at risk the children are rows, else
    groups: the database then sends each reference once.
    """
    if len(reference) != len(key):
        raise scene.refusal.error(
            f"reference has {len(reference)} columns and the key {len(key)}", "Both name the same columns in one order."
        )
    other = 1 - parents
    pairs = [(k, r) if parents == 0 else (r, k) for k, r in zip(key, reference, strict=True)]
    slots = [slot(scene.sides, pair, scene.refusal, "reference", exact=True) for pair in pairs]
    carried: list[Slot] = []
    times: tuple[str | None, str | None] = (None, None)
    if scene.rule.money is not None:
        carried, times = carried_slots(scene, [])
        times = (times[parents], times[other])
    ours = rows_of(scene, parents, slots, (), carried)
    if carried:
        theirs = rows_of(scene, other, slots, (), carried)
        theirs = _only_with_reference(theirs) if optional else theirs
    else:
        theirs = group_relation(
            children, other, slots, (), scene.refusal,
            where=lambda part: sql.all_not_null([part.columns[n].sql for n in reference]) if optional else "",
        )  # fmt: skip
    keep = JoinFilter(missing_source=True, missing_target=both, unlike=False, repeated=False)
    columns = tuple(s.read_column for s in carried)
    return Built(ours, theirs, keep, columns, times, time_checks(scene.sides))


def _only_with_reference(relation: Relation) -> Relation:
    reads = tuple(
        replace(read, where=sql.both(read.where, sql.all_not_null([column.name for column in read.lookup])))
        if isinstance(read, SqlRead) else read
        for read in relation.reads
    )  # fmt: skip
    return replace(relation, reads=reads)


def unique(scene: RuleInputs) -> Built:
    """A key stands once, over all shards."""
    names = scene.key()
    key = scene.slots(names, "key", exact=True)
    keep = JoinFilter(all=False, repeated=True)
    ignore = bool(scene.option("ignore_null", True))
    carried, _ = carried_slots(scene, names) if scene.rule.money is not None else ([], None)
    if carried and len(scene.source.parts) > 1:
        rows = rows_of(scene, 0, key, (), carried)
        rows = _only_with_reference(rows) if ignore else rows
        return Built(rows, None, keep, tuple(s.read_column for s in carried), (None, None), time_checks(scene.sides))
    shared = [one_value_of(s, s.names[0] or "") for s in carried]
    groups = group_relation(
        scene.source, 0, key, shared, scene.refusal, having=sql.more_than_one(),
        where=lambda part: sql.all_not_null([part.columns[n].sql for n in names]) if ignore else "",
    )  # fmt: skip
    return Built(groups, None, keep, tuple(s.read_column for s in carried), (None, None), time_checks(scene.sides))


def no_rows(scene: RuleInputs) -> Built:
    """Return every row of the dataset, by its key, or by all its columns where it has none."""
    names = scene.source.names
    if not scene.source.told:
        raise scene.refusal.error("the columns are not known before the files are read", "Use a table or sql.")
    wanted = scene.names("show")
    for name in wanted:
        if name not in names:
            raise scene.refusal.unknown(name, scene.source, names)
    key_names = scene.rule.key or scene.source.dataset.key
    slots = scene.slots(key_names, "key", exact=True)
    others = scene.slots([n for n in (wanted or names) if n not in key_names], "column")
    if not key_names:
        slots = [s for s in others if s.unified.compare == "text"]
        others = [s for s in others if s.unified.compare != "text"]
    known = [s.names[0] or "" for s in (*slots, *others)]
    carried, times = carried_slots(scene, known)
    columns = tuple(s.read_column for s in (*others, *carried))
    rows = rows_of(scene, 0, slots, others, carried)
    return Built(rows, None, JoinFilter(all=True), columns, times, time_checks(scene.sides))
