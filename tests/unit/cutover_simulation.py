"""A small world in which a cutover can go wrong: a source with transactions in flight, a feed each way, caches of ids.

Time goes in ticks. Nothing happens by chance: whoever makes a world says when transactions commit, how fast feeds are
and which mistakes are in it. The cutover asks the very judges of the real gates (``actions.gate_judges``), fed with
what this world shows, or else the naive check that each of them replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from migverify.runbook.actions import gate_judges as gates
from migverify.runbook.actions import rollback_loss
from migverify.runbook.actions.gate_judges import (
    BarrierRow,
    Canary,
    GateResult,
    NextId,
    Open,
    WriteProbe,
    WriteProbeResult,
)

CACHE = 6
"""Ids that a server of the target takes at once."""
GATES = ("refused", "sessions", "transactions", "position", "barrier", "feed", "ids", "reverse")


@dataclass
class Change:
    """A line of a log: a row, a heartbeat or a marker. ``fed``: written by a feed, not by an application."""

    key: str
    value: int
    fed: bool = False


@dataclass
class Feed:
    """Carries a log's lines to the other side, ``delay`` ticks after they were written, at most ``rate`` a tick."""

    running: bool
    delay: int
    at: int = 0
    dead: bool = False
    rate: int = 1000


@dataclass
class Transaction:
    """One of the application, begun before the freeze: it commits at a tick, unless it was ended."""

    commits: int
    key: str
    value: int


@dataclass
class Server:
    """A server of the target that hands out ids from a range of its own."""

    next: int = 0
    end: int = 0


@dataclass
class Mistakes:
    """What goes wrong in a world."""

    sessions_stay: bool = False  # the freeze leaves open sessions, and what is in flight in them
    forward_goes_on: bool = False  # the forward feed says stopped, and is not
    caches_stay: bool = False  # ids are rebased on the first server only
    reverse_dead: bool = False  # the reverse feed says running, and carries nothing
    freeze_fails: bool = False  # the freeze does nothing
    reverse_drops: bool = False  # the reverse feed carries the canary, and no row of the application


