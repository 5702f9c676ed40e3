"""Two concurrent sessions on the real pair: what each server permits under each level, by the checker's word."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
import pytest

from migverify.cli.main import run
from migverify.workload.anomalies.check import check_history
from migverify.workload.anomalies.compare import PermittedBy, compare_histories
from migverify.workload.anomalies.model import (
    AnomalyName,
    CheckedHistory,
    Commitment,
    HistoryOperation,
    HistoryTransaction,
    OperationKind,
    TransactionHistory,
)
from migverify_lab.servers import LabServer
from tests.conftest import Databases

pytestmark = pytest.mark.db

READ_COMMITTED, REPEATABLE, SERIALIZABLE, UNCOMMITTED = (
    "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "READ UNCOMMITTED"
)  # fmt: skip
# Steps: session, then r(ead) or w(rite) of an account, c(ommit) or a(bort).
SCHEDULES = {
    AnomalyName.LOST_UPDATE: "1r1 2r1 1w1 1c 2w1 2c",
    AnomalyName.WRITE_SKEW: "1r1 1r2 2r1 2r2 1w1 2w2 1c 2c",
    AnomalyName.READ_SKEW: "1r1 2w1 2w2 2c 1r2 1c",
    AnomalyName.NON_REPEATABLE: "1r1 2w1 2c 1r1 1c",
    AnomalyName.ABORTED_READ: "1w1 2r1 1a 2c",
    AnomalyName.INTERMEDIATE_READ: "1w1 2r1 1w1 1c 2c",
}
WEAK = {AnomalyName.LOST_UPDATE, AnomalyName.WRITE_SKEW, AnomalyName.READ_SKEW, AnomalyName.NON_REPEATABLE}
PERMITS = {
    ("source", UNCOMMITTED): WEAK | {AnomalyName.ABORTED_READ, AnomalyName.INTERMEDIATE_READ},
    ("source", READ_COMMITTED): WEAK,
    ("source", REPEATABLE): {AnomalyName.LOST_UPDATE, AnomalyName.WRITE_SKEW},
    ("source", SERIALIZABLE): set(),
    ("target", READ_COMMITTED): WEAK,
    ("target", REPEATABLE): {AnomalyName.LOST_UPDATE, AnomalyName.WRITE_SKEW},
    ("target optimistic", REPEATABLE): {AnomalyName.WRITE_SKEW},
}


@dataclass
class RecordedSession:
    """A session whose statements are recorded; they run in a thread, as one may wait for a lock."""

    name: str
    server: LabServer
    database: str
    level: str
    mode: str = ""
    operations: list[HistoryOperation] = field(default_factory=list)
    outcome: Commitment = Commitment.ABORTED
    times: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self.connection = pymysql.connect(
            host=self.server.host, port=self.server.port, user="root", database=self.database, autocommit=True
        )
        self.failed = ""
        with self.connection.cursor() as cursor:
            cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {self.level}")
            if self.mode:
                cursor.execute(f"SET SESSION tidb_txn_mode = '{self.mode}'")
            cursor.execute("BEGIN")
        self.begin = time.monotonic_ns()
        self.steps: queue.Queue[tuple[str, int] | None] = queue.Queue()
        self.idle = threading.Event()
        self.work = threading.Thread(target=self._work)
        self.work.start()

    def step(self, text: str, value: int) -> None:
        """Ask behind what is asked already; go on where it waits for a lock."""
        self.idle.clear()
        self.steps.put((text, value))
        self.idle.wait(0.3)

    def _work(self) -> None:
        while (step := self.steps.get()) is not None:
            if not self.failed:
                self._ask(*step)
            if self.steps.empty():
                self.idle.set()

    def _ask(self, text: str, value: int) -> None:
        kind, account = text[0], text[1:]
        sql = {
            "r": f"SELECT balance FROM accounts WHERE id = {account}",
            "w": f"UPDATE accounts SET balance = {value} WHERE id = {account}",
            "c": "COMMIT", "a": "ROLLBACK",
        }[kind]  # fmt: skip
        began = time.monotonic_ns()
        self.times = (began, began)
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(sql)
                row = cursor.fetchone()
        except pymysql.MySQLError as error:
            self.failed = str(error)
            self.connection.rollback()
            self.times = (began, time.monotonic_ns())
            return
        ended = time.monotonic_ns()
        self.times = (began, ended)
        if kind == "c":
            self.outcome = Commitment.COMMITTED
        elif kind in "rw":
            seen = str(row[0]) if kind == "r" and row else str(value)
            operation = OperationKind.READ if kind == "r" else OperationKind.WRITE
            self.operations.append(
                HistoryOperation(operation, f"accounts/{account}/balance", seen, began, ended, statement=sql)
            )

    def transaction(self) -> HistoryTransaction:
        self.steps.put(None)
        self.work.join(60)
        assert not self.work.is_alive()
        self.connection.close()
        return HistoryTransaction(self.name, self.name, self.level, self.outcome, self.begin, *self.times,
                                  tuple(self.operations))  # fmt: skip


def recorded(databases: Databases, side: str, level: str, schedule: str) -> CheckedHistory:
    """Interleave two sessions on a server, and check what it permitted."""
    ask = databases.source if side == "source" else databases.target
    ask("REPLACE INTO accounts VALUES (1, 0), (2, 0)", "COMMIT")
    server = databases.pair.source if side == "source" else databases.pair.target
    mode = {"target": "pessimistic", "target optimistic": "optimistic"}.get(side, "")
    sessions = {name: RecordedSession(f"T{name}", server, databases.name, level, mode) for name in "12"}
    for number, step in enumerate(schedule.split(), 1):
        sessions[step[0]].step(step[1:], number * 100)
    transactions = tuple(one.transaction() for one in sessions.values())
    flavor = "mysql" if side == "source" else "tidb"
    initial: dict[str, str | None] = {f"accounts/{account}/balance": "0" for account in "12"}
    return check_history(TransactionHistory(transactions, initial, flavor))


@pytest.fixture
def accounts(databases: Databases) -> Databases:
    databases.both(
        f"USE `{databases.name}`", "CREATE TABLE accounts (id INT NOT NULL PRIMARY KEY, balance INT NOT NULL)"
    )
    return databases


@pytest.mark.parametrize(("side", "level"), PERMITS)
def test_the_checker_says_what_each_server_permits_under_each_level(accounts: Databases, side: str, level: str) -> None:
    permitted = {}
    for name, schedule in SCHEDULES.items():
        checked = recorded(accounts, side, level, schedule)
        assert checked.usability.usable == checked.usability.reads
        permitted[name] = names(checked)
    expected: dict[AnomalyName, Sequence[AnomalyName]] = {
        name: [name] if name in PERMITS[side, level] else [] for name in SCHEDULES
    }
    assert permitted == expected


def names(checked: CheckedHistory) -> list[AnomalyName]:
    return [each.name for each in checked.anomalies]


def test_a_write_skew_that_only_the_target_permits_is_a_finding(accounts: Databases) -> None:
    """MySQL under SERIALIZABLE, TiDB under the level it has: the silent case."""
    source = recorded(accounts, "source", SERIALIZABLE, SCHEDULES[AnomalyName.WRITE_SKEW])
    target = recorded(accounts, "target", REPEATABLE, SCHEDULES[AnomalyName.WRITE_SKEW])
    compared = compare_histories(source, target)
    assert compared.verdict.value == "MISMATCH"
    assert [(each.permitted, each.anomaly.name) for each in compared.anomalies] == [
        (PermittedBy.TARGET, AnomalyName.WRITE_SKEW)
    ]
    assert {name for name, _ in compared.anomalies[0].anomaly.statements} == {"T1", "T2"}


# --- a replay with histories ---------------------------------------------------------------------------------

HEAD = (
    "/usr/sbin/mysqld, Version: 8.0.36 (MySQL Community Server - GPL). started with:\n"
    "Tcp port: 3306  Unix socket: /tmp/mysql.sock\nTime                 Id Command    Argument\n"
)
STEP = 300_000  # microseconds between two statements of a capture
SKEW = (
    (1, "BEGIN"), (2, "BEGIN"),
    (1, "SELECT id, balance FROM accounts WHERE id IN (1, 2)"),
    (2, "SELECT id, balance FROM accounts WHERE id IN (1, 2)"),
    (1, "UPDATE accounts SET balance = 11 WHERE id = 1"), (2, "UPDATE accounts SET balance = 22 WHERE id = 2"),
    (1, "COMMIT"), (2, "COMMIT"),
)  # fmt: skip


def compared(
    databases: Databases,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    steps: Sequence[tuple[int, str]],
    pace: str = "real",
) -> dict[str, Any]:
    """Replay statements of numbered sessions with writes; return what the comparison of both histories says."""
    name = databases.name
    lines = [
        f"2026-01-02T03:04:00.{session:06d}Z\t    {session} Connect\troot@h on {name} using TCP/IP"
        for session in sorted({session for session, _ in steps})
    ]
    for at, (session, sql) in enumerate(steps, 1):
        seconds, part = divmod(at * STEP, 1_000_000)
        lines.append(f"2026-01-02T03:04:{seconds:02d}.{part:06d}Z\t    {session} Query\t{sql}")
    (tmp_path / "general.log").write_text(HEAD + "\n".join(lines) + "\n")
    config = tmp_path / "migverify.yaml"
    config.write_text(json.dumps({
        "source": {"host": databases.pair.source.host, "port": databases.pair.source.port, "user": "root"},
        "target": {"host": databases.pair.target.host, "port": databases.pair.target.port, "user": "root"},
        "tables": {"include": [f"{name}.*"]}, "store": f"sqlite:///{tmp_path}/store.db",
        "workload": {"folder": str(tmp_path / "replays"), "clone_marker": f"{name}.clones"},
    }))  # fmt: skip
    assert run(["workload", "capture", str(tmp_path / "general.log"), "--out", str(tmp_path / "capture")]) == 0
    for side in ("source", "target"):
        mark = ["workload", "replay", "--mark-clone", side, "--config", str(config), "--name", "drill"]
        assert run(mark) == 0, capsys.readouterr().err
    capsys.readouterr()
    run(["workload", "replay", str(tmp_path / "capture"), "--config", str(config), "--writes", "--anomalies",
         "--pace", pace])  # fmt: skip
    err = capsys.readouterr().err
    assert "compare what both sides permitted: migverify workload anomalies " in err
    files = err.partition("workload anomalies ")[2].split()[:2]
    assert run(["workload", "anomalies", *files, "--json"]) == 0  # both permit it
    body: dict[str, Any] = json.loads(capsys.readouterr().out)
    return body


def test_a_replay_records_what_both_servers_permitted(
    accounts: Databases, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accounts.both("REPLACE INTO accounts VALUES (1, 0), (2, 0)", "COMMIT")
    body = compared(accounts, tmp_path, capsys, SKEW)
    assert [(each["permitted_by"], each["name"]) for each in body["anomalies"]] == [("both", "write skew")]
    assert body["source"]["share"] == body["target"]["share"] == 1.0
    assert {each["statement"] for each in body["anomalies"][0]["statements"]} == {
        "SELECT `id` , `balance` FROM `accounts` WHERE `id` IN (...)",
        "UPDATE `accounts` SET `balance` = ? WHERE `id` = ?",
    }  # a replay keeps no values by default


def ordinary_service(rounds: int) -> list[tuple[int, str]]:
    """Return what a service asks that leaves ids to the server and adds to counters; at its end two update one row."""
    steps = []
    for number in range(1, rounds + 1):
        session, customer = number % 3 + 1, number % 2 + 1
        statements = (
            "BEGIN", f"SELECT id, visits FROM customers WHERE id = {customer}",
            f"UPDATE customers SET visits = visits + 1 WHERE id = {customer}",
            f"INSERT INTO orders (customer, amount) VALUES ({customer}, {number * 10})",
            f"INSERT INTO order_lines (order_id, n) VALUES ({number}, 1), ({number}, 2)", "COMMIT",
            f"SELECT id, amount, state FROM orders WHERE id = {number}",
            f"SELECT visits FROM customers WHERE id = {customer}",
            f"SELECT id, order_id, n FROM order_lines WHERE id = {number * 2}",
        )  # fmt: skip
        steps += [(session, sql) for sql in statements]
    read, add = "SELECT visits FROM customers WHERE id = 1", "UPDATE customers SET visits = visits + 1 WHERE id = 1"
    return [*steps, (1, "BEGIN"), (2, "BEGIN"), (1, read), (2, read), (1, add), (1, "COMMIT"), (2, add), (2, "COMMIT")]


def test_ids_from_the_server_and_increments_are_followed(
    databases: Databases, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    databases.both(
        f"USE `{databases.name}`",
        "CREATE TABLE customers (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, visits INT NOT NULL DEFAULT 0)",
        "CREATE TABLE orders (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, customer INT NOT NULL,"
        " amount INT NOT NULL, state VARCHAR(10) NOT NULL DEFAULT 'new', note VARCHAR(20),"
        " FOREIGN KEY (customer) REFERENCES customers (id))",
        "CREATE TABLE order_lines (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, order_id BIGINT NOT NULL, n INT)",
        "INSERT INTO customers (visits) VALUES (7), (7)", "COMMIT",
    )  # fmt: skip
    body = compared(databases, tmp_path, capsys, ordinary_service(8), "x6")
    assert [(each["permitted_by"], each["name"]) for each in body["anomalies"]] == [("both", "lost update")]
    assert body["source"]["ambiguous"] == body["target"]["ambiguous"] == {}, body["source"]["causes"]
    assert body["source"]["share"] == body["target"]["share"] == 1.0
    assert body["source"]["opaque"] == body["target"]["opaque"] == 0
