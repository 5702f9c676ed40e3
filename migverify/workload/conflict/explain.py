"""A conflict and the statements seen -> both parties, their overlap, the hidden writer with the evidence for it.

A cause is named only where the evidence shows it; what is only possible is listed with what would confirm it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from migverify.workload.conflict.causes import CAUSES, REMEDY_UNKNOWN, UNKNOWN
from migverify.workload.conflict.evidence import ConflictCase, judge, schema_changes
from migverify.workload.conflict.model import (
    LATEST,
    Candidate,
    ConflictKind,
    EvidenceState,
    Explanation,
    Party,
    SeenStatement,
    TransactionConflict,
    span_text,
    time_text,
    tso_time,
)
from migverify.workload.conflict.transactions import Statements, Transaction

SKEW = 20_000
"""Microseconds by which the clock of a capture and TiDB's may differ."""
_GUESSED = "table and time"
_LOOK_BACK = 60_000_000


def explain(
    conflict: TransactionConflict, statements: Statements, *, replicators: Collection[str] = (), skew: int = SKEW
) -> Explanation:
    """Return what is known of one conflict.

    Parameters
    ----------
    statements
        What logs and captures show around it; may be empty.
    replicators
        Users that replicate, beside the tools known by name.
    skew
        Microseconds by which the clocks of the evidence and of TiDB may differ.
    """
    table = conflict.key.table if conflict.key else ""
    ours, mine = _ours(conflict, statements, table, skew)
    others = _others(conflict, statements, table, ours, mine, skew)
    other = Party(conflict.other_start, conflict.other_commit)
    theirs = others[0][0] if len(others) == 1 else None
    if theirs is not None:
        other = _party(theirs, _shared(ours, theirs, statements, table), others[0][1])
        other = replace(other, start=conflict.other_start or theirs.start, commit=conflict.other_commit)
    overlap = _overlap(conflict, ours, other)
    candidates = judge(ConflictCase(conflict, ours, other, mine, theirs, statements, replicators))
    cause = _decide(candidates)
    missing = _missing(ours, other, [one for one, _ in others] if len(others) > 1 else [])
    return Explanation(
        conflict, ours, other, cause, candidates, CAUSES[cause].remedy if cause in CAUSES else REMEDY_UNKNOWN, overlap,
        _story(conflict, ours, other, overlap), missing,
    )  # fmt: skip


def _decide(candidates: tuple[Candidate, ...]) -> str:
    """Return the most telling cause that is shown; a more telling one with some evidence for it leaves it open."""
    for name in CAUSES:
        found = next(one for one in candidates if one.cause == name)
        if found.hold is EvidenceState.SHOWN:
            return name
        if found.hold is EvidenceState.POSSIBLE and found.evidence:
            return UNKNOWN
    return UNKNOWN


def _ours(
    conflict: TransactionConflict, statements: Statements, table: str, skew: int
) -> tuple[Party, Transaction | None]:
    bare = Party(conflict.start, None, conflict.session, conflict.user, known_sql=conflict.sql)
    if conflict.seen is not None:
        seen = conflict.seen
        mine = next((one for one in statements.transactions if seen in one.statements), None)
        return Party(seen.txn, None, seen.session, seen.user, seen.host, seen, None, "the record itself"), mine
    mine = statements.of_start(conflict.start)
    if mine is not None:
        party = _party(mine, statements.touches(mine, table, writing=conflict.kind is not ConflictKind.READ),
                       "Txn_start_ts")  # fmt: skip
        return replace(party, start=conflict.start), mine
    if conflict.start is None or conflict.start == LATEST:
        return bare, None
    found = statements.by_time(conflict.start, None, table, skew)
    failed = [one for one in found if any(seen.errno == conflict.code for seen in one.statements)]
    if len(failed or found) == 1:
        mine = (failed or found)[0]
        how = "times and error" if failed else "times and table"
        return replace(_party(mine, statements.touches(mine, table), how), start=conflict.start), mine
    return bare, None


def _others(
    conflict: TransactionConflict, statements: Statements, table: str, ours: Party, mine: Transaction | None, skew: int
) -> list[tuple[Transaction, str]]:
    """Return the transactions that can be the other one; several are several suspects, none of them named."""
    if conflict.other_start is not None:
        known = statements.of_start(conflict.other_start)
        if known is not None:
            return [(known, "Txn_start_ts")]
        found = statements.by_time(conflict.other_start, conflict.other_commit, table, skew)
        return [(one, "times and table") for one in found if one is not mine]
    if conflict.kind is ConflictKind.SCHEMA:
        changes = schema_changes(conflict, statements)
        return [(one, "schema change in that time") for one in statements.transactions
                if any(seen in changes for seen in one.statements)]  # fmt: skip
    if (
        conflict.kind not in (ConflictKind.READ, ConflictKind.WAIT)
        or ours.statement is None
        or ours.statement.begin is None
    ):
        return []
    return [(one, _GUESSED) for one in _writers_before(ours.statement, statements, mine)]


