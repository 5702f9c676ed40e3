"""When a run will end, and until when one can still go back: pure, from durations of earlier drills."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from migverify.errors import UsageError
from migverify.runbook.definition.plan import (
    HANDOFF_SECONDS,
    applies,
    handoffs_after,
    handoffs_before,
)
from migverify.runbook.graph import Network, network_of, starting_by_themselves
from migverify.runbook.kinds import RunKind
from migverify.runbook.model import Rollback, Runbook

ENOUGH_DRILLS = 2
"""With fewer measured runs of a step the author's plan counts."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds a step will take. ``drills`` 0: the author's plan, for both."""

    p50: float
    p90: float
    drills: int


@dataclass(frozen=True, slots=True)
class Drills:
    """What earlier drills say about a run.

    Parameters
    ----------
    number
        Which rehearsal this is, for example ``3/4``; empty: not known, or none.
    seconds
        How long steps took, one mapping a drill; see ``estimates``.
    """

    number: str = ""
    seconds: tuple[Mapping[str, float], ...] = ()


NO_DRILLS = Drills()
"""Nothing is known of earlier drills."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, seconds from its start: steps that ended (or will not run), and steps under way."""

    finished: Mapping[str, float] = field(default_factory=dict)
    running: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds from the start. ``finish_p90`` has every step at its p90, so it is later than the p90 of the run.

    ``unknown`` are steps that have no time at all: they count 0, and both ends are "not before".
    """

    finish_p50: float
    finish_p90: float
    starts: Mapping[str, float]
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RollbackDeadline:
    """Until when a rollback fits the window, Unix time; ``unknown``: armed steps without a plan: too late already."""

    at: float
    needs: float
    unknown: tuple[str, ...]

    def left(self, now: float) -> float:
        """Return the seconds left at ``now``; negative: over."""
        return self.at - now


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest measured value that at least ``share`` of the values do not exceed (nearest rank).

    Raises UsageError: there are no values, one is no time, or ``share`` is not in (0, 1].
    """
    if not values or not 0 < share <= 1:
        raise UsageError("a quantile needs values and a share above 0 and up to 1")
    if not all(math.isfinite(value) and value >= 0 for value in values):
        raise UsageError("a duration is negative or no number", hint="The journal it comes from is damaged.")
    return sorted(values)[max(0, math.ceil(share * len(values) - 1e-9) - 1)]


def estimates(runbook: Runbook, drills: Iterable[Mapping[str, float]]) -> dict[str, Estimate]:
    """Return what each step will take, by its id: p50 and p90 of the drills, else the author's plan.

    Parameters
    ----------
    runbook
        The definition. Drills of another definition of a step should be left out by the caller.
    drills
        One mapping a drill: step id -> seconds. A step that did not run, or did not end well, is not in it.
    """
    measured: dict[str, list[float]] = {}
    for drill in drills:
        for id_, seconds in drill.items():
            measured.setdefault(id_, []).append(seconds)
    found = {}
    for step in runbook.steps:
        values = measured.get(step.id, [])
        if len(values) >= ENOUGH_DRILLS or (values and step.times.plan is None):
            found[step.id] = Estimate(quantile(values, 0.5), quantile(values, 0.9), len(values))
        elif step.times.plan is not None:
            found[step.id] = Estimate(step.times.plan, step.times.plan, 0)
    return found


def forecast(
    runbook: Runbook, kind: RunKind, expected: Mapping[str, Estimate], progress: Progress, now: float,
    handoff: float = HANDOFF_SECONDS,
) -> Forecast:  # fmt: skip
    """Say when a run will end, from what it is ``now`` (seconds from its start).

    What runs ends at its start plus its estimate and its review, and not before now; what waits begins when its last
    need ends and people have handed it over, and not before now.

    Raises UsageError: steps wait for each other.
    """
    network = network_of(runbook.steps)
    if network.stuck:
        raise UsageError("steps wait for each other: nothing can be forecast")
    _, middle = _walk(runbook, network, kind, {id_: one.p50 for id_, one in expected.items()}, progress, now, handoff)
    starts, slow = _walk(
        runbook, network, kind, {id_: one.p90 for id_, one in expected.items()}, progress, now, handoff
    )
    unknown = tuple(
        step.id for step in runbook.steps
        if applies(step, runbook.environment, kind) and step.id not in expected and step.id not in progress.finished
    )  # fmt: skip
    return Forecast(middle, slow, starts, unknown)


