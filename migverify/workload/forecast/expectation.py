"""What a queueing model expects of a service level under loads that were not measured.

The model is fitted to what was measured: service of calls that met no queue, arrivals as captured, and bounds of how
many statements the target works on at once. It takes the lower bound for the worse end of each interval and the upper
one for the better end. Where it does not meet a measured interval, nothing is expected by it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from migverify.workload.forecast.model import (
    MOST_MULTIPLE,
    CallTrace,
    ForecastPoint,
    LevelAtLoad,
    LevelState,
    Parallelism,
)
from migverify.workload.forecast.parallelism import LEAST_CALLS, without_queue
from migverify.workload.forecast.queueing import Arrivals, Demand, demand, greatest_multiple, response_quantile
from migverify.workload.replay.latency import Histogram
from migverify.workload.replay.slo import CONFIDENCE, covers
from migverify.workload.replay.statistics import rank_interval

if TYPE_CHECKING:
    from migverify.config.settings import ServiceLevel

CLOSE = 1e-9
"""Multiples that differ by no more are the same."""
_CURVE = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 10.0)
_TOLERANCE = 1.1
"""By how much the model may miss a measured interval."""
_PARTS = 16
"""Values that a doubling is cut into."""


@dataclass(frozen=True, slots=True)
class QueueModel:
    """What a forecast is made from: arrivals and free service as captured and measured, bounds of parallelism.

    ``services`` are seconds and weights by digest, of calls that met no queue; ``demand`` is that of all digests,
    ``rate`` the captured calls a second.
    """

    arrivals: Arrivals
    services: Mapping[str, tuple[tuple[float, float], ...]]
    parallelism: Parallelism
    demand: Demand
    rate: float

    def utilization(self, rate: float) -> tuple[float, float]:
        """Return the least and the greatest utilization under so many calls a second; 0 where no bound is known."""
        busy = rate * self.demand.mean
        most = self.parallelism.most
        return (busy / most if most else 0.0), busy / self.parallelism.least


def queue_model(
    traces: Sequence[CallTrace], main: CallTrace, arrivals: Arrivals, rate: float, servers: Parallelism
) -> QueueModel:
    """Return the model of measured traces; shares of digests are those of ``main``."""
    times = _times(traces, servers)
    services = {main.names[place]: _parts(times[main.names[place]], n) for place, n in Counter(main.digests).items()}
    every_part = (part for parts in services.values() for part in parts)
    return QueueModel(arrivals, services, servers, demand(every_part), rate)


def _parts(times: Histogram, weight: int) -> tuple[tuple[float, float], ...]:
    """Return seconds and weights of a histogram of microseconds; their mean is exact."""
    middles = [((low + high) / 2, number * weight / times.count) for low, high, number in times.buckets()]
    mean = math.fsum(value * share for value, share in middles) / weight
    scale = times.total / times.count / mean / 1e6 if mean else 0.0
    return tuple((value * scale, share) for value, share in middles)


def _times(traces: Sequence[CallTrace], servers: Parallelism) -> dict[str, Histogram]:
    """Return the service of each digest's calls that met no queue, of the lightest load that has enough of them.

    Under a heavier load, calls that come later slow down what began alone. All calls, where too few met no queue.
    """
    every: defaultdict[str, list[int]] = defaultdict(list)
    chosen: dict[str, Histogram] = {}
    for trace in sorted(traces, key=lambda trace: trace.multiple or 0.0):
        unqueued: defaultdict[str, list[int]] = defaultdict(list)
        free = without_queue(trace, servers.least)
        for place, service, is_free in zip(trace.digests, trace.services, free, strict=True):
            every[trace.names[place]].append(service)
            if is_free:
                unqueued[trace.names[place]].append(service)
        for name, services in unqueued.items():
            if name not in chosen and len(services) >= LEAST_CALLS:
                chosen[name] = Histogram.of(services)
    return {name: chosen.get(name) or Histogram.of(services) for name, services in every.items()}


@dataclass(frozen=True, slots=True)
class ModelExpectation:
    """What the model expects: without a curve nothing, for these reasons; the limit's bounds as in ``LoadLimit``."""

    curve: tuple[ForecastPoint, ...] = ()
    earliest: float | None = None
    latest: float | None = None
    reasons: tuple[str, ...] = ()


def expect(
    model: QueueModel, level: ServiceLevel, texts: Mapping[str, str], measured: Sequence[LevelAtLoad]
) -> ModelExpectation:
    """Return what the model expects of a level; ``measured`` are the loads that it has to meet."""
    asked = _asked_demand(model, level, texts)
    if asked is None:
        return ModelExpectation(reasons=(f"no call of the statements {level.statements} was timed on the target",))
    most = max(point.calls for point in measured)
    shares = _shares(level.quantile, most)
    if shares is None:
        return ModelExpectation(reasons=(too_few(level.quantile, most),))
    curve = tuple(_point(model, asked, shares, multiple) for multiple in _multiples(measured))
    contradiction = _contradiction(curve, measured)
    if contradiction:
        return ModelExpectation(reasons=(contradiction,))
    return ModelExpectation(curve, *_model_limits(model, asked, shares, level.seconds))


