"""What a run was, after it: action items, holds, attempts, scores, and whether its journal verifies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from migverify.runbook.clock import Clock, Moment, system_clock
from migverify.runbook.events import Event, EventKind, RollbackState, RunState, StepState
from migverify.runbook.history.past import past_runs
from migverify.runbook.history.read import past_run
from migverify.runbook.history.scores import Score, correctness_score, process_score
from migverify.runbook.kinds import StepKind
from migverify.runbook.page.view import View, view
from migverify.runbook.page.watch_run import drills_of
from migverify.runbook.record.run_store import RunStore
from migverify.runbook.state import OVER, RunStatus, between

__all__ = ["ActionItem", "Hold", "RunReport", "Tried", "report_as_json", "report_of"]

_K = EventKind
_ENOUGH = 0.95
"""The part of its questions that a guard has to have had an answer to."""


@dataclass(frozen=True, slots=True)
class ActionItem:
    """Something to be fixed before the next run. ``owner``: a person, empty where nobody is it by name.

    ``source`` is the kind of trouble: ``failure``, ``late``, ``short``, ``hold``, ``waiver``, ``announcement``,
    ``guard``, ``rollback``, ``budget``, ``people``, ``clock``, ``journal`` or ``plan``.
    """

    source: str
    text: str
    owner: str
    step: str = ""


@dataclass(frozen=True, slots=True)
class Hold:
    """A time in which the run was held, seconds from its start; ``until`` None: to the end of the journal."""

    since: float
    until: float | None
    reasons: tuple[str, ...]
    by: str


@dataclass(frozen=True, slots=True)
class Tried:
    """An attempt of a step that ended badly and was repeated."""

    step: str
    attempt: int
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run with everything that a reader asks afterwards.

    Parameters
    ----------
    verified
        Whether the journal passed its check; ``problems`` is what was found.
    """

    view: View
    scores: dict[str, Score]
    items: tuple[ActionItem, ...]
    holds: tuple[Hold, ...]
    attempts: tuple[Tried, ...]
    failures: tuple[tuple[str, str], ...]
    takeovers: int
    signed: int
    unsigned: int
    verified: bool
    problems: tuple[str, ...]


def report_of(room: RunStore, run: str, *, clock: Clock = system_clock) -> RunReport:
    """Return the report of a run by its id or ``last``, over or not; its journal is checked on the way.

    Raises
    ------
    UsageError
        there is no such run.
    JournalError
        its journal is damaged: nothing of it is certain, and there is no report.
    """
    status = room.open(run).status
    # Somebody may write on meanwhile: what is reported is what was folded.
    events = [event for event in room.events(status.run) if event.seq <= status.seq]
    shown = view(status, events, clock.now(), drills_of(past_runs(room, status.runbook.id), status), log=None)
    problems = tuple(str(one) for one in room.verify(status.run) if one.fatal)
    own = past_run(events)
    scores = {"process": process_score(own), "correctness": correctness_score(own)}
    tried = tuple(
        Tried(one.id, old.number, old.state.value, old.reason) for one in status.steps.values() for old in one.attempts
    )
    failures = tuple((id_, state.value) for id_, state in status.failed_ever)
    return RunReport(
        shown, scores, tuple(_items(status, shown, problems)), _holds(status, events), tried, failures,
        status.takeovers, status.signed, status.unsigned, not problems, problems,
    )  # fmt: skip


def report_as_json(report: RunReport) -> dict[str, Any]:
    """Return a report as JSON; every number in it is finite."""
    return asdict(report)


def _holds(status: RunStatus, events: Sequence[Event]) -> tuple[Hold, ...]:
    found: list[Hold] = []
    open_: tuple[float, list[str], str] | None = None
    for event in events:
        at = between(status.started, Moment(event.wall, event.mono, event.boot)).seconds
        if event.kind in (_K.HELD, _K.ROLLBACK_ORDERED):
            if open_ is None:
                open_ = (at, [], event.actor if event.role != "executor" else "the executor")
            open_[1].append(str(event.data.get("reason", "")))
        elif event.kind in (_K.RESUMED, _K.RUN_ENDED) and open_ is not None:
            found.append(Hold(open_[0], at, tuple(dict.fromkeys(open_[1])), open_[2]))
            open_ = None
    if open_ is not None:
        found.append(Hold(open_[0], None, tuple(dict.fromkeys(open_[1])), open_[2]))
    return tuple(found)


