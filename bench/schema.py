"""Definitions of 1,000 tables in 10 databases: seconds to read them, to compare them, and to see that none changed."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from bench.contenders import url
from bench.setting import Setting, add_arguments, execute, open_setting
from migverify.config import load_config
from migverify.db.session import open_session
from migverify.guards.schema_diff import compare_snapshot
from migverify.guards.schema_guard import SchemaGuard
from migverify.guards.schema_read import read_side, read_snapshot
from migverify.guards.scope import Scope
from migverify.model import Endpoint

DATABASES, TABLES = 10, 100
BODY = (
    "(id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, a INT DEFAULT 5, b VARCHAR(20) NOT NULL DEFAULT 'x',"
    " c DECIMAL(10,2), d DATETIME DEFAULT CURRENT_TIMESTAMP, e ENUM('p','q'), f TEXT, h INT UNSIGNED, s VARCHAR(9),"
    " u JSON, UNIQUE KEY ub (b), KEY ka (a), KEY kc (c, a)) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"
)
T = TypeVar("T")


def make(endpoint: Endpoint) -> None:
    """Make the tables on one side."""
    for number in range(DATABASES):
        database = f"h_bench_schema{number}"
        tables = (f"CREATE TABLE IF NOT EXISTS {database}.t{table} {BODY}" for table in range(TABLES))
        execute(endpoint, f"CREATE DATABASE IF NOT EXISTS {database}", *tables)


def drop(endpoint: Endpoint) -> None:
    """Drop them again."""
    execute(endpoint, *(f"DROP DATABASE IF EXISTS h_bench_schema{number}" for number in range(DATABASES)))


def main(setting: Setting) -> None:
    """Print the seconds of each step, the best of the rounds."""
    sides = (setting.source, setting.target)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(make, sides))
    try:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            path = Path(folder, "migverify.yaml")
            path.write_text(f"source: {{url: '{url(setting.source)}'}}\ntarget: {{url: '{url(setting.target)}'}}\n"
                            "tables: {include: ['/h_bench_schema[0-9]/.*']}\n")  # fmt: skip
            _measure(Scope(load_config(path), {}), setting.rounds)
    finally:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(drop, sides))


def _measure(scope: Scope, rounds: int) -> None:
    for endpoint in (*scope.config.sources, scope.config.target):
        with open_session(endpoint, None) as session:
            seconds, side = _best(lambda s=session: read_side(s, _ours, lambda d, t: (d, t)), rounds)  # type: ignore[misc]
        print(f"read {endpoint.name:<8} {seconds:6.2f} s  {len(side.tables)} tables")
    seconds, snapshot = _best(lambda: read_snapshot(scope), rounds)
    print(f"read both     {seconds:6.2f} s")
    seconds, found = _best(lambda: compare_snapshot(scope, snapshot), rounds)
    print(f"compare       {seconds:6.2f} s  {sum(one.equal for one in found)} of {len(found)} equal")
    guard = SchemaGuard(scope)
    for _ in range(3):  # the first reads, the second reads again after the counters stood still
        guard.ask()
    before = guard.readings
    seconds, _ = _best(guard.ask, rounds)
    print(f"ask again     {seconds:6.2f} s  {guard.readings - before} full readings (0 where nobody sends DDL)")


def _ours(database: str, table: str) -> bool:
    del table
    return database.startswith("h_bench_schema")


def _best(work: Callable[[], T], rounds: int) -> tuple[float, T]:
    best = float("inf")
    for _ in range(max(1, rounds)):
        began = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - began)
    return best, result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    main(open_setting(parser.parse_args()))
