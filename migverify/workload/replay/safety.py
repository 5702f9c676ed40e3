"""Read-only by default, three times over: the user's grants, the kind of each statement, the server's own mode.

None of the three is enough. Grants say nothing of locks and named locks; the classifier cannot see into a view or a
stored program; TiDB has no read-only sessions. A statement that is not known to be harmless is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from migverify.db.session import Session, open_session
from migverify.errors import PrivilegeError
from migverify.model import Endpoint, Flavor, Side
from migverify.sql.grants import Grants, check_grants
from migverify.workload.classify import Classification, StatementKind
from migverify.workload.replay.clone import prove
from migverify.workload.replay.model import Call

_NEVER_SET = re.compile(
    rb"\b(?:sql_log_bin|gtid_next|tidb_snapshot|tidb_read_staleness|pseudo_slave_mode|pseudo_replica_mode)\b",
    re.IGNORECASE,
)


FIRST_TRANSACTION = (
    "its transaction began before the capture: begin the capture earlier; what follows this transaction is asked"
)
UNLOCKED = "asked without its locking clause: no permission to lock (--locking)"

# What to do, by what the reason says; the first that is found counts.
_REMEDIES = (
    (r"database is not known", "give --sessions FILE (migverify workload sessions) or --assume-database NAME"),
    (r"prepared before the capture",
     "begin the capture before the clients connect, or capture by the general log, which holds the text"),
    (r"prepared statement not logged",
     "capture by the general log or by packets: the slow log of MySQL 9 never holds the text of an SQL PREPARE"),
    (r"open at the end of the capture", "capture until the transactions have ended"),
    (r"no session id", "capture by a format that names the connection (docs/capture-formats.md)"),
    (r"masked", "capture without masking, on a machine that may hold the values"),
    (r"transaction is not chosen whole", "choose by session or time instead of by digest"),
    (r"truncat|\bcut\b|too long|missing|lost|unknown values|values unknown",
     "raise the source's limit on logged text, or capture by packets, and capture again"),
    (r"prepare that failed", "its error cannot be asked without executing it; check the statement by hand"),
    (r"^write|may write|sequence|XA |read-only mode|executable comment",
     "ask it on marked clones with --writes, or leave writes out by name with --reads-only"),
    (r"^DDL|unknown statement", "ask it on marked clones with --writes --ddl, or leave it out with --reads-only"),
    (r"^locking read|named lock|LOCK TABLES", "allow it with --locking"),
    (r"several statements", "capture with the client's multi-statement option off, or run it by hand on both sides"),
    (r"never replayed", "run it by hand on both sides if its answer matters"),
)  # fmt: skip
_OTHERWISE = "see what the capture holds: migverify workload capture --quality DIR"


@dataclass(frozen=True, slots=True)
class Leave:
    """What a run may do beyond reading: each is given by its own option, never by default."""

    writes: bool = False
    ddl: bool = False
    locking: bool = False


def require_read_only(session: Session, *, accept_write_grants: bool = False) -> Grants:
    """Refuse a user that may write, unless that was accepted by name.

    Raises PrivilegeError: the user may write; the hint holds the statements that make one who cannot.
    """
    grants = check_grants(session)
    if grants.may_write and not accept_write_grants:
        shown = "; ".join(grants.changing[:3]) + ("; ..." if len(grants.changing) > 3 else "")
        raise PrivilegeError(
            f"{session.endpoint.name}: {grants.account} may write ({shown}), and this replay only reads",
            hint="Make a user who may not, as an administrator: CREATE USER 'replay'@'%' IDENTIFIED BY '...'; "
            "GRANT SELECT, SHOW VIEW ON *.* TO 'replay'@'%'; or accept it: --accept-write-grants.",
        )
    return grants


def read_only_mode(flavor: Flavor) -> tuple[tuple[bytes, ...], str]:
    """Return what makes a session read-only on the server, and what protects instead where nothing does.

    To be said behind everything that restores the session, as a captured setting could end it.
    """
    if flavor is Flavor.TIDB:
        return (), "TiDB has no read-only sessions (1235): only grants and the kind of each statement protect"
    return (b"SET SESSION TRANSACTION READ ONLY",), ""


def refusal(call: Call, classification: Classification, leave: Leave) -> str:
    """Return why a call is not asked, in fixed words; empty when it may be."""
    kind = classification.kind
    if call.partial:
        return f"partial: {call.partial}"
    if kind is StatementKind.ADMINISTRATIVE:
        return "administrative: never replayed"
    if "into file" in classification.effects:
        return "writes a file on the server: never replayed"
    if (kind is StatementKind.SESSION or "SET" in classification.words) and _NEVER_SET.search(call.sql):
        return "sets what hides writes or moves the snapshot: never replayed"
    if classification.statements > 1:
        return "several statements in one text"
    if kind is StatementKind.UNKNOWN and not (leave.writes and leave.ddl):
        return "unknown statement: it may write"
    if classification.executable_comment and not (leave.writes and leave.ddl):
        return "executable comment: what runs depends on the server's version"
    if kind is StatementKind.DDL and not leave.ddl:
        return "DDL that is not permitted"
    if not leave.writes:
        reason = _writes(classification)
        if reason:
            return reason
    if not leave.locking:
        return _locks(classification, leave)
    return ""


def _writes(classification: Classification) -> str:
    if classification.kind is StatementKind.WRITE:
        return "write that is not permitted"
    if "stored function possible" in classification.effects:
        return "a stored function may write"
    if "sequence" in classification.effects:
        return "takes a number from a sequence"
    if classification.effects & {"call", "execute"}:
        return "a stored program or named statement may write"
    if "XA" in classification.words:
        return "XA transaction: writes are not permitted"
    if "reads a file" in classification.effects:
        return "reads a file of the server"
    if "sleep" in classification.effects:
        return "SLEEP, BENCHMARK or a wait for replication: never sent as a read"
    if "read write" in classification.effects:
        return "ends the session's read-only mode"
    return ""


def _locks(classification: Classification, leave: Leave) -> str:
    if classification.locking and not leave.writes:
        return "locking read that is not permitted"
    if "lock by name" in classification.effects:
        return "named lock that is not permitted"
    if "LOCK" in classification.words:
        return "LOCK TABLES that is not permitted"
    if "handler" in classification.effects:
        return "HANDLER that is not permitted: it holds the table"
    if "serializable" in classification.effects and not leave.writes:
        return "isolation SERIALIZABLE, or one that its text does not tell: reads would lock rows"
    return ""


def with_remedy(reason: str) -> str:
    """Return why a call is not asked, ending with what to do about it."""
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, reason, re.IGNORECASE):
            return f"{reason}: {remedy}"
    return f"{reason}: {_OTHERWISE}"


_LOCKING_CLAUSE = re.compile(
    rb"\s+(?:FOR\s+(?:UPDATE|SHARE)(?:\s+OF\s+[`\w$.,\s]+?)?(?:\s+(?:NOWAIT|SKIP\s+LOCKED|WAIT\s+\d+))?"
    rb"|LOCK\s+IN\s+SHARE\s+MODE)\s*;?(?:\s*(?:--\s[^\n]*|/\*(?!!)[^*]*\*/))*\s*\Z",
    re.IGNORECASE,
)


def unlocked(sql: bytes) -> bytes | None:
    """Return a locking read without the locking clauses at its end; None where it ends with none.

    What is left must be classified again: the words may have been part of a comment.
    """
    without = sql
    while found := _LOCKING_CLAUSE.search(without):
        without = without[: found.start()]
    return None if without == sql else without


@dataclass(frozen=True, slots=True)
class ReplayEndpoints:
    """The endpoints of a replay by side, and their passwords by name. Without the source, the capture is the oracle."""

    endpoints: Mapping[Side, Endpoint]
    secrets: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"ReplayEndpoints({', '.join(side.value for side in self.endpoints)})"


def inspect(
    sides: ReplayEndpoints,
    leave: Leave,
    marker: str | None,
    *,
    accept_write_grants: bool = False,
    opened: Callable[[Session], None] = lambda _: None,
) -> dict[str, dict[str, Any]]:
    """Return facts of each side, or refuse: writes need a proven clone on every side, reads a user who may not write.

    Parameters
    ----------
    marker
        ``workload.clone_marker`` of the configuration.
    accept_write_grants
        A replay that only reads may be run by a user who may write.
    opened
        Called with each session before anything is asked over it.

    Raises EndpointError: a side is no proven clone, or does not answer; PrivilegeError where its user may write.
    """
    facts: dict[str, dict[str, Any]] = {}
    for side, endpoint in sides.endpoints.items():
        with open_session(endpoint, sides.secrets.get(endpoint.name), side=side) as session:
            opened(session)
            known: dict[str, Any] = {
                "address": f"{endpoint.host}:{endpoint.port}", "version": session.version,
                "flavor": session.flavor.value,
            }  # fmt: skip
            if leave.writes or leave.ddl:
                proof = prove(session, marker)
                known["clone"] = f"{proof.name}: {proof.identity}"
            else:
                grants = require_read_only(session, accept_write_grants=accept_write_grants)
                known["may_write"] = grants.may_write
                known["unprotected"] = read_only_mode(session.flavor)[1]
            facts[side.value] = known
    return facts
