"""The sessions of one process, and the one way to end what they run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from migverify.db.session import Session, open_session
from migverify.db.snapshot import check_snapshot
from migverify.errors import CanceledError, EndpointError, ReadError, RetryableReadError
from migverify.model import Endpoint
from migverify.sql.gates import kill_sql


def kill_queries(sessions: Iterable[Session], opener: Callable[[Endpoint], Session]) -> None:
    """Ask the servers to stop what sessions run: a server may go on long after its client has left.

    A server that is gone, hangs or is full is asked once: asking it again only costs time.
    """
    by_endpoint: dict[str, list[Session]] = {}
    for session in sessions:
        by_endpoint.setdefault(session.endpoint.name, []).append(session)
    for listed in by_endpoint.values():
        try:
            with opener(listed[0].endpoint) as other:
                for session in listed:
                    _kill_query(other, session)
        except (RetryableReadError, EndpointError):
            continue


def _kill_query(other: Session, session: Session) -> None:
    try:
        other.execute(kill_sql(session.flavor, session.thread_id, query=True))
    except RetryableReadError:
        raise
    except ReadError:
        return  # that query ended by itself


class SessionPool:
    """Idle sessions of one process, by endpoint. Tasks borrow; a broken session is not given back."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = secrets
        self._idle: dict[Endpoint, list[Session]] = {}
        self._busy: set[Session] = set()
        self.canceled = threading.Event()
        self._lock = threading.Lock()

    @contextmanager
    def session(self, endpoint: Endpoint, probe: str = "") -> Iterator[Session]:
        """Borrow a session; it comes back only if the block ended without an error.

        ``probe`` is a cheap read of the table, for proving that a new session reads its snapshot.
        """
        self.refuse_canceled(endpoint)
        with self._lock:
            idle = self._idle.setdefault(endpoint, [])
            session = idle.pop() if idle else None
        if session is None:
            session = open_session(endpoint, self._secrets.get(endpoint.name))
            try:
                check_snapshot(session, probe)
            except BaseException:
                session.close()
                raise
        with self._lock:
            self._busy.add(session)
        healthy = False
        try:
            # Asked again: a session that came between the order to stop and the list of what to stop is on no list.
            self.refuse_canceled(endpoint)
            yield session
            healthy = True
        finally:
            with self._lock:
                self._busy.discard(session)
                if healthy:
                    self._idle[endpoint].append(session)
            if not healthy:
                session.close()

    def refuse_canceled(self, endpoint: Endpoint) -> None:
        """Raise CanceledError when the run was canceled."""
        if self.canceled.is_set():
            raise CanceledError(f"{endpoint.name}: the run was asked to stop")

    def kill_all(self) -> None:
        """Let no new read begin, ask the servers to stop what runs, and let go of every connection; for Ctrl-C."""
        self.canceled.set()
        with self._lock:
            busy = list(self._busy)
        for session in busy:
            session.abort()  # a server that hangs answers no KILL, and nobody here must wait for it
        kill_queries(busy, lambda endpoint: open_session(endpoint, self._secrets.get(endpoint.name)))

    def close(self) -> None:
        """Close idle sessions."""
        with self._lock:
            sessions = [s for idle in self._idle.values() for s in idle]
            self._idle.clear()
        for session in sessions:
            session.close()
