"""Which tables of which servers a guard asks about: one definition for all guards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from migverify.config import Config, comparison_digest, includes, route, unmatched_includes
from migverify.model import Endpoint
from migverify.secrets import resolve_password
from migverify.sql.fingerprint import Renamed
from migverify.tables.run_facts import pair_addresses

CONFIGURATION = "configuration"
"""The fact of a run that holds the digest of what its configuration compares."""
Route = Callable[[str, str, str], tuple[str, str]]
"""(endpoint, database, table) of a source -> (database, table) on the target."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The endpoints of a configuration and the tables in scope; ``secrets`` are passwords by endpoint name."""

    config: Config
    secrets: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, config: Config, *, others: bool = False) -> Scope:
        """Return the scope of a configuration; ``others`` adds the endpoints that only rules read.

        Raises
        ------
        ConfigError
            a password cannot be read.
        """
        return cls(
            config,
            {e.name: resolve_password(e).reveal() for e in (config.all_endpoints if others else config.endpoints)},
        )

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """All sources, then the target."""
        return self.config.endpoints

    @property
    def servers(self) -> dict[str, str]:
        """The addresses of the migration's endpoints, by their names, as addresses are compared."""
        return pair_addresses(self.config)

    @property
    def others(self) -> tuple[Endpoint, ...]:
        """Further endpoints that are asked about themselves, not about tables."""
        return tuple(e for e in self.config.others if e.name in self.secrets)

    def password(self, endpoint: Endpoint) -> str | None:
        """Return the password of an endpoint; None where it has none."""
        return self.secrets.get(endpoint.name) or None

    def renamed(self, endpoint: str) -> Renamed:
        """Return how names of an endpoint become names of the target."""
        if endpoint == self.config.target.name:
            return lambda database, table: (database, table)
        return lambda database, table: self.route(endpoint, database, table)

    def route(self, endpoint: str, database: str, table: str) -> tuple[str, str]:
        """Return (database, table) on the target of a source's table."""
        return route(self.config, endpoint.partition(".")[2], database, table)

    def led_to(self, names: Iterable[tuple[str, str, str]]) -> Callable[[str, str], bool]:
        """Return whether a table of the target is one that sources' (endpoint, database, table) lead to.

        Case does not count: TiDB finds names in any.
        """
        folded = {tuple(part.lower() for part in self.route(*name)) for name in names}
        return lambda database, table: (database.lower(), table.lower()) in folded

    def wanted(self, database: str, table: str) -> bool:
        """Whether a source's table takes part."""
        return includes(self.config, database, table)

    def unmatched(self, names: Iterable[tuple[str, str]]) -> list[str]:
        """Return the patterns of ``tables.include`` that match none of these (database, table)."""
        return [pattern.text for pattern in unmatched_includes(self.config, names)]

    def facts(self) -> dict[str, object]:
        """Return what a run keeps of the endpoints it asked, and of the configuration."""
        endpoints = (*self.endpoints, *self.others)
        addresses = {e.name: {"address": f"{e.host}:{e.port}"} for e in endpoints}
        return {"endpoints": addresses, CONFIGURATION: comparison_digest(self.config)}
