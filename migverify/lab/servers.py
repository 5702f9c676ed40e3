"""Up, down and status of the pair. All state is in one folder; one lock file guards it between processes.

The folder holds ``state.json`` (which processes, on which ports), and for each side ``data``, ``tmp`` and
logs. ``state.json`` is written after a server was started; a process that was cut off between the two leaves
a server that is found again by its data folder in the process list, so ``down`` ends that one too.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from migverify.errors import LabError
from migverify.lab import compose, mysql, tidb
from migverify.lab.cache import Progress, file_lock, make_directory
from migverify.lab.process import (
    ProcessId,
    find_by_argument,
    free_port,
    is_alive,
    port_is_free,
    spawn,
    stop,
    tail,
)
from migverify.lab.session import connect

DEFAULT_DIRECTORY = ".migverify-lab"
TARGETS = ("tidb", "mysql")
READY_SECONDS = 120.0
START_ATTEMPTS = 3

_STATE_FORMAT = 1


@dataclass(frozen=True, slots=True)
class LabServer:
    """One server of the lab. ``flavor``: ``mysql`` or ``tidb``; ``status_port``: TiDB's HTTP port or None."""

    host: str
    port: int
    user: str
    flavor: str
    version: str
    status_port: int | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class LabServers:
    """The pair. ``stand_in`` is True where the target is a second MySQL and no TiDB."""

    source: LabServer
    target: LabServer

    @property
    def stand_in(self) -> bool:
        """Whether the target is a second MySQL in place of TiDB."""
        return self.target.flavor != "tidb"


@dataclass(frozen=True, slots=True)
class _Record:
    """One started server as ``state.json`` remembers it; ``process`` is None inside a container."""

    server: LabServer
    process: ProcessId | None
    started: float


@dataclass(frozen=True, slots=True)
class _State:
    backend: str
    servers: dict[str, _Record]


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What is known of one side: ``running`` says that the process or container answers now."""

    side: str
    server: LabServer | None
    running: bool
    pid: int | None
    started: float | None
    backend: str
    note: str


def lab_directory(chosen: Path | None = None) -> Path:
    """Return the lab's folder: the given one, else ``$MIGVERIFY_LAB_DIR``, else ``.migverify-lab`` here."""
    return (chosen or Path(os.environ.get("MIGVERIFY_LAB_DIR") or DEFAULT_DIRECTORY)).absolute()


def _ignore(_: str) -> None:
    """Take a line of progress and show it to nobody."""


def prepare(target: str = "tidb", on_progress: Progress = _ignore) -> None:
    """Make the servers ready to start: where no Docker answers, download and build them into the cache."""
    _check_target(target)
    if target == "tidb" and compose.engine_answers():
        return
    mysql.provide(on_progress)
    if target == "tidb":
        tidb.provide(on_progress)


def up(directory: Path, target: str = "tidb", on_progress: Progress = _ignore) -> LabServers:
    """Bring the pair up; a pair that runs is left as it is.

    Parameters
    ----------
    directory
        The lab's folder; made when missing.
    target
        ``tidb``, or ``mysql`` for a second MySQL as a stand-in.
    on_progress
        Receives lines of text.

    Raises
    ------
    LabError
        When a server cannot be got, started or reached, or another target is up in this folder.
    """
    _check_target(target)
    directory = make_directory(directory.absolute())
    with file_lock(directory / "lock", on_progress):
        state = _load(directory)
        _refuse_other_target(directory, state, target)
        if state is None:
            backend = "compose" if target == "tidb" and compose.engine_answers() else "binaries"
            state = _State(backend, {})
        if state.backend == "compose":
            return _up_compose(directory, state, on_progress)
        return _up_binaries(directory, state, target, on_progress)


