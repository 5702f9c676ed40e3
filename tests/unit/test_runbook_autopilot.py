"""The autopilot: plays every role by the rules, and leaves to people what only people can say."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.errors import ConfigError, UsageError
from migverify.runbook.actions.action import ActionResult, Outcome
from migverify.runbook.actions.builtin import built_in
from migverify.runbook.events import EventKind, RollbackState, RunState, StepState
from migverify.runbook.fold.whole import verify_run
from migverify.runbook.model import Approval, Check, Guard, OnFail, Policy, Role, Rollback, RunKind, StepKind
from migverify.runbook.people import shared_logins
from migverify.runbook.record.journal import read_events
from migverify.runbook.record.lease import take
from migverify.runbook.record.run_record import RunRecord
from migverify.runbook.run.autopilot import LOGIN, PilotedExecutor, next_word, refuse_unfit, run_unattended
from migverify.runbook.state import RunStatus
from tests.unit.runbook_runs import PEOPLE, PLACE, ROLES, World, here, is_set, manual, runbook, step
from tests.unit.runbook_small import STEPS, write_small

FAILED = ActionResult(Outcome.FAILED, "no")


def fly(
    folder: Path, book: Any, world: World | None = None, kind: RunKind = RunKind.REHEARSAL, limit: float = 60.0
) -> RunStatus:
    """Have a run played to where the autopilot leaves it; with the clocks of the machine."""
    refuse_unfit(book, kind)
    record = RunRecord.create(folder, book, kind, "alice", run="r1", autopilot=True)
    executor = PilotedExecutor(
        record, (world or World()).registry(), take(record, "alice"), limit=limit, pause=0.01, carry=here
    )
    return executor.run(executor.stop)


def kinds(folder: Path) -> set[EventKind]:
    return {event.kind for event in read_events(folder / "r1" / "journal.jsonl")}


def test_a_run_is_played_to_its_end(tmp_path: Path) -> None:
    decision = manual("go", kind=StepKind.DECISION, dri="decision_owner", requires=("a",))
    both = Approval(minimum=1, before="both")
    book = runbook(step("a", approval=both), decision, step("x", only_environments=("prod",)), step("b"))
    status = fly(tmp_path, book)
    assert status.state is RunState.COMPLETED
    assert [status.steps[id_].state for id_ in ("a", "go", "x", "b")] == [
        StepState.DONE, StepState.DONE, StepState.NOT_APPLICABLE, StepState.DONE,
    ]  # fmt: skip
    assert set(shared_logins(status)) == {LOGIN}
    first = next(iter(read_events(tmp_path / "r1" / "journal.jsonl")))
    assert first.data["autopilot"] is True


def test_nobody_reviews_what_they_called(tmp_path: Path) -> None:
    roles = (ROLES[0], ROLES[1], Role("db-2", "alice", "carol"), ROLES[3])
    status = fly(tmp_path, runbook(step("a"), roles=roles))
    assert status.state is RunState.HELD
    assert "alice is coordinator of a: another person has to agree" in status.hold_reasons[0]


def test_the_decision_owner_approves_a_point_of_no_return(tmp_path: Path) -> None:
    status = fly(tmp_path, runbook(step("a", point_of_no_return="hard", rollback=None)))
    assert status.state is RunState.COMPLETED
    assert [given.person for given in status.steps["a"].approvals if given.of == "start"] == ["dana"]


def test_a_dry_run_goes_through_by_itself(tmp_path: Path) -> None:
    world = World()
    status = fly(tmp_path, runbook(step("a"), manual("m")), world, RunKind.DRY)
    assert status.state is RunState.DRY
    assert world.done == []


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
        one = step("a", expect=(Check("world.value", {"name": "nothing"}, maximum=1.0),))
    status = fly(tmp_path, runbook(one, step("b")), world)
    assert status.state is RunState.HELD
    assert status.steps["a"].state in (StepState.FAILED, StepState.INCONCLUSIVE)
    assert status.steps["b"].state is StepState.PENDING
    assert not kinds(tmp_path) & TOLD
    assert not status.executor


def test_a_skip_waits_for_two_persons(tmp_path: Path) -> None:
    world = World()
    world.outcomes["set a"] = [FAILED]
    status = fly(tmp_path, runbook(step("a", on_fail=OnFail.SKIP), step("b")), world)
    assert status.state is RunState.HELD
    assert "a is failed, and only two persons may waive it" in status.hold_reasons[0]
    assert not kinds(tmp_path) & TOLD


def test_an_effect_in_doubt_is_not_decided(tmp_path: Path) -> None:
    """An executor died between intent and end; the next one, on autopilot, finds a step that nobody knows about."""
    book = runbook(step("a", reconcile=None), step("b"))
    record = RunRecord.create(tmp_path, book, RunKind.REHEARSAL, "alice", run="r1", autopilot=True)
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


def test_not_enough_people_is_said(tmp_path: Path) -> None:
    status = fly(tmp_path, runbook(step("a", approval=Approval(minimum=3, before="done"))))
    assert status.state is RunState.HELD
    assert "a has 1 of 3 approvals" in status.hold_reasons[0]


# -- rollback and guards ----------------------------------------------------------------------------------------------


def test_a_failed_step_is_rolled_back_when_the_runbook_says_so(tmp_path: Path) -> None:
    world = World()
    world.outcomes["set b"] = [FAILED]
    status = fly(tmp_path, runbook(step("a"), step("b", on_fail=OnFail.ROLLBACK)), world)
    assert status.state is RunState.ABORTED_CLEAN
    assert world.flags == set()


@pytest.mark.parametrize("good", [True, False])
def test_a_rollback_by_hand_is_judged_by_its_checks(tmp_path: Path, good: bool) -> None:
    name = "world.is" if good else "world.is_not"
    by_hand = Rollback(None, "Unset it.", (Check(name, {"name": "a"}),))  # nobody will have unset it
    world = World()
    world.outcomes["set b"] = [FAILED]
    status = fly(tmp_path, runbook(step("a", rollback=by_hand), step("b", on_fail=OnFail.ROLLBACK)), world)
    assert status.steps["a"].rollback is (RollbackState.UNDONE_VERIFIED if good else RollbackState.UNDONE_UNVERIFIED)
    assert status.state is (RunState.ABORTED_CLEAN if good else RunState.HELD)


def guarded(**changes: Any) -> Any:
    check = Check("world.value", {"name": "lag"}, maximum=5)
    return runbook(step("a"), step("b"), guards=(Guard("lag", check, 0.02, ("*",), "hold", "hold", PLACE),), **changes)


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

    record = RunRecord.create(tmp_path, guarded(), RunKind.REHEARSAL, "alice", run="r1", autopilot=True)
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

    record = RunRecord.create(tmp_path, runbook(step("a")), RunKind.REHEARSAL, "alice", run="r1", autopilot=True)
    record.submit(lambda s, n: machine.hold(s, ERIN, n, "let me look"))
    executor = PilotedExecutor(record, World().registry(), take(record, "alice"), limit=60, pause=0.01, carry=here)
    status = executor.run(executor.stop)
    assert status.hold_reasons == ("let me look",)
    assert status.state is RunState.HELD


def test_the_limit_holds_the_run(tmp_path: Path) -> None:
    world = World()
    world.values["lag"] = 1.0
    lag = Check("world.value", {"name": "lag"}, maximum=5, for_seconds=3.0)
    book = runbook(step("a", kind=StepKind.CHECK, effect=None, rollback=None, expect=(lag,)), step("b"))
    status = fly(tmp_path, book, world, limit=1.0)
    assert status.state is RunState.HELD
    assert "the autopilot's limit of 1 s is over" in status.hold_reasons[0]
    assert status.steps["b"].state in (StepState.PENDING, StepState.READY)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_whatever_happens_it_says_only_what_it_may(data: st.DataObject) -> None:
    world = World()
    for name in ("set a", "set b", "set c", "unset a"):
        outcomes = st.sampled_from([FAILED, ActionResult(Outcome.NO_DATA, "?"), ActionResult(Outcome.OK, "!", value=1)])
        world.outcomes[name] = data.draw(st.lists(outcomes, max_size=2), label=name)
    way = data.draw(st.sampled_from([OnFail.STOP, OnFail.SKIP, OnFail.ROLLBACK]))
    retried = step("c", on_fail=OnFail.RETRY, retries=1, needs=("a",))
    book = runbook(step("a"), step("b", on_fail=way, needs=("a",)), retried)
    with tempfile.TemporaryDirectory() as folder:
        status = fly(Path(folder), book, world)
        path = Path(folder) / "r1" / "journal.jsonl"
        assert verify_run(path) == []
        for event in read_events(path):
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


def test_the_file_is_run_and_its_refusal_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_small(tmp_path, STEPS[: STEPS.index("      - id: open")])
    room = tmp_path / "runs"
    told: dict[str, Any] = {"room": room, "parameters": {"service": "pay"}, "registry": built_in(), "limit": 60.0}
    for environment, kind, error in (
        ("prod", RunKind.REHEARSAL, UsageError), ("lab", RunKind.LIVE, UsageError), ("moon", RunKind.DRY, ConfigError),
    ):  # fmt: skip
        with pytest.raises(error):
            run_unattended(path, environment=environment, kind=kind, **told)
    assert not room.exists()
    status = run_unattended(path, environment="lab", **told)
    assert status.state is RunState.COMPLETED
    assert (tmp_path / "stopped").exists()
    assert status.runbook.parameters["service"] == "pay"


def test_nothing_is_said_of_a_run_that_is_over(tmp_path: Path) -> None:
    status = fly(tmp_path, runbook(step("a"), people=PEOPLE))
    assert next_word(status, status.last) == (None, [])
