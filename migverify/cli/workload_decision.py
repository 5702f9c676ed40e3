"""``migverify workload decision``: may the service cut over? One page of all evidence in the store."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, JsonOption, StoreOption, examples, say
from migverify.errors import MigverifyError
from migverify.report.render import Format

if TYPE_CHECKING:
    from migverify.decision.model import Decision
    from migverify.store.results import ResultStore

EPILOG = examples(
    "migverify workload decision captures/peak",
    "migverify workload decision captures/peak --service orders -o orders.html",
    "migverify workload decision --json | jq '.why[] | [.part, .text, .remedy]'",
)


def decision(
    capture: Annotated[
        Path | None,
        typer.Argument(metavar="[CAPTURE]", help="The service's capture; default: decision.capture of the file."),
    ] = None,
    service: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the page is called; default: the capture's name.")
    ] = None,
    form: Annotated[
        Format | None, typer.Option("--format", "-f", help="Default: what the suffix of FILE means, else text.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write a file, not standard output.")
    ] = None,
    reports: Annotated[
        bool, typer.Option("--reports/--no-reports", help="Write the runs' pages beside an HTML file, and link them.")
    ] = True,
    as_json: JsonOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    store: StoreOption = None,
) -> None:
    """Say GO, NO-GO or NOT KNOWN from answers, anomalies, latency, plans, hot spots, conflicts and clients.

    Reads the store, and the catalogs of both sides to see whether its evidence is of this service as it is now. Exit 0
    GO, 1 NO-GO, 3 NOT KNOWN.
    """
    from migverify.cli.report import open_run_store
    from migverify.config import load_config
    from migverify.decision.run import decide_now
    from migverify.report.decision import decision_report
    from migverify.report.render import format_of, render, write_report

    loaded = load_config(config)
    form = Format.JSON if as_json else form or format_of(output)
    options = "" if config == DEFAULT_CONFIG else f" --config {shlex.quote(str(config))}"
    with closing(open_run_store(store, config)) as opened:
        found = decide_now(loaded, opened, capture, options=options)
        links = _reports(opened, found, output) if reports and output is not None and form is Format.HTML else {}
    name = service or (capture or Path(loaded.decision.capture or "service")).name
    data = decision_report(found, name, links)
    text = render(data, form, color=output is None and sys.stdout.isatty())
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_report(output, text, private=form is not Format.PROMETHEUS)
        say(f"{data.word}: {form} page of {name} in {output}")
    raise typer.Exit(int(data.exit_code))


def _reports(store: ResultStore, found: Decision, output: Path) -> Mapping[str, str]:
    """Write the page of each run beside the decision's; return their places relative to it."""
    from migverify.report.read import read_report
    from migverify.report.render import render, write_report

    folder = output.with_suffix(".runs")
    runs = {part.evidence.run for part in found.parts} | {one.run for part in found.parts for one in part.reasons}
    links = {}
    for run in sorted(runs - {""}):
        try:
            data = read_report(store, run)
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_report(folder / f"{run}.html", render(data, Format.HTML), private=data.private)
        except (MigverifyError, OSError) as error:
            say(f"note: no page of run {run}: {error}")
            continue
        links[run] = f"{folder.name}/{run}.html"
    return links
