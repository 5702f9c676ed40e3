"""Plant a fault, ask every tool, judge the answers.

What migverify reports is compared with the difference of the target's rows before and after, read by the planter's own
SQL: every differing row must be reported with its kind, its key and exactly its columns, and nothing else.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from migverify.config import TableOverride
from migverify.db.session import open_session
from migverify.errors import LabError
from migverify.model import DiffKind, Endpoint, LiveState, RowDiff, Side, StoredKind, TableDef, TableResult, Verdict
from migverify.sql.catalog import read_table
from migverify.sql.checksum import row_checksum
from migverify.sql.quoting import quote_name
from migverify.store.results import ResultStore
from migverify.tables.engine import TaskEngine
from migverify.tables.plan import plan_pair
from migverify.tables.tasks import PairPlan, Rules
from migverify.tables.verify import Controls, verify_tables
from migverify_lab.columns import ColumnFacts, TableFacts, Value, show
from migverify_lab.faults import plant
from migverify_lab.matrix.competitors import COMPETITORS, Both
from migverify_lab.matrix.gallery import Gallery, target_name
from migverify_lab.planting import PlantedFault, Planter, Row

if TYPE_CHECKING:
    from pymysql.connections import Connection

RULES = Rules(delay_seconds=0.0)
"""Nobody writes to the lab's tables meanwhile, so rows need not be read again later."""

Where = tuple[str | None, ...]
Facts = Counter[tuple[DiffKind, Where, frozenset[str]]]
"""Differing rows as (kind, key, columns that differ) with their number. Columns are in lower case."""


class Sight(StrEnum):
    """What a tool says of a fault."""

    SEEN = "seen"
    MISSED = "missed"
    FALSE_ALARM = "false alarm"  # it called the table unequal before the fault, so it cannot tell
    ERROR = "error"  # its statement fails on one of the servers
    MISPLACED = "seen, wrong place"  # migverify only: a wrong key, column or kind
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Trial:
    """One fault in one table. ``cells`` is tool -> what it saw; ``problem`` is not empty where migverify failed."""

    fault: str
    table: str
    keyed: bool
    rows: int
    cells: dict[str, Sight]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Baseline:
    """One table before any fault."""

    plan: PairPlan
    rows: list[Row]
    answers: dict[str, tuple[Any, Any]]
    verdict: TableResult
    diffs: tuple[RowDiff, ...]


