"""The report for a terminal: verdict first, readable without color, safe for any name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len

from migverify.model import DiffKind, SchemaClass, SchemaDifference, Verdict
from migverify.report import rules_text
from migverify.report.coverage import Coverage
from migverify.report.marks import Clip, clip_pair, quoted, visible
from migverify.report.summary import (
    ColumnSample,
    ReportData,
    RowSample,
    TableReport,
    utc,
)

_COLORS = {Verdict.MATCH: "32", Verdict.MISMATCH: "31", Verdict.INCONCLUSIVE: "33"}
_ORDER = (Verdict.MISMATCH, Verdict.INCONCLUSIVE, Verdict.MATCH)
_NAME_CELLS = 60
_FACT_CELLS = 34
_VALUE_CHARACTERS = 160
_SCHEMA_LINES = 8
_REPEAT_VERDICT = 20
KIND_WORDS = {
    DiffKind.MISSING_ON_TARGET: "missing on target",
    DiffKind.MISSING_ON_SOURCE: "missing on source",
    DiffKind.VALUE_DIFFERS: "value differs",
}


def render_text(data: ReportData, *, color: bool = False, row_diffs: int = 20) -> str:
    """Return the report as lines for people.

    Parameters
    ----------
    data
        The run.
    color
        Color the verdicts with ANSI codes; no information is in the color alone.
    row_diffs
        Row diffs listed per table pair; the rest is counted.
    """
    paint = _painter(color)
    lines = [*_head(data, paint), ""]
    if data.rules:
        lines += [*rules_text.overview(data.rules, paint.verdict)]
        lines += [*rules_text.sections(data.rules, paint.verdict, paint.title, row_diffs)]
        if not data.tables:
            return "\n".join(_ended(lines, data, paint)) + "\n"
        lines.append("")
    lines += [*_overview(data, paint)]
    for table in data.sections:
        if _worth_telling(table):
            lines += ["", *_section(table, paint, row_diffs)]
    lines += [*_sections_left_out(data), *_notes(data)]
    lines += ["", *_coverage(data)]
    return "\n".join(_ended(lines, data, paint)) + "\n"


def _ended(lines: list[str], data: ReportData, paint: _Painter) -> list[str]:
    if len(data.tables) + len(data.rules) > _REPEAT_VERDICT:
        return [*lines, "", f"{paint.verdict(data.verdict)}  run {data.run_id}"]  # the first line has scrolled away
    return lines


class _Painter:
    def __init__(self, on: bool) -> None:
        self._on = on

    def verdict(self, verdict: Verdict) -> str:
        return f"\x1b[1;{_COLORS[verdict]}m{verdict}\x1b[0m" if self._on else str(verdict)

    def title(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self._on else text


def _painter(color: bool) -> _Painter:
    return _Painter(color)


def _head(data: ReportData, paint: _Painter) -> Iterator[str]:
    counts = ", ".join(f"{n:,} {verdict}" for verdict, n in data.verdict_counts.items() if n)
    parts = amount(len(data.tables) + len(data.rules), data.noun)
    yield f"{paint.verdict(data.verdict)}  ({parts}: {', '.join(filter(None, [counts or 'none', data.warned]))})"
    yield from (f"  {visible(reason)}" for reason in data.reasons)
    yield ""
    facts = [
        ("run", data.run_id),
        ("command", data.command or "not recorded"),
        ("started", utc(data.started)),
        ("seconds", seconds(data.seconds)),
        ("engine", data.engine),
        ("hash", ", ".join(data.hashes) or "not recorded"),
        ("plan", data.plan_hash or "not recorded"),
        *((e.name, ", ".join(f"{f.name} {f.value}" for f in e.brief)) for e in data.endpoints),
        *((fact.name, fact.value) for fact in data.facts),
        ("exit code", str(int(data.exit_code))),
    ]
    width = min(_FACT_CELLS, max(cell_len(visible(name)) for name, _ in facts))
    yield from (f"  {pad(visible(name), width)}  {visible(value)}" for name, value in facts)


def _overview(data: ReportData, paint: _Painter) -> Iterator[str]:
    if not data.tables:
        yield "No table results are stored."
        return
    tables = sorted(data.tables, key=lambda t: _ORDER.index(t.result.verdict))
    heads = ["verdict", "source", "target", "rows source", "rows target", "row diffs", "chunks", "seconds"]
    rows = [
        [
            str(t.result.verdict),
            shorten(visible(t.result.source), _NAME_CELLS),
            shorten(visible(t.result.target), _NAME_CELLS),
            count(t.result.rows_source),
            count(t.result.rows_target),
            f"{t.row_diffs:,}",
            f"{t.result.chunks:,}",
            f"{t.result.seconds:.1f}",
        ]
        for t in tables
    ]
    widths = [max(cell_len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    yield _line(heads, widths)
    for row, table in zip(rows, tables, strict=True):
        plain = _line(row, widths)
        yield paint.verdict(table.result.verdict) + plain[len(row[0]) :]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first_number = 3
    out = [
        pad(cell, width) if i < first_number else " " * (width - cell_len(cell)) + cell
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(out).rstrip()


def _worth_telling(table: TableReport) -> bool:
    result = table.result
    return bool(
        result.verdict is not Verdict.MATCH or result.reasons or result.not_covered or _breaking(table) or table.counts
    )


def _section(table: TableReport, paint: _Painter, row_diffs: int) -> Iterator[str]:
    result = table.result
    name = visible(result.source)
    if result.target != result.source:
        name += f" -> {visible(result.target)}"
    yield f"{paint.verdict(result.verdict)}  {paint.title(name)}"
    yield from (f"  reason: {visible(reason)}" for reason in result.reasons)
    if table.row_diffs:
        yield f"  row diffs: {kinds(table)}"
    yield from (f"  schema, {line}" for line in schema_lines([("", item) for item in _breaking(table)]))
    yield from (f"  not covered: {visible(i.what)}: {visible(i.reason)}" for i in result.not_covered)
    if table.detail:
        for chunk in table.detail.failed_chunks:
            yield f"  chunk failed: {visible(chunk.range)}: {visible(chunk.reason)}"
        yield from _row_diffs(table, table.detail.samples[:row_diffs])


def _breaking(table: TableReport) -> list[SchemaDifference]:
    return [item for item in table.result.schema if item.level is SchemaClass.BREAKS_COMPARISON]


def _notes(data: ReportData) -> Iterator[str]:
    """Tell in one place what the definitions differ in beside what is a difference of a table."""
    found = [(t.result.source, d) for t in data.tables for d in t.result.schema
             if d.level is not SchemaClass.BREAKS_COMPARISON]  # fmt: skip
    if found:
        yield from ("", "Definitions that differ", *(f"  {line}" for line in schema_lines(found)))


def schema_lines(found: Iterable[tuple[str, SchemaDifference]]) -> Iterator[str]:
    """Yield a line for each cause, however many columns it concerns.

    Parameters
    ----------
    found
        Differences with the name of their table, ``""`` where the table is known.
    """
    causes: dict[tuple[SchemaClass, str, str], list[str]] = {}
    tables: dict[tuple[SchemaClass, str, str], set[str]] = {}
    for table, item in found:
        noun = "keys" if item.where.startswith("key ") else "tables" if item.where == "table" else "columns"
        cause = item.level, noun, item.message.removeprefix("column ").removeprefix(f"{item.where}: ")
        causes.setdefault(cause, []).append(f"{table}: {item.where}" if table else item.where)
        tables.setdefault(cause, set()).add(table)
    for level in SchemaClass:
        lines = [(cause, places) for cause, places in causes.items() if cause[0] is level]
        for cause, places in lines[:_SCHEMA_LINES]:
            _, noun, message = cause
            number = len(tables[cause])
            many = f"{len(places):,} {noun}" + (f" of {amount(number, 'table')}" if "" not in tables[cause] else "")
            where = places[0] if len(places) == 1 else f"{many}, the first {places[0]}"
            yield f"{level}: {visible(where)}: {visible(message)}"
        if len(lines) > _SCHEMA_LINES:
            yield f"{level}: {len(lines) - _SCHEMA_LINES:,} more causes; JSON and HTML list all"


def _row_diffs(table: TableReport, rows: Sequence[RowSample]) -> Iterator[str]:
    total = table.stored_row_diffs
    if not total:
        return
    yield f"  row diffs (showing {len(rows):,} of {total:,}):"
    for row in rows:
        key = ", ".join(quoted(part) for part in row.key)
        words = KIND_WORDS.get(DiffKind(row.kind), row.kind)
        extra = f" [{row.state}]" + (f" shard {visible(row.shard)}" if row.shard else "")
        if (row.source_count, row.target_count) != (1, 1):
            extra += f" source has {row.source_count:,}, target has {row.target_count:,}"
        yield f"    ({key})  {words}{extra}"
        yield from (f"        {_column(column, row.kind)}" for column in row.columns)


def _column(column: ColumnSample, kind: str) -> str:
    name = f"{visible(column.column)} ({visible(column.kind)})"
    if column.masked or column.source is None or column.target is None:
        return f"{name}: masked"
    near_source, near_target = clip_pair(column.source.text, column.target.text, _VALUE_CHARACTERS)
    source = "absent" if kind == DiffKind.MISSING_ON_SOURCE else _value(narrowed(column.source, near_source))
    target = "absent" if kind == DiffKind.MISSING_ON_TARGET else _value(narrowed(column.target, near_target))
    return f"{name}: {source} -> {target}"


def narrowed(outer: Clip, inner: Clip) -> Clip:
    """Return the clip ``inner`` of the text of ``outer``, counting what both left out."""
    return Clip(inner.text, outer.before + inner.before, outer.after + inner.after)


def kinds(table: TableReport) -> str:
    """Return the row diffs of the table's result by kind, as one phrase."""
    numbers = ((getattr(table.result, kind.value), words) for kind, words in KIND_WORDS.items())
    return ", ".join(f"{number:,} {words}" for number, words in numbers if number)


