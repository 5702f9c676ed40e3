"""The live page of a run: a read-only HTTP server of the standard library. It has no way to change anything.

It answers GET and HEAD for a handful of fixed paths. What it sends is made of the journal alone, needs nothing from
elsewhere, and runs no script but its own.
"""

from __future__ import annotations

import gzip
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from socketserver import TCPServer
from typing import Any

from migverify.errors import UsageError
from migverify.model import is_loopback
from migverify.runbook.page.watch_run import Watcher

__all__ = ["DEFAULT_HOST", "DEFAULT_PORT", "PageServer", "asset"]

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8765
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
_SMALL = 1_000
"""Bytes below which an answer is not compressed."""
_ASSETS = {
    "/": ("live.html", "text/html; charset=utf-8"),
    "/app.js": ("live.js", "text/javascript; charset=utf-8"),
    "/style.css": ("live.css", "text/css; charset=utf-8"),
}

Maker = Callable[[], tuple[str, str]]
"""Makes a page: (text, its content security policy)."""


@cache
def asset(name: str) -> str:
    """Return a page, script or style sheet of our own."""
    return (files("migverify.runbook.page") / "templates" / name).read_text(encoding="utf-8")


class PageServer(ThreadingHTTPServer):
    """Serves the page of one run.

    Parameters
    ----------
    host
        Address to listen on. On a loopback address, requests for other host names are refused: a page of somebody
        else's could otherwise have its own name point here, and read along.
    port
        0: any that is free; see ``url``.
    report
        Makes the report as HTML; None: there is none.
    metrics
        Makes the metrics as text; None: there are none.

    Raises
    ------
    UsageError
        the address cannot be listened on.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self, watcher: Watcher, host: str = DEFAULT_HOST, port: int = DEFAULT_PORT, *, report: Maker | None = None,
        metrics: Callable[[], str] | None = None,
    ) -> None:  # fmt: skip
        self.watcher, self.report, self.metrics = watcher, report, metrics
        self.host = host
        self._talking: set[socket.socket] = set()
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise UsageError(
                f"{host}:{port} cannot be listened on: {error.strerror or error}",
                hint="Name another --port, or an address of this machine with --host.",
            ) from error

    @property
    def url(self) -> str:
        """Where the page is."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.server_address[1]}/"

    def server_bind(self) -> None:
        """Bind the address, and ask no name server what this machine is called: there may be none that answers."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.host, int(self.server_address[1])

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own."""
        self._talking.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        self._talking.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Listen no more, and end the connections that readers keep open: they have to see that nobody is there."""
        super().server_close()
        for request in list(self._talking):
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a reader that went away; anything else is a fault, and is reported as one."""
        import sys

        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "migverify", ""
    timeout = 20

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _refuse(self) -> None:
        # What a body says is not read: the connection cannot be used on.
        self.close_connection = True
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, "This page can only be read.\n", extra={"Allow": "GET, HEAD"})

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _refuse  # noqa: N815

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        if self.headers.get("Content-Length", "0") != "0" or self.headers.get("Transfer-Encoding"):
            self.close_connection = True
        if self.server.local and not _is_here(self.headers.get("Host", "")):
            self._send(HTTPStatus.MISDIRECTED_REQUEST, "This server answers for this machine only.\n")
        elif path in _ASSETS:
            name, kind = _ASSETS[path]
            self._send(HTTPStatus.OK, asset(name), kind)
        elif path == "/view.json":
            self._view()
        elif path == "/report.html" and self.server.report is not None:
            text, policy = self.server.report()
            self._send(HTTPStatus.OK, text, "text/html; charset=utf-8", {"Content-Security-Policy": policy})
        elif path == "/metrics" and self.server.metrics is not None:
            self._send(HTTPStatus.OK, self.server.metrics(), "text/plain; version=0.0.4; charset=utf-8")
        else:
            self._send(HTTPStatus.NOT_FOUND, "There is no such page here.\n")

    def _view(self) -> None:
        seen = self.server.watcher.look()
        extra = {"ETag": seen.etag, "X-Now": f"{self.server.watcher.now():.3f}"}
        if self.headers.get("If-None-Match") == seen.etag:
            self._send(HTTPStatus.NOT_MODIFIED, b"", extra=extra)
        else:
            self._send(HTTPStatus.OK, seen.body, "application/json; charset=utf-8", extra)

    def _send(
        self, status: HTTPStatus, body: str | bytes, kind: str = "text/plain; charset=utf-8",
        extra: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        data = body.encode("utf-8", "backslashreplace") if isinstance(body, str) else body
        headers = {**_HEADERS, "Content-Security-Policy": _POLICY, **(extra or {})}
        if len(data) > _SMALL and "gzip" in self.headers.get("Accept-Encoding", ""):
            data, headers["Content-Encoding"] = gzip.compress(data, 1), "gzip"
        headers["Vary"] = "Accept-Encoding"
        self.send_response(status)
        if status is not HTTPStatus.NOT_MODIFIED:
            headers |= {"Content-Type": kind, "Content-Length": str(len(data))}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD" and status is not HTTPStatus.NOT_MODIFIED:
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is given
        """Say nothing: twenty readers ask every second."""


def _is_here(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return is_loopback(name)
