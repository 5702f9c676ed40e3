"""A report as one HTML page that holds everything: no request leaves it, and it is complete without JavaScript.

Names and values come from databases and are hostile until escaped: Jinja2 escapes every expression, unseen
characters are made visible, and a content security policy admits the page's own script and style by their
hash and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from itertools import chain
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from migverify.figures import amount, count
from migverify.report.marks import Clip, Piece, escape_char, mark_pair, pieces, visible
from migverify.report.model import (
    OPEN_AT_FIRST,
    SYMBOLS,
    Audience,
    Block,
    BothAnswers,
    Compared,
    FindingEntry,
    Report,
    Row,
    Section,
    Table,
    TableCell,
    TableColumn,
)

_MARKED = 4_000
"""Characters of an answer beyond which what differs in it is not marked."""


def render_html(report: Report) -> str:
    """Return the page. It holds a script only where it has a table to be sorted and filtered."""
    style, script = asset("page.css"), asset("page.js") if _has_filter(report) else ""
    page: str = template().render(
        report=report, sections=[section for section in report.sections if section.shown is not Audience.TEXT],
        style=Markup(style), script=Markup(script),  # noqa: S704 - our own files, hashed into the policy
        policy=policy(style, script), opened=_opened(report),
    )  # fmt: skip
    return page.lstrip()


def template() -> Template:
    """Return the template of the page."""
    return environment().get_template("page.html.j2")


def served_page(report: Report) -> tuple[str, str]:
    """Return the page with the content security policy that a server sends beside it."""
    return render_html(report), policy(asset("page.css"), asset("page.js") if _has_filter(report) else "")


@cache
def environment() -> Environment:
    """Return the environment of the pages: every expression escaped, nothing undefined shown."""
    env = Environment(
        loader=PackageLoader("migverify.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    env.filters.update(
        name=name, visible=visible, count=count, amount=amount, visible_lines=visible_lines, shown=_on_page,
        kind=lambda block: type(block).__name__, compared=compared_cells, key=key_cell, answers=answers, line=_line,
        id=id, cells=_cells, file=_file,
    )  # fmt: skip
    env.globals.update(symbols=SYMBOLS)
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


def _has_filter(report: Report) -> bool:
    blocks = chain.from_iterable(section.blocks for section in report.sections)
    return any(isinstance(block, Table) and block.filtered for block in blocks)


def _opened(report: Report) -> frozenset[int]:
    """Return the folded sections, by identity, that are unfolded at first: the first ones of trouble."""
    folded = [
        block for section in report.sections for block in section.blocks
        if isinstance(block, Section) and block.folded and block.tone not in ("match", "none", "")
    ]  # fmt: skip
    return frozenset(id(section) for section in folded[:OPEN_AT_FIRST])


def _cells(table: Table, row: Row) -> list[tuple[int, TableColumn, TableCell]]:
    return [
        (place, column, cell if isinstance(cell, TableCell) else TableCell(cell))
        for place, (column, cell) in enumerate(zip(table.columns, row, strict=True))
        if column.shown is not Audience.TEXT
    ]


def _on_page(blocks: tuple[Block, ...]) -> list[Block]:
    return [block for block in blocks if block.shown is not Audience.TEXT]


def name(text: str) -> Markup:
    """Return a name isolated from the direction of the text around it, unseen characters made visible."""
    return Markup(f"<bdi>{escape(visible(text))}</bdi>")  # noqa: S704 - escaped; a board has thousands of names


def _line(text: str) -> Markup:
    """Return a sentence; a link to documentation at its end can be followed."""
    before, link, after = text.partition("https://")
    if not link or not before.startswith("see "):
        return escape(visible(text))
    return Markup('{}<a href="{url}" rel="noreferrer">{url}</a>').format(visible(before), url=visible(link + after))


def _file(href: str) -> str:
    """Return a relative path as it may be followed: quoted, so that no name is read as a scheme or a host."""
    return "./" + quote(href.lstrip("/"))


def visible_lines(text: str) -> str:
    """Return a statement as it was sent, line breaks and tabs kept, other unseen characters escaped."""
    return "".join(char if char in "\n\t" else escape_char(char) or char for char in text)


def key_cell(item: FindingEntry) -> Markup:
    """Return what names a deviation: its key, one part beside the other, or its title."""
    if not item.key:
        return name(item.title)
    return Markup(", ").join(_value(part, pieces(part.text or "")) for part in item.key)


def compared_cells(column: Compared) -> tuple[Markup, Markup]:
    """Return both values of a column with their differences marked."""
    source, target = column.source, column.target
    if isinstance(source, Clip) and isinstance(target, Clip):
        marked_source, marked_target = mark_pair(source.text or "", target.text or "")
        return _value(source, marked_source), _value(target, marked_target)
    return _side(source), _side(target)


def _side(value: Clip | str) -> Markup:
    return _word(value) if isinstance(value, str) else _value(value, pieces(value.text or ""))


def _word(text: str) -> Markup:
    return Markup('<span class="word">{}</span>').format(text)


def _value(clip: Clip, parts: tuple[Piece, ...]) -> Markup:
    if clip.text is None:
        return _word("NULL")
    if not clip.text and not clip.before:
        return _word("empty string")
    before = Markup('<span class="cut">{} before…</span>').format(amount(clip.before, "character"))
    after = Markup('<span class="cut">…{} after</span>').format(amount(clip.after, "character"))
    return Markup('<code dir="ltr">{}{}{}</code>').format(
        before if clip.before else "", _marked(parts), after if clip.after else ""
    )


def _marked(parts: tuple[Piece, ...]) -> Markup:
    return Markup("").join(piece(part) for part in parts)


def piece(part: Piece) -> Markup:
    """Return a stretch of a value, marked where it differs or was escaped."""
    inner = Markup('<span class="esc">{}</span>').format(part.text) if part.escaped else escape(part.text)
    return Markup("<mark>{}</mark>").format(inner) if part.changed else inner


def answers(block: BothAnswers) -> tuple[Markup, Markup]:
    """Return both answers, line by line, with what differs marked where that is wanted and they are not too long."""
    source, target = block.source, block.target
    if not block.marked or source == target or max(len(source), len(target)) > _MARKED:
        return escape(visible_lines(source)), escape(visible_lines(target))
    lines = source.split("\n"), target.split("\n")
    longest = max(map(len, lines))
    pairs = [mark_pair(*both) for both in zip(*(side + [""] * (longest - len(side)) for side in lines), strict=True)]
    return (
        Markup("\n").join(_marked(one) for one, _ in pairs),
        Markup("\n").join(_marked(other) for _, other in pairs),
    )
