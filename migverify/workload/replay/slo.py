"""Named service levels: so many writes and reads a second, and a quantile of their latency below a limit.

Latency counts from when a call was due, so that time spent behind a slow call counts. A level is held only when the
load it speaks of was there: with less, nothing is known about it.
"""

from __future__ import annotations

from dataclasses import dataclass

from migverify.errors import UsageError
from migverify.workload.replay.latency import Histogram

REACHED = 0.99
"""Share of the asked rate that counts as reached."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A service level: calls per second, and that ``quantile`` of the target's latencies is below ``seconds``."""

    name: str
    writes: float
    reads: float
    quantile: float
    seconds: float


PAYMENTS = Profile("payments", 2000.0, 1000.0, 0.99, 2.0)
"""The load of a payment database: 2,000 writes and 1,000 reads a second, p99 below two seconds."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run did: calls carried out, seconds, latencies of the target from when each call was due.

    ``whole`` is empty when the run got to its end in one go under open loop, else why it says nothing of a level.
    """

    writes: int
    reads: int
    seconds: float
    latency: Histogram
    whole: str = ""


@dataclass(frozen=True, slots=True)
class SloResult:
    """Whether a level was held; ``met`` None: it could not be told, and ``reasons`` say why."""

    name: str
    met: bool | None
    reasons: tuple[str, ...]
    writes: float
    reads: float
    latency: float | None  # seconds at the quantile


def profile(name: str, known: dict[str, Profile]) -> Profile:
    """Return a profile by name.

    Raises
    ------
    UsageError
        there is none of that name.
    """
    found = {PAYMENTS.name: PAYMENTS, **known}
    if name not in found:
        raise UsageError(f"there is no service level {name!r}", hint=f"Known: {', '.join(sorted(found))}.")
    return found[name]


def judge_level(wanted: Profile, measured: Measured) -> SloResult:
    """Judge a run by a service level.

    A latency above the limit is a miss at any load; a latency below it holds only under the load asked for.
    """
    seconds = measured.seconds
    writes = measured.writes / seconds if seconds else 0.0
    reads = measured.reads / seconds if seconds else 0.0
    at = measured.latency.quantile(wanted.quantile)
    latency = None if at is None else at / 1e6
    reasons: list[str] = []
    met: bool | None = True
    for what, done, asked in (("writes", writes, wanted.writes), ("reads", reads, wanted.reads)):
        if done < asked * REACHED:
            met = None
            reasons.append(f"{done:,.0f} {what}/s were carried out of {asked:,.0f} asked for: that load was not there")
    if measured.whole:
        met = None
        reasons.append(measured.whole)
    if latency is None:
        met = None
        reasons.append("no latency was measured")
    elif latency >= wanted.seconds:
        met = False
        reasons.append(f"p{wanted.quantile * 100:g} is {latency:.3f} s, not below {wanted.seconds:g} s")
    return SloResult(wanted.name, met, tuple(reasons), writes, reads, latency)
