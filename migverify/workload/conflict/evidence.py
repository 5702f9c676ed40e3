"""What speaks for each hidden writer and against it. The most telling cause comes first."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from migverify.workload.classify import StatementKind
from migverify.workload.conflict.causes import CAUSES, REPLICATORS
from migverify.workload.conflict.model import (
    LATEST,
    Candidate,
    Conflict,
    Hold,
    Kind,
    Party,
    Seen,
    span_text,
    time_text,
    tso_time,
)
from migverify.workload.conflict.transactions import Statements, Transaction

_SECOND = 1_000_000
_LINGERS = 1_000_000  # clearing locks takes about as long as setting them, or less than this
_ABANDONED = frozenset({1317, 2013, 2006, 1053, 3024, 1969})
_TTL = re.compile(rb"DELETE\s+LOW_PRIORITY\s+FROM", re.IGNORECASE)
_SCHEMA_TABLES = re.compile(rb"\btidb_ddl|\bmysql\W+tidb_mdl", re.IGNORECASE)


class _Case:
    """One conflict with all that is known of it."""

    def __init__(
        self,
        conflict: Conflict,
        ours: Party,
        other: Party,
        mine: Transaction | None,
        theirs: Transaction | None,
        statements: Statements,
        replicators: Collection[str],
    ) -> None:
        self.conflict = conflict
        self.ours = ours
        self.other = other
        self.mine = mine
        self.theirs = theirs
        self.statements = statements
        self.replicators = {one.lower() for one in replicators}

    @property
    def known(self) -> bool:
        return self.other.statement is not None

    @property
    def same_session(self) -> bool:
        return self.known and bool(self.ours.session) and self.ours.session == self.other.session


_Judged = tuple[Hold, list[str]]


def judge(
    conflict: Conflict,
    ours: Party,
    other: Party,
    mine: Transaction | None,
    theirs: Transaction | None,
    statements: Statements,
    replicators: Collection[str] = (),
) -> tuple[Candidate, ...]:
    """Return all candidates, shown ones first, then by how telling they are."""
    case = _Case(conflict, ours, other, mine, theirs, statements, replicators)
    found = []
    for name, rule in _RULES.items():
        hold, evidence = rule(case)
        confirm = "" if hold is not Hold.POSSIBLE else CAUSES[name].confirm
        found.append(Candidate(name, hold, tuple(evidence), confirm))
    order = [Hold.SHOWN, Hold.POSSIBLE, Hold.EXCLUDED]
    return tuple(sorted(found, key=lambda one: order.index(one.hold)))


def _ddl(case: _Case) -> _Judged:
    conflict = case.conflict
    if conflict.key is not None and conflict.key.kind == "schema":
        return Hold.SHOWN, [f"the key is one of the schema: {conflict.key}"]
    if case.known and case.theirs is not None and case.theirs.internal and case.other.statement is not None:
        if _SCHEMA_TABLES.search(case.other.statement.sql):
            return Hold.SHOWN, ["the other statement is TiDB's own, on its tables of schema changes"]
        return Hold.EXCLUDED, ["the other statement is internal and no schema change"]
    if case.known and conflict.kind is not Kind.SCHEMA:
        return Hold.EXCLUDED, ["the other statement is a client's"]
    near = schema_changes(conflict, case.statements)
    if near:
        told = [f"{one.where}: session {one.session}: {_short(one.sql)}" for one in near[:5]]
        if conflict.kind is Kind.SCHEMA:
            return Hold.SHOWN, [f"error {conflict.code} says that the schema changed", *told]
        return Hold.POSSIBLE, told
    if conflict.kind is Kind.SCHEMA:
        return Hold.SHOWN, [f"error {conflict.code} says that the schema changed; which change is not shown"]
    return Hold.POSSIBLE, []


def schema_changes(conflict: Conflict, statements: Statements) -> list[Seen]:
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


def _expired(case: _Case) -> _Judged:
    if case.conflict.kind is not Kind.LOST:
        return Hold.EXCLUDED, ["the error is none of a lock that was lost"]
    if "LockNotFound" in case.conflict.text:
        return Hold.SHOWN, ["the commit found its lock gone (TxnLockNotFound)"]
    return Hold.POSSIBLE, []


def _ttl(case: _Case) -> _Judged:
    if not case.known or case.other.statement is None:
        return Hold.POSSIBLE, []
    if case.other.statement.internal and _TTL.search(case.other.statement.sql):
        return Hold.SHOWN, [f"the other statement is an internal TTL delete: {_short(case.other.statement.sql)}"]
    return Hold.EXCLUDED, ["the other statement is no TTL delete"]


def _internal(case: _Case) -> _Judged:
    if case.other.statement is None:
        return Hold.POSSIBLE, []
    if case.other.statement.internal:
        return Hold.SHOWN, ["the slow log says Is_internal: true"]
    return Hold.EXCLUDED, ["the other statement is a client's"]


def _replicator(case: _Case) -> _Judged:
    seen = case.other.statement
    if seen is None:
        return Hold.POSSIBLE, []
    words = set(re.split(r"[^a-z0-9]+", f"{seen.user} {seen.program}".lower()))
    tool = next((one for one in REPLICATORS if one in words or one in (seen.user.lower(), seen.program.lower())), "")
    if seen.user.lower() in case.replicators:
        return Hold.SHOWN, [f"user {seen.user} was named as a replicator"]
    if tool:
        return Hold.SHOWN, [f"user {seen.user!r}, program {seen.program!r} name a replication tool ({tool})"]
    return Hold.EXCLUDED, [f"user {seen.user!r}, program {seen.program!r} name no replication tool"]


def _own_retry(case: _Case) -> _Judged:
    retried = [one for party in (case.mine, case.theirs) if party for one in party.statements if one.retries]
    if retried and (case.same_session or not case.known):
        told = [f"{one.where}: session {one.session}: carried out {one.retries + 1} times" for one in retried]
        return (Hold.SHOWN if case.same_session else Hold.POSSIBLE), told
    if case.known and not case.same_session:
        return Hold.EXCLUDED, [f"the other statement is session {case.other.session}'s"]
    if case.known and case.theirs is case.mine:
        return Hold.POSSIBLE, ["both are one transaction"]
    return (Hold.EXCLUDED, ["nothing was retried"]) if case.known else (Hold.POSSIBLE, [])


def _timed_out(case: _Case) -> _Judged:
    ours, theirs, party = case.ours, case.other, case.theirs
    if party is None or theirs.statement is None:
        return Hold.POSSIBLE, []
    if theirs.statement.internal:
        return Hold.EXCLUDED, ["the other statement is TiDB's own"]
    if case.same_session:
        return Hold.EXCLUDED, ["both are of one session, which waits for each answer"]
    last = party.statements[-1]
    begin = _begin(ours)
    if begin is None or last.end is None or last.begin is None:
        return Hold.POSSIBLE, []
    if not last.begin < begin < last.end:
        return Hold.EXCLUDED, [
            f"the other session had its answer at {time_text(last.end)}, ours began at {time_text(begin)}"
            if last.end <= begin
            else "ours began before the other statement"
        ]
    told = [
        f"session {theirs.session} was still at {_short(last.sql)} (until {time_text(last.end)}) when ours began at"
        f" {time_text(begin)}"
    ]
    after = case.statements.later(last)
    if after is not None:
        told.append(f"session {theirs.session} went on after it, so its client had waited: {_short(after.sql)}")
        return Hold.EXCLUDED, told
    told.append(f"session {theirs.session} asked nothing after it")
    if last.errno in _ABANDONED:
        return Hold.SHOWN, [*told, f"its client ended it: error {last.errno}"]
    same_user = bool(ours.user) and (ours.user, ours.host) == (theirs.user, theirs.host)
    if same_user:
        told.append(f"both sessions are {ours.user}@{ours.host}")
    again = bool(_texts(case, ours) & _texts(case, theirs))
    if again:
        told.append("ours carries the same statement, word for word: asked again")
    earlier = case.statements.by_session.get(ours.session, [])
    new = bool(earlier) and earlier[0].begin is not None and earlier[0].begin > last.begin
    if new:
        told.append(f"session {ours.session} is first seen after that statement had begun: a new connection")
    return (Hold.SHOWN if same_user and again and new else Hold.POSSIBLE), told


def _texts(case: _Case, party: Party) -> set[bytes]:
    transaction = case.mine if party is case.ours else case.theirs
    seen = transaction.statements if transaction else ([party.statement] if party.statement else [])
    return {b" ".join(one.sql.split()) for one in seen if case.statements.meaning(one).shape.tables}


def _asynchronous(case: _Case) -> _Judged:
    if case.conflict.kind not in (Kind.READ, Kind.WAIT):
        return Hold.EXCLUDED, ["a write conflict is decided by commit times, not by locks left behind"]
    reader, party = case.ours.statement, case.theirs
    if party is None or reader is None or reader.begin is None or party.end is None:
        return Hold.POSSIBLE, []
    gap = reader.begin - party.end
    if gap < 0:
        return Hold.EXCLUDED, [f"the writer had no answer yet when the reader began ({span_text(-gap)} before it)"]
    told = [
        f"session {party.session} had its answer {span_text(gap)} before the reader began",
        f"the reader met a lock all the same: {', '.join(case.conflict.backoffs) or 'a lock in the message'},"
        f" {span_text(case.conflict.waited or 0)}",
    ]
    took = party.end - party.begin if party.begin is not None else 0
    if case.conflict.other_start is None and gap > max(_LINGERS, took):
        return Hold.POSSIBLE, told
    if case.same_session:
        told.append("one session wrote and read: no concurrency in the code")
    return Hold.SHOWN, told


def _autocommit(case: _Case) -> _Judged:
    if case.theirs is None or case.other.statement is None:
        return Hold.POSSIBLE, []
    if case.other.statement.internal or case.same_session:
        return Hold.EXCLUDED, ["the other statement is the same session's, or TiDB's own"]
    if case.theirs.explicit is False:
        return Hold.SHOWN, [f"session {case.other.session}: IsExplicitTxn: false"]
    if case.theirs.explicit:
        return Hold.EXCLUDED, ["the other statement stands in a transaction"]
    return Hold.POSSIBLE, ["the log does not tell whether it stood in a transaction"]


def _other_transaction(case: _Case) -> _Judged:
    if case.theirs is None or case.other.statement is None:
        return Hold.POSSIBLE, []
    if case.same_session or case.other.statement.internal or case.theirs.explicit is False:
        return Hold.EXCLUDED, ["the other statement is no transaction of another client"]
    if case.theirs.explicit:
        return Hold.SHOWN, [f"session {case.other.session} had a transaction of its own"]
    return Hold.POSSIBLE, []


def _begin(party: Party) -> int | None:
    if party.statement is not None and party.statement.begin is not None:
        return party.statement.begin
    return tso_time(party.start) if party.start else None


def _short(sql: bytes) -> str:
    text = " ".join(sql.decode("utf-8", "backslashreplace").split())
    return text if len(text) <= 120 else text[:117] + "..."


_RULES: dict[str, Callable[[_Case], _Judged]] = {
    "ddl": _ddl, "expired lock": _expired, "ttl": _ttl, "internal": _internal, "replicator": _replicator,
    "own retry": _own_retry, "timed-out client": _timed_out, "asynchronous commit": _asynchronous,
    "autocommit statement": _autocommit, "other transaction": _other_transaction,
}  # fmt: skip
