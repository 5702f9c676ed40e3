"""The autopilot: plays every role by the rules, and leaves to people what only people can say."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.errors import UsageError
from migverify.runbook.actions.action import ActionResult, Outcome
from migverify.runbook.events import EventKind, RollbackState, RunState, StepState
from migverify.runbook.kinds import OnFail, RunKind, StepKind
from migverify.runbook.model import Applies, Approval, Check, Failure, Policy, Rollback
from migverify.runbook.people import shared_logins
from migverify.runbook.record.lease import take
from migverify.runbook.record.run_store import RunStore
from migverify.runbook.run.autopilot import LOGIN, PilotedExecutor, next_action, refuse_unfit
from migverify.runbook.state import RunStatus
from tests.unit.runbook_runs import PEOPLE, World, guard_of, here, is_set, manual, replace, runbook, step

FAILED = ActionResult(Outcome.FAILED, "no")


def fly(
    folder: Path, book: Any, world: World | None = None, kind: RunKind = RunKind.REHEARSAL, limit: float = 60.0
) -> RunStatus:
    """Have a run played to where the autopilot leaves it; with the clocks of the machine."""
    refuse_unfit(book, kind)
    record = RunStore(folder).create(book, kind, "alice", run="r1", autopilot=True)
    executor = PilotedExecutor(
        record, (world or World()).registry(), take(record, "alice"), limit=limit, pause=0.01, carry=here
    )
    return executor.run(executor.stop)


def kinds(folder: Path) -> set[EventKind]:
    return {event.kind for event in RunStore(folder).events("r1")}


def test_a_run_is_played_to_its_end(tmp_path: Path) -> None:
    decision = manual("go", kind=StepKind.DECISION, dri="decision_owner", requires=("a",))
    both = Approval(minimum=1, before="both")
    book = runbook(step("a", approval=both), decision, step("x", only=Applies(environments=("prod",))), step("b"))
    status = fly(tmp_path, book)
    assert status.state is RunState.COMPLETED
    assert [status.steps[id_].state for id_ in ("a", "go", "x", "b")] == [
        StepState.DONE, StepState.DONE, StepState.NOT_APPLICABLE, StepState.DONE,
    ]  # fmt: skip
    assert set(shared_logins(status)) == {LOGIN}
    first = next(iter(RunStore(tmp_path).events("r1")))
    assert first.data["autopilot"] is True


def test_the_decision_owner_approves_a_point_of_no_return(tmp_path: Path) -> None:
    status = fly(tmp_path, runbook(step("a", point_of_no_return="hard", rollback=None)))
    assert status.state is RunState.COMPLETED
    assert [given.person for given in status.steps["a"].approvals if given.of == "start"] == ["dana"]


# -- what is left to people -----------------------------------------------------------------------------------------

TOLD = {EventKind.WAIVED, EventKind.RECONCILED, EventKind.APPROVED, EventKind.RESUMED, EventKind.ACCEPTED}


@pytest.mark.parametrize("bad", ["effect", "check", "no data"])
def test_what_did_not_pass_is_never_accepted(tmp_path: Path, bad: str) -> None:
    world = World()
    one = step("a")
    if bad == "effect":
        world.outcomes["set a"] = [FAILED]
    elif bad == "check":
        one = step("a", expect=(is_set("other"),))
    else:
        one = step("a", expect=(Check(action="world.value", arguments={"name": "nothing"}, maximum=1.0),))
    status = fly(tmp_path, runbook(one, step("b")), world)
    assert status.state is RunState.HELD
    assert status.steps["a"].state in (StepState.FAILED, StepState.INCONCLUSIVE)
    assert status.steps["b"].state is StepState.PENDING
    assert not kinds(tmp_path) & TOLD
    assert not status.executor


def test_a_skip_waits_for_two_persons(tmp_path: Path) -> None:
    world = World()
    world.outcomes["set a"] = [FAILED]
    status = fly(tmp_path, runbook(step("a", on_fail=Failure(unbounded=OnFail.SKIP)), step("b")), world)
    assert status.state is RunState.HELD
    assert "a is failed, and only two persons may waive it" in status.hold_reasons[0]
    assert not kinds(tmp_path) & TOLD


def test_an_effect_in_doubt_is_not_decided(tmp_path: Path) -> None:
    """An executor died between intent and end; the next one, on autopilot, finds a step that nobody knows about."""
    book = runbook(step("a", reconcile=None), step("b"))
    record = RunStore(tmp_path).create(book, RunKind.REHEARSAL, "alice", run="r1", autopilot=True)
    keeper = take(record, "alice")
    executor = PilotedExecutor(record, World().registry(), keeper, pause=0.01, carry=here)
    while record.status.steps["a"].state is not StepState.RUNNING:
        executor.tick()
    executor.write(EventKind.INTENT, "a", action="world.set", arguments={}, timeout=1.0)
    keeper.end(record)
    again = PilotedExecutor(record, World().registry(), take(record, "alice"), pause=0.01, carry=here)
    status = again.run(again.stop)
    assert status.steps["a"].state is StepState.UNKNOWN
    assert status.state is RunState.HELD
    assert not kinds(tmp_path) & {EventKind.RECONCILED, EventKind.WAIVED}


def test_a_suspiciously_short_step_is_left_to_a_reviewer(tmp_path: Path) -> None:
    one = step("a")
    status = fly(tmp_path, runbook(replace(one, times=replace(one.times, minimum=3600.0)), step("b")))
    assert status.steps["a"].state is StepState.AWAITING_REVIEW
    assert status.state is RunState.HELD
    assert "a was suspiciously short" in status.hold_reasons[0]


def test_what_is_done_by_hand_needs_a_check(tmp_path: Path) -> None:
    status = fly(tmp_path, runbook(manual("m")))
    assert status.state is RunState.HELD
    assert "m is done by hand, and no check shows whether it was" in status.hold_reasons[0]
    status = fly(tmp_path / "2", runbook(manual("m", expect=(is_set("m"),))))
    assert status.steps["m"].state is StepState.FAILED


# -- rollback and guards ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("good", [True, False])
def test_a_rollback_by_hand_is_judged_by_its_checks(tmp_path: Path, good: bool) -> None:
    name = "world.is" if good else "world.is_not"
    by_hand = Rollback(
        effect=None, instruction="Unset it.", verify=(Check(action=name, arguments={"name": "a"}),)
    )  # nobody will have unset it
    world = World()
    world.outcomes["set b"] = [FAILED]
    status = fly(
        tmp_path, runbook(step("a", rollback=by_hand), step("b", on_fail=Failure(unbounded=OnFail.ROLLBACK))), world
    )
    assert status.steps["a"].rollback is (RollbackState.UNDONE_VERIFIED if good else RollbackState.UNDONE_UNVERIFIED)
    assert status.state is (RunState.ABORTED_CLEAN if good else RunState.HELD)


def guarded(**changes: Any) -> Any:
    check = Check(action="world.value", arguments={"name": "lag"}, maximum=5)
    return runbook(
        step("a"), step("b"), guards=(guard_of("lag", check, 0.02, armed_in=("*",), on_fail="hold"),), **changes
    )


def test_a_guard_that_passes_again_lets_it_go_on(tmp_path: Path) -> None:
    world = World()
    world.values["lag"] = 1.0

    def breach(what: str, name: str) -> None:
        if (what, name) == ("after set", "a"):
            world.values["lag"] = 9.0

    world.hook = breach

    class Recovering(PilotedExecutor):
        def tick(self) -> bool:
            moved = super().tick()
            if self.status.state is RunState.HELD:
                world.values["lag"] = 1.0
            return moved

    record = RunStore(tmp_path).create(guarded(), RunKind.REHEARSAL, "alice", run="r1", autopilot=True)
    executor = Recovering(record, world.registry(), take(record, "alice"), limit=60, pause=0.01, carry=here)
    status = executor.run(executor.stop)
    assert status.state is RunState.COMPLETED
    assert status.holds == 1
    assert status.despite == frozenset()


@pytest.mark.parametrize("value", [9.0, None])
def test_a_guard_is_never_overruled(tmp_path: Path, value: float | None) -> None:
    world = World()
    world.values["lag"] = value
    status = fly(tmp_path, guarded(), world, limit=1.5)
    assert status.state is RunState.HELD
    assert world.done == []
    assert EventKind.RESUMED not in kinds(tmp_path)


def test_a_hold_by_a_person_is_not_lifted(tmp_path: Path) -> None:
    from migverify.runbook.run import machine
    from tests.unit.runbook_runs import ERIN

    record = RunStore(tmp_path).create(runbook(step("a")), RunKind.REHEARSAL, "alice", run="r1", autopilot=True)
    record.submit(lambda s, n: machine.hold(s, ERIN, n, "let me look"))
    executor = PilotedExecutor(record, World().registry(), take(record, "alice"), limit=60, pause=0.01, carry=here)
    status = executor.run(executor.stop)
    assert status.hold_reasons == ("let me look",)
    assert status.state is RunState.HELD


def test_the_limit_holds_the_run(tmp_path: Path) -> None:
    world = World()
    world.values["lag"] = 1.0
    lag = Check(action="world.value", arguments={"name": "lag"}, maximum=5, for_seconds=3.0)
    book = runbook(step("a", kind=StepKind.CHECK, effect=None, rollback=None, expect=(lag,)), step("b"))
    status = fly(tmp_path, book, world, limit=1.0)
    assert status.state is RunState.HELD
    assert "the autopilot's limit of 1 s is over" in status.hold_reasons[0]
    assert status.steps["b"].state in (StepState.PENDING, StepState.READY)


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_whatever_happens_it_says_only_what_it_may(data: st.DataObject) -> None:
    world = World()
    for name in ("set a", "set b", "set c", "unset a"):
        outcomes = st.sampled_from([FAILED, ActionResult(Outcome.NO_DATA, "?"), ActionResult(Outcome.OK, "!", value=1)])
        world.outcomes[name] = data.draw(st.lists(outcomes, max_size=2), label=name)
    way = data.draw(st.sampled_from([OnFail.STOP, OnFail.SKIP, OnFail.ROLLBACK]))
    retried = step("c", on_fail=Failure(retry=1), needs=("a",))
    book = runbook(step("a"), step("b", on_fail=Failure(unbounded=way), needs=("a",)), retried)
    with tempfile.TemporaryDirectory() as folder:
        status = fly(Path(folder), book, world)
        store = RunStore(Path(folder))
        assert store.verify("r1") == []
        for event in store.events("r1"):
            assert event.kind is not EventKind.WAIVED
            assert event.kind is not EventKind.RECONCILED or event.data["how"] == "probe"
            assert event.kind is not EventKind.APPROVED or event.data["of"] == "start"
    assert status.over or status.state is RunState.HELD
    if status.state is RunState.COMPLETED:
        assert world.flags == {"a", "b", "c"}
        assert all(one.state is StepState.DONE for one in status.steps.values())


# -- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "changes", "why"),
    [
        (RunKind.LIVE, {}, "a run of kind live is not left to the autopilot"),
        (RunKind.ROLLBACK, {}, "a run of kind rollback is not left to the autopilot"),
        (RunKind.REHEARSAL, {"production": ("staging",)}, "staging counts as production"),
        (RunKind.DRY, {"production": ("staging",)}, "staging counts as production"),
        (RunKind.REHEARSAL, {"policy": Policy(signed_approvals=True)}, "wants signed approvals"),
    ],
)
def test_refused(kind: RunKind, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        refuse_unfit(runbook(step("a"), **changes), kind)


def test_nothing_is_said_of_a_run_that_is_over(tmp_path: Path) -> None:
    status = fly(tmp_path, runbook(step("a"), people=PEOPLE))
    assert next_action(status, status.last) == ((), [])
