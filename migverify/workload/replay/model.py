"""The nouns of replay: what is asked, what came back, what was judged. Frozen, typed, without I/O.

The way of the data: a capture becomes calls in sessions (plan) -> an engine asks them on the source, the target or both
(wire), in order, at their pace -> each observation is judged (compare) -> what was judged is appended to the run's
journal -> the fold of the journal is the tally by digest -> verdict, store, report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from migverify.workload.model import Parameter
from migverify.workload.state import SessionState

Cell: TypeAlias = bytes | None
"""One value of an answer: the text of the text protocol, or the same text made from a binary value; None is NULL."""


@dataclass(frozen=True, slots=True)
class Captured:
    """What the capture tells of the source's answer; None is what its format does not tell."""

    errno: int | None = None
    rows_sent: int | None = None
    rows_affected: int | None = None
    duration: int | None = None
    last_insert_id: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One captured statement as it will be asked.

    ``session`` and ``position`` name it for ever (the capture's). ``digest`` is MySQL's digest of the text. ``start``
    and ``end`` are the captured times, Unix microseconds, None where unknown; ``clock`` the time the session had set.
    ``parameters`` are typed values where the capture had them apart (then ``sql`` holds ``?``). ``partial`` says why
    the statement cannot be asked or judged, empty when it can. ``state`` is what the session had set before it.
    ``assumed`` names what of the state nobody gave and the answer may depend on (``assumed.bearing``); ``note`` says
    what else a reader of its answer must know (a locking clause that was left out).
    """

    session: str
    position: int
    sql: bytes
    digest: str
    state: SessionState
    captured: Captured = Captured()
    start: int | None = None
    end: int | None = None
    clock: int | None = None
    parameters: tuple[Parameter, ...] | None = None
    partial: str = ""
    user: str | None = None
    origin: str = ""  # file:line of the capture
    command: str = "query"
    assumed: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class AnswerColumn:
    """A column of an answer, as the protocol describes it (numbers are the protocol's)."""

    name: bytes
    original: bytes
    table: bytes
    type_code: int
    charset: int
    length: int
    flags: int
    decimals: int


@dataclass(frozen=True, slots=True)
class ServerWarning:
    """One warning."""

    level: str
    code: int
    message: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything a client sees of one statement's end.

    ``unanswered`` says why there is no answer (connection lost, time limit of the client, not sent); then nothing else
    holds, and nothing may be judged as equal. ``errno`` 0 is success. ``columns`` is empty where there is no result
    set. ``rows`` are kept while they fit the limits of the reader; beyond them ``rows`` is None, ``row_count`` is
    still exact and ``ordered`` / ``unordered`` are checksums over all rows' cells (length-framed, NULL apart): of the
    sequence and of the multiset. ``warned`` is None unless requested. ``more`` are further results of one call.
    """

    unanswered: str = ""
    errno: int = 0
    sqlstate: str = ""
    message: str = ""
    columns: tuple[AnswerColumn, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] | None = ()
    row_count: int = 0
    ordered: bytes = b""
    unordered: int = 0
    affected: int = 0
    insert_id: int = 0
    warnings: int = 0
    warned: tuple[ServerWarning, ...] | None = None
    status: int = 0
    info: str = ""
    prepared: bool = False
    more: tuple[Answer, ...] = ()

    @property
    def ok(self) -> bool:
        """Tell whether the server carried it out."""
        return not self.unanswered and self.errno == 0


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """One answer of one side, and when: monotonic nanoseconds of the worker.

    ``intended`` is when the statement was due by its pace; latency is ``ended - intended`` (open loop: time spent
    waiting behind a slow statement counts), service time ``ended - begun``.
    """

    answer: Answer
    intended: int
    begun: int
    ended: int


@dataclass(frozen=True, slots=True)
class Observation:
    """What came back for one call. Reads may be asked more than once a side (noise); the first is the one judged.

    ``source`` is empty when the replay asks the target only: then the captured outcome is the oracle. ``racy`` names
    the session whose overlapping interval on the same key makes the order undefined, empty when none does.
    ``generated`` are ids that the sides generated differently for the session's earlier statements, as texts, each with
    what made it. ``skipped`` says why it was not asked (a write that is not permitted, partial ...).
    """

    call: Call
    source: tuple[TimedAnswer, ...] = ()
    target: tuple[TimedAnswer, ...] = ()
    racy: str = ""
    skipped: str = ""
    generated: Mapping[bytes, str] = field(default_factory=dict)
    stale: bool = False  # re-reads did not settle: the data moved, or the sides do not hold the same data


class Judgement(StrEnum):
    """What is known of one replayed statement."""

    SAME = "same"
    DIFFERENT = "different"
    INDETERMINATE = "indeterminate"  # the text or the moment does not determine the answer; counted and explained
    UNJUDGED = "unjudged"  # not asked, not answered, cannot be judged: never green


class DifferenceSeverity(StrEnum):
    """How much one difference matters."""

    BLOCKER = "blocker"  # works on the source, fails or answers otherwise on the target
    REVIEW = "review"
    METADATA = "metadata"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Difference:
    """One aspect in which two answers differ.

    ``aspect``: error, rows, row-count, order, value, null, float, decimal-scale, json, temporal, columns, type,
    flags, affected-rows, insert-id, warnings, status, latency ... ``source`` and ``target`` are short texts (masked
    where the run masks). ``column`` is the result column's name where it concerns one.
    """

    aspect: str
    severity: DifferenceSeverity
    source: str
    target: str
    column: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class JudgedCall:
    """What the journal keeps of one call. Times are microseconds; None where that side was not asked.

    ``noisy`` says that a side differed from itself (then ``state`` is not DIFFERENT by rows). ``reason`` explains
    INDETERMINATE and UNJUDGED. ``lag`` is how late the call began behind its pace.
    """

    session: str
    position: int
    digest: str
    state: Judgement
    differences: tuple[Difference, ...] = ()
    reason: str = ""
    noisy: str = ""
    source_latency: int | None = None
    target_latency: int | None = None
    source_service: int | None = None
    target_service: int | None = None
    lag: int = 0
    captured_error: bool = False
    written: bool = False
    repeats: int = 1  # how often each side was asked, for the noise rate
    details: dict[str, str] = field(default_factory=dict)
