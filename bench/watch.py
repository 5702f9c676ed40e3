"""Whether ``tables watch`` keeps up with a load that a replicator carries over, and how long its drain takes.

The lab's workload writes on the source, its replicator applies on the target, the watch follows; all on this machine.
Printed a second: writes, lag of the replicator, keys proved and open, memory and CPU of the watch.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import yaml

from bench.setting import Setting
from migverify_lab.servers import LabServer
from migverify_lab.workload import create

DATABASE = "bench_watch"
NAME = "bench-watch"
ACCOUNTS = 2000


def main(setting: Setting, rates: list[int], seconds: float) -> None:
    """Run every rate once, drain, and print the figures."""
    for rate in rates:
        _one(setting, rate, seconds)


def _one(setting: Setting, rate: int, seconds: float) -> None:
    ends = [f"{e.host}:{e.port}" for e in (setting.source, setting.target)]
    lab = ["--source", ends[0], "--target", ends[1]]
    with tempfile.TemporaryDirectory() as folder:
        config = _config(Path(folder), setting)
        create(tuple(LabServer(e.host, e.port, e.user, "", "") for e in (setting.source, setting.target)), DATABASE,
               ACCOUNTS, 1)  # fmt: skip
        replicator = subprocess.Popen(
            [sys.executable, "-m", "migverify", "lab", "replicator", "--databases", DATABASE, "--name", NAME,
             "--since", "now", *lab], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(3)
        watch = subprocess.Popen(
            [sys.executable, "-m", "migverify", "tables", "watch", "--config", str(config), "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        lines, peak = read_statuses(watch)
        clock = psutil.Process(watch.pid)
        before, servers = sum(clock.cpu_times()[:2]), setting.clock
        servers.start()
        done = _migverify("lab", "workload", "--rate", str(rate), "--seconds", str(seconds), "--database", DATABASE,
                          "--connections", "4", "--json", *lab)  # fmt: skip
        spent = servers.stop()
        used = sum(clock.cpu_times()[:2]) - before
        open_keys = sum(t["pending"] + t["doubt"] + t["hot"] for t in lines[-1]["tables"])
        lags = [s["lag_seconds"] for line in lines for s in line["sources"] if s["lag_seconds"] is not None]
        written = json.loads(done)
        print(f"  rate {rate:>6,}  written {written}")
        servers_cpu = f"{spent.source_cpu:.1f} and {spent.target_cpu:.1f} s"
        print(
            f"    watch CPU {used:.1f} s of {spent.wall:.1f}, peak memory {peak[0]:.0f} MB; servers' CPU {servers_cpu}"
        )
        print(f"    keys open at the end {open_keys:,}; greatest lag of the target {max(lags):.1f} s")
        _wait_for_replicator(lines)
        run = str(lines[-1]["run_id"])
        watch.terminate()
        watch.wait()
        start = time.monotonic()
        ended = subprocess.run(
            [sys.executable, "-m", "migverify", "tables", "watch", "--config", str(config), "--resume", run,
             "--until-drained", "--json"], capture_output=True, text=True,
        )  # fmt: skip
        final = json.loads(ended.stdout.splitlines()[-1])
        proved = sum(t["keys"] for t in final["tables"])
        print(f"    drain {time.monotonic() - start:.1f} s -> {final['verdict']}; {proved:,} keys proved, "
              f"{sum(t['images'] for t in final['tables']):,} row images")  # fmt: skip
        replicator.terminate()
        replicator.wait()


def _config(folder: Path, setting: Setting) -> Path:
    path = folder / "migverify.yaml"
    document = {
        "source": {"url": f"mysql://{setting.source.user}@{setting.source.host}:{setting.source.port}"},
        "target": {"url": f"tidb://{setting.target.user}@{setting.target.host}:{setting.target.port}"},
        "store": "sqlite:///runs.db",
        "tables": {"include": [f"{DATABASE}.*"]},
        "consistency": "live",
        "watch": {"applied": "checkpoint", "checkpoint": "migverify_lab.replicator_checkpoint", "checkpoint_id": NAME},
    }
    path.write_text(yaml.safe_dump(document))
    return path


def read_statuses(watch: subprocess.Popen[str]) -> tuple[list[dict[str, Any]], list[float]]:
    """Read the statuses of a watch on a thread; returns them and its peak memory in MB once there is one."""
    lines: list[dict[str, Any]] = []
    peak = [0.0]
    threading.Thread(target=_read, args=(watch, lines, peak), daemon=True).start()
    while not lines:
        time.sleep(0.1)
    return lines, peak


def _read(watch: subprocess.Popen[str], lines: list[dict[str, Any]], peak: list[float]) -> None:
    process = psutil.Process(watch.pid)
    for line in watch.stdout or ():
        lines.append(json.loads(line))
        if process.is_running():
            peak[0] = max(peak[0], process.memory_info().rss / 1e6)


def _wait_for_replicator(lines: list[dict[str, Any]]) -> None:
    while any(s["lag_seconds"] for s in lines[-1]["sources"]):
        time.sleep(0.05)


def _migverify(*arguments: str) -> str:
    ended = subprocess.run([sys.executable, "-m", "migverify", *arguments], capture_output=True, text=True)
    if ended.returncode not in (0, 3):
        raise SystemExit(ended.stderr)
    return ended.stdout


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this question."""
    parser.add_argument("--rates", type=int, nargs="*", default=[2000, 5000])
    parser.add_argument("--load-seconds", type=float, default=60.0)
