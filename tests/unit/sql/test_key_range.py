"""Key ranges, literals and bounds as SQL text."""

# ruff: noqa: E501  (tables read better unbroken)
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.errors import ReadError
from migverify.model import KeyRange
from migverify.sql.key_range import (
    KeyColumn,
    compared,
    fits_charset,
    keys_predicate,
    literal,
    predicate,
    sorts_equally,
    sure_bound,
    sure_condition,
)
from tests.definitions import column


def key(
    name: str,
    family: str = "integer",
    *,
    nullable: bool = False,
    charset: str = "utf8mb4",
    collation: str = "utf8mb4_bin",
) -> KeyColumn:
    return KeyColumn(f"`{name}`", f"`{name}`", family, nullable, charset, collation)


A, B, S = key("a"), key("b", nullable=True), key("s", "text")


@pytest.mark.parametrize(
    ("columns", "key_range", "sql"),
    [
        ([A], KeyRange(), "1=1"),
        ([A], KeyRange(("7",), None), "`a` > 7"),
        ([A], KeyRange(None, ("9",)), "`a` <= 9"),
        ([A, S], KeyRange(("7",), ("9", "x")), "`a` > 7 AND `a` <= 9 AND ((`a` < 9) OR (`a` = 9 AND `s` <= 'x'))"),
        ([A, S], KeyRange(("7", "x"), None), "`a` >= 7 AND ((`a` > 7) OR (`a` = 7 AND `s` > 'x'))"),
        ([A, B], KeyRange(("7",), None), "`b` IS NOT NULL AND `a` > 7"),
        ([A, B], KeyRange(nulls=True), "(`b` IS NULL)"),
        ([A], KeyRange(nulls=True), "1=0"),
    ],
)
def test_predicates(columns: list[KeyColumn], key_range: KeyRange, sql: str) -> None:
    assert predicate(columns, key_range) == sql


@pytest.mark.parametrize("bound", [(), ("1", "2"), (None,)])
def test_bounds_that_do_not_fit_are_refused(bound: tuple[str | None, ...]) -> None:
    with pytest.raises(ReadError):
        predicate([A], KeyRange(bound))


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("integer", "1 OR 1=1"), ("integer", ""), ("integer", "1e9"), ("integer", "٣"), ("decimal", "1."), ("bit", "0x1"),
        ("datetime", "2026'"), ("time", ""), ("date", "now()"), ("binary", "61"), ("integer", "1\n"), ("date", "2026-01-01\n"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_value_of_its_family_gets_into_no_statement(family: str, text: str) -> None:
    with pytest.raises(ReadError):
        literal(key("k", family), text)


def test_literals() -> None:
    assert literal(A, "-7") == "-7"
    assert literal(key("d", "decimal"), "-0.50") == "-0.50"
    assert literal(key("t", "time"), "-838:59:59.000000") == "'-838:59:59.000000'"
    assert literal(key("b", "binary"), "0x00ff") == "x'00FF'"
    assert literal(S, "it's") == "'it''s'"
    assert literal(S, "\\") == "_utf8mb4 0x5C"


@given(st.text(max_size=20))
def test_no_text_ends_its_quotes(text: str) -> None:
    written = literal(S, text) if not any(0xD800 <= ord(c) < 0xE000 for c in text) else "''"
    inner = written.removeprefix("_utf8mb4 0x")
    assert "'" not in inner[1:-1].replace("''", "")
    assert "\\" not in written


@pytest.mark.parametrize(
    ("charset", "text", "fits"),
    [
        ("utf8mb4", "😀", True), ("utf8mb3", "表", True), ("utf8mb3", "😀", False), ("latin1", "é€", True), ("latin1", "表", False),
        ("ascii", "é", False), ("gbk", "a", True), ("gbk", "表", False),
    ],
)  # fmt: skip
def test_texts_are_compared_in_a_charset_that_can_hold_them(charset: str, text: str, fits: bool) -> None:
    assert fits_charset(charset, text) is fits
    wide = "CAST(`k` AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin"
    assert compared(key("k", "text", charset=charset), text) == ("`k`" if fits else wide)


def test_keys_with_null_and_with_foreign_characters_stand_apart() -> None:
    latin = key("k", "text", charset="latin1")
    assert keys_predicate([A], [("1",), ("2",)]) == "(`a` IN (1, 2))"
    assert keys_predicate([A, S], [("1", "x"), ("2", "y")]) == "((`a`, `s`) IN ((1, 'x'), (2, 'y')))"
    assert keys_predicate([A, B], [("1", None)]) == "((`a` = 1 AND `b` IS NULL))"
    assert keys_predicate([latin], [("a",), ("表",)]) == (
        "(`k` IN ('a') OR CAST(`k` AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin IN (_utf8mb4 0xE8A1A8))"
    )
    assert keys_predicate([A], []) == "1=0"


@pytest.mark.parametrize(
    ("collation", "text", "sure"),
    [
        ("utf8mb4_bin", "表😀 x", True), ("utf8mb4_bin", "a\t", False), ("utf8mb4_bin", "\0", False), ("utf8mb4_general_ci", "É", True),
        ("utf8mb4_0900_ai_ci", "Ab ~", True), ("utf8mb4_0900_ai_ci", "é", False), ("utf8mb4_unicode_ci", "\u2028", False),
    ],
)  # fmt: skip
def test_bounds_are_texts_that_both_servers_sort_alike(collation: str, text: str, sure: bool) -> None:
    assert sure_bound([A, key("s", "text", collation=collation)], ("1", text)) is sure


def test_the_condition_of_sure_bounds_speaks_of_texts_only() -> None:
    assert sure_condition([A]) == ""
    assert sure_condition([A, S]) == "`s` NOT REGEXP '[[:cntrl:]]'"
    assert sure_condition([key("s", "text", collation="utf8mb4_0900_ai_ci")]) == "`s` NOT REGEXP '[^ -~]'"


@pytest.mark.parametrize(
    ("source", "target", "alike"),
    [
        ("int", "bigint unsigned", True), ("int", "decimal(9,2)", True), ("bit(3)", "int", True), ("date", "datetime", True),
        ("timestamp", "timestamp", True), ("timestamp", "datetime", False), ("blob", "varbinary(9)", True), ("blob", "varchar(9)", False),
        ("varchar(9)", "text", True), ("float", "float", False), ("enum('a')", "enum('a')", False), ("json", "json", False),
    ],
)  # fmt: skip
def test_types_that_sort_alike(source: str, target: str, alike: bool) -> None:
    assert sorts_equally(column("a", source), column("a", target)) is alike


@pytest.mark.parametrize(
    ("source", "target", "alike"),
    [
        ("utf8mb4_bin", "utf8mb4_bin", True), ("utf8mb3_bin", "utf8mb4_bin", True), ("utf8mb4_0900_ai_ci", "utf8mb4_bin", False),
        ("utf8mb4_0900_bin", "utf8mb4_bin", False), ("utf8mb4_0900_ai_ci", "utf8mb4_0900_ai_ci", True),
        ("latin1_swedish_ci", "latin1_swedish_ci", False), ("utf8mb4_de_pb_0900_ai_ci", "utf8mb4_de_pb_0900_ai_ci", False),
        ("utf8mb3_general_ci", "utf8_general_ci", True),
    ],
)  # fmt: skip
def test_collations_that_sort_alike(source: str, target: str, alike: bool) -> None:
    ours, theirs = column("a", "varchar(9)", collation=source), column("a", "varchar(9)", collation=target)
    assert sorts_equally(ours, theirs) is alike
