"""Nouns of conflicts: a message, a statement seen, the two parties, causes, the explanation.

Times are Unix microseconds. A TSO is TiDB's timestamp: milliseconds << 18, and a counter in the low 18 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from migverify.workload.conflict.keys import TidbKey
from migverify.workload.model import text_of

LATEST = (1 << 64) - 1
"""Not a time: an autocommit read of one row by its key reads the newest version."""
_LOGICAL_BITS = 18
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def tso_time(tso: int) -> int:
    """Return a TSO's time in Unix microseconds; its counter orders inside of a millisecond and is no time."""
    return (tso >> _LOGICAL_BITS) * 1000


def time_text(moment: int) -> str:
    """Return a time as text in UTC, with microseconds where it has them."""
    return (_EPOCH + timedelta(microseconds=moment)).strftime("%Y-%m-%d %H:%M:%S.%f").removesuffix("000") + "Z"


def span_text(length: int) -> str:
    """Return a length of time as text."""
    return f"{length / 1e6:.3f} s" if abs(length) >= 1_000_000 else f"{length / 1000:g} ms"


class ConflictKind(StrEnum):
    """What happened."""

    WRITE = "write conflict"
    READ = "read met a lock"
    WAIT = "write met a lock"
    LOST = "commit lost its locks"
    REFUSED = "locking read cannot be retried"
    SCHEMA = "schema changed"
    UNIQUENESS = "lazy uniqueness check failed"


@dataclass(frozen=True, slots=True)
class TransactionConflict:
    """What one message, or one line of a log, tells; what it does not tell is None or empty.

    ``start`` is the TSO of the transaction that failed or waited; ``other_start`` and ``other_commit`` those of the
    one it met. ``session``, ``at``, ``sql``, ``user`` come from a log. ``waited`` is in microseconds.
    """

    kind: ConflictKind
    code: int | None = None
    text: str = ""
    where: str = ""
    start: int | None = None
    other_start: int | None = None
    other_commit: int | None = None
    key: TidbKey | None = None
    primary: TidbKey | None = None
    reason: str = ""
    session: str = ""
    at: int | None = None
    sql: str = ""
    user: str = ""
    waited: int | None = None
    backoffs: tuple[str, ...] = ()
    seen: SeenStatement | None = None


@dataclass(frozen=True, slots=True)
class SeenStatement:
    """One statement that a slow log or a capture shows.

    ``begin`` and ``end`` are the server's: when it took the statement and when it answered. ``txn`` is the start TSO
    of its transaction where the format tells it. ``explicit`` is None where it is not known. ``waited`` is the time
    spent on locks of others, ``backoffs`` the kinds of waiting.
    """

    where: str
    session: str
    begin: int | None
    end: int | None
    sql: bytes
    user: str = ""
    host: str = ""
    database: str = ""
    txn: int | None = None
    ok: bool | None = None
    errno: int | None = None
    internal: bool = False
    explicit: bool | None = None
    previous: str = ""
    write_keys: int = 0
    retries: int = 0
    waited: int = 0
    backoffs: tuple[str, ...] = ()
    program: str = ""


@dataclass(frozen=True, slots=True)
class Party:
    """One of the two transactions. ``found`` says by what it was found, empty when no log or capture shows it.

    ``statement`` is the one that wrote or read the key's table; ``ended`` the one that ended the transaction, where
    that is another.
    """

    start: int | None = None
    commit: int | None = None
    session: str = ""
    user: str = ""
    host: str = ""
    statement: SeenStatement | None = None
    ended: SeenStatement | None = None
    found: str = ""
    known_sql: str = ""

    @property
    def sql(self) -> str:
        """The statement's text, as far as it is known."""
        return text_of(self.statement.sql) if self.statement else self.known_sql


class EvidenceState(StrEnum):
    """What the evidence says of one possible cause."""

    SHOWN = "shown"
    POSSIBLE = "possible"
    EXCLUDED = "excluded"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One possible hidden writer: what speaks for it or against it, and what would settle it."""

    cause: str
    hold: EvidenceState
    evidence: tuple[str, ...] = ()
    confirm: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A conflict explained. ``cause`` is ``UNKNOWN`` where the evidence does not decide.

    ``overlap`` is (begin, end): the time in which both were at it, None where it is not known.
    """

    conflict: TransactionConflict
    ours: Party
    other: Party
    cause: str
    candidates: tuple[Candidate, ...]
    remedy: str
    overlap: tuple[int, int] | None = None
    story: tuple[str, ...] = ()
    missing: tuple[str, ...] = field(default=())