def _value(clip: Clip) -> str:
    before = f"({clip.before:,} characters) ..." if clip.before else ""
    after = f"... ({clip.after:,} characters)" if clip.after else ""
    return f"{before}{quoted(clip.text)}{after}"


def _sections_left_out(data: ReportData) -> list[str]:
    left_out = [t for t in data.tables if t.detail is None and _worth_telling(t)]
    if not left_out:
        return []
    return [
        "",
        f"Details of {len(left_out):,} more table pairs are left out (cap: {data.options.sections:,}).",
    ]


def _coverage(data: ReportData) -> Iterator[str]:
    cover = data.coverage
    states = ", ".join(f"{n:,} {state}" for state, n in sorted(cover.states.items()))
    yield "Covered"
    chunks = f"{amount(cover.chunks, 'chunk')} ({states or 'none stored'})"
    yield f"  {chunks} in {amount(cover.spans, 'span')}, {amount(cover.attempts, 'attempt')}"
    yield f"  rows read: {rows_read(cover)}"
    yield f"  seconds of reads: source {cover.source_seconds:.1f}, target {cover.target_seconds:.1f}"
    yield "Blind spots"
    for spot, number in data.blind_spots:
        yield f"  {visible(spot)} ({amount(number, 'table pair')})"
    if not data.blind_spots:
        yield "  none recorded"


