"""``fleet.yaml`` -> a fleet. All that is wrong is said at once, each with file, line, key and service."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from migverify.config.problems import FileProblem, explain, problem_at, read_document, refuse
from migverify.config.yaml_text import Steps, YamlDocument, YamlPlace
from migverify.errors import ConfigError
from migverify.fleet.definition import Fleet, FleetService, FleetWave

if TYPE_CHECKING:
    from pydantic import ValidationError

Part = TypeVar("Part", FleetWave, FleetService)
_ADDRESS = re.compile(r"\S+:\d{1,5}")
_NOT_KNOWN = "not known"
_WAVE: Mapping[str, Any] = {"name": "-", "window": {"start": "2000-01-01T00:00", "duration": "1h"}}
_SERVICE: Mapping[str, Any] = {"name": "-", "owner": _NOT_KNOWN, "wave": "-", "config": _NOT_KNOWN}


@dataclass(slots=True)
class _ReadEntry(Generic[Part]):
    """An entry of a list: ``part`` is what is right of it, ``unread`` are its keys that are not."""

    at: int
    part: Part
    unread: frozenset[str] = frozenset()
    problems: list[FileProblem] = field(default_factory=list)


def load_fleet(path: Path, *, with_wrong: bool = False) -> Fleet:
    """Read and check a fleet; the files that it names are not opened.

    Parameters
    ----------
    with_wrong
        Return the fleet also where nothing but entries of services is wrong: ``Fleet.wrong`` names them.

    Raises
    ------
    ConfigError
        the file is missing, is not YAML, or says something it cannot; names every place that is wrong.
    """
    _, document = read_document(path, "fleet file", "docs/fleet.md shows one; name another with --fleet.")
    if document.data is None:
        raise ConfigError(f"{path}: the file is empty", hint="docs/fleet.md shows one.")
    reading = _FleetReading(path, document)
    fleet = reading.fleet()
    of_services = [problem for problems in reading.wrong.values() for problem in problems]
    if fleet is None or (of_services and not with_wrong):
        found = reading.problems + of_services
        refuse(path, found, len(found))
    return fleet


class _FleetReading:
    """One reading of a file. ``problems`` are of the file as a whole, ``wrong`` those of services, by their names."""

    def __init__(self, path: Path, document: YamlDocument) -> None:
        self._path, self._document = path, document
        self._data: dict[Any, Any] = document.data if isinstance(document.data, dict) else {}
        self._waves = self._entries("waves", FleetWave, _WAVE)
        self._services = self._entries("services", FleetService, _SERVICE)
        self.problems: list[FileProblem] = []
        self.wrong: dict[str, tuple[FileProblem, ...]] = {}

    def fleet(self) -> Fleet | None:
        """Return the fleet, with what is right of wrong entries; None: the file as a whole is wrong."""
        from pydantic import ValidationError

        for wave in self._waves:
            self.problems += [*wave.problems, *self._same_name("waves", wave, self._waves)]
        self.problems += self._limits()
        lists = {"waves": [wave.part for wave in self._waves], "services": [*self._checked_services()]}
        whole = self._data | {kind: parts for kind, parts in lists.items() if parts}
        try:
            fleet = Fleet.model_validate(
                whole or self._document.data, context={"path": self._path, "wrong": self.wrong}
            )
        except ValidationError as error:
            self.problems += explain(self._path, self._document, error, Fleet)
            return None
        return None if self.problems else fleet

    def _problem(self, steps: Steps, text: str, hint: str = "") -> FileProblem:
        return problem_at(self._path, self._document.place(steps), text, hint)

    def _entries(self, kind: str, model: type[Part], stand_in: Mapping[str, Any]) -> list[_ReadEntry[Part]]:
        given = self._data.get(kind)
        entries = given if isinstance(given, list) else []  # what is no list is said of the file as a whole
        return [self._entry(kind, at, model, entry, stand_in) for at, entry in enumerate(entries)]

    def _entry(
        self, kind: str, at: int, model: type[Part], given: object, stand_in: Mapping[str, Any]
    ) -> _ReadEntry[Part]:
        from pydantic import ValidationError

        context = {"path": self._path}
        try:
            return _ReadEntry(at, model.model_validate(given, context=context))
        except ValidationError as error:
            unread = _unread(error, model)
            keys = given if isinstance(given, dict) else {}
            right = {key: value for key, value in keys.items() if str(key) not in unread}
            part = model.model_validate({**stand_in, **right}, context=context)
            return _ReadEntry(at, part, unread, explain(self._path, self._document, error, Fleet, (kind, at)))

    def _checked_services(self) -> Iterator[FleetService]:
        """Yield the services by names of their own, and note what is wrong with their entries."""
        names: set[str] = set()
        for entry in self._services:
            service, at = entry.part, entry.at
            has_name = "name" not in entry.unread and service.name not in names
            name = service.name if has_name else f"services[{at}]"
            names.add(name)
            problems = [*entry.problems, *self._same_name("services", entry, self._services), *self._of_service(entry)]
            if problems:
                self.wrong[name] = tuple(self._named(problem, service.name if has_name else "") for problem in problems)
            wave = _NOT_KNOWN if "wave" in entry.unread else service.wave
            yield service.model_copy(update={"name": name, "wave": wave})

    def _named(self, problem: FileProblem, service: str) -> FileProblem:
        """Return a problem that names its service."""
        place = YamlPlace(*problem.order) if problem.order[0] else None
        named = problem_at(self._path, place, f"service {service}: {problem.words}" if service else problem.words)
        return FileProblem(problem.order, named.text, problem.hint, problem.words)

    def _same_name(
        self, kind: str, entry: _ReadEntry[Part], entries: Sequence[_ReadEntry[Part]]
    ) -> Iterator[FileProblem]:
        if "name" in entry.unread:
            return
        same = [one.at for one in entries if one is not entry and "name" not in one.unread
                and one.part.name == entry.part.name]  # fmt: skip
        if same:
            lines = [place.line for at in same if (place := self._document.place((kind, at, "name")))]
            where = f" (line {', '.join(map(str, lines))})" if lines else ""
            text = f"{kind}[{entry.at}].name: there is another {kind[:-1]} {entry.part.name}{where}"
            yield self._problem((kind, entry.at, "name"), text, f"Give each {kind[:-1]} a name of its own.")

    def _of_service(self, entry: _ReadEntry[FleetService]) -> Iterator[FileProblem]:
        service, way = entry.part, ("services", entry.at)
        waves = {wave.part.name: wave for wave in self._waves}
        wave = None if "wave" in entry.unread else waves.get(service.wave)
        # Where a wave has no name that can be read, a service may be of that one: it is not said to be of none.
        are_known = bool(waves) and not any("name" in one.unread for one in self._waves)
        if wave is None and are_known and "wave" not in entry.unread:
            yield self._problem((*way, "wave"), f"services[{entry.at}].wave: there is no wave {service.wave}",
                                f"The waves are {', '.join(waves)}.")  # fmt: skip
        is_known = wave is not None and "window" not in wave.unread
        if wave is not None and is_known and service.date is not None and not wave.part.window.holds(service.date):
            yield self._problem(
                (*way, "date"), f"services[{entry.at}].date: {service.date} is not in the window of wave"
                f" {wave.part.name}, which opens on {wave.part.window.start.date()}",
                "Move the date, the window, or the service.",
            )  # fmt: skip
        if service.store_password_env is not None and service.store is None and "store" not in entry.unread:
            yield self._problem((*way, "store_password_env"),
                                f"services[{entry.at}].store_password_env: there is no `store` here",
                                "The configuration of the service has a store_password_env of its own.")  # fmt: skip

    def _limits(self) -> Iterator[FileProblem]:
        limits = self._data.get("limits")
        given = limits.get("connections") if isinstance(limits, dict) else None
        servers = [server for server in given if isinstance(server, str)] if isinstance(given, dict) else []
        for at, server in enumerate(servers):
            way = ("limits", "connections", server)
            if server.lower() in map(str.lower, servers[:at]):
                yield self._problem(way, f"limits.connections: there is another limit of {server}", "Remove one.")
            if not _ADDRESS.fullmatch(server):
                yield self._problem(way, "limits.connections: a server is host:port, in quotes")


def _unread(error: ValidationError, model: type[Part]) -> frozenset[str]:
    """Return the keys of an entry that cannot be read; all where it is no mapping."""
    ways = [details["loc"] for details in error.errors(include_url=False)]
    return frozenset(str(way[0]) for way in ways) if all(ways) else frozenset(model.model_fields)
