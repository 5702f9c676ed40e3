"""``config --grants``: its statements, pasted by an administrator, are enough for every command and server."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from migverify.cli.main import main, run
from migverify.db.session import open_session
from migverify.errors import PrivilegeError
from migverify.model import Endpoint, Flavor
from migverify.store.open import open_store
from migverify_lab.servers import LabServer, LabServers
from migverify_lab.session import connect
from tests.conftest import Databases
from tests.db.test_reverse import followed, opened, verified, write
from tests.db.verifying import execute, run_command, write_config
from tests.db.watching import Watching

__all__ = ["opened"]

pytestmark = pytest.mark.db

NAMES = ["plain", "o'b_x", "b\\s`q"]
"""Parts of users' names: quotes, wildcards, a backslash and a backtick."""


def quoted(user: str) -> str:
    return "`" + user.replace("`", "``") + "`@`%`"


@pytest.fixture
def databases(own_databases: Databases) -> Databases:
    """Commands that look at whole servers meet the tables and statements of other tests elsewhere."""
    return own_databases


@pytest.fixture
def user(databases: Databases, request: pytest.FixtureRequest) -> Iterator[str]:
    """A user of both sides without any right."""
    name = f"mv{uuid.uuid4().hex[:6]}{getattr(request, 'param', 'plain')}"
    for server in (databases.pair.source, databases.pair.target):
        execute(server, f"CREATE USER {quoted(name)}")
    yield name
    for server in (databases.pair.source, databases.pair.target):
        execute(server, f"DROP USER {quoted(name)}")


def config(folder: Path, databases: Databases, user: str, **more: Any) -> Path:
    path = write_config(folder, databases.pair, databases.name, **more)
    document = yaml.safe_load(path.read_text())
    for side in ("source", "target"):
        server = getattr(databases.pair, side)
        document[side] = {"host": server.host, "port": server.port, "user": user, "connections": 2,
                          **{k: v for k, v in document[side].items() if k not in ("url", "connections")}}  # fmt: skip
    path.write_text(yaml.safe_dump(document))
    return path


def asked(path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, list[str]]]:
    """The exit code, and the statements by endpoint."""
    capsys.readouterr()
    code = run(["config", "--grants", "-c", str(path), *more])
    shown = capsys.readouterr()
    assert code in (0, 1), shown.err
    found: dict[str, list[str]] = {}
    for line in shown.out.splitlines():
        if line.startswith("-- "):
            lines = found.setdefault(line[3:].partition(",")[0], [])
        else:
            lines.append(line)
    return code, found


def paste(databases: Databases, found: dict[str, list[str]]) -> None:
    for side, lines in found.items():
        execute(getattr(databases.pair, side), *(line.removesuffix(";") for line in lines))


