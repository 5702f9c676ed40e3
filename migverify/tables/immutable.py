"""Rows declared immutable, which later runs leave out: what a run of these statements found equal stays so.

``immutable_before: {column, value}`` declares that rows whose column lies before a moment never change. Once a run
has read the whole table with the same statements and found it equal, later runs leave those rows out and name the
run that proved them. Rows with NULL in the column are never immutable.
"""

from __future__ import annotations

from dataclasses import replace

from migverify.db.reader import SidePlan
from migverify.model import NotCovered, StoredKind, TableResult, Verdict
from migverify.store.results import ResultStore
from migverify.tables.plan import plan_digest
from migverify.tables.prepare import PreparedTables
from migverify.tables.tasks import PairPlan, with_stamps

_SEARCHED = 200

Proof = tuple[str, str, tuple[str, ...]]
"""(run id, digest of the plan that run walked, stamps of the tables that it read)."""


def proved_runs(store: ResultStore, prepared: PreparedTables, current: str) -> dict[str, Proof]:
    """Return, per pair, the newest run of this configuration that read the whole table and found it equal.

    Other servers with the same settings may share the store, and have tables of the same ids.
    """
    found: dict[str, Proof] = {}
    for info in store.runs(_SEARCHED):
        if info.plan_hash != prepared.digest or info.run_id == current or info.finished is None:
            continue
        if info.kind is StoredKind.QUICK or not prepared.owns(info):
            continue
        for result in store.table_results(info.run_id):
            walked = result.details.get("plan_digest")
            whole = not result.details.get("immutable_in") and result.details.get("stamps")
            if result.verdict is Verdict.MATCH and isinstance(walked, str) and whole:
                found.setdefault(result.pair, (info.run_id, walked, _stamps(result)))
    return found


def _stamps(result: TableResult) -> tuple[str, ...]:
    stamps = result.details.get("stamps")
    return tuple(map(str, stamps)) if isinstance(stamps, list) else ()


def narrowed(pair: PairPlan, proof: Proof | None) -> PairPlan:
    """Leave out the immutable rows of a pair that an earlier run proved with these statements in these tables."""
    if pair.immutable is None or proof is None or proof[1] != plan_digest(pair) or pair.target_side is None:
        return pair
    if len(proof[2]) != len(pair.sides):
        return pair  # a run of an earlier version does not say which tables it read
    source, target, words = pair.immutable
    rest = replace(
        pair,
        sources=tuple(_without(side, source) for side in pair.sources),
        target_side=_without(pair.target_side, target),
        not_covered=(*pair.not_covered, NotCovered("rows", f"{words}: declared immutable, MATCH in run {proof[0]}")),
        immutable_in=proof[0],
    )
    return with_stamps(rest, proof[2])


def _without(side: SidePlan, condition: str) -> SidePlan:
    return replace(side, sql=replace(side.sql, where=side.sql.within(condition)))
