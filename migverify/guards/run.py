"""Asks guards once. A guard that cannot be asked is INCONCLUSIVE, with the reason; the others still answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from migverify.errors import EndpointError, MigverifyError, ReadError, StoreError
from migverify.guards.model import Answer, Guard, GuardResult


def ask(
    guards: Sequence[Guard],
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


def _asked(guard: Guard, now: Callable[[], float]) -> GuardResult:
    started = now()
    try:
        result = guard.ask()
    except (EndpointError, ReadError, StoreError, OSError) as error:
        reason = error.line if isinstance(error, MigverifyError) else str(error)
        return GuardResult(guard.name, (), started, now() - started, (f"{guard.name} could not be asked: {reason}",))
    ended = now()
    answers = tuple(_timed(answer, ended) for answer in result.answers)
    return replace(result, answers=answers, started=started, seconds=max(0.0, ended - started))


def _timed(answer: Answer, moment: float) -> Answer:
    return answer if answer.local_time else replace(answer, local_time=moment)
