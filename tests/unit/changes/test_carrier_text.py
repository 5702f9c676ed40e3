"""Values of carriers to the text of SELECT. Golden texts were read from MySQL 9.7 and TiDB 8.5."""

from __future__ import annotations

import json
import struct
from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.changes.carriers import column_text as texts
from migverify.changes.carriers import exact_json
from migverify.changes.carriers.base import UndecodableError
from migverify.changes.carriers.column_text import ColumnType, parse_type
from migverify.changes.carriers.exact_json import Number
from migverify.errors import ConfigError
from migverify.model import Flavor

DOUBLES = [
    (1e15, "1e15"),
    (1e14, "100000000000000"),
    (1.5e15, "1.5e15"),
    (-1e16, "-1e16"),
    (123456789012345680.0, "1.2345678901234568e17"),
    (1e-5, "0.00001"),
    (1e-14, "0.00000000000001"),
    (1e-15, "0.000000000000001"),
    (9.9e-16, "9.9e-16"),
    (1e-16, "1e-16"),
    (1e300, "1e300"),
    (5e-324, "5e-324"),
    (0.1, "0.1"),
    (1 / 3, "0.3333333333333333"),
    (2.5, "2.5"),
    (100.0, "100"),
    (0.0, "0"),
    (-0.0, "-0"),
    (999999999999999.9, "999999999999999.9"),
]

FLOATS = [  # value, MySQL, TiDB
    (1 / 3, "0.333333", "0.33333334"),
    (16777216, "16777200", "16777216"),
    (1.2345678, "1.23457", "1.2345678"),
    (1e6, "1000000", "1000000"),
    (1e15, "1e15", "1e15"),
    (123456.7, "123457", "123456.7"),
    (999999.96, "1000000", "999999.94"),
    (1e-7, "0.0000001", "0.0000001"),
    (0.00001234567, "0.0000123457", "0.00001234567"),
    (5.610000133514404, "5.61", "5.61"),
    (123456789012345680.0, "1.23457e17", "1.23457e17"),
]


@pytest.mark.parametrize(("value", "text"), DOUBLES)
def test_a_double_reads_as_both_servers_print_it(value: float, text: str) -> None:
    assert texts.double_text(value, Flavor.MYSQL) == text
    assert texts.double_text(value, Flavor.TIDB) == text


def test_mysql_writes_no_exponent_where_there_is_a_fraction() -> None:
    assert texts.double_text(-1039514241563211.8, Flavor.MYSQL) == "-1039514241563211.8"
    assert texts.double_text(-1039514241563211.8, Flavor.TIDB) == "-1.0395142415632118e15"


@pytest.mark.parametrize(("value", "mysql", "tidb"), FLOATS)
def test_a_float_reads_as_its_server_prints_it(value: float, mysql: str, tidb: str) -> None:
    assert texts.float_text(value, Flavor.MYSQL) == mysql
    assert texts.float_text(value, Flavor.TIDB) == tidb


def test_fixed_digits_and_values_no_server_stores() -> None:
    assert texts.double_text(1.5, Flavor.MYSQL, parse_type("double(7,3)")) == "1.500"
    assert texts.float_text(1.1, Flavor.MYSQL, parse_type("float(7,2)")) == "1.10"
    for value in (float("inf"), float("nan")):
        with pytest.raises(UndecodableError):
            texts.double_text(value, Flavor.MYSQL)
    with pytest.raises(UndecodableError):
        texts.float_text(1e300, Flavor.MYSQL)


@settings(max_examples=40, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(list(Flavor)))
def test_the_text_of_a_double_reads_back_exactly(value: float, flavor: Flavor) -> None:
    assert struct.pack("<d", float(texts.double_text(value, flavor))) == struct.pack("<d", value)


@settings(max_examples=40, deadline=None)
@given(st.floats(2.0**-49, 2.0**49, width=32) | st.just(0.0))
def test_the_tidb_text_of_a_float_reads_back_exactly(value: float) -> None:
    assert struct.pack("<f", float(texts.float_text(value, Flavor.TIDB))) == struct.pack("<f", value)


@settings(max_examples=40, deadline=None)
@given(st.integers(-(10**65), 10**65), st.integers(0, 30))
def test_unscaled_bytes_are_their_decimal(unscaled: int, scale: int) -> None:
    raw = unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True)
    text = texts.unscaled_text(raw, scale)
    assert Decimal(text) == Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))
    assert len(text.partition(".")[2]) == scale
    assert texts.decimal_text(text) == text


@settings(max_examples=40, deadline=None)
@given(st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31)))
def test_moments_and_days_round_trip(moment: datetime) -> None:
    since = moment - datetime(1970, 1, 1)
    micros = since // timedelta(microseconds=1)
    assert datetime.fromisoformat(texts.datetime_text(micros, 6)) == moment
    assert date.fromisoformat(texts.days_text((moment.date() - date(1970, 1, 1)).days)) == moment.date()


