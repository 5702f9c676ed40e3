"""Statements that make a target row what the source row is, and back.

Every statement names one row by its key and compares before it sets: an UPDATE or DELETE also asks for the row
checksum that was read, an INSERT for the absence of the key. So a row that changed since is left alone, and a
statement that ran already finds nothing to do. Statements hold no line break and no backslash; they mean the same to
the ``mysql`` client, under every ``sql_mode`` and over every connection character set.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from migverify.errors import RepairError
from migverify.model import ColumnDef, ColumnPair, Flavor, KeyText, Side
from migverify.sql.canonical import FAMILIES, pair_column
from migverify.sql.checksum import SideSql, frame, row_checksum
from migverify.sql.key_range import key_predicate, plain_literal
from migverify.sql.quoting import quote_bytes, quote_name, quote_text

SQL_MODE = "STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO"
"""Strict, so that nothing is cut to fit; zero, partial and invalid dates and a 0 in AUTO_INCREMENT stay values."""

BEGIN, COMMIT = "BEGIN", "COMMIT"
_FLOAT = re.compile(rb"-?\d+(\.\d+)?([eE][+-]?\d+)?\Z")

Value = tuple[ColumnDef, bytes | None]
"""A target column and the canonical text it holds or shall hold; None is NULL."""


def session_sql(flavor: Flavor) -> list[str]:
    """Return the statements that a session needs before it runs a repair, in order.

    Foreign keys are not checked: each row becomes what the source's row is, in any order of rows and tables, and no
    cascade changes a row that the inverse does not know.
    """
    statements = [
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
        f"SET SESSION time_zone='+00:00', SESSION sql_mode='{SQL_MODE}', SESSION foreign_key_checks=0",
    ]
    if flavor is Flavor.TIDB:
        # An optimistic transaction finds out at COMMIT only that a row was changed meanwhile.
        statements.append("SET SESSION tidb_txn_mode='pessimistic', SESSION allow_auto_random_explicit_insert=1")
    return statements


# --- values --------------------------------------------------------------------------------------------------


def literal(column: ColumnDef, text: bytes | None) -> str:
    """Return the expression that writes a canonical text into a target column; ``NULL`` for None.

    Parameters
    ----------
    column
        The target column; its type decides how the text is spelled.
    text
        Canonical text as the server sent it (``migverify.sql.canonical``): UTF-8, raw bytes for binary columns.

    Raises
    ------
    RepairError
        the text is not one that a column of this type can be given.
    """
    if text is None:
        return "NULL"
    family = FAMILIES.get(column.data_type)
    if (plain := plain_literal(family, text.decode("latin-1"))) is not None:
        return plain
    if family == "float" and _FLOAT.match(text):
        number = text.decode("ascii")
        # With an exponent the literal is a double; without one it would be a DECIMAL first.
        return number if "e" in number.lower() else f"{number}e0"
    if family == "binary":
        return quote_bytes(text)
    if family in ("text", "label", "labels"):
        if family == "label" and not text and "" not in column.members:
            raise RepairError(f"column {column.name}: the error value of an ENUM (index 0) cannot be written")
        return _quoted(column, text)
    if family == "json":
        return f"CAST({_quoted(column, text)} AS JSON)"
    raise RepairError(f"column {column.name}: the value cannot be written as {column.column_type}")


def _quoted(column: ColumnDef, text: bytes) -> str:
    try:
        return quote_text(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RepairError(f"column {column.name}: the value is not valid UTF-8") from error


def other_checksums(columns: Sequence[ColumnPair], hash_name: str) -> tuple[str, ...]:
    """Return the checksum expressions of columns that take no part in the comparison; none without columns."""
    lanes = dict.fromkeys(column.lane for column in columns)
    return tuple(row_checksum(frame(columns, Side.TARGET, lane), hash_name) for lane in lanes)


# --- conditions ----------------------------------------------------------------------------------------------


def checksum_guard(side: SideSql, exact: str, value: str | None = None, *, wide: bool = False) -> str:
    """Return the condition that the row has these row checksums (15 hex digits each).

    ``value`` None leaves the VALUE lane out. ``wide`` says that ``exact`` is of the wide frame.
    """
    parts = [f"{row_checksum(side.wide if wide else side.exact, side.hash)} = '{_hex(exact)}'"]
    if value is not None and side.value is not None:
        parts.append(f"{row_checksum(side.value, side.hash)} = '{_hex(value)}'")
    return " AND ".join(parts)


def other_guard(expressions: Sequence[str], checksums: Sequence[str]) -> str:
    """Return the condition that columns outside of the comparison are what was read; empty without any."""
    return " AND ".join(f"{e} = '{_hex(c)}'" for e, c in zip(expressions, checksums, strict=True))


def written_guard(values: Sequence[Value]) -> str:
    """Return the condition that VALUE-lane columns hold what was written; empty without any.

    Their checksum after a write is not known beforehand: the target chooses the spelling (order of JSON keys). So the
    target gives its spelling of the value.
    """
    parts = []
    for column, text in values:
        name = quote_name(column.name)
        written = literal(column, text)
        if column.data_type == "json" and text is not None:
            parts.append(f"CAST({name} AS CHAR) <=> CAST({written} AS CHAR)")
        elif FAMILIES.get(column.data_type) == "float":
            parts.append(f"({name}+0e0) <=> {written}")
        elif column.data_type == "set" and text is not None:
            labels = set(text.decode("utf-8").split(","))
            ordered = ",".join(label for label in column.members if label in labels)
            parts.append(f"CAST({name} AS CHAR) <=> {quote_text(ordered)}")
        else:
            parts.append(f"{name} <=> {written}")
    return " AND ".join(parts)


def _hex(checksum: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{15}", checksum):
        raise RepairError(f"{checksum!r} is not a row checksum")
    return checksum


# --- statements ----------------------------------------------------------------------------------------------


def insert_sql(side: SideSql, key: KeyText, values: Sequence[Value]) -> str:
    """Return the INSERT of a row whose key is absent; a key that is there, under the column's collation, stops it."""
    names = ", ".join(quote_name(column.name) for column, _ in values)
    written = ", ".join(literal(column, text) for column, text in values)
    absent = f"NOT EXISTS (SELECT 1 FROM {side.table} WHERE {key_predicate(side.key, key)})"
    return f"INSERT INTO {side.table} ({names}) SELECT {written} FROM DUAL WHERE {absent}"


