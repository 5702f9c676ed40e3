"""The nouns of reconciliation: datasets, windows, findings and results; frozen, typed, without I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from migverify.model import KeyText, Verdict

if TYPE_CHECKING:
    from migverify.db.snapshot import ReadSnapshot

CHOSEN, ALL_RULES = "rules chosen", "all"
"""The fact of a run that says which rules ``--rule`` chose, and its value without that option."""
WATCH_FACT = "recon_watch"
"""The fact of a run that says it is a watch of rules, with where each rule's windows begin."""


class Severity(StrEnum):
    """What a finding means. A finding of ``warning`` is reported and does not make the verdict a MISMATCH."""

    CRITICAL = "critical"
    MAJOR = "major"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class RulePlace:
    """Where something is in a rules file; ``line`` counts from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


ParameterValue: TypeAlias = int | Decimal | str | date | datetime
"""A bound value; datetimes are naive and mean UTC."""


@dataclass(frozen=True, slots=True)
class TablePart:
    """Rows of one table. ``where`` is a condition that may hold ``:parameters``; empty for all rows."""

    endpoint: str
    database: str
    table: str
    where: str = ""
    shard: str = ""


@dataclass(frozen=True, slots=True)
class QueryPart:
    """Rows of one SELECT, which may hold ``:parameters``."""

    endpoint: str
    sql: str
    shard: str = ""


@dataclass(frozen=True, slots=True)
class FilePart:
    """Rows of Parquet files: a path or a pattern that Spark or fsspec reads. Needs the Spark engine."""

    path: str
    shard: str = ""


@dataclass(frozen=True, slots=True)
class ChangesPart:
    """Row changes of one table: from an endpoint's binlog or, of a TiDB, its changefeed; or from binlog files.

    Exactly one of ``endpoint`` and ``path`` is not empty. Besides the table's columns, which are those of the image
    after the change (before it for a delete), a row has ``_op``, ``_time`` (commit, UTC, microseconds), ``_gtid``,
    ``_file``, ``_position`` and, for updates, ``_before.<column>``. ``state`` keeps the last change of each key only.
    """

    endpoint: str
    path: str
    database: str
    table: str
    operations: tuple[str, ...] = ("insert", "update", "delete")
    state: bool = False
    shard: str = ""


Part: TypeAlias = TablePart | QueryPart | FilePart | ChangesPart


@dataclass(frozen=True, slots=True)
class Dataset:
    """A named set of rows: one part, or the union of shards that a template gave.

    ``columns`` maps a name to an SQL expression over the part's own columns (domain mapping), in their order; empty
    takes all columns as they are. ``values`` maps, per column, a text on this side to the text that is compared.
    ``key`` identifies a row where a rule does not say otherwise. ``time`` is the column that windows cut, a UTC
    DATETIME or TIMESTAMP, or None for a dataset that is read whole. ``static`` says that nothing writes to it.
    """

    name: str
    parts: tuple[Part, ...]
    place: RulePlace
    columns: tuple[tuple[str, str], ...] = ()
    values: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    key: tuple[str, ...] = ()
    time: str | None = None
    static: bool = False

    @property
    def described(self) -> str:
        """How reports call it: its name, and where its rows lie."""
        match self.parts[0]:
            case TablePart() as part:
                where = f"{part.endpoint}: {part.database}.{part.table}"
            case ChangesPart() as part:
                where = f"changes of {part.database}.{part.table} ({part.endpoint or part.path})"
            case FilePart() as part:
                where = part.path
            case part:
                where = f"{part.endpoint}: a query"
        more = f" and {len(self.parts) - 1:,} more" if len(self.parts) > 1 else ""
        return f"{self.name} ({where}{more})"


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """From ``start`` (inclusive) to ``end`` (exclusive), UTC."""

    start: datetime
    end: datetime

    def __str__(self) -> str:
        return f"[{self.start:%Y-%m-%d %H:%M:%S}, {self.end:%Y-%m-%d %H:%M:%S})"


class Class(StrEnum):
    """What became of a key that did not match at first sight. Keys that match are counted, not kept."""

    VALUE_MISMATCH = "value mismatch"
    MISSING_ON_SOURCE = "missing on source"
    MISSING_ON_TARGET = "missing on target"
    DUPLICATE = "duplicate"
    VIOLATION = "violation"  # of a rule over one dataset: an illegal transition, a gap, a row that must not be
    PENDING = "pending"  # within the settle time, or not yet read often enough
    LATE_MATCHED = "late then matched"
    KNOWN_EXCEPTION = "known exception"


MISMATCHES = frozenset(
    {Class.VALUE_MISMATCH, Class.MISSING_ON_SOURCE, Class.MISSING_ON_TARGET, Class.DUPLICATE, Class.VIOLATION}
)
"""Classes that make a verdict MISMATCH."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """One column or measure of a finding: canonical texts of both sides, None for NULL or for a side without the row.

    ``kind`` is the class of the difference (``precision``, ``case``, ``null`` ...), known even where the values are
    ``masked``; both texts are None then.
    """

    column: str
    source: str | None
    target: str | None
    kind: str = ""
    masked: bool = False


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """One key that did not match, and what became of it.

    ``of`` is the class it would have without the settle time, the re-reads or the exception list. ``money`` is what is
    at risk in ``currency``, exactly, never negative; None where the rule has no money column or the value is not known.
    ``also`` are further amounts, each in a currency of its own: where the currencies differ, both amounts are at risk.
    ``counts`` are rows of this key on each side. ``reads`` is how often it was read, ``at`` when last (Unix time).
    """

    rule: str
    key: KeyText
    kind: Class
    of: Class
    message: str
    deviations: tuple[Deviation, ...] = ()
    money: Decimal | None = None
    currency: str | None = None
    counts: tuple[int, int] = (0, 0)
    window: Window | None = None
    reads: int = 1
    at: float = 0.0
    shard: str = ""
    reason: str = ""
    also: tuple[tuple[str, Decimal], ...] = ()


@dataclass(frozen=True, slots=True)
class CoveredWindows:
    """What was read: "0 findings" comes with it. Rows and keys are counts; ``matched`` keys that agreed.

    ``crossed`` are those of the matched keys that agreed across the border of their window: the counterpart lies in a
    neighbor window, within the settle time.
    """

    rows_source: int = 0
    rows_target: int = 0
    matched: int = 0
    groups: int = 0
    events: int = 0
    crossed: int = 0

    def __add__(self, other: CoveredWindows) -> CoveredWindows:
        return CoveredWindows(
            self.rows_source + other.rows_source, self.rows_target + other.rows_target, self.matched + other.matched,
            self.groups + other.groups, self.events + other.events, self.crossed + other.crossed,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The end of one rule in one window.

    ``counts`` are findings by class, ``money`` (class, currency) -> sum at risk. ``gaps`` are those of the ``reasons``
    that say what was not read or is not known: with one, the verdict is no MATCH, also where findings are there.
    """

    rule: str
    window: Window | None
    verdict: Verdict
    reasons: tuple[str, ...]
    covered: CoveredWindows
    counts: dict[Class, int]
    money: dict[tuple[Class, str], Decimal]
    snapshots: tuple[ReadSnapshot, ...]
    seconds: float
    unexplained: dict[str, Decimal] = field(default_factory=dict)
    gaps: tuple[str, ...] = ()
