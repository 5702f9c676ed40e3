"""Restored sessions, grants and marks of clones on real servers."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from migverify.cli.workload import app
from migverify.db.session import open_session
from migverify.errors import EndpointError, ExitCode, MigverifyError, PrivilegeError
from migverify.model import Flavor, Side
from migverify.workload.classify import classify
from migverify.workload.replay import clone
from migverify.workload.replay.model import Call
from migverify.workload.replay.restore import RESET_CLOCK, restored, set_clock
from migverify.workload.replay.safety import Leave, check_grants, read_only_mode, refusal, require_read_only
from migverify.workload.replay.wire import Limits
from migverify.workload.state import SessionState
from tests.conftest import Databases
from tests.db.wiring import SIDES, call, endpoint, rows, wired
from tests.hostile import HOSTILE

pytestmark = pytest.mark.db


@pytest.mark.parametrize("side", SIDES)
def test_a_restored_session_stands_where_the_captured_one_stood(databases: Databases, side: Side) -> None:
    rest = {"variables": {"sql_select_limit": "7", "sql_safe_updates": "ON"},
            "user_variables": {"a": "5", "B c": "it's \\ ok", "n": "NULL"}}  # fmt: skip
    state = SessionState(databases.name, "latin1", "ANSI_QUOTES,NO_ZERO_DATE", "+03:00", False, "READ-COMMITTED", False,
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
    settings = [SessionState(isolation=level) for level in
                ("READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE")]  # fmt: skip
    settings += [SessionState(rest=json.dumps({"variables": {"transaction_read_only": "1"}}))]
    settings += [SessionState(rest=json.dumps({"next_transaction": f"TRANSACTION {what}"})) for what in
                 ("READ ONLY", "ISOLATION LEVEL SERIALIZABLE", "ISOLATION LEVEL READ COMMITTED")]  # fmt: skip
    for state in settings:
        with wired(databases, side) as wire:
            made = restored(state, wire.flavor)
            assert bool(made.commands[1:]) != bool(made.lost)  # the first is the sql_mode
            for command in made.commands:
                assert wire.command(command).ok, command
            refused = [one for one in restored(state, Flavor.MYSQL).commands if one not in made.commands]
            assert [one for one in refused if wire.command(one).ok] == [], state


@pytest.mark.parametrize("side", SIDES)
def test_how_a_session_reads_is_always_set_or_refused(databases: Databases, side: Side) -> None:
    unknown = {"sjis", "big5", "28; x"} if side is Side.TARGET else {"28; x"}
    for charset in ("utf8mb4", "utf8", "latin1", "ascii", "binary", "gbk", "sjis", "big5", "28; x"):
        with wired(databases, side) as wire:
            found = [
                wire.command(command).ok for command in restored(SessionState(charset=charset), wire.flavor).commands
            ]
            assert all(found) == (charset not in unknown), charset
    with wired(databases, side) as wire:
        assert wire.command(b"SET SESSION sql_mode='ANSI,NO_BACKSLASH_ESCAPES,STRICT_TRANS_TABLES'").ok
        for command in restored(SessionState(), wire.flavor).commands:
            assert wire.command(command).ok, command
        ((mode,),) = rows(wire.run(call("SELECT @@sql_mode")))
        assert mode is not None
        assert b"STRICT_TRANS_TABLES" in mode
        assert b"ANSI" not in mode
        assert b"BACKSLASH" not in mode


HONEST = [
    b"SELECT a, b FROM t WHERE a = 1",
    b"WITH c AS (SELECT a FROM t) SELECT * FROM c",
    b"SELECT 'it''s \\' ; '",
    b"SHOW TABLES",
    b"SET @x = 1, @y = 'a'",
    b"SET NAMES gbk",
    b"SET sql_mode = 'ANSI_QUOTES'",
    b'SELECT "a\\"", `b` FROM t',
    b"SELECT '\xbf\x5c' -- x",
    b"BEGIN",
    b"COMMIT",
    b"EXPLAIN SELECT * FROM t",
    b"TABLE t",
    b"SELECT /*! 1, */ 2",
    b"USE mysql",
    b"SELECT * FROM t ORDER BY a LIMIT 1",
    b"START TRANSACTION READ ONLY",
    b"SET autocommit = 0",
    b"DO 1",
]
READINGS = [
    SessionState(),
    SessionState(sql_mode="ANSI_QUOTES"),
    SessionState(sql_mode="NO_BACKSLASH_ESCAPES"),
    SessionState(charset="gbk"),
    SessionState(charset="gbk", sql_mode="ANSI"),
    SessionState(charset="sjis"),
    SessionState(charset="gb18030", sql_mode="NO_BACKSLASH_ESCAPES"),
    SessionState(isolation="SERIALIZABLE", transaction=True),
    SessionState(sql_mode="ANSI,NO_BACKSLASH_ESCAPES", autocommit=False),
]


def mutants(count: int) -> Iterator[tuple[SessionState, bytes]]:
    """Yield hostile statements as they are, then cut, joined and disguised ones."""
    chance = random.Random(7)
    yield from ((state, sql) for sql in (*HOSTILE, *HONEST) for state in READINGS)
    pool = HOSTILE * 2 + HONEST * 6
    glue = [
        b" ",
        b"/**/",
        b"\n",
        b"--\x01 ",
        b"-- x\n",
        b"#'\n",
        b"; ",
        b"\\' ",
        b"'\xbf\x5c' ",
        b'"\\" ',
        b"`\xbf\x60` ",
        b"/*! ",
        b" */",
        b"/*!99999 ",
        b"(",
        b") ",
        b"'",
        b'"',
        b"\xa0",
        b"'/*! x' ",
        b"/*+ x */",
        b", ",
    ]
    for _ in range(count):
        words = b" ".join(chance.sample(pool, chance.choice((1, 1, 2)))).split(b" ")
        for _ in range(chance.randint(0, 3)):
            words.insert(chance.randint(0, len(words)), chance.choice(glue).strip(b" "))
        yield chance.choice(READINGS), chance.choice((b" ", b" ", b"/**/", b"\t")).join(words)


@pytest.mark.attack(
    "replay", "thousands of statements spelled to look like reads, sent by a user who may do everything",
    "no row, setting, account, sequence or file of MySQL or TiDB changed",
)  # fmt: skip
@pytest.mark.parametrize("side", SIDES)
def test_nothing_that_counts_as_a_read_changes_a_server(own_databases: Databases, side: Side, tmp_path: Path) -> None:
    run = own_databases.source if side is Side.SOURCE else own_databases.target
    run("CREATE TABLE t (a INT PRIMARY KEY, b INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    if side is Side.SOURCE:
        run(
            "SET GLOBAL log_bin_trust_function_creators = 1",
            "CREATE PROCEDURE p() DELETE FROM t",
            "CREATE FUNCTION f(x INT) RETURNS INT DETERMINISTIC BEGIN DELETE FROM t; RETURN 1; END",
            "CREATE FUNCTION `any`(x INT) RETURNS INT DETERMINISTIC BEGIN DELETE FROM t; RETURN 1; END",
            "CREATE FUNCTION account(x INT) RETURNS INT DETERMINISTIC BEGIN DELETE FROM t; RETURN 1; END",
            "CREATE FUNCTION `columns`(x INT) RETURNS INT DETERMINISTIC BEGIN DELETE FROM t; RETURN 1; END",
        )
    else:
        run("CREATE SEQUENCE s NOCACHE")
    secret = "/etc/hostname"

    def state_of_the_server() -> object:
        asks = [
            "SELECT * FROM t ORDER BY a",
            "SHOW TABLES",
            "SHOW DATABASES",
            "SHOW GLOBAL VARIABLES",
            "SELECT user, host, authentication_string, account_locked FROM mysql.user ORDER BY user, host",
        ]
        asks += ["SHOW TABLE s NEXT_ROW_ID"] if side is Side.TARGET else []
        found = [[row for row in run(ask) if str(row[0]) not in _MOVES] for ask in asks]
        return found, sorted(tmp_path.iterdir())

    before, asked, answered = state_of_the_server(), 0, 0
    for state, sql in mutants(800):
        text = sql.replace(b"/tmp/x", bytes(tmp_path / "out")).replace(b"/etc/passwd", secret.encode())
        asking = Call("1", 1, text, "", state)
        if refusal(asking, classify(text, state.modes), Leave()):
            continue
        asked += 1
        # a fresh session for each: what one leaves must not protect the next
        with wired(own_databases, side, Limits(seconds=5), several=True) as wire:
            if not all(wire.command(one).ok for one in restored(state, wire.flavor, read_only=True).commands):
                continue  # the replay does not ask then
            if side is Side.SOURCE and not wire.command(b"SET SESSION TRANSACTION READ WRITE").ok:
                continue  # without the server's own protection: the classification has to hold alone
            answered += wire.run(asking).ok
        if asked % 50 == 0:
            assert state_of_the_server() == before, sql
    assert state_of_the_server() == before
    assert asked > 150
    assert answered > 60


_MOVES = frozenset(
    {
        "timestamp",
        "gtid_executed",
        "tidb_last_ddl_info",
        "tidb_last_query_info",
        "tidb_last_txn_info",
        "tidb_current_ts",
        "pseudo_thread_id",
        "rand_seed1",
        "rand_seed2",
        "last_insert_id",
        "identity",
        "error_count",
        "warning_count",
    }
)
"""Variables that move by themselves."""


@pytest.mark.parametrize("side", SIDES)
def test_the_clock_stands_and_runs_again(databases: Databases, side: Side) -> None:
    with wired(databases, side) as wire:
        assert wire.command(b"SET time_zone='+00:00'").ok
        asked = Call("1", 1, b"SELECT NOW(6)", "", SessionState(), clock=1_469_038_405_123_456)
        said = None if asked.clock is None else set_clock(asked.clock)
        assert said is not None
        assert wire.command(said).ok
        assert rows(wire.run(asked)) == [(b"2016-07-20 18:13:25.123456",)]
        assert rows(wire.run(asked, prepared=True)) == [(b"2016-07-20 18:13:25.123456",)]
        assert wire.command(RESET_CLOCK).ok
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
        f"GRANT TRIGGER, EVENT ON `{databases.name}`.* TO `{name}r`@`%`",  # what `config --grants` asks for
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
        assert grants.changing == ()
        assert {one.split()[0] for one in grants.writing} == {"TRIGGER", "EVENT"}
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
        shown = run(app, ["replay", "--mark-clone", name, "--config", path, "--show"])
        assert isinstance(shown.exception, MigverifyError)
        marked = run(
            app, ["replay", "--mark-clone", name, "--config", path, "--name", "drill-3", "--expires", "12h", "--json"]
        )
        assert marked.exit_code == 0, marked.output
        told = json.loads(marked.stdout)
        assert (told["name"], told["expires_at"] - told["marked_at"]) == ("drill-3", 43_200)
        assert run(app, ["replay", "--mark-clone", name, "--config", path, "--show"]).exit_code == 0
    for wrong in (["nowhere", "--name", "x"], ["target"], ["target", "--name", "x", "--expires", "7"],
                  ["target", "--name", "x", "--expires", "365d"]):  # fmt: skip
        failed = run(app, ["replay", "--mark-clone", *wrong, "--config", path])
        assert isinstance(failed.exception, MigverifyError)
        assert failed.exception.exit_code is ExitCode.USAGE
    path = config(databases, tmp_path, "")
    failed = run(app, ["replay", "--mark-clone", "target", "--config", path, "--name", "x"])
    assert isinstance(failed.exception, MigverifyError)
    assert "clone_marker is not set" in str(failed.exception)
