"""The arrows that people draw: called, approved, started, accepted, rejected, waived, decided, tried again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from migverify.runbook import people
from migverify.runbook.clock import Moment
from migverify.runbook.conditions import why_not_begin
from migverify.runbook.events import Event, EventKind, RollbackState, RunState, StepState
from migverify.runbook.fold.arrow_rules import EXECUTOR, agreed, by_executor, by_person, end_badly, end_write_stop, more
from migverify.runbook.fold.rollback import arm, disarm, expire_by
from migverify.runbook.fold.transitions import begin_busy, finish, need, set_step, unpass
from migverify.runbook.model import Repeat, Step, StepKind
from migverify.runbook.state import EFFECTS_OUTLIVE, OVER, PASSED, Attempt, Given, RunStatus, StepStatus

__all__ = ["PEOPLE_ARROWS"]

_S = StepState
Handler = Callable[[RunStatus, Event, Moment], None]


def _called(status: RunStatus, event: Event, at: Moment) -> None:
    one = status.steps[event.step]
    need(status.state is RunState.RUNNING, "the run is held")
    need(one.state is _S.READY, f"the step is {one.state.value}")
    _may_begin(status, at)
    for id_ in status.definition(event.step).requires:
        need(id_ not in status.steps or status.steps[id_].state is _S.DONE, f"{id_} is required, and is not done")
    if event.role == EXECUTOR:
        person = _by_itself(status, event, people.COORDINATOR)
    else:
        person = by_person(people.may_call(status, event.actor), status, event)
    set_step(status, one, state=_S.CALLED, called_by=person, called=at)


def _by_itself(status: RunStatus, event: Event, part: str) -> str:
    """Return for whom the executor calls or starts a gate that only reads, while writes are stopped."""
    by_executor(status, event)
    need(event.step in status.graph.self_starting, "the executor starts only gates that read, inside a write stop")
    need(status.write_stop_since is not None, "writes are not stopped")
    holders = status.cast.holders(part)
    need(bool(holders), f"nobody is {part} in this run")
    return holders[0]


def _may_begin(status: RunStatus, at: Moment) -> None:
    why = why_not_begin(status, at)
    need(not why, why)


def _started_step(status: RunStatus, event: Event, at: Moment) -> None:
    one, step = status.steps[event.step], status.definition(event.step)
    need(status.state is RunState.RUNNING, "the run is held")
    need(one.state is _S.CALLED, f"the step is {one.state.value}, not called")
    _may_begin(status, at)
    if event.role == EXECUTOR:
        person = _by_itself(status, event, people.COORDINATOR if step.dri in status.cast.absent else step.dri)
    else:
        person = by_person(people.may_start(status, step, event.actor), status, event)
    missing = people.missing_approvals(status, step, "start", at, person)
    need(not missing, missing)
    set_step(status, one, state=_S.RUNNING, dri=person, hands=frozenset({person}), started=at,
             held_before=status.held_until(at))  # fmt: skip
    begin_busy(status, event.step)
    if step.kind is StepKind.MANUAL and step.effect is None:
        arm(status, event.step, event.seq, at)  # the person may be at it from now on


def _given(status: RunStatus, event: Event, at: Moment, person: str, of: str, digest: str) -> Given:
    signature = str(event.data.get("signature", ""))
    if signature:
        mark = hashlib.sha256(signature.encode()).hexdigest()
        need(mark not in status.signatures, "its signature was used before")
        status.signatures |= {mark}
        ttl, age = status.runbook.policy.sign_off_ttl, at.wall - float(event.data["signed_at"])
        need(-people.CLOCK_SKEW <= age <= ttl + people.CLOCK_SKEW, f"it was signed {age:.0f} s before it was given")
        status.signed += 1
    else:
        status.unsigned += 1
    data = event.data
    return Given(
        person, of, digest, at, event.seq, bool(signature), str(data.get("reason", "")), str(data.get("answer", ""))
    )


def _approved(status: RunStatus, event: Event, at: Moment) -> None:
    of, answer = str(event.data["of"]), str(event.data.get("answer", ""))
    need(event.data["hash"] == people.binding(status, of, event.step, answer), "it signs something else")
    if not event.step:
        need(of in ("takeover", "resume", "rollback", "promote"), f"a run has no approval of {of}")
        person = by_person(people.may_take_part(status, event.actor), status, event)
        status.agreements = (*status.agreements, _given(status, event, at, person, of, event.data["hash"]))
        return
    need(event.step in status.steps, "there is no such step")
    one, step = status.steps[event.step], status.definition(event.step)
    need(event.attempt == one.attempt, f"attempt {event.attempt}, where {one.attempt} is")
    if of == "start":
        need(one.state in (_S.READY, _S.CALLED), f"the step is {one.state.value}")
        person = by_person(people.may_approve(status, step, event.actor), status, event)
    else:
        need(of in ("waive", "decide"), f"a step has no approval of {of}")
        need(one.state in OVER, f"the step is {one.state.value}")
        person = by_person(people.may_take_part(status, event.actor), status, event)
    given = _given(status, event, at, person, of, event.data["hash"])
    set_step(status, one, approvals=(*one.approvals, given))


def _accepted(status: RunStatus, event: Event, at: Moment) -> None:
    one, step = status.steps[event.step], status.definition(event.step)
    need(one.state is _S.AWAITING_REVIEW, f"the step is {one.state.value}")
    need(event.data["hash"] == people.approval_hash(status, event.step), "it signs another step or other evidence")
    person = by_person(people.may_accept(status, step, event.actor), status, event)
    given = _given(status, event, at, person, "done", event.data["hash"])
    signed = given.signed or not status.runbook.policy.signed_approvals
    need(signed, "the runbook wants signed approvals")
    one = set_step(status, one, approvals=(*one.approvals, given))
    if not people.missing_approvals(status, step, "done", at):
        finish(status, one, _S.DONE, at)
        if step.kind in (StepKind.DECISION, StepKind.GATE, StepKind.CHECK):
            expire_by(status, event.step)
        end_write_stop(status, event.step, at)


def _rejected(status: RunStatus, event: Event, at: Moment) -> None:
    one, step = status.steps[event.step], status.definition(event.step)
    need(one.state is _S.AWAITING_REVIEW, f"the step is {one.state.value}")
    need(bool(event.data.get("reason")), "there is no reason")
    by_person(people.may_accept(status, step, event.actor), status, event)
    end_badly(status, one, _S.FAILED, at, f"rejected: {event.data['reason']}", rejected=True)


def _waived(status: RunStatus, event: Event, at: Moment) -> None:
    one = status.steps[event.step]
    need(one.state in OVER and one.state is not _S.UNKNOWN, f"the step is {one.state.value}")
    need(bool(event.data.get("reason")), "there is no reason")
    agreed(status, event, "waive", event.step, at)
    finish(status, set_step(status, one, waiver=dict(event.data)), _S.WAIVED, at)
    end_write_stop(status, event.step, at)


def _reconciled(status: RunStatus, event: Event, at: Moment) -> None:
    one, step = status.steps[event.step], status.definition(event.step)
    need(one.state in OVER and one.intent, f"the step is {one.state.value}, and no effect of it is in doubt")
    happened = event.data["happened"]
    need(isinstance(happened, bool), "it does not say whether the effect happened")
    by_probe = event.data.get("how") == "probe"
    if by_probe:
        by_executor(status, event)
        need(step.reconcile is not None, "the step has no probe")
    else:
        agreed(status, event, "decide", event.step, at, "happened" if happened else "did not happen")
    sha = more(one.evidence_sha, event)
    if happened:
        set_step(
            status, one, state=_S.VERIFYING, effect_done=True, reason="", handled=False, ended=None, active=None,
            evidence=(*one.evidence, event.data), evidence_sha=sha,
        )  # fmt: skip
        begin_busy(status, event.step)
    else:
        reason = "the effect did not happen"
        if status.rules < EFFECTS_OUTLIVE or not by_probe or _nothing_stands(step, event.data.get("undone")):
            disarm(status, event.step, at)
            set_step(status, status.steps[event.step], order=-1)
        else:
            # A probe looks at the end of an effect; what its first half did may stand, and can still be taken back.
            reason = f"{reason}; its rollback does not verify that no part of it did"
        one = status.steps[event.step]
        set_step(status, one, state=_S.FAILED, intent=False, effect_done=False, reason=reason,
                 evidence=(*one.evidence, event.data), evidence_sha=sha, handled=False)  # fmt: skip


def _nothing_stands(step: Step, undone: Any) -> bool:
    """Tell whether the checks of a step's rollback say that there is nothing to take back."""
    verify = step.rollback.verify if step.rollback is not None else ()
    if step.rollback is None:
        return True
    return (
        bool(verify)
        and isinstance(undone, list)
        and len(undone) == len(verify)
        and all(answer["state"] == "pass" for answer in undone)
    )


