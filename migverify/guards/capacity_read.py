"""What is read of one endpoint: rows and bytes of tables as the server estimates them, binlog, rates, connections."""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TypeVar

from migverify.db.server_state import binary_logs
from migverify.db.session import Session, open_session
from migverify.errors import ChangeError, EndpointError, ReadError, RetryableReadError
from migverify.figures import amount
from migverify.guards.counters import Rate, connections, rates, read_counters
from migverify.guards.model import one_line
from migverify.model import Endpoint, Flavor
from migverify.sql import server as sql
from migverify.sql import settings
from migverify.sql.catalog import Wanted, read_names, read_tables
from migverify.sql.grants import Grants, check_grants

Name = tuple[str, str]
T = TypeVar("T")
_LONGEST = 60.0
"""Seconds that one statement may take."""
_BYTES = re.compile(r"([0-9.]+) ?([KMGTP]?)i?B?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TableSize:
    """Rows and bytes (data and indexes) of one table, as the server estimates them."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """Estimates by (database, table), and how they were read."""

    tables: dict[Name, TableSize]
    how: str
    query: str

    @property
    def rows(self) -> int:
        """Of all tables."""
        return sum(one.rows for one in self.tables.values())

    @property
    def bytes(self) -> int:
        """Of all tables."""
        return sum(one.bytes for one in self.tables.values())


@dataclass(frozen=True, slots=True)
class Logs:
    """The binlog files of a server: their bytes, and since when they are kept (Unix time; None: not reported)."""

    files: int
    bytes: int
    since: float | None


def read_sizes(session: Session, endpoint: str, wanted: Wanted) -> Sizes:
    """Read estimates of all wanted tables.

    MySQL and MariaDB keep them in tables of statistics, which no table of a user is opened for; what is not there, or
    may not be read, is asked of the catalog in batches of names.

    Raises
    ------
    ReadError, PrivilegeError
        the catalog cannot be read.
    """
    names = read_names(session, wanted).tables
    found: dict[Name, TableSize] = {}
    if session.flavor is not Flavor.TIDB:
        found = _statistics(session, names)
    rest = [name for name in names if name not in found]
    for table in read_tables(session, endpoint, rest):
        found[table.ref.database, table.ref.table] = TableSize(table.rows, table.bytes)
    kept = len(names) - len(rest)
    how = f"{kept} of {amount(len(names), 'table')} by mysql.innodb_table_stats, the rest by the catalog"
    query = sql.INNODB_TABLES if kept else sql.TABLE_SIZE
    return Sizes(found, how if kept else "by the catalog", query)


def _statistics(session: Session, names: Iterable[Name]) -> dict[Name, TableSize]:
    """Return what InnoDB's statistics say; partitions (``t#P#p0``) add up to their table."""
    wanted = set(names)
    sums: dict[Name, list[int]] = defaultdict(lambda: [0, 0])
    try:
        page = int(session.query(sql.PAGE_BYTES)[0][0] or 0)
        for database in sorted({database for database, _ in wanted}):
            for _, table, rows, clustered, others in session.query(sql.innodb_statistics(database)):
                name = (database, (table or "").split("#P#")[0].split("#p#")[0])
                sums[name][0] += int(rows or 0)
                sums[name][1] += (int(clustered or 0) + int(others or 0)) * page
    except RetryableReadError:
        raise
    except (ReadError, EndpointError):
        return {}  # no grant on mysql.*: the catalog tells the same
    return {name: TableSize(*both) for name, both in sums.items() if name in wanted}


def read_logs(session: Session, begun: Callable[[str], float] | None) -> Logs:
    """Read the sizes of a server's binlog files.

    Parameters
    ----------
    begun
        Returns the Unix time at which a log of this name was begun; None: nobody can ask.

    Raises
    ------
    ReadError, PrivilegeError
        there is no binlog, or it may not be listed.
    """
    logs = binary_logs(session)
    since = None
    if logs and begun is not None:
        try:
            since = begun(logs[0].name)
        except (ChangeError, ReadError, EndpointError, OSError):
            since = None  # shown as "not reported": only the rate of the whole rests on it
    return Logs(len(logs), sum(log.size for log in logs), since)


@dataclass(slots=True)
class CapacityReading:
    """What was read of one endpoint. What could not be read is None, and ``refused`` says why.

    ``sized`` is set as soon as its tables are known, or never will be.
    """

    endpoint: Endpoint
    flavor: Flavor | None = None
    server_time: float | None = None
    sizes: Sizes | None = None
    rates: dict[str, Rate] | None = None
    counted_by: str = ""
    logs: Logs | None = None
    log_rate: float | None = None
    connections: tuple[int, int] | None = None
    free: int | None = None
    grants: Grants | None = None
    unread: str = ""
    refused: dict[str, str] = field(default_factory=dict)
    sized: threading.Event = field(default_factory=threading.Event)

    @property
    def is_source(self) -> bool:
        """Whether this is a source of the migration."""
        return self.endpoint.name.partition(".")[0] == "source"

    def attempt(self, what: str, read: Callable[[], T]) -> T | None:
        """Return what ``read`` returns; a refusal is kept under ``what``. A lost connection is raised."""
        try:
            return read()
        except RetryableReadError:
            raise
        except (ReadError, EndpointError) as error:
            self.refused[what] = one_line(error)
            return None

    def why(self, what: str) -> str:
        """Return why something is not known."""
        return self.refused.get(what) or self.unread or "it was not reported"


Begun = Callable[[Endpoint, str | None, str], float]
"""(endpoint, password, binlog file) -> Unix time at which the file was begun."""


@dataclass(frozen=True, slots=True)
class CapacityReader:
    """Reads one endpoint; ``begun`` None leaves out since when binlogs are kept, ``sample`` is in seconds."""

    begun: Begun | None = None
    sample: float = 5.0
    wait: Callable[[float], object] = time.sleep

    def read(self, facts: CapacityReading, password: str | None, wanted: Wanted) -> None:
        """Fill in what the server reports; what is refused is kept with its reason."""
        endpoint = facts.endpoint
        try:
            # A server that hangs counts as one that does not answer.
            limited = replace(endpoint, query_seconds=min(endpoint.query_seconds or _LONGEST, _LONGEST))
            with closing(open_session(limited, password)) as session:
                self._read_all(session, facts, password, wanted)
        except (EndpointError, ReadError) as error:
            facts.unread = error.line
        finally:
            facts.sized.set()

    def _read_all(self, session: Session, facts: CapacityReading, password: str | None, wanted: Wanted) -> None:
        """Read what there is between two readings of counters."""
        facts.flavor = session.flavor
        ((reported,),) = session.query(sql.CLOCK)
        facts.server_time = None if reported is None else float(reported)
        began, tidb = time.time(), session.flavor is Flavor.TIDB
        before = facts.attempt("rates", lambda: read_counters(session))
        logs = None if tidb else facts.attempt("logs", lambda: read_logs(session, None))
        facts.sizes = facts.attempt("sizes", lambda: read_sizes(session, facts.endpoint.name, wanted))
        facts.sized.set()
        facts.grants = facts.attempt("grants", lambda: check_grants(session))
        facts.connections = facts.attempt("connections", lambda: connections(session))
        facts.free = facts.attempt("free", lambda: _free(session)) if tidb else None
        self.wait(max(0.0, began + self.sample - time.time()))
        if before is not None:
            after = facts.attempt("rates", lambda: read_counters(session))
            if after is not None:
                facts.rates = facts.attempt("rates", lambda: rates(before, after))
                facts.counted_by = after[0].how
        if logs is not None:
            facts.logs = facts.attempt("logs", lambda: read_logs(session, self._age(facts.endpoint, password)))
            if facts.logs is not None:
                facts.log_rate = (facts.logs.bytes - logs.bytes) / (time.time() - began)

    def _age(self, endpoint: Endpoint, password: str | None) -> Callable[[str], float] | None:
        begun = self.begun
        return None if begun is None else lambda log: begun(endpoint, password, log)


def bytes_of(text: str) -> int | None:
    """Return a size as people and TiKV write it (``500G``, ``1.5TiB``) in bytes; None for anything else."""
    found = _BYTES.fullmatch(text.strip())
    if found is None or found[1].count(".") > 1 or found[1] == ".":
        return None
    return int(float(found[1]) * 1024 ** " KMGTP".index(found[2].upper() or " "))


def _free(session: Session) -> int:
    """Return the free bytes of all stores together."""
    rows = session.query(settings.STORES)
    free = [bytes_of(available or "") for _, _, available, state in rows if state == "Up"]
    known = [one for one in free if one is not None]
    if not known or len(known) < len(free):
        raise ReadError("the stores do not report their free room")
    return sum(known)
