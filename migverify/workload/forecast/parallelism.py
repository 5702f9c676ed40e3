"""How many statements the target works on at once: seen from how service slows down while others are under way.

A call that began while nothing else was under way shows what its statement takes. Calls that began beside ``n - 1``
others are compared with that, each with its own digest's median, and by the median of the ratios, so that a single slow
call (a first execution, a garbage collection) decides nothing. Levels that are not slower are below the limit, levels
that are slower for certain are above it.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

from migverify.workload.forecast.model import CallTrace, Parallelism
from migverify.workload.replay.slo import CONFIDENCE
from migverify.workload.replay.statistics import rank_interval

LEAST_CALLS = 30
"""Calls of one level that say anything; as many must have run alone."""
_EQUAL = 1.25
_SLOWER = 1.5
_LEAST_ALONE = 5
_LEAST_EXCESS = 2_000
"""Microseconds that a slower level must add: below, the replay's own work may be what is slow."""


def under_way(trace: CallTrace) -> list[int]:
    """Return how many calls were under way on the target when each began, itself among them."""
    ends: list[int] = []
    counts = []
    for begin, service in zip(trace.begins, trace.services, strict=True):
        while ends and ends[0] <= begin:
            heapq.heappop(ends)
        heapq.heappush(ends, begin + service)
        counts.append(len(ends))
    return counts


def parallelism(traces: Iterable[CallTrace]) -> Parallelism | None:
    """Return the bounds that traces prove; None: too few calls ran alone."""
    by_level: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
    alone: defaultdict[str, list[int]] = defaultdict(list)
    observed: list[tuple[str, int, int]] = []
    for trace in traces:
        names = trace.names
        for digest, service, level in zip(trace.digests, trace.services, under_way(trace), strict=True):
            observed.append((names[digest], service, level))
            if level == 1:
                alone[names[digest]].append(service)
    if sum(map(len, alone.values())) < LEAST_CALLS:
        return None
    usual = {name: median(values) for name, values in alone.items() if len(values) >= _LEAST_ALONE}
    for name, service, level in observed:
        if name in usual:
            by_level[level].append((service / max(usual[name], 1.0), round(service - usual[name])))
    return _bounds(by_level)


def _bounds(by_level: dict[int, list[tuple[float, int]]]) -> Parallelism:
    least, most, is_equal = 1, None, True
    for level in sorted(by_level):
        ratios = sorted(by_level[level])
        ranks = rank_interval(len(ratios), 0.5, CONFIDENCE)
        if level == 1 or len(ratios) < LEAST_CALLS or ranks is None:
            continue
        (lower, excess), (upper, _) = ratios[ranks[0] - 1], ratios[ranks[1] - 1]
        if lower >= _SLOWER and excess >= _LEAST_EXCESS:
            most = max(least, level - 1)
            break
        if upper < _EQUAL and is_equal:
            least = max(least, math.ceil(level / _EQUAL))
        elif lower >= 1:
            is_equal = False  # slower, though not by enough to be certain: no heavier level proves a greater number
    return Parallelism(least, most)


def without_queue(trace: CallTrace, servers: int) -> Sequence[bool]:
    """Return of each call whether a server was free for it when it began."""
    return [level <= servers for level in under_way(trace)]
