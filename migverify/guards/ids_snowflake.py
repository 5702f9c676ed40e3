"""What a sample of time-ordered ids says of its generators: days, workers, sequences, clocks, and overlaps."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from migverify.guards.ids_model import DAY, IdKind, IdSpace
from migverify.guards.inference import SURE, LayoutGuess, infer, two_generators
from migverify.guards.layouts import Layout, moment_text

ENOUGH = 0.6
"""A layout that is less sure is shown, and judges nothing."""
AHEAD = 10_000.0
"""Milliseconds that the newest id may be ahead of the clock; generators that borrow ticks go further."""
WORKERS = 0.8
SEQUENCE = 0.9


def snowflake(
    space: IdSpace, ids: Sequence[int], times: Sequence[int | None], now: float, given: Layout | None = None
) -> IdSpace:
    """Return the space as a snowflake's, a counter's, random numbers' or a mixture, by a sample of its ids.

    A snowflake's column may hold older ids of a counter: they are set apart, and the rest is judged.

    Parameters
    ----------
    given
        The layout, where the user says it: nothing is inferred then.
    """
    counted, generated = two_generators(ids)
    if counted and given is None:
        return _mixed(space, ids, times, now, frozenset(generated), max(counted))
    guess = LayoutGuess(given, 1.0, "given") if given is not None else infer(ids, round(now), times)
    layout = guess.layout
    if layout is None and guess.random:
        return replace(space, kind=IdKind.RANDOM, confidence=guess.confidence, evidence=guess.evidence, used=None,
                       limit=None)  # fmt: skip
    if layout is None:
        doubts = () if guess.confidence >= SURE else (f"layout unknown: {guess.evidence}",)
        return replace(space, kind=IdKind.INTEGER, confidence=guess.confidence, evidence=guess.evidence, doubts=doubts)
    newest = max(ids)
    reported = replace(
        space, kind=IdKind.SNOWFLAKE, layout=layout, confidence=guess.confidence, evidence=guess.evidence,
        used=layout.tick(newest), limit=_ticks(layout, space.limit), ahead_ms=max(0.0, layout.time(newest) - now),
    )  # fmt: skip
    if reported.limit is not None and reported.limit < 1 << layout.time_bits and not space.narrowed:
        reported = replace(
            reported, notes=(*reported.notes, "!the column's type ends before the generator's time field")
        )
    if guess.confidence < ENOUGH:
        doubt = f"likely {layout}, confidence {guess.confidence:.2f}: {guess.evidence}"
        return replace(reported, doubts=(doubt,))
    return _generators(reported, layout, ids)


def infer_workers(ids: Sequence[int]) -> Callable[[int], int] | None:
    """Return what gives the worker of an id, by a sample of ids given out lately; None where that is not sure."""
    guess = infer(ids, round(time.time() * 1000))
    layout = guess.layout
    return layout.worker if layout is not None and layout.split and guess.confidence >= ENOUGH else None


def _ticks(layout: Layout, largest: int | None) -> int:
    """Return how many ticks fit: those of the time field, or of the column where its largest value comes first."""
    ticks = 1 << layout.time_bits
    return ticks if largest is None else min(ticks, (largest + 1) >> layout.shift)


def _mixed(
    space: IdSpace, ids: Sequence[int], times: Sequence[int | None], now: float, generated: frozenset[int], last: int
) -> IdSpace:  # fmt: skip
    """Judge the time-ordered ids of a column that holds a counter's ids too."""
    pairs = [(number, time) for number, time in zip(ids, [*times, *[None] * len(ids)], strict=False)]
    kept = [pair for pair in pairs if pair[0] in generated]
    reported = snowflake(space, [number for number, _ in kept], [time for _, time in kept], now)
    words = f"ids of a counter, such as {last:,}, share the column with {reported.kind.value} ids"
    if reported.kind is not IdKind.SNOWFLAKE or reported.doubts:
        return replace(reported, kind=IdKind.MIXED, evidence=f"{words}; {reported.evidence}",
                       doubts=(f"two generators: {words}", *reported.doubts))  # fmt: skip
    newest = [max((t for n, t in pairs if t is not None and (n in generated) is side), default=None)
              for side in (False, True)]  # fmt: skip
    if newest[0] is not None and newest[1] is not None and newest[0] > newest[1] - DAY:
        return replace(reported, problems=(*reported.problems, f"two generators are at work: {words}"))
    return replace(reported, notes=(*reported.notes, f"!{words}"))


