"""One pause of the target, and what is left without it.

A garbage collection, a checkpoint or a failover makes all calls of a moment late at once. Intervals of quantiles take
calls as independent of each other, so that one event among a thousand calls looks like thirty proofs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

LONGEST_PAUSE = 10.0
"""Seconds; calls that are late for longer are late for certain."""
MOST_OF_RUN = 0.2
"""Share of the run; beyond it a pause is what the run shows."""


@dataclass(frozen=True, slots=True)
class TargetPause:
    """A stretch in which each late call was under way with another one; ``calls`` are the indexes of the late ones."""

    begin: int
    end: int
    calls: tuple[int, ...]


def longest_pause(
    calls: Sequence[int], begins: Sequence[int], services: Sequence[int], latencies: Sequence[int], limit: int
) -> TargetPause | None:
    """Return the one stretch with the most calls at a limit or above it, where it may be a pause.

    Parameters
    ----------
    calls
        Indexes of the calls to look at.
    begins, services, latencies
        As in ``CallTrace``, microseconds.
    limit
        Microseconds.

    Returns
    -------
    TargetPause or None
        None: no call is late, or the stretch is longer than a pause.
    """
    late = sorted(
        (begins[one] + services[one] - latencies[one], begins[one] + services[one], one)
        for one in calls if latencies[one] >= limit
    )  # fmt: skip
    worst = max(_stretches(late), key=lambda stretch: len(stretch.calls), default=None)
    run = max((begins[one] + services[one] for one in calls), default=0)
    if worst is None or worst.end - worst.begin > min(LONGEST_PAUSE * 1e6, MOST_OF_RUN * run):
        return None
    return worst


def _stretches(late: Sequence[tuple[int, int, int]]) -> Iterator[TargetPause]:
    """Yield stretches of calls of which each was due before the ones before it had all ended."""
    begin = end = 0
    some: list[int] = []
    for due, ended, one in late:
        if some and due > end:
            yield TargetPause(begin, end, tuple(some))
            some = []
        if not some:
            begin, end = due, ended
        some.append(one)
        end = max(end, ended)
    if some:
        yield TargetPause(begin, end, tuple(some))
