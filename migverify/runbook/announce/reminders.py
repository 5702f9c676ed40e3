"""Who is waited for, and when they are reminded. The first half is pure; the second remembers the last reminder.

A person who does not answer for ``policy.unattended_nag`` is named, with the backup who may be promoted; then again
after twice, four and eight times as long, and from there on at that pace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from migverify.runbook import people
from migverify.runbook.announce.words import spell
from migverify.runbook.clock import Moment
from migverify.runbook.events import RollbackState, RunState, StepState
from migverify.runbook.kinds import OnFail, RunKind
from migverify.runbook.model import Step
from migverify.runbook.state import OVER, RunStatus, StepStatus, between

__all__ = ["Reminder", "Reminders", "Wait", "waits"]

FASTEST_DOUBLINGS = 3
"""The pause between two reminders doubles this often."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Somebody who is waited for.

    Parameters
    ----------
    key
        Tells waits apart: as long as it stays the same, it is one wait.
    step
        Empty: the run waits.
    roles
        Who has to act, as roles or names of persons.
    what
        What they have to do, as it follows "waiting for NAME to".
    since
        When the wait began, as the journal says; None: now.
    patience
        Seconds of work that are no wait: the planned time of a step by hand.
    """

    key: tuple[str, ...]
    step: str
    roles: tuple[str, ...]
    what: str
    since: Moment | None
    patience: float = 0.0


@dataclass(frozen=True, slots=True)
class Reminder:
    """A reminder, ``number`` from 1."""

    wait: Wait
    number: int
    seconds: float
    text: str
    waits_for: tuple[str, ...]
    backups: tuple[str, ...]


def waits(status: RunStatus, now: Moment) -> list[Wait]:
    """Return whom the run waits for now; nobody in a dry run."""
    if status.over or status.kind is RunKind.DRY:
        return []
    return [*_of_rollback(status), *_of_steps(status, now), *_of_run(status)]


def _of_rollback(status: RunStatus) -> Iterator[Wait]:
    for id_ in sorted(status.busy):
        one, step = status.steps[id_], status.definition(id_)
        by_hand = step.rollback is not None and step.rollback.effect is None
        if one.rollback is RollbackState.RUNNING and by_hand and not one.undo_done:
            patience = step.rollback.plan or 0.0 if step.rollback is not None else 0.0
            yield Wait(_key("undo", one), id_, (one.dri or step.dri,), f"roll {id_} back by hand",
                       one.rollback_started, patience)  # fmt: skip


def _of_steps(status: RunStatus, now: Moment) -> Iterator[Wait]:
    running, ready = status.state is RunState.RUNNING, list[str]()
    for one in status.steps.values():
        if one.state is StepState.READY:
            ready.append(one.id)
        elif one.state is StepState.CALLED and running:
            yield _called(status, one, now)
        elif one.state is StepState.RUNNING:
            step = status.definition(one.id)
            if step.by_hand:
                patience = step.times.plan or 0.0
                yield Wait(_key("hand", one), one.id, (one.dri,), f"end {one.id}", one.started, patience)
        elif one.state is StepState.AWAITING_REVIEW and status.order is None:
            what = f"accept or reject {one.id}"
            yield Wait(_key("review", one), one.id, _reviewers(status.definition(one.id)), what, one.ended)
        elif one.state is StepState.UNKNOWN:
            yield Wait(_key("unknown", one), one.id, _leaders(status), "decide (two persons) whether the effect "
                       f"of {one.id} happened", one.ended)  # fmt: skip
        elif one.state in OVER and running and status.definition(one.id).on_fail.then is OnFail.SKIP:
            what = f"waive {one.id} (two persons), or have it tried again"
            yield Wait(_key("failed", one), one.id, _leaders(status), what, one.ended)
    if ready and running:
        some = ", ".join(ready[:5]) + (f" and {len(ready) - 5} more" if len(ready) > 5 else "")
        # One reminder for all: the coordinator is one person. What is ready changes when something was called.
        yield Wait(("ready", *ready), "", (people.COORDINATOR,), f"call {some}", _last_move(status))


def _last_move(status: RunStatus) -> Moment:
    """Return when a step was called or ended last: since then the coordinator could have called another."""
    moved = [status.started]
    for one in status.steps.values():
        moved += [at for at in (one.called, one.ended, *(given.at for given in one.approvals)) if at is not None]
    return max(moved, key=lambda at: at.wall)


def _called(status: RunStatus, one: StepStatus, now: Moment) -> Wait:
    step = status.definition(one.id)
    if not people.missing_approvals(status, step, "start", now):
        return Wait(_key("called", one), one.id, (step.dri,), f"start {one.id}", one.called)
    owner = step.point_of_no_return and status.cast.holders(people.DECISION_OWNER)
    roles = (people.DECISION_OWNER,) if owner else _reviewers(step)
    return Wait(_key("approve", one), one.id, roles, f"approve the start of {one.id}", one.called)


def _reviewers(step: Step) -> tuple[str, ...]:
    return (step.reviewer,) if step.reviewer is not None else ()


def _of_run(status: RunStatus) -> Iterator[Wait]:
    if status.state is RunState.HELD and status.order is None:
        what = "resume the run, roll it back or end it"
        yield Wait(("held", str(status.holds)), "", _leaders(status), what, status.held_since)


def _leaders(status: RunStatus) -> tuple[str, ...]:
    some = (people.COORDINATOR, people.DECISION_OWNER)
    return tuple(role for role in some if status.cast.holders(role)) or some[:1]


def _key(what: str, one: StepStatus) -> tuple[str, ...]:
    return (what, one.id, str(one.attempt))


@dataclass(slots=True)
class _ReminderState:
    since: Moment
    number: int = 0


class Reminders:
    """Remembers for one executor who was reminded of what; a new executor begins to count anew."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], _ReminderState] = {}
        self._was_held = False
        self._resumed: Moment | None = None

    def due(self, status: RunStatus, now: Moment) -> list[Reminder]:
        """Return the reminders that are due, and count them as said."""
        pace = status.runbook.policy.unattended_nag
        if not pace > 0:
            return []
        is_held = status.state is RunState.HELD
        if self._was_held and not is_held:
            self._resumed = now  # nobody has to answer while the run is held
        self._was_held = is_held
        some = waits(status, now)
        known = {one.key: self._known.get(one.key) or _ReminderState(self._since(one, now)) for one in some}
        if self._resumed is not None and self._resumed is now:
            known = {key: _ReminderState(now) for key in known}
        self._known = known
        found = []
        for one in some:
            seconds = between(known[one.key].since, now).seconds
            number = _number(seconds - max(0.0, one.patience - pace), pace)
            if number > known[one.key].number:
                known[one.key].number = number
                found.append(_reminder(status, one, number, seconds))
        return found

    def _since(self, one: Wait, now: Moment) -> Moment:
        since = one.since or now
        if self._resumed is not None and between(since, now).seconds > between(self._resumed, now).seconds:
            return self._resumed
        return since


