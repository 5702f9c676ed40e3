"""Verify again only what was not equal: carry the equal chunks of an earlier run over to a new one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from migverify.model import ChunkResult, ChunkState, KeyRange, RunInfo, StoredKind, Verdict
from migverify.store.base import ResultStore, named_run

CHUNKS_AT_ONCE = 1000


def tables_run(store: ResultStore, name: str, digest: str | None = None, *, watch: bool | None = None) -> RunInfo:
    """Return a run of the tables; ``watch`` says whether ``last`` is a watch or a verification, None for either."""
    return named_run(
        store, name, StoredKind.TABLES, digest, suits=lambda one: watch is None or bool(one.facts.get("watch")) is watch
    )


def carry_over(store: ResultStore, old: str, new: str, pair: str) -> int:
    """Copy the equal chunks of a pair from run ``old`` to run ``new``; returns how many.

    Each unbroken stretch of equal chunks becomes a finished span of the new run, and everything else a span with
    nothing done. Resuming the new run then reads just the rest.
    """
    number = carried = 0
    chunks = groupby(store.chunks(old, pair), key=lambda chunk: chunk.span)
    done = {span: list(_stretches(part)) for span, part in chunks}
    for span, key_range in store.spans(old, pair):
        for piece, members in _with_rest(key_range, done.get(span, [])):
            store.add_span(new, pair, number, piece)
            for start in range(0, len(members), CHUNKS_AT_ONCE):
                batch = [
                    _renumbered(c, number, start + n) for n, c in enumerate(members[start : start + CHUNKS_AT_ONCE])
                ]
                store.add_chunks(new, batch, [])
                carried += len(batch)
            number += 1
    return carried


def _stretches(chunks: Iterator[ChunkResult]) -> Iterator[list[ChunkResult]]:
    for equal, members in groupby(chunks, key=lambda chunk: chunk.state is ChunkState.EQUAL):
        if equal:
            yield list(members)
        else:
            yield from ([member] for member in members)


def _with_rest(key_range: KeyRange, stretches: list[list[ChunkResult]]) -> Iterator[tuple[KeyRange, list[ChunkResult]]]:
    """Yield (range, equal chunks to carry) for a span; the part that was never reached comes last."""
    end = key_range.lower
    finished = False
    for members in stretches:
        end = members[-1].range.upper
        finished = key_range.nulls or end == key_range.upper
        piece = KeyRange(members[0].range.lower, end, key_range.nulls)
        yield piece, members if members[0].state is ChunkState.EQUAL else []
    if not finished:
        yield KeyRange(end, key_range.upper, key_range.nulls), []


def _renumbered(chunk: ChunkResult, span: int, number: int) -> ChunkResult:
    return ChunkResult(
        chunk.pair, span, number, chunk.range, chunk.state, chunk.source, chunk.target, chunk.started, chunk.seconds,
        chunk.source_seconds, chunk.target_seconds, chunk.attempts, chunk.reason,
    )  # fmt: skip


def pairs_to_recheck(store: ResultStore, run_id: str) -> set[str]:
    """Return the ids of the pairs of a verification or a watch that were not MATCH, those never reached included."""
    equal = {result.pair for result in store.table_results(run_id) if result.verdict is Verdict.MATCH}
    planned = {str(entry["id"]) for entry in store.load_run(run_id).plan.get("pairs", [])}
    return planned - equal
