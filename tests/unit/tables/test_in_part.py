"""What the configuration leaves out of a table: said of its plan, of its run, and of all that rests on the run."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest

from migverify.config import TableOverride
from migverify.errors import PlanError
from migverify.model import Endpoint, NotCovered, StoredKind, TableResult, Verdict
from migverify.report.read import read_report
from migverify.report.render import Format, render
from migverify.tables.plan import compared_in_part, plan_pair
from migverify.tables.run_facts import (
    ProofScope,
    compared_with_itself,
    is_of_servers,
    proof_scope,
    refuse_other_servers,
)
from tests.definitions import column, key, table
from tests.fakes import FakeStore
from tests.report_runs import result

COLUMNS = (column("id", nullable=False), column("v"), column("w"), key("PRIMARY", "id"))
SOURCE, TARGET = table(*COLUMNS), table(*COLUMNS, endpoint="target")
ENDPOINTS = {name: Endpoint(name, "h", 1, "u") for name in ("source", "target")}
WHERE = "left out by configuration (overrides.where)"


@pytest.mark.parametrize(
    ("override", "why", "gaps"),
    [
        ({}, (), []),
        ({"ignore": ("v",)}, (), ["v"]),
        ({"where": "1=0"}, ("where",), ["rows for which (1=0) is not true"]),
        (
            {"where": {"source": "v = 1", "target": "w  =\n 2"}}, ("where",),
            ["rows of the source for which (v = 1) is not true", "rows of the target for which (w = 2) is not true"],
        ),
        ({"where": {"target": "w = 2"}}, ("where",), ["rows of the target for which (w = 2) is not true"]),
        ({"ignore": ("V", "w")}, ("only the key",), ["v", "w", "all values outside of the key"]),
        ({"ignore": ("id", "w"), "key": ("v",)}, ("only the key",), ["id", "w", "all values outside of the key"]),
    ],
)  # fmt: skip
def test_what_a_plan_leaves_out_is_among_what_is_not_covered(
    override: dict[str, object], why: tuple[str, ...], gaps: list[str]
) -> None:
    rule = TableOverride.model_validate(override)
    assert compared_in_part((SOURCE,), TARGET, rule) == why
    pair = plan_pair((SOURCE,), TARGET, ENDPOINTS, rule, "SHA2")
    assert [gap.what for gap in pair.not_covered] == gaps
    assert all(gap.reason == WHERE for gap in pair.not_covered if gap.what.startswith("rows"))
    assert len(pair.blind_spots) == len(why)
    assert pair.filtered is ("where" in why)


def test_a_table_of_a_key_alone_and_a_table_on_one_side_are_not_compared_in_part() -> None:
    link = table(column("a", nullable=False), column("b", nullable=False), key("PRIMARY", "a", "b"))
    assert compared_in_part((link,), link, TableOverride()) == ()
    assert compared_in_part((SOURCE,), None, TableOverride.model_validate({"where": "1=0"})) == ()


def run_of(store: FakeStore, pairs: list[dict[str, object]], **facts: object) -> str:
    return store.start_run("verify", "h", {"pairs": pairs}, facts, kind=StoredKind.TABLES)


def test_a_run_and_what_it_takes_over_have_one_scope() -> None:
    store = FakeStore()
    first = run_of(store, [{"id": "a", "in part": ["where"]}, {"id": "b", "in part": ["only the key"]}, {"id": "c"}])
    again = run_of(store, [{"id": "a"}], excluded=["d.x", "d.y"])
    scope = proof_scope([store.load_run(again), store.load_run(first)])
    assert scope == ProofScope(3, 1, ("only the key",), ("d.x", "d.y"))
    assert scope.words == "1 of them in part (only the key), 2 excluded"
    assert proof_scope([store.load_run(first)]).words == "2 of them in part (only the key, where)"
    assert proof_scope([]).words == ""


def filled_store(excluded: int) -> FakeStore:
    store = FakeStore()
    run = run_of(
        store, [{"id": "t", "source": "shop.t", "target": "shop.t", "in part": ["where"]}],
        excluded=[f"shop.x{n:02}" for n in range(excluded)],
    )  # fmt: skip
    gap = NotCovered("rows for which (1=0) is not true", WHERE)
    spot = "rows for which the condition of overrides.where is not true"
    found: TableResult = result("t", not_covered=(gap,), blind_spots=(spot,))
    store.add_table_result(run, replace(found, pair="t", source="shop.t", target="shop.t"))
    store.finish_run(run, Verdict.MATCH, {})
    return store


def test_reports_name_conditions_and_excluded_tables_and_cut_no_list_silently() -> None:
    report = read_report(filled_store(23), "last")
    text, page = render(report, Format.TEXT), render(report, Format.HTML)
    assert "(1 table pair: 1 MATCH, 1 of them in part (where), 23 excluded)" in text
    for shown in (text, page):
        assert f"rows for which (1=0) is not true: {WHERE}" in shown
        assert "table shop.x19: excluded by configuration (tables.exclude)" in shown
        assert "3 more tables: excluded by configuration (tables.exclude); the JSON report names all 23" in shown
        assert "shop.x20" not in shown
        assert "rows for which the condition of overrides.where is not true (1 table pair)" in shown
    document = json.loads(render(report, Format.JSON))
    assert len(document["not_covered"]) == 23
    assert document["not_covered"][-1] == {
        "what": "table shop.x22", "reason": "excluded by configuration (tables.exclude)"
    }  # fmt: skip
    case = render(report, Format.JUNIT)
    assert f"not covered: rows for which (1=0) is not true: {WHERE}" in case
    assert 'name="run.compared in part" value="1 of 1 table pair (where)"' in case
    assert 'name="run.excluded" value="23 tables (tables.exclude)"' in case
    assert "not_covered" not in json.loads(render(read_report(filled_store(0), "last"), Format.JSON))


@pytest.mark.parametrize(
    ("source", "target", "to", "itself"),
    [
        ({"host": "db", "port": 1}, {"host": "db", "port": 1}, "d.a", True),
        ({"address": "db:1"}, {"address": "db:1"}, "d.a", True),
        ({"address": "DB:1"}, {"address": "db:1"}, "d.a", True),
        ({"address": "db:1", "server": "u1"}, {"address": "db:1", "server": "u2"}, "d.a", False),
        ({"host": "a", "port": 1, "server": "u1"}, {"host": "b", "port": 1, "server": "u1"}, "d.a", True),
        ({"host": "a", "port": 1, "server": "u1"}, {"host": "b", "port": 1, "server": "u1"}, "other.a", False),
        ({"host": "a", "port": 1, "server": "u1"}, {"host": "b", "port": 1, "server": "u2"}, "d.a", False),
        ({"host": "a", "port": 1, "server": ""}, {"host": "b", "port": 1, "server": ""}, "d.a", False),
        ({}, {}, "d.a", False),
    ],
)
def test_a_run_of_an_earlier_release_that_compared_a_table_with_itself_is_known(
    source: dict[str, object], target: dict[str, object], to: str, itself: bool
) -> None:
    store = FakeStore()
    run = run_of(store, [{"id": "d.a", "source": "d.a", "target": to}], endpoints={"source": source, "target": target})
    assert compared_with_itself(store.load_run(run), store.load_run) is itself


@pytest.mark.parametrize(
    ("then", "now", "same"),
    [
        ({"address": "db:1", "server": "u1"}, {"host": "DB", "port": 1, "server": "u2"}, True),  # its replica took over
        ({"host": "a", "port": 1, "server": "u1"}, {"host": "b", "port": 1, "server": "u1"}, True),
        ({"host": "a", "port": 1, "server": "u1"}, {"host": "b", "port": 1, "server": "u2"}, False),
        ({"host": "a", "port": 1}, {"host": "b", "port": 1, "server": "u1"}, False),
        ({}, {"host": "b", "port": 1}, False),
        ("9.7", {"host": "b", "port": 1}, False),
    ],
)
def test_a_run_is_of_a_server_that_has_its_address_or_its_id(then: object, now: dict[str, object], same: bool) -> None:
    store = FakeStore()
    run = store.load_run(run_of(store, [], endpoints={"source": then}))
    assert is_of_servers(run, {"source": now}) is same
    # To go on with it, a run that does not say enough is not refused by this alone.
    is_known = isinstance(then, dict) and bool(then) and bool(then.get("server")) is bool(now.get("server"))
    with pytest.raises(PlanError, match="read another server") if is_known and not same else nullcontext():
        refuse_other_servers(run, {"source": now})
