"""The forecast of a replay as a section, test cases, metrics and JSON."""

from __future__ import annotations

from collections.abc import Iterator

from migverify.exposition import Metric, number
from migverify.figures import amount, duration
from migverify.model import Verdict
from migverify.report.forecast_chart import load_chart
from migverify.report.model import Block, Chart, Fact, FactList, Lines, Row, Section, Table, TableCell, TableColumn
from migverify.workload.forecast.model import (
    LevelAtLoad,
    LevelForecast,
    LevelState,
    LoadForecast,
    LoadLimit,
    MeasuredLoad,
    Parallelism,
)

STATE_VERDICTS = {
    LevelState.MET: Verdict.MATCH, LevelState.MISSED: Verdict.MISMATCH, LevelState.NOT_KNOWN: Verdict.INCONCLUSIVE,
}  # fmt: skip
_POINTS_NOTE = "Points are measured, with their 95 % intervals. Dashed: the limit."
_BAND_NOTE = (
    "The band is a forecast, and no verdict rests on it: what a queueing model expects, by the bounds of how many"
    " statements the target works on at once."
)
_LOADS_NOTE = (
    "Under way: statements on the target at once, on average. Held back: how long the replay itself kept calls waiting."
)
_USE_COLUMNS = (
    TableColumn("Statement"), TableColumn("Busy time", number=True), TableColumn("Calls/s", number=True),
    TableColumn("Peak calls/s", number=True), TableColumn("Mean", number=True), TableColumn("Calls", number=True),
)  # fmt: skip
_LOAD_COLUMNS = (
    TableColumn("Load"), TableColumn("Calls", number=True), TableColumn("Calls/s", number=True),
    TableColumn("Under way", number=True), TableColumn("Held back, p99", number=True), TableColumn("Problem"),
)  # fmt: skip


def forecast_section(forecast: LoadForecast | None) -> Section | None:
    """Return what is known of the load; None where the run has no forecast."""
    if forecast is None:
        return None
    blocks: list[Block] = [Lines(forecast.reasons, "not known", style="reasons"), FactList(tuple(_facts(forecast)))]
    if len(forecast.loads) > 1 or forecast.loads[0].problems:
        rows = tuple(map(_load_row, forecast.loads))
        blocks.append(Table(_LOAD_COLUMNS, rows, "Loads that were measured on the target", _LOADS_NOTE, named=0))
    rows = tuple(
        (TableCell(use.text or use.digest, code=True), percent(use.share), f"{use.rate:,.3g}", f"{use.peak:,.3g}",
         seconds_text(use.mean), f"{use.calls:,}")
        for use in forecast.uses
    )  # fmt: skip
    blocks.append(Table(_USE_COLUMNS, rows, "Statements that use the most of the target", style="digests", named=0))
    for level in forecast.levels:
        blocks += _level(level)
    if not forecast.levels:
        blocks.append(Lines(("No service level was named: --slo NAME judges the load by one.",), style="note"))
    return Section("Load", tuple(blocks), id="load")


def percent(value: float) -> str:
    """Return a share as percent with two or three digits."""
    return f"{value * 100:.3g} %"


def seconds_text(value: float | None) -> str:
    """Return seconds as milliseconds below one second; ``-`` for None."""
    if value is None:
        return "-"
    return f"{value * 1000:,.3g} ms" if value < 1 else f"{value:,.3g} s"


def interval_text(low: float | None, high: float | None) -> str:
    """Return an interval; a side that is not bounded says so."""
    if low is None and high is None:
        return "not bounded"
    if low is None:
        return f"up to {seconds_text(high)}"
    return f"{seconds_text(low)} or more" if high is None else f"{seconds_text(low)} to {seconds_text(high)}"


def _facts(forecast: LoadForecast) -> Iterator[Fact]:
    yield Fact("captured load", f"{forecast.rate:,.3g} calls/s in {duration(forecast.seconds)},"
                                f" {forecast.peak:,.3g}/s in the busiest {duration(forecast.stretch)}")  # fmt: skip
    if forecast.parallelism is not None:
        yield Fact("target works at once on", _parallelism(forecast.parallelism))
    if forecast.utilization is not None and forecast.peak_utilization is not None:
        peak = f"in the busiest {duration(forecast.stretch)} {_between(forecast.peak_utilization)}"
        yield Fact("forecast of utilization", f"{_between(forecast.utilization)}; {peak}")


