"""Judges service levels by loads that were measured, and by the model between and beyond them.

A verdict rests on measurements alone: a level is met under a load when the whole interval of its quantile is below the
limit under that load or a heavier one, and missed when the whole interval is at the limit or above it under that load
or a lighter one. The model only says where to look.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING

from migverify.workload.forecast.expectation import CLOSE, ModelExpectation, QueueModel, expect, too_few
from migverify.workload.forecast.model import CallTrace, LevelAtLoad, LevelForecast, LevelState, LoadForecast, LoadLimit
from migverify.workload.forecast.pauses import longest_pause
from migverify.workload.replay.latency import Histogram
from migverify.workload.replay.slo import CONFIDENCE, ONE_PAUSE, SloResult, covers
from migverify.workload.replay.statistics import QuantileEstimate, quantile_estimate

if TYPE_CHECKING:
    from migverify.config.settings import ServiceLevel

OWN_SHARE = 0.2
"""The replay's own delay may be this share of a level's limit."""


CONTRADICTION = "a lighter load missed the level and a heavier one met it: measure again"


def level_forecast(
    name: str, level: ServiceLevel, traces: Sequence[CallTrace], model: QueueModel | None, texts: Mapping[str, str],
    *, doubt: str = "",
) -> LevelForecast:  # fmt: skip
    """Return what is known of a level.

    Parameters
    ----------
    model
        What other loads are expected by; None: nothing but the measured ones is known.
    doubt
        Why no load that was measured proves that the level is met; a miss remains one.
    """
    measured = tuple(sorted(
        (_doubted(_at_load(trace, level, texts), doubt or _overload(model, trace)) for trace in traces
         if trace.multiple is not None),
        key=lambda point: point.multiple,
    ))  # fmt: skip
    usable = [point for point in measured if not point.invalid]
    expected = expect(model, level, texts, usable) if model is not None and usable else ModelExpectation()
    limit, contradiction = _limit(measured, expected), _is_contradictory(measured)
    reasons = (*expected.reasons, *((CONTRADICTION,) if contradiction else ()))
    headroom = level.headroom
    return LevelForecast(
        name, level.statements or "", level.quantile, level.seconds, measured, expected.curve, limit,
        state_at(measured, 1.0), headroom, None if headroom is None else state_at(measured, headroom), reasons,
    )  # fmt: skip


def state_at(measured: Sequence[LevelAtLoad], multiple: float) -> LevelState:
    """Return the state at a multiple, from what was measured there, below and above."""
    missed = [point for point in measured if point.state is LevelState.MISSED and point.multiple <= multiple + CLOSE]
    met = [point for point in measured if point.state is LevelState.MET and point.multiple >= multiple - CLOSE]
    if missed and not any(point.multiple > missed[0].multiple for point in met):
        return LevelState.MISSED
    return LevelState.MET if met and not missed else LevelState.NOT_KNOWN


def _doubted(point: LevelAtLoad, doubt: str) -> LevelAtLoad:
    if point.state is not LevelState.MET or not doubt:
        return point
    return replace(point, state=LevelState.NOT_KNOWN, reasons=(doubt,))


def _overload(model: QueueModel | None, trace: CallTrace) -> str:
    """Return that a load is more than the target carries, empty where that is not certain."""
    least = 0.0 if model is None else model.utilization(model.rate * (trace.multiple or 0.0))[0]
    if least < 1:
        return ""
    return f"utilization is {least:.2f}: the queue grows for as long as the load lasts, a longer replay would be later"


def _is_contradictory(measured: Sequence[LevelAtLoad]) -> bool:
    missed = [point.multiple for point in measured if point.state is LevelState.MISSED]
    return bool(missed) and any(
        point.state is LevelState.MET and point.multiple >= min(missed) for point in measured
    )  # fmt: skip


def _at_load(trace: CallTrace, level: ServiceLevel, texts: Mapping[str, str]) -> LevelAtLoad:
    latencies, own, alone = (
        _of_level(trace, values, level, texts) for values in (trace.latencies, trace.own, trace.alone)
    )  # fmt: skip
    estimate = quantile_estimate(latencies, level.quantile, CONFIDENCE)
    reasons = (*trace.problems, *_own_delay(own, level))
    invalid, state = bool(reasons), LevelState.NOT_KNOWN
    if not invalid:
        state, reason = judge(estimate, level)
        reasons = (reason,) if reason else ()
        steady = latency_without_pause(trace, level, texts) if state is LevelState.MISSED else None
        if steady is not None and judge(quantile_estimate(steady, level.quantile, CONFIDENCE), level)[0] is not state:
            state, reasons = LevelState.NOT_KNOWN, (ONE_PAUSE,)
    elif not trace.problems and alone.count:
        without = quantile_estimate(alone, level.quantile, CONFIDENCE)
        state = LevelState.MISSED if judge(without, level)[0] is LevelState.MISSED else state
    low, high, value = (
        (None, None, None) if estimate is None
        else (_seconds(estimate.low), _seconds(estimate.high), _seconds(estimate.value))
    )  # fmt: skip
    return LevelAtLoad(trace.multiple or 0.0, latencies.count, value, low, high, state, reasons, invalid)


def latency_alone(trace: CallTrace, level: ServiceLevel, texts: Mapping[str, str]) -> Histogram:
    """Return the latencies of a level's statements without what the replay itself held back."""
    return _of_level(trace, trace.alone, level, texts)