def _generators(space: IdSpace, layout: Layout, ids: Sequence[int]) -> IdSpace:
    problems, notes = list(space.problems), [*space.notes, str(layout)]
    if space.ahead_ms > AHEAD:
        problems.append(
            f"the newest id is {space.ahead_ms / 1000:.0f} s ahead of the clock ({moment_text(layout.time(max(ids)))})"
        )
    if any(layout.tick(number) >> layout.time_bits for number in ids):
        problems.append("ids beyond the end of the time field")
    small = sum(number < 1 << layout.shift for number in ids if number > 0)
    if small:
        problems.append(f"{small} ids of another generator below the first tick")
    space = replace(space, problems=tuple(problems), notes=tuple(notes))
    return _fields(space, layout, ids) if layout.split else space


def _fields(space: IdSpace, layout: Layout, ids: Sequence[int]) -> IdSpace:
    workers = {layout.worker(number) for number in ids if number > 0}
    ticks: dict[tuple[int, int], int] = defaultdict(int)
    for number in set(ids):
        ticks[layout.tick(number), layout.worker(number)] += 1
    total_workers, total = 1 << layout.worker_bits, 1 << layout.sequence_bits
    # A counter that goes on over ticks fills its field anyway: what counts is how many ids share a tick and a worker.
    peak = max(ticks.values(), default=0)
    if layout.sequence_bits >= 8 and not _counts_on(layout, ids):
        peak = max(peak, 1 + max((layout.sequence(number) for number in ids), default=0))
    problems, notes = list(space.problems), list(space.notes)
    highest = max(workers, default=0) + 1
    if len(workers) > WORKERS * total_workers:
        problems.append(f"{len(workers)} of {total_workers} workers are in use")
    elif highest > WORKERS * total_workers:
        # Where numbers are given out in turn, one at each start and never back, this is the end of them.
        notes.append(
            f"!worker {highest - 1} of {total_workers} is in use: none may be left, if they are given out in turn"
        )
    if peak > SEQUENCE * total:
        problems.append(f"{peak} of {total} sequence numbers of one tick are used: the generator stalls or borrows")
    return replace(space, workers_used=len(workers), workers_total=total_workers, sequence_peak=peak,
                   sequence_total=total, problems=tuple(problems), notes=tuple(notes))  # fmt: skip


def _counts_on(layout: Layout, ids: Sequence[int]) -> bool:
    """Tell whether the sequence goes on from tick to tick (Instagram's), instead of beginning again."""
    lone = [layout.sequence(number) for number in ids]
    spread = sorted(lone)
    return bool(spread) and spread[len(spread) // 2] > (1 << layout.sequence_bits) // 8


def overlapping(source: IdSpace, target: IdSpace, source_ids: Sequence[int], target_ids: Sequence[int]) -> str:
    """Say whether two generators, one at each side, give out ids of the same workers while both are at work.

    Ids that both sides hold were replicated. Where each side has new ids of its own, both give out ids; by the same
    workers they may give out the same.
    """
    if source.layout is None or target.layout is None or not source.layout.split:
        return ""
    if replace(source.layout, name="") != replace(target.layout, name=""):
        return f"the sides have different layouts: {source.layout} and {target.layout}"
    start = max(min(source_ids, default=0), min(target_ids, default=0))
    ours = {number for number in source_ids if number >= start} - set(target_ids)
    theirs = {number for number in target_ids if number >= start} - set(source_ids)
    both = {source.layout.worker(n) for n in ours} & {source.layout.worker(n) for n in theirs}
    if not both:
        return ""
    some = ", ".join(map(str, sorted(both)[:5]))
    return f"both sides give out ids of worker {some}: two generators overlap, and may give out the same id"
