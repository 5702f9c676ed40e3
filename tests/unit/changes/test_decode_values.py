"""Values that are encoded as the server does and must come back: binary JSON, floats, moments."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.changes import decode
from migverify.changes.columns import Type
from migverify.changes.decode import Decoder, decoder
from migverify.changes.json_text import json_text
from migverify.changes.model import ColumnMap, TableMap, Texts
from migverify.changes.numbers import double_text, float_text
from migverify.changes.temporal import MOST_DATES, date_text, datetime2_reader
from migverify.errors import ChangeError


def json_binary(value: Any) -> bytes:
    kind, data = _json(value)
    return bytes((kind,)) + data


def _json(value: Any) -> tuple[int, bytes]:
    """Type and data of a value, as MySQL's json_binary.h describes them; large forms where 64 KiB are too few."""
    if value is None or isinstance(value, bool):
        return 4, bytes(({None: 0, True: 1, False: 2}[value],))
    if isinstance(value, int):
        kind, code = next((kind, code) for kind, code, low, high in INTEGERS if low <= value <= high)
        return kind, struct.pack(code, value)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        data = value.encode()
        return 12, _varint(len(data)) + data
    for large in (False, True):
        found = _container(value, large)
        if found is not None:
            return (2 if isinstance(value, list) else 0) + large, found
    raise AssertionError("unreachable")


INTEGERS = (
    (5, "<h", -(2**15), 2**15 - 1), (6, "<H", 0, 2**16 - 1), (7, "<i", -(2**31), 2**31 - 1), (8, "<I", 0, 2**32 - 1),
    (9, "<q", -(2**63), 2**63 - 1), (10, "<Q", 0, 2**64 - 1),
)  # fmt: skip


def _varint(size: int) -> bytes:
    out = b""
    while size > 127:
        out += bytes((size & 127 | 128,))
        size >>= 7
    return out + bytes((size,))


def _container(value: Any, large: bool) -> bytes | None:
    word, width = ("<I", 4) if large else ("<H", 2)
    is_object = isinstance(value, dict)
    # MySQL sorts keys by length, then by bytes.
    keys = sorted((k.encode() for k in value), key=lambda k: (len(k), k)) if is_object else []
    values = [value[k.decode()] for k in keys] if is_object else value
    head = 2 * width + len(keys) * (width + 2) + len(values) * (width + 1)
    key_part, places = b"", b""
    for key in keys:
        places += struct.pack(word, head + len(key_part)) + struct.pack("<H", len(key))
        key_part += key
    entries, rest = b"", b""
    for one in values:
        kind, data = _json(one)
        if kind in (4, 5, 6) or (large and kind in (7, 8)):
            entries += bytes((kind,)) + data.ljust(width, b"\0")
        else:
            offset = head + len(key_part) + len(rest)
            if not large and offset > 0xFFFF:
                return None
            entries += bytes((kind,)) + struct.pack(word, offset)
            rest += data
    size = head + len(key_part) + len(rest)
    if not large and size > 0xFFFF:
        return None
    return struct.pack(word, len(values)) + struct.pack(word, size) + places + entries + key_part + rest


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | TEXTS
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXTS, inner, max_size=6),
    max_leaves=25,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(DOCUMENTS)
def test_json_comes_back(document: Any) -> None:
    text = json_text(json_binary(document))
    found = json.loads(text)
    assert found == document
    assert _types(found) == _types(document)


def _types(value: Any) -> Any:
    """Types all through a document: 1, 1.0 and true are equal to Python."""
    if isinstance(value, dict):
        return {key: _types(one) for key, one in value.items()}
    return [_types(one) for one in value] if isinstance(value, list) else type(value)


def test_large_json_comes_back() -> None:
    document = {"a": ["x" * 70_000, 1, 70_000, -5, 3_000_000_000, None, {"k" * 300: [True]}]}
    assert json.loads(json_text(json_binary(document))) == document


def test_json_is_spelled_as_mysql_does() -> None:
    document = {"bb": 1.0, "c": [1, -0.0, 1e15, None], "a": 'x"\\/\x01\n\x7fé'}
    wanted = '{"a": "x\\"\\\\/\\u0001\\n\x7fé", "c": [1, -0.0, 1e15, null], "bb": 1.0}'
    assert json_text(json_binary(document)) == wanted


def table(kind: int, meta: int, charset: str = "", **more: Any) -> TableMap:
    return TableMap("d", "t", (ColumnMap("c", kind, meta, False, True, charset, **more),))


