"""What a quick answer makes of the plan of a pair: columns, conditions, the range key, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from migverify.config import TableOverride
from migverify.errors import UsageError
from migverify.model import Endpoint, IndexDef, TableDef
from migverify.sql.checksum import full_rows_sql
from migverify.tables.part import refuse_unknown_column
from migverify.tables.plan import plan_digest, plan_pair, read_statements
from migverify.tables.quick import Level, PairPart, QuickRead
from migverify.tables.tasks import PairPlan, Rules, Task, by_key, task_from_text
from tests.definitions import column, key, table

COUNTS, KEYS = QuickRead(Level.COUNTS), QuickRead(Level.KEYS)
RECENT = QuickRead(column="updated_at", interval="2h", moment="2026-11-28 10:00:00.000000")
PRIMARY, RECENT_KEY = key("PRIMARY", "id"), key("by_time", "updated_at", "v")


def made(*indexes: IndexDef, endpoint: str = "source", kind: str = "datetime") -> TableDef:
    columns = column("id", nullable=False), column("v", "varchar(20)"), column("updated_at", kind)
    return table(*columns, *indexes, endpoint=endpoint)


def planned(read: QuickRead | None, source: TableDef, target: TableDef, *more: TableDef, **override: Any) -> PairPlan:
    sources = (source, *more)
    ends = {name: Endpoint(name, "h", 1, "u") for name in (*(s.ref.endpoint for s in sources), "target")}
    return plan_pair(sources, target, ends, TableOverride(**override), "SHA2", read=read)


def pair(read: QuickRead | None, *indexes: IndexDef, **override: Any) -> PairPlan:
    return planned(read, made(*indexes), made(*indexes, endpoint="target"), **override)


def part_of(plan: PairPlan) -> PairPart:
    assert plan.part is not None
    return plan.part


COLUMNS = {"id": "int", "updated_at": "datetime", "created": "timestamp"}


def test_a_column_that_some_table_has_in_any_case_is_no_typo() -> None:
    refuse_unknown_column(RECENT, COLUMNS)
    refuse_unknown_column(replace(RECENT, column="UPDATED_AT"), COLUMNS)
    refuse_unknown_column(replace(RECENT, column="ID"), COLUMNS)  # of another type: its table says so
    refuse_unknown_column(KEYS, COLUMNS)


@pytest.mark.parametrize(("name", "advice"), [
    ("updated", "Did you mean updated_at?"),
    ("Update_At", "Did you mean updated_at?"),
    ("xyz", "DATETIME and TIMESTAMP columns are: created, updated_at."),
])  # fmt: skip
def test_a_column_that_no_table_has_is_a_usage_error(name: str, advice: str) -> None:
    """A nightly job with a typo ended like every healthy night: INCONCLUSIVE."""
    with pytest.raises(UsageError, match=f"--updated-since: no table has a column {name}") as refused:
        refuse_unknown_column(replace(RECENT, column=name), COLUMNS)
    assert refused.value.hint == advice


def test_where_no_table_has_a_column_of_time_the_refusal_says_so() -> None:
    with pytest.raises(UsageError) as refused:
        refuse_unknown_column(RECENT, {"id": "int"})
    assert refused.value.hint == "No table has a DATETIME or TIMESTAMP column: --sample and --level need none."


def test_a_whole_verification_is_planned_as_before() -> None:
    assert pair(None, PRIMARY).part is None


def test_keys_compare_the_columns_of_the_key_alone() -> None:
    plan = pair(KEYS, PRIMARY)
    assert [c.name for c in plan.columns] == ["id"]
    assert all("`v`" not in text for side in plan.sides for text in read_statements(plan, side).values())
    assert plan_digest(plan) != plan_digest(pair(None, PRIMARY))
    assert "no unique key" in part_of(pair(KEYS, key("v", "v"))).refused


def test_counts_run_one_statement_with_the_configured_condition() -> None:
    plan = pair(COUNTS, PRIMARY, where={"source": "v = 'x'", "target": "v = 'x'"})
    assert read_statements(plan, plan.sides[0]) == {"count": "SELECT COUNT(*) FROM `d`.`t` WHERE v = 'x'"}


def test_an_interval_is_a_condition_of_ranges_and_not_of_reads_by_key() -> None:
    plan = pair(RECENT, PRIMARY, RECENT_KEY, where={"source": "v = 'x'", "target": "v = 'x'"})
    assert [c.name for c in plan.sides[0].sql.range_key] == ["`updated_at`"]
    for side in plan.sides:
        assert side.sql.where == "(v = 'x') AND `updated_at` >= '2026-11-28 10:00:00.000000'"
    for side in by_key(plan).sides:
        assert side.sql.where == "v = 'x'"
        assert "2026" not in full_rows_sql(side.sql, [("1",)])
    assert part_of(plan).scan == ""


@pytest.mark.parametrize(
    "index",
    [key("a", "v", "updated_at"), key("a", "(date(updated_at))"), replace(RECENT_KEY, visible=False)],
    ids=["second column", "expression", "invisible"],
)
def test_what_no_index_begins_with_is_read_by_the_key_and_said(index: IndexDef) -> None:
    plan = planned(RECENT, made(PRIMARY, RECENT_KEY), made(PRIMARY, index, endpoint="target"))
    assert [c.name for c in plan.sides[0].sql.range_key] == ["`id`"]
    assert part_of(plan).scan == "no index of target begins with updated_at: the whole table is read there"


def test_columns_that_sort_apart_are_read_by_the_key() -> None:
    plan = planned(RECENT, made(PRIMARY, RECENT_KEY, kind="timestamp"), made(PRIMARY, RECENT_KEY, endpoint="target"))
    assert [c.name for c in plan.sides[0].sql.range_key] == ["`id`"]
    assert part_of(plan).refused == ""


def test_every_shard_is_looked_at() -> None:
    shards = [made(PRIMARY, RECENT_KEY, endpoint="source.a"), made(PRIMARY, endpoint="source.b")]
    target = made(PRIMARY, RECENT_KEY, endpoint="target")
    plan = planned(RECENT, shards[0], target, shards[1])
    assert part_of(plan).scan.startswith("no index of source.b begins with updated_at")
    assert len(part_of(plan).conditions) == len(plan.sides) == 3


@pytest.mark.parametrize(("kind", "words"), [("int", "is int"), ("date", "is date"), ("varchar(30)", "is varchar(30)")])
def test_a_column_that_is_no_moment_is_refused(kind: str, words: str) -> None:
    refused = part_of(planned(RECENT, made(PRIMARY, kind=kind), made(PRIMARY, endpoint="target", kind=kind))).refused
    assert words in refused
    assert (
        "2026"
        not in planned(RECENT, made(PRIMARY, kind=kind), made(PRIMARY, endpoint="target", kind=kind)).sides[0].sql.where
    )


def test_a_column_that_is_not_compared_is_refused() -> None:
    assert "no column updated_at" in part_of(pair(RECENT, PRIMARY, ignore=("updated_at",))).refused


def test_a_part_travels_with_its_task() -> None:
    for read in (COUNTS, KEYS, RECENT):
        task = Task("counts", pair(read, PRIMARY, RECENT_KEY), Rules(), counts=(3, 4))
        assert task_from_text(task.to_text()) == task
