"""A repair from its beginning to its end: refuse, write the scripts, apply them, read every row again, record it.

Nothing is executed without ``apply``. What is executed then is the scripts as they lie in the folder, on a session
of its own on the target; the source is only read.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from migverify import __version__
from migverify.config import Config
from migverify.connect import Session, open_session
from migverify.errors import MigverifyError, PlanError, PrivilegeError, ReadError, RepairError, RetryableReadError
from migverify.model import Endpoint, LiveState, NotCovered, RunInfo, SchemaClass, TableResult, Verdict
from migverify.secrets import scrub
from migverify.sql.repair import identity_sql, session_sql
from migverify.store.base import ResultStore
from migverify.tables.confirm import confirm
from migverify.tables.engine import Secrets
from migverify.tables.plan import check_same_plan, plan_digest
from migverify.tables.prepare import Prepared, rules_of
from migverify.tables.read import SessionPool
from migverify.tables.repair import (
    Written,
    current,
    diverged,
    open_reader,
    row_reader,
    shape_of,
    why_no_delete,
    why_not,
    write_statements,
)  # fmt: skip
from migverify.tables.repair_files import (
    BATCH,
    FileFacts,
    Script,
    clear_folder,
    file_stem,
    transactions,
    write_manifest,
)  # fmt: skip
from migverify.tables.tasks import PairPlan, Rules

Say = Callable[[str], None]

REFUSED_AT_ONCE = 10_000
"""Up to so many refused statements are tried again; more would not be a matter of their order."""


@dataclass(slots=True)
class Applied:
    """What the statements of one table did: rows matched, found changed, refused by the server."""

    matched: int = 0
    unmatched: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def count(self, matched: Sequence[int]) -> None:
        """Add the statements of a transaction by the rows each one matched."""
        self.matched += sum(1 for rows in matched if rows)
        self.unmatched += sum(1 for rows in matched if not rows)


@dataclass(slots=True)
class TableRepair:
    """One table of a repair.

    ``refused`` says why there are no scripts; ``states`` counts the rows as read again, ``unread`` says
    why not all were.
    """

    pair: PairPlan
    refused: str = ""
    written: Written = field(default_factory=Written)
    no_delete: str = ""
    notes: tuple[str, ...] = ()
    repair: FileFacts | None = None
    inverse: FileFacts | None = None
    applied: Applied | None = None
    states: Counter[str] = field(default_factory=Counter)
    unread: str = ""
    result: TableResult | None = None

    @property
    def repaired(self) -> int:
        """Rows that are equal now because of this repair: read equal, less those that were equal before it."""
        return max(0, self.states[LiveState.CONVERGED.value] - self.written.equal)

    @property
    def left_alone(self) -> int:
        """Rows that were not touched because they changed since the run."""
        return self.written.changed.total() + (self.applied.unmatched if self.applied else 0)

    @property
    def different(self) -> int:
        """Rows that still differ."""
        return self.states[LiveState.DIVERGED.value]


@dataclass(slots=True)
class Repair:
    """A whole repair. ``run_id`` and ``verdict`` are those of the new run; None and INCONCLUSIVE without ``apply``."""

    of: str
    folder: Path
    earlier: str
    tables: list[TableRepair]
    run_id: str | None = None
    verdict: Verdict = Verdict.INCONCLUSIVE

    @property
    def whole(self) -> bool:
        """Whether every row that differed has a statement or needs none."""
        return all(not table.refused and table.written.whole for table in self.tables)


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
    info = store.load_run(run)
    refuse_run(info, prepared)
    _refuse_same_server(config, secrets)
    repair = Repair(info.run_id, folder, clear_folder(folder), [])
    with closing(SessionPool(secrets)) as pool:
        results = {result.pair: result for result in store.table_results(info.run_id)}
        planned = {str(entry["id"]) for entry in info.plan.get("pairs", [])}
        for pair in prepared.pairs():
            if pair.id in planned and _has_work(store, info.run_id, pair, results.get(pair.id)):
                table = _write_table(pool, pair, config, store, info, results.get(pair.id), folder)
                repair.tables.append(table)
                say(_written_line(table))
        write_manifest(folder, _manifest(repair, info, prepared))
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
        return session.query(identity_sql())[0]


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
        shape = shape_of(pool, current(pair), config, table.no_delete)
        table.no_delete, table.notes = shape.no_delete, shape.notes
        with closing(row_reader(shape, pool, rules)) as reader:
            stem = _stem(pair)
            names = f"{stem}.repair.sql", f"{stem}.inverse.sql"
            session = session_sql(shape.flavor)
            with (
                Script(folder / names[0], _header(table, info, config, names), session) as forward,
                Script(folder / names[1], _header(table, info, config, names[::-1]), session) as inverse,
            ):
                table.written = write_statements(shape, reader, store, info.run_id, forward, inverse)
                # The inverse first: a repair without one must not lie about.
                table.inverse, table.repair = inverse.close(), forward.close()
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
        f"from run {info.run_id}, written {_moment()} by migverify {__version__}",
        f"for the target {endpoint['host']}:{endpoint['port']} ({endpoint['flavor']} {endpoint['version']})",
        f"apply: mysql --default-character-set=utf8mb4 -h {endpoint['host']} -P {endpoint['port']} -u USER -p < {own}",
        f"{'the repair' if inverse else 'what undoes it'}: {other}",
        "a statement changes one row, and only if the row still is what was read; run again it changes nothing more",
        f"the client stops at the first error, and the transaction of {BATCH} rows it is in is undone; with --force it",
        "leaves out the row that was refused (a unique value that another row still holds): then run the file again",
        "needs the session settings below: UTC, strict sql_mode, utf8mb4",
    ]
    if table.no_delete and not inverse:
        lines.append(f"NO DELETE: {table.no_delete}; rows that only the target has stay")
    return lines + [f"note: {note}" for note in table.notes]


def _moment() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _written_line(table: TableRepair) -> str:
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


def _manifest(repair: Repair, info: RunInfo, prepared: Prepared) -> dict[str, Any]:
    endpoints = {
        name: {fact: facts[fact] for fact in ("host", "port", "flavor", "version")}
        for name, facts in prepared.facts.items()
    }
    return {
        "format": 1, "run": info.run_id, "plan_digest": prepared.digest, "written": _moment(),
        "migverify": __version__, "endpoints": endpoints, "earlier": repair.earlier or None,
        "tables": [_entry(table) for table in repair.tables],
    }  # fmt: skip


def _entry(table: TableRepair) -> dict[str, Any]:
    written = table.written

    def facts(file: FileFacts | None) -> dict[str, Any] | None:
        if file is None:
            return None
        return {"file": file.name, "sha256": file.sha256, "bytes": file.bytes, "statements": file.statements}

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
    repair.run_id = store.start_run(command, prepared.digest, stored, facts)
    say(f"run {repair.run_id} (repairs {repair.of})")
    verdict, reasons = Verdict.INCONCLUSIVE, ["interrupted; every transaction is whole: run the repair again"]
    try:
        for table in repair.tables:
            _apply_table(table, repair, config, secrets, store, pool, results.get(table.pair.id))
            say(_applied_line(table))
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
    table.result = _result(table, before, repair.of, time.monotonic() - started)
    store.add_table_result(repair.run_id, table.result)


def execute_script(path: Path, endpoint: Endpoint, secrets: Secrets, rules: Rules) -> Applied:
    """Execute a script transaction by transaction.

    A transaction that the server refuses is undone and its statements are executed one by one, so that one row
    cannot hold back the others; the refused ones are tried again as long as that helps. A lost connection or a conflict is tried again: a statement that had its effect
    finds nothing to do.

    Raises
    ------
    RepairError
        the user may not write.
    RetryableReadError
        the target cannot be reached any more; what was committed stays.
    """
    applied, refused = Applied(), []
    batches = transactions(path)
    with closing(_Writer(endpoint, secrets.get(endpoint.name), next(batches, []), rules)) as writer:
        for batch in batches:
            try:
                applied.count(writer.transaction(batch))
            except RetryableReadError:
                raise
            except ReadError:
                refused += _one_by_one(writer, batch, applied)
        # A unique value that another row of the script held may be free by now.
        before = -1
        while 0 < len(refused) <= REFUSED_AT_ONCE and len(refused) != before:
            before = len(refused)
            applied.refused.clear()
            refused = _one_by_one(writer, refused, applied)
    return applied


def _one_by_one(writer: _Writer, batch: list[str], applied: Applied) -> list[str]:
    """Execute each statement in a transaction of its own; returns those that the server refused."""
    refused: list[str] = []
    for statement in batch:
        try:
            applied.count(writer.transaction([statement]))
        except RetryableReadError:
            raise
        except ReadError as error:
            # The server's words without the statement: that holds the row's values.
            applied.refused[scrub(error.message.split("\n  SQL: ")[0])] += 1
            refused.append(statement)
    return refused


class _Writer:
    """The one session that writes, opened again when it is lost."""

    def __init__(self, endpoint: Endpoint, password: str | None, prepare: list[str], rules: Rules) -> None:
        self._endpoint, self._password, self._prepare, self._rules = endpoint, password, prepare, rules
        self._session: Session | None = None

    def transaction(self, batch: list[str]) -> list[int]:
        """Execute statements in one transaction; returns the rows each one matched."""
        for attempt in range(self._rules.retries + 1):
            try:
                return self._once(batch)
            except RetryableReadError:
                self.close()
                if attempt == self._rules.retries:
                    raise
                time.sleep(self._rules.retry_seconds * 2**attempt)
        raise RepairError(f"{self._endpoint.name}: no attempt was made (retries={self._rules.retries})")

    def _once(self, batch: list[str]) -> list[int]:
        session = self._session or self._open()
        done = False
        try:
            session.execute("BEGIN")
            found = [session.execute(statement) for statement in batch]
            session.execute("COMMIT")
            done = True
        except PrivilegeError as error:
            raise RepairError(
                error.message, hint=f"GRANT INSERT, UPDATE, DELETE on the tables to {self._endpoint.user}."
            ) from error
        finally:
            if not done:
                self.close()  # the server undoes what an ended connection left open
        return found

    def _open(self) -> Session:
        session = open_session(self._endpoint, self._password)
        self._session = session
        for statement in self._prepare:
            session.execute(statement)
        return session

    def close(self) -> None:
        """Close the session; an open transaction is undone by the server."""
        if self._session is not None:
            self._session.close()
            self._session = None


# --- the rows again --------------------------------------------------------------------------------------------


def _read_again(
    table: TableRepair, pair: PairPlan, pool: SessionPool, rules: Rules, store: ResultStore, runs: tuple[str, str]
) -> None:
    """Read every row that differed in run ``runs[0]`` again and keep its state under ``runs[1]``."""
    with closing(open_reader(pair, pool, rules)) as reader:
        for page in diverged(store, runs[0], pair.id):
            confirmed = list(confirm(reader, page))
            store.add_row_diffs(runs[1], confirmed)
            table.states.update(diff.state.value for diff in confirmed)
            for diff in confirmed:
                if diff.state is LiveState.DIVERGED:
                    table.states[f"diverged {diff.kind.value}"] += 1


def _result(table: TableRepair, before: TableResult | None, of: str, seconds: float) -> TableResult:
    """Judge a table by the rows read again, and by what the run that is repaired left open."""
    pair, states = table.pair, table.states
    mismatches = [f"the table is on the {'source' if pair.source else 'target'} only"] if not pair.readable else []
    mismatches += [d.message for d in pair.schema if d.level is SchemaClass.BREAKS_COMPARISON and d.target is None]
    if table.different:
        mismatches.append(f"{table.different:,} rows are still different")
    gaps = []
    if table.refused:
        gaps.append(f"not repaired: {table.refused}")
        if before is not None and (n := before.missing_on_target + before.missing_on_source + before.value_differs):
            mismatches.append(f"{n:,} rows differed in run {of} and were not repaired")
    if table.unread:
        gaps.append(f"the rows could not all be read again: {table.unread}")
    if hot := states[LiveState.HOT.value]:
        gaps.append(f"{hot:,} rows kept changing while they were read (hot)")
    if unread := why_no_delete(before, {}):
        gaps.append(f"run {of} left a gap: {unread}")
    gaps += [f"column {gap.what} is not compared: {gap.reason}" for gap in pair.unproved]
    if before is not None:
        gaps += [r for r in before.reasons if "(hot)" in r or r.endswith("were not read again")]
    verdict = Verdict.MISMATCH if mismatches else Verdict.INCONCLUSIVE if gaps else Verdict.MATCH
    refused = table.applied.refused if table.applied else Counter[str]()
    scope = NotCovered("rows", f"only the {states_total(states):,} rows that differed in run {of} were read again")
    return TableResult(
        pair=pair.id, source=pair.source or "(none)", target=pair.target or "(none)", verdict=verdict,
        reasons=(*mismatches, *gaps), rows_source=before.rows_source if before else None,
        rows_target=before.rows_target if before else None, chunks=0, lanes=before.lanes if before else (),
        missing_on_target=states["diverged missing_on_target"], missing_on_source=states["diverged missing_on_source"],
        value_differs=states["diverged value_differs"], not_covered=(*pair.not_covered, scope), schema=pair.schema,
        seconds=seconds, hash_name=pair.hash, blind_spots=pair.blind_spots,
        details={
            "repairs": of, "repaired": table.repaired, "left alone": table.left_alone,
            "still different": table.different, "converged": states[LiveState.CONVERGED.value],
            "hot": states[LiveState.HOT.value], "refused by the target": dict(refused),
            "strategy": "repair: the rows that differed, by key",
        },
    )  # fmt: skip


def states_total(states: Counter[str]) -> int:
    """Return how many rows were read again."""
    return sum(states[state.value] for state in LiveState)


def _applied_line(table: TableRepair) -> str:
    line = (f"{table.pair.id}: repaired {table.repaired:,}, left alone {table.left_alone:,} (changed since the run), "
            f"still different {table.different:,}")  # fmt: skip
    if hot := table.states[LiveState.HOT.value]:
        line += f", hot {hot:,}"
    if table.applied and table.applied.refused:
        reason, _ = table.applied.refused.most_common(1)[0]
        line += f"; the target refused {table.applied.refused.total():,} statements, as in: {reason}"
    return line + (f"; not repaired: {table.refused}" if table.refused else "")
