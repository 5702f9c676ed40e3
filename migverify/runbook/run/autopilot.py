"""Plays every role of a run by itself, so that a runbook can be tried before people give an evening to it.

It says what the people of the runbook would say, through the same commands and under the same rules, and only what is
certain: it calls what is ready, starts what is called and accepts what passed every check. It never waives, never
decides about an effect in doubt, never overrules a guard and never tries a failed step again. Where only people can go
on, it holds the run and says why. Such a run is a rehearsal of the machine, and never a drill of people.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

from migverify.errors import UsageError
from migverify.runbook.actions.action import Registry
from migverify.runbook.clock import Moment
from migverify.runbook.events import RollbackState, RunState, StepState
from migverify.runbook.kinds import OnFail, RunKind, StepKind
from migverify.runbook.model import Runbook
from migverify.runbook.people import COORDINATOR
from migverify.runbook.record.chain import Draft
from migverify.runbook.record.lease import RunLease
from migverify.runbook.record.run_record import RunRecord
from migverify.runbook.run import machine
from migverify.runbook.run.executor import Executor
from migverify.runbook.run.machine import Actor, Decision, Refusal
from migverify.runbook.run.pending import PendingAction, decide, pending_actions
from migverify.runbook.state import OVER, RunStatus
from migverify.signals import SignalEvent

__all__ = ["LIMIT", "LOGIN", "PilotedExecutor", "next_action", "refuse_unfit"]

KINDS = (RunKind.DRY, RunKind.REHEARSAL)
"""The kinds of runs that may go on without people."""
LIMIT = 3600.0
"""Seconds after which an unattended run is held."""
LOGIN = "autopilot"
"""The login of everything the autopilot does, as the journal keeps it."""
RESUMES = 10
"""A run that its guards held this often is left to people."""
_QUIET = 3


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
        self, record: RunRecord, registry: Registry, lease: RunLease, *, limit: float = LIMIT,
        stop: threading.Event | None = None, **more: Any,
    ) -> None:  # fmt: skip
        super().__init__(record, registry, lease, **more)
        self.stop = stop or SignalEvent()
        self._until = time.monotonic() + limit
        self._allowed, self._quiet = limit, 0

    def tick(self) -> bool:
        """Look once at everything, and act for one person when nothing moved."""
        moved = super().tick()
        if self.status.over or self.stop.is_set():
            return moved
        if time.monotonic() > self._until:
            self._leave(f"the autopilot's limit of {self._allowed:g} s is over")
            return True
        moved = moved or self._act()
        self._quiet = 0 if moved or len(self.bench) else self._quiet + 1
        if self._quiet >= _QUIET:
            self._quiet = 0
            why = why_blocked(self.status, self.record.now())
            if why:
                self._leave(why)
                return True
        return moved

    def _act(self) -> bool:
        if not next_action(self.status, self.record.now())[0]:
            return False
        # Judged again under the journal's lock: a person may have acted meanwhile.
        self.record.write(lambda status, now: next_action(status, now)[0])
        return True

    def _leave(self, why: str) -> None:
        def decide(status: RunStatus, now: Moment) -> Any:
            if status.over or status.state is RunState.HELD:
                return ()
            return machine.drafts_of(machine.hold(status, _actor(status.cast.holders(COORDINATOR)[0]), now, why))

        self.record.write(decide)
        self.stop.set()


def next_action(status: RunStatus, now: Moment) -> tuple[tuple[Draft, ...], list[str]]:
    """Return the events of the next action, and none with the reasons why some of them cannot be done. Pure."""
    refused: list[str] = []
    if status.over or status.kind is RunKind.DRY:
        return (), refused  # nobody does anything in a dry run
    for decision in _decisions(status, now):
        if not isinstance(decision, Refusal):
            return decision, refused
        if decision.reason not in refused:
            refused.append(decision.reason)
    return (), refused


def _decisions(status: RunStatus, now: Moment) -> Iterator[Decision]:
    if status.state is RunState.HELD and _held_by_guards(status) and _guards_pass(status):
        for person in status.cast.holders(COORDINATOR):
            yield machine.resume(status, _actor(person), now, "every guard that held the run passes again")
    for action in pending_actions(status, now):
        if action.choice or action.several > 1 or not action.step:
            continue  # two persons decide, or one who leads
        why, text = _left_to_people(status, action)
        for person in action.persons or ("",):
            yield Refusal(why) if why else decide(action, status, _actor(person), now, text)


def _left_to_people(status: RunStatus, action: PendingAction) -> tuple[str, str]:
    """Return (why only people can do it, "") or ("", what is written as evidence)."""
    step, one = status.definition(action.step), status.steps[action.step]
    if action.verb == "accept" and "short" in one.alarms:
        return f"{step.id} was suspiciously short: a person has to look", ""
    if one.state is StepState.RUNNING and one.rollback is not RollbackState.RUNNING:
        gates = step.kind is StepKind.DECISION and bool(step.requires)
        if not step.expect and not gates:
            return f"{step.id} is done by hand, and no check shows whether it was", ""
        if not step.expect:
            return "", "autopilot: every required step is done"
    return "", "autopilot: nobody did anything by hand; the checks tell whether it is so all the same"


def _actor(person: str) -> Actor:
    return Actor(person, LOGIN)


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
    decision, refused = next_action(status, now)
    if decision or status.kind is RunKind.DRY:
        return ""
    if status.state is RunState.HELD:
        return "" if _held_by_guards(status) else "the run is held"
    steps = status.runbook.steps
    if any(status.definition(one.id).on_fail.then is OnFail.RETRY for one in open_):
        return ""  # it is tried again after its backoff
    waits = [step for step in steps if status.steps[step.id].state in (StepState.RUNNING, StepState.VERIFYING)]
    if any(not step.by_hand for step in waits):
        return ""  # a guard has not passed yet
    failed = [f"{one.id} is {one.state.value}, and only two persons may waive it" for one in open_]
    return "autopilot: only people can go on: " + ("; ".join([*failed, *refused][:5]) or "nothing is ready")
