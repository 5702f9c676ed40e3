"""What a repair found and did: its nouns, its lines for the terminal, its manifest, its verdict. Pure."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from migverify import __version__
from migverify.model import LiveState, NotCovered, RunInfo, SchemaClass, TableResult, Verdict
from migverify.tables.plan import plan_digest
from migverify.tables.prepare import Prepared
from migverify.tables.repair import EXCHANGED, Written
from migverify.tables.repair_apply import Applied
from migverify.tables.repair_files import FileFacts
from migverify.tables.repair_plan import why_no_delete
from migverify.tables.tasks import PairPlan


@dataclass(slots=True)
class TableRepair:
    """One table of a repair.

    ``refused`` says why there are no scripts; ``states`` counts the rows as read again, ``unread`` says
    why not all were.
    """

    pair: PairPlan
    refused: str = ""
    written: Written = field(default_factory=Written)
    no_delete: str = ""
    notes: tuple[str, ...] = ()
    repair: FileFacts | None = None
    inverse: FileFacts | None = None
    applied: Applied | None = None
    states: Counter[str] = field(default_factory=Counter)
    unread: str = ""
    result: TableResult | None = None

    @property
    def repaired(self) -> int:
        """Rows that are equal now because of this repair: no more than were written, nor than were not equal before."""
        written = self.applied.matched if self.applied else 0
        return max(0, min(written, self.states[LiveState.CONVERGED.value] - self.written.equal))

    @property
    def left_alone(self) -> int:
        """Rows that were not touched because they changed since the run."""
        return self.written.changed.total() + (self.applied.unmatched if self.applied else 0)

    @property
    def different(self) -> int:
        """Rows that still differ."""
        return self.states[LiveState.DIVERGED.value]


@dataclass(slots=True)
class Repair:
    """A whole repair. ``run_id`` and ``verdict`` are those of the new run; None and INCONCLUSIVE without ``apply``."""

    of: str
    of_verdict: Verdict
    folder: Path
    earlier: str
    tables: list[TableRepair]
    run_id: str | None = None
    verdict: Verdict = Verdict.INCONCLUSIVE

    @property
    def whole(self) -> bool:
        """Whether every row that differed has a statement or needs none."""
        if not self.tables:  # a run that was cut off before its row diffs were kept has none either
            return self.of_verdict is Verdict.MATCH
        return all(not table.refused and table.written.whole for table in self.tables)


def moment() -> str:
    """Return the time as the files state it: UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def manifest_of(repair: Repair, info: RunInfo, prepared: Prepared) -> dict[str, Any]:
    """Return the manifest."""
    endpoints = {
        name: {fact: facts[fact] for fact in ("host", "port", "flavor", "version")}
        for name, facts in prepared.facts.items()
    }
    return {
        "format": 1, "run": info.run_id, "plan_digest": prepared.digest, "written": moment(),
        "migverify": __version__, "endpoints": endpoints, "earlier": repair.earlier or None,
        "tables": [_entry(table) for table in repair.tables],
    }  # fmt: skip


def _entry(table: TableRepair) -> dict[str, Any]:
    written = table.written

    def facts(file: FileFacts | None) -> dict[str, Any] | None:
        if file is None:
            return None
        return {"file": file.name, "sha256": file.sha256, "bytes": file.bytes, "statements": file.statements}

    return {
        "pair": table.pair.id, "source": table.pair.source, "target": table.pair.target,
        "plan_digest": plan_digest(table.pair) if table.pair.readable else None,
        "not_repaired": table.refused or None, "repair": facts(table.repair), "inverse": facts(table.inverse),
        "rows": {
            "seen": written.rows, "statements": dict(written.statements), "equal_now": written.equal,
            "changed_since": dict(written.changed), "refused": dict(written.refused),
        },
        "no_delete": table.no_delete or None, "notes": list(table.notes),
    }  # fmt: skip


