"""A run that is told event by event, for what shows runs: its clock is the machine's, moved into the past."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from migverify.runbook.clock import Moment, system_clock
from migverify.runbook.events import EventKind, StepState
from migverify.runbook.kinds import DataLoss, OnFail, Place, Repeat, RunbookKind, RunKind, StepKind
from migverify.runbook.model import (
    Applies,
    Approval,
    Budgets,
    Check,
    Effect,
    Environment,
    Failure,
    Person,
    Policy,
    Role,
    Rollback,
    Runbook,
    RunWindow,
    Sink,
    Step,
    Times,
)
from migverify.runbook.record.chain import Draft
from migverify.runbook.record.lease import RunLease, take
from migverify.runbook.record.run_store import RunStore
from migverify.runbook.run import machine
from migverify.runbook.run.machine import Actor
from tests.unit.runbook_runs import guard_of, phases_of, replace

_K = EventKind
PLACE = Place("cutover.yaml", 1)
SCHEMA_GUARD = ["migverify", "guard", "schema", "--baseline", "last"]
PEOPLE = tuple(Person(name=name) for name in ("alice", "bob", "carol", "dana", "erin", "frank"))
ROLES = (
    Role(name="coordinator", person="alice", backup="erin"),
    Role(name="source_dba", person="bob", backup="frank"),
    Role(name="target_dba", person="carol"),
    Role(name="decision_owner", person="dana", backup="erin"),
)


class MovedClock:
    """The machine's clock at the beginning, moved; ``advance`` alone moves it on. One boot, so durations are exact.

    ``runs`` makes it go on with the machine's clock: for a server that shows a story while it is told.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self.began, self.moved, self.runs = system_clock.now(), seconds, False

    def now(self) -> Moment:
        real = system_clock.now() if self.runs else self.began
        return Moment(real.wall + self.moved, real.mono + int((self.moved + 1e6) * 1e9), "one-boot")

    def advance(self, seconds: float) -> None:
        self.moved += seconds


def _step(
    id_: str, phase: str, kind: StepKind, title: str, dri: str, reviewer: str | None, plan: float, *needs: str,
    undo: float | None = None, **changes: Any,
) -> Step:  # fmt: skip
    effect = (
        Effect(action="command.exit", arguments={"argv": ["./cutover.sh", id_]}) if kind is StepKind.COMMAND else None
    )
    expect = (Check(action="command.exit", arguments={"argv": ["./cutover.sh", id_, "proved"]}, maximum=0),)
    rollback = None
    if undo is not None:
        rollback = Rollback(
            effect=Effect(action="command.exit", arguments={"argv": ["./cutover.sh", id_, "undo"]}),
            instruction=f"By hand: ./cutover.sh {id_} undo",
            verify=(Check(action="command.exit", arguments={"argv": ["./cutover.sh", id_, "undone"]}, maximum=0),),
            plan=undo,
            valid_until=changes.pop("until", None),
            data_loss=DataLoss.NONE,
        )
    made = Step(
        id=id_,
        phase=phase,
        kind=kind,
        title=title,
        instruction=changes.pop("instruction", ""),
        dri=dri,
        reviewer=reviewer,
        effect=effect,
        expect=expect if kind not in (StepKind.ANNOUNCE, StepKind.DECISION, StepKind.MANUAL) else (),
        times=Times(plan=plan, maximum=plan * 2, minimum=1.0),
        sha=hashlib.sha256(id_.encode()).hexdigest(),
        place=PLACE,
        needs=needs,
        repeat=Repeat.CHECK,
        reconcile=expect[0],
        on_fail=Failure(unbounded=OnFail.STOP),
        rollback=rollback,
    )
    return replace(made, **changes)