def _parallelism(servers: Parallelism) -> str:
    least, most = servers.least, servers.most
    if servers.given:
        return f"{amount(least, 'statement')} (configured)"
    if most is None:
        return f"{amount(least, 'statement')} at least (measured; it was never busy enough to see how many more)"
    if most == least:
        return f"{amount(least, 'statement')} (measured)"
    return f"{least:,} to {amount(most, 'statement')} (measured)"


def _between(bounds: tuple[float, float]) -> str:
    low, high = bounds
    if low <= 0:
        return f"up to {percent(high)}"
    return percent(low) if high - low < 0.005 else f"{percent(low)} to {percent(high)}"


def _load_row(load: MeasuredLoad) -> Row:
    name = "-" if load.multiple is None else f"{load.multiple:g}x"
    return (
        name, f"{load.calls:,}", f"{load.rate:,.3g}", f"{load.busy:.2f}", seconds_text(load.own),
        "; ".join(load.problems) or "-",
    )  # fmt: skip


def _level(level: LevelForecast) -> Iterator[Block]:
    name = f"p{level.quantile * 100:g}"
    of = f" of statements {level.statements}" if level.statements else ""
    yield Lines(tuple(level_lines(level)), f"service level {level.name}: {name}{of} below {level.seconds:g} s")
    columns = (
        TableColumn("Load"), TableColumn("Calls", number=True), TableColumn(name, number=True),
        TableColumn("95 % interval", number=True), TableColumn("State"), TableColumn("Forecast", number=True),
    )  # fmt: skip
    points = {point.multiple: point for point in level.curve}
    rows = tuple(
        (f"{point.multiple:g}x", f"{point.calls:,}", seconds_text(point.value), interval_text(point.low, point.high),
         _state(point), interval_text(points[point.multiple].low, points[point.multiple].high) if points else "-")
        for point in level.measured
    )  # fmt: skip
    yield Table(columns, rows, named=0)
    drawing = load_chart(level)
    if drawing:
        yield Chart(drawing, note=f"{_POINTS_NOTE} {_BAND_NOTE}" if level.curve else _POINTS_NOTE)


def _state(point: LevelAtLoad) -> TableCell:
    return TableCell(point.state.value, STATE_VERDICTS[point.state].value.lower(), notes=point.reasons)


def level_lines(level: LevelForecast) -> Iterator[str]:
    """Yield what is known of a level, the captured load first."""
    yield f"at the captured load: {level.captured.value}"
    if level.headroom is not None and level.at_headroom is not None:
        yield f"at {level.headroom:g}x the captured load: {level.at_headroom.value}"
    yield limit_text(level.limit)
    yield from level.reasons


def limit_text(limit: LoadLimit) -> str:
    """Return at which load the level stops being met, in one sentence."""
    low = "" if limit.earliest is None else _multiple(limit.earliest, measured=limit.earliest_measured)
    high = "" if limit.latest is None else _multiple(limit.latest, measured=limit.latest_measured)
    if low and high:
        return f"the level stops being met between {low} and {high} of the captured load"
    if low:
        return f"the level is met up to {low} of the captured load; how much more the target carries is not known"
    if high:
        return f"the level is missed at {high} of the captured load and beyond"
    return "at which load the level stops being met is not known"


def _multiple(value: float, *, measured: bool) -> str:
    return f"{value:.3g}x ({'measured' if measured else 'forecast'})"


def forecast_metrics(forecast: LoadForecast | None) -> Iterator[Metric]:
    """Yield the metrics of a forecast; none where the run has none."""
    if forecast is None:
        return
    yield Metric("migverify_replay_load_limit", "Multiple of the captured load: earliest is met, latest is missed.", [
        ({"level": level.name, "bound": bound, "by": "measurement" if measured else "forecast"}, number(value))
        for level in forecast.levels
        for bound, value, measured in (
            ("earliest", level.limit.earliest, level.limit.earliest_measured),
            ("latest", level.limit.latest, level.limit.latest_measured),
        )
    ])  # fmt: skip
    yield Metric("migverify_replay_digest_busy_share", "Share of the target's busy time, of the top digests.", [
        ({"digest": use.digest}, number(use.share)) for use in forecast.uses
    ])  # fmt: skip
