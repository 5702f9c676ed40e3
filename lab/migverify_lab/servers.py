"""Up, down and status of the lab's servers. All state is in one folder; one lock file guards it between processes.

The folder holds ``state.json`` (which processes, on which ports), and for each server ``data``, ``tmp`` and
logs. ``state.json`` is written after a server was started; a process that was cut off between the two leaves
a server that is found again by its data folder in the process list, so ``down`` ends that one too.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from migverify.errors import LabError
from migverify_lab import compose, mariadb, mysql, tidb
from migverify_lab.cache import Progress, file_lock, make_directory
from migverify_lab.engine import ServerEngine, StartedServer, ask_version, processes, start_server, wait_for
from migverify_lab.process import ProcessId, free_port, is_alive, stop
from migverify_lab.session import LabServer, LabServers

__all__ = [
    "DEFAULT_DIRECTORY", "ENGINES", "LabServer", "LabServers", "ServerStatus", "down", "lab_directory", "named_server",
    "prepare", "running_servers", "status", "up", "wait_for",
]  # fmt: skip

DEFAULT_DIRECTORY = ".migverify-lab"
TARGETS = ("tidb", "mysql")
ENGINES = {engine.flavor: engine for engine in (mysql.ENGINE, tidb.ENGINE, mariadb.ENGINE)}
NAMES = ("source", "target", "ledger")
_OPTIONS = {
    "target": ("--server-id=2",),
    "ledger": ("--event-scheduler=ON",),  # late events arrive by the server's own scheduler
}
_STATE_FORMAT = 1


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

    def port(self, name: str) -> int | None:
        """Return where a server listened last."""
        return self.servers[name].server.port if name in self.servers else None


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What is known of one server: ``running`` says that the process or container answers now."""

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


def up(directory: Path, target: str = "tidb", on_progress: Progress = _ignore, *, ledger: bool = False) -> LabServers:
    """Bring the servers up; one that runs is left as it is.

    Parameters
    ----------
    directory
        The lab's folder; made when missing.
    target
        ``tidb``, or ``mysql`` for a second MySQL as a stand-in.
    on_progress
        Receives lines of text.
    ledger
        Bring up a MariaDB beside the pair, too.

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
            state = _up_compose(directory, state, on_progress)
        flavors = {"source": "mysql", "target": target} if state.backend != "compose" else {}
        if ledger:
            flavors["ledger"] = "mariadb"
        state = _up(directory, state, {name: ENGINES[flavor] for name, flavor in flavors.items()}, on_progress)
        found = {name: record.server for name, record in state.servers.items()}
        return LabServers(found["source"], found["target"], found["ledger"] if ledger else None)


def down(directory: Path, purge: bool = False) -> list[str]:
    """Stop everything of this lab that runs; with ``purge`` delete its data too. Returns what was done, as lines.

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
        for name in reversed(NAMES):
            done += [
                f"{name} stopped (pid {process.pid})" for process in _running(directory, state, name) if stop(process)
            ]
        (directory / "state.json").unlink(missing_ok=True)
        for name in reversed(NAMES) if purge else ():
            if (directory / name).is_dir():
                shutil.rmtree(directory / name)
                done.append(f"data of the {name} deleted")
    return done


def status(directory: Path) -> list[ServerStatus]:
    """Return for each server whether it runs and answers, as it is now; starts and changes nothing."""
    directory = directory.absolute()
    state = _load(directory) if directory.is_dir() else None
    names = NAMES if state is not None and "ledger" in state.servers else NAMES[:2]
    return [_status_of(directory, state, name) for name in names]


def running_servers(directory: Path, *, ledger: bool = False) -> LabServers:
    """Return the servers of this folder, all of them answering.

    Raises
    ------
    LabError
        When one is not up.
    """
    found: dict[str, LabServer] = {}
    for entry in status(directory):
        if not entry.running or entry.server is None:
            raise LabError(
                f"the lab's {entry.side} in {directory} is not up ({entry.note})",
                hint="Run `migverify lab up` first.",
            )
        found[entry.side] = entry.server
    if ledger and "ledger" not in found:
        raise LabError(f"the lab in {directory} has no ledger", hint="Run `migverify lab up --services` first.")
    return LabServers(found["source"], found["target"], found.get("ledger"))


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
    version = ask_version(LabServer(host, int(port), "root", "", ""), seconds=20.0)
    return LabServer(host, int(port), "root", "tidb" if "TiDB" in version else "mysql", version)


