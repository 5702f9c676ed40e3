"""What people are told to type: it can be typed, by whom it names, and it moves the run."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.runbook.actions.action import ActionResult, Outcome
from migverify.runbook.events import RunState, StepState
from migverify.runbook.model import Approval, Check, Guard, OnFail, Role, Rollback, RunKind, StepKind
from migverify.runbook.run import machine
from migverify.runbook.run.duties import Duty, command_line, duties
from migverify.runbook.run.machine import Actor
from tests.unit.runbook_runs import ALICE, BOB, CAROL, PLACE, ROLES, Room, World, is_set, manual, runbook, step

FAILED = ActionResult(Outcome.FAILED, "no")
BLIND = ActionResult(Outcome.NO_DATA, "nothing")


def now_of(room: Room, gone: str = "") -> tuple[Duty, ...]:
    return duties(room.status, room.clock.now(), gone=gone)


def typed(room: Room, duty: Duty) -> None:
    """Do what a duty shows, by as many persons as it needs; a refusal fails the test."""
    words = shlex.split(duty.command)[2:]
    verb, rest = words[0], words[1:]
    seen = rest.pop(rest.index("--seen") + 1) if "--seen" in rest else ""
    person = rest.pop(rest.index("--as") + 1)
    plain = [word for word in rest if not word.startswith("--")]
    people = ["alice", "dana"] if person == "PERSON" else [person, *[p for p in duty.persons if p != person]]
    for name in people[: duty.several]:
        actor = Actor(name)
        made: dict[str, Callable[[Any, Any], machine.Decision]] = {
            "call": lambda s, n, a=actor: machine.call(s, a, plain[0], n),
            "approve": lambda s, n, a=actor: machine.approve(s, a, plain[0], n),
            "start": lambda s, n, a=actor: machine.start(s, a, plain[0], n),
            "done": lambda s, n, a=actor: machine.done(s, a, plain[0], n, plain[1]),
            "accept": lambda s, n, a=actor: machine.accept(s, a, plain[0], n, seen),
            "retry": lambda s, n, a=actor: machine.retry(s, a, plain[0], n),
            "waive": lambda s, n, a=actor: machine.waive(s, a, plain[0], n, plain[1]),
            "decide": lambda s, n, a=actor: machine.decide(s, a, plain[0], n, plain[1], happened="--happened" in rest),
            "resume": lambda s, n, a=actor: machine.resume(s, a, n, plain[0] if plain else ""),
            "rollback": lambda s, n, a=actor: machine.rollback(s, a, n, plain[0]),
            "abort": lambda s, n, a=actor: machine.abort(s, a, n, plain[0]),
        }
        room.record.submit(made[verb])


BOOKS = (
    lambda: runbook(step("a"), step("b", needs=("a",)), step("c", needs=("a",))),
    lambda: runbook(step("a", on_fail=OnFail.SKIP), step("b", on_fail=OnFail.ROLLBACK)),
    lambda: runbook(
        step("a", approval=Approval(minimum=1, before="both")), manual("m", rollback=replace(BY_HAND)),
        manual("go", kind=StepKind.DECISION, dri="decision_owner"), step("b", point_of_no_return="soft"),
    ),
    lambda: runbook(step("a", rollback=BY_HAND), step("b", expect=(is_set("never"),), on_fail=OnFail.ROLLBACK)),
)  # fmt: skip
BY_HAND = Rollback(None, "Unset it.", (Check("world.is_not", {"name": "m"}),))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_happens_what_is_shown_can_be_typed(data: st.DataObject) -> None:
    """Walk through runs at random, by nothing but the commands that are shown."""
    with tempfile.TemporaryDirectory() as folder:
        world = World()
        for name in ("set a", "set b", "unset a"):
            world.outcomes[name] = data.draw(st.lists(st.sampled_from([FAILED, BLIND]), max_size=2))
        room = Room(Path(folder), data.draw(st.sampled_from(BOOKS))(), world=world)
        room.man()
        room.settle()
        for _ in range(30):
            if room.status.over:
                return
            some = [duty for duty in now_of(room) if duty.command]
            assert some, f"nobody has anything to do: {room.status.state} {room.status.steps}"
            typed(room, data.draw(st.sampled_from(some)))
            room.settle()


def only(room: Room) -> Duty:
    (found,) = now_of(room)
    return found


def test_a_step_from_call_to_review(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", approval=Approval(minimum=1, before="both"))))
    room.man()
    assert only(room).command == "migverify runbook call a --as alice"
    room.say(machine.call, ALICE, "a")
    assert only(room).command == "migverify runbook approve a --as carol"
    assert "0 of 1 approvals" in only(room).what
    room.say(machine.approve, CAROL, "a")
    assert only(room).command == "migverify runbook start a --as bob"
    room.say(machine.start, BOB, "a")
    room.settle()
    assert only(room).command.startswith("migverify runbook accept a --seen ")
    assert only(room).who == "carol"


def test_who_does_not_answer_may_be_replaced(tmp_path: Path) -> None:
    roles = (ROLES[0], Role("db-1", "bob", "dana"), ROLES[2], ROLES[3])
    room = Room(tmp_path, runbook(step("a"), roles=roles))
    room.man()
    room.say(machine.call, ALICE, "a")
    assert only(room).promote == ""
    room.later(room.status.runbook.policy.unattended_nag + 1)
    room.settle()
    assert only(room).promote == "migverify runbook promote db-1 'no answer' --as alice"
    room.say(lambda s, a, _step, n: machine.promote(s, a, n, "db-1", "no answer"), ALICE, "")
    assert only(room).command == "migverify runbook start a --as dana"


def test_a_held_run_has_several_ways_on(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a"), step("b")))
    room.man()
    room.play("a")
    room.say(machine.hold, BOB, "look")
    held = {duty.command.split()[2]: duty for duty in now_of(room)}
    assert set(held) == {"resume", "rollback", "abort"}
    assert all(duty.choice and duty.persons == ("alice", "dana") for duty in held.values())


def test_what_was_taken_back_can_be_done_again(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a"), step("b"), step("c")))
    room.man()
    room.play("a", "b")
    room.say(machine.rollback, ALICE, "once more", "b")
    room.settle()
    assert room.status.state is RunState.HELD
    resume = next(duty for duty in now_of(room) if " resume " in duty.command)
    assert resume.what == "go on; then `retry b`"
    typed(room, resume)
    again = next(duty for duty in now_of(room) if duty.step == "b")
    assert again.command == "migverify runbook retry b --as alice"
    typed(room, again)
    assert room.state("b") is StepState.CALLED


def test_a_guard_that_fails_needs_two(tmp_path: Path) -> None:
    guard = Guard("lag", Check("world.value", {"name": "lag"}, maximum=5), 0.02, ("*",), "hold", "hold", PLACE)
    room = Room(tmp_path, runbook(step("a"), guards=(guard,)))
    executor = room.man()
    executor.watching.begin()
    for _ in range(2000):
        executor.tick()
        if room.status.state is RunState.HELD:
            break
    executor.watching.end()
    resume = next(duty for duty in now_of(room) if " resume " in duty.command)
    assert resume.several == 2
    assert "lag does not pass" in resume.what


def test_an_effect_in_doubt_is_for_two_persons(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", reconcile=None)))
    room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    assert room.executor is not None
    room.world.hook = lambda _what, _name: None
    room.executor._begin(room.status.steps["a"])
    room.die()
    gone = now_of(room, "its process has ended")
    assert [duty.command.split()[2] for duty in gone if not duty.step] == ["takeover", "run"]
    assert "--as ANOTHER --run r1" in gone[1].command
    room.succeed()
    room.settle()
    assert room.state("a") is StepState.UNKNOWN
    decide = next(duty for duty in now_of(room) if duty.step)
    assert decide.command == "migverify runbook decide a --happened HOW-YOU-KNOW --as PERSON"
    assert decide.several == 2
    typed(room, decide)
    assert room.state("a") is StepState.VERIFYING


def test_nobody_has_to_do_anything_in_a_dry_run_or_when_it_is_over(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")), RunKind.DRY)
    room.man()
    assert now_of(room) == ()
    room.settle()
    assert room.status.over
    assert now_of(room) == ()


def test_a_run_that_nobody_drives(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    assert now_of(room)[0].command == "migverify runbook run --as alice --run r1"
    named = duties(room.status, room.clock.now(), " --run r1 --runs else")
    assert named[0].command == "migverify runbook run --as alice --run r1 --runs else"


@pytest.mark.parametrize("word", ["a b", "it's", "$(rm -rf /)", "a;b", "--as"])
def test_what_a_runbook_says_is_quoted(word: str) -> None:
    line = command_line("call", "x", person=word)
    assert shlex.split(line)[-1] == word
