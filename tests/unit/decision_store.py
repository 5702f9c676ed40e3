"""Writes the evidence of a service into a run store: all parts fine, or with harm that is planted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from migverify.decision.model import Basis, DecisionRules
from migverify.decision.read import EvidenceReading
from migverify.guards.keep import GuardRecorder, begin
from migverify.guards.model import AnswerState, GuardAnswer, GuardResult
from migverify.model import Side, StoredKind, Verdict
from migverify.store import runs as store_runs
from migverify.store.results import ResultStore
from migverify.workload.anomalies.compare import AnomalyComparison, JudgedAnomaly, PermittedBy
from migverify.workload.anomalies.model import (
    Anomaly,
    AnomalyName,
    CheckedHistory,
    Phenomenon,
    Usability,
)
from migverify.workload.anomalies.store import store_anomalies
from migverify.workload.catalogue.waivers import Waiver
from migverify.workload.clients.keep import keep_result, keep_totals
from migverify.workload.clients.model import CellResult, ClientDifference
from migverify.workload.conflict.model import ConflictKind, Explanation, Party, TransactionConflict
from migverify.workload.conflict.store import store_conflicts
from migverify.workload.plans.drift import PlanRecord
from migverify.workload.plans.judge import JudgedPlans
from migverify.workload.plans.model import (
    AccessPath,
    DigestPlans,
    Harm,
    PlanAnswer,
    PlanFinding,
    QueryPlan,
    SamplePlans,
    TableAccess,
)
from migverify.workload.plans.store import SINCE_RUN, add_plans, finish_plans, start_plans
from migverify.workload.replay.model import Captured
from migverify.workload.replay.store import write_replay
from migverify.workload.replay.tally import ReplayTally
from migverify.workload.replay.verdict import verdict
from tests.unit.replaying import INT, TEXT, answer, column, failed, judged

BASIS = Basis(
    {"source": "db:3306", "target": "tidb:4000"}, {"source": "mysql 9.7.4", "target": "tidb 8.5.0"}, "5" * 64, "c" * 64,
    "cafe" * 16, {"source": "uuid-1", "target": "cluster 7, made 2026-01-01"},
)  # fmt: skip
CLIENT = "pymysql/none"
SECRET = "ann@example.org"
WAIVED = "ids-differ-001"


@contextmanager
def clock(monkeypatch: Any, moment: float) -> Iterator[None]:
    """Have the store take another time for now."""
    with monkeypatch.context() as patched:
        patched.setattr(store_runs.time, "time", lambda: moment)
        yield


def facts(basis: Basis | None = BASIS, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"endpoints": {"source": {"version": "9.7.4"}, "target": {"version": "8.5.0"}}}
    return {**found, **({} if basis is None else {"basis": basis.as_json()}), **more}


def tally(*, differs: bool = False) -> ReplayTally:
    columns = [column("id", INT), column("name", TEXT)]
    found = ReplayTally()
    same = answer(columns, [(b"1", SECRET.encode())])
    for _ in range(20):
        found.add(judged("SELECT id, name FROM t WHERE id = 1", same, same, mask=True))
    if differs:
        other = answer(columns, [(b"1", b"bob")])
        found.add(judged(f"SELECT id, name FROM t WHERE name = '{SECRET}'", same, other, mask=True))
        found.add(judged("CALL settle('x')", same, failed(8108, f"no {SECRET}"), mask=True, captured=Captured(0)))
    return found


def replay(
    store: ResultStore, *, basis: Basis | None = BASIS, differs: bool = False, missed: bool = False, ends: bool = True,
    selection: Mapping[str, Any] | None = None, sides: Sequence[str] = ("source", "target"), writes: bool = True,
    waivers: Sequence[Waiver] = (), level: str = "payments", command: str = "workload replay peak",
    resumed: str = "",
) -> str:  # fmt: skip
    """Write a replay; without ``ends`` it was cut off. ``resumed``: one that was, which is carried on."""
    chosen = {"sessions": [], "users": [], "digests": [], "start": None, "end": None, "limit": None}
    choices = {"selection": {**chosen, **(selection or {})}, "leave": {"writes": writes}}
    plan = {"kind": "replay", "capture": "/captures/peak", "choices": choices, "sides": list(sides)}
    if resumed:
        run = store.resume_run(resumed).run_id
    else:
        run = store.start_run(command, "h", plan, facts(basis), kind=StoredKind.REPLAY)
    if not ends:
        return run
    counted = tally(differs=differs)
    found = verdict(counted, waivers=waivers)
    why = "p99 is 3.000 s, not below 2 s"
    judged_level = {"name": level, "met": not missed, "reasons": [why] if missed else []}
    if missed:
        words = f"service level {level} was missed: {why}"
        found = replace(found, verdict=Verdict.MISMATCH, reasons=(*found.reasons, words))
    write_replay(store, run, counted, found, facts={"slo": [judged_level]}, seconds=2.5)
    store.finish_run(run, found.verdict, {"seconds": 2.5, "reasons": list(found.reasons)})
    return run


def plans(
    store: ResultStore, *, basis: Basis | None = BASIS, scan: bool = False, doubt: bool | str = False,
    ends: bool = True, digests: Sequence[str] = (), counted: int = 2, samples: int = 3, analyze: bool = False,
    since: bool | str = False, command: str = "workload plans peak",
) -> str:  # fmt: skip
    """Write a run of plans. ``since`` is its baseline; True: one that the store does not hold any more."""
    plan = PlanAnswer(QueryPlan((TableAccess("orders", AccessPath.FULL_SCAN, "", 50_000.0),)))
    choices = {
        "digests": list(digests),
        "reads_only": False,
        "samples": samples,
        "analyze": analyze,
        "since": bool(since),
        SINCE_RUN: (since if isinstance(since, str) else "gone") if since else None,
    }
    run = start_plans(store, command, "/captures/peak", {}, {**facts(basis), "choices": choices})
    harm = PlanFinding(Harm.INDEX_LOST, "orders", "index k of the source is not on the target",
                       "ALTER TABLE `shop`.`orders` ADD INDEX `k` (`customer`)")  # fmt: skip
    for letter in "ab":
        sample = SamplePlans("x.log:1", b"SELECT 1", {Side.SOURCE: plan, Side.TARGET: plan})
        digest = DigestPlans(letter * 64, f"SELECT `{letter}`", "shop", ("orders",), 10, 3.0, (sample,))
        bad = letter == "b"
        judged_ = JudgedPlans(
            digest,
            (harm,) if scan and bad else (),
            (doubt if isinstance(doubt, str) else "ANALYZE TABLE t",) if doubt and bad else (),
        )
        add_plans(store, run, judged_, PlanRecord(letter * 64, "8.5.0", {}))
    if ends:
        finish_plans(store, run, Verdict.MATCH, (), 1.0, digests=counted)
    return run


def hotspots(
    store: ResultStore, *, basis: Basis | None = BASIS, hot: bool = False, unasked: Sequence[str] = (),
    fail_rate: float = 2_000.0, ends: bool = True,
) -> str:  # fmt: skip
    limits = {"warn_rate": 1_000.0, "fail_rate": fail_rate}
    run = begin(store, "guard hotspots", ["hotspots"], facts(basis, limits=limits))
    state = AnswerState.FAIL if hot else AnswerState.PASS
    one = GuardAnswer("hotspots", "insert order", "target/shop.orders", state, "2,400 rows/s", "< 2000 rows/s", "", "",
                      "AUTO_RANDOM" if hot else "", numbers={"rate": 2_400.0})  # fmt: skip
    result = GuardResult("hotspots", (one,), 1.0, 0.5, tuple(unasked))
    recorder = GuardRecorder(store, run)
    recorder.add(result)
    if ends:
        recorder.finish([result])
    return run


def history(usable: int = 9, reads: int = 10) -> CheckedHistory:
    return CheckedHistory("mysql 9.7", (), Usability(transactions=5, reads=reads, usable=usable), frozenset({"s/1"}))


def anomalies(
    store: ResultStore, recorded: str, *, lost: bool = False, usable: float = 0.8, share: int = 9,
    basis: Basis | None = BASIS, sides: Sequence[str] = ("source", "target"),
) -> str:  # fmt: skip
    """Keep a comparison of the histories that the replay ``recorded`` has."""
    lost_update = Anomaly(
        Phenomenon.G_SINGLE, AnomalyName.LOST_UPDATE, ("s1/4", "s2/7"), ("REPEATABLE READ",) * 2,
        ("s1/4 read what s2/7 overwrote",), (("s1/4", "UPDATE `t` SET `n` = ?"),),
    )  # fmt: skip
    found = (JudgedAnomaly(PermittedBy.TARGET, lost_update),) if lost else ()
    given = Verdict.MISMATCH if lost else Verdict.MATCH
    reasons = ("1 anomaly on the target that the source did not permit",) if lost else ()
    compared = AnomalyComparison(given, reasons, found, history(share), history(share))
    return store_anomalies(
        store, "workload anomalies", compared, facts(basis, sides=list(sides)), usable=usable, replay=recorded,
        seconds=0.1,
    )  # fmt: skip


def conflicts(
    store: ResultStore, recorded: str, *, cause: str = "", basis: Basis | None = BASIS, left_out: int = 0
) -> str:
    conflict = TransactionConflict(ConflictKind.WRITE, 9007, "Write conflict", "replay of session 1")
    party = Party(known_sql=f"UPDATE t SET n = 1 WHERE name = '{SECRET}'")
    explained = (Explanation(conflict, party, Party(), cause, (), "Retry on 9007."),) if cause else ()
    return store_conflicts(
        store, "workload explain-conflict", explained, facts(basis), replay=recorded, left_out=left_out, seconds=0.1
    )


def clients(
    store: ResultStore, *, basis: Basis | None = BASIS, differs: bool = False, known: tuple[str, ...] = (),
    scenarios: Sequence[str] = (), ends: bool = True,
) -> str:  # fmt: skip
    plan = {"kind": "clients", "cells": ["clients/pymysql/none values/default"]}
    chosen = {"scenarios": list(scenarios), "all": False}
    kept = {**facts(None if basis is None else replace(basis, capture="")), "choices": chosen}
    run = store.start_run("workload clients", "", plan, kept, kind=StoredKind.CLIENTS)
    difference = ClientDifference(2, "sql", "value", "1 (int)", "1 (Decimal)", known)
    result = CellResult("pymysql", "none", "values", "default", Verdict.MISMATCH if differs else Verdict.MATCH, "",
                        (difference,) if differs else ())  # fmt: skip
    keep_result(store, run, result)
    if ends:
        given = keep_totals(store, run, [result], [])
        store.finish_run(run, given, {"reasons": []})
    return run


def all_fine(store: ResultStore, **harm: Mapping[str, Any]) -> dict[str, str]:
    """Write evidence of all parts; ``harm`` are arguments of a part's function."""
    recorded = replay(store, **harm.get("replay", {}))
    return {
        "replay": recorded,
        "anomalies": anomalies(store, recorded, **harm.get("anomalies", {})),
        "plans": plans(store, **harm.get("plans", {})),
        "hotspots": hotspots(store, **harm.get("hotspots", {})),
        "conflicts": conflicts(store, recorded, **harm.get("conflicts", {})),
        "clients": clients(store, **harm.get("clients", {})),
    }


def reading(store: ResultStore, **changes: Any) -> EvidenceReading:
    told: dict[str, Any] = {
        "store": store, "service": BASIS, "rules": DecisionRules(), "capture": "captures/peak", "clients": (CLIENT,),
    } | changes  # fmt: skip
    return EvidenceReading(**told)
