"""The outbox of a run: what is announced stands in the journal before it is sent, and what became of it behind.

An announcement is written for all its sinks first; then every sink is sent to in a thread of its own, in their order,
each one until it is sent or given up. Whatever is announced and not delivered when an executor goes is tried again by
the next one, so a sink may get a text twice and never not at all. Only the executor's own thread reads and writes the
journal here; nothing that goes wrong ends or delays the run, and all of it shows in ``RunStatus``.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue

from migverify.errors import FencedError, MigverifyError, UsageError
from migverify.runbook.announce.moments import Announcement, announcements
from migverify.runbook.announce.sinks import Message, OpenSink, SinkError, open_sinks
from migverify.runbook.clock import Moment
from migverify.runbook.definition.forecast import NO_DRILLS, Drills
from migverify.runbook.events import Event, EventKind
from migverify.runbook.fold.announce import OPEN, OUTBOX_ALARM
from migverify.runbook.fold.whole import fold
from migverify.runbook.record.journal import Draft
from migverify.runbook.record.lease import Keeper
from migverify.runbook.record.run_record import RunRecord
from migverify.runbook.state import Delivery, RunStatus
from migverify.secrets import scrub

__all__ = ["DRAIN", "FIRST_WAIT", "GRACE", "HUNG", "LONGEST_WAIT", "TRIES", "Outbox", "deliver_rest"]

TRIES = 10
"""After so many tries an announcement is given up for a sink."""
FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
"""Seconds before the second try; twice as long before each one after it, up to this."""
GRACE = 5.0
"""Seconds beyond a sink's timeout after which a try that has not come back counts as failed."""
HUNG = 4
"""Tries of one sink that never came back; with so many, no more threads are given to it."""
DRAIN = 10.0
"""Seconds that an executor waits at its end for what is on its way."""

_K = EventKind


@dataclass(frozen=True, slots=True)
class _Try:
    """One try: ``number`` tells it from others of the same delivery, ``begun`` is monotonic seconds."""

    number: int
    of: int
    begun: float
    thread: threading.Thread


@dataclass(frozen=True, slots=True)
class _Result:
    """What became of a try; ``problem`` None: sent. ``late``: it was counted as failed before it came back."""

    sink: str
    number: int
    of: int
    problem: SinkError | None
    late: bool = False


@dataclass(slots=True)
class _Lane:
    """What one sink still has to get, in the order of the journal."""

    sink: OpenSink
    waiting: deque[int] = field(default_factory=deque)
    trying: _Try | None = None
    not_before: float = 0.0
    hung: list[threading.Thread] = field(default_factory=list)


