"""What the commands that watch share: what they print, the pages they serve, how they are stopped, how they exit."""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import typer

from migverify.cli.console import completed, raw_stream, say, visible
from migverify.errors import ExitCode, UsageError
from migverify.exposition import Metric, listed, page
from migverify.files import write_whole
from migverify.signals import ENDING, SignalEvent, handled, say_at_once
from migverify.telemetry import sent_metrics

if TYPE_CHECKING:
    from migverify.runbook.page.serve import MetricsServer
    from migverify.watch.status import WatchStatus

LINE_SECONDS = 10.0
MOST_REASONS = 3
_LEAST_PERIOD = 1.0
_PLAIN_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")


class ListenAddress(NamedTuple):
    """An address to serve pages at."""

    host: str
    port: int


def listen_address(text: str) -> ListenAddress:
    """Read ``PORT``, which is one of the loopback address, or ``HOST:PORT``; a host of IPv6 is in brackets."""
    host, colon, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not (port.isdecimal() and port.isascii() and int(port) <= 65_535) or (":" in host and not is_bracketed):
        raise typer.BadParameter(f"{text!r} is no address: write 9108, 127.0.0.1:9108 or [::1]:9108")
    if colon and not host:
        raise typer.BadParameter(f"{text!r} names no host: write 0.0.0.0{text} for every address of this machine")
    return ListenAddress(host.strip("[]") or "127.0.0.1", int(port))


def period_seconds(text: str | float) -> float:
    """Read how long a period lasts: a duration such as ``3s``, ``15m`` or ``1h30m``, or a plain number of seconds."""
    from migverify.runbook.definition.fields import parse_duration

    written = str(text).strip()
    if _PLAIN_SECONDS.fullmatch(written):
        written += "s"
    try:
        seconds = parse_duration(written)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {error}") from error
    if not isinstance(seconds, float) or not seconds >= _LEAST_PERIOD:
        raise typer.BadParameter(f"{text!r} is too short: at least 1s")
    return seconds


MetricsAddressOption = Annotated[
    ListenAddress | None,
    typer.Option(
        metavar="[HOST:]PORT", parser=listen_address,
        help="Serve /metrics on this port of the local host, or at an address; 0 picks one.",
    ),
]  # fmt: skip

Publish = Callable[[Iterable[Metric]], None]
"""Takes the metrics as they are now."""


class WatchOutput:
    """Shows each status of a watch: on the screen, as lines or JSON, and on the pages; then its end.

    For logs there is a line now and then; a verdict that changes is reported at once. ``screen`` is a live table,
    None for lines. ``stopped`` is set by the first Ctrl-C or TERM.
    """

    def __init__(self, publish: Publish, screen: Any, stopped: threading.Event, *, as_json: bool, quiet: bool) -> None:
        self.stopped = stopped
        self._publish, self._screen, self._json, self._quiet = publish, screen, as_json, quiet
        self._printed_at, self._verdict = -LINE_SECONDS, ""

    def show(self, status: WatchStatus) -> None:
        """Take one status."""
        from migverify.watch.status import json_line, lines, status_metrics

        self._publish(status_metrics(status))
        if self._json and not status.final:
            typer.echo(json_line(status, completed))
        elif self._screen is not None:
            self._screen.update(_table(status))
        elif not (self._json or self._quiet or status.final):
            changed = status.verdict.value != self._verdict
            if changed or time.monotonic() - self._printed_at >= LINE_SECONDS:
                self._printed_at, self._verdict = time.monotonic(), status.verdict.value
                for line in lines(status):
                    say(visible(line, lines=False))

    def begin(self, run_id: str) -> None:
        """Name the run."""
        say(f"watch {run_id} (stop it with Ctrl-C; go on with --resume {run_id})")

    def end(self, status: WatchStatus) -> NoReturn:
        """Print the last status and exit by its verdict; 130 for a watch that was stopped."""
        from migverify.watch.status import final_text, json_line

        typer.echo(json_line(status, completed) if self._json else final_text(status))
        raise typer.Exit(int(ExitCode.INTERRUPTED if self.stopped.is_set() else status.verdict.exit_code))


@contextmanager
def watch_output(
    *, as_json: bool, quiet: bool, metrics: ListenAddress | None, file: Path | None = None
) -> Iterator[WatchOutput]:
    """Yield what shows the statuses of a watch; see ``metrics_page`` for ``metrics`` and ``file``."""
    with ExitStack() as stack:
        publish = stack.enter_context(metrics_page(metrics, file))
        screen = None
        if not as_json and not quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=raw_stream(sys.stderr))
            screen = stack.enter_context(Live(console=console, refresh_per_second=4, transient=True))
        stopped = stack.enter_context(stop_on_signals())
        yield WatchOutput(publish, screen, stopped, as_json=as_json, quiet=quiet)


def _table(status: WatchStatus) -> Any:
    from rich.table import Table
    from rich.text import Text

    from migverify.watch.status import rows

    columns, body, left = rows(status)
    table = Table(title=Text(status.headline()), title_justify="left", expand=False)
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place < 3 else "right")
    for row in body:
        table.add_row(*map(Text, row))
    below = [f"and {left} more"] if left else []
    # Without a part that says it, the screen would not say why the watch is INCONCLUSIVE.
    below += [visible(reason, lines=False) for reason in status.reasons[:MOST_REASONS]]
    table.caption = Text("\n".join(below)) if below else None
    return table


@contextmanager
def stop_on_signals() -> Iterator[SignalEvent]:
    """Yield what the first Ctrl-C or TERM sets, so that the watch ends in order; a second one ends it at once."""
    stopped = SignalEvent()

    def handle(number: int) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()
        if number == signal.SIGINT:
            say_at_once("stopping: what is known is being recorded (Ctrl-C again to leave at once)")

    with handled(ENDING, handle):
        yield stopped


@contextmanager
def metrics_page(address: ListenAddress | None, file: Path | None = None) -> Iterator[Publish]:
    """Serve what is published at an address, keep it in a file for a textfile collector, send it by OpenTelemetry.

    It is sent where the standard variables name a collector: see ``migverify.telemetry``.

    Parameters
    ----------
    address
        Port 0 picks one; None serves nothing.
    file
        Replaced whole, so that nobody reads half a page; None writes none.

    Raises
    ------
    UsageError
        the address cannot be listened on, or the file's folder is not there.
    """
    if file is not None and not file.parent.is_dir():
        raise UsageError(f"there is no folder {file.parent} for {file.name}", hint="Create it first.")

    with ExitStack() as stack:
        send = stack.enter_context(sent_metrics())
        server = None if address is None else stack.enter_context(_serving(address))

        def publish(metrics: Iterable[Metric]) -> None:
            shown = listed(metrics)
            send(shown)
            text = page(shown)
            if server is not None:
                server.text = text
            if file is not None:
                write_whole(file, text.encode("utf-8", "backslashreplace"))

        yield publish


@contextmanager
def _serving(address: ListenAddress) -> Iterator[MetricsServer]:
    from migverify.runbook.page.serve import MetricsServer

    with MetricsServer(*address) as server:
        threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
        risk = "" if server.local else ": whoever reaches this address reads names of tables, rules and services"
        say(f"metrics on {server.url}metrics{risk}")
        try:
            yield server
        finally:
            server.shutdown()
