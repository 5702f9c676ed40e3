"""What a quick answer makes of the plan of one table pair: fewer columns, a condition on both sides, another range key.

Everything after it (chunks, the search for rows that differ, second reads) is that of a whole verification.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from migverify.model import ColumnPair, TableDef
from migverify.sql.key_range import sorts_equally
from migverify.sql.quoting import quote_name, quote_text
from migverify.tables.quick import Level, PairPart, QuickRead, unseen_by

MOMENTS = frozenset({"datetime", "timestamp"})


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """How a pair is read. ``columns`` are those of each source, ``range`` the columns that cut it into chunks.

    ``conditions`` are those of each side, the target's last.
    """

    part: PairPart
    columns: list[list[ColumnPair]]
    range: tuple[ColumnPair, ...]
    conditions: tuple[str, ...]


def plan_part(
    read: QuickRead,
    tables: Sequence[TableDef],
    columns: list[list[ColumnPair]],
    identity: tuple[ColumnPair, ...],
    range_key: tuple[ColumnPair, ...],
    conditions: tuple[str, ...],
) -> PlannedPart:
    """Plan the part of one table pair.

    Parameters
    ----------
    tables
        The sources, then the target.
    columns
        The compared columns of each source.
    identity, range_key
        What identifies a row and what cuts the table, as a whole verification has them.
    conditions
        The configured conditions of each side, ``""`` for none.
    """
    key = ", ".join(column.name for column in identity)
    refused = scan = ""
    own = conditions
    if read.level is Level.KEYS and not identity:
        refused = "no unique key: --level keys has nothing to compare here (--level counts has)"
    if read.share and not range_key:
        refused = refused or "no key that both sides sort alike: a sample cannot be drawn here"
    if read.column:
        refused, range_key, scan = _by_column(read, tables, columns[0], refused, range_key)
        if not refused:
            own = _recent(read, columns, conditions)
    if read.level is Level.KEYS and identity:
        names = {column.target.name for column in identity}
        columns = [[column for column in some if column.target.name in names] for some in columns]
    part = PairPart(read, unseen_by(read, key), refused, conditions if read.column else (), scan)
    return PlannedPart(part, columns, range_key, own)


def _by_column(
    read: QuickRead, tables: Sequence[TableDef], columns: Sequence[ColumnPair], refused: str,
    range_key: tuple[ColumnPair, ...],
) -> tuple[str, tuple[ColumnPair, ...], str]:  # fmt: skip
    """Return why the pair is not read, the range key, and what is read slowly."""
    column = next((c for c in columns if c.source.name.lower() == read.column.lower()), None)
    if column is None:
        return f"no column {read.column} that both sides have and that is compared", range_key, ""
    types = {column.source.data_type, column.target.data_type}
    if not types <= MOMENTS:
        shown = " and ".join(dict.fromkeys((column.source.column_type, column.target.column_type)))
        return f"{column.name} is {shown}: an interval needs DATETIME or TIMESTAMP", range_key, ""
    names = (*(column.source.name for _ in tables[:-1]), column.target.name)
    without = [t.ref.endpoint for t, name in zip(tables, names, strict=True) if not _leads_an_index(t, name)]
    if not without:
        # Chunks by this column are ranges of its index; by the primary key each of them would pass over old rows.
        return refused, (column,) if sorts_equally(column.source, column.target) else range_key, ""
    return (
        refused,
        range_key,
        f"no index of {', '.join(dict.fromkeys(without))} begins with {column.name}: the whole table is read there",
    )


def _leads_an_index(table: TableDef, name: str) -> bool:
    return any(
        index.visible and (index.columns[0] or "").lower() == name.lower() and index.prefixes[0] is None
        for index in table.indexes
    )


def _recent(read: QuickRead, columns: list[list[ColumnPair]], conditions: tuple[str, ...]) -> tuple[str, ...]:
    """Return the conditions of each side with that of the interval."""
    of_sources = [next(c for c in own if c.source.name.lower() == read.column.lower()).source.name for own in columns]
    target = next(c for c in columns[0] if c.source.name.lower() == read.column.lower()).target.name
    bound = quote_text(read.moment)
    recent = [f"{quote_name(name)} >= {bound}" for name in (*of_sources, target)]
    return tuple(f"({where}) AND {own}" if where else own for where, own in zip(conditions, recent, strict=True))
