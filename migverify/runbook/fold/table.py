"""The transition table of a run: every kind of event, when it may be written, and what follows. A pure fold of events.

``fold(a + b) == fold(b, fold(a))``: nothing is remembered beside the status. An event that cannot have happened is a
JournalError which names its line. What an actor may not do is judged by the rules that refuse the command itself
(``people``), so a line that somebody added with an editor and chained anew is still found when it breaks a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from migverify.errors import JournalError
from migverify.runbook import people
from migverify.runbook.cast import make_cast
from migverify.runbook.clock import Moment
from migverify.runbook.conditions import taken_ids
from migverify.runbook.events import Event, EventKind, StepState
from migverify.runbook.fold import run, steps
from migverify.runbook.fold.moves import IllegalEvent, by_executor, need
from migverify.runbook.graph import graph_of
from migverify.runbook.kinds import RunKind
from migverify.runbook.record import signatures
from migverify.runbook.record.frozen import runbook_from_json
from migverify.runbook.state import JUMP_SECONDS, OVER, SIGNED_BY_ALL, UNDER_WAY, Jump, RunStatus, StepStatus

__all__ = ["TRANSITIONS", "Transition", "fold"]

_K, _S = EventKind, StepState


@dataclass(frozen=True, slots=True)
class Transition:
    """How a kind of event moves a run.

    Parameters
    ----------
    apply
        Changes the status; raises IllegalEvent where the event cannot have happened.
    of_step
        It is about an attempt of one step.
    states
        Those of the step in which it may happen; None: ``apply`` looks at more than the state.
    by_executor
        Only the executor that holds the run writes it.
    reason
        It has to have one.
    signs
        What a signature on it is of; empty: the event says so itself.
    after_end
        It may be written after the end of the run, too.
    """

    apply: Callable[[RunStatus, Event, Moment], None]
    of_step: bool = False
    states: frozenset[StepState] | None = None
    by_executor: bool = False
    reason: bool = False
    signs: str = ""
    after_end: bool = False


def _of_step(
    apply: Callable[[RunStatus, Event, Moment], None], *states: StepState, by_executor: bool = False,
    reason: bool = False, signs: str = "",
) -> Transition:  # fmt: skip
    return Transition(apply, True, frozenset(states) or None, by_executor, reason, signs)


TRANSITIONS: dict[EventKind, Transition] = {
    # steps, by their people
    _K.CALLED: _of_step(steps.called, _S.READY),
    _K.APPROVED: Transition(steps.approved),
    _K.STARTED: _of_step(steps.started),
    _K.ACCEPTED: _of_step(steps.accepted, _S.AWAITING_REVIEW, signs="done"),
    _K.REJECTED: _of_step(steps.rejected, _S.AWAITING_REVIEW, reason=True),
    _K.RETRIED: _of_step(steps.retried),
    _K.WAIVED: _of_step(steps.waived, *(OVER - {_S.UNKNOWN}), reason=True, signs="waive"),
    _K.RECONCILED: _of_step(steps.reconciled, signs="decide"),
    # steps, by the executor
    _K.INTENT: _of_step(steps.intent, by_executor=True),
    _K.EFFECT: _of_step(steps.effect, _S.RUNNING),
    _K.EVIDENCE: _of_step(steps.evidence),
    _K.FAILED: _of_step(steps.ended_badly, *UNDER_WAY),
    _K.TIMED_OUT: _of_step(steps.ended_badly, *UNDER_WAY),
    _K.INCONCLUSIVE: _of_step(steps.ended_badly, *UNDER_WAY),
    _K.UNKNOWN: _of_step(steps.ended_badly, *UNDER_WAY),
    _K.WENT: _of_step(steps.went, by_executor=True),
    # the run
    _K.RUN_STARTED: Transition(run.began_again),
    _K.LEASE: Transition(run.lease),
    _K.HELD: Transition(run.held, reason=True),
    _K.RESUMED: Transition(run.resumed, signs="resume"),
    _K.GUARD: Transition(run.guard, by_executor=True),
    _K.PROMOTED: Transition(run.promoted, reason=True, signs="promote"),
    _K.RUN_ENDED: Transition(run.ended),
    _K.NOTE: Transition(run.noted, after_end=True),
    # rollback
    _K.ROLLBACK_ORDERED: Transition(run.rollback_ordered, signs="rollback"),
    _K.ROLLBACK_INTENT: _of_step(run.rollback_intent, by_executor=True),
    _K.ROLLBACK_EFFECT: _of_step(run.rollback_effect),
    _K.ROLLBACK_VERIFIED: _of_step(run.rollback_verified, by_executor=True),
    # announcements
    _K.ANNOUNCED: Transition(run.announced, after_end=True),
    _K.HEAD: Transition(run.head, after_end=True),
    _K.DELIVERED: Transition(run.delivered, after_end=True),
    _K.DELIVERY_FAILED: Transition(run.delivery_failed, after_end=True),
}


def fold(events: Iterable[Event], start: RunStatus | None = None) -> RunStatus | None:
    """Return the state of the run after some events; None: there were none at all.

    Parameters
    ----------
    start
        Where it stood before the first of them; it is not changed.

    Raises JournalError: an event cannot have happened there; the message names its line (``line N``, from 1).
    """
    status = start.copy() if start is not None else None
    for event in events:
        status = _one(status, event)
    return status


def _one(status: RunStatus | None, event: Event) -> RunStatus:
    try:
        return _apply(status, event)
    except (IllegalEvent, KeyError, TypeError, ValueError, AttributeError, JournalError) as error:
        words = error.message if isinstance(error, JournalError) else str(error)
        what = words if isinstance(error, IllegalEvent | JournalError) else f"its data cannot be read: {error!r}"
        where = f"line {event.seq + 1}: {event.kind.value}{f' of {event.step}' if event.step else ''}"
        raise JournalError(f"{where} by {event.actor or 'nobody'}: {what}") from None


def _signature_problem(status: RunStatus, event: Event) -> str:
    name = status.cast.person(event.actor)
    person = status.runbook.people.get(name or "")
    if person is None:
        return f"{event.actor!r} is none of the runbook's people"
    of = TRANSITIONS[event.kind].signs or str(event.data["of"])
    answer = str(event.data.get("answer", ""))
    if event.kind is EventKind.RECONCILED:
        answer = "happened" if event.data["happened"] else "did not happen"
    elif event.kind is EventKind.PROMOTED:
        answer = people.promotion(str(event.data["role"]), str(event.data["person"]))
    elif event.kind is EventKind.ROLLBACK_ORDERED and status.rules >= SIGNED_BY_ALL:
        answer = people.undoing(status, [str(one) for one in event.data["steps"]], str(event.data["then"]))
    digest = people.binding(status, of, event.step, answer)
    text = signatures.payload(
        status.run, event.step, event.attempt, of, digest, person.name, float(event.data["signed_at"])
    )
    return signatures.verify(text, str(event.data["signature"]), person)


def _apply(status: RunStatus | None, event: Event) -> RunStatus:
    at = Moment(event.wall, event.mono, event.boot)
    if status is None:
        need(event.kind is EventKind.RUN_STARTED, "the first event starts the run")
        status = _started(event, at)
    else:
        _look_at_clocks(status, event, at)
        need(bool(event.actor), "nobody did it")
        transition = TRANSITIONS[event.kind]
        need(transition.after_end or not status.over, "the run has ended")
        if event.data.get("signature"):
            # Whoever acts on an approval reads it here: what was not signed by that person's key never counts.
            why = _signature_problem(status, event)
            need(not why, why)
        if transition.of_step:
            need(event.step in status.steps, "there is no such step")
            one = status.steps[event.step]
            number = one.attempt + 1 if event.kind is EventKind.RETRIED else one.attempt
            need(event.attempt == number, f"attempt {event.attempt}, where {number} is")
            need(transition.states is None or one.state in transition.states, f"the step is {one.state.value}")
        need(not transition.reason or bool(event.data.get("reason")), "there is no reason")
        if transition.by_executor:
            by_executor(status, event)
        transition.apply(status, event, at)
    status.last, status.seq, status.head = at, event.seq, event.sha
    return status


def _started(event: Event, at: Moment) -> RunStatus:
    runbook = runbook_from_json(event.data["runbook"])
    need(runbook.sha == event.runbook, "the runbook is not the one whose hash the line bears")
    problems = people.identity_problems(runbook.people.values())
    need(not problems, "; ".join(problems))
    taken = taken_ids(runbook)
    need(not taken, f"guard {', '.join(taken)}: the executor has one of that id")
    kind = RunKind(event.data["kind"])
    graph = graph_of(runbook, kind)
    status = RunStatus(event.run, runbook, kind, graph, make_cast(runbook, kind), at, at, began=event.sha,
                       rules=int(event.data.get("rules", 1)))  # fmt: skip
    alone = people.roles_without_anybody(status)
    need(not alone, f"nobody is {', '.join(alone)} in a run of kind {kind.value}")
    for step in runbook.steps:
        away = step.id in graph.not_applicable
        left = len(graph.needs[step.id])
        state = _S.NOT_APPLICABLE if away else _S.PENDING if left else _S.READY
        status.steps[step.id] = StepStatus(step.id, state, reason=graph.not_applicable.get(step.id, ""))
        status.left[step.id] = left
        status.undecided += not away
    return status


def _look_at_clocks(status: RunStatus, event: Event, at: Moment) -> None:
    before = status.last
    if before.boot == at.boot:
        need(at.mono >= before.mono, "the monotonic clock went back")
        moved = (at.wall - before.wall) - (at.mono - before.mono) / 1e9
        if abs(moved) > JUMP_SECONDS:
            status.jumps = (*status.jumps, Jump(event.seq, moved))
    elif before.wall - at.wall > people.CLOCK_SKEW:
        status.jumps = (*status.jumps, Jump(event.seq, at.wall - before.wall))
