"""The servers of the tests, from one place.

``pair`` is a MySQL source and a TiDB target, one pair per test run, shared by all workers of pytest-xdist:

1. ``MIGVERIFY_TEST_SOURCE`` and ``MIGVERIFY_TEST_TARGET`` (``host:port``) name running servers, or else
2. the lab's own: containers where a Docker engine answers, else binaries. Without ``MIGVERIFY_REQUIRE_DB=1`` a TiDB
   that is not built yet is a reason to skip.

``databases`` is a fresh database of the same name on both sides for one test.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from migverify.errors import LabError
from migverify.sql.quoting import quote_name
from migverify_lab import compose, mysql, servers, tidb
from migverify_lab.cache import file_lock
from migverify_lab.process import ProcessId, identify, is_alive
from migverify_lab.servers import LabServer, LabServers
from migverify_lab.session import connect

if TYPE_CHECKING:
    from pymysql.connections import Connection

pytest_plugins = ["tests.suite", "tests.json_outputs"]

DISK_BYTES = 5_000_000_000
"""What the servers of a test run write at most at one time: 3.5 GB were measured."""

# A deadline of hypothesis is a time that a busy machine misses.
hypothesis.settings.register_profile("migverify", deadline=None)
hypothesis.settings.load_profile("migverify")


def pytest_configure() -> None:
    """Give Ctrl-C its meaning back: what a shell starts in the background ignores it, and so would every child."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart() -> None:
    """Refuse a disk that is nearly full: servers wait on it for ever, and hundreds of tests time out one by one."""
    folder = Path(tempfile.gettempdir())
    free = shutil.disk_usage(folder).free
    if _required() and free < DISK_BYTES:
        reason = f"{folder} has {free / 1e9:.1f} GB left, the servers of the tests need {DISK_BYTES / 1e9:.0f} GB"
        pytest.exit(reason, returncode=pytest.ExitCode.USAGE_ERROR)


def _required() -> bool:
    return os.environ.get("MIGVERIFY_REQUIRE_DB", "") not in {"", "0"}


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServers]:
    named = [os.environ.get(f"MIGVERIFY_TEST_{side}") for side in ("SOURCE", "TARGET")]
    if all(named):
        yield LabServers(*(_running_server(str(address)) for address in named))
        return
    if any(named):
        pytest.fail("MIGVERIFY_TEST_SOURCE and MIGVERIFY_TEST_TARGET must be set together")
    base = tmp_path_factory.getbasetemp()
    # A worker's base folder lies inside the one of the whole run.
    root = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    folder = root / "pair"
    if not compose.engine_answers() and not _required():
        _skip_unless_built()
    _end_abandoned(root)
    with _Membership(folder) as membership:
        try:
            found = membership.join()
        except LabError as error:
            if _required():
                raise
            pytest.skip(f"no servers: {error}")
        yield found


def _end_abandoned(root: Path) -> None:
    """Stop the pairs of former test runs that were killed: all their members are dead."""
    for folder in root.parent.glob("pytest-*/pair"):
        if folder.parent != root and (folder / "lab").is_dir():
            with file_lock(folder / "members.lock"):
                if not _Membership(folder).living():
                    servers.down(folder / "lab", purge=True)


def _skip_unless_built() -> None:
    missing = [
        name for name, found in (("MySQL", mysql.find()), ("TiDB", tidb.find())) if found is None
    ]  # fmt: skip
    if missing:
        pytest.skip(f"{' and '.join(missing)} not in the cache: run `migverify lab build` once")


def _running_server(address: str) -> LabServer:
    host, _, port = address.rpartition(":")
    server = LabServer(host, int(port), "root", "", "")
    with connect(server, seconds=30.0) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        row = cursor.fetchone()
    version = str(row[0]) if row else ""
    return LabServer(host, int(port), "root", "tidb" if "TiDB" in version else "mysql", version)


