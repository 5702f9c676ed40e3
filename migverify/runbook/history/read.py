"""Events of one run -> ``PastRun``: one pass, in which the fold judges every line and more is noted beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from migverify.errors import JournalError
from migverify.runbook.clock import Moment
from migverify.runbook.events import Event, EventKind, RollbackState, RunState, StepState
from migverify.runbook.fold.table import fold
from migverify.runbook.history.past import (
    BAD,
    PastCase,
    PastGuard,
    PastHold,
    PastPart,
    PastRun,
    PastStep,
    PastUndo,
    Undelivered,
)
from migverify.runbook.kinds import RunbookKind, RunKind
from migverify.runbook.model import CASE_PARTS, Step
from migverify.runbook.people import COORDINATOR, DECISION_OWNER
from migverify.runbook.record.heads import is_chained
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


_Mark = dict[str, tuple[int, Moment]]
_PROOF = ("steady", "inject", "hit", "remove", "gone")
"""Without these nothing was tried: steady before, fault, proof that it hit, removal, proof that it is gone."""
_RESULT = ("steady_again", "data")


@dataclass(slots=True)
class StepMoments:
    """Numbers and moments of events: a step's first start and first intent, and its last complete evidence."""

    begun: _Mark = field(default_factory=dict)
    acting: _Mark = field(default_factory=dict)
    shown: _Mark = field(default_factory=dict)


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
    alarms: dict[str, list[str]] = field(default_factory=dict)
    bad: dict[str, list[StepState]] = field(default_factory=dict)
    answers: dict[str, Counter[str]] = field(default_factory=dict)
    marks: StepMoments = field(default_factory=StepMoments)
    undone: list[tuple[str, RollbackState, Moment, Moment]] = field(default_factory=list)
    undoing: dict[str, Moment] = field(default_factory=dict)
    by_person: bool = False


