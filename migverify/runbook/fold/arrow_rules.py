"""What the arrows of the fold share: who may write an event, and what follows from one."""

from __future__ import annotations

import hashlib

from migverify.runbook import people
from migverify.runbook.clock import Moment
from migverify.runbook.events import Event, StepState
from migverify.runbook.fold.transitions import need, set_step
from migverify.runbook.state import SIGNED_BY_ALL, RunStatus, StepStatus

__all__ = [
    "EXECUTOR", "agreed", "by_executor", "by_person", "end_badly", "end_write_stop", "more", "need_signature",
    "pair_of",
]  # fmt: skip

EXECUTOR = "executor"
"""The role of events that the executor writes by itself."""


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
    cast = people.cast_of(status)
    need(len(set(persons)) == len(persons) >= 2, "two different persons have to agree")
    need(all(cast.person(one) == one for one in persons), "not all of them are people of the runbook")
    return persons


def agreed(status: RunStatus, event: Event, of: str, step: str, at: Moment, answer: str = "") -> None:
    """Go on only when another person said this very thing before, as it stands in the journal."""
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
