"""Client scenarios without a database: files, cells, comparison, what is never shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.cli import workload_clients_setup
from migverify.cli.main import run
from migverify.errors import UsageError
from migverify.model import Verdict
from migverify.workload.clients import compare, python_harness, scenarios
from migverify.workload.clients.drivers import chosen, drivers, harness_jars, pools, url
from migverify.workload.clients.keep import verdict_of
from migverify.workload.clients.model import CellResult, ClientCell, DriverKind, Observed, Scenario
from tests import clients_page

ROOT = Path(__file__).parents[3]


def cell(*steps: dict[str, Any], explains: tuple[str, ...] = ()) -> ClientCell:
    body = {"title": "a scenario", "kinds": (DriverKind.JDBC,), "steps": steps or ({"do": "open"},)}
    scenario = Scenario(name="s", explains=explains, **body)
    return ClientCell(drivers()["connector-j-9"], pools()["none"], scenario, scenario.variants[0], "")


def seen(*facts: dict[str, Any], failure: str = "") -> Observed:
    return Observed(tuple(facts), failure, tuple(0 for _ in facts))


def refused(code: int, told: str = "", name: str = "java.sql.SQLException") -> dict[str, Any]:
    return {"error": {"class": name, "code": code, "sqlstate": "HY000", "told": told}}


# --- scenarios as files


def test_packaged_scenarios_are_sound() -> None:
    found = scenarios.packaged()
    assert len(found) >= 40
    assert all(one.title and one.steps for one in found)


def test_every_scenario_has_a_cell() -> None:
    every = list(drivers().values())
    made, _ = scenarios.cells(every, list(pools().values()), scenarios.packaged(), lambda _need: True)
    assert {one.scenario.name for one in made} == {one.name for one in scenarios.packaged()}
    assert {one.driver.name for one in made} == set(drivers())
    assert {one.pool.name for one in made} == set(pools())


GOOD: dict[str, Any] = {"title": "t", "kinds": ["jdbc"], "steps": [{"do": "open"}]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"title": ""}, "title: "),
        ({"steps": []}, "steps: "),
        ({"kinds": ["cobol"]}, "kinds.0: Input should be 'jdbc' or 'python'"),
        ({"steps": [{"do": "fly"}]}, "step 1: do: 'fly' is not known"),
        ({"steps": [{"do": "sql"}]}, "step 1: sql needs sql"),
        (
            {"steps": [{"do": "open"}, {"do": "sql", "sql": "SELECT 1", "paramz": []}]},
            "2: 'paramz' is not a field",
        ),
        ({"steps": [{"do": "background", "as": "t", "step": {"do": "run"}}]}, "step 1: run needs of"),
        ({"pools": ["dbcp"]}, "pools: 'dbcp' is not known"),
        ({"drivers": ["odbc"]}, "drivers: 'odbc' is not known"),
        ({"variants": [{"name": "a"}, {"name": "a"}]}, "two variants have one name"),
        ({"variants": [{"name": "a", "options": {"fast": "1"}}]}, "options: 'fast' is not known"),
        ({"kinds": ["python"], "steps": [{"do": "savepoint", "as": "a"}]}, "does not exist in Python"),
        ({"surprise": 1}, "surprise: "),
        ({"setup": "DROP TABLE x"}, "setup: "),
    ],
)
def test_a_wrong_scenario_is_told_at_its_place(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        scenarios.parse(json.dumps({**GOOD, **change}), "x", "x.json")
    assert said in caught.value.message
    assert "x.json" in caught.value.message


def test_own_scenarios_are_added_and_win(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(GOOD))
    (tmp_path / "isolation.json").write_text(json.dumps({**GOOD, "title": "other"}))
    found = {one.name: one for one in scenarios.load(tmp_path)}
    assert found["mine"].title == "t"
    assert found["isolation"].title == "other"
    assert "generated-keys" in found


def test_no_scenario_no_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no scenario"):
        scenarios.load(tmp_path)


def test_explanations_are_ids_of_the_catalogue() -> None:
    from migverify.workload.catalogue.load import load as load_catalogue

    known = {entry.id for entry in load_catalogue().entries}
    for one in scenarios.packaged():
        texts = [*one.explains, *(text for step in one.steps for text in step.get("explains", []))]
        unknown = [text for text in texts if text not in known]
        assert not unknown, f"{one.name} names {unknown}"


# --- drivers


def test_options_that_a_driver_lacks_leave_the_cell_out() -> None:
    one = scenarios.parse(
        json.dumps({**GOOD, "variants": [{"name": "z", "options": {"zero_dates": "null"}}]}), "z", "z"
    )
    made, left = scenarios.cells(drivers().values(), [pools()["none"]], [one], lambda _need: False)
    assert {c.driver.name for c in made} == {"connector-j-5.1", "connector-j-8.0", "connector-j-9"}
    assert {c.driver for c in left} == {"mariadb-2.7", "mariadb-3"}
    assert not any(c.possible for c in left)


def test_what_needs_own_servers_is_named_as_not_run() -> None:
    one = scenarios.parse(json.dumps({**GOOD, "needs": ["restart"]}), "r", "r")
    made, left = scenarios.cells([drivers()["connector-j-9"]], [pools()["none"]], [one], lambda need: need == "proxy")
    assert not made
    assert left[0].possible
    assert "--own-servers" in left[0].reason


def test_a_driver_says_options_in_its_own_words() -> None:
    five, nine = drivers()["connector-j-5.1"], drivers()["connector-j-9"]
    assert "zeroDateTimeBehavior=convertToNull" in url(five, {"zero_dates": "null"})
    assert "zeroDateTimeBehavior=CONVERT_TO_NULL" in url(nine, {"zero_dates": "null"})
    assert "socketTimeout=1500" in url(nine, {"socket_timeout": "1500"})  # in place of its base's
    assert "socketTimeout=20000" not in url(nine, {"socket_timeout": "1500"})
    assert nine.tls["required"] == "sslMode=REQUIRED"


def test_no_url_holds_a_login() -> None:
    for driver in drivers().values():
        if driver.kind is DriverKind.JDBC:
            # A side whose mode had no words would be left to the driver's own habit.
            assert set(driver.tls) == {"disabled", "required"}
        for name, values in driver.options.items():
            for value in values:
                made = url(driver, {name: value}).lower()
                assert "user=" not in made
                assert "password" not in made


def test_jars_are_pinned() -> None:
    jars = [*harness_jars(), *(jar for users in (drivers(), pools()) for one in users.values() for jar in one.jars)]
    assert len(jars) >= 14
    for jar in jars:
        assert len(jar.sha256) == 64
        assert int(jar.sha256, 16)
        assert jar.path.endswith(f"/{jar.version}/{jar.artifact}-{jar.version}.jar")
    for driver in drivers().values():
        assert bool(driver.jars) == (driver.kind is DriverKind.JDBC)


def test_an_unknown_driver_is_refused() -> None:
    with pytest.raises(UsageError, match="--driver 'odbc' is not known"):
        chosen(drivers(), ["odbc"], "--driver")


# --- comparison


def test_same_facts_match() -> None:
    one = cell({"do": "open"}, {"do": "sql", "sql": "x"})
    facts = ({}, {"results": [{"rows": [[{"class": "java.lang.Long", "value": "1"}]], "count": 1}], "warnings": []})
    assert compare.judge(one, seen(*facts), seen(*facts), None).verdict is Verdict.MATCH


def test_messages_are_told_and_not_compared() -> None:
    one = cell({"do": "sql", "sql": "x"}, {"do": "sql", "sql": "y"})
    got = compare.judge(one, seen(refused(1062, "a"), {}), seen(refused(1062, "b"), {}), None)
    assert (got.verdict, got.refused) == (Verdict.MATCH, 1)


def test_where_every_statement_fails_alike_nothing_was_shown() -> None:
    one = cell({"do": "open"}, {"do": "sql", "sql": "x"}, {"do": "prepared", "sql": "y"})
    both = seen({}, refused(2013), refused(2013))
    got = compare.judge(one, both, both, None)
    assert got.verdict is Verdict.INCONCLUSIVE
    assert "nothing was shown" in got.reason


@pytest.mark.parametrize(
    ("source", "target", "path"),
    [
        (refused(1062), refused(1105), "error"),
        ({"results": []}, refused(1105), "outcome"),
        (refused(1105), {"results": []}, "outcome"),
        ({"counts": [1, 1]}, {"counts": [1, 2]}, "counts.1"),
        ({"counts": [1, 1]}, {"counts": [1]}, "counts"),
        ({"valid": True}, {"valid": False}, "valid"),
        ({"valid": True}, {}, "valid"),
        (
            {"results": [{"rows": [[{"class": "java.lang.Long", "value": "1"}]]}]},
            {"results": [{"rows": [[{"class": "java.lang.Integer", "value": "1"}]]}]},
            "results.0.rows.0.0",
        ),
        (
            {"results": [{"rows": [[{"class": None}]]}]},
            {"results": [{"rows": [[{"class": "java.lang.String", "value": ""}]]}]},
            "results.0.rows.0.0",
        ),
        ({"columns": [{"label": "a", "scale": 1}]}, {"columns": [{"label": "a", "scale": 2}]}, "columns.a.scale"),
        ({"x": {"get": {"error": {"class": "E"}}}}, {"x": {"get": {"class": "I", "value": "1"}}}, "x.get.outcome"),
    ],
)  # fmt: skip
def test_a_difference_is_found_at_its_place(source: dict[str, Any], target: dict[str, Any], path: str) -> None:
    one = cell({"do": "sql", "sql": "x"})
    found = compare.differences(one, seen(source), seen(target))
    assert [d.path for d in found] == [path]
    assert found[0].source != found[0].target


JSONISH = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "error", "rows"]), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["results", "keys", "valid", "error"]), JSONISH))
def test_facts_never_differ_from_themselves(facts: dict[str, Any]) -> None:
    assert compare.differences(cell({"do": "sql", "sql": "x"}), seen(facts), seen(json.loads(json.dumps(facts)))) == []


@given(st.dictionaries(st.sampled_from(["a", "b"]), JSONISH), st.dictionaries(st.sampled_from(["a", "b"]), JSONISH))
def test_unlike_facts_always_differ(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert bool(compare.differences(cell({"do": "sql", "sql": "x"}), seen(one), seen(other))) == (one != other)


def test_order_counts_unless_the_step_says_otherwise() -> None:
    rows = [[{"class": "L", "value": "1"}], [{"class": "L", "value": "2"}]]
    one, other = ({"results": [{"rows": each}]} for each in (rows, rows[::-1]))
    assert compare.differences(cell({"do": "sql", "sql": "x"}), seen(one), seen(other))
    assert not compare.differences(cell({"do": "sql", "sql": "x", "unordered": True}), seen(one), seen(other))
    long = {"results": [{"rows": rows, "count": 30, "sequence": "a", "multiset": "7"}]}
    moved = {"results": [{"rows": rows[::-1], "count": 30, "sequence": "b", "multiset": "7"}]}
    changed = {"results": [{"rows": rows, "count": 30, "sequence": "a", "multiset": "8"}]}
    assert not compare.differences(cell({"do": "sql", "sql": "x", "unordered": True}), seen(long), seen(moved))
    assert compare.differences(cell({"do": "sql", "sql": "x", "unordered": True}), seen(long), seen(changed))


def test_a_consequence_is_not_told_twice() -> None:
    one = cell({"do": "open"}, {"do": "sql", "sql": "x"})
    gone = {"error": {"class": "Cell$NotThere"}}
    found = compare.differences(one, seen({}, {"results": []}), seen(refused(1235), gone))
    assert [d.step for d in found] == [1]
    # Alone it is a difference like any other.
    assert compare.differences(one, seen({}, {"results": []}), seen({}, gone))


def test_a_step_may_explain_more_than_its_scenario() -> None:
    one = cell({"do": "sql", "sql": "x"}, {"do": "sql", "sql": "y", "explains": ["b"]}, explains=("a",))
    found = compare.differences(one, seen({"n": 1}, {"n": 1}), seen({"n": 2}, {"n": 2}))
    assert [d.known for d in found] == [("a",), ("b",)]


# --- verdicts: nothing is MATCH by default


def test_what_was_not_run_is_no_match() -> None:
    one = cell({"do": "open"}, {"do": "sql", "sql": "x"})
    assert compare.judge(one, seen({}), seen({}), None).verdict is Verdict.INCONCLUSIVE
    assert compare.judge(one, seen({}, {}, failure="died"), seen({}, {}), None).reason == "source: died"
    assert compare.judge(one, seen({}, {}), seen({}, {}, failure="late"), None).reason == "target: late"


def test_no_connection_on_either_side_is_no_match() -> None:
    assert compare.judge(cell(), seen(refused(1045)), seen(refused(1045)), None).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    "step", [{"do": "sql", "sql": "x", "needs": True}, {"do": "set", "what": "autocommit", "value": 1}]
)
def test_a_needed_step_that_fails_alike_shows_nothing(step: dict[str, Any]) -> None:
    got = compare.judge(cell(step), seen(refused(1)), seen(refused(1)), None)
    assert got.verdict is Verdict.INCONCLUSIVE
    assert "needed" in got.reason


def test_a_difference_counts_when_it_is_seen_twice() -> None:
    one = cell({"do": "sql", "sql": "x"})
    source, target = seen({"n": 1}), seen({"n": 2})
    held = compare.judge(one, source, target, (source, target))
    assert (held.verdict, len(held.differences), held.unsteady) == (Verdict.MISMATCH, 1, 0)
    gone = compare.judge(one, source, target, (source, source))
    assert (gone.verdict, gone.differences, gone.unsteady) == (Verdict.INCONCLUSIVE, (), 1)
    failed = compare.judge(one, source, target, (source, seen(failure="died")))
    assert failed.verdict is Verdict.INCONCLUSIVE


def test_the_whole() -> None:
    def result(verdict: Verdict) -> CellResult:
        return CellResult("d", "p", "s", "v", verdict, "")

    match, other, unclear = map(result, (Verdict.MATCH, Verdict.MISMATCH, Verdict.INCONCLUSIVE))
    assert verdict_of([], []) is Verdict.INCONCLUSIVE
    assert verdict_of([match], []) is Verdict.MATCH
    assert verdict_of([match, unclear], []) is Verdict.INCONCLUSIVE
    assert verdict_of([match, unclear, other], []) is Verdict.MISMATCH


# --- the page


def test_the_page_is_the_results() -> None:
    import os

    file, place = ROOT / "docs" / "clients-behavior.md", ROOT / "docs" / "clients-results.json"
    fresh = clients_page.behavior(clients_page.read_slim(place.read_text()), scenarios.packaged())
    text = file.read_text()
    if os.environ.get("REGEN") == "1":
        file.write_text(clients_page.in_step(text, fresh))
        text = file.read_text()
    assert clients_page.in_step(text, fresh) == text, "run the tests once with REGEN=1 and look at the change"


def test_results_are_kept_small_and_whole() -> None:
    place = ROOT / "docs" / "clients-results.json"
    kept = clients_page.read_slim(place.read_text())
    assert clients_page.slim(kept) == place.read_text()
    assert all(bool(one["differences"]) == (one["verdict"] == "MISMATCH") for one in kept["cells"])
    assert {one["driver"] for one in kept["cells"]} == set(drivers())


def test_the_page_shows_drivers_and_what_differs() -> None:
    difference = {"step": 2, "action": "sql", "path": "n", "source": "1|", "target": "<2>", "known": []}
    results = {
        "facts": {"source": "mysql 9", "target": "tidb 8"},
        "cells": [
            {"driver": "connector-j-9", "pool": pool, "scenario": "isolation", "variant": "default",
             "verdict": verdict, "refused": 0, "reason": "", "differences": differences}
            for pool, verdict, differences in (("none", "MATCH", []), ("hikari", "MISMATCH", [difference]))
        ],
    }  # fmt: skip
    made = clients_page.behavior(results, scenarios.packaged())
    assert "same (none), 1 differ (hikari)" in made
    assert "| default | 2 | sql: n | 1\\| | &lt;2> | unknown | connector-j-9 (hikari) |" in made


def test_a_setting_is_of_the_connection_that_its_step_names() -> None:
    said: list[tuple[str, str]] = []

    class Cursor:
        description, rowcount = None, 0

        def __init__(self, name: str) -> None:
            self.name = name

        def execute(self, sql: str) -> None:
            said.append((self.name, sql))

        def close(self) -> None:
            """End it."""

    class Driver:
        name = "pymysql"
        cursor = staticmethod(lambda connection, _stream, _prepared: Cursor(connection))
        wait = staticmethod(lambda result: result)

    cell = python_harness.Cell(Driver(), {"url": ""}, {"database": "d"}, lambda _: {})  # type: ignore[arg-type]
    cell.connections = {"c": "first", "other": "second"}
    assert cell.facts({"do": "set", "on": "other", "what": "read_only", "value": True}) == {}
    assert cell.facts({"do": "set", "what": "isolation", "value": "TRANSACTION_SERIALIZABLE"}) == {}
    assert said == [
        ("second", "SET SESSION TRANSACTION READ ONLY"),
        ("first", "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE"),
    ]


# --- the store of a run on servers of its own


@pytest.mark.parametrize(
    ("options", "place"), [(["--store", "sqlite:///new.db"], "new.db"), ([], ".migverify/runs.db")]
)
def test_with_own_servers_and_no_configuration_the_store_is_made(
    options: list[str], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_servers(_options: object) -> None:
        raise UsageError("no servers here")

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MIGVERIFY_CONFIG", raising=False)
    monkeypatch.setattr(workload_clients_setup, "set_up", no_servers)
    assert run(["workload", "clients", "--own-servers", *options]) == 2
    assert "no servers here" in capsys.readouterr().err
    assert (tmp_path / place).is_file()


@pytest.mark.parametrize("options", [["--store", "sqlite:///new.db"], ["--own-servers", "--config", "other.yaml"]])
def test_else_no_store_is_made_without_a_configuration(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MIGVERIFY_CONFIG", raising=False)
    assert run(["workload", "clients", *options]) in (2, 3)
    assert not list(tmp_path.rglob("*.db"))
