"""A statement whose literals became parameters answers what it answered with them, on both servers.

Over a corpus of every type of column, every kind of literal and every way of comparing. What differs all the same is
named here, server by server: it is a finding of its own in a replay (text against prepared).
"""

from __future__ import annotations

import itertools

import pytest

from migverify.model import Side
from migverify.workload.replay.model import Answer, Call
from migverify.workload.replay.parameters import inlined, parameterize
from migverify.workload.replay.wire import ServerWire
from migverify.workload.state import State
from tests.conftest import Databases
from tests.db.wiring import SIDES, call, wired

pytestmark = pytest.mark.db

TABLE = (
    "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, i INT, bi BIGINT, u BIGINT UNSIGNED, n DECIMAL(12,2), d DOUBLE,"
    " f FLOAT, v VARCHAR(40), vb VARCHAR(40) COLLATE utf8mb4_bin, c CHAR(10), tx TEXT, bl VARBINARY(20), da DATE,"
    " dt DATETIME(3), ti TIME(2), ts TIMESTAMP NULL, y YEAR, j JSON, e ENUM('a','b','5'), b BIT(8), KEY(v), KEY(i),"
    " KEY(dt)) COLLATE utf8mb4_general_ci",
    "INSERT INTO t VALUES (1,1,10,1,1.10,1.5,1.5,'5','5','a','text','ab','2024-01-01','2024-01-01 10:00:00.5',"
    "'10:11:12.5','2024-01-01 00:00:00',2024,'{\"a\": 1, \"b\": \"x\"}','a',5),"
    "(2,5,9223372036854775807,18446744073709551615,2.50,0.1,0.1,'05','x','b','y',x'00ff','2024-02-29',"
    "'2024-02-29 23:59:59.999','-01:00:00',NULL,2000,'[1,2]','5',255),"
    "(3,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL),"
    "(4,-7,0,0,-1.10,1e15,123456.789,'5abc','Abc','5','5','5','1999-12-31','1999-12-31 00:00:00','00:00:00',"
    "'1999-12-31 00:00:00',1970,'\"x\"','b',0),"
    "(5,5,5,5,5,5,5,'abc','ABC','5.0',' ','','2024-01-01','2024-01-01','00:00:05',NULL,2024,'5','5',53)",
)
COLUMNS = ("i", "bi", "u", "n", "d", "f", "v", "vb", "c", "tx", "bl", "da", "dt", "ti", "ts", "y", "e", "b")
TEMPORAL = frozenset({"da", "dt", "ti", "ts", "y"})
LITERALS = (
    "5", "-7", "1.10", "0.1", "1.5e0", "1e15", "'5'", "'05'", "'abc'", "'ABC'", "'5.0'", "'2024-01-01'",
    "'2024-01-01 10:00:00.5'", "'10:11:12.5'", "18446744073709551615", "'x'", "''", "20240101", "-1.1",
    "x'00ff00ff00ff00ff00ff'",
)  # fmt: skip
COMPARED = (
    "{0} = {1}", "{0} <> {1}", "{0} < {1}", "{0} >= {1}", "{0} <=> {1}", "{0} LIKE {1}", "{0} IN ({1}, NULL)",
    "{0} BETWEEN {1} AND {1}", "{0} + {1} > 6", "{0} * {1} > 3",
)  # fmt: skip
CONDITIONS = (
    "CONCAT(v,'x') = '5x'", "CASE WHEN i > 1 THEN 'a' ELSE 1 END = 'a'", "COALESCE(v, 5) = 5", "IFNULL(i,'x') = 'x'",
    "IF(i=5, 1.50, 2) = 1.5", "dt >= '2024-01-01' - INTERVAL 1 DAY", "da > DATE_SUB('2024-03-01', INTERVAL 5 DAY)",
    "dt + INTERVAL '1:30' MINUTE_SECOND > '2024-01-01 00:01:00'", "SUBSTRING(v,1,1) = 5", "LEFT(v,1) = '5' LIMIT 1,2",
    "1 ORDER BY id LIMIT 2 OFFSET 1", "(i, v) IN ((5,'abc'),(1,'5'))", "i IN (SELECT i FROM t WHERE v = 'abc')",
    "j->'$.a' = 1", "j->>'$.b' = 'x'", "JSON_EXTRACT(j,'$.b') = 'x'", "j = 5", "JSON_CONTAINS(j,'1')",
    "JSON_CONTAINS(j,'1','$.a')", "DATE_FORMAT(dt,'%Y-%m') = '2024-01'", "UNIX_TIMESTAMP(dt) > 1.5", "i DIV 2 = 2",
    "YEAR(da) = '2024'", "i % 2 = 1", "i | 2 = 7", "n * 1.1 = 2.75", "n / 3 > 0.83333", "ROUND(n,1) = 2.5",
    "v REGEXP '^5'", "v RLIKE 'B'", "NOT v = 'x' AND 1", "1=1 AND 'a'='A'", "'a' = 'a '", "'1' = 1",
    "'a' < 'B' OR i=5", "FIELD(v,'5','abc') > 1", "FIND_IN_SET(v,'5,abc')", "INSTR(tx,'ex') > 0",
    "NULLIF(i,5) IS NULL", "LEAST(i,3) = 3", "GREATEST('a',v) = 'abc'", "LEAST('10',9) = 9", "bl = 'ab'",
    "ts BETWEEN '1999-01-01' AND '2024-01-01 00:00:00'", "MAKETIME(1,2,3.5) > '01:02:03'", "CHAR_LENGTH('é') = 1",
    "LENGTH('é') = 2", "HEX('a') = '61'", "e > 'a'", "e = 1", "b = 5", "INTERVAL(i,1,3) = 2",
    "DATEDIFF('2024-03-01', da) = 1",
    "EXISTS(SELECT 1 FROM t u WHERE u.i = t.i AND u.v='abc')", "TIMESTAMPDIFF(DAY,'2024-01-01',dt) > 5",
    "CAST('5' AS SIGNED) = i", "CAST(5 AS CHAR) = v", "CONCAT_WS(',',v,5) = 'abc,5'", "REPEAT('5',1) = v",
    "i = '5' + 0", "v = 5 + 0", "- i = 7", "i = -(-5)", "~0 = u", "!0 AND i", "i <=> NULL OR i = 5", "POW(i,2) = 25",
    "CONV('a',16,10) = 10", "LPAD(i,3,'0')='005'", "FORMAT(n,1) = '2.5'", "STRCMP(v,'x') < 0", "i BETWEEN '1' AND 5.5",
    "v BETWEEN 1 AND 9", "dt IN ('2024-01-01','1999-12-31')", "dt = 20240101", "ti = 5", "da = '2024-1-1'", "i = ' 5'",
    "i = '5x'", "u = -1", "u > -1", "u - 5 > 3", "bi = 9223372036854775807", "bi = 9223372036854775808",
    "bi = 9223372036854775806.9", "f = 123456.789", "n = 1.1e0", "n > 1.0999999999999999999999999",
    "v = 'it''s \\n \\% \\\\' OR v = \"5\"", "vb = 'a' 'bc' OR vb = N'5' OR vb = _utf8mb4'x'", "dt > DATE '2024-01-01'",
    "v LIKE '5|%' ESCAPE '|' OR v LIKE '%bc'", "ROUND(n, 2) = 1.1 GROUP BY id HAVING COUNT(*) = 1 ORDER BY 1 DESC",
    "i IN (1, '5', 7.5)", "v IN ('5', 'abc', 5)",
)  # fmt: skip
CHANGES = (
    "INSERT INTO w (i,bi,u,n,d,f,v,c,tx,bl,da,dt,ti,ts,y,j,e,b) VALUES (5,-5,5,1.005,0.1,0.1,'x','y','z','b',"
    "'2024-01-01','2024-01-01 10:00:00.1234','10:11:12.129','2024-01-01 00:00:00',2024,'{\"a\": 1.0}','a',5)",
    "INSERT INTO w (i,v,n,y,da,j,b) VALUES ('5',5,'1.5','2024',20240101,'5','5')",
    "INSERT INTO w (i,v,n,d,f,tx) VALUES (1.5,1.50,1e3,'1e3',1e20,1.50)",
    "INSERT INTO w (v,tx,c,bl) VALUES (1e15,1.0e0,-0.5,1.10)",
    "INSERT INTO w (bl) VALUES (x'00ff00ff00ff00ff00ff'), (x'41'), (0x4142)",
    "INSERT INTO w (i) VALUES (3000000000)", "INSERT INTO w (i) VALUES ('x')",
    "INSERT INTO w (da) VALUES ('2024-13-45')",
    "INSERT INTO w (ti,dt) VALUES (5,20240101101112)", "INSERT INTO w (b,bl) VALUES (5,'5')",
    "INSERT INTO w (e) VALUES (1)", "INSERT INTO w (e) VALUES ('zz')", "INSERT INTO w (n) VALUES (1.999)",
    "INSERT INTO w (v) VALUES ('too long too long too long too long too long too long')",
    "INSERT INTO w (n) VALUES (1e30)", "INSERT INTO w (j) VALUES (5)", "INSERT INTO w (j) VALUES ('x')",
    "INSERT INTO w (y) VALUES (5)", "INSERT INTO w (y) VALUES ('5')", "INSERT INTO w (ts) VALUES (0)",
    "INSERT INTO w (u) VALUES (-1)", "INSERT INTO w (i) VALUES (1+1.5)", "INSERT INTO w (v) VALUES (CONCAT('a',5))",
    "UPDATE w SET i = i + 1.5, v = CONCAT(v,'x') WHERE n = 1.01", "UPDATE w SET v = 5 WHERE v = '5'",
    "UPDATE w SET n = n * 1.115, d = d / 3, f = f * 1.1 WHERE i > 0", "UPDATE w SET i = '7' WHERE i = 5 LIMIT 1",
    "UPDATE w SET v = CASE WHEN i > 5 THEN 'big' ELSE 7 END", "UPDATE w SET v = IF(i > 2, 1.0, 'x')",
    "UPDATE w SET dt = '2024-05-05' + INTERVAL 1 DAY, da = '2024-05-05' WHERE i",
    "UPDATE w SET tx = 1.50, c = 1.5e0, v = COALESCE(NULL, '5')", "DELETE FROM w WHERE v = 7",
    "INSERT INTO w (id,i) VALUES (1,1),(2,2) ON DUPLICATE KEY UPDATE i = i + 10, v = 'dup'",
    "DELETE FROM w WHERE i IN (1,2,'3') ORDER BY id LIMIT 2", "REPLACE INTO w (id, v) VALUES (1, 'r')",
)  # fmt: skip


