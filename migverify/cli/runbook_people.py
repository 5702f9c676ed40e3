"""``migverify runbook ack``, ``approve``, ``reject`` ...: what people say in a run. Each is one line in its journal.

Every command says what follows from it: who is next, or who else has to say the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.commands import Form, add
from migverify.cli.console import examples, say
from migverify.cli.runbook_room import (
    DEFAULT_ROOM,
    AsOption,
    RoomOption,
    RunOption,
    SignOption,
    evidence_of,
    find_run,
    person_of,
    room_of,
    suffix_of,
    who_acts,
)
from migverify.errors import UsageError

if TYPE_CHECKING:
    from migverify.runbook.clock import Moment
    from migverify.runbook.events import Event
    from migverify.runbook.record.run_record import RunRecord
    from migverify.runbook.run.machine import Actor, Decision
    from migverify.runbook.run.pending import PendingAction
    from migverify.runbook.state import RunStatus

    Said = Callable[[RunStatus, Actor, Moment], Decision]
    _Signed = tuple[str, str, str | Callable[[RunStatus], str]]

__all__ = [
    "PEOPLE", "abort", "ack", "approve", "decide", "hold", "note", "promote", "reject", "resume", "retry", "rollback",
    "takeover", "waive",
]  # fmt: skip

StepArgument = Annotated[str, typer.Argument(metavar="STEP", help="The step's id.")]
ReasonArgument = Annotated[str, typer.Argument(metavar="REASON", help="Why; it is kept in the journal.")]
TextArgument = Annotated[str, typer.Argument(metavar="TEXT", help="What shows it; kept in the journal.")]
EvidenceOption = Annotated[
    list[str] | None, typer.Option("--evidence", metavar="KEY=VALUE", help="A fact; may be repeated.")
]
FileOption = Annotated[
    list[Path] | None,
    typer.Option("--file", metavar="PATH", help="A file that shows it: its hash and size are kept, not its content."),
]


def ack(
    step: Annotated[
        str | None, typer.Argument(metavar="[STEP]", help="Default: the first step that waits for you.")
    ] = None,
    text: Annotated[str, typer.Argument(metavar="[TEXT]", help="What shows that a step by hand is done.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for your next step, until the run is over.")] = False,
    seen: Annotated[
        str, typer.Option("--seen", metavar="HASH", help="Hash of the evidence as `status` showed it, or its start.")
    ] = "",
    evidence: EvidenceOption = None,
    file: FileOption = None,
    as_: AsOption = None,
    sign: SignOption = None,
    run: RunOption = None,
    runs: RoomOption = DEFAULT_ROOM,
) -> None:
    """Do what waits for you: call, start, end or accept a step. It is shown, and you are asked.

    The coordinator calls, the DRI starts and ends, the reviewer accepts; what waits for nobody but you is done in
    one go. A decision and a point of no return are approved by `approve`.
    """
    from migverify.cli.runbook_ack import Acknowledger

    if sign is not None and yes and not seen:
        raise UsageError("--seen is missing", hint="A signature is of what you saw: `runbook status` shows its hash.")
    person, room = who_acts(as_), room_of(runs)
    record = find_run(room, run)
    name = person_of(record.status, person)
    attachments = evidence_of(evidence, file)

    def act(action: PendingAction, words: str) -> None:
        from migverify.runbook.run.pending import decide

        pending = replace(action, seen=seen) if seen else action
        of = {"accept": "done", "approve": "start"}.get(action.verb)
        actor = _actor(record, person, sign, (of, action.step, "") if of else None)
        _carry_out(record, lambda s, n: decide(pending, s, actor, n, words, attachments))

    Acknowledger(record, name, act, ask=not yes, text=text).run(step or "", follow=follow)
    _tell_next(record, runs, run)


def approve(
    step: StepArgument,
    text: Annotated[str, typer.Argument(metavar="[TEXT]", help="At a decision: what it rests on.")] = "",
    evidence: EvidenceOption = None,
    file: FileOption = None,
    as_: AsOption = None,
    sign: SignOption = None,
    run: RunOption = None,
    runs: RoomOption = DEFAULT_ROOM,
) -> None:
    """Agree that a step may start (its reviewer; at a point of no return the decision owner), or decide: go."""
    from migverify.runbook.run import machine

    attachments = evidence_of(evidence, file)
    _say(lambda s, a, n: machine.approve(s, a, step, n, text, attachments), as_, run, runs, sign, ("start", step, ""))


def note(
    step: StepArgument, text: TextArgument, as_: AsOption = None, evidence: EvidenceOption = None,
    file: FileOption = None, run: RunOption = None, runs: RoomOption = DEFAULT_ROOM,
) -> None:  # fmt: skip
    """Add evidence to a step that is under way."""
    from migverify.runbook.run import machine

    attachments = evidence_of(evidence, file)
    _say(lambda s, a, n: machine.note(s, a, step, n, text, attachments), as_, run, runs)


def reject(
    step: StepArgument, reason: ReasonArgument, as_: AsOption = None, run: RunOption = None,
    runs: RoomOption = DEFAULT_ROOM,
) -> None:  # fmt: skip
    """Reject the evidence of a step; as its DRI, say that a step by hand did not work; at a decision: no go."""
    from migverify.runbook.run import machine

    _say(lambda s, a, n: machine.reject(s, a, step, n, reason), as_, run, runs)


def retry(
    step: StepArgument,
    reason: Annotated[str, typer.Argument(metavar="REASON", help="Why; kept in the journal.")] = "",
    redo: Annotated[
        bool, typer.Option("--redo", help="Carry its effect out again, although it happened: with `repeat: yes` alone.")
    ] = False,
    as_: AsOption = None,
    run: RunOption = None,
    runs: RoomOption = DEFAULT_ROOM,
) -> None:
    """Have a failed step tried again: its checks alone when its effect is in place, else from its call on."""
    from migverify.runbook.run import machine

    _say(lambda s, a, n: machine.retry(s, a, step, n, reason, redo=redo), as_, run, runs)


def waive(
    step: StepArgument,
    reason: ReasonArgument,
    as_: AsOption = None,
    expires: Annotated[str, typer.Option(metavar="DATE", help="Until when it is good, for the report.")] = "",
    sign: SignOption = None,
    run: RunOption = None,
    runs: RoomOption = DEFAULT_ROOM,
) -> None:
    """Let a failed step pass: two persons, one after the other, with a reason."""
    from migverify.runbook.run import machine

    _say(lambda s, a, n: machine.waive(s, a, step, n, reason, expires), as_, run, runs, sign, ("waive", step, ""),
         (step,))  # fmt: skip


def decide(
    step: StepArgument,
    reason: Annotated[str, typer.Argument(metavar="REASON", help="How you know; kept in the journal.")],
    happened: Annotated[
        bool | None, typer.Option("--happened/--did-not-happen", help="Whether the effect happened.")
    ] = None,
    as_: AsOption = None,
    sign: SignOption = None,
    run: RunOption = None,
    runs: RoomOption = DEFAULT_ROOM,
) -> None:
    """Say whether the effect of a step in doubt happened: two persons who say the same, one after the other."""
    from migverify.runbook.run import machine

    if happened is None:
        raise UsageError("say --happened or --did-not-happen", hint="Look at the world first, not at the journal.")
    answer = "happened" if happened else "did not happen"
    _say(
        lambda s, a, n: machine.decide(s, a, step, n, reason, happened=happened), as_, run, runs, sign,
        ("decide", step, answer), (step, f"--{answer.replace(' ', '-')}"),
    )  # fmt: skip


def promote(
    role: Annotated[str, typer.Argument(metavar="ROLE", help="The role that somebody else plays from now on.")],
    reason: ReasonArgument,
    to: Annotated[
        str, typer.Option("--to", metavar="PERSON", help="Its person or its backup; default: who does not hold it.")
    ] = "",
    as_: AsOption = None,
    sign: SignOption = None,
    run: RunOption = None,
    runs: RoomOption = DEFAULT_ROOM,
) -> None:
    """Give a role to its backup, or back: its holder does not answer. For the coordinator's own it takes two."""
    from migverify.runbook import people
    from migverify.runbook.run import machine

    if sign is not None and not to:
        raise UsageError("--to is missing", hint="A signature is of the person who is promoted: name them.")
    _say(
        lambda s, a, n: machine.promote(s, a, n, role, reason, to), as_, run, runs, sign,
        ("promote", "", people.promotion(role, to)), (role, *(("--to", to) if to else ())),
    )  # fmt: skip


