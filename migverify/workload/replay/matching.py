"""Matches rows that agree in all that is exact, where numbers have a tolerance. Soundly, and fast on large answers.

Rows are cut into clusters first: sorted by one approximate column, neighbors farther apart than any tolerance cannot be
matched across that gap, nor can anything beyond it. Inside a cluster the sorted order is tried, then a perfect matching
is searched by augmenting paths (H. W. Kuhn, 1955; J. Munkres). A tolerance is not transitive, so a pair that was chosen
greedily proves nothing by not fitting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from migverify.workload.replay.cells import Kind, near
from migverify.workload.replay.model import Cell

Row = tuple[Cell, ...]

# Wider than any tolerance of the kind: half a unit of the sixth digit; 1e-12 or 4 units in the last place.
_GAP = {Kind.FLOAT: 1e-5, Kind.DOUBLE: 2e-12}
_TINY = 1e-300  # denormals: units in the last place are no longer relative


@dataclass(slots=True)
class Matched:
    """``pairs`` that fit; what is left on each side where a cluster cannot be matched; whether one was too large."""

    pairs: list[tuple[Row, Row]] = field(default_factory=list)
    left: list[tuple[list[Row], list[Row]]] = field(default_factory=list)
    undecided: bool = False


def match(source: list[Row], target: list[Row], kinds: Sequence[Kind], places: Sequence[int], limit: int) -> Matched:
    """Match two lists of rows by the columns at ``places``; NULL stands at the same places in all of them.

    Parameters
    ----------
    limit
        Most rows of one side of a cluster for which a matching is searched.
    """
    found = Matched()
    numbers = [place for place in places if source and source[0][place] is not None]
    for rows, others in _clusters(source, target, kinds, numbers):
        if len(rows) != len(others):
            found.left.append((rows, others))
            continue
        pairs = _fit(rows, others, kinds, numbers)
        if pairs is None and len(rows) > limit:
            found.undecided = True
            continue
        if pairs is None:
            pairs = _search(rows, others, lambda one, other: _close(one, other, kinds, numbers))
        if pairs is None:
            found.left.append((rows, others))
        else:
            found.pairs += pairs
    return found


def _clusters(
    source: list[Row], target: list[Row], kinds: Sequence[Kind], places: Sequence[int]
) -> Iterator[tuple[list[Row], list[Row]]]:
    """Cut by one column after the other; what no column cuts is a cluster."""
    if not places or len(source) + len(target) <= 2:
        yield source, target
        return
    place, rest = places[0], places[1:]
    gap = _GAP[kinds[place]]
    every = sorted(
        [(_number(row[place]), 0, row) for row in source] + [(_number(row[place]), 1, row) for row in target],
        key=lambda one: one[0],
    )
    rows: tuple[list[Row], list[Row]] = ([], [])
    last = -math.inf
    for value, side, row in every:
        if value - last > gap * max(abs(value), abs(last)) and value - last > _TINY and (rows[0] or rows[1]):
            yield from _clusters(*rows, kinds, rest)
            rows = ([], [])
        rows[side].append(row)
        last = value
    yield from _clusters(*rows, kinds, rest)


def _number(cell: Cell) -> float:
    """Return the value; what is no finite number stands at the far end, in one cluster of its own."""
    try:
        value = float(cell or b"")
    except ValueError:
        return math.inf
    return value if math.isfinite(value) else math.inf


def _fit(
    source: list[Row], target: list[Row], kinds: Sequence[Kind], places: Sequence[int]
) -> list[tuple[Row, Row]] | None:
    """Pair in sorted order, None where some pair does not fit."""

    def key(row: Row) -> tuple[tuple[float, bytes], ...]:
        return tuple((_number(row[place]), row[place] or b"") for place in places)

    pairs = list(zip(sorted(source, key=key), sorted(target, key=key), strict=True))
    return pairs if all(_close(one, other, kinds, places) for one, other in pairs) else None


def _close(source: Row, target: Row, kinds: Sequence[Kind], places: Sequence[int]) -> bool:
    for place in places:
        one, other = source[place], target[place]
        if one != other and (one is None or other is None or not near(one, other, kinds[place])):
            return False
    return True


def _search(source: list[Row], target: list[Row], close: Callable[[Row, Row], bool]) -> list[tuple[Row, Row]] | None:
    """Return a perfect matching by augmenting paths, None where there is none."""
    edges = [[place for place, other in enumerate(target) if close(row, other)] for row in source]
    taken: dict[int, int] = {}  # place -> row
    owned: dict[int, int] = {}  # row -> place
    for start in range(len(source)):
        # without recursion: a path may be as long as the cluster
        came: dict[int, int] = {}
        queue, end = [start], None
        while queue and end is None:
            row = queue.pop()
            for place in edges[row]:
                if place in came:
                    continue
                came[place] = row
                if place not in taken:
                    end = place
                    break
                queue.append(taken[place])
        if end is None:
            return None
        while end is not None:
            row = came[end]
            before = owned.get(row)
            taken[end], owned[row] = row, end
            end = before
    return [(source[row], target[place]) for place, row in taken.items()]
