"""A collector of OpenTelemetry that keeps what it is sent."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.waiting import PATIENCE

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture
def no_collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variable of the machine that tests; at the end no thread that sends, and the level of messages as it was."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    logger = logging.getLogger("opentelemetry")
    level = logger.level
    yield
    for closing in [thread for thread in threading.enumerate() if thread.name == "telemetry"]:
        # Nobody waits for it elsewhere: it would try again and log beside the tests that follow.
        closing.join(PATIENCE)
        assert not closing.is_alive()
    logger.setLevel(level)


class _Collector(HTTPServer):
    """Takes what is sent. ``received`` are paths and bodies."""

    def __init__(self) -> None:
        self.received: list[tuple[str, bytes]] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Collector

    def do_POST(self) -> None:
        self.server.received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Yield the address of a collector, and what it has received: paths and bodies."""
    with _Collector() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", server.received
        finally:
            server.shutdown()
            thread.join()
