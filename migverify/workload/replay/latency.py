"""Latencies in buckets of constant relative width, so that a billion of them take a few kilobytes and add up.

The buckets are those of HDR histograms (G. Tene): every power of two is cut into 32 equal parts, which keeps a value
to 3.2 %; below 64 every whole number has a bucket of its own. Values are microseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_PARTS_BITS = 5


def bucket_of(value: int) -> int:
    """Return the number of the bucket a value of microseconds falls in; a negative value counts as 0."""
    value = max(value, 0)
    shift = max(value.bit_length() - _PARTS_BITS - 1, 0)
    return (shift << _PARTS_BITS) + (value >> shift)


def bounds_of(bucket: int) -> tuple[int, int]:
    """Return the smallest and the greatest value that fall in a bucket, both inclusive."""
    shift = max((bucket >> _PARTS_BITS) - 1, 0)
    low = (bucket - (shift << _PARTS_BITS)) << shift
    return low, low + (1 << shift) - 1


@dataclass(slots=True)
class Histogram:
    """Counts by bucket, exact count, sum and extremes. ``merge`` is associative and commutative."""

    counts: dict[int, int] = field(default_factory=dict)
    count: int = 0
    total: int = 0
    least: int | None = None
    most: int | None = None

    def add(self, value: int, times: int = 1) -> None:
        """Count one value of microseconds."""
        value = max(value, 0)
        bucket = bucket_of(value)
        self.counts[bucket] = self.counts.get(bucket, 0) + times
        self.count += times
        self.total += value * times
        self.least = value if self.least is None else min(self.least, value)
        self.most = value if self.most is None else max(self.most, value)

    @classmethod
    def of(cls, values: Sequence[int]) -> Histogram:
        """Return the histogram of many values, faster than one after the other; none is negative."""
        if not values:
            return cls()
        return cls(dict(Counter(map(bucket_of, values))), len(values), sum(values), min(values), max(values))

    def merge(self, other: Histogram) -> None:
        """Add the other's counts to this one's."""
        for bucket, number in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + number
        self.count += other.count
        self.total += other.total
        least = [one for one in (self.least, other.least) if one is not None]
        most = [one for one in (self.most, other.most) if one is not None]
        self.least, self.most = min(least, default=None), max(most, default=None)

    def buckets(self) -> Iterator[tuple[int, int, int]]:
        """Yield (smallest value, greatest value, count) of the buckets that hold something, ascending."""
        for bucket in sorted(self.counts):
            yield *bounds_of(bucket), self.counts[bucket]

    def at_rank(self, rank: int) -> tuple[int, int]:
        """Return the bounds of the bucket that holds the value of a rank, from 1 to ``count``.

        Raises ValueError: the rank lies outside, or nothing was counted.
        """
        if not 1 <= rank <= self.count:
            raise ValueError(f"rank {rank} of {self.count} values")
        seen = 0
        for low, high, number in self.buckets():
            seen += number
            if seen >= rank:
                return max(low, self.least or 0), min(high, high if self.most is None else self.most)
        raise ValueError("the buckets hold fewer values than the count says")

    def quantile(self, share: float) -> int | None:
        """Return an upper bound, 3.2 % above at most, of the value that bounds this share; None without values."""
        if not self.count:
            return None
        rank = min(self.count, max(1, -int(-share * self.count // 1)))
        return self.at_rank(rank)[1]

    def as_json(self) -> dict[str, object]:
        """Return the histogram as a JSON object; buckets as a flat list of number and count."""
        flat = [item for bucket in sorted(self.counts) for item in (bucket, self.counts[bucket])]
        return {"count": self.count, "total": self.total, "least": self.least, "most": self.most, "buckets": flat}

    @classmethod
    def from_json(cls, body: Mapping[str, object]) -> Histogram:
        """Read what ``as_json`` wrote.

        Raises ValueError: the parts contradict each other.
        """
        flat = body["buckets"]
        if not isinstance(flat, list) or len(flat) % 2:
            raise ValueError("buckets of a histogram are a list of pairs")
        counts = {int(flat[i]): int(flat[i + 1]) for i in range(0, len(flat), 2)}
        count, total, least, most = (body[name] for name in ("count", "total", "least", "most"))
        if sum(counts.values()) != count:
            raise ValueError(f"a histogram of {count} values holds {sum(counts.values())}")
        return cls(counts, int(str(count)), int(str(total)), _whole(least), _whole(most))


def merged(parts: Iterable[Histogram]) -> Histogram:
    """Return the sum of histograms."""
    whole = Histogram()
    for one in parts:
        whole.merge(one)
    return whole


def _whole(value: object) -> int | None:
    return None if value is None else int(str(value))
