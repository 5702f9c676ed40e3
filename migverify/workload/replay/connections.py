"""The connections of a process's sessions: opened by a few threads, bounded, watched by the event loop.

A session holds one connection to each side. When a session waits for connections and none is free, one that needs its
own for the longest time is asked to give them up, if its state can be restored later.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from migverify.model import Endpoint, Side
from migverify.sql.gates import read_limit_sql
from migverify.workload.replay.model import Call, TimedAnswer
from migverify.workload.replay.order import WINDOW
from migverify.workload.replay.pace import Pace
from migverify.workload.replay.wire import Limits, ServerWire, kill_query, open_wire

LOG = logging.getLogger(__name__)

_OPENERS = 4
_ORPHAN_SECONDS = 5.0
"""Seconds beyond the limit of a statement after which the server ends it by itself: the client's KILL comes first."""
_RECLAIM = 0.005  # seconds between looks for connections that are not needed

Opener: TypeAlias = Callable[[Side], ServerWire]
"""Connects to a side: ``open_wire`` with its endpoint and password, or a fake. Raises EndpointError."""


class Holder(Protocol):
    """A session, as the pool sees it; ``spare`` ranks how well it can do without its connections, None: not at all."""

    def spare(self, sequence: int) -> tuple[bool, int] | None: ...  # noqa: D102
    def disconnect(self) -> None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How a process replays. Times are seconds.

    With ``text`` prepared statements are asked as texts too. ``rereads`` is how often a read that differs is asked
    again, ``noise`` the share of all reads that are asked twice on both sides. With ``mask`` neither statements nor
    values are kept.

    ``connections`` is how many sessions are connected at once (one connection a side each). ``wait_limit`` bounds how
    long a call waits for another session, ``max_lag`` how late calls may begin before the run stops, ``grace`` how long
    calls under way may take after a stop. Without ``writes`` sessions are made read-only where the server can. With
    ``apart`` calls of other workers cannot be waited for: one that should is racy instead. With ``record`` what calls
    saw is kept for histories of transactions; ``history_key`` hides numbers in them (``ValueCodes``), and is not kept.
    """

    pace: Pace = field(default_factory=Pace)
    text: bool = False
    rereads: int = 3
    noise: float = 0.0
    mask: bool = False
    limits: Limits = field(default_factory=lambda: Limits(seconds=30.0))
    connections: int = 8
    window: int = WINDOW
    wait_limit: float = 10.0
    max_lag: float | None = None
    grace: float = 10.0
    writes: bool = False
    apart: bool = False
    found_rows: bool = True
    record: bool = False
    history_key: bytes = field(default=b"", repr=False)


class Answers:
    """The answers that a session waits for: one future for all sides, so that the last one alone wakes the session."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.by_side: dict[Side, TimedAnswer] = {}
        self._all = loop.create_future()
        self._left = 0

    def expect(self) -> None:
        """Count a statement that is sent."""
        self._left += 1

    def take(self, side: Side, asked: TimedAnswer) -> None:
        """Take in one side's answer."""
        self.by_side[side] = asked
        self._left -= 1
        if not self._left and not self._all.done():
            self._all.set_result(None)

    async def wait(self) -> dict[Side, TimedAnswer]:
        """Wait until every side that was asked has answered."""
        if self._left:
            if self._all.done():  # what a wire itself refuses is answered before the other side is asked
                self._all = asyncio.get_running_loop().create_future()
            await self._all
        return self.by_side


class SideConnection:
    """A session's connection to one side: one statement at a time, answered by an event of its socket."""

    def __init__(self, wire: ServerWire, loop: asyncio.AbstractEventLoop) -> None:
        self.wire = wire
        self._loop = loop
        self._fileno = wire.fileno()
        self._answers: Answers | None = None  # who waits for what is under way
        self._intended = self._begun = 0
        self._writing = False
        loop.add_reader(self._fileno, self.look)

    @property
    def closed(self) -> str:
        """Why the connection cannot be used any more; empty while it can."""
        return self.wire.closed

    def send(self, call: Call, intended: int, answers: Answers, *, prepared: bool = False) -> int:
        """Send a statement; return when, in monotonic nanoseconds. What comes back is given to ``answers``."""
        self._intended, self._begun = intended, time.monotonic_ns()
        self._answers = answers
        answers.expect()
        self.wire.send(call, prepared=prepared)
        self._watch()
        if prepared or call.parameters or self.wire.closed:
            self.look()  # what the wire itself refuses makes no event
        return self._begun

    def look(self) -> None:
        """Take in what the socket holds, and see whether the time limit is over."""
        if self._answers is None:
            self.close()  # the server ended a connection on which nothing was asked: the next call opens another
            return
        answer = self.wire.receive()
        if self.wire.closed:
            self._unwatch()
        else:
            self._watch()  # values of a prepared statement go out once it is prepared
        if answer is not None:
            answers, self._answers = self._answers, None
            answers.take(self.wire.side, TimedAnswer(answer, self._intended, self._begun, time.monotonic_ns()))

    @property
    def overdue(self) -> bool:
        """Whether the statement under way is over its time limit."""
        return self._answers is not None and self.wire.deadline is not None and time.monotonic() >= self.wire.deadline

    def _watch(self) -> None:
        if self._writing == self.wire.writing or self.wire.closed:
            return
        self._writing = self.wire.writing
        if self._writing:
            self._loop.add_writer(self._fileno, self.look)
        else:
            self._loop.remove_writer(self._fileno)

    def _unwatch(self) -> None:
        self._loop.remove_reader(self._fileno)
        self._loop.remove_writer(self._fileno)

    def close(self) -> None:
        """Close; an open transaction is rolled back by the server."""
        self._unwatch()
        self.wire.close()


