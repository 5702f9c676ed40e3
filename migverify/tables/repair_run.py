"""A repair from its beginning to its end: refuse, write the scripts, apply them, read every row again, record it.

Nothing is executed without ``apply``. What is executed then is the scripts as they lie in the folder, on a session
of its own on the target; the source is only read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from migverify import __version__
from migverify.config import Config
from migverify.db.pool import SessionPool
from migverify.db.session import open_session
from migverify.errors import MigverifyError, PlanError, ReadError, RepairError
from migverify.model import Endpoint, LiveState, RunInfo, StoredKind, TableResult, Verdict
from migverify.secrets import scrub
from migverify.sql.repair import session_sql
from migverify.sql.server import IDENTITY
from migverify.store.base import ResultStore
from migverify.tables.confirm import confirm
from migverify.tables.diff import PairReader
from migverify.tables.engine import Secrets
from migverify.tables.plan import check_same_plan, plan_digest
from migverify.tables.prepare import Prepared, rules_of
from migverify.tables.recheck import tables_run
from migverify.tables.repair import Written, diverged, write_statements
from migverify.tables.repair_apply import execute_script
from migverify.tables.repair_files import BATCH, Script, Scripts, clear_folder, file_stem, write_manifest
from migverify.tables.repair_outcome import (
    Repair,
    TableRepair,
    applied_line,
    judge_table,
    manifest_of,
    moment,
    written_line,
)
from migverify.tables.repair_plan import current, plan_repair, why_no_delete, why_not
from migverify.tables.tasks import PairPlan, Rules

Say = Callable[[str], None]


def run_repair(
    prepared: Prepared, config: Config, secrets: Secrets, store: ResultStore, run: str, folder: Path, *,
    apply: bool = False, say: Say = lambda _: None,
) -> Repair:  # fmt: skip
    """Write the scripts for the confirmed row diffs of a run, and with ``apply`` execute them.

    Parameters
    ----------
    run
        The run's id, or ``last``.
    folder
        Where scripts and manifest go. Those of an earlier repair are set aside in it, never written over.

    Raises
    ------
    RepairError
        the servers are not those of the run, the target is the source, or the run is not over.
    PlanError
        the configuration changed since the run. A table whose definition changed is refused by itself.
    KeyboardInterrupt
        passed on; every transaction is whole, and the new run is recorded as interrupted.
    """
    info = tables_run(store, run, prepared.digest)
    refuse_run(info, prepared)
    _refuse_same_server(config, secrets)
    repair = Repair(info.run_id, info.verdict, folder, clear_folder(folder), [])
    with closing(SessionPool(secrets)) as pool:
        results = {result.pair: result for result in store.table_results(info.run_id)}
        planned = {str(entry["id"]) for entry in info.plan.get("pairs", [])}
        for pair in prepared.pairs():
            if pair.id in planned and _has_work(store, info.run_id, pair, results.get(pair.id)):
                table = _write_table(pool, pair, config, store, info, results.get(pair.id), folder)
                repair.tables.append(table)
                say(written_line(table))
        write_manifest(folder, manifest_of(repair, info, prepared))
        if apply:
            _apply(repair, prepared, config, secrets, store, pool, results, say)
    return repair


# --- refusals --------------------------------------------------------------------------------------------------


def refuse_run(info: RunInfo, prepared: Prepared) -> None:
    """Refuse a run that is not over, compared something else, or was made against other servers.

    Raises
    ------
    RepairError
        the run is not over, or a server is another one.
    PlanError
        the configuration changed.
    """
    if info.finished is None:
        raise RepairError(f"run {info.run_id} is not over", hint=f"Finish it first: --resume {info.run_id}.")
    if info.plan_hash != prepared.digest:
        raise PlanError(
            f"run {info.run_id} compared something else: tables, routes or overrides of the configuration changed",
            hint="Put the configuration back, or verify again and repair that run.",
        )
    recorded: dict[str, Any] = info.facts.get("endpoints") or {}
    for name, now in prepared.facts.items():
        then = recorded.get(name)
        if then is None:
            raise RepairError(f"run {info.run_id} knows no endpoint {name}", hint="Verify again and repair that run.")
        for fact in ("host", "port", "flavor", "version"):
            if then.get(fact) != now.get(fact):
                changed = f"{fact} was {then.get(fact)}, is {now.get(fact)}"
                raise RepairError(
                    f"run {info.run_id} was made against another {name}: {changed}",
                    hint="Verify again and repair that run.",
                )


def _refuse_same_server(config: Config, secrets: Secrets) -> None:
    target = _identity(config.target, secrets)
    for endpoint in config.sources:
        if (endpoint.host, endpoint.port) == (config.target.host, config.target.port) or _identity(
            endpoint, secrets
        ) == target:
            raise RepairError(
                f"the target ({config.target.host}:{config.target.port}) is the server of {endpoint.name}",
                hint="A source is never written: give the target a server of its own.",
            )


def _identity(endpoint: Endpoint, secrets: Secrets) -> tuple[str | None, ...]:
    with open_session(endpoint, secrets.get(endpoint.name)) as session:
        return session.query(IDENTITY)[0]


def _has_work(store: ResultStore, run_id: str, pair: PairPlan, result: TableResult | None) -> bool:
    if result is not None and result.verdict is Verdict.MATCH:
        return False
    if not pair.readable:
        return True
    counts = store.count_row_diffs(run_id, pair.id)
    return any(n for (_, state), n in counts.items() if state == LiveState.DIVERGED.value)


# --- the scripts -----------------------------------------------------------------------------------------------


def _write_table(
    pool: SessionPool, pair: PairPlan, config: Config, store: ResultStore, info: RunInfo,
    result: TableResult | None, folder: Path,
) -> TableRepair:  # fmt: skip
    """Write both scripts of a table; a table that cannot be repaired, or read, gets none and says why."""
    table = TableRepair(pair, why_not(pair))
    if table.refused:
        return table
    recorded = list(store.blobs(info.run_id, pair.id, "plan"))
    if not recorded:
        table.refused = "the run keeps no plan of this table"
        return table
    rules = rules_of(config)
    table.no_delete = why_no_delete(result, store.chunk_totals(info.run_id, pair.id))
    try:
        check_same_plan(pair, recorded)
        plan = plan_repair(pool, current(pair), config, table.no_delete)
        table.no_delete, table.notes = plan.no_delete, plan.notes
        stem = _stem(pair)
        names = f"{stem}.repair.sql", f"{stem}.inverse.sql"
        session = session_sql(plan.flavor)
        with (
            closing(plan.row_reader(pool, rules)) as reader,
            Script(folder / names[0], _header(table, info, config, names), session) as forward,
            Script(folder / names[1], _header(table, info, config, names[::-1]), session) as inverse,
            Scripts(forward, inverse) as scripts,
        ):
            table.written = write_statements(plan, reader, store, info.run_id, scripts)
            table.repair, table.inverse = scripts.close()
    except (ReadError, RepairError, PlanError) as error:
        table.written, table.repair, table.inverse = Written(), None, None
        table.refused = scrub(error.message)
    return table


def _stem(pair: PairPlan) -> str:
    if pair.target_side is None:
        raise RepairError(f"{pair.id}: the target has no such table")
    return file_stem(pair.target_side.database, pair.target_side.table)


def _header(table: TableRepair, info: RunInfo, config: Config, names: tuple[str, str]) -> list[str]:
    own, other = names
    inverse = own.endswith(".inverse.sql")
    endpoint = info.facts["endpoints"][config.target.name]
    what = (
        "puts the target's rows back as they were before the repair"
        if inverse
        else "makes the target's rows what the source's are"
    )
    lines = [
        f"migverify {'inverse of a repair' if inverse else 'repair'} of {table.pair.target}: {what}",
        f"from run {info.run_id}, written {moment()} by migverify {__version__}",
        f"for the target {endpoint['host']}:{endpoint['port']} ({endpoint['flavor']} {endpoint['version']})",
        f"apply: mysql --default-character-set=utf8mb4 -h {endpoint['host']} -P {endpoint['port']} -u USER -p < {own}",
        f"{'the repair' if inverse else 'what undoes it'}: {other}",
        "a statement changes one row, and only if the row still is what was read; run again it changes nothing more",
        f"the client stops at the first error and undoes the transaction of {BATCH} rows it is in; not with --force:",
        "rows that exchange unique values are deleted and inserted again, and half of such a transaction loses rows",
        "needs the session settings below: UTC, strict sql_mode, utf8mb4",
    ]
    if table.no_delete and not inverse:
        lines.append(f"NO DELETE: {table.no_delete}; rows that only the target has stay")
    return lines + [f"note: {note}" for note in table.notes]


# --- apply -----------------------------------------------------------------------------------------------------


def _apply(
    repair: Repair, prepared: Prepared, config: Config, secrets: Secrets, store: ResultStore, pool: SessionPool,
    results: dict[str, TableResult], say: Say,
) -> None:  # fmt: skip
    """Execute the scripts, read every row again, and record both as a new run."""
    started = time.time()
    stored = prepared.stored()
    ids = {table.pair.id for table in repair.tables}
    stored["pairs"] = [entry for entry in stored["pairs"] if entry["id"] in ids]
    facts = {"engine": "local", "slots": 1, "migverify": __version__, "endpoints": prepared.facts,
             "repairs": repair.of, "skipped": []}  # fmt: skip
    command = f"migverify tables repair {repair.of} --out {repair.folder} --apply"
    repair.run_id = store.start_run(command, prepared.digest, stored, facts, kind=StoredKind.TABLES)
    say(f"run {repair.run_id} (repairs {repair.of})")
    verdict, reasons = Verdict.INCONCLUSIVE, [f"interrupted; every transaction is whole: repair run {repair.of} again"]
    try:
        for table in repair.tables:
            _apply_table(table, repair, config, secrets, store, pool, results.get(table.pair.id))
            say(applied_line(table))
        verdict, reasons = Verdict.worst([t.result.verdict for t in repair.tables if t.result is not None]), []
        if not repair.tables:
            reasons = [f"run {repair.of} has no confirmed row diffs: nothing was done"]
    except MigverifyError as error:
        reasons = [scrub(f"stopped: {error.message}")]
        raise
    finally:
        store.finish_run(repair.run_id, verdict, {"seconds": time.time() - started, "reasons": reasons})
    repair.verdict = verdict


def _apply_table(
    table: TableRepair, repair: Repair, config: Config, secrets: Secrets, store: ResultStore, pool: SessionPool,
    before: TableResult | None,
) -> None:  # fmt: skip
    if repair.run_id is None:
        raise RepairError("a repair is applied under a run of its own")
    rules, started = rules_of(config), time.monotonic()
    if table.repair is not None:
        endpoint = replace(config.target, snapshot=None)
        table.applied = execute_script(repair.folder / table.repair.name, endpoint, secrets, rules)
        store.add_blob(repair.run_id, table.pair.id, "plan", plan_digest(table.pair).encode("ascii"))
        try:
            _read_again(table, current(table.pair), pool, rules, store, (repair.of, repair.run_id))
        except ReadError as error:
            table.unread = scrub(error.message)
    table.result = judge_table(table, before, repair.of, time.monotonic() - started)
    store.add_table_result(repair.run_id, table.result)


# --- the rows again --------------------------------------------------------------------------------------------


def _read_again(
    table: TableRepair, pair: PairPlan, pool: SessionPool, rules: Rules, store: ResultStore, runs: tuple[str, str]
) -> None:
    """Read every row that differed in run ``runs[0]`` again and keep its state under ``runs[1]``."""
    with closing(PairReader.open(pair, pool, rules)) as reader:
        for page in diverged(store, runs[0], pair.id):
            confirmed = list(confirm(reader, page))
            store.add_row_diffs(runs[1], confirmed)
            table.states.update(diff.state.value for diff in confirmed)
            for diff in confirmed:
                if diff.state is LiveState.DIVERGED:
                    table.states[f"diverged {diff.kind.value}"] += 1