def _retried(status: RunStatus, event: Event, at: Moment) -> None:
    one, step = status.steps[event.step], status.definition(event.step)
    to = event.data["to"]
    undone = one.rollback is RollbackState.UNDONE_VERIFIED and one.state in (OVER | PASSED)
    need(one.state in OVER or undone, f"the step is {one.state.value}")
    if to == "verifying":
        need(one.effect_done and not undone, "no effect of it stands that could be verified again")
    else:
        need(not one.intent or step.repeat is Repeat.YES, "its effect may have happened, and may not be repeated")
        need(one.rollback in _REPEATABLE, f"its rollback is {one.rollback.value}")
    need(to in ("verifying", "called", "running"), f"it cannot go to {to}")
    if to == "called":
        by_person(people.may_lead(status, event.actor, "have a step tried again"), status, event)
    if one.state in PASSED:
        unpass(status, event.step)
    status.retries += 1
    status.busy.discard(event.step)
    old = Attempt(one.attempt, one.state, one.reason, one.started, one.ended)
    again = to != "called"
    stands = one.may_stand  # an earlier attempt may have left a part behind
    status.steps[event.step] = StepStatus(
        one.id, {"verifying": _S.VERIFYING, "running": _S.RUNNING, "called": _S.CALLED}[to], event.attempt,
        called_by=one.called_by, dri=one.dri if again else "", called=one.called if again else at,
        started=at if again else None, held_before=status.held_until(at), intent=one.intent and to == "verifying",
        effect_done=one.effect_done and to == "verifying", order=one.order if stands else -1,
        evidence=(event.data,), evidence_sha=more("", event),
        rollback=one.rollback if stands else RollbackState.NONE_NEEDED, attempts=(*one.attempts, old),
    )  # fmt: skip
    if again:
        begin_busy(status, event.step)


_REPEATABLE = {RollbackState.NONE_NEEDED, RollbackState.ARMED, RollbackState.UNDONE_VERIFIED}


def _promoted(status: RunStatus, event: Event, at: Moment) -> None:
    role, person = str(event.data["role"]), str(event.data["person"])
    need(bool(event.data.get("reason")), "there is no reason")
    why = people.why_not_promote(status, role, person)
    need(not why, why)
    who, why = people.may_call(status, event.actor)
    if why or who == person:  # nobody promotes themselves alone
        agreed(status, event, "promote", "", at, people.promotion(role, person))
    else:
        by_person((who, ""), status, event)
    status.cast = status.cast.promote(role, person)
    status.promotions = (*status.promotions, (role, person))


_K = EventKind
PEOPLE_ARROWS: dict[EventKind, Handler] = {
    _K.CALLED: _called, _K.APPROVED: _approved, _K.STARTED: _started_step, _K.ACCEPTED: _accepted,
    _K.REJECTED: _rejected, _K.WAIVED: _waived, _K.RECONCILED: _reconciled, _K.RETRIED: _retried,
    _K.PROMOTED: _promoted,
}  # fmt: skip
