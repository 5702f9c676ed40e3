"""``migverify runbook lint`` and ``plan``: what is wrong with a runbook, and how long it takes. Nothing is run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.console import examples, say
from migverify.cli.runbook_begin import catalogue
from migverify.cli.runbook_room import DEFAULT_ROOM, RoomOption
from migverify.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from migverify.runbook.definition.findings import LintFinding
    from migverify.runbook.definition.handoffs import HandOffs
    from migverify.runbook.definition.plan import Plan
    from migverify.runbook.model import Runbook, RunKind

LINT_EPILOG = examples(
    "migverify runbook lint runbooks/rehearsal.yaml",
    "migverify runbook lint runbooks/rehearsal.yaml --environment staging --set service=orders",
    "migverify runbook lint runbooks/rehearsal.yaml --commands    # every command that it would run",
    "migverify runbook lint runbooks/rehearsal.yaml --json | jq '.findings[] | .rule'",
)
PLAN_EPILOG = examples(
    "migverify runbook plan runbooks/rehearsal.yaml --environment lab",
    "migverify runbook plan runbooks/rehearsal.yaml --environment staging --kind live --json",
)
SCHEMA_EPILOG = examples("migverify runbook schema > runbook.schema.json")

RunbookArgument = Annotated[Path, typer.Argument(metavar="RUNBOOK", help="The runbook, a YAML file.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Value of a parameter {{NAME}}; may be repeated."),
]
EnvironmentOption = Annotated[
    str | None,
    typer.Option("--environment", "-e", metavar="NAME", help="One of the runbook's environments."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def lint(
    runbook: RunbookArgument,
    set_: SetOption = None,
    environment: EnvironmentOption = None,
    cases: Annotated[
        Path | None,
        typer.Option("--cases", metavar="FOLDER", help="Disaster recovery cases; default: dr/ beside the runbook."),
    ] = None,
    commands: Annotated[bool, typer.Option("--commands", help="List every effect that it would have.")] = False,
    runs: RoomOption = DEFAULT_ROOM,
    as_json: JsonOption = False,
) -> None:
    """Refuse a runbook that cannot be trusted, with file, line and rule. Without --environment it is linted for all.

    How long people wait for each other is that of the drills in --runs; without any a stated default.

    Exit 0: nothing is refused (there may be warnings), 2: something is.
    """
    from migverify.runbook.actions.registry import full_registry
    from migverify.runbook.definition.lint import lint_file
    from migverify.runbook.definition.load import known_cases, read_runbook

    given = parse_set(set_ or [])
    folder = catalogue(cases, runbook.parent)
    known = known_cases(folder) if folder is not None else None
    actions = full_registry().by_name()
    wanted = [environment] if environment is not None else _environments(read_runbook(runbook, given, "").runbook)
    found: dict[LintFinding, None] = {}
    for name in wanted:
        reading, findings = lint_file(runbook, given, name, actions, known, measured(runbook, given, name, runs))
        found.update(dict.fromkeys(findings))
    ordered = sorted(found, key=lambda one: (one.place.line, one.rule, one.text))
    refused = sum(one.refused for one in ordered)
    if as_json:
        typer.echo(json.dumps(_lint_json(reading.runbook, ordered), indent=2, ensure_ascii=False))
    else:
        for one in ordered:
            typer.echo(f"{one.place}: {'' if one.refused else 'warning: '}{one.text} [{one.rule}]\n    {one.hint}")
        if commands and reading.runbook is not None:
            typer.echo("\n".join(_commands(reading.runbook)))
        steps = "" if reading.runbook is None else f"{len(reading.runbook.steps)} steps, "
        sha = "" if reading.runbook is None else f" (sha {reading.runbook.sha[:12]})"
        typer.echo(f"{runbook}: {steps}{refused} refused, {len(ordered) - refused} warnings{sha}")
    if refused:
        raise typer.Exit(ExitCode.USAGE)


def plan(
    runbook: RunbookArgument,
    set_: SetOption = None,
    environment: EnvironmentOption = None,
    kind: Annotated[
        str, typer.Option("--kind", metavar="KIND", help="Kind of run: dry, rehearsal, live, rollback.")
    ] = "rehearsal",
    runs: RoomOption = DEFAULT_ROOM,
    as_json: JsonOption = False,
) -> None:
    """Show the steps in their order with planned times, slack, the critical path and who is needed twice at once.

    How long people wait for each other is that of the drills in --runs; without any a stated default.
    """
    from migverify.runbook.definition.load import load_runbook, read_runbook
    from migverify.runbook.definition.plan import plan_of
    from migverify.runbook.model import RunKind

    given = parse_set(set_ or [])
    if kind not in list(RunKind):
        raise UsageError(f"--kind {kind}: there is no such run", hint=f"Give one of {', '.join(RunKind)}.")
    if environment is None:
        known = _environments(read_runbook(runbook, given, "").runbook)
        if len(known) > 1:
            raise UsageError("--environment is missing", hint=f"The runbook has: {', '.join(known)}.")
        environment = known[0]
    loaded = load_runbook(runbook, given, environment)
    planned = plan_of(loaded, RunKind(kind), handoff=measured(runbook, given, environment, runs))
    if as_json:
        typer.echo(json.dumps(_plan_json(loaded, planned, RunKind(kind)), indent=2, ensure_ascii=False))
        return
    typer.echo("\n".join(plan_lines(loaded, planned, RunKind(kind))))
    if planned.unknown:
        say(f"note: {len(planned.unknown)} steps have no planned time and count 0: {', '.join(planned.unknown[:5])}")


def measured(path: Path, given: Mapping[str, str], environment: str, room: str) -> HandOffs:
    """Return how long people waited for each other in the drills of a runbook; the stated default without any."""
    from migverify.cli.runbook_room import room_of
    from migverify.runbook.definition.handoffs import UNMEASURED
    from migverify.runbook.definition.load import read_runbook
    from migverify.runbook.history.past import handoffs_of, past_runs

    book = read_runbook(path, given, environment).runbook
    if book is None or ("://" not in room and not Path(room).is_dir()):
        return UNMEASURED
    return handoffs_of(past_runs(room_of(room), book.id), book)


def schema() -> None:
    """Print the JSON schema of a runbook, for editors that complete and check it."""
    from migverify.config.reference import json_schema_text
    from migverify.runbook.definition.document import TITLE, RunbookDocument

    typer.echo(json_schema_text(RunbookDocument, TITLE), nl=False)


def parse_set(given: list[str]) -> dict[str, str]:
    """Read ``NAME=VALUE`` texts of ``--set``.

    Raises
    ------
    UsageError
        no ``=``, or a name twice.
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


def _environments(runbook: Runbook | None) -> list[str]:
    return [""] if runbook is None else list(runbook.environments)


def _lint_json(runbook: Runbook | None, findings: list[LintFinding]) -> dict[str, Any]:
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
    yield f"hand-offs between people: {plan.handoff}"
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
    for conflict in plan.conflicts:
        when = "at once by plan" if conflict.planned else "at once if something slips"
        yield f"{conflict.person} is needed twice, {when}: {conflict.first}, {conflict.second}"


def _plan_json(runbook: Runbook, plan: Plan, kind: RunKind) -> dict[str, Any]:
    from dataclasses import asdict

    from migverify.runbook.definition.plan import rollback_peak

    moment, back, id_ = rollback_peak(runbook, plan)
    told = asdict(plan)
    return {
        "runbook": runbook.id, "sha": runbook.sha, "environment": runbook.environment, "kind": kind.value, **told,
        "worst_rollback": {"after": id_, "at": moment, "seconds": back},
    }  # fmt: skip


__all__ = ["clock", "lint", "parse_set", "plan", "plan_lines", "schema"]
