"""What a measurement counts, in bounded memory however long the log is: requests, errors, times, a sample of keys."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b

__all__ = ["KEPT_KEYS", "KeySample", "KeySeen", "LatencyTally", "SideTally", "TrafficTally", "merged"]

KEPT_KEYS = 50_000
"""Distinct keys that are kept; of more, a random part is (the same keys on every instance)."""
_EXACT_MS = 1000
_STEP = math.log(1.01)


@dataclass(slots=True)
class LatencyTally:
    """Times of requests, counted by whole milliseconds below a second, above it in steps of 1 %."""

    buckets: Counter[int] = field(default_factory=Counter)

    def add(self, seconds: float, count: int = 1) -> None:
        """Count a time; negative ones count as 0."""
        self.buckets[_bucket(1000 * seconds)] += count

    @property
    def count(self) -> int:
        """How many."""
        return self.buckets.total()

    def quantile(self, percent: float) -> float | None:
        """Return the time in ms that so many percent do not exceed (nearest rank, the upper end of its step)."""
        rank = math.ceil(percent / 100 * self.count)
        for bucket in sorted(self.buckets):
            rank -= self.buckets[bucket]
            if rank <= 0:
                return _upper(bucket)
        return None


def _bucket(ms: float) -> int:
    whole = max(0, math.ceil(ms - 1e-6))
    return whole if whole <= _EXACT_MS else _EXACT_MS + math.ceil(math.log(whole / _EXACT_MS) / _STEP)


def _upper(bucket: int) -> float:
    return float(bucket) if bucket <= _EXACT_MS else round(_EXACT_MS * math.exp((bucket - _EXACT_MS) * _STEP), 1)


@dataclass(slots=True)
class SideTally:
    """Requests of one side: ``errors`` are those with a status of 500 and above, or without one."""

    requests: int = 0
    errors: int = 0
    times: LatencyTally = field(default_factory=LatencyTally)

    def add(self, status: int, seconds: float) -> None:
        """Count one request."""
        self.requests += 1
        self.errors += status < 100 or status >= 500
        self.times.add(seconds)


@dataclass(slots=True)
class KeySeen:
    """One key: how often it was on each side, from the begin of its first to the end of its last request there."""

    old: int = 0
    new: int = 0
    old_begin: float = math.inf
    old_end: float = -math.inf
    new_begin: float = math.inf
    new_end: float = -math.inf

    def add(self, *, new: bool, begin: float, end: float) -> None:
        """Count one request."""
        if new:
            self.new += 1
            self.new_begin, self.new_end = min(self.new_begin, begin), max(self.new_end, end)
        else:
            self.old += 1
            self.old_begin, self.old_end = min(self.old_begin, begin), max(self.old_end, end)

    def merge(self, other: KeySeen) -> None:
        """Take in what another instance saw of the key."""
        self.old, self.new = self.old + other.old, self.new + other.new
        self.old_begin, self.old_end = min(self.old_begin, other.old_begin), max(self.old_end, other.old_end)
        self.new_begin, self.new_end = min(self.new_begin, other.new_begin), max(self.new_end, other.new_end)


@dataclass(slots=True)
class KeySample:
    """Distinct keys, by a hash of their own that says nothing about their side; a random part of them when too many.

    A key is kept while its hash is below ``bar``. The bar is halved when there are too many, so that what is kept is at
    any time a fair sample of all keys seen, with everything that was seen of each of them.
    """

    kept: int = KEPT_KEYS
    bar: int = 1 << 64
    keys: dict[int, KeySeen] = field(default_factory=dict)

    def add(self, key: bytes, *, new: bool, begin: float, end: float) -> None:
        """Count one request of a key."""
        mark = int.from_bytes(blake2b(key, digest_size=8).digest(), "big")
        if mark >= self.bar:
            return
        seen = self.keys.get(mark)
        if seen is None:
            seen = self.keys[mark] = KeySeen()
        seen.add(new=new, begin=begin, end=end)
        self._shrink()

    def _shrink(self) -> None:
        while len(self.keys) > self.kept:
            self.bar //= 2
            self.keys = {mark: seen for mark, seen in self.keys.items() if mark < self.bar}

    def merge(self, other: KeySample) -> None:
        """Take in what another instance saw."""
        self.bar = min(self.bar, other.bar)
        for mark, one in other.keys.items():
            self.keys.setdefault(mark, KeySeen()).merge(one)
        self.keys = {mark: seen for mark, seen in self.keys.items() if mark < self.bar}
        self._shrink()

    def on_new(self) -> int:
        """Return how many keys of the sample were on the new side; one that was on both counts as new."""
        return sum(seen.new > 0 for seen in self.keys.values())


@dataclass(slots=True)
class TrafficTally:
    """What was counted, of one generation.

    Parameters
    ----------
    keys
        None where the driver tells of no keys.
    keyless
        Requests without a key.
    unforeseen
        Requests on another side than the hash of their key says.
    astray
        Requests that reached a server of another side than the split had decided, or of both.
    lines, damaged
        Of the log: complete lines, and those that could not be read.
    lost
        Why something is missing (a rotated file is gone, a log was cut); empty: nothing is.
    unmeasured
        What this driver cannot count: ``errors``, ``latency``, ``keys``.
    """

    old: SideTally = field(default_factory=SideTally)
    new: SideTally = field(default_factory=SideTally)
    keys: KeySample | None = None
    keyless: int = 0
    unforeseen: int = 0
    astray: int = 0
    lines: int = 0
    damaged: int = 0
    lost: str = ""
    unmeasured: frozenset[str] = frozenset()

    @property
    def requests(self) -> int:
        """On both sides."""
        return self.old.requests + self.new.requests

    def side(self, name: str) -> SideTally:
        """Return the side of that name, ``old`` or ``new``."""
        return self.new if name == "new" else self.old

    def merge(self, other: TrafficTally) -> None:
        """Take in what another instance counted."""
        for mine, its in ((self.old, other.old), (self.new, other.new)):
            mine.requests += its.requests
            mine.errors += its.errors
            mine.times.buckets.update(its.times.buckets)
        if other.keys is not None:
            if self.keys is None:
                self.keys = KeySample(other.keys.kept)
            self.keys.merge(other.keys)
        for name in ("keyless", "unforeseen", "astray", "lines", "damaged"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.lost = self.lost or other.lost
        self.unmeasured |= other.unmeasured


def merged(tallies: Iterable[TrafficTally]) -> TrafficTally:
    """Return the sum of tallies."""
    total = TrafficTally()
    for one in tallies:
        total.merge(one)
    return total
