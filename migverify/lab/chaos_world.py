"""What a disaster recovery case works on: the lab's pair, a load with its ledger, processes beside it; one folder.

Every command of ``migverify lab chaos`` is a process of its own and knows only what stands in this folder and what it
sees of servers and processes: the one that proves a fault shares nothing with the one that injected it but the moment.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from migverify.errors import LabError
from migverify.lab import mysql, servers, tidb
from migverify.lab.cache import file_lock, make_directory
from migverify.lab.chaos_ledger import Attempt, read_ledger
from migverify.lab.process import ProcessId, find_by_argument, is_alive, spawn, stop, tail
from migverify.lab.servers import LabServer
from migverify.lab.session import connect

FOLDER = "chaos"
POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Proof:
    """What somebody saw: ``good`` None where it could not be seen, which proves nothing."""

    good: bool | None
    text: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class World:
    """The folder of a lab, for faults. ``directory`` is the lab's own folder."""

    directory: Path

    @property
    def folder(self) -> Path:
        """Where the cases keep their things."""
        return make_directory(self.directory / FOLDER)

    @property
    def ledger_path(self) -> Path:
        """The ledger of the load."""
        return self.folder / "ledger.txt"

    @property
    def clock_path(self) -> Path:
        """By how many milliseconds the clock of the load's id generators is shifted."""
        return self.folder / "clock"

    @property
    def config_path(self) -> Path:
        """A configuration of the pair, for other commands."""
        return self.folder / "migverify.yaml"

    # --- servers ------------------------------------------------------------------------------------------------

    def up(self) -> None:
        """Bring the pair up, or what of it is down, and write down where it listens.

        Raises
        ------
        LabError
            a server does not start, or the lab's servers are containers.
        """
        pair = servers.up(self.directory, "tidb", lambda _: None)
        found = json.loads((self.directory / "state.json").read_text())
        if found["backend"] != "binaries":
            raise LabError("the lab's servers are containers, and faults need processes",
                           hint="Stop Docker's engine for this lab, or run it on a machine without one.")  # fmt: skip
        known = self.read("servers") or {}
        known |= {"source": asdict(pair.source), "target": asdict(pair.target)}
        self.write("servers", known)
        self.config_path.write_text(_CONFIG.format(source=pair.source, target=pair.target, folder=self.folder))

    def server(self, side: str) -> LabServer:
        """Return a server as it was when it was last brought up; it need not run.

        Raises
        ------
        LabError
            it never was up.
        """
        found = (self.read("servers") or {}).get(side)
        if found is None:
            raise LabError(f"no server {side} in {self.directory}", hint="Run `migverify lab chaos start` first.")
        return LabServer(**found)

    def add_server(self, side: str, server: LabServer) -> None:
        """Remember a server beside the pair."""
        self.write("servers", (self.read("servers") or {}) | {side: asdict(server)})

    def processes(self, side: str) -> list[ProcessId]:
        """Find the processes of a server in the process list, by their data folder."""
        data = self.data(side)
        found = [*find_by_argument(mysql.data_argument(data)), *find_by_argument(tidb.data_argument(data))]
        return sorted(found, key=lambda one: one.pid)

    def data(self, side: str) -> Path:
        """Return the data folder of a server."""
        return (self.directory if side in ("source", "target") else self.folder) / side / "data"

    # --- processes beside the servers ---------------------------------------------------------------------------

    def start_job(self, name: str, arguments: Sequence[str], *, command: Sequence[str] = ()) -> ProcessId:
        """Start a process that stays: ``migverify`` with arguments, or a command.

        Raises
        ------
        LabError
            one of that name runs, or it ends at once.
        """
        if self.job(name) is not None:
            raise LabError(f"{name} runs already", hint="Run `migverify lab chaos stop` first.")
        folder = make_directory(self.folder / "jobs")
        process = spawn([*(command or (sys.executable, "-m", "migverify")), *arguments], folder / f"{name}.log", folder)
        self.write(f"jobs/{name}", asdict(process))
        return process

    def job(self, name: str) -> ProcessId | None:
        """Return a process that was started, as long as it lives."""
        found = self.read(f"jobs/{name}")
        process = ProcessId(**found) if found else None
        return process if process is not None and is_alive(process) else None

    def stop_job(self, name: str, seconds: float = 20.0) -> bool:
        """End a process that was started; returns whether it ran."""
        process = self.job(name)
        return process is not None and stop(process, seconds)

    def job_log(self, name: str) -> str:
        """Return the end of what a process said."""
        return tail(self.folder / "jobs" / f"{name}.log")

    def jobs(self) -> list[str]:
        """Return the names of the processes that live."""
        names = sorted(path.stem for path in (self.folder / "jobs").glob("*.json"))
        return [name for name in names if self.job(name) is not None]

    # --- what is written down -----------------------------------------------------------------------------------

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a document of the folder; None where there is none."""
        try:
            found: dict[str, Any] = json.loads((self.folder / f"{name}.json").read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise LabError(f"{self.folder / name}.json is damaged: {error}", hint="Remove it.") from None
        return found

    def write(self, name: str, document: Mapping[str, Any]) -> None:
        """Keep a document."""
        path = self.folder / f"{name}.json"
        make_directory(path.parent)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        partial.replace(path)

    def fault(self, name: str) -> dict[str, Any]:
        """Return what is known of a fault's injection: ``injected`` and ``removed`` by CLOCK_MONOTONIC, and its facts.

        Raises
        ------
        LabError
            it was not injected.
        """
        found = self.read(f"faults/{name}")
        if found is None:
            raise LabError(f"{name} was not injected here", hint=f"Run `migverify lab chaos inject {name}` first.")
        return found

    def attempts(self) -> tuple[Attempt, ...]:
        """Read the load's ledger."""
        return read_ledger(self.ledger_path)

    def failures_since(self, moment: float) -> list[Attempt]:
        """Return attempts of the load that ended badly, or hang, since a moment."""
        bad = [one for one in self.attempts() if one.end != "A" and (one.until or time.monotonic()) > moment]
        return [one for one in bad if one.until is not None or time.monotonic() - one.since > 1.0]

    def lock(self) -> Any:
        """Return the lock that one command at a time holds while it changes something."""
        return file_lock(self.folder / "lock", seconds=300.0)


