"""`tables watch --reverse` under the lab's payments on TiDB: a healthy feed is never anything but MATCH."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from migverify_lab.feed.run import ReverseFeed
from migverify_lab.workload import Workload, WorkloadOptions, WorkloadResult, create
from tests.conftest import Databases
from tests.db.test_reverse import MARKER, followed, verified
from tests.db.watching import Watching, drained, reasons

pytestmark = [pytest.mark.db, pytest.mark.soak]

RATE = 1000
"""Row changes a second on TiDB that must be held."""
AHEAD = 1.05
"""What the load aims at, as transactions begin late rather than early."""
SECONDS = 600
CONNECTIONS = 4
ROWS_EACH = 100
ACCOUNTS = 2000
OLDEST = 30.0
"""Seconds that a write may wait for its proof: ``watch.hot_seconds``, and what the runbooks allow ``rollback.loss``."""
NOT_CARRIED = "the changefeed carried no row of"
OPEN = ("are not proved yet", "keep changing (hot)")
"""How the reasons end that say no more than that keys are open."""


def payments(fed: ReverseFeed, database: str) -> WorkloadResult:
    """Write on TiDB; each connection commits transactions of many rows, as services with batches do."""
    rate = RATE * AHEAD
    options = WorkloadOptions(
        fed.pair.target, database, rate, int(rate * SECONDS), CONNECTIONS, ROWS_EACH, ACCOUNTS, seed=1
    )  # fmt: skip
    return Workload(options, open_connection=fed.connect).run()


def unproved(status: dict[str, Any], known: Sequence[str]) -> list[str]:
    """Return what a status says beyond MATCH, or MATCH but for keys that are open and no older than they may be."""
    # Until the first rows come, tables that nobody writes look like those that a filter leaves out.
    are_seen = all(table["images"] for table in status["tables"])
    said = [*status["reasons"], *(one for one in status["findings"] if are_seen or NOT_CARRIED not in one)]
    if status["as_of_verdict"] != "MATCH":
        said.append(f"{status['as_of_verdict']} as of {status['as_of'] or 'no place'}")
    for table in status["tables"]:
        said += [reason for reason in table["reasons"] if not reason.endswith(OPEN)]
        said += [finding for finding in table["findings"] if finding not in known]
        if table["diverged"] or table["hot"]:
            said.append(f"{table['source']}: {table['diverged']} keys diverged, {table['hot']} hot")
        if (table["oldest_seconds"] or 0.0) > OLDEST:
            said.append(f"{table['source']}: a key is open for {table['oldest_seconds']:.0f} s")
        opened = table["pending"] + table["doubt"] + table["hot"]
        if table["verdict"] != ("INCONCLUSIVE" if opened else "MATCH"):
            said.append(f"{table['source']}: {table['verdict']} with {opened} keys open")
    if status["verdict"] not in {table["verdict"] for table in status["tables"]}:
        said.append(f"{status['verdict']}, unlike every table")
    return said


def figures(written: WorkloadResult, statuses: Sequence[dict[str, Any]], drain: float) -> str:
    """Return what a run of the soak measured."""
    tables = [table for status in statuses for table in status["tables"]]
    opened = [sum(t["pending"] + t["doubt"] + t["hot"] for t in status["tables"]) for status in statuses]
    lags = [source["lag_seconds"] for status in statuses for source in status["sources"]]
    return (
        f"{written.changes:,} row changes in {written.transactions:,} transactions at {written.rate:,.0f}/s, begun at"
        f" most {written.late:.1f} s late; {len(statuses)} statuses"
        f" {dict(Counter(status['as_of_verdict'] for status in statuses))} as of their places;"
        f" oldest open key {max(t['oldest_seconds'] or 0.0 for t in tables):.1f} s, most open keys {max(opened):,};"
        f" greatest lag of MySQL {max(lag for lag in lags if lag is not None):.1f} s;"
        f" images {sum(t['images'] for t in statuses[-1]['tables']):,}; MATCH {drain:.1f} s after the last write"
    )


def spent(pid: int) -> tuple[float, float]:
    """Return a process's greatest memory so far in MB, and its CPU seconds."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) / 1e3, sum(psutil.Process(pid).cpu_times()[:2])


@pytest.mark.timeout(1800)
def test_payments_through_a_healthy_feed_are_never_anything_but_match(
    databases: Databases, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create((databases.pair.source, databases.pair.target), databases.name, ACCOUNTS, 1)
    databases.both(f"CREATE TABLE marker ({MARKER})")
    with followed(databases, tmp_path) as (fed, config):
        watching = Watching(config, "--reverse", "--since", verified(config))
        watching.wait_for(lambda s: s["verdict"] == "MATCH")
        first = len(watching.lines) - 1
        written = payments(fed, databases.name)
        ended = time.time()
        watching.wait_for(lambda s: s["at"] > ended and s["verdict"] == "MATCH")
        drain = time.time() - ended
        peak, used = spent(watching.process.pid)
        watching.stop()
        code, status = drained(config, watching.run, "--reverse", "--timeout", "150")
    statuses = watching.lines[first:-1]  # the last one is that of the end
    with capsys.disabled():
        sys.stdout.write(f"\n{figures(written, statuses, drain)}; watch at most {peak:.0f} MB, {used:.0f} s of CPU\n")
    known = [finding for table in statuses[0]["tables"] for finding in table["findings"]]
    assert [said for line in statuses for said in unproved(line, known)] == []
    assert len(statuses) > SECONDS / 3, "the watch fell silent"
    assert written.rate >= RATE, "the load was too slow: this run proves nothing"
    assert sum(t["images"] for t in status["tables"]) > RATE * SECONDS
    assert (code, status["verdict"], reasons(status)) == (0, "MATCH", "")
