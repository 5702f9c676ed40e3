"""The arrows that the executor draws on a step: intent, effect, evidence, and its bad ends."""

from __future__ import annotations

from collections.abc import Callable

from migverify.runbook import people
from migverify.runbook.clock import Moment
from migverify.runbook.events import Event, EventKind, StepState
from migverify.runbook.fold.arrow_rules import by_executor, by_person, end_badly, end_write_stop, more
from migverify.runbook.fold.rollback import arm, expire_by
from migverify.runbook.fold.transitions import finish, need, set_step
from migverify.runbook.model import RunKind, StepKind
from migverify.runbook.state import OVER, UNDER_WAY, RunStatus

__all__ = ["EXECUTOR_ARROWS"]

_S = StepState
Handler = Callable[[RunStatus, Event, Moment], None]


def _intent(status: RunStatus, event: Event, at: Moment) -> None:
    one, step = status.steps[event.step], status.definition(event.step)
    by_executor(status, event)
    need(status.kind is not RunKind.DRY, "a dry run has no effects")
    need(one.state is _S.RUNNING and not one.intent, f"the step is {one.state.value}, its effect may have begun")
    need(step.effect is not None, "the step has no effect")
    arm(status, event.step, event.seq, at)
    set_step(status, status.steps[event.step], host=status.executor_at[0])


def _effect(status: RunStatus, event: Event, _at: Moment) -> None:
    one, step = status.steps[event.step], status.definition(event.step)
    need(one.state is _S.RUNNING, f"the step is {one.state.value}")
    if event.data.get("manual"):
        need(step.effect is None, "the step's effect is not a person's")
        person = by_person(people.may_start(status, step, event.actor), status, event)
        one = set_step(status, one, hands=one.hands | {person})
    else:
        by_executor(status, event)
        need(one.intent or event.data.get("effect") is False, "there was no intent")
    set_step(status, one, state=_S.VERIFYING, effect_done=one.intent, evidence=(*one.evidence, event.data),
             evidence_sha=more(one.evidence_sha, event))  # fmt: skip


def _evidence(status: RunStatus, event: Event, at: Moment) -> None:
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
        finish(status, one, _S.DONE, at)
        if step.kind in (StepKind.DECISION, StepKind.GATE, StepKind.CHECK):
            expire_by(status, event.step)
        end_write_stop(status, event.step, at)


def _bad_end(state: StepState) -> Handler:
    def handle(status: RunStatus, event: Event, at: Moment) -> None:
        one, step = status.steps[event.step], status.definition(event.step)
        need(one.state in UNDER_WAY, f"the step is {one.state.value}")
        if event.data.get("manual"):
            by_person(people.may_start(status, step, event.actor), status, event)
        else:
            by_executor(status, event)
        if state is _S.UNKNOWN:
            need(one.intent and not one.effect_done, "no effect of it was under way")
        evidence = (*one.evidence, event.data)
        one = set_step(status, one, evidence=evidence, evidence_sha=more(one.evidence_sha, event))
        end_badly(status, one, state, at, str(event.data.get("reason", "")))

    return handle


def _went(status: RunStatus, event: Event, _at: Moment) -> None:
    by_executor(status, event)
    one, step = status.steps[event.step], status.definition(event.step)
    to = event.data["to"]
    need(one.state in OVER and to == step.goto and to in status.steps, f"it cannot go to {to}")
    need(status.steps[to].state in (_S.PENDING, _S.READY), f"{to} is {status.steps[to].state.value}")
    set_step(status, one, handled=True)
    set_step(status, status.steps[to], state=_S.READY)
    status.forced |= {to}


_K = EventKind
EXECUTOR_ARROWS: dict[EventKind, Handler] = {
    _K.INTENT: _intent, _K.EFFECT: _effect, _K.EVIDENCE: _evidence, _K.WENT: _went,
    _K.FAILED: _bad_end(_S.FAILED), _K.TIMED_OUT: _bad_end(_S.TIMED_OUT),
    _K.INCONCLUSIVE: _bad_end(_S.INCONCLUSIVE), _K.UNKNOWN: _bad_end(_S.UNKNOWN),
}  # fmt: skip
