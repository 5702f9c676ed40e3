"""The layout of a table as a TABLE_MAP event gives it: types, metadata, names, labels, character sets.

Source of the format: the MySQL internals manual, "Table_map_log_event". The event ends with optional fields (type,
length, value), which are complete only under ``binlog_row_metadata=FULL``. A small transaction is preceded by the same
event again and again, so layouts are kept by the event's raw bytes; a DDL changes the bytes, never the meaning of the
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from migverify.changes.charsets import charset_of_collation, label_text
from migverify.changes.columns import SETTINGS_HINT, TYPES, Type
from migverify.changes.model import ColumnMap, Op, TableMap, UnreadableTable
from migverify.changes.payload import packed_integer
from migverify.errors import ChangeError

_KEPT = 8192
"""Layouts kept by raw bytes: a few kilobytes each."""

# Numbers of the optional fields; of those not named here nothing is needed to read a row.
_SIGNEDNESS, _DEFAULT_CHARSET, _COLUMN_CHARSET, _COLUMN_NAME, _SET_LABELS, _ENUM_LABELS = 1, 2, 3, 4, 5, 6
_SIMPLE_KEY, _KEY_WITH_PREFIX, _LABEL_DEFAULT_CHARSET, _LABEL_CHARSET = 8, 9, 10, 11


class RowsLayout(NamedTuple):
    """A table map, and what precedes the images of its rows events: width, and bitmaps of all columns."""

    table_id: int
    table: TableMap
    width: int
    head: bytes
    update_head: bytes

    @staticmethod
    def of(table_id: int, table: TableMap) -> RowsLayout:
        """Return the layout of a table."""
        width = table.width if isinstance(table, UnreadableTable) else len(table.columns)
        full = b"\xff" * ((width + 7) // 8)
        packed = bytes((width,)) if width < 251 else b"\xfc" + width.to_bytes(2, "little")
        return RowsLayout(table_id, table, width, packed + full, packed + full + full)

    def check_width(self, body: bytes, at: int) -> None:
        """Refuse a rows event that does not fit its table map: nothing says where its images begin."""
        width = packed_integer(body, at)[0]
        if width != self.width:
            raise ChangeError(f"rows of {self.table.name} have {width} columns, its table map has {self.width}.")

    def check_full(self, body: bytes, at: int, op: Op) -> None:
        """Say why the images of a rows event are not full; bits above the last column may be anything."""
        width, at = packed_integer(body, at)
        size, every = (width + 7) // 8, (1 << width) - 1
        for _ in range(2 if op is Op.UPDATE else 1):
            present = int.from_bytes(body[at : at + size], "little") & every
            if present != every:
                raise ChangeError(
                    f"an {op.value} of {self.table.name} holds {present.bit_count()} of {width} columns.",
                    hint="Set binlog_row_image=FULL on the source, for running sessions too, and verify the table in "
                    "full.",
                )
            at += size


def parse_table_map(body: bytes) -> tuple[int, TableMap]:
    """Read the body of a TABLE_MAP event.

    Parameters
    ----------
    body
        The event without header and checksum.

    Returns
    -------
    tuple of int and TableMap
        The table id that rows events refer to, and the layout. Equal bytes give the same object. Of a table with a
        type that is not known it is an ``UnreadableTable``: nobody outside of whose scope it lies needs to know it.
    """
    if len(body) < 8:
        raise ChangeError(f"a table map event of {len(body)} bytes is too short.")
    return int.from_bytes(body[:6], "little"), _layout(body[8:])


@lru_cache(_KEPT)
def _layout(data: bytes) -> TableMap:
    name = ""
    try:
        reader = _FieldReader(data)
        database, table = reader.name(), reader.name()
        name = f"{database}.{table}"
        return _read(reader, database, table)
    except (IndexError, UnicodeDecodeError, ValueError) as error:
        raise ChangeError(f"the table map{f' of {name}' if name else ''} is damaged: {error}.") from error
    except ChangeError as error:
        raise ChangeError(f"{name}: {error.message}", hint=error.hint) from error


class _FieldReader:
    """Takes fields from bytes; an error where they end too early, so nothing is ever read as shorter than it is."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, length: int) -> bytes:
        end = self.at + length
        if end > len(self.data):
            raise IndexError(f"{length} bytes wanted at {self.at} of {len(self.data)}")
        found = self.data[self.at : end]
        self.at = end
        return found

    def byte(self) -> int:
        return self.take(1)[0]

    def number(self) -> int:
        """Read an integer of one, three, four or nine bytes."""
        value, self.at = packed_integer(self.data, self.at)
        return value

    def text(self) -> bytes:
        return self.take(self.number())

    def name(self) -> str:
        """Read a name with one byte of length that ends with NUL."""
        found = self.take(self.byte()).decode()
        if self.byte():
            raise ValueError("a name does not end with NUL")
        return found

    def left(self) -> bool:
        return self.at < len(self.data)


