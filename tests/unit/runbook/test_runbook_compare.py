"""Runs side by side, and the commands that print what journals show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from migverify.cli.runbook import app
from migverify.errors import MigverifyError, UsageError
from migverify.runbook.definition.load import load_runbook
from migverify.runbook.history.compare import compare_all
from migverify.runbook.history.past import past_runs
from migverify.runbook.kinds import RunKind
from migverify.runbook.model import Failure, Times
from migverify.runbook.record.heads import Head, head_text
from migverify.runbook.record.run_store import RunStore
from migverify.runbook.run import machine
from tests.json_outputs import compare_with_schema
from tests.unit.runbook_past import NOW, SCHEMA, Drill, clean, edited, only
from tests.unit.runbook_places import data_of, rewrite
from tests.unit.runbook_runs import ALICE, replace, runbook, step

BOOK = runbook(step("a", times=Times(plan=15)), step("b"), step("c", times=Times(plan=60)))
TEXT = """\
version: runbook/v1
id: tiny
title: A tiny one
kind: cutover
environments: {lab: {}, prod: {production: true}}
people: {alice: {}, bob: {}, carol: {}, erin: {}}
roles: {coordinator: {person: alice, backup: erin}, db-1: {person: bob}, db-2: {person: carol}}
policy: {readiness: {drills_min: 2, clean_last: 1, rollback_drills_min: 0}}
phases:
  - id: one
    steps:
      - {id: a, kind: command, title: A, dri: db-1, reviewer: db-2, do: {run: "do a"}, time: {plan: 5s},
         instruction: By hand., repeat: yes, expect: [{check: command.exit, run: "is a"}]}
      - {id: b, kind: command, title: B, dri: db-1, reviewer: db-2, do: {run: "do b"},
         instruction: By hand., repeat: yes, expect: [{check: command.exit, run: "is b"}]}
