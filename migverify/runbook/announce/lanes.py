"""Sends what is waiting: every sink has a lane with a thread of its own, urgent announcements first, others in order.

What is said of one topic keeps its order, urgent or not: a sink that takes the last word as the state of the topic
(an incident that is resolved) must not get an earlier one after it.

What became of a try is noted by whoever owns the announcements, before the next try begins: nothing is remembered here
that is not in a journal already.
"""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from migverify.runbook.announce.sinks import Message, OpenSink, SinkError

__all__ = ["FIRST_WAIT", "GRACE", "LONGEST_ASKED", "LONGEST_WAIT", "TRIES", "Lanes", "Noted"]

TRIES = 10
"""After so many tries an announcement is given up for a sink."""
FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
"""Seconds before the second try; twice as long before each one after it, up to this."""
_DOUBLED = 30
"""So often a wait is doubled at most: an outage may be a thousand tries long, and a float has an end."""
LONGEST_ASKED = 3600.0
"""Seconds that a sink may ask for itself (``Retry-After``): more is no news any more."""
GRACE = 5.0
"""Seconds beyond a sink's timeout after which a try that has not come back counts as failed."""


@dataclass(frozen=True, slots=True)
class Noted:
    """What a journal says of a delivery after a try: ``is_open`` while it is to be tried again."""

    is_open: bool
    tries: int


@dataclass(slots=True)
class _Try:
    """One try of a delivery, in a thread of its own; ``problem`` None after its end: sent."""

    of: int
    begun: float
    thread: threading.Thread
    problem: SinkError | None = None


@dataclass(slots=True)
class _Lane:
    """What one sink still has to get, in the order of the journal; ``topics`` and ``urgent`` are of what is waiting.

    ``lost``: a try that has not come back in time; while its thread lives the sink gets no other one.
    """

    sink: OpenSink
    waiting: list[int] = field(default_factory=list)
    topics: dict[int, str] = field(default_factory=dict)
    urgent: set[int] = field(default_factory=set)
    trying: _Try | None = None
    lost: threading.Thread | None = None
    not_before: float = 0.0

    def first(self) -> int:
        """Return the number that is sent next: the first urgent one, behind what waits of its topic before it."""
        of = min(self.urgent, default=self.waiting[0])
        return next(each for each in self.waiting if self.topics[each] == self.topics[of])

    def remove(self, of: int) -> None:
        """Forget a number that is delivered or given up."""
        self.waiting.remove(of)
        self.urgent.discard(of)
        del self.topics[of]


class Lanes:
    """The lanes of all sinks. Not shared by threads; each try has one of its own.

    Parameters
    ----------
    message
        (number of an announcement, name of a sink) -> what is sent.
    note
        Writes down what became of a try (name of the sink, number, None for sent), and returns what is known then.
        What it raises leaves the try to be noted at the next look.
    """

    def __init__(
        self, sinks: Iterable[OpenSink], message: Callable[[int, str], Message],
        note: Callable[[str, int, SinkError | None], Noted],
    ) -> None:  # fmt: skip
        self._by_sink = {sink.name: _Lane(sink) for sink in sinks}
        self._message, self._note = message, note
        self._canceled = threading.Event()

    def __contains__(self, sink: object) -> bool:
        return sink in self._by_sink

    def __bool__(self) -> bool:
        return bool(self._by_sink)

    def add(self, sink: str, of: int, topic: str, *, urgent: bool) -> None:
        """Queue an announcement; ``topic`` is what it is about."""
        lane = self._by_sink[sink]
        bisect.insort(lane.waiting, of)
        lane.topics[of] = topic
        if urgent:
            lane.urgent.add(of)

    def tick(self) -> None:
        """Note what came back, begin what is due; never waits."""
        for lane in self._by_sink.values():
            self._take_result(lane)
            self._send(lane)

    def is_idle(self, until: float | None = None) -> bool:
        """Tell whether nothing is on its way or waiting, or with ``until`` nothing that is tried before then."""
        return not any(
            lane.trying or (lane.waiting and (until is None or lane.not_before < until))
            for lane in self._by_sink.values()
        )

    def cancel(self) -> None:
        """Say that nobody waits for what is on its way any more."""
        self._canceled.set()

    def _send(self, lane: _Lane) -> None:
        now = time.monotonic()
        if lane.trying is not None or not lane.waiting or now < lane.not_before:
            return
        of = lane.first()
        message = self._message(of, lane.sink.name)
        if lane.lost is not None and lane.lost.is_alive():
            lane.trying = _Try(of, now, threading.Thread(), SinkError("an earlier try never came back"))
            return

        def send() -> None:
            try:
                lane.sink.send(message, self._canceled)
            except SinkError as error:
                one.problem = error
            except BaseException as error:  # noqa: BLE001 - the waiting thread has to learn of it
                one.problem = SinkError(f"{type(error).__name__} in the sink")  # its text may hold a secret

        lane.trying = one = _Try(of, now, threading.Thread(target=send, name=f"announce {lane.sink.name}", daemon=True))
        one.thread.start()

    def _take_result(self, lane: _Lane) -> None:
        one = lane.trying
        if one is None:
            return
        problem = one.problem
        if one.thread.is_alive():
            limit = lane.sink.timeout + GRACE
            if time.monotonic() - one.begun <= limit:
                return
            lane.lost, problem = one.thread, SinkError(f"no answer within {limit:g} s")
        after = self._note(lane.sink.name, one.of, problem)
        lane.trying = None  # only now: it is written down at the next look otherwise
        if not after.is_open:
            lane.remove(one.of)
            lane.not_before = 0.0
        elif problem is not None:
            doubled = FIRST_WAIT * 2.0 ** min(after.tries - 1, _DOUBLED)
            lane.not_before = time.monotonic() + max(min(LONGEST_WAIT, doubled), min(LONGEST_ASKED, problem.wait))