def too_few(quantile: float, count: int) -> str:
    """Return that so many calls do not bound a quantile, and how many do."""
    needed = next(
        number for number in range(1, 10_000_000, max(1, math.ceil(1 / (1 - quantile)) // 10))
        if rank_interval(number, quantile, CONFIDENCE)
    )  # fmt: skip
    return f"{count:,} calls do not bound p{quantile * 100:g}, about {needed:,} do: replay a longer capture"


def _shares(quantile: float, count: int) -> tuple[float, float] | None:
    """Return the shares between which a quantile of so many calls is."""
    ranks = rank_interval(count, quantile, CONFIDENCE)
    return None if ranks is None else (ranks[0] / count, min(ranks[1] / count, 1 - 0.5 / count))


def _asked_demand(model: QueueModel, level: ServiceLevel, texts: Mapping[str, str]) -> Demand | None:
    parts = [part for name, some in model.services.items() if covers(level, texts.get(name, "")) for part in some]
    return demand(_merged(part for some in model.services.values() for part in some), _merged(parts)) if parts else None


def _merged(parts: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the mean and weight of values that are within a few percent of each other: few are quick to sum."""
    sums: dict[int, tuple[float, float]] = {}
    for value, weight in parts:
        place = round(math.log2(max(value, 1e-9)) * _PARTS)
        total, number = sums.get(place, (0.0, 0.0))
        sums[place] = (total + value * weight, number + weight)
    return [(total / number, number) for total, number in sums.values() if number > 0]


def _multiples(measured: Sequence[LevelAtLoad]) -> list[float]:
    return sorted({*_CURVE, *(point.multiple for point in measured)})


def _point(model: QueueModel, asked: Demand, shares: tuple[float, float], multiple: float) -> ForecastPoint:
    servers = model.parallelism
    if servers.most is None:
        low: float | None = _service_quantile(asked, shares[0])
    else:
        low = response_quantile(model.arrivals, asked, servers.most, multiple, shares[0])
    high = response_quantile(model.arrivals, _cautious(asked), servers.least, multiple, shares[1])
    return ForecastPoint(multiple, low, high)


def _cautious(asked: Demand) -> Demand:
    """Return the demand with the variation of an exponential service at least.

    Cores that all calls share make a call wait for what comes later too: even calls of one length then take as long
    as in a queue of exponential ones.
    """
    return replace(asked, variation=max(asked.variation, 1.0))


def _service_quantile(asked: Demand, share: float) -> float:
    total = 0.0
    for value, part in asked.parts:
        total += part
        if total >= share - 1e-12:
            return value
    return asked.parts[-1][0]


def _model_limits(
    model: QueueModel, asked: Demand, shares: tuple[float, float], seconds: float
) -> tuple[float | None, float | None]:
    """Return up to which multiple the level is met at least and at most, by the model; None: ``MOST_MULTIPLE``."""
    servers = model.parallelism
    earliest = greatest_multiple(model.arrivals, _cautious(asked), servers.least, shares[1], seconds, MOST_MULTIPLE)
    latest = None
    if servers.most is not None:
        latest = greatest_multiple(model.arrivals, asked, servers.most, shares[0], seconds, MOST_MULTIPLE)
    elif _service_quantile(asked, shares[0]) > seconds:
        latest = 0.0
    return (MOST_MULTIPLE if earliest is None else earliest), latest


def _contradiction(curve: Sequence[ForecastPoint], measured: Sequence[LevelAtLoad]) -> str:
    """Return why the model does not describe the target, empty where it does: it must meet what was measured."""
    for point in measured:
        expected = next(expected for expected in curve if abs(expected.multiple - point.multiple) <= CLOSE)
        if expected.low is None:  # its queue grows without end, which a short run sees the beginning of
            over = point.state is LevelState.MET
        else:
            over = point.high is not None and expected.low > point.high * _TOLERANCE
        under = expected.high is not None and point.low is not None and point.low > expected.high * _TOLERANCE
        if over or under:
            low, high = ("no limit" if end is None else f"{end:.3g} s" for end in (expected.low, expected.high))
            return (
                f"no forecast: at {point.multiple:g}x the model expects {low} to {high}, {point.value or 0:.3g} s were"
                " measured; its statements do not share one queue with the others, or something else than the number"
                " of calls makes them slow: measure more loads with --rates"
            )
    return ""
