"""The nouns of the recon road: rules, datasets, windows and findings; frozen, typed, without I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeAlias

from migverify.db.snapshot import Anchor
from migverify.model import KeyText, Verdict


class Kind(StrEnum):
    """What a rule asks."""

    SAME_ROWS = "same_rows"
    SAME_GROUPS = "same_groups"
    ZERO_SUM = "zero_sum"
    BALANCE = "balance"
    TRANSITIONS = "transitions"
    ORPHANS = "orphans"
    UNIQUE = "unique"
    SEQUENCE = "sequence"
    FRESHNESS = "freshness"
    COVERAGE = "coverage"
    NO_ROWS = "no_rows"
    EXPECTATIONS = "expectations"


class Severity(StrEnum):
    """What a finding means. A finding of ``warning`` is reported and does not make the verdict a MISMATCH."""

    CRITICAL = "critical"
    MAJOR = "major"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in a rules file; ``line`` counts from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


ParameterValue: TypeAlias = int | Decimal | str | date | datetime
"""A bound value; datetimes are naive and mean UTC."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A typed parameter of the SQL of datasets, written ``:name`` there.

    ``type`` is ``integer``, ``decimal``, ``text``, ``date`` or ``datetime``. ``default`` None: it must be given.
    ``window_start`` and ``window_end`` exist in every windowed rule and are datetimes.
    """

    name: str
    type: str
    default: ParameterValue | None
    place: Place


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
    """Row changes of one table, from an endpoint's binlog or from archived or copied binlog files.

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
    ``by_shard`` holds, per shard that has other columns than most, all columns of that shard.
    """

    name: str
    parts: tuple[Part, ...]
    place: Place
    columns: tuple[tuple[str, str], ...] = ()
    values: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    key: tuple[str, ...] = ()
    time: str | None = None
    static: bool = False
    by_shard: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()

    def columns_of(self, part: Part) -> tuple[tuple[str, str], ...]:
        """Return the columns of a part: those of its shard, where it has its own."""
        return dict(self.by_shard).get(part.shard, self.columns)


@dataclass(frozen=True, slots=True)
class Money:
    """Which column is money: ``column`` names it, ``currency`` the column of its currency, or a constant in quotes."""

    column: str
    currency: str

    @property
    def constant(self) -> str | None:
        """The currency where it is the same for all rows."""
        quoted = len(self.currency) > 1 and self.currency[0] == self.currency[-1] == "'"
        return self.currency[1:-1] if quoted else None


@dataclass(frozen=True, slots=True)
class Measure:
    """One aggregate of a group: ``function`` is count, sum, min, max or checksum, over a column (None for count)."""

    function: str
    column: str | None

    def __str__(self) -> str:
        return f"{self.function}({self.column or '*'})"


@dataclass(frozen=True, slots=True)
class WindowRule:
    """How time is cut: windows of ``seconds`` from ``start`` on (UTC).

    ``immutable`` seconds after its end a window that matched is not read again.
    """

    seconds: float
    start: datetime | None = None
    immutable: float | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. ``options`` holds what only its kind has; the keys are those of ``recon.document``.

    ``source`` and ``target`` name datasets; ``target`` is None where a kind looks at one only. ``tolerance`` maps a
    column or measure to the largest absolute difference that counts as equal. ``settle`` is None where no dataset is
    live. ``rereads`` is how many more times a difference must be read, ``delay`` seconds apart, before it is a
    mismatch.
    """

    name: str
    kind: Kind
    source: str
    target: str | None
    place: Place
    key: tuple[str, ...] = ()
    compare: tuple[str, ...] = ()
    tolerance: tuple[tuple[str, Decimal], ...] = ()
    settle: float | None = None
    severity: Severity = Severity.CRITICAL
    owner: str = ""
    money: Money | None = None
    window: WindowRule | None = None
    rereads: int = 2
    delay: float = 1.0
    description: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def cut(self) -> tuple[bool, bool]:
        """Whether windows cut the source and the target.

        Parents, and what references are looked up in, are read whole: they may be older than the window of a child.
        """
        if self.kind is Kind.ORPHANS:
            return bool(self.options.get("both")), True
        return True, self.kind is not Kind.COVERAGE


@dataclass(frozen=True, slots=True)
class KnownException:
    """A finding that somebody answers for: the rule, the key (None: every key), and until when (UTC, exclusive)."""

    rule: str
    key: KeyText | None
    owner: str
    reason: str
    expires: datetime
    place: Place


@dataclass(frozen=True, slots=True)
class RuleSet:
    """A rules file, or a folder of them. ``digest`` is a hash of everything that decides an outcome."""

    path: str
    rules: tuple[Rule, ...]
    datasets: dict[str, Dataset]
    parameters: dict[str, Parameter]
    exceptions: tuple[KnownException, ...]
    digest: str


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

    ``kind`` is the class of the difference (``precision``, ``case``, ``null`` ...), told even where the values are
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
class Covered:
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

    def __add__(self, other: Covered) -> Covered:
        return Covered(
            self.rows_source + other.rows_source, self.rows_target + other.rows_target, self.matched + other.matched,
            self.groups + other.groups, self.events + other.events, self.crossed + other.crossed,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The end of one rule in one window.

    ``counts`` are findings by class, ``money`` (class, currency) -> sum at risk. ``gaps`` are those of the ``reasons``
    that tell what was not read or could not be told: with one, the verdict is no MATCH, whatever is found.
    """

    rule: str
    window: Window | None
    verdict: Verdict
    reasons: tuple[str, ...]
    covered: Covered
    counts: dict[Class, int]
    money: dict[tuple[Class, str], Decimal]
    anchors: tuple[Anchor, ...]
    seconds: float
    unexplained: dict[str, Decimal] = field(default_factory=dict)
    volume: dict[str, Decimal] = field(default_factory=dict)
    gaps: tuple[str, ...] = ()
