"""Runs side by side: what one took longer than another, how drills went on, and which step is the risk. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from migverify.errors import UsageError
from migverify.runbook.definition.forecast import quantile
from migverify.runbook.events import StepState
from migverify.runbook.history.drills import why_unclean
from migverify.runbook.history.past import PastRun, PastStep
from migverify.runbook.history.scores import Score, correctness_score, process_score

__all__ = ["Comparison", "Point", "StepLine", "compare_all"]

NOTED = 1.0
"""Seconds by which a step exceeds its plan that make it a risk at all."""


@dataclass(frozen=True, slots=True)
class Point:
    """One run on the curve: what of it is to become better from drill to drill."""

    run: str
    started: float
    environment: str
    kind: str
    state: str
    autopilot: bool
    seconds: float
    held: float
    write_stop: float
    late: int
    failures: int
    holds: int
    retries: int
    undelivered: int
    process: Score
    correctness: Score
    clean: bool
    unclean: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepLine:
    """A step over all runs that are compared, in their order; None: not run to its end.

    ``over`` is its p90 less its plan, or less its p50 where the file has no plan. ``failures`` counts bad ends.
    ``redefined``: not all runs ran the same definition.
    """

    step: str
    phase: str
    plan: float | None
    seconds: tuple[float | None, ...]
    states: tuple[str, ...]
    p50: float | None
    p90: float | None
    over: float | None
    failures: int
    redefined: bool

    @property
    def change(self) -> float | None:
        """Seconds by which the last run took longer than the first; None: one of them did not run it to its end."""
        first, last = self.seconds[0], self.seconds[-1]
        return last - first if first is not None and last is not None else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs of one runbook side by side.

    ``slowest`` is the step that exceeds its plan by most at its p90, ``weakest`` the one that failed most often; empty:
    there is none.
    """

    runbook: str
    points: tuple[Point, ...]
    steps: tuple[StepLine, ...]
    slowest: str
    weakest: str


def compare_all(runs: Iterable[PastRun]) -> Comparison:
    """Put runs of one runbook side by side, in the order given.

    Raises UsageError: there is no run, or runs of several runbooks.
    """
    listed = list(runs)
    if not listed:
        raise UsageError("there is no run to compare", hint="Name runs, or another room with --runs.")
    names = list(dict.fromkeys(one.runbook for one in listed))
    if len(names) > 1:
        raise UsageError(f"these are runs of several runbooks: {', '.join(names)}", hint="Name runs of one runbook.")
    steps = tuple(_step_line(id_, listed) for id_ in _ids(listed))
    late = [one for one in steps if one.over is not None and one.over >= NOTED]
    weak = [one for one in steps if one.failures]
    return Comparison(
        names[0], tuple(_point(one) for one in listed), steps,
        max(late, key=lambda one: one.over or 0.0).step if late else "",
        max(weak, key=lambda one: one.failures).step if weak else "",
    )  # fmt: skip


def _ids(runs: Sequence[PastRun]) -> list[str]:
    """Return all step ids, in the order of the newest file; what that one has no more comes last."""
    return list(dict.fromkeys(id_ for run in reversed(runs) for id_ in run.steps))


def _point(run: PastRun) -> Point:
    unclean = why_unclean(run)
    return Point(
        run.run, run.started, run.environment, run.kind.value, run.state.value, run.autopilot, run.seconds, run.held,
        run.write_stop, sum(one.late for one in run.steps.values()), len(run.failures), len(run.unplanned_holds),
        run.retries, len(run.undelivered), process_score(run), correctness_score(run), not unclean, unclean,
    )  # fmt: skip


def _step_line(id_: str, runs: Sequence[PastRun]) -> StepLine:
    some = [run.steps.get(id_) for run in runs]
    known = [one for one in some if one is not None]
    newest = known[-1]
    seconds = tuple(_seconds(one) for one in some)
    measured = [one for one in seconds if one is not None]
    p50, p90 = (quantile(measured, 0.5), quantile(measured, 0.9)) if measured else (None, None)
    plan = newest.plan if newest.plan is not None else p50
    return StepLine(
        id_, newest.phase, newest.plan, seconds, tuple(_state(one) for one in some), p50, p90,
        p90 - plan if p90 is not None and plan is not None else None, sum(len(one.bad) for one in known),
        len({one.sha for one in known}) > 1 or len(known) < len(some),
    )  # fmt: skip


def _seconds(one: PastStep | None) -> float | None:
    """Return how long a step took that was done; another end says nothing about its time."""
    return one.seconds if one is not None and one.state is StepState.DONE else None


def _state(one: PastStep | None) -> str:
    return one.state.value if one is not None else "no such step"