"""


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """Return a room with a bad drill, a better one and a good one."""
    found = tmp_path / "runs"
    first = Drill(found, BOOK, "d1", day=1)
    first.begin("a")
    first.fail("a")
    first.again("a", 40)
    first.play(30)
    first.of_run(machine.hold, ALICE, "wait")
    first.of_run(machine.resume, ALICE)
    first.complete()
    second = Drill(found, edited(BOOK, "b", on_fail=Failure(retry=1)), "d2", day=2)
    second.play(20)
    second.complete()
    clean(found, edited(BOOK, "b", on_fail=Failure(retry=1)), "d3", day=3)
    return found


def test_two_runs_side_by_side(room: Path) -> None:
    both = compare_all([only(room, "d1"), only(room, "d3")])
    assert [one.run for one in both.points] == ["d1", "d3"]
    told = {one.step: (*(round(seconds or 0) for seconds in one.seconds), round(one.change or 0), one.redefined)
            for one in both.steps}  # fmt: skip
    assert told == {"a": (40, 10, -30, False), "b": (30, 10, -20, True), "c": (30, 10, -20, False)}
    bad, good = both.points
    assert (bad.failures, bad.holds, bad.retries, bad.clean, bad.late) == (1, 1, 1, False, 1)
    assert (good.failures, good.holds, good.retries, good.clean, good.late) == (0, 0, 0, True, 0)
    assert (bad.correctness.points, good.correctness.points) == (90, 100)
    assert bad.process.points is not None
    assert good.process.points is not None
    assert bad.process.points < good.process.points


def test_all_runs_show_the_curve_and_the_risk(room: Path) -> None:
    found = compare_all(past_runs(RunStore(room)))
    steps = {one.step: one for one in found.steps}
    assert [one.run for one in found.points] == ["d1", "d2", "d3"]
    assert [round(one or 0) for one in steps["a"].seconds] == [40, 20, 10]
    assert (round(steps["a"].p50 or 0), round(steps["a"].p90 or 0), round(steps["a"].over or 0)) == (20, 40, 25)
    assert (found.slowest, found.weakest) == ("a", "a")
    assert steps["a"].failures == 1
    assert steps["b"].redefined
    assert not steps["c"].redefined
    assert round(steps["c"].over or 0) == -30  # within its plan: no risk
    assert round(steps["b"].over or 0) == 10  # no plan: held against its median


def test_a_step_that_was_not_done_has_no_time(tmp_path: Path) -> None:
    drill = Drill(tmp_path, BOOK, "r1")
    drill.step("a")
    drill.begin("b")
    drill.fail("b")
    clean(tmp_path, runbook(*BOOK.steps[:1], step("new")), "r2", day=1)
    found = compare_all(past_runs(RunStore(tmp_path)))
    steps = {one.step: one for one in found.steps}
    assert list(steps) == ["a", "new", "b", "c"]
    assert (steps["b"].seconds, steps["b"].states) == ((None, None), ("failed", "no such step"))
    assert steps["b"].p90 is None
    assert found.weakest == "b"
    assert found.slowest == ""
    assert {one.step: one.change is None for one in found.steps} == {"a": False, "new": True, "b": True, "c": True}


def test_what_cannot_be_compared_is_refused(room: Path) -> None:
    with pytest.raises(UsageError, match="no run"):
        compare_all([])
    one = only(room, "d1")
    with pytest.raises(UsageError, match="several runbooks: cut, else"):
        compare_all([one, replace(one, runbook="else")])


# -- the commands ---------------------------------------------------------------------------------------------------


def invoke(*arguments: str) -> Any:
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    if done.exception is None or isinstance(done.exception, SystemExit):
        compare_with_schema(["runbook", *arguments], done.stdout)
    return done


def refused(*arguments: str) -> MigverifyError:
    error = invoke(*arguments).exception
    assert isinstance(error, MigverifyError)
    return error


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(TEXT)
    book = load_runbook(path, {}, "lab")
    for day in (1, 2):
        clean(tmp_path / "runs", book, f"d{day}", day=day)
    return path


@pytest.fixture
def asked(written: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the words of ``readiness`` about the tiny runbook, with a floor of the configuration that it meets."""
    monkeypatch.setattr("time.time", lambda: NOW)
    config = written.parent / "migverify.yaml"
    config.write_text(
        "source: {url: mysql://u@127.0.0.1:1}\ntarget: {url: tidb://u@127.0.0.1:1}\n"
        "readiness: {drills_min: 2, clean_last: 1, rollback_drills_min: 0}\n"
    )
    return ["readiness", str(written), "--runs", str(written.parent / "runs"), "--config", str(config)]


def test_readiness_says_ready_with_0(written: Path, asked: list[str]) -> None:
    told = invoke(*asked, "-e", "prod", "--schema", SCHEMA)
    assert told.exit_code == 0, told.output
    assert told.stdout.startswith(
        "tiny in prod: READY\n! migverify.yaml asks for less than what is built in: drills_min 2, built in 4\n"
    )
    assert "MISSING" not in told.stdout
    again = invoke(*asked, "--schema", SCHEMA)
    assert again.stdout == told.stdout  # one environment counts as production: it is meant
    clean(written.parent / "runs", load_runbook(written, {}, "lab"), "pilot", day=3, autopilot=True)
    piloted = invoke(*asked, "--schema", SCHEMA)
    assert "not counted: pilot (the autopilot played every role)" in piloted.stdout
    heads = written.parent / "channel.txt"
    heads.write_text(head_text(Head("gone", 3, "0" * 64)))
    found = invoke(*asked, "--schema", SCHEMA, "--heads", str(heads))
    assert found.exit_code == 3
    assert "gone: it is missing from" in found.stdout


def test_readiness_without_a_configuration_asks_for_what_is_built_in(written: Path, asked: list[str]) -> None:
    told = invoke(*asked[:-1], str(written.parent / "none.yaml"), "--schema", SCHEMA)
    assert told.exit_code == 1
    assert "! the runbook asks for less, which does not count: drills_min 2, needed 4" in told.stdout


