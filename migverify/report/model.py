"""What a report shows, for every kind of run: frozen data that the five renderers turn into a form.

A builder (tables, rules, guards, replay, runbook) reads a run and makes a ``Report``; nothing else is rendered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import zip_longest
from typing import Any

from markupsafe import Markup

from migverify.errors import ExitCode
from migverify.exposition import Metric
from migverify.model import NextStep, Verdict, judged_document
from migverify.report.marks import Clip

URGENCY = (Verdict.MISMATCH, Verdict.INCONCLUSIVE, Verdict.MATCH)
"""The order in which verdicts are listed."""
SYMBOLS = {"match": "✓", "mismatch": "✗", "inconclusive": "?", "none": "·", "": ""}
"""A sign for each tone, so that no information is in the color alone."""
OPEN_AT_FIRST = 3
"""Folded sections of trouble that a page shows unfolded."""


class Audience(StrEnum):
    """Which people see a part: those at a terminal, those with the page, or both."""

    BOTH = "both"
    PAGE = "page"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """How much a report holds; every cap is stated where it cuts.

    Parameters
    ----------
    values
        Show stored values of differing columns. What the run did not keep stays masked.
    samples
        Row diffs shown per table pair.
    samples_in_all
        Row diffs shown in the whole report, shared evenly by the table pairs that have any (each shows at
        least one).
    value_characters
        Characters shown per value, around the first difference.
    slow_chunks
        Slowest chunks listed per table pair.
    sections
        Table pairs with details: first those that are not MATCH, then the slowest.
    whole
        Every digest of a replay, not only the most severe ones.
    """

    values: bool = False
    samples: int = 200
    samples_in_all: int = 20_000
    value_characters: int = 400
    slow_chunks: int = 5
    sections: int = 300
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Fact:
    """One name with its value; both are text for people."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Tile:
    """A key figure. ``tone`` is ``match``, ``mismatch``, ``inconclusive``, ``none`` (dim) or empty."""

    figure: str
    words: str
    tone: str = ""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table; numbers are aligned to the right and sorted as numbers."""

    title: str
    number: bool = False
    shown: Audience = Audience.BOTH


@dataclass(frozen=True, slots=True)
class TableCell:
    """A cell that is more than text.

    Parameters
    ----------
    badge
        Drawn as a badge with the sign of its tone.
    notes
        Dimmer lines below the text.
    link
        Id of the section that tells more.
    svg
        A drawing in place of the text on a page; the text says the same.
    folded
        A text to be unfolded: its title and the text.
    """

    text: str
    tone: str = ""
    badge: bool = False
    code: bool = False
    notes: tuple[str, ...] = ()
    link: str = ""
    svg: Markup | None = None
    folded: Fact | None = None


Row = tuple[TableCell | str, ...]


@dataclass(frozen=True, slots=True)
class FactList:
    """A list of facts."""

    facts: tuple[Fact, ...]
    shown: Audience = Audience.BOTH


@dataclass(frozen=True, slots=True)
class Lines:
    """A list of sentences. ``style`` is a class of the style sheet; ``note``: one dim sentence, no list."""

    lines: tuple[str, ...]
    title: str = ""
    style: str = ""
    shown: Audience = Audience.BOTH


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Parameters
    ----------
    named
        Place of the column that names a row.
    total
        How many rows there are, where ``rows`` holds only the first; the report says so.
    filtered
        What a row is ("table pair"): the page lets its reader sort and filter. At most one table of a report.
    tones
        Of a table that is filtered: the tones of its first column that are offered, with their words.
    text_rows
        Rows that a terminal shows.
    """

    columns: tuple[TableColumn, ...]
    rows: tuple[Row, ...]
    title: str = ""
    note: str = ""
    total: int = 0
    filtered: str = ""
    tones: tuple[tuple[str, str], ...] = (
        ("mismatch", "MISMATCH"), ("inconclusive", "INCONCLUSIVE"), ("match", "MATCH"),
    )  # fmt: skip
    style: str = ""
    named: int = 1
    text_rows: int | None = None
    shown: Audience = Audience.BOTH


@dataclass(frozen=True, slots=True)
class Compared:
    """A column of a row with both its values; a text replaces a value that is masked or absent."""

    column: str
    kind: str
    source: Clip | str
    target: Clip | str


