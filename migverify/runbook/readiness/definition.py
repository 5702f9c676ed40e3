"""The condition ``definition``: a runbook that lint refuses is not run, so that it is not ready either. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from migverify.runbook.definition.findings import LintFinding
from migverify.runbook.history.readiness import MISSING, NOT_READY, OK, UNKNOWN, Condition, Readiness

__all__ = ["DEFINITION", "defined", "undefined", "with_definition"]

DEFINITION = "definition"
_WANTS = "the runbook and the configuration can be read, and lint refuses nothing"


def defined(sha: str, findings: Iterable[LintFinding], check: str) -> Condition:
    """Judge a runbook that was read; ``check`` is the command that says what to do about what lint refuses."""
    refused = [one for one in findings if one.refused]
    if not refused:
        return Condition(DEFINITION, OK, _WANTS, f"sha {sha[:12]}")
    reasons = tuple(f"{one.place}: {one.text} [{one.rule}]" for one in refused)
    places = "1 place" if len(refused) == 1 else f"{len(refused)} places"
    return Condition(DEFINITION, MISSING, _WANTS, f"lint refuses it in {places}", reasons, f"{refused[0].hint} {check}")


def undefined(reason: str, do: str) -> Condition:
    """Return the condition of a runbook, or of a configuration, that cannot be read."""
    return Condition(DEFINITION, UNKNOWN, _WANTS, "cannot be read", (reason,), do)


def with_definition(found: Readiness, condition: Condition) -> Readiness:
    """Return what journals show, and first whether the runbook can be run at all."""
    verdict = NOT_READY if condition.state == MISSING else found.verdict
    return replace(found, verdict=verdict, conditions=(condition, *found.conditions))
