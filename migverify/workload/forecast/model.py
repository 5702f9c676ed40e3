"""The nouns of a forecast: what was measured at each load, what is expected of others. Frozen, without I/O.

A *multiple* is a load as a multiple of the captured one: at 1.3 the captured calls come 1.3 times as fast. Times are
seconds unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from migverify.codec import decode, encode

MOST_MULTIPLE = 10.0
"""No forecast is made of a heavier load."""


class LevelState(StrEnum):
    """Whether a service level is met under a load."""

    MET = "met"
    MISSED = "missed"
    NOT_KNOWN = "not known"


@dataclass(frozen=True, slots=True)
class CallTrace:
    """Calls that the target answered, ordered by when they began. Times are microseconds; sequences have one length.

    Parameters
    ----------
    multiple
        The load under which they were asked; None: their pace was not that of the capture.
    arrivals
        When each was due, after the first one, by the captured clock.
    begins
        When each began, after the run's beginning, by the clock of the run.
    services, latencies
        The target's answer counted from when the call was sent, and from when it was due.
    digests
        Places in ``names``.
    own
        How long the replay held back a call that was due and whose session was free on the target, and stood still
        while it waited for the answer.
    alone
        Latencies without what the replay held back, of this call and of those before it in its session; empty where
        they are not known.
    """

    multiple: float | None
    arrivals: Sequence[int]
    begins: Sequence[int]
    services: Sequence[int]
    latencies: Sequence[int]
    digests: Sequence[int]
    own: Sequence[int]
    names: tuple[str, ...]
    problems: tuple[str, ...] = ()
    alone: Sequence[int] = ()

    @property
    def count(self) -> int:
        """How many calls there are."""
        return len(self.services)

    @property
    def seconds(self) -> float:
        """How long it took until the last answer."""
        ends = (begin + service for begin, service in zip(self.begins, self.services, strict=True))
        return max(ends, default=0) / 1e6


@dataclass(frozen=True, slots=True)
class LevelAtLoad:
    """A quantile that was measured under a load, with its interval, and what that says of the level.

    ``value`` is None where nothing was measured; ``low`` and ``high`` where too few calls bound it on that side.
    ``invalid``: the load was not what it should have been, and the figures are those of another one.
    """

    multiple: float
    calls: int
    value: float | None
    low: float | None
    high: float | None
    state: LevelState
    reasons: tuple[str, ...] = ()
    invalid: bool = False


@dataclass(frozen=True, slots=True)
class ForecastPoint:
    """The interval of a quantile that is expected under a load; None: without an upper bound."""

    multiple: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class LoadLimit:
    """Multiples between which the level stops being met: ``earliest`` is still met, at ``latest`` it is missed.

    Each says whether it was measured. None: no such load is known.
    """

    earliest: float | None
    earliest_measured: bool
    latest: float | None
    latest_measured: bool


@dataclass(frozen=True, slots=True)
class LevelForecast:
    """A service level under the captured load and others.

    ``statements`` is the pattern of digest texts that it judges, empty for all. ``measured`` ascend by multiple;
    ``curve`` is the forecast, empty where none can be made. ``captured`` is the state at 1.0, ``at_headroom`` that at
    ``headroom``, both from measurements alone.
    """

    name: str
    statements: str
    quantile: float
    seconds: float
    measured: tuple[LevelAtLoad, ...]
    curve: tuple[ForecastPoint, ...]
    limit: LoadLimit
    captured: LevelState
    headroom: float | None = None
    at_headroom: LevelState | None = None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DigestUse:
    """How much of the target's busy time one digest takes: its calls times the mean of those that met no queue.

    ``rate`` and ``peak`` are calls a second as captured.
    """

    digest: str
    text: str
    share: float
    rate: float
    peak: float
    mean: float
    calls: int


@dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """One replay at one multiple. ``own`` is the replay's own delay at p99; with ``problems`` it proves nothing."""

    multiple: float | None
    calls: int
    seconds: float
    rate: float
    busy: float
    own: float | None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How many statements the target works on at once without slowing down. ``most`` None: no bound was seen."""

    least: int
    most: int | None
    given: bool = False


@dataclass(frozen=True, slots=True)
class LoadForecast:
    """What a run tells of the target's load. ``reasons`` say what is not known of it, and what to do about that.

    ``rate`` and ``peak`` are calls a second as captured, of all the time and of its busiest ``stretch`` seconds.
    ``utilization`` and ``peak_utilization`` are intervals under the captured load, by the bounds of ``parallelism``.
    """

    seconds: float
    rate: float
    peak: float
    stretch: float
    parallelism: Parallelism | None
    utilization: tuple[float, float] | None
    peak_utilization: tuple[float, float] | None
    loads: tuple[MeasuredLoad, ...]
    levels: tuple[LevelForecast, ...]
    uses: tuple[DigestUse, ...]
    reasons: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the forecast as a JSON object."""
        return dict(encode(self))

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> LoadForecast:
        """Read what ``as_json`` wrote; raises ValueError where it is something else."""
        return decode(cls, body)
