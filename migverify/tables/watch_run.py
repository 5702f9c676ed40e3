"""A watch from its beginning to its end in the store: what it watches, by which streams, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from migverify.changes.model import Position
from migverify.config import Config, includes
from migverify.config.reverse import ReverseSettings
from migverify.db.pool import SessionPool
from migverify.db.session import Session
from migverify.errors import PlanError, UsageError
from migverify.model import RunInfo, StoredKind
from migverify.sql.catalog import read_names
from migverify.store.results import ResultStore
from migverify.tables.handover import read_unread
from migverify.tables.last_status import LAST_STATUS, LastStatus
from migverify.tables.moving_rows import MovingRows
from migverify.tables.old_side import make_old_side
from migverify.tables.prepare import PreparedTables, prepare, rules_of
from migverify.tables.recheck import RESTS_ON_NOTHING, bases_of, proof_run, refuse_other, rests_on
from migverify.tables.run_facts import BEGAN, EXCLUDED, HAND_OVER, THROUGH, carried_from
from migverify.tables.sweep import Sweep, timed_sweep
from migverify.tables.tasks import PairPlan, Secrets
from migverify.tables.unseen_cascades import unseen_cascades
from migverify.tables.watch import TablesWatch
from migverify.tables.watch_begin import (
    identities_known,
    read_by_file,
    record_converged,
    seed,
    start_of,
)
from migverify.tables.watch_identity import Watched
from migverify.tables.watch_origin import FeedOrigin
from migverify.tables.watch_ranges import sweepable
from migverify.tables.watch_status import TablesStatus, WatchRules
from migverify.tables.watch_streams import (
    check_marker,
    clock_stream,
    column_types,
    feed_name,
    is_followed,
    marker_name,
    reverse_stream,
    stream_of,
    watched_pairs,
    watched_tables,
)
from migverify.tables.watch_versions import PastReads
from migverify.watch.collect import CatchUp
from migverify.watch.id_workers import InferWorkers
from migverify.watch.ledger import Ledger
from migverify.watch.run import DRAIN, WatchRun
from migverify.watch.stream import Stream


@dataclass(frozen=True, slots=True)
class TablesWatchRequest:
    """How a watch begins and ends.

    ``since`` is the run it starts from, ``resume`` a watch to go on with; at most one of them. ``at`` is the place to
    drain to, ``now`` for the source's end when the watch begins, None to watch until stopped. ``reverse``: the target
    is written, and the sources follow. ``sweep``: no changefeed is read; every range is compared again within so many
    minutes. ``infer_workers`` tells the layout of snowflake ids.
    """

    command: str
    since: str | None = None
    resume: str | None = None
    start: Position | None = None
    at: Position | str | None = None
    time_limit: float | None = None
    reverse: bool = False
    sweep: float | None = None
    infer_workers: InferWorkers = lambda _: None


def watch_tables(
    prepared: PreparedTables,
    config: Config,
    secrets: Secrets,
    store: ResultStore,
    request: TablesWatchRequest,
    folder: Path,
    *,
    on_start: Callable[[str], None] = lambda _: None,
    on_base: Callable[[str], None] = lambda _: None,
    on_status: Callable[[TablesStatus], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> TablesStatus:
    """Watch what was prepared and return the last status.

    Parameters
    ----------
    folder
        Where ledgers lie: one file a watch, named by its run.
    on_base
        Takes in words which run it rests on, or that it rests on none.
    stop
        Says that the watch is to end after what it is doing.

    Raises
    ------
    PlanError
        the run to start from compared something else.
    UsageError
        the run to start from does not say where the source stood.
    ChangeError
        the stream cannot begin: purged, or the source writes no row binlog.
    """
    run = WatchRun(
        store, StoredKind.TABLES, "watch", prepared.digest, prepared.stored(), request.reverse, prepared.owns
    )
    resumed = run.resume(request.resume) if request.resume is not None else None
    base = _base(prepared, store, request, resumed)
    if base is not None:
        hint = "Verify with the configuration as it is, then watch --since that run."
        refuse_other(base, prepared.digest, hint)
    began = carried_from(store, base) if base is not None else []
    if resumed is None:
        if sweep_minutes(config, request, None) is None:
            for endpoint in [config.target] if request.reverse else config.sources:
                start_of(prepared, endpoint.name, request.start, began, None)  # refused before there is a run
        start = (request.start.gtids or str(request.start)) if request.start is not None else ""
        run.start(request.command, {
            "watch": True, "since": base.run_id if base else "", "start": start, "endpoints": prepared.facts,
            "skipped": list(prepared.skipped), **({EXCLUDED: list(prepared.excluded)} if prepared.excluded else {}),
            "reverse": request.reverse, DRAIN: request.at is not None,
            **({"sweep": minutes} if (minutes := sweep_minutes(config, request, None)) else {}),
        })  # fmt: skip
    on_start(run.run_id)
    if base is not None or sweep_minutes(config, request, resumed) is None:
        on_base(RESTS_ON_NOTHING if base is None else rests_on(base))
    with (
        run.interruptible(), closing(SessionPool(secrets)) as pool,
        closing(Ledger(folder / f"watch-{run.run_id}.db")) as ledger,
    ):  # fmt: skip
        watch = _make_watch(prepared, config, secrets, request, began, resumed, run, pool, ledger)
        # A ledger without a place was left by a watch that was killed before it read anything, perhaps in here.
        if base is not None and not ledger.progress():
            seed(watch.pairs, ledger, store, base)
        if base is not None and base.facts.get("watch") and not base.facts.get("reverse") and not ledger.progress():
            unread = read_unread(config, secrets, base, watched_pairs(config, list(prepared.pairs())), pool, ledger)
            ledger.keep(HAND_OVER, unread.as_text(base.run_id))
        if resumed is not None:
            record_converged(watch.pairs, ledger, store, run.run_id)
        watch.on_status, watch.scope = on_status, prepared.scope
        status = watch.run(stop)
        _record_end(watch, run, status, prepared)
        return status


def _base(
    prepared: PreparedTables, store: ResultStore, request: TablesWatchRequest, resumed: RunInfo | None
) -> RunInfo | None:
    """Return the verification that the watch keeps current: a watch that goes on has the one it began with."""
    if request.since:
        watches: Literal["none", "proved"] = "proved" if request.reverse else "none"
        return proof_run(store, request.since, prepared.digest, watches=watches, is_own=prepared.owns)
    began_with = str(resumed.facts.get("since") or "") if resumed is not None else ""
    return store.load_run(began_with) if began_with else None


def _make_watch(
    prepared: PreparedTables, config: Config, secrets: Secrets, request: TablesWatchRequest,
    began: Sequence[RunInfo], resumed: RunInfo | None, run: WatchRun, pool: SessionPool, ledger: Ledger,
) -> TablesWatch:  # fmt: skip
    pairs, reverse = list(prepared.pairs()), request.reverse
    marker, watched = marker_name(config, reverse=reverse), watched_pairs(config, pairs, reverse=reverse)
    minutes = sweep_minutes(config, request, resumed)
    numbers = [n for n in sorted({w.number for w in watched}) if sweepable(pairs[n])]
    sweep = Sweep(config.watch.sweep_rows, numbers)
    if minutes is not None:
        sweep = timed_sweep({n: pairs[n].rows for n in numbers}, minutes, config.watch.sweep_rows)
    begun = began or ([resumed] if resumed is not None else [])
    if minutes is not None:
        streams = [clock_stream(config, secrets, run.run_id)]
    elif reverse:
        start = start_of(prepared, config.target.name, request.start, began, resumed)
        types = column_types(pool, config.target, [(w.database, w.table) for w in watched])
        streams = [reverse_stream(config, start, run.run_id, secrets, types)]
    else:
        starts = {e: start_of(prepared, e.name, request.start, began, resumed) for e in config.sources}
        streams = [stream_of(config, secrets, endpoint, start, run.run_id) for endpoint, start in starts.items()]
    catch_up: dict[int, CatchUp] = {}
    if not reverse:
        catch_up = read_by_file(
            streams, watched, None if request.start else next(reversed(began), None), pool, secrets, ledger
        )
    old_side, blind_spots = None, []
    if reverse and minutes is None:
        old_side = make_old_side(config, secrets, watched, streams[0], pool, ledger, request.infer_workers)
        blind_spots = [] if config.watch.sweep_rows else unseen_cascades(config, watched, pool)
    until = None
    if request.at is not None:
        if minutes is not None and not isinstance(request.at, str):
            raise UsageError("a sweep is drained to the end now: without a changefeed no other place is known")
        until = {number: _until(request.at, stream, pool) for number, stream in enumerate(streams)}
    if reverse:
        check_marker(streams[0], config.sources, pool)
    limits = WatchRules(
        config.watch.delay,
        config.watch.hot_seconds,
        until,
        request.time_limit,
        reverse,
        is_as_of=reverse or isinstance(request.at, Position),
    )
    covered = {(w.database, w.table) for w in watched}
    in_scope = partial(is_followed, config, pairs) if reverse else partial(includes, config)
    return TablesWatch(
        watched, streams, ledger, run.store, run.run_id, pool, config.sources if reverse else [config.target],
        config.target, replace(rules_of(config), live=True), limits, bases_of(run.store, began, pairs),
        lambda d, t: in_scope(d, t) and (d, t) not in covered and f"{d}.{t}" != marker,
        # A sweep asks for the time on one connection, and holds a moment of a final pass on another.
        slots=max(1, min(e.connections for e in config.endpoints) - (1 if minutes is None else 3)),
        replan=partial(replanned, config, secrets, reverse=reverse), known=identities_known(begun, prepared, pairs),
        uncovered=[
            *prepared.hidden,
            *(f"{p.source or p.target} is not watched: {p.not_covered[0].reason}"
              for p in pairs if not p.sources and marker not in (p.source, p.target)),
            *(f"{p.id} is not swept: it has no key by which both sides can be cut alike"
              for p in pairs if minutes is not None and p.readable and not sweepable(p)),
        ],
        sweep=sweep, catch_up=catch_up, past=None if minutes is None else _past_reads(config, secrets, pool),
        old_side=old_side, origin=_origin(config, streams[0], pool, ledger) if reverse and minutes is None else None,
        new_tables=partial(_new_tables, pairs, in_scope, marker) if reverse and minutes is None else None,
        moving=MovingRows(_past_reads(config, secrets, pool), ledger) if reverse and minutes is None else None,
        blind_spots=blind_spots,
    )  # fmt: skip


def sweep_minutes(config: Config, request: TablesWatchRequest, resumed: RunInfo | None) -> float | None:
    """Return in how many minutes each range is compared again; None where a stream shows what is written.

    Raises
    ------
    UsageError
        the target is not what is written, or its changefeed is configured.
    """
    settings = config.reverse
    carried = settings is not None and settings.carrier is not None
    if request.sweep is not None and not request.reverse:
        raise UsageError("--sweep is for the reverse direction, where no changefeed shows what is written",
                         hint="Add --reverse; forward, set watch.sweep_rows.")  # fmt: skip
    if request.sweep is not None and carried:
        raise UsageError("reverse.carrier names a changefeed, and --sweep is for a target without one",
                         hint="Leave --sweep away; watch.sweep_rows sweeps beside the changefeed.")  # fmt: skip
    began_with = resumed.facts.get("sweep") if resumed is not None else None
    minutes = None
    if request.reverse and not carried:
        minutes = request.sweep or (settings.sweep_minutes if settings is not None else None) or began_with
    if resumed is not None and bool(began_with) != bool(minutes):
        # The ledger of a sweep holds the time of the target, not a place up to which changes were read.
        way = "in rounds over the tables" if began_with else "with the changes of a stream"
        raise UsageError(f"watch {resumed.run_id} began {way}, and cannot go on otherwise", hint="Start a new watch.")
    return minutes


def _origin(config: Config, stream: Stream, pool: SessionPool, ledger: Ledger) -> FeedOrigin | None:
    """Return how it is learned whether the changefeed is the target's; None where its marker shows it."""
    if stream.applied.writes or config.reverse is None or config.reverse.carrier is None:
        return None
    return FeedOrigin(pool, replace(rules_of(config), live=True), feed_name(config.reverse.carrier), ledger)


