"""Row diffs and run status as lines of text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from migverify.codec import encode
from migverify.config.patterns import chosen_patterns
from migverify.model import LiveState, RowDiff, RunInfo, Verdict
from migverify.report.marks import visible
from migverify.store.results import ResultStore
from migverify.tables.recheck import run_of_tables

PAGE = 1000


def list_row_diffs(
    store: ResultStore, run: str, tables: list[str] | None, limit: int, *, as_json: bool
) -> Iterator[str]:
    """Yield the confirmed row diffs of a run, table by table, at most ``limit`` a table, and say what was left out."""
    info = run_of_tables(store, run)
    for pair in chosen_pairs(info, tables):
        shown = 0
        for diff in diverged_rows(store, info.run_id, pair, limit):
            shown += 1
            yield json.dumps(encode(diff), ensure_ascii=False) if as_json else f"{pair}  {_line(diff)}"
        counts = store.count_row_diffs(info.run_id, pair, distinct=True)  # as many as there are lines
        total = sum(n for (_, state), n in counts.items() if state == LiveState.DIVERGED.value)
        if total > shown and not as_json:
            yield f"{pair}  ... {total - shown:,} more; --limit shows them"


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
        + ", ".join(f"{n} {name}" for name, n in counts.items() if n),
        "rows": sum(r.rows_source or 0 for r in results) + rows,
        "chunks": sum(r.chunks for r in results) + chunks,
        "row_diffs": sum(r.missing_on_target + r.missing_on_source + r.value_differs for r in results),
        "to_look_at": differing,
    }
