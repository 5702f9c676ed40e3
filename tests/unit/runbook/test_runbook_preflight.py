"""Preflight: each part by itself turns the verdict, and an answer that is missing is never a pass."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from migverify.cli.main import run
from migverify.runbook.actions.action import Registry
from migverify.runbook.kinds import RunKind, StepKind
from migverify.runbook.model import Applies, Case, Check, Effect, Guard, Policy, Role, Runbook, RunWindow, Sink
from migverify.runbook.run import preflight as ask
from migverify.runbook.run.preflight import Item, verdict_of_items
from tests.unit.runbook_runs import PEOPLE, World, guard_of, is_set, replace, runbook, step
from tests.unit.runbook_small import STEPS, write_small


def states(items: Iterable[Item]) -> dict[str, str]:
    return {item.name: item.state for item in items}


def item(state: str) -> Item:
    return Item("part", "name", state, "text")


@pytest.mark.parametrize(
    ("some", "verdict"),
    [
        ((), "INCONCLUSIVE"),
        (("warn", "skipped"), "INCONCLUSIVE"),
        (("pass", "warn", "skipped"), "MATCH"),
        (("pass", "inconclusive"), "INCONCLUSIVE"),
        (("pass", "inconclusive", "fail"), "MISMATCH"),
    ],
)
def test_the_verdict(some: tuple[str, ...], verdict: str) -> None:
    assert verdict_of_items([item(state) for state in some]) == verdict


def test_people() -> None:
    roles = (
        Role(name="coordinator", person="alice", backup="erin"),
        Role(name="db-1", person="bob"),
        Role(name="db-2", person="nobody-knows"),
        Role(name="decision_owner", person="dana", only=(RunKind.LIVE,)),
    )
    book = runbook(step("a"), roles=roles)
    assert states(ask.people_of(book, RunKind.REHEARSAL)) == {"coordinator": "pass", "db-1": "warn", "db-2": "fail"}
    assert "decision_owner" in states(ask.people_of(book, RunKind.LIVE))


def test_who_signs_has_a_key() -> None:
    people = (replace(PEOPLE[0], ssh_key="ssh-ed25519 AAAA"), *PEOPLE[1:])
    book = runbook(step("a"), people=people, roles=(Role(name="coordinator", person="alice", backup="erin"),))
    book = replace(book, policy=Policy(signed_approvals=True))
    found = states(ask.people_of(book, RunKind.LIVE))
    assert found["erin"] == "fail"
    assert "alice" not in found


def commands(*argv: str, **more: Any) -> Runbook:
    return runbook(
        step("a", effect=Effect(action="command", arguments={"argv": list(argv), **more}), expect=(), rollback=None)
    )


def test_programs(tmp_path: Path) -> None:
    good, plain = tmp_path / "good.sh", tmp_path / "plain.txt"
    good.write_text("#!/bin/sh\n")
    good.chmod(0o755)
    plain.write_text("text")
    for argv, more, state in (
        (("sh", "-c", "true"), {}, "pass"),
        (("no-such-program-here",), {}, "fail"),
        ((str(good),), {}, "pass"),
        (("./good.sh",), {"cwd": str(tmp_path)}, "pass"),
        (("./good.sh",), {"cwd": str(tmp_path / "none")}, "fail"),
        (("./none.sh",), {"cwd": str(tmp_path)}, "fail"),
        ((str(plain),), {}, "fail"),  # not to be run
        (("sh",), {"env": {"PATH": str(tmp_path)}}, "fail"),
        (("good.sh",), {"env": {"PATH": str(tmp_path)}}, "pass"),
    ):
        found = list(ask.programs_of(commands(*argv, **more), RunKind.LIVE))
        assert [one.state for one in found] == [state], (argv, more, found)


def test_programs_of_rollbacks_probes_and_guards_are_looked_for_too() -> None:
    def gone(name: str) -> Check:
        return Check(action="command.exit", arguments={"argv": [f"gone-{name}"]})

    one = step("a", effect=None, kind=StepKind.GATE, expect=(gone("expect"),), reconcile=gone("reconcile"))
    one = replace(one, rollback=replace(one.rollback, verify=(gone("verify"),)))
    away = step("b", only=Applies(runs=(RunKind.LIVE,)), expect=(gone("live"),))
    guards = (guard_of("g", gone("guard"), 1.0, armed_in=("*",), on_fail="hold"),)
    book = runbook(one, away, guards=guards, rollback_when=(gone("when"),))
    found = states(ask.programs_of(book, RunKind.REHEARSAL))
    assert found == dict.fromkeys((f"gone-{n}" for n in ("expect", "reconcile", "verify", "guard", "when")), "fail")


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFLIGHT_THERE", "s3cret")
    monkeypatch.delenv("PREFLIGHT_GONE", raising=False)
    book = commands("sh", secrets=["PREFLIGHT_THERE", "PREFLIGHT_GONE"])
    found = list(ask.variables_of(book, RunKind.LIVE))
    assert states(found) == {"PREFLIGHT_THERE": "pass", "PREFLIGHT_GONE": "fail"}
    assert "s3cret" not in repr(found)


# -- what is asked ----------------------------------------------------------------------------------------------------


def world(**values: Any) -> Registry:
    made = World()
    made.values.update(values)
    return made.registry()


def value(name: str) -> Check:
    return Check(action="world.value", arguments={"name": name}, maximum=5)


def gate(id_: str, check: Check, **changes: Any) -> Any:
    return step(id_, kind=StepKind.GATE, effect=None, rollback=None, reconcile=None, expect=(check,), **changes)


def asked(book: Runbook, registry: Registry, *, everything: bool = False) -> dict[str, str]:
    questions = list(ask.questions_of(book, RunKind.REHEARSAL, everything=everything))
    return states(ask.asked(questions, registry, None))


def test_only_what_comes_before_an_act_has_to_pass_now() -> None:
    book = runbook(
        gate("first", value("low"), phase="p"), step("act", phase="p", needs=("first",)),
        gate("behind", value("high"), phase="q", needs=("act",)), gate("blind", value("none"), phase="q"),
    )  # fmt: skip
    registry = world(low=1.0, high=9.0)
    assert asked(book, registry) == {"first": "pass"}
    assert asked(book, registry, everything=True) == {"first": "pass", "behind": "warn", "blind": "inconclusive"}
    assert asked(book, world(low=9.0)) == {"first": "fail"}
    assert asked(book, world()) == {"first": "inconclusive"}
    assert asked(book, world(low=float("nan"))) == {"first": "inconclusive"}


def test_guards_armed_later_need_an_answer_only() -> None:
    def asking(id_: str, *phases: str) -> Guard:
        return guard_of(id_, value(id_), 1.0, armed_in=phases, on_fail="hold")

    guards = (asking("always", "*"), asking("soon", "p"), asking("later", "q"), asking("dark", "q"))
    book = runbook(step("a", phase="p"), step("b", phase="q"), guards=guards)
    found = asked(book, world(always=9.0, soon=9.0, later=9.0))
    assert found == {"always": "fail", "soon": "fail", "later": "warn", "dark": "inconclusive"}


def test_a_rule_that_calls_for_a_rollback_is_asked() -> None:
    book = runbook(step("a"), rollback_when=(value("errors"),))
    assert set(asked(book, world(errors=1.0)).values()) == {"pass"}
    assert set(asked(book, world()).values()) == {"inconclusive"}


def test_the_steady_state_of_a_case_is_asked() -> None:
    case = Case(priority="p0", tier="L", expectation="expected", bar="bar", steps={"steady": "s"})
    book = runbook(step("a", phase="p"), step("s", phase="q", needs=("a",)), case=case)
    assert asked(book, world()) == {"s": "fail"}


def test_nothing_is_changed() -> None:
    made = World()
    book = runbook(gate("a", Check(action="world.set", arguments={"name": "a"})), gate("b", is_set("a")))
    found = states(ask.asked(list(ask.questions_of(book, RunKind.REHEARSAL)), made.registry(), None))
    assert found == {"a": "inconclusive", "b": "fail"}
    assert made.done == []


# -- sinks, window ----------------------------------------------------------------------------------------------------


def test_sinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFLIGHT_HOOK", raising=False)
    log = Sink(name="log", kind="file", arguments={"path": str(tmp_path / "said.log")})
    hook = Sink(name="hook", kind="webhook", arguments={"url_env": "PREFLIGHT_HOOK"})
    bad = Sink(name="bad", kind="file", arguments={"path": str(tmp_path / "none" / "said.log")})
    assert states(ask.sinks_of((log, hook), "r", 1e9, announce=False)) == {"log": "pass", "hook": "fail"}
    assert not (tmp_path / "said.log").exists()
    assert states(ask.sinks_of((log, bad), "r", 1e9, announce=True)) == {"log": "pass", "bad": "fail"}
    assert "PREFLIGHT of r" in (tmp_path / "said.log").read_text()
    pager = Sink(name="pager", kind="command", arguments={"run": "no-such-pager --now"})
    assert states(ask.sinks_of((pager,), "r", 1e9, announce=False)) == {"pager": "fail"}
    monkeypatch.setenv("PREFLIGHT_HOOK", "https://127.0.0.1:9/services/t0ken")  # the discard port: nobody listens
    found = list(ask.sinks_of((hook,), "r", 1e9, announce=False))
    assert [one.state for one in found] == ["fail"]
    assert "t0ken" not in repr(found)


def test_a_test_message_to_the_terminal_leaves_the_answer_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert states(ask.sinks_of((Sink(name="t", kind="stdout"),), "r", 1e9, announce=True)) == {"t": "pass"}
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "PREFLIGHT of r" in shown.err


def test_the_window() -> None:
    book = runbook(step("a"), window=RunWindow(opens=1000.0, closes=2000.0))
    assert states(ask.window_of(book, RunKind.LIVE, 500.0)) == {"opens": "warn"}
    assert states(ask.window_of(book, RunKind.LIVE, 1500.0)) == {"is open": "pass"}
    assert states(ask.window_of(book, RunKind.LIVE, 2000.0)) == {"closes": "fail"}
    assert states(ask.window_of(book, RunKind.REHEARSAL, 5000.0)) == {}


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("MIGVERIFY_RUNS", "MIGVERIFY_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    write_small(tmp_path)
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = run(["runbook", "check", "small.yaml", "-e", "lab", "--json", *words])
    printed = json.loads(capsys.readouterr().out)
    return code, printed.get("preflight", printed["lint"])


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = told(capsys)
    assert (code, found["verdict"]) == (0, "MATCH")
    assert not (folder / "runs").exists()
    assert not (folder / "stopped").exists()
    code, found = told(capsys, "--kind", "live")
    assert (code, found["verdict"]) == (1, "MISMATCH")
    assert {one["name"] for one in found["items"] if one["part"] == "readiness" and one["state"] == "fail"} >= {
        "drills"
    }
    (folder / "stopped").touch()  # what `look` asks for is not so
    code, found = told(capsys)
    assert (code, found["verdict"]) == (1, "MISMATCH")
    assert [one["name"] for one in found["items"] if one["state"] == "fail"] == ["look"]
    capsys.readouterr()
    assert run(["runbook", "check", "small.yaml", "-e", "lab"]) == 1
    shown = capsys.readouterr().out
    assert "FAIL         look: command.exit: exit code 1" in shown
    assert shown.rstrip().splitlines()[-1].startswith("NO-GO: 1 fail")


def test_what_lint_refuses_is_not_asked_about(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_small(folder, STEPS.replace("reviewer: checker", "reviewer: dba", 1))
    code, found = told(capsys)
    assert code == 2
    assert found["refused"] == 1
    assert "items" not in found


def test_a_check_that_says_nothing_is_inconclusive(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_small(folder, STEPS.replace('run: "test ! -e stopped"}', "run: \"sh -c 'kill -9 $$'\"}", 1))
    code, found = told(capsys)
    assert (code, found["verdict"]) == (3, "INCONCLUSIVE")


def test_a_room_that_cannot_be_written_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "taken").write_text("a file")
    code, found = told(capsys, "--runs", "taken/runs")
    assert code == 1
    assert [one["part"] for one in found["items"] if one["state"] == "fail"] == ["room"]


def test_runs_that_are_not_over_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from migverify.runbook.definition.load import load_runbook
    from migverify.runbook.record.run_store import open_run_store

    book = load_runbook(folder / "small.yaml", {}, "lab")
    id_ = open_run_store("runs").create(book, RunKind.REHEARSAL, "alice").status.run
    code, found = told(capsys)
    assert code == 0
    assert (id_, "warn") in {(one["name"], one["state"]) for one in found["items"] if one["part"] == "runs"}


def test_offline_without_an_environment_shows_the_plan_of_each(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run(["runbook", "check", "small.yaml", "--offline"]) == 0
    shown = capsys.readouterr().out
    plans = [line for line in shown.splitlines() if "run of kind rehearsal in " in line]
    assert [line.rpartition(" ")[2] for line in plans] == ["lab", "prod"]
    assert shown.count("critical") >= 2, "each with the times of its steps"
    assert run(["runbook", "check", "small.yaml", "--offline", "--json"]) == 0
    assert "plan" not in json.loads(capsys.readouterr().out), "JSON has the plan of one environment: --environment"
    assert not (folder / "runs").exists()
