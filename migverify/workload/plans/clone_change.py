"""Changes of a marked clone that are tried and undone: a change is recorded on the clone before it is made.

Who is killed between leaves the record and perhaps the change; the next run finds the record and undoes what it names.
What is undone is made here of the record's kind and names: the clone's table holds no statement that would be run.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from migverify.db.session import open_session
from migverify.errors import EndpointError, MigverifyError, ReadError, RetryableReadError
from migverify.model import Endpoint, Flavor, IndexDef, Side
from migverify.sql.index_ddl import add_index, drop_index, has_index, running_jobs, set_visible
from migverify.sql.quoting import quote_path, quote_text
from migverify.workload.plans.model import TRIED
from migverify.workload.plans.statistics import analyze
from migverify.workload.replay.clone import CloneMark, prove

_SUFFIX = "_trials"
_LOCK_SECONDS = 60
_LOOK_SECONDS = 0.2
_JOB_SECONDS = 3600.0
"""How long an ADD INDEX that goes on without its session is waited for."""


class ChangeKind(StrEnum):
    """What is changed, and undone."""

    INDEX = "index"  # made, and dropped
    VISIBLE = "visible"  # shown, and hidden
    STATISTICS = "statistics"  # taken, and dropped


@dataclass(frozen=True, slots=True)
class CloneChange:
    """One change of a clone's table: ``index`` is made or shown, ``made`` is the statement that does it."""

    kind: ChangeKind
    database: str
    table: str
    index: str = ""
    made: str = ""

    @property
    def undone(self) -> str:
        """The statement that takes the change back."""
        if self.kind is ChangeKind.INDEX:
            return drop_index(self.database, self.table, TRIED)
        if self.kind is ChangeKind.VISIBLE:
            return set_visible(self.database, self.table, self.index, visible=False)
        return f"DROP STATS {quote_path(self.database, self.table)}"


def new_index(database: str, table: str, index: IndexDef) -> CloneChange | None:
    """Return the change that makes an index as it is defined, under a name of its own; None where no text says it."""
    made = add_index(database, table, replace(index, visible=True), TRIED)
    return None if made is None else CloneChange(ChangeKind.INDEX, database, table, TRIED, made)


def shown_index(database: str, table: str, name: str) -> CloneChange:
    """Return the change that shows an invisible index."""
    made = set_visible(database, table, name, visible=True)
    return CloneChange(ChangeKind.VISIBLE, database, table, name, made)


def taken_statistics(database: str, table: str) -> CloneChange:
    """Return the change that takes the statistics of a table that has none; older ones could not be put back."""
    return CloneChange(ChangeKind.STATISTICS, database, table, "", analyze(database, table))


