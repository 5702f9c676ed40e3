"""Questions of the guard of capacity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from migverify.figures import amount
from migverify.guards.capacity_facts import CapacityFacts, SizePoint
from migverify.guards.capacity_read import CapacityReading
from migverify.guards.capacity_speed import TimeSpan, last_replay, repair_pace, watch_pace
from migverify.guards.counters import QUERIES, READS, ROWS_READ, ROWS_WRITTEN, WRITES, Rate
from migverify.guards.model import AnswerState, CheckResult, GuardQuestion, passed, unknown, warned
from migverify.model import Flavor
from migverify.sql import server as sql
from migverify.sql import settings

DAY = 86_400.0
PAIR = "source and target"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def shown_bytes(number: float) -> str:
    """Return bytes for a reader."""
    size = abs(number)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            return (
                f"{'-' if number < 0 else ''}{size:.0f} {unit}"
                if unit == "B"
                else (f"{'-' if number < 0 else ''}{size:.1f} {unit}")
            )
        size /= 1024
    return str(number)


def shown_seconds(number: float) -> str:
    """Return a time for a reader."""
    if number < 120:
        return f"{number:.0f} s"
    return f"{number / 60:.0f} min" if number < 7200 else f"{number / 3600:.1f} h"


def _span(span: TimeSpan) -> str:
    return f"{shown_seconds(span.low)} to {shown_seconds(span.high)}"


def _spans(span: TimeSpan) -> dict[str, float]:
    return {"low_seconds": span.low, "high_seconds": span.high, **span.numbers}


# --- how much ----------------------------------------------------------------------------------------------


Each = Callable[[CapacityFacts, CapacityReading], CheckResult]
Ask = Callable[[CapacityFacts], Iterator[CheckResult]]


def of_each(
    *, sources: bool = False, query: Callable[[CapacityReading], str] = lambda _: ""
) -> Callable[[Each], Ask]:  # fmt: skip
    """Return what puts a judge of one endpoint to each, or to each source; ``query`` shows its value again."""

    def decorate(judge: Each) -> Ask:
        def ask(facts: CapacityFacts) -> Iterator[CheckResult]:
            for have in facts.sources if sources else facts.have:
                result = judge(facts, have)
                yield replace(result, subject=have.endpoint.name, query=result.query or query(have))

        ask.__doc__ = judge.__doc__
        return ask

    return decorate


def _unread(have: CapacityReading, what: str, todo: str = "") -> CheckResult:
    return unknown(f"not known: {have.why(what)}", todo)


@of_each()
def sizes(facts: CapacityFacts, have: CapacityReading) -> CheckResult:
    """Tell rows and bytes: estimates of the server, and what the last verification counted."""
    if have.sizes is None:
        return _unread(have, "sizes")
    tables = have.sizes.tables
    numbers = {
        "tables": float(len(tables)), "rows_estimated": float(have.sizes.rows), "bytes": float(have.sizes.bytes)
    }  # fmt: skip
    value = f"about {have.sizes.rows:,} rows and {shown_bytes(have.sizes.bytes)} in {amount(len(tables), 'table')}"
    value += f" ({have.sizes.how})"
    verified = facts.verified
    counted = {} if verified is None else verified.source if have.is_source else verified.target
    if verified is not None and counted and len(facts.sources) == 1:
        numbers |= {"rows_counted": float(sum(counted.values())), "tables_counted": float(len(counted))}
        value += (
            f"; counted by run {verified.run_id}: {sum(counted.values()):,} rows in {amount(len(counted), 'table')}"
        )
    return passed(value, query=have.sizes.query, numbers=numbers)


@of_each()
def growth(facts: CapacityFacts, have: CapacityReading) -> CheckResult:
    """Tell how rows and bytes grew from run to run, and what they come to."""
    if have.sizes is None or have.server_time is None:
        return _unread(have, "sizes")
    earlier = facts.history.get(have.endpoint.name, ())
    points = [*earlier, SizePoint(have.server_time, have.sizes.rows, have.sizes.bytes)]
    span = points[-1].at - min(point.at for point in points)
    if span < 3600:
        value = "not known yet: no run of an hour ago or more is in the store"
        return warned(value, "Run this command again later, or let it --watch.")
    rows, size = (slope([(p.at, pick(p)) for p in points]) * DAY for pick in (_rows, _bytes))
    later = have.sizes.bytes + size * facts.wanted.days
    value = f"{rows:+,.0f} rows and {shown_bytes(size)} a day over {shown_seconds(span)} in {len(points)} runs;"
    value += f" about {shown_bytes(max(0.0, later))} in {facts.wanted.days:g} days"
    numbers = {"rows_per_day": rows, "bytes_per_day": size, "bytes_later": later, "runs": float(len(points))}
    return passed(value, numbers=numbers)


def _rows(point: SizePoint) -> float:
    return point.rows


def _bytes(point: SizePoint) -> float:
    return point.bytes


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the line of least squares; 0 where all times are the same."""
    count = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


