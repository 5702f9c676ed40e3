"""What watches a run, and what is wrong with it: guards, the executor, the journal, warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from migverify.runbook import people
from migverify.runbook.announce.words import clock_text
from migverify.runbook.clock import Moment
from migverify.runbook.conditions import rollback_rules
from migverify.runbook.events import Event, EventKind, RunState
from migverify.runbook.page.view_clock import ClockView, since
from migverify.runbook.page.view_steps import check_words, clipped
from migverify.runbook.run.guarding import armed_phases
from migverify.runbook.state import OVER, PASSED, RunStatus, between

__all__ = [
    "ExecutorView",
    "GuardView",
    "JournalView",
    "PageWarning",
    "Pulse",
    "alarm_words",
    "executor_of",
    "guards_of",
    "journal_of",
    "stale_words",
    "warnings_of",
]  # fmt: skip

_K = EventKind
_STALE = 90.0
"""Seconds after which a guard's answer is old: an unchanged one is written down every 60 s."""
_ALARMS = {
    "late": "{} takes longer than planned",
    "waiting": "{} waits for somebody",
    "short": "{} was suspiciously short",
}


@dataclass(frozen=True, slots=True)
class Pulse:
    """The last sign of life of an executor, as somebody outside saw it.

    ``beat`` is Unix time; ``life`` how many seconds a lease lives without one; ``gone``: why it is dead for certain.
    """

    beat: float
    life: float
    gone: str = ""


@dataclass(frozen=True, slots=True)
class PageWarning:
    """Something that everybody has to see; ``level`` is ``bad`` or ``warn``."""

    level: str
    text: str


@dataclass(frozen=True, slots=True)
class GuardView:
    """A guard. ``state``: ``pass``, ``fail``, ``inconclusive`` or ``not asked``; ``stale``: armed, answer too old."""

    id: str
    state: str
    text: str
    value: str
    asks: str
    clock: ClockView | None
    armed: bool
    holds: bool
    stale: bool
    asked: int
    due: int
    every: float | None


@dataclass(frozen=True, slots=True)
class ExecutorView:
    """Who drives the run. ``state``: ``nobody``, ``alive``, ``silent``, ``gone`` or ``not seen`` (nobody looked).

    ``since``: its last sign of life, as a time of the day; ``driven``: it may carry out what is due.
    """

    name: str
    person: str
    epoch: int
    state: str
    why: str
    clock: ClockView | None
    since: str
    driven: bool


@dataclass(frozen=True, slots=True)
class JournalView:
    """The journal: its last number and hash, and the hash that was published last."""

    seq: int
    head: str
    told: str
    told_seq: int | None
    last: float


def guards_of(status: RunStatus, now: Moment) -> tuple[GuardView, ...]:
    """Return the guards of a run: those of the file, the rules that call for a rollback, and what else held it."""
    phases = armed_phases(status)
    found = []
    for guard in (*status.runbook.guards, *rollback_rules(status.runbook)):
        armed = not status.over and ("*" in guard.armed_in or bool(phases.intersection(guard.armed_in)))
        found.append(_guard(status, guard.id, check_words(guard), guard.every, now, armed=armed))
    known = {one.id for one in found}
    others = [id_ for id_ in dict.fromkeys((*status.guards, *status.hold_guards)) if id_ not in known]
    found += [_guard(status, id_, "", None, now, armed=not status.over) for id_ in others]
    return tuple(found)


def _guard(status: RunStatus, id_: str, asks: str, every: float | None, now: Moment, *, armed: bool) -> GuardView:
    answer, holds = status.guards.get(id_), id_ in status.hold_guards and status.state is RunState.HELD
    if answer is None:
        return GuardView(id_, "not asked", "", "", asks, None, armed, holds, False, 0, 0, every)
    old = between(answer.at, now).seconds > _STALE + 3 * (every or 0.0)
    return GuardView(
        id_, answer.state, clipped(answer.text, 400), "" if answer.value is None else str(answer.value), asks,
        since(answer.at, now), armed, holds, armed and every is not None and old, answer.asked, answer.due, every,
    )  # fmt: skip


def executor_of(status: RunStatus, pulse: Pulse | None, now: Moment) -> ExecutorView:
    """Return who drives the run, and whether he lives."""
    if not status.executor:
        # Before its first executor a run is forecast as if it began now; one that was left is not.
        return ExecutorView("", "", status.epoch, "nobody", "", None, "", not status.epoch)
    state, clock, since_ = "not seen", None, ""
    if pulse is not None:
        silent = now.wall - pulse.beat > pulse.life
        state = "gone" if pulse.gone else "silent" if silent else "alive"
        clock, since_ = ClockView("up", round(pulse.beat, 1)), clock_text(pulse.beat, now.wall)
    why = pulse.gone if pulse is not None else ""
    driven = state in ("alive", "not seen")
    return ExecutorView(status.executor, status.executor_by, status.epoch, state, why, clock, since_, driven)


def stale_words(status: RunStatus, executor: ExecutorView) -> str:
    """Return why what a page shows may be old; empty: it is not."""
    if status.over or executor.state in ("alive", "not seen"):
        return ""
    if executor.state == "nobody":
        return "Nobody drives this run: no executor has it. Nothing is carried out, no guard is asked."
    why = executor.why or "it has not renewed its lease"
    return f"No heartbeat of the executor since {executor.since} ({why}): no guard is asked, no clock is watched."


def alarm_words(status: RunStatus, executor: ExecutorView) -> str:
    """Return that writes are stopped while nobody drives the run; empty: somebody does, or they are not."""
    if status.over or status.write_stop_since is None or executor.state in ("alive", "not seen"):
        return ""
    if executor.state == "silent":
        return f"Writes are stopped and there is no heartbeat of the executor since {executor.since}: find out now."
    return "Writes are stopped and nobody drives the run: take it over now."


def journal_of(status: RunStatus, events: Sequence[Event]) -> JournalView:
    """Return the state of the journal."""
    heads = (event for event in reversed(events) if event.kind is _K.HEAD)
    head = next(heads, None)
    sha, seq = (str(head.data.get("sha", "")), int(head.data.get("seq", head.seq))) if head is not None else ("", None)
    return JournalView(status.seq, status.head, sha, seq, status.last.wall)


def warnings_of(status: RunStatus, guards: tuple[GuardView, ...], undelivered: int) -> tuple[PageWarning, ...]:
    """Return what everybody has to see besides the state."""
    found = []
    if undelivered:
        count = "1 announcement was" if undelivered == 1 else f"{undelivered} announcements were"
        found.append(PageWarning("bad", f"{count} not delivered: tell people by other means"))
    found += [PageWarning("bad", text) for text in status.outbox_problems]
    found += [PageWarning("bad", f"guard {one.id}: its answer is old") for one in guards if one.stale]
    for step in status.runbook.steps:
        one = status.steps[step.id]
        found += [PageWarning("warn", _ALARMS[alarm].format(step.id)) for alarm in one.alarms if alarm in _ALARMS
                  and (alarm == "short" or not (one.state in PASSED or one.state in OVER))]  # fmt: skip
    if status.unsigned:
        given = status.unsigned + status.signed
        found.append(PageWarning("warn", f"{status.unsigned} of {given} approvals are not signed by a key"))
    for login, some in people.shared_logins(status).items():
        found.append(PageWarning("warn", f"Four-eyes not enforced: {' and '.join(some)} act as {login}"))
    for jump in status.jumps:
        found.append(PageWarning("warn", f"a wall clock moved by {jump.seconds:+.1f} s at event {jump.seq}"))
    return tuple(found)
