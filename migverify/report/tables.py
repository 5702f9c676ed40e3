"""The report of a verification of tables, read from a result store and from nothing else.

It pages and streams: memory depends on the caps in ``ReportOptions`` and on the number of table pairs, never on the
number of chunks or row diffs. Values are masked here, so no renderer can leak one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from migverify.exposition import Metric, number
from migverify.figures import amount
from migverify.model import (
    NO_TABLE,
    ChunkState,
    DiffKind,
    LiveState,
    NotCovered,
    RowDiff,
    RunInfo,
    SchemaClass,
    SchemaDifference,
    TableResult,
    Verdict,
)
from migverify.report.coverage import ChunkTimeline, NotedChunks, ReadCoverage
from migverify.report.marks import Clip, clip_pair, visible
from migverify.report.model import URGENCY, Compared, FindingEntry, JUnitCase, ReportOptions
from migverify.report.run_facts import as_list, redact, verdict_samples
from migverify.store.results import ResultStore
from migverify.tables.run_facts import EXCLUDED_REASON

_PAGE = 50
_STATE_ORDER = ((LiveState.DIVERGED,), (LiveState.HOT, LiveState.UNCONFIRMED), (LiveState.CONVERGED,))
_SCHEMA_LINES = 8
_ABSENT_ON = (DiffKind.MISSING_ON_SOURCE, DiffKind.MISSING_ON_TARGET)
KIND_WORDS = {
    DiffKind.MISSING_ON_TARGET: "missing on target",
    DiffKind.MISSING_ON_SOURCE: "missing on source",
    DiffKind.VALUE_DIFFERS: "value differs",
}


@dataclass(frozen=True, slots=True)
class TablePairReport:
    """What is shown of one table pair.

    ``counts``: stored row diffs by (kind, state). ``detailed`` False: its rows, chunks and statements are left out by
    the cap. ``samples`` and ``rows`` are the same row diffs, for people and as JSON.
    """

    result: TableResult
    coverage: ReadCoverage
    counts: tuple[tuple[str, str, int], ...]
    detailed: bool
    slow: NotedChunks
    samples: tuple[FindingEntry, ...]
    rows: tuple[dict[str, Any], ...]
    sql: tuple[tuple[str, str], ...]

    @property
    def row_diffs(self) -> int:
        """Row diffs of the table's result, over all kinds."""
        return sum(getattr(self.result, kind.value) for kind in DiffKind)

    @property
    def stored(self) -> int:
        """Row diffs the store holds, in any state (converged ones too)."""
        return sum(n for _, _, n in self.counts)

    @property
    def breaking(self) -> list[SchemaDifference]:
        """What of the definitions keeps rows from being compared."""
        return [item for item in self.result.schema if item.level is SchemaClass.BREAKS_COMPARISON]

    @property
    def differs_in_definition(self) -> bool:
        """Whether its definition keeps it from MATCH: a side has no such table or column, or one of another type."""
        is_alone = NO_TABLE in (self.result.source, self.result.target)
        return self.result.verdict is not Verdict.MATCH and (is_alone or bool(self.breaking))

    @property
    def kinds(self) -> str:
        """Its row diffs by kind, as one phrase."""
        numbers = ((getattr(self.result, kind.value), words) for kind, words in KIND_WORDS.items())
        return ", ".join(f"{n:,} {words}" for n, words in numbers if n)

    @property
    def title(self) -> str:
        """Its name, both names where they are not the same."""
        source, target = self.result.source, self.result.target
        return source if source == target else f"{source} -> {target}"


def with_pairs_not_run(info: RunInfo, results: Sequence[TableResult]) -> list[TableResult]:
    """Add the planned table pairs that have no result: INCONCLUSIVE, because nothing was compared."""
    known = {result.pair for result in results}
    missing = [
        TableResult(
            pair=pair, source=source, target=target, verdict=Verdict.INCONCLUSIVE,
            reasons=("no result is stored: the run did not get to the end of this table pair",),
            rows_source=None, rows_target=None, chunks=0, lanes=(), missing_on_target=0, missing_on_source=0,
            value_differs=0, not_covered=(NotCovered("the table", "not finished in this run"),), schema=(), seconds=0.0,
        )
        for pair, source, target in planned_pairs(info.plan)
        if pair not in known
    ]  # fmt: skip
    return sorted([*results, *missing], key=lambda r: (r.source, r.target, r.pair))