@of_each(query=lambda have: sql.TIDB_COUNTERS if have.flavor is Flavor.TIDB else sql.COUNTERS)
def traffic(_: CapacityFacts, have: CapacityReading) -> CheckResult:
    """Tell reads and writes a second now."""
    found = have.rates
    if found is None:
        return _unread(have, "rates")
    keys = (QUERIES, READS, WRITES, ROWS_READ, ROWS_WRITTEN)
    words = ", ".join(f"{found[key].value:,.1f} {key}/s" for key in keys if key in found)
    numbers = {f"{key.replace(' ', '_')}_per_second": found[key].value for key in keys if key in found}
    if READS not in found:
        todo = "SET GLOBAL tidb_stmt_summary_max_stmt_count = 10000;"
        value = f"{words}; their kinds are not reported: the statement summary is full"
        return unknown(value, todo, numbers=numbers)
    if found[READS].at_least:
        return unknown(f"at least {words}: the counters were reset meanwhile", "Ask again.", numbers=numbers)
    return passed(f"{words} over {found[READS].seconds:.0f} s, by {have.counted_by}", numbers=numbers)


@of_each(sources=True)
def binlog(_: CapacityFacts, have: CapacityReading) -> CheckResult:
    """Tell what the binlog grows by: now, and a day on the average."""
    if have.logs is None or have.log_rate is None:
        return _unread(have, "logs", "GRANT REPLICATION CLIENT ON *.* lists them.")
    numbers = {"bytes": float(have.logs.bytes), "files": float(have.logs.files)}
    value = f"{shown_bytes(have.logs.bytes)} in {have.logs.files} files"
    if have.log_rate < 0:
        return unknown(f"{value}; files were purged meanwhile", "Ask again.", numbers=numbers)
    numbers["bytes_per_second"] = have.log_rate
    value += f", {shown_bytes(have.log_rate)}/s now"
    age = None if have.logs.since is None or have.server_time is None else have.server_time - have.logs.since
    if age is None or age <= 60:
        return warned(f"{value}; since when they are kept is not reported", numbers=numbers)
    numbers["bytes_per_day"] = per_day = have.logs.bytes / age * DAY
    return passed(f"{value}, {shown_bytes(per_day)} a day over {shown_seconds(age)}", numbers=numbers)


# --- how long ----------------------------------------------------------------------------------------------


def _verify(facts: CapacityFacts) -> tuple[CheckResult, TimeSpan | None]:
    """Judge how long a whole verification takes."""
    span = facts.verification
    if span is None:
        lacking = [f"{have.endpoint.name}: {have.why('sizes')}" for have in facts.have if have.sizes is None]
        why = "; ".join(lacking) or ("no table is in scope" if not facts.pairs else "no earlier run tells its speed")
        return unknown(f"not known: {why}"), None
    value = f"{_span(span)}: {why}" if (why := span.why) else _span(span)
    return passed(value, numbers=_spans(span)), span


def _changed(facts: CapacityFacts) -> tuple[float, bool] | None:
    """Return rows written a second on all sources, and whether that is a lower bound; None where not reported."""
    found: list[Rate] = []
    for have in facts.sources:
        if have.rates is None or ROWS_WRITTEN not in have.rates:
            return None
        found.append(have.rates[ROWS_WRITTEN])
    return sum(rate.value for rate in found), any(rate.at_least for rate in found)


