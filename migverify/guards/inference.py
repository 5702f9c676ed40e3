"""Which layout do these ids have? Inferred from samples, with a confidence, and never named where they do not say.

Two kinds of evidence. Rows with a creation time: only one pair of shift and unit maps the ids to those times by a
constant, because 2^10 is not 1000. Bits alone: the lowest bit of the time is a coin's toss, while the highest bits of
worker and sequence hardly ever change; and the newest id of a table in use is about now.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from migverify.guards.layouts import ID_BITS, KNOWN, Layout, candidates

FEWEST = 20
"""Samples that are needed to say anything."""
ENOUGH_FOR_CHANCE = 50
"""Samples that are needed to tell random numbers."""
SMALLEST = 1 << 32
"""Below it an id is a counter: every known layout passes it within its first days."""
HOUR, DAY, YEAR = 3_600_000, 86_400_000, 31_556_952_000
_ZONE = 15 * 60_000
"""A creation time in a local zone is off by quarters of an hour."""
AHEAD = DAY
"""Ids further ahead of the clock are not believed."""
SURE = 0.9


@dataclass(frozen=True, slots=True)
class LayoutGuess:
    """A layout and how sure it is, 0 to 1, with the evidence in words. ``layout`` None: no snowflake ids.

    ``random``: the ids are random numbers or hashes.
    """

    layout: Layout | None
    confidence: float
    evidence: str
    random: bool = False


def infer(ids: Sequence[int], now: int, times: Sequence[int | None] = ()) -> LayoutGuess:
    """Tell the layout of ids.

    Parameters
    ----------
    ids
        A sample over the whole table, in any order; its newest ids should be in it.
    now
        Unix milliseconds.
    times
        When each row was made, Unix milliseconds by the clock the application wrote; None where unknown.
    """
    known = [number for number in ids if number > 0]
    if len(known) < FEWEST:
        return LayoutGuess(None, 0.0, f"{len(known)} ids are too few: {FEWEST} are needed")
    if _random(known, times, ids):
        return LayoutGuess(
            None, 0.95, f"{len(set(known))} ids are spread evenly over all numbers: random or hashed", True
        )
    if max(known) < SMALLEST:
        return LayoutGuess(None, 1.0, "the ids are below 2^32: a counter")
    if two_generators(known)[0]:
        return LayoutGuess(None, 0.0, "some ids are small and some are huge: two generators share the column")
    pairs = [(number, time) for number, time in zip(ids, times, strict=False) if time is not None and number > 0]
    if len(pairs) >= FEWEST:
        guess = _by_times(pairs, now)
        if guess is not None:
            return guess
    return _by_bits(known, now)


def two_generators(ids: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the ids of a counter and the huge ones, where both share the sample; else none and all.

    Nothing is between them for a factor of 2^16.
    """
    small = [number for number in ids if 0 < number < SMALLEST]
    huge = [number for number in ids if number >= SMALLEST]
    fewest = max(3, len(ids) // 100)
    if min(len(small), len(huge)) >= fewest and max(small) << 16 < min(huge):
        return small, huge
    return [], list(ids)


def _random(ids: Sequence[int], times: Sequence[int | None], all_ids: Sequence[int]) -> bool:
    """Tell whether ids look like uniform random numbers.

    They reach from nearly 0 to nearly a power of two, every bit below their usual distance is a coin's toss, and those
    distances are as different as chance makes them. Ids of a counter are dense, those of a clock have constant low
    fields or end at the present; and they grow with their creation times.
    """
    known = sorted(set(ids))
    count = len(known)
    top = 1 << known[-1].bit_length()
    if count < ENOUGH_FOR_CHANCE or known[-1] < top * (1 - 6 / count) or known[0] > top * 6 / count:
        return False
    newest = known[-min(count, 600) :]
    gaps = [later - earlier for earlier, later in pairwise(newest)]
    mean = sum(gaps) / len(gaps)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    if mean < 16 or not 0.6 < deviation / mean < 1.6:
        return False
    fair = 2 / math.sqrt(count)  # four standard deviations of a share of coin tosses
    shares = (sum(number >> bit & 1 for number in known) / count for bit in range(min(int(mean).bit_length() - 3, 40)))
    if any(abs(share - 0.5) > fair for share in shares):
        return False
    timed = sorted((time, number) for number, time in zip(all_ids, times, strict=False) if time is not None)
    if len(timed) < FEWEST or timed[0][0] == timed[-1][0]:
        return True
    # Where ids grow with time, those of the older half are smaller, nearly all of them.
    half = [number for _, number in timed[: len(timed) // 2]]
    middle = sorted(number for _, number in timed)[len(timed) // 2]
    return 0.3 < sum(number < middle for number in half) / len(half) < 0.7


def _by_times(pairs: Sequence[tuple[int, int]], now: int) -> LayoutGuess | None:
    moments = [time for _, time in pairs]
    span = _spread(moments)
    if span < 10 * 60_000:
        return None  # 2.4 % of a few minutes is no more than clocks and round seconds differ
    best: tuple[float, int, int, float] | None = None
    for shift, unit in candidates():
        offsets = [time - (number >> shift) * unit for number, time in pairs]
        middle = median(offsets)
        error = median(abs(offset - middle) for offset in offsets)
        if best is None or error < best[0]:
            best = (error, shift, unit, middle)
    if best is None:
        return None
    error, shift, unit, epoch = best
    if error > max(5_000.0, span * 0.002):
        return None  # the times are not those of the ids
    layout, known = _with_epoch(shift, unit, round(epoch), error, [number for number, _ in pairs])
    confidence = 0.99 if known else 0.95
    if layout.time(max(number for number, _ in pairs)) > now + AHEAD:
        confidence = 0.5
    return LayoutGuess(layout, confidence,
                 f"creation times of {len(pairs)} rows over {_words(span)} agree within {_words(error)}")  # fmt: skip


def _with_epoch(shift: int, unit: int, epoch: int, error: float, ids: Sequence[int]) -> tuple[Layout, bool]:
    """Return the layout of a shift, a unit and a measured epoch: a known one where it fits."""
    near = error * 4 + 3_000 + unit
    for known in KNOWN:
        off = epoch - known.epoch
        # A creation time in a local zone shifts what is measured by quarters of an hour, half a day at most.
        in_zone = abs(off) <= 14 * HOUR + near and abs(off - round(off / _ZONE) * _ZONE) <= near
        if known.shift == shift and known.unit == unit and in_zone:
            return known, True
    rounded = next((round(epoch / step) * step for step in (DAY, HOUR, _ZONE, 1000)
                    if abs(epoch - round(epoch / step) * step) <= near), epoch)  # fmt: skip
    return _split(Layout("own", ID_BITS - shift, shift, 0, unit, rounded, split=False), ids), False


def _split(layout: Layout, ids: Sequence[int]) -> Layout:
    """Tell worker from sequence in the low bits by the usual splits: the sequence's high bits hardly change."""
    usual = {22: (10, 12), 23: (13, 10), 35: (22, 13), 20: (10, 10), 21: (9, 12), 24: (16, 8)}
    if layout.shift not in usual:
        return layout
    worker, sequence = usual[layout.shift]
    first = layout.shift == 24 and layout.unit == 10
    given = replace(layout, worker_bits=worker, sequence_bits=sequence, sequence_first=first, split=True)
    return given if _fits(given, ids) >= 0.5 else layout


def _by_bits(ids: Sequence[int], now: int) -> LayoutGuess:
    newest = max(ids)
    found: list[tuple[float, Layout, str]] = []
    for layout in KNOWN:
        time = layout.time(newest)
        if not layout.epoch < time <= now + AHEAD or layout.tick(newest) >> layout.time_bits:
            continue
        if layout.time(min(ids)) == time:
            continue  # all in one tick: nothing to see
        structure = _fits(layout, ids)
        age = max(0, now - time)
        recent = math.exp(-age / (YEAR / 2))
        found.append(
            (structure * (0.35 + 0.65 * recent), layout, f"the newest id is of {_words(age)} before the clock")
        )
    if not found:
        return LayoutGuess(
            None, 0.0, "no known layout gives times between its epoch and now; no creation times to measure by"
        )
    found.sort(key=lambda one: -one[0])
    score, layout, words = found[0]
    second = found[1][0] if len(found) > 1 else 0.0
    confidence = round(min(0.9, score * (1 - second / score if score else 0.0) + 0.25 * score), 2)
    if confidence < 0.3:
        return LayoutGuess(
            None, confidence, f"the bits do not report the layout apart; likeliest {layout.name}: {words}"
        )
    return LayoutGuess(layout, confidence, f"the bits fit, and {words}; no creation times to measure by")


def _fits(layout: Layout, ids: Sequence[int]) -> float:
    """Return how well the bits look like this layout's, 0 to 1."""
    coin = _entropy(ids, layout.shift)  # the lowest bit of the time
    if coin < 0.5:
        return 0.1
    low, high = (layout.worker_bits, layout.sequence_bits) if layout.sequence_first else (
        layout.sequence_bits, layout.worker_bits)  # fmt: skip
    # The highest bit of each low field: a worker's is 0 until half of all numbers are given out, a sequence's until a
    # tick is half full. A time bit counted as one of them is a coin's toss again.
    tops = (
        [_entropy(ids, layout.shift - 1), _entropy(ids, low - 1)] if high and low else [_entropy(ids, layout.shift - 1)]
    )
    if not layout.sequence_first and layout.sequence_bits == 10:
        tops = tops[:1]  # Instagram's sequence counts on over all ticks, so that all its bits change
    return coin * math.prod(1.0 - 0.8 * top for top in tops)


def _entropy(ids: Sequence[int], bit: int) -> float:
    share = sum(number >> bit & 1 for number in ids) / len(ids)
    if share in (0.0, 1.0):
        return 0.0
    return -share * math.log2(share) - (1 - share) * math.log2(1 - share)


def _spread(values: Sequence[int]) -> int:
    return max(values) - min(values)


def _words(milliseconds: float) -> str:
    for size, name in ((YEAR, "years"), (DAY, "days"), (HOUR, "hours"), (60_000, "minutes"), (1000, "seconds")):
        if milliseconds >= 2 * size:
            return f"{milliseconds / size:.0f} {name}"
    return f"{milliseconds:.0f} ms"
