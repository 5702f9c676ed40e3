"""Tallies -> verdict and reasons of one table pair. Pure; the only path to MATCH is the last line of ``verdict_of``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from migverify.figures import amount
from migverify.model import (
    KEYLESS,
    NO_TABLE,
    ChunkResult,
    ChunkState,
    LiveState,
    NotCovered,
    SchemaClass,
    TableResult,
    Verdict,
)
from migverify.tables.plan import plan_digest
from migverify.tables.quick import Level, PairPart
from migverify.tables.tasks import PairPlan

MOVES = (
    "two opposite moves of keys between ranges, as the source was written while they were read, or nobody knows: a row"
    " whose key left a range before it was read for one that had been read is in none, and the count does not show it"
    " when another row went the other way (`snapshot: now` on a TiDB target, no writes, or `tables watch` rule it out)"
)


@dataclass(slots=True)
class ChunkTotals:
    """What the chunks of a pair add up to; the figures of the end result."""

    chunks: int = 0
    failed: int = 0
    rows_source: int = 0
    rows_target: int = 0
    candidates: int = 0
    first_failure: str = ""
    count_source: int | None = None
    count_target: int | None = None
    shared_keys: int = 0
    first_shared: str = ""
    behind_condition: list[str] = field(default_factory=list)
    """Endpoints whose table has rows of which the configured condition leaves none."""

    @property
    def shared(self) -> list[str]:
        """The reason about keys that more than one shard holds; empty without any."""
        if not self.shared_keys:
            return []
        verb = "is" if self.shared_keys == 1 else "are"
        return [
            f"{self.shared_keys:,} of these keys {verb} held by more than one shard, the first: {self.first_shared}"
        ]

    def add(self, chunk: ChunkResult) -> None:
        """Add one finished chunk."""
        self.chunks += 1
        if chunk.state is ChunkState.FAILED:
            self.failed += 1
            self.first_failure = self.first_failure or f"{chunk.range}: {chunk.reason}"
        if chunk.source is not None and chunk.target is not None:
            self.rows_source += chunk.source.rows
            self.rows_target += chunk.target.rows


def conclude(
    pair: PairPlan,
    tally: ChunkTotals,
    failures: Sequence[str],
    diffs: Mapping[tuple[str, str], int],
    seconds: float,
    *,
    distinct: Mapping[tuple[str, str], int] | None = None,
    live: bool = False,
    replaced: bool = False,
    source_still: bool = False,
) -> TableResult:
    """Judge a pair.

    Parameters
    ----------
    tally
        What the chunks add up to.
    failures
        Tasks that could not be done.
    diffs
        Exact numbers of rows that differ by (kind, live state).
    distinct
        The same numbers of distinct rows, where a table has no key or NULL keys.
    live
        Writes are expected: a count taken at another moment than the chunks proves nothing either way, and the
        unbroken chain of ranges alone is the proof of coverage.
    replaced
        The pair was given up because its chunks are not of one table; no later run may build on them.
    source_still
        Nobody wrote to any source since before the first read; else the verdict says what ranges cannot see.
    """
    mismatches = [*schema_mismatches(pair), *_row_mismatches(diffs, distinct or diffs), *tally.shared]
    gaps = [*([] if pair.part else uncovered_columns(pair)), *_unread(pair, tally, failures, diffs, live=live)]
    details: dict[str, Any] = {
        "rows_in_chunks": [tally.rows_source, tally.rows_target],
        "converged": in_state(diffs, LiveState.CONVERGED),
        "hot": in_state(diffs, LiveState.HOT),
        "plan_digest": plan_digest(pair),
        "stamps": [side.stamp for side in pair.sides],
        "replaced": replaced,
        "immutable_in": pair.immutable_in,
        "strategy": "whole table by bucket: " + pair.whole_reason if pair.whole else "key ranges",
        **({KEYLESS: True} if pair.sides and not pair.sides[-1].sql.key else {}),
    }
    if pair.part is not None:
        details |= {"quick": pair.part.read.words, "answered": not gaps}
        gaps = [*gaps, *_of_part(pair.part, tally, equal=not mismatches and not gaps)]
    return pair_result(
        pair, verdict_of(mismatches, gaps), (*mismatches, *gaps), diffs, seconds, details,
        rows=_rows(pair, tally), chunks=tally.chunks,
        blind_spots=[MOVES] if may_miss_moves(pair, tally) and not source_still else [],
    )  # fmt: skip


def _rows(pair: PairPlan, tally: ChunkTotals) -> tuple[int | None, int | None]:
    """Return the rows of each side, as counted; of a quick answer that counts no table, the rows that it read."""
    if pair.part is not None and tally.count_source is None and tally.count_target is None:
        return tally.rows_source, tally.rows_target
    return tally.count_source, tally.count_target


def conclude_counts(
    pair: PairPlan, counts: Sequence[int], state: LiveState, failures: Sequence[str], seconds: float, *,
    replaced: bool = False,
) -> TableResult:  # fmt: skip
    """Judge a pair of which both sides were counted.

    Parameters
    ----------
    counts
        The rows of the source and of the target at the last read; empty when they were not counted.
    state
        What the reads show: diverged where they differ, and neither of them moved between the last reads.
    """
    mismatches, gaps = schema_mismatches(pair), [f"not read: {text}" for text in failures]
    unseen = pair.part.unseen if pair.part is not None else ""
    shown = " / ".join(f"{count:,}" for count in counts)
    answer: list[str] = []
    if not counts or not pair.readable:
        gaps += [] if gaps or not pair.readable else ["the table was not counted"]
    elif state is LiveState.DIVERGED:
        mismatches.append(f"counts differ: {shown} rows (source / target)")
    elif state is LiveState.CONVERGED:
        answer = [f"counts are equal: {counts[0]:,} {'row' if counts[0] == 1 else 'rows'} on each side"]
    elif state is LiveState.HOT:
        gaps.append(f"counts differed and kept changing, at last {shown} rows (source / target): the table is written")
    else:
        gaps.append(f"counts differed once and were not read again: {shown} rows (source / target)")
    details = {
        "plan_digest": plan_digest(pair), "stamps": [side.stamp for side in pair.sides], "replaced": replaced,
        "quick": pair.part.read.words if pair.part is not None else "", "answered": bool(counts) and not gaps,
        "strategy": "counts of both sides",
    }  # fmt: skip
    gaps = [*gaps, *answer, unseen]
    rows = (counts[0], counts[1]) if counts else (None, None)
    return pair_result(pair, verdict_of(mismatches, gaps), (*mismatches, *gaps), {}, seconds, details, rows=rows)


def _of_part(part: PairPart, tally: ChunkTotals, *, equal: bool) -> list[str]:
    """Return what a quick answer says, and what it cannot show; never empty, so that the pair is not MATCH."""
    rows = f"{amount(tally.rows_source, 'row')} read on the source, {tally.rows_target:,} on the target"
    what = "keys are equal" if part.read.level is Level.KEYS else "rows are equal"
    within = " in the sample" if part.read.share else " in the interval" if part.read.column else ""
    return [*([f"{what}{within}: {rows}"] if equal else []), part.unseen, *([part.scan] if part.scan else [])]


def verdict_of(mismatches: Sequence[str], gaps: Sequence[str]) -> Verdict:
    """Return the verdict of a pair from what differs and what is not proved: of a run, a repair and a watch."""
    if mismatches:
        return Verdict.MISMATCH
    if gaps:
        return Verdict.INCONCLUSIVE
    return Verdict.MATCH


def pair_result(
    pair: PairPlan, verdict: Verdict, reasons: Sequence[str], diffs: Mapping[tuple[str, str], int], seconds: float,
    details: dict[str, Any], *, rows: tuple[int | None, int | None] = (None, None), chunks: int = 0,
    not_covered: Sequence[NotCovered] = (), blind_spots: Sequence[str] = (),
) -> TableResult:  # fmt: skip
    """Return what the store keeps of a pair; ``not_covered`` and ``blind_spots`` are beside those of its plan."""
    if pair.part is not None:  # a quick answer, or a result would read like one of the whole table
        not_covered = (*not_covered, NotCovered(f"what {pair.part.read.words} leaves out", pair.part.unseen))
        blind_spots = (*blind_spots, pair.part.unseen)
    kinds = {kind: n for (kind, state), n in diffs.items() if state == LiveState.DIVERGED.value}
    return TableResult(
        pair=pair.id, source=pair.source or NO_TABLE, target=pair.target or NO_TABLE, verdict=verdict,
        reasons=tuple(reasons), rows_source=rows[0], rows_target=rows[1], chunks=chunks,
        lanes=tuple(dict.fromkeys(column.lane.value for column in pair.columns)),
        missing_on_target=kinds.get("missing_on_target", 0), missing_on_source=kinds.get("missing_on_source", 0),
        value_differs=kinds.get("value_differs", 0), not_covered=(*pair.not_covered, *not_covered),
        schema=pair.schema, seconds=seconds, hash_name=pair.hash, blind_spots=(*pair.blind_spots, *blind_spots),
        details=details,
    )  # fmt: skip


def in_state(diffs: Mapping[tuple[str, str], int], state: LiveState) -> int:
    """Return how many rows are in a state, of numbers by (kind, live state)."""
    return sum(n for (_, found), n in diffs.items() if found == state.value)


def may_miss_moves(pair: PairPlan, tally: ChunkTotals) -> bool:
    """Whether ranges were read one after the other, on sides of which none was pinned to one moment."""
    pinned = all(s.endpoint.snapshot for s in pair.sources) or (pair.target_side and pair.target_side.endpoint.snapshot)
    return not pair.whole and tally.chunks > 1 and not pinned


def schema_mismatches(pair: PairPlan, *, reverse: bool = False) -> list[str]:
    """Return the differences of the definitions that are differences of the tables.

    A column that only one side has is one where that side is written: the source, in reverse the target.
    """
    if not pair.source or not pair.target:
        return [f"the table is on the {'target' if not pair.source else 'source'} only"]
    breaks = [d for d in pair.schema if d.level is SchemaClass.BREAKS_COMPARISON]
    return [d.message for d in breaks if (d.kind == "column-extra" if reverse else d.target is None)]


def _row_mismatches(diffs: Mapping[tuple[str, str], int], distinct: Mapping[tuple[str, str], int]) -> list[str]:
    words = {"missing_on_target": "missing on the target", "missing_on_source": "missing on the source",
             "value_differs": "different"}  # fmt: skip
    return [
        f"{n:,} {'row is' if n == 1 else 'rows are'} {words[kind]}"
        + (f" ({distinct[kind, state]:,} distinct)" if distinct[kind, state] != n else "")
        for (kind, state), n in sorted(diffs.items()) if state == LiveState.DIVERGED.value and n
    ]  # fmt: skip


def uncovered_columns(pair: PairPlan) -> list[str]:
    """Return the columns that both sides have and no rule could join: not compared, so nothing is proved of them."""
    if pair.source and pair.target and not pair.readable:
        return ["no column can be compared"]
    return [f"column {gap.what} is not compared: {gap.reason}" for gap in pair.unproved]


def _unread(
    pair: PairPlan, tally: ChunkTotals, failures: Sequence[str], diffs: Mapping[tuple[str, str], int], *, live: bool
) -> list[str]:
    if not pair.readable:
        return []
    gaps = [f"not read: {text}" for text in failures]
    if tally.failed:
        gaps.append(
            f"{tally.failed} of {amount(tally.chunks, 'chunk')} could not be read, the first: {tally.first_failure}"
        )
    if hot := in_state(diffs, LiveState.HOT):
        gaps.append(f"{hot:,} rows kept changing while they were read (hot)")
    if waiting := in_state(diffs, LiveState.UNCONFIRMED):
        gaps.append(f"{waiting:,} rows differed once and were not read again")
    if tally.behind_condition:
        rows = f"about {amount(pair.rows, 'row')}" if pair.rows else "the rows there are"
        answered = (side.endpoint.name for side in pair.sides if side.endpoint.name in tally.behind_condition)
        names = " and ".join(answered)
        gaps.append(f"the condition of overrides.where leaves none of {rows} on {names}: nothing was compared")
    if pair.part is not None and (pair.part.read.share or pair.part.refused):
        return gaps  # the ranges of a sample add up to no table
    if tally.count_source is None or tally.count_target is None:
        gaps.append("the table was not counted")
    elif not live and not tally.failed and not failures:
        seen, counted = (tally.rows_source, tally.rows_target), (tally.count_source, tally.count_target)
        if seen != counted:
            gaps.append(f"the chunks hold {seen[0]:,} / {seen[1]:,} rows, the tables {counted[0]:,} / {counted[1]:,} "
                        "(source / target): rows were written meanwhile, or ranges do not cover the table")  # fmt: skip
    if tally.chunks == 0:
        gaps.append("nothing was read")
    return gaps
