"""Asks both sides how they would run a capture's statements; nothing is executed, unless that was requested.

A session of each side is brought into the state of the call (database, modes, variables).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from migverify.db.session import Session, open_session
from migverify.errors import MigverifyError, ReadError
from migverify.model import Flavor, Side, TableDef
from migverify.sql.catalog import read_tables
from migverify.workload.classify import classify
from migverify.workload.model import Command
from migverify.workload.plans import mysql, tidb
from migverify.workload.plans.choose import Chosen, text_of
from migverify.workload.plans.model import DigestPlans, PlanAnswer, QueryPlan, SamplePlans
from migverify.workload.plans.statistics import Indexes, TargetTables, read_statistics
from migverify.workload.replay.model import Call
from migverify.workload.replay.reader import Limits
from migverify.workload.replay.restore import restored, standing
from migverify.workload.replay.safety import Leave, ReplayEndpoints, refusal
from migverify.workload.replay.wire import ServerWire, open_wire, quoted
from migverify.workload.state import SessionState

_UNKNOWN_VARIABLE = 1193
_LOADING = 20
_SKIPS = "skip prepared plan-cache: "
_LOADING_SECONDS = 0.3


class _RefusedError(ReadError):
    """A server refused a statement; ``errno`` is the number of its error."""

    def __init__(self, message: str, *, hint: str = "", errno: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.errno = errno


class _WireKey(NamedTuple):
    side: Side
    read_only: bool
    bindings: bool = True


@dataclass(slots=True)
class Explainer:
    """Sessions of both sides that explain: those that read, those that may write, and those without bindings.

    Each is kept as long as the state of its calls is the same.
    """

    sides: ReplayEndpoints
    analyze: bool = False
    seconds: float = 60.0
    _wires: dict[_WireKey, tuple[SessionState, ServerWire]] = field(default_factory=dict)

    def explain(self, call: Call) -> SamplePlans:
        """Return both sides' plans of one call; what a side refuses is its reason, never an error."""
        text, plans = _text(call), {}
        # EXPLAIN ANALYZE runs the statement: only what a replay that reads would ask may be run. A session that is
        # read-only refuses to explain a write (1792); nothing else is explained in one that is not.
        reads = not refusal(call, classify(call.sql, call.state.modes), Leave())
        for side in self.sides.endpoints:
            try:
                wire = self._wire(_WireKey(side, reads), standing(call.state))
                plan = self._plan(wire, text, runs=reads and self.analyze)
                prepared = wire.flavor is Flavor.TIDB and call.parameters is not None
                plans[side] = PlanAnswer(plan, uncached=self._uncached(wire, call) if prepared else "")
            except MigverifyError as error:
                errno = error.errno if isinstance(error, _RefusedError) else 0
                plans[side] = PlanAnswer(reason=str(error), errno=errno)
        return SamplePlans(call.origin, text, plans, call.captured.errno)

    def target_plan(self, call: Call, text: bytes) -> QueryPlan:
        """Return the target's plan of a text with a hint in a call's session; raises ReadError where it refuses."""
        wire = self._wire(_WireKey(Side.TARGET, read_only=True, bindings=False), standing(call.state))
        return self._plan(wire, text, runs=False)

    def rows_read(self, call: Call, *, bindings: bool = True) -> float:
        """Run a read on the target; return how many rows it took from its tables. Raises ReadError."""
        wire, text = (
            self._wire(_WireKey(Side.TARGET, read_only=True, bindings=bindings), standing(call.state)),
            _text(call),
        )
        self._plan(wire, text, runs=False)  # loads the statistics that are wanted first
        plan = tidb.read_plan(self._asked(wire, b"EXPLAIN ANALYZE FORMAT='tidb_json' " + text))
        return sum(one.actual or 0.0 for one in plan.accesses)

    def run(self, call: Call, *, bindings: bool = True) -> int:
        """Run a read on the target as it was captured; return the microseconds it took. Raises ReadError."""
        wire = self._wire(_WireKey(Side.TARGET, read_only=True, bindings=bindings), standing(call.state))
        began = time.monotonic_ns()
        answer = wire.run(call, prepared=call.command == Command.EXECUTE.value)
        taken = (time.monotonic_ns() - began) // 1000
        if not answer.ok:
            raise ReadError(answer.unanswered or f"{answer.errno} {answer.message}")
        return taken

    def _plan(self, wire: ServerWire, text: bytes, *, runs: bool) -> QueryPlan:
        if wire.flavor is Flavor.TIDB:
            how = b"EXPLAIN ANALYZE FORMAT='tidb_json' " if runs else b"EXPLAIN FORMAT='tidb_json' "
            plan = tidb.read_plan(self._asked(wire, how + text))
            for _ in range(_LOADING):
                # TiDB loads statistics of columns when they are first wanted, and does not wait long for them
                if not any(one.statistics.startswith("partial") for one in plan.accesses):
                    break
                time.sleep(_LOADING_SECONDS)
                plan = tidb.read_plan(self._asked(wire, how + text))
            return plan
        if wire.flavor is Flavor.MARIADB:
            raise ReadError("MariaDB's plans are not read")
        return mysql.read_plan(self._asked(wire, b"EXPLAIN FORMAT=JSON " + text))

    def _asked(self, wire: ServerWire, sql: bytes) -> str:
        answer = wire.command(sql)
        if answer.unanswered:
            wire.close()
            raise ReadError(answer.unanswered)
        if not answer.ok:
            raise _RefusedError(f"{answer.errno} {answer.message}", errno=answer.errno)
        if not answer.rows or answer.rows[0][0] is None:
            raise ReadError("EXPLAIN gave no row")
        return answer.rows[0][0].decode("utf-8", "replace")

    def _uncached(self, wire: ServerWire, call: Call) -> str:
        """Return why TiDB says that it does not cache the plan of a prepared statement; nothing is executed.

        Some reasons are found when it is executed only: those are not seen here.
        """
        prepared = wire.command(b"PREPARE migverify_plan FROM " + quoted(call.sql, call.state.modes))
        if not prepared.ok:
            raise ReadError(f"PREPARE: {prepared.unanswered or prepared.message}")
        warned = wire.command(b"SHOW WARNINGS")
        wire.command(b"DEALLOCATE PREPARE migverify_plan")
        if not warned.ok or warned.rows is None:
            raise ReadError(f"SHOW WARNINGS: {warned.unanswered or warned.message}")
        said = [(row[-1] or b"").decode("utf-8", "replace") for row in warned.rows]
        return next((one.partition(_SKIPS)[2] for one in said if _SKIPS in one), "")

    def _wire(self, session: _WireKey, state: SessionState) -> ServerWire:
        """Return a session; without ``bindings`` one whose hints count: a binding would take their place."""
        known = self._wires.get(session)
        if known is not None and known[0] == state and not known[1].closed:
            return known[1]
        if known is not None:
            known[1].close()
        endpoint = self.sides.endpoints[session.side]
        secret = self.sides.secrets.get(endpoint.name)
        wire = open_wire(endpoint, secret, session.side, Limits(seconds=self.seconds))
        self._wires[session] = (state, wire)
        own = tidb.NO_EVALUATION if wire.flavor is Flavor.TIDB else mysql.VERSION_1
        more = (own,) if session.bindings else (own, tidb.NO_BINDINGS)
        for command in (*restored(state, wire.flavor, read_only=session.read_only).commands, *more):
            answer = wire.command(command)
            if not answer.ok and not (command == own and answer.errno == _UNKNOWN_VARIABLE):
                wire.close()
                said = answer.unanswered or f"{answer.errno} {answer.message}"
                raise ReadError(f"{said}: {command.decode('utf-8', 'replace')}")
        return wire

    def close(self) -> None:
        """Close the sessions."""
        for _, wire in self._wires.values():
            wire.close()
        self._wires.clear()


