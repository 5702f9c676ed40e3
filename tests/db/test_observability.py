"""Alert rules and dashboard, judged by promtool and by a real Prometheus that scrapes a real watch.

Nothing fires while source and target are equal. A row that never arrives fires its alert, a watch that ends its own.
"""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from migverify_lab import prometheus
from tests.collector import ENDPOINT, collector
from tests.conftest import Databases
from tests.db.prometheus_server import Server, prometheus_server
from tests.db.test_watch import config_of, replicated
from tests.db.watching import Watching, migverify
from tests.unit.test_observability import FOLDER, alerts, expressions
from tests.waiting import wait_for

pytestmark = pytest.mark.db

JOB = "migverify-watch"


def promtool(*arguments: str) -> str:
    """Return what promtool says of files of the example; fails where it finds something."""
    command = [*prometheus.provide_promtool(lambda _: None), *arguments]
    ended = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def test_promtool_accepts_rules_scrapes_and_each_alert_fires_for_its_own_fault_alone() -> None:
    assert f"{len(alerts())} rules found" in promtool("check", "rules", "rules.yml")
    promtool("check", "config", "prometheus.yml")
    assert "SUCCESS" in promtool("test", "rules", "rules_test.yml")


def test_a_rule_that_never_fires_is_found(tmp_path: Path) -> None:
    """The tests of the rules prove something: a threshold that is never met fails them."""
    rules = (FOLDER / "rules.yml").read_text()
    (tmp_path / "rules.yml").write_text(rules.replace("migverify_watch_verdict == 1", "migverify_watch_verdict == 9"))
    (tmp_path / "rules_test.yml").write_text((FOLDER / "rules_test.yml").read_text())
    command = [*prometheus.provide_promtool(lambda _: None), "test", "rules", "rules_test.yml"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert "MigverifyWatchMismatch" in ended.stdout + ended.stderr


def query(server: Server, expression: str) -> list[dict[str, Any]]:
    """Return the series that an expression gives now; empty too while Prometheus begins."""
    url = f"{server.url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - of this machine
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 503:
            return []
        raise AssertionError(f"{expression}: {error.read().decode()}") from error
    except urllib.error.URLError:
        return []
    return list(found["data"]["result"])


def alerting(server: Server, state: str) -> set[str]:
    return {one["metric"]["alertname"] for one in query(server, f'ALERTS{{alertstate="{state}"}}')}


def test_a_real_prometheus_raises_what_a_real_watch_finds(databases: Databases, tmp_path: Path) -> None:
    databases.both("CREATE TABLE pay (id INT PRIMARY KEY, v INT)", "INSERT INTO pay VALUES (1, 1), (2, 2)")
    name = f"observed-{databases.name}"
    config = config_of(databases, tmp_path, name)
    code, out, err = migverify("tables", "verify", "--engine", "local", "--config", str(config), "--json")
    assert code == 0, err
    with replicated(databases, name, "skip:every=1"), prometheus_server(tmp_path) as server:
        watching = Watching(config, "--since", json.loads(out)["run_id"], "--prometheus", "0")
        watching.wait_for(lambda status: status["verdict"] == "MATCH")
        said = next(line for line in watching.said if "metrics on" in line)
        server.jobs = {JOB: [urllib.parse.urlsplit(said.split()[-1]).netloc]}
        server.rules = alerts()
        server.start()
        healthy = f'migverify_watch_verdict{{job="{JOB}"}} == 0 and on (job) count_over_time(up[30s]) > 2'
        wait_for(lambda: query(server, healthy), "Prometheus has the MATCH of the watch", every=0.2)
        assert alerting(server, "firing") == set()
        for _, expression in expressions():
            query(server, expression.replace("$job", ".*").replace("$instance", ".*"))

        databases.source("INSERT INTO pay VALUES (3, 3)")
        watching.wait_for(lambda status: status["verdict"] == "MISMATCH")
        wait_for(lambda: "MigverifyWatchMismatch" in alerting(server, "firing"), "the alert of the row", every=0.2)
        assert alerting(server, "firing") == {"MigverifyWatchMismatch"}
        assert query(server, f'migverify_watch_table_diverged{{table="{databases.name}.pay"}} == 1')
        watching.stop()
        wait_for(lambda: "MigverifyTargetDown" in alerting(server, "pending"), "the watch is missed", every=0.2)


def test_a_run_sends_its_spans_and_its_gauges_and_no_value(
    databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    databases.both(
        "CREATE TABLE pay (id INT PRIMARY KEY, v VARCHAR(40))", "INSERT INTO pay VALUES (1, 'of-a-customer')"
    )
    databases.target("UPDATE pay SET v = 'of-another-customer'", "COMMIT")
    config = config_of(databases, tmp_path, "sent")
    with collector() as (address, received):
        monkeypatch.setenv(ENDPOINT, address)
        code, _, err = migverify("tables", "verify", "--engine", "local", "--config", str(config))
    assert code == 1, err
    paths = {path for path, _ in received}
    bodies = b"".join(body for _, body in received)
    assert paths == {"/v1/traces", "/v1/metrics"}
    assert all(word in bodies for word in (b"migverify chunk", b"migverify_table_row_diffs", databases.name.encode()))
    assert b"customer" not in bodies
