"""Connections of many verifications to the servers that they share: who may begin next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from migverify.config import Config
from migverify.db.server_state import ServerIdentity, server_identity
from migverify.db.session import open_session
from migverify.errors import MigverifyError
from migverify.fleet.definition import SAME
from migverify.model import Endpoint
from migverify.secrets import resolve_password
from migverify.tables.run_facts import pair_addresses

BESIDE = 2
"""Connections to each endpoint beside those of a run's workers: one that holds a snapshot or reads the binlog, and one
that asks for a position or ends a query."""
_ASKED = 8
"""Servers that are asked at the same time which ones they are."""


def demand_of(config: Config, names: Mapping[str, str] | None = None) -> dict[str, int]:
    """Return the most connections that one verification opens, by server.

    A server is its ``host:port`` in lower case, or what ``names`` (``server_names``) has for that.
    """
    slots = max(1, min(endpoint.connections for endpoint in config.endpoints))
    found: Counter[str] = Counter()
    for address in pair_addresses(config).values():
        found[(names or {}).get(address, address)] += slots + BESIDE
    return dict(found)


def server_names(configs: Iterable[Config]) -> dict[str, str]:
    """Ask each server which one it is, and return all addresses of it, joined by ``SAME``, by each of its addresses.

    The nodes of a TiDB cluster are one server. One that does not answer is known by its address alone.
    """
    endpoints = {pair_addresses(config)[one.name]: one for config in configs for one in config.endpoints}
    with ThreadPoolExecutor(_ASKED) as pool:
        identities = list(pool.map(_identity, endpoints.values()))
    servers: list[dict[str, ServerIdentity]] = []
    for address, identity in zip(endpoints, identities, strict=True):
        known = (one for one in servers if any(map(identity.is_same_server, one.values())))
        if (server := next(known, None)) is None:
            servers.append(server := {})
        server[address] = identity
    return {address: SAME.join(sorted(server)) for server in servers for address in server}


def _identity(endpoint: Endpoint) -> ServerIdentity:
    try:
        plain = replace(endpoint, snapshot=None, resource_group=None)
        with open_session(plain, resolve_password(endpoint).reveal() or None) as session:
            return server_identity(session, endpoint)
    except MigverifyError:
        return ServerIdentity((endpoint.host.lower(), endpoint.port))


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