def _text(call: Call) -> bytes:
    text = text_of(call)
    if text is None:
        raise ReadError(f"{call.origin}: {call.sql[:80]!r} has more or fewer values than parameters")
    return text


def explain(one: Chosen, explainer: Explainer) -> DigestPlans:
    """Return the plans of a digest."""
    meaning = one.meaning
    database = next((call.state.database for call in one.samples if call.state.database), "") or ""
    samples = tuple(explainer.explain(call) for call in one.samples)
    return DigestPlans(
        meaning.digest, meaning.text, database, meaning.shape.tables or (), one.calls, one.seconds, samples, one.skipped
    )


def table_names(plans: DigestPlans) -> Mapping[str, tuple[str, str]]:
    """Return database and table by the name that the statement uses, all lower case; empty where it is not read."""
    import sqlglot
    from sqlglot import errors
    from sqlglot import expressions as exp

    found: dict[str, tuple[str, str]] = {}
    for sample in plans.samples[:1]:
        try:
            trees = sqlglot.parse(sample.sql.decode("utf-8", "replace"), dialect="mysql")
        except (errors.SqlglotError, RecursionError):
            return {}
        for tree in trees:
            for table in tree.find_all(exp.Table) if tree is not None else ():
                found[table.alias_or_name.lower()] = ((table.db or plans.database).lower(), table.name.lower())
    return found


def read_target(sides: ReplayEndpoints, names: Set[tuple[str, str]]) -> TargetTables:
    """Return what the target's catalog says of some tables, lower case."""
    with _session(sides, Side.TARGET) as session:
        databases = {database for database, _ in names}
        statistics = read_statistics(session, databases) if session.flavor is Flavor.TIDB else {}
        return TargetTables(statistics, _indexes(_tables(session, names)))


def read_source(sides: ReplayEndpoints, names: Set[tuple[str, str]]) -> tuple[Indexes, Mapping[tuple[str, str], int]]:
    """Return the indexes of some tables of the source, lower case, and how many rows it estimates them to have."""
    with _session(sides, Side.SOURCE) as session:
        tables = _tables(session, names)
        return _indexes(tables), {name: table.rows for name, table in tables.items()}


def _session(sides: ReplayEndpoints, side: Side) -> Session:
    endpoint = sides.endpoints[side]
    return open_session(endpoint, sides.secrets.get(endpoint.name), side=side)


def _tables(session: Session, names: Set[tuple[str, str]]) -> dict[tuple[str, str], TableDef]:
    tables = read_tables(session, session.endpoint.name, lambda database, table: _lower(database, table) in names)
    return {_lower(table.ref.database, table.ref.table): table for table in tables}


def _lower(database: str, table: str) -> tuple[str, str]:
    return database.lower(), table.lower()


def _indexes(tables: Mapping[tuple[str, str], TableDef]) -> Indexes:
    return {name: {index.name.lower(): index for index in table.indexes} for name, table in tables.items()}
