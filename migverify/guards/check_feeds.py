"""Questions of the settings guard about what moves and keeps data: binlog, GC, statistics, DM, TiCDC."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from migverify.db.server_state import checkpoint_tables, dm_checkpoints
from migverify.errors import ReadError
from migverify.figures import amount
from migverify.guards.check_read import CheckedServer
from migverify.guards.model import AnswerState, CheckResult, failed, listed, passed, unknown, warned
from migverify.guards.promql import seconds
from migverify.opener import opener
from migverify.sql import settings as sql

STALE_SECONDS = 300
HTTP_SECONDS = 3.0
HEALTHY = 50
HEALTHY_WELL = 80
SAFE_POINT_SECONDS = 86_400.0
_DEFAULT_LIFE = 600.0
_TSO_SHIFT = 18


def gc_life_time(server: CheckedServer) -> Iterator[CheckResult]:
    """Judge how long TiDB keeps old versions, against how long a verification reads as of one moment."""
    reported = server.variable("tidb_gc_life_time")
    life = seconds(reported)
    if life is None:
        raise ReadError(f"{server.name}: tidb_gc_life_time is {reported!r}, no duration")
    planned = server.plan.verify_seconds
    numbers = {"seconds": life}
    if server.variables.get("tidb_gc_enable", "ON").upper() in ("OFF", "0"):
        yield warned("garbage collection is off: nothing is removed", "Turn it on again when the work ends.",
            numbers=numbers,
        )  # fmt: skip
        return
    if planned is None:
        short = life <= _DEFAULT_LIFE
        value = f"{reported}; the length of the verification is not given"
        todo = "Give it (--hours 6), and raise the life time for as long as the work goes on."
        yield CheckResult(AnswerState.WARN if short else AnswerState.PASS, value, todo, numbers=numbers)
        return
    value = f"{reported}, and the verification takes {planned / 3600:g} h"
    minutes = int(planned * 1.5 // 60) + 1
    todo = f"For the time of the work: SET GLOBAL tidb_gc_life_time = '{minutes}m'; and back to {reported} afterwards."
    yield CheckResult(
        AnswerState.PASS if life > planned else AnswerState.FAIL,
        value,
        todo,
        threshold=f"more than {planned:g} s",
        numbers={**numbers, "planned_seconds": planned},
    )


def safe_point(server: CheckedServer) -> Iterator[CheckResult]:
    """Judge how far behind garbage collection is: held back it fills the disk, and without it snapshots do not hold."""
    state = server.pairs(sql.TIDB_STATE)
    reported = state.get("tikv_gc_safe_point")
    if reported is None:
        snapshot = server.endpoint.snapshot is not None
        todo = "Wait until the GC worker has run once; on embedded storage there is none."
        value = "there is none: the server silently ignores tidb_snapshot"
        yield CheckResult(AnswerState.FAIL if snapshot else AnswerState.WARN, value, todo)
        return
    moment = _moment(reported)
    if moment is None:
        raise ReadError(f"{server.name}: tikv_gc_safe_point is {reported!r}, no time")
    age = server.now() + server.clock.offset - moment
    numbers = {"age_seconds": age}
    value = f"{reported}, {age / 3600:.1f} h ago"
    life = seconds(server.variables.get("tidb_gc_life_time", "")) or _DEFAULT_LIFE
    late = age > max(SAFE_POINT_SECONDS, 3 * life)
    yield CheckResult(AnswerState.WARN if late else AnswerState.PASS, value, numbers=numbers)


def _moment(text: str) -> float | None:
    for form in ("%Y%m%d-%H:%M:%S.%f %z", "%Y%m%d-%H:%M:%S %z"):
        try:
            return datetime.strptime(text, form).timestamp()
        except ValueError:
            continue
    return None


def statistics(server: CheckedServer) -> Iterator[CheckResult]:
    """Judge the statistics of the tables in scope; an empty table needs none."""
    rows = server.session.query_named(sql.STATISTICS)
    health: dict[tuple[str, str], int] = {}
    for row in rows:
        name = ((row["Db_name"] or "").lower(), (row["Table_name"] or "").lower())
        healthy = int(row["Healthy"] or 0)
        health[name] = min(healthy, health.get(name, healthy))  # of a partitioned table the worst part
    filled = [t for t in server.tables if t.rows]
    unknown = [str(t.ref) for t in filled if (t.ref.database.lower(), t.ref.table.lower()) not in health]
    named = [(str(t.ref), health.get((t.ref.database.lower(), t.ref.table.lower()))) for t in filled]
    stale = [f"{name} ({healthy})" for name, healthy in named if healthy is not None and healthy < HEALTHY]
    aging = [
        f"{name} ({healthy})" for name, healthy in named if healthy is not None and HEALTHY <= healthy < HEALTHY_WELL
    ]
    numbers = {"stale": float(len(stale)), "missing": float(len(unknown)), "tables": float(len(filled))}
    bad = [*unknown, *stale]
    if bad:
        value = f"{amount(len(unknown), 'table')} without, {len(stale)} stale of {len(filled)} with rows: {listed(bad)}"
        todo = f"ANALYZE TABLE {bad[0].split(' (')[0]}; and so on, in hours of little traffic."
        yield failed(value, todo, numbers=numbers)
        return
    value = f"{amount(len(filled), 'table')} with rows, {len(aging)} below {HEALTHY_WELL}"
    more = f": {listed(aging)}" if aging else ""
    yield CheckResult(AnswerState.WARN if aging else AnswerState.PASS, value + more, numbers=numbers)


def data_migration(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask where DM is, by its checkpoints on the target; a cluster without them has no DM that writes to it."""
    tables, wanted = checkpoint_tables(server.session), server.plan.checkpoint
    if wanted is not None and wanted.startswith("dm_meta.") and wanted not in {".".join(name) for name in tables}:
        todo = "Start the DM task first, name its own table, or grant SELECT on dm_meta.*."
        yield failed(f"{wanted} (watch.checkpoint) is not there", todo)
        return
    if not tables:
        yield passed("no checkpoint of DM here")
    for one in dm_checkpoints(server.session):
        subject = f"{server.name}/{one.task}/{one.source}"
        if one.age is None:
            yield unknown(f"{one.position}; its age is not reported", subject=subject, query=one.query)
            continue
        state = AnswerState.WARN if one.age > STALE_SECONDS else AnswerState.PASS
        value, numbers = f"{one.position}, written {one.age:.0f} s ago", {"age_seconds": one.age}
        yield CheckResult(state, value, subject=subject, query=one.query, numbers=numbers)


