"""Runs that are over, made through the real journal and the real rules: for tests of what is computed from them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from migverify.config.settings import ReadinessFloor
from migverify.runbook.events import Event, EventKind, RollbackState, RunState, StepState
from migverify.runbook.history.past import Past, PastRun, past_runs
from migverify.runbook.history.readiness import Readiness, readiness
from migverify.runbook.kinds import RunKind, StepKind
from migverify.runbook.model import DrCases, Policy, Runbook, Step
from migverify.runbook.record.chain import Draft
from migverify.runbook.record.run_record import RunRecord
from migverify.runbook.record.run_store import RunStore
from migverify.runbook.run import machine
from migverify.runbook.run.machine import Actor, steps_to_undo
from tests.unit.runbook_runs import ALICE, BOB, CAROL, DANA, FakeClock, replace, runbook, step

DAY = 86_400.0
START = 1_800_000_000.0
NOW = START + 30 * DAY
SCHEMA = "f" * 64
PASS = {"action": "world.is", "state": "pass", "text": "asked", "value": True, "evidence": {}}
FAIL = PASS | {"state": "fail"}


NO_FLOOR = ReadinessFloor(
    drills_min=0,
    clean_last=0,
    same_runbook=False,
    same_schema=False,
    full_cast_last=False,
    rollback_drills_min=0,
    max_age_days=1000.0,
)


def at_home(actor: Actor) -> Actor:
    """Return an actor who acts from a machine of their own, unless another login is said."""
    return actor if actor.login else replace(actor, login=f"{actor.name}@laptop-of-{actor.name}")


class Drill:
    """One run, with all that its people and its executor say."""

    def __init__(
        self, room: Path, book: Runbook, run: str, *, day: float = 0, kind: RunKind = RunKind.REHEARSAL,
        fingerprint: str = SCHEMA, autopilot: bool = False,
    ) -> None:  # fmt: skip
        self.clock = FakeClock(wall=START + day * DAY, boot=f"boot of {run}")
        self.record = RunStore(room, clock=self.clock).create(
            book, kind, "alice", run=run, schema_fingerprint=fingerprint, autopilot=autopilot
        )
        lease = {"epoch": 1, "person": "alice", "host": "h", "boot": "b", "process": "1"}
        self.record.write(lambda _s, _n: [Draft(EventKind.LEASE, "executor-1", "executor", data=lease)])

    @property
    def status(self) -> Any:
        return self.record.status

    def told(self, kind: EventKind, id_: str = "", **data: Any) -> Event:
        """Have the executor write something."""

        def decide(status: Any, _now: Any) -> list[Draft]:
            attempt = status.steps[id_].attempt + (kind is EventKind.RETRIED) if id_ else 0
            return [Draft(kind, "executor-1", "executor", id_, attempt, data)]

        return self.record.write(decide, epoch=1)[0]

    def say(self, command: Callable[..., machine.Decision], actor: Actor, *args: Any, **more: Any) -> None:
        """Have a person say something of a step."""
        self.record.submit(lambda s, n: command(s, at_home(actor), args[0], n, *args[1:], **more))

    def of_run(self, command: Callable[..., machine.Decision], actor: Actor, *args: Any, **more: Any) -> None:
        """Have a person say something of the run."""
        self.record.submit(lambda s, n: command(s, at_home(actor), n, *args, **more))

    def begin(self, id_: str, coordinator: Actor = ALICE, dri: Actor = BOB) -> None:
        self.say(machine.call, coordinator, id_)
        self.say(machine.start, dri, id_)

    def work(self, id_: str, seconds: float = 10.0, dri: Actor = BOB) -> None:
        """Carry out what began, up to its review."""
        definition = self.status.definition(id_)
        if definition.effect is not None:
            self.told(EventKind.INTENT, id_, action=definition.effect.action, arguments={}, timeout=60.0)
        self.clock.advance(seconds)
        if definition.effect is not None:
            self.told(EventKind.EFFECT, id_, outcome="ok", text="set", value=True, evidence={}, effect=True)
        elif definition.kind is StepKind.MANUAL:
            self.say(machine.done, dri, id_, "seen")
        else:
            self.told(EventKind.EFFECT, id_, effect=False, outcome="ok", text="to be looked at")
        self.told(EventKind.EVIDENCE, id_, complete=True, checks=[PASS] * len(definition.expect))

    def step(
        self, id_: str, seconds: float = 10.0, coordinator: Actor = ALICE, dri: Actor = BOB, reviewer: Actor = CAROL
    ) -> None:
        """Do a step from its call to its end."""
        self.begin(id_, coordinator, dri)
        self.work(id_, seconds, dri)
        if self.status.steps[id_].state is StepState.AWAITING_REVIEW:
            self.say(machine.accept, reviewer, id_)

    def fail(self, id_: str, kind: EventKind = EventKind.FAILED) -> None:
        """Let a step that began end badly."""
        self.clock.advance(1)
        self.told(kind, id_, reason="it did not work", outcome="failed", text="it did not work")

    def again(self, id_: str, seconds: float = 10.0) -> None:
        """Do a failed step once more, and have it accepted."""
        self.say(machine.retry, ALICE, id_, "once more")
        if self.status.steps[id_].state is StepState.CALLED:
            self.say(machine.start, BOB, id_)
            self.work(id_, seconds)
        else:
            self.told(EventKind.EVIDENCE, id_, complete=True, checks=[PASS])
        self.say(machine.accept, CAROL, id_)

    def promote(self) -> None:
        """Have the coordinator hand the role over to its backup."""
        self.of_run(machine.promote, ALICE, "coordinator", "on a train")

    def roll_back(self, actor: Actor = DANA, verified: bool = True) -> None:
        """Have a person order a rollback of everything, and carry it out."""
        self.of_run(machine.rollback, actor, "as planned")
        self.undo(verified)

    def cancel(self) -> None:
        """Have the executor order it, as a spent budget does."""
        steps, _ = steps_to_undo(self.status)
        self.told(EventKind.ROLLBACK_ORDERED, steps=list(steps), then="aborted", reason="budget")
        self.undo()

    def undo(self, verified: bool = True) -> None:
        order = self.status.order
        for id_ in order.steps:
            self.told(EventKind.ROLLBACK_INTENT, id_)
            self.clock.advance(2)
            self.told(EventKind.ROLLBACK_EFFECT, id_, ok=True, outcome="ok", text="unset")
            told = {"ok": verified, "checks": [PASS if verified else FAIL], "reason": "" if verified else "still there"}
            self.told(EventKind.ROLLBACK_VERIFIED, id_, **told)
            if not verified:
                return
        state = machine.abort_state(self.status)
        if order.then == "rolled back" and state is RunState.ABORTED_CLEAN:
            state = RunState.ROLLED_BACK
        self.told(EventKind.RUN_ENDED, state=state.value)

    def guard(self, id_: str, asked: int = 100, due: int = 100, state: str = "pass") -> None:
        self.told(EventKind.GUARD, guard=id_, state=state, text="asked", value=1, asked=asked, due=due)

    def announce(self, sink: str = "terminal", how: str = "sent") -> None:
        """Announce something, and let it arrive or not."""
        seq = self.told(
            EventKind.ANNOUNCED, of=self.status.seq, what="note", text="REHEARSAL", sinks=[sink]
        ).seq  # fmt: skip
        if how == "sent":
            self.told(EventKind.DELIVERED, of=seq, sink=sink)
        elif how != "queued":
            given_up = how == "given up"
            self.told(EventKind.DELIVERY_FAILED, of=seq, sink=sink, tries=1, reason="503", given_up=given_up)

    def ready(self) -> list[str]:
        return [one.id for one in self.status.steps.values() if one.state is StepState.READY]

    def play(self, seconds: float = 10.0, skip: Iterable[str] = (), **who: Actor) -> None:
        """Do every step that is ready, until none is."""
        while left := [id_ for id_ in self.ready() if id_ not in skip]:
            self.step(left[0], seconds, **who)

    def complete(self) -> None:
        self.told(EventKind.RUN_ENDED, state=RunState.COMPLETED.value)

    def past(self) -> PastRun:
        return only(self.record.folder.parent, self.status.run)


def only(room: Path, run: str) -> PastRun:
    (found,) = (one for one in past_runs(RunStore(room)) if one.run == run)
    return found


def clean(room: Path, book: Runbook, run: str, *, day: float = 0, **more: Any) -> Drill:
    """Hold a drill in which nothing goes wrong."""
    who = {name: more.pop(name) for name in ("coordinator", "dri", "reviewer") if name in more}
    drill = Drill(room, book, run, day=day, **more)
    drill.play(**who)
    for guard in book.guards:
        drill.guard(guard.id)
    if book.sinks:
        drill.announce(next(iter(book.sinks)))
    drill.complete()
    return drill


def rolled_back(room: Path, book: Runbook, run: str, *, day: float = 0, **more: Any) -> Drill:
    """Hold a drill of the rollback: every step that has one forward (or only the first, ``steps=1``), and back."""
    few = more.pop("steps", None)
    who = {name: more.pop(name) for name in ("coordinator", "dri", "reviewer") if name in more}
    drill = Drill(room, book, run, day=day, **more)
    if few is None:
        drill.play(skip=[one.id for one in book.steps if one.rollback is None], **who)
    else:
        drill.step(drill.ready()[0], **who)
    if book.sinks:
        drill.announce(next(iter(book.sinks)))
    for guard in book.guards:
        drill.guard(guard.id)
    drill.roll_back()
    return drill


def edited(book: Runbook, id_: str, **changes: Any) -> Runbook:
    """Return a runbook in which one step is another; its hash is made anew, as a loaded file's is."""
    steps = [replace(one, sha=_sha(one.sha, changes), **changes) if one.id == id_ else one for one in book.steps]
    return replace(book, steps=tuple(steps), sha=_sha(book.sha, changes))