class _Membership:
    """This process among those of one test run that use the pair; the last one to leave stops the servers.

    Members are recorded by process identity, so one that was killed does not keep the servers alive.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.members = folder / "members.json"

    def __enter__(self) -> _Membership:
        self.folder.mkdir(exist_ok=True)
        return self

    def join(self) -> LabServers:
        with file_lock(self.folder / "members.lock"):
            self._write([*self.living(), self._own()])
            return servers.up(self.folder / "lab", "tidb", _say_nothing)

    def __exit__(self, *_: object) -> None:
        with file_lock(self.folder / "members.lock"):
            others = [member for member in self.living() if member != self._own()]
            self._write(others)
            if not others:
                servers.down(self.folder / "lab", purge=True)

    def _own(self) -> ProcessId:
        own = identify(os.getpid())
        if own is None:
            raise LabError("this process cannot find itself in /proc", hint="Mount /proc.")
        return own

    def living(self) -> list[ProcessId]:
        if not self.members.exists():
            return []
        return [m for m in (ProcessId(*entry) for entry in json.loads(self.members.read_text())) if is_alive(m)]

    def _write(self, members: list[ProcessId]) -> None:
        self.members.write_text(json.dumps([[m.pid, m.ticks, m.boot] for m in members]))


def _say_nothing(_: str) -> None:
    """Progress of a download would be part of what a test reads of a command."""


@dataclass(frozen=True)
class Databases:
    """A fresh database on both sides: utf8mb4 with utf8mb4_bin, which both engines have."""

    name: str
    pair: LabServers
    connections: tuple[Connection, Connection]

    def source(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements on the source; returns the rows of the last one."""
        return _run(self.connections[0], statements)

    def target(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements on the target; returns the rows of the last one."""
        return _run(self.connections[1], statements)

    def both(self, *statements: str) -> None:
        """Run the same statements on both sides."""
        for connection in self.connections:
            _run(connection, statements)


def _run(connection: Connection, statements: tuple[str, ...]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


@pytest.fixture(scope="module", name="own")
def own_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LabServers, Path]]:
    """A pair of servers of its own, for tests that stop servers and change their settings."""
    if (mysql.find() is None or tidb.find() is None) and not _required():
        pytest.skip("MySQL and TiDB are not in the cache: run `migverify lab build` once")
    folder = tmp_path_factory.mktemp("own")
    try:
        found = servers.up(folder)
        if any(status.pid is None for status in servers.status(folder)):
            pytest.skip("servers in containers have no process to stop")
        yield found, folder
    finally:
        servers.down(folder, purge=True)


@pytest.fixture
def databases(pair: LabServers) -> Iterator[Databases]:
    with fresh_databases(pair) as made:
        yield made


@pytest.fixture(scope="module")
def shared_databases(pair: LabServers) -> Iterator[Databases]:
    """Databases that the tests of a file share: each drops the tables that it makes."""
    with fresh_databases(pair) as made:
        yield made


@pytest.fixture
def own_databases(own: tuple[LabServers, Path]) -> Iterator[Databases]:
    """A fresh database on servers where nobody else works, for tests that look at the state of a whole server."""
    with fresh_databases(own[0]) as made:
        yield made


@contextmanager
def fresh_databases(pair: LabServers) -> Iterator[Databases]:
    """Yield a fresh database of one name on both sides."""
    name = f"mv_{os.getpid()}_{uuid.uuid4().hex[:10]}"
    quoted = quote_name(name)
    sides = (pair.source, pair.target)
    try:
        for server in sides:
            with connect(server) as connection:
                _run(connection, (f"CREATE DATABASE {quoted} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",))
        with connect(pair.source, name) as source, connect(pair.target, name) as target:
            yield Databases(name, pair, (source, target))
    finally:
        for server in sides:
            with connect(server) as connection:
                _run(connection, (f"DROP DATABASE IF EXISTS {quoted}",))
