"""A standalone cluster whose workers know nothing of migverify: tasks, frames, a killed executor, spark-submit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from migverify.spark.binlog_source import read_archive
from migverify.spark.settings import package_root
from tests.spark.cluster import Cluster
from tests.unit.spark.archived import EXPECTED, changes_of, keep, small

from .conftest import HEAVY_OF_SPARK, Sessions

JOB = package_root() / "spark_jobs" / "read_changes.py"


def test_bare_executors_run_everything_from_the_shipped_zip(
    engine_on: Callable[..., Any], sessions: Sessions, cluster: Cluster, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    session = sessions.get(cluster.url, slots=2)
    assert session.sparkContext.getConf().get("spark.cores.max") == "2"
    said = json.loads(engine_on("toy_runners:where_am_i", cluster.url, slots=2).submit("").result())
    assert "-pyfiles.zip" in said["file"]
    assert said["heavy"] == HEAVY_OF_SPARK
    rows = read_archive(session, keep(small(), tmp_path / "archive")).collect()
    assert changes_of([row.asDict() for row in rows]) == EXPECTED

    # A task of a killed executor runs elsewhere.
    engine, work = engine_on("toy_runners:wait_for", cluster.url, slots=2), tmp_path / "work"
    work.mkdir()
    eventually(lambda: len(cluster.executors()) == 2)
    futures = [engine.submit(json.dumps({"folder": str(work), "name": n})) for n in range(2)]
    eventually(lambda: len([p for p in work.glob("started-*") if p.stat().st_size]) == 2)
    ran = {json.loads(p.read_text())["executor"] for p in work.glob("started-*")}
    assert ran == set(cluster.executors())
    os.kill(min(ran), signal.SIGKILL)
    eventually(lambda: len(list(work.glob("started-*"))) == 3)
    (work / "go").touch()
    assert [future.result(timeout=60) for future in futures] == ["done:0", "done:1"]


def test_a_job_under_spark_submit_uses_its_master(sessions: Sessions, cluster: Cluster, tmp_path: Path) -> None:
    import pyspark

    sessions.close()  # its executors hold the cores
    path, output = keep(small(), tmp_path / "archive"), tmp_path / "output"
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    done = subprocess.run(
        [submit, "--master", cluster.url, JOB, path, str(output), "--tables", "app.t"], capture_output=True, text=True,
        check=False, timeout=300,
        env=os.environ | {"PYTHONPATH": str(package_root()), "PYSPARK_PYTHON": sys.executable,
                          "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "6 changes in 3 ranges, up to binlog.000003:" in done.stdout
    assert len(list(output.rglob("*.parquet"))) == 3
    applications = list(cluster.folder.glob("worker-*/app-*"))
    assert applications, "no worker of the cluster ran the job"
