"""The watch of readiness: evaluates when it is due, writes down what changed, and delivers meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from migverify.runbook.announce.lanes import Lanes, Noted
from migverify.runbook.announce.moments import group_of
from migverify.runbook.announce.outbox import DRAIN
from migverify.runbook.announce.sinks import Message, OpenSink, SinkError
from migverify.runbook.model import Sink
from migverify.runbook.readiness.evaluation import (
    ConditionAnnouncement,
    ConditionChange,
    ReadinessEvaluation,
    announced,
    changes,
    known_after,
    standing_changes,
)
from migverify.runbook.readiness.log import ReadinessLog
from migverify.watch.loop import Ending, watch

__all__ = ["ReadinessStatus", "ReadinessWatch"]

CLOCKS = (time.time, time.monotonic)
"""An evaluation is due by the first of them: one may be set back by a day, the other rests while the machine sleeps."""
_LOOK = 0.05
"""Seconds between two looks at deliveries that are on their way."""


@dataclass(frozen=True, slots=True)
class ReadinessStatus:
    """What the evaluation of a number (from 1) found and changed.

    ``undelivered`` are announcements of earlier evaluations that a sink has not taken, ``given_up`` those without a
    further try.
    """

    number: int
    evaluation: ReadinessEvaluation
    changes: tuple[ConditionChange, ...]
    undelivered: int
    given_up: int


class ReadinessWatch:
    """Evaluates every ``every`` seconds, ``times`` times or until it is stopped; see ``watch.loop.Watchable``.

    Parameters
    ----------
    evaluate
        Reads everything now. What cannot be read is a condition that is not known, never an error.
    sinks, opened
        The runbook's, as they were when the watch began, and opened.
    command
        What people type to see all conditions.
    on_status
        Receives the status of each evaluation.
    clocks
        Seconds that go on; see ``CLOCKS``.
    """

    def __init__(
        self, evaluate: Callable[[], ReadinessEvaluation], log: ReadinessLog, sinks: Mapping[str, Sink],
        opened: Sequence[OpenSink], *, name: str, every: float, times: int | None, command: str,
        on_status: Callable[[ReadinessStatus], None], clocks: Sequence[Callable[[], float]] = CLOCKS,
    ) -> None:  # fmt: skip
        self._evaluate, self._log, self._sinks, self._name = evaluate, log, sinks, name
        self._every, self._times, self._command = every, times, command
        self._on_status, self._clocks = on_status, clocks
        self._number, self._due = 0, [float("-inf") for _ in clocks]
        self._last: ReadinessStatus | None = None
        self._lanes = Lanes(opened, self._message, self._note)
        for (of, sink), one in sorted(log.undelivered.items()):
            if sink not in sinks:
                log.note(of, sink, SinkError("the runbook has no such sink any more", final=True))
            elif sink in self._lanes:
                self._queue(sink, of, one.announcement)

    def run(
        self, stop: Callable[[], bool] = lambda: False, wait: Callable[[float], object] = time.sleep
    ) -> ReadinessStatus | None:
        """Watch until it ends, deliver what is on its way for a while, and return the last status."""
        watch(self, stop=stop, wait=wait)
        self._drain()
        return self._last

    def due(self, began: float) -> float:
        """Return the seconds until the next evaluation, or the next look at what is on its way."""
        del began
        left = self._left()
        return left if self._lanes.is_idle() else min(left, _LOOK)

    def check(self, stop: Callable[[], bool]) -> ReadinessEvaluation | None:
        """Evaluate, when it is time to."""
        if stop() or self._left() > 0:
            return None
        self._due = [now() + self._every for now in self._clocks]
        return self._evaluate()

    def _left(self) -> float:
        return min(due - now() for due, now in zip(self._due, self._clocks, strict=True))

    def record(self, work: ReadinessEvaluation | None) -> None:
        """Write down what changed, then deliver it."""
        if work is not None:
            self._number += 1
            left = len(self._log.undelivered)
            some = changes(self._log.known, self._log.verdict, work)
            made = announced(work, some, self._sinks, self._command)
            in_log = self._log.sinks if self._log.sinks is not None else self._sinks.keys()
            new = {name: sink for name, sink in self._sinks.items() if name not in in_log}
            made += announced(work, standing_changes(work, some), new, self._command)
            known = known_after(self._log.known, work)
            for number, one in self._log.record(work.at, work.verdict, known, made, self._sinks):
                for sink in one.sinks:
                    if sink in self._lanes:
                        self._queue(sink, number, one)
            self._last = ReadinessStatus(self._number, work, some, left, self._log.given_up)
            self._on_status(self._last)
        self._lanes.tick()

    def ending(self) -> Ending | None:
        """Return DONE after the last evaluation."""
        return Ending.DONE if self._times is not None and self._number >= self._times else None

    def status(self, ending: Ending | None = None) -> ReadinessStatus | None:
        """Return the status of the last evaluation; None where the watch was stopped before the first."""
        del ending
        return self._last

    def _drain(self) -> None:
        until = time.monotonic() + DRAIN
        self._lanes.tick()
        while not self._lanes.is_idle(until) and time.monotonic() < until:
            time.sleep(0.01)
            self._lanes.tick()
        self._lanes.cancel()
        if self._last is not None:
            self._last = replace(self._last, undelivered=len(self._log.undelivered), given_up=self._log.given_up)

    def _queue(self, sink: str, number: int, one: ConditionAnnouncement) -> None:
        self._lanes.add(sink, number, one.topic, urgent=group_of(one.what) == "urgent")

    def _message(self, of: int, sink: str) -> Message:
        one = self._log.undelivered[of, sink]
        made = one.announcement
        log = f"{self._name}-{one.log}" if one.log else self._name
        return Message(
            f"{log}/{of}", self._name, "", made.what, made.text, one.at, made.fields, topic=made.topic
        )  # fmt: skip

    def _note(self, sink: str, of: int, problem: SinkError | None) -> Noted:
        return self._log.note(of, sink, problem)
