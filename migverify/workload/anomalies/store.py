"""Anomalies as a run of the store: what both histories showed, and the replay that recorded them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from migverify.errors import StoreError
from migverify.model import StoredKind, Verdict
from migverify.store.results import ResultStore
from migverify.workload.anomalies.compare import AnomalyComparison, PermittedBy

KEPT_OF_REPLAY = ("endpoints", "basis")
"""Facts of a replay that its histories rest on as well."""
SIDES = "sides"
"""Fact of a run: the sides that the two histories name, in their order; empty texts where they name none."""
BOTH_SIDES = ["source", "target"]
_RULE = "anomalies"
_AT_ONCE = 200
_PAGE = 500


@dataclass(frozen=True, slots=True)
class StoredAnomaly:
    """One anomaly as a run keeps it; ``body`` is the JSON object of the ``JudgedAnomaly``."""

    permitted: PermittedBy
    name: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoredComparison:
    """What a run says of the whole: ``anomalies`` is how many there were, ``usable`` the share that was required."""

    verdict: Verdict
    reasons: tuple[str, ...]
    anomalies: int
    usable: float
    source: Mapping[str, Any]
    target: Mapping[str, Any]


def store_anomalies(
    store: ResultStore, command: str, compared: AnomalyComparison, facts: Mapping[str, Any],
    *, usable: float, replay: str, seconds: float,
) -> str:  # fmt: skip
    """Keep a comparison as a run of its own, and return its id.

    Parameters
    ----------
    facts
        What is known of the replay that recorded both histories: endpoints, and what it rests on.
    usable
        The share of reads that had to be usable.
    replay
        The run of that replay; empty: the histories do not say, or name two.
    """
    plan = {"anomalies": {"replay": replay, "usable": usable}}
    run_id = store.start_run(command, "", plan, {**facts, "replay": replay}, kind=StoredKind.ANOMALIES)
    body = compared.as_json()
    judged = body.pop("anomalies")
    whole = {**body, "anomalies": len(judged), "usable": usable}
    findings = [
        {"key": [f"{number:09}"], "window": "", "kind": one["permitted_by"], "anomaly": one}
        for number, one in enumerate(judged)
    ]
    while len(findings) > _AT_ONCE:
        store.add_window(run_id, _RULE, {"window": "", "state": "writing"}, findings[:_AT_ONCE])
        findings = findings[_AT_ONCE:]
    store.add_window(run_id, _RULE, {"window": "", "state": "done", "comparison": whole}, findings)
    store.finish_run(run_id, compared.verdict, {"reasons": list(compared.reasons), "seconds": round(seconds, 3)})
    return run_id


def stored_comparison(store: ResultStore, run_id: str) -> StoredComparison | None:
    """Return what a run says of the whole; None where it did not get so far.

    Raises StoreError: it cannot be read.
    """
    for window in store.windows(run_id, _RULE):
        if window.get("state") == "done":
            try:
                body = window["comparison"]
                return StoredComparison(
                    Verdict(body["verdict"]), tuple(map(str, body["reasons"])), int(body["anomalies"]),
                    float(body["usable"]), dict(body["source"]), dict(body["target"]),
                )  # fmt: skip
            except (KeyError, TypeError, ValueError) as error:
                raise _damaged(run_id, error) from error
    return None


def stored_anomalies(store: ResultStore, run_id: str) -> Iterator[StoredAnomaly]:
    """Yield the anomalies of a run: those that the target alone permitted first.

    Raises StoreError: they cannot be read.
    """
    for permitted in PermittedBy:
        after = 0
        while page := store.findings(run_id, _RULE, kinds=[permitted.value], after=after, limit=_PAGE):
            for number, finding in page:
                after = number
                try:
                    yield StoredAnomaly(permitted, str(finding["anomaly"]["name"]), finding["anomaly"])
                except (KeyError, TypeError) as error:
                    raise _damaged(run_id, error) from error


def _damaged(run_id: str, error: Exception) -> StoreError:
    return StoreError(
        f"run {run_id} holds anomalies that cannot be read: {error}",
        hint="Another version wrote it, or the store is damaged: compare the histories again.",
    )
