"""One column of a row image: how many bytes its value takes, and how they become the text of SELECT."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from migverify.changes.charsets import text_decoder
from migverify.changes.column_types import Type
from migverify.changes.json_text import json_text
from migverify.changes.model import ColumnMap
from migverify.changes.numbers import decimal_bytes, decimal_reader, double_text, float_text
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

MOST_SETS = 10_000
MOST_FRACTION = 6
_INTEGERS = {Type.TINY: "b", Type.SHORT: "h", Type.LONG: "i", Type.LONGLONG: "q"}

Reader = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Column:
    """How to read one column.

    ``size`` is that of a fixed-size value, ``layout`` its ``struct`` code and ``order`` its byte order, empty where it
    has none; else ``length_bytes`` stand before it. ``form`` is an expression of the text where ``{0}`` is the raw
    value and ``{1}`` the name of ``reader``.
    """

    wanted: bool
    size: int | None = None
    layout: str = ""
    order: str = ""
    length_bytes: int = 0
    form: str = "{1}({0})"
    reader: Reader | None = None

    def text_code(self, value: str, reader: str) -> str:
        """Return the expression of the text."""
        return self.form.format(value, reader)


@dataclass(frozen=True, slots=True)
class _Fixed:
    size: int
    layout: str
    order: str
    make: Callable[[], Reader] | None = None
    form: str = "{1}({0})"


def column_of(column: ColumnMap, where: str, *, wanted: bool, exact: bool = False) -> Column:
    """Return how a column is read; one that is not wanted needs its size only.

    Raises
    ------
    ChangeError
        the type is not known (its size is not either), or its text cannot be made exactly.
    """
    fixed = _fixed(column, where, exact)
    if fixed is not None:
        reader = fixed.make() if wanted and fixed.make else None
        return Column(wanted, fixed.size, fixed.layout, fixed.order, form=fixed.form, reader=reader)
    length_bytes = _length_bytes(column, where)
    form, reader = _variable(column, where) if wanted else ("", None)
    return Column(wanted, None, length_bytes=length_bytes, form=form, reader=reader)


def _fixed(column: ColumnMap, where: str, exact: bool) -> _Fixed | None:
    kind, meta = column.type_code, column.meta
    if kind in _INTEGERS:
        code = _INTEGERS[Type(kind)]
        size = struct.calcsize("<" + code)
        return _Fixed(size, code.upper() if column.unsigned else code, "<" if size > 1 else "", None, "str({0})")
    if kind == Type.INT24:
        form = f"str(int.from_bytes({{0}}, 'little', signed={not column.unsigned}))"
        return _Fixed(3, "3s", "", None, form)
    if kind == Type.NEWDECIMAL:
        return _bytes(decimal_bytes(meta >> 8, meta & 0xFF), lambda: decimal_reader(meta >> 8, meta & 0xFF))
    if kind in (Type.FLOAT, Type.DOUBLE):
        if meta != (4 if kind == Type.FLOAT else 8):
            raise ChangeError(f"{where}: a floating-point number of {meta} bytes is not known.")
        if kind == Type.FLOAT:
            return _Fixed(4, "f", "<", lambda: double_text if exact else float_text)
        return _Fixed(8, "d", "<", lambda: double_text)
    if kind == Type.YEAR:
        return _Fixed(1, "B", "", lambda: year_text)
    if kind in (Type.ENUM, Type.SET):
        return _labels(column, where)
    if kind == Type.BIT:
        return _Fixed(*_raw((meta >> 8) + bool(meta & 0xFF)), None, "str(int.from_bytes({0}, 'big'))")
    return _moment(kind, meta, where)


def _raw(size: int) -> tuple[int, str, str]:
    return size, f"{size}s", ""


def _bytes(size: int, make: Callable[[], Reader]) -> _Fixed:
    return _Fixed(*_raw(size), make)


def _number(size: int, make: Callable[[], Reader]) -> _Fixed:
    """Return a big-endian number: ``struct`` knows those of 4 and 8 bytes only."""
    if size in (4, 8):
        return _Fixed(size, "I" if size == 4 else "Q", ">", make)
    return _Fixed(*_raw(size), make, "{1}(int.from_bytes({0}, 'big'))")


def _moment(kind: int, meta: int, where: str) -> _Fixed | None:
    if kind in (Type.DATE, Type.NEWDATE):
        return _bytes(3, lambda: date_text)
    if kind in (Type.DATETIME, Type.TIMESTAMP, Type.TIME) and meta > MOST_FRACTION:
        raise ChangeError(f"{where}: a fraction of {meta} digits is not known.")
    if kind == Type.DATETIME:
        return _number(5 + fraction_bytes(meta), lambda: datetime2_reader(meta))
    if kind == Type.TIMESTAMP:
        return _number(4 + fraction_bytes(meta), lambda: timestamp2_reader(meta))
    if kind == Type.TIME:
        return _bytes(3 + fraction_bytes(meta), lambda: time2_reader(meta))
    if kind == Type.TIMESTAMP_OLD:
        return _Fixed(4, "I", "<", lambda: timestamp2_reader(0))  # the old form is little-endian
    if kind == Type.TIME_OLD:
        return _bytes(3, lambda: old_time_text)
    if kind == Type.DATETIME_OLD:
        return _Fixed(8, "Q", "<", lambda: old_datetime_text)
    return None


def _labels(column: ColumnMap, where: str) -> _Fixed:
    size, labels = column.meta, column.labels
    if column.type_code == Type.ENUM:
        if size not in (1, 2):
            raise ChangeError(f"{where}: an ENUM of {size} bytes is not known.")
        texts = ("0x" if column.charset == "binary" else "", *labels)  # number 0 is the value that no label fitted
        code, order = ("B", "") if size == 1 else ("H", "<")
        return _Fixed(size, code, order, lambda: texts, "{1}[{0}]")  # type: ignore[arg-type,return-value]
    known: dict[int, str] = {}
    binary = column.charset == "binary"

    def read(data: bytes) -> str:
        mask = int.from_bytes(data, "little")
        text = known.get(mask)
        if text is None:
            if mask >> len(labels):
                raise ValueError(f"{where}: a SET holds a member that the table map does not name")
            if len(known) > MOST_SETS:
                known.clear()
            members = [label for n, label in enumerate(labels) if mask >> n & 1]
            text = known[mask] = "0x" + "2c".join(m[2:] for m in members) if binary else ",".join(members)
        return text

    return _bytes(size, lambda: read)


def _length_bytes(column: ColumnMap, where: str) -> int:
    kind, meta = column.type_code, column.meta
    if kind in (Type.VARCHAR, Type.VAR_STRING, Type.STRING, Type.VARCHAR_COMPRESSED):
        return 2 if meta > 0xFF else 1
    if kind in (Type.BLOB, Type.JSON, Type.GEOMETRY, Type.VECTOR, Type.BLOB_COMPRESSED):
        if not 1 <= meta <= 4:
            raise ChangeError(f"{where}: a length of {meta} bytes is not known.")
        return meta
    raise ChangeError(
        f"{where}: type {kind} is not known to this version, so no column behind it can be read.",
        hint="Leave the table out of the stream, and verify it in full.",
    )


def _variable(column: ColumnMap, where: str) -> tuple[str, Reader | None]:
    kind, decode = column.type_code, text_decoder(column.charset)
    if kind == Type.JSON:
        return "{1}({0})", json_text
    if kind in (Type.GEOMETRY, Type.VECTOR):
        return "'0x' + {0}.hex()", None
    if column.charset != "binary" and decode is None:
        raise ChangeError(f"{where}: its character set {column.charset} cannot be read exactly.",
                          hint="Leave the column or the table out, and verify it in full.")  # fmt: skip
    if kind in (Type.VARCHAR_COMPRESSED, Type.BLOB_COMPRESSED):
        return "{1}({0})", lambda data: decode(_inflated(data)) if decode else "0x" + _inflated(data).hex()
    if column.charset == "binary":
        # The binlog leaves out the zeros that pad a BINARY(n).
        padding = f".ljust({2 * column.meta}, '0')" if kind == Type.STRING else ""
        return f"'0x' + {{0}}.hex(){padding}", None
    if column.charset in ("utf8mb4", "utf8mb3"):
        return "{0}.decode()", None
    return "{1}({0})", decode


def _inflated(data: bytes) -> bytes:
    """Return the value of a MariaDB column with the attribute COMPRESSED.

    Source of the format: MariaDB's ``sql/field_comp.cc``. A first byte: four bits of method (0 none, 8 zlib), one that
    says that zlib's frame is left out, three for the bytes of the length; the length; the data.
    """
    if not data:
        return data
    method, bare, size = data[0] >> 4, data[0] & 8, data[0] & 7
    if method == 0:
        return data[1:]
    if method != 8:
        raise ValueError(f"compression method {method} is not known")
    length = int.from_bytes(data[1 : 1 + size], "big")
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS if bare else zlib.MAX_WBITS)
    # One byte more than promised is asked for, so that a longer value is seen without unpacking all of it.
    try:
        found = unpacker.decompress(data[1 + size :], length + 1)
    except zlib.error as error:
        raise ValueError(f"a compressed value is damaged: {error}") from error
    if len(found) != length or not unpacker.eof:
        raise ValueError(f"a compressed value of {length} bytes gives {len(found)}")
    return found
