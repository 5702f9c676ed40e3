"""The engine on a standalone cluster whose workers know nothing of migverify."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from migverify.spark.pyfiles import package_root
from tests.spark.cluster import Cluster, standalone_cluster

from .conftest import HEAVY_OF_SPARK, Sessions

Make = Callable[..., Any]
JOB = """
from migverify.spark.engine import SparkEngine
from migverify.spark.session import open_session
session = open_session("local[1]", "job", {}, 2)
engine = SparkEngine(session, {"source": "x"}, 2, "toy_runners:where_am_i")
print(session.sparkContext.master, engine.submit("").result())
engine.close()
"""


def test_a_bare_executor_runs_tasks_from_the_shipped_zip(engine_on: Make, cluster: Cluster) -> None:
    engine = engine_on("toy_runners:where_am_i", cluster.url, slots=2)
    said = json.loads(engine.submit("").result())
    assert "-pyfiles.zip" in said["file"]
    assert said["heavy"] == HEAVY_OF_SPARK


def test_a_task_of_a_killed_executor_runs_elsewhere(
    engine_on: Make, cluster: Cluster, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    engine = engine_on("toy_runners:wait_for", cluster.url, slots=2)
    eventually(lambda: len(cluster.executors()) == 2)
    futures = [engine.submit(json.dumps({"folder": str(tmp_path), "name": n})) for n in range(2)]
    eventually(lambda: len([p for p in tmp_path.glob("started-*") if p.stat().st_size]) == 2)
    ran = {json.loads(p.read_text())["executor"] for p in tmp_path.glob("started-*")}
    assert ran == set(cluster.executors())
    os.kill(min(ran), signal.SIGKILL)
    eventually(lambda: len(list(tmp_path.glob("started-*"))) == 3)  # the lost task, again
    (tmp_path / "go").touch()
    assert [future.result(timeout=60) for future in futures] == ["done:0", "done:1"]


def test_under_spark_submit_its_master_is_used(sessions: Sessions, cluster: Cluster, tmp_path: Path) -> None:
    import pyspark

    sessions.close()  # its executors hold the cores
    job = tmp_path / "job.py"
    job.write_text(JOB)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    done = subprocess.run(
        [submit, "--master", cluster.url, job], capture_output=True, text=True, check=False, timeout=120,
        env=os.environ | {"PYTHONPATH": str(package_root()), "PYSPARK_PYTHON": sys.executable,
                          "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    master, said = done.stdout.split(" ", 1)
    assert master == cluster.url
    assert "-pyfiles.zip" in json.loads(said)["file"]


def test_slots_bound_the_cores_taken_from_the_cluster(sessions: Sessions, cluster: Cluster) -> None:
    session = sessions.get(cluster.url, slots=2)
    assert session.sparkContext.getConf().get("spark.cores.max") == "2"


def test_the_end_of_a_cluster_leaves_no_process() -> None:
    with standalone_cluster(1) as running:
        assert len(running.processes()) >= 2
        folder = running.folder
    assert running.processes() == ()
    assert not folder.exists()
