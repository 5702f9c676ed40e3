"""Charts as inline SVG, drawn here so that the page needs no script and no library for them.

Colors come from the classes of the page's style sheet; every figure is also text beside its chart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup

from migverify.report.coverage import ChunkTimeline, ReadTimes

_WIDTH, _HEIGHT = 800, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 40
TIMELINE_LEGEND = Markup(
    '<svg viewBox="0 0 10 10" aria-hidden="true"><circle class="source" cx="5" cy="5" r="4"/></svg> source '
    '<svg viewBox="0 0 10 10" aria-hidden="true"><path class="target" d="M1 9h8l-4 -8z"/></svg> target'
)


def bar(value: float, most: float, kind: str) -> Markup:
    """Return a horizontal bar, as long as ``value`` is to ``most``; ``kind`` is a class of the style sheet."""
    share = 0.0 if most <= 0 or not math.isfinite(value) else min(1.0, max(0.0, value / most))
    return Markup(
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="10"/>'
        '<rect class="fill {kind}" width="{width}" height="10"/></svg>'
    ).format(kind=kind, width=f"{max(share * 100, 0.5 if value > 0 else 0):.2f}")


def timeline(line: ChunkTimeline) -> Markup:
    """Return the chunks as points: start of the read across, its seconds upward, a mark per side."""
    points = line.points
    most_x = _step(max((p.at for p in points), default=0.0))
    slowest = max((max(p.source, p.target) for p in points), default=0.0)
    most_y = _step(slowest)
    title = (
        f"Read seconds of {line.chunks:,} chunks over the time of the run, source and target; "
        f"the slowest read took {slowest:.2f} s."
    )
    parts = [*_axes(most_x, most_y), *_points(points, most_x, most_y)]
    return Markup(
        '<svg class="timeline" viewBox="0 0 {w} {h}" role="img" aria-label="{title}">'
        "<title>{title}</title>{parts}</svg>"
    ).format(w=_WIDTH, h=_HEIGHT, title=title, parts=Markup("").join(parts))


def _step(most: float) -> float:
    """Return the end of an axis: the next round number in its power of ten."""
    if most <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(power * m for m in (1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10) if power * m >= most)


def _x(value: float, most: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * value / most


def _y(value: float, most: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / most


def _axes(most_x: float, most_y: float) -> Iterator[Markup]:
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        y, x = _y(part, 1), _x(part, 1)
        yield Markup('<line class="grid" x1="{}" x2="{}" y1="{y:.1f}" y2="{y:.1f}"/>').format(
            _LEFT, _WIDTH - _RIGHT, y=y
        )
        yield Markup('<text x="{}" y="{:.1f}" text-anchor="end">{}</text>').format(
            _LEFT - 6, y + 4, f"{most_y * part:.4g}"
        )
        anchor = "end" if part > 0.99 else "middle"
        yield Markup('<text x="{:.1f}" y="{}" text-anchor="{}">{}</text>').format(
            x, _HEIGHT - _BOTTOM + 16, anchor, f"{most_x * part:.4g}"
        )
    yield Markup('<text x="{}" y="{}" text-anchor="middle">seconds since the run started</text>').format(
        (_LEFT + _WIDTH) // 2, _HEIGHT - 6
    )
    yield Markup('<text transform="translate(12 {}) rotate(-90)" text-anchor="middle">read seconds</text>').format(
        (_TOP + _HEIGHT - _BOTTOM) // 2
    )


def _points(points: Sequence[ReadTimes], most_x: float, most_y: float) -> Iterator[Markup]:
    # Two shapes as well as two colors: the sides must be distinguishable in print and without color vision.
    for point in points:
        x, y = _x(point.at, most_x), _y(point.source, most_y)
        yield Markup('<circle class="source" cx="{:.1f}" cy="{:.1f}" r="3.2"/>').format(x, y)
    for point in points:
        x, y = _x(point.at, most_x), _y(point.target, most_y)
        yield Markup('<path class="target" d="M{:.1f} {:.1f}h6l-3 -6z"/>').format(x - 3, y + 3)
