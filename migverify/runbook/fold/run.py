"""The transitions of a run as a whole: lease, holds, guards, rollback, roles, announcements, its end."""

from __future__ import annotations

from dataclasses import replace

from migverify.runbook import people
from migverify.runbook.clock import Moment
from migverify.runbook.conditions import guard_ids
from migverify.runbook.events import Event, EventKind, RollbackState, RunState, StepState
from migverify.runbook.fold.moves import (
    EXECUTOR,
    IllegalEvent,
    agreed,
    by_executor,
    by_person,
    disarm,
    need,
    need_signature,
    pair_of,
    set_step,
)  # fmt: skip
from migverify.runbook.kinds import RunKind
from migverify.runbook.state import OVER, SIGNED_BY_ALL, Delivery, DeliveryState, GuardStatus, RollbackOrder, RunStatus

__all__ = [
    "HEAD", "OPEN", "OUTBOX_ALARM", "announced", "began_again", "delivered", "delivery_failed", "ended", "guard",
    "head",
    "held", "lease", "noted", "promoted", "resumed", "rollback_effect", "rollback_intent", "rollback_ordered",
    "rollback_verified", "why_not_end",
]  # fmt: skip

_R = RollbackState
HEAD = "head"
"""What a HEAD event tells: the journal's hash at an event."""
OUTBOX_ALARM = "announcements"
"""The alarm of a note that says what could not be announced at all."""
OPEN = frozenset({DeliveryState.QUEUED, DeliveryState.FAILED})
"""What is tried again."""


def lease(status: RunStatus, event: Event, at: Moment) -> None:
    """LEASE: an executor takes the run, takes it over, or gives it free."""
    need(event.epoch == event.data["epoch"] == status.epoch + 1, f"epoch {event.epoch} after {status.epoch}")
    if event.data.get("released"):
        need(event.actor == status.executor, f"the executor is {status.executor}")
        status.epoch, status.executor, status.executor_by, status.executor_at = event.epoch, "", "", ("", "", "")
        return
    if status.executor:
        need(bool(event.data.get("reason")), "a takeover has a reason")
        persons = pair_of(status, event)
        acting = str(event.data["person"])
        earlier = people.agreement(status, "takeover", "", acting, "", at)
        need(earlier is not None and {acting, earlier.person} <= set(persons), "nobody else has agreed to the takeover")
        status.takeovers += 1
    data = event.data
    status.epoch, status.executor, status.executor_by = event.epoch, event.actor, str(data.get("person", ""))
    status.executor_at = (str(data.get("host", "")), str(data.get("boot", "")), str(data.get("process", "")))


def _begin_hold(status: RunStatus, at: Moment) -> None:
    if status.state is RunState.RUNNING:
        status.state, status.held_since = RunState.HELD, at
        status.holds += 1
        status.hold_reasons, status.hold_guards = (), ()


def held(status: RunStatus, event: Event, at: Moment) -> None:
    """HELD: nothing new begins."""
    if event.role == EXECUTOR:
        by_executor(status, event)
    else:
        by_person(people.may_take_part(status, event.actor), status, event)
    _begin_hold(status, at)
    status.hold_reasons = (*status.hold_reasons, str(event.data["reason"]))
    if event.data.get("guard"):
        status.hold_guards = (*status.hold_guards, str(event.data["guard"]))
    if event.step:
        need(event.step in status.steps and status.steps[event.step].state in OVER, "the step did not fail")
        set_step(status, status.steps[event.step], handled=True)


def resumed(status: RunStatus, event: Event, at: Moment) -> None:
    """RESUMED: it goes on; against a guard only by two."""
    need(status.state is RunState.HELD, "the run is not held")
    need(status.order is None, "a rollback is under way")
    by_person(people.may_lead(status, event.actor, "resume the run"), status, event)
    bad = [id_ for id_ in status.hold_guards if id_ not in status.guards or status.guards[id_].state != "pass"]
    if bad:
        agreed(status, event, "resume", "", at)
    status.held = status.held_until(at)
    status.state, status.held_since, status.despite = RunState.RUNNING, None, status.despite | set(bad)


