"""A watch from its beginning to its end in the store: what it starts from, what it watches, how it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from migverify.changes.model import Item, Position
from migverify.changes.positions import parse_position
from migverify.changes.server import read_server, source_state
from migverify.config import Config, includes, override_for, route
from migverify.db.pool import SessionPool
from migverify.db.session import Session
from migverify.errors import PlanError, UsageError
from migverify.model import LiveState, RunInfo, StoredKind, Verdict
from migverify.sql.identity import TableIdentity
from migverify.store.base import ResultStore
from migverify.tables.engine import Secrets
from migverify.tables.prepare import Prepared, prepare, rules_of
from migverify.tables.recheck import tables_run
from migverify.tables.tasks import PairPlan
from migverify.tables.touched import Watched, form_of
from migverify.tables.watch import Stream, TablesWatch
from migverify.tables.watch_identity import identities_of
from migverify.tables.watch_status import WatchStatus
from migverify.tables.watch_sweep import Sweep, sweepable
from migverify.tables.watch_verdict import Base, WatchRules, table_result
from migverify.watch.applied import Applied, CheckpointTable, Marker, SettleTime
from migverify.watch.ledger import Ledger, place

SEED_PAGE = 1000
HEARTBEAT_SECONDS = 1.0
"""How often a silent source says that nothing was written."""


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """What is asked for.

    ``since`` is the run it starts from, ``resume`` a watch to go on with; at most one of them. ``at`` is the place to
    drain to, ``now`` for where the source stands when the watch begins, None to watch until stopped.
    """

    command: str
    since: str | None = None
    resume: str | None = None
    start: Position | None = None
    at: Position | str | None = None
    time_limit: float | None = None


def watch_tables(
    prepared: Prepared,
    config: Config,
    secrets: Secrets,
    store: ResultStore,
    request: WatchRequest,
    folder: Path,
    *,
    on_start: Callable[[str], None] = lambda _: None,
    on_status: Callable[[WatchStatus], None] = lambda _: None,
    stopped: threading.Event | None = None,
) -> WatchStatus:
    """TablesWatch what was prepared and return the last status.

    Parameters
    ----------
    folder
        Where ledgers lie: one file a watch, named by its run.
    stopped
        Set by whoever wants the watch to end after what it is doing.

    Raises
    ------
    PlanError
        the run to start from compared something else.
    UsageError
        the run to start from does not say where the source stood.
    ChangeError
        the stream cannot begin: purged, or the source writes no row binlog.
    """
    resumed = _resumed(prepared, store, request.resume) if request.resume is not None else None
    base = _base(prepared, store, request, resumed)
    if base is not None and base.plan_hash != prepared.digest:
        raise PlanError(f"run {base.run_id} compared something else: tables, routes or overrides changed",
                        hint="Verify with the configuration as it is, then watch --since that run.")  # fmt: skip
    run_id = resumed.run_id if resumed is not None else _new_run(prepared, store, request, base)
    on_start(run_id)
    pool = SessionPool(secrets)
    ledger = Ledger(folder / f"watch-{run_id}.db")
    started = time.time()
    try:
        watch = _make_watch(prepared, config, secrets, store, request, base, resumed, run_id, pool, ledger)
        # A ledger without a place was left by a watch that was killed before it read anything, perhaps in here.
        if base is not None and not ledger.progress():
            _seed(watch, store, base)
        watch.on_status = on_status
        stop = stopped.is_set if stopped is not None else lambda: False
        status = watch.run(stop)
        _record_end(watch, store, run_id, status, started)
        return status
    finally:
        pool.close()
        ledger.close()


def _resumed(prepared: Prepared, store: ResultStore, name: str) -> RunInfo:
    info = tables_run(store, name, prepared.digest, watch=True)
    if info.plan_hash != prepared.digest or not info.facts.get("watch"):
        raise PlanError(f"run {info.run_id} is no watch of this configuration", hint="Start a new watch.")
    store.resume_run(info.run_id)
    return info


def _base(prepared: Prepared, store: ResultStore, request: WatchRequest, resumed: RunInfo | None) -> RunInfo | None:
    """Return the verification that the watch keeps current: a watch that goes on has the one it began with."""
    if request.since:
        return tables_run(store, request.since, prepared.digest, watch=False)
    began_with = str(resumed.facts.get("since") or "") if resumed is not None else ""
    return store.load_run(began_with) if began_with else None


def _new_run(prepared: Prepared, store: ResultStore, request: WatchRequest, base: RunInfo | None) -> str:
    start = (request.start.gtids or str(request.start)) if request.start is not None else ""
    facts = {"watch": True, "since": base.run_id if base else "", "start": start, "endpoints": prepared.facts,
             "skipped": list(prepared.skipped)}  # fmt: skip
    return store.start_run(request.command, prepared.digest, prepared.stored(), facts, kind=StoredKind.TABLES)


def _make_watch(
    prepared: Prepared,
    config: Config,
    secrets: Secrets,
    store: ResultStore,
    request: WatchRequest,
    base: RunInfo | None,
    resumed: RunInfo | None,
    run_id: str,
    pool: SessionPool,
    ledger: Ledger,
) -> TablesWatch:
    pairs = list(prepared.pairs())
    marker = config.watch.marker if config.watch.applied == "marker" else None
    # The marker's own table goes another way: its rows are how the others are judged.
    watched = [
        w for number, pair in enumerate(pairs) for w in _watched(config, number, pair)
        if f"{w.database}.{w.table}" != marker
    ]  # fmt: skip
    starts = [_start(prepared, endpoint.name, request, base, resumed) for endpoint in config.sources]
    streams = [
        _stream(config, secrets, endpoint.name, start) for endpoint, start in zip(config.sources, starts, strict=True)
    ]
    started = _bases(store, base, pairs)
    until = None
    if request.at is not None:
        until = {}
        for number, stream in enumerate(streams):
            with pool.session(stream.endpoint) as session:
                until[number] = _place_of(request.at, stream, session)
    limits = WatchRules(config.watch.delay, config.watch.hot_seconds, until, request.time_limit)
    covered = {(w.database, w.table) for w in watched}
    return TablesWatch(
        watched, streams, ledger, store, run_id, pool, config.target,
        replace(rules_of(config), live=True), limits, started,
        lambda d, t: includes(config, d, t) and (d, t) not in covered and f"{d}.{t}" != marker,
        slots=max(1, min(e.connections for e in config.endpoints) - 1),
        replan=partial(_replan, config, secrets), known=_known(base or resumed, prepared, pairs),
        uncovered=[
            f"{p.source or p.target} is not watched: {p.not_covered[0].reason}"
            for p in pairs if not p.sources and marker not in (p.source, p.target)
        ],
        sweep=Sweep(config.watch.sweep_rows, [n for n, pair in enumerate(pairs) if sweepable(pair)]),
    )  # fmt: skip


def _watched(config: Config, number: int, pair: PairPlan) -> Iterator[Watched]:
    for side in pair.sources:
        before = override_for(config, side.database, side.table).immutable_before
        names = tuple(c.name[1:-1].replace("``", "`") for c in side.sql.key) if pair.readable else ()
        yield Watched(number, pair, side.endpoint.name, side.database, side.table, names, side.sql.key,
                      (before.column, before.value) if before else None)  # fmt: skip


def _start(
    prepared: Prepared, name: str, request: WatchRequest, base: RunInfo | None, resumed: RunInfo | None
) -> Position:
    """Return where a source's stream begins when the ledger does not know.

    A watch that was killed before its ledger knew begins where it began: from now on would leave out what was written
    meanwhile.
    """
    if request.start is not None:
        return request.start
    if resumed is not None and resumed.facts.get("start"):
        return parse_position(str(resumed.facts["start"]))
    if base is not None:
        return _position_of_run(base, name)
    if resumed is not None:
        return _position_of_run(resumed, name)
    # The catalogs were read at this position: a table made since then is seen in the stream.
    return parse_position(str(prepared.facts[name]["position"]))


def _stream(config: Config, secrets: Secrets, name: str, start: Position) -> Stream:
    endpoint = next(e for e in config.sources if e.name == name)

    def begin(position: Position | None) -> Iterator[Item]:
        return read_server(
            endpoint, secrets.get(name), position, follow=True, heartbeat_seconds=HEARTBEAT_SECONDS, any_table=True
        )

    marker = config.watch.marker if config.watch.applied == "marker" else None
    database, _, table = (marker or "").partition(".")
    return Stream(endpoint, begin, _head, _applied(config, name), start, (database, table) if marker else None)


def _applied(config: Config, name: str) -> Applied:
    settings = config.watch
    shard = name.partition(".")[2]
    if settings.applied == "checkpoint" and settings.checkpoint is not None:
        return CheckpointTable(settings.checkpoint, (settings.checkpoint_id or {}).get(shard))
    if settings.applied == "marker" and settings.marker is not None:
        database, _, table = settings.marker.partition(".")
        return Marker(settings.marker, ".".join(route(config, shard, database, table)), f"migverify {name}")
    return SettleTime(settings.settle_seconds)


def _head(session: Session) -> Position:
    return source_state(session).end


def _position_of_run(base: RunInfo, name: str) -> Position:
    text = str(base.facts.get("endpoints", {}).get(name, {}).get("position", ""))
    try:
        return parse_position(text)
    except UsageError as error:
        raise UsageError(
            f"run {base.run_id} does not say where {name} stood when it began ({text or 'nothing'})",
            hint="Start from a run that could read the source's binlog position (REPLICATION CLIENT).",
        ) from error


def _place_of(at: Position | str, stream: Stream, session: Session) -> int:
    if isinstance(at, str):
        return place(stream.head(session))
    if not at.file:
        raise UsageError("--at-position takes file and offset, as binlog.000003:1234, or `now`")
    return place(at)


def _bases(store: ResultStore, base: RunInfo | None, pairs: Sequence[PairPlan]) -> dict[int, Base]:
    if base is None:
        return {}
    results = {r.pair: r for r in store.table_results(base.run_id)}
    found = {}
    for number, pair in enumerate(pairs):
        result = results.get(pair.id)
        if result is None:
            found[number] = Base(base.run_id, Verdict.INCONCLUSIVE, "it was not verified in that run")
        else:
            found[number] = Base(base.run_id, result.verdict, "; ".join(result.reasons))
    return found


def _seed(watch: TablesWatch, store: ResultStore, base: RunInfo) -> None:
    """Put every row that the run left open into the ledger: it is read again until it is equal or stands."""
    states = [LiveState.DIVERGED.value, LiveState.HOT.value, LiveState.UNCONFIRMED.value]
    for watched in {w.number: w for w in watch.pairs}.values():
        if not watched.names:
            continue
        after = 0
        while page := store.row_diffs(base.run_id, watched.pair.id, states=states, after=after, limit=SEED_PAGE):
            after = page[-1][0]
            keys = {(watched.number, form_of(watched.key, d.key)): (1, 0, 0) for _, d in page}
            watch.ledger.touch(keys, {}, time.time(), origin=f"run {base.run_id}")


def _replan(config: Config, secrets: Secrets, watched: Sequence[Watched]) -> list[Watched]:
    """Plan the tables of one pair anew.

    Raises
    ------
    MigverifyError
        a server does not answer, or the tables are gone or cannot be compared.
    """
    number, pair_id = watched[0].number, watched[0].pair.id
    names = {(w.database, w.table) for w in watched}
    prepared = prepare(config, secrets, lambda database, table: (database, table) in names)
    pair = next((p for p in prepared.pairs() if p.id == pair_id), None)
    if pair is None or not pair.readable:
        why = f": {pair.not_covered[0].reason}" if pair is not None and pair.not_covered else ""
        raise PlanError(f"{pair_id} is not on both sides{why}", hint="Verify the tables again, and start a new watch.")
    fresh = list(_watched(config, number, pair))
    if {(w.endpoint, w.database, w.table) for w in fresh} != {(w.endpoint, w.database, w.table) for w in watched}:
        raise PlanError(f"{pair_id} is made of other tables now", hint="Verify them, and start a new watch.")
    return fresh


def _known(
    begun: RunInfo | None, prepared: Prepared, pairs: Sequence[PairPlan]
) -> dict[int, Mapping[str, TableIdentity]]:
    """Return which table each name meant when the rows were compared that the watch starts from, as far as is known."""
    if begun is None:
        return {number: prepared.identities.get(pair.id, {}) for number, pair in enumerate(pairs)}
    stored = {str(entry["id"]): entry.get("identities") for entry in begun.plan.get("pairs", [])}
    return {number: identities_of(stored[pair.id] or {}) for number, pair in enumerate(pairs) if stored.get(pair.id)}


def _record_end(watch: TablesWatch, store: ResultStore, run_id: str, status: WatchStatus, started: float) -> None:
    seconds = time.time() - started
    start = " ".join(str(s.start.gtids or s.start) for s in watch.streams if s.start is not None)
    by_source = {t.source: t for t in status.tables}
    for watched in {w.number: w for w in watch.pairs}.values():
        table = by_source[watched.pair.source]
        diffs = store.count_row_diffs(run_id, watched.pair.id)
        store.add_table_result(
            run_id, table_result(table, watched, watch.base.get(watched.number, Base()), diffs, seconds, start)
        )
    facts = {"seconds": seconds, "reasons": list(status.reasons), "findings": list(status.findings),
             "watch_sources": [f"{s.name}: read to {s.read}" for s in status.sources]}  # fmt: skip
    store.finish_run(run_id, status.verdict, facts)
