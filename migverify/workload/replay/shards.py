"""Which sessions are played together: those that wait for each other, as long as shards stay about even."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from migverify.workload.replay.order import components
from migverify.workload.replay.spool import Spool

MOST_EDGES = 1_000_000
SLACK = 1.2
"""How much bigger than its even part a group of conflicting sessions may be."""


def shards(spool: Spool, count: int, left: dict[int, int]) -> list[list[int]]:
    """Deal sessions to ``count`` shards; sessions that wait for each other stay together as far as sizes allow.

    Parameters
    ----------
    left
        Sessions that have calls to ask, and how many.

    Returns
    -------
    list of list of int
        Numbers of sessions; a shard without any is left out.
    """
    edges: Counter[tuple[int, int]] = Counter()
    for number in left:
        session = spool.sessions[number]
        for index in range(session.first, session.first + session.count):
            for other in _others(spool, index):
                if other in left and len(edges) < MOST_EDGES:
                    edges[min(number, other), max(number, other)] += 1
    sizes = [left.get(number, 0) for number in range(len(spool.sessions))]
    most = max(1, int(sum(sizes) / max(1, count) * SLACK))
    groups: dict[int, list[int]] = {}
    for number, group in enumerate(components([edge for edge, _ in edges.most_common()], sizes, most)):
        if number in left:
            groups.setdefault(group, []).append(number)
    dealt: list[list[int]] = [[] for _ in range(max(1, count))]
    loads = [0] * len(dealt)
    for members in sorted(groups.values(), key=lambda one: (-sum(sizes[n] for n in one), one[0])):
        least = loads.index(min(loads))
        dealt[least] += members
        loads[least] += sum(sizes[number] for number in members)
    return [sorted(one) for one in dealt if one]


def _others(spool: Spool, index: int) -> Iterable[int]:
    return {spool.place(other).session for other in spool.turn(index).waits}
