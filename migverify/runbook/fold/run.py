"""The arrows of the run as a whole: lease, holds, guards, its end."""

from __future__ import annotations

from collections.abc import Callable

from migverify.runbook import people
from migverify.runbook.clock import Moment
from migverify.runbook.conditions import guard_ids
from migverify.runbook.events import Event, EventKind, RollbackState, RunState
from migverify.runbook.fold.announce import OUTBOX_ALARM
from migverify.runbook.fold.arrow_rules import agreed, by_executor, by_person, pair_of
from migverify.runbook.fold.transitions import IllegalEvent, need, set_step
from migverify.runbook.model import RunKind
from migverify.runbook.state import OVER, GuardStatus, RunStatus

__all__ = ["RUN_ARROWS", "why_not_end"]
Handler = Callable[[RunStatus, Event, Moment], None]


def _lease(status: RunStatus, event: Event, at: Moment) -> None:
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


def _held(status: RunStatus, event: Event, at: Moment) -> None:
    need(bool(event.data.get("reason")), "there is no reason")
    if event.role == "executor":
        by_executor(status, event)
    else:
        by_person(people.may_take_part(status, event.actor), status, event)
    if status.state is RunState.RUNNING:
        status.state, status.held_since = RunState.HELD, at
        status.holds += 1
        status.hold_reasons, status.hold_guards = (), ()
    status.hold_reasons = (*status.hold_reasons, str(event.data["reason"]))
    if event.data.get("guard"):
        status.hold_guards = (*status.hold_guards, str(event.data["guard"]))
    if event.step:
        need(event.step in status.steps and status.steps[event.step].state in OVER, "the step did not fail")
        set_step(status, status.steps[event.step], handled=True)


def _resumed(status: RunStatus, event: Event, at: Moment) -> None:
    need(status.state is RunState.HELD, "the run is not held")
    need(status.order is None, "a rollback is under way")
    by_person(people.may_lead(status, event.actor, "resume the run"), status, event)
    bad = [id_ for id_ in status.hold_guards if id_ not in status.guards or status.guards[id_].state != "pass"]
    if bad:
        agreed(status, event, "resume", "", at)
    status.held = status.held_until(at)
    status.state, status.held_since, status.despite = RunState.RUNNING, None, status.despite | set(bad)


def _guard(status: RunStatus, event: Event, at: Moment) -> None:
    by_executor(status, event)
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


def _ended(status: RunStatus, event: Event, at: Moment) -> None:
    state = RunState(event.data["state"])
    if event.role == "executor":
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


def _note(status: RunStatus, event: Event, _at: Moment) -> None:
    alarm = event.data.get("alarm")
    if alarm and event.step:
        need(event.step in status.steps, "there is no such step")
        one = status.steps[event.step]
        if str(alarm) not in one.alarms:  # people are reminded again and again of one step that waits for them
            set_step(status, one, alarms=(*one.alarms, str(alarm)))
    elif alarm == OUTBOX_ALARM:
        status.outbox_problems = (*status.outbox_problems, str(event.data.get("text", "")))


def _twice(_status: RunStatus, _event: Event, _at: Moment) -> None:
    raise IllegalEvent("the run was started before")


_K = EventKind
RUN_ARROWS: dict[EventKind, Handler] = {
    _K.RUN_STARTED: _twice, _K.RUN_ENDED: _ended, _K.LEASE: _lease, _K.HELD: _held, _K.RESUMED: _resumed,
    _K.GUARD: _guard, _K.NOTE: _note,
}  # fmt: skip
