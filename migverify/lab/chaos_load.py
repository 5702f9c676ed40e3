"""The load of disaster recovery cases: a small bank on one server, whose clients keep a ledger of what they were told.

A transfer is one transaction: a row of ``entries`` under the token of the attempt, and two balances. ``entries`` has no
unique key over the token, so that a write applied twice shows as two rows. Whatever is committed, the sum of all
balances stays, and each balance is its beginning plus its entries: the invariants of the data check.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.errors import LabError
from migverify.lab.chaos_ledger import ACKED, REFUSED, TRIED, UNKNOWN, LedgerWriter
from migverify.lab.servers import LabServer
from migverify.lab.session import connect
from migverify.lab.snowflake import Snowflake

if TYPE_CHECKING:
    from pymysql.connections import Connection

DATABASE = "chaos"
APP_USER = "chaos_app"
ACCOUNTS = 64
BEGINNING = 1_000_000
"""Of every balance."""
TOKENS_OF_A_CLIENT = 1_000_000_000
RECONNECT_EVERY = 20
"""Transactions of one connection; a pool that opens new ones meets what a storm or an expired certificate does."""
ANSWER_SECONDS = 2.0

ID_TYPES = {"server": "BIGINT NOT NULL AUTO_INCREMENT", "int": "INT NOT NULL AUTO_INCREMENT",
            "snowflake": "BIGINT NOT NULL", "naive": "BIGINT NOT NULL"}  # fmt: skip
"""Who makes ids: the server (``int``: in a narrow column), or each client, carefully or not (``naive``)."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What to write: ``rate`` in transactions per second over all clients; ``clock`` is a file of a shift in ms."""

    server: LabServer
    ledger: Path
    clients: int = 4
    rate: float = 80.0
    ids: str = "server"
    clock: Path | None = None
    ca: str = ""
    seed: int = 1


def create(server: LabServer, ids: str = "server") -> None:
    """Make the bank anew, and the user of its clients, who has no right beyond it.

    Raises
    ------
    LabError
        the server does not answer, or ids are made in another way.
    """
    if ids not in ID_TYPES:
        raise LabError(f"nobody makes ids in the way {ids!r}", hint=f"Use one of: {', '.join(ID_TYPES)}.")
    rows = ", ".join(f"({number}, {BEGINNING})" for number in range(ACCOUNTS))
    with connect(server, seconds=60.0) as connection, connection.cursor() as cursor:
        for statement in (
            f"DROP DATABASE IF EXISTS {DATABASE}", f"CREATE DATABASE {DATABASE}",
            f"CREATE USER IF NOT EXISTS '{APP_USER}'@'%'", f"GRANT ALL ON {DATABASE}.* TO '{APP_USER}'@'%'",
            f"CREATE TABLE {DATABASE}.accounts (id INT NOT NULL PRIMARY KEY, balance BIGINT NOT NULL)",
            f"INSERT INTO {DATABASE}.accounts VALUES {rows}",  # noqa: S608 - numbers made here
            f"CREATE TABLE {DATABASE}.entries (id {ID_TYPES[ids]} PRIMARY KEY, token BIGINT NOT NULL,"
            " payer INT NOT NULL, payee INT NOT NULL, amount BIGINT NOT NULL, at DATETIME(6) NOT NULL, KEY (token))",
            f"CREATE TABLE {DATABASE}.probe (id INT NOT NULL PRIMARY KEY, n INT NOT NULL)",
        ):  # fmt: skip
            cursor.execute(statement)


def app_session(server: LabServer, *, seconds: float = ANSWER_SECONDS, ca: str = "") -> Connection:
    """Open a session as a client of the bank does.

    Raises
    ------
    LabError
        it is not let in; the error of the driver is its cause.
    """
    if ca:
        return _tls_session(server, seconds, ca)
    return connect(replace(server, user=APP_USER), DATABASE, seconds=seconds)


def write_probe(server: LabServer) -> None:
    """Commit a row as a client, beside the bank: a write that is rolled back never meets a binlog that is stuck.

    Raises
    ------
    LabError
        the server does not take it.
    """
    import pymysql

    try:
        with app_session(server) as connection:
            connection.query("INSERT INTO probe VALUES (1, 1) ON DUPLICATE KEY UPDATE n = n + 1")
    except pymysql.err.MySQLError as error:
        raise LabError(f"{server} takes no write: {error}", hint="It may still be starting.") from error


def _tls_session(server: LabServer, seconds: float, ca: str) -> Connection:
    """Open a session that checks the server's certificate, as a client with ``sslMode=VERIFY_CA`` does."""
    import ssl

    import pymysql

    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = False  # the lab's server has no name
    try:
        return pymysql.connect(
            host=server.host, port=server.port, user=APP_USER, database=DATABASE, charset="utf8mb4", autocommit=True,
            connect_timeout=10, read_timeout=seconds, write_timeout=seconds, ssl=context,
        )  # fmt: skip
    except (pymysql.err.MySQLError, ssl.SSLError) as error:
        raise LabError(f"{server} does not let {APP_USER} in: {error}", hint="Look at its certificate.") from error


