"""Reads what the standing conditions are judged by: servers by the guard of settings, the store, and ledgers.

Reads are independent: one that fails leaves its own conditions unknown, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial

from migverify.changes.model import Position
from migverify.changes.positions import parse_position
from migverify.changes.server import log_begun
from migverify.config import Config, comparison_digest
from migverify.db.server_state import binary_logs
from migverify.db.session import open_session
from migverify.errors import EndpointError, MigverifyError
from migverify.guards import keep
from migverify.guards.capacity import NAME as CAPACITY
from migverify.guards.check import CheckGuard
from migverify.guards.check_read import CheckPlan
from migverify.guards.check_table import chosen
from migverify.guards.lacking import lacking_grants
from migverify.guards.model import GuardAnswer
from migverify.guards.schema_keep import layouts_of
from migverify.guards.schema_model import Snapshot
from migverify.guards.scope import CONFIGURATION, Scope
from migverify.model import Endpoint, Flavor, RunInfo, StoredKind, Verdict
from migverify.runbook.history.readiness import Condition
from migverify.runbook.readiness import standing
from migverify.runbook.readiness.standing import DAY, LackingOf, LastProof, LogPlace
from migverify.secrets import resolve_password
from migverify.sql.identity import TableIdentity, read_identities
from migverify.store.results import RUNS_SEARCHED, ResultStore
from migverify.tables.directions import WatchView, both_directions
from migverify.tables.run_facts import (
    ALL_TABLES,
    CHOSEN,
    carried_from,
    compared_with_itself,
    endpoint_addresses,
    is_of_other_servers,
    newer_differences,
    pair_addresses,
    planned_pairs,
    position_of_run,
    proof_scope,
    run_in,
    whole_reads,
)
from migverify.tables.watch_identity import identities_of
from migverify.watch.ledger import ledger_folder
from migverify.watch.ledger_read import read_positions

__all__ = ["StandingLimits", "newest_proof", "standing_conditions"]


_OF_STORE = ("capacity", "watch", "proof", "tables", "retention")


@dataclass(frozen=True, slots=True)
class StandingLimits:
    """What counts as late: ages and lag in seconds; ``grants_for`` are the commands whose grants are needed."""

    proof_age: float
    watch_lag: float
    grants_for: Sequence[str] = ()


def standing_conditions(
    config: Config, open_store: Callable[[], ResultStore], limits: StandingLimits, now: Callable[[], float],
    definitions: Callable[[], Snapshot],
) -> Iterator[Condition]:  # fmt: skip
    """Yield the conditions of servers and store; ``definitions`` reads those of now."""
    answers, problem = _settings(config)
    for id_ in ("servers", "limits", "certificate"):
        yield standing.unknown(id_, problem) if problem else standing.answered(id_, answers)
    yield _tried("grants", lambda: standing.grants(list(_lacking(config, limits.grants_for))))
    try:
        store = open_store()
    except (MigverifyError, OSError) as error:
        yield from (standing.unknown(id_, _reason(error)) for id_ in _OF_STORE)
        return
    with closing(store):
        yield _tried("capacity", lambda: _capacity(config, store, now(), config.decision.max_age_days * DAY))
        yield _tried("watch", lambda: standing.watch(_forward(config, store), now(), limits.watch_lag))
        proof = cache(partial(newest_proof, config, store))  # two conditions are about it
        yield _tried("proof", lambda: standing.proof(proof(), now(), limits.proof_age))
        yield _tried("tables", lambda: _tables(config, proof(), definitions))
        yield _tried("retention", lambda: _retention(config, store, answers, problem, now()))


def _tried(id_: str, judge: Callable[[], Condition]) -> Condition:
    try:
        return judge()
    except (MigverifyError, OSError, ValueError) as error:  # a run of another release keeps what it read otherwise
        return standing.unknown(id_, _reason(error), error.hint if isinstance(error, MigverifyError) else "")


def _reason(error: Exception) -> str:
    return error.headline if isinstance(error, MigverifyError) else str(error)


def _settings(config: Config) -> tuple[tuple[GuardAnswer, ...], str]:
    """Return the answers of the guard of settings that conditions are made of, or why there are none."""
    names = [name for _, questions, _ in standing.ANSWERED.values() for name in questions]
    questions, _ = chosen(only=names)
    plan = CheckPlan(config.limits.run_seconds, (), config.watch.marker, config.watch.checkpoint)
    try:
        return CheckGuard(Scope.of(config), plan, questions, begun=log_begun).ask().answers, ""
    except (MigverifyError, OSError) as error:
        return (), _reason(error)


def _lacking(config: Config, commands: Sequence[str]) -> Iterator[LackingOf]:
    for endpoint in config.endpoints:
        try:
            one = lacking_grants(config, endpoint, commands)
        except (MigverifyError, OSError) as error:
            yield LackingOf(endpoint.name, problem=_reason(error))
        else:
            yield LackingOf(endpoint.name, one.account, one.privileges, one.statements)


def _tables(config: Config, newest: LastProof | None, definitions: Callable[[], Snapshot]) -> Condition:
    if newest is None:
        return standing.tables(newest, {})
    now = definitions()
    return standing.tables(newest, now.layouts(), dict(_identities(config, now)))


def _identities(config: Config, definitions: Snapshot) -> Iterator[tuple[str, TableIdentity]]:
    """Yield which table each name means now."""
    for endpoint in config.endpoints:
        side = definitions.side(endpoint.name)
        names = [(one.table.ref.database, one.table.ref.table) for one in side.tables] if side is not None else []
        with open_session(replace(endpoint, snapshot=None), resolve_password(endpoint).reveal() or None) as session:
            for (database, table), identity in read_identities(session, names).items():
                yield f"{endpoint.name}/{database}.{table}", identity


def _capacity(config: Config, store: ResultStore, now: float, max_age: float) -> Condition:
    runs, digest = list(keep.earlier(store, CAPACITY, pair_addresses(config))), comparison_digest(config)
    own = [run for run in runs if run.facts.get(CONFIGURATION) == digest]  # another service may be on these servers
    last = next(iter(own or runs), None)
    if last is None:
        return standing.capacity(None, None, now, max_age)
    answers = list(keep.answers(store, last.run_id, CAPACITY))
    asked = max((one.local_time for one in answers), default=last.started)
    return standing.capacity(answers, asked, now, max_age)


def _forward(config: Config, store: ResultStore) -> WatchView | None:
    found = both_directions(config, comparison_digest(config), store, ledger_folder(config))
    return None if found is None else found.forward


def newest_proof(config: Config, store: ResultStore) -> LastProof | None:
    """Return the newest verification of all tables; one of some tables (``--tables``) is none."""
    run = _proof_run(config, store)
    if run is None or run.finished is None:
        return None
    chain = carried_from(store, store.load_run(run.run_id))
    layouts: dict[str, str] = {}
    identities: dict[str, TableIdentity] = {}
    for one in reversed(chain):  # a recheck read some of the tables again
        layouts |= layouts_of(one.plan) or {}
        for entry in planned_pairs(one).values():
            identities |= identities_of(entry.get("identities") or {})
    differs = tuple(_newer_differences(store, chain)) if run.verdict is Verdict.MATCH else ()
    # A run that was resumed may have read a table long before its end.
    left_out, began = proof_scope(chain).left_out, min(one.started for one in chain)
    return LastProof(run.run_id, run.verdict, began, differs, layouts, left_out, identities)


def _newer_differences(store: ResultStore, chain: Sequence[RunInfo]) -> Iterator[str]:
    """Yield the runs, quick answers too, whose differences a proof does not refute: it read the table whole before.

    ``chain`` is the proof and the runs whose equal chunks it holds. An earlier recheck of the same runs is refuted by
    the proof: both read what was open then. Runs of other servers (staging in the same store) say nothing of it.
    """
    proof, of_proof = chain[0], {one.run_id for one in chain}
    reads = whole_reads(store, chain)
    runs_read = {id_: run_in(store, id_) for id_ in set(reads.values())}
    never = float("-inf")
    read = {pair: never if (one := runs_read[id_]) is None else one.started for pair, id_ in reads.items()}
    runs = store.runs(RUNS_SEARCHED)
    for run, pairs in newer_differences(store, runs, proof.plan_hash, min(read.values(), default=proof.started)):
        is_refuted = str(run.facts.get("rechecks")) in of_proof and run.started < proof.started
        is_refuted |= is_of_other_servers(run, proof)
        if run.run_id not in of_proof and not is_refuted and any(read.get(id_, never) < run.started for id_ in pairs):
            yield run.run_id


def _proof_run(config: Config, store: ResultStore) -> RunInfo | None:
    digest, pair = comparison_digest(config), pair_addresses(config)
    for run in store.runs(RUNS_SEARCHED):
        if run.kind is not StoredKind.TABLES or run.plan_hash != digest or run.finished is None:
            continue
        if (
            run.facts.get("watch")
            or run.facts.get("repairs")
            or not pair.items() <= endpoint_addresses(run.facts).items()
        ):
            continue
        chain = carried_from(store, run)  # a recheck plans what its first run left open
        of_all = all(one.facts.get(CHOSEN) == ALL_TABLES for one in chain)
        if of_all and planned_pairs(store.load_run(chain[-1].run_id)) and not compared_with_itself(run, store.load_run):
            return run
    return None


def _retention(
    config: Config, store: ResultStore, answers: Sequence[GuardAnswer], problem: str, now: float
) -> Condition:
    if problem:
        return standing.unknown("retention", problem)
    places = [
        _place(endpoint, who, position, answers) for endpoint, who, position in _positions(config, store)
    ]  # fmt: skip
    return standing.retention(places, answers, now)


def _positions(config: Config, store: ResultStore) -> Iterator[tuple[Endpoint, str, Position]]:
    """Yield the place in each source's log that the watch goes on from, or where there is none the last proof."""
    view = _forward(config, store)
    read = {} if view is None else read_positions(ledger_folder(config) / f"watch-{view.run_id}.db")
    run = _proof_run(config, store)
    for number, endpoint in enumerate(config.sources):
        if view is not None and view.state != "ended" and number in read:
            yield endpoint, f"watch {view.run_id}", read[number]
        elif run is not None and (position := _begin_of(carried_from(store, run), endpoint.name)) is not None:
            yield endpoint, f"run {run.run_id}", position


