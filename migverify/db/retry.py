"""Reads that fail for a while are repeated, and wait while the server is busy or lags."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from migverify.db.server_state import replica_status
from migverify.db.session import Session
from migverify.errors import (
    EndpointError,
    LoginError,
    MigverifyError,
    PrivilegeError,
    ReadError,
    RetryableReadError,
    TimeLimitError,
)
from migverify.model import Flavor
from migverify.sql.server import RUNNING, TIDB_RUNNING

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How gently and how long an endpoint is read; see ``limits`` in docs/configuration.md.

    A read is repeated ``retries`` times, after ``retry_seconds`` and then twice as long each time.
    """

    retries: int = 3
    retry_seconds: float = 1.0
    max_threads_running: int | None = None
    max_replica_lag: float | None = None


def attempt(
    read: Callable[[], T],
    limits: ReadLimits,
    pause: Callable[[float], None] = time.sleep,
    passing: tuple[type[MigverifyError], ...] = (RetryableReadError, EndpointError),
) -> T:
    """Run a read, again and again as long as it fails in a way that may pass.

    Parameters
    ----------
    pause
        Waits between two attempts; raises CanceledError when the run was canceled.
    passing
        Failures that may pass. A missing grant, a refused login and a time limit never do.

    Raises
    ------
    ReadError
        the last failure, when the retries are used up or another attempt cannot help; RetryableReadError where the
        server may answer later.
    """
    for number in range(limits.retries + 1):
        try:
            return read()
        except (PrivilegeError, LoginError, TimeLimitError):
            raise
        except passing as error:
            last = number == limits.retries
            pause(0.0 if last else limits.retry_seconds * 2**number)
            if last:
                kind = RetryableReadError if isinstance(error, RetryableReadError) else ReadError
                message = f"gave up after {number + 1} attempts: {error.message}"
                raise kind(message, hint=error.hint) from error
    raise ReadError(f"no attempt was made (retries={limits.retries})")


class Throttle:
    """Holds reads of one endpoint back while its server is busy or lags; asks at most once a second."""

    def __init__(self, limits: ReadLimits, pause: Callable[[float], None]) -> None:
        self._limits, self._pause = limits, pause
        self._checked = 0.0

    def wait(self, session: Session) -> None:
        """Wait until the server is within the limits."""
        limit, lag = self._limits.max_threads_running, self._limits.max_replica_lag
        while (limit is not None or lag is not None) and time.monotonic() - self._checked > 1.0:
            busy = limit is not None and running_statements(session) > limit
            if not busy and (lag is None or _lag_seconds(session) <= lag):
                self._checked = time.monotonic()
                return
            self._pause(1.0)


def running_statements(session: Session) -> int:
    """Return how many statements run on the server; on TiDB those of its busiest server.

    Raises
    ------
    PrivilegeError
        the user sees its own sessions only, so nobody knows how busy TiDB is.
    """
    tidb = session.flavor is Flavor.TIDB
    if tidb and not session.sees_all_sessions:
        name, user = session.endpoint.name, session.endpoint.user
        raise PrivilegeError(
            f"{name}: limits.max_threads_running cannot be kept: {user} lacks PROCESS, and sees its own sessions only",
            hint=f"GRANT PROCESS ON *.* to {user}, or remove the limit.",
        )
    return int(session.query(TIDB_RUNNING if tidb else RUNNING)[0][1] or 0)


def _lag_seconds(session: Session) -> float:
    """Seconds a replica is behind its source; 0 on a server that is none, infinite when it does not replicate."""
    if session.flavor is Flavor.TIDB:
        return 0.0  # never a replica
    _, channels = replica_status(session)
    return max((inf if c.seconds_behind is None else c.seconds_behind for c in channels), default=0.0)
