"""Lint and plan of ``migverify runbook check``: what is wrong with a runbook, and how long it takes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.runbook_begin import catalogue
from migverify.errors import UsageError

if TYPE_CHECKING:
    from migverify.runbook.definition.findings import LintFinding
    from migverify.runbook.definition.plan import Plan
    from migverify.runbook.kinds import RunKind
    from migverify.runbook.model import Runbook

RunbookArgument = Annotated[Path, typer.Argument(metavar="RUNBOOK", help="The runbook, a YAML file.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Value of a parameter {{NAME}}; may be repeated."),
]
EnvironmentOption = Annotated[
    str | None,
    typer.Option("--environment", "-e", metavar="NAME", help="One of the runbook's environments."),
]


def linted(
    runbook: Path, given: Mapping[str, str], names: list[str], cases: Path | None
) -> tuple[Runbook | None, list[LintFinding]]:
    """Read a runbook for environments, and return it for the last of them with everything that is wrong in any."""
    from migverify.runbook.actions.registry import full_registry
    from migverify.runbook.definition.lint import lint_file
    from migverify.runbook.definition.load import known_cases

    folder = catalogue(cases, runbook.parent)
    known = known_cases(folder) if folder is not None else None
    actions = full_registry().by_name()
    found: dict[LintFinding, None] = {}
    read: Runbook | None = None
    for name in names:
        reading, findings = lint_file(runbook, given, name, actions, known)
        found.update(dict.fromkeys(findings))
        read = reading.runbook
    return read, sorted(found, key=lambda one: (one.place.line, one.rule, one.text))


def lint_lines(path: Path, runbook: Runbook | None, findings: list[LintFinding], *, commands: bool) -> Iterator[str]:
    """Yield what is wrong with file, line and rule; then every effect where that is requested, then the sums."""
    for one in findings:
        yield f"{one.place}: {'' if one.refused else 'warning: '}{one.text} [{one.rule}]\n    {one.hint}"
    if commands and runbook is not None:
        yield from _commands(runbook)
    number = 0 if runbook is None else len(runbook.steps)
    steps = "" if runbook is None else f"{number} {'step' if number == 1 else 'steps'}, "
    sha = "" if runbook is None else f" (sha {runbook.sha[:12]})"
    refused = sum(one.refused for one in findings)
    warnings = len(findings) - refused
    yield f"{path}: {steps}{refused} refused, {warnings} {'warning' if warnings == 1 else 'warnings'}{sha}"


def parse_set(given: list[str]) -> dict[str, str]:
    """Read ``NAME=VALUE`` texts of ``--set``.

    Raises UsageError: no ``=``, or a name twice.
    """
    values: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--set {name}: the value is missing", hint="Write --set name=value.")
        if name in values:
            raise UsageError(f"--set {name} is given twice")
        values[name] = value
    return values


def lint_json(runbook: Runbook | None, findings: list[LintFinding]) -> dict[str, Any]:
    """Return what is wrong with a runbook, as JSON."""
    return {
        "runbook": None if runbook is None else {"id": runbook.id, "sha": runbook.sha, "steps": len(runbook.steps)},
        "refused": sum(one.refused for one in findings),
        "warnings": sum(not one.refused for one in findings),
        "findings": [
            {"rule": one.rule, "refused": one.refused, "file": one.place.file, "line": one.place.line,
             "text": one.text, "hint": one.hint} for one in findings
        ],
    }  # fmt: skip


def _commands(runbook: Runbook) -> Iterator[str]:
    for step in runbook.steps:
        back = step.rollback.effect if step.rollback is not None else None
        for word, effect in (("does", step.effect), ("rolls back by", back)):
            if effect is not None:
                yield f"{step.id} {word} {effect.action} {json.dumps(effect.arguments, ensure_ascii=False)}"


def clock(seconds: float) -> str:
    """Spell seconds as ``1:02:03``, or ``2:03`` below an hour; tenths are rounded."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def plan_lines(runbook: Runbook, plan: Plan, kind: RunKind) -> Iterator[str]:
    """Yield the plan as text: one line a step, then the sums."""
    from migverify.runbook.definition.plan import rollback_peak

    yield f"{runbook.title}: run of kind {kind.value} in {runbook.environment}"
    wide = max((len(one.id) for one in plan.steps), default=4)
    who = max((len(one.dri) for one in plan.steps), default=3)
    phase = ""
    for one in plan.steps:
        if one.phase != phase:
            phase = one.phase
            yield f"\n{phase}"
        if not one.applies:
            yield f"      {one.id:<{wide}}  {one.dri:<{who}}  not applicable"
            continue
        mark = "*" if one.critical else " "
        lasts = clock(one.duration) if one.known else "?"
        people = f"{one.handoffs} hand-offs" if one.handoffs != 1 else "1 hand-off"
        slack = "critical" if one.critical else f"slack {clock(one.slack)}"
        yield f"  {clock(one.start):>8} {mark} {one.id:<{wide}}  {one.dri:<{who}}  {lasts:>7}  {people:<11}  {slack}"
    least = "at least " if plan.unknown else ""
    yield f"\ntotal {least}{clock(plan.total)}, critical path: {' > '.join(plan.critical_path)}"
    yield f"hand-offs between people: {plan.handoff:g} s each"
    if plan.write_stop is not None and plan.write_stop_work is not None:
        budget = runbook.budgets.write_stop
        yield (
            f"writes stop for {least}{clock(plan.write_stop)}{f' of {clock(budget)}' if budget else ''}:"
            f" {clock(plan.write_stop_work)} of work and {plan.write_stop_handoffs} hand-offs between people"
        )
    moment, back, id_ = rollback_peak(runbook, plan)
    if id_:
        yield f"worst moment to go back: {clock(moment)}, after {id_}; it takes {clock(back)}"
    if runbook.window is not None:
        yield f"window {clock(runbook.window.closes - runbook.window.opens)}, margin {clock(runbook.budgets.margin)}"


def plan_json(runbook: Runbook, plan: Plan, kind: RunKind) -> dict[str, Any]:
    """Return the plan of a runbook, as JSON."""
    from dataclasses import asdict

    from migverify.runbook.definition.plan import rollback_peak

    moment, back, id_ = rollback_peak(runbook, plan)
    planned = asdict(plan)
    return {
        "runbook": runbook.id, "sha": runbook.sha, "environment": runbook.environment, "kind": kind.value, **planned,
        "worst_rollback": {"after": id_, "at": moment, "seconds": back},
    }  # fmt: skip


__all__ = ["clock", "lint_json", "lint_lines", "linted", "parse_set", "plan_json", "plan_lines"]