def rows_read(cover: Coverage) -> str:
    """Return the rows each side read, and for how many chunks it gave no answer."""
    sides = (
        ("source", cover.rows_source, cover.unread_source),
        ("target", cover.rows_target, cover.unread_target),
    )
    return ", ".join(
        f"{side} {rows:,}" + (f" ({amount(unread, 'chunk')} without an answer)" if unread else "")
        for side, rows, unread in sides
    )


def amount(number: int, noun: str) -> str:
    """Return ``1 chunk`` or ``2,000 chunks``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def seconds(value: float | None) -> str:
    """Return seconds with one decimal; None is ``not known``."""
    return "not known" if value is None else f"{value:,.1f}"


def count(value: int | None) -> str:
    """Return a row count; None is ``unknown``."""
    return "unknown" if value is None else f"{value:,}"


def pad(text: str, width: int) -> str:
    """Fill up with spaces to a width in terminal cells."""
    return text + " " * (width - cell_len(text))


def shorten(text: str, width: int) -> str:
    """Cut the middle out of a long name; what is cut is shown as ``…`` and stands whole in its section."""
    if cell_len(text) <= width:
        return text
    half = (width - 1) // 2
    while cell_len(text[:half]) + cell_len(text[-half:]) + 1 > width:
        half -= 1
    return f"{text[:half]}…{text[-half:]}"
