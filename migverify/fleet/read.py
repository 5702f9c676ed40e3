"""A fleet file -> the state of every service, from stores, ledgers and journals alone.

No server of the migration is asked. What cannot be read of one service is that service's reason, and no other's.
"""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from migverify.config import Config, load_config
from migverify.errors import MigverifyError, StoreError
from migverify.fleet.definition import Fleet, FleetService, FleetWave
from migverify.fleet.judge import judge, wrong_entry
from migverify.fleet.model import FleetPart, ServiceEvidence, ServiceRules, ServiceStanding, ServiceState
from migverify.fleet.second_process import beside
from migverify.fleet.stores import FleetStores, ServiceRuns, store_key
from migverify.tables.run_facts import compared_address, pair_addresses

# What one of the two processes needs alone is imported by it, while the other one works.
if TYPE_CHECKING:
    from migverify.decision.model import Decision
    from migverify.fleet.read_journals import FleetRooms, ServiceJournals
    from migverify.fleet.read_runs import RunsReading

Found = TypeVar("Found")
STORED = (
    FleetPart.PROOF, FleetPart.WATCH, FleetPart.RULES, FleetPart.DECISION, FleetPart.SCHEMA, FleetPart.IDS,
)  # fmt: skip
"""The parts whose evidence is in the result store."""


@dataclass(frozen=True, slots=True)
class ServiceView:
    """A service with its wave, its evidence and what that comes to. ``journals`` None: they cannot be read.

    ``wave`` None: the entry of the service is wrong, and names none.
    """

    service: FleetService
    wave: FleetWave | None
    evidence: ServiceEvidence
    state: ServiceState
    journals: ServiceJournals | None = None
    config: Config | None = None

    @property
    def cutover_at(self) -> float | None:
        """When its window opens, Unix seconds; None: not known."""
        return None if self.wave is None else self.wave.window.opens

    @property
    def closes(self) -> float | None:
        """When its window closes, Unix seconds; None: not known."""
        return None if self.wave is None else self.wave.window.closes

    @property
    def day(self) -> str:
        """The day of its cutover; empty: not known."""
        if self.service.date is not None:
            return str(self.service.date)
        return "" if self.wave is None else str(self.wave.window.start.date())

    @property
    def runbook_problem(self) -> str:
        """Why the runbook that is named, or its journals, cannot be read; empty: they can, or none is named."""
        is_named = self.service.runbook is not None and self.journals is None
        return self.evidence.unread.get(FleetPart.PEOPLE, "") if is_named else ""

    def cutover_is_over(self, now: float) -> bool:
        """Whether its window has closed, and it is not cut over."""
        is_over = self.closes is not None and now >= self.closes
        return is_over and self.state.standing is not ServiceStanding.CUT_OVER

    def is_tonight(self, now: float) -> bool:
        """Whether its window is open, or opens within a day."""
        if self.cutover_at is None or self.closes is None:
            return False
        return self.cutover_at - 86_400 <= now < self.closes


