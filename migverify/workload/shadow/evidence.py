"""A shadow replay in the result store, for pages that read stored evidence only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from migverify.model import RunInfo, Verdict
from migverify.store.results import ResultStore
from migverify.workload.shadow.status import ShadowStatus

RULE = "workload shadow"


@dataclass(frozen=True, slots=True)
class ShadowEvidence:
    """The last recorded status of a shadow replay. ``digests`` and ``hours`` are those of ``ShadowStatus``, as JSON.

    ``is_over`` says that it ended in order; a run that is killed leaves its last status of some minutes before.
    """

    run_id: str
    log: str
    at: float
    verdict: Verdict
    reasons: tuple[str, ...]
    counts: Mapping[str, int]
    digests_by_verdict: Mapping[str, int]
    digests: tuple[Mapping[str, Any], ...]
    hours: tuple[Mapping[str, Any], ...]
    is_over: bool


def write_shadow(store: ResultStore, run_id: str, status: ShadowStatus) -> None:
    """Record a status; a later one supersedes it."""
    body = {"window": "", "state": "done" if status.final else "running", "shadow": status.as_dict()}
    store.add_window(run_id, RULE, body, [])


def load_shadow(store: ResultStore, run: RunInfo | str) -> ShadowEvidence | None:
    """Return the last recorded status of a shadow replay; None where the run is none, or recorded none yet.

    Raises StoreError: the store cannot be read.
    """
    run_id = run if isinstance(run, str) else run.run_id
    for body in store.windows(run_id, RULE):
        return evidence_of(run_id, body["shadow"])
    return None


def evidence_of(run_id: str, status: Mapping[str, Any]) -> ShadowEvidence:
    """Return a status, as JSON, as evidence."""
    return ShadowEvidence(
        run_id, status["log"], status["at"], Verdict(status["verdict"]), tuple(status["reasons"]), status["counts"],
        status["digests_by_verdict"], tuple(status["digests"]), tuple(status["hours"]), status["final"],
    )  # fmt: skip
