"""``migverify runbook serve``, ``report`` and ``export``: show a run to a room, to a reader, to another tool."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import examples, say
from migverify.cli.runbook_room import DEFAULT_ROOM, RoomOption, room_of
from migverify.errors import StoreError, UsageError
from migverify.report.render import Format, format_of, render, write_report

if TYPE_CHECKING:
    from migverify.runbook.page.serve import ReadOnlyServer
    from migverify.runbook.page.watch_run import Watcher
    from migverify.runbook.record.run_store import RunStore

__all__ = ["EXPORT_EPILOG", "REPORT_EPILOG", "SERVE_EPILOG", "export", "report", "serve",
           "serve_until_stopped"]  # fmt: skip

SERVE_EPILOG = examples(
    "migverify runbook serve                      # the newest run, on http://127.0.0.1:8765/",
    "migverify runbook serve --host 0.0.0.0       # for the phones and the wall screen of a trusted network",
    "migverify runbook serve --run 20261121T171552Z-cutover-b19cc1 --port 9000",
)
REPORT_EPILOG = examples(
    "migverify runbook report -o drill.html",
    "migverify runbook report --run 20261121T171552Z-cutover-b19cc1 --format junit -o drill.xml",
    "migverify runbook report --format json | jq '.items[] | .text'",
)
EXPORT_EPILOG = examples(
    "migverify runbook report --export --run last --journal evidence.jsonl    # a copy to keep elsewhere",
)

WhichRun = Annotated[str, typer.Option("--run", metavar="RUN", help="The run's id, or `last` for the newest one.")]
OutputOption = Annotated[
    Path | None, typer.Option("--out", "--output", "-o", metavar="FILE", help="Write a file, not standard output.")
]


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
        serve_until_stopped(server, "page")
        say("the page is closed; the run goes on")


def serve_until_stopped(server: ReadOnlyServer, what: str) -> None:
    """Say where a page is, and serve it until Ctrl-C."""
    say(f"the {what} is at {server.url}")
    if not server.local:
        say(f"note: everybody who reaches {server.host} can read it; nobody can change anything through it")
    with suppress(KeyboardInterrupt):
        server.serve_forever()


def _live_report(room: RunStore, watcher: Watcher) -> tuple[str, str]:
    from migverify.report.html import served_page
    from migverify.runbook.page.report_view import as_report
    from migverify.runbook.page.run_report import report_of

    seen = watcher.look()
    if seen.view is None:
        raise StoreError(seen.problem.text if seen.problem is not None else "there is no run")
    return served_page(as_report(report_of(room, seen.view.run)))


def report(
    run: WhichRun = "last",
    form: Annotated[
        Format | None, typer.Option("--format", "-f", help="Default: by the suffix of FILE, else text.")
    ] = None,
    output: OutputOption = None,
    runs: RoomOption = DEFAULT_ROOM,
) -> None:
    """Write down what a run was: times against the plan, who did what, evidence, approvals, scores, action items.

    The journal is verified on the way, and the report says what came of it. Of a run that is not over it says so.
    """
    form = form or format_of(output)
    text = _report(run, form, runs)
    if output is None:
        typer.echo(text, nl=False)
    else:
        _write(output, text)


def _report(run: str, form: Format, runs: str) -> str:
    from migverify.runbook.page.report_view import as_report
    from migverify.runbook.page.run_report import report_of

    made = report_of(room_of(runs), run)
    view = made.view
    problems = "" if made.verified else "; its journal DOES NOT VERIFY"
    say(f"{view.label} {view.run}: {view.state}, {len(made.items)} action items{problems}")
    return render(as_report(made), form)


def export(
    run: WhichRun = "last",
    journal: Annotated[
        Path | None,
        typer.Option("--journal", metavar="FILE", help="The journal itself, for `runbook report --verify` elsewhere."),
    ] = None,
    runs: RoomOption = DEFAULT_ROOM,
) -> None:
    """Write the journal of a run to one file."""
    if journal is None:
        raise UsageError("--journal is missing: the file to write", hint="Give --journal FILE.")
    room_of(runs).export(run, journal)
    say(f"journal in {journal}")


def _write(path: Path, text: str) -> None:
    write_report(path, text)
    say(f"written to {path}")
