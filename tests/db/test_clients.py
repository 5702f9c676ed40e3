"""Client scenarios with real drivers and pools on the real pair."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migverify.errors import UsageError
from migverify.workload.clients.drivers import drivers, harness_jars, pools
from migverify.workload.clients.jars import provide
from migverify.workload.clients.run import find_java
from migverify_lab.servers import LabServers
from migverify_lab.session import connect

pytestmark = pytest.mark.db

USER, PASSWORD = "h_clients", "hunter2:#%'\""
DATABASE = "h_clients_test"


@pytest.fixture(scope="module")
def ready() -> None:
    """Java and the jars, or a reason to skip."""
    try:
        find_java()
        wanted = [*harness_jars(), *(jar for pool in pools().values() for jar in pool.jars)]
        for name in ("connector-j-9", "mariadb-3"):
            wanted += drivers()[name].jars
        provide(wanted, os.environ.get("MIGVERIFY_MAVEN_REPOSITORY"), lambda _: None)
    except UsageError as error:
        if os.environ.get("MIGVERIFY_REQUIRE_DB", "") not in {"", "0"}:
            raise
        pytest.skip(f"no Java harness: {error}")


@pytest.fixture(scope="module")
def config(pair: LabServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A configuration whose user has a password, and may do what scenarios do."""
    folder = tmp_path_factory.mktemp("clients")
    quoted = PASSWORD.replace("'", "''")
    for server in (pair.source, pair.target):
        with connect(server) as session, session.cursor() as cursor:
            cursor.execute(f"DROP USER IF EXISTS '{USER}'@'%'")
            cursor.execute(f"CREATE USER '{USER}'@'%' IDENTIFIED BY '{quoted}'")
            cursor.execute(f"GRANT ALL ON *.* TO '{USER}'@'%'")
    (folder / "migverify.yaml").write_text(
        f"source: {{url: 'mysql://{USER}@{pair.source}', password_env: H_PW}}\n"
        f"target: {{url: 'tidb://{USER}@{pair.target}', password_env: H_PW}}\n"
        "tables: {include: ['*.*']}\n"
    )
    yield folder / "migverify.yaml"
    for server in (pair.source, pair.target):
        with connect(server) as session, session.cursor() as cursor:
            cursor.execute(f"DROP USER IF EXISTS '{USER}'@'%'")


