"""Reads the id spaces of one endpoint: counters from the catalog, true maxima and samples from the ends of indexes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from migverify.db.session import Session
from migverify.errors import ReadError
from migverify.guards.ids_model import IdKind, IdSpace
from migverify.guards.ids_snowflake import snowflake
from migverify.guards.inference import SMALLEST
from migverify.guards.layouts import Layout
from migverify.guards.model import one_line
from migverify.model import ColumnDef, Flavor, TableDef
from migverify.sql import ids as sql
from migverify.sql.catalog import read_names, read_tables
from migverify.sql.grants import Grants, check_grants
from migverify.sql.spelling import INTEGER_BYTES

STARTS = 40
EACH = 10
NEWEST = 600
DIGITS = 15
"""A text key of fewer digits is no 64-bit id of a generator that has been at work for a day."""
SUSPECT = 0.3
"""A key that an application fills is looked at when so much of its type seems to be used."""
TIDB_CACHE = 30_000
"""Ids that every TiDB server takes at once unless AUTO_ID_CACHE says otherwise."""

MADE = re.compile(
    r"^(gmt_?)?(creat|insert|add|book|regist|open|order|pay)|(_|^)(created|inserted)(_|$)|^ctime$", re.IGNORECASE
)
_AUTO_RANDOM = re.compile(r"auto_random\((\d+)(?:,\s*(\d+))?\)", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,20}")
_SHARDED = re.compile(r"SHARD_BITS=(\d+)", re.IGNORECASE)
_CACHE = re.compile(r"AUTO_ID_CACHE[= ]+(\d+)", re.IGNORECASE)

Given = Callable[[str, str], Layout | None]
"""(``database.table``, column) -> the layout that the user says, or None."""


@dataclass(slots=True)
class Spaces:
    """The id spaces of an endpoint, its tables, samples of snowflakes by subject, and what could not be read.

    ``grants`` say what the user may do; None where they could not be read, which is in ``unread``.
    """

    tables: list[tuple[str, str]] = field(default_factory=list)
    spaces: list[IdSpace] = field(default_factory=list)
    samples: dict[str, list[int]] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    grants: Grants | None = None


def limit_of(column: ColumnDef) -> int | None:
    """Return the largest value of an integer column; None for other types."""
    size = INTEGER_BYTES.get(column.data_type)
    return None if size is None else (1 << (8 * size - (0 if column.unsigned else 1))) - 1


def read_spaces(
    session: Session, endpoint: str, wanted: Callable[[str, str], bool], now: float, given: Given
) -> Spaces:
    """Read every id space of the wanted tables.

    Parameters
    ----------
    now
        Unix milliseconds.

    Raises
    ------
    ReadError
        the catalog cannot be read; a table that cannot is named in ``unread``.
    """
    found = Spaces()
    tables = {(t.ref.database, t.ref.table): t for t in read_tables(session, endpoint, wanted)}
    found.tables = list(tables)
    try:
        found.grants = check_grants(session)
    except ReadError as error:
        found.unread.append(f"{endpoint}: what its user may see: {one_line(error)}")
    narrower = _narrower(tables)
    for table in tables.values():
        try:
            for space in _table(session, endpoint, table):
                found.spaces.append(_finished(session, table, _narrowed(space, narrower), now, given, found.samples))
            found.spaces += _texts(session, endpoint, table, now, given, found.samples)
        except ReadError as error:
            found.unread.append(f"{endpoint}: {table.ref}: {one_line(error)}")
    found.spaces += _sequences(session, endpoint, wanted)
    return found


def _table(session: Session, endpoint: str, table: TableDef) -> Iterator[IdSpace]:
    counters = _counters(session, table) if session.flavor is Flavor.TIDB else {}
    seen = set()
    for column in table.columns:
        auto = _AUTO_RANDOM.search(column.extra)
        if auto is not None:
            seen.add(column.name)
            yield _auto_random(endpoint, table, column, auto, counters)
        elif "auto_increment" in column.extra.lower():
            seen.add(column.name)
            yield _auto_increment(session, endpoint, table, column, counters)
    if "_tidb_rowid" in counters:
        yield _row_id(endpoint, table, counters["_tidb_rowid"])
    for index in table.indexes:
        name = index.columns[0]
        if not index.unique or len(index.columns) != 1 or name is None or name in seen:
            continue
        seen.add(name)
        column = table.column(name)
        if column.data_type in INTEGER_BYTES and not column.generation:
            query = sql.ends(table.ref.database, table.ref.table, name)
            largest = _ends(session, query)[1]
            yield IdSpace(endpoint, str(table.ref), name, IdKind.INTEGER, largest or 0, limit_of(column), query,
                          largest=largest)  # fmt: skip


def _counters(session: Session, table: TableDef) -> dict[str, int]:
    """Return TiDB's next value by column; the row id's column is ``_tidb_rowid``."""
    rows = session.query_named(sql.next_row_id(table.ref.database, table.ref.table))
    return {row["COLUMN_NAME"] or "": int(row["NEXT_GLOBAL_ROW_ID"] or 0) for row in rows}


def _ends(session: Session, query: str) -> tuple[int | None, int | None]:
    ((low, high),) = session.query(query)
    return (None if low is None else int(low)), (None if high is None else int(high))


def _auto_increment(
    session: Session, endpoint: str, table: TableDef, column: ColumnDef, counters: Mapping[str, int]
) -> IdSpace:
    query = sql.ends(table.ref.database, table.ref.table, column.name)
    largest = _ends(session, query)[1]
    following = counters.get(column.name) if session.flavor is Flavor.TIDB else table.auto_increment
    notes: list[str] = []
    cache = None
    if session.flavor is Flavor.TIDB:
        found = _CACHE.search(table.create_options)
        cache = int(found[1]) if found else TIDB_CACHE
        query = sql.next_row_id(table.ref.database, table.ref.table)
        lost = (following or 1) - 1 - (largest or 0)
        if lost > 2 * cache:
            notes.append(f"{lost:,} ids went into caches of TiDB servers, {cache:,} at a time")
    elif following is not None and largest is not None and following <= largest:
        notes.append("the counter of the catalog is older than the largest id")
    if following is None and largest is None:
        return IdSpace(
            endpoint, str(table.ref), column.name, IdKind.AUTO_INCREMENT, 0, limit_of(column), query, cache=cache
        )
    used = max((following or 1) - 1, largest or 0)
    return IdSpace(endpoint, str(table.ref), column.name, IdKind.AUTO_INCREMENT, used, limit_of(column), query,
                   largest=largest, cache=cache, notes=tuple(notes))  # fmt: skip


def _auto_random(
    endpoint: str, table: TableDef, column: ColumnDef, auto: re.Match[str], counters: Mapping[str, int]
) -> IdSpace:
    shard, width = int(auto[1]), int(auto[2] or 64)
    # One bit is the sign's; an unsigned column has it for the counter.
    bits = width - shard - (0 if column.unsigned else 1)
    following = counters.get(column.name)
    query = sql.next_row_id(table.ref.database, table.ref.table)
    largest = (1 << (width - (0 if column.unsigned else 1))) - 1
    return IdSpace(
        endpoint, str(table.ref), column.name, IdKind.AUTO_RANDOM, None if following is None else following - 1,
        (1 << bits) - 1, query, largest=largest, notes=(f"{shard} shard bits, {bits} bits of counter",),
    )  # fmt: skip


def _row_id(endpoint: str, table: TableDef, following: int) -> IdSpace:
    found = _SHARDED.search(table.create_options)
    bits = 63 - (int(found[1]) if found else 0)
    query = sql.next_row_id(table.ref.database, table.ref.table)
    return IdSpace(endpoint, str(table.ref), "_tidb_rowid", IdKind.ROW_ID, following - 1, (1 << bits) - 1, query)


def _narrower(tables: Mapping[tuple[str, str], TableDef]) -> dict[tuple[str, str], tuple[int, str]]:
    """Return the smallest limit among the columns that refer to a key by their names, and that column's name.

    A foreign key needs equal types on both ends, on MySQL and on TiDB (error 3780), so a narrower child has none. Names
    tell then: ``order_id`` refers to ``id`` of ``order`` or ``orders``, ``order_no`` to a key of that name.
    """
    parents: dict[tuple[str, str], tuple[str, str]] = {}
    for (database, name), table in tables.items():
        key = next((i.columns[0] for i in table.indexes if i.primary and len(i.columns) == 1), None)
        if key is None:
            continue
        words = {name, *(name.removesuffix(end) + new for end, new in _SINGULAR if name.endswith(end))}
        names = {key} - {"id"} | {f"{word}_{key}" for word in words} | {f"{word}{key.capitalize()}" for word in words}
        parents |= {(database, one.lower()): (str(table.ref), key) for one in names}
    found: dict[tuple[str, str], tuple[int, str]] = {}
    for (database, _), table in tables.items():
        for column in table.columns:
            parent = parents.get((database, column.name.lower()))
            limit = limit_of(column)
            if parent is None or limit is None or parent[0] == str(table.ref):
                continue
            if parent not in found or limit < found[parent][0]:
                found[parent] = (limit, f"{table.ref}.{column.name}")
    return found


_SINGULAR = (("ies", "y"), ("ses", "s"), ("xes", "x"), ("s", ""))


def _narrowed(space: IdSpace, narrower: Mapping[tuple[str, str], tuple[int, str]]) -> IdSpace:
    limit, name = narrower.get((space.table, space.column), (None, ""))
    if limit is None or space.limit is None or limit >= space.limit:
        return space
    if (space.used or 0) > limit:
        # Were it a reference, it would have failed already.
        return replace(space, notes=(*space.notes, f"!{name} cannot hold these ids: it is no reference, or broken"))
    return replace(space, limit=limit, narrowed=name, notes=(*space.notes, f"!{name} is narrower: it ends the space"))


def _finished(
    session: Session, table: TableDef, space: IdSpace, now: float, given: Given, samples: dict[str, list[int]]
) -> IdSpace:
    """Look at the ids themselves where they may hold a time."""
    counted = space.kind in (IdKind.AUTO_RANDOM, IdKind.ROW_ID) or not space.column
    if counted or space.largest is None:
        return space
    layout = given(space.table, space.column)
    counts = space.largest < SMALLEST or table.column(space.column).data_type != "bigint"
    # What an application fills may be random: then its largest value says nothing of an end.
    if layout is None and counts and (space.kind is not IdKind.INTEGER or (space.used_ratio or 0.0) < SUSPECT):
        return space
    ids, times = _sample(session, table, space.column)
    reported = snowflake(space, ids, times, now, layout)
    if reported.kind is IdKind.SNOWFLAKE:
        samples[reported.subject] = ids
        return reported
    if reported.kind is IdKind.RANDOM and space.kind is not IdKind.INTEGER:
        return replace(space, evidence=reported.evidence)  # the server counts, also where rows were inserted with ids
    # A counter that is far is a counter still: that no layout fits is a doubt only where nothing counts.
    return (
        reported
        if space.kind is IdKind.INTEGER or reported.kind is IdKind.MIXED
        else replace(space, evidence=reported.evidence)
    )


def _texts(
    session: Session, endpoint: str, table: TableDef, now: float, given: Given, samples: dict[str, list[int]]
) -> Iterator[IdSpace]:
    """Yield the time-ordered ids that are kept as text; text keys of other contents have no end."""
    single = {i.columns[0] for i in table.indexes if i.unique and len(i.columns) == 1}
    for name in sorted(name for name in single if name is not None):
        column = table.column(name)
        if column.data_type not in ("char", "varchar") or (column.char_length or 0) < DIGITS or column.generation:
            continue
        query = sql.text_sample(table.ref.database, table.ref.table, name, _time_column(table), NEWEST)
        rows = {row[0]: row[1] for row in session.query(query)}
        if not rows or not all(_NUMBER.fullmatch(text or "") for text in rows):
            continue
        ids = [int(text or 0) for text in rows]
        if max(ids) < 10 ** (DIGITS - 1) or max(ids) >= 1 << 64:
            continue
        times = [None if time is None else int(float(time)) for time in rows.values()]
        empty = IdSpace(endpoint, str(table.ref), name, IdKind.INTEGER, None, None, query, largest=max(ids))
        reported = snowflake(empty, ids, times, now, given(empty.table, name))
        if reported.kind is IdKind.SNOWFLAKE:
            samples[reported.subject] = ids
        if reported.kind in (IdKind.SNOWFLAKE, IdKind.MIXED):
            yield reported


def _sample(session: Session, table: TableDef, column: str) -> tuple[list[int], list[int | None]]:
    low, high = _ends(session, sql.ends(table.ref.database, table.ref.table, column))
    if low is None or high is None:
        return [], []
    low = max(low, 0)
    starts = sorted({low + (high - low) * step // STARTS for step in range(STARTS)})
    query = sql.sample(table.ref.database, table.ref.table, column, _time_column(table), starts, EACH, NEWEST)
    rows = {row[0]: row[1] for row in session.query(query)}  # one row may be in two parts
    ids = [int(number) for number in rows if number is not None]
    times = [None if time is None else int(float(time)) for number, time in rows.items() if number is not None]
    return ids, times


def _time_column(table: TableDef) -> str | None:
    """Return the column that tells when a row was made; None where no name or default says so."""
    times = [c for c in table.columns if c.data_type in ("datetime", "timestamp")]
    named = [c for c in times if MADE.search(c.name) and "on update" not in c.extra.lower()]
    set_once = [
        c for c in times
        if "current_timestamp" in (c.default or "").lower() and "on update" not in c.extra.lower()
    ]  # fmt: skip
    return next((c.name for c in (*named, *set_once)), None)


def _sequences(session: Session, endpoint: str, wanted: Callable[[str, str], bool]) -> Iterator[IdSpace]:
    if session.flavor is Flavor.MYSQL:
        return
    names = [one for one in read_names(session, wanted).skipped if one.kind == "sequence"]
    if session.flavor is Flavor.MARIADB:
        for one in names:
            query = sql.mariadb_sequence(one.database, one.name)
            ((following, low, high, step, cycles),) = session.query(query)
            yield _sequence(
                endpoint, f"{one.database}.{one.name}", query, int(following or 0), (low, high, step), cycles
            )
        return
    for database in sorted({one.database for one in names}):
        for name, low, high, step, cycles, _ in session.query(sql.tidb_sequences(database)):
            if name is None or not wanted(database, name):
                continue
            query = sql.next_row_id(database, name)
            rows = session.query_named(query)
            counted = next(int(r["NEXT_GLOBAL_ROW_ID"] or 0) for r in rows if r["ID_TYPE"] == "SEQUENCE")
            yield _sequence(endpoint, f"{database}.{name}", query, counted, (low, high, step), cycles)


def _sequence(
    endpoint: str, name: str, query: str, following: int, given: Sequence[str | None], cycles: str | None
) -> IdSpace:
    low, high, step = (int(part or 0) for part in given)
    # A sequence that falls uses its range from above.
    used, limit = (following - low, high - low + 1) if step > 0 else (high - following, high - low + 1)
    return IdSpace(endpoint, name, "", IdKind.SEQUENCE, max(0, used), limit, query, largest=max(following, 0),
                   cycles=cycles not in (None, "0", ""))  # fmt: skip
