"""Row images, decoded: what is encoded by the documented format comes back, and garbage never becomes a value."""

from __future__ import annotations

import struct
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.changes.columns import Type
from migverify.changes.decode import decoder
from migverify.changes.json_text import json_text
from migverify.changes.model import ColumnMap, TableMap
from migverify.changes.numbers import decimal_bytes, decimal_reader
from migverify.changes.temporal import datetime2_reader, fraction_bytes, time2_reader, timestamp2_reader
from migverify.errors import ChangeError

BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def column(name: str, kind: int, meta: int = 0, **more: object) -> ColumnMap:
    return ColumnMap(name, kind, meta, bool(more.pop("unsigned", False)), True, **more)  # type: ignore[arg-type]


def encode_decimal(value: Decimal, precision: int, scale: int) -> bytes:
    """As bin2decimal's counterpart writes it: groups of nine digits, all bits turned below zero, the sign bit first."""
    digits = f"{value.copy_abs():0{precision + 1}.{scale}f}" if scale else f"{value.copy_abs():0{precision}.0f}"
    whole, _, part = digits.partition(".")
    whole = whole[-(precision - scale) :] if precision > scale else ""
    out = b""
    lead = len(whole) % 9
    groups = ([whole[:lead]] if lead else []) + [whole[n : n + 9] for n in range(lead, len(whole), 9)]
    groups += [part[n : n + 9] for n in range(0, len(part), 9)]
    for group in groups:
        out += int(group).to_bytes(BYTES[len(group)], "big")
    data = bytearray(out)
    if value.is_signed() and value != 0:
        data = bytearray(b ^ 0xFF for b in data)
    data[0] ^= 0x80
    return bytes(data)


@st.composite
def decimals(draw: st.DrawFn) -> tuple[int, int, Decimal]:
    precision = draw(st.integers(1, 65))
    scale = draw(st.integers(0, min(30, precision)))
    digits = draw(st.integers(0, 10**precision - 1))
    sign = draw(st.booleans())
    return precision, scale, Decimal((int(sign), tuple(map(int, str(digits))), -scale))


@settings(max_examples=40, deadline=None)
@given(decimals())
def test_a_decimal_comes_back(case: tuple[int, int, Decimal]) -> None:
    precision, scale, value = case
    data = encode_decimal(value, precision, scale)
    assert len(data) == decimal_bytes(precision, scale)
    text = decimal_reader(precision, scale)(data)
    assert Decimal(text) == value
    assert text == f"{value or value.copy_abs():.{scale}f}"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 6), st.integers(0, 9999), st.integers(0, 12), st.integers(0, 31), st.integers(0, 23),
       st.integers(0, 59), st.integers(0, 59), st.integers(0, 999_999))  # fmt: skip
def test_a_datetime_comes_back(
    digits: int, year: int, month: int, day: int, hour: int, minute: int, second: int, micro: int
) -> None:
    packed = ((year * 13 + month) << 5 | day) << 17 | hour << 12 | minute << 6 | second
    part = micro // 10 ** (6 - digits)
    stored = part * (10 if digits % 2 else 1)
    data = (packed + 0x8000000000).to_bytes(5, "big") + stored.to_bytes(fraction_bytes(digits), "big")
    tail = f".{part:0{digits}d}" if digits else ""
    wanted = f"{year:04d}-{month:02d}-{day:02d} {hour:02d}:{minute:02d}:{second:02d}{tail}"
    assert datetime2_reader(digits)(int.from_bytes(data, "big")) == wanted


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 6),
    st.booleans(),
    st.integers(0, 838),
    st.integers(0, 59),
    st.integers(0, 59),
    st.integers(0, 999_999),
)
def test_a_time_comes_back(digits: int, negative: bool, hour: int, minute: int, second: int, micro: int) -> None:
    part = micro // 10 ** (6 - digits)
    bits = 8 * fraction_bytes(digits)
    whole = (hour << 12 | minute << 6 | second) << bits | part * (10 if digits % 2 else 1)
    negative = negative and whole != 0
    data = ((0x800000 << bits) + (-whole if negative else whole)).to_bytes(3 + fraction_bytes(digits), "big")
    tail = f".{part:0{digits}d}" if digits else ""
    sign = "-" if negative else ""
    assert time2_reader(digits)(data) == f"{sign}{hour:02d}:{minute:02d}:{second:02d}{tail}"


