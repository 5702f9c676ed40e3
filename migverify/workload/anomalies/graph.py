"""Cycles of a dependency graph: strongly connected components first (Tarjan 1972), then short cycles in them."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from migverify.workload.anomalies.infer import DependencyArrays
from migverify.workload.anomalies.model import Cycle, DependencyKind, Phenomenon

MOST_STEPS = 20_000_000
"""Dependencies that the search inside components looks at; it is cut off there, and says so."""
MOST_STEPS_ONCE = 200_000
"""The same for a single cycle."""
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
    """Return cycles by phenomenon, each as short as one is that begins with its first dependency.

    Of G2-item, cycles of more than two transactions are left out that go through a dependency of another anomaly.
    """
    search = CycleSearch()
    component = strong_components(nodes, dependencies.before, dependencies.after)
    inside = [
        number for number, (before, after) in enumerate(zip(dependencies.before, dependencies.after, strict=True))
        if component[before] == component[after]
    ]  # fmt: skip
    if inside:
        _Cycles(nodes, dependencies, inside, most_steps).search(search)
    return search


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


class _Cycles:
    """The search among dependencies that lie on a cycle, from each of them that no cycle has yet."""

    def __init__(self, nodes: int, dependencies: DependencyArrays, inside: Sequence[int], steps: int) -> None:
        self._nodes, self._all, self._inside, self._steps = nodes, dependencies, inside, steps
        self._out: dict[int, list[int]] = {}
        self._in: dict[int, list[int]] = {}
        for number in inside:
            self._out.setdefault(dependencies.before[number], []).append(number)
            self._in.setdefault(dependencies.after[number], []).append(number)
        self._covered: set[int] = set()
        self._kinds = 0
        self._order = array("i")
        self._cut = False

    def search(self, search: CycleSearch) -> None:
        """Add all cycles."""
        for phenomenon, begins, rest in _SEARCHES:
            self._turn_to(rest)
            for number in self._inside:
                if not 1 << self._all.kind_of(number) & begins or number in self._covered:
                    continue
                if self._steps <= 0 or len(search.cycles) >= MOST_CYCLES:
                    search.complete = False
                    return
                path = self._path(number)
                if path is not None:
                    self._covered.update((number, *path))
                    search.cycles.append((phenomenon, tuple(self._all[each] for each in (number, *path))))
        search.complete = not self._cut

    def _turn_to(self, kinds: int) -> None:
        """Search among dependencies of some kinds: their components' numbers only ever fall along a path."""
        chosen = [number for number in self._inside if 1 << self._all.kind_of(number) & kinds]
        before, after = ([column[number] for number in chosen] for column in (self._all.before, self._all.after))
        self._kinds, self._order = kinds, strong_components(self._nodes, before, after)

    def _path(self, number: int) -> list[int] | None:
        """Return the shortest way from where a dependency ends to where it begins, None where there is none."""
        start, goal, order = self._all.after[number], self._all.before[number], self._order
        if order[start] < order[goal]:
            return None
        if (direct := self._direct(start, goal, self._all.key[number])) is not None:
            return [direct]
        forward, backward = {start: -1}, {goal: -1}
        front, back = [start], [goal]
        least = self._steps - MOST_STEPS_ONCE
        while front and back:
            if self._steps < max(0, least):
                self._cut = True
                return None
            if len(front) <= len(back):
                front, meeting = self._expand(front, self._out, self._all.after, forward, backward)
            else:
                back, meeting = self._expand(back, self._in, self._all.before, backward, forward)
            if meeting is not None:
                return self._walked(meeting, forward, backward)
        return None

    def _direct(self, start: int, goal: int, key: int) -> int | None:
        """Return a dependency between two transactions; of several, one over the same item."""
        direct = [each for each in self._out.get(start, ()) if self._all.after[each] == goal and self._may_use(each)]
        self._steps -= len(self._out.get(start, ()))
        return next((each for each in direct if self._all.key[each] == key), direct[0] if direct else None)

    def _may_use(self, number: int) -> bool:
        return bool(1 << self._all.kind_of(number) & self._kinds)

    def _expand(
        self, front: Sequence[int], edges: Mapping[int, Sequence[int]], ends: Sequence[int], came: dict[int, int],
        others: Mapping[int, int],
    ) -> tuple[list[int], int | None]:  # fmt: skip
        """Go one dependency further; return the transactions that are new, and one where both ways meet."""
        bounds = sorted(self._order[node] for node in (next(iter(came)), next(iter(others))))
        only_new = self._kinds & _RW
        reached: list[int] = []
        for node in front:
            for each in edges.get(node, ()):
                self._steps -= 1
                target = ends[each]
                if target in came or not self._may_use(each) or not bounds[0] <= self._order[target] <= bounds[1]:
                    continue
                if only_new and self._all.kind_of(each) == DependencyKind.RW and each in self._covered:
                    continue
                came[target] = each
                if target in others:
                    return reached, target
                reached.append(target)
        return reached, None

    def _walked(self, meeting: int, forward: Mapping[int, int], backward: Mapping[int, int]) -> list[int]:
        path: list[int] = []
        node = meeting
        while (each := forward[node]) >= 0:
            path.append(each)
            node = self._all.before[each]
        path.reverse()
        node = meeting
        while (each := backward[node]) >= 0:
            path.append(each)
            node = self._all.after[each]
        return path
