"""Cycles of a dependency graph: strongly connected components first (Tarjan 1972), then short cycles inside them."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from migverify.workload.anomalies.infer import DependencyArrays
from migverify.workload.anomalies.model import Cycle, DependencyKind, Phenomenon

MOST_STEPS = 20_000_000
"""Dependencies that the search inside components looks at; it is cut off there, and says so."""
MOST_CYCLES = 10_000
_DONE = 1 << 30

_WW, _WR, _RW = (1 << kind for kind in DependencyKind)
_SEARCHES = (
    (Phenomenon.G0, _WW, _WW),
    (Phenomenon.G1C, _WR, _WW | _WR),
    (Phenomenon.G_SINGLE, _RW, _WW | _WR),
    (Phenomenon.G2_ITEM, _RW, _WW | _WR | _RW),
)
"""By phenomenon: the kind that a cycle begins with, and the kinds of the rest of it.

A dependency is searched from once; as the searches go from strict to loose, a cycle with one RW is no G2-item.
"""


@dataclass(slots=True)
class CycleSearch:
    """What the search gave. ``complete`` is False where it was cut off."""

    cycles: list[tuple[Phenomenon, Cycle]] = field(default_factory=list)
    complete: bool = True


def find_cycles(nodes: int, dependencies: DependencyArrays, most_steps: int = MOST_STEPS) -> CycleSearch:
    """Return cycles by phenomenon, each as short as one is that begins with its first dependency."""
    search = CycleSearch()
    steps = most_steps
    for inside in _components(nodes, dependencies):
        steps = _Component(dependencies, inside, steps).search(search)
        if steps <= 0 or len(search.cycles) >= MOST_CYCLES:
            search.complete = False
            break
    return search


def _components(nodes: int, dependencies: DependencyArrays) -> Iterator[list[int]]:
    """Yield the dependencies inside each component of two or more transactions."""
    component = strong_components(nodes, dependencies.before, dependencies.after)
    inside: dict[int, list[int]] = {}
    for number, (before, after) in enumerate(zip(dependencies.before, dependencies.after, strict=True)):
        if component[before] == component[after]:
            inside.setdefault(component[before], []).append(number)
    yield from inside.values()


def strong_components(nodes: int, before: Sequence[int], after: Sequence[int]) -> array[int]:
    """Return for each node the number of its strongly connected component; linear, without recursion."""
    first, targets = _rows(nodes, before, after)
    component, low, order = (array("i", [0]) * nodes for _ in range(3))
    next_edge = array("i", first)
    stack: list[int] = []
    seen = components = 0
    for root in range(nodes):
        if order[root]:
            continue
        path = [root]
        while path:
            node = path[-1]
            if not order[node]:
                seen += 1
                order[node] = low[node] = seen
                stack.append(node)
            at, end, lowest = next_edge[node], first[node + 1], low[node]
            while at < end:
                target = targets[at]
                if not order[target]:
                    break
                at += 1
                lowest = min(lowest, low[target])  # that of a finished component is above all others
            low[node], next_edge[node] = lowest, at
            if at < end:
                path.append(targets[at])
                continue
            path.pop()
            if lowest == order[node]:
                while True:
                    member = stack.pop()
                    low[member], component[member] = _DONE, components
                    if member == node:
                        break
                components += 1
    return component


def _rows(nodes: int, before: Sequence[int], after: Sequence[int]) -> tuple[array[int], array[int]]:
    """Return the targets of all nodes in one array, and where each node's begin."""
    first = array("i", [0]) * (nodes + 1)
    for node in before:
        first[node + 1] += 1
    for node in range(nodes):
        first[node + 1] += first[node]
    free, targets = array("i", first), array("i", [0]) * len(after)
    for node, target in zip(before, after, strict=True):
        targets[free[node]] = target
        free[node] += 1
    return first, targets


class _Component:
    """One strongly connected component, searched from each of its dependencies that no cycle has yet."""

    def __init__(self, dependencies: DependencyArrays, inside: Sequence[int], steps: int) -> None:
        self._all, self._inside, self._steps = dependencies, inside, steps
        self._from: dict[int, list[int]] = {}
        for number in inside:
            self._from.setdefault(dependencies.before[number], []).append(number)
        self._covered: set[int] = set()

    def search(self, search: CycleSearch) -> int:
        """Add the component's cycles; return how many steps are left."""
        for phenomenon, begins, rest in _SEARCHES:
            for number in self._inside:
                if not 1 << self._all.kind_of(number) & begins or number in self._covered:
                    continue
                if self._steps <= 0 or len(search.cycles) >= MOST_CYCLES:
                    return 0
                path = self._path(number, rest)
                if path is not None:
                    self._covered.update((number, *path))
                    search.cycles.append((phenomenon, tuple(self._all[each] for each in (number, *path))))
        return self._steps

    def _path(self, number: int, kinds: int) -> list[int] | None:
        """Return the shortest way back to where a dependency begins; of several, one over the same item."""
        start, goal, key = self._all.after[number], self._all.before[number], self._all.key[number]
        came: dict[int, int] = {start: -1}
        waiting = deque([start])
        while waiting:
            node = waiting.popleft()
            last = -1
            for each in self._from.get(node, ()):
                self._steps -= 1
                target = self._all.after[each]
                if not 1 << self._all.kind_of(each) & kinds:
                    continue
                if target == goal and (last < 0 or self._all.key[each] == key):
                    last = each
                elif target not in came:
                    came[target] = each
                    waiting.append(target)
            if last >= 0:
                return self._walked(came, last)
            if self._steps <= 0:
                return None
        return None

    def _walked(self, came: dict[int, int], last: int) -> list[int]:
        path = [last]
        while (each := came[self._all.before[path[-1]]]) >= 0:
            path.append(each)
        return path[::-1]
