"""A run of clients in the result store: a rule for each driver and pool, a window for each scenario and variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from migverify.model import NotCovered, TableResult, Verdict
from migverify.store.results import ResultStore
from migverify.workload.clients.model import CellResult, ClientDifference
from migverify.workload.clients.scenarios import LeftOut


def rule_name(driver: str, pool: str) -> str:
    """Return the name under which results of a driver and pool are kept."""
    return f"clients/{driver}/{pool}"


def keep_result(store: ResultStore, run_id: str, result: CellResult) -> None:
    """Record a cell and its differences."""
    window = f"{result.scenario}/{result.variant}"
    body = {
        "window": window, "state": "done", "verdict": result.verdict.value, "reason": result.reason,
        "unsteady": result.unsteady, "refused": result.refused, "seconds": result.seconds,
    }  # fmt: skip
    findings = [
        {"key": [window, str(one.step), one.path], "window": window, "kind": "known" if one.known else "unknown",
         **difference_as_json(one)}
        for one in result.differences
    ]  # fmt: skip
    store.add_window(run_id, rule_name(result.driver, result.pool), body, findings)


def keep_totals(store: ResultStore, run_id: str, results: Sequence[CellResult], left: Sequence[LeftOut]) -> Verdict:
    """Record the end of every driver and pool, and return the verdict of the whole; the caller then ends the run."""
    ordered = sorted(results, key=lambda one: (one.driver, one.pool))
    for (driver, pool), group in groupby(ordered, key=lambda one: (one.driver, one.pool)):
        mine = list(group)
        store.add_table_result(run_id, _table_result(driver, pool, mine, [one for one in left if one.driver == driver]))
    return verdict_of(results, left)


def verdict_of(results: Sequence[CellResult], left: Sequence[LeftOut]) -> Verdict:
    """Return the verdict of a run: what could have been run elsewhere and was not leaves it undecided at best."""
    verdict = Verdict.worst([one.verdict for one in results])
    if verdict is Verdict.MATCH and any(one.possible for one in left):
        return Verdict.INCONCLUSIVE
    return verdict


def _table_result(driver: str, pool: str, results: Sequence[CellResult], left: Sequence[LeftOut]) -> TableResult:
    counts = {verdict.value: sum(1 for one in results if one.verdict is verdict) for verdict in Verdict}
    bad = [one for one in results if one.verdict is not Verdict.MATCH]
    reasons = tuple(f"{one.scenario}/{one.variant}: {one.verdict} ({one.reason})" for one in bad)
    not_covered = tuple(
        NotCovered(f"{one.scenario}/{one.variant}", one.reason) for one in left if one.pool == pool and one.possible
    )
    return TableResult(
        pair=rule_name(driver, pool), source=f"source by {driver}/{pool}", target=f"target by {driver}/{pool}",
        verdict=Verdict.worst([one.verdict for one in results]), reasons=reasons,
        rows_source=None, rows_target=None, chunks=0, lanes=(), missing_on_target=0, missing_on_source=0,
        value_differs=0, not_covered=not_covered, schema=(), seconds=sum(one.seconds for one in results),
        details={"clients": {"scenarios": counts}},
    )  # fmt: skip


def difference_as_json(one: ClientDifference) -> dict[str, Any]:
    """Return a difference as a JSON object."""
    return {
        "step": one.step, "action": one.action, "path": one.path, "source": one.source, "target": one.target,
        "known": list(one.known),
    }  # fmt: skip


def results_as_json(results: Sequence[CellResult], left: Sequence[LeftOut], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a whole run as one JSON object."""
    return {
        "verdict": verdict_of(results, left).value,
        "facts": dict(facts),
        "cells": [
            {
                "driver": one.driver, "pool": one.pool, "scenario": one.scenario, "variant": one.variant,
                "verdict": one.verdict.value, "reason": one.reason, "unsteady": one.unsteady, "refused": one.refused,
                "seconds": round(one.seconds, 3),
                "differences": [difference_as_json(difference) for difference in one.differences],
            }
            for one in results
        ],
        "left_out": [
            {"driver": one.driver, "pool": one.pool, "scenario": one.scenario, "variant": one.variant,
             "reason": one.reason, "possible": one.possible}
            for one in left
        ],
    }  # fmt: skip
