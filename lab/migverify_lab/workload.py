"""A payment-like load on the source, at a given rate of row changes per second.

Open loop: each transaction has a moment at which it is due, and a slow server makes the load late, never lighter. Many
changes share a transaction and many rows a statement, so that a small machine can write thousands of rows a second
beside both servers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from migverify.errors import LabError
from migverify.signals import SignalEvent
from migverify.sql.quoting import quote_name
from migverify_lab.servers import LabServer
from migverify_lab.session import connect
from migverify_lab.workload_payments import HOT_PAYEES, Payments
from migverify_lab.workload_tables import (
    NODE_BITS,
    create_statements,
    initial_statements,
    milliseconds_of,
)


class WritingConnection(Protocol):
    """What the load needs of a connection."""

    def begin(self) -> object:
        """Begin a transaction."""
        ...

    def query(self, sql: str) -> int:
        """Run a statement; returns the rows it affected."""
        ...

    def commit(self) -> object:
        """Commit."""
        ...

    def rollback(self) -> object:
        """Roll back."""
        ...


FEWEST_ACCOUNTS = 2 + HOT_PAYEES + 2
"""Accounts that one connection needs: clearing, fees, the hot payees, and two to pay each other."""

DEADLOCK, DEADLOCKS = 1213, 20
"""The server's code, and how often the same transaction may be a victim."""


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """What to write.

    Attributes
    ----------
    rate
        Row changes per second over all connections: rows inserted, updated or deleted; 0 is as fast as it goes.
    changes
        How many row changes; the load ends after them, rounded up to whole transactions of every connection.
    per_transaction
        Row changes of one transaction.
    hot
        Share of the payments that go to the few hot payees.
    seconds
        Ends after this time even if changes are left; 0 is without limit.
    """

    source: LabServer
    database: str = "pay"
    rate: float = 2000.0
    changes: int = 120_000
    connections: int = 2
    per_transaction: int = 20
    accounts: int = 2000
    hot: float = 0.05
    seed: int = 1
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.connections < (1 << NODE_BITS) - 1:
            raise LabError(f"{self.connections} connections", hint=f"1 to {(1 << NODE_BITS) - 2} are possible.")
        if self.accounts < self.connections * FEWEST_ACCOUNTS:
            raise LabError(
                f"{self.accounts} accounts for {self.connections} connections",
                hint=f"Each connection needs {FEWEST_ACCOUNTS} accounts of its own.",
            )
        if not 0 <= self.hot <= 1 or self.rate < 0 or self.changes < 1 or self.per_transaction < 1:
            raise LabError("the share of hot payees is 0 to 1, rate and counts are positive", hint="See --help.")


@dataclass(slots=True)
class WorkloadResult:
    """What was written. ``late`` is by how many seconds a transaction began behind its moment, at most."""

    changes: int = 0
    transactions: int = 0
    seconds: float = 0.0
    late: float = 0.0

    @property
    def rate(self) -> float:
        """Row changes per second."""
        return self.changes / self.seconds if self.seconds else 0.0


def create(servers: tuple[LabServer, ...], database: str, accounts: int, seed: int) -> None:
    """Make the tables anew with the same rows on each server; their old rows are lost.

    Raises
    ------
    LabError
        a server does not answer.
    """
    for server in servers:
        with connect(server) as connection, connection.cursor() as cursor:
            cursor.execute("SET NAMES utf8mb4 COLLATE utf8mb4_bin")
            for statement in (*create_statements(quote_name(database)),
                              *initial_statements(quote_name(database), accounts, seed)):  # fmt: skip
                cursor.execute(statement)


