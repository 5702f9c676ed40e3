"""Begin and end of a case: servers, bank, load, replicator; and the steady state in between."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from migverify.errors import LabError
from migverify_lab import bank, chaos_outside
from migverify_lab.chaos_data import steady as load_steady
from migverify_lab.chaos_world import CaseWorkspace
from migverify_lab.jobs import command_of
from migverify_lab.load import Load
from migverify_lab.process import stop as stop_process
from migverify_lab.session import connect
from migverify_lab.workspace import Proof, until

REPLICATOR = "replicator"
NAME = "chaos"
"""Of the replicator's checkpoint."""
BESIDE = ("disk", "tls")
"""What can be begun beside the pair: a server on a small disk, certificates of the lab."""
RUNS = ("monitors", "schema", "run", "channel")
"""Runs of another runbook that a case disturbs: see ``chaos_runs``."""


def start(
    world: CaseWorkspace, *, side: str = "source", ids: str = "server", rate: float = 80.0, clients: int = 4,
    replicate: bool = False, beside: Sequence[str] = (),
) -> str:  # fmt: skip
    """Bring the pair up, make the bank anew and begin the load; returns what was begun.

    Raises
    ------
    LabError
        something does not start.
    """
    with world.lock():
        stop(world, drain=False)
        world.up()
        for path in (world.ledger_path, world.clock_path, world.folder / "data.json"):
            path.unlink(missing_ok=True)
        shutil.rmtree(world.folder / "faults", ignore_errors=True)  # the moment of an old fault proves nothing
        chaos_outside.end_disk(world)
        ca = ""
        for name in beside:
            if name == "disk":
                chaos_outside.prepare_disk(world)
            elif name == "tls":
                from migverify_lab.chaos_tls import prepare_certificates

                ca = prepare_certificates(world)
            elif name not in BESIDE and name not in RUNS:
                raise LabError(f"nothing is called {name!r}", hint=f"Use some of: {', '.join((*BESIDE, *RUNS))}.")
        if replicate:
            _clear_target(world)
        for each in dict.fromkeys(("source", "target", side)):  # both sides of the pair have the tables
            bank.create(world.server(each), ids)
        asked = {"side": side, "rate": rate, "clients": clients, "ids": ids, "started": time.monotonic(),
                 "replicate": replicate, "beside": list(beside), "ca": ca}  # fmt: skip
        if replicate:
            from migverify_lab.replicator_process import source_position

            # Resolved here, before the first write: a replicator that read the position itself would miss some.
            end = source_position(world.server("source"))
            start_replicator(world, f"{end.file}:{end.offset}")
        asked["started"] = time.monotonic()
        world.write("load", asked)
        for name in RUNS:
            if name in beside:
                _prepare_run(world, name)
        world.start_job("load", command_of("bank", world.directory))
        return f"{clients} clients write {rate:g} transactions/s to the {side}{' and on to the target' * replicate}"


def be_bank(directory: Path, _arguments: Sequence[str], ended: threading.Event) -> None:
    """Be the clients of the bank."""
    world = CaseWorkspace(directory)
    asked = world.read("load") or {}
    options = bank.BankOptions(world.server(asked["side"]), asked["ids"], world.clock_path, asked.get("ca", ""))
    clients = [bank.BankClient(options, number) for number in range(asked["clients"])]
    Load(clients, world.ledger_path, asked["rate"], ended).run()


def _prepare_run(world: CaseWorkspace, name: str) -> None:
    from migverify_lab import chaos_channel
    from migverify_lab import chaos_runs as runs

    {"monitors": runs.prepare_monitors, "schema": runs.prepare_schema, "run": runs.prepare_run,
     "channel": chaos_channel.prepare_channel}[name](world)  # fmt: skip


def _clear_target(world: CaseWorkspace) -> None:
    with connect(world.server("target"), seconds=30.0) as connection, connection.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS migverify_lab")


def start_replicator(world: CaseWorkspace, since: str = "") -> None:
    """Start the lab's replicator as a process, at its checkpoint unless a position is given."""
    arguments = ["lab", "replicator", "--databases", bank.DATABASE, "--name", NAME, "--source",
                 str(world.server("source")), "--target", str(world.server("target")),
                 *(["--since", since] if since else [])]  # fmt: skip
    world.start_job(REPLICATOR, arguments)


