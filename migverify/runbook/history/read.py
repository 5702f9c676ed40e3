"""Events of one run -> ``PastRun``: one pass, in which the fold judges every line and more is noted beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from migverify.errors import JournalError
from migverify.runbook.clock import Moment
from migverify.runbook.events import Event, EventKind, RollbackState, StepState
from migverify.runbook.fold.whole import fold
from migverify.runbook.history.case import Marks, case_of
from migverify.runbook.history.past import (
    BAD,
    PastGuard,
    PastHold,
    PastPart,
    PastRun,
    PastStep,
    PastUndo,
    Undelivered,
)
from migverify.runbook.model import RunKind, Step
from migverify.runbook.people import COORDINATOR, DECISION_OWNER
from migverify.runbook.record.run_chain import is_chained
from migverify.runbook.state import DeliveryState, RunStatus, StepStatus, between

__all__ = ["past_run"]

_K = EventKind
_LED = frozenset({_K.RESUMED, _K.ROLLBACK_ORDERED, _K.RUN_ENDED, _K.RETRIED})
_ACTING = _LED | {
    _K.CALLED, _K.APPROVED, _K.STARTED, _K.EFFECT, _K.EVIDENCE, _K.FAILED, _K.ACCEPTED, _K.REJECTED, _K.WAIVED,
    _K.RECONCILED, _K.HELD, _K.PROMOTED, _K.ROLLBACK_EFFECT,
}  # fmt: skip
"""What only a person who is there can say: to begin a run, to lend it an executor or to leave a note is not that."""
_IDLE = frozenset({StepState.PENDING, StepState.READY, StepState.NOT_APPLICABLE})


@dataclass(slots=True)
class _Hold:
    at: Moment
    by: str
    reason: str
    guard: str
    planned: bool
    until: Moment | None = None


@dataclass(slots=True)
class _Facts:
    """What the status does not keep, or keeps only of the last attempt."""

    autopilot: bool = False
    fingerprint: str = ""
    text_sha: str = ""
    chained: bool = False
    acts: list[tuple[EventKind, str, str]] = field(default_factory=list)
    holds: list[_Hold] = field(default_factory=list)
    held: bool = False
    alarms: dict[str, list[str]] = field(default_factory=dict)
    bad: dict[str, list[StepState]] = field(default_factory=dict)
    answers: dict[str, dict[str, int]] = field(default_factory=dict)
    marks: Marks = field(default_factory=Marks)
    undone: list[tuple[str, RollbackState, Moment, Moment]] = field(default_factory=list)
    undoing: dict[str, Moment] = field(default_factory=dict)
    by_person: bool = False


def past_run(events: Iterable[Event]) -> PastRun:
    """Return what the events of one run say.

    Raises
    ------
    JournalError
        there are none, or one cannot have happened.
    """
    facts = _Facts()
    status = fold(_noted(events, facts))
    if status is None:
        raise JournalError("the journal holds no event")
    book, end = status.runbook, status.ended or status.last
    budget = book.budgets.write_stop
    parts, people = _parts(status, facts)
    return PastRun(
        run=status.run, runbook=book.id, runbook_kind=book.kind, sha=book.sha, text_sha=facts.text_sha,
        kind=status.kind, environment=book.environment, production=book.environment in book.production,
        instance=dict(book.instance), state=status.state, started=status.started.wall,
        ended=status.ended.wall if status.ended is not None else None,
        seconds=between(status.started, end).seconds, held=status.held_until(end).seconds,
        schema_fingerprint=facts.fingerprint, autopilot=facts.autopilot, head=status.head,
        steps={step.id: _step(status, step, facts) for step in book.steps},
        holds=tuple(_hold(one) for one in facts.holds), retries=status.retries,
        waivers={one.id: str(one.waiver.get("reason", "")) for one in status.steps.values() if one.waiver is not None},
        announced=len(status.deliveries), undelivered=_undelivered(status), silent=_silent(status, facts),
        guards=_guards(status, facts), write_stop=status.write_stop_time(end).seconds, write_stop_budget=budget,
        takeovers=status.takeovers, signed=status.signed, unsigned=status.unsigned,
        logins={login: tuple(sorted(some)) for login, some in sorted(status.logins.items())},
        jumps=len(status.jumps), parts=parts, people=people,
        undone=_undone(status, facts), rollback_by_person=facts.by_person, case=case_of(status, facts.marks),
        handoffs=tuple(_handoffs(status, facts.holds)), chained=facts.chained, signers=_signers(status),
    )  # fmt: skip


def _signers(status: RunStatus) -> tuple[str, ...]:
    """Return those who signed every approval that they gave; the signatures were checked when the events were read."""
    given = [one for step in status.steps.values() for one in step.approvals]
    unsigned = {one.person for one in given if not one.signed}
    return tuple(sorted({one.person for one in given} - unsigned))


def _noted(events: Iterable[Event], facts: _Facts) -> Iterator[Event]:
    for event in events:
        # Before the fold has judged it: when the fold refuses it, nothing of all this is used.
        handler = _NOTED.get(event.kind)
        if handler is not None:
            handler(facts, event)
        if event.role != "executor":
            before_start = event.kind is not _K.APPROVED or event.data.get("of") == "start"
            facts.acts.append((event.kind, event.step if before_start else "", event.actor))
        yield event


def _started(facts: _Facts, event: Event) -> None:
    # A line that says neither is of a writer that had no autopilot.
    facts.autopilot = event.data.get("autopilot", False) is not False
    facts.fingerprint = str(event.data.get("schema_fingerprint", ""))
    facts.text_sha = str(event.data.get("text_sha", ""))
    facts.chained = is_chained(event)


def _held(facts: _Facts, event: Event) -> None:
    if not facts.held:
        guard = str(event.data.get("guard", ""))
        facts.held = True
        facts.holds.append(_Hold(_at(event), event.actor, str(event.data.get("reason", "")), guard, planned=False))


def _ordered(facts: _Facts, event: Event) -> None:
    person = event.role != "executor"
    facts.by_person = person
    if not facts.held:
        facts.held = True
        facts.holds.append(_Hold(_at(event), event.actor, str(event.data.get("reason", "")), "", planned=person))


def _let_go(facts: _Facts, event: Event) -> None:
    if facts.held:
        facts.held = False
        facts.holds[-1].until = _at(event)


def _note(facts: _Facts, event: Event) -> None:
    alarm = event.data.get("alarm")
    if alarm and event.step:
        facts.alarms.setdefault(event.step, []).append(str(alarm))


def _guard(facts: _Facts, event: Event) -> None:
    counted = facts.answers.setdefault(str(event.data.get("guard", "")), {})
    state = str(event.data.get("state", ""))
    counted[state] = counted.get(state, 0) + 1


def _ended_badly(state: StepState) -> Callable[[_Facts, Event], None]:
    def note(facts: _Facts, event: Event) -> None:
        facts.bad.setdefault(event.step, []).append(state)

    return note


def _begun(facts: _Facts, event: Event) -> None:
    facts.marks.begun.setdefault(event.step, (event.seq, _at(event)))


def _acting(facts: _Facts, event: Event) -> None:
    facts.marks.acting.setdefault(event.step, (event.seq, _at(event)))


def _evidence(facts: _Facts, event: Event) -> None:
    if event.data.get("complete"):
        facts.marks.shown[event.step] = (event.seq, _at(event))


def _undo_begins(facts: _Facts, event: Event) -> None:
    facts.undoing[event.step] = _at(event)


def _undo_effect(facts: _Facts, event: Event) -> None:
    if event.data.get("ok") is False:
        _undo_over(facts, event, RollbackState.FAILED)


def _undo_verified(facts: _Facts, event: Event) -> None:
    lost = RollbackState.FAILED if event.data.get("lost") else RollbackState.UNDONE_UNVERIFIED
    _undo_over(facts, event, RollbackState.UNDONE_VERIFIED if event.data.get("ok") else lost)


def _undo_over(facts: _Facts, event: Event, state: RollbackState) -> None:
    now = _at(event)
    facts.undone.append((event.step, state, facts.undoing.pop(event.step, now), now))


_NOTED: dict[EventKind, Callable[[_Facts, Event], None]] = {
    _K.RUN_STARTED: _started, _K.HELD: _held, _K.ROLLBACK_ORDERED: _ordered, _K.RESUMED: _let_go,
    _K.RUN_ENDED: _let_go, _K.NOTE: _note, _K.GUARD: _guard, _K.STARTED: _begun, _K.INTENT: _acting,
    _K.EVIDENCE: _evidence,
    _K.ROLLBACK_INTENT: _undo_begins, _K.ROLLBACK_EFFECT: _undo_effect, _K.ROLLBACK_VERIFIED: _undo_verified,
    _K.FAILED: _ended_badly(StepState.FAILED), _K.REJECTED: _ended_badly(StepState.FAILED),
    _K.TIMED_OUT: _ended_badly(StepState.TIMED_OUT), _K.INCONCLUSIVE: _ended_badly(StepState.INCONCLUSIVE),
    _K.UNKNOWN: _ended_badly(StepState.UNKNOWN),
}  # fmt: skip


def _at(event: Event) -> Moment:
    return Moment(event.wall, event.mono, event.boot)


def _step(status: RunStatus, step: Step, facts: _Facts) -> PastStep:
    one = status.steps[step.id]
    bad = list(facts.bad.get(step.id, ()))
    if one.state in BAD and not bad:  # taken back before it was reviewed: no event of its own says so
        bad.append(one.state)
    span = one.active
    return PastStep(
        step.id, step.phase, step.kind, step.sha, step.times.plan, one.state, one.attempt,
        span.seconds if span is not None else None, span.exact if span is not None else True, tuple(bad),
        tuple(dict.fromkeys(facts.alarms.get(step.id, ()))), len(one.evidence), one.rollback, step.twin,
        step.only_runs == (RunKind.ROLLBACK,),
    )  # fmt: skip


def _handoffs(status: RunStatus, holds: Sequence[_Hold]) -> Iterator[float]:
    """Yield how long one person waited for the next: each wait that ``handoffs`` counts in a plan is one.

    From ready to called, to each approval and to started; from its end to each review. A wait during which the run was
    held is left out.
    """
    over: dict[str, Moment] = {}
    for one in status.steps.values():
        if one.state is StepState.DONE and one.ended is not None:
            over[one.id] = [one.ended, *_given(one, "done")][-1]
    for one in status.steps.values():
        if one.id not in over or one.attempt > 1 or one.called is None or one.started is None:
            continue
        ready = [over[id_] for id_ in status.graph.needs[one.id] if id_ in over]
        before = sorted((one.called, *_given(one, "start")), key=lambda at: at.wall)
        if ready:
            before.insert(0, max(ready, key=lambda at: at.wall))
        if one.dri != one.called_by or before[-1] != one.called:
            before.append(one.started)
        after = [one.ended, *_given(one, "done")] if one.ended is not None else []
        chains = [after] if one.id in status.graph.self_starting else [before, after]
        for pair in (pair for chain in chains for pair in pairwise(chain)):
            if not _held_between(holds, *pair):
                yield between(*pair).seconds


def _given(one: StepStatus, of: str) -> list[Moment]:
    return [given.at for given in sorted(one.approvals, key=lambda given: given.seq) if given.of == of]


def _held_between(holds: Sequence[_Hold], first: Moment, then: Moment) -> bool:
    return any(
        one.at.wall <= then.wall and (one.until is None or one.until.wall >= first.wall) for one in holds
    )  # fmt: skip


def _hold(one: _Hold) -> PastHold:
    seconds = between(one.at, one.until).seconds if one.until is not None else None
    return PastHold(one.at.wall, one.by, one.reason, one.guard, one.planned, seconds)


def _undelivered(status: RunStatus) -> tuple[Undelivered, ...]:
    return tuple(
        Undelivered(one.of, one.sink, one.what, one.state.value, one.reason)
        for one in status.deliveries.values()
        if one.state is not DeliveryState.SENT
    ) + tuple(Undelivered(-1, "", "", "failed", text) for text in status.outbox_problems)


def _silent(status: RunStatus, facts: _Facts) -> bool:
    """Tell whether a run that has sinks announced nothing although something was called."""
    called = any(kind is _K.CALLED for kind, _, _ in facts.acts)
    return bool(status.runbook.sinks) and called and not status.deliveries


def _guards(status: RunStatus, facts: _Facts) -> tuple[PastGuard, ...]:
    begun = {step.phase for step in status.runbook.steps if status.steps[step.id].state not in _IDLE}
    found = []
    for guard in status.runbook.guards:
        armed = bool(begun) if "*" in guard.armed_in else bool(begun.intersection(guard.armed_in))
        known, told = status.guards.get(guard.id), facts.answers.get(guard.id, {})
        if armed or known is not None:
            asked, due = (known.asked, known.due) if known is not None else (0, 0)
            found.append(PastGuard(guard.id, asked, due, told.get("fail", 0), told.get("inconclusive", 0)))
    return tuple(found)


def _undone(status: RunStatus, facts: _Facts) -> tuple[PastUndo, ...]:
    found = [
        PastUndo(id_, status.definition(id_).sha, state, between(begun, ended).seconds)
        for id_, state, begun, ended in facts.undone
    ]
    found += [PastUndo(id_, status.definition(id_).sha, RollbackState.RUNNING, None) for id_ in facts.undoing]
    return tuple(found)


def _parts(status: RunStatus, facts: _Facts) -> tuple[tuple[PastPart, ...], tuple[str, ...]]:
    named = {role.name: role.person for role in status.runbook.roles}
    parts: dict[PastPart, None] = {}
    people: dict[str, None] = {}
    for kind, id_, actor in facts.acts:
        person = status.cast.person(actor)
        if person is None or kind not in _ACTING:
            continue
        people[person] = None
        role = _role(status, kind, id_, person)
        if role:
            first = status.cast.person(named[role]) if role in named else person
            parts[PastPart(role, person, backup=person != first)] = None
    return tuple(parts), tuple(people)


def _role(status: RunStatus, kind: EventKind, id_: str, person: str) -> str:
    step = status.definition(id_) if id_ else None
    if kind is _K.CALLED:
        return COORDINATOR
    if kind in _LED:
        return next((role for role in (COORDINATOR, DECISION_OWNER) if _may_be(status, role, person)), "")
    if step is None:
        return ""
    if kind in (_K.STARTED, _K.EFFECT, _K.FAILED, _K.ROLLBACK_EFFECT):
        return step.dri
    if kind in (_K.ACCEPTED, _K.REJECTED, _K.APPROVED):
        if step.reviewer is not None and _may_be(status, step.reviewer, person):
            return step.reviewer
        return DECISION_OWNER if _may_be(status, DECISION_OWNER, person) else ""
    return ""


def _may_be(status: RunStatus, role: str, person: str) -> bool:
    """Tell whether a role could be a person's at some time of the run: who holds it at its end is not asked."""
    return person in status.cast.declared.get(role, status.cast.holders(role))
