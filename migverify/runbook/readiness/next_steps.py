"""The next command of each condition that is not met. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from migverify.model import NextStep
from migverify.runbook.history.readiness import MISSING, UNKNOWN, Condition
from migverify.runbook.readiness.definition import DEFINITION

__all__ = ["next_steps"]

_BY_DRILL = frozenset({"drills", "clean", "steps", "runbook", "schema", "cast", "eyes", "rollback", "people"})
"""Conditions that a drill meets."""
_COMMANDS = {
    "cases": "migverify runbook readiness --dr",
    "decision": "migverify workload decision",
    "journals": "migverify runbook report --verify",
    "servers": "migverify guard settings",
    "grants": "migverify config --grants",
    "limits": "migverify guard settings",
    "capacity": "migverify guard capacity",
    "certificate": "migverify guard settings",
    "retention": "migverify guard settings",
    "watch": "migverify tables watch --since last",
    "proof": "migverify tables verify",
    "tables": "migverify tables verify",
}
_LONGEST_REASON = 200


def next_steps(conditions: Iterable[Condition], drill: str, check: str) -> Iterator[NextStep]:
    """Yield the command of each condition that is not met, each command once; none when all are met.

    Parameters
    ----------
    drill
        The command that begins a rehearsal.
    check
        The command that says what lint refuses.
    """
    reasons: dict[str, list[str]] = {}
    for one in conditions:
        if one.state not in (MISSING, UNKNOWN):
            continue
        command = check if one.id == DEFINITION else drill if one.id in _BY_DRILL else _COMMANDS.get(one.id, "")
        if command:
            why = (one.reasons or (one.found,))[0]
            reasons.setdefault(command, []).append(f"{one.id}: {why[:_LONGEST_REASON]}")
    yield from (NextStep(command, "; ".join(texts)) for command, texts in reasons.items())
