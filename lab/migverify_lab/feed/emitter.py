"""Sends changes in the order of their commit timestamps, partition by partition, and watermarks behind them."""

from __future__ import annotations

import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from migverify_lab.feed.faults import CarrierFaults, SentChange
from migverify_lab.feed.model import DdlEvent, Event, RowEvent
from migverify_lab.feed.outputs import FeedOutput


class Dispatch(StrEnum):
    """Which partition a row goes to: one for each table, or by a hash of the row's key (TiCDC: ``index-value``)."""

    TABLE = "table"
    INDEX_VALUE = "index-value"


@dataclass(slots=True)
class Emitter:
    """Keeps changes until a watermark completes them; ``report`` may be called by several threads, ``flush`` by one.

    ``applied`` tells up to which commit timestamp MySQL follows, as far as that is known: a message that a fault makes
    late is sent once the next one of its row was applied, or no reader would be sure to see it late.
    """

    output: FeedOutput
    dispatch: Dispatch = Dispatch.INDEX_VALUE
    faults: CarrierFaults = field(default_factory=CarrierFaults)
    applied: Callable[[], float] = lambda: float("inf")
    rows: int = 0
    _late: list[SentChange] = field(default_factory=list)
    _sent: int = 0
    _pending: list[Event] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def report(self, events: Sequence[Event]) -> None:
        """Take the changes of one transaction."""
        with self._lock:
            self._pending += events

    def flush(self, resolved: int) -> None:
        """Send what was committed up to a timestamp that nothing under way can come below, then that timestamp."""
        self._send_late(resolved)
        if resolved <= self._sent:
            return
        self._sent = resolved
        with self._lock:
            ready = [event for event in self._pending if event.commit <= resolved]
            self._pending = [event for event in self._pending if event.commit > resolved]
        ready.sort(key=lambda event: event.commit)
        deliveries = self.faults.deliver(ready)
        self._send([delivery for delivery in deliveries if not delivery.late])
        self.output.resolve(resolved)
        self._late += [delivery for delivery in deliveries if delivery.late]
        self.rows += sum(isinstance(event, RowEvent) for event in ready)

    @property
    def is_late(self) -> bool:
        """Whether a message waits that a fault makes late."""
        return bool(self._late)

    def _send_late(self, resolved: int) -> None:
        due = [delivery for delivery in self._late if delivery.behind <= self.applied()]
        if not due:
            return
        self._send(due)
        self.output.resolve(resolved)
        for delivery in due:
            if isinstance(delivery.event, RowEvent):
                self.faults.sent_late(delivery.event)
        self._late = [delivery for delivery in self._late if delivery not in due]

    def _send(self, deliveries: Sequence[SentChange]) -> None:
        """Send rows to their partitions, and a DDL to all of them between the rows before and behind it."""
        waiting: defaultdict[int, list[Event]] = defaultdict(list)
        for delivery in deliveries:
            event = delivery.event
            if isinstance(event, DdlEvent):
                for partition in range(self.output.partitions):
                    waiting[partition].append(event)
            else:
                waiting[(self._partition(event) + delivery.shift) % self.output.partitions].append(event)
        for partition, events in sorted(waiting.items()):
            self.output.send(partition, events)

    def _partition(self, event: RowEvent) -> int:
        name = event.table.name
        if self.dispatch is Dispatch.INDEX_VALUE:
            name = "\0".join([name, *(part or "" for part in event.key)])
        return zlib.crc32(name.encode("utf-8"))