@dataclass(slots=True)
class _FleetReader:
    """Reads one fleet once. Make it, call ``views``."""

    fleet: Fleet
    now: float
    stores: FleetStores = field(default_factory=FleetStores)
    configs: dict[str, Config | MigverifyError] = field(default_factory=dict)

    def views(self, services: list[FleetService], meanwhile: Callable[[], object]) -> list[ServiceView]:
        self.configs.update((service.name, _config(service)) for service in self.fleet.services)
        right = [service for service in services if service.name not in self.fleet.wrong]
        groups = self._by_store(right)
        with beside(len(groups), lambda places: self._all_stored(groups, places)) as all_stored:
            from migverify.fleet.read_journals import FleetRooms

            rooms = FleetRooms()
            for service in self.fleet.services:
                if service.runbook is not None and service.name not in self.fleet.wrong:
                    rooms.announce(service.runbook)
            parts = [_PartReader(service, {}) for service in right]
            journals = [self._journals(part, rooms) for part in parts]
            meanwhile()
            try:
                stored = {one.service: one for group in all_stored() for one in group}
            except StoreError as error:
                stored = {service.name: self._unstored(service, error.message) for service in right}
        mine = iter(zip(parts, journals, strict=True))
        return [
            self._wrong(one) if one.name in self.fleet.wrong else self._view(*next(mine), stored[one.name])
            for one in services
        ]

    def _wrong(self, service: FleetService) -> ServiceView:
        """Return a service of which nothing is read, as its entry may name another store or pair than was meant."""
        fleet, name = self.fleet, service.name
        wave = next((wave for wave in fleet.waves if wave.name == service.wave), None)
        state = wrong_entry(name, fleet.path.name, fleet.wrong[name], fleet.required(service))
        return ServiceView(service, wave, ServiceEvidence(name, self.now), state)

    def _by_store(self, services: list[FleetService]) -> list[list[FleetService]]:
        """Return services by their stores: each one is opened once, by one process."""
        groups: dict[tuple[str, str], list[FleetService]] = {}
        for service in services:
            config = self.configs[service.name]
            key = store_key(service, config) if isinstance(config, Config) else (service.name, "")
            groups.setdefault(key, []).append(service)
        return list(groups.values())

    def _all_stored(
        self, groups: list[list[FleetService]], places: Iterable[int]
    ) -> dict[int, list[ServiceEvidence]]:  # fmt: skip
        """Return what stores say of the services of some groups, by the places of these."""
        pairs, found = Counter(map(self._pair, self.fleet.services)), {}
        for place in places:
            with closing(self.stores):
                found[place] = [
                    self._stored(service, is_alone=pairs[self._pair(service)] <= 1) for service in groups[place]
                ]
        return found

    def _pair(self, service: FleetService) -> tuple[str, frozenset[tuple[str, str]]]:
        """Return what two services must not share for runs without a configuration to be of one of them."""
        config = self.configs[service.name]
        if not isinstance(config, Config):
            return service.name, frozenset()
        return service.store or config.store.url, frozenset(pair_addresses(config).items())

    def _view(
        self, part: _PartReader, journals: ServiceJournals | None, stored: ServiceEvidence
    ) -> ServiceView:  # fmt: skip
        service = part.service
        wave, config = self.fleet.wave(service.wave), self.configs[service.name]
        part.unread.update(stored.unread)
        if isinstance(config, MigverifyError):
            part.unread[FleetPart.DRILLS] = config.message
        known = config if isinstance(config, Config) else None
        found = self._from_journals(service, known, stored, part, journals)
        found = replace(found, unread=dict(part.unread), unread_remedies=_remedies(service, known))
        return ServiceView(service, wave, found, judge(found, rules_of(self.fleet, service)), journals, known)

    def _journals(self, part: _PartReader, rooms: FleetRooms) -> ServiceJournals | None:
        book, config = part.service.runbook, self.configs[part.service.name]
        if book is None:
            return None
        known = config if isinstance(config, Config) else None
        return part.try_read((FleetPart.DRILLS, FleetPart.PEOPLE), lambda: rooms.of(book, known))

    def _unstored(self, service: FleetService, problem: str) -> ServiceEvidence:
        """Return the evidence of a service of whose store nothing is known."""
        closes = self.fleet.wave(service.wave).window.closes
        unread = dict.fromkeys(STORED, problem)
        return ServiceEvidence(service.name, self.now, unread=unread, options=options_of(service), closes=closes)

    def _stored(self, service: FleetService, *, is_alone: bool) -> ServiceEvidence:
        from migverify.fleet import read_runs as runs

        config = self.configs[service.name]
        if isinstance(config, MigverifyError):
            return self._unstored(service, config.message)
        opened = self.stores.of(service, config)
        if opened.store is None:
            return self._unstored(service, opened.problem)
        part = _PartReader(service, {})
        reading = runs.RunsReading(
            config, opened.store, ServiceRuns.of(config, opened, is_alone=is_alone), self.now, options_of(service)
        )
        oldest = self.fleet.evidence_max_age
        with opened.store.one_reading(reading.runs.rehearsed):
            found = replace(
                self._unstored(service, ""),
                verifications=part.try_read((FleetPart.PROOF,), lambda: runs.read_verifications(reading)) or (),
                watch=part.try_read((FleetPart.WATCH,), lambda: runs.read_watch(reading)),
                rules=part.try_read((FleetPart.RULES,), lambda: runs.read_rules(reading)),
                decision=part.try_read((FleetPart.DECISION,), lambda: _decision(reading, oldest)),
                schema=part.try_read((FleetPart.SCHEMA,), lambda: runs.read_schema(reading)),
                ids=part.try_read((FleetPart.IDS,), lambda: runs.read_ids(reading)),
            )
        return replace(found, unread=part.unread)

    def _from_journals(
        self, service: FleetService, config: Config | None, found: ServiceEvidence, part: _PartReader,
        journals: ServiceJournals | None,
    ) -> ServiceEvidence:  # fmt: skip
        if journals is None:
            return found
        from migverify.fleet import read_journals as read

        done = read.completed_cutover(journals)
        doubt = "" if done is None else read.cutover_doubt(journals, done)
        cut_over = None if done is None or doubt else (done.run, done.ended or done.started)
        people = part.try_read((FleetPart.PEOPLE,), lambda: read.read_people(service, journals.runbook))
        drills = None
        if config is not None:
            fingerprint = self._fingerprint(found)
            drills = part.try_read(
                (FleetPart.DRILLS,), lambda: read.read_drills(journals, config, self.now, fingerprint, found.decision)
            )
        return replace(found, cut_over=cut_over, cut_over_doubt=doubt, people=people, drills=drills)

    def _fingerprint(self, found: ServiceEvidence) -> str:
        """Return the fingerprint of the definitions of now; empty where the answers about them are too old."""
        schema = found.schema
        if schema is None or schema.taken is None or not schema.taken >= self.now - self.fleet.evidence_max_age:
            return ""
        return schema.fingerprint


