"""Reads of a worker: retries, cancellation and throttles, with sessions that are not there."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from migverify.db import pool as pool_module
from migverify.db import reader as read_module
from migverify.db.pool import SessionPool
from migverify.db.reader import Reader
from migverify.db.session import Session
from migverify.errors import (
    CanceledError,
    EndpointError,
    LoginError,
    PrivilegeError,
    ReadError,
    ReplacedError,
    RetryableReadError,
    TimeLimitError,
)
from migverify.model import Flavor
from migverify.tables.tasks import Rules
from tests.toy_tables import make_pair

RULES = Rules(retries=2, retry_seconds=0.0)


class ToySession:
    """Answers with what ``answers`` gives for a statement."""

    flavor = Flavor.MYSQL
    thread_id = 7

    def __init__(self, endpoint: Any, answers: Callable[[str], Any]) -> None:
        self.endpoint, self._answers = endpoint, answers
        self.closed = self.aborted = False

    def query(self, text: str) -> Any:
        return self._answers(text)

    query_bytes = query_named = execute = query

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def __enter__(self) -> ToySession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Opened(list[ToySession]):
    """All sessions opened so far; ``answers`` says what they answer, ``refusal`` makes opening fail."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: Callable[[str], Any] = lambda _: [("5",)]
        self.refusal: Exception | None = None

    def open(self, endpoint: Any, _password: str | None) -> ToySession:
        if self.refusal is not None:
            raise self.refusal
        self.append(ToySession(endpoint, lambda text: self.answers(text)))
        return self[-1]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    found = Opened()
    monkeypatch.setattr(pool_module, "open_session", found.open)
    return found


@pytest.fixture
def pool() -> SessionPool:
    return SessionPool({})


def reader(pool: SessionPool, rules: Rules = RULES) -> Reader:
    return Reader(make_pair().sources[0], pool, rules)


def failing(error: Exception, times: int) -> Callable[[str], Any]:
    left = [times]

    def answer(_: str) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise error
        return [("5",)]

    return answer


def test_a_lost_connection_is_replaced_and_the_read_repeated(opened: Opened, pool: SessionPool) -> None:
    opened.answers = failing(RetryableReadError("lost"), 2)
    assert reader(pool).count() == 5
    assert [session.closed for session in opened] == [True, True, False]


def test_when_the_retries_are_used_up_the_last_reason_stands(opened: Opened, pool: SessionPool) -> None:
    opened.answers = failing(RetryableReadError("lost", hint="look at the network"), 99)
    with pytest.raises(ReadError, match="gave up after 3 attempts: lost") as caught:
        reader(pool).count()
    assert caught.value.hint == "look at the network"
    assert len(opened) == 3


def test_a_server_that_lets_nobody_in_is_asked_again(opened: Opened, pool: SessionPool) -> None:
    opened.refusal = EndpointError("no connection is left")
    with pytest.raises(ReadError, match="gave up after 3 attempts: no connection is left"):
        reader(pool).count()


@pytest.mark.parametrize(
    "error", [PrivilegeError("denied"), LoginError("1045"), TimeLimitError("slow"), ReadError("1064")]
)
def test_what_would_end_the_same_is_not_repeated(opened: Opened, pool: SessionPool, error: Exception) -> None:
    opened.answers = failing(error, 99)
    with pytest.raises(type(error)):
        reader(pool).count()
    assert len(opened) == 1
    assert opened[0].closed


def test_a_session_goes_from_read_to_read(opened: Opened, pool: SessionPool) -> None:
    for _ in range(5):
        assert reader(pool).count() == 5
    assert len(opened) == 1
    pool.close()
    assert opened[0].closed


def test_after_the_order_to_stop_no_read_begins(opened: Opened, pool: SessionPool) -> None:
    pool.kill_all()
    with pytest.raises(CanceledError):
        reader(pool).count()
    with pytest.raises(CanceledError):
        reader(pool).pause(3600.0)
    assert not opened


