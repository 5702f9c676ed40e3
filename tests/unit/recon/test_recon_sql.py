"""Statements and texts of the recon road, without a server."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.db.session import ResultColumn
from migverify.errors import ConfigError, IncompleteReadError, ReadError
from migverify.model import ColumnDef
from migverify.recon import change_rows, change_streams
from migverify.recon.describe import column_of
from migverify.recon.relation import SqlRead
from migverify.sql import recon as sql
from migverify.sql import recon_order, union_text
from migverify.sql.key_range import KeyColumn

INT = ColumnDef("n", 1, "int", "int", False, precision=10)
TEXT = ColumnDef("t", 1, "varchar", "varchar(9)", True, charset="utf8mb4", collation="utf8mb4_bin", octet_length=36)


def decimal(precision: int, scale: int) -> ColumnDef:
    return ColumnDef("d", 1, "decimal", f"decimal({precision},{scale})", True, precision=precision, scale=scale)


def moment(kind: str, fsp: int) -> ColumnDef:
    return ColumnDef("m", 1, kind, kind, True, fsp=fsp)


# --- one text for many columns ---------------------------------------------------------------------------


def unified(*columns: ColumnDef) -> union_text.Unified:
    found = union_text.unify(columns)
    assert isinstance(found, union_text.Unified), found
    return found


def test_the_widest_scale_of_all_shards_counts() -> None:
    one = unified(decimal(10, 2), decimal(8, 4), decimal(12, 0))
    assert (one.widest.precision, one.widest.scale) == (16, 4)
    assert union_text.text_sql("x", decimal(10, 2), one) == "CAST(x AS DECIMAL(16,4))"
    assert union_text.text_sql("x", decimal(8, 4), one) == "x"


def test_fractions_and_dates_are_padded_to_the_finest() -> None:
    date = ColumnDef("m", 1, "date", "date", True)
    one = unified(date, moment("datetime", 0), moment("timestamp", 3))
    assert union_text.text_sql("x", date, one) == "CONCAT(x,' 00:00:00.000')"
    assert union_text.text_sql("x", moment("datetime", 0), one) == "CONCAT(x,'.000')"


def test_text_beside_bytes_is_hex_on_all_sides() -> None:
    blob = ColumnDef("b", 1, "blob", "blob", True, octet_length=65535)
    one = unified(TEXT, blob)
    assert one.binary
    assert not one.string
    for column in (TEXT, blob):
        assert union_text.text_sql("x", column, one) == "CONCAT('0x',LOWER(HEX(x)))"


@pytest.mark.parametrize(
    "columns",
    [(INT, TEXT), (INT, moment("datetime", 0)), (TEXT, replace(TEXT, data_type="point")), (decimal(5, 2), TEXT, INT)],
)
def test_columns_without_a_common_text_are_told(columns: tuple[ColumnDef, ...]) -> None:
    assert isinstance(union_text.unify(columns), str)


def test_json_and_wide_decimals_are_compared_by_value() -> None:
    assert unified(ColumnDef("j", 1, "json", "json", True), TEXT).compare == "json"
    assert unified(decimal(65, 30), decimal(65, 0)).compare == "number"


def test_a_text_that_can_be_lost_is_watched() -> None:
    blob = ColumnDef("b", 1, "blob", "blob", True, octet_length=65535)
    assert union_text.lost_sql("b", blob, "HEX(b)", 65536) == "(b IS NOT NULL AND HEX(b) IS NULL)"
    assert not union_text.lost_sql("b", blob, "HEX(b)", 1 << 26)
    assert not union_text.lost_sql("b", blob, "b", 65536), "a column as it is comes whole"
    assert union_text.lost_sql("b", replace(blob, octet_length=None), "HEX(b)", 1 << 30), "a length that is not known"


# --- statements ------------------------------------------------------------------------------------------

READ = SqlRead("e", "t", ("k",), ("a", "b"), strings=(False, True, False))


def test_a_read_selects_keys_values_and_what_tells_that_they_are_whole() -> None:
    assert sql.read_sql(READ, "x=1") == "SELECT k, a, b FROM t WHERE x=1"
    grouped = replace(READ, grouped=True, where="y=2", having="COUNT(*)>1", lost="l")
    assert sql.read_sql(grouped, "x=1") == (
        "SELECT k, a, b, COUNT(*), SUM(l) FROM t WHERE (y=2) AND (x=1) GROUP BY 1 HAVING COUNT(*)>1"
    )
    assert "HAVING" not in sql.read_sql(grouped, having=False)
    assert sql.split_row(grouped, (b"1", b"2", None, b"7", b"0")) == ((b"1",), (b"2", None), 7)
    with pytest.raises(IncompleteReadError, match="max_allowed_packet"):
        sql.split_row(grouped, (b"1", b"2", None, b"7", b"1"))


def test_the_frame_leads_with_what_holds_no_comma_and_leaves_carried_values_out() -> None:
    assert sql.row_frame(READ) == "CONCAT_WS(',',IFNULL(k,'N'),IFNULL(b,'N'),IFNULL(LENGTH(a),'N'),a)"
    assert sql.row_frame(replace(READ, lost="l")).startswith("IF(l,NULL,CONCAT_WS(")


def test_nothing_is_grouped_by_an_alias() -> None:
    # A table may have a column of that name, and it would be taken instead.
    for text in (
        sql.groups_counted_sql("t", ("k", "j")),
        sql.read_sql(replace(READ, grouped=True)),
    ):
        assert " GROUP BY 1" in text


def test_windows_need_a_time() -> None:
    assert sql.window_condition("`at`", moment("datetime", 6), "a", "b") == "`at`>='a' AND `at`<'b'"
    with pytest.raises(ReadError, match="windows need"):
        sql.window_condition("n", INT, "a", "b")


def test_sums_are_exact_or_refused() -> None:
    assert sql.exact_sum("x", decimal(20, 4), 6) == "CAST(SUM(x) AS DECIMAL(65,6))"
    assert sql.exact_sum("x", INT, 0) == "CAST(SUM(x) AS DECIMAL(65,0))"
    for column in (ColumnDef("f", 1, "double", "double", True), TEXT, decimal(65, 4)):
        with pytest.raises(ReadError):
            sql.exact_sum("x", column, 4)


def test_exact_keys_are_compared_by_bytes() -> None:
    columns = [KeyColumn("`g`", "`g`", "text", nullable=True), KeyColumn("`n`", "`n`", "integer", nullable=True)]
    text = sql.exact_keys_condition(columns, [("é", "1"), (None, "2")])
    assert "CAST(`g` AS BINARY)=x'C3A9'" in text
    assert "`g` IS NULL AND CAST(`n` AS BINARY)=x'32'" in text
    assert sql.exact_keys_condition(columns, []) == "1=0"


@pytest.mark.parametrize("text", ["it's", "\\", "'; DROP TABLE t; --", "é", "😀", ""])
def test_no_value_ends_its_quotes(text: str) -> None:
    columns = [KeyColumn("`g`", "`g`", "text", nullable=True)]
    made = [
        sql.exact_keys_condition(columns, [(text,)]), union_text.mapped_sql("`g`", [(text, text)]),
        recon_order.illegal_condition([(text, [text])], [text], [text]),
    ]  # fmt: skip
    for statement in made:
        outside = "".join(part for place, part in enumerate(statement.replace("''", "").split("'")) if place % 2 == 0)
        assert "DROP" not in outside
        assert "\\" not in statement


# --- what the protocol tells -----------------------------------------------------------------------------


def told(code: int, length: int = 11, flags: int = 0, decimals: int = 0, charset: int = 63) -> ColumnDef:
    return column_of(ResultColumn("c", code, charset, length, flags, decimals), 1, "a query")


def test_types_of_a_result() -> None:
    assert told(3, flags=32).column_type == "int unsigned"
    assert told(3, flags=96).column_type == "int unsigned zerofill"
    assert (told(246, 22, decimals=4).precision, told(246, 22, decimals=4).scale) == (20, 4)
    assert told(246, 10, flags=32).precision == 10
    assert told(246, 67, decimals=30).precision == 65
    assert (told(12, decimals=6).data_type, told(12, decimals=6).fsp) == ("datetime", 6)
    assert told(252).data_type == "longblob"
    assert told(254, charset=46, flags=256).data_type == "longtext", "ENUM is text"
    assert told(254, charset=63, flags=256).data_type == "longtext"
    assert all(told(code).nullable for code in (3, 246, 12, 253, 245, 16, 13))


@pytest.mark.parametrize(("code", "decimals"), [(6, 0), (255, 0), (242, 0), (12, 31), (246, 31)])
def test_what_the_protocol_leaves_open_is_refused(code: int, decimals: int) -> None:
    with pytest.raises(ConfigError, match="does not report"):
        told(code, decimals=decimals)


# --- texts of a change stream ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "text", "expected"),
    [(INT, "007", "7"), (INT, "-0", "0"), (replace(INT, data_type="bit"), "0x0201", "513"),
     (decimal(20, 4), "1.5", "1.5000"), (decimal(65, 30), "1", "1." + "0" * 30), (decimal(9, 0), "7", "7"),
     (moment("datetime", 6), "2026-01-31", "2026-01-31 00:00:00.000000"),
     (moment("datetime", 0), "2026-01-31 01:02:03", "2026-01-31 01:02:03"),
     (moment("time", 2), "-01:02:03.2", "-01:02:03.20"),
     (TEXT, "é", "é"), (ColumnDef("b", 1, "longblob", "x", True), "é", "0xc3a9")],
)  # fmt: skip
def test_texts_of_the_binlog_become_canonical(column: ColumnDef, text: str, expected: str) -> None:
    assert change_rows._converter(column, binary=False)(text) == expected


def test_bytes_of_the_binlog_stay_and_floats_are_refused() -> None:
    assert change_rows._converter(ColumnDef("b", 1, "longblob", "x", True), binary=True)("0xff") == "0xff"
    with pytest.raises(ConfigError, match="exact common text"):
        change_rows._converter(ColumnDef("f", 1, "double", "double", True), binary=False)


@given(st.datetimes(min_value=datetime(1990, 1, 1), max_value=datetime(2100, 1, 1)))
def test_moments_come_back(at: datetime) -> None:
    micros = change_streams.micros(f"{at:%Y-%m-%d %H:%M:%S.%f}")
    assert change_rows._text(micros) == f"{at:%Y-%m-%d %H:%M:%S.%f}"
    assert round(at.replace(tzinfo=UTC).timestamp() * 1_000_000) == micros
