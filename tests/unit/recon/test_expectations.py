"""Suites are read and checked before anything runs; what cannot be exact is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.db.snapshot import ReadSnapshot
from migverify.errors import ConfigError, UsageError
from migverify.model import ColumnDef, Endpoint
from migverify.recon import suites
from migverify.recon.expectations import Expectation, check_suite, read_suite
from migverify.recon.fields import Money
from migverify.recon.model import ChangesPart, Dataset, FilePart, RulePlace, TablePart
from migverify.recon.rule import Rule
from migverify.recon.sides import Column, DatasetSide, OpenPart
from migverify.recon.suites import SuiteAnswers, ask, findings_of
from migverify.sql import expectations as sql
from migverify.sql.quoting import decimal_literal
from tests.rule_fakes import changed, rule_of

PLACE = RulePlace("rules.yaml", 3)
COLUMNS = (
    ColumnDef("id", 1, "bigint", "bigint", False),
    ColumnDef("amount", 2, "decimal", "decimal(38,4)", True, precision=38, scale=4),
    ColumnDef("small", 3, "int", "int(5) zerofill", True),
    ColumnDef("note", 4, "varchar", "varchar(20)", True),
    ColumnDef("share", 5, "double", "double", True),
    ColumnDef("made", 6, "datetime", "datetime(6)", True),
)
DATASET = Dataset("d", (TablePart("source", "shop", "t"),), PLACE)
NOT_NULL = {"type": "expect_column_values_to_not_be_null", "column": "note"}


def rule(*suite: object, place: RulePlace = PLACE, money: Money | None = None, **options: Any) -> Rule:
    found = rule_of("expectations", "d", name="fit", place=place, key="id", money=money, suite=[])
    return changed(found, suite=list(suite), **options)


def checked(found: Rule, dataset: Dataset = DATASET) -> tuple[Expectation, ...]:
    return check_suite(found, dataset, COLUMNS, read_suite(found))


def refusal(entry: object, dataset: Dataset = DATASET, **options: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        checked(rule(entry, **options), dataset)
    assert refused.value.hint
    assert refused.value.message.startswith("rules.yaml:3: rule fit: ")
    return str(refused.value)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        *(({"type": kind, "column": "small"}, f"{kind} is refused: ") for kind in
          ("expect_column_stdev_to_be_between", "expect_column_values_to_be_increasing",
           "unexpected_rows_expectation")),
        ({"type": "expect_column_pair_values_to_be_equal", "column_A": "amount", "column_B": "share"}, "exactly"),
        ({"type": "expect_column_pair_values_to_be_equal", "column_A": "amount", "column_B": "note"}, "exactly"),
        ({"type": "expect_multicolumn_sum_to_equal", "column_list": ["amount", "share"], "sum_total": 1}, "exactly"),
        ({"type": "expect_column_sum_to_be_between", "column": "note", "max_value": 1}, "exactly on note varchar"),
        ({"type": "expect_column_sum_to_be_between", "column": "share", "max_value": 1}, "exactly on share double"),
        ({"type": "expect_column_mean_to_be_between", "column": "share", "max_value": 1}, "exactly on share double"),
        ({"type": "expect_column_max_to_be_between", "column": "note", "max_value": "a"}, "exactly on note varchar"),
        ({"type": "expect_column_values_to_match_regex", "column": "share", "regex": "^1"}, "exactly on share double"),
        ({"type": "expect_column_sum_to_be_between", "column": "amount", "max_value": 0.1}, "not an exact number"),
        ({"type": "expect_column_sum_to_be_between", "column": "amount", "max_value": True}, "not an exact number"),
        ({"type": "expect_column_sum_to_be_between", "column": "amount", "max_value": "NaN"}, "DECIMAL holds"),
        ({"type": "expect_column_sum_to_be_between", "column": "amount", "max_value": "1" * 66}, "DECIMAL holds"),
        ({"type": "expect_column_mean_to_be_between", "column": "amount", "max_value": "1" * 41}, "DECIMAL holds"),
        ({"type": "expect_column_sum_to_be_between", "column": "amount"}, "no min_value or max_value"),
        ({"type": "expect_column_sum_to_be_between", "column": "amount", "max": 1}, "no min_value"),
        ({"type": "expect_column_sum_to_be_between", "column": "amount", "max_value": 1, "x": 1}, "x is not known"),
        ({**NOT_NULL, "nonsense": 1}, "nonsense is not known"),
        ({"type": "expect_column_sum_to_be_between", "column": "amont", "max_value": 1}, "no column amont"),
        ({"type": "expect_column_values_to_be_in_set", "column": "note"}, "no value_set"),
        ({"type": "expect_column_values_to_be_in_set", "column": "note", "value_set": []}, "no value_set"),
        ({"type": "expect_column_values_to_be_in_set", "column": "note", "value_set": "ab"}, "not a list"),
        ({"type": "expect_column_values_to_be_in_set", "column": "amount", "value_set": [0.5]}, "not an exact number"),
        ({"type": "expect_column_values_to_match_regex", "column": "note"}, "no regex"),
        *(({"type": "expect_column_values_to_match_regex", "column": "note", "regex": regex}, "do not read the regex")
          for regex in (r"\d", r"(a)\1", "(?i)a", "a*+", "[[:alpha:]]", "é", r"a\b", "[a-z&&[^b]]")),
        ({"type": "expect_column_values_to_match_like_pattern", "column": "note", "like_pattern": 5}, "not text"),
        ({"type": "expect_column_values_to_not_be_null", "kwargs": "note"}, "column is missing"),
        ({"type": "expect_compound_columns_to_be_unique", "column_list": ["id"], "ignore_row_if": "neither"},
         "ignore_row_if is not known"),
        ({"type": "expect_table_row_count_to_be_between"}, "no min_value or max_value"),
        ({"type": "expect_column_values_to_be_between", "column": "made", "min_value": 5}, "not text"),
        ({**NOT_NULL, "mostly": 1.5}, "not a share"),
        ({**NOT_NULL, "mostly": "x"}, "not a share"),
        ({**NOT_NULL, "row_condition": "a=1"}, "row_condition"),
        ({"type": "expect_column_values_to_not_be_null"}, "column is missing"),
        ({"type": "expect_the_unexpected"}, "not known to compute exactly"),
        ({"column": "note"}, "has no type"),
        ("expect", "has no type"),
    ],
)  # fmt: skip
def test_what_is_not_exact_or_not_understood_is_refused_by_name(entry: object, words: str) -> None:
    assert words in refusal(entry)


@pytest.mark.parametrize("regex", ["^[A-Z]{3}$", "[.]$", "a|(b+c?)*", r"^\[x\]-[0-9]{1,3}--", "[^@]+@[a-z0-9.-]+"])
def test_what_the_servers_read_alike_is_a_regex(regex: str) -> None:
    assert checked(rule({"type": "expect_column_values_to_match_regex", "column": "note", "regex": regex}))


def test_money_in_a_float_is_refused() -> None:
    entry = {"type": "expect_column_max_to_be_between", "column": "share", "max_value": 1}
    assert checked(rule(entry))
    assert "cannot be computed exactly on share double" in refusal(entry, money=Money(column="share", currency="'EUR'"))


def test_files_streams_and_mapped_values_are_refused_with_the_remedy() -> None:
    assert "Parquet" in refusal(NOT_NULL, Dataset("d", (FilePart("s3://b/*.parquet"),), PLACE))
    assert "change stream" in refusal(NOT_NULL, Dataset("d", (ChangesPart("source", "", "shop", "t"),), PLACE))
    assert "CASE" in refusal(NOT_NULL, Dataset("d", DATASET.parts, PLACE, values=(("note", (("a", "b"),)),)))


def test_on_several_endpoints_only_what_holds_row_by_row_may_run() -> None:
    shards = Dataset("d", (TablePart("source.a", "d", "t"), TablePart("source.b", "d", "t")), PLACE)
    assert checked(rule(NOT_NULL), shards)
    for entry in (
        {**NOT_NULL, "mostly": 0.5},
        {"type": "expect_column_values_to_be_unique", "column": "note"},
        {"type": "expect_column_sum_to_be_between", "column": "amount", "max_value": 1},
    ):
        assert "several endpoints" in refusal(entry, shards)


@pytest.mark.parametrize(
    ("suite", "words"),
    [(None, "no suite"), ([], "no expectation"), ("", "no suite"), ("nowhere.json", "cannot be read")],
)
def test_no_suite_is_no_pass(suite: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_suite(changed(rule(), suite=suite))


@pytest.mark.parametrize(
    "document",
    [
        # Great Expectations 1.x, and 0.18
        """{"name": "amounts", "expectations": [{"type": "expect_column_sum_to_be_between", "id": "x",
        "kwargs": {"column": "amount", "max_value": 9007199254740993.0001, "min_value": null, "strict_max": false},
        "meta": {}, "severity": "critical"}], "id": "y", "meta": {}, "notes": null}""",
        """{"expectation_suite_name": "amounts", "ge_cloud_id": null, "data_asset_type": null, "expectations":
        [{"expectation_type": "expect_column_sum_to_be_between", "meta": {}, "ge_cloud_id": null, "expectation_context":
        {"description": null}, "kwargs": {"column": "amount", "max_value": 9007199254740993.0001,
        "result_format": "COMPLETE", "auto": false}}]}""",
    ],
)
def test_numbers_of_a_suite_file_keep_their_digits(tmp_path: Path, document: str) -> None:
    (tmp_path / "suite.json").write_text(document)
    found = changed(rule(place=RulePlace(str(tmp_path / "rules.yaml"), 3)), suite="suite.json")
    assert checked(found)[0].arguments["max_value"] == Decimal("9007199254740993.0001")
    for text, words in (('{"expectations": {}}', "not a suite"), ("{", "cannot be read")):
        (tmp_path / "suite.json").write_text(text)
        with pytest.raises(ConfigError, match=words):
            read_suite(found)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=30, min_value=-(10**34), max_value=10**34))
def test_a_literal_is_the_number(value: Decimal) -> None:
    text = decimal_literal(value)
    assert Decimal(text) == value
    assert "E" not in text.upper()


@pytest.mark.parametrize("value", ["1E+65", "1E-31", "NaN", "Infinity"])
def test_a_number_beyond_a_decimal_is_no_literal(value: str) -> None:
    with pytest.raises(UsageError):
        decimal_literal(Decimal(value))


def test_a_comment_at_the_end_of_a_select_hides_nothing() -> None:
    assert sql.batch_of(["SELECT 1 -- x"]) == "(SELECT 1 -- x\n) AS `batch`"
    assert "-- x\n) AS `part0`\nUNION ALL\n" in sql.batch_of(["SELECT 1 -- x", "SELECT 2"])


class Session:
    """Answers every count alike: 3 rows, 3 considered, ``bad`` that do not hold; the counts come with a warning."""

    def __init__(self, bad: int = 2, warning: str = "") -> None:
        self.bad, self.warning, self.last = bad, warning, ""

    def query(self, statement: str) -> list[tuple[str | None, ...]]:
        self.last = statement
        return [("3", "3", str(self.bad))] if "SUM(CASE" in statement else [("3",)]

    def query_named(self, statement: str) -> list[dict[str, str | None]]:
        self.last = statement
        return [{"id": "2", "note": None}, {"id": "3", "note": None}]

    def warnings(self) -> list[str]:
        return [self.warning] if self.warning and "SUM(CASE" in self.last else []


SNAPSHOT = ReadSnapshot("source", "mysql", "consistent snapshot", "binlog.1:4", "binlog.1:4", exact=True, at=1.0)


def answers(monkeypatch: pytest.MonkeyPatch, session: Session, *shards: str) -> SuiteAnswers:
    @contextmanager
    def opened(*_: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(sessions=(session,), snapshot=SNAPSHOT)

    monkeypatch.setattr(suites, "open_snapshot", opened)
    columns = {column.name: Column(column, column.name) for column in COLUMNS}
    parts = [OpenPart(TablePart(name, "shop", "t", shard=name), "t", columns=columns) for name in shards]
    endpoints = {name: Endpoint(name, "h", 1, "u") for name in shards}
    return ask(rule(NOT_NULL), checked(rule(NOT_NULL)), DatasetSide(DATASET, tuple(parts)), endpoints, {})


def test_a_row_that_is_in_two_shards_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    read = answers(monkeypatch, Session(), "b", "a")
    found = findings_of(rule(NOT_NULL), read, COLUMNS, show=True)
    assert [(key, finding.shard) for key, finding in found.items()] == [(("2",), "a, b"), (("3",), "a, b")]
    assert (read.rows, read.snapshots, read.gaps) == (6, (SNAPSHOT, SNAPSHOT), ())


@pytest.mark.parametrize("warning", ["1292: Truncated incorrect DOUBLE value", "1365: Division by 0"])
def test_a_warning_about_values_leaves_an_expectation_unanswered(monkeypatch: pytest.MonkeyPatch, warning: str) -> None:
    read = answers(monkeypatch, Session(0, warning), "a")
    (gap,) = read.gaps
    assert gap.startswith("1. expect_column_values_to_not_be_null(note) was not answered: ")
    assert not findings_of(rule(NOT_NULL), read, COLUMNS, show=True)
