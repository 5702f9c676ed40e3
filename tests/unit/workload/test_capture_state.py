"""What statements say about the state of their session."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.workload.mask import mask_text
from migverify.workload.model import Command
from migverify.workload.state import SHORT, SessionState, Tracker
from tests.unit.capture_logs import record


def after(*statements: str, **told: Any) -> SessionState:
    tracker = Tracker()
    for sql in statements:
        tracker.state(record(sql))
        tracker.apply(record(sql, **told))
    return tracker.state(record("select 1"))


@pytest.mark.parametrize(
    ("statements", "column", "value"),
    [
        (["SET NAMES utf8mb4"], "charset", "utf8mb4"),
        (["set names 'latin1' collate 'latin1_bin'"], "charset", "latin1"),
        (["SET NAMES utf8mb4", "SET NAMES DEFAULT"], "charset", None),
        (["SET CHARACTER SET cp1251"], "charset", "cp1251"),
        (["/* app */ SET character_set_client = latin1"], "charset", "latin1"),
        (["/*!40101 SET NAMES utf8mb3 */;"], "charset", "utf8mb3"),
        (["SET sql_mode='ANSI_QUOTES,STRICT_TRANS_TABLES'"], "sql_mode", "ANSI_QUOTES,STRICT_TRANS_TABLES"),
        (['SET @@session.sql_mode = ""'], "sql_mode", ""),
        (["SET GLOBAL sql_mode='ANSI'"], "sql_mode", None),
        (["SET @@global.sql_mode='ANSI'"], "sql_mode", None),
        (["SET GLOBAL max_connections=1, sql_mode='ANSI'"], "sql_mode", None),
        (["SET GLOBAL max_connections=1, SESSION sql_mode='ANSI'"], "sql_mode", "ANSI"),
        (["SET sql_mode='ANSI'", "SET sql_mode=DEFAULT"], "sql_mode", None),
        (
            ["SET sql_mode='ANSI'", "SET @old=@@sql_mode, sql_mode='TRADITIONAL'", "SET sql_mode=@old"],
            "sql_mode",
            "ANSI",
        ),
        (["SET sql_mode=CONCAT(@@sql_mode, ',ANSI')"], "sql_mode", None),
        (["SET a=f(1, 2), time_zone = '+02:00'"], "time_zone", "+02:00"),
        (["SET time_zone='it''s, \\'odd\\''"], "time_zone", "it's, 'odd'"),
        (["SET autocommit=0"], "autocommit", False),
        (["set session autocommit = ON"], "autocommit", True),
        (["SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"], "isolation", "READ-COMMITTED"),
        (["SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY"], "isolation", "SERIALIZABLE"),
        (["SET TRANSACTION ISOLATION LEVEL READ COMMITTED"], "isolation", None),
        (["SET GLOBAL TRANSACTION ISOLATION LEVEL READ COMMITTED"], "isolation", None),
        (["SET tx_isolation='REPEATABLE-READ'"], "isolation", "REPEATABLE-READ"),
        (["USE `a``b`"], "database", "a`b"),
        (["use pay; select 1"], "database", "pay"),
        (["BEGIN"], "transaction", True),
        (["START TRANSACTION READ ONLY"], "transaction", True),
        (["START REPLICA"], "transaction", False),
        (["BEGIN", "COMMIT"], "transaction", False),
        (["BEGIN", "SAVEPOINT a", "ROLLBACK TO SAVEPOINT a"], "transaction", True),
        (["BEGIN", "COMMIT AND CHAIN"], "transaction", True),
        (["BEGIN", "COMMIT AND NO CHAIN"], "transaction", False),
        (["BEGIN", "CREATE TABLE t (a int)"], "transaction", False),
        (["BEGIN", "CREATE TEMPORARY TABLE t (a int)"], "transaction", True),
        (["BEGIN", "DROP TEMPORARY TABLE t"], "transaction", True),
        (["SET autocommit=0", "SELECT 1"], "transaction", True),
        (["SET autocommit=0", "SELECT 1", "SET autocommit=1"], "transaction", False),
        (["SELECT 'BEGIN'"], "transaction", False),
        (["XA START 'x'", "INSERT INTO t VALUES (1)"], "transaction", True),
        (["XA START 'x'", "XA END 'x'", "XA COMMIT 'x' ONE PHASE"], "transaction", False),
        (["insert into t values ('; set sql_mode=1')"], "sql_mode", None),
    ],
)
def test_columns(statements: list[str], column: str, value: object) -> None:
    assert getattr(after(*statements), column) == value


@pytest.mark.parametrize(
    ("statements", "rest"),
    [
        (["SET @a = 1, @B := 'x'"], {"user_variables": {"a": "1", "b": "x"}}),
        (["SELECT @n := @n + 1"], {"user_variables": {"n": None}}),
        (["SELECT a, b INTO @x, @y FROM t WHERE c = @z"], {"user_variables": {"x": None, "y": None}}),
        (["SET foreign_key_checks=0"], {"variables": {"foreign_key_checks": "0"}}),
        (["SET sql_mode=CONCAT(@@sql_mode, ',A')"], {"unresolved": {"sql_mode": "CONCAT(@@sql_mode, ',A')"}}),
        (["CREATE TEMPORARY TABLE IF NOT EXISTS d.`t 1` (a int)"], {"temporary_tables": ["d.t 1"]}),
        (["CREATE TEMPORARY TABLE a (x int)", "CREATE TEMPORARY TABLE b (x int)", "DROP TABLE IF EXISTS a, c"],
         {"temporary_tables": ["b"]}),
        (["PREPARE s FROM 'select 1'", "PREPARE t FROM 'select 2'", "DEALLOCATE PREPARE s"], {"prepared_names": ["t"]}),
        (["SET TRANSACTION READ ONLY"], {"next_transaction": "TRANSACTION READ ONLY"}),
        (["SET TRANSACTION READ ONLY", "BEGIN", "COMMIT"], {}),
    ],
)  # fmt: skip
def test_rest(statements: list[str], rest: dict[str, object]) -> None:
    found = after(*statements).rest
    assert (json.loads(found) if found else {}) == rest


def test_what_failed_changes_nothing() -> None:
    assert after("SET sql_mode='ANSI'", "USE d", "BEGIN", errno=1231) == SessionState()


def test_a_deadlock_ends_the_transaction() -> None:
    tracker = Tracker()
    tracker.apply(record("BEGIN"))
    tracker.apply(record("UPDATE t SET a=1", errno=1205))
    assert tracker.transaction
    tracker.apply(record("UPDATE t SET a=1", errno=1213))
    assert not tracker.transaction


def test_commands() -> None:
    tracker = Tracker()
    tracker.apply(record(command=Command.CONNECT, database="d", details={"charset": "latin1"}))
    tracker.apply(record("SET sql_mode='ANSI', @a=1"))
    tracker.apply(record("select ?", Command.PREPARE, statement_id=7))
    state = tracker.state(record())
    assert (state.database, state.charset, json.loads(state.rest)["prepared_ids"]) == ("d", "latin1", [7])
    tracker.apply(record(command=Command.CLOSE_STATEMENT, statement_id=7))
    tracker.apply(record("e", Command.INIT_DB))
    tracker.apply(record(command=Command.RESET_CONNECTION))
    assert tracker.state(record()) == SessionState(database="e", charset="latin1")
    tracker.apply(record(command=Command.CHANGE_USER, database="f"))
    assert tracker.state(record()).database == "f"


def test_the_server_knows_better() -> None:
    tracker = Tracker()
    tracker.apply(record("USE a"))
    assert tracker.state(record(database="b")).database == "b"
    tracker.apply(record("CALL p()", details={"in_transaction": "1"}))
    assert tracker.state(record()).transaction


def test_masked_user_variables() -> None:
    tracker = Tracker(mask_text)
    tracker.apply(record("SET @mail='me@example.org', sql_mode='ANSI', @m=@@sql_mode"))
    state = tracker.state(record())
    assert "example" not in state.rest
    assert json.loads(state.rest)["user_variables"]["m"] == state.sql_mode == "ANSI"


@given(st.binary(max_size=40))
def test_any_bytes_are_followed(sql: bytes) -> None:
    for before in (b"set ", b"drop table ", b"create temporary table a.", b"use ", b"set @x = ", b""):
        Tracker().apply_text(before + sql, 0)


@given(st.sampled_from(sorted(SHORT)), st.booleans(), st.lists(st.sampled_from([b"begin", b"set autocommit=0"])))
def test_short_texts_do_what_their_words_do(short: bytes, failed: bool, before: list[bytes]) -> None:
    quick, slow = Tracker(), Tracker()
    errno = 1 if failed else 0
    for tracker in (quick, slow):
        for sql in before:
            tracker.apply_text(sql, 0)
    quick.apply_text(short, errno)
    slow.apply_text(short + b" /* not short */", errno)
    assert (quick.state_in(None), quick.opened) == (slow.state_in(None), slow.opened)
