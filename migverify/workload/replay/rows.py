"""Compares the rows of two answers: as a sequence, as groups of ties, or as a multiset.

Rows fall in groups by the values that compare exactly, and by clusters of the approximate ones: two numbers of
different clusters are never equal within the tolerance. Inside a group the sorted rows are paired. A tolerance is not
transitive, so pairs that do not fit prove a difference only where no other pairing could.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from migverify.workload.replay.cells import (
    CellKind,
    approximate,
    canonical,
    compare_cells,
    fold,
    near,
)
from migverify.workload.replay.model import Cell, Difference, DifferenceSeverity

Row = tuple[Cell, ...]

_EXPLAINED = 50  # rows that are paired to say which cells differ
_NAMED = 20  # differences that are listed
_SHOWN = 120
# Wider than any tolerance of the kind: half a unit of the sixth digit; 1e-12 or 4 units in the last place.
_GAP = {CellKind.FLOAT: 1e-5, CellKind.DOUBLE: 2e-12}
_TINY = 1e-300  # denormals: units in the last place are no longer relative


class Sequencing(StrEnum):
    """How the order of rows is compared."""

    EXACT = "exact"
    TIES = "ties"  # by keys in the result; inside equal keys any order
    HIDDEN = "hidden"  # ordered also by something that is not in the result
    FREE = "free"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Ordering:
    """``keys`` are places of columns ordered by, as many of the first ones as are in the result.

    ``cut``: a LIMIT cuts through ties; ``cut_head``: an OFFSET too.
    """

    how: Sequencing
    keys: tuple[int, ...] = ()
    cut: bool = False
    cut_head: bool = False


class RowsVerdict(StrEnum):
    """The answer of a comparison of rows."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNDECIDED = "undecided"


@dataclass(slots=True)
class RowsResult:
    """``strict``: equal cell by cell, in sequence. ``differences`` hold those of form where the rows are equal."""

    state: RowsVerdict
    differences: tuple[Difference, ...] = ()
    reason: str = ""
    strict: bool = False


