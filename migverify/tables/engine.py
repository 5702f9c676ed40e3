"""What runs tasks: one task in, one answer out, both JSON text.

An engine calls ``run_task`` or ``perform`` for each task: on a thread of this process (``LocalTaskEngine``), or in a
Python worker of a Spark executor (``migverify.spark.engine``). Both run the same functions on the same text, so they
give the same bytes. Imports nothing but the standard library, PyMySQL and packages of migverify without further
dependencies, because an executor has nothing else. Sessions are kept between the tasks of one process.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Protocol

from migverify.db.pool import SessionPool
from migverify.db.reader import Reader
from migverify.errors import ReadError
from migverify.model import KeyRange, KeyText
from migverify.tables.confirm import confirm, count_again
from migverify.tables.diff import PairReader
from migverify.tables.span import run_span
from migverify.tables.tasks import Secrets, Task, TaskOutcome, by_key, task_from_text
from migverify.tables.whole import bucket_rows

_pools: dict[tuple[tuple[str, str], ...], SessionPool] = {}
_lock = threading.Lock()


class TaskEngine(Protocol):
    """Runs tasks. At most ``slots`` at a time are worth submitting; more wait inside the engine."""

    name: str
    slots: int

    def submit(self, task: str) -> Future[str]:
        """Run one task; the future gives its JSON answer or raises a ``MigverifyError``."""
        ...

    def cancel(self) -> None:
        """Stop what runs as soon as the servers allow; futures end with an error. Returns at once."""
        ...

    def close(self) -> None:
        """Release threads, connections and sessions; waits for what runs."""
        ...


class LocalTaskEngine:
    """Runs tasks on ``slots`` threads of this process; each task holds at most one connection per endpoint."""

    name = "local"

    def __init__(self, secrets: Secrets, slots: int) -> None:
        self.slots = slots
        self._pool = SessionPool(secrets)
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="task")

    def submit(self, task: str) -> Future[str]:
        """Run one task on a thread."""
        return self._threads.submit(lambda: perform(task_from_text(task), self._pool).to_text())

    def cancel(self) -> None:
        """Drop what waits and kill the queries that run."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._pool.kill_all()

    def close(self) -> None:
        """Wait for what runs and close the sessions."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._pool.close()


def run_task(text: str, secrets: Secrets) -> str:
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
    with _lock:
        pool = _pools.setdefault(tuple(sorted(secrets.items())), SessionPool(secrets))
    return perform(task_from_text(text), pool).to_text()


def perform(task: Task, pool: SessionPool) -> TaskOutcome:
    """Run one task on sessions of ``pool``.

    Raises
    ------
    ReplacedError
        a read was of another table than the one before it; nothing of the task counts.
    """
    pair = task.pair
    if task.kind in ("count", "any", "sums"):
        if not pair.readable:
            raise ReadError(f"{pair.id}: the table is on one side only, there is nothing to read")
        side = Reader(pair.sides[task.side], pool, task.rules)
        started = time.monotonic()
        try:
            outcome = _with_one(side, task)
            stamps = tuple(side.stamp if n == task.side else "" for n in range(len(pair.sides)))
            return replace(outcome, stamps=stamps, seconds=time.monotonic() - started)
        finally:
            side.close()
    reader = PairReader.open(by_key(pair) if task.kind == "confirm" else pair, pool, task.rules)
    try:
        outcome = _with_both(reader, task)
        if task.kind == "span" and task.rules.governed:
            asked = [side.later(side.running) for side in (reader.sources[0], reader.target)]
            outcome = replace(outcome, running=tuple(future.result() for future in asked))
        return replace(outcome, stamps=tuple(side.stamp for side in reader.readers))
    finally:
        reader.close()


def _with_one(side: Reader, task: Task) -> TaskOutcome:
    if task.kind == "count":
        return TaskOutcome("count", task.pair.id, count=side.count())
    if task.kind == "any":
        return TaskOutcome("any", task.pair.id, count=int(side.has_rows()))
    return TaskOutcome("sums", task.pair.id, sums=tuple(side.bucket_sums(task.buckets)))


def _with_both(reader: PairReader, task: Task) -> TaskOutcome:
    if task.kind == "span":
        return run_span(reader, task)
    if task.kind == "edges":
        return TaskOutcome("edges", task.pair.id, keys=edges(reader))
    if task.kind == "marks":
        return TaskOutcome("marks", task.pair.id, marks=marks(reader, task))
    if task.kind == "bucket_rows":
        return bucket_rows(reader, task)
    if task.kind == "confirm":
        return TaskOutcome("confirm", task.pair.id, diffs=tuple(confirm(reader, task.diffs)))
    if task.kind == "counts":
        counts, state = count_again(reader, task.counts)
        return TaskOutcome("counts", task.pair.id, counts=counts, state=state)
    raise ReadError(f"no task is called {task.kind!r}")


def edges(reader: PairReader) -> tuple[str, ...]:
    """Return the first and last value of the first range-key column of every side that has rows."""
    asked = [side.later(partial(side.edge, last=last)) for side in reader.readers for last in (False, True)]
    return tuple(value for f in asked if (value := f.result()) is not None)


def marks(reader: PairReader, task: Task) -> tuple[KeyText, ...]:
    """Return keys that cut the table into parts of about ``task.rows`` rows, by a walk over the walker's index."""
    pieces = islice(reader.walker.cut(KeyRange(), task.rows), max(0, task.parts - 1))
    return tuple(piece.upper for piece in pieces if piece.upper is not None)
