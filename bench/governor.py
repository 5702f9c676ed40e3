"""A run whose connections are governed, beside fixed numbers of them: alone, and with a load in its middle.

``python -m bench.governor``: wall time of each, the tasks that read at once over time, and how long the load's own
statements took on the target while the run went on.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.setting import Setting, add_arguments, open_setting, plan
from migverify.db.session import open_session
from migverify.model import StoredKind, Verdict
from migverify.store.open import open_store
from migverify.tables.engine import LocalTaskEngine
from migverify.tables.governor import ConnectionGovernor
from migverify.tables.tasks import Rules
from migverify.tables.verify import Controls, verify_tables

LIMIT = 8
CLIENTS = 6
FACTOR = 2.0


@dataclass
class Load:
    """Clients that sum the table on the target again and again, while they are let."""

    setting: Setting
    going: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    seconds: list[float] = field(default_factory=list)

    def run(self) -> None:
        """Sum until the end, while the clients are let."""
        with open_session(self.setting.target, None) as session:
            while not self.ended.is_set():
                if not self.going.wait(0.1):
                    continue
                begun = time.monotonic()
                session.query(f"SELECT COUNT(*), SUM(l_quantity) FROM {self.setting.database}.{self.setting.table}"
                              " WHERE l_orderkey < 200000")  # fmt: skip
                self.seconds.append(time.monotonic() - begun)


def measure(
    setting: Setting, slots: int, governor: ConnectionGovernor | None, *, load: tuple[float, float] | None
) -> float:
    """Verify once; ``load`` is when the clients begin and end, in seconds. Returns the wall time."""
    pair = plan(setting)
    rules = replace(Rules(), chunk_rows=8192, max_chunk_rows=16384, budget_seconds=0.5, governed=governor is not None)
    clients = Load(setting)
    threads = [threading.Thread(target=clients.run, daemon=True) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    timers = (
        [threading.Timer(load[0], clients.going.set), threading.Timer(load[1], clients.going.clear)] if load else []
    )
    with TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{Path(folder) / 'runs.db'}")
        run = store.start_run("bench", "h", {"pairs": [{"id": pair.id}]}, {}, kind=StoredKind.TABLES)
        engine = LocalTaskEngine({}, slots)
        begun = time.monotonic()
        for timer in timers:
            timer.start()
        verdict = verify_tables([pair], engine, store, run, rules, Controls(governor=governor))
        seconds = time.monotonic() - begun
        engine.close()
        store.close()
    for timer in timers:
        timer.cancel()
    clients.ended.set()
    for thread in threads:
        thread.join()
    if verdict is not Verdict.MATCH:
        raise SystemExit(f"the table is {verdict}, and should be equal")
    took = f", load p50 {statistics.median(clients.seconds):.2f} s of {len(clients.seconds)}" if clients.seconds else ""
    used = "" if governor is None else f", {governor.facts()['most']} at most, {governor.decreases} decreases"
    print(f"{'governed' if governor else slots!s:>9} connections: {seconds:6.1f} s{used}{took}")
    if governor is not None:
        print("           " + "\n           ".join(governor.facts()["changes"]))
    return seconds


def main(setting: Setting) -> None:
    print(f"alone, at most {LIMIT} connections a side")
    alone = [measure(setting, slots, None, load=None) for slots in (1, LIMIT)][-1]
    measure(setting, LIMIT, ConnectionGovernor(LIMIT, FACTOR), load=None)
    begin, end = alone * 0.25, alone * 0.75
    print(f"\n{CLIENTS} clients on the target from {begin:.1f} s to {end:.1f} s")
    measure(setting, LIMIT, None, load=(begin, end))
    measure(setting, LIMIT, ConnectionGovernor(LIMIT, FACTOR), load=(begin, end))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    main(open_setting(parser.parse_args()))