def _number(waited: float, pace: float) -> int:
    """Return how many reminders are due after a time: at 1, 3, 7 and 15 paces, then every 8."""
    number, at, pause = 0, pace, pace
    steady = pace * 2**FASTEST_DOUBLINGS
    while waited >= at:
        number += 1
        if pause >= steady:
            return number + int((waited - at) / steady)
        pause *= 2
        at += pause
    return number


def _reminder(status: RunStatus, one: Wait, number: int, seconds: float) -> Reminder:
    cast = status.cast
    persons = tuple(dict.fromkeys(person for role in one.roles for person in cast.holders(role)))
    declared = dict.fromkeys(person for role in one.roles for person in cast.declared.get(role, ()))
    backups = tuple(person for person in declared if person not in persons)
    parts = " or ".join(f"{', '.join(cast.holders(role)) or 'nobody'}{_part(status, role)}" for role in one.roles)
    again = f" (reminder {number})" if number > 1 else ""
    backup = f"backup: {', '.join(backups)}" if backups else "no backup"
    text = f"{parts or 'nobody'} to {one.what}, for {spell(seconds)}{again}; {backup}"
    return Reminder(one, number, seconds, text, persons, backups)


def _part(status: RunStatus, role: str) -> str:
    return f" ({role})" if role in status.cast.declared else ""
