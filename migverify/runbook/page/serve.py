"""The live page of a run: a read-only HTTP server of the standard library. It has no way to change anything.

It answers GET and HEAD for a handful of fixed paths. What it sends is made of the journal alone, needs nothing from
elsewhere, and runs no script but its own.
"""

from __future__ import annotations

import gzip
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any

from migverify.errors import UsageError
from migverify.model import is_loopback

if TYPE_CHECKING:
    from migverify.runbook.page.watch_run import Watcher

__all__ = [
    "DEFAULT_HOST", "DEFAULT_PORT", "HTML", "METRICS", "MetricsServer", "PageAnswer", "PageServer", "ReadOnlyServer",
    "asset",
]  # fmt: skip

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
HTML, METRICS = "text/html; charset=utf-8", "text/plain; version=0.0.4; charset=utf-8"
_ASSETS = {
    "/": ("live.html", HTML),
    "/app.js": ("live.js", "text/javascript; charset=utf-8"),
    "/style.css": ("live.css", "text/css; charset=utf-8"),
}

Maker = Callable[[], tuple[str, str]]
"""Makes a page: (text, its content security policy)."""


@cache
def asset(name: str) -> str:
    """Return a page, script or style sheet of our own."""
    return (files("migverify.runbook.page") / "templates" / name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """What is sent for a path. ``policy`` is its content security policy, None for that of our own assets."""

    body: str | bytes
    kind: str = "text/plain; charset=utf-8"
    policy: str | None = None
    status: HTTPStatus = HTTPStatus.OK
    extra: Mapping[str, str] = field(default_factory=dict)


class ReadOnlyServer(ThreadingHTTPServer):
    """Serves pages that can only be read.

    Parameters
    ----------
    host
        Address to listen on. On a loopback address, requests for other host names are refused: a page of somebody
        else's could otherwise have its own name point here, and read along.
    port
        0: any that is free; see ``url``.

    Raises
    ------
    UsageError
        the address cannot be listened on.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self._talking: set[socket.socket] = set()
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise UsageError(
                f"{host}:{port} cannot be listened on: {error.strerror or error}",
                hint="Name another port, or an address of this machine.",
            ) from error

    def answer(self, path: str, known: str) -> PageAnswer | None:
        """Return what is sent for a path; None: there is no such page. ``known`` is the ETag that the reader has."""
        del path, known
        return None

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


class MetricsServer(ReadOnlyServer):
    """Serves the metrics that were published last, and says that there are none yet before the first."""

    def __init__(self, host: str, port: int) -> None:
        self.text = ""
        super().__init__(host, port)

    def answer(self, path: str, known: str) -> PageAnswer | None:
        """Return the metrics at `/metrics`, and at `/` for a person."""
        del known
        if path not in ("/metrics", "/"):
            return None
        if not self.text:
            return PageAnswer("There are no metrics yet.\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
        return PageAnswer(self.text, METRICS)


class PageServer(ReadOnlyServer):
    """Serves the page of one run.

    Parameters
    ----------
    report
        Makes the report as HTML; None: there is none.
    metrics
        Makes the metrics as text; None: there are none.
    """

    def __init__(
        self, watcher: Watcher, host: str = DEFAULT_HOST, port: int = DEFAULT_PORT, *, report: Maker | None = None,
        metrics: Callable[[], str] | None = None,
    ) -> None:  # fmt: skip
        self.watcher, self.report, self.metrics = watcher, report, metrics
        super().__init__(host, port)

    def answer(self, path: str, known: str) -> PageAnswer | None:
        """Return the page, its script and style, what it shows as JSON, the report or the metrics."""
        if path in _ASSETS:
            name, kind = _ASSETS[path]
            return PageAnswer(asset(name), kind)
        if path == "/view.json":
            return self._view(known)
        if path == "/report.html" and self.report is not None:
            text, policy = self.report()
            return PageAnswer(text, HTML, policy)
        if path == "/metrics" and self.metrics is not None:
            return PageAnswer(self.metrics(), METRICS)
        return None

    def _view(self, known: str) -> PageAnswer:
        seen = self.watcher.look()
        extra = {"ETag": seen.etag, "X-Now": f"{self.watcher.now():.3f}"}
        if known == seen.etag:
            return PageAnswer(b"", status=HTTPStatus.NOT_MODIFIED, extra=extra)
        return PageAnswer(seen.body, "application/json; charset=utf-8", extra=extra)


class _Handler(BaseHTTPRequestHandler):
    server: ReadOnlyServer
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
        elif (answer := self.server.answer(path, self.headers.get("If-None-Match", ""))) is not None:
            policy = {} if answer.policy is None else {"Content-Security-Policy": answer.policy}
            self._send(answer.status, answer.body, answer.kind, {**answer.extra, **policy})
        else:
            self._send(HTTPStatus.NOT_FOUND, "There is no such page here.\n")

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