def outcome(answer: Answer) -> tuple[object, ...]:
    assert not answer.unanswered, answer
    return answer.errno, sorted(map(repr, answer.rows or ())), answer.affected, answer.insert_id


def prepared(sql: str) -> Call:
    made = parameterize(sql.encode())
    assert made is not None, sql
    return Call("1", 1, made[0], "", State(), parameters=made[1])


def compared(wire: ServerWire, sql: str) -> tuple[bool, int]:
    """Ask both ways; returns whether they agree, and how many literals were made parameters."""
    asked = prepared(sql)
    assert asked.parameters is not None
    text = outcome(wire.run(call(sql)))
    assert outcome(wire.run(call(inlined(asked.sql, asked.parameters)))) == text, sql
    return outcome(wire.run(asked, prepared=True)) == text, len(asked.parameters)


@pytest.mark.parametrize("side", SIDES)
def test_every_column_against_every_literal(databases: Databases, side: Side) -> None:
    with wired(databases, side) as wire:
        for statement in TABLE:
            assert wire.command(statement.encode()).ok
        differing = set()
        parameters = 0
        for column, literal, how in itertools.product(COLUMNS, LITERALS, COMPARED):
            condition = how.format(column, literal)
            same, count = compared(wire, f"SELECT id FROM t WHERE {condition}")
            parameters += count
            if not same:
                differing.add((column, literal, how))
    assert parameters > 3000
    if side is Side.SOURCE:
        # MySQL: the parameter takes the column's type, and these are no dates and times
        assert {column for column, _, _ in differing} <= TEMPORAL
        assert not [one for one in differing if one[0] in ("da", "dt", "ts") and one[1].startswith("'2024")]
        assert ("da", "'abc'", "{0} = {1}") in differing  # 1525 as a literal, no row as a parameter
    else:
        # TiDB: NULL <=> a text that is no time
        assert {(column, how) for column, _, how in differing} == {("ti", "{0} <=> {1}")}