def planned_pairs(plan: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (pair id, source name, target name) of a stored plan; nothing where it lists no pairs."""
    for entry in as_list(plan.get("pairs")):
        if not isinstance(entry, Mapping):
            continue
        pair = entry.get("pair", entry.get("id"))
        if isinstance(pair, str):
            sources = as_list(entry.get("source", entry.get("sources")))
            yield pair, _table_name(sources[0] if sources else None, pair), _table_name(entry.get("target"), pair)


def _table_name(ref: object, otherwise: str) -> str:
    if isinstance(ref, str):
        return ref
    if isinstance(ref, Mapping) and "database" in ref and "table" in ref:
        return f"{ref['database']}.{ref['table']}"
    return otherwise


def urgency(result: TableResult) -> tuple[int, float, str]:
    """Order results: those that are not MATCH first, then the slowest."""
    return URGENCY.index(result.verdict), -result.seconds, result.pair


def read_pairs(
    store: ResultStore, run_id: str, results: Sequence[TableResult], options: ReportOptions, timeline: ChunkTimeline
) -> list[TablePairReport]:
    """Read what is shown of the table pairs of a run."""
    detailed = {result.pair for result in sorted(results, key=urgency)[: options.sections]}
    sharing = sum(1 for result in results if result.verdict is not Verdict.MATCH) or 1
    share = min(options.samples, max(1, options.samples_in_all // min(sharing, max(options.sections, 1))))
    return [
        _pair(store, run_id, result, options, share if result.pair in detailed else None, timeline)
        for result in results
    ]


def _pair(
    store: ResultStore, run_id: str, result: TableResult, options: ReportOptions, samples: int | None,
    timeline: ChunkTimeline,
) -> TablePairReport:  # fmt: skip
    coverage = ReadCoverage(spans=len(store.spans(run_id, result.pair)))
    noted = NotedChunks(options.slow_chunks if samples is not None else 0)
    for chunk in store.chunks(run_id, result.pair):
        coverage.add(chunk)
        noted.add(chunk)
        timeline.add(chunk)
    stored = store.count_row_diffs(run_id, result.pair, distinct=True)
    counts = tuple(sorted((str(kind), str(state), n) for (kind, state), n in stored.items()))
    shown = [] if samples is None else list(_samples(store, run_id, result.pair, samples, options))
    sql = () if samples is None else store.sql(run_id, result.pair)
    return TablePairReport(
        result, coverage, counts, samples is not None, noted, tuple(item for item, _ in shown),
        tuple(row for _, row in shown), tuple((f"{side}: {why}", redact(text)) for side, why, text in sql),
    )  # fmt: skip


def _samples(
    store: ResultStore, run_id: str, pair: str, limit: int, options: ReportOptions
) -> Iterator[tuple[FindingEntry, dict[str, Any]]]:
    # Confirmed differences first: rows that converged meanwhile must not push them out of the sample.
    for states in _STATE_ORDER:
        after = 0
        while limit > 0:
            # A page may hold long values, so pages are small and each row is cut to its shown form at once.
            page = store.row_diffs(run_id, pair, states=states, after=after, limit=min(_PAGE, limit))
            if not page:
                break
            yield from (_sample(diff, options) for _, diff in page)
            after, limit = page[-1][0], limit - len(page)


def _sample(diff: RowDiff, options: ReportOptions) -> tuple[FindingEntry, dict[str, Any]]:
    """Return a row diff for people and as JSON; a side that has not got the row is ``absent``."""
    columns, listed = [], []
    for column in diff.columns:
        if column.masked or not options.values:
            columns.append(Compared(column.column, column.kind, "masked", "masked"))
            listed.append({"column": column.column, "kind": column.kind, "masked": True})
            continue
        clips = clip_pair(column.source, column.target, options.value_characters)
        columns.append(Compared(
            column.column, column.kind, "absent" if diff.kind is DiffKind.MISSING_ON_SOURCE else clips[0],
            "absent" if diff.kind is DiffKind.MISSING_ON_TARGET else clips[1],
        ))  # fmt: skip
        listed.append({
            "column": column.column, "kind": column.kind, "masked": False, "source": _clip(clips[0]),
            "target": _clip(clips[1]),
        })  # fmt: skip
    copies = (diff.source_count, diff.target_count)
    notes = (
        str(diff.state), f"shard {diff.shard}" if diff.shard else "",
        f"source has {copies[0]:,}, target has {copies[1]:,}" if copies != (1, 1) else "",
    )  # fmt: skip
    source, target = ("absent" if diff.kind is kind else "present" for kind in _ABSENT_ON)
    item = FindingEntry(
        KIND_WORDS[diff.kind],
        tuple(map(Clip, diff.key)),
        notes=tuple(filter(None, notes)),
        columns=tuple(columns),
        sides=(source, target),
    )
    return item, {
        "key": list(diff.key), "kind": str(diff.kind), "state": str(diff.state), "columns": listed,
        "source_count": diff.source_count, "target_count": diff.target_count, "shard": diff.shard,
    }  # fmt: skip


def _clip(clip: Clip) -> dict[str, Any] | None:
    if clip.text is None:
        return None
    return {"text": clip.text, "characters_before": clip.before, "characters_after": clip.after}


def pair_as_json(table: TablePairReport) -> dict[str, Any]:
    """Return a table pair as JSON; ``rows_source`` and ``rows_target`` are None when not counted.

    The counts in ``row_diffs`` are exact; ``row_diff_samples`` says how many of them are listed.
    """
    result = table.result
    return {
        "pair": result.pair, "source": result.source, "target": result.target, "verdict": str(result.verdict),
        "reasons": list(result.reasons), "rows_source": result.rows_source, "rows_target": result.rows_target,
        "chunks": result.chunks, "lanes": [str(lane) for lane in result.lanes],
        "row_diffs": {kind.value: getattr(result, kind.value) for kind in DiffKind},
        "row_diff_samples": {"shown": len(table.rows), "stored": table.stored, "rows": list(table.rows)},
        "not_covered": [{"what": item.what, "reason": item.reason} for item in result.not_covered],
        "seconds": rounded(result.seconds),
        "schema": [
            {"kind": item.kind, "where": item.where, "source": item.source, "target": item.target,
             "level": str(item.level), "message": item.message}
            for item in result.schema
        ],
        "blind_spots": list(result.blind_spots), "hash": result.hash_name, "details": plain(result.details),
    }  # fmt: skip


def excluded_as_json(excluded: Sequence[str]) -> list[dict[str, str]]:
    """Return all tables that a run leaves out, as what is not covered."""
    return [{"what": f"table {name}", "reason": EXCLUDED_REASON} for name in excluded]


def rounded(value: float | None) -> float | None:
    """Return seconds in milliseconds' precision; None where they are not known or not finite."""
    return None if value is None or not math.isfinite(value) else round(value, 3)


def plain(value: object) -> Any:
    """Return JSON's own types; what JSON has no form for (NaN, Decimal, bytes) becomes its text."""
    if isinstance(value, Enum):
        return str(value.value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [plain(item) for item in items]
    return str(value)


def pair_case(table: TablePairReport) -> JUnitCase:
    """Return the test case of a table pair."""
    result = table.result
    gaps = tuple(f"not covered: {item.what}: {item.reason}" for item in result.not_covered)
    lines = [
        *result.reasons,
        *(f"rows {words}: {n}" for kind, words in KIND_WORDS.items() if (n := getattr(result, kind.value))),
        *(f"schema, {line}" for line in schema_lines([("", item) for item in result.schema])),
        *gaps,
    ]
    notes = gaps if result.verdict is Verdict.MATCH else ()  # the others have them among their lines
    return JUnitCase(result.source.partition(".")[0], table.title, result.verdict, tuple(lines), result.seconds, notes)


def pair_metrics(tables: Sequence[TablePairReport]) -> Iterator[Metric]:
    """Yield the gauges of table pairs; an unknown number is ``NaN``."""
    # Several shards of one table may share their names; the pair's id keeps their series apart.
    named = [
        ({"pair": t.result.pair, "source": t.result.source, "target": t.result.target}, t.result, t.coverage)
        for t in tables
    ]
    yield Metric("migverify_table_verdict", "1 for the verdict of the table pair, 0 for the others.", [
        sample for names, result, _ in named for sample in verdict_samples(names, result.verdict)
    ])  # fmt: skip
    yield Metric("migverify_table_rows", "Rows per side; NaN when not counted.", [
        ({**names, "side": side}, number(rows)) for names, result, _ in named
        for side, rows in (("source", result.rows_source), ("target", result.rows_target))
    ])  # fmt: skip
    yield Metric("migverify_table_chunks", "Chunks in the store by their last state.", [
        ({**names, "state": str(state)}, number(cover.states[state])) for names, _, cover in named
        for state in ChunkState
    ])  # fmt: skip
    yield Metric("migverify_table_row_diffs", "Row diffs by kind.", [
        ({**names, "kind": str(kind)}, number(getattr(result, kind.value))) for names, result, _ in named
        for kind in DiffKind
    ])  # fmt: skip
    yield Metric("migverify_table_seconds", "Wall time of the table pair.", [
        (names, number(result.seconds)) for names, result, _ in named
    ])  # fmt: skip


def schema_lines(found: Iterable[tuple[str, SchemaDifference]]) -> Iterator[str]:
    """Yield a line for each cause, however many columns it concerns.

    Parameters
    ----------
    found
        Differences with the name of their table, ``""`` where the table is known.
    """
    causes: dict[tuple[SchemaClass, str, str], list[tuple[str, str]]] = {}
    for table, item in found:
        noun = "key" if item.where.startswith("key ") else "table" if item.where == "table" else "column"
        cause = item.level, noun, item.message.removeprefix("column ").removeprefix(f"{item.where}: ")
        causes.setdefault(cause, []).append((table, item.where))
    lines: Counter[SchemaClass] = Counter()
    for (level, noun, message), places in sorted(
        causes.items(), key=lambda entry: list(SchemaClass).index(entry[0][0])
    ):
        lines[level] += 1
        if lines[level] > _SCHEMA_LINES:
            continue
        tables = {table for table, _ in places}
        first = ": ".join(filter(None, places[0]))
        of = f" of {amount(len(tables), 'table')}" if "" not in tables else ""
        where = first if len(places) == 1 else f"{amount(len(places), noun)}{of}, the first {first}"
        yield f"{level}: {visible(where)}: {visible(message)}"
    for level, n in lines.items():
        if n > _SCHEMA_LINES:
            yield f"{level}: {n - _SCHEMA_LINES:,} more causes; JSON and HTML list all"
