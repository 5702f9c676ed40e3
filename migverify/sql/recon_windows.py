"""The checksum of what a window holds, computed by the database: whether rows came or changed since it was read."""

from __future__ import annotations

from dataclasses import dataclass

from migverify.sql.checksum import checksum_sum
from migverify.sql.key_range import KeyColumn
from migverify.sql.recon import HASH, Selection, both, row_frame


@dataclass(frozen=True, slots=True)
class _Groups:
    """The rows of a grouped read as a selection of their own."""

    endpoint: str
    table: str
    key: tuple[str, ...]
    values: tuple[str, ...]
    strings: tuple[bool, ...]
    lost: str
    where: str = ""
    grouped: bool = False
    having: str = ""
    lookup: tuple[KeyColumn, ...] = ()


def signature_sql(read: Selection) -> str:
    """Return the statement of (rows or groups, sum of their checksums) of a read, in one scan.

    A condition on groups does not count: a group that agreed is part of what was read too.
    """
    chosen = _groups(read) if read.grouped else read
    where = both(chosen.where)
    condition = f" WHERE {where}" if where else ""
    return f"SELECT COUNT(*) AS n,{checksum_sum(row_frame(chosen), HASH)} AS s FROM {chosen.table}{condition}"


def _groups(read: Selection) -> _Groups:
    keys = [f"k{n}" for n in range(len(read.key))]
    values = [f"v{n}" for n in range(len(read.values))]
    listed = [f"{text} AS {name}" for text, name in zip((*read.key, *read.values), (*keys, *values), strict=True)]
    listed.append("COUNT(*) AS n")
    if read.lost:
        listed.append(f"SUM({read.lost}) AS l")
    where = f" WHERE {read.where}" if read.where else ""
    by = " GROUP BY " + ",".join(str(n + 1) for n in range(len(keys))) if keys else ""
    table = f"(SELECT {','.join(listed)} FROM {read.table}{where}{by}) AS w"
    return _Groups(read.endpoint, table, tuple(keys), (*values, "n"), (*read.strings, False), "l" if read.lost else "")
