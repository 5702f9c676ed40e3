"""A captured payment load replayed on a real pair: all the same, planted differences found, killed and resumed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest

from migverify.cli.main import run as run_command
from migverify.db.session import open_session
from migverify.model import Endpoint, Side, Verdict
from migverify.workload.catalogue.load import load
from migverify.workload.replay.clone import mark
from migverify.workload.replay.connections import EngineOptions
from migverify.workload.replay.keys import read_keys
from migverify.workload.replay.model import Judgement
from migverify.workload.replay.pace import parse_pace
from migverify.workload.replay.plan import ReplayPlan, read_plan
from migverify.workload.replay.run import ReplayResult, replay
from migverify.workload.replay.runfile import RunFile
from migverify.workload.replay.safety import Leave, ReplayEndpoints
from migverify.workload.replay.verdict import CatalogueLabels, verdict
from migverify.workload.replay.wire import Limits
from migverify.workload.statement_files import read_columns
from tests.conftest import Databases
from tests.replay_load import Line, captured, payments, setup
from tests.waiting import wait_for

pytestmark = pytest.mark.db

SESSIONS = 6


@pytest.fixture
def loaded(databases: Databases) -> Databases:
    for connection in databases.connections:
        with connection.cursor() as cursor:
            for statement in setup(databases.name, SESSIONS):
                cursor.execute(statement)
        connection.commit()
    return databases


def sides(databases: Databases, *, target_only: bool = False) -> ReplayEndpoints:
    pair = databases.pair
    found = {
        Side.SOURCE: Endpoint("source", pair.source.host, pair.source.port, "root", connections=8),
        Side.TARGET: Endpoint("target", pair.target.host, pair.target.port, "root", connections=8),
    }
    return ReplayEndpoints({Side.TARGET: found[Side.TARGET]} if target_only else found)


def plan(lines: list[Line], databases: Databases, folder: Path, leave: Leave) -> ReplayPlan:
    capture = captured(lines, databases.name, folder)
    with open_session(sides(databases).endpoints[Side.SOURCE], None) as session:
        keys = read_keys(session, [databases.name])
    return read_plan(capture, folder / "run", read_columns, leave=leave, keys=keys)


def play(databases: Databases, folder: Path, *, jobs: int = 1, target_only: bool = False, **more: Any) -> ReplayResult:
    options = EngineOptions(pace=parse_pace("fast"), connections=8, limits=Limits(seconds=20), **more)
    return replay(folder / "run", sides(databases, target_only=target_only), options, jobs=jobs)


def states(result: ReplayResult) -> dict[str, int]:
    return {state.value: result.tally.state(state) for state in Judgement if result.tally.state(state)}


def contents(databases: Databases) -> list[list[Any]]:
    """Rows of the tables, side by side."""
    found = []
    for connection in databases.connections:
        connection.commit()
        rows: list[Any] = []
        with connection.cursor() as cursor:
            for what in (
                "account_id, currency, balance, version FROM wallets", "id, state, note, changed_at FROM payments",
                "id, amount, kind FROM ledger_entries", "id, payments_count, last_activity FROM accounts",
            ):  # fmt: skip
                cursor.execute(f"SELECT {what} ORDER BY 1, 2")
                rows += cursor.fetchall()
        found.append(rows)
    return found


def test_a_payment_load_is_the_same_on_clones(loaded: Databases, tmp_path: Path) -> None:
    lines = payments(loaded.name, SESSIONS, 10)
    made = plan(lines, loaded, tmp_path, Leave(writes=True))
    assert made.writes > 100
    assert made.skips == {}
    result = play(loaded, tmp_path, jobs=2, writes=True)
    assert states(result) == {"same": len(lines)}
    assert result.unfinished == ()
    source, target = contents(loaded)
    assert len(source) > 200
    assert source == target


def test_reads_alone_leave_writes_unasked(loaded: Databases, tmp_path: Path) -> None:
    lines = payments(loaded.name, SESSIONS, 4)
    made = plan(lines, loaded, tmp_path, Leave())
    before = contents(loaded)
    result = play(loaded, tmp_path)
    ((reason, count),) = made.skips.items()
    assert ("not permitted" in reason, count) == (True, made.kinds["write"]), reason
    assert states(result) == {"same": made.asked, "unjudged": made.kinds["write"]}
    assert contents(loaded) == before


def ids(databases: Databases) -> tuple[int, int]:
    with databases.connections[0].cursor() as cursor:
        cursor.execute("SELECT id FROM accounts ORDER BY id LIMIT 2")
        ((first,), (second,)) = cursor.fetchall()
    databases.connections[0].commit()
    return int(first), int(second)


def test_a_captured_lock_wait_does_not_stall_the_replay(loaded: Databases, tmp_path: Path) -> None:
    """The first session holds what the second waits for, and is to wait for the second's end itself."""
    first, second = ids(loaded)
    update = f"UPDATE `{loaded.name}`.accounts SET name = 'x' WHERE id = "
    lines = [
        Line(1, 0, "BEGIN"), Line(1, 1_000, f"{update}{first}"), Line(2, 1_500, "BEGIN"),
        Line(2, 2_000, f"{update}{second}"), Line(2, 3_000, f"{update}{first}", took=50_000_000, errno=1205),
        Line(2, 50_100_000, "ROLLBACK"), Line(1, 51_000_000, f"{update}{second}"), Line(1, 51_001_000, "COMMIT"),
    ]  # fmt: skip
    plan(lines, loaded, tmp_path, Leave(writes=True))
    result = play(loaded, tmp_path, writes=True)
    assert result.counters.forced == 0  # nobody gave up waiting for another session
    assert states(result) == {"same": len(lines)}
    source, target = contents(loaded)
    assert source == target


