"""The replicator's side of the target: catalog, checkpoint, and the connections that apply a batch.

A batch is applied in one transaction per partition. Partition 0 comes last and moves the checkpoint in the same
transaction; each other partition records beside its rows how far it is. A replicator that is killed between them
starts again at the checkpoint, and the partitions that were ahead leave out what they have: each change is applied
exactly once, also in tables without a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from migverify.changes.model import Position, Statement, TableMap
from migverify.errors import LabError
from migverify.lab.columns import unique_key
from migverify.lab.replicator_plan import Plan, TargetTable, statements, target_table
from migverify.lab.session import connect
from migverify.sql.quoting import quote_name, quote_text
from migverify.watch.ledger import place as ledger_place

if TYPE_CHECKING:
    import pymysql

    from migverify.lab.servers import LabServer

    Connection: TypeAlias = pymysql.connections.Connection[Any]

CHECKPOINTS = "migverify_lab.replicator_checkpoint"
PARTITIONS = "migverify_lab.replicator_partition"
BEGINNING = -1
"""Place of a position that is known by its GTID set only: before everything."""
APART_FROM = 200
"""Changes from which on a batch is worth more than one connection."""
ATTEMPTS = 5

_SESSION = ("SET SESSION foreign_key_checks = 0",)
_SESSION_TIDB = ("SET SESSION tidb_mem_quota_query = 0",)
_TABLES = (
    "CREATE DATABASE IF NOT EXISTS migverify_lab",
    f"CREATE TABLE IF NOT EXISTS {CHECKPOINTS} (name VARCHAR(64) NOT NULL PRIMARY KEY, file VARCHAR(255) NOT NULL,"
    " `offset` BIGINT NOT NULL, gtids LONGTEXT NOT NULL, time DATETIME(6) NULL, changes BIGINT NOT NULL,"
    " partitions INT NOT NULL, pending LONGTEXT NULL)",
    f"CREATE TABLE IF NOT EXISTS {PARTITIONS} (name VARCHAR(64) NOT NULL, number INT NOT NULL,"
    " file VARCHAR(255) NOT NULL, `offset` BIGINT NOT NULL, PRIMARY KEY (name, number))",
)
_RETRYABLE = frozenset({1205, 1213, 8002, 8022, 8028, 9007, 9002, 9003, 9004, 9005})
"""Deadlock, lock wait, write conflict, schema changed meanwhile, region trouble: the transaction was rolled back."""
_DONE_BEFORE = frozenset({1007, 1008, 1050, 1051, 1060, 1061, 1068, 1091, 1146, 1826, 3822})
"""What a DDL answers that was applied before: exists already, or is not there any more."""


def place(at: Position) -> int:
    """Return a number that grows along the source's binlog."""
    return ledger_place(at) if at.file else BEGINNING


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far the target is. ``changes`` counts row changes since the replicator's first start."""

    at: Position
    time: float
    changes: int
    partitions: int
    pending: str | None = None


def read_checkpoint(connection: Connection, name: str) -> Checkpoint | None:
    """Return a replicator's checkpoint; None where it has none yet."""
    if not _query(connection, "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA='migverify_lab'"
                              " AND TABLE_NAME='replicator_checkpoint'"):  # fmt: skip
        return None
    rows = _query(
        connection,
        "SELECT file, `offset`, gtids, UNIX_TIMESTAMP(time), changes, partitions, pending"  # noqa: S608
        f" FROM {CHECKPOINTS} WHERE name = {quote_text(name)}",
    )
    if not rows:
        return None
    file, offset, gtids, time, changes, partitions, pending = rows[0]
    return Checkpoint(Position(str(file), int(offset), str(gtids)), float(time or 0.0), int(changes), int(partitions),
                      None if pending is None else str(pending))  # fmt: skip


def drop_checkpoint(connection: Connection, name: str) -> None:
    """Forget a replicator: its next start is its first."""
    with connection.cursor() as cursor:
        for statement in _TABLES:
            cursor.execute(statement)
        cursor.execute(f"DELETE FROM {CHECKPOINTS} WHERE name = {quote_text(name)}")  # noqa: S608
        cursor.execute(f"DELETE FROM {PARTITIONS} WHERE name = {quote_text(name)}")  # noqa: S608


