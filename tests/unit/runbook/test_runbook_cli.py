"""``migverify runbook``: a drill of several persons through commands, beside an executor in a process of its own."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from migverify.cli.main import run
from migverify.runbook import people
from migverify.runbook.events import RunState, StepState
from migverify.runbook.record import signatures
from migverify.runbook.record.run_store import RunStore, open_run_store
from migverify.runbook.run.ending import RunExit, exit_of
from migverify.runbook.state import RunStatus
from tests.unit.runbook_places import data_of, rewrite
from tests.unit.runbook_small import HEAD, STEPS, write_small
from tests.waiting import wait_for

ROOT = Path(__file__).parents[3]


def ended(process: subprocess.Popen[Any]) -> int:
    """Return the exit code of a process, when it has ended."""
    wait_for(lambda: process.poll() is not None, f"the end of {process.args}", every=0.05)
    return process.returncode


class Drill:
    """A run in a folder: its executor is a process, its people are commands."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.processes: list[subprocess.Popen[str]] = []
        self.run: str | None = None

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start an executor; without arguments it begins the small runbook."""
        words = arguments or ("small.yaml", "-e", "lab", "--as", "alice")
        log = (self.folder / f"run-{len(self.processes)}.out").open("w")
        process = subprocess.Popen(
            [sys.executable, "-m", "migverify", "runbook", "run", *words], stdout=log, stderr=log, text=True,
            cwd=self.folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        self.processes.append(process)
        return process

    def begin(self) -> subprocess.Popen[str]:
        process = self.start()
        self.until(lambda s: bool(s.executor))
        return process

    @property
    def status(self) -> RunStatus:
        return open_run_store("runs").open(self.run or "last").status

    def until(self, condition: Callable[[RunStatus], bool]) -> RunStatus:
        def holds() -> RunStatus | None:
            driven = not self.processes or any(one.poll() is None for one in self.processes)  # before it is looked at
            status = self.status if open_run_store("runs").ids() else None
            if status is not None and condition(status):
                return status
            assert driven, f"nobody drives it any more: it will not come: {self.told()}"
            return None

        found: RunStatus = wait_for(holds, "what the run was to come to", every=0.05)
        return found

    def reaches(self, step: str, state: StepState) -> None:
        self.until(lambda status: status.steps[step].state is state)

    def says(self, *words: str) -> tuple[int, str]:
        """Have a person type a command; returns exit code, and what was printed on both streams."""
        self._capsys.readouterr()
        code = run(["runbook", *words])
        shown = self._capsys.readouterr()
        return code, shown.out + shown.err

    def do(self, *words: str) -> str:
        code, shown = self.says(*words)
        assert code == 0, shown
        return shown

    def play(self, step: str) -> None:
        """Have a step that runs by itself called, started, carried out and accepted."""
        self.do("ack", "--yes", step, "--as", "alice")
        if step == "freeze":
            self.do("approve", step, "--as", "carol")
        self.do("ack", "--yes", step, "--as", "bob")
        self.reaches(step, StepState.AWAITING_REVIEW)
        self.do("ack", "--yes", step, "--as", "carol")

    def told(self, number: int = -1) -> str:
        files = sorted(self.folder.glob("run-*.out"))
        return files[number].read_text() if files else ""


@pytest.fixture
def drill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Drill]:
    monkeypatch.chdir(tmp_path)
    for name in ("MIGVERIFY_RUNS", "MIGVERIFY_PERSON", "MIGVERIFY_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    write_small(tmp_path)
    made = Drill(tmp_path, capsys)
    yield made
    for process in made.processes:
        if process.poll() is None:
            process.kill()
        process.wait()


def test_three_persons_drill_to_the_end(drill: Drill) -> None:
    executor = drill.begin()
    drill.until(lambda _s: "-> alice: migverify runbook ack look --as alice" in drill.told())
    drill.play("look")
    shown = drill.do("ack", "--yes", "freeze", "--as", "al")  # an alias of alice
    assert "next carol: migverify runbook ack freeze --as carol" in shown
    code, shown = drill.says("ack", "--yes", "freeze", "--as", "bob")
    assert code == 2
    assert "nothing at freeze waits for `ack` by bob\n  carol: migverify runbook ack freeze --as carol" in shown
    assert "next bob: migverify runbook ack freeze --as bob" in drill.do("approve", "freeze", "--as", "carol")
    drill.do("ack", "--yes", "freeze", "--as", "bob")
    drill.reaches("freeze", StepState.AWAITING_REVIEW)
    shown = drill.do("status", "--step", "freeze")
    assert "$ touch stopped" in shown
    digest = shown.rpartition("hash of step and evidence: ")[2].strip()
    drill.do("ack", "--yes", "freeze", "--as", "carol", "--seen", digest[:12])
    drill.do("ack", "--yes", "go", "--as", "alice")
    drill.do("ack", "--yes", "go", "--as", "dana")
    drill.do("approve", "go", "all green", "--as", "dana", "--evidence", "gates=12", "--file", "small.yaml")
    drill.reaches("go", StepState.AWAITING_REVIEW)
    drill.do("ack", "--yes", "go", "--as", "carol")
    drill.do("handover", "coordinator", "alice does not answer", "--as", "bob")
    drill.do("handover", "coordinator", "alice does not answer", "--as", "dana")
    drill.do("ack", "--yes", "open", "--as", "erin")  # the backup
    drill.do("ack", "--yes", "open", "--as", "bob")
    drill.do("ack", "--note", "open", "looking for it", "--as", "bob")
    code, shown = drill.says("ack", "--yes", "open", " ", "--as", "bob")
    assert (code, "say what shows that it is done" in shown) == (2, True)
    (drill.folder / "stopped").unlink()
    drill.do("ack", "--yes", "open", "the file is gone", "--as", "bob")
    drill.reaches("open", StepState.AWAITING_REVIEW)
    drill.do("ack", "--yes", "open", "--as", "carol")
    assert ended(executor) == RunExit.COMPLETED
    told = drill.told()
    assert "completed: run " in told
    assert "four-eyes was not enforced" in told
    files = drill.status.steps["go"].evidence[0]["evidence"]["files"]
    assert [(one["name"], one["bytes"]) for one in files] == [("small.yaml", len(HEAD + STEPS))]
    assert drill.says("status", "--run", "last", "--wait", "5")[0] == 0
    assert drill.says("report", "--verify")[0] == 0


REFUSED = (
    (("ack", "--yes", "look", "--as", "bob"), "nothing at look waits for `ack` by bob"),
    (("ack", "--yes", "look", "--as", "al"), "nothing at look waits for `ack` by alice"),
    (("ack", "--yes", "look", "--as", "Carol"), "'Carol' is none of the runbook's people"),
    (("ack", "--yes", "look", "--as", "c\u0430rol"), "is none of the runbook's people"),
    (("ack", "--yes", "look", "--as", "mallory"), "They are alice, bob, carol, dana, erin"),
    (("ack", "--yes", "look"), "Say who you are: --as PERSON, or MIGVERIFY_PERSON=PERSON."),
    (("ack", "--yes", "look", "--as", "carol", "--seen", "0000"), "the evidence is not what you saw"),
    (("ack", "--yes", "luck", "--as", "carol"), "there is no step luck"),
    (("ack", "--yes", "freeze", "--as", "bob"), "nothing at freeze waits for `ack` by bob"),
    (("retry", "look", "--as", "bob"), "look: the step is awaiting review"),
    (("ack", "--yes", "look", "x", "--as", "bob", "--evidence", "x"), "--evidence x: this is no KEY=VALUE"),
    (("ack", "--yes", "look", "x", "--as", "bob", "--file", "none.png"), "--file none.png: cannot be read"),
    (("waive", "look", "x", "--as", "alice"), "look: the step is awaiting review"),
    (("waive", "look", "--as", "alice", "--happened"), "REASON"),
    (("abort", "x", "--as", "bob"), "bob may not end the run"),
    (("hold", " ", "--as", "bob"), "say why the run is held"),
    (("resume", "--as", "alice"), "the run is not held"),
    (("rollback", "x", "--as", "alice"), "there is nothing to undo"),
    (("handover", "--takeover", "x", "--as", "bob", "--run", "../x"), "is not an id of a run"),
    (("ack", "--yes", "freeze", "--as", "alice", "--runs", "elsewhere"), "no run in elsewhere is under way"),
)


def test_refused(drill: Drill) -> None:
    begin_alone(drill)
    drill.do("ack", "--yes", "look", "--as", "alice")
    drill.do("ack", "--yes", "look", "--as", "bob")
    drive_alone(drill)
    before = drill.status.seq
    for words, why in REFUSED:
        code, shown = drill.says(*words)
        assert (code, why in shown) == (2, True), f"{words}: {shown}"
        assert drill.status.seq == before, words


def begin_alone(drill: Drill, kind: str = "rehearsal") -> None:
    """Begin a run that nobody drives."""
    from migverify.runbook.definition.load import load_runbook
    from migverify.runbook.kinds import RunKind

    book = load_runbook(drill.folder / "small.yaml", {}, "lab")
    drill.run = open_run_store("runs").create(book, RunKind(kind), "alice").status.run


def drive_alone(drill: Drill) -> None:
    """Drive the run here until nothing moves and nothing is under way."""
    from migverify.runbook.actions.builtin import built_in
    from migverify.runbook.record.lease import take
    from migverify.runbook.run.executor import Executor

    record = open_run_store("runs").open(drill.run or "last")
    keeper = take(record, "alice")
    executor, quiet = Executor(record, built_in(), keeper), 0
    executor.recover()
    while quiet < 3:
        moved = executor.tick()
        quiet = 0 if moved or len(executor.bench) else quiet + 1
        time.sleep(0.01)
        if record.status.over:
            return
    keeper.end(record)


def test_without_an_executor_the_next_thing_is_one(drill: Drill) -> None:
    begin_alone(drill)
    shown = drill.do("ack", "--yes", "look", "--as", "alice")
    assert f"next anybody: migverify runbook run --as alice --run {drill.run}" in shown


def test_two_runs_that_are_not_over_have_to_be_named(drill: Drill) -> None:
    begin_alone(drill)
    first = drill.run
    begin_alone(drill)
    code, shown = drill.says("ack", "--yes", "look", "--as", "alice")
    assert code == 2
    assert "2 runs in runs are not over" in shown
    shown = drill.do("ack", "--yes", "look", "--as", "alice", "--run", str(first))
    assert f"next bob: migverify runbook ack look --as bob --run {first}" in shown
    drill.do("ack", "--yes", "look", "--as", "alice", "--run", "last")


def test_what_two_have_to_say_is_told_to_the_first(drill: Drill) -> None:
    steps = STEPS.replace('run: "test ! -e stopped"}', 'run: "test -e never"}', 1).replace(
        "expect:", "on_fail: skip\n        expect:", 1
    )
    write_small(drill.folder, steps)
    begin_alone(drill)
    drill.do("ack", "--yes", "look", "--as", "alice")
    drill.do("ack", "--yes", "look", "--as", "bob")
    drive_alone(drill)
    assert drill.status.steps["look"].state is StepState.FAILED
    shown = drill.do("waive", "look", "known", "--as", "alice", "--expires", "2027-01-01")
    assert "a second person, not alice, has to say the same" in shown
    assert "migverify runbook waive look 'REASON' --as 'ANOTHER'" in shown
    drill.do("waive", "look", "known", "--as", "al")  # the same person once more
    assert drill.status.steps["look"].state is StepState.FAILED
    assert "look is waived by alice and dana: known" in drill.do("waive", "look", "known", "--as", "dana")
    assert drill.status.steps["look"].state is StepState.WAIVED


def test_signed_approvals(drill: Drill) -> None:
    keys = {}
    for name in ("carol", "bob"):
        path = drill.folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
        keys[name] = " ".join((drill.folder / f"{name}.pub").read_text().split()[:2])
    head = HEAD.replace("carol: {}", f'carol: {{ssh_key: "{keys["carol"]}"}}')
    head = head.replace("sign_off_ttl: 20m", "sign_off_ttl: 20m\n  signed_approvals: true")
    write_small(drill.folder, head=head)
    begin_alone(drill)
    drill.do("ack", "--yes", "look", "--as", "alice")
    drill.do("ack", "--yes", "look", "--as", "bob")
    drive_alone(drill)
    seen = people.approval_hash(drill.status, "look")[:12]
    for words, why in (
        ((), "the runbook wants signed approvals"),
        (("--sign", "carol"), "--seen is missing"),
        (("--seen", seen, "--sign", "bob"), "the signature is not carol's of this approval"),
        (("--seen", seen, "--sign", "nokey"), "the approval was not signed with nokey"),
    ):
        code, shown = drill.says("ack", "--yes", "look", "--as", "carol", *words)
        assert code == 2
        assert why in shown
    drill.do("ack", "--yes", "look", "--as", "carol", "--seen", seen, "--sign", "carol")
    assert drill.status.signed == 1
    assert "carol said done, signed" in drill.do("status", "--step", "look")
    mark = signatures.fingerprint(keys["carol"])
    assert f"approvals of carol are signed by {mark}" in drill.do("status")
    code, shown = drill.says("report", "--verify")
    assert code == 3
    assert "its run is not over" in shown
    (drill.folder / "team.keys").write_text(f"carol {keys['carol']}\n")
    assert drill.says("report", "--verify", "--keys", "team.keys")[0] == 3
    (drill.folder / "team.keys").write_text(f"carol {keys['bob']}\n")
    code, shown = drill.says("report", "--verify", "--keys", "team.keys")
    assert code == 1
    assert mark in shown


# -- the terminal that drives ---------------------------------------------------------------------------------------


def test_ctrl_c_gives_the_run_free_and_another_goes_on(drill: Drill) -> None:
    executor = drill.begin()
    drill.play("look")
    executor.send_signal(signal.SIGINT)
    assert ended(executor) == RunExit.INTERRUPTED
    status = drill.status
    assert status.executor == ""
    assert f"To go on: migverify runbook run --as alice --run {status.run}" in drill.told()
    code, shown = drill.says("status", "--wait", "0")
    assert code == RunExit.NOT_OVER
    assert "nobody drives the run" in shown
    second = drill.start("--run", "last", "--as", "erin")
    drill.until(lambda s: s.executor_by == "erin")
    drill.play("freeze")
    assert drill.status.takeovers == 0
    drill.do("rollback", "enough", "--as", "dana")
    assert ended(second) == RunExit.ROLLED_BACK
    assert not (drill.folder / "stopped").exists()


SLOW = STEPS.replace("touch stopped", "sh -c 'touch begun; sleep 3; touch stopped'").replace(
    "repeat: yes", 'repeat: check\n        reconcile: {check: command.exit, run: "test -e stopped"}'
)


def test_kill_9_and_a_takeover_by_two_persons(drill: Drill) -> None:
    write_small(drill.folder, SLOW)
    executor = drill.begin()
    drill.play("look")
    drill.do("ack", "--yes", "freeze", "--as", "alice")
    drill.do("approve", "freeze", "--as", "carol")
    drill.do("ack", "--yes", "freeze", "--as", "bob")
    drill.until(lambda _s: (drill.folder / "begun").exists())
    executor.kill()
    executor.wait()
    shown = drill.do("status")
    assert "GONE: its process on" in shown
    assert "migverify runbook handover --takeover" in shown
    alone = drill.start("--run", "last", "--as", "bob", "--reason", "killed")
    assert ended(alone) == RunExit.REFUSED
    assert "nobody but bob has agreed to the takeover" in drill.told()
    wanted = "Another person than bob types: migverify runbook handover --takeover 'REASON' --as 'ANOTHER'"
    assert wanted in drill.told()
    drill.do("handover", "--takeover", "the terminal was killed", "--as", "bob")  # his own word does not count
    assert ended(drill.start("--run", "last", "--as", "bob", "--reason", "killed")) == RunExit.REFUSED
    shown = drill.do("handover", "--takeover", "the terminal was killed", "--as", "carol")
    assert "another person than carol takes the run over" in shown
    unsaid = drill.start("--run", "last", "--as", "bob")
    assert ended(unsaid) == RunExit.REFUSED
    assert "Say it with --reason." in drill.told()
    second = drill.start("--run", "last", "--as", "bob", "--reason", "killed")
    drill.reaches("freeze", StepState.AWAITING_REVIEW)  # its probe told, and nothing was done twice
    drill.do("ack", "--yes", "freeze", "--as", "carol")
    assert drill.status.takeovers == 1
    assert "whether the effect of freeze happened: the executor went while the effect was under way" in drill.told()
    drill.do("abort", "enough", "--as", "dana")
    assert ended(second) == RunExit.ABORTED_DIRTY
    assert drill.says("report", "--verify")[0] == 0


def test_a_second_ctrl_c_leaves_at_once_and_says_what_that_means(drill: Drill) -> None:
    write_small(drill.folder, SLOW.replace("sleep 3", "sleep 8"))
    executor = drill.begin()
    drill.play("look")
    drill.do("ack", "--yes", "freeze", "--as", "alice")
    drill.do("approve", "freeze", "--as", "carol")
    drill.do("ack", "--yes", "freeze", "--as", "bob")
    drill.until(lambda _s: (drill.folder / "begun").exists())
    executor.send_signal(signal.SIGINT)
    drill.until(lambda _s: "given free when freeze is over" in drill.told())
    executor.send_signal(signal.SIGINT)
    assert ended(executor) == RunExit.INTERRUPTED
    assert "what was under way goes on, and nobody watches it" in drill.told()
    assert drill.status.executor != ""  # it has to be taken over: its effect is in doubt
    assert drill.status.steps["freeze"].state is StepState.RUNNING


def test_another_run_of_the_runbook_that_is_open_is_said(drill: Drill) -> None:
    begin_alone(drill)
    _, shown = drill.says("run", "small.yaml", "-e", "lab", "--as", "alice", "--kind", "dry")
    assert f"run {drill.run} of this runbook is not over" in shown


def test_a_drill_of_people_is_counted_and_the_autopilot_is_not(drill: Drill) -> None:
    drill.says("run", "small.yaml", "-e", "lab", "--as", "alice", "--autopilot")
    assert "REHEARSAL of small" in drill.do("status")
    drill.do("abort", "enough", "--as", "dana")
    begin_alone(drill)
    assert "REHEARSAL 1/1 of small" in drill.do("status")


def test_a_watch_ends_with_the_run(drill: Drill) -> None:
    begin_alone(drill)
    drill.do("abort", "not today", "--as", "dana")
    assert "ABORTED" in drill.do("status", "--run", "last", "--watch")


def test_a_password_of_the_room_is_not_shown() -> None:
    from migverify.cli.runbook_room import suffix_of

    shown = suffix_of("mysql+pymysql://keeper:s3cret@db.invalid/runs", "r1")
    assert shown == " --run r1 --runs mysql+pymysql://keeper@db.invalid/runs"
    assert suffix_of("sqlite:///runs.db") == " --runs sqlite:///runs.db"
    assert suffix_of("runs") == ""


def test_a_room_in_a_database(drill: Drill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIGVERIFY_RUNS", "sqlite:///runs.db")
    code, _ = drill.says("run", "small.yaml", "-e", "lab", "--as", "alice", "--autopilot")
    assert code == RunExit.NOT_OVER
    drill.do("rollback", "enough", "--as", "dana")
    assert drill.says("run", "--run", "last", "--as", "alice")[0] == RunExit.ROLLED_BACK
    assert "ROLLED BACK" in drill.do("status")
    assert drill.says("report", "--export", "--run", "last", "--journal", "saved.jsonl")[0] == 0
    assert drill.says("report", "--verify", "saved.jsonl")[0] == 0


def test_an_executor_that_lives_is_not_taken_over(drill: Drill) -> None:
    from migverify.runbook.record.lease import take

    begin_alone(drill)
    keeper = take(open_run_store("runs").open(str(drill.run)), "alice", life=2.0)
    keeper.begin()
    try:
        code, shown = drill.says("run", "--run", "last", "--as", "bob", "--reason", "impatient")
    finally:
        keeper.end()
    assert code == RunExit.REFUSED
    assert "drives the run, and lives" in shown


RUNS_REFUSED = (
    (("small.yaml", "-e", "lab"), "--as is missing"),
    (("small.yaml", "-e", "lab", "--as", "mallory"), "'mallory' is none of the runbook's people"),
    (("small.yaml", "--as", "alice"), "--environment is missing"),
    (("small.yaml", "-e", "moon", "--as", "alice"), "the runbook has no environment moon"),
    (("small.yaml", "-e", "lab", "--as", "alice", "--kind", "real"), "--kind real: there is no such run"),
    (("none.yaml", "-e", "lab", "--as", "alice"), "there is no runbook none.yaml"),
    (("--as", "alice"), "RUNBOOK is missing"),
    (("--run", "last", "--as", "alice"), "holds no run"),
    (("small.yaml", "-e", "lab", "--as", "alice", "--kind", "live", "--autopilot"), "not left to the autopilot"),
    (("small.yaml", "-e", "lab", "--as", "al", "--kind", "rollback", "--autopilot"), "not left to the autopilot"),
    (("small.yaml", "-e", "prod", "--as", "alice", "--autopilot"), "prod counts as production"),
    (("small.yaml", "-e", "lab", "--as", "alice", "--set", "x=1"), "x"),
)


def test_runs_that_are_refused_leave_nothing(drill: Drill) -> None:
    for words, why in RUNS_REFUSED:
        code, shown = drill.says("run", *words)
        assert (code, why in shown) == (RunExit.REFUSED, True), f"{words}: {shown}"
    assert open_run_store("runs").ids() == []


def test_what_lint_refuses_is_not_run(drill: Drill) -> None:
    write_small(drill.folder, STEPS.replace("reviewer: checker", "reviewer: dba", 1))
    code, shown = drill.says("run", "small.yaml", "-e", "lab", "--as", "alice")
    assert code == 2
    assert "[reviewer-is-dri]" in shown
    assert "lint refuses it" in shown
    assert open_run_store("runs").ids() == []


def test_a_run_goes_on_with_the_runbook_it_began_with(drill: Drill) -> None:
    begin_alone(drill)
    for words in (("small.yaml",), ("-e", "lab"), ("--set", "service=x")):
        code, shown = drill.says("run", *words, "--run", "last", "--as", "alice")
        assert code == 2
        assert "goes on with the runbook that it began with" in shown
    code, shown = drill.says("run", "--run", "last", "--as", "alice", "--autopilot")
    assert code == 2
    assert "was begun by people, and is not left to the autopilot" in shown


def test_the_autopilot_through_the_command_line(drill: Drill) -> None:
    code, shown = drill.says("run", "small.yaml", "-e", "lab", "--as", "alice", "--autopilot")
    assert code == RunExit.NOT_OVER
    assert "! open failed: " in shown  # nobody removed the file by hand
    assert "held: open: failed" in shown
    assert drill.status.state is RunState.HELD
    assert "on autopilot" in drill.do("status")
    drill.do("rollback", "enough", "--as", "dana")
    code, shown = drill.says("run", "--run", "last", "--as", "alice", "--autopilot")
    assert code == RunExit.ROLLED_BACK
    code, shown = drill.says("run", "--run", "last", "--as", "alice")
    assert code == RunExit.REFUSED
    assert "is over: rolled back" in shown


def test_announcements_that_are_left_are_delivered_after_the_end(drill: Drill) -> None:
    sinks = 'sinks:\n  gate: {kind: command, run: "test -e gate"}\n'
    book = drill.folder / "small.yaml"
    book.write_text(book.read_text().replace("phases:\n", sinks + "phases:\n", 1))
    drill.says("run", "small.yaml", "-e", "lab", "--as", "alice", "--autopilot")
    drill.do("rollback", "enough", "--as", "dana")
    code, shown = drill.says("run", "--run", "last", "--as", "alice")
    assert code == RunExit.ROLLED_BACK
    assert "announcements were not delivered; to try again:" in shown
    (drill.folder / "gate").touch()
    code, shown = drill.says("run", "--run", "last", "--as", "bob")
    assert code == RunExit.ROLLED_BACK
    assert "every announcement has been tried to its end" in shown
    assert all(one.state.value in ("sent", "given up") for one in drill.status.deliveries.values())
    assert any(one.state.value == "sent" for one in drill.status.deliveries.values())
    assert drill.says("run", "--run", "last", "--as", "bob")[0] == RunExit.REFUSED


def test_a_dry_run_is_not_a_success(drill: Drill) -> None:
    code, shown = drill.says("run", "small.yaml", "-e", "lab", "--as", "alice", "--kind", "dry")
    assert code == RunExit.NOT_OVER
    assert "would do touch stopped" in shown
    assert not (drill.folder / "stopped").exists()


def test_every_end_has_a_code_of_its_own() -> None:
    ends = [RunState.ROLLED_BACK, RunState.ABORTED_CLEAN, RunState.ABORTED_DIRTY, RunState.FAILED_PAST_PNR]
    assert [int(exit_of(end)) for end in ends] == [90, 91, 92, 93]
    assert [state for state in RunState if exit_of(state) == 0] == [RunState.COMPLETED]


# -- what is shown ----------------------------------------------------------------------------------------------------


def test_status_as_json(drill: Drill) -> None:
    begin_alone(drill)
    drill.do("ack", "--yes", "look", "--as", "alice")
    told = json.loads(drill.do("status", "--json"))
    assert told["run"] == drill.run
    assert {one["id"]: one["state"] for one in told["steps"]}["look"] == "called"
    commands = {action["command"]: action["persons"] for action in told["duties"]}
    assert commands["migverify runbook ack look --as bob"] == ["bob"]
    assert json.loads(drill.do("status", "--json", "--step", "look"))["id"] == "look"


def test_every_command_that_is_shown_can_be_typed(drill: Drill) -> None:
    """Play the whole run by nothing but the commands that ``status`` shows."""
    write_small(drill.folder, STEPS[: STEPS.index("      - id: open")])
    begin_alone(drill)
    typed = 0
    while not drill.status.over:
        drive_alone(drill)
        if drill.status.over:
            break
        duties = json.loads(drill.do("status", "--json"))["duties"]
        command = next(d["command"] for d in duties if d["step"]).replace("WHAT-SHOWS-IT", "I looked")
        words = shlex.split(command.removeprefix("migverify runbook "))
        drill.do(*words, *(["--yes"] if words[0] == "ack" else []))
        typed += 1
    assert drill.status.state is RunState.COMPLETED
    assert typed == 3 + 4 + 4


def test_ack_does_what_waits_for_each_person_and_leaves_decisions_apart(drill: Drill) -> None:
    """A clean run by ``ack`` without a step's name, and ``approve`` for the decision."""
    write_small(drill.folder, STEPS[: STEPS.index("      - id: open")])
    begin_alone(drill)
    code, shown = drill.says("ack", "--as", "bob", "--yes")
    assert code == 2
    assert "nothing waits for `ack` by bob" in shown
    assert "alice: migverify runbook ack look --as alice" in shown
    code, shown = drill.says("ack", "--as", "alice")
    assert code == 2
    assert "alice calls look: Nothing is stopped yet" in shown  # it is shown first
    assert "nobody can answer here" in shown
    assert drill.status.steps["look"].state is StepState.READY
    typed = []
    while not drill.status.over:
        drive_alone(drill)
        for person in ("al", "bob", "carol", "dana"):
            code, shown = drill.says("ack", "--as", person, "--yes")
            typed += [person] if code == 0 else []
            if "approve go" in shown and person == "dana":
                drill.do("approve", "go", "all green", "--as", "dana")
                typed.append("approve")
    assert drill.status.state is RunState.COMPLETED
    assert len(typed) == 3 + 4 + 4
    assert drill.status.steps["go"].evidence[0]["text"] == "all green"


