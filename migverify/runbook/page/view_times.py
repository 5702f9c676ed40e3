"""The times of a run that somebody decides by: its end, the write stop, and the rollback."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from migverify.runbook.clock import Moment
from migverify.runbook.conditions import late_decision
from migverify.runbook.definition.forecast import Estimate, Forecast, rollback_deadline
from migverify.runbook.definition.plan import Plan
from migverify.runbook.events import RollbackState, StepState
from migverify.runbook.model import Rollback, RunWindow
from migverify.runbook.page.view_clock import ClockView, down_to, still, up_from
from migverify.runbook.run.machine import steps_to_undo
from migverify.runbook.state import PASSED, RunStatus

__all__ = [
    "Budget",
    "Finish",
    "Ladder",
    "RollbackStepView",
    "UndoView",
    "budget_of",
    "finish_of",
    "ladder_of",
    "undo_of",
]

_S = StepState
_R = RollbackState
_LATER = 1e9


@dataclass(frozen=True, slots=True)
class Finish:
    """When the run ends, Unix time. ``drills``: how many the forecast rests on; 0: the author's plan.

    ``unknown`` are steps without any time: then every end is "not before".
    """

    plan: float
    p50: float | None
    p90: float | None
    actual: float | None
    drills: int
    unknown: tuple[str, ...]
    opens: float | None
    closes: float | None
    window: str


@dataclass(frozen=True, slots=True)
class Budget:
    """The write stop. ``state``: ``none``, ``not begun``, ``running``, ``over`` (within its budget) or ``spent``.

    ``left_stopped``: the run ended, and nothing shows that writes were opened again.
    """

    state: str
    limit: float | None
    plan: float | None
    used: ClockView | None
    left: ClockView | None
    left_stopped: bool = False


@dataclass(frozen=True, slots=True)
class RollbackStepView:
    """A step of a rollback that is under way."""

    step: str
    state: str
    who: str


@dataclass(frozen=True, slots=True)
class UndoView:
    """What can still be rolled back, and until when that has to be decided.

    Parameters
    ----------
    irreversible
        Steps whose effects happened, or may have, without a rollback.
    needs
        Planned seconds of everything armed; ``unknown`` steps have no plan, and count as too late.
    until, left
        Latest moment to decide, for the window's sake; None: no window, or nothing to undo. ``left`` counts down only
        while an executor could carry a rollback out.
    decide_by
        The moment after which the runbook wants no decision any more (``decision_by``).
    why_not
        Why nothing can be undone now; empty: it can.
    """

    armed: tuple[str, ...]
    expired: tuple[str, ...]
    irreversible: tuple[str, ...]
    needs: float
    unknown: tuple[str, ...]
    until: float | None
    left: ClockView | None
    decide_by: ClockView | None
    why_not: str
    order: tuple[RollbackStepView, ...]
    order_reason: str
    data_loss: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ladder:
    """Which point of no return is behind: ``rung`` 0 none, 1 a soft one, 2 a hard one; ``steps`` those to come."""

    rung: int
    passed: tuple[str, ...]
    ahead: tuple[str, ...]


def finish_of(
    status: RunStatus, plan: Plan, ahead: Forecast | None, expected: Mapping[str, Estimate], now: Moment
) -> Finish:
    """Return when the run ends: by plan, by forecast, and what the window says to that."""
    begun, window = status.started.wall, status.runbook.window
    drills = [one.drills for id_, one in expected.items() if id_ not in status.graph.not_applicable]
    return Finish(
        round(begun + plan.total, 1), _unix(begun, ahead.finish_p50 if ahead else None),
        _unix(begun, ahead.finish_p90 if ahead else None), status.ended.wall if status.ended is not None else None,
        max(drills, default=0), ahead.unknown if ahead else plan.unknown, window.opens if window else None,
        window.closes if window else None, _window(window, status, now),
    )  # fmt: skip


def _unix(begun: float, seconds: float | None) -> float | None:
    # While a run waits, its end moves with the time: in steps, so that a page is not drawn anew every second.
    return None if seconds is None else float(5 * round((begun + seconds) / 5))


def _window(window: RunWindow | None, status: RunStatus, now: Moment) -> str:
    if window is None:
        return "none"
    at = status.ended.wall if status.ended is not None else now.wall
    return "not open yet" if at < window.opens else "closed" if at > window.closes else "open"


def budget_of(status: RunStatus, plan: Plan, now: Moment, *, driven: bool = True) -> Budget:
    """Return how much of the write stop's budget is used; what is left only where somebody would cancel it in time."""
    limit = status.runbook.budgets.write_stop
    used, running = status.write_stop_time(now), status.write_stop_since is not None
    ever = running or status.write_stop_spent.seconds > 0
    stops = any(step.write_stop for step in status.runbook.steps)
    if not stops and limit is None:
        return Budget("none", None, None, None, None)
    if not ever:
        return Budget("not begun", limit, plan.write_stop, None, None)
    spent = limit is not None and used.seconds > limit
    left = None
    if limit is not None and running and driven:
        left = down_to(now.wall + limit - used.seconds)
    clock = up_from(used, now) if running else still(used)
    word = "spent" if spent else "running" if running else "over"
    return Budget(word, limit, plan.write_stop, clock, left, status.over and _left_stopped(status))


