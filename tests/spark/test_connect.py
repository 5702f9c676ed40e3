"""Spark Connect does what a classic session does. Needs grpcio, which `pip install 'pyspark[connect]'` brings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from migverify.spark.settings import package_root
from tests.spark.cluster import connect_server
from tests.unit.spark.archived import EXPECTED, keep, small

from .conftest import HERE

pytest.importorskip("grpc", reason="Spark Connect needs pip install 'pyspark[connect]'")

MARKER = "Zq7secretZq7"
CLIENT = """
import json, os, sys, time
sys.path.insert(0, sys.argv[3])
from migverify.errors import MigverifyError
from migverify.spark.engine import SparkEngine
from migverify.spark.session import open_session
from migverify.spark.binlog_source import read_archive
from migverify.spark.changes_output import RUNNER, ArchiveSource, read_changes
url, folder, secret, archive = sys.argv[1], sys.argv[2], sys.stdin.readline().strip(), sys.argv[4]
said = {}
session = open_session(url, "t", {}, 2)
session.addArtifacts(sys.argv[3] + "/toy_runners.py", pyfile=True)

def engine(runner):
    return SparkEngine(session, {"source": secret}, 2, "toy_runners:" + runner, owns_session=False)

def outcome(future):
    try:
        return future.result()
    except MigverifyError as error:
        return [type(error).__name__, error.message]

said["ops"] = [row.op for row in read_archive(session, archive).orderBy("gtid", "ordinal").collect()]
said["changes"] = read_changes(SparkEngine(session, {}, 2, RUNNER, owns_session=False), ArchiveSource(archive),
                               archive + "-output").changes
said["echo"] = [outcome(engine("echo").submit(str(n))) for n in range(5)]
said["file"] = json.loads(outcome(engine("where_am_i").submit("")))["file"]
said["refuse"] = outcome(engine("refuse").submit("t"))
said["die_once"] = outcome(engine("die_once").submit(folder + "/mark"))
said["die_always"] = outcome(engine("die_always").submit(""))
waiting = engine("wait_for")
futures = [waiting.submit(json.dumps({"folder": folder, "name": n})) for n in range(3)]
while len([n for n in os.listdir(folder) if n.startswith("started")]) < 2:
    time.sleep(0.05)
waiting.cancel()
said["cancel"] = [outcome(f) for f in futures]
waiting._owns_session = True
waiting.close()
print(json.dumps(said))
"""


def test_connect_does_what_a_classic_session_does(tmp_path: Path) -> None:
    log = tmp_path / "events"
    log.mkdir()
    work = tmp_path / "work"
    work.mkdir()
    path = keep(small(), tmp_path / "archive")
    conf = {
        "spark.eventLog.enabled": "true", "spark.eventLog.dir": log.as_uri(), "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }  # fmt: skip
    with connect_server(2, conf) as server:
        # A process of its own: a client and a classic session do not share one.
        done = subprocess.run(
            [sys.executable, "-c", CLIENT, server.url, str(work), str(HERE), path], input=MARKER + "\n",
            capture_output=True, text=True, check=False, timeout=300,
            env=os.environ | {"PYTHONPATH": str(package_root())},
        )  # fmt: skip
        server_log = (server.folder / "connect.log").read_text()
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert (said["ops"], said["changes"]) == ([row[0] for row in EXPECTED], len(EXPECTED))
    assert said["echo"] == [f"{n}|source" for n in range(5)]
    assert "-pyfiles.zip" in said["file"]
    assert said["refuse"] == ["PrivilegeError", "user lacks SELECT on t, password ***"]
    assert said["die_once"].startswith("killed ")
    assert said["die_always"][0] == "RetryableReadError"
    assert "\n" not in said["die_always"][1]
    assert [kind for kind, _ in said["cancel"]] == ["ReadError"] * 3
    assert all("canceled" in message for _, message in said["cancel"])
    events = "".join(p.read_text() for p in log.rglob("*") if p.is_file())
    assert "SparkListenerJobEnd" in events
    for text in (events, server_log, done.stdout, done.stderr):
        assert MARKER not in text
