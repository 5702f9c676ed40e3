"""The words of announcements: one short line, times as people say them, forecast and state of the rollback. Pure."""

from __future__ import annotations

import time

from migverify.runbook.clock import Moment
from migverify.runbook.definition.forecast import NO_DRILLS, Drills, Progress, estimates, forecast, rollback_deadline
from migverify.runbook.events import RollbackState, RunState, StepState
from migverify.runbook.kinds import RunKind
from migverify.runbook.state import OVER, PASSED, RunStatus, between

__all__ = ["LONGEST", "clock_text", "forecast_end", "one_line", "rollback_text", "spell"]

LONGEST = 120
"""Characters of a text: what a phone shows. The journal and the page have the rest."""


def one_line(tag: str, *parts: str) -> str:
    """Return the parts that are not empty, and the tag at the end, as one line; what is cut ends in ``…``."""
    # One line: text of a step or of a program must not look like an announcement of its own.
    text = "; ".join(_flat(part) for part in parts if part).replace(" | ", " / ")
    last = f" | {_flat(tag)}"
    if len(last) > LONGEST // 2:
        last = f"{last[: LONGEST // 2 - 1]}…"
    room = LONGEST - len(last)
    return (text if len(text) <= room else f"{text[: room - 1]}…") + last


def _flat(text: str) -> str:
    return " ".join(_visible(text).split())


def _visible(text: str) -> str:
    return "".join(one if one.isprintable() else " " for one in text)


def forecast_end(status: RunStatus, at: Moment, drills: Drills = NO_DRILLS) -> str:
    """Return when the run will end, by what drills measured, else by the plan; empty where nothing is forecast."""
    if status.over or status.kind is RunKind.DRY:
        return ""
    now = between(status.started, at).seconds
    finished, running = dict[str, float](), dict[str, float]()
    for id_, one in status.steps.items():
        if one.state in PASSED or one.state is StepState.NOT_APPLICABLE:
            finished[id_] = between(status.started, one.ended).seconds if one.ended is not None else 0.0
        elif one.state is StepState.AWAITING_REVIEW:
            finished[id_] = now
        elif one.started is not None and one.state not in OVER:
            running[id_] = between(status.started, one.started).seconds
    progress = Progress(finished, running)
    found = forecast(status.runbook, status.kind, estimates(status.runbook, drills.seconds), progress, now)
    end = clock_text(at.wall + found.finish_p50 - now, at.wall)
    not_before = bool(found.unknown) or status.state is RunState.HELD or bool(set(OVER) & _states(status))
    return f"{'not before ' if not_before else ''}{end}"


def _states(status: RunStatus) -> set[StepState]:
    return {one.state for one in status.steps.values()}


def rollback_text(status: RunStatus) -> str:
    """Return what of the run can be rolled back, and until when to decide it."""
    counted = dict.fromkeys(RollbackState, 0)
    for one in status.steps.values():
        counted[one.rollback] += 1
    parts = [
        f"{count} {state.value}" for state, count in counted.items() if count and state is not RollbackState.NONE_NEEDED
    ]
    stay = status.irreversible()
    if stay:
        parts.append(f"{', '.join(stay)} cannot be rolled back")
    if status.past_hard_pnr:
        parts.append("past the hard point of no return")
    return f"{', '.join(parts) or 'nothing to roll back'}{_decide_by(status)}"


def _decide_by(status: RunStatus) -> str:
    window = status.runbook.window
    armed = {id_: rollback for id_ in status.undoable() if (rollback := status.definition(id_).rollback) is not None}
    if window is None or not armed or status.over:
        return ""
    found = rollback_deadline(window.closes, armed, status.runbook.budgets.margin)
    if found.unknown:
        return f"; no deadline is known: no planned time to roll back {', '.join(found.unknown)}"
    return f", decide by {clock_text(found.at, status.last.wall)}"


def spell(seconds: float | None) -> str:
    """Return seconds as people say them: ``0.4 s``, ``20 s``, ``3 min 20 s``, ``1 h 5 min``."""
    if seconds is None:
        return "no time"
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 120:
        return f"{minutes} min{f' {rest} s' if rest else ''}"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h{f' {minutes} min' if minutes else ''}"


def clock_text(at: float, near: float | None = None) -> str:
    """Return a moment in UTC, without its date on the day of ``near``."""
    parts = time.gmtime(at)
    same_day = near is not None and time.gmtime(near)[:3] == parts[:3]
    return time.strftime("%H:%M:%S UTC" if same_day else "%Y-%m-%d %H:%M:%S UTC", parts)
