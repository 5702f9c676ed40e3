"""The transitions of steps: by their people, and by the executor that carries them out."""

from __future__ import annotations

import hashlib
from typing import Any

from migverify.runbook import people
from migverify.runbook.clock import Moment
from migverify.runbook.conditions import why_not_begin
from migverify.runbook.events import Event, EventKind, RollbackState, RunState, StepState
from migverify.runbook.fold.moves import (
    EXECUTOR,
    agreed,
    arm,
    by_executor,
    by_person,
    disarm,
    end_badly,
    end_write_stop,
    expire_by,
    finish,
    more,
    need,
    set_step,
    unpass,
)  # fmt: skip
from migverify.runbook.kinds import Repeat, RunKind, StepKind
from migverify.runbook.model import Step
from migverify.runbook.state import EFFECTS_OUTLIVE, OVER, PASSED, UNDER_WAY, Attempt, Given, RunStatus, StepStatus

__all__ = [
    "accepted", "approved", "called", "effect", "ended_badly", "evidence", "intent", "reconciled", "rejected",
    "retried",
    "started", "waived", "went",
]  # fmt: skip

_S = StepState
_ENDS = {
    EventKind.FAILED: _S.FAILED, EventKind.TIMED_OUT: _S.TIMED_OUT, EventKind.INCONCLUSIVE: _S.INCONCLUSIVE,
    EventKind.UNKNOWN: _S.UNKNOWN,
}  # fmt: skip
_ANSWERS = (StepKind.DECISION, StepKind.GATE, StepKind.CHECK)
"""Steps without an effect that stand for what was decided: rollbacks that are valid until then expire."""


def called(status: RunStatus, event: Event, at: Moment) -> None:
    """CALLED: the coordinator calls a step that is ready."""
    one = status.steps[event.step]
    need(status.state is RunState.RUNNING, "the run is held")
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


def started(status: RunStatus, event: Event, at: Moment) -> None:
    """STARTED: its DRI starts a step that was called."""
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
    status.busy.add(event.step)
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


def approved(status: RunStatus, event: Event, at: Moment) -> None:
    """APPROVED: one agrees before a start, or is the first of two."""
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


def accepted(status: RunStatus, event: Event, at: Moment) -> None:
    """ACCEPTED: a reviewer signs step and evidence."""
    one, step = status.steps[event.step], status.definition(event.step)
    need(event.data["hash"] == people.approval_hash(status, event.step), "it signs another step or other evidence")
    person = by_person(people.may_accept(status, step, event.actor), status, event)
    given = _given(status, event, at, person, "done", event.data["hash"])
    signed = given.signed or not status.runbook.policy.signed_approvals
    need(signed, "the runbook wants signed approvals")
    one = set_step(status, one, approvals=(*one.approvals, given))
    if not people.missing_approvals(status, step, "done", at):
        _done(status, one, step, at)


def rejected(status: RunStatus, event: Event, at: Moment) -> None:
    """REJECTED: a reviewer does not, and the step has failed."""
    one, step = status.steps[event.step], status.definition(event.step)
    by_person(people.may_accept(status, step, event.actor), status, event)
    end_badly(status, one, _S.FAILED, at, f"rejected: {event.data['reason']}", rejected=True)


def waived(status: RunStatus, event: Event, at: Moment) -> None:
    """WAIVED: two persons let a failed step pass."""
    one = status.steps[event.step]
    agreed(status, event, "waive", event.step, at)
    finish(status, set_step(status, one, waiver=dict(event.data)), _S.WAIVED, at)
    end_write_stop(status, event.step, at)


def reconciled(status: RunStatus, event: Event, at: Moment) -> None:
    """RECONCILED: a probe or two persons say whether an effect in doubt happened."""
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
        status.busy.add(event.step)
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


def retried(status: RunStatus, event: Event, at: Moment) -> None:
    """RETRIED: a new attempt, from its call, its effect or its checks on."""
    one, step = status.steps[event.step], status.definition(event.step)
    to = event.data["to"]
    undone = one.rollback is RollbackState.UNDONE_VERIFIED and one.state in (OVER | PASSED)
    need(one.state in OVER or undone, f"the step is {one.state.value}")
    if to == "verifying":
        need(one.effect_done and not undone, "no effect of it is in place that could be verified again")
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
    may_be_left = one.may_stand  # an earlier attempt may have left a part behind
    status.steps[event.step] = StepStatus(
        one.id, {"verifying": _S.VERIFYING, "running": _S.RUNNING, "called": _S.CALLED}[to], event.attempt,
        called_by=one.called_by, dri=one.dri if again else "", called=one.called if again else at,
        started=at if again else None, held_before=status.held_until(at), intent=one.intent and to == "verifying",
        effect_done=one.effect_done and to == "verifying", order=one.order if may_be_left else -1,
        evidence=(event.data,), evidence_sha=more("", event),
        rollback=one.rollback if may_be_left else RollbackState.NONE_NEEDED, attempts=(*one.attempts, old),
    )  # fmt: skip
    if again:
        status.busy.add(event.step)