@dataclass(slots=True)
class Comparer:
    """Compares rows whose columns have these joint kinds. Columns in ``masked`` are not looked at."""

    names: Sequence[str]
    kinds: Sequence[CellKind]
    masked: frozenset[int] = frozenset()
    _exact: tuple[int, ...] = field(init=False)
    _near: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        seen = [place for place in range(len(self.kinds)) if place not in self.masked]
        self._exact = tuple(place for place in seen if not approximate(self.kinds[place]))
        self._near = tuple(place for place in seen if approximate(self.kinds[place]))

    def compare(self, source: Sequence[Row], target: Sequence[Row], ordering: Ordering) -> RowsResult:
        """Compare all rows of both answers."""
        if list(source) == list(target):
            return RowsResult(RowsVerdict.EQUAL, strict=True)
        if len(source) != len(target):
            return RowsResult(RowsVerdict.DIFFERENT, (_count(source, target), *self._explain(source, target)))
        if all(self.equal(one, other) for one, other in zip(source, target, strict=True)):
            return RowsResult(RowsVerdict.EQUAL, self._forms(zip(source, target, strict=True)), strict=not self.masked)
        if ordering.cut:
            return self._cut(source, target, ordering)
        whole = self._match(source, target)
        if whole.state is not RowsVerdict.EQUAL:
            return whole
        match ordering.how:
            case Sequencing.FREE:
                return whole
            case Sequencing.EXACT:
                return self._order(source, target, whole)
            case Sequencing.TIES:
                return self._ties(source, target, ordering.keys, whole)
            case Sequencing.HIDDEN:
                tied = self._ties(source, target, ordering.keys, whole)
                if tied.state is not RowsVerdict.EQUAL:
                    return tied
                reason = "the rows are ordered by something that is not in the answer, and are in another order"
                return RowsResult(RowsVerdict.UNDECIDED, (_order(source, target), *whole.differences), reason)
            case _:
                reason = "the same rows in another order, and whether the text determines it is not known"
                return RowsResult(RowsVerdict.UNDECIDED, (_order(source, target), *whole.differences), reason)

    def equal(self, source: Row, target: Row) -> bool:
        """Tell whether two rows hold the same values, differences of form apart."""
        if source == target:
            return True
        for place in (*self._exact, *self._near):
            found = compare_cells(source[place], target[place], self.kinds[place])
            if found is not None and found.severity is not DifferenceSeverity.METADATA:
                return False
        return True

    def _order(self, source: Sequence[Row], target: Sequence[Row], whole: RowsResult) -> RowsResult:
        return RowsResult(RowsVerdict.DIFFERENT, (_order(source, target), *whole.differences))

    def _ties(self, source: Sequence[Row], target: Sequence[Row], keys: Sequence[int], whole: RowsResult) -> RowsResult:
        """Compare two sequences known to be equal as multisets."""
        if self._grouped(source, target, keys, self._key):
            return whole
        folded = any(self.kinds[place] in (CellKind.TEXT, CellKind.JSON) for place in keys)
        if folded and self._grouped(source, target, keys, self._folded):
            reason = "keys that differ only by case, accents or trailing spaces are in another order: collations differ"
        elif any(approximate(self.kinds[place]) for place in keys):
            reason = "ordered by approximate numbers"
        else:
            return self._order(source, target, whole)
        return RowsResult(RowsVerdict.UNDECIDED, (_order(source, target), *whole.differences), reason)

    def _key(self, row: Row, place: int) -> Hashable:
        return canonical(row[place], self.kinds[place])

    def _folded(self, row: Row, place: int) -> Hashable:
        return fold(row[place]) if self.kinds[place] is CellKind.TEXT else self._key(row, place)

    def _grouped(
        self, source: Sequence[Row], target: Sequence[Row], keys: Sequence[int], key: Callable[[Row, int], Hashable]
    ) -> bool:
        ours, theirs = (_groups(rows, keys, key) for rows in (source, target))
        if len(ours) != len(theirs):
            return False
        return all(
            one == other and len(rows) == len(others) and self._match(rows, others).state is RowsVerdict.EQUAL
            for (one, rows), (other, others) in zip(ours, theirs, strict=True)
        )

    def _cut(self, source: Sequence[Row], target: Sequence[Row], ordering: Ordering) -> RowsResult:
        """Compare as many rows that a LIMIT left: their keys are determined, rows at the cut are not."""
        reason = "LIMIT picks among rows that the order leaves equal"
        if ordering.how is not Sequencing.TIES:
            whole = self._match(source, target)
            if ordering.how is Sequencing.FREE and whole.state is RowsVerdict.EQUAL:
                return whole
            return RowsResult(
                RowsVerdict.UNDECIDED, self._explain(source, target), "LIMIT without an order that can be seen"
            )
        ours, theirs = (_groups(rows, ordering.keys, self._key) for rows in (source, target))
        if any(approximate(self.kinds[place]) for place in ordering.keys):
            return RowsResult(RowsVerdict.UNDECIDED, self._explain(source, target), "ordered by approximate numbers")
        if [(key, len(rows)) for key, rows in ours] != [(key, len(rows)) for key, rows in theirs]:
            folded = [[self._folds(row, ordering.keys) for row in rows] for rows in (source, target)]
            state = RowsVerdict.UNDECIDED if folded[0] == folded[1] else RowsVerdict.DIFFERENT
            why = "keys that differ only by case, accents or trailing spaces: collations differ"
            return RowsResult(state, self._explain(source, target), why if state is RowsVerdict.UNDECIDED else "")
        undecided = False
        for place, ((_, rows), (_, others)) in enumerate(zip(ours, theirs, strict=True)):
            found = self._match(rows, others)
            if found.state is RowsVerdict.EQUAL:
                continue
            if self._at_cut(ours, place, ordering):
                undecided = True
            else:
                return found
        if undecided:
            return RowsResult(RowsVerdict.UNDECIDED, self._explain(source, target), reason)
        return self._match(source, target)

    def _folds(self, row: Row, keys: Sequence[int]) -> Hashable:
        return tuple(self._folded(row, place) for place in keys)

    def _at_cut(self, groups: list[tuple[Hashable, list[Row]]], place: int, ordering: Ordering) -> bool:
        """Tell whether a collation may hold this group's keys equal to those at a cut."""
        ends = (groups[-1], groups[0]) if ordering.cut_head else (groups[-1],)
        mine = self._folds(groups[place][1][0], ordering.keys)
        return mine in [self._folds(rows[0], ordering.keys) for _, rows in ends]

    def _match(self, source: Sequence[Row], target: Sequence[Row]) -> RowsResult:
        """Compare two multisets of rows."""
        clusters = {
            place: _clusters([row[place] for row in (*source, *target)], self.kinds[place]) for place in self._near
        }
        ours, theirs = self._grouped_rows(source, clusters), self._grouped_rows(target, clusters)
        rest: tuple[list[Row], list[Row]] = ([], [])
        pairs: list[tuple[Row, Row]] = []
        undecided = False
        for key in ours.keys() | theirs.keys():
            rows, others = ours.get(key, []), theirs.get(key, [])
            if len(rows) == len(others):
                if self._near:
                    rows, others = sorted(rows, key=self._sort_key), sorted(others, key=self._sort_key)
                paired = list(zip(rows, others, strict=True))
                if all(self._close(*pair) for pair in paired):
                    pairs += paired
                    continue
                if len(rows) > 1 and [self.kinds[place] for place in self._near] != [CellKind.DOUBLE]:
                    undecided = True
                    continue
            for side, left in zip(rest, _leftovers(rows, others), strict=True):
                side.extend(left)
        if rest[0] or rest[1]:
            return RowsResult(RowsVerdict.DIFFERENT, self._explain(*rest))
        if undecided:
            reason = "too many rows are within the tolerance of each other to be paired one by one"
            return RowsResult(RowsVerdict.UNDECIDED, self._explain(source, target), reason)
        return RowsResult(RowsVerdict.EQUAL, self._forms(pairs))

    def _grouped_rows(
        self, rows: Sequence[Row], clusters: Mapping[int, Mapping[Cell, int]]
    ) -> dict[Hashable, list[Row]]:
        found: dict[Hashable, list[Row]] = defaultdict(list)
        for row in rows:
            exact = tuple(canonical(row[place], self.kinds[place]) for place in self._exact)
            found[exact, tuple(clusters[place][row[place]] for place in self._near)].append(row)
        return found

    def _sort_key(self, row: Row) -> tuple[tuple[float, bytes], ...]:
        return tuple((_number(row[place]), row[place] or b"") for place in self._near)

    def _close(self, source: Row, target: Row) -> bool:
        for place in self._near:
            one, other = source[place], target[place]
            if one != other and (one is None or other is None or not near(one, other, self.kinds[place])):
                return False
        return True

    def _forms(self, pairs: Iterable[tuple[Row, Row]]) -> tuple[Difference, ...]:
        """Return the differences of form of rows with equal values, one for each aspect and column."""
        return self._of_cells(pairs, self._exact)

    def _of_cells(self, pairs: Iterable[tuple[Row, Row]], places: Sequence[int]) -> tuple[Difference, ...]:
        """Return how cells of paired rows differ, one difference for each aspect and column, with how many rows."""
        found: dict[tuple[str, str, int], Difference] = {}
        counts: Counter[tuple[str, str, int]] = Counter()
        for source, target in pairs:
            for place in places if source != target else ():
                one = compare_cells(source[place], target[place], self.kinds[place])
                if one is not None:
                    key = one.aspect, one.detail, place
                    counts[key] += 1
                    if key not in found:
                        texts = show_pair(source[place], target[place], self.kinds[place])
                        found[key] = Difference(one.aspect, one.severity, *texts, self.names[place], one.detail)
        differences = []
        for key, difference in found.items():
            rows = "" if counts[key] == 1 else f"{counts[key]} rows"
            differences.append(replace(difference, detail=", ".join(filter(None, (difference.detail, rows)))))
        return tuple(differences[:_NAMED])

    def _explain(self, source: Sequence[Row], target: Sequence[Row]) -> tuple[Difference, ...]:
        """Say how rows differ: pair the most alike, name their cells; the others are there on one side only."""
        left, right = _leftovers(list(source), list(target))
        more = max(len(left), len(right)) - _EXPLAINED
        left, right = left[:_EXPLAINED], right[:_EXPLAINED]
        pairs: list[tuple[Row, Row]] = []
        for row in list(left):
            other = max(right, key=lambda candidate: self._alike(row, candidate), default=None)
            if other is None or (len(self.kinds) > 1 and not self._alike(row, other) and len(source) != len(target)):
                continue
            left.remove(row)
            right.remove(other)
            pairs.append((row, other))
        out = list(self._of_cells(pairs, (*self._exact, *self._near)))
        for rows, side in ((left, "source"), (right, "target")):
            if rows:
                text = show_row(rows[0], self.kinds)
                out.append(Difference(
                    "rows", DifferenceSeverity.BLOCKER,
                    text if side == "source" else "", text if side == "target" else "",
                    detail=f"{len(rows)} on the {side} only" + (", and more" if more > 0 else ""),
                ))  # fmt: skip
        return tuple(out[:_NAMED])

    def _alike(self, source: Row, target: Row) -> int:
        seen = (*self._exact, *self._near)
        return sum(compare_cells(source[place], target[place], self.kinds[place]) is None for place in seen)


