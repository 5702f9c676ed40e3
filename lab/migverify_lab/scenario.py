"""Faults of a scenario: what goes wrong between services, or in tables that were re-modelled, planted by SQL.

A fault plans what it does from what the servers hold, and writes nothing itself. The plan is applied in one transaction
per endpoint, and holds what takes it back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from migverify.errors import LabError, UsageError
from migverify_lab.session import LabServer, connect, run

Scene = TypeVar("Scene")
"""What a fault plans from: servers, tables and the seed's random numbers."""

Step = tuple[str, str]
"""An endpoint, and a statement that runs there."""

Endpoints = Callable[[str], LabServer]
"""Returns the server of an endpoint."""


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """What a fault does. ``facts`` name what was hit: ids, amount, currency."""

    text: str
    facts: Mapping[str, str]
    steps: Sequence[Step]
    undo: Sequence[Step] = ()


@dataclass(frozen=True, slots=True)
class ScenarioFault(Generic[Scene]):
    """One kind of fault. ``rules`` are those of the shipped example that see it. ``plan`` writes nothing."""

    name: str
    what: str
    rules: tuple[str, ...]
    plan: Callable[[Scene], PlannedChange]


@dataclass(frozen=True, slots=True)
class PlantedChange:
    """A fault in place, and how to take it back. Nothing takes back what is in a binlog, or a late event."""

    fault: str
    text: str
    facts: Mapping[str, str]
    rules: tuple[str, ...]
    steps: tuple[Step, ...]
    undo: tuple[Step, ...] = field(repr=False, default=())

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "fault": self.fault, "what": self.text, "facts": dict(self.facts), "seen_by": list(self.rules),
            "statements": [{"endpoint": endpoint, "sql": sql} for endpoint, sql in self.steps],
        }  # fmt: skip

    def describe(self, most: int = 4) -> str:
        """Return text for people: what was done, to what, the SQL, and which rules should see it."""
        lines = [f"planted {self.fault}: {self.text}"]
        lines += [f"  {name}: {value}" for name, value in self.facts.items()]
        lines += [f"  {endpoint}> {sql[:400]}{' ...' if len(sql) > 400 else ''}" for endpoint, sql in self.steps[:most]]
        if len(self.steps) > most:
            lines.append(f"  and {len(self.steps) - most} more statements")
        lines.append(f"  seen by: {', '.join(self.rules)}")
        return "\n".join(lines)


def plant_change(
    faults: Sequence[ScenarioFault[Scene]], name: str, scene: Callable[[], Scene], endpoints: Endpoints
) -> PlantedChange:
    """Plant one fault and return what was done.

    Raises
    ------
    UsageError
        there is no fault of that name.
    LabError
        the servers hold nothing for it, or refuse.
    """
    fault = next((fault for fault in faults if fault.name == name), None)
    if fault is None:
        raise UsageError(f"no fault is called {name!r}", hint="See `migverify lab fault --list`.")
    change = fault.plan(scene())
    apply_steps(change.steps, endpoints)
    return PlantedChange(name, change.text, change.facts, fault.rules, tuple(change.steps), tuple(change.undo))


def take_back_change(planted: PlantedChange, endpoints: Endpoints) -> None:
    """Undo a fault.

    Raises
    ------
    LabError
        it cannot be taken back, or a server refuses.
    """
    if not planted.undo:
        raise LabError(f"{planted.fault} cannot be taken back", hint="Load the data of the lab again.")
    apply_steps(planted.undo, endpoints)


def apply_steps(steps: Sequence[Step], endpoints: Endpoints) -> None:
    """Run steps, one transaction per endpoint; raises LabError where one changes no row."""
    for endpoint in dict.fromkeys(endpoint for endpoint, _ in steps):
        statements = [sql for where, sql in steps if where == endpoint]
        with connect(endpoints(endpoint)) as connection:
            affected = run(connection, statements)
        for sql, rows in zip(statements, affected, strict=True):
            if not rows and not sql.startswith("CREATE"):
                raise LabError(f"no row was changed by {sql[:200]!r}", hint="Load the data of the lab again.")
