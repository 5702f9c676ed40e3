"""The nouns of what a capture asks of tables, rows and transactions: frozen, typed, without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MOST_REJECTED = 0.01
"""Share of a log's bytes that a capture may have failed to read: beyond it, rates are not known."""


@dataclass(frozen=True, slots=True)
class Frequency:
    """How often something happens: in all, a second on the average, and a second in the busiest stretch of time."""

    count: int = 0
    mean: float = 0.0
    peak: float = 0.0

    def __add__(self, other: Frequency) -> Frequency:
        """Return both together, as if their busiest stretches were the same."""
        return Frequency(self.count + other.count, self.mean + other.mean, self.peak + other.peak)


@dataclass(frozen=True, slots=True)
class TableLoad:
    """What is asked of one table.

    ``reads`` and ``changes`` (UPDATE, DELETE, REPLACE, upserts) count statements, ``inserts`` rows, ``upserts`` rows of
    which some may be new, ``written`` all statements that write to it. ``uncounted`` are INSERT statements whose rows
    or time the capture does not tell. ``ascending`` is, by column, the share of pairs of inserted values of which the
    later one is the larger: 1 for ids in the order of time, a half for random ones.
    """

    reads: Frequency = field(default_factory=Frequency)
    inserts: Frequency = field(default_factory=Frequency)
    changes: Frequency = field(default_factory=Frequency)
    upserts: Frequency = field(default_factory=Frequency)
    uncounted: int = 0
    ascending: Mapping[str, float] = field(default_factory=dict)
    written: int = 0


@dataclass(frozen=True, slots=True)
class KeyLoad:
    """Statements that change or lock one row; ``writes`` are at least so many."""

    table: str
    key: str
    writes: Frequency


@dataclass(frozen=True, slots=True)
class TransactionLoad:
    """A transaction that writes, or a row of a statement. ``bytes`` is the length of what its writes say."""

    origin: str = ""
    seconds: float = 0.0
    statements: int = 0
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class CaptureLoad:
    """What a capture asks for. Tables are ``database.table`` of the source in lower case.

    ``rejected_share`` is the share of the log's bytes that could not be read, 0 to 1. ``seconds`` is the time that it
    covers, 1 at least, ``stretch`` the seconds that a peak lasts. ``elsewhere`` are rows written to unknown tables, by
    ``unnamed`` statements. ``longest``, ``most`` (statements) and ``largest`` (bytes) are transactions, ``widest`` is
    a row. ``missed`` is how often a key that is not among ``keys`` may have been written.
    """

    formats: tuple[str, ...] = ()
    masked: bool = False
    rejected_share: float = 0.0
    statements: int = 0
    seconds: float = 1.0
    stretch: float = 1.0
    tables: Mapping[str, TableLoad] = field(default_factory=dict)
    keys: tuple[KeyLoad, ...] = ()
    elsewhere: Frequency = field(default_factory=Frequency)
    unnamed: int = 0
    longest: TransactionLoad = field(default_factory=TransactionLoad)
    most: TransactionLoad = field(default_factory=TransactionLoad)
    largest: TransactionLoad = field(default_factory=TransactionLoad)
    widest: TransactionLoad = field(default_factory=TransactionLoad)
    missed: int = 0