def down(directory: Path, purge: bool = False) -> list[str]:
    """Stop whatever of this lab runs; with ``purge`` delete its data too. Returns what was done, as lines.

    A second call, or a call on a folder that never was a lab, does nothing and is no error.
    """
    directory = directory.absolute()
    if not directory.is_dir():
        return []
    done: list[str] = []
    with file_lock(directory / "lock"):
        state = _load(directory)
        if state is not None and state.backend == "compose":
            compose.down(directory, purge)
            done.append("containers stopped")
        for side in ("target", "source"):
            done += [
                f"{side} stopped (pid {process.pid})" for process in _running(directory, state, side) if stop(process)
            ]
        (directory / "state.json").unlink(missing_ok=True)
        if purge:
            for side in ("target", "source"):
                if (directory / side).is_dir():
                    shutil.rmtree(directory / side)
                    done.append(f"data of the {side} deleted")
    return done


def status(directory: Path) -> list[ServerStatus]:
    """Tell for each side whether it runs and answers, as it is now; starts and changes nothing."""
    directory = directory.absolute()
    state = _load(directory) if directory.is_dir() else None
    return [_status_of(directory, state, side) for side in ("source", "target")]


def running_servers(directory: Path) -> LabServers:
    """Return the pair of this folder, both sides answering.

    Raises
    ------
    LabError
        When a side is not up.
    """
    found = {entry.side: entry for entry in status(directory)}
    for entry in found.values():
        if not entry.running or entry.server is None:
            raise LabError(
                f"the lab's {entry.side} in {directory} is not up ({entry.note})",
                hint="Run `migverify lab up` first.",
            )
    source, target = found["source"].server, found["target"].server
    if source is None or target is None:
        raise LabError(f"no lab in {directory}", hint="Run `migverify lab up` first.")
    return LabServers(source, target)


def named_server(address: str) -> LabServer:
    """Return a running server by ``host:port``: user root, no password, the engine as it says itself.

    Raises
    ------
    LabError
        not an address, or nothing answers there.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise LabError(f"not an address: {address!r}", hint="Write host:port, such as 127.0.0.1:3306.")
    version = _ask_version(LabServer(host, int(port), "root", "", ""), seconds=20.0)
    return LabServer(host, int(port), "root", "tidb" if "TiDB" in version else "mysql", version)


def wait_for(server: LabServer) -> LabServer:
    """Wait until a server that somebody else started answers, and return it with its version.

    On TiDB this also makes ``tidb_snapshot`` usable.

    Raises
    ------
    LabError
        When it gives no answer in time.
    """
    ready = replace(server, version=_wait_until_ready(server, None, []))
    if ready.flavor == "tidb":
        _allow_tidb_snapshot(ready)
    return ready


# --- local binaries --------------------------------------------------------------------------------------


def _up_binaries(directory: Path, state: _State, target: str, on_progress: Progress) -> LabServers:
    programs = mysql.provide(on_progress)
    flavors = {"source": "mysql", "target": target}
    missing = [side for side in flavors if not _is_ours_and_alive(state, side)]
    for side in missing:
        for process in _running(directory, state, side):  # started by a process that was cut off
            stop(process)
        record = _start(directory, side, flavors[side], programs, _last_port(state, side), on_progress)
        state = replace(state, servers={**state.servers, side: record})
        _save(directory, state)
        on_progress(f"{side}: {_title(record.server)} on {record.server}")
    for side in flavors:
        if side not in missing:
            server = state.servers[side].server
            _ask_version(server, seconds=20.0)
            on_progress(f"{side}: {_title(server)} on {server}, running already")
    return LabServers(state.servers["source"].server, state.servers["target"].server)


def _start(
    directory: Path,
    side: str,
    flavor: str,
    programs: mysql.MysqlPrograms,
    port: int | None,
    on_progress: Progress,
) -> _Record:
    """Start one server and wait until it answers.

    A port may be taken by somebody else between choosing and binding it: then another one is tried.
    """
    folder = make_directory(directory / side)
    make_directory(folder / "tmp")
    binary = tidb.provide(on_progress) if flavor == "tidb" else None
    data = folder / "data"
    if binary is None and not data.is_dir():
        on_progress(f"{side}: making an empty MySQL data folder")
        mysql.initialize(programs, folder, data)
    on_progress(f"{side}: starting {flavor}")
    log = folder / "server.log"
    for attempt in range(1, START_ATTEMPTS + 1):
        chosen = port if attempt == 1 and port is not None and port_is_free(port) else free_port()
        status_port = free_port(frozenset({chosen})) if binary is not None else None
        log.write_bytes(b"")
        if binary is not None and status_port is not None:
            command = tidb.serve_command(binary, folder, data, chosen, status_port)
            log_seen = folder / "tidb.log"
            log_seen.unlink(missing_ok=True)
        else:
            command = mysql.serve_command(programs, folder, data, chosen, 1 if side == "source" else 2)
            log_seen = log
        process = spawn(command, log, folder)
        server = LabServer("127.0.0.1", chosen, "root", flavor, "", status_port)
        try:
            version = _wait_until_ready(server, process, [log, log_seen])
            ready = replace(server, version=version)
            if flavor == "tidb":
                _allow_tidb_snapshot(ready)
        except BaseException as error:
            # Nothing that we started may stay behind, not even after Ctrl-C.
            stop(process, seconds=10.0)
            if isinstance(error, _PortTakenError) and attempt < START_ATTEMPTS:
                on_progress(f"{side}: port {chosen} was taken meanwhile, trying another")
                continue
            raise
        return _Record(ready, process, time.time())
    raise LabError(f"no free port for the {side} in {START_ATTEMPTS} attempts", hint="Try again.")


class _PortTakenError(LabError):
    """The server ended because somebody else bound its port first."""


def _wait_until_ready(server: LabServer, process: ProcessId | None, logs: list[Path]) -> str:
    """Wait for the first answer and return the version; raises LabError with the end of the log."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            return _ask_version(server, seconds=5.0)
        except LabError as error:
            seen = "\n".join(dict.fromkeys(tail(log) for log in logs if log.exists() and log.stat().st_size))
            if process is not None and not is_alive(process):
                kind = _PortTakenError if "address already in use" in seen.lower() else LabError
                raise kind(
                    f"{server.flavor} on port {server.port} ended while starting\n{seen}",
                    hint="If its data is damaged: `migverify lab down --purge`.",
                ) from error
            if time.monotonic() > deadline:
                raise LabError(
                    f"{server.flavor} on port {server.port} gave no answer in {READY_SECONDS:.0f} s\n{seen}",
                    hint="Look at the log above; `migverify lab down` cleans up.",
                ) from error
        time.sleep(0.1)


