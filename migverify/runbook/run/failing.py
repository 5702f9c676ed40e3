"""What the executor does about a step that failed, or that nobody knows about. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from migverify.runbook.clock import Moment
from migverify.runbook.events import RollbackState, RunState, StepState
from migverify.runbook.model import OnFail, Repeat, Step
from migverify.runbook.run.machine import steps_to_undo
from migverify.runbook.state import OVER, RunStatus, StepStatus, between

__all__ = ["Move", "next_move"]


@dataclass(frozen=True, slots=True)
class Move:
    """One move: ``what`` is ``wait``, ``probe``, ``hold``, ``retry``, ``goto`` or ``rollback``."""

    what: str
    reason: str = ""
    to: str = ""
    steps: tuple[str, ...] = ()


_WAIT = Move("wait")


def next_move(
    status: RunStatus, one: StepStatus, now: Moment, *, probed: str | None, elsewhere: str = ""
) -> Move:  # fmt: skip
    """Return what is to be done about a step.

    Parameters
    ----------
    probed
        Its probe was asked already, and why it did not tell; None: it was not asked.
    elsewhere
        The machine on which a program of the effect may still run, unseen from here; empty: none.
    """
    if one.state not in OVER or one.handled:
        return _WAIT
    step = status.definition(one.id)
    if one.state is StepState.UNKNOWN:
        return _in_doubt(step, one, probed=probed, elsewhere=elsewhere)
    if one.rejected:
        return Move("hold", f"{one.id} was {one.reason}")
    if step.on_fail is OnFail.RETRY:
        return _retry(status, step, one, now, probed=probed)
    if step.on_fail is OnFail.ROLLBACK:
        return _rollback(status, one)
    if step.on_fail is OnFail.GOTO and step.goto:
        target = status.steps.get(step.goto)
        if target is not None and target.state in (StepState.PENDING, StepState.READY):
            return Move("goto", one.reason, to=step.goto)
        return Move("hold", f"{one.id} failed, and {step.goto} cannot be gone to")
    if step.on_fail is OnFail.SKIP:
        return _WAIT  # two persons waive it, or have it tried again; what needs it does not begin before
    return Move("hold", f"{one.id}: {one.state.value}: {one.reason}")


def _in_doubt(step: Step, one: StepStatus, *, probed: str | None, elsewhere: str) -> Move:
    if elsewhere:
        # A probe would tell how it is now; a program that still works at it could change that a moment later.
        why = f"a program of it may still run on {elsewhere}: look there"
        return Move("hold", f"nobody knows whether the effect of {one.id} happened, and {why}: two persons have to say")
    if probed is None:
        return Move("probe")  # also without one: first nothing of it may run any more
    why = f"{'its probe does not tell' if step.reconcile is not None else 'it has no probe'}{probed}"
    return Move("hold", f"nobody knows whether the effect of {one.id} happened, and {why}: two persons have to say")


def _retry(status: RunStatus, step: Step, one: StepStatus, now: Moment, *, probed: str | None) -> Move:
    if one.attempt > step.retries:
        return Move("hold", f"{one.id}: {one.state.value} {one.attempt} times: {one.reason}")
    if status.state is not RunState.RUNNING:
        return _WAIT
    if one.ended is not None and between(one.ended, now).seconds < step.backoff * 2 ** (one.attempt - 1):
        return _WAIT
    if one.effect_done and step.repeat is not Repeat.YES:
        return Move("retry", one.reason, to="verifying")
    if not one.intent or step.repeat is Repeat.YES:
        return Move("retry", one.reason, to="running")
    if step.repeat is Repeat.CHECK and step.reconcile is not None and probed is None:
        return Move("probe")
    return Move("hold", f"{one.id}: {one.reason}; its effect may have happened, and may not be repeated")


def _rollback(status: RunStatus, one: StepStatus) -> Move:
    steps, why = steps_to_undo(status)
    if status.order is not None:
        return _WAIT
    if any(status.steps[id_].rollback is RollbackState.FAILED for id_ in steps):
        why = "a rollback failed before"
    if why:
        return Move("hold", f"{one.id}: {one.reason}; it cannot be rolled back: {why}")
    return Move("rollback", f"{one.id}: {one.reason}", steps=steps)
