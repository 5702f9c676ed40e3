"""Restored sessions, grants and marks of clones on real servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from migverify.cli.workload import app
from migverify.connect import open_session
from migverify.errors import EndpointError, ExitCode, MigverifyError, PrivilegeError
from migverify.model import Flavor, Side
from migverify.workload.replay import clone
from migverify.workload.replay.model import Call
from migverify.workload.replay.restore import UNPINNED, clock, restored
from migverify.workload.replay.safety import check_grants, read_only_mode, require_read_only
from migverify.workload.state import State
from tests.conftest import Databases
from tests.db.wiring import SIDES, call, endpoint, rows, wired

pytestmark = pytest.mark.db


@pytest.mark.parametrize("side", SIDES)
def test_a_restored_session_stands_where_the_captured_one_stood(databases: Databases, side: Side) -> None:
    rest = {"variables": {"sql_select_limit": "7", "sql_safe_updates": "ON"},
            "user_variables": {"a": "5", "B c": "it's \\ ok", "n": "NULL"}}  # fmt: skip
    state = State(databases.name, "latin1", "ANSI_QUOTES,NO_ZERO_DATE", "+03:00", False, "READ-COMMITTED", False,
                  json.dumps(rest))  # fmt: skip
    with wired(databases, side) as wire:
        made = restored(state, wire.flavor)
        assert made.lost == ()
        for command in made.commands:
            assert wire.command(command).ok, command
        found = rows(wire.run(call(
            "SELECT DATABASE(), @@character_set_client, @@sql_mode, @@time_zone, @@autocommit, @@transaction_isolation,"
            " @@sql_select_limit, @@sql_safe_updates, @a + 1, @`b c`, @n IS NULL"
        )))[0]  # fmt: skip
        assert found == (databases.name.encode(), b"latin1", b"ANSI_QUOTES,NO_ZERO_DATE", b"+03:00", b"0",
                         b"READ-COMMITTED", b"7", b"1", b"6", b"it's \\ ok", b"1")  # fmt: skip


@pytest.mark.parametrize("side", SIDES)
def test_what_is_not_named_as_lost_is_taken_by_the_server(databases: Databases, side: Side) -> None:
    """Whatever the flavor is said to refuse it does refuse, and nothing else of these."""
    settings = [State(isolation=level) for level in
                ("READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE")]  # fmt: skip
    settings += [
        State(charset=name) for name in ("utf8mb4", "utf8", "latin1", "ascii", "binary", "gbk", "sjis", "big5")
    ]
    settings += [State(rest=json.dumps({"variables": {"transaction_read_only": "1"}}))]
    settings += [State(rest=json.dumps({"next_transaction": f"TRANSACTION {what}"})) for what in
                 ("READ ONLY", "ISOLATION LEVEL SERIALIZABLE", "ISOLATION LEVEL READ COMMITTED")]  # fmt: skip
    for state in settings:
        with wired(databases, side) as wire:
            made = restored(state, wire.flavor)
            assert bool(made.commands) != bool(made.lost)
            for command in made.commands:
                assert wire.command(command).ok, command
            refused = [one for one in restored(state, Flavor.MYSQL).commands if one not in made.commands]
            assert [one for one in refused if wire.command(one).ok] == [], state


@pytest.mark.parametrize("side", SIDES)
def test_the_clock_stands_and_runs_again(databases: Databases, side: Side) -> None:
    with wired(databases, side) as wire:
        assert wire.command(b"SET time_zone='+00:00'").ok
        asked = Call("1", 1, b"SELECT NOW(6)", "", State(), clock=1_469_038_405_123_456)
        said = clock(asked)
        assert said is not None
        assert wire.command(said).ok
        assert rows(wire.run(asked)) == [(b"2016-07-20 18:13:25.123456",)]
        assert rows(wire.run(asked, prepared=True)) == [(b"2016-07-20 18:13:25.123456",)]
        assert wire.command(UNPINNED).ok
        assert rows(wire.run(asked)) > [(b"2026",)]


@pytest.mark.parametrize("side", SIDES)
def test_a_session_of_a_read_only_replay(databases: Databases, side: Side) -> None:
    with wired(databases, side) as wire:
        assert wire.command(b"CREATE TABLE ro (a INT)").ok
        commands, instead = read_only_mode(wire.flavor)
        for command in commands:
            assert wire.command(command).ok
        answer = wire.run(call("INSERT INTO ro VALUES (1)"))
        if side is Side.SOURCE:
            assert (answer.errno, instead) == (1792, "")
        else:
            assert answer.ok
            assert instead
            assert wire.command(b"SET SESSION TRANSACTION READ ONLY").errno == 1235


@pytest.fixture
def accounts(databases: Databases) -> Iterator[str]:
    """Two users and a role on both sides; yields the prefix of their names."""
    name = databases.name[-16:]
    databases.both(
        f"CREATE USER `{name}r`@`%`, `{name}w`@`%`", f"CREATE ROLE `{name}role`",
        f"GRANT SELECT ON `{databases.name}`.* TO `{name}r`@`%`, `{name}w`@`%`",
        f"GRANT INSERT ON `{databases.name}`.* TO `{name}role`", f"GRANT `{name}role` TO `{name}w`@`%`",
    )  # fmt: skip
    yield name
    databases.both(f"DROP USER `{name}r`@`%`, `{name}w`@`%`", f"DROP ROLE `{name}role`")


@pytest.mark.parametrize("side", SIDES)
def test_grants(databases: Databases, side: Side, accounts: str) -> None:
    where = endpoint(databases, side)
    with open_session(where, None) as session:
        assert check_grants(session).may_write
    with open_session(replace(where, user=f"{accounts}r"), None, side=Side.TARGET) as session:
        grants = require_read_only(session)
        assert grants.writing == ()
        assert grants.account == f"{accounts}r@%"
    with open_session(replace(where, user=f"{accounts}w"), None, side=Side.TARGET) as session:
        # the role is not active, and SET ROLE would make it so
        assert any("INSERT" in one for one in check_grants(session).writing)
        with pytest.raises(PrivilegeError, match="may write"):
            require_read_only(session)


@pytest.mark.parametrize("side", SIDES)
def test_a_clone_is_marked_and_proved(databases: Databases, side: Side) -> None:
    where = endpoint(databases, side)
    marker = f"{databases.name}.clone's mark"
    with open_session(where, None, side=Side.TARGET) as session:
        with pytest.raises(EndpointError, match="has no table"):
            clone.prove(session, marker)
        proof = clone.mark(session, marker, "drill 'a'", 7)
        assert proof.expires_at - proof.marked_at == 7 * 86_400
        assert clone.mark(session, marker, "drill 'a'", 1).expires_at < proof.expires_at
        assert clone.prove(session, marker, name="drill 'a'").identity.host == where.host
        with pytest.raises(EndpointError, match="it holds from"):
            clone.prove(session, marker, now=proof.expires_at + 1)
        session.execute(f"UPDATE `{databases.name}`.`clone's mark` SET server = CONCAT(server, 'x')")
        with pytest.raises(EndpointError, match="it was made for"):
            clone.prove(session, marker)


def test_a_mark_carried_to_the_other_server_proves_nothing(databases: Databases) -> None:
    marker = f"{databases.name}.m"
    with (
        open_session(endpoint(databases, Side.SOURCE), None, side=Side.TARGET) as source,
        open_session(endpoint(databases, Side.TARGET), None) as target,
    ):
        proof = clone.mark(source, marker, "drill", 1)
        clone.mark(target, marker, "other", 1)
        target.execute(f"DELETE FROM `{databases.name}`.m")
        row = source.query(f"SELECT * FROM `{databases.name}`.m")[0]
        target.execute(f"INSERT INTO `{databases.name}`.m VALUES ({', '.join(repr(cell) for cell in row)})")
        with pytest.raises(EndpointError, match=f"made for mysql {proof.identity.server}"):
            clone.prove(target, marker)


def config(databases: Databases, folder: Path, workload: str) -> str:
    sides = {"source": databases.pair.source, "target": databases.pair.target}
    text = "".join(f"{name}: {{host: {one.host}, port: {one.port}, user: {one.user}}}\n" for name, one in sides.items())
    path = folder / "migverify.yaml"
    path.write_text(f"{text}tables: {{include: ['a.*']}}\n{workload}")
    return str(path)


def test_the_command(databases: Databases, tmp_path: Path) -> None:
    run = CliRunner().invoke
    path = config(databases, tmp_path, f"workload: {{clone_marker: {databases.name}.clone}}\n")
    for name in ("source", "target"):
        shown = run(app, ["mark-clone", name, "--config", path, "--show"])
        assert isinstance(shown.exception, MigverifyError)
        marked = run(app, ["mark-clone", name, "--config", path, "--name", "drill-3", "--expires", "12h", "--json"])
        assert marked.exit_code == 0, marked.output
        told = json.loads(marked.stdout)
        assert (told["name"], told["expires_at"] - told["marked_at"]) == ("drill-3", 43_200)
        assert run(app, ["mark-clone", name, "--config", path, "--show"]).exit_code == 0
    for wrong in (["nowhere", "--name", "x"], ["target"], ["target", "--name", "x", "--expires", "7"],
                  ["target", "--name", "x", "--expires", "365d"]):  # fmt: skip
        failed = run(app, ["mark-clone", *wrong, "--config", path])
        assert isinstance(failed.exception, MigverifyError)
        assert failed.exception.exit_code is ExitCode.USAGE
    path = config(databases, tmp_path, "")
    failed = run(app, ["mark-clone", "target", "--config", path, "--name", "x"])
    assert isinstance(failed.exception, MigverifyError)
    assert "clone_marker is not set" in str(failed.exception)
