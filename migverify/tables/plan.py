"""Found tables -> table pairs with keys, lanes, statements: what will run, before anything heavy runs.

A pair's plan is a value: it can be printed, saved, hashed, sent to a worker. It says which columns form which lane,
which key identifies a row and which cuts the table, and what is not compared. Chunks are not part of it: they are
found while the run goes on, from both sides.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from migverify.codec import encode
from migverify.config import TableOverride
from migverify.db.reader import SidePlan
from migverify.errors import CHANGED_SINCE, PlanError
from migverify.model import (
    ColumnPair,
    Endpoint,
    IndexDef,
    KeyRange,
    Lane,
    NotCovered,
    SchemaDifference,
    Side,
    TableDef,
)
from migverify.sql.canonical import FAMILIES, is_binary, pair_column, rule_named
from migverify.sql.checksum import SideSql, bucket_sql, checksum_sql, count_sql, frame, rows_sql, wide_frame
from migverify.sql.identity import columns_number
from migverify.sql.key_range import KeyColumn, sorts_equally
from migverify.sql.quoting import quote_name, quote_path, quote_text
from migverify.tables.columns import column_pairs
from migverify.tables.part import plan_part
from migverify.tables.quick import Level, QuickRead
from migverify.tables.schema import compare_tables
from migverify.tables.tasks import PairPlan, ReadColumn

WHERE, KEY_ONLY = "where", "only the key"
"""Why a table is compared in part: by a condition, or because every column outside of a key is ignored."""
UNSPREAD_ROWS = 100_000
"""Tables estimated smaller than this are walked in one go: finding marks would cost more than it gains."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The chosen keys of a pair, as column pairs: what identifies a row, and what cuts the table."""

    identity: tuple[ColumnPair, ...]
    range: tuple[ColumnPair, ...]
    why_whole: str


def plan_pair(
    sources: Sequence[TableDef],
    target: TableDef | None,
    endpoints: Mapping[str, Endpoint],
    override: TableOverride,
    hash_name: str,
    *,
    differences: Sequence[SchemaDifference] = (),
    reason: str = "",
    read: QuickRead | None = None,
) -> PairPlan:
    """Plan one table pair.

    Parameters
    ----------
    sources
        The source tables: one, several shards, or none for a table that only the target has.
    target
        The target table, or None.
    endpoints
        Endpoint name -> Endpoint.
    override
        What the configuration says about the pair.
    hash_name
        A name of ``migverify.sql.checksum.HASHES`` that every endpoint has.
    differences, reason
        How the sources differ among themselves, and why a table stays alone (from ``pairs``).
    read
        What a quick answer reads of the pair; None for all of it.
    """
    if not sources or target is None:
        return _one_sided(sources, target, hash_name, reason)
    model = sources[0]
    renames = override.rename
    schema = (*differences, *(d for s in sources for d in compare_tables(s, target, renames, override.ignore)))
    shards, missing, unproved = _join_shards(sources, target, override)
    keys = choose_keys(model, target, shards[0], override)
    conditions = (*(override.where.source or "" for _ in sources), override.where.target or "")
    in_part, filtered = compared_in_part(sources, target, override), any(conditions)
    part = None
    if read is not None and shards[0]:
        planned = plan_part(read, (*sources, target), shards, keys.identity, keys.range, conditions)
        part, shards, conditions = planned.part, planned.columns, planned.conditions
        keys = replace(keys, range=planned.range, why_whole="" if planned.range else keys.why_whole)
    columns = shards[0]
    sides = [
        _side(s, Side.SOURCE, own, keys, where, hash_name, endpoints)
        for s, own, where in zip(sources, shards, conditions[:-1], strict=True)
    ]
    target_side = _side(target, Side.TARGET, columns, keys, conditions[-1], hash_name, endpoints)
    rows = max(sum(s.rows for s in sources), target.rows)
    pair_id = str(target.ref) if len(sources) > 1 else str(model.ref)
    return PairPlan(
        id=pair_id,
        source=str(model.ref) if len(sources) == 1 else ", ".join(f"{s.ref.endpoint}:{s.ref}" for s in sources),
        target=str(target.ref),
        sources=tuple(sides),
        target_side=target_side if columns else None,
        columns=tuple(_read_column(c) for c in columns),
        hash=hash_name,
        whole=not keys.range,
        whole_reason=keys.why_whole,
        spread=rows > UNSPREAD_ROWS,
        rows=rows,
        bytes=max(sum(s.bytes for s in sources), target.bytes),
        schema=tuple(dict.fromkeys(schema)),
        not_covered=tuple(dict.fromkeys((*missing, *unproved, *_left_out(override, in_part)))),
        unproved=unproved,
        blind_spots=(*_blind_spots(columns), *(_UNSEEN[why] for why in in_part)),
        immutable=_immutable(override, columns),
        part=part,
        filtered=filtered,
    )  # fmt: skip