class Examiner:
    """Asks all tools about the tables of a gallery."""

    def __init__(self, gallery: Gallery, engine: TaskEngine, store: ResultStore, md5: str) -> None:
        self.gallery = gallery
        self.engine = engine
        self.store = store
        self.md5 = md5
        self._baselines: dict[str, Baseline] = {}
        self._columns: dict[str, tuple[Both, ...]] = {}

    # --- one fault --------------------------------------------------------------------------------------------

    def try_fault(self, fault: str, table: str, seed: int = 1) -> Trial:
        """Plant one fault, ask all tools, put the table back.

        Raises
        ------
        LabError
            When the table holds nothing for this fault.
        """
        before = self.baseline(table)
        try:
            planted = plant(self.gallery.target, fault, self.gallery.database, target_name(table), seed)
            result, diffs = self.verify(before.plan)
            sight, problem = self._judge(before, table, result, diffs, (planted,))
            cells = {"row count": _counted(before, planted), "migverify": sight}
            for name, (one, other) in before.answers.items():
                cells[name] = self._compared(name, table, one, other)
        finally:
            self.gallery.restore(table)
        return Trial(fault, table, bool(before.plan.sides[-1].sql.key), len(planted.rows), cells, problem)

    def _compared(self, tool: str, table: str, source: object, target: object) -> Sight:
        if isinstance(source, LabError) or isinstance(target, LabError):
            return Sight.ERROR
        if source != target:
            return Sight.FALSE_ALARM
        return Sight.SEEN if self._ask(tool, table, Side.TARGET) != source else Sight.MISSED

    # --- two faults -------------------------------------------------------------------------------------------

    def try_pair(self, faults: tuple[str, str], table: str, seeds: int = 5) -> str | None:
        """Plant two faults in one table and verify; return what is wrong, or "" when both were found.

        None when the table cannot carry both so that both can be seen: one would undo or hide the other.
        """
        before = self.baseline(table)
        for seed in range(1, seeds + 1):
            try:
                planted = self._plant_all(faults, table, seed)
                if planted is None:
                    return None
                if self._both_visible(before, table, planted):
                    result, diffs = self.verify(before.plan)
                    return self._judge(before, table, result, diffs, planted)[1]
            finally:
                self.gallery.restore(table)
        return None

    def _plant_all(self, faults: tuple[str, str], table: str, seed: int) -> tuple[PlantedFault, ...] | None:
        try:
            return tuple(
                plant(self.gallery.target, fault, self.gallery.database, target_name(table), seed) for fault in faults
            )
        except LabError:
            return None  # the table holds nothing for one of them

    def _both_visible(self, before: Baseline, table: str, planted: tuple[PlantedFault, ...]) -> bool:
        facts = self.gallery.facts(table)
        if not facts.key:
            one, two = _multiset(before.rows), _multiset(self._rows(facts))
            return ((one - two) + (two - one)).total() == sum(len(fault.rows) for fault in planted)
        now = net_difference(facts.key, before.rows, self._rows(facts))
        columns = {(kind, key): found for kind, key, found in now}
        return all(
            frozenset(name.lower() for name in row.columns) <= columns.get((row.kind, row.key), frozenset())
            and (row.kind, row.key) in columns
            for one in planted
            for row in one.rows
        )

    # --- migverify --------------------------------------------------------------------------------------------

    def baseline(self, table: str) -> Baseline:
        """Return what was known of a table before any fault; the first call reads it."""
        if table not in self._baselines:
            plan, columns = self._plan(table)
            self._columns[table] = columns
            result, diffs = self.verify(plan)
            answers = {
                tool.name: (self._ask(tool.name, table, Side.SOURCE), self._ask(tool.name, table, Side.TARGET))
                for tool in COMPETITORS
            }
            self._baselines[table] = Baseline(plan, self._rows(self.gallery.facts(table)), answers, result, diffs)
        return self._baselines[table]

    def _plan(self, table: str) -> tuple[PairPlan, tuple[Both, ...]]:
        ends = {"source": self.gallery.servers.source, "target": self.gallery.servers.target}
        endpoints = {name: Endpoint(name, server.host, server.port, server.user) for name, server in ends.items()}
        source = _definition(endpoints["source"], self.gallery.database, table)
        target = _definition(endpoints["target"], self.gallery.database, target_name(table))
        plan = plan_pair([source], target, endpoints, TableOverride(), "SHA2")
        own = {column.name.lower(): column for column in source.columns}
        return plan, tuple((own[column.name.lower()], column) for column in target.columns)

    def verify(self, plan: PairPlan) -> tuple[TableResult, tuple[RowDiff, ...]]:
        """Verify one pair on the engine and return its result with its row diffs."""
        run = self.store.start_run("verify", "fault matrix", {}, {}, kind=StoredKind.TABLES)
        verify_tables([plan], self.engine, self.store, run, RULES, Controls())
        (result,) = self.store.table_results(run)
        found = self.store.row_diffs(run, plan.id, states=[LiveState.DIVERGED.value], limit=1_000_000)
        return result, tuple(diff for _, diff in found)

    def _judge(
        self,
        before: Baseline,
        table: str,
        result: TableResult,
        diffs: tuple[RowDiff, ...],
        planted: tuple[PlantedFault, ...],
    ) -> tuple[Sight, str]:
        """Return migverify's cell, and in words what is wrong ("" when nothing is)."""
        what = "\n".join(one.describe() for one in planted)
        if before.verdict.verdict is not Verdict.MATCH:
            reasons = "; ".join(before.verdict.reasons)
            return Sight.FALSE_ALARM, f"{table} is {before.verdict.verdict} before any fault: {reasons}"
        if result.verdict is not Verdict.MISMATCH:
            sight = Sight.MISSED if result.verdict is Verdict.MATCH else Sight.INCONCLUSIVE
            return sight, f"{table} is {result.verdict} ({'; '.join(result.reasons)}) after\n{what}"
        facts = self.gallery.facts(table)
        key = identity(before.plan, facts)
        if key:
            expected = net_difference(key, before.rows, self._rows(facts))
            found = reported(diffs)
        else:
            expected = self._expected_rows(before, facts)
            found = reported_rows(diffs)
        if expected == found:
            return Sight.SEEN, ""
        wrong = f"not reported: {_few(expected - found)}; reported without reason: {_few(found - expected)}"
        return Sight.MISPLACED, f"{table}: {wrong}\n{what}"

    def _expected_rows(self, before: Baseline, facts: TableFacts) -> Facts:
        """Return the checksums of the rows that a keyless table gained and lost; the target computes them."""
        now = self._rows(facts)
        lost, gained = _multiset(before.rows) - _multiset(now), _multiset(now) - _multiset(before.rows)
        side = before.plan.sides[-1].sql
        checksum = row_checksum(side.exact, side.hash)
        spare = f"{quote_name(self.gallery.spare)}.{quote_name(facts.name)}"
        found: Facts = Counter()
        for kind, place, rows in (
            (DiffKind.MISSING_ON_TARGET, spare, lost),
            (DiffKind.MISSING_ON_SOURCE, facts.quoted, gained),
        ):
            for items, count in rows.items():
                where = self._planter(facts).where(dict(items))
                answer = _one(self.gallery.target, f"SELECT {checksum} FROM {place} WHERE {where} LIMIT 1")  # noqa: S608
                found[kind, (str(answer[0]),), frozenset()] += count
        return found

    # --- rows and other tools -----------------------------------------------------------------------------------

    def _planter(self, facts: TableFacts) -> Planter:
        return Planter(self.gallery.target, facts, random.Random(0))

    def _rows(self, facts: TableFacts) -> list[Row]:
        return self._planter(facts).read("TRUE")

    def _ask(self, tool: str, table: str, side: Side) -> object:
        """Return a competitor's answer over one whole table, or the error it ends with."""
        import pymysql

        competitor = next(one for one in COMPETITORS if one.name == tool)
        expression = competitor.expression(self._columns[table], side, self.md5)
        connection = self.gallery.source if side is Side.SOURCE else self.gallery.target
        name = table if side is Side.SOURCE else target_name(table)
        place = f"{quote_name(self.gallery.database)}.{quote_name(name)}"
        try:
            return _one(connection, f"SELECT COUNT(*), {expression} FROM {place}")  # noqa: S608
        except pymysql.err.MySQLError as error:
            return LabError(f"{tool} on the {side} for {table}: {error}")


