"""Faults of server processes: killed, restarted, frozen."""

from __future__ import annotations

import os
import signal
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from migverify.errors import LabError
from migverify_lab.bank import DATABASE, app_session, write_probe
from migverify_lab.chaos import Settings
from migverify_lab.chaos_world import CaseWorkspace, case_fault, rows_of
from migverify_lab.load import error_of
from migverify_lab.process import ProcessId, listens, stop, tail
from migverify_lab.workspace import Proof, is_gone, signal_all

STEP_OF_IDS = 1000
"""A jump of ids that is larger than what failed transactions leave: a cache of ids was thrown away."""


def _side(settings: Settings) -> str:
    return settings["side"]


# --- killed ---------------------------------------------------------------------------------------------------


def _kill(world: CaseWorkspace, settings: Settings) -> dict[str, Any]:
    found = world.processes(_side(settings))
    signal_all(found, signal.SIGKILL)
    for process in found:
        is_gone(process, 10.0)
    return {"pids": [process.pid for process in found]}


def _is_down(world: CaseWorkspace, settings: Settings, since: float) -> Proof:
    """No process, no listener, and clients that were refused."""
    side = _side(settings)
    server, found = world.server(side), world.processes(side)
    listening = listens(server.port, server.host)
    failed = world.failures_since(since)
    codes = sorted({one.code for one in failed})
    facts = {"pids": [one.pid for one in found], "listening": listening, "failed": len(failed), "codes": codes}
    text = (f"{'no process' if not found else f'pid {found[0].pid}'}, {'nobody' if not listening else 'somebody'}"
            f" listens on {server.port}, {len(failed)} attempts of clients failed, codes {codes}")  # fmt: skip
    return Proof(not found and not listening and bool(failed), text, facts)


def _bring_up(world: CaseWorkspace, _settings: Settings) -> dict[str, Any]:
    world.up()
    return {"pids": {side: [one.pid for one in world.processes(side)] for side in ("source", "target")}}


def _is_up(world: CaseWorkspace, settings: Settings, _since: float) -> Proof:
    """One process that is not stopped, and a client whose write is taken."""
    side = _side(settings)
    found = world.processes(side)
    states = [_state(one) for one in found]
    if len(found) != 1 or states != ["running"]:
        return Proof(False, f"{side}: processes {[one.pid for one in found]}, {states}")
    write_probe(world.server(side))
    return Proof(True, f"{side}: pid {found[0].pid} runs, and takes a write", {"pid": found[0].pid})


def _state(process: ProcessId) -> str:
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "gone"
    return {"T": "stopped", "t": "stopped"}.get(fields[0], "running")


# --- restarted in an orderly way --------------------------------------------------------------------------------


def _shut_down(world: CaseWorkspace, settings: Settings) -> dict[str, Any]:
    found = world.processes(_side(settings))
    for process in found:
        stop(process)
    return {"pids": [process.pid for process in found]}


def _is_shut_down(world: CaseWorkspace, settings: Settings, since: float) -> Proof:
    """As killed, but the server said goodbye in its log."""
    seen = _is_down(world, settings, since)
    log = tail(world.data(_side(settings)).parent / "server.log", 40)
    orderly = "Shutdown complete" in log
    text = f"{seen.text}; its log {'ends' if orderly else 'does not end'} in an orderly way"
    return Proof(seen.good and orderly, text, seen.facts)


def _restart_twice(world: CaseWorkspace, settings: Settings) -> dict[str, Any]:
    pids = []
    for _ in range(int(settings["times"])):
        for process in world.processes(_side(settings)):
            pids.append(process.pid)
            stop(process)
        world.up()
        time.sleep(float(settings["between"]))  # clients take ids from the new server's cache
    return {"pids": pids}


def _ids_jumped(world: CaseWorkspace, settings: Settings, since: float) -> Proof:
    """A younger process, clients that lost their connection, and ids that jumped because a cache of them was lost."""
    side = _side(settings)
    found = world.processes(side)
    young = [one for one in found if one.ticks / os.sysconf("SC_CLK_TCK") > since]
    jumps, newest = _jumps(world, side)
    failed = world.failures_since(since)
    text = f"{len(young)} of {len(found)} processes began after the fault, {len(failed)} attempts failed, ids jumped"
    good = bool(young) and bool(failed) and len(jumps) >= int(settings["times"])
    return Proof(good, f"{text} {len(jumps)} times, by {jumps}; the newest is {newest}", {"jumps": jumps})


def _jumps(world: CaseWorkspace, side: str) -> tuple[list[int], int]:
    ids = [int(row[0]) for row in rows_of(world, side, f"SELECT id FROM {DATABASE}.entries ORDER BY id")]  # noqa: S608
    return [b - a for a, b in pairwise(ids) if b - a >= STEP_OF_IDS], max(ids, default=0)


# --- frozen -----------------------------------------------------------------------------------------------------


def _freeze(world: CaseWorkspace, settings: Settings) -> dict[str, Any]:
    return {"stopped": signal_all(world.processes(_side(settings)), signal.SIGSTOP)}


def _is_frozen(world: CaseWorkspace, settings: Settings, since: float) -> Proof:
    """The kernel says stopped, the port still takes connections, and a client waits for an answer in vain."""
    side = _side(settings)
    server = world.server(side)
    states = [_state(one) for one in world.processes(side)]
    try:
        with app_session(server, seconds=1.0):
            answer = "answers"
    except LabError as error:
        answer = f"does not answer ({error_of(error)[0]})"
    failed = world.failures_since(since)
    good = bool(states) and set(states) == {"stopped"} and answer != "answers" and bool(failed)
    text = f"{side} is {', '.join(states) or 'gone'}, {answer}; {len(failed)} attempts of clients failed or hang"
    return Proof(good, text, {"states": states, "failed": len(failed)})


def _thaw(world: CaseWorkspace, settings: Settings) -> dict[str, Any]:
    return {"continued": signal_all(world.processes(_side(settings)), signal.SIGCONT)}


_SOURCE, _TARGET = {"side": "source"}, {"side": "target"}
FAULTS = (
    case_fault("mysql-killed", "The source's process is killed (SIGKILL).", _kill, _is_down, _bring_up, _is_up,
          _SOURCE),
    case_fault("mysql-restarted", "The source is shut down in an orderly way.", _shut_down, _is_shut_down, _bring_up,
          _is_up, _SOURCE),
    case_fault("tidb-killed", "The target's process is killed (SIGKILL).", _kill, _is_down, _bring_up, _is_up, _TARGET),
    case_fault("tidb-restarted-stale-ids", "The target is restarted twice: caches of ids are thrown away.",
          _restart_twice, _ids_jumped, _bring_up, _is_up, _TARGET | {"times": "2", "between": "1.5"}),
    case_fault("server-frozen", "A server is stopped where it is (SIGSTOP).", _freeze, _is_frozen, _thaw, _is_up,
          _SOURCE),
)  # fmt: skip
