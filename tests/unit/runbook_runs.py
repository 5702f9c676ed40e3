"""Runbooks, people and a clock for tests of runs."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_in_dataclass
from pathlib import Path
from typing import Any

from migverify.runbook.actions.action import Action, ActionKind, ActionResult, Argument, Context, Outcome, Registry
from migverify.runbook.actions.builtin import built_in
from migverify.runbook.clock import Moment
from migverify.runbook.definition.fields import RunbookPart
from migverify.runbook.events import Event, EventKind, RollbackState, StepState
from migverify.runbook.kinds import Place, Repeat, RunbookKind, RunKind, StepKind
from migverify.runbook.model import (
    Check,
    Effect,
    Environment,
    Guard,
    Person,
    Phase,
    Role,
    Rollback,
    Runbook,
    Step,
)
from migverify.runbook.record.chain import Draft
from migverify.runbook.record.lease import LeaseWatch, RunLease, take
from migverify.runbook.run import machine
from migverify.runbook.run.executor import Executor
from migverify.runbook.run.machine import Actor
from tests.unit.runbook_places import age_leases, place

PLACE = Place("test.yaml", 1)
PEOPLE = (
    Person(name="alice", aliases=("al", "a.lice")),
    Person(name="bob"),
    Person(name="carol", aliases=("caro",)),
    Person(name="dana"),
    Person(name="erin"),
)
ROLES = (
    Role(name="coordinator", person="alice", backup="erin"),
    Role(name="db-1", person="bob"),
    Role(name="db-2", person="carol"),
    Role(name="decision_owner", person="dana"),
)
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
    return Check(action="world.is", arguments={"name": name})


def step(id_: str, **changes: Any) -> Step:
    """Return a step that sets a flag of the world, with check, probe and rollback."""
    undo, gone = Effect(action="world.unset", arguments={"name": id_}), {"name": id_}
    made = Step(
        id=id_, phase=changes.pop("phase", "p"), kind=StepKind.COMMAND, title=f"Set {id_}", instruction="Set it.",
        dri="db-1", reviewer="db-2", effect=Effect(action="world.set", arguments={"name": id_}),
        expect=(is_set(id_),), sha=hashlib.sha256(id_.encode()).hexdigest(), place=PLACE,
        repeat=Repeat.CHECK, reconcile=is_set(id_),
        rollback=Rollback(
            effect=undo, instruction="Unset it.", verify=(Check(action="world.is_not", arguments=gone),)
        ),
    )  # fmt: skip
    return replace(made, **changes)


def manual(id_: str, **changes: Any) -> Step:
    return step(
        id_, **{"kind": StepKind.MANUAL, "effect": None, "expect": (), "reconcile": None, "rollback": None} | changes
    )


def guard_of(id_: str, check: Check, every: float, armed_in: tuple[str, ...] = ("*",), on_fail: str = "hold") -> Guard:
    """Return a check as a guard."""
    return Guard.model_validate({**dict(check), "id": id_, "every": every, "armed_in": armed_in, "on_fail": on_fail})


def replace(value: Any, **changes: Any) -> Any:
    """Return a copy of a part of a runbook, or of a dataclass, with changes; people, roles and sinks may be tuples."""
    if not isinstance(value, RunbookPart):
        return replace_in_dataclass(value, **changes)
    if isinstance(value, Runbook):
        changes |= {
            key: {part.name: part for part in changes[key]}
            for key in ("people", "roles", "sinks")
            if isinstance(changes.get(key), tuple)
        }
        production = changes.pop("production", value.production)
        names = changes.pop("environments", tuple(value.environments))
        changes["environments"] = (
            {name: Environment(production=name in production) for name in dict.fromkeys((*names, *production))}
            if isinstance(names, tuple) else names
        )  # fmt: skip
        if "steps" in changes:
            changes["phases"] = phases_of(changes.pop("steps"))
    if unknown := changes.keys() - type(value).model_fields.keys():
        raise TypeError(f"{type(value).__name__} has no {', '.join(unknown)}")
    return value.model_copy(update=changes)


def phases_of(steps: Sequence[Step]) -> tuple[Phase, ...]:
    """Return steps in the phases that they name."""
    names = dict.fromkeys(one.phase for one in steps)
    return tuple(Phase(id=name, steps=tuple(one for one in steps if one.phase == name)) for name in names)


def runbook(*steps: Step, **changes: Any) -> Runbook:
    made = Runbook(
        version="runbook/v1",
        id="cut",
        title="Cut",
        kind=RunbookKind.CUTOVER,
        sha="sha-of-runbook",
        text_sha="sha-of-text",
        environment="staging",
        environments={"staging": Environment()},
        people={one.name: one for one in PEOPLE},
        roles={one.name: one for one in ROLES},
        phases=phases_of(steps),
    )
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
