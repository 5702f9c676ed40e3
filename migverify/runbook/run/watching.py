"""The executor's eyes: clocks of steps, guards, window, readiness, budgets, and the rules that call for a rollback.

What they see is written down, and holds the run or takes it back; nothing of it is remembered but in the journal.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from migverify.errors import MigverifyError
from migverify.runbook import conditions as c
from migverify.runbook.actions.rollback_loss import numbers_of
from migverify.runbook.announce.reminders import Reminders
from migverify.runbook.clock import Moment
from migverify.runbook.events import EventKind, RollbackState, RunState
from migverify.runbook.kinds import RunKind
from migverify.runbook.model import Runbook
from migverify.runbook.record.chain import Draft
from migverify.runbook.run.guarding import Guarding, GuardReport, armed_phases
from migverify.runbook.run.machine import steps_to_undo
from migverify.runbook.run.working import Key
from migverify.runbook.state import UNDER_WAY, RunStatus, StepStatus

if TYPE_CHECKING:
    from migverify.runbook.run.executor import Executor

__all__ = ["Readiness", "Watching"]

Readiness = Callable[[Runbook], tuple[bool, tuple[str, ...]]]
"""Tells whether a runbook is ready for a live run, and the reasons when it is not."""

_K = EventKind


class Watching:
    """Watches a run for one executor, from ``begin`` to ``end``.

    Parameters
    ----------
    readiness
        Asked once by each executor of a live run; None: nobody can tell, and two persons have to.
    """

    def __init__(self, executor: Executor, readiness: Readiness | None) -> None:
        self._executor, self._readiness = executor, readiness
        book, context = executor.status.runbook, partial(executor.context, "", 0)
        self._guards = Guarding(book.guards, executor.registry, context)
        self._rules = Guarding(c.rollback_rules(book), executor.registry, context)
        self._overdue: set[Key] = set()
        self._asked = False
        self._reminders = Reminders()

    def begin(self) -> None:
        """Ask guards and rules from now on."""
        self._guards.begin()
        self._rules.begin()

    def end(self) -> None:
        """Ask no more."""
        self._guards.end()
        self._rules.end()

    def waits_for(self, phase: str) -> str:
        """Return the guard without a fresh pass that a step of a phase has to wait for; empty: none."""
        return self._guards.waits_for(self._status, phase)

    def is_overdue(self, key: Key) -> bool:
        """Tell whether a piece of work was ended for taking too long."""
        return key in self._overdue

    def forget(self, key: Key) -> None:
        """Say that a piece of work is over and written down."""
        self._overdue.discard(key)

    def look(self) -> None:
        """Look once at everything."""
        self._look_at_guards()
        if self._status.kind is not RunKind.DRY:
            self._look_at_readiness()
            self._look_at_window()
            self._look_at_decision()
        self._look_at_clocks()
        self._look_at_write_stop()

    @property
    def _status(self) -> RunStatus:
        return self._executor.status

    # -- what holds the run -------------------------------------------------------------------------------------

    def _stand(self, id_: str, state: str, text: str, reason: str) -> None:
        """Write down what a condition says when it changed, and hold the run while it does not pass.

        Both in one append, and looked at again in every round: an executor that is gone between them changes nothing.
        """

        def due(status: RunStatus) -> list[Draft]:
            before, drafts = status.guards.get(id_), list[Draft]()
            if before is None or before.state != state:
                data = {"guard": id_, "state": state, "text": text, "value": None, "asked": 1, "due": 1}
                drafts.append(self._draft(_K.GUARD, data))
            if state != "pass" and not _known(status, id_):
                drafts.append(self._draft(_K.HELD, {"guard": id_, "reason": reason}))
            return drafts

        if due(self._status):
            self._executor.record.write(lambda status, _now: due(status), epoch=self._executor.lease.epoch)

    def _draft(self, kind: EventKind, data: dict[str, Any]) -> Draft:
        return Draft(kind, self._executor.lease.executor, "executor", data=data)

    def _look_at_readiness(self) -> None:
        if self._status.kind is not RunKind.LIVE:
            return
        known = self._status.guards.get(c.READINESS)
        if known is not None and (self._asked or known.state == "pass"):
            state, text = known.state, known.text
        else:
            state, text = self._ask_readiness()
            self._asked = True
        self._stand(c.READINESS, state, text, f"readiness: {text}")

    def _ask_readiness(self) -> tuple[str, str]:
        if self._readiness is None:
            return "inconclusive", "nobody could tell whether the run is ready"
        try:
            ready, reasons = self._readiness(self._status.runbook)
        except MigverifyError as error:
            return "inconclusive", f"it is not known whether the run is ready: {error.message}"
        if ready is True and not reasons:
            return "pass", "ready"
        return "fail", "not ready: " + ("; ".join(reasons) or "no reason was given")

    def _look_at_window(self) -> None:
        found = c.window_state(self._status, self._executor.record.now().wall)
        if found is not None:
            self._stand(c.WINDOW, *found, f"window: {found[1]}")

    def _look_at_decision(self) -> None:
        status, late = self._status, c.late_decision(self._status, self._executor.record.now())
        if late and not _known(status, c.DECISION_BY):
            reason = f"{late}; {c.who_decides(status)} decides"
            self._executor.write(_K.HELD, guard=c.DECISION_BY, reason=reason)

    def _look_at_write_stop(self) -> None:
        status, late = self._status, c.spent_budget(self._status, self._executor.record.now())
        if not late or _known(status, c.WRITE_STOP):
            return
        why = _why_not_undone(status)
        if why:
            reason = f"{late}; nothing is canceled by itself: {why}"
            self._executor.write(_K.HELD, guard=c.WRITE_STOP, reason=reason)
        else:
            steps, _ = steps_to_undo(status)
            self._executor.write(_K.ROLLBACK_ORDERED, steps=list(steps), then="aborted", reason=late)

    def _look_at_guards(self) -> None:
        self._guards.arm(armed_phases(self._status))
        # Before an effect is in place there is nothing to take back, and often nothing that could be asked.
        acted = any(one.intent for one in self._status.steps.values())
        self._rules.arm(frozenset({c.ARMED}) if acted else frozenset())
        for report in self._guards.look(self._status):
            self._guard_reported(report, report.guard.on_fail, report.trip)
        for report in self._rules.look(self._status):
            trip = report.trip and f"{report.trip}; {c.who_decides(self._status)} decides about a rollback"
            self._guard_reported(report, "hold", trip)

    def _guard_reported(self, report: GuardReport, on_fail: str, trip: str) -> None:
        guard, answer = report.guard, report.answer
        if report.write:
            self._executor.write(_K.GUARD, guard=guard.id, state=answer.state, text=answer.text, value=answer.value,
                                 asked=report.asked, due=report.due, **numbers_of(answer))  # fmt: skip
        # A dry run asks its guards, and goes on: it has nothing that could be held.
        if trip and self._status.order is None and self._status.kind is not RunKind.DRY:
            self._trip(guard.id, on_fail, trip)

    def _trip(self, guard: str, on_fail: str, reason: str) -> None:
        status = self._status
        if on_fail == "rollback" and guard not in status.hold_guards and not _why_not_undone(status):
            steps, _ = steps_to_undo(status)
            self._executor.write(_K.ROLLBACK_ORDERED, steps=list(steps), then="aborted", reason=reason)
        elif not _held_by(status, guard):
            self._executor.write(_K.HELD, guard=guard, reason=reason)

    # -- clocks of steps ----------------------------------------------------------------------------------------

    def _look_at_clocks(self) -> None:
        now = self._executor.record.now()
        for id_ in sorted(self._status.busy):
            one = self._status.steps[id_]
            if one.state in UNDER_WAY:
                self._look_at(one, now)
        for due in self._reminders.due(self._status, now):
            data = {"number": due.number, "waits_for": list(due.waits_for), "backups": list(due.backups)}
            self._executor.write(_K.NOTE, due.wait.step, alarm="waiting", text=due.text, **data)

    def _look_at(self, one: StepStatus, now: Moment) -> None:
        times, span = self._status.definition(one.id).times, self._status.active_time(one.id, now)
        if span is None:
            return
        if times.plan is not None and span.seconds > times.plan and "late" not in one.alarms:
            self._executor.write(_K.NOTE, one.id, alarm="late", text=f"{one.id} was planned for {times.plan:g} s")
        if times.maximum is None or span.seconds <= times.maximum:
            return
        keys = [key for key in self._executor.bench.of(one.id) if key.purpose in ("effect", "verify")]
        for key in keys:
            self._overdue.add(key)
            self._executor.bench.cancel(key)
        if not keys:
            self._executor.write(_K.TIMED_OUT, one.id, reason=f"longer than {times.maximum:g} s")


def _held_by(status: RunStatus, guard: str) -> bool:
    return status.state is RunState.HELD and guard in status.hold_guards


def _known(status: RunStatus, guard: str) -> bool:
    """Tell whether nothing more is to be done about a condition: it holds the run, two went on, or all is undone."""
    return _held_by(status, guard) or guard in status.despite or status.order is not None


def _why_not_undone(status: RunStatus) -> str:
    """Return why the executor does not order a rollback by itself now; empty: it may."""
    steps, why = steps_to_undo(status)
    if why:
        return why
    if any(status.steps[id_].rollback is RollbackState.FAILED for id_ in steps):
        return "a rollback failed before"
    return "a hard point of no return is behind" if status.past_hard_pnr else ""