@pytest.mark.parametrize("user", NAMES, indirect=True)
def test_pasted_statements_leave_nothing_missing(
    databases: Databases, user: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    databases.both("CREATE TABLE t (id INT PRIMARY KEY)")
    path = config(tmp_path, databases, user)
    code, found = asked(path, capsys)
    assert code == 1
    assert set(found) == {"source", "target"}
    assert not any(word in line for lines in found.values() for line in lines
                   for word in ("INSERT", "UPDATE", "DELETE", "SUPER", "ALL "))  # fmt: skip
    assert not any(word in line for line in found["target"] for word in ("ROUTINE", "TRIGGER", "EVENT", "REPLICATION"))
    paste(databases, found)
    assert asked(path, capsys) == (0, {})
    code, writing = asked(path, capsys, "--for", "tables repair --apply")
    assert (code, list(writing)) == (1, ["target"])
    paste(databases, writing)
    assert asked(path, capsys, "--for", "tables repair --apply") == (0, {})


COMMANDS = [
    "tables plan", "tables verify -q", "tables repair last --out {}/r.sql", "tables diff last",
    "changes check", "changes tail", "changes audit", "changes archive --to {}/a",
    "check", "guard settings", "guard ids", "guard schema --snapshot", "guard schema", "guard schema --baseline last",
    "guard capacity --target-free 1TiB", "guard hotspots",
    "workload sessions --out {}/s.json", "workload capture --poll --out {}/p --seconds 1",
    "recon init -o {}/recon.yaml", "recon check {}/recon.yaml",
    "recon run {}/recon.yaml -q", "recon explain {}/recon.yaml", "recon watch {}/recon.yaml --once",
]  # fmt: skip
DENIED = ("denied", "lacks", "privilege", "hidden", "may not", "not seen", "GRANT ", "without PROCESS")


def test_every_command_works_with_the_pasted_statements(
    databases: Databases, user: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    databases.both(
        "CREATE TABLE a (id INT PRIMARY KEY, v INT, at DATETIME DEFAULT '2026-01-01 00:00:00')",
        "CREATE TABLE b (id INT PRIMARY KEY, a_id INT, KEY (a_id), FOREIGN KEY (a_id) REFERENCES a (id))",
        "INSERT INTO a (id, v) VALUES (1, 1), (2, 2)", "INSERT INTO b VALUES (1, 1)",
        "CREATE VIEW w AS SELECT id FROM a",
    )  # fmt: skip
    path = config(tmp_path, databases, user)
    _, found = asked(path, capsys)
    paste(databases, found)
    refused = {}
    for command in COMMANDS:
        code = run([word.format(tmp_path) for word in command.split()])
        shown = capsys.readouterr()
        lines = (shown.out + shown.err).splitlines()
        said = [line for line in lines if not line.lstrip().startswith(("why ", "do      GRANT INSERT"))]
        denied = [line for line in said if any(word in line for word in DENIED) and "grants-excess" not in line]
        if denied or code == 2:
            refused[command] = (code, denied or lines)
    assert not refused, json.dumps(refused, indent=1)


@pytest.mark.attack("privileges", "a database whose name matches others by its underscore", "granted alone")
def test_an_underscore_grants_no_other_database(
    databases: Databases, user: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    near = databases.name.replace("_", "x", 1)
    assert "_" in databases.name
    databases.both("CREATE TABLE t (id INT PRIMARY KEY)")
    path = config(tmp_path, databases, user)
    servers = (databases.pair.source, databases.pair.target)
    for server in servers:
        execute(server, f"CREATE DATABASE `{near}`", f"CREATE TABLE `{near}`.t (id INT)")
    try:
        paste(databases, asked(path, capsys, "--for", "tables")[1])
        assert asked(path, capsys, "--for", "tables") == (0, {})
        assert run(["tables", "verify", "-q", "-c", str(path)]) == 0
        for server in servers:
            with pytest.raises(Exception, match="denied") as caught:
                as_user(server, user, f"SELECT * FROM `{near}`.t")
            assert caught.value.args[0] in (1044, 1142)
    finally:
        for server in servers:
            execute(server, f"DROP DATABASE `{near}`")


def as_user(server: LabServer, user: str, *statements: str) -> None:
    with connect(replace(server, user=user)) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def test_the_grant_of_a_hint_can_be_pasted(databases: Databases, user: str) -> None:
    """The health of statistics is TiDB's own; a table is named without its database by MySQL."""
    databases.both("CREATE TABLE t (id INT PRIMARY KEY)")
    asking = ((databases.pair.target, Flavor.TIDB, "SHOW STATS_HEALTHY", "GRANT SELECT ON `mysql`.* TO "),
              (databases.pair.source, Flavor.MYSQL, f"SELECT id FROM `{databases.name}`.t",
               f"GRANT SELECT ON `{databases.name}`.`t` TO that user"))  # fmt: skip
    for server, flavor, statement, grant in asking:
        endpoint = Endpoint(flavor.value, server.host, server.port, user)
        with closing(open_session(endpoint, None)) as session, pytest.raises(PrivilegeError) as refused:
            session.query(statement)
        assert grant in refused.value.hint
        typed = refused.value.hint.partition("administrator: ")[2].partition(" (see")[0]
        execute(server, typed.replace("that user", quoted(user)))
        with closing(open_session(endpoint, None)) as session:
            session.query(statement)


def test_patterns_of_databases_are_granted_as_patterns(
    databases: Databases, user: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    databases.both("CREATE TABLE t (id INT PRIMARY KEY)")
    path = config(tmp_path, databases, user, tables={"include": [f"{databases.name[:-2]}*.*"]})
    code, found = asked(path, capsys, "--for", "tables verify")
    assert code == 1
    assert any("%`.*" in line for line in found["source"])
    paste(databases, found)
    assert asked(path, capsys, "--for", "tables verify") == (0, {})
    assert run(["tables", "verify", "-q", "-c", str(path)]) == 0


def test_routes_name_the_databases_of_the_target(
    databases: Databases, user: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = f"{databases.name}_to"
    databases.source("CREATE TABLE t (id INT PRIMARY KEY)")
    databases.target(f"CREATE DATABASE `{other}`", f"CREATE TABLE `{other}`.t (id INT PRIMARY KEY)")
    try:
        path = config(tmp_path, databases, user, routes=[{"from": f"{databases.name}.*", "to": f"{other}.*"}])
        _, found = asked(path, capsys, "--for", "tables verify")
        assert not any(f"`{databases.name}`" in line.replace("\\", "") for line in found["target"])
        paste(databases, found)
        assert asked(path, capsys, "--for", "tables verify") == (0, {})
        assert run(["tables", "verify", "-q", "-c", str(path)]) == 0
    finally:
        databases.target(f"DROP DATABASE `{other}`")


def test_a_role_counts_once_it_is_active_by_default(
    databases: Databases, user: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    databases.both("CREATE TABLE t (id INT PRIMARY KEY)")
    path, role = config(tmp_path, databases, user), f"{user}_role"
    _, found = asked(path, capsys, "--for", "tables verify")
    servers = {"source": databases.pair.source, "target": databases.pair.target}
    for server in servers.values():
        execute(server, f"CREATE ROLE `{role}`")
    try:
        for side, lines in found.items():
            mine = [line.removesuffix(";").rpartition(" TO ")[0] + f" TO `{role}`" for line in lines]
            execute(servers[side], *mine, f"GRANT `{role}` TO {quoted(user)}")
        assert asked(path, capsys, "--for", "tables verify") == (1, found)
        for server in servers.values():
            execute(server, f"SET DEFAULT ROLE `{role}` TO {quoted(user)}")
        assert asked(path, capsys, "--for", "tables verify") == (0, {})
        assert run(["tables", "verify", "-q", "-c", str(path)]) == 0
    finally:
        for server in servers.values():
            execute(server, f"DROP ROLE `{role}`")


def test_what_a_watch_and_a_resource_group_need_is_printed_too(
    databases: Databases, user: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    databases.both("CREATE TABLE t (id INT PRIMARY KEY)")
    databases.source("CREATE TABLE marker (id INT PRIMARY KEY)")
    group = f"rg{uuid.uuid4().hex[:8]}"
    execute(databases.pair.target, f"CREATE RESOURCE GROUP {group} RU_PER_SEC = 100000")
    try:
        path = config(
            tmp_path, databases, user, target={"resource_group": group}, tables={"include": [f"{databases.name}.t"]},
            watch={"applied": "marker", "marker": f"{databases.name}.marker"},
        )  # fmt: skip
        _, found = asked(path, capsys, "--for", "tables")
        assert any("INSERT, DELETE ON" in line and "`marker`" in line for line in found["source"])
        assert any("RESOURCE_GROUP_USER ON *.*" in line for line in found["target"])
        paste(databases, found)
        assert asked(path, capsys, "--for", "tables") == (0, {})
        assert run(["tables", "verify", "-q", "-c", str(path)]) == 0
    finally:
        execute(databases.pair.target, f"DROP RESOURCE GROUP {group}")


def test_what_a_reverse_watch_needs_is_printed_and_enough(
    opened: Databases, user: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The marker row is written on the target, and read on both sides, though no pattern covers its table."""
    with followed(opened, tmp_path) as (fed, path):
        document = yaml.safe_load(path.read_text())
        for side in ("source", "target"):
            server = getattr(opened.pair, side)
            document[side] = {"host": server.host, "port": server.port, "user": user, "connections": 2}
        document["tables"] = {"include": [f"{opened.name}.pay"]}
        path.write_text(yaml.safe_dump(document))
        _, found = asked(path, capsys, "--for", "tables")
        assert any("INSERT, DELETE ON" in line and "`marker`" in line for line in found["target"])
        assert not any("INSERT" in line for line in found["source"])
        paste(opened, found)
        assert asked(path, capsys, "--for", "tables") == (0, {})
        watching = Watching(path, "--reverse", "--since", verified(path))
        write(fed, opened, 5)
        watching.wait_for(lambda s: s["tables"][0]["keys"] >= 5 and s["verdict"] == "MATCH")
        code, status = watching.stop()
    assert (code, status["verdict"]) == (130, "MATCH")


def test_partial_revokes_take_names_as_they_are(
    own: tuple[LabServers, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair, _ = own
    name, user = f"p_{uuid.uuid4().hex[:6]}", "revoked"
    for server in (pair.source, pair.target):
        execute(server, f"CREATE DATABASE {name}", f"CREATE TABLE {name}.t (id INT PRIMARY KEY)", f"CREATE USER {user}")
    databases = Databases(name, pair, ())  # type: ignore[arg-type]
    path = config(tmp_path, databases, user)
    execute(pair.source, "SET GLOBAL partial_revokes = ON")
    try:
        paste(databases, asked(path, capsys)[1])
        assert asked(path, capsys) == (0, {})
        assert run(["tables", "verify", "-q", "-c", str(path)]) == 0
        execute(pair.source, f"REVOKE ALL ON {name}.* FROM {user}", f"GRANT SELECT ON *.* TO {user}",
                f"REVOKE SELECT ON {name}.* FROM {user}")  # fmt: skip
        code, found = asked(path, capsys, "--for", "tables plan")
        assert (code, list(found)) == (1, ["source"])
        paste(databases, found)
        assert asked(path, capsys, "--for", "tables plan") == (0, {})
        assert run(["tables", "verify", "-q", "-c", str(path)]) == 0
    finally:
        execute(pair.source, f"DROP USER {user}", "SET GLOBAL partial_revokes = OFF")


def test_an_endpoint_that_is_refused_or_gone_hides_no_other(
    databases: Databases, user: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(tmp_path, databases, user)
    for change, code in (({"user": "nobody_of_this_name"}, 2), ({"port": 1}, 3)):
        document = yaml.safe_load(path.read_text())
        document["source"] |= change
        path.write_text(yaml.safe_dump(document))
        capsys.readouterr()
        assert run(["config", "--grants", "-c", str(path)]) == code
        shown = capsys.readouterr()
        assert "-- target, " in shown.out
        assert "error: source: " in shown.err


@pytest.mark.attack("tables", "both users see the same one of a database's tables, and the patterns ask for all",
                    "INCONCLUSIVE, and the grant that shows the rest")  # fmt: skip
def test_tables_that_no_user_sees_are_no_match(databases: Databases, tmp_path: Path, user: str) -> None:
    databases.both("CREATE TABLE seen (id INT PRIMARY KEY)", "CREATE TABLE unseen (id INT PRIMARY KEY)",
                   "INSERT INTO seen VALUES (1)")  # fmt: skip
    databases.source("INSERT INTO unseen VALUES (1)")
    sides = (databases.pair.source, databases.pair.target)
    for server in sides:
        execute(server, f"GRANT SELECT ON `{databases.name}`.seen TO {quoted(user)}")
    path = config(tmp_path, databases, user)
    code, report, messages = run_command(path)
    assert (code, report["verdict"]) == (3, "INCONCLUSIVE"), messages
    hidden = [f"{side}: {user} may read a part of database {databases.name} only" for side in ("source", "target")]
    with closing(open_store(f"sqlite:///{tmp_path / 'runs.db'}")) as store:
        reasons = store.load_run(report["run_id"]).facts["reasons"]
    assert [reason.partition(", and tables")[0] for reason in reasons] == hidden
    code, report, messages = run_command(path, "--tables", f"{databases.name}.seen")
    assert (code, report["verdict"]) == (0, "MATCH"), "a table that is spelled out needs no other to be seen"
    for server in sides:
        execute(server, f"GRANT SELECT ON `{databases.name}`.* TO {quoted(user)}")
    code, report, messages = run_command(path)
    assert (code, report["verdict"]) == (1, "MISMATCH"), messages


@pytest.mark.attack("guards", "both users see the same one of a database's tables; the others' ids end soon",
                    "INCONCLUSIVE, and the grant that shows the rest")  # fmt: skip
@pytest.mark.parametrize("guard", [
    ("ids",), ("hotspots",), ("capacity", "--window", "10h", "--target-free", "1T", "--sample", "1"),
])  # fmt: skip
def test_a_guard_over_tables_that_no_user_sees_does_not_pass(
    databases: Databases, tmp_path: Path, user: str, guard: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    databases.both("CREATE TABLE seen (id BIGINT AUTO_INCREMENT PRIMARY KEY)",
                   "CREATE TABLE unseen (id TINYINT AUTO_INCREMENT PRIMARY KEY) AUTO_INCREMENT = 127")  # fmt: skip
    for server in (databases.pair.source, databases.pair.target):
        execute(server, f"GRANT SELECT ON `{databases.name}`.seen TO {quoted(user)}")
    path = config(tmp_path, databases, user)
    capsys.readouterr()
    with pytest.raises(SystemExit) as ending:
        main(["guard", *guard, "--config", str(path)])
    shown = capsys.readouterr().out
    assert ending.value.code == 3, shown
    for side in ("source", "target"):
        assert f"{side}: {user} may read a part of database {databases.name} only" in " ".join(shown.split())