class ConnectionPool:
    """Opens connections for at most so many sessions at a time, the earliest call first."""

    def __init__(self, openers: Mapping[Side, Opener], connections: int, kill: Callable[[Side, int], str]) -> None:
        self.sides = tuple(openers)
        self.waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._openers, self._kill = openers, kill
        self._free = max(1, connections)
        self._holders: set[Holder] = set()
        self._threads = ThreadPoolExecutor(_OPENERS, thread_name_prefix="replay-open")
        self._serial = 0

    async def acquire(self, holder: Holder, sequence: int) -> bool:
        """Wait until the session may connect; return whether it had to wait."""
        waits = self._free <= 0 or bool(self.waiting)
        if waits:
            loop = asyncio.get_running_loop()
            granted = loop.create_future()
            self._serial += 1
            heapq.heappush(self.waiting, (sequence, self._serial, granted))
            if len(self.waiting) == 1:
                loop.call_later(_RECLAIM, self._reclaim)
            try:
                await granted
            except asyncio.CancelledError:
                if granted.done() and not granted.cancelled():
                    self._grant()
                raise
        else:
            self._free -= 1
        self._holders.add(holder)
        return waits

    def release(self, holder: Holder) -> None:
        """Let the next session connect."""
        if holder in self._holders:
            self._holders.discard(holder)
            self._grant()

    def _grant(self) -> None:
        while self.waiting:
            granted = heapq.heappop(self.waiting)[2]
            if not granted.done():
                granted.set_result(None)
                return
        self._free += 1

    def _reclaim(self) -> None:
        if not self.waiting:
            return
        sequence = self.waiting[0][0]
        spare = [(rank, holder) for holder in self._holders if (rank := holder.spare(sequence)) is not None]
        for _, holder in sorted(spare, key=lambda one: one[0])[: len(self.waiting)]:
            holder.disconnect()
        if self.waiting:
            asyncio.get_running_loop().call_later(_RECLAIM, self._reclaim)

    async def open(self, side: Side) -> SideConnection:
        """Connect to one side.

        Raises EndpointError: nothing answers there, or the server refuses the user.
        """
        opened = self._threads.submit(self._openers[side], side)
        try:
            wire = await asyncio.wrap_future(opened)
        except asyncio.CancelledError:
            opened.add_done_callback(_discard)
            raise
        return SideConnection(wire, asyncio.get_running_loop())

    def kill(self, side: Side, connection: SideConnection) -> None:
        """Stop on the server what a connection runs whose client gives up on it."""
        self._threads.submit(self._kill, side, connection.wire.thread_id)

    def close(self) -> None:
        """Wait for what is being opened or killed."""
        self._threads.shutdown(wait=True)


def _discard(opened: Future[ServerWire]) -> None:
    if not opened.cancelled() and opened.exception() is None:
        opened.result().close()


def openers(
    endpoints: Mapping[Side, Endpoint], secrets: Mapping[str, str], options: EngineOptions
) -> dict[Side, Opener]:
    """Return what opens wires to these endpoints, the source first."""

    def opener(endpoint: Endpoint) -> Opener:
        def connect(side: Side) -> ServerWire:
            wire = open_wire(endpoint, secrets.get(endpoint.name), side, options.limits, found_rows=options.found_rows)
            if options.limits.seconds and not options.writes:
                _bound_reads(wire, options.limits.seconds + _ORPHAN_SECONDS)
            return wire

        return connect

    return {side: opener(endpoint) for side, endpoint in sorted(endpoints.items())}


def _bound_reads(wire: ServerWire, seconds: float) -> None:
    """Have the server end reads whose client was killed: nobody is left then who would stop them."""
    answer = wire.command(read_limit_sql(wire.flavor, seconds).encode())
    if answer.errno:
        LOG.warning("%s: a read whose replay was killed may run on: the server has no limit of its own (%s)",
                    wire.side.value, answer.errno)  # fmt: skip


def killer(endpoints: Mapping[Side, Endpoint], secrets: Mapping[str, str]) -> Callable[[Side, int], str]:
    """Return what stops a statement whose client gave up on it."""

    def kill(side: Side, thread: int) -> str:
        endpoint = endpoints[side]
        refused = kill_query(endpoint, secrets.get(endpoint.name), thread)
        if refused:
            LOG.warning("%s: a statement over its time limit may still run: %s", endpoint.name, refused)
        return refused

    return kill