def run(config: Path, *arguments: str, code: int) -> tuple[dict[str, Any], str]:
    """Run the command; nothing it prints or keeps holds the password."""
    done = subprocess.run(
        [sys.executable, "-m", "migverify", "workload", "clients", "-c", str(config), "--json",
         "--database", DATABASE, *arguments],
        capture_output=True, text=True, check=False, timeout=300, cwd=config.parent,
        env={**os.environ, "H_PW": PASSWORD},
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    kept = [path for path in config.parent.rglob("*") if path.is_file()]
    for text in (done.stdout, done.stderr, *(path.read_bytes().decode("latin-1") for path in kept)):
        assert "hunter2" not in text
    return (json.loads(done.stdout) if done.stdout else {}), done.stderr


@pytest.mark.usefixtures("ready")
def test_drivers_and_pools_on_the_pair(config: Path) -> None:
    names = ["isolation", "eviction-1105", "read-only", "network-lose-answer", "generated-keys", "savepoints"]
    options = [part for name in names for part in ("--scenario", name)]
    for name in ("connector-j-9", "mariadb-3"):
        options += ["--driver", name]
    for name in ("none", "hikari"):
        options += ["--pool", name]
    facts = config.parent / "facts.jsonl"
    body, _ = run(config, *options, "--source-is-scratch", "--facts", str(facts), code=1)
    cells = {(c["driver"], c["pool"], c["scenario"], c["variant"]): c for c in body["cells"]}
    undecided = {key: c["reason"] for key, c in cells.items() if c["verdict"] == "INCONCLUSIVE"}
    assert not undecided

    def differing(driver: str, pool: str, scenario: str, variant: str = "default") -> dict[str, tuple[str, str]]:
        found = cells[driver, pool, scenario, variant]["differences"]
        return {f"{one['action']}: {one['path']}": (one["source"], one["target"]) for one in found}

    for driver in ("connector-j-9", "mariadb-3"):
        # The pool closes a healthy connection, and the transaction on it is lost; with the remedy neither happens.
        lost = differing(driver, "hikari", "eviction-1105")
        assert lost["the pool kept its connection: same_server_connection"] == ("true", "false")
        assert "the transaction's row: results.0.rows.0.0" in lost
        assert " 1105/HY000" in lost["a refused statement: error"][1]
        kept = differing(driver, "hikari", "eviction-1105", "kept")
        assert list(kept) == ["a refused statement: error"]
        assert " 8048/" in differing(driver, "none", "isolation")["serializable: outcome"][1]
        assert cells[driver, "hikari", "network-lose-answer", "default"]["verdict"] == "MATCH"
        assert cells[driver, "none", "savepoints", "default"]["verdict"] == "MATCH"
    refused = differing("connector-j-9", "hikari", "read-only")["set: outcome"]
    assert " 1235/42000" in refused[1]
    assert cells["connector-j-9", "hikari", "read-only", "not-propagated"]["verdict"] == "MATCH"
    # What was seen is there too: the COMMIT whose answer was lost is on the server, and the client has an error.
    lines = [json.loads(line) for line in facts.read_text().splitlines()]
    wanted = ("connector-j-9", "none", "network-lose-answer")
    (seen,) = [one for one in lines if (one["driver"], one["pool"], one["scenario"]) == wanted]
    for side in ("source", "target"):
        assert "error" in seen[side][5]
        count = [step for step in seen[side] if "results" in step][1]
        assert count["results"][0]["rows"] == [[{"class": "java.lang.Long", "value": "1"}]]


@pytest.mark.usefixtures("ready")
def test_python_drivers_and_those_not_installed(config: Path) -> None:
    options = ["--driver", "pymysql", "--driver", "asyncmy", "--scenario", "affected-rows", "--source-is-scratch"]
    body, _ = run(config, *options, code=3)
    verdicts = {(c["driver"], c["verdict"]) for c in body["cells"]}
    assert ("pymysql", "MATCH") in verdicts
    assert ("pymysql", "INCONCLUSIVE") not in verdicts
    assert ("asyncmy", "MATCH") not in verdicts


def test_a_source_that_proves_nothing_is_not_written(config: Path, pair: LabServers) -> None:
    _, said = run(config, "--driver", "pymysql", "--scenario", "affected-rows", code=2)
    assert "--source-is-scratch" in said
    with connect(pair.source) as session, session.cursor() as cursor:
        assert cursor.execute(f"SHOW DATABASES LIKE '{DATABASE}'") == 0


def test_a_database_of_others_is_refused(config: Path, pair: LabServers) -> None:
    with connect(pair.target) as session, session.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {DATABASE}")
        cursor.execute(f"CREATE TABLE {DATABASE}.precious (id INT)")
        try:
            options = ["--driver", "pymysql", "--scenario", "affected-rows", "--source-is-scratch"]
            _, said = run(config, *options, code=2)
            assert "holds 1 table of others (precious" in said
            with connect(pair.source) as other, other.cursor() as looking:
                assert looking.execute(f"SHOW DATABASES LIKE '{DATABASE}'") == 0
            cursor.execute(f"SELECT COUNT(*) FROM {DATABASE}.precious")
        finally:
            cursor.execute(f"DROP DATABASE {DATABASE}")


@pytest.mark.soak
@pytest.mark.timeout(3700)  # all cells take about 25 minutes on a quiet machine
@pytest.mark.usefixtures("ready")
def test_the_whole_matrix(tmp_path: Path) -> None:
    """Every driver, pool and scenario on servers of its own; what is undecided says so for a reason that is known."""
    done = subprocess.run(
        [sys.executable, "-m", "migverify", "workload", "clients", "--own-servers", "--all", "--json",
         "--store", f"sqlite:///{tmp_path}/runs.db"],
        capture_output=True, text=True, check=False, timeout=3600, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    cells = json.loads(done.stdout)["cells"]
    reasons = [c["reason"] for c in cells if c["verdict"] == "INCONCLUSIVE"]
    assert not [r for r in reasons if not r.startswith("not installed") and "a second run" not in r]
    assert {c["driver"] for c in cells if c["verdict"] != "INCONCLUSIVE"} >= {"connector-j-5.1", "mariadb-3", "pymysql"}