@pytest.mark.parametrize("side", SIDES)
def test_conditions(databases: Databases, side: Side) -> None:
    with wired(databases, side) as wire:
        for statement in TABLE:
            assert wire.command(statement.encode()).ok
        results = {one: compared(wire, f"SELECT id FROM t WHERE {one}") for one in CONDITIONS}
    assert [one for one, (same, _) in results.items() if not same] == []
    assert sum(count for _, count in results.values()) > len(CONDITIONS)


@pytest.mark.parametrize("side", SIDES)
def test_changes(databases: Databases, side: Side) -> None:
    with wired(databases, side) as wire:
        for statement in TABLE:
            assert wire.command(statement.encode()).ok
        for sql in CHANGES:
            found = []
            for asked, how in ((call(sql), False), (prepared(sql), True)):
                for statement in ("DROP TABLE IF EXISTS w", "CREATE TABLE w LIKE t", "INSERT INTO w SELECT * FROM t"):
                    assert wire.command(statement.encode()).ok
                answer = wire.run(asked, prepared=how)
                # TiDB warns of a prepared statement that its plan cache does not take
                plans = how and any("plan-cache" in one.message for one in wire.warned())
                found.append((outcome(answer), answer.warnings - plans, wire.command(b"SELECT * FROM w").rows))
            assert found[0] == found[1], sql
