"""Runbooks, people and a clock for tests of runs."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from migverify.runbook.actions.action import Action, ActionKind, ActionResult, Argument, Context, Outcome, Registry
from migverify.runbook.actions.builtin import built_in
from migverify.runbook.clock import Moment
from migverify.runbook.events import Event, EventKind, RollbackState, StepState
from migverify.runbook.model import (
    Check,
    Effect,
    Person,
    Place,
    Policy,
    Repeat,
    Role,
    Rollback,
    Runbook,
    RunbookKind,
    RunKind,
    Step,
    StepKind,
    Times,
)
from migverify.runbook.record.chain import Draft
from migverify.runbook.record.lease import LeaseWatch, RunLease, take
from migverify.runbook.run import machine
from migverify.runbook.run.executor import Executor
from migverify.runbook.run.machine import Actor
from tests.unit.runbook_places import age_leases, place

PLACE = Place("test.yaml", 1)
PEOPLE = (
    Person("alice", ("al", "a.lice")), Person("bob"), Person("carol", ("caro",)), Person("dana"), Person("erin"),
)  # fmt: skip
ROLES = (
    Role("coordinator", "alice", "erin"), Role("db-1", "bob"), Role("db-2", "carol"), Role("decision_owner", "dana"),
)  # fmt: skip
ALICE, BOB, CAROL, DANA, ERIN = (Actor(person.name) for person in PEOPLE)


@dataclass
class FakeClock:
    """Advances by a millisecond at every look, so that no two events have one time."""

    wall: float = 1_800_000_000.0
    mono: int = 5_000_000_000
    boot: str = "boot-1"
    lock: Any = field(default_factory=threading.Lock)

    def now(self) -> Moment:
        with self.lock:
            self.wall += 0.001
            self.mono += 1_000_000
            return Moment(self.wall, self.mono, self.boot)

    def advance(self, seconds: float) -> None:
        with self.lock:
            self.wall += seconds
            self.mono += int(seconds * 1e9)


def here(registry: Registry, effect: Effect, context: Context, may_begin: Callable[[], None]) -> ActionResult:
    """Carry an effect out in this process, whose memory it changes."""
    may_begin()
    return registry.run(effect.action, effect.arguments, context)


def is_set(name: str) -> Check:
    return Check("world.is", {"name": name})


def step(id_: str, **changes: Any) -> Step:
    """Return a step that sets a flag of the world, with check, probe and rollback."""
    made = Step(
        id_, changes.pop("phase", "p"), StepKind.COMMAND, f"Set {id_}", "Set it.", "db-1", "db-2",
        Effect("world.set", {"name": id_}), (is_set(id_),), Times(), hashlib.sha256(id_.encode()).hexdigest(), PLACE,
        repeat=Repeat.CHECK, reconcile=is_set(id_),
        rollback=Rollback(Effect("world.unset", {"name": id_}), "Unset it.", (Check("world.is_not", {"name": id_}),)),
    )  # fmt: skip
    return replace(made, **changes)


def manual(id_: str, **changes: Any) -> Step:
    return step(
        id_, **{"kind": StepKind.MANUAL, "effect": None, "expect": (), "reconcile": None, "rollback": None} | changes
    )


def runbook(*steps: Step, **changes: Any) -> Runbook:
    phases = tuple(dict.fromkeys(one.phase for one in steps))
    made = Runbook(
        "cut", "Cut", RunbookKind.CUTOVER, "sha-of-runbook", "sha-of-text", "staging", PEOPLE, ROLES, Policy(), steps,
        phases=phases,
    )  # fmt: skip
    made = replace(made, **changes)
    return replace(made, steps=tuple(_complete(made.steps)))


def _complete(steps: Sequence[Step]) -> Iterator[Step]:
    """Yield steps with the needs that a file's reader gives to those without any."""
    phase, before, ends = "", "", ()
    waits: dict[str, tuple[str, ...]] = {}
    for one in steps:
        if one.phase != phase:
            inner = {need for some in waits.values() for need in some}
            ends, phase, before, waits = tuple(id_ for id_ in waits if id_ not in inner), one.phase, "", {}
        waits[one.id] = one.needs or ((before,) if before else ends)
        before = one.id
        yield replace(one, needs=waits[one.id])


