"""The statement that joins the rows of two relations, in words that DuckDB and Spark share, and DuckDB's files.

Both sides are in one table (``COLUMNS``), so a full outer join by key is one aggregation by key. Packed keys hold no
NULL: a NULL key equals a NULL key. Packed sections sort as the tuples of their texts do, so least values are those of
the bytes.

Keys that agree are not given back but counted: in the last step they form one group, beside the keys that do not agree.
One pass gives pairings and totals, also where an engine runs a task twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

COLUMNS = ("side", "shard", "k", "v", "c", "n")
TOTALS = ("rows0", "rows1", "keys0", "keys1", "matched")
WORD = 62
"""Reads that one bit mask holds."""


@dataclass(frozen=True, slots=True)
class JoinSide:
    """What the statement needs to know of a side: how many reads, whether its rows are rows, and of their values."""

    reads: int
    rows: bool
    compared: int
    carried: int


@dataclass(frozen=True, slots=True)
class JoinFilter:
    """Which keys a join gives back: those missing on a side, with different texts, or there more than once on a side.

    A join of two relations looks for ``repeated`` keys in rows, not in aggregates. Without a target, keys that are
    ``repeated`` come back (of aggregates: groups of more than one row), or every key with ``all``.
    """

    missing_source: bool = True
    missing_target: bool = True
    differing: bool = True
    repeated: bool = True
    all: bool = False


def join_sql(sides: Sequence[JoinSide], keep: JoinFilter, rows: str) -> str:
    """Return the statement that joins one or two sides in ``rows``, what follows FROM, by key.

    Its rows are one per key that ``keep`` gives back, and one for all others (``k`` is NULL). Each has the ``TOTALS``
    of the keys it represents.
    """
    measures = {"k": "k"}
    for number, side in enumerate(sides):
        measures |= _measures(number, side)
    if len(sides) == 1:
        measures["n1"] = "CAST(0 AS BIGINT)"
    listed = ",".join(f"{text} AS {name}" for name, text in measures.items())
    kept, matched = _kept_and_matched(sides, keep)
    judged = f"SELECT *,{kept} AS kept,{matched} AS matched FROM (SELECT {listed} FROM {rows} GROUP BY k) AS g"
    names = ",".join(f"CASE WHEN kept THEN {name} END AS {name}" for name in measures)
    places = ",".join(str(place) for place in range(1, len(measures) + 1))
    sums = {
        "rows0": "n0", "rows1": "n1", "keys0": _one_if("n0>0"), "keys1": _one_if("n1>0"), "matched": _one_if("matched"),
    }  # fmt: skip
    totals = ",".join(f"CAST(sum({text}) AS BIGINT) AS {name}" for name, text in sums.items())
    return f"SELECT {names},{totals} FROM ({judged}) AS j GROUP BY {places}"


def _one_if(condition: str) -> str:
    return f"CASE WHEN {condition} THEN 1 ELSE 0 END"


def _measures(number: int, side: JoinSide) -> dict[str, str]:
    """Count, least values, and whether others differ; the reads as bits."""
    mine = f"FILTER (WHERE side={number})"
    made = {
        f"n{number}": f"CAST(coalesce(sum(n) {mine},0) AS BIGINT)",
        f"v{number}": f"min(v) {mine}",
        f"u{number}": f"coalesce(min(v) {mine}<>max(v) {mine},false)",
    }
    if side.carried:
        # One packed section of all values: 00 ends a field, and no field holds it.
        whole = "v||x'00'||c" if side.compared else "c"
        made |= {f"w{number}": f"min({whole}) {mine}", f"m{number}": f"coalesce(min(c) {mine}<>max(c) {mine},false)"}
    if side.reads > 1:
        for word in range(-(-side.reads // WORD)):
            first = word * WORD
            inside = f"FILTER (WHERE side={number} AND shard>={first} AND shard<{first + WORD})"
            # Powers of two are exact as floating-point numbers; the two engines write shifts differently.
            made[f"s{number}_{word}"] = f"bit_or(CAST(power(2,shard%{WORD}) AS BIGINT)) {inside}"
    return made


def _kept_and_matched(sides: Sequence[JoinSide], keep: JoinFilter) -> tuple[str, str]:
    # A key of neither side is a note of a reader to the driver.
    note = "(n0=0 AND n1=0)"
    if len(sides) == 1:
        kept = f"({_truth(keep.all)} OR ({_truth(keep.repeated)} AND n0>1) OR {note})"
        return kept, f"(NOT {kept})"
    present = "n0>0 AND n1>0"
    equal = "coalesce(v0=v1 AND NOT u0 AND NOT u1,false)"
    counted = [f"n{number}>1" for number, side in enumerate(sides) if side.rows]
    twice = f"({' OR '.join(counted)})" if keep.repeated and counted else "false"
    kept = (
        f"({note} OR ({_truth(keep.missing_target or keep.all)} AND n1=0)"
        f" OR ({_truth(keep.missing_source or keep.all)} AND n0=0)"
        f" OR ({present} AND (({_truth(keep.differing)} AND NOT {equal}) OR {twice} OR {_truth(keep.all)})))"
    )
    return kept, f"({present} AND {equal} AND NOT {twice})"


def _truth(value: bool) -> str:
    return "true" if value else "false"


# --- DuckDB's files --------------------------------------------------------------------------------------


def write_partitions_sql(table: str, folder: Path, name: str, partitions: int) -> str:
    """Return the statement that appends a table to Parquet files, one folder ``p=N`` per partition of the keys."""
    return (
        f"COPY (SELECT *,hash(k)%{partitions} AS p FROM {table}) TO {_literal(folder)}"
        f" (FORMAT parquet, COMPRESSION lz4, PARTITION_BY (p), FILENAME_PATTERN {_literal(name + '_{i}')},"
        " OVERWRITE_OR_IGNORE true)"
    )


def partition_sql(files: Path, partitions: int, passes: int, number: int) -> str:
    """Return a partition's rows as what follows FROM; of several ``passes`` over them those of one."""
    part = f" WHERE hash(k)//{partitions}%{passes}={number}" if passes > 1 else ""
    return f"(SELECT * FROM {parquet_sql(files)}{part}) AS r"


def sorted_rows_sql(table: str) -> str:
    """Return the statement that reads rows sorted, so that the parts of a group follow each other."""
    return f"SELECT {','.join(COLUMNS)} FROM {table} ORDER BY k,side"


def allow_folder_sql(folder: Path) -> list[str]:
    """Return the statements that let DuckDB read and write one folder and nothing else, for good."""
    return [
        f"SET allowed_directories=[{_literal(folder)}]", "SET enable_external_access=false",
        "SET lock_configuration=true",
    ]  # fmt: skip


def parquet_sql(files: Path) -> str:
    """Return Parquet files as what follows FROM."""
    return f"read_parquet({_literal(files)},hive_partitioning=false)"


def _literal(text: Path | str) -> str:
    return "'" + str(text).replace("'", "''") + "'"
