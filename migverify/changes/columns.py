"""One column of a row image: how many bytes its value takes, and how they become the text of SELECT."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from migverify.changes.carriers.column_text import double_text, float_text
from migverify.changes.charsets import text_decoder
from migverify.changes.column_types import Type
from migverify.changes.json_text import json_text
from migverify.changes.model import ColumnMap
from migverify.changes.numbers import decimal_bytes, decimal_reader
from migverify.changes.temporal import (
    date_text,
    datetime2_reader,
    fraction_bytes,
    old_datetime_text,
    old_time_text,
    time2_reader,
    timestamp2_reader,
    year_text,
)
from migverify.errors import ChangeError
from migverify.model import Flavor

MOST_SETS = 10_000
_INTEGERS = {Type.TINY: "b", Type.SHORT: "h", Type.LONG: "i", Type.LONGLONG: "q"}
_SIZES = {Type.TINY: 1, Type.SHORT: 2, Type.INT24: 3, Type.LONG: 4, Type.LONGLONG: 8}
_BLOBS = (Type.BLOB,)
_LENGTHS = {1: "b[at]", 2: "b[at] | b[at + 1] << 8", 3: "b[at] | b[at + 1] << 8 | b[at + 2] << 16",
            4: "b[at] | b[at + 1] << 8 | b[at + 2] << 16 | b[at + 3] << 24"}  # fmt: skip

Reader = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Column:
    """How to read one column.

    ``size`` is that of a fixed-size value and ``layout`` its ``struct`` code; else ``length_bytes`` stand before it.
    ``form`` is an expression of the text where ``{0}`` is the raw value and ``{1}`` the name of ``reader``.
    """

    wanted: bool
    size: int | None = None
    layout: str = ""
    length_bytes: int = 0
    form: str = "{1}({0})"
    reader: Reader | None = None

    @property
    def length_code(self) -> str:
        """The expression that reads the length at ``at``."""
        return _LENGTHS[self.length_bytes]

    def text_code(self, value: str, reader: str) -> str:
        """Return the expression of the text."""
        return self.form.format(value, reader)


def column_of(column: ColumnMap, where: str, *, wanted: bool) -> Column:
    """Return how a column is read; one that is not wanted needs its size only.

    Raises
    ------
    ChangeError
        the type is not known (its size is not either), or its text cannot be made exactly.
    """
    fixed = _fixed(column, where)
    if fixed is not None:
        size, layout, form, make = fixed
        return Column(wanted, size, layout, form=form, reader=make() if wanted and make else None)
    length_bytes = _length_bytes(column, where)
    form, reader = _variable(column, where) if wanted else ("", None)
    return Column(wanted, None, length_bytes=length_bytes, form=form, reader=reader)


_Fixed = tuple[int, str, str, "Callable[[], Reader] | None"]


def _fixed(column: ColumnMap, where: str) -> _Fixed | None:
    kind, meta = column.type_code, column.meta
    if kind in _INTEGERS:
        code = _INTEGERS[Type(kind)]
        return _SIZES[Type(kind)], code.upper() if column.unsigned else code, "str({0})", None
    if kind == Type.INT24:
        signed = "False" if column.unsigned else "True"
        return 3, "3s", f"str(int.from_bytes({{0}}, 'little', signed={signed}))", None
    if kind == Type.NEWDECIMAL:
        size = decimal_bytes(meta >> 8, meta & 0xFF)
        return _bytes(size, lambda: decimal_reader(meta >> 8, meta & 0xFF))
    if kind == Type.FLOAT:
        return 4, "f", "{1}({0})", lambda: lambda v: float_text(v, Flavor.MYSQL)
    if kind == Type.DOUBLE:
        return 8, "d", "{1}({0})", lambda: lambda v: double_text(v, Flavor.MYSQL)
    if kind == Type.YEAR:
        return 1, "B", "{1}({0})", lambda: year_text
    if kind in (Type.ENUM, Type.SET):
        return _labels(column, where)
    if kind == Type.BIT:
        return _bytes((meta >> 8) + bool(meta & 0xFF), lambda: _hex)
    return _moment(kind, meta)


def _bytes(size: int, make: Callable[[], Reader]) -> _Fixed:
    return size, f"{size}s", "{1}({0})", make


def _moment(kind: int, meta: int) -> _Fixed | None:
    if kind in (Type.DATE, Type.NEWDATE):
        return _bytes(3, lambda: date_text)
    if kind == Type.DATETIME:
        return _bytes(5 + fraction_bytes(meta), lambda: datetime2_reader(meta))
    if kind == Type.TIMESTAMP:
        return _bytes(4 + fraction_bytes(meta), lambda: timestamp2_reader(meta))
    if kind == Type.TIME:
        return _bytes(3 + fraction_bytes(meta), lambda: time2_reader(meta))
    if kind == Type.TIMESTAMP_OLD:
        whole = timestamp2_reader(0)
        return _bytes(4, lambda: lambda v: whole(v[::-1]))  # the old form is little-endian
    if kind == Type.TIME_OLD:
        return _bytes(3, lambda: old_time_text)
    if kind == Type.DATETIME_OLD:
        return 8, "Q", "{1}({0})", lambda: old_datetime_text
    return None


def _labels(column: ColumnMap, where: str) -> _Fixed:
    size, labels = column.meta, column.labels
    if column.type_code == Type.ENUM:
        texts = ("", *labels)  # number 0 is the value that no label fitted
        return size, {1: "B", 2: "H"}[size], "{1}[{0}]", lambda: texts  # type: ignore[return-value]
    known: dict[int, str] = {}

    def read(data: bytes) -> str:
        mask = int.from_bytes(data, "little")
        text = known.get(mask)
        if text is None:
            if mask >> len(labels):
                raise ValueError(f"{where}: a SET holds a member that the table map does not name")
            if len(known) > MOST_SETS:
                known.clear()
            text = known[mask] = ",".join(label for n, label in enumerate(labels) if mask >> n & 1)
        return text

    return _bytes(size, lambda: read)


def _hex(data: bytes) -> str:
    return "0x" + data.hex()


def _length_bytes(column: ColumnMap, where: str) -> int:
    kind, meta = column.type_code, column.meta
    if kind in (Type.VARCHAR, Type.VAR_STRING, Type.STRING):
        return 2 if meta > 0xFF else 1
    if kind in _BLOBS or kind in (Type.JSON, Type.GEOMETRY, Type.VECTOR):
        if not 1 <= meta <= 4:
            raise ChangeError(f"{where}: a length of {meta} bytes is not known.")
        return meta
    raise ChangeError(
        f"{where}: type {kind} is not known to this version, so no column behind it can be read.",
        hint="Leave the table out of the stream, and verify it in full.",
    )


def _variable(column: ColumnMap, where: str) -> tuple[str, Reader | None]:
    kind = column.type_code
    if kind == Type.JSON:
        return "{1}({0})", json_text
    if kind in (Type.GEOMETRY, Type.VECTOR):
        return "'0x' + {0}.hex()", None
    if column.charset == "binary":
        if kind == Type.STRING:
            # The binlog leaves out the zeros that pad a BINARY(n).
            return f"'0x' + {{0}}.ljust({column.meta}, b'\\0').hex()", None
        return "'0x' + {0}.hex()", None
    if column.charset in ("utf8mb4", "utf8mb3", "utf8"):
        return "str({0}, 'utf-8')", None
    decode = text_decoder(column.charset)
    if decode is None:
        raise ChangeError(f"{where}: its character set {column.charset} cannot be read exactly.",
                          hint="Leave the column or the table out, and verify it in full.")  # fmt: skip
    return "{1}({0})", decode