def cutover(now: float, **changes: Any) -> Runbook:
    """A one-shot cutover in small: 15 steps, two points of no return, guards, window, budgets."""
    S, C = "source_dba", "target_dba"  # noqa: N806
    steps = (
        _step("begin", "prepare", StepKind.ANNOUNCE, "The cutover begins", "coordinator", None, 5),
        _step("settings", "prepare", StepKind.CHECK, "Settings, grants and room", S, C, 60, "begin"),
        _step("ids", "prepare", StepKind.CHECK, "No id space ends soon", C, S, 60, "begin"),
        _step(
            "reverse",
            "prepare",
            StepKind.COMMAND,
            "Reverse feed, proved by a canary",
            C,
            S,
            90,
            "settings",
            "ids",
            undo=30,
        ),
        _step("tables", "verify", StepKind.GATE, "Source and target hold the same rows", C, S, 300, "reverse"),
        _step(
            "freeze",
            "stop-writes",
            StepKind.COMMAND,
            "Stop writes on the source",
            S,
            C,
            20,
            "tables",
            undo=15,
            until="open",
            write_stop="begin",
            instruction="Revoke the write account, then end its sessions.",
            approval=Approval(minimum=1, excluded=("dri",), before="start"),
        ),
        _step("drained", "stop-writes", StepKind.GATE, "Everything written is on the target", C, S, 45, "freeze"),
        _step(
            "stop-feed",
            "stop-writes",
            StepKind.COMMAND,
            "Stop the forward feed, and prove it",
            C,
            S,
            15,
            "drained",
            undo=20,
        ),
        _step("rebase", "stop-writes", StepKind.COMMAND, "Rebase ids on every TiDB server", C, S, 20, "stop-feed"),
        _step(
            "go",
            "stop-writes",
            StepKind.DECISION,
            "Go, or go back",
            "decision_owner",
            C,
            30,
            "rebase",
            instruction="Look at the gates; say go or back.",
        ),
        _step(
            "open",
            "stop-writes",
            StepKind.COMMAND,
            "Open writes on the target",
            C,
            S,
            15,
            "go",
            undo=40,
            write_stop="end",
            point_of_no_return="soft",
            instruction="Grant the write account on TiDB.",
        ),
        _step("weight-10", "traffic", StepKind.COMMAND, "10 % of reads to the target", S, C, 120, "open", undo=10),
        _step("weight-100", "traffic", StepKind.COMMAND, "All reads to the target", S, C, 120, "weight-10", undo=10),
        _step(
            "smoke",
            "traffic",
            StepKind.MANUAL,
            "Pay and refund once",
            "decision_owner",
            C,
            90,
            "weight-100",
            instruction="Buy for 1 cent in the shop, and refund it.",
        ),
        _step(
            "old-away",
            "after",
            StepKind.COMMAND,
            "Drop the reverse feed",
            C,
            S,
            30,
            "smoke",
            point_of_no_return="hard",
            only=Applies(runs=(RunKind.LIVE,)),
        ),
        _step("end", "after", StepKind.ANNOUNCE, "The cutover is over", "coordinator", None, 5, "smoke"),
    )
    guards = (
        guard_of(
            "schema",
            Check(action="command.exit", arguments={"argv": SCHEMA_GUARD}, maximum=0),
            30,
            armed_in=("*",),
            on_fail="hold",
        ),
        guard_of(
            "lag",
            Check(action="prom.query", arguments={"query": "max(dm_lag_seconds)"}, maximum=5),
            10,
            armed_in=("verify", "stop-writes"),
            on_fail="hold",
        ),
        guard_of(
            "monitors", Check(action="prom.watchdog", arguments={}, maximum=60), 15, armed_in=("*",), on_fail="hold"
        ),
    )
    made = Runbook(
        version="runbook/v1",
        id="cutover",
        title="Cut payments over from Aurora to TiDB",
        kind=RunbookKind.CUTOVER,
        sha="7c1f" + "a" * 60,
        text_sha="t" * 64,
        environment="staging",
        people={one.name: one for one in PEOPLE},
        roles={one.name: one for one in ROLES},
        policy=Policy(unattended_nag=120),
        phases=phases_of(steps),
        guards=guards,
        budgets=Budgets(write_stop=300, decision_by=2400, margin=60),
        window=RunWindow(opens=now - 600, closes=now + 4200),
        sinks={
            "chat": Sink(kind="webhook", arguments={"url": "CHAT_URL"}),
            "log": Sink(kind="file", arguments={"path": "a.log"}),
        },
        environments={"staging": Environment(), "prod": Environment(production=True)},
    )
    return replace(made, **changes)