def ticdc(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask TiCDC's servers for the state of every changefeed; not asked where no address is given."""
    for address in server.plan.ticdc:
        url = f"{address.rstrip('/')}/api/v2/changefeeds"
        for result in _of_address(server, address, url):
            yield replace(result, subject=result.subject or address, query=f"GET {url}")


def _of_address(server: CheckedServer, address: str, url: str) -> Iterator[CheckResult]:
    try:
        feeds = _changefeeds(url)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        yield unknown(f"no answer: {reason}", "Check the address and that TiCDC runs.")
        return
    if not feeds:
        yield warned("no changefeed", "Make the feed, and rehearse it, before it is needed.")
    for feed in feeds:
        name = f"{address}/{feed.get('namespace') or 'default'}/{feed.get('id')}"
        yield replace(_changefeed(server, feed), subject=name)


def _changefeeds(url: str) -> list[dict[str, Any]]:
    if not url.startswith(("http://", "https://")):
        raise ValueError("an address begins with http:// or https://")
    with opener().open(url, timeout=HTTP_SECONDS) as answer:
        document = json.loads(answer.read())
    return [dict(item) for item in document["items"] or []]


def _changefeed(server: CheckedServer, feed: dict[str, Any]) -> CheckResult:
    state, tso, error = str(feed.get("state") or "not reported"), feed.get("checkpoint_tso"), feed.get("error")
    words = f": {error.get('message') or error}" if isinstance(error, dict) else f": {error}" if error else ""
    if state in ("stopped", "failed", "warning", "error", "pending", "finished", "removed"):
        return failed(f"{state}{words}")
    if state != "normal":
        return unknown(f"{state}{words}")
    if not isinstance(tso, int):
        return unknown(f"{state}; its checkpoint is not reported")
    moment = (tso >> _TSO_SHIFT) / 1000
    lag = server.now() + server.clock.offset - moment
    value = f"{state}, checkpoint {datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%SZ}, {lag:.0f} s ago"
    late = AnswerState.FAIL if lag > STALE_SECONDS else AnswerState.PASS
    return CheckResult(late, value, numbers={"lag_seconds": lag})