def test_a_duplicate_that_the_target_accepts_is_a_blocker(loaded: Databases, tmp_path: Path) -> None:
    for connection in loaded.connections:
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE codes (id INT PRIMARY KEY, code INT, UNIQUE KEY (code))")
            cursor.execute("INSERT INTO codes VALUES (1, 1)")
        connection.commit()
    with loaded.connections[1].cursor() as cursor:
        cursor.execute("ALTER TABLE codes DROP INDEX code")
    lines = [Line(1, 0, f"INSERT INTO `{loaded.name}`.codes VALUES (2, 1)", errno=1062)]
    plan(lines, loaded, tmp_path, Leave(writes=True))
    result = play(loaded, tmp_path, writes=True)
    found = verdict(result.tally, CatalogueLabels(load()))
    (digest,) = found.digests
    assert (found.verdict, digest.weight) == (Verdict.MISMATCH, "blocker")


def test_what_follows_from_another_generated_id_is_no_blocker_of_its_own(loaded: Databases, tmp_path: Path) -> None:
    for connection, first in zip(loaded.connections, (7_001, 90_001), strict=True):
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, v INT)")
            cursor.execute("CREATE TABLE items (order_id BIGINT PRIMARY KEY, v INT)")
            cursor.execute(f"ALTER TABLE orders AUTO_INCREMENT = {first}")
        connection.commit()
    texts = [
        "INSERT INTO orders (v) VALUES (1)", "SELECT LAST_INSERT_ID()", "SELECT v FROM orders WHERE id = 7001",
        "UPDATE orders SET v = 2 WHERE id = 7001", "INSERT INTO items VALUES (LAST_INSERT_ID(), 5)",
        "SELECT order_id FROM items WHERE v = 5", "SELECT v FROM items WHERE order_id = LAST_INSERT_ID()",
        "SELECT i.v FROM items AS i JOIN orders AS o ON o.id = i.order_id WHERE o.id IN (7001, 1)",
        "DELETE FROM items WHERE order_id = 7001",
    ]  # fmt: skip
    lines = [Line(1, 1000 * number, sql) for number, sql in enumerate(texts)]
    plan(lines, loaded, tmp_path, Leave(writes=True))
    result = play(loaded, tmp_path, writes=True)
    judged = {one.text: one for one in result.tally.digests.values()}
    different = [text for text, one in judged.items() if one.state(Judgement.DIFFERENT)]
    assert different == []
    reasons = [reason for one in judged.values() for reason in one.reasons]
    assert [one for one in reasons if "follows from generated ids that differ: statement 0" in one]
    assert states(result)["same"] >= 4
    found = verdict(result.tally)
    assert found.verdict is not Verdict.MATCH
    assert not [one for one in found.digests if one.weight == "blocker"]


def mixed() -> list[Line]:
    """Statements that the two servers are known to answer unlike, between others that they answer alike."""
    texts = [
        ("SELECT 1 + 1", 0), ("SELECT COUNT(*) FROM accounts", 0),
        ("SELECT SQL_CALC_FOUND_ROWS id FROM accounts LIMIT 3", 0), ("SELECT ST_AsText(POINT(1, 2))", 0),
        ("SELECT name FROM accounts WHERE id = -1", 0), ("SELECT nope FROM accounts", 1054),
        ("SELECT CAST(1 AS DECIMAL(10, 2)) / 3", 0),
    ]  # fmt: skip
    return [Line(1, 1000 * number, sql, errno=errno) for number, (sql, errno) in enumerate(texts)]


def test_planted_differences_are_found(loaded: Databases, tmp_path: Path) -> None:
    with loaded.connections[1].cursor() as cursor:  # one row of the target is not the source's
        cursor.execute("UPDATE accounts SET name = 'somebody else' ORDER BY id LIMIT 1")
        cursor.execute("SELECT MIN(id) FROM accounts")
        (found,) = cursor.fetchall()
    loaded.connections[1].commit()
    lines = [*mixed(), Line(2, 50, f"SELECT id, name FROM accounts WHERE id = {found[0]}")]
    plan(lines, loaded, tmp_path, Leave())
    result = play(loaded, tmp_path)
    different = {one.text: set(one.aspects) for one in result.tally.digests.values() if one.state(Judgement.DIFFERENT)}
    assert len(different) == 3, different
    value = next(aspects for text, aspects in different.items() if "NAME" in text)
    assert "error" not in value
    assert all("error" in aspects for text, aspects in different.items() if "NAME" not in text)
    nope = next(one for one in result.tally.digests.values() if "`nope`" in one.text)
    assert nope.state(Judgement.SAME) == 1  # both refuse it, as the capture says


