"""An effect that outlives its executor: it is waited for or named, and never taken for one that did not happen."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from migverify.errors import StoreError
from migverify.runbook.actions import builtin
from migverify.runbook.actions.action import Context, Outcome
from migverify.runbook.actions.builtin import built_in
from migverify.runbook.events import EventKind, RollbackState, RunState, StepState
from migverify.runbook.kinds import OnFail
from migverify.runbook.model import Failure
from migverify.runbook.record.process_lock import EffectFiles, at_work, process_lock
from migverify.runbook.record.run_store import RunStore
from migverify.runbook.run import machine
from tests.unit.runbook_effects import (
    begin,
    files_of,
    hook,
    hooked,
    killed_while,
    processes,
    rolled_back,
    settled,
    state_of,
    taken_over,
)
from tests.unit.runbook_runs import ALICE, CAROL, runbook
from tests.waiting import wait_for

WAIT = "while not Path({go!r}).exists():\n    print('x' * 10000); time.sleep(0.01)\n"


def two_parts(folder: Path) -> tuple[str, Path, Path, Path]:
    """Return a hook of two effects, between which it prints until it may go on."""
    first, go, second = folder / "first", folder / "go", folder / "second"
    code = f"Path({str(first)!r}).touch()\n{WAIT.format(go=str(go))}Path({str(second)!r}).touch()\n"
    return code, first, go, second


@pytest.mark.attack(
    "runbook", "The executor is killed between two effects of a hook, which prints meanwhile",
    "the hook goes on to its end and is waited for; its probe is asked then",
)  # fmt: skip
def test_a_hook_goes_on_when_its_executor_is_killed_and_is_waited_for(tmp_path: Path) -> None:
    code, first, go, second = two_parts(tmp_path)
    killed_while(tmp_path, hooked(code, second, first), first.exists)
    record, executor = taken_over(tmp_path)
    settled(record, executor, "a word about the hook", lambda: "still running" in record.status.steps["a"].alarms)
    assert state_of(record) is StepState.UNKNOWN
    note = next(one for one in record.journal.events() if one.data.get("alarm") == "still running")
    assert all(f"(process {pid})" in note.data["text"] for pid in processes(files_of(tmp_path)))
    go.touch()
    settled(record, executor, "the review", lambda: state_of(record) is StepState.AWAITING_REVIEW)
    rolled_back(record, executor)
    assert record.status.state is RunState.ROLLED_BACK
    assert not first.exists()
    assert not second.exists()


@pytest.mark.parametrize("on_fail", [OnFail.STOP, OnFail.ROLLBACK])
@pytest.mark.attack(
    "runbook", "Executor and hook are killed between two effects, and the probe of the second says no",
    "the rollback stays armed and takes the first back; without it the run is not clean",
)  # fmt: skip
def test_half_an_effect_can_be_taken_back_although_its_probe_says_no(tmp_path: Path, on_fail: OnFail) -> None:
    code, first, _, second = two_parts(tmp_path)
    killed_while(
        tmp_path, hooked(code, second, first, on_fail=Failure(unbounded=on_fail)), first.exists, all_of_it=True
    )
    record, executor = taken_over(tmp_path)
    if on_fail is OnFail.STOP:
        settled(record, executor, "the hold", lambda: record.status.state is RunState.HELD)
        assert record.status.steps["a"].rollback is RollbackState.ARMED
        assert "does not verify" in record.status.steps["a"].reason
        assert machine.abort_state(record.status) is RunState.ABORTED_DIRTY
        rolled_back(record, executor)
    settled(record, executor, "the end", lambda: record.status.over)
    assert record.status.state in (RunState.ROLLED_BACK, RunState.ABORTED_CLEAN)
    assert not first.exists()


def test_an_effect_of_which_no_part_happened_needs_no_rollback(tmp_path: Path) -> None:
    go, done = tmp_path / "go", tmp_path / "done"
    begun = tmp_path / "begun"
    code = f"Path({str(begun)!r}).touch()\n{WAIT.format(go=str(go))}Path({str(done)!r}).touch()\n"
    killed_while(tmp_path, hooked(code, done), begun.exists, all_of_it=True)
    record, executor = taken_over(tmp_path)
    settled(record, executor, "the hold", lambda: record.status.state is RunState.HELD)
    assert record.status.steps["a"].rollback is RollbackState.NONE_NEEDED
    assert machine.abort_state(record.status) is RunState.ABORTED_CLEAN


@pytest.mark.parametrize("way", ["setsid", "double fork without handles"])
@pytest.mark.attack(
    "runbook", "A hook ends at once and leaves a daemon at work, in a session of its own, its handles closed",
    "the step is not done before the daemon has ended; a killed executor's successor waits for it too",
)  # fmt: skip
def test_a_daemon_of_a_hook_is_waited_for(tmp_path: Path, way: str) -> None:
    begun, go, done = tmp_path / "begun", tmp_path / "go", tmp_path / "done"
    work = f"Path({str(begun)!r}).touch()\n{WAIT.format(go=str(go))}Path({str(done)!r}).touch()\n"
    inner = hook(work.replace("print('x' * 10000); ", ""))
    if way == "setsid":
        code = f"subprocess.Popen({inner!r}, start_new_session=True)"
    else:
        code = f"""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 256)
        os.execv({inner[0]!r}, {inner!r})
    os._exit(0)
