"""What holds a run besides its guards, and who may act when somebody does not answer."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from migverify.errors import JournalError, StoreError, UsageError
from migverify.runbook import conditions, people
from migverify.runbook.actions.action import ActionResult, Outcome
from migverify.runbook.events import EventKind, RunState, StepState
from migverify.runbook.kinds import RunKind, StepKind
from migverify.runbook.model import Applies, Budgets, Check, Role, Runbook, RunWindow
from migverify.runbook.record.chain import Draft
from migverify.runbook.record.lease import take
from migverify.runbook.run import machine
from migverify.runbook.run.executor import Executor
from tests.unit.runbook_runs import (
    ALICE,
    BOB,
    CAROL,
    DANA,
    ERIN,
    ROLES,
    FakeClock,
    Room,
    draft,
    guard_of,
    here,
    manual,
    replace,
    runbook,
    step,
)
from tests.waiting import PATIENCE

NOW = FakeClock().wall
READY = (True, ())


def live(folder: Path, book: Runbook, readiness: Any = lambda _book: READY, kind: RunKind = RunKind.LIVE) -> Room:
    room = Room(folder, book, kind)
    man(room, "alice", readiness)
    return room


def man(room: Room, person: str, readiness: Any, reason: str = "") -> None:
    room.lease = take(room.record, person, reason=reason, watch=room.watch)
    room.executor = Executor(room.record, room.world.registry(), room.lease, readiness=readiness, carry=here)
    room.executor.recover()
    room.settle()


def go_on(room: Room, reason: str = "we know") -> None:
    for actor in (ALICE, DANA):
        assert room.status.state is RunState.HELD
        room.say(machine.resume, actor, reason)
    assert room.status.state is RunState.RUNNING


# -- readiness ------------------------------------------------------------------------------------------------------


def broken(_book: Runbook) -> Any:
    raise StoreError("the journals cannot be read")


@pytest.mark.parametrize(
    ("readiness", "state", "text"),
    [
        (lambda _book: (False, ("2 of 4 drills", "the last one was not clean")), "fail",
         "not ready: 2 of 4 drills; the last one was not clean"),
        (lambda _book: (False, ()), "fail", "not ready: no reason was given"),
        (lambda _book: (True, ("a reason all the same",)), "fail", "not ready: a reason all the same"),
        (None, "inconclusive", "nobody could tell whether the run is ready"),
        (broken, "inconclusive", "it is not known whether the run is ready: the journals cannot be read"),
    ],
)  # fmt: skip
def test_a_live_run_that_is_not_known_to_be_ready_begins_held(
    tmp_path: Path, readiness: Any, state: str, text: str
) -> None:
    room = live(tmp_path, runbook(step("a")), readiness)
    assert room.status.state is RunState.HELD
    assert room.status.hold_guards == ("readiness",)
    assert room.status.guards["readiness"].state == state
    assert room.status.hold_reasons == (f"readiness: {text}",)
    with pytest.raises(UsageError, match="the run is held"):
        room.say(machine.call, ALICE, "a")
    go_on(room)
    assert room.status.despite == {"readiness"}
    room.play("a")
    assert room.status.state is RunState.COMPLETED
    resumed = [event for event in room.record.journal.events() if event.kind is EventKind.RESUMED]
    assert [(event.data["despite"], event.data["by"]) for event in resumed] == [(["readiness"], ["alice", "dana"])]
    assert room.home.verify("r1") == []


def test_a_live_run_that_is_ready_goes_on_and_says_so(tmp_path: Path) -> None:
    room = live(tmp_path, runbook(step("a")))
    assert room.status.state is RunState.RUNNING
    assert room.status.guards["readiness"].state == "pass"
    room.play("a")
    assert room.status.state is RunState.COMPLETED


def test_nothing_is_called_in_a_live_run_before_an_executor_has_asked(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")), RunKind.LIVE)
    with pytest.raises(UsageError, match="nobody knows that the run is ready: no executor has asked"):
        room.say(machine.call, ALICE, "a")
    man(room, "alice", lambda _book: READY)
    room.say(machine.call, ALICE, "a")


@pytest.mark.parametrize("kind", [RunKind.REHEARSAL, RunKind.DRY])
def test_other_runs_do_not_ask(tmp_path: Path, kind: RunKind) -> None:
    room = live(tmp_path, runbook(step("a"), window=RunWindow(opens=NOW + 500, closes=NOW + 900)), broken, kind)
    assert room.status.state is (RunState.DRY if kind is RunKind.DRY else RunState.RUNNING)
    assert room.status.guards == {}


def test_the_next_executor_asks_again_and_then_one_person_may_go_on(tmp_path: Path) -> None:
    room = live(tmp_path, runbook(step("a")), None)
    room.die()
    room.say(machine.takeover, CAROL, "gone")
    man(room, "bob", lambda _book: READY, "gone")
    assert room.status.state is RunState.HELD
    room.say(machine.resume, ALICE)
    assert room.status.state is RunState.RUNNING


def test_an_executor_that_went_between_the_answer_and_the_hold_changes_nothing(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")), RunKind.LIVE)
    room.man()
    told = {"guard": "readiness", "state": "fail", "text": "2 of 4 drills", "value": None, "asked": 1, "due": 1}
    assert room.lease is not None
    room.record.write(
        lambda s, _n: [draft(EventKind.GUARD, s.executor, role="executor", **told)], epoch=room.lease.epoch
    )
    with pytest.raises(UsageError, match="nobody knows that the run is ready: 2 of 4 drills"):
        room.say(machine.call, ALICE, "a")
    room.die()
    room.succeed()
    room.settle()
    assert room.status.hold_guards == ("readiness",)


# -- window ---------------------------------------------------------------------------------------------------------


def test_a_live_run_before_its_window_begins_held(tmp_path: Path) -> None:
    room = live(tmp_path, runbook(step("a"), step("b"), window=RunWindow(opens=NOW + 100, closes=NOW + 200)))
    assert room.status.hold_guards == ("window",)
    assert "the window opens in 100 s" in room.status.hold_reasons[0]
    room.say(machine.resume, ALICE, "early")
    assert room.status.state is RunState.HELD  # one person is not enough
    room.later(101)
    room.settle()
    assert room.status.guards["window"].state == "pass"
    assert room.status.state is RunState.HELD  # nothing goes on by itself
    room.say(machine.resume, ALICE)
    room.play("a")
    assert room.state("a") is StepState.DONE


def test_a_run_is_held_when_its_window_closes_and_two_may_go_on(tmp_path: Path) -> None:
    room = live(tmp_path, runbook(step("a"), manual("m"), step("b"), window=RunWindow(opens=NOW - 1, closes=NOW + 100)))
    room.play("a")
    room.say(machine.call, ALICE, "m")
    room.later(100)
    # No executor has looked yet, and the window binds people all the same.
    with pytest.raises(UsageError, match="the window has been closed"):
        room.say(machine.start, BOB, "m")
    room.settle()
    assert room.status.state is RunState.HELD
    assert room.status.hold_guards == ("window",)
    go_on(room, "ten minutes more")
    room.say(machine.hold, BOB, "a moment")
    room.say(machine.resume, ALICE)  # this hold was not the window's: one person ends it, and the overruling stands
    room.say(machine.start, BOB, "m")
    room.say(machine.done, BOB, "m", "seen")
    room.settle()
    room.say(machine.accept, CAROL, "m")
    room.play("b")
    assert room.status.state is RunState.COMPLETED
    assert room.status.holds == 2


def test_who_overruled_the_window_before_it_opened_is_held_when_it_closes(tmp_path: Path) -> None:
    room = live(tmp_path, runbook(step("a"), window=RunWindow(opens=NOW + 100, closes=NOW + 200)))
    go_on(room, "early")
    room.later(101)
    room.settle()
    assert room.status.state is RunState.RUNNING
    assert room.status.despite == frozenset()
    room.later(100)
    room.settle()
    assert room.status.hold_guards == ("window",)


def test_a_rollback_outside_the_window_goes_on(tmp_path: Path) -> None:
    room = live(tmp_path, runbook(step("a"), step("b"), window=RunWindow(opens=NOW - 1, closes=NOW + 100)))
    room.play("a")
    room.later(100)
    room.settle()
    room.say(machine.rollback, DANA, "we are late")
    room.settle()
    assert room.status.state is RunState.ROLLED_BACK


# -- rules that call for a rollback ---------------------------------------------------------------------------------


def ruled(**changes: Any) -> Runbook:
    rule = Check(action="world.value", arguments={"name": "errors"}, maximum=1)
    return runbook(step("a"), step("b"), step("c"), rollback_when=(replace(rule, **changes),))


def wait_until(room: Room, condition: Any) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, "it did not come"
        assert room.executor is not None
        room.executor.tick()
        time.sleep(0.005)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "RULE_SECONDS", 0.01)


@pytest.mark.parametrize("value", [5.0, float("nan")])
@pytest.mark.usefixtures("eager")
def test_a_rule_that_trips_holds_the_run_and_names_who_decides(tmp_path: Path, value: Any) -> None:
    room = Room(tmp_path, ruled())
    room.world.values["errors"] = value
    executor = room.man()
    executor.watching.begin()
    room.settle()
    assert room.status.state is RunState.RUNNING  # nothing stands that could be taken back
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    wait_until(room, lambda: room.status.state is RunState.HELD)
    assert room.status.hold_guards == ("rollback-when-1",)
    (reason,) = room.status.hold_reasons
    assert reason.endswith("; dana (decision owner) decides about a rollback")
    assert room.status.order is None
    room.say(machine.resume, ALICE, "I know better")
    assert room.status.state is RunState.HELD
    wait_until(room, lambda: room.state("a") is StepState.AWAITING_REVIEW)
    room.say(machine.rollback, DANA, "too many errors")
    wait_until(room, lambda: room.status.over)
    assert room.status.state is RunState.ROLLED_BACK
    executor.watching.end()
    assert room.home.verify("r1") == []


def test_without_a_decision_owner_the_coordinator_decides(tmp_path: Path) -> None:
    room = Room(
        tmp_path,
        runbook(step("a"), roles=(*ROLES[:3], Role(name="decision_owner", person="dana", only=(RunKind.LIVE,)))),
    )
    assert conditions.who_decides(room.status) == "alice (coordinator)"


@pytest.mark.parametrize("id_", ["window", "rollback-when-1"])
def test_a_guard_may_not_have_the_id_of_one_of_these(tmp_path: Path, id_: str) -> None:
    guard = guard_of(
        id_, Check(action="world.value", arguments={"name": "x"}, maximum=1), 1.0, armed_in=("*",), on_fail="hold"
    )
    with pytest.raises(JournalError, match=f"guard {id_}: the executor has one"):
        Room(tmp_path, replace(ruled(), guards=(guard,)))


# -- the decision ---------------------------------------------------------------------------------------------------


def test_a_decision_that_is_late_holds_the_run(tmp_path: Path) -> None:
    decision = step("go", kind=StepKind.DECISION, effect=None, dri="decision_owner", rollback=None, expect=())
    room = Room(tmp_path, runbook(step("a"), decision, step("b"), budgets=Budgets(decision_by=60)))
    room.man()
    room.play("a")
    room.later(61)
    room.settle()
    assert room.status.hold_guards == ("decision-by",)
    assert room.status.hold_reasons[0].startswith("no decision 61 s after the start, and 60 s were the limit")
    assert room.status.hold_reasons[0].endswith("dana (decision owner) decides")
    go_on(room, "we decide within five minutes")
    room.die()
    room.succeed()
    room.settle()
    assert room.status.state is RunState.RUNNING
    room.say(machine.call, ALICE, "go")
    room.say(machine.start, DANA, "go")
    room.say(machine.done, DANA, "go", "all gates passed")
    room.settle()
    room.say(machine.accept, CAROL, "go")
    room.play("b")
    assert room.status.state is RunState.COMPLETED


def test_a_decision_in_time_holds_nothing(tmp_path: Path) -> None:
    decision = step("go", kind=StepKind.DECISION, effect=None, dri="decision_owner", rollback=None, expect=())
    room = Room(tmp_path, runbook(decision, step("b"), budgets=Budgets(decision_by=60)))
    room.man()
    room.say(machine.call, ALICE, "go")
    room.say(machine.start, DANA, "go")
    room.say(machine.done, DANA, "go", "all gates passed")
    room.settle()
    room.say(machine.accept, CAROL, "go")
    room.later(61)
    room.settle()
    assert room.status.state is RunState.RUNNING


@pytest.mark.parametrize("last", [step("b", point_of_no_return="soft"), step("b")])
def test_without_a_decision_a_point_of_no_return_or_the_end_is_the_limit(tmp_path: Path, last: Any) -> None:
    room = Room(tmp_path, runbook(step("a"), last, budgets=Budgets(decision_by=60)))
    room.man()
    room.play("a")
    room.later(61)
    room.settle()
    assert room.status.hold_guards == ("decision-by",)


# -- the write stop -------------------------------------------------------------------------------------------------


def test_a_spent_write_stop_with_an_effect_in_doubt_holds_the_run_and_names_it(tmp_path: Path) -> None:
    book = runbook(step("freeze", write_stop="begin"), step("b", reconcile=None), budgets=Budgets(write_stop=20))
    room = Room(tmp_path, book)
    executor = room.man()
    room.play("freeze")
    room.say(machine.call, ALICE, "b")
    room.say(machine.start, BOB, "b")
    executor.write(EventKind.INTENT, "b", action="world.set", arguments={"name": "b"})
    room.die()
    room.succeed()
    room.settle()
    assert room.state("b") is StepState.UNKNOWN
    assert "write-stop" in room.status.hold_guards
    assert "nobody knows whether the effect of b happened" in " ".join(room.status.hold_reasons)
    assert room.world.done == [("set", "freeze")]
    for actor in (ALICE, CAROL):
        room.say(machine.decide, actor, "b", "looked", happened=False)
    room.say(machine.rollback, DANA, "we are over the budget")
    room.settle()
    assert room.status.state is RunState.ROLLED_BACK


def test_a_canceling_whose_rollback_failed_holds_and_does_not_begin_again(tmp_path: Path) -> None:
    book = runbook(step("freeze", write_stop="begin"), step("b"), budgets=Budgets(write_stop=20))
    room = Room(tmp_path, book)
    room.man()
    room.play("freeze")
    room.world.outcomes["unset freeze"] = [ActionResult(Outcome.FAILED, "refused")]
    room.later(21)
    room.settle()
    assert room.status.state is RunState.HELD
    assert "write-stop" in room.status.hold_guards
    room.die()
    room.succeed()
    room.settle()
    assert room.world.done == [("set", "freeze"), ("unset", "freeze")]


# -- backups --------------------------------------------------------------------------------------------------------


def test_a_backup_acts_only_after_a_promotion(tmp_path: Path) -> None:
    roles = (
        *ROLES[:1],
        Role(name="db-1", person="bob", backup="erin"),
        Role(name="db-2", person="carol", backup="dana"),
        ROLES[3],
    )
    room = Room(tmp_path, runbook(step("a"), step("b"), roles=roles))
    room.man()
    room.say(machine.call, ALICE, "a")
    with pytest.raises(UsageError, match=r"erin may not start or end a: that is for db-1 \(bob\)"):
        room.say(machine.start, ERIN, "a")
    with pytest.raises(UsageError, match="say why"):
        room.say(machine.promote, ALICE, "db-1", " ")
    room.say(machine.promote, ALICE, "db-1", "bob does not answer")
    with pytest.raises(UsageError, match=r"that is for db-1 \(erin\)"):
        room.say(machine.start, BOB, "a")
    room.say(machine.start, ERIN, "a")
    room.settle()
    room.say(machine.promote, ALICE, "db-2", "carol does not answer")
    with pytest.raises(UsageError, match="carol may not review a"):
        room.say(machine.accept, CAROL, "a")
    room.say(machine.accept, DANA, "a")
    assert room.status.promotions == (("db-1", "erin"), ("db-2", "dana"))
    (event, _) = [one for one in room.record.journal.events() if one.kind is EventKind.PROMOTED]
    assert (event.actor, event.data["role"], event.data["reason"]) == ("alice", "db-1", "bob does not answer")
    room.say(machine.promote, ALICE, "db-1", "bob is back", "bob")
    assert room.status.cast.holders("db-1") == ("bob",)
    assert room.home.verify("r1") == []


def test_a_coordinator_who_does_not_answer_is_replaced_by_two(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    room.say(machine.promote, BOB, "coordinator", "alice does not answer")
    room.say(machine.promote, BOB, "coordinator", "alice does not answer")
    assert room.status.cast.holders("coordinator") == ("alice",)
    room.say(machine.promote, ERIN, "coordinator", "alice does not answer")  # the backup herself may be one of the two
    assert room.status.cast.holders("coordinator") == ("erin",)
    with pytest.raises(UsageError, match="alice may not call"):
        room.say(machine.call, ALICE, "a")
    room.say(machine.call, ERIN, "a")


def test_nobody_promotes_themselves_alone_or_somebody_undeclared(tmp_path: Path) -> None:
    roles = (*ROLES[:3], Role(name="decision_owner", person="dana", backup="alice"))
    room = Room(tmp_path, runbook(step("a"), roles=roles))
    room.say(machine.promote, ALICE, "decision_owner", "dana sleeps")
    assert room.status.cast.holders("decision_owner") == ("dana",)
    for role, person, why in (
        ("db-1", "erin", "neither holder nor backup"),
        ("db-1", "", "db-1 has no backup"),
        ("nobody", "", "there is no role nobody"),
        ("decision_owner", "dana", "is dana's already"),
    ):
        with pytest.raises(UsageError, match=why):
            room.say(machine.promote, ALICE, role, "x", person)
    told = {"role": "decision_owner", "person": "alice", "reason": "x", "by": ["alice", "alice"]}
    with pytest.raises(JournalError, match="two different persons have to agree"):
        room.record.write(lambda _s, _n: [Draft(EventKind.PROMOTED, "alice", data=told)])
    with pytest.raises(UsageError, match="none of the runbook's people"):
        room.say(machine.promote, replace(ALICE, name="mallory"), "decision_owner", "x")


def test_a_promotion_never_lets_one_person_do_and_review(tmp_path: Path) -> None:
    roles = (
        *ROLES[:1],
        Role(name="db-1", person="bob", backup="erin"),
        Role(name="db-2", person="carol", backup="bob"),
        ROLES[3],
    )
    room = Room(tmp_path, runbook(manual("m"), step("b"), roles=roles))
    room.man()
    room.say(machine.call, ALICE, "m")
    room.say(machine.start, BOB, "m")
    room.say(machine.promote, ALICE, "db-1", "bob has to go")
    room.say(machine.done, ERIN, "m", "seen")
    room.settle()
    room.say(machine.promote, ALICE, "db-2", "carol does not answer")
    assert room.status.steps["m"].hands == {"bob", "erin"}
    with pytest.raises(UsageError, match="bob is dri of m"):
        room.say(machine.accept, BOB, "m")
    room.say(machine.promote, ALICE, "db-2", "she is back", "carol")
    room.say(machine.accept, CAROL, "m")


# -- roles for some kinds of runs -----------------------------------------------------------------------------------


def test_in_a_run_without_their_role_the_coordinator_stands_in_as_dri(tmp_path: Path) -> None:
    roles = (*ROLES[:3], Role(name="decision_owner", person="dana", only=(RunKind.LIVE,)))
    decision = step("go", kind=StepKind.DECISION, effect=None, dri="decision_owner", rollback=None, expect=())
    room = Room(tmp_path, runbook(decision, roles=roles))
    room.man()
    assert people.doers(room.status, decision) == ("alice",)
    room.say(machine.call, ALICE, "go")
    with pytest.raises(UsageError, match="dana may not start or end go"):
        room.say(machine.start, DANA, "go")
    room.say(machine.start, ALICE, "go")
    room.say(machine.done, ALICE, "go", "all gates passed")
    room.settle()
    room.say(machine.accept, CAROL, "go")
    assert room.status.state is RunState.RUNNING
    room.settle()
    assert room.status.state is RunState.COMPLETED


def test_a_run_in_which_nobody_may_review_a_step_does_not_begin(tmp_path: Path) -> None:
    roles = (*ROLES[:2], Role(name="db-2", person="carol", only=(RunKind.LIVE,)), ROLES[3])
    with pytest.raises(JournalError, match="nobody is db-2 in a run of kind rehearsal"):
        Room(tmp_path, runbook(step("a"), roles=roles))
    Room(tmp_path, runbook(step("a", only=Applies(runs=(RunKind.LIVE,))), step("b", reviewer="carol"), roles=roles))