def test_the_zero_timestamp_is_not_1970() -> None:
    assert timestamp2_reader(0)(0) == "0000-00-00 00:00:00"
    assert timestamp2_reader(6)(0) == "0000-00-00 00:00:00.000000"
    assert timestamp2_reader(0)(1) == "1970-01-01 00:00:01"
    assert timestamp2_reader(0)(2**31 - 1) == "2038-01-19 03:14:07"
    assert timestamp2_reader(6)(1) == "1970-01-01 00:00:00.000001"


INTEGERS = [(Type.TINY, 1), (Type.SHORT, 2), (Type.INT24, 3), (Type.LONG, 4), (Type.LONGLONG, 8)]
VALUE = st.one_of(
    st.tuples(st.just("int"), st.sampled_from(INTEGERS), st.booleans(), st.integers(0, 2**64 - 1)),
    st.tuples(st.just("text"), st.text(max_size=40)),
    st.tuples(st.just("blob"), st.binary(max_size=300)),
    st.tuples(st.just("enum"), st.integers(0, 3)),
    st.tuples(st.just("set"), st.integers(0, 7)),
)
LABELS = ("a", "é", "c,d")


def encoded(name: str, value: tuple[object, ...]) -> tuple[ColumnMap, bytes, str]:
    kind = value[0]
    if kind == "int":
        (code, size), unsigned, number = value[1:]  # type: ignore[misc]
        number = int(number) % (1 << 8 * size)  # type: ignore[call-overload]
        data = number.to_bytes(size, "little")
        shown = number if unsigned else int.from_bytes(data, "little", signed=True)
        return column(name, code, unsigned=unsigned), data, str(shown)
    if kind == "text":
        data = str(value[1]).encode("utf-8", "surrogatepass")
        return column(name, Type.VARCHAR, 400, charset="utf8mb4"), struct.pack("<H", len(data)) + data, str(value[1])
    if kind == "blob":
        blob = bytes(value[1])  # type: ignore[call-overload]
        return column(name, Type.BLOB, 3, charset="binary"), len(blob).to_bytes(3, "little") + blob, "0x" + blob.hex()
    number = int(value[1])  # type: ignore[call-overload]
    if kind == "enum":
        return column(name, Type.ENUM, 1, charset="utf8mb4", labels=LABELS), bytes([number]), ("", *LABELS)[number]
    chosen = ",".join(label for n, label in enumerate(LABELS) if number >> n & 1)
    return column(name, Type.SET, 1, charset="utf8mb4", labels=LABELS), bytes([number]), chosen


