"""From the runs of a service to the decision about its replays and plans, as ``workload decision`` makes it.

Apart from the other readers: it loads all of replay, and many services have no capture.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from migverify.decision.basis import capture_identity, configuration_digest
from migverify.decision.decide import decide
from migverify.decision.differences import same_pair
from migverify.decision.model import Basis, Decision, basis_of
from migverify.decision.read import EvidenceReading
from migverify.decision.run import evidence as decision_evidence
from migverify.decision.run import rules_of, waivers_of
from migverify.errors import MigverifyError
from migverify.fleet.read_runs import RunsReading
from migverify.tables.run_facts import pair_addresses


def read_decision(reading: RunsReading, most_age: float) -> Decision | None:
    """Return the decision by what stores hold; None where the configuration names no capture.

    What is there now is what the newest run of the pair says of versions and definitions, where that is young enough,
    with the configuration and the capture as they are now.
    """
    config = reading.config
    if config.decision.capture is None:
        return None
    capture = Path(config.decision.capture)
    service, unread = _basis(reading, capture, most_age)
    evidence = EvidenceReading(
        reading.store, service, rules_of(config), str(capture), waivers_of(config), config.decision.clients,
        config.decision.scenarios, reading.options, config.workload.folder, reading.runs.rehearsed,
    )  # fmt: skip
    return decide(decision_evidence(evidence, reading.now, unread), evidence.rules)


def _basis(reading: RunsReading, capture: Path, most_age: float) -> tuple[Basis | None, str]:
    pair = pair_addresses(reading.config)
    for run in reading.runs.runs:
        basis = basis_of(run.facts)
        if basis is None or not same_pair(basis.pair, pair):
            continue
        if not run.started >= reading.now - most_age:
            return None, f"the newest run that read the servers' definitions for a decision, {run.run_id}, is too old"
        try:
            identity = capture_identity(capture)
        except MigverifyError as error:
            return None, error.message
        return replace(basis, configuration=configuration_digest(reading.config), capture=identity), ""
    return None, "no run in the store says which definitions the servers have"
