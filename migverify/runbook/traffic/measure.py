"""What was measured since a change, of each instance, and what it says of the share, the errors, the times, the keys.

A measurement counts the requests that were served under the generations that the instances serve now; what old workers
end after a reload has the generation before, and is counted apart.

A measured share has an interval in which the true one lies (Wilson's, which holds for few requests and for shares near
0 and 100 % as well). It passes when all of it is within the tolerance around the share that was requested, and fails
when none of it is. Between the two, more requests are needed, and nobody says "good" before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from migverify.errors import TrafficError, UsageError
from migverify.runbook.traffic.change import look
from migverify.runbook.traffic.document import Traffic
from migverify.runbook.traffic.model import FULL, Driver, Setting, percent
from migverify.runbook.traffic.tally import KeySample, TrafficTally, merged

__all__ = [
    "TrafficMeasurement", "default_tolerance", "judge_errors", "judge_instances", "judge_p99", "judge_share", "measure",
    "stickiness", "wilson", "worst_of",
]  # fmt: skip

CONFIDENCE = 99.0
"""Percent."""
MIN_SAMPLE = 100
"""Keys or requests below which nothing is said, at any interval."""
_DAMAGED = 0.001
"""Of all lines; above it a log is not trusted."""
_BEFORE = 5.0
"""Seconds before a change from which its log is read: clocks of the writer and of nginx need not agree."""
MIN_REPEATED = 20
"""Keys that came more than once: with fewer, nothing is said about whether they stay on a side."""


Judgement = tuple[str, str]
"""``pass``, ``fail`` or ``inconclusive``, and why."""


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
    """Compare a measured share with the one that was requested.

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
    low, high = (100 * one for one in wilson(new, total, confidence))
    said = f"{new} of {total}" + (f" = {100 * new / total:.2f} % [{low:.2f}, {high:.2f}]" if total else "")
    ask = f"asked {percent(asked)} %"

    def judged(state: str, text: str) -> Judgement:
        return state, f"{ask}, measured {said}{text}"

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


@dataclass(frozen=True, slots=True)
class TrafficMeasurement:
    """What was counted, by instance: under the setting that it serves, and under the one before."""

    settings: Mapping[str, Setting]
    now: Mapping[str, TrafficTally]
    before: Mapping[str, TrafficTally]

    @property
    def total(self) -> TrafficTally:
        """Of all instances."""
        return merged(self.now.values())

    @property
    def share(self) -> int:
        """What all instances serve."""
        return next(iter(self.settings.values())).share

    def as_json(self) -> dict[str, Any]:
        """Return the counts as evidence: no key, no address."""
        return {
            name: {
                "generation": self.settings[name].generation, "old": tally.old.requests, "new": tally.new.requests,
                "errors": {"old": tally.old.errors, "new": tally.new.errors}, "keyless": tally.keyless,
                "keys": None if tally.keys is None else len(tally.keys.keys), "unforeseen": tally.unforeseen,
                "astray": tally.astray, "damaged": tally.damaged, "lost": tally.lost,
            }
            for name, tally in self.now.items()
        }  # fmt: skip


def measure(driver: Driver) -> TrafficMeasurement:
    """Count the requests since the change.

    Raises
    ------
    TrafficError
        the instances do not serve one share, or something of the measurement is missing or damaged.
    """
    state = look(driver)
    if not state.settings:
        raise TrafficError(state.why)
    now: dict[str, TrafficTally] = {}
    before: dict[str, TrafficTally] = {}
    for name, setting in state.settings.items():
        generations = [one for one in (setting.generation, setting.previous) if one]
        found = driver.measure(name, generations, setting.at - _BEFORE)
        now[name] = found.get(setting.generation, TrafficTally())
        before[name] = found.get(setting.previous, TrafficTally()) if setting.previous else TrafficTally()
        _trusted(name, now[name])
    return TrafficMeasurement(state.settings, now, before)


def _trusted(name: str, tally: TrafficTally) -> None:
    if tally.lost:
        raise TrafficError(f"{name}: not everything is counted: {tally.lost}")
    if tally.damaged > _DAMAGED * (tally.lines + tally.damaged):
        raise TrafficError(f"{name}: {tally.damaged} lines of the log cannot be read, {tally.lines} can")


def judge_instances(asked: int, measured: TrafficMeasurement, traffic: Traffic, *, sticky: bool) -> Judgement:
    """Compare the share of every instance, and of all, with the one that was requested; fail over inconclusive."""
    if measured.share != asked:
        return "fail", f"asked {percent(asked)} %, the instances are set to {percent(measured.share)} %"
    found: dict[str, Judgement] = {}
    for name, tally in measured.now.items():
        found[name] = _judged(asked, tally, traffic, sticky=sticky)
        if tally.astray:
            found[name] = "fail", f"{tally.astray} requests reached a server of another side than the split decided"
    total = measured.total
    if len(found) > 1:
        found["all"] = _judged(asked, total, traffic, sticky=sticky)
    worst, text = worst_of({name: (state, f"{name}: {why}") for name, (state, why) in found.items()}.values())
    if total.requests:
        text += f"; {100 * total.new.requests / total.requests:.2f} % of {total.requests} requests went to the new side"
    return worst, text


