"""The tests by which a difference is separated from noise, and a slower target from chance. Standard library only.

- Differences against noise: Fisher's exact test, one-sided (R. A. Fisher, *Statistical Methods for Research Workers*,
  5th ed., section 21.02; A. Agresti, *Categorical Data Analysis*, 3.5): the hypergeometric chance of at least so many
  differing statements if differing and noisy ones were drawn alike.
- Quantiles: distribution-free intervals from order statistics (W. J. Conover, *Practical Nonparametric Statistics*,
  3.2): ranks are binomial, so the interval holds for any distribution.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist

from migverify.workload.replay.latency import Histogram
from migverify.workload.replay.model import Judgement
from migverify.workload.replay.tally import DigestTally

QUANTILES = (0.5, 0.95, 0.99)


def fisher(hits: int, trials: int, noise_hits: int, noise_trials: int) -> float:
    """Return the one-sided p-value that the rate ``hits/trials`` is above ``noise_hits/noise_trials`` by chance.

    Raises ValueError: more hits than trials, or a negative count.
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


def rank_interval(count: int, share: float, confidence: float) -> tuple[int, int] | None:
    """Return the ranks, from 1, whose values bound a quantile; None where so few values cannot.

    By the normal approximation of the binomial distribution, with a margin of one rank.
    """
    low, high = _ranks(count, share, confidence)
    return (low, high) if low >= 1 and high <= count else None


def _ranks(count: int, share: float, confidence: float) -> tuple[int, int]:
    z = NormalDist().inv_cdf(1 - (1 - confidence) / 2)
    spread = z * math.sqrt(count * share * (1 - share))
    return math.floor(count * share - spread) - 1, math.ceil(count * share + spread) + 2


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


@dataclass(frozen=True, slots=True)
class QuantileEstimate:
    """A quantile of ``count`` values with its interval, microseconds.

    ``low`` or ``high`` is None where so few values do not bound the quantile on that side.
    """

    value: int
    low: int | None
    high: int | None
    count: int

    def as_json(self) -> dict[str, object]:
        """Return the estimate as a JSON object."""
        return asdict(self)


def quantile_estimate(histogram: Histogram, share: float, confidence: float) -> QuantileEstimate | None:
    """Return a quantile with a distribution-free interval; None where nothing was counted."""
    value, count = histogram.quantile(share), histogram.count
    if value is None:
        return None
    low, high = _ranks(count, share, confidence)
    return QuantileEstimate(
        value, histogram.at_rank(low)[0] if low >= 1 else None,
        histogram.at_rank(high)[1] if high <= count else None, count,
    )  # fmt: skip


def shifts(source: Histogram, target: Histogram, *, confidence: float, floor: int) -> tuple[Shift, ...]:
    """Return the quantiles at which the target is slower, for certain and by more than ``floor`` microseconds.

    A quantile counts when the whole interval of the target lies above the source's by more than the floor. Two
    intervals of the given confidence that do not touch are a stricter test than that confidence says. Buckets are
    taken by their edges: the source's by the upper, the target's by the lower one.
    """
    found = []
    for share in QUANTILES:
        first, second = _interval(source, share, confidence), _interval(target, share, confidence)
        if first is None or second is None:
            continue
        slower = second[0] - first[1]
        if slower > floor:
            found.append(Shift(share, first, second, slower))
    return tuple(found)


def _interval(histogram: Histogram, share: float, confidence: float) -> tuple[int, int] | None:
    ranks = rank_interval(histogram.count, share, confidence)
    return None if ranks is None else (histogram.at_rank(ranks[0])[0], histogram.at_rank(ranks[1])[1])


@dataclass(frozen=True, slots=True)
class Signal:
    """One aspect of a digest. ``p`` is None where no answer ever differed from itself: there is nothing to weigh."""

    aspect: str
    different: int
    judged: int
    noise: int
    repeated: int
    p: float | None
    signal: bool


def signals(tally: DigestTally, alpha: float) -> tuple[Signal, ...]:
    """Return for each aspect that was seen different whether it is more than noise.

    A statement counts as different only when both sides answered alike on every repeat. Where none of the digest's
    answers ever differed from itself, one such statement is a signal: a test has nothing to weigh it against, and a
    wrong payment happens once. Where some did, the rate must exceed that of noise by Fisher's exact test.

    Parameters
    ----------
    alpha
        The chance, for this digest and aspect, of calling noise a signal.
    """
    judged = tally.state(Judgement.SAME) + tally.state(Judgement.DIFFERENT)
    # repeats taken by chance tell the rate; without them those of differing statements, which overstate it
    repeated, noisy = (
        (tally.sampled, tally.noisy_sampled) if tally.sampled else (tally.repeated, tally.noisy)
    )  # fmt: skip
    found = []
    for aspect, count in sorted(tally.aspects.items()):
        if not count.different:
            continue
        if not noisy:
            found.append(Signal(aspect, count.different, judged, 0, repeated, None, True))
            continue
        p = fisher(count.different, max(judged, count.different), noisy, repeated)
        found.append(Signal(aspect, count.different, judged, noisy, repeated, p, p < alpha))
    return tuple(found)
