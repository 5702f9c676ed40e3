"""Whether ``tables watch --reverse`` keeps up with what is written on TiDB, and how long its drain takes.

The lab's workload writes on TiDB through the reverse feed's connections, which know each commit timestamp; the feed
writes canal-json files and applies them to MySQL; all on this machine. First beside the load (``live``), then over the
same messages at once (``backlog``): how many changes a second the watch itself reads and proves.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from bench.setting import Setting, add_arguments, execute, open_setting
from bench.watch import read_statuses
from migverify_lab.feed.run import ReverseFeed, feed
from migverify_lab.servers import LabServer, LabServers
from migverify_lab.workload import Workload, WorkloadOptions, create

DATABASE = "bench_reverse"
MARKER = f"{DATABASE}.marker"
ACCOUNTS = 2000
COLUMNS = "name VARCHAR(64) NOT NULL PRIMARY KEY, number BIGINT NOT NULL, written DATETIME(6) NOT NULL"
WATCH = (sys.executable, "-m", "migverify", "tables", "watch", "--reverse", "--json")


def main(setting: Setting, rates: list[int], seconds: float, connections: int, rows_each: int) -> None:
    """Run every rate once, and print the figures."""
    for rate in rates:
        _one(setting, rate, seconds, connections, rows_each)


def _one(setting: Setting, rate: int, seconds: float, connections: int, rows_each: int) -> None:
    with _fed(setting) as (fed, config):
        base = json.loads(_run("verify", config, "--engine", "local"))["run_id"]
        watch = subprocess.Popen([*WATCH, "--config", str(config), "--since", base], stdout=subprocess.PIPE, text=True)
        lines, peak = read_statuses(watch)
        load = Workload(
            WorkloadOptions(
                fed.pair.target, DATABASE, rate, int(rate * seconds), connections, rows_each, ACCOUNTS, seed=1
            ),
            open_connection=fed.connect,
        )  # fmt: skip
        written = load.run()
        began = time.monotonic()
        fed.drain()
        applied = time.monotonic() - began
        while lines[-1]["verdict"] != "MATCH":
            time.sleep(0.05)
        print(f"  live: {rate:,}/s wanted, {written.changes:,} written at {written.rate:,.0f}/s; {peak[0]:.0f} MB;"
              f" applied {applied:.1f} s after the last write, MATCH {time.monotonic() - began:.1f} s after it;"
              f" diverged at any time {sum(t['diverged'] for one in lines for t in one['tables'])}")  # fmt: skip
        watch.terminate()
        watch.wait()
        _backlog(config, base, written.changes)


def _backlog(config: Path, base: str, changes: int) -> None:
    began = time.monotonic()
    command = [*WATCH, "--config", str(config), "--since", base, "--until-drained"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
        lines, peak = read_statuses(watch)
        _, status, usage = os.wait4(watch.pid, 0)
        watch.returncode = os.waitstatus_to_exitcode(status)
    wall, last = time.monotonic() - began, lines[-1]
    images, used = sum(t["images"] for t in last["tables"]), usage.ru_utime + usage.ru_stime
    print(f"  backlog: {changes:,} row changes ({images:,} images) in {wall:.1f} s with process start"
          f" ({changes / wall:,.0f}/s; {changes / used:,.0f} for each CPU second) -> {last['verdict']};"
          f" {peak[0]:.0f} MB")  # fmt: skip


@contextmanager
def _fed(setting: Setting) -> Iterator[tuple[ReverseFeed, Path]]:
    source, target = (LabServer(e.host, e.port, e.user, "", "") for e in (setting.source, setting.target))
    create((source, target), DATABASE, ACCOUNTS, 1)
    for endpoint in (setting.source, setting.target):
        execute(endpoint, f"DROP TABLE IF EXISTS {MARKER}", f"CREATE TABLE {MARKER} ({COLUMNS})")
    with (
        tempfile.TemporaryDirectory() as folder,
        feed(LabServers(source, target), Path(folder, "feed"), tables=[f"{DATABASE}.*"], polled=[MARKER],
             full_types=True, name=f"bench-reverse-{Path(folder).name}") as fed,
    ):  # fmt: skip
        yield fed, _config(Path(folder), setting, fed)


def _config(folder: Path, setting: Setting, fed: ReverseFeed) -> Path:
    path = folder / "migverify.yaml"
    carrier: dict[str, Any] = {"format": fed.format.name, "files": list(map(str, fed.paths)), "time_zone": "UTC"}
    path.write_text(yaml.safe_dump({
        "source": {"url": f"mysql://{setting.source.user}@{setting.source.host}:{setting.source.port}"},
        "target": {"url": f"tidb://{setting.target.user}@{setting.target.host}:{setting.target.port}"},
        "store": "sqlite:///runs.db",
        "tables": {"include": [f"{DATABASE}.*"], "exclude": [MARKER]},
        "consistency": "live",
        "reverse": {"carrier": carrier, "applied": "marker", "marker": MARKER},
    }))  # fmt: skip
    return path


def _run(verb: str, config: Path, *options: str) -> str:
    command = [sys.executable, "-m", "migverify", "tables", verb, "--config", str(config), "--json", *options]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(ended.stderr)
    return ended.stdout


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--rates", type=int, nargs="*", default=[1000])
    parser.add_argument("--load-seconds", type=float, default=30.0)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--rows-each", type=int, default=100, help="row changes of a transaction (default 100)")
    asked = parser.parse_args()
    main(open_setting(asked), asked.rates, asked.load_seconds, asked.connections, asked.rows_each)
