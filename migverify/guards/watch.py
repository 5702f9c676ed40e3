"""Guards as standing alarms: asked again and again, every change of an answer told and kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from migverify.guards.model import Answer, Guard, GuardResult, State, worst
from migverify.guards.run import ask
from migverify.model import Verdict
from migverify.watch.loop import Ending, watch


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


@dataclass(slots=True)
class GuardsWatch:
    """Guards that are asked every ``every`` seconds, ``turns`` times or until the watch is stopped.

    ``on_status`` receives the status of each asking, the last included.
    """

    guards: Sequence[Guard]
    every: float
    on_status: Callable[[GuardStatus], None]
    now: Callable[[], float] = time.time
    turns: int | None = None
    _turn: int = 0
    _before: dict[tuple[str, str, str], State] = field(default_factory=dict)
    _latest: GuardStatus = GuardStatus(0.0, 0, (), ())

    def run(
        self, stop: Callable[[], bool] = lambda: False, wait: Callable[[float], object] = time.sleep
    ) -> GuardStatus:
        """Ask until it ends, and return the last status."""
        return watch(self, stop=stop, clock=self.now, wait=wait)

    def due(self, began: float) -> float:
        """Return the seconds until the next asking."""
        return began + self.every - self.now()

    def check(self, stop: Callable[[], bool]) -> tuple[GuardResult, ...]:
        """Ask every guard."""
        del stop
        return tuple(ask(self.guards, now=self.now))

    def record(self, work: tuple[GuardResult, ...]) -> None:
        """Report the answers, and what changed since the asking before."""
        changes = _changes(self._before, work) if self._turn else ()
        self._turn += 1
        self._before = {(a.guard, a.subject, a.name): a.state for result in work for a in result.answers}
        self._latest = GuardStatus(self.now(), self._turn, work, changes)
        self.on_status(self._latest)

    def ending(self) -> Ending | None:
        """Return DONE after the last asking."""
        return Ending.DONE if self.turns is not None and self._turn >= self.turns else None

    def status(self, ending: Ending | None = None) -> GuardStatus:
        """Return the status of the last asking."""
        del ending
        return self._latest


def _changes(before: dict[tuple[str, str, str], State], results: Sequence[GuardResult]) -> tuple[Change, ...]:
    answers = {(a.guard, a.subject, a.name): a for result in results for a in result.answers}
    changed = [
        Change(*key, before.get(key), answer.state, answer)
        for key, answer in answers.items()
        if before.get(key) is not answer.state
    ]
    return (*changed, *(Change(*key, state, None, None) for key, state in before.items() if key not in answers))
