"""One table pair verified from end to end: definitions from both catalogs, plan, local engine, result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from migverify.config import TableOverride
from migverify.db.session import Session, open_session
from migverify.model import Endpoint, LiveState, RowDiff, StoredKind, TableDef, TableResult, Verdict
from migverify.sql.catalog import read_table
from migverify.tables.engine import LocalTaskEngine
from migverify.tables.plan import plan_pair
from migverify.tables.tasks import PairPlan, Rules
from migverify.tables.verify import Controls, verify_tables
from tests.fakes import FakeStore

if TYPE_CHECKING:
    from migverify_lab.servers import LabServer
    from tests.conftest import Databases

RULES = Rules(delay_seconds=0.0, values=True)
EXACT = TableOverride()


def endpoint(name: str, server: LabServer) -> Endpoint:
    """Describe a server of the test pair as the endpoint ``name``."""
    return Endpoint(name, server.host, server.port, server.user)


@dataclass(frozen=True)
class Verified:
    """What a verification said. ``diffs`` are the diverged rows in key order."""

    plan: PairPlan
    result: TableResult
    diffs: tuple[RowDiff, ...]

    @property
    def verdict(self) -> Verdict:
        return self.result.verdict


@dataclass(frozen=True)
class Road:
    """Pinned sessions on both sides of a test's database, and one engine for all its tables."""

    database: str
    source: Session
    target: Session
    engine: LocalTaskEngine

    def definition(self, session: Session, table: str) -> TableDef:
        found = read_table(session, session.endpoint.name, self.database, table)
        assert found is not None, f"{session.endpoint.name} has no table {table!r}"
        return found

    def plan(self, table: str, override: TableOverride = EXACT, *, target: str | None = None) -> PairPlan:
        ours, theirs = self.definition(self.source, table), self.definition(self.target, target or table)
        endpoints = {s.endpoint.name: s.endpoint for s in (self.source, self.target)}
        return plan_pair([ours], theirs, endpoints, override, "SHA2")

    def verify(
        self, table: str, override: TableOverride = EXACT, *, target: str | None = None, rules: Rules = RULES
    ) -> Verified:
        return self.run(self.plan(table, override, target=target), rules)

    def run(self, plan: PairPlan, rules: Rules = RULES) -> Verified:
        store = FakeStore()
        run = store.start_run("verify", "none", {}, {}, kind=StoredKind.TABLES)
        verify_tables([plan], self.engine, store, run, rules, Controls())
        (result,) = store.table_results(run)
        found = store.row_diffs(run, plan.id, states=[LiveState.DIVERGED.value], limit=100_000)
        diffs = sorted((diff for _, diff in found), key=lambda d: [part or "" for part in d.key])
        return Verified(plan, result, tuple(diffs))

    def rows(self, plan: PairPlan) -> tuple[list[tuple[str | None, ...]], list[tuple[str | None, ...]]]:
        """Return the canonical texts of all compared columns on both sides, in the order of the first column."""
        return tuple(  # type: ignore[return-value]
            session.query(f"SELECT {','.join(side.sql.texts)} FROM {side.sql.table} ORDER BY 1+0")
            for session, side in zip((self.source, self.target), plan.sides, strict=True)
        )


@contextmanager
def road(databases: Databases, slots: int = 1) -> Iterator[Road]:
    """Open pinned sessions and a local engine on the databases of one test."""
    pair = databases.pair
    ends: Sequence[Endpoint] = (endpoint("source", pair.source), endpoint("target", pair.target))
    engine = LocalTaskEngine({}, slots)
    try:
        with open_session(ends[0], None) as source, open_session(ends[1], None) as target:
            yield Road(databases.name, source, target, engine)
    finally:
        engine.close()
