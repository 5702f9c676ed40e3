"""What the load writes down about each try, and what a client knows of a write by where it failed."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pymysql
import pytest

from migverify.errors import LabError
from migverify_lab import bank
from migverify_lab.ledger import ACKED, REFUSED, UNKNOWN, read_ledger
from migverify_lab.load import Load, SqlClient, TryOutcome
from migverify_lab.session import LabServer
from tests.waiting import wait_for

SERVER = LabServer("127.0.0.1", 1, "root", "mysql", "")


class Connection:
    """Fails where it is told to."""

    def __init__(self, fails: str = "", code: int = 2013) -> None:
        self.fails, self.code, self.closed = fails, code, False

    def _do(self, what: str) -> None:
        if self.fails == what:
            raise pymysql.err.OperationalError(self.code, "as it was told")

    def begin(self) -> None:
        self._do("begin")

    def cursor(self) -> Any:
        return nullcontext(self)

    def execute(self, _sql: str, _values: Any = None) -> None:
        self._do("execute")

    def commit(self) -> None:
        self._do("commit")

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("fails", "code", "end"),
    [("", 0, ACKED), ("begin", 2013, REFUSED), ("execute", 2013, REFUSED), ("execute", 1062, REFUSED),
     ("commit", 2013, UNKNOWN), ("commit", 2006, UNKNOWN), ("commit", 1105, UNKNOWN), ("commit", 1180, UNKNOWN),
     ("commit", 9007, REFUSED), ("commit", 1213, REFUSED)],
)  # fmt: skip
def test_only_a_commit_that_was_sent_can_be_unknown(fails: str, code: int, end: str) -> None:
    client, connection = SqlClient(), Connection(fails, code)
    done = client.transact(lambda: connection, lambda cursor: cursor.execute("INSERT"), "source")  # type: ignore[arg-type,return-value]
    assert (done.end, done.code, done.where) == (end, code, "source")
    assert (client.connection is None) == bool(fails), "a connection that failed is not used again"
    assert connection.closed == bool(fails)


def test_who_is_not_let_in_is_refused() -> None:
    def refuse() -> Any:
        raise LabError("no") from pymysql.err.OperationalError(1040, "Too many connections")

    done = SqlClient().transact(refuse, lambda _: None)
    assert (done.end, done.code, done.text) == (REFUSED, 1040, "(1040, 'Too many connections')")


class Counting:
    """Acknowledges every second try."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.closed = False

    def attempt(self, token: str) -> TryOutcome:
        self.tokens.append(token)
        return TryOutcome(ACKED, "old") if len(self.tokens) % 2 else TryOutcome(UNKNOWN, code=2013, text="lost")

    def close(self) -> None:
        self.closed = True


def test_every_try_and_its_end_are_in_the_ledger(tmp_path: Path) -> None:
    clients, path = [Counting(), Counting()], tmp_path / "ledger"
    for _ in range(2):  # a second load goes on in the same ledger, with tokens of its own
        load = Load(clients, path, 200.0)
        thread = threading.Thread(target=load.run)
        thread.start()
        wait_for(lambda: path.exists() and len(read_ledger(path)) >= 8, "some tries")
        load.stopped.set()
        thread.join(20)
    tokens = [token for client in clients for token in client.tokens]
    assert len(set(tokens)) == len(tokens)
    attempts = read_ledger(path)
    assert {one.token for one in attempts} == set(tokens)
    assert {(one.end, one.where, one.code) for one in attempts} == {(ACKED, "old", 0), (UNKNOWN, "", 2013)}
    assert all(client.closed for client in clients)


def test_ids_of_an_unknown_kind_are_refused() -> None:
    with pytest.raises(LabError, match="nobody makes ids"):
        bank.create(SERVER, "dice")