def _up(directory: Path, state: _State, engines: dict[str, ServerEngine], on_progress: Progress) -> _State:
    """Start the servers that do not run, side by side; returns the state with them, recorded already.

    Where one does not start, none of those that were started here stays.
    """
    missing: dict[str, ServerEngine] = {}
    for name, engine in engines.items():
        record = state.servers.get(name)
        if record is None or record.process is None or not is_alive(record.process):
            missing[name] = engine
            continue
        ask_version(record.server, seconds=20.0)
        on_progress(f"{name}: {_title(record.server)} on {record.server}, running already")
    with ThreadPoolExecutor(max(1, len(missing))) as pool:
        starting = {name: pool.submit(_start, directory, state, name, missing[name], on_progress) for name in missing}
    failed = next((future.exception() for future in starting.values() if future.exception()), None)
    if failed is not None:
        for future in starting.values():
            if not future.exception():
                stop(future.result().process, seconds=10.0)
        raise failed
    for name, future in starting.items():
        started = future.result()
        on_progress(f"{name}: {_title(started.server)} on {started.server}")
        record = _Record(started.server, started.process, time.time())
        state = replace(state, servers={**state.servers, name: record})
    _save(directory, state)
    return state


def _start(directory: Path, state: _State, name: str, engine: ServerEngine, on_progress: Progress) -> StartedServer:
    for process in _running(directory, state, name):  # started by a process that was cut off
        stop(process)
    options = () if engine.flavor == "tidb" else _OPTIONS.get(name, ())
    folder = make_directory(directory / name)
    return start_server(engine, folder, port=state.port(name), options=options, on_progress=on_progress)


def _up_compose(directory: Path, state: _State, on_progress: Progress) -> _State:
    ports = {name: state.port(name) or free_port() for name in ("source", "target")}
    on_progress("docker compose: starting MySQL and TiDB (the first time it downloads their images)")
    compose.up(directory, ports)
    records = dict(state.servers)
    for name, flavor in (("source", "mysql"), ("target", "tidb")):
        ready = wait_for(LabServer("127.0.0.1", ports[name], "root", flavor, ""))
        records[name] = _Record(ready, None, time.time())
        on_progress(f"{name}: {_title(ready)} on {ready}")
    state = _State("compose", records)
    _save(directory, state)
    return state


def _running(directory: Path, state: _State | None, name: str) -> list[ProcessId]:
    """Find the processes of one server: the recorded one, and any with this data folder."""
    recorded = state.servers[name].process if state is not None and name in state.servers else None
    found = [recorded] if recorded is not None and is_alive(recorded) else []
    return list(dict.fromkeys([*found, *processes(directory / name, (mysql.ENGINE, tidb.ENGINE))]))


# --- state -----------------------------------------------------------------------------------------------


def _status_of(directory: Path, state: _State | None, name: str) -> ServerStatus:
    backend = "binaries" if state is None else state.backend
    if state is None or name not in state.servers:
        orphans = _running(directory, state, name)
        note = f"pid {orphans[0].pid} runs without a record; `migverify lab down` ends it" if orphans else "not started"
        return ServerStatus(name, None, False, orphans[0].pid if orphans else None, None, backend, note)
    record = state.servers[name]
    pid = None if record.process is None else record.process.pid
    ended = ServerStatus(name, record.server, False, None, record.started, backend, "the process has ended")
    if record.process is not None and not is_alive(record.process):
        return ended
    try:
        ask_version(record.server, seconds=5.0)
    except LabError as error:
        if record.process is not None and not is_alive(record.process):
            return ended  # it was ending when it was asked
        return ServerStatus(name, record.server, False, pid, record.started, backend, error.message)
    return ServerStatus(name, record.server, True, pid, record.started, backend, "answers")


def _title(server: LabServer) -> str:
    return f"{ {'tidb': 'TiDB', 'mysql': 'MySQL', 'mariadb': 'MariaDB'}[server.flavor] } {server.version}"


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
        "servers": {name: asdict(record) for name, record in state.servers.items()},
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
        servers = {name: _record(entry) for name, entry in document["servers"].items()}
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
