"""What a replay that only reads refuses, and what a fresh session is told."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.errors import EndpointError, PrivilegeError, ReadError
from migverify.model import Endpoint, Flavor
from migverify.workload.classify import StatementKind, classify
from migverify.workload.replay import clone
from migverify.workload.replay.model import Call
from migverify.workload.replay.restore import restored, set_clock
from migverify.workload.replay.safety import Leave, read_only_mode, refusal, require_read_only
from migverify.workload.state import SessionState
from tests.hostile import HOSTILE

EVERY_LEAVE = Leave(writes=True, ddl=True, locking=True)


def refused(sql: str, leave: Leave = Leave()) -> str:  # noqa: B008
    return refusal(Call("1", 1, sql.encode(), "", SessionState()), classify(sql.encode()), leave)


@pytest.mark.parametrize("sql", [
    "SELECT 1", "SELECT * FROM t WHERE a = 1", "(SELECT 1) UNION (SELECT 2)", "WITH c AS (SELECT 1) SELECT * FROM c",
    "SHOW TABLES", "TABLE t", "EXPLAIN SELECT 1", "SET NAMES utf8mb4", "SET @x = 1", "SET autocommit=0", "BEGIN",
    "COMMIT", "ROLLBACK", "START TRANSACTION", "SAVEPOINT a", "USE d", "SELECT LAST_INSERT_ID()",
    "EXPLAIN DELETE FROM t", "EXPLAIN ANALYZE SELECT 1", "DESC t", "TRACE FORMAT='row' SELECT 1", "SELECT '/*! x'",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SELECT a FROM t JOIN u ON (t.a = u.a) WHERE b = ANY (SELECT 1)",
    "SET NAMES utf8mb4 COLLATE utf8mb4_bin, @@session.sql_mode = '', @x := (SELECT 1, 2)", "SELECT 1 INTO @x",
    "SELECT * FROM t USE INDEX FOR JOIN (i) WHERE MATCH (a) AGAINST ('x')", "ROLLBACK TO SAVEPOINT a",
    "SELECT * FROM JSON_TABLE('[]', '$[*]' COLUMNS (a INT PATH '$')) j", "START TRANSACTION WITH CONSISTENT SNAPSHOT",
    "/* mysql-connector-j */ SELECT 1", "START TRANSACTION READ ONLY",
])  # fmt: skip
def test_reading_needs_no_leave(sql: str) -> None:
    assert refused(sql) == ""


@pytest.mark.parametrize(("sql", "leave"), [
    ("INSERT INTO t VALUES (1)", Leave(writes=True)), ("UPDATE t SET a=1", Leave(writes=True)),
    ("DELETE FROM t", Leave(writes=True)), ("REPLACE INTO t VALUES (1)", Leave(writes=True)),
    ("WITH c AS (SELECT 1) DELETE FROM t", Leave(writes=True)), ("CALL p()", Leave(writes=True)),
    ("LOAD DATA INFILE 'x' INTO TABLE t", Leave(writes=True)), ("SELECT f(1)", Leave(writes=True)),
    ("SET @x = my_function()", Leave(writes=True)), ("DO f()", Leave(writes=True)),
    ("SELECT NEXTVAL(s)", Leave(writes=True)), ("XA START 'a'", Leave(writes=True)),
    ("EXPLAIN ANALYZE DELETE FROM t", Leave(writes=True)), ("SELECT * FROM t FOR UPDATE", Leave(locking=True)),
    ("SELECT * FROM t LOCK IN SHARE MODE", Leave(locking=True)), ("SELECT GET_LOCK('a', 1)", Leave(locking=True)),
    ("LOCK TABLES t READ", Leave(locking=True)), ("CREATE TABLE t (a INT)", Leave(ddl=True)),
    ("DROP TABLE t", Leave(ddl=True)), ("TRUNCATE t", Leave(ddl=True)),
    ("SET SESSION TRANSACTION READ WRITE", Leave(writes=True)), ("START TRANSACTION READ WRITE", Leave(writes=True)),
    ("SET transaction_read_only = 0", Leave(writes=True)), ("SET @@session.tx_read_only=OFF", Leave(writes=True)),
    ("/*!99999 SELECT */ /*!50000 DROP TABLE t */", Leave(writes=True, ddl=True)),
    ("/*!99999 SELECT */ DELETE FROM t", Leave(writes=True, ddl=True)),
    ("WITH c AS (SELECT 1) /*!99999 SELECT */ DELETE FROM t", Leave(writes=True, ddl=True)),
    ("SELECT /*!40001 SQL_NO_CACHE */ * FROM t", Leave(writes=True, ddl=True)),
    ("SELECT /*!50000 1, */ /*!99999 2 */", Leave(writes=True, ddl=True)),
    ("EXECUTE s", Leave(writes=True, ddl=True)), ("SELECT 'open", Leave(writes=True, ddl=True)),
    ("frobnicate", Leave(writes=True, ddl=True)), ("", Leave(writes=True, ddl=True)),
])  # fmt: skip
def test_each_leave_is_for_what_it_says(sql: str, leave: Leave) -> None:
    assert refused(sql)
    assert refused(sql, leave) == ""
    for name in ("writes", "ddl", "locking"):
        if getattr(leave, name) and "SELECT *" not in sql:  # who may write may lock rows too
            assert refused(sql, replace(EVERY_LEAVE, **{name: False})), f"{sql} without {name}"


@pytest.mark.parametrize("sql", [
    "GRANT ALL ON *.* TO a", "SET GLOBAL x = 1", "SET PERSIST x = 1", "SET @@global.x = 1", "KILL 5", "FLUSH TABLES",
    "SELECT 1 INTO OUTFILE '/tmp/x'", "SET sql_log_bin = 0", "SET SESSION gtid_next='x'", "SET tidb_snapshot='x'",
    "SHUTDOWN", "CREATE USER a", "INSERT INTO t VALUES (1); SET sql_log_bin=0",
    "SET GLOBAL x = /*!50000 1 */", "INSTALL PLUGIN a SONAME 'b'", "SELECT 1; SELECT 2 INTO DUMPFILE '/tmp/x'",
    "SELECT 1; SELECT 2",
])  # fmt: skip
def test_no_leave_is_enough(sql: str) -> None:
    assert refused(sql, EVERY_LEAVE)


def test_a_comment_that_hides_what_is_set() -> None:
    for sql in ("SET /*!99999 @x = */ GLOBAL y = 1", "SELECT a /*!50000 FOR UPDATE */ FROM t FOR UPDATE"):
        assert refused(sql)
    assert refused("/* a /*! b */ SELECT 2") == ""


@pytest.mark.attack(
    "replay",
    "statements spelled so that they look like reads: TRACE, WITH, SET, comments, character sets",
    "never asked",
)
@pytest.mark.parametrize("sql", HOSTILE)
def test_what_only_looks_like_a_read_is_not_asked(sql: bytes) -> None:
    for state in (SessionState(), SessionState(charset="utf8mb4", sql_mode="")):
        assert refusal(Call("1", 1, sql, "", state), classify(sql, state.modes), Leave())


@pytest.mark.attack(
    "replay",
    "INTO OUTFILE, FOR UPDATE or a second statement behind a character that ends with a backslash",
    "never asked",
)
@pytest.mark.parametrize(("charset", "character"), [
    ("gbk", b"\xbf\x5c"), ("gb18030", b"\xbf\x5c"), ("big5", b"\xa5\x5c"), ("sjis", b"\x83\x5c"),
    ("cp932", b"\x83\x5c"),
])  # fmt: skip
def test_the_character_set_of_a_session_decides_where_its_literals_end(charset: str, character: bytes) -> None:
    state = SessionState(charset=charset)
    for tail in (b"INTO OUTFILE '/tmp/x' -- '", b"FOR UPDATE -- '", b"; DELETE FROM t -- '"):
        sql = b"SELECT a FROM t WHERE a = '" + character + b"' " + tail
        assert refusal(Call("1", 1, sql, "", state), classify(sql, state.modes), Leave())
    sql = b"SELECT '" + character + b"', `" + character + b"` FROM t"
    assert refusal(Call("1", 1, sql, "", state), classify(sql, state.modes), Leave()) == ""
    assert classify(sql).kind is StatementKind.UNKNOWN


@pytest.mark.attack(
    "replay", "a write behind an escape that is none under NO_BACKSLASH_ESCAPES, or inside a name under ANSI_QUOTES",
    "never asked",
)  # fmt: skip
def test_the_mode_of_a_session_decides_where_its_literals_end() -> None:
    for mode, sql in (
        ("NO_BACKSLASH_ESCAPES", rb"SELECT 'a\'; DELETE FROM t -- '"),
        ("ANSI_QUOTES", rb'SELECT "a\"; DELETE FROM t -- "'),
    ):  # fmt: skip
        state = SessionState(sql_mode=mode)
        assert refusal(Call("1", 1, sql, "", state), classify(sql, state.modes), Leave())
        assert refusal(Call("1", 1, sql, "", SessionState()), classify(sql), Leave()) == ""


@pytest.mark.attack("replay", "a literal that holds /*!", "asked as the read that it is; no endless recursion")
def test_a_literal_that_looks_like_an_executable_comment() -> None:
    for sql in ("SELECT '/*! DELETE'", 'SELECT "/*T! x"'):
        assert refused(sql) == ""


def test_a_statement_that_was_not_captured_whole_is_never_asked() -> None:
    call = Call("1", 1, b"SELECT 1", "", SessionState(), partial="truncated")
    assert refusal(call, classify(call.sql), EVERY_LEAVE) == "partial: truncated"


@given(st.binary(max_size=60))
def test_any_bytes_that_may_write_are_refused(sql: bytes) -> None:
    found = classify(sql)
    said = refusal(Call("1", 1, sql, "", SessionState()), found, Leave())
    if found.may_write and found.effects != {"sets last_insert_id"}:
        assert said


class Told:
    """A session that answers from a table of answers."""

    def __init__(self, answers: dict[str, object], flavor: Flavor = Flavor.MYSQL, host: str = "10.0.0.1") -> None:
        self.answers = answers
        self.flavor = flavor
        self.endpoint = Endpoint("target", host, 3306, "u")
        self.executed: list[str] = []

    def query(self, sql: str) -> list[tuple[str | None, ...]]:
        for start, answer in self.answers.items():
            if sql.startswith(start):
                if isinstance(answer, Exception):
                    raise answer
                return answer  # type: ignore[return-value]
        raise AssertionError(sql)

    def execute(self, sql: str) -> int:
        self.executed.append(sql)
        return 1


def granted(*lines: str, using: tuple[str, ...] | Exception = ()) -> Told:
    roles = using if isinstance(using, Exception) else [(line,) for line in using]
    return Told({
        "SELECT CURRENT_USER": [("u@%",)], "SHOW GRANTS FOR CURRENT_USER() USING": roles,
        "SHOW GRANTS": [(line,) for line in lines],
    })  # fmt: skip


READING = (
    "GRANT USAGE ON *.* TO `u`@`%`", "GRANT SELECT, SHOW VIEW, TRIGGER, EVENT ON `d`.* TO `u`@`%`",
    "GRANT SELECT, SHOW DATABASES, PROCESS, REPLICATION CLIENT, SHOW VIEW ON *.* TO `u`@`%`",
    "GRANT REFERENCES ON `d`.* TO `u`@`%`", "GRANT SELECT (`a`, `b`), SHOW VIEW ON `d`.`t` TO `u`@`%`",
)  # fmt: skip


@pytest.mark.parametrize("line", [
    "GRANT ALL PRIVILEGES ON *.* TO 'u'@'%' WITH GRANT OPTION", "GRANT UPDATE (`a`) ON `d`.`t` TO `u`@`%`",
    "GRANT SELECT ON *.* TO `u`@`%` WITH GRANT OPTION", "GRANT EXECUTE ON FUNCTION `d`.`f` TO `u`@`%`",
    "GRANT PROXY ON ``@`` TO `u`@`%`", "GRANT SOMETHING_NEW ON *.* TO `u`@`%`", "what is this",
    "GRANT `r`@`%` TO `u`@`%` WITH ADMIN OPTION", "GRANT TRIGGER ON `d`.* TO `u`@`%` WITH GRANT OPTION",
    *(f"GRANT SELECT, TRIGGER, EVENT, {word} ON `d`.* TO `u`@`%`" for word in (
        "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "SUPER", "CREATE ROUTINE", "INDEX", "LOCK TABLES",
        "EXECUTE")),
])  # fmt: skip
def test_a_user_who_may_write_is_refused_until_that_is_accepted(line: str) -> None:
    assert not require_read_only(granted(*READING)).changing  # type: ignore[arg-type]
    session = granted(*READING, line, using=(*READING, line))
    with pytest.raises(PrivilegeError, match=r"u@% may write") as caught:
        require_read_only(session)  # type: ignore[arg-type]
    assert "CREATE USER" in caught.value.hint
    assert "GRANT SELECT" in caught.value.hint
    assert require_read_only(session, accept_write_grants=True).may_write  # type: ignore[arg-type]


def test_what_protects_where_there_are_no_read_only_sessions() -> None:
    assert read_only_mode(Flavor.MYSQL) == ((b"SET SESSION TRANSACTION READ ONLY",), "")
    said, instead = read_only_mode(Flavor.TIDB)
    assert not said
    assert "1235" in instead


# --- restore ---------------------------------------------------------------------------------------------


def test_a_fresh_session_needs_nothing() -> None:
    assert restored(SessionState(database="", sql_mode=""), Flavor.MYSQL).commands == (b"SET SESSION sql_mode=''",)
    (plain,) = restored(SessionState(), Flavor.MYSQL).commands
    assert b"'ANSI_QUOTES',''" in plain
    assert b"'NO_BACKSLASH_ESCAPES',''" in plain


def test_a_session_is_read_only_before_its_transaction_begins() -> None:
    state = replace(FULL, isolation="SERIALIZABLE", rest=json.dumps({
        "variables": {"transaction_read_only": "0"}, "next_transaction": "TRANSACTION READ WRITE",
    }))  # fmt: skip
    made = restored(state, Flavor.MYSQL, read_only=True)
    assert made.commands[-2:] == (b"SET SESSION TRANSACTION READ ONLY", b"BEGIN")
    text = b"; ".join(made.commands).upper()
    assert text.count(b"READ") == 1
    assert b"SERIALIZABLE" not in text
    assert any("SERIALIZABLE" in one for one in made.lost)


FULL = SessionState(
    "d`b", "latin1", "ANSI_QUOTES,STRICT_TRANS_TABLES", "Europe/Berlin", False, "READ-COMMITTED", True,
    json.dumps({
        "variables": {"sql_select_limit": "5", "group_concat_max_len": "DEFAULT", "sql_log_bin": "0", "x y": "1",
                      "transaction_read_only": "1", "character_set_results": "it's"},
        "user_variables": {"a": "5", "b": "it's", "c": None, "d": "05"}, "unresolved": {"e": "@f"},
        "temporary_tables": ["d.tmp"], "prepared_names": ["s"], "prepared_ids": [1],
        "next_transaction": "TRANSACTION READ ONLY",
    }),
)  # fmt: skip


def test_everything_is_restored_or_named() -> None:
    made = restored(FULL, Flavor.MYSQL)
    assert made.commands == (
        b"USE `d``b`", b"SET NAMES 'latin1'", b"SET SESSION sql_mode='ANSI_QUOTES,STRICT_TRANS_TABLES'",
        b"SET SESSION time_zone='Europe/Berlin'", b"SET SESSION transaction_isolation='READ-COMMITTED'",
        b"SET SESSION autocommit=0", b"SET SESSION sql_select_limit=5", b"SET SESSION group_concat_max_len=DEFAULT",
        b"SET SESSION transaction_read_only=1", b"SET SESSION character_set_results='it''s'", b"SET @`a`=5",
        b"SET @`b`='it''s'", b"SET @`d`='05'", b"BEGIN",
    )  # fmt: skip
    for word in ("sql_log_bin", "not a name", "@c", "variable e", "temporary table d.tmp", "by name: s", "transaction"):
        assert any(word in one for one in made.lost), word
    assert len(made.lost) == 8


def test_what_tidb_does_not_know_is_named() -> None:
    state = replace(FULL, charset="ucs2", isolation="SERIALIZABLE")
    made = restored(state, Flavor.TIDB)
    assert b"SET NAMES 'ucs2'" in made.commands  # the server refuses it, and nothing is asked
    for word in (b"SERIALIZABLE", b"read_only", b"READ ONLY"):
        assert not any(word in one for one in made.commands), word
    for text in ("SERIALIZABLE", "transaction_read_only", "SET TRANSACTION"):
        assert any(text in one for one in made.lost), text


def test_a_record_that_cannot_be_read_is_named() -> None:
    for rest in ("{", "[]", '"x"'):
        assert restored(SessionState(rest=rest), Flavor.MYSQL).lost
    state = SessionState(sql_mode="", rest='{"next_transaction": "TRANSACTION; DROP TABLE t"}')
    assert restored(state, Flavor.MYSQL).commands == (b"SET SESSION sql_mode=''",)


@settings(max_examples=30)
@given(st.text(min_size=1, max_size=20), st.text(max_size=20))
def test_no_value_ends_its_quotes(name: str, value: str) -> None:
    from migverify.sql.lexer import TokenKind as Kind
    from migverify.sql.lexer import tokens

    if "\0" in name:
        return
    state = SessionState(database=name, sql_mode=value, rest=json.dumps({"user_variables": {name: value}}))
    for command in restored(state, Flavor.MYSQL).commands:
        kinds = [token.kind for token in tokens(command)]
        assert Kind.OPEN not in kinds
        assert not any(command[token.start : token.end] == b";" for token in tokens(command))


def test_the_clock() -> None:
    assert set_clock(1_700_000_000_000_045) == b"SET timestamp = 1700000000.000045"


# --- clones ----------------------------------------------------------------------------------------------


def server(rows: object, uuid: str = "u-1", host: str = "10.0.0.1") -> Told:
    return Told({"SELECT @@server_uuid": [(uuid,)], "SELECT name": rows}, host=host)


MARK = ("drill", "mysql", "u-1", "10.0.0.1", "3306", "1000", "2000")


def test_a_mark_holds_for_its_server_and_time() -> None:
    proof = clone.prove(server([MARK]), "d.m", now=1500)  # type: ignore[arg-type]
    assert (proof.name, proof.expires_at, proof.marker) == ("drill", 2000, "d.m")
    old = ("drill0", *MARK[1:5], "1", "2")
    assert clone.prove(server([old, MARK]), "d.m", now=1500).name == "drill"  # type: ignore[arg-type]


@pytest.mark.parametrize(("session", "now", "why"), [
    (server([MARK]), 2000, "it holds from"), (server([MARK]), 10, "it holds from"),
    (server([MARK], uuid="u-2"), 1500, "made for mysql u-1"), (server([MARK], host="10.0.0.2"), 1500, "10.0.0.2"),
    (server([]), 1500, "no mark"), (server(ReadError("no table [1146]")), 1500, "has no table"),
    (server(ReadError("denied [1142]")), 1500, "denied"),
])  # fmt: skip
def test_no_proof_says_why(session: Told, now: float, why: str) -> None:
    with pytest.raises(EndpointError, match="may not be written") as caught:
        clone.prove(session, "d.m", now=now)  # type: ignore[arg-type]
    assert why in caught.value.message
    assert "mark-clone target" in caught.value.hint
    assert session.executed == []


def test_no_proof_without_a_table_in_the_configuration() -> None:
    with pytest.raises(EndpointError, match="names no table"):
        clone.prove(server([MARK]), None, now=1500)  # type: ignore[arg-type]
    for wrong in ("m", "a.b.c", ".m", "d."):
        with pytest.raises(EndpointError, match="not the name of a table"):
            clone.prove(server([MARK]), wrong, now=1500)  # type: ignore[arg-type]
    with pytest.raises(EndpointError, match="no mark of the name other"):
        clone.prove(server([MARK]), "d.m", name="other", now=1500)  # type: ignore[arg-type]
    with pytest.raises(EndpointError, match="tells no id"):
        clone.prove(server([MARK], uuid=""), "d.m", now=1500)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "days"), [("", 1), ("x" * 101, 1), ("a", 0), ("a", -1), ("a", 93), ("a", float("nan"))]
)
def test_a_mark_that_cannot_be(name: str, days: float) -> None:
    session = server([])
    with pytest.raises(EndpointError):
        clone.mark(session, "d.m", name, days)  # type: ignore[arg-type]
    assert session.executed == []
