"""What ``fleet verify`` prints: a line for each service, and the whole as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from migverify.cli.console import visible
from migverify.figures import amount, duration
from migverify.fleet.document import VerifiedDocument, VerifyDocument
from migverify.fleet.read import options_of
from migverify.fleet.verify_plan import VerifyAction, never_begins
from migverify.model import NextStep, Verdict

if TYPE_CHECKING:
    from migverify.fleet.definition import Fleet
    from migverify.fleet.verify import FleetVerification, VerifiedService
    from migverify.fleet.verify_plan import ServiceVerification

MOST_STEPS = 10
"""Services whose next step is named."""


def plan_lines(fleet: Fleet, tasks: Sequence[ServiceVerification]) -> Iterator[str]:
    """Yield what would be done for each service, in the order of work, and why a verification can never begin."""
    for task in tasks:
        needs = ", ".join(f"{count} to {server}" for server, count in sorted(task.demand.items()))
        with_ = f"; {needs}" if needs and task.action not in ("reuse", "none") else ""
        never = never_begins(fleet, task)
        why = never or f"{task.why}{with_}"
        yield visible(f"{task.service.wave:<12} {task.service.name:<24} {task.action:<8} {why}", lines=False)


def ended_line(ended: VerifiedService) -> str:
    """Return how it ended for one service."""
    took = f", {duration(ended.seconds)}" if ended.seconds else ""
    run = f"run {ended.run}: " if ended.run else ""
    return visible(f"{ended.verdict:<12} {ended.service:<24} {run}{ended.reason} ({ended.action}{took})", lines=False)


def summary_lines(found: FleetVerification, steps: Sequence[NextStep]) -> Iterator[str]:
    """Yield how many services have the worst verdict, and the next steps."""
    verdicts = [one.verdict for one in found.services]
    worst = verdicts.count(found.verdict)
    of = "" if worst == len(verdicts) else f"{worst:,} of "
    yield f"{found.verdict}: {of}{amount(len(verdicts), 'service')}"
    if steps:
        yield from ("", "Next", *(f"  {visible(step.command)}  # {visible(step.reason)}" for step in steps))


def verify_steps(fleet: Fleet, found: FleetVerification) -> Iterator[NextStep]:
    """Yield what shows why services are not proved, the worst first, and what goes on with them."""
    services = {service.name: service for service in fleet.services}
    open_ = [one for one in found.services if one.verdict is not Verdict.MATCH]
    for one in sorted(open_, key=lambda one: one.verdict is not Verdict.MISMATCH)[:MOST_STEPS]:
        options = options_of(services[one.service])
        if one.action is VerifyAction.NONE:
            yield NextStep(f"migverify config{options_of(services[one.service], store=False)}", one.service)
        elif one.verdict is Verdict.MISMATCH:
            yield NextStep(f"migverify tables diff {one.run}{options}", f"{one.service}: what differs")
        elif one.run:
            yield NextStep(f"migverify report {one.run}{options}", f"{one.service}: why it is not proved")
        elif one.action is not VerifyAction.REUSE and one.seconds:  # it failed before it had a run
            yield NextStep(f"migverify check{options}", f"{one.service}: whether its servers can be asked")
    if open_:
        yield NextStep(f"migverify fleet verify --fleet {shlex.quote(str(fleet.path))}",
                       "goes on with what is not proved, when what is named is fixed")  # fmt: skip


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
