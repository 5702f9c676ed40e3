"""Questions of the guard of capacity."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from migverify.guards.capacity_model import Facts, Point, Told
from migverify.guards.capacity_speed import Span, last_replay, repair_pace, watch_pace
from migverify.guards.counters import QUERIES, READS, ROWS_READ, ROWS_WRITTEN, WRITES, Rate
from migverify.guards.model import State
from migverify.sql import server as sql
from migverify.sql import settings

DAY = 86_400.0
PAIR = "source and target"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_BYTES = re.compile(r"([0-9.]+) ?([KMGTP]?)i?B?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Question:
    """One question."""

    name: str
    threshold: str
    query: str
    why: str
    todo: str
    ask: Callable[[Facts], Iterator[Told]]


def bytes_of(text: str) -> int | None:
    """Return a size as people and TiKV write it (``500G``, ``1.5TiB``) in bytes; None for anything else."""
    found = _BYTES.fullmatch(text.strip())
    if found is None or found[1].count(".") > 1 or found[1] == ".":
        return None
    return int(float(found[1]) * 1024 ** " KMGTP".index(found[2].upper() or " "))


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


def _span(span: Span) -> str:
    return f"{shown_seconds(span.low)} to {shown_seconds(span.high)}"


def _spans(span: Span) -> dict[str, float]:
    return {"low_seconds": span.low, "high_seconds": span.high, **span.numbers}


# --- how much ----------------------------------------------------------------------------------------------


def sizes(facts: Facts) -> Iterator[Told]:
    """Tell rows and bytes: estimates of the server, and what the last verification counted."""
    for have in facts.have:
        if have.sizes is None:
            yield Told(have.endpoint.name, State.INCONCLUSIVE, f"not known: {have.why('sizes')}")
            continue
        tables = have.sizes.tables
        numbers = {
            "tables": float(len(tables)), "rows_estimated": float(have.sizes.rows), "bytes": float(have.sizes.bytes)
        }  # fmt: skip
        value = f"about {have.sizes.rows:,} rows and {shown_bytes(have.sizes.bytes)} in {len(tables)} tables"
        value += f" ({have.sizes.how})"
        told = facts.verified
        counted = {} if told is None else told.source if have.is_source else told.target
        if told is not None and counted and len(facts.sources) == 1:
            numbers |= {"rows_counted": float(sum(counted.values())), "tables_counted": float(len(counted))}
            value += f"; counted by run {told.run_id}: {sum(counted.values()):,} rows in {len(counted)} tables"
        yield Told(have.endpoint.name, State.PASS, value, query=have.sizes.query, numbers=numbers)


def growth(facts: Facts) -> Iterator[Told]:
    """Tell how rows and bytes grew from run to run, and what they come to."""
    for have in facts.have:
        name = have.endpoint.name
        if have.sizes is None or have.server_time is None:
            yield Told(name, State.INCONCLUSIVE, f"not known: {have.why('sizes')}")
            continue
        points = [*facts.history.get(name, ()), Point(have.server_time, have.sizes.rows, have.sizes.bytes)]
        span = points[-1].at - min(point.at for point in points)
        if span < 3600:
            yield Told(name, State.WARN, "not known yet: no run of an hour ago or more is in the store",
                       "Run this command again later, or let it --watch.")  # fmt: skip
            continue
        rows, size = (slope([(p.at, pick(p)) for p in points]) * DAY for pick in (_rows, _bytes))
        later = have.sizes.bytes + size * facts.wanted.days
        value = f"{rows:+,.0f} rows and {shown_bytes(size)} a day over {shown_seconds(span)} in {len(points)} runs;"
        value += f" about {shown_bytes(max(0.0, later))} in {facts.wanted.days:g} days"
        numbers = {"rows_per_day": rows, "bytes_per_day": size, "bytes_later": later, "runs": float(len(points))}
        yield Told(name, State.PASS, value, numbers=numbers)


def _rows(point: Point) -> float:
    return point.rows


def _bytes(point: Point) -> float:
    return point.bytes


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the line of least squares; 0 where all times are the same."""
    count = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def traffic(facts: Facts) -> Iterator[Told]:
    """Tell reads and writes a second now."""
    for have in facts.have:
        name = have.endpoint.name
        query = sql.TIDB_COUNTERS if have.flavor == "tidb" else sql.COUNTERS
        if have.rates is None:
            yield Told(name, State.INCONCLUSIVE, f"not known: {have.why('rates')}", query=query)
            continue
        found = have.rates
        keys = (QUERIES, READS, WRITES, ROWS_READ, ROWS_WRITTEN)
        words = ", ".join(f"{found[key].value:,.1f} {key}/s" for key in keys if key in found)
        numbers = {f"{key.replace(' ', '_')}_per_second": found[key].value for key in keys if key in found}
        if READS not in found:
            todo = "SET GLOBAL tidb_stmt_summary_max_stmt_count = 10000;"
            value = f"{words}; their kinds are not told: the statement summary is full"
            yield Told(name, State.INCONCLUSIVE, value, todo, query=query, numbers=numbers)
            continue
        if found[READS].at_least:
            yield Told(name, State.INCONCLUSIVE, f"at least {words}: the counters were reset meanwhile",
                       "Ask again.", query=query, numbers=numbers)  # fmt: skip
            continue
        value = f"{words} over {found[READS].seconds:.0f} s, by {have.counted_by}"
        yield Told(name, State.PASS, value, query=query, numbers=numbers)


