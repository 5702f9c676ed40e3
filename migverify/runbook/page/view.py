"""The state of a run, as a page shows it: one frozen value that is JSON, and all that the page needs.

Pure. What ticks is given by the moment at which it is zero (``view_clock``), so two views are equal while nothing
happens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from migverify.runbook.clock import Moment
from migverify.runbook.definition.forecast import (
    NO_DRILLS,
    Drills,
    Estimate,
    Forecast,
    Progress,
    estimates,
    forecast,
)
from migverify.runbook.definition.plan import plan_of
from migverify.runbook.events import Event, EventKind, RollbackState, RunState, StepState
from migverify.runbook.model import Runbook
from migverify.runbook.page.sentences import Announced, Line, announced, lines
from migverify.runbook.page.view_acts import Act, acts_of
from migverify.runbook.page.view_clock import ClockView, since, still, up_from
from migverify.runbook.page.view_loss import DirectionView, LossView, directions_of, loss_of
from migverify.runbook.page.view_steps import StepView, is_open, step_view, with_backups
from migverify.runbook.page.view_times import Budget, Finish, Ladder, UndoView, budget_of, finish_of, ladder_of, undo_of
from migverify.runbook.page.view_watch import (
    ExecutorView,
    GuardView,
    JournalView,
    PageWarning,
    Pulse,
    alarm_words,
    executor_of,
    guards_of,
    journal_of,
    stale_words,
    warnings_of,
)
from migverify.runbook.state import PASSED, RunStatus, between

__all__ = ["PhaseView", "Pulse", "View", "as_json", "label_of", "view"]

_S = StepState
_K = EventKind
_R = RollbackState
_LINES = 80


@dataclass(frozen=True, slots=True)
class PhaseView:
    """A phase: how many of its steps have passed, of those that apply."""

    id: str
    passed: int
    steps: int
    state: str


@dataclass(frozen=True, slots=True)
class View:
    """A run. Times are Unix seconds where they say so, else seconds from the start of the run; ``now`` is the moment.

    ``alarm``: writes are stopped, and nobody drives the run; then what the executor would do is not counted down.
    ``failures`` is how many attempts of steps ended badly; ``hold`` the time of the hold that goes on, ``held`` of all.
    ``state`` is the run's; ``sentence`` says in words what goes on, for those who cannot see the page. ``standing`` are
    the steps whose effects were not rolled back, or may not be, after the end; ``unverified``: those of
    gates and of people's hands that no rollback verifies, after any end but a completed one.
    """

    now: float
    run: str
    runbook: str
    title: str
    sha: str
    text_sha: str
    environment: str
    production: bool
    kind: str
    drill: str
    label: str
    autopilot: bool
    state: str
    over: bool
    reasons: tuple[str, ...]
    sentence: str
    stale: str
    alarm: str
    failures: int
    started: float
    ended: float | None
    clock: ClockView
    hold: ClockView | None
    held: ClockView
    holds: int
    phase: str
    phases: tuple[PhaseView, ...]
    current: tuple[str, ...]
    passed: int
    applicable: int
    acts: tuple[Act, ...]
    finish: Finish
    budget: Budget
    undo: UndoView
    loss: LossView | None
    directions: tuple[DirectionView, ...]
    ladder: Ladder
    guards: tuple[GuardView, ...]
    announcements: tuple[Announced, ...]
    undelivered: int
    steps: tuple[StepView, ...]
    executor: ExecutorView
    journal: JournalView
    warnings: tuple[PageWarning, ...]
    log: tuple[Line, ...]
    standing: tuple[str, ...]
    unverified: tuple[str, ...]
    people: tuple[tuple[str, str, str], ...]


def view(
    status: RunStatus, events: Sequence[Event], now: Moment, drills: Drills = NO_DRILLS, *, pulse: Pulse | None = None,
    log: int | None = _LINES,
) -> View:  # fmt: skip
    """Return what a page shows of a run.

    Parameters
    ----------
    events
        All of its journal, as folded into ``status``.
    drills
        What earlier drills say.
    pulse
        The executor's last sign of life; None: nobody looked for one.
    log
        How many of the newest events to tell; None: all.
    """
    book = _ordered(status)
    expected = estimates(book, drills.seconds)
    plan = plan_of(book, status.kind, {id_: one.p50 for id_, one in expected.items()})
    deliveries, executor = announced(status), executor_of(status, pulse, now)
    # What an executor without a heartbeat would do, and when, is not counted down.
    still_ = status.over or status.order is not None or not executor.driven
    ahead = None if still_ else _ahead(status, book, expected, now)
    planned = {one.id: one for one in plan.steps}
    steps = tuple(step_view(status, step, planned.get(step.id), ahead, expected, now) for step in book.steps)
    current = _current(status)
    starting = events[0].data if events else {}
    phases = _phases(status)
    label = label_of(status.kind.value, drills.number, dry=status.state is RunState.DRY)
    guards = guards_of(status, now)
    undelivered = sum(one.state in ("failed", "given up") for one in deliveries)
    alarm = alarm_words(status, executor)
    made = View(
        round(now.wall, 3), status.run, status.runbook.id, status.runbook.title, status.runbook.sha,
        status.runbook.text_sha, status.runbook.environment, status.runbook.environment in status.runbook.production,
        status.kind.value, drills.number, label, bool(starting.get("autopilot")), status.state.value, status.over,
        _reasons(status, events), "", stale_words(status, executor), alarm,
        len(status.failed_ever), status.started.wall,
        status.ended.wall if status.ended is not None else None,
        still(between(status.started, status.ended)) if status.ended is not None else since(status.started, now),
        since(status.held_since, now) if status.held_since is not None else None,
        still(status.held) if status.held_since is None else up_from(status.held_until(now), now), status.holds,
        _phase(status, current, phases), phases, current, sum(one.passed for one in phases),
        sum(one.steps for one in phases), acts_of(status, now, executor), finish_of(status, plan, ahead, expected, now),
        budget_of(status, plan, now, driven=executor.driven), undo_of(status, driven=executor.driven),
        None if status.over else loss_of(status, events, now), directions_of(status, events, now), ladder_of(status),
        guards, deliveries, undelivered, steps, executor, journal_of(status, events),
        warnings_of(status, guards, undelivered), lines(events, log),
        _standing(status), _unverified(status),
        tuple((role, *_pair(with_backups(status.cast, role))) for role in status.cast.roles),
    )  # fmt: skip
    return replace(made, sentence=_sentence(made))


def _standing(status: RunStatus) -> tuple[str, ...]:
    dirty = status.state in (RunState.ABORTED_DIRTY, RunState.FAILED_PAST_PNR)
    return status.not_clean() if dirty else ()


def _unverified(status: RunStatus) -> tuple[str, ...]:
    if not status.over or status.state in (RunState.COMPLETED, RunState.DRY):
        return ()
    clean = set(status.not_clean())
    return tuple(id_ for id_ in status.not_undone() if id_ not in clean)


def as_json(seen: View) -> dict[str, Any]:
    """Return a view as JSON; every number in it is finite."""
    return asdict(seen)


def _pair(holders: tuple[str, ...]) -> tuple[str, str]:
    return (holders[0] if holders else ""), (holders[1] if len(holders) > 1 else "")


def label_of(kind: str, drill: str = "", *, dry: bool = False) -> str:
    """Say what kind of run it is as announcements do: ``REHEARSAL 3/4``, ``LIVE``."""
    return f"{('dry' if dry else kind).upper()}{f' {drill}' if drill else ''}"


def _ordered(status: RunStatus) -> Runbook:
    """Return the runbook with the needs that this run has, so that plan and run wait for the same."""
    book, needs = status.runbook, status.graph.needs
    if all(step.needs == needs[step.id] for step in book.steps):
        return book
    return book.with_each_step(lambda step: step.model_copy(update={"needs": needs[step.id]}))


def _ahead(status: RunStatus, book: Runbook, expected: Mapping[str, Estimate], now: Moment) -> Forecast:
    finished, running = {}, {}
    for one in status.steps.values():
        if one.state in PASSED and one.ended is not None:
            finished[one.id] = between(status.started, one.ended).seconds
        elif one.state in PASSED:
            finished[one.id] = between(status.started, now).seconds
        elif one.started is not None:
            running[one.id] = between(status.started, one.started).seconds
    progress = Progress(finished, running)
    return forecast(book, status.kind, expected, progress, between(status.started, now).seconds)


def _current(status: RunStatus) -> tuple[str, ...]:
    if status.over:
        return ()
    if status.order is not None:
        undoing = [id_ for id_ in status.order.steps if status.steps[id_].rollback is not _R.UNDONE_VERIFIED]
        return tuple(undoing[:1])
    open_ = tuple(one.id for one in status.steps.values() if is_open(one))
    return open_ or tuple(one.id for one in status.steps.values() if one.state is _S.READY)


def _phases(status: RunStatus) -> tuple[PhaseView, ...]:
    found = []
    for phase in dict.fromkeys(step.phase for step in status.runbook.steps):
        some = [status.steps[step.id] for step in status.runbook.steps if step.phase == phase]
        some = [one for one in some if one.state is not _S.NOT_APPLICABLE]
        passed = sum(one.state in PASSED for one in some)
        begun = any(one.state not in (_S.PENDING, _S.READY) for one in some)
        word = "passed" if passed == len(some) else "begun" if begun else "ahead"
        found.append(PhaseView(phase, passed, len(some), word if some else "not applicable"))
    return tuple(found)


def _phase(status: RunStatus, current: tuple[str, ...], phases: tuple[PhaseView, ...]) -> str:
    if current:
        return status.definition(current[0]).phase
    begun = [one.id for one in phases if one.state in ("passed", "begun")]
    return begun[-1] if begun else phases[0].id if phases else ""


def _reasons(status: RunStatus, events: Sequence[Event]) -> tuple[str, ...]:
    if status.state is RunState.HELD:
        return tuple(dict.fromkeys(status.hold_reasons))
    ends = (event for event in reversed(events) if event.kind is _K.RUN_ENDED)
    end = next(ends, None) if status.over else None
    reason = str(end.data.get("reason", "")) if end is not None else ""
    return (reason,) if reason else ()


def _sentence(seen: View) -> str:
    if seen.over:
        left = f" Effects of {', '.join(seen.standing)} were not rolled back." if seen.standing else ""
        more = f" No rollback verifies what {', '.join(seen.unverified)} did." if seen.unverified else ""
        return f"The run is over: {seen.state}.{left}{more}"
    who = [f"{act.person or act.role or 'two persons'}: {act.tasks[0].does}" for act in seen.acts[:2]]
    state = f"{seen.alarm} The run is {seen.state}".strip()
    reasons = f": {'; '.join(seen.reasons)}" if seen.reasons else ""
    return f"{state}{reasons}. Phase {seen.phase}. {'; '.join(who)}."
