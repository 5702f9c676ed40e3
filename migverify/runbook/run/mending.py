"""The executor's part in failures: what ``failing`` says is to be done about a step is done here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migverify.runbook.actions.action import Answer
from migverify.runbook.events import EventKind
from migverify.runbook.record.lease import still_running
from migverify.runbook.run.failing import Move, next_move
from migverify.runbook.run.working import Key, seconds_for, verdict_of
from migverify.runbook.state import RunStatus, StepStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from migverify.runbook.run.executor import Executor

__all__ = ["Mending"]

_K = EventKind


class Mending:
    """Makes the next move about steps that failed, or that nobody knows about, for one executor."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        # Attempts whose probe was asked and did not tell. An executor that begins anew asks once more.
        self._probed: set[tuple[str, int]] = set()

    def look_at(self, id_: str) -> None:
        """Make the next move about a step in a bad state."""
        executor = self._executor
        one = executor.status.steps[id_]
        probed, elsewhere = (id_, one.attempt) in self._probed, executor.unseen(one)
        move = next_move(executor.status, one, executor.record.now(), probed=probed, elsewhere=elsewhere)
        if move.what == "probe":
            self._probe(one)
        elif move.what != "wait":
            self._make(one, move)

    def probe_told(self, one: StepStatus, answers: Sequence[Answer]) -> None:
        """Write down what a probe said, when it said something."""
        verdict = verdict_of(answers)
        self._probed.add((one.id, one.attempt))
        if verdict != "inconclusive" and one.intent:
            checks = [answer.as_json() for answer in answers]
            self._executor.write(_K.RECONCILED, one.id, happened=verdict == "pass", how="probe", checks=checks)

    def _probe(self, one: StepStatus) -> None:
        executor = self._executor
        key, step = Key(one.id, one.attempt, "probe"), executor.status.definition(one.id)
        # A program of the last executor may still be at it: what is asked now may not hold in a moment.
        at_it = executor.bench.of(one.id) or still_running(executor.record.folder, one.id, one.attempt)
        if step.reconcile is not None and not at_it:
            executor.ask(key, (step.reconcile,), seconds_for(step.reconcile) + 3 * step.reconcile.for_seconds)

    def _make(self, one: StepStatus, move: Move) -> None:
        write_if = self._executor.write_if

        def still(now: RunStatus) -> bool:
            return now.steps[one.id] == one and now.order is None

        if move.what == "hold":
            write_if(still, _K.HELD, one.id, reason=move.reason)
        elif move.what == "retry":
            write_if(still, _K.RETRIED, one.id, to=move.to, reason=move.reason)
        elif move.what == "goto":
            write_if(still, _K.WENT, one.id, to=move.to, reason=move.reason)
        elif move.what == "rollback":
            write_if(still, _K.ROLLBACK_ORDERED, one.id, steps=list(move.steps), then="aborted", reason=move.reason)
