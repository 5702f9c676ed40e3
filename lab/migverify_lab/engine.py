"""One way to start, wait for and stop any database server: a ``ServerEngine`` says how, a folder says where.

The folder holds ``data``, ``tmp`` and logs. A server is recognized by the argument that names its data folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from migverify.errors import LabError
from migverify_lab.cache import Progress, cache_directory, file_lock, install_into, make_directory
from migverify_lab.process import (
    PortTakenError,
    ProcessId,
    find_by_argument,
    free_port,
    port_is_free,
    spawn,
    stop,
    tail,
    wait_for_answer,
)
from migverify_lab.session import LabServer, connect, query

READY_SECONDS = 120.0
START_ATTEMPTS = 3

Program = tuple[str, ...]
"""A command line to append arguments to."""


@dataclass(frozen=True, slots=True)
class ServerEngine:
    """How to run one kind of server.

    Attributes
    ----------
    find, provide
        Return the program that is there (None: none), or get it first.
    initialize
        Makes the data folder, given as its third argument; its second one is for logs. None where the server makes
        it at its first start.
    command
        Returns the command line for a folder, a port and a status port (None where there is none).
    data_option
        The option that names the data folder.
    """

    flavor: str
    find: Callable[[], Program | None]
    provide: Callable[[Progress], Program]
    command: Callable[[Program, Path, int, int | None], list[str]]
    data_option: str
    initialize: Callable[[Program, Path, Path], None] | None = None
    has_status_port: bool = False

    def data_argument(self, data: Path) -> str:
        """Return the argument that names a server in the process list."""
        return f"{self.data_option}={data}"


@dataclass(frozen=True, slots=True)
class StartedServer:
    """A server that was started here and answers."""

    server: LabServer
    process: ProcessId


def initialize_with(command: Sequence[str], folder: Path, data: Path, option: str, sql: bytes = b"") -> None:
    """Run what makes a data folder, and keep the folder if it ends well.

    Raises
    ------
    LabError
        When the server refuses; the message holds the end of its log.
    """
    log = folder / "init.log"
    with install_into(data) as staging, log.open("wb") as output:
        done = subprocess.run(  # noqa: S603 - our own command
            [*command, f"{option}={staging}"], input=sql, stdout=output, stderr=output, check=False, cwd=folder
        )
        if done.returncode != 0:
            raise LabError(f"making a data folder ended with {done.returncode}\n{tail(log)}",
                           hint=f"The whole log is {log}.")  # fmt: skip


def user_argument() -> list[str]:
    """Return what lets a server run as root where we are root."""
    return ["--user=root"] if os.geteuid() == 0 else []


def processes(folder: Path, engines: Sequence[ServerEngine]) -> list[ProcessId]:
    """Find the servers of a folder in the process list."""
    return [found for engine in engines for found in find_by_argument(engine.data_argument(folder / "data"))]


def start_server(
    engine: ServerEngine, folder: Path, *, port: int | None = None, options: Sequence[str] = (),
    on_progress: Progress = lambda _line: None,
) -> StartedServer:  # fmt: skip
    """Start a server in a folder, with an empty data folder where there is none, and wait until it answers.

    A port may be taken by somebody else between choosing and binding it: then another one is tried.

    Parameters
    ----------
    port
        Preferred port; another one where it is taken.
    options
        Further arguments of the server.

    Raises
    ------
    LabError
        It cannot be got, does not start, or gives no answer; the message holds the end of its log.
    """
    program = engine.provide(on_progress)
    if not (folder / "data").is_dir():
        _copy_empty_data(engine, program, folder, on_progress)
    on_progress(f"{folder.name}: starting {engine.flavor}")
    return _start_on_a_port(engine, program, folder, port, options, on_progress)


def _copy_empty_data(engine: ServerEngine, program: Program, folder: Path, on_progress: Progress) -> None:
    """Copy a data folder that holds nothing yet. The first call makes it, in the cache: that takes five seconds."""
    template = cache_directory() / "empty" / f"{engine.flavor}-{_build(program)}"
    with file_lock(template.with_name(f".{template.name}.lock"), on_progress):
        if not template.is_dir():
            on_progress(f"{folder.name}: making an empty data folder")
            if engine.initialize is not None:
                make_directory(folder / "tmp")
                engine.initialize(program, folder, template)
            else:
                _make_by_starting(engine, program, template)
    _copy(template, folder / "data")


def _copy(data: Path, target: Path) -> None:
    """Copy a data folder without the id of its server, and without the space that its files only reserve."""
    with install_into(target) as staging:
        command = ["cp", "-a", "--sparse=always", f"{data}/.", str(staging)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            raise LabError(f"copying an empty data folder to {target}: {done.stderr.strip()}",
                           hint="Look at the space that is left on the disk.")  # fmt: skip
        (staging / "auto.cnf").unlink(missing_ok=True)  # MySQL then gives itself a server_uuid


def _build(program: Program) -> str:
    """Return a name of this build of a server: another one gets an empty data folder of its own."""
    files = [(path, path.stat()) for part in program if (path := Path(part)).is_file()]
    known = [*program, *(f"{path} {stat.st_size} {stat.st_mtime_ns}" for path, stat in files)]
    return hashlib.sha256("\0".join(known).encode()).hexdigest()[:12]


def _make_by_starting(engine: ServerEngine, program: Program, template: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".first-", dir=template.parent) as name:
        started = _start_on_a_port(engine, program, Path(name))
        stop(started.process, seconds=45.0)
        _copy(Path(name) / "data", template)


def _start_on_a_port(
    engine: ServerEngine, program: Program, folder: Path, port: int | None = None, options: Sequence[str] = (),
    on_progress: Progress = lambda _line: None,
) -> StartedServer:  # fmt: skip
    make_directory(folder / "tmp")
    for attempt in range(1, START_ATTEMPTS + 1):
        chosen = port if attempt == 1 and port is not None and port_is_free(port) else free_port()
        try:
            return _start(engine, program, folder, chosen, options)
        except PortTakenError:
            on_progress(f"{folder.name}: port {chosen} was taken meanwhile, trying another")
    raise LabError(f"no free port for {engine.flavor} in {START_ATTEMPTS} attempts", hint="Try again.")


def _start(engine: ServerEngine, program: Program, folder: Path, port: int, options: Sequence[str]) -> StartedServer:
    status = free_port(frozenset({port})) if engine.has_status_port else None
    logs = (folder / "server.log", folder / "tidb.log")
    for log in logs:
        log.unlink(missing_ok=True)
    process = spawn([*engine.command(program, folder, port, status), *options], logs[0], folder)
    server = LabServer("127.0.0.1", port, "root", engine.flavor, "", status)
    try:
        return StartedServer(wait_for(server, process, logs), process)
    except BaseException:
        stop(process, seconds=10.0)  # nothing that was started may stay behind, not even after Ctrl-C
        raise


def wait_for(server: LabServer, process: ProcessId | None = None, logs: Sequence[Path] = ()) -> LabServer:
    """Wait until a server answers, and return it with its version; ``tidb_snapshot`` then works on TiDB.

    Raises
    ------
    LabError
        It gives no answer in time, or its process ended.
    """

    def said() -> str:
        return "\n".join(dict.fromkeys(tail(log) for log in logs if log.exists() and log.stat().st_size))

    version = wait_for_answer(
        lambda: ask_version(server, 5.0), f"{server.flavor} on port {server.port}", READY_SECONDS, process, said
    )
    if server.flavor == "tidb":
        _allow_tidb_snapshot(server)
    return replace(server, version=version)


def ask_version(server: LabServer, seconds: float) -> str:
    """Return the version that a server says; raises LabError when it does not answer."""
    import pymysql

    try:
        with connect(server, seconds=seconds) as connection:
            return str(query(connection, "SELECT VERSION()")[0][0])
    except pymysql.err.MySQLError as error:
        raise LabError(f"{server} answers with an error: {error}", hint="See `migverify lab status`.") from error


def _allow_tidb_snapshot(server: LabServer) -> None:
    """Let ``tidb_snapshot`` work on embedded storage.

    Without a GC worker nobody writes the safe point, and SET tidb_snapshot then fails - after which the
    variable shows the value all the same while reads are current. A safe point in the past is true: nothing
    is collected.
    """
    with connect(server, seconds=20.0) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT IGNORE INTO mysql.tidb VALUES ('tikv_gc_safe_point', '20240101-00:00:00.000 +0000', '')")


@contextmanager
def temporary_server(
    engine: ServerEngine, folder: Path, *options: str, on_progress: Progress = lambda _line: None
) -> Iterator[LabServer]:
    """Run a server in a folder for a block; its data are deleted at the end, its logs stay."""
    started = start_server(engine, make_directory(folder), options=options, on_progress=on_progress)
    try:
        yield started.server
    finally:
        stop(started.process, seconds=45.0)
        shutil.rmtree(folder / "data", ignore_errors=True)
