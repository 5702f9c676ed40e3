"""A store that does not answer for a while, and effects that another machine may still be at."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from migverify.errors import FencedError, JournalError, StoreError
from migverify.runbook.actions.action import ActionResult, Outcome
from migverify.runbook.events import EventKind, RunState, StepState
from migverify.runbook.record.lease import LIFE, take
from migverify.runbook.run import machine
from migverify.runbook.run.executor import Executor
from tests.unit.runbook_runs import ALICE, BOB, CAROL, DANA, Room, here, runbook, step
from tests.waiting import wait_for


class Away:
    """A journal that refuses to write while ``away``; ``lost``: the database writes, and its answer is lost."""

    def __init__(self, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
        self.away = self.lost = False
        self.tried = 0
        journal: Any = room.record.journal
        self._really = journal.append
        monkeypatch.setattr(journal, "append", self.append)
        if hasattr(journal, "database"):
            self._database = journal.database
            journal.database = self

    def append(self, *args: Any, **kwargs: Any) -> Any:
        if self.away and not self.lost:
            self.tried += 1
            raise StoreError("the store is away")
        return self._really(*args, **kwargs)

    def write(self, *args: Any) -> Any:
        written = self._database.write(*args)
        if self.away:
            self.tried += 1
            raise StoreError("nobody knows whether it was written")
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


def driven(room: Room) -> threading.Thread:
    executor = room.man()
    executor._pause = 0.01
    thread = threading.Thread(target=executor.run, daemon=True)
    thread.start()
    return thread


def other(room: Room, command: Any, actor: Any, *args: Any) -> None:
    """Have a person say something from another process."""
    record = room.home.open("r1")

    def decide(status: Any, now: Any) -> Any:
        return command(status, actor, args[0], now, *args[1:])

    record.submit(decide)


@pytest.mark.parametrize("lost", [False, True])
def test_a_result_that_could_not_be_written_is_kept_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    room = Room(tmp_path, runbook(step("a")))
    away = Away(room, monkeypatch)

    def hook(what: str, _name: str) -> None:
        if what == "after set":
            away.lost, away.away = lost, True

    room.world.hook = hook
    thread = driven(room)
    other(room, machine.call, ALICE, "a")
    other(room, machine.start, BOB, "a")
    wait_for(lambda: away.tried >= 2 or (lost and away.tried), "the store is tried again")
    away.away = False
    home = room.home
    wait_for(lambda: home.open("r1").status.steps["a"].state is StepState.AWAITING_REVIEW, "the step awaits its review")
    other(room, machine.accept, CAROL, "a")
    thread.join(30)
    found = room.home.open("r1").status
    assert found.state is RunState.COMPLETED
    assert found.failed_ever == ()
    assert room.world.done == [("set", "a")]
    notes = [event for event in room.home.events("r1") if event.data.get("alarm") == "store"]
    assert notes
    assert room.home.verify("r1") == []


def test_an_intent_whose_writing_is_in_doubt_is_unknown_and_nothing_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(tmp_path, runbook(step("a")))
    executor = room.man()
    away = Away(room, monkeypatch)
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    away.away = away.lost = True
    assert executor._round() is False
    away.away = False
    assert room.state("a") is StepState.RUNNING
    assert room.status.steps["a"].intent
    executor._round()
    assert StepState.UNKNOWN in [state for _, state in room.status.failed_ever]
    assert room.world.done == []
    room.settle()  # its probe says that it did not happen
    assert room.status.steps["a"].reason == "the effect did not happen"


def test_a_store_that_stays_away_ends_the_executor_with_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(tmp_path, runbook(step("a")))
    away = Away(room, monkeypatch)
    executor = room.man()
    away.away = True
    room.clock.advance(LIFE - 1)
    with pytest.raises(StoreError, match="away"):
        executor.write(EventKind.NOTE)
    room.clock.advance(2)
    with pytest.raises(FencedError, match="could not be renewed"):
        executor._round()


def moved(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the executor's machine be lost; the next one is another."""
    room.die()
    monkeypatch.setattr("socket.gethostname", lambda: "machine-2")


def test_what_another_machine_may_still_be_at_is_decided_by_two_as_its_locks_do_not_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(tmp_path, runbook(step("a")))
    monkeypatch.setattr("socket.gethostname", lambda: "machine-1")
    executor = room.man()
    room.world.hook = lambda what, _name: threading.Event().wait() if what == "after set" else None
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    while ("set", "a") not in room.world.done:
        executor.tick()
    moved(room, monkeypatch)
    room.world.hook = lambda _what, _name: None
    room.say(machine.takeover, CAROL, "gone")
    keeper = take(room.record, "bob", reason="gone", watch=room.watch)
    room.lease, room.executor = keeper, Executor(room.record, room.world.registry(), keeper, carry=here)
    # The thread that hangs has the lock of the effect in this process; on a lost machine nothing has.
    monkeypatch.setattr("migverify.runbook.run.executor.at_work", lambda *_: [])
    room.executor.recover()
    room.settle()
    assert room.state("a") is StepState.UNKNOWN
    assert "may still run on machine-1: look there" in room.status.hold_reasons[-1]
    for actor in (ALICE, DANA):
        room.say(machine.decide, actor, "a", "no program runs there", happened=True)
    room.settle()
    assert room.state("a") is StepState.AWAITING_REVIEW
    assert room.world.done == [("set", "a")]


def test_an_undoing_that_another_machine_may_still_be_at_waits_for_its_dri(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(tmp_path, runbook(step("a"), step("b")))
    monkeypatch.setattr("socket.gethostname", lambda: "machine-1")
    executor = room.man()
    room.play("a")
    room.say(machine.rollback, DANA, "back")
    room.world.outcomes["unset a"] = [ActionResult(Outcome.OK, "")]
    executor.write(EventKind.ROLLBACK_INTENT, "a", action="world.unset", arguments={})
    moved(room, monkeypatch)
    room.succeed()
    room.settle()
    assert room.status.steps["a"].alarms == ("elsewhere",)
    assert room.status.steps["a"].rollback.value == "running"
    room.world.flags = frozenset()  # type: ignore[assignment]
    room.say(machine.done, BOB, "a", "I unset it by hand: no program runs there")
    room.settle()
    assert room.status.state is RunState.ROLLED_BACK


def test_evidence_that_no_journal_can_keep_does_not_hide_what_was_done(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    room.world.outcomes["set a"] = [ActionResult(Outcome.OK, "", evidence={"seen": float("nan"), "by": {1, 2}})]
    room.man()
    room.play("a")
    assert room.status.state is RunState.COMPLETED
    (effect,) = [event for event in room.record.journal.events() if event.kind is EventKind.EFFECT]
    assert effect.data["evidence"]["problem"].startswith("the evidence has no JSON")


def test_an_event_that_has_no_json_is_not_tried_for_ever(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    executor = room.man()
    executor.tick = lambda: bool(executor.write(EventKind.NOTE, value=float("nan")))  # type: ignore[method-assign]
    with pytest.raises(JournalError, match="has no JSON"):
        executor._round()
