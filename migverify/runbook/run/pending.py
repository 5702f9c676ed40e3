"""What people have to do now: by whom, the command to type, and what it writes. Pure, from the status of a run.

``status``, the page and the announcements show the commands; ``runbook ack`` and the autopilot carry the plain ones
out by ``decide``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from migverify.runbook import people
from migverify.runbook.clock import Moment
from migverify.runbook.events import RollbackState, RunState, StepState
from migverify.runbook.kinds import OnFail, Repeat, RunKind, StepKind
from migverify.runbook.model import Step
from migverify.runbook.people import COORDINATOR, DECISION_OWNER
from migverify.runbook.run import machine
from migverify.runbook.run.machine import Actor, Decision, Refusal
from migverify.runbook.state import OVER, RunStatus, StepStatus

__all__ = ["PROGRAM", "PendingAction", "command_line", "decide", "next_of", "pending_actions"]

PROGRAM = "migverify runbook"
SEEN = 12
"""Letters of a hash that a reviewer types: what was shown is what is accepted."""


@dataclass(frozen=True, slots=True)
class PendingAction:
    """Something that people have to do.

    Parameters
    ----------
    verb
        What it is: ``call``, ``approve``, ``start``, ``done``, ``accept``, ``retry`` ...; empty: nobody can do it now.
    persons
        Who may: the named person first, then backups. Empty: any one of the runbook's people.
    what
        In words.
    command
        What the first of them types; empty: ``what`` says why nobody can.
    several
        How many different persons have to do it.
    choice
        One of several ways on; only one of them is taken.
    promote
        They have not answered for long: what is typed to have their backup promoted. Empty: not that long, or none.
    role
        Of the runbook or of the step; empty: of no one role.
    seen
        Hash of the evidence that is accepted.
    by_ack
        ``runbook ack`` does it: calls, starts, ends, accepts or approves a step that is neither a decision nor a point
        of no return.
    """

    step: str
    persons: tuple[str, ...]
    what: str
    command: str
    several: int = 1
    choice: bool = False
    promote: str = ""
    verb: str = ""
    role: str = ""
    seen: str = ""
    by_ack: bool = False

    @property
    def who(self) -> str:
        """The persons in words."""
        if not self.persons:
            return "anybody" if self.several < 2 else "two persons"
        first, *others = self.persons
        return f"{first} (or {', '.join(others)})" if others else first


def command_line(verb: str, *words: str, person: str = "", suffix: str = "") -> str:
    """Return a command that can be pasted; the command refuses ``OPEN_WORDS``, which the reader has to replace."""
    quoted = [f"'{word}'" if word in machine.OPEN_WORDS else shlex.quote(word) for word in words]
    return " ".join([PROGRAM, verb, *quoted, *(["--as", shlex.quote(person)] if person else [])]) + suffix


def pending_actions(status: RunStatus, now: Moment, suffix: str = "", *, gone: str = "") -> tuple[PendingAction, ...]:
    """Return what people have to do, in the order of the steps.

    Parameters
    ----------
    suffix
        Added to every command: `` --run ...`` where that is needed.
    gone
        Why the run's executor is certainly gone; empty: it may live.
    """
    return () if status.over else tuple(_Pending(status, now, suffix).all(gone))


def next_of(status: RunStatus, now: Moment, person: str, step: str = "") -> PendingAction | None:
    """Return the first action of a person that ``ack`` does, of one step when it is named; None: there is none."""
    some = pending_actions(status, now)
    return next((one for one in some if one.by_ack and person in one.persons and step in ("", one.step)), None)


def decide(
    action: PendingAction, status: RunStatus, actor: Actor, now: Moment, text: str = "",
    evidence: dict[str, Any] | None = None,
) -> Decision:  # fmt: skip
    """Return the events of an action of one person; a refusal where two have to agree, or one who leads.

    Parameters
    ----------
    text, evidence
        What shows that a step by hand is done.
    """
    match action.verb:
        case "call":
            return machine.call(status, actor, action.step, now)
        case "approve":
            return machine.approve(status, actor, action.step, now, text)
        case "start":
            return machine.start(status, actor, action.step, now)
        case "done":
            return machine.done(status, actor, action.step, now, text, evidence)
        case "accept":
            return machine.accept(status, actor, action.step, now, action.seen)
    return Refusal(action.what)


class _Pending:
    """The pending actions of one run at one moment."""

    def __init__(self, status: RunStatus, now: Moment, suffix: str) -> None:
        self._status, self._now, self._suffix, self._cast = status, now, suffix, status.cast
        self._leaders = tuple(dict.fromkeys((*self._cast.holders(COORDINATOR), *self._cast.holders(DECISION_OWNER))))
        self._leader = next(iter(self._leaders), "PERSON")

    def all(self, gone: str) -> Iterator[PendingAction]:
        yield from self._executor(gone)
        status = self._status
        if status.kind is RunKind.DRY:
            return
        for id_ in sorted(status.busy):
            yield from self._undo_by_hand(status.steps[id_])
        if status.order is not None:
            return
        if self._failed_in_write_stop():
            yield from self._roll_back()
        for step in status.runbook.steps:
            yield from self._of_step(step, status.steps[step.id])
        if status.state is RunState.HELD:
            yield from self._held()

    def _of_step(self, step: Step, one: StepStatus) -> Iterator[PendingAction]:
        running = self._status.state is RunState.RUNNING
        if one.state is StepState.AWAITING_REVIEW:
            yield self._review(step, one)
        elif one.state is StepState.RUNNING and step.by_hand:
            yield self._by_hand(step, one)
        elif one.state in OVER:
            yield from self._failed(step, one)
        elif one.rollback is RollbackState.UNDONE_VERIFIED:
            if self._can_retry(step):
                yield self._lead("retry", step.id, f"{step.id} was rolled back: have it done again", step.id)
        elif running and one.state is StepState.READY and not self._starts_by_itself(step):
            yield self._call(step)
        elif running and one.state is StepState.CALLED:
            yield self._start(step, one)

    # -- who drives it ----------------------------------------------------------------------------------------------

    def _executor(self, gone: str) -> Iterator[PendingAction]:
        status, suffix = self._status, self._suffix
        named = suffix if " --run " in suffix else f" --run {status.run}{suffix}"
        if not status.executor:
            person = next(iter(self._cast.holders(COORDINATOR)), "PERSON")
            yield PendingAction("", (), "nobody drives the run", command_line("run", person=person, suffix=named))
        elif gone:
            known = dict.fromkeys((*self._leaders, *self._cast.names.values()))
            some = sorted(known, key=lambda person: person == status.executor_by)
            first, second = (some[0], some[1]) if len(some) > 1 else ("", "")
            what = f"the executor of {status.executor_by} is gone ({gone}): one agrees to a takeover"
            command = command_line("handover", "--takeover", gone, person=first, suffix=suffix)
            yield PendingAction("", (first,) if first else (), what, command)
            command = command_line("run", "--reason", gone, person=second, suffix=named)
            yield PendingAction("", (second,) if second else (), "and another person takes the run over", command)

    def _starts_by_itself(self, step: Step) -> bool:
        """Tell whether the executor is about to call and start a step."""
        status = self._status
        return bool(status.executor) and status.write_stop_since is not None and step.id in status.graph.self_starting

    # -- a step that goes well --------------------------------------------------------------------------------------

    def _plain(self, verb: str, step: Step, role: str, persons: tuple[str, ...], what: str, *words: str,
               seen: str = "") -> PendingAction:  # fmt: skip
        """Return an action of one person; decisions and points of no return are approved by a command of their own."""
        decides = step.kind is StepKind.DECISION and verb == "done"
        verb = "approve" if decides else verb
        by_ack = verb != "approve" or not (decides or step.point_of_no_return)
        command = command_line("ack" if by_ack else verb, step.id, *words, person=persons[0], suffix=self._suffix)
        promote = self._promote(step, role) if verb in ("approve", "start", "accept") and not decides else ""
        return PendingAction(step.id, persons, what, command, promote=promote, verb=verb, role=role, seen=seen,
                             by_ack=by_ack)  # fmt: skip

    def _call(self, step: Step) -> PendingAction:
        callers = self._cast.holders(COORDINATOR)
        if not callers:
            return PendingAction(step.id, (), f"{step.id} is ready, and nobody is coordinator", "")
        decision = machine.call(self._status, Actor(callers[0]), step.id, self._now)
        if isinstance(decision, Refusal):
            what = f"{step.id} is ready, and cannot be called: {decision.reason}"
            return PendingAction(step.id, callers, what, "")
        return self._plain("call", step, COORDINATOR, callers, f"{step.id} is ready: call it")

    def _start(self, step: Step, one: StepStatus) -> PendingAction:
        status, starters = self._status, people.doers(self._status, step)
        able = tuple(p for p in starters if not people.missing_approvals(status, step, "start", self._now, p))
        if able:
            return self._plain("start", step, step.dri, able, f"{step.id} is called: start it")
        given = _given(status, one, "start")
        some = [person for person in self._cast.names.values() if not people.may_approve(status, step, person)[1]]
        # Not who has approved it, and not the only one who could start it afterwards.
        some = [person for person in dict.fromkeys(some) if person not in given and (person,) != starters]
        missing = people.missing_approvals(status, step, "start", self._now)
        if not some:
            return PendingAction(step.id, (), f"{step.id} is called, and nobody is left to approve it: {missing}", "")
        owners = self._cast.holders(DECISION_OWNER) if step.point_of_no_return else ()
        able = tuple(sorted(some, key=lambda person: person not in owners))
        what = f"{step.id} is called: approve its start ({missing})"
        reviews = able[0] in self._cast.holders(step.reviewer or "")
        return self._plain("approve", step, step.reviewer or "" if reviews else DECISION_OWNER, able, what)

    def _by_hand(self, step: Step, one: StepStatus) -> PendingAction:
        instruction = step.instruction.strip().splitlines()
        words = f": {instruction[0]}" if instruction else ""
        words += f"; you attest: {step.attest}" if step.attest else ""
        what = f"{step.id} is yours{words} (or `reject {step.id} 'REASON'`)"
        return self._plain("done", step, step.dri, (one.dri,), what, "WHAT-SHOWS-IT")

    def _review(self, step: Step, one: StepStatus) -> PendingAction:
        status = self._status
        digest, given = people.approval_hash(status, step.id), _given(status, one, "done")
        holders = self._cast.holders(step.reviewer) if step.reviewer is not None else ()
        refused = {person: people.may_accept(status, step, person)[1] for person in holders if person not in given}
        able = tuple(person for person, why in refused.items() if not why)
        if not able:
            why = "; ".join(refused.values()) or people.missing_approvals(status, step, "done", self._now)
            return PendingAction(step.id, (), f"{step.id} awaits review, and nobody is left to accept it: {why}", "")
        look = f"`status --step {step.id}` shows the evidence; `reject {step.id} 'REASON'`"
        what = f"{step.id} awaits review ({look})"
        seen = digest[:SEEN]
        return self._plain("accept", step, step.reviewer or "", able, what, "--seen", seen, seen=seen)

    def _promote(self, step: Step, role: str) -> str:
        """Return the command that promotes a backup of who lets a step wait; empty: not yet, or there is none."""
        backup = [one for one in self._cast.declared.get(role, ()) if one not in self._cast.holders(role)]
        if not backup or "waiting" not in self._status.steps[step.id].alarms:
            return ""
        person = next(iter(self._cast.holders(COORDINATOR)), "PERSON")
        return command_line("handover", role, "no answer", person=person, suffix=self._suffix)

    def _undo_by_hand(self, one: StepStatus) -> Iterator[PendingAction]:
        step = self._status.definition(one.id)
        if one.rollback is not RollbackState.RUNNING or one.undo_done or step.rollback is None or step.rollback.effect:
            return
        holders = people.doers(self._status, step) or ("PERSON",)
        what = f"roll {step.id} back: {step.rollback.instruction}"
        yield self._plain("done", step, step.dri, holders, what, "WHAT-SHOWS-IT")

    # -- trouble ----------------------------------------------------------------------------------------------------

    def _lead(
        self, verb: str, step: str, what: str, *words: str, several: int = 1, choice: bool = False
    ) -> PendingAction:
        """Return an action of the coordinator or the decision owner."""
        command = command_line(verb, *words, person=self._leader, suffix=self._suffix)
        return PendingAction(step, self._leaders, what, command, several, choice, verb=verb)

    def _anybody(self, verb: str, step: str, what: str, *words: str, choice: bool) -> PendingAction:
        """Return an action of any two persons."""
        command = command_line(verb, *words, "--as", "PERSON", suffix=self._suffix)
        return PendingAction(step, (), what, command, several=2, choice=choice, verb=verb)

    def _can_retry(self, step: Step) -> bool:
        again = machine.retry(self._status, Actor(self._leader), step.id, self._now)
        return bool(self._leaders) and not isinstance(again, Refusal)

    def _failed(self, step: Step, one: StepStatus) -> Iterator[PendingAction]:
        status = self._status
        if one.state is StepState.UNKNOWN:
            if one.handled or status.order is not None:
                yield self._in_doubt(step, choice=False)
            return
        if not one.handled and step.on_fail.then is not OnFail.SKIP:
            return  # the executor is about to do what `on_fail` says
        if self._can_retry(step):
            what = f"have the checks of {step.id} asked again" if one.effect_done else f"have {step.id} tried again"
            yield self._lead("retry", step.id, what, step.id, choice=True)
            if one.effect_done and step.repeat is Repeat.YES and status.state is RunState.RUNNING:
                what = f"have {step.id} carried out again, although its effect happened"
                yield self._lead("retry", step.id, what, step.id, "--redo", choice=True)
        elif one.intent and not one.effect_done:
            yield self._in_doubt(step, choice=True)
        yield self._anybody("waive", step.id, f"waive {step.id}: two persons", step.id, "REASON", choice=True)

    def _in_doubt(self, step: Step, *, choice: bool) -> PendingAction:
        what = f"say whether the effect of {step.id} happened (or --did-not-happen): two persons, who look first"
        return self._anybody("waive", step.id, what, step.id, "--happened", "HOW-YOU-KNOW", choice=choice)

    def _held(self) -> Iterator[PendingAction]:
        status = self._status
        bad = [id_ for id_ in status.hold_guards if id_ not in status.guards or status.guards[id_].state != "pass"]
        if bad:
            what = f"go on although {', '.join(bad)} does not pass: two persons"
            yield self._lead("resume", "", what, "REASON", several=2, choice=True)
        else:
            # What has to be done anew from its call on cannot be while the run is held.
            undone = RollbackState.UNDONE_VERIFIED
            failed = [one.id for one in status.steps.values()
                      if (one.state in OVER and not one.intent) or one.rollback is undone]  # fmt: skip
            yield self._lead("resume", "", "go on" + (f"; then `retry {failed[0]}`" if failed else ""), choice=True)
        if not self._failed_in_write_stop():
            yield from self._roll_back()
        left = status.not_clean()
        effects = f"; what happened or may have: {', '.join(left)}" if left else ""
        what = f"end the run as it is ({machine.abort_state(status).value}{effects})"
        yield self._lead("abort", "", what, "REASON", choice=True)

    def _failed_in_write_stop(self) -> bool:
        """Tell whether a step failed while writes are stopped: going back is the first thing to decide then."""
        steps = self._status.steps.values()
        failed = any(one.state in OVER and one.state is not StepState.UNKNOWN for one in steps)
        return failed and self._status.write_stop_since is not None

    def _roll_back(self) -> Iterator[PendingAction]:
        if machine.steps_to_undo(self._status)[0]:
            yield self._lead("rollback", "", "roll back what was done", "REASON", choice=True)


def _given(status: RunStatus, one: StepStatus, of: str) -> set[str]:
    """Return who has given an approval of the step as it is now."""
    digest = people.approval_hash(status, one.id, of)
    return {given.person for given in one.approvals if given.of == of and given.hash == digest}
