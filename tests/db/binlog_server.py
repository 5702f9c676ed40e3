"""A MySQL of its own for a test module: only the test writes its binlog, and its global settings may be changed."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from migverify.changes.model import Position
from migverify.model import Endpoint
from migverify_lab import mysql
from migverify_lab.engine import temporary_server
from migverify_lab.session import LabServer, connect

if TYPE_CHECKING:
    from pymysql.connections import Connection


@dataclass(frozen=True)
class SourceServer:
    """The server, its data folder, and a session that may do anything."""

    server: LabServer
    data: Path
    session: Connection
    lock: threading.Lock = field(default_factory=threading.Lock)
    """A session is used by one thread at a time, and threads of a test write too."""

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("source", self.server.host, self.server.port, "root")

    def connect(self) -> Connection:
        return connect(self.server)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        with self.lock, self.session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def end(self) -> Position:
        """File and offset of the binlog's end."""
        row = self.run("SHOW BINARY LOG STATUS")[0]
        return Position(row[0], int(row[1]))

    def files(self) -> list[str]:
        """Paths of all binlog files."""
        return [str(self.data / row[0]) for row in self.run("SHOW BINARY LOGS")]

    def flush(self) -> str:
        """Begin a new file; returns the path of the one that ended."""
        path = self.files()[-1]
        self.run("FLUSH BINARY LOGS")
        return path

    def config(self, folder: Path) -> Path:
        """A configuration whose source is this server."""
        path = folder / "migverify.yaml"
        path.write_text(
            f"source: {{url: 'mysql://root@127.0.0.1:{self.server.port}'}}\n"
            f"target: {{url: 'tidb://root@127.0.0.1:4000'}}\ntables: {{include: ['*.*']}}\n"
        )
        return path


@contextmanager
def binlog_server(folder: Path, *options: str) -> Iterator[SourceServer]:
    """Start a server in a folder, stop it at the end."""
    if mysql.find() is None and os.environ.get("MIGVERIFY_REQUIRE_DB", "") in {"", "0"}:
        pytest.skip("MySQL is not in the cache: run `migverify lab build` once")
    options = ("--server-id=7", *mysql.SMALL, *options)
    with temporary_server(mysql.ENGINE, folder, *options) as server, connect(server) as session:
        yield SourceServer(server, folder / "data", session)


def tail(*arguments: str, code: int = 0) -> tuple[list[dict[str, Any]], str]:
    """Run ``migverify changes tail --json``; returns the changes and standard error."""
    import json
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "migverify", "changes", "tail", "--json", *arguments],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr
