"""A Prometheus of its own for a test module, and a page that it scrapes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from migverify_lab import prometheus
from migverify_lab.process import ProcessId, free_port, spawn, stop

WATCHDOG = {"alert": "Watchdog", "expr": "vector(1)"}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = self.server.exporter.text().encode()  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Exporter:
    """A page of metrics. ``counter`` grows by ten with every scrape, ``page`` is the rest."""

    def __init__(self) -> None:
        self.port = free_port()
        self.page, self.counter, self.empty = "", 1000, False
        self._server: ThreadingHTTPServer | None = None

    def text(self) -> str:
        self.counter += 10
        return "" if self.empty else f"queries_total {self.counter}\n{self.page}"

    def start(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), _Handler)
        self._server.exporter = self  # type: ignore[attr-defined]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


@dataclass
class Server:
    """Prometheus, scraping every second. ``jobs``: job -> addresses; ``rules`` are those of one group."""

    programs: tuple[str, ...]
    folder: Path
    port: int = field(default_factory=free_port)
    jobs: dict[str, list[str]] = field(default_factory=dict)
    rules: list[dict[str, Any]] = field(default_factory=lambda: [WATCHDOG])
    process: ProcessId | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def write(self) -> None:
        scrapes = [{"job_name": j, "static_configs": [{"targets": t}]} for j, t in self.jobs.items()]
        (self.folder / "rules.yml").write_text(
            yaml.safe_dump({"groups": [{"name": "g", "interval": "1s", "rules": self.rules}]})
        )
        (self.folder / "prometheus.yml").write_text(
            yaml.safe_dump({
                "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
                "rule_files": ["rules.yml"], "scrape_configs": scrapes,
            })
        )  # fmt: skip

    def start(self) -> None:
        self.write()
        command = prometheus.serve_command(
            self.programs, self.folder / "prometheus.yml", self.folder / "data", self.port
        )
        self.process = spawn(command, self.folder / "prometheus.log", self.folder)

    def reload(self) -> None:
        self.write()
        self.signal(signal.SIGHUP)

    def signal(self, number: int) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def stop(self) -> None:
        if self.process is not None:
            stop(self.process)
        self.process = None


@contextmanager
def prometheus_server(folder: Path) -> Iterator[Server]:
    """Start none yet, and stop what was started at the end."""
    programs = prometheus.find()
    if programs is None:
        if os.environ.get("MIGVERIFY_REQUIRE_DB", "") not in {"", "0"}:
            programs = prometheus.provide(lambda _: None)
        else:
            pytest.skip("Prometheus is neither on PATH nor in the cache: apt-get install prometheus")
    server = Server(programs, folder)
    try:
        yield server
    finally:
        server.stop()
