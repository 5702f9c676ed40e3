"""What speaks for each hidden writer and against it. The most telling cause comes first."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from migverify.workload.classify import StatementKind
from migverify.workload.conflict.causes import CAUSES, REPLICATORS
from migverify.workload.conflict.model import (
    LATEST,
    Candidate,
    ConflictKind,
    EvidenceState,
    Party,
    SeenStatement,
    TransactionConflict,
    span_text,
    time_text,
    tso_time,
)
from migverify.workload.conflict.transactions import Statements, Transaction
from migverify.workload.model import text_of

_SECOND = 1_000_000
_LINGERS = 1_000_000  # clearing locks takes about as long as setting them, or less than this
_ABANDONED = frozenset({1317, 2013, 2006, 1053, 3024, 1969})
_TTL = re.compile(rb"DELETE\s+LOW_PRIORITY\s+FROM", re.IGNORECASE)
_SCHEMA_TABLES = re.compile(rb"\btidb_ddl|\bmysql\W+tidb_mdl", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ConflictCase:
    """One conflict with all that is known of it: both parties, and their transactions where they were found."""

    conflict: TransactionConflict
    ours: Party
    other: Party
    mine: Transaction | None
    theirs: Transaction | None
    statements: Statements
    replicators: Collection[str] = ()

    @property
    def known(self) -> bool:
        """Whether the other statement was found."""
        return self.other.statement is not None

    @property
    def same_session(self) -> bool:
        """Whether both statements are of one session."""
        return self.known and bool(self.ours.session) and self.ours.session == self.other.session


_Judged = tuple[EvidenceState, list[str]]


def judge(case: ConflictCase) -> tuple[Candidate, ...]:
    """Return all candidates, shown ones first, then by how telling they are."""
    found = []
    for name, rule in _RULES.items():
        hold, evidence = rule(case)
        confirm = "" if hold is not EvidenceState.POSSIBLE else CAUSES[name].confirm
        found.append(Candidate(name, hold, tuple(evidence), confirm))
    order = [EvidenceState.SHOWN, EvidenceState.POSSIBLE, EvidenceState.EXCLUDED]
    return tuple(sorted(found, key=lambda one: order.index(one.hold)))


def _ddl(case: ConflictCase) -> _Judged:
    conflict = case.conflict
    if conflict.key is not None and conflict.key.kind == "schema":
        return EvidenceState.SHOWN, [f"the key is one of the schema: {conflict.key}"]
    if case.known and case.theirs is not None and case.theirs.internal and case.other.statement is not None:
        if _SCHEMA_TABLES.search(case.other.statement.sql):
            return EvidenceState.SHOWN, ["the other statement is TiDB's own, on its tables of schema changes"]
        return EvidenceState.EXCLUDED, ["the other statement is internal and no schema change"]
    if case.known and conflict.kind is not ConflictKind.SCHEMA:
        return EvidenceState.EXCLUDED, ["the other statement is a client's"]
    near = schema_changes(conflict, case.statements)
    if near:
        evidence = [f"{one.where}: session {one.session}: {_short(one.sql)}" for one in near[:5]]
        if conflict.kind is ConflictKind.SCHEMA:
            return EvidenceState.SHOWN, [f"error {conflict.code} says that the schema changed", *evidence]
        return EvidenceState.POSSIBLE, evidence
    if conflict.kind is ConflictKind.SCHEMA:
        return EvidenceState.SHOWN, [f"error {conflict.code} says that the schema changed; which change is not shown"]
    return EvidenceState.POSSIBLE, []


def schema_changes(conflict: TransactionConflict, statements: Statements) -> list[SeenStatement]:
    """Return statements that changed the schema (of the key's table, where it is known) in the conflict's time."""
    begin = tso_time(conflict.start) if conflict.start and conflict.start != LATEST else conflict.at
    if begin is None:
        return []
    end = conflict.at or (tso_time(conflict.other_commit) if conflict.other_commit else begin)
    table = conflict.key.table.rpartition(".")[2].lower() if conflict.key else ""
    return [
        one for session in statements.by_session.values() for one in session
        if not one.internal and one.begin is not None and one.end is not None
        and one.begin <= max(end, begin) + _SECOND and one.end >= begin
        and statements.meaning(one).classification.kind is StatementKind.DDL
        and table in one.sql.decode("utf-8", "replace").lower()
    ]  # fmt: skip


def _expired(case: ConflictCase) -> _Judged:
    if case.conflict.kind is not ConflictKind.LOST:
        return EvidenceState.EXCLUDED, ["the error is none of a lock that was lost"]
    if "LockNotFound" in case.conflict.text:
        return EvidenceState.SHOWN, ["the commit found its lock gone (TxnLockNotFound)"]
    return EvidenceState.POSSIBLE, []


def _ttl(case: ConflictCase) -> _Judged:
    if not case.known or case.other.statement is None:
        return EvidenceState.POSSIBLE, []
    if case.other.statement.internal and _TTL.search(case.other.statement.sql):
        return EvidenceState.SHOWN, [
            f"the other statement is an internal TTL delete: {_short(case.other.statement.sql)}"
        ]
    return EvidenceState.EXCLUDED, ["the other statement is no TTL delete"]


def _internal(case: ConflictCase) -> _Judged:
    if case.other.statement is None:
        return EvidenceState.POSSIBLE, []
    if case.other.statement.internal:
        return EvidenceState.SHOWN, ["the slow log says Is_internal: true"]
    return EvidenceState.EXCLUDED, ["the other statement is a client's"]


def _replicator(case: ConflictCase) -> _Judged:
    seen = case.other.statement
    if seen is None:
        return EvidenceState.POSSIBLE, []
    words = set(re.split(r"[^a-z0-9]+", f"{seen.user} {seen.program}".lower()))
    tool = next((one for one in REPLICATORS if one in words or one in (seen.user.lower(), seen.program.lower())), "")
    if seen.user.lower() in {one.lower() for one in case.replicators}:
        return EvidenceState.SHOWN, [f"user {seen.user} was named as a replicator"]
    if tool:
        return EvidenceState.SHOWN, [f"user {seen.user!r}, program {seen.program!r} name a replication tool ({tool})"]
    return EvidenceState.EXCLUDED, [f"user {seen.user!r}, program {seen.program!r} name no replication tool"]


def _own_retry(case: ConflictCase) -> _Judged:
    retried = [one for party in (case.mine, case.theirs) if party for one in party.statements if one.retries]
    if retried and (case.same_session or not case.known):
        evidence = [f"{one.where}: session {one.session}: carried out {one.retries + 1} times" for one in retried]
        return (EvidenceState.SHOWN if case.same_session else EvidenceState.POSSIBLE), evidence
    if case.known and not case.same_session:
        return EvidenceState.EXCLUDED, [f"the other statement is session {case.other.session}'s"]
    if case.known and case.theirs is case.mine:
        return EvidenceState.POSSIBLE, ["both are one transaction"]
    return (EvidenceState.EXCLUDED, ["nothing was retried"]) if case.known else (EvidenceState.POSSIBLE, [])


def _timed_out(case: ConflictCase) -> _Judged:
    ours, theirs, party = case.ours, case.other, case.theirs
    if party is None or theirs.statement is None:
        return EvidenceState.POSSIBLE, []
    if theirs.statement.internal:
        return EvidenceState.EXCLUDED, ["the other statement is TiDB's own"]
    if case.same_session:
        return EvidenceState.EXCLUDED, ["both are of one session, which waits for each answer"]
    last = party.statements[-1]
    begin = _begin(ours)
    if begin is None or last.end is None or last.begin is None:
        return EvidenceState.POSSIBLE, []
    if not last.begin < begin < last.end:
        return EvidenceState.EXCLUDED, [
            f"the other session had its answer at {time_text(last.end)}, ours began at {time_text(begin)}"
            if last.end <= begin
            else "ours began before the other statement"
        ]
    evidence = [
        f"session {theirs.session} was still at {_short(last.sql)} (until {time_text(last.end)}) when ours began at"
        f" {time_text(begin)}"
    ]
    after = case.statements.later(last)
    if after is not None:
        evidence.append(f"session {theirs.session} went on after it, so its client had waited: {_short(after.sql)}")
        return EvidenceState.EXCLUDED, evidence
    evidence.append(f"session {theirs.session} asked nothing after it")
    if last.errno in _ABANDONED:
        return EvidenceState.SHOWN, [*evidence, f"its client ended it: error {last.errno}"]
    same_user = bool(ours.user) and (ours.user, ours.host) == (theirs.user, theirs.host)
    if same_user:
        evidence.append(f"both sessions are {ours.user}@{ours.host}")
    again = bool(_texts(case, ours) & _texts(case, theirs))
    if again:
        evidence.append("ours carries the same statement, word for word: asked again")
    earlier = case.statements.by_session.get(ours.session, [])
    new = bool(earlier) and earlier[0].begin is not None and earlier[0].begin > last.begin
    if new:
        evidence.append(f"session {ours.session} is first seen after that statement had begun: a new connection")
    return (EvidenceState.SHOWN if same_user and again and new else EvidenceState.POSSIBLE), evidence


def _texts(case: ConflictCase, party: Party) -> set[bytes]:
    transaction = case.mine if party is case.ours else case.theirs
    seen = transaction.statements if transaction else ([party.statement] if party.statement else [])
    return {b" ".join(one.sql.split()) for one in seen if case.statements.meaning(one).shape.tables}


def _asynchronous(case: ConflictCase) -> _Judged:
    if case.conflict.kind not in (ConflictKind.READ, ConflictKind.WAIT):
        return EvidenceState.EXCLUDED, ["a write conflict is decided by commit times, not by locks left behind"]
    reader, party = case.ours.statement, case.theirs
    if party is None or reader is None or reader.begin is None or party.end is None:
        return EvidenceState.POSSIBLE, []
    gap = reader.begin - party.end
    if gap < 0:
        return EvidenceState.EXCLUDED, [
            f"the writer had no answer yet when the reader began ({span_text(-gap)} before it)"
        ]
    evidence = [
        f"session {party.session} had its answer {span_text(gap)} before the reader began",
        f"the reader met a lock all the same: {', '.join(case.conflict.backoffs) or 'a lock in the message'},"
        f" {span_text(case.conflict.waited or 0)}",
    ]
    took = party.end - party.begin if party.begin is not None else 0
    if case.conflict.other_start is None and gap > max(_LINGERS, took):
        return EvidenceState.POSSIBLE, evidence
    if case.same_session:
        evidence.append("one session wrote and read: no concurrency in the code")
    return EvidenceState.SHOWN, evidence


def _autocommit(case: ConflictCase) -> _Judged:
    if case.theirs is None or case.other.statement is None:
        return EvidenceState.POSSIBLE, []
    if case.other.statement.internal or case.same_session:
        return EvidenceState.EXCLUDED, ["the other statement is the same session's, or TiDB's own"]
    if case.theirs.explicit is False:
        return EvidenceState.SHOWN, [f"session {case.other.session}: IsExplicitTxn: false"]
    if case.theirs.explicit:
        return EvidenceState.EXCLUDED, ["the other statement is in a transaction"]
    return EvidenceState.POSSIBLE, ["the log does not show whether it was in a transaction"]


def _other_transaction(case: ConflictCase) -> _Judged:
    if case.theirs is None or case.other.statement is None:
        return EvidenceState.POSSIBLE, []
    if case.same_session or case.other.statement.internal or case.theirs.explicit is False:
        return EvidenceState.EXCLUDED, ["the other statement is no transaction of another client"]
    if case.theirs.explicit:
        return EvidenceState.SHOWN, [f"session {case.other.session} had a transaction of its own"]
    return EvidenceState.POSSIBLE, []


def _begin(party: Party) -> int | None:
    if party.statement is not None and party.statement.begin is not None:
        return party.statement.begin
    return tso_time(party.start) if party.start else None


def _short(sql: bytes) -> str:
    text = " ".join(text_of(sql).split())
    return text if len(text) <= 120 else text[:117] + "..."


_RULES: dict[str, Callable[[ConflictCase], _Judged]] = {
    "ddl": _ddl, "expired lock": _expired, "ttl": _ttl, "internal": _internal, "replicator": _replicator,
    "own retry": _own_retry, "timed-out client": _timed_out, "asynchronous commit": _asynchronous,
    "autocommit statement": _autocommit, "other transaction": _other_transaction,
}  # fmt: skip
