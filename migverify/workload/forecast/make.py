"""Makes a forecast from measured traces, or says why there is none."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from migverify.workload.forecast.expectation import QueueModel, queue_model
from migverify.workload.forecast.levels import level_forecast
from migverify.workload.forecast.model import CallTrace, DigestUse, LoadForecast, MeasuredLoad, Parallelism
from migverify.workload.forecast.parallelism import LEAST_CALLS, parallelism, without_queue
from migverify.workload.forecast.queueing import Arrivals, arrivals_of, stretches_of
from migverify.workload.replay.latency import Histogram

if TYPE_CHECKING:
    from migverify.config.settings import ServiceLevel

_SLACK = 0.02
"""Statements; what a target carries is known no better than that."""
USES = 3
"""Digests that are named for using the most of the target."""


@dataclass(frozen=True, slots=True)
class ForecastOptions:
    """What a forecast is to answer. ``parallelism`` is the target's where it is known, None to measure it."""

    levels: Mapping[str, ServiceLevel] = field(default_factory=dict)
    least_seconds: float = 60.0
    parallelism: int | None = None


def forecast(
    traces: Sequence[CallTrace], seconds: float, texts: Mapping[str, str], options: ForecastOptions
) -> LoadForecast:
    """Return what traces tell of the target under the captured load and others.

    Parameters
    ----------
    traces
        One for each load that was measured; the first one is the replay's own.
    seconds
        What the capture covers, without idle time that was left out.
    texts
        Normalized statements by digest.
    """
    whole = [trace for trace in traces if trace.multiple is not None and not trace.problems and trace.count]
    main = next(iter(whole), traces[0])
    moments = sorted(main.arrivals)
    arrivals = arrivals_of(moments, seconds)
    rate = main.count / seconds if seconds > 0 else 0.0
    reasons = tuple(_reasons(traces, whole, seconds, options))
    servers = _servers(whole, options) if whole else None
    model = None if servers is None or reasons else _model(whole, main, arrivals, rate, servers)
    servers = servers if model is None else model.parallelism
    if not reasons and servers is None:
        reasons = (
            f"fewer than {LEAST_CALLS} calls met no other on the target, so what a statement takes without a queue is"
            " not known: measure a lighter load with --rates 0.5, or set workload.target_parallelism",
        )
    short = _short(seconds, options)
    levels = tuple(
        level_forecast(name, level, traces, model, texts, doubt=short) for name, level in options.levels.items()
    )
    return LoadForecast(
        seconds, rate, arrivals.peak, seconds / stretches_of(seconds), servers,
        None if model is None else model.utilization(rate), None if model is None else model.utilization(arrivals.peak),
        tuple(_load(trace) for trace in sorted(traces, key=lambda trace: trace.multiple or 0.0)), levels,
        _uses(main, seconds, texts, servers),
        (*reasons, *_overload(model, arrivals)),
    )  # fmt: skip


def _model(
    whole: Sequence[CallTrace], main: CallTrace, arrivals: Arrivals, rate: float, servers: Parallelism
) -> QueueModel:
    """Return the model; what the target was seen to carry raises the upper bound of its parallelism."""
    model = queue_model(whole, main, arrivals, rate, servers)
    carried = math.ceil(max(trace.count / trace.seconds for trace in whole) * model.demand.mean - _SLACK)
    if servers.given or servers.most is None or carried <= servers.most:
        return model
    return replace(model, parallelism=replace(servers, most=carried))


def _servers(whole: Sequence[CallTrace], options: ForecastOptions) -> Parallelism | None:
    """Return how many statements the target works on at once; None where too few calls met no queue."""
    if options.parallelism is None:
        return parallelism(whole)
    unqueued = sum(sum(without_queue(trace, options.parallelism)) for trace in whole)
    return Parallelism(options.parallelism, options.parallelism, given=True) if unqueued >= LEAST_CALLS else None


def _reasons(
    traces: Sequence[CallTrace], whole: Sequence[CallTrace], seconds: float, options: ForecastOptions
) -> Iterator[str]:
    if not whole:
        yield from (traces[0].problems or ("the target answered no call",))
    if short := _short(seconds, options):
        yield short


def _short(seconds: float, options: ForecastOptions) -> str:
    """Return that the capture is too short to tell of a load, empty where it is not."""
    if seconds >= options.least_seconds:
        return ""
    return (
        f"the capture covers {seconds:.1f} s, a forecast needs {options.least_seconds:g}: capture longer, or lower"
        " workload.forecast_seconds"
    )


def _overload(model: QueueModel | None, arrivals: Arrivals) -> Iterator[str]:
    """Yield that the captured load is more than the target carries: then latency grows for as long as it lasts."""
    if model is not None and model.utilization(arrivals.peak)[0] >= 1:
        yield (
            f"the captured load needs {model.utilization(arrivals.peak)[0]:.2f} of the target in its busiest stretch:"
            " its queue grows for as long as that lasts, and no latency is expected; give the target more capacity"
        )


def _load(trace: CallTrace) -> MeasuredLoad:
    own = Histogram.of(trace.own)
    seconds = trace.seconds
    delay_at_p99 = own.quantile(0.99)
    return MeasuredLoad(
        trace.multiple, trace.count, seconds, trace.count / seconds if seconds else 0.0,
        sum(trace.services) / 1e6 / seconds if seconds else 0.0, None if delay_at_p99 is None else delay_at_p99 / 1e6,
        trace.problems,
    )  # fmt: skip


def _uses(
    trace: CallTrace, seconds: float, texts: Mapping[str, str], servers: Parallelism | None
) -> tuple[DigestUse, ...]:
    """Return the digests that keep the target busy the longest, the first one first.

    The mean is of calls that met no queue, where it is known which: what others make a call wait is not its use.
    """
    free = [True] * trace.count if servers is None else without_queue(trace, servers.least)
    counts, every, unqueued = (Counter[int]() for _ in range(3))
    totals = Counter[int]()
    for place, service, is_free in zip(trace.digests, trace.services, free, strict=True):
        counts[place] += 1
        every[place] += service
        if is_free:
            unqueued[place] += 1
            totals[place] += service
    means = {
        place: totals[place] / unqueued[place] if unqueued[place] else every[place] / counts[place] for place in counts
    }
    busy = {place: counts[place] * means[place] for place in counts}
    whole = sum(busy.values()) or 1
    most = sorted(busy, key=lambda place: (-busy[place], trace.names[place]))[:USES]
    return tuple(
        DigestUse(
            trace.names[place], texts.get(trace.names[place], ""), busy[place] / whole,
            counts[place] / seconds if seconds > 0 else 0.0, _peak(trace, place, seconds),
            means[place] / 1e6, counts[place],
        )
        for place in most
    )  # fmt: skip


def _peak(trace: CallTrace, place: int, seconds: float) -> float:
    moments = sorted(moment for moment, digest in zip(trace.arrivals, trace.digests, strict=True) if digest == place)
    return arrivals_of(moments, seconds).peak
