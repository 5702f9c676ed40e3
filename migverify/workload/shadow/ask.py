"""Asks reads on both sides over a few connections that stay open from turn to turn.

A lane is one connection to each side. A read is asked alone, in the state of its session; a lane that is in that state
already is preferred. A read whose connection was lost is asked once more over a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

from migverify.model import Side
from migverify.workload.replay.compare import judge
from migverify.workload.replay.connections import ConnectionPool, EngineOptions, Opener
from migverify.workload.replay.model import Answer, JudgedCall, Judgement, TimedAnswer
from migverify.workload.replay.outcomes import Counters
from migverify.workload.replay.reader import RowSums
from migverify.workload.replay.restore import standing
from migverify.workload.replay.runfile import PlannedCall, SessionSlice
from migverify.workload.replay.session import SessionReplayer, WaitResult
from migverify.workload.state import SessionState

_LOOK = 0.05
_AHEAD = 32
"""Calls that are looked through for one in the state of a lane."""
_NOWHERE = -2
"""A position that no call follows: each call says its whole state."""


SidesLook: TypeAlias = tuple[tuple[Hashable, ...], ...]
"""What source and target showed: for each its name, error, rows, their checksum and further results."""


@dataclass(frozen=True, slots=True)
class AskedRead:
    """One read, what was judged, and what both sides showed: equal looks mean that neither side moved."""

    planned: PlannedCall
    judged: JudgedCall
    look: SidesLook | None = None


class _LaneSchedule:
    """What a lane's ``SessionReplayer`` needs: each call is due when it comes, and waits for no other."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: ConnectionPool, options: EngineOptions) -> None:
        self.loop, self.pool, self.options = loop, pool, options
        self.counters = Counters()
        self.stopped = ""
        self.answers: dict[Side, Answer] = {}

    @property
    def outcomes(self) -> _LaneSchedule:
        return self

    def see(self, index: int, answers: Mapping[Side, TimedAnswer]) -> None:
        del index
        self.answers = {side: one.answer for side, one in answers.items()}

    def calls_left(self, first: int, last: int) -> Iterator[PlannedCall]:
        del first, last
        return iter(())

    def following(self, planned: PlannedCall, last: int) -> PlannedCall | None:
        del planned, last
        return None

    def moment(self, planned: PlannedCall) -> int:
        del planned
        return time.monotonic_ns()

    async def due(self, planned: PlannedCall) -> int:
        return self.moment(planned)

    async def after(self, planned: PlannedCall) -> WaitResult:
        del planned
        return WaitResult()

    def count_begun(self, lag: int) -> None:
        del lag

    def stalled(self, begun: int, ended: int) -> int:
        del begun, ended
        return 0  # no service level is judged here

    async def intend(self, index: int) -> None:
        del index

    def end(self, planned: PlannedCall, judged: JudgedCall) -> None:
        del planned, judged

    def stop(self, reason: str) -> None:
        self.stopped = reason


class ReadLane(SessionReplayer):
    """One connection to each side, which asks one read after the other, of any session."""

    def __init__(self, schedule: _LaneSchedule, number: int, first: PlannedCall) -> None:
        super().__init__(schedule, SessionSlice(number, f"lane {number}", 0, 0), first)
        self._schedule = schedule
        self._was_lost = False
        self.state: SessionState | None = None

    @property
    def away(self) -> str:
        """Why the last read found no connection; empty when it did."""
        return self._schedule.stopped

    async def read(self, planned: PlannedCall) -> AskedRead:
        """Ask one read; return what is known of it."""
        asked = await self._once(planned)
        if asked.judged.state is Judgement.UNJUDGED and self._was_lost and not self._schedule.stopped:
            asked = await self._once(planned)
        return asked

    async def _once(self, planned: PlannedCall) -> AskedRead:
        schedule = self._schedule
        self.planned, self._position, self._broken = planned, _NOWHERE, False
        schedule.stopped, schedule.answers = "", {}
        self.state = _standing(planned.call.state)
        self._is_broken()  # a server that ended a connection meanwhile is connected to again
        self.intended, self.begun = time.monotonic_ns(), 0
        try:
            judged = await self.ask(planned)
        except asyncio.CancelledError:
            if not schedule.stopped:
                raise
            judged = judge(
                self._observation({}, skipped=schedule.stopped), planned.meaning, mask=schedule.options.mask
            )  # fmt: skip
        self._was_lost = any(one.closed for one in self.connections.values())
        if self._was_lost or schedule.stopped:
            self.disconnect()
        return AskedRead(planned, judged, _look(schedule.answers))


