"""Table maps: what is written by the documented format comes back, and what is damaged or not complete is refused."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.changes.charsets import charset_of_collation, text_decoder
from migverify.changes.columns import Type
from migverify.changes.decode import decoder
from migverify.changes.model import ColumnMap, TableMap
from migverify.changes.table_map import parse_table_map
from migverify.errors import ChangeError

LATIN1, UTF8MB4, SJIS, BINARY, UTF16, CP1251 = 8, 255, 13, 63, 54, 51
NAMES = {LATIN1: "latin1", UTF8MB4: "utf8mb4", SJIS: "sjis", BINARY: "binary", UTF16: "utf16", CP1251: "cp1251"}
ENCODINGS = {LATIN1: "cp1252", UTF8MB4: "utf-8", SJIS: "shift_jis", UTF16: "utf-16-be", CP1251: "cp1251"}
SIGNS, DEFAULT, EACH, COLUMN_NAMES, SETS, ENUMS, GEOMETRY, KEY, PREFIX_KEY = 1, 2, 3, 4, 5, 6, 7, 8, 9
LABEL_DEFAULT, LABEL_EACH, VISIBLE, DIMENSIONS = 10, 11, 12, 13
INTEGERS = (Type.TINY, Type.SHORT, Type.INT24, Type.LONG, Type.LONGLONG)


def number(value: int) -> bytes:
    """An integer of one, three, four or nine bytes."""
    if value < 251:
        return bytes((value,))
    for first, size in ((252, 2), (253, 3), (254, 8)):
        if value < 1 << 8 * size:
            return bytes((first,)) + value.to_bytes(size, "little")
    raise ValueError(value)


def text(data: bytes) -> bytes:
    return number(len(data)) + data


def bits(flags: list[bool], *, first_is_high: bool) -> bytes:
    out = bytearray((len(flags) + 7) // 8)
    for n, flag in enumerate(flags):
        out[n // 8] |= (0x80 >> n % 8 if first_is_high else 1 << n % 8) * flag
    return bytes(out)


@dataclass
class Column:
    """A column as a server knows it, and its code and metadata on the wire."""

    kind: int
    meta: int = 0
    code: int = 0
    wire: bytes = b""
    unsigned: bool = False
    nullable: bool = True
    collation: int = 0
    labels: tuple[str, ...] = ()
    name: str = ""

    def column(self) -> ColumnMap:
        charset = "" if self.kind in (Type.GEOMETRY, Type.VECTOR) else NAMES.get(self.collation, "")
        return ColumnMap(self.name, self.kind, self.meta, self.unsigned, self.nullable, charset, self.labels)


@dataclass
class Table:
    columns: list[Column]
    key: tuple[int, ...] = ()
    by_default: bool = True
    label_default: bool = True
    prefix_key: bool = False
    extra: list[tuple[int, bytes]] = field(default_factory=list)
    database: str = "d"
    table: str = "t"

    def expected(self) -> TableMap:
        return TableMap(self.database, self.table, tuple(c.column() for c in self.columns), self.key)

    def body(self, table_id: int = 7, leave_out: tuple[int, ...] = ()) -> bytes:
        out = table_id.to_bytes(6, "little") + b"\1\0"
        for name in (self.database, self.table):
            out += bytes((len(name.encode()),)) + name.encode() + b"\0"
        out += number(len(self.columns)) + bytes(c.code or c.kind for c in self.columns)
        out += text(b"".join(c.wire for c in self.columns))
        out += bits([c.nullable for c in self.columns], first_is_high=False)
        return out + b"".join(bytes((k,)) + text(v) for k, v in self.fields() if v and k not in leave_out)

    def fields(self) -> list[tuple[int, bytes]]:
        numeric = {*INTEGERS, Type.FLOAT, Type.DOUBLE, Type.NEWDECIMAL, Type.YEAR}
        character = {Type.VARCHAR, Type.STRING, Type.BLOB, Type.VECTOR}
        signs = [c.unsigned for c in self.columns if c.kind in numeric]
        enums = [c for c in self.columns if c.kind == Type.ENUM]
        sets = [c for c in self.columns if c.kind == Type.SET]
        key = b"".join(number(k) + (number(3) if self.prefix_key else b"") for k in self.key)
        return [
            *self.extra,
            (SIGNS, bits(signs, first_is_high=True)),
            charsets([c.collation for c in self.columns if c.kind in character], self.by_default, (DEFAULT, EACH)),
            (COLUMN_NAMES, b"".join(text(c.name.encode()) for c in self.columns)),
            (SETS, b"".join(map(label_list, sets))),
            (ENUMS, b"".join(map(label_list, enums))),
            (PREFIX_KEY if self.prefix_key else KEY, key),
            charsets([c.collation for c in self.columns if c.kind in (Type.ENUM, Type.SET)], self.label_default,
                     (LABEL_DEFAULT, LABEL_EACH)),
            (VISIBLE, bits([True] * len(self.columns), first_is_high=True)),
        ]  # fmt: skip


def charsets(collations: list[int], by_default: bool, kinds: tuple[int, int]) -> tuple[int, bytes]:
    if not by_default or not collations:
        return kinds[1], b"".join(map(number, collations))
    usual = max(collations, key=collations.count)
    return kinds[0], number(usual) + b"".join(
        number(n) + number(collation) for n, collation in enumerate(collations) if collation != usual
    )


def label_list(column: Column) -> bytes:
    encoding = ENCODINGS[column.collation]
    return number(len(column.labels)) + b"".join(text(label.encode(encoding)) for label in column.labels)


def char(length: int, collation: int) -> Column:
    """CHAR or BINARY of so many bytes: two bits of a length above 255 are inverted in the byte of the type."""
    wire = bytes((Type.STRING ^ (length & 0x300) >> 4, length & 0xFF))
    return Column(Type.STRING, length, wire=wire, collation=collation)


def labeled(kind: int, size: int, collation: int, labels: tuple[str, ...]) -> Column:
    return Column(kind, size, Type.STRING, bytes((kind, size)), collation=collation, labels=labels)


def fixed(kind: int, meta: int, size: int) -> Column:
    return Column(kind, meta, wire=meta.to_bytes(size, "little"))


COLLATION = st.sampled_from(list(NAMES))
LABELS = {LATIN1: "éü€", UTF8MB4: "é日🙂", SJIS: "日本ｱ", UTF16: "é日🙂", CP1251: "дЖя"}
COLUMN = st.one_of(
    st.builds(Column, st.sampled_from(INTEGERS), unsigned=st.booleans()),
    st.just(Column(Type.DATE)),
    st.just(Column(Type.YEAR, unsigned=True)),
    st.builds(lambda p, s: Column(Type.NEWDECIMAL, p << 8 | min(p, s), wire=bytes((p, min(p, s)))),
              st.integers(1, 65), st.integers(0, 30)),
    st.sampled_from([(Type.FLOAT, 4), (Type.DOUBLE, 8), (Type.JSON, 4), (Type.GEOMETRY, 4)]).map(
        lambda case: fixed(*case, 1)),
    st.builds(lambda kind, digits: fixed(kind, digits, 1),
              st.sampled_from([Type.DATETIME, Type.TIMESTAMP, Type.TIME]), st.integers(0, 6)),
    st.integers(1, 64).map(lambda n: fixed(Type.BIT, n // 8 << 8 | n % 8, 2)),
    st.builds(lambda n, c: Column(Type.VARCHAR, n, wire=n.to_bytes(2, "little"), collation=c),
              st.integers(0, 65535), COLLATION),
    st.builds(lambda n, c: Column(Type.BLOB, n, wire=bytes((n,)), collation=c), st.integers(1, 4), COLLATION),
    st.builds(char, st.integers(0, 1020), COLLATION),
    st.builds(lambda kind, size, c, n: labeled(kind, size, c, tuple(LABELS[c][:n])),
              st.sampled_from([Type.ENUM, Type.SET]), st.integers(1, 2), st.sampled_from(list(LABELS)),
              st.integers(1, 3)),
)  # fmt: skip


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Tables of 1 to 300 columns with fields that nobody knows among the optional ones."""
    columns = draw(st.lists(COLUMN, min_size=1, max_size=20))
    if draw(st.integers(0, 9)) == 0:
        columns += [Column(Type.LONG) for _ in range(draw(st.integers(230, 280)))]
    columns = [Column(**vars(c)) for c in columns]
    names = draw(st.lists(st.text(max_size=20), min_size=len(columns), max_size=len(columns)))
    for column, name in zip(columns, names, strict=True):
        column.name, column.nullable = name, draw(st.booleans())
    unknown = st.tuples(st.integers(14, 255), st.binary(min_size=1, max_size=300))
    return Table(
        columns,
        tuple(draw(st.lists(st.integers(0, len(columns) - 1), unique=True, max_size=3))),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.lists(unknown, max_size=2)),
        draw(st.text(max_size=20)),
        draw(st.text(max_size=20)),
    )


