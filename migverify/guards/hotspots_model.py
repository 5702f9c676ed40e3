"""Where inserts go on TiDB: the ranges of keys that rows and index entries are put into, and their order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from migverify.guards.ids_model import IdKind
from migverify.guards.ids_read import MADE
from migverify.model import IndexDef, TableDef

ROWS = "rows"
ROW_ID = "_tidb_rowid"
ASCENDING = 0.9
"""Share of pairs of inserted values that ascend in time, from which a column's values increase."""
_AUTO_RANDOM = re.compile(r"auto_random\((\d+)", re.IGNORECASE)
_SHARDED = re.compile(r"SHARD_BITS=(\d+)", re.IGNORECASE)
_TIMES = frozenset({"date", "datetime", "timestamp", "time", "year"})
_NUMBERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "decimal"})
_GENERATED = {IdKind.SNOWFLAKE: "snowflake ids", IdKind.AUTO_INCREMENT: "AUTO_INCREMENT on the source"}


@dataclass(frozen=True, slots=True)
class HotspotLimits:
    """When something is hot on TiDB. Rates are a second, of one region, and last for ``sustained`` seconds.

    Parameters
    ----------
    warn, fail
        Rows inserted at the end of a range of keys, or changed in a table of one region. TiDB documents the effect
        (highly concurrent writes, troubleshoot hotspot issues) and no number: these are what a region of a usual store
        takes, and an option.
    reads, sustained
        TiKV splits a region by itself beyond 3,000 reads a second (``split.qps-threshold``) in 10 samples of a second
        (``split.detect-times``).
    key_warn, key_fail
        Writes of one row: each waits for the lock of the one before, from its statement to the end of its two-phase
        commit, about 5 to 20 ms.
    least_statements
        Statements that a capture has to hold before its rates count: of a hundred that come by chance, a rate is known
        to a tenth. It has to cover ``sustained`` seconds too.
    peak_factor
        How much higher than a mean of a long time a peak may be.
    cached_bytes, cached_writes
        A cached table: below 4 MiB, fewer than 10 writes a minute (TiDB, cached tables).
    memory_factor
        The memory of a transaction, as a multiple of what it writes (TiDB, transaction overview).
    """

    warn: float = 1_000.0
    fail: float = 2_000.0
    reads: float = 3_000.0
    sustained: float = 10.0
    key_warn: float = 50.0
    key_fail: float = 200.0
    least_statements: int = 100
    peak_factor: float = 10.0
    cached_bytes: int = 4 << 20
    cached_writes: float = 10 / 60
    memory_factor: float = 6.0


class KeyOrder(StrEnum):
    """Where the next value of a column lies among those that are there."""

    INCREASING = "increasing"
    SCATTERED = "scattered"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class InsertRange:
    """A range of keys that each inserted row adds an entry to: ``rows``, or an index by name.

    ``spread`` is the number of places in it that take inserts at once, ``cause`` what gives its column the order.
    """

    name: str
    column: str
    order: KeyOrder
    cause: str
    spread: int = 1


def insert_ranges(
    table: TableDef, *, clustered: bool, partitions: int, kinds: Mapping[str, IdKind], ascending: Mapping[str, float]
) -> Iterator[InsertRange]:
    """Yield the ranges that an insert into a table of TiDB adds to, the rows' own first.

    Parameters
    ----------
    partitions
        Partitions by HASH or KEY, 1 without: each has ranges of its own.
    kinds, ascending
        By column in lower case: what gives out its ids, and how its inserted values ascend in a capture.
    """
    sharded = _SHARDED.search(table.create_options)
    if not clustered:
        places = partitions << (int(sharded[1]) if sharded else 0)
        yield InsertRange(ROWS, ROW_ID, KeyOrder.INCREASING, "the hidden row id", places)
    for index in sorted(table.indexes, key=lambda one: not one.primary):
        # TiDB's remedy for a key that is not clustered leaves the key's own index in order, which holds no rows.
        if index.kind != "BTREE" or (index.primary and not clustered and sharded):
            continue
        order, cause, places = _order(table, index, kinds, ascending)
        name = ROWS if index.primary and clustered else f"index {index.name}"
        yield InsertRange(name, index.columns[0] or "an expression", order, cause, places * partitions)


def _order(
    table: TableDef, index: IndexDef, kinds: Mapping[str, IdKind], ascending: Mapping[str, float]
) -> tuple[KeyOrder, str, int]:
    """Return the order of an index's first column, what makes it, and in how many places it takes inserts."""
    name = index.columns[0]
    if name is None:
        return KeyOrder.UNKNOWN, "an expression", 1
    column, extra = table.column(name), table.column(name).extra.lower()
    random, kind, share = _AUTO_RANDOM.search(extra), kinds.get(name.lower()), ascending.get(name.lower())
    if random is not None:
        return KeyOrder.INCREASING, "AUTO_RANDOM", 1 << int(random[1])
    if "auto_increment" in extra:
        return KeyOrder.INCREASING, "AUTO_INCREMENT", 1
    if share is not None:
        cause = f"{share:.0%} of the captured values ascend"
        return (KeyOrder.INCREASING if share >= ASCENDING else KeyOrder.SCATTERED), cause, 1
    if kind in _GENERATED:
        return KeyOrder.INCREASING, _GENERATED[kind], 1
    if column.data_type in _TIMES:
        now = "current_timestamp" in f"{column.default} {extra}".lower()
        if now or (column.data_type in ("datetime", "timestamp") and MADE.search(name)):
            return KeyOrder.INCREASING, "the time of the insert", 1
        return KeyOrder.UNKNOWN, "a time", 1
    if column.data_type in _NUMBERS and kind is not IdKind.RANDOM:
        return KeyOrder.UNKNOWN, "a number that the application gives", 1
    return KeyOrder.SCATTERED, kind.value if kind is not None else column.data_type, 1


def follows_updates(table: TableDef, column: str) -> bool:
    """Whether each change of a row moves its entry to the end too: a time that is set anew."""
    return any(one.name == column and "on update" in one.extra.lower() for one in table.columns)
