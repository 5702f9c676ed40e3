"""The steps of a run as a page shows them: planned and actual times, evidence, approvals, what can be rolled back."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from migverify.runbook import people
from migverify.runbook.cast import Cast
from migverify.runbook.clock import Moment
from migverify.runbook.definition.forecast import Estimate, Forecast
from migverify.runbook.definition.plan import PlannedStep
from migverify.runbook.events import RollbackState, StepState
from migverify.runbook.model import Check, Step, Times
from migverify.runbook.page.view_clock import ClockView, still, up_from
from migverify.runbook.state import OVER, PASSED, UNDER_WAY, ElapsedTime, RunStatus, StepStatus, between

__all__ = [
    "CheckView",
    "Evidence",
    "StepView",
    "Undo",
    "action_words",
    "check_words",
    "clipped",
    "evidence_lines",
    "evidence_view",
    "is_open",
    "late_word",
    "step_view",
    "with_backups",
]

TEXT = 2_000
"""Characters of an evidence's text that a page shows; what is longer says how much was left out."""

_S = StepState


@dataclass(frozen=True, slots=True)
class CheckView:
    """A check that was asked: ``pass``, ``fail`` or ``inconclusive``, and why."""

    action: str
    state: str
    text: str
    value: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """A piece of what a step has to show; ``source`` says whose word it is: ``effect``, ``checks`` or ``person``."""

    source: str
    text: str
    checks: tuple[CheckView, ...] = ()
    details: str = ""


@dataclass(frozen=True, slots=True)
class Signed:
    """An approval as it was given; ``hash`` is what it is bound to."""

    person: str
    of: str
    hash: str
    at: float
    signed: bool
    reason: str
    answer: str


@dataclass(frozen=True, slots=True)
class Undo:
    """What of a step can be rolled back. ``plan`` in seconds, None: not planned. ``clock``: while it runs."""

    state: str
    reason: str
    plan: float | None
    valid_until: str
    data_loss: str
    instruction: str
    took: float | None
    clock: ClockView | None = None


@dataclass(frozen=True, slots=True)
class StepView:
    """A step. Starts and finishes are seconds from the start of the run; None: not known, or not yet.

    Parameters
    ----------
    dri_people, reviewer_people
        Who holds the role, then the backup.
    dri, by
        The role or person that the definition names, and who started it.
    clock, took
        Working time without holds: a clock while it is under way, seconds once it has ended.
    late
        ``plan`` or ``max`` when it took or takes longer than that.
    sign
        The hash that a reviewer would sign now; empty: nothing is to be signed.
    missing
        What is missing of its approvals; empty: nothing, or not yet due.
    """

    id: str
    phase: str
    title: str
    instruction: str
    kind: str
    state: str
    reason: str
    attempt: int
    dri: str
    dri_people: tuple[str, ...]
    by: str
    called_by: str
    reviewer: str
    reviewer_people: tuple[str, ...]
    needs: tuple[str, ...]
    plan: float | None
    maximum: float | None
    minimum: float | None
    planned_start: float | None
    planned_finish: float | None
    actual_start: float | None
    actual_finish: float | None
    forecast_start: float | None
    forecast_finish: float | None
    critical: bool
    clock: ClockView | None
    took: float | None
    late: str
    alarms: tuple[str, ...]
    undo: Undo
    evidence: tuple[Evidence, ...]
    evidence_sha: str
    sign: str
    approvals: tuple[Signed, ...]
    missing: str
    waiver: str
    point_of_no_return: str
    write_stop: str
    expects: tuple[str, ...]


def with_backups(cast: Cast, role_or_person: str) -> tuple[str, ...]:
    """Return who holds a role now, then those who may be promoted to it."""
    holders = cast.holders(role_or_person)
    return (*holders, *(one for one in cast.declared.get(role_or_person, ()) if one not in holders))


