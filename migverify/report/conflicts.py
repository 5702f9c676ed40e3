"""Explained conflicts as a table, test cases, metrics and JSON, from what a run of ``explain-conflict`` stored."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from migverify.exposition import Metric, number
from migverify.figures import plural, utc
from migverify.model import RunInfo, Verdict
from migverify.report.model import (
    URGENCY,
    JUnitCase,
    Report,
    Section,
    Table,
    TableCell,
    TableColumn,
    Tile,
    badge,
    tone_of,
)
from migverify.report.run_facts import run_facts
from migverify.store.results import ResultStore
from migverify.workload.conflict.store import (
    StoredConflict,
    conflict_reasons,
    conflicts_verdict,
    stored_conflicts,
    stored_totals,
)

_SENTENCES = {
    Verdict.MATCH: "The replay met no conflict that the application has to handle.",
    Verdict.MISMATCH: "The application meets conflicts on the target.",
    Verdict.INCONCLUSIVE: "It is not known which conflicts the application meets on the target.",
}
_WORDS = {Verdict.MISMATCH: "to be handled", Verdict.INCONCLUSIVE: "without a cause", Verdict.MATCH: "harmless"}
_COLUMNS = tuple(map(TableColumn, ("Conflict", "Table", "Cause", "Statement", "Where", "What to do")))


def conflicts_report(store: ResultStore, info: RunInfo) -> Report:
    """Return the report of a run of conflicts; one without an end, or that lacks what it counted, is never MATCH."""
    totals, found = stored_totals(store, info.run_id), tuple(stored_conflicts(store, info.run_id))
    replay = str(info.facts.get("replay") or "")
    explained, left_out = totals or (0, 0)
    verdict, reasons = conflicts_verdict(found, left_out, replay), tuple(conflict_reasons(found, left_out, replay))
    if info.finished is None or totals is None or explained != len(found):
        verdict = Verdict.worst([verdict, Verdict.INCONCLUSIVE])
        why = "the run has no end" if info.finished is None or totals is None else "the store lacks some conflicts"
        reasons = (why, *reasons)
    run = replace(run_facts(info, (), 0), verdict=verdict, reasons=reasons)
    counts = Counter(one.verdict for one in found)
    rows = tuple(map(_row, sorted(found, key=lambda one: URGENCY.index(one.verdict))))
    return Report(
        run.run_id, f"conflicts {run.run_id}", verdict, _SENTENCES[verdict],
        f"conflicts {run.run_id}, {utc(run.started)}", tone=tone_of(verdict),
        covered=f"Covered: replay {replay}." if replay else "", reasons=reasons, started=run.started,
        seconds=run.seconds,
        tiles=tuple(Tile(f"{counts[each]:,}", f"{plural(counts[each], 'conflict')} {_WORDS[each]}",
                         tone_of(each) if counts[each] else "none") for each in URGENCY),
        cards=run.cards(),
        sections=(Section("Conflicts", (Table(_COLUMNS, rows, note="" if rows else "None was met.", named=0),),
                          id="conflicts"), run.section()),
        cases=tuple(map(_case, found)) or (JUnitCase("conflicts", f"run {run.run_id}", verdict, reasons),),
        metrics=(*run.metrics({}), Metric("migverify_run_conflicts", "Explained conflicts by verdict.",
                                          [({"verdict": each.value}, number(counts[each])) for each in URGENCY])),
        document={
            "run_id": run.run_id, "kind": "conflicts", "verdict": verdict.value, "exit_code": int(verdict.exit_code),
            "reasons": list(reasons), "replay": replay, "left_out": left_out,
            "conflicts": [one.as_json() for one in found],
        },
        private=True,
    )  # fmt: skip


def _row(one: StoredConflict) -> tuple[TableCell | str, ...]:
    kind = f"{one.code or ''} {one.kind}".strip()
    return badge(one.verdict, kind), one.table, one.cause, TableCell(one.sql, code=True), one.where, one.remedy


def _case(one: StoredConflict) -> JUnitCase:
    return JUnitCase("conflicts", one.where or one.title, one.verdict, (one.title, one.remedy))
