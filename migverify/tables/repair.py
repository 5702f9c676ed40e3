"""A repair from its beginning to its end: refuse, write the scripts, apply them, read every row again, record it.

Nothing is executed without ``apply``. What is executed then is the scripts as they are in the folder, on a session
of its own on the target; the source is only read.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from migverify import __version__
from migverify.config import Config
from migverify.db.pool import SessionPool
from migverify.db.server_state import ServerIdentity, server_identity
from migverify.db.session import open_session
from migverify.errors import MigverifyError, NoRunError, PlanError, ReadError, RepairError
from migverify.model import (
    Endpoint,
    LiveState,
    NotCovered,
    RunInfo,
    StoredKind,
    TableResult,
    Verdict,
)
from migverify.secrets import scrub
from migverify.sql.repair import session_sql
from migverify.store.results import ResultStore
from migverify.tables.confirm import confirm
from migverify.tables.diff import PairReader
from migverify.tables.outcome import in_state, pair_result, schema_mismatches, uncovered_columns, verdict_of
from migverify.tables.plan import check_same_plan, plan_digest
from migverify.tables.prepare import PreparedTables, rules_of
from migverify.tables.recheck import refuse_other, tables_run
from migverify.tables.repair_files import (
    BATCH,
    AppliedScript,
    ScriptFacts,
    ScriptPair,
    SqlScript,
    clear_folder,
    execute_script,
    file_stem,
    write_manifest,
)
from migverify.tables.repair_rows import Written, diverged, plan_repair, why_no_delete, write_statements
from migverify.tables.run_facts import EXCLUDED, UNSEEN, planned_pairs
from migverify.tables.tasks import PairPlan, Secrets, read_now

Say = Callable[[str], None]
_FACTS = ("host", "port", "flavor", "version")
"""What must be the same of a server as when the run was made."""


@dataclass(slots=True)
class TableRepair:
    """One table of a repair.

    ``refused`` is the reason why there are no scripts; ``states`` counts the rows as read again, by kind and live
    state; ``unread`` is the reason why not all were.
    """

    pair: PairPlan
    refused: str = ""
    written: Written = field(default_factory=Written)
    no_delete: str = ""
    notes: tuple[str, ...] = ()
    repair: ScriptFacts | None = None
    inverse: ScriptFacts | None = None
    applied: AppliedScript = field(default_factory=AppliedScript)
    states: Counter[tuple[str, str]] = field(default_factory=Counter)
    unread: str = ""
    result: TableResult | None = None

    @property
    def repaired(self) -> int:
        """Rows that are equal now because of this repair: no more than were written, nor than were not equal before."""
        return max(0, min(self.applied.matched, in_state(self.states, LiveState.CONVERGED) - self.written.equal))

    @property
    def left_alone(self) -> int:
        """Rows that were not touched because they changed since the run."""
        return self.written.changed.total() + self.applied.unmatched

    @property
    def different(self) -> int:
        """Rows that still differ."""
        return in_state(self.states, LiveState.DIVERGED)


@dataclass(slots=True)
class Repair:
    """A whole repair. ``run_id`` and ``verdict`` are those of the new run; None and INCONCLUSIVE without ``apply``."""

    of: str
    of_verdict: Verdict
    folder: Path
    earlier: str
    tables: list[TableRepair]
    run_id: str | None = None
    verdict: Verdict = Verdict.INCONCLUSIVE

    @property
    def is_complete(self) -> bool:
        """Whether every row that differed has a statement or needs none."""
        if not self.tables:  # a run that was cut off before its row diffs were stored has none either
            return self.of_verdict is Verdict.MATCH
        return not any(table.refused or table.written.changed or table.written.refused for table in self.tables)


def run_repair(
    prepared: PreparedTables, config: Config, secrets: Secrets, store: ResultStore, run: str, folder: Path, *,
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
    info = _run_to_repair(prepared, store, run)
    refuse_run(info, prepared)
    _refuse_same_server(config, secrets)
    repair = Repair(info.run_id, info.verdict, folder, clear_folder(folder), [])
    with closing(SessionPool(secrets)) as pool:
        results = {result.pair: result for result in store.table_results(info.run_id)}
        planned, unread = planned_pairs(info), _may_be_unread(info, prepared)
        for pair in prepared.pairs():
            if pair.id in planned and _has_work(store, info.run_id, pair, results.get(pair.id)):
                table = _write_table(pool, pair, config, store, info, results.get(pair.id), folder, unread)
                repair.tables.append(table)
                say(written_line(table))
        write_manifest(folder, _manifest(repair, info, prepared))
        if apply:
            _apply(repair, prepared, config, secrets, store, pool, results, say)
    return repair


def _run_to_repair(prepared: PreparedTables, store: ResultStore, name: str) -> RunInfo:
    try:
        return tables_run(store, name, prepared.digest, is_own=prepared.owns)
    except NoRunError:
        info = tables_run(store, name, prepared.digest)
        if info.plan_hash != prepared.digest:
            raise
        return info  # of other servers: what differs between them is said


def refuse_run(info: RunInfo, prepared: PreparedTables) -> None:
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
    refuse_other(info, prepared.digest, "Put the configuration back, or verify again and repair that run.")
    again = "Verify again and repair that run."
    recorded: dict[str, Any] = info.facts.get("endpoints") or {}
    for name, now in prepared.facts.items():
        then = recorded.get(name)
        if then is None:
            raise RepairError(f"run {info.run_id} knows no endpoint {name}", hint=again)
        for fact in _FACTS:
            if then.get(fact) != now.get(fact):
                changed = f"{fact} was {then.get(fact)}, is {now.get(fact)}"
                raise RepairError(f"run {info.run_id} was made against another {name}: {changed}", hint=again)


def _refuse_same_server(config: Config, secrets: Secrets) -> None:
    def identity(endpoint: Endpoint) -> ServerIdentity:
        with open_session(endpoint, secrets.get(endpoint.name)) as session:
            return server_identity(session, endpoint)

    target = config.target
    target_identity = identity(target)
    for source in config.sources:
        is_same_address = (source.host, source.port) == (target.host, target.port)  # a proxy may choose anew
        if is_same_address or identity(source).is_same_server(target_identity):
            raise RepairError(
                f"the target ({target.host}:{target.port}) is the server of {source.name}",
                hint="A source is never written: give the target a server of its own.",
            )


def _has_work(store: ResultStore, run_id: str, pair: PairPlan, result: TableResult | None) -> bool:
    if result is not None and result.verdict is Verdict.MATCH:
        return False
    counts = store.count_row_diffs(run_id, pair.id)
    return not pair.readable or any(n for (_, state), n in counts.items() if state == LiveState.DIVERGED.value)


# --- the scripts -----------------------------------------------------------------------------------------------


def _no_plan(info: RunInfo) -> str:
    verified = info.facts.get("repairs") or info.run_id
    again = f"`migverify tables verify --recheck {verified}` reads the table whole: repair that run"
    return f"the run keeps no plan of this table, as a watch reads written rows alone; {again}"


def _may_be_unread(info: RunInfo, prepared: PreparedTables) -> str:
    """Return why rows of the source may be in tables that nobody could see, then or now: empty where they are not.

    Several tables of the source may lead into one of the target: rows of one that is hidden look as if the target alone
    had them.
    """
    reasons = [*prepared.hidden, *map(str, info.facts.get("reasons") or ())]
    return next((reason for reason in reasons if UNSEEN in reason), "")


def _write_table(
    pool: SessionPool, pair: PairPlan, config: Config, store: ResultStore, info: RunInfo,
    result: TableResult | None, folder: Path, unread: str,
) -> TableRepair:  # fmt: skip
    """Write both scripts of a table; a table that cannot be repaired, or read, gets none and its reason."""
    recorded = list(store.blobs(info.run_id, pair.id, "plan"))
    table = TableRepair(pair, _why_not(pair) or ("" if recorded else _no_plan(info)))
    if table.refused:
        return table
    table.no_delete = unread or why_no_delete(result, store.chunk_totals(info.run_id, pair.id))
    try:
        check_same_plan(pair, recorded, info.run_id)
        plan = plan_repair(pool, read_now(pair), config, table.no_delete)
        table.no_delete, table.notes = plan.no_delete, plan.notes
        stem = file_stem(pair.sides[-1].database, pair.sides[-1].table)
        names = f"{stem}.repair.sql", f"{stem}.inverse.sql"
        session = session_sql(plan.flavor)
        with (
            closing(plan.open_reader(pool, rules_of(config))) as reader,
            ScriptPair(
                SqlScript(folder / names[0], _header(table, info, config, *names), session),
                SqlScript(folder / names[1], _header(table, info, config, *names[::-1]), session),
            ) as scripts,
        ):
            table.written = write_statements(plan, reader, partial(diverged, store, info.run_id, pair.id), scripts)
            table.repair, table.inverse = scripts.close()
    except (ReadError, RepairError, PlanError) as error:
        table.written, table.repair, table.inverse = Written(), None, None
        table.refused = scrub(error.message)
    return table


def _why_not(pair: PairPlan) -> str:
    """Return why a pair cannot be repaired at all, ``""`` when it can."""
    if not pair.readable:
        return pair.not_covered[0].reason if pair.not_covered else "no column can be compared"
    if not pair.sides[-1].sql.key:
        return ("the table has no unique key that is compared, so no statement can name one row; "
                "give it a key (overrides.key) or load it again")  # fmt: skip
    return ""


def _header(table: TableRepair, info: RunInfo, config: Config, own: str, other: str) -> list[str]:
    endpoint = info.facts["endpoints"][config.target.name]
    title, undo = f"repair of {table.pair.target}: makes the target's rows what the source's are", "what undoes it"
    if is_inverse := own.endswith(".inverse.sql"):
        title = (
            f"inverse of a repair of {table.pair.target}: puts the target's rows back as they were before the repair"
        )
        undo = "the repair"
    lines = [
        f"migverify {title}",
        f"from run {info.run_id}, written {_now()} by migverify {__version__}",
        f"for the target {endpoint['host']}:{endpoint['port']} ({endpoint['flavor']} {endpoint['version']})",
        f"apply: mysql --default-character-set=utf8mb4 -h {endpoint['host']} -P {endpoint['port']} -u USER -p < {own}",
        f"{undo}: {other}",
        "a statement changes one row, and only if the row still is what was read; run again it changes nothing more",
        f"the client stops at the first error and undoes the transaction of {BATCH} rows it is in; where another row",
        "still has a unique value, run the file with --force until no error is left: each statement is safe alone",
        "needs the session settings below: UTC, strict sql_mode, utf8mb4",
    ]
    if table.no_delete and not is_inverse:
        lines.append(f"NO DELETE: {table.no_delete}; rows that only the target has stay")
    return lines + [f"note: {note}" for note in table.notes]


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _manifest(repair: Repair, info: RunInfo, prepared: PreparedTables) -> dict[str, Any]:
    return {
        "format": 1, "run": info.run_id, "plan_digest": prepared.digest, "written": _now(),
        "migverify": __version__, "earlier": repair.earlier or None,
        "endpoints": {name: {fact: facts[fact] for fact in _FACTS} for name, facts in prepared.facts.items()},
        "tables": [_entry(table) for table in repair.tables],
    }  # fmt: skip


def _entry(table: TableRepair) -> dict[str, Any]:
    written = table.written

    def facts(file: ScriptFacts | None) -> dict[str, Any] | None:
        return None if file is None else {"file" if k == "name" else k: v for k, v in asdict(file).items()}

    return {
        "pair": table.pair.id, "source": table.pair.source, "target": table.pair.target,
        "plan_digest": plan_digest(table.pair) if table.pair.readable else None,
        "not_repaired": table.refused or None, "repair": facts(table.repair), "inverse": facts(table.inverse),
        "rows": {
            "seen": written.rows, "statements": dict(written.statements), "equal_now": written.equal,
            "changed_since": dict(written.changed), "refused": dict(written.refused),
        },
        "no_delete": table.no_delete or None, "notes": list(table.notes),
    }  # fmt: skip


def written_line(table: TableRepair) -> str:
    """Return the line about what was written for a table, and for which rows nothing was."""
    if table.refused:
        return f"{table.pair.id}: not repaired: {table.refused}"
    written = table.written
    kinds = {"missing_on_source": "DELETE", "value_differs": "UPDATE", "missing_on_target": "INSERT"}
    counted = ", ".join(f"{written.statements[kind]:,} {word}" for kind, word in kinds.items())
    parts = [f"{table.pair.id}: {counted}"]
    if written.equal:
        parts.append(f"{written.equal:,} equal by now")
    parts += [f"{n:,} left alone (changed on the {side} since the run)" for side, n in sorted(written.changed.items())]
    parts += [f"{n:,} refused ({reason})" for reason, n in sorted(written.refused.items())]
    if table.no_delete and not any(table.no_delete in reason for reason in written.refused):
        parts.append(f"no DELETE: {table.no_delete}")
    return "; ".join(parts)


# --- apply -----------------------------------------------------------------------------------------------------


def _apply(
    repair: Repair, prepared: PreparedTables, config: Config, secrets: Secrets, store: ResultStore, pool: SessionPool,
    results: Mapping[str, TableResult], say: Say,
) -> None:  # fmt: skip
    """Execute the scripts, read every row again, and record both as a new run."""
    started = time.time()
    stored = prepared.stored()
    ids = {table.pair.id for table in repair.tables}
    stored["pairs"] = [entry for entry in stored["pairs"] if entry["id"] in ids]
    facts = {"engine": "local", "slots": 1, "migverify": __version__, "endpoints": prepared.facts,
             "repairs": repair.of, "skipped": [],
             **({EXCLUDED: list(prepared.excluded)} if prepared.excluded else {})}  # fmt: skip
    command = f"migverify tables repair {repair.of} --out {repair.folder} --apply"
    run_id = repair.run_id = store.start_run(command, prepared.digest, stored, facts, kind=StoredKind.TABLES)
    say(f"run {run_id} (repairs {repair.of})")
    verdict, reasons = Verdict.INCONCLUSIVE, [f"interrupted; every transaction is whole: repair run {repair.of} again"]
    try:
        for table in repair.tables:
            begun = time.monotonic()
            if table.repair is not None:
                path, target = repair.folder / table.repair.name, replace(config.target, snapshot=None)
                table.applied = execute_script(path, target, secrets.get(target.name), rules_of(config))
                store.add_blob(run_id, table.pair.id, "plan", plan_digest(table.pair).encode("ascii"))
                _read_again(table, repair.of, run_id, config, pool, store)
            before = results.get(table.pair.id)
            table.result = _judge(table, before, repair.of, time.monotonic() - begun)
            store.add_table_result(run_id, table.result)
            say(_applied_line(table))
        unseen = [Verdict.INCONCLUSIVE] if prepared.hidden else []
        verdict = Verdict.worst([*(t.result.verdict for t in repair.tables if t.result is not None), *unseen])
        reasons = list(prepared.hidden)
        if not repair.tables:
            reasons = [f"run {repair.of} has no confirmed row diffs: nothing was done"]
    except MigverifyError as error:
        reasons = [scrub(f"stopped: {error.message}")]
        raise
    finally:
        store.finish_run(run_id, verdict, {"seconds": time.time() - started, "reasons": reasons})
    repair.verdict = verdict


def _read_again(
    table: TableRepair, of: str, run_id: str, config: Config, pool: SessionPool, store: ResultStore
) -> None:  # fmt: skip
    """Read every row that differed in run ``of`` again and record its state under the new run."""
    try:
        with closing(PairReader.open(read_now(table.pair), pool, rules_of(config))) as reader:
            for page in diverged(store, of, table.pair.id):
                confirmed = list(confirm(reader, page))
                store.add_row_diffs(run_id, confirmed)
                table.states.update((diff.kind.value, diff.state.value) for diff in confirmed)
    except ReadError as error:
        table.unread = scrub(error.message)


def _applied_line(table: TableRepair) -> str:
    """Return the line about what became of a table's rows."""
    if table.refused and not table.repaired:
        return f"{table.pair.id}: not repaired: {table.refused}; its rows are as they were"
    line = (f"{table.pair.id}: repaired {table.repaired:,}, left alone {table.left_alone:,} (changed since the run), "
            f"still different {table.different:,}")  # fmt: skip
    if hot := in_state(table.states, LiveState.HOT):
        line += f", hot {hot:,}"
    if refused := table.applied.refused:
        line += f"; the target refused {refused.total():,} statements, as in: {refused.most_common(1)[0][0]}"
    return line + (f"; not repaired: {table.refused}" if table.refused else "")