def _writers_before(reader: SeenStatement, statements: Statements, mine: Transaction | None) -> list[Transaction]:
    """Return writers on the reader's tables whose commit can have held locks while it ran.

    Those that were under way, or else the last that ended before it.
    """
    if reader.begin is None or reader.end is None:
        return []
    tables = statements.tables(reader) or ()
    ended: list[Transaction] = []
    running: list[Transaction] = []
    for one in statements.transactions:
        begin, end = one.begin, one.end
        if one is mine or begin is None or end is None or begin > reader.end or end < reader.begin - _LOOK_BACK:
            continue
        last = one.statements[-1].begin
        if last is not None and last > reader.end:
            continue  # it is the commit that sets locks a read waits for
        if not any(statements.touches(one, table) for table in tables) or not _committed(one, statements):
            continue
        (ended if end <= reader.begin else running).append(one)
    newest = max(ended, key=lambda one: one.end or 0, default=None)
    return [*running, *([newest] if newest is not None and not running else [])]


def _committed(one: Transaction, statements: Statements) -> bool:
    """Tell whether a transaction can have prewritten: it wrote keys, or nothing says that it did not."""
    if any(seen.write_keys for seen in one.statements):
        return True
    words = statements.meaning(one.statements[-1]).classification.words
    return words[:1] != ("ROLLBACK",) and (not one.explicit or words[:1] == ("COMMIT",))


def _shared(ours: Party, theirs: Transaction, statements: Statements, table: str) -> SeenStatement | None:
    """Return the other's statement that wrote where ours was."""
    if table or ours.statement is None:
        return statements.touches(theirs, table)
    tables = statements.tables(ours.statement) or ()
    found = (statements.touches(theirs, one) for one in tables)
    return next((one for one in found if one is not None), None) or statements.touches(theirs, "")


def _party(one: Transaction, statement: SeenStatement | None, found: str) -> Party:
    last = one.statements[-1]
    statement = statement or last
    return Party(
        one.start, None, one.session, last.user, last.host, statement, last if last is not statement else None, found
    )


def _overlap(conflict: TransactionConflict, ours: Party, other: Party) -> tuple[int, int] | None:
    """Return the time in which both were under way, as far as the evidence tells it."""
    begin = _begin(ours)
    theirs = _begin(other)
    end = tso_time(conflict.other_commit) if conflict.other_commit else None
    if end is None and conflict.kind in (ConflictKind.READ, ConflictKind.WAIT):
        # locks may outlive the writer's answer: the reader's wait is what is certain
        end = ours.statement.end if ours.statement is not None else None
        if end is None and conflict.at is not None:
            end = conflict.at
    if begin is None or theirs is None or end is None:
        return None
    return max(begin, theirs), max(end, begin, theirs)


def _begin(party: Party) -> int | None:
    if party.start is not None and party.start != LATEST:
        return tso_time(party.start)
    return party.statement.begin if party.statement is not None else None


def _story(
    conflict: TransactionConflict, ours: Party, other: Party, overlap: tuple[int, int] | None
) -> tuple[str, ...]:
    sentences = []
    begin, theirs = _begin(ours), _begin(other)
    if begin is not None and theirs is not None:
        apart = begin - theirs
        sentences.append(
            f"The other transaction began {span_text(apart)} before ours: it was unfinished when ours began."
            if apart > 0
            else f"Ours began {span_text(-apart)} before the other transaction: ours was open all the time."
            if apart < 0
            else "Both began in the same millisecond."
        )
    if conflict.other_commit and conflict.other_start:
        took = tso_time(conflict.other_commit) - tso_time(conflict.other_start)
        sentences.append(f"The other one needed {span_text(took)} from its start to its commit.")
    if overlap is not None:
        sentences.append(
            f"Both were under way from {time_text(overlap[0])} to {time_text(overlap[1])}:"
            f" {span_text(overlap[1] - overlap[0])}."
        )
    elif begin is not None and conflict.other_start is None and conflict.kind is ConflictKind.WRITE:
        sentences.append("The message does not name the other transaction.")
    if other.found == _GUESSED:
        sentences.append(
            "The log does not name the lock's owner: this is the one writer of the table under way, or the last."
        )
    if conflict.waited:
        sentences.append(f"Waiting for locks and resolving them took {span_text(conflict.waited)}.")
    return tuple(sentences)


def _missing(ours: Party, other: Party, several: list[Transaction]) -> tuple[str, ...]:
    found = []
    if ours.statement is None and not ours.known_sql:
        found.append("our statement: no log or capture given shows it")
    if several:
        names = ", ".join(sorted({one.session for one in several})[:10])
        found.append(f"the other statement: {len(several)} transactions fit by table and time (sessions {names})")
    elif other.statement is None:
        found.append("the other statement: no log or capture given shows it")
    return tuple(found)


def unknown(explanation: Explanation) -> bool:
    """Tell whether the evidence did not decide."""
    return explanation.cause == UNKNOWN
