"""The nouns of client behavior: drivers, pools, scenarios, cells, what a client saw, and how the sides differ.

Drivers, pools and scenarios are frozen models of the JSON files that hold them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from pydantic import Field, model_validator

from migverify.config.fields import Many, Strict
from migverify.model import Verdict

Facts: TypeAlias = Mapping[str, Any]
"""What one step showed, as JSON: values with their class, counts, exceptions. Keys ``told`` are never compared."""


class DriverKind(StrEnum):
    """In which language a driver is used."""

    JDBC = "jdbc"
    PYTHON = "python"


class Jar(Strict):
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


class ClientDriver(Strict):
    """A client library of one version.

    ``entry`` is the class of a JDBC driver or the module of a Python one. ``options`` translates an option of a
    scenario and its value into the driver's own words (``name=value``, several joined by ``&``); an option or value
    that is not there does not exist in this driver.
    """

    name: str
    kind: DriverKind
    title: str
    entry: str
    url: str = ""
    base: str = ""
    tls: dict[str, str] = Field(default={})
    options: dict[str, dict[str, str]] = Field(default={})
    jars: Many[Jar] = ()


class Pool(Strict):
    """A connection pool of one version; ``none`` has no jars."""

    name: str
    title: str
    jars: Many[Jar] = ()


# Action -> fields it must have. The two harnesses know these and no others.
ACTIONS: dict[str, frozenset[str]] = {
    name: frozenset(required)
    for name, required in {
        "open": (), "close": (), "sql": ("sql",), "texts": ("texts",), "prepare": ("sql", "as"), "run": ("of",),
        "prepared": ("sql",), "stream": ("sql",), "columns": ("sql",), "getters": ("sql", "getters"),
        "updatable": ("sql", "column", "value"), "set": ("what", "value"), "state": (), "commit": (), "rollback": (),
        "savepoint": ("as",), "rollback_to": ("of",), "release": ("of",), "valid": (), "identify": (), "pool": (),
        "pool_set": ("what", "value"), "background": ("as", "step"), "join": ("of", "within_ms"), "wait": ("ms",),
        "until": ("sql", "equals", "within_ms"), "ask": ("what",), "call": ("method",), "file": ("as", "text"),
    }.items()
}  # fmt: skip
PYTHON_ACTIONS = frozenset({
    "open", "close", "sql", "prepared", "stream", "columns", "set", "commit", "rollback", "valid", "identify",
    "background", "join", "wait", "until", "ask", "file", "call", "pool",
})  # fmt: skip
OPTIONAL = frozenset({
    "do", "on", "as", "name", "explains", "needs", "plain", "keys", "timeout", "fetch", "params", "batch", "repeat",
    "meanwhile", "stop_after", "unrun", "within_ms", "same_as", "args", "mode", "same", "unordered", "ignore",
})  # fmt: skip


class Variant(Strict):
    """One way to run a scenario. ``remedy`` says what it changes in the application, empty when it is no remedy."""

    name: str
    options: dict[str, str] = Field(default={})
    pool_options: dict[str, Any] = Field(default={})
    remedy: str = ""


class Scenario(Strict):
    """What a client does, step by step, and where that makes sense; ``name`` is the file's.

    ``explains`` are ids of the difference catalogue that account for what differs, unless a step has its own. ``needs``
    names what the network and servers must allow (``proxy``, ``restart``). ``soak``: it takes minutes.
    """

    name: str = ""
    title: str = Field(min_length=1)
    kinds: Many[DriverKind] = Field(min_length=1)
    steps: Many[dict[str, Any]] = Field(min_length=1)
    pools: Many[str] = ()
    drivers: Many[str] = ()
    setup: Many[str] = ()
    cleanup: Many[str] = ()
    variants: Many[Variant] = (Variant(name="default"),)
    explains: Many[str] = ()
    why: str = ""
    remedy: str = ""
    needs: Many[str] = ()
    seconds: float = 60.0
    soak: bool = False

    @model_validator(mode="after")
    def _is_sound(self) -> Scenario:
        for number, step in enumerate(self.steps, start=1):
            self._check(step, f"step {number}")
        if len({one.name for one in self.variants}) != len(self.variants):
            raise ValueError("two variants have one name")
        return self

    def _check(self, step: Any, where: str) -> None:
        action = step.get("do") if isinstance(step, dict) else None
        required = ACTIONS.get(str(action))
        if required is None:
            raise ValueError(f"{where}: do: {action!r} is not known; known are {', '.join(ACTIONS)}")
        if DriverKind.PYTHON in self.kinds and action not in PYTHON_ACTIONS:
            raise ValueError(f"{where}: do: {action!r} does not exist in Python; leave python out of kinds")
        for field in sorted(required - step.keys()):
            raise ValueError(f"{where}: {action} needs {field}")
        for field in step.keys() - OPTIONAL - required:
            raise ValueError(f"{where}: {field!r} is not a field of {action}")
        if "step" in step:
            self._check(step["step"], where)


@dataclass(frozen=True, slots=True)
class ClientCell:
    """A scenario's variant with a driver and a pool: what is run on both sides and judged."""

    driver: ClientDriver
    pool: Pool
    scenario: Scenario
    variant: Variant
    url: str


@dataclass(frozen=True, slots=True)
class Observed:
    """What one side showed: facts by step in order, and why the harness could not go on (empty when it could)."""

    steps: tuple[Facts, ...]
    failure: str = ""
    millis: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientDifference:
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
    differences: tuple[ClientDifference, ...] = ()
    unsteady: int = 0
    refused: int = 0
    seconds: float = 0.0
    source: Observed | None = None
    target: Observed | None = None
