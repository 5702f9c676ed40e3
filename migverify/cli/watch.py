"""``migverify tables watch``: the screen, the JSON lines, the Prometheus page, and how it ends."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, command_line, raw_stream, say
from migverify.cli.watching import EXIT_CODES, StatusLines, metrics_page, stop_on_signals
from migverify.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from migverify.changes.model import Position
    from migverify.tables.watch_status import WatchStatus

SHOWN_TABLES = 30


def watch(
    config: ConfigOption = DEFAULT_CONFIG,
    tables: Annotated[
        list[str] | None,
        typer.Option("--tables", "-t", metavar="PATTERN", help="Only source tables that match, as database.table."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="RUN", help="The full verification to keep current; `last` for the newest.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Go on with a watch that was stopped or killed.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(metavar="POSITION", help="Where to begin: file:offset or a GTID set. Default: the run's, or now."),
    ] = None,
    until_drained: Annotated[
        bool, typer.Option("--until-drained", help="End when everything written up to --at-position is proved.")
    ] = False,
    at_position: Annotated[
        str | None,
        typer.Option(metavar="POSITION", help="Where to drain to, as file:offset; default: the source's end now."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="Time limit of --until-drained, then INCONCLUSIVE.")
    ] = None,
    prometheus: Annotated[
        int | None, typer.Option(metavar="PORT", help="Serve /metrics on this port of the local host; 0 picks one.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a second; the last has `final`.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No screen and no lines.")] = False,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="Result store; default: the configuration's.")
    ] = None,
) -> None:
    """Keep the verdict current while writes go on: every written key is read again once the target applied it.

    Exit 0 MATCH, 1 MISMATCH, 3 INCONCLUSIVE; Ctrl-C ends with what is known, exit 130.
    """
    from migverify.cli.report import open_run_store
    from migverify.tables.prepare import prepared_run
    from migverify.tables.watch_run import WatchRequest, watch_tables

    if since and resume:
        raise UsageError("--since and --resume exclude each other", hint="--resume knows what its watch started from.")
    if (at_position or timeout is not None) and not until_drained:
        raise UsageError("--at-position and --timeout belong to --until-drained")
    stopped = threading.Event()
    command = command_line()
    with (
        prepared_run(config, tables, current=True) as (loaded, secrets, prepared),
        closing(open_run_store(store, config)) as opened,
        _metrics(prometheus) as publish,
        _screen(as_json=as_json, quiet=quiet) as show,
        stop_on_signals(stopped),
    ):
        limit = timeout if timeout is not None else loaded.watch.drain_seconds
        request = WatchRequest(
            command, since, resume, _position(start), (_position(at_position) or "now") if until_drained else None,
            limit if until_drained else None,
        )  # fmt: skip

        def tell(status: WatchStatus) -> None:
            publish(status)
            show(status)

        status = watch_tables(
            prepared, loaded, secrets, opened, request, _folder(loaded.path),
            on_start=lambda run: say(f"watch {run} (stop it with Ctrl-C; go on with --resume {run})"),
            on_status=tell, stopped=stopped,
        )  # fmt: skip
        publish(status)
    typer.echo(json.dumps(status.as_dict(), ensure_ascii=False) if as_json else final_text(status))
    raise typer.Exit(int(ExitCode.INTERRUPTED if stopped.is_set() else EXIT_CODES[status.verdict]))


def _folder(config: Path) -> Path:
    return config.parent / ".migverify"


def _position(text: str | None) -> Position | None:
    if text is None or text == "now":
        return None
    from migverify.changes.positions import parse_position

    return parse_position(text)


@contextmanager
def _metrics(port: int | None) -> Iterator[Callable[[WatchStatus], None]]:
    """Serve the newest status as Prometheus text while the watch runs."""
    if port is None:
        yield lambda _: None
        return
    from migverify.tables.watch_status import prometheus_text

    with metrics_page(port) as publish:
        yield lambda status: publish(prometheus_text(status))


def _screen(*, as_json: bool, quiet: bool) -> AbstractContextManager[Callable[[WatchStatus], None]]:
    if as_json or quiet or not sys.stderr.isatty():
        return nullcontext(StatusLines(_lines, as_json=as_json, quiet=quiet))
    return _live()


@contextmanager
def _live() -> Iterator[Callable[[WatchStatus], None]]:
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(file=raw_stream(sys.stderr)), refresh_per_second=4, transient=True) as live:
        yield lambda status: live.update(_table(status))


def _table(status: WatchStatus) -> Any:
    from rich.table import Table

    table = Table(title=headline(status), title_justify="left", expand=False)
    for name in ("table", "verdict", "verified through", "keys", "pending", "doubt", "hot", "diverged", "oldest"):
        table.add_column(name, justify="left" if name in ("table", "verdict", "verified through") else "right")
    order = sorted(status.tables, key=lambda t: (-t.diverged, -(t.pending + t.doubt + t.hot), t.source))
    for one in order[:SHOWN_TABLES]:
        oldest = "" if one.oldest_seconds is None else f"{one.oldest_seconds:.0f} s"
        table.add_row(one.source or one.target, one.verdict.value, one.verified_through, f"{one.keys:,}",
                      f"{one.pending:,}", f"{one.doubt:,}", f"{one.hot:,}", f"{one.diverged:,}", oldest)  # fmt: skip
    if len(order) > SHOWN_TABLES:
        table.caption = f"and {len(order) - SHOWN_TABLES} more tables"
    return table


def headline(status: WatchStatus) -> str:
    """Return the state of the watch in one line."""
    parts = [status.verdict.value]
    for source in status.sources:
        lag = "lag unknown" if source.lag_seconds is None else (
            f"lag {source.lag_seconds:.1f} s / {source.lag_transactions:,} transactions")  # fmt: skip
        parts.append(f"{source.name} read to {source.read or '?'}, {lag}")
    diverged = sum(t.diverged for t in status.tables)
    proved = sum(t.keys for t in status.tables)
    parts.append(f"{proved:,} keys proved, {status.open_keys:,} open, {diverged:,} diverged")
    return "; ".join(parts)


def _lines(status: WatchStatus) -> Iterator[str]:
    yield headline(status)
    for table in status.tables:
        if table.verdict.value == "MISMATCH":
            yield f"  {table.source or table.target}: {table.reasons[0]}"


def final_text(status: WatchStatus) -> str:
    """Return the end of a watch as text: verdict first, then what keeps it from MATCH, then the findings."""
    lines = [headline(status)]
    if status.covers:
        lines.append(f"  covers {status.covers}")
    lines += [f"  {reason}" for reason in status.reasons]
    for table in status.tables:
        for reason in table.reasons:
            lines.append(f"  {table.source or table.target}: {reason}")
        lines += [f"  {table.source or table.target}: {finding}" for finding in table.findings]
    if any(t.diverged for t in status.tables):
        lines.append(f"  migverify tables diff {status.run_id} lists the diverged rows")
    return "\n".join(lines)
