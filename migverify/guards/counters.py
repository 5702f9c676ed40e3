"""Counters of a server, read twice: how much was done between, resets taken in.

A counter that is lower than before, or a server that started meanwhile, began anew at 0: what it shows now was done
since then, and what was done before the reset is lost. So the increase is at least what it shows (as Prometheus does).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from migverify.db.server_state import ServerQuery, connections_used
from migverify.errors import ReadError
from migverify.model import Flavor
from migverify.sql import server as sql
from migverify.sql.grants import check_grants

QUERIES, READS, WRITES, ROWS_READ, ROWS_WRITTEN = "queries", "reads", "writes", "rows read", "rows written"
_EVICTED = "evicted"
_SLACK = 2.0
"""Uptime is reported in whole seconds."""

_WRITING_TYPES = frozenset({"Insert", "Update", "Delete", "Replace", "LoadData", "ImportInto", "NonTransactionalDML"})


@dataclass(frozen=True, slots=True)
class CounterReading:
    """The counters of one server at one moment.

    ``at`` is Unix time here. ``began`` says since when they count, by the server: seconds of uptime (``began`` moves
    back with the clock), or the begin of a window; another ``began`` is a reset. ``how`` names where they come from.
    """

    server: str
    at: float
    began: float
    values: Mapping[str, float]
    how: str


@dataclass(frozen=True, slots=True)
class Rate:
    """What a server did a second. ``at_least``: a counter was reset between, and what was before is lost."""

    value: float
    seconds: float
    at_least: bool


def read_counters(session: ServerQuery, now: Callable[[], float] = time.time) -> tuple[CounterReading, ...]:
    """Read the counters of a server, or of every server of a TiDB cluster.

    Raises
    ------
    ReadError
        the server does not report them.
    """
    if session.flavor is Flavor.TIDB:
        return _tidb(session, now)
    at = now()
    reported = {name or "": value or "" for name, value in session.query(sql.COUNTERS)}
    if not reported.get("Uptime", "").isdigit() or "Queries" not in reported:
        raise ReadError("the server reports no counters")
    number = {name: float(value) for name, value in reported.items() if value.isdigit()}
    rows = all(name in number for name in (*sql.ROWS_WRITTEN, *sql.ROWS_READ))
    written, read = (sql.ROWS_WRITTEN, sql.ROWS_READ) if rows else (sql.HANDLER_WRITTEN, sql.HANDLER_READ)
    values = {
        QUERIES: number["Queries"], READS: number["Com_select"],
        WRITES: sum(number.get(name, 0.0) for name in sql.WRITING),
        ROWS_WRITTEN: sum(number.get(name, 0.0) for name in written),
        ROWS_READ: sum(number.get(name, 0.0) for name in read),
    }  # fmt: skip
    how = "status counters" + ("" if rows else " (rows by Handler counters, temporary tables included)")
    return (CounterReading("", at, at - number["Uptime"], values, how),)


def connections(session: ServerQuery) -> tuple[int, int]:
    """Return connections in use and allowed, of the fullest server of a cluster; 0 allowed is no limit.

    Raises
    ------
    ReadError
        the server does not report those of other users.
    """
    most = int(session.query(sql.MOST_CONNECTIONS)[0][0] or 0)
    if session.flavor is Flavor.TIDB:
        need_process(session)
    return connections_used(session), most


def need_process(session: ServerQuery) -> None:
    """Refuse a user of TiDB that sees its own sessions and statements only: a small number would look fine.

    Raises
    ------
    ReadError
        the user lacks PROCESS.
    """
    if not check_grants(session).allows("PROCESS"):
        raise ReadError("the user lacks PROCESS", hint="GRANT PROCESS ON *.* shows sessions of all users.")


def _tidb(session: ServerQuery, now: Callable[[], float]) -> tuple[CounterReading, ...]:
    need_process(session)
    if (session.query(sql.TIDB_SUMMARY) or [("", "ON")])[0][1] not in ("ON", "1"):
        raise ReadError("tidb_enable_stmt_summary is OFF, and TiDB has no other counters in SQL")
    at = now()
    found: dict[tuple[str, float], dict[str, float]] = {}
    for instance, begin, kind, count, written in session.query(sql.TIDB_COUNTERS):
        values = found.setdefault((instance or "", float(begin or 0)), dict.fromkeys(_TIDB_NAMES, 0.0))
        values[QUERIES] += float(count or 0)
        if not kind:
            values[_EVICTED] += float(count or 0)
        elif kind == "Select":
            values[READS] += float(count or 0)
        elif kind in _WRITING_TYPES:
            values[WRITES] += float(count or 0)
            values[ROWS_WRITTEN] += float(written or 0)
    if not found:
        raise ReadError("the statement summary is empty: it was cleared, or is kept nowhere")
    newest = {server: max(begin for name, begin in found if name == server) for server, _ in found}
    return tuple(
        CounterReading(s, at, begin, found[s, begin], "statement summary") for s, begin in sorted(newest.items())
    )


# How many rows were read is reported as a rounded average only.
_TIDB_NAMES = (QUERIES, READS, WRITES, ROWS_WRITTEN, _EVICTED)


def was_reset(before: CounterReading, after: CounterReading) -> bool:
    """Whether the server began to count anew: it was restarted, its window ended, or a counter fell."""
    if abs(after.began - before.began) > _SLACK:
        return True
    exact = [QUERIES] if _EVICTED in before.values else list(before.values)
    return any(after.values.get(name, 0.0) < before.values[name] for name in exact)


def rates(before: Sequence[CounterReading], after: Sequence[CounterReading]) -> dict[str, Rate]:
    """Return what all servers together did a second between two readings, by counter.

    A counter that was not reported is not there: TiDB moves statements that are rare to a remainder of unknown kind.

    Raises
    ------
    ReadError
        nothing is known: no time passed, or a server is in one reading only.
    """
    first, second = ({one.server: one for one in readings} for readings in (before, after))
    if not first or first.keys() != second.keys():
        raise ReadError(f"other servers answered the second time: {sorted(first)}, then {sorted(second)}")
    seconds = min(second[name].at - first[name].at for name in first)
    if seconds <= 0:
        raise ReadError("no time passed between the readings")
    reset = {name: was_reset(first[name], second[name]) for name in first}
    moved = any(first[n].values.get(_EVICTED, 0.0) != second[n].values.get(_EVICTED, 0.0) for n in first)
    reported = set.intersection(*({*first[n].values} & {*second[n].values} for n in first)) - {_EVICTED}
    return {
        counter: Rate(sum(_increase(first[n], second[n], counter, reset=reset[n]) for n in first) / seconds, seconds,
                      any(reset.values()))
        for counter in sorted(reported) if counter == QUERIES or not moved
    }  # fmt: skip


def _increase(before: CounterReading, after: CounterReading, counter: str, *, reset: bool) -> float:
    now = after.values[counter]
    return now if reset else max(0.0, now - before.values[counter])  # sums of floats may be a hair lower
