"""Query plans: both servers' documents are read alike, findings are measured in rows, noise is none, doubt is said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.cli.workload_plans import PlansLine
from migverify.errors import ReadError
from migverify.model import Endpoint, Flavor, IndexDef, Side, Verdict
from migverify.sql.lexer import DEFAULT, Modes
from migverify.workload.meaning import Meanings
from migverify.workload.plans import mysql, tidb
from migverify.workload.plans.catalog import condition_columns
from migverify.workload.plans.choose import busiest, choose
from migverify.workload.plans.clone_change import CloneChange, TrialClone, new_index, shown_index
from migverify.workload.plans.drift import PlanRecord, TableRecord, drift
from migverify.workload.plans.judge import (
    JudgedPlans,
    PlanLimits,
    PlanState,
    judge_plans,
    plans_verdict,
    reasons,
    with_drift,
)
from migverify.workload.plans.model import (
    TRIED,
    AccessPath,
    DigestPlans,
    Harm,
    PlanAnswer,
    PlanFinding,
    QueryPlan,
    RootFilter,
    SamplePlans,
    TableAccess,
    TrialResult,
)
from migverify.workload.plans.read import Explainer
from migverify.workload.plans.remedy import hinted, with_remedies
from migverify.workload.plans.statistics import TableStatistics, TargetTables
from migverify.workload.plans.trial import RemedyTrials
from migverify.workload.replay.clone import CloneMark, Identity
from migverify.workload.replay.model import Answer, Call
from migverify.workload.replay.runfile import RunFile, RunFileWriter
from migverify.workload.replay.safety import ReplayEndpoints
from migverify.workload.replay.tally import ReplayTally
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


SMALL_AND_STALE = TableStatistics(4, 560, 0)


@pytest.mark.parametrize(
    ("statistics", "source_rows", "state"),
    [(SMALL_AND_STALE, 2, PlanState.FINE), (SMALL_AND_STALE, 50_000, PlanState.UNKNOWN),
     (SMALL_AND_STALE, None, PlanState.UNKNOWN), (TableStatistics(50_000, 60_000, 0), 2, PlanState.UNKNOWN),
     (TableStatistics(4, 560, None), 2, PlanState.UNKNOWN)],
)  # fmt: skip
def test_a_small_table_is_always_stale_and_may_be_read_in_any_way(
    statistics: TableStatistics, source_rows: int | None, state: PlanState
) -> None:
    """Both sides have to know that it is small; one that was never analyzed has an unknown number of rows."""
    rows = {} if source_rows is None else {("shop", "orders"): source_rows}
    tables = TargetTables({("shop", "orders"): statistics}, TABLES.indexes, rows)
    few = QueryPlan((access(AccessPath.FULL_SCAN, 4),))
    assert judged(sample(LOOKUP, few), tables=tables).state is state


POINT = QueryPlan((access(AccessPath.POINT, 1, "PRIMARY"),))


@pytest.mark.parametrize(
    ("source", "target", "state"),
    [(POINT, POINT, PlanState.FINE),
     (QueryPlan((access(AccessPath.RANGE, 1, "PRIMARY"),)), POINT, PlanState.FINE),  # MySQL, UPDATE
     (POINT, QueryPlan((access(AccessPath.POINT, 9, "PRIMARY"),)), PlanState.UNKNOWN),
     (POINT, QueryPlan((access(AccessPath.LOOKUP, 1, "by_code"),)), PlanState.UNKNOWN),
     (LOOKUP, POINT, PlanState.UNKNOWN)],
)  # fmt: skip
def test_one_row_by_a_whole_unique_key_needs_no_statistics(
    source: QueryPlan, target: QueryPlan, state: PlanState
) -> None:
    tables = TargetTables({("shop", "orders"): TableStatistics(50_000, 50_000, None)}, TABLES.indexes)
    assert judged(sample(source, target), tables=tables).state is state


def catalogs(**target: IndexDef) -> TargetTables:
    """The source has by_code, the target what is given; its statistics are stale."""
    orders = ("shop", "orders")
    return TargetTables(
        {orders: TableStatistics(50_000, 40_000, 20)}, {orders: {"primary": ID, **target}}, {orders: 50_000},
        {orders: {"primary": ID, "by_code": index("code", "made")}},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sql", "tables", "lost"),
    [
        (b"SELECT id FROM orders o WHERE code = 'a'", catalogs(), True),
        (b"SELECT id FROM orders o WHERE code = 'a'", catalogs(other=index("amount", "code")), True),
        (b"SELECT id FROM orders o WHERE code = 'a'", catalogs(hidden=index("code", visible=False)), True),
        (b"SELECT id FROM orders o WHERE code = 'a'", catalogs(other=index("code")), False),
        (b"SELECT id FROM orders o WHERE code = 'a' AND amount = 5", catalogs(other=index("amount")), False),
        (b"SELECT id FROM orders o WHERE code = 'a' ORDER BY id LIMIT 1", catalogs(), False),
        (b"SELECT id FROM orders o WHERE code = 'a'",
         catalogs(other=IndexDef("by", False, (None,), (None,), expressions=("lower(`code`)",))), False),
        (b"SELECT id FROM orders o WHERE code = 'a'",
         replace(catalogs(), source_rows={("shop", "orders"): 700}), False),
        (b"SELECT id FROM orders o WHERE code = 'a'", replace(catalogs(), source_rows={}), False),
        (b"SELECT id FROM (", catalogs(), False),
    ],
)  # fmt: skip
def test_an_index_that_nothing_on_the_target_replaces_is_lost_for_certain(
    sql: bytes, tables: TargetTables, lost: bool
) -> None:
    """The catalogs prove it, however old the statistics are; where another index may do, nothing is known."""
    sides = {Side.SOURCE: PlanAnswer(LOOKUP), Side.TARGET: PlanAnswer(WHOLE)}
    plans = DigestPlans("d" * 64, "SELECT ?", "shop", ("orders",), 10, 1.0, (SamplePlans("x.log:1", sql, sides),))
    found = judge_plans(plans, NAMES, tables, columns=condition_columns(plans))
    assert harms(found) == ([Harm.INDEX_LOST] if lost else [])
    assert found.state is (PlanState.HURTS if lost else PlanState.UNKNOWN)
    assert harms(judge_plans(plans, NAMES, tables)) == []
    assert lost is any("begins with code" in one.reason for one in found.findings)


def refused(captured: int | None, source: int, target: int | None) -> SamplePlans:
    sides = {Side.SOURCE: PlanAnswer(reason="no", errno=source),
             Side.TARGET: PlanAnswer(LOOKUP) if target is None else PlanAnswer(reason="no", errno=target)}  # fmt: skip
    return SamplePlans("x.log:1", b"SELECT nothing FROM orders", sides, captured)


@pytest.mark.parametrize(
    ("one", "state"),
    [(refused(1054, 1054, 1054), PlanState.FINE), (refused(1054, 1054, None), PlanState.UNKNOWN),
     (refused(0, 1054, 1054), PlanState.UNKNOWN), (refused(None, 1054, 1054), PlanState.UNKNOWN),
     (refused(1054, 1054, 1064), PlanState.UNKNOWN), (refused(1142, 1142, 1142), PlanState.UNKNOWN),
     (refused(1205, 1205, 1205), PlanState.UNKNOWN), (refused(1054, 0, 0), PlanState.UNKNOWN)],
)  # fmt: skip
def test_a_statement_that_production_refused_and_both_sides_refuse_alike_leaves_nothing_to_judge(
    one: SamplePlans, state: PlanState
) -> None:
    found = judged(one)
    assert (found.state, "error 1054" in found.refused) == (state, state is PlanState.FINE)
    assert plans_verdict([found]) is Verdict.INCONCLUSIVE  # nothing was judged, so nothing matches
    assert judged(one, sample(LOOKUP, LOOKUP)).refused == ""


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
    one = replace(record({"whole table o": 50_000.0}, updated="2026-01-01"), guesses=("no statistics",))
    assert PlanRecord.from_json(json.loads(json.dumps(one.as_json()))) == one
    older = one.as_json()
    del older["guesses"], older["tables"]["shop.orders"]["updated"]
    assert PlanRecord.from_json(older) == record({"whole table o": 50_000.0})


@pytest.mark.parametrize(
    ("after", "cause"),
    [(record({"b": 9.0}, version="8.5.1"), "version 8.5.0 became 8.5.1"),
     (record({"b": 9.0}, indexes=("primary",)), "shop.orders lost index by_code"),
     (record({"b": 9.0}, indexes=("by_code", "new", "primary")), "shop.orders has a new index new"),
     (record({"b": 9.0}, rows=900_000), "shop.orders went from 50,000 to 900,000 rows"),
     (record({"b": 9.0}, health=None), "shop.orders lost its statistics"),
     (record({"b": 9.0}, changed=7), "statistics of shop.orders were updated"),
     (record({"b": 9.0}, updated="2026-01-02 00:00:00"), "2026-01-01 00:00:00 and 2026-01-02 00:00:00"),
     (record({"b": 9.0}), "nothing that is recorded changed")],
)  # fmt: skip
def test_a_changed_plan_is_told_with_its_cause(after: PlanRecord, cause: str) -> None:
    found = drift(record({"a": 5.0}, updated="2026-01-01 00:00:00"), after)
    assert found is not None
    assert cause in str(found)


def test_a_plan_of_then_that_nobody_could_judge_is_no_measure() -> None:
    """TiDB analyzed the table by itself: what was read before is a guess, so more rows now are no finding."""
    why = "shop.orders has statistics pseudo: ANALYZE TABLE `shop`.`orders`"
    found = drift(replace(record({"a": 5.0}), guesses=(why,)), record({"b": 50_000.0}))
    assert found is not None
    assert found.guesses == (why,)
    assert str(found).endswith("; then, shop.orders has statistics pseudo")
    after = with_drift(judged(sample(LOOKUP, LOOKUP)), found)
    assert (after.state, bool(after.changed)) == (PlanState.FINE, True)


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


def tried(
    sql: bytes, after: QueryPlan, tables: TargetTables = TABLES, source: IndexDef | None = None
) -> tuple[PlanFinding, list[bytes]]:
    sides = {Side.SOURCE: PlanAnswer(LOOKUP), Side.TARGET: PlanAnswer(WHOLE)}
    plans = DigestPlans("d" * 64, "SELECT ?", "shop", ("orders",), 10, 1.0, (SamplePlans("x.log:1", sql, sides),))
    texts: list[bytes] = []

    def explained(_sample: int, text: bytes) -> QueryPlan:
        texts.append(text)
        return after

    indexes = {("shop", "orders"): {"by_code": source or replace(index("code", "made"), name="by_code")}}
    found = with_remedies(
        judge_plans(plans, NAMES, tables), NAMES, indexes, tables.indexes, explained, [DEFAULT]
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
    hidden = {("shop", "orders"): {"by_code": replace(index("code", visible=False), name="by_code")}}
    found, texts = tried(READ, LOOKUP, TargetTables(TABLES.statistics, hidden))
    assert texts[0].startswith(b"SELECT /*+ HYPO_INDEX(`orders`, migverify_try, `code`) */")
    assert "invisible on the target" in found.reason
    assert found.remedy.startswith("ALTER TABLE `shop`.`orders` ALTER INDEX `by_code` VISIBLE (tried")


WITHOUT = TargetTables(TABLES.statistics, {("shop", "orders"): {"primary": ID}})


@pytest.mark.parametrize(
    ("source", "statement"),
    [
        (IndexDef("by_code", False, ("made", "code"), (None, 10)), "ADD INDEX `by_code` (`made`, `code`(10)) (tried"),
        (IndexDef("by_code", True, ("code", "made"), (None, None)),
         "ADD UNIQUE INDEX `by_code` (`code`, `made`) (tried"),
        (IndexDef("by_code", False, ("code", "made"), (None, None), descending=(False, True)),
         "ADD INDEX `by_code` (`code`, `made` DESC) (tried"),
        (IndexDef("by_code", False, ("code",), (None,), visible=False),
         "ADD INDEX `by_code` (`code`) INVISIBLE (tried"),
        (IndexDef("by_code", False, ("a", None), (None, None), expressions=(None, "lower(`code`)")),
         "ADD INDEX `by_code` (`a`, (lower(`code`))) (not tried: no hint"),
        (IndexDef("by_code", False, (None,), (None,), expressions=(r"json_extract(`a`,_utf8mb4\'$.x\')",)),
         "ADD INDEX `by_code` ((json_extract(`a`,_utf8mb4'$.x'))) (not tried"),
    ],
)  # fmt: skip
def test_an_index_is_made_as_the_source_has_it(source: IndexDef, statement: str) -> None:
    """Prefixes, order, direction, expressions, uniqueness and visibility: another index would be another remedy."""
    found, _ = tried(READ, LOOKUP, WITHOUT, source)
    assert found.remedy.startswith(f"ALTER TABLE `shop`.`orders` {statement}")
    assert found.proved is ("not tried" not in statement)


def test_a_prefix_is_no_part_of_the_hint_and_that_is_said() -> None:
    found, texts = tried(READ, LOOKUP, WITHOUT, IndexDef("by_code", False, ("code",), (8,)))
    assert b"HYPO_INDEX(`orders`, migverify_try, `code`)" in texts[0]
    assert "on whole columns: 50,000 rows become 5" in found.remedy


def test_an_index_of_words_is_left_to_the_user() -> None:
    found, texts = tried(READ, LOOKUP, WITHOUT, IndexDef("by_code", False, (None,), (None,), kind="FULLTEXT"))
    assert (texts, found.proved) == ([], False)
    assert found.remedy == "Create index by_code of shop.orders on the target as on the source."


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


def tally_of(times: dict[str, int]) -> ReplayTally:
    """Return a tally by the microseconds that each statement kept the target busy."""
    tally = ReplayTally()
    for text, micros in times.items():
        tally.describe(text, text)
        tally.of(text).latencies["target_service"].add(micros)
    return tally


def test_the_digests_that_keep_the_target_busy_are_explained_after_a_replay() -> None:
    """One that is not slower for certain may have lost its index: those of most of the time are looked at, a few."""
    busy = {"select * from `a`": 700, "update `b` set `c` = ?": 248, "select * from `rare`": 2, "set names utf8": 50}
    assert busiest(tally_of(busy)) == {"select * from `a`", "update `b` set `c` = ?"}
    assert len(busiest(tally_of({f"select * from `t{number}`": 10 for number in range(40)}))) == 10
    assert busiest(tally_of({})) == busiest(tally_of({"select * from `a`": 0})) == frozenset()


def test_the_last_number_of_a_run_that_ended_is_of_all_its_digests(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a log a line comes every so often: the last one must not look like a run that stands still."""
    line = PlansLine(quiet=False)
    monkeypatch.setattr(line, "_due", iter([1.0, 0.0, 0.0]).__next__)
    for number in (1, 2, 3):
        line(f"{number} of 3 digests explained")
    line.finish()
    assert capsys.readouterr().err.splitlines() == ["1 of 3 digests explained", "3 of 3 digests explained"]
    short = PlansLine(quiet=False)
    monkeypatch.setattr(short, "_due", lambda: 0.0)
    short("3 of 3 digests explained")
    short.finish()
    assert capsys.readouterr().err == ""


