"""The nouns of anomalies: a history of transactions, their dependencies, and what a cycle of them is called.

The definitions are those of A. Adya, B. Liskov, P. O'Neil, "Generalized Isolation Level Definitions" (ICDE 2000). How
versions are found from values, and what may not be concluded, follows K. Kingsbury, P. Alvaro, "Elle: Inferring
Isolation Anomalies from Experimental Observations" (VLDB 2020), for registers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, TypeAlias


class Commitment(StrEnum):
    """How a transaction ended; ``unknown``: the connection was lost, or the history ends before it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class OperationKind(StrEnum):
    """What an operation does with an item."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class HistoryOperation:
    """A read or a write of one item by one statement.

    Parameters
    ----------
    key
        The item, as ``table/key`` or ``table/key/column``. A write of ``table/*`` may have written any item of the
        table, one of ``*`` any item at all; what they wrote is not known.
    value
        What was read or written as text; None: no row was there, or it was deleted.
    known
        Whether ``value`` is known. A write whose value the statement does not show (``SET n = m``) is not.
    delta
        What a write adds to the integer that the item has before it (``SET n = n + 1``); None for other operations.
    version
        The place of the version among those of the item, where the application counts them (0: before the history);
        None where the value must tell.
    begin, end
        When the statement was sent and answered.
    """

    kind: OperationKind
    key: str
    value: str | None
    begin: int
    end: int
    known: bool = True
    version: int | None = None
    statement: str = ""
    delta: int | None = None


@dataclass(frozen=True, slots=True)
class HistoryTransaction:
    """A transaction of one session. ``commit`` is when what ended it was sent, ``end`` when that was answered.

    Times are whole numbers of one clock, in any unit. ``name`` is the same on both sides of a replay.
    """

    name: str
    session: str
    isolation: str
    outcome: Commitment
    begin: int
    commit: int
    end: int
    operations: tuple[HistoryOperation, ...]


@dataclass(frozen=True, slots=True)
class TransactionHistory:
    """The transactions of one server. ``initial`` are values from before the history, where they are known.

    ``run`` is the id of the replay that recorded it, ``side`` the side of the pair that it is of, ``identity`` which
    server that was; each is empty where the file does not say.
    """

    transactions: tuple[HistoryTransaction, ...]
    initial: Mapping[str, str | None] = field(default_factory=dict)
    server: str = ""
    run: str = ""
    side: str = ""
    identity: str = ""


class DependencyKind(IntEnum):
    """Adya's direct dependencies: the second transaction overwrites, reads, or overwrites what the first has read."""

    WW = 0
    WR = 1
    RW = 2

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Dependency:
    """One transaction depends on another by an item. ``absent``: the first had read that there is no row."""

    before: int
    after: int
    kind: DependencyKind
    key: str
    absent: bool = False


Cycle: TypeAlias = tuple[Dependency, ...]
"""Dependencies, each of which begins where the one before it ends."""


class Phenomenon(StrEnum):
    """Adya's phenomena, in the order of the levels that forbid them."""

    G0 = "G0"
    G1A = "G1a"
    G1B = "G1b"
    G1C = "G1c"
    G_SINGLE = "G-single"
    G2_ITEM = "G2-item"


class AnomalyName(StrEnum):
    """What the field calls them."""

    DIRTY_WRITE = "dirty write"
    ABORTED_READ = "aborted read"
    INTERMEDIATE_READ = "intermediate read"
    CIRCULAR = "circular information flow"
    LOST_UPDATE = "lost update"
    NON_REPEATABLE = "non-repeatable read"
    READ_SKEW = "read skew"
    WRITE_SKEW = "write skew"
    LONG_FORK = "long fork"
    PHANTOM = "phantom"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """What a server permitted: transactions by name, the levels they ran under, and why it is one.

    ``steps`` say in words what follows from what, ``statements`` are (transaction, statement).
    """

    phenomenon: Phenomenon
    name: AnomalyName
    transactions: tuple[str, ...]
    isolation: tuple[str, ...]
    steps: tuple[str, ...]
    statements: tuple[tuple[str, str], ...]

    @property
    def identity(self) -> tuple[AnomalyName, frozenset[str]]:
        """What makes it the same anomaly on another server."""
        return self.name, frozenset(self.transactions)

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "phenomenon": self.phenomenon.value, "name": self.name.value, "transactions": list(self.transactions),
            "isolation": list(self.isolation), "steps": list(self.steps),
            "statements": [{"transaction": name, "statement": text} for name, text in self.statements],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class AmbiguityCause:
    """A statement, as its digest's text, that writes unknown values to a table (``*``: any); ``reads`` it spoils."""

    table: str
    statement: str
    reads: int


@dataclass(frozen=True, slots=True)
class Usability:
    """How much of a history could be used.

    ``reads`` are those of committed transactions that are not of their own writes; ``ambiguous`` counts, by reason,
    those whose version is not known: they make no dependency. ``causes`` are the writes of unknown value behind them,
    those of most reads first; each read counts for the earliest of its own.

    ``unordered`` are pairs of neighboring versions whose order no time and no read proves.
    """

    transactions: int = 0
    committed: int = 0
    aborted: int = 0
    unknown: int = 0
    reads: int = 0
    usable: int = 0
    writes: int = 0
    opaque: int = 0
    unordered: int = 0
    dependencies: int = 0
    ambiguous: Mapping[str, int] = field(default_factory=Counter)
    doubtful: frozenset[str] = frozenset()  # transactions with an ambiguous read, or of unknown outcome
    causes: tuple[AmbiguityCause, ...] = ()

    @property
    def share(self) -> float:
        """The share of reads that could be used; 0 where there was none."""
        return self.usable / self.reads if self.reads else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        names = ("transactions", "committed", "aborted", "unknown", "reads", "usable", "writes", "opaque", "unordered",
                 "dependencies")  # fmt: skip
        return {name: getattr(self, name) for name in names} | {
            "share": round(self.share, 4), "ambiguous": dict(self.ambiguous),
            "causes": [asdict(one) for one in self.causes],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class CheckedHistory:
    """What a history proves. ``complete`` is False where the search for cycles was cut off."""

    server: str
    anomalies: tuple[Anomaly, ...]
    usability: Usability
    names: frozenset[str]
    complete: bool = True