def worst_of(found: Iterable[Judgement]) -> Judgement:
    """Return fail over inconclusive over pass, with what is said of the worst."""
    some = list(found)
    worst = next((state for state in ("fail", "inconclusive") if any(one == state for one, _ in some)), "pass")
    return worst, "; ".join(text for state, text in some if state == worst)


def _judged(asked: int, tally: TrafficTally, traffic: Traffic, *, sticky: bool) -> Judgement:
    options: dict[str, Any] = {
        "tolerance": traffic.tolerance, "confidence": traffic.confidence, "minimum": traffic.min_sample,
    }  # fmt: skip
    # All requests of a key go one way together, so keys are the sample; but where nothing may be, one request counts.
    if asked in (0, FULL) or not sticky or tally.keys is None:
        return judge_share(asked, tally.new.requests, tally.requests, **options)
    return judge_share(asked, tally.keys.on_new(), len(tally.keys.keys), **options)


def judge_errors(measured: TrafficMeasurement, most: float, minimum: int) -> Judgement:
    """Compare the share of failed requests of the new side with a limit in percent."""
    total = measured.total
    one = total.new
    if "errors" in total.unmeasured:
        return "inconclusive", "this driver does not count errors"
    if one.requests < minimum:
        return "inconclusive", f"{one.requests} requests on the new side, fewer than {minimum}"
    share = 100 * one.errors / one.requests
    text = f"{one.errors} of {one.requests} requests of the new side failed = {share:.3f} %"
    return ("fail", f"{text}, above {most:g} %") if share > most else ("pass", text)


def judge_p99(measured: TrafficMeasurement, most: float, minimum: int) -> Judgement:
    """Compare the 99th percentile of the times of the new side with a limit in ms."""
    total, need = measured.total, max(minimum, 100)
    times = total.new.times
    if "latency" in total.unmeasured:
        return "inconclusive", "this driver does not count times"
    if times.count < need:
        return "inconclusive", f"{times.count} requests on the new side, fewer than {need}"
    found = times.quantile(99.0) or 0.0
    text = f"p99 of the new side is {found:g} ms ({times.count} requests)"
    return ("fail", f"{text}, above {most:g} ms") if found > most else ("pass", text)


def stickiness(measured: TrafficMeasurement, *, writes: bool, predicts: bool) -> Judgement:
    """Tell whether every key had one side, over all instances, and none moved back by the last change."""
    total = measured.total
    if total.keys is None:
        return "inconclusive", "this driver does not tell of keys"
    both = sum(one.old > 0 and one.new > 0 for one in total.keys.keys.values())
    repeated = sum(one.old + one.new > 1 for one in total.keys.keys.values())
    back, at_once = _moved(measured, total.keys)
    faults = [
        (both, "key was", "keys were", "on both sides at one share"),
        (total.unforeseen, "request", "requests", "went elsewhere than the hash of their key says"),
        (back, "key", "keys", "moved against the change"),
        (at_once if writes else 0, "key", "keys", "had writes under way on both sides at once while the share changed"),
        (total.keyless if writes else 0, "write", "writes", "had no key"),
    ]
    problems = [f"{count} {one if count == 1 else many} {what}" for count, one, many, what in faults if count]
    if problems:
        return "fail", "; ".join(problems)
    keys = len(total.keys.keys)
    said = f"{keys} {'key' if keys == 1 else 'keys'}, {repeated} of them more than once, each on one side"
    if repeated < MIN_REPEATED:
        return "inconclusive", f"{said}: fewer than {MIN_REPEATED} came again"
    hashed = ", all where their hash says" if predicts else ""
    return "pass", f"{said}{hashed}; {at_once} with requests on both sides at once during the change"


def _moved(measured: TrafficMeasurement, now: KeySample) -> tuple[int, int]:
    """Count keys that moved against the change, and those that had a request on each side at one time.

    Each instance has its own change: one that was put back has none, while another still serves its last one.
    """
    back: set[int] = set()
    at_once: set[int] = set()
    for name, setting in measured.settings.items():
        was = measured.before[name].keys
        for mark, earlier in (was.keys if was is not None else {}).items():
            seen = now.keys.get(mark)
            if seen is None:
                continue
            to_old, to_new = earlier.new > 0 and seen.old > 0, earlier.old > 0 and seen.new > 0
            if (to_old and setting.share >= setting.was) or (to_new and setting.share <= setting.was):
                back.add(mark)
            # A request that the old workers still end, while a new worker begins one of the same key on the other side.
            if (to_new and earlier.old_end > seen.new_begin) or (to_old and earlier.new_end > seen.old_begin):
                at_once.add(mark)
    return len(back), len(at_once)
