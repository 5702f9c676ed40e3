"""From runbooks and the journals of their runs to evidence: drills, the people of the night, the cutover itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from migverify.config import Config
from migverify.decision.model import Decision
from migverify.errors import MigverifyError
from migverify.fleet.definition import FleetService, ServiceRunbook
from migverify.fleet.model import DrillsEvidence, PeopleEvidence
from migverify.runbook.definition.expand import Source, read_source
from migverify.runbook.definition.load import case_priorities, load_runbook, step_shapes
from migverify.runbook.events import RunState
from migverify.runbook.history.drills import of_this_runbook, why_unclean
from migverify.runbook.history.past import Past, PastRun, past_runs
from migverify.runbook.history.readiness import readiness, rolls_back, wanted_runbooks
from migverify.runbook.kinds import RunKind
from migverify.runbook.model import Runbook
from migverify.runbook.record.run_store import open_run_store

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class ServiceJournals:
    """A runbook, and what the journals of its room say; ``past`` has what concerns this runbook alone.

    ``shapes`` are hashes of the steps without parameters, by their ids: equal over instances of a template.
    """

    runbook: Runbook
    past: Past
    cases: Mapping[str, str] | None = None
    shapes: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class FleetRooms:
    """Reads each runbook and each room of journals once; a room or file that cannot be read breaks no other.

    ``wanted`` are the runbooks that services of the fleet look for, by room: a room is read for all of them at once.
    """

    _sources: dict[str, Source] = field(default_factory=dict)
    _books: dict[str, Runbook | MigverifyError] = field(default_factory=dict)
    _pasts: dict[str, Past | MigverifyError] = field(default_factory=dict)
    _wanted: dict[str, set[str]] = field(default_factory=dict)
    _cases: dict[str, Mapping[str, str] | MigverifyError | None] = field(default_factory=dict)

    def announce(self, part: ServiceRunbook) -> None:
        """Note which runbooks a service looks for, before rooms are read."""
        book = self._book(part)
        if isinstance(book, Runbook):
            self._wanted.setdefault(part.runs, set()).update(wanted_runbooks(book))

    def of(self, part: ServiceRunbook, config: Config | None) -> ServiceJournals:
        """Return the runbook of a service and what journals say of it.

        Raises
        ------
        MigverifyError
            the runbook, the room or the cases cannot be read.
        """
        book = _or_raise(self._book(part))
        past = _or_raise(self._past(part, config))
        cases = _or_raise(self._known_cases(part))
        mine = tuple(run for run in past if run.runbook != book.id or of_this_runbook(run, book))
        return ServiceJournals(book, Past(mine, past.damaged), cases, step_shapes(self._source(part.path), book))

    def _book(self, part: ServiceRunbook) -> Runbook | MigverifyError:
        key = repr((part.path, part.environment, sorted(part.parameters.items())))
        if key not in self._books:
            try:
                self._books[key] = load_runbook(
                    Path(part.path), part.parameters, part.environment, self._source(part.path)
                )
            except MigverifyError as error:
                self._books[key] = error
        return self._books[key]

    def _source(self, path: str) -> Source:
        if path not in self._sources:
            self._sources[path] = read_source(Path(path))
        return self._sources[path]

    def _past(self, part: ServiceRunbook, config: Config | None) -> Past | MigverifyError:
        if part.runs not in self._pasts:
            forbidden = [(e.host, e.port) for e in config.all_endpoints] if config is not None else []
            try:
                room = open_run_store(part.runs, forbidden=forbidden)
                with room.one_reading():
                    self._pasts[part.runs] = past_runs(room, self._wanted.get(part.runs, set()), cases=True)
            except MigverifyError as error:
                self._pasts[part.runs] = error
        return self._pasts[part.runs]

    def _known_cases(self, part: ServiceRunbook) -> Mapping[str, str] | MigverifyError | None:
        beside = Path(part.path).parent / "dr"
        folder = Path(part.cases) if part.cases is not None else beside if beside.is_dir() else None
        key = str(folder)
        if key not in self._cases:
            try:
                self._cases[key] = case_priorities(folder) if folder is not None else None
            except MigverifyError as error:
                self._cases[key] = error
        return self._cases[key]


def _or_raise(found: Found | MigverifyError) -> Found:
    if isinstance(found, MigverifyError):
        raise found
    return found


def read_drills(
    journals: ServiceJournals, config: Config, now: float, fingerprint: str, decision: Decision | None
) -> DrillsEvidence:
    """Return whether a runbook is ready by its journals; ``fingerprint`` is that of the definitions of now."""
    book = journals.runbook
    found = readiness(book, journals.past, now, fingerprint, journals.cases, config.readiness, decision)
    counted = set(found.drills)
    drills = [run for run in journals.past if run.run in counted]
    last = drills[-1] if drills else None
    return DrillsEvidence(
        found, len(drills), sum(not why_unclean(run) for run in drills), "" if last is None else last.run,
        "" if last is None else last.schema_fingerprint,
    )  # fmt: skip


def read_people(service: FleetService, runbook: Runbook) -> PeopleEvidence:
    """Return who is on call, and who plays the roles of a live run."""
    roles = {
        name: tuple(one for one in (role.person, role.backup) if one)
        for name, role in runbook.roles.items()
        if not role.only or RunKind.LIVE in role.only
    }
    return PeopleEvidence(tuple(_known_name(runbook, name) for name in service.on_call), roles)


def _known_name(runbook: Runbook, name: str) -> str:
    """Return the name that a runbook has for a person that is named by an alias."""
    found = (one.name for one in runbook.people.values() if name.casefold() in {a.casefold() for a in one.aliases})
    return next(found, name)


def completed_cutover(journals: ServiceJournals) -> PastRun | None:
    """Return the live run by which a service is cut over; None: it is not.

    The last run of the night decides: a rollback, or another live run that is not completed, ends what was done before.
    """
    of_the_night = [run for run in journals.past if is_of_the_night(run, journals.runbook)]
    if not of_the_night:
        return None
    last = of_the_night[-1]
    is_cutover = last.kind is RunKind.LIVE and last.runbook == journals.runbook.id
    return last if is_cutover and last.state is RunState.COMPLETED else None


def cutover_doubt(journals: ServiceJournals, done: PastRun) -> str:
    """Return why a completed cutover may not be the last word: a later run that nobody can read; empty: it is."""
    wanted = wanted_runbooks(journals.runbook)
    for one in journals.past.damaged:
        is_earlier = one.not_after is not None and one.not_after <= done.started
        if not is_earlier and (not one.runbook or one.runbook in wanted):
            return f"run {done.run} cut it over, and run {one.run}, which may have rolled it back: {one.problem}"
    return ""


def is_of_the_night(run: PastRun, book: Runbook) -> bool:
    """Whether a run cuts the service over or rolls it back; a rollback runbook may name its environment otherwise."""
    if run.kind not in (RunKind.LIVE, RunKind.ROLLBACK):
        return False
    if run.runbook == book.id:
        return run.environment == book.environment
    return rolls_back(run, book) and (run.production or run.environment == book.environment)
