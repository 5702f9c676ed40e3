"""How long a history of a million operations takes, and how much memory: ``python -m bench.anomalies``."""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from migverify.workload.anomalies.check import check_history
from migverify.workload.anomalies.history import read_history, write_lines
from migverify.workload.anomalies.model import Commitment, HistoryOperation, HistoryTransaction, OperationKind

_CONCURRENT = 8


def transactions(operations: int, keys: int, stale: float, counters: float) -> Iterator[HistoryTransaction]:
    """Yield transactions of two reads and two writes; a share of them read one snapshot and write in another.

    A share of the items are counters: they are added to, and their values follow from that.
    """
    rng = random.Random(1)
    values: dict[int, str] = {}
    for number in range(operations // 4):
        begin = number * 10
        first, second = rng.sample(range(keys), 2)
        names = [f"shop.accounts/{key}/balance" for key in (first, second)]
        starts = ["0" if key < counters * keys else "start" for key in (first, second)]
        reads = [values.get(key, start) for key, start in zip((first, second), starts, strict=True)]
        if rng.random() < stale:
            reads[0] = starts[0]
        ops = [HistoryOperation(OperationKind.READ, name, value, begin + at, begin + at + 1, statement="SELECT 1")
               for at, (name, value) in enumerate(zip(names, reads, strict=True))]  # fmt: skip
        for at, (key, name) in enumerate(zip((first, second), names, strict=True), 2):
            adds = key < counters * keys
            values[key] = str(int(values.get(key, "0")) + 1) if adds else f"{number}"
            ops.append(HistoryOperation(
                OperationKind.WRITE, name, None if adds else values[key], begin + at, begin + at + 1, not adds,
                statement="UPDATE 1", delta=1 if adds else None,
            ))  # fmt: skip
        yield HistoryTransaction(f"s{number % _CONCURRENT}/{number}", f"s{number % _CONCURRENT}", "REPEATABLE READ",
                                 Commitment.COMMITTED, begin, begin + 6, begin + 8, tuple(ops))  # fmt: skip


def main() -> None:
    """Print CPU seconds and memory for each case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=50_000)
    parser.add_argument("--stale", type=float, default=0.0, help="share of transactions that read an old version")
    parser.add_argument("--counters", type=float, default=0.0, help="share of items that are added to")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.jsonl"
        with path.open("w") as lines:
            write_lines(lines, transactions(asked.operations, asked.keys, asked.stale, asked.counters), "mysql 9.7")
        size = path.stat().st_size
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        history = read_history(path)
    read = time.process_time()
    checked = check_history(history)
    done = time.process_time()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{asked.operations:,} operations, {asked.keys:,} keys, stale {asked.stale:g}, "
          f"counters {asked.counters:g}: {size / 1e6:,.0f} MB file; "
          f"CPU s: read {read - began:.1f}, check {done - read:.1f}; {memory / 1024:,.0f} MB more memory; "
          f"{checked.usability.dependencies:,} dependencies, {len(checked.anomalies):,} anomalies, "
          f"{checked.usability.share:.1%} of reads usable, complete {checked.complete}")  # fmt: skip


if __name__ == "__main__":
    main()
