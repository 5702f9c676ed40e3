"""A run from its beginning to its end in the store: new, resumed, or a recheck of an earlier one.

The command line and the Spark job both come through here, so they cannot differ.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from migverify import __version__
from migverify.config import Config
from migverify.db.session import open_session
from migverify.errors import MigverifyError, PlanError, in_words
from migverify.model import Endpoint, RunInfo, StoredKind, Verdict
from migverify.store.base import ResultStore
from migverify.tables.engine import Engine, Secrets
from migverify.tables.immutable import narrowed, proved_runs
from migverify.tables.pair_run import STAMPS
from migverify.tables.prepare import NO_BINARY_LOG, UNKNOWN, Prepared, position, rules_of
from migverify.tables.recheck import carry_over, pairs_to_recheck, tables_run
from migverify.tables.tasks import Rules
from migverify.tables.verify import Controls, Progress, verify_tables

LOCAL_BUDGET_SECONDS = 1.0
SPARK_BUDGET_SECONDS = 5.0
"""How long one task may read: a Spark job costs more to start, a thread nothing."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for. At most one of ``resume`` and ``recheck`` is a run id.

    ``full`` reads rows declared immutable too, though an earlier run proved them.
    """

    command: str
    resume: str | None = None
    recheck: str | None = None
    full: bool = False


def run_tables(
    prepared: Prepared,
    config: Config,
    secrets: Secrets,
    engine: Engine,
    store: ResultStore,
    request: Request,
    on_progress: Callable[[Progress], None] = lambda _: None,
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
    run_id, chosen = _open_run(prepared, store, request, engine)
    on_start(run_id)
    rules = _rules(config, engine)
    controls = Controls(
        on_progress=on_progress,
        pause_file=Path(config.limits.pause_file) if config.limits.pause_file else None,
        run_seconds=config.limits.run_seconds,
        tables_total=len(pairs if chosen is None else chosen),
        rows_total=prepared.rows,
        source_still_since=lambda: source_still_since(prepared, config, secrets),
    )
    known = {} if request.full else proved_runs(store, prepared.digest, run_id)
    wanted = (narrowed(pair, known.get(pair.id)) for pair in prepared.pairs() if chosen is None or pair.id in chosen)
    try:
        verdict = verify_tables(wanted, engine, store, run_id, rules, controls)
    except KeyboardInterrupt:
        store.finish_run(
            run_id, Verdict.INCONCLUSIVE, {"reasons": ["interrupted; resume it"], "seconds": time.time() - started}
        )
        raise
    facts = {
        "seconds": time.time() - started,
        "positions at the end": _positions(config.endpoints, secrets),
        "reasons": [],
    }
    if verdict is Verdict.MATCH and chosen is not None and len(chosen) == 0:
        facts["reasons"] = ["every table of the earlier run was MATCH"]
    store.finish_run(run_id, verdict, facts)
    return run_id, verdict


def _rules(config: Config, engine: Engine) -> Rules:
    budget = SPARK_BUDGET_SECONDS if engine.name == "spark" else LOCAL_BUDGET_SECONDS
    return replace(rules_of(config), budget_seconds=budget)


def _open_run(prepared: Prepared, store: ResultStore, request: Request, engine: Engine) -> tuple[str, set[str] | None]:
    """Start or resume a run; returns its id and the ids of the pairs to verify (None for all)."""
    if request.resume is not None:
        info = tables_run(store, request.resume, prepared.digest, watch=False)
        _refuse_other(prepared, info)
        if info.facts.get("watch"):
            raise PlanError(f"run {info.run_id} is a watch",
                            hint=f"Go on with it by `migverify tables watch --resume {info.run_id}`.")  # fmt: skip
        store.resume_run(info.run_id)
        return info.run_id, _planned(info)
    facts: dict[str, Any] = {
        "engine": engine.name, "slots": engine.slots, "migverify": __version__, "python": platform.python_version(),
        "endpoints": prepared.facts, "skipped": list(prepared.skipped),
    }  # fmt: skip
    if request.recheck is None:
        return _started(store, prepared, request, prepared.stored(), facts), None
    old = tables_run(store, request.recheck, prepared.digest)
    _refuse_other(prepared, old)
    again = pairs_to_recheck(store, old.run_id)
    stored = prepared.stored()
    stored["pairs"] = [entry for entry in stored["pairs"] if entry["id"] in again]
    facts["rechecks"] = old.run_id
    run_id = _started(store, prepared, request, stored, facts)
    replaced = {result.pair for result in store.table_results(old.run_id) if result.details.get("replaced")}
    for pair in sorted(again - replaced):
        recorded = list(store.blobs(old.run_id, pair, "plan"))
        if recorded and carry_over(store, old.run_id, run_id, pair):
            for name in ("plan", STAMPS):
                for content in store.blobs(old.run_id, pair, name):
                    store.add_blob(run_id, pair, name, content)
    return run_id, again


def _started(
    store: ResultStore, prepared: Prepared, request: Request, plan: dict[str, Any], facts: dict[str, Any]
) -> str:
    return store.start_run(request.command, prepared.digest, plan, facts, kind=StoredKind.TABLES)


def _planned(info: RunInfo) -> set[str]:
    return {str(entry["id"]) for entry in info.plan.get("pairs", [])}


def _refuse_other(prepared: Prepared, info: RunInfo) -> None:
    if info.plan_hash != prepared.digest:
        raise PlanError(
            f"run {info.run_id} compared something else: tables, routes or overrides of the configuration changed",
            hint="Put the configuration back, or start a new run. Limits and secrets may change.",
        )


def source_still_since(prepared: Prepared, config: Config, secrets: Secrets) -> float | None:
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