"""
    record, executor = begin(tmp_path / "live", runbook(hooked(code, done)))
    wait_for(lambda: (executor.tick(), begun.exists())[1], "the daemon")
    for _ in range(50):
        executor.tick()
    assert state_of(record) is StepState.RUNNING
    go.touch()
    settled(record, executor, "the review", lambda: state_of(record) is StepState.AWAITING_REVIEW)
    for path in (begun, go, done):
        path.unlink()
    killed_while(tmp_path, hooked(code, done), begun.exists, helper_alone=True)
    record, executor = taken_over(tmp_path)
    settled(record, executor, "a word about it", lambda: "still running" in record.status.steps["a"].alarms)
    go.touch()
    settled(record, executor, "the review", lambda: state_of(record) is StepState.AWAITING_REVIEW)


def test_a_daemon_beyond_the_time_limit_is_named_and_holds_the_run_for_two(tmp_path: Path) -> None:
    go, done = tmp_path / "go", tmp_path / "done"
    inner = hook(f"Path({str(done)!r}).touch()\nwhile not Path({str(go)!r}).exists():\n    time.sleep(0.01)")
    code = f"subprocess.Popen({inner!r}, start_new_session=True)"
    record, executor = begin(tmp_path, runbook(hooked(code, done, timeout=3.0)))
    settled(record, executor, "doubt", lambda: state_of(record) is StepState.UNKNOWN)
    pid = next(pid for pid in processes(files_of(tmp_path)))
    assert f"(process {pid})" in record.status.steps["a"].reason
    settled(record, executor, "the hold", lambda: record.status.state is RunState.HELD)
    assert any(f"(process {pid})" in why for why in record.status.hold_reasons)
    go.touch()
    settled(record, executor, "the probe's answer", lambda: state_of(record) is StepState.AWAITING_REVIEW)


def test_a_service_that_is_meant_to_go_on_is_not_waited_for(tmp_path: Path) -> None:
    go, done = tmp_path / "go", tmp_path / "done"
    # It ends with the folder of the test, too, which may be gone before it looks again.
    inner = hook(f"while not Path({str(go)!r}).exists() and Path({str(tmp_path)!r}).exists():\n    time.sleep(0.01)")
    code = f"""
subprocess.Popen({inner!r}, start_new_session=True, env={{**os.environ, 'MIGVERIFY_EFFECT': 'service'}})
Path({str(done)!r}).touch()"""
    record, executor = begin(tmp_path, runbook(hooked(code, done)))
    settled(record, executor, "the review", lambda: state_of(record) is StepState.AWAITING_REVIEW)
    go.touch()


_NESTED = """
import time
from pathlib import Path
from tests.unit.runbook_effects import begin, hook, hooked
from tests.unit.runbook_runs import runbook

folder = Path({folder!r})
code = f"Path({{str(folder / 'begun')!r}}).touch()\\n"
code += f"while not Path({{str(folder / 'go')!r}}).exists() and Path({{str(folder)!r}}).exists(): time.sleep(0.01)"
_, executor = begin(folder / "nested", runbook(hooked(code, folder / "nobody")))
while True:
    executor.tick()
    time.sleep(0.01)
"""


def nested_run(folder: Path, outer: str) -> str:
    """Return a hook that starts a run with an effect of its own, and ends once that is under way."""
    program = [sys.executable, "-c", _NESTED.format(folder=str(folder))]
    environment = f"{{**os.environ, 'PYTHONPATH': {os.pathsep.join(sys.path)!r}, **{outer}}}"
    return f"""
