"""The local engine: tasks on threads of this process, no JVM."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from migverify.db.pool import SessionPool
from migverify.tables.tasks import task_from_text
from migverify.tables.work import perform


class LocalEngine:
    """Runs tasks on ``slots`` threads; each task holds at most one connection per endpoint."""

    name = "local"

    def __init__(self, secrets: Mapping[str, str], slots: int) -> None:
        self.slots = slots
        self._pool = SessionPool(secrets)
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="task")

    def submit(self, task: str) -> Future[str]:
        """Run one task on a thread."""
        return self._threads.submit(self._run, task)

    def _run(self, text: str) -> str:
        return perform(task_from_text(text), self._pool).to_text()

    def cancel(self) -> None:
        """Drop what waits and kill the queries that run."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._pool.kill_all()

    def close(self) -> None:
        """Wait for what runs and close the sessions."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._pool.close()
