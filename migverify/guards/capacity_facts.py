"""What the guard of capacity knows: its requirements, every endpoint, and earlier runs of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from migverify.guards.capacity_read import CapacityReading, TableSize
from migverify.guards.capacity_speed import TimeSpan, Verified, last_verified, project, verifications
from migverify.guards.scope import Route
from migverify.store.results import ResultStore


@dataclass(frozen=True, slots=True)
class Requirements:
    """What is to be judged.

    Parameters
    ----------
    window
        Seconds that all the work may take; None: it it is shown, and not judged.
    engine
        The engine that will verify: ``spark`` or ``local``.
    slots
        Tasks that will run at once.
    replay
        Seconds that the replay's capture lasts at its pace; None: as long as the last one in the store took.
    replays
        Whether a replay is part of the work.
    target_free
        Free bytes on the target, where somebody knows; None: asked of TiKV.
    replicas
        How often the target keeps each row.
    days
        How far growth is projected.
    workload_connections
        Connections of a replay to each endpoint.
    """

    window: float | None = None
    engine: str = "local"
    slots: int = 4
    replay: float | None = None
    replays: bool = False
    target_free: int | None = None
    replicas: int = 3
    days: float = 30.0
    workload_connections: int = 0


@dataclass(frozen=True, slots=True)
class SizePoint:
    """What an earlier run found at an endpoint: Unix time, rows, bytes."""

    at: float
    rows: float
    bytes: float


@dataclass
class CapacityFacts:
    """Everything the questions share; what several of them need is worked out once."""

    have: Sequence[CapacityReading]
    route: Route
    store: ResultStore
    wanted: Requirements
    history: Mapping[str, Sequence[SizePoint]]

    @property
    def sources(self) -> list[CapacityReading]:
        """The sources."""
        return [one for one in self.have if one.is_source]

    @property
    def target(self) -> CapacityReading:
        """The target."""
        return self.have[-1]

    @cached_property
    def verified(self) -> Verified | None:
        """What the newest verification counted."""
        return last_verified(self.store)

    @cached_property
    def pairs(self) -> dict[str, TableSize]:
        """Estimated sizes by table pair: the larger side's. Shards that lead to one table are one pair."""
        groups: dict[tuple[str, str], list[tuple[str, TableSize]]] = {}
        for have in self.sources:
            for name, size in (have.sizes.tables if have.sizes else {}).items():
                groups.setdefault(self.route(have.endpoint.name, *name), []).append((".".join(name), size))
        there = self.target.sizes.tables if self.target.sizes else {}
        found = {}
        for name, members in groups.items():
            pair = members[0][0] if len(members) == 1 else ".".join(name)
            theirs = there.get(name, TableSize(0, 0))
            rows, in_bytes = sum(one.rows for _, one in members), sum(one.bytes for _, one in members)
            found[pair] = TableSize(max(rows, theirs.rows), max(in_bytes, theirs.bytes))
        return found

    @cached_property
    def verification(self) -> TimeSpan | None:
        """How long a whole verification will take, of the larger of estimate and last count; None where unknown."""
        if any(one.sizes is None for one in self.have) or not self.pairs:
            return None
        counted = self.verified.source if self.verified is not None else {}
        most = {pair: TableSize(max(size.rows, counted.get(pair, 0)), size.bytes) for pair, size in self.pairs.items()}
        engine = self.wanted.engine
        return project(verifications(self.store, engine, set(most)), most, self.wanted.slots, engine)