# --- asking -------------------------------------------------------------------------------------------------------


@dataclass
class FakeWire:
    """Answers every statement with the plan of no table."""

    flavor: Flavor
    closed: str = ""

    def command(self, sql: bytes) -> Answer:
        body = b'[{"id": "Dual_1"}]' if self.flavor is Flavor.TIDB else b'{"query_block": {"select_id": 1}}'
        return Answer(rows=((body,),) if sql.startswith(b"EXPLAIN") else ())

    def close(self) -> None:
        self.closed = "closed"


def test_sessions_are_kept_where_reads_and_writes_alternate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that is read-only refuses to explain a write: there is one of each kind, and none is opened twice."""
    opened: list[FakeWire] = []

    def open_wire(endpoint: Endpoint, *_: object) -> FakeWire:
        opened.append(FakeWire(Flavor.TIDB if endpoint.name == "target" else Flavor.MYSQL))
        return opened[-1]

    monkeypatch.setattr("migverify.workload.plans.read.open_wire", open_wire)
    sides = {side: Endpoint(side.value, "h", 1, "u") for side in Side}
    explainer = Explainer(ReplayEndpoints(sides))
    for number in range(6):
        sql = b"UPDATE o SET a = 1" if number % 2 else b"SELECT a FROM o"
        found = explainer.explain(Call("s", number, sql, "d", SessionState(database="shop")))
        assert not any(one.reason for one in found.plans.values())
    assert len(opened) == 4
    opened[0].closed = "connection lost"
    explainer.explain(Call("s", 9, b"SELECT a FROM o", "d", SessionState(database="shop")))
    assert len(opened) == 5
    explainer.close()
    assert all(one.closed for one in opened)


def test_statistics_that_are_loaded_at_the_first_execution_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """TiDB reads them when they are first wanted, and plans without them meanwhile: that plan says nothing."""
    answers = [", stats:partial[code:unInitialized]"] * 2 + [""]

    @dataclass
    class Loading(FakeWire):
        def command(self, sql: bytes) -> Answer:
            if self.flavor is not Flavor.TIDB or not sql.startswith(b"EXPLAIN"):
                return super().command(sql)
            info = "keep order:false" + (answers.pop(0) if len(answers) > 1 else answers[0])
            plan = operator("TableFullScan_5", "50000.00", seen="table:o", info=info, task="cop[tikv]")
            return Answer(rows=((json.dumps([plan]).encode(),),))

    monkeypatch.setattr("migverify.workload.plans.read._LOADING_SECONDS", 0)
    monkeypatch.setattr("migverify.workload.plans.read.open_wire", lambda *_: Loading(Flavor.TIDB))
    explainer = Explainer(ReplayEndpoints({Side.TARGET: Endpoint("target", "h", 1, "u")}))
    plan = explainer.explain(Call("s", 1, b"SELECT a FROM o", "d", SessionState())).plans[Side.TARGET].plan
    assert plan is not None
    assert (plan.accesses[0].statistics, answers) == ("", [""])


# --- trials -------------------------------------------------------------------------------------------------------


def test_a_trial_says_what_it_measured_and_in_how_many_calls() -> None:
    found = TrialResult("ALTER ...", "drill-3", (10_000.0, 12.0), (8_000, 400), (30, 28), helped=True)
    assert str(found) == "tried on clone drill-3: rows 10,000 -> 12, p50 8.0 ms -> 0.4 ms in 30 and 28 calls"
    assert str(replace(found, helped=False)).endswith("28 calls; it does not help")
    refused = TrialResult("ALTER ...", "drill-3", reason="1142 denied")
    assert str(refused) == "not tried on clone drill-3: 1142 denied"
    for one in (found, refused):
        assert TrialResult.from_json(json.loads(json.dumps(one.as_json()))) == one


def test_what_a_trial_left_behind_is_a_doubt() -> None:
    """A run without --try undoes nothing, and must not judge a plan that rests on it."""
    left = {**TABLES.indexes[("shop", "orders")], TRIED: index("code")}
    tables = TargetTables(TABLES.statistics, {**TABLES.indexes, ("shop", "orders"): left})
    found = judged(sample(LOOKUP, LOOKUP), tables=tables)
    assert (found.state, "workload plans --try" in found.doubts[0]) == (PlanState.UNKNOWN, True)


def test_only_an_index_of_its_own_name_is_dropped() -> None:
    """A record of the clone says what is undone by kind and names: no statement is taken from it."""
    made = new_index("shop", "orders", IndexDef("by_code", False, ("code",), (8,), visible=False))
    assert made is not None
    assert made.made == "ALTER TABLE `shop`.`orders` ADD INDEX `migverify_trial` (`code`(8))"
    assert made.undone == "ALTER TABLE `shop`.`orders` DROP INDEX `migverify_trial`"
    assert replace(made, index="by_code").undone == made.undone
    primary = new_index("shop", "orders", IndexDef("PRIMARY", True, ("id",), (None,)))
    assert primary is not None
    assert primary.made == "ALTER TABLE `shop`.`orders` ADD UNIQUE INDEX `migverify_trial` (`id`)"
    assert new_index("shop", "orders", IndexDef("words", False, (None,), (None,), kind="FULLTEXT")) is None
    shown = shown_index("shop", "orders", "by_code")
    assert shown.undone == "ALTER TABLE `shop`.`orders` ALTER INDEX `by_code` INVISIBLE"


class FakeClone:
    """A clone that refuses some changes, and notes what is made and undone."""

    mark = CloneMark("drill-3", Identity(Flavor.TIDB, "cluster 1", "h", 1), 0, 1, "m.clones")

    def __init__(self, refuses: str = "") -> None:
        self.refuses, self.log = refuses, list[str]()

    @contextmanager
    def changed(self, change: CloneChange) -> Iterator[None]:
        if self.refuses and self.refuses in change.made:
            raise ReadError("1142 denied")
        self.log.append(change.made)
        yield
        self.log.append(change.undone)


class FakeExplainer:
    """Reads whole tables until an index is made, or hinted."""

    def __init__(self, clone: FakeClone) -> None:
        self.clone, self.texts = clone, list[bytes]()

    def rows_read(self, call: Call, *, bindings: bool = True) -> float:
        assert bindings is (b"/*+" not in call.sql)
        made = any("INDEX" in one for one in self.clone.log) or b"/*+" in call.sql
        return 12.0 if made else 10_000.0

    def run(self, call: Call, *, bindings: bool = True) -> int:
        assert bindings is (b"/*+" not in call.sql)
        self.texts.append(call.sql)
        return 8_000 if len(self.texts) <= 31 else 400


def tried_on(
    clone: FakeClone, sql: bytes = READ, tables: TargetTables = WITHOUT, findings: bool = True
) -> tuple[JudgedPlans, FakeExplainer]:
    sides = {Side.SOURCE: PlanAnswer(LOOKUP), Side.TARGET: PlanAnswer(WHOLE)}
    plans = DigestPlans("d" * 64, "SELECT ?", "shop", ("orders",), 10, 1.0, (SamplePlans("x.log:1", sql, sides),))
    judged = judge_plans(plans, NAMES, tables)
    assert bool(judged.findings) is findings
    call = Call("s", 1, sql, "d" * 64, SessionState(database="shop"))
    explainer = FakeExplainer(clone)
    source = {("shop", "orders"): {"by_code": replace(index("code"), name="by_code")}}
    trials = RemedyTrials(cast(TrialClone, clone), lambda _digest, most: [call] * most)
    found = trials.tried(judged, [call], cast(Explainer, explainer), NAMES, source, tables, PlanLimits())
    return found, explainer


def test_a_remedy_is_measured_before_and_after_and_undone() -> None:
    clone = FakeClone()
    found, explainer = tried_on(clone)
    (trial,) = found.trials
    assert (trial.rows, trial.p50[0], trial.calls, trial.helped) == ((10_000.0, 12.0), 8_000, (30, 30), True)
    assert [one.partition("`orders` ")[2] for one in clone.log] == [
        "ADD INDEX `migverify_trial` (`code`)", "DROP INDEX `migverify_trial`",
    ]  # fmt: skip
    assert found.findings[0].proved
    assert len(explainer.texts) == 62  # 30 that count on each side, and one that does not


def test_a_binding_is_tried_by_its_hint_and_changes_nothing() -> None:
    clone = FakeClone()
    found, _ = tried_on(clone, tables=TABLES)
    assert (found.trials[0].rows, clone.log) == ((10_000.0, 12.0), [])
    assert "CREATE GLOBAL BINDING" in found.trials[0].remedy


def test_what_a_clone_refuses_or_what_writes_is_said() -> None:
    refused, _ = tried_on(FakeClone("ADD INDEX"))
    assert (refused.trials[0].rows, refused.trials[0].reason) == (None, "1142 denied")
    clone = FakeClone()
    writes, explainer = tried_on(clone, b"UPDATE orders o SET n = 1 WHERE code = 'k'")
    assert "only what reads is run" in writes.trials[0].reason
    assert (clone.log, explainer.texts) == ([], [])


def test_statistics_are_taken_where_there_are_none_and_never_over_old_ones() -> None:
    """Old ones could not be put back."""

    def tables(known: TableStatistics | None) -> TargetTables:
        return TargetTables({} if known is None else {("shop", "orders"): known}, TABLES.indexes)

    for known in (None, replace(FRESH, health=None)):
        clone = FakeClone()
        found, _ = tried_on(clone, tables=tables(known), findings=False)
        assert clone.log == ["ANALYZE TABLE `shop`.`orders`", "DROP STATS `shop`.`orders`"]
        assert found.trials[0].rows is not None
    clone = FakeClone()
    found, _ = tried_on(clone, tables=tables(replace(FRESH, health=10)), findings=False)
    assert (clone.log, found.trials[0].rows) == ([], None)
    assert "cannot put back" in found.trials[0].reason