def _ask_version(server: LabServer, seconds: float) -> str:
    import pymysql

    try:
        connection = connect(server, seconds=seconds)
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT VERSION()")
            row = cursor.fetchone()
    except pymysql.err.MySQLError as error:
        raise LabError(f"{server} answers with an error: {error}", hint="See `migverify lab status`.") from error
    if not row:
        raise LabError(f"{server} has no version", hint="This is no MySQL and no TiDB.")
    return str(row[0])


def _allow_tidb_snapshot(server: LabServer) -> None:
    """Let ``tidb_snapshot`` work on embedded storage.

    Without a GC worker nobody writes the safe point, and SET tidb_snapshot then fails - after which the
    variable shows the value all the same while reads are current. A safe point in the past is true: nothing
    is collected.
    """
    with connect(server, seconds=20.0) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT IGNORE INTO mysql.tidb VALUES ('tikv_gc_safe_point', '20240101-00:00:00.000 +0000', '')")


def _running(directory: Path, state: _State | None, side: str) -> list[ProcessId]:
    """Find the processes of one side: the recorded one, and any with this data folder."""
    found: list[ProcessId] = []
    if state is not None and side in state.servers:
        recorded = state.servers[side].process
        if recorded is not None and is_alive(recorded):
            found.append(recorded)
    data = directory / side / "data"
    for argument in (mysql.data_argument(data), tidb.data_argument(data)):
        found += [process for process in find_by_argument(argument) if process not in found]
    return found


def _is_ours_and_alive(state: _State, side: str) -> bool:
    record = state.servers.get(side)
    return record is not None and record.process is not None and is_alive(record.process)


