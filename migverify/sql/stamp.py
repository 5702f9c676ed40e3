"""Which table a name means and which columns it has, read by the very statement that reads its rows.

A name may get another table in the middle of a run (``RENAME`` as gh-ost and pt-osc do, ``DROP`` and ``CREATE``,
``EXCHANGE PARTITION``), and a table other columns. A statement holds its tables while it runs, so what it reads of
the catalog is true of the rows that it reads: the *stamp* of the answer, ``IDENTITY/COLUMNS``.

- TiDB: ``TIDB_TABLE_ID``, and the ids of the partitions.
- MySQL with the PROCESS privilege: ids of tablespaces, one a partition. An id is not used again, and a lookup by name
  takes less than a millisecond; INNODB_TABLES (TABLE_ID) is searched from end to end, 31 ms for 3,000 tables.
- Otherwise, and for tables of a shared tablespace: the time of creation. Two tables made in one second look the same.
"""

from __future__ import annotations

import zlib

from migverify.model import Flavor, TableDef
from migverify.sql.quoting import quote_text

TABLESPACES_SQL = "SELECT 1 FROM information_schema.INNODB_TABLESPACES_BRIEF LIMIT 0"
"""Refused where the PROCESS privilege (or the view: MySQL 5.7, MariaDB) is missing."""

BY_CREATION = "time of creation"
CREATED_LIMIT = "a table replaced by one made in the same second: table ids need the PROCESS privilege of MySQL"
"""What is not seen where tables are told apart by their time of creation."""


def stamp_sql(flavor: Flavor, database: str, table: str, *, table_ids: bool, partitioned: bool) -> str:
    """Return the expression for the identity of a table and the checksum of its columns; never NULL.

    Parameters
    ----------
    table_ids
        Whether this session may read ids of tables (``Session.sees_table_ids``).
    partitioned
        Whether the table has partitions.
    """
    named = f"TABLE_SCHEMA={quote_text(database)} AND TABLE_NAME={quote_text(table)}"
    if flavor is Flavor.TIDB:
        parts = [f"(SELECT MAX(TIDB_TABLE_ID) FROM information_schema.TABLES WHERE {named})"]
        if partitioned:
            ids = "GROUP_CONCAT(TIDB_PARTITION_ID ORDER BY TIDB_PARTITION_ID)"
            parts.append(f"(SELECT {ids} FROM information_schema.PARTITIONS WHERE {named})")
    else:
        created = f"(SELECT MAX(CREATE_TIME) FROM information_schema.TABLES WHERE {named})"
        parts = [f"IFNULL({_tablespaces(database, table)},{created})" if table_ids else created]
    columns = f"SELECT SUM(CRC32(CONCAT_WS(',',{','.join(_COLUMNS)}))) FROM information_schema.COLUMNS WHERE {named}"
    identity = ",':',".join(f"IFNULL({part},'?')" for part in parts)
    return f"CONCAT({identity},'/',IFNULL(({columns}),'?'))"


_COLUMNS = ("COLUMN_NAME", "COLUMN_TYPE", "IS_NULLABLE", "IFNULL(COLLATION_NAME,'')")


def _tablespaces(database: str, table: str) -> str:
    name = f"{database}/{table}"
    pattern = name.replace("|", "||").replace("%", "|%").replace("_", "|_") + "#p#%"
    return (
        "(SELECT GROUP_CONCAT(SPACE ORDER BY SPACE) FROM information_schema.INNODB_TABLESPACES_BRIEF"
        f" WHERE NAME={quote_text(name)} OR NAME LIKE {quote_text(pattern)} ESCAPE '|')"
    )


def columns_number(table: TableDef) -> int:
    """Return what the stamp of a table of this definition has behind the slash."""
    total = 0
    for column in table.columns:
        parts = (column.name, column.column_type, "YES" if column.nullable else "NO", column.collation or "")
        total += zlib.crc32(",".join(parts).encode("utf-8", "surrogateescape"))
    return total


def stamped(select: str, stamp: str) -> str:
    """Return a SELECT with the stamp of its table as one more column, in front."""
    return f"SELECT {stamp},{select.removeprefix('SELECT ')}"