def step_view(
    status: RunStatus, step: Step, planned: PlannedStep | None, ahead: Forecast | None,
    expected: Mapping[str, Estimate], now: Moment,
) -> StepView:  # fmt: skip
    """Return one step as it is now."""
    one, cast = status.steps[step.id], status.cast
    away = one.state is _S.NOT_APPLICABLE
    span = status.active_time(step.id, now)
    starts = _coarse(ahead.starts.get(step.id)) if ahead is not None and not status.over else None
    estimate = expected.get(step.id)
    plan = step.times.plan if step.times.plan is not None else estimate.p50 if estimate is not None else None
    return StepView(
        step.id, step.phase, step.title, step.instruction, step.kind.value, one.state.value, one.reason, one.attempt,
        step.dri, with_backups(cast, step.dri), one.dri, one.called_by,
        step.reviewer or "", with_backups(cast, step.reviewer) if step.reviewer else (), status.graph.needs[step.id],
        plan, step.times.maximum, step.times.minimum,
        planned.start if planned and not away else None, planned.finish if planned and not away else None,
        _offset(status, one.started), _offset(status, one.ended),
        starts, starts + estimate.p90 if starts is not None and estimate is not None else starts,
        planned.critical if planned and not away else False,
        _clock(status, one, span, now), round(span.seconds, 3) if span is not None and one.active is not None else None,
        late_word(step.times, estimate, span), one.alarms, _undo(one, step, now),
        tuple(evidence_view(recorded) for recorded in one.evidence), one.evidence_sha,
        people.approval_hash(status, step.id) if one.state is _S.AWAITING_REVIEW else "",
        tuple(Signed(g.person, g.of, g.hash, g.at.wall, g.signed, g.reason, g.answer) for g in one.approvals),
        _missing(status, one, step, now), _waiver(one), step.point_of_no_return or "", step.write_stop or "",
        tuple(check_words(check) for check in step.expect),
    )  # fmt: skip


def _coarse(seconds: float | None) -> float | None:
    # While a run waits, all that is ahead moves with the time: in steps, as with its end.
    return None if seconds is None else float(5 * round(seconds / 5))


def _offset(status: RunStatus, at: Moment | None) -> float | None:
    return None if at is None else round(between(status.started, at).seconds, 3)


def _clock(status: RunStatus, one: StepStatus, span: ElapsedTime | None, now: Moment) -> ClockView | None:
    if span is None or one.active is not None or one.state not in UNDER_WAY:
        return None
    # A hold is not the step's time: its clock is stopped meanwhile.
    return still(span) if status.held_since is not None else up_from(span, now)


def late_word(times: Times, estimate: Estimate | None, span: ElapsedTime | None) -> str:
    """Return ``max`` for a step over its maximum, ``plan`` for one over its plan, or empty.

    Without a plan of the author, what most drills took replaces it, and a second more: the median is exceeded by half
    of all runs.
    """
    if span is None:
        return ""
    if times.maximum is not None and span.seconds > times.maximum:
        return "max"
    plan = times.plan if times.plan is not None else estimate.p90 + 1.0 if estimate is not None else None
    return "plan" if plan is not None and span.seconds > plan else ""


def _undo(one: StepStatus, step: Step, now: Moment) -> Undo:
    rollback, took, clock = step.rollback, None, None
    if one.rollback is RollbackState.RUNNING and one.rollback_started is not None:
        clock = up_from(between(one.rollback_started, now), now)
    if one.rollback_started is not None and one.rollback_ended is not None:
        took = round(between(one.rollback_started, one.rollback_ended).seconds, 3)
    if rollback is None:
        return Undo(one.rollback.value, one.rollback_reason, None, "", "", "", took, clock)
    return Undo(
        one.rollback.value, one.rollback_reason, rollback.plan, (rollback.valid_until or "").removeprefix("step:"),
        rollback.data_loss.value + (f" ({rollback.measured_by})" if rollback.measured_by else ""),
        rollback.instruction, took, clock,
    )  # fmt: skip


def _missing(status: RunStatus, one: StepStatus, step: Step, now: Moment) -> str:
    if one.state in (_S.READY, _S.CALLED):
        return people.missing_approvals(status, step, "start", now)
    return people.missing_approvals(status, step, "done", now) if one.state is _S.AWAITING_REVIEW else ""


def _waiver(one: StepStatus) -> str:
    if one.waiver is None:
        return ""
    by = " and ".join(str(name) for name in one.waiver.get("by", ()))
    expires = one.waiver.get("expires")
    return f"{one.waiver.get('reason', '')} ({by}{f', until {expires}' if expires else ''})"


