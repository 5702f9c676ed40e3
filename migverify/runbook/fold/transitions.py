"""Small moves that every arrow of the fold is made of."""

from __future__ import annotations

from typing import Any

from migverify.runbook.clock import Moment
from migverify.runbook.events import StepState
from migverify.runbook.state import RunStatus, StepStatus

_FIELDS = frozenset(StepStatus.__dataclass_fields__)

__all__ = ["IllegalEvent", "begin_busy", "finish", "need", "passed", "set_step", "unpass"]


class IllegalEvent(Exception):  # noqa: N818 - the fold turns it into a JournalError that names the line
    """An event that cannot have happened where it stands."""


def need(condition: bool, otherwise: str) -> None:
    """Go on only under a condition."""
    if not condition:
        raise IllegalEvent(otherwise)


def set_step(status: RunStatus, one: StepStatus, **changes: Any) -> StepStatus:
    """Change a step's status, and return the new one."""
    need(changes.keys() <= _FIELDS, "the status of a step has no such field")
    changed = object.__new__(StepStatus)  # dataclasses.replace takes four times as long, and this is all the fold does
    changed.__dict__.update(one.__dict__)
    changed.__dict__.update(changes)
    status.steps[one.id] = changed
    return changed


def begin_busy(status: RunStatus, step: str) -> None:
    """Count a step as under way."""
    status.busy.add(step)


def finish(status: RunStatus, one: StepStatus, state: StepState, at: Moment) -> None:
    """Let a step pass, and make ready what waited for it alone."""
    status.busy.discard(one.id)
    set_step(status, one, state=state, ended=one.ended or at, active=one.active or status.active_time(one.id, at))
    status.undecided -= 1
    passed(status, one.id)


def passed(status: RunStatus, step: str) -> None:
    """Take a step off what its dependents wait for."""
    for id_ in status.graph.dependents[step]:
        status.left[id_] -= 1
        waiting = status.steps[id_]
        if not status.left[id_] and waiting.state is StepState.PENDING:
            set_step(status, waiting, state=StepState.READY)


def unpass(status: RunStatus, step: str) -> None:
    """Have dependents wait again for a step that was undone and is done anew.

    Raises
    ------
    IllegalEvent
        one of them is under way.
    """
    status.undecided += 1
    for id_ in status.graph.dependents[step]:
        waiting = status.steps[id_]
        need(
            waiting.state not in (StepState.CALLED, StepState.RUNNING, StepState.VERIFYING, StepState.AWAITING_REVIEW),
            f"{id_}, which needs it, is {waiting.state.value}",
        )
        status.left[id_] += 1
        if waiting.state is StepState.READY and id_ not in status.forced:
            set_step(status, waiting, state=StepState.PENDING)