class Story:
    """Tells a run; what cannot happen in a run is refused by the fold."""

    def __init__(
        self,
        room: Path,
        *,
        ago: float = 0.0,
        kind: RunKind = RunKind.REHEARSAL,
        run: str | None = None,
        book: Runbook | None = None,
    ) -> None:
        self.clock = MovedClock(-ago)
        book = book or cutover(self.clock.now().wall)
        self.record = RunStore(room, clock=self.clock).create(book, kind, "alice", run=run)
        self.lease: RunLease | None = None

    @property
    def status(self) -> Any:
        self.record.refresh()
        return self.record.status

    def drive(self, person: str = "alice") -> Story:
        self.lease = take(self.record, person)
        return self

    def wait(self, seconds: float) -> Story:
        self.clock.advance(seconds)
        return self

    def beat(self) -> Story:
        """Have the executor give a sign of life."""
        if self.lease is not None:
            self.lease.renew()
        return self

    def does(self, kind: EventKind, step: str = "", **data: Any) -> Story:
        """Write an event as the executor."""
        if self.lease is None:
            raise AssertionError("no executor")
        keeper = self.lease

        def decide(status: Any, _now: Moment) -> Sequence[Draft]:
            attempt = status.steps[step].attempt if step else 0
            return [Draft(kind, keeper.executor, "executor", step, attempt, data)]

        self.record.write(decide, epoch=keeper.epoch)
        return self

    def says(self, command: Any, person: str, *args: Any, login: str = "", **kwargs: Any) -> Story:
        """Have a person say something; the step stands first in ``args`` where there is one."""
        late = command in (machine.hold, machine.resume, machine.rollback, machine.abort, machine.takeover)

        def decide(status: Any, now: Moment) -> machine.Decision:
            actor = Actor(person, login or f"{person}@desk")
            if late:
                return command(status, actor, now, *args, **kwargs)
            return command(status, actor, args[0], now, *args[1:], **kwargs)

        self.record.submit(decide)
        return self

    def people(self, step: str) -> tuple[str, str]:
        cast, definition = self.status.cast, self.status.definition(step)
        return cast.holders(definition.dri)[0], (cast.holders(definition.reviewer) or ("",))[
            0
        ] if definition.reviewer else ""

    def begin(self, step: str) -> Story:
        """Have a step called, approved and started, and its effect begun."""
        dri, reviewer = self.people(step)
        definition = self.status.definition(step)
        self.says(machine.call, "alice", step).wait(2)
        if definition.approval is not None:
            self.says(machine.approve, reviewer, step).wait(2)
        if definition.point_of_no_return:
            self.says(machine.approve, "dana", step).wait(2)
        self.says(machine.start, dri, step)
        if definition.effect is not None:
            self.does(_K.INTENT, step, action=definition.effect.action, arguments=definition.effect.arguments)
        return self

    def end(self, step: str, seconds: float, *, review: bool = True, text: str = "exit 0") -> Story:
        """Have the effect of a step end, its checks pass, and its reviewer accept."""
        dri, reviewer = self.people(step)
        definition = self.status.definition(step)
        self.wait(seconds)
        if self.status.steps[step].state is not StepState.RUNNING:
            pass  # its effect is known already
        elif definition.effect is None and definition.kind in (StepKind.MANUAL, StepKind.DECISION):
            self.says(machine.done, dri, step, text)
        else:
            self.does(
                _K.EFFECT, step, outcome="ok", text=text, value=0, effect=definition.effect is not None, evidence={}
            )
        checks = [{"action": one.action, "state": "pass", "text": "exit 0", "value": 0} for one in definition.expect]
        self.does(_K.EVIDENCE, step, complete=True, checks=checks)
        if review and self.status.steps[step].state is StepState.AWAITING_REVIEW:
            self.wait(4).says(machine.accept, reviewer, step)
        return self

    def play(self, *steps: tuple[str, float]) -> Story:
        for step, seconds in steps:
            self.wait(3).begin(step).end(step, seconds)
        return self

    def guard(self, id_: str, state: str = "pass", text: str = "exit 0", value: Any = 0) -> Story:
        return self.does(_K.GUARD, guard=id_, state=state, text=text, value=value, asked=3, due=3)

    def announce(self, text: str, what: str = "started", *, failed: str = "", tries: int = 3) -> Story:
        """Announce something about the last event, to both sinks; ``failed``: why the first does not take it."""
        self.does(_K.ANNOUNCED, of=self.status.seq, what=what, text=text, sinks=["chat", "log"])
        of = self.status.seq
        self.does(_K.DELIVERED, of=of, sink="log", tries=1)
        if not failed:
            return self.does(_K.DELIVERED, of=of, sink="chat", tries=1)
        for number in range(1, tries + 1):
            self.does(_K.DELIVERY_FAILED, of=of, sink="chat", tries=number, reason=failed, given_up=number == 10)
        return self


PREPARED = (("begin", 4.0), ("settings", 48.0), ("ids", 71.0), ("reverse", 83.0), ("tables", 266.0))