_UNSEEN = {
    WHERE: "rows for which the condition of overrides.where is not true",
    KEY_ONLY: "values outside of the key, all of which are ignored by configuration",
}


def compared_in_part(sources: Sequence[TableDef], target: TableDef | None, override: TableOverride) -> tuple[str, ...]:
    """Return why the configuration has a table compared in part, of ``WHERE`` and ``KEY_ONLY``; empty: it does not.

    It takes the definitions alone, so that every table of a run can be asked before any is planned.
    """
    if not sources or target is None:
        return ()
    why = [WHERE] if override.where.source or override.where.target else []
    ignored = {name.casefold() for name in override.ignore}
    names = {column.name.casefold() for column in sources[0].columns}
    left = names - ignored
    keys = [override.key] if override.key else [index.columns for index in sources[0].indexes if index.unique]
    if left and left < names and any(left <= {(name or "").casefold() for name in key} for key in keys):
        why.append(KEY_ONLY)
    return tuple(why)


def _left_out(override: TableOverride, in_part: Sequence[str]) -> Iterator[NotCovered]:
    """Yield the rows and values that the configuration leaves out of a table that both sides have."""
    source, target = override.where.source, override.where.target
    sides = [("rows", source)] if source == target else [("rows of the source", source), ("rows of the target", target)]
    for rows, condition in sides:
        if condition:
            shown = " ".join(condition.split())
            yield NotCovered(f"{rows} for which ({shown}) is not true", "left out by configuration (overrides.where)")
    if KEY_ONLY in in_part:
        yield NotCovered("all values outside of the key", "ignored by configuration: only the key is compared")


def _one_sided(sources: Sequence[TableDef], target: TableDef | None, hash_name: str, reason: str) -> PairPlan:
    table = sources[0] if sources else target
    if table is None:
        raise ValueError("a pair needs a table on at least one side")
    where = "source" if sources else "target"
    reason = f"the table is on the {where} only" + (f": {reason}" if reason else "")
    return PairPlan(
        id=str(table.ref), source=str(table.ref) if sources else "", target="" if sources else str(table.ref),
        sources=(), target_side=None, columns=(), hash=hash_name, whole=False, whole_reason="", spread=False,
        rows=table.rows, bytes=table.bytes, schema=(), not_covered=(NotCovered("the table", reason),), unproved=(),
        blind_spots=(),
    )  # fmt: skip


def _join_shards(
    sources: Sequence[TableDef], target: TableDef, override: TableOverride
) -> tuple[list[list[ColumnPair]], list[NotCovered], tuple[NotCovered, ...]]:
    """Join the columns of every source with the target's.

    Returns the column pairs per source (the same columns in the same order), what one side lacks or the
    configuration excludes, and what both sides have but cannot be compared. Checksums of shards are added up, so a
    column counts only if every shard joins it with one and the same text of the target.
    """
    joined: list[dict[str, ColumnPair]] = []
    missing: dict[NotCovered, None] = {}
    unproved: dict[NotCovered, None] = {}
    for source in sources:
        found, lone = column_pairs(source, target, override.rename, override.ignore)
        missing |= dict.fromkeys(lone)
        own: dict[str, ColumnPair] = {}
        for this, other in found:
            column = pair_column(this, other, override.tolerance(this.name))
            if isinstance(column, ColumnPair):
                own[other.name] = column
            else:
                unproved[NotCovered(this.name, column)] = None
        joined.append(own)
    columns: list[str] = []
    for name, first in joined[0].items():
        if all(name in own and _form(own[name]) == _form(first) for own in joined):
            columns.append(name)
    for name in {name for own in joined for name in own} - set(columns):
        unproved[NotCovered(name, "not every shard has this column in one comparable type")] = None
    return [[own[name] for name in columns] for own in joined], list(missing), tuple(unproved)


def _form(column: ColumnPair) -> tuple[str, Lane, bool]:
    # One text in two lanes, or framed in two ways, makes two checksums of one row.
    return column.target_sql, column.lane, column.string


