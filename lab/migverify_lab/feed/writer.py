"""Connections to the real TiDB whose transactions are reported: images of the rows, and the commit timestamp.

Before a statement changes rows they are read and locked, afterwards they are read again; after the commit the
timestamp comes from ``@@tidb_last_txn_info`` of the same session. A transaction under way holds the resolved timestamp
back from before it begins, so no resolved timestamp runs ahead of a commit.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from migverify.changes.model import Texts
from migverify.errors import LabError
from migverify.sql.quoting import quote_name
from migverify_lab.feed.catalog import Catalog, quoted, select_list, text_session, texts_of
from migverify_lab.feed.model import DdlEvent, Event, FeedTable, RowEvent
from migverify_lab.feed.statements import Verb, WriteStatement, key_rows, parse_write
from migverify_lab.load import NOT_COMMITTED, error_of
from migverify_lab.replicator_plan import literal
from migverify_lab.session import LabServer, query, text_literal

if TYPE_CHECKING:
    from migverify_lab.feed.catalog import Connection

_CHUNK = 500
"""Keys of one SELECT."""


@dataclass(slots=True)
class Timestamps:
    """What is known of TiDB's timestamps: the newest one, and those below which transactions are under way."""

    newest: int = 0
    _holds: dict[int, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _numbers: int = 0

    def hold(self) -> int:
        """Hold the resolved timestamp at what is known now; every later commit is above it. Returns the hold."""
        with self._lock:
            self._numbers += 1
            self._holds[self._numbers] = self.newest
            return self._numbers

    def release(self, hold: int) -> None:
        """Let the resolved timestamp go on; what was committed under the hold must have been reported before."""
        with self._lock:
            self._holds.pop(hold, None)

    def see(self, timestamp: int) -> None:
        """Learn of a timestamp that TiDB gave out."""
        with self._lock:
            self.newest = max(self.newest, timestamp)

    def resolved(self, timestamp: int) -> int:
        """Return the resolved timestamp for one that TiDB gave out before this call."""
        with self._lock:
            return min([timestamp, *self._holds.values()])


Report = Callable[[Sequence[Event]], None]
"""Takes the changes of one transaction."""


class FedConnection:
    """A connection that reports its transactions; has the methods of PyMySQL that the lab's loads use.

    Parameters
    ----------
    covers
        Which tables are reported, by ``database.table``; writes to others are run and not reported.
    database
        The current database, for statements that do not name one.
    """

    def __init__(
        self, server: LabServer, catalog: Catalog, timestamps: Timestamps, report: Report,
        covers: Callable[[str], bool], database: str = "",
    ) -> None:  # fmt: skip
        self._connection: Connection = text_session(server, database or None)
        self._catalog, self._timestamps, self._report, self._covers = catalog, timestamps, report, covers
        self._database = database
        self._hold: int | None = None
        self._in_doubt = False
        self._touched: dict[str, _Touched] = {}

    def __enter__(self) -> FedConnection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close it; a transaction under way is rolled back."""
        with suppress(Exception):
            self._connection.close()
        self._release()

    def begin(self) -> None:
        """Begin a transaction; one that is under way is rolled back.

        Raises
        ------
        LabError
            nobody knows whether the last transaction was committed.
        """
        if self._in_doubt:
            raise LabError("whether the last transaction was committed is not known", hint="Begin a new feed.")
        if self._hold is not None:
            self.rollback()
        self._hold = self._timestamps.hold()
        self._touched.clear()
        self._connection.begin()

    def query(self, sql: str) -> int:
        """Run one statement; returns the rows that it affected.

        Raises
        ------
        LabError
            the rows that it touches cannot be told.
        """
        statement = parse_write(sql)
        if statement.verb is Verb.OTHER:
            return int(self._connection.query(sql))
        database = statement.database or self._database
        if not self._covers(f"{database}.{statement.table}"):
            return int(self._connection.query(sql))
        if self._hold is None:
            raise LabError("a write outside of a transaction", hint="Call begin() first.")
        table = self._catalog.table(database, statement.table)
        return self._inserted(table, statement, sql) if statement.rows else self._changed(table, statement, sql)

    def commit(self) -> int:
        """Commit and report the changes; returns the commit timestamp, 0 where TiDB committed nothing.

        An error leaves the outcome open, so the resolved timestamp stays below this transaction for good.
        """
        changes = [change for touched in self._touched.values() for change in self._images(touched)]
        self._commit()
        info = json.loads(query(self._connection, "SELECT @@tidb_last_txn_info")[0][0])
        if info.get("error"):
            raise LabError(f"TiDB says of the commit: {info['error']}", hint="Look at TiDB's log.")
        commit = int(info["commit_ts"])
        self._in_doubt = False
        if commit:
            self._timestamps.see(commit)
            self._report([RowEvent(table, commit, before, after) for table, before, after in changes])
        self._release()
        return commit

    def _commit(self) -> None:
        import pymysql

        self._in_doubt = True
        try:
            self._connection.commit()
        except pymysql.err.MySQLError as error:
            self._in_doubt = error_of(error)[0] not in NOT_COMMITTED
            raise

    def rollback(self) -> None:
        """Roll back."""
        self._connection.rollback()
        self._release()

    def run_ddl(self, sql: str) -> int:
        """Run a DDL or TRUNCATE and report it; returns the timestamp at which TiDB finished it.

        Raises
        ------
        LabError
            TiDB has no record of it: it was no DDL, or had nothing to do.
        """
        import pymysql

        hold = self._timestamps.hold()
        try:
            self._connection.query(sql)
        except pymysql.err.MySQLError as error:
            if error_of(error)[0] not in _CLIENT_ERRORS:  # else it may have been run
                self._timestamps.release(hold)
            raise
        jobs = [json.loads(job) for (job,) in query(self._connection, _LAST_DDL)]
        job = next((job for job in jobs if job["query"].strip(" ;") == sql.strip(" ;")), None)
        if job is None:
            self._timestamps.release(hold)
            raise LabError(f"TiDB has no record of {sql[:200]!r}", hint="The feed carries row changes and DDL only.")
        commit, schema, table = int(job["binlog"]["FinishedTS"]), str(job["schema_name"]), str(job["table_name"])
        self._timestamps.see(commit)
        self._catalog.forget()
        if self._covers(f"{schema}.{table}"):
            self._report([DdlEvent(schema, table, sql, commit, int(job["type"]))])
        self._timestamps.release(hold)
        return commit

    def _release(self) -> None:
        if self._hold is not None and not self._in_doubt:
            self._timestamps.release(self._hold)
        self._hold = None
        self._touched.clear()

    # --- images -------------------------------------------------------------------------------------------------

    def _inserted(self, table: FeedTable, statement: WriteStatement, sql: str) -> int:
        touched = self._touched.setdefault(table.name, _Touched(table))
        names = [table.columns[place].name for place in table.key]
        keys = key_rows([column.name for column in table.columns if not column.generated], names, statement)
        if keys is not None and statement.may_replace:
            self._settle(touched)
            touched.note(self._by_key(table, keys))
            touched.replaces = True
        affected = int(self._connection.query(sql))
        if keys is None:  # TiDB numbers the rows of one statement without a gap
            first = int(self._connection.insert_id())  # type: ignore[no-untyped-call]
            keys = [(str(first + number),) for number in range(len(statement.rows))]
        touched.inserted.update(keys)
        return affected

    def _settle(self, touched: _Touched) -> None:
        """Note that rows which this transaction made were not there before, ahead of a statement that reads them."""
        touched.note(dict.fromkeys(self._by_key(touched.table, sorted(touched.inserted), lock=touched.replaces)))
        touched.keys |= touched.inserted
        touched.inserted.clear()

    def _changed(self, table: FeedTable, statement: WriteStatement, sql: str) -> int:
        touched = self._touched.setdefault(table.name, _Touched(table))
        condition = statement.where or "TRUE"
        self._settle(touched)
        before = self._where(table, condition)
        touched.note(before)
        touched.keys.update(map(_key_literals(table), before))
        names = {table.columns[place].name.lower() for place in table.key}
        if names & {name.lower() for name, _ in statement.sets}:
            touched.keys.update(self._new_keys(table, statement, condition))
        return int(self._connection.query(sql))

    def _images(self, touched: _Touched) -> list[tuple[FeedTable, Texts | None, Texts | None]]:
        """Return each row as it was and as this transaction leaves it: TiCDC sends a row once a transaction."""
        before, after = touched.before, self._by_key(touched.table, sorted(touched.inserted), lock=touched.replaces)
        after |= self._by_key(touched.table, sorted(touched.keys - touched.inserted))
        return [
            (touched.table, before.get(key), after.get(key))
            for key in dict.fromkeys([*before, *after]) if before.get(key) != after.get(key)
        ]  # fmt: skip

    def _new_keys(self, table: FeedTable, statement: WriteStatement, condition: str) -> list[tuple[str, ...]]:
        """Return the keys that an UPDATE of key columns will give, as SQL."""
        sets = {name.lower(): expression for name, expression in statement.sets}
        columns = [table.columns[place] for place in table.key]
        wanted = ", ".join(
            sets.get(column.name.lower(), f"{quote_name(column.name)}{' + 0e0' if column.base == 'float' else ''}")
            for column in columns
        )
        rows = query(self._connection, f"SELECT {wanted} FROM {quoted(table)} WHERE {condition}")  # noqa: S608
        return [tuple(_literal(value) for value in row) for row in rows]

    def _by_key(self, table: FeedTable, keys: Sequence[tuple[str, ...]], *, lock: bool = True) -> dict[Texts, Texts]:
        names = [quote_name(table.columns[place].name) for place in table.key]
        rows: dict[Texts, Texts] = {}
        for start in range(0, len(keys), _CHUNK):
            part = keys[start : start + _CHUNK]
            if len(names) == 1:
                condition = f"{names[0]} IN ({', '.join(key[0] for key in part)})"
            else:
                listed = ", ".join(f"({', '.join(key)})" for key in part)
                condition = f"({', '.join(names)}) IN ({listed})"
            rows |= self._where(table, condition, lock=lock)
        return rows

    def _where(self, table: FeedTable, condition: str, *, lock: bool = True) -> dict[Texts, Texts]:
        """Read rows with what this transaction wrote, locked and as they are now; rows that it made need no lock."""
        sql = f"SELECT {select_list(table)} FROM {quoted(table)} WHERE {condition}{' FOR UPDATE' if lock else ''}"  # noqa: S608
        rows = (texts_of(table, row) for row in query(self._connection, sql))
        return {table.key_of(row): row for row in rows}


@dataclass(slots=True)
class _Touched:
    """What a transaction did to one table.

    ``before``: rows as they were, None for one that the transaction made. ``keys``: rows, by their keys as SQL, that
    it may have changed; ``inserted``: those that it may have made, of which ``before`` knows nothing yet. ``replaces``:
    some of them may have been there.
    """

    table: FeedTable
    before: dict[Texts, Texts | None] = field(default_factory=dict)
    keys: set[tuple[str, ...]] = field(default_factory=set)
    inserted: set[tuple[str, ...]] = field(default_factory=set)
    replaces: bool = False

    def note(self, rows: Mapping[Texts, Texts | None]) -> None:
        """Keep the images of rows that are seen for the first time."""
        for key, row in rows.items():
            self.before.setdefault(key, row)


def _key_literals(table: FeedTable) -> Callable[[Texts], tuple[str, ...]]:
    forms = [table.rows.forms[place] for place in table.key]
    return lambda key: tuple(literal(form, part) for form, part in zip(forms, key, strict=True))


_CLIENT_ERRORS = range(2000, 3000)
"""Codes of the client library: no answer came."""
_LAST_DDL = "SELECT CAST(job_meta AS CHAR) FROM mysql.tidb_ddl_history ORDER BY job_id DESC LIMIT 20"


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"x'{value.hex()}'" if isinstance(value, bytes) else text_literal(str(value))
