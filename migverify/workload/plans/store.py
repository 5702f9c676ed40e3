"""Plans as a run of the store: evidence of one day, which a report shows and a later run is compared with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from migverify.errors import UsageError
from migverify.model import RunInfo, Side, StoredKind, Verdict
from migverify.store.results import ResultStore, named_run
from migverify.workload.plans.drift import PlanRecord, TableRecord
from migverify.workload.plans.judge import JudgedPlans, PlanState
from migverify.workload.plans.model import DigestPlans, Harm, PlanFinding, TrialResult

_RULE = "plans"
_OF_STATISTICS = ": ANALYZE TABLE "
_REFUSED = re.compile(r"\A(no plan of the \w+: (?:PREPARE|SHOW WARNINGS|\d+)).*", re.DOTALL)


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
    trials: tuple[TrialResult, ...] = ()
    refused: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "digest": self.digest, "text": self.text, "calls": self.calls, "seconds": self.seconds,
            "state": self.state.value, "findings": [one.as_json() for one in self.findings],
            "doubts": list(self.doubts), "changed": self.changed, "plans": dict(self.plans),
            "record": self.record.as_json(),
            **({"trials": [one.as_json() for one in self.trials]} if self.trials else {}),
            **({"refused": self.refused} if self.refused else {}),
        }  # fmt: skip

    def withheld(self) -> StoredPlans:
        """Return it without what may hold values of the capture: conditions, and the words of a server's errors."""
        findings = tuple(
            replace(one, reason=one.reason.partition(" by ")[0]) if one.harm is Harm.PUSHDOWN_LOST else one
            for one in self.findings
        )
        return replace(self, findings=findings, doubts=tuple(_REFUSED.sub(r"\1", one) for one in self.doubts))

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
            _record(body), tuple(map(TrialResult.from_json, body.get("trials", ()))), str(body.get("refused", "")),
        )  # fmt: skip


def _record(body: Mapping[str, Any]) -> PlanRecord:
    """Return the record of a digest; earlier runs kept what their plans lacked among the doubts alone."""
    record = PlanRecord.from_json(body["record"])
    if "guesses" in body["record"]:
        return record
    return replace(record, guesses=tuple(str(one) for one in body["doubts"] if _OF_STATISTICS in one))


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


SINCE_RUN = "since run"
"""Choice of a run of plans: the run that ``--since`` named, as its id; None without the option."""


def add_plans(store: ResultStore, run_id: str, judged: JudgedPlans, record: PlanRecord) -> None:
    """Keep the plans of one digest, what was found in them, and what they rest on."""
    plans = judged.plans
    kept = StoredPlans(
        plans.digest, plans.text, plans.calls, plans.seconds, judged.state, judged.findings, judged.doubts,
        judged.changed, dict(_texts(judged)), record, judged.trials, judged.refused,
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
    """Return a finished run of plans, or a replay that holds some; ``last`` is the newest run of plans.

    Raises UsageError: there is none, or it is of another kind.
    """
    if name != "last":
        info = store.load_run(name)
        if info.kind is StoredKind.REPLAY and any(stored_plans(store, info.run_id)):
            return info
    return named_run(store, name, StoredKind.PLANS, suits=lambda run: run.finished is not None)


def baseline_run(store: ResultStore, name: str) -> RunInfo | None:
    """Return the run that plans are compared with; None where ``last`` names none, as no plans were kept yet.

    Raises UsageError: there is no such run, or it is of another kind.
    """
    try:
        return plans_run(store, name)
    except UsageError:
        if name != "last":
            raise
        return None


def stored_plans(store: ResultStore, run_id: str) -> Iterator[StoredPlans]:
    """Yield the digests of a run, in the order of their hashes; a replay has those that were explained behind it."""
    return (StoredPlans.from_json(body) for body in store.windows(run_id, _RULE) if body["window"])


def note_not_asked(store: ResultStore, run_id: str, reason: str) -> None:
    """Keep why the plans of a replay's digests are not known."""
    store.add_window(run_id, _RULE, {"window": "", "state": "not asked", "reason": reason}, [])


def not_asked(store: ResultStore, run_id: str) -> str:
    """Return why the plans of a replay's digests are not known, empty where nothing says so."""
    return next((str(body["reason"]) for body in store.windows(run_id, _RULE) if not body["window"]), "")


def record_of(
    plans: DigestPlans, version: str, tables: Mapping[str, TableRecord], guesses: tuple[str, ...] = ()
) -> PlanRecord:
    """Return what a later run compares with; ``guesses`` are why the plans rest on no valid statistics."""
    shapes: dict[str, float] = {}
    for sample in plans.samples:
        answer = sample.plans.get(Side.TARGET)
        if answer is not None and answer.plan is not None:
            shapes[answer.plan.shape] = max(answer.plan.read, shapes.get(answer.plan.shape, 0.0))
    return PlanRecord(plans.digest, version, shapes, dict(tables), guesses)
