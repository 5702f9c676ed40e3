"""A carrier cut to some tables and a range of commit timestamps: what a window of a rule reads of it.

Messages come at least once: a change that comes again is left out here, as a reader of rows would count it twice. A
message that cannot be decoded was committed between the watermarks of its partition before and after it; where that is
outside of the range, or the message is about other tables, it is left out too. So one bad message voids the windows
that it may be in, and no others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeAlias

from migverify.changes.carriers.base import (
    Carried,
    CarriedItem,
    CarriedRow,
    Carrier,
    Heartbeat,
    Reject,
    Watermark,
)
from migverify.changes.carriers.committed import MOST_REMEMBERED
from migverify.changes.carriers.known_changes import KnownChanges, exact_mark
from migverify.changes.carriers.sequence import Watermarks
from migverify.changes.model import Position, Statement

_QUIET_BEATS = 5
"""After so many heartbeats without a message between them, a followed carrier is at its present end."""
_MOST_SEEN = 2 * MOST_REMEMBERED
"""Changes that are recognized when they come again. One that is forgotten here is a broken promise to the reader."""
_MOST_REJECTS = 1000
"""Rejects that wait for a watermark; more of them are none of single messages."""

_Partition: TypeAlias = tuple[str, int]


@dataclass(slots=True)
class TableRange:
    """The messages of a carrier that may hold changes of a table in a range; see ``Carrier``.

    Parameters
    ----------
    tables
        Database and table of each.
    start, end
        Changes that were committed after ``start`` and before ``end``, as timestamps of TiDB; an ``end`` of None is the
        end of the messages. Earlier changes are given as well: they show how far back the carrier reaches.
    endless
        Whether ``follow`` goes on without end, as that of the carrier, and gives changes that come again. Else it ends
        where the carrier ended when it was opened.
    """

    carrier: Carrier
    tables: Collection[tuple[str, str]]
    start: int = 0
    end: int | None = None
    endless: bool = False
    _names: set[tuple[str, str]] = field(init=False)
    _marks: Watermarks = field(default_factory=Watermarks)
    _rejects: list[tuple[Reject, int]] = field(default_factory=list)
    _seen: KnownChanges = field(default_factory=lambda: KnownChanges(_MOST_SEEN, exact_mark))
    _next: dict[_Partition, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # TiDB takes names in any case.
        self._names = {(database.casefold(), table.casefold()) for database, table in self.tables}

    @property
    def ends(self) -> Mapping[_Partition, int]:
        """Those of the carrier."""
        return self.carrier.ends

    @property
    def partitions(self) -> Set[_Partition]:
        """Those of the carrier."""
        return self.carrier.partitions

    def kept_with(self, topic: str, partition: int) -> _Partition | None:
        """Return what the carrier keeps a partition with."""
        return self.carrier.kept_with(topic, partition)

    def is_added(self, part: _Partition, since: Position, reaching: Set[_Partition]) -> bool:
        """Return what the carrier knows of a part."""
        return self.carrier.is_added(part, since, reaching)

    def read(self, since: Position | None = None) -> Iterator[CarriedItem]:
        """Yield what the messages hold; errors as ``Carrier.follow``."""
        for item in self.follow(since):
            if not isinstance(item, Heartbeat):
                yield item

    def follow(self, since: Position | None) -> Iterator[CarriedItem | Heartbeat]:
        """Yield what the messages hold; errors as ``Carrier.follow``."""
        decoded = False
        for item in self._messages(since):
            if isinstance(item, Reject) and item.looks_like and not decoded:
                yield item  # messages of another format: no watermark will close it
                continue
            decoded = decoded or not isinstance(item, Reject | Heartbeat)
            if isinstance(item, Carried | CarriedRow):
                if self._is_wanted(item):
                    yield item
            elif isinstance(item, Watermark):
                yield from self._watermark(item)
            elif isinstance(item, Reject):
                here = (item.place.topic, item.place.partition)
                self._rejects.append((item, self._marks.promised(here)))
                if len(self._rejects) > _MOST_REJECTS:
                    yield from self._closed(None, None)
            else:
                yield item
        yield from self._closed(None, None)

    def _messages(self, since: Position | None) -> Iterator[CarriedItem | Heartbeat]:
        if self.endless:
            return self.carrier.follow(since)
        # Partitions of topics come side by side where they are followed, and a reader can stop early.
        return self._to_ends(since) if self.ends else self.carrier.read(since)

    def _to_ends(self, since: Position | None) -> Iterator[CarriedItem | Heartbeat]:
        """Follow a carrier up to the offsets at which its partitions ended when it was opened."""
        ends = dict(self.ends)
        quiet = 0
        for item in self.carrier.follow(since):
            yield item
            if not isinstance(item, Heartbeat):
                quiet = 0
                here = (item.place.topic, item.place.partition)
                self._next[here] = item.place.offset + 1
                continue
            # Behind the last message of a partition may be offsets without one: markers of transactions.
            quiet += 1
            if quiet > _QUIET_BEATS or all(self._next.get(here, 0) >= end for here, end in ends.items()):
                return

    def _is_wanted(self, item: Carried | CarriedRow) -> bool:
        if isinstance(item, CarriedRow):
            tables = ((item.table.database, item.table.table),)
            return self._is_in_range(item.commit, tables) and self._is_new(item.commit, item)
        order, event = item.order, item.event
        if order is None or order.server:
            return True  # whoever puts them in order says what is wrong with it
        commit = order.position.offset
        if isinstance(event, Statement):
            return self._is_in_range(commit, event.tables)
        tables = ((event.table.database, event.table.table),)
        return self._is_in_range(commit, tables) and self._is_new(commit, item)

    def _is_in_range(self, commit: int, tables: Sequence[tuple[str, str]]) -> bool:
        return commit <= self.start or (self._is_before_end(commit) and self._is_of_table(tables))

    def _is_before_end(self, commit: int) -> bool:
        return self.end is None or commit < self.end

    def _is_of_table(self, tables: Sequence[tuple[str, str]]) -> bool:
        """Whether something may be about a table: about all for no names, about a database for one without a table."""
        if not tables:
            return True
        named = {(database.casefold(), table.casefold()) for database, table in tables}
        return any((database, "") in named or (database, table) in named for database, table in self._names)

    def _is_new(self, commit: int, item: Carried | CarriedRow) -> bool:
        return commit <= self.start or self.endless or self._seen.note(commit, item)

    def _watermark(self, mark: Watermark) -> Iterator[CarriedItem]:
        here = None if mark.everywhere else (mark.place.topic, mark.place.partition)
        highest = self._marks.see(mark)
        yield from self._closed(here, highest)
        # One that goes back outside of the range tells nothing about it.
        if mark.complete_to == highest or (highest > self.start + 1 and self._is_before_end(mark.complete_to)):
            yield mark

    def _closed(self, here: _Partition | None, highest: int | None) -> Iterator[Reject]:
        """Yield rejects in the range that a watermark closes; ``here`` None closes those of all partitions.

        ``highest`` is None behind the last message.
        """
        still = []
        for reject, promised in self._rejects:
            if here is not None and here != (reject.place.topic, reject.place.partition):
                still.append((reject, promised))
            elif (
                (highest is None or highest > self.start + 1)
                and self._is_before_end(promised)
                and self._is_of_table(reject.tables)
            ):
                yield reject
        self._rejects = still