@dataclass(slots=True)
class _Optional:
    """The optional fields, as read. Character sets are by the place among the columns that have one."""

    names: list[str] = field(default_factory=list)
    signs: bytes | None = None
    charsets: dict[int, int] = field(default_factory=dict)
    default_charset: int | None = None
    label_charsets: dict[int, int] = field(default_factory=dict)
    default_label_charset: int | None = None
    set_labels: list[list[bytes]] = field(default_factory=list)
    enum_labels: list[list[bytes]] = field(default_factory=list)
    key: tuple[int, ...] = ()


def _read(reader: _FieldReader, database: str, table: str) -> TableMap:
    width = reader.number()
    codes = reader.take(width)
    unknown = next((code for code in codes if code not in TYPES or TYPES[code].meta_bytes is None), None)
    if unknown is not None:  # how long its metadata are is not known either, so nothing behind it can be read
        return UnreadableTable(database, table, width, ChangeError(
            f"{database}.{table}: its table map holds type {unknown}, which is not known.",
            hint="Exclude the table, or read its changes another way.",
        ))  # fmt: skip
    metas = _FieldReader(reader.text())
    types = [_type(code, metas) for code in codes]
    if metas.left():
        raise ValueError("type metadata are longer than the columns need")
    nullable = reader.take((width + 7) // 8)
    optional = _optional(reader)
    if len(optional.names) != width:
        raise ChangeError(
            "its table map does not name the columns" if not optional.names
            else f"its table map has {width} columns and {len(optional.names)} names",
            hint=SETTINGS_HINT,
        )  # fmt: skip
    if any(place >= width for place in optional.key):
        raise ValueError("a key column that is not there")
    unsigned = _unsigned(types, optional.signs)
    charsets = _charsets(types, optional)
    labels = _labels(types, optional, charsets)
    columns = tuple(
        ColumnMap(
            optional.names[i], code, meta, i in unsigned, bool(nullable[i // 8] >> (i % 8) & 1),
            charsets.get(i, ""), labels.get(i, ()),
        )
        for i, (code, meta) in enumerate(types)
    )  # fmt: skip
    return TableMap(database, table, columns, optional.key)


def _type(code: int, metas: _FieldReader) -> tuple[int, int]:
    """Read one type's metadata; ENUM, SET and a CHAR of more than 255 bytes hide behind STRING."""
    raw = metas.take(TYPES[code].meta_bytes or 0)
    if code == Type.NEWDECIMAL:
        return code, raw[0] << 8 | raw[1]
    if code != Type.STRING:
        return code, int.from_bytes(raw, "little")
    real, length = raw
    if real in (Type.ENUM, Type.SET):
        return real, length
    if real & 0x30 != 0x30:  # two bits of the length are, inverted, in the byte of the type
        return real | 0x30, length | (real & 0x30 ^ 0x30) << 4
    return real, length


def _optional(reader: _FieldReader) -> _Optional:
    found = _Optional()
    while reader.left():
        kind, value = reader.byte(), _FieldReader(reader.text())
        if kind == _SIGNEDNESS:
            found.signs = value.data
        elif kind == _DEFAULT_CHARSET:
            found.default_charset = value.number()
            found.charsets = dict(_pairs(value))
        elif kind == _COLUMN_CHARSET:
            found.charsets = dict(zip(count(), _numbers(value)))
        elif kind == _COLUMN_NAME:
            found.names = [name.decode() for name in _texts(value)]
        elif kind == _SET_LABELS:
            found.set_labels = list(_label_lists(value))
        elif kind == _ENUM_LABELS:
            found.enum_labels = list(_label_lists(value))
        elif kind == _SIMPLE_KEY:
            found.key = tuple(_numbers(value))
        elif kind == _KEY_WITH_PREFIX:
            found.key = tuple(place for place, _ in _pairs(value))
        elif kind == _LABEL_DEFAULT_CHARSET:
            found.default_label_charset = value.number()
            found.label_charsets = dict(_pairs(value))
        elif kind == _LABEL_CHARSET:
            found.label_charsets = dict(zip(count(), _numbers(value)))
    return found


def _numbers(value: _FieldReader) -> Iterator[int]:
    while value.left():
        yield value.number()


def _pairs(value: _FieldReader) -> Iterator[tuple[int, int]]:
    while value.left():
        yield value.number(), value.number()


def _texts(value: _FieldReader) -> Iterator[bytes]:
    while value.left():
        yield value.text()


def _label_lists(value: _FieldReader) -> Iterator[list[bytes]]:
    while value.left():
        yield [value.text() for _ in range(value.number())]


def _unsigned(types: list[tuple[int, int]], signs: bytes | None) -> set[int]:
    """Return the places of unsigned columns: one bit per numeric column, most significant first."""
    places = [i for i, (code, _) in enumerate(types) if TYPES[code].signed]
    if not places:
        return set()
    if signs is None or len(signs) != (len(places) + 7) // 8:
        raise ChangeError("its table map does not say which numbers are unsigned", hint=SETTINGS_HINT)
    found = {place for j, place in enumerate(places) if signs[j // 8] & 0x80 >> j % 8}
    # A server that counts other columns than these would shift all bits behind the first such column.
    if any(code == Type.YEAR and i not in found for i, (code, _) in enumerate(types)):
        raise ChangeError("its table map calls a YEAR signed: the signs are of other columns than expected")
    return found


def _charsets(types: list[tuple[int, int]], optional: _Optional) -> dict[int, str]:
    found: dict[int, str] = {}
    for kinds, by_place, default in (
        ({code for code, row in TYPES.items() if row.collation}, optional.charsets, optional.default_charset),
        ({Type.ENUM, Type.SET}, optional.label_charsets, optional.default_label_charset),
    ):
        places = [i for i, (code, _) in enumerate(types) if code in kinds]
        # One entry too many shifts all others: a text would be read in its neighbor's character set.
        if any(j >= len(places) for j in by_place) or (default is None and len(by_place) != len(places)):
            raise ChangeError(
                f"its table map gives the character sets of other columns than the {len(places)} that have one",
                hint=SETTINGS_HINT if not by_place else "",
            )
        found.update((place, charset_of_collation(by_place.get(j, default or 0))) for j, place in enumerate(places))
    return {place: charset for place, charset in found.items() if types[place][0] != Type.VECTOR}


def _labels(types: list[tuple[int, int]], optional: _Optional, charsets: dict[int, str]) -> dict[int, tuple[str, ...]]:
    found = {}
    for kind, lists in ((Type.ENUM, optional.enum_labels), (Type.SET, optional.set_labels)):
        places = [i for i, (code, _) in enumerate(types) if code == kind]
        if len(places) != len(lists):
            raise ChangeError("its table map does not give the labels of every ENUM and SET", hint=SETTINGS_HINT)
        for place, labels in zip(places, lists, strict=True):
            found[place] = tuple(label_text(label, charsets[place]) for label in labels)
    return found
