"""Read differing rows again: converged, hot or diverged.

A difference read once may be a change on its way. Each candidate is read again and again, ``delay_seconds`` apart:
equal at any read = *converged*; both sides as they were before, ``still_reads`` times in a row = *diverged*; moving
until the reads are used up = *hot*. Only diverged is a row diff. So a row diff is false only if the target takes
longer than ``still_reads * delay_seconds`` to apply a change, or a row flips back and forth in step with the reads
(the waits vary a little against that).
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from migverify.model import ColumnDiff, DiffKind, KeyText, LiveState, RowDiff
from migverify.sql.checksum import full_rows_sql
from migverify.tables.diff import (
    WIDE,
    PairReader,
    RowsByKey,
    Texts,
    count_rows,
    joined,
    read_rows,
    rows_at_once,
    split_element,
)
from migverify.tables.values import column_diff, same_value

JITTER = 0.2


def confirm(reader: PairReader, diffs: Sequence[RowDiff]) -> Iterator[RowDiff]:
    """Yield each candidate once, in its final state; waits for the delay between rounds.

    Raises
    ------
    CanceledError
        the run was told to stop while waiting or reading.
    """
    waiting = list(diffs)
    still: Counter[KeyText] = Counter()
    for _ in range(reader.rules.rounds + reader.rules.still_reads):
        _wait(reader, waiting)
        again = []
        size = rows_at_once(reader.pair)
        for start in range(0, len(waiting), size):
            for diff in _read_again(reader, waiting[start : start + size]):
                if diff.state is LiveState.CONVERGED:
                    yield diff
                    continue
                still[diff.key] = still[diff.key] + 1 if diff.state is LiveState.DIVERGED else 0
                if still[diff.key] >= reader.rules.still_reads:
                    yield diff
                else:
                    again.append(replace(diff, state=LiveState.UNCONFIRMED, columns=()))
        waiting = again
        if not waiting:
            return
    yield from (replace(diff, state=LiveState.HOT) for diff in waiting)


def _wait(reader: PairReader, diffs: Sequence[RowDiff]) -> None:
    latest = max((diff.read_at for diff in diffs), default=0.0)
    delay = reader.rules.delay_seconds * random.uniform(1.0, 1.0 + JITTER)
    # Clocks of two workers may differ: a first read in the future must not make this wait longer than the delay.
    reader.target.pause(min(latest + delay - time.time(), delay))


def _read_again(reader: PairReader, diffs: Sequence[RowDiff]) -> Iterator[RowDiff]:
    if not reader.key:
        yield from _recount(reader, diffs)
        return
    for wide in (False, True):
        some = [diff for diff in diffs if _is_wide(diff) is wide]
        if some:
            ours, theirs = read_rows(reader, [diff.key for diff in some], wide=wide)
            yield from (_with_shards(reader, judge(reader, diff, ours, theirs)) for diff in some)


def _with_shards(reader: PairReader, diff: RowDiff) -> RowDiff:
    """Name the shards that hold the key of a row diff, where more than one does: no row of the target is wrong then."""
    if len(reader.sources) == 1 or diff.source_count < 2 or diff.state is LiveState.CONVERGED:
        return diff
    text = [full_rows_sql(side.sql, [diff.key]) for side in reader.sources]
    rows = [side.later(partial(side.query, text[n])) for n, side in enumerate(reader.sources)]
    holders = [
        side.side.endpoint.name
        for side, found in zip(reader.sources, rows, strict=True)
        if any(split_element(reader, row[0] or b"")[0] == diff.key for row in found.result())
    ]
    return replace(diff, shard=", ".join(holders)) if len(holders) > 1 else diff


def _is_wide(diff: RowDiff) -> bool:
    return (diff.source_checksum or diff.target_checksum or "").startswith(WIDE)


def judge(reader: PairReader, diff: RowDiff, ours: RowsByKey, theirs: RowsByKey) -> RowDiff:
    """Say what one more read means: CONVERGED, DIVERGED (both sides as before), or UNCONFIRMED (one of them moved)."""
    source, target = ours.get(diff.key, []), theirs.get(diff.key, [])
    if _rows_equal(reader, source, target):
        return replace(diff, state=LiveState.CONVERGED)
    wide = _is_wide(diff)
    seen = joined([c for c, _ in source], wide=wide), joined([c for c, _ in target], wide=wide)
    fresh = replace(
        diff, state=LiveState.UNCONFIRMED, source_checksum=seen[0], target_checksum=seen[1], source_count=len(source),
        target_count=len(target), kind=_kind(len(source), len(target)), read_at=time.time(),
    )  # fmt: skip
    if seen != (diff.source_checksum, diff.target_checksum):
        # A source row that moved is no witness, and a target row that moves may be catching up.
        return fresh
    columns = _columns(reader, source, target)
    if fresh.kind is DiffKind.VALUE_DIFFERS and len(source) > 1:
        different = (Counter(c for c, _ in source) - Counter(c for c, _ in target)).total()
        fresh = replace(fresh, source_count=different, target_count=different)
    return replace(fresh, state=LiveState.DIVERGED, columns=columns)


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
    """Count the rows of each checksum again; a multiset has no other identity to go by.

    The first read knows only how many more one side has than the other, so it is that surplus which must stand still.
    """
    ours, theirs = count_rows(reader, [diff.key[0] or "" for diff in diffs])
    for diff in diffs:
        one, other = ours[diff.key[0] or ""], theirs[diff.key[0] or ""]
        surplus = diff.source_count - diff.target_count
        state = (LiveState.CONVERGED if one == other
                 else LiveState.DIVERGED if one - other == surplus else LiveState.UNCONFIRMED)  # fmt: skip
        yield replace(diff, state=state, kind=_kind(one, other), source_count=one, target_count=other,
                      read_at=time.time())  # fmt: skip