def test_one_who_calls_and_starts_a_step_types_ack_once(drill: Drill) -> None:
    write_small(drill.folder, STEPS.replace("dri: dba", "dri: coordinator", 1))
    begin_alone(drill)
    shown = drill.do("ack", "--as", "alice", "--yes")
    assert "alice calls look" in shown
    assert "alice starts look" in shown
    assert drill.status.steps["look"].state is StepState.RUNNING


def test_ack_asks_and_takes_no_for_an_answer(drill: Drill, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_alone(drill)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer, state in ((False, StepState.READY), (True, StepState.CALLED)):
        monkeypatch.setattr("typer.confirm", lambda _text, answer=answer: answer)
        drill.do("ack", "look", "--as", "alice")
        assert drill.status.steps["look"].state is state


def test_ack_follows_the_run_for_one_person(drill: Drill) -> None:
    write_small(drill.folder, STEPS[: STEPS.index("      - id: freeze")])
    executor = drill.begin()
    words = [sys.executable, "-m", "migverify", "runbook", "ack", "--follow", "--yes", "--as"]
    followers = [
        subprocess.Popen([*words, name], cwd=drill.folder, stdout=subprocess.PIPE) for name in ("bob", "carol")
    ]
    drill.do("ack", "--as", "alice", "--yes")
    assert ended(executor) == RunExit.COMPLETED
    assert [one.wait(30) for one in followers] == [0, 0]
    look = drill.status.steps["look"]
    assert (look.dri, [one.person for one in look.approvals]) == ("bob", ["carol"])


def test_a_changed_journal_is_found(drill: Drill) -> None:
    begin_alone(drill)
    drill.do("ack", "--yes", "look", "--as", "alice")
    runs, run_ = drill.folder / "runs", str(drill.run)
    lines = data_of(runs, run_).splitlines(keepends=True)
    rewrite(runs, run_, b"".join([lines[0], lines[1].replace(b'"actor":"alice"', b'"actor":"erin"')]))
    (drill.folder / "saved.jsonl").write_bytes(data_of(runs, run_))
    for name in ("saved.jsonl", "last", run_):
        code, shown = drill.says("report", "--verify", name)
        assert code == 1
        assert "line 2: its hash is not that of its text" in shown
    code, shown = drill.says("report", "--verify", "last", "--json")
    assert json.loads(shown.splitlines()[0])["bad"] is True
    assert drill.says("report", "--verify", "nothing-here")[0] == 2


def test_a_head_that_was_told_outside_finds_a_journal_written_anew(drill: Drill) -> None:
    begin_alone(drill)
    (drill.folder / "channel.txt").write_text(f"11:00 HEAD {drill.run} 0 {'0' * 64}\n")
    code, shown = drill.says("report", "--verify", "last", "--heads", "channel.txt")
    assert code == 1
    assert "event 0 was announced" in shown
    (drill.folder / "channel.txt").write_text(f"HEAD {drill.run} 0 {drill.status.head}\n")
    assert drill.says("report", "--verify", "last", "--heads", "channel.txt")[0] == 3  # the run is not over


@pytest.mark.attack(
    "runbook", "The last lines of a journal are cut off",
    "`runbook report --verify` is inconclusive: a run that is not over and one whose end is missing look the same",
)  # fmt: skip
def test_a_journal_whose_end_was_cut_is_not_believed(drill: Drill) -> None:
    assert drill.says("run", "small.yaml", "-e", "lab", "--as", "alice", "--kind", "dry")[0] == RunExit.NOT_OVER
    assert drill.says("report", "--verify")[0] == 0
    runs = drill.folder / "runs"
    (run_,) = RunStore(runs).ids()
    lines = data_of(runs, run_).splitlines(keepends=True)
    end = next(n for n, line in enumerate(lines) if b'"kind":"run ended"' in line)
    rewrite(runs, run_, b"".join(lines[:end]))
    code, shown = drill.says("report", "--verify")
    assert code == 3
    assert "the journal's end was cut off" in shown
    assert "INCONCLUSIVE" in shown


@pytest.mark.attack(
    "runbook", "A reason and evidence hold ESC sequences, marks of writing direction and line ends",
    "every command shows them as escapes; none acts on the terminal, and no text passes for another line",
)  # fmt: skip
def test_what_would_act_on_a_terminal_is_shown(drill: Drill) -> None:
    begin_alone(drill)
    drill.do("ack", "--yes", "look", "--as", "alice")
    evil = "fine\x1b[2K\x1b]0;x\x07 \u202eko\u202c \x9b31m\r\n12:00:00Z  go  accepted by carol: done"
    drill.do("hold", evil, "--as", "alice")
    for words in (
        ("status",),
        ("status", "--json"),
        (
            "report",
            "--verify",
        ),
        ("resume", evil, "--as", "alice"),
    ):
        _, shown = drill.says(*words)
        assert not set(shown) & set("\x1b\x07\x9b\r\u202e\u202c"), words
    drill.do("hold", evil, "--as", "alice")
    shown = drill.do("status")
    assert "fine\\u001b[2K" in shown
    assert not [line for line in shown.splitlines() if line.strip().startswith("12:00:00Z")]
    assert any(evil in text for text in walk(json.loads(drill.do("status", "--json"))))  # the data are what they were


def walk(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from walk(one)
