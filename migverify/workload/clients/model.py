"""The nouns of client behavior: drivers, pools, scenarios, cells, what a client saw, and how the sides differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from migverify.model import Verdict

Facts: TypeAlias = Mapping[str, Any]
"""What one step showed, as JSON: values with their class, counts, exceptions. Keys ``told`` are never compared."""


class Kind(StrEnum):
    """In which language a driver is used."""

    JDBC = "jdbc"
    PYTHON = "python"


@dataclass(frozen=True, slots=True)
class Jar:
    """A file of a Maven repository; ``sha256`` is what it must hold."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """Its name in a folder."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> str:
        """Its path in a repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file}"

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


@dataclass(frozen=True, slots=True)
class Driver:
    """A client library of one version.

    ``entry`` is the class of a JDBC driver or the module of a Python one. ``options`` translates an option of a
    scenario and its value into the driver's own words (``name=value``, several joined by ``&``); an option or value
    that is not there does not exist in this driver.
    """

    name: str
    kind: Kind
    title: str
    entry: str
    url: str = ""
    base: str = ""
    tls: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    jars: tuple[Jar, ...] = ()


@dataclass(frozen=True, slots=True)
class Pool:
    """A connection pool of one version; ``none`` has no jars."""

    name: str
    title: str
    jars: tuple[Jar, ...] = ()


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run a scenario. ``remedy`` says what it changes in the application, empty when it is no remedy."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    pool_options: Mapping[str, Any] = field(default_factory=dict)
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a client does, step by step, and where that makes sense.

    ``explains`` are ids of the difference catalogue that account for what differs, unless a step has its own. ``needs``
    names what the controller must be able to do (``proxy``, ``restart``). ``writes`` is False where nothing is created.
    """

    name: str
    title: str
    kinds: tuple[Kind, ...]
    steps: tuple[Mapping[str, Any], ...]
    pools: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    cleanup: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = (Variant("default"),)
    explains: tuple[str, ...] = ()
    why: str = ""
    remedy: str = ""
    needs: tuple[str, ...] = ()
    seconds: float = 60.0
    soak: bool = False
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A scenario's variant with a driver and a pool: what is run on both sides and judged."""

    driver: Driver
    pool: Pool
    scenario: Scenario
    variant: Variant
    url: str

    @property
    def window(self) -> str:
        """Scenario and variant."""
        return f"{self.scenario.name}/{self.variant.name}"

    @property
    def rule(self) -> str:
        """Driver and pool."""
        return f"clients/{self.driver.name}/{self.pool.name}"


@dataclass(frozen=True, slots=True)
class Observed:
    """What one side showed: facts by step in order, and why the harness could not go on (empty when it could)."""

    steps: tuple[Facts, ...]
    failure: str = ""
    millis: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that a client sees otherwise. ``step`` counts from 1; ``known`` are ids of the catalogue, or none."""

    step: int
    action: str
    path: str
    source: str
    target: str
    known: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CellResult:
    """The judgment of a cell.

    ``unsteady`` counts differences that a second run did not repeat, ``refused`` the steps that failed on both sides: a
    MATCH says that both behave alike, not that it works.
    """

    driver: str
    pool: str
    scenario: str
    variant: str
    verdict: Verdict
    reason: str
    differences: tuple[Difference, ...] = ()
    unsteady: int = 0
    refused: int = 0
    seconds: float = 0.0
    source: Observed | None = None
    target: Observed | None = None


class Controller(Protocol):
    """Does to the network or a server what a scenario asks for."""

    def can(self, need: str) -> bool:
        """Whether ``proxy`` or ``restart`` is possible here."""
        ...

    def begin(self, side: str) -> None:
        """Undo what an earlier cell did to the network of a side."""
        ...

    def do(self, side: str, what: Mapping[str, Any]) -> dict[str, Any]:
        """Do it, and return facts for the scenario when it is done."""
        ...
