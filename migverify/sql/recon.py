"""Statements of rules: reads of canonical texts, lookups, aggregates, windows and cuts.

Nothing here knows of rules. A ``Selection`` names what follows FROM and the expressions of key and value texts
(``migverify.recon.relation.SqlRead`` is one); every function returns one SELECT, or a condition of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from migverify.errors import IncompleteReadError, ReadError
from migverify.model import ColumnDef, KeyText
from migverify.sql.canonical import FAMILIES
from migverify.sql.checksum import checksum_sum, framed, row_checksum
from migverify.sql.key_range import KeyColumn, keys_predicate
from migverify.sql.quoting import quote_bytes, quote_name, quote_path, quote_text
from migverify.sql.union_text import bytes_sql

HASH = "SHA2"
LARGEST = 65
"""Digits of the widest DECIMAL."""
GROUP_DIGITS = 12
"""A sum of this many digits of rows must fit the widest DECIMAL."""
_MOMENTS = frozenset({"date", "datetime", "timestamp"})


@dataclass(frozen=True, slots=True)
class Selection:
    """What is read from one endpoint: texts of keys and values; see ``migverify.recon.relation.SqlRead``.

    ``strings`` says per key column, then per value, whether its text may hold a comma. With ``grouped`` the values are
    aggregates over the rows of a key, and ``having`` is a condition on the groups. ``lost`` is not 0 for a row of which
    a text is longer than the server's max_allowed_packet; empty where none can be.
    """

    endpoint: str
    table: str
    key: tuple[str, ...]
    values: tuple[str, ...]
    where: str = ""
    grouped: bool = False
    having: str = ""
    strings: tuple[bool, ...] = ()
    lookup: tuple[KeyColumn, ...] = ()
    lost: str = ""


# --- what is read ----------------------------------------------------------------------------------------


def table_sql(database: str, table: str) -> str:
    """Return a table as it follows FROM."""
    return quote_path(database, table)


def query_sql(sql: str) -> str:
    """Return a query as it follows FROM."""
    return f"({sql.strip().rstrip(';')}) AS q"


def select_sql(table: str, columns: Sequence[tuple[str, str]], where: str = "") -> str:
    """Return the SELECT of (name, expression) columns; ``table`` follows FROM as it is."""
    listed = ", ".join(f"{expression} AS {quote_name(name)}" for name, expression in columns)
    return f"SELECT {listed} FROM {table}{where_sql(where)}"


def mapped_sql(table: str, columns: Sequence[tuple[str, str]], where: str = "") -> str:
    """Return a domain mapping as it follows FROM: each expression under its name."""
    return f"({select_sql(table, columns, where)}) AS m"


def describe_sql(table: str) -> str:
    """Return the statement whose result has the columns of ``table`` and no row."""
    return f"SELECT * FROM {table} LIMIT 0"


def first_rows_sql(table: str, limit: int) -> str:
    """Return the statement of at most ``limit`` rows of ``table``."""
    return f"SELECT * FROM {table} LIMIT {int(limit)}"


def probe_sql(table: str) -> str:
    """Return the cheapest statement that really reads a table."""
    return f"SELECT 1 FROM {table} LIMIT 1"


def both(*conditions: str) -> str:
    """Join conditions by AND; empty ones count for nothing."""
    given = [c for c in conditions if c]
    return given[0] if len(given) == 1 else " AND ".join(f"({c})" for c in given)


def where_sql(*conditions: str) -> str:
    """Return WHERE and conditions, joined by AND; empty for none."""
    text = both(*conditions)
    return f" WHERE {text}" if text else ""


def read_sql(read: Selection, condition: str = "", *, having: bool = True) -> str:
    """Return the statement of a read: key texts, value texts, ``COUNT(*)`` if grouped, lost texts if there can be any.

    ``condition``: Further condition on rows, such as that of a range or of keys. ``having``: Whether the read's
    condition on groups counts; not where single keys are read again.
    """
    parts = [*read.key, *read.values]
    if read.grouped:
        parts.append("COUNT(*)")
    if read.lost:
        parts.append(f"SUM({read.lost})" if read.grouped else f"({read.lost})")
    text = f"SELECT {', '.join(parts) or '1'} FROM {read.table}{where_sql(read.where, condition)}"
    if read.grouped:
        # By place, not by alias: a column of that name would be what is grouped by.
        if read.key:
            text += " GROUP BY " + ",".join(str(place + 1) for place in range(len(read.key)))
        if read.having and having:
            text += f" HAVING {read.having}"
    return text


def split_row(
    read: Selection, row: Sequence[bytes | None]
) -> tuple[tuple[bytes | None, ...], tuple[bytes | None, ...], int]:
    """Split a row of ``read_sql`` into key texts, value texts and how many rows it represents.

    Raises IncompleteReadError: a text of the row is longer than the server's max_allowed_packet.
    """
    keys, width = len(read.key), len(read.key) + len(read.values)
    if read.lost and row[-1] not in (b"0", None):
        raise IncompleteReadError(
            f"{read.endpoint}: a text of {read.table} is longer than max_allowed_packet, so it cannot be compared",
            hint="Raise max_allowed_packet on this server, or leave the column out of the rule.",
        )
    count = int(row[width] or 0) if read.grouped else 1
    return tuple(row[:keys]), tuple(row[keys:width]), count


# --- checksums -------------------------------------------------------------------------------------------


def row_frame(read: Selection) -> str:
    """Return the framed row, injective (see ``migverify.sql.checksum``); NULL for a row with a lost text."""
    return _frame((*read.key, *read.values), read.strings, read.lost)


def _frame(texts: Sequence[str], strings: Sequence[bool], lost: str) -> str:
    whole = framed((text, True, string) for text, string in zip(texts, strings, strict=True))
    return f"IF({lost},NULL,{whole})" if lost else whole


def signature_sql(read: Selection) -> str:
    """Return the statement of (rows or groups, sum of their checksums) of a read, in one scan.

    It shows whether rows came or changed since they were read. A condition on groups does not count: a group that
    agreed is part of what was read too.
    """
    chosen = _groups(read) if read.grouped else read
    total = checksum_sum(row_frame(chosen), HASH)
    return f"SELECT COUNT(*) AS n,{total} AS s FROM {chosen.table}{where_sql(chosen.where)}"


def _groups(read: Selection) -> Selection:
    """Return the rows of a grouped read as a selection of their own."""
    keys = tuple(f"k{n}" for n in range(len(read.key)))
    values = tuple(f"v{n}" for n in range(len(read.values)))
    listed = [f"{text} AS {name}" for text, name in zip((*read.key, *read.values), (*keys, *values), strict=True)]
    listed.append("COUNT(*) AS n")
    if read.lost:
        listed.append(f"SUM({read.lost}) AS l")
    by = " GROUP BY " + ",".join(str(n + 1) for n in range(len(keys))) if keys else ""
    table = f"(SELECT {','.join(listed)} FROM {read.table}{where_sql(read.where)}{by}) AS w"
    strings, lost = (*read.strings, False), "l" if read.lost else ""
    return Selection(read.endpoint, table, keys, (*values, "n"), strings=strings, lost=lost)


# --- keys ------------------------------------------------------------------------------------------------


def keys_condition(read: Selection, keys: Sequence[KeyText]) -> str:
    """Return the condition that selects rows by key, by an index where there is one; may select more, never fewer."""
    if not read.key:
        return ""
    return keys_predicate(read.lookup, keys)


def _exactly(text: str, value: str | None) -> str:
    if value is None:
        return f"{text} IS NULL"
    return f"{bytes_sql(text)}={quote_bytes(value.encode('utf-8', 'surrogateescape'))}"


def exact_keys_condition(columns: Sequence[KeyColumn], keys: Sequence[KeyText]) -> str:
    """Return the condition that selects exactly the rows of some keys, compared by their bytes."""
    listed = []
    for key in keys:
        parts = [_exactly(c.text, part) for c, part in zip(columns, key, strict=True)]
        listed.append("(" + " AND ".join(parts) + ")")
    if not listed:
        return "1=0"
    return both(keys_predicate(columns, keys), " OR ".join(listed))


def key_column(sql: str, column: ColumnDef, text: str, *, binary: bool) -> KeyColumn:
    """Return a key column for conditions: ``sql`` is the column or expression, ``text`` its canonical text."""
    family = FAMILIES[column.data_type]
    if binary and family != "binary":
        # Its text is hex, and no literal of hex equals the text itself.
        return KeyColumn(text, text, "text", True)
    if family == "binary":
        return KeyColumn(sql, sql, "binary", True)
    return KeyColumn(sql, text, family, True, column.charset or "utf8mb4", column.collation or "utf8mb4_bin")


# --- ranges and windows ----------------------------------------------------------------------------------


def edges_sql(table: str, name: str) -> str:
    """Return the statement of the least and greatest value of a column; two NULLs for no values."""
    return f"SELECT MIN({name}),MAX({name}) FROM {table}"


def window_condition(sql: str, column: ColumnDef, start: str, end: str) -> str:
    """Return the condition of a window on a time column: from ``start`` on, before ``end``, UTC texts.

    A row without a time is in no window; ``nulls_sql`` counts those.

    Raises ReadError: the column is no DATE, DATETIME or TIMESTAMP.
    """
    if column.data_type not in _MOMENTS:
        raise ReadError(f"{column.name} is {column.column_type}: windows need a DATE, DATETIME or TIMESTAMP in UTC")
    return f"{sql}>={quote_text(start)} AND {sql}<{quote_text(end)}"


def before_condition(sql: str, end: str) -> str:
    """Return the condition that a time lies before the end of a window."""
    return f"{sql}<{quote_text(end)}"


def counts_added_sql(statements: Sequence[str]) -> str:
    """Return the statement that adds up (rows, keys) of several."""
    if len(statements) == 1:
        return statements[0]
    parts = " UNION ALL ".join(f"SELECT * FROM ({text}) AS c{place}" for place, text in enumerate(statements))
    return f"SELECT SUM(a),SUM(b) FROM ({parts}) AS c"


def sum_of_counts_sql(statements: Sequence[str]) -> str:
    """Return the statement of the sum of several counts, each a SELECT of one number that is never NULL."""
    return "SELECT " + "+".join(f"({statement})" for statement in statements)


def nulls_sql(table: str, sql: str, where: str = "") -> str:
    """Return the statement that counts rows in which an expression is NULL."""
    return f"SELECT COUNT(*) FROM {table}{where_sql(where, f'{sql} IS NULL')}"


# --- aggregates ------------------------------------------------------------------------------------------


def exact_sum(sql: str, column: ColumnDef, scale: int) -> str:
    """Return the exact sum of a whole-number or decimal column, as a DECIMAL of ``scale`` digits behind the point.

    Raises ReadError: the column is no exact number, or a sum of 10**12 rows might not fit a DECIMAL(65).
    """
    if FAMILIES.get(column.data_type) not in ("integer", "decimal"):
        raise ReadError(
            f"{column.name} is {column.column_type}: only whole numbers and DECIMAL have an exact sum",
            hint="Map the column: CAST(... AS DECIMAL(p, s)).",
        )
    whole = (column.precision or 20) - (column.scale or 0)
    if whole + GROUP_DIGITS + scale > LARGEST:
        raise ReadError(
            f"{column.name} is {column.column_type}: its sum might not fit {LARGEST} digits",
            hint="Map the column: CAST(... AS DECIMAL(p, s)) with fewer digits.",
        )
    return f"CAST(SUM({sql}) AS DECIMAL({LARGEST},{scale}))"


def absolute(sql: str, column: ColumnDef) -> str:
    """Return the absolute value of a whole-number or decimal column; NULL stays NULL."""
    # ABS of the least BIGINT is an error: it has no positive counterpart of its type.
    return f"ABS(CAST({sql} AS DECIMAL(20,0)))" if FAMILIES.get(column.data_type) == "integer" else f"ABS({sql})"


def rows_checksum(texts: Sequence[str], strings: Sequence[bool], lost: str = "") -> tuple[str, str]:
    """Return the checksum of some columns over the rows of a group, and the condition that a row has none."""
    hashed = row_checksum(_frame(texts, strings, lost), HASH)
    return f"SUM(CAST(CONV({hashed},16,10) AS UNSIGNED))", f"{hashed} IS NULL"


def groups_counted_sql(table: str, key: Sequence[str], where: str = "") -> str:
    """Return the statement of (rows, groups) of what is grouped by ``key`` texts."""
    if not key:
        return f"SELECT COUNT(*),1 FROM {table}{where_sql(where)}"
    keys = ",".join(f"{text} AS k{place}" for place, text in enumerate(key))
    places = ",".join(str(place + 1) for place in range(len(key)))
    inner = f"SELECT {keys},COUNT(*) AS n FROM {table}{where_sql(where)} GROUP BY {places}"
    return f"SELECT SUM(n),COUNT(*) FROM ({inner}) AS g"


def least(text: str, *, greatest: bool = False) -> str:
    """Return the least or greatest of an expression over a group."""
    return f"{'MAX' if greatest else 'MIN'}({text})"


def counted(text: str = "*") -> str:
    """Return how many rows of a group have a value."""
    return f"COUNT({text})"


def one_value(sql: str, text: str) -> str:
    """Return ``text``, made of ``MIN(sql)``, where all rows of a group have that one value; else NULL."""
    return f"IF(COUNT({sql})=COUNT(*) AND MIN({sql})<=>MAX({sql}),{text},NULL)"


def not_zero(total: str) -> str:
    """Return the condition that a sum is not zero, or is unknown."""
    return f"{total}<>0 OR {total} IS NULL"


def more_than_one() -> str:
    """Return the condition that a group has several rows."""
    return "COUNT(*)>1"


def all_not_null(texts: Sequence[str]) -> str:
    """Return the condition that no expression is NULL."""
    return " AND ".join(f"{text} IS NOT NULL" for text in texts)


def rows_counted_sql(table: str, where: str = "") -> str:
    """Return the statement of (rows, rows): where each row counts as a key."""
    return f"SELECT COUNT(*) AS a,COUNT(*) AS b FROM {table}{where_sql(where)}"
