"""Which columns of two definitions of one table belong together: by configuration, by name, by likeness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import SequenceMatcher

from migverify.model import ColumnDef, NotCovered, TableDef
from migverify.tables.type_change import charset_change, type_change

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
    matched, lone_source, lone_target = match_columns(source, target, renames or {})
    skip = {name.casefold() for name in ignored}
    pairs = [(ours, theirs) for ours, theirs in matched if ours.name.casefold() not in skip]
    by_configuration = "ignored by configuration"
    not_covered = [NotCovered(ours.name, by_configuration) for ours, _ in matched if ours.name.casefold() in skip]
    for lone, where in ((lone_source, "source"), (lone_target, "target")):
        for column, why in lone:
            reason = why or f"only the {where} has this column"
            not_covered.append(NotCovered(column.name, by_configuration if column.name.casefold() in skip else reason))
    return pairs, not_covered


def match_columns(
    source: TableDef, target: TableDef, renames: Mapping[str, str]
) -> tuple[Pairs, list[tuple[ColumnDef, str]], list[tuple[ColumnDef, str]]]:
    """Return matched columns and, for each side, the rest with a reason ("" where the name says it)."""
    free = {column.name: column for column in target.columns}
    waiting = list(source.columns)
    partners: dict[str, ColumnDef] = {}
    reasons: dict[str, str] = {}
    new_names = {old.casefold(): new for old, new in renames.items()}
    for column in source.columns:
        new = new_names.get(column.name.casefold())
        if new is None:
            continue
        waiting.remove(column)
        partner = _of_name(new, free.values())
        if partner is None:
            reasons[column.name] = f"renamed to {new} by configuration, and the target has no such column left"
        else:
            partners[column.name] = free.pop(partner.name)
    for column in list(waiting):
        if column.name in free:
            partners[column.name] = free.pop(column.name)
            waiting.remove(column)
    folded = Counter(column.name.casefold() for column in waiting)
    for column in waiting:
        partner = _of_name(column.name, free.values())
        if partner is not None and folded[column.name.casefold()] == 1:
            partners[column.name] = free.pop(partner.name)
    pairs = [(column, partners[column.name]) for column in source.columns if column.name in partners]
    lone = [(column, reasons.get(column.name, "")) for column in source.columns if column.name not in partners]
    return pairs, lone, [(column, "") for column in target.columns if column.name in free]


def _of_name(name: str, columns: Iterable[ColumnDef]) -> ColumnDef | None:
    """Return the column of that name: exactly, or in another case where there is one such."""
    candidates = [column for column in columns if column.name.casefold() == name.casefold()]
    exact = next((column for column in candidates if column.name == name), None)
    return exact or (candidates[0] if len(candidates) == 1 else None)


SIMILAR = 0.5
"""From which likeness on two names may be one that was changed."""


def name_likeness(one: str, other: str) -> float:
    """Return how much of two names is equal, from 0 to 1; case does not count."""
    return SequenceMatcher(None, one.casefold(), other.casefold(), autojunk=False).ratio()


def likely_renames(
    lone_source: Sequence[tuple[ColumnDef, str]], lone_target: Sequence[tuple[ColumnDef, str]]
) -> dict[tuple[str, bool], str]:
    """Return (lone column, whether it is the source's) -> the column of the other side that may be the same one.

    Both are defined equally, and have similar names, or the same position where nothing else comes into question.
    """
    candidates = [
        (name_likeness(one.name, other.name), one, other)
        for one, why in lone_source
        for other, _ in lone_target
        if not why and one.nullable == other.nullable and bool(one.generation) == bool(other.generation)
        and not [*type_change(one, other), *charset_change(one, other)]
    ]  # fmt: skip
    found: dict[tuple[str, bool], str] = {}
    for likeness, one, other in sorted(candidates, key=lambda pair: (-pair[0], pair[1].position, pair[2].position)):
        only = len(lone_source) == len(lone_target) == 1 and one.position == other.position
        if (likeness >= SIMILAR or only) and (one.name, True) not in found and (other.name, False) not in found:
            found[one.name, True], found[other.name, False] = other.name, one.name
    return found
