"""How far the target has applied the source's changes, asked now and then over one session to each side."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from migverify.db.retry import ReadLimits, Throttle
from migverify.db.session import Session
from migverify.errors import MigverifyError
from migverify.watch.applied import Applied

_MOST_MARKS = 1_000


class _BusyError(Exception):
    """The server is over its limits."""


def _refuse(seconds: float) -> None:
    del seconds
    raise _BusyError


@dataclass(slots=True)
class SettleClock(Applied):
    """Nothing but time: what the source had ``seconds`` ago should be on the target. It asks no server."""

    seconds: float
    proof: bool = False
    clock: Callable[[], float] = time.time

    def sample(self, source: Session | None) -> int:
        """Return the time now, in microseconds."""
        del source
        return int(self.clock() * 1_000_000)

    def reached(self, target: Session | None) -> tuple[int | None, str]:
        """Return the time ``seconds`` ago."""
        del target
        return int((self.clock() - self.seconds) * 1_000_000), ""


@dataclass(slots=True)
class TargetProgress:
    """Asks what the target has applied; a server that does not answer makes it unknown, with the reason.

    Parameters
    ----------
    source, target
        Open a session.
    limits
        ``max_threads_running`` counts.

    Attributes
    ----------
    number
        The newest number that the target has passed; None while it is not known, then ``why`` says why.
    """

    applied: Applied
    source: Callable[[], Session]
    target: Callable[[], Session]
    limits: ReadLimits = field(default_factory=ReadLimits)
    clock: Callable[[], float] = time.time
    number: int | None = None
    why: str = ""
    _sessions: dict[bool, Session] = field(default_factory=dict)
    _marks: deque[tuple[int, float]] = field(default_factory=deque)
    _caught_up: float | None = None
    _throttle: Throttle = field(init=False)

    def __post_init__(self) -> None:
        """Make what asks how busy the target is, at most once a second."""
        self._throttle = Throttle(self.limits, _refuse)

    def is_busy(self) -> bool:
        """Tell whether more statements run on the target than ``limits`` allow, or it does not say."""
        if self.limits.max_threads_running is None:
            return False
        try:
            self._throttle.wait(self._session(is_source=False))
        except _BusyError:
            return True
        except MigverifyError as error:
            self._failed(error, is_source=False)
            return True
        return False

    def mark(self) -> int | None:
        """Return a number that is newer than all that is committed on the source by now; None where none is known."""
        now = self.clock()
        try:
            found = self.applied.sample(self._session(is_source=True))
        except MigverifyError as error:
            self._failed(error, is_source=True)
            return None
        if len(self._marks) < _MOST_MARKS:
            self._marks.append((found, now))
        return found

    def ask(self) -> None:
        """Ask the target."""
        try:
            self.number, self.why = self.applied.reached(self._session(is_source=False))
        except MigverifyError as error:
            self._failed(error, is_source=False)
            self.number = None
            return
        if self.number is not None:
            self.why = ""
        while self._marks and self.number is not None and self._marks[0][0] <= self.number:
            self._caught_up = self._marks.popleft()[1]

    def lag(self) -> float | None:
        """Return by how many seconds the target is behind at most, None while that is not known or only assumed."""
        if not self.applied.proof or self._caught_up is None:
            return None
        return max(0.0, self._marks[0][1] - self._caught_up) if self._marks else 0.0

    def _session(self, *, is_source: bool) -> Session:
        if is_source not in self._sessions:
            self._sessions[is_source] = (self.source if is_source else self.target)()
        return self._sessions[is_source]

    def _failed(self, error: MigverifyError, *, is_source: bool) -> None:
        self.why = error.message
        session = self._sessions.pop(is_source, None)
        if session is not None:
            session.close()

    def close(self) -> None:
        """Close the sessions."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()
