"""Response times of a station with several servers, one queue and any distribution of service: M/G/c and GI/G/c.

- The chance of waiting: Erlang's C formula, by the recursion of his B formula (A. K. Erlang, 1917).
- The mean wait: Allen and Cunneen's approximation, Erlang's wait times half the sum of the squared coefficients of
  variation of the times between arrivals and of service (A. O. Allen, *Probability, Statistics, and Queueing Theory*,
  2nd ed., 5.3). It is exact for M/M/c and M/G/1.
- The distribution of the wait: exponential, given that there is one, as in M/M/c and under heavy load (Kingman).

A load that changes is a mixture of steady ones, one for each stretch of time, weighted by the calls that came in it. A
stretch whose load is more than the servers can carry has no steady state: its calls count as late.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

STRETCH = 10.0
"""Seconds that a peak lasts, where the capture is long enough."""
_LEAST_STRETCHES, _MOST_STRETCHES = 6, 3600
_RATES = 20
_NO_VARIATION = 1e-9
_STEPS = 60
"""Halvings of an interval: beyond the precision of a float's 53 bits nothing changes."""
_LATEST = 1e6
"""Seconds; a greater quantile is none."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Times of service in seconds, of calls that met no queue, with their shares of all calls.

    ``mean`` and ``variation`` (squared coefficient) are of all calls; ``parts`` of those whose response is wanted.
    """

    parts: tuple[tuple[float, float], ...]
    mean: float
    variation: float


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Calls a second and share of all calls, by stretch of time; the variation of the times between calls."""

    stretches: tuple[tuple[float, float], ...]
    variation: float

    @property
    def peak(self) -> float:
        """Calls a second in the busiest stretch."""
        return max((rate for rate, _ in self.stretches), default=0.0)


def demand(values: Iterable[tuple[float, float]], asked: Iterable[tuple[float, float]] | None = None) -> Demand:
    """Return the demand of (seconds, weight) pairs; ``asked`` are those whose response is asked for, default all.

    Raises ValueError: no pair has any weight.
    """
    every = list(values)
    weight = math.fsum(share for _, share in every)
    if weight <= 0:
        raise ValueError("no call was timed")
    mean = math.fsum(value * share for value, share in every) / weight
    square = math.fsum((value - mean) ** 2 * share for value, share in every) / weight
    parts = every if asked is None else list(asked)
    whole = math.fsum(share for _, share in parts) or 1.0
    return Demand(
        tuple(sorted((value, share / whole) for value, share in parts)), mean, square / mean**2 if mean else 0.0
    )


def waiting_chance(servers: int, utilization: float) -> float:
    """Return the chance that a call has to wait (Erlang C); 1 where there is no steady state."""
    if utilization >= 1:
        return 1.0
    load, blocked = utilization * servers, 1.0
    for server in range(1, servers + 1):
        blocked = load * blocked / (server + load * blocked)
    return blocked / (1 - utilization * (1 - blocked))


def chance_above(arrivals: Arrivals, demand: Demand, servers: int, multiple: float, seconds: float) -> float:
    """Return the share of calls whose response takes longer than ``seconds``, at a multiple of the load."""
    return math.fsum(
        share * _above(rate * multiple, arrivals.variation, demand, servers, seconds)
        for rate, share in arrivals.stretches
    )


def _above(rate: float, variation: float, demand: Demand, servers: int, seconds: float) -> float:
    utilization = rate * demand.mean / servers
    if utilization >= 1:
        return 1.0
    spread = (variation + demand.variation) * demand.mean
    # Without variation calls come and go in step; calls that take no time keep nobody waiting either.
    varies = variation + demand.variation > _NO_VARIATION and spread > 0
    chance = waiting_chance(servers, utilization) if varies else 0.0
    speed = 2 * servers * (1 - utilization) / spread if varies else 0.0
    return math.fsum(
        share * (1.0 if value > seconds else chance * math.exp(-speed * (seconds - value)))
        for value, share in demand.parts
    )


def response_quantile(
    arrivals: Arrivals, demand: Demand, servers: int, multiple: float, quantile: float
) -> float | None:
    """Return the seconds that this share of responses stays within; None: more calls than that are late for ever."""
    late = 1 - quantile
    if chance_above(arrivals, demand, servers, multiple, _LATEST) > late:
        return None
    low, high = 0.0, demand.parts[-1][0] + demand.mean
    while chance_above(arrivals, demand, servers, multiple, high) > late:
        low, high = high, high * 2
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in (low, high) or high - low < high * 1e-6:
            break
        if chance_above(arrivals, demand, servers, multiple, middle) > late:
            low = middle
        else:
            high = middle
    return high


def greatest_multiple(
    arrivals: Arrivals, demand: Demand, servers: int, quantile: float, seconds: float, most: float
) -> float | None:
    """Return up to which multiple of the load the quantile stays below a limit; None: even at ``most`` it does.

    0: it does not under any load, since the service alone takes longer.
    """
    late = 1 - quantile
    if chance_above(arrivals, demand, servers, most, seconds) <= late:
        return None
    low, high = 0.0, most
    for _ in range(_STEPS):
        if high - low < most * 1e-6:
            break
        middle = (low + high) / 2
        if chance_above(arrivals, demand, servers, middle, seconds) <= late:
            low = middle
        else:
            high = middle
    return low


def arrivals_of(moments: Sequence[int], seconds: float) -> Arrivals:
    """Return the arrivals of calls at these microseconds, ascending from 0, in a capture of so many seconds.

    Rates are rounded up to a twentieth of the peak, so that a long capture has few stretches that differ.
    """
    count = stretches_of(seconds)
    width = max(seconds, moments[-1] / 1e6 if moments else 0.0, 1e-6) * 1e6 / count
    places = [min(count - 1, int(moment / width)) for moment in moments]
    counts = Counter(places)
    most = max(counts.values(), default=0)
    grouped: dict[int, int] = {}
    for number in counts.values():
        level = math.ceil(number * _RATES / most)
        grouped[level] = grouped.get(level, 0) + number
    stretches = tuple(
        (level / _RATES * most * 1e6 / width, number / len(moments)) for level, number in sorted(grouped.items())
    )
    return Arrivals(stretches, _variation(moments, places, counts, width))


def stretches_of(seconds: float) -> int:
    """Return into how many stretches a capture is cut: of ten seconds where it is long enough, six at least."""
    return min(_MOST_STRETCHES, max(_LEAST_STRETCHES, round(seconds / STRETCH)))


def _variation(moments: Sequence[int], places: Sequence[int], counts: Mapping[int, int], width: float) -> float:
    """Return the squared coefficient of variation of times between calls, each in parts of its stretch's mean."""
    parts = [
        (moments[at + 1] - moments[at]) * counts[place] / width
        for at, place in enumerate(places[:-1])
        if place == places[at + 1]
    ]
    if len(parts) < 2:
        return 1.0
    mean = math.fsum(parts) / len(parts)
    return math.fsum((part - mean) ** 2 for part in parts) / len(parts) / mean**2 if mean else 1.0
