"""Makes answers, observations and judged statements for tests of replay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from migverify.workload.meaning import Meaning, Meanings
from migverify.workload.replay.compare import judge
from migverify.workload.replay.model import (
    Answer,
    AnswerColumn,
    Call,
    Captured,
    Cell,
    JudgedCall,
    Observation,
    TimedAnswer,
)
from migverify.workload.replay.reader import RowSums
from migverify.workload.state import SessionState

INT, DECIMAL, FLOAT, DOUBLE, DATETIME, TIME, JSON, TEXT, BLOB, BIT = 3, 246, 4, 5, 12, 11, 245, 253, 252, 16
KEYS = {"t": [["id"]]}
Row = tuple[Cell, ...]
_meanings = Meanings("mysql", unique_keys=KEYS)


def checksums(rows: Iterable[Sequence[Cell]]) -> tuple[bytes, int]:
    sums = RowSums(rows)
    return sums.ordered, sums.unordered


def column(name: str, code: int = TEXT, **changes: int) -> AnswerColumn:
    """Make a column; text in utf8mb4, everything else binary."""
    charset = changes.pop("charset", 255 if code in (TEXT, JSON) else 63)
    parts = {"length": 20, "flags": 0, "decimals": 0} | changes
    return AnswerColumn(name.encode(), name.encode(), b"t", code, charset, **parts)


def answer(columns: Sequence[AnswerColumn], rows: Sequence[Row], *, keep: bool = True) -> Answer:
    """Make an answer with rows; ``keep`` False drops them, as a reader does with too many."""
    ordered, unordered = checksums(rows)
    kept = tuple(rows) if keep else None
    return Answer(columns=tuple(columns), rows=kept, row_count=len(rows), ordered=ordered, unordered=unordered)


def failed(errno: int, message: str = "no") -> Answer:
    """Make an answer that is an error."""
    return Answer(errno=errno, sqlstate="HY000", message=message, rows=())


def meaning(sql: str) -> Meaning:
    """Return the meaning of a statement on tables whose key is ``t(id)``."""
    return _meanings.meaning(sql.encode())


def asked(one: Answer, *, begun: int = 0, ended: int = 1_000_000) -> TimedAnswer:
    """Make an answer that took a millisecond."""
    return TimedAnswer(one, 0, begun, ended)


def observe(
    sql: str,
    source: Sequence[Answer] | Answer,
    target: Sequence[Answer] | Answer,
    captured: Captured | None = None,
    **changes: object,
) -> Observation:
    """Make an observation; several answers of a side are repeats."""
    moment = 1_000_000
    digest, told = meaning(sql).digest, captured or Captured(0)
    call = Call("s1", 1, sql.encode(), digest, SessionState(), told, start=moment, clock=moment)
    ours = [source] if isinstance(source, Answer) else source
    theirs = [target] if isinstance(target, Answer) else target
    return Observation(call, tuple(map(asked, ours)), tuple(map(asked, theirs)), **changes)  # type: ignore[arg-type]


def judged(
    sql: str,
    source: Sequence[Answer] | Answer,
    target: Sequence[Answer] | Answer,
    *,
    mask: bool = False,
    **changes: object,
) -> JudgedCall:
    """Judge both sides' answers to one statement."""
    return judge(observe(sql, source, target, **changes), meaning(sql), mask=mask)  # type: ignore[arg-type]
