"""One HTML page that holds everything: no request leaves it, and it is complete without JavaScript.

Names and values come from databases and are hostile until escaped: Jinja2 escapes every expression, unseen
characters are made visible, and a content security policy admits the page's own script and style by their
hash and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any, Generic, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from migverify.model import ChunkState, DiffKind, NotCovered, SchemaClass, SchemaDifference, Verdict
from migverify.report import charts
from migverify.report.marks import Clip, Piece, clip_pair, escape_char, mark_pair, pieces, visible
from migverify.report.rules import UNEXPLAINED, FindingSample, money_text, urgency, warning_words
from migverify.report.rules_text import coverage_words
from migverify.report.summary import ColumnSample, ReportData, RowSample, TableReport, utc
from migverify.report.text import KIND_WORDS, amount, count, kinds, rows_read, seconds

_BARS = 20
_LISTED = 1_000
_FINDING_CHARACTERS = 400
_OPEN = 3
_SENTENCES = {
    Verdict.MATCH: "Source and target held the same rows, in everything this run compared.",
    Verdict.MISMATCH: "Source and target differ.",
    Verdict.INCONCLUSIVE: "This run proves nothing about what it did not finish: treat it as not verified.",
}
_RULE_SENTENCES = {
    Verdict.MATCH: "All rules hold, in everything this run read.",
    Verdict.MISMATCH: "Rules do not hold.",
    Verdict.INCONCLUSIVE: "This run proves nothing about what it did not finish: treat it as not verified.",
}
_SYMBOLS = {Verdict.MATCH: "✓", Verdict.MISMATCH: "✗", Verdict.INCONCLUSIVE: "?"}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Capped(Generic[T]):
    """The first items of a list, and how many there are; a page says so where the two differ."""

    items: tuple[T, ...]
    total: int

    @classmethod
    def of(cls, items: Sequence[T], cap: int) -> Capped[T]:
        """Take the first ``cap`` items."""
        return cls(tuple(items[:cap]), len(items))

    @property
    def cut(self) -> bool:
        """Whether items were left out."""
        return len(self.items) < self.total


@dataclass(frozen=True, slots=True)
class Uncovered:
    """Something not compared for a reason, and the source tables it concerns."""

    what: str
    reason: str
    tables: tuple[str, ...]


def render_html(data: ReportData) -> str:
    """Return the page."""
    style, script = asset("page.css"), asset("page.js")
    page = environment().get_template("page.html.j2")
    sections = data.sections
    anchors = {table.result.pair: f"t{number}" for number, table in enumerate(sections, 1)}
    return page.render(
        data=data,
        style=Markup(style),  # noqa: S704 - our own file, hashed into the policy
        script=Markup(script),  # noqa: S704 - our own file, hashed into the policy
        policy=policy(style, script),
        sentence=(_SENTENCES if data.tables or not data.rules else _RULE_SENTENCES)[data.verdict],
        rules=sorted(data.rules, key=urgency),
        at_risk=_at_risk(data),
        any_money=any(rule.has_money for rule in data.rules),
        unexplained_kinds=UNEXPLAINED,
        symbols=_SYMBOLS,
        tables=sorted(data.tables, key=_order),
        sections=sections,
        anchors=anchors,
        left_out=len(data.tables) - len(sections),
        left_out_not_match=sum(1 for t in data.tables if t.detail is None and t.result.verdict is not Verdict.MATCH),
        open_first=_OPEN,
        slowest=Capped.of(sorted(data.tables, key=lambda t: -t.result.seconds), _BARS),
        schema=_schema(data.tables),
        uncovered=_uncovered(data),
        uncovered_tables=sum(1 for t in data.tables if t.result.not_covered),
        levels=list(SchemaClass),
        kind_words={kind.value: words for kind, words in KIND_WORDS.items()},
        DiffKind=DiffKind,
        ChunkState=ChunkState,
        Verdict=Verdict,
    )


@cache
def environment() -> Environment:
    """Return the environment all pages share: every expression escaped, nothing undefined shown."""
    env = Environment(
        loader=PackageLoader("migverify.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(
        name=name,
        visible=visible,
        count=count,
        seconds=seconds,
        duration=duration,
        utc=utc,
        amount=amount,
        kinds=kinds,
        rows_read=rows_read,
        timeline=charts.timeline,
        flat=flat,
        visible_lines=visible_lines,
        columns=column_cells,
        deviations=deviation_cells,
        money=money_text,
        rule_coverage=coverage_words,
        warning_words=warning_words,
        key=key_cell,
        css=lambda v: str(v).lower(),
    )
    env.globals.update(bar=charts.bar)
    return env


@cache
def asset(name_: str) -> str:
    """Return a style sheet or script of our own."""
    return (files("migverify.report") / "templates" / name_).read_text(encoding="utf-8")


def policy(style: str, script: str = "") -> str:
    """Return a content security policy that admits this style and this script, and nothing else."""
    scripts = f"'{_hash(script)}'" if script else "'none'"
    return (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src {scripts}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _order(table: TableReport) -> tuple[int, str, str]:
    order = (Verdict.MISMATCH, Verdict.INCONCLUSIVE, Verdict.MATCH)
    return order.index(table.result.verdict), table.result.source, table.result.pair


def name(text: str) -> Markup:
    """Return a name isolated from the direction of the text around it, unseen characters made visible."""
    return Markup("<bdi>{}</bdi>").format(visible(text))


def duration(value: float | None) -> str:
    """Return seconds in the unit one would say: ``3.5 s``, ``33m 20s``, ``2h 05m``."""
    if value is None:
        return "unknown"
    if value < 100:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02}s"
    return f"{minutes // 60:,}h {minutes % 60:02}m"


def visible_lines(text: str) -> str:
    """Return a statement as it was sent, line breaks and tabs kept, other unseen characters escaped."""
    return "".join(char if char in "\n\t" else escape_char(char) or char for char in text)


def key_cell(row: RowSample) -> Markup:
    """Return the key of a row diff, one part beside the other."""
    return Markup(", ").join(_value(Clip(part), pieces(part or "")) for part in row.key)


@dataclass(frozen=True, slots=True)
class ColumnCells:
    """One line of a row diff: the column's name and class, and both values with their differences marked."""

    column: str
    kind: str
    source: Markup
    target: Markup


