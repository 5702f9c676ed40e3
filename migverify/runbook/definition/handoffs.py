"""How often one person waits for another, and for how long: what a plan of machine times alone leaves out. Pure.

A step is handed over when it is called, when it is started, with each approval before its start, and when it is
reviewed. Reading gates inside a write stop start by themselves: only their review is a hand-off.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from migverify.runbook.model import RunKind, Step
from migverify.runbook.people import COORDINATOR, needed_approvals

__all__ = ["ENOUGH_HANDOFFS", "UNMEASURED", "HandOffs", "handoffs_after", "handoffs_before"]

ENOUGH_HANDOFFS = 10
"""With fewer measured ones the stated default counts."""


@dataclass(frozen=True, slots=True)
class HandOffs:
    """Seconds from one person's word to the next one's; ``measured`` 0: the stated default, not measured in a drill."""

    p50: float = 10.0
    p90: float = 10.0
    measured: int = 0

    def __str__(self) -> str:
        source = f"median of {self.measured} in drills" if self.measured else "the default, as no drill measured it"
        return f"{self.p50:.0f} s each, {source}"


UNMEASURED = HandOffs()
"""The stated default."""


def handoffs_before(step: Step, alone: Collection[str], kind: RunKind | None = None) -> int:
    """Return how many hand-offs a step has before it acts: its call, approvals, and its start by another person.

    ``alone`` are the steps that start by themselves. Nobody says anything in a dry run.
    """
    if kind is RunKind.DRY or step.id in alone:
        return 0
    owner = 1 if step.point_of_no_return else 0
    return 1 + max(owner, needed_approvals(step, "start")) + (step.dri != COORDINATOR)


def handoffs_after(step: Step, kind: RunKind | None = None) -> int:
    """Return how many hand-offs a step has after it acted: its reviews."""
    return 0 if kind is RunKind.DRY else needed_approvals(step, "done")