def _immutable(override: TableOverride, columns: Sequence[ColumnPair]) -> tuple[str, str, str] | None:
    """Return the conditions that leave immutable rows out, per side, and the words for those rows."""
    before = override.immutable_before
    column = next((c for c in columns if before is not None and c.source.name == before.column), None)
    if before is None or column is None:
        return None
    bound = quote_text(before.value)
    names = quote_name(column.source.name), quote_name(column.target.name)
    source, target = (f"({name} IS NULL OR {name} >= {bound})" for name in names)
    return source, target, f"{before.column} before {before.value}"


def _blind_spots(columns: Sequence[ColumnPair]) -> tuple[str, ...]:
    """Return what cannot be seen in this pair, each once with the columns it concerns."""
    found: dict[str, list[str]] = {}
    for column in columns:
        spot = rule_named(column.rule).blind_to
        if spot == "nothing known" or (
            "CHAR" in spot and "char" not in (column.source.data_type, column.target.data_type)
        ):
            continue
        found.setdefault(spot, []).append(column.name)
    return tuple(f"{spot} ({', '.join(names)})" for spot, names in found.items())


def choose_keys(source: TableDef, target: TableDef, columns: Sequence[ColumnPair], override: TableOverride) -> Keys:
    """Choose what identifies a row and what cuts the table.

    The identity is the configured key, else the best unique index of the source: primary first, then without
    nullable columns, then short. The range key is the longest prefix of an index of both sides whose columns sort
    equally; without one the table is compared whole.
    """
    by_name = {c.source.name: c for c in columns if c.lane is Lane.EXACT}
    if override.key is not None:
        identity = tuple(by_name[name] for name in override.key if name in by_name)
        if len(identity) != len(override.key):
            gone = ", ".join(name for name in override.key if name not in by_name)
            identity, why = (), f"configured key column {gone} is not compared; "
        else:
            why = ""
    else:
        identity, why = _best_unique(source, by_name), ""
    range_key, reason = _range_key(source, target, by_name, identity)
    return Keys(identity, range_key, why + reason if not range_key else "")


def _best_unique(source: TableDef, by_name: Mapping[str, ColumnPair]) -> tuple[ColumnPair, ...]:
    fitting = []
    for index in source.indexes:
        names = [name for name in index.columns if name is not None]
        if not index.unique or len(names) != len(index.columns) or any(n not in by_name for n in names):
            continue
        key = tuple(by_name[n] for n in names)
        fitting.append((not index.primary, any(c.source.nullable for c in key), len(key), index.name, key))
    return min(fitting)[-1] if fitting else ()


def _range_key(
    source: TableDef, target: TableDef, by_name: Mapping[str, ColumnPair], identity: tuple[ColumnPair, ...]
) -> tuple[tuple[ColumnPair, ...], str]:
    """Return the range key, or an empty one and the reason."""
    wanted = [c.source.name for c in identity]
    best: tuple[tuple[int, ...], tuple[ColumnPair, ...]] | None = None
    different: list[str] = []
    for index in source.indexes:
        prefix = []
        for name in _plain_columns(index):
            column = by_name.get(name)
            if column is None:
                break
            if not sorts_equally(column.source, column.target):
                different.append(f"{name} ({column.source.collation or column.source.column_type} and "
                              f"{column.target.collation or column.target.column_type})")  # fmt: skip
                break
            prefix.append(column)
        while prefix and not _indexed(target, [c.target.name for c in prefix]):
            prefix.pop()
        if prefix:
            names = [c.source.name for c in prefix]
            rank = (names != wanted, not index.primary, not index.unique, -len(prefix))
            if best is None or rank < best[0]:
                best = (rank, tuple(prefix))
    if best is not None:
        return best[1], ""
    if different:
        return (), "the sides sort differently: " + ", ".join(dict.fromkeys(different))
    return (), "no index that both sides have"


def _plain_columns(index: IndexDef) -> list[str]:
    """Columns of an index up to the first expression or prefix part; none of an invisible index."""
    names: list[str] = []
    if not index.visible:
        return names
    for name, length in zip(index.columns, index.prefixes, strict=True):
        if name is None or length is not None:
            break
        names.append(name)
    return names


def _indexed(table: TableDef, names: list[str]) -> bool:
    wanted = [name.lower() for name in names]
    return any([n.lower() for n in _plain_columns(index)[: len(names)]] == wanted for index in table.indexes)


