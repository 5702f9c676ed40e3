"""Probes by SQL on real servers: a long transaction, a queue for a lock, a server that hangs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from migverify.config import SqlProbes
from migverify.guards import fallback
from migverify.guards.counters import WRITES
from migverify.guards.fallback import Fallback
from migverify.guards.model import AnswerState, GuardAnswer
from migverify.model import Endpoint
from migverify_lab.process import find_by_argument
from migverify_lab.servers import LabServer, LabServers
from migverify_lab.session import connect
from tests.db.binlog_server import binlog_server

pytestmark = pytest.mark.db

PATIENCE = 60.0


def probes(*servers: tuple[str, LabServer], **bounds: float) -> Fallback:
    places = [(Endpoint(name, one.host, one.port, one.user), None) for name, one in servers]
    return Fallback(places, SqlProbes(**bounds))  # type: ignore[arg-type]


def by_name(answers: list[GuardAnswer]) -> dict[tuple[str, str], GuardAnswer]:
    return {(a.subject, a.name.removesuffix(" (SQL fallback)")): a for a in answers}


@contextmanager
def waiting(databases: Any, server: LabServer) -> Iterator[None]:
    """One session holds a row, another waits for it."""
    with connect(server, databases.name) as holder, connect(server, databases.name) as waiter:
        holder.cursor().execute("BEGIN")
        holder.cursor().execute("UPDATE t SET v = v + 1 WHERE id = 1")

        def queue() -> None:
            cursor = waiter.cursor()
            cursor.execute("BEGIN")
            cursor.execute("UPDATE t SET v = v + 1 WHERE id = 1")
            cursor.execute("ROLLBACK")

        thread = threading.Thread(target=queue, daemon=True)
        thread.start()
        try:
            yield
        finally:
            holder.cursor().execute("ROLLBACK")
            thread.join(PATIENCE)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_transaction_and_a_queue_are_seen(databases: Any, pair: LabServers, side: str) -> None:
    databases.both("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 0)")
    server = getattr(pair, side)
    asking = probes((side, server), max_transaction_seconds=1, max_lock_waits=0)
    deadline = time.monotonic() + PATIENCE
    with waiting(databases, server):
        while True:
            answers, unasked = asking.ask()
            assert not unasked
            found = by_name(answers)
            oldest, waits = found[side, "long transactions"], found[side, "lock waits"]
            if oldest.state is waits.state is AnswerState.FAIL:
                break
            assert time.monotonic() < deadline, (oldest.value, waits.value)
            time.sleep(0.2)
    assert oldest.numbers["transactions"] >= 2
    assert waits.numbers["waiting"] >= 1
    assert found[side, "connections"].numbers["used"] >= 3


def test_writes_are_counted(databases: Any, pair: LabServers) -> None:
    databases.both("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)")
    asking = probes(("source", pair.source))
    asking.ask()
    time.sleep(fallback._APART)  # a reading of a moment ago is no `before`: another one would be made
    databases.source(*("INSERT INTO t (v) VALUES (1)" for _ in range(100)))
    answer = by_name(asking.ask()[0])["source", "queries"]
    assert answer.state is AnswerState.PASS, answer.value
    assert answer.numbers[f"{WRITES}_per_second"] > 0


def test_a_server_that_hangs_or_is_gone_is_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback, "_LONGEST", 1.0)
    with binlog_server(tmp_path) as server:
        (process,) = find_by_argument(f"--datadir={server.data}")
        asking = probes(("source", server.server))
        assert not asking.ask()[1]
        os.kill(process.pid, signal.SIGSTOP)
        try:
            answers, unasked = asking.ask()
        finally:
            os.kill(process.pid, signal.SIGCONT)
        assert not answers
        assert "source (SQL fallback)" in unasked[0]
        assert not asking.ask()[1]
    answers, unasked = asking.ask()
    assert not answers
    assert unasked