def _judge(table: TableRepair, before: TableResult | None, of: str, seconds: float) -> TableResult:
    """Judge a table by the rows read again, and by what the run that is repaired left open."""
    pair, states, gaps = table.pair, table.states, list[str]()
    mismatches = schema_mismatches(pair)
    if table.different:
        mismatches.append(f"{table.different:,} rows are still different")
    if table.refused:
        gaps.append(f"not repaired: {table.refused}")
        if before is not None and (n := before.missing_on_target + before.missing_on_source + before.value_differs):
            mismatches.append(f"{n:,} rows differed in run {of} and were not repaired")
    if table.unread:
        gaps.append(f"the rows could not all be read again: {table.unread}")
    if hot := in_state(states, LiveState.HOT):
        gaps.append(f"{hot:,} rows kept changing while they were read (hot)")
    if unread := why_no_delete(before, {}):
        gaps.append(f"run {of} left a gap: {unread}")
    gaps += uncovered_columns(pair)
    if before is not None:
        gaps += [r for r in before.reasons if "(hot)" in r or r.endswith("were not read again")]
    details = {
        "repairs": of, "repaired": table.repaired, "left alone": table.left_alone, "still different": table.different,
        "converged": in_state(states, LiveState.CONVERGED), "hot": hot,
        "refused by the target": dict(table.applied.refused), "strategy": "repair: the rows that differed, by key",
    }  # fmt: skip
    scope = NotCovered("rows", f"only the {states.total():,} rows that differed in run {of} were read again")
    rows = (None, None) if before is None else (before.rows_source, before.rows_target)
    return pair_result(
        pair, verdict_of(mismatches, gaps), (*mismatches, *gaps), states, seconds, details, rows=rows,
        not_covered=[scope],
    )  # fmt: skip
