"""Plays every role of a run by itself, so that a runbook can be tried before people give an evening to it.

It says what the people of the runbook would say, through the same commands and under the same rules, and only what is
certain: it calls what is ready, starts what is called and accepts what passed every check. It never waives, never
decides about an effect in doubt, never overrules a guard and never tries a failed step again. Where only people can go
on, it holds the run and says why. Such a run is a rehearsal of the machine, and never a drill of people.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migverify.errors import UsageError
from migverify.runbook import people
from migverify.runbook.actions.action import Registry
from migverify.runbook.clock import Moment
from migverify.runbook.definition.load import load_runbook
from migverify.runbook.events import RollbackState, RunState, StepState
from migverify.runbook.model import OnFail, Runbook, RunKind, Step, StepKind
from migverify.runbook.people import COORDINATOR, DECISION_OWNER
from migverify.runbook.record.lease import Keeper, take
from migverify.runbook.record.room import open_room
from migverify.runbook.record.run_record import RunRecord
from migverify.runbook.run import machine
from migverify.runbook.run.executor import Executor
from migverify.runbook.run.machine import Actor, Refusal
from migverify.runbook.state import OVER, RunStatus, StepStatus

__all__ = ["KINDS", "LIMIT", "LOGIN", "PilotedExecutor", "Word", "coordinator_of", "next_word", "refuse_unfit",
           "run_unattended"]  # fmt: skip

KINDS = (RunKind.DRY, RunKind.REHEARSAL)
"""The kinds of runs that may go on without people."""
LIMIT = 3600.0
"""Seconds after which an unattended run is held."""
LOGIN = "autopilot"
"""What stands in the journal as the login of everything the autopilot said."""
RESUMES = 10
"""A run that its guards held this often is left to people."""
_QUIET = 3


@dataclass(frozen=True, slots=True)
class Word:
    """What the autopilot would say as a person; ``decision`` is what the command answered for the status it saw."""

    command: str
    person: str
    step: str
    decision: machine.Decision


def refuse_unfit(runbook: Runbook, kind: RunKind) -> None:
    """Refuse what may not go on without people.

    Raises
    ------
    UsageError
        a live run, a rollback, an environment that counts as production, or approvals that people have to sign.
    """
    why = ""
    if kind not in KINDS:
        why = f"a run of kind {kind.value} is not left to the autopilot"
    elif runbook.environment in runbook.production:
        why = f"{runbook.environment} counts as production, and is not left to the autopilot"
    elif runbook.policy.signed_approvals and kind is not RunKind.DRY:
        why = "the runbook wants signed approvals, and the autopilot has no key of anybody"
    if why:
        raise UsageError(why, hint="Run it without the autopilot: the runbook's people call, start and accept.")


def coordinator_of(runbook: Runbook, kind: RunKind) -> str:
    """Return who begins a run that nobody begins.

    Raises
    ------
    UsageError
        nobody is coordinator in runs of this kind.
    """
    for role in runbook.roles:
        if role.name == COORDINATOR and (not role.only or kind in role.only):
            return role.person
    raise UsageError(f"nobody is coordinator in a run of kind {kind.value}", hint="Add the role to the runbook.")


def run_unattended(
    path: Path, *, room: Path | str, environment: str, parameters: Mapping[str, str], registry: Registry,
    config: Path | None = None, kind: RunKind = RunKind.REHEARSAL, limit: float = LIMIT,
) -> RunStatus:  # fmt: skip
    """Begin a run and drive it without people, to its end or to where only people can go on.

    Parameters
    ----------
    path
        The runbook. It is loaded, not linted.
    room
        Where runs live: a folder, or what ``open_room`` takes.
    limit
        Seconds; then the run is held. What is under way is waited for.

    Returns
    -------
    RunStatus
        Not ``over``: the run is HELD, ``hold_reasons`` says why, and the next executor may take it.

    Raises
    ------
    ConfigError, UsageError
        the runbook cannot be read, or may not go on without people.
    StoreError
        the journal cannot be written.
    """
    runbook = load_runbook(path, parameters, environment)
    refuse_unfit(runbook, kind)
    begun_by = coordinator_of(runbook, kind)
    record = open_room(str(room)).create(runbook, kind, begun_by, autopilot=True)
    executor = PilotedExecutor(record, registry, take(record, begun_by), config=config, limit=limit)
    return executor.run(executor.stop)


class PilotedExecutor(Executor):
    """An executor that also says what its people would say, whenever nothing else moves.

    Parameters
    ----------
    limit
        Seconds; then the run is held, and ``stop`` is set.
    stop
        To be handed to ``run``; also set where only people can go on.
    """

    def __init__(
        self, record: RunRecord, registry: Registry, keeper: Keeper, *, limit: float = LIMIT,
        stop: threading.Event | None = None, **more: Any,
    ) -> None:  # fmt: skip
        super().__init__(record, registry, keeper, **more)
        self.stop = stop or threading.Event()
        self._until = time.monotonic() + limit
        self._allowed, self._quiet = limit, 0

    def tick(self) -> bool:
        """Look once at everything, and say one word when nothing moved."""
        moved = super().tick()
        if self.status.over or self.stop.is_set():
            return moved
        if time.monotonic() > self._until:
            self._leave(f"the autopilot's limit of {self._allowed:g} s is over")
            return True
        moved = moved or self._say()
        self._quiet = 0 if moved or len(self.bench) else self._quiet + 1
        if self._quiet >= _QUIET:
            self._quiet = 0
            why = why_blocked(self.status, self.record.now())
            if why:
                self._leave(why)
                return True
        return moved

    def _say(self) -> bool:
        word, _ = next_word(self.status, self.record.now())
        if word is None:
            return False
        # Judged again under the journal's lock: a person may have said something meanwhile.
        self.record.write(lambda status, now: _drafts(next_word(status, now)[0]))
        return True

    def _leave(self, why: str) -> None:
        def decide(status: RunStatus, now: Moment) -> Any:
            if status.over or status.state is RunState.HELD:
                return ()
            actor = _actor(people.cast_of(status).holders(COORDINATOR)[0])
            held = machine.hold(status, actor, now, why)
            return () if isinstance(held, Refusal) else held

        self.record.write(decide)
        self.stop.set()


def _drafts(word: Word | None) -> Any:
    return () if word is None or isinstance(word.decision, Refusal) else word.decision


def _actor(person: str) -> Actor:
    return Actor(person, LOGIN)


def next_word(status: RunStatus, now: Moment) -> tuple[Word | None, list[str]]:
    """Return the next thing to say, and None with the reasons why some of it cannot be said. Pure."""
    refused: list[str] = []
    if status.over or status.kind is RunKind.DRY:
        return None, refused  # nobody says anything in a dry run
    for word in _words(status, now):
        if not isinstance(word.decision, Refusal):
            return word, refused
        if word.decision.reason not in refused:
            refused.append(word.decision.reason)
    return None, refused


def _words(status: RunStatus, now: Moment) -> Iterator[Word]:
    if status.order is not None or _undoing(status):
        yield from _undone_by_hand(status, now)
        return
    if status.state is RunState.HELD and _held_by_guards(status) and _guards_pass(status):
        for person in people.cast_of(status).holders(COORDINATOR):
            resumed = machine.resume(status, _actor(person), now, "every guard that held the run passes again")
            yield Word("resume", person, "", resumed)
    for step in status.runbook.steps:
        one = status.steps[step.id]
        if one.state is StepState.AWAITING_REVIEW:
            yield from _accept(status, step, one, now)
        elif one.state is StepState.RUNNING and step.by_hand:
            yield _by_hand(status, step, one, now)
        elif status.state is RunState.RUNNING and one.state is StepState.CALLED:
            yield from _start(status, step, one, now)
        elif status.state is RunState.RUNNING and one.state is StepState.READY:
            for caller in dict.fromkeys(caller for caller, _, _ in _castings(status, step)):
                yield Word("call", caller, step.id, machine.call(status, _actor(caller), step.id, now))


def _undoing(status: RunStatus) -> bool:
    return any(status.steps[id_].rollback is RollbackState.RUNNING for id_ in status.busy)


def _undone_by_hand(status: RunStatus, now: Moment) -> Iterator[Word]:
    """Say of a rollback by hand that it is done; its checks tell whether it is."""
    for id_ in sorted(status.busy):
        one, rollback = status.steps[id_], status.definition(id_).rollback
        if one.rollback is RollbackState.RUNNING and rollback and rollback.effect is None and not one.undo_done:
            for person in people.doers(status, status.definition(id_)):
                yield Word("done", person, id_, machine.done(status, _actor(person), id_, now, _NOBODY))


def _castings(status: RunStatus, step: Step, caller: str = "") -> list[tuple[str, str, str]]:
    """Return (coordinator, DRI, reviewer) in which each one may do their part, the named people before the backups."""
    cast, policy = people.cast_of(status), status.runbook.policy
    callers = (caller,) if caller else cast.holders(COORDINATOR)
    reviewers = cast.holders(step.reviewer) if step.reviewer is not None else ("",)
    some = list(itertools.product(callers, people.doers(status, step), reviewers))
    apart = COORDINATOR in policy.reviewer_must_differ_from
    good = [one for one in some if not one[2] or (one[2] != one[1] and not (apart and one[2] == one[0]))]
    return good or some


def _start(status: RunStatus, step: Step, one: StepStatus, now: Moment) -> Iterator[Word]:
    for _, dri, _ in _castings(status, step, one.called_by):
        if not people.missing_approvals(status, step, "start", now, dri):
            yield Word("start", dri, step.id, machine.start(status, _actor(dri), step.id, now))
            continue
        want = people.approval_hash(status, step.id, "start")
        given = {one.person for one in one.approvals if one.of == "start" and one.hash == want}
        cast = people.cast_of(status)
        owners = cast.holders(DECISION_OWNER) if step.point_of_no_return else ()
        reviewers = cast.holders(step.reviewer) if step.reviewer is not None else ()
        for person in dict.fromkeys((*owners, *reviewers)):
            if person not in given and person != dri:
                yield Word("approve", person, step.id, machine.approve(status, _actor(person), step.id, now))
        missing = people.missing_approvals(status, step, "start", now, dri)
        yield Word("start", dri, step.id, Refusal(missing))


def _by_hand(status: RunStatus, step: Step, one: StepStatus, now: Moment) -> Word:
    proven = bool(step.expect) or (step.kind is StepKind.DECISION and bool(step.requires))
    if not proven:
        return Word("done", one.dri, step.id, Refusal(f"{step.id} is done by hand, and no check shows whether it was"))
    text = _GATES if step.kind is StepKind.DECISION and not step.expect else _NOBODY
    return Word("done", one.dri, step.id, machine.done(status, _actor(one.dri), step.id, now, text))


_NOBODY = "autopilot: nobody did anything by hand; the checks tell whether it is so all the same"
_GATES = "autopilot: every required step is done"


def _accept(status: RunStatus, step: Step, one: StepStatus, now: Moment) -> Iterator[Word]:
    if "short" in one.alarms:
        yield Word("accept", "", step.id, Refusal(f"{step.id} was suspiciously short: a person has to look"))
        return
    want = people.approval_hash(status, step.id)
    given = {one.person for one in one.approvals if one.of == "done" and one.hash == want}
    holders = people.cast_of(status).holders(step.reviewer) if step.reviewer is not None else ()
    for person in holders:
        if person not in given:
            yield Word("accept", person, step.id, machine.accept(status, _actor(person), step.id, now, want))
    yield Word("accept", "", step.id, Refusal(people.missing_approvals(status, step, "done", now)))


def _held_by_guards(status: RunStatus) -> bool:
    """Tell whether guards alone hold the run: no step failed, and no person said a word."""
    known = {guard.id for guard in status.runbook.guards}
    guards = status.hold_guards
    failed = any(one.state in OVER for one in status.steps.values())
    alone = bool(guards) and len(guards) == len(status.hold_reasons) and known.issuperset(guards)
    return alone and not failed and status.order is None and status.holds <= RESUMES


def _guards_pass(status: RunStatus) -> bool:
    return all(id_ in status.guards and status.guards[id_].state == "pass" for id_ in status.hold_guards)


def why_blocked(status: RunStatus, now: Moment) -> str:
    """Return why only people can go on when nothing moves and nothing is under way; empty: something may still come."""
    open_ = [one for one in status.steps.values() if one.state in OVER and not one.handled]
    if status.over or status.order is not None or any(one.state is StepState.UNKNOWN for one in open_):
        return ""
    word, refused = next_word(status, now)
    if word is not None or status.kind is RunKind.DRY:
        return ""
    if status.state is RunState.HELD:
        return "" if _held_by_guards(status) else "the run is held"
    steps = status.runbook.steps
    if any(status.definition(one.id).on_fail is OnFail.RETRY for one in open_):
        return ""  # it is tried again after its backoff
    waits = [step for step in steps if status.steps[step.id].state in (StepState.RUNNING, StepState.VERIFYING)]
    if any(not step.by_hand for step in waits):
        return ""  # a guard has not passed yet
    failed = [f"{one.id} is {one.state.value}, and only two persons may waive it" for one in open_]
    return "autopilot: only people can go on: " + ("; ".join([*failed, *refused][:5]) or "nothing is ready")
