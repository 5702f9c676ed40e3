"""What the guard of capacity is made of: what was read of each endpoint, what is wanted, what a question says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from migverify.errors import EndpointError, ReadError, RetryableReadError
from migverify.guards.capacity_read import Logs, Sizes, TableSize, first_words
from migverify.guards.capacity_speed import Measured, Span, Verified, last_verified, project, verifications
from migverify.guards.counters import Rate
from migverify.guards.model import State
from migverify.model import Endpoint, Flavor
from migverify.store.base import ResultStore

NAME = "capacity"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be judged.

    Parameters
    ----------
    window
        Seconds that all the work may take; None: it is told, and not judged.
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
class Point:
    """What an earlier run found at an endpoint: Unix time, rows, bytes."""

    at: float
    rows: float
    bytes: float


@dataclass(slots=True)
class Have:
    """What was read of one endpoint. What could not be read is None, and ``refused`` says why.

    ``sized`` is set as soon as its tables are known, or never will be.
    """

    endpoint: Endpoint
    flavor: Flavor | None = None
    server_time: float | None = None
    sizes: Sizes | None = None
    rates: dict[str, Rate] | None = None
    counted_by: str = ""
    logs: Logs | None = None
    log_rate: float | None = None
    connections: tuple[int, int] | None = None
    free: int | None = None
    unread: str = ""
    refused: dict[str, str] = field(default_factory=dict)
    sized: threading.Event = field(default_factory=threading.Event)

    @property
    def is_source(self) -> bool:
        """Whether this is a source of the migration."""
        return self.endpoint.name.partition(".")[0] == "source"

    def attempt(self, what: str, read: Callable[[], T]) -> T | None:
        """Return what ``read`` returns; a refusal is kept under ``what``. A lost connection is raised."""
        try:
            return read()
        except RetryableReadError:
            raise
        except (ReadError, EndpointError) as error:
            self.refused[what] = first_words(error)
            return None

    def why(self, what: str) -> str:
        """Return why something is not known."""
        return self.refused.get(what) or self.unread or "it was not told"


@dataclass(frozen=True, slots=True)
class Told:
    """What a question says of a subject. An empty text means the question's own."""

    subject: str
    state: State
    value: str
    todo: str = ""
    threshold: str = ""
    query: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Facts:
    """Everything the questions share; what several of them need is worked out once."""

    have: Sequence[Have]
    route: Callable[[str, str, str], tuple[str, str]]
    store: ResultStore
    wanted: Wanted
    calibrate: Callable[[], Measured | None]
    history: Mapping[str, Sequence[Point]]

    @property
    def sources(self) -> list[Have]:
        """The sources."""
        return [one for one in self.have if one.is_source]

    @property
    def target(self) -> Have:
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
    def spread(self) -> tuple[dict[str, TableSize], dict[str, TableSize]]:
        """The most and the least that each pair may hold: the estimate and the last count disagree."""
        most: dict[str, TableSize] = {}
        least: dict[str, TableSize] = {}
        for pair, size in self.pairs.items():
            counted = self.verified.source.get(pair) if self.verified is not None else None
            known = size.rows if counted is None else counted
            most[pair] = TableSize(max(size.rows, known), size.bytes)
            least[pair] = TableSize(min(size.rows, known), size.bytes)
        return most, least

    @cached_property
    def verification(self) -> Span | None:
        """How long a whole verification will take; None where nothing tells."""
        if any(one.sizes is None for one in self.have) or not self.pairs:
            return None
        most, least = self.spread
        engine = self.wanted.engine
        runs = verifications(self.store, engine, set(most))
        if not runs and engine != "local":
            # Threads and Spark run the same statements over as many connections: a guide, with a wide interval.
            runs = [replace(one, calibration=True) for one in verifications(self.store, "local", set(most))[:1]]
        if not runs:
            measured = self.calibrate()
            runs = [] if measured is None else [measured]
        return project(runs, most, self.wanted.slots, least, engine)