def _sha(sha: str, changes: dict[str, Any]) -> str:
    return hashlib.sha256(f"{sha} {sorted(changes.items(), key=str)}".encode()).hexdigest()


def asking(policy: Policy, **rules: Any) -> Policy:
    """Return a policy that asks something else of drills; cases may be given by their ids."""
    if isinstance(cases := rules.get("dr_cases"), tuple):
        rules["dr_cases"] = replace(policy.readiness.dr_cases, required=cases)
    return policy.model_copy(update={"readiness": replace(policy.readiness, **rules)})


def small(**changes: Any) -> Runbook:
    """Return a runbook of three steps, of which the last needs the first alone; readiness asks for all it can."""
    cases = DrCases(required=("kill",), max_age=40 * 86_400.0)
    policy = asking(Policy(), drills_min=3, clean_last=2, rollback_drills_min=1, fresh_eyes_one=True, dr_cases=cases)
    made = runbook(step("a"), step("b", needs=("a",)), step("c", needs=("a",), rollback=None), policy=policy)
    return replace(made, **changes)


def answer(room: Path, book: Runbook, **changes: Any) -> Readiness:
    told: dict[str, Any] = {
        "now": NOW,
        "schema_fingerprint": SCHEMA,
        "cases": {"kill": "p0"},
        "floor": NO_FLOOR,
    } | changes
    return readiness(book, past_runs(RunStore(room)), **told)


