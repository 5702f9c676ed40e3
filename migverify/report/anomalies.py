"""Anomalies as sections, test cases, metrics and JSON, from what a run of ``workload anomalies`` stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from migverify.exposition import Metric, number
from migverify.figures import amount, utc
from migverify.model import NextStep, RunInfo, Verdict
from migverify.report.model import (
    Fact,
    FactList,
    JUnitCase,
    Lines,
    Report,
    Section,
    Tile,
    tone_of,
)
from migverify.report.run_facts import run_facts
from migverify.store.results import ResultStore
from migverify.workload.anomalies.compare import PermittedBy
from migverify.workload.anomalies.store import StoredAnomaly, StoredComparison, stored_anomalies, stored_comparison

_SENTENCES = {
    Verdict.MATCH: "The target permitted nothing to concurrent transactions that the source did not.",
    Verdict.MISMATCH: "The target permitted anomalies that the source did not.",
    Verdict.INCONCLUSIVE: "It is not known whether the target permits more to concurrent transactions.",
}
_VERDICTS = {PermittedBy.TARGET: Verdict.MISMATCH, PermittedBy.UNSURE: Verdict.INCONCLUSIVE}
_DETAILED = 200
_LISTED = ("transactions", "committed", "aborted", "unknown", "reads", "usable", "writes", "opaque", "unordered",
           "dependencies")  # fmt: skip


def anomalies_report(store: ResultStore, info: RunInfo) -> Report:
    """Return the report of a run of anomalies; one without an end, or that lacks what it counted, is never MATCH."""
    whole = stored_comparison(store, info.run_id)
    found = tuple(stored_anomalies(store, info.run_id))
    verdict, reasons = _verdict(info, whole, found)
    run = replace(run_facts(info, (), 0), verdict=verdict, reasons=reasons)
    counts = {each: sum(one.permitted is each for one in found) for each in PermittedBy}
    sides = {} if whole is None else {"source": whole.source, "target": whole.target}
    return Report(
        run.run_id, f"anomalies {run.run_id}", verdict, _SENTENCES[verdict],
        f"anomalies {run.run_id}, {utc(run.started)}", tone=tone_of(verdict),
        covered="Covered: " + "; ".join(_covered(side, body) for side, body in sides.items()) + "." if sides else "",
        reasons=reasons, started=run.started, seconds=run.seconds,
        tiles=tuple(Tile(f"{n:,}", each.value, tone_of(_VERDICTS.get(each, Verdict.MATCH)) if n else "none")
                    for each, n in counts.items()),
        cards=run.cards(), sections=(_anomalies(found), *_histories(sides), run.section()),
        cases=tuple(map(_case, found)) or (JUnitCase("anomalies", f"run {run.run_id}", verdict, reasons),),
        metrics=(*run.metrics({}), Metric("migverify_run_anomalies", "Anomalies by who permitted them.",
                                          [({"permitted_by": each.value}, number(n)) for each, n in counts.items()])),
        document={
            "run_id": run.run_id, "kind": "anomalies", "verdict": verdict.value, "exit_code": int(verdict.exit_code),
            "reasons": list(reasons), "anomalies": [dict(one.body) for one in found], **sides,
        },
        private=True,
        next_steps=anomalies_steps(run.run_id),
    )  # fmt: skip


def anomalies_steps(run_id: str) -> tuple[NextStep, ...]:
    """Return the command that shows all of a run."""
    return (NextStep(f"migverify report {run_id} -o anomalies.html", "the whole report as a page"),)


def _verdict(
    info: RunInfo, whole: StoredComparison | None, found: Sequence[StoredAnomaly]
) -> tuple[Verdict, tuple[str, ...]]:
    """Return the stored verdict, unless it claims more than the store holds."""
    proved = any(one.permitted is PermittedBy.TARGET for one in found)
    least = Verdict.MISMATCH if proved else Verdict.INCONCLUSIVE
    if info.finished is None or whole is None:
        return least, ("the run has no end: it was cut off or still goes on",)
    if whole.anomalies != len(found):
        missing = f"the store holds {len(found):,} of the anomalies, and {whole.anomalies:,} were found"
        return least, (missing, *whole.reasons)
    verdict = Verdict.worst([info.verdict, whole.verdict, *([least] if found and proved else [])])
    return verdict, whole.reasons


def _covered(side: str, body: Mapping[str, Any]) -> str:
    return f"{side} {amount(int(body.get('transactions', 0)), 'transaction')}, {float(body.get('share', 0)):.0%} usable"


def _anomalies(found: Sequence[StoredAnomaly]) -> Section:
    blocks = tuple(_anomaly(number, one) for number, one in enumerate(found[:_DETAILED], 1))
    more = len(found) - _DETAILED
    note = (Lines((f"{more:,} more: the JSON report has all of them.",), style="note"),) if more > 0 else ()
    none = (Lines(("No anomaly was found on either side.",), style="note"),)
    return Section("Anomalies", (*blocks, *note) or none, id="anomalies")


def _anomaly(number_: int, one: StoredAnomaly) -> Section:
    body = one.body
    levels = ", ".join(str(level) or "level unknown" for level in body.get("isolation", ()))
    statements = [f"{each['transaction']}: {each['statement']}" for each in body.get("statements", ())]
    verdict = _VERDICTS.get(one.permitted, Verdict.MATCH)
    lines = (Lines(tuple(map(str, body.get("steps", ())))), Lines(tuple(statements), "statements"))
    note = (Lines((str(body["note"]),), style="note"),) if body.get("note") else ()
    return Section(
        f"{one.name} ({body.get('phenomenon', '')}) under {levels}", (*lines, *note), f"a{number_}",
        one.permitted.value, tone_of(verdict), folded=True,
    )  # fmt: skip


def _histories(sides: Mapping[str, Mapping[str, Any]]) -> Iterator[Section]:
    for side, body in sides.items():
        facts = [Fact("server", str(body.get("server", "")))]
        facts += [Fact(name, f"{int(body.get(name, 0)):,}") for name in _LISTED]
        facts += [Fact(f"not usable: {why}", f"{int(n):,}") for why, n in dict(body.get("ambiguous", {})).items()]
        facts += [
            Fact(f"ambiguous by {one['statement'] or 'an unknown statement'} of {one['table']}", f"{one['reads']:,}")
            for one in body.get("causes", ())
        ]
        yield Section(f"History of the {side}", (FactList(tuple(facts)),), id=f"history-{side}")


def _case(one: StoredAnomaly) -> JUnitCase:
    names = ", ".join(map(str, one.body.get("transactions", ())))
    lines = (f"{one.name}, permitted by {one.permitted.value}", *map(str, one.body.get("steps", ())))
    return JUnitCase("anomalies", f"{one.name} {names}", _VERDICTS.get(one.permitted, Verdict.MATCH), lines)
