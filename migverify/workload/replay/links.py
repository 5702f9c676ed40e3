"""The connections of one thread's sessions: opened by a few threads, bounded, closed, taken from who needs none.

The lowest layer of the engine. Above it ``exchange`` asks calls and takes answers in, and ``engine`` decides whose turn
it is.
"""

from __future__ import annotations

import heapq
import logging
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from migverify.errors import EndpointError
from migverify.model import Endpoint, Side
from migverify.workload.replay.asking import AskOptions
from migverify.workload.replay.board import Counters
from migverify.workload.replay.compare import CompareOptions
from migverify.workload.replay.order import WINDOW
from migverify.workload.replay.pace import Pace
from migverify.workload.replay.player import Opener, Player
from migverify.workload.replay.restore import restored
from migverify.workload.replay.spool import FIRST_OF_UNIT
from migverify.workload.replay.wire import Limits, ServerWire, kill_query, open_wire

LOG = logging.getLogger(__name__)

NEVER = 1 << 62
"""A sequence behind all calls."""
_OPENERS = 4
_OPEN_TRIES = 4
_OPEN_PAUSE = 0.25


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How a worker plays. Times are seconds.

    ``connections`` is how many sessions are connected at once (one connection a side each). ``wait_limit`` bounds how
    long a call waits for another session, ``max_lag`` how late calls may begin before the run stops, ``grace`` how long
    calls under way may take after a stop. Without ``writes`` sessions are made read-only where the server can. With
    ``apart`` calls of other workers cannot be waited for: one that should is racy instead.
    """

    pace: Pace = field(default_factory=Pace)
    ask: AskOptions = field(default_factory=AskOptions)
    compare: CompareOptions = field(default_factory=CompareOptions)
    limits: Limits = field(default_factory=lambda: Limits(seconds=30.0))
    connections: int = 8
    window: int = WINDOW
    wait_limit: float = 10.0
    max_lag: float | None = None
    grace: float = 10.0
    writes: bool = False
    apart: bool = False
    found_rows: bool = True
    several: bool = False


class Links:
    """Opens and closes the connections of players, at most ``options.connections`` of them at a time."""

    def __init__(
        self, openers: Mapping[Side, Opener], options: EngineOptions, kill: Callable[[Side, int], str]
    ) -> None:
        self.options = options
        self.counters = Counters(low=NEVER)
        self.stopped = ""
        self._openers, self._kill = openers, kill
        self._selector = selectors.DefaultSelector()
        self._bell, self._ring = socket.socketpair()
        self._bell.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ, None)
        self._threads = ThreadPoolExecutor(_OPENERS, thread_name_prefix="replay-open")
        self._opened: deque[tuple[Player, list[ServerWire | EndpointError]]] = deque()
        self._timers: list[tuple[int, int, Player]] = []
        self._slots: list[tuple[int, int]] = []
        self._players: dict[int, Player] = {}
        self._busy: set[Player] = set()
        self._free = max(1, options.connections)
        self._serial = 0

    def _connected(self, player: Player) -> None:
        """Go on with a player whose connections are open."""
        raise NotImplementedError

    def _due_at(self, player: Player) -> int:
        """Return when a player's call is due."""
        raise NotImplementedError

    def _later(self, player: Player, seconds: float) -> None:
        self._serial += 1
        heapq.heappush(self._timers, (time.monotonic_ns() + int(seconds * 1e9), self._serial, player))

    def _connect(self, player: Player) -> None:
        self._free -= 1
        player.connected = True
        player.tries = 0
        self._open(player)

    def _open(self, player: Player) -> None:
        player.phase = "opening"
        self._busy.add(player)
        missing = [lane.side for lane in player.lanes if lane.wire is None]

        def connect() -> list[ServerWire | EndpointError]:
            found: list[ServerWire | EndpointError] = []
            for side in missing:
                try:
                    found.append(self._openers[side](side))
                except EndpointError as error:
                    found.append(error)
            return found

        def done(future: Future[list[ServerWire | EndpointError]]) -> None:
            self._opened.append((player, future.result()))
            self._ring.send(b"!")

        self._threads.submit(connect).add_done_callback(done)

    def _answer_bell(self) -> None:
        with suppress(BlockingIOError):  # rung once, heard twice
            self._bell.recv(4096)
        while self._opened:
            player, found = self._opened.popleft()
            self._busy.discard(player)
            lanes = [lane for lane in player.lanes if lane.wire is None]
            errors = [one for one in found if isinstance(one, EndpointError)]
            for lane, one in zip(lanes, found, strict=True):
                if not isinstance(one, EndpointError):
                    lane.wire = one
                    lane.clocked = False
                    self._selector.register(one.fileno(), selectors.EVENT_READ, (player, lane))
                    self.counters.connections += 1
            if errors:
                self._not_opened(player, errors[0])
                continue
            player.state = None
            self._connected(player)

    def _not_opened(self, player: Player, error: EndpointError) -> None:
        player.tries += 1
        if player.tries >= _OPEN_TRIES:
            self._stop(f"no connection: {error.message}")
        else:
            player.phase = "reopen"
            self._later(player, _OPEN_PAUSE * 2**player.tries)

    def _disconnect(self, player: Player) -> None:
        for lane in player.lanes:
            if lane.wire is not None:
                if not lane.wire.closed:
                    self._selector.unregister(lane.wire.fileno())
                lane.wire.close()
                lane.wire = None
                self.counters.connections -= 1
            lane.queue.clear()
            lane.doing, lane.writing = "", False
        player.state = None
        if player.connected:
            player.connected = False
            self._free += 1

    def _steal(self) -> None:
        """Close the connections of a session that needs none for the longest time: another has waited for one."""
        idle = [
            player for player in self._players.values()
            if player.connected and player.phase in ("due", "waits") and player.stored is not None
            and player.stored.flags & FIRST_OF_UNIT
        ]  # fmt: skip
        idle.sort(key=lambda one: (one.phase != "waits", -self._due_at(one)))
        first = self._slots[0][0]
        for player in idle[: len(self._slots)]:
            if player.turn is None or player.turn.sequence < first:
                continue
            told = restored(player.call.state, next(lane.wire.flavor for lane in player.lanes if lane.wire is not None))
            if not told.lost:
                self._disconnect(player)

    def _stop(self, reason: str) -> None:
        self.stopped = self.stopped or reason

    def _close_links(self) -> None:
        for player in list(self._players.values()):
            self._disconnect(player)
        self._threads.shutdown(wait=True)
        while self._opened:
            for one in self._opened.popleft()[1]:
                if not isinstance(one, EndpointError):
                    one.close()
        self._selector.close()
        self._bell.close()
        self._ring.close()


def openers(
    endpoints: Mapping[Side, Endpoint], secrets: Mapping[str, str], options: EngineOptions
) -> dict[Side, Opener]:
    """Return what opens wires to these endpoints, the source first."""

    def opener(endpoint: Endpoint) -> Opener:
        def connect(side: Side) -> ServerWire:
            return open_wire(
                endpoint, secrets.get(endpoint.name), side, options.limits, found_rows=options.found_rows,
                several=options.several,
            )  # fmt: skip

        return connect

    return {side: opener(endpoint) for side, endpoint in sorted(endpoints.items())}


def killer(endpoints: Mapping[Side, Endpoint], secrets: Mapping[str, str]) -> Callable[[Side, int], str]:
    """Return what stops a statement whose client gave up on it."""

    def kill(side: Side, thread: int) -> str:
        endpoint = endpoints[side]
        refused = kill_query(endpoint, secrets.get(endpoint.name), thread)
        if refused:
            LOG.warning("%s: a statement over its time limit may still run: %s", endpoint.name, refused)
        return refused

    return kill