def _clusters(cells: Iterable[Cell], kind: CellKind) -> dict[Cell, int]:
    """Number approximate values so that values of two numbers cannot be equal within the tolerance."""
    found: dict[Cell, int] = {None: -1}
    last, number = -math.inf, 0
    for value, cell in sorted((_number(cell), cell) for cell in set(cells) if cell is not None):
        if value - last > _GAP[kind] * max(abs(value), abs(last)) and value - last > _TINY:
            number += 1
        found[cell] = number
        last = value
    return found


def _number(cell: Cell) -> float:
    try:
        value = float(cell or b"")
    except ValueError:
        return math.inf
    return value if math.isfinite(value) else math.inf


def _groups(
    rows: Sequence[Row], keys: Sequence[int], key: Callable[[Row, int], Hashable]
) -> list[tuple[Hashable, list[Row]]]:
    found: list[tuple[Hashable, list[Row]]] = []
    for row in rows:
        value = tuple(key(row, place) for place in keys)
        if found and found[-1][0] == value:
            found[-1][1].append(row)
        else:
            found.append((value, [row]))
    return found


def _leftovers(source: list[Row], target: list[Row]) -> tuple[list[Row], list[Row]]:
    """Return what each side holds beyond identical rows of the other, in order."""
    ours, theirs = Counter(source), Counter(target)
    return _beyond(source, theirs), _beyond(target, ours)


