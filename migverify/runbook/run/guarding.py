"""Guards of a run: asked all the time, each in a thread of its own; no data is not a pass."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from migverify.runbook.actions.action import CheckOutcome, Context, Registry, ask
from migverify.runbook.events import StepState
from migverify.runbook.model import Guard
from migverify.runbook.run.working import seconds_for
from migverify.runbook.state import RunStatus

__all__ = ["GuardReport", "Guarding", "armed_phases"]

WRITE_SECONDS = 60.0
"""A guard whose answer stays the same is written down this often."""


@dataclass(frozen=True, slots=True)
class GuardReport:
    """What is to be done about a guard: ``write`` an event with these counts; ``trip`` says why the run is held."""

    guard: Guard
    answer: CheckOutcome
    asked: int
    due: int
    write: bool
    trip: str


@dataclass(slots=True)
class _GuardState:
    answer: CheckOutcome | None = None
    at: float = 0.0
    armed_since: float | None = None
    failing_since: float | None = None
    asked: int = 0
    due: int = 0
    written: float = 0.0
    written_state: str = ""


def armed_phases(status: RunStatus) -> frozenset[str]:
    """Return the phases that are under way: something was called in them, and not everything has passed."""
    begun, open_ = set(), set()
    idle = (StepState.PENDING, StepState.READY, StepState.NOT_APPLICABLE)
    over = (StepState.DONE, StepState.WAIVED, StepState.DRY, StepState.NOT_APPLICABLE)
    for step in status.runbook.steps:
        state = status.steps[step.id].state
        if state not in idle:
            begun.add(step.phase)
        if state not in over:
            open_.add(step.phase)
    return frozenset(begun & open_)


class Guarding:
    """Asks the guards of a run from ``begin`` to ``end``.

    Parameters
    ----------
    context
        Makes what a question may know, from its time limit.
    """

    def __init__(self, guards: Sequence[Guard], registry: Registry, context: Callable[[float], Context]) -> None:
        self._guards = {guard.id: guard for guard in guards}
        self._registry, self._context = registry, context
        self._known = {guard.id: _GuardState() for guard in guards}
        self._armed: frozenset[str] = frozenset()
        self._answers: queue.SimpleQueue[tuple[str, CheckOutcome, int]] = queue.SimpleQueue()
        self._stop = threading.Event()

    def begin(self) -> None:
        """Start the threads."""
        for guard in self._guards.values():
            threading.Thread(target=self._watch, args=(guard,), name=f"guard {guard.id}", daemon=True).start()

    def end(self) -> None:
        """Ask no more."""
        self._stop.set()

    def arm(self, phases: frozenset[str]) -> None:
        """Say which phases are under way."""
        self._armed = phases
        now = time.monotonic()
        for guard in self._guards.values():
            known = self._known[guard.id]
            if not self.armed(guard):
                known.armed_since = known.failing_since = None
            elif known.armed_since is None:
                known.armed_since = now

    def armed(self, guard: Guard, phase: str | None = None) -> bool:
        """Return whether a guard is asked now, or has to be asked because of a phase."""
        if "*" in guard.armed_in:
            return True
        return phase in guard.armed_in if phase is not None else bool(self._armed.intersection(guard.armed_in))

    def _watch(self, guard: Guard) -> None:
        due_at = time.monotonic()
        while not self._stop.wait(max(0.0, due_at - time.monotonic())):
            now = time.monotonic()
            if not self.armed(guard):
                due_at = now + min(0.2, guard.every)
                continue
            due = 1 + int((now - due_at) / guard.every)  # more than one when the last answer took too long
            answer = ask(self._registry, guard, self._context(seconds_for(guard)))
            self._answers.put((guard.id, answer, due))
            due_at += due * guard.every

    def waits_for(self, status: RunStatus, phase: str) -> str:
        """Return the guard without a fresh pass that a step of a phase has to wait for; empty: none."""
        now = time.monotonic()
        for guard in self._guards.values():
            if not self.armed(guard, phase) or guard.id in status.despite:
                continue
            known = self._known[guard.id]
            fresh = known.answer is not None and known.answer.state == "pass" and now - known.at <= _patience(guard)
            if not fresh:
                return guard.id
        return ""

    def look(self, status: RunStatus) -> list[GuardReport]:
        """Take the answers that came, and say what is to be done about every guard that is armed."""
        changed = set()
        while not self._answers.empty():
            id_, answer, due = self._answers.get()
            known = self._known[id_]
            known.answer, known.at = answer, time.monotonic()
            known.asked += answer.state != "inconclusive"
            known.due += due
            changed.add(id_)
        found = (self._judge(guard, status, guard.id in changed) for guard in self._guards.values())
        return [report for report in found if report is not None]

    def _judge(self, guard: Guard, status: RunStatus, changed: bool) -> GuardReport | None:
        known, now = self._known[guard.id], time.monotonic()
        if known.armed_since is None:
            return None
        answer = known.answer
        if now - max(known.at, known.armed_since) > _patience(guard):
            answer = CheckOutcome(guard.action, "inconclusive", f"no answer for {now - known.at:.0f} s")
            changed = changed or known.written_state != "inconclusive"
        if answer is None or not changed:
            return None
        if answer.state == "pass":
            known.failing_since = None
        elif known.failing_since is None:
            known.failing_since = now
        write = answer.state != known.written_state or now - known.written >= WRITE_SECONDS
        report = GuardReport(guard, answer, known.asked, known.due, write, self._trip(guard, known, answer, status))
        if write:
            known.asked = known.due = 0
            known.written, known.written_state = now, answer.state
        return report

    @staticmethod
    def _trip(guard: Guard, known: _GuardState, answer: CheckOutcome, status: RunStatus) -> str:
        if answer.state == "pass" or guard.id in status.despite:
            return ""
        # A breach may last for `for`; not knowing may not: it could be any breach.
        failing = time.monotonic() - (known.failing_since or time.monotonic())
        if answer.state == "fail" and failing < guard.for_seconds:
            return ""
        return f"guard {guard.id} {'fails' if answer.state == 'fail' else 'tells nothing'}: {answer.text}"


def _patience(guard: Guard) -> float:
    return max(3 * guard.every, guard.every + seconds_for(guard))
