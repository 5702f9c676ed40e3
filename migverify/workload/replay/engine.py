"""One thread that plays hundreds of captured sessions on both sides, by a selector.

A session is a ``Player``. Its next call becomes due by the pace, waits for what it must come after, takes a connection
to each side, is sent to both at once, and ends when both have answered; then it is judged and written to the journal.
Nothing here blocks: connections are opened by a few threads, everything else is an event.

A call is late when it begins behind its due time, for whatever reason: that is its lag, and part of its latency.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from migverify.model import Side
from migverify.workload.replay.board import Board, Counters
from migverify.workload.replay.compare import judge
from migverify.workload.replay.exchange import Exchange
from migverify.workload.replay.journal import Journal
from migverify.workload.replay.links import NEVER, EngineOptions, killer, openers
from migverify.workload.replay.model import Judged, Judgement, Observation
from migverify.workload.replay.player import Lane, Opener, Player
from migverify.workload.replay.spool import FIRST_OF_UNIT, NOWHERE, WRITES, Spool
from migverify.workload.replay.tally import ExampleKeeper

__all__ = ["Engine", "EngineOptions", "Start", "killer", "openers"]

LOST = "its transaction was lost with its connection"
_TICK = 0.05
_HOLD = 0.002  # between looks at calls of other processes
_STEAL = 5_000_000  # nanoseconds between looks for connections that are not needed


@dataclass(frozen=True, slots=True)
class Start:
    """When the run begins: monotonic nanoseconds, and the due time and sequence of the first call that is left."""

    began: int
    due: int = 0
    sequence: int = 0


class Engine(Exchange):
    """Plays some sessions of a plan.

    Parameters
    ----------
    sessions
        Numbers of the sessions this engine plays.
    ended
        Tells whether a call has an end already (a resumed run).
    openers
        By side; the source may be missing, then the capture is the oracle.
    stop
        Asked often; a reason to stop, empty to go on.
    """

    def __init__(
        self,
        spool: Spool,
        sessions: Sequence[int],
        openers: Mapping[Side, Opener],
        journal: Journal,
        board: Board,
        options: EngineOptions,
        start: Start,
        *,
        ended: Callable[[int], bool] = lambda _: False,
        stop: Callable[[], str] = lambda: "",
        kill: Callable[[Side, int], str] = lambda _side, _thread: "",
        on_judged: Callable[[Judged], None] | None = None,
    ) -> None:
        super().__init__(spool, openers, journal, options, kill)
        self.board, self.start = board, start
        self._ended, self._ask_stop, self._on_judged = ended, stop, on_judged
        self._keeper = ExampleKeeper()
        self._due: list[tuple[int, int, int]] = []
        self._waiting: dict[int, list[Player]] = {}
        self._mine = set(sessions)
        self._stolen = 0
        self._low = start.sequence
        self._queue(sessions)

    def run(self) -> Counters:
        """Play all sessions to their end, or to a stop; the journal holds what was found."""
        tick = 0.0
        stop_at = 0.0
        try:
            while self._players or (self._due and not self.stopped):
                now = time.monotonic()
                if now >= tick:
                    tick = now + _TICK
                    self._tend(now)
                if self.stopped:
                    stop_at = stop_at or now + self.options.grace
                    if not self._busy or now >= stop_at:
                        break
                else:
                    self._begin_due()
                for key, _ in self._selector.select(self._patience()):
                    if key.data is None:
                        self._answer_bell()
                    else:
                        self._receive(*key.data)
                self.journal.flush()
        finally:
            self._close()
        return self.counters

    def _patience(self) -> float:
        now = time.monotonic_ns()
        until = now + int(_TICK * 1e9)
        if not self.stopped:
            if self._timers:
                until = min(until, self._timers[0][0])
            if self._due:
                due = self._due[0]
                held = due[1] >= self._low + self.options.window
                until = min(until, now + int(_HOLD * 1e9) if held else due[0])
        return max(0.0, (until - now) / 1e9)

    def _queue(self, sessions: Sequence[int]) -> None:
        for number in sessions:
            session = self.spool.sessions[number]
            index, stop = session.first, session.first + session.count
            while index < stop and self._ended(index):
                self.board.set_over(index)
                index += 1
            if index < stop:
                turn = self.spool.turn(index)
                self._due.append((self._moment(turn.due, turn.sequence), turn.sequence, number))
        heapq.heapify(self._due)

    def _moment(self, due: int, sequence: int) -> int:
        """Return the monotonic nanoseconds at which a call is due."""
        found = self.options.pace.due(due - self.start.due, sequence - self.start.sequence)
        return self.start.began + max(0, found)

    def _due_at(self, player: Player) -> int:
        turn = player.turn
        return 0 if turn is None else self._moment(turn.due, turn.sequence)

    def _begin_due(self) -> None:
        now = time.monotonic_ns()
        while self._timers and self._timers[0][0] <= now:
            player = heapq.heappop(self._timers)[2]
            if player.phase == "waits":
                self._wait(player)
            elif player.phase == "pause":
                self._ask(player)
            elif player.phase == "reopen":
                self._open(player)
        while self._due and self._due[0][0] <= now:
            if self._due[0][1] >= self._low + self.options.window:
                self._see_low()
                if self._due[0][1] >= self._low + self.options.window:
                    break
            _, _, number = heapq.heappop(self._due)
            self._due_now(self._player(number))
        if self._slots and self._free <= 0 and now - self._stolen > _STEAL:
            self._stolen = now
            self._steal()
        while self._slots and self._free > 0:
            player = self._players[heapq.heappop(self._slots)[1]]
            self._connect(player)

    def _player(self, number: int) -> Player:
        player = self._players.get(number)
        if player is None:
            session = self.spool.sessions[number]
            lanes = tuple(Lane(side) for side in self._openers)
            player = Player(number, session.first, session.first + session.count, lanes)
            self._players[number] = player
            self._load(player)
        return player

    def _load(self, player: Player) -> bool:
        """Take the session's next call that has no end yet; False when there is none."""
        while player.next < player.stop and self._ended(player.next):
            self.board.set_over(player.next)
            player.next += 1
        if player.next >= player.stop:
            return False
        player.stored = self.spool.read(player.next)
        player.turn = self.spool.turn(player.next)
        player.judged, player.rounds, player.forced, player.held = None, 1, False, False
        if player.stored.flags & FIRST_OF_UNIT:
            player.broken = player.wrote = False
        return True

    def _due_now(self, player: Player) -> None:
        stored, turn = player.stored, player.turn
        if stored is None or turn is None:
            raise ValueError("a player is due without a call")
        now = time.monotonic_ns()
        player.intended = self._due_at(player) if self.options.pace.open_loop else now
        if stored.skipped or player.broken:
            observation = Observation(stored.call, skipped=stored.skipped or LOST)
            self._end(player, judge(observation, stored.meaning, self.options.compare))
            return
        player.left = {index for index in turn.waits if not self.board.over(index)}
        player.since = now
        foreign = {index for index in player.left if self.spool.place(index).session not in self._mine}
        player.other = self.spool.place(min(foreign)).session if foreign and self.options.apart else NOWHERE
        player.left -= foreign if self.options.apart else set()
        for index in player.left - foreign:
            self._waiting.setdefault(index, []).append(player)
        self.counters.waited += bool(player.left)
        self._wait(player)

    def _wait(self, player: Player) -> None:
        """Go on when everything is over that this call comes after, or when it has waited long enough."""
        player.left = {index for index in player.left if not self.board.over(index)}
        now = time.monotonic_ns()
        if player.left and now - player.since < self.options.wait_limit * 1e9:
            if player.phase != "waits" or any(self.spool.place(one).session not in self._mine for one in player.left):
                self._later(player, _HOLD if self._foreign(player) else self.options.wait_limit)
            player.phase = "waits"
            return
        if player.left:
            player.forced = True
            self.counters.forced += 1
        if not self.options.pace.open_loop:
            player.intended = now
        if player.connected:
            self._prepare(player)
            return
        player.phase = "slot"
        heapq.heappush(self._slots, (player.turn.sequence if player.turn else 0, player.number))

    def _foreign(self, player: Player) -> bool:
        return any(self.spool.place(index).session not in self._mine for index in player.left)

    def _end(self, player: Player, judged: Judged) -> None:
        stored, turn = player.stored, player.turn
        if stored is None or turn is None:
            raise ValueError("an end without a call")
        self._busy.discard(player)
        counters = self.counters
        if player.begun:
            counters.flying -= 1
            lag = max(0, (player.begun - player.intended) // 1000)
            judged = replace(judged, lag=lag) if judged.lag != lag else judged
            counters.source_asked += player.rounds * (len(player.lanes) > 1)
            counters.target_asked += player.rounds
            counters.writes += bool(stored.flags & WRITES)
            counters.reads += not stored.flags & WRITES
            player.begun = 0
            if stored.flags & WRITES and not judged.written:
                judged = replace(judged, written=True)
        counters.ended += 1
        counters.different += judged.state is Judgement.DIFFERENT
        counters.undecided += judged.state is Judgement.INDETERMINATE
        counters.unjudged += judged.state is Judgement.UNJUDGED
        kept = self._keeper.keep(judged)
        self.journal.ended(stored.index, kept)
        if self._on_judged is not None:
            self._on_judged(kept)
        for lane in player.lanes:
            lane.asked.clear()
            lane.warned = None
        self._over(stored.index)
        player.next += 1
        if player.broken or self._cut(player):
            self._disconnect(player)
        self._next(player)

    def _cut(self, player: Player) -> bool:
        return any(lane.wire is not None and lane.wire.closed for lane in player.lanes)

    def _over(self, index: int) -> None:
        self.board.set_over(index)
        for other in self._waiting.pop(index, ()):
            if other.phase == "waits":
                other.left.discard(index)
                if not other.left:
                    self._wait(other)

    def _next(self, player: Player) -> None:
        if not self._load(player):
            self._disconnect(player)
            del self._players[player.number]
            return
        player.phase = "due"
        turn = player.turn
        if turn is not None:
            heapq.heappush(self._due, (self._due_at(player), turn.sequence, player.number))

    def _tend(self, now: float) -> None:
        """Look after what no event tells: time limits, held calls, the board, a stop."""
        if not self.stopped:
            self._stop(self._ask_stop())
        for player in list(self._busy):
            for lane in player.lanes:
                wire = lane.wire
                if wire is not None and lane.doing and wire.deadline is not None and now >= wire.deadline:
                    self._threads.submit(self._kill, lane.side, wire.thread_id)
                    self._receive(player, lane)
        if self._slots and self._free <= 0 and not self.stopped:
            for _, number in self._slots:
                player = self._players[number]
                self.counters.held += not player.held
                player.held = True
        self._see_low()
        now_ns = time.monotonic_ns()
        late = [now_ns - one.intended for one in self._players.values() if one.phase in ("waits", "slot", "opening")]
        if self._due and self.options.pace.open_loop:
            late.append(now_ns - self._due[0][0])
        self.counters.lag = max(0, max(late, default=0)) // 1000
        if self.options.max_lag is not None and self.counters.lag > self.options.max_lag * 1e6:
            late_by = f"{self.counters.lag / 1e6:.1f}"
            self._stop(f"calls are {late_by} s late; at most {self.options.max_lag:g} s are allowed")
        self.board.publish(self.counters)

    def _see_low(self) -> None:
        sequences = [player.turn.sequence for player in self._players.values() if player.turn is not None]
        if self._due:
            sequences.append(min(one[1] for one in self._due) if self.options.pace.open_loop else self._due[0][1])
        self.counters.low = min(sequences, default=NEVER)
        self.board.publish(self.counters)
        self._low = max(self._low, min(self.board.low(), self.counters.low))

    def _close(self) -> None:
        self._close_links()
        self.counters.finished = 1
        self.counters.lag = self.counters.flying = 0
        self.journal.close()
        self.board.publish(self.counters)
