"""``migverify runbook check``: lint, plan and preflight of a runbook. Nothing begins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, JsonOption, examples, json_text, say
from migverify.cli.runbook_begin import catalogue, kind_of
from migverify.cli.runbook_lint import (
    EnvironmentOption,
    RunbookArgument,
    SetOption,
    lint_json,
    lint_lines,
    linted,
    parse_set,
    plan_json,
    plan_lines,
)
from migverify.cli.runbook_preflight import asked_before, preflight_lines
from migverify.cli.runbook_room import DEFAULT_ROOM, RoomOption
from migverify.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from migverify.runbook.definition.findings import LintFinding
    from migverify.runbook.definition.plan import Plan
    from migverify.runbook.kinds import RunKind
    from migverify.runbook.model import Runbook
    from migverify.runbook.run.preflight import Preflight

__all__ = ["EPILOG", "check"]

EPILOG = examples(
    "migverify runbook check cutover.yaml -e staging --set service=orders",
    "migverify runbook check cutover.yaml --offline                      # every environment, no server is asked",
    "migverify runbook check cutover.yaml -e staging --offline --commands # every effect that it would have",
    "migverify runbook check runbooks/dr/tikv-lost.yaml --expanded        # with all that its template has",
    "migverify runbook check cutover.yaml -e production --kind live --announce",
    "migverify runbook check cutover.yaml -e production --kind live --json | jq .preflight.verdict",
)
_CODES = {"MATCH": ExitCode.MATCH, "MISMATCH": ExitCode.MISMATCH}


def check(
    runbook: RunbookArgument,
    environment: EnvironmentOption = None,
    set_: SetOption = None,
    kind: Annotated[
        str, typer.Option("--kind", metavar="KIND", help="Kind of run: dry, rehearsal, live, rollback.")
    ] = "rehearsal",
    offline: Annotated[bool, typer.Option("--offline", help="Lint and plan only; ask no server.")] = False,
    commands: Annotated[bool, typer.Option("--commands", help="List every effect that it would have.")] = False,
    announce: Annotated[bool, typer.Option("--announce", help="Send a test message to every sink.")] = False,
    passed: Annotated[bool, typer.Option("--passed", help="List what passed, too.")] = False,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Ask checks of steps that act, too: they need an answer, not a pass."
        ),
    ] = False,
    cases: Annotated[
        Path | None,
        typer.Option(
            "--cases", metavar="FOLDER", help="Disaster recovery cases; default: dr/ beside the runbook."
        ),
    ] = None,
    expanded: Annotated[
        bool,
        typer.Option(
            "--expanded", help="Print the runbook as one file, its template and named checks filled in; no more."
        ),
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    runs: RoomOption = DEFAULT_ROOM,
) -> None:  # fmt: skip
    """Refuse a runbook that cannot be trusted, show its plan, and ask everything that would stop a run.

    Exit 2: lint refuses it; 1: something would stop the run; 3: something could not be known; 0: none of these.
    """
    if expanded:
        from migverify.runbook.definition.expand import expanded_text

        typer.echo(expanded_text(runbook), nl=False)
        return
    given, wanted = parse_set(set_ or []), kind_of(kind)
    names = [environment] if environment is not None else _environments(runbook, given)
    read, findings = linted(runbook, given, names, cases)
    refused = any(one.refused for one in findings)
    if not offline and len(names) > 1 and not refused:
        raise UsageError(
            "--environment is missing",
            hint=f"The runbook has: {', '.join(names)}. --offline lints it for all of them.",
        )
    body: dict[str, Any] = {"lint": lint_json(read, findings)}
    if not as_json:
        typer.echo("\n".join(lint_lines(runbook, read, findings, commands=commands)))
    code = ExitCode.USAGE if refused else ExitCode.MATCH
    if not refused and len(names) == 1:
        known = config if config.exists() else None
        book, planned, found = _examined(
            runbook, given, names[0], wanted, findings, known, catalogue(cases, runbook.parent), runs,
            offline=offline, announce=announce, everything=everything,
        )  # fmt: skip
        body["plan"] = plan_json(book, planned, wanted)
        if not as_json:
            _tell(book, planned, found, wanted, passed=passed)
        if found is not None:
            from migverify.runbook.run.preflight import as_json as json_of

            body["preflight"] = json_of(found)
            code = _CODES.get(found.verdict, ExitCode.INCONCLUSIVE)
    if as_json:
        typer.echo(json_text(body, indent=2))
    elif not refused and len(names) > 1:
        _tell_plans(runbook, given, names, wanted)
    raise typer.Exit(int(code))


def _examined(
    path: Path, given: dict[str, str], environment: str, kind: RunKind, findings: list[LintFinding],
    config: Path | None, folder: Path | None, runs: str, *, offline: bool, announce: bool, everything: bool,
) -> tuple[Runbook, Plan, Preflight | None]:  # fmt: skip
    from migverify.runbook.definition.load import load_runbook
    from migverify.runbook.definition.plan import plan_of

    book = load_runbook(path, given, environment)
    planned = plan_of(book, kind)
    if offline:
        return book, planned, None
    found = asked_before(book, findings, kind, runs, config, folder, announce=announce, everything=everything)
    return book, planned, found


def _tell(book: Runbook, planned: Plan, found: Preflight | None, kind: RunKind, *, passed: bool) -> None:
    typer.echo("\n".join(plan_lines(book, planned, kind)))
    if planned.unknown:
        say(f"note: {len(planned.unknown)} steps have no planned time and count 0: {', '.join(planned.unknown[:5])}")
    if found is not None:
        typer.echo("\n".join(["", *preflight_lines(book, found, kind.value, passed=passed)]))


def _tell_plans(path: Path, given: dict[str, str], names: list[str], kind: RunKind) -> None:
    from migverify.runbook.definition.load import load_runbook
    from migverify.runbook.definition.plan import plan_of

    for name in names:
        book = load_runbook(path, given, name)
        typer.echo("")
        _tell(book, plan_of(book, kind), None, kind, passed=False)


def _environments(path: Path, given: dict[str, str]) -> list[str]:
    from migverify.runbook.definition.load import read_runbook

    read = read_runbook(path, given, "").runbook
    return [""] if read is None else list(read.environments)
