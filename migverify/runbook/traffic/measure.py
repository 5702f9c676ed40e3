"""What was measured since a change, of each instance, and what it says of the share, the errors, the times, the keys.

A measurement counts the requests that were served under the generations that the instances serve now; what old workers
end after a reload has the generation before, and is counted apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from migverify.errors import TrafficError
from migverify.runbook.traffic.change import look
from migverify.runbook.traffic.judge import Judgement, judge_share
from migverify.runbook.traffic.load import Traffic
from migverify.runbook.traffic.model import FULL, Driver, Setting, percent
from migverify.runbook.traffic.tally import KeySample, Tally, merged

__all__ = ["Measured", "errors_of", "judge_instances", "latency_of", "measure", "stickiness"]

_DAMAGED = 0.001
"""Of all lines; above it a log is not trusted."""
_BEFORE = 5.0
"""Seconds before a change from which its log is read: clocks of the writer and of nginx need not agree."""
MIN_REPEATED = 20
"""Keys that came more than once: with fewer, nothing is said about whether they stay on a side."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was counted, by instance: under the setting that it serves, and under the one before."""

    settings: Mapping[str, Setting]
    now: Mapping[str, Tally]
    before: Mapping[str, Tally]

    @property
    def total(self) -> Tally:
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


def measure(driver: Driver, *, last: float | None = None, clock: Callable[[], float] = time.time) -> Measured:
    """Count the requests since the change, or of the last seconds only.

    Raises
    ------
    TrafficError
        the instances do not serve one share, or something of the measurement is missing or damaged.
    """
    state = look(driver)
    if not state.settings:
        raise TrafficError(state.why)
    now: dict[str, Tally] = {}
    before: dict[str, Tally] = {}
    for name, setting in state.settings.items():
        since = setting.at - _BEFORE if last is None else max(setting.at - _BEFORE, clock() - last)
        wanted = [one for one in (setting.generation, setting.previous) if one]
        found = driver.measure(name, wanted, since)
        now[name] = found.get(setting.generation, Tally())
        before[name] = found.get(setting.previous, Tally()) if setting.previous else Tally()
        _trusted(name, now[name])
    return Measured(state.settings, now, before)


def _trusted(name: str, tally: Tally) -> None:
    if tally.lost:
        raise TrafficError(f"{name}: not everything is counted: {tally.lost}")
    if tally.damaged > _DAMAGED * (tally.lines + tally.damaged):
        raise TrafficError(f"{name}: {tally.damaged} lines of the log cannot be read, {tally.lines} can")


def judge_instances(asked: int, measured: Measured, traffic: Traffic, *, sticky: bool) -> tuple[str, str]:
    """Hold the share of every instance, and of all, against the one that was asked for; fail over inconclusive.

    Returns
    -------
    tuple
        pass, fail or inconclusive, and the text.
    """
    if measured.share != asked:
        return "fail", f"asked {percent(asked)} %, the instances are set to {percent(measured.share)} %"
    found: dict[str, Judgement] = {}
    for name, tally in measured.now.items():
        found[name] = _judged(asked, tally, traffic, sticky=sticky)
        if tally.astray:
            text = f"{tally.astray} requests reached a server of another side than the split decided"
            found[name] = Judgement("fail", text)
    if len(found) > 1:
        found["all"] = _judged(asked, measured.total, traffic, sticky=sticky)
    worst = next((s for s in ("fail", "inconclusive") if any(one.state == s for one in found.values())), "pass")
    told = [f"{name}: {one.text}" for name, one in found.items() if one.state == worst]
    total = measured.total
    moved = f"{100 * total.new.requests / total.requests:.2f} % of {total.requests} requests" if total.requests else ""
    return worst, "; ".join([*told, *([f"{moved} went to the new side"] if moved else [])])


def _judged(asked: int, tally: Tally, traffic: Traffic, *, sticky: bool) -> Judgement:
    options: dict[str, Any] = {
        "tolerance": traffic.tolerance, "confidence": traffic.confidence, "minimum": traffic.min_sample,
    }  # fmt: skip
    # All requests of a key go one way together, so keys are the sample; but where nothing may be, one request counts.
    if asked in (0, FULL) or not sticky or tally.keys is None:
        return judge_share(asked, tally.new.requests, tally.requests, **options)
    return judge_share(asked, tally.keys.on_new(), len(tally.keys.keys), **options)


def errors_of(measured: Measured, side: str, minimum: int) -> tuple[float | None, str]:
    """Return the share of errors of a side in percent; None below ``minimum`` requests or where nobody counts them."""
    tally = measured.total
    one = tally.side(side)
    if "errors" in tally.unmeasured:
        return None, "this driver does not count errors"
    if one.requests < minimum:
        return None, f"{one.requests} requests on the {side} side, fewer than {minimum}"
    share = 100 * one.errors / one.requests
    return share, f"{one.errors} of {one.requests} requests of the {side} side failed = {share:.3f} %"


def latency_of(measured: Measured, side: str, quantile: float, minimum: int) -> tuple[float | None, str]:
    """Return a quantile of the times of a side in ms; None below ``minimum``, or where it is the longest."""
    tally = measured.total
    times = tally.side(side).times
    need = max(minimum, round(100 / (100 - quantile)))
    if "latency" in tally.unmeasured:
        return None, "this driver does not count times"
    if times.count < need:
        return None, f"{times.count} requests on the {side} side, fewer than {need}"
    found = times.quantile(quantile)
    return found, f"p{quantile:g} of the {side} side is {found:g} ms ({times.count} requests)"


def stickiness(measured: Measured, *, writes: bool, predicts: bool) -> tuple[str, str]:
    """Tell whether every key had one side, over all instances, and none moved back by the last change.

    Returns
    -------
    tuple
        pass, fail or inconclusive, and the text.
    """
    total = measured.total
    if total.keys is None:
        return "inconclusive", "this driver does not tell of keys"
    both = sum(one.old > 0 and one.new > 0 for one in total.keys.keys.values())
    repeated = sum(one.old + one.new > 1 for one in total.keys.keys.values())
    back, at_once = _moved(measured, total.keys)
    faults = [
        (both, "keys were on both sides at one share"),
        (total.unforeseen, "requests went elsewhere than the hash of their key says"),
        (back, "keys moved against the change"),
        (at_once if writes else 0, "keys had writes under way on both sides at once while the share changed"),
        (total.keyless if writes else 0, "writes had no key"),
    ]
    told = [f"{count} {what}" for count, what in faults if count]
    if told:
        return "fail", "; ".join(told)
    said = f"{len(total.keys.keys)} keys, {repeated} of them more than once, each on one side"
    if repeated < MIN_REPEATED:
        return "inconclusive", f"{said}: fewer than {MIN_REPEATED} came again"
    hashed = ", all where their hash says" if predicts else ""
    return "pass", f"{said}{hashed}; {at_once} with requests on both sides at once during the change"


def _moved(measured: Measured, now: KeySample) -> tuple[int, int]:
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
