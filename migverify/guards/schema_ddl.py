"""Who changed a definition, and when: the source's binlog as it is written, and the DDL jobs of TiDB.

The account is the invoker in the binlog (rarely there), or that of the session that sent the statement, while it lives.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime

from migverify.changes.ddl import UNKNOWN_USER, ddl_finding, masked
from migverify.changes.model import Position, Statement
from migverify.changes.server import current_position
from migverify.changes.source import read_server
from migverify.db.session import Session, open_session
from migverify.errors import MigverifyError, ReadError
from migverify.model import Endpoint
from migverify.sql import schema_watch as sql

KEPT = 1000
"""How many statements are remembered."""


@dataclass(frozen=True, slots=True)
class Ddl:
    """One statement that changed definitions. ``tables`` are ``database.table``; empty means any. Time is Unix seconds.

    ``who`` is an account or ``unknown``; ``how`` says where the account is from.
    """

    endpoint: str
    time: float
    tables: tuple[str, ...]
    statement: str
    who: str = UNKNOWN_USER
    how: str = ""

    def concerns(self, table: str) -> bool:
        """Whether it may have changed a table; ``database.*`` names all of a database."""
        database = table.partition(".")[0]
        folded = {name.casefold() for name in self.tables}
        return not folded or table.casefold() in folded or f"{database}.*".casefold() in folded

    def __str__(self) -> str:
        when = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(self.time))
        by = self.who if not self.how else f"{self.who} ({self.how})"
        text = " ".join(self.statement.split())
        return f"{when} by {by}: {text if len(text) <= 300 else text[:300] + ' ...'}"


def account_of(session: Session, thread: int) -> str:
    """Return the account of a session that still lives; empty where it does not, or may not be seen."""
    try:
        rows = session.query(sql.account_of_thread(session.flavor, thread)) if thread else []
    except ReadError:
        return ""
    return f"{rows[0][0]}@{(rows[0][1] or '').partition(':')[0]}" if rows and rows[0][0] else ""


class BinlogDdl:
    """Follows the binlog of a source in a thread of its own and remembers the DDL in it.

    Parameters
    ----------
    since
        Where to begin; None is now.
    """

    def __init__(self, endpoint: Endpoint, password: str | None, since: Position | None = None) -> None:
        self.endpoint, self._password, self._since = endpoint, password, since
        self._found: deque[Ddl] = deque(maxlen=KEPT)
        self._lock = threading.Lock()
        self.woken = threading.Event()
        self.failure = ""

    @classmethod
    def begun(cls, endpoint: Endpoint, password: str | None) -> BinlogDdl:
        """Begin to follow from where the source is now; where that cannot be done, ``failure`` says why."""
        try:
            with open_session(endpoint, password) as session:
                follower = cls(endpoint, password, current_position(session))
        except MigverifyError as error:
            follower = cls(endpoint, password)
            follower.failure = " ".join(str(error).split())
            return follower
        threading.Thread(target=follower._follow, name=f"ddl of {endpoint.name}", daemon=True).start()
        return follower

    def take(self) -> list[Ddl]:
        """Return what came since the last call."""
        with self._lock:
            found = list(self._found)
            self._found.clear()
        self.woken.clear()
        return found

    def _follow(self) -> None:
        try:
            with open_session(self.endpoint, self._password) as session:
                for item in read_server(self.endpoint, self._password, self._since, follow=True):
                    if isinstance(item, Statement):
                        self._remember(item, session)
        except (MigverifyError, OSError) as error:
            self.failure = " ".join(str(error).split())
            self.woken.set()

    def _remember(self, statement: Statement, session: Session) -> None:
        finding = ddl_finding(statement)
        who, how = statement.user, "binlog"
        if not who:
            who, how = account_of(session, statement.thread), f"session {statement.thread}"
        ddl = Ddl(
            self.endpoint.name, float(statement.time), finding.tables, finding.sql, who or UNKNOWN_USER,
            how if who else "",
        )  # fmt: skip
        with self._lock:
            self._found.append(ddl)
        self.woken.set()


def tidb_jobs(session: Session, endpoint: str, since: float) -> list[Ddl]:
    """Return the DDL jobs of a TiDB that ended after a moment of its own clock.

    The user is that of the statement summary, which is kept for some minutes and may be off.
    """
    try:
        jobs = session.query_named(sql.TIDB_JOBS)
        queries = {row[0]: row[1] or "" for row in session.query(sql.TIDB_JOB_QUERIES)}
    except ReadError:
        return []  # needs the PROCESS privilege
    try:
        users = {" ".join((r[1] or "").split()): r[0] or "" for r in session.query(sql.TIDB_STATEMENTS)}
    except ReadError:
        users = {}
    found = []
    for job in jobs:
        moment = _moment(job.get("END_TIME"))
        query = queries.get(job.get("JOB_ID"), "") or job.get("JOB_TYPE") or ""
        if moment is None or moment <= since:
            continue
        name = f"{job.get('DB_NAME')}.{job.get('TABLE_NAME') or '*'}"
        user = users.get(" ".join(query.split()), "")
        how = "statement summary" if user else ""
        found.append(Ddl(endpoint, moment, (name,), masked(query), user or UNKNOWN_USER, how))
    return sorted(found, key=lambda one: one.time)


def _moment(text: str | None) -> float | None:
    """Read a time of a session at +00:00; None for a job that has not ended."""
    try:
        return datetime.fromisoformat(text or "").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
