"""Updates that take unique values from one another: in which order, and which rows can only change together.

Row 1 that takes what row 2 gives up comes behind row 2. Where rows exchange values, no order of single updates can do
it: these rows are deleted and inserted again in one transaction, if each of them still is what was read. Foreign keys
are not checked meanwhile, so nothing cascades from the deletes. Triggers would fire: a table with such has no exchange.
"""

from __future__ import annotations

import json
import unicodedata
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from migverify.errors import RepairError
from migverify.model import TableDef
from migverify.tables.repair_files import Stack

MOST_MOVERS = 200_000
"""Rows of one table that change a unique value; what is known of them stays in memory."""
MOST_TOGETHER = 10_000
"""Rows that are deleted and inserted again in one transaction."""

Value = tuple[int, tuple[object, ...]]
"""A value of a unique index: the index's number, and its parts, which are equal wherever a collation might say so."""


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """A unique index of the target: the places of its compared columns, and how much of each it holds (None: all)."""

    parts: tuple[tuple[int, int | None], ...]

    def value(self, number: int, row: Sequence[bytes | None]) -> Value | None:
        """Return what a row occupies in this index; None for a row with a NULL, which no other row collides with."""
        found: list[object] = []
        for place, prefix in self.parts:
            text = row[place]
            if text is None:
                return None
            found.append(_loose(text, prefix))
        return number, tuple(found)


def _loose(text: bytes, prefix: int | None) -> object:
    """Equate more than any collation does: a row too many that is moved with others does no harm."""
    try:
        cut = text.decode("utf-8")[:prefix]
    except UnicodeDecodeError:
        return text[:prefix]
    plain = "".join(c for c in unicodedata.normalize("NFKD", cut) if not unicodedata.combining(c))
    return plain.casefold().rstrip(" ")


def unique_indexes(target: TableDef, columns: Sequence[str], key: set[str]) -> tuple[UniqueIndex, ...]:
    """Return the unique indexes besides the key; parts that are not compared count as equal in all rows."""
    found = []
    for index in target.indexes:
        if not index.unique or set(index.columns) <= key:
            continue
        sizes = zip(index.columns, index.prefixes, strict=True)
        if parts := tuple((columns.index(name), size) for name, size in sizes if name in columns):
            found.append(UniqueIndex(parts))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Exchange:
    """What changes a row together with others, and what restores it: each locks, deletes and inserts the row."""

    forward: tuple[str, str, str]
    inverse: tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """What repairs one row, and what restores it.

    ``freed`` and ``taken`` are the unique values that an UPDATE changes; ``exchange`` how it is done together with
    other rows, or the reason why it cannot be.
    """

    forward: str
    inverse: str
    freed: tuple[Value, ...] = ()
    taken: tuple[Value, ...] = ()
    exchange: Exchange | str = ""


class Movers(AbstractContextManager["Movers"]):
    """The changes of rows that take or give up a unique value, until all are known; statements are on disk."""

    def __init__(self) -> None:
        self._texts = Stack()
        self._freed: dict[Value, list[int]] = defaultdict(list)
        self._taken: list[tuple[Value, ...]] = []

    def add(self, change: Change) -> None:
        """Keep a change.

        Raises
        ------
        RepairError
            there are too many.
        """
        number = len(self._taken)
        if number == MOST_MOVERS:
            raise RepairError(f"more than {MOST_MOVERS:,} rows change a unique value: repair these, then verify again")
        exchange = change.exchange
        rest = [exchange] if isinstance(exchange, str) else [exchange.forward, exchange.inverse]
        self._texts.push(json.dumps([change.forward, change.inverse, *rest]))
        self._taken.append(change.taken)
        for value in change.freed:
            self._freed[value].append(number)

    def in_order(self) -> Iterator[list[Change]]:
        """Yield all changes, each behind those whose values it takes; rows that exchange values come as one list."""
        before = [{m for value in taken for m in self._freed.get(value, ())} - {n} for n, taken in
                  enumerate(self._taken)]  # fmt: skip
        after: dict[int, list[int]] = defaultdict(list)
        for number, others in enumerate(before):
            for other in others:
                after[other].append(number)
        ready = deque(number for number, others in enumerate(before) if not others)
        left = set(range(len(before)))
        while ready:
            number = ready.popleft()
            left.remove(number)
            yield [self._change(number)]
            for later in after[number]:
                before[later].remove(number)
                if not before[later]:
                    ready.append(later)
        while left:
            yield [self._change(number) for number in sorted(_reachable(left, before, after))]

    def _change(self, number: int) -> Change:
        forward, inverse, *rest = json.loads(self._texts[number])
        return Change(forward, inverse, exchange=Exchange(*map(tuple, rest)) if len(rest) > 1 else rest[0])

    def __exit__(self, *_: object) -> None:
        self._texts.close()


def _reachable(left: set[int], before: Sequence[set[int]], after: dict[int, list[int]]) -> set[int]:
    """Take one number out of ``left``, with all that are linked to it."""
    found, waiting = set[int](), [left.pop()]
    while waiting:
        number = waiting.pop()
        found.add(number)
        linked = (before[number] | set(after[number])) & left
        left -= linked
        waiting += linked
    return found


def why_not_together(changes: Sequence[Change]) -> str:
    """Return why rows that exchange values cannot be changed in one transaction, ``""`` when they can."""
    if len(changes) > MOST_TOGETHER:
        return f"{len(changes):,} rows exchange unique values, more than one transaction may hold ({MOST_TOGETHER:,})"
    reason = next((change.exchange for change in changes if isinstance(change.exchange, str)), "")
    return f"exchanges unique values with rows of which one cannot be inserted again: {reason}" if reason else ""
