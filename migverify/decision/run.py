"""The path of a decision: what is there now, what the store holds of each part, and what it comes to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from migverify.config import Config
from migverify.decision.basis import read_basis
from migverify.decision.decide import decide
from migverify.decision.model import (
    HARM_ORDER,
    Basis,
    Decision,
    DecisionEvidence,
    DecisionPart,
    DecisionRules,
    PartEvidence,
)
from migverify.decision.read import EvidenceReading, unreadable
from migverify.decision.read_parts import (
    read_anomalies,
    read_clients,
    read_conflicts,
    read_hotspots,
)
from migverify.decision.read_plans import read_plans
from migverify.decision.read_replays import read_answers, read_latency
from migverify.errors import MigverifyError, StoreError, UsageError
from migverify.store.results import ResultStore
from migverify.workload.catalogue.waivers import Waiver, load_waivers

READERS: dict[DecisionPart, Callable[[EvidenceReading], PartEvidence]] = {
    DecisionPart.ANSWERS: read_answers,
    DecisionPart.ANOMALIES: read_anomalies,
    DecisionPart.LATENCY: read_latency,
    DecisionPart.PLANS: read_plans,
    DecisionPart.HOTSPOTS: read_hotspots,
    DecisionPart.CONFLICTS: read_conflicts,
    DecisionPart.CLIENTS: read_clients,
}


def rules_of(config: Config) -> DecisionRules:
    """Return what a configuration counts as evidence."""
    settings = config.decision
    clones = tuple({"source": pair.source, "target": pair.target} for pair in settings.clones)
    return DecisionRules(frozenset(map(DecisionPart, settings.parts)), settings.max_age_days * 86_400.0, clones)


def decide_now(
    config: Config,
    store: ResultStore,
    capture: Path | None = None,
    *,
    now: float | None = None,
    options: str = "",
    offline: str = "",
) -> Decision:
    """Read servers, capture and store, and decide.

    Parameters
    ----------
    capture
        The capture of the service; default: that of the configuration.
    options
        What commands of remedies need to find the configuration.
    offline
        Why the servers are not asked; empty: they are. What is there now is not known then.

    Raises
    ------
    UsageError
        there is no capture.
    ConfigError
        the file of waivers is wrong.
    """
    folder = capture if capture is not None else None if config.decision.capture is None else Path(
        config.decision.capture)  # fmt: skip
    if folder is None:
        raise UsageError("which capture is the service's is not known",
                         hint="Name its folder, or write it under decision.capture in migverify.yaml.")  # fmt: skip
    service, unread = (None, offline) if offline else _service(config, folder)
    reading = EvidenceReading(
        store, service, rules_of(config), str(folder), waivers_of(config), config.decision.clients,
        config.decision.scenarios, options, config.workload.folder,
        levels={name: level.headroom for name, level in config.workload.service_levels.items()},
    )  # fmt: skip
    return decide(evidence(reading, time.time() if now is None else now, unread), reading.rules)


def _service(config: Config, capture: Path) -> tuple[Basis | None, str]:
    """Return what is there now, or why it cannot be read: nothing is known then, and the page says so."""
    try:
        return read_basis(config, capture), ""
    except UsageError:
        raise
    except MigverifyError as error:
        return None, f"{error.message} {error.hint or ''}".strip()


def waivers_of(config: Config) -> tuple[Waiver, ...]:
    """Return the accepted differences of a configuration that hold today; raises ConfigError."""
    return () if config.workload.waivers is None else load_waivers(Path(config.workload.waivers)).holding


def evidence(reading: EvidenceReading, now: float, unread: str = "") -> DecisionEvidence:
    """Read all parts; one that cannot be read is not known, and takes no other with it."""
    asked = replace(reading, now=now)
    return DecisionEvidence(now, reading.service, tuple(_read(part, asked) for part in HARM_ORDER), unread)


def _read(part: DecisionPart, reading: EvidenceReading) -> PartEvidence:
    try:
        return READERS[part](reading)
    except StoreError as error:
        return unreadable(part, error, "")
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # a body that this version did not write
        return unreadable(part, StoreError(f"what it holds has another form ({error!r:.200})"), "")
