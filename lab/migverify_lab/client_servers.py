"""Servers of ``workload clients --own-servers``: a MySQL and a TiDB in a temporary folder, which may be restarted."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from migverify_lab import mysql, tidb
from migverify_lab.cache import Progress, make_directory
from migverify_lab.engine import ServerEngine, StartedServer, start_server
from migverify_lab.process import stop
from migverify_lab.session import LabServer

_STOP_SECONDS = 45.0
"""TiDB waits 15 s for its clients, and scenarios hold their connections open on purpose; killed, it has been seen to
leave a lock behind that keeps the next one from starting."""


class OwnServer:
    """One server that is started, restarted and stopped here."""

    def __init__(self, engine: ServerEngine, folder: Path, options: tuple[str, ...]) -> None:
        self._engine, self._folder, self._options = engine, make_directory(folder), options
        self._started: StartedServer = start_server(engine, folder, options=options)

    @property
    def server(self) -> LabServer:
        """Where it listens."""
        return self._started.server

    def stop(self) -> None:
        """Stop it; a stopped one stays as it is."""
        stop(self._started.process, seconds=_STOP_SECONDS)

    def restart(self) -> None:
        """Stop and start it again on the same port."""
        self.stop()
        self._started = start_server(self._engine, self._folder, port=self.server.port, options=self._options)


@contextmanager
def own_servers(say: Progress) -> Iterator[dict[str, OwnServer]]:
    """Yield a running source and target; both are stopped and their folder is removed afterwards."""
    started: dict[str, OwnServer] = {}
    with tempfile.TemporaryDirectory(prefix="migverify-clients-servers-", ignore_cleanup_errors=True) as text:
        try:
            for name, engine, options in (("source", mysql.ENGINE, mysql.SMALL), ("target", tidb.ENGINE, ())):
                started[name] = OwnServer(engine, Path(text) / name, options)
                say(f"started {name}: {started[name].server.flavor} on {started[name].server}")
            yield started
        finally:
            for server in started.values():
                server.stop()
