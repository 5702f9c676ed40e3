"""Read differing rows again: converged, hot or diverged.

A difference read once may be a change on its way. Each candidate is read again, not before ``delay_seconds`` after
its first read: equal now = *converged*; the source row changed meanwhile, or both sides still move = *hot*, read once
more; the source row stood still and the target, standing still too, differs = *diverged*. Only that is a row diff.
(The witnessed-signature rule of Spirit's continuous checksum, applied to single rows.)
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from migverify.model import ColumnDiff, DiffKind, LiveState, RowDiff
from migverify.tables.diff import (
    WIDE,
    PairReader,
    RowsByKey,
    Texts,
    count_rows,
    joined,
    read_rows,
    rows_at_once,
)
from migverify.tables.values import column_diff, same_value


def confirm(reader: PairReader, diffs: Sequence[RowDiff]) -> Iterator[RowDiff]:
    """Yield each candidate once, in its final state; waits for the delay between rounds."""
    waiting = list(diffs)
    for round_number in range(1, reader.rules.rounds + 1):
        _wait(reader, waiting)
        last = round_number == reader.rules.rounds
        again = []
        size = rows_at_once(reader.pair)
        for start in range(0, len(waiting), size):
            for diff in _read_again(reader, waiting[start : start + size], last=last):
                if diff.state is LiveState.UNCONFIRMED:
                    again.append(diff)
                else:
                    yield diff
        waiting = again
        if not waiting:
            return
    yield from (replace(diff, state=LiveState.HOT) for diff in waiting)


def _wait(reader: PairReader, diffs: Sequence[RowDiff]) -> None:
    latest = max((diff.read_at for diff in diffs), default=0.0)
    pause = latest + reader.rules.delay_seconds - time.time()
    if pause > 0:
        time.sleep(min(pause, reader.rules.delay_seconds))


def _read_again(reader: PairReader, diffs: Sequence[RowDiff], *, last: bool) -> Iterator[RowDiff]:
    if not reader.key:
        yield from _recount(reader, diffs)
        return
    for wide in (False, True):
        some = [diff for diff in diffs if _is_wide(diff) is wide]
        if some:
            ours, theirs = read_rows(reader, [diff.key for diff in some], wide=wide)
            yield from (judge(reader, diff, ours, theirs, last=last) for diff in some)


def _is_wide(diff: RowDiff) -> bool:
    return (diff.source_checksum or diff.target_checksum or "").startswith(WIDE)


def judge(reader: PairReader, diff: RowDiff, ours: RowsByKey, theirs: RowsByKey, *, last: bool) -> RowDiff:
    """Decide one candidate from its second read."""
    source, target = ours.get(diff.key, []), theirs.get(diff.key, [])
    if _rows_equal(reader, source, target):
        return replace(diff, state=LiveState.CONVERGED)
    wide = _is_wide(diff)
    seen = joined([c for c, _ in source], wide=wide), joined([c for c, _ in target], wide=wide)
    fresh = replace(
        diff, source_checksum=seen[0], target_checksum=seen[1], source_count=len(source), target_count=len(target),
        kind=_kind(len(source), len(target)), read_at=time.time(),
    )  # fmt: skip
    if seen[0] != diff.source_checksum:
        return fresh  # the source row moved: not a witness
    if seen[1] != diff.target_checksum and not last:
        return fresh  # the target row moves: it may be catching up
    return replace(fresh, state=LiveState.DIVERGED, columns=_columns(reader, source, target))


def _kind(source: int, target: int) -> DiffKind:
    if source == target:
        return DiffKind.VALUE_DIFFERS
    return DiffKind.MISSING_ON_TARGET if source > target else DiffKind.MISSING_ON_SOURCE


def _rows_equal(reader: PairReader, source: list[tuple[str, Texts]], target: list[tuple[str, Texts]]) -> bool:
    if Counter(c for c, _ in source) == Counter(c for c, _ in target):
        return not any("?" in c for c, _ in source) or [t for _, t in source] == [t for _, t in target]
    if len(source) != 1 or len(target) != 1:
        return False
    return not _columns(reader, source, target)


def _columns(
    reader: PairReader, source: list[tuple[str, Texts]], target: list[tuple[str, Texts]]
) -> tuple[ColumnDiff, ...]:
    if len(source) != 1 or len(target) != 1:
        return ()
    keep = reader.rules.values
    return tuple(
        column_diff(column, one, other, keep=keep)
        for column, one, other in zip(reader.pair.columns, source[0][1], target[0][1], strict=True)
        if not same_value(column, one, other)
    )


def _recount(reader: PairReader, diffs: Sequence[RowDiff]) -> Iterator[RowDiff]:
    """Count the rows of each checksum again; a multiset has no other identity to go by."""
    ours, theirs = count_rows(reader, [diff.key[0] or "" for diff in diffs])
    for diff in diffs:
        one, other = ours[diff.key[0] or ""], theirs[diff.key[0] or ""]
        state = LiveState.CONVERGED if one == other else LiveState.DIVERGED
        yield replace(diff, state=state, kind=_kind(one, other), source_count=one, target_count=other)
