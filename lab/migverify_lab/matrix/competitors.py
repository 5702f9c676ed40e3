"""What other tools compute over a table, as their authors published it, written anew as SQL for one pair.

Each function gives the checksum expression over a whole table; the matrix runs it with ``COUNT(*)`` on both sides and
compares the two answers. That is the first step of these tools, and the one that decides whether they look any
further. Chunks, retries and row-by-row phases are left out: a chunk whose checksums agree is not looked at again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from migverify.model import ColumnDef, Side
from migverify.sql.quoting import quote_name

Both = tuple[ColumnDef, ColumnDef]
"""The source's and the target's definition of one column."""

Expression = Callable[[Sequence[Both], Side, str], str]
"""(columns, side, hash name) -> aggregate over a table. The hash is MD5, or SHA2 where a server has no MD5."""


@dataclass(frozen=True, slots=True)
class Competitor:
    """One tool. ``origin`` says where its expression was published, ``by_md5`` whether it hashes with MD5."""

    name: str
    origin: str
    expression: Expression
    by_md5: bool


def _own(column: Both, side: Side) -> str:
    return quote_name((column[0] if side is Side.SOURCE else column[1]).name)


def _hashed(row: str, hash_name: str) -> str:
    return f"SHA2({row},256)" if hash_name == "SHA2" else f"{hash_name}({row})"


def _slice(hashed: str, start: int, digits: int) -> str:
    return f"CAST(CONV(SUBSTRING({hashed},{start},{digits}),16,10) AS UNSIGNED)"


def sync_diff_inspector(columns: Sequence[Both], side: Side, hash_name: str) -> str:
    """XOR of both halves of a hash of the values, joined by commas, and a map of NULLs.

    Published in pingcap/tiflow, ``sync_diff_inspector/utils/utils.go`` (``GetCountAndChecksum``). FLOAT is rounded to 6
    significant digits and DOUBLE to 15, which makes 0 a NULL; the map of NULLs is taken from the rounded value. Types
    are those of the target.
    """
    values, nulls = [], []
    for column in columns:
        value = _own(column, side)
        digits = {"float": 5, "double": 14}.get(column[1].data_type)
        if digits is not None:
            value = f"ROUND({value},{digits}-FLOOR(LOG10(ABS({value}))))"
        values.append(value)
        nulls.append(f"ISNULL({value})")
    hashed = _hashed(f"CONCAT_WS(',',{','.join(values)},CONCAT({','.join(nulls)}))", hash_name)
    return f"BIT_XOR({_slice(hashed, 1, 16)} ^ {_slice(hashed, 17, 16)})"


_UTF8_AGAIN = frozenset({"char", "varchar", "enum", "set", "json"})
_CRC_FIRST = re.compile(r"binary|blob|text")


def pt_table_checksum(columns: Sequence[Both], side: Side, hash_name: str) -> str:
    """XOR of CRC32 of the values joined by ``#`` and a map of the nullable columns.

    Published in percona/percona-toolkit, ``RowChecksum`` of ``bin/pt-table-checksum``, with its defaults (CRC32, no
    ``--float-precision``, no ``--trim``). The source's statement is replicated, so types are those of the source.
    """
    del hash_name  # CRC32 is the default
    values, nulls = [], []
    for column in columns:
        name, kind = _own(column, side), column[0].data_type
        if kind == "timestamp":
            values.append(f"UNIX_TIMESTAMP({name})")
        elif kind in _UTF8_AGAIN:
            values.append(f"CONVERT({name} USING utf8mb4)")
        else:
            values.append(f"CRC32({name})" if _CRC_FIRST.search(kind) else name)
        if column[0].nullable:
            nulls.append(f"ISNULL({name})")
    if nulls:
        values.append(f"CONCAT({','.join(nulls)})")
    row = f"CONCAT_WS('#',{','.join(values)})" if len(values) > 1 else values[0]
    return f"COALESCE(LOWER(CONV(BIT_XOR(CAST(CRC32({row}) AS UNSIGNED)),10,16)),0)"


def reladiff(columns: Sequence[Both], side: Side, hash_name: str) -> str:
    """Sum of the last 60 bits of MD5 of the values as text, joined by ``|``, with ``<null>`` for NULL.

    Published in erezsh/sqeleton, ``queries/extras.py`` (``Checksum``) and ``databases/mysql.py``. Fractions are read
    with the smaller precision of both sides. Every column is given with ``-c``; by default only the key is compared.
    """
    values = [f"COALESCE({_reladiff_text(column, _own(column, side))},'<null>')" for column in columns]
    row = "CONCAT(" + ",'|',".join(values) + ")" if len(values) > 1 else values[0]
    digest = _hashed(row, hash_name)
    # The last 15 digits of MD5; of a longer hash as many, so that the strength stays the same.
    return f"SUM({_slice(digest, {'MD5': 18}.get(hash_name, 50), 15)})"


def _reladiff_text(column: Both, name: str) -> str:
    kinds = {definition.data_type for definition in column}
    if kinds <= {"datetime", "timestamp", "date"}:
        digits = min(6 if c.fsp is None else c.fsp for c in column)
        return f"CAST(CAST(CAST({name} AS DATETIME({digits})) AS DATETIME(6)) AS CHAR)"
    if kinds <= {"float", "double", "decimal"}:
        return f"CAST(CAST({name} AS DECIMAL(38,{min(_fraction_digits(c) for c in column)})) AS CHAR)"
    return f"CAST({name} AS CHAR)"


def _fraction_digits(column: ColumnDef) -> int:
    if column.data_type == "decimal":
        return column.scale or 0
    # The catalog says 12 for FLOAT and 22 for DOUBLE; both count bits.
    return math.floor(math.log10(2 ** (column.precision or 24)))


def spirit(columns: Sequence[Both], side: Side, hash_name: str) -> str:
    """XOR of CRC32 of the values cast to the target's type, each followed by ``#`` and whether it is NULL.

    Published in block/spirit, ``pkg/table/column_mapping.go`` and ``utils.go``. Columns that are generated on the
    target are left out. JSON of the source goes through its text once more, since that is how it was copied.
    """
    del hash_name  # CRC32 is fixed
    parts = []
    for column in columns:
        if column[1].generation:
            continue
        name = _own(column, side)
        parts += [f"IFNULL({_spirit_cast(column, name, side)},'')", f"ISNULL({name})"]
    return "BIT_XOR(CRC32(CONCAT(" + ",'#',".join(parts) + ")))"


def _spirit_cast(column: Both, name: str, side: Side) -> str:
    source, target = column
    kind = target.data_type
    if kind in {"float", "double"}:
        return f"({name}+0E0)"
    if kind == "json":
        document = f"CAST({name} AS CHAR CHARACTER SET utf8mb4)" if side is Side.SOURCE else name
        return f"CAST({document} AS JSON)"
    if kind in {"tinyint", "smallint", "mediumint", "int", "bigint"}:
        wanted = "UNSIGNED" if target.unsigned else "SIGNED"
    elif kind in {"datetime", "timestamp"}:
        both = (source, target) if source.data_type in {"datetime", "timestamp"} else (target,)
        digits = max(c.fsp or 0 for c in both)
        wanted = f"DATETIME({digits})" if digits else "DATETIME"
    elif kind == "decimal":
        wanted = f"DECIMAL({target.precision},{target.scale})"
    elif kind == "bit":
        wanted = "UNSIGNED"
    elif kind == "binary":
        wanted = f"BINARY({target.octet_length or target.char_length})"
    elif kind in {"varbinary", "tinyblob", "blob", "mediumblob", "longblob"}:
        wanted = "BINARY"
    else:
        wanted = "CHAR CHARACTER SET utf8mb4"
    return f"CAST({name} AS {wanted})"


COMPETITORS: tuple[Competitor, ...] = (
    Competitor(
        "sync-diff-inspector",
        "pingcap/tiflow, sync_diff_inspector/utils/utils.go, GetCountAndChecksum",
        sync_diff_inspector,
        by_md5=True,
    ),
    Competitor(
        "pt-table-checksum",
        "percona/percona-toolkit, bin/pt-table-checksum, RowChecksum, default options",
        pt_table_checksum,
        by_md5=False,
    ),
    Competitor(
        "reladiff",
        "erezsh/sqeleton, queries/extras.py and databases/mysql.py, every column selected",
        reladiff,
        by_md5=True,
    ),
    Competitor(
        "spirit",
        "block/spirit, pkg/table/column_mapping.go and pkg/table/utils.go",
        spirit,
        by_md5=False,
    ),
)
