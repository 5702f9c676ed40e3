"""How long the board of 200 services with 10,000 tables takes, from their stores to the page.

``python -m bench.fleet [--services 200] [--tables 50]``: once with a store for each service, once with one for all. The
stores are made first, which takes minutes; the board is made by the command itself, as a process of its own.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from migverify_lab.fleet import MadeFleet

ROUNDS = 3


def make(folder: Path, services: int, tables: int, *, shared: bool) -> Path:
    """Make a fleet whose services have evidence of every part; every seventh has a difference."""
    url = f"sqlite:///{folder / 'all.db'}" if shared else ""
    with closing(MadeFleet(folder, store=url, tables=tables)) as fleet:
        for number in range(services):
            name = f"service-{number:03}"
            fleet.add(name)
            fleet.all_fine(name)
            if number % 7 == 1:
                fleet.verify(name, [f"{name}.t1"])
            if not shared:
                fleet.close()
        return fleet.write()


def measured(command: list[str], folder: Path) -> tuple[float, float]:
    """Return wall and CPU seconds of a command, its modules compiled before as those of an installed package are."""
    env = os.environ | {"PYTHONPYCACHEPREFIX": str(folder / "compiled"), "PYTHONDONTWRITEBYTECODE": ""}
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "migverify", *command], cwd=folder, env=env, capture_output=True, check=False
    )
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(done.stderr.decode())
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--services", type=int, default=200)
    parser.add_argument("--tables", type=int, default=50, help="of each service")
    given = parser.parse_args()
    for shared in (False, True):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            begun = time.perf_counter()
            make(folder, given.services, given.tables, shared=shared)
            where = "one store for all" if shared else "a store for each"
            print(f"{given.services} services, {given.services * given.tables:,} tables, {where}"
                  f" (made in {time.perf_counter() - begun:.0f} s)")  # fmt: skip
            for command in (["fleet", "status"], ["fleet", "board", "-o", "fleet.html"]):
                measured(command, folder)  # which compiles the modules
                rounds = [measured(command, folder) for _ in range(ROUNDS)]
                wall, cpu = min(rounds)
                print(f"  {' '.join(command):<28} {wall:6.2f} s  (CPU {cpu:.2f} s), best of {ROUNDS}")
            print(f"  fleet.html {(folder / 'fleet.html').stat().st_size >> 10:,} KB")


if __name__ == "__main__":
    main()