_REPEATABLE = {RollbackState.NONE_NEEDED, RollbackState.ARMED, RollbackState.UNDONE_VERIFIED}


def intent(status: RunStatus, event: Event, at: Moment) -> None:
    """INTENT: an effect is about to begin."""
    one, step = status.steps[event.step], status.definition(event.step)
    need(status.kind is not RunKind.DRY, "a dry run has no effects")
    need(one.state is _S.RUNNING and not one.intent, f"the step is {one.state.value}, its effect may have begun")
    need(step.effect is not None, "the step has no effect")
    arm(status, event.step, event.seq, at)
    set_step(status, status.steps[event.step], host=status.executor_at[0])


def effect(status: RunStatus, event: Event, _at: Moment) -> None:
    """EFFECT: it happened; its checks come next."""
    one, step = status.steps[event.step], status.definition(event.step)
    if event.data.get("manual"):
        need(step.effect is None, "the step's effect is not a person's")
        person = by_person(people.may_start(status, step, event.actor), status, event)
        one = set_step(status, one, hands=one.hands | {person})
    else:
        by_executor(status, event)
        need(one.intent or event.data.get("effect") is False, "there was no intent")
    set_step(status, one, state=_S.VERIFYING, effect_done=one.intent, evidence=(*one.evidence, event.data),
             evidence_sha=more(one.evidence_sha, event))  # fmt: skip


def evidence(status: RunStatus, event: Event, at: Moment) -> None:
    """Evidence of a person while a step runs, or with ``complete`` the answers of its checks, which all passed."""
    one, step = status.steps[event.step], status.definition(event.step)
    if event.data.get("dry"):
        by_executor(status, event)
        need(status.kind is RunKind.DRY and one.state is _S.READY, "only a step of a dry run ends like this")
        finish(status, set_step(status, one, started=at, evidence=(event.data,)), _S.DRY, at)
        return
    sha = more(one.evidence_sha, event)
    if not event.data.get("complete"):
        need(one.state in UNDER_WAY, f"the step is {one.state.value}")
        by_person(people.may_take_part(status, event.actor), status, event)
        set_step(status, one, evidence=(*one.evidence, event.data), evidence_sha=sha)
        return
    by_executor(status, event)
    need(one.state is _S.VERIFYING, f"the step is {one.state.value}")
    need(all(answer["state"] == "pass" for answer in event.data["checks"]), "a check did not pass")
    need(len(event.data["checks"]) == len(step.expect), "not all checks were asked")
    active = status.active_time(event.step, at)
    one = set_step(status, one, state=_S.AWAITING_REVIEW, ended=at, active=active,
                   evidence=(*one.evidence, event.data), evidence_sha=sha)  # fmt: skip
    status.busy.discard(event.step)
    if step.kind is not StepKind.DECISION:
        end_write_stop(status, event.step, at)
    if not people.needed_approvals(step, "done"):
        _done(status, one, step, at)


def _done(status: RunStatus, one: StepStatus, step: Step, at: Moment) -> None:
    finish(status, one, _S.DONE, at)
    if step.kind in _ANSWERS:
        expire_by(status, one.id)
    end_write_stop(status, one.id, at)


def ended_badly(status: RunStatus, event: Event, at: Moment) -> None:
    """FAILED, TIMED_OUT, INCONCLUSIVE or UNKNOWN: of the executor, or of the DRI of a step by hand."""
    one, step = status.steps[event.step], status.definition(event.step)
    if event.data.get("manual"):
        by_person(people.may_start(status, step, event.actor), status, event)
    else:
        by_executor(status, event)
    state = _ENDS[event.kind]
    if state is _S.UNKNOWN:
        need(one.intent and not one.effect_done, "no effect of it was under way")
    one = set_step(
        status, one, evidence=(*one.evidence, event.data), evidence_sha=more(one.evidence_sha, event)
    )  # fmt: skip
    end_badly(status, one, state, at, str(event.data.get("reason", "")))


def went(status: RunStatus, event: Event, _at: Moment) -> None:
    """WENT: `on_fail: goto` leads elsewhere; the failed step stays failed."""
    one, step = status.steps[event.step], status.definition(event.step)
    to = event.data["to"]
    need(one.state in OVER and to == step.on_fail.goto and to in status.steps, f"it cannot go to {to}")
    need(status.steps[to].state in (_S.PENDING, _S.READY), f"{to} is {status.steps[to].state.value}")
    set_step(status, one, handled=True)
    set_step(status, status.steps[to], state=_S.READY)
    status.forced |= {to}
