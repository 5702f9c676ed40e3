"""``migverify check`` on real servers: what was planted is found, and a user without grants is told which."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migverify.cli.check import make_guard
from migverify.cli.main import run
from migverify.config import load_config
from migverify.guards.check_table import chosen
from migverify.guards.model import AnswerState, GuardAnswer, GuardResult
from migverify.sql import settings as sql
from migverify_lab.servers import LabServers
from tests.conftest import Databases
from tests.db.binlog_server import binlog_server
from tests.db.decoding import decoded_mariadb
from tests.db.verifying import execute, write_config

pytestmark = pytest.mark.db
FAIL, WARN, PASS, OPEN = AnswerState.FAIL, AnswerState.WARN, AnswerState.PASS, AnswerState.INCONCLUSIVE
DOCS = Path(__file__).parents[2] / "docs"


def asked(path: Path, only: list[str] | None = None, *, ticdc: list[str] | None = None) -> GuardResult:
    return make_guard(load_config(path), chosen(only or [])[0], 3600.0, ticdc or []).ask()


def one(result: GuardResult, name: str, subject: str = "") -> GuardAnswer:
    found = [a for a in result.answers if a.name == name and subject in ("", a.subject)]
    assert len(found) == 1, [(a.name, a.subject) for a in result.answers]
    return found[0]


def test_a_pair_in_order_passes(pair: LabServers, databases: Databases, tmp_path: Path) -> None:
    databases.both(
        "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(9) COLLATE utf8mb4_bin)",
        "CREATE TABLE b (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES a (id))",
        "CREATE VIEW w AS SELECT id FROM a",
    )  # fmt: skip
    result = asked(write_config(tmp_path, pair, databases.name))
    # Not of the tables: the lab's root may do anything, and its servers are nobody's.
    lab = {
        "grants-excess", "replicator", "named-zones", "gc-safe-point", "gc-life-time", "statistics", "connections",
        "charset", "clock", "binlog", "tls",
    }  # fmt: skip
    bad = {a.name.split(" ")[0]: a.value for a in result.answers if a.state in (FAIL, OPEN)}
    assert not {name: value for name, value in bad.items() if name not in lab}
    assert one(result, "grants-excess", "source").state is FAIL
    assert one(result, "foreign-keys").value == "1 on the source, 1 of them on the target"
    assert one(result, "views").value == "1 on the source, 1 of them on the target"
    for found in result.answers:
        assert found.query
        assert abs((found.server_time or 0) - found.local_time) < 600


def test_every_query_that_is_shown_can_be_run(pair: LabServers, databases: Databases, tmp_path: Path) -> None:
    databases.both("CREATE TABLE a (id INT PRIMARY KEY)")
    result = asked(write_config(tmp_path, pair, databases.name))
    refused = (sql.STORES, sql.ENTRY_SIZE, "SHOW REPLICA", "CALL ", "information_schema.COLUMNS", "SHOW CREATE TABLE")
    for found in result.answers:
        ask = databases.target if found.subject == "target" else databases.source
        for statement in re.split(r"; (?=SELECT)", found.query):
            if not statement.startswith(refused) and statement != sql.ENTRY_SIZE:
                ask(statement)


def test_what_tidb_does_not_run_is_found(pair: LabServers, databases: Databases, tmp_path: Path) -> None:
    name = databases.name
    databases.source(
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, n INT CHECK (n > 0), FOREIGN KEY (p) REFERENCES parent (id))",
        "CREATE TABLE keyless (v INT, w INT NOT NULL, UNIQUE KEY (v))",
        "CREATE TABLE keyed (w INT NOT NULL, UNIQUE KEY (w))",
        "CREATE TABLE old (id INT PRIMARY KEY) ENGINE=MyISAM",
        "CREATE TABLE Twin (id INT PRIMARY KEY)", "CREATE TABLE twin (id INT PRIMARY KEY)",
        "CREATE TABLE places (id INT PRIMARY KEY, at POINT NOT NULL SRID 0, t TEXT, h INT INVISIBLE, SPATIAL KEY (at),"
        " FULLTEXT KEY (t))",
        "CREATE TABLE texts (k VARCHAR(9) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY, v VARCHAR(9)"
        " COLLATE latin1_swedish_ci, body LONGTEXT COLLATE utf8mb4_bin)",
        "CREATE VIEW seen AS SELECT id FROM parent",
        "CREATE TRIGGER stamp BEFORE INSERT ON parent FOR EACH ROW SET NEW.id = NEW.id",
        "CREATE EVENT tidy ON SCHEDULE EVERY 1 YEAR STARTS '2099-01-01' DO DELETE FROM parent",
        "CREATE EVENT asleep ON SCHEDULE EVERY 1 YEAR DISABLE DO DELETE FROM parent",
        "CREATE PROCEDURE pay() SELECT 1",
    )  # fmt: skip
    databases.target(
        "CREATE TABLE parent (id INT PRIMARY KEY)", "CREATE TABLE child (id INT PRIMARY KEY, p INT, n INT)",
        "CREATE TABLE keyless (v INT, w INT NOT NULL, UNIQUE KEY (v))",
        "CREATE TABLE keyed (w INT NOT NULL, UNIQUE KEY (w))", "CREATE TABLE old (id INT PRIMARY KEY)",
        "CREATE TABLE twin (id INT PRIMARY KEY)", "CREATE TABLE places (id INT PRIMARY KEY)",
        "CREATE TABLE texts (k VARCHAR(9) COLLATE utf8mb4_bin PRIMARY KEY, v VARCHAR(9) COLLATE utf8mb4_bin)",
    )  # fmt: skip
    result = asked(write_config(tmp_path, pair, name))
    wanted = {
        "keys": (FAIL, f"1 in 9 tables: {name}.keyless"), "engines": (FAIL, f"{name}.old (MyISAM)"),
        "names": (FAIL, f"{name}.Twin and {name}.twin"), "types columns": (FAIL, f"{name}.places.at"),
        "types indexes": (FAIL, "2 in 9 tables"), "types invisible columns": (FAIL, f"{name}.places.h"),
        "collations unique keys": (FAIL, f"{name}.texts.k"), "collations other columns": (WARN, f"{name}.texts.v"),
        "collations-known tables that are there": (WARN, "latin1_swedish_ci"),
        "row-size": (WARN, f"{name}.texts (body)"),
        "foreign-keys": (FAIL, f"missing: {name}.child"), "checks": (FAIL, f"{name}.child"),
        "triggers": (FAIL, f"{name}.stamp on parent"), "events": (FAIL, f"1 in 1 database: {name}.tidy"),
        "routines": (FAIL, f"{name}.pay (procedure)"), "views": (FAIL, f"missing: {name}.seen"),
        "tables-present": (PASS, "9 of 9"),
    }  # fmt: skip
    for question, (state, words) in wanted.items():
        found = one(result, question, "source" if question == "keys" else "")
        assert (found.state, words in found.value) == (state, True), (question, found.state, found.value)


def test_a_table_and_a_pattern_that_are_missing(pair: LabServers, databases: Databases, tmp_path: Path) -> None:
    databases.source("CREATE TABLE a (id INT PRIMARY KEY)")
    tables = {"include": [f"{databases.name}.a", f"{databases.name}.misspelled"]}
    result = asked(write_config(tmp_path, pair, databases.name, tables=tables))
    assert one(result, "scope").state is FAIL
    assert "misspelled" in one(result, "scope").value
    assert one(result, "tables-present").value == f"1 of 1 are not there: {databases.name}.a"


# --- accounts ---------------------------------------------------------------------------------------------------

READ = "GRANT SELECT, SHOW VIEW ON `{db}`.* TO {user}"
BINLOG = "GRANT REPLICATION SLAVE, REPLICATION CLIENT, PROCESS ON *.* TO {user}"
ON_TIDB = "GRANT PROCESS ON *.* TO {user}"
BY_ROLE = (
    "CREATE ROLE {role}", "GRANT SELECT ON `{db}`.* TO {role}", "GRANT {role} TO {user}",
    "SET DEFAULT ROLE {role} TO {user}",
)  # fmt: skip
MATRIX: list[tuple[str, tuple[str, ...], tuple[str, ...], dict[tuple[str, str], AnswerState]]] = [
    ("reader", (READ,), (READ,), {
        ("grants-tables", "source"): PASS, ("grants-tables", "target"): PASS, ("grants-excess", "source"): PASS,
        ("grants-excess", "target"): PASS, ("grants-changes", "source"): FAIL, ("grants-workload", "source"): WARN,
        ("grants-repair", "target"): WARN, ("tables-present", "source -> target"): PASS,
        ("triggers", "source"): OPEN, ("events", "source"): OPEN, ("routines", "source"): OPEN,
        ("foreign-keys", "source -> target"): FAIL, ("gc-safe-point", "target"): OPEN,
        ("statistics", "target"): OPEN, ("new-collations", "target"): PASS,
    }),
    ("follower", (READ, BINLOG), (READ, ON_TIDB, "GRANT INSERT, UPDATE, DELETE ON `{db}`.* TO {user}"), {
        ("grants-changes", "source"): PASS, ("grants-workload", "source"): PASS, ("grants-workload", "target"): PASS,
        ("grants-excess", "source"): PASS, ("grants-repair", "target"): PASS, ("grants-excess", "target"): PASS,
    }),
    ("one table", (READ,), ("GRANT SELECT ON `{db}`.a TO {user}",), {
        ("grants-tables", "target"): PASS, ("tables-present", "source -> target"): FAIL,
    }),
    ("columns", ("GRANT SELECT (id) ON `{db}`.a TO {user}", "GRANT SELECT ON `{db}`.b TO {user}"), (READ,), {
        ("grants-tables", "source"): FAIL,
    }),
    ("writer", (READ, "GRANT UPDATE ON `{db}`.b TO {user}"), (READ, "GRANT SUPER ON *.* TO {user}"), {
        ("grants-excess", "source"): FAIL, ("grants-excess", "target"): WARN,
    }),
    ("super", (READ, "GRANT SUPER ON *.* TO {user}"), ("GRANT ALL ON *.* TO {user} WITH GRANT OPTION",), {
        ("grants-excess", "source"): FAIL, ("grants-excess", "target"): WARN, ("grants-repair", "target"): PASS,
    }),
    ("writer by a role it could turn on",
     (READ, "CREATE ROLE {role}", "GRANT INSERT ON `{db}`.* TO {role}", "GRANT {role} TO {user}"),
     (READ, "CREATE ROLE {role}", "GRANT INSERT, UPDATE, DELETE ON `{db}`.* TO {role}", "GRANT {role} TO {user}"), {
        ("grants-excess", "source"): FAIL, ("grants-repair", "target"): WARN,
    }),
    ("reader by its default role",
     BY_ROLE, BY_ROLE, {
        ("grants-tables", "source"): PASS, ("grants-excess", "source"): PASS, ("grants-tables", "target"): PASS,
    }),
]  # fmt: skip


@pytest.fixture
def account(pair: LabServers) -> Iterator[str]:
    """Name a user that both sides can make; it and its role are gone afterwards."""
    name = f"g1_{uuid.uuid4().hex[:10]}"
    for server in (pair.source, pair.target):
        execute(server, f"CREATE USER {name}@'%'")
    yield name
    for server in (pair.source, pair.target):
        execute(server, f"DROP USER IF EXISTS {name}@'%'", f"DROP ROLE IF EXISTS {name}_r")


@pytest.mark.parametrize(("source", "target", "wanted"), [row[1:] for row in MATRIX], ids=[row[0] for row in MATRIX])
def test_privileges(
    source: tuple[str, ...], target: tuple[str, ...], wanted: dict[tuple[str, str], AnswerState], pair: LabServers,
    databases: Databases, account: str, tmp_path: Path,
) -> None:  # fmt: skip
    databases.both("CREATE TABLE a (id INT PRIMARY KEY, v INT)", "CREATE TABLE b (id INT PRIMARY KEY)")
    databases.source("ALTER TABLE b ADD FOREIGN KEY (id) REFERENCES a (id)")
    names = {"db": databases.name, "user": f"{account}@'%'", "role": f"{account}_r"}
    execute(pair.source, *(one_.format(**names) for one_ in source))
    execute(pair.target, *(one_.format(**names) for one_ in target))
    path = write_config(tmp_path, pair, databases.name)
    path.write_text(path.read_text().replace("://root@", f"://{account}@"))
    result = asked(path)
    assert {key: one(result, *key).state for key in wanted} == wanted


def test_the_grants_of_the_page_are_enough(
    pair: LabServers, databases: Databases, account: str, tmp_path: Path
) -> None:
    databases.both("CREATE TABLE a (id INT PRIMARY KEY)")
    page = (DOCS / "check.md").read_text()
    for side, server in (("source", pair.source), ("target", pair.target)):
        block = page.partition(f"<!-- grants: {side} -->\n```sql\n")[2].partition("```")[0]
        assert block
        block = block.replace("'migverify'@'%'", f"{account}@'%'").replace("`app`", f"`{databases.name}`")
        execute(server, *(line for line in block.split(";\n") if line.strip()))
    path = write_config(tmp_path, pair, databases.name)
    path.write_text(path.read_text().replace("://root@", f"://{account}@"))
    result = asked(path)
    assert [(a.name, a.value) for a in result.answers if a.state is OPEN] == []
    assert {a.state for a in result.answers if a.name.startswith("grants-")} <= {PASS, WARN}


# --- other servers ----------------------------------------------------------------------------------------------


def other_source(path: Path, port: int) -> Path:
    text = path.read_text()
    path.write_text(re.sub(r"(mysql://root@127\.0\.0\.1:)\d+", rf"\g<1>{port}", text))
    return path


def test_a_server_with_bad_settings(pair: LabServers, databases: Databases, tmp_path: Path) -> None:
    databases.target("CREATE TABLE a (id INT PRIMARY KEY)")
    options = (
        "--sql-mode=ANSI_QUOTES", "--transaction-isolation=SERIALIZABLE", "--auto-increment-increment=2",
        "--max-allowed-packet=256M", "--default-time-zone=+05:30", "--binlog-row-image=MINIMAL", "--tls-version=",
        "--binlog-row-metadata=MINIMAL", "--group-concat-max-len=9999999", "--max-connections=3",
        "--binlog-expire-logs-seconds=3600", "--character-set-server=latin1",
        "--collation-server=latin1_swedish_ci", "--wait-timeout=99999",
        "--default-week-format=3", "--explicit-defaults-for-timestamp=OFF",
    )  # fmt: skip
    with binlog_server(tmp_path / "bad", *options) as server:
        server.run(f"CREATE DATABASE {databases.name}", f"CREATE TABLE {databases.name}.a (id INT PRIMARY KEY)")
        path = other_source(write_config(tmp_path, pair, databases.name), server.server.port)
        result = asked(path)
    wanted = {
        "sql-mode": FAIL, "isolation": FAIL, "auto-increment": FAIL, "max-allowed-packet": FAIL, "time-zone": FAIL,
        "binlog binlog_row_image": FAIL, "binlog binlog_row_metadata": FAIL, "binlog binlog_expire_logs_seconds": WARN,
        "other-settings group_concat_max_len": FAIL, "charset collation_server": WARN,
        "other-settings wait_timeout": WARN, "other-settings default_week_format": FAIL,
        "other-settings explicit_defaults_for_timestamp": FAIL,
    }  # fmt: skip
    assert {name: one(result, name).state for name in wanted} == wanted
    assert one(result, "connections", "source").state is FAIL
    assert one(result, "tls", "source").value == "in clear on this machine (tls.mode preferred)"


@pytest.mark.parametrize("mode", ["required", "verify-ca"])
def test_tls_and_its_certificate(mode: str, pair: LabServers, databases: Databases, tmp_path: Path) -> None:
    with binlog_server(tmp_path / "tls") as server:
        tls: dict[str, Any] = {"mode": mode}
        if mode == "verify-ca":
            tls["ca"] = str(server.data / "ca.pem")
        path = other_source(write_config(tmp_path, pair, databases.name, source={"tls": tls}), server.server.port)
        found = one(asked(path, ["tls"]), "tls", "source")
    assert found.state is PASS
    assert found.value.startswith("TLSv1.")
    assert ("certificate_days_left" in found.numbers) == (mode == "verify-ca")


SMALL = ["grants-tables", "grants-excess", "grants-changes", "foreign-keys", "triggers", "events", "routines",
         "binlog"]  # fmt: skip


def test_mariadb(pair: LabServers, databases: Databases, tmp_path: Path) -> None:
    databases.target("CREATE TABLE a (id INT PRIMARY KEY)")
    with decoded_mariadb(tmp_path / "mariadb") as server:
        server.run(
            f"CREATE DATABASE {databases.name}", f"CREATE TABLE {databases.name}.a (id INT PRIMARY KEY, u UUID)",
            f"CREATE TABLE {databases.name}.b (id INT PRIMARY KEY, a INT REFERENCES {databases.name}.a (id),"
            " n INT CHECK (n > 0), j JSON)",
            "CREATE ROLE g1_writer", f"GRANT DELETE ON {databases.name}.* TO g1_writer",
            "CREATE USER g1_m@'%'", f"GRANT SELECT ON {databases.name}.* TO g1_m@'%'", "GRANT g1_writer TO g1_m@'%'",
        )  # fmt: skip
        path = other_source(write_config(tmp_path, pair, databases.name), server.session.port)
        result = asked(path)
        path.write_text(path.read_text().replace("mysql://root@", "mysql://g1_m@"))
        small = asked(path, SMALL)
    assert one(result, "replicator").state is WARN
    assert "u (uuid)" in one(result, "types columns").value
    assert one(result, "binlog log_bin").state is FAIL
    assert one(small, "grants-tables", "source").state is PASS
    assert (one(small, "grants-excess", "source").state, one(small, "grants-changes").state) == (FAIL, FAIL)
    assert "grants not shown" in one(small, "grants-excess", "source").value
    assert one(small, "foreign-keys").state is FAIL
    assert "1 on the source" in one(result, "checks").value
    assert {one(small, name).state for name in ("triggers", "events", "routines")} == {OPEN}


def test_checkpoints_of_dm_are_read(databases: Databases) -> None:
    databases.target(
        "CREATE TABLE move_syncer_checkpoint (id VARCHAR(32) NOT NULL, cp_schema VARCHAR(128) NOT NULL, cp_table"
        " VARCHAR(128) NOT NULL, binlog_name VARCHAR(128), binlog_pos INT UNSIGNED, binlog_gtid TEXT, table_info JSON,"
        " is_global BOOLEAN, create_time TIMESTAMP DEFAULT CURRENT_TIMESTAMP, update_time TIMESTAMP DEFAULT"
        " CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, UNIQUE KEY (id, cp_schema, cp_table))",
        "INSERT INTO move_syncer_checkpoint (id, cp_schema, cp_table, binlog_name, binlog_pos, binlog_gtid, is_global)"
        " VALUES ('mysql-01', '', '', 'binlog.000007', 12, 'a:1-9', 1), ('mysql-01', 'app', 't', 'x', 1, '', 0)",
    )
    rows = databases.target(sql.checkpoint_rows(databases.name, "move_syncer_checkpoint"))
    assert [row[:4] for row in rows] == [("mysql-01", "binlog.000007", 12, "a:1-9")]
    assert 0 <= rows[0][4] < 60


# --- the command ------------------------------------------------------------------------------------------------


def test_the_command_keeps_its_answers(
    pair: LabServers, databases: Databases, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    databases.both("CREATE TABLE a (v INT)")
    monkeypatch.chdir(tmp_path)
    path = str(write_config(tmp_path, pair, databases.name))
    assert run(["guard", "settings", "-c", path, "--only", "keys", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert {(a["name"], a["state"]) for a in told["guards"][0]["answers"]} == {("keys", "fail")}
    assert run(["guard", "settings", "-c", path, "--only", "scope", "--all"]) == 0
    assert "1 table in 1 database" in capsys.readouterr().out
    assert run(["report", told["run"], "-c", path]) in (0, 1)
    assert f"{databases.name}.a" in capsys.readouterr().out