def state_of(found: Readiness, id_: str) -> str:
    (one,) = (one for one in found.conditions if one.id == id_)
    return one.state


def write_past(room: Path, book: Runbook, run: str, day: float = 0, seconds: float = 10.0) -> RunRecord:
    """Write a whole clean run of a runbook whose steps nobody reviews, all its lines in one append."""
    clock = FakeClock(wall=START + day * DAY, boot=f"boot of {run}")
    record = RunStore(room, clock=clock).create(book, RunKind.REHEARSAL, "alice", run=run, schema_fingerprint=SCHEMA)
    drafts = [Draft(EventKind.LEASE, "x", "executor", data={"epoch": 1, "person": "alice"})]
    for one in book.steps:
        drafts += _step_drafts(one)
    drafts.append(Draft(EventKind.RUN_ENDED, "x", "executor", data={"state": "completed"}))
    record.write(lambda _s, _n: drafts)
    clock.advance(seconds)
    return record


def _step_drafts(one: Step) -> list[Draft]:
    kinds: list[tuple[EventKind, dict[str, Any]]] = [
        (EventKind.INTENT, {"action": "world.set", "arguments": {"name": one.id}, "timeout": 60.0}),
        (EventKind.EFFECT, {"outcome": "ok", "text": "set", "value": True, "evidence": {}, "effect": True}),
        (EventKind.EVIDENCE, {"complete": True, "checks": [PASS] * len(one.expect)}),
    ]
    return [
        Draft(EventKind.CALLED, "alice", "coordinator", one.id, 1, {"login": "alice@a"}),
        Draft(EventKind.STARTED, "bob", "dri", one.id, 1, {"login": "bob@b"}),
        *(Draft(kind, "x", "executor", one.id, 1, data) for kind, data in kinds),
    ]


__all__ = [
    "DAY", "NOW", "NO_FLOOR", "SCHEMA", "START", "Drill", "Past", "RollbackState", "answer", "at_home", "clean",
    "edited", "only", "rolled_back", "small", "state_of", "write_past",
]  # fmt: skip
