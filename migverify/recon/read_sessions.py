"""Sessions that read one snapshot each endpoint, and the threads that borrow them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TypeVar

from migverify.db.pool import kill_queries
from migverify.db.session import Session
from migverify.errors import CanceledError
from migverify.model import Endpoint

T = TypeVar("T")


class ReadSessions:
    """Sessions by endpoint, each pinned to the snapshot of its endpoint; threads borrow them for one read."""

    def __init__(
        self,
        sessions: Mapping[str, Sequence[Session]],
        canceled: threading.Event,
        opener: Callable[[Endpoint], Session],
    ) -> None:
        self._sessions = {name: tuple(listed) for name, listed in sessions.items()}
        self._idle: dict[str, SimpleQueue[Session]] = {}
        for name, listed in sessions.items():
            self._idle[name] = SimpleQueue()
            for session in listed:
                self._idle[name].put(session)
        self._canceled = canceled
        self.stopped = threading.Event()
        self._opener = opener
        self.slots = max(map(len, self._sessions.values()), default=1)

    @contextmanager
    def borrow(self, endpoint: str) -> Iterator[Session]:
        """Lend an idle session of an endpoint; it comes back when its read ended well."""
        session = None
        while session is None:
            self.refuse_canceled()
            try:
                session = self._idle[endpoint].get(timeout=0.1)
            except Empty:
                continue
        yield session
        self._idle[endpoint].put(session)

    def refuse_canceled(self) -> None:
        """Raise CanceledError when the run was canceled, or another read has failed."""
        if self._canceled.is_set():
            raise CanceledError("the run was canceled")
        if self.stopped.is_set():
            raise CanceledError("another read has failed")

    def abort(self) -> None:
        """Cut every connection: a thread that waits for an answer gets an error at once."""
        self.stopped.set()
        for listed in self._sessions.values():
            for session in listed:
                session.abort()

    def run(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """Run jobs on threads, as many at a time as there are sessions; return their answers in their order.

        Raises MigverifyError: the first that a job raised; the others are stopped, on the servers too.
        """
        errors: list[BaseException] = []

        def work(job: Callable[[], T]) -> T:
            try:
                self.refuse_canceled()
                return job()
            except BaseException as error:
                # The first is the reason; those that follow are of connections that were cut because of it.
                errors.append(error)
                self.abort()
                raise

        everything = [session for listed in self._sessions.values() for session in listed]
        with ThreadPoolExecutor(max(1, min(len(everything), len(jobs))), thread_name_prefix="recon") as threads:
            futures = [threads.submit(work, job) for job in jobs]
            try:
                for future in futures:
                    future.exception()
            except BaseException:  # Ctrl-C: the threads wait for servers, and the pool for the threads
                self.abort()
                kill_queries(everything, self._opener)
                raise
        if errors:
            kill_queries(everything, self._opener)
            if self._canceled.is_set():
                raise CanceledError("the run was canceled")
            raise errors[0]
        return [future.result() for future in futures]
