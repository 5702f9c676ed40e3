"""The reverse watch of a cutover rehearsal, a process beside the feeds; in production a service of its own.

``start`` and ``resume`` return when it follows the target: a gate asks what it knows, and would else be too early.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

from migverify.errors import LabError, StoreError
from migverify_lab.cutover import WATCH, Rehearsal

if TYPE_CHECKING:
    from migverify.model import RunInfo
    from migverify.store.results import ResultStore
    from migverify_lab.process import ProcessId

WAIT_SECONDS = 60.0
POLL_SECONDS = 0.2
_BEGINNINGS = {"start": "--since", "resume": "--resume"}


def watch(one: Rehearsal, way: str, what: str) -> str:
    """Start a watch from the newest proof, go on with the one before, stop it, or tell its status.

    Raises
    ------
    LabError
        there is no such watch or word, or it does not begin to follow the target.
    """
    if way != "reverse" or what not in (*_BEGINNINGS, "stop", "status"):
        raise LabError(f"watch {way} {what}: there is no such thing", hint="See --help.")
    if what == "stop":
        one.stop_job(WATCH)
    elif what in _BEGINNINGS:
        one.stop_job(WATCH)
        begun = time.time()
        one.start_job(WATCH, ["tables", "watch", "--reverse", _BEGINNINGS[what], "last", "--quiet",
                              "--config", str(one.config)])  # fmt: skip
        _wait_until_it_follows(one, begun)
    return "stopped" if one.job(WATCH) is None else "running"


def _wait_until_it_follows(one: Rehearsal, begun: float) -> None:
    from migverify.cli.report import open_run_store

    until = time.monotonic() + WAIT_SECONDS
    with closing(open_run_store(None, one.config)) as store:
        while not _follows(one, store, begun):
            if one.job(WATCH) is None:
                raise LabError(f"the reverse watch has ended: {one.job_log(WATCH)}", hint="Start it by hand.")
            if time.monotonic() > until:
                raise LabError("the reverse watch has read nothing from the feed", hint="Is the reverse feed running?")
            time.sleep(POLL_SECONDS)


def _follows(one: Rehearsal, store: ResultStore, begun: float) -> bool:
    """Whether the watch that was started has read the feed since a moment; a proof beside it may be newer."""
    from migverify.config import load_config
    from migverify.tables.loss import TARGET_SOURCE
    from migverify.watch.ledger import ledger_folder
    from migverify.watch.ledger_read import read_ledger

    run = run_of_process(store, one.job(WATCH))
    if run is None:
        return False
    try:
        state = read_ledger(ledger_folder(load_config(one.config)) / f"watch-{run.run_id}.db", lambda _: None)
    except StoreError:
        return False
    return TARGET_SOURCE in state.read and state.written >= begun


def run_of_process(store: ResultStore, process: ProcessId | None) -> RunInfo | None:
    """Return the reverse watch that a process of this machine writes, None while there is none."""
    from migverify.store.run_leases import writer_of

    if process is None:
        return None
    for run in store.runs():
        if not run.facts.get("reverse") or run.finished is not None:
            continue
        writer = writer_of(store.database, run.run_id)
        if writer is not None and writer.holder is not None and writer.holder.pid == process.pid:
            return run
    return None
