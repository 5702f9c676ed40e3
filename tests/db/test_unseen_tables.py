"""Tables that nobody could see, or that are new: no later run is MATCH over them, and no repair deletes for them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from migverify.store.open import open_store
from tests.conftest import Databases
from tests.db.test_missing_grants import config, databases, quoted, user
from tests.db.verifying import command, execute, run_command, write_config

__all__ = ["databases", "user"]

pytestmark = pytest.mark.db


def grant(databases: Databases, user: str, what: str) -> None:
    for server in (databases.pair.source, databases.pair.target):
        execute(server, f"GRANT SELECT ON {what} TO {quoted(user)}")


def reasons_of(path: Path, run_id: str) -> str:
    with closing(open_store(f"sqlite:///{path.parent / 'runs.db'}")) as store:
        return "; ".join(store.load_run(run_id).facts["reasons"])


@pytest.mark.attack("tables", "a table that the user could not see, or that was made since, in `--recheck`",
                    "read whole, and named")  # fmt: skip
@pytest.mark.parametrize("how", ["hidden", "made since"])
def test_a_recheck_reads_what_the_run_did_not_know(databases: Databases, tmp_path: Path, user: str, how: str) -> None:
    databases.both("CREATE TABLE seen (id INT PRIMARY KEY)", "INSERT INTO seen VALUES (1)")
    databases.target("INSERT INTO seen VALUES (2)")
    if how == "hidden":
        databases.both("CREATE TABLE other (id INT PRIMARY KEY)")
        grant(databases, user, f"`{databases.name}`.seen")
    else:
        grant(databases, user, f"`{databases.name}`.*")
    path = config(tmp_path, databases, user)
    code, first, messages = run_command(path)
    assert code == 1, messages
    grant(databases, user, f"`{databases.name}`.*")
    if how == "made since":
        databases.both("CREATE TABLE other (id INT PRIMARY KEY)")
    databases.source("INSERT INTO other VALUES (1)")
    databases.target("DELETE FROM seen WHERE id=2")
    code, report, messages = run_command(path, "--recheck", first["run_id"])
    assert (code, report["verdict"]) == (1, "MISMATCH"), messages
    assert {pair["pair"]: pair["verdict"] for pair in report["tables"]} == {
        f"{databases.name}.seen": "MATCH", f"{databases.name}.other": "MISMATCH",
    }  # fmt: skip
    databases.source("DELETE FROM other")
    code, report, messages = run_command(path, "--recheck", report["run_id"])
    assert (code, report["verdict"]) == (0, "MATCH"), messages


@pytest.mark.attack("tables", "a table that the user could not see, or that was made since, in `--resume`",
                    "INCONCLUSIVE, with the command that reads it")  # fmt: skip
def test_a_resumed_run_is_no_match_of_tables_that_it_did_not_know(
    databases: Databases, tmp_path: Path, user: str
) -> None:
    rows = ", ".join(f"({n})" for n in range(3_000))
    databases.both("CREATE TABLE seen (id INT PRIMARY KEY)", f"INSERT INTO seen VALUES {rows}",
                   "CREATE TABLE other (id INT PRIMARY KEY)")  # fmt: skip
    grant(databases, user, f"`{databases.name}`.seen")
    pause = tmp_path / "pause"
    path = config(tmp_path, databases, user, limits={"pause_file": str(pause)})
    pause.touch()
    process = subprocess.Popen(command(path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    begun = next(line for line in process.stderr if line.startswith("run "))
    run_id = begun.split()[1]
    time.sleep(0.5)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 130
    pause.unlink()
    grant(databases, user, f"`{databases.name}`.*")
    databases.source("INSERT INTO other VALUES (1)")
    code, report, messages = run_command(path, "--resume", run_id)
    assert (code, report["verdict"]) == (3, "INCONCLUSIVE"), messages
    why = reasons_of(path, run_id)
    assert f"1 table is in scope now that run {run_id} did not know" in why
    assert f"{databases.name}.other" in why
    code, report, messages = run_command(path, "--recheck", run_id)
    assert (code, [pair["pair"] for pair in report["tables"] if pair["verdict"] == "MISMATCH"]) == (
        1, [f"{databases.name}.other"],
    ), messages  # fmt: skip


@pytest.mark.attack("tables", "patterns that speak of databases which no user may see", "INCONCLUSIVE, with the grant")
@pytest.mark.parametrize("include", ["*.*", "{name}*.*", "/{name}|hidden/.*", "/{name}\\..*/"])
def test_databases_that_no_user_sees_are_no_match(
    databases: Databases, tmp_path: Path, user: str, include: str
) -> None:
    databases.both("CREATE TABLE seen (id INT PRIMARY KEY)")
    grant(databases, user, f"`{databases.name}`.*")
    path = config(tmp_path, databases, user, tables={"include": [include.format(name=databases.name)]})
    code, report, messages = run_command(path)
    assert (code, report["verdict"]) == (3, "INCONCLUSIVE"), messages
    why = reasons_of(path, report["run_id"])
    assert f"source: {user} may not read every database that " in why
    assert "GRANT SELECT ON *.*" in why
    code, report, messages = run_command(path, "--tables", f"{databases.name}.*")
    assert (code, report["verdict"]) == (0, "MATCH"), messages
    grant(databases, user, "*.*")
    code, report, messages = run_command(path, "--tables", f"{databases.name}.*")
    assert (code, report["verdict"]) == (0, "MATCH"), messages


@pytest.mark.attack("tables", "a source table that leads into a bigger one is hidden; `tables repair --apply`",
                    "no DELETE")  # fmt: skip
def test_no_repair_deletes_for_rows_that_nobody_could_see(databases: Databases, tmp_path: Path, user: str) -> None:
    databases.source("CREATE TABLE ev_1 (id INT PRIMARY KEY, v INT)", "CREATE TABLE ev_2 (id INT PRIMARY KEY, v INT)",
                     "INSERT INTO ev_1 VALUES (1, 1), (2, 2)", "INSERT INTO ev_2 VALUES (3, 3), (4, 4)")  # fmt: skip
    databases.target("CREATE TABLE ev (id INT PRIMARY KEY, v INT)",
                     "INSERT INTO ev VALUES (1, 0), (2, 2), (3, 3), (4, 4)")  # fmt: skip
    name = databases.name
    execute(databases.pair.source, f"GRANT SELECT ON `{name}`.ev_1 TO {quoted(user)}")
    execute(databases.pair.target, f"GRANT SELECT, INSERT, UPDATE, DELETE ON `{name}`.* TO {quoted(user)}")
    path = config(tmp_path, databases, user, routes=[{"from": f"{name}.ev_*", "to": f"{name}.ev"}])
    code, first, messages = run_command(path)
    assert code == 1, messages
    whole = [(1, 1), (2, 2), (3, 3), (4, 4)]
    told = repaired(path, first["run_id"])
    assert "may read a part of database" in told["tables"][0]["no_delete"]
    assert databases.target("SELECT * FROM ev ORDER BY id") == whole
    # Nor by somebody who sees all now: what the run did not read looks as if the target alone had it.
    execute(databases.pair.source, f"GRANT SELECT ON `{name}`.* TO {quoted(user)}")
    repaired(path, first["run_id"])
    assert databases.target("SELECT * FROM ev ORDER BY id") == whole
    code, report, messages = run_command(path)
    assert (code, report["verdict"]) == (0, "MATCH"), messages


def repaired(path: Path, run_id: str) -> dict[str, Any]:
    words = ["tables", "repair", run_id, "--apply", "--out", str(path.parent / "out"), "--config", str(path), "--json"]
    done = subprocess.run([sys.executable, "-m", "migverify", *words], capture_output=True, text=True)
    assert done.returncode in (1, 3), done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_table_that_one_of_two_sources_hides_is_no_difference_without_a_word(
    databases: Databases, tmp_path: Path, user: str
) -> None:
    databases.both("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    path = write_config(tmp_path, databases.pair, databases.name)
    document = yaml.safe_load(path.read_text())
    source = document.pop("source")
    document["sources"] = {"a": source, "b": {**source, "url": source["url"].replace("root@", f"{user}@")}}
    document["tables"] = {"include": [f"{databases.name}.t"]}
    path.write_text(yaml.safe_dump(document))
    _, report, messages = run_command(path)
    assert report["verdict"] == "INCONCLUSIVE", messages
    assert f"source.b: {user} may not read {databases.name}.t" in reasons_of(path, report["run_id"])


@pytest.mark.attack("watch", "a watch that rests on a run whose user could not see a table", "it is read whole")
def test_a_watch_rests_on_no_run_for_a_table_that_the_run_did_not_know(
    databases: Databases, tmp_path: Path, user: str
) -> None:
    databases.both("CREATE TABLE seen (id INT PRIMARY KEY)", "CREATE TABLE other (id INT PRIMARY KEY)",
                   "INSERT INTO seen VALUES (1)")  # fmt: skip
    databases.source("INSERT INTO other VALUES (1)")
    grant(databases, user, f"`{databases.name}`.seen")
    execute(databases.pair.source, f"GRANT REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO {quoted(user)}")
    path = config(tmp_path, databases, user)
    assert run_command(path)[0] == 3
    grant(databases, user, f"`{databases.name}`.*")
    words = [
        "tables",
        "watch",
        "--since",
        "last",
        "--until-drained",
        "--timeout",
        "40",
        "--config",
        str(path),
        "--json",
    ]
    done = subprocess.run([sys.executable, "-m", "migverify", *words], capture_output=True, text=True)
    status = json.loads(done.stdout.splitlines()[-1])
    assert status["verdict"] == "MISMATCH", status
    assert {table["source"]: table["verdict"] for table in status["tables"]} == {
        f"{databases.name}.seen": "MATCH", f"{databases.name}.other": "MISMATCH",
    }  # fmt: skip
