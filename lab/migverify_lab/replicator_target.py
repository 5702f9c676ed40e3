"""The target of the lab's replicator: its catalog, checkpoint, and the connection that applies a batch.

A batch is one transaction, which moves the checkpoint, too: a replicator that is killed starts again there, and each
change is applied exactly once, also in tables without a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from migverify.changes.model import Position, Statement, TableMap
from migverify.changes.positions import tso_position
from migverify.errors import LabError
from migverify.sql.quoting import quote_name, quote_text
from migverify.watch.ledger import ordinal_of
from migverify_lab.columns import unique_key
from migverify_lab.replicator_plan import BatchPlan, TargetTable, target_table
from migverify_lab.session import connect, execute, query

if TYPE_CHECKING:
    import pymysql

    from migverify_lab.servers import LabServer

    Connection: TypeAlias = pymysql.connections.Connection[Any]

CHECKPOINTS = "migverify_lab.replicator_checkpoint"
BEGINNING = -1
"""Place of a position that is known by its GTID set only: before everything."""
ATTEMPTS = 5

_SESSION = ("SET SESSION foreign_key_checks = 0",)
_SESSION_TIDB = ("SET SESSION tidb_mem_quota_query = 0",)
_TABLES = (
    "CREATE DATABASE IF NOT EXISTS migverify_lab",
    f"CREATE TABLE IF NOT EXISTS {CHECKPOINTS} (name VARCHAR(64) NOT NULL PRIMARY KEY, file VARCHAR(255) NOT NULL,"
    " `offset` BIGINT NOT NULL, gtids LONGTEXT NOT NULL, time DATETIME(6) NULL, changes BIGINT NOT NULL,"
    " pending LONGTEXT NULL)",
)
_RETRYABLE = frozenset({1205, 1213, 8002, 8022, 8028, 9007, 9002, 9003, 9004, 9005})
"""Deadlock, lock wait, write conflict, schema changed meanwhile, region trouble: the transaction was rolled back."""
_DONE_BEFORE = frozenset({1007, 1008, 1050, 1051, 1060, 1061, 1068, 1091, 1146, 1826, 3822})
"""What a DDL answers that was applied before: exists already, or is not there any more."""


def place(at: Position) -> int:
    """Return a number that grows along the source's binlog, or along the commit timestamps of TiDB."""
    if at.file == tso_position(0).file:
        return at.offset
    return ordinal_of(at) if at.file else BEGINNING


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far the target is. ``changes`` counts row changes since the replicator's first start."""

    at: Position
    time: float
    changes: int
    pending: str | None = None


def read_checkpoint(connection: Connection, name: str) -> Checkpoint | None:
    """Return a replicator's checkpoint; None where it has none yet."""
    if not query(connection, "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA='migverify_lab'"
                              " AND TABLE_NAME='replicator_checkpoint'"):  # fmt: skip
        return None
    rows = query(
        connection,
        "SELECT file, `offset`, gtids, UNIX_TIMESTAMP(time), changes, pending"  # noqa: S608
        f" FROM {CHECKPOINTS} WHERE name = {quote_text(name)}",
    )
    if not rows:
        return None
    file, offset, gtids, time, changes, pending = rows[0]
    return Checkpoint(Position(str(file), int(offset), str(gtids)), float(time or 0.0), int(changes),
                      None if pending is None else str(pending))  # fmt: skip


def drop_checkpoint(connection: Connection, name: str) -> None:
    """Forget a replicator: its next start is its first."""
    execute(connection, *_TABLES, f"DELETE FROM {CHECKPOINTS} WHERE name = {quote_text(name)}")  # noqa: S608


