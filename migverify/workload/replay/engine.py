"""Replays many captured sessions in one process: when each call is due, what it waits for, when the run stops.

Each session is a ``SessionReplayer``, a task of one event loop; connections are opened by a few threads. What became of
calls is committed to the run file a few milliseconds later, writes at once. Calls of other processes are looked up in
the run file while somebody waits for them.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from migverify.model import Side
from migverify.workload.replay.connections import ConnectionPool, EngineOptions, Opener
from migverify.workload.replay.model import JudgedCall, Judgement
from migverify.workload.replay.outcomes import Counters, Outcomes, workers
from migverify.workload.replay.runfile import PlannedCall, RunFile, SessionSlice
from migverify.workload.replay.session import SessionReplayer, WaitResult
from migverify.workload.replay.tally import ExampleKeeper

NEVER = 1 << 62
"""A sequence behind all calls."""
_TICK = 0.05
_LOOK = 0.002  # seconds between looks at calls of other processes, and at a window that is full
_COMMIT = 0.05  # seconds that outcomes of reads may wait to be committed together
_BEAT = 0.05  # seconds between looks at the clock
_STALL = 100_000_000
"""Nanoseconds by which a look at the clock is late where the process, or the machine, stood still."""
_STALLS = 1_000
_BUSY = 0.0005  # seconds until the next try, while another process commits


@dataclass(frozen=True, slots=True)
class Start:
    """When the run begins: monotonic nanoseconds, and the due time and sequence of the first call that is left."""

    began: int
    due: int = 0
    sequence: int = 0


@dataclass(slots=True)
class _Waiter:
    left: set[int]
    over: asyncio.Future[None]


class Engine:
    """Replays some sessions of a run.

    Parameters
    ----------
    sessions
        The sessions to replay; calls that have an outcome are not asked again.
    openers
        By side; the source may be missing, then the capture is the oracle.
    stop
        Called often; returns a reason to stop, empty to go on.
    """

    def __init__(
        self,
        run: RunFile,
        sessions: Sequence[SessionSlice],
        openers: Mapping[Side, Opener],
        outcomes: Outcomes,
        options: EngineOptions,
        start: Start,
        *,
        stop: Callable[[], str] = lambda: "",
        kill: Callable[[Side, int], str] = lambda _side, _thread: "",
        on_judged: Callable[[JudgedCall], None] | None = None,
    ) -> None:
        self.run_file, self.outcomes, self.options, self.start = run, outcomes, options, start
        self.counters = Counters(low=NEVER)
        self.stopped = ""
        self.pool = ConnectionPool(openers, options.connections, kill)
        self._stop_reason, self._on_judged = stop, on_judged
        self._sessions = {one.number: one for one in sessions}
        self._known = run.known()
        self._keeper = ExampleKeeper()
        self._due: list[tuple[int, int, int]] = []
        self._replayers: dict[asyncio.Task[None], SessionReplayer] = {}
        self._waiting: dict[int, list[_Waiter]] = {}
        self._foreign: set[int] = set()
        self._looking = False
        self._low = start.sequence
        self._committed: asyncio.Future[None] | None = None
        self._commit_at: asyncio.TimerHandle | None = None
        self._failure: BaseException | None = None
        self._woken = asyncio.Event()
        self._stalls: deque[tuple[int, int]] = deque(maxlen=_STALLS)
        self._beat_due = 0
        self.loop: asyncio.AbstractEventLoop

    def run(self) -> Counters:
        """Replay all sessions to their end, or to a stop; the run file holds what was found."""
        try:
            asyncio.run(self._run())
        finally:
            self.pool.close()
            self.counters.finished = 1
            self.counters.lag = self.counters.flying = 0
            self.outcomes.counters = json.dumps(asdict(self.counters))
            self.outcomes.close()
        if self._failure is not None:
            raise self._failure
        return self.counters

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._queue()
        self._beat()
        ticker = asyncio.create_task(self._tick())
        ticker.add_done_callback(self._failed)
        try:
            while (self._due or self._replayers) and not self.stopped:
                await self._begin_due()
            await self._finish_under_way()
        finally:
            ticker.cancel()
            for task in self._replayers:
                task.cancel()
            await asyncio.gather(ticker, *self._replayers, return_exceptions=True)
            if self._commit_at is not None:
                self._commit_at.cancel()

    def _queue(self) -> None:
        """Note when each session's first call without an outcome is due."""
        for session in self._sessions.values():
            first = next(self._left(session.first, session.last), None)
            if first is not None:
                sql = "SELECT due, sequence FROM calls WHERE id = ?"
                due, sequence = self.run_file.db.execute(sql, (first,)).fetchone()
                self._due.append((self._moment(due, sequence), sequence, session.number))
        heapq.heapify(self._due)

    def _left(self, first: int, last: int) -> Iterator[int]:
        for (index,) in self.run_file.db.execute("SELECT id FROM calls WHERE id BETWEEN ? AND ?", (first, last)):
            if self._known[index] != 1:
                yield index

    async def _begin_due(self) -> None:
        """Begin sessions whose first call is due; sleep until the next one, or until something happens."""
        now = time.monotonic_ns()
        while self._due and self._due[0][0] <= now and not self._beyond_window(self._due[0][1]):
            session = self._sessions[heapq.heappop(self._due)[2]]
            first = next(self._left(session.first, session.last))
            replayer = SessionReplayer(self, session, self.run_file.read(first))
            task = asyncio.create_task(replayer.play())
            self._replayers[task] = replayer
            task.add_done_callback(self._ended)
        seconds = max(_LOOK, (self._due[0][0] - now) / 1e9) if self._due else None
        self._woken.clear()
        try:
            await asyncio.wait_for(self._woken.wait(), seconds)
        except TimeoutError:
            return

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._replayers.pop(task, None)
        self._failed(task)
        if not self._replayers:
            self._woken.set()

    def _failed(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
            self.stop(f"the replay failed: {error}")

    async def _finish_under_way(self) -> None:
        """Let calls under way end after a stop, for a while; everything else ends at once."""
        until = time.monotonic() + self.options.grace
        while self._replayers and self._failure is None and time.monotonic() < until:
            for task, replayer in list(self._replayers.items()):
                if not replayer.under_way:
                    task.cancel()
            await asyncio.sleep(_LOOK)

    def stop(self, reason: str) -> None:
        """Stop the run; the first reason is kept."""
        self.stopped = self.stopped or reason
        self._woken.set()

    # --- when a call's turn comes ------------------------------------------------------------------------

    def _moment(self, due: int, sequence: int) -> int:
        found = self.options.pace.due(due - self.start.due, sequence - self.start.sequence)
        return self.start.began + max(0, found)

    def moment(self, planned: PlannedCall) -> int:
        """Return the monotonic nanoseconds at which a call is due."""
        return self._moment(planned.due, planned.sequence)

    def calls_left(self, first: int, last: int) -> Iterator[PlannedCall]:
        """Yield a session's calls that have no outcome yet."""
        return (one for one in self.run_file.calls(first, last) if self._known[one.index] != 1)

    def following(self, planned: PlannedCall, last: int) -> PlannedCall | None:
        """Return the call behind one of the same session."""
        return next(self.run_file.calls(planned.index + 1, last), None)

    async def due(self, planned: PlannedCall) -> int:
        """Wait until a call is due and near enough to the earliest one that is not over; return when it was due."""
        moment = self.moment(planned)
        now = time.monotonic_ns()
        if moment > now:
            await asyncio.sleep((moment - now) / 1e9)
        while self._beyond_window(planned.sequence):
            await asyncio.sleep(_LOOK)
        return moment if self.options.pace.open_loop else time.monotonic_ns()

    def _beyond_window(self, sequence: int) -> bool:
        if sequence < self._low + self.options.window:
            return False
        self._see_low()
        return sequence >= self._low + self.options.window

    async def after(self, planned: PlannedCall) -> WaitResult:
        """Wait until all calls are over that a call comes after, or for as long as options allow."""
        racy = planned.racy
        left = {index for index in planned.waits if self._known[index] != 1}
        if left:
            foreign = {index for index in left if self.run_file.session_of(index) not in self._sessions}
            if foreign and self.options.apart:
                racy = self.run_file.session_of(min(foreign)) if racy is None else racy
                left -= foreign
            else:
                self._foreign |= foreign
        if left:
            self.counters.waited += 1
            waiter = _Waiter(left, self.loop.create_future())
            for index in left:
                self._waiting.setdefault(index, []).append(waiter)
            if self._foreign:
                self._look_at_foreign()
            try:
                await asyncio.wait_for(waiter.over, self.options.wait_limit)
            except TimeoutError:
                self.counters.forced += 1
                racy = self.run_file.session_of(min(waiter.left)) if racy is None else racy
                return WaitResult(self.run_file.session_name(racy), forced=True)
        return WaitResult("" if racy is None else self.run_file.session_name(racy))

    def _look_at_foreign(self) -> None:
        """See which calls of other processes are over that somebody here waits for."""
        self._foreign &= self._waiting.keys()
        if not self._foreign:
            return
        for index in self.run_file.ended_among(self._foreign):
            self._over(index)
        self._foreign &= self._waiting.keys()
        if self._foreign and not self._looking:
            self._looking = True
            self.loop.call_later(_LOOK, self._look_again)

    def _look_again(self) -> None:
        self._looking = False
        self._look_at_foreign()

    def _over(self, index: int) -> None:
        self._known[index] = 1
        for waiter in self._waiting.pop(index, ()):
            waiter.left.discard(index)
            if not waiter.left and not waiter.over.done():
                waiter.over.set_result(None)

    # --- what became of a call ---------------------------------------------------------------------------

    def count_begun(self, lag: int) -> None:
        """Count a call that was sent, so many microseconds behind its due time."""
        counters = self.counters
        counters.begun += 1
        counters.flying += 1
        counters.lag_sum += lag
        counters.lag_most = max(counters.lag_most, lag)
        if self.options.max_lag is not None and lag > self.options.max_lag * 1e6:
            self.stop(f"a call began {lag / 1e6:.1f} s late; at most {self.options.max_lag:g} s are allowed")

    async def intend(self, index: int) -> None:
        """Commit that a call which may write is about to be sent."""
        self.outcomes.intend(index)
        if self._committed is None:
            self._committed = self.loop.create_future()
            self.loop.call_soon(self._commit)
        await asyncio.shield(self._committed)

    def end(self, planned: PlannedCall, judged: JudgedCall) -> None:
        """Take in what is known of a call."""
        counters = self.counters
        counters.ended += 1
        counters.different += judged.state is Judgement.DIFFERENT
        counters.undecided += judged.state is Judgement.INDETERMINATE
        counters.unjudged += judged.state is Judgement.UNJUDGED
        recorded = self._keeper.keep(judged)
        self.outcomes.end(planned.index, recorded)
        if self._on_judged is not None:
            self._on_judged(recorded)
        self._over(planned.index)
        if judged.written and self._committed is None:  # killed now, nobody would know whether it ran
            self._committed = self.loop.create_future()
            self.loop.call_soon(self._commit)
        elif self._commit_at is None:
            self._commit_at = self.loop.call_later(_COMMIT, self._commit)

    def _commit(self) -> None:
        """Commit what was noted since the last time; a moment later where another process commits."""
        if self._commit_at is not None:
            self._commit_at.cancel()
            self._commit_at = None
        try:
            done = self.outcomes.flush()
        except Exception as error:  # noqa: BLE001 - raised by ``run``; no session may go on without its intents
            self._failure = self._failure or error
            self.stop(f"the replay failed: {error}")
            return
        if not done:
            self._commit_at = self.loop.call_later(_BUSY, self._commit)
        elif self._committed is not None:
            committed, self._committed = self._committed, None
            committed.set_result(None)

    # --- what no event tells -----------------------------------------------------------------------------

    def _beat(self) -> None:
        """See whether the process stood still since the last time: its event loop then took no answer in."""
        now = time.monotonic_ns()
        if self._beat_due and now - self._beat_due > _STALL:
            self._stalls.append((self._beat_due, now))
        self._beat_due = now + int(_BEAT * 1e9)
        self.loop.call_later(_BEAT, self._beat)

    def stalled(self, begun: int, ended: int) -> int:
        """Return for how many microseconds between two moments the process stood still; it may do so since a while."""
        now = time.monotonic_ns()
        stalls = [*self._stalls, *([(self._beat_due, now)] if now - self._beat_due > _STALL else [])]
        return sum(max(0, min(end, ended) - max(start, begun)) for start, end in stalls) // 1000

    async def _tick(self) -> None:
        while True:
            self._tend()
            await asyncio.sleep(_TICK)

    def _tend(self) -> None:
        """Look after time limits, the counters, and a stop."""
        reason = self._stop_reason()
        if reason and not self.stopped:
            self.stop(reason)
        for replayer in self._replayers.values():
            for side, connection in replayer.connections.items():
                if connection.overdue:
                    self.pool.kill(side, connection)
                    connection.look()
        now, counters = time.monotonic_ns(), self.counters
        late = [now - one.intended for one in self._replayers.values() if one.pending]
        if self._due and self.options.pace.open_loop:
            late.append(now - self._due[0][0])
        counters.lag = max(0, max(late, default=0)) // 1000
        if self.options.max_lag is not None and counters.lag > self.options.max_lag * 1e6:
            late_by = f"{counters.lag / 1e6:.1f}"
            self.stop(f"calls are {late_by} s late; at most {self.options.max_lag:g} s are allowed")
        self._see_low()
        self.outcomes.counters = json.dumps(asdict(counters))
        if self._commit_at is None and self._committed is None:
            self._commit_at = self.loop.call_later(0, self._commit)

    def _see_low(self) -> None:
        """See how far the earliest call is, of all processes."""
        own = [one.planned.sequence for one in self._replayers.values()]
        if self._due:
            own.append(self._due[0][1])
        self.counters.low = min(own, default=NEVER)
        others = [one.low for one in workers(self.run_file, but=self.outcomes.worker) if not one.finished]
        self._low = max(self._low, min(self.counters.low, *others) if others else self.counters.low)
