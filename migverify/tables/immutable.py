"""Rows declared immutable are proved once: later runs read the others only, and say so.

``immutable_before: {column, value}`` declares that rows whose column lies before a moment never change. Once a run read
the whole table with the same statements and found it equal, later runs leave those rows out and name the run that
proved them. Rows with NULL in the column are never immutable.
"""

from __future__ import annotations

from dataclasses import replace

from migverify.db.reader import SidePlan
from migverify.model import NotCovered, TableResult, Verdict
from migverify.store.base import ResultStore
from migverify.tables.plan import plan_digest
from migverify.tables.tasks import PairPlan, with_stamps

RUNS_SEARCHED = 200

Proof = tuple[str, str, tuple[str, ...]]
"""(run id, digest of the plan that run walked, stamps of the tables that it read)."""


def proved_runs(store: ResultStore, digest: str, current: str) -> dict[str, Proof]:
    """Return, per pair, the newest run of this configuration that read the whole table and found it equal."""
    found: dict[str, Proof] = {}
    for info in store.runs(RUNS_SEARCHED):
        if info.plan_hash != digest or info.run_id == current or info.finished is None:
            continue
        for result in store.table_results(info.run_id):
            walked = result.details.get("plan_digest")
            if result.verdict is Verdict.MATCH and isinstance(walked, str) and not result.details.get("immutable_in"):
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
    where = f"({side.sql.where}) AND {condition}" if side.sql.where else condition
    return replace(side, sql=replace(side.sql, where=where))
