"""A MySQL of its own for a test module: only the test writes its binlog, and its global settings may be changed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from migverify.changes.model import Position
from migverify.lab import mysql
from migverify.lab.process import free_port, spawn, stop
from migverify.lab.servers import LabServer, wait_for
from migverify.lab.session import connect
from migverify.model import Endpoint

if TYPE_CHECKING:
    from pymysql.connections import Connection


# A server of the lab's size takes 0.6 GB of disk, and a module's one holds little.
SMALL = ("--innodb-buffer-pool-size=64M", "--innodb-redo-log-capacity=16M")


@dataclass(frozen=True)
class BinlogServer:
    """The server, its data folder, and a session that may do anything."""

    server: LabServer
    data: Path
    session: Connection

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("source", self.server.host, self.server.port, "root")

    def connect(self) -> Connection:
        return connect(self.server)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        with self.session.cursor() as cursor:
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
def binlog_server(folder: Path, *options: str) -> Iterator[BinlogServer]:
    """Start a server in a folder, stop it at the end."""
    programs = mysql.find()
    if programs is None:
        if os.environ.get("MIGVERIFY_REQUIRE_DB", "") not in {"", "0"}:
            programs = mysql.provide(lambda _: None)
        else:
            pytest.skip("MySQL is not in the cache: run `migverify lab build` once")
    (folder / "tmp").mkdir(parents=True)
    data = folder / "data"
    mysql.initialize(programs, folder, data)
    port = free_port()
    command = [*mysql.serve_command(programs, folder, data, port, 7), *SMALL, *options]
    process = spawn(command, folder / "mysql.log", folder)
    try:
        server = wait_for(LabServer("127.0.0.1", port, "root", "mysql", ""))
        with connect(server) as session:
            yield BinlogServer(server, data, session)
    finally:
        stop(process)
        shutil.rmtree(data)


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
