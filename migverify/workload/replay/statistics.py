"""The tests by which a difference is told from noise, and a slower target from chance. Standard library only.

- Differences against noise: Fisher's exact test, one-sided (R. A. Fisher, *Statistical Methods for Research Workers*,
  5th ed., section 21.02; A. Agresti, *Categorical Data Analysis*, 3.5): the hypergeometric chance of at least so many
  differing statements if differing and noisy ones were drawn alike.
- Rates: Wilson's score interval (E. B. Wilson, JASA 22, 1927).
- Quantiles: distribution-free intervals from order statistics (W. J. Conover, *Practical Nonparametric Statistics*,
  3.2): ranks are binomial, so the interval holds for any distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from migverify.workload.replay.latency import Histogram

QUANTILES = (0.5, 0.95, 0.99)
_EXACT_TRIALS = 2_000


def fisher(hits: int, trials: int, noise_hits: int, noise_trials: int) -> float:
    """Return the one-sided p-value that the rate ``hits/trials`` is above ``noise_hits/noise_trials`` by chance.

    Raises
    ------
    ValueError
        More hits than trials, or a negative count.
    """
    if not (0 <= hits <= trials and 0 <= noise_hits <= noise_trials):
        raise ValueError(f"hits {hits} of {trials} and {noise_hits} of {noise_trials}")
    whole, marked = trials + noise_trials, hits + noise_hits
    top = min(trials, marked)
    logs = [_log_choose(trials, k) + _log_choose(noise_trials, marked - k) for k in range(hits, top + 1)]
    if not logs:
        return 1.0
    most = max(logs)
    found = math.exp(most - _log_choose(whole, marked)) * math.fsum(math.exp(one - most) for one in logs)
    return min(1.0, found)


def _log_choose(of: int, some: int) -> float:
    if some < 0 or some > of:
        return -math.inf
    return math.lgamma(of + 1) - math.lgamma(some + 1) - math.lgamma(of - some + 1)


def wilson(hits: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the score interval of a rate; (0, 1) without trials."""
    if trials == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate, square = hits / trials, z * z / trials
    center = (rate + square / 2) / (1 + square)
    spread = z * math.sqrt(rate * (1 - rate) / trials + square / (4 * trials)) / (1 + square)
    return max(0.0, center - spread), min(1.0, center + spread)


def rank_interval(count: int, share: float, confidence: float) -> tuple[int, int] | None:
    """Return the ranks, from 1, whose values bound a quantile; None where so few values cannot.

    Exact by the binomial distribution up to 2,000 values, by its normal approximation with a margin of one rank above.
    """
    tail = (1 - confidence) / 2
    if count <= _EXACT_TRIALS:
        low = _binomial_rank(count, share, tail)
        high = count + 1 - _binomial_rank(count, 1 - share, tail)
    else:
        z = NormalDist().inv_cdf(1 - tail)
        spread = z * math.sqrt(count * share * (1 - share))
        low, high = math.floor(count * share - spread) - 1, math.ceil(count * share + spread) + 2
    return (low, high) if low >= 1 and high <= count else None


def _binomial_rank(count: int, share: float, tail: float) -> int:
    """Return the greatest rank r with P(Binomial(count, share) < r) <= tail; 0 when there is none."""
    log_share, log_rest = math.log(share), math.log1p(-share)
    below = 0.0
    for rank in range(count + 1):
        below += math.exp(_log_choose(count, rank) + rank * log_share + (count - rank) * log_rest)
        if below > tail:
            return rank
    return count


@dataclass(frozen=True, slots=True)
class Shift:
    """A quantile on both sides with its intervals, microseconds; the target is slower by ``slower`` at least."""

    quantile: float
    source: tuple[int, int]
    target: tuple[int, int]
    slower: int

    def as_json(self) -> dict[str, object]:
        """Return the shift as a JSON object."""
        return {
            "quantile": self.quantile, "source": list(self.source), "target": list(self.target),
            "slower_by_at_least": self.slower,
        }  # fmt: skip


def shifts(source: Histogram, target: Histogram, *, confidence: float, floor: int) -> tuple[Shift, ...]:
    """Return the quantiles at which the target is slower, for certain and by more than ``floor`` microseconds.

    A quantile counts when the whole interval of the target lies above the source's by more than the floor. Two
    intervals of the given confidence that do not touch are a stricter test than that confidence says. Buckets are
    taken by their edges: the source's by the upper, the target's by the lower one.
    """
    found = []
    for share in QUANTILES:
        first, second = interval(source, share, confidence), interval(target, share, confidence)
        if first is None or second is None:
            continue
        slower = second[0] - first[1]
        if slower > floor:
            found.append(Shift(share, first, second, slower))
    return tuple(found)


def interval(histogram: Histogram, share: float, confidence: float) -> tuple[int, int] | None:
    """Return values that bound a quantile with this confidence; None where there are too few."""
    ranks = rank_interval(histogram.count, share, confidence)
    if ranks is None:
        return None
    return histogram.at_rank(ranks[0])[0], histogram.at_rank(ranks[1])[1]
