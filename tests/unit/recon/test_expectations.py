"""Suites are read and checked before anything runs; what cannot be exact is refused by name."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.db.session import is_altered
from migverify.errors import ConfigError, UsageError
from migverify.model import ColumnDef, Verdict
from migverify.recon.build import Built, RuleInputs
from migverify.recon.evaluate import evaluate
from migverify.recon.expectations import Expectation, exact
from migverify.recon.fields import Money
from migverify.recon.kinds.suites import Expectations
from migverify.recon.model import ChangesPart, Class, Dataset, FilePart, RulePlace, TablePart
from migverify.recon.relation import KeyRows, SqlRead
from migverify.recon.sides import Column, DatasetSide, OpenPart
from migverify.sql import expectations as sql
from migverify.sql.quoting import decimal_literal
from tests.rule_fakes import Basket, Clock, FakeEngine, Rows, changed, excused, rule_of, rule_set

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


def rule(*suite: object, place: RulePlace = PLACE, money: Money | None = None, **options: Any) -> Expectations:
    found = rule_of("expectations", "d", name="fit", place=place, key="id", money=money, suite=[])
    made = changed(found, suite=list(suite), **options)
    assert isinstance(made, Expectations)
    return made


def built(found: Expectations, dataset: Dataset = DATASET) -> Built:
    columns = {column.name: Column(column, f"`{column.name}`") for column in COLUMNS}
    parts = tuple(OpenPart(part, "t", columns=columns) for part in dataset.parts)
    return found.relations(RuleInputs(DatasetSide(dataset, parts), None, found.refusal, found.key, found.money))


def checked(found: Expectations, dataset: Dataset = DATASET) -> list[Expectation]:
    assert built(found, dataset).source.reads
    return [exact(one, {column.name: column for column in COLUMNS}) for one in found.expectations]


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
        ({"type": "expect_column_values_to_match_regex", "column": "note", "regex": "(["}, "is not a regex"),
        ({"type": "expect_column_max_to_be_between", "column": "made", "max_value": "later"}, "not a date or time"),
        ({"type": "expect_column_max_to_be_between", "column": "made", "max_value": "2026-01-01 00:00:00.0000001"},
         "not a date or time"),
        ({"type": "expect_column_values_to_be_in_set", "column": "made", "value_set": ["2026"]}, "not a date or time"),
        ({**NOT_NULL, "mostly": 1.5}, "not a share"),
        ({**NOT_NULL, "mostly": "0." + "9" * 31}, "not a share"),
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
        assert not changed(rule(), suite=suite).expectations  # type: ignore[attr-defined]


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
    found = rule(place=RulePlace(str(tmp_path / "rules.yaml"), 3))
    assert checked(changed(found, suite="suite.json"))[0].arguments["max_value"] == Decimal("9007199254740993.0001")
    for text, words in (('{"expectations": {}}', "not a suite"), ("{", "cannot be read")):
        (tmp_path / "suite.json").write_text(text)
        with pytest.raises(ConfigError, match=words):
            checked(changed(found, suite="suite.json"))  # type: ignore[arg-type]


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


def shards(**endpoints: str) -> Dataset:
    return Dataset(
        "d", tuple(TablePart(endpoint, "shop", "t", shard=name) for name, endpoint in endpoints.items()), PLACE
    )


def test_the_parts_on_one_endpoint_are_one_batch_and_one_statement() -> None:
    reads = built(rule(NOT_NULL), shards(a="source.1", b="source.2", c="source.1")).source.reads
    found = [(read.endpoint, read.shard, read.table, read.population) for read in reads if isinstance(read, SqlRead)]
    assert [(endpoint, shard) for endpoint, shard, *_ in found] == [("source.1", ""), ("source.2", "b")]
    assert [("`part1`" in table, "`part1`" in population) for *_, table, population in found] == [
        (True, True), (False, False),
    ]  # fmt: skip


def test_a_type_that_one_shard_alone_has_is_looked_at() -> None:
    inexact = {"type": "expect_column_sum_to_be_between", "column": "amount", "max_value": 1}
    found, dataset = rule(inexact), shards(a="source", b="source")
    columns = {column.name: Column(column, f"`{column.name}`") for column in COLUMNS}
    float_amount = replace(columns["amount"].definition, data_type="double", column_type="double")
    other = columns | {"amount": Column(float_amount, "`amount`")}
    parts = (OpenPart(dataset.parts[0], "t", columns=columns), OpenPart(dataset.parts[1], "t", columns=other))
    with pytest.raises(ConfigError, match="exactly on amount double"):
        found.relations(RuleInputs(DatasetSide(dataset, parts), None, found.refusal, found.key, None))


# --- what becomes of rows -----------------------------------------------------------------------------------

SUITE = rule(
    NOT_NULL,
    {"type": "expect_column_sum_to_be_between", "column": "amount", "max_value": 5},
    {"type": "expect_column_values_to_be_between", "column": "small", "min_value": 1, "description": "small is there"},
    {**NOT_NULL, "mostly": 0.5},
    delay=1.0,
)
SUM = "2. expect_column_sum_to_be_between(amount)"
NULLS, SMALL = "1. expect_column_values_to_not_be_null(note)", "3. expect_column_values_to_be_between(small)"


def row(found: str, *values: str | None, **more: Any) -> KeyRows:
    return KeyRows(more.pop("count", 1), (found, *(values or ("7", None))), **more)


def run(*moments: Rows, found: Expectations = SUITE, show: bool = True, **more: Any) -> tuple[Any, Basket]:
    clock, basket = Clock(), Basket()
    rules = rule_set(found, *more.pop("exceptions", ()))
    engine = FakeEngine(clock, *({"d": rows} for rows in moments))
    result = evaluate(found, rules, None, engine, built(found), basket, clock.conditions(show=show), **more)
    return result, basket


def test_a_row_is_one_finding_and_each_expectation_a_reason_with_its_count() -> None:
    result, basket = run({("1", None): row("1"), ("2", None): row("1,3"), (None, "2"): row("6.00", None, None),
                          (None, "4"): row("3 of 5", None, None)})  # fmt: skip
    assert {finding.key: finding.message for finding in basket} == {
        (SUM,): f"{SUM}: observed 6.00, expected max_value 5",
        ("4. expect_column_values_to_not_be_null(note)",):
            "4. expect_column_values_to_not_be_null(note): 3 of 5 rows do not hold, mostly 0.5",
        ("1",): f"id 1: {NULLS}", ("2",): f"id 2: {NULLS}; small is there",
    }  # fmt: skip
    assert result.verdict is Verdict.MISMATCH
    assert result.reasons == (
        "4 findings are against the rule", f"{NULLS} does not hold (2 findings)",
        f"{SUM}: observed 6.00, expected max_value 5 (1 finding)",
        "4. expect_column_values_to_not_be_null(note): 3 of 5 rows do not hold, mostly 0.5 (1 finding)",
        f"{SMALL} does not hold (1 finding)",
    )  # fmt: skip
    assert basket.by_key["4. expect_column_values_to_not_be_null(note)",].counts == (3, 0)
    assert [(d.column, d.source) for d in basket.by_key["1",].deviations] == [("note", "7"), ("small", None)]


def test_what_every_read_finds_is_a_finding_though_it_changes() -> None:
    moments = [{(None, "2"): row(f"{n}.00", None, None), ("1", None): row("1", str(n), None)} for n in (6, 7, 8)]
    result, basket = run(*moments)
    assert {finding.key: finding.kind for finding in basket} == {(SUM,): Class.VIOLATION, ("1",): Class.VIOLATION}
    assert basket.by_key[SUM,].message == f"{SUM}: observed 8.00, expected max_value 5"
    assert result.verdict is Verdict.MISMATCH
    late, _ = run(moments[0], {})
    assert (late.verdict, late.counts) == (Verdict.MATCH, {Class.LATE_MATCHED: 2})


def test_an_exception_names_a_row_or_an_expectation() -> None:
    known = [excused("fit", key, "ann", "known", datetime(2099, 1, 1)) for key in (("1",), (SUM,))]
    rows = {(None, "2"): row("6.00", None, None), ("1", None): row("1")}
    result, _ = run(rows, exceptions=known)
    assert (result.verdict, result.counts) == (Verdict.MATCH, {Class.KNOWN_EXCEPTION: 2})
    assert not [reason for reason in result.reasons if "does not hold" in reason]


def test_values_may_be_kept_out_and_counts_are_kept() -> None:
    rows = {
        (None, "2"): row("6.00", None, None),
        (None, "4"): row("3 of 5", None, None),
        ("1", None): row("1", "secret"),
    }
    result, basket = run(rows, show=False)
    assert "secret" not in repr((result, list(basket)))
    assert "6.00" not in repr((result, list(basket)))
    assert f"{SUM}: it does not hold (1 finding)" in result.reasons
    assert "3 of 5 rows do not hold" in repr(result)


def test_a_row_that_is_in_two_shards_names_both_and_an_answer_its_endpoint() -> None:
    _, basket = run({("2", None): row("1", count=2, shards=("a", "b")), (None, "2 source.b"): row("9", None, None)})
    assert [(finding.key, finding.shard, finding.counts) for finding in basket] == [
        ((SUM, "source.b"), "", (0, 0)), (("2",), "a, b", (2, 0)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("warning", "altered"),
    [
        ("1292: Truncated incorrect DOUBLE value: 'paid'", True), ("1365: Division by 0", True),
        ("1292: Truncated incorrect DECIMAL value: '1.5x'", True), ("1690: DECIMAL value is out of range", True),
        ("1292: Truncated incorrect DECIMAL value: '3255.91666667'", False), ("1287: deprecated", False),
    ],
)  # fmt: skip
def test_which_warnings_are_about_values(warning: str, altered: bool) -> None:
    assert is_altered(warning) is altered