def _items(status: RunStatus, shown: View, problems: tuple[str, ...]) -> Iterator[ActionItem]:
    yield from (ActionItem("journal", f"The journal does not verify: {one}", "") for one in problems)
    for id_ in shown.standing:
        owner = next(iter(status.cast.holders(status.definition(id_).dri)), "")
        text = f"The effect of {id_} was not rolled back, or may not be: roll it back, or record why not"
        yield ActionItem("rollback", text, owner, id_)
    if shown.budget.left_stopped:
        yield ActionItem("rollback", "Nothing shows that writes were opened again: check now", "")
    yield from _of_steps(status)
    yield from _of_times(shown)
    coordinator = next(iter(status.cast.holders("coordinator")), "")
    for one in shown.announcements:
        for sink in one.sinks:
            if sink.state != "sent":
                why = f"{sink.state}{f': {sink.reason}' if sink.reason else ''}"
                text = f"{sink.sink} did not take an announcement ({why})"
                yield ActionItem("announcement", f"{text}: fix the sink, or name another", coordinator, one.step)
    yield from (ActionItem("announcement", f"{text}", coordinator) for text in status.outbox_problems)
    for guard in shown.guards:
        if guard.due and guard.asked / guard.due < _ENOUGH:
            share = f"answered {guard.asked} of {guard.due} questions"
            yield ActionItem("guard", f"Guard {guard.id} {share}: a guard without data protects nothing", "")
    yield from _of_people(status, coordinator)


def _of_steps(status: RunStatus) -> Iterator[ActionItem]:
    for step in status.runbook.steps:
        one, dri = status.steps[step.id], (status.cast.holders(step.dri) or ("",))[0]
        bad = [(old.state, old.reason) for old in one.attempts if old.state in OVER]
        if one.state in OVER:
            bad.append((one.state, one.reason))
        for state, reason in bad:
            ended = "the effect was in doubt" if state is StepState.UNKNOWN else f"it was {state.value}"
            text = f"Find out why {step.id} did not work: {ended}, {reason or 'no reason given'}"
            yield ActionItem("failure", text, dri, step.id)
        if one.waiver is not None:
            who = " and ".join(str(name) for name in one.waiver.get("by", ()))
            expires = f", and the waiver ends {one.waiver['expires']}" if one.waiver.get("expires") else ""
            text = f"{step.id} was waived by {who}: {one.waiver.get('reason', '')}{expires}. Make it pass"
            yield ActionItem("waiver", text, dri, step.id)
        if one.rollback in (RollbackState.FAILED, RollbackState.UNDONE_UNVERIFIED):
            text = f"The rollback of {step.id} is {one.rollback.value}: {one.rollback_reason or 'look at its evidence'}"
            yield ActionItem("rollback", text, dri, step.id)
        if "short" in one.alarms:
            yield ActionItem("short", f"{step.id} was suspiciously short: did it do what it should?", dri, step.id)
        if "waiting" in one.alarms and step.kind is not StepKind.ANNOUNCE:
            yield ActionItem("people", f"{step.id} waited for somebody longer than unattended_nag", dri, step.id)


def _of_times(shown: View) -> Iterator[ActionItem]:
    for step in shown.steps:
        took = step.took
        if took is None:
            continue
        owner = step.by or (step.dri_people[0] if step.dri_people else "")
        if step.late == "max" and step.maximum is not None:
            text = f"{step.id} took {took:.0f} s, and {step.maximum:g} s are its maximum"
            yield ActionItem("late", text, owner, step.id)
        elif step.late == "plan" and step.plan is not None:
            text = f"{step.id} took {took:.0f} s, planned were {step.plan:g} s: fix the step or the plan"
            yield ActionItem("late", text, owner, step.id)
    budget = shown.budget
    if budget.state == "spent" and budget.used is not None and budget.limit is not None:
        spent = budget.used.at(shown.now)
        yield ActionItem("budget", f"Writes were stopped for {spent:.0f} s of {budget.limit:g} s", "")
    if shown.finish.unknown:
        yield ActionItem("plan", f"No planned time: {', '.join(shown.finish.unknown)}", "")


def _of_people(status: RunStatus, coordinator: str) -> Iterator[ActionItem]:
    from migverify.runbook.people import shared_logins

    for reason in dict.fromkeys(status.hold_reasons) if status.state is RunState.HELD else ():
        yield ActionItem("hold", f"The run is held: {reason}", coordinator)
    if status.unsigned:
        given = status.unsigned + status.signed
        text = f"{status.unsigned} of {given} approvals were not signed by a key: policy.signed_approvals asks for it"
        yield ActionItem("people", text, "")
    for login, some in shared_logins(status).items():
        text = f"{' and '.join(some)} acted as {login}: four-eyes was not enforced; give each a login"
        yield ActionItem("people", text, "")
    for jump in status.jumps:
        yield ActionItem(
            "clock", f"A wall clock moved by {jump.seconds:+.1f} s at event {jump.seq}: synchronize clocks", ""
        )
    if status.takeovers:
        yield ActionItem(
            "people", f"The run was taken over {status.takeovers} times: why did the executor go?", coordinator
        )