def hold(reason: ReasonArgument, as_: AsOption = None, run: RunOption = None, runs: RoomOption = DEFAULT_ROOM) -> None:
    """Hold the run: nothing new is called or started. Anybody of the runbook may."""
    from migverify.runbook.run import machine

    _say(lambda s, a, n: machine.hold(s, a, n, reason), as_, run, runs)


def resume(
    reason: Annotated[str, typer.Argument(metavar="REASON", help="Why; needed while a guard fails.")] = "",
    as_: AsOption = None,
    sign: SignOption = None,
    run: RunOption = None,
    runs: RoomOption = DEFAULT_ROOM,
) -> None:
    """Go on after a hold. While a guard that held the run does not pass, two persons have to say so."""
    from migverify.runbook.run import machine

    _say(lambda s, a, n: machine.resume(s, a, n, reason), as_, run, runs, sign, ("resume", "", ""))


def rollback(
    reason: ReasonArgument,
    to: Annotated[
        str | None, typer.Option("--to", metavar="STEP", help="Undo down to this step and hold; default: everything.")
    ] = None,
    as_: AsOption = None,
    sign: SignOption = None,
    run: RunOption = None,
    runs: RoomOption = DEFAULT_ROOM,
) -> None:
    """Order a rollback: effects are undone from the last to the first, each one verified."""
    from migverify.runbook.run import machine

    _say(lambda s, a, n: machine.rollback(s, a, n, reason, to), as_, run, runs, sign,
         ("rollback", "", lambda status: machine.rollback_answer(status, to)), ("--to", to) if to else ())  # fmt: skip


