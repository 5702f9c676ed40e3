"""Suites of expectations on MySQL and TiDB: exact beyond 2^53, fail closed, and what Great Expectations answers."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from migverify.errors import ConfigError, EndpointError
from migverify.model import Endpoint, Verdict
from migverify.recon.describe import Describer
from migverify.recon.evaluate import Conditions, evaluate
from migverify.recon.fields import Money
from migverify.recon.local import LocalEngine
from migverify.recon.model import Class, Dataset, QueryPart, RuleFinding, RulePlace, RuleResult
from migverify.recon.rule import RuleSet, build
from migverify.sql.quoting import quote_path
from tests.rule_fakes import rule_of
from tests.table_pairs import endpoint

if TYPE_CHECKING:
    from tests.conftest import Databases

# ruff: noqa: E501  (tables of arguments read better unbroken)
pytestmark = pytest.mark.db

PLACE = RulePlace("rules.yaml", 7)
PASSWORD = "h@nter:2/%Zé\\'x"
TABLE = """CREATE TABLE payments (
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY, amount DECIMAL(38,4), cents BIGINT, small INT, currency CHAR(3),
  note VARCHAR(40), made DATETIME(6), raw_bytes VARBINARY(8), share DOUBLE, other DECIMAL(20,2))"""
ROWS = """INSERT INTO payments VALUES
  (18446744073709551615, 9007199254740992.0001, 9007199254740993, 1, 'EUR', 'plain', '2026-01-01 00:00:00.000001', x'00FF', 0.5, 1),
  (2, 1.0000, 2, 2, 'EUR', 'é: 100 %s :x {b}', '2026-01-02', x'01', 1.5, 2),
  (3, 0.0000, -3, 3, 'USD', NULL, NULL, NULL, NULL, NULL),
  (4, -0.0001, 4, 3, 'JPY', '\\\\:q', '0000-00-00', '', 2, 4)"""


@dataclass
class Outcome:
    """The result of a suite and its findings, and both as one text."""

    result: RuleResult
    findings: list[RuleFinding]

    @property
    def verdict(self) -> Verdict:
        return self.result.verdict

    @property
    def text(self) -> str:
        return f"{self.result!r} {self.findings!r}".replace("unexplained", "")

    @property
    def keys(self) -> set[tuple[str | None, ...]]:
        return {finding.key for finding in self.findings}


@dataclass
class Rows:
    """The rows of some SELECTs on one server, as a dataset."""

    endpoint: Endpoint
    selects: tuple[str, ...]
    secrets: dict[str, str] = field(default_factory=dict)

    def rules(
        self, *suite: Mapping[str, Any], key: tuple[str, ...] = ("id",), money: str | None = None, **options: Any
    ) -> RuleSet:
        parts = tuple(QueryPart(self.endpoint.name, select) for select in self.selects)
        paid = Money(column=money, currency="currency") if money else None
        rule = rule_of(
            "expectations", "payments", name="fit", key=key, money=paid, rereads=0, suite=list(suite), **options
        )
        return RuleSet("rules.yaml", (rule,), {"payments": Dataset("payments", parts, PLACE)}, {}, (), "digest")

    def run(self, *suite: Mapping[str, Any], show: bool = True, **options: Any) -> Outcome:
        rules, endpoints, found = (
            self.rules(*suite, **options),
            {self.endpoint.name: self.endpoint},
            list[RuleFinding](),
        )
        rule = rules.rules[0]
        reads = build(rule, rules, None, Describer(endpoints, self.secrets), {})
        engine = LocalEngine(endpoints, self.secrets)
        return Outcome(evaluate(rule, rules, None, engine, reads, found.extend, Conditions(show=show)), found)

    def one(self, kind: str, **arguments: Any) -> Outcome:
        return self.run({"type": kind, **arguments})


def rows_of(databases: Databases, side: str, table: str, *statements: str) -> Rows:
    run = databases.source if side == "source" else databases.target
    run(*statements)
    return Rows(endpoint(side, getattr(databases.pair, side)), (f"SELECT * FROM {quote_path(databases.name, table)}",))


both_servers = pytest.mark.parametrize("rows", ["source", "target"], indirect=True)


@pytest.fixture
def rows(request: pytest.FixtureRequest, databases: Databases) -> Rows:
    """The rows on TiDB, or on the server that a test names."""
    return rows_of(
        databases,
        getattr(request, "param", "target"),
        "payments",
        "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'",
        TABLE,
        ROWS,
    )


GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "expectations_golden.json").read_text(), parse_float=Decimal)


@pytest.mark.parametrize("table", ["golden", "golden_empty"])
@pytest.mark.parametrize("side", ["source", "target"])
def test_the_answers_are_those_of_great_expectations(databases: Databases, side: str, table: str) -> None:
    given = [entry for entry in GOLDEN["answers"] if entry["table"] == table]
    rows = rows_of(databases, side, table, *GOLDEN["table"])
    suite = [{"type": entry["type"], "kwargs": entry["kwargs"]} for entry in given]
    counted, listed = rows.run(*suite, result_format="BASIC"), rows.run(*suite)
    assert counted.result.gaps == listed.result.gaps == ()
    shares = {finding.key[0]: finding.message.partition(": ")[2] for finding in counted.findings}
    different = []
    for number, entry in enumerate(given, 1):
        share = next((words for label, words in shares.items() if str(label).startswith(f"{number}. ")), "")
        broken = any(reason.startswith(f"{number}. ") for reason in listed.result.reasons)
        if (
            entry["type"] == "expect_multicolumn_sum_to_equal"
            and entry["kwargs"]["ignore_row_if"] == "never"
            and table == "golden"
        ):
            # Stricter than Great Expectations: a sum with NULL in it is not the total.
            assert (broken, share) == (True, "4 of 5 rows do not hold")
            continue
        same = bool(share) is broken is not entry["success"]
        if share and "element_count" in entry and "distinct" not in entry["type"]:
            considered = int(entry["element_count"] - entry.get("missing_count", 0))
            same &= share.startswith(f"{int(entry.get('unexpected_count', 0))} of {considered} rows do not hold")
        if not same:
            different.append((entry, share, broken))
    assert not different
    assert len(given) > 100


SUM = "expect_column_sum_to_be_between"
EXACT_SUM = "9007199254740993.0000"


NUMBERS = [
    (SUM, "amount", EXACT_SUM, "9007199254740993.0001"),
    (SUM, "amount", EXACT_SUM, "9007199254740992.9999"),
    (SUM, "cents", "9007199254740996", "9007199254740997"),
    ("expect_column_max_to_be_between", "amount", "9007199254740992.0001", "9007199254740992.0002"),
    ("expect_column_max_to_be_between", "cents", "9007199254740993", "9007199254740992"),
    ("expect_column_max_to_be_between", "id", "18446744073709551615", "18446744073709551614"),
    ("expect_column_min_to_be_between", "amount", "-0.0001", "-0.0002"),
    ("expect_column_mean_to_be_between", "amount", "2251799813685248.25", "2251799813685248.2501"),
    ("expect_column_max_to_be_between", "made", "2026-01-02", "2026-01-01 23:59:59.999999"),
]


@both_servers
def test_numbers_of_all_rows_are_exact(rows: Rows) -> None:
    for kind, column, exact, beside in NUMBERS:
        right = rows.one(kind, column=column, min_value=exact, max_value=exact)
        wrong = rows.one(kind, column=column, min_value=beside, max_value=beside)
        assert (right.verdict, right.result.reasons) == (Verdict.MATCH, ())
        assert (wrong.verdict, wrong.result.gaps) == (Verdict.MISMATCH, ())
        (found,) = wrong.findings
        assert found.key == (f"1. {kind}({column})",)
        assert "observed" in found.message
        assert f"expected min_value {beside}" in found.message
        assert rows.one(kind, column=column, min_value=exact, strict_min=True).verdict is Verdict.MISMATCH


BROKEN: list[tuple[dict[str, Any], set[str]]] = [
    ({"type": "expect_column_values_to_be_between", "column": "amount", "max_value": "9007199254740992"},
     {"18446744073709551615"}),
    ({"type": "expect_column_values_to_be_between", "column": "cents", "min_value": -3, "max_value": "9007199254740992"},
     {"18446744073709551615"}),
    ({"type": "expect_column_values_to_be_between", "column": "made", "min_value": "2026-01-01 00:00:00.000002"},
     {"18446744073709551615", "4"}),
    ({"type": "expect_column_values_to_be_in_set", "column": "amount", "value_set": ["9007199254740992.0002", 1, 0]},
     {"18446744073709551615", "4"}),
    ({"type": "expect_column_distinct_values_to_be_in_set", "column": "amount", "value_set": ["9007199254740992.0001", 1]},
     {"3", "4"}),
    ({"type": "expect_column_values_to_not_be_in_set", "column": "cents", "value_set": [9007199254740992, 2]}, {"2"}),
    ({"type": "expect_column_values_to_be_in_set", "column": "currency", "value_set": ["EUR", "USD"]}, {"4"}),
    ({"type": "expect_column_value_lengths_to_be_between", "column": "note", "max_value": 15}, {"2"}),
    ({"type": "expect_column_values_to_match_regex", "column": "note", "regex": "^p"}, {"2", "4"}),
    ({"type": "expect_column_values_to_match_like_pattern", "column": "note", "like_pattern": "%\\%%"},
     {"18446744073709551615", "4"}),
    ({"type": "expect_column_pair_values_to_be_equal", "column_A": "amount", "column_B": "other"},
     {"18446744073709551615", "2", "3", "4"}),
    ({"type": "expect_multicolumn_sum_to_equal", "column_list": ["amount", "cents"], "sum_total": "3.0000"},
     {"18446744073709551615", "3", "4"}),
]  # fmt: skip


@both_servers
def test_rows_that_do_not_hold_are_reported_by_key(rows: Rows) -> None:
    for expectation, keys in BROKEN:
        outcome = rows.run(expectation)
        assert outcome.result.gaps == ()
        assert outcome.keys == {(key,) for key in keys}
        assert outcome.verdict is (Verdict.MISMATCH if keys else Verdict.MATCH)
        assert (outcome.result.covered.rows_source, outcome.result.covered.matched) == (4, 4 - len(keys))


@both_servers
def test_lengths_count_characters(rows: Rows) -> None:
    # "é: 100 %s :x {b}" has 16 characters and 17 bytes
    assert rows.one("expect_column_value_lengths_to_be_between", column="note", max_value=16).verdict is Verdict.MATCH


def test_money_at_risk_is_exact(rows: Rows) -> None:
    expectation = {"type": "expect_column_values_to_not_match_regex", "column": "note", "regex": "^p"}
    outcome = rows.run(expectation, money="amount")
    assert [(f.money, f.currency) for f in outcome.findings] == [(Decimal("9007199254740992.0001"), "EUR")]
    assert outcome.result.unexplained == {"EUR": Decimal("9007199254740992.0001")}


def test_rows_are_listed_up_to_the_limit_and_counted_to_the_end(rows: Rows) -> None:
    expectation = {"type": "expect_column_values_to_be_between", "column": "small", "max_value": 0}
    outcome = rows.run(expectation, limit=2)
    assert (len(outcome.findings), outcome.result.counts) == (2, {Class.VIOLATION: 4})
    assert outcome.result.reasons == (
        "4 findings are against the rule", "2 more findings are counted and not kept (limit 2)",
        "1. expect_column_values_to_be_between(small) does not hold (4 findings)",
    )  # fmt: skip
    for result_format in ("BASIC", "BOOLEAN_ONLY"):
        (found,) = rows.run(expectation, result_format=result_format).findings
        assert (found.key, found.counts) == (("1. expect_column_values_to_be_between(small)",), (4, 0))
        assert found.message.endswith(": 4 of 4 rows do not hold")


def test_mostly_is_a_share(rows: Rows) -> None:
    kind = "expect_column_values_to_be_between"
    assert rows.one(kind, column="small", max_value=2, mostly=0.5).verdict is Verdict.MATCH
    assert rows.one(kind, column="small", max_value=2, mostly=0.51).verdict is Verdict.MISMATCH
    assert rows.one("expect_column_values_to_not_be_null", column="note", mostly=0.75).verdict is Verdict.MATCH
    assert rows.one("expect_column_values_to_not_be_null", column="note", mostly=0.76).verdict is Verdict.MISMATCH


def test_without_a_key_a_row_is_reported_by_its_text(rows: Rows) -> None:
    expectation = {"type": "expect_column_values_to_be_between", "column": "small", "max_value": 2}
    outcome = rows.run(expectation, key=())
    assert {key[0] for key in outcome.keys} == {"3", "4"}
    assert all(len(key) == 10 for key in outcome.keys)
    assert all(str(key[0]).startswith("sha256:") for key in rows.run(expectation, key=(), show=False).keys)


def test_a_row_that_breaks_two_expectations_is_one_finding(rows: Rows) -> None:
    suite = [{"type": "expect_column_values_to_be_between", "column": "small", "max_value": 2, "description": f"rule {n}"}
             for n in (1, 2)]  # fmt: skip
    assert [(f.key, f.message, f.counts) for f in rows.run(*suite).findings] == [
        (("3",), "id 3: rule 1; rule 2", (1, 0)), (("4",), "id 4: rule 1; rule 2", (1, 0)),
    ]  # fmt: skip


def test_values_may_be_kept_out(rows: Rows) -> None:
    suite: list[dict[str, Any]] = [
        {"type": "expect_column_values_to_match_regex", "column": "note", "regex": "^never"},
        {"type": SUM, "column": "cents", "max_value": 0},
        {"type": "expect_column_values_to_be_between", "column": "amount", "max_value": 0},
    ]
    outcome = rows.run(*suite, show=False)
    assert outcome.verdict is Verdict.MISMATCH
    assert {("2",), ("4",)} <= outcome.keys  # keys are kept
    for value in ("plain", "9007199254740992.0001", "9007199254740993", "9007199254740996"):
        assert value not in outcome.text, value


def test_what_no_server_reads_is_refused_before_it_is_asked(rows: Rows) -> None:
    for kind, column, arguments in (
        ("expect_column_values_to_match_regex", "note", {"regex": "(["}),
        ("expect_column_max_to_be_between", "made", {"max_value": "not a time"}),
        ("expect_column_values_to_be_between", "made", {"max_value": "not a time"}),
    ):
        with pytest.raises(ConfigError, match=rf"rules.yaml:7: rule fit: 1. {kind}\({column}\): "):
            rows.one(kind, column=column, **arguments)


@both_servers
def test_what_was_not_answered_is_never_a_pass(rows: Rows) -> None:
    for kind in ("expect_column_max_to_be_between", "expect_column_values_to_be_between"):
        expectation = {"type": kind, "column": "made", "max_value": "2026-13-45 00:00:00"}
        outcome = rows.run({"type": "expect_column_values_to_not_be_null", "column": "id"}, expectation)
        assert (outcome.verdict, outcome.findings) == (Verdict.INCONCLUSIVE, [])
        (reason,) = outcome.result.gaps
        assert "2026-13-45" in reason
        assert reason.startswith("not read: ")


@both_servers
def test_a_warning_about_values_is_never_a_pass(rows: Rows) -> None:
    # The text 'plain' is compared as the number 0, and the server warns that it is none.
    warned = replace(rows, selects=(f"{rows.selects[0]} WHERE note = 0 OR id < 3",))
    for expectation in (
        {"type": "expect_column_values_to_not_be_null", "column": "id"},
        {"type": SUM, "column": "cents", "min_value": -5},
    ):
        outcome = warned.run(expectation)
        assert (outcome.verdict, outcome.findings) == (Verdict.INCONCLUSIVE, [])
        (reason,) = outcome.result.gaps
        assert "the server warned that a value is not what it was: 1292: " in reason


@both_servers
def test_the_moment_that_was_read_is_in_the_result(rows: Rows, databases: Databases) -> None:
    expectation = {"type": "expect_column_values_to_not_be_null", "column": "id"}
    outcome = rows.run(expectation)
    (snapshot,) = outcome.result.snapshots
    assert (snapshot.endpoint, snapshot.at > 0, bool(snapshot.position)) == (rows.endpoint.name, True, True)
    if snapshot.flavor != "tidb":
        assert snapshot.how.endswith("consistent snapshot")
        return
    # The timestamp is that of the reads: as of it, a row that came later is not there.
    assert snapshot.exact
    databases.target("INSERT INTO payments (id) VALUES (77)")
    then = replace(rows, endpoint=replace(rows.endpoint, snapshot=snapshot.position)).run(expectation)
    assert (then.result.covered.rows_source, rows.run(expectation).result.covered.rows_source) == (4, 5)


def test_parts_of_one_endpoint_are_one_batch(rows: Rows) -> None:
    twice = replace(rows, selects=(*rows.selects, f"{rows.selects[0]} WHERE id <> 2"))
    assert rows.one("expect_column_values_to_be_unique", column="id").verdict is Verdict.MATCH
    outcome = twice.one("expect_column_values_to_be_unique", column="id")
    assert outcome.verdict is Verdict.MISMATCH
    assert outcome.result.covered.rows_source == 7
    assert {finding.counts for finding in outcome.findings} == {(2, 0)}
    assert len(outcome.findings) == 3


@pytest.fixture
def guarded(rows: Rows, databases: Databases) -> Iterator[Rows]:
    run = databases.source if rows.endpoint.name == "source" else databases.target
    user = f"r7_{uuid.uuid4().hex[:8]}"
    word = PASSWORD.replace("\\", "\\\\").replace("'", "''")
    try:
        run(f"CREATE USER '{user}' IDENTIFIED WITH mysql_native_password BY '{word}'" if rows.endpoint.name == "target"
            else f"CREATE USER '{user}' IDENTIFIED BY '{word}'",
            f"GRANT SELECT ON {databases.name}.* TO '{user}'")  # fmt: skip
        yield replace(rows, endpoint=replace(rows.endpoint, user=user), secrets={rows.endpoint.name: PASSWORD})
    finally:
        run(f"DROP USER IF EXISTS '{user}'")


def test_no_secret_shows_anywhere(
    guarded: Rows, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    suite: list[dict[str, Any]] = [{"type": SUM, "column": "cents", "max_value": 0}]
    unread = guarded.one("expect_column_max_to_be_between", column="made", max_value="2026-13-45")
    assert unread.verdict is Verdict.INCONCLUSIVE
    outcome = guarded.run(*suite)
    assert outcome.verdict is Verdict.MISMATCH
    with pytest.raises(EndpointError) as refused:
        replace(guarded, endpoint=replace(guarded.endpoint, port=1)).run(*suite)
    printed = capfd.readouterr()
    text = "\n".join([unread.text, outcome.text, caplog.text, printed.out, printed.err, str(refused.value)])
    for spelling in (PASSWORD, "h@nter", "h%40nter", "hnter"):
        assert spelling not in text
    assert (printed.out, printed.err) == ("", "")


def test_a_snapshot_that_does_not_hold_is_refused(rows: Rows) -> None:
    old = replace(rows, endpoint=replace(rows.endpoint, snapshot="2020-01-01 00:00:00"))
    with pytest.raises((EndpointError, ConfigError), match=r"snapshot|exist"):
        old.one("expect_column_values_to_not_be_null", column="id")


COPIES = "(1, 'a', 1), (2, 'a', 1), (3, 'a', 1), (4, 'b', 2), (5, 'b', 2), (6, 'c', 3), (7, NULL, NULL)"


def test_rows_that_are_not_unique_are_one_finding_each(databases: Databases) -> None:
    copies = rows_of(
        databases, "target", "copies", "CREATE TABLE copies (id INT PRIMARY KEY, v VARCHAR(9), w INT)",
        f"INSERT INTO copies VALUES {COPIES}",
    )  # fmt: skip
    asked: Sequence[dict[str, Any]] = [
        {"type": "expect_column_values_to_be_unique", "column": "v"},
        {"type": "expect_column_values_to_be_unique", "column": "w"},
        {"type": "expect_compound_columns_to_be_unique", "column_list": ["v", "w"]},
    ]
    for expectation in asked:
        for key in (("id",), ()):
            outcome = copies.run(expectation, key=key)
            assert outcome.result.gaps == ()
            assert [(finding.key[0], finding.counts) for finding in outcome.findings] == [(n, (1, 0)) for n in "12345"]


def test_a_column_that_is_not_there_is_named(rows: Rows) -> None:
    outcome = rows.one("expect_column_to_exist", column="gone")
    assert outcome.verdict is Verdict.MISMATCH
    (found,) = outcome.findings
    assert found.key == ("1. expect_column_to_exist(gone)",)
    assert found.message == "1. expect_column_to_exist(gone): there is no column gone"
