"""What is announced, when and in which words. Pure: an event and the state of the run before and after it.

A step is announced twice at its start (the coordinator calls it, the DRI starts it) and twice at its end (the DRI is
done, the reviewer accepts). What went wrong is always announced; ``announce`` of a step silences only what went as
planned. A text has at most ``LONGEST`` characters and begins with what happened; the rest is in ``fields_of``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from migverify.runbook import people
from migverify.runbook.announce.words import forecast_end, one_line, rollback_text, spell
from migverify.runbook.clock import Moment
from migverify.runbook.definition.forecast import NO_DRILLS, Drills
from migverify.runbook.events import Event, EventKind, RollbackState, RunState, StepState
from migverify.runbook.fold.moves import EXECUTOR
from migverify.runbook.fold.run import HEAD, OUTBOX_ALARM
from migverify.runbook.kinds import StepKind
from migverify.runbook.model import Runbook, Sink, Step
from migverify.runbook.record.heads import Head, head_text, previous_of
from migverify.runbook.state import PASSED, Delivery, RunStatus, StepStatus, between

__all__ = ["GROUPS", "READINESS", "RESOLVING", "Announcement", "announcements", "fields_of", "group_of", "takes"]

_K, _S, _R = EventKind, StepState, RollbackState
READINESS = {"missing": "readiness missing", "unknown": "readiness unknown", "ok": "readiness ok"}
"""Kinds of announcements of a readiness watch, by the state of a condition."""
GROUPS = {
    "urgent": (
        "failed", "timed out", "inconclusive", "unknown", "rejected", "undo failed", "held", "guard fail",
        "guard inconclusive", "rollback ordered", READINESS["missing"], READINESS["unknown"],
    ),
    "reminder": ("waiting", "late", "short"),
    "step": (
        "called", "started", "done", "accepted", "decided", "retried", "waived", "went to", "undo", "undone",
    ),
    "run": (
        "run started", "run ended", "takeover", "resumed", "promoted", "guard pass", "rollback over", READINESS["ok"],
    ),
    "head": (HEAD,),
}  # fmt: skip
"""Kinds of announcements by the word that ``only`` of a sink names; urgent ones are sent before all others."""
RESOLVING = frozenset({
    "called", "started", "done", "accepted", "decided", "waived", "went to", "undone", "rollback over", "resumed",
    "run ended", "guard pass", "readiness ok",
})  # fmt: skip
"""What ends the trouble that was announced of its topic."""
_GROUP_OF = {what: group for group, kinds in GROUPS.items() for what in kinds}
_ALARMS = {"late": "LATE", "short": "SUSPICIOUSLY SHORT", "waiting": "WAITING FOR"}


@dataclass(frozen=True, slots=True)
class Announcement:
    """One announcement.

    Parameters
    ----------
    of
        Number of the event that it is about; with ``what`` it is announced once.
    head
        With ``what`` ``head``: the hash that is published.
    topic
        What it is about where that is neither its step nor the run: a guard.
    """

    of: int
    what: str
    step: str
    text: str
    sinks: tuple[str, ...]
    head: Head | None = None
    topic: str = ""


@dataclass(frozen=True, slots=True)
class _Moment:
    """An event with the state of the run before and after it."""

    before: RunStatus | None
    event: Event
    after: RunStatus
    drill: str

    @property
    def at(self) -> Moment:
        return Moment(self.event.wall, self.event.mono, self.event.boot)

    @property
    def step(self) -> Step:
        return self.after.definition(self.event.step)

    @property
    def one(self) -> StepStatus:
        return self.after.steps[self.event.step]

    @property
    def reason(self) -> str:
        return str(self.event.data.get("reason", ""))

    @property
    def actor(self) -> str:
        if self.event.role == "executor":
            return "the executor"
        return self.after.cast.person(self.event.actor) or self.event.actor

    @property
    def both(self) -> str:
        return " and ".join(str(person) for person in self.event.data.get("by", ())) or self.actor

    @property
    def took(self) -> str:
        span = self.after.active_time(self.event.step, self.at)
        if span is None:
            return ""
        return f" after {spell(span.seconds)}{'' if span.exact else ' (by wall clocks)'}"

    def starter(self, person: str) -> str:
        """Return who called or started a step; by itself, while writes are stopped."""
        return f"the executor for {person or 'nobody'}" if self.event.role == EXECUTOR else person or "nobody"


def group_of(what: str) -> str:
    """Return the group of a kind of announcement, as ``only`` of a sink names it."""
    return _GROUP_OF.get(what, "urgent")


def announcements(
    before: RunStatus | None, event: Event, after: RunStatus, drills: Drills = NO_DRILLS
) -> tuple[Announcement, ...]:
    """Return what is announced of an event, in its order; nothing when the runbook has no sinks.

    Parameters
    ----------
    before
        The state of the run before the event; None: it starts with it.
    drills
        Earlier drills: which rehearsal this is.
    """
    if not after.runbook.sinks:
        return ()
    m = _Moment(before, event, after, drills.number)
    found = [*(_of_step(m) if event.step else ()), *_of_run(m)]
    if event.step and before is not None and _is_phase_over(before, after, event.step):
        found.append(_head(m, f"phase {m.step.phase} is over"))
    if event.kind is _K.RUN_ENDED:
        found.append(_head(m, f"the run is over: {after.state.value}"))
    return tuple(one for one in found if one.sinks)


def _of_step(m: _Moment) -> Iterator[Announcement]:
    id_, data, wanted = m.event.step, m.event.data, m.step.announce
    match m.event.kind:
        case _K.CALLED if wanted.start:
            missing = people.missing_approvals(m.after, m.step, "start", m.at)
            yield _made(m, "called", f"CALLED {id_} by {m.starter(m.one.called_by)}", missing)
        case _K.STARTED if m.step.kind is StepKind.ANNOUNCE:
            yield _made(m, "started", f"{id_}: {m.step.instruction or m.step.title}", f"started by {m.one.dri}")
        case _K.STARTED if wanted.start:
            yield _made(m, "started", f"STARTED {id_} by {m.starter(m.one.dri)}")
        case _K.EVIDENCE if data.get("complete") and wanted.end:
            reviewer = _holder(m, m.step.reviewer) if m.one.state is _S.AWAITING_REVIEW else "nobody"
            yield _made(m, "done", f"DONE {id_} by {m.one.dri or 'nobody'}{m.took}", f"{reviewer} reviews it")
        case _K.ACCEPTED if wanted.end:
            missing = "" if m.one.state is _S.DONE else people.missing_approvals(m.after, m.step, "done", m.at)
            yield _made(m, "accepted", f"ACCEPTED {id_} by {m.one.approvals[-1].person}{m.took}", missing)
        case _K.REJECTED | _K.FAILED | _K.TIMED_OUT | _K.INCONCLUSIVE | _K.UNKNOWN:
            what = "rejected" if m.event.kind is _K.REJECTED else m.one.state.value
            by = f" by {m.actor}" if m.event.role != EXECUTOR else ""
            yield _made(m, what, f"{what.upper()} {id_}{by}{m.took}: {m.one.reason or 'no reason was given'}")
        case _K.RECONCILED:
            by = "its probe" if data.get("how") == "probe" else m.both
            happened = "happened" if data.get("happened") else "did not happen"
            yield _made(m, "decided", f"DECIDED {id_} by {by}: the effect {happened}", m.reason)
        case _K.RETRIED:
            again = {"verifying": "its checks are asked again", "running": "by the executor"}.get(data["to"])
            yield _made(m, "retried", f"ATTEMPT {m.one.attempt} of {id_}: {again or f'called by {m.actor}'}", m.reason)
        case _K.WAIVED:
            yield _made(m, "waived", f"WAIVED {id_} by {m.both}: {m.reason}")
        case _K.WENT:
            yield _made(m, "went to", f"FAILED {id_}: the run goes on with {data['to']}", m.reason)
        case _K.ROLLBACK_INTENT if m.step.rollback is not None and m.step.rollback.effect is None:
            by = m.one.dri or _holder(m, m.step.dri)
            yield _made(m, "undo", f"ROLLBACK BY HAND {id_}: waiting for {by}", m.step.rollback.instruction)
        case _K.ROLLBACK_INTENT:
            yield _made(m, "undo", f"ROLLBACK STARTED {id_}")
        case _K.ROLLBACK_EFFECT | _K.ROLLBACK_VERIFIED:
            yield from _rolled_back(m)
        case _K.NOTE:
            yield from _note(m)
        case _:
            return


def _rolled_back(m: _Moment) -> Iterator[Announcement]:
    id_, state = m.event.step, m.one.rollback
    if state in (_R.FAILED, _R.UNDONE_UNVERIFIED):
        why = m.one.rollback_reason or "no reason was given"
        word = "ROLLBACK FAILED" if state is _R.FAILED else "ROLLED BACK, NOT VERIFIED:"
        yield _made(m, "undo failed", f"{word} {id_}: {why}")
    elif state is _R.UNDONE_VERIFIED:
        yield _made(m, "undone", f"ROLLED BACK {id_}, verified")
        if m.before is not None and m.before.order is not None and m.after.order is None:
            yield _made(m, "rollback over", "ROLLBACK OVER: all that was ordered is rolled back; the run is held")


def _note(m: _Moment) -> Iterator[Announcement]:
    alarm, text = str(m.event.data.get("alarm") or ""), str(m.event.data.get("text", ""))
    if not alarm or alarm == OUTBOX_ALARM:
        return
    if alarm == "late" and m.event.step:
        if not m.step.announce.late:
            return
        span = m.after.active_time(m.event.step, m.at)
        text += f"; it has run for {spell(span.seconds)}" if span is not None else ""
    colon = "" if alarm == "waiting" else ":"
    yield _made(m, alarm, f"{_ALARMS.get(alarm, alarm.upper())}{colon} {text}")


def _of_run(m: _Moment) -> Iterator[Announcement]:
    data = m.event.data
    match m.event.kind:
        case _K.RUN_STARTED:
            pilot = "autopilot: no drill of people" if data.get("autopilot") else ""
            # The hash of the first event covers the head of the run begun before it: whoever keeps this text can show
            # later that either of them was removed.
            earlier = previous_of(m.event)
            after = f" after {head_text(earlier)}" if earlier is not None else ""
            head = head_text(Head(m.after.run, m.event.seq, m.event.sha))
            short = _made(m, "run started", f"RUN STARTED by {m.actor}", pilot)
            yield replace(short, text=f"{short.text} | {head}{after}")
        case _K.RUN_ENDED:
            held = f", held for {spell(m.after.held.seconds)}" if m.after.holds else ""
            lasted = spell(between(m.after.started, m.at).seconds)
            yield _made(m, "run ended", f"RUN ENDED: {m.after.state.value.upper()} after {lasted}{held}", m.reason)
        case _K.LEASE if data.get("reason"):
            yield _made(m, "takeover", f"TAKEOVER by {m.after.executor_by}: {m.reason}", f"agreed by {m.both}")
        case _K.PROMOTED:
            text = f"{str(data['role']).upper()} is now {data['person']}, by {m.both}"
            yield _made(m, "promoted", text, m.reason)
        case _K.HELD:
            before = m.before
            if before is None or before.state is not RunState.HELD or m.reason not in before.hold_reasons:
                yield _made(m, "held", f"HELD by {m.actor}: {m.reason}", f"{_leaders(m.after)} may resume it")
        case _K.RESUMED:
            despite = f" despite {', '.join(sorted(m.after.despite))}" if m.after.despite else ""
            paused = m.after.held.seconds - (m.before.held.seconds if m.before is not None else 0.0)
            yield _made(m, "resumed", f"RESUMED by {m.actor}{despite} after {spell(paused)}")
        case _K.GUARD:
            id_, old = str(data["guard"]), m.before.guards.get(str(data["guard"])) if m.before is not None else None
            now = m.after.guards[id_]
            if now.state != (old.state if old is not None else "pass"):
                words = {"pass": "PASSES AGAIN", "fail": "FAILS"}.get(now.state, "HAS NO DATA")
                yield replace(_made(m, f"guard {now.state}", f"GUARD {id_} {words}: {now.text}"), topic=f"guard/{id_}")
        case _K.ROLLBACK_ORDERED:
            yield _rollback_ordered(m)
        case _K.NOTE if not m.event.step:
            yield from _note(m)
        case _:
            return


def _rollback_ordered(m: _Moment) -> Announcement:
    steps = [str(id_) for id_ in m.event.data["steps"]]
    rollbacks = [m.after.definition(id_).rollback for id_ in steps]
    plans = [rollback.plan if rollback is not None else None for rollback in rollbacks]
    takes = f"{'' if None not in plans else 'at least '}{spell(sum(plan or 0.0 for plan in plans))}"
    order = " then ".join(steps) or "nothing can be rolled back"
    return _made(m, "rollback ordered", f"ROLLBACK ORDERED by {m.actor}: {m.reason}", f"{order} ({takes})")


def _is_phase_over(before: RunStatus, after: RunStatus, step: str) -> bool:
    old, new = before.steps[step].state, after.steps[step].state
    if old in PASSED or new not in PASSED:
        return False
    phase = after.definition(step).phase
    states = (after.steps[each.id].state for each in after.runbook.steps if each.phase == phase)
    return all(state in PASSED or state is _S.NOT_APPLICABLE for state in states)


def _head(m: _Moment, why: str) -> Announcement:
    # A hash cannot be cut: texts that publish one are longer than others.
    head = Head(m.after.run, m.event.seq, m.event.sha)
    text = f"{why}: {head_text(head)} | {_tag(m)}"
    return Announcement(m.event.seq, HEAD, "", text, _sinks(m.after.runbook, HEAD), head)


def _made(m: _Moment, what: str, *words: str) -> Announcement:
    step = m.event.step if group_of(what) != "run" else ""
    to = m.step.announce.to if step else ()
    return Announcement(m.event.seq, what, step, one_line(_tag(m), *words), _sinks(m.after.runbook, what, to))


def _tag(m: _Moment) -> str:
    """Say of which run a text is: a rehearsal must not be confused with the live run."""
    book, kind = m.after.runbook, m.after.kind.value.upper()
    return f"{kind}{f' {m.drill}' if m.drill else ''} {book.service} {book.environment}".rstrip()


def _sinks(runbook: Runbook, what: str, to: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the sinks that take a kind of announcement; all of these when none that a step names is there."""
    taking = [sink.name for sink in runbook.sinks.values() if takes(sink, what)]
    named = [name for name in dict.fromkeys(to) if name in runbook.sinks]
    return tuple(name for name in taking if name in named) if named else tuple(taking)