@dataclass(slots=True)
class _PartReader:
    """Reads parts of a service; what fails is the reason of these parts alone."""

    service: FleetService
    unread: dict[FleetPart, str]

    def try_read(self, parts: tuple[FleetPart, ...], read: Callable[[], Found]) -> Found | None:
        """Return what a reader returns; None where it fails, with the reason noted."""
        try:
            return read()
        except MigverifyError as error:
            problem = error.message
        except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
            # Of a release that keeps it in another form, or a file that is gone meanwhile.
            problem = f"what is kept has another form ({error!r:.200})"
        self.unread.update(dict.fromkeys(parts, problem))
        return None


def _remedies(service: FleetService, config: Config | None) -> dict[FleetPart, str]:
    """Return the command that makes each part readable, or says in full why it is not."""
    remedies = dict.fromkeys(STORED, f"migverify tables verify{options_of(service)}")
    if (book := service.runbook) is not None:
        more = "".join(f" --set {shlex.quote(f'{name}={value}')}" for name, value in book.parameters.items())
        checked = f"migverify runbook check {shlex.quote(book.path)} -e {shlex.quote(book.environment)}{more}"
        remedies |= dict.fromkeys((FleetPart.DRILLS, FleetPart.PEOPLE), checked)
    if config is None:
        remedies |= dict.fromkeys((*STORED, FleetPart.DRILLS), f"migverify config{options_of(service, store=False)}")
    return remedies


def _config(service: FleetService) -> Config | MigverifyError:
    try:
        return load_config(Path(service.config))
    except MigverifyError as error:
        return error


def _decision(reading: RunsReading, most_age: float) -> Decision | None:
    if reading.config.decision.capture is None:
        return None
    from migverify.fleet.read_decision import read_decision

    return read_decision(reading, most_age)


def options_of(service: FleetService, *, store: bool = True) -> str:
    """Return the options by which a command means this service; ``store`` False: without its store."""
    own = "" if service.store is None or not store else f" --store {shlex.quote(service.store)}"
    return f" --config {shlex.quote(service.config)}{own}"


def read_fleet(
    fleet: Fleet, *, now: float | None = None, wanted: Callable[[FleetService], Any] = lambda _: True,
    meanwhile: Callable[[], object] = lambda: None,
) -> list[ServiceView]:  # fmt: skip
    """Return the state of the services that are wanted, in the order of the file.

    ``meanwhile`` is called when journals are read and stores may not be: another process is at these.
    """
    reader = _FleetReader(fleet, time.time() if now is None else now)
    return reader.views([service for service in fleet.services if wanted(service)], meanwhile)


def fleet_warnings(fleet: Fleet, views: Sequence[ServiceView]) -> list[str]:
    """Return what of the file is probably not meant: its own warnings, and limits of servers that no service has.

    None of these where a service is not among the views, or its configuration cannot be read: the server may be one
    of it.
    """
    configs = {view.service.name: view.config for view in views if view.config is not None}
    known = {compared_address(f"{one.host}:{one.port}") for each in configs.values() for one in each.all_endpoints}
    is_whole = configs.keys() == {service.name for service in fleet.services}
    return fleet.warnings + [
        f"limits.connections names {server}, and no service has this server"
        for server in fleet.limits.connections if is_whole and compared_address(server) not in known
    ]  # fmt: skip


def rules_of(fleet: Fleet, service: FleetService) -> ServiceRules:
    """Return what counts for a service."""
    return ServiceRules(
        fleet.required(service), fleet.proof_max_age, fleet.evidence_max_age, fleet.limits.watch_lag,
        whole_read_max_age=fleet.whole_read_max_age,
    )  # fmt: skip


def read_proof(fleet: Fleet, service: FleetService, now: float) -> ServiceEvidence:
    """Return what the store of one service says of its verifications, and nothing else."""
    from migverify.fleet.read_runs import RunsReading, read_verifications

    reader, found = _FleetReader(fleet, now), ServiceEvidence(service.name, now)
    config = _config(service)
    if isinstance(config, MigverifyError):
        return replace(found, unread={FleetPart.PROOF: config.message})
    with closing(reader.stores):
        opened = reader.stores.of(service, config)
        if opened.store is None:
            return replace(found, unread={FleetPart.PROOF: opened.problem})
        runs = ServiceRuns.of(config, opened, is_alone=False)
        part = _PartReader(service, {})
        reading = RunsReading(config, opened.store, runs, now)
        verifications = part.try_read((FleetPart.PROOF,), lambda: read_verifications(reading)) or ()
    return replace(found, verifications=verifications, unread=dict(part.unread))
