"""``migverify runbook serve``, ``report`` and ``export``: show a run to a room, to a reader, to another tool."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import examples, say
from migverify.cli.runbook_lint import EnvironmentOption, SetOption, parse_set
from migverify.cli.runbook_room import DEFAULT_ROOM, RoomOption, room_of
from migverify.errors import StoreError, UsageError

if TYPE_CHECKING:
    from migverify.runbook.page.watch_run import Watcher
    from migverify.runbook.record.room import Room

__all__ = ["EXPORT_EPILOG", "REPORT_EPILOG", "SERVE_EPILOG", "export", "report", "serve"]

SERVE_EPILOG = examples(
    "migverify runbook serve                      # the newest run, on http://127.0.0.1:8765/",
    "migverify runbook serve --host 0.0.0.0       # for the phones and the wall screen of a trusted network",
    "migverify runbook serve --run 20261121T171552Z-cutover-b19cc1 --port 9000",
)
REPORT_EPILOG = examples(
    "migverify runbook report -o drill.html",
    "migverify runbook report --run 20261121T171552Z-cutover-b19cc1 --format md",
    "migverify runbook report --format json | jq '.items[] | .text'",
    "migverify runbook report --checklist runbooks/cutover.yaml -e staging -o checklist.html   # to be printed",
)
EXPORT_EPILOG = examples(
    "migverify runbook export --chaostoolkit-journal journal.json",
    "migverify runbook export --run last --journal evidence.jsonl    # the journal itself, to be kept elsewhere",
)

WhichRun = Annotated[str, typer.Option("--run", metavar="RUN", help="The run's id, or `last` for the newest one.")]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write a file, not standard output.")
]


class Form(StrEnum):
    """How a report is written."""

    HTML = "html"
    MARKDOWN = "md"
    JSON = "json"


_SUFFIXES = {
    ".html": Form.HTML,
    ".htm": Form.HTML,
    ".md": Form.MARKDOWN,
    ".markdown": Form.MARKDOWN,
    ".json": Form.JSON,
}


def serve(
    run: WhichRun = "last",
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Where to listen; without, only this machine can read it.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any that is free.")] = 8765,
    runs: RoomOption = DEFAULT_ROOM,
) -> None:
    """Show a run on a page that follows it: for the coordinator, the wall screen and phones. It can only be read.

    The page needs no network beyond this server, and says so when the journal is damaged, the executor is silent or
    the server has gone. With `last` it goes on to the next run by itself. Ctrl-C ends it.
    """
    from migverify.runbook.page.metrics import metrics_text
    from migverify.runbook.page.serve import PageServer
    from migverify.runbook.page.watch_run import Watcher

    room = room_of(runs)
    watcher = Watcher(room, run)
    server = PageServer(
        watcher, host, port, report=lambda: _live_report(room, watcher), metrics=lambda: metrics_text(watcher.look())
    )
    with server:
        say(f"the page is at {server.url}")
        if not server.local:
            say(f"note: everybody who reaches {host} can read it; nobody can change anything through it")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("the page is closed; the run goes on")


def _live_report(room: Room, watcher: Watcher) -> tuple[str, str]:
    from migverify.runbook.page.html import report_html, report_policy
    from migverify.runbook.page.report_of import report_of

    seen = watcher.look()
    if seen.view is None:
        raise StoreError(seen.problem.text if seen.problem is not None else "there is no run")
    return report_html(report_of(room, seen.view.run)), report_policy()


def report(
    run: WhichRun = "last",
    form: Annotated[
        Form | None, typer.Option("--format", "-f", help="Default: what the suffix of FILE stands for, else md.")
    ] = None,
    output: OutputOption = None,
    checklist: Annotated[
        Path | None,
        typer.Option("--checklist", metavar="RUNBOOK", help="No run: this runbook on paper, for when tools are down."),
    ] = None,
    kind: Annotated[
        str, typer.Option("--kind", metavar="KIND", help="With --checklist: dry, rehearsal, live or rollback.")
    ] = "live",
    environment: EnvironmentOption = None,
    set_: SetOption = None,
    runs: RoomOption = DEFAULT_ROOM,
) -> None:
    """Write down what a run was: times against the plan, who did what, evidence, approvals, scores, action items.

    The journal is verified on the way, and the report says what came of it. Of a run that is not over it says so.
    """
    form = form or (_SUFFIXES.get(output.suffix.lower()) if output is not None else None) or Form.MARKDOWN
    if checklist is not None:
        text = _checklist(checklist, form, kind, environment, set_ or [])
    else:
        text = _report(run, form, runs)
    if output is None:
        typer.echo(text, nl=False)
    else:
        _write(output, text)


def _report(run: str, form: Form, runs: str) -> str:
    from migverify.runbook.page.html import report_html
    from migverify.runbook.page.report_of import report_of
    from migverify.runbook.page.report_text import as_markdown
    from migverify.runbook.page.run_report import report_as_json

    made = report_of(room_of(runs), run)
    view = made.view
    problems = "; its journal DOES NOT VERIFY" if made.verified is False else ""
    say(f"{view.label} {view.run}: {view.state}, {len(made.items)} action items{problems}")
    if form is Form.HTML:
        return report_html(made)
    if form is Form.JSON:
        return json.dumps(report_as_json(made), ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    return as_markdown(made)


def _checklist(path: Path, form: Form, kind: str, environment: str | None, given: list[str]) -> str:
    from migverify.runbook.definition.load import load_runbook, read_runbook
    from migverify.runbook.model import RunKind
    from migverify.runbook.page.checklist import checklist, checklist_markdown
    from migverify.runbook.page.html import checklist_html

    if kind not in list(RunKind):
        raise UsageError(f"--kind {kind}: there is no such run", hint=f"Give one of {', '.join(RunKind)}.")
    if form is Form.JSON:
        raise UsageError("a checklist is for people: it has no JSON", hint="Give --format html or md.")
    values = parse_set(given)
    if environment is None:
        found = read_runbook(path, values, "").runbook
        known = list(found.environments) if found is not None else []
        if len(known) > 1:
            raise UsageError("--environment is missing", hint=f"The runbook has: {', '.join(known)}.")
        environment = known[0] if known else ""
    paper = checklist(load_runbook(path, values, environment), RunKind(kind))
    return checklist_html(paper) if form is Form.HTML else checklist_markdown(paper)


def export(
    run: WhichRun = "last",
    chaostoolkit_journal: Annotated[
        Path | None,
        typer.Option(
            "--chaostoolkit-journal", metavar="FILE", help="As a journal of the Chaos Toolkit; `-`: print it."
        ),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option("--journal", metavar="FILE", help="The journal itself, for `verify-journal` elsewhere."),
    ] = None,
    runs: RoomOption = DEFAULT_ROOM,
) -> None:
    """Hand a run to other tools: as a journal of the Chaos Toolkit, or its own journal as one file."""
    from migverify.runbook.page.chaostoolkit import chaostoolkit_journal as made

    if chaostoolkit_journal is None and journal is None:
        raise UsageError("say what to export", hint="Give --chaostoolkit-journal FILE or --journal FILE.")
    room = room_of(runs)
    if chaostoolkit_journal is not None:
        text = json.dumps(made(room.open(run).status), ensure_ascii=False, indent=2, allow_nan=False) + "\n"
        if str(chaostoolkit_journal) == "-":
            typer.echo(text, nl=False)
        else:
            _write(chaostoolkit_journal, text)
    if journal is not None:
        room.export(run, journal)
        say(f"journal in {journal}")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    say(f"written to {path}")
