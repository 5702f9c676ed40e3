"""Named service levels: so many writes and reads a second, and a quantile of their latency below a limit.

Latency counts from when a call was due, so that time spent behind a slow call counts. A level is met only when the load
it requires was there: with less, nothing is known about it.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from migverify.errors import UsageError
from migverify.workload.replay.latency import Histogram
from migverify.workload.replay.statistics import quantile_estimate

if TYPE_CHECKING:
    from migverify.config.settings import ServiceLevel

CONFIDENCE = 0.95
_HELD_BACK = (
    "; that is not certain of the target, as the replay itself held calls back or stood still: give it more --jobs and"
    " --connections, and a machine with nothing else on it, or measure the target alone with --rates 1"
)
ONE_PAUSE = (
    "nearly all late calls are of one short stretch: a pause of the target, as of a garbage collection, or the"
    " beginning of more; replay longer"
)
REACHED = 0.99
"""Share of the required rate that counts as reached."""


@dataclass(frozen=True, slots=True)
class ReplayMeasurement:
    """What a run did: calls carried out, seconds, latencies of the target from when each call was due.

    ``whole`` is empty when the run got to its end in one go under open loop, else why it says nothing of a level.
    ``alone`` are the latencies without what the replay itself held back, None where that is not known. ``steady`` are
    those without the calls that were late in one pause of the target, None where there was none.
    """

    writes: int
    reads: int
    seconds: float
    latency: Histogram
    whole: str = ""
    alone: Histogram | None = None
    steady: Histogram | None = None


@dataclass(frozen=True, slots=True)
class SloResult:
    """Whether a level was met; ``met`` None: it is not known, and ``reasons`` say why."""

    name: str
    met: bool | None
    reasons: tuple[str, ...]
    writes: float
    reads: float
    latency: float | None  # seconds at the quantile
    interval: tuple[float | None, float | None] = (None, None)  # of that; None: too few calls bound it on that side


def level(name: str, configured: Mapping[str, ServiceLevel]) -> ServiceLevel:
    """Return a service level by name; ``payments`` is built in: 2,000 writes and 1,000 reads a second, p99 < 2 s."""
    from migverify.config.settings import ServiceLevel

    known = {"payments": ServiceLevel(writes=2000.0, reads=1000.0, seconds=2.0), **configured}
    if name not in known:
        raise UsageError(f"there is no service level {name!r}", hint=f"Known: {', '.join(sorted(known))}.")
    return known[name]


def with_headroom(level: ServiceLevel, headroom: float | None) -> ServiceLevel:
    """Return a level that asks for this headroom; None: for its own."""
    return level if headroom is None else level.model_copy(update={"headroom": headroom})


def judge_level(name: str, level: ServiceLevel, measured: ReplayMeasurement) -> SloResult:
    """Judge a run: a latency above the limit is a miss at any load, one below counts under the required load only.

    A few slow calls among few (first executions, a garbage collection) are no miss: the interval must be above.
    """
    seconds = measured.seconds
    writes, reads = (number / seconds if seconds else 0.0 for number in (measured.writes, measured.reads))
    estimate = quantile_estimate(measured.latency, level.quantile, CONFIDENCE)
    latency = None if estimate is None else estimate.value / 1e6
    low, high = (None, None) if estimate is None else (_seconds(estimate.low), _seconds(estimate.high))
    reasons = [
        f"{done:,.0f} {what}/s were carried out of {required:,.0f} required: that load was not there"
        for what, done, required in (("writes", writes, level.writes), ("reads", reads, level.reads))
        if done < required * REACHED
    ]
    if measured.whole:
        reasons.append(measured.whole)
    if latency is None:
        reasons.append("no latency was measured")
    met = None if reasons else True
    if latency is not None and latency >= level.seconds:
        met = False if low is not None and low >= level.seconds else None
        above = f"p{level.quantile * 100:g} is {latency:.3f} s, not below {level.seconds:g} s"
        doubt = (
            "" if met is False else f": {measured.latency.count:,} calls are too few to be certain of that; replay more"
        )
        if met is False and measured.alone is not None and not _is_missed(measured.alone, level):
            met, doubt = None, _HELD_BACK
        elif met is False and measured.steady is not None and not _is_missed(measured.steady, level):
            met, doubt = None, f": {ONE_PAUSE}"
        reasons.append(above + doubt)
    return SloResult(name, met, tuple(reasons), writes, reads, latency, (low, high))


def _is_missed(latency: Histogram, level: ServiceLevel) -> bool:
    estimate = quantile_estimate(latency, level.quantile, CONFIDENCE)
    low = None if estimate is None else _seconds(estimate.low)
    return low is not None and low >= level.seconds


def covers(level: ServiceLevel, text: str) -> bool:
    """Tell whether a level judges a statement, by its digest text."""
    if level.statements is None:
        return True
    pattern = level.statements.lower().replace("[", "[[]")  # * and ? alone are special
    return fnmatch.fnmatchcase(text.lower(), pattern)


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1e6