@settings(max_examples=40, deadline=None)
@given(tables(), st.integers(0, 2**48 - 1))
def test_a_layout_comes_back(table: Table, table_id: int) -> None:
    assert parse_table_map(table.body(table_id)) == (table_id, table.expected())


@settings(max_examples=40, deadline=None)
@given(tables(), st.data())
def test_a_damaged_table_map_is_refused_or_read(table: Table, data: st.DataObject) -> None:
    body = bytearray(table.body())
    for place in data.draw(st.lists(st.integers(0, len(body) - 1), max_size=4)):
        body[place] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(body)))
    with suppress(ChangeError):
        parse_table_map(bytes(body[:cut]))


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=80))
def test_garbage_is_refused(garbage: bytes) -> None:
    # Eight bytes of a head, two names without letters, no metadata: what follows is read as columns and fields.
    for body in (garbage, bytes(12) + garbage):
        with suppress(ChangeError):
            parse_table_map(body)


def usual() -> Table:
    return Table(
        [
            Column(Type.LONGLONG, unsigned=True, nullable=False, name="id"),
            Column(Type.VARCHAR, 400, wire=b"\x90\1", collation=UTF8MB4, name="note"),
            labeled(Type.ENUM, 1, LATIN1, ("é", "a,b")),
            labeled(Type.SET, 1, CP1251, ("д", "я")),
        ],
        key=(0,),
    )


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        (COLUMN_NAMES, "does not name the columns"),
        (SIGNS, "which numbers are unsigned"),
        (DEFAULT, "character sets"),
        (LABEL_EACH, "character sets"),
        (ENUMS, "labels"),
        (SETS, "labels"),
    ],
)
def test_what_only_full_metadata_tell_is_never_guessed(left_out: int, message: str) -> None:
    table = usual()
    table.label_default = False
    with pytest.raises(ChangeError, match=rf"^d\.t: .*{message}") as caught:
        parse_table_map(table.body(leave_out=(left_out,)))
    assert "binlog_row_metadata=FULL" in (caught.value.hint or "")


