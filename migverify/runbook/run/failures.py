"""What the executor does about a step that failed, or whose effect is in doubt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from migverify.runbook.actions.action import CheckOutcome
from migverify.runbook.events import EventKind, RollbackState, RunState, StepState
from migverify.runbook.kinds import OnFail, Repeat
from migverify.runbook.model import Step
from migverify.runbook.run.machine import steps_to_undo
from migverify.runbook.run.working import Key, seconds_for, verdict_of
from migverify.runbook.state import OVER, RunStatus, StepStatus, between

if TYPE_CHECKING:
    from migverify.runbook.run.executor import Executor

__all__ = ["FailureHandling"]

_K = EventKind


class FailureHandling:
    """Makes the next move about steps that failed, or whose effect is in doubt, for one executor."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        # Attempts whose probe was asked, and why it had no answer. An executor that begins anew asks once more.
        self._probed: dict[tuple[str, int], str] = {}

    def handle(self, id_: str) -> None:
        """Make the next move about a step in a bad state."""
        executor = self._executor
        status, one = executor.status, executor.status.steps[id_]
        if one.state not in OVER or one.handled:
            return
        step = status.definition(id_)
        if one.state is StepState.UNKNOWN:
            self._in_doubt(step, one)
        elif one.rejected:
            self._hold(one, f"{id_} was {one.reason}")
        elif step.on_fail.then is OnFail.RETRY:
            self._retry(step, one)
        elif step.on_fail.then is OnFail.ROLLBACK:
            self._roll_back(one)
        elif step.on_fail.then is OnFail.GOTO and step.on_fail.goto:
            target = status.steps.get(step.on_fail.goto)
            if target is not None and target.state in (StepState.PENDING, StepState.READY):
                self._write(one, _K.WENT, to=step.on_fail.goto, reason=one.reason)
            else:
                self._hold(one, f"{id_} failed, and {step.on_fail.goto} cannot be gone to")
        elif step.on_fail.then is not OnFail.SKIP:  # else two persons waive it, or have it tried again
            self._hold(one, f"{id_}: {one.state.value}: {one.reason}")

    def _write(self, one: StepStatus, kind: EventKind, **data: object) -> None:
        def same(now: RunStatus) -> bool:
            return now.steps[one.id] == one and now.order is None

        self._executor.write_if(same, kind, one.id, **data)

    def _hold(self, one: StepStatus, reason: str) -> None:
        self._write(one, _K.HELD, reason=reason)

    def _in_doubt(self, step: Step, one: StepStatus) -> None:
        elsewhere, probed = self._executor.unseen(one), self._probed.get((one.id, one.attempt))
        if elsewhere:
            # A probe would tell how it is now; a program that still works at it could change that a moment later.
            why = f"a program of it may still run on {elsewhere}: look there"
        elif probed is None:
            self._probe(step, one)  # also without a probe: first nothing of the effect may run any more
            return
        else:
            why = f"{'its probe does not tell' if step.reconcile is not None else 'it has no probe'}{probed}"
        self._hold(one, f"nobody knows whether the effect of {one.id} happened, and {why}: two persons have to say")

    def _retry(self, step: Step, one: StepStatus) -> None:
        if one.attempt > step.on_fail.times:
            self._hold(one, f"{one.id}: {one.state.value} {one.attempt} times: {one.reason}")
            return
        backoff, now = step.on_fail.backoff * 2 ** (one.attempt - 1), self._executor.record.now()
        early = one.ended is not None and between(one.ended, now).seconds < backoff
        if early or self._executor.status.state is not RunState.RUNNING:
            return
        if one.effect_done and step.repeat is not Repeat.YES:
            self._write(one, _K.RETRIED, to="verifying", reason=one.reason)
        elif not one.intent or step.repeat is Repeat.YES:
            self._write(one, _K.RETRIED, to="running", reason=one.reason)
        elif step.repeat is Repeat.CHECK and step.reconcile and (one.id, one.attempt) not in self._probed:
            self._probe(step, one)
        else:
            self._hold(one, f"{one.id}: {one.reason}; its effect may have happened, and may not be repeated")

    def _roll_back(self, one: StepStatus) -> None:
        status = self._executor.status
        if status.order is not None:
            return
        steps, why = steps_to_undo(status)
        if any(status.steps[id_].rollback is RollbackState.FAILED for id_ in steps):
            why = "a rollback failed before"
        if why:
            self._hold(one, f"{one.id}: {one.reason}; it cannot be rolled back: {why}")
        else:
            reason = f"{one.id}: {one.reason}"
            self._write(one, _K.ROLLBACK_ORDERED, steps=list(steps), then="aborted", reason=reason)

    def _probe(self, step: Step, one: StepStatus) -> None:
        executor = self._executor
        # A process of the last executor may still be at it: what is asked now may not hold in a moment.
        if executor.bench.of(one.id) or executor.at_work(one, one.attempt):
            return
        checks = (step.reconcile,) if step.reconcile is not None else ()
        limit = max((seconds_for(check) + 3 * check.for_seconds for check in checks), default=0.0)
        verify = step.rollback.verify if step.rollback is not None else ()
        executor.ask(Key(one.id, one.attempt, "probe"), checks, limit, effect=step.effect, attempt=one.attempt,
                     if_not=verify)  # fmt: skip

    def probed(self, one: StepStatus, answers: Sequence[CheckOutcome], undone: Sequence[CheckOutcome] | None) -> None:
        """Write down what a probe answered, when it did.

        ``undone`` are the answers of the rollback's own checks, where the probe says that the effect did not happen: a
        part of it may have.
        """
        verdict = verdict_of(answers)
        unclear = next((f": {answer.text}" for answer in answers if answer.state == "inconclusive"), "")
        self._probed[one.id, one.attempt] = unclear
        if verdict != "inconclusive" and one.intent:
            more = {} if undone is None else {"undone": [answer.as_json() for answer in undone]}
            checks = [answer.as_json() for answer in answers]
            self._executor.write(
                _K.RECONCILED, one.id, happened=verdict == "pass", how="probe", checks=checks, **more
            )  # fmt: skip
