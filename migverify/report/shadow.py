"""A shadow replay as a report: its hours and digests, while it runs and afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from migverify.exposition import Metric, number
from migverify.figures import utc
from migverify.model import RunInfo, Verdict
from migverify.report.model import (
    JUnitCase,
    Report,
    ReportOptions,
    Row,
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
from migverify.workload.shadow.evidence import ShadowEvidence, load_shadow

_SENTENCES = {
    Verdict.MATCH: "Both sides answer the reads of the log alike.",
    Verdict.MISMATCH: "Reads of the log are answered differently.",
    Verdict.INCONCLUSIVE: "It is not known whether both sides answer the reads of the log alike.",
}
_OUTCOMES = {"same": "same", "different": "different", "undecided": "undecided", "unasked": "not asked"}
_TONES = ("match", "mismatch", "inconclusive", "inconclusive")
_FIGURES = tuple(TableColumn(words.capitalize(), number=True) for words in _OUTCOMES.values())
_HOURS = (TableColumn("Hour"), TableColumn("Verdict"), *_FIGURES, TableColumn("Reasons"))
_DIGESTS = (
    TableColumn("Statement"), TableColumn("Verdict"), TableColumn("Reads", number=True),
    *_FIGURES, TableColumn("Differed in"), TableColumn("Reasons"),
)  # fmt: skip


def shadow_report(store: ResultStore, info: RunInfo, options: ReportOptions) -> Report:
    """Return the report of a shadow replay from the store.

    One that has ended has the digests with their examples, as a replay has; one that runs what it recorded last.
    """
    from migverify.report.replay import read_replay
    from migverify.report.replay_view import replay_report

    found = load_shadow(store, info)
    if found is not None and (info.finished is None or not found.is_over):
        return live_report(found, info)
    whole = replay_report(read_replay(store, info, options))
    if found is None:
        return whole
    return replace(
        whole, sections=(_hours(found), *whole.sections), document={**whole.document, "hours": list(found.hours)}
    )


def live_report(found: ShadowEvidence, info: RunInfo) -> Report:
    """Return the report of a status; one of a run without an end is as old as it says."""
    run = replace(run_facts(info, (), 0), verdict=found.verdict, reasons=found.reasons)
    counts = found.counts
    tiles = [Tile(f"{counts.get('reads', 0):,}", "reads")] + [
        Tile(f"{counts.get(name, 0):,}", words, tone if counts.get(name) else "none")
        for (name, words), tone in zip(
            _OUTCOMES.items(), ("match", "mismatch", "inconclusive", "inconclusive"), strict=True
        )
    ]
    return Report(
        run.run_id, f"shadow replay {run.run_id}", found.verdict, _SENTENCES[found.verdict],
        f"shadow replay {run.run_id}, as of {utc(found.at)}", tone=tone_of(found.verdict),
        covered=f"As of {utc(found.at)}; the log is {found.log}.", reasons=found.reasons, started=run.started,
        seconds=run.seconds, tiles=tuple(tiles), cards=run.cards(),
        sections=(_hours(found), _digests(found), run.section()),
        cases=tuple(map(_case, found.digests)) or (JUnitCase("shadow", run.run_id, found.verdict, found.reasons),),
        metrics=(*run.metrics({}), Metric("migverify_run_reads", "Reads by outcome.",
                                          [({"outcome": name}, number(counts.get(name, 0))) for name in _OUTCOMES])),
        document={
            "run_id": run.run_id, "kind": "shadow", "verdict": found.verdict.value,
            "exit_code": int(found.verdict.exit_code), "reasons": list(found.reasons), "at": found.at, "log": found.log,
            "counts": dict(counts), "digests": list(found.digests), "hours": list(found.hours),
        },
        private=True,
    )  # fmt: skip


def _hours(found: ShadowEvidence) -> Section:
    rows = tuple(map(_hour, found.hours))
    note = "" if rows else "No hour was asked yet."
    return Section("Hours", (Table(_HOURS, rows, note=note, named=0, text_rows=24),), id="hours")


def _hour(hour: Mapping[str, Any]) -> Row:
    reads = hour["reads"]
    # What was assumed proved nothing, as what was not asked.
    counts = {**reads, "unasked": reads.get("unasked", 0) + reads.get("assumed", 0)}
    figures = (f"{counts.get(name, 0):,}" for name in _OUTCOMES)
    return hour["hour"], badge(Verdict(hour["verdict"])), *figures, "; ".join(hour["reasons"])


def _digests(found: ShadowEvidence) -> Section:
    rows = tuple(map(_digest, found.digests))
    total = sum(found.digests_by_verdict.values())
    table = Table(_DIGESTS, rows, note="" if rows else "No read was asked yet.", named=0, total=total, text_rows=20)
    return Section("Digests", (table,), id="digests")


def _digest(one: Mapping[str, Any]) -> Row:
    figures = (f"{one[name]:,}" for name in ("reads", *_OUTCOMES))
    return (
        TableCell(str(one["text"]), code=True), badge(Verdict(one["verdict"])), *figures,
        ", ".join(one["mismatch_hours"]), "; ".join(one["reasons"]),
    )  # fmt: skip


def _case(one: Mapping[str, Any]) -> JUnitCase:
    lines = (f"different: {one['different']:,} of {one['reads']:,} reads", *map(str, one["reasons"]))
    return JUnitCase("shadow", str(one["text"]), Verdict(one["verdict"]), lines)