def in_freeze(room: Path, **options: Any) -> Story:
    """A rehearsal in which ``freeze`` runs since 12 s, and one announcement failed."""
    story = Story(room, ago=options.pop("ago", 560.0), **options).drive()
    story.announce("REHEARSAL 3/4 begins: Cut payments over from Aurora to TiDB", "run started")
    story.play(*PREPARED[:4]).guard("schema").guard("monitors", value=4, text="last seen 4 s ago")
    story.play(PREPARED[4]).announce("REHEARSAL 3/4: tables is done (carol), forecast end 14:44", "done")
    story.guard("lag", value=1.2, text="1.2").guard("schema").guard("monitors", value=3, text="last seen 3 s ago")
    story.wait(9).begin("freeze")
    story.announce(
        "REHEARSAL 3/4: bob starts freeze, plan 0:20, reviewer carol, rollback armed", failed="HTTP 503 from the chat"
    )
    return story.wait(12).beat()


def with_loss_guard(room: Path, ago: float = 560.0) -> Story:
    """A run like ``in_freeze`` with a guard over what a rollback would lose."""
    book = cutover(MovedClock(-ago).now().wall)
    check = Check(action="rollback.loss", arguments={"max_seconds": 60})
    guard = guard_of("loss", check, 30, armed_in=("*",), on_fail="hold")
    return in_freeze(room, ago=ago, book=replace(book, guards=(*book.guards, guard)))


def in_both_directions(room: Path, ago: float = 560.0) -> Story:
    """A run like ``in_freeze`` that asks about verification in both directions, none of them answered yet."""
    book = cutover(MovedClock(-ago).now().wall)
    proof = guard_of("proof", Check(action="rollback.proved", arguments={"since": "last"}), 3600, armed_in=("*",))
    more = (Check(action="tables.drained", arguments={"since": "last"}), Check(action="rollback.armed", arguments={}))
    steps = tuple(replace(one, expect=(*one.expect, *more)) if one.id == "freeze" else one for one in book.steps)
    return in_freeze(room, ago=ago, book=replace(book, guards=(*book.guards, proof), steps=steps))


def answered(story: Story, armed: str = "pass", proved: str = "pass") -> Story:
    """Have the gates answer: the forward watch ended MATCH, then the hand-over, then the reverse direction."""
    place = "tso:462190000000000000 (2026-11-27 01:12:44.310 UTC)"
    drained = {"run": "20261127T010907-3f0a11", "sources": [{"name": "source", "read": "binlog.000412:8812"}]}
    checks: list[dict[str, Any]] = [
        {"action": "tables.drained", "state": "pass", "text": "MATCH", "value": "MATCH", "evidence": drained},
        {"action": "rollback.armed", "state": armed, "value": "MATCH",
         "text": "MATCH" if armed == "pass" else "MISMATCH: 2 rows, 0 statements",
         "evidence": {"run": "20261126T220907-7c11d0", "as_of": {"tso": 1, "time": 1.0, "text": place}}},
    ]  # fmt: skip
    story.does(_K.EFFECT, "freeze", outcome="ok", text="exit 0", value=0, effect=True, evidence={})
    others = [one for one in story.status.definition("freeze").expect if not one.action.startswith(("tables", "rollb"))]
    checks += [{"action": one.action, "state": "pass", "text": "exit 0", "value": 0} for one in others]
    if armed == "pass":
        story.does(_K.EVIDENCE, "freeze", complete=True, checks=checks)
    else:
        story.does(_K.FAILED, "freeze", checks=checks, reason="rollback.armed fails")
    return story.does(
        _K.GUARD, guard="proof", state=proved, text="MATCH" if proved == "pass" else "INCONCLUSIVE: 3 keys open",
        value="MATCH", asked=1, due=1, as_of=place,
    )  # fmt: skip


def lost(story: Story, state: str = "pass", *, keys: int = 12, behind: float = 2.0) -> Story:
    """Have the guard say what a rollback would lose, as of ``behind`` seconds ago."""
    at = story.clock.now().wall - behind
    facts = {
        "keys": keys, "oldest_seconds": 34.0, "at_risk": {"EUR": "1250.00"},
        "as_of": {"tso": int(at * 1000) << 18, "time": at, "text": "tso:1 (then)"},
    }  # fmt: skip
    return story.does(
        _K.GUARD, guard="loss", state=state, text=f"{keys} keys would be lost", value="acceptable", asked=1, due=1,
        loss=facts,
    )  # fmt: skip
