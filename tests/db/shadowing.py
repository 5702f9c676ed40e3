"""A source with logs of its own, a target that follows it with a lag, and a shadow replay as a process."""

from __future__ import annotations

import json
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql

from migverify_lab.session import LabServer, connect
from tests.db.binlog_server import SourceServer
from tests.waiting import wait_for

LOGS = ("--slow-query-log=ON", "--long-query-time=0", "--slow-query-log-file=slow.log", "--log-slow-extra=ON",
        "--general-log=ON", "--general-log-file=general.log", "--log-output=FILE")  # fmt: skip
ROWS = 20


@dataclass
class LiveSides:
    """A database on both sides; what the application writes on the source is on the target ``lag`` seconds later."""

    source: SourceServer
    target: LabServer
    name: str
    lag: float = 0.2
    _stopped: threading.Event = field(default_factory=threading.Event)
    _written: queue.Queue[tuple[float, str] | None] = field(default_factory=queue.Queue)
    errors: list[BaseException] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)
    reads: int = 0

    def write(self, sql: str) -> None:
        """Write on the source; the target follows, and notes how far it is as a replicator does."""
        self.source.run(sql)
        end = self.source.end()
        self._written.put((time.monotonic() + self.lag, sql))
        self._written.put((0.0, f"REPLACE INTO {self.name}.checkpoint VALUES ('follower', '{end.file}', {end.offset})"))

    def follow(self) -> None:
        """Apply what was written, in its order, each change when its time has come."""
        with connect(self.target, self.name) as session, session.cursor() as cursor:
            while (item := self._written.get()) is not None:
                self._stopped.wait(max(0.0, item[0] - time.monotonic()))
                cursor.execute(item[1])

    def load(self, client: pymysql.connections.Connection[Any], seed: int) -> None:
        """Read as an application does until stopped."""
        chance = random.Random(seed)
        with client.cursor() as cursor:
            while not self._stopped.wait(0.02):
                cursor.execute(f"SELECT id, v, note FROM t WHERE id = {chance.randint(1, ROWS)}")
                cursor.execute("SELECT COUNT(*) FROM t WHERE id > 0")
                cursor.execute(f"SELECT id, v FROM t WHERE v >= {chance.randint(0, 9)} ORDER BY id LIMIT 5")
                self.reads += 3

    def writes(self, seed: int) -> None:
        """Write as an application does until stopped."""
        chance = random.Random(seed)
        while not self._stopped.wait(0.1):
            self.write(f"UPDATE {self.name}.t SET v = v + 1 WHERE id = {chance.randint(1, ROWS)}")

    def stop(self) -> None:
        """Let all threads end."""
        self._stopped.set()
        self._written.put(None)

    def join(self) -> None:
        """Wait until all threads have ended."""
        for thread in self.threads:
            thread.join()

    def guarded(self, work: Callable[[], None]) -> None:
        """Run the work of a thread, and keep what ends it."""
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - a test looks at it
            self.errors.append(error)


@contextmanager
def live_sides(source: SourceServer, target: LabServer, *, writes: bool = True) -> Iterator[LiveSides]:
    """Yield a database under reads, and writes, until the end."""
    sides = LiveSides(source, target, f"shadow_{time.monotonic_ns()}")
    rows = ", ".join(f"({one}, {one}, 'row {one}')" for one in range(1, ROWS + 1))
    made = [
        f"CREATE DATABASE {sides.name}",
        f"CREATE TABLE {sides.name}.t (id INT PRIMARY KEY, v INT NOT NULL, note VARCHAR(30) NOT NULL)",
        f"INSERT INTO {sides.name}.t VALUES {rows}",
    ]
    checkpoint = f"CREATE TABLE {sides.name}.checkpoint (name VARCHAR(20) PRIMARY KEY, file VARCHAR(60), offset BIGINT)"
    with connect(target) as session, session.cursor() as cursor:
        for sql in (*made, checkpoint):
            cursor.execute(sql)
    source.run(*made)
    sides.write(f"UPDATE {sides.name}.t SET v = v WHERE id = 1")  # the checkpoint has a row from the start on
    client = pymysql.connect(host="127.0.0.1", port=source.server.port, user="root", database=sides.name,
                             autocommit=True, ssl_disabled=True)  # fmt: skip
    works: list[Callable[[], None]] = [sides.follow, lambda: sides.load(client, 1)]
    works += [lambda: sides.writes(2)] if writes else []
    sides.threads = [threading.Thread(target=sides.guarded, args=(work,)) for work in works]
    with closing(client):
        for thread in sides.threads:
            thread.start()
        try:
            yield sides
        finally:
            sides.stop()
            sides.join()
            with connect(target) as session, session.cursor() as cursor:
                cursor.execute(f"DROP DATABASE {sides.name}")
    assert not sides.errors


def write_config(folder: Path, sides: LiveSides, *, watch: str = "settle_seconds: 1", **shadow: Any) -> Path:
    """Write a configuration of both sides."""
    path = folder / "migverify.yaml"
    settings = {"max_lag": 0, "target_seconds": 0, **shadow}
    path.write_text(
        f"source: {{url: 'mysql://root@127.0.0.1:{sides.source.server.port}'}}\n"
        f"target: {{url: 'tidb://root@{sides.target.host}:{sides.target.port}'}}\n"
        f"tables: {{include: ['{sides.name}.*']}}\nwatch: {{{watch}, delay: 0.2}}\n"
        f"report: {{values: true}}\nworkload: {{shadow: {json.dumps(settings)}}}\n"
    )
    return path


class Shadowing:
    """A shadow replay as a process; ``lines`` are its statuses so far."""

    def __init__(self, config: Path, log: Path, *options: str) -> None:
        command = [sys.executable, "-m", "migverify", "workload", "replay", "--follow", str(log), "--config",
                   str(config), "--accept-write-grants", "--json", *options]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines: list[dict[str, Any]] = []
        self.said: list[str] = []
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._read, self._hear)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def _hear(self) -> None:
        assert self.process.stderr is not None
        self.said.extend(self.process.stderr)

    def wait_for(self, right: Callable[[dict[str, Any]], Any], what: str) -> dict[str, Any]:
        """Return the first status from now on that is right."""

        def holds() -> bool:
            ended = self.process.poll() is not None and not any(one.is_alive() for one in self._threads)
            assert not ended, f"it ended: {self.lines[-1:]} {''.join(self.said)}"
            return bool(self.lines) and bool(right(self.lines[-1]))

        try:
            wait_for(holds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.lines[-1:]} {''.join(self.said)}") from error
        return self.lines[-1]

    def end(self, number: signal.Signals | None = signal.SIGINT) -> tuple[int, dict[str, Any]]:
        """Stop it, or with None wait until it ends by itself; return its exit code and its last status."""
        if number is not None:
            self.process.send_signal(number)
        code = self.process.wait(120)
        for thread in self._threads:
            thread.join()
        assert self.lines, "".join(self.said)
        return code, self.lines[-1]

    @property
    def run(self) -> str:
        return str(self.lines[-1]["run_id"])