_MASKED = Markup('<span class="word">masked</span>')
_ABSENT = Markup('<span class="word">absent</span>')
_NULL = Markup('<span class="word">NULL</span>')
_EMPTY = Markup('<span class="word">empty string</span>')


def column_cells(row: RowSample) -> list[ColumnCells]:
    """Return the lines of a row diff; none where the whole row is missing and nothing was kept."""
    return [ColumnCells(column.column, column.kind, *_sides(column, row.kind)) for column in row.columns]


def deviation_cells(finding: FindingSample) -> list[ColumnCells]:
    """Return the lines of a finding; none where the whole row is missing."""
    lines = []
    for one in finding.deviations:
        if one.masked:
            lines.append(ColumnCells(one.column, one.kind, _MASKED, _MASKED))
            continue
        source, target = clip_pair(one.source, one.target, _FINDING_CHARACTERS)
        marked_source, marked_target = mark_pair(source.text or "", target.text or "")
        lines.append(ColumnCells(one.column, one.kind, _value(source, marked_source), _value(target, marked_target)))
    return lines


def _at_risk(data: ReportData) -> list[tuple[str, str]]:
    """Return the unexplained money of the worst rule by currency: sums of rules would count one payment twice."""
    worst: dict[str, Decimal] = {}
    for rule in data.rules:
        for currency, value in rule.at_stake:
            worst[currency] = max(worst.get(currency, Decimal(0)), Decimal(value))
    return [(currency, format(value, "f")) for currency, value in sorted(worst.items())]


def _sides(column: ColumnSample, kind: str) -> tuple[Markup, Markup]:
    if column.masked or column.source is None or column.target is None:
        return _MASKED, _MASKED
    source, target = column.source, column.target
    if kind == DiffKind.MISSING_ON_TARGET:
        return _value(source, pieces(source.text or "")), _ABSENT
    if kind == DiffKind.MISSING_ON_SOURCE:
        return _ABSENT, _value(target, pieces(target.text or ""))
    marked_source, marked_target = mark_pair(source.text or "", target.text or "")
    return _value(source, marked_source), _value(target, marked_target)


def _value(clip: Clip, parts: Sequence[Piece]) -> Markup:
    if clip.text is None:
        return _NULL
    if not clip.text and not clip.before:
        return _EMPTY
    inner = Markup("").join(piece(part) for part in parts)
    before = Markup('<span class="cut">{} before…</span>').format(amount(clip.before, "character"))
    after = Markup('<span class="cut">…{} after</span>').format(amount(clip.after, "character"))
    return Markup('<code dir="ltr">{}{}{}</code>').format(
        before if clip.before else "", inner, after if clip.after else ""
    )


def piece(part: Piece) -> Markup:
    """Return a stretch of a value, marked where it differs or was escaped."""
    inner = Markup('<span class="esc">{}</span>').format(part.text) if part.escaped else escape(part.text)
    return Markup("<mark>{}</mark>").format(inner) if part.changed else inner


def _schema(tables: Sequence[TableReport]) -> dict[str, Capped[tuple[str, SchemaDifference]]]:
    found = {
        level: [(t.result.source, d) for t in tables for d in t.result.schema if d.level is level]
        for level in SchemaClass
    }
    return {str(level): Capped.of(items, _LISTED) for level, items in found.items()}


def _uncovered(data: ReportData) -> list[Uncovered]:
    groups: dict[NotCovered, list[str]] = {}
    for table, item in data.not_covered:
        groups.setdefault(item, []).append(table)
    return [Uncovered(item.what, item.reason, tuple(names)) for item, names in groups.items()]


def flat(details: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested details as (dotted name, text)."""
    for key, value in details.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            items = value if isinstance(value, list | tuple) else [value]
            yield f"{prefix}{key}", ", ".join(map(str, items)) or "none"
