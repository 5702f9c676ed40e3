"""The types of a binlog's columns: numbers, bytes of metadata, and which of them are numbers or text."""

from __future__ import annotations

from enum import IntEnum

SETTINGS_HINT = (
    "Set binlog_row_metadata=FULL on the source (SET GLOBAL, no restart) and begin after that moment: "
    "events written before it cannot be read exactly."
)


class Type(IntEnum):
    """The protocol's type numbers that a table map can hold; those of 140 and 141 are MariaDB's."""

    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    TIMESTAMP_OLD = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME_OLD = 11
    DATETIME_OLD = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP = 17
    DATETIME = 18
    TIME = 19
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    VECTOR = 242
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


META_BYTES: dict[int, int] = {
    **dict.fromkeys((1, 2, 3, 7, 8, 9, 10, 11, 12, 13, 14), 0),
    **dict.fromkeys((4, 5, 17, 18, 19, 140, 242, 245, 252, 255), 1),
    **dict.fromkeys((15, 16, 141, 246, 253, 254), 2),
}
"""Type -> bytes of metadata in the table map. ENUM and SET come as STRING. What is missing here is not known."""

_INTEGERS = frozenset({Type.TINY, Type.SHORT, Type.INT24, Type.LONG, Type.LONGLONG})
NUMERIC_TYPES: frozenset[int] = frozenset(_INTEGERS | {Type.FLOAT, Type.DOUBLE, Type.NEWDECIMAL, Type.YEAR})
"""Types that have a bit in the SIGNEDNESS field; that of a YEAR is always set."""
_TEXTS = frozenset({Type.VARCHAR, Type.VAR_STRING, Type.STRING, Type.BLOB})
CHARACTER_TYPES: frozenset[int] = _TEXTS | {Type.VECTOR}
"""Types that have a collation in the CHARSET fields: a VECTOR too, always that of binary; a MySQL GEOMETRY has none."""
CHARACTER_TYPES_MARIADB: frozenset[int] = _TEXTS | {
    Type.GEOMETRY, Type.VARCHAR_COMPRESSED, Type.BLOB_COMPRESSED
}  # fmt: skip
