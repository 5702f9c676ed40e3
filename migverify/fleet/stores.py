"""The stores that services share: each is opened once, its runs are listed once, and a broken one breaks no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from migverify.config import Config, comparison_digest
from migverify.decision.differences import run_addresses
from migverify.errors import MigverifyError, StoreError
from migverify.fleet.definition import FleetService
from migverify.guards.scope import CONFIGURATION
from migverify.model import RunInfo, StoredKind
from migverify.store.open import open_configured
from migverify.store.results import RUNS_SEARCHED, ResultStore
from migverify.tables.run_facts import compared_address

Addresses = frozenset[tuple[str, str]]
"""Names of endpoints with their ``host:port``."""


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """A store that services share. ``problem`` says why nothing of it is known; empty: ``store`` and ``runs`` are.

    ``runs`` are in the order of the store, the newest first; ``places`` are their places by the endpoints they name.
    """

    store: ResultStore | None
    runs: tuple[RunInfo, ...] = ()
    places: Mapping[Addresses, list[int]] = field(default_factory=dict)
    problem: str = ""

    def of(self, wanted: Callable[[Addresses], bool]) -> tuple[RunInfo, ...]:
        """Return the runs whose endpoints are wanted, the newest first."""
        chosen = [place for named, places in self.places.items() if wanted(named) for place in places]
        return tuple(self.runs[place] for place in sorted(chosen))


def store_key(service: FleetService, config: Config) -> tuple[str, str]:
    """Return what services that share a store have in common: its URL, and who opens it."""
    return service.store or config.store_url, service.store_password_env or config.store_password_env or ""


@dataclass(slots=True)
class FleetStores:
    """Opens stores when they are first needed. ``close`` closes them all."""

    _opened: dict[tuple[str, str], OpenedStore] = field(default_factory=dict)

    def of(self, service: FleetService, config: Config) -> OpenedStore:
        """Return the store of a service; one that cannot be read says why."""
        key = store_key(service, config)
        if key not in self._opened:
            self._opened[key] = _open(service, config)
        return self._opened[key]

    def close(self) -> None:
        """Close all stores."""
        for one in self._opened.values():
            if one.store is not None:
                one.store.close()
        self._opened.clear()


def _open(service: FleetService, config: Config) -> OpenedStore:
    try:
        store = open_configured(config, service.store, variable=service.store_password_env, create=False)
    except MigverifyError as error:
        return OpenedStore(None, problem=error.message)
    try:
        runs = tuple(store.runs(RUNS_SEARCHED))
    except StoreError as error:
        store.close()
        return OpenedStore(None, problem=error.message)
    places: dict[Addresses, list[int]] = {}
    for place, run in enumerate(runs):
        places.setdefault(frozenset(run_addresses(run).items()), []).append(place)
    return OpenedStore(store, runs, places)


@dataclass(frozen=True, slots=True)
class ServiceRuns:
    """The runs of a store that are of one service, the newest first; ``rehearsed`` with those of its clones.

    A run is of the service when all endpoints that it names are those of the configuration. Runs also say which
    configuration they are of; where another service has the same endpoints in the same store, those of guards and
    rules that do not are nobody's (``is_alone`` is False).
    """

    runs: tuple[RunInfo, ...]
    rehearsed: tuple[RunInfo, ...]
    digest: str
    is_alone: bool = True

    @classmethod
    def of(cls, config: Config, opened: OpenedStore, *, is_alone: bool) -> ServiceRuns:
        """Choose the runs of a service."""
        known = {
            (endpoint.name, compared_address(f"{endpoint.host}:{endpoint.port}")) for endpoint in config.all_endpoints
        }
        clones = [
            {("source", compared_address(pair.source)), ("target", compared_address(pair.target))}
            for pair in config.decision.clones
        ]
        mine = opened.of(lambda named: bool(named) and named <= known)
        more = opened.of(lambda named: bool(named) and (named <= known or named in clones)) if clones else mine
        return cls(mine, more, comparison_digest(config), is_alone)

    def of_kind(self, kind: StoredKind) -> Iterator[RunInfo]:
        """Yield its runs of a kind."""
        return (run for run in self.runs if run.kind is kind)

    def answers(self, kind: StoredKind) -> Iterator[RunInfo]:
        """Yield its runs of rules or guards that are of its configuration, or can be of no other."""
        for run in self.of_kind(kind):
            configuration = run.facts.get(CONFIGURATION)
            if configuration == self.digest or (configuration is None and self.is_alone):
                yield run