def _walk(
    runbook: Runbook, network: Network, kind: RunKind, lasts: Mapping[str, float], progress: Progress, now: float,
    handoff: float,
) -> tuple[dict[str, float], float]:  # fmt: skip
    ends = [0.0] * len(runbook.steps)
    starts = {}
    steps = [step for step in runbook.steps if applies(step, runbook.environment, kind)]
    alone = starting_by_themselves(steps, {step.id: step.needs for step in runbook.steps})
    for n in network.order:
        step = runbook.steps[n]
        begin = max((ends[need] for need in network.needs[n]), default=0.0)
        if step.id in progress.finished:
            ends[n] = progress.finished[step.id]
        elif not applies(step, runbook.environment, kind):
            ends[n] = begin
        elif step.id in progress.running:
            took = lasts.get(step.id, 0.0) + handoffs_after(step, kind) * handoff
            ends[n] = max(now, progress.running[step.id] + took)
        else:
            starts[step.id] = max(begin, now) + handoffs_before(step, alone, kind) * handoff
            ends[n] = starts[step.id] + lasts.get(step.id, 0.0) + handoffs_after(step, kind) * handoff
    return starts, max(ends, default=0.0)


def duration_of(
    runbook: Runbook, kind: RunKind, handoff: float = HANDOFF_SECONDS
) -> Callable[[Sequence[float]], float]:
    """Return what tells how long a run takes from its beginning, from the seconds of each step in their order.

    It is what ``forecast`` says of a run that has not begun, prepared for many samples.

    Raises UsageError: steps wait for each other.
    """
    network = network_of(runbook.steps)
    if network.stuck:
        raise UsageError("steps wait for each other: nothing can be forecast")
    steps = [step for step in runbook.steps if applies(step, runbook.environment, kind)]
    alone = starting_by_themselves(steps, {step.id: step.needs for step in runbook.steps})
    order = []
    for n in network.order:
        step = runbook.steps[n]
        is_run = applies(step, runbook.environment, kind)
        people = (handoffs_before(step, alone, kind) + handoffs_after(step, kind)) * handoff if is_run else 0.0
        order.append((n, tuple(network.needs[n]), is_run, people))

    def duration(lasts: Sequence[float]) -> float:
        ends = [0.0] * len(order)
        for n, needs, is_run, people in order:
            begin = max([ends[need] for need in needs], default=0.0)
            ends[n] = begin + people + lasts[n] if is_run else begin
        return max(ends, default=0.0)

    return duration


def rollback_deadline(closes: float, armed: Mapping[str, Rollback], margin: float) -> RollbackDeadline:
    """Return the latest moment to decide a rollback: window close - planned rollbacks of the ARMED steps - margin.

    Parameters
    ----------
    closes
        When the window closes, Unix seconds.
    armed
        Rollbacks of the steps whose state is ARMED, by step id. They are undone one after the other.
    margin
        Seconds to keep free; see ``Budgets.margin``.

    Raises UsageError: a time is no number or negative.
    """
    unknown = tuple(sorted(id_ for id_, one in armed.items() if one.plan is None))
    plans = [one.plan for one in armed.values() if one.plan is not None]
    if not all(math.isfinite(one) for one in (closes, margin, *plans)) or any(one < 0 for one in (margin, *plans)):
        raise UsageError(
            "a time of the rollback is negative or no number", hint="Run `migverify runbook check --offline`."
        )
    needs = math.fsum(plans)
    return RollbackDeadline(-math.inf if unknown else closes - needs - margin, needs, unknown)


__all__ = [
    "ENOUGH_DRILLS", "NO_DRILLS", "Drills", "Estimate", "Forecast", "Progress", "RollbackDeadline", "duration_of",
    "estimates", "forecast", "quantile", "rollback_deadline",
]  # fmt: skip