def binlog(facts: Facts) -> Iterator[Told]:
    """Tell what the binlog grows by: now, and a day on the average."""
    for have in facts.sources:
        name = have.endpoint.name
        if have.logs is None or have.log_rate is None:
            yield Told(name, State.INCONCLUSIVE, f"not known: {have.why('logs')}",
                       "GRANT REPLICATION CLIENT ON *.* lists them.")  # fmt: skip
            continue
        numbers = {"bytes": float(have.logs.bytes), "files": float(have.logs.files)}
        value = f"{shown_bytes(have.logs.bytes)} in {have.logs.files} files"
        if have.log_rate < 0:
            yield Told(name, State.INCONCLUSIVE, f"{value}; files were purged meanwhile", "Ask again.", numbers=numbers)
            continue
        numbers["bytes_per_second"] = have.log_rate
        value += f", {shown_bytes(have.log_rate)}/s now"
        age = None if have.logs.since is None or have.server_time is None else have.server_time - have.logs.since
        if age is not None and age > 60:
            per_day = have.logs.bytes / age * DAY
            numbers["bytes_per_day"] = per_day
            value += f", {shown_bytes(per_day)} a day over {shown_seconds(age)}"
            yield Told(name, State.PASS, value, numbers=numbers)
        else:
            yield Told(name, State.WARN, f"{value}; since when they are kept is not told", numbers=numbers)


# --- how long ----------------------------------------------------------------------------------------------


def _verify(facts: Facts) -> Told:
    span = facts.verification
    if span is None:
        lacking = [f"{have.endpoint.name}: {have.why('sizes')}" for have in facts.have if have.sizes is None]
        why = "; ".join(lacking) or ("no table is in scope" if not facts.pairs else "no earlier run tells its speed")
        return Told(PAIR, State.INCONCLUSIVE, f"not known: {why}")
    value = f"{_span(span)}: {why}" if (why := span.why) else _span(span)
    return Told(PAIR, State.PASS, f"{value}; limited by {span.limits}", numbers=_spans(span))


def _changed(facts: Facts) -> tuple[float, bool] | None:
    """Return rows written a second on all sources, and whether that is a lower bound; None where not told."""
    found: list[Rate] = []
    for have in facts.sources:
        if have.rates is None or ROWS_WRITTEN not in have.rates:
            return None
        found.append(have.rates[ROWS_WRITTEN])
    return sum(rate.value for rate in found), any(rate.at_least for rate in found)


