"""The type table: which row joins which types, and what the expressions are."""

# ruff: noqa: E501  (tables read better unbroken)
from __future__ import annotations

from itertools import product

import pytest

from migverify.model import ColumnDef, ColumnPair, Lane
from migverify.sql.canonical import FAMILIES, TYPE_TABLE, find_rule, is_binary, pair_column, rule_named
from tests.definitions import column


def join(source: ColumnDef, target: ColumnDef, tolerance: float | None = None) -> ColumnPair:
    found = pair_column(source, target, tolerance)
    assert isinstance(found, ColumnPair)
    return found


def columns_of(source: str, target: str) -> ColumnPair:
    return join(column("a", source), column("b", target))


@pytest.mark.parametrize(
    ("source", "target", "rule", "texts"),
    [
        ("int", "bigint unsigned", "integer", ("`a`", "`b`")),
        ("int zerofill", "int", "integer", ("(`a`+0)", "`b`")),
        ("bit(8)", "tinyint", "bit and integer", ("CAST(`a` AS UNSIGNED)", "`b`")),
        ("decimal(10,2)", "decimal(12,2)", "decimal", ("`a`", "`b`")),
        ("decimal(10,2)", "decimal(10,4)", "decimal", ("CAST(`a` AS DECIMAL(12,4))", "`b`")),
        ("bigint", "decimal(10,2)", "decimal and integer", ("CAST(`a` AS DECIMAL(22,2))", "`b`")),
        ("date", "datetime(3)", "datetime", ("CONCAT(`a`,' 00:00:00.000')", "`b`")),
        ("datetime(1)", "datetime(3)", "datetime", ("CONCAT(`a`,'00')", "`b`")),
        ("time", "time(6)", "time", ("CONCAT(`a`,'.000000')", "`b`")),
        ("year", "int", "year and integer", ("(`a`+0)", "(`b`+0)")),
        ("enum('x')", "varchar(9)", "text", ("`a`", "`b`")),
        ("enum('x')", "enum('y')", "enum", ("`a`", "`b`")),
        ("varchar(9)", "blob", "bytes", ("`a`", "`b`")),
    ],
)  # fmt: skip
def test_texts(source: str, target: str, rule: str, texts: tuple[str, str]) -> None:
    found = columns_of(source, target)
    assert (found.rule, found.source_sql, found.target_sql) == (rule, *texts)


@pytest.mark.parametrize(("source", "target"), [("decimal(65,0)", "decimal(65,30)"), ("bigint", "decimal(65,60)")])
def test_what_no_decimal_holds_is_compared_by_value(source: str, target: str) -> None:
    found = columns_of(source, target)
    assert (found.rule, found.lane, found.string) == ("decimal, wide", Lane.VALUE, True)
    assert (found.source_sql, found.target_sql) == ("`a`", "`b`")


@pytest.mark.parametrize(
    ("source", "target", "rule"),
    [
        ("set('a','b')", "set('a','b')", "set"),
        ("set('a','b')", "set('a','b','c')", "set"),
        ("set('x','a','y','b')", "set('a','b')", "set"),
        ("set('a','b')", "set('b','a')", "set, redefined"),
        ("set('a','b','c')", "set('c','b','x')", "set, redefined"),
        # MySQL's catalog shows ? for characters outside of the BMP: their order is not known.
        ("set('?','a')", "set('a','😀')", "set, redefined"),
    ],
)
def test_sets_are_texts_only_where_one_order_holds_for_both(source: str, target: str, rule: str) -> None:
    found = columns_of(source, target)
    assert found.rule == rule
    assert found.lane is (Lane.EXACT if rule == "set" else Lane.VALUE)


@pytest.mark.parametrize(
    ("source", "target"), [("int", "varchar(9)"), ("date", "int"), ("geometry", "geometry"), ("json", "int")]
)
def test_no_rule_is_a_reason_and_no_guess(source: str, target: str) -> None:
    found = pair_column(column("a", source), column("b", target))
    assert isinstance(found, str)
    assert source in found
    assert target in found


def test_other_charsets_are_converted_on_their_side_only() -> None:
    found = join(column("a", "varchar(9)", collation="latin1_swedish_ci"), column("b", "varchar(9)"))
    assert found.source_sql == "CAST(`a` AS CHAR CHARACTER SET utf8mb4)"
    assert found.target_sql == "`b`"


def test_a_tolerance_moves_floats_to_the_value_lane_and_nothing_else() -> None:
    assert join(column("a", "float"), column("a", "float"), 0.1).lane is Lane.VALUE
    assert join(column("a", "float"), column("a", "float")).lane is Lane.EXACT
    exact = join(column("a", "decimal(9,2)"), column("a", "decimal(9,2)"), 0.1)
    assert (exact.lane, exact.tolerance) == (Lane.EXACT, None)


def test_only_rows_by_value_leave_the_exact_lane() -> None:
    for rule in TYPE_TABLE:
        assert (rule.lane is Lane.EXACT) is (rule.compare == "text")
        assert rule.string or rule.lane is Lane.EXACT
        assert rule.equates
        assert rule.blind_to
        assert rule_named(rule.name) is rule


def test_the_table_is_symmetric() -> None:
    kinds = ["int", "decimal(9,2)", "float", "date", "datetime", "timestamp", "time", "year", "varchar(9)", "blob", "enum('a')",
             "set('a')", "bit(3)", "json"]  # fmt: skip
    for one, other in product(kinds, kinds):
        forth, back = find_rule(column("a", one), column("a", other)), find_rule(column("a", other), column("a", one))
        assert forth is back, (one, other)


def test_binary_families() -> None:
    found = {kind for kind in set(FAMILIES) - {"enum", "set"} if is_binary(column("a", kind))}
    assert found == {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
