"""``migverify changes``: what was written to the source, read from its binlog. Other verbs have files of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli import changes_archive, changes_audit, changes_carrier, changes_check, changes_pipeline
from migverify.cli.changes_carrier_options import ADVANCED
from migverify.cli.changes_output import print_changes, table_filter
from migverify.cli.commands import Form, add
from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, SourceOption, TablesOption, examples
from migverify.errors import UsageError

if TYPE_CHECKING:
    from migverify.changes.model import Item, Position

app = typer.Typer(no_args_is_help=True, help="Read the source's binlog: check, print, archive and audit its changes.")


_TAIL_EPILOG = examples(
    "migverify changes tail --file binlog.000001 --file binlog.000002 --json",
    "migverify changes tail --since binlog.000003:1234 --tables 'app.order*' --json",
    "migverify changes tail --follow",
    "migverify changes tail --since 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-23",
)


def tail(
    config: ConfigOption = DEFAULT_CONFIG,
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="Binlog file or URL instead of the configured source; repeat in order."
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="POSITION", help="Start here: file:offset or a GTID set. Default: the oldest; with --follow, now."
        ),
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="POSITION", help="Stop here: file:offset or a GTID set.")] = None,
    tables: TablesOption = None,
    source: SourceOption = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as the source writes, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Print decoded changes; exit 0 when all of the range was read exactly, 3 when not, after what is certain.

    Changes are printed when their transaction is complete. Values are the text that SELECT gives.
    """
    from migverify.changes.positions import parse_position

    start = None if since is None else parse_position(since)
    end = None if until is None else parse_position(until)
    wanted = table_filter(tables)
    if file:
        if follow:
            raise UsageError("--follow reads a server; it cannot be used with --file")
        from migverify.changes.source import read_files

        stream = read_files(file, start, end)
    else:
        stream = _server_items(config, source, start, end, follow=follow)
    print_changes(stream, wanted, as_json=as_json, at_once=follow)


def _server_items(
    path: Path, source: str | None, start: Position | None, end: Position | None, *, follow: bool
) -> Iterator[Item]:
    from migverify.changes.server import BinlogServer
    from migverify.changes.source import read_server
    from migverify.config import load_config
    from migverify.secrets import resolve_password

    endpoint = changes_check.one_source(load_config(path), source)
    password = resolve_password(endpoint).reveal() or None
    if start is None and not follow:
        start = BinlogServer(endpoint, password).state.first
    return read_server(endpoint, password, start, until=end, follow=follow)


add(app, "check", changes_check.check, changes_check.EPILOG)
add(app, "tail", tail, _TAIL_EPILOG, (
    Form(("--carrier", "--format", "--kafka", "--topic"), changes_carrier.tail, changes_carrier.TAIL_EPILOG,
         "Print what a changefeed carries: Kafka topics or files.", is_option=True, advanced=("--carrier", *ADVANCED)),
))  # fmt: skip
add(app, "audit", changes_audit.audit, changes_audit.EPILOG, (
    Form(("--pipeline",), changes_pipeline.pipeline, changes_pipeline.EPILOG,
         "Audit the pipeline that carries the changes: Kafka topics or files.",
         advanced=(*ADVANCED, "--dead-letters", "--pending", "--skew", "--single-rows")),
    Form(("--carrier", "--format", "--kafka", "--topic"), changes_carrier.audit, changes_carrier.AUDIT_EPILOG,
         "Prove that what a changefeed carries is complete.", is_option=True, advanced=("--carrier", *ADVANCED)),
))  # fmt: skip
add(app, "archive", changes_archive.archive, changes_archive.EPILOG)
