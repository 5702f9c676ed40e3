"""What the commands that watch share: how they are stopped, what they print, the page of metrics, how they exit."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import typer

from migverify.cli.console import say
from migverify.errors import ExitCode, UsageError
from migverify.model import Verdict

LINE_SECONDS = 10.0
EXIT_CODES = {
    Verdict.MATCH: ExitCode.MATCH, Verdict.MISMATCH: ExitCode.MISMATCH, Verdict.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
}  # fmt: skip

Publish = Callable[[str], None]


class Reported(Protocol):
    """A status as it is printed."""

    @property
    def verdict(self) -> Verdict:
        """The verdict of this moment."""
        ...

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        ...


Status = TypeVar("Status", bound=Reported)


class StatusLines(Generic[Status]):
    """Print a line now and then for logs, or each status as one JSON object.

    A verdict that changes is reported at once, with what is certain by then.

    Parameters
    ----------
    lines
        The headline of a status, and then why its verdict is as it is.
    """

    def __init__(self, lines: Callable[[Status], Iterable[str]], *, as_json: bool = False, quiet: bool = False) -> None:
        self._lines, self._json, self._quiet = lines, as_json, quiet
        self._printed_at, self._verdict = -LINE_SECONDS, ""

    def __call__(self, status: Status) -> None:
        """Take one status."""
        if self._json:
            typer.echo(json.dumps(status.as_dict(), ensure_ascii=False))
            return
        changed = status.verdict.value != self._verdict
        if self._quiet or (not changed and time.monotonic() - self._printed_at < LINE_SECONDS):
            return
        self._printed_at, self._verdict = time.monotonic(), status.verdict.value
        for line in self._lines(status):
            say(line)


@contextmanager
def stop_on_signals(stopped: threading.Event) -> Iterator[None]:
    """Let the first Ctrl-C or TERM end the watch in order; a second one ends it at once."""

    def handle(number: int, frame: object) -> None:
        del frame
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()
        if number == signal.SIGINT:
            say("stopping: what is known is being recorded (Ctrl-C again to leave at once)")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def metrics_page(port: int | None, file: Path | None = None) -> Iterator[Publish]:
    """Serve what is published on a port of the local host, and keep it in a file for a textfile collector.

    Parameters
    ----------
    port
        0 picks one; None serves nothing.
    file
        Replaced whole, so that nobody reads half a page; None writes none.

    Raises
    ------
    UsageError
        the port cannot be served, or the file's folder is not there.
    """
    if file is not None and not file.parent.is_dir():
        raise UsageError(f"there is no folder {file.parent} for {file.name}", hint="Create it first.")
    newest = [""]

    def publish(text: str) -> None:
        newest[0] = text
        if file is not None:
            _replace(file, text)

    if port is None:
        yield publish
        return

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = newest[0].encode() if self.path in ("/metrics", "/") else b""
            self.send_response(200 if body else 404 if self.path not in ("/metrics", "/") else 503)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
            del format, args

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise UsageError(f"port {port} cannot be served: {error}", hint="Choose another port, or 0.") from error
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    say(f"metrics on http://127.0.0.1:{server.server_address[1]}/metrics")
    try:
        yield publish
    finally:
        server.shutdown()
        server.server_close()


def _replace(file: Path, text: str) -> None:
    # The name of the process: two watches that write one file must not write one half-done page.
    half = file.with_name(f".{file.name}.{os.getpid()}")
    half.write_text(text, encoding="utf-8")
    half.replace(file)