def _left_stopped(status: RunStatus) -> bool:
    stopped = opened = False
    for step in status.runbook.steps:
        one = status.steps[step.id]
        stopped = stopped or (step.write_stop == "begin" and one.intent)
        opened = opened or (step.write_stop == "end" and one.intent and one.state in PASSED)
    return stopped and not opened


def undo_of(status: RunStatus, *, driven: bool = True) -> UndoView:
    """Return what can be rolled back now, and until when that has to be decided."""
    steps = status.steps.values()
    armed: dict[str, Rollback] = {}
    for id_ in status.undoable():
        rollback = status.definition(id_).rollback
        if rollback is not None:
            armed[id_] = rollback
    budgets, window = status.runbook.budgets, status.runbook.window
    until, unknown = None, tuple(sorted(id_ for id_, one in armed.items() if one.plan is None))
    if window is not None and armed and not status.over:
        deadline = rollback_deadline(window.closes, armed, budgets.margin)
        until = round(deadline.at, 1) if math.isfinite(deadline.at) else None
    decide_by = None
    if budgets.decision_by is not None and not status.over and _undecided(status):
        decide_by = down_to(status.started.wall + budgets.decision_by)
    order = status.order
    return UndoView(
        tuple(armed), tuple(one.id for one in steps if one.rollback is _R.EXPIRED), status.irreversible(),
        math.fsum(one.plan or 0.0 for one in armed.values()), unknown, until,
        down_to(until) if until is not None and driven else None, decide_by,
        "" if status.over else steps_to_undo(status)[1],
        tuple(_link(status, id_) for id_ in order.steps) if order else (), order.reason if order else "",
        tuple(f"{id_}: {one.data_loss.value}" for id_, one in armed.items() if one.data_loss.value != "none"),
    )  # fmt: skip


def _undecided(status: RunStatus) -> bool:
    # The decision is not late yet; whether it was made shows at a time when it would be.
    first = status.started
    return bool(late_decision(status, Moment(first.wall + _LATER, first.mono + int(_LATER * 1e9), first.boot)))


def _link(status: RunStatus, step: str) -> RollbackStepView:
    rollback = status.definition(step).rollback
    by_hand = rollback is not None and rollback.effect is None
    holders = status.cast.holders(status.definition(step).dri)
    return RollbackStepView(
        step, status.steps[step].rollback.value, holders[0] if by_hand and holders else "the executor"
    )


def ladder_of(status: RunStatus) -> Ladder:
    """Return which points of no return are behind, and which ahead."""
    passed, ahead, rung = [], [], 0
    for step in status.runbook.steps:
        one = status.steps[step.id]
        if not step.point_of_no_return or one.state is _S.NOT_APPLICABLE:
            continue
        if one.intent or one.effect_done or one.state in PASSED:
            passed.append(step.id)
            rung = max(rung, 2 if step.point_of_no_return == "hard" else 1)
        else:
            ahead.append(f"{step.id} ({step.point_of_no_return})")
    return Ladder(rung, tuple(passed), tuple(ahead))
