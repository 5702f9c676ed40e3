"""What faults do to values: always a change, always one the column can hold."""

from __future__ import annotations

import json
import random
import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify_lab import mutations as m
from migverify_lab.columns import ColumnFacts, Family, TableFacts
from migverify_lab.faults import BY_NAME, FAULTS, new_keys


def column(kind: str, family: Family, **facts) -> ColumnFacts:
    return ColumnFacts("c", 1, kind, kind, family, nullable=True, **facts)


BIGINT = column("bigint", Family.INT)
TINY = column("tinyint", Family.INT)
DECIMAL = column("decimal", Family.DECIMAL, precision=65, scale=30)
FLOAT = column("float", Family.FLOAT)
DOUBLE = column("double", Family.DOUBLE)
VARCHAR = column("varchar", Family.STRING, length=40, charset="utf8mb4")
CHAR = column("char", Family.STRING, length=40, charset="utf8mb4")
BLOB = column("blob", Family.BYTES, length=65535)
BINARY = column("binary", Family.BYTES, length=8)
DATETIME = column("datetime", Family.DATETIME, fsp=3)
TIME = column("time", Family.TIME, fsp=6)
JSON = column("json", Family.JSON)
BIT = column("bit", Family.BIT, length=64)
SET = column("set", Family.SET, members=("a", "b", "c"))
ENUM = column("enum", Family.ENUM, members=("a", "b", "c"))

seeds = st.integers(0, 2**32).map(random.Random)
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
decimals = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30, places=30)
singles = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(value=st.integers(-(2**63), 2**63 - 1), rng=seeds)
def test_integers_change_and_stay_in_range(value, rng):
    for mutation in (m.value_changed, m.sign_flip):
        new = mutation(value, BIGINT, rng)
        assert new is None or (new != value and -(2**63) <= new < 2**63)


@given(value=decimals, rng=seeds)
def test_decimals_change_by_exactly_one_unit_of_their_last_digit(value, rng):
    value = Decimal(f"{value:.30f}")
    new = m.decimal_scale(value, DECIMAL, rng)
    assert abs(m._EXACT.subtract(new, value)) == Decimal("1e-30")
    flipped = m.sign_flip(value, DECIMAL, rng)
    assert flipped is None if value == 0 else m._EXACT.add(flipped, value) == 0


@given(value=singles, rng=seeds)
def test_a_float_moves_by_one_step_of_single_precision(value, rng):
    new = m.float_ulp(value, FLOAT, rng)
    if new is None:
        return
    assert struct.unpack(">f", struct.pack(">f", new))[0] == new != value
    steps = [struct.unpack(">i", struct.pack(">f", number))[0] for number in (value, new)]
    assert abs(steps[0] - steps[1]) == 1


@given(value=st.floats(allow_nan=False, allow_infinity=False), rng=seeds)
def test_doubles_change_and_their_literal_is_exact(value, rng):
    for mutation in (m.float_ulp, m.double_tiny, m.value_changed):
        new = mutation(value, DOUBLE, rng)
        if new is not None:
            assert new != value
            assert float(DOUBLE.literal(new)) == new


@given(value=texts, rng=seeds)
def test_texts_change_and_fit(value, rng):
    for where in (VARCHAR, CHAR):
        held = where.stored(value)
        for mutation in (
            m.value_changed,
            m.truncation,
            m.case_flipped,
            m.trailing_space,
            m.latin1_mangled,
            m.emoji_lost,
        ):
            new = mutation(held, where, rng)
            if new is not None and mutation is not m.value_changed:
                assert where.stored(new) != held
            assert new is None or len(new) <= where.length


@given(value=texts)
def test_text_literals_hold_every_byte(value):
    literal = VARCHAR.literal(value)
    digits = literal.removeprefix("_utf8mb4 ").strip("x'")
    assert bytes.fromhex(digits).decode() == value
    assert VARCHAR.parse(value.encode().hex().upper()) == value


