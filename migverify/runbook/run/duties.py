"""Who has to do what now, and the exact command to type: pure, from where a run stands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from migverify.runbook import people
from migverify.runbook.clock import Moment
from migverify.runbook.events import RollbackState, RunState, StepState
from migverify.runbook.model import OnFail, Repeat, RunKind, Step
from migverify.runbook.people import COORDINATOR, DECISION_OWNER
from migverify.runbook.run import machine
from migverify.runbook.run.machine import Actor, Refusal
from migverify.runbook.state import OVER, RunStatus, StepStatus

__all__ = ["PROGRAM", "Duty", "command_line", "duties"]

PROGRAM = "migverify runbook"
SEEN = 12
"""Letters of a hash that a reviewer types: what was seen is what is accepted."""


@dataclass(frozen=True, slots=True)
class Duty:
    """Something that people have to do.

    Parameters
    ----------
    persons
        Who may: the named person first, then backups. Empty: any one of the runbook's people.
    what
        In words.
    command
        What the first of them types.
    several
        How many different persons have to say it.
    choice
        One of several ways on; only one of them is taken.
    promote
        They have not answered for long: what is typed to have their backup promoted. Empty: not that long, or none.
    """

    step: str
    persons: tuple[str, ...]
    what: str
    command: str
    several: int = 1
    choice: bool = False
    promote: str = ""

    @property
    def who(self) -> str:
        """The persons in words."""
        if not self.persons:
            return "anybody" if self.several < 2 else "two persons"
        first, *others = self.persons
        return f"{first} (or {', '.join(others)})" if others else first


def command_line(verb: str, *words: str, person: str = "", suffix: str = "") -> str:
    """Return a command that can be pasted; the command refuses ``OPEN_WORDS``, which the reader has to replace."""
    told = [f"'{word}'" if word in machine.OPEN_WORDS else shlex.quote(word) for word in words]
    return " ".join([PROGRAM, verb, *told, *(["--as", shlex.quote(person)] if person else [])]) + suffix


def duties(status: RunStatus, now: Moment, suffix: str = "", *, gone: str = "") -> tuple[Duty, ...]:
    """Return what people have to do, in the order of the steps.

    Parameters
    ----------
    suffix
        Added to every command: `` --run ...`` where that is needed.
    gone
        Why the run's executor is certainly gone; empty: it may live.
    """
    if status.over:
        return ()
    return (*_executor(status, suffix, gone), *_of_steps(status, now, suffix))


def _executor(status: RunStatus, suffix: str, gone: str) -> Iterator[Duty]:
    if not status.executor:
        command = command_line("run", person=_first(status, COORDINATOR) or "PERSON", suffix=_run_of(status, suffix))
        yield Duty("", (), "nobody drives the run", command)
    elif gone:
        first, second = _two_people(status)
        what = f"the executor of {status.executor_by} is gone ({gone}): one agrees to a takeover"
        command = command_line("takeover", gone, person=first, suffix=suffix)
        yield Duty("", (first,) if first else (), what, command)
        command = command_line("run", "--reason", gone, person=second, suffix=_run_of(status, suffix))
        yield Duty("", (second,) if second else (), "and another person takes the run over", command)


def _two_people(status: RunStatus) -> tuple[str, str]:
    """Return two persons who can take a run over, leaders first, and last of all whose executor is gone."""
    known = dict.fromkeys((*_leaders(status), *people.cast_of(status).names.values()))
    some = sorted(known, key=lambda person: person == status.executor_by)
    return (some[0], some[1]) if len(some) > 1 else ("", "")


def _run_of(status: RunStatus, suffix: str) -> str:
    return suffix if " --run " in suffix else f" --run {status.run}{suffix}"


def _of_steps(status: RunStatus, now: Moment, suffix: str) -> Iterator[Duty]:
    if status.kind is RunKind.DRY:
        return
    for id_ in sorted(status.busy):
        yield from _undo_by_hand(status, status.steps[id_], suffix)
    if status.order is not None:
        return
    if _failed_in_write_stop(status):
        yield from _take_back(status, suffix)
    for step in status.runbook.steps:
        one = status.steps[step.id]
        if one.state is StepState.AWAITING_REVIEW:
            yield from _review(status, step, now, suffix)
        elif one.state is StepState.RUNNING and step.by_hand:
            yield from _by_hand(step, one, suffix)
        elif one.state in OVER:
            yield from _trouble(status, step, one, now, suffix)
        elif one.rollback is RollbackState.UNDONE_VERIFIED:
            yield from _again(status, step, now, suffix)
        elif status.state is RunState.RUNNING and one.state is StepState.READY and not _by_itself(status, step):
            yield from _call(status, step, now, suffix)
        elif status.state is RunState.RUNNING and one.state is StepState.CALLED:
            yield from _start(status, step, one, now, suffix)
    if status.state is RunState.HELD:
        yield from _held(status, suffix)


def _by_itself(status: RunStatus, step: Step) -> bool:
    """Tell whether the executor is about to call and start a step."""
    return bool(status.executor) and status.write_stop_since is not None and step.id in status.graph.self_starting


def _first(status: RunStatus, role: str) -> str:
    return next(iter(people.cast_of(status).holders(role)), "")


def _leaders(status: RunStatus) -> tuple[str, ...]:
    cast = people.cast_of(status)
    return tuple(dict.fromkeys((*cast.holders(COORDINATOR), *cast.holders(DECISION_OWNER))))


def _call(status: RunStatus, step: Step, now: Moment, suffix: str) -> Iterator[Duty]:
    callers = people.cast_of(status).holders(COORDINATOR)
    for person in callers:
        told = machine.call(status, Actor(person), step.id, now)
        if isinstance(told, Refusal):
            yield Duty(step.id, callers, f"{step.id} is ready, and cannot be called: {told.reason}", "")
        else:
            command = command_line("call", step.id, person=person, suffix=suffix)
            yield Duty(step.id, callers, f"{step.id} is ready: call it", command)
        return
    yield Duty(step.id, (), f"{step.id} is ready, and nobody is coordinator", "")


def _start(status: RunStatus, step: Step, one: StepStatus, now: Moment, suffix: str) -> Iterator[Duty]:
    starters = people.doers(status, step)
    able = [dri for dri in starters if not people.missing_approvals(status, step, "start", now, dri)]
    if able:
        command = command_line("start", step.id, person=able[0], suffix=suffix)
        promote = _promote(status, step, step.dri, suffix)
        yield Duty(step.id, tuple(able), f"{step.id} is called: start it", command, promote=promote)
        return
    want = people.approval_hash(status, step.id, "start")
    given = {told.person for told in one.approvals if told.of == "start" and told.hash == want}
    some = [person for person in status.cast.names.values() if not people.may_approve(status, step, person)[1]]
    # Not who has said so, and not the only one who could start it afterwards.
    able = [person for person in dict.fromkeys(some) if person not in given and (person,) != starters]
    missing = people.missing_approvals(status, step, "start", now)
    if not able:
        yield Duty(step.id, (), f"{step.id} is called, and nobody is left to approve it: {missing}", "")
        return
    owners = [person for person in people.cast_of(status).holders(DECISION_OWNER) if person in able]
    able = [*owners, *(p for p in able if p not in owners)] if step.point_of_no_return else able
    command = command_line("approve", step.id, person=able[0], suffix=suffix)
    yield Duty(step.id, tuple(able), f"{step.id} is called: approve its start ({missing})", command,
               promote=_promote(status, step, step.reviewer or "", suffix))  # fmt: skip


def _promote(status: RunStatus, step: Step, role: str, suffix: str) -> str:
    """Return the command that promotes a backup of somebody who lets a step wait; empty: not yet, or there is none."""
    cast = people.cast_of(status)
    backup = [one for one in cast.declared.get(role, ()) if one not in cast.holders(role)]
    if not backup or "waiting" not in status.steps[step.id].alarms:
        return ""
    person = _first(status, COORDINATOR) or "PERSON"
    return command_line("promote", role, "no answer", person=person, suffix=suffix)


def _by_hand(step: Step, one: StepStatus, suffix: str) -> Iterator[Duty]:
    what = step.instruction.strip().splitlines()
    words = f": {what[0]}" if what else ""
    words += f"; you attest: {step.attest}" if step.attest else ""
    command = command_line("done", step.id, "WHAT-SHOWS-IT", person=one.dri, suffix=suffix)
    yield Duty(step.id, (one.dri,), f"{step.id} is yours{words} (or `fail {step.id} 'REASON'`)", command)


def _review(status: RunStatus, step: Step, now: Moment, suffix: str) -> Iterator[Duty]:
    digest = people.approval_hash(status, step.id)
    given = {told.person for told in status.steps[step.id].approvals if told.of == "done" and told.hash == digest}
    holders = people.cast_of(status).holders(step.reviewer) if step.reviewer is not None else ()
    able = tuple(p for p in holders if p not in given and not people.may_accept(status, step, p)[1])
    missing = people.missing_approvals(status, step, "done", now)
    if not able:
        yield Duty(step.id, (), f"{step.id} awaits review, and nobody is left to accept it: {missing}", "")
        return
    command = command_line("accept", step.id, "--seen", digest[:SEEN], person=able[0], suffix=suffix)
    look = f"`status --step {step.id}` shows the evidence; `reject {step.id} 'REASON'`"
    promote = _promote(status, step, step.reviewer or "", suffix)
    yield Duty(step.id, able, f"{step.id} awaits review ({look})", command, promote=promote)


def _trouble(status: RunStatus, step: Step, one: StepStatus, now: Moment, suffix: str) -> Iterator[Duty]:
    leaders = _leaders(status)
    if one.state is StepState.UNKNOWN:
        if one.handled or status.order is not None:
            yield _in_doubt(step, suffix, choice=False)
        return
    if not one.handled and step.on_fail is not OnFail.SKIP:
        return  # the executor is about to do what `on_fail` says
    if leaders and not isinstance(machine.retry(status, Actor(leaders[0]), step.id, now), Refusal):
        what = f"have the checks of {step.id} asked again" if one.effect_done else f"have {step.id} tried again"
        yield Duty(step.id, leaders, what, command_line("retry", step.id, person=leaders[0], suffix=suffix),
                   choice=True)  # fmt: skip
        if one.effect_done and step.repeat is Repeat.YES and status.state is RunState.RUNNING:
            yield Duty(step.id, leaders, f"have {step.id} carried out again, although its effect happened",
                       command_line("retry", step.id, "--redo", person=leaders[0], suffix=suffix),
                       choice=True)  # fmt: skip
    elif one.intent and not one.effect_done:
        yield _in_doubt(step, suffix, choice=True)
    waive = command_line("waive", step.id, "REASON", "--as", "PERSON", suffix=suffix)
    yield Duty(step.id, (), f"let {step.id} pass: two persons", waive, several=2, choice=True)


def _again(status: RunStatus, step: Step, now: Moment, suffix: str) -> Iterator[Duty]:
    for leader in _leaders(status)[:1]:
        if not isinstance(machine.retry(status, Actor(leader), step.id, now), Refusal):
            command = command_line("retry", step.id, person=leader, suffix=suffix)
            yield Duty(step.id, _leaders(status), f"{step.id} was taken back: have it done again", command)


def _in_doubt(step: Step, suffix: str, *, choice: bool) -> Duty:
    what = f"say whether the effect of {step.id} happened (or --did-not-happen): two persons, who look first"
    command = command_line("decide", step.id, "--happened", "HOW-YOU-KNOW", "--as", "PERSON", suffix=suffix)
    return Duty(step.id, (), what, command, several=2, choice=choice)


def _held(status: RunStatus, suffix: str) -> Iterator[Duty]:
    leaders = _leaders(status)
    person = leaders[0] if leaders else "PERSON"
    bad = [id_ for id_ in status.hold_guards if id_ not in status.guards or status.guards[id_].state != "pass"]
    if bad:
        command = command_line("resume", "REASON", person=person, suffix=suffix)
        what = f"go on although {', '.join(bad)} does not pass: two persons"
        yield Duty("", leaders, what, command, several=2, choice=True)
    else:
        # What has to be done anew from its call on cannot be while the run is held.
        undone = RollbackState.UNDONE_VERIFIED
        failed = [
            id_ for id_, one in status.steps.items() if (one.state in OVER and not one.intent) or one.rollback is undone
        ]
        what = "go on" + (f"; then `retry {failed[0]}`" if failed else "")
        yield Duty("", leaders, what, command_line("resume", person=person, suffix=suffix), choice=True)
    if not _failed_in_write_stop(status):
        yield from _take_back(status, suffix)
    command = command_line("abort", "REASON", person=person, suffix=suffix)
    left = status.not_clean()
    stands = f"; what stands, or may stand: {', '.join(left)}" if left else ""
    what = f"end the run as it is ({machine.abort_state(status).value}{stands})"
    yield Duty("", leaders, what, command, choice=True)


def _failed_in_write_stop(status: RunStatus) -> bool:
    """Tell whether a step failed while writes are stopped: going back is the first thing to decide then."""
    failed = any(one.state in OVER and one.state is not StepState.UNKNOWN for one in status.steps.values())
    return failed and status.write_stop_since is not None


def _take_back(status: RunStatus, suffix: str) -> Iterator[Duty]:
    if machine.steps_to_undo(status)[0]:
        leaders = _leaders(status)
        command = command_line("rollback", "REASON", person=leaders[0] if leaders else "PERSON", suffix=suffix)
        yield Duty("", leaders, "take back what was done", command, choice=True)


def _undo_by_hand(status: RunStatus, one: StepStatus, suffix: str) -> Iterator[Duty]:
    step = status.definition(one.id)
    if one.rollback is not RollbackState.RUNNING or one.undo_done or step.rollback is None or step.rollback.effect:
        return
    holders = people.doers(status, step)
    command = command_line("done", step.id, "WHAT-SHOWS-IT", person=holders[0] if holders else "PERSON", suffix=suffix)
    yield Duty(step.id, holders, f"take {step.id} back: {step.rollback.instruction}", command)
