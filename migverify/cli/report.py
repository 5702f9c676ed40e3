"""``migverify report``: show a run that the store holds."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.commands import HelpfulCommand
from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, StoreOption, completed_report, examples, say
from migverify.errors import UsageError
from migverify.report.render import Format

if TYPE_CHECKING:
    from migverify.store.results import ResultStore

app = typer.Typer()

_EXAMPLES = examples(
    "migverify report last",
    "migverify report last --format html -o report.html --values",
    "migverify report 20260131T120000-0a1b2c --format junit -o report.xml",
)


@app.command(cls=HelpfulCommand, epilog=_EXAMPLES)
def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run id, or `last` for the newest run.")],
    form: Annotated[
        Format | None,
        typer.Option("--format", "-f", help="Default: what the suffix of FILE means, else text."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--out", "--output", "-o", metavar="FILE", help="Write a file, not standard output.")
    ] = None,
    values: Annotated[
        bool, typer.Option("--values", help="Show values of differing columns, where the run kept them.")
    ] = False,
    store: StoreOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Show a run as text, JSON, HTML, JUnit or Prometheus text; end with the exit code of its verdict."""
    from migverify.report.model import ReportOptions
    from migverify.report.read import read_report
    from migverify.report.render import format_of, render, write_report

    form = form or format_of(output)
    color = output is None and sys.stdout.isatty()
    with closing(open_run_store(store, config)) as opened:
        options = ReportOptions(values=values, whole=form in (Format.JSON, Format.JUNIT))
        data = completed_report(read_report(opened, run, options))
    text = render(data, form, color=color)
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_report(output, text, private=data.private and form is not Format.PROMETHEUS)
        say(f"{data.verdict}: {form} report of run {data.run_id} in {output}")
    if form is not Format.TEXT:
        for reason in data.reasons:
            say(f"{data.verdict}: {reason}")
    raise typer.Exit(int(data.exit_code))


def open_run_store(url: str | None, config: Path, *, create: bool = True, starts_servers: bool = False) -> ResultStore:
    """Open the store named on the command line, or else the one of the configuration.

    Its password is that of the variable that the configuration names, or else of ``MIGVERIFY_STORE_PASSWORD``. A URL
    given without a configuration opens only what is there already, as ``create=False`` does: which servers are under
    test is not known then. Where the command starts these servers itself (``starts_servers``), no store is on them yet:
    it is made, without a URL at the place that a configuration has by default.

    Raises
    ------
    ConfigError
        The configuration cannot be read, or there is none and no URL.
    UsageError
        The URL holds a password.
    StoreError
        The store cannot be opened, or is on an endpoint under test.
    """
    from migverify.config import load_config
    from migverify.config.settings import DEFAULT_STORE
    from migverify.config.urls import check_store_url
    from migverify.secrets import resolve_variable
    from migverify.store.open import PASSWORD_VARIABLE, open_configured, open_store

    if url is not None and "://" in url:
        try:
            check_store_url(url, f"put it into the variable {PASSWORD_VARIABLE}")
        except ValueError as error:
            raise UsageError(f"--store: {error}") from None
    own = resolve_variable(PASSWORD_VARIABLE, "--store").reveal() if PASSWORD_VARIABLE in os.environ else None
    if starts_servers and not config.exists() and (url is not None or config == DEFAULT_CONFIG):
        return open_store(url or DEFAULT_STORE, password=own, create=create)
    if url is not None and not config.exists():
        return open_store(url, password=own, create=False)
    return open_configured(load_config(config), url, create=create)
