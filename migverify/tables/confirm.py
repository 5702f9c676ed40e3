"""Read differing rows again: converged, hot or diverged.

A difference read once may be a change on its way. Each candidate is read again and again, ``delay_seconds`` apart,
and ``migverify.watch.lifecycle`` says what becomes of it: the target has applied past what stood still for
``still_reads`` of these delays. Only diverged is a row diff. So a row diff is false only if the target takes
longer than ``still_reads * delay_seconds`` to apply a change, or a row flips back and forth in step with the reads
(the waits vary a little against that).
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from migverify.db.reader import Reader
from migverify.model import ColumnDiff, DiffKind, LiveState, RowDiff
from migverify.tables.diff import (
    WIDE,
    PairReader,
    RowsByKey,
    Texts,
    count_rows,
    joined,
    kind_of,
    read_rows,
    rows_at_once,
)
from migverify.tables.values import column_diff, same_value
from migverify.watch.lifecycle import Criteria, Finding, Read, advance, read_once

JITTER = 0.2


def confirm(reader: PairReader, diffs: Sequence[RowDiff]) -> Iterator[RowDiff]:
    """Yield each candidate once, in its final state; waits for the delay between rounds.

    Raises
    ------
    CanceledError
        the run was canceled while waiting or reading.
    """
    rules = reader.rules
    criteria = Criteria(rules.still_reads, 1 + rules.rounds + rules.still_reads)
    waiting = [(diff, read_once(_look(reader, diff))) for diff in diffs]
    while waiting:
        _wait(reader, [diff for diff, _ in waiting])
        again = []
        size = rows_at_once(reader.pair)
        for start in range(0, len(waiting), size):
            for diff, before, read in _read_again(reader, waiting[start : start + size]):
                finding = advance(before, read, criteria)
                fresh = replace(diff, state=finding.state)
                if finding.state is LiveState.UNCONFIRMED:
                    again.append((replace(fresh, columns=()), finding))
                else:
                    yield replace(fresh, columns=()) if finding.state is LiveState.HOT else fresh
        waiting = again


def count_again(reader: PairReader, known: Sequence[int] = ()) -> tuple[tuple[int, ...], LiveState]:
    """Count both sides; where they were ``known`` to differ, again until that is stable, like a row that differs.

    Returns the rows of the source and of the target at the last read, and what the reads show: converged (equal), hot,
    diverged, or unconfirmed for a difference that was read once.
    """
    rules = reader.rules
    criteria = Criteria(rules.still_reads, 1 + rules.rounds + rules.still_reads)
    counts = _counts(reader) if not known else tuple(known)
    finding = read_once(counts)
    if not known:
        return counts, LiveState.CONVERGED if counts[0] == counts[1] else LiveState.UNCONFIRMED
    while finding.state is LiveState.UNCONFIRMED:
        reader.target.pause(rules.delay_seconds * random.uniform(1.0, 1.0 + JITTER))
        counts = _counts(reader)
        finding = advance(finding, Read(counts, equal=counts[0] == counts[1]), criteria)
    return counts, finding.state


def _counts(reader: PairReader) -> tuple[int, ...]:
    def count(side: Reader) -> int:
        side.check_table()
        return side.count()

    ours, theirs = reader.ask(count)
    return sum(ours), theirs


def _wait(reader: PairReader, diffs: Sequence[RowDiff]) -> None:
    latest = max((diff.read_at for diff in diffs), default=0.0)
    delay = reader.rules.delay_seconds * random.uniform(1.0, 1.0 + JITTER)
    # Clocks of two workers may differ: a first read in the future must not make this wait longer than the delay.
    reader.target.pause(min(latest + delay - time.time(), delay))


def _look(reader: PairReader, diff: RowDiff) -> Hashable:
    """Return what the last read showed of both sides.

    Of rows without a key the first read knows only how many more one side has than the other: a multiset has no other
    identity to go by, so it is that surplus which must not change.
    """
    if not reader.key:
        return diff.source_count - diff.target_count
    return diff.source_checksum, diff.target_checksum


def _read_again(
    reader: PairReader, waiting: Sequence[tuple[RowDiff, Finding]]
) -> Iterator[tuple[RowDiff, Finding, Read]]:
    """Yield each row as one more read shows it, what was known of it before, and the read."""
    if not reader.key:
        texts: dict[str, Texts] = {}
        ours, theirs = count_rows(reader, [diff.key[0] or "" for diff, _ in waiting], texts)
        for diff, finding in waiting:
            element = diff.key[0] or ""
            one, other = ours[element], theirs[element]
            fresh = replace(
                diff, kind=kind_of(one, other), source_count=one, target_count=other, read_at=time.time(),
                columns=_row_shown(reader, texts.get(element), on_source=one > other),
            )  # fmt: skip
            yield fresh, finding, Read(_look(reader, fresh), one == other)
        return
    for wide in (False, True):
        some = [(diff, finding) for diff, finding in waiting if _is_wide(diff) is wide]
        if some:
            rows = read_rows(reader, [diff.key for diff, _ in some], wide=wide)
            for diff, finding in some:
                fresh, read = read_of(reader, diff, *rows)
                yield fresh if read.equal else _with_shards(reader, fresh), finding, read


def _row_shown(reader: PairReader, texts: Texts | None, *, on_source: bool) -> tuple[ColumnDiff, ...]:
    """Return a row without a key as its columns, where values may be kept: its checksum alone says nothing."""
    if texts is None or not reader.rules.values:
        return ()
    return tuple(
        ColumnDiff(column.name, text if on_source else None, None if on_source else text, "row")
        for column, text in zip(reader.pair.columns, texts, strict=True)
    )


def _with_shards(reader: PairReader, diff: RowDiff) -> RowDiff:
    """Name the shards that hold the key of a row diff, where more than one does: no row of the target is wrong then."""
    if len(reader.sources) == 1 or diff.source_count < 2:
        return diff
    rows = [side.later(partial(side.lookup, [diff.key], reader.key)) for side in reader.sources]
    holders = [side.side.endpoint.name for side, found in zip(reader.sources, rows, strict=True) if found.result()]
    return replace(diff, shard=", ".join(holders)) if len(holders) > 1 else diff


def _is_wide(diff: RowDiff) -> bool:
    return (diff.source_checksum or diff.target_checksum or "").startswith(WIDE)


def read_of(reader: PairReader, diff: RowDiff, ours: RowsByKey, theirs: RowsByKey) -> tuple[RowDiff, Read]:
    """Return a row diff as a read of its rows shows it (with columns where both sides are as before), and the read."""
    source, target = ours.get(diff.key, []), theirs.get(diff.key, [])
    if _rows_equal(reader, source, target):
        return diff, Read(equal=True)
    wide = _is_wide(diff)
    fresh = replace(
        diff, source_checksum=joined([c for c, _ in source], wide=wide),
        target_checksum=joined([c for c, _ in target], wide=wide), source_count=len(source),
        target_count=len(target), kind=kind_of(len(source), len(target)), read_at=time.time(),
    )  # fmt: skip
    look = _look(reader, fresh)
    if look == _look(reader, diff):
        fresh = replace(fresh, columns=_columns(reader, source, target))
        if fresh.kind is DiffKind.VALUE_DIFFERS and len(source) > 1:
            different = (Counter(c for c, _ in source) - Counter(c for c, _ in target)).total()
            fresh = replace(fresh, source_count=different, target_count=different)
    return fresh, Read(look)


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
