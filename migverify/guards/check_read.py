"""One endpoint as the settings guard sees it: every statement is run once, and its answer or refusal kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Protocol, TypeVar

from migverify.db.server_state import global_variables
from migverify.db.session import Encryption
from migverify.errors import MigverifyError, PrivilegeError, ReadError, RetryableReadError
from migverify.guards.scope import Route
from migverify.model import Endpoint, Flavor, TableDef
from migverify.sql import settings as sql
from migverify.sql.catalog import CatalogNames, SkippedObject, read_names, read_tables
from migverify.sql.grants import Grants, account_text, check_grants
from migverify.sql.server import ACCOUNT, CLOCK, Queries

T = TypeVar("T")
Rows = list[tuple[str | None, ...]]
Named = list[dict[str, str | None]]
Refusal = ReadError | PrivilegeError
CLOCK_TRIES = 3


class Platform(StrEnum):
    """Who runs a server: decides where a setting is changed and who purges binlogs."""

    OWN = "own"
    RDS = "rds"
    AURORA = "aurora"


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """What the work will need, as far as it is known.

    Parameters
    ----------
    verify_seconds
        How long the longest read is going to take, seconds; None: not known.
    ticdc
        Addresses of TiCDC servers (``http://host:8300``).
    marker
        ``database.table`` on the source that a watch may write to.
    checkpoint
        ``database.table`` on the target where a replicator keeps its position.
    reader_id
        ``server_id`` that a reader of the binlog is going to use; None: not known yet.
    """

    verify_seconds: float | None = None
    ticdc: Sequence[str] = ()
    marker: str | None = None
    checkpoint: str | None = None
    reader_id: int | None = None


class CheckConnection(Queries, Protocol):
    """The part of a session that the guard needs."""

    def encryption(self) -> Encryption | None:
        """What the connection negotiated."""
        ...

    def alive(self) -> bool:
        """Whether the connection still answers."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


@dataclass(frozen=True, slots=True)
class ServerClock:
    """The server's clock against this machine's: ``offset`` seconds ahead, known to within ``uncertainty``."""

    offset: float
    uncertainty: float


@dataclass(slots=True)
class Cached:
    """A session that runs no statement twice. A refusal is an answer, and is raised again."""

    session: CheckConnection
    asked: dict[tuple[str, bool], Rows | Named | MigverifyError] = field(default_factory=dict)

    @property
    def flavor(self) -> Flavor:
        """What kind of server answers."""
        return self.session.flavor

    @property
    def version(self) -> str:
        """Its own words for its version."""
        return self.session.version

    def query(self, sql: str) -> Rows:
        """Run one statement; every value is the server's text."""
        found: Rows = self._once((sql, False), lambda: self.session.query(sql))
        return found

    def query_named(self, sql: str) -> Named:
        """Run one statement; rows as column name -> text."""
        found: Named = self._once((sql, True), lambda: self.session.query_named(sql))
        return found

    def _once(self, key: tuple[str, bool], ask: Callable[[], T]) -> T:
        if key not in self.asked:
            try:
                self.asked[key] = ask()  # type: ignore[assignment]
            except RetryableReadError:
                raise  # a lock, a time limit, or the connection is gone: another attempt may answer
            except (ReadError, PrivilegeError) as error:
                self.asked[key] = error
        kept = self.asked[key]
        if isinstance(kept, MigverifyError):
            raise kept
        return kept  # type: ignore[return-value]


@dataclass
class CheckedServer:
    """One endpoint; each fact is read when the first question needs it.

    Parameters
    ----------
    endpoint, session
        Whom to ask, and an open session there; used by one thread at a time.
    wanted
        Which (database, table) are in scope here.
    seconds
        How long it took to connect.
    """

    endpoint: Endpoint
    session: Cached
    wanted: Callable[[str, str], bool]
    route: Route
    plan: CheckPlan
    seconds: float = 0.0
    now: Callable[[], float] = time.time
    begun: Callable[[str], float] | None = None
    unmatched: Callable[[Iterable[tuple[str, str]]], list[str]] = lambda _: []

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return self.endpoint.name

    @property
    def is_source(self) -> bool:
        """Whether this is a source of the migration."""
        return self.endpoint.name.partition(".")[0] == "source"

    @property
    def flavor(self) -> Flavor:
        """What kind of server answers."""
        return self.session.flavor

    @property
    def alive(self) -> bool:
        """Whether the connection still answers."""
        return self.session.session.alive()

    @property
    def account(self) -> str:
        """The account of the session, as a statement spells it."""
        return account_text(self.session.query(ACCOUNT)[0][0] or "")

    @cached_property
    def number(self) -> tuple[int, ...]:
        """The numbers of its version; of a TiDB its own, which follow the version of MySQL that it imitates."""
        version = self.session.version
        if self.flavor is Flavor.TIDB:
            version = version.partition("TiDB-")[2].lstrip("v")
        return sql.version_number(version)

    @cached_property
    def variables(self) -> dict[str, str]:
        """All global variables, names in lower case."""
        return global_variables(self.session)

    @cached_property
    def platform(self) -> Platform:
        """Who runs it, by its global variables."""
        if "aurora_version" in self.variables:
            return Platform.AURORA
        return Platform.RDS if self.variables.get("basedir", "").startswith("/rdsdbbin/") else Platform.OWN

    @cached_property
    def clock(self) -> ServerClock:
        """Its clock, by the shortest of a few round trips."""
        return min((self._clock() for _ in range(CLOCK_TRIES)), key=lambda clock: clock.uncertainty)

    def _clock(self) -> ServerClock:
        before = self.now()
        # Not the kept answer: a clock that is read twice says two things.
        reported = self.session.session.query(CLOCK)[0][0]
        after = self.now()
        if reported is None:
            raise ReadError(f"{self.name}: the server does not report its clock")
        return ServerClock(float(reported) - (before + after) / 2, max(0.0, after - before) / 2)

    @cached_property
    def grants(self) -> Grants:
        """What the configured user may do."""
        return check_grants(self.session)

    @cached_property
    def names(self) -> CatalogNames:
        """What is in scope, by name."""
        return read_names(self.session, self.wanted)

    @cached_property
    def tables(self) -> tuple[TableDef, ...]:
        """Definitions of the tables in scope."""
        return tuple(read_tables(self.session, self.name, self.names.tables))

    @property
    def skipped(self) -> tuple[SkippedObject, ...]:
        """What is in scope and holds no rows of its own: views, sequences."""
        return self.names.skipped

    @cached_property
    def databases(self) -> tuple[str, ...]:
        """The databases of everything in scope."""
        found = {database for database, _ in self.names.tables} | {one.database for one in self.skipped}
        return tuple(sorted(found))

    def objects(self, statement: str) -> list[tuple[str, str, str]]:
        """Run a statement for each database in scope; (database, first, second) of every row."""
        return [
            (database, row[1] or "", row[2] or "")
            for database in self.databases
            for row in self.session.query(sql.shown(statement, (database,)))
        ]

    def shown(self, statement: str) -> str:
        """Return a statement as a reader can run it, the databases in scope filled in where they are known."""
        if "{databases}" not in statement:
            return statement
        try:
            return sql.shown(statement, self.databases)
        except (ReadError, PrivilegeError):  # questions that need them report the refusal
            return sql.shown(statement, ())

    def pairs(self, statement: str) -> dict[str, str | None]:
        """Run a statement that gives names and values."""
        return {row[0] or "": row[1] for row in self.session.query(statement)}

    def attempt(self, ask: Callable[[], T]) -> T | Refusal:
        """Return what ``ask`` returns, or the server's refusal as a value; a lost connection still raises."""
        try:
            return ask()
        except RetryableReadError:
            raise
        except (ReadError, PrivilegeError) as error:
            return error

    def variable(self, name: str) -> str:
        """Return a global variable.

        Raises
        ------
        ReadError
            the server has none of this name.
        """
        if name not in self.variables:
            raise ReadError(f"{self.name}: the server has no variable {name}")
        return self.variables[name]