def _catch_up(facts: Facts) -> tuple[Told, Span | None]:
    """Judge how long a watch works off what was written during the verification, while more is written."""
    span, written = facts.verification, _changed(facts)
    if span is None or written is None or written[1]:
        why = "how long the verification takes is not" if span is None else "what is written a second is not"
        return Told(PAIR, State.INCONCLUSIVE, f"not known: {why} known"), None
    per_second = written[0]
    backlog = per_second * span.high
    pace = watch_pace(facts.store)
    if per_second < 0.1:
        return Told(PAIR, State.PASS, "nothing to catch up with: nothing is written now"), Span(0.0, 0.0, "")
    if pace is None:
        value = f"not known: about {backlog:,.0f} rows are written meanwhile, and no watch is in the store"
        return Told(PAIR, State.INCONCLUSIVE, value, "Run `migverify tables watch` once under load."), None
    rest = pace.per_second - per_second
    numbers = {"rows_per_second": per_second, "keys_per_second": pace.per_second, "backlog_rows": backlog}
    if rest <= 0:
        value = f"not known: {per_second:,.0f} rows/s are written, and the fastest watch so far read"
        value += f" {pace.per_second:,.0f} keys/s (run {pace.run_id}), though it may have waited for work"
        todo = "Run `migverify tables watch` under load, with more connections, to see whether it can follow."
        return Told(PAIR, State.INCONCLUSIVE, value, todo, numbers=numbers), None
    found = Span(0.0, backlog / rest, "")
    value = f"at most {shown_seconds(found.high)} for {backlog:,.0f} rows: {pace.per_second:,.0f} keys/s in run"
    value += f" {pace.run_id}, {per_second:,.0f} rows/s written meanwhile"
    return Told(PAIR, State.PASS, value, numbers={**numbers, **_spans(found)}), found


def _repair(facts: Facts) -> tuple[Told, Span | None]:
    """Judge how long a repair of what differed last takes."""
    told = facts.verified
    if told is None:
        return Told(PAIR, State.INCONCLUSIVE, "not known: no verification is in the store"), None
    if told.differing == 0:
        return Told(PAIR, State.PASS, f"nothing to repair as of run {told.run_id}"), Span(0.0, 0.0, "")
    pace = repair_pace(facts.store)
    numbers = {"rows": float(told.differing)}
    if pace is None:
        value = f"not known: {told.differing:,} rows differed in run {told.run_id}, and no repair is in the store"
        return Told(PAIR, State.INCONCLUSIVE, value, "Rehearse it on a copy.", numbers=numbers), None
    seconds = told.differing / pace.per_second
    span = Span(0.5 * seconds, 2 * seconds, "")
    value = f"{_span(span)} for {told.differing:,} rows: {pace.per_second:,.0f} rows/s in run {pace.run_id}"
    return Told(PAIR, State.PASS, value, numbers={**numbers, **_spans(span)}), span


def _replay(facts: Facts) -> tuple[Told, Span | None]:
    """Judge how long a replay takes: as long as its capture at that pace, or as the last one took."""
    wanted = facts.wanted
    if wanted.replay is not None:
        span = Span(wanted.replay, 1.2 * wanted.replay, "")
        return Told(PAIR, State.PASS, f"{_span(span)}: as long as was said, and late calls", numbers=_spans(span)), span
    last = last_replay(facts.store)
    if last is None:
        return Told(PAIR, State.INCONCLUSIVE, "not known: no replay is in the store", "Say --replay-time 1h."), None
    span = Span(0.9 * last[1], 1.25 * last[1], "")
    return Told(PAIR, State.PASS, f"{_span(span)}: run {last[0]} took {shown_seconds(last[1])}",
                numbers=_spans(span)), span  # fmt: skip


def verify_time(facts: Facts) -> Iterator[Told]:
    """Tell how long a whole verification takes."""
    yield _verify(facts)


def catch_up_time(facts: Facts) -> Iterator[Told]:
    """Tell how long a watch needs to catch up after a verification."""
    yield _catch_up(facts)[0]


def repair_time(facts: Facts) -> Iterator[Told]:
    """Tell how long a repair takes."""
    yield _repair(facts)[0]


def replay_time(facts: Facts) -> Iterator[Told]:
    """Tell how long a replay takes, where one is planned."""
    if facts.wanted.replays:
        yield _replay(facts)[0]