def update_sql(side: SideSql, key: KeyText, guards: Sequence[str], values: Sequence[Value], kept: Sequence[str]) -> str:
    """Return the UPDATE of a row that still fits ``guards``.

    ``kept`` are columns set to themselves: ``ON UPDATE CURRENT_TIMESTAMP`` changes a column that is not set.
    """
    parts = [f"{quote_name(column.name)} = {literal(column, text)}" for column, text in values]
    parts += [f"{quote_name(name)} = {quote_name(name)}" for name in kept]
    return f"UPDATE {side.table} SET {', '.join(parts)} WHERE {_where(side, key, guards)}"


def delete_sql(side: SideSql, key: KeyText, guards: Sequence[str]) -> str:
    """Return the DELETE of a row that still fits ``guards``."""
    return f"DELETE FROM {side.table} WHERE {_where(side, key, guards)}"


def _where(side: SideSql, key: KeyText, guards: Sequence[str]) -> str:
    return " AND ".join([key_predicate(side.key, key), *(guard for guard in guards if guard)])


# --- questions about the target ------------------------------------------------------------------------------


def foreign_keys_sql(database: str, table: str) -> str:
    """Return the statement that lists foreign keys of and to a table: name, table."""
    where, name = quote_text(database), quote_text(table)
    return ("SELECT CONSTRAINT_NAME, TABLE_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE "
            f"(CONSTRAINT_SCHEMA = {where} AND TABLE_NAME = {name}) OR "
            f"(UNIQUE_CONSTRAINT_SCHEMA = {where} AND REFERENCED_TABLE_NAME = {name})")  # fmt: skip


def triggers_sql(database: str, table: str) -> str:
    """Return the statement that lists the triggers of a table: name, BEFORE or AFTER, event."""
    return ("SELECT TRIGGER_NAME, ACTION_TIMING, EVENT_MANIPULATION FROM information_schema.TRIGGERS WHERE "
            f"EVENT_OBJECT_SCHEMA = {quote_text(database)} AND EVENT_OBJECT_TABLE = {quote_text(table)}")  # fmt: skip


def restorable(columns: Sequence[ColumnDef]) -> tuple[list[ColumnPair], list[str]]:
    """Split columns into those whose text can be read and written back, and the names of the others."""
    pairs = {column.name: pair_column(column, column) for column in columns}
    joined = [pair for pair in pairs.values() if isinstance(pair, ColumnPair)]
    return joined, [name for name, pair in pairs.items() if not isinstance(pair, ColumnPair)]