def written_line(table: TableRepair) -> str:
    """Return the line that says what was written for a table, and for which rows nothing was."""
    if table.refused:
        return f"{table.pair.id}: not repaired: {table.refused}"
    written = table.written
    kinds = {"missing_on_source": "DELETE", "value_differs": "UPDATE", "missing_on_target": "INSERT"}
    counted = ", ".join(f"{written.statements[kind]:,} {word}" for kind, word in kinds.items())
    parts = [f"{table.pair.id}: {counted}"]
    if again := written.statements[EXCHANGED]:
        parts.append(f"{again:,} deleted and inserted again (rows that exchange unique values)")
    if written.equal:
        parts.append(f"{written.equal:,} equal by now")
    parts += [f"{n:,} left alone (changed on the {side} since the run)" for side, n in sorted(written.changed.items())]
    parts += [f"{n:,} refused ({reason})" for reason, n in sorted(written.refused.items())]
    if table.no_delete and not any(table.no_delete in reason for reason in written.refused):
        parts.append(f"no DELETE: {table.no_delete}")
    return "; ".join(parts)


def applied_line(table: TableRepair) -> str:
    """Return the line that says what became of a table's rows."""
    if table.refused and not table.repaired:
        return f"{table.pair.id}: not repaired: {table.refused}; its rows are as they were"
    line = (f"{table.pair.id}: repaired {table.repaired:,}, left alone {table.left_alone:,} (changed since the run), "
            f"still different {table.different:,}")  # fmt: skip
    if hot := table.states[LiveState.HOT.value]:
        line += f", hot {hot:,}"
    if table.applied and table.applied.refused:
        reason, _ = table.applied.refused.most_common(1)[0]
        line += f"; the target refused {table.applied.refused.total():,} statements, as in: {reason}"
    return line + (f"; not repaired: {table.refused}" if table.refused else "")


def judge_table(table: TableRepair, before: TableResult | None, of: str, seconds: float) -> TableResult:
    """Judge a table by the rows read again, and by what the run that is repaired left open."""
    pair, states = table.pair, table.states
    mismatches = [f"the table is on the {'source' if pair.source else 'target'} only"] if not pair.readable else []
    mismatches += [d.message for d in pair.schema if d.level is SchemaClass.BREAKS_COMPARISON and d.target is None]
    if table.different:
        mismatches.append(f"{table.different:,} rows are still different")
    gaps = []
    if table.refused:
        gaps.append(f"not repaired: {table.refused}")
        if before is not None and (n := before.missing_on_target + before.missing_on_source + before.value_differs):
            mismatches.append(f"{n:,} rows differed in run {of} and were not repaired")
    if table.unread:
        gaps.append(f"the rows could not all be read again: {table.unread}")
    if hot := states[LiveState.HOT.value]:
        gaps.append(f"{hot:,} rows kept changing while they were read (hot)")
    if unread := why_no_delete(before, {}):
        gaps.append(f"run {of} left a gap: {unread}")
    gaps += [f"column {gap.what} is not compared: {gap.reason}" for gap in pair.unproved]
    if before is not None:
        gaps += [r for r in before.reasons if "(hot)" in r or r.endswith("were not read again")]
    verdict = Verdict.MISMATCH if mismatches else Verdict.INCONCLUSIVE if gaps else Verdict.MATCH
    refused = table.applied.refused if table.applied else Counter[str]()
    scope = NotCovered("rows", f"only the {states_total(states):,} rows that differed in run {of} were read again")
    return TableResult(
        pair=pair.id, source=pair.source or "(none)", target=pair.target or "(none)", verdict=verdict,
        reasons=(*mismatches, *gaps), rows_source=before.rows_source if before else None,
        rows_target=before.rows_target if before else None, chunks=0, lanes=before.lanes if before else (),
        missing_on_target=states["diverged missing_on_target"], missing_on_source=states["diverged missing_on_source"],
        value_differs=states["diverged value_differs"], not_covered=(*pair.not_covered, scope), schema=pair.schema,
        seconds=seconds, hash_name=pair.hash, blind_spots=pair.blind_spots,
        details={
            "repairs": of, "repaired": table.repaired, "left alone": table.left_alone,
            "still different": table.different, "converged": states[LiveState.CONVERGED.value],
            "hot": states[LiveState.HOT.value], "refused by the target": dict(refused),
            "strategy": "repair: the rows that differed, by key",
        },
    )  # fmt: skip


def states_total(states: Counter[str]) -> int:
    """Return how many rows were read again."""
    return sum(states[state.value] for state in LiveState)
