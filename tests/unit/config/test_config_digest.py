"""Digests of unchanged settings never change: a resumed run recognizes the configuration of an earlier run by them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from migverify.config import comparison_digest, describe, full_digest, load_config

SMALL = """\
source: {url: "mysql://app@db1"}
target: {url: "tidb://root@tidb"}
"""
FULL = """\
sources:
  eu: &shard
    url: mysql://app%40x@db1:3307/
    password_env: EU_PASSWORD
    tls: {ca: ca.pem, cert: c.pem, key: k.pem, allow_cleartext_password: true}
    connections: 8
    query_seconds: 30
    session: {max_join_size: 5, foo_bar: true, zone: 12:30:00}
  us: {<<: *shard, url: "mysql://app@[::1]:3308", connections: 2}
target: {host: tidb, port: 4001, user: root, password_command: "pass x", snapshot: 2026-01-31 12:00:00,
         resource_group: slow, low_priority: false}
endpoints: {ledger: {url: "mysql://r@ledger"}}
store: sqlite:///sub/runs.db
tables: {include: ["app.*", "`a b`.t", "/x[0-9]+/.t"], exclude: ["*.tmp_?"]}
routes: [{from: "app_*.t_*", to: "app.t_{2}", shard: "e*"}, {from: "a.b", to: "c.d"}]
overrides:
  - {table: "app.*", key: [a, b], ignore: [x], rename: {a: b, c: d}, where: "1 = 1", float_tolerance: 0.1}
  - {table: "app.t*", ignore: [y, x], where: {target: "z = ')--'"}, float_tolerance: {f: 0.2, "*": 1e-9},
     immutable_before: {column: c, value: "2026-01-31T09:00:00.5+09:00"}}
limits: {chunk_seconds: 1, pause_file: pause, max_row_diffs: 0, run_seconds: 60, max_replica_lag: 3}
recheck: {delay: 0.5, rounds: 1}
watch: {applied: checkpoint, checkpoint: dm.x, checkpoint_id: {us: "2", eu: "1"}, marker: a.b, sweep_rows: 9}
consistency: live
report: {values: true}
hash: md5
spark: {master: "spark://m:7077", conf: {spark.executor.cores: 2, spark.x: false, spark.s3.secret: abc}}
workload:
  pace: x2
  waivers: waivers.yaml
  folder: replays
  max_lag: 1.5
  clone_marker: a.clone
  service_levels: {checkout: {writes: 1, reads: 2, seconds: 0.5}}
monitors:
  prometheus: http://p:9090/
  max_age_seconds: 30
  retention_hours: 2
  jobs: {mysql: 2, tidb: ["a:1", "b:1"], kafka: {instances: 1, max_age_seconds: 5}}
  series: {lag: {query: lag, job: mysql, max: 5, age_of: [lag]}}
  sql: {max_lock_waits: 3}
readiness: {drills_min: 6}
"""


@pytest.mark.parametrize(
    ("text", "comparison", "full", "view"),
    [
        (
            SMALL,
            "1757c7c3e6d710889f2d61b3128ed5f74adcd3be5eca7624134739b5a8eedce8",
            "6ba66a1a4568953788fbf6bf3a7434b18c3be26ffd8bdc9dc21cf51547c12450",
            "6c64aeb3b65101a15c4007de317ed6794e49120c8006961e8954d633d3cc449a",
        ),
        (
            FULL,
            "4105b3adddbd4506bd19212699ba4b6e63e7ba70a7fcb8733a3cb92bb33422d8",
            "eb751f62ce4de47a78f23bb6b9799b2ff0365e753970e353856afd0b5c779c42",
            "c44b59a97642d8fa9599aec888462185c124a980393f89721dcb82b8523f9d34",
        ),
    ],
)
def test_digests_written_by_the_first_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, comparison: str, full: str, view: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("migverify.yaml").write_text(text, encoding="utf-8")
    config = load_config(Path("migverify.yaml"), environment={})
    assert comparison_digest(config) == comparison
    assert full_digest(config) == full
    shown = json.dumps(describe(config))  # `config --json`, with its order of keys
    assert hashlib.sha256(shown.encode()).hexdigest() == view
