"""`tables verify` on Spark: every way to run it gives what the local engine gives, and finds the planted rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from migverify.codec import encode
from migverify.config import load_config
from migverify.spark.settings import package_root
from migverify.store.open import open_store
from migverify.tables.engine import LocalTaskEngine, TaskEngine
from migverify.tables.prepare import prepare
from migverify.tables.quick import Level, QuickRead
from migverify.tables.run import VerifyRequest, run_tables

if TYPE_CHECKING:
    from tests.conftest import Databases
    from tests.spark.cluster import Cluster

    from .conftest import Sessions

ROWS = 6000
PLANTED = {
    ("wide", "17", "value_differs"), ("wide", "4000", "missing_on_target"), ("wide", "9001", "missing_on_source"),
    ("names", "ümläut 5", "value_differs"),
}  # fmt: skip


@pytest.fixture
def project(databases: Databases, tmp_path: Path) -> Path:
    """A configuration over two tables with planted differences: one cut by ranges, one whole by bucket."""
    digits = "(SELECT 0 n" + "".join(f" UNION ALL SELECT {n}" for n in range(1, 10)) + ")"
    numbers = f"SELECT a.n+10*b.n+100*c.n+1000*d.n k FROM {digits} a,{digits} b,{digits} c,{digits} d"
    databases.both(
        "CREATE TABLE wide (id BIGINT PRIMARY KEY, v DECIMAL(20,4), s VARCHAR(100), d DATETIME(3), j JSON)",
        f"""INSERT INTO wide SELECT k, k*1.5, REPEAT(CONCAT('x', k), 5), '2026-01-01 00:00:00.123',
            JSON_OBJECT('longer', k, 'b', 1) FROM ({numbers}) n WHERE k < {ROWS}""",
    )
    databases.source("CREATE TABLE names (name VARCHAR(40) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY, v INT)")
    databases.target("CREATE TABLE names (name VARCHAR(40) COLLATE utf8mb4_bin PRIMARY KEY, v INT)")
    databases.both(f"INSERT INTO names SELECT CONCAT('ümläut ', k), k FROM ({numbers}) n WHERE k < 500")
    databases.target(
        "UPDATE wide SET j = JSON_SET(j, '$.b', 2) WHERE id = 17", "DELETE FROM wide WHERE id = 4000",
        "INSERT INTO wide VALUES (9001, 1, '', NULL, NULL)", "UPDATE names SET v = 0 WHERE name = 'ümläut 5'",
    )  # fmt: skip
    databases.both("ANALYZE TABLE wide, names")
    source, target = databases.pair.source, databases.pair.target
    (tmp_path / "migverify.yaml").write_text(
        f"""
source: {{url: "mysql://{source.user}@{source}", connections: 2}}
target: {{url: "mysql://{target.user}@{target}", connections: 2}}
store: sqlite:///runs.db
tables: {{include: ["{databases.name}.*"]}}
limits: {{chunk_rows: 1000, max_chunk_rows: 1000}}
recheck: {{delay: 0.2}}
report: {{values: true}}
"""
    )
    return tmp_path


def verify(project: Path, *options: str, command: list[str] | None = None) -> tuple[dict[str, Any], set[Any]]:
    """Run one verification in a process of its own; returns its JSON object and the row diffs it found."""
    base = command or [sys.executable, "-m", "migverify", "tables", "verify"]
    environment = os.environ | {
        "PYTHONPATH": str(package_root()), "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    done = subprocess.run(
        [*base, "--json", *options],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env=environment,
    )
    assert done.returncode == 1, done.stderr[-3000:]
    listed = subprocess.run(
        [sys.executable, "-m", "migverify", "tables", "diff", "last", "--json"],
        cwd=project, capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    diffs = [json.loads(line) for line in listed.stdout.splitlines()]
    found = {(d["pair"].split(".")[1], d["key"][0], d["kind"]) for d in diffs}
    # When a row was read is the only thing that may differ between two runs.
    texts = {json.dumps({k: v for k, v in d.items() if k != "read_at"}, sort_keys=True) for d in diffs}
    assert found == PLANTED
    return json.loads(done.stdout), texts


def test_every_way_to_run_finds_the_same(project: Path, sessions: Sessions, cluster: Cluster) -> None:
    import pyspark

    sessions.close()  # its executors hold the cores of the cluster
    local, diffs = verify(project, "--engine", "local")
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", cluster.url]
    job = str(package_root() / "spark_jobs" / "verify_tables.py")
    ways: dict[str, tuple[list[str], list[str] | None]] = {
        "local master": (["--engine", "spark"], None),
        # spark-submit sends its program's standard error to standard output.
        "spark-submit": (["--quiet"], [*submit, job]),
    }
    for way, (options, command) in ways.items():
        run, found = verify(project, *options, command=command)
        assert found == diffs, way
        assert [t["verdict"] for t in run["tables"]] == [t["verdict"] for t in local["tables"]] == ["MISMATCH"] * 2, way
        assert [t["rows_source"] for t in run["tables"]] == [t["rows_source"] for t in local["tables"]], way


def test_quick_answers_are_the_same_on_both_engines(project: Path, sessions: Sessions) -> None:
    from migverify.spark.engine import SparkEngine

    reads = (QuickRead(Level.COUNTS), QuickRead(Level.KEYS), QuickRead(share="20%", seed=2),
             QuickRead(column="d", interval="520w"))  # fmt: skip
    local, spark = LocalTaskEngine({}, 2), SparkEngine(sessions.get(), {}, 2, owns_session=False)
    try:
        for read in reads:
            found, expected = (quick_results(project, read, engine) for engine in (spark, local))
            assert found == expected
            assert all(verdict != "MATCH" for verdict, _, _ in expected.values())
        assert {name.partition(".")[2]: verdict for name, (verdict, _, _) in expected.items()} == {
            "wide": "MISMATCH", "names": "INCONCLUSIVE",
        }  # fmt: skip
    finally:
        spark.close()
        local.close()


def quick_results(project: Path, read: QuickRead, engine: TaskEngine) -> dict[str, tuple[str, Any, str]]:
    """Verdict, details and row diffs of each table, without the times of the run."""
    config = load_config(project / "migverify.yaml")
    store = open_store(f"sqlite:///{project / 'runs.db'}")
    run_id, _ = run_tables(prepare(config, {}), config, {}, engine, store, VerifyRequest("verify", quick=read))
    begin = store.load_run(run_id).facts["quick"]["moment"] or "no moment"
    results = {}
    for result in store.table_results(run_id):
        diffs = [encode(replace(diff, read_at=0.0)) for _, diff in store.row_diffs(run_id, result.pair)]
        listed = json.dumps(sorted(diffs, key=json.dumps), sort_keys=True)
        words = json.dumps([result.reasons, result.details, result.rows_source, result.rows_target]).replace(begin, "")
        # The moment is in the statements, and so in their hash.
        plan = str(result.details["plan_digest"])
        results[result.pair] = str(result.verdict), words.replace(plan, "") if read.column else words, listed
    store.close()
    return results
