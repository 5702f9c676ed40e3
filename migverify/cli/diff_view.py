"""What differs in a run, and its status, as lines of text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from migverify.codec import encode
from migverify.config.patterns import chosen_patterns
from migverify.figures import amount
from migverify.model import (
    KEYLESS,
    NO_TABLE,
    ColumnDiff,
    DiffKind,
    LiveState,
    NextStep,
    RowDiff,
    RunInfo,
    SchemaClass,
    SchemaDifference,
    TableResult,
    Verdict,
)
from migverify.report.marks import visible
from migverify.store.results import ResultStore
from migverify.tables.recheck import run_of_tables
from migverify.tables.run_facts import proof_scope

PAGE = 1000
_BY_CHECKSUM = (
    "the table has no key, so the checksum of a row names it; a new run with `report: {values: true}` in the"
    " configuration keeps and shows its columns"
)


def list_row_diffs(
    store: ResultStore, run: str, tables: list[str] | None, limit: int, *, as_json: bool
) -> Iterator[str]:
    """Yield the confirmed differences of a run, table by table, and say what was left out.

    Of each table what differs in its definition comes first, then at most ``limit`` row diffs.
    """
    info = run_of_tables(store, run)
    results = {result.pair: result for result in store.table_results(info.run_id)}
    for pair in chosen_pairs(info, tables):
        shown, is_hidden, result = 0, False, results.get(pair)
        for found in differences(store, info.run_id, pair, result, limit):
            shown += not found.reason
            is_hidden |= not (found.reason or found.row.columns)
            line = f"{pair}  {visible(found.reason) or _line(found.row)}"
            yield json.dumps(found.as_dict(), ensure_ascii=False) if as_json else line
        if is_hidden and result is not None and result.details.get(KEYLESS) and not as_json:
            yield f"{pair}  {_BY_CHECKSUM}"
        counts = store.count_row_diffs(info.run_id, pair, distinct=True)  # as many as there are lines
        total = sum(n for (_, state), n in counts.items() if state == LiveState.DIVERGED.value)
        if total > shown and not as_json:
            yield f"{pair}  ... {total - shown:,} more; --limit shows them"


@dataclass(frozen=True, slots=True)
class TableDifference:
    """A row diff, or with a ``reason`` what differs in a table and not in one row: the key of its row is empty."""

    row: RowDiff
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON; what is not of a row has a key more."""
        body: dict[str, Any] = encode(self.row)
        return {**body, "reason": self.reason} if self.reason else body


def differences(
    store: ResultStore, run_id: str, pair: str, result: TableResult | None, limit: int
) -> Iterator[TableDifference]:
    """Yield the confirmed differences of a table pair: those of its definition, then at most ``limit`` row diffs.

    A pair that is MISMATCH has one at least: its reasons, where nothing else can be shown.
    """
    is_shown = False
    for found in () if result is None or result.verdict is Verdict.MATCH else definition_differences(result):
        yield TableDifference(_of_table(pair, found), found.message)
        is_shown = True
    for row in diverged_rows(store, run_id, pair, limit):
        yield TableDifference(row)
        is_shown = True
    if result is not None and result.verdict is Verdict.MISMATCH and not is_shown:
        row = RowDiff(pair, (), DiffKind.VALUE_DIFFERS, LiveState.DIVERGED, source_count=0, target_count=0)
        yield TableDifference(row, "; ".join(result.reasons) or "it is MISMATCH, and its result names no reason")


def definition_differences(result: TableResult) -> Iterator[SchemaDifference]:
    """Yield what of the definitions keeps a table pair from being compared, or that a side has no such table."""
    breaks = SchemaClass.BREAKS_COMPARISON
    for side, name, other in (("source", result.source, result.target), ("target", result.target, result.source)):
        if name == NO_TABLE:
            source, target = (None, other) if side == "source" else (other, None)
            yield SchemaDifference("table", "table", source, target, breaks, f"the {side} has no such table")
    for found in result.schema:
        if found.level is breaks:
            is_named = found.where in ("table", "") or found.where in found.message
            yield found if is_named else replace(found, message=f"{found.where}: {found.message}")


def _of_table(pair: str, found: SchemaDifference) -> RowDiff:
    """Return a difference of a definition in the form of a row diff: without a key, with the column it is of."""
    kind = (
        DiffKind.MISSING_ON_SOURCE if found.source is None
        else DiffKind.MISSING_ON_TARGET if found.target is None
        else DiffKind.VALUE_DIFFERS
    )  # fmt: skip
    column = ColumnDiff(found.where, found.source, found.target, "definition")
    columns = () if found.where == "table" or found.where.startswith("key ") else (column,)
    return RowDiff(pair, (), kind, LiveState.DIVERGED, columns, source_count=0, target_count=0)