def guard(status: RunStatus, event: Event, at: Moment) -> None:
    """GUARD: what a guard answered."""
    id_, data = str(event.data["guard"]), event.data
    need(id_ in guard_ids(status.runbook), f"there is no guard {id_}")
    need(data["state"] in ("pass", "fail", "inconclusive"), f"a guard does not answer {data['state']}")
    before = status.guards.get(id_)
    if data["state"] == "pass":
        status.despite -= {id_}
    status.guards[id_] = GuardStatus(
        data["state"], str(data.get("text", "")), data.get("value"), at,
        int(data["asked"]) + (before.asked if before else 0), int(data["due"]) + (before.due if before else 0),
    )  # fmt: skip


def ended(status: RunStatus, event: Event, at: Moment) -> None:
    """RUN_ENDED: how it ended."""
    state = RunState(event.data["state"])
    if event.role == EXECUTOR:
        by_executor(status, event)
    else:
        by_person(people.may_lead(status, event.actor, "end the run"), status, event)
    why = why_not_end(status, state)
    need(not why, why)
    if status.held_since is not None:
        status.held, status.held_since = status.held_until(at), None
    status.write_stop_spent = status.write_stop_time(at)
    status.write_stop_since = None
    status.state, status.ended, status.order = state, at, None


def why_not_end(status: RunStatus, state: RunState) -> str:
    """Return why a run cannot end like this now; empty: it can."""
    if status.busy:
        return f"under way: {', '.join(sorted(status.busy)[:5])}; a run ends between steps"
    if state in (RunState.COMPLETED, RunState.DRY):
        if (state is RunState.DRY) != (status.kind is RunKind.DRY):
            return f"a {status.kind.value} run does not end {state.value}"
        if status.undecided:
            return f"{status.undecided} steps are not done"
        return "" if status.state is RunState.RUNNING else "the run is held"
    open_ = status.not_clean()
    if state is RunState.FAILED_PAST_PNR:
        return "" if status.past_hard_pnr else "no hard point of no return is behind"
    if state in (RunState.ABORTED_CLEAN, RunState.ROLLED_BACK):
        if open_:
            return f"not undone and verified: {', '.join(open_[:5])}"
        undone = any(one.rollback is RollbackState.UNDONE_VERIFIED for one in status.steps.values())
        return "" if undone or state is RunState.ABORTED_CLEAN else "nothing was rolled back"
    return "" if state is RunState.ABORTED_DIRTY else f"a run does not end {state.value}"


def noted(status: RunStatus, event: Event, _at: Moment) -> None:
    """NOTE: an alarm of a step, or anything else worth keeping."""
    alarm = event.data.get("alarm")
    if alarm and event.step:
        need(event.step in status.steps, "there is no such step")
        one = status.steps[event.step]
        if str(alarm) not in one.alarms:  # people are reminded again and again of one step that waits for them
            set_step(status, one, alarms=(*one.alarms, str(alarm)))
    elif alarm == OUTBOX_ALARM:
        status.outbox_problems = (*status.outbox_problems, str(event.data.get("text", "")))


def began_again(_status: RunStatus, _event: Event, _at: Moment) -> None:
    """RUN_STARTED: only the first event is one."""
    raise IllegalEvent("the run was started before")


def promoted(status: RunStatus, event: Event, at: Moment) -> None:
    """PROMOTED: a role is another person's."""
    role, person = str(event.data["role"]), str(event.data["person"])
    why = people.why_not_promote(status, role, person)
    need(not why, why)
    who, why = people.may_call(status, event.actor)
    if why or who == person:  # nobody promotes themselves alone
        agreed(status, event, "promote", "", at, people.promotion(role, person))
    else:
        by_person((who, ""), status, event)
    status.cast = status.cast.promote(role, person)
    status.promotions = (*status.promotions, (role, person))


# -- rollback ---------------------------------------------------------------------------------------------------------


def rollback_ordered(status: RunStatus, event: Event, at: Moment) -> None:
    """ROLLBACK_ORDERED: which effects are undone, and what comes then."""
    steps = tuple(str(one) for one in event.data["steps"])
    then = str(event.data["then"])
    need(status.order is None, "a rollback is under way")
    need(then in ("rolled back", "aborted", "hold"), f"nothing is known as {then}")
    need(all(id_ in status.steps for id_ in steps), "there is no such step")
    if event.role == EXECUTOR:
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
    _begin_hold(status, at)
    status.hold_reasons = (*status.hold_reasons, f"rollback: {event.data['reason']}")
    status.order = RollbackOrder(steps, then, str(event.data["reason"]), event.actor)
    if event.step:
        set_step(status, status.steps[event.step], handled=True)


