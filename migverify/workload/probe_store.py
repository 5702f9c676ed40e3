"""Probes as a run of the store: what was found, and how a replay reads it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from migverify.errors import UsageError
from migverify.model import RunInfo, Side, StoredKind, Verdict
from migverify.store.results import ResultStore
from migverify.workload.catalogue.model import ProbeState
from migverify.workload.catalogue.versions import KnownServer
from migverify.workload.probe import RULE, ProbeResult

COMMAND = "workload probe"


def start_probe(
    store: ResultStore, endpoints: dict[Side, str], servers: dict[Side, KnownServer], ids: Sequence[str]
) -> str:
    """Begin a run of probes; until it is finished it counts as INCONCLUSIVE."""
    facts: dict[str, Any] = {
        "endpoints": {side.value: {"address": address} for side, address in endpoints.items()},
        "versions": {side.value: server.text for side, server in servers.items()},
    }
    return store.start_run(COMMAND, "", {"probe": list(ids)}, facts, kind=StoredKind.PROBE)


def add_probe(store: ResultStore, run_id: str, result: ProbeResult) -> None:
    """Keep one entry's result; a blocker that holds is kept as a finding too."""
    rule = f"{RULE}:{result.entry.id}"
    body = {"window": "", **result.as_json()}
    findings = []
    if result.blocks:
        findings.append({"key": [result.entry.id], "window": "", "kind": "blocker", "reason": result.entry.title})
    store.add_window(run_id, rule, body, findings)


def probe_states(store: ResultStore, run_id: str) -> dict[str, ProbeState]:
    """Return what a run of probes found, by entry.

    Raises
    ------
    UsageError
        the run is none of probes.
    """
    run = store.load_run(run_id)
    ids = run.plan.get("probe")
    if run.kind is not StoredKind.PROBE or not isinstance(ids, list):
        raise UsageError(f"the run {run.run_id} is none of `migverify workload probe`")
    found: dict[str, ProbeState] = {}
    for identity in ids:
        for body in store.windows(run.run_id, f"{RULE}:{identity}"):
            found[identity] = ProbeState(body["state"])
    return found


def last_probe(store: ResultStore, addresses: Mapping[str, str] | None = None) -> RunInfo | None:
    """Return the newest finished run of probes, None where there is none.

    ``addresses`` (``host:port`` by ``source`` and ``target``) takes only a run on these servers.
    """
    for run in store.runs(500):
        if run.kind is not StoredKind.PROBE or run.finished is None:
            continue
        known = {name: end.get("address") for name, end in run.facts.get("endpoints", {}).items()}
        if addresses is None or known == dict(addresses):
            return run
    return None


def probed_here(store: ResultStore, addresses: Mapping[str, str]) -> dict[str, ProbeState]:
    """Return what the newest run of probes on these servers found, empty where there is none: for ``label``."""
    run = last_probe(store, addresses)
    return {} if run is None else probe_states(store, run.run_id)


def finish_probe(store: ResultStore, run_id: str, verdict: Verdict, reasons: Sequence[str], seconds: float) -> None:
    """End a run of probes."""
    store.finish_run(run_id, verdict, {"reasons": list(reasons), "seconds": round(seconds, 3)})
