"""Asks guards, once or again and again. A guard that cannot be asked is INCONCLUSIVE; the others still answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from migverify.errors import EndpointError, MigverifyError, ReadError, StoreError
from migverify.guards.model import AnswerState, GuardAnswer, GuardResult, StandingGuard, worst
from migverify.model import Verdict
from migverify.watch.loop import Ending, watch


def ask(
    guards: Sequence[StandingGuard],
    *,
    now: Callable[[], float] = time.time,
    on_result: Callable[[GuardResult], object] | None = None,
) -> list[GuardResult]:
    """Ask every guard, in order.

    Parameters
    ----------
    on_result
        Called with each result as it comes.

    Raises
    ------
    ConfigError, UsageError
        What the user has to change; a server that does not answer is INCONCLUSIVE instead.
    """
    results = []
    for guard in guards:
        result = _asked(guard, now)
        results.append(result)
        if on_result is not None:
            on_result(result)
    return results


def _asked(guard: StandingGuard, now: Callable[[], float]) -> GuardResult:
    started = now()
    try:
        result = guard.ask()
    except (EndpointError, ReadError, StoreError, OSError) as error:
        reason = error.line if isinstance(error, MigverifyError) else str(error)
        return GuardResult(guard.name, (), started, now() - started, (f"{guard.name} could not be asked: {reason}",))
    ended = now()
    answers = tuple(_timed(answer, ended) for answer in result.answers)
    return replace(result, answers=answers, started=started, seconds=max(0.0, ended - started))


def _timed(answer: GuardAnswer, moment: float) -> GuardAnswer:
    return answer if answer.local_time else replace(answer, local_time=moment)


@dataclass(frozen=True, slots=True)
class AnswerChange:
    """An answer whose state is another than before; ``before`` is None for one that is new, ``after`` for one gone."""

    guard: str
    subject: str
    name: str
    before: AnswerState | None
    after: AnswerState | None
    answer: GuardAnswer | None


@dataclass(frozen=True, slots=True)
class GuardsStatus:
    """Everything at one moment. ``changes`` are those since the asking before; none at the first."""

    at: float
    turn: int
    results: tuple[GuardResult, ...]
    changes: tuple[AnswerChange, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst of the last asking."""
        return worst(self.results)


@dataclass(slots=True)
class GuardsWatch:
    """Guards that are asked every ``every`` seconds, ``turns`` times or until the watch is stopped.

    ``on_status`` receives the status of each asking, the last included.
    """

    guards: Sequence[StandingGuard]
    every: float
    on_status: Callable[[GuardsStatus], None]
    now: Callable[[], float] = time.time
    turns: int | None = None
    _turn: int = 0
    _before: dict[tuple[str, str, str], AnswerState] = field(default_factory=dict)
    _latest: GuardsStatus = GuardsStatus(0.0, 0, (), ())

    def run(
        self, stop: Callable[[], bool] = lambda: False, wait: Callable[[float], object] = time.sleep
    ) -> GuardsStatus:
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
        self._latest = GuardsStatus(self.now(), self._turn, work, changes)
        self.on_status(self._latest)

    def ending(self) -> Ending | None:
        """Return DONE after the last asking."""
        return Ending.DONE if self.turns is not None and self._turn >= self.turns else None

    def status(self, ending: Ending | None = None) -> GuardsStatus:
        """Return the status of the last asking."""
        del ending
        return self._latest


def _changes(
    before: dict[tuple[str, str, str], AnswerState], results: Sequence[GuardResult]
) -> tuple[AnswerChange, ...]:
    answers = {(a.guard, a.subject, a.name): a for result in results for a in result.answers}
    changed = [
        AnswerChange(*key, before.get(key), answer.state, answer)
        for key, answer in answers.items()
        if before.get(key) is not answer.state
    ]
    return (*changed, *(AnswerChange(*key, state, None, None) for key, state in before.items() if key not in answers))
