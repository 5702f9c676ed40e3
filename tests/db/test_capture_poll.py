"""Statements of a real server, polled from performance_schema."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from migverify.cli.main import run
from migverify.db.session import Session, open_session
from migverify.errors import ExitCode, UsageError
from migverify.model import Side
from migverify.workload.poll import Poller
from tests.conftest import Databases
from tests.db.binlog_server import SourceServer, binlog_server
from tests.db.test_capture_logs import client

pytestmark = pytest.mark.db
pq = pytest.importorskip("pyarrow.parquet")

SIZE = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceServer]:
    size = f"--performance-schema-events-statements-history-long-size={SIZE}"
    with binlog_server(tmp_path_factory.mktemp("mysql"), size) as made:
        made.run("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        made.run("CREATE PROCEDURE shop.p() BEGIN SELECT 1; SELECT 2; END")
        yield made


@pytest.fixture
def ring(server: SourceServer) -> Iterator[SourceServer]:
    update = (
        "UPDATE performance_schema.setup_consumers SET ENABLED = '{}' WHERE NAME = 'events_statements_history_long'"
    )
    server.run(update.format("YES"))
    yield server
    server.run(update.format("NO"))


@pytest.fixture
def session(server: SourceServer) -> Iterator[Session]:
    opened = open_session(server.endpoint, None, side=Side.SOURCE)
    yield opened
    opened.close()


def events(out: StringIO) -> list[dict[str, Any]]:
    return [told for line in out.getvalue().splitlines() if "event" in (told := json.loads(line))]


def test_outcomes(ring: SourceServer, session: Session) -> None:
    old = client(ring.server.port)
    old.ask(b"SELECT 'before the poll'")
    poller = Poller(session, out := StringIO())
    before = time.time()
    new = client(ring.server.port)
    for one in (old, new):
        for sql in (b"SELECT 1 UNION SELECT 2", b"SELECT nope", b"INSERT IGNORE INTO t VALUES (1), (1)", b"CALL p()",
                    b"SELECT '" + b"x" * 2000 + b"'", b"SELEKT"):  # fmt: skip
            one.ask(sql)
        poller.poll()
        poller.poll()  # nothing comes twice
    for one in (old, new):
        mine = [told for told in events(out) if told["session"] == one.number]
        told = {str(each["sql"])[:12]: each for each in mine}
        assert [each["sql"] for each in mine if each["name"].startswith("statement/sql/")][-6:-2] == [
            "SELECT 1 UNION SELECT 2", "SELECT nope", "INSERT IGNORE INTO t VALUES (1), (1)", "CALL p()",
        ]  # fmt: skip
        assert "SELECT 'befo" not in told
        assert (told["SELECT 1 UNI"]["errno"], told["SELECT 1 UNI"]["rows_sent"]) == (0, 2)
        assert told["SELECT nope"]["errno"] == 1054
        assert told["INSERT IGNOR"]["warnings"] == (1 if one is old else 2)
        assert told["INSERT IGNOR"]["rows_affected"] == (1 if one is old else 0)
        assert (told["SELECT 'xxxx"]["cut"], told["SELEKT"]["errno"]) == (True, 1064)
        assert len(told["SELECT nope"]["digest"]) == 64
        assert told["SELECT nope"]["database"] == "shop"
        assert all(before - 1 < each["start"] / 1e6 <= each["end"] / 1e6 < time.time() + 1 for each in mine)
        one.connection.close()
    assert poller.count.nested == 4
    assert (poller.count.gaps, poller.count.overruns, poller.count.cut_texts) == (0, 0, 2)


def test_what_the_ring_overwrote_is_counted(ring: SourceServer, session: Session) -> None:
    one = client(ring.server.port)
    poller = Poller(session, out := StringIO())
    one.ask(b"SELECT 'seen'")
    poller.poll()
    for number in range(3 * SIZE):
        one.ask(b"SELECT %d" % number)
    poller.poll()
    assert poller.count.overruns == 1
    assert poller.count.lost_at_most >= 2 * SIZE - 2
    assert poller.count.events + poller.count.lost_at_most >= 3 * SIZE
    assert '"lost": "the ring' in out.getvalue()
    one.connection.close()


def test_the_history_of_threads_serves_where_the_ring_is_off(server: SourceServer, session: Session) -> None:
    one = client(server.server.port)
    poller = Poller(session, out := StringIO())
    for number in range(8):
        one.ask(b"SELECT %d" % number)
    poller.poll()
    assert poller.count.table == "events_statements_history"
    assert [told["sql"] for told in events(out) if told["session"] == one.number] == [f"SELECT {n}" for n in range(8)]
    for number in range(30):
        one.ask(b"SELECT %d" % number)
    poller.poll()
    assert (poller.count.gaps, poller.count.lost_at_most >= 20) == (1, True)
    one.connection.close()


def test_tidb_is_refused(databases: Databases) -> None:
    target = databases.pair.target
    from migverify.model import Endpoint

    opened = open_session(Endpoint("target", target.host, target.port, target.user), None)
    with pytest.raises(UsageError, match="TiDB has no statement events"):
        Poller(opened, StringIO())
    opened.close()


def test_the_command(ring: SourceServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, out = str(ring.config(tmp_path)), tmp_path / "out"
    one = client(ring.server.port)
    stop = threading.Event()

    def load() -> None:
        number = 0
        while not stop.wait(0.01):
            one.ask(b"SELECT %d FROM t" % number)
            number += 1

    thread = threading.Thread(target=load)
    thread.start()
    try:
        code = run(
            [
                "workload",
                "capture",
                "--poll",
                "--config",
                config,
                "--out",
                str(out),
                "--seconds",
                "1.5",
                "--interval",
                "0.1",
                "--json",
            ]
        )
        printed, err = capsys.readouterr()
        assert code == 0, err
        told = json.loads(printed)
        assert told["poll"]["polls"] > 5
        assert told["poll"]["gaps"] == told["rejected"] == 0
        rows = [row for row in pq.read_table(out).to_pylist() if row["connection"] == one.number]
        assert len(rows) > 20
        sent = [sql for sql, *_ in one.sent]
        first = sent.index(rows[0]["sql"])
        assert [row["sql"] for row in rows] == sent[first : first + len(rows)]
        assert {(row["errno"], row["database"], row["partial"]) for row in rows} == {(0, "shop", "")}
        poll = ["workload", "capture", "--poll", "--config", config]
        assert run([*poll, "--out", str(out), "--seconds", "0"]) == ExitCode.USAGE
        masked = tmp_path / "masked"
        code = run([*poll, "--out", str(masked), "--seconds", "0.3", "--mask"])
        assert code == 0
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "masked",
            "migverify.yaml",
            "out",
            "out.events.jsonl",
        ]

        command = [
            sys.executable,
            "-m",
            "migverify",
            "workload",
            "capture",
            "--poll",
            "--config",
            config,
            "--out",
            str(tmp_path / "c"),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        events_file = tmp_path / "c.events.jsonl"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (events_file.exists() and events_file.stat().st_size > 500):
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGINT)
        printed, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert "statements in" in printed
        assert pq.read_table(tmp_path / "c").num_rows > 0
    finally:
        stop.set()
        thread.join()
    one.connection.close()