@lru_cache(4_096)
def _standing(state: SessionState) -> SessionState:
    return standing(state)


def unasked(planned: PlannedCall, reason: str) -> JudgedCall:
    """Return the outcome of a read that was not asked."""
    call, meaning = planned.call, planned.meaning
    details = {"kind": meaning.classification.kind.value, "text": meaning.text, "at": str(planned.start)}
    return JudgedCall(
        call.session, call.position, meaning.digest or call.digest, Judgement.UNJUDGED, reason=reason, details=details
    )


def _look(answers: Mapping[Side, Answer]) -> SidesLook | None:
    """Return what both sides showed; None where one did not answer."""
    if len(answers) < 2 or any(one.unanswered for one in answers.values()):
        return None
    return tuple((side, one.errno, *_rows_look(one)) for side, one in sorted(answers.items()))


def _rows_look(answer: Answer) -> tuple[Hashable, ...]:
    """Return what tells apart the rows of answers, in any order; a reader sums up only rows that it does not keep."""
    sums = answer.unordered if answer.rows is None else RowSums(answer.rows).unordered
    return (answer.row_count, sums, *(part for one in answer.more for part in _rows_look(one)))


class ReadAsker:
    """The lanes of a process.

    Parameters
    ----------
    openers
        Open a connection to a side.
    options
        Its ``connections`` are the lanes at most: connections to each side.

    Attributes
    ----------
    away
        Why no connection could be opened, as of the last turn; empty when all could. The rest of its reads are unasked.
    """

    def __init__(
        self, openers: Mapping[Side, Opener], options: EngineOptions,
        kill: Callable[[Side, int], str] = lambda _side, _thread: "",
    ) -> None:  # fmt: skip
        self._options = replace(options, rereads=0, noise=0.0, record=True, writes=False)
        self._loop = asyncio.new_event_loop()
        self._pool = ConnectionPool(openers, options.connections, kill)
        self._lanes: list[ReadLane] = []
        self.away = ""

    def ask(self, calls: Sequence[PlannedCall], lanes: int) -> list[AskedRead]:
        """Ask reads over at most so many lanes; return them in the order in which they were answered."""
        return self._loop.run_until_complete(self._ask(calls, lanes)) if calls else []

    async def _ask(self, calls: Sequence[PlannedCall], lanes: int) -> list[AskedRead]:
        waiting, asked = deque(calls), list[AskedRead]()
        await asyncio.sleep(0)  # connections that a server ended since the last turn are noticed
        while len(self._lanes) < min(lanes, len(calls), self._options.connections):
            schedule = _LaneSchedule(self._loop, self._pool, self._options)
            self._lanes.append(ReadLane(schedule, len(self._lanes), calls[0]))
        watcher = asyncio.create_task(self._watch_limits())

        self.away = ""

        async def work(lane: ReadLane) -> None:
            while waiting and not self.away:
                asked.append(await lane.read(_next_for(lane, waiting)))
                self.away = self.away or lane.away

        try:
            await asyncio.gather(*(work(lane) for lane in self._lanes[:lanes]))
        finally:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
        return [*asked, *(AskedRead(one, unasked(one, self.away)) for one in waiting)]

    async def _watch_limits(self) -> None:
        """Stop on the servers what is over its time limit."""
        while True:
            await asyncio.sleep(_LOOK)
            for lane in self._lanes:
                for side, connection in list(lane.connections.items()):
                    if connection.overdue:
                        self._pool.kill(side, connection)
                        connection.look()

    def close(self) -> None:
        """Close all connections."""
        for lane in self._lanes:
            lane.disconnect()
        self._pool.close()
        self._loop.close()


def _next_for(lane: ReadLane, waiting: deque[PlannedCall]) -> PlannedCall:
    """Take the next call, one in the state of the lane if there is one among the next."""
    for place in range(min(_AHEAD, len(waiting))):
        if _standing(waiting[place].call.state) == lane.state:
            waiting.rotate(-place)
            found = waiting.popleft()
            waiting.rotate(place)
            return found
    return waiting.popleft()