def _side(
    table: TableDef, side: Side, columns: Sequence[ColumnPair], keys: Keys, where: str, hash_name: str,
    endpoints: Mapping[str, Endpoint],
) -> SidePlan:  # fmt: skip
    has_value = any(c.lane is Lane.VALUE for c in columns)
    # The column that a quick answer reads by may cut the table without being compared.
    own = {c.target.name: c for c in (*keys.range, *columns)}
    sql = SideSql(
        table=quote_path(table.ref.database, table.ref.table),
        hash=hash_name,
        exact=frame(columns, side, Lane.EXACT),
        wide=wide_frame(columns, side, hash_name),
        value=frame(columns, side, Lane.VALUE) if has_value else None,
        texts=tuple(_text(c, side) for c in columns),
        key=tuple(_key_column(own[c.target.name], side) for c in keys.identity),
        range_key=tuple(_key_column(own[c.target.name], side) for c in keys.range),
        where=where,
    )
    return SidePlan(
        endpoints[table.ref.endpoint], table.ref.database, table.ref.table, sql,
        columns_number=columns_number(table), partitioned=table.partitioned,
    )  # fmt: skip


def _text(column: ColumnPair, side: Side) -> str:
    return column.source_sql if side is Side.SOURCE else column.target_sql


def _key_column(column: ColumnPair, side: Side) -> KeyColumn:
    this = column.source if side is Side.SOURCE else column.target
    # Both sides must write NULL equally, so a key column is nullable when either side's is.
    nullable = column.source.nullable or column.target.nullable
    # A key travels from one side to the other, so both must read its text equally: text beside bytes is bytes.
    binary = is_binary(column.source) or is_binary(column.target)
    family = "binary" if binary else FAMILIES[this.data_type]
    return KeyColumn(
        quote_name(this.name), _text(column, side), family, nullable, this.charset or "utf8mb4",
        this.collation or "utf8mb4_bin",
    )  # fmt: skip


def _read_column(column: ColumnPair) -> ReadColumn:
    family = FAMILIES[column.source.data_type]
    compare = "number" if column.tolerance is not None else rule_named(column.rule).compare
    binary = is_binary(column.source) or is_binary(column.target)
    return ReadColumn(column.name, family, column.lane, compare, binary, column.tolerance)


def buckets_of(pair: PairPlan) -> int:
    """Return how many buckets a table that is compared whole is summed in."""
    return max(64, min(65536, pair.rows // 500))


def read_statements(pair: PairPlan, side: SidePlan, key_range: KeyRange = KeyRange()) -> dict[str, str]:  # noqa: B008
    """Return the statements that read a side, by purpose: what ``tables plan`` explains is what a run executes."""
    if pair.part is not None and pair.part.read.level is Level.COUNTS:
        return {"count": count_sql(side.sql)}
    if pair.whole:
        return {"checksum": bucket_sql(side.sql, buckets_of(pair))}
    return {"checksum": checksum_sql(side.sql, key_range), "row list": rows_sql(side.sql, key_range)}


def plan_digest(pair: PairPlan) -> str:
    """Return the hash of what decides a pair's checksums: statements and columns, not estimates or limits."""
    sides = [(side.endpoint.name, side.database, side.table, encode(side.sql)) for side in pair.sides]
    text = json.dumps([sides, encode(pair.columns), pair.whole], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def is_same_plan(pair: PairPlan, recorded: Sequence[bytes]) -> bool:
    """Whether the statements of a pair are those of its first chunk; a pair that was not begun has none."""
    return not recorded or recorded[0].decode("ascii") == plan_digest(pair)


def check_same_plan(pair: PairPlan, recorded: Sequence[bytes], run_id: str) -> None:
    """Refuse to go on with a pair whose statements changed since its first chunk.

    Raises
    ------
    PlanError
        a table definition or the configuration changed; old and new checksums do not add up.
    """
    if not is_same_plan(pair, recorded):
        again = (
            f"Begin a new run: `migverify tables verify --recheck {run_id}` reads this table whole, and of the others"
            " what is not proved; `migverify tables verify` reads everything."
        )
        raise PlanError(
            f"{pair.id}: {CHANGED_SINCE} {run_id} began, so what it read of this table does not count any more",
            hint=again if pair.part is None else "Begin a new run with the options of that one.",
        )
