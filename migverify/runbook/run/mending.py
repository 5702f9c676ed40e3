"""The executor's part in failures: what ``failing`` says is to be done about a step is done here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migverify.runbook.actions.action import Answer
from migverify.runbook.events import EventKind
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
        # Attempts whose probe was asked, and why it did not tell. An executor that begins anew asks once more.
        self._probed: dict[tuple[str, int], str] = {}

    def look_at(self, id_: str) -> None:
        """Make the next move about a step in a bad state."""
        executor = self._executor
        one = executor.status.steps[id_]
        probed, elsewhere = self._probed.get((id_, one.attempt)), executor.unseen(one)
        move = next_move(executor.status, one, executor.record.now(), probed=probed, elsewhere=elsewhere)
        if move.what == "probe":
            self._probe(one)
        elif move.what != "wait":
            self._make(one, move)

    def probe_told(self, one: StepStatus, answers: Sequence[Answer], undone: Sequence[Answer] | None) -> None:
        """Write down what a probe said, when it said something.

        ``undone`` are the answers of the rollback's own checks, where the probe says that the effect did not happen: a
        part of it may have.
        """
        verdict = verdict_of(answers)
        unclear = next((f": {one.text}" for one in answers if one.state == "inconclusive"), "")
        self._probed[one.id, one.attempt] = unclear
        if verdict != "inconclusive" and one.intent:
            checks = [answer.as_json() for answer in answers]
            more = {} if undone is None else {"undone": [answer.as_json() for answer in undone]}
            self._executor.write(
                _K.RECONCILED, one.id, happened=verdict == "pass", how="probe", checks=checks, **more
            )  # fmt: skip

    def _probe(self, one: StepStatus) -> None:
        executor, step = self._executor, self._executor.status.definition(one.id)
        # A process of the last executor may still be at it: what is asked now may not hold in a moment.
        if executor.bench.of(one.id) or executor.at_work(one, one.attempt):
            return
        checks = (step.reconcile,) if step.reconcile is not None else ()
        limit = max((seconds_for(check) + 3 * check.for_seconds for check in checks), default=0.0)
        verify = step.rollback.verify if step.rollback is not None else ()
        executor.ask(Key(one.id, one.attempt, "probe"), checks, limit, effect=step.effect, attempt=one.attempt,
                     if_not=verify)  # fmt: skip

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
