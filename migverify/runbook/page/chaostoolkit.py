"""A run as a journal of the Chaos Toolkit, for tools that read those: its reporting plug-in, dashboards.

The form is that of ``chaostoolkit-lib`` 1.x (https://chaostoolkit.org/reference/api/journal/). Two things are told
otherwise than it does, as they would be untrue: a waived step has failed, and a dry run has no journal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from migverify import __version__
from migverify.errors import UsageError
from migverify.runbook.clock import Moment
from migverify.runbook.events import RollbackState, RunState, StepState
from migverify.runbook.model import Check, Effect, RunKind, Step, StepKind
from migverify.runbook.page.view_steps import check_words, clipped
from migverify.runbook.state import OVER, RunStatus, StepStatus, between

__all__ = ["FORM", "chaostoolkit_journal"]

FORM = "1.44.0"
"""The version of chaostoolkit-lib whose journals these look like; its reporting chooses a template by it."""
_PROBES = frozenset({StepKind.CHECK, StepKind.GATE})
_ENDS = {RunState.COMPLETED: "completed", RunState.FAILED_PAST_PNR: "failed"}


def chaostoolkit_journal(status: RunStatus) -> dict[str, Any]:
    """Return the journal, as JSON.

    Every step that began is an action, or a probe when it only asks; every check that was asked is a probe of its
    own. Parts of a disaster recovery case become the steady state before and after. Rollbacks that were carried out
    are the rollbacks.

    Raises
    ------
    UsageError
        it was a dry run.
    """
    if status.kind is RunKind.DRY:
        raise UsageError(
            f"run {status.run} was dry: nothing was done in it", hint="A journal of the Chaos Toolkit would say it was."
        )
    ended = status.ended or status.last
    before, after = _steady(status, "steady"), _steady(status, "steady_again", "data")
    runs = list(_runs(status))
    deviated = after is not None and not after["steady_state_met"]
    return {
        "chaoslib-version": FORM, "platform": f"migverify {__version__}",
        "node": status.executor_at[0] or status.runbook.environment, "experiment": _experiment(status, runs),
        "start": _iso(status.started), "end": _iso(ended), "duration": round(between(status.started, ended).seconds, 3),
        "status": _end(status, before), "deviated": deviated,
        "steady_states": {"before": before, "after": after, "during": []}, "run": runs,
        "rollbacks": list(_rollbacks(status)),
    }  # fmt: skip


def _end(status: RunStatus, before: dict[str, Any] | None) -> str:
    if not status.over:
        return "interrupted"
    if before is not None and not before["steady_state_met"]:
        return "failed"
    return _ENDS.get(status.state, "aborted")


def _experiment(status: RunStatus, runs: list[dict[str, Any]]) -> dict[str, Any]:
    book = status.runbook
    told: dict[str, Any] = {
        "version": "1.0.0", "title": book.title,
        "description": f"Runbook {book.id}, run of kind {status.kind.value} in {book.environment}.",
        "tags": [book.kind.value, status.kind.value, book.environment, book.id],
        "configuration": {}, "secrets": {}, "controls": [], "method": [one["activity"] for one in runs],
        "rollbacks": [_undo(step) for step in book.steps if step.rollback is not None],
        "extensions": [{
            "name": "migverify", "run": status.run, "runbook": book.sha, "head": status.head,
            "state": status.state.value,
        }],
    }  # fmt: skip
    if book.case is not None:
        steady = book.case.steps.get("steady")
        probes = [_probe(steady, check) for check in status.definition(steady).expect] if steady else []
        told["description"] = book.case.expectation
        told["steady-state-hypothesis"] = {"title": book.case.expectation, "probes": probes}
    return told


def _runs(status: RunStatus) -> Iterator[dict[str, Any]]:
    begun = [one for one in status.steps.values() if one.started is not None]
    for one in sorted(begun, key=lambda one: one.started.wall if one.started else 0.0):
        step = status.definition(one.id)
        for old in one.attempts:
            if old.started is not None:
                name = f"{one.id} (attempt {old.number})"
                yield _run(_activity(step, name), old.started, old.ended, ok=False, why=old.reason or old.state.value)
        yield _of_step(status, one, step)
        for told in one.evidence:
            for number, check in enumerate(told.get("checks", ())):
                yield _asked(step, check, number, one)


def _of_step(status: RunStatus, one: StepStatus, step: Step) -> dict[str, Any]:
    ok = one.state is StepState.DONE
    why = "" if ok else one.reason or one.state.value
    if one.waiver is not None:
        why = f"waived: {one.waiver.get('reason', '')}"
    texts = [str(told["text"]) for told in one.evidence if told.get("text")]
    found = _run(_activity(step, one.id), one.started or status.started, one.ended or status.last, ok=ok, why=why)
    found["output"] = clipped("; ".join(texts)) or None
    return found


def _run(activity: dict[str, Any], started: Moment, ended: Moment | None, *, ok: bool, why: str = "") -> dict[str, Any]:
    told: dict[str, Any] = {
        "activity": activity, "output": None, "start": _iso(started), "end": _iso(ended or started),
        "duration": round(between(started, ended).seconds, 3) if ended is not None else 0.0,
        "status": "succeeded" if ok else "failed",
    }  # fmt: skip
    if not ok:
        told["exception"] = [f"{why}\n"]
    return told


def _activity(step: Step, name: str) -> dict[str, Any]:
    asks = step.kind in _PROBES
    told = {
        "type": "probe" if asks else "action", "name": f"{name}: {step.title}" if step.title else name,
        "provider": _provider(step.effect, step),
    }  # fmt: skip
    return {**told, "tolerance": True} if asks else told


def _provider(effect: Effect | None, step: Step) -> dict[str, Any]:
    if effect is None:
        told = {"instruction": step.instruction, "dri": step.dri, "expects": [check_words(one) for one in step.expect]}
        return {"type": "python", "module": "migverify.runbook", "func": step.kind.value, "arguments": told}
    argv = effect.arguments.get("argv")
    if isinstance(argv, list | tuple) and argv:
        rest = [str(one) for one in argv[1:]]
        return {"type": "process", "path": str(argv[0]), "timeout": effect.timeout, "arguments": rest}
    return {
        "type": "python", "module": "migverify.runbook", "func": effect.action, "arguments": dict(effect.arguments)
    }  # fmt: skip


def _probe(step: str, check: Check) -> dict[str, Any]:
    provider = {
        "type": "python", "module": "migverify.runbook", "func": check.action, "arguments": dict(check.arguments)
    }  # fmt: skip
    return {
        "type": "probe",
        "name": f"{step}: {check_words(check)}",
        "tolerance": _tolerance(check),
        "provider": provider,
    }


def _tolerance(check: Check) -> Any:
    if check.equals is not None:
        return check.equals
    if check.minimum is not None and check.maximum is not None:
        return {"type": "range", "range": [check.minimum, check.maximum]}
    if check.maximum is not None:
        return {"type": "range", "range": [min(0, check.maximum), check.maximum]}
    return True if check.minimum is None else f"at least {check.minimum:g}"


def _asked(step: Step, told: Mapping[str, Any], number: int, one: StepStatus) -> dict[str, Any]:
    known = step.expect[number] if number < len(step.expect) else None
    if known is None or known.action != told.get("action"):
        known = Check(str(told.get("action", "")))
    at = one.ended or one.started
    ok = told.get("state") == "pass"
    words = str(told.get("text") or told.get("state", ""))
    found = _run(_probe(step.id, known), at or Moment(0.0, 0, ""), at, ok=ok, why=words)
    return {
        **found,
        "output": told.get("value") if told.get("value") is not None else clipped(words),
        "tolerance_met": ok,
    }


def _steady(status: RunStatus, *parts: str) -> dict[str, Any] | None:
    case = status.runbook.case
    if case is None:
        return None
    probes: list[dict[str, Any]] = []
    met = True
    for id_ in (case.steps[part] for part in parts if part in case.steps):
        one, step = status.steps[id_], status.definition(id_)
        met = met and one.state is StepState.DONE
        asked = [check for told in one.evidence for check in told.get("checks", ())]
        probes += [_asked(step, check, number, one) for number, check in enumerate(asked)]
        if not asked and (one.state in OVER or one.state is StepState.WAIVED):
            probes.append({**_of_step(status, one, step), "tolerance_met": False})
    return {"steady_state_met": met and bool(probes), "probes": probes}


def _rollbacks(status: RunStatus) -> Iterator[dict[str, Any]]:
    for step in status.runbook.steps:
        one = status.steps[step.id]
        if one.rollback_started is None or step.rollback is None:
            continue
        ok = one.rollback is RollbackState.UNDONE_VERIFIED
        why = one.rollback_reason or one.rollback.value
        yield _run(_undo(step), one.rollback_started, one.rollback_ended, ok=ok, why=why)


def _undo(step: Step) -> dict[str, Any]:
    effect = step.rollback.effect if step.rollback is not None else None
    return {"type": "action", "name": f"undo {step.id}", "provider": _provider(effect, step)}


def _iso(at: Moment) -> str:
    return datetime.fromtimestamp(at.wall, UTC).isoformat()
