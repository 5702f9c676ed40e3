"""Events -> where the run stands. A pure fold that knows every arrow of the state machine, and no other.

``fold(a + b) == fold(b, fold(a))``: nothing is remembered beside the status. An event that cannot have happened is a
JournalError which names its line. What an actor may not do is judged by the rules that refuse the command itself
(``people``), so a line that somebody added with an editor and chained anew is still found when it breaks a rule.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from pathlib import Path

from migverify.errors import JournalError
from migverify.runbook import people
from migverify.runbook.cast import make_cast
from migverify.runbook.clock import Moment
from migverify.runbook.conditions import taken_ids
from migverify.runbook.events import Event, EventKind, StepState
from migverify.runbook.fold.announce import ANNOUNCE_ARROWS
from migverify.runbook.fold.executor import EXECUTOR_ARROWS
from migverify.runbook.fold.people import PEOPLE_ARROWS
from migverify.runbook.fold.rollback import ROLLBACK_ARROWS
from migverify.runbook.fold.run import RUN_ARROWS
from migverify.runbook.fold.transitions import IllegalEvent, need
from migverify.runbook.graph import graph_of
from migverify.runbook.model import RunKind
from migverify.runbook.record import signatures
from migverify.runbook.record.frozen import runbook_from_json
from migverify.runbook.record.heads import Chain
from migverify.runbook.record.journal import Problem, read_events, verify_journal
from migverify.runbook.state import (
    EVENTS_OF_ANY_TIME,
    JUMP_SECONDS,
    SIGNED_BY_ALL,
    Jump,
    RunStatus,
    StepStatus,
)

__all__ = ["fold", "fold_journal", "verify_run"]

_S = StepState


def fold(events: Iterable[Event], start: RunStatus | None = None) -> RunStatus | None:
    """Return where the run stands after some events; None: there were none at all.

    Parameters
    ----------
    start
        Where it stood before the first of them; it is not changed.

    Raises
    ------
    JournalError
        an event cannot have happened there; the message names its line (``line N``, from 1).
    """
    status = start.copy() if start is not None else None
    collects = gc.isenabled()
    # The fold makes no cycles; to look for some among the steps of a long run would take as long as the fold itself.
    gc.disable()
    try:
        for event in events:
            status = _one(status, event)
    finally:
        if collects:
            gc.enable()
    return status


def _one(status: RunStatus | None, event: Event) -> RunStatus:
    try:
        return _apply(status, event)
    except (IllegalEvent, KeyError, TypeError, ValueError, AttributeError, JournalError) as error:
        words = error.message if isinstance(error, JournalError) else str(error)
        what = words if isinstance(error, IllegalEvent | JournalError) else f"its data cannot be read: {error!r}"
        where = f"line {event.seq + 1}: {event.kind.value}{f' of {event.step}' if event.step else ''}"
        raise JournalError(f"{where} by {event.actor or 'nobody'}: {what}") from None


def fold_journal(path: Path) -> RunStatus:
    """Return where the run of a journal file stands.

    Raises
    ------
    JournalError
        it is damaged or empty, or an event in it cannot have happened.
    """
    status = fold(read_events(path))
    if status is None:
        raise JournalError(f"{path} holds no event")
    return status


def verify_run(path: Path) -> list[Problem]:
    """Check a journal offline: chain, hashes, signatures, and that each event can have happened where it stands."""

    def judge(events: Iterator[Event]) -> None:
        status: RunStatus | None = None
        chain = Chain()
        for event in events:
            why = chain.take(event)
            if why:
                raise JournalError(f"line {event.seq + 1}: {event.kind.value} by {event.actor}: {why}")
            status = _one(status, event)

    return verify_journal(path, judge)


def _signature_problem(status: RunStatus, event: Event) -> str:
    name = people.cast_of(status).person(event.actor)
    person = next((one for one in status.runbook.people if one.name == name), None)
    if person is None:
        return f"{event.actor!r} is none of the runbook's people"
    of = _SIGNED_AS.get(event.kind) or str(event.data["of"])
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
        if status.over:
            need(event.kind in EVENTS_OF_ANY_TIME, "the run has ended")
        if event.data.get("signature"):
            # Whoever acts on an approval reads it here: what was not signed by that person's key never counts.
            why = _signature_problem(status, event)
            need(not why, why)
        handler = _ARROWS[event.kind]
        if event.kind in _OF_STEPS:
            need(event.step in status.steps, "there is no such step")
            one = status.steps[event.step]
            number = one.attempt + 1 if event.kind is EventKind.RETRIED else one.attempt
            need(event.attempt == number, f"attempt {event.attempt}, where {number} is")
        handler(status, event, at)
    status.last, status.seq, status.head = at, event.seq, event.sha
    return status


def _started(event: Event, at: Moment) -> RunStatus:
    runbook = runbook_from_json(event.data["runbook"])
    need(runbook.sha == event.runbook, "the runbook is not the one whose hash the line bears")
    problems = people.identity_problems(runbook.people)
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


_K = EventKind
_ARROWS = {**PEOPLE_ARROWS, **EXECUTOR_ARROWS, **RUN_ARROWS, **ROLLBACK_ARROWS, **ANNOUNCE_ARROWS}
_OF_STEPS = frozenset({
    _K.CALLED, _K.STARTED, _K.INTENT, _K.EFFECT, _K.EVIDENCE, _K.ACCEPTED, _K.REJECTED, _K.FAILED, _K.TIMED_OUT,
    _K.INCONCLUSIVE, _K.UNKNOWN, _K.RECONCILED, _K.RETRIED, _K.WAIVED, _K.WENT, _K.ROLLBACK_INTENT,
    _K.ROLLBACK_EFFECT, _K.ROLLBACK_VERIFIED,
})  # fmt: skip
_SIGNED_AS = {
    _K.WAIVED: "waive", _K.RECONCILED: "decide", _K.RESUMED: "resume", _K.ROLLBACK_ORDERED: "rollback",
    _K.ACCEPTED: "done", _K.PROMOTED: "promote",
}  # fmt: skip
"""What a signature on an event is of; an approval says so itself."""