def _new_tables(
    pairs: Sequence[PairPlan], in_scope: Callable[[str, str], bool], marker: str | None, session: Session
) -> Sequence[tuple[str, str]]:
    """Return the target's tables that should have a pair, and that no pair or reason of the start names."""
    known = {pair.target for pair in pairs} | {marker}
    return [name for name in read_names(session, in_scope).tables if ".".join(name) not in known]


def _past_reads(config: Config, secrets: Secrets, pool: SessionPool) -> PastReads:
    settings, target = config.reverse or ReverseSettings(), config.target
    rules = replace(rules_of(config), live=True)
    return PastReads(pool, target, secrets.get(target.name), rules, settings.settle_seconds)


def _until(at: Position | str, stream: Stream, pool: SessionPool) -> int:
    if isinstance(at, str):
        with pool.session(stream.endpoint) as session:
            return stream.changes.ordinal(stream.changes.head(session))
    if not at.file:
        raise UsageError("--at-position takes file and offset, as binlog.000003:1234, or `now`")
    return stream.changes.ordinal(at)


def replanned(config: Config, secrets: Secrets, watched: Sequence[Watched], *, reverse: bool = False) -> list[Watched]:
    """Plan the tables of one pair anew.

    Raises
    ------
    MigverifyError
        a server does not answer, or the tables are gone or cannot be compared.
    """
    number, pair_id = watched[0].number, watched[0].pair.id
    names = {(side.database, side.table) for side in watched[0].pair.sources}
    prepared = prepare(config, secrets, lambda database, table: (database, table) in names)
    pair = next((p for p in prepared.pairs() if p.id == pair_id), None)
    if pair is None or not pair.readable:
        why = f": {pair.not_covered[0].reason}" if pair is not None and pair.not_covered else ""
        raise PlanError(f"{pair_id} is not on both sides{why}", hint="Verify the tables again, and start a new watch.")
    fresh = list(watched_tables(config, number, pair, reverse=reverse))
    if {(w.endpoint, w.database, w.table) for w in fresh} != {(w.endpoint, w.database, w.table) for w in watched}:
        raise PlanError(f"{pair_id} is made of other tables now", hint="Verify them, and start a new watch.")
    return fresh


def _record_end(watch: TablesWatch, run: WatchRun, status: TablesStatus, prepared: PreparedTables) -> None:
    start = " ".join(str(s.start.gtids or s.start) for s in watch.streams if s.start is not None)
    for result in watch.results(status, run.seconds, start):
        run.store.add_table_result(run.run_id, result)
    # A sweep read no changes, so none were read up to a place.
    read = [s for s in watch.sources if s.position is not None and watch.past is None]
    run.end(status, {
        "findings": list(status.findings),
        "watch_sources": [f"{s.name}: read to {s.read or 'no place yet'}" for s in status.sources],
        THROUGH: {s.stream.endpoint.name: asdict(s.position) for s in read if s.position is not None},
        BEGAN: {name: facts["position"] for name, facts in prepared.facts.items()},
        LAST_STATUS: LastStatus.of(status).as_text(),
        **({"old_side": asdict(status.old_side)} if status.old_side is not None else {}),
    })  # fmt: skip