@dataclass(slots=True)
class BankLoad:
    """Clients that pay each other until ``stop``."""

    options: LoadOptions
    _stop: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """Tell the clients to end after the transaction under way."""
        self._stop.set()

    def run(self) -> None:
        """Pay until ``stop``; whatever a server says, the clients go on."""
        ledger = LedgerWriter(self.options.ledger)
        threads = [
            threading.Thread(target=self._client, args=(number, ledger), name=f"client-{number}", daemon=True)
            for number in range(self.options.clients)
        ]
        for thread in threads:
            thread.start()
        while not self._stop.wait(0.5):
            if not all(thread.is_alive() for thread in threads):
                raise LabError("a client of the load ended by itself", hint="Look at the log of the load.")
        for thread in threads:
            thread.join(2 * ANSWER_SECONDS + 12)
        ledger.close()

    def _client(self, number: int, ledger: LedgerWriter) -> None:
        options = self.options
        rng = random.Random(f"bank {options.seed} {number}")
        make_id = _ids(options, number)
        pause = options.clients / options.rate
        due = time.monotonic() + pause * number / options.clients
        connection: Connection | None = None
        turn = 0
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            # Open loop while the server answers; what was missed while it did not is not made up for.
            due = max(due + pause, time.monotonic())
            turn += 1
            token = number * TOKENS_OF_A_CLIENT + turn
            ledger.note(TRIED, token)
            if connection is not None and turn % RECONNECT_EVERY == 0:
                _close(connection)
                connection = None
            connection = _pay(options, ledger, connection, token, rng, make_id)
            if connection is None:
                due = max(due, time.monotonic() + 0.1)
        if connection is not None:
            _close(connection)


def _ids(options: LoadOptions, number: int) -> Callable[[], int | None]:
    if options.ids not in ("snowflake", "naive"):
        return lambda: None
    made = Snowflake(number, options.clock, careful=options.ids == "snowflake")
    return made.next


def _pay(
    options: LoadOptions, ledger: LedgerWriter, connection: Connection | None, token: int, rng: random.Random,
    make_id: Callable[[], int | None],
) -> Connection | None:  # fmt: skip
    """Try one transfer and write down how it ended; returns the connection if it can be used again."""
    import pymysql

    committing = False
    try:
        if connection is None:
            connection = app_session(options.server, ca=options.ca)
        with connection.cursor() as cursor:
            connection.begin()
            for statement, values in _transfer(token, rng, make_id()):
                cursor.execute(statement, values)
            committing = True
            connection.commit()
    except (LabError, pymysql.err.MySQLError, OSError) as error:
        code, text = error_of(error)
        # Before COMMIT is sent nothing can be committed; after that only a few answers say that nothing was.
        lost = committing and code not in _NOT_COMMITTED
        ledger.note(UNKNOWN if lost else REFUSED, token, code, text)
        if connection is not None:
            _close(connection)
        return None
    ledger.note(ACKED, token)
    return connection


_NOT_COMMITTED = frozenset({1205, 1213, 1290, 1836, 8002, 8028, 9007})
"""Answers to COMMIT that leave no doubt: lock wait, deadlock, read-only server, write conflict, schema changed."""


def _transfer(token: int, rng: random.Random, id_: int | None) -> list[tuple[str, tuple[Any, ...]]]:
    payer, payee = rng.sample(range(ACCOUNTS), 2)
    amount = rng.randrange(1, 100)
    names, marks = ("", "") if id_ is None else ("id, ", "%s, ")
    insert = f"INSERT INTO entries ({names}token, payer, payee, amount, at) VALUES ({marks}%s, %s, %s, %s, NOW(6))"  # noqa: S608
    values = (token, payer, payee, amount)
    moves = sorted([(payer, -amount), (payee, amount)])  # in one order, so that no two transfers wait in a circle
    return [
        (insert, values if id_ is None else (id_, *values)),
        *(("UPDATE accounts SET balance = balance + %s WHERE id = %s", (change, account)) for account, change in moves),
    ]


def error_of(error: BaseException) -> tuple[int, str]:
    """Return code and text of what a driver said; 0 where it has no code."""
    inner = error.__cause__ if isinstance(error, LabError) and error.__cause__ is not None else error
    code = inner.args[0] if inner.args and isinstance(inner.args[0], int) else 0
    return code, str(inner)


def _close(connection: Connection) -> None:
    with suppress(Exception):
        connection.close()
