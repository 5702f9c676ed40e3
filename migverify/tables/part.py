"""What a quick answer makes of the plan of one table pair: fewer columns, a condition on both sides, another range key.

Everything after it (chunks, the search for rows that differ, second reads) is that of a whole verification.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from migverify.errors import UsageError
from migverify.model import ColumnPair, TableDef
from migverify.sql.key_range import sorts_equally
from migverify.sql.quoting import quote_name, quote_text
from migverify.tables.quick import Level, PairPart, QuickRead, unseen_by

MOST_NAMES = 10
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
        refused, range_key, scan = _by_column(read, tables, columns, refused, range_key)
        if not refused:
            own = _recent(read, columns, conditions)
    if read.level is Level.KEYS and identity:
        names = {column.target.name for column in identity}
        columns = [[column for column in some if column.target.name in names] for some in columns]
    part = PairPart(read, unseen_by(read, key), refused, conditions if read.column else (), scan)
    return PlannedPart(part, columns, range_key, own)


def refuse_unknown_column(read: QuickRead, columns: Mapping[str, str]) -> None:
    """Refuse a column of time that no table has: with a typo every run would end like one of equal rows.

    Parameters
    ----------
    columns
        The data type by name of the columns of all tables on either side.

    Raises
    ------
    UsageError
        no table has it.
    """
    name = read.column.lower()
    if not name or name in map(str.lower, columns):
        return
    moments = sorted(column for column, kind in columns.items() if kind in MOMENTS)
    hint = "No table has a DATETIME or TIMESTAMP column: --sample and --level need none."
    if close := get_close_matches(name, moments, n=1) or get_close_matches(name, columns, n=1):
        hint = f"Did you mean {close[0]}?"
    elif moments:
        more = f" and {len(moments) - MOST_NAMES} more" if len(moments) > MOST_NAMES else ""
        hint = f"DATETIME and TIMESTAMP columns are: {', '.join(moments[:MOST_NAMES])}{more}."
    raise UsageError(f"--updated-since: no table has a column {read.column}", hint=hint)


def _by_column(
    read: QuickRead, tables: Sequence[TableDef], columns: list[list[ColumnPair]], refused: str,
    range_key: tuple[ColumnPair, ...],
) -> tuple[str, tuple[ColumnPair, ...], str]:  # fmt: skip
    """Return why the pair is not read, the range key, and what is read slowly."""
    pairs = [pair for pair in (_named(own, read.column) for own in columns) if pair is not None]
    if len(pairs) < len(columns):
        return f"no column {read.column} that both sides have and that is compared", range_key, ""
    defs = [*(pair.source for pair in pairs), pairs[0].target]
    if any(column.data_type not in MOMENTS for column in defs):
        shown = " and ".join(dict.fromkeys(column.column_type for column in defs))
        return f"{defs[0].name} is {shown}: an interval needs DATETIME or TIMESTAMP", range_key, ""
    without = [t.ref.endpoint for t, column in zip(tables, defs, strict=True) if not _leads_an_index(t, column.name)]
    if without:
        names = ", ".join(dict.fromkeys(without))
        scan = f"no index of {names} begins with {defs[0].name}: the whole table is read there"
        return refused, range_key, scan
    # Chunks by this column are ranges of its index; by the primary key each of them would pass over old rows.
    sorted_alike = all(sorts_equally(pair.source, pair.target) for pair in pairs)
    return refused, (pairs[0],) if sorted_alike else range_key, ""


def _named(columns: Sequence[ColumnPair], name: str) -> ColumnPair | None:
    return next((column for column in columns if column.source.name.lower() == name.lower()), None)


def _leads_an_index(table: TableDef, name: str) -> bool:
    return any(
        index.visible and (index.columns[0] or "").lower() == name.lower() and index.prefixes[0] is None
        for index in table.indexes
    )


def _recent(read: QuickRead, columns: list[list[ColumnPair]], conditions: tuple[str, ...]) -> tuple[str, ...]:
    """Return the conditions of each side with that of the interval."""
    pairs = [pair for pair in (_named(own, read.column) for own in columns) if pair is not None]
    names = [*(pair.source.name for pair in pairs), pairs[0].target.name]
    bound = quote_text(read.moment)
    recent = [f"{quote_name(name)} >= {bound}" for name in names]
    return tuple(f"({where}) AND {own}" if where else own for where, own in zip(conditions, recent, strict=True))
