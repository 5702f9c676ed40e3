"""Which table a name means, and which columns it has: it may be swapped, emptied, restored or altered at any time.

``RENAME`` (as gh-ost and pt-osc do), ``DROP`` and ``CREATE``, ``TRUNCATE`` and ``EXCHANGE PARTITION`` leave a name as
it is. The storage engine's ids change (InnoDB's, TiDB's TIDB_TABLE_ID, those of partitions), and CREATE_TIME moves with
every other change of a definition. There are two readings:

- ``read_identities``: many tables by a few statements, cheap enough to be read again and again.
- The *stamp* of one table, ``IDENTITY/COLUMNS``: an expression in the very statement that reads its rows. A statement
  holds its tables while it runs, so what it reads of the catalog is true of the rows that it reads. On MySQL with the
  PROCESS privilege it has ids of tablespaces, one a partition: an id is not used again, and a lookup by name takes less
  than a millisecond; INNODB_TABLES (TABLE_ID) is searched from end to end, 31 ms for 3,000 tables. Otherwise, and for
  tables of a shared tablespace, it has the time of creation: two tables made in one second look the same.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from migverify.errors import PrivilegeError, ReadError
from migverify.model import Flavor, TableDef
from migverify.sql.catalog import TABLES_AT_ONCE, names_condition
from migverify.sql.definitions import Name, text_of
from migverify.sql.fingerprint import digest
from migverify.sql.quoting import quote_text
from migverify.sql.server import Queries

_SPECIAL = re.compile(r"[^A-Za-z0-9_]")
_ENCODED = re.compile(r"@(?:[0-9a-f]{4}|..)")
UNKNOWN_ID = "unknown (needs PROCESS)"
YOUNG_SECONDS = 2
"""CREATE_TIME counts seconds: a table altered this recently may be altered again without a trace in it."""


@dataclass(frozen=True, slots=True)
class TableIdentity:
    """What a name means. Two equal identities mean one table whose rows changed by row writes alone.

    ``ids`` are (partition, id of the storage engine); the partition is empty for the table itself. ``altered`` is the
    time of the last change of the definition; of a very recent one, with the moment of this reading, so that the next
    reading differs. ``columns`` is a digest of names, order and types.
    """

    kind: str
    ids: tuple[tuple[str, str], ...]
    altered: str
    columns: str

    @property
    def young(self) -> bool:
        """Whether it was altered so recently that the next change may not show in it."""
        return "," in self.altered

    @property
    def changed_at(self) -> str:
        """The time of the last change of the definition, as the server says it."""
        return self.altered.partition(",")[0]

    def is_replaced_by(self, later: TableIdentity) -> bool:
        """Whether a later reading of the same name is of another table: emptied, restored, swapped or rebuilt.

        Partitions come and go by themselves. Without ids the time of the last change says it.
        """
        ours, theirs = dict(self.ids), dict(later.ids)
        if UNKNOWN_ID in (*ours.values(), *theirs.values()):
            return self.changed_at != later.changed_at
        both = ours.keys() & theirs.keys()
        return any(ours[name] != theirs[name] for name in both) if both else bool(ours and theirs)

    def changes_to(self, later: TableIdentity | None) -> str:
        """Return in words how a later reading of the same name differs; empty for the same table."""
        if later is None:
            return "the table is gone"
        if self == later:
            return ""
        if self.kind != later.kind:
            return f"it was a {self.kind.lower()} and is a {later.kind.lower()}"
        ours, theirs = dict(self.ids), dict(later.ids)
        moved = [f"{f'partition {name}' if name else 'the table'} has id {theirs.get(name, '(none)')}, "
                 f"was {ours.get(name, '(none)')}"
                 for name in sorted(ours.keys() | theirs.keys()) if ours.get(name) != theirs.get(name)]  # fmt: skip
        if moved:
            return "; ".join(moved[:3]) + (f"; and {len(moved) - 3} more" if len(moved) > 3 else "")
        what = "its columns changed" if self.columns != later.columns else "its definition was changed"
        return f"{what} at {later.altered.partition(',')[0]}"


def read_identities(session: Queries, names: Sequence[Name]) -> dict[Name, TableIdentity]:
    """Return the identity of each of these names that exists, views included.

    Raises
    ------
    ReadError
        the server did not answer.
    """
    wanted = sorted(set(names))
    inner = {} if session.flavor is Flavor.TIDB or not wanted else _innodb_ids(session, set(wanted))
    found: dict[Name, TableIdentity] = {}
    for start in range(0, len(wanted), TABLES_AT_ONCE):
        found |= _read_batch(session, wanted[start : start + TABLES_AT_ONCE], inner)
    return found


def _read_batch(
    session: Queries, names: Sequence[Name], inner: dict[Name, list[tuple[str, str]]] | None
) -> dict[Name, TableIdentity]:
    wanted = set(names)
    where = f" WHERE {names_condition(names)}"
    columns: dict[Name, list[tuple[str, ...]]] = {}
    for database, table, *parts in session.query(
        "SELECT TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION, COLUMN_NAME, COLUMN_TYPE, COLLATION_NAME, IS_NULLABLE,"
        f" EXTRA FROM information_schema.COLUMNS{where}"
    ):
        columns.setdefault((text_of(database), text_of(table)), []).append(tuple(map(str, parts)))
    ids = inner
    table_id = "NULL"
    if session.flavor is Flavor.TIDB:
        table_id, ids = "TIDB_TABLE_ID", {}
        for database, table, partition, number in session.query(
            "SELECT TABLE_SCHEMA, TABLE_NAME, PARTITION_NAME, TIDB_PARTITION_ID FROM information_schema.PARTITIONS"
            f"{where} AND PARTITION_NAME IS NOT NULL"
        ):
            ids.setdefault((text_of(database), text_of(table)), []).append((text_of(partition), str(number)))
    found = {}
    for database, table, kind, number, altered, now in session.query(
        f"SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, {table_id}, CREATE_TIME,"
        f" IF(TIMESTAMPDIFF(SECOND, CREATE_TIME, NOW()) < {YOUNG_SECONDS}, NOW(6), NULL)"
        f" FROM information_schema.TABLES{where}"
    ):
        name = text_of(database), text_of(table)
        if name not in wanted:
            continue
        own = [("", UNKNOWN_ID)] if ids is None else [*([("", number)] if number else []), *ids.get(name, [])]
        found[name] = TableIdentity(
            text_of(kind), tuple(sorted(own)), f"{altered}, read at {now}" if now else str(altered),
            digest(sorted(columns.get(name, []))),
        )  # fmt: skip
    return found


def _innodb_ids(session: Queries, wanted: set[Name]) -> dict[Name, list[tuple[str, str]]] | None:
    """Return (partition, TABLE_ID) by table; None where the user may not read them."""
    rows = None
    for view in ("INNODB_TABLES", "INNODB_SYS_TABLES"):  # the second before MySQL 8, and on MariaDB
        try:
            rows = session.query(f"SELECT NAME, TABLE_ID FROM information_schema.{view} WHERE NAME LIKE '%/%'")
            break
        except PrivilegeError:
            return None
        except ReadError:
            if view == "INNODB_SYS_TABLES":
                raise
    by_shape: dict[Name, list[Name]] = {}
    for name in wanted:
        by_shape.setdefault((_shape(name[0], _SPECIAL), _shape(name[1], _SPECIAL)), []).append(name)
    found: dict[Name, list[tuple[str, str]]] = {}
    for path, number in rows or []:
        database, _, rest = text_of(path).partition("/")
        table, _, partition = rest.partition("#")  # the # of a name itself is spelled @0023
        for name in by_shape.get((_shape(database, _ENCODED), _shape(table, _ENCODED)), []):
            found.setdefault(name, []).append((partition.partition("#")[2], str(number)))
    return found


def _shape(name: str, special: re.Pattern[str]) -> str:
    """Return a name with a mark for every sign that InnoDB encodes: one shape for the plain and the encoded name.

    Newer servers do not decode such names. Names of one shape share their ids: a change of one counts for all.
    """
    return special.sub("?", name).casefold()


# --- the stamp of one table ------------------------------------------------------------------------------

TABLESPACES_SQL = "SELECT 1 FROM information_schema.INNODB_TABLESPACES_BRIEF LIMIT 0"
"""Refused where the PROCESS privilege (or the view: MySQL 5.7, MariaDB) is missing."""

BY_CREATION = "time of creation"
CREATED_LIMIT = "a table replaced by one made in the same second: table ids need the PROCESS privilege of MySQL"
"""What is not seen where tables are distinguished by their time of creation."""


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


def value_sql(expression: str) -> str:
    """Return the SELECT of one expression without a table."""
    return f"SELECT {expression}"


def stamped(select: str, stamp: str) -> str:
    """Return a SELECT with the stamp of its table as one more column, in front."""
    return f"SELECT {stamp},{select.removeprefix('SELECT ')}"