@settings(max_examples=40, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_reads_back_exactly_and_is_spelled_as_mysql_does(value: float) -> None:
    text = double_text(value)
    assert struct.pack("<d", float(text)) == struct.pack("<d", value)
    digits = text.lstrip("-").replace(".", "").partition("e")[0].strip("0")
    assert len(digits) <= 17
    exponent_wanted = value != 0 and (abs(value) < 1e-15 or (abs(value) >= 1e15 and value == int(value)))
    assert ("e" in text) == exponent_wanted


@settings(max_examples=40, deadline=None)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_has_six_digits(value: float) -> None:
    text = float_text(value)
    assert float(text) == float(f"{value:.5e}")
    assert len(text.lstrip("-").replace(".", "").partition("e")[0].strip("0")) <= 6


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_numbers_that_no_server_stores_are_refused(value: float) -> None:
    for kind, meta, code in ((Type.FLOAT, 4, "<f"), (Type.DOUBLE, 8, "<d")):
        with pytest.raises(ChangeError, match="no server stores"):
            decoder(table(kind, meta)).texts(b"\xfe" + struct.pack(code, value))


def test_remembered_dates_are_bounded_and_stay_right() -> None:
    read = datetime2_reader(0)
    for n in range(MOST_DATES + 1000):
        year, month, day = 1000 + n // 372, n // 31 % 12 + 1, n % 31 + 1
        value = 0x8000000000 | ((year * 13 + month) << 5 | day) << 17
        assert read(value) == f"{year:04d}-{month:02d}-{day:02d} 00:00:00"
        assert date_text((year << 9 | month << 5 | day).to_bytes(3, "little")) == f"{year:04d}-{month:02d}-{day:02d}"


MIXED = TableMap("d", "t", (
    ColumnMap("a", Type.LONG, 0, True, True), ColumnMap("b", Type.VARCHAR, 40, False, True, "utf8mb4"),
    ColumnMap("c", Type.DATETIME, 6, False, True), ColumnMap("d", Type.NEWDECIMAL, 0x1204, False, True),
    ColumnMap("e", Type.BLOB, 3, False, True, "binary"), ColumnMap("f", Type.SHORT, 0, False, True),
    ColumnMap("g", Type.STRING, 4, False, True, "binary"), ColumnMap("h", Type.TINY, 0, False, True),
    ColumnMap("i", Type.TIMESTAMP, 0, False, True), ColumnMap("j", Type.BLOB, 4, False, True, "latin1"),
))  # fmt: skip
VALUES = (
    (b"\xff\xff\xff\xff", "4294967295"), (b"\3\xc3\xa9x", "éx"),
    (((2026 * 13 + 1 << 5 | 2) << 17 | 3 << 12 | 4 << 6 | 5 | 1 << 39).to_bytes(5, "big") + b"\0\0\7",
     "2026-01-02 03:04:05.000007"),
    (b"\x80\0\0\0\0\0\1\0\5", "1.0005"), (b"\2\0\0ab", "0x6162"), (b"\xfe\xff", "-2"), (b"\1a", "0x61000000"),
    (b"\x80", "-128"), (b"\0\0\0\1", "1970-01-01 00:00:01"), (b"\1\0\0\0\xe9", "é"),
)  # fmt: skip


def image(nulls: int) -> tuple[bytes, Texts]:
    data = (nulls | 0xFC00).to_bytes(2, "little")
    data += b"".join(raw for n, (raw, _) in enumerate(VALUES) if not nulls >> n & 1)
    return data, tuple(None if nulls >> n & 1 else text for n, (_, text) in enumerate(VALUES))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 1023), max_size=40), st.lists(st.sampled_from("abcdefghij"), unique=True), st.integers(1, 4)
)
def test_rare_and_frequent_sets_of_nulls_are_read_alike(sets: list[int], names: list[str], first: int) -> None:
    found = Decoder(MIXED, names)
    places = ["abcdefghij".index(name) for name in names]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "FIRST_SETS", first)
        patch.setattr(decode, "OFTEN", 3)
        patch.setattr(decode, "MOST_SETS", 6)
        made = [image(nulls) for nulls in sets]
        wanted = [tuple(texts[place] for place in places) for _, texts in made]
        assert found.texts(b"".join(data for data, _ in made)) == wanted
        for (data, _), one in zip(made, wanted, strict=True):
            assert found.texts(data) == [one]


def test_a_damaged_value_is_blamed_on_its_column() -> None:
    data, _ = image(0)
    with pytest.raises(ChangeError, match=r"d\.t column b: row image 2 of a rows event"):
        decoder(MIXED).texts(data + data.replace(b"\xc3\xa9x", b"\xc3\x28x"))
    with pytest.raises(ChangeError, match=r"d\.t: row image 2 of a rows event"):
        decoder(MIXED).texts(data + data[:-1])