@st.composite
def tables(draw: st.DrawFn) -> tuple[TableMap, bytes, list[tuple[str | None, ...]]]:
    """A table of one to twelve columns and up to five images of it with NULLs anywhere."""
    first = draw(st.lists(VALUE, min_size=1, max_size=12))
    columns = [encoded(f"c{n}", value)[0] for n, value in enumerate(first)]
    images, rows = b"", []
    for _ in range(draw(st.integers(0, 5))):
        nulls = draw(st.integers(0, (1 << len(columns)) - 1))
        image = nulls.to_bytes((len(columns) + 7) // 8, "little")
        row: list[str | None] = []
        for n, value in enumerate(first):
            _, data, text = encoded(f"c{n}", value)
            row.append(None if nulls >> n & 1 else text)
            image += b"" if nulls >> n & 1 else data
        images += image
        rows.append(tuple(row))
    return TableMap("d", "t", tuple(columns)), images, rows


@settings(max_examples=40, deadline=None)
@given(tables(), st.randoms(use_true_random=False))
def test_images_come_back_whole_and_in_part(
    case: tuple[TableMap, bytes, list[tuple[str | None, ...]]], rng: object
) -> None:
    table, images, rows = case
    if any(t is not None and any("\ud800" <= c <= "\udfff" for c in t) for row in rows for t in row):
        with pytest.raises(ChangeError):
            decoder(table).texts(images)
        return
    assert decoder(table).texts(images) == rows
    names = [c.name for c in table.columns]
    some = rng.sample(names, rng.randint(1, len(names)))  # type: ignore[attr-defined]
    places = [names.index(n) for n in some]
    assert decoder(table, some).texts(images) == [tuple(row[p] for p in places) for row in rows]


@settings(max_examples=40, deadline=None)
@given(tables(), st.integers(1, 40))
def test_images_cut_short_are_refused(case: tuple[TableMap, bytes, list[tuple[str | None, ...]]], cut: int) -> None:
    table, images, rows = case
    short = images[:-cut]
    try:
        found = decoder(table).texts(short)
    except ChangeError:
        return
    # A cut between two images looks like fewer images: each that is given is whole.
    assert found == rows[: len(found)]


@settings(max_examples=40, deadline=None)
@given(tables(), st.binary(max_size=60))
def test_garbage_is_refused_or_read_to_its_end(case: tuple[TableMap, bytes, object], garbage: bytes) -> None:
    read = decoder(case[0])
    try:
        found = read.texts(garbage)
    except ChangeError:
        return
    assert all(len(row) == len(case[0].columns) for row in found)


def test_a_column_that_is_gone_is_named() -> None:
    table = TableMap("d", "t", (column("a", Type.LONG),))
    with pytest.raises(ChangeError, match=r"d\.t has no column 'b'"):
        decoder(table, ["b"])


def test_a_label_that_is_not_known_is_refused() -> None:
    table = TableMap("d", "t", (column("a", Type.ENUM, 1, charset="utf8mb4", labels=("x",)),))
    with pytest.raises(ChangeError):
        decoder(table).texts(b"\0\2")
    table = TableMap("d", "t", (column("a", Type.SET, 1, charset="utf8mb4", labels=("x",)),))
    with pytest.raises(ChangeError):
        decoder(table).texts(b"\0\2")


def test_a_character_set_that_is_not_known_is_refused_only_where_it_is_read() -> None:
    table = TableMap("d", "t", (column("a", Type.VARCHAR, 10, charset="klingon"), column("b", Type.TINY)))
    with pytest.raises(ChangeError, match="klingon"):
        decoder(table)
    assert decoder(table, ["b"]).texts(b"\0\2xy\7") == [("7",)]


def test_surrogates_are_no_text_of_ucs2() -> None:
    # A column of ucs2 holds them, and SELECT gives no character for them: least of all the one that UTF-16 has.
    ucs2, utf16 = (TableMap("d", "t", (column("a", Type.VARCHAR, 10, charset=c),)) for c in ("ucs2", "utf16"))
    image = b"\0\4\xd8\x3d\xde\x00"
    assert decoder(utf16).texts(image) == [("\U0001f600",)]
    with pytest.raises(ChangeError, match=r"d\.t column a.*ucs2"):
        decoder(ucs2).texts(image)
    assert decoder(ucs2).texts(b"\0\4\x00\xe9\x65\xe5") == [("é日",)]


def test_names_of_the_stream_are_no_code() -> None:
    evil = 'x"); raise SystemExit #\n'
    table = TableMap("d", evil, (column(evil, Type.ENUM, 1, charset="utf8mb4", labels=(evil,)),))
    assert decoder(table, [evil]).texts(b"\0\1") == [(evil,)]


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=80))
def test_damaged_json_is_refused_or_read(data: bytes) -> None:
    try:
        text = json_text(data)
    except ChangeError:
        return
    assert text


def test_json_that_is_too_deep_is_refused() -> None:
    # An array whose only entry is itself.
    with pytest.raises(ChangeError):
        json_text(b"\x02" + struct.pack("<HHBH", 1, 7, 2, 0))


def test_json_whose_entries_are_shared_is_refused_at_once() -> None:
    # Each level holds the next one twice: 2 to the power of the levels, if nobody counted.
    levels = [struct.pack("<HHBHBH", 2, 10, 2, 10, 2, 10)] * 60
    with pytest.raises(ChangeError, match="more than fits its bytes"):
        json_text(b"\x02" + b"".join(levels) + struct.pack("<HH", 0, 4))


def test_json_whose_strings_are_shared_is_refused_at_once() -> None:
    # A thousand entries that are all the same kilobyte: a megabyte of text from 4 kB.
    count, text = 1000, b"x" * 1000
    entries = struct.pack("<BH", 12, 4 + 3 * count) * count
    value = struct.pack("<HH", count, 4 + 3 * count + 2 + len(text)) + entries + b"\xe8\x07" + text
    with pytest.raises(ChangeError, match="more than fits its bytes"):
        json_text(b"\x02" + value)


def test_an_exact_float_has_all_its_digits() -> None:
    table = TableMap("db", "f", (column("f", Type.FLOAT, 4), column("d", Type.DOUBLE, 8)), ())
    images = b"\x00" + struct.pack("<fd", 12345.68, 0.1) + b"\x00" + struct.pack("<fd", 12345.69, 0.1)
    assert decoder(table).texts(images) == [("12345.7", "0.1"), ("12345.7", "0.1")]
    assert decoder(table, exact=True).texts(images) == [("12345.6796875", "0.1"), ("12345.6904296875", "0.1")]
