"""The grade of a disaster recovery case, from the journal of its run alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from migverify.runbook.clock import Moment
from migverify.runbook.events import RunState, StepState
from migverify.runbook.history.past import PastCase
from migverify.runbook.model import CASE_PARTS, RunbookKind, RunKind
from migverify.runbook.state import RunStatus, StepStatus, between

__all__ = ["GRADES", "Marks", "case_of"]

GRADES = ("pass", "pass-with-late-recovery", "fail", "invalid")
_Mark = dict[str, tuple[int, Moment]]
_PROOF = ("steady", "inject", "hit", "remove", "gone")
"""Without these nothing was tried: steady before, fault, proof that it hit, removal, proof that it is gone."""
_RESULT = ("steady_again", "data")


@dataclass(slots=True)
class Marks:
    """Numbers and moments of events: a step's first start and first intent, and its last complete evidence."""

    begun: _Mark = field(default_factory=dict)
    acting: _Mark = field(default_factory=dict)
    shown: _Mark = field(default_factory=dict)


def case_of(status: RunStatus, marks: Marks) -> PastCase | None:
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


def _out_of_order(steps: dict[str, str], marks: Marks) -> str:
    """Return which proof was given too late, as far as the parts are steps of their own."""
    for first, then in pairwise(CASE_PARTS):
        one, other = steps.get(first, ""), steps.get(then, "")
        if one == other or one not in marks.shown or other not in marks.begun:
            continue
        if marks.shown[one][0] > marks.begun[other][0]:
            return f"{_MEANS[then]}: step {other} began before step {one} was shown"
    return ""


def _recovery(steps: dict[str, str], marks: Marks) -> float | None:
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
