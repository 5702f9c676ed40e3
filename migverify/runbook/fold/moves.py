"""What the transitions of a run are made of: who may write an event, and the small changes of its status."""

from __future__ import annotations

import hashlib
from typing import Any

from migverify.runbook import people
from migverify.runbook.clock import Moment
from migverify.runbook.events import Event, RollbackState, StepState
from migverify.runbook.state import SIGNED_BY_ALL, RunStatus, StepStatus

__all__ = [
    "EXECUTOR", "IllegalEvent", "agreed", "arm", "by_executor", "by_person", "disarm", "end_badly", "end_write_stop",
    "expire_by", "finish", "more", "need", "need_signature", "pair_of", "set_step", "unpass",
]  # fmt: skip

EXECUTOR = "executor"
"""The role of events that the executor writes by itself."""
_R = RollbackState


class IllegalEvent(Exception):  # noqa: N818 - the fold turns it into a JournalError that names the line
    """An event that cannot have happened at its place."""


def need(condition: bool, otherwise: str) -> None:
    """Go on only under a condition."""
    if not condition:
        raise IllegalEvent(otherwise)


def set_step(status: RunStatus, one: StepStatus, **changes: Any) -> StepStatus:
    """Change a step's status, and return the new one."""
    status.steps[one.id] = changed = one._replace(**changes)
    return changed


# -- who may ----------------------------------------------------------------------------------------------------------


def by_executor(status: RunStatus, event: Event) -> None:
    """Go on only when the executor that holds the run wrote the event."""
    need(event.epoch == status.epoch > 0, f"epoch {event.epoch} is not the executor's ({status.epoch})")
    need(event.actor == status.executor, f"the executor is {status.executor}")


def by_person(verdict: tuple[str, str], status: RunStatus, event: Event) -> str:
    """Return who did it when a rule lets them, and remember the login."""
    person, why = verdict
    need(not why, why)
    login = str(event.data.get("login", ""))
    if login:
        status.logins[login] = status.logins.get(login, frozenset()) | {person}
    return person


def pair_of(status: RunStatus, event: Event) -> tuple[str, ...]:
    """Return the two different people that an event names."""
    persons = tuple(str(one) for one in event.data["by"])
    cast = status.cast
    need(len(set(persons)) == len(persons) >= 2, "two different persons have to agree")
    need(all(cast.person(one) == one for one in persons), "not all of them are people of the runbook")
    return persons


def agreed(status: RunStatus, event: Event, of: str, step: str, at: Moment, answer: str = "") -> None:
    """Go on only when another person said this very thing before, according to the journal."""
    persons = pair_of(status, event)
    acting = by_person(people.may_take_part(status, event.actor), status, event)
    need(acting in persons, f"{acting} is none of those who agreed")
    need_signature(status, event)
    earlier = people.agreement(status, of, step, acting, answer, at)
    need(earlier is not None and earlier.person in persons, "nobody else has agreed to this")


def need_signature(status: RunStatus, event: Event) -> None:
    """Go on only when who agrees second has signed too, where approvals are signed."""
    wanted = status.runbook.policy.signed_approvals and status.rules >= SIGNED_BY_ALL
    need(not wanted or bool(event.data.get("signature")), f"{event.actor} has not signed it")


# -- steps that end ---------------------------------------------------------------------------------------------------


def finish(status: RunStatus, one: StepStatus, state: StepState, at: Moment) -> None:
    """Let a step pass, and make ready what waited for it alone."""
    status.busy.discard(one.id)
    set_step(status, one, state=state, ended=one.ended or at, active=one.active or status.active_time(one.id, at))
    status.undecided -= 1
    for id_ in status.graph.dependents[one.id]:
        status.left[id_] -= 1
        waiting = status.steps[id_]
        if not status.left[id_] and waiting.state is StepState.PENDING:
            set_step(status, waiting, state=StepState.READY)


def unpass(status: RunStatus, step: str) -> None:
    """Have dependents wait again for a step that was undone and is done anew.

    Raises IllegalEvent: one of them is under way.
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


def end_badly(
    status: RunStatus, one: StepStatus, state: StepState, at: Moment, reason: str, *, rejected: bool = False
) -> None:
    """Let a step end in a bad state."""
    active = status.active_time(one.id, at)
    status.failed_ever = (*status.failed_ever, (one.id, state))
    status.busy.discard(one.id)
    set_step(status, one, state=state, ended=at, active=active, reason=reason, handled=False, rejected=rejected)


def end_write_stop(status: RunStatus, step: str, at: Moment) -> None:
    """End the write stop when this is the step that ends it."""
    if status.definition(step).write_stop == "end" and status.write_stop_since is not None:
        status.write_stop_spent = status.write_stop_time(at)
        status.write_stop_since = None


def more(sha: str, event: Event) -> str:
    """Return the hash of evidence with one more event."""
    return hashlib.sha256(f"{sha}{event.sha}".encode()).hexdigest()


# -- what can be rolled back ------------------------------------------------------------------------------------------


def arm(status: RunStatus, step: str, order: int, at: Moment) -> None:
    """Say that the effect of a step may have happened from now on: its rollback is armed, others expire."""
    one, definition = status.steps[step], status.definition(step)
    rollback = _R.ARMED if definition.rollback is not None else _R.NONE_NEEDED
    set_step(status, one, intent=True, order=order, rollback=rollback)
    expire_by(status, step)
    if definition.write_stop == "begin" and status.write_stop_since is None:
        status.write_stop_since = at


def expire_by(status: RunStatus, step: str) -> None:
    """Let the rollbacks expire that are valid only until this step; at a hard point of no return, all before it."""
    hard = step in status.graph.hard
    for id_ in status.steps if hard else status.graph.expires.get(step, ()):
        if status.steps[id_].rollback is _R.ARMED and id_ != step:
            set_step(status, status.steps[id_], rollback=_R.EXPIRED, rollback_reason=f"valid until {step}")


def disarm(status: RunStatus, step: str, at: Moment) -> None:
    """Say that the effect of a step does not stand: what expired because of it is valid again."""
    one, definition = status.steps[step], status.definition(step)
    if one.rollback in (_R.ARMED, _R.EXPIRED):
        set_step(status, one, rollback=_R.NONE_NEEDED)
    for id_ in status.steps if step in status.graph.hard else status.graph.expires.get(step, ()):
        before = status.steps[id_]
        if before.rollback is _R.EXPIRED and before.rollback_reason == f"valid until {step}":
            set_step(status, before, rollback=_R.ARMED, rollback_reason="")
    if definition.write_stop == "begin" and status.write_stop_since is not None:
        status.write_stop_spent = status.write_stop_time(at)
        status.write_stop_since = None
