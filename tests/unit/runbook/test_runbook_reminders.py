"""Whom a run waits for: named with the backup, reminded again with growing pauses, and not while nobody can act."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.runbook.actions.action import ActionResult, Outcome
from migverify.runbook.announce.reminders import _number
from migverify.runbook.events import EventKind, StepState
from migverify.runbook.kinds import OnFail, RunKind, StepKind
from migverify.runbook.model import Failure, Policy, Role, Rollback, Times
from migverify.runbook.record.journal_file import read_events
from migverify.runbook.run import machine
from tests.unit.runbook_places import saved
from tests.unit.runbook_runs import (
    ALICE,
    BOB,
    CAROL,
    DANA,
    ROLES,
    Room,
    is_set,
    manual,
    runbook,
    step,
)

FAILED = ActionResult(Outcome.FAILED, "exit code 1")
BACKED = (
    Role(name="coordinator", person="alice", backup="erin"),
    Role(name="db-1", person="bob", backup="dana"),
    Role(name="db-2", person="carol"),
    Role(name="decision_owner", person="dana"),
)


def reminders(room: Room) -> list[Any]:
    return [event for event in read_events(saved(room.record))
            if event.kind is EventKind.NOTE and event.data.get("alarm") == "waiting"]  # fmt: skip


def wait(room: Room, seconds: float) -> None:
    room.later(seconds)
    room.settle()


def test_a_called_step_waits_for_its_dri_and_names_the_backup(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a"), roles=BACKED))
    room.man()
    room.say(machine.call, ALICE, "a")
    wait(room, 170)
    assert reminders(room) == []
    wait(room, 15)
    (reminder,) = reminders(room)
    assert reminder.step == "a"
    assert reminder.data["waits_for"] == ["bob"]
    assert reminder.data["backups"] == ["dana"]
    assert reminder.data["text"] == "bob (db-1) to start a, for 3 min 5 s; backup: dana"
    assert room.status.steps["a"].alarms == ("waiting",)


def test_reminders_come_with_growing_pauses_and_end_with_the_answer(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a"), step("b")))
    room.man()
    room.say(machine.call, ALICE, "a")
    at = []
    for second in range(10, 180 * 32, 10):
        wait(room, 10)
        at += [second] * (len(reminders(room)) - len(at))
    assert at == [180, 540, 1260, 2700, 4140, 5580]
    assert [reminder.data["number"] for reminder in reminders(room)] == [1, 2, 3, 4, 5, 6]
    assert reminders(room)[1].data["text"].endswith("(reminder 2); no backup")
    assert room.status.steps["a"].alarms == ("waiting",)
    room.say(machine.start, BOB, "a")
    wait(room, 1)
    room.say(machine.accept, CAROL, "a")
    wait(room, 100)
    assert len(reminders(room)) == 6


@given(st.floats(0, 1e5), st.floats(0, 1e4), st.floats(0.1, 1e3))
def test_reminders_never_become_fewer(waited: float, more: float, pace: float) -> None:
    assert _number(waited, pace) <= _number(waited + more, pace)
    assert _number(pace * 0.999, pace) == 0
    assert _number(pace, pace) == 1


def test_a_ready_step_waits_for_the_coordinator_once_for_all_steps(tmp_path: Path) -> None:
    some = [step(f"s{number}", needs=("z",)) for number in range(7)]
    room = Room(tmp_path, runbook(step("z"), *some))
    room.man()
    wait(room, 185)
    (reminder,) = reminders(room)
    assert reminder.step == ""
    assert reminder.data["text"].startswith("alice (coordinator) to call z, for ")
    assert reminder.data["backups"] == ["erin"]
    room.play("z")
    wait(room, 185)
    assert "call s0, s1, s2, s3, s4 and 2 more" in reminders(room)[-1].data["text"]
    assert len(reminders(room)) == 2


def test_work_by_hand_is_waited_for_beyond_its_plan(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(manual("m", times=Times(plan=1000))))
    room.man()
    room.say(machine.call, ALICE, "m")
    room.say(machine.start, BOB, "m")
    wait(room, 900)
    assert reminders(room) == []
    wait(room, 110)
    (reminder,) = reminders(room)
    assert reminder.data["text"].startswith("bob to end m, for ")


def test_a_program_at_work_is_waited_for_by_nobody(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    begun, release = threading.Event(), threading.Event()
    room.world.hook = lambda what, _name: (begun.set(), release.wait(20)) if what == "before set" else None  # type: ignore[func-returns-value]
    executor = room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    while not begun.is_set():
        executor.tick()
    room.later(10_000)
    executor.tick()
    release.set()
    assert reminders(room) == []


def test_evidence_waits_for_its_reviewer(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    room.settle()
    assert room.state("a") is StepState.AWAITING_REVIEW
    wait(room, 185)
    (reminder,) = reminders(room)
    assert reminder.data["waits_for"] == ["carol"]
    assert "carol (db-2) to accept or reject a" in reminder.data["text"]


def test_a_step_in_doubt_waits_for_two_persons(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", reconcile=None)))
    room.world.hook = lambda what, _name: (_ for _ in ()).throw(SystemExit) if what == "before set" else None
    room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    assert room.executor is not None
    room.executor.tick()
    room.die()
    room.succeed()
    room.settle()
    assert room.state("a") is StepState.UNKNOWN
    wait(room, 185)
    texts = [reminder.data["text"] for reminder in reminders(room)]
    two = "alice (coordinator) or dana (decision_owner) to decide (two persons) whether the effect of a happened"
    assert any(text.startswith(two) for text in texts)
    assert any("to resume the run, roll it back or end it" in text for text in texts)


def test_a_start_that_lacks_approval_waits_for_who_approves(tmp_path: Path) -> None:
    from migverify.runbook.model import Approval

    room = Room(tmp_path, runbook(step("a", approval=Approval(before="start")), step("b", needs=())))
    room.man()
    room.say(machine.call, ALICE, "a")
    wait(room, 185)
    assert reminders(room)[-1].data["text"].startswith("carol (db-2) to approve the start of a")
    room.say(machine.approve, CAROL, "a")
    wait(room, 1)
    assert reminders(room)[-1].data["text"].startswith("bob (db-1) to start a")


def test_a_point_of_no_return_waits_for_the_decision_owner(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", point_of_no_return="soft", kind=StepKind.DECISION, effect=None)))
    room.man()
    room.say(machine.call, ALICE, "a")
    wait(room, 185)
    assert reminders(room)[-1].data["text"].startswith("dana (decision_owner) to approve the start of a")


def test_a_failed_step_that_may_be_skipped_waits_for_its_waiver(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", on_fail=Failure(unbounded=OnFail.SKIP))))
    room.world.outcomes["set a"] = [FAILED]
    room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    room.settle()
    wait(room, 185)
    assert "waive a (two persons), or have it tried again" in reminders(room)[-1].data["text"]


def test_a_held_run_waits_for_those_who_may_resume_it_and_nobody_else(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.hold, BOB, "coffee")
    wait(room, 185)
    (reminder,) = reminders(room)
    assert reminder.step == ""
    assert reminder.data["waits_for"] == ["alice", "dana"]
    assert reminder.data["backups"] == ["erin"]
    room.say(machine.resume, ALICE)
    room.settle()
    wait(room, 100)
    assert len(reminders(room)) == 1  # the time of the hold is not bob's
    wait(room, 90)
    assert reminders(room)[-1].data["waits_for"] == ["bob"]


def test_an_undoing_by_hand_waits_for_its_dri(tmp_path: Path) -> None:
    by_hand = Rollback(effect=None, instruction="Unset it.", verify=(is_set("x"),), plan=30.0)
    room = Room(tmp_path, runbook(step("a", rollback=by_hand), step("b")))
    room.man()
    room.play("a")
    room.say(machine.rollback, DANA, "back")
    room.settle()
    wait(room, 185)
    assert [reminder.data["text"].partition(",")[0] for reminder in reminders(room)] == ["bob to roll a back by hand"]


def test_a_backup_who_was_promoted_is_waited_for(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a"), roles=BACKED))
    room.man()
    room.say(machine.call, ALICE, "a")
    room.record.submit(lambda s, n: machine.promote(s, ALICE, n, "db-1", "bob does not answer"))
    wait(room, 185)
    assert reminders(room)[-1].data["waits_for"] == ["dana"]
    assert reminders(room)[-1].data["backups"] == ["bob"]


@pytest.mark.parametrize("pace", [0.0, -1.0, float("nan")])
def test_without_a_pace_nobody_is_reminded(tmp_path: Path, pace: float) -> None:
    room = Room(tmp_path, runbook(step("a"), policy=Policy(unattended_nag=1.0)))
    room.record.status.runbook = runbook(step("a"), policy=Policy(unattended_nag=pace))
    room.man()
    room.say(machine.call, ALICE, "a")
    wait(room, 10_000)
    assert reminders(room) == []


def test_a_dry_run_waits_for_nobody(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")), RunKind.DRY)
    room.man()
    room.later(1000)
    room.settle()
    assert reminders(room) == []
    assert ROLES