integers_in_json = st.recursive(
    st.one_of(st.integers(-(2**63), 2**64 - 1), st.text(max_size=5), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=8,
)


def _flat(document):
    if isinstance(document, dict):
        return [item for key in document for item in (key, *_flat(document[key]))]
    if isinstance(document, list):
        return [item for part in document for item in ("[", *_flat(part), "]")]
    return [document]


@given(document=integers_in_json, rng=seeds)
def test_json_changes_in_one_big_integer_only(document, rng):
    new = m.json_int_off_by_one(json.dumps(document, ensure_ascii=False), JSON, rng)
    before = _flat(document)
    big = [n for n in before if isinstance(n, int) and not isinstance(n, bool) and abs(n) > 2**53]
    if not big:
        assert new is None
        return
    after = _flat(json.loads(new))
    changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    assert len(changed) == 1
    assert abs(changed[0][0] - changed[0][1]) == 1


@pytest.mark.parametrize(
    ("mutation", "where", "value", "new"),
    [
        (m.null_for_zero, BIGINT, 0, m.LOST),
        (m.null_for_zero, BIGINT, 1, None),
        (m.zero_for_null, DECIMAL, None, Decimal(0)),
        (m.empty_for_null, BLOB, None, b""),
        (m.empty_for_null, BINARY, None, b"\0" * 8),
        (m.null_for_empty, VARCHAR, "", m.LOST),
        (m.null_for_empty, VARCHAR, " ", None),
        (m.sign_flip, TINY, -128, None),
        (m.shift_hour, DATETIME, "2024-02-28 23:30:00.120", "2024-02-29 00:30:00.120"),
        (m.shift_hour, DATETIME, "0000-00-00 00:00:00.000", None),
        (m.shift_hour, DATETIME, "2024-00-00 00:00:00.000", None),
        (m.shift_hour, DATETIME, "9999-12-31 23:59:59.000", None),
        (m.date_zero, DATETIME, "2024-01-01 00:00:00.000", "0000-00-00 00:00:00.000"),
        (m.date_zero, DATETIME, "0000-00-00 00:00:00.000", None),
        (m.microseconds_lost, TIME, "-12:00:00.000001", "-12:00:00.000000"),
        (m.microseconds_lost, TIME, "-00:00:00.000001", None),
        (m.microseconds_lost, TIME, "12:00:00.000000", None),
        (m.time_negative, TIME, "838:59:59.000000", "-838:59:59.000000"),
        (m.time_negative, TIME, "-00:00:01.000000", "00:00:01.000000"),
        (m.time_negative, TIME, "00:00:00.000000", None),
        (m.latin1_mangled, VARCHAR, "é", "Ã©"),
        (m.latin1_mangled, VARCHAR, "plain", None),
        (m.emoji_lost, VARCHAR, "a😀b", "a?b"),
        (m.emoji_lost, VARCHAR, "表", None),
        (m.trailing_space, CHAR, "a", None),
        (m.trailing_space, VARCHAR, "a" * 40, None),
        (m.blob_truncated_nul, BLOB, b"a\0b", b"a"),
        (m.blob_truncated_nul, BINARY, b"a\0\0\0\0\0\0\0", None),
        (m.json_key_lost, JSON, '{"a": 1}', "JSON_REMOVE(`c`, '$.\"a\"')"),
        (m.json_key_lost, JSON, '{"$.x\'": 1}', None),
        (m.json_key_lost, JSON, "[1]", None),
    ],
)  # fmt: skip
def test_what_becomes_of_a_value(mutation, where, value, new):
    assert mutation(value, where, random.Random(1)) == new


def test_new_keys_differ_from_the_row():
    key = ColumnFacts("k", 1, "tinyint", "tinyint", Family.INT, nullable=False, in_key=True)
    table = TableFacts("d", "t", (key,), (key,))
    found = new_keys(table, {"k": 127}, random.Random(1))
    assert found
    assert all(-128 <= new["k"] <= 127 and new["k"] != 127 for new in found)


def test_fault_names_are_unique_and_explained():
    assert len(BY_NAME) == len(FAULTS) >= 35
    for fault in FAULTS:
        assert fault.what
        assert fault.needs
        assert fault.kinds
