"""Nights on real servers: what begins to fail is called new, and what was done is not done again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from migverify.cli.main import run
from migverify_lab.servers import LabServers
from tests.conftest import Databases

pytestmark = pytest.mark.db

EVENT = """# Time: {day}T03:00:0{second}.000000Z
# User@Host: app[app] @ web [10.0.0.1]  Id:    7
# Query_time: 0.001000  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 1
{use}SET timestamp={stamp};
{sql};
"""
HEAD = """/usr/sbin/mysqld, Version: 8.0.36 (MySQL Community Server - GPL). started with:
Tcp port: 3306  Unix socket: /tmp/mysql.sock
Time                 Id Command    Argument
"""


def capture(place: Path, database: str, day: str, stamp: int, *statements: str) -> None:
    """Write a slow log and read it into a capture named by its day."""
    log = place / f"{day}.log"
    events = [
        EVENT.format(
            day=day, second=number, stamp=stamp + number, sql=sql, use=f"use {database};\n" if not number else ""
        )
        for number, sql in enumerate(statements)
    ]
    log.write_text(HEAD + "".join(events))
    assert run(["workload", "capture", str(log), "--format", "slow", "--out", str(place / "captures" / day)]) == 0


def test_a_digest_that_begins_to_fail_shows_on_its_day(
    pair: LabServers, databases: Databases, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    databases.both(f"USE `{databases.name}`", "CREATE TABLE item (id INT PRIMARY KEY)", "INSERT INTO item VALUES (1)",
                   "COMMIT")  # fmt: skip
    (tmp_path / "migverify.yaml").write_text(json.dumps({
        "source": {"host": pair.source.host, "port": pair.source.port, "user": "root"},
        "target": {"host": pair.target.host, "port": pair.target.port, "user": "root"},
        "tables": {"include": ["*.*"]}, "store": f"sqlite:///{tmp_path}/store.db",
        "workload": {"folder": str(tmp_path / "runs")},
    }))  # fmt: skip
    words = ["workload", "replay", "--nightly", str(tmp_path / "captures"), "--config",
             str(tmp_path / "migverify.yaml"), "--pace", "fast", "--accept-write-grants", "--json"]  # fmt: skip

    def nightly() -> tuple[int, dict[str, object]]:
        capsys.readouterr()
        code = run(words)
        return code, json.loads(capsys.readouterr().out)

    capture(tmp_path, databases.name, "2026-01-30", 1769742000, "SELECT id FROM item ORDER BY id")
    code, first = nightly()
    assert (code, [one["trend"]["new"] for one in first["runs"]]) == (0, [[]]), first  # type: ignore[attr-defined,index]

    failing = "SELECT SQL_CALC_FOUND_ROWS id FROM item LIMIT 1"
    capture(tmp_path, databases.name, "2026-01-31", 1769828400, "SELECT id FROM item ORDER BY id", failing)
    code, second = nightly()
    (told,) = second["runs"]  # type: ignore[misc,attr-defined]
    assert (code, told["day"], told["verdict"]) == (1, "2026-01-31", "MISMATCH")
    (new,) = told["trend"]["new"]
    assert (new["since"], new["aspects"]) == ("2026-01-31", "error")
    assert [one["failing"] for one in told["trend"]["runs"]] == [0, 1]

    assert nightly()[0] == 3  # nothing new is nothing verified
    capture(tmp_path, databases.name, "2026-02-01", 1769914800, "SELECT id FROM item ORDER BY id", failing)
    code, third = nightly()
    (told,) = third["runs"]  # type: ignore[misc,attr-defined]
    assert (code, told["trend"]["new"]) == (1, [])
    assert [one["since"] for one in told["trend"]["failing"]] == ["2026-01-31"]
