"""The order of an item's versions, as far as the times of their commits and what transactions read prove it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

_MOST_SUCCESSORS = 16
"""Versions that may come next after one: more are possible only where so many commits overlap; the rest is left out."""
BEFORE_ALL = -1
"""The version from before the history."""


class VersionOrder:
    """The order of an item's committed versions, as far as it is proved: an interval order and what reads add."""

    def __init__(self, spans: dict[int, tuple[int, int]], read_then_written: dict[int, set[int]]) -> None:
        self._versions = sorted(spans, key=lambda at: spans[at])
        self._begins = [spans[at][0] for at in self._versions]
        self._spans, self._more = spans, read_then_written
        self._least_end = [spans[at][1] for at in self._versions]  # of this version and all behind it
        for at in range(len(self._least_end) - 2, -1, -1):
            self._least_end[at] = min(self._least_end[at], self._least_end[at + 1])
        self.unordered = sum(
            spans[second][0] <= spans[first][1] and second not in self._more.get(first, ())
            for first, second in zip(self._versions, self._versions[1:], strict=False)
        )

    def after(self, version: int) -> Iterator[int]:
        """Yield the versions that surely come after one, as far as none surely lies between."""
        first = 0 if version == BEFORE_ALL else bisect_right(self._begins, self._spans[version][1])
        listed: list[int] = []
        if first < len(self._begins):
            last = bisect_right(self._begins, self._least_end[first], lo=first)
            listed = self._versions[first : min(last, first + _MOST_SUCCESSORS)]
            yield from listed
        yield from self._more.get(version, set()).difference(listed)