@dataclass(slots=True)
class Workload:
    """Writes until its changes are done, its time is over, or ``stop``.

    ``open_connection`` opens the connections that write; the reverse feed gives one whose transactions it carries.
    """

    options: WorkloadOptions
    on_progress: Callable[[WorkloadResult], None] = lambda _: None
    open_connection: Callable[[LabServer], AbstractContextManager[WritingConnection]] = connect
    result: WorkloadResult = field(default_factory=WorkloadResult)
    _stop: SignalEvent = field(default_factory=SignalEvent)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _failure: BaseException | None = None

    def stop(self) -> None:
        """Tell it to end after the transactions that are under way."""
        self._stop.set()

    def run(self) -> WorkloadResult:
        """Write, and return what was written.

        Raises
        ------
        LabError
            the source refuses, or its tables are not those of ``create``.
        """
        start = self._next_millisecond()
        threads = [
            threading.Thread(target=self._guarded, args=(node, start), name=f"load-{node}", daemon=True)
            for node in range(self.options.connections)
        ]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                self._stop.wait(0.2)
                with self._lock:
                    self.on_progress(self.result)
                if self._stop.is_set():
                    break
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
        if self._failure is not None:
            raise self._failure
        return self.result

    def _next_millisecond(self) -> int:
        """Return where the load's clock goes on: behind the newest id."""
        base = quote_name(self.options.database)
        with connect(self.options.source) as connection, connection.cursor() as cursor:
            try:
                found = []
                for what in ("MAX(id) FROM {}.payments", "MAX(id) FROM {}.ledger_entries", "COUNT(*) FROM {}.accounts"):
                    cursor.execute(f"SELECT {what.format(base)}")
                    found += [int(row[0] or 0) for row in cursor.fetchall()]
                payments, entries, accounts = found
            except _mysql_error() as error:
                raise LabError(f"{self.options.database} has no payment tables: {error}",
                               hint="Make them with --create.") from error  # fmt: skip
        if accounts != self.options.accounts:
            raise LabError(
                f"{self.options.database}.accounts holds {accounts} accounts, not {self.options.accounts}",
                hint=f"Say --accounts {accounts}, or make the tables anew with --create.",
            )
        return milliseconds_of(max(payments, entries)) + 1

    def _guarded(self, node: int, start: int) -> None:
        try:
            self._write(node, start)
        except BaseException as error:  # noqa: BLE001 - run raises it on its own thread
            self._failure = error
            self._stop.set()

    def _write(self, node: int, start: int) -> None:
        options = self.options
        share = options.accounts // options.connections
        rate = options.rate / options.connections
        payments = Payments(
            quote_name(options.database), node, node * share, share, options.seed, options.hot, start,
            1000.0 / rate if rate else 1.0,
        )  # fmt: skip
        left = -(-options.changes // options.connections)
        written = 0
        error_type = _mysql_error()
        with self.open_connection(options.source) as connection:
            connection.query("SET NAMES utf8mb4 COLLATE utf8mb4_bin")
            began = time.monotonic()
            while written < left and not self._stop.is_set():
                statements, changes = payments.transaction(min(options.per_transaction, left - written))
                now = time.monotonic()
                due = began + written / rate if rate else now
                if options.seconds and now - began >= options.seconds:
                    return
                if due > now and self._stop.wait(due - now):
                    return
                try:
                    _committed(connection, statements, error_type)
                except error_type as error:
                    raise LabError(f"the source {options.source} refuses the load: {error}",
                                   hint="Make the tables anew with --create.") from error  # fmt: skip
                written += changes
                with self._lock:
                    self.result.changes += changes
                    self.result.transactions += 1
                    self.result.seconds = max(self.result.seconds, time.monotonic() - began)
                    self.result.late = max(self.result.late, now - due)


def _transaction(connection: WritingConnection, statements: Sequence[tuple[str, int | None]]) -> None:
    connection.begin()
    for sql, expected in statements:
        affected = connection.query(sql)
        if expected not in (None, affected):
            connection.rollback()
            raise LabError(
                f"{affected} rows instead of {expected} were changed by {sql[:200]!r}",
                hint="Somebody else writes to these tables; make them anew with --create.",
            )
    connection.commit()


def _committed(
    connection: WritingConnection, statements: Sequence[tuple[str, int | None]], error_type: type[Exception]
) -> None:
    """Commit a transaction; the victim of a deadlock was rolled back whole, and begins again."""
    for _ in range(DEADLOCKS):
        try:
            return _transaction(connection, statements)
        except error_type as error:
            if error.args[:1] != (DEADLOCK,):
                raise
    return _transaction(connection, statements)


def _mysql_error() -> type[Exception]:
    import pymysql

    return pymysql.err.MySQLError