def test_the_target_alone_is_held_against_the_capture(loaded: Databases, tmp_path: Path) -> None:
    lines = mixed()
    plan(lines, loaded, tmp_path, Leave())
    result = play(loaded, tmp_path, target_only=True)
    different = [one.text for one in result.tally.digests.values() if one.state(Judgement.DIFFERENT)]
    assert any("SQL_CALC_FOUND_ROWS" in text for text in different)
    assert result.counters.source_asked == 0


CONFIG = """
source: {{host: {source.host}, port: {source.port}, user: root, connections: 8}}
target: {{host: {target.host}, port: {target.port}, user: root, connections: 8}}
report: {{values: true}}
workload: {{clone_marker: {name}.clones, pace: 150/s}}
"""


def test_stopped_killed_and_resumed_it_finds_what_an_unbroken_run_finds(
    loaded: Databases, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = payments(loaded.name, SESSIONS, 6)
    capture = captured(lines, loaded.name, tmp_path)
    text = CONFIG.format(source=loaded.pair.source, target=loaded.pair.target, name=loaded.name)
    (tmp_path / "m.yaml").write_text(text)
    root = tmp_path / ".migverify" / "replay"
    words = ["workload", "replay", str(capture), "-c", str(tmp_path / "m.yaml"), "--writes", "--json"]
    assert run_command(words) == 2
    assert "mark-clone" in capsys.readouterr().err
    for endpoint in sides(loaded).endpoints.values():
        with open_session(endpoint, None, side=Side.TARGET) as session:
            mark(session, f"{loaded.name}.clones", "drill", 1)

    def begun(least: int, *more: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "migverify", *words, "-j", "2", *more], stdout=subprocess.PIPE, text=True,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        wait_for(lambda: outcomes(root) > least, f"{least} outcomes")
        return process

    process = begun(40)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    stopped = json.loads(out)
    assert stopped["verdict"] == "INCONCLUSIVE"
    assert 0 < stopped["coverage"]["statements"] < len(lines)
    process = begun(outcomes(root) + 60, "--resume", stopped["run_id"])
    process.kill()
    process.communicate()
    (tmp_path / "m.yaml").write_text(text.replace("127.0.0.1", "localhost"))
    assert run_command([*words, "--resume", stopped["run_id"]]) == 2, "it would be a verdict of four servers"
    assert "read another server, 127.0.0.1:" in capsys.readouterr().err
    (tmp_path / "m.yaml").write_text(text)
    code = run_command([*words, "--pace", "fast", "--resume", "last"])
    found = json.loads(capsys.readouterr().out)
    assert (found["coverage"]["statements"], found["coverage"]["different"]) == (len(lines), 0)
    unjudged = found["coverage"]["unjudged"]
    assert unjudged <= SESSIONS  # at most one write or commit of a session was under way when it was killed
    assert code == (3 if unjudged else 0)
    (folder,) = root.iterdir()
    with RunFile(folder) as run:
        assert run.fact("attempts") == 3


def outcomes(root: Path) -> int:
    """Return how many calls have ended, over all runs of a folder."""
    found = 0
    for path in root.glob("*/run.sqlite"):
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
                found += file.execute("SELECT COUNT(body) FROM outcomes").fetchone()[0]
        except sqlite3.OperationalError:
            continue  # the replay makes the file, or its -shm, at this moment: the next look counts it
    return found


def test_a_statement_over_its_time_is_stopped_and_not_judged(loaded: Databases, tmp_path: Path) -> None:
    lines = [
        Line(1, 0, "SELECT 1"),
        Line(1, 1000, "SELECT COUNT(*), SLEEP(900) FROM (SELECT 1) x"),
        Line(1, 2000, "SELECT 2"),
    ]
    plan(lines, loaded, tmp_path, Leave(locking=True))
    options = EngineOptions(pace=parse_pace("fast"), connections=2, limits=Limits(seconds=1))
    result = replay(tmp_path / "run", sides(loaded), options)
    assert states(result) == {"same": 2, "unjudged": 1}
    wait_for(lambda: not running(loaded), "the server has ended the statement")


def running(databases: Databases) -> list[Any]:
    with databases.connections[0].cursor(pymysql.cursors.Cursor) as cursor:
        cursor.execute("SELECT id FROM information_schema.processlist WHERE info LIKE '%SLEEP(900) FROM (SELECT%'"
                       " AND info NOT LIKE '%processlist%'")  # fmt: skip
        return list(cursor.fetchall())


def test_more_sessions_than_connections_take_turns(loaded: Databases, tmp_path: Path) -> None:
    lines = [line for line in payments(loaded.name, SESSIONS, 3) if line.sql.startswith("SELECT")]
    plan(lines, loaded, tmp_path, Leave())
    options = EngineOptions(pace=parse_pace("real"), connections=2)
    result = replay(tmp_path / "run", sides(loaded), options)
    assert states(result) == {"same": len(lines)}
    assert result.counters.held > 0
