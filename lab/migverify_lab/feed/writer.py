"""Connections to the real TiDB whose transactions are reported: images of the rows, and the commit timestamp.

Before a statement changes rows they are read and locked, afterwards they are read again; after the commit the
timestamp comes from ``@@tidb_last_txn_info`` of the same session. A transaction under way holds the resolved timestamp
back from before it begins, so no resolved timestamp runs ahead of a commit.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
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
        self._changes: dict[tuple[str, Texts], tuple[FeedTable, Texts | None, Texts | None]] = {}

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
        """Begin a transaction."""
        self._hold = self._timestamps.hold()
        self._changes.clear()
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
        """Commit and report the changes; returns the commit timestamp, 0 where nothing was written.

        An error leaves the outcome open, so the resolved timestamp stays below this transaction for good.
        """
        self._connection.commit()
        (info,) = query(self._connection, "SELECT @@tidb_last_txn_info")[0]
        found = json.loads(info)
        if found.get("error"):
            raise LabError(f"TiDB says of the commit: {found['error']}", hint="Look at TiDB's log.")
        commit = int(found["commit_ts"])
        if commit:
            self._timestamps.see(commit)
            self._report([
                RowEvent(table, commit, before, after)
                for table, before, after in self._changes.values() if before != after
            ])  # fmt: skip
        self._release()
        return commit

    def rollback(self) -> None:
        """Roll back."""
        self._connection.rollback()
        self._release()

    def run_ddl(self, sql: str) -> int:
        """Run a DDL or TRUNCATE and report it; returns the timestamp at which TiDB finished it."""
        hold = self._timestamps.hold()
        self._connection.query(sql)
        job = json.loads(query(self._connection, _LAST_DDL)[0][0])
        commit = int(job["binlog"]["FinishedTS"])
        self._timestamps.see(commit)
        self._catalog.forget()
        self._report([DdlEvent(job["schema_name"], job["table_name"], sql, commit, int(job["type"]))])
        self._timestamps.release(hold)
        return commit

    def _release(self) -> None:
        if self._hold is not None:
            self._timestamps.release(self._hold)
        self._hold = None
        self._changes.clear()

    # --- images -------------------------------------------------------------------------------------------------

    def _inserted(self, table: FeedTable, statement: WriteStatement, sql: str) -> int:
        written = [column.name for column in table.columns]
        names = [table.columns[place].name for place in table.key]
        keys = key_rows(written, names, statement)
        before = self._by_key(table, keys) if keys is not None and statement.may_replace else {}
        affected = int(self._connection.query(sql))
        if keys is None:  # TiDB numbers the rows of one statement without a gap
            first, count = self._connection.insert_id(), len(statement.rows)
            after = self._where(table, f"{quote_name(names[0])} BETWEEN {first} AND {first + count - 1}")
        else:
            after = self._by_key(table, keys)
        self._note(table, before, after)
        return affected

    def _changed(self, table: FeedTable, statement: WriteStatement, sql: str) -> int:
        condition = statement.where or "TRUE"
        before = self._where(table, condition)
        names = {table.columns[place].name.lower() for place in table.key}
        moved: list[tuple[str, ...]] = []
        if names & {name.lower() for name, _ in statement.sets}:
            moved = self._new_keys(table, statement, condition)
        affected = int(self._connection.query(sql))
        gone = (
            {} if statement.verb is Verb.DELETE else self._by_key(table, [*map(self._literals(table), before), *moved])
        )
        self._note(table, before, gone)
        return affected

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

    def _literals(self, table: FeedTable) -> Callable[[Texts], tuple[str, ...]]:
        forms = [table.rows.forms[place] for place in table.key]
        from migverify_lab.replicator_plan import literal

        return lambda key: tuple(literal(form, part) for form, part in zip(forms, key, strict=True))

    def _by_key(self, table: FeedTable, keys: Sequence[tuple[str, ...]]) -> dict[Texts, Texts]:
        names = [quote_name(table.columns[place].name) for place in table.key]
        found: dict[Texts, Texts] = {}
        for start in range(0, len(keys), _CHUNK):
            part = keys[start : start + _CHUNK]
            if len(names) == 1:
                condition = f"{names[0]} IN ({', '.join(key[0] for key in part)})"
            else:
                listed = ", ".join(f"({', '.join(key)})" for key in part)
                condition = f"({', '.join(names)}) IN ({listed})"
            found |= self._where(table, condition)
        return found

    def _where(self, table: FeedTable, condition: str) -> dict[Texts, Texts]:
        """Read and lock rows as they are now, with what this transaction wrote."""
        sql = f"SELECT {select_list(table)} FROM {quoted(table)} WHERE {condition} FOR UPDATE"  # noqa: S608
        rows = (texts_of(table, row) for row in query(self._connection, sql))
        return {table.key_of(row): row for row in rows}

    def _note(self, table: FeedTable, before: dict[Texts, Texts], after: dict[Texts, Texts]) -> None:
        """Keep the first image before and the last one after, for each row: TiCDC sends a row once a transaction."""
        for key in before.keys() | after.keys():
            where = (table.name, key)
            first = self._changes[where][1] if where in self._changes else before.get(key)
            self._changes[where] = (table, first, after.get(key))


_LAST_DDL = "SELECT CAST(job_meta AS CHAR) FROM mysql.tidb_ddl_history ORDER BY job_id DESC LIMIT 1"


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"x'{value.hex()}'" if isinstance(value, bytes) else text_literal(str(value))
