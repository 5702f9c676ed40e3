"""What ``fleet verify`` prints: a line for each service, and the whole as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from migverify.cli.console import visible
from migverify.fleet.document import VerifiedDocument, VerifyDocument
from migverify.report.figures import duration

if TYPE_CHECKING:
    from migverify.fleet.definition import Fleet
    from migverify.fleet.verify import FleetVerification, VerifiedService
    from migverify.fleet.verify_plan import ServiceVerification


def plan_lines(tasks: Sequence[ServiceVerification]) -> Iterator[str]:
    """Yield what would be done for each service, in the order of work."""
    for task in tasks:
        needs = ", ".join(f"{count} to {server}" for server, count in sorted(task.demand.items()))
        with_ = f"; {needs}" if needs and task.action not in ("reuse", "none") else ""
        yield visible(
            f"{task.service.wave:<12} {task.service.name:<24} {task.action:<8} {task.why}{with_}", lines=False
        )


def ended_line(ended: VerifiedService) -> str:
    """Return how it ended for one service."""
    took = f", {duration(ended.seconds)}" if ended.seconds else ""
    run = f"run {ended.run}: " if ended.run else ""
    return visible(f"{ended.verdict:<12} {ended.service:<24} {run}{ended.reason} ({ended.action}{took})", lines=False)


def verify_document(fleet: Fleet, found: FleetVerification) -> VerifyDocument:
    """Return what ``fleet verify --json`` prints."""
    services = tuple(
        VerifiedDocument(
            service=one.service, verdict=one.verdict.value, action=one.action.value, run=one.run, reason=one.reason,
            seconds=round(one.seconds, 1),
        )
        for one in found.services
    )  # fmt: skip
    return VerifyDocument(
        schema_version=1, kind="fleet verify", fleet=str(fleet.path), verdict=found.verdict.value,
        exit_code=int(found.exit_code), stopped=found.is_stopped, window_closed=found.is_closed, services=services,
    )  # fmt: skip
