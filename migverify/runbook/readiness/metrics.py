"""A readiness watch as metrics, a line and a JSON object."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from migverify.exposition import Metric, number
from migverify.model import NextStep, judged_document
from migverify.runbook.history.readiness import INCONCLUSIVE, NOT_READY, READY, Condition
from migverify.runbook.readiness.evaluation import ConditionChange
from migverify.runbook.readiness.watch import ReadinessStatus

__all__ = ["change_line", "condition_line", "heartbeat", "readiness_metrics", "status_as_json"]

_VERDICTS = {READY: "0", NOT_READY: "1", INCONCLUSIVE: "3"}
_STATES = {"ok": "0", "missing": "1", "weaker": "2", "unknown": "3"}


def readiness_metrics(status: ReadinessStatus, every: float) -> Iterator[Metric]:
    """Yield gauges: the verdict and each condition as 0 ok, 1 missing, 2 weaker, 3 unknown; ``NaN`` is not asked."""
    found = status.evaluation
    of = {"service": found.service, "runbook": found.runbook, "environment": found.environment}
    yield Metric("migverify_readiness_verdict", "0 ready, 1 not ready, 3 not known.", [(of, _VERDICTS[found.verdict])])
    yield Metric("migverify_readiness_condition", "0 ok, 1 missing, 2 weaker, 3 unknown; NaN is not asked.",
                 [({**of, "condition": one.id}, _STATES.get(one.state, "NaN"))
                  for one in found.conditions])  # fmt: skip
    yield Metric("migverify_readiness_evaluations", "Evaluations of this watch.", [(of, number(status.number))])
    yield Metric("migverify_readiness_evaluated_timestamp_seconds",
                 "Unix time of the last evaluation: alert when it is old.", [(of, f"{found.at:.3f}")])  # fmt: skip
    yield Metric("migverify_readiness_every_seconds", "Time between two evaluations.", [(of, number(every))])
    yield Metric("migverify_readiness_undelivered", "Announcements that a sink has not taken yet.",
                 [(of, number(status.undelivered))])  # fmt: skip
    yield Metric("migverify_readiness_given_up", "Announcements that a sink never took.",
                 [(of, number(status.given_up))])  # fmt: skip


def heartbeat(status: ReadinessStatus) -> str:
    """Return one line of an evaluation: that it was made, and what keeps the service from being ready."""
    found = status.evaluation
    names = ", ".join(one.id for one in found.bad)
    waiting = f"; announcements not delivered: {status.undelivered}" if status.undelivered else ""
    lost = f"; given up: {status.given_up}" if status.given_up else ""
    of = f"{len(found.conditions)} conditions" + (f", bad: {names}" if names else "")
    return f"{_clock(found.at)} {found.service} {found.environment}: {found.verdict.upper()} ({of}){waiting}{lost}"


def condition_line(condition: Condition) -> Iterator[str]:
    """Yield a condition that is not met: its state, its reasons, and what to do."""
    yield f"  {condition.state.upper():<8}{condition.id}: {condition.wants}"
    yield from (f"            {reason}" for reason in condition.reasons or (condition.found,))
    if condition.do:
        yield f"            > {condition.do}"


def change_line(change: ConditionChange) -> str:
    """Return one line of what changed."""
    return f"  {change.before or 'new'} -> {change.condition.state}  {change.condition.id}: {'; '.join(change.reasons)}"


def status_as_json(status: ReadinessStatus, steps: Iterable[NextStep] = ()) -> dict[str, Any]:
    """Return one line of ``--watch --json``; ``steps`` are the next commands."""
    found = status.evaluation
    return judged_document({
        "at": found.at, "number": status.number, "runbook": found.runbook, "service": found.service,
        "environment": found.environment, "verdict": found.verdict,
        "conditions": [
            {"id": one.id, "state": one.state, "wants": one.wants, "found": one.found, "reasons": list(one.reasons),
             "do": one.do}
            for one in found.conditions
        ],
        "changes": [one.as_json() for one in status.changes],
        "undelivered": status.undelivered, "given_up": status.given_up,
    }, steps)  # fmt: skip


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
