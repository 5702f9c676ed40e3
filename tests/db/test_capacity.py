"""``migverify guard capacity`` on the real pair: what it projects, against how long the verification then takes."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from migverify.cli.main import main
from migverify.db.session import open_session
from migverify.guards.capacity_read import read_sizes
from migverify.guards.counters import QUERIES, ROWS_WRITTEN, WRITES, rates, read_counters
from migverify.model import Endpoint
from migverify_lab.servers import LabServers
from tests.db.binlog_server import binlog_server
from tests.db.verifying import verify, write_config

pytestmark = pytest.mark.db

ROWS = {"large": 24_000, "middle": 6_000, "small": 50}


def capacity(path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Run the command; returns its exit code and the answers by ``name subject``."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ending:
        main(["guard", "capacity", "--config", str(path), "--json", "--engine", "local", "--sample", "1", *more])
    assert isinstance(ending.value.code, int)
    told = json.loads(capsys.readouterr().out)
    return ending.value.code, {f"{a['name']} {a['subject']}": a for a in told["guards"][0]["answers"]}


def fill(databases: Any) -> None:
    for table, count in ROWS.items():
        databases.both(
            f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, v INT, w DECIMAL(18, 4), t VARCHAR(100))",
            *(
                f"INSERT INTO {table} VALUES "
                + ", ".join(
                    f"({n}, {n % 97}, {n}.25, REPEAT('x', {n % 90}))" for n in range(start, min(count, start + 3000))
                )
                for start in range(0, count, 3000)
            ),
            f"ANALYZE TABLE {table}",
        )


def test_the_projection_holds(
    databases: Any, pair: LabServers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(databases)
    path = write_config(tmp_path, pair, databases.name)
    _, unknown = capacity(path, capsys, "--window", "10h")
    assert unknown["verify time source and target"]["state"] == "inconclusive"
    assert verify(path).verdict.value == "MATCH"
    code, told = capacity(path, capsys, "--window", "10h", "--target-free", "100T")
    measured = told["verify time source and target"]
    begun = time.monotonic()
    verify(path)
    second = time.monotonic() - begun
    with capsys.disabled():
        sys.stdout.write(
            f"\nprojected / true: one run {measured['numbers']['expected_seconds'] / second:.2f} of {second:.1f} s\n"
        )
    numbers = measured["numbers"]
    assert numbers["low_seconds"] < numbers["high_seconds"]
    assert 0.01 < numbers["expected_seconds"] / second < 100
    # Counted exactly by the run; the estimates say that they are.
    assert told["size source"]["numbers"]["rows_counted"] == sum(ROWS.values())
    assert told["size target"]["numbers"]["tables"] == len(ROWS)
    assert "about" in told["size source"]["value"]
    assert told["repair time source and target"]["value"].startswith("nothing to repair")
    assert told["connections source"]["state"] == "pass"
    assert told["room on the target target"]["state"] == "pass"
    assert told["binlog volume source"]["numbers"]["bytes"] > 0
    assert code in (0, 3)  # others write to the server too: nobody has watched yet, so that may not be known


def test_a_window_that_is_too_short_fails(
    databases: Any, pair: LabServers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(databases)
    path = write_config(tmp_path, pair, databases.name)
    verify(path)
    code, told = capacity(path, capsys, "--window", "1h30m", "--replay-time", "2h", "--target-free", "1")
    assert code == 1
    assert told["window source and target"]["state"] == "fail"
    assert "replay" in told["window source and target"]["value"]


def test_nothing_known_is_inconclusive(
    databases: Any, pair: LabServers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    databases.both("CREATE TABLE t (id INT PRIMARY KEY)")
    path = write_config(tmp_path, pair, databases.name)
    code, told = capacity(path, capsys, "--window", "10h")
    assert code == 3
    assert told["verify time source and target"]["state"] == "inconclusive"
    assert told["window source and target"]["state"] == "inconclusive"


def test_rates_are_what_was_done(pair: LabServers, databases: Any) -> None:
    databases.both("CREATE TABLE t (id INT PRIMARY KEY)")
    endpoint = Endpoint("source", pair.source.host, pair.source.port, pair.source.user)
    with open_session(endpoint, None) as session:
        before = read_counters(session)
        databases.source(*(f"INSERT INTO t VALUES ({n}), ({n + 1000})" for n in range(200)))
        found = rates(before, read_counters(session))
    # Others may write to this server: never less than what was done here.
    assert round(found[WRITES].value * found[WRITES].seconds, 6) >= 200
    assert round(found[ROWS_WRITTEN].value * found[ROWS_WRITTEN].seconds, 6) >= 400
    assert found[QUERIES].value >= found[WRITES].value


def test_sizes_of_partitions_and_of_tables_without_statistics(tmp_path: Path) -> None:
    with binlog_server(tmp_path) as server:
        server.run(
            "CREATE DATABASE c",
            "CREATE TABLE c.parts (id INT PRIMARY KEY, v CHAR(200)) PARTITION BY HASH (id) PARTITIONS 3",
            "CREATE TABLE c.plain (id INT PRIMARY KEY) ENGINE = MyISAM",
            "CREATE TABLE c.`odd#name` (id INT PRIMARY KEY)",
            "SET SESSION cte_max_recursion_depth = 5000",
            "INSERT INTO c.parts WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)"
            " SELECT i, 'x' FROM n",
            "INSERT INTO c.plain VALUES (1), (2)", "ANALYZE TABLE c.parts", "ANALYZE TABLE c.plain",
        )  # fmt: skip
        with open_session(server.endpoint, None) as session:
            sizes = read_sizes(session, "source", lambda d, _: d == "c")
            assert set(sizes.tables) == {("c", "parts"), ("c", "plain"), ("c", "odd#name")}
            assert 2500 <= sizes.tables["c", "parts"].rows <= 3500
            assert sizes.tables["c", "plain"].rows == 2
            assert sizes.bytes > 3000 * 200


def test_a_user_who_may_read_nothing_but_tables(
    databases: Any, pair: LabServers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    databases.both("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    user = databases.name[:30]
    databases.both(f"CREATE USER '{user}'@'%'", f"GRANT SELECT ON `{databases.name}`.* TO '{user}'@'%'")
    try:
        addresses = {s: {"url": f"mysql://{user}@{e.host}:{e.port}"} for s, e in
                     (("source", pair.source), ("target", pair.target))}  # fmt: skip
        path = write_config(tmp_path, pair, databases.name, **addresses)
        code, told = capacity(path, capsys)
    finally:
        databases.both(f"DROP USER '{user}'@'%'")
    assert code == 3
    assert told["size source"]["state"] == "pass"  # by the catalog
    assert told["binlog volume source"]["state"] == "inconclusive"
    if pair.target.flavor == "tidb":
        # TiDB would show this user its own sessions only, and say nothing of it.
        assert told["connections target"]["state"] == "inconclusive"
        assert "PROCESS" in told["connections target"]["value"]
        assert told["traffic target"]["state"] == "inconclusive"