def _catch_up(facts: CapacityFacts) -> tuple[CheckResult, TimeSpan | None]:
    """Judge how long a watch works off what was written during the verification, while more is written."""
    span, written = facts.verification, _changed(facts)
    if span is None or written is None or written[1]:
        why = "how long the verification takes is not" if span is None else "what is written a second is not"
        return unknown(f"not known: {why} known"), None
    per_second = written[0]
    backlog = per_second * span.high
    pace = watch_pace(facts.store)
    if per_second < 0.1:
        return passed("nothing to catch up with: nothing is written now"), TimeSpan(0.0, 0.0, "")
    if pace is None:
        value = f"not known: about {backlog:,.0f} rows are written meanwhile, and no watch is in the store"
        return unknown(value, "Run `migverify tables watch` once under load."), None
    rest = pace.per_second - per_second
    numbers = {"rows_per_second": per_second, "keys_per_second": pace.per_second, "backlog_rows": backlog}
    if rest <= 0:
        value = f"not known: {per_second:,.0f} rows/s are written, and the fastest watch so far read"
        value += f" {pace.per_second:,.0f} keys/s (run {pace.run_id}), though it may have waited for work"
        todo = "Run `migverify tables watch` under load, with more connections, to see whether it can follow."
        return unknown(value, todo, numbers=numbers), None
    found = TimeSpan(0.0, backlog / rest, "")
    value = f"at most {shown_seconds(found.high)} for {backlog:,.0f} rows: {pace.per_second:,.0f} keys/s in run"
    value += f" {pace.run_id}, {per_second:,.0f} rows/s written meanwhile"
    return passed(value, numbers={**numbers, **_spans(found)}), found


def _repair(facts: CapacityFacts) -> tuple[CheckResult, TimeSpan | None]:
    """Judge how long a repair of what differed last takes."""
    reported = facts.verified
    if reported is None:
        return unknown("not known: no verification is in the store"), None
    if reported.differing == 0:
        return passed(f"nothing to repair as of run {reported.run_id}"), TimeSpan(0.0, 0.0, "")
    pace = repair_pace(facts.store)
    numbers = {"rows": float(reported.differing)}
    if pace is None:
        value = (
            f"not known: {reported.differing:,} rows differed in run {reported.run_id}, and no repair is in the store"
        )
        return unknown(value, "Rehearse it on a copy.", numbers=numbers), None
    seconds = reported.differing / pace.per_second
    span = TimeSpan(0.5 * seconds, 2 * seconds, "")
    value = f"{_span(span)} for {reported.differing:,} rows: {pace.per_second:,.0f} rows/s in run {pace.run_id}"
    return passed(value, numbers={**numbers, **_spans(span)}), span


def _replay(facts: CapacityFacts) -> tuple[CheckResult, TimeSpan | None]:
    """Judge how long a replay takes: as long as its capture at that pace, or as the last one took."""
    wanted = facts.wanted
    if wanted.replay is not None:
        span = TimeSpan(wanted.replay, 1.2 * wanted.replay, "")
        return passed(f"{_span(span)}: as long as was said, and late calls", numbers=_spans(span)), span
    last = last_replay(facts.store)
    if last is None:
        return unknown("not known: no replay is in the store", "Say --replay-time 1h."), None
    span = TimeSpan(0.9 * last[1], 1.25 * last[1], "")
    return passed(f"{_span(span)}: run {last[0]} took {shown_seconds(last[1])}", numbers=_spans(span)), span


Timed = tuple[CheckResult, TimeSpan | None]
WORK: dict[str, Callable[[CapacityFacts], Timed]] = {
    "verify": _verify, "catch-up": _catch_up, "repair": _repair, "replay": _replay,
}  # fmt: skip
"""The pieces of work of a window: what is said of their time, and the time where it is known."""


def _planned(facts: CapacityFacts) -> list[str]:
    return [name for name in WORK if name != "replay" or facts.wanted.replays]


def time_of(name: str) -> Callable[[CapacityFacts], Iterator[CheckResult]]:
    """Return what tells how long a piece of work takes, where it is planned."""
    return lambda facts: iter([WORK[name](facts)[0]] if name in _planned(facts) else [])