def _begin_of(runs: Sequence[RunInfo], source: str) -> Position | None:
    """Return where a source was when a proof began, with its file; None where no watch can begin from it.

    A run notes its place by GTIDs where there are some, and the file beside them.
    """
    try:
        position = position_of_run(runs, source)
        if not position.file:
            noted = parse_position(str(runs[-1].facts.get("endpoints", {}).get(source, {}).get("binlog", "")))
            position = replace(position, file=noted.file, offset=noted.offset)
    except MigverifyError:
        return None  # a source without a binlog, or a run that could not read where it was
    return position


def _place(endpoint: Endpoint, who: str, position: Position, answers: Sequence[GuardAnswer]) -> LogPlace:
    password, place = resolve_password(endpoint).reveal() or None, LogPlace(endpoint.name, who, position.file)
    try:
        with open_session(replace(endpoint, snapshot=None), password) as session:
            if session.flavor is Flavor.TIDB:
                return replace(place, problem="TiDB has no binlog")
            files = tuple(log.name for log in binary_logs(session))
        if not position.file:
            return replace(place, problem="the place names no file")
        after = files[files.index(position.file) + 1 :] if position.file in files else ()
        closed = log_begun(endpoint, password, after[0]) if after else None
    except (EndpointError, MigverifyError, OSError) as error:
        return replace(place, problem=_reason(error))
    seconds = standing.retention_seconds(endpoint.name, answers)
    return replace(place, files=files, closed=closed, seconds=seconds)
