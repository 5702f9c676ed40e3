"""Texts of ``runbook readiness`` and ``runbook report --compare``, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from migverify.cli.runbook_lint import clock

if TYPE_CHECKING:
    from migverify.runbook.history.compare import Comparison, Point
    from migverify.runbook.history.past import Past
    from migverify.runbook.history.readiness import Readiness
    from migverify.runbook.history.scores import Score

__all__ = ["curve_lines", "readiness_lines", "table", "two_lines"]

_COLUMNS = 6
_REASONS = 8
_WORDS_OF_RUN = 4
_WORDS = {"ok": "ok", "missing": "MISSING", "unknown": "UNKNOWN", "not asked": "-"}


def readiness_lines(found: Readiness, past: Past, room: str) -> Iterator[str]:
    """Yield the verdict, each condition with its reasons and what to do, then the drills that were counted."""
    yield f"{found.runbook} in {found.environment}: {found.verdict.upper()}"
    weaker = [why for one in found.conditions if one.state == "weaker" for why in one.reasons]
    yield from (f"! {why}" for why in weaker)
    yield f"sha {found.sha[:12]}, drills in {room}: {len(found.drills)}"
    for run, why in found.not_counted[-_REASONS:]:
        yield f"not counted: {run} ({why})"
    yield ""
    wide = max(len(one.id) for one in found.conditions)
    for one in found.conditions:
        if one.state == "weaker":
            continue  # it was said first
        shown = "" if one.state == "not asked" else f": {one.found}"
        yield f"  {_WORDS[one.state]:<8}{one.id:<{wide}}  {one.wants}{shown}"
        for why in [why for why in one.reasons if why != one.found][:_REASONS]:
            yield f"  {'':<8}{'':<{wide}}    {why}"
        if len(one.reasons) > _REASONS:
            yield f"  {'':<8}{'':<{wide}}    and {len(one.reasons) - _REASONS} more reasons: see --json"
        if one.do and one.reasons:
            yield f"  {'':<8}{'':<{wide}}    > {one.do}"
    yield from _drills(found, past)


def _drills(found: Readiness, past: Past) -> Iterator[str]:
    from migverify.runbook.history.compare import compare_all

    runs = {one.run: one for one in past}
    if found.drills:
        yield ""
        yield from table(_curve(compare_all(runs[id_] for id_ in found.drills).points), _WORDS_OF_RUN)


def curve_lines(found: Comparison) -> Iterator[str]:
    """Yield the table of runs, the table of steps over them, and the risk."""
    yield f"{found.runbook}: {len(found.points)} runs"
    yield ""
    yield from table(_curve(found.points), _WORDS_OF_RUN)
    yield ""
    shown = found.points[-_COLUMNS:]
    if len(shown) < len(found.points):
        yield f"steps, the last {len(shown)} of {len(found.points)} runs (p50 and p90 are of all):"
    first = len(found.points) - len(shown) + 1
    heads = [_day(number, one) for number, one in enumerate(shown, start=first)]
    rows = [["step", "plan", *heads, "p50", "p90", "p90-plan", ""]]
    for one in found.steps:
        cells = [_cell(*pair) for pair in zip(one.seconds, one.states, strict=True)][-len(shown) :]
        marks = [f"{one.failures} failures"] if one.failures else []
        marks += ["redefined"] if one.redefined else []
        rows.append([
            one.step, _clock(one.plan), *cells, _clock(one.p50), _clock(one.p90), _signed(one.over), ", ".join(marks)
        ])  # fmt: skip
    yield from table(rows)
    yield from _risk(found)


def two_lines(found: Comparison) -> Iterator[str]:
    """Yield one run against another: totals, each step with its change, and the risk."""
    first, second = found.points
    yield f"{found.runbook}: {second.run} against {first.run}"
    yield ""
    yield from table(_curve(found.points), _WORDS_OF_RUN)
    yield ""
    rows = [["step", "plan", _day(1, first), _day(2, second), "change", ""]]
    for one in found.steps:
        notes = ["redefined"] if one.redefined else []
        rows.append([
            one.step, _clock(one.plan), *map(_cell, one.seconds, one.states), _signed(one.change), ", ".join(notes),
        ])  # fmt: skip
    yield from table(rows)
    yield from _risk(found)


def _day(number: int, point: Point) -> str:
    return f"#{number} {datetime.fromtimestamp(point.started, UTC):%m-%d %H:%M}"


def _curve(points: Iterable[Point]) -> list[list[str]]:
    head = [
        "run", "kind", "environment", "state", "total", "held", "late", "failed", "holds", "retries", "lost", "process",
        "correct", "clean",
    ]  # fmt: skip
    return [head, *([f"#{number} {cells[0]}", *cells[1:]] for number, cells in enumerate(map(_row, points), start=1))]


def _row(one: Point) -> list[str]:
    return [
        one.run, one.kind + (" (autopilot)" if one.autopilot else ""), one.environment, one.state,
        clock(one.seconds), clock(one.held), str(one.late), str(one.failures), str(one.holds), str(one.retries),
        str(one.undelivered), _points(one.process), _points(one.correctness), "clean" if one.clean else "no",
    ]  # fmt: skip


def _points(score: Score) -> str:
    return "-" if score.points is None else str(score.points)


def _cell(seconds: float | None, state: str) -> str:
    return state if seconds is None else clock(seconds)


def _clock(seconds: float | None) -> str:
    return "-" if seconds is None else clock(seconds)


def _signed(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{'-' if seconds < 0 else '+'}{clock(abs(seconds))}" if round(seconds) else "0:00"


def table(rows: list[list[str]], words: int = 1) -> Iterator[str]:
    """Yield rows whose first columns, and the last, are words; the others are numbers."""
    wide = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(wide[n]) if n < words else cell.rjust(wide[n]) for n, cell in enumerate(row[:-1])]
        yield "  " + "  ".join([*cells, row[-1]]).rstrip()


def _risk(found: Comparison) -> Iterator[str]:
    steps = {one.step: one for one in found.steps}
    yield ""
    if found.slowest:
        one = steps[found.slowest]
        than = "its plan" if one.plan is not None else "its median"
        yield f"risk in time: {one.step}, {_signed(one.over)} against {than} at p90"
    if found.weakest:
        one = steps[found.weakest]
        yield f"risk of failure: {one.step}, {one.failures} bad ends in {len(found.points)} runs"
    if not found.slowest and not found.weakest:
        yield "no step exceeded its plan at p90, and none failed"
