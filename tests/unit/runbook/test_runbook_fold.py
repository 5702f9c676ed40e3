"""The fold over whatever people say in whatever order: nothing that was written is refused when it is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migverify.errors import JournalError, UsageError
from migverify.runbook.actions.action import ActionResult, Outcome
from migverify.runbook.clock import Moment
from migverify.runbook.definition.load import load_runbook
from migverify.runbook.events import EventKind, RollbackState, RunState, StepState
from migverify.runbook.fold.table import fold
from migverify.runbook.graph import graph_of
from migverify.runbook.kinds import OnFail, Repeat, RunKind
from migverify.runbook.model import Applies, Approval, Budgets, Check, Failure, Policy, RunWindow, Sink, Times
from migverify.runbook.record.frozen import runbook_as_json, runbook_from_json
from migverify.runbook.record.journal_file import read_events, verify_run
from migverify.runbook.run import machine
from migverify.runbook.run.machine import Actor
from migverify.runbook.state import between
from migverify.store.process import boot_id
from tests.unit.runbook_places import place, saved
from tests.unit.runbook_runs import ALICE, BOB, CAROL, DANA, FakeClock, Room, guard_of, manual, replace, runbook, step

HERE = Path(__file__).parent
WORDS: list[tuple[Any, Actor, bool]] = [
    (machine.call, ALICE, True), (machine.call, ALICE, True), (machine.start, BOB, True), (machine.start, BOB, True),
    (machine.accept, CAROL, True), (machine.accept, CAROL, True), (machine.retry, ALICE, True),
    (machine.approve, CAROL, True),
    (lambda s, a, i, n: machine.done(s, a, i, n, "seen"), BOB, True),
    (lambda s, a, i, n: machine.reject(s, a, i, n, "no"), CAROL, True),
    (lambda s, a, i, n: machine.waive(s, a, i, n, "ok"), ALICE, True),
    (lambda s, a, i, n: machine.waive(s, a, i, n, "ok"), DANA, True),
    (lambda s, a, i, n: machine.decide(s, a, i, n, "ok", happened=True), ALICE, True),
    (lambda s, a, i, n: machine.decide(s, a, i, n, "ok", happened=True), DANA, True),
    (lambda s, a, n: machine.hold(s, a, n, "wait"), BOB, False),
    (lambda s, a, n: machine.resume(s, a, n), ALICE, False),
    (lambda s, a, n: machine.rollback(s, a, n, "back", to="a"), DANA, False),
    (lambda s, a, n: machine.rollback(s, a, n, "back"), ALICE, False),
]  # fmt: skip
DIE = len(WORDS)
FAULTS = [ActionResult(Outcome.FAILED, "x"), ActionResult(Outcome.NO_DATA, "x"), ActionResult(Outcome.TIMED_OUT, "x")]


def eventful() -> Any:
    return runbook(
        step("a", on_fail=Failure(retry=1), repeat=Repeat.YES),
        manual("m", approval=Approval(before="both")),
        step("b", on_fail=Failure(unbounded=OnFail.SKIP), phase="q"),
        step("c", phase="q", needs=("m",), on_fail=Failure(unbounded=OnFail.ROLLBACK)),
    )


@given(
    st.lists(st.tuples(st.integers(0, DIE), st.sampled_from(["a", "m", "b", "c"])), max_size=40),
    st.lists(st.sampled_from(["set a", "set b", "set c", "unset a", "unset b"]), max_size=4),
    st.randoms(use_true_random=False),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_prefix_of_every_run_folds_and_folds_in_parts(
    tmp_path_factory: pytest.TempPathFactory, said: list[tuple[int, str]], faults: list[str], random: Any
) -> None:
    room = Room(tmp_path_factory.mktemp("walk"), eventful())
    for fault in faults:
        room.world.outcomes.setdefault(fault, []).append(random.choice(FAULTS))
    room.man()
    for number, id_ in said:
        if room.status.over:
            break
        if number == DIE:
            room.settle()
            room.die()
            room.succeed()
            continue
        word, actor, of_step = WORDS[number]
        try:
            room.record.submit(lambda s, n, w=word, a=actor, i=id_, o=of_step: w(s, a, i, n) if o else w(s, a, n))  # type: ignore[misc]
        except UsageError:
            continue
        room.settle()
    path = saved(room.record)
    assert verify_run(path) == []
    events = list(read_events(path))
    whole = fold(events)
    assert whole == room.status
    status = None
    for event in events:
        status = fold([event], status)
        assert status is not None
        assert_sound(status)
    assert status == whole
    cut = random.randint(1, len(events))
    assert fold(events[cut:], fold(events[:cut])) == whole
    sets = [name for what, name in room.world.done if what == "set"]
    for id_ in ("b", "c"):  # may not be repeated: once for every time it was undone, and once
        undone = room.world.done.count(("unset", id_))
        assert sets.count(id_) <= 1 + undone + sum(fault == f"set {id_}" for fault in faults)


def assert_sound(status: Any) -> None:
    """What holds in every state of every run."""
    done = (StepState.DONE, StepState.WAIVED, StepState.DRY)
    for id_, one in status.steps.items():
        waits = sum(status.steps[need].state not in done for need in status.graph.needs[id_])
        assert status.left[id_] == waits
        if one.state is StepState.PENDING:
            assert waits
        if one.rollback in (RollbackState.ARMED, RollbackState.EXPIRED, RollbackState.RUNNING):
            assert one.order >= 0
        if one.effect_done:
            assert one.intent
    assert status.undecided == sum(one.state not in (*done, StepState.NOT_APPLICABLE) for one in status.steps.values())
    assert (status.held_since is not None) == (status.state is RunState.HELD)
    if status.state is RunState.COMPLETED:
        assert not status.undecided


def test_ten_thousand_steps_fold_to_the_same_as_they_ran(tmp_path: Path) -> None:
    # The time is a benchmark's; here it has to be right, and not quadratic enough to be noticed.
    steps = [manual(f"s{number}", phase=f"p{number // 500}", reviewer=None) for number in range(1500)]
    room = Room(tmp_path, runbook(*steps))
    assert fold(list(read_events(saved(room.record)))) == room.status
    assert len(room.status.graph.needs) == 1500


def test_a_fold_without_events_is_nothing() -> None:
    assert fold([]) is None


def test_a_runbook_comes_back_from_its_json() -> None:
    book = runbook(
        step(
            "a",
            times=Times(plan=1, maximum=2, minimum=0.5),
            only=Applies(runs=(RunKind.LIVE, RunKind.DRY)),
            write_stop="begin",
        ),
        manual("m", approval=Approval(minimum=2, excluded=("dri", "coordinator"), before="both")),
        guards=(
            guard_of(
                "g",
                Check(action="x", arguments={"a": [1, {"b": None}]}, maximum=3),
                5.0,
                armed_in=("*",),
                on_fail="hold",
            ),
        ),
        budgets=Budgets(write_stop=180.0, decision_by=6600.0),
        window=RunWindow(opens=1.0, closes=2.0),
        sinks=(Sink(name="s", kind="webhook", arguments={"url_env": "HOOK"}),),
        rollback_when=(Check(action="y", equals="1"),),
        values={"service": "pay"},
        policy=Policy(signed_approvals=True),
    )
    assert runbook_from_json(runbook_as_json(book)) == book
    for broken in ({}, [], runbook_as_json(book) | {"surprise": 1}, runbook_as_json(book) | {"kind": "party"}):
        with pytest.raises(JournalError, match="cannot be read"):
            runbook_from_json(broken)


def test_a_runbook_that_an_earlier_release_recorded_is_the_same_runbook() -> None:
    recorded = json.loads((HERE / "earlier_release.json").read_text())
    book = load_runbook(HERE / "earlier_release.yaml", {}, "staging")
    steps = [replace(one, place=None) for one in book.steps]
    earlier = runbook_from_json(recorded)
    assert [replace(one, place=None) for one in earlier.steps] == steps
    assert earlier.phase_ids == book.phase_ids
    assert replace(earlier, phases=()) == replace(book, phases=(), parameters={})
    for broken in ({**recorded, "surprise": 1}, {**recorded, "steps": 1}, {**recorded, "guards": [{"id": "x"}]}):
        with pytest.raises(JournalError, match="cannot be read"):
            runbook_from_json(broken)


def test_needs_across_what_does_not_apply_keep_their_order() -> None:
    book = runbook(
        step("a"),
        step("x", only=Applies(environments=("prod",))),
        step("y", only=Applies(environments=("prod",))),
        step("b"),
    )
    graph = graph_of(book, RunKind.LIVE)
    assert graph.needs["b"] == ("a",)
    assert set(graph.not_applicable) == {"x", "y"}
    assert graph.dependents["a"] == ("b",)


def test_a_phase_begins_when_the_one_before_has_passed() -> None:
    book = runbook(step("a"), step("b", needs=("a",)), step("c", needs=("a",)), step("d", phase="q"))
    assert graph_of(book, RunKind.LIVE).needs["d"] == ("b", "c")


def test_steps_that_wait_for_each_other_are_refused() -> None:
    for book in (runbook(step("a", needs=("b",)), step("b")), runbook(step("a", needs=("z",)))):
        with pytest.raises(JournalError):
            graph_of(book, RunKind.LIVE)


def test_durations_are_monotonic_within_a_boot_and_flagged_otherwise() -> None:
    first, then = Moment(100.0, 10**9, "b1"), Moment(50.0, 4 * 10**9, "b1")
    assert (between(first, then).seconds, between(first, then).exact) == (3.0, True)
    other = Moment(160.0, 5, "b2")
    assert (between(first, other).seconds, between(first, other).exact) == (60.0, False)
    assert between(other, first).seconds == 0.0


def test_a_wall_clock_that_jumps_is_flagged_and_changes_no_duration(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(manual("m"), step("b")))
    room.say(machine.call, ALICE, "m")
    room.say(machine.start, BOB, "m")
    room.clock.wall -= 3600
    room.clock.advance(7)
    room.say(machine.done, BOB, "m", "seen")
    (jump,) = room.status.jumps
    assert -3601 < jump.seconds < -3599
    span = room.status.active_time("m", room.clock.now())
    assert span is not None
    assert span.exact
    assert 7 <= span.seconds < 8


def test_people_on_another_machine_act_by_their_own_clock(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(manual("m"), step("b")))
    elsewhere = FakeClock(wall=room.clock.wall + 2, mono=3, boot="boot-2")
    other = place(tmp_path, elsewhere).open("r1")
    other.submit(lambda s, n: machine.call(s, ALICE, "m", n))
    room.say(machine.start, BOB, "m")
    assert room.state("m") is StepState.RUNNING
    assert room.status.jumps == ()
    elsewhere.advance(60)
    other.submit(lambda s, n: machine.done(s, BOB, "m", n, "seen"))
    events = list(read_events(saved(room.record)))
    assert events[-1].kind is EventKind.EFFECT
    span = other.status.active_time("m", elsewhere.now())
    assert span is not None
    assert not span.exact


def test_a_time_namespace_has_a_clock_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its monotonic clock may be days ahead of the machine's: moments of both are compared by the wall clock."""
    here = boot_id()
    monkeypatch.setattr(Path, "readlink", lambda _: Path("time:[4026532000]"))
    inside = boot_id()
    assert inside != here
    assert inside.endswith(" time:[4026532000]")
