"""The newest Prometheus page of a watch, over HTTP and as a file."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from migverify.cli.console import say
from migverify.errors import UsageError

Publish = Callable[[str], None]


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
