"""Servers of ``workload clients --own-servers``: a MySQL and a TiDB in a temporary folder, which may be restarted."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from migverify.errors import LabError
from migverify.lab import mysql, tidb
from migverify.lab.cache import Progress, make_directory
from migverify.lab.process import ProcessId, free_port, spawn, stop, tail
from migverify.lab.servers import LabServer, wait_for

# A server for scenarios holds a few rows.
_SMALL = ("--innodb-buffer-pool-size=64M", "--innodb-redo-log-capacity=16M", "--local-infile=ON")
_STOP_SECONDS = 45.0


class OwnServer:
    """One server that is started, restarted and stopped here."""

    def __init__(self, name: str, flavor: str, port: int, command: list[str], folder: Path) -> None:
        self.name = name
        self.server = LabServer("127.0.0.1", port, "root", flavor, "")
        self._command, self._folder = command, folder
        self._process: ProcessId | None = None

    def start(self) -> None:
        """Start it, and return when it answers; raises LabError with the end of its log."""
        log = self._folder / "server.log"
        self._process = spawn(self._command, log, self._folder)
        try:
            self.server = wait_for(self.server)
        except LabError as error:
            raise LabError(f"{self.name} does not start: {error.message}\n{tail(log)}", hint=error.hint) from error

    def stop(self) -> None:
        """Stop it; a stopped one stays as it is."""
        if self._process is not None:
            # TiDB waits 15 s for its clients, and scenarios hold their connections open on purpose; killed, it has
            # been seen to leave a lock behind that keeps the next one from starting.
            stop(self._process, seconds=_STOP_SECONDS)
            self._process = None

    def restart(self) -> None:
        """Stop and start it again on the same port."""
        self.stop()
        self.start()


@contextmanager
def own_servers(say: Progress) -> Iterator[dict[str, OwnServer]]:
    """Yield a running source and target; both are stopped and their folder is removed afterwards."""
    programs, binary = mysql.provide(say), tidb.provide(say)
    with tempfile.TemporaryDirectory(prefix="migverify-clients-servers-", ignore_cleanup_errors=True) as text:
        source, target = (make_directory(Path(text) / name) for name in ("source", "target"))
        make_directory(source / "tmp")  # the server wants it there
        mysql.initialize(programs, source, source / "data")
        ports = [free_port()]
        for _ in range(2):
            ports.append(free_port(avoid=frozenset(ports)))
        serve = [*mysql.serve_command(programs, source, source / "data", ports[0], 1), *_SMALL]
        tidb_command = tidb.serve_command(binary, target, target / "data", ports[1], ports[2])
        started = {
            "source": OwnServer("source", "mysql", ports[0], serve, source),
            "target": OwnServer("target", "tidb", ports[1], tidb_command, target),
        }
        try:
            for one in started.values():
                say(f"starting {one.name} ({one.server.flavor}) on port {one.server.port}")
                one.start()
            yield started
        finally:
            for one in started.values():
                one.stop()
