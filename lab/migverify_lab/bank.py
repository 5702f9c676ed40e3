"""The application of disaster recovery cases: a small bank on one server.

A transfer is one transaction: a row of ``entries`` under the token of the attempt, and two balances. ``entries`` has no
unique key over the token, so that a write applied twice shows as two rows. Whatever is committed, the sum of all
balances stays, and each balance is its beginning plus its entries: the invariants of the data check.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.errors import LabError
from migverify_lab.load import SqlClient, TryOutcome
from migverify_lab.session import LabServer, connect
from migverify_lab.snowflake import Snowflake

if TYPE_CHECKING:
    from pymysql.connections import Connection

DATABASE = "chaos"
APP_USER = "chaos_app"
ACCOUNTS = 64
BEGINNING = 1_000_000
"""Of every balance."""
RECONNECT_EVERY = 20
"""Transactions of one connection; a pool that opens new ones meets what a storm or an expired certificate does."""
ANSWER_SECONDS = 2.0

ID_TYPES = {"server": "BIGINT NOT NULL AUTO_INCREMENT", "int": "INT NOT NULL AUTO_INCREMENT",
            "snowflake": "BIGINT NOT NULL", "naive": "BIGINT NOT NULL"}  # fmt: skip
"""Who makes ids: the server (``int``: in a narrow column), or each client, carefully or not (``naive``)."""


@dataclass(frozen=True, slots=True)
class BankOptions:
    """Where the clients write, who makes ids, and a file of a shift in ms of the clock that makes them."""

    server: LabServer
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


class BankClient(SqlClient):
    """A client that pays: a row of ``entries``, and two balances."""

    def __init__(self, options: BankOptions, number: int) -> None:
        super().__init__()
        self._options, self._turn = options, 0
        self._rng = random.Random(f"bank {options.seed} {number}")
        self._new_id: Callable[[], int | None] = lambda: None
        if options.ids in ("snowflake", "naive"):
            self._new_id = Snowflake(number, options.clock, careful=options.ids == "snowflake").next

    def attempt(self, token: str) -> TryOutcome:
        """Try one transfer."""
        self._turn += 1
        if self._turn % RECONNECT_EVERY == 0:
            self.close()
        return self.transact(lambda: app_session(self._options.server, ca=self._options.ca),
                             lambda cursor: self._transfer(cursor, token))  # fmt: skip

    def _transfer(self, cursor: Any, token: str) -> None:
        payer, payee = self._rng.sample(range(ACCOUNTS), 2)
        amount, id_ = self._rng.randrange(1, 100), self._new_id()
        names, marks = ("", "") if id_ is None else ("id, ", "%s, ")
        sql = f"INSERT INTO entries ({names}token, payer, payee, amount, at) VALUES ({marks}%s, %s, %s, %s, NOW(6))"  # noqa: S608
        cursor.execute(sql, (*(() if id_ is None else (id_,)), token, payer, payee, amount))
        for account, change in sorted([(payer, -amount), (payee, amount)]):  # in one order: no two wait in a circle
            cursor.execute("UPDATE accounts SET balance = balance + %s WHERE id = %s", (change, account))


# --- the data check -------------------------------------------------------------------------------------------


def read_bank(connection: Connection, server: LabServer) -> tuple[dict[str, list[str]], list[str], list[str]]:
    """Return rows by token and broken invariants, of one moment, and what the server's own check finds wrong."""
    found: list[str] = []
    with connection.cursor() as cursor:
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        cursor.execute(f"SELECT token, COUNT(*) FROM {DATABASE}.entries GROUP BY token")  # noqa: S608
        rows = {str(token): [""] * int(number) for token, number in cursor.fetchall()}
        cursor.execute(f"SELECT COUNT(*), SUM(balance) FROM {DATABASE}.accounts")  # noqa: S608
        count, total = next(iter(cursor.fetchall()))
        if (int(count), int(total)) != (ACCOUNTS, ACCOUNTS * BEGINNING):
            found.append(f"{count} accounts hold {total} in all, not {ACCOUNTS * BEGINNING}")
        cursor.execute(_BALANCES)
        wrong = cursor.fetchall()
        cursor.execute("COMMIT")
    if wrong:
        found.append(f"{len(wrong)} balances are not the sum of their entries, such as of account {wrong[0][0]}")
    return rows, found, _server_check(connection, server)


_BALANCES = f"""
SELECT a.id, a.balance FROM {DATABASE}.accounts a
LEFT JOIN (SELECT payer AS id, SUM(amount) AS paid FROM {DATABASE}.entries GROUP BY payer) p ON p.id = a.id
LEFT JOIN (SELECT payee AS id, SUM(amount) AS got FROM {DATABASE}.entries GROUP BY payee) g ON g.id = a.id
WHERE a.balance <> {BEGINNING} - COALESCE(p.paid, 0) + COALESCE(g.got, 0)
"""  # noqa: S608 - constants of this module


def _server_check(connection: Connection, server: LabServer) -> list[str]:
    """Ask the server whether tables and indexes agree; returns what it finds wrong."""
    import pymysql

    tables = (f"{DATABASE}.accounts", f"{DATABASE}.entries")
    with connection.cursor() as cursor:
        if server.flavor != "tidb":
            cursor.execute(f"CHECK TABLE {', '.join(tables)}")
            return [f"CHECK TABLE {row[0]}: {row[3]}" for row in cursor.fetchall()
                    if row[2] == "error" or (row[2] == "status" and row[3] != "OK")]  # fmt: skip
        found = []
        for table in tables:  # one at a time: TiDB refuses two in one statement
            try:
                cursor.execute(f"ADMIN CHECK TABLE {table}")
            except pymysql.err.MySQLError as error:
                found.append(f"ADMIN CHECK TABLE {table}: {error}")
    return found
