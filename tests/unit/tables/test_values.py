"""Values that are equal although their texts are not, and the classes of differences."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.model import Lane
from migverify.tables.tasks import ReadColumn
from migverify.tables.values import column_diff, difference_kind, json_form, same_value, value_form


def reading(compare: str = "text", family: str = "text", tolerance: float | None = None) -> ReadColumn:
    return ReadColumn("c", family, Lane.VALUE, compare, binary=False, tolerance=tolerance)


JSON = reading("json", "json")
NUMBER = reading("number", "float")
LABELS = reading("labels", "labels")


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ('{"bb":1,"a":2}', '{"a": 2, "bb": 1}', True),
        ("[1,2]", "[2,1]", False),
        ("1", "1.0", True),
        ("1", "1e0", True),
        ("1500", "1.5e3", True),
        ("-1039514241563211.8", "-1.0395142415632118e15", True),
        ("0", "-0.0", True),
        ("9007199254740992", "9007199254740993", False),
        ("1e400", "1e401", False),
        ("true", "1", False),
        ("null", "0", False),
        ('"1"', "1", False),
        ('"\\u00e9"', '"é"', True),
        ('"a\tb"', '"a\\tb"', True),
        ('"N"', '"n"', False),
        ("{}", "[]", False),
        ("NaN", "nan", False),
        ("1e999999999999999999999", "1e999999999999999999998", False),
        ("not json", "other", False),
        ("[" * 200_000, "[" * 199_999, False),
    ],
)
def test_json_is_equal_by_value(one: str, other: str, equal: bool) -> None:
    assert same_value(JSON, one, other) is same_value(JSON, other, one) is equal
    assert (value_form(JSON, one) == value_form(JSON, other)) is equal


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES, VALUES)
def test_json_forms_are_equal_exactly_for_equal_values(one: Any, other: Any) -> None:
    def typed(value: Any) -> Any:
        if isinstance(value, dict):
            return ("object", tuple(sorted((k, typed(v)) for k, v in value.items())))
        if isinstance(value, list):
            return ("array", tuple(map(typed, value)))
        return (type(value).__name__, repr(value))

    forms = json_form(json.dumps(one)), json_form(json.dumps(other, ensure_ascii=False))
    assert (forms[0] == forms[1]) is (typed(one) == typed(other))


@given(st.decimals(allow_nan=False, allow_infinity=False), st.integers(0, 5))
def test_numbers_of_one_value_have_one_form(number: Decimal, zeros: int) -> None:
    text = f"{number:f}"
    longer = text + ("" if "." in text else ".") + "0" * (zeros + 1)
    assert same_value(NUMBER, text, longer)
    assert value_form(NUMBER, text) == value_form(NUMBER, longer) == value_form(NUMBER, str(number))


def test_a_tolerance_is_exact_arithmetic() -> None:
    near = reading("number", "float", 0.001)
    assert same_value(near, "1.000", "1.001")
    assert not same_value(near, "1.000", "1.0010000000000000000000000000000000000001")
    big = "1" + "0" * 40
    assert not same_value(near, big, big[:-1] + "1")
    assert same_value(near, big, big + ".0005")
    assert not same_value(near, None, "0")


def test_labels_are_sets() -> None:
    assert same_value(LABELS, "a,b", "b,a")
    assert not same_value(LABELS, "a", "a,b")
    assert not same_value(LABELS, "", None)


@pytest.mark.parametrize("column", [JSON, NUMBER, LABELS, reading(), reading("number", "float", 0.5)])
def test_no_text_has_the_form_of_null(column: ReadColumn) -> None:
    texts = ["0", "1"] if column.compare == "number" else ["N", "", '"N"', "null", "=N", "0"]
    assert value_form(column, None) not in {value_form(column, text) for text in texts}


@pytest.mark.parametrize(
    ("family", "source", "target", "kind"),
    [
        ("text", "", None, "empty-or-null"),
        ("integer", None, "0", "zero-or-null"),
        ("text", None, "x", "null"),
        ("text", "", "x", "empty"),
        ("text", "a ", "a", "trailing-space"),
        ("text", "Ab", "aB", "case"),
        ("text", "abcdef", "abc", "truncated"),
        ("text", "abc", "abcd", "appended"),
        ("text", "café", "cafÃ©", "charset"),
        ("text", "naïve", "na?ve", "charset"),
        ("text", "abc", "abd", "value"),
        ("integer", "5", "-5", "sign"),
        ("integer", "-1", "18446744073709551615", "sign"),
        ("integer", "7", "8", "value"),
        ("decimal", "1.0000001", "1.0000002", "value"),
        ("decimal", "10.1250", "10.1300", "precision"),
        ("decimal", "123456.789", "123456.79", "precision"),
        ("decimal", "1000.00", "1000.01", "value"),
        ("decimal", "10.50", "10.51", "value"),
        ("float", "1.0000001", "1.0000002", "precision"),
        ("integer", "9007199254740993", "9007199254740992", "precision"),
        ("datetime", "2026-01-01 00:00:00", "2026-01-01 01:00:00", "shifted +1h"),
        ("datetime", "2026-03-01 00:00:00.000", "2026-02-28 18:30:00.000", "shifted -5.5h"),
        ("datetime", "2026-01-01 00:00:00.123456", "2026-01-01 00:00:00.123000", "precision"),
        ("datetime", "2026-01-01 00:00:00.6", "2026-01-01 00:00:01", "precision"),
        ("datetime", "2026-01-01 00:00:00", "2026-01-01 00:00:01", "value"),
        ("time", "01:00:00.1", "01:00:00.2", "value"),
        ("datetime", "0000-00-00 00:00:00", "2026-01-01 00:00:00", "zero-date"),
        ("date", "2026-01-01", "2026-01-02", "value"),
        ("time", "-01:00:00", "01:00:00", "shifted +2h"),
    ],
)
def test_classes_of_differences(family: str, source: str | None, target: str | None, kind: str) -> None:
    assert difference_kind(reading(family=family), source, target) == kind


def test_a_masked_difference_keeps_no_value() -> None:
    masked = column_diff(reading(), "secret", "secret2", keep=False)
    assert (masked.source, masked.target, masked.masked, masked.kind) == (None, None, True, "appended")
    assert column_diff(reading(), "a", "b", keep=True).source == "a"
