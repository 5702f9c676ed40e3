"""What the catalogs alone prove of a plan: an index that the source uses and the target has no substitute for."""

from __future__ import annotations

from collections.abc import Mapping

from migverify.model import IndexDef
from migverify.workload.plans.model import DigestPlans, Harm, PlanFinding, TableAccess
from migverify.workload.plans.statistics import TargetTables


def condition_columns(plans: DigestPlans) -> frozenset[str] | None:
    """Return the columns that a statement filters, joins, groups or sorts by, lower case; None where it is not read."""
    import sqlglot
    from sqlglot import errors
    from sqlglot import expressions as exp

    found: set[str] = set()
    parts = (exp.Where, exp.Join, exp.Having, exp.Group, exp.Order)
    for sample in plans.samples:
        try:
            trees = sqlglot.parse(sample.sql.decode("utf-8", "replace"), dialect="mysql")
        except (errors.SqlglotError, RecursionError):
            return None
        for tree in trees:
            for part in tree.find_all(*parts) if tree is not None else ():
                found |= {column.name.lower() for column in part.find_all(exp.Column)}
                found |= {name.name.lower() for name in part.args.get("using") or ()}
    return frozenset(found)


def lost_index(
    before: TableAccess, after: TableAccess, name: tuple[str, str], target: TargetTables,
    columns: frozenset[str] | None, least: float,
) -> PlanFinding | None:  # fmt: skip
    """Return that the target must read a whole table as no index of it begins with a column of the statement.

    That holds for any statistics. None where another index may do, or anything about it is not known.

    Parameters
    ----------
    columns
        Those that the statement filters, joins, groups or sorts by.
    least
        Rows of the table, by the source's catalog, from which reading all of them is a finding.
    """
    index = target.source_indexes.get(name, {}).get(before.index.lower())
    indexes, rows = target.indexes.get(name), target.source_rows.get(name)
    if columns is None or index is None or indexes is None or rows is None or rows <= least:
        return None
    first = _first_column(index)
    heads = _first_columns(indexes)
    if before.path.whole or not after.path.whole or first is None or heads is None or heads & (columns | {first}):
        return None
    reason = (
        f"the target reads {after.how}, the source {before}; the source has about {rows:,} rows, and no index of the"
        f" target begins with {first} or another column of the condition"
    )
    remedy = f"Create index {before.index} of {'.'.join(name)} on the target as on the source."
    return PlanFinding(Harm.INDEX_LOST, after.table, reason, remedy, index=before.index, from_catalog=True)


def _first_columns(indexes: Mapping[str, IndexDef]) -> frozenset[str] | None:
    """Return what the visible indexes begin with; None where one begins with an expression, which may be of use."""
    firsts = [_first_column(one) for one in indexes.values() if one.visible]
    return None if None in firsts else frozenset(one for one in firsts if one is not None)


def _first_column(index: IndexDef) -> str | None:
    return index.columns[0].lower() if index.columns and index.columns[0] is not None else None
