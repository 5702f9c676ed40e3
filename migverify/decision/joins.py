"""The places where further evidence joins a decision: one function each, until which the part is not known.

Each returns None where the store holds nothing of the kind for the run or the service.
"""

from __future__ import annotations

from dataclasses import dataclass

from migverify.decision.model import Basis, EvidenceReason
from migverify.model import RunInfo
from migverify.store.results import ResultStore


@dataclass(frozen=True, slots=True)
class JoinedEvidence:
    """What a join found: harm and doubts, none where all is fine; ``taken`` is when what it saw was over."""

    run: str
    taken: float | None
    began: float | None
    basis: Basis | None
    reasons: tuple[EvidenceReason, ...] = ()
    covered: str = ""


def latency_forecast(store: ResultStore, replay: RunInfo) -> JoinedEvidence | None:
    """Return the latency forecast of a replay: whether its service level holds at the captured rate, and beyond.

    A forecast that misses the level at the captured rate is harm, one that cannot be made a doubt.
    """
    del store, replay
    return None


def shadow_replay(store: ResultStore, service: Basis) -> JoinedEvidence | None:
    """Return the newest shadow replay of the service: its rolling counts of digests that differ are answers too."""
    del store, service
    return None
