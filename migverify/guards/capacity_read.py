"""How much there is: rows and bytes of tables as a server estimates them, and what its binlog grows by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from migverify.db.server_state import binary_logs
from migverify.db.session import Session
from migverify.errors import ChangeError, EndpointError, MigverifyError, ReadError, RetryableReadError
from migverify.model import Flavor
from migverify.sql import server as sql
from migverify.sql.catalog import Wanted, read_names, read_tables

Name = tuple[str, str]


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
    """The binlog files of a server: their bytes, and since when they are kept (Unix time; None: not told)."""

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
    how = f"{kept} of {len(names)} tables by mysql.innodb_table_stats, the rest by the catalog"
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
            since = None  # told as "not told": only the rate of the whole rests on it
    return Logs(len(logs), sum(log.size for log in logs), since)


def first_words(error: MigverifyError) -> str:
    """Return an error as one line."""
    return " ".join(error.message.split())
