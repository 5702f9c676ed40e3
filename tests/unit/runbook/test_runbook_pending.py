"""What people are told to type: it can be typed, by whom it names, and it moves the run."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.errors import JournalError, UsageError
from migverify.runbook.actions.action import ActionResult, Outcome
from migverify.runbook.events import EventKind, RunState, StepState
from migverify.runbook.kinds import OnFail, Repeat, RunKind, StepKind
from migverify.runbook.model import Approval, Budgets, Check, Failure, Role, Rollback, Runbook
from migverify.runbook.page.view import Pulse, view
from migverify.runbook.run import machine
from migverify.runbook.run.machine import Actor
from migverify.runbook.run.pending import PendingAction, command_line, decide, next_of, pending_actions
from tests.unit.runbook_runs import (
    ALICE,
    BOB,
    CAROL,
    DANA,
    ROLES,
    Room,
    World,
    guard_of,
    is_set,
    manual,
    replace,
    runbook,
    step,
)

FAILED = ActionResult(Outcome.FAILED, "no")
BLIND = ActionResult(Outcome.NO_DATA, "nothing")


def now_of(room: Room, gone: str = "") -> tuple[PendingAction, ...]:
    return pending_actions(room.status, room.clock.now(), gone=gone)


def typed(room: Room, action: PendingAction) -> None:
    """Do what a action shows, by as many persons as it needs; a refusal fails the test."""
    own = {"REASON": "for the test", "WHAT-SHOWS-IT": "seen", "HOW-YOU-KNOW": "I looked"}
    words = [own.get(word, word) for word in shlex.split(action.command)[2:]]
    verb, rest = words[0], words[1:]
    if verb == "waive" and {"--happened", "--did-not-happen"} & set(rest):
        verb = "decide"
    person = rest.pop(rest.index("--as") + 1)
    plain = [word for word in rest if not word.startswith("--")]
    people = ["alice", "dana"] if person == "PERSON" else [person, *[p for p in action.persons if p != person]]
    for name in people[: action.several]:
        actor = Actor(name)
        made: dict[str, Callable[[Any, Any], machine.Decision]] = {
            "ack": lambda s, n, a=actor: decide(action, s, a, n, "seen"),
            "approve": lambda s, n, a=actor: decide(action, s, a, n, "go"),
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
    lambda: runbook(
        step("a", on_fail=Failure(unbounded=OnFail.SKIP)), step("b", on_fail=Failure(unbounded=OnFail.ROLLBACK))
    ),
    lambda: runbook(
        step("a", approval=Approval(minimum=1, before="both")),
        manual("m", rollback=replace(BY_HAND)),
        manual("go", kind=StepKind.DECISION, dri="decision_owner"),
        step("b", point_of_no_return="soft"),
    ),
    lambda: runbook(
        step("a", rollback=BY_HAND), step("b", expect=(is_set("never"),), on_fail=Failure(unbounded=OnFail.ROLLBACK))
    ),
)
BY_HAND = Rollback(
    effect=None, instruction="Unset it.", verify=(Check(action="world.is_not", arguments={"name": "m"}),)
)


@settings(max_examples=12, deadline=None)
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
            some = [action for action in now_of(room) if action.command]
            assert some, f"nobody has anything to do: {room.status.state} {room.status.steps}"
            typed(room, data.draw(st.sampled_from(some)))
            room.settle()


def only(room: Room) -> PendingAction:
    (found,) = now_of(room)
    return found


def test_a_step_from_call_to_review(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", approval=Approval(minimum=1, before="both"))))
    room.man()
    assert only(room).command == "migverify runbook ack a --as alice"
    room.say(machine.call, ALICE, "a")
    assert only(room).command == "migverify runbook ack a --as carol"
    assert "0 of 1 approvals" in only(room).what
    room.say(machine.approve, CAROL, "a")
    assert only(room).command == "migverify runbook ack a --as bob"
    room.say(machine.start, BOB, "a")
    room.settle()
    assert only(room).command.startswith("migverify runbook ack a --seen ")
    assert only(room).who == "carol"


def test_each_person_has_the_next_action_of_their_role_and_decisions_are_apart(tmp_path: Path) -> None:
    book = runbook(
        step("a"), manual("go", kind=StepKind.DECISION, dri="decision_owner"), step("b", point_of_no_return="soft")
    )
    room = Room(tmp_path, book)
    room.man()
    done: list[tuple[str, str, str]] = []
    while not room.status.over:
        mine = [(p, one) for p in ("alice", "bob", "carol", "dana")
                if (one := next_of(room.status, room.clock.now(), p)) is not None]  # fmt: skip
        apart = [(one.persons[0], one) for one in now_of(room) if one.verb == "approve" and not one.by_ack]
        person, action = (mine or apart)[0]
        done.append((person, action.verb, action.step))
        room.record.submit(lambda s, n, a=action, p=person: decide(a, s, Actor(p), n, "seen"))  # type: ignore[misc]
        room.settle()
    assert room.status.state is RunState.COMPLETED
    assert done == [
        ("alice", "call", "a"), ("bob", "start", "a"), ("carol", "accept", "a"), ("alice", "call", "go"),
        ("dana", "start", "go"), ("dana", "approve", "go"), ("carol", "accept", "go"), ("alice", "call", "b"),
        ("dana", "approve", "b"), ("bob", "start", "b"), ("carol", "accept", "b"),
    ]  # fmt: skip


def test_a_dri_rejects_what_did_not_work_by_hand_and_a_decision(tmp_path: Path) -> None:
    book = runbook(manual("m"), manual("go", kind=StepKind.DECISION, dri="decision_owner", needs=("m",)))
    room = Room(tmp_path, book)
    room.man()
    room.say(machine.call, ALICE, "m")
    room.say(machine.start, BOB, "m")
    with pytest.raises(UsageError, match="carol may not start or end m"):
        room.say(machine.reject, CAROL, "m", "no")
    room.say(machine.reject, BOB, "m", "it did not work")
    assert room.state("m") is StepState.FAILED
    for person in (ALICE, DANA):
        room.say(machine.waive, person, "m", "for the test")
    room.settle()
    room.say(machine.call, ALICE, "go")
    room.say(machine.start, DANA, "go")
    room.say(machine.reject, DANA, "go", "no go")
    assert (room.state("go"), room.status.steps["go"].reason) == (StepState.FAILED, "no go")


def test_who_does_not_answer_may_be_replaced(tmp_path: Path) -> None:
    roles = (ROLES[0], Role(name="db-1", person="bob", backup="dana"), ROLES[2], ROLES[3])
    room = Room(tmp_path, runbook(step("a"), roles=roles))
    room.man()
    room.say(machine.call, ALICE, "a")
    assert only(room).promote == ""
    room.later(room.status.runbook.policy.unattended_nag + 1)
    room.settle()
    assert only(room).promote == "migverify runbook handover db-1 'no answer' --as alice"
    room.say(lambda s, a, _step, n: machine.promote(s, a, n, "db-1", "no answer"), ALICE, "")
    assert only(room).command == "migverify runbook ack a --as dana"


def test_a_held_run_has_several_ways_on(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a"), step("b")))
    room.man()
    room.play("a")
    room.say(machine.hold, BOB, "look")
    held = {action.command.split()[2]: action for action in now_of(room)}
    assert set(held) == {"resume", "rollback", "abort"}
    assert all(action.choice and action.persons == ("alice", "dana") for action in held.values())


def test_an_abort_while_a_step_is_under_way_says_what_lets_the_run_be_aborted(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a"), manual("b")))
    room.man()
    room.play("a")
    room.say(machine.call, ALICE, "b")
    room.say(machine.start, BOB, "b")
    with pytest.raises(UsageError, match="under way: b; a run ends between steps") as caught:
        room.say(machine.abort, DANA, "enough")
    assert "migverify runbook reject b 'REASON'" in caught.value.hint
    assert "migverify runbook rollback 'REASON'" in caught.value.hint
    assert "hold" not in caught.value.hint
    with pytest.raises(UsageError, match="bob may not end the run"):
        room.say(machine.abort, BOB, "enough")
    room.say(machine.fail, BOB, "b", "it did not work")
    room.say(machine.abort, DANA, "enough")
    assert room.status.state is RunState.ABORTED_DIRTY


def test_an_abort_waits_for_an_effect_that_has_begun(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a"), step("b")))
    room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    assert room.executor is not None
    room.executor.tick()
    room.say(machine.hold, BOB, "look")
    with pytest.raises(UsageError, match="under way: a;") as caught:
        room.say(machine.abort, DANA, "enough")
    assert "runbook hold 'REASON'` lets nothing new begin: wait until it ends, then abort" in caught.value.hint
    assert "runbook rollback 'REASON'` ends it at once" in caught.value.hint
    assert "runbook reject" not in caught.value.hint
    room.settle()
    room.say(machine.abort, DANA, "enough")
    assert room.status.state is RunState.ABORTED_DIRTY


def test_a_step_whose_effect_a_hold_keeps_from_beginning_is_failed_before_an_abort(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a"), step("b")))
    room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    room.say(machine.hold, BOB, "look")
    room.settle()
    with pytest.raises(UsageError, match="under way: a;") as caught:
        room.say(machine.abort, DANA, "enough")
    assert caught.value.hint == "The DRI ends a by `migverify runbook reject a 'REASON'`. Then abort."
    room.say(machine.fail, BOB, "a", "not begun")
    room.say(machine.abort, DANA, "enough")
    assert room.status.state is RunState.ABORTED_CLEAN


def test_what_was_taken_back_can_be_done_again(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a"), step("b"), step("c")))
    room.man()
    room.play("a", "b")
    room.say(machine.rollback, ALICE, "once more", "b")
    room.settle()
    assert room.status.state is RunState.HELD
    resume = next(action for action in now_of(room) if " resume " in action.command)
    assert resume.what == "go on; then `retry b`"
    typed(room, resume)
    again = next(action for action in now_of(room) if action.step == "b")
    assert again.command == "migverify runbook retry b --as alice"
    typed(room, again)
    assert room.state("b") is StepState.CALLED


def test_a_guard_that_fails_needs_two(tmp_path: Path) -> None:
    guard = guard_of(
        "lag", Check(action="world.value", arguments={"name": "lag"}, maximum=5), 0.02, armed_in=("*",), on_fail="hold"
    )
    room = Room(tmp_path, runbook(step("a"), guards=(guard,)))
    executor = room.man()
    executor.watching.begin()
    for _ in range(2000):
        executor.tick()
        if room.status.state is RunState.HELD:
            break
    executor.watching.end()
    resume = next(action for action in now_of(room) if " resume " in action.command)
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
    assert [action.command.split()[2] for action in gone if not action.step] == ["handover", "run"]
    assert [duty.command.split()[2] for duty in gone if not duty.step] == ["handover", "run"]
    assert "--as bob --run r1" in gone[1].command
    room.succeed()
    room.settle()
    assert room.state("a") is StepState.UNKNOWN
    decide = next(action for action in now_of(room) if action.step)
    assert decide.command == "migverify runbook waive a --happened 'HOW-YOU-KNOW' --as 'PERSON'"
    decide = next(duty for duty in now_of(room) if duty.step)
    assert decide.command == "migverify runbook waive a --happened 'HOW-YOU-KNOW' --as 'PERSON'"
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
    named = pending_actions(room.status, room.clock.now(), " --run r1 --runs else")
    assert named[0].command == "migverify runbook run --as alice --run r1 --runs else"


@pytest.mark.parametrize("word", ["a b", "it's", "$(rm -rf /)", "a;b", "--as"])
def test_what_a_runbook_says_is_quoted(word: str) -> None:
    line = command_line("call", "x", person=word)
    assert shlex.split(line)[-1] == word


# -- inside a write stop --------------------------------------------------------------------------------------------


def stopping() -> Runbook:
    """Return a runbook with a write stop: freeze, a gate that reads, open."""
    gate = step("gate", kind=StepKind.GATE, effect=None, rollback=None, reconcile=None, expect=(is_set("calm"),))
    return runbook(
        step("freeze", write_stop="begin", repeat=Repeat.YES), gate, step("open", write_stop="end"),
        budgets=Budgets(write_stop=600),
    )  # fmt: skip


def test_a_reading_gate_inside_a_write_stop_starts_by_itself(tmp_path: Path) -> None:
    room = Room(tmp_path, stopping())
    room.world.flags = {"calm"}
    room.man()
    room.play("freeze")
    room.settle()
    assert room.state("gate") is StepState.AWAITING_REVIEW
    one = room.status.steps["gate"]
    assert (one.called_by, one.dri) == ("alice", "bob")
    room.say(machine.accept, CAROL, "gate")
    assert room.state("open") is StepState.READY  # it acts: people call and start it


def test_a_gate_outside_of_a_write_stop_waits_for_people(tmp_path: Path) -> None:
    book = stopping()
    steps = tuple(replace(one, write_stop=None) for one in book.steps)
    room = Room(tmp_path, replace(book, steps=steps))
    room.man()
    room.play("freeze")
    assert room.state("gate") is StepState.READY


@pytest.mark.attack("runbook", "a journal in which the executor starts a step that acts", "the journal is refused")
def test_the_executor_starts_nothing_that_acts(tmp_path: Path) -> None:
    room = Room(tmp_path, stopping())
    room.world.flags = {"calm"}
    executor = room.man()
    with pytest.raises(JournalError, match="only gates that read"):
        executor.write(EventKind.CALLED, "freeze")


def test_after_a_failed_gate_the_rollback_is_offered_first_then_the_waiver(tmp_path: Path) -> None:
    room = Room(tmp_path, stopping())
    room.man()
    room.play("freeze")
    room.settle()
    assert room.state("gate") is StepState.FAILED
    verbs = [action.command.split()[2] for action in now_of(room)]
    assert verbs[0] == "rollback"
    assert verbs.index("rollback") < verbs.index("waive")
    assert verbs.count("rollback") == 1


def test_a_rejected_effect_that_may_be_repeated_is_carried_out_again(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", repeat=Repeat.YES)))
    room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    room.settle()
    room.say(machine.reject, CAROL, "a", "the wrong account")
    room.settle()
    room.say(machine.resume, ALICE)
    assert any("--redo" in action.command for action in now_of(room))
    room.say(machine.retry, ALICE, "a", "once more", redo=True)
    room.say(machine.start, BOB, "a")
    room.settle()
    assert room.world.done == [("set", "a"), ("set", "a")]
    room.say(machine.accept, CAROL, "a")
    room.settle()
    assert room.state("a") is StepState.DONE


def test_an_effect_that_may_not_be_repeated_is_not_carried_out_again(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    room.settle()
    room.say(machine.reject, CAROL, "a", "the wrong account")
    room.settle()
    with pytest.raises(UsageError, match="may not be carried out twice"):
        room.say(machine.retry, ALICE, "a", "once more", redo=True)
    assert room.world.done == [("set", "a")]


def test_while_nobody_drives_a_write_stop_nothing_is_counted_down_and_a_command_is_shown(tmp_path: Path) -> None:
    room = Room(tmp_path, stopping())
    room.world.flags = {"calm"}
    room.man()
    room.play("freeze")
    room.settle()
    events = list(room.record.journal.events())
    alive = view(room.status, events, room.clock.now(), pulse=Pulse(room.clock.wall, 30.0))
    assert (alive.alarm, alive.budget.left is not None) == ("", True)
    gone = view(room.status, events, room.clock.now(), pulse=Pulse(room.clock.wall - 60, 30.0, "its machine is off"))
    assert gone.alarm == "Writes are stopped and nobody drives the run: take it over now."
    assert gone.budget.left is None
    commands = [task.command for act in gone.acts for task in act.tasks]
    assert commands[0].startswith("migverify runbook handover --takeover 'its machine is off' --as ")
    assert not any(word in command for command in commands[:2] for word in ("PERSON", "REASON", "ANOTHER"))


@pytest.mark.parametrize("verb", ["rollback", "abort", "hold", "waive", "fail", "decide"])
@pytest.mark.attack(
    "runbook", "A shown command is pasted with its word REASON, PERSON or WHAT-SHOWS-IT left in",
    "it is refused, and says which word to replace; nothing is written",
)  # fmt: skip
def test_a_command_that_is_pasted_as_shown_is_refused_with_the_word_to_replace(tmp_path: Path, verb: str) -> None:
    room = Room(tmp_path, runbook(step("a", reconcile=None)))
    room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    room.settle()
    before = room.status.seq
    steps: tuple[str, ...] = ("a",) if verb in ("waive", "fail", "decide") else ()
    more = {"happened": True} if verb == "decide" else {}
    with pytest.raises(UsageError, match="REASON is a word to be replaced: say why"):
        room.say(getattr(machine, verb), DANA, *steps, "REASON", **more)
    assert room.status.seq == before
    for person in ("PERSON", "ANOTHER"):
        with pytest.raises(UsageError, match=f"{person}. is none of the runbook's people"):
            room.say(machine.hold, Actor(person), "look")


def test_words_to_replace_are_quoted_and_a_text_in_capitals_too() -> None:
    shown = command_line("fail", "a", "REASON", "--as", "PERSON")
    assert shown == "migverify runbook fail a 'REASON' --as 'PERSON'"
    assert shlex.split(command_line("hold", "STOP; RM -RF /"))[-1] == "STOP; RM -RF /"
