"""What the fault planter knows of a table: columns, key, and how a value travels between server and Python exactly.

It reads the catalog and the values by itself and shares nothing with the comparison, which is what the faults are
there to put to the test.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING

from migverify.errors import LabError
from migverify.sql.quoting import quote_name

if TYPE_CHECKING:
    from pymysql.connections import Connection

Value = int | float | Decimal | str | bytes | None
"""A column's value in Python: never rounded. Dates and times are the server's text; zero dates have no Python type."""


class Family(StrEnum):
    """Types whose values are handled alike."""

    INT = "int"
    DECIMAL = "decimal"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"
    DATE = "date"
    DATETIME = "datetime"
    TIME = "time"
    YEAR = "year"
    BIT = "bit"
    ENUM = "enum"
    SET = "set"
    JSON = "json"


_FAMILIES: dict[str, Family] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), Family.INT),
    **dict.fromkeys(("decimal", "numeric"), Family.DECIMAL),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), Family.STRING),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), Family.BYTES),
    **dict.fromkeys(("datetime", "timestamp"), Family.DATETIME),
    **{name.value: name for name in (Family.FLOAT, Family.DOUBLE, Family.DATE, Family.TIME, Family.YEAR)},
    **{name.value: name for name in (Family.BIT, Family.ENUM, Family.SET, Family.JSON)},
}

INT_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """One column of the table a fault goes into.

    ``length`` is characters of a string, bytes of a binary string, or bits of a BIT column; ``scale`` digits after
    the point, ``fsp`` digits of a second's fraction; ``members`` the labels of ENUM or SET.
    """

    name: str
    position: int
    data_type: str
    column_type: str
    family: Family
    nullable: bool
    unsigned: bool = False
    length: int = 0
    precision: int = 0
    scale: int = 0
    fsp: int = 0
    charset: str = ""
    members: tuple[str, ...] = ()
    generated: bool = False
    in_key: bool = False

    @property
    def quoted(self) -> str:
        """The name in backticks."""
        return quote_name(self.name)

    @property
    def read_sql(self) -> str:
        """The expression that brings the value over exactly; ``parse`` undoes it."""
        name = self.quoted
        if self.family in {Family.STRING, Family.ENUM, Family.SET}:
            return f"HEX(CONVERT({name} USING utf8mb4))"
        if self.family is Family.JSON:
            return f"HEX(CONVERT(CAST({name} AS CHAR) USING utf8mb4))"
        if self.family is Family.BYTES:
            return f"HEX({name})"
        if self.family is Family.BIT:
            return f"CONCAT({name} + 0)"
        if self.family in {Family.FLOAT, Family.DOUBLE}:
            return f"{name} + 0e0"  # the text of a FLOAT has six digits, that of a DOUBLE all it needs
        return f"CONCAT({name})"

    def parse(self, raw: object) -> Value:
        """Turn what ``read_sql`` gave into a value."""
        if raw is None:
            return None
        if self.family in {Family.FLOAT, Family.DOUBLE}:
            return float(str(raw))
        text = raw.decode("ascii") if isinstance(raw, bytes) else str(raw)
        if self.family in {Family.STRING, Family.ENUM, Family.SET, Family.JSON}:
            return bytes.fromhex(text).decode("utf-8")
        if self.family is Family.BYTES:
            return bytes.fromhex(text)
        if self.family in {Family.INT, Family.BIT, Family.YEAR}:
            return int(text)
        return Decimal(text) if self.family is Family.DECIMAL else text

    def literal(self, value: Value) -> str:
        """Return the SQL literal of a value of this column."""
        if value is None:
            return "NULL"
        if isinstance(value, bytes):
            return f"x'{value.hex()}'"
        if isinstance(value, float):
            return f"{value:.17e}"
        if isinstance(value, Decimal):
            return f"{value:f}"
        if isinstance(value, int):
            return str(value)
        if self.family in {Family.DATE, Family.DATETIME, Family.TIME}:
            return f"'{value}'"
        return f"_utf8mb4 x'{value.encode().hex()}'" if value else "_utf8mb4 ''"

    def stored(self, value: Value) -> Value:
        """Return the value as the column will give it back: BINARY is padded, CHAR loses trailing spaces."""
        if self.data_type == "binary" and isinstance(value, bytes):
            return value.ljust(self.length, b"\0")
        if self.data_type == "char" and isinstance(value, str):
            return value.rstrip(" ")
        return value


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The table a fault goes into. ``key`` is empty where no unique key without NULLs exists."""

    database: str
    name: str
    columns: tuple[ColumnFacts, ...]
    key: tuple[ColumnFacts, ...]

    @property
    def quoted(self) -> str:
        """Database and table in backticks."""
        return f"{quote_name(self.database)}.{quote_name(self.name)}"

    @property
    def writable(self) -> tuple[ColumnFacts, ...]:
        """Columns that are not generated."""
        return tuple(column for column in self.columns if not column.generated)

    @property
    def plain(self) -> tuple[ColumnFacts, ...]:
        """Columns that are neither generated nor part of the key."""
        return tuple(column for column in self.writable if not column.in_key)