def steady(world: CaseWorkspace, window: float) -> Proof:
    """Tell whether the load is steady, and the replicator, if there is one, not behind it."""
    seen = load_steady(world, window)
    asked = world.read("load") or {}
    if seen.good and asked.get("replicate"):
        seen = seen.and_also(caught_up(world, 5.0))
    return seen


def caught_up(world: CaseWorkspace, seconds: float) -> Proof:
    """Tell whether the replicator reaches, within ``seconds``, where the source's binlog ends now."""
    from migverify_lab.replicator_process import source_position, wait_applied

    if world.job(REPLICATOR) is None:
        return Proof(False, "the replicator does not run", {"log": world.job_log(REPLICATOR)})
    end = source_position(world.server("source"))
    began = time.monotonic()
    try:
        wait_applied(world.server("target"), NAME, end, seconds, lambda: world.job(REPLICATOR) is not None)
    except LabError as error:
        return Proof(False, error.message)
    return Proof(True, f"the replicator reached {end.file}:{end.offset} in {time.monotonic() - began:.1f} s")


def stop(world: CaseWorkspace, *, drain: bool = True) -> list[str]:
    """End the load, then the replicator once it has everything, then all else; returns what was ended.

    Raises
    ------
    LabError
        the replicator does not come to its end: the data check would compare what is not comparable.
    """
    done = []
    asked = world.read("load")
    if world.stop_job("load"):
        done.append("load ended")
    if asked is not None and "stopped" not in asked:
        world.write("load", asked | {"stopped": time.monotonic()})
    replicator = world.job(REPLICATOR)
    if replicator is not None:
        if drain:
            seen = until(lambda: caught_up(world, 10.0), 60.0)
            if not seen.good:
                raise LabError(f"the replicator did not come to its end: {seen.text}", hint="Look at its log.")
            done.append(seen.text)
        stop_process(replicator, 20.0)
    done += [f"{name} ended" for name in world.jobs() if world.stop_job(name)]
    return done or ["nothing ran"]


def down(world: CaseWorkspace) -> list[str]:
    """End everything a case started, also the server on the small disk; the pair stays."""
    done = stop(world, drain=False)
    return [*done, "the small disk is gone"] if chaos_outside.end_disk(world) else done


def compare(world: CaseWorkspace) -> Proof:
    """Verify all rows of the bank on both sides of the pair, as `migverify tables verify` does."""
    code, report, said = _migverify(world, ["tables", "verify", "--engine", "local"])
    if not isinstance(report, dict):
        return Proof(None, f"tables verify ended with {code}: {said}")
    tables = {str(one.get("source")): one.get("verdict") for one in report.get("tables", ())}
    return Proof({0: True, 1: False}.get(code), f"tables verify: {report.get('verdict')}, {tables}", {"tables": tables})


def ids_gate(world: CaseWorkspace, *, blocked: bool = False) -> Proof:
    """Ask `migverify guard ids` whether every id space has room.

    Parameters
    ----------
    blocked
        It has to say no, and name a column of the bank.
    """
    code, report, said = _migverify(world, ["guard", "ids"])
    short = [one for one in _entries(report) if one.get("verdict") != "pass"]
    said = (
        "; ".join(f"{one.get('table')}.{one.get('column')} {one.get('reason')}" for one in short) or "room everywhere"
    )
    if code not in (0, 1) or report is None:
        return Proof(None, f"migverify guard ids ended with {code}: {said}")
    named = any(one.get("verdict") == "fail" and str(one.get("table")).startswith("chaos.") for one in short)
    if blocked:
        return Proof(code == 1 and named, f"the gate {'blocks' if code == 1 else 'lets pass'}: {said}")
    return Proof(code == 0, f"the gate {'lets pass' if code == 0 else 'blocks'}: {said}")


def _entries(report: Any) -> list[dict[str, Any]]:
    return [one for one in report if isinstance(one, dict)] if isinstance(report, list) else []


def _migverify(world: CaseWorkspace, arguments: list[str]) -> tuple[int, Any, str]:
    """Run a command of migverify on the pair; returns exit code, its JSON (None where it printed none), last line."""
    command = [sys.executable, "-m", "migverify", *arguments, "--json", "--config", str(world.config_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)  # noqa: S603 - our own command
    said = (done.stderr.strip().splitlines() or [""])[-1][:300]
    try:
        return done.returncode, json.loads(done.stdout), said
    except ValueError:
        return done.returncode, None, said
