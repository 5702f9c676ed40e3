"""Runs, driven by their commands and one executor: every arrow, every failure, every rollback."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migverify.errors import UsageError
from migverify.runbook.actions.action import ActionResult, Outcome
from migverify.runbook.announce.words import rollback_text
from migverify.runbook.events import EventKind, RollbackState, RunState, StepState
from migverify.runbook.fold.table import fold
from migverify.runbook.kinds import DataLoss, OnFail, Repeat, RunKind, StepKind
from migverify.runbook.model import (
    Applies,
    Approval,
    Budgets,
    Check,
    Effect,
    Failure,
    Policy,
    Role,
    Rollback,
    Times,
)
from migverify.runbook.page.view import view
from migverify.runbook.run import machine
from migverify.runbook.run.machine import Actor
from migverify.runbook.run.pending import pending_actions
from tests.unit.runbook_places import place
from tests.unit.runbook_runs import (
    ALICE,
    BOB,
    CAROL,
    DANA,
    ERIN,
    Room,
    draft,
    guard_of,
    is_set,
    manual,
    replace,
    runbook,
    step,
)
from tests.waiting import PATIENCE

FAILED = ActionResult(Outcome.FAILED, "exit code 1")
NO_DATA = ActionResult(Outcome.NO_DATA, "nothing came")


@pytest.fixture(autouse=True)
def _verified(tmp_path: Path) -> Iterator[None]:
    """Every journal verifies at the end of its test."""
    yield
    home = place(tmp_path)
    for run in home.ids():
        assert home.verify(run) == []


def kinds(room: Room) -> list[EventKind]:
    return [event.kind for event in room.record.journal.events()]


def test_a_run_goes_from_its_first_call_to_completed(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a"), manual("m"), step("b", phase="q")))
    assert [room.state(id_) for id_ in "amb"] == [StepState.READY, StepState.PENDING, StepState.PENDING]
    room.man()
    room.play("a", "m", "b")
    assert room.status.state is RunState.COMPLETED
    assert room.world.done == [("set", "a"), ("set", "b")]
    assert room.undo_state("a") is RollbackState.ARMED
    assert fold(room.record.journal.events()) == room.status


def test_an_effect_runs_only_behind_its_intent_on_the_disk(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    seen = []

    def look(what: str, _name: str) -> None:
        if what == "before set":
            seen.append(list(room.record.journal.events())[-1])

    room.world.hook = look
    room.man()
    room.play("a")
    assert seen[0].kind is EventKind.INTENT


@pytest.mark.parametrize(
    ("result", "state"),
    [
        (FAILED, StepState.FAILED), (NO_DATA, StepState.INCONCLUSIVE),
        (ActionResult(Outcome.TIMED_OUT, "60 s"), StepState.TIMED_OUT),
    ],
)  # fmt: skip
def test_an_effect_that_fails_holds_the_run(tmp_path: Path, result: ActionResult, state: StepState) -> None:
    room = Room(tmp_path, runbook(step("a"), step("b")))
    room.world.outcomes["set a"] = [result]
    room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    room.settle()
    assert room.state("a") is state
    assert room.status.state is RunState.HELD
    assert room.state("b") is StepState.PENDING
    assert room.undo_state("a") is RollbackState.ARMED  # it may have happened in part


@pytest.mark.parametrize(
    ("check", "state"),
    [
        (Check(action="world.is", arguments={"name": "other"}), StepState.FAILED),
        (Check(action="world.value", arguments={"name": "nothing"}, maximum=5), StepState.INCONCLUSIVE),
        (Check(action="no.such"), StepState.INCONCLUSIVE),
    ],
)
def test_what_is_expected_has_to_be_shown(tmp_path: Path, check: Check, state: StepState) -> None:
    room = Room(tmp_path, runbook(step("a", expect=(is_set("a"), check))))
    room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    room.settle()
    assert room.state("a") is state
    assert room.world.done == [("set", "a")]


def test_a_command_without_expectations_is_inconclusive(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", expect=())))
    room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    room.settle()
    assert room.state("a") is StepState.INCONCLUSIVE


def start(room: Room, id_: str = "a") -> None:
    room.say(machine.call, ALICE, id_)
    room.say(machine.start, BOB, id_)
    room.settle()


def test_a_repeatable_step_is_tried_again_with_growing_pauses(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", on_fail=Failure(retry=2, backoff=10.0), repeat=Repeat.YES)))
    room.world.outcomes["set a"] = [FAILED, FAILED]
    room.man()
    start(room)
    assert room.state("a") is StepState.FAILED
    room.later(11)
    room.settle()
    assert room.status.steps["a"].attempt == 2
    room.later(11)
    room.settle()
    assert room.state("a") is StepState.FAILED  # the second pause is 20 s
    room.later(11)
    room.settle()
    assert room.state("a") is StepState.AWAITING_REVIEW
    assert [attempt.state for attempt in room.status.steps["a"].attempts] == [StepState.FAILED] * 2
    assert room.status.retries == 2


def test_a_step_that_may_not_be_repeated_is_not(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", on_fail=Failure(retry=2), repeat=Repeat.NO)))
    room.world.outcomes["set a"] = [FAILED]
    room.man()
    start(room)
    assert room.world.done == [("set", "a")]
    assert room.status.state is RunState.HELD
    room.say(machine.resume, ALICE)
    with pytest.raises(UsageError, match="may not be repeated"):
        room.say(machine.retry, ALICE, "a")


@pytest.mark.parametrize("happened", [True, False])
def test_a_retry_asks_the_probe_first(tmp_path: Path, happened: bool) -> None:
    room = Room(tmp_path, runbook(step("a", on_fail=Failure(retry=1))))
    room.world.outcomes["set a"] = [FAILED]
    room.world.hook = lambda what, name: room.world.flags.add(name) if what == "after set" and happened else None
    room.man()
    start(room)
    assert room.state("a") is StepState.AWAITING_REVIEW
    assert room.world.done == [("set", "a")] * (1 if happened else 2)


def test_checks_that_failed_are_asked_again_without_the_effect(tmp_path: Path) -> None:
    room = Room(
        tmp_path, runbook(step("a", expect=(Check(action="world.value", arguments={"name": "lag"}, maximum=5),)))
    )
    room.man()
    start(room)
    assert room.state("a") is StepState.INCONCLUSIVE
    room.world.values["lag"] = 1.0
    room.say(machine.resume, ALICE)
    room.say(machine.retry, ALICE, "a")
    room.settle()
    assert room.state("a") is StepState.AWAITING_REVIEW
    assert room.world.done == [("set", "a")]


def test_a_rejected_step_has_failed_and_nothing_is_tried_again_by_itself(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", on_fail=Failure(retry=5), repeat=Repeat.YES)))
    room.man()
    start(room)
    with pytest.raises(UsageError, match="no reason"):
        room.say(machine.reject, CAROL, "a", " ")
    room.say(machine.reject, CAROL, "a", "the graph looks wrong")
    room.settle()
    assert room.state("a") is StepState.FAILED
    assert room.status.state is RunState.HELD
    assert room.world.done == [("set", "a")]


def test_goto_leads_forward_and_the_failed_step_stays_failed(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", on_fail=Failure(goto="c")), step("b"), step("c")))
    room.world.outcomes["set a"] = [FAILED]
    room.man()
    start(room)
    assert [room.state(id_) for id_ in "abc"] == [StepState.FAILED, StepState.PENDING, StepState.READY]
    room.play("c")
    assert not room.status.over
    room.say(machine.abort, ALICE, "the other way was taken")
    assert room.status.state is RunState.ABORTED_DIRTY


def test_a_skip_waits_for_the_waiver_of_two(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", on_fail=Failure(unbounded=OnFail.SKIP)), step("b")))
    room.world.outcomes["set a"] = [FAILED]
    room.man()
    start(room)
    assert room.status.state is RunState.RUNNING
    room.say(machine.waive, ALICE, "a", "not needed tonight")
    assert room.state("a") is StepState.FAILED
    room.say(machine.waive, ALICE, "a", "really not")  # the same person again is not a second one
    assert room.state("a") is StepState.FAILED
    room.say(machine.waive, Actor("caro"), "a", "agreed")
    assert room.state("a") is StepState.WAIVED
    assert room.status.steps["a"].waiver["by"] == ["alice", "carol"]
    room.play("b")
    assert room.status.state is RunState.COMPLETED


def test_a_step_without_a_failure_is_not_waived(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    with pytest.raises(UsageError, match="the step is ready"):
        room.say(machine.waive, ALICE, "a", "no time")


# -- rollback -------------------------------------------------------------------------------------------------------


def test_a_rollback_undoes_from_the_last_to_the_first_and_verifies(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a"), step("b"), step("c"), step("d")))
    room.man()
    room.play("a", "b", "c")
    room.say(machine.rollback, DANA, "errors at 2 %")
    room.settle()
    assert room.world.done[3:] == [("unset", "c"), ("unset", "b"), ("unset", "a")]
    assert room.status.state is RunState.ROLLED_BACK
    assert room.undo_state("a") is RollbackState.UNDONE_VERIFIED


def test_a_rollback_down_to_a_step_holds_and_the_way_can_be_gone_again(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a"), step("b"), step("c"), step("d")))
    room.man()
    room.play("a", "b", "c")
    room.say(machine.rollback, DANA, "once more", to="b")
    room.settle()
    assert room.world.flags == {"a"}
    assert room.status.state is RunState.HELD
    assert room.status.order is None
    room.say(machine.resume, ALICE)
    room.say(machine.retry, ALICE, "b")
    assert room.state("d") is StepState.READY or room.state("d") is StepState.PENDING
    room.say(machine.start, BOB, "b")
    room.settle()
    room.say(machine.accept, CAROL, "b")
    room.say(machine.retry, ALICE, "c")
    assert room.state("d") is StepState.PENDING
    room.say(machine.start, BOB, "c")
    room.settle()
    room.say(machine.accept, CAROL, "c")
    room.play("d")
    assert room.status.state is RunState.COMPLETED


def test_a_rollback_that_is_not_verified_stops_and_the_run_ends_dirty(tmp_path: Path) -> None:
    undo = Rollback(
        effect=Effect(action="world.unset", arguments={"name": "b"}),
        instruction="",
        verify=(Check(action="world.value", arguments={"name": "nothing"}, maximum=1),),
    )
    room = Room(tmp_path, runbook(step("a"), step("b", rollback=undo), step("c")))
    room.man()
    room.play("a", "b")
    room.say(machine.rollback, DANA, "back")
    room.settle()
    assert room.undo_state("b") is RollbackState.UNDONE_UNVERIFIED
    assert room.undo_state("a") is RollbackState.ARMED
    assert room.status.state is RunState.HELD
    room.say(machine.rollback, DANA, "the rest, too")
    room.settle()
    assert room.undo_state("a") is RollbackState.UNDONE_VERIFIED
    assert room.status.state is RunState.ABORTED_DIRTY


def test_a_failed_rollback_is_repeated_only_when_two_say_so(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a"), step("b")))
    room.world.outcomes["unset a"] = [FAILED]
    room.man()
    room.play("a")
    room.say(machine.rollback, DANA, "back")
    room.settle()
    assert room.undo_state("a") is RollbackState.FAILED
    room.say(machine.rollback, DANA, "again")
    room.settle()
    assert room.undo_state("a") is RollbackState.FAILED
    room.say(machine.rollback, ALICE, "again")
    room.settle()
    assert room.status.state is RunState.ROLLED_BACK


def test_on_fail_rollback_undoes_everything_and_aborts_clean(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a"), step("b", on_fail=Failure(unbounded=OnFail.ROLLBACK))))
    room.world.outcomes["set b"] = [FAILED]
    room.man()
    room.play("a")
    start(room, "b")
    assert room.world.done[2:] == [("unset", "b"), ("unset", "a")]
    assert room.status.state is RunState.ABORTED_CLEAN


@pytest.mark.attack(
    "runbook", "A run is aborted, or rolled back, after an effect that has no rollback",
    "it ends as not all undone (92) and names the step; it is never all undone and verified",
)  # fmt: skip
@pytest.mark.parametrize("how", ["abort", "rollback", "on_fail"])
def test_an_effect_without_a_rollback_stands_and_is_named(tmp_path: Path, how: str) -> None:
    last = step("c", on_fail=Failure(unbounded=OnFail.ROLLBACK if how == "on_fail" else OnFail.STOP))
    room = Room(tmp_path, runbook(step("a"), step("b", rollback=None), last))
    room.world.outcomes["set c"] = [FAILED]
    room.man()
    room.play("a", "b")
    if how == "on_fail":
        start(room, "c")
    else:
        room.say(machine.hold, DANA, "look")
        assert any(
            "what happened or may have: a, b" in action.what
            for action in pending_actions(room.status, room.clock.now())
        )
        room.say(machine.abort if how == "abort" else machine.rollback, DANA, "back")
        room.settle()
    assert room.status.state is RunState.ABORTED_DIRTY
    assert "b" in room.world.flags
    assert room.status.not_clean() == (("a", "b") if how == "abort" else ("b",))
    assert "b cannot be rolled back" in rollback_text(room.status) or how == "abort"
    shown = view(room.status, list(room.record.journal.events()), room.clock.now())
    assert shown.standing == room.status.not_clean()


def test_what_stands_of_a_repeated_step_without_a_rollback_is_not_forgotten(tmp_path: Path) -> None:
    half = [ActionResult(Outcome.FAILED, "half of it"), ActionResult(Outcome.FAILED, "again")]
    room = Room(tmp_path, runbook(step("a", rollback=None, repeat=Repeat.YES)))
    room.world.outcomes["set a"] = half
    room.man()
    start(room, "a")
    room.say(machine.resume, ALICE)
    for _ in range(2):
        room.say(machine.retry, ALICE, "a", "again")
        assert room.status.not_clean() == ("a",)
        if room.world.outcomes["set a"]:
            room.say(machine.start, BOB, "a")
            room.settle()
            room.say(machine.resume, ALICE)
    room.say(machine.abort, DANA, "enough")
    assert room.status.state is RunState.ABORTED_DIRTY


def test_an_effect_that_did_not_happen_does_not_stand(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", rollback=None, reconcile=is_set("a"))))
    room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    room.record.submit(lambda _status, _now: (draft(EventKind.INTENT, room.status.executor, "a", role="executor"),))
    assert room.status.not_clean() == ("a",)
    room.die()
    room.succeed()
    room.settle()
    assert room.state("a") is StepState.FAILED
    assert room.status.not_undone() == ()
    room.say(machine.abort, DANA, "it did not happen")
    assert room.status.state is RunState.ABORTED_CLEAN


def test_what_hands_did_is_named_after_a_clean_end(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(manual("m"), step("b")))
    room.man()
    room.play("m")
    room.say(machine.abort, DANA, "enough")
    assert room.status.state is RunState.ABORTED_CLEAN
    shown = view(room.status, list(room.record.journal.events()), room.clock.now())
    assert (shown.standing, shown.unverified) == ((), ("m",))
    assert "No rollback verifies what m did." in shown.sentence


def test_a_run_of_the_earlier_rules_still_reads(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("b", rollback=None), step("c")))
    room.man()
    room.play("b")
    old = replace(room.status, rules=2)
    assert machine.abort_state(old) is RunState.ABORTED_CLEAN
    assert machine.abort_state(room.status) is RunState.ABORTED_DIRTY


def test_a_manual_rollback_waits_for_its_person(tmp_path: Path) -> None:
    by_hand = Rollback(
        effect=None, instruction="Grant it again.", verify=(Check(action="world.value", arguments={"name": "granted"}),)
    )
    room = Room(tmp_path, runbook(manual("m", rollback=by_hand), step("b")))
    room.man()
    room.play("m")
    room.say(machine.rollback, DANA, "back")
    room.settle()
    assert room.undo_state("m") is RollbackState.RUNNING
    room.world.values["granted"] = True
    room.say(machine.done, BOB, "m", "granted")
    room.settle()
    assert room.status.state is RunState.ROLLED_BACK


def test_a_rollback_expires_behind_its_step_and_is_refused(tmp_path: Path) -> None:
    undo = Rollback(
        effect=Effect(action="world.unset", arguments={"name": "a"}),
        instruction="",
        verify=(Check(action="world.is_not", arguments={"name": "a"}),),
        valid_until="b",
        data_loss=DataLoss.NONE,
    )
    room = Room(tmp_path, runbook(step("a", rollback=undo), step("b"), step("c")))
    room.man()
    room.play("a")
    assert room.undo_state("a") is RollbackState.ARMED
    room.play("b")
    assert room.undo_state("a") is RollbackState.EXPIRED
    with pytest.raises(UsageError, match="has expired"):
        room.say(machine.rollback, DANA, "back")
    room.say(machine.rollback, DANA, "only b", to="b")
    room.settle()
    assert room.undo_state("a") is RollbackState.ARMED  # what let it expire was undone


def test_a_run_past_the_hard_point_ends_as_failed_there(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", point_of_no_return="hard", approval=Approval(before="start")), step("b")))
    room.man()
    room.say(machine.call, ALICE, "a")
    with pytest.raises(UsageError, match="decision owner has not approved"):
        room.say(machine.start, BOB, "a")
    room.say(machine.approve, CAROL, "a")
    with pytest.raises(UsageError, match="decision owner has not approved"):
        room.say(machine.start, BOB, "a")
    room.say(machine.approve, DANA, "a")
    room.say(machine.start, BOB, "a")
    room.settle()
    room.say(machine.abort, DANA, "stop")
    assert room.status.state is RunState.FAILED_PAST_PNR


def test_behind_a_hard_point_nothing_before_can_be_undone(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a"), step("b", point_of_no_return="hard"), step("c")))
    room.man()
    room.play("a")
    room.say(machine.call, ALICE, "b")
    room.say(machine.approve, DANA, "b")
    room.say(machine.start, BOB, "b")
    room.settle()
    assert room.undo_state("a") is RollbackState.EXPIRED
    with pytest.raises(UsageError, match="has expired"):
        room.say(machine.rollback, DANA, "back")


# -- clocks, budgets, guards ----------------------------------------------------------------------------------------


def test_late_steps_are_told_and_manual_ones_time_out_without_the_time_of_holds(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(manual("m", times=Times(plan=5, maximum=15, minimum=None)), step("b")))
    room.man()
    start(room, "m")
    room.later(6)
    room.settle()
    assert room.status.steps["m"].alarms == ("late",)
    room.say(machine.hold, CAROL, "coffee")
    room.later(20)
    room.settle()
    assert room.state("m") is StepState.RUNNING
    room.say(machine.resume, ALICE)
    room.settle()
    assert room.state("m") is StepState.RUNNING
    span = room.status.active_time("m", room.clock.now())
    assert span is not None
    assert 6 <= span.seconds < 8
    room.later(10)
    room.settle()
    assert room.state("m") is StepState.TIMED_OUT
    assert 20 <= room.status.held.seconds < 21


def test_a_step_that_is_too_short_is_suspicious(tmp_path: Path) -> None:
    room = Room(
        tmp_path,
        runbook(
            step("a", times=Times(plan=60, maximum=90, minimum=30)),
            step("b", times=Times(plan=60, maximum=90, minimum=30), reviewer=None),
        ),
    )
    room.man()
    room.play("a")
    assert "short" in room.status.steps["a"].alarms
    start(room, "b")
    assert room.state("b") is StepState.INCONCLUSIVE


def test_a_spent_write_stop_cancels_the_run_by_itself(tmp_path: Path) -> None:
    book = runbook(step("prepare"), step("freeze", write_stop="begin"), manual("m"), step("open", write_stop="end"),
                   budgets=Budgets(write_stop=20))  # fmt: skip
    room = Room(tmp_path, book)
    room.man()
    room.play("prepare", "freeze")
    room.later(15)
    room.settle()
    start(room, "m")
    assert room.status.state is RunState.RUNNING
    room.later(6)
    room.settle()
    assert room.status.state is RunState.ABORTED_CLEAN
    assert room.world.done[2:] == [("unset", "freeze"), ("unset", "prepare")]
    assert 21 <= room.status.write_stop_spent.seconds < 23
    assert room.state("m") is StepState.FAILED


def test_behind_a_hard_point_a_spent_write_stop_holds_once_and_people_may_go_on(tmp_path: Path) -> None:
    book = runbook(step("freeze", write_stop="begin"), step("cut", point_of_no_return="hard"), manual("m"),
                   budgets=Budgets(write_stop=20))  # fmt: skip
    room = Room(tmp_path, book)
    room.man()
    room.play("freeze")
    room.say(machine.call, ALICE, "cut")
    room.say(machine.approve, DANA, "cut")
    room.say(machine.start, BOB, "cut")
    room.settle()
    room.say(machine.accept, CAROL, "cut")
    room.later(21)
    room.settle()
    assert room.status.state is RunState.HELD
    assert room.world.done == [("set", "freeze"), ("set", "cut")]
    room.say(machine.resume, ALICE, "the last step is minutes away")
    assert room.status.state is RunState.HELD
    room.say(machine.resume, DANA, "the last step is minutes away")
    room.die()  # that they went on stands in the journal: the next executor does not hold them up again
    room.succeed()
    room.play("m")
    assert room.status.state is RunState.COMPLETED


def test_a_write_stop_within_its_budget_ends_with_its_step(tmp_path: Path) -> None:
    book = runbook(
        step("freeze", write_stop="begin"), step("open", write_stop="end"), step("c"), budgets=Budgets(write_stop=20)
    )
    room = Room(tmp_path, book)
    room.man()
    room.play("freeze", "open")
    room.later(25)
    room.settle()
    assert room.status.state is RunState.RUNNING
    assert room.status.write_stop_spent.seconds < 2


def guarded(**changes: Any) -> Any:
    check = Check(action="world.value", arguments={"name": "lag"}, maximum=5)
    guard = guard_of("lag", check, 0.01, armed_in=("p",), on_fail="hold")
    return runbook(step("a"), step("b"), guards=(replace(guard, **changes),))


def wait_until(room: Room, condition: Any) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, "it did not come"
        assert room.executor is not None
        room.executor.tick()
        time.sleep(0.005)


@pytest.mark.parametrize("value", [None, float("nan"), 9.0])
def test_a_guard_that_fails_or_tells_nothing_holds_the_run_and_no_effect_begins(tmp_path: Path, value: Any) -> None:
    room = Room(tmp_path, guarded())
    executor = room.man()
    executor.watching.begin()
    room.world.values["lag"] = value
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    wait_until(room, lambda: room.status.state is RunState.HELD)
    assert room.world.done == []
    assert room.status.guards["lag"].state == ("fail" if value == 9.0 else "inconclusive")
    room.say(machine.resume, ALICE, "I know better")
    assert room.status.state is RunState.HELD
    room.world.values["lag"] = 1.0
    wait_until(room, lambda: room.status.guards["lag"].state == "pass")
    room.say(machine.resume, ALICE)
    wait_until(room, lambda: room.state("a") is StepState.AWAITING_REVIEW)
    executor.watching.end()


def test_two_may_go_on_despite_a_guard_until_it_fails_anew(tmp_path: Path) -> None:
    room = Room(tmp_path, guarded())
    executor = room.man()
    executor.watching.begin()
    room.world.values["lag"] = 9.0
    room.say(machine.call, ALICE, "a")
    wait_until(room, lambda: room.status.state is RunState.HELD)
    room.say(machine.resume, ALICE, "known trouble")
    room.say(machine.resume, DANA, "known trouble")
    assert room.status.state is RunState.RUNNING
    room.say(machine.start, BOB, "a")
    wait_until(room, lambda: room.state("a") is StepState.AWAITING_REVIEW)
    room.world.values["lag"] = 1.0
    wait_until(room, lambda: room.status.guards["lag"].state == "pass")
    room.world.values["lag"] = 9.0
    wait_until(room, lambda: room.status.state is RunState.HELD)
    executor.watching.end()


def test_a_guard_may_order_the_rollback(tmp_path: Path) -> None:
    room = Room(tmp_path, guarded(on_fail="rollback"))
    executor = room.man()
    executor.watching.begin()
    room.world.values["lag"] = 1.0
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    wait_until(room, lambda: room.state("a") is StepState.AWAITING_REVIEW)
    room.world.values["lag"] = 9.0
    wait_until(room, lambda: room.status.over)
    assert room.status.state is RunState.ABORTED_CLEAN
    executor.watching.end()


# -- kinds of runs --------------------------------------------------------------------------------------------------


def test_a_dry_run_has_no_effects_and_is_never_done(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a"), manual("m"), step("b", only=Applies(environments=("prod",)))), RunKind.DRY)
    room.man()
    room.settle()
    assert room.world.done == []
    assert [room.state(id_) for id_ in "amb"] == [StepState.DRY, StepState.DRY, StepState.NOT_APPLICABLE]
    assert room.status.state is RunState.DRY


def test_what_does_not_apply_is_recorded_and_keeps_the_order(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a"), step("x", only=Applies(runs=(RunKind.LIVE,))), step("b")))
    room.man()
    assert room.state("x") is StepState.NOT_APPLICABLE
    assert room.state("b") is StepState.PENDING
    room.play("a", "b")
    assert room.status.state is RunState.COMPLETED
    assert room.state("x") is StepState.NOT_APPLICABLE


def test_steps_side_by_side_and_what_waits_for_both(tmp_path: Path) -> None:
    book = runbook(step("z", phase="o"), step("a", needs=("z",)), step("b", needs=("z",)), step("c", needs=("a", "b")))
    room = Room(tmp_path, book)
    room.man()
    room.play("z")
    for id_ in "ab":
        room.say(machine.call, ALICE, id_)
        room.say(machine.start, BOB, id_)
    room.settle()
    room.say(machine.accept, CAROL, "b")
    assert room.state("c") is StepState.PENDING
    room.say(machine.accept, CAROL, "a")
    assert room.state("c") is StepState.READY


def test_required_steps_must_be_done_not_waived(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a"), step("b", requires=("a",))))
    room.world.outcomes["set a"] = [FAILED]
    room.man()
    start(room)
    room.say(machine.waive, ALICE, "a", "never mind")
    room.say(machine.waive, DANA, "a", "never mind")
    room.say(machine.resume, ALICE)
    with pytest.raises(UsageError, match="a is required, and is not done"):
        room.say(machine.call, ALICE, "b")


def test_a_decision_against_it_fails_the_step(tmp_path: Path) -> None:
    decision = manual("go", kind=StepKind.DECISION, dri="decision_owner")
    room = Room(tmp_path, runbook(decision, step("b")))
    room.man()
    room.say(machine.call, ALICE, "go")
    room.say(machine.start, DANA, "go")
    room.say(machine.fail, DANA, "go", "no go: replication lags")
    room.settle()
    assert room.state("go") is StepState.FAILED
    room.say(machine.abort, DANA, "no go")
    assert room.status.state is RunState.ABORTED_CLEAN


# -- two executors, and none ----------------------------------------------------------------------------------------


def test_a_takeover_needs_a_reason_and_two_and_leaves_the_effect_in_doubt(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", reconcile=None), step("b")))
    room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    assert room.executor is not None
    room.executor._begin(room.status.steps["a"])
    while not len(room.world.flags):
        time.sleep(0.001)
    room.die()
    with pytest.raises(UsageError, match="say why"):
        room.man("bob")
    with pytest.raises(UsageError, match="nobody but bob"):
        room.man("bob", "gone")
    room.say(machine.takeover, BOB, "gone")
    with pytest.raises(UsageError, match="nobody but bob"):
        room.man("bob", "gone")
    room.succeed()
    room.settle()
    assert room.state("a") is StepState.UNKNOWN
    assert room.status.state is RunState.HELD
    with pytest.raises(UsageError, match="the run is held"):
        room.say(machine.retry, ALICE, "a", "go on")
    room.say(machine.waive, ALICE, "a", "go on")
    with pytest.raises(UsageError, match="the step is unknown"):
        room.say(machine.waive, DANA, "a", "go on")
    with pytest.raises(UsageError, match="reconcile it first"):
        room.say(machine.rollback, DANA, "back")
    room.say(machine.decide, ALICE, "a", "I looked", happened=True)
    room.say(machine.decide, DANA, "a", "I looked", happened=False)  # they do not agree
    assert room.state("a") is StepState.UNKNOWN
    room.say(machine.decide, CAROL, "a", "I looked", happened=True)
    assert room.state("a") is StepState.VERIFYING
    room.settle()
    assert room.state("a") is StepState.AWAITING_REVIEW
    assert room.world.done.count(("set", "a")) == 1
    assert room.status.takeovers == 1


def test_only_leaders_lead(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    room.man()
    for command in (machine.call,):
        with pytest.raises(UsageError, match="that is for coordinator"):
            room.say(command, BOB, "a")
    with pytest.raises(UsageError, match="that is for coordinator"):
        room.say(machine.call, ERIN, "a")  # the backup, who was not promoted
    room.say(machine.call, ALICE, "a")
    with pytest.raises(UsageError, match="that is for db-1"):
        room.say(machine.start, CAROL, "a")
    with pytest.raises(UsageError, match="may not end the run"):
        room.say(machine.abort, BOB, "no fun")
    room.say(machine.hold, BOB, "wait")
    with pytest.raises(UsageError, match="may not resume"):
        room.say(machine.resume, BOB)
    with pytest.raises(UsageError, match="none of the runbook's people"):
        room.say(machine.hold, Actor("mallory"), "x")


def test_a_role_for_other_runs_is_nobodys(tmp_path: Path) -> None:
    roles = (Role(name="coordinator", person="alice", only=(RunKind.LIVE,)),)
    room = Room(tmp_path, runbook(step("a", reviewer="carol"), roles=roles, policy=Policy()))
    with pytest.raises(UsageError, match="nobody is coordinator"):
        room.say(machine.call, ALICE, "a")