def rollback_intent(status: RunStatus, event: Event, at: Moment) -> None:
    """ROLLBACK_INTENT: an effect is about to be undone."""
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


def rollback_effect(status: RunStatus, event: Event, at: Moment) -> None:
    """ROLLBACK_EFFECT: it was undone, or was not."""
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


def rollback_verified(status: RunStatus, event: Event, at: Moment) -> None:
    """ROLLBACK_VERIFIED: whether its checks say so."""
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


# -- announcements: for every sink that an event names there is one delivery, for good --------------------------------


def announced(status: RunStatus, event: Event, at: Moment) -> None:
    """ANNOUNCED: something is to be delivered to some sinks."""
    data = event.data
    about, what = data["of"], data["what"]
    need(event.kind is not EventKind.HEAD or what == HEAD, "it does not say that it tells a head")
    need(type(about) is int and 0 <= about < event.seq, f"it tells about event {about}")
    need(isinstance(what, str) and bool(what), "it does not say what it tells")
    need(isinstance(data["text"], str) and bool(data["text"]), "it has no text")
    _by_outbox(status, event)
    last, kinds = status.announced
    need(about >= last, f"it tells about event {about} after {last}")
    need(about > last or what not in kinds, f"{what} of event {about} was announced before")
    sinks = data["sinks"]
    known = status.runbook.sinks
    need(isinstance(sinks, list) and bool(sinks) and len(set(sinks)) == len(sinks), "it does not say to whom")
    need(
        all(one in known for one in sinks),
        f"there is no sink {', '.join(str(one) for one in sinks if one not in known)}",
    )
    status.announced = (about, (kinds if about == last else frozenset()) | {what})
    for sink in sinks:
        status.deliveries[event.seq, sink] = Delivery(
            event.seq, sink, what, data["text"], DeliveryState.QUEUED, 0, "", at, about, event.step,
            str(data.get("topic", "")),
        )  # fmt: skip


def head(status: RunStatus, event: Event, at: Moment) -> None:
    """HEAD: the journal's hash is announced."""
    seq, sha = event.data["seq"], event.data["sha"]
    need(type(seq) is int and 0 <= seq < event.seq, f"it tells the hash of event {seq}")
    need(isinstance(sha, str) and len(sha) == 64, "it tells no hash")
    need(seq != event.seq - 1 or sha == event.previous, f"the hash of event {seq} is another one")
    need(event.data["of"] == seq, "it tells about another event than that of the hash")
    announced(status, event, at)


def _open_delivery(status: RunStatus, event: Event) -> Delivery:
    _by_outbox(status, event)
    key = (event.data["of"], event.data["sink"])
    need(key in status.deliveries, f"event {key[0]} announced nothing to {key[1]}")
    one = status.deliveries[key]
    need(one.state in OPEN, f"the delivery of event {one.of} to {one.sink} is {one.state.value}")
    return one


def delivered(status: RunStatus, event: Event, at: Moment) -> None:
    """DELIVERED: a sink has taken it."""
    one = _open_delivery(status, event)
    status.deliveries[one.of, one.sink] = replace(one, state=DeliveryState.SENT, tries=one.tries + 1, reason="", at=at)


def delivery_failed(status: RunStatus, event: Event, at: Moment) -> None:
    """DELIVERY_FAILED: a sink has not."""
    one = _open_delivery(status, event)
    tries, given_up, reason = event.data["tries"], event.data["given_up"], event.data["reason"]
    need(tries == one.tries + 1, f"try {tries} after {one.tries}")
    need(isinstance(given_up, bool), "it does not say whether it is given up")
    need(isinstance(reason, str) and bool(reason), "there is no reason")
    state = DeliveryState.GIVEN_UP if given_up else DeliveryState.FAILED
    status.deliveries[one.of, one.sink] = replace(one, state=state, tries=tries, reason=reason, at=at)


def _by_outbox(status: RunStatus, event: Event) -> None:
    # Nobody can take the lease of a run that is over: what its executor left is delivered by any of its people.
    if status.over and event.role != EXECUTOR:
        person = status.cast.person(event.actor)
        need(person is not None, f"{event.actor!r} is none of the runbook's people")
        return
    by_executor(status, event)
