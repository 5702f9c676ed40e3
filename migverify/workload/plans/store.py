"""Plans as a run of the store: evidence of one day, which a later run is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from migverify.model import RunInfo, Side, StoredKind, Verdict
from migverify.store.results import ResultStore, named_run
from migverify.workload.plans.drift import PlanRecord, TableRecord
from migverify.workload.plans.judge import JudgedPlans

_RULE = "plans"
_HEX = 16


def start_plans(store: ResultStore, command: str, capture: str, facts: Mapping[str, Any]) -> str:
    """Begin a run of plans; until it is finished it counts as INCONCLUSIVE."""
    return store.start_run(command, "", {"plans": capture}, {"endpoints": dict(facts)}, kind=StoredKind.PLANS)


def add_plans(store: ResultStore, run_id: str, judged: JudgedPlans, record: PlanRecord) -> None:
    """Keep the plans of one digest, what was found in them, and what they rest on."""
    body = {
        "window": "", "state": judged.state.value, "digest": judged.plans.digest, "text": judged.plans.text,
        "calls": judged.plans.calls, "seconds": judged.plans.seconds, "doubts": list(judged.doubts),
        "record": record.as_json(),
    }  # fmt: skip
    findings = [
        {"key": [judged.plans.digest, one.harm.value, one.table], "window": "", "kind": one.harm.value, **one.as_json()}
        for one in judged.findings
    ]
    store.add_window(run_id, _rule(judged.plans.digest), body, findings)


def finish_plans(store: ResultStore, run_id: str, verdict: Verdict, reasons: tuple[str, ...], seconds: float) -> None:
    """End a run of plans."""
    store.finish_run(run_id, verdict, {"reasons": list(reasons), "seconds": round(seconds, 3)})


def plans_run(store: ResultStore, name: str) -> RunInfo:
    """Return a finished run of plans; ``last`` is the newest one.

    Raises UsageError: there is none, or it is of another kind.
    """
    return named_run(store, name, StoredKind.PLANS, suits=lambda run: run.finished is not None)


def recorded(store: ResultStore, run_id: str, digest: str) -> PlanRecord | None:
    """Return what a run recorded of a digest; None where it had none."""
    body = next(store.windows(run_id, _rule(digest)), None)
    return None if body is None else PlanRecord.from_json(body["record"])


def _rule(digest: str) -> str:
    return f"{_RULE}:{digest[:_HEX]}"


def record_of(judged: JudgedPlans, version: str, tables: Mapping[str, TableRecord]) -> PlanRecord:
    """Return what a later run compares with."""
    shapes: dict[str, float] = {}
    for sample in judged.plans.samples:
        answer = sample.plans.get(Side.TARGET)
        if answer is not None and answer.plan is not None:
            shapes[answer.plan.shape] = max(answer.plan.read, shapes.get(answer.plan.shape, 0.0))
    return PlanRecord(judged.plans.digest, version, shapes, dict(tables))