@dataclass(frozen=True, slots=True)
class FindingEntry:
    """A row diff, or a finding of a rule.

    ``title`` names it where ``key`` is empty. ``amounts`` is money with its currency. ``sides``: whether source and
    target have the row, where no column is listed.
    """

    words: str
    key: tuple[Clip, ...] = ()
    title: str = ""
    notes: tuple[str, ...] = ()
    columns: tuple[Compared, ...] = ()
    amounts: tuple[str, ...] = ()
    reason: str = ""
    sides: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class FindingList:
    """The first deviations of ``total`` that are stored."""

    title: str
    items: tuple[FindingEntry, ...]
    total: int
    note: str = ""
    shown: Audience = Audience.BOTH


@dataclass(frozen=True, slots=True)
class Code:
    """A text that keeps its line breaks: a statement."""

    text: str
    title: str = ""
    shown: Audience = Audience.BOTH


@dataclass(frozen=True, slots=True)
class Link:
    """A file beside the page: ``href`` is relative to it."""

    text: str
    href: str
    shown: Audience = Audience.BOTH


@dataclass(frozen=True, slots=True)
class BothAnswers:
    """The answers of both sides, beside each other; ``marked``: characters that differ are marked."""

    source: str
    target: str
    marked: bool = False
    shown: Audience = Audience.BOTH


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing; its figures are also in a table or in its title."""

    svg: Markup
    title: str = ""
    legend: Markup | None = None
    note: str = ""
    shown: Audience = Audience.PAGE


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report.

    Parameters
    ----------
    id
        Its anchor on the page; sections of the first level with one are in the navigation.
    badge
        One word of its state, in ``tone``; such a section is folded on the page.
    summary
        Follows the title of a folded section.
    """

    title: str
    blocks: tuple[Block, ...] = ()
    id: str = ""
    badge: str = ""
    tone: str = ""
    summary: str = ""
    folded: bool = False
    shown: Audience = Audience.BOTH


Block = FactList | Lines | Table | FindingList | Code | Link | BothAnswers | Chart | Section


@dataclass(frozen=True, slots=True)
class JUnitCase:
    """A test case of JUnit. MISMATCH is a failure, INCONCLUSIVE an error, and ``lines`` say why.

    ``notes`` are shown with any verdict.
    """

    group: str
    name: str
    verdict: Verdict
    lines: tuple[str, ...] = ()
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """A run, ready to be rendered.

    Parameters
    ----------
    subject
        What the report is about, with its id: ``run 20270115T080000-1a2b3c``.
    word
        The state in one or few words: the verdict, or how a runbook's run ended.
    headline
        What a terminal shows behind the word.
    sentence, covered
        The page's first two sentences.
    tone
        ``match``, ``mismatch`` or ``inconclusive``; empty: no colored head.
    seconds
        Working time; None where the end of the run is not known.
    cards
        Titled lists of facts at the top; the first one is the run's.
    document
        The report as JSON: a contract of its own that holds what programs read.
    private
        It shows statements: a file of it is for its owner alone.
    remedies
        What to do about each of the reasons, in their order; empty where that is elsewhere.
    next_steps
        Commands that a reader needs next; a terminal shows them last, and the JSON has them.
    refresh_seconds
        After how long the page loads itself anew, 0 for never.
    """

    run_id: str
    subject: str
    verdict: Verdict
    sentence: str
    headline: str = ""
    word: str = ""
    tone: str = ""
    covered: str = ""
    reasons: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    started: float | None = None
    seconds: float | None = None
    tiles: tuple[Tile, ...] = ()
    cards: tuple[tuple[str, tuple[Fact, ...]], ...] = ()
    sections: tuple[Section, ...] = ()
    cases: tuple[JUnitCase, ...] = ()
    metrics: tuple[Metric, ...] = ()
    document: Mapping[str, Any] = field(default_factory=dict)
    private: bool = False
    next_steps: tuple[NextStep, ...] = ()
    refresh_seconds: int = 0

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of its verdict."""
        return self.verdict.exit_code

    @property
    def json_document(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        return judged_document(self.document, self.next_steps)

    @property
    def reasons_with_remedies(self) -> tuple[tuple[str, str], ...]:
        """Each reason, and what to do about it where that is said here."""
        return tuple(zip_longest(self.reasons, self.remedies[: len(self.reasons)], fillvalue=""))


def tone_of(verdict: Verdict) -> str:
    """Return the tone of a verdict: a class of the style sheet."""
    return verdict.value.lower()


def badge(verdict: Verdict, word: str = "") -> TableCell:
    """Return a verdict as a cell; ``word`` in its place."""
    return TableCell(word or str(verdict), tone_of(verdict), badge=True)


def verdict_counts(verdicts: Iterable[Verdict]) -> dict[Verdict, int]:
    """Return how often each verdict is there, the most urgent first, zeros included."""
    counts = Counter(verdicts)
    return {verdict: counts[verdict] for verdict in URGENCY}