def test_a_key_of_columns_that_are_not_there_is_damage() -> None:
    table = usual()
    table.key = (len(table.columns),)
    with pytest.raises(ChangeError, match=r"of d\.t is damaged: a key column"):
        parse_table_map(table.body())


def test_a_key_is_not_needed_and_neither_is_what_no_row_needs() -> None:
    columns = parse_table_map(usual().body(leave_out=(KEY, VISIBLE)))[1]
    assert columns == TableMap("d", "t", usual().expected().columns, ())


@pytest.mark.parametrize("length", [250, 251, 65_535, 65_536, 70_000])
def test_a_field_of_any_length_is_stepped_over(length: int) -> None:
    table = usual()
    table.extra = [(200, bytes(length))]
    assert parse_table_map(table.body())[1] == usual().expected()


def test_a_vector_has_a_collation_and_a_geometry_has_none() -> None:
    note = Column(Type.VARCHAR, 9, wire=b"\x09\0", collation=LATIN1, name="note")
    vector = Column(Type.VECTOR, 4, wire=b"\4", collation=BINARY, name="v")
    mysql = Table([vector, note], by_default=False, extra=[(DIMENSIONS, b"\3"), (GEOMETRY, b"\0")])
    assert parse_table_map(mysql.body())[1].columns[1].charset == "latin1"
    place = Column(Type.GEOMETRY, 4, wire=b"\4", name="g")
    assert parse_table_map(Table([place, note], by_default=False).body())[1].columns[1].charset == "latin1"