def show(value: Value) -> str | None:
    """Return a value as people read it: bytes as lower-case hex after ``0x``, NULL as None."""
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, Decimal):
        return f"{value:f}"
    return None if value is None else repr(value) if isinstance(value, float) else str(value)


def read_table(connection: Connection, database: str, table: str) -> TableFacts:
    """Read the definition of a table from the server.

    Raises
    ------
    LabError
        When there is no such table, or it has a column of a type the planter does not know.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT COLUMN_NAME, ORDINAL_POSITION, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, CHARACTER_MAXIMUM_LENGTH,"
            " NUMERIC_PRECISION, NUMERIC_SCALE, DATETIME_PRECISION, CHARACTER_SET_NAME, GENERATION_EXPRESSION"
            " FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
            (database, table),
        )
        rows = cursor.fetchall()
        if not rows:
            raise LabError(f"the target has no table {database}.{table}", hint="Load it with `migverify lab load`.")
        key = unique_key(connection, database, table)
    columns = tuple(_column(row, key) for row in rows)
    by_name = {column.name: column for column in columns}
    return TableFacts(database, table, columns, tuple(by_name[name] for name in key))


def _column(row: tuple[object, ...], key: tuple[str, ...]) -> ColumnFacts:
    name, position, data_type, column_type, nullable, length, precision, scale, fsp, charset, generation = row
    kind = str(data_type).lower()
    if kind not in _FAMILIES:
        raise LabError(f"column {name} is a {kind}: faults do not know this type", hint="Use another table.")
    full = str(column_type)
    family = _FAMILIES[kind]
    members = re.findall(r"'((?:[^']|'')*)'", full) if family in {Family.ENUM, Family.SET} else []
    size = precision if family is Family.BIT else length
    return ColumnFacts(
        name=str(name),
        position=_number(position),
        data_type=kind,
        column_type=full,
        family=family,
        nullable=str(nullable) == "YES",
        unsigned="unsigned" in full.lower(),
        length=_number(size),
        precision=_number(precision),
        scale=_number(scale),
        fsp=_number(fsp),
        charset=str(charset or ""),
        members=tuple(member.replace("''", "'") for member in members),
        generated=bool(generation),
        in_key=name in key,
    )


def _number(value: object) -> int:
    return 0 if value is None else int(str(value))


def unique_key(connection: Connection, database: str, table: str) -> tuple[str, ...]:
    """Return the columns of the primary key, else of a unique key without NULLs, prefixes and expressions."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT INDEX_NAME, COLUMN_NAME, NULLABLE, SUB_PART FROM information_schema.STATISTICS"
            " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0 ORDER BY INDEX_NAME, SEQ_IN_INDEX",
            (database, table),
        )
        found: dict[str, list[tuple[str | None, bool]]] = {}
        for index, column, nullable, prefix in cursor.fetchall():
            usable = column is not None and nullable != "YES" and prefix is None
            found.setdefault(str(index), []).append((column, usable))
    for index in sorted(found, key=lambda name: (name != "PRIMARY", name)):
        parts = found[index]
        if all(usable for _, usable in parts):
            return tuple(str(column) for column, _ in parts)
    return ()