def test_a_session_opened_while_the_order_came_reads_nothing(
    opened: Opened, pool: SessionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the order and the list of sessions to stop there is a moment in which neither sees it."""

    def open_late(endpoint: Any, password: str | None) -> ToySession:
        session = opened.open(endpoint, password)
        monkeypatch.setattr(pool_module, "open_session", opened.open)
        pool.kill_all()
        return session

    monkeypatch.setattr(pool_module, "open_session", open_late)
    asked: list[str] = []
    opened.answers = asked.append
    with pytest.raises(CanceledError):
        reader(pool).count()
    assert not asked
    assert opened[0].closed


def test_the_order_cuts_connections_and_kills_their_queries(opened: Opened, pool: SessionPool) -> None:
    asked: list[str] = []
    running, stop = threading.Event(), threading.Event()

    def answer(text: str) -> Any:
        asked.append(text)
        if text.startswith("SELECT"):
            running.set()
            assert stop.wait(10)
            raise RetryableReadError("Lost connection")
        return []

    opened.answers = answer
    one = reader(pool)
    future = one.later(one.count)
    assert running.wait(10)
    pool.kill_all()
    stop.set()
    with pytest.raises(CanceledError):
        future.result(10)
    assert opened[0].aborted
    assert asked[-1] == "KILL QUERY 7"
    one.close()


def test_one_server_that_is_gone_is_asked_once_to_kill(opened: Opened, pool: SessionPool) -> None:
    endpoint = make_pair().sources[0].endpoint
    with pool.session(endpoint), pool.session(endpoint), pool.session(endpoint):
        tries = [0]

        def refuse(_endpoint: Any, _password: str | None) -> ToySession:
            tries[0] += 1
            raise EndpointError("no answer")

        pool_module.open_session = refuse  # type: ignore[assignment]
        pool.kill_all()
    assert tries == [1]
    assert all(session.aborted for session in opened)


@pytest.mark.parametrize(("lag", "runs"), [("3", True), ("60", False), (None, False)])
def test_a_replica_behind_holds_reads_back(opened: Opened, pool: SessionPool, lag: str | None, runs: bool) -> None:
    def answer(text: str) -> Any:
        if text.startswith("SHOW GLOBAL STATUS"):
            return [("Threads_running", "1")]
        if text.startswith("SHOW REPLICA STATUS"):
            asked.append(text)
            if len(asked) > 1:
                pool.canceled.set()  # enough waiting for a test
            return [{"Seconds_Behind_Source": lag}]
        counted.append(text)
        return [("5",)]

    asked: list[str] = []
    counted: list[str] = []
    opened.answers = answer
    one = reader(pool, replace(RULES, max_replica_lag=5.0))
    if runs:
        assert one.count() == 5
    else:
        with pytest.raises(CanceledError):
            one.count()
        assert not counted


def test_aborting_a_session_whose_socket_is_gone_is_quiet() -> None:
    # PyMySQL sets its socket to None in the reading thread when that meets an error: a race with abort().
    session = object.__new__(Session)
    session._connection = SimpleNamespace(_sock=None)  # type: ignore[assignment]
    session.abort()
    near, far = socket.socketpair()
    session._connection = SimpleNamespace(_sock=near)  # type: ignore[assignment]
    session.abort()
    assert far.recv(1) == b""
    near.close()
    session.abort()
    far.close()


@pytest.mark.parametrize(("stamps", "words"), [(["5/7", "6/7"], "its id is 6, and was 5"), (["5/7", "5/8"], "columns")])
def test_a_read_of_another_table_is_refused(
    opened: Opened, pool: SessionPool, monkeypatch: pytest.MonkeyPatch, stamps: list[str], words: str
) -> None:
    left = list(stamps)
    opened.answers = lambda _: [(left.pop(0).encode(), b"1")]
    monkeypatch.setattr(ToySession, "sees_table_ids", True, raising=False)
    monkeypatch.setattr(read_module, "read_table", lambda *_: None)
    side = replace(make_pair().sources[0], columns_number=7)
    one = Reader(side, pool, RULES)
    assert one.query("SELECT 1 FROM t") == [(b"1",)]
    with pytest.raises(ReplacedError, match=words):
        one.query("SELECT 1 FROM t")