def rows_of(world: World, side: str, sql: str, *, seconds: float = 10.0) -> list[tuple[Any, ...]]:
    """Ask a server as root.

    Raises
    ------
    LabError
        it does not answer, or refuses.
    """
    import pymysql

    try:
        with connect(world.server(side), seconds=seconds) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())
    except pymysql.err.MySQLError as error:
        raise LabError(f"{side}: {error}", hint="See `migverify lab status`.") from error


def until(look: Callable[[], Proof], seconds: float) -> Proof:
    """Look until it is good, or the time is over; the last look is the answer. A server's error tells nothing."""
    import pymysql

    deadline = time.monotonic() + seconds
    while True:
        try:
            found = look()
        except (LabError, OSError, pymysql.err.MySQLError) as error:
            found = Proof(None, f"could not be seen: {error}".replace("\n", " "))
        if found.good or time.monotonic() >= deadline:
            return found
        time.sleep(POLL_SECONDS)


def signal_all(processes: Sequence[ProcessId], number: signal.Signals) -> int:
    """Send a signal to exactly these processes; returns how many were there."""
    sent = 0
    for process in processes:
        if is_alive(process):
            os.kill(process.pid, number)
            sent += 1
    return sent


def is_gone(process: ProcessId, seconds: float) -> bool:
    """Wait until a process has ended; False where it has not in time."""
    deadline = time.monotonic() + seconds
    while is_alive(process):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True


_CONFIG = """\
# Written by `migverify lab chaos`: the pair of this lab, for commands that verify it.
source: {{url: "mysql://root@{source}", connections: 2}}
target: {{url: "tidb://root@{target}", connections: 2}}
store: sqlite:///{folder}/runs.db
tables: {{include: ["chaos.*"]}}
consistency: quiescent
"""