def window(facts: Facts) -> Iterator[Told]:
    """Judge everything together against the window."""
    limit = facts.wanted.window
    if limit is None:
        return
    parts: list[tuple[str, Span | None]] = [
        ("verify", facts.verification), ("catch-up", _catch_up(facts)[1]), ("repair", _repair(facts)[1])
    ]  # fmt: skip
    if facts.wanted.replays:
        parts.append(("replay", _replay(facts)[1]))
    known = [(name, span) for name, span in parts if span is not None]
    unknown = [name for name, span in parts if span is None]
    total = sum((span for _, span in known), Span(0.0, 0.0, ""))
    words = ", ".join(f"{name} {_span(span)}" for name, span in known) or "nothing is known"
    value = f"{_span(total)} together ({words})" + (f"; not known: {', '.join(unknown)}" if unknown else "")
    threshold = f"at most {shown_seconds(limit)}"
    numbers = {"low_seconds": total.low, "high_seconds": total.high, "window_seconds": limit}
    if total.low > limit:
        state, todo = State.FAIL, "Verify earlier and keep it current by `tables watch`, or take a longer window."
    elif unknown or total.high > limit:
        state, todo = State.INCONCLUSIVE, "Rehearse it at full size: more runs in the store narrow the interval."
    else:
        state, todo = State.PASS, ""
    yield Told(PAIR, state, value, todo, threshold, numbers=numbers)


# --- room --------------------------------------------------------------------------------------------------


def connections(facts: Facts) -> Iterator[Told]:
    """Judge the connections that the work takes against those that are left."""
    for have in facts.have:
        name = have.endpoint.name
        query = sql.TIDB_CONNECTIONS if have.flavor == "tidb" else sql.CONNECTIONS
        if have.connections is None:
            yield Told(name, State.INCONCLUSIVE, f"not known: {have.why('connections')}", query=query)
            continue
        used, most = have.connections
        needed = have.endpoint.connections + 2 + (facts.wanted.workload_connections if facts.wanted.replays else 0)
        numbers = {"used": float(used), "allowed": float(most), "needed": float(needed)}
        if most <= 0:
            yield Told(name, State.PASS, f"{needed} needed, {used} in use, no limit", query=query, numbers=numbers)
            continue
        state = State.PASS if used + needed <= most else State.FAIL
        todo = "" if state is State.PASS else f"Lower `connections` of {name}, or raise max_connections."
        yield Told(
            name, state, f"{needed} needed, {used} of {most} in use", todo, f"at most {most - used}", query, numbers
        )


def room(facts: Facts) -> Iterator[Told]:
    """Judge the target's free room against what is not there yet."""
    have, wanted = facts.target, facts.wanted
    if any(one.sizes is None for one in facts.have):
        yield Told("target", State.INCONCLUSIVE, "not known: how much there is is not known")
        return
    free = wanted.target_free if wanted.target_free is not None else have.free
    there = have.sizes.bytes if have.sizes else 0
    needed = max(0, sum(one.sizes.bytes for one in facts.sources if one.sizes) - there) * wanted.replicas
    numbers = {"needed_bytes": float(needed)}
    value = f"about {shown_bytes(needed)} more needed ({wanted.replicas} copies, not compressed)"
    if free is None:
        told = f"; free room is not told ({have.why('free')})" if have.flavor == "tidb" else "; free room is not told"
        yield Told("target", State.WARN, value + told, "Say --target-free 500G.", numbers=numbers)
        return
    numbers["free_bytes"] = float(free)
    state = State.PASS if needed * 1.2 <= free else State.FAIL
    yield Told("target", state, f"{value}, {shown_bytes(free)} free",
               "" if state is State.PASS else "Add stores before the data comes.", numbers=numbers)  # fmt: skip


QUESTIONS = (
    Question("size", "known", "", "Everything else is derived from it.", "", sizes),
    Question("growth", "known from earlier runs", "", "What fits today may not fit on the date.", "", growth),
    Question("traffic", "known", "", "The servers carry it beside the verification, and the watch follows it.", "",
             traffic),
    Question("binlog volume", "known", sql.LOGS, "It is what a watch reads, and what retention has to hold.", "",
             binlog),
    Question("connections", "fewer than are left", "", "A run that takes the last ones locks the application out.", "",
             connections),
    Question("room on the target", "1.2 times what is not there yet", settings.STORES,
             "A full store stops every write.", "", room),
    Question("verify time", "known", "", "A verification that is cut off proves nothing.",
             "Run `migverify tables verify` once (--engine as on the day), or let this command --calibrate.",
             verify_time),
    Question("catch-up time", "known", "", "What was written meanwhile is verified after.", "", catch_up_time),
    Question("repair time", "known", "", "Rows that differ are repaired inside the window.", "", repair_time),
    Question("replay time", "known", "", "It runs for as long as the traffic it repeats.", "", replay_time),
    Question("window", "", "", "There is no second window.", "", window),
)  # fmt: skip
