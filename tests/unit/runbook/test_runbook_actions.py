"""Actions: programs without a shell, bounded, without secrets; checks that pass only by a value within bounds."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.errors import UsageError
from migverify.runbook.actions.action import (
    Action,
    ActionKind,
    ActionResult,
    CheckOutcome,
    Context,
    Outcome,
    ask,
    judge,
)
from migverify.runbook.actions.builtin import KEPT_BYTES, built_in
from migverify.runbook.actions.registry import full_registry
from migverify.runbook.model import Check
from migverify.runbook.run.working import ask_all, verdict_of

REGISTRY = built_in()


def context(timeout: float = 20.0, **changes: Any) -> Context:
    return Context("r1", "a", 2, 7, timeout, changes.pop("canceled", threading.Event()), **changes)


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def run(name: str, timeout: float = 20.0, **arguments: Any) -> ActionResult:
    return REGISTRY.run(name, arguments, context(timeout))


def test_a_command_is_no_shell_and_is_told_where_it_runs() -> None:
    code = "import os,sys; print(sys.argv[1], *[os.environ['MIGVERIFY_'+n] for n in ('RUN','STEP','ATTEMPT','EPOCH')])"
    result = run("command", argv=python(code, "$(id); *"))
    assert result.outcome is Outcome.OK
    assert result.evidence["stdout"].strip() == "$(id); * r1 a 2 7"


def test_an_exit_code_is_a_failure_with_its_last_words() -> None:
    result = run("command", argv=python("import sys; print('no such table', file=sys.stderr); sys.exit(3)"))
    assert (result.outcome, result.value) == (Outcome.FAILED, 3)
    assert result.text == "exit code 3: no such table"


def test_a_program_that_is_not_there_is_a_failure() -> None:
    assert run("command", argv=["/no/such/program"]).outcome is Outcome.FAILED
    assert "cannot be started" in run("command", argv=["/no/such/program"]).text
    assert run("command", argv=[]).outcome is Outcome.FAILED


def test_a_program_is_ended_with_its_children_at_its_time(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    child = f"import time; time.sleep(1.5); open({str(mark)!r}, 'w')"
    code = f"import subprocess,sys,time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)"
    assert run("command", 0.6, argv=python(code)).outcome is Outcome.TIMED_OUT
    time.sleep(1.5)
    assert not mark.exists()


def test_a_program_ends_when_nobody_waits_for_it() -> None:
    canceled = threading.Event()
    threading.Timer(0.2, canceled.set).start()
    result = REGISTRY.run("command", {"argv": python("import time; time.sleep(60)")}, context(canceled=canceled))
    assert result.outcome is Outcome.CANCELED


def test_what_a_program_prints_is_bounded() -> None:
    result = run("command", argv=python("print('x' * 1000000)"))
    assert len(result.evidence["stdout"]) == KEPT_BYTES
    assert result.evidence["stdout_bytes"] == 1000001
    assert run("command.output", argv=python("print('x' * 1000000)")).outcome is Outcome.NO_DATA


def test_secrets_of_a_command_show_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FREEZE_TOKEN", "tok-4711-sesame")
    code = "import os,sys; t=os.environ['FREEZE_TOKEN']; print(t); print('bad', t, file=sys.stderr); sys.exit(1)"
    result = run("command", argv=python(code), secrets=["FREEZE_TOKEN"])
    assert result.outcome is Outcome.FAILED
    assert "sesame" not in repr(result)
    assert "sesame" not in repr(
        run("command.output", argv=python(code.replace("exit(1)", "exit(0)")), secrets=["FREEZE_TOKEN"])
    )
    missing = run("command", argv=python("1"), secrets=["NO_SUCH_TOKEN"])
    assert missing.outcome is Outcome.FAILED
    assert "NO_SUCH_TOKEN" in missing.text


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "argv is missing"), ({"argv": "ls"}, "argv has to be a list"), ({"argv": ["a", 1]}, "to be a list"),
        ({"argv": ["a"], "shell": True}, "argument shell"), ({"argv": ["a"], "env": {"A": 1}}, "env has to be a map"),
    ],
)  # fmt: skip
def test_arguments_are_checked(arguments: dict[str, Any], why: str) -> None:
    result = REGISTRY.run("command", arguments, context())
    assert result.outcome is Outcome.FAILED
    assert why in result.text


def test_names_are_known_once() -> None:
    with pytest.raises(UsageError, match="no action is named"):
        REGISTRY.find("comand")
    with pytest.raises(UsageError, match="two actions"):
        built_in().register(Action("wait", ActionKind.CHECK, "", (), lambda _a, _c: ActionResult(Outcome.OK, "")))


def answered(check: Check, *, timeout: float = 20.0) -> CheckOutcome:
    return ask(REGISTRY, check, context(timeout))


def test_checks_of_commands() -> None:
    ends = {"argv": python("import sys; sys.exit(4)")}
    assert answered(Check(action="command.exit", arguments=ends)).state == "fail"
    assert answered(Check(action="command.exit", arguments=ends, equals="4")).state == "pass"
    assert answered(Check(action="command.exit", arguments={"argv": python("1")})).state == "pass"
    assert answered(Check(action="command.exit", arguments={"argv": ["/no/such"]})).state == "inconclusive"
    killed = {"argv": python("import os; os.kill(os.getpid(), 9)")}
    assert answered(Check(action="command.exit", arguments=killed, minimum=-100)).state == "inconclusive"
    assert answered(Check(action="command.output", arguments={"argv": python("print(7)")}, maximum=7)).state == "pass"
    assert answered(Check(action="command.output", arguments={"argv": python("print(7.5)")}, maximum=7)).state == "fail"
    assert (
        answered(Check(action="command.output", arguments={"argv": python("print('frozen')")}, equals="frozen")).state
        == "pass"
    )
    assert (
        answered(Check(action="command.output", arguments={"argv": python("print('x')")}, maximum=7)).state
        == "inconclusive"
    )
    for nothing in ("1", "print('nan')", "import sys; print(1); sys.exit(1)"):
        assert (
            answered(Check(action="command.output", arguments={"argv": python(nothing)}, maximum=7)).state
            == "inconclusive"
        )


def test_an_effect_is_never_asked_as_a_check(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    assert answered(Check(action="command", arguments={"argv": ["touch", str(mark)]})).state == "inconclusive"
    assert not mark.exists()


def test_an_action_that_breaks_is_an_outcome() -> None:
    def broken(_arguments: Any, _context: Context) -> ActionResult:
        raise ZeroDivisionError("oops")

    registry = built_in()
    registry.register(Action("broken", ActionKind.CHECK, "", (), broken))
    assert ask(registry, Check(action="broken", maximum=1), context()).state == "inconclusive"
    assert registry.run("broken", {}, context()).text == "ZeroDivisionError: oops"


BAD = st.sampled_from([Outcome.FAILED, Outcome.NO_DATA, Outcome.TIMED_OUT, Outcome.CANCELED])
BOUND = st.none() | st.floats(allow_nan=True, allow_infinity=True)


@given(
    st.floats(allow_nan=True) | st.text(max_size=5) | st.booleans() | st.none(),
    BOUND,
    BOUND,
    st.none() | st.text(max_size=5),
)
def test_a_pass_means_that_every_bound_holds(
    value: Any, low: float | None, high: float | None, equal: str | None
) -> None:
    check = Check(action="x", arguments={}, minimum=low, maximum=high, equals=equal)
    state = judge(check, ActionResult(Outcome.OK, "", value)).state
    if state != "pass":
        return
    assert value is not None
    assert value == value
    if low is not None or high is not None:
        number = float(value)
        assert low is None or number >= low
        assert high is None or number <= high
    elif equal is None:
        assert value is True


@given(BAD, BOUND, st.floats() | st.text())
def test_an_outcome_other_than_ok_never_passes(outcome: Outcome, high: float | None, value: Any) -> None:
    assert (
        judge(Check(action="x", arguments={}, minimum=None, maximum=high), ActionResult(outcome, "", value)).state
        == "inconclusive"
    )


def test_waits_end_in_time_or_when_canceled() -> None:
    assert run("wait", seconds=0.01).outcome is Outcome.OK
    assert run("wait", 1.0, seconds=60).outcome is Outcome.FAILED
    canceled = threading.Event()
    canceled.set()
    assert REGISTRY.run("wait", {"seconds": 5}, context(canceled=canceled)).outcome is Outcome.CANCELED


def test_a_check_must_hold_without_a_break() -> None:
    values = iter([1.0, 9.0] + [1.0] * 100000)
    registry = built_in()
    registry.register(
        Action("lag", ActionKind.CHECK, "", (), lambda _a, _c: ActionResult(Outcome.OK, "", next(values)))
    )
    check = Check(action="lag", maximum=5, for_seconds=0.3)
    (answer,) = ask_all(registry, [check], lambda _check: context(), threading.Event(), 20.0)
    assert answer.state == "pass"
    bad = Check(action="lag", minimum=5, for_seconds=0.3)
    (answer,) = ask_all(registry, [bad], lambda _check: context(), threading.Event(), 0.2)
    assert answer.state == "fail"
    (answer,) = ask_all(
        registry, [Check(action="lag", maximum=5, for_seconds=60)], lambda _c: context(), threading.Event(), 0.2
    )
    assert answer.state == "inconclusive"
    assert "of 60 s" in answer.text


def test_no_answers_are_inconclusive() -> None:
    assert verdict_of([]) == "inconclusive"
    assert verdict_of([CheckOutcome("", "pass", ""), CheckOutcome("", "inconclusive", "")]) == "inconclusive"
    assert verdict_of([CheckOutcome("", "fail", ""), CheckOutcome("", "inconclusive", "")]) == "fail"


def test_a_command_of_migverify_is_believed_only_when_code_and_text_agree(tmp_path: Path) -> None:
    check = Check(
        action="migverify", arguments={"arguments": ["tables", "verify", "--config", str(tmp_path / "none.yaml")]}
    )
    answer = ask(full_registry(), check, context(60))
    assert answer.state == "inconclusive"
    assert answer.evidence["exit"] == 2


def test_sql_without_a_configuration_or_on_a_source_does_nothing(tmp_path: Path) -> None:
    assert "needs a migverify.yaml" in run("sql", endpoint="target", sql="SELECT 1").text
    path = tmp_path / "migverify.yaml"
    path.write_text("source: {host: 127.0.0.1, port: 1, user: u}\ntarget: {host: 127.0.0.1, port: 1, user: u}\n"
                    "tables: {include: ['a.*']}\n")  # fmt: skip
    result = REGISTRY.run("sql", {"endpoint": "source", "sql": "DELETE FROM t"}, context(config=path))
    assert result.outcome is Outcome.FAILED
    assert "never written" in result.text