@dataclass(slots=True)
class Target:
    """Connections to the target of one replicator. Make it, call ``open``.

    Parameters
    ----------
    name
        The replicator's name: its row of the checkpoint table.
    partitions
        Connections, and parts of a batch that are applied side by side.
    """

    server: LabServer
    name: str
    partitions: int
    checkpoint: Checkpoint | None = None
    _connections: list[Connection] = field(default_factory=list)
    _pool: ThreadPoolExecutor | None = None
    _ahead: dict[int, int] = field(default_factory=dict)
    _tables: dict[str, TargetTable] = field(default_factory=dict)

    def open(self, since: Position | None = None) -> None:
        """Connect, make the checkpoint tables, read where this replicator stands.

        Parameters
        ----------
        since
            Where to begin in spite of a checkpoint, which then moves there; None leaves it.

        Raises
        ------
        LabError
            the target does not answer, or a killed run with another number of connections must be ended first.
        """
        self._connections = [connect(self.server) for _ in range(self.partitions)]
        for connection in self._connections:
            for statement in (*_SESSION, *(_SESSION_TIDB if self.server.flavor == "tidb" else ())):
                _execute(connection, statement)
        first = self._connections[0]
        for statement in _TABLES:
            _execute(first, statement)
        if since is not None:
            drop_checkpoint(first, self.name)
        self.checkpoint = read_checkpoint(first, self.name)
        here = BEGINNING if self.checkpoint is None else place(self.checkpoint.at)
        rows = _query(first, f"SELECT number, file, `offset` FROM {PARTITIONS}"  # noqa: S608
                             f" WHERE name = {quote_text(self.name)}")  # fmt: skip
        places = {int(number): place(Position(str(file), int(offset))) for number, file, offset in rows}
        self._ahead = {number: at for number, at in places.items() if at > here}
        if self._ahead and self.checkpoint is not None and self.checkpoint.partitions != self.partitions:
            raise LabError(
                f"replicator {self.name} was killed with {self.checkpoint.partitions} connections at work",
                hint=f"Start it once with --connections {self.checkpoint.partitions}.",
            )
        self._pool = ThreadPoolExecutor(self.partitions, thread_name_prefix="apply")

    def close(self) -> None:
        """Close the connections; what was not committed is rolled back."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        for connection in self._connections:
            with suppress(OSError, _mysql_error()):
                connection.close()
        self._connections = []

    def has(self, partition: int, at: Position) -> bool:
        """Whether a partition has applied, before a kill, what was committed at a position."""
        return bool(self._ahead) and place(at) <= self._ahead.get(partition, BEGINNING)

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
        connection = self._connections[0]
        where = f"TABLE_SCHEMA = {quote_text(layout.database)} AND TABLE_NAME = {quote_text(layout.table)}"
        columns = _query(connection, "SELECT COLUMN_NAME, GENERATION_EXPRESSION <> '' FROM"  # noqa: S608
                                     f" information_schema.COLUMNS WHERE {where}")  # fmt: skip
        here = {str(name).lower() for name, _ in columns}
        lacking = [column.name for column in layout.columns if column.name.lower() not in here]
        if lacking:
            what = f"lacks column {lacking[0]}" if columns else "does not exist on the target"
            raise LabError(f"{layout.name} {what}", hint="Give both sides the same definition, or start earlier.")
        key = unique_key(connection, layout.database, layout.table)
        unique = _query(connection, "SELECT COUNT(DISTINCT INDEX_NAME) FROM information_schema.STATISTICS"  # noqa: S608
                                    f" WHERE NON_UNIQUE = 0 AND {where}")  # fmt: skip
        generated = [str(name) for name, is_generated in columns if is_generated]
        return target_table(layout, key, generated, other_unique=int(unique[0][0]) > 1)

    # --- applying ---------------------------------------------------------------------------------------------

    def apply(self, plan: Plan | None, at: Position, time: float, gtids: str) -> None:
        """Apply a batch and move the checkpoint; None only moves it.

        Raises
        ------
        LabError
            the target refuses a statement; the checkpoint stands where it stood.
        """
        done = (0 if self.checkpoint is None else self.checkpoint.changes) + (plan.changes if plan else 0)
        # The mark of a statement that a kill left open stays until that statement comes by again.
        pending = None if self.checkpoint is None else self.checkpoint.pending
        new = Checkpoint(Position(at.file, at.offset, gtids), time, done, self.partitions, pending)
        texts = [[sql for net in plan.nets(number) for sql in statements(net)] for number in range(len(plan))] if plan \
            else []  # fmt: skip
        if plan is not None and self._pool is not None and (plan.changes >= APART_FROM or self._ahead):
            beside = [number for number in range(1, len(texts)) if texts[number]]
            running = [
                self._pool.submit(self._transaction, number, [*texts[number], self._partition_sql(number, at)])
                for number in beside
            ]
            for future in running:
                future.result()
            self._transaction(0, [*texts[0], self._checkpoint_sql(new)])
        else:
            self._transaction(0, [*(sql for part in texts for sql in part), self._checkpoint_sql(new)])
        self.checkpoint = new
        here = place(at)
        self._ahead = {number: other for number, other in self._ahead.items() if other > here}

    def run_statement(self, item: Statement, at: Position, time: float) -> None:
        """Apply a DDL or TRUNCATE and move the checkpoint.

        The intent is recorded first: after a kill between the two, the statement is run once more, and an answer
        that says it was done before counts as success.
        """
        before = self.checkpoint
        mark = f"{at.file}:{at.offset}"
        again = before is not None and before.pending == mark
        connection = self._connections[0]
        changes = 0 if before is None else before.changes
        if before is not None:
            _execute(connection, f"UPDATE {CHECKPOINTS} SET pending = {quote_text(mark)}"  # noqa: S608
                                 f" WHERE name = {quote_text(self.name)}")  # fmt: skip
        error_type = _mysql_error()
        try:
            if item.database and _query(connection, "SELECT 1 FROM information_schema.SCHEMATA"  # noqa: S608
                                                    f" WHERE SCHEMA_NAME = {quote_text(item.database)}"):  # fmt: skip
                _execute(connection, f"USE {quote_name(item.database)}")
            _execute(connection, item.sql)
        except error_type as error:
            if not (again and error.args and error.args[0] in _DONE_BEFORE):
                raise LabError(
                    f"the target refuses {item.sql[:300]!r}: {error}",
                    hint="Apply what it means by hand, then start with --since behind it.",
                ) from error
        self.forget()
        new = Checkpoint(at, time, changes, self.partitions)
        self._transaction(0, [self._checkpoint_sql(new)])
        self.checkpoint = new

    def _transaction(self, number: int, texts: Sequence[str]) -> None:
        error_type = _mysql_error()
        connection = self._connections[number]
        for attempt in range(1, ATTEMPTS + 1):
            try:
                connection.begin()
                for sql in texts:
                    _execute(connection, sql)
                connection.commit()
            except error_type as error:
                with suppress(OSError, error_type):
                    connection.rollback()
                if attempt < ATTEMPTS and error.args and error.args[0] in _RETRYABLE:
                    continue
                raise LabError(
                    f"the target {self.server} refuses a batch: {error}",
                    hint="The checkpoint stands before it; start again once the cause is gone.",
                ) from error
            return

    def _checkpoint_sql(self, new: Checkpoint) -> str:
        moment = f"'{datetime.fromtimestamp(new.time, UTC):%Y-%m-%d %H:%M:%S.%f}'" if new.time else "NULL"
        pending = "NULL" if new.pending is None else quote_text(new.pending)
        values = (quote_text(self.name), quote_text(new.at.file), str(new.at.offset), quote_text(new.at.gtids), moment,
                  str(new.changes), str(new.partitions), pending)  # fmt: skip
        columns = "name, file, `offset`, gtids, time, changes, partitions, pending"
        return f"REPLACE INTO {CHECKPOINTS} ({columns}) VALUES ({', '.join(values)})"  # noqa: S608

    def _partition_sql(self, number: int, at: Position) -> str:
        values = f"{quote_text(self.name)}, {number}, {quote_text(at.file)}, {at.offset}"
        return f"REPLACE INTO {PARTITIONS} (name, number, file, `offset`) VALUES ({values})"  # noqa: S608


def _mysql_error() -> type[Exception]:
    import pymysql

    return pymysql.err.MySQLError


def _execute(connection: Connection, sql: str) -> int:
    with connection.cursor() as cursor:
        return int(cursor.execute(sql))


def _query(connection: Connection, sql: str) -> Sequence[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())