def abort(reason: ReasonArgument, as_: AsOption = None, run: RunOption = None, runs: RoomOption = DEFAULT_ROOM) -> None:
    """End the run as it is. How it ends says whether any effect of it is left."""
    from migverify.runbook.run import machine

    _say(lambda s, a, n: machine.abort(s, a, n, reason), as_, run, runs)


def takeover(
    reason: ReasonArgument, as_: AsOption = None, sign: SignOption = None, run: RunOption = None,
    runs: RoomOption = DEFAULT_ROOM,
) -> None:  # fmt: skip
    """Agree that another person takes the run over from an executor that is gone; they use `runbook run --run`."""
    from migverify.runbook.run import machine

    _say(lambda s, a, n: machine.takeover(s, a, n, reason), as_, run, runs, sign, ("takeover", "", ""))


# -- how something is said --------------------------------------------------------------------------------------------


def _say(
    said: Said, as_: str | None, run: str | None, runs: str, sign: Path | None = None,
    of: _Signed | None = None, again: tuple[str, ...] = (),
) -> None:  # fmt: skip
    """Carry a person's command out, and tell what follows.

    Parameters
    ----------
    of
        Purpose, step and answer that a signature is of (``machine.to_sign``).
    again
        What a second person types besides the reason, where two have to say the same.
    """
    person = who_acts(as_)
    record = find_run(room_of(runs), run)
    name = person_of(record.status, person)
    actor = _actor(record, person, sign, of)
    events = _carry_out(record, lambda status, now: said(status, actor, now))
    _tell_second(events, name, again, suffix_of(runs, record.status.run if run is not None else None),
                 suffix_of(runs, record.status.run))  # fmt: skip
    _tell_next(record, runs, run)


def _carry_out(record: RunRecord, command: Callable[[RunStatus, Moment], Decision]) -> list[Event]:
    """Write what a command decides, and print it."""
    from migverify.cli.runbook_follow import event_lines
    from migverify.runbook.fold.table import fold

    before = record.status
    events = record.submit(command)
    for event in events:
        after = fold((event,), before) or before
        for line in event_lines(before, event):
            typer.echo(line)
        before = after
    return events


def _tell_next(record: RunRecord, runs: str, run: str | None) -> None:
    from migverify.runbook.run.pending import pending_actions

    for action in pending_actions(record.status, record.now(), suffix_of(runs, record.status.run if run else None)):
        if not action.choice and action.command:
            typer.echo(f"  next {action.who}: {action.command}")


