"""SQL of rules: what reads is let through as it is, everything else is refused at its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.recon.statements import check_expression, check_query
from migverify.sql.lexer import TokenKind
from migverify.sql.tokens import SqlProblem, tokens, without_comments

READS = [
    "SELECT 1",
    "TABLE t",
    "VALUES ROW(1, 2)",
    "(SELECT 1) UNION ALL (SELECT 2) ORDER BY 1",
    "SELECT a FROM t INTERSECT SELECT b FROM u",
    "WITH c(a, b) AS (SELECT 1, 2) SELECT * FROM c",
    "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT * FROM n",
    "SELECT j->'$.a', j->>'$.b', 'into outfile x; for update', \"sleep(1)\" FROM t",
    "SELECT `into`, `for update`, `@x`, user, rand FROM t",
    "SELECT COUNT(*), SUM(CASE WHEN (x) THEN (1) END) FROM t GROUP BY (y) HAVING (1)",
    "SELECT CAST(x AS DECIMAL(10, 2)), CONVERT(y USING utf8mb4), _utf8mb4 x'41', N'a' FROM t",
    "SELECT x FROM t PARTITION (p0) USE INDEX (i)",
    "SELECT /*+ HASH_JOIN(t) */ 1 FROM t",
    "SELECT x, ROW_NUMBER() OVER (PARTITION BY a ORDER BY b) FROM t WHERE x >= :window_start AND y = ':not'",
    "SELECT DATE_ADD(x, INTERVAL 1 DAY) FROM t WHERE s = 'it''s' AND u = 'a\\'b;'",
    "SELECT x - -1 FROM t",
    "SELECT 'a\\' INTO OUTFILE ' FROM t",  # one string, under the sql_mode of every session
    "SELECT * FROM a, JSON_TABLE(a.j, '$[*]' COLUMNS (x INT PATH '$.x')) AS jt",
    "SELECT * FROM a, LATERAL (SELECT * FROM b WHERE b.x = a.x) AS l",
]

EXPRESSIONS = r"""
GROUP_CONCAT(DISTINCT a ORDER BY b DESC SEPARATOR ', ')
x + INTERVAL 1 DAY
x - INTERVAL '1:30' MINUTE_SECOND
EXTRACT(YEAR FROM x)
j->>'$.a[0].b'
s LIKE 'a|%' ESCAPE '|'
MATCH(a, b) AGAINST('x y' IN BOOLEAN MODE)
POSITION('a' IN b)
TRIM(LEADING '0' FROM x)
CONVERT(x, DECIMAL(10,2))
CONVERT(x USING latin1)
CAST(x AS CHAR(10) CHARACTER SET utf8mb4)
CHAR(65, 66 USING utf8mb4)
SUBSTRING(x FROM 1 FOR 2)
BINARY x
x COLLATE utf8mb4_bin = 'a'
x IS NOT TRUE
CASE x WHEN 1 THEN 'a' ELSE 'b' END
IF(a > b, a, b)
INTERVAL(3, 1, 2, 5)
TIMESTAMPADD(MINUTE, 1, x)
ROW(a, b) = (1, 2)
(a, b) IN ((1, 2), (3, 4))
a SOUNDS LIKE b
_latin1'x'
_utf8mb4 'x' COLLATE utf8mb4_bin
b'101'
!a
a REGEXP '^[0-9]+$'
INSERT(x, 1, 2, 'a')
LEFT(x, 2)
REPLACE(x, 'a', 'b')
MOD(x, 2)
x MOD 2
x DIV 2
CURRENT_TIMESTAMP(6)
COUNT(DISTINCT a, b)
SUM(a) OVER (PARTITION BY b ORDER BY c ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
FIRST_VALUE(a) OVER (ORDER BY b RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND CURRENT ROW)
DATE '2020-01-01'
a <=> NULL
a XOR b
a && b || c
a | b & c ^ d
a << 2 >> 1
- -a
1e-5
'a' 'b'
N'a'
DATE_FORMAT(x, '%Y-%m')
STR_TO_DATE('01,5,2013','%d,%m,%Y')
JSON_OBJECT('a', 1, 'b', x)
JSON_ARRAYAGG(x)
x MEMBER OF (j->'$.a')
JSON_VALUE(j, '$.a' RETURNING UNSIGNED NULL ON EMPTY ERROR ON ERROR)
GROUPING(a)
ANY_VALUE(a)
BIT_COUNT(a)
SHA2(x, 256)
UUID_TO_BIN(x, 1)
INET6_NTOA(x)
FIND_IN_SET('a', x)
CONCAT_WS(',', a, NULL)
COALESCE(a, b)
POW(a, 2)
LAST_DAY(x)
CONVERT_TZ(x, '+00:00', '+09:00')
DATE_ADD(x, INTERVAL a HOUR)
WEIGHT_STRING(x)
a = ANY (SELECT b FROM u)
a <> ALL (SELECT b FROM u)
EXISTS (SELECT 1 FROM u WHERE u.x = t.x)
(SELECT MAX(b) FROM u WHERE u.x = t.x)
t.`order`
`t`.`a``b`
NVL(a, b)
STD(a)
BIT_XOR(a)
CHARSET(a)
ST_AsText(a)
TO_BASE64(a)
a IN (:p, :q)
NOW() - INTERVAL :p SECOND
""".strip().splitlines()

STATEMENTS = r"""
SELECT DISTINCTROW a FROM t
SELECT SQL_NO_CACHE a FROM t
SELECT STRAIGHT_JOIN a.x FROM a JOIN b ON a.x = b.x
SELECT a FROM t FORCE INDEX (i) WHERE a > 1
SELECT a FROM t IGNORE INDEX FOR ORDER BY (i)
SELECT a FROM t GROUP BY a WITH ROLLUP HAVING a > 1
SELECT a FROM t ORDER BY a DESC, 2 LIMIT 5 OFFSET 10
SELECT a FROM t LIMIT 10, 5
SELECT SUM(a) OVER w FROM t WINDOW w AS (PARTITION BY b)
SELECT a FROM t UNION DISTINCT SELECT b FROM u
SELECT a FROM t EXCEPT SELECT b FROM u
(SELECT a FROM t LIMIT 1) UNION ALL (SELECT b FROM u LIMIT 1)
SELECT a FROM d.t AS x INNER JOIN d.u y ON x.a = y.a
SELECT a FROM t LEFT OUTER JOIN u ON t.a = u.a RIGHT JOIN v ON v.a = u.a
SELECT a FROM t, u AS w WHERE t.a = w.a
SELECT a FROM t PARTITION (p0, p1) AS x
SELECT a FROM (SELECT b AS a FROM t) AS q
SELECT a FROM (SELECT b FROM t) AS q(a)
SELECT a, (SELECT 1) AS b FROM t
SELECT 'x' AS `a b`, 1 AS "c"
SELECT a b FROM t
SELECT a AS 'b' FROM t
SELECT COUNT(*) FROM t WHERE a
SELECT * FROM t WHERE (a, b) > (1, 2)
WITH a AS (SELECT 1 AS x), b AS (SELECT x FROM a) SELECT * FROM b
SELECT * FROM t JOIN LATERAL (SELECT u.x FROM u WHERE u.a = t.a LIMIT 1) AS l ON TRUE
SELECT HIGH_PRIORITY a FROM t
SELECT ALL a FROM t
SELECT t.a FROM t CROSS JOIN u ON t.a = u.a
SELECT a FROM t WHERE a IN (SELECT b FROM u UNION SELECT c FROM v)
SELECT /*+ NO_INDEX_MERGE(t) */ a FROM t
SELECT /*+ READ_FROM_STORAGE(TIKV[t]) */ a FROM t
SELECT a FROM `d`.`t` WHERE `a` = 1 # end
SELECT 1 FROM DUAL WHERE 1 = 1
SELECT t.* FROM t
""".strip().splitlines()

REFUSED = {
    "": "not a statement that reads",
    "DELETE FROM t": "not a statement that reads",
    "SET x = 1": "not a statement that reads",
    "SHOW TABLES": "not a statement that reads",
    "EXPLAIN SELECT 1": "not a statement that reads",
    "CALL f()": "not a statement that reads",
    "DO SLEEP(1)": "not a statement that reads",
    "WITH c AS (SELECT 1) DELETE FROM t": "not a statement that reads",
    "SELECT 1; DELETE FROM t": "more than one statement",
    "SELECT 1;": "ends with a ;",
    "SELECT * FROM t INTO OUTFILE '/tmp/x'": "writes (INTO)",
    "SELECT * INTO DUMPFILE '/tmp/x' FROM t": "writes (INTO)",
    "SELECT a INTO @x FROM t": "writes (INTO)",
    "SELECT * FROM t FOR UPDATE": "locks rows",
    "SELECT * FROM t FOR SHARE SKIP LOCKED": "locks rows",
    "SELECT * FROM t LOCK IN SHARE MODE": "locks rows",
    "SELECT * FROM t FOR NO KEY UPDATE": "holds LOCK",
    "WITH x AS (DELETE FROM t) SELECT 1 FROM x": "holds DELETE",
    "SELECT 1 FROM t TABLESAMPLE (5)": "a sample",
    "SELECT @x := 1": "variables",
    "SELECT @@sql_mode": "variables",
    "SELECT x := 1": "assigns a variable",
    "SELECT NEXT VALUE FOR s": "sequence",
    "SELECT nextval(s)": "sequence",
    "SELECT SETVAL(s, 1)": "sequence",
    "SELECT sleep(1)": "SLEEP() waits",
    "SELECT `sleep` (1)": "SLEEP() waits",
    "SELECT Sleep\n/* c */ (1)": "SLEEP() waits",
    "SELECT BENCHMARK(1, 1)": "waits",
    "SELECT GET_LOCK('a', 1)": "lock",
    "SELECT IS_FREE_LOCK('a')": "lock",
    "SELECT LOAD_FILE('/etc/passwd')": "reads a file",
    "SELECT LAST_INSERT_ID(5)": "depends on the session",
    "SELECT CURRENT_USER": "depends on the session",
    "SELECT RAND()": "another answer",
    "SELECT UUID()": "another answer",
    "SELECT app.f(1)": "not a function that is known to read only",
    "SELECT app.sum(x) FROM t": "not a function that is known to read only",
    "SELECT f(1)": "not a function that is known to read only",
    "SELECT `f`(1)": "not a function that is known to read only",
    "SELECT `sum`(x) FROM t": "not a function that is known to read only",
    "SELECT `cross`(1)": "not a function that is known to read only",
    "SELECT COUNT (x) FROM t": "a stored function to MySQL",
    "SELECT SUM/**/(x) FROM t": "a stored function to MySQL",
    "WITH f(a) AS (SELECT 1) SELECT f(a) FROM f": "not a function that is known to read only",
    "WITH iff(a) AS (SELECT 1) SELECT iff(a) FROM iff": "not a function that is known to read only",
    "SELECT q.a, q(1) FROM (SELECT 1) AS q(a)": "not a function that is known to read only",
    "WITH f(a) AS (SELECT 1), g(b) AS (SELECT f(1)) SELECT a FROM f": "not a function that is known to read only",
    "SELECT 1 /*! INTO OUTFILE 'x' */": "a comment that some servers run",
    "SELECT 1 /*!50000 + 1 */": "a comment that some servers run",
    "SELECT 1 /*!80000 INTO OUTFILE 'x' */": "a comment that some servers run",
    "SELECT 1 {# INTO OUTFILE 'x' #}": "cannot be read",  # a comment to sqlglot, a brace and a comment to MySQL
    "SELECT {# 1 #} 2": "cannot be read",
    "SELECT 1 {% INTO OUTFILE 'x' %}": "writes (INTO)",
    "SELECT $$ INTO OUTFILE $$": "writes (INTO)",  # quotes to other dialects
    "SELECT array_size(a) FROM t": "not a function that is known to read only",  # built in elsewhere only
    "SELECT EXPLODE(a) FROM t": "not a function that is known to read only",
    "SELECT SAFE_DIVIDE(a, b) FROM t": "not a function that is known to read only",
    "SELECT 1 # a\n; DELETE FROM t": "more than one statement",
    "SELECT 'a' INTO OUTFILE 'x' -- '": "writes (INTO)",
    'SELECT "a" INTO OUTFILE \'x\' # "': "writes (INTO)",
    "SELECT 1 /*M! + 1 */": "a comment that some servers run",
    "SELECT 1 /*T! + 1 */": "a comment that some servers run",
    "SELECT 1 /*T[auto_rand] + 1 */": "a comment that some servers run",
    "SELECT 1 --1 INTO OUTFILE 'x'": "-- without a space",
    "SELECT /* /* */ 1 INTO OUTFILE 'x' /* */ */": "writes (INTO)",  # comments do not nest on a server
    "SELECT 'a\\\\' INTO OUTFILE 'x' FROM t": "writes (INTO)",
    "SELECT 'a'' FROM t": "leaves a ' open",
    "SELECT `a FROM t": "leaves a ` open",
    "SELECT 1 /* open": "leaves a comment open",
    "SELECT \0": "NUL",
    "SELECT /*+ SET_VAR(sql_mode='') */ 1": "SET_VAR",
    "SELECT * FROM t AS OF TIMESTAMP '2026-01-01'": "cannot be read",
    "SELECT * FROM t FOR SYSTEM_TIME ALL": "another moment",
    "SELECT * FROM": "cannot be read",
}


@pytest.mark.parametrize("sql", READS)
def test_what_reads_is_let_through(sql: str) -> None:
    assert check_query(sql) == sql


def test_what_people_write_is_understood() -> None:
    refused = []
    for sql in (*STATEMENTS, *(f"SELECT {expression} AS v FROM t" for expression in EXPRESSIONS)):
        try:
            check_query(sql)
        except SqlProblem as problem:
            refused.append((sql, problem.problem))
    assert refused == []


@pytest.mark.parametrize("sql", list(REFUSED))
def test_what_does_not_only_read_is_refused(sql: str) -> None:
    with pytest.raises(SqlProblem) as caught:
        check_query(sql)
    assert REFUSED[sql] in caught.value.problem


def test_comments_are_taken_out_and_the_rest_keeps_its_place() -> None:
    sql = "SELECT 1 -- INTO OUTFILE\n  , 2 # FOR UPDATE\n  , /* ;\n */ 3"
    found = check_query(sql)
    assert found.split() == ["SELECT", "1", ",", "2", ",", "3"]
    assert [found.index(digit) for digit in "123"] == [sql.index("1"), sql.index("2"), sql.index("3")]


@pytest.mark.parametrize(
    ("sql", "line"),
    [
        ("SELECT 1,\n\n  SLEEP(1)", 2),
        ("SELECT 1 /* a\nb */\nFROM t FOR UPDATE", 2),
        ("SELECT a\nFROM t\nWHERE ((x)\n", 2),
    ],
)
def test_the_place_of_a_problem(sql: str, line: int) -> None:
    with pytest.raises(SqlProblem) as caught:
        check_query(sql)
    assert sql.count("\n", 0, caught.value.start) >= line


@pytest.mark.parametrize(
    "sql",
    ["a + 1", "cents / 100", "CASE s WHEN 'P' THEN 'paid' END", "deleted = 0 AND x > :n", "(a) + (b)", "x IN (1, 2)",
     "x IN (SELECT id FROM t2)", "`order`", "IFNULL(x, 0)"],
)  # fmt: skip
def test_expressions(sql: str) -> None:
    assert check_expression(sql, what="condition") == sql


@pytest.mark.parametrize(
    ("sql", "says"),
    [("1) FROM t -- ", "closes a parenthesis"), ("a) OR (b", "closes a parenthesis"),
     ("(a", "leaves a parenthesis open"),
     ("a, b", "not one expression"), ("*", "not one expression"), ("a AS b", "not one expression"), ("", "is empty"),
     (" -- c", "is empty"), ("SUM(x)", "aggregate"), ("COUNT(*) > 1", "aggregate"), ("SLEEP(1)", "waits"),
     ("a FROM b", "cannot be read"), ("SELECT 1", "a statement"),
     ("RANK() OVER (ORDER BY x)", "aggregate"), ("a; b", "more than one statement"), ("x = @y", "variables")],
)  # fmt: skip
def test_what_is_no_expression_of_a_row_is_refused(sql: str, says: str) -> None:
    with pytest.raises(SqlProblem) as caught:
        check_expression(sql, what="condition")
    assert says in caught.value.problem


@given(st.text(alphabet="ab1 ;:='\"`\\-#/*!@,()\n.", max_size=40))
def test_tokens_are_the_text(sql: str) -> None:
    try:
        found = list(tokens(sql))
    except SqlProblem as problem:
        start = problem.start
        assert 0 <= start < len(sql)
        return
    assert "".join(token.text for token in found) == sql
    assert all(sql.startswith(token.text, token.start) and token.text for token in found)
    plain = without_comments(sql)
    assert len(plain) == len(sql)
    assert not any(token.kind is TokenKind.COMMENT for token in tokens(plain))


@given(st.text(alphabet="ab ;'\"`\\-#/*!@()INTOSLEEP\n", max_size=60))
def test_whatever_is_inside_a_string_is_nothing_to_the_statement(inner: str) -> None:
    literal = inner.replace("\\", "\\\\").replace("'", "''")
    assert check_query(f"SELECT '{literal}' AS a") == f"SELECT '{literal}' AS a"
