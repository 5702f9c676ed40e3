"""The outbox of a run: an announcement is in the journal before it is sent, and what became of it follows there.

An announcement is written for all its sinks first; then every sink is sent to in a thread of its own, urgent ones
first, each one until it is sent or given up. What is announced and not delivered when an executor goes is tried again
by the next one, so a sink may get a text twice and never not at all. Only the executor's own thread reads and writes
the journal here; nothing that goes wrong ends or delays the run, and all of it is in ``RunStatus``.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from migverify.errors import FencedError, MigverifyError, UsageError
from migverify.runbook.announce.lanes import LONGEST_WAIT, TRIES, Lanes, Noted
from migverify.runbook.announce.moments import Announcement, announcements, fields_of, group_of
from migverify.runbook.announce.sinks import Message, OpenSink, SinkError, open_sink
from migverify.runbook.clock import Moment
from migverify.runbook.definition.forecast import NO_DRILLS, Drills
from migverify.runbook.events import Event, EventKind
from migverify.runbook.fold.run import OPEN, OUTBOX_ALARM
from migverify.runbook.fold.table import fold
from migverify.runbook.record.chain import Draft
from migverify.runbook.record.lease import RunLease
from migverify.runbook.record.run_record import RunRecord
from migverify.runbook.state import Delivery, RunStatus
from migverify.secrets import scrub

__all__ = ["DRAIN", "Outbox", "deliver_rest"]

DRAIN = 10.0
"""Seconds that an executor waits at its end for what is on its way."""

_K = EventKind


class Outbox:
    """Announces a run and delivers, for one executor. Not shared by threads.

    Parameters
    ----------
    lease
        The executor's; None: the run is over, and ``person`` of its people delivers what was left.
    sinks
        Those of the runbook, opened.
    drills
        What earlier drills say: every text names which rehearsal this is, and forecasts by them.
    """

    def __init__(
        self, record: RunRecord, lease: RunLease | None, sinks: Sequence[OpenSink], *, drills: Drills = NO_DRILLS,
        person: str = "",
    ) -> None:  # fmt: skip
        self._record, self._drills = record, drills
        self._actor, self._role = (lease.executor, "executor") if lease is not None else (person, "")
        self._epoch = lease.epoch if lease is not None else None
        self._lanes = Lanes(sinks, self._message, self._note)
        self._followed: deque[Event] | None = None
        self._before: RunStatus | None = None
        self._fenced = False
        self._problem = ""

    def tick(self) -> None:
        """Announce what is new, write down what came back, begin what is due; never waits, never raises."""
        if not self._lanes or self._fenced:
            return
        try:
            self._announce()
            self._lanes.tick()
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
        while not self._fenced and time.monotonic() < until and not self._lanes.is_idle(until):
            time.sleep(0.01)
            self.tick()
        self._lanes.cancel()

    # -- announcing ---------------------------------------------------------------------------------------------

    def _announce(self) -> None:
        followed = self._followed if self._followed is not None else self._begin()
        self._record.refresh()
        before, found, some = self._before, list[Announcement](), list(followed)
        for event in some:
            if before is not None and event.seq <= before.seq:
                continue
            after = fold([event], before)
            if after is not None:
                found += self._made_of(before, event, after)
            before = after
        if found:
            self._write_down(found)
        # Only now: when the journal could not be written, the same events are announced at the next look.
        self._before = before
        for _ in some:
            followed.popleft()

    def _begin(self) -> deque[Event]:
        """Read what an earlier executor announced, and go on behind it."""
        self._record.refresh()
        status, behind = self._record.status, list[Event]()
        before = fold(self._up_to(self._record.journal.events(), status.announced[0], behind))
        followed = self._record.follow()
        # What somebody else wrote since the refresh comes with the next one.
        followed.extend(event for event in behind if event.seq <= status.seq)
        for (_, sink), one in sorted(status.deliveries.items()):
            if one.state in OPEN and sink in self._lanes:
                self._queue(one)
        self._before, self._followed = before, followed
        return followed

    @staticmethod
    def _up_to(events: Iterable[Event], last: int, behind: list[Event]) -> Iterable[Event]:
        """Yield the events before the last one that was announced; keep the others: they may have more to say."""
        for event in events:
            if event.seq < last:
                yield event
            else:
                behind.append(event)

    def _made_of(self, before: RunStatus | None, event: Event, after: RunStatus) -> tuple[Announcement, ...]:
        try:
            return announcements(before, event, after, self._drills)
        except Exception as error:  # noqa: BLE001 - the next events have to be announced all the same
            self._complain(
                f"event {event.seq} ({event.kind.value}) cannot be announced: {type(error).__name__}: {error}"
            )
            return ()

    def _write_down(self, found: Sequence[Announcement]) -> None:
        def decide(status: RunStatus, _now: Moment) -> list[Draft]:
            last, kinds = status.announced
            due = [one for one in found if one.of > last or (one.of == last and one.what not in kinds)]
            return [self._draft(one) for one in due]

        for event in self._write(decide):
            for sink in event.data.get("sinks", ()):  # a note about a torn line may be among them
                self._queue(self._record.status.deliveries[event.seq, sink])

    def _queue(self, one: Delivery) -> None:
        self._lanes.add(one.sink, one.of, _topic(one), urgent=group_of(one.what) == "urgent")

    def _draft(self, one: Announcement) -> Draft:
        content = {"of": one.of, "what": one.what, "text": scrub(one.text), "sinks": list(one.sinks)}
        if one.topic:
            content["topic"] = one.topic
        if one.head is None:
            return self._draft_of(_K.ANNOUNCED, one.step, content)
        return self._draft_of(_K.HEAD, one.step, {**content, "seq": one.head.seq, "sha": one.head.sha})

    # -- delivering ---------------------------------------------------------------------------------------------

    def _message(self, of: int, sink: str) -> Message:
        status = self._record.status
        return _message(status, status.deliveries[of, sink], self._drills)

    def _note(self, sink: str, of: int, problem: SinkError | None) -> Noted:
        self._write(partial(self._outcome, sink, of, problem))
        after = self._record.status.deliveries[of, sink]
        return Noted(after.state in OPEN, after.tries)

    def _outcome(self, sink: str, of: int, problem: SinkError | None, status: RunStatus, _now: Moment) -> list[Draft]:
        one, data = status.deliveries[of, sink], {"of": of, "sink": sink}
        if one.state not in OPEN:
            return []
        if problem is None:
            return [self._draft_of(_K.DELIVERED, one.step, data)]
        tries = one.tries + 1
        failure = {"tries": tries, "reason": scrub(problem.reason), "given_up": problem.final or tries >= TRIES}
        return [self._draft_of(_K.DELIVERY_FAILED, one.step, data | failure)]

    # -- writing ------------------------------------------------------------------------------------------------

    def _draft_of(self, kind: EventKind, step: str, data: Mapping[str, object]) -> Draft:
        return Draft(kind, self._actor, self._role, step, 0, dict(data))

    def _write(self, decide: Callable[[RunStatus, Moment], list[Draft]]) -> list[Event]:
        return self._record.write(decide, epoch=self._epoch)

    def _complain(self, why: str) -> None:
        """Have the journal say once what went wrong; the same again says nothing new."""
        why = scrub(why)
        if why == self._problem:
            return
        try:
            self._write(lambda _s, _n: [self._draft_of(_K.NOTE, "", {"alarm": OUTBOX_ALARM, "text": why})])
            self._problem = why
        except FencedError:
            self._fenced = True
        except MigverifyError:
            return  # the journal cannot be written: the executor ends by that itself, and it is said at the next look


def _message(status: RunStatus, one: Delivery, drills: Drills) -> Message:
    fields = {name: scrub(value) for name, value in fields_of(status, one, drills).items()}
    topic = f"{status.run}/{_topic(one)}"
    return Message(
        f"{status.run}/{one.of}", status.run, one.step, one.what, scrub(one.text), one.at.wall, fields, topic
    )


def _topic(one: Delivery) -> str:
    return one.topic or one.step or "run"


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
    opened = [open_sink(one) for one in status.runbook.sinks.values()] if sinks is None else sinks
    Outbox(record, None, opened, person=name).end(limit)
    record.refresh()
    return record.status
