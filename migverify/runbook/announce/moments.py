"""What is announced, when, by whose voice and in which words. Pure: an event and where the run stood before and after.

A step has two voices at its start (the coordinator calls it, the DRI starts it) and two at its end (the DRI is done,
the reviewer accepts). What went wrong is always told; ``announce`` of a step silences only what went as planned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from migverify.runbook import people
from migverify.runbook.announce.words import LONGEST, clock_text, forecast_end, one_line, spell, way_back
from migverify.runbook.clock import Moment
from migverify.runbook.definition.forecast import NO_DRILLS, Drills
from migverify.runbook.events import Event, EventKind, RollbackState, RunState, StepState
from migverify.runbook.fold.announce import HEAD, OUTBOX_ALARM
from migverify.runbook.fold.arrow_rules import EXECUTOR
from migverify.runbook.model import Runbook, Step, StepKind
from migverify.runbook.record.heads import Head, head_text
from migverify.runbook.record.run_chain import previous_of
from migverify.runbook.state import PASSED, DeliveryState, RunStatus, StepStatus, between

__all__ = ["LONGEST", "Announcement", "announcements", "outbox_lines", "spell"]

_K, _S, _R = EventKind, StepState, RollbackState


@dataclass(frozen=True, slots=True)
class Announcement:
    """One thing to say.

    Parameters
    ----------
    of
        Number of the event that it tells about; with ``what`` it is told once.
    head
        With ``what`` ``head``: whose hash is told.
    """

    of: int
    what: str
    step: str
    text: str
    sinks: tuple[str, ...]
    head: Head | None = None


@dataclass(frozen=True, slots=True)
class _Moment:
    """An event with where the run stood before and after it."""

    before: RunStatus | None
    event: Event
    after: RunStatus
    drills: Drills

    @property
    def at(self) -> Moment:
        return Moment(self.event.wall, self.event.mono, self.event.boot)

    @property
    def step(self) -> Step:
        return self.after.definition(self.event.step)

    @property
    def one(self) -> StepStatus:
        return self.after.steps[self.event.step]


def announcements(
    before: RunStatus | None, event: Event, after: RunStatus, drills: Drills = NO_DRILLS
) -> tuple[Announcement, ...]:
    """Return what an event gives to say, in its order; nothing when the runbook has no sinks.

    Parameters
    ----------
    before
        Where the run stood before the event; None: it starts with it.
    drills
        What earlier drills say: which rehearsal this is, and what the forecast rests on.
    """
    if not after.runbook.sinks:
        return ()
    moment = _Moment(before, event, after, drills)
    tell = _TELLS.get(event.kind)
    told = list(tell(moment)) if tell is not None else []
    if event.step and before is not None and _phase_over(before, after, event.step):
        told.append(_head(moment, f"phase {moment.step.phase} is over"))
    if event.kind is _K.RUN_ENDED:
        told.append(_head(moment, f"the run is over: {after.state.value}"))
    return tuple(told)


# -- moments of a step ----------------------------------------------------------------------------------------------


def _called(m: _Moment) -> Iterator[Announcement]:
    if m.step.announce.start:
        waits = people.missing_approvals(m.after, m.step, "start", m.at)
        yield _of_step(m, "called", f"CALLED {_voice(m, m.one.called_by, people.COORDINATOR)}", waits)


def _started(m: _Moment) -> Iterator[Announcement]:
    said = m.step.kind is StepKind.ANNOUNCE
    if m.step.announce.start or said:
        more = m.step.instruction or m.step.title if said else ""
        yield _of_step(m, "started", f"STARTED {_voice(m, m.one.dri, people.DRI)}", more)


def _evidence(m: _Moment) -> Iterator[Announcement]:
    if not m.event.data.get("complete") or not m.step.announce.end:
        return
    waits = f"{_who(m, m.step.reviewer)} reviews it" if m.one.state is _S.AWAITING_REVIEW else "nobody reviews it"
    yield _of_step(m, "done", f"DONE by {_as(m.one.dri, people.DRI)}{_took(m)}", waits)


def _accepted(m: _Moment) -> Iterator[Announcement]:
    if m.step.announce.end:
        given = m.one.approvals[-1].person
        more = "" if m.one.state is _S.DONE else people.missing_approvals(m.after, m.step, "done", m.at)
        yield _of_step(m, "accepted", f"ACCEPTED by {_as(given, people.REVIEWER)}{_took(m)}", more)


def _bad(m: _Moment) -> Iterator[Announcement]:
    word = "REJECTED" if m.event.kind is _K.REJECTED else m.one.state.value.upper()
    what = "rejected" if m.event.kind is _K.REJECTED else m.one.state.value
    yield _of_step(m, what, f"{word}{_took(m)}: {m.one.reason or 'no reason was given'}", f"said by {_actor(m)}")


def _reconciled(m: _Moment) -> Iterator[Announcement]:
    happened = "happened" if m.event.data.get("happened") else "did not happen"
    by = "its probe" if m.event.data.get("how") == "probe" else " and ".join(_pair(m))
    yield _of_step(m, "decided", f"DECIDED by {by}: the effect {happened}", str(m.event.data.get("reason", "")))


def _retried(m: _Moment) -> Iterator[Announcement]:
    again = {"verifying": "its checks are asked again", "running": "by the executor"}.get(m.event.data["to"])
    where = again or f"called by {_as(_actor(m), people.COORDINATOR)}"
    yield _of_step(m, "retried", f"ATTEMPT {m.one.attempt}: {where}", str(m.event.data.get("reason", "")))


def _waived(m: _Moment) -> Iterator[Announcement]:
    yield _of_step(m, "waived", f"WAIVED by {' and '.join(_pair(m))}", str(m.event.data.get("reason", "")))


def _went(m: _Moment) -> Iterator[Announcement]:
    yield _of_step(m, "went to", f"FAILED, and leads to {m.event.data['to']}", str(m.event.data.get("reason", "")))


def _undo_begun(m: _Moment) -> Iterator[Announcement]:
    rollback = m.step.rollback
    if rollback is not None and rollback.effect is None:
        by = _as(m.one.dri or _who(m, m.step.dri), people.DRI)
        yield _of_step(m, "undo", f"UNDO BY HAND: {by} is waited for", rollback.instruction)
    else:
        yield _of_step(m, "undo", "ROLLBACK STARTED")


def _undone(m: _Moment) -> Iterator[Announcement]:
    if m.one.rollback in (_R.FAILED, _R.UNDONE_UNVERIFIED):
        why = m.one.rollback_reason or "no reason was given"
        yield _of_step(m, "undo failed", f"ROLLBACK {m.one.rollback.value.upper()}: {why}")
    elif m.one.rollback is _R.UNDONE_VERIFIED:
        yield _of_step(m, "undone", "UNDONE, VERIFIED")
        if m.before is not None and m.before.order is not None and m.after.order is None:
            yield _of_run(m, "rollback over", "ROLLBACK OVER: all that was ordered is undone; the run is held")


# -- moments of the run ---------------------------------------------------------------------------------------------


def _run_started(m: _Moment) -> Iterator[Announcement]:
    told = m.event.data
    pilot = ", autopilot: no drill of people" if told.get("autopilot") else ""
    # The hash of the first event covers the head of the run begun before it: whoever keeps this text can show later
    # that either of them was removed.
    earlier = previous_of(m.event)
    after = f"after {head_text(earlier)}" if earlier is not None else ""
    head = head_text(Head(m.after.run, m.event.seq, m.event.sha))
    yield _of_run(m, "run started", f"RUN STARTED by {_actor(m)}{pilot}", f"runbook {m.after.runbook.sha[:12]}", head,
                  after)  # fmt: skip


def _run_ended(m: _Moment) -> Iterator[Announcement]:
    lasted = between(m.after.started, m.at)
    held = f", held for {spell(m.after.held.seconds)}" if m.after.holds else ""
    why = str(m.event.data.get("reason", ""))
    text = f"RUN ENDED: {m.after.state.value.upper()} after {spell(lasted.seconds)}{held}"
    yield _of_run(m, "run ended", text, why, f"said by {_actor(m)}")


def _lease(m: _Moment) -> Iterator[Announcement]:
    told = m.event.data
    if told.get("reason"):
        by = " and ".join(_pair(m))
        text = f"TAKEOVER by {m.after.executor_by} ({by} agreed): {told['reason']}"
        yield _of_run(m, "takeover", text, str(told.get("gone", "")))


def _promoted(m: _Moment) -> Iterator[Announcement]:
    told = m.event.data
    text = f"{told['role'].upper()} IS {told['person']} FROM NOW ON, said by {' and '.join(_pair(m))}"
    yield _of_run(m, "promoted", text, str(told.get("reason", "")))


def _held(m: _Moment) -> Iterator[Announcement]:
    if m.before is not None and m.before.state is RunState.HELD and m.event.data["reason"] in m.before.hold_reasons:
        return
    leaders = _leaders(m.after)
    yield _of_run(m, "held", f"HELD by {_actor(m)}: {m.event.data['reason']}", f"{leaders} may resume it")


def _resumed(m: _Moment) -> Iterator[Announcement]:
    despite = f" despite {', '.join(sorted(m.after.despite))}" if m.after.despite else ""
    paused = m.after.held.seconds - (m.before.held.seconds if m.before is not None else 0.0)
    yield _of_run(m, "resumed", f"RESUMED by {_actor(m)}{despite} after {spell(paused)}")


def _guard(m: _Moment) -> Iterator[Announcement]:
    id_ = str(m.event.data["guard"])
    old = m.before.guards.get(id_) if m.before is not None else None
    now = m.after.guards[id_]
    was = old.state if old is not None else "pass"
    if now.state == was:
        return
    words = {"pass": "PASSES AGAIN", "fail": "FAILS"}.get(now.state, "TELLS NOTHING")
    yield _of_run(m, f"guard {now.state}", f"GUARD {id_} {words}: {now.text}")


def _rollback_ordered(m: _Moment) -> Iterator[Announcement]:
    steps, plans = [str(one) for one in m.event.data["steps"]], list[float | None]()
    for id_ in steps:
        rollback = m.after.definition(id_).rollback
        plans.append(rollback.plan if rollback is not None else None)
    planned = spell(sum(one or 0.0 for one in plans))
    takes = f"planned {planned}" if None not in plans else f"at least {planned}: not every rollback has a plan"
    order = " then ".join(steps) or "nothing stands that could be undone"
    reason = m.event.data["reason"]
    yield _of_run(m, "rollback ordered", f"ROLLBACK ORDERED by {_actor(m)}: {reason}", f"{order} ({takes})")


def _note(m: _Moment) -> Iterator[Announcement]:
    alarm, text = str(m.event.data.get("alarm") or ""), str(m.event.data.get("text", ""))
    if not alarm or alarm == OUTBOX_ALARM:
        return
    words = _ALARMS.get(alarm, alarm.upper())
    if not m.event.step:
        yield _of_run(m, alarm, f"{words}: {text}")
    elif alarm != "late" or m.step.announce.late:
        yield _of_step(m, alarm, f"{words}: {text}{_so_far(m) if alarm == 'late' else ''}")


_ALARMS = {"late": "LATE", "short": "SUSPICIOUSLY SHORT", "waiting": "NOBODY ANSWERS"}

_Tell = Callable[[_Moment], Iterator[Announcement]]
_TELLS: dict[EventKind, _Tell] = {
    _K.RUN_STARTED: _run_started, _K.RUN_ENDED: _run_ended, _K.LEASE: _lease, _K.CALLED: _called,
    _K.STARTED: _started, _K.EVIDENCE: _evidence, _K.ACCEPTED: _accepted, _K.REJECTED: _bad, _K.FAILED: _bad,
    _K.TIMED_OUT: _bad, _K.INCONCLUSIVE: _bad, _K.UNKNOWN: _bad, _K.RECONCILED: _reconciled, _K.RETRIED: _retried,
    _K.WAIVED: _waived, _K.HELD: _held, _K.RESUMED: _resumed, _K.GUARD: _guard, _K.PROMOTED: _promoted, _K.WENT: _went,
    _K.ROLLBACK_ORDERED: _rollback_ordered, _K.ROLLBACK_INTENT: _undo_begun, _K.ROLLBACK_EFFECT: _undone,
    _K.ROLLBACK_VERIFIED: _undone, _K.NOTE: _note,
}  # fmt: skip


def _phase_over(before: RunStatus, after: RunStatus, step: str) -> bool:
    old, new = before.steps[step].state, after.steps[step].state
    if old in PASSED or new not in PASSED:
        return False
    phase = after.definition(step).phase
    some = (after.steps[one.id].state for one in after.runbook.steps if one.phase == phase)
    return all(state in PASSED or state is _S.NOT_APPLICABLE for state in some)


def _head(m: _Moment, why: str) -> Announcement:
    head = Head(m.after.run, m.event.seq, m.event.sha)
    text = one_line(_kind(m), why, f"journal at event {head.seq}: {head_text(head)}")
    return Announcement(m.event.seq, HEAD, "", text, _all_sinks(m.after.runbook), head)


# -- words ----------------------------------------------------------------------------------------------------------


def _of_step(m: _Moment, what: str, *words: str) -> Announcement:
    step, one = m.step, m.one
    dri = one.dri or _who(m, step.dri)
    reviewer = f"reviewer {_who(m, step.reviewer)}" if step.reviewer is not None else "no reviewer"
    plan = f"plan {spell(step.times.plan)}" if step.times.plan is not None else "no plan"
    title = f" ({step.title})" if step.title not in ("", step.id) else ""
    sinks, unknown = _sinks_of(m.after.runbook, step)
    lost = f"sinks that are not there: {', '.join(unknown)}" if unknown else ""
    text = one_line(
        _kind(m), f"{step.id}{title}", *words, f"DRI {dri}, {reviewer}", plan, forecast_end(m.after, m.at, m.drills),
        way_back(m.after), lost, _run(m),
    )  # fmt: skip
    return Announcement(m.event.seq, what, step.id, text, sinks)


def _of_run(m: _Moment, what: str, *words: str) -> Announcement:
    text = one_line(
        _kind(m), m.after.runbook.title, *words, forecast_end(m.after, m.at, m.drills), way_back(m.after), _run(m)
    )
    return Announcement(m.event.seq, what, "", text, _all_sinks(m.after.runbook))


def _kind(m: _Moment) -> str:
    kind = m.after.kind.value.upper()
    return f"{kind} {m.drills.number}" if m.drills.number else kind


def _run(m: _Moment) -> str:
    return f"run {m.after.run}, {m.after.runbook.environment}, {clock_text(m.at.wall)}"


def _actor(m: _Moment) -> str:
    if m.event.role == "executor":
        return "the executor"
    return m.after.cast.person(m.event.actor) or m.event.actor


def _as(person: str, part: str) -> str:
    return f"{person} ({part if part != people.DRI else 'DRI'})" if person else f"nobody ({part})"


def _voice(m: _Moment, person: str, part: str) -> str:
    if m.event.role == EXECUTOR:
        return f"by itself, as writes are stopped, for {_as(person, part)}"
    return f"by {_as(person, part)}"


def _who(m: _Moment, part: str | None) -> str:
    holders = m.after.cast.holders(part) if part is not None else ()
    return holders[0] if holders else f"nobody ({part} is not cast)"


def _pair(m: _Moment) -> tuple[str, ...]:
    return tuple(str(one) for one in m.event.data.get("by", ())) or (_actor(m),)


def _leaders(status: RunStatus) -> str:
    cast = status.cast
    return " or ".join(dict.fromkeys((*cast.holders(people.COORDINATOR), *cast.holders(people.DECISION_OWNER))))


def _took(m: _Moment) -> str:
    span = m.after.active_time(m.event.step, m.at)
    if span is None:
        return ""
    about = "" if span.exact else " (by wall clocks)"
    return f" after {spell(span.seconds)}{about}"


def _so_far(m: _Moment) -> str:
    span = m.after.active_time(m.event.step, m.at)
    return f"; it runs for {spell(span.seconds)} now" if span is not None else ""


def _all_sinks(runbook: Runbook) -> tuple[str, ...]:
    return tuple(sink.name for sink in runbook.sinks)


def _sinks_of(runbook: Runbook, step: Step) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the sinks of a step, and what it names that is none; all when none of them is there."""
    known = _all_sinks(runbook)
    wanted = tuple(dict.fromkeys(step.announce.to))
    return tuple(one for one in wanted if one in known) or known, tuple(one for one in wanted if one not in known)


def outbox_lines(status: RunStatus) -> list[str]:
    """Return for each sink, in the runbook's order, what became of its announcements; problems of the outbox last.

    A line that has something red in it begins with ``!``: given up, failed at the last try, or queued with nobody who
    would send it.
    """
    counts: dict[str, dict[DeliveryState, int]] = {sink: dict.fromkeys(DeliveryState, 0)
                                                   for sink in _all_sinks(status.runbook)}  # fmt: skip
    reasons: dict[str, str] = {}
    for one in status.deliveries.values():
        counts[one.sink][one.state] += 1
        if one.reason:
            reasons[one.sink] = one.reason
    lines = []
    for sink, some in counts.items():
        told = ", ".join(f"{count} {state.value}" for state, count in some.items() if count) or "nothing to send"
        left = some[DeliveryState.QUEUED] > 0 and (status.over or not status.executor)
        red = some[DeliveryState.GIVEN_UP] or some[DeliveryState.FAILED] or left
        why = f" (last: {reasons[sink]})" if sink in reasons else ""
        lines.append(f"{'! ' if red else ''}{sink}: {told}{why}")
    return lines + [f"! {problem}" for problem in status.outbox_problems]
