"""Threads and anchored sessions: the reading half of the local engine."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from migverify.db.pool import kill_queries
from migverify.db.session import Session
from migverify.db.snapshot import Anchor, Anchored, anchored
from migverify.errors import CanceledError, ReadError
from migverify.model import Endpoint

Anchor_ = Callable[[Endpoint, Mapping[str, str], int, str], Any]


@dataclass(frozen=True, slots=True)
class Job:
    """One read on an endpoint."""

    endpoint: str
    run: Callable[[Session], Any]


@dataclass(frozen=True, slots=True)
class SessionNeed:
    """How many sessions of an endpoint are useful, and a cheap read of a table there (empty: none is known)."""

    endpoint: Endpoint
    sessions: int
    probe: str = ""


@dataclass(slots=True)
class ReadPool:
    """Sessions of several endpoints, each at its one moment, and the threads that use them."""

    parties: dict[str, Anchored]
    canceled: threading.Event
    opener: Callable[[Endpoint], Session]
    failed: threading.Event = field(default_factory=threading.Event)

    @property
    def anchors(self) -> tuple[Anchor, ...]:
        """The moments that are read."""
        return tuple(party.anchor for party in self.parties.values())

    def abort(self) -> None:
        """Cut every connection: whoever waits for an answer gets an error at once."""
        for party in self.parties.values():
            for session in party.sessions:
                session.abort()

    def kill(self) -> None:
        """Ask the servers to stop what still runs there: a server may go on long after its client has left."""
        sessions = [session for party in self.parties.values() for session in party.sessions]
        kill_queries(sessions, self.opener)

    def refuse_canceled(self) -> None:
        """Raise CanceledError when the run was told to stop, or another read has failed."""
        if self.canceled.is_set():
            raise CanceledError("the run was told to stop")
        if self.failed.is_set():
            raise CanceledError("another read has failed")

    def run(self, jobs: Sequence[Job]) -> list[Any]:
        """Run jobs on the sessions of their endpoints, at once as far as there are sessions; answers in their order.

        Raises
        ------
        MigverifyError
            the first that a job raised; the others are stopped.
        """
        answers: list[Any] = [None] * len(jobs)
        waiting: dict[str, deque[int]] = {name: deque() for name in self.parties}
        for number, job in enumerate(jobs):
            waiting[job.endpoint].append(number)
        errors: list[BaseException] = []

        def work(name: str, session: Session) -> None:
            try:
                while True:
                    self.refuse_canceled()
                    try:
                        number = waiting[name].popleft()
                    except IndexError:
                        return
                    answers[number] = jobs[number].run(session)
            except BaseException as error:
                # The first is the reason; those that follow are of connections that were cut because of it.
                errors.append(error)
                self.failed.set()
                self.abort()
                raise

        busy = [
            (name, session) for name, party in self.parties.items()
            for session in party.sessions[: len(waiting[name])]
        ]  # fmt: skip
        if not busy:
            return answers
        with ThreadPoolExecutor(len(busy), thread_name_prefix="recon") as threads:
            try:
                for future in [threads.submit(work, *one) for one in busy]:
                    future.exception()
            except BaseException:  # Ctrl-C: the threads wait for servers, and the pool for the threads
                self.failed.set()
                self.abort()
                self.kill()
                raise
        if errors:
            self.kill()
        if self.canceled.is_set():
            raise CanceledError("the run was told to stop")
        if errors:
            raise errors[0]
        if any(waiting.values()):
            raise ReadError("reads were left over")  # an endpoint without sessions
        return answers


@contextmanager
def crew(
    wanted: Sequence[SessionNeed],
    secrets: Mapping[str, str],
    canceled: threading.Event,
    opener: Callable[[Endpoint], Session],
    anchor: Anchor_ = anchored,
) -> Iterator[ReadPool]:
    """Open the sessions of all endpoints, each at one moment of its own; they are closed at the end.

    Raises
    ------
    EndpointError
        a server cannot be reached or refuses the session.
    """
    with ExitStack() as stack:
        parties = {}
        for one in wanted:
            if canceled.is_set():
                raise CanceledError("the run was told to stop")
            parties[one.endpoint.name] = stack.enter_context(anchor(one.endpoint, secrets, one.sessions, one.probe))
        yield ReadPool(parties, canceled, opener)
