"""Memory of the driver at sizes no machine here holds: 10,000 tables, and one table of 10^10 rows.

An engine without servers answers the tasks: counts, edges and chunks that are all equal. Everything else (pairing,
planning, the driver, the SQLite store) is the real one. Each size runs in a process of its own, which prints its peak
memory; the driver holds no list of chunks when that does not grow with their number.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future

from migverify.config import TableOverride
from migverify.model import (
    ChunkChecksum,
    ChunkResult,
    ChunkState,
    ColumnDef,
    Endpoint,
    IndexDef,
    KeyRange,
    StoredKind,
    TableDef,
    TableRef,
)
from migverify.store.open import open_store
from migverify.tables.pairs import find_pairs
from migverify.tables.plan import plan_pair
from migverify.tables.tasks import PairPlan, Rules, Task, TaskOutcome, task_from_text
from migverify.tables.verify import Controls, verify_tables

ENDPOINTS = {name: Endpoint(name, "nowhere", 1, "nobody") for name in ("source", "target")}
CHUNKS_A_TASK = 32


class EqualEngine:
    """Answers every task as if both sides were equal and held one row per integer key from 1 to ``rows``."""

    name = "fake"
    slots = 4

    def __init__(self, rows: int, chunk_rows: int) -> None:
        self._rows, self._chunk = rows, chunk_rows
        self.tasks = self.chunks = 0

    def submit(self, task: str) -> Future[str]:
        """Answer at once."""
        future: Future[str] = Future()
        future.set_result(self._answer(task_from_text(task)).to_text())
        self.tasks += 1
        return future

    def cancel(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing is open."""

    def _answer(self, task: Task) -> TaskOutcome:
        if task.kind == "count":
            return TaskOutcome("count", task.pair.id, count=self._rows)
        if task.kind == "edges":
            return TaskOutcome("edges", task.pair.id, keys=("1", str(self._rows)))
        lower = int(task.range.lower[0] or 0) if task.range.lower else 0
        end = int(task.range.upper[0] or 0) if task.range.upper else self._rows
        chunks = []
        while lower < end and len(chunks) < CHUNKS_A_TASK:
            upper = min(lower + self._chunk, end)
            sums = ChunkChecksum(upper - lower, upper - lower, (upper - lower) << 59)
            # The last chunk of a span has the span's own bound, open or not.
            bound = (str(upper),) if upper < end or task.range.upper else None
            key_range = KeyRange(task.range.lower if lower == 0 or not chunks else (str(lower),), bound)
            chunks.append(ChunkResult(task.pair.id, task.span, task.number + len(chunks), key_range, ChunkState.EQUAL,
                                      sums, sums, time.time(), 0.1, 0.1, 0.1))  # fmt: skip
            lower = upper
        self.chunks += len(chunks)
        rest = KeyRange((str(lower),), task.range.upper) if lower < end else None
        return TaskOutcome("span", task.pair.id, task.span, tuple(chunks), rest=rest, rows=self._chunk)


def table(side: str, number: int, rows: int, columns: int) -> TableDef:
    """Return the definition of a table as a catalog would give it."""
    kinds = (("bigint", "bigint", {}), ("varchar", "varchar(100)", {"charset": "utf8mb4", "char_length": 100}),
             ("decimal", "decimal(15,2)", {"precision": 15, "scale": 2}),
             ("datetime", "datetime(6)", {"fsp": 6}))  # fmt: skip
    found = [ColumnDef("id", 1, "bigint", "bigint", nullable=False)]
    for n in range(1, columns):
        data_type, column_type, more = kinds[n % len(kinds)]
        found.append(ColumnDef(f"c{n}", n + 1, data_type, column_type, nullable=True, **more))  # type: ignore[arg-type]
    index = IndexDef("PRIMARY", unique=True, columns=("id",), prefixes=(None,))
    return TableDef(TableRef(side, f"db{number // 1000}", f"t{number}"), tuple(found), (index,), rows, rows * 100)


def run(tables: int, rows: int, columns: int, chunk_rows: int) -> None:
    """Pair, plan and verify; print what it took."""
    started = time.perf_counter()
    engine = EqualEngine(rows, chunk_rows)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        store = open_store(f"sqlite:///{folder}/runs.db")
        sources = {"source": [table("source", n, rows, columns) for n in range(tables)]}
        found = list(find_pairs(sources, (table("target", n, rows, columns) for n in range(tables)),
                                included=lambda _database, _table: True,
                                route=lambda _shard, d, t: (d, t)))  # fmt: skip
        paired = _peak_mb()

        def pairs() -> Iterator[PairPlan]:
            for pair in found:
                yield plan_pair(pair.sources, pair.target, ENDPOINTS, TableOverride(), "SHA2")

        run_id = store.start_run("verify", "bench", {"pairs": []}, {}, kind=StoredKind.TABLES)
        verdict = verify_tables(pairs(), engine, store, run_id, Rules(), Controls())
        store.close()
    seconds = time.perf_counter() - started
    print(f"{tables:>8,} tables  {rows:>16,} rows each  {engine.chunks:>9,} chunks  {engine.tasks:>8,} tasks  "
          f"paired {paired:4.0f} MB  peak {_peak_mb():4.0f} MB  {seconds:6.1f} s  {verdict}", flush=True)  # fmt: skip


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


SIZES = (
    (1, 1_000_000, 20, 131_072),
    (1, 10**9, 20, 131_072),
    (1, 10**10, 20, 131_072),
    (100, 50_000, 20, 131_072),
    (1_000, 50_000, 20, 131_072),
    (10_000, 50_000, 20, 131_072),
)


def main() -> None:
    """Run every size in a process of its own."""
    for size in SIZES:
        subprocess.run([sys.executable, "-m", "bench.scale", *map(str, size)], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("size", nargs="*", type=int, help="tables rows columns chunk_rows; none: every size")
    wanted = parser.parse_args().size
    if wanted:
        run(*wanted)
    else:
        main()
