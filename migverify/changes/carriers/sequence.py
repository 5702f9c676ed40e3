"""Watches the order in which changes arrive: duplicates, changes out of order, rows that moved to another partition.

Exact for a stream of any length: gaps of offsets, and changes that come after a watermark which
promised there were none. Bounded: duplicates, order per key and partition per key are known for the ``limit`` row keys
(and as many changes) seen last. As long as nothing had to be forgotten, those counts are exact too
(``OrderCounts.exact``); afterwards they are lower bounds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import InitVar, dataclass, field
from hashlib import blake2b
from typing import TypeVar

from migverify.changes.carriers.base import Carried, CarriedItem, Reject, SourceOrder, Watermark
from migverify.changes.model import Statement
from migverify.changes.positions import tso_position

T = TypeVar("T")

LIMIT = 200_000
"""Row keys, and changes, that are remembered: about 100 MB."""

_VOIDS = (
    ("rejects", "messages could not be decoded"),
    ("late", "changes came after a watermark that excluded them"),
    ("out_of_order", "changes came after a later change of their row"),
    ("moved", "changes came on another partition than the change of the row before"),
    ("without_key", "changes name no key: their order cannot be checked"),
)


@dataclass(slots=True)
class OrderCounts:
    """What was seen of the order of a stream. ``exact`` says whether the bounded counts are exact."""

    changes: int = 0
    rejects: int = 0
    duplicates: int = 0
    out_of_order: int = 0
    moved: int = 0
    late: int = 0
    offset_gaps: int = 0
    without_key: int = 0
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Completeness:
    """Up to where the stream is complete, as a commit timestamp, and what voids that.

    ``complete_to`` is the lowest of the partitions' watermarks; None when one of them has none.
    """

    complete_to: int | None
    voided: tuple[str, ...]


@dataclass(slots=True)
class Watermarks:
    """The watermarks of a stream of (topic, partition)s; ``partitions`` are those that it consists of."""

    partitions: set[tuple[str, int]] = field(default_factory=set)
    _of: dict[tuple[str, int] | None, int] = field(default_factory=dict)  # None: everywhere

    def see(self, mark: Watermark) -> int:
        """Take the next watermark and return the highest one of its partition; one that goes back says nothing new."""
        here = None if mark.everywhere else (mark.place.topic, mark.place.partition)
        highest = self._of[here] = max(mark.complete_to, self._of.get(here, 0))
        return highest

    def promised(self, here: tuple[str, int]) -> int:
        """Return the timestamp below which no more changes should come on a partition."""
        return max(self._of.get(here, 0), self._of.get(None, 0))

    def complete_to(self) -> int | None:
        """Return the lowest watermark of all partitions: below it everything is there; None where one has none."""
        everywhere = self._of.get(None)
        if not self.partitions:
            return everywhere
        marks = [self._of.get(here, everywhere) for here in self.partitions]
        known = [mark for mark in marks if mark is not None]
        return min(known) if known and len(known) == len(marks) else None


@dataclass(slots=True)
class OrderTracker:
    """Counts what is wrong with the order of the items handed to ``see``, in bounded memory.

    Parameters
    ----------
    limit
        How many row keys and changes to remember.
    partitions
        The (topic, partition) that the stream consists of: a partition that never gave a watermark counts.
    """

    limit: int = LIMIT
    partitions: InitVar[Iterable[tuple[str, int]]] = ()
    counts: OrderCounts = field(default_factory=OrderCounts)
    _rows: OrderedDict[bytes, tuple[SourceOrder, tuple[str, int]]] = field(default_factory=OrderedDict)
    _recent: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    _watermarks: Watermarks = field(default_factory=Watermarks)
    _next: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self, partitions: Iterable[tuple[str, int]]) -> None:
        self._watermarks.partitions |= set(partitions)

    def see(self, item: CarriedItem) -> bool:
        """Take the next item; return whether it is a change that was not seen before."""
        repeated = not (isinstance(item, Watermark) and item.everywhere) and self._offset(item)
        if isinstance(item, Carried):
            return self._change(item) and not repeated
        if isinstance(item, Watermark):
            self._watermarks.see(item)
        elif isinstance(item, Reject):
            self.counts.rejects += 1
        return False

    def completeness(self) -> Completeness:
        """Return up to where the stream is complete, and each reason why it may not be."""
        reasons = [f"{getattr(self.counts, name)} {text}" for name, text in _VOIDS if getattr(self.counts, name)]
        if not self.counts.exact:
            reasons.append(f"more than {self.limit} rows or changes: those seen longest ago were not compared")
        return Completeness(self._watermarks.complete_to(), tuple(reasons))

    def _change(self, item: Carried) -> bool:
        statement = isinstance(item.event, Statement)
        if not statement:
            self.counts.changes += 1
        if self._is_known(item):
            if not statement:  # TiCDC sends a statement to every partition
                self.counts.duplicates += 1
            return False
        here = (item.place.topic, item.place.partition)
        promised = self._watermarks.promised(here)
        if promised and item.order is not None and item.order.is_before(SourceOrder(tso_position(promised))):
            self.counts.late += 1
        if isinstance(item.event, Statement):
            return True
        if item.key is None:
            self.counts.without_key += 1
            return True
        self._order(item, here, _digest(item.event.table.name, item.key))
        return True

    def _order(self, item: Carried, here: tuple[str, int], row: bytes) -> None:
        before = self._rows.pop(row, None)
        if before is not None:
            order, there = before
            # Another file is no move: a storage sink begins files all the time, and in order.
            if there != here and there[0] == here[0]:
                self.counts.moved += 1
            if item.order is not None and item.order.is_before(order):
                self.counts.out_of_order += 1
                self._keep(self._rows, row, (order, here))
                return
        if item.order is not None:
            self._keep(self._rows, row, (item.order, here))

    def _is_known(self, item: Carried) -> bool:
        """Tell whether the same change was seen: same rows, same place in the source."""
        if item.order is None:
            return False
        event = item.event
        written = event.sql if isinstance(event, Statement) else (event.table.name, event.images)
        place = item.order.position
        digest = _digest(event.op, place.file, place.offset, item.order.server, item.order.row, written)
        if digest in self._recent:
            self._recent.move_to_end(digest)
            return True
        self._keep(self._recent, digest, None)
        return False

    def _offset(self, item: CarriedItem) -> bool:
        """Follow the offsets of the partition; return whether this one was read before."""
        here, offset = (item.place.topic, item.place.partition), item.place.offset
        expected = self._next.get(here)
        if isinstance(item, Carried) and item.index and expected == offset + 1:
            return False  # another change of the same message
        if expected is not None and offset < expected:
            return True
        if expected is not None and offset > expected:
            self.counts.offset_gaps += offset - expected
        self._next[here] = offset + 1
        self._watermarks.partitions.add(here)
        return False

    def _keep(self, kept: OrderedDict[bytes, T], key: bytes, value: T) -> None:
        kept[key] = value
        if len(kept) > self.limit:
            kept.popitem(last=False)
            self.counts.exact = False


def _digest(*parts: object) -> bytes:
    return blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()