@dataclass(slots=True)
class TargetWriter:
    """The connection to the target of one replicator, whose ``name`` is its row of the checkpoint table.

    Make it, call ``open``.
    """

    server: LabServer
    name: str
    checkpoint: Checkpoint | None = None
    _connection: Connection | None = None
    _tables: dict[str, TargetTable] = field(default_factory=dict)

    @property
    def connection(self) -> Connection:
        """The open connection; raises LabError before ``open``."""
        if self._connection is None:
            raise LabError("the target is not open", hint="Call open() first.")
        return self._connection

    def open(self, since: Position | None = None) -> None:
        """Connect, make the checkpoint table, read how far this replicator is.

        Parameters
        ----------
        since
            Where to begin in spite of a checkpoint, which then moves there; None leaves it.

        Raises
        ------
        LabError
            the target does not answer.
        """
        self._connection = connect(self.server)
        execute(self.connection, *_SESSION, *(_SESSION_TIDB if self.server.flavor == "tidb" else ()), *_TABLES)
        if since is not None:
            drop_checkpoint(self.connection, self.name)
        self.checkpoint = read_checkpoint(self.connection, self.name)

    def close(self) -> None:
        """Close the connection; what was not committed is rolled back."""
        if self._connection is not None:
            with suppress(OSError, _mysql_error()):
                self._connection.close()
        self._connection = None

    # --- catalog ----------------------------------------------------------------------------------------------

    def table(self, layout: TableMap) -> TargetTable:
        """Return how to write a table; asked from the catalog once until ``forget``.

        Raises
        ------
        LabError
            the target has no such table, or it lacks a column.
        """
        known = self._tables.get(layout.name)
        if known is None or (known.map is not layout and known.map != layout):
            known = self._tables[layout.name] = self._read_table(layout)
        return known

    def forget(self) -> None:
        """Read the catalog again from now on: a DDL was applied."""
        self._tables.clear()

    def _read_table(self, layout: TableMap) -> TargetTable:
        connection = self.connection
        where = f"TABLE_SCHEMA = {quote_text(layout.database)} AND TABLE_NAME = {quote_text(layout.table)}"
        columns = query(connection, "SELECT COLUMN_NAME, GENERATION_EXPRESSION <> '' FROM"  # noqa: S608
                                     f" information_schema.COLUMNS WHERE {where}")  # fmt: skip
        here = {str(name).lower() for name, _ in columns}
        lacking = [column.name for column in layout.columns if column.name.lower() not in here]
        if lacking:
            what = f"lacks column {lacking[0]}" if columns else "does not exist on the target"
            raise LabError(f"{layout.name} {what}", hint="Give both sides the same definition, or start earlier.")
        key = unique_key(connection, layout.database, layout.table)
        generated = [str(name) for name, is_generated in columns if is_generated]
        return target_table(layout, key, generated)

    # --- applying ---------------------------------------------------------------------------------------------

    def apply(self, plan: BatchPlan | None, at: Position, time: float, gtids: str) -> None:
        """Apply a batch and move the checkpoint; None only moves it.

        Raises
        ------
        LabError
            the target refuses a statement; the checkpoint does not move.
        """
        done = (0 if self.checkpoint is None else self.checkpoint.changes) + (plan.changes if plan else 0)
        # The mark of a statement that a kill left open stays until that statement comes by again.
        pending = None if self.checkpoint is None else self.checkpoint.pending
        new = Checkpoint(Position(at.file, at.offset, gtids), time, done, pending)
        self._transaction([*(plan.texts() if plan is not None else ()), self._checkpoint_sql(new)])
        self.checkpoint = new

    def run_statement(self, item: Statement, at: Position, time: float) -> None:
        """Apply a DDL or TRUNCATE and move the checkpoint.

        The intent is recorded first: after a kill between the two, the statement is run once more, and an answer
        that says it was done before counts as success.
        """
        before = self.checkpoint
        mark = f"{at.file}:{at.offset}"
        again = before is not None and before.pending == mark
        connection = self.connection
        changes = 0 if before is None else before.changes
        if before is not None:
            execute(connection, f"UPDATE {CHECKPOINTS} SET pending = {quote_text(mark)}"  # noqa: S608
                                 f" WHERE name = {quote_text(self.name)}")  # fmt: skip
        error_type = _mysql_error()
        try:
            if item.database and query(connection, "SELECT 1 FROM information_schema.SCHEMATA"  # noqa: S608
                                                    f" WHERE SCHEMA_NAME = {quote_text(item.database)}"):  # fmt: skip
                execute(connection, f"USE {quote_name(item.database)}")
            execute(connection, item.sql)
        except error_type as error:
            if not (again and error.args and error.args[0] in _DONE_BEFORE):
                raise LabError(
                    f"the target refuses {item.sql[:300]!r}: {error}",
                    hint="Apply what it means by hand, then start with --since behind it.",
                ) from error
        self.forget()
        new = Checkpoint(at, time, changes)
        self._transaction([self._checkpoint_sql(new)])
        self.checkpoint = new

    def _transaction(self, texts: Sequence[str]) -> None:
        error_type = _mysql_error()
        connection = self.connection
        for attempt in range(1, ATTEMPTS + 1):
            try:
                connection.begin()
                execute(connection, *texts)
                connection.commit()
            except error_type as error:
                with suppress(OSError, error_type):
                    connection.rollback()
                if attempt < ATTEMPTS and error.args and error.args[0] in _RETRYABLE:
                    continue
                raise LabError(
                    f"the target {self.server} refuses a batch: {error}",
                    hint="The checkpoint is before it; start again once the cause is gone.",
                ) from error
            return

    def _checkpoint_sql(self, new: Checkpoint) -> str:
        moment = f"'{datetime.fromtimestamp(new.time, UTC):%Y-%m-%d %H:%M:%S.%f}'" if new.time else "NULL"
        pending = "NULL" if new.pending is None else quote_text(new.pending)
        values = (quote_text(self.name), quote_text(new.at.file), str(new.at.offset), quote_text(new.at.gtids), moment,
                  str(new.changes), pending)  # fmt: skip
        columns = "name, file, `offset`, gtids, time, changes, pending"
        return f"REPLACE INTO {CHECKPOINTS} ({columns}) VALUES ({', '.join(values)})"  # noqa: S608


def _mysql_error() -> type[Exception]:
    import pymysql

    return pymysql.err.MySQLError
