"""Tells a digest's differences from its noise: what one side alone does when it is asked again."""

from __future__ import annotations

from dataclasses import dataclass

from migverify.workload.replay.model import Judgement
from migverify.workload.replay.statistics import fisher, wilson
from migverify.workload.replay.tally import DigestTally


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

    def as_json(self) -> dict[str, object]:
        """Return the signal as a JSON object."""
        return {
            "aspect": self.aspect, "different": self.different, "judged": self.judged, "noise": self.noise,
            "repeated": self.repeated, "p": self.p, "signal": self.signal,
        }  # fmt: skip


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


def noise_rate(tally: DigestTally) -> tuple[float, float, float] | None:
    """Return the share of repeated statements in which a side differed from itself, and its 95 % interval."""
    if not tally.repeated:
        return None
    return tally.noisy / tally.repeated, *wilson(tally.noisy, tally.repeated)
