"""Real conflicts of a real TiDB, from code that asks one statement after another; explained from its own logs.

The server is the test's own: its slow log takes every statement, and asynchronous commit is on, as it is on every
cluster that was new with TiDB 5.0 or later. Nothing here runs two statements at one time on purpose: each function
below is what a single thread of an application does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest

from migverify_lab import tidb
from migverify_lab.engine import temporary_server
from tests.waiting import wait_for

pytestmark = pytest.mark.db
DATABASE = "h_conflict"


@dataclass(frozen=True)
class OwnTidb:
    """A TiDB, its logs, and a configuration whose target it is."""

    port: int
    log: Path
    slow_log: Path
    config: Path

    def connect(self, **more: Any) -> pymysql.connections.Connection[Any]:
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=DATABASE, autocommit=True, **more
        )

    def explain(self, *arguments: str, stdin: str = "", code: int | None) -> list[dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, "-m", "migverify", "workload", "explain-conflict", "--json", *arguments],
            input=stdin, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == code or (code is None and done.returncode in (0, 3)), done.stderr + done.stdout
        conflicts: list[dict[str, Any]] = json.loads(done.stdout)["conflicts"]
        return conflicts


def ask(session: pymysql.connections.Connection[Any], sql: str) -> list[tuple[Any, ...]]:
    with session.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def number_of(session: pymysql.connections.Connection[Any]) -> str:
    return str(ask(session, "SELECT CONNECTION_ID()")[0][0])


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnTidb]:
    if tidb.find() is None and os.environ.get("MIGVERIFY_REQUIRE_DB", "") in {"", "0"}:
        pytest.skip("TiDB is not in the cache: run `migverify lab build` once")
    folder = tmp_path_factory.mktemp("tidb")
    with temporary_server(tidb.ENGINE, folder) as server:
        port = server.port
        with closing(pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True)) as session:
            ask(session, f"CREATE DATABASE {DATABASE}")
            ask(session, "SET GLOBAL tidb_slow_log_threshold = 0")
            ask(session, "SET GLOBAL tidb_enable_async_commit = ON")
            ask(session, "SET GLOBAL tidb_enable_1pc = OFF")  # one region: it would hide what clusters do
            for table in ("accounts", "wallets"):
                ask(
                    session, f"CREATE TABLE {DATABASE}.{table} (id INT PRIMARY KEY, v INT, w VARCHAR(20), KEY by_v (v))"
                )
                ask(session, f"INSERT INTO {DATABASE}.{table} VALUES (1, 1, 'a'), (2, 2, 'b')")
            # asynchronous commit takes 256 keys and 4 KiB of them at most
            ask(session, f"CREATE TABLE {DATABASE}.parcels (id INT PRIMARY KEY, v INT)")
            rows = ", ".join(f"({number}, 0)" for number in range(1, 151))
            ask(session, f"INSERT INTO {DATABASE}.parcels VALUES {rows}")
        config = folder / "migverify.yaml"
        config.write_text(
            "source: {url: 'mysql://root@127.0.0.1:3306'}\n"
            f"target: {{url: 'tidb://root@127.0.0.1:{port}'}}\ntables: {{include: ['*.*']}}\n"
        )
        yield OwnTidb(port, folder / "tidb.log", folder / "slow.log", config)


def _clear_locks_before_answers(session: pymysql.connections.Connection[Any]) -> None:
    """Let a writer's locks be gone when it is answered.

    After an asynchronous commit they linger. An optimistic transaction that meets one is refused at once, by a message
    with ``conflictCommitTS=0``: how long both were under way cannot be told from it.
    """
    ask(session, "SET SESSION tidb_enable_async_commit = OFF")


def _written(path: Path, *texts: str) -> None:
    """Wait until a log holds these texts: TiDB writes it when it has answered."""
    wait_for(lambda: all(text in path.read_text(errors="replace") for text in texts), f"{path.name} shows {texts}")


def test_write_conflict_of_two_clients(own: OwnTidb) -> None:
    """The plain case: an optimistic transaction, and an autocommit statement in its midst."""
    with closing(own.connect()) as slow, closing(own.connect()) as quick:
        ours, other = number_of(slow), number_of(quick)
        _clear_locks_before_answers(quick)
        ask(slow, "BEGIN OPTIMISTIC")
        ask(slow, "UPDATE accounts SET v = v + 1 WHERE id = 1")
        ask(quick, "UPDATE accounts SET v = v + 10 WHERE id = 1")
        with pytest.raises(pymysql.OperationalError) as refused:
            ask(slow, "COMMIT")
    message = str(refused.value.args[1])
    assert refused.value.args[0] == 9007
    _written(
        own.slow_log,
        f"# Conn_ID: {ours}",
        f"# Conn_ID: {other}",
        "v + 10",
        "Prev_stmt: UPDATE accounts SET v = v + 1 WHERE id = 1\nCOMMIT;",
    )

    alone = own.explain("-", stdin=f"ERROR 9007 (HY000): {message}", code=3)[0]
    assert alone["cause"] == "UNKNOWN"
    assert alone["key"]["table"] == f"{DATABASE}.accounts"
    assert alone["overlap"]["ms"] >= 0
    assert alone["ours"]["statement"] is alone["other"]["statement"] is None

    told = own.explain(message, "--log", str(own.slow_log), "--config", str(own.config), code=0)[0]
    assert (told["ours"]["session"], told["other"]["session"]) == (ours, other)
    assert told["ours"]["statement"]["sql"] == "UPDATE accounts SET v = v + 1 WHERE id = 1"
    assert told["ours"]["ended_by"]["sql"] == "COMMIT"
    assert told["other"]["statement"]["sql"] == "UPDATE accounts SET v = v + 10 WHERE id = 1"
    assert told["key"]["values"] == ["1"] or (told["key"]["index"], told["key"]["values"][1:]) == ("by_v", ["1"])
    assert told["cause"] == "autocommit statement"


def test_write_conflict_from_serial_code(own: OwnTidb) -> None:
    """A client times out, connects anew and asks the same again. Its first statement still runs, and wins."""
    update = "UPDATE wallets SET v = v + 1 WHERE id = 1 AND SLEEP(@pause) = 0"

    first = own.connect(read_timeout=0.5)
    gone = number_of(first)
    _clear_locks_before_answers(first)
    ask(first, "SET @pause = 2")
    with pytest.raises(pymysql.OperationalError, match="timed out"):
        ask(first, update)
    with suppress(pymysql.Error):
        first.close()

    with closing(own.connect()) as again:
        ours = number_of(again)
        ask(again, "SET @pause = 0")
        ask(again, "BEGIN OPTIMISTIC")
        ask(again, update)
        with closing(own.connect()) as watch:  # the application's own work takes its time before it commits
            current = "SELECT v FROM wallets WHERE id = 1"
            wait_for(lambda: ask(watch, current) != [(1,)], "the server has carried out the first statement")
        with pytest.raises(pymysql.OperationalError, match="Write conflict"):
            ask(again, "COMMIT")
    _written(own.log, "Write conflict", f"conn={ours}]")
    _written(own.slow_log, f"# Prev_stmt: {update}\nCOMMIT;")

    explained = own.explain("--log", str(own.log), "--log", str(own.slow_log), code=None)
    told = [one for one in explained if one["code"]]  # without the statements that met locks
    mine = next(one for one in told if one["ours"]["session"] == ours)
    assert mine["cause"] == "timed-out client"
    assert (mine["ours"]["session"], mine["other"]["session"]) == (ours, gone)
    assert mine["ours"]["statement"]["sql"] == mine["other"]["statement"]["sql"] == update
    assert mine["key"]["table"] == f"{DATABASE}.wallets"
    # ours began while the other one was under way: that is the overlap the code does not show
    assert mine["other"]["start"] < mine["ours"]["start"] < mine["other"]["commit"]
    assert (mine["overlap"]["from"], mine["overlap"]["to"]) == (mine["ours"]["start"], mine["other"]["commit"])
    assert len([one for one in told if one["ours"]["session"] == ours]) == 1  # TiDB writes four lines of it


def test_read_write_conflict_from_serial_code(own: OwnTidb) -> None:
    """One connection writes a row and reads it. The write was answered, its lock is not cleared yet: the read waits."""
    with closing(own.connect()) as session:
        only = number_of(session)
        for attempt in range(20):
            for turn in range(100):
                ask(session, f"UPDATE parcels SET v = v + 1 /* {attempt}.{turn} */")
                ask(session, f"SELECT v FROM parcels WHERE id = 150 /* {attempt}.{turn} */")
            _written(own.slow_log, f"SELECT v FROM parcels WHERE id = 150 /* {attempt}.99 */;")
            told = own.explain("--log", str(own.slow_log), "--limit", "10", code=None)
            waited = [one for one in told if "txnLockFast" in one["backoffs"] and one["ours"]["session"] == only
                      and one["ours"]["statement"]["sql"].startswith("SELECT")]  # fmt: skip
            if waited:
                break
        else:
            pytest.fail("2,000 reads met no lock of the statement before them")
    one = waited[0]
    assert one["kind"] == "read met a lock"
    assert one["cause"] == "asynchronous commit"
    assert one["other"]["session"] == only  # the writer is the reader's own session, and its last statement
    mark = one["ours"]["statement"]["sql"].partition("/*")[2]
    assert one["other"]["statement"]["sql"] == f"UPDATE parcels SET v = v + 1 /*{mark}"
    assert one["other"]["statement"]["end"] <= one["ours"]["statement"]["begin"]
    assert one["waited_ms"] > 0
    assert one["overlap"]["to"] == one["ours"]["statement"]["end"]
    assert "one session wrote and read: no concurrency in the code" in one["candidates"][0]["evidence"]
