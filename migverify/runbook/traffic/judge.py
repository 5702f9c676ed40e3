"""What a measured share says about the one that was asked for: pass, fail, or too little to say. Pure.

Three ways, not two. A measured share has an interval in which the true one lies (Wilson's, which holds for few requests
and for shares near 0 and 100 % as well). It passes when the whole interval lies within the tolerance around the asked
share, and fails when none of it does. Between the two, more requests are needed, and nobody says "good" before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from migverify.errors import UsageError
from migverify.runbook.traffic.model import FULL, percent

__all__ = ["CONFIDENCE", "MIN_SAMPLE", "Judgement", "default_tolerance", "judge_share", "wilson"]

CONFIDENCE = 99.0
"""Percent."""
MIN_SAMPLE = 100
"""Keys or requests below which nothing is said, whatever the interval is."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is said: ``state`` is pass, fail or inconclusive; the shares are in percent, None without a sample."""

    state: str
    text: str
    measured: float | None = None
    low: float | None = None
    high: float | None = None


def wilson(hits: int, total: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the interval, as fractions, in which the share behind ``hits`` of ``total`` lies (E. B. Wilson, 1927).

    Raises
    ------
    UsageError
        the counts cannot be, or the confidence is not between 0 and 100 percent.
    """
    if not 0 <= hits <= total or not 0 < confidence < 100:
        raise UsageError(f"{hits} of {total} at {confidence:g} % confidence")
    if total == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 200)
    share, square = hits / total, z * z
    center = (share + square / (2 * total)) / (1 + square / total)
    half = z / (1 + square / total) * math.sqrt(share * (1 - share) / total + square / (4 * total * total))
    low = 0.0 if hits == 0 else max(0.0, center - half)
    high = 1.0 if hits == total else min(1.0, center + half)
    return low, high


def default_tolerance(asked: int) -> float:
    """Return by how many points of percent a share may miss: half of its smaller part, at most 5."""
    return min(min(asked, FULL - asked) / 200, 5.0)


def judge_share(
    asked: int, new: int, total: int, *, tolerance: float | None = None, confidence: float = CONFIDENCE,
    minimum: int = MIN_SAMPLE,
) -> Judgement:  # fmt: skip
    """Hold a measured share against the one that was asked for.

    Parameters
    ----------
    asked
        Hundredths of a percent.
    new, total
        Of the sample: how many went to the new side, of how many. The sample is what the driver decides by: distinct
        keys where it splits by key, since all requests of a key go one way together; else requests.
    tolerance
        Points of percent; None: ``default_tolerance``. At 0 and 100 % there is none: one on the wrong side is too many.
    minimum
        Below it nothing is said, but that something is on a side where nothing may be.

    Raises
    ------
    UsageError
        a tolerance that is negative or no number.
    """
    room = default_tolerance(asked) if tolerance is None else tolerance
    if not math.isfinite(room) or room < 0:
        raise UsageError(f"a tolerance of {room} points", hint="Give a number of percent points above 0.")
    measured = 100 * new / total if total else None
    fractions = wilson(new, total, confidence)
    low, high = 100 * fractions[0], 100 * fractions[1]
    said = f"{new} of {total}" + (f" = {measured:.2f} % [{low:.2f}, {high:.2f}]" if measured is not None else "")
    ask = f"asked {percent(asked)} %"

    def judged(state: str, text: str) -> Judgement:
        return Judgement(state, f"{ask}, measured {said}{text}", measured, low, high)

    if asked in (0, FULL):
        wrong = new if asked == 0 else total - new
        if wrong:
            return judged("fail", f": {wrong} on the {'new' if asked == 0 else 'old'} side, where none may be")
        return judged("pass", "") if total >= minimum else judged("inconclusive", f": fewer than {minimum}")
    bottom, top = asked / 100 - room, asked / 100 + room
    if total < minimum:
        return judged("inconclusive", f": fewer than {minimum}")
    if high < bottom or low > top:
        return judged("fail", f": not within {room:g} points")
    if bottom <= low and high <= top:
        # An interval that reaches down to 0 could also be one where nothing goes to the new side at all.
        return judged("pass", "") if 0 < new < total else judged("inconclusive", ": one side has none")
    return judged("inconclusive", f": too few to say whether it is within {room:g} points")
