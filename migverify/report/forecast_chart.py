"""A service level over the load, as inline SVG: measured points, the band of the forecast, and the limit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from migverify.workload.forecast.model import LevelForecast

_WIDTH, _HEIGHT = 800, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 14, 42
_POWERS = ((-6, "1 µs"), (-5, "10 µs"), (-4, "0.1 ms"), (-3, "1 ms"), (-2, "10 ms"), (-1, "0.1 s"), (0, "1 s"),
           (1, "10 s"), (2, "100 s"), (3, "1000 s"), (4, "10000 s"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Scale:
    """Loads across from 0, seconds upward by their logarithms."""

    most: float
    low: float
    high: float

    def x(self, multiple: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * multiple / self.most

    def y(self, seconds: float | None) -> float:
        """Return the height of so many seconds; None is beyond the top."""
        if seconds is None:
            return _TOP
        part = (math.log10(max(seconds, 1e-9)) - self.low) / (self.high - self.low)
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * min(1.0, max(0.0, part))


def load_chart(level: LevelForecast) -> Markup:
    """Return the chart; nothing where nothing was measured."""
    points = [point for point in level.measured if point.value]
    if not points:
        return Markup("")
    scale = _scale(level)
    name = f"p{level.quantile * 100:g}"
    title = f"{name} over the load, limit {level.seconds:g} s: " + "; ".join(
        f"{point.multiple:g}x {point.value:.3g} s {point.state.value}" for point in points
    )
    parts = Markup("").join((*_axes(scale, name), *_band(level, scale), *_limit(level, scale), *_points(level, scale)))
    return Markup(
        '<svg class="load" viewBox="0 0 {w} {h}" role="img" aria-label="{title}"><title>{title}</title>{parts}</svg>'
    ).format(w=_WIDTH, h=_HEIGHT, title=title, parts=parts)


def _scale(level: LevelForecast) -> _Scale:
    loads = [1.5, 1.25 * (level.headroom or 1.0), *(1.25 * point.multiple for point in level.measured)]
    loads += [1.25 * bound for bound in (level.limit.earliest, level.limit.latest) if bound is not None]
    values = [value for point in level.measured for value in (point.low, point.value, point.high) if value]
    values += [level.seconds * 2, level.seconds / 2]
    values += [point.low for point in level.curve if point.low and point.multiple <= max(loads)]
    low, high = math.log10(min(values)), math.log10(max(values))
    return _Scale(min(10.0, max(loads)), math.floor(low * 2) / 2, math.ceil(high * 2) / 2)


def _axes(scale: _Scale, name: str) -> Iterator[Markup]:
    for power, words in _POWERS:
        if scale.low - 1e-9 <= power <= scale.high + 1e-9:
            y = scale.y(10.0**power)
            yield _line("grid", _LEFT, y, _WIDTH - _RIGHT, y)
            yield _text(_LEFT - 6, y + 4, words, "end")
    step = 0.25 if scale.most <= 2 else 0.5 if scale.most <= 4 else 1.0
    for number in range(int(scale.most / step) + 1):
        x = scale.x(number * step)
        yield _line("grid", x, _TOP, x, _HEIGHT - _BOTTOM)
        yield _text(x, _HEIGHT - _BOTTOM + 16, f"{number * step:g}x", "end" if x > _WIDTH - 30 else "middle")
    yield _text((_LEFT + _WIDTH) / 2, _HEIGHT - 6, f"{name} by multiple of the captured load", "middle")


def _band(level: LevelForecast, scale: _Scale) -> Iterator[Markup]:
    points = [point for point in level.curve if point.multiple <= scale.most]
    if len(points) < 2:
        return
    upper = [f"{scale.x(point.multiple):.1f},{scale.y(point.high):.1f}" for point in points]
    lower = [f"{scale.x(point.multiple):.1f},{scale.y(point.low):.1f}" for point in reversed(points)]
    yield Markup('<polygon class="band" points="{}"/>').format(" ".join((*upper, *lower)))


def _limit(level: LevelForecast, scale: _Scale) -> Iterator[Markup]:
    y = scale.y(level.seconds)
    yield _line("limit", _LEFT, y, _WIDTH - _RIGHT, y)
    yield _text(_WIDTH - _RIGHT - 4, y - 6, f"limit {level.seconds:g} s", "end")
    if level.headroom is not None:
        x = scale.x(level.headroom)
        yield _line("limit", x, _TOP, x, _HEIGHT - _BOTTOM)
        yield _text(x + 5, _HEIGHT - _BOTTOM - 8, f"headroom {level.headroom:g}x", "start")


def _points(level: LevelForecast, scale: _Scale) -> Iterator[Markup]:
    for point in level.measured:
        if not point.value:
            continue
        x = scale.x(point.multiple)
        yield _line("interval", x, scale.y(point.high), x, scale.y(point.low or 1e-9))
        shape = Markup('<circle class="measured" cx="{:.1f}" cy="{:.1f}" r="4.5"/>')
        yield shape.format(x, scale.y(point.value))


def _line(kind: str, x: float, y: float, to_x: float, to_y: float) -> Markup:
    form = Markup('<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>')
    return form.format(kind, x, y, to_x, to_y)


def _text(x: float, y: float, words: str, anchor: str) -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(x, y, anchor, words)