def test_a_year_has_a_sign_too_so_numbers_behind_it_keep_theirs() -> None:
    year = Column(Type.YEAR, unsigned=True, name="y")
    table = Table([year, *(Column(Type.TINY, unsigned=n == 7, name=f"c{n}") for n in range(8))])
    layout = parse_table_map(table.body())[1]
    assert layout == table.expected()
    year.unsigned = False  # no server says so: the bits would be those of other columns
    with pytest.raises(ChangeError, match="signs are of other columns"):
        parse_table_map(table.body())


def test_the_table_map_of_a_real_server_is_read() -> None:
    # MySQL 9.7: y YEAR, a INT UNSIGNED, b INT, c INT UNSIGNED.
    body = b"-\6\0\0\0\0\1\0\1d\0\1p\0\4\x0d\3\3\3\0\x0f\1\1\xd0\4\x08\1y\1a\1b\1c\x0c\1\xf0"
    layout = parse_table_map(body)[1]
    assert [(c.name, c.type_code, c.unsigned) for c in layout.columns] == [
        ("y", Type.YEAR, True), ("a", Type.LONG, True), ("b", Type.LONG, False), ("c", Type.LONG, True)
    ]  # fmt: skip


def test_a_type_that_is_not_known_is_no_matter_until_somebody_reads_the_table() -> None:
    table = Table([Column(20, name="a", wire=b"\3\0")])
    layout = parse_table_map(table.body())[1]
    assert (layout.name, len({layout, layout})) == ("d.t", 1)
    for ask in (lambda: layout.columns, lambda: layout.key, lambda: decoder(layout), lambda: decoder(layout, ["a"])):
        with pytest.raises(ChangeError, match=r"^d\.t: .*type 20") as refused:
            ask()
        assert "Exclude the table" in refused.value.hint


def test_a_character_set_that_is_not_known_is_no_matter_until_somebody_reads_it() -> None:
    table = Table([Column(Type.LONG, name="id"), Column(Type.BLOB, 2, wire=b"\2", collation=9999, name="note")])
    layout = parse_table_map(table.body())[1]
    assert decoder(layout, ["id"]).texts(b"\0\1\0\0\0\2\0xy") == [("1",)]
    with pytest.raises(ChangeError, match=r"d\.t column note: .*9999"):
        decoder(layout)


def test_the_same_bytes_give_the_same_object_whatever_the_table_id_is() -> None:
    first, second = (parse_table_map(usual().body(n)) for n in (1, 2))
    assert (first[0], second[0]) == (1, 2)
    assert first[1] is second[1]
    other = usual()
    other.columns[0].unsigned = False
    assert parse_table_map(other.body(1))[1].columns[0].unsigned is False
    assert decoder(first[1]) is decoder(second[1])


def test_every_collation_belongs_to_one_character_set_that_can_be_decoded() -> None:
    known = {charset_of_collation(n) for n in range(1, 4000)}
    known = {charset for charset in known if not charset.startswith("collation-")}
    assert {"utf8mb4", "utf8mb3", "latin1", "gb18030", "utf16le", "geostd8", "binary"} <= known
    assert [charset for charset in sorted(known - {"binary"}) if text_decoder(charset) is None] == []
    assert {n: charset_of_collation(n) for n in NAMES} == NAMES