def nothing_to_list(store: ResultStore, run: str, tables: list[str] | None) -> tuple[str, NextStep | None]:
    """Return why a run has no confirmed difference, and what shows the rest; None where there is no rest."""
    info = run_of_tables(store, run)
    pairs = list(chosen_pairs(info, tables))
    if not pairs:
        return f"run {info.run_id} has no table that is chosen", None
    equal = {result.pair for result in store.table_results(info.run_id) if result.verdict is Verdict.MATCH}
    open_ = len(pairs) - len(equal & set(pairs))
    what = f"run {info.run_id} has no confirmed difference"
    if not open_ and info.finished is not None:
        return f"{what}: every table is MATCH", None
    end = "" if info.finished is not None else "; it has no end: it was cut off, or goes on"
    step = NextStep(f"migverify report {info.run_id}", "why they are not proved")
    return f"{what}: {open_:,} of {amount(len(pairs), 'table')} not proved{end}", step


def chosen_pairs(info: RunInfo, tables: list[str] | None, option: str = "--tables") -> Iterator[str]:
    """Yield the ids of the planned table pairs of a run whose tables match a pattern; all without one."""
    patterns = chosen_patterns(tables or [], option)
    for entry in info.plan.get("pairs", []):
        name = str(entry["source"] or entry["target"])
        if patterns and not any(p.matches(*parts) for p in patterns for parts in _cuts(name)):
            continue
        yield str(entry["id"])


def _cuts(name: str) -> Iterator[tuple[str, str]]:
    """Yield database and table, by every dot: a plan holds names as they are printed, and either may have dots."""
    for at, letter in enumerate(name):
        if letter == ".":
            yield name[:at], name[at + 1 :]


def diverged_rows(store: ResultStore, run_id: str, pair: str, limit: int) -> Iterator[RowDiff]:
    """Yield the confirmed row diffs of a table pair."""
    after = 0
    while limit > 0:
        page = store.row_diffs(run_id, pair, states=[LiveState.DIVERGED.value], after=after, limit=min(PAGE, limit))
        yield from (diff for _, diff in page)
        if not page:
            return
        after = page[-1][0]
        limit -= len(page)


def _line(diff: RowDiff) -> str:
    key = ", ".join("NULL" if part is None else visible(part) for part in diff.key)
    counts = (
        f" (source {diff.source_count}, target {diff.target_count})"
        if diff.source_count + diff.target_count > 2
        else ""
    )
    if diff.shard:
        counts += f" held by {visible(diff.shard)}"
    if diff.columns and all(c.kind == "row" for c in diff.columns):  # of a table without a key: the row itself
        key = ", ".join(f"{c.column}={_text(c.target if c.source is None else c.source)}" for c in diff.columns)
        return f"{diff.kind}  {key}{counts}"
    columns = "; ".join(_column(c.column, c.kind, c.source, c.target, masked=c.masked) for c in diff.columns)
    return f"{diff.kind}  {key}{counts}" + (f"  {columns}" if columns else "")


def _text(text: str | None) -> str:
    return "NULL" if text is None else visible(text[:80])


def _column(name: str, kind: str, source: str | None, target: str | None, *, masked: bool) -> str:
    if masked:
        return f"{name} ({kind})"
    return f"{name} ({kind}): {_text(source)} -> {_text(target)}"


def run_status(store: ResultStore, run: str) -> dict[str, Any]:
    """Return what the store knows of a run: how far, what was found, whether it ended."""
    info = run_of_tables(store, run)
    results = store.table_results(info.run_id)
    planned = [str(entry["id"]) for entry in info.plan.get("pairs", [])]
    ended = {result.pair for result in results}
    chunks = rows = differing = 0
    for pair in planned:
        if pair not in ended:
            for chunk in store.chunks(info.run_id, pair):
                chunks += 1
                rows += chunk.source.rows if chunk.source is not None else 0
            differing += sum(store.count_row_diffs(info.run_id, pair).values())
    counts = {verdict.value: sum(1 for r in results if r.verdict is verdict) for verdict in Verdict}
    return {
        "run_id": info.run_id,
        "verdict": info.verdict.value,
        "state": "finished" if info.finished is not None else "running or cut off; --resume goes on with it",
        "tables": f"{len(ended)} of {len(planned)} finished: "
        + ", ".join([*(f"{n} {name}" for name, n in counts.items() if n), *filter(None, [proof_scope([info]).words])]),
        "rows": sum(r.rows_source or 0 for r in results) + rows,
        "chunks": sum(r.chunks for r in results) + chunks,
        "row_diffs": sum(r.missing_on_target + r.missing_on_source + r.value_differs for r in results),
        "to_look_at": differing,
    }