# --- pure -------------------------------------------------------------------------------------------------------


def identity(plan: PairPlan, facts: TableFacts) -> tuple[ColumnFacts, ...]:
    """Return the columns by which migverify names a row: also those of a unique key with NULLs."""
    names = [column.name for column in plan.sides[-1].sql.key]
    return tuple(column for name in names for column in facts.columns if column.quoted == name)


def net_difference(key: Sequence[ColumnFacts], before: list[Row], now: list[Row]) -> Facts:
    """Compare the rows of a table before and after, by value; rows of one key are compared as a multiset."""
    one, two = (_by_key(key, rows) for rows in (before, now))
    found: Facts = Counter()
    for place in one.keys() | two.keys():
        ours, theirs = one.get(place, []), two.get(place, [])
        if _multiset(ours) == _multiset(theirs):
            continue
        kind, columns = DiffKind.VALUE_DIFFERS, frozenset[str]()
        if len(ours) != len(theirs):
            kind = DiffKind.MISSING_ON_TARGET if len(ours) > len(theirs) else DiffKind.MISSING_ON_SOURCE
        elif len(ours) == 1:
            columns = frozenset(name.lower() for name in ours[0] if ours[0][name] != theirs[0][name])
        found[kind, place, columns] += 1
    return found


def _by_key(key: Sequence[ColumnFacts], rows: list[Row]) -> dict[Where, list[Row]]:
    found: dict[Where, list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(show(row[column.name]) for column in key), []).append(row)
    return found


def reported(diffs: tuple[RowDiff, ...]) -> Facts:
    """Return the row diffs of a table with a key in the same form."""
    return Counter((diff.kind, diff.key, frozenset(c.column.lower() for c in diff.columns)) for diff in diffs)


def reported_rows(diffs: tuple[RowDiff, ...]) -> Facts:
    """Return the row diffs of a keyless table: the checksum of the row in place of a key."""
    found: Facts = Counter()
    for diff in diffs:
        found[diff.kind, diff.key, frozenset()] += abs(diff.source_count - diff.target_count)
    return found


def _multiset(rows: list[Row]) -> Counter[tuple[tuple[str, Value], ...]]:
    return Counter(tuple(row.items()) for row in rows)


def _counted(before: Baseline, planted: PlantedFault) -> Sight:
    """COUNT(*) sees a fault only when rows came or went."""
    if before.verdict.rows_source != before.verdict.rows_target:
        return Sight.FALSE_ALARM
    change = Counter(row.kind for row in planted.rows)
    same = change[DiffKind.MISSING_ON_TARGET] == change[DiffKind.MISSING_ON_SOURCE]
    return Sight.MISSED if same else Sight.SEEN


def _few(facts: Facts, most: int = 4) -> str:
    shown = [f"{kind.value} key {key} columns {sorted(columns)} x{n}" for (kind, key, columns), n in facts.items()]
    return ("; ".join(shown[:most]) + (f"; and {len(shown) - most} more" if len(shown) > most else "")) or "nothing"


def _definition(endpoint: Endpoint, database: str, table: str) -> TableDef:
    with open_session(endpoint, None) as session:
        found = read_table(session, endpoint.name, database, table)
    if found is None:
        raise LabError(f"the {endpoint.name} has no table {database}.{table}", hint="Load the gallery first.")
    return found


def _one(connection: Connection, statement: str) -> tuple[Any, ...]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        row = cursor.fetchone()
    if row is None:
        raise LabError(f"no answer to {statement[:200]}", hint="This is a mistake in the matrix.")
    return tuple(row)
