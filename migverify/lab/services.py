"""Three services that must agree: orders on MySQL, payments on the migrating pair, the ledger on MariaDB.

``up`` adds a MariaDB to the lab's pair; the orders lie beside the payments, in a database of their own. What they hold
is made by ``services_load``, what goes wrong between them by ``services_faults``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from migverify.errors import LabError
from migverify.lab import mariadb, servers
from migverify.lab.cache import Progress, file_lock, make_directory
from migverify.lab.mysql import data_argument
from migverify.lab.process import (
    ProcessId,
    find_by_argument,
    free_port,
    is_alive,
    port_is_free,
    spawn,
    stop,
)
from migverify.lab.servers import LabServer, LabServers
from migverify.lab.services_tables import Names

if TYPE_CHECKING:
    import pymysql

    Connection: TypeAlias = pymysql.connections.Connection[Any]

FOLDER = "services"
START_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Services:
    """Where the services listen, and what their databases are called."""

    source: LabServer
    target: LabServer
    orders: LabServer
    ledger: LabServer
    names: Names = field(default_factory=Names)

    def server(self, endpoint: str) -> LabServer:
        """Return the server of an endpoint: ``source``, ``target``, ``orders`` or ``ledger``."""
        found: LabServer = getattr(self, endpoint)
        return found


# --- up and down ----------------------------------------------------------------------------------------------


def up(directory: Path, target: str = "tidb", on_progress: Progress = lambda _: None) -> Services:
    """Bring the pair and the ledger's MariaDB up; what runs is left as it is. Writes ``services/migverify.yaml``.

    Raises
    ------
    LabError
        when a server cannot be got or started.
    """
    directory = directory.absolute()
    pair_ran = all(entry.running for entry in servers.status(directory))
    pair = servers.up(directory, target, on_progress)
    folder = make_directory(directory / FOLDER)
    with file_lock(folder / "lock", on_progress):
        ledger, _, ours = _load(folder) or (None, None, not pair_ran)
        if ledger is None or not _running(folder):
            ledger = start_ledger(folder, None if ledger is None else ledger.port, on_progress, ours)
        on_progress(f"ledger: MariaDB {ledger.version} on {ledger}")
        services = Services(pair.source, pair.target, pair.source, ledger)
        (folder / "migverify.yaml").write_text(configuration(services), encoding="utf-8")
    return services


def start_ledger(folder: Path, port: int | None, on_progress: Progress, ours: bool = False) -> LabServer:
    """Start a MariaDB in a folder and record it there; ``ours`` says that the pair was started for it.

    A port may be taken by somebody else between choosing and binding it: then another one is tried.
    """
    programs = mariadb.provide(on_progress)
    data = folder / "data"
    if not data.is_dir():
        on_progress("ledger: making an empty MariaDB data folder")
        mariadb.initialize(programs, folder, data)
    log = folder / "server.log"
    for attempt in range(START_ATTEMPTS):
        chosen = port if attempt == 0 and port is not None and port_is_free(port) else free_port()
        log.write_bytes(b"")
        # Late events arrive by the server's own scheduler.
        command = mariadb.serve_command(programs, data, chosen, ("--event-scheduler=ON",))
        process = spawn(command, log, folder)
        try:
            server = mariadb.ready(LabServer("127.0.0.1", chosen, "root", "mariadb", ""), process, log)
            _save(folder, server, process, ours)
        except BaseException as error:
            stop(process, seconds=10.0)  # nothing that was started may stay behind, not even after Ctrl-C
            if isinstance(error, LabError) and "already in use" in error.message and attempt + 1 < START_ATTEMPTS:
                continue
            raise
        return server
    raise LabError(f"no free port for MariaDB in {START_ATTEMPTS} attempts", hint="Try again.")


def down(directory: Path, purge: bool = False) -> list[str]:
    """Stop the ledger, and the pair where ``up`` had started it; with ``purge`` delete their data too.

    A second call does nothing and is no error. Returns what was done, as lines.
    """
    directory = directory.absolute()
    folder = directory / FOLDER
    if not folder.is_dir():
        return []
    done: list[str] = []
    with file_lock(folder / "lock"):
        recorded = _load(folder)
        done += [f"ledger stopped (pid {process.pid})" for process in _running(folder) if stop(process)]
        (folder / "state.json").unlink(missing_ok=True)
        if purge and (folder / "data").is_dir():
            shutil.rmtree(folder / "data")
            done.append("data of the ledger deleted")
    if recorded is not None and recorded[2]:
        done += servers.down(directory, purge)
    return done


def running(directory: Path) -> Services:
    """Return the services of this folder, all of them answering.

    Raises
    ------
    LabError
        when one is not up.
    """
    directory = directory.absolute()
    pair = servers.running_servers(directory)
    recorded = _load(directory / FOLDER)
    if recorded is None or not is_alive(recorded[1]):
        raise LabError(f"the ledger in {directory / FOLDER} is not up", hint="Run `migverify lab services up` first.")
    return Services(pair.source, pair.target, pair.source, recorded[0])


def configuration(services: Services) -> str:
    """Return a ``migverify.yaml`` with the four endpoints."""

    def endpoint(server: LabServer) -> str:
        scheme = "tidb" if server.flavor == "tidb" else "mysql"
        # Everything is on this machine: encryption would cost a tenth of a second a connection and hide nothing.
        return f"{{url: '{scheme}://{server.user}@{server}', tls: {{mode: disabled}}}}"

    return (
        "# Written by `migverify lab services up`.\n"
        f"source: {endpoint(services.source)}\ntarget: {endpoint(services.target)}\n"
        f"endpoints:\n  orders: {endpoint(services.orders)}\n  ledger: {endpoint(services.ledger)}\n"
        f"tables: {{include: ['{services.names.pay}.*']}}\n"
        "# What the lab writes is made up, so the report may show it.\nreport: {values: true}\n"
    )


def _running(folder: Path) -> list[ProcessId]:
    """Find MariaDB by its record, and by its data folder where the record was lost."""
    recorded = _load(folder)
    found = [recorded[1]] if recorded is not None and is_alive(recorded[1]) else []
    return found + [process for process in find_by_argument(data_argument(folder / "data")) if process not in found]


def _save(folder: Path, server: LabServer, process: ProcessId, ours: bool) -> None:
    document = {"ledger": asdict(server), "process": asdict(process), "pair_started": ours}
    partial = folder / "state.json.new"
    partial.write_text(json.dumps(document, indent=2) + "\n")
    partial.replace(folder / "state.json")


def _load(folder: Path) -> tuple[LabServer, ProcessId, bool] | None:
    path = folder / "state.json"
    try:
        document = json.loads(path.read_text())
        return LabServer(**document["ledger"]), ProcessId(**document["process"]), bool(document["pair_started"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(f"{path} is damaged: {error!r}",
                       hint="Remove it; `migverify lab services down` still finds MariaDB.") from error  # fmt: skip


def named(pair: LabServers, ledger: LabServer, names: Names) -> Services:
    """Return services over a pair of servers; the orders lie on its source."""
    return Services(pair.source, pair.target, pair.source, ledger, names)


def query(connection: Connection, sql: str) -> list[tuple[Any, ...]]:
    """Run one SELECT of the lab's own."""
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def run(connection: Connection, statements: Sequence[str]) -> list[int]:
    """Run statements in one transaction; returns the rows each affected.

    Raises
    ------
    LabError
        the server refuses one.
    """
    import pymysql

    affected = []
    try:
        with connection.cursor() as cursor:
            connection.begin()
            for sql in statements:
                affected.append(int(cursor.execute(sql)))
            connection.commit()
    except pymysql.err.MySQLError as error:
        connection.rollback()
        raise LabError(f"the server refuses {sql[:200]!r}: {error}",
                       hint="Make the services anew: `migverify lab services load`.") from error  # fmt: skip
    return affected