def _actor(record: RunRecord, person: str, sign: Path | None, of: _Signed | None) -> Actor:
    from migverify.runbook.record import signatures
    from migverify.runbook.record.run_record import login
    from migverify.runbook.run import machine

    if sign is None or of is None:
        return machine.Actor(person, login())
    purpose, step, answer = of
    if step and step not in record.status.steps:
        raise UsageError(f"there is no step {step}", hint="`status` names them.")
    at = time.time()
    named = answer if isinstance(answer, str) else answer(record.status)
    text = machine.to_sign(record.status, person, purpose, step, at, named)
    return machine.Actor(person, login(), signatures.sign(text, sign), at)


def _tell_second(events: list[Event], name: str, again: tuple[str, ...], suffix: str, whole: str) -> None:
    """Say who else has to say the same, where one person's word is not enough."""
    from migverify.runbook.events import EventKind
    from migverify.runbook.run.pending import command_line

    for event in events:
        of = str(event.data.get("of", ""))
        if event.kind is not EventKind.APPROVED or of == "start":
            continue
        if of == "takeover":
            command = command_line("run", "--reason", "REASON", "--as", "ANOTHER", suffix=whole)
            say(f"  {name} agrees; another person than {name} takes the run over:\n    {command}")
            continue
        command = command_line(_VERBS.get(of, of), *again, "REASON", "--as", "ANOTHER", suffix=suffix)
        say(f"  {name} agrees; a second person, not {name}, has to say the same:\n    {command}")


PEOPLE: dict[Callable[..., None], tuple[str, ...]] = {
    ack: (
        "ack --as alice                       # the first step that waits for alice",
        "ack open 'the file is gone' --as bob --evidence sessions=0",
        "ack --follow --as carol              # every step that waits for carol, until the run is over",
    ),
    approve: (
        "approve freeze --as carol",
        "approve go 'every gate passes' --as dana",
        "approve open --as dana --sign ~/.ssh/id_ed25519",
    ),
    note: ("ack --note freeze 'sessions are going down' --as bob --evidence sessions=12",),
    reject: ("reject freeze 'two sessions still write' --as carol", "reject go 'the target lags' --as dana"),
    retry: ("retry freeze 'the account was named wrongly' --as alice",),
    waive: (
        "waive settings 'known, ticket 812' --as alice --expires 2026-12-01",
        "waive settings 'known, ticket 812' --as dana    # the second person",
    ),
    decide: (
        "waive freeze 'SHOW GRANTS has no INSERT' --happened --as alice",
        "waive freeze 'SHOW GRANTS has no INSERT' --happened --as carol    # the second person",
    ),
    promote: ("handover dba 'no answer for five minutes' --as alice", "handover dba 'back again' --to bob --as alice"),
    hold: ("hold 'p99 doubled' --as erin",),
    resume: ("resume --as alice", "resume 'the monitor is down, SQL shows lag 0' --as alice"),
    rollback: ("rollback 'error rate above 1 %' --as dana", "rollback 'freeze once more' --to freeze --as alice"),
    abort: ("abort 'the source failed over' --as dana",),
    takeover: (
        "handover --takeover 'the laptop of alice is gone' --as carol",
        "run --run last --as bob --reason 'the laptop of alice is gone'    # then, another person",
    ),
}
"""The commands of people, with examples for their help."""


def _epilog(function: Callable[..., None]) -> str:
    return examples(*(f"migverify runbook {line}" for line in PEOPLE[function]))


_VERBS = {"decide": "waive", "promote": "handover"}
"""Purpose of an agreement -> the command by which it is given, where that has another name."""
_FORMS = {
    ack: (Form(("--note",), note, _epilog(note), "Add evidence to a step that is under way."),),
    waive: (Form(("--happened", "--did-not-happen"), decide, _epilog(decide),
                 "Say whether the effect of a step in doubt happened.", is_option=True),),
    promote: (Form(("--takeover",), takeover, _epilog(takeover), "Agree that another person takes the run over."),),
}  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the commands to the group."""
    forms = {form.function for some in _FORMS.values() for form in some}
    for function in PEOPLE:
        if function not in forms:
            name = "handover" if function is promote else function.__name__
            add(app, name, function, _epilog(function), _FORMS.get(function, ()))
