"""Which changes were seen before: messages come at least once.

A message is decoded whole until a pattern of its kind is made, and by the pattern from then on (see ``lazy``): the same
change has other bytes then. So a change that was decoded whole is known by its texts too, and one that a pattern gave
is decoded where something of its commit was decoded whole: a few of the first of each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from hashlib import blake2b
from typing import TypeAlias

from migverify.changes.carriers.base import Carried, CarriedRow
from migverify.changes.model import DecodedTable, Op, Rows

Mark: TypeAlias = Callable[[int, Op, bytes], Hashable]
"""What tells changes apart: commit timestamp, kind, and bytes of the rows."""


def quick_mark(commit: int, op: Op, images: bytes) -> Hashable:
    """Return a mark that takes little time; two of a hundred million changes may share one."""
    return hash((commit, op, images))


def exact_mark(commit: int, op: Op, images: bytes) -> Hashable:
    """Return a mark that no two changes share."""
    return blake2b(f"{commit} {op.value} ".encode() + images, digest_size=16).digest()


class KnownChanges:
    """Remembers the last ``limit`` changes."""

    __slots__ = ("_limit", "_mark", "_marks", "_whole")

    def __init__(self, limit: int, mark: Mark) -> None:
        self._limit, self._mark = limit, mark
        self._marks: dict[Hashable, None] = {}
        self._whole: dict[int, None] = {}

    def note(self, commit: int, item: Carried | CarriedRow) -> bool:
        """Remember a change; return whether it was not known."""
        marks, whole = self._marks, self._whole
        before = len(marks)
        if type(item) is CarriedRow:
            mark = self._mark(commit, item.op, item.images)
            is_new = mark not in marks and not (commit in whole and self._by_texts(commit, item) in marks)
            marks[mark] = None
        else:
            mark = self._by_texts(commit, item)
            is_new = mark not in marks
            marks[mark] = whole[commit] = None
        if len(marks) > self._limit and len(marks) > before:
            del marks[next(iter(marks))]
        if len(whole) > self._limit:
            del whole[next(iter(whole))]
        return is_new

    def has(self, commit: int, item: Carried | CarriedRow) -> bool:
        """Tell whether a change is known."""
        if type(item) is not CarriedRow:
            return self._by_texts(commit, item) in self._marks
        if self._mark(commit, item.op, item.images) in self._marks:
            return True
        return commit in self._whole and self._by_texts(commit, item) in self._marks

    def _by_texts(self, commit: int, item: Carried | CarriedRow) -> Hashable:
        """Return the mark of a change by what it leaves: the texts of the row after it, or of the deleted one."""
        if isinstance(item, CarriedRow):
            return self._mark(commit, item.op, _texts(item.table, item.images))
        event = item.event
        if not isinstance(event, Rows):
            return hash((commit, event.sql, event.tables))
        table = event.table
        images = _texts(table, event.images) if isinstance(table, DecodedTable) else event.images
        return self._mark(commit, event.op, images)


def _texts(table: DecodedTable, images: bytes) -> bytes:
    row = table.reader(tuple(range(len(table.columns))))(images)[-1]
    return DecodedTable.packed([(table.name, *row)])