class World:
    """What effects change: flags, and how often each was set or unset."""

    def __init__(self) -> None:
        self.flags: set[str] = set()
        self.done: list[tuple[str, str]] = []
        self.outcomes: dict[str, list[ActionResult]] = {}
        self.hook: Callable[[str, str], None] = lambda _what, _name: None
        self.values: dict[str, float | str | bool | None] = {}

    def set(self, arguments: Mapping[str, Any], _context: Context) -> ActionResult:
        return self._do("set", arguments["name"])

    def unset(self, arguments: Mapping[str, Any], _context: Context) -> ActionResult:
        return self._do("unset", arguments["name"])

    def _do(self, what: str, name: str) -> ActionResult:
        self.hook(f"before {what}", name)
        self.done.append((what, name))
        planned = self.outcomes.get(f"{what} {name}")
        result = planned.pop(0) if planned else ActionResult(Outcome.OK, f"{what} {name}", value=True)
        if result.outcome is Outcome.OK:
            self.flags = self.flags | {name} if what == "set" else self.flags - {name}
        self.hook(f"after {what}", name)
        return result

    def registry(self) -> Registry:
        name = (Argument("name", "text", "A flag.", required=True),)
        found = built_in()
        for action in (
            Action("world.set", ActionKind.EFFECT, "Sets.", name, self.set),
            Action("world.unset", ActionKind.EFFECT, "Unsets.", name, self.unset),
            Action("world.is", ActionKind.CHECK, "Is it set?", name,
                   lambda a, _c: ActionResult(Outcome.OK, "asked", a["name"] in self.flags)),
            Action("world.is_not", ActionKind.CHECK, "Is it not?", name,
                   lambda a, _c: ActionResult(Outcome.OK, "asked", a["name"] not in self.flags)),
            Action("world.value", ActionKind.CHECK, "A value.", name,
                   lambda a, _c: ActionResult(Outcome.OK, "read", self.values.get(a["name"]))),
        ):  # fmt: skip
            found.register(action)
        return found


class Room:
    """A run with its people and one executor, all in one process."""

    def __init__(
        self,
        folder: Path,
        book: Runbook,
        kind: RunKind = RunKind.REHEARSAL,
        world: World | None = None,
    ) -> None:
        self.clock, self.world = FakeClock(), world or World()
        self.home = place(folder, self.clock)
        self.record = self.home.create(book, kind, "alice", run="r1")
        self.lease: RunLease | None = None
        self.executor: Executor | None = None
        self.watch: LeaseWatch | None = None

    @property
    def status(self) -> Any:
        self.record.refresh()
        return self.record.status

    def state(self, id_: str) -> StepState:
        found: StepState = self.status.steps[id_].state
        return found

    def undo_state(self, id_: str) -> RollbackState:
        found: RollbackState = self.status.steps[id_].rollback
        return found

    def man(self, person: str = "alice", reason: str = "") -> Executor:
        """Have somebody run an executor."""
        self.lease = take(self.record, person, reason=reason, watch=self.watch)
        self.executor = Executor(self.record, self.world.registry(), self.lease, carry=here)
        self.executor.recover()
        return self.executor

    def say(self, command: Callable[..., machine.Decision], actor: Actor, *args: Any, **kwargs: Any) -> list[Event]:
        """Have a person say something; ``now`` stands behind the step, as the commands have it."""

        def decide(status: Any, now: Moment) -> machine.Decision:
            if command in WITHOUT_STEP:
                return command(status, actor, now, *args, **kwargs)
            return command(status, actor, args[0], now, *args[1:], **kwargs)

        return self.record.submit(decide)

    def settle(self, ticks: int = 400) -> None:
        """Let the executor go on until nothing moves and nothing is under way."""
        import time

        if self.executor is None:
            raise AssertionError("no executor")
        quiet = 0
        for _ in range(ticks * 50):
            moved = self.executor.tick()
            if self.status.over:
                return
            quiet = 0 if moved or len(self.executor.bench) else quiet + 1
            if quiet > 2:
                return
            if len(self.executor.bench):
                time.sleep(0.001)
        raise AssertionError("the run does not come to rest")

    def play(self, *ids: str) -> None:
        """Have steps called, started, carried out and accepted."""
        for id_ in ids:
            self.say(machine.call, ALICE, id_)
            self.say(machine.start, BOB, id_)
            if self.status.definition(id_).kind is StepKind.MANUAL and self.status.definition(id_).effect is None:
                self.say(machine.done, BOB, id_, "seen")
            self.settle()
            self.say(machine.accept, CAROL, id_)
        self.settle()

    def die(self) -> None:
        """Let the executor go without a word, as kill -9 does."""
        self.executor = self.lease = None
        self.watch = LeaseWatch(self.record)
        self.watch.gone(self.status)
        self.clock.advance(60)
        age_leases(self.record)

    def succeed(self) -> Executor:
        """Have carol agree and bob take the run over."""
        self.say(machine.takeover, CAROL, "the executor is gone")
        return self.man("bob", "the executor is gone")

    def later(self, seconds: float) -> None:
        """Let time pass, with the lease renewed meanwhile."""
        self.clock.advance(seconds)
        if self.lease is not None:
            self.lease.renew()


WITHOUT_STEP = {machine.hold, machine.resume, machine.rollback, machine.abort, machine.takeover, machine.promote}


def draft(kind: EventKind, actor: str, step_: str = "", attempt: int = 1, role: str = "", **data: Any) -> Draft:
    return Draft(kind, actor, role, step_, attempt if step_ else 0, data)
