"""What all rules of ``lint`` look at: the runbook, and what is computed from it once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from migverify.runbook.actions.action import Action
from migverify.runbook.definition.findings import LintFinding, Places, finding
from migverify.runbook.definition.plan import ancestors, holders
from migverify.runbook.graph import Network, network_of
from migverify.runbook.kinds import RunKind
from migverify.runbook.model import Check, Runbook, Step

_EFFECTIVE = frozenset(RunKind) - {RunKind.DRY}


@dataclass(frozen=True)
class Ground:
    """A runbook under the rules. ``cases`` is None where no catalogue of disaster recovery cases is at hand."""

    runbook: Runbook
    places: Places
    actions: Mapping[str, Action]
    cases: Collection[str] | None

    @cached_property
    def network(self) -> Network:
        """Who waits for whom, as far as the ids are known and nothing waits for a later phase."""
        return network_of(self.runbook.steps)

    @cached_property
    def before(self) -> list[int]:
        """For each step, as bits, the steps before it."""
        return ancestors(self.network)

    @cached_property
    def who(self) -> dict[str, tuple[str, ...]]:
        """Roles, persons and aliases -> person and backup."""
        return holders(self.runbook)

    def is_before(self, first: int, second: int) -> bool:
        """Tell whether a step is certainly finished when another begins."""
        return bool(self.before[second] >> first & 1)

    def at(self, rule: str, number: int, way: tuple[str | int, ...], text: str, hint: str = "") -> LintFinding:
        """Return a finding at a key of a step."""
        step = self.runbook.steps[number]
        return finding(rule, self.places.in_step(number, *way), f"step {step.id}: {text}", hint)

    def checks(self) -> Iterator[tuple[int | None, tuple[str | int, ...], Check]]:
        """Every check: the number of its step (None: of none), the way to it, and itself."""
        for n, step in enumerate(self.runbook.steps):
            for one, check in enumerate(step.expect):
                yield n, ("expect", one), check
            if step.reconcile is not None:
                yield n, ("reconcile",), step.reconcile
            if step.rollback is not None:
                for one, check in enumerate(step.rollback.verify):
                    yield n, ("rollback", "verify", one), check
        for one, guard in enumerate(self.runbook.guards):
            yield None, ("guards", one), guard
        for one, check in enumerate(self.runbook.rollback_when):
            yield None, ("rollback_when", one), check

    def of_check(
        self, rule: str, number: int | None, way: tuple[str | int, ...], text: str, hint: str = ""
    ) -> LintFinding:
        """Return a finding at a check of ``checks``."""
        if number is not None:
            return self.at(rule, number, way, text, hint)
        return finding(rule, self.places.at(*way), f"{way[0]}: {text}", hint)


def kinds_of(step: Step) -> frozenset[RunKind]:
    """Return the kinds of runs with effects that a step is for."""
    return frozenset(step.only.runs) - {RunKind.DRY} if step.only.runs else _EFFECTIVE


def places_of(step: Step, runbook: Runbook) -> frozenset[str]:
    """Return the environments that a step is for."""
    return frozenset(step.only.environments or runbook.environments)
