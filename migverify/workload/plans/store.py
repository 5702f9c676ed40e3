"""Plans as a run of the store: evidence of one day, which a report shows and a later run is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from migverify.model import RunInfo, Side, StoredKind, Verdict
from migverify.store.results import ResultStore, named_run
from migverify.workload.plans.drift import PlanRecord, TableRecord
from migverify.workload.plans.judge import JudgedPlans, PlanState
from migverify.workload.plans.model import Harm, PlanFinding

_RULE = "plans"


@dataclass(frozen=True, slots=True)
class StoredPlans:
    """One digest as a run keeps it. ``plans`` are texts by side, those of the sample that was explained first."""

    digest: str
    text: str
    calls: int
    seconds: float | None
    state: PlanState
    findings: tuple[PlanFinding, ...]
    doubts: tuple[str, ...]
    changed: str
    plans: Mapping[str, str]
    record: PlanRecord

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "digest": self.digest, "text": self.text, "calls": self.calls, "seconds": self.seconds,
            "state": self.state.value, "findings": [one.as_json() for one in self.findings],
            "doubts": list(self.doubts), "changed": self.changed, "plans": dict(self.plans),
            "record": self.record.as_json(),
        }  # fmt: skip

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> StoredPlans:
        """Return what ``as_json`` gave."""
        findings = tuple(
            PlanFinding(
                Harm(one["harm"]),
                str(one["table"]),
                str(one["reason"]),
                str(one["remedy"]),
                bool(one["proved"]),
                str(one["index"]),
            )
            for one in body["findings"]
        )
        return cls(
            str(body["digest"]), str(body["text"]), int(body["calls"]), body["seconds"], PlanState(body["state"]),
            findings, tuple(body["doubts"]), str(body["changed"]), dict(body["plans"]),
            PlanRecord.from_json(body["record"]),
        )  # fmt: skip


def start_plans(
    store: ResultStore, command: str, capture: str, facts: Mapping[str, Any], more: Mapping[str, Any] | None = None
) -> str:
    """Begin a run of plans; until it is finished it counts as INCONCLUSIVE.

    Parameters
    ----------
    facts
        Of each side.
    more
        Further facts of the run: what was chosen of the capture, and what it rests on.
    """
    kept = {"endpoints": dict(facts), **(more or {})}
    return store.start_run(command, "", {"plans": capture}, kept, kind=StoredKind.PLANS)


def add_plans(store: ResultStore, run_id: str, judged: JudgedPlans, record: PlanRecord) -> None:
    """Keep the plans of one digest, what was found in them, and what they rest on."""
    plans = judged.plans
    kept = StoredPlans(
        plans.digest, plans.text, plans.calls, plans.seconds, judged.state, judged.findings, judged.doubts,
        judged.changed, dict(_texts(judged)), record,
    )  # fmt: skip
    store.add_window(run_id, _RULE, {"window": plans.digest, **kept.as_json()}, [])


def _texts(judged: JudgedPlans) -> Iterator[tuple[str, str]]:
    for side in (Side.SOURCE, Side.TARGET):
        plans = (sample.plans[side].plan for sample in judged.plans.samples if side in sample.plans)
        first = next((plan for plan in plans if plan is not None), None)
        if first is not None:
            yield side.value, str(first)


def finish_plans(
    store: ResultStore, run_id: str, verdict: Verdict, reasons: tuple[str, ...], seconds: float,
    *, digests: int | None = None,
) -> None:  # fmt: skip
    """End a run of plans; ``digests``: how many it has, by which one that lost some is known."""
    counted = {} if digests is None else {"digests": digests}
    store.finish_run(run_id, verdict, {"reasons": list(reasons), "seconds": round(seconds, 3), **counted})


def plans_run(store: ResultStore, name: str) -> RunInfo:
    """Return a finished run of plans; ``last`` is the newest one.

    Raises UsageError: there is none, or it is of another kind.
    """
    return named_run(store, name, StoredKind.PLANS, suits=lambda run: run.finished is not None)


def stored_plans(store: ResultStore, run_id: str) -> Iterator[StoredPlans]:
    """Yield the digests of a run, in the order of their hashes."""
    return map(StoredPlans.from_json, store.windows(run_id, _RULE))


def record_of(judged: JudgedPlans, version: str, tables: Mapping[str, TableRecord]) -> PlanRecord:
    """Return what a later run compares with."""
    shapes: dict[str, float] = {}
    for sample in judged.plans.samples:
        answer = sample.plans.get(Side.TARGET)
        if answer is not None and answer.plan is not None:
            shapes[answer.plan.shape] = max(answer.plan.read, shapes.get(answer.plan.shape, 0.0))
    return PlanRecord(judged.plans.digest, version, shapes, dict(tables))
