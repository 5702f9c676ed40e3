"""The executor's part in a rollback: effects are undone from the last to the first, each one verified."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from migverify.runbook.actions.action import ActionResult, CheckOutcome, Outcome
from migverify.runbook.events import EventKind, RollbackState, RunState, StepState
from migverify.runbook.model import Effect
from migverify.runbook.run.machine import abort_state
from migverify.runbook.run.working import Key, seconds_for, verdict_of
from migverify.runbook.state import OVER, RollbackOrder, RunStatus, StepStatus

if TYPE_CHECKING:
    from migverify.runbook.run.executor import Executor

__all__ = ["Undoing"]

_K = EventKind
_UNDO = 1_000_000
"""Added to the attempt of an undoing, so that its process lock is not the effect's."""


class Undoing:
    """Carries an ordered rollback out, for one executor."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def go_on(self) -> None:
        """Take the next steps of the rollback that was ordered."""
        status = self._executor.status
        order = status.order
        if order is None or self._stops_work(status):
            return
        for id_ in order.steps:
            one = self._executor.status.steps[id_]
            if one.rollback in (RollbackState.UNDONE_VERIFIED, RollbackState.NONE_NEEDED):
                continue  # two persons may have said meanwhile that its effect did not happen
            if one.state is StepState.UNKNOWN and not one.handled:
                self._executor.failures.handle(id_)
            elif one.rollback in (RollbackState.ARMED, RollbackState.FAILED):
                self._begin(one)
            elif one.rollback is RollbackState.RUNNING:
                self.verify_lost(one)
            return
        self._end(order)

    def _stops_work(self, status: RunStatus) -> bool:
        """End what is under way before anything is undone; returns whether something still is."""
        waits = False
        for id_ in sorted(status.busy):
            one = status.steps[id_]
            if one.rollback is RollbackState.RUNNING:
                continue
            keys = self._executor.bench.of(id_)
            for key in keys:
                self._executor.bench.cancel(key)
                waits = True
            if not keys:
                self._executor.write(_K.FAILED, id_, reason="ended, as the run is rolled back")
        return waits

    def _begin(self, one: StepStatus) -> None:
        # The order was given before this step's own end was known: nobody may know about its effect now.
        if one.state is StepState.UNKNOWN or self._executor.at_work(one, one.attempt):
            return
        if self._executor.at_work(one, one.attempt + _UNDO):
            return  # an earlier undoing of it, which failed, has left something behind
        step = self._executor.status.definition(one.id)
        effect = step.rollback.effect if step.rollback is not None else None
        facts = {"action": effect.action, "arguments": effect.arguments} if effect is not None else {"manual": True}
        self._executor.write(_K.ROLLBACK_INTENT, one.id, **facts)
        if effect is not None:
            self._carry_out(one, effect)

    def _carry_out(self, one: StepStatus, effect: Effect) -> None:
        executor, attempt = self._executor, one.attempt + _UNDO
        executor.bench.begin(
            Key(one.id, one.attempt, "undo"), lambda canceled: executor.carry_out(effect, one.id, attempt, canceled)
        )

    def verify_lost(self, one: StepStatus) -> None:
        """Ask the checks of a rollback whose effect is done, or was lost with the executor that did it."""
        rollback = self._executor.status.definition(one.id).rollback
        if rollback is None or self._executor.bench.of(one.id):
            return
        if not one.undo_done and (rollback.effect is None or self._executor.at_work(one, one.attempt + _UNDO)):
            return  # a person, or a process of the last executor, is at it
        elsewhere = "" if one.undo_done else self._executor.unseen(one)
        if elsewhere:
            if "elsewhere" not in one.alarms:
                text = f"the undoing of {one.id} may still run on {elsewhere}: look there; its DRI says done or fail"
                self._executor.write(_K.NOTE, one.id, alarm="elsewhere", text=text)
            return
        limit = max((3 * check.for_seconds + seconds_for(check) for check in rollback.verify), default=0.0)
        self._executor.ask(Key(one.id, one.attempt, "undone"), rollback.verify, limit,
                           effect=None if one.undo_done else rollback.effect, attempt=one.attempt + _UNDO)  # fmt: skip

    def take(self, key: Key, result: Any) -> None:
        """Write down what became of an undoing."""
        one = self._executor.status.steps[key.step]
        if one.rollback is not RollbackState.RUNNING or one.attempt != key.attempt:
            return
        if key.purpose == "undo":
            self._undone(one, result)
        else:
            self._judged(one, result)

    def _undone(self, one: StepStatus, result: ActionResult) -> None:
        facts = {"outcome": result.outcome.value, "text": result.text, "evidence": result.evidence}
        good = result.outcome is Outcome.OK
        self._executor.write(_K.ROLLBACK_EFFECT, one.id, **facts, ok=good, reason="" if good else result.text)
        if not good:
            self._hold(f"the rollback of {one.id} failed: {result.text}")

    def _judged(self, one: StepStatus, answers: list[CheckOutcome]) -> None:
        good = verdict_of(answers) == "pass"
        bad = next((answer for answer in answers if answer.state != "pass"), None)
        reason = "" if good else f"{bad.action}: {bad.text}" if bad is not None else "there is no check of it"
        checks = [answer.as_json() for answer in answers]
        lost = not one.undo_done
        self._executor.write(_K.ROLLBACK_VERIFIED, one.id, ok=good, lost=lost, checks=checks, reason=reason)
        if not good:
            self._hold(f"the rollback of {one.id} is not verified: {reason}")

    def _hold(self, reason: str) -> None:
        self._executor.write(_K.HELD, reason=reason)

    def _end(self, order: RollbackOrder) -> None:
        if order.then == "hold":
            return
        status = self._executor.status
        if any(one.state in OVER and one.state is StepState.UNKNOWN for one in status.steps.values()):
            return
        state = abort_state(status)
        if order.then == "rolled back" and state is RunState.ABORTED_CLEAN:
            state = RunState.ROLLED_BACK
        self._executor.write(_K.RUN_ENDED, state=state.value, reason=order.reason)
