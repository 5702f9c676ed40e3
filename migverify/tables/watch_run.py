"""A watch from its beginning to its end in the store: what it starts from, what it watches, how it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from migverify.changes.model import Position
from migverify.changes.positions import parse_position
from migverify.changes.server import log_begun, refuse_incomplete, source_state
from migverify.config import Config, includes
from migverify.config.reverse import ReverseSettings
from migverify.db.pool import SessionPool
from migverify.db.server_state import binary_logs
from migverify.db.session import Session
from migverify.errors import ChangeError, PlanError, UsageError
from migverify.model import LiveState, RunInfo, StoredKind
from migverify.sql.identity import TableIdentity
from migverify.store.results import ResultStore
from migverify.tables.handover import HAND_OVER, THROUGH, read_unread
from migverify.tables.last_status import LAST_STATUS, LastStatus
from migverify.tables.old_side import make_old_side
from migverify.tables.prepare import PreparedTables, prepare, rules_of
from migverify.tables.recheck import (
    bases_of,
    carried_from,
    newest_plans,
    planned_pairs,
    proof_run,
    refuse_other,
    rests_on,
)
from migverify.tables.sweep import Sweep, timed_sweep
from migverify.tables.tasks import PairPlan, Secrets
from migverify.tables.watch import TablesWatch
from migverify.tables.watch_identity import Watched, identities_of
from migverify.tables.watch_ranges import sweepable
from migverify.tables.watch_status import TablesStatus, WatchRules
from migverify.tables.watch_streams import (
    BEGAN,
    clock_stream,
    column_types,
    is_followed,
    marker_name,
    position_of_run,
    reverse_stream,
    stream_of,
    watched_pairs,
    watched_tables,
)
from migverify.tables.watch_versions import PastReads
from migverify.watch.collect import CatchUp
from migverify.watch.ledger import BY_FILE, NO_PAIR, OTHER_SERVER, Ledger
from migverify.watch.run import DRAIN, WatchRun
from migverify.watch.stream import Stream
from migverify.watch.touched import form_of

SEED_PAGE = 1000
CATCH_UP = "catch up"
"""Kind of the ledger's notes of sources whose binlog is to be read from a run's place in the file on."""


@dataclass(frozen=True, slots=True)
class TablesWatchRequest:
    """How a watch begins and ends.

    ``since`` is the run it starts from, ``resume`` a watch to go on with; at most one of them. ``at`` is the place to
    drain to, ``now`` for the source's end when the watch begins, None to watch until stopped. ``reverse``: the target
    is written, and the sources follow. ``sweep``: no changefeed is read; every range is compared again within so many
    minutes.
    """

    command: str
    since: str | None = None
    resume: str | None = None
    start: Position | None = None
    at: Position | str | None = None
    time_limit: float | None = None
    reverse: bool = False
    sweep: float | None = None


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
        Takes in words which run it rests on.
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
    run = WatchRun(store, StoredKind.TABLES, "watch", prepared.digest, prepared.stored(), request.reverse)
    resumed = run.resume(request.resume) if request.resume is not None else None
    base = _base(prepared, store, request, resumed)
    if base is not None:
        hint = "Verify with the configuration as it is, then watch --since that run."
        refuse_other(base, prepared.digest, hint)
    if resumed is None:
        start = (request.start.gtids or str(request.start)) if request.start is not None else ""
        run.start(request.command, {
            "watch": True, "since": base.run_id if base else "", "start": start, "endpoints": prepared.facts,
            "skipped": list(prepared.skipped), "reverse": request.reverse, DRAIN: request.at is not None,
            **({"sweep": minutes} if (minutes := sweep_minutes(config, request, None)) else {}),
        })  # fmt: skip
    on_start(run.run_id)
    if base is not None:
        on_base(rests_on(base))
    with (
        run.interruptible(), closing(SessionPool(secrets)) as pool,
        closing(Ledger(folder / f"watch-{run.run_id}.db")) as ledger,
    ):  # fmt: skip
        watch = _make_watch(prepared, config, secrets, request, base, resumed, run, pool, ledger)
        # A ledger without a place was left by a watch that was killed before it read anything, perhaps in here.
        if base is not None and not ledger.progress():
            _seed(watch, store, base)
        if base is not None and base.facts.get("watch") and not base.facts.get("reverse") and not ledger.progress():
            unread = read_unread(config, secrets, base, watched_pairs(config, list(prepared.pairs())), pool, ledger)
            ledger.keep(HAND_OVER, unread.as_text(base.run_id))
        if resumed is not None:
            record_converged(watch.pairs, ledger, store, run.run_id)
        watch.on_status = on_status
        status = watch.run(stop)
        _record_end(watch, run, status, prepared)
        return status


def _base(
    prepared: PreparedTables, store: ResultStore, request: TablesWatchRequest, resumed: RunInfo | None
) -> RunInfo | None:
    """Return the verification that the watch keeps current: a watch that goes on has the one it began with."""
    if request.since:
        return proof_run(store, request.since, prepared.digest, watches="proved" if request.reverse else "none")
    began_with = str(resumed.facts.get("since") or "") if resumed is not None else ""
    return store.load_run(began_with) if began_with else None


def _make_watch(
    prepared: PreparedTables, config: Config, secrets: Secrets, request: TablesWatchRequest, base: RunInfo | None,
    resumed: RunInfo | None, run: WatchRun, pool: SessionPool, ledger: Ledger,
) -> TablesWatch:  # fmt: skip
    pairs, reverse = list(prepared.pairs()), request.reverse
    marker, watched = marker_name(config, reverse=reverse), watched_pairs(config, pairs, reverse=reverse)
    minutes = sweep_minutes(config, request, resumed)
    numbers = [n for n in sorted({w.number for w in watched}) if sweepable(pairs[n])]
    sweep = Sweep(config.watch.sweep_rows, numbers)
    if minutes is not None:
        sweep = timed_sweep({n: pairs[n].rows for n in numbers}, minutes, config.watch.sweep_rows)
    began = carried_from(run.store, base) if base is not None else []
    begun = began or ([resumed] if resumed is not None else [])
    if minutes is not None:
        streams = [clock_stream(config, secrets, run.run_id)]
    elif reverse:
        start = _start(prepared, config.target.name, request, began, resumed)
        types = column_types(pool, config.target, [(w.database, w.table) for w in watched])
        streams = [reverse_stream(config, start, run.run_id, secrets, types)]
    else:
        streams = [
            stream_of(config, secrets, endpoint, _start(prepared, endpoint.name, request, began, resumed))
            for endpoint in config.sources
        ]
    catch_up: dict[int, CatchUp] = {}
    if not reverse:
        catch_up = _read_by_file(
            streams, watched, None if request.start else next(reversed(began), None), pool, secrets, ledger
        )
    old_side = None
    if reverse and minutes is None:
        old_side = make_old_side(config, secrets, watched, streams[0], pool, ledger)
    until = None
    if request.at is not None:
        if minutes is not None and not isinstance(request.at, str):
            raise UsageError("a sweep is drained to the end now: without a changefeed no other place is known")
        until = {number: _until(request.at, stream, pool) for number, stream in enumerate(streams)}
    limits = WatchRules(config.watch.delay, config.watch.hot_seconds, until, request.time_limit, reverse)
    covered = {(w.database, w.table) for w in watched}
    in_scope = partial(is_followed, config, pairs) if reverse else partial(includes, config)
    return TablesWatch(
        watched, streams, ledger, run.store, run.run_id, pool, config.sources if reverse else [config.target],
        config.target, replace(rules_of(config), live=True), limits, bases_of(run.store, began, pairs),
        lambda d, t: in_scope(d, t) and (d, t) not in covered and f"{d}.{t}" != marker,
        # A sweep asks for the time on one connection, and holds a moment of a final pass on another.
        slots=max(1, min(e.connections for e in config.endpoints) - (1 if minutes is None else 3)),
        replan=partial(replanned, config, secrets, reverse=reverse), known=_known(begun, prepared, pairs),
        uncovered=[
            *prepared.hidden,
            *(f"{p.source or p.target} is not watched: {p.not_covered[0].reason}"
              for p in pairs if not p.sources and marker not in (p.source, p.target)),
            *(f"{p.id} is not swept: it has no key by which both sides can be cut alike"
              for p in pairs if minutes is not None and p.readable and not sweepable(p)),
        ],
        sweep=sweep, catch_up=catch_up, past=None if minutes is None else _past_reads(config, secrets, pool),
        old_side=old_side,
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


def _past_reads(config: Config, secrets: Secrets, pool: SessionPool) -> PastReads:
    settings, target = config.reverse or ReverseSettings(), config.target
    rules = replace(rules_of(config), live=True)
    return PastReads(pool, target, secrets.get(target.name), rules, settings.settle_seconds)


def _read_by_file(
    streams: Sequence[Stream], watched: Sequence[Watched], base: RunInfo | None, pool: SessionPool, secrets: Secrets,
    ledger: Ledger,
) -> dict[int, CatchUp]:  # fmt: skip
    """Refuse binlogs that leave out a watched database, and return what of them is read by file as well."""
    found: dict[int, CatchUp] = {}
    for number, stream in enumerate(streams):
        with pool.session(stream.endpoint) as session:
            refuse_incomplete(session, {w.database for w in watched if w.endpoint == stream.endpoint.name})
            rest = None if base is None else _catch_up(base, stream, session, secrets, ledger)
            if rest is not None:
                found[number] = rest
    return found


def _start(
    prepared: PreparedTables, name: str, request: TablesWatchRequest, base: Sequence[RunInfo], resumed: RunInfo | None
) -> Position:
    """Return where a source's stream begins when the ledger does not know.

    A watch that was killed before its ledger knew begins where it began: from now on would leave out what was written
    meanwhile.
    """
    if request.start is not None:
        return request.start
    if resumed is not None and resumed.facts.get("start"):
        return parse_position(str(resumed.facts["start"]))
    began = base or ([resumed] if resumed is not None else [])
    if began:
        return position_of_run(began, name)
    # The catalogs were read at this position: a table made since then is seen in the stream.
    return parse_position(str(prepared.facts[name]["position"]))


def place_of_run(run: RunInfo, session: Session, password: str | None) -> Position:
    """Return file and offset at which a run began, of a binlog that goes on from there.

    Raises
    ------
    ChangeError
        the binlog may not show every write since: another server, a file that is gone or was begun anew.
    """
    endpoint = session.endpoint
    facts = _place_facts(run, endpoint.name)
    if not all(facts.get(name) for name in ("binlog", "server", "clock")):
        raise ChangeError(f"run {run.run_id} did not keep file and server of its position on {endpoint.name}")
    server = source_state(session).server
    if server != facts["server"]:
        raise ChangeError(f"{endpoint.name} is another server now ({server}, was {facts['server']})")
    at = parse_position(facts["binlog"])
    if at.file not in {log.name for log in binary_logs(session)}:
        raise ChangeError(f"{endpoint.name} does not have {at.file} any more")
    if log_begun(endpoint, password, at.file) > float(facts["clock"]):
        raise ChangeError(f"{endpoint.name}: {at.file} was begun after run {run.run_id} (RESET)")
    return at


def _place_facts(run: RunInfo, name: str) -> Mapping[str, str]:
    facts: Mapping[str, str] = run.facts.get("endpoints", {}).get(name, {})
    return facts


def _catch_up(run: RunInfo, stream: Stream, session: Session, secrets: Secrets, ledger: Ledger) -> CatchUp | None:
    """Return what is read by file as well, beside the stream, which follows a set of GTIDs from the run on.

    A transaction without a GTID follows no set, and a set that began again (RESET) may hold the numbers of others. None
    where it was read, and where the stream follows file and offset itself.

    Raises
    ------
    ChangeError
        the same server no longer has the place of the run.
    """
    notes = [(kind, text) for number, kind, text in ledger.notes() if number == NO_PAIR]
    name = stream.endpoint.name
    is_new = not ledger.progress()
    if (BY_FILE, name) in notes or not (is_new or (CATCH_UP, name) in notes):
        return None
    if stream.start is None or not stream.start.gtids:
        return None
    known = _place_facts(run, name)
    if not known.get("server") or source_state(session).server != known["server"]:
        # A failover, or a run of an earlier release: what follows the set is all that can be known.
        text = (
            f"{name}: only transactions with a GTID are followed from run {run.run_id}, as it was another server then"
        )
        ledger.note(NO_PAIR, OTHER_SERVER, text)
        return None
    try:
        begin = place_of_run(run, session, secrets.get(name))
    except ChangeError as error:
        raise ChangeError(error.message, hint="Verify the tables again, and watch --since that run.") from error
    ledger.note(NO_PAIR, CATCH_UP, name)
    return CatchUp(begin, stream.changes.ordinal(stream.changes.head(session)))


def _until(at: Position | str, stream: Stream, pool: SessionPool) -> int:
    if isinstance(at, str):
        with pool.session(stream.endpoint) as session:
            return stream.changes.ordinal(stream.changes.head(session))
    if not at.file:
        raise UsageError("--at-position takes file and offset, as binlog.000003:1234, or `now`")
    return stream.changes.ordinal(at)


def _seed(watch: TablesWatch, store: ResultStore, base: RunInfo) -> None:
    """Put every row that the run left open into the ledger: it is read again until it is equal or diverged."""
    states = [LiveState.DIVERGED.value, LiveState.HOT.value, LiveState.UNCONFIRMED.value]
    runs = newest_plans(carried_from(store, base))
    for watched in {w.number: w for w in watch.pairs}.values():
        run = runs.get(watched.pair.id)
        if not watched.names or run is None:
            continue
        after = 0
        while page := store.row_diffs(run.run_id, watched.pair.id, states=states, after=after, limit=SEED_PAGE):
            after = page[-1][0]
            keys = {(watched.number, form_of(watched.key, d.key)): (1, 0, 0) for _, d in page}
            watch.ledger.touch(keys, {}, time.time(), origin=f"run {run.run_id}")


def record_converged(pairs: Sequence[Watched], ledger: Ledger, store: ResultStore, run_id: str) -> None:
    """Record as converged what the store holds as diverged and the ledger does not.

    The ledger is written first: a watch that was killed between the two had proved these keys, and no later read of
    them would tell the store.
    """
    for watched in {w.number: w for w in pairs if w.names}.values():
        after = 0
        states = [LiveState.DIVERGED.value]
        while page := store.row_diffs(run_id, watched.pair.id, states=states, after=after, limit=SEED_PAGE):
            after = page[-1][0]
            keys = {form_of(watched.key, diff.key): diff for _, diff in page}
            still = ledger.diverged_among(watched.number, list(keys))
            gone = [replace(diff, state=LiveState.CONVERGED) for key, diff in keys.items() if key not in still]
            if gone:
                store.add_row_diffs(run_id, gone)


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


def _known(
    begun: Sequence[RunInfo], prepared: PreparedTables, pairs: Sequence[PairPlan]
) -> dict[int, Mapping[str, TableIdentity]]:
    """Return which table each name meant when the rows were compared that the watch starts from, as far as is known."""
    if not begun:
        return {number: prepared.identities.get(pair.id, {}) for number, pair in enumerate(pairs)}
    plans = newest_plans(begun)
    stored = {pair: planned_pairs(run)[pair].get("identities") for pair, run in plans.items()}
    return {number: identities_of(stored[pair.id] or {}) for number, pair in enumerate(pairs) if stored.get(pair.id)}


def _record_end(watch: TablesWatch, run: WatchRun, status: TablesStatus, prepared: PreparedTables) -> None:
    start = " ".join(str(s.start.gtids or s.start) for s in watch.streams if s.start is not None)
    for result in watch.results(status, run.seconds, start):
        run.store.add_table_result(run.run_id, result)
    # A sweep read no changes, so none were read up to a place.
    read = [s for s in watch.sources if s.position is not None and watch.past is None]
    run.end(status, {
        "findings": list(status.findings), "watch_sources": [f"{s.name}: read to {s.read}" for s in status.sources],
        THROUGH: {s.stream.endpoint.name: asdict(s.position) for s in read if s.position is not None},
        BEGAN: {name: facts["position"] for name, facts in prepared.facts.items()},
        LAST_STATUS: LastStatus.of(status).as_text(),
        **({"old_side": asdict(status.old_side)} if status.old_side is not None else {}),
    })  # fmt: skip
