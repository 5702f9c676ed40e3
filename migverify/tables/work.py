"""The worker's door: one task in, one answer out, both JSON text.

Imports nothing but the standard library, PyMySQL and migverify's own rooms without dependencies, because an executor
has nothing else. Sessions are kept between tasks of one process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import islice

from migverify.db.pool import SessionPool
from migverify.db.reader import Reader
from migverify.errors import ReadError
from migverify.model import KeyRange, KeyText
from migverify.tables.confirm import confirm
from migverify.tables.diff import PairReader
from migverify.tables.span import run_span
from migverify.tables.tasks import Outcome, Task, task_from_text
from migverify.tables.whole import bucket_rows

_pools: dict[tuple[tuple[str, str], ...], SessionPool] = {}
_lock = threading.Lock()


def pool_for(secrets: Mapping[str, str]) -> SessionPool:
    """Return this process's session pool for these secrets."""
    with _lock:
        return _pools.setdefault(tuple(sorted(secrets.items())), SessionPool(secrets))


def run_task(text: str, secrets: Mapping[str, str]) -> str:
    """Run one task and return its answer.

    Parameters
    ----------
    text
        JSON text of a ``Task``; holds no secret.
    secrets
        Endpoint name -> password.

    Raises
    ------
    MigverifyError
        the task could not be done; nothing of it counts.
    """
    task = task_from_text(text)
    return perform(task, pool_for(secrets)).to_text()


def perform(task: Task, pool: SessionPool) -> Outcome:
    """Run one task on sessions of ``pool``.

    Raises
    ------
    ReplacedError
        a read was of another table than the one before it; nothing of the task counts.
    """
    pair = task.pair
    if task.kind in ("count", "sums"):
        if not pair.readable:
            raise ReadError(f"{pair.id}: the table is on one side only, there is nothing to read")
        side = Reader(pair.sides[task.side], pool, task.rules)
        started = time.monotonic()
        try:
            outcome = (
                Outcome("count", pair.id, count=side.count())
                if task.kind == "count"
                else Outcome("sums", pair.id, sums=tuple(side.bucket_sums(task.buckets)))
            )
            stamps = tuple(side.stamp if n == task.side else "" for n in range(len(pair.sides)))
            return replace(outcome, stamps=stamps, seconds=time.monotonic() - started)
        finally:
            side.close()
    reader = PairReader.open(pair, pool, task.rules)
    try:
        outcome = _with_both(reader, task)
        return replace(outcome, stamps=tuple(side.stamp for side in reader.readers))
    finally:
        reader.close()


def _with_both(reader: PairReader, task: Task) -> Outcome:
    if task.kind == "span":
        return run_span(reader, task)
    if task.kind == "edges":
        return Outcome("edges", task.pair.id, keys=edges(reader))
    if task.kind == "marks":
        return Outcome("marks", task.pair.id, marks=marks(reader, task))
    if task.kind == "bucket_rows":
        return bucket_rows(reader, task)
    if task.kind == "confirm":
        return Outcome("confirm", task.pair.id, diffs=tuple(confirm(reader, task.diffs)))
    raise ReadError(f"no task is called {task.kind!r}")


def edges(reader: PairReader) -> tuple[str, ...]:
    """Return the first and last value of the first range-key column of every side that has rows."""
    asked = [side.later(partial(side.edge, last=last)) for side in reader.readers for last in (False, True)]
    return tuple(value for f in asked if (value := f.result()) is not None)


def marks(reader: PairReader, task: Task) -> tuple[KeyText, ...]:
    """Return keys that cut the table into parts of about ``task.rows`` rows, by a walk over the walker's index."""
    pieces = islice(reader.walker.cut(KeyRange(), task.rows), max(0, task.parts - 1))
    return tuple(piece.upper for piece in pieces if piece.upper is not None)
