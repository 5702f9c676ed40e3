"""A captured payment load replayed on a real pair: all the same, planted differences found, killed and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pymysql
import pytest

from migverify.connect import open_session
from migverify.model import Endpoint, Side
from migverify.spark.statements import read_columns
from migverify.workload.replay.asking import AskOptions, Protocol
from migverify.workload.replay.clone import mark
from migverify.workload.replay.engine import EngineOptions
from migverify.workload.replay.keys import read_keys
from migverify.workload.replay.model import Judgement
from migverify.workload.replay.pace import parse_pace
from migverify.workload.replay.plan import Plan, read_plan
from migverify.workload.replay.run import ReplayResult, fold, replay
from migverify.workload.replay.safety import Leave
from migverify.workload.replay.sides import Sides
from migverify.workload.replay.wire import Limits
from tests.conftest import Databases
from tests.replay_load import Line, captured, payments, setup

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


def sides(databases: Databases, *, target_only: bool = False) -> Sides:
    pair = databases.pair
    found = {
        Side.SOURCE: Endpoint("source", pair.source.host, pair.source.port, "root", connections=8),
        Side.TARGET: Endpoint("target", pair.target.host, pair.target.port, "root", connections=8),
    }
    return Sides({Side.TARGET: found[Side.TARGET]} if target_only else found)


def plan(lines: list[Line], databases: Databases, folder: Path, leave: Leave) -> Plan:
    capture = captured(lines, databases.name, folder)
    with open_session(sides(databases).endpoints[Side.SOURCE], None) as session:
        keys = read_keys(session, [databases.name])
    return read_plan(capture, folder / "run" / "plan", read_columns, leave=leave, keys=keys)


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


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_payment_load_is_the_same_on_clones(loaded: Databases, tmp_path: Path, jobs: int) -> None:
    lines = payments(loaded.name, SESSIONS, 10)
    made = plan(lines, loaded, tmp_path, Leave(writes=True))
    assert made.writes > 100
    assert made.skips == {}
    result = play(loaded, tmp_path, jobs=jobs, writes=True)
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
    assert made.skips == {"write without leave": made.kinds["write"]}
    assert states(result) == {"same": made.asked, "unjudged": made.kinds["write"]}
    assert contents(loaded) == before


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


@pytest.mark.parametrize("protocol", list(Protocol))
def test_protocols_agree(loaded: Databases, tmp_path: Path, protocol: Protocol) -> None:
    lines = [line for line in payments(loaded.name, 2, 3) if line.sql.startswith("SELECT")]
    plan(lines, loaded, tmp_path, Leave())
    result = play(loaded, tmp_path, ask=AskOptions(protocol, noise=0.5))
    assert states(result) == {"same": len(lines)}


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


def command(folder: Path, capture: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "migverify", "workload", "replay", str(capture), "-c", str(folder / "m.yaml"),
            "--writes", "--json", *more]  # fmt: skip


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_killed_and_resumed_it_finds_what_an_unbroken_run_finds(loaded: Databases, tmp_path: Path, jobs: str) -> None:
    lines = payments(loaded.name, SESSIONS, 6)
    capture = captured(lines, loaded.name, tmp_path)
    (tmp_path / "m.yaml").write_text(
        CONFIG.format(source=loaded.pair.source, target=loaded.pair.target, name=loaded.name)
    )
    refused = subprocess.run(command(tmp_path, capture), capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "mark-clone" in refused.stderr
    for endpoint in sides(loaded).endpoints.values():
        with open_session(endpoint, None, side=Side.TARGET) as session:
            mark(session, f"{loaded.name}.clones", "drill", 1)
    process = subprocess.Popen(
        command(tmp_path, capture, "-j", jobs), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    root = tmp_path / ".migverify" / "replay"
    wait_for(lambda: sum(path.stat().st_size for path in root.glob("*/journal/*")) > 20_000)
    process.kill()
    process.wait()
    again = subprocess.run(command(tmp_path, capture, "--resume", "last"), capture_output=True, text=True, check=False)
    told = json.loads(again.stdout)
    coverage = told["coverage"]
    assert coverage["statements"] == len(lines), again.stderr
    assert coverage["different"] == 0
    unjudged = coverage["unjudged"]
    assert unjudged <= SESSIONS  # at most one write or commit of a session was under way
    assert again.returncode == (3 if unjudged else 0)
    (run,) = [path for path in root.iterdir() if (path / "journal").is_dir()]
    names = [path.name for path in (run / "journal").iterdir()]
    assert {name[:4] for name in names} == {"0000", "0001"}
    assert len(names) == 2 + 1 + int(jobs)


def test_ctrl_c_stops_safely_and_is_resumable(loaded: Databases, tmp_path: Path) -> None:
    lines = payments(loaded.name, SESSIONS, 6)
    capture = captured(lines, loaded.name, tmp_path)
    text = CONFIG.format(source=loaded.pair.source, target=loaded.pair.target, name=loaded.name)
    (tmp_path / "m.yaml").write_text(text)
    arguments = [one for one in command(tmp_path, capture, "--accept-write-grants") if one != "--writes"]
    process = subprocess.Popen(
        [*arguments, "--pace", "100/s", "-j", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    root = tmp_path / ".migverify" / "replay"
    wait_for(lambda: sum(path.stat().st_size for path in root.glob("*/journal/*")) > 5_000)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    out, err = process.communicate(timeout=25)
    assert process.returncode == 130, err
    told = json.loads(out)
    assert told["verdict"] == "INCONCLUSIVE"
    assert 0 < told["coverage"]["statements"] < len(lines)
    resumed = [*arguments, "--pace", "fast", "--resume", told["run_id"]]
    again = subprocess.run(resumed, capture_output=True, text=True, check=False)
    coverage = json.loads(again.stdout)["coverage"]
    assert coverage["statements"] == len(lines)
    assert coverage["different"] == 0
    (run,) = [path for path in root.iterdir() if (path / "journal").is_dir()]
    made = read_plan(capture, tmp_path / "run" / "plan", read_columns)
    unbroken = play(loaded, tmp_path)
    assert unbroken.plan.calls == made.calls
    assert counts(fold(run, made)) == counts(unbroken.tally)


def counts(tally: Any) -> dict[str, dict[Judgement, int]]:
    return {digest: {state: one.state(state) for state in Judgement} for digest, one in tally.digests.items()}


def wait_for(condition: Any, seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come so far"
        time.sleep(0.02)


def test_a_statement_over_its_time_is_stopped_and_not_judged(loaded: Databases, tmp_path: Path) -> None:
    lines = [
        Line(1, 0, "SELECT 1"),
        Line(1, 1000, "SELECT COUNT(*), SLEEP(5) FROM (SELECT 1) x"),
        Line(1, 2000, "SELECT 2"),
    ]
    plan(lines, loaded, tmp_path, Leave(locking=True))
    options = EngineOptions(pace=parse_pace("fast"), connections=2, limits=Limits(seconds=1))
    result = replay(tmp_path / "run", sides(loaded), options)
    assert states(result) == {"same": 2, "unjudged": 1}
    deadline = time.monotonic() + 3
    while running(loaded) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not running(loaded)


def running(databases: Databases) -> list[Any]:
    with databases.connections[0].cursor(pymysql.cursors.Cursor) as cursor:
        cursor.execute("SELECT id FROM information_schema.processlist WHERE info LIKE '%SLEEP(5) FROM (SELECT%'"
                       " AND info NOT LIKE '%processlist%'")  # fmt: skip
        return list(cursor.fetchall())


def test_more_sessions_than_connections_take_turns(loaded: Databases, tmp_path: Path) -> None:
    lines = [line for line in payments(loaded.name, SESSIONS, 3) if line.sql.startswith("SELECT")]
    plan(lines, loaded, tmp_path, Leave())
    options = EngineOptions(pace=parse_pace("real"), connections=2)
    result = replay(tmp_path / "run", sides(loaded), options)
    assert states(result) == {"same": len(lines)}
    assert result.counters.held > 0
