"""Suites of expectations on MySQL and TiDB: exact beyond 2^53, fail closed, and nothing secret is told."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from migverify.db.session import open_session
from migverify.errors import EndpointError
from migverify.model import Endpoint, Flavor, Verdict
from migverify.recon.expectations import Batch, SuiteOutcome, check_suite, read_suite, run_suite, sessions
from migverify.recon.model import Dataset, Kind, Money, Place, Rule, TablePart
from migverify.sql.catalog import read_table
from migverify.sql.quoting import quote_path
from tests.table_pairs import endpoint

if TYPE_CHECKING:
    from tests.conftest import Databases

# ruff: noqa: E501  (tables of arguments read better unbroken)
pytestmark = pytest.mark.db

PLACE = Place("rules.yaml", 7)
PASSWORD = "h@nter:2/%Zé\\'x"
TABLE = """CREATE TABLE payments (
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY, amount DECIMAL(38,4), cents BIGINT, small INT, currency CHAR(3),
  note VARCHAR(40), made DATETIME(6), raw_bytes VARBINARY(8), share DOUBLE, other DECIMAL(20,2))"""
ROWS = """INSERT INTO payments VALUES
  (18446744073709551615, 9007199254740992.0001, 9007199254740993, 1, 'EUR', 'plain', '2026-01-01 00:00:00.000001', x'00FF', 0.5, 1),
  (2, 1.0000, 2, 2, 'EUR', 'é: 100 %s :x {b}', '2026-01-02', x'01', 1.5, 2),
  (3, 0.0000, -3, 3, 'USD', NULL, NULL, NULL, NULL, NULL),
  (4, -0.0001, 4, 3, 'JPY', '\\\\:q', '0000-00-00', '', 2, 4)"""


@pytest.fixture(params=["source", "target"])
def batch(request: pytest.FixtureRequest, databases: Databases) -> Batch:
    side = request.param
    run = databases.source if side == "source" else databases.target
    run("SET SESSION sql_mode = 'ALLOW_INVALID_DATES'", TABLE, ROWS)
    where = endpoint(side, getattr(databases.pair, side))
    with open_session(where, None) as session:
        table = read_table(session, side, databases.name, "payments")
    assert table is not None
    return Batch(where, f"SELECT * FROM {quote_path(databases.name, 'payments')}", table.columns)


def rule(*suite: dict[str, Any], key: tuple[str, ...] = ("id",), money: str | None = None, **options: Any) -> Rule:
    paid = Money(money, "currency") if money else None
    return Rule(
        "fit", Kind.EXPECTATIONS, "payments", None, PLACE, key, money=paid, options={"suite": list(suite), **options}
    )


def asked(found: Rule, parts: Sequence[Batch], **options: Any) -> SuiteOutcome:
    dataset = Dataset("payments", tuple(TablePart(b.endpoint.name, "d", "payments") for b in parts), PLACE)
    suite = check_suite(found, dataset, parts[0].columns, read_suite(found, {}))
    return run_suite(found, suite, parts, sessions(lambda e: os.environ.get(e.password_env or "", None)), **options)


def one(batch: Batch, kind: str, **arguments: Any) -> SuiteOutcome:
    return asked(rule({"type": kind, **arguments}), [batch])


SUM = "expect_column_sum_to_be_between"
EXACT_SUM = "9007199254740993.0000"


@pytest.mark.parametrize(
    ("kind", "column", "exact", "beside"),
    [
        (SUM, "amount", EXACT_SUM, "9007199254740993.0001"),
        (SUM, "amount", EXACT_SUM, "9007199254740992.9999"),
        (SUM, "cents", "9007199254740996", "9007199254740997"),
        ("expect_column_max_to_be_between", "amount", "9007199254740992.0001", "9007199254740992.0002"),
        ("expect_column_max_to_be_between", "cents", "9007199254740993", "9007199254740992"),
        ("expect_column_max_to_be_between", "id", "18446744073709551615", "18446744073709551614"),
        ("expect_column_min_to_be_between", "amount", "-0.0001", "-0.0002"),
        ("expect_column_mean_to_be_between", "amount", "2251799813685248.25", "2251799813685248.2501"),
        ("expect_column_max_to_be_between", "made", "2026-01-02", "2026-01-01 23:59:59.999999"),
    ],
)
def test_aggregates_are_exact(batch: Batch, kind: str, column: str, exact: str, beside: str) -> None:
    right = one(batch, kind, column=column, min_value=exact, max_value=exact)
    wrong = one(batch, kind, column=column, min_value=beside, max_value=beside)
    assert (right.verdict, right.reasons) == (Verdict.MATCH, ())
    assert (wrong.verdict, wrong.reasons) == (Verdict.MISMATCH, ())
    assert wrong.violations == 1
    assert wrong.findings[0].key == (f"1. {kind}({column})",)
    assert "wanted" in wrong.findings[0].message
    strict = one(batch, kind, column=column, min_value=exact, strict_min=True)
    assert strict.verdict is Verdict.MISMATCH


def test_the_sum_stands_in_the_result_with_all_its_digits(batch: Batch) -> None:
    outcome = one(batch, SUM, column="amount", max_value="9007199254740992.9999")
    assert EXACT_SUM in outcome.json
    assert EXACT_SUM in outcome.html
    assert EXACT_SUM in outcome.findings[0].message
    assert "9007199254740992.9999" in outcome.html
    assert "9007199254740993.0," not in outcome.json


def test_great_expectations_alone_would_be_wrong(batch: Batch) -> None:
    """Why sums are computed here: the same question through its floats passes."""
    import great_expectations as gx  # noqa: F401
    from sqlalchemy import text

    with sessions(lambda _: None)(batch.endpoint) as reader, reader.engine() as engine, engine.connect() as connection:
        total = connection.execute(text(f"SELECT SUM(amount) FROM ({batch.select}) q")).scalar()
    assert total == Decimal(EXACT_SUM)
    assert float(total) == float(Decimal("9007199254740992.0000"))


@pytest.mark.parametrize(
    ("expectation", "keys"),
    [
        ({"type": "expect_column_values_to_not_be_null", "column": "note"}, {"3"}),
        ({"type": "expect_column_values_to_be_between", "column": "amount", "max_value": "9007199254740992"},
         {"18446744073709551615"}),
        ({"type": "expect_column_values_to_be_between", "column": "cents", "min_value": -3, "max_value": "9007199254740992"},
         {"18446744073709551615"}),
        ({"type": "expect_column_values_to_be_between", "column": "made", "min_value": "2026-01-01 00:00:00.000002"},
         {"18446744073709551615", "4"}),
        ({"type": "expect_column_values_to_be_in_set", "column": "amount", "value_set": ["9007199254740992.0002", 1, 0]},
         {"18446744073709551615", "4"}),
        ({"type": "expect_column_values_to_not_be_in_set", "column": "cents", "value_set": [9007199254740992, 2]}, {"2"}),
        ({"type": "expect_column_values_to_be_in_set", "column": "currency", "value_set": ["EUR", "USD"]}, {"4"}),
        ({"type": "expect_column_value_lengths_to_be_between", "column": "note", "max_value": 15},
         {"2"}),
        ({"type": "expect_column_value_lengths_to_equal", "column": "note", "value": 5}, {"2", "4"}),
        ({"type": "expect_column_values_to_match_regex", "column": "note", "regex": "^p"}, {"2", "4"}),
        ({"type": "expect_column_values_to_be_unique", "column": "small"}, {"3", "4"}),
        ({"type": "expect_compound_columns_to_be_unique", "column_list": ["small", "currency"]}, set()),
        ({"type": "expect_column_pair_values_to_be_equal", "column_A": "amount", "column_B": "other"},
         {"18446744073709551615", "2", "3", "4"}),
        ({"type": "expect_multicolumn_sum_to_equal", "column_list": ["amount", "cents"], "sum_total": "3.0000"},
         {"18446744073709551615", "3", "4"}),
        ({"type": "unexpected_rows_expectation",
          "unexpected_rows_query": "SELECT id, amount FROM {batch} WHERE amount > 9007199254740992"},
         {"18446744073709551615"}),
        ({"type": "UnexpectedRowsExpectation",
          "unexpected_rows_query": "SELECT b.id FROM {batch} AS b JOIN {batch} c ON b.small = c.small AND b.id < c.id"},
         {"3"}),
        ({"type": "unexpected_rows_expectation",
          "unexpected_rows_query": "SELECT id FROM {batch} WHERE note LIKE '%{{b}}' OR note = '\\\\:q' -- end;"},
         {"2", "4"}),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else None,
)  # fmt: skip
def test_rows_that_do_not_hold_are_told_by_key(batch: Batch, expectation: dict[str, Any], keys: set[str]) -> None:
    outcome = asked(rule(expectation), [batch])
    assert outcome.reasons == ()
    assert {finding.key for finding in outcome.findings} == {(key,) for key in keys}
    assert outcome.violations == len(keys)
    assert outcome.verdict is (Verdict.MISMATCH if keys else Verdict.MATCH)
    assert outcome.covered.rows_source == 4


def test_lengths_count_characters(batch: Batch) -> None:
    # "é: 100 %s :x {b}" has 16 characters and 17 bytes
    assert one(batch, "expect_column_value_lengths_to_be_between", column="note", max_value=16).verdict is Verdict.MATCH


def test_money_at_risk_is_exact(batch: Batch) -> None:
    expectation = {"type": "expect_column_values_to_not_match_regex", "column": "note", "regex": "^p"}
    (found,) = asked(rule(expectation, money="amount"), [batch]).findings
    assert (found.money, found.currency) == (Decimal("9007199254740992.0001"), "EUR")


def test_rows_are_listed_up_to_the_limit_and_counted_to_the_end(batch: Batch) -> None:
    expectation = {"type": "expect_column_values_to_be_between", "column": "small", "max_value": 0}
    query = {"type": "unexpected_rows_expectation", "unexpected_rows_query": "SELECT * FROM {batch}"}
    for asked_for in (expectation, query):
        outcome = asked(rule(asked_for, limit=2), [batch])
        assert outcome.violations == 4
        assert len(outcome.findings) == 3
        assert outcome.findings[-1].counts == (4, 0)
        assert "2 of them are listed" in outcome.findings[-1].message


@pytest.mark.parametrize("result_format", ["BASIC", "BOOLEAN_ONLY"])
def test_a_format_that_counts_lists_no_row(batch: Batch, result_format: str) -> None:
    for expectation in (
        {"type": "expect_column_values_to_be_between", "column": "small", "max_value": 0},
        {"type": "unexpected_rows_expectation", "unexpected_rows_query": "SELECT * FROM {batch}"},
        {"type": "expect_column_values_to_match_regex", "column": "currency", "regex": "^x"},
    ):
        (found,) = asked(rule(expectation, result_format=result_format), [batch]).findings
        assert found.counts == (4, 0)


def test_mostly_is_a_share(batch: Batch) -> None:
    kind = "expect_column_values_to_be_between"
    assert one(batch, kind, column="small", max_value=2, mostly=0.5).verdict is Verdict.MATCH
    assert one(batch, kind, column="small", max_value=2, mostly=0.51).verdict is Verdict.MISMATCH
    assert one(batch, "expect_column_values_to_not_be_null", column="note", mostly=0.75).verdict is Verdict.MATCH
    assert one(batch, "expect_column_values_to_not_be_null", column="note", mostly=0.76).verdict is Verdict.MISMATCH


def test_without_a_key_a_row_is_told_by_its_text(batch: Batch) -> None:
    expectation = {"type": "expect_column_values_to_be_between", "column": "small", "max_value": 2}
    outcome = asked(rule(expectation, key=()), [batch])
    assert {finding.key[0] for finding in outcome.findings} == {"3", "4"}
    assert all(len(finding.key) == 10 for finding in outcome.findings)
    kept = asked(rule(expectation, key=()), [batch], keep_values=False)
    assert all(str(finding.key[0]).startswith("sha256:") for finding in kept.findings)


def test_values_may_be_kept_out(batch: Batch) -> None:
    suite = [
        {"type": "expect_column_values_to_match_regex", "column": "note", "regex": "^never"},
        {"type": "unexpected_rows_expectation", "unexpected_rows_query": "SELECT * FROM {batch}"},
        {"type": SUM, "column": "cents", "max_value": 0},
        {"type": "expect_column_values_to_be_between", "column": "amount", "max_value": 0},
    ]
    outcome = asked(rule(*suite), [batch], keep_values=False)
    assert outcome.verdict is Verdict.MISMATCH
    assert {("2",), ("4",)} <= {finding.key for finding in outcome.findings}  # keys are kept
    told = outcome.json + outcome.html + repr(outcome)
    for value in ("plain", "9007199254740992.0001", "9007199254740993", "9007199254740996"):
        assert value not in told, value


@pytest.mark.parametrize(
    "expectation",
    [
        {"type": "expect_column_values_to_match_regex", "column": "note", "regex": "(["},
        {"type": "expect_column_values_to_not_be_null", "column": "note", "nonsense": 1},
        {"type": "unexpected_rows_expectation", "unexpected_rows_query": "SELECT nope FROM {batch}"},
        {"type": "unexpected_rows_expectation", "unexpected_rows_query": "DELETE FROM {batch}"},
        {"type": "unexpected_rows_expectation", "unexpected_rows_query": "SELECT * FROM {batch} WHERE note > 1"},
        {"type": "expect_column_max_to_be_between", "column": "made", "max_value": "not a time"},
        {"type": "expect_column_values_to_be_between", "column": "made", "max_value": "not a time"},
    ],
)
def test_what_was_not_answered_is_never_a_pass(batch: Batch, expectation: dict[str, Any]) -> None:
    good = {"type": "expect_column_values_to_not_be_null", "column": "id"}
    outcome = asked(rule(good, expectation), [batch])
    assert outcome.verdict is Verdict.INCONCLUSIVE, outcome.findings
    assert len(outcome.reasons) == 1
    assert outcome.reasons[0].startswith("2. ")
    assert outcome.html
    assert outcome.violations == 0


def test_nothing_is_written_and_the_session_stays_pinned(batch: Batch, databases: Databases) -> None:
    with sessions(lambda _: None)(batch.endpoint) as reader:
        before = reader.query("SELECT @@time_zone, @@sql_mode, CONNECTION_ID()")
        assert before[0][:2] == ("+00:00", "ALLOW_INVALID_DATES")
        first = reader.query(f"SELECT COUNT(*) FROM ({batch.select}) q")
        run = databases.source if batch.endpoint.name == "source" else databases.target
        run("DELETE FROM payments WHERE id = 2")
        with reader.engine() as engine, engine.begin() as connection:
            from sqlalchemy import text

            seen = connection.execute(
                text(f"SELECT COUNT(*), @@sql_mode, CONNECTION_ID() FROM ({batch.select}) q")
            ).one()
        # One moment for all reads, however often the library commits.
        assert str(seen[0]) == first[0][0]
        assert (seen[1], str(seen[2])) == before[0][1:]
        assert reader.query(f"SELECT COUNT(*) FROM ({batch.select}) q") == first


def test_the_moment_that_was_read_is_told(batch: Batch, databases: Databases) -> None:
    outcome = one(batch, "expect_column_values_to_not_be_null", column="id")
    (anchor,) = outcome.anchors
    assert (anchor.endpoint, anchor.at > 0, bool(anchor.position)) == (batch.endpoint.name, True, True)
    if anchor.flavor != "tidb":
        assert anchor.how.endswith("consistent snapshot")
        return
    # The timestamp is that of the reads: as of it, a row that came later is not there.
    assert anchor.exact
    databases.target("INSERT INTO payments (id) VALUES (77)")
    then = replace(batch, endpoint=replace(batch.endpoint, snapshot=anchor.position))
    again = one(then, "expect_column_values_to_not_be_null", column="id")
    assert again.covered.rows_source == outcome.covered.rows_source
    assert again.anchors[0].position == anchor.position
    assert (
        one(batch, "expect_column_values_to_not_be_null", column="id").covered.rows_source
        == 1 + again.covered.rows_source
    )


def test_parts_of_one_endpoint_are_one_batch(batch: Batch) -> None:
    twice = [batch, replace(batch, select=f"{batch.select} WHERE id <> 2 -- all but one")]
    assert one(batch, "expect_column_values_to_be_unique", column="id").verdict is Verdict.MATCH
    outcome = asked(rule({"type": "expect_column_values_to_be_unique", "column": "id"}), twice)
    assert outcome.verdict is Verdict.MISMATCH
    assert outcome.violations == 6
    assert outcome.covered.rows_source == 7
    assert {finding.counts for finding in outcome.findings} == {(2, 0)}


@pytest.fixture
def guarded(batch: Batch, databases: Databases, monkeypatch: pytest.MonkeyPatch) -> Iterator[Batch]:
    run = databases.source if batch.endpoint.name == "source" else databases.target
    user = f"r7_{uuid.uuid4().hex[:8]}"
    word = PASSWORD.replace("\\", "\\\\").replace("'", "''")
    try:
        run(f"CREATE USER '{user}' IDENTIFIED WITH mysql_native_password BY '{word}'" if batch.endpoint.name == "target"
            else f"CREATE USER '{user}' IDENTIFIED BY '{word}'",
            f"GRANT SELECT ON {databases.name}.* TO '{user}'")  # fmt: skip
        monkeypatch.setenv("R7_PASSWORD", PASSWORD)
        yield replace(batch, endpoint=replace(batch.endpoint, user=user, password_env="R7_PASSWORD"))
    finally:
        run(f"DROP USER IF EXISTS '{user}'")


def test_no_secret_shows_anywhere(
    guarded: Batch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.DEBUG)
    suite = [
        {"type": "expect_column_values_to_match_regex", "column": "note", "regex": "(["},
        {"type": "expect_column_values_to_match_regex", "column": "note", "regex": "^p"},
        {"type": SUM, "column": "cents", "max_value": 0},
        {"type": "unexpected_rows_expectation", "unexpected_rows_query": "SELECT nope FROM {batch}"},
        {"type": "unexpected_rows_expectation", "unexpected_rows_query": "SELECT id FROM {batch}"},
    ]
    outcome = asked(rule(*suite), [guarded])
    assert outcome.verdict is Verdict.MISMATCH
    bad = replace(guarded, endpoint=replace(guarded.endpoint, port=1))
    with pytest.raises(EndpointError) as refused:
        asked(rule(*suite), [bad])
    printed = capfd.readouterr()
    # The library's own remarks hold statements and values: they reach no handler of the program.
    assert not logging.getLogger("great_expectations").propagate
    told = "\n".join(
        [outcome.json, outcome.html, repr(outcome), caplog.text, printed.out, printed.err, str(refused.value)]
    )
    for spelling in (PASSWORD, "h@nter", "h%40nter", "hnter"):
        assert spelling not in told
    assert (printed.out, printed.err) == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_a_snapshot_that_does_not_hold_is_refused(batch: Batch) -> None:
    with open_session(batch.endpoint, None) as session:
        flavor = session.flavor
    old = replace(batch, endpoint=replace(batch.endpoint, snapshot="2020-01-01 00:00:00"))
    with pytest.raises(EndpointError) as refused:
        asked(rule({"type": "expect_column_values_to_not_be_null", "column": "id"}), [old])
    assert ("snapshot" in refused.value.message) or flavor is Flavor.TIDB


def test_the_page_asks_nobody(batch: Batch) -> None:
    html = one(batch, "expect_column_values_to_not_be_null", column="note").html
    assert "<script" not in html
    assert "<link" not in html
    assert "default-src 'none'" in html
    for host in ("cdnjs", "unpkg", "jsdelivr", "amazonaws", "googleapis"):
        assert host not in html, host


def test_the_endpoint_is_told_by_its_name_only(batch: Batch) -> None:
    assert isinstance(batch.endpoint, Endpoint)
    outcome = one(batch, "expect_column_values_to_not_be_null", column="note")
    assert str(batch.endpoint.port) not in outcome.json


COPIES = "(1, 'a', 1), (2, 'a', 1), (3, 'a', 1), (4, 'b', 2), (5, 'b', 2), (6, 'c', 3), (7, NULL, NULL)"


@pytest.mark.parametrize("key", [("id",), ()])
@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("expect_column_values_to_be_unique", {"column": "v"}),
        ("expect_column_values_to_be_unique", {"column": "w"}),
        ("expect_compound_columns_to_be_unique", {"column_list": ["v", "w"]}),
    ],
)
@pytest.mark.parametrize("side", ["source", "target"])
def test_rows_that_are_not_unique_are_one_finding_each(
    databases: Databases, side: str, kind: str, arguments: dict[str, Any], key: tuple[str, ...]
) -> None:
    run = databases.source if side == "source" else databases.target
    run("CREATE TABLE copies (id INT PRIMARY KEY, v VARCHAR(9), w INT)", f"INSERT INTO copies VALUES {COPIES}")
    where = endpoint(side, getattr(databases.pair, side))
    with open_session(where, None) as session:
        table = read_table(session, side, databases.name, "copies")
    assert table is not None
    copies = Batch(where, f"SELECT * FROM {quote_path(databases.name, 'copies')}", table.columns)
    outcome = asked(rule({"type": kind, **arguments}, key=key), [copies])
    assert outcome.reasons == ()
    assert sorted(finding.key[0] or "" for finding in outcome.findings) == ["1", "2", "3", "4", "5"]
    assert [finding.counts for finding in outcome.findings] == [(1, 0)] * 5
    assert outcome.violations == 5


def test_a_column_that_is_not_there_is_named(batch: Batch) -> None:
    outcome = one(batch, "expect_column_to_exist", column="gone")
    assert outcome.verdict is Verdict.MISMATCH
    (found,) = outcome.findings
    assert found.key == ("1. expect_column_to_exist(gone)",)
    assert found.message == "1. expect_column_to_exist(gone): there is no column gone"
