"""Who changed a definition, and when: the source's binlog as it is written, and what the servers count.

Three things tell who: the invoker in the binlog (rarely there), the session that sent the statement while it still
lives, and the counters of statements by account, which outlive it. What none of them tells is ``unknown``.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from migverify.changes.ddl import UNKNOWN_USER, ddl_finding, masked
from migverify.changes.model import Commit, Idle, Position, Statement
from migverify.changes.server import current_position, read_server
from migverify.db.session import Session, open_session
from migverify.errors import MigverifyError, ReadError
from migverify.model import Endpoint, Flavor
from migverify.sql import schema_watch as sql

SESSIONS = 20_000
"""How many sessions are remembered, the newest."""
KEPT = 1000
"""How many statements are remembered."""


@dataclass(frozen=True, slots=True)
class Ddl:
    """One statement that changed definitions. ``tables`` are ``database.table``; empty means any. Time is Unix seconds.

    ``who`` is an account, ``one of ...`` where several may have been it, or ``unknown``; ``how`` says what told it.
    """

    endpoint: str
    time: float
    tables: tuple[str, ...]
    statement: str
    who: str = UNKNOWN_USER
    how: str = ""
    thread: int = 0

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


class Accounts:
    """Counts DDL statements by account, on a session of its own; a rise says who was at work."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], int] = {}
        self._known = False
        self._sessions: dict[int, str] = {}

    def look(self, session: Session) -> dict[str, int]:
        """Return how many DDL statements each account sent since the last look; nothing at the first."""
        self.see(session)
        counted = self._counts(session)
        if counted is None:
            return {}
        risen: dict[str, int] = {}
        for key, number in counted.items():
            more = number - self._before.get(key, 0)
            if self._known and more > 0:
                risen[key[0]] = risen.get(key[0], 0) + more
        self._before, self._known = counted, True
        return risen

    def account_of(self, session: Session, thread: int) -> str:
        """Return the account of a session that lives or was seen; empty where neither."""
        if not thread:
            return ""
        try:
            rows = session.query(sql.account_of_thread(session.flavor, thread))
        except ReadError:
            rows = []
        if rows and rows[0][0]:
            return f"{rows[0][0]}@{(rows[0][1] or '').partition(':')[0]}"
        return self._sessions.get(thread, "")

    def see(self, session: Session) -> None:
        """Remember which sessions there are, and whose."""
        if session.flavor is Flavor.TIDB:
            return
        try:
            rows = session.query(sql.accounts_of_threads(session.flavor))
        except ReadError:
            return  # no PROCESS privilege: then only what the binlog and the counters tell
        # Sessions that ended since stay: what they sent may be read from the binlog only now.
        self._sessions |= {int(r[0] or 0): f"{r[1]}@{(r[2] or '').partition(':')[0]}" for r in rows if r[1]}
        for thread in sorted(self._sessions)[: max(0, len(self._sessions) - SESSIONS)]:
            del self._sessions[thread]

    def _counts(self, session: Session) -> dict[tuple[str, str], int] | None:
        if session.flavor is not Flavor.MYSQL:
            return None
        try:
            rows = session.query(sql.DDL_BY_ACCOUNT)
        except ReadError:
            return None  # performance_schema is off, or may not be read
        return {(f"{r[0]}@{r[1]}", r[2] or ""): int(r[3] or 0) for r in rows if r[0]}


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
        self.read_to = ""
        self.failure = ""

    @classmethod
    def begun(cls, endpoint: Endpoint, password: str | None) -> BinlogDdl:
        """Begin to follow from where the source stands now; where that cannot be done, ``failure`` says why."""
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
        accounts = Accounts()
        try:
            with open_session(self.endpoint, self._password) as session:
                for item in read_server(self.endpoint, self._password, self._since, follow=True):
                    if isinstance(item, Statement):
                        self._remember(item, session, accounts)
                    elif isinstance(item, Commit):
                        self.read_to = str(item.end)
                    elif isinstance(item, Idle):
                        self.read_to = str(item.at)
        except (MigverifyError, OSError) as error:
            self.failure = " ".join(str(error).split())
            self.woken.set()

    def _remember(self, statement: Statement, session: Session, accounts: Accounts) -> None:
        told = ddl_finding(statement)
        found = Ddl(self.endpoint.name, float(statement.time), told.tables, told.sql, thread=statement.thread)
        if statement.user:
            found = replace(found, who=statement.user, how="binlog")
        else:
            account = accounts.account_of(session, statement.thread)
            if account:
                found = replace(found, who=account, how=f"session {statement.thread}")
        with self._lock:
            self._found.append(found)
        self.woken.set()


def attributed(found: list[Ddl], risen: Mapping[str, int], accounts: Accounts, session: Session) -> list[Ddl]:
    """Say who sent the statements of which nobody said so: a session seen before, else accounts that were at work."""
    told = []
    for one in found:
        if one.who == UNKNOWN_USER:
            account = accounts.account_of(session, one.thread)
            if account:
                one = replace(one, who=account, how=f"session {one.thread}")
            elif risen:
                names = sorted(risen)
                who = names[0] if len(names) == 1 else f"one of {', '.join(names)}"
                one = replace(one, who=who, how="statement counters of performance_schema")
        told.append(one)
    return told


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
