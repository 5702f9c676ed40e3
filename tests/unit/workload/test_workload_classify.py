"""What statements do: kinds, effects, volatility, structure; unknown is never harmless."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.sql.lexer import Modes
from migverify.workload.classify import StatementKind, classify
from migverify.workload.shape import RowOrder, Shape, shape


@pytest.mark.parametrize(
    ("sql", "kind", "may_write"),
    [
        ("SELECT 1", "read", False),
        ("(SELECT 1) UNION (SELECT 2)", "read", False),
        ("TABLE t", "read", False),
        ("VALUES ROW(1)", "read", False),
        ("SHOW TABLES", "read", False),
        ("EXPLAIN DELETE FROM t", "read", False),
        ("EXPLAIN ANALYZE DELETE FROM t", "write", True),
        ("EXPLAIN ANALYZE FORMAT = 'brief' SELECT 1", "read", False),
        ("WITH c (n) AS (SELECT 1) SELECT * FROM c", "read", False),
        ("WITH c AS (SELECT 1) DELETE FROM t", "write", True),
        ("WITH c AS (SELECT 1), d AS (SELECT 2) UPDATE t SET a = 1", "write", True),
        ("INSERT INTO t (a) VALUES (1)", "write", True),
        ("/* c */ REPLACE INTO t VALUES (1)", "write", True),
        ("LOAD DATA INFILE 'x' INTO TABLE t", "write", True),
        ("CALL p(1)", "write", True),
        ("CREATE TABLE t (a int)", "ddl", True),
        ("TRUNCATE t", "ddl", True),
        ("CREATE USER a", "administrative", True),
        ("GRANT SELECT ON *.* TO a", "administrative", True),
        ("SET GLOBAL x = 1", "administrative", True),
        ("SET a = 1, @@global.x = 2", "administrative", True),
        ("SET @@PERSIST.x = 2", "administrative", True),
        ("SET PASSWORD = 'x'", "administrative", True),
        ("SET NAMES utf8mb4", "session", False),
        ("USE d", "session", False),
        ("SET TRANSACTION READ ONLY", "transaction", False),
        ("XA START 'a'", "transaction", False),
        ("START TRANSACTION", "transaction", False),
        ("START REPLICA", "administrative", True),
        ("EXECUTE s", "unknown", True),
        ("FOO BAR", "unknown", True),
        ("", "unknown", True),
        ("-- only a comment", "unknown", True),
        ("SELECT 'open", "unknown", True),
        ("SELECT 1 /* open", "unknown", True),
        ("SELECT 1; DROP TABLE t", "ddl", True),
        ("SELECT 1; SELECT 2", "read", False),
        ("SELECT 1 /*! ; DROP TABLE t */", "unknown", True),
        ("SELECT 1 /*!99999 ; DELETE FROM t */", "unknown", True),
        ("/*!40101 SET NAMES utf8 */", "session", False),
        ("/*! DELETE FROM t */", "write", True),
        ("SELECT a INTO OUTFILE '/x' FROM t", "read", True),
        ("SELECT f(1)", "read", True),
        ("SELECT d.f(1)", "read", True),
        ("SELECT `f`(1)", "read", True),
        ("SELECT nextval(s)", "read", True),
        ("SELECT NEXT VALUE FOR s", "read", True),
        ("SELECT last_insert_id(5)", "read", True),
        ("SELECT last_insert_id(), count(*), ifnull(a, 1) FROM t", "read", False),
        ("CREATE PROCEDURE p() BEGIN SELECT 1; DELETE FROM t; END", "ddl", True),
    ],
)
def test_kinds(sql: str, kind: str, may_write: bool) -> None:
    found = classify(sql.encode())
    assert (found.kind.value, found.may_write) == (kind, may_write)


def test_details() -> None:
    assert classify(b"SELECT a FROM t FOR UPDATE").locking
    assert classify(b"SELECT a FROM t LOCK IN SHARE MODE").locking
    assert classify(b"WITH c AS (SELECT 1) SELECT * FROM c FOR SHARE").locking
    assert not classify(b"SELECT a FROM t USE INDEX FOR JOIN (i)").locking
    found = classify(b"SELECT GET_LOCK('a', 1), sleep(1), NOW(), uuid(), current_timestamp, @a := 1")
    assert found.effects == {"lock by name", "sleep", "user variable"}
    assert found.volatile == {"get_lock", "sleep", "now", "uuid", "current_timestamp"}
    assert classify(b"SELECT unix_timestamp(a) FROM t").volatile == frozenset()
    assert classify(b"SELECT 'now()', `now` FROM t").volatile == frozenset()
    several = classify(b"SELECT 1; SELECT 2;")
    assert several.statements == 2
    assert several.effects == {"several statements"}
    assert classify(b"SELECT a INTO @x FROM t").effects == {"user variable"}


def test_the_modes_decide_where_a_string_ends() -> None:
    sql = rb"SELECT '\'; DROP TABLE t; -- '"
    assert classify(sql).kind is StatementKind.READ
    assert classify(sql, Modes(no_backslash_escapes=True)).kind is StatementKind.DDL


@given(st.binary(max_size=60))
def test_any_bytes_are_classified(sql: bytes) -> None:
    found = classify(sql)
    assert found.kind is not StatementKind.UNKNOWN or found.may_write


@given(st.sampled_from(["DELETE FROM t", "INSERT INTO t VALUES (1)", "DROP TABLE t", "UPDATE t SET a = 1", "CALL p()"]),
       st.sampled_from(["", " ", "/* c */", "-- c\n", "(", "/*!", "/*!50000 ", "/*M! ", "EXPLAIN ANALYZE ", "SELECT 1;", "\t;;"]))  # fmt: skip  # noqa: E501
def test_what_writes_is_never_called_harmless(statement: str, before: str) -> None:
    closing = "*/" if "!" in before else ")" if before == "(" else ""
    assert classify((before + statement + closing).encode()).may_write


@pytest.mark.parametrize(
    ("sql", "order", "deterministic"),
    [
        ("SELECT a FROM d.t ORDER BY id LIMIT 1", RowOrder.TOTAL, True),
        ("SELECT a FROM t ORDER BY a LIMIT 1", RowOrder.TIES, False),
        ("SELECT a FROM t LIMIT 1", RowOrder.NONE, False),
        ("SELECT a FROM t", RowOrder.NONE, True),
        ("SELECT t.a FROM t JOIN u ON t.a = u.b ORDER BY t.id", RowOrder.TIES, True),
        ("SELECT count(*), max(a) FROM t", RowOrder.ONE_ROW, True),
        ("SELECT a, count(*) FROM t GROUP BY a ORDER BY a", RowOrder.TOTAL, True),
        ("SELECT a, count(*) FROM t GROUP BY a, b ORDER BY a", RowOrder.TIES, True),
        ("SELECT group_concat(a) FROM t", RowOrder.ONE_ROW, False),
        ("SELECT group_concat(a ORDER BY a) FROM t", RowOrder.ONE_ROW, True),
        ("SELECT a FROM t WHERE b IN (SELECT b FROM u LIMIT 1)", RowOrder.NONE, False),
        ("UPDATE t SET a = 1 LIMIT 1", RowOrder.NONE, False),
    ],
)
def test_shapes(sql: str, order: RowOrder, deterministic: bool) -> None:
    found = shape(sql.encode(), {"t": [["id"]]})
    assert (found.order, found.deterministic) == (order, deterministic)


@pytest.mark.parametrize("sql", ["XA START 'a'", "SELECT 1; SELECT 2", "SAVEPOINT s1", "SELECT", "", "\udcff"])
def test_what_cannot_be_read_has_no_known_shape(sql: str) -> None:
    found = shape(sql.encode("utf-8", "surrogateescape"))
    assert (found.tables, found.order, found.deterministic) == (None, RowOrder.UNKNOWN, None)
    assert found.reasons


def test_tables_and_limits() -> None:
    assert shape(b"WITH c AS (SELECT 1 FROM d.x) SELECT * FROM c JOIN t USING (a)").tables == ("d.x", "t")
    assert shape(b"SELECT a FROM t LIMIT 3").deterministic is False
    assert shape(b"SELECT a FROM t ORDER BY id LIMIT 3", {"t": [("ID",)]}).deterministic
    assert shape(b"SELECT now() FROM t", volatile=True).deterministic is False
    assert Shape().limited is False


@pytest.mark.parametrize(
    "sql",
    [
        b"WITH c AS (SELECT 1) /*!99999 SELECT */ DELETE FROM t",
        b"SET /*!99999 @x = */ GLOBAL y = 1",
        b"SELECT 1 /*!50000 ; DROP TABLE t */",
        b"/*!50000 SELECT */ /*!80000 1; DELETE FROM t */",
        b"SELECT 1 /*!50001 +1*//*!50002 +1*//*!50003 +1*//*!50004 +1*//*!50005 +1*/",
    ],
)
def test_no_reading_of_an_executable_comment_is_trusted_alone(sql: bytes) -> None:
    assert classify(sql).may_write


def test_effects_of_every_reading_count() -> None:
    found = classify(b"SELECT /*!99999 1 -- */ GET_LOCK('a', 1)\n")
    assert "lock by name" in found.effects
