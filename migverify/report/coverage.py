"""What was read: chunks counted and timed while they stream by, in constant memory."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from migverify.model import ChunkResult, ChunkState

_EXACT_POINTS = 1_000
_BINS = 250


@dataclass(slots=True)
class ReadCoverage:
    """What "0 differences" rests on.

    Rows and read seconds are sums over the chunks that the store holds. ``unread_source`` and ``unread_target`` are
    chunks for which that side gave no answer: their rows are in no sum.
    """

    spans: int = 0
    chunks: int = 0
    states: Counter[ChunkState] = field(default_factory=Counter)
    rows_source: int = 0
    rows_target: int = 0
    source_seconds: float = 0.0
    target_seconds: float = 0.0
    attempts: int = 0
    unread_source: int = 0
    unread_target: int = 0

    def add(self, chunk: ChunkResult) -> None:
        """Count one chunk."""
        self.chunks += 1
        self.states[chunk.state] += 1
        self.rows_source += chunk.source.rows if chunk.source else 0
        self.rows_target += chunk.target.rows if chunk.target else 0
        self.source_seconds += chunk.source_seconds
        self.target_seconds += chunk.target_seconds
        self.attempts += chunk.attempts
        self.unread_source += chunk.source is None
        self.unread_target += chunk.target is None

    @classmethod
    def total(cls, parts: Iterable[ReadCoverage]) -> ReadCoverage:
        """Add up coverages of several table pairs."""
        whole = cls()
        for part in parts:
            for name in cls.__slots__:
                value = getattr(whole, name)
                setattr(whole, name, value + getattr(part, name))
        return whole


class NotedChunks:
    """The slowest and the first failed chunks of one table pair, at most ``most`` of each."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._slow: list[tuple[float, int, ChunkResult]] = []
        self._number = 0
        self.failed: list[ChunkResult] = []

    def add(self, chunk: ChunkResult) -> None:
        """Take one chunk."""
        self._number += 1
        if chunk.state is ChunkState.FAILED and len(self.failed) < self._most:
            self.failed.append(chunk)
        if self._most and (len(self._slow) < self._most or chunk.seconds > self._slow[0][0]):
            push = heapq.heappush if len(self._slow) < self._most else heapq.heappushpop
            push(self._slow, (chunk.seconds, -self._number, chunk))

    @property
    def slowest(self) -> list[ChunkResult]:
        """The slowest chunks, slowest first."""
        return [chunk for _, _, chunk in sorted(self._slow, key=lambda entry: (-entry[0], -entry[1]))]


@dataclass(frozen=True, slots=True)
class ReadTimes:
    """One chunk on the timeline: seconds since the run started, and the read seconds of each side.

    A chunk that started before the run by the clock of another machine is at 0.
    """

    at: float
    source: float
    target: float


class ChunkTimeline:
    """Chunks over time, in constant memory: all while they are few, then the slowest reads per stretch of time."""

    def __init__(self, started: float) -> None:
        self._started = started
        self._exact: list[ReadTimes] = []
        self._bins: dict[int, tuple[float, float]] = {}
        self._width = 0.05
        self.chunks = 0

    def add(self, chunk: ChunkResult) -> None:
        """Take one chunk."""
        self.chunks += 1
        point = ReadTimes(max(0.0, chunk.started - self._started), chunk.source_seconds, chunk.target_seconds)
        if len(self._exact) < _EXACT_POINTS:
            self._exact.append(point)
        while point.at / self._width >= _BINS:
            old, self._bins = self._bins, {}
            self._width *= 2
            for number, (source, target) in old.items():
                self._put(number // 2, source, target)
        self._put(int(point.at / self._width), point.source, point.target)

    def _put(self, number: int, source: float, target: float) -> None:
        most = self._bins.get(number, (0.0, 0.0))
        self._bins[number] = max(most[0], source), max(most[1], target)

    @property
    def binned(self) -> bool:
        """Whether a point is for the slowest reads in a stretch of time."""
        return self.chunks > _EXACT_POINTS

    @property
    def points(self) -> list[ReadTimes]:
        """The points by time."""
        if not self.binned:
            return sorted(self._exact, key=lambda point: point.at)
        return [ReadTimes((n + 0.5) * self._width, *most) for n, most in sorted(self._bins.items())]
