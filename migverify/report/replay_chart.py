"""Latency histograms as inline SVG: one logarithmic axis, the source above it, the target below."""

from __future__ import annotations

import math
from collections.abc import Mapping

from markupsafe import Markup

from migverify.workload.replay.latency import Histogram

_WIDTH, _HALF, _LEFT, _AXIS = 800, 80, 8, 22
_BINS = 100
_MARKS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
_NAMES = ("1 µs", "10 µs", "0.1 ms", "1 ms", "10 ms", "0.1 s", "1 s", "10 s", "100 s", "1000 s")


def histogram(latencies: Mapping[str, Histogram], label: str) -> Markup:
    """Return the chart; nothing where neither side was timed. Heights are square roots of shares: tails stay seen."""
    sides = {side: found for side, found in latencies.items() if found.count and side in ("source", "target")}
    if not sides:
        return Markup("")
    low = _log(min(found.least or 0 for found in sides.values()))
    high = max(_log(max(found.most or 0 for found in sides.values())), low + 1)
    bins = {side: _bins(found, low, high) for side, found in sides.items()}
    most = max(max(found) for found in bins.values())
    parts = [_ticks(low, high)]
    for side, found in bins.items():
        parts.append(_bars(found, most, side))
        parts.append(_median(sides[side], low, high, side))
    height = 2 * _HALF + _AXIS
    title = f"{label}: " + "; ".join(
        f"{side} median {(found.quantile(0.5) or 0) / 1000:,.1f} ms, p99 {(found.quantile(0.99) or 0) / 1000:,.1f} ms"
        for side, found in sides.items()
    )
    return Markup(
        '<svg class="latency" viewBox="0 0 {w} {h}" role="img" aria-label="{title}"><title>{title}</title>{parts}</svg>'
    ).format(w=_WIDTH, h=height, title=title, parts=Markup("").join(parts))


def _log(value: int) -> float:
    return math.log10(max(value, 1))


def _x(value: float, low: float, high: float) -> float:
    return _LEFT + (_WIDTH - 2 * _LEFT) * (value - low) / (high - low)


def _bins(found: Histogram, low: float, high: float) -> list[float]:
    """Return shares by bin, a bucket spread over the bins it covers."""
    out = [0.0] * _BINS
    for least, most, number in found.buckets():
        first, last = (min(_BINS - 1, max(0, int((_log(v) - low) / (high - low) * _BINS))) for v in (least, most))
        for place in range(first, last + 1):
            out[place] += number / found.count / (last - first + 1)
    return out


def _bars(shares: list[float], most: float, side: str) -> Markup:
    step = (_WIDTH - 2 * _LEFT) / _BINS
    parts = []
    for place, part in enumerate(shares):
        if not part:
            continue
        height = max(1.0, math.sqrt(part / most) * (_HALF - 6))
        y = _HALF - height if side == "source" else _HALF + _AXIS
        parts.append(Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
            side, _LEFT + place * step, y, step - 1, height,
        ))  # fmt: skip
    return Markup("").join(parts)


def _median(found: Histogram, low: float, high: float, side: str) -> Markup:
    x = _x(_log(found.quantile(0.5) or 0), low, high)
    first, last = (0, _HALF) if side == "source" else (_HALF + _AXIS, 2 * _HALF + _AXIS)
    return Markup('<line class="median" x1="{x:.1f}" x2="{x:.1f}" y1="{a}" y2="{b}"/>').format(x=x, a=first, b=last)


def _ticks(low: float, high: float) -> Markup:
    parts = []
    for value, name in zip(_MARKS, _NAMES, strict=True):
        at = math.log10(value)
        if low <= at <= high:
            x = _x(at, low, high)
            anchor = "start" if x < 30 else "end" if x > _WIDTH - 30 else "middle"
            parts.append(Markup('<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{h}"/>').format(x=x, h=_HALF))
            parts.append(
                Markup('<text x="{:.1f}" y="{}" text-anchor="{}">{}</text>').format(x, _HALF + 15, anchor, name)
            )
    return Markup("").join(parts)
