"""Who has to act next, as a room wants to see it: by person, with how long he has been waited for. Pure.

What is to be done, by whom and by which command is in ``pending_actions``; here it is put together for a page, with
what the executor is at beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from migverify.runbook.clock import Moment
from migverify.runbook.events import RollbackState, RunState, StepState
from migverify.runbook.kinds import RunKind
from migverify.runbook.model import Step
from migverify.runbook.page.view_clock import ClockView, since
from migverify.runbook.page.view_steps import with_backups
from migverify.runbook.page.view_watch import ExecutorView
from migverify.runbook.people import COORDINATOR
from migverify.runbook.run.pending import PendingAction, pending_actions
from migverify.runbook.state import OVER, RunStatus, StepStatus

__all__ = ["EXECUTOR", "Act", "NextAction", "Then", "acts_of"]

EXECUTOR = "executor"
"""Role of what no person has to do: the executor is at it."""

_S = StepState
_ASIDE = re.compile(r" \((?:or )?`[^`]*`[^)]*\)")
"""Other commands that a action names for a terminal: a page has one command a line."""


@dataclass(frozen=True, slots=True)
class Then:
    """Who comes next, when the executor is done with what it is at."""

    person: str
    role: str
    does: str


@dataclass(frozen=True, slots=True)
class NextAction:
    """One thing to do.

    ``command`` is what is typed. ``clock``: for how long it has waited, or the executor has been at it. ``choice``: one
    of several ways on. ``several``: how many different persons have to say it. ``promote``: what
    is typed when who has to do it does not answer. ``then``: who comes next.
    """

    does: str
    step: str
    command: str
    clock: ClockView | None = None
    choice: bool = False
    several: int = 1
    promote: str = ""
    then: Then | None = None


@dataclass(frozen=True, slots=True)
class Act:
    """What one person has to do now; one of ``others`` may do it too, and ``backup`` be promoted to the role.

    ``person`` is empty where any of the people may, and for the executor (``role``). ``overdue``: waited for longer
    than the runbook's ``unattended_nag``.
    """

    role: str
    person: str
    others: tuple[str, ...]
    tasks: tuple[NextAction, ...]
    overdue: bool = False
    backup: str = ""


def acts_of(status: RunStatus, now: Moment, executor: ExecutorView) -> tuple[Act, ...]:
    """Return who acts next, people first and then the executor; empty: the run is over.

    Of an executor that is silent it is said since when, not what it is at.
    """
    if status.over:
        return ()
    gone = executor.why if executor.state == "gone" else ""
    grouped: dict[tuple[str, tuple[str, ...]], list[NextAction]] = {}
    for action in pending_actions(status, now, gone=gone):
        key = (_role(status, action), action.persons)
        does = _ASIDE.sub("", action.what)
        task = NextAction(
            does,
            action.step,
            action.command,
            _waits(status, action, now),
            action.choice,
            action.several,
            action.promote,
        )
        grouped.setdefault(key, []).append(task)
    found = [
        Act(
            role,
            persons[0] if persons else "",
            persons[1:],
            tuple(tasks),
            _overdue(status, tasks, now),
            next(iter(with_backups(status.cast, role)[1:]), ""),
        )
        for (role, persons), tasks in grouped.items()
    ]
    work: tuple[NextAction, ...] = ()
    if executor.state == "silent":
        work = (NextAction(f"no heartbeat since {executor.since}; what it is at is not known", "", ""),)
    elif executor.name and executor.driven:
        work = tuple(_work(status, now)) or (() if found else (NextAction("takes the next step by itself", "", ""),))
    return (*found, Act(EXECUTOR, "", (), work)) if work else tuple(found)


def _role(status: RunStatus, action: PendingAction) -> str:
    if action.role or not action.persons:
        return action.role
    roles = status.cast.roles_of(action.persons[0])
    return COORDINATOR if COORDINATOR in roles else roles[0] if roles else ""


def _waits(status: RunStatus, action: PendingAction, now: Moment) -> ClockView | None:
    if not action.step:
        return since(status.held_since, now) if status.held_since is not None else None
    one = status.steps[action.step]
    moment = {_S.CALLED: one.called, _S.RUNNING: one.started}.get(one.state, one.ended)
    if one.rollback is RollbackState.RUNNING:
        moment = one.rollback_started
    return since(moment, now) if moment is not None else None


def _overdue(status: RunStatus, tasks: list[NextAction], now: Moment) -> bool:
    nag = status.runbook.policy.unattended_nag
    if status.state is not RunState.RUNNING or nag <= 0:
        return False
    return any(one.clock is not None and one.step not in status.busy and one.clock.at(now.wall) > nag for one in tasks)


def _work(status: RunStatus, now: Moment) -> Iterator[NextAction]:
    for id_ in status.order.steps if status.order is not None else ():
        undo = status.steps[id_]
        rollback = status.definition(id_).rollback
        if undo.rollback is RollbackState.UNDONE_VERIFIED:
            continue
        if undo.undo_done or (rollback is not None and rollback.effect is not None):
            moment = undo.rollback_started
            yield NextAction(f"takes {id_} back", id_, "", since(moment, now) if moment is not None else None)
        break
    for one in status.steps.values():
        if one.rollback is RollbackState.RUNNING:
            continue
        yield from _of_step(status, one, status.definition(one.id), now)


def _of_step(status: RunStatus, one: StepStatus, step: Step, now: Moment) -> Iterator[NextAction]:
    if one.state is _S.RUNNING and not step.by_hand:
        if status.state is RunState.HELD and not one.intent:
            yield NextAction(f"waits with {one.id}: the run is held", one.id, "")
            return
        clock = since(one.started, now) if one.started is not None else None
        yield NextAction(f"carries out {one.id}", one.id, "", clock, then=_then(status, step))
    elif one.state is _S.VERIFYING:
        yield NextAction(f"asks what shows that {one.id} worked", one.id, "", then=_then(status, step))
    elif one.state in OVER and not one.handled and status.order is None:
        yield NextAction(f"does what the runbook says for when {one.id} fails", one.id, "")
    elif one.state is _S.READY and status.kind is RunKind.DRY:
        yield NextAction(f"probes {one.id}", one.id, "")


def _then(status: RunStatus, step: Step) -> Then | None:
    holders = status.cast.holders(step.reviewer) if step.reviewer else ()
    if holders and step.reviewer:
        return Then(holders[0], step.reviewer, f"looks at the evidence of {step.id}")
    callers = status.cast.holders(COORDINATOR)
    for id_ in status.graph.dependents[step.id]:
        if callers and status.left[id_] == 1 and status.steps[id_].state is _S.PENDING:
            return Then(callers[0], COORDINATOR, f"calls {id_}")
    return None
