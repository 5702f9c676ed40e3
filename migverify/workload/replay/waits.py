"""What calls that began late had waited for: the target, the source, other sessions, or the replay itself.

The next call of a session waits for both answers, so that a slow side makes the other one's latency from the due time
long. A call that is late by nothing of this was held back by the replay: its processes, or its connections.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from migverify.workload.replay.pace import Pace
from migverify.workload.replay.runfile import RunFile
from migverify.workload.replay.timing import asked_calls

LEAST_LAG = 1_000_000
"""Microseconds; a run whose calls all began less late than that waited for nothing worth a word."""
_TARGET, _SOURCE, _BOTH = "the target", "the source", "both sides at once"
_SESSIONS, _REPLAY = "other sessions or the replay itself", "the replay itself"


@dataclass(slots=True)
class WaitTotal:
    """Waits for one thing: microseconds in all and the longest, and when that began in the run."""

    calls: int = 0
    micros: int = 0
    most: int = 0
    at: int = 0

    def add(self, micros: int, at: int) -> None:
        """Count one wait; none is none."""
        if micros <= 0:
            return
        self.calls += 1
        self.micros += micros
        if micros > self.most:
            self.most, self.at = micros, at

    def text(self, name: str) -> str:
        """Return it in one line."""
        calls = f"{self.calls:,} call{'' if self.calls == 1 else 's'}"
        return (
            f"{name}: {calls}, {self.micros / 1e6:,.1f} s in all; at most {self.most / 1e6:,.1f} s,"
            f" {self.at / 1e6:,.1f} s after the beginning"
        )


def waits(run: RunFile, pace: Pace) -> list[str]:
    """Return what late calls waited for, the most first; times overlap, as sessions wait beside each other.

    Raises PlanError: the run file is damaged.
    """
    totals = {name: WaitTotal() for name in (_TARGET, _SOURCE, _BOTH, _SESSIONS, _REPLAY)}
    for name, begin, end in _waits(run, pace):
        totals[name].add(end - begin, begin)
    listed = sorted(totals.items(), key=lambda item: -item[1].micros)
    return [total.text(name) for name, total in listed if total.calls]


def _waits(run: RunFile, pace: Pace) -> Iterator[tuple[str, int, int]]:
    """Yield what a late call waited for, from when to when, microseconds of the run."""
    session, source, target = -1, 0, 0
    for call in asked_calls(run, pace):
        judged, begin = call.outcome, call.begin
        if call.session != session:
            session, source, target = call.session, 0, 0
        if judged.source_service is None and judged.target_service is None:
            continue  # it was not asked
        early, late = sorted((source, target))
        yield _BOTH, call.intended, min(begin, early)
        yield (_TARGET if target >= source else _SOURCE), max(call.intended, early), min(begin, late)
        yield (_SESSIONS if call.waits else _REPLAY), max(call.intended, late), begin
        source, target = begin + (judged.source_service or 0), begin + (judged.target_service or 0)
