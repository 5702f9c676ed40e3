"""Verify one pair in a process of its own and print its figures as JSON: the contender called migverify.

Not run by hand: ``bench.contenders`` starts it, so that memory is that of one verification and nothing else. On Spark
the session is open and warm before the clock starts.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from typing import Any

import psutil

from bench.measure import PeakMemory, ServerClock
from bench.setting import Setting, endpoint, plan
from migverify.db.session import open_session
from migverify.model import StoredKind
from migverify.store.open import open_store
from migverify.tables.engine import LocalTaskEngine, TaskEngine
from migverify.tables.prepare import position
from migverify.tables.tasks import PairPlan, Rules
from migverify.tables.verify import Controls, verify_tables


def _still_since(pair: PairPlan) -> Callable[[], float | None]:
    """Return what `tables verify` asks as well: since when nobody wrote to the source, by its binlog."""
    source = pair.sources[0].endpoint

    def place() -> str:
        with open_session(source, None) as session:
            return position(session)

    began, before = time.time(), place()
    return lambda: began if place() == before else None


def main() -> None:
    asked = json.loads(sys.argv[1])
    setting = Setting(endpoint("source", asked["source"]), endpoint("target", asked["target"]), asked["database"],
                      asked["table"], 1, None, None, asked["hash"])  # fmt: skip
    engine = _engine(asked["engine"], asked["slots"])
    try:
        print(json.dumps(_measure(setting, engine, asked)))
    finally:
        engine.close()


def _engine(name: str, slots: int) -> TaskEngine:
    if name == "local":
        return LocalTaskEngine({}, slots)
    from migverify.spark.engine import SparkEngine
    from migverify.spark.session import open_session

    session = open_session("local[*]", "migverify bench", {}, slots)
    return SparkEngine(session, {}, slots)


def _python_workers() -> Iterable[psutil.Process]:
    for child in psutil.Process().children(recursive=True):
        try:
            if any("daemon" in part for part in child.cmdline()):
                yield child
        except psutil.Error:
            continue  # it ended meanwhile


def _measure(setting: Setting, engine: TaskEngine, asked: dict[str, Any]) -> dict[str, Any]:
    spark = engine.name == "spark"
    pair = plan(setting, asked["source_database"])
    still = _still_since(pair)
    rules = replace(Rules(), budget_seconds=5.0 if spark else 1.0, **asked["rules"])
    if spark:  # the first tasks fork Python workers and import the package there: part of the start
        from migverify.tables.tasks import Task

        for future in [engine.submit(Task("edges", pair, rules).to_text()) for _ in range(engine.slots)]:
            future.result()
    clock = ServerClock(setting.source.port, setting.target.port)
    me = psutil.Process()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        store = open_store(f"sqlite:///{folder}/runs.db")
        with PeakMemory(_python_workers if spark else list) as workers:
            run = store.start_run("verify", "bench", {"pairs": []}, {}, kind=StoredKind.TABLES)
            used = sum(me.cpu_times()[:2])
            clock.start()
            verdict = verify_tables([pair], engine, store, run, rules, Controls(source_still_since=still))
            figures = clock.stop()
            used = sum(me.cpu_times()[:2]) - used
        result = store.table_results(run)[0]
        kinds = Counter({"missing_on_target": result.missing_on_target, "missing_on_source": result.missing_on_source,
                         "value_differs": result.value_differs})  # fmt: skip
        store.close()
    driver = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    found = asdict(figures)
    found.update(client_cpu=used, driver_mb=driver, worker_mb=workers.peak_mb,
                 extra={"chunks": result.chunks, "diffs": kinds.total()}, note=str(verdict))  # fmt: skip
    return found


if __name__ == "__main__":
    main()