def test_times_and_fractions() -> None:
    assert texts.time_text(-45296789000, 3) == "-12:34:56.789"
    assert texts.time_text(3020399000000, 0) == "838:59:59"
    assert texts.datetime_text(-1, 6) == "1969-12-31 23:59:59.999999"
    with pytest.raises(UndecodableError, match="does not fit 3 digits"):
        texts.datetime_text(1, 3)
    with pytest.raises(UndecodableError):
        texts.days_text(10**9)


def test_types() -> None:
    assert parse_type("bigint(20) unsigned") == ColumnType("bigint", 20, unsigned=True)
    assert parse_type("INT UNSIGNED") == ColumnType("int", unsigned=True)
    assert parse_type("decimal(10,2)") == ColumnType("decimal", 10, 2)
    assert parse_type("enum('a','b''c, d')") == ColumnType("enum", labels=("a", "b'c, d"))
    assert parse_type("enum") == ColumnType("enum")
    assert texts.integer_text(7, parse_type("int(5) unsigned zerofill")) == "00007"
    for wrong in ("enum(a)", "(3)", "", "bigint not null", "char(x)", "int(3"):
        with pytest.raises(UndecodableError):
            parse_type(wrong)


def test_labels_bits_and_padding() -> None:
    kind = parse_type("set('x','y','z')")
    assert [texts.set_text(mask, kind, "c") for mask in (0, 1, 5, 7)] == ["", "x", "x,z", "x,y,z"]
    assert texts.enum_text(0, parse_type("enum('a')"), "c") == ""
    assert texts.bit_text(513, parse_type("bit(10)"), "c") == "513"
    assert texts.hex_text(b"\1", parse_type("binary(4)")) == "0x01000000"
    for wrong in (
        lambda: texts.enum_text(2, parse_type("enum('a')"), "c"),
        lambda: texts.enum_text(1, parse_type("enum"), "c"),
        lambda: texts.set_text(8, kind, "c"),
        lambda: texts.bit_text(1024, parse_type("bit(10)"), "c"),
        lambda: texts.bit_text(1, parse_type("bit"), "c"),
        lambda: texts.year_text("20x0"),
    ):
        with pytest.raises(UndecodableError):
            wrong()


def test_a_timestamp_is_moved_to_utc_unless_two_moments_fit() -> None:
    tokyo, berlin = texts.find_zone("Asia/Tokyo"), texts.find_zone("Europe/Berlin")
    assert texts.utc_text("2026-01-01 08:00:00.5", tokyo, "c") == "2025-12-31 23:00:00.5"
    assert texts.utc_text("2026-01-01 00:00:00", texts.find_zone("-05:30"), "c") == "2026-01-01 05:30:00"
    assert texts.utc_text("0000-00-00 00:00:00", tokyo, "c") == "0000-00-00 00:00:00"
    assert texts.utc_text("2026-07-01 12:00:00", berlin, "c") == "2026-07-01 10:00:00"
    with pytest.raises(UndecodableError, match="two moments fit"):
        texts.utc_text("2026-10-25 02:30:00", berlin, "c")
    with pytest.raises(UndecodableError, match="state the time zone"):
        texts.utc_text("2026-10-25 02:30:00", None, "c")
    for name in ("Nowhere/Else", "+99:00", "-14:60", ""):
        with pytest.raises(ConfigError, match="there is no time zone"):
            texts.find_zone(name)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda part: st.lists(part, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), part),
    max_leaves=20,
)


@settings(max_examples=40, deadline=None)
@given(json_values)
def test_json_is_spelled_as_the_servers_do_and_keeps_its_value(value: object) -> None:
    spelled = texts.json_text(json.dumps(value), Flavor.MYSQL)
    assert json.loads(spelled) == value
    assert spelled == json.dumps(value, ensure_ascii=False)


def test_json_numbers_keep_their_text() -> None:
    written = '{"a":12345678901234567890.10,"b":[1e20,-0.0,18446744073709551615]}'
    assert texts.json_text(written, Flavor.TIDB) == written
    assert (
        texts.json_text(written, Flavor.MYSQL)
        == '{"a": 12345678901234567890.10, "b": [1e20, -0.0, 18446744073709551615]}'
    )
    assert texts.json_text("[1.0E20,1.5E-7,1E2]", Flavor.MYSQL) == "[1e20, 0.00000015, 100.0]"
    assert exact_json.load("0.1") == Number("0.1")


@pytest.mark.parametrize("raw", [b'{"a":1,"a":2}', b"\xff", b"{", b"NaN", b"[" * 100_000, b"", b'{"a":1} x'])
def test_what_is_not_exact_json_is_refused(raw: bytes) -> None:
    with pytest.raises(UndecodableError):
        exact_json.load(raw)


def test_half_a_surrogate_pair_is_no_text() -> None:
    with pytest.raises(UndecodableError, match="surrogate"):
        exact_json.text(exact_json.load(b'"\\ud800"'), "c")