class Outbox:
    """Announces a run and delivers, for one executor. Not shared by threads.

    Parameters
    ----------
    keeper
        The executor's lease. None: the run is over, and ``person`` of its people delivers what was left.
    sinks
        Those of the runbook, opened.
    drills
        What earlier drills say: every text names which rehearsal this is, and forecasts by them.
    """

    def __init__(
        self, record: RunRecord, keeper: Keeper | None, sinks: Sequence[OpenSink], *, drills: Drills = NO_DRILLS,
        person: str = "",
    ) -> None:  # fmt: skip
        self._record, self._keeper, self._drills, self._person = record, keeper, drills, person
        self._lanes = {sink.name: _Lane(sink) for sink in sinks}
        self._heard: deque[Event] | None = None
        self._before: RunStatus | None = None
        self._results: SimpleQueue[_Result] = SimpleQueue()
        self._unwritten: deque[_Result] = deque()
        self._canceled = threading.Event()
        self._tries = 0
        self._fenced = False
        self._problem = ""

    def tick(self) -> None:
        """Announce what is new, write down what came back, begin what is due; never waits, never raises."""
        if not self._lanes or self._fenced:
            return
        try:
            self._announce()
            self._take_results()
            self._send()
        except FencedError:
            self._fenced = True  # the executor learns of it by itself; what is left is the next one's
        except MigverifyError as error:
            self._complain(error.message)
        except Exception as error:  # noqa: BLE001 - a fault in an announcement must not end the run; it is written down
            self._complain(f"{type(error).__name__}: {error}")

    def end(self, limit: float = DRAIN) -> None:
        """Announce the end, and wait for what is on its way; what is left then stays in the journal as it is.

        Parameters
        ----------
        limit
            Seconds. A sink that would be tried again only later is not waited for.
        """
        until = time.monotonic() + limit
        self.tick()
        while not self._fenced and time.monotonic() < until and self._comes(until):
            time.sleep(0.01)
            self.tick()
        self._canceled.set()

    def _comes(self, until: float) -> bool:
        lanes = self._lanes.values()
        return bool(self._unwritten) or any(
            lane.trying is not None or (lane.waiting and lane.not_before < until) for lane in lanes
        )

    # -- announcing ---------------------------------------------------------------------------------------------

    def _announce(self) -> None:
        heard = self._heard if self._heard is not None else self._begin()
        self._record.refresh()
        before, found, some = self._before, list[Announcement](), list(heard)
        for event in some:
            if before is not None and event.seq <= before.seq:
                continue
            after = fold([event], before)
            if after is not None:
                found += self._told(before, event, after)
            before = after
        if found:
            self._write_down(found)
        # Only now: when the journal could not be written, the same events are told at the next look.
        self._before = before
        for _ in some:
            heard.popleft()

    def _begin(self) -> deque[Event]:
        """Read what an earlier executor announced, and go on behind it."""
        self._record.refresh()
        status, behind = self._record.status, list[Event]()
        before = fold(self._up_to(self._record.journal.events(), status.announced[0], behind))
        heard = self._record.follow()
        # What somebody else wrote since the refresh is heard at the next one.
        heard.extend(event for event in behind if event.seq <= status.seq)
        for (of, sink), one in sorted(status.deliveries.items()):
            if one.state in OPEN and sink in self._lanes:
                self._lanes[sink].waiting.append(of)
        self._before, self._heard = before, heard
        return heard

    @staticmethod
    def _up_to(events: Iterable[Event], last: int, behind: list[Event]) -> Iterable[Event]:
        """Yield the events before the last one that was announced; keep the others: they may have more to say."""
        for event in events:
            if event.seq < last:
                yield event
            else:
                behind.append(event)

    def _told(self, before: RunStatus | None, event: Event, after: RunStatus) -> tuple[Announcement, ...]:
        try:
            return announcements(before, event, after, self._drills)
        except Exception as error:  # noqa: BLE001 - the next events have to be told all the same
            self._complain(f"event {event.seq} ({event.kind.value}) cannot be told: {type(error).__name__}: {error}")
            return ()

    def _write_down(self, found: Sequence[Announcement]) -> None:
        def decide(status: RunStatus, _now: Moment) -> list[Draft]:
            last, told = status.announced
            due = [one for one in found if one.of > last or (one.of == last and one.what not in told)]
            return [self._draft(one) for one in due]

        for event in self._write(decide):
            for sink in event.data.get("sinks", ()):  # a note about a torn line may stand among them
                self._lanes[sink].waiting.append(event.seq)

    def _draft(self, one: Announcement) -> Draft:
        told = {"of": one.of, "what": one.what, "text": scrub(one.text), "sinks": list(one.sinks)}
        if one.head is None:
            return self._said(_K.ANNOUNCED, one.step, told)
        return self._said(_K.HEAD, one.step, {**told, "seq": one.head.seq, "sha": one.head.sha})

    # -- delivering ---------------------------------------------------------------------------------------------

    def _send(self) -> None:
        now = time.monotonic()
        for lane in self._lanes.values():
            one = lane.trying
            if one is not None and now - one.begun > lane.sink.timeout + GRACE:
                lane.hung.append(one.thread)
                lane.trying = None
                reason = f"no answer within {lane.sink.timeout + GRACE:g} s"
                self._unwritten.append(_Result(lane.sink.name, one.number, one.of, SinkError(reason)))
            elif one is None and lane.waiting and now >= lane.not_before and not self._is_unwritten(lane):
                self._try(lane, lane.waiting[0], now)

    def _is_unwritten(self, lane: _Lane) -> bool:
        return any(result.sink == lane.sink.name for result in self._unwritten)

    def _try(self, lane: _Lane, of: int, now: float) -> None:
        lane.hung = [thread for thread in lane.hung if thread.is_alive()]
        self._tries += 1
        number, sink = self._tries, lane.sink
        if len(lane.hung) >= HUNG:
            problem = SinkError(f"{len(lane.hung)} earlier tries never came back")
            self._unwritten.append(_Result(sink.name, number, of, problem))
            return
        message = _message(self._record.status, self._record.status.deliveries[of, sink.name])

        def send() -> None:
            problem: SinkError | None = None
            try:
                sink.send(message, self._canceled)
            except SinkError as error:
                problem = error
            except BaseException as error:  # noqa: BLE001 - the waiting thread has to learn of it
                problem = SinkError(f"{type(error).__name__} in the sink")  # its text may hold a secret
            self._results.put(_Result(sink.name, number, of, problem))

        thread = threading.Thread(target=send, name=f"announce {sink.name}", daemon=True)
        lane.trying = _Try(number, of, now, thread)
        thread.start()

    def _take_results(self) -> None:
        while not self._results.empty():
            result = self._results.get()
            one = self._lanes[result.sink].trying
            late = one is None or one.number != result.number
            self._unwritten.append(replace(result, late=late))
        while self._unwritten:
            some = self._batch()
            self._write(partial(self._outcomes, some))
            for result in some:
                self._unwritten.popleft()  # only now: it is written down at the next look otherwise
                self._settle(result)

    def _batch(self) -> list[_Result]:
        """Return results to write at once: one for each delivery."""
        some: dict[tuple[int, str], _Result] = {}
        for result in self._unwritten:
            if (result.of, result.sink) in some:
                break
            some[result.of, result.sink] = result
        return list(some.values())

    def _outcomes(self, some: Sequence[_Result], status: RunStatus, _now: Moment) -> list[Draft]:
        drafts = []
        for result in some:
            one = status.deliveries[result.of, result.sink]
            if one.state not in OPEN or (result.late and result.problem is not None):
                continue  # somebody else delivered it, or its failure was counted when it did not come back
            told: dict[str, object] = {"of": result.of, "sink": result.sink}
            if result.problem is None:
                drafts.append(self._said(_K.DELIVERED, one.step, told))
            else:
                failure = self._failure(one, result.problem)
                drafts.append(self._said(_K.DELIVERY_FAILED, one.step, told | failure))
        return drafts

    def _settle(self, result: _Result) -> None:
        lane, one = self._lanes[result.sink], self._record.status.deliveries[result.of, result.sink]
        if lane.trying is not None and lane.trying.number == result.number:
            lane.trying = None
        if one.state not in OPEN:
            if lane.waiting and lane.waiting[0] == result.of:
                lane.waiting.popleft()
            lane.not_before = 0.0
        elif result.problem is not None and not result.late:
            wait = max(result.problem.wait, FIRST_WAIT * 2.0 ** (one.tries - 1))
            lane.not_before = time.monotonic() + min(LONGEST_WAIT, wait)

    @staticmethod
    def _failure(one: Delivery, problem: SinkError) -> dict[str, object]:
        tries = one.tries + 1
        given_up = problem.final or tries >= TRIES
        return {"tries": tries, "reason": scrub(problem.reason), "given_up": given_up}

    # -- writing ------------------------------------------------------------------------------------------------

    def _said(self, kind: EventKind, step: str, told: dict[str, object]) -> Draft:
        if self._keeper is None:
            return Draft(kind, self._person, "", step, 0, told)
        return Draft(kind, self._keeper.executor, "executor", step, 0, told)

    def _write(self, decide: Callable[[RunStatus, Moment], list[Draft]]) -> list[Event]:
        return self._record.write(decide, epoch=self._keeper.epoch if self._keeper is not None else None)

    def _complain(self, why: str) -> None:
        """Have the journal say once what went wrong; the same again says nothing new."""
        why = scrub(why)
        if why == self._problem:
            return
        try:
            self._write(lambda _s, _n: [self._said(_K.NOTE, "", {"alarm": OUTBOX_ALARM, "text": why})])
            self._problem = why
        except FencedError:
            self._fenced = True
        except MigverifyError:
            return  # the journal cannot be written: the executor ends by that itself, and it is said at the next look


def _message(status: RunStatus, one: Delivery) -> Message:
    return Message(f"{status.run}/{one.of}", status.run, one.step, one.what, scrub(one.text), one.at.wall)


def deliver_rest(
    record: RunRecord, person: str, *, sinks: Sequence[OpenSink] | None = None, limit: float = LONGEST_WAIT
) -> RunStatus:
    """Announce and deliver what the executor of a run that is over has left, for at most ``limit`` seconds.

    Raises
    ------
    UsageError
        the run is not over: its executor delivers; or the person is none of the runbook's.
    """
    record.refresh()
    status = record.status
    if not status.over:
        raise UsageError(f"run {status.run} is not over", hint="Its executor delivers; `run` starts one.")
    name = status.cast.person(person)
    if name is None:
        raise UsageError(f"{person!r} is none of the runbook's people")
    outbox = Outbox(record, None, open_sinks(status.runbook.sinks) if sinks is None else sinks, person=name)
    outbox.end(limit)
    record.refresh()
    return record.status
