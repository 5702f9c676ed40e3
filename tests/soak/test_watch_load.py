"""`tables watch` under the lab's payments: no false difference in many runs, and every fault found soon."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from migverify_lab.replicator_process import source_position
from migverify_lab.servers import LabServer
from migverify_lab.workload import create
from tests.conftest import Databases
from tests.db.test_watch import config_of, replicated
from tests.db.watching import Watching, diffs, drained, reasons

pytestmark = [pytest.mark.db, pytest.mark.soak]

RATE = 2000
RUNS = 20
SECONDS = 60
SOON = 5.0
"""Seconds beyond the settle time in which a fault must be found."""


def address(server: LabServer) -> str:
    return f"{server.host}:{server.port}"


def payments(databases: Databases, seconds: float) -> None:
    pair = databases.pair
    ended = subprocess.run(
        [sys.executable, "-m", "migverify", "lab", "workload", "--rate", str(RATE), "--seconds", str(seconds),
         "--database", databases.name, "--source", address(pair.source), "--target", address(pair.target)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode in (0, 3), ended.stderr  # 3: a busy machine fell short of the rate


def made(databases: Databases, folder: Path, name: str) -> Path:
    create((databases.pair.source, databases.pair.target), databases.name, 2000, 1)
    return config_of(databases, folder, name, delay=1.0)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("run", range(RUNS))
def test_payments_through_a_good_replicator_never_diverge(databases: Databases, tmp_path: Path, run: int) -> None:
    name = f"soak-{run}-{databases.name}"
    config = made(databases, tmp_path, name)
    with replicated(databases, name) as replicator:
        watching = Watching(config)
        watching.wait_for(lambda s: s["sources"][0]["read_seconds"] is not None)
        payments(databases, SECONDS)
        replicator.wait_until(source_position(databases.pair.source), 300)
        watching.stop()
        code, status = drained(config, watching.run)
    assert max(t["diverged"] for line in watching.lines for t in line["tables"]) == 0
    assert (code, status["verdict"], reasons(status)) == (0, "MATCH", "")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "fault", ["skip:every=9000", "twice:every=9000", "out-of-order:every=500", "drop-column:every=500"]
)
def test_faults_under_payments_are_found_with_key_and_column(databases: Databases, tmp_path: Path, fault: str) -> None:
    name = f"soak-{databases.name}"
    config = made(databases, tmp_path, name)
    with replicated(databases, name, fault) as replicator:
        watching = Watching(config)
        watching.wait_for(lambda s: s["sources"][0]["read_seconds"] is not None)
        payments(databases, 20)
        replicator.wait_until(source_position(databases.pair.source), 300)
        standing = replicator.injector.standing()
        began = time.monotonic()
        watching.wait_for(lambda s: sum(t["diverged"] for t in s["tables"]) >= len(standing), 60)
        late = time.monotonic() - began
        watching.stop()
        drained(config, watching.run)
        wanted = {(d.key, tuple(sorted(d.columns))) for d in standing}
    assert standing, "the fault did nothing that lasts: the test proves nothing"
    assert {(key, columns) for _, key, columns in diffs(config, watching.run)} == wanted
    assert late < 1.0 + SOON
