"""What counts as a drill, when one is clean, and what an edited runbook leaves of it. Pure.

The rule of edits: a step whose ``sha`` is another one now than in a drill, or that was not there then, is *voided* in
that drill, and so is every step that needs it, over any number of needs. What is voided has to have been run cleanly
in a later drill, in which neither the step nor anything that it needs is voided. Wording is in no ``sha``.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from migverify.config.settings import DrillRules, ReadinessFloor
from migverify.runbook.events import RollbackState, RunState, StepState
from migverify.runbook.graph import reached
from migverify.runbook.history.past import PastRun
from migverify.runbook.kinds import RunbookKind, RunKind
from migverify.runbook.model import ReadinessPolicy, Runbook
from migverify.runbook.people import CLOCK_SKEW

__all__ = [
    "BUILT_IN", "ENOUGH_ANSWERS", "Edits", "clock_problem", "counts_as_drill", "edits_since", "not_proved_again",
    "of_this_runbook", "raised", "ran_cleanly", "rollback_only", "too_old", "why_no_rollback_drill", "why_unclean",
]  # fmt: skip

ENOUGH_ANSWERS = 0.95
"""The part of its questions that a guard has to have had an answer to in a clean drill."""


def of_this_runbook(run: PastRun, runbook: Runbook) -> bool:
    """Tell whether a run is of this runbook, and of the same instance of it when it is a template."""
    return run.runbook == runbook.id and run.instance == runbook.instance


def counts_as_drill(run: PastRun) -> bool:
    """Tell whether people rehearsed: no dry run, not the autopilot, not the night itself.

    A runbook of kind ``rollback`` is also rehearsed by a run of kind ``rollback`` outside production.
    """
    own = run.runbook_kind is RunbookKind.ROLLBACK and run.kind is RunKind.ROLLBACK and not run.production
    return not run.autopilot and (run.kind is RunKind.REHEARSAL or own)


def why_unclean(run: PastRun) -> tuple[str, ...]:
    """Return why a run is not clean; empty: it is."""
    found = [] if run.state is RunState.COMPLETED else [_end(run)]
    return (*found, *_trouble(run))


def _end(run: PastRun) -> str:
    return f"it ended {run.state.value}" if run.over else f"it is not over ({run.state.value})"


def _trouble(run: PastRun) -> tuple[str, ...]:
    """Return why a run is not clean, wherever it ended."""
    found = [f"{id_} was {state.value}" for id_, state in run.failures]
    waived = {*run.waivers, *(one.id for one in run.steps.values() if one.state is StepState.WAIVED)}
    found += [f"{id_} was waived: {run.waivers.get(id_, '')}".rstrip(": ") for id_ in sorted(waived)]
    repeated = [one for one in run.steps.values() if one.attempts > 1]
    if run.retries or repeated:
        names = ", ".join(one.id for one in repeated)
        found.append(f"{max(run.retries, len(repeated))} retries{f' ({names})' if names else ''}")
    found += [f"held by {one.guard or one.by}: {one.reason}" for one in run.unplanned_holds]
    found += [_lost(one.what, one.sink, one.state, one.reason) for one in run.undelivered]
    if run.silent:
        found.append("nothing was announced although the runbook has sinks")
    for guard in run.guards:
        if not guard.share >= ENOUGH_ANSWERS:
            answered = f"{guard.asked} of {guard.due} questions" if guard.due else "none of its questions"
            found.append(f"guard {guard.id} answered {answered}, and {ENOUGH_ANSWERS:.0%} are wanted")
    if run.write_stop_budget is not None and not run.write_stop <= run.write_stop_budget:
        found.append(f"writes were stopped for {run.write_stop:.0f} s of {run.write_stop_budget:g} s")
    return tuple(found)


def _lost(what: str, sink: str, state: str, reason: str) -> str:
    place = f"the announcement {what!r} to {sink}" if sink else "an announcement"
    return f"{place} was not delivered ({state}{f': {reason}' if reason else ''})"


def rollback_only(run: PastRun) -> bool:
    """Tell whether a rehearsal was one of the rollback: a person ordered it, and nothing had gone wrong before.

    Such a run counts neither as a drill of the way forward nor against its cleanliness.
    """
    return (
        run.state is RunState.ROLLED_BACK and run.rollback_by_person
        and not _trouble(run) and not why_no_rollback_drill(run, ())
    )  # fmt: skip


def why_no_rollback_drill(run: PastRun, others: Iterable[str], runbook: Runbook | None = None) -> str:
    """Return why a run is no drill of the rollback; empty: it is one.

    It is one when effects were undone, every one of them verified at its first attempt, and the run ended rolled back
    or aborted with nothing left; or when a run of kind ``rollback`` did steps that are for such runs alone, or one of
    a runbook that rolls this one back, and it completed without a bad end.

    Parameters
    ----------
    others
        Ids of runbooks that roll this one back.
    runbook
        The definition of now: a step that was undone counts only as it is defined now. None: not looked at.
    """
    if run.autopilot:
        return "the autopilot played every role"
    if run.kind in (RunKind.DRY, RunKind.LIVE):
        return f"it is a {run.kind.value} run"
    if not run.over:
        return _end(run)
    bad = [one for one in run.undone if one.state is not RollbackState.UNDONE_VERIFIED]
    if bad:
        return f"the rollback of {bad[0].step} ended {bad[0].state.value}"
    back = run.kind is RunKind.ROLLBACK and any(one.backwards and one.clean for one in run.steps.values())
    whole = back or run.runbook_kind is RunbookKind.ROLLBACK or run.runbook in set(others)
    if whole and run.state is RunState.COMPLETED:
        if run.failures or run.waivers:
            return f"{run.failures[0][0]} was {run.failures[0][1].value}" if run.failures else "a step was waived"
        stale = [] if runbook is None or run.runbook != runbook.id else edits_since(run, runbook).voided
        return f"{', '.join(list(stale)[:5])} changed since" if stale else ""
    if run.state not in (RunState.ROLLED_BACK, RunState.ABORTED_CLEAN):
        return _end(run)
    if not run.undone:
        return "nothing was undone"
    now = {step.id: step.sha for step in runbook.steps} if runbook is not None else {}
    changed = [one.step for one in run.undone if runbook is not None and now.get(one.step) != one.sha]
    return f"{', '.join(dict.fromkeys(changed))}, undone then, changed since" if changed else ""


@dataclass(frozen=True, slots=True)
class Edits:
    """What of a runbook is not as it was in a run: steps, in the order of the file, and whether anything else.

    ``others`` are policy, budgets, guards, rules of rollback, the case, or the order of steps: no step changed, and the
    runbook is another one all the same. Where steps changed it is not known, and False.
    """

    changed: tuple[str, ...]
    dependents: tuple[str, ...]
    others: bool

    @property
    def voided(self) -> tuple[str, ...]:
        """The steps whose cleanliness in that run is void."""
        return (*self.changed, *self.dependents)


def edits_since(run: PastRun, runbook: Runbook) -> Edits:
    """Return what of a runbook is not as it was in a run."""
    changed = [step.id for step in runbook.steps if _sha(run, step.id) != step.sha]
    gone = run.steps.keys() - {step.id for step in runbook.steps}
    dependents_of: dict[str, list[str]] = {}
    for step in runbook.steps:
        for need in step.needs:
            dependents_of.setdefault(need, []).append(step.id)
    void = {*changed, *reached(changed, dependents_of)}
    dependents = tuple(step.id for step in runbook.steps if step.id in void and step.id not in changed)
    others = run.sha != runbook.sha and not changed and not gone
    return Edits(tuple(changed), dependents, others)


def _sha(run: PastRun, id_: str) -> str | None:
    return run.steps[id_].sha if id_ in run.steps else None


def not_proved_again(run: PastRun, later: Iterable[PastRun], runbook: Runbook) -> tuple[str, ...]:
    """Return the steps that are voided in a drill, and that no later drill ran cleanly; empty: the drill counts.

    A step that is not for the kind or environment of the later drill was run cleanly when its twin was; without a
    twin, when it was not for the earlier one either: then there is nothing that could be void.
    """
    open_ = dict.fromkeys(edits_since(run, runbook).voided)
    for drill in later:
        if not open_:
            break
        void = set(edits_since(drill, runbook).voided)
        for id_ in [id_ for id_ in open_ if ran_cleanly(drill, id_, void) or _nothing_void(drill, id_, run, void)]:
            del open_[id_]
    return tuple(open_)


def ran_cleanly(drill: PastRun, id_: str, void: Container[str]) -> bool:
    """Tell whether a drill ran a step cleanly, or its twin where it does not apply; ``void``: what counts no more."""
    one = drill.steps.get(id_)
    if one is not None and one.state is StepState.NOT_APPLICABLE and id_ not in void and one.twin is not None:
        id_ = one.twin
        one = drill.steps.get(id_)
    return one is not None and id_ not in void and one.clean


def _nothing_void(drill: PastRun, id_: str, earlier: PastRun, void: Container[str]) -> bool:
    one, before = drill.steps.get(id_), earlier.steps.get(id_)
    if one is None or id_ in void or one.twin is not None or one.state is not StepState.NOT_APPLICABLE:
        return False
    return before is None or before.state is StepState.NOT_APPLICABLE


# -- the least that drills have to show, which no runbook lowers ------------------------------------------------------

BUILT_IN = ReadinessFloor()
_DAY = 86_400.0


def raised(rules: ReadinessPolicy, floor: ReadinessFloor) -> tuple[ReadinessPolicy, tuple[str, ...]]:
    """Return the stricter of both, and what asks for less: the configuration than what is built in, then the runbook.

    A runbook cannot lower what is asked of it; the configuration of the migration can, and that is said.
    """
    needed = {key: getattr(floor, key) for key in DrillRules.model_fields}
    weaker = [
        f"migverify.yaml asks for less than what is built in: {key} {_text(getattr(floor, key))}, built in"
        f" {_text(getattr(BUILT_IN, key))}"
        for key in (*needed, "max_age_days")
        if (getattr(floor, key) > getattr(BUILT_IN, key) if key == "max_age_days"
            else getattr(floor, key) < getattr(BUILT_IN, key))
    ]  # fmt: skip
    weaker += [
        f"the runbook asks for less, which does not count: {key} {_text(getattr(rules, key))}, needed {_text(least)}"
        for key, least in needed.items() if getattr(rules, key) < least
    ]  # fmt: skip
    stricter = {key: max(getattr(rules, key), least) for key, least in needed.items()}
    return rules.model_copy(update=stricter), tuple(weaker)


def _text(value: float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"


def too_old(run: PastRun, now: float, floor: ReadinessFloor) -> str:
    """Return why a drill is too old to count. One whose clock contradicts the chain is not: it is found elsewhere."""
    days = (now - max(run.at, run.not_before or run.at)) / _DAY
    return f"{days:.0f} days old, and {floor.max_age_days:g} are allowed" if days > floor.max_age_days else ""


def clock_problem(run: PastRun, now: float) -> str:
    """Return how a run's clock contradicts now, or the run begun before it; empty: it does not."""
    if run.at - now > CLOCK_SKEW:
        return f"{run.run} ended in the future: a clock is wrong"
    if run.not_before is not None and run.not_before - run.started > CLOCK_SKEW:
        return f"{run.run} began {(run.not_before - run.started) / 3600:.1f} h before a run that was begun before it"
    return ""
