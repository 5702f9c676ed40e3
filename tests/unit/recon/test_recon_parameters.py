"""Typed parameters: a value becomes one literal, of any content, and nothing else of the text changes."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from migverify.errors import UsageError
from migverify.recon.model import ParameterValue, RulePlace, Window
from migverify.recon.parameters import RuleParameter, bind, literal, parameters_of, parse_given, parse_value
from migverify.recon.rule import RuleSet, values_for
from migverify.sql.lexer import TokenKind
from migverify.sql.tokens import tokens

PLACE = RulePlace("recon.yaml", 3)
LITERAL = re.compile(
    r"_utf8mb4 x'([0-9A-F]{2})*'|TIMESTAMP'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{6})?'|DATE'\d{4}-\d\d-\d\d'"
    r"|\(-\d+(\.\d+)?\)|\d+(\.\d+)?"
)

values = st.one_of(
    st.text(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30, places=10),
    st.datetimes(),
    st.dates(),
)


@given(values)
def test_no_value_can_leave_its_literal(value: ParameterValue) -> None:
    try:
        text = literal(value)
    except UsageError:
        assume(False)
    assert LITERAL.fullmatch(text)
    sql = "SELECT * FROM t WHERE a = :v AND b = ':v' -- :v\n AND c > -:v"
    bound = bind(sql, {"v": value})
    assert bound == f"SELECT * FROM t WHERE a = {text} AND b = ':v' -- :v\n AND c > -{text}"
    outside = [t.text for t in tokens(bound) if t.kind in (TokenKind.OPERATOR, TokenKind.COMMENT, TokenKind.QUOTED)]
    assert sum(mark in (";", "#", "@") for mark in outside) == 0
    assert sum(t.kind is TokenKind.COMMENT for t in tokens(bound)) == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [("", "_utf8mb4 x''"), ("a'\\", "_utf8mb4 x'61275C'"), ("é", "_utf8mb4 x'C3A9'"), (7, "7"), (-7, "(-7)"),
     (Decimal("0.10"), "0.10"), (Decimal("1E+3"), "1000.0"), (Decimal(-5), "(-5.0)"),
     (date(2026, 1, 2), "DATE'2026-01-02'"),
     (datetime(2026, 1, 2, 3, 4), "TIMESTAMP'2026-01-02 03:04:00'"),
     (datetime(33, 1, 2, 3, 4, 5, 6), "TIMESTAMP'0033-01-02 03:04:05.000006'")],
)  # fmt: skip
def test_literals(value: ParameterValue, expected: str) -> None:
    assert literal(value) == expected


@pytest.mark.parametrize(
    "value",
    ["\ud800", True, 1 << 64, -(1 << 63) - 1, Decimal("NaN"), Decimal("Infinity"), Decimal("1E+65"), Decimal("1E-31"),
     datetime(2026, 1, 1, tzinfo=UTC)],
)  # fmt: skip
def test_values_that_no_server_holds_are_refused(value: ParameterValue) -> None:
    with pytest.raises(UsageError, match=r"the value of :n "):
        literal(value, "n")


@pytest.mark.parametrize(
    "sql",
    ["':a'", '":a"', "`:a`", "/* :a */", "-- :a\n", "# :a\n", "x::a", "x:=a", "j->'$.x:a'", "a:b", "12:30", ": a", ":1",
     "'it''s :a'", "'\\':a'", "`a``:b`"],
)  # fmt: skip
def test_what_is_no_placeholder_stays(sql: str) -> None:
    assert bind(sql, {"a": 1, "b": 2}) == sql
    assert parameters_of(sql) == {}


def test_placeholders() -> None:
    assert parameters_of("a=:one AND b=(:two)+:one") == {"one": 2, "two": 14}
    assert bind("LIMIT :n,:n", {"n": 5}) == "LIMIT 5,5"
    with pytest.raises(UsageError, match=":b has no value"):
        bind("a = :a AND b = :b", {"a": 1})
    with pytest.raises(UsageError, match="leaves a ' open"):
        bind("a = 'x", {})


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [("integer", "-42", -42), ("integer", "18446744073709551615", 18446744073709551615),
     ("decimal", "0.10", Decimal("0.10")),
     ("decimal", "9007199254740993.0001", Decimal("9007199254740993.0001")),
     ("text", " a=b ", " a=b "), ("text", "", ""),
     ("date", "2026-02-28", date(2026, 2, 28)), ("datetime", "2026-02-28", datetime(2026, 2, 28)),
     ("datetime", "2026-02-28T09:00:00+09:00", datetime(2026, 2, 28))],
)  # fmt: skip
def test_values_are_read_by_type(kind: str, text: str, value: ParameterValue) -> None:
    found = parse_value(kind, text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [("integer", ""), ("integer", "1.0"), ("integer", "1e3"), ("integer", "٣"), ("integer", "18446744073709551616"),
     ("integer", "9" * 5000), ("decimal", "1e3"), ("decimal", "nan"), ("decimal", "0." + "1" * 31),
     ("decimal", "9" * 66),
     ("date", "2026-02-30"), ("date", "2026-2-3"), ("date", "20260203"), ("datetime", "soon"), ("text", "\ud800"),
     ("datetime", "0001-01-01T00:00:00+14:00")],
)  # fmt: skip
def test_values_of_another_type_are_refused(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match="this "):
        parse_value(kind, text)


def test_the_command_line() -> None:
    known = {
        "tenant": RuleParameter(type="integer").at(PLACE),
        "note": RuleParameter(type="text", default="x").at(PLACE),
    }
    assert parse_given(known, ["tenant=7", "note=a=b"]) == {"tenant": 7, "note": "a=b"}
    for given_, says in (
        (["tenant"], "the value is missing"), (["tennant=7"], "no such parameter"), (["tenant=x"], "whole number"),
        (["tenant=1", "tenant=2"], "given twice"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=says):
            parse_given(known, given_)


def test_values_for_a_window() -> None:
    known = {
        "tenant": RuleParameter(type="integer").at(PLACE),
        "note": RuleParameter(type="text", default="x").at(PLACE),
    }
    rules = RuleSet("recon.yaml", (), {}, known, (), "")
    window = Window(datetime(2026, 1, 1), datetime(2026, 1, 2))
    assert values_for(rules, {"tenant": 7}, window) == {
        "tenant": 7, "note": "x", "window_start": window.start, "window_end": window.end,
    }  # fmt: skip
    assert "window_start" not in values_for(rules, {"tenant": 0})
    with pytest.raises(UsageError, match=r"recon.yaml:3: the parameter tenant has no default"):
        values_for(rules, {})