def takes(sink: Sink, what: str) -> bool:
    """Tell whether a sink takes a kind of announcement."""
    only = sink.arguments.get("only")
    if not isinstance(only, list | tuple):
        return True
    # An incident that a sink has opened is resolved by it, whichever groups it takes.
    return group_of(what) in only or (sink.kind == "pagerduty" and what in RESOLVING)


def _holder(m: _Moment, role: str | None) -> str:
    holders = m.after.cast.holders(role) if role is not None else ()
    return holders[0] if holders else f"nobody ({role} is not cast)"


def _leaders(status: RunStatus) -> str:
    cast = status.cast
    return " or ".join(dict.fromkeys((*cast.holders(people.COORDINATOR), *cast.holders(people.DECISION_OWNER))))


def fields_of(status: RunStatus, one: Delivery, drills: Drills = NO_DRILLS) -> dict[str, str]:
    """Return what is sent beside a text: service, run, step, state, environment, and what the run is at now."""
    found = {
        "service": status.runbook.service, "run": status.run, "step": one.step, "state": one.what,
        "group": group_of(one.what), "environment": status.runbook.environment, "kind": status.kind.value,
        "drill": drills.number, "forecast": forecast_end(status, status.last, drills),
        "rollback": rollback_text(status),
    }  # fmt: skip
    if one.step:
        step = status.definition(one.step)
        found["dri"] = status.steps[one.step].dri or next(iter(status.cast.holders(step.dri)), "")
        found["reviewer"] = next(iter(status.cast.holders(step.reviewer or "")), "")
        found["plan"] = spell(step.times.plan) if step.times.plan is not None else ""
    return {name: value for name, value in found.items() if value}
