"""A replay in the result store: one finding a digest, in pages, so that ten thousand digests are no burden.

The findings belong to the rule ``workload replay``; their key is the digest, their kind its weight, their body the
digest's tally and verdict. The body of the rule's one window says what the whole came to; until it says ``done`` the
replay is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from migverify.errors import StoreError
from migverify.model import NotCovered, TableResult, Verdict
from migverify.store.results import ResultStore
from migverify.workload.replay.tally import DigestTally, ReplayTally
from migverify.workload.replay.verdict import WEIGHTS, DigestVerdict, ReplayVerdict

RULE = "workload replay"
_TREND = "trend"
_AT_ONCE = 200
_PAGE = 500


def write_replay(
    store: ResultStore,
    run_id: str,
    tally: ReplayTally,
    verdict: ReplayVerdict,
    *,
    facts: Mapping[str, Any] | None = None,
    seconds: float = 0.0,
) -> None:
    """Record a replay's result; the caller then ends the run with the same verdict.

    Parameters
    ----------
    facts
        What else a report shows of the whole, as JSON values: ``slo`` (list of name, met, reasons), ``pace``,
        ``captures``, ``trend`` ...

    Raises StoreError: the store cannot be written.
    """
    by_digest = {one.digest: one for one in verdict.digests}
    findings: list[dict[str, Any]] = []
    for digest in sorted(tally.digests):
        counted = tally.digests[digest]
        if not counted.count:
            continue
        judged = by_digest.get(digest) or DigestVerdict(digest, Verdict.INCONCLUSIVE, "unjudged", ("left out by name",))
        findings.append({
            "key": [digest], "window": "", "kind": judged.weight, "tally": counted.as_json(),
            "verdict": judged.as_json(),
        })  # fmt: skip
        if len(findings) == _AT_ONCE:
            store.add_window(run_id, RULE, {"window": "", "state": "writing"}, findings)
            findings = []
    whole = {
        "coverage": dict(verdict.coverage), "verdict": verdict.verdict.value, "reasons": list(verdict.reasons),
        "latencies": {name: tally.latency(name).as_json() for name in ("source", "target")},
        "services": {name: tally.latency(f"{name}_service").as_json() for name in ("source", "target")},
        "lag": tally.lag().as_json(), **(facts or {}),
    }  # fmt: skip
    store.add_window(run_id, RULE, {"window": "", "state": "done", "replay": whole}, findings)
    store.add_table_result(run_id, _result(verdict, seconds))


def _result(verdict: ReplayVerdict, seconds: float) -> TableResult:
    coverage = verdict.coverage
    left_out = int(coverage.get("out_of_scope", 0))
    covered = (NotCovered("statements", f"{left_out} of kinds left out by name"),) if left_out else ()
    return TableResult(
        pair=RULE, source="source", target="target", verdict=verdict.verdict, reasons=verdict.reasons,
        rows_source=None, rows_target=None, chunks=0, lanes=(), missing_on_target=0, missing_on_source=0,
        value_differs=0, not_covered=covered, schema=(), seconds=seconds, details={"replay": dict(coverage)},
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredDigest:
    """A digest as the store holds it; ``verdict`` is the JSON object of its ``DigestVerdict``."""

    tally: DigestTally
    verdict: Mapping[str, Any]


def read_whole(store: ResultStore, run_id: str) -> Mapping[str, Any] | None:
    """Return what ``write_replay`` wrote of the whole; None where the replay did not get so far."""
    for body in store.windows(run_id, RULE):
        if body.get("state") == "done" and not body["window"]:
            found: Mapping[str, Any] = body["replay"]
            return found
    return None


def write_trend(store: ResultStore, run_id: str, trend: Mapping[str, Any]) -> None:
    """Record how a nightly replay compares with those before it; a window of its own, so the result stays as it is."""
    store.add_window(run_id, RULE, {"window": _TREND, "state": "done", "trend": dict(trend)}, [])


def read_trend(store: ResultStore, run_id: str) -> Mapping[str, Any]:
    """Return the trend of a nightly replay; empty for any other."""
    for body in store.windows(run_id, RULE):
        if body["window"] == _TREND:
            found: Mapping[str, Any] = body["trend"]
            return found
    return {}


def read_digests(
    store: ResultStore, run_id: str, weights: Sequence[str] = WEIGHTS, *, limit: int | None = None
) -> Iterator[StoredDigest]:
    """Yield digests, the heaviest first, at most ``limit`` of them.

    Raises StoreError: the store cannot be read, or holds what this version does not understand.
    """
    left = limit
    for weight in weights:
        after = 0
        while left is None or left > 0:
            page = store.findings(
                run_id, RULE, kinds=[weight], after=after, limit=_PAGE if left is None else min(_PAGE, left)
            )  # fmt: skip
            if not page:
                break
            for after, body in page:  # noqa: B007 - where the next page begins
                yield _digest(run_id, body)
            left = None if left is None else left - len(page)


def _digest(run_id: str, body: Mapping[str, Any]) -> StoredDigest:
    try:
        return StoredDigest(DigestTally.from_json(body["tally"]), body["verdict"])
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"run {run_id} holds a digest that cannot be read: {error}",
            hint="Another version wrote it, or the store is damaged: use that version.",
        ) from error


def count_weights(store: ResultStore, run_id: str) -> dict[str, int]:
    """Return how many digests have each weight."""
    found = store.count_findings(run_id, RULE)
    return {weight: found.get(weight, 0) for weight in WEIGHTS}
