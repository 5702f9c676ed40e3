"""One id space: what is used of it, where it ends, and when. Frozen, typed, without I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from migverify.guards.layouts import Layout, moment_text
from migverify.guards.model import AnswerState

NAME = "ids"
DAY = 86_400_000
JAVASCRIPT = (1 << 53) - 1
"""The largest integer that a JavaScript number holds exactly."""


class IdKind(StrEnum):
    """What gives out the ids."""

    AUTO_INCREMENT = "auto_increment"
    AUTO_RANDOM = "auto_random"
    ROW_ID = "_tidb_rowid"
    SEQUENCE = "sequence"
    SNOWFLAKE = "snowflake"
    INTEGER = "integer"  # an integer key that the application fills by a rule of its own
    MIXED = "mixed"  # two generators in one column
    RANDOM = "random"  # random numbers or hashes: nothing counts, so nothing ends


@dataclass(frozen=True, slots=True)
class IdLimits:
    """When an id space fails: fewer days left, or a larger share used."""

    days: float = 180.0
    used: float = 0.7
    javascript: bool = False


@dataclass(frozen=True, slots=True)
class IdReading:
    """How much was used at a moment (Unix milliseconds)."""

    time: float
    used: int


@dataclass(frozen=True, slots=True)
class IdSpace:
    """An id space of one endpoint.

    ``used`` and ``limit`` are ids of a counter, ticks of a snowflake's time field. ``narrowed`` names the column whose
    type ends the space before the generator's own end. ``history`` are earlier readings, any order.
    ``exhausts_at`` is Unix milliseconds, None where nothing projects it. ``problems`` fail it, ``doubts`` make it
    inconclusive, ``notes`` explain.
    """

    endpoint: str
    table: str
    column: str
    kind: IdKind
    used: int | None
    limit: int | None
    query: str
    layout: Layout | None = None
    confidence: float | None = None
    evidence: str = ""
    narrowed: str = ""
    exhausts_at: float | None = None
    workers_used: int | None = None
    workers_total: int | None = None
    sequence_peak: int | None = None
    sequence_total: int | None = None
    ahead_ms: float = 0.0
    largest: int | None = None
    cache: int | None = None
    cycles: bool = False
    problems: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    history: tuple[IdReading, ...] = field(default=(), repr=False)

    @property
    def subject(self) -> str:
        """Its name over time."""
        return f"{self.endpoint}/{self.table}.{self.column}" if self.column else f"{self.endpoint}/{self.table}"

    @property
    def used_ratio(self) -> float | None:
        """Share of the space that is used; None where either end is unknown."""
        if self.used is None or not self.limit:
            return None
        return self.used / self.limit


def projected(space: IdSpace, now: float) -> IdSpace:
    """Return the space with the moment of its exhaustion: the time field's end, or the growth of earlier readings.

    The time field ends where the column's type does, if that is earlier: 41 + 13 + 10 bits are 64, and a signed BIGINT
    holds 63 of them.

    The growth is the steeper one of the whole history and of its last third: a space that grows faster lately must not
    be judged by its quiet year. A space that cycles or shrinks has no such moment.
    """
    if space.layout is not None:
        ticks = 1 << space.layout.time_bits if space.limit is None else space.limit
        return replace(space, exhausts_at=float(space.layout.epoch + ticks * space.layout.unit))
    if space.used is None or space.limit is None or space.cycles:
        return space
    if space.used >= space.limit:
        return replace(space, exhausts_at=now)
    points = sorted((*space.history, IdReading(now, space.used)), key=lambda point: point.time)
    rates = [rate for part in (points, points[-max(2, len(points) // 3) :]) if (rate := _rate(part)) is not None]
    if not rates or max(rates) <= 0:
        return space
    return replace(space, exhausts_at=now + (space.limit - space.used) / max(rates))


def _rate(points: Sequence[IdReading]) -> float | None:
    """Return ids per millisecond between the ends of a part; None within a minute or when the counter was set back."""
    if len(points) < 2 or points[-1].time - points[0].time < 60_000:
        return None
    grown = points[-1].used - points[0].used
    return None if grown < 0 else grown / (points[-1].time - points[0].time)


def judged(space: IdSpace, limits: IdLimits, now: float) -> tuple[AnswerState, str]:
    """Return the state of a space and the reason in words."""
    failed = list(space.problems)
    beyond = space.largest is not None and space.largest > JAVASCRIPT
    rounded = "ids beyond 2^53: a JavaScript client rounds them"
    ratio = space.used_ratio
    if space.exhausts_at is not None:
        days = (space.exhausts_at - now) / DAY
        if days <= 0:
            failed.append(f"exhausted since {moment_text(space.exhausts_at)}")
        elif days < limits.days:
            failed.append(f"exhausts on {moment_text(space.exhausts_at)[:10]}, in {days:.1f} days")
    counter = space.kind is not IdKind.SNOWFLAKE and not space.cycles
    if counter and ratio is not None and ratio > limits.used:
        failed.append(f"{_percent(ratio)} used, {_percent(limits.used)} allowed")
    if failed or (beyond and limits.javascript):
        return AnswerState.FAIL, "; ".join([*failed, *([rounded] if beyond else [])])
    if space.doubts:
        return AnswerState.INCONCLUSIVE, "; ".join([*space.doubts, *([rounded] if beyond else [])])
    if ratio is None and not space.cycles and space.kind is not IdKind.RANDOM:
        return AnswerState.INCONCLUSIVE, "how much is used is not known"
    notes = list(space.notes)
    if beyond:
        notes.append("ids beyond 2^53: JavaScript clients need them as text")
    if not counter and ratio is not None and ratio > limits.used and not space.cycles:
        notes.append(f"{_percent(ratio)} of the time field is behind")
    reported = [f"{_percent(ratio)} used"] if ratio is not None else []
    if space.exhausts_at is not None:
        reported.append(f"until {moment_text(space.exhausts_at)[:10]}")
    elif space.cycles:
        reported.append("it cycles")
    elif space.kind is IdKind.RANDOM:
        reported.append("random or hashed: no counter that ends")
    else:
        reported.append("no growth known yet")
    state = AnswerState.WARN if notes and (beyond or any(note.startswith("!") for note in notes)) else AnswerState.PASS
    return state, "; ".join([", ".join(reported), *(note.removeprefix("!") for note in notes)])


def _percent(ratio: float) -> str:
    percent = ratio * 100
    return f"{percent:.1f} %" if percent >= 0.1 or percent == 0 else f"{percent:.2g} %"


def as_json(space: IdSpace, limits: IdLimits, now: float) -> dict[str, Any]:
    """Return the space as one JSON object."""
    state, reason = judged(space, limits, now)
    ratio = space.used_ratio
    return {
        "endpoint": space.endpoint, "table": space.table, "column": space.column, "kind": space.kind.value,
        "layout": None if space.layout is None else _layout(space.layout),
        "confidence": space.confidence, "evidence": space.evidence,
        "used": space.used, "limit": space.limit,
        "used_ratio": None if ratio is None or math.isnan(ratio) else ratio,
        "exhausts_on": None if space.exhausts_at is None else moment_text(space.exhausts_at),
        "days_left": None if space.exhausts_at is None else (space.exhausts_at - now) / DAY,
        "largest": space.largest, "beyond_2_53": space.largest is not None and space.largest > JAVASCRIPT,
        "limited_by": space.narrowed or None, "cache": space.cache,
        "workers_used": space.workers_used, "workers_total": space.workers_total,
        "sequence_peak": space.sequence_peak, "sequence_total": space.sequence_total,
        "ahead_seconds": space.ahead_ms / 1000,
        "verdict": "pass" if state is AnswerState.WARN else state.value, "warning": state is AnswerState.WARN,
        "reason": reason,
        "query": space.query,
    }  # fmt: skip


def _layout(layout: Layout) -> dict[str, Any]:
    return {
        "name": layout.name, "time_bits": layout.time_bits,
        "worker_bits": layout.worker_bits if layout.split else None,
        "sequence_bits": layout.sequence_bits if layout.split else None,
        "unit_ms": layout.unit, "epoch": moment_text(layout.epoch), "epoch_ms": layout.epoch,
        "order": "sequence, worker" if layout.sequence_first else "worker, sequence",
    }  # fmt: skip