def _beyond(rows: list[Row], others: Counter[Row]) -> list[Row]:
    left = Counter(others)
    found = []
    for row in rows:
        if left[row] > 0:
            left[row] -= 1
        else:
            found.append(row)
    return found


def _count(source: Sequence[Row], target: Sequence[Row]) -> Difference:
    return Difference("row-count", DifferenceSeverity.BLOCKER, str(len(source)), str(len(target)))


def _order(source: Sequence[Row], target: Sequence[Row]) -> Difference:
    first = next((place for place, pair in enumerate(zip(source, target, strict=True)) if pair[0] != pair[1]), 0)
    return Difference(
        "order", DifferenceSeverity.BLOCKER, _plain(source[first]), _plain(target[first]),
        detail=f"first at row {first + 1}",
    )  # fmt: skip


def _plain(row: Row) -> str:
    return show_row(row, [CellKind.TEXT] * len(row))


def show(cell: Cell, kind: CellKind = CellKind.TEXT, limit: int = _SHOWN) -> str:
    """Return a cell as text for people: ``NULL``, quoted text, ``0x`` and hex digits for bytes."""
    if cell is None:
        return "NULL"
    if kind in (CellKind.BITS, CellKind.BYTES) or not _readable(cell):
        text = "0x" + cell[:limit].hex()
        return text if len(cell) <= limit else f"{text}... ({len(cell)} bytes)"
    text = cell.decode("utf-8")
    shown = text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"
    return (
        shown
        if kind not in (CellKind.TEXT, CellKind.JSON)
        else "'" + shown.replace("\\", "\\\\").replace("'", "\\'") + "'"
    )


def show_pair(source: Cell, target: Cell, kind: CellKind) -> tuple[str, str]:
    """Return two cells as texts for people; long ones from shortly before the first byte that differs."""
    if source is None or target is None or min(len(source), len(target)) <= _SHOWN:
        return show(source, kind), show(target, kind)
    same = next((n for n, (a, b) in enumerate(zip(source, target, strict=False)) if a != b), 0)
    start = max(0, same - _SHOWN // 3)
    while start and source[start] & 0xC0 == 0x80:
        start -= 1  # not inside a character of UTF-8
    if not start:
        return show(source, kind), show(target, kind)
    return f"...{show(source[start:], kind)}", f"...{show(target[start:], kind)}"


def _readable(cell: bytes) -> bool:
    try:
        return cell.decode("utf-8").isprintable() or cell.isascii()
    except UnicodeDecodeError:
        return False


def show_row(row: Row, kinds: Sequence[CellKind]) -> str:
    """Return a row as text for people."""
    return "(" + ", ".join(show(cell, kind) for cell, kind in zip(row, kinds, strict=True)) + ")"