def test_readiness_says_what_is_missing_with_1(written: Path, asked: list[str]) -> None:
    written.write_text(TEXT.replace("do b", "do b --all"))
    told = invoke(*asked, "--schema", SCHEMA)
    assert told.exit_code == 1
    assert "tiny in prod: NOT READY" in told.stdout
    assert "d2: changed since, or behind a change, and not run cleanly again: b" in told.stdout
    assert "> Hold a drill of the runbook as it is now." in told.stdout
    found = json.loads(invoke(*asked, "--schema", SCHEMA, "--json").stdout)
    assert found["verdict"] == "not ready"
    assert [one["id"] for one in found["conditions"] if one["state"] == "missing"] == ["clean", "steps", "runbook"]
    assert found["not_counted"] == []
    assert [(one["run"], one["clean"], one["correctness"]["points"]) for one in found["drills"]] == [
        ("d1", True, 100), ("d2", True, 100),
    ]  # fmt: skip


@pytest.mark.parametrize("damage", [True, False])
def test_readiness_says_what_it_cannot_tell_with_3(written: Path, asked: list[str], damage: bool) -> None:
    runs = written.parent / "runs"
    if damage:
        rewrite(runs, "d3", data_of(runs, "d2"))
        asked += ["--schema", SCHEMA]
    told = invoke(*asked)
    assert told.exit_code == 3
    assert "tiny in prod: INCONCLUSIVE" in told.stdout
    why = "belongs to run d2" if damage else "the schema of now is not known"
    assert why in told.stdout
    found = json.loads(invoke(*asked, "--json").stdout)
    assert [one["run"] for one in found["damaged"]] == (["d3"] if damage else [])


def test_compare_prints_two_runs_and_all(room: Path) -> None:
    two = invoke("report", "--compare", "d1", "last", "--runs", str(room))
    assert two.exit_code == 0, two.output
    assert "cut: d3 against d1" in two.stdout
    (line,) = [one for one in two.stdout.splitlines() if one.strip().startswith("a ")]
    assert line.split() == ["a", "0:15", "0:40", "0:10", "-0:30"]
    all_ = invoke("report", "--compare", "--all", "--runs", str(room))
    assert all_.exit_code == 0
    assert "risk in time: a, +0:25 against its plan at p90" in all_.stdout
    assert "risk of failure: a, 1 bad ends in 3 runs" in all_.stdout
    found = json.loads(invoke("report", "--compare", "d1", "d3", "--runs", str(room), "--json").stdout)
    assert [one["step"] for one in found["steps"]] == ["a", "b", "c"]
    assert found["slowest"] == "a"


def test_compare_says_what_is_wrong_with_what_was_asked(room: Path, tmp_path: Path) -> None:
    runs = ("--runs", str(room))
    assert "name two runs" in refused("report", "--compare", *runs).message
    assert "name two runs" in refused("report", "--compare", "d1", "d2", "--all", *runs).message
    assert "one run alone" in refused("report", "--compare", "d1", *runs).message
    assert "no run d9" in refused("report", "--compare", "d1", "d9", *runs).message
    assert "no run to compare" in refused("report", "--compare", "--all", "--runs", str(tmp_path / "none")).message
    clean(room, runbook(step("a"), id="else"), "e1")
    assert "several runbooks" in refused("report", "--compare", "--all", *runs).message
    assert invoke("report", "--compare", "--all", "--runbook", "cut", *runs).exit_code == 0


def test_compare_leaves_dry_runs_out_and_says_what_is_damaged(room: Path) -> None:
    Drill(room, BOOK, "dry", day=4, kind=RunKind.DRY)
    rewrite(room, "d2", data_of(room, "d2")[:-20] + b"\n")
    told = invoke("report", "--compare", "--all", "--runs", str(room))
    assert told.exit_code == 0
    assert "cut: d3 against d1" in told.stdout
    assert "warning: d2 is left out" in told.stderr
    error = refused("report", "--compare", "d1", "d2", "--runs", str(room))
    assert error.exit_code == 3


def test_help_has_examples() -> None:
    for command in ("readiness", "report --compare"):
        assert f"migverify runbook {command}" in invoke(*command.split(), "--help").stdout
