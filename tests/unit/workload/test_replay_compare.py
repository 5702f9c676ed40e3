"""Judging: golden pairs that are equal, that differ, that prove nothing; and the properties of the judge."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.workload.replay.assumed import FOR_DIFFERENCES
from migverify.workload.replay.cells import CellKind, near
from migverify.workload.replay.compare import judge
from migverify.workload.replay.model import Answer, Captured, Cell, DifferenceSeverity, JudgedCall, Judgement
from migverify.workload.replay.safety import UNLOCKED
from tests.unit.replaying import (
    BIT,
    BLOB,
    DATETIME,
    DECIMAL,
    DOUBLE,
    FLOAT,
    INT,
    JSON,
    TEXT,
    TIME,
    Row,
    answer,
    column,
    failed,
    judged,
    meaning,
    observe,
)

SAME, DIFFERENT = Judgement.SAME, Judgement.DIFFERENT
INDETERMINATE, UNJUDGED = Judgement.INDETERMINATE, Judgement.UNJUDGED


def aspects(found: JudgedCall) -> set[str]:
    return {one.aspect for one in found.differences}


EQUAL_CELLS: list[tuple[int, bytes, bytes, set[str]]] = [
    (INT, b"7", b"7", set()), (INT, b"00007", b"7", {"form"}), (INT, b"9007199254740993", b"9007199254740993", set()),
    (DECIMAL, b"1.50", b"1.5", {"decimal-scale"}), (DECIMAL, b"-0.00", b"0", {"decimal-scale"}),
    (FLOAT, b"0.123457", b"0.12345679", set()), (FLOAT, b"1e10", b"10000000000", set()),
    (FLOAT, b"3.40282e38", b"340282350000000000000000000000000000000", set()),
    (DOUBLE, b"0.30000000000000004", b"0.3", set()), (DOUBLE, b"1e300", b"1" + b"0" * 300, set()),
    (DOUBLE, b"-0", b"0", set()), (BIT, b"\x00\x05", b"\x05", {"form"}),
    (JSON, b'{"b": 1, "a": [1, 2]}', b'{"a":[1,2],"b":1}', {"json-text"}),
    (JSON, b'{"a": 1}', b'{"a": 1.0}', {"json-form"}),
    (JSON, b"1e2", b"100.0", {"json-text"}),
    (DATETIME, b"2024-01-01 00:00:00", b"2024-01-01 00:00:00.000000", {"temporal-fraction"}),
    (TIME, b"-12:00:00.100", b"-12:00:00.1", {"temporal-fraction"}), (TEXT, b"x", b"x", set()),
]  # fmt: skip


@pytest.mark.parametrize(("code", "first", "second", "found"), EQUAL_CELLS)
def test_the_same_value_in_another_form_is_the_same(code: int, first: bytes, second: bytes, found: set[str]) -> None:
    columns = [column("v", code)]
    one = judged("SELECT v FROM t WHERE id = 1", answer(columns, [(first,)]), answer(columns, [(second,)]))
    assert one.state is SAME
    assert aspects(one) == found
    assert all(each.severity is DifferenceSeverity.METADATA for each in one.differences)


UNLIKE_CELLS: list[tuple[int, Cell, Cell, str, str]] = [
    (INT, b"9007199254740993", b"9007199254740992", "value", ""), (INT, b"1", None, "null", ""),
    (TEXT, b"", None, "null", "NULL and empty"), (TEXT, b"a", b"A", "value", "case"),
    (TEXT, b"a", b"a ", "value", "trailing spaces"), (TEXT, "\u00e9".encode(), b"e", "value", ""),
    (TEXT, "\u00e9".encode(), "\u00c3\u00a9".encode(), "value", "character set"),
    (DECIMAL, b"1.50", b"1.51", "value", "decimal"),
    (DECIMAL, b"0.1000000000000000000000000000001", b"0.1", "value", ""),
    (FLOAT, b"0.123457", b"0.12345", "float", ""), (FLOAT, b"3.14286", b"3.1429", "float", ""),
    (FLOAT, b"0", b"0.0000001", "float", ""),
    (DOUBLE, b"0.3", b"0.300000001", "float", ""), (DOUBLE, b"1", b"-1", "float", ""),
    (JSON, b'{"a": 9007199254740993}', b'{"a": 9007199254740992}', "json", ""),
    (JSON, b"[1, 2]", b"[2, 1]", "json", ""),
    (JSON, b"true", b"1", "json", ""), (JSON, b'"1"', b"1", "json", ""), (JSON, b"null", None, "null", ""),
    (DATETIME, b"2024-01-01 00:00:00", b"2024-01-01 01:00:00", "temporal", ""),
    (DATETIME, b"2024-01-01 00:00:00.1", b"2024-01-01 00:00:00.10001", "temporal", ""),
    (BLOB, b"\x00", b"", "value", ""), (BIT, b"\x05", b"\x06", "value", ""),
]  # fmt: skip


@pytest.mark.parametrize(("code", "first", "second", "aspect", "detail"), UNLIKE_CELLS)
@pytest.mark.parametrize("turned", [False, True])
def test_another_value_differs(code: int, first: Cell, second: Cell, aspect: str, detail: str, turned: bool) -> None:
    if turned:
        first, second = second, first
    columns = [column("id", INT), column("v", code)]
    one = judged("SELECT id, v FROM t", answer(columns, [(b"1", first)]), answer(columns, [(b"1", second)]))
    assert one.state is DIFFERENT
    assert aspects(one) == {aspect}
    assert detail in one.differences[0].detail
    assert one.differences[0].column == "v"
    assert one.differences[0].severity is DifferenceSeverity.BLOCKER


def test_kinds_that_differ_compare_as_numbers_or_by_their_bytes() -> None:
    source, target = [column("n", DECIMAL)], [column("n", DOUBLE)]
    one = judged("SELECT SUM(a) n FROM t", answer(source, [(b"0.30",)]), answer(target, [(b"0.30000000000000004",)]))
    assert one.state is SAME
    assert aspects(one) == {"type"}
    text = judged("SELECT d n FROM t", answer([column("n", DATETIME)], [(b"2024-01-01 00:00:00",)]),
                  answer([column("n", TEXT)], [(b"2024-01-01 00:00:00.0",)]))  # fmt: skip
    assert text.state is DIFFERENT


A, B = column("a", INT), column("b", TEXT)
AB = [A, B]


def rows(*texts: str) -> list[Row]:
    return [tuple(None if part == "NULL" else part.encode() for part in text.split(",")) for text in texts]


ORDERS: list[tuple[str, list[Row], list[Row], Judgement, set[str]]] = [
    ("SELECT a, b FROM t", rows("1,x", "2,y"), rows("2,y", "1,x"), SAME, set()),
    ("SELECT a, b FROM t", rows("1,x", "1,x", "2,y"), rows("1,x", "2,y", "2,y"), DIFFERENT, {"value"}),
    ("SELECT a, b FROM t ORDER BY id", rows("1,x", "2,y"), rows("2,y", "1,x"), DIFFERENT, {"order"}),
    ("SELECT a, b FROM t ORDER BY a", rows("1,x", "1,y", "2,z"), rows("1,y", "1,x", "2,z"), SAME, set()),
    ("SELECT a, b FROM t ORDER BY 1", rows("1,x", "2,y"), rows("2,y", "1,x"), DIFFERENT, {"order"}),
    ("SELECT a, b FROM t ORDER BY t.a", rows("1,x", "2,y"), rows("2,y", "1,x"), DIFFERENT, {"order"}),
    ("SELECT a, b FROM t ORDER BY c", rows("1,x", "2,y"), rows("2,y", "1,x"), INDETERMINATE, {"order"}),
    ("SELECT a, b FROM t ORDER BY c", rows("1,x", "2,y"), rows("2,y", "1,z"), DIFFERENT, {"value"}),
    ("SELECT a, b FROM t ORDER BY a, c", rows("1,x", "1,y"), rows("1,y", "1,x"), INDETERMINATE, {"order"}),
    ("SELECT a, b FROM t ORDER BY a, c", rows("1,x", "2,z"), rows("2,z", "1,x"), DIFFERENT, {"order"}),
    ("SELECT a, b FROM t ORDER BY b", rows("1,x", "2,X"), rows("2,X", "1,x"), INDETERMINATE, {"order"}),
    ("SELECT a, b FROM t ORDER BY b", rows("1,a", "2,B"), rows("2,B", "1,a"), DIFFERENT, {"order"}),
    ("SELECT a, b FROM t LIMIT 2", rows("1,x", "2,y"), rows("1,x", "3,z"), INDETERMINATE, {"value"}),
    ("SELECT a, b FROM t LIMIT 2", rows("1,x", "2,y"), rows("1,x"), DIFFERENT, {"row-count", "rows"}),
    ("SELECT a, b FROM t LIMIT 2", rows("1,x", "2,y"), rows("2,y", "1,x"), SAME, set()),
    ("SELECT a, b FROM t ORDER BY a LIMIT 2", rows("1,x", "2,y"), rows("1,x", "2,z"), INDETERMINATE, {"value"}),
    ("SELECT a, b FROM t ORDER BY a LIMIT 2", rows("1,x", "2,y"), rows("1,z", "2,y"), DIFFERENT, {"value"}),
    ("SELECT a, b FROM t ORDER BY a LIMIT 2", rows("1,x", "2,y"), rows("1,x", "3,y"), DIFFERENT, {"value"}),
    ("SELECT a, b FROM t ORDER BY a LIMIT 1, 2", rows("1,x", "2,y"), rows("1,z", "2,y"), INDETERMINATE, {"value"}),
    ("SELECT a, b FROM t ORDER BY id LIMIT 2", rows("1,x", "2,y"), rows("1,x", "2,z"), DIFFERENT, {"value"}),
    ("SELECT a, b FROM (SELECT * FROM t LIMIT 2) x", rows("1,x"), rows("1,z"), INDETERMINATE, {"value"}),
    ("WITH c AS (SELECT * FROM t) SELECT a, b FROM c", rows("1,x"), rows("1,z"), DIFFERENT, {"value"}),
    ("(SELECT a, b FROM t) UNION ALL (SELECT a, b FROM t)", rows("1,x"), rows("1,z"), DIFFERENT, {"value"}),
    ("TABLE t", rows("1,x"), rows("1,z"), DIFFERENT, {"value"}),
    ("SELECT a, b FROM t", rows("1,x", "2,y"), rows("1,x", "2,y", "3,z"), DIFFERENT, {"row-count", "rows"}),
    ("SELECT a, b FROM t", rows(), rows("1,x"), DIFFERENT, {"row-count", "rows"}),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "first", "second", "state", "found"), ORDERS)
@pytest.mark.parametrize("turned", [False, True])
def test_rows_are_compared_as_far_as_the_text_determines_them(
    sql: str, first: list[Row], second: list[Row], state: Judgement, found: set[str], turned: bool
) -> None:
    if turned:
        first, second = second, first
    one = judged(sql, answer(AB, first), answer(AB, second))
    assert (one.state, aspects(one)) == (state, found)
    assert bool(one.reason) == (state is INDETERMINATE)


VOLATILE: list[tuple[str, Row, Row, Judgement]] = [
    ("SELECT a, UUID() FROM t", (b"1", b"u1"), (b"1", b"u2"), SAME),
    ("SELECT a, UUID() FROM t", (b"1", b"u1"), (b"2", b"u2"), DIFFERENT),
    ("SELECT a, NOW() FROM t", (b"1", b"u1"), (b"2", b"u2"), DIFFERENT),
    ("SELECT a, b FROM t WHERE c < NOW()", (b"1", b"x"), (b"2", b"x"), DIFFERENT),  # the clock was set on both sides
    ("SELECT a, b FROM t WHERE c < SYSDATE()", (b"1", b"x"), (b"2", b"x"), INDETERMINATE),
    ("SELECT a, b FROM t WHERE c < SYSDATE()", (b"1", b"x"), (b"1", b"x"), SAME),
    ("SELECT a, GROUP_CONCAT(b) FROM t GROUP BY a", (b"1", b"x,y"), (b"1", b"y,x"), INDETERMINATE),
    ("SELECT a, GROUP_CONCAT(b) FROM t GROUP BY a", (b"1", b"x,y"), (b"1", b"x,y"), SAME),
    ("SELECT a, ROW_NUMBER() OVER (ORDER BY c) FROM t", (b"1", b"1"), (b"1", b"2"), INDETERMINATE),
    ("SELECT a, ROW_NUMBER() OVER (ORDER BY c) FROM t", (b"1", b"1"), (b"2", b"1"), DIFFERENT),
    ("SELECT UUID() a, GROUP_CONCAT(b) FROM t", (b"1", b"x"), (b"2", b"x"), SAME),
    ("SELECT a, GROUP_CONCAT(b) FROM t GROUP BY a", (b"1", b"x,y"), (b"2", b"x,y"), DIFFERENT),
    ("SELECT a, GROUP_CONCAT(b ORDER BY b) FROM t GROUP BY a", (b"1", b"x,y"), (b"1", b"y,x"), DIFFERENT),
    ("SELECT a, CONNECTION_ID() + 1 c FROM t ORDER BY c", (b"1", b"5"), (b"2", b"6"), INDETERMINATE),
    ("SELECT a, (SELECT MAX(b) FROM t WHERE c > RAND()) FROM t", (b"1", b"5"), (b"1", b"6"), INDETERMINATE),
    ("SELECT DISTINCT a, RAND() FROM t", (b"1", b"5"), (b"2", b"6"), INDETERMINATE),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "first", "second", "state"), VOLATILE)
def test_volatile_columns_are_left_out_and_the_rest_is_compared(
    sql: str, first: Row, second: Row, state: Judgement
) -> None:
    one = judged(sql, answer(AB, [first]), answer(AB, [second]))
    assert one.state is state
    if state is SAME and first != second:
        assert one.details["masked"] in ("a", "b")
        assert one.details["unproven"] == f"left out: {one.details['masked']}"


def test_an_equal_answer_that_is_not_determined_says_so() -> None:
    one = judged("SELECT a, b FROM t LIMIT 1", answer(AB, rows("1,x")), answer(AB, rows("1,x")))
    assert one.state is SAME
    assert "LIMIT" in one.details["unproven"]
    assert "unproven" not in judged("SELECT a, b FROM t", answer(AB, rows("1,x")), answer(AB, rows("1,x"))).details


OUTCOMES: list[tuple[int | None, int, int, Judgement, DifferenceSeverity | None]] = [
    (0, 0, 1064, DIFFERENT, DifferenceSeverity.BLOCKER), (0, 0, 1235, DIFFERENT, DifferenceSeverity.BLOCKER),
    (None, 0, 8108, DIFFERENT, DifferenceSeverity.BLOCKER), (0, 1062, 0, DIFFERENT, DifferenceSeverity.REVIEW),
    (1062, 1062, 0, DIFFERENT, DifferenceSeverity.BLOCKER), (None, 3819, 0, DIFFERENT, DifferenceSeverity.BLOCKER),
    (3819, 3819, 0, DIFFERENT, DifferenceSeverity.BLOCKER), (None, 1292, 0, DIFFERENT, DifferenceSeverity.REVIEW),
    (1062, 1062, 1062, SAME, None),
    (1213, 1213, 9007, SAME, DifferenceSeverity.METADATA),
    (1054, 1054, 1064, DIFFERENT, DifferenceSeverity.REVIEW), (0, 1146, 1146, INDETERMINATE, None),
    (None, 1146, 1146, INDETERMINATE, None), (None, 1064, 1064, SAME, None),
    (1062, 0, 1062, INDETERMINATE, DifferenceSeverity.REVIEW),
    (0, 1205, 0, INDETERMINATE, DifferenceSeverity.REVIEW), (0, 1205, 1064, DIFFERENT, DifferenceSeverity.BLOCKER),
    (0, 1205, 1062, INDETERMINATE, DifferenceSeverity.REVIEW), (9999, 9999, 9998, DIFFERENT, DifferenceSeverity.REVIEW),
]  # fmt: skip


@pytest.mark.parametrize(("captured", "source", "target", "state", "severity"), OUTCOMES)
def test_outcomes_are_compared_by_class(
    captured: int | None, source: int, target: int, state: Judgement, severity: DifferenceSeverity | None
) -> None:
    fine = answer(AB, rows("1,x"))
    one = judged(
        "SELECT a, b FROM t", failed(source) if source else fine, failed(target) if target else fine,
        captured=Captured(captured),
    )  # fmt: skip
    assert one.state is state
    assert {each.severity for each in one.differences} == ({severity} if severity else set())


CAPTURES: list[tuple[Captured, int, Judgement]] = [
    (Captured(0), 0, SAME), (Captured(0), 1064, DIFFERENT), (Captured(1062), 1062, SAME),
    (Captured(1062), 0, DIFFERENT),
    (Captured(None), 0, UNJUDGED), (Captured(None), 1064, INDETERMINATE), (Captured(None, rows_sent=1), 0, SAME),
    (Captured(0, rows_sent=2), 0, INDETERMINATE), (Captured(1205), 0, INDETERMINATE),
]  # fmt: skip


@pytest.mark.parametrize(("captured", "target", "state"), CAPTURES)
def test_without_the_source_the_capture_is_the_oracle(captured: Captured, target: int, state: Judgement) -> None:
    answered = failed(target) if target else answer(AB, rows("1,x"))
    one = judged("SELECT a, b FROM t", [], [answered], captured=captured)
    assert one.state is state
    assert state is UNJUDGED or "shallow" in one.details
    assert one.source_latency is None
    assert one.target_latency == 1_000


def test_what_was_not_asked_or_not_answered_is_unjudged() -> None:
    fine = answer(AB, rows("1,x"))
    sql = "SELECT a, b FROM t"
    for one in (
        judged(sql, fine, Answer(unanswered="connection lost", rows=None)),
        judged(sql, Answer(unanswered="time limit", rows=None), fine),
        judged(sql, [], []), judged(sql, [fine], []), judged(sql, [], [], skipped="write that is not permitted"),
    ):  # fmt: skip
        assert one.state is UNJUDGED
        assert one.reason


def test_racy_and_stale_statements_never_differ_alone() -> None:
    first, second = answer(AB, rows("1,x")), answer(AB, rows("1,y"))
    sql = "SELECT a, b FROM t"
    assert judged(sql, first, second, racy="s2").state is INDETERMINATE
    assert judged(sql, first, second, stale=True).state is INDETERMINATE
    assert judged(sql, first, failed(1213), racy="s2").state is INDETERMINATE
    assert judged(sql, first, first, racy="s2").state is SAME
    # no race makes a syntax error
    assert judged(sql, first, failed(1064), racy="s2").state is DIFFERENT


def test_a_side_that_differs_from_itself_is_noise() -> None:
    first, second = answer(AB, rows("1,x")), answer(AB, rows("1,y"))
    sql = "SELECT a, b FROM t"
    one = judged(sql, [first, second], [second, second])
    assert (one.state, one.noisy, one.repeats) == (INDETERMINATE, "the source", 2)
    assert judged(sql, [first, first], [second, second]).state is DIFFERENT
    assert judged(sql, [first, first], [first, second]).noisy == "the target"
    assert judged(sql, [first, first], [first, second]).state is SAME


def test_what_surrounds_rows_is_metadata_of_its_own() -> None:
    first = answer([column("a", INT, length=11, flags=1)], rows("1"))
    second = answer([column("a", INT, length=20, flags=33)], rows("1"))
    one = judged("SELECT a FROM t", first, second)
    assert (one.state, aspects(one)) == (SAME, {"length", "flags"})
    named = judged("SELECT a FROM t", first, answer([column("b", INT, length=11, flags=1)], rows("1")))
    assert (named.state, aspects(named)) == (DIFFERENT, {"columns"})
    fewer = judged("SELECT a, b FROM t", answer(AB, rows("1,x")), answer([A], rows("1")))
    assert (fewer.state, aspects(fewer)) == (DIFFERENT, {"columns"})


def test_writes_are_compared_by_counts_ids_and_info() -> None:
    def wrote(affected: int, insert_id: int = 0, warnings: int = 0) -> Answer:
        return Answer(affected=affected, insert_id=insert_id, warnings=warnings)

    sql = "INSERT INTO t (b) VALUES ('x')"
    assert judged(sql, wrote(1), wrote(2)).state is DIFFERENT
    generated = judged(sql, wrote(1, 5), wrote(1, 30_001))
    assert (generated.state, aspects(generated)) == (SAME, {"insert-id"})
    assert judged(sql, wrote(1, 5), wrote(1)).state is DIFFERENT
    assert aspects(judged(sql, wrote(1, warnings=1), wrote(1))) == {"warnings"}
    assert judged(sql, wrote(1), wrote(1)).written


def test_answers_too_large_to_keep_are_compared_by_checksums() -> None:
    whole, other = rows("1,x", "2,y"), rows("2,y", "1,x")
    sql = "SELECT a, b FROM t"

    def large(*parts: Row, code: int = INT) -> Answer:
        return answer([column("a", code), B], parts, keep=False)

    assert judged(sql, large(*whole), large(*whole)).state is SAME
    assert judged(sql, large(*whole), large(*other)).state is SAME
    assert judged(sql + " ORDER BY id", large(*whole), large(*other)).state is DIFFERENT
    assert judged(sql + " ORDER BY a", large(*whole), large(*other)).state is INDETERMINATE
    assert judged(sql, large(*whole), large(*rows("1,x", "2,z"))).state is DIFFERENT
    assert judged(sql, large(*whole, code=DOUBLE), large(*rows("1.0,x", "2,y"), code=DOUBLE)).state is INDETERMINATE
    assert judged(sql, large(*whole), large(*rows("1,x"))).state is DIFFERENT


def test_statements_of_several_results_prove_nothing_where_they_differ() -> None:
    first, second = answer(AB, rows("1,x")), answer(AB, rows("1,y"))
    chained = Answer(columns=first.columns, rows=first.rows, row_count=1, ordered=first.ordered, more=(first,))
    other = Answer(columns=first.columns, rows=first.rows, row_count=1, ordered=first.ordered, more=(second,))
    sql = "SELECT a, b FROM t; SELECT a, b FROM t"
    assert judged(sql, chained, chained).state is SAME
    assert judged(sql, chained, other).state is INDETERMINATE
    assert judged(sql, chained, first).state is DIFFERENT


SELF = ["SHOW CREATE TABLE t", "DESC t", "SELECT @@sql_mode, 'x'"]


@pytest.mark.parametrize("sql", SELF)
def test_what_a_server_tells_of_itself_is_for_review(sql: str) -> None:
    one = judged(sql, answer(AB, rows("1,x")), answer(AB, rows("1,y")))
    assert one.state is DIFFERENT
    assert {each.severity for each in one.differences} == {DifferenceSeverity.REVIEW}
    plan = [column("id", TEXT), column("estRows", TEXT)]
    assert judged("EXPLAIN SELECT 1", answer(plan, rows("1,x")), answer(plan, rows("1,y"))).state is INDETERMINATE


def test_masking_keeps_no_values() -> None:
    one = judged(
        "SELECT a, b FROM t WHERE b = 'secret-literal'", answer(AB, rows("1,secret-value")), answer(AB, rows("1,oth")),
        mask=True,
    )  # fmt: skip
    assert one.state is DIFFERENT
    assert "secret" not in repr(one)
    error = judged("SELECT a FROM t", answer([A], rows("1")), failed(1062, "Duplicate entry 'secret'"), mask=True)
    assert "secret" not in repr(error)
    assert "1062" in repr(error)


def test_an_example_holds_both_answers_within_its_bounds() -> None:
    many = [(str(place).encode(), b"x" * 5_000) for place in range(100)]
    changed = [*many[:-1], (b"99", b"y")]
    one = judged("SELECT a, b FROM t", answer(AB, many), answer(AB, changed))
    assert one.details["source"].startswith("ok, 100 rows")
    assert len(one.details["source"]) < 4_100
    assert one.details["sql"] == "SELECT a, b FROM t"


CELLS = {
    INT: st.integers(-5, 5).map(lambda v: str(v).encode()),
    TEXT: st.sampled_from([b"", b"a", b"A", b"a ", "\u00e9".encode(), b"\xff"]),
    DECIMAL: st.decimals(-3, 3, places=2).map(lambda v: str(v).encode()),
    DOUBLE: st.sampled_from([0.1, 0.2, 0.3, 0.1 + 0.2, 1e300, -0.0]).map(lambda v: repr(v).encode()),
    JSON: st.sampled_from([b"1", b"1.0", b'{"a":1}', b'{"a": 2}', b"[]", b"null"]),
}


@st.composite
def tables(draw: st.DrawFn, exact: bool = False) -> tuple[list[int], list[Row]]:
    codes = draw(st.lists(st.sampled_from([INT, TEXT] if exact else list(CELLS)), min_size=1, max_size=3))
    cells = st.tuples(*[st.one_of(st.none(), CELLS[code]) for code in codes])
    return codes, draw(st.lists(cells, min_size=1, max_size=6))


TEXTS = ["SELECT {} FROM t", "SELECT {} FROM t ORDER BY 1", "SELECT {} FROM t ORDER BY id", "SELECT {} FROM t LIMIT 9",
         "SELECT {} FROM t ORDER BY 1 LIMIT 9", "SELECT {} FROM t ORDER BY hidden", "not sql at all {}"]  # fmt: skip


def made(codes: list[int], found: list[Row]) -> Answer:
    return answer([column(f"c{place}", code) for place, code in enumerate(codes)], found)


def text_of(pattern: str, codes: list[int]) -> str:
    return pattern.format(", ".join(f"c{place}" for place in range(len(codes))))


@settings(max_examples=40)
@given(tables(), st.sampled_from(TEXTS))
def test_judging_is_reflexive(table: tuple[list[int], list[Row]], pattern: str) -> None:
    codes, found = table
    one = judged(text_of(pattern, codes), made(codes, found), made(codes, list(found)))
    assert one.state is SAME
    assert not one.differences


@settings(max_examples=40)
@given(tables(), st.sampled_from(TEXTS), st.randoms(use_true_random=False), st.data())
def test_judging_is_symmetric(
    table: tuple[list[int], list[Row]], pattern: str, chance: random.Random, data: st.DataObject
) -> None:
    codes, found = table
    other = list(found)
    chance.shuffle(other)
    if data.draw(st.booleans()):
        cells = st.tuples(*[st.one_of(st.none(), CELLS[code]) for code in codes])
        other[chance.randrange(len(other))] = data.draw(cells)
    sql = text_of(pattern, codes)
    one, turned = (
        judged(sql, made(codes, found), made(codes, other)),
        judged(sql, made(codes, other), made(codes, found)),
    )
    assert one.state is turned.state


@settings(max_examples=40)
@given(tables(), st.randoms(use_true_random=False))
def test_a_permutation_of_unordered_rows_is_never_different(
    table: tuple[list[int], list[Row]], chance: random.Random
) -> None:
    codes, found = table
    other = list(found)
    chance.shuffle(other)
    assert judged(text_of(TEXTS[0], codes), made(codes, found), made(codes, other)).state is SAME


@settings(max_examples=40)
@given(tables(exact=True), st.sampled_from(TEXTS[:3]), st.data())
def test_one_changed_cell_of_a_determined_answer_is_always_different(
    table: tuple[list[int], list[Row]], pattern: str, data: st.DataObject
) -> None:
    codes, found = table
    row = data.draw(st.integers(0, len(found) - 1))
    place = data.draw(st.integers(0, len(codes) - 1))
    cell = data.draw(st.one_of(st.none(), CELLS[codes[place]]).filter(lambda value: value != found[row][place]))
    changed = [*found[:row], (*found[row][:place], cell, *found[row][place + 1 :]), *found[row + 1 :]]
    sql = text_of(pattern, codes)
    assert judged(sql, made(codes, found), made(codes, changed)).state is DIFFERENT
    fewer = found[:row] + found[row + 1 :]
    assert judged(sql, made(codes, found), made(codes, fewer)).state is DIFFERENT


def test_large_answers_of_approximate_numbers_are_decided() -> None:
    columns = [column("x", DOUBLE), column("y", FLOAT)]
    chance = random.Random(1)
    found = [(repr(chance.random() - 0.5).encode(), b"%.8f" % chance.random()) for _ in range(3_000)]
    other = [(repr(float(x) * (1 + 1e-13)).encode(), b"%.6g" % float(y)) for x, y in found]
    chance.shuffle(other)
    sql = "SELECT x, y FROM t"
    assert judged(sql, answer(columns, found), answer(columns, other)).state is SAME
    other[5] = (b"0.5", b"0.1")
    assert judged(sql, answer(columns, found), answer(columns, other)).state is DIFFERENT


def test_json_of_any_depth_and_length_is_judged() -> None:
    columns = [column("j", JSON)]
    sql = "SELECT j FROM t"
    deep = [b"[" * depth + b"1" + b"]" * depth for depth in (100, 400, 20_000)]
    for text in deep:
        assert judged(sql, answer(columns, [(text,)]), answer(columns, [(text,)])).state is SAME
        other = text.replace(b"1", b"2")
        assert judged(sql, answer(columns, [(text,)]), answer(columns, [(other,)])).state is DIFFERENT
    wide = b"[" + b"[1, {}]," * 1_000 + b"0]"
    assert judged(sql, answer(columns, [(wide,)]), answer(columns, [(wide.replace(b" ", b""),)])).state is SAME
    spaced = deep[0].replace(b"1", b" 1 ")
    assert judged(sql, answer(columns, [(deep[0],)]), answer(columns, [(spaced,)])).state is SAME
    digits = b"1" + b"0" * 5_000
    assert judged(sql, answer(columns, [(digits,)]), answer(columns, [(digits + b"1",)])).state is DIFFERENT


def test_long_values_are_shown_where_they_differ() -> None:
    first, second = [("\u00e9" * 300 + end).encode() for end in ("left out", "let in")]
    columns = [column("b")]
    one = judged("SELECT b FROM t", answer(columns, [(first,)]), answer(columns, [(second,)]))
    (found,) = one.differences
    assert (found.source.endswith("left out'"), found.target.endswith("let in'")) == (True, True)


def test_latency_counts_from_the_intended_start() -> None:
    fine = answer(AB, rows("1,x"))
    seen = observe("SELECT a, b FROM t", fine, fine)
    late = seen.__class__(seen.call, seen.source, (seen.target[0].__class__(fine, 0, 5_000_000, 6_000_000),))
    one = judge(late, meaning("SELECT a, b FROM t"))
    assert (one.target_latency, one.target_service, one.lag) == (6_000, 1_000, 5_000)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=5),
)
def test_pairing_within_a_tolerance_never_contradicts_trying_every_permutation(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    def row(steps: tuple[int, int]) -> Row:
        return tuple(repr(1.0 + step * 0.7e-12).encode() for step in steps)

    ours, theirs = [row(one) for one in first], [row(one) for one in second]
    fits = len(ours) == len(theirs) and any(
        all(
            near(a, b, CellKind.DOUBLE)
            for one, other in zip(ours, order, strict=True)
            for a, b in zip(one, other, strict=True)
        )
        for order in itertools.permutations(theirs)
    )
    columns = [column("x", DOUBLE), column("y", DOUBLE)]
    one = judged("SELECT x, y FROM t", answer(columns, ours), answer(columns, theirs))
    assert one.state in ((SAME, INDETERMINATE) if fits else (DIFFERENT, INDETERMINATE))
    if len(first) == len(second) == 1:
        assert one.state is (SAME if fits else DIFFERENT)


def under(
    assumed: tuple[str, ...], source: Answer, target: Answer, sql: str = "SELECT id FROM t WHERE id = 1"
) -> JudgedCall:
    seen = observe(sql, source, target)
    return judge(replace(seen, call=replace(seen.call, assumed=assumed)), meaning(sql))


def test_an_assumption_that_could_explain_a_difference_leaves_it_undecided() -> None:
    one, other = (answer([column("id", INT)], [(text,)]) for text in (b"1", b"2"))
    found = under(("time zone",), one, other)
    assert (found.state, found.reason) == (INDETERMINATE, "state assumed: time zone")
    found = under(("time zone",), one, one)
    assert (found.state, found.details["assumed"]) == (SAME, "time zone")
    assert under((), one, other).state is DIFFERENT
    # a text that one server does not understand is no matter of a time zone; of the SQL mode it may be
    refused = failed(1064, "syntax")
    assert under(("time zone",), one, refused).state is DIFFERENT
    assert under(("sql_mode",), one, refused).state is INDETERMINATE
    # nor does any setting let a server take a row that its keys refuse
    taken = under(("sql_mode", "variables"), failed(1062), Answer(affected=1), "INSERT INTO t VALUES (1)")
    assert taken.state is INDETERMINATE  # production was not refused: the source is not what it was
    seen = observe("INSERT INTO t VALUES (1)", failed(1062), Answer(affected=1), Captured(1062))
    seen = replace(seen, call=replace(seen.call, assumed=("sql_mode", "variables")))
    assert judge(seen, meaning("INSERT INTO t VALUES (1)")).state is DIFFERENT


def test_what_was_changed_of_a_call_is_said_with_its_answer() -> None:
    one = answer([column("id", INT)], [(b"1",)])
    seen = observe("SELECT id FROM t WHERE id = 1", one, one)
    found = judge(replace(seen, call=replace(seen.call, note=UNLOCKED)), meaning("SELECT id FROM t WHERE id = 1"))
    assert (found.state, found.reason) == (SAME, UNLOCKED)


@pytest.mark.parametrize(
    ("codes", "first", "second", "same"),
    [
        ((FLOAT, DOUBLE), b"1234570", b"1234567.89", False), ((FLOAT, DOUBLE), b"0.1", b"0.1", True),
        ((DOUBLE, FLOAT), b"1234567.89", b"1234570", False), ((FLOAT, FLOAT), b"1234570", b"1234567.9", True),
        ((FLOAT, DECIMAL), b"1234570", b"1234567.89", False), ((FLOAT, DECIMAL), b"1.5", b"1.50", True),
    ],
)  # fmt: skip
def test_a_float_beside_another_number_is_compared_by_value(
    codes: tuple[int, int], first: bytes, second: bytes, same: bool
) -> None:
    source, target = (answer([column("v", code)], [(v,)]) for code, v in zip(codes, (first, second), strict=True))
    assert judged("SELECT v FROM t WHERE id = 1", source, target).state is (SAME if same else DIFFERENT)


@pytest.mark.parametrize(
    ("captured", "one", "detail"),
    [
        (Captured(1062), Answer(affected=1), "captured: error 1062"),
        (Captured(1062), failed(1452), "captured: error 1062"),
        (Captured(0, rows_affected=3), Answer(affected=1), "captured: 3 rows"),
        (Captured(0, rows_affected=1), Answer(affected=1), ""), (Captured(1062), failed(1062), ""),
        # a log counts the rows that were changed, a client the rows that were found
        (Captured(0, rows_affected=0), Answer(affected=1, info="Rows matched: 1  Changed: 0  Warnings: 0"), ""),
        (Captured(0, rows_sent=2), answer([column("a", INT)], [(b"1",)]), "captured: 2 rows"),
    ],
)  # fmt: skip
def test_what_neither_side_repeats_is_told(captured: Captured, one: Answer, detail: str) -> None:
    found = judged("SELECT a FROM t WHERE id = 1", one, one, captured=captured)
    assert found.state is SAME
    assert [each.detail for each in found.differences if each.aspect == "did-not-recur"] == ([detail] if detail else [])


def test_changed_rows_are_compared_though_the_client_counts_found_ones() -> None:
    texts = [f"Rows matched: 1  Changed: {number}  Warnings: 0" for number in (0, 1)]
    source, target = (Answer(affected=1, info=text) for text in texts)
    found = judged("UPDATE t SET a = 1 WHERE id = 1", source, target)
    assert (found.state, aspects(found)) == (DIFFERENT, {"changed-rows", "info"})


def test_what_follows_from_generated_ids_carries_its_cause() -> None:
    one, other = (answer([column("a", INT)], rows) for rows in ([(b"1",)], []))
    generated = {b"30001": "statement 4", b"17": "statement 4"}
    found = judged("SELECT a FROM t WHERE id = 17", one, other, generated=generated)
    assert (found.state, found.reason) == (INDETERMINATE, "follows from generated ids that differ: statement 4")
    assert judged("SELECT a FROM t WHERE id = 170", one, other, generated=generated).state is DIFFERENT
    source, target = (answer([column("LAST_INSERT_ID()", INT)], [(text,)]) for text in (b"17", b"30001"))
    assert judged("SELECT id FROM t WHERE a = 1", source, target, generated=generated).state is INDETERMINATE
    refused = judged("SELECT a FROM t WHERE id = 17", one, failed(1064), generated=generated)
    assert refused.state is DIFFERENT


def test_a_difference_of_a_log_without_connects_is_undecided_where_the_settings_could_explain_it() -> None:
    one, other = (answer([column("id", INT)], [(text,)]) for text in (b"1", b"2"))
    found = under(("time zone", FOR_DIFFERENCES), one, other)
    assert (found.state, found.reason) == (INDETERMINATE, "state assumed: time zone")
    equal = under(("time zone", FOR_DIFFERENCES), one, one)
    assert (equal.state, equal.reason, "assumed" in equal.details) == (SAME, "", False)
    assert under((FOR_DIFFERENCES,), one, other).reason == ""
