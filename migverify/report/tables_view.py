"""The sections of a report of tables: overview, details, coverage, blind spots, definitions, charts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from migverify.figures import amount, count, seconds
from migverify.model import ChunkResult, ChunkState, DiffKind, NotCovered, SchemaClass, SchemaDifference, Verdict
from migverify.report import charts
from migverify.report.coverage import ChunkTimeline, ReadCoverage
from migverify.report.model import (
    URGENCY,
    Audience,
    Block,
    Chart,
    Code,
    Fact,
    FactList,
    FindingList,
    Lines,
    ReportOptions,
    Row,
    Section,
    Table,
    TableCell,
    TableColumn,
    badge,
    tone_of,
)
from migverify.report.tables import KIND_WORDS, TablePairReport, schema_lines, urgency
from migverify.tables.run_facts import EXCLUDED_REASON

_BARS = 20
_BLIND_COLUMNS = re.compile(r"(?P<kind>.+) \((?P<columns>[^()]+)\)")
_LISTED = 1_000
_COLUMNS = (
    TableColumn("Verdict"), TableColumn("Source"), TableColumn("Target"), TableColumn("Rows source", number=True),
    TableColumn("Rows target", number=True), TableColumn("Row diffs", number=True), TableColumn("Chunks", number=True),
    TableColumn("Seconds", number=True),
)  # fmt: skip


def table_sections(
    tables: Sequence[TablePairReport], timeline: ChunkTimeline, options: ReportOptions, excluded: Sequence[str] = ()
) -> Iterator[Section]:
    """Yield the sections, the overview first; ``excluded`` are the tables that the run leaves out."""
    detailed = sorted((table for table in tables if table.detailed), key=lambda table: urgency(table.result))
    links = {table.result.pair: f"t{number}" for number, table in enumerate(detailed, 1)}
    ordered = sorted(tables, key=lambda t: (URGENCY.index(t.result.verdict), t.result.source, t.result.pair))
    overview = Table(_COLUMNS, tuple(_row(table, links) for table in ordered), filtered="table pair")
    yield Section("Tables", (overview if tables else Lines(("No table results are stored.",)),), id="tables")
    details = [_detail(table, links[table.result.pair], options) for table in detailed]
    yield Section("Details", (*_left_out(tables, options), *details), id="details")
    yield Section("Coverage", tuple(_coverage(tables, excluded)), id="coverage")
    yield Section("Blind spots", tuple(_blind_spots(tables)), id="blind")
    yield Section("Definitions that differ", tuple(_schema(tables)), id="schema")
    yield Section("Charts", tuple(_charts(tables, timeline)), id="charts", shown=Audience.PAGE)


def _blind_spots(tables: Sequence[TablePairReport]) -> Iterator[Lines]:
    """Yield the blind spots: one line for each kind at a terminal, one for each set of columns on a page.

    What a quick answer cannot show is among what is not covered, right above.
    """
    every = [spot for table in tables for spot in table.result.blind_spots]
    above = {item.reason for table in tables for item in table.result.not_covered}
    spots = Counter(spot for spot in every if spot not in above).most_common()
    none = "none beyond what is not covered" if every else "none recorded"
    page = tuple(f"{spot} ({amount(n, 'table pair')})" for spot, n in spots) or (none,)
    kinds: dict[str, list[int]] = {}
    for spot, n in spots:
        named = _BLIND_COLUMNS.fullmatch(spot)
        total = kinds.setdefault(named["kind"] if named else spot, [0, 0])
        total[0] += n * len(named["columns"].split(", ")) if named else 0
        total[1] += n
    text = tuple(
        f"{kind} ({amount(columns, 'column') + ' of ' if columns else ''}{amount(n, 'table pair')})"
        for kind, (columns, n) in kinds.items()
    )
    yield Lines(page, shown=Audience.PAGE)
    yield Lines(text or page, shown=Audience.TEXT)


def _row(table: TablePairReport, links: Mapping[str, str]) -> Row:
    result = table.result
    rows = result.rows_source, result.rows_target
    tone = "inconclusive" if None in rows else "mismatch" if rows[0] != rows[1] else ""
    return (
        badge(result.verdict), TableCell(result.source, link=links.get(result.pair, "")), result.target, count(rows[0]),
        TableCell(count(rows[1]), tone), TableCell(f"{table.row_diffs:,}", "mismatch" if table.row_diffs else ""),
        f"{result.chunks:,}", f"{result.seconds:.1f}",
    )  # fmt: skip


def _left_out(tables: Sequence[TablePairReport], options: ReportOptions) -> Iterator[Lines]:
    left = [table for table in tables if not table.detailed]
    if left:
        urgent = sum(table.result.verdict is not Verdict.MATCH for table in left)
        not_match = f" {urgent:,} of them are not MATCH." if urgent else ""
        yield Lines((
            f"Details of {len(tables) - len(left):,} of {amount(len(tables), 'table pair')}: first those that are not"
            f" MATCH, then the slowest. Details of {amount(len(left), 'more table pair')} are left out (cap:"
            f" {options.sections:,}).{not_match} The JSON report holds the reasons of all.",
        ), style="note")  # fmt: skip


def _is_worth_telling(table: TablePairReport) -> bool:
    result = table.result
    return bool(
        result.verdict is not Verdict.MATCH or result.reasons or result.not_covered or table.breaking or table.counts
    )


def _detail(table: TablePairReport, link: str, options: ReportOptions) -> Section:
    result = table.result
    blocks: list[Block] = [
        Lines(result.reasons, style="reasons"),
        FactList(tuple(_facts(table)), shown=Audience.PAGE),
        # A quick answer has the same sentence among its reasons, right above.
        Lines(
            tuple(f"{i.what}: {i.reason}" for i in result.not_covered if i.reason not in result.reasons), "not covered"
        ),
        Lines(tuple(schema_lines([("", item) for item in table.breaking])), "definitions", shown=Audience.TEXT),
        *_schema_table([("", item) for level in SchemaClass for item in result.schema if item.level is level]),
        _row_diffs(table, options),
        _chunks("Failed chunks", table.slow.failed, table.coverage.states[ChunkState.FAILED]),
        _chunks("Slowest chunks", table.slow.slowest, table.coverage.chunks),
        Lines(result.blind_spots, "blind spots", shown=Audience.PAGE),
    ]  # fmt: skip
    if table.sql:
        title = f"SQL that was run ({amount(len(table.sql), 'statement')})"
        sql = tuple(Code(text, why) for why, text in table.sql)
        blocks.append(Section(title, sql, folded=True, shown=Audience.PAGE))
    shown = Audience.BOTH if _is_worth_telling(table) else Audience.PAGE
    return Section(
        table.title, tuple(blocks), link, str(result.verdict), tone_of(result.verdict), table.kinds, True, shown
    )


def _facts(table: TablePairReport) -> Iterator[Fact]:
    result, cover = table.result, table.coverage
    yield Fact("rows", f"source {count(result.rows_source)}, target {count(result.rows_target)}")
    yield from _read([table])
    yield Fact("chunks", f"{result.chunks:,}; stored: {_states(cover)} in {amount(cover.attempts, 'attempt')}")
    yield Fact("lanes", ", ".join(map(str, result.lanes)) or "none")
    yield Fact("hash", result.hash_name or "not recorded")
    reads = f"reads: source {cover.source_seconds:.2f}, target {cover.target_seconds:.2f}"
    yield Fact("seconds", f"{result.seconds:.2f} ({reads})")
    yield from _flat(result.details)


def _flat(details: Mapping[str, Any], prefix: str = "") -> Iterator[Fact]:
    for key, value in details.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            items = value if isinstance(value, list | tuple) else [value]
            yield Fact(f"{prefix}{key}", ", ".join(map(str, items)) or "none")


def _row_diffs(table: TablePairReport, options: ReportOptions) -> FindingList:
    states = "; ".join(f"{n:,} {KIND_WORDS.get(DiffKind(kind), kind)}, {state}" for kind, state, n in table.counts)
    note = f" stored ({states})."
    if table.row_diffs > table.stored:
        note += (
            f" The table's result counts {table.row_diffs:,} rows: copies of one row are stored once, and a limit may"
            " have left rows out."
        )
    if not options.values:
        note += " Values are masked."
    return FindingList("row diffs", table.samples, table.stored or table.row_diffs, note)


def _chunks(title: str, chunks: Sequence[ChunkResult], total: int) -> Table:
    columns = (TableColumn("Key range"), TableColumn("State"), *(
        TableColumn(head, number=True) for head in ("Rows", "Seconds", "Source s", "Target s", "Attempts")
    ))  # fmt: skip
    rows = [
        (
            str(chunk.range), f"{chunk.state}{f': {chunk.reason}' if chunk.reason else ''}",
            count(chunk.source.rows if chunk.source else None), f"{chunk.seconds:.2f}", f"{chunk.source_seconds:.2f}",
            f"{chunk.target_seconds:.2f}", f"{chunk.attempts:,}",
        )
        for chunk in chunks
    ]  # fmt: skip
    shown = Audience.BOTH if title.startswith("Failed") and chunks else Audience.PAGE
    return Table(columns, tuple(rows), title if rows else "", total=total if rows else 0, named=0, shown=shown)


def _coverage(tables: Sequence[TablePairReport], excluded: Sequence[str]) -> Iterator[Block]:
    cover = ReadCoverage.total(table.coverage for table in tables)
    yield FactList((
        Fact("chunks", f"{amount(cover.chunks, 'chunk')} ({_states(cover) if cover.chunks else 'none stored'})"),
        Fact("key ranges", f"{amount(cover.spans, 'span')}, read in {amount(cover.attempts, 'attempt')}"),
        *_read(tables),
        Fact("seconds of reads", f"source {seconds(cover.source_seconds)}, target {seconds(cover.target_seconds)}"),
    ))  # fmt: skip
    groups: dict[NotCovered, list[str]] = {}
    for table in tables:
        for item in table.result.not_covered:
            groups.setdefault(item, []).append(table.result.source)
    lines = [f"{item.what}: {item.reason}: {_named(names)}" for item, names in groups.items()]
    lines += [f"table {name}: {EXCLUDED_REASON}" for name in excluded[:_BARS]]
    if len(excluded) > _BARS:
        more = amount(len(excluded) - _BARS, "more table")
        lines.append(f"{more}: {EXCLUDED_REASON}; the JSON report names all {len(excluded):,}")
    yield Lines(tuple(lines) or ("nothing is recorded as not covered",), "not covered")


def _named(names: Sequence[str]) -> str:
    listed = ", ".join(names[:_BARS])
    return f"{amount(len(names), 'table pair')}: {listed}{', ...' if len(names) > _BARS else ''}"


def _states(cover: ReadCoverage) -> str:
    return ", ".join(f"{cover.states[state]:,} {state}" for state in ChunkState if cover.states[state]) or "none"


def _read(tables: Sequence[TablePairReport]) -> Iterator[Fact]:
    """Yield how much was read: rows of chunks, and keys that were read one by one (watch, --since, repair)."""
    keys = sum(_keys_read(table.result.details) for table in tables)
    if keys:
        yield Fact("keys read", f"{keys:,} on both sides")
    cover = ReadCoverage.total(table.coverage for table in tables)
    if cover.chunks or not keys:
        yield Fact("rows read", _rows_read(cover))


def _keys_read(details: Mapping[str, Any]) -> int:
    names = ("converged", "still different", "hot") if "repairs" in details else ("keys", "doubt", "diverged")
    return sum(int(details.get(name, 0)) for name in names) if {"repairs", "keys"} & details.keys() else 0


def _rows_read(cover: ReadCoverage) -> str:
    sides = (
        ("source", cover.rows_source, cover.unread_source),
        ("target", cover.rows_target, cover.unread_target),
    )
    return ", ".join(
        f"{side} {rows:,}" + (f" ({amount(unread, 'chunk')} without an answer)" if unread else "")
        for side, rows, unread in sides
    )


def _schema(tables: Sequence[TablePairReport]) -> Iterator[Block]:
    found = [(table.result.source, item) for table in tables for item in table.result.schema]
    lenient = [(name, item) for name, item in found if item.level is not SchemaClass.BREAKS_COMPARISON]
    yield Lines(tuple(schema_lines(lenient)), shown=Audience.TEXT)
    if not found:
        yield Lines(("None are recorded.",), style="note", shown=Audience.PAGE)
    for level in SchemaClass:
        some = [(name, item) for name, item in found if item.level is level]
        if some:
            listed = tuple(_schema_table(some))
            title = f"{level}: {amount(len(some), 'difference')}"
            yield Section(title, listed, folded=level is SchemaClass.COSMETIC or len(some) > _BARS, shown=Audience.PAGE)


def _schema_table(found: Sequence[tuple[str, SchemaDifference]]) -> Iterator[Table]:
    if not found:
        return
    tones = {SchemaClass.BREAKS_COMPARISON: "mismatch", SchemaClass.MAY_LOSE_DATA: "inconclusive"}
    columns = tuple(map(TableColumn, ("Class", "Where", "Source", "Target", "What it means")))
    rows = [
        (
            TableCell(str(item.level), tones.get(item.level, "none")),
            f"{table}: {item.where}" if table else item.where,
            "absent" if item.source is None else item.source, "absent" if item.target is None else item.target,
            item.message,
        )
        for table, item in found[:_LISTED]
    ]  # fmt: skip
    title = "" if found[0][0] else "Definitions that differ"
    yield Table(columns, tuple(rows), title, total=len(found), shown=Audience.PAGE)


def _charts(tables: Sequence[TablePairReport], timeline: ChunkTimeline) -> Iterator[Block]:
    slowest = sorted(tables, key=lambda table: -table.result.seconds)[:_BARS]
    most = slowest[0].result.seconds if slowest else 0.0
    rows = [
        (
            table.result.source, f"{table.result.seconds:.1f}",
            TableCell("", svg=charts.bar(table.result.seconds, most, tone_of(table.result.verdict))),
        )
        for table in slowest
    ]  # fmt: skip
    note = f"The slowest {len(rows)} of {len(tables):,}." if len(tables) > len(rows) else ""
    heads = (TableColumn("Table"), TableColumn("Seconds", number=True), TableColumn(""))
    yield Table(heads, tuple(rows), "Seconds per table pair", note, style="chart", named=0)
    kinds = {words: sum(getattr(t.result, kind.value) for t in tables) for kind, words in KIND_WORDS.items()}
    bars = [(w, f"{n:,}", TableCell("", svg=charts.bar(n, max(kinds.values()), "mismatch"))) for w, n in kinds.items()]
    heads = (TableColumn("Kind"), TableColumn("Rows", number=True), TableColumn(""))
    yield Table(heads, tuple(bars), "Row diffs per kind", style="chart", named=0)
    if not timeline.chunks:
        yield Lines(("No chunks are stored.",), style="note")
        return
    note = f"{timeline.chunks:,} chunks: each mark is the slowest read of a stretch of time." if timeline.binned else ""
    yield Chart(charts.timeline(timeline), "Chunks over time", charts.TIMELINE_LEGEND, note)
