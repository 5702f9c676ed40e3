"""What was read: chunks counted and timed while they stream by, in constant memory."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migverify.model import ChunkResult, ChunkState

_EXACT_POINTS = 1_000
_BINS = 250


@dataclass(frozen=True, slots=True)
class Coverage:
    """What stands behind "0 differences".

    Rows and read seconds are sums over the chunks the store holds. ``unread_source`` and ``unread_target`` are
    chunks for which that side gave no answer: their rows are in no sum.
    """

    spans: int
    chunks: int
    states: Mapping[ChunkState, int]
    rows_source: int
    rows_target: int
    source_seconds: float
    target_seconds: float
    attempts: int
    unread_source: int
    unread_target: int

    @classmethod
    def total(cls, parts: Sequence[Coverage]) -> Coverage:
        """Add up coverages of several table pairs."""
        states: Counter[ChunkState] = Counter()
        for part in parts:
            states.update(part.states)
        return cls(
            sum(p.spans for p in parts),
            sum(p.chunks for p in parts),
            dict(states),
            sum(p.rows_source for p in parts),
            sum(p.rows_target for p in parts),
            sum(p.source_seconds for p in parts),
            sum(p.target_seconds for p in parts),
            sum(p.attempts for p in parts),
            sum(p.unread_source for p in parts),
            sum(p.unread_target for p in parts),
        )


@dataclass(frozen=True, slots=True)
class SlowChunk:
    """One chunk worth naming. Seconds are wall time; ``rows`` are the source's, None without an answer."""

    span: int
    number: int
    range: str
    state: str
    rows: int | None
    seconds: float
    source_seconds: float
    target_seconds: float
    attempts: int
    reason: str


class ChunkTally:
    """Counts the chunks of one table pair and keeps the slowest and the first failed ones."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._slow: list[tuple[float, int, SlowChunk]] = []
        self._failed: list[SlowChunk] = []
        self._states: Counter[ChunkState] = Counter()
        self._rows_source = self._rows_target = self._chunks = self._attempts = 0
        self._unread_source = self._unread_target = 0
        self._source_seconds = self._target_seconds = 0.0

    def add(self, chunk: ChunkResult) -> None:
        """Count one chunk."""
        self._chunks += 1
        self._attempts += chunk.attempts
        self._states[chunk.state] += 1
        self._rows_source += chunk.source.rows if chunk.source else 0
        self._rows_target += chunk.target.rows if chunk.target else 0
        self._unread_source += chunk.source is None
        self._unread_target += chunk.target is None
        self._source_seconds += chunk.source_seconds
        self._target_seconds += chunk.target_seconds
        if chunk.state is ChunkState.FAILED and len(self._failed) < self._keep:
            self._failed.append(_named(chunk))
        if self._keep and (len(self._slow) < self._keep or chunk.seconds > self._slow[0][0]):
            entry = (chunk.seconds, -self._chunks, _named(chunk))
            push = heapq.heappush if len(self._slow) < self._keep else heapq.heappushpop
            push(self._slow, entry)

    def slowest(self) -> tuple[SlowChunk, ...]:
        """Return the slowest chunks, slowest first."""
        return tuple(chunk for _, _, chunk in sorted(self._slow, key=lambda e: (-e[0], -e[1])))

    def failed(self) -> tuple[SlowChunk, ...]:
        """Return the first failed chunks in the order of their keys."""
        return tuple(self._failed)

    def coverage(self, spans: int) -> Coverage:
        """Return the sums."""
        return Coverage(
            spans,
            self._chunks,
            dict(self._states),
            self._rows_source,
            self._rows_target,
            self._source_seconds,
            self._target_seconds,
            self._attempts,
            self._unread_source,
            self._unread_target,
        )


def _named(chunk: ChunkResult) -> SlowChunk:
    return SlowChunk(
        chunk.span,
        chunk.number,
        str(chunk.range),
        str(chunk.state),
        chunk.source.rows if chunk.source else None,
        chunk.seconds,
        chunk.source_seconds,
        chunk.target_seconds,
        chunk.attempts,
        chunk.reason,
    )


@dataclass(frozen=True, slots=True)
class Point:
    """One chunk on the timeline: seconds since the run started, and the read seconds of each side.

    A chunk that started before the run by the clock of another machine stands at 0.
    """

    at: float
    source: float
    target: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """Chunks over time. ``binned``: a point stands for the slowest reads in a stretch of time."""

    points: tuple[Point, ...]
    chunks: int
    binned: bool

    class Builder:
        """Collects chunks in constant memory: all while they are few, then maxima per stretch of time."""

        def __init__(self, started: float) -> None:
            self._started = started
            self._exact: list[Point] = []
            self._bins: dict[int, tuple[float, float]] = {}
            self._width = 0.05
            self._chunks = 0

        def add(self, chunk: ChunkResult) -> None:
            """Take one chunk."""
            self._chunks += 1
            point = Point(max(0.0, chunk.started - self._started), chunk.source_seconds, chunk.target_seconds)
            if len(self._exact) < _EXACT_POINTS:
                self._exact.append(point)
            while point.at / self._width >= _BINS:
                self._double()
            self._put(int(point.at / self._width), point.source, point.target)

        def _put(self, bin_: int, source: float, target: float) -> None:
            most = self._bins.get(bin_, (0.0, 0.0))
            self._bins[bin_] = max(most[0], source), max(most[1], target)

        def _double(self) -> None:
            old, self._bins = self._bins, {}
            self._width *= 2
            for bin_, (source, target) in old.items():
                self._put(bin_ // 2, source, target)

        def build(self) -> Timeline:
            """Return the points by time."""
            if self._chunks <= _EXACT_POINTS:
                return Timeline(tuple(sorted(self._exact, key=lambda p: p.at)), self._chunks, binned=False)
            points = (Point((b + 0.5) * self._width, s, t) for b, (s, t) in sorted(self._bins.items()))
            return Timeline(tuple(points), self._chunks, binned=True)