program = subprocess.Popen({program!r}, start_new_session=True, env={environment})
Path({str(folder / "pid")!r}).write_text(str(program.pid))
while not Path({str(folder / "begun")!r}).exists():
    time.sleep(0.01)
Path({str(folder / "done")!r}).touch()
"""


def end_nested(folder: Path) -> None:
    """End a nested run and its effect."""
    with suppress(ProcessLookupError):
        os.kill(int((folder / "pid").read_text()), signal.SIGKILL)
    (folder / "go").touch()


@pytest.mark.parametrize("killed", [False, True])
def test_a_run_that_an_effect_starts_as_a_service_does_not_hold_the_effect_by_its_own(
    tmp_path: Path, killed: bool
) -> None:
    """The effect of the inner run is a descendant, and one that the outer effect adopts when its executor is killed."""
    code = nested_run(tmp_path, "{'MIGVERIFY_EFFECT': 'service'}")
    if killed:
        code += f"os.kill(program.pid, 9)\n{WAIT.format(go=str(tmp_path / 'end'))}"
    record, executor = begin(tmp_path, runbook(hooked(code, tmp_path / "done", timeout=15.0)))
    try:
        wait_for(lambda: (executor.tick(), (tmp_path / "done").exists())[1], "the nested effect")
        inner = processes(files_of(tmp_path / "nested"))
        assert len(inner) >= 2
        assert not set(inner) & set(processes(files_of(tmp_path)))
        (tmp_path / "end").touch()
        settled(record, executor, "the review", lambda: state_of(record) is StepState.AWAITING_REVIEW)
        assert EventKind.UNKNOWN not in {one.kind for one in record.journal.events()}, "it was not waited for"
        assert processes(files_of(tmp_path / "nested")), "the nested effect goes on"
    finally:
        end_nested(tmp_path)


def test_a_nested_effect_is_waited_for_although_the_executor_of_its_run_is_killed(tmp_path: Path) -> None:
    """It has the marks of both effects."""
    record, executor = begin(tmp_path, runbook(hooked(nested_run(tmp_path, "{}"), tmp_path / "done")))
    try:
        wait_for(lambda: (executor.tick(), (tmp_path / "done").exists())[1], "the nested effect")
        inner = processes(files_of(tmp_path / "nested"))
        assert len(inner) >= 2
        assert set(inner) <= set(processes(files_of(tmp_path)))
    finally:
        with suppress(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    for _ in range(50):
        executor.tick()
    assert state_of(record) is StepState.RUNNING
    (tmp_path / "go").touch()
    settled(record, executor, "the review", lambda: state_of(record) is StepState.AWAITING_REVIEW)


@pytest.mark.attack(
    "runbook", "The process that carries an effect out is killed alone",
    "the effect is in doubt, not failed; its program is waited for before the probe is asked",
)  # fmt: skip
def test_an_effect_whose_process_is_killed_is_in_doubt(tmp_path: Path) -> None:
    code, first, go, second = two_parts(tmp_path)
    record, executor = begin(tmp_path, runbook(hooked(code, second, first)))
    wait_for(lambda: (executor.tick(), first.exists())[1], "the first part")
    for pid in processes(files_of(tmp_path)):
        if b"effect_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    settled(record, executor, "doubt", lambda: state_of(record) is StepState.UNKNOWN)
    go.touch()
    settled(record, executor, "the review", lambda: state_of(record) is StepState.AWAITING_REVIEW)
    assert EventKind.FAILED not in {one.kind for one in record.journal.events()}


def test_nothing_is_undone_while_a_part_of_the_effect_still_runs(tmp_path: Path) -> None:
    code, first, go, second = two_parts(tmp_path)
    killed_while(tmp_path, hooked(code, second, first), first.exists)
    record, executor = taken_over(tmp_path)
    settled(record, executor, "a word about the hook", lambda: "still running" in record.status.steps["a"].alarms)
    for actor in (ALICE, CAROL):  # two persons say what is not so
        record.submit(lambda s, n, a=actor: machine.decide(s, a, "a", n, "we looked", happened=True))  # type: ignore[misc]
    record.submit(lambda s, n: machine.rollback(s, ALICE, n, "back"))
    for _ in range(50):
        executor.tick()
    assert record.status.steps["a"].rollback is RollbackState.ARMED
    go.touch()
    settled(record, executor, "the end", lambda: record.status.over)
    assert not second.exists()


def context(folder: Path, **more: object) -> Context:
    return Context("r1", "a", 1, 1, 60.0, threading.Event(), folder, **more)  # type: ignore[arg-type]


@pytest.mark.attack(
    "runbook", "A hook prints 200 MB",
    "it runs to its end; its output is cut on the disk while it grows, and its last 16 KiB are kept",
)  # fmt: skip
def test_what_a_hook_prints_does_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    largest = [0]
    bound = builtin._Output.bound

    def watched(self: builtin._Output) -> None:
        bound(self)
        largest[0] = max(largest[0], os.fstat(self.fileno()).st_size)

    monkeypatch.setattr(builtin._Output, "bound", watched)
    # Slow enough that the looks come in between, whatever else the machine does.
    code = "for n in range(200):\n    print('x' * 1_000_000)\n    time.sleep(0.01)\nprint('the end')"
    result = built_in().run("command", {"argv": hook(code)}, context(tmp_path))
    assert result.outcome is Outcome.OK
    assert result.evidence["stdout"].endswith("the end\n")
    assert len(result.evidence["stdout"]) == builtin.KEPT_BYTES
    assert result.evidence["stdout_bytes"] > 100_000_000
    assert largest[0] <= builtin._OUTPUT_BYTES


@pytest.mark.attack(
    "runbook", "A hook prints every password of the environment, and looks for more of it",
    "it gets what programs need and the secrets it names; no password shows in the evidence",
)  # fmt: skip
def test_a_hook_gets_a_minimal_environment_and_shows_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_DB_PASSWORD", "sesame-4711")
    monkeypatch.setenv("CLOUD_CREDENTIALS_FILE", "/home/alice/cloud.json")
    monkeypatch.setenv("PLAIN_TOKEN", "tok-99-named")
    monkeypatch.setenv("MIGVERIFY", "python -m migverify")  # what the hooks of the lab run
    code = f"print(sorted(os.environ)); print(Path('/proc/{os.getpid()}/environ').read_bytes()); print('sesame-4711')"
    from migverify.secrets import remember_environment

    remember_environment()
    result = built_in().run("command", {"argv": hook(code), "secrets": ["PLAIN_TOKEN"]}, context(tmp_path))
    assert result.outcome is Outcome.OK
    names = result.evidence["stdout"].splitlines()[0]
    assert "PLAIN_TOKEN" in names
    assert "'PATH'" in names
    assert "'MIGVERIFY'" in names
    assert "SHOP_DB_PASSWORD" not in names
    assert "CLOUD_CREDENTIALS_FILE" not in names
    assert "sesame-4711" not in repr(result)
    assert "tok-99-named" not in repr(result)


@pytest.mark.attack(
    "runbook", "A symbolic link is put where a run keeps its lock, its record or its journal",
    "it is refused, and the file behind it is untouched",
)  # fmt: skip
@pytest.mark.parametrize("what", ["lock", "record"])
def test_a_link_in_the_place_of_a_runs_file_is_refused(tmp_path: Path, what: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    code, _, _, second = two_parts(tmp_path)
    record, executor = begin(tmp_path, runbook(hooked(code, second)))
    files = files_of(tmp_path)
    files.lock.parent.mkdir()
    getattr(files, what).symlink_to(victim)
    settled(record, executor, "an end of the step", lambda: state_of(record) is not StepState.RUNNING)
    assert state_of(record) is StepState.UNKNOWN
    assert "symbolic link" in record.status.steps["a"].reason
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("name", ["runs.db", "runs.db-wal"])
def test_a_link_in_the_place_of_a_store_of_runs_is_not_written_through(tmp_path: Path, name: str) -> None:
    record, _ = begin(tmp_path, runbook(hooked("", tmp_path / "done")))
    record.journal.database.engine.dispose()
    path, victim = tmp_path / "runs" / name, tmp_path / "victim"
    content = path.read_bytes() if path.exists() else b""
    path.unlink(missing_ok=True)
    victim.write_bytes(content)
    path.symlink_to(victim)
    with pytest.raises(StoreError, match="symbolic link"):
        RunStore(tmp_path / "runs").open("r1")
    assert victim.read_bytes() == content


def test_a_lock_that_cannot_be_read_is_something_at_work(tmp_path: Path) -> None:
    files = EffectFiles(tmp_path, "a", 1)
    with process_lock(files):
        pass
    assert at_work(files) == []
    files.lock.unlink()
    files.lock.symlink_to(tmp_path / "elsewhere")
    assert "unknown" in at_work(files)[0]
