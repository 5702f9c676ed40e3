"""How many captured statements a second are replayed on both servers, and what that costs.

    python -m bench.replay 127.0.0.1:3306 127.0.0.1:4000 --jobs 2 --calls 20000 [--writes 0.67] [--pace 3000/s]

Makes a small table on both sides, plans point reads (and with ``--writes`` single-row updates) of 16 sessions, and
plays them as fast as the servers answer, or at a rate. Each call is asked once on each side: a call is two statements.
Printed are calls a second, statements a second of each side, latencies from when each call was due, and the CPU time of
the replay for one call. Servers on the same machine take their share of it.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from migverify.model import Endpoint, Side
from migverify.workload.replay.connections import EngineOptions
from migverify.workload.replay.pace import parse_pace
from migverify.workload.replay.plan import COLUMNS, read_plan
from migverify.workload.replay.run import ReplayResult, replay
from migverify.workload.replay.safety import Leave, ReplayEndpoints
from migverify.workload.replay.slo import judge_level, level
from migverify.workload.replay.touches import TableKeys
from migverify_lab.servers import LabServer
from migverify_lab.session import connect

ROWS = 10_000
START = 1_767_323_045_000_000
DATABASE = "bench_replay"


def calls(count: int, sessions: int, share: float) -> Iterator[dict[str, list[object]]]:
    """Yield a capture's columns: sessions side by side, each statement an autocommit one."""
    rng = random.Random(7)
    each = count // sessions
    for session in range(sessions):
        rows: dict[str, list[object]] = {name: [] for name in COLUMNS}
        for number in range(each):
            key = rng.randrange(ROWS)
            sql = f"SELECT id, name, amount, noted FROM {DATABASE}.items WHERE id = {key}"
            if rng.random() < share:
                sql = f"UPDATE {DATABASE}.items SET amount = amount + 1 WHERE id = {key}"
            start = START + number * 333 * sessions + session * 333
            told: dict[str, object] = {
                "session": f"b/{session:03d}/1", "position": number, "command": "query", "sql": sql.encode(),
                "database": DATABASE, "user": "bench", "start": start, "end": start + 300, "partial": "",
                "in_transaction": False, "state": "", "source_file": "bench", "source_line": number,
            }  # fmt: skip
            for name, column in rows.items():
                column.append(told.get(name))
        yield rows


def prepare(servers: Sequence[LabServer]) -> None:
    """Make the table on each server."""
    for server in servers:
        with connect(server) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
            cursor.execute(f"DROP TABLE IF EXISTS {DATABASE}.items")
            cursor.execute(
                f"CREATE TABLE {DATABASE}.items (id INT PRIMARY KEY, name VARCHAR(40), amount DECIMAL(20,4),"
                " noted DATETIME(6))"
            )
            values = ",".join(f"({i}, 'item {i}', {i}.25, '2026-01-01 00:00:00.{i:06d}')" for i in range(ROWS))
            cursor.execute(f"INSERT INTO {DATABASE}.items VALUES {values}")
            connection.commit()


def told(result: ReplayResult, cpu: float) -> str:
    """Return the figures of a run as lines."""
    counters, seconds = result.counters, result.seconds
    lines = [
        f"{counters.begun:,} calls in {seconds:.2f} s: {counters.begun / seconds:,.0f} calls/s"
        f" (source {counters.source_asked / seconds:,.0f}/s, target {counters.target_asked / seconds:,.0f}/s)",
        f"  CPU of the replay: {cpu / max(counters.begun, 1) * 1e6:,.0f} us a call",
        f"  different {counters.different}, undecided {counters.undecided}, unjudged {counters.unjudged};"
        f" waited for another session {counters.waited:,}",
    ]
    for name in ("source", "target", "source_service", "target_service"):
        latency = result.tally.latency(name)
        shown = ", ".join(
            f"p{share * 100:g} {(latency.quantile(share) or 0) / 1000:,.2f} ms" for share in (0.5, 0.95, 0.99, 0.999)
        )
        lines.append(f"  {name:<15} {shown}")
    found = judge_level("payments", level("payments", {}), result.measured())
    lines.append(f"  payments: {'met' if found.met else '; '.join(found.reasons)}")
    return "\n".join(lines)


def main() -> None:
    """Play, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--sessions", type=int, default=16)
    parser.add_argument("--writes", type=float, default=0.0, help="share of writes")
    parser.add_argument("--pace", default="fast")
    parser.add_argument("--tls", default="disabled")
    given = parser.parse_args()
    from migverify.model import Tls

    endpoints = {}
    for side, address in ((Side.SOURCE, given.source), (Side.TARGET, given.target)):
        host, _, port = address.rpartition(":")
        endpoints[side] = Endpoint(side.value, host, int(port), "root", tls=Tls(given.tls), connections=given.sessions)
    prepare([LabServer(one.host, one.port, "root", "", "") for one in endpoints.values()])
    with tempfile.TemporaryDirectory() as folder:
        writes = given.writes > 0
        plan = read_plan(
            Path(folder), Path(folder) / "run",
            lambda *_: calls(given.calls, given.sessions, given.writes),
            leave=Leave(writes=writes), keys={f"{DATABASE}.items": TableKeys(("id",), clocked=False)},
        )  # fmt: skip
        sys.stderr.write(f"{plan.calls:,} calls planned, {plan.waits:,} wait, {plan.racy:,} racy\n")
        before = _cpu()
        options = EngineOptions(pace=parse_pace(given.pace), connections=given.sessions, writes=writes)
        result = replay(Path(folder) / "run", ReplayEndpoints(endpoints), options, jobs=given.jobs)
        sys.stdout.write(told(result, _cpu() - before) + f"\n  {given.jobs} workers, {os.cpu_count()} cores\n")


def _cpu() -> float:
    both = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


if __name__ == "__main__":
    main()
