"""Read-only by default, three times over: the user's grants, the kind of each statement, the server's own mode.

None of the three is enough. Grants say nothing of locks and named locks; the classifier cannot see into a view or a
stored program; TiDB has no read-only sessions. A statement that is not known to be harmless is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from migverify.db.session import Session
from migverify.errors import PrivilegeError
from migverify.model import Flavor
from migverify.sql.grants import Grants, check_grants
from migverify.workload.classify import Classification, StatementKind, classify
from migverify.workload.lexer import executed
from migverify.workload.replay.model import Call

_NEVER_SET = re.compile(
    rb"\b(?:sql_log_bin|gtid_next|tidb_snapshot|tidb_read_staleness|pseudo_slave_mode|pseudo_replica_mode)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Leave:
    """What a run may do beyond reading: each is given by its own option, never by default."""

    writes: bool = False
    ddl: bool = False
    locking: bool = False
    several: bool = False


def require_read_only(session: Session, *, accept_write_grants: bool = False) -> Grants:
    """Refuse a user that may write, unless that was accepted by name.

    Raises
    ------
    PrivilegeError
        the user may write; the hint holds the statements that make one who cannot.
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
    """Return what makes a session read-only on the server, and what stands in its place where nothing does.

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
    if classification.statements > 1 and not leave.several:
        return "several statements in one text"
    if kind is StatementKind.UNKNOWN and not (leave.writes and leave.ddl):
        return "unknown statement: it may write"
    if classification.executable_comment and not (leave.writes and leave.ddl):
        reason = _comments(call, classification, leave)
        if reason:
            return reason
    if kind is StatementKind.DDL and not leave.ddl:
        return "DDL without leave"
    if kind is StatementKind.DDL and classification.statements > 1 and not leave.writes:
        return "write without leave"  # the kind is the most dangerous one's: a write beside DDL does not show
    if not leave.writes:
        reason = _writes(classification)
        if reason:
            return reason
    if not leave.locking:
        return _locks(classification, leave)
    return ""


def _comments(call: Call, classification: Classification, leave: Leave) -> str:
    """Judge a text that is one statement where a comment in it runs, and may be another where it does not."""
    openings: list[bytes] = []
    text = executed(call.sql, lambda match: openings.append(match[0]), call.state.modes)
    if len(openings) > 1:
        return "executable comments: which of them run depends on the version"
    without = classify(text, replace(call.state.modes, charset=""))
    if without.kind is not classification.kind:
        return "executable comment: with it, it is another statement"
    return refusal(call, replace(without, executable_comment=False), leave)


def _writes(classification: Classification) -> str:
    if classification.kind is StatementKind.WRITE:
        return "write without leave"
    if "stored function possible" in classification.effects:
        return "a stored function may write"
    if "sequence" in classification.effects:
        return "takes a number from a sequence"
    if classification.effects & {"call", "execute"}:
        return "a stored program or named statement may write"
    if "XA" in classification.words:
        return "XA transaction without leave to write"
    if "reads a file" in classification.effects:
        return "reads a file of the server"
    if "sleep" in classification.effects:
        return "SLEEP, BENCHMARK or a wait for replication: never sent as a read"
    if "read write" in classification.effects:
        return "ends the session's read-only mode"
    return ""


def _locks(classification: Classification, leave: Leave) -> str:
    if classification.locking and not leave.writes:
        return "locking read without leave"
    if "lock by name" in classification.effects:
        return "named lock without leave"
    if "LOCK" in classification.words:
        return "LOCK TABLES without leave"
    if "handler" in classification.effects:
        return "HANDLER without leave: it holds the table"
    if "serializable" in classification.effects and not leave.writes:
        return "isolation SERIALIZABLE, or one that its text does not tell: reads would lock rows"
    return ""
