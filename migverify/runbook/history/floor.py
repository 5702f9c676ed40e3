"""The least that drills have to show, which no runbook lowers, and how old a drill may be. Pure."""

from __future__ import annotations

from dataclasses import replace

from migverify.config.settings import ReadinessFloor
from migverify.runbook.history.past import PastRun
from migverify.runbook.model import Policy
from migverify.runbook.people import CLOCK_SKEW

__all__ = ["BUILT_IN", "clock_problem", "raised", "too_old"]

BUILT_IN = ReadinessFloor()
_DAY = 86_400.0

_ASKED = (
    ("drills_min", "drills_minimum"), ("clean_last", "clean_last"), ("same_runbook", "same_runbook"),
    ("same_schema", "same_schema"), ("full_cast_last", "full_cast_last"), ("rollback_drills_min", "rollback_drills"),
)  # fmt: skip
"""Keys of the floor, and the fields of a runbook's policy that they are the least of."""


def raised(policy: Policy, floor: ReadinessFloor) -> tuple[Policy, tuple[str, ...]]:
    """Return the stricter of both, and what asks for less: the configuration than what is built in, then the runbook.

    A runbook cannot lower what is asked of it; the configuration of the migration can, and that is said.
    """
    named = ("max_age_days",)
    weaker = [
        f"migverify.yaml asks for less than what is built in: {key} {_text(getattr(floor, key))}, built in"
        f" {_text(getattr(BUILT_IN, key))}"
        for key in (*(key for key, _ in _ASKED), *named)
        if (getattr(floor, key) > getattr(BUILT_IN, key) if key in named
            else getattr(floor, key) < getattr(BUILT_IN, key))
    ]  # fmt: skip
    weaker += [
        f"the runbook asks for less, which does not count: {key} {_text(getattr(policy, own))}, needed"
        f" {_text(getattr(floor, key))}"
        for key, own in _ASKED if getattr(policy, own) < getattr(floor, key)
    ]  # fmt: skip
    raised = {own: max(getattr(policy, own), getattr(floor, key)) for key, own in _ASKED}
    return replace(policy, **raised), tuple(weaker)


def _text(value: float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"


def too_old(run: PastRun, now: float, floor: ReadinessFloor) -> str:
    """Return why a drill is too old to count. One whose clock contradicts the chain is not: it is found elsewhere."""
    days = (now - max(run.at, run.not_before or run.at)) / _DAY
    return f"{days:.0f} days old, and {floor.max_age_days:g} are allowed" if days > floor.max_age_days else ""


def clock_problem(run: PastRun, now: float) -> str:
    """Return how a run's clock contradicts now, or the run begun before it; empty: it does not."""
    if run.at - now > CLOCK_SKEW:
        return f"{run.run} ended in the future: a clock is wrong"
    if run.not_before is not None and run.not_before - run.started > CLOCK_SKEW:
        return f"{run.run} began {(run.not_before - run.started) / 3600:.1f} h before a run that was begun before it"
    return ""