def past_run(events: Iterable[Event]) -> PastRun:
    """Return what the events of one run say.

    Raises JournalError: there are none, or one cannot have happened.
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
        chained=facts.chained, signers=_signers(status),
    )  # fmt: skip


def _signers(status: RunStatus) -> tuple[str, ...]:
    """Return those who signed every approval that they gave; the signatures were checked when the events were read."""
    given = [one for step in status.steps.values() for one in step.approvals]
    unsigned = {one.person for one in given if not one.signed}
    return tuple(sorted({one.person for one in given} - unsigned))


def _noted(events: Iterable[Event], facts: _Facts) -> Iterator[Event]:
    for event in events:
        # Before the fold has judged it: when the fold refuses it, nothing of all this is used.
        _note(facts, event)
        if event.role != "executor":
            before_start = event.kind is not _K.APPROVED or event.data.get("of") == "start"
            facts.acts.append((event.kind, event.step if before_start else "", event.actor))
        yield event


_BAD_ENDS = {
    _K.FAILED: StepState.FAILED, _K.REJECTED: StepState.FAILED, _K.TIMED_OUT: StepState.TIMED_OUT,
    _K.INCONCLUSIVE: StepState.INCONCLUSIVE, _K.UNKNOWN: StepState.UNKNOWN,
}  # fmt: skip


def _note(facts: _Facts, event: Event) -> None:
    step, data, mark = event.step, event.data, (event.seq, _at(event))
    match event.kind:
        case _K.RUN_STARTED:
            # A line that says neither is of a writer that had no autopilot.
            facts.autopilot = data.get("autopilot", False) is not False
            facts.fingerprint, facts.text_sha = str(data.get("schema_fingerprint", "")), str(data.get("text_sha", ""))
            facts.chained = is_chained(event)
        case _K.HELD:
            _hold_begins(facts, event, str(data.get("guard", "")), planned=False)
        case _K.ROLLBACK_ORDERED:
            facts.by_person = event.role != "executor"
            _hold_begins(facts, event, "", planned=facts.by_person)
        case _K.RESUMED | _K.RUN_ENDED:
            if facts.holds and facts.holds[-1].until is None:
                facts.holds[-1].until = _at(event)
        case _K.NOTE:
            if data.get("alarm") and step:
                facts.alarms.setdefault(step, []).append(str(data["alarm"]))
        case _K.GUARD:
            facts.answers.setdefault(str(data.get("guard", "")), Counter())[str(data.get("state", ""))] += 1
        case _K.STARTED:
            facts.marks.begun.setdefault(step, mark)
        case _K.INTENT:
            facts.marks.acting.setdefault(step, mark)
        case _K.EVIDENCE:
            if data.get("complete"):
                facts.marks.shown[step] = mark
        case _K.ROLLBACK_INTENT:
            facts.undoing[step] = _at(event)
        case _K.ROLLBACK_EFFECT:
            if data.get("ok") is False:
                _undo_over(facts, event, RollbackState.FAILED)
        case _K.ROLLBACK_VERIFIED:
            lost = RollbackState.FAILED if data.get("lost") else RollbackState.UNDONE_UNVERIFIED
            _undo_over(facts, event, RollbackState.UNDONE_VERIFIED if data.get("ok") else lost)
        case kind if kind in _BAD_ENDS:
            facts.bad.setdefault(step, []).append(_BAD_ENDS[kind])


def _hold_begins(facts: _Facts, event: Event, guard: str, *, planned: bool) -> None:
    if not facts.holds or facts.holds[-1].until is not None:
        facts.holds.append(_Hold(_at(event), event.actor, str(event.data.get("reason", "")), guard, planned))


def _undo_over(facts: _Facts, event: Event, state: RollbackState) -> None:
    now = _at(event)
    facts.undone.append((event.step, state, facts.undoing.pop(event.step, now), now))


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
        step.only.runs == (RunKind.ROLLBACK,),
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
        known, answers = status.guards.get(guard.id), facts.answers.get(guard.id, Counter())
        if armed or known is not None:
            asked, due = (known.asked, known.due) if known is not None else (0, 0)
            found.append(PastGuard(guard.id, asked, due, answers["fail"], answers["inconclusive"]))
    return tuple(found)


def _undone(status: RunStatus, facts: _Facts) -> tuple[PastUndo, ...]:
    found = [
        PastUndo(id_, status.definition(id_).sha, state, between(begun, ended).seconds)
        for id_, state, begun, ended in facts.undone
    ]
    found += [PastUndo(id_, status.definition(id_).sha, RollbackState.RUNNING, None) for id_ in facts.undoing]
    return tuple(found)


def _parts(status: RunStatus, facts: _Facts) -> tuple[tuple[PastPart, ...], tuple[str, ...]]:
    named = {name: role.person for name, role in status.runbook.roles.items()}
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


# -- the grade of a disaster recovery case ---------------------------------------------------------------------------


def case_of(status: RunStatus, marks: StepMoments) -> PastCase | None:
    """Return the grade of a run; None: it is not of a case, not over, or a dry run.

    ``invalid`` when a part that proves the fault is not done, or came in another order; ``fail`` when steady state or
    data were not shown afterwards, or the run did not complete; ``pass-with-late-recovery`` when that took a second
    attempt, or longer than planned.
    """
    book = status.runbook
    case = book.case
    if case is None or book.kind is not RunbookKind.DR_CASE or status.kind is RunKind.DRY or not status.over:
        return None
    reasons = [_undone_part(status, part) for part in _PROOF]
    reasons = [why for why in [*reasons, _out_of_order(case.steps, marks)] if why]
    if reasons:
        return PastCase(case.priority, case.tier, "invalid", tuple(reasons), None)
    recovery = _recovery(case.steps, marks)
    reasons = [why for why in (_undone_part(status, part) for part in _RESULT) if why]
    if status.state is not RunState.COMPLETED:
        reasons.append(f"the run ended {status.state.value}")
    if reasons:
        return PastCase(case.priority, case.tier, "fail", tuple(reasons), recovery)
    late = [why for why in (_late(status, case.steps[part], part) for part in ("remove", "gone", *_RESULT)) if why]
    grade = "pass-with-late-recovery" if late else "pass"
    return PastCase(case.priority, case.tier, grade, tuple(dict.fromkeys(late)), recovery)


_MEANS = {
    "steady": "the steady state before", "inject": "the fault", "hit": "that the fault hit",
    "remove": "the removal of the fault", "gone": "that the fault is gone",
    "steady_again": "the steady state afterwards", "data": "the data",
}  # fmt: skip


def _undone_part(status: RunStatus, part: str) -> str:
    case = status.runbook.case
    id_ = case.steps.get(part) if case is not None else None
    one: StepStatus | None = status.steps.get(id_) if id_ is not None else None
    if one is None:
        return f"{_MEANS[part]}: no step is named for it"
    if one.state is StepState.DONE:
        return ""
    return f"{_MEANS[part]}: step {one.id} is {one.state.value}{f' ({one.reason})' if one.reason else ''}"


def _out_of_order(steps: dict[str, str], marks: StepMoments) -> str:
    """Return which proof was given too late, as far as the parts are steps of their own."""
    for first, then in pairwise(CASE_PARTS):
        one, other = steps.get(first, ""), steps.get(then, "")
        if one == other or one not in marks.shown or other not in marks.begun:
            continue
        if marks.shown[one][0] > marks.begun[other][0]:
            return f"{_MEANS[then]}: step {other} began before step {one} was shown"
    return ""


def _recovery(steps: dict[str, str], marks: StepMoments) -> float | None:
    inject, again = steps["inject"], steps.get("steady_again", "")
    hurt = marks.acting.get(inject) or marks.begun.get(inject)
    well = marks.shown.get(again)
    return between(hurt[1], well[1]).seconds if hurt is not None and well is not None else None


def _late(status: RunStatus, id_: str, part: str) -> str:
    one, plan = status.steps[id_], status.definition(id_).times.plan
    if one.attempts:
        return f"{_MEANS[part]}: step {id_} needed {one.attempt} attempts"
    if plan is not None and one.active is not None and one.active.seconds > plan:
        return f"{_MEANS[part]}: step {id_} took {one.active.seconds:.0f} s of {plan:g} s"
    return ""
