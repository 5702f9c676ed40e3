"""Latencies of a replay: quantiles of both sides with their intervals, and what is slower for certain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from migverify.figures import amount
from migverify.report.model import Block, Chart, Fact, FactList, Lines, Table, TableCell, TableColumn
from migverify.report.plans import plan_in_words
from migverify.report.replay import ReplayFacts
from migverify.report.replay_chart import histogram
from migverify.workload.replay.latency import Histogram
from migverify.workload.replay.slo import CONFIDENCE
from migverify.workload.replay.statistics import QUANTILES, QuantileEstimate, quantile_estimate
from migverify.workload.replay.tally import DigestTally

WHOLE_QUANTILES = (0.5, 0.95, 0.99, 0.999)
_SLOWER = 50
_TIMED, _TEXT_TIMED = 100, 20
_MEASURES = (
    ("source", "source"), ("source", "source_service"), ("target", "target"), ("target", "target_service"),
)  # fmt: skip
"""Sides, and the names of their latencies in a tally."""


def milliseconds(value: int | None) -> str:
    """Return microseconds as text in milliseconds; ``-`` for None."""
    return "-" if value is None else f"{value / 1000:,.1f} ms"


def quantiles(found: Histogram) -> str:
    """Return quantiles in one line."""
    parts = [f"p{100 * q:g} {milliseconds(found.quantile(q))}" for q in WHOLE_QUANTILES]
    return ", ".join([*parts, f"most {milliseconds(found.most)}"])


def latency_lines(tally: DigestTally) -> Iterator[str]:
    """Yield the quantiles of both sides with their intervals: from when a call was due, and from when it was sent."""
    for side, name in _MEASURES:
        estimates = [quantile_estimate(tally.latencies[name], share, CONFIDENCE) for share in QUANTILES]
        if all(estimates):
            parts = [
                f"p{share * 100:g} {milliseconds(one.value)} ({_interval(one)})"
                for share, one in zip(QUANTILES, estimates, strict=True) if one is not None
            ]  # fmt: skip
            what = "latency" if name == side else "service time"
            yield f"{what} on the {side}: {', '.join(parts)}"


def latency_blocks(data: ReplayFacts) -> Iterator[Block]:
    """Yield the chart, the quantiles, what is slower for certain, and the quantiles of digests."""
    drawing = histogram(data.latencies, "Latency of all statements")
    note = (
        "Source above, target below; from the intended start, so waiting behind a slow statement counts. Dashed: the"
        " median. Heights are square roots of shares."
    )
    yield Chart(drawing, note=note) if drawing else Lines(("No statement was timed.",), style="note")
    sides = [Fact(side, quantiles(found)) for side, found in data.latencies.items() if found.count]
    sides += [Fact(f"service time, {side}", quantiles(found)) for side, found in data.services.items() if found.count]
    sides += [Fact("behind the pace", quantiles(data.lag))] if data.lag.count else []
    sides += [Fact("waited for", wait) for wait in data.waits]
    yield FactList(tuple(sides))
    slower = [one for one in data.digests if one.shifts]
    slower.sort(key=lambda one: -max(int(shift["slower_by_at_least"]) for shift in one.shifts))
    lines = tuple(
        f"{'; '.join(map(_shift, one.shifts))}: {one.text}"
        + ("" if one.plans is None else f"; plan: {plan_in_words(one.plans)}")
        for one in slower[:_SLOWER]
    )
    more = (f"{len(slower) - _SLOWER:,} more",) if len(slower) > _SLOWER else ()
    none = ("None, by intervals that do not touch and a lower limit.",)
    if data.plans_unknown:
        yield Lines((f"plans were not asked: {data.plans_unknown}",))
    yield Lines((*lines, *more) or none, f"slower on the target for certain: {amount(len(slower), 'digest')}")
    yield _latency_table(data)


def _latency_table(data: ReplayFacts) -> Table:
    """Return quantiles of the digests that kept the target busy the longest, each side below the other."""
    timed = [one for one in data.digests if one.tally.latencies["target"].count]
    timed.sort(key=lambda one: -one.tally.latencies["target_service"].total)
    columns = (
        TableColumn("Statement"), TableColumn("Side"), TableColumn("Calls", number=True),
        *(TableColumn(f"{prefix}p{share * 100:g}", number=True) for prefix in ("", "service ") for share in QUANTILES),
    )  # fmt: skip
    rows = tuple(
        (TableCell(one.text, code=True) if side == "source" or not one.tally.latencies["source"].count else "", side,
         f"{one.tally.latencies[side].count:,}",
         *(_quantile_cell(one.tally, name, share) for name in (side, f"{side}_service") for share in QUANTILES))
        for one in timed[:_TIMED] for side in ("source", "target") if one.tally.latencies[side].count
    )  # fmt: skip
    note = (
        f"Of {amount(len(timed), 'digest')}, those that kept the target busy the longest; each with its 95 % interval."
        " Latency counts from when a statement was due, service time from when it was sent."
    )
    return Table(columns, rows, "Latency of digests", note, style="digests", named=0, text_rows=_TEXT_TIMED)


def _quantile_cell(tally: DigestTally, side: str, share: float) -> TableCell:
    estimate = quantile_estimate(tally.latencies[side], share, CONFIDENCE)
    return TableCell("-") if estimate is None else TableCell(milliseconds(estimate.value), notes=(_interval(estimate),))


def _interval(estimate: QuantileEstimate) -> str:
    """Return the interval of a quantile; an end that too few calls bound is left open."""
    if estimate.low is None and estimate.high is None:
        return "not bounded: too few calls"
    if estimate.low is None or estimate.high is None:
        side, value = ("below", estimate.high) if estimate.low is None else ("from", estimate.low)
        return f"{side} {milliseconds(value)}"
    return f"{milliseconds(estimate.low)} to {milliseconds(estimate.high)}"


def slower_lines(shifts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield at which quantiles the target is slower for certain."""
    yield from (f"slower for certain at {_shift(shift)}" for shift in shifts)


def _shift(shift: Mapping[str, Any]) -> str:
    return (
        f"p{100 * shift['quantile']:g} by {milliseconds(shift['slower_by_at_least'])} at least: source"
        f" {milliseconds(shift['source'][1])}, target {milliseconds(shift['target'][0])}"
    )


def quantile_estimates(tally: DigestTally, suffix: str = "") -> dict[str, Any]:
    """Return the quantiles of both sides with their intervals, microseconds; ``_service``: those of service times."""
    return {
        side: {
            f"p{share * 100:g}": None
            if (one := quantile_estimate(tally.latencies[side + suffix], share, CONFIDENCE)) is None
            else one.as_json()
            for share in QUANTILES
        }
        for side in ("source", "target")
    }  # fmt: skip