def latency_without_pause(trace: CallTrace, level: ServiceLevel, texts: Mapping[str, str]) -> Histogram | None:
    """Return the latencies of a level's statements without those late in one pause; None where there was none."""
    covered = _covered(trace, level, texts)
    calls = [place for place, digest in enumerate(trace.digests) if digest in covered]
    limit = int(level.seconds * 1e6)
    pause = longest_pause(calls, trace.begins, trace.services, trace.latencies, limit)
    if pause is None:
        return None
    left_out = set(pause.calls)
    return Histogram.of([trace.latencies[one] for one in calls if one not in left_out])


def _of_level(trace: CallTrace, values: Sequence[int], level: ServiceLevel, texts: Mapping[str, str]) -> Histogram:
    covered = _covered(trace, level, texts)
    return Histogram.of(list(compress(values, (digest in covered for digest in trace.digests))))


def _covered(trace: CallTrace, level: ServiceLevel, texts: Mapping[str, str]) -> set[int]:
    """Return the places in ``trace.names`` of the digests that a level judges."""
    return {place for place, name in enumerate(trace.names) if covers(level, texts.get(name, ""))}


def _seconds(value: int | None) -> float | None:
    return None if value is None else value / 1e6


def judge(estimate: QuantileEstimate | None, level: ServiceLevel) -> tuple[LevelState, str]:
    """Return the state of a level by a measured quantile, and why it is not known."""
    if estimate is None:
        return LevelState.NOT_KNOWN, "no call of its statements was timed on the target"
    low, high = _seconds(estimate.low), _seconds(estimate.high)
    if low is not None and low >= level.seconds:
        return LevelState.MISSED, ""
    if high is None:
        return LevelState.NOT_KNOWN, too_few(level.quantile, estimate.count)
    if high < level.seconds:
        return LevelState.MET, ""
    return LevelState.NOT_KNOWN, (
        f"p{level.quantile * 100:g} is between {low or 0:.3g} s and {high:.3g} s, and the limit {level.seconds:g} s is"
        " in between: replay more calls"
    )


def _own_delay(own: Histogram, level: ServiceLevel) -> Iterator[str]:
    delay = (own.quantile(level.quantile) or 0) / 1e6
    if delay > OWN_SHARE * level.seconds:
        yield (
            f"the replay itself held calls back, p{level.quantile * 100:g} {delay:.3g} s: its processes, its"
            " connections or a slower source were the limit; give it more --jobs and --connections, or measure the"
            " target alone with --rates 1"
        )


def _limit(measured: Sequence[LevelAtLoad], expected: ModelExpectation) -> LoadLimit:
    """Return the limit of both; what was measured wins over what was expected."""
    if _is_contradictory(measured):
        return LoadLimit(None, False, None, False)
    met = max((point.multiple for point in measured if point.state is LevelState.MET), default=None)
    missed = min((point.multiple for point in measured if point.state is LevelState.MISSED), default=None)
    earliest, latest = expected.earliest, expected.latest
    if earliest is not None and missed is not None and earliest >= missed:
        earliest = None
    if latest is not None and met is not None and latest <= met:
        latest = None
    is_earlier = earliest is not None and (met is None or earliest > met)
    is_later = latest is not None and (missed is None or latest < missed)
    return LoadLimit(
        earliest if is_earlier else met, not is_earlier and met is not None,
        latest if is_later else missed, not is_later and missed is not None,
    )  # fmt: skip


def judge_headroom(forecast: LoadForecast) -> list[SloResult]:
    """Return whether levels that ask for headroom have it, as measured."""
    results = []
    for level in forecast.levels:
        if level.headroom is None or level.at_headroom is None:
            continue
        met = {LevelState.MET: True, LevelState.MISSED: False, LevelState.NOT_KNOWN: None}[level.at_headroom]
        point = _nearest(level.measured, level.headroom)
        results.append(SloResult(
            f"{level.name} at {level.headroom:g}x", met, tuple(_headroom_reasons(level, forecast)), 0.0, 0.0,
            None if point is None else point.value, (None, None) if point is None else (point.low, point.high),
        ))  # fmt: skip
    return results


def _nearest(measured: Sequence[LevelAtLoad], multiple: float) -> LevelAtLoad | None:
    return min(measured, key=lambda point: abs(point.multiple - multiple), default=None)


def _headroom_reasons(level: LevelForecast, forecast: LoadForecast) -> Iterator[str]:
    name = f"p{level.quantile * 100:g}"
    if level.at_headroom is LevelState.MISSED:
        missed = next(point for point in level.measured if point.state is LevelState.MISSED)
        value = f"{name} is {missed.value or 0:.3f} s"
        yield f"{value} at {missed.multiple:g}x the captured load, not below {level.seconds:g} s"
    elif level.at_headroom is LevelState.NOT_KNOWN:
        headroom = level.headroom or 1.0
        point = _nearest(level.measured, headroom)
        if point is not None and abs(point.multiple - headroom) <= CLOSE:
            yield from point.reasons or (CONTRADICTION,)
            return
        yield (
            f"{headroom:g}x the captured load was not measured: replay with --rates {headroom:g}, or with writes on"
            f" fresh clones at --pace x{headroom:g}"
        )
        yield from expectation(level)
        yield from forecast.reasons


def expectation(level: LevelForecast) -> Iterator[str]:
    """Yield what the model expects of the load at which a level stops being met."""
    limit = level.limit
    if level.curve and not limit.earliest_measured and limit.earliest is not None:
        yield f"forecast: the level is met up to {limit.earliest:.2f}x the captured load at least"
    if level.curve and not limit.latest_measured and limit.latest is not None:
        yield f"forecast: the level is missed beyond {limit.latest:.2f}x the captured load"
