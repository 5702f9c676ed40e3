"""Sends changes in the order of their commit timestamps, partition by partition, and watermarks behind them."""

from __future__ import annotations

import threading
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from migverify_lab.feed.faults import CarrierFaults, Delivery
from migverify_lab.feed.model import DdlEvent, Event, RowEvent
from migverify_lab.feed.outputs import Output


class Dispatch(StrEnum):
    """Which partition a row goes to: one for each table, or by a hash of the row's key (TiCDC: ``index-value``)."""

    TABLE = "table"
    INDEX_VALUE = "index-value"


@dataclass(slots=True)
class Emitter:
    """Keeps changes until a watermark completes them; ``report`` may be called by several threads, ``flush`` by one."""

    output: Output
    dispatch: Dispatch = Dispatch.INDEX_VALUE
    faults: CarrierFaults = field(default_factory=CarrierFaults)
    rows: int = 0
    _sent: int = 0
    _pending: list[Event] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def report(self, events: Sequence[Event]) -> None:
        """Take the changes of one transaction."""
        with self._lock:
            self._pending += events

    def flush(self, resolved: int) -> None:
        """Send what was committed up to a timestamp that nothing under way can come below, then that timestamp."""
        if resolved <= self._sent:
            return
        self._sent = resolved
        with self._lock:
            ready = [event for event in self._pending if event.commit <= resolved]
            self._pending = [event for event in self._pending if event.commit > resolved]
        ready.sort(key=lambda event: event.commit)
        deliveries = self.faults.deliver(ready)
        self._send([one for one in deliveries if not one.late])
        self.output.resolve(resolved)
        late = [one for one in deliveries if one.late]
        if late:
            self._send(late)
            self.output.resolve(resolved)
        self.rows += sum(isinstance(event, RowEvent) for event in ready)

    def _send(self, deliveries: Sequence[Delivery]) -> None:
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
