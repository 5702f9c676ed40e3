"""Guards as standing alarms: asked again and again, every change of an answer told and kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from migverify.guards.model import Answer, Guard, GuardResult, State, worst
from migverify.guards.run import ask
from migverify.model import Verdict


@dataclass(frozen=True, slots=True)
class Change:
    """An answer whose state is another than before; ``before`` is None for one that is new, ``after`` for one gone."""

    guard: str
    subject: str
    name: str
    before: State | None
    after: State | None
    answer: Answer | None


@dataclass(frozen=True, slots=True)
class GuardStatus:
    """Everything at one moment. ``changes`` are those since the asking before; none at the first."""

    at: float
    turn: int
    results: tuple[GuardResult, ...]
    changes: tuple[Change, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst of the last asking."""
        return worst(self.results)


def watch(
    guards: Sequence[Guard], every: float, *, stop: Callable[[], bool], on_status: Callable[[GuardStatus], None],
    now: Callable[[], float] = time.time, wait: Callable[[float], object] = time.sleep, turns: int | None = None,
) -> GuardStatus:  # fmt: skip
    """Ask until ``stop``, every ``every`` seconds, and return the last status.

    Parameters
    ----------
    wait
        Waits so many seconds, or less where it is woken (an Event's ``wait``).
    turns
        End after so many askings; None never.
    """
    turn = 0
    before: dict[tuple[str, str, str], State] = {}
    while True:
        began = now()
        results = tuple(ask(guards, now=now))
        changes = _changes(before, results) if turn else ()
        turn += 1
        status = GuardStatus(now(), turn, results, changes)
        before = {(a.guard, a.subject, a.name): a.state for result in results for a in result.answers}
        on_status(status)
        if stop() or (turns is not None and turn >= turns):
            return status
        wait(max(0.0, began + every - now()))
        if stop():
            return status


def _changes(before: dict[tuple[str, str, str], State], results: Sequence[GuardResult]) -> tuple[Change, ...]:
    answers = {(a.guard, a.subject, a.name): a for result in results for a in result.answers}
    changed = [
        Change(*key, before.get(key), answer.state, answer)
        for key, answer in answers.items()
        if before.get(key) is not answer.state
    ]
    return (*changed, *(Change(*key, state, None, None) for key, state in before.items() if key not in answers))
