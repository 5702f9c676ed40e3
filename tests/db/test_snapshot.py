"""``snapshot: now`` and ``immutable_before`` through the command line, on the real pair."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from migverify.db.session import open_session
from migverify.tables.prepare import prepared_run

if TYPE_CHECKING:
    from tests.conftest import Databases

pytestmark = pytest.mark.db
ROOT = Path(__file__).parents[2]


def write(folder: Path, databases: Databases, *, target: str = "", more: str = "") -> Path:
    ends = databases.pair
    path = folder / "migverify.yaml"
    path.write_text(
        f"""
source: {{url: "mysql://{ends.source.user}@{ends.source}"}}
target: {{url: "mysql://{ends.target.user}@{ends.target}"{target}}}
store: sqlite:///runs.db
tables: {{include: ["{databases.name}.*"]}}
recheck: {{delay: 0.1}}
{more}
"""
    )
    return path


def verify(folder: Path, *options: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "migverify", "tables", "verify", "--engine", "local", "--json", *options],
        cwd=folder, capture_output=True, text=True, check=False, timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode in (0, 1, 3), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["exit_code"] == done.returncode
    return found


def test_a_snapshot_taken_now_does_not_see_later_changes(databases: Databases, tmp_path: Path) -> None:
    if databases.pair.stand_in:
        pytest.skip("only TiDB has tidb_snapshot")
    databases.both("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    path = write(tmp_path, databases, target=", snapshot: now")
    with prepared_run(path, None) as (config, secrets, _):
        assert config.target.snapshot
        assert config.target.snapshot.isdigit()
        databases.target("UPDATE t SET v = 9 WHERE id = 2")
        with open_session(config.target, secrets.get("target")) as session:
            assert session.query(f"SELECT v FROM `{databases.name}`.t ORDER BY id") == [("1",), ("2",)]
        assert any(thread.name == "snapshot" for thread in threading.enumerate())
    assert not any(thread.name == "snapshot" for thread in threading.enumerate())
    assert verify(tmp_path)["verdict"] == "MISMATCH"


def test_immutable_rows_are_proved_once(databases: Databases, tmp_path: Path) -> None:
    databases.both(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, at DATETIME)",
        "INSERT INTO t VALUES (1, 1, '2020-01-01'), (2, 2, '2026-06-01'), (3, 3, NULL)",
    )
    before = '{column: at, value: "2026-01-01"}'
    rule = f'overrides: [{{table: "{databases.name}.t", immutable_before: {before}}}]'
    write(tmp_path, databases, more=rule)
    first = verify(tmp_path)
    assert (first["verdict"], first["tables"][0]["rows_source"]) == ("MATCH", 3)
    second = verify(tmp_path)
    assert (second["verdict"], second["tables"][0]["rows_source"]) == ("MATCH", 2)
    assert first["run_id"] in json.dumps(second["tables"][0]["not_covered"])
    databases.target("UPDATE t SET v = 9 WHERE id = 3")
    assert verify(tmp_path)["verdict"] == "MISMATCH"
    databases.target("UPDATE t SET v = 3 WHERE id = 3", "UPDATE t SET v = 9 WHERE id = 1")
    assert verify(tmp_path)["verdict"] == "MATCH"
    assert verify(tmp_path, "--full")["verdict"] == "MISMATCH"