def window(facts: CapacityFacts) -> Iterator[CheckResult]:
    """Judge everything together against the window."""
    limit = facts.wanted.window
    if limit is None:
        return
    parts = [(name, WORK[name](facts)[1]) for name in _planned(facts)]
    known = [(name, span) for name, span in parts if span is not None]
    unknown = [name for name, span in parts if span is None]
    total = sum((span for _, span in known), TimeSpan(0.0, 0.0, ""))
    words = ", ".join(f"{name} {_span(span)}" for name, span in known) or "nothing is known"
    value = f"{_span(total)} together ({words})" + (f"; not known: {', '.join(unknown)}" if unknown else "")
    threshold = f"at most {shown_seconds(limit)}"
    numbers = {"low_seconds": total.low, "high_seconds": total.high, "window_seconds": limit}
    if total.low > limit:
        state, todo = AnswerState.FAIL, "Verify earlier and keep it current by `tables watch`, or take a longer window."
    elif unknown or total.high > limit:
        state, todo = AnswerState.INCONCLUSIVE, "Rehearse it at full size: more runs in the store narrow the interval."
    else:
        state, todo = AnswerState.PASS, ""
    yield CheckResult(state, value, todo, threshold=threshold, numbers=numbers)


# --- room --------------------------------------------------------------------------------------------------


@of_each(query=lambda have: sql.TIDB_CONNECTIONS if have.flavor is Flavor.TIDB else sql.CONNECTIONS)
def connections(facts: CapacityFacts, have: CapacityReading) -> CheckResult:
    """Judge the connections that the work takes against those that are left."""
    if have.connections is None:
        return _unread(have, "connections")
    used, most = have.connections
    needed = have.endpoint.connections + 2 + (facts.wanted.workload_connections if facts.wanted.replays else 0)
    numbers = {"used": float(used), "allowed": float(most), "needed": float(needed)}
    if most <= 0:
        return passed(f"{needed} needed, {used} in use, no limit", numbers=numbers)
    return CheckResult(
        AnswerState.PASS if used + needed <= most else AnswerState.FAIL, f"{needed} needed, {used} of {most} in use",
        f"Lower `connections` of {have.endpoint.name}, or raise max_connections.", threshold=f"at most {most - used}",
        numbers=numbers,
    )  # fmt: skip


def room(facts: CapacityFacts) -> Iterator[CheckResult]:
    """Judge the target's free room against what is not there yet."""
    have, wanted = facts.target, facts.wanted
    if any(one.sizes is None for one in facts.have):
        yield unknown("not known: how much there is is not known")
        return
    free = wanted.target_free if wanted.target_free is not None else have.free
    there = have.sizes.bytes if have.sizes else 0
    needed = max(0, sum(one.sizes.bytes for one in facts.sources if one.sizes) - there) * wanted.replicas
    numbers = {"needed_bytes": float(needed)}
    value = f"about {shown_bytes(needed)} more needed ({wanted.replicas} copies, not compressed)"
    if free is None:
        why = f" ({have.why('free')})" if have.flavor is Flavor.TIDB else ""
        yield unknown(f"{value}; free room is not reported{why}", "Say --target-free 500G.", numbers=numbers)
        return
    numbers["free_bytes"] = float(free)
    state = AnswerState.PASS if needed * 1.2 <= free else AnswerState.FAIL
    yield CheckResult(
        state, f"{value}, {shown_bytes(free)} free", "Add stores before the data comes.", numbers=numbers
    )  # fmt: skip


QUESTIONS = (
    GuardQuestion("size", "known", "", "Everything else is derived from it.", "", sizes),
    GuardQuestion("growth", "known from earlier runs", "", "What fits today may not fit on the date.", "", growth),
    GuardQuestion("traffic", "known", "", "The servers carry it beside the verification, and the watch follows it.", "",
             traffic),
    GuardQuestion("binlog volume", "known", sql.LOGS, "It is what a watch reads, and what retention has to hold.", "",
             binlog),
    GuardQuestion("connections", "fewer than are left", "",
        "A run that takes the last ones locks the application out.", "",
             connections),
    GuardQuestion("room on the target", "1.2 times what is not there yet", settings.STORES,
             "A full store stops every write.", "", room, "target"),
    GuardQuestion("verify time", "known", "", "A verification that is cut off proves nothing.",
             "Run `migverify tables verify` once (--engine as on the day).",
             time_of("verify"), PAIR),
    GuardQuestion("catch-up time", "known", "", "What was written meanwhile is verified after.", "",
             time_of("catch-up"), PAIR),
    GuardQuestion("repair time", "known", "", "Rows that differ are repaired inside the window.", "",
             time_of("repair"), PAIR),
    GuardQuestion("replay time", "known", "", "It runs for as long as the traffic it repeats.", "",
             time_of("replay"), PAIR),
    GuardQuestion("window", "", "", "There is no second window.", "", window, PAIR),
)  # fmt: skip