def _last_port(state: _State, side: str) -> int | None:
    record = state.servers.get(side)
    return None if record is None else record.server.port


# --- docker compose --------------------------------------------------------------------------------------


def _up_compose(directory: Path, state: _State, on_progress: Progress) -> LabServers:
    ports = {side: _last_port(state, side) or free_port() for side in ("source", "target")}
    on_progress("docker compose: starting MySQL and TiDB (the first time it downloads their images)")
    compose.up(directory, ports)
    records = {}
    for side, flavor in (("source", "mysql"), ("target", "tidb")):
        server = LabServer("127.0.0.1", ports[side], "root", flavor, "")
        ready = wait_for(server)
        records[side] = _Record(ready, None, time.time())
        on_progress(f"{side}: {_title(ready)} on {ready}")
    _save(directory, _State("compose", records))
    return LabServers(records["source"].server, records["target"].server)


# --- state -----------------------------------------------------------------------------------------------


def _status_of(directory: Path, state: _State | None, side: str) -> ServerStatus:
    backend = "binaries" if state is None else state.backend
    if state is None or side not in state.servers:
        orphans = _running(directory, state, side)
        note = f"pid {orphans[0].pid} runs without a record; `migverify lab down` ends it" if orphans else "not started"
        return ServerStatus(side, None, False, orphans[0].pid if orphans else None, None, backend, note)
    record = state.servers[side]
    pid = None if record.process is None else record.process.pid
    ended = ServerStatus(side, record.server, False, None, record.started, backend, "the process has ended")
    if record.process is not None and not is_alive(record.process):
        return ended
    try:
        _ask_version(record.server, seconds=5.0)
    except LabError as error:
        if record.process is not None and not is_alive(record.process):
            return ended  # it was ending when it was asked
        return ServerStatus(side, record.server, False, pid, record.started, backend, error.message)
    return ServerStatus(side, record.server, True, pid, record.started, backend, "answers")


def _title(server: LabServer) -> str:
    return f"{'TiDB' if server.flavor == 'tidb' else 'MySQL'} {server.version}"


def _check_target(target: str) -> None:
    if target not in TARGETS:
        raise LabError(f"unknown target {target!r}", hint=f"Use one of: {', '.join(TARGETS)}.")


def _refuse_other_target(directory: Path, state: _State | None, target: str) -> None:
    if state is not None and "target" in state.servers and state.servers["target"].server.flavor != target:
        raise LabError(
            f"the lab in {directory} has a {state.servers['target'].server.flavor} target, not {target}",
            hint="Run `migverify lab down --purge` first, or choose another folder with --dir.",
        )
    data = directory / "target" / "data"
    if data.is_dir():
        # Both engines would take the other's files for damage.
        holds = "mysql" if (data / "mysql.ibd").exists() else "tidb"
        if holds != target:
            raise LabError(
                f"{data} holds the data of a {holds} target, not of {target}",
                hint="Run `migverify lab down --purge` first, or choose another folder with --dir.",
            )


def _save(directory: Path, state: _State) -> None:
    document = {
        "format": _STATE_FORMAT,
        "backend": state.backend,
        "servers": {side: asdict(record) for side, record in state.servers.items()},
    }
    partial = directory / "state.json.new"
    partial.write_text(json.dumps(document, indent=2) + "\n")
    partial.replace(directory / "state.json")


def _load(directory: Path) -> _State | None:
    path = directory / "state.json"
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        if document["format"] != _STATE_FORMAT:
            raise LabError(f"{path} was written by another version", hint=f"Stop its servers and remove {path}.")
        servers = {side: _record(entry) for side, entry in document["servers"].items()}
        return _State(str(document["backend"]), servers)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(
            f"{path} is damaged: {error!r}", hint="Remove it; `migverify lab down` still finds the servers."
        ) from error


def _record(entry: dict[str, Any]) -> _Record:
    process = entry["process"]
    return _Record(
        LabServer(**entry["server"]),
        None if process is None else ProcessId(**process),
        float(entry["started"]),
    )