class TrialClone:
    """The target of a trial, proved to be a rehearsal clone; one run at a time changes it.

    Raises EndpointError: the mark is missing or has ended, another run tries remedies there, or what runs there cannot
    be seen.
    """

    def __init__(self, endpoint: Endpoint, password: str | None, marker: str | None) -> None:
        self._marker = marker
        # An index takes as long as it takes: the limit of a query is none of it.
        unlimited = replace(endpoint, snapshot=None, query_seconds=0)
        self._session = open_session(unlimited, password, side=Side.TARGET)
        try:
            self.mark: CloneMark = self._prove()
            database, _, table = self.mark.marker.partition(".")
            self._records = quote_path(database, table + _SUFFIX)
            self._lock()
            self._make_records()
            self._running_jobs("", "")  # where they cannot be read, an ADD INDEX that goes on could not be undone
        except BaseException:
            self._session.close()
            raise

    def _prove(self) -> CloneMark:
        if self._session.flavor is not Flavor.TIDB:
            raise EndpointError(f"{self._session.endpoint.name} is no TiDB: remedies are tried on TiDB only")
        return prove(self._session, self._marker)

    def _lock(self) -> None:
        name = f"{TRIED} {self.mark.marker}"[:64]
        if self._session.query(f"SELECT GET_LOCK({quote_text(name)}, {_LOCK_SECONDS})") != [("1",)]:
            raise EndpointError(
                f"another run tries remedies on the clone {self.mark.name}", hint="Wait for it, or end it."
            )

    def _make_records(self) -> None:
        self._session.execute(
            f"CREATE TABLE IF NOT EXISTS {self._records} (id CHAR(32) NOT NULL PRIMARY KEY, made_at BIGINT NOT NULL,"
            " kind VARCHAR(16) NOT NULL, database_name VARCHAR(64) NOT NULL, table_name VARCHAR(64) NOT NULL,"
            " index_name VARCHAR(64) NOT NULL) DEFAULT CHARSET=utf8mb4"
        )

    def recover(self, tell: Callable[[str], None]) -> None:
        """Undo what runs that were cut off left behind; ``tell`` gets a line of each. Raises ReadError."""
        rows = self._session.query(
            f"SELECT id, kind, database_name, table_name, index_name FROM {self._records} ORDER BY made_at, id"  # noqa: S608
        )
        for number, kind, database, table, index in rows:
            change = CloneChange(ChangeKind(kind or ""), database or "", table or "", index or "")
            tell(f"clone {self.mark.name}: a run that was cut off tried something there; undone: {change.undone}")
            self._undo(number or "", change)

    @contextmanager
    def changed(self, change: CloneChange) -> Iterator[None]:
        """Make a change, and undo it behind the block.

        Raises EndpointError: the mark does not hold any more; ReadError: the clone refuses the change, or it could not
        be undone, then the next run does it.
        """
        self._prove()
        number = uuid.uuid4().hex
        values = ", ".join(map(quote_text, (change.kind.value, change.database, change.table, change.index)))
        self._session.execute(
            f"INSERT INTO {self._records} VALUES ({quote_text(number)}, {int(time.time())}, {values})"  # noqa: S608
        )
        self._make(number, change)
        try:
            yield
        finally:
            try:
                self._undo(number, change)
            except MigverifyError as error:
                raise ReadError(
                    f"clone {self.mark.name}: a remedy that was tried is not undone: {error.message}",
                    hint=f"The next run with --try undoes it; or run there: {change.undone}",
                ) from error

    def _make(self, number: str, change: CloneChange) -> None:
        """Make a change; what the server refuses was not made, and leaves no record."""
        try:
            self._session.execute(change.made)
        except RetryableReadError:
            raise  # it may have been made
        except ReadError:
            if change.kind is ChangeKind.INDEX:
                self._undo(number, change)  # a job may go on all the same
            else:
                self._forget(number)
            raise

    def _undo(self, number: str, change: CloneChange) -> None:
        if change.kind is not ChangeKind.INDEX:
            self._session.execute(change.undone)
        else:
            self._settle(change)
            if self._has_index(change):
                self._session.execute(change.undone)
        self._forget(number)

    def _forget(self, number: str) -> None:
        self._session.execute(f"DELETE FROM {self._records} WHERE id = {quote_text(number)}")  # noqa: S608

    def _settle(self, change: CloneChange) -> None:
        """Wait until no job makes the index any more: TiDB goes on with one whose session is gone."""
        until = time.monotonic() + _JOB_SECONDS
        while jobs := self._running_jobs(change.database, change.table):
            if time.monotonic() > until:
                raise ReadError(f"DDL job {jobs[0]} on {change.database}.{change.table} goes on")
            time.sleep(_LOOK_SECONDS)

    def _running_jobs(self, database: str, table: str) -> list[str]:
        rows = self._session.query(running_jobs(database, table))
        return [row[0] or "" for row in rows]

    def _has_index(self, change: CloneChange) -> bool:
        return bool(self._session.query(has_index(change.database, change.table, TRIED)))

    def close(self) -> None:
        """Close the session; its lock goes with it."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
