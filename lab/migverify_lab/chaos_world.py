"""What a disaster recovery case works on: the lab's pair, a load with its ledger, processes beside it; one folder.

The process that proves a fault shares nothing with the one that injected it but the moment of the injection.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from migverify.errors import LabError
from migverify_lab import mysql, servers, tidb
from migverify_lab.chaos import Fault, Settings
from migverify_lab.engine import processes
from migverify_lab.ledger import WriteAttempt, read_ledger
from migverify_lab.process import ProcessId
from migverify_lab.session import LabServer, connect, query
from migverify_lab.workspace import Proof, Workspace

FOLDER = "chaos"


class CaseWorkspace(Workspace):
    """The folder of a lab, for faults. ``directory`` is the lab's own folder."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / FOLDER)
        self.directory = directory

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
        found = processes(self.data(side).parent, (mysql.ENGINE, tidb.ENGINE))
        return sorted(found, key=lambda one: one.pid)

    def data(self, side: str) -> Path:
        """Return the data folder of a server."""
        return (self.directory if side in ("source", "target") else self.folder) / side / "data"

    # --- what is known ------------------------------------------------------------------------------------------

    def attempts(self) -> tuple[WriteAttempt, ...]:
        """Read the load's ledger."""
        return read_ledger(self.ledger_path)

    def failures_since(self, moment: float) -> list[WriteAttempt]:
        """Return attempts of the load that ended badly, or hang, since a moment."""
        bad = [one for one in self.attempts() if one.end != "A" and (one.until or time.monotonic()) > moment]
        return [one for one in bad if one.until is not None or time.monotonic() - one.since > 1.0]


def rows_of(world: CaseWorkspace, side: str, sql: str, *, seconds: float = 10.0) -> list[tuple[Any, ...]]:
    """Ask a server as root.

    Raises
    ------
    LabError
        it does not answer, or refuses.
    """
    import pymysql

    try:
        with connect(world.server(side), seconds=seconds) as connection:
            return query(connection, sql)
    except pymysql.err.MySQLError as error:
        raise LabError(f"{side}: {error}", hint="See `migverify lab status`.") from error


def case_fault(
    name: str, about: str, inject: Act, hit: Look, remove: Act, gone: Look, settings: Settings
) -> Fault[CaseWorkspace]:
    """Return a fault of the pair or its clients."""
    return Fault(name, about, inject, hit, remove, gone, settings, CaseWorkspace)


Act = Callable[[CaseWorkspace, Settings], dict[str, Any]]
Look = Callable[[CaseWorkspace, Settings, float], Proof]

_CONFIG = """\
# Written by `migverify lab chaos`: the pair of this lab, for commands that verify it.
source: {{url: "mysql://root@{source}", connections: 2}}
target: {{url: "tidb://root@{target}", connections: 2}}
store: sqlite:///{folder}/runs.db
tables: {{include: ["chaos.*"]}}
consistency: quiescent
"""
