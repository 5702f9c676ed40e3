"""A report for a terminal: verdict first, readable without color, safe for any name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from migverify.figures import amount
from migverify.report.marks import Clip, clip_pair, quoted, visible
from migverify.report.model import (
    Audience,
    Block,
    BothAnswers,
    Chart,
    Code,
    Compared,
    Fact,
    FactList,
    FindingEntry,
    FindingList,
    Lines,
    Link,
    Report,
    Row,
    Section,
    Table,
    TableCell,
)

_COLORS = {"match": "32", "mismatch": "31", "inconclusive": "33"}
_NAME_CELLS = 60
_FACT_CELLS = 34
_VALUE_CHARACTERS = 160
_REPEAT_VERDICT = 20
_DEVIATIONS = 20


def render_text(report: Report, *, color: bool = False) -> str:
    """Return the report as lines for people; ``color`` colors the verdicts, and no information is in it alone."""
    return "\n".join(_Text(color=color).report(report)) + "\n"


class _Text:
    def __init__(self, *, color: bool) -> None:
        self._color = color

    def _paint(self, word: str, tone: str) -> str:
        code = _COLORS.get(tone, "1")
        return f"\x1b[1;{code}m{word}\x1b[0m" if self._color and word else word

    def report(self, report: Report) -> list[str]:
        verdict = self._paint(visible(report.word or str(report.verdict)), report.tone)
        lines = [f"{verdict}  {visible(report.headline or report.subject)}"]
        for reason, remedy in report.reasons_with_remedies:
            lines += [f"  {visible(reason)}", *([f"    -> {visible(remedy)}"] if remedy else [])]
        lines += ["", *_facts(tuple(_head(report)), "  ")]
        for section in report.sections:
            lines += self._section(section)
        if report.next_steps:
            lines += ["", self._paint("Next", "title")]
            lines += [f"  {visible(step.command)}  # {visible(step.reason)}" for step in report.next_steps]
        if len(lines) > _REPEAT_VERDICT:
            lines += ["", f"{verdict}  {visible(report.subject)}"]  # the first line has scrolled away
        return lines

    def _section(self, section: Section, indent: str = "") -> Iterator[str]:
        if section.shown is Audience.PAGE:
            return
        body = [line for block in section.blocks for line in self._block(block, indent if not section.folded else "  ")]
        if not body and not section.badge:
            return
        parts = [self._paint(section.badge, section.tone), self._paint(visible(section.title), "title")]
        yield from ("", "  ".join(filter(None, [*parts, visible(section.summary)])))
        yield from body

    def _block(self, block: Block, indent: str) -> Iterator[str]:
        if block.shown is Audience.PAGE:
            return
        match block:
            case FactList():
                yield from _facts(block.facts, indent or "  ")
            case Lines():
                if block.title and block.lines:
                    yield f"{indent}{block.title}:"
                more = "  " if block.title or not indent else ""
                yield from (f"{indent}{more}{visible(line)}" for line in block.lines)
            case Table():
                yield from (f"{indent}{line}" for line in self._table(block))
            case FindingList():
                yield from _deviations(block, indent)
            case Code():
                if block.title:
                    yield f"{indent}{visible(block.title)}:"
                yield from (f"{indent}  {visible(line)}" for line in block.text.split("\n") if line)
            case Link():
                yield f"{indent}{visible(block.text)}: {visible(block.href)}"
            case BothAnswers():
                for side, text in (("source", block.source), ("target", block.target)):
                    yield f"{indent}{side}:"
                    yield from (f"{indent}  {visible(line)}" for line in text.split("\n"))
            case Section():
                yield from self._section(block, indent)
            case Chart():
                return

    def _table(self, table: Table) -> Iterator[str]:
        if table.title:
            yield f"{table.title}:"
        if table.note:
            yield visible(table.note)
        if not table.rows:
            return
        shown = [at for at, column in enumerate(table.columns) if column.shown is not Audience.PAGE]
        rows = table.rows[: table.text_rows]
        texts = [[table.columns[at].title.lower() for at in shown], *([_cell(row[at]) for at in shown] for row in rows)]
        widths = [max(cell_len(line[at]) for line in texts) for at in range(len(shown))]
        numbers = [table.columns[at].number for at in shown]
        for place, line in enumerate(texts):
            cells = [_pad(text, width, right=right) for text, width, right in zip(line, widths, numbers, strict=True)]
            if place and shown:
                cells[0] = self._badge(rows[place - 1], shown[0], cells[0])
            yield "  ".join(cells).rstrip()
        if (left := max(table.total, len(table.rows)) - len(rows)) > 0:
            yield f"{left:,} more: the HTML and JSON reports list them"

    def _badge(self, row: Row, at: int, text: str) -> str:
        cell = row[at]
        if isinstance(cell, str) or not cell.badge:
            return text
        return self._paint(cell.text, cell.tone) + text[len(cell.text) :]


def _head(report: Report) -> Iterator[Fact]:
    for place, (title, facts) in enumerate(report.cards):
        if place == 0:
            yield from facts
        else:
            yield Fact(title, ", ".join(f"{fact.name} {fact.value}" for fact in facts))


def _facts(facts: Sequence[Fact], indent: str) -> Iterator[str]:
    width = min(_FACT_CELLS, max((cell_len(visible(fact.name)) for fact in facts), default=0))
    yield from (f"{indent}{_pad(visible(fact.name), width)}  {visible(fact.value)}" for fact in facts)


def _cell(cell: TableCell | str) -> str:
    if isinstance(cell, str):
        return _shorten(visible(cell))
    return "; ".join([_shorten(visible(cell.text)), *map(visible, cell.notes)])


def _pad(text: str, width: int, *, right: bool = False) -> str:
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


def _shorten(text: str, width: int = _NAME_CELLS) -> str:
    """Cut the middle out of a long name; what is cut is shown as ``…``, and the page has the whole of it."""
    if cell_len(text) <= width:
        return text
    half = (width - 1) // 2
    while cell_len(text[:half]) + cell_len(text[-half:]) + 1 > width:
        half -= 1
    return f"{text[:half]}…{text[-half:]}"


def _deviations(block: FindingList, indent: str) -> Iterator[str]:
    if not block.total:
        return
    some = block.items[:_DEVIATIONS]
    yield f"{indent}{block.title} (showing {len(some):,} of {block.total:,}):"
    for item in some:
        yield f"{indent}  {_deviation(item)}"
        yield from (f"{indent}      {_compared(column)}" for column in item.columns)
        if item.reason:
            yield f"{indent}      {visible(item.reason)}"


def _deviation(item: FindingEntry) -> str:
    title = f"({', '.join(quoted(part.text) for part in item.key)})" if item.key else visible(item.title)
    notes = f" [{', '.join(map(visible, (*item.notes, *item.amounts)))}]" if item.notes or item.amounts else ""
    return f"{title}  {visible(item.words)}{notes}"


def _compared(column: Compared) -> str:
    name = f"{visible(column.column)} ({visible(column.kind)})"
    if column.source == column.target and isinstance(column.source, str):
        return f"{name}: {column.source}"
    source, target = column.source, column.target
    if isinstance(source, Clip) and isinstance(target, Clip):
        near = clip_pair(source.text, target.text, _VALUE_CHARACTERS)
        source, target = (_within(outer, inner) for outer, inner in zip((source, target), near, strict=True))
    return f"{name}: {_value(source)} -> {_value(target)}"


def _within(outer: Clip, inner: Clip) -> Clip:
    return Clip(inner.text, outer.before + inner.before, outer.after + inner.after)


def _value(value: Clip | str) -> str:
    if isinstance(value, str):
        return value
    clip = _within(value, clip_pair(value.text, None, _VALUE_CHARACTERS)[0])
    before = f"({amount(clip.before, 'character')}) ..." if clip.before else ""
    after = f"... ({amount(clip.after, 'character')})" if clip.after else ""
    return f"{before}{quoted(clip.text)}{after}"
