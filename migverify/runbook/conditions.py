"""What holds a run besides the guards of its file: window, readiness, budgets, and the rules that call for a rollback.

Pure. Each has an id of its own, so that what held the run, and who went on all the same, is in the journal as it
does for a guard.
"""

from __future__ import annotations

from migverify.runbook.clock import Moment
from migverify.runbook.events import StepState
from migverify.runbook.kinds import RunKind, StepKind
from migverify.runbook.model import Guard, Runbook
from migverify.runbook.people import COORDINATOR, DECISION_OWNER
from migverify.runbook.state import PASSED, RunStatus, between

__all__ = [
    "ARMED", "DECISION_BY", "READINESS", "WINDOW", "WRITE_STOP", "guard_ids", "late_decision", "rollback_rules",
    "spent_budget", "taken_ids", "who_decides", "why_not_begin", "window_state",
]  # fmt: skip

WINDOW, READINESS, WRITE_STOP, DECISION_BY = "window", "readiness", "write-stop", "decision-by"
_RULE = "rollback-when-"
RULE_SECONDS = 10.0
"""How often a rule of ``rollback_when`` is asked."""
ARMED = "\0armed"
"""What those rules are armed in, as a guard is in a phase: no phase of a file has this name."""


def rollback_rules(runbook: Runbook) -> tuple[Guard, ...]:
    """Return the rules of ``rollback_when`` as guards that hold: their bounds say what is good, as for any guard."""
    return tuple(
        Guard(id=f"{_RULE}{number}", every=RULE_SECONDS, armed_in=(ARMED,), **dict(check))
        for number, check in enumerate(runbook.rollback_when, start=1)
    )


def guard_ids(runbook: Runbook) -> frozenset[str]:
    """Return the ids of everything that can hold a run by itself."""
    own = {WINDOW, READINESS, WRITE_STOP, DECISION_BY}
    return frozenset(own | {one.id for one in (*runbook.guards, *rollback_rules(runbook))})


def taken_ids(runbook: Runbook) -> list[str]:
    """Return the ids of guards of the file that are already those of something else."""
    own = {WINDOW, READINESS, WRITE_STOP, DECISION_BY, *(one.id for one in rollback_rules(runbook))}
    return sorted(own & {guard.id for guard in runbook.guards})


def window_state(status: RunStatus, wall: float) -> tuple[str, str] | None:
    """Return (``pass`` or ``fail``, text) about the window of a live run; None: it has none."""
    window = status.runbook.window
    if window is None or status.kind is not RunKind.LIVE:
        return None
    if wall < window.opens:
        return "fail", f"the window opens in {window.opens - wall:.0f} s"
    if wall >= window.closes:
        return "fail", f"the window has been closed for {wall - window.closes:.0f} s"
    return "pass", f"the window is open for {window.closes - wall:.0f} s more"


def why_not_begin(status: RunStatus, at: Moment) -> str:
    """Return why nothing new may be called or started in a live run at that time; empty: it may.

    The executor holds the run for the same reasons. This also binds people while no executor runs.
    """
    if status.kind is not RunKind.LIVE:
        return ""
    ready = status.guards.get(READINESS)
    if READINESS not in status.despite and (ready is None or ready.state != "pass"):
        return f"nobody knows that the run is ready: {ready.text if ready is not None else 'no executor has asked'}"
    found = window_state(status, at.wall)
    if found is not None and found[0] != "pass" and WINDOW not in status.despite:
        return found[1]
    return ""


def who_decides(status: RunStatus) -> str:
    """Return who decides about going on or back, by name: the decision owner, or without one the coordinator."""
    for role in (DECISION_OWNER, COORDINATOR):
        holders = status.cast.holders(role)
        if holders:
            return f"{', '.join(holders)} ({role.replace('_', ' ')})"
    return "nobody in this run"


def late_decision(status: RunStatus, now: Moment) -> str:
    """Return how late the decision is that ``budgets.decision_by`` asks for; empty: it is not, or it was made.

    Made it is when every decision of the run has passed; without such steps, when a point of no return has; without
    those too, when the run is over.
    """
    limit = status.runbook.budgets.decision_by
    spent = between(status.started, now).seconds
    if limit is None or spent <= limit or _decided(status):
        return ""
    return f"no decision {spent:.0f} s after the start, and {limit:g} s were the limit: go or back"


def _decided(status: RunStatus) -> bool:
    some = [one for one in status.runbook.steps if status.steps[one.id].state is not StepState.NOT_APPLICABLE]
    decisions = [one.id for one in some if one.kind is StepKind.DECISION]
    points = [one.id for one in some if one.point_of_no_return]
    waited = decisions or points
    return bool(waited) and all(status.steps[id_].state in PASSED for id_ in waited)


def spent_budget(status: RunStatus, now: Moment) -> str:
    """Return by how much the budget of the write stop is spent; empty: it is not."""
    budget = status.runbook.budgets.write_stop
    if budget is None or status.write_stop_since is None:
        return ""
    spent = status.write_stop_time(now).seconds
    if spent <= budget:
        return ""
    return f"the write-stop budget is spent: writes were stopped for {spent:.0f} s of {budget:g} s"
