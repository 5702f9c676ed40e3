"""Query plans: both servers' documents are read alike, findings are measured in rows, noise is none, doubt is said."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.errors import ReadError
from migverify.model import IndexDef, Side, Verdict
from migverify.sql.lexer import DEFAULT, Modes
from migverify.workload.meaning import Meanings
from migverify.workload.plans import mysql, tidb
from migverify.workload.plans.choose import choose
from migverify.workload.plans.drift import PlanRecord, TableRecord, drift
from migverify.workload.plans.judge import JudgedPlans, PlanState, judge_plans, plans_verdict, reasons, with_drift
from migverify.workload.plans.model import (
    AccessPath,
    DigestPlans,
    Harm,
    PlanAnswer,
    PlanFinding,
    QueryPlan,
    RootFilter,
    SamplePlans,
    TableAccess,
)
from migverify.workload.plans.remedy import hinted, with_remedies
from migverify.workload.plans.statistics import TableStatistics, TargetTables
from migverify.workload.replay.model import Call
from migverify.workload.replay.runfile import RunFile, RunFileWriter
from migverify.workload.state import SessionState

NAMES = {"o": ("shop", "orders"), "c": ("shop", "customers")}


def index(*columns: str, visible: bool = True) -> IndexDef:
    return IndexDef("by", False, columns, (None,) * len(columns), visible)


ID = index("id")
FRESH = TableStatistics(50_000, 0, 100)
TABLES = TargetTables(
    {("shop", "orders"): FRESH, ("shop", "customers"): FRESH},
    {("shop", "orders"): {"primary": ID, "by_code": index("code")}, ("shop", "customers"): {"primary": ID}},
)


def scan(name: str, kind: str, rows: int, key: str = "", **more: Any) -> dict[str, Any]:
    table = {"table_name": name, "access_type": kind, "rows_examined_per_scan": rows, "rows_produced_per_join": rows}
    return {"table": {**table, **({"key": key} if key else {}), **more}}


def mysql_plan(**block: Any) -> QueryPlan:
    return mysql.read_plan(json.dumps({"query_block": {"select_id": 1, **block}}))


def operator(name: str, rows: str, *below: dict[str, Any], seen: str = "", info: str = "", task: str = "root") -> Any:
    found = {"id": name, "estRows": rows, "taskType": task, "operatorInfo": info, "subOperators": list(below)}
    return {**found, "accessObject": seen} if seen else found


def tidb_plan(*operators: dict[str, Any]) -> QueryPlan:
    return tidb.read_plan(json.dumps(list(operators)))


# --- reading ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "path"),
    [("const", AccessPath.POINT), ("eq_ref", AccessPath.POINT), ("ref", AccessPath.LOOKUP),
     ("range", AccessPath.RANGE), ("index_merge", AccessPath.MERGE), ("index", AccessPath.INDEX_SCAN),
     ("ALL", AccessPath.FULL_SCAN)],
)  # fmt: skip
def test_mysql_access_types_are_paths(kind: str, path: AccessPath) -> None:
    (found,) = mysql_plan(**scan("o", kind, 7, "by_code")).accesses
    assert (found.path, found.estimated, found.table) == (path, 7.0, "o")
    assert found.index == ("" if path is AccessPath.FULL_SCAN else "by_code")


def test_mysql_counts_rows_of_a_nested_loop_over_the_rows_before() -> None:
    """200 customers pass; each looks up 23 orders. A buffered join reads its table once."""
    customers = scan("c", "ALL", 2000)
    customers["table"]["rows_produced_per_join"] = 200
    plan = mysql_plan(
        ordering_operation={
            "using_filesort": True,
            "grouping_operation": {
                "using_temporary_table": True,
                "nested_loop": [customers, scan("o", "ref", 23, "by_customer"),
                                scan("x", "ALL", 50, using_join_buffer="hash join")],
            },
        }
    )  # fmt: skip
    assert [(one.table, one.estimated) for one in plan.accesses] == [("c", 2000.0), ("o", 4600.0), ("x", 50.0)]
    assert (plan.joins, plan.sorts, plan.temporary) == (("nested loop", "hash join"), 1, True)


def test_mysql_finds_tables_of_unions_subqueries_and_derived_tables() -> None:
    block = {"query_block": {"select_id": 2, **scan("c", "ref", 3, "by_region")}}
    derived = {"table_name": "<derived2>", "access_type": "ALL", "materialized_from_subquery": block}
    plan = mysql_plan(
        union_result={
            "query_specifications": [{"query_block": {"table": derived}}, {"query_block": scan("o", "ALL", 9)}]
        }
    )
    assert [one.table for one in plan.accesses] == ["c", "o"]


def test_tidb_lookups_ranges_and_scans() -> None:
    rows = operator("TableRowIDScan_8(Probe)", "5.00", seen="table:o", info="keep order:false", task="cop[tikv]")
    for info, path in (
        ('range:["k5","k5"], keep order:false', AccessPath.LOOKUP),
        ("range:[5 1,5 1], [6 1,6 1], keep order:false", AccessPath.LOOKUP),
        ("range: decided by [eq(p.o.customer, p.c.id)], keep order:false", AccessPath.LOOKUP),
        ("range:[5,9], keep order:false", AccessPath.RANGE), ("range:(5,+inf], keep order:false", AccessPath.RANGE),
        ("range:[NULL,+inf], keep order:true, desc", AccessPath.RANGE),
    ):  # fmt: skip
        index = operator("IndexRangeScan_7(Build)", "5.00", seen="table:o, index:by_code(code, made)", info=info)
        (found,) = tidb_plan(operator("IndexLookUp_9", "5.00", index, rows)).accesses
        assert (found.path, found.index, found.estimated) == (path, "by_code", 5.0), info
    point = operator("Point_Get_1", "1.00", seen="table:o", info="handle:5")
    assert [(one.path, one.index) for one in tidb_plan(point).accesses] == [(AccessPath.POINT, "PRIMARY")]
    unique = operator("Point_Get_1", "1.00", seen="table:o, index:u(code)")
    assert [(one.path, one.index) for one in tidb_plan(unique).accesses] == [(AccessPath.POINT, "u")]


def test_tidb_tells_filters_at_the_root_from_those_of_the_storage() -> None:
    whole = operator(
        "TableFullScan_5", "50000.00", seen="table:o", info="keep order:false, stats:pseudo", task="cop[tikv]"
    )
    below = operator("Selection_6", "40000.00", whole, info="gt(p.o.amount, 5)", task="cop[tikv]")
    plan = tidb_plan(operator("Selection_8", "32000.00", operator("TableReader_7", "40000.00", below), info="f(p.o.a)"))
    assert plan.filters == (RootFilter("f(p.o.a)", 40000.0, 32000.0),)
    assert (plan.pushed, plan.accesses[0].statistics, plan.accesses[0].size) == (("Selection",), "pseudo", 50000.0)


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), lambda part: st.lists(part) | st.dictionaries(
    st.sampled_from(["query_block", "table", "nested_loop", "id", "estRows", "subOperators", "taskType", "x"]), part),
    max_leaves=12).map(json.dumps))  # fmt: skip
def test_no_document_breaks_a_reader(text: str) -> None:
    """A plan or one clear error."""
    for read in (mysql.read_plan, tidb.read_plan):
        with suppress(ReadError):
            assert isinstance(read(text), QueryPlan)


# --- judging ------------------------------------------------------------------------------------------------------


def access(path: AccessPath, rows: float, index: str = "", table: str = "o", **more: Any) -> TableAccess:
    return TableAccess(table, path, index, rows, size=rows if path.whole else None, **more)


LOOKUP = QueryPlan((access(AccessPath.LOOKUP, 5, "by_code"),))
BIG = access(AccessPath.FULL_SCAN, 60_000, "", "c")
WHOLE = QueryPlan((access(AccessPath.FULL_SCAN, 50_000),))


def sample(source: QueryPlan | str, target: QueryPlan | str) -> SamplePlans:
    sides = zip((Side.SOURCE, Side.TARGET), (source, target), strict=True)
    return SamplePlans(
        "x.log:1", b"SELECT 1",
        {side: PlanAnswer(None, one) if isinstance(one, str) else PlanAnswer(one) for side, one in sides},
    )  # fmt: skip


def judged(*samples: SamplePlans, tables: TargetTables = TABLES, skipped: str = "") -> JudgedPlans:
    plans = DigestPlans("d" * 64, "SELECT ?", "shop", ("orders",), 10, 1.0, samples, skipped)
    return judge_plans(plans, NAMES, tables)


def harms(found: JudgedPlans) -> list[Harm]:
    return [one.harm for one in found.findings]


def test_a_scan_in_place_of_a_lookup_hurts() -> None:
    found = judged(sample(LOOKUP, WHOLE))
    assert (harms(found), found.state, found.doubts) == ([Harm.FULL_SCAN], PlanState.HURTS, ())
    assert (found.findings[0].index, found.findings[0].sample) == ("by_code", 0)


def test_an_index_that_is_not_there_is_named() -> None:
    tables = TargetTables(TABLES.statistics, {("shop", "orders"): {"primary": ID}})
    found = judged(sample(LOOKUP, WHOLE), tables=tables)
    assert harms(found) == [Harm.INDEX_LOST]
    assert "Create index by_code of shop.orders" in found.findings[0].remedy


@pytest.mark.parametrize(
    ("source", "target"),
    [
        pytest.param(LOOKUP, LOOKUP, id="the same"),
        pytest.param(WHOLE, WHOLE, id="whole on both sides"),
        pytest.param(LOOKUP, QueryPlan((access(AccessPath.FULL_SCAN, 900),)), id="a small table"),
        pytest.param(QueryPlan((access(AccessPath.LOOKUP, 4_600, "by_code"), BIG)), QueryPlan((*WHOLE.accesses, BIG)),
                     id="a hash join in place of many lookups"),
        pytest.param(LOOKUP, QueryPlan((access(AccessPath.LOOKUP, 40, "other"),)), id="another index, as good"),
    ],
)  # fmt: skip
def test_what_differs_by_design_is_no_finding(source: QueryPlan, target: QueryPlan) -> None:
    assert judged(sample(source, target)).state is PlanState.FINE


def test_a_filter_that_is_not_pushed_hurts_where_it_reads_much() -> None:
    for read, harm in ((50_000.0, [Harm.PUSHDOWN_LOST]), (800.0, [])):
        target = QueryPlan(LOOKUP.accesses, filters=(RootFilter("f(a)", read, read * 0.8),))
        assert harms(judged(sample(LOOKUP, target))) == harm


def test_plans_that_depend_on_values_on_the_target_alone() -> None:
    other = QueryPlan((access(AccessPath.RANGE, 9, "other"),))
    assert harms(judged(sample(LOOKUP, LOOKUP), sample(LOOKUP, other))) == [Harm.VARIES]
    assert harms(judged(sample(LOOKUP, LOOKUP), sample(other, other))) == []


def test_what_the_plan_cache_cannot_hold_counts_where_it_is_executed_often() -> None:
    sides = {Side.SOURCE: PlanAnswer(LOOKUP), Side.TARGET: PlanAnswer(LOOKUP, uncached="query has sub-queries")}
    for calls, harm in ((5_000, [Harm.UNCACHED]), (10, [])):
        plans = DigestPlans("d" * 64, "SELECT ?", "shop", ("orders",), calls, 1.0,
                            (SamplePlans("x.log:1", b"SELECT 1", sides),))  # fmt: skip
        assert harms(judge_plans(plans, NAMES, TABLES)) == harm


def test_an_estimate_is_wrong_from_a_factor_on() -> None:
    for actual, harm in ((60_000.0, [Harm.ESTIMATE]), (400.0, []), (None, [])):
        plan = QueryPlan((access(AccessPath.LOOKUP, 5, "by_code", actual=actual),))
        assert harms(judged(sample(LOOKUP, plan))) == harm


@pytest.mark.parametrize(
    ("statistics", "words"),
    [(None, "no statistics"), (TableStatistics(50_000, 0, None), "never analyzed"),
     (TableStatistics(50_000, 40_000, 20), "stale")],
)  # fmt: skip
def test_without_statistics_a_bad_plan_is_a_doubt(statistics: TableStatistics | None, words: str) -> None:
    tables = TargetTables({} if statistics is None else {("shop", "orders"): statistics}, TABLES.indexes)
    found = judged(sample(LOOKUP, WHOLE), tables=tables)
    assert (found.state, found.findings) == (PlanState.UNKNOWN, ())
    assert words in found.doubts[0]
    assert "ANALYZE TABLE `shop`.`orders`" in found.doubts[0]


@pytest.mark.parametrize(("rows", "doubts"), [(50_000, 0), (160_000, 0), (None, 0), (900_000, 1), (700, 1)])
def test_statistics_of_other_rows_than_the_source_has_are_a_doubt(rows: int | None, doubts: int) -> None:
    """ANALYZE may have seen a part of the table; its health is 100 all the same."""
    tables = replace(TABLES, source_rows={} if rows is None else {("shop", "orders"): rows})
    found = judged(sample(LOOKUP, LOOKUP), tables=tables)
    assert len(found.doubts) == doubts
    assert all("has statistics of 50,000 rows" in one for one in found.doubts)


def test_nothing_is_fine_by_default() -> None:
    for found in (judged(), judged(skipped="cut off"), judged(sample("1142 denied", LOOKUP)),
                  judged(sample(LOOKUP, "1305 no function")),
                  judged(sample(LOOKUP, QueryPlan((access(AccessPath.POINT, 1, "PRIMARY", "z"),))))):  # fmt: skip
        assert found.state is PlanState.UNKNOWN
        assert found.doubts


@pytest.mark.parametrize(
    ("reason", "is_write"),
    [
        ("8121 privilege check for 'Update' fail", True), ("8121 privilege check for 'Select' fail", False),
        ("1142 DELETE command denied to user 'm'@'h' for table 'orders'", True),
        ("1142 SELECT command denied to user 'm'@'h' for table 'orders'", False), ("1064 syntax", False),
    ],
)  # fmt: skip
def test_a_plan_of_a_write_that_is_refused_says_what_to_do(reason: str, is_write: bool) -> None:
    (doubt,) = judged(sample(LOOKUP, reason)).doubts
    assert doubt.startswith(f"no plan of the target: {reason}")
    assert ("--reads-only" in doubt and "--accept-write-grants" in doubt) is is_write


def test_the_verdict_is_match_only_where_all_are_fine() -> None:
    fine, bad, unknown = judged(sample(LOOKUP, LOOKUP)), judged(sample(LOOKUP, WHOLE)), judged()
    assert plans_verdict([]) is Verdict.INCONCLUSIVE
    assert plans_verdict([fine]) is Verdict.MATCH
    assert plans_verdict([fine, unknown]) is Verdict.INCONCLUSIVE
    assert plans_verdict([fine, unknown, bad]) is Verdict.MISMATCH
    assert list(reasons([fine, unknown, bad])) == ["1 of 3 digests: hurts", "1 of 3 digests: not known"]


# --- drift --------------------------------------------------------------------------------------------------------


def record(shapes: dict[str, float], version: str = "8.5.0", **table: Any) -> PlanRecord:
    known = {"rows": 50_000, "changed": 0, "health": 100, "indexes": ("by_code", "primary"), **table}
    return PlanRecord("d" * 64, version, shapes, {"shop.orders": TableRecord(**known)})


def test_records_survive_json() -> None:
    one = record({"whole table o": 50_000.0})
    assert PlanRecord.from_json(json.loads(json.dumps(one.as_json()))) == one


@pytest.mark.parametrize(
    ("after", "cause"),
    [(record({"b": 9.0}, version="8.5.1"), "version 8.5.0 became 8.5.1"),
     (record({"b": 9.0}, indexes=("primary",)), "shop.orders lost index by_code"),
     (record({"b": 9.0}, indexes=("by_code", "new", "primary")), "shop.orders has a new index new"),
     (record({"b": 9.0}, rows=900_000), "shop.orders went from 50,000 to 900,000 rows"),
     (record({"b": 9.0}, health=None), "shop.orders lost its statistics"),
     (record({"b": 9.0}, changed=7), "statistics of shop.orders were updated"),
     (record({"b": 9.0}), "nothing that is recorded changed")],
)  # fmt: skip
def test_a_changed_plan_is_told_with_its_cause(after: PlanRecord, cause: str) -> None:
    found = drift(record({"a": 5.0}), after)
    assert found is not None
    assert cause in str(found)


def test_the_same_plans_and_fewer_of_them_are_no_drift() -> None:
    both = record({"a": 5.0, "b": 9.0})
    assert drift(both, both) is None
    assert drift(both, record({"a": 7.0})) is None
    assert drift(record({}), both) is None


def test_a_change_hurts_only_where_more_is_read() -> None:
    fine = judged(sample(LOOKUP, LOOKUP))
    better, worse = (
        drift(record({"a": 50_000.0}), record({"b": 5.0})),
        drift(record({"a": 5.0}), record({"b": 50_000.0})),
    )
    assert better is not None
    assert worse is not None
    assert (with_drift(fine, better).state, with_drift(fine, worse).state) == (PlanState.FINE, PlanState.HURTS)
    assert with_drift(fine, better).changed
    assert isinstance(with_drift(fine, worse).findings[0], PlanFinding)


# --- remedies -----------------------------------------------------------------------------------------------------


def tried(sql: bytes, after: QueryPlan, tables: TargetTables = TABLES) -> tuple[PlanFinding, list[bytes]]:
    sides = {Side.SOURCE: PlanAnswer(LOOKUP), Side.TARGET: PlanAnswer(WHOLE)}
    plans = DigestPlans("d" * 64, "SELECT ?", "shop", ("orders",), 10, 1.0, (SamplePlans("x.log:1", sql, sides),))
    texts: list[bytes] = []

    def explained(_sample: int, text: bytes) -> QueryPlan:
        texts.append(text)
        return after

    source = {("shop", "orders"): {"by_code": index("code", "made")}}
    found = with_remedies(
        judge_plans(plans, NAMES, tables), NAMES, source, tables.indexes, explained, [DEFAULT]
    )  # fmt: skip
    return found.findings[0], texts


READ = b"SELECT * FROM orders o WHERE code = 'secret' AND n > 5"


def test_a_hint_that_helps_becomes_a_binding_without_values() -> None:
    found, texts = tried(READ, LOOKUP)
    assert texts == [b"SELECT /*+ USE_INDEX(`o`, `by_code`) */" + READ[6:]]
    assert found.proved
    bound = "SELECT * FROM orders o WHERE code = 'x' AND n > 1"
    assert found.remedy.startswith(f"USE `shop`; CREATE GLOBAL BINDING FOR {bound} USING SELECT /*+ USE_INDEX")
    assert "50,000 rows become 5" in found.remedy
    assert "secret" not in found.remedy


def test_an_index_that_is_missing_is_tried_as_one_that_nobody_made() -> None:
    found, texts = tried(READ, LOOKUP, TargetTables(TABLES.statistics, {("shop", "orders"): {"primary": ID}}))
    assert texts == [b"SELECT /*+ HYPO_INDEX(`orders`, migverify_try, `code`, `made`) */" + READ[6:]]
    assert found.remedy.startswith("ALTER TABLE `shop`.`orders` ADD INDEX `by_code` (`code`, `made`) (tried")


def test_an_invisible_index_is_made_visible() -> None:
    hidden = {("shop", "orders"): {"by_code": index("code", visible=False)}}
    found, texts = tried(READ, LOOKUP, TargetTables(TABLES.statistics, hidden))
    assert texts[0].startswith(b"SELECT /*+ HYPO_INDEX(`orders`, migverify_try, `code`) */")
    assert "invisible on the target" in found.reason
    assert found.remedy.startswith("ALTER TABLE `shop`.`orders` ALTER INDEX `by_code` VISIBLE (tried")


def test_a_hint_that_does_not_help_says_so() -> None:
    found, _ = tried(READ, WHOLE)
    assert not found.proved
    assert "An index does not help" in found.remedy


@pytest.mark.parametrize(
    "sql", [b"SELECT 1 UNION SELECT 2", b"SELECT /*+ MERGE() */ 1", b"INSERT INTO o VALUES (1)", b"SELECT 'open", b""]
)
def test_what_cannot_be_hinted_is_left_alone(sql: bytes) -> None:
    assert hinted(sql, "H()", DEFAULT) is None


@given(st.binary(max_size=60))
def test_a_hint_changes_nothing_else(text: bytes) -> None:
    sql = b"SELECT a FROM t WHERE " + text
    found = hinted(sql, "H()", DEFAULT)
    assert found is None or found.replace(b" /*+ H() */", b"", 1) == sql


# --- choosing -----------------------------------------------------------------------------------------------------


def planned(folder: Path, *statements: tuple[str, int, str]) -> RunFile:
    """Write a run file of (text, microseconds, why it is not asked)."""
    writer, meanings = RunFileWriter(folder), Meanings("mysql")
    for place, (sql, micros, skipped) in enumerate(statements):
        meaning = meanings.meaning(sql.encode())
        call = Call("s", place, sql.encode(), meaning.digest, SessionState(database="shop"))
        writer.add(call, meaning, skipped, 0, micros, 0)
    writer.end_session("s")
    return writer.close()


def test_the_slowest_call_and_others_of_each_digest_are_explained(tmp_path: Path) -> None:
    reads = [(f"SELECT * FROM o WHERE code = 'k{number % 50}'", 10 + (number == 77), "") for number in range(500)]
    with planned(tmp_path, *reads, ("SELECT 1 FROM o", 9_000, ""), ("SET @a = 1", 1, ""),
                 ("UPDATE o SET a = 1", 5, "write that is not permitted")) as run:  # fmt: skip
        found, again = choose(run, 3), choose(run, 3)
        reading = choose(run, 3, writes=False)
    assert found == again
    assert [(one.calls, len(one.samples), one.skipped) for one in found] == [
        (1, 1, ""), (500, 3, ""), (1, 0, "write that is not permitted"),
    ]  # fmt: skip
    assert found[1].samples[0].sql == b"SELECT * FROM o WHERE code = 'k27'"
    assert len({one.sql for one in found[1].samples}) == 3
    assert [one.calls for one in reading] == [1, 500]


def test_a_digest_that_comes_under_several_modes_is_one(tmp_path: Path) -> None:
    writer, meanings = RunFileWriter(tmp_path), Meanings("mysql")
    for modes in ("", "PIPES_AS_CONCAT"):
        meaning = meanings.meaning(b"SELECT * FROM o WHERE a = 1", Modes.of(modes))
        call = Call("s", 0, b"SELECT * FROM o WHERE a = 1", meaning.digest, SessionState(sql_mode=modes))
        writer.add(call, meaning, "", 0, 1, 0)
    writer.end_session("s")
    with writer.close() as run:
        assert [one.calls for one in choose(run, 3)] == [2]
