"""The arrows of rollbacks: what of a step can be taken back, and what was."""

from __future__ import annotations

from collections.abc import Callable

from migverify.runbook import people
from migverify.runbook.clock import Moment
from migverify.runbook.events import Event, EventKind, RollbackState, RunState, StepState
from migverify.runbook.fold.arrow_rules import by_executor, need_signature
from migverify.runbook.fold.transitions import need, set_step
from migverify.runbook.state import SIGNED_BY_ALL, Order, RunStatus

__all__ = ["ROLLBACK_ARROWS", "arm", "disarm", "expire_by"]

_R = RollbackState


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


def _ordered(status: RunStatus, event: Event, at: Moment) -> None:
    steps = tuple(str(one) for one in event.data["steps"])
    then = str(event.data["then"])
    need(status.order is None, "a rollback is under way")
    need(then in ("rolled back", "aborted", "hold"), f"nothing is known as {then}")
    need(all(id_ in status.steps for id_ in steps), "there is no such step")
    if event.role == "executor":
        by_executor(status, event)
    else:
        person, why = people.may_lead(status, event.actor, "order a rollback")
        need(not why, why)
        again = [id_ for id_ in steps if status.steps[id_].rollback is _R.FAILED]
        answer = people.undoing(status, steps, then) if status.rules >= SIGNED_BY_ALL else ""
        agreed = people.agreement(status, "rollback", "", person, answer, at) is not None
        need(not again or agreed, f"the rollback of {', '.join(again)} failed before: two persons have to agree")
        if again:
            need_signature(status, event)
    places = [status.steps[id_].order for id_ in steps]
    need(places == sorted(places, reverse=True), "effects are undone from the last to the first")
    for id_ in steps:
        state = status.steps[id_].rollback
        need(state in (_R.ARMED, _R.FAILED), f"the rollback of {id_} is {state.value}")
        need(status.steps[id_].state is not StepState.UNKNOWN, f"nobody knows whether the effect of {id_} happened")
    if status.state is RunState.RUNNING:
        status.state, status.held_since = RunState.HELD, at
        status.holds += 1
        status.hold_reasons, status.hold_guards = (), ()
    status.hold_reasons = (*status.hold_reasons, f"rollback: {event.data['reason']}")
    status.order = Order(steps, then, str(event.data["reason"]), event.actor)
    if event.step:
        set_step(status, status.steps[event.step], handled=True)


def _intent(status: RunStatus, event: Event, at: Moment) -> None:
    by_executor(status, event)
    need(status.order is not None and event.step in status.order.steps, "its rollback was not ordered")
    one = status.steps[event.step]
    need(one.rollback in (_R.ARMED, _R.FAILED), f"its rollback is {one.rollback.value}")
    need(event.step not in status.busy, "the step is under way")
    for id_ in status.order.steps if status.order else ():
        if id_ == event.step:
            break
        need(status.steps[id_].rollback not in (_R.ARMED, _R.RUNNING, _R.FAILED), f"{id_} comes first")
    one = set_step(status, one, rollback=_R.RUNNING, rollback_started=at, rollback_ended=None, undo_done=False,
                   host=status.executor_at[0])  # fmt: skip
    if one.state is StepState.AWAITING_REVIEW:
        set_step(status, one, state=StepState.FAILED, reason="taken back before it was reviewed", handled=True)
    status.busy.add(event.step)


def _effect(status: RunStatus, event: Event, at: Moment) -> None:
    one, step = status.steps[event.step], status.definition(event.step)
    need(one.rollback is _R.RUNNING and not one.undo_done, f"its rollback is {one.rollback.value}")
    if event.data.get("manual"):
        person, why = people.may_start(status, step, event.actor)
        need(bool(person), why)
    else:
        by_executor(status, event)
    if event.data["ok"] is False:
        _over(status, event, at, _R.FAILED)
    else:
        set_step(status, one, undo_done=True)


def _verified(status: RunStatus, event: Event, at: Moment) -> None:
    by_executor(status, event)
    one, step = status.steps[event.step], status.definition(event.step)
    need(one.rollback is _R.RUNNING, f"its rollback is {one.rollback.value}")
    checks = event.data["checks"]
    expected = step.rollback.verify if step.rollback is not None else ()
    good = bool(checks) and len(checks) == len(expected) and all(answer["state"] == "pass" for answer in checks)
    need(good or not event.data["ok"], "a check did not pass, or there was none")
    if event.data["ok"]:
        _over(status, event, at, _R.UNDONE_VERIFIED)
        disarm(status, event.step, at)
        set_step(status, status.steps[event.step], intent=False, effect_done=False)
    else:
        # When nobody knows whether the undoing ran, checks that fail say that it did not.
        _over(status, event, at, _R.FAILED if event.data.get("lost") else _R.UNDONE_UNVERIFIED)


def _over(status: RunStatus, event: Event, at: Moment, state: RollbackState) -> None:
    status.busy.discard(event.step)
    reason = str(event.data.get("reason", ""))
    set_step(status, status.steps[event.step], rollback=state, rollback_ended=at, rollback_reason=reason)
    order = status.order
    if state is not _R.UNDONE_VERIFIED:
        status.order = None  # people have to look before anything earlier is undone
    elif order is not None and order.then == "hold" and event.step == order.steps[-1]:
        status.order = None


ROLLBACK_ARROWS: dict[EventKind, Callable[[RunStatus, Event, Moment], None]] = {
    EventKind.ROLLBACK_ORDERED: _ordered, EventKind.ROLLBACK_INTENT: _intent,
    EventKind.ROLLBACK_EFFECT: _effect, EventKind.ROLLBACK_VERIFIED: _verified,
}  # fmt: skip
