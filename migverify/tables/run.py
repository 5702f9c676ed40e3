"""A run from its beginning to its end in the store: new, resumed, or a recheck of an earlier one.

The command line and the Spark job both come through here, so they cannot differ.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from migverify import __version__
from migverify.codec import encode
from migverify.config import Config
from migverify.db.session import open_session
from migverify.errors import CHANGED_SINCE, NOTHING_TO_RECHECK, MigverifyError, NoRunError, PlanError, in_words
from migverify.model import Endpoint, RunInfo, StoredKind, Verdict
from migverify.sql.server import UTC_NOW
from migverify.store.results import ResultStore
from migverify.tables.engine import TaskEngine
from migverify.tables.governor import ConnectionGovernor
from migverify.tables.immutable import narrowed, proved_runs
from migverify.tables.pair_run import STAMPS
from migverify.tables.part import refuse_unknown_column
from migverify.tables.plan import check_same_plan, is_same_plan
from migverify.tables.prepare import NO_BINARY_LOG, UNKNOWN, PreparedTables, position, rules_of
from migverify.tables.quick import QuickRead, parse_interval
from migverify.tables.recheck import (
    SinceResult,
    carry_over,
    first_reasons,
    not_planned,
    pairs_to_recheck,
    proof_run,
    quick_read,
    redefined_pairs,
    refuse_other,
    run_to_resume,
)
from migverify.tables.run_facts import (
    ALL_TABLES,
    CHOSEN,
    EXCLUDED,
    INTERRUPTED,
    READ_WHOLE,
    planned_pairs,
    refuse_other_servers,
)
from migverify.tables.tasks import PairPlan, Rules, Secrets
from migverify.tables.trace import run_trace
from migverify.tables.verify import Controls, VerifyProgress, is_concluded, verify_tables

LOCAL_BUDGET_SECONDS = 1.0
SPARK_BUDGET_SECONDS = 5.0
"""How long one task may read: a Spark job costs more to start, a thread nothing."""
_OTHER = "Put the configuration back, or start a new run. Limits and secrets may change."


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """The requested run. At most one of ``resume``, ``recheck`` and ``since`` is a run id.

    ``since`` rests on an earlier run for every row that was not written since. ``full`` reads rows declared immutable
    too, though an earlier run proved them. ``quick`` reads a part of each table, None all of it; what a resumed run
    reads is what it began to read.
    """

    command: str
    resume: str | None = None
    recheck: str | None = None
    since: str | None = None
    full: bool = False
    quick: QuickRead | None = None


def run_tables(
    prepared: PreparedTables,
    config: Config,
    secrets: Secrets,
    engine: TaskEngine,
    store: ResultStore,
    request: VerifyRequest,
    on_progress: Callable[[VerifyProgress], None] = lambda _: None,
    on_start: Callable[[str], None] = lambda _: None,
) -> tuple[str, Verdict]:
    """Verify what was prepared and return the run id and the verdict.

    Raises
    ------
    PlanError
        the run to resume was begun with another configuration or other tables.
    KeyboardInterrupt
        passed on; the run is recorded as interrupted and can be resumed.
    """
    started = time.time()
    pairs = {name for name, _, _ in prepared.names}
    run_id, chosen = _open_run(prepared, store, request, engine, lambda seconds: _utc_before(config, secrets, seconds))
    info = store.load_run(run_id)
    quick = quick_read(info)
    unseen = [*prepared.hidden, *(not_planned(store, info, pairs) if request.resume is not None else ())]
    on_start(run_id)
    with run_trace(run_id, engine.name) as trace:
        rules = _rules(config, engine)
        factor = config.limits.latency_factor
        governor = ConnectionGovernor(engine.slots, factor) if factor is not None else None
        controls = Controls(
            on_progress=on_progress,
            trace=trace,
            pause_file=Path(config.limits.pause_file) if config.limits.pause_file else None,
            run_seconds=config.limits.run_seconds,
            tables_total=len(pairs if chosen is None else chosen),
            rows_total=prepared.rows,
            source_still_since=lambda: source_still_since(prepared, config, secrets),
            governor=governor,
        )
        try:
            by_keys = _since(prepared, config, secrets, store, run_id, controls)
            wanted = (
                pair for pair in _planned(prepared, store, request, info)
                if (chosen is None or pair.id in chosen) and pair.id not in by_keys.done
            )  # fmt: skip
            verdicts = [] if by_keys.verdict is None else [by_keys.verdict]
            if by_keys.done != pairs:
                verdicts.append(verify_tables(wanted, engine, store, run_id, rules, controls))
            if unseen:
                verdicts.append(Verdict.INCONCLUSIVE)
            if quick is not None:
                verdicts.append(Verdict.INCONCLUSIVE)  # no matter what the tables say: a part of them proves nothing
            trace.verdict = verdict = Verdict.worst(verdicts)
        except KeyboardInterrupt:
            store.finish_run(run_id, Verdict.INCONCLUSIVE, {"reasons": [INTERRUPTED], "seconds": time.time() - started})
            raise
        facts = {
            "seconds": time.time() - started,
            "positions at the end": _positions(config.endpoints, secrets),
            "reasons": [*unseen, *by_keys.reasons, *_part_of(quick)],
            **({"connections used": governor.facts()} if governor is not None else {}),
            **({READ_WHOLE: dict(by_keys.whole)} if by_keys.whole else {}),
        }
        if verdict is Verdict.MATCH and chosen is not None and len(chosen) == 0:
            facts["reasons"] = ["every table of the earlier run was MATCH"]
        store.finish_run(run_id, verdict, facts)
    return run_id, verdict


def _planned(
    prepared: PreparedTables, store: ResultStore, request: VerifyRequest, run: RunInfo | None
) -> Iterator[PairPlan]:
    """Yield the pairs as a run reads them: the part of a quick answer, else without rows proved immutable.

    ``run`` is None for a verification that is not in the store yet.
    """
    quick = None if run is None else quick_read(run)
    if quick is not None:
        yield from prepared.parts(quick)
        return
    known = {} if request.full else proved_runs(store, prepared, "" if run is None else run.run_id)
    yield from (narrowed(pair, known.get(pair.id)) for pair in prepared.pairs())


def _part_of(quick: QuickRead | None) -> list[str]:
    return [] if quick is None else [f"{quick.words} reads a part of each table: no table is MATCH"]


def _since(
    prepared: PreparedTables, config: Config, secrets: Secrets, store: ResultStore, run_id: str, controls: Controls
) -> SinceResult:
    """Read the rows written since the run that this one rests on; a run that rests on none leaves all to be read."""
    since = store.load_run(run_id).facts.get("since_run")
    if not since:
        return SinceResult()
    from migverify.tables.since import verify_since  # with the reader of binlogs, which most runs do not need
    from migverify.watch.ledger import ledger_folder

    return verify_since(prepared, config, secrets, store, run_id, str(since), ledger_folder(config), controls)


def _rules(config: Config, engine: TaskEngine) -> Rules:
    budget = SPARK_BUDGET_SECONDS if engine.name == "spark" else LOCAL_BUDGET_SECONDS
    return replace(rules_of(config), budget_seconds=budget)


def _open_run(
    prepared: PreparedTables, store: ResultStore, request: VerifyRequest, engine: TaskEngine,
    utc_before: Callable[[int], str],
) -> tuple[str, set[str] | None]:  # fmt: skip
    """Start or resume a run; returns its id and the ids of the pairs to verify (None for all)."""
    if request.resume is not None:
        info = run_to_resume(store, request.resume, prepared.digest, prepared.owns)
        refuse_other(info, prepared.digest, _OTHER)
        refuse_other_servers(info, prepared.facts)
        if info.facts.get("watch"):
            raise PlanError(f"run {info.run_id} is a watch",
                            hint=f"Go on with it by `migverify tables watch --resume {info.run_id}`.")  # fmt: skip
        _refuse_changed(prepared, store, request, info)
        store.resume_run(info.run_id)
        return info.run_id, set(planned_pairs(info))
    facts: dict[str, Any] = {
        "engine": engine.name, "slots": engine.slots, "migverify": __version__, "python": platform.python_version(),
        "endpoints": prepared.facts, "skipped": list(prepared.skipped),
        CHOSEN: ", ".join(prepared.chosen) or ALL_TABLES,
        **({EXCLUDED: list(prepared.excluded)} if prepared.excluded else {}),
    }  # fmt: skip
    if request.since is not None:
        facts |= _rests_on(prepared, store, request.since)
    if request.quick is not None:
        quick = request.quick
        if quick.column:
            refuse_unknown_column(quick, prepared.columns)
            quick = replace(quick, moment=utc_before(parse_interval(quick.interval)))
        facts["quick"] = encode(quick)
    if request.recheck is None:
        return _started(store, prepared, request, prepared.stored(), facts), None
    old = proof_run(store, request.recheck, prepared.digest, watches="all", is_own=prepared.owns)
    refuse_other(old, prepared.digest, _OTHER)
    return _open_recheck(prepared, store, request, old, facts)


def _refuse_changed(prepared: PreparedTables, store: ResultStore, request: VerifyRequest, run: RunInfo) -> None:
    """Refuse to resume a run, as it is, where a table that it began and did not conclude is another one now."""
    concluded = {result.pair for result in store.table_results(run.run_id) if is_concluded(result)}
    _refuse_lost(prepared, run, planned_pairs(run).keys() - concluded)
    for pair in _planned(prepared, store, request, run):
        if pair.readable and pair.id not in concluded:
            check_same_plan(pair, list(store.blobs(run.run_id, pair.id, "plan")), run.run_id)


def _open_recheck(
    prepared: PreparedTables, store: ResultStore, request: VerifyRequest, old: RunInfo, facts: dict[str, Any]
) -> tuple[str, set[str]]:
    """Start a recheck; all that can be refused is refused before. Returns its id and those of its pairs."""
    redefined = redefined_pairs(store, old, prepared.layouts, prepared.identities)
    again = _read_again(prepared, store, old, redefined.keys())
    void, whole = set[str](), dict[str, str]()
    for pair in _planned(prepared, store, request, None):
        if pair.id not in again:
            continue
        if pair.id in redefined:
            why = redefined[pair.id]
        elif not is_same_plan(pair, list(store.blobs(old.run_id, pair.id, "plan"))):
            why = f"run {old.run_id} read it by other statements"
        else:
            continue
        void.add(pair.id)
        if pair.readable:
            whole[pair.id] = why
    stored = prepared.stored()
    stored["pairs"] = [entry for entry in stored["pairs"] if entry["id"] in again]
    facts["rechecks"] = old.run_id
    if whole:
        facts[READ_WHOLE] = first_reasons(whole)
    run_id = _started(store, prepared, request, stored, facts)
    replaced = {result.pair for result in store.table_results(old.run_id) if result.details.get("replaced")}
    for name in sorted(again - replaced - void):
        recorded = list(store.blobs(old.run_id, name, "plan"))
        if recorded and carry_over(store, old.run_id, run_id, name):
            for blob in ("plan", STAMPS):
                for content in store.blobs(old.run_id, name, blob):
                    store.add_blob(run_id, name, blob, content)
    return run_id, again


def _refuse_lost(prepared: PreparedTables, run: RunInfo, pairs: Set[str]) -> None:
    """Refuse a run with pairs of which there is nothing any more; with ``--tables`` not all are to be there."""
    lost = [] if prepared.chosen else sorted(pairs - {name for name, _, _ in prepared.names})
    if lost:
        more = f" and {len(lost) - 1:,} more" if len(lost) > 1 else ""
        raise PlanError(
            f"{lost[0]}{more}: {CHANGED_SINCE} {run.run_id} began: neither side has a table of this name now",
            hint="Begin a new run: `migverify tables verify` reads what there is now.",
        )


def _read_again(prepared: PreparedTables, store: ResultStore, old: RunInfo, redefined: Set[str]) -> set[str]:
    """Return the pairs of a recheck: those that were not MATCH, and those whose tables are others now.

    Raises
    ------
    PlanError
        there is none, or a table of the run is on neither side any more.
    """
    again, planned = pairs_to_recheck(store, old.run_id) | redefined, {name for name, _, _ in prepared.names}
    _refuse_lost(prepared, old, again)
    if again & planned:
        return again & planned
    since = f"`migverify tables verify --since {old.run_id}` reads again what was written since."
    if again:
        raise PlanError(
            f"run {old.run_id} proved the chosen tables equal: {NOTHING_TO_RECHECK}", hint="Leave out --tables."
        )
    raise PlanError(
        f"run {old.run_id} proved every table pair equal: {NOTHING_TO_RECHECK}",
        hint=since if old.verdict is Verdict.MATCH else "Begin a new run: `migverify tables verify`.",
    )


def _rests_on(prepared: PreparedTables, store: ResultStore, since: str) -> dict[str, Any]:
    """Return the facts that say on which run a new one rests; or that all is read, as there is none for ``last``.

    A proof that recurs has no earlier run in its first night, and none after a change of the configuration: reading all
    tables is never wrong then, and takes longer.
    """
    try:
        earlier = proof_run(store, since, prepared.digest, is_own=prepared.owns)
    except NoRunError:
        return {READ_WHOLE: {"all tables": "this configuration has no earlier run to rest on"}}
    if since == "last" and earlier.plan_hash != prepared.digest:
        why = f"run {earlier.run_id}, the newest of these servers, compared other tables, routes or overrides"
        return {READ_WHOLE: {"all tables": why}}
    refuse_other(earlier, prepared.digest, _OTHER)
    return {"since_run": earlier.run_id}


def _started(
    store: ResultStore, prepared: PreparedTables, request: VerifyRequest, plan: dict[str, Any], facts: dict[str, Any]
) -> str:
    kind = StoredKind.QUICK if request.quick is not None else StoredKind.TABLES
    return store.start_run(request.command, prepared.digest, plan, facts, kind=kind)


def _utc_before(config: Config, secrets: Secrets, seconds: int) -> str:
    """Return the UTC time so many seconds ago by the clock of the source, whose rows have the times."""
    endpoint = config.sources[0]
    with open_session(endpoint, secrets.get(endpoint.name)) as session:
        now = datetime.fromisoformat(str(session.query(UTC_NOW)[0][0]))
    return (now - timedelta(seconds=seconds)).isoformat(" ", "microseconds")


def source_still_since(prepared: PreparedTables, config: Config, secrets: Secrets) -> float | None:
    """Return when the catalogs were read, if no source was written since by its binary log; None when that is unknown.

    Writes that a session hides from the binary log (``sql_log_bin=0``) are not seen.
    """
    now = _positions(config.sources, secrets)
    for endpoint in config.sources:
        before = str(prepared.facts[endpoint.name]["position"])
        if before != now[endpoint.name] or before == NO_BINARY_LOG or before.startswith(UNKNOWN):
            return None
    return prepared.read_at


def _positions(endpoints: Sequence[Endpoint], secrets: Secrets) -> dict[str, str]:
    found = {}
    for endpoint in endpoints:
        try:
            with open_session(endpoint, secrets.get(endpoint.name)) as session:
                found[endpoint.name] = position(session)
        except MigverifyError as error:
            found[endpoint.name] = f"{UNKNOWN}: {in_words(error)}"
    return found
