"""Connections of many verifications to the servers that they share: who may begin next. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from migverify.config import Config

BESIDE = 2
"""Connections to each endpoint beside those of a run's workers: one that holds a snapshot or reads the binlog, and one
that asks for a position or ends a query."""


def demand_of(config: Config) -> dict[str, int]:
    """Return the most connections that one verification opens, by server: ``host:port`` in lower case."""
    slots = max(1, min(endpoint.connections for endpoint in config.endpoints))
    found: Counter[str] = Counter()
    for endpoint in config.endpoints:
        found[f"{endpoint.host}:{endpoint.port}".lower()] += slots + BESIDE
    return dict(found)


@dataclass(slots=True)
class ConnectionBudget:
    """What is in use of each server; ``limit`` says how much may be, by ``host:port``."""

    limit: Callable[[str], int]
    used: Counter[str] = field(default_factory=Counter)

    def exceeded(self, demand: Mapping[str, int]) -> str:
        """Return why a demand can never be met; empty: it can."""
        for server, count in demand.items():
            if count > self.limit(server):
                return f"it needs {count} connections to {server}, and all services together may have"\
                    f" {self.limit(server)}"  # fmt: skip
        return ""

    def fits(self, demand: Mapping[str, int]) -> bool:
        """Whether a demand can be met now."""
        return all(self.used[server] + count <= self.limit(server) for server, count in demand.items())

    def take(self, demand: Mapping[str, int]) -> None:
        """Note connections as used; raises ValueError where they are not to be had."""
        if not self.fits(demand):
            raise ValueError("these connections are not to be had now")
        self.used.update(demand)

    def give_back(self, demand: Mapping[str, int]) -> None:
        """Note connections as free."""
        self.used.subtract(demand)


def next_to_begin(waiting: Iterable[Mapping[str, int]], budget: ConnectionBudget) -> list[int]:
    """Return the places of the demands that may begin now, and take their connections.

    The order is kept on each server: none begins on a server that an earlier one waits for, so none waits for ever.
    """
    found, awaited = [], set[str]()
    for place, demand in enumerate(waiting):
        if not awaited & demand.keys() and budget.fits(demand):
            budget.take(demand)
            found.append(place)
        else:
            awaited |= demand.keys()
    return found
