"""The nouns of the reverse feed: tables of TiDB, changes with the commit timestamp of their transaction, messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from migverify.changes.model import ColumnMap, TableMap, Texts
from migverify_lab.replicator_plan import TargetTable, target_table

Members: TypeAlias = tuple[str, ...]

CODES = {
    "tinyint": 1, "smallint": 2, "int": 3, "float": 4, "double": 5, "timestamp": 7, "bigint": 8, "mediumint": 9,
    "date": 10, "time": 11, "datetime": 12, "year": 13, "varchar": 15, "varbinary": 15, "bit": 16, "json": 245,
    "decimal": 246, "enum": 247, "set": 248, "tinytext": 249, "tinyblob": 249, "mediumtext": 250, "mediumblob": 250,
    "longtext": 251, "longblob": 251, "text": 252, "blob": 252, "char": 254, "binary": 254,
}  # fmt: skip
"""Type numbers of the client protocol; the open protocol uses the same."""
BINARIES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
STRINGS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})


@dataclass(frozen=True, slots=True)
class FeedColumn:
    """One column as ``information_schema.COLUMNS`` describes it; ``type`` is its COLUMN_TYPE, ``base`` its DATA_TYPE.

    ``in_key``: part of the key by which TiCDC identifies rows.
    """

    name: str
    base: str
    type: str
    nullable: bool = True
    charset: str = ""
    in_key: bool = False
    primary: bool = False
    generated: bool = False

    @property
    def unsigned(self) -> bool:
        """Whether the values are not negative by definition."""
        return "unsigned" in self.type.lower()

    @property
    def binary(self) -> bool:
        """Whether the values are byte strings; their texts are ``0x`` and hex digits."""
        return self.base in BINARIES

    @property
    def members(self) -> Members:
        """The labels of an ENUM or SET."""
        return _members(self.type)

    @property
    def map(self) -> ColumnMap:
        """The column as change streams describe it."""
        charset = "binary" if self.binary else self.charset
        return ColumnMap(self.name, CODES[self.base], 0, self.unsigned, self.nullable, charset)


@lru_cache(maxsize=1024)
def _members(kind: str) -> Members:
    return tuple(text.replace("''", "'") for text in re.findall(r"'((?:[^']|'')*)'", kind))


@dataclass(frozen=True, slots=True)
class FeedTable:
    """A table of TiDB, without its virtual columns. ``key`` are the places of the key's columns."""

    database: str
    table: str
    columns: tuple[FeedColumn, ...]
    key: tuple[int, ...]
    rows: TargetTable

    @classmethod
    def of(cls, database: str, table: str, columns: Sequence[FeedColumn]) -> FeedTable:
        """Return a table by its columns, those of the key marked ``in_key``."""
        key = tuple(place for place, column in enumerate(columns) if column.in_key)
        layout = TableMap(database, table, tuple(column.map for column in columns), key)
        names = [columns[place].name for place in key]
        rows = target_table(layout, names, [column.name for column in columns if column.generated])
        return cls(database, table, tuple(columns), key, rows)

    @property
    def name(self) -> str:
        """``database.table``."""
        return f"{self.database}.{self.table}"

    @property
    def types(self) -> dict[str, str]:
        """Column -> COLUMN_TYPE: what readers of a carrier must be given where its messages leave types open."""
        return {column.name: column.type for column in self.columns}

    def key_of(self, row: Texts) -> Texts:
        """Return the texts of a row's key."""
        return tuple(row[place] for place in self.key)


@dataclass(frozen=True, slots=True)
class RowEvent:
    """One row that a transaction changed: its images before and after, None for an insert or a delete."""

    table: FeedTable
    commit: int
    before: Texts | None
    after: Texts | None

    @property
    def key(self) -> Texts:
        """The row's key: the old one of a row that is gone."""
        return self.table.key_of(self.after or self.before or ())


@dataclass(frozen=True, slots=True)
class DdlEvent:
    """A DDL or TRUNCATE that was run; ``kind`` is its number in the open protocol."""

    database: str
    table: str
    sql: str
    commit: int
    kind: int


Event: TypeAlias = RowEvent | DdlEvent


@dataclass(frozen=True, slots=True)
class EncodedMessage:
    """One message as bytes; a format without keys gives None."""

    key: bytes | None
    value: bytes | None