def evidence_view(recorded: Mapping[str, Any]) -> Evidence:
    """Return a piece of evidence of the journal as it is shown."""
    checks = tuple(
        CheckView(str(one.get("action", "")), str(one.get("state", "")), clipped(str(one.get("text", ""))),
                  "" if one.get("value") is None else clipped(str(one["value"])))
        for one in recorded.get("checks", ())
    )  # fmt: skip
    source = (
        "checks" if "checks" in recorded else "person" if recorded.get("manual") or "login" in recorded else "effect"
    )
    if "happened" in recorded:
        source = "checks" if recorded.get("how") == "probe" else "person"
    text = str(recorded.get("text") or recorded.get("reason") or "")
    if "happened" in recorded:
        text = f"the effect {'happened' if recorded['happened'] else 'did not happen'}{f': {text}' if text else ''}"
    if recorded.get("dry"):
        text = "dry: nothing was done" + (f"; {recorded['problems']}" if recorded.get("problems") else "")
    return Evidence(source, clipped(text), checks, clipped(_details(recorded)))


def _details(recorded: Mapping[str, Any]) -> str:
    lines = list(
        _facts({key: recorded[key] for key in ("outcome", "value") if recorded.get(key) not in (None, "", "ok")})
    )
    lines += _facts(recorded.get("evidence") or {})
    if recorded.get("would"):
        lines.append(
            f"would do {action_words(recorded['would'].get('action', ''), recorded['would'].get('arguments') or {})}"
        )
    for check in recorded.get("checks", ()):
        some = list(_facts(check.get("evidence") or {}))
        lines += [f"{check.get('action')}:", *(f"    {line}" for line in some)] if some else []
    return "\n".join(lines)


def _facts(facts: Mapping[str, Any]) -> Iterator[str]:
    for name, value in facts.items():
        if name in ("stdout", "stderr"):
            yield from (f"{name}: {line}" for line in str(value).rstrip().splitlines()[-20:])
        elif name == "argv":
            yield f"$ {shlex.join(map(str, value))}"
        elif name not in ("stdout_bytes", "stderr_bytes"):
            yield f"{name}: {value if isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False)}"


def evidence_lines(piece: Evidence) -> Iterator[str]:
    """Yield a piece of evidence as lines for a reviewer: whose word it is, checks with their values, details."""
    yield f"{piece.source}: {piece.text}" if piece.text else piece.source
    for check in piece.checks:
        value = f" [{check.value}]" if check.value else ""
        yield f"{check.state if check.state == 'pass' else check.state.upper()}: {check.action}{value}: {check.text}"
    yield from (f"    {line}" for line in piece.details.splitlines())


def clipped(text: str, most: int = TEXT) -> str:
    """Return a text of at most so many characters, and say how many were left out."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} characters more in the journal)"


def check_words(check: Check) -> str:
    """Say a check in one line: what is asked, of what, and its bounds."""
    bounds = []
    if check.minimum is not None:
        bounds.append(f"at least {check.minimum:g}")
    if check.maximum is not None:
        bounds.append(f"at most {check.maximum:g}")
    if check.equals is not None:
        bounds.append(f"equal to {check.equals}")
    if check.for_seconds:
        bounds.append(f"for {check.for_seconds:g} s")
    return f"{action_words(check.action, check.arguments)}{': ' if bounds else ''}{', '.join(bounds)}"


def action_words(action: str, arguments: Mapping[str, Any]) -> str:
    """Say an action in one line; a program as it is typed, and what is asked of it (``command.json``)."""
    rest = {name: value for name, value in arguments.items() if name != "argv"}
    listed = ", ".join(f"{name} {_plain(value)}" for name, value in rest.items())
    if "argv" in arguments:
        what = "" if action in ("command", "command.exit") else f"{action}: "
        return f"{what}{_plain(arguments['argv'])}{f' ({listed})' if listed else ''}"
    return f"{action}{f' ({listed})' if listed else ''}"


def _plain(value: Any) -> str:
    if not isinstance(value, list | tuple):
        return str(value)
    return " ".join(one if isinstance(one, str) and one and " " not in one else repr(one) for one in value)


def is_open(one: StepStatus) -> bool:
    """Tell whether a step is what the run is about now: called, under way, to be reviewed, or in trouble."""
    if one.rollback is RollbackState.UNDONE_VERIFIED or one.state in PASSED:
        return False
    return one.state in OVER or one.state in (_S.CALLED, _S.RUNNING, _S.VERIFYING, _S.AWAITING_REVIEW)