@dataclass
class World:
    """Source, target, application and feeds."""

    mistakes: Mistakes = field(default_factory=Mistakes)
    flight: list[Transaction] = field(default_factory=list)
    beat_every: int = 3
    servers: int = 2
    delay: int = 1
    writes_every: int = 2
    rate: int = 1000
    now: int = 0
    source: dict[str, int] = field(default_factory=dict)
    target: dict[str, int] = field(default_factory=dict)
    source_log: list[tuple[int, Change]] = field(default_factory=list)
    target_log: list[tuple[int, Change]] = field(default_factory=list)
    acked: dict[str, int] = field(default_factory=dict)
    collisions: int = 0
    frozen: bool = False
    open_on: str = "source"
    forward_said: str = "running"
    counter: int = 0

    def __post_init__(self) -> None:
        self.forward, self.reverse = (Feed(on, self.delay, rate=self.rate) for on in (True, False))
        self.nodes = [Server() for _ in range(self.servers)]
        self.allocated = 0
        for node in self.nodes:
            self._take_range(node)  # every server took ids before the feed brought any

    # -- time ----------------------------------------------------------------------------------------------------

    def tick(self, ticks: int = 1) -> None:
        for _ in range(ticks):
            self.now += 1
            self._in_flight()
            if self.open_on == "source" and self.now % self.writes_every == 0 and self._source_takes():
                self._insert_on_source()
            elif self.open_on == "target" and self.now % self.writes_every == 0:
                self._write_on_target()
            if self.now % self.beat_every == 0:
                self.write_source("beat", self.now, fed=True)
            self._carry(self.forward, self.source_log, self._to_target)
            self._carry(self.reverse, self.target_log, self._to_source)

    def _source_takes(self) -> bool:
        return not self.frozen or self.mistakes.freeze_fails or self.mistakes.sessions_stay

    def _in_flight(self) -> None:
        # A commit comes before the heartbeat of its tick, and those of the freeze's own tick come after both.
        for one in [one for one in self.flight if one.commits <= self.now]:
            self.flight.remove(one)
            self.write_source(one.key, one.value)
            self.acked[one.key] = one.value

    def _insert_on_source(self) -> None:
        self.counter += 1
        key = f"row-{self.counter}"
        self.write_source(key, self.now)
        self.acked[key] = self.now

    def _write_on_target(self) -> None:
        node = self.nodes[self.now // self.writes_every % len(self.nodes)]
        key = f"row-{self.take_id(node)}"
        if key in self.target:
            self.collisions += 1
            return
        self.write_target(key, self.now)
        self.acked[key] = self.now
        known = sorted(one for one in self.target if one.startswith("row-"))
        again = known[self.now % len(known)]  # and an older row is written once more
        self.write_target(again, self.now)
        self.acked[again] = self.now

    def write_source(self, key: str, value: int, *, fed: bool = False) -> None:
        self.source[key] = value
        self.source_log.append((self.now, Change(key, value, fed)))

    def write_target(self, key: str, value: int, *, fed: bool = False) -> None:
        self.target[key] = value
        self.target_log.append((self.now, Change(key, value, fed)))

    def _carry(self, feed: Feed, log: list[tuple[int, Change]], apply: Callable[[Change], None]) -> None:
        for _ in range(feed.rate if feed.running and not feed.dead else 0):
            if feed.at >= len(log) or log[feed.at][0] + feed.delay > self.now:
                return
            apply(log[feed.at][1])
            feed.at += 1

    def _to_target(self, change: Change) -> None:
        # A feed writes what it does not know to be its own; the reverse feed reads it again only where it is new.
        if self.target.get(change.key) != change.value:
            self.target[change.key] = change.value
            if self.reverse.running:
                self.target_log.append((self.now, Change(change.key, change.value, True)))
        if change.key.startswith("row-"):
            # The server that the feed writes through learns of the id; the others keep their ranges.
            number = int(change.key[4:])
            self.allocated = max(self.allocated, number)
            if self.nodes[0].next < number:
                self.nodes[0].next = number
                self.nodes[0].end = max(self.nodes[0].end, number)

    def _to_source(self, change: Change) -> None:
        if self.mistakes.reverse_drops and change.key.startswith("row-"):
            return
        if self.source.get(change.key) != change.value:
            self.source[change.key] = change.value
            self.source_log.append((self.now, Change(change.key, change.value, True)))

    # -- ids -----------------------------------------------------------------------------------------------------

    def _take_range(self, node: Server) -> None:
        node.next, node.end = self.allocated, self.allocated + CACHE
        self.allocated += CACHE

    def take_id(self, node: Server) -> int:
        if node.next >= node.end:
            self._take_range(node)
        node.next += 1
        return node.next

    def largest(self) -> int:
        return max((int(key[4:]) for key in self.target if key.startswith("row-")), default=0)

    # -- what people do ------------------------------------------------------------------------------------------

    def freeze(self) -> None:
        self.frozen = True
        if not self.mistakes.sessions_stay and not self.mistakes.freeze_fails:
            self.flight.clear()  # ended sessions roll back; nobody was told that they committed

    def stop_forward(self) -> None:
        self.forward_said = "stopped"
        self.forward.running = self.mistakes.forward_goes_on

    def rebase(self) -> None:
        self.allocated = max(self.allocated, self.largest())
        for node in self.nodes[: 1 if self.mistakes.caches_stay else None]:
            self._take_range(node)

    def start_reverse(self) -> None:
        self.reverse.running, self.reverse.at = True, len(self.target_log)
        self.reverse.dead = self.mistakes.reverse_dead

    def open_target(self) -> None:
        self.open_on = "target"

    def lost(self, side: dict[str, int]) -> list[str]:
        """Return what was acknowledged and is not there, or not as it was last written."""
        return sorted(key for key, value in self.acked.items() if side.get(key) != value)


# --- what is asked ---------------------------------------------------------------------------------------------------


def ask(world: World, gate: str, tail: int) -> bool:
    """Ask one gate of this world, with the judge of the real one; only a value that its bounds take passes."""
    judged = _JUDGES[gate](world, tail)
    return judged.value is not None and judged.value in (0, "arrived", "stopped")


def _refused(world: World, _tail: int) -> GateResult:
    told = WriteProbeResult.REFUSED if world.frozen and not world.mistakes.freeze_fails else WriteProbeResult.ACCEPTED
    return gates.refused([WriteProbe("source", "INSERT", told)])


def _sessions(world: World, _tail: int) -> GateResult:
    stay = world.mistakes.sessions_stay or not world.frozen
    return gates.nothing_open([Open("source", "session")] if stay else [], "sessions")


def _transactions(world: World, _tail: int) -> GateResult:
    return gates.nothing_open([Open("source", one.key) for one in world.flight], "transactions")


def _position(world: World, _tail: int) -> GateResult:
    def read() -> str:
        # The heartbeat's account is exempt, and its rows are of no table that counts.
        return f"log:{4 + sum(1 for _, change in world.source_log if change.key != 'beat')}"

    def pause(seconds: float) -> bool:
        world.tick(int(seconds))
        return False

    return gates.stable(read, pause, 3, 3)


def _barrier(world: World, tail: int) -> GateResult:
    number = 1_000_000 + world.now
    world.write_source("marker", number, fed=True)
    beats = [change.value for _, change in world.source_log if change.key == "beat"]
    marker = BarrierRow(number, max(beats, default=None))
    return _awaited(world, tail, lambda: gates.arrived(marker, world.target.get("marker")), "arrived")


def _feed(world: World, tail: int) -> GateResult:
    number, begun = 2_000_000 + world.now, world.now
    world.write_source("canary", number, fed=True)
    world.tick(tail)
    canary = Canary(number, world.now - begun)
    return gates.stopped(canary, world.target.get("canary"), world.forward_said, expected="stopped", after=tail)


def _ids(world: World, _tail: int) -> GateResult:
    found = []
    for number, node in enumerate(world.nodes):
        found.append(NextId(f"server-{number}", "rows", world.take_id(node), world.largest()))
    return gates.above(found)


def _reverse(world: World, tail: int) -> GateResult:
    number = 3_000_000 + world.now
    world.write_target("back", number, fed=True)
    marker = BarrierRow(number)
    return _awaited(world, tail, lambda: gates.arrived(marker, world.source.get("back")), "arrived")


def _awaited(world: World, ticks: int, judge: Callable[[], GateResult], wanted: str) -> GateResult:
    for _ in range(ticks):
        if judge().value == wanted:
            break
        world.tick()
    return judge()


_JUDGES: dict[str, Callable[[World, int], GateResult]] = {
    "refused": _refused, "sessions": _sessions, "transactions": _transactions, "position": _position,
    "barrier": _barrier, "feed": _feed, "ids": _ids, "reverse": _reverse,
}  # fmt: skip


def loss(world: World) -> tuple[str | None, str]:
    """Ask what going back would lose, with the judge of ``rollback.loss``: its value and its text."""
    rows = [
        key for key, value in sorted(world.target.items()) if key.startswith("row-") and world.source.get(key) != value
    ]
    document = {
        **dict.fromkeys(("missing_on_source", "value_differs", "missing_on_target", "unread_seconds"), 0),
        "run": "watch", "as_of": {"text": f"tick {world.now}"}, "read_at": None, "watch": {}, "oldest": None,
        "keys": len(rows), "transactions_at_least": len(rows), "oldest_seconds": 1.0 if rows else None,
        "rows": [{"table": "shop.orders", "key": [key]} for key in rows], "amounts": [], "amounts_unstated": [],
        "reasons": [], "complete": True,
    }  # fmt: skip
    value, text, _ = rollback_loss.result_of(document, {})
    return value, text


def naive_drained(world: World, ticks: int) -> bool:
    """Wait as one does without a barrier: the newest heartbeat on the target is not older than the freeze."""
    frozen_at = world.now
    for _ in range(ticks):
        if world.target.get("beat", 0) >= frozen_at:
            return True
        world.tick()
    return False


def naive_caught_up(world: World, ticks: int) -> bool:
    """Wait until the feed has applied the log as far as it went when writes were told to stop."""
    end = len(world.source_log)
    for _ in range(ticks):
        if world.forward.at >= end:
            return True
        world.tick()
    return False


def cutover(world: World, asked: frozenset[str], between: Iterator[int], tail: int = 12) -> str:
    """Cut over, asking these gates; returns ``opened``, or the gate that stopped it.

    Parameters
    ----------
    asked
        Gates that are asked; for one that is not, the naive check takes its place, or nothing.
    between
        Ticks that pass between two steps.
    """

    def stops(gate: str) -> bool:
        world.tick(next(between))
        return gate in asked and not ask(world, gate, tail)

    world.freeze()
    for gate in ("refused", "sessions", "transactions", "position"):
        if stops(gate):
            return gate
    if "barrier" in asked:
        if stops("barrier"):
            return "barrier"
    elif not (naive_caught_up(world, 50) if "heartbeat" not in asked else naive_drained(world, 50)):
        return "naive"
    world.stop_forward()
    if stops("feed"):
        return "feed"
    world.rebase()
    if stops("ids"):
        return "ids"
    world.start_reverse()
    if stops("reverse"):
        return "reverse"
    world.tick(next(between))
    world.open_target()
    return "opened"


def go_back(world: World, ticks: int, *, ask_loss: bool = True) -> str:
    """Stop the target, let the reverse feed end its work, and open the source; else return what would be lost."""
    world.open_on = "none"
    world.tick(ticks)
    value, text = loss(world)
    if ask_loss and value != rollback_loss.ACCEPTABLE:
        return text
    world.reverse.running = False
    world.open_on = "source"
    return "opened"
