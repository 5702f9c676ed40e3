"""``changes check`` on a real MySQL: what it says is so, and what the user may not ask is no pass."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from migverify.cli.changes_check import check, check_source
from migverify.config import load_config
from migverify.guards.model import AnswerState
from migverify.model import Verdict
from migverify_lab.servers import LabServers
from tests.db.binlog_server import binlog_server
from tests.db.verifying import execute, write_config

pytestmark = pytest.mark.db


@pytest.fixture
def user(pair: LabServers, databases: Any) -> Iterator[str]:
    """A user of the source that may read the tables, and no more; gone afterwards."""
    name = f"mv_{uuid.uuid4().hex[:12]}"
    execute(pair.source, f"CREATE USER {name}@'%' IDENTIFIED BY 'pw-{name}'",
            f"GRANT SELECT ON `{databases.name}`.* TO {name}@'%'")  # fmt: skip
    yield name
    execute(pair.source, f"DROP USER {name}@'%'")


def run(path: Path, capsys: pytest.CaptureFixture[str], *, as_json: bool = True) -> tuple[int, str]:
    with pytest.raises(typer.Exit) as ending:
        check(path, None, None, as_json)
    return ending.value.exit_code, capsys.readouterr().out


def states(output: str) -> dict[str, str]:
    return {f["name"]: f["state"] for f in json.loads(output)["sources"][0]["findings"]}


def test_the_lab_is_fit(pair: LabServers, databases: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    databases.source(
        "CREATE TABLE a (id INT PRIMARY KEY, v INT)", "CREATE TABLE b (v INT) ENGINE=MyISAM",
        "CREATE TABLE c (id INT PRIMARY KEY, a_id INT, FOREIGN KEY (a_id) REFERENCES a (id) ON DELETE CASCADE)",
    )  # fmt: skip
    path = write_config(tmp_path, pair, databases.name)
    found = check_source(load_config(path), load_config(path).sources[0], None)
    by_name = {f.name: f for f in found.answers}
    assert by_name["binlog_format"].value == "ROW"
    assert " of 20" in by_name["binary logs"].value  # the age comes from the head of the file
    assert by_name["tables without a primary key"].value == f"1 in 3 tables: {databases.name}.b"
    assert by_name["tables of other engines"].value == f"1 in 3 tables: {databases.name}.b (MyISAM)"
    # Every statement that a finding names shows its value again.
    for finding in found.answers:
        if finding.query.startswith("SHOW GLOBAL"):
            shown = databases.source(finding.query)
            assert [(finding.name, finding.value.strip("'"))] == list(shown) or "cascades" in finding.value
    code, output = run(path, capsys)
    assert json.loads(output)["verdict"] == found.verdict.value
    assert code == (0 if found.verdict is Verdict.MATCH else 3)
    server = execute(pair.source, "SELECT @@server_id")[0][0]
    taken = check_source(load_config(path), load_config(path).sources[0], int(server))
    assert any("is taken" in reason for reason in taken.reasons)


def test_a_user_without_grants_is_told_which(
    pair: LabServers, databases: Any, user: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    databases.source("CREATE TABLE a (id INT PRIMARY KEY)")
    monkeypatch.setenv("MV_CHECK_PASSWORD", f"pw-{user}")
    url = f"mysql://{user}@{pair.source.host}:{pair.source.port}"
    path = write_config(tmp_path, pair, databases.name, source={"url": url, "password_env": "MV_CHECK_PASSWORD"})
    code, output = run(path, capsys)
    assert code == 3
    assert f"pw-{user}" not in output
    found = {f["name"]: f for f in json.loads(output)["sources"][0]["findings"]}
    for grant in ("REPLICATION SLAVE", "REPLICATION CLIENT"):
        assert found[grant]["state"] == "fail"
        assert found[grant]["todo"] == f"GRANT {grant} ON *.* TO '{user}'@'%';"
    assert found["binary logs"]["state"] == found["log_replica_updates"]["state"] == "inconclusive"
    assert found["sessions"]["state"] == found["server_id of the reader"]["state"] == "warn"
    assert found["binlog_format"]["state"] == "pass"

    # What it says to run is what helps; through a role, too.
    execute(pair.source, found["REPLICATION SLAVE"]["todo"], f"CREATE ROLE {user}_r",
            f"GRANT REPLICATION CLIENT ON *.* TO {user}_r", f"GRANT {user}_r TO {user}@'%'",
            f"SET DEFAULT ROLE ALL TO {user}@'%'")  # fmt: skip
    try:
        code, output = run(path, capsys)
    finally:
        execute(pair.source, f"DROP ROLE {user}_r")
    assert {states(output)[name] for name in ("REPLICATION SLAVE", "REPLICATION CLIENT", "binary logs")} == {"pass"}
    assert code == 0


def test_a_server_set_up_badly_fails_point_by_point(
    pair: LabServers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--binlog-row-metadata=MINIMAL", "--binlog-row-image=MINIMAL", "--binlog-row-value-options=PARTIAL_JSON",
               "--binlog-transaction-compression=ON", "--binlog-checksum=NONE", "--binlog-expire-logs-seconds=60",
               "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", "--innodb-native-foreign-keys=ON",
               "--binlog-ignore-db=audit")  # fmt: skip
    with binlog_server(tmp_path / "server", *options) as source:
        source.run("CREATE DATABASE bad", "USE bad", "CREATE TABLE a (id INT PRIMARY KEY)",
                   "CREATE TABLE b (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES a (id) ON UPDATE CASCADE)",
                   "CREATE TABLE v (id INT PRIMARY KEY, e VECTOR(3))")  # fmt: skip
        with source.connect() as other, other.cursor() as cursor:
            cursor.execute("SET SESSION binlog_format = 'STATEMENT'")
            path = write_config(tmp_path, LabServers(source.server, pair.target), "bad")
            code, output = run(path, capsys)
            found = {f["name"]: f for f in json.loads(output)["sources"][0]["findings"]}
            # What it says to run can be run, and is what helps.
            source.run(found["binlog_row_image"]["todo"].partition(";")[0], found["binlog_checksum"]["todo"])
        again = states(run(path, capsys)[1])
    assert code == 3
    assert {name for name, f in found.items() if f["state"] == "fail"} == {
        "binlog_row_metadata", "binlog_row_image", "binlog_row_value_options", "binlog filters",
        "cascading foreign keys",
    }  # fmt: skip
    assert {name for name, f in found.items() if f["state"] == "warn"} == {
        "binlog_transaction_compression", "binlog_checksum", "binlog_expire_logs_seconds", "gtid_mode",
        "enforce_gtid_consistency", "sessions", "VECTOR columns",
    }  # fmt: skip
    assert "with binlog_format = STATEMENT" in found["sessions"]["value"]
    assert found["cascading foreign keys"]["value"].startswith("1 in 3 tables: bad.b (")
    assert again["binlog_row_image"] == again["binlog_checksum"] == "pass"


def test_text_says_what_to_do(
    pair: LabServers, databases: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path, pair, databases.name)
    code, output = run(path, capsys, as_json=False)
    assert code == 3  # no table is in scope
    assert "Look at tables.include" in output
    assert "blind spot" in output


def test_tidb_is_sent_another_way(
    pair: LabServers, databases: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"tidb://root@{pair.target.host}:{pair.target.port}"
    path = write_config(tmp_path, pair, databases.name, source={"url": url})
    code, output = run(path, capsys)
    assert code == 3
    assert "TiCDC" in output


def test_columns_that_a_binlog_tells_otherwise_are_named(pair: LabServers, databases: Any, tmp_path: Path) -> None:
    databases.source("CREATE TABLE a (id INT(6) ZEROFILL PRIMARY KEY, f FLOAT(7,2), d DOUBLE(9,3), g FLOAT, n INT)")
    path = write_config(tmp_path, pair, databases.name)
    found = {f.name: f for f in check_source(load_config(path), load_config(path).sources[0], None).answers}
    assert found["ZEROFILL columns"].value == f"1 in 1 table: {databases.name}.a.id (int(6) unsigned zerofill)"
    listed = f"{databases.name}.a.f (float(7,2)), {databases.name}.a.d (double(9,3))"
    assert found["FLOAT(M,D) and DOUBLE(M,D) columns"].value == f"2 in 1 table: {listed}"
    assert found["ZEROFILL columns"].state is AnswerState.WARN
