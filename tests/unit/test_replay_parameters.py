"""Literals become parameters where the meaning cannot change, and come back as the values they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.workload.lexer import DEFAULT, Kind, Modes, tokens
from migverify.workload.model import Parameter
from migverify.workload.replay.binary import execute
from migverify.workload.replay.parameters import MOST, ParameterError, inlined, literal, parameterize, quoted, unquoted

NO_BACKSLASHES = Modes(no_backslash_escapes=True)
ANSI = Modes(ansi_quotes=True)


@pytest.mark.parametrize(("sql", "made", "values"), [
    ("SELECT a FROM t WHERE b = 5 LIMIT 10, 20", "SELECT a FROM t WHERE b = ? LIMIT ?, ?", ["5", "10", "20"]),
    ("SELECT a FROM t WHERE b = -5", "SELECT a FROM t WHERE b = ?", ["-5"]),
    ("SELECT a FROM t WHERE b -5 > 1", "SELECT a FROM t WHERE b -? > ?", ["5", "1"]),
    ("SELECT a FROM t WHERE b IN (1,-2,3) AND c='x'", "SELECT a FROM t WHERE b IN (?,?,?) AND c=?",
     ["1", "-2", "3", "x"]),
    ("INSERT INTO t VALUES (1,'a',NULL,-1.5),(2,'b',DEFAULT,1e3)", "INSERT INTO t VALUES (?,?,NULL,?),(?,?,DEFAULT,?)",
     ["1", "a", "-1.5", "2", "b", "1e3"]),
    ("UPDATE t SET a = a + 1, b = 'x' WHERE c = 'y' ORDER BY 1 LIMIT 5",
     "UPDATE t SET a = a + ?, b = ? WHERE c = ? ORDER BY 1 LIMIT ?", ["1", "x", "y", "5"]),
    ("INSERT INTO t (a) VALUES (1) ON DUPLICATE KEY UPDATE a = VALUES(a) + 2",
     "INSERT INTO t (a) VALUES (?) ON DUPLICATE KEY UPDATE a = VALUES(a) + ?", ["1", "2"]),
    ("SELECT * FROM (SELECT 1 AS x FROM t WHERE y = 2) z WHERE w = 3",
     "SELECT * FROM (SELECT 1 AS x FROM t WHERE y = ?) z WHERE w = ?", ["2", "3"]),
    ("SELECT (SELECT 1 FROM t WHERE y = 2) FROM u WHERE w = 3",
     "SELECT (SELECT 1 FROM t WHERE y = 2) FROM u WHERE w = ?",
     ["3"]),
    ("SELECT a FROM t WHERE d > NOW(6) - INTERVAL 5 DAY", "SELECT a FROM t WHERE d > NOW(6) - INTERVAL ? DAY", ["5"]),
    ("SELECT a FROM t WHERE x BETWEEN 1 AND 2 GROUP BY a+1, 2 HAVING COUNT(*) > 3",
     "SELECT a FROM t WHERE x BETWEEN ? AND ? GROUP BY a+1, 2 HAVING COUNT(*) > ?", ["1", "2", "3"]),
    ("DELETE FROM t WHERE a = 'it''s \\'x\\' \\n'", "DELETE FROM t WHERE a = ?", ["it's 'x' \n"]),
    ('SELECT a FROM t WHERE a = "d""q"', "SELECT a FROM t WHERE a = ?", ['d"q']),
    ("CALL p(1, 'x')", "CALL p(?, ?)", ["1", "x"]),
    ("SELECT a FROM t WHERE a /* 5 */ = 5 -- 6", "SELECT a FROM t WHERE a /* 5 */ = ? -- 6", ["5"]),
    ("(SELECT a FROM t WHERE b=1) UNION (SELECT a FROM t WHERE b=2) LIMIT 3;",
     "(SELECT a FROM t WHERE b=?) UNION (SELECT a FROM t WHERE b=?) LIMIT ?;", ["1", "2", "3"]),
])  # fmt: skip
def test_what_becomes_a_parameter(sql: str, made: str, values: list[str]) -> None:
    found = parameterize(sql.encode())
    assert found is not None
    assert found[0].decode() == made
    assert [(parameter.value or b"").decode() for parameter in found[1]] == values


@pytest.mark.parametrize("sql", [
    "SELECT 1, 'a', a + 2 FROM t", "SELECT a FROM t ORDER BY 1, a + 2", "SELECT a FROM t GROUP BY 1, 'x'",
    "SELECT a FROM t WHERE j->'$.a' IS NULL", "SELECT a FROM t WHERE JSON_EXTRACT(j, '$.a') IS NULL",
    "SELECT a FROM t WHERE d > DATE '2024-01-01'", "SELECT a FROM t WHERE d > TIMESTAMP '2024-01-01 00:00:00'",
    "SELECT a FROM t WHERE b = _utf8mb4'x'", "SELECT a FROM t WHERE b = _latin1 x'41'",
    "SELECT a FROM t WHERE b = N'x'",
    "SELECT a FROM t WHERE b = 'x' COLLATE utf8mb4_bin", "SELECT a FROM t WHERE b = 'x' 'y'",
    "SELECT a FROM t WHERE b = x'41' OR b = 0x4142 OR b = b'01'", "SELECT a FROM t WHERE b IN (1, 'x')",
    "SELECT a FROM t WHERE CAST(b AS CHAR(5)) IS NULL", "SELECT a FROM t WHERE CAST(b AS DECIMAL(10,2)) IS NULL",
    "SELECT a FROM t WHERE ROUND(b, 2) IS NULL", "SELECT a FROM t WHERE NOW(6) IS NULL", "SELECT a FROM t AS 'x'",
    "SELECT GROUP_CONCAT(a ORDER BY 1 SEPARATOR ',') FROM t", "SELECT SUM(a) OVER (ORDER BY b ROWS 5 PRECEDING) FROM t",
    "SELECT * FROM JSON_TABLE('[1]', '$[*]' COLUMNS (a INT PATH '$')) x", "SELECT a FROM t WHERE b IS NULL",
    "SELECT /*+ MAX_EXECUTION_TIME(5) */ a FROM t", "SELECT a INTO @x FROM t", "SELECT a FROM t PARTITION (p0)",
    "SELECT a FROM t AS OF TIMESTAMP '2024-01-01'", "SELECT a FROM t WHERE '5' + b OR b * '5' OR b | '5' OR '5' DIV b",
])  # fmt: skip
def test_what_stays_as_it_is(sql: str) -> None:
    found = parameterize(sql.encode())
    assert found == (sql.encode(), ())


@pytest.mark.parametrize("sql", [
    "CREATE TABLE t (a INT DEFAULT 5)", "ALTER TABLE t ADD b INT DEFAULT 5", "SET @x = 5", "SHOW TABLES LIKE 'x'", "",
    "SELECT ?", "SELECT a FROM t WHERE b = ? AND c = 5", "SELECT 1; SELECT 2", "SELECT /*!50000 1, */ 2", "SELECT 'x",
    "EXPLAIN SELECT 1", "PREPARE s FROM 'SELECT 1'", "BEGIN", "VALUES ROW(1,2)", "LOAD DATA INFILE 'x' INTO TABLE t",
])  # fmt: skip
def test_what_is_not_prepared(sql: str) -> None:
    assert parameterize(sql.encode()) is None


def test_more_values_than_a_server_takes() -> None:
    most = b"INSERT INTO t VALUES " + b",".join(b"(%d)" % number for number in range(MOST))
    found = parameterize(most)
    assert found is not None
    assert len(found[1]) == MOST
    assert parameterize(most + b",(1)") is None


def test_bytes_that_are_no_text_stay_as_they_are() -> None:
    sql = b"SELECT a FROM t WHERE b = '\xff\xfe' AND c = 'x'"
    found = parameterize(sql)
    assert found is not None
    assert found[0] == b"SELECT a FROM t WHERE b = '\xff\xfe' AND c = ?"


@pytest.mark.parametrize(("text", "kind"), [
    ("5", "integer"), ("9223372036854775807", "integer"), ("9223372036854775808", "unsigned"),
    ("18446744073709551615", "unsigned"), ("18446744073709551616", "decimal"), ("-9223372036854775808", "integer"),
    ("-9223372036854775809", "decimal"), ("1.50", "decimal"), (".5", "decimal"), ("1e5", "double"),
    ("-1.5E-3", "double"),
    ("'x'", "text"), ("''", "text"),
])  # fmt: skip
def test_kinds(text: str, kind: str) -> None:
    found = parameterize(f"SELECT a FROM t WHERE b = {text}".encode())
    assert found is not None
    assert [one.kind for one in found[1]] == [kind]


TEXTS = st.text(alphabet="ab'\"\\%_n0\0\n\x1aé?", max_size=12).map(str.encode) | st.binary(max_size=12)


@given(TEXTS, st.sampled_from([DEFAULT, NO_BACKSLASHES, ANSI]))
def test_a_quoted_text_is_the_text(value: bytes, modes: Modes) -> None:
    made = quoted(value, modes)
    found = list(tokens(b"SELECT " + made + b" x", "mysql", modes))
    assert [one.kind for one in found] == [Kind.WORD, Kind.STRING, Kind.WORD]
    assert unquoted(made, modes) == value


VALUES = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1).map(lambda n: Parameter("integer", b"%d" % n)),
    st.integers(1 << 63, (1 << 64) - 1).map(lambda n: Parameter("unsigned", b"%d" % n)),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(lambda n: Parameter("decimal", f"{n:f}".encode())),
    st.floats(allow_nan=False, allow_infinity=False, min_value=1e20).map(
        lambda n: Parameter("double", f"{n:e}".encode())
    ),
    st.text(alphabet="ab'\"\\n\0\n?é", max_size=10).map(lambda text: Parameter("text", text.encode())),
)


@given(st.lists(VALUES, max_size=6), st.sampled_from([DEFAULT, NO_BACKSLASHES]))
def test_there_and_back(values: list[Parameter], modes: Modes) -> None:
    head = b"SELECT a FROM t WHERE 'a?' IS NULL -- ?\n"
    sql = head + b"".join(b" OR b = ?" for _ in values)
    text = inlined(sql, tuple(values), modes)
    found = parameterize(text, modes)
    assert found is not None
    assert found[0] == sql.replace(b"'a?'", b"?")
    assert found[1][1:] == tuple(values)
    execute(7, values)


def test_values_must_fit() -> None:
    with pytest.raises(ParameterError):
        inlined(b"SELECT ?", ())
    with pytest.raises(ParameterError):
        inlined(b"SELECT '?'", (Parameter("integer", b"5"),))


@pytest.mark.parametrize(("parameter", "text"), [
    (Parameter("null", None), b"NULL"), (Parameter("integer", b"5"), b"5"), (Parameter("double", b"1.5"), b"1.5e0"),
    (Parameter("double", b"1e300"), b"1e300"), (Parameter("bytes", b"\x00'"), b"x'0027'"),
    (Parameter("integer", b"1; DROP TABLE t"), b"'1; DROP TABLE t'"), (Parameter("double", b"nan"), b"'nan'"),
    (Parameter("datetime", b"2024-01-01 00:00:00"), b"'2024-01-01 00:00:00'"),
])  # fmt: skip
def test_literals_of_values(parameter: Parameter, text: bytes) -> None:
    assert literal(parameter) == text


KINDS = (
    "null", "integer", "unsigned", "double", "float", "decimal", "text", "bytes", "date", "datetime", "time", "strange",
)  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.binary(max_size=9) | st.none())))
def test_any_value_can_be_sent(values: list[tuple[str, bytes | None]]) -> None:
    payload = execute(1, [Parameter(*value) for value in values])
    assert payload[:1] == b"\x17"


@given(st.binary(max_size=80))
def test_any_bytes_can_be_asked_about(sql: bytes) -> None:
    found = parameterize(b"SELECT a FROM t WHERE " + sql)
    if found is not None:
        assert sum(one.kind == Kind.PARAMETER for one in tokens(found[0])) == len(found[1])
