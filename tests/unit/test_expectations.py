"""Suites are read and decided without Great Expectations; what cannot be exact is refused by name."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.db.snapshot import Anchor
from migverify.errors import ConfigError, StoreError, UsageError
from migverify.model import ColumnDef, Endpoint, StoredKind, Verdict
from migverify.recon import expectations_gx as gx
from migverify.recon.expectation_suite import Expectation, check_suite, read_suite
from migverify.recon.expectation_types import TYPES, How
from migverify.recon.expectations import Batch, SuiteOutcome, explain, keep_outcome, run_suite, write_outcome
from migverify.recon.expectations_gx import Answer, offline
from migverify.recon.model import ChangesPart, Covered, Dataset, FilePart, Kind, Money, Place, Rule, TablePart
from migverify.sql import expectations as sql
from tests.fakes import FakeStore

PLACE = Place("rules.yaml", 3)
COLUMNS = (
    ColumnDef("id", 1, "bigint", "bigint", False),
    ColumnDef("amount", 2, "decimal", "decimal(38,4)", True, precision=38, scale=4),
    ColumnDef("small", 3, "int", "int(5) zerofill", True),
    ColumnDef("note", 4, "varchar", "varchar(20)", True),
    ColumnDef("share", 5, "double", "double", True),
    ColumnDef("made", 6, "datetime", "datetime(6)", True),
)
DATASET = Dataset("d", (TablePart("source", "shop", "t"),), PLACE)


def rule(suite: object, place: Place = PLACE, **options: Any) -> Rule:
    return Rule("fit", Kind.EXPECTATIONS, "d", None, place, ("id",), options={"suite": suite, **options})


def decided(entry: dict[str, Any], dataset: Dataset = DATASET, money: Money | None = None) -> Expectation:
    found = Rule("fit", Kind.EXPECTATIONS, "d", None, PLACE, ("id",), money=money, options={"suite": [entry]})
    return check_suite(found, dataset, COLUMNS, read_suite(found, {})).expectations[0]


def refusal(entry: object, dataset: Dataset = DATASET, **options: Any) -> str:
    found = rule([entry], **options)
    with pytest.raises(ConfigError) as refused:
        check_suite(found, dataset, COLUMNS, read_suite(found, {}))
    assert refused.value.hint
    assert refused.value.message.startswith("rules.yaml:3: rule fit: ")
    return str(refused.value)


@pytest.mark.parametrize(
    ("kind", "column", "how"),
    [
        ("expect_column_sum_to_be_between", "amount", How.AGGREGATE),
        ("expect_column_sum_to_be_between", "small", How.AGGREGATE),
        ("expect_column_sum_to_be_between", "share", How.GX),
        ("expect_column_mean_to_be_between", "id", How.AGGREGATE),
        ("expect_column_max_to_be_between", "made", How.AGGREGATE),
        ("expect_column_max_to_be_between", "note", How.GX),
        ("expect_column_values_to_be_between", "amount", How.ROWS),
        ("expect_column_values_to_be_between", "share", How.GX),
        ("expect_column_median_to_be_between", "small", How.GX),
    ],
)
def test_exact_numbers_are_never_left_to_floats(kind: str, column: str, how: How) -> None:
    bound = "2026-01-01" if column == "made" else "x" if column == "note" else 1
    assert decided({"type": kind, "column": column, "min_value": bound}).how is how


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_no_type_leaves_a_decimal_to_arithmetic_of_great_expectations(kind: str) -> None:
    computing = ("sum", "mean", "_min_", "_max_", "median", "quantile", "stdev", "z_scores", "divergence",
                 "values_to_be_between", "be_in_set", "contain_set", "equal_set", "most_common")  # fmt: skip
    from migverify.recon.expectation_types import Group

    known = TYPES[kind]
    if any(word in kind for word in computing) and known.columns and "proportion" not in kind:
        assert known.of([Group.WIDE] * len(known.columns)) is not How.GX


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"type": "expect_column_stdev_to_be_between", "column": "amount", "max_value": 1}, "computed exactly"),
        ({"type": "expect_column_median_to_be_between", "column": "id", "max_value": 1}, "amount decimal|id bigint"),
        ({"type": "expect_column_pair_values_to_be_equal", "column_A": "amount", "column_B": "share"}, "exactly"),
        ({"type": "expect_column_pair_values_to_be_equal", "column_A": "amount", "column_B": "note"}, "exactly"),
        ({"type": "expect_multicolumn_sum_to_equal", "column_list": ["amount", "share"], "sum_total": 1}, "exactly"),
        ({"type": "expect_column_sum_to_be_between", "column": "note", "max_value": 1}, "exactly"),
        ({"type": "expect_column_sum_to_be_between", "column": "amount", "max_value": 0.1}, "not an exact number"),
        ({"type": "expect_column_sum_to_be_between", "column": "amount", "max_value": True}, "not an exact number"),
        ({"type": "expect_column_sum_to_be_between", "column": "amount", "max_value": "NaN"}, "DECIMAL holds"),
        ({"type": "expect_column_sum_to_be_between", "column": "amount", "max_value": "1" * 66}, "DECIMAL holds"),
        ({"type": "expect_column_sum_to_be_between", "column": "amount"}, "no min_value or max_value"),
        ({"type": "expect_column_sum_to_be_between", "column": "amount", "max": 1}, "no min_value"),
        ({"type": "expect_column_sum_to_be_between", "column": "amount", "max_value": 1, "x": 1}, "x is not known"),
        ({"type": "expect_column_sum_to_be_between", "column": "amont", "max_value": 1}, "no column amont"),
        ({"type": "expect_column_values_to_be_in_set", "column": "note"}, "no value_set"),
        ({"type": "expect_column_values_to_be_in_set", "column": "note", "value_set": []}, "no value_set"),
        ({"type": "expect_column_values_to_be_in_set", "column": "amount", "value_set": [0.5]}, "not an exact number"),
        ({"type": "expect_column_values_to_match_regex", "column": "note"}, "no regex"),
        ({"type": "expect_table_row_count_to_be_between"}, "no min_value or max_value"),
        ({"type": "expect_column_values_to_be_between", "column": "made", "min_value": 5}, "not text"),
        ({"type": "expect_column_values_to_not_be_null", "column": "note", "mostly": 1.5}, "not a share"),
        ({"type": "expect_column_values_to_not_be_null", "column": "note", "mostly": "x"}, "not a share"),
        ({"type": "expect_column_values_to_not_be_null", "column": "note", "row_condition": "a=1"}, "row_condition"),
        ({"type": "expect_column_values_to_not_be_null"}, "column is missing"),
        ({"type": "expect_the_unexpected"}, "not known to compute exactly"),
        ({"type": "expect_query_results_to_match_comparison"}, "not known to compute exactly"),
        ({"column": "note"}, "has no type"),
        ("expect", "not a mapping"),
        ({"type": "unexpected_rows_expectation"}, "no unexpected_rows_query"),
        ({"type": "unexpected_rows_expectation", "unexpected_rows_query": "SELECT 1"}, "{batch} is missing"),
        ({"type": "unexpected_rows_expectation", "unexpected_rows_query": "SELECT {x}, {batch}"}, "{x} is not known"),
        ({"type": "unexpected_rows_expectation", "unexpected_rows_query": "SELECT '{' FROM {batch}"}, "brace"),
        ({"type": "expect_column_sum_to_be_between", "column": "amount", "max_value": {"$PARAMETER": "t"}}, "t has no"),
    ],
)  # fmt: skip
def test_what_is_not_exact_or_not_understood_is_refused_by_name(entry: object, words: str) -> None:
    told = refusal(entry)
    assert any(word in told for word in words.split("|")), told


def test_money_in_a_float_is_refused() -> None:
    entry = {"type": "expect_column_max_to_be_between", "column": "share", "max_value": 1}
    assert decided(entry).how is How.GX
    with pytest.raises(ConfigError, match="cannot be computed exactly on share double"):
        decided(entry, money=Money("share", "'EUR'"))


def test_files_streams_and_mapped_values_are_refused_with_the_way_out() -> None:
    entry = {"type": "expect_column_values_to_not_be_null", "column": "note"}
    assert "Parquet" in refusal(entry, Dataset("d", (FilePart("s3://b/*.parquet"),), PLACE))
    assert "change stream" in refusal(entry, Dataset("d", (ChangesPart("source", "", "shop", "t"),), PLACE))
    mapped = Dataset("d", DATASET.parts, PLACE, values=(("note", (("a", "b"),)),))
    assert "CASE" in refusal(entry, mapped)


def test_on_several_endpoints_only_what_holds_row_by_row_may_run() -> None:
    shards = Dataset("d", (TablePart("source.a", "d", "t"), TablePart("source.b", "d", "t")), PLACE)
    assert decided({"type": "expect_column_values_to_not_be_null", "column": "note"}, shards).how is How.GX
    for entry in (
        {"type": "expect_column_values_to_not_be_null", "column": "note", "mostly": 0.5},
        {"type": "expect_column_values_to_be_unique", "column": "note"},
        {"type": "expect_column_sum_to_be_between", "column": "amount", "max_value": 1},
        {"type": "unexpected_rows_expectation", "unexpected_rows_query": "SELECT * FROM {batch}"},
    ):
        assert "several endpoints" in refusal(entry, shards)


@pytest.mark.parametrize(
    ("suite", "words"),
    [(None, "no suite"), ([], "no expectation"), ("", "no suite"), ("nowhere.json", "cannot be read")],
)
def test_no_suite_is_no_pass(suite: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_suite(rule(suite))


@pytest.mark.parametrize("limit", [0, -1, "7", True, 1.5])
def test_a_limit_is_a_whole_number(limit: object) -> None:
    with pytest.raises(ConfigError, match="limit"):
        read_suite(rule([{"type": "expect_table_row_count_to_equal", "value": 1}], limit=limit))


def test_numbers_of_a_suite_file_keep_their_digits(tmp_path: Path) -> None:
    document = """{"name": "amounts", "expectations": [{"type": "expect_column_sum_to_be_between", "id": "x",
      "kwargs": {"column": "amount", "max_value": 9007199254740993.0001, "min_value": null, "strict_max": false},
      "meta": {}, "severity": "critical"}]}"""
    (tmp_path / "suite.json").write_text(document)
    found = rule("suite.json", Place(str(tmp_path / "rules.yaml"), 3))
    suite = check_suite(found, DATASET, COLUMNS, read_suite(found))
    assert suite.name == "amounts"
    assert suite.expectations[0].arguments["max_value"] == Decimal("9007199254740993.0001")
    (tmp_path / "suite.json").write_text('{"expectations": {}}')
    with pytest.raises(ConfigError, match="not a suite"):
        read_suite(found)
    (tmp_path / "suite.json").write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_suite(found)


def test_parameters_are_bound() -> None:
    entry = {"type": "expect_column_sum_to_be_between", "column": "amount", "max_value": {"$PARAMETER": "top"}}
    found = rule([entry])
    suite = check_suite(found, DATASET, COLUMNS, read_suite(found, {"top": Decimal("9007199254740993.0001")}))
    assert suite.expectations[0].arguments["max_value"] == Decimal("9007199254740993.0001")
    assert list(explain(suite)) == [
        "1. expect_column_sum_to_be_between(amount), wanted max_value 9007199254740993.0001: migverify, exactly"
    ]


@given(st.decimals(allow_nan=False, allow_infinity=False, places=30, min_value=-(10**34), max_value=10**34))
def test_a_literal_is_the_number(value: Decimal) -> None:
    text = sql.number_literal(value)
    assert Decimal(text) == value
    assert "E" not in text.upper()


@pytest.mark.parametrize("value", ["1E+65", "1E-31", "NaN", "Infinity"])
def test_a_number_beyond_a_decimal_is_no_literal(value: str) -> None:
    with pytest.raises(UsageError):
        sql.number_literal(Decimal(value))


@pytest.mark.parametrize(
    ("query", "filled"),
    [
        ("SELECT * FROM {batch} WHERE a > 1;", "SELECT * FROM (SELECT * FROM t) AS subselect WHERE a > 1"),
        ("SELECT * FROM {batch}", "SELECT * FROM (SELECT * FROM t) AS subselect"),
        ("SELECT * FROM {batch} AS b", "SELECT * FROM (SELECT * FROM t) AS b"),
        ("SELECT * FROM {batch} b JOIN x", "SELECT * FROM (SELECT * FROM t) b JOIN x"),
        ("SELECT '{{batch}}' FROM {batch}", "SELECT '{batch}' FROM (SELECT * FROM t) AS subselect"),
        ("SELECT * FROM {batch}\nORDER BY 1", "SELECT * FROM (SELECT * FROM t) AS subselect\nORDER BY 1"),
    ],
)
def test_the_batch_stands_where_the_query_wants_it(query: str, filled: str) -> None:
    assert sql.fill(query, "t") == filled


def test_a_comment_at_the_end_of_a_select_hides_nothing() -> None:
    assert sql.batch_of(["SELECT 1 -- x"]) == "(SELECT 1 -- x\n) AS `batch`"
    assert "-- x\n) AS `part0`\nUNION ALL\n" in sql.batch_of(["SELECT 1 -- x", "SELECT 2"])


# --- running, on fakes and SQLite -----------------------------------------------------------------------------


ANCHOR = Anchor("source", "mysql", "consistent snapshot", "binlog.000001:4", "binlog.000001:4", exact=True, at=1.0)


class SqliteReader:
    """Great Expectations on SQLite in memory; our own SQL is for servers, so queries here get a fixed answer."""

    def __init__(self, rows: str = "3") -> None:
        self.rows = rows
        self.anchor = ANCHOR

    def query(self, sql: str) -> list[tuple[str | None, ...]]:
        del sql
        return [(self.rows,)]

    def query_named(self, sql: str) -> list[dict[str, str | None]]:
        raise AssertionError(sql)

    def warnings(self) -> list[str]:
        return []

    @contextmanager
    def engine(self) -> Iterator[Any]:
        from sqlalchemy import create_engine, text
        from sqlalchemy.pool import StaticPool

        engine = create_engine("sqlite://", poolclass=StaticPool)
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE t (id INTEGER, note TEXT)"))
            connection.execute(text("INSERT INTO t VALUES (1,'a'),(2,NULL),(3,NULL)"))
        yield engine
        engine.dispose()


@contextmanager
def on_sqlite(endpoint: Endpoint) -> Iterator[SqliteReader]:
    del endpoint
    yield SqliteReader()


BATCH = Batch(Endpoint("source", "h", 1, "u"), "SELECT id, note FROM t", (COLUMNS[0], COLUMNS[3]), "a")


def run(*entries: dict[str, Any], **options: Any) -> SuiteOutcome:
    found = rule(list(entries), **options)
    suite = check_suite(found, DATASET, COLUMNS, read_suite(found))
    return run_suite(found, suite, [BATCH], on_sqlite)


def test_a_suite_that_holds_is_a_match() -> None:
    outcome = run(
        {"type": "expect_column_values_to_not_be_null", "column": "id"},
        {"type": "expect_column_to_exist", "column": "id"},
    )
    assert (outcome.verdict, outcome.reasons, outcome.findings) == (Verdict.MATCH, (), ())
    assert outcome.anchors == (ANCHOR,)
    assert outcome.covered == Covered(rows_source=3, groups=2)


def test_rows_become_findings_and_json_keeps_the_shape_of_great_expectations() -> None:
    outcome = run({"type": "expect_column_values_to_not_be_null", "column": "note", "description": "a note must be"})
    assert outcome.verdict is Verdict.MISMATCH
    assert [(f.key, f.message, f.shard) for f in outcome.findings] == [
        (("2",), "a note must be", "a"),
        (("3",), "a note must be", "a"),
    ]
    document = json.loads(outcome.json)
    assert document["success"] is False
    assert document["results"][0]["result"]["unexpected_count"] == 2
    assert document["results"][0]["expectation_config"]["type"] == "expect_column_values_to_not_be_null"
    assert document["statistics"]["unsuccessful_expectations"] == 1


def test_a_row_that_lies_in_two_shards_names_both() -> None:
    found = rule([{"type": "expect_column_values_to_not_be_null", "column": "note"}])
    suite = check_suite(found, DATASET, COLUMNS, read_suite(found))
    other = replace(BATCH, endpoint=Endpoint("other", "h", 1, "u"), shard="b")
    outcome = run_suite(found, suite, [BATCH, other], on_sqlite)
    assert {finding.shard for finding in outcome.findings} == {"b, a"}, "in the order of the endpoints"


def test_limits_and_formats_without_values() -> None:
    cut = run({"type": "expect_column_values_to_not_be_null", "column": "note"}, limit=1)
    assert (cut.violations, len(cut.findings)) == (2, 2)
    counted = run({"type": "expect_column_values_to_not_be_null", "column": "note"}, result_format="BASIC")
    assert [f.counts for f in counted.findings] == [(2, 0)]
    assert counted.verdict is Verdict.MISMATCH


def test_an_exception_inside_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = run({"type": "expect_column_values_to_match_regex", "column": "note", "regex": "(["})
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert "was not answered" in outcome.reasons[0]
    assert not outcome.findings

    def nothing(*_: object, **__: object) -> list[Answer]:
        return []

    monkeypatch.setattr(gx, "answer_all", nothing)
    lost = run({"type": "expect_column_values_to_not_be_null", "column": "id"})
    assert (lost.verdict, lost.reasons) == (
        Verdict.INCONCLUSIVE, ("1. expect_column_values_to_not_be_null(id) was not answered",)
    )  # fmt: skip


def test_an_outcome_without_expectations_is_inconclusive() -> None:
    assert SuiteOutcome((), Covered(), (), 0, 0, "", "").verdict is Verdict.INCONCLUSIVE


def test_results_are_kept_and_written(tmp_path: Path) -> None:
    outcome = run({"type": "expect_column_values_to_not_be_null", "column": "note"})
    store = FakeStore()
    run_id = store.start_run("recon", "", {}, {}, kind=StoredKind.RULES)
    with pytest.raises(StoreError, match="kept no result"):
        write_outcome(store, run_id, "fit", tmp_path)
    keep_outcome(store, run_id, "fit", outcome)
    paths = write_outcome(store, run_id, "fit", tmp_path / "out")
    assert [path.name for path in paths] == ["fit.expectations.json", "fit.expectations.html"]
    assert paths[0].read_text() == outcome.json
    assert paths[1].read_text() == outcome.html


def test_a_page_is_made_offline() -> None:
    page = offline(
        "<html><head><link rel=x href='https://cdn/x.css'><script src=\"//cdn/x.js\"></script><style>@import 'https://a';"
        " a { background: url( 'https://b/c.png' ) }</style></head><body><script>go()</script><img src='https://d/e.png'>"
        "<a href='https://f'>f</a><a href='#g'>g</a><footer>news</footer>9007199254740993.0001</body></html>"
    )
    for gone in ("cdn", "https:", "script", "news", "go()"):
        assert gone not in page, gone
    assert "9007199254740993.0001" in page
    assert "href='#g'" in page
    assert "default-src 'none'" in page


def test_a_missing_extra_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "great_expectations", None)
    with pytest.raises(ConfigError) as refused:
        run({"type": "expect_column_values_to_not_be_null", "column": "id"})
    assert "pip install 'migverify[expectations]'" in refused.value.hint


def test_great_expectations_is_imported_only_to_run() -> None:
    code = (
        "import sys, migverify.recon.expectations; print('great_expectations' in sys.modules, 'pandas' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["False", "False"]
