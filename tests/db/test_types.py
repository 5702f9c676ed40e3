"""Every row of the type table on both servers: equal values give equal bytes, unlike values unlike ones.

A case lists values that are all different. Each is stored on both sides, possibly spelled otherwise; the two
canonical texts must be the same bytes, and no two values may share one. Then the whole road decides: MATCH for the
table as it is, and one row diff per row when the target's values are moved by one row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from migverify.model import DiffKind, Flavor, KeyRange, Lane, Verdict
from migverify.sql.canonical import TYPE_TABLE
from migverify.sql.checksum import checksum_sql
from migverify.tables.values import same_value
from tests.table_pairs import Road, road

if TYPE_CHECKING:
    from tests.conftest import Databases

# ruff: noqa: E501  (tables of literals read better unbroken)
pytestmark = pytest.mark.db

Value = str | tuple[str, str]
"""An SQL literal for both sides, or one per side."""


@dataclass(frozen=True)
class Case:
    """``rule`` is the row of the type table that must join ``source`` and ``target``, both column types."""

    rule: str
    source: str
    target: str
    values: tuple[Value, ...]


def case(rule: str, source: str, target: str, *values: Value) -> Case:
    return Case(rule, source, target, values)


def same(rule: str, both: str, *values: Value) -> Case:
    return Case(rule, both, both, values)


NULL = "NULL"
TEXTS: tuple[Value, ...] = (
    "NULL", "''", "'N'", "'NULL'", "'a,b'", "'a'", "'a '", "'a  '", "'A'", "'\\\\'", "''''", "'a;b'", "'?'", "','", "'1,N'",
    "'\\t'", "'a\\nb'", "'\\0'", "'a\\0'", "'é'", "'e\u0301'", "'表'", "'😀'", "REPEAT('x',300)", "REPEAT('表',300)",
)  # fmt: skip
BYTES: tuple[Value, ...] = (
    "NULL", "''", "'N'", "x'00'", "x'0000'", "x'FF'", "x'C328'", "x'80'", "','", "'a'", "'a '", "x'6100'", "REPEAT(x'FE',300)",
)  # fmt: skip
DOUBLES = (
    NULL, "0e0", "1e0", "-1e0", "0.1e0", "0.5e0", "1e-5", "123456.789e0", "1e14", "999999999999999.9e0", "1e15", "1.5e15",
    "-1039514241563211.8e0", "2222222222222222.25e0", "9007199254740993e0", "1e16", "12345678901234568e0", "99999999999999984e0",
    "1e17", "-1e17", "123456789012345680e0", "1e20", "1e21", "1.2345e22", "1e100", "1e300", "-1e300", "1.7976931348623157e308",
    "2.2250738585072014e-308", "5e-324", "1.5e-320", "1e-300", "3.141592653589793e0", "0.30000000000000004e0", "0.3e0",
)  # fmt: skip
FLOATS = (NULL, "0", "1", "-1", "0.1", "0.5", "1e-5", "16777216", "16777217e1", "3.4e38", "-3.4e38", "1.17549e-38", "1e-45",
          "1e15", "2e15", "1e16", "5e16", "2e17", "1e20", "1e30", "123456.79")  # fmt: skip
DATES = (NULL, "'0000-00-00'", "'2026-00-00'", "'2026-01-00'", "'2026-02-30'", "'0001-01-01'", "'1000-01-01'", "'1970-01-01'",
         "'2026-01-31'", "'9999-12-31'")  # fmt: skip
MOMENTS = (NULL, "'0000-00-00 00:00:00'", "'1000-01-01 00:00:00'", "'1969-12-31 23:59:59'", "'2026-03-29 02:30:00'",
           "'2026-03-29 03:30:00'", "'9999-12-31 23:59:59'", "'2026-01-01 00:00:00'")  # fmt: skip
TIMES = (NULL, "'00:00:00'", "'00:00:01'", "'-00:00:01'", "'23:59:59'", "'24:00:00'", "'100:00:00'", "'-100:00:00'", "'838:59:59'",
         "'-838:59:59'")  # fmt: skip
JSONS: tuple[Value, ...] = (
    NULL, "'null'", "'true'", "'false'", "'1'", "'\"1\"'", "'\"\"'", "'\"N\"'", "'[]'", "'{}'", "'[[]]'", "'{\"a\":null}'",
    ('\'{"bb":1,"a":2}\'', '\'{"a":2,"bb":1}\''), ('\'{"a":{"c":1,"b":[1,2]}}\'', '\'{"a": {"b": [1, 2], "c": 1}}\''),
    "'[1,2]'", "'[2,1]'", ("'1.5'", "'1.50'"), ("'[1.0]'", "'[1]'"), "'9007199254740993'", "'9007199254740992'",
    "'18446744073709551615'", "'-9223372036854775808'", "'9223372036854775807'", "'1e300'", "'1.5e16'", "'1e17'", "'0.1'", "'0'",
    "'\"é😀\"'", "'\"a\\\\u0001b\"'", "'\"a\\\\\"b\"'", "'{\"\":0}'", "'\"a,b\"'", "'\"2026-01-01\"'", "'[true]'", "'[\"true\"]'",
)  # fmt: skip
ENUM = "ENUM('a','b','c,d','N','é',' x')"
ENUMS = (NULL, "'a'", "'b'", "'c,d'", "'N'", "'é'", "' x'", "0")
SET = "SET('a','b','c d','N','é')"
SETS = (NULL, "''", "'a'", "'b'", "'a,b'", "'c d'", "'N'", "'a,N'", "'é'", "'a,b,c d,N,é'")

CASES = (
    same("integer", "TINYINT", NULL, "0", "1", "-1", "-128", "127"),
    same("integer", "TINYINT(1)", NULL, "0", "1", "-1"),
    same("integer", "SMALLINT UNSIGNED", NULL, "0", "65535"),
    same("integer", "MEDIUMINT", NULL, "0", "-8388608", "8388607"),
    same("integer", "BIGINT", NULL, "0", "-9223372036854775808", "9223372036854775807", "9007199254740993", "9007199254740992"),
    same("integer", "BIGINT UNSIGNED", NULL, "0", "18446744073709551615", "18446744073709551614", "9223372036854775808"),
    case("integer", "INT", "BIGINT UNSIGNED", NULL, "0", "7", "2147483647"),
    case("integer", "BIGINT UNSIGNED ZEROFILL", "BIGINT UNSIGNED", NULL, "0", "7", "18446744073709551615"),
    case("integer", "INT UNSIGNED", "INT(8) ZEROFILL", NULL, "0", "42", "4294967295"),
    same("integer", "INT(6) ZEROFILL", NULL, "0", "42", "1234567"),
    same("bit", "BIT(1)", NULL, "0", "1"),
    same("bit", "BIT(8)", NULL, "0", "1", "44", "78", "255"),
    same("bit", "BIT(64)", NULL, "0", "1", "18446744073709551615", "9223372036854775808"),
    case("bit", "BIT(9)", "BIT(33)", NULL, "0", "5", "511"),
    case("bit and integer", "BIT(1)", "TINYINT(1)", NULL, "0", "1"),
    case("bit and integer", "BIGINT UNSIGNED", "BIT(64)", NULL, "0", "18446744073709551615"),
    same("decimal", "DECIMAL(10,2)", NULL, "0", "0.01", "-0.01", "1.5", "99999999.99", "-99999999.99", ("0.02", "0.020")),
    same("decimal", "DECIMAL(65,30)", NULL, "0", "1e-30", "-1e-30", "12345678901234567890123456789012345.123456789012345678901234567891"),
    same("decimal", "DECIMAL(65,0)", NULL, "0", "9" * 65, "-" + "9" * 65),
    case("decimal", "DECIMAL(10,2)", "DECIMAL(20,6)", NULL, "0", "-0.01", "1.5", "99999999.99"),
    case("decimal", "DECIMAL(20,6)", "DECIMAL(10,2)", NULL, "0", "-0.01", "1.5", "99999999.99"),
    case("decimal", "DECIMAL(10,2) ZEROFILL", "DECIMAL(10,2)", NULL, "0", "1.5"),
    case("decimal", "DECIMAL(10,2)", "DECIMAL(12,4) UNSIGNED ZEROFILL", NULL, "0", "1.5"),
    case("decimal, wide", "DECIMAL(65,0)", "DECIMAL(65,30)", NULL, "0", "-1", "12345678901234567890123456789012345"),
    case("decimal and integer", "BIGINT", "DECIMAL(20,0)", NULL, "0", "-9223372036854775808", "9223372036854775807"),
    case("decimal and integer", "DECIMAL(12,2)", "INT", NULL, "0", "-7", "7"),
    case("decimal and integer", "BIGINT UNSIGNED", "DECIMAL(30,4)", NULL, "0", "18446744073709551615"),
    case("decimal and integer", "INT ZEROFILL", "DECIMAL(12,0)", NULL, "0", "7"),
    same("float", "DOUBLE", *DOUBLES),
    same("float", "FLOAT", *FLOATS),
    case("float", "FLOAT", "DOUBLE", NULL, "0", "0.5", "-0.25", "16777216", "2199023255552", ("0.1", "0.10000000149011612")),
    same("float", "FLOAT UNSIGNED", NULL, "0", "0.5"),
    same("float", "DOUBLE(10,2)", NULL, "0", "1.1", "1.15", "2.676", "99999999.99", "-3.34"),
    same("float", "FLOAT(7,3)", NULL, "0", "1.1", "1.2346", "999.998", "-3.334"),
    case("float", "DOUBLE", "DOUBLE", ("-0e0", "0e0"), "1"),
    case("float and exact number", "DOUBLE", "DECIMAL(30,10)", NULL, "0", "0.5", "-1.25", "1e15", "12345678901234568", "1e18"),
    case("float and exact number", "BIGINT", "DOUBLE", NULL, "0", "-1", "9007199254740992", "1000000000000000000"),
    case("float and exact number", "FLOAT", "INT", NULL, "0", "-1", "16777216"),
    same("date", "DATE", *DATES),
    same("datetime", "DATETIME", *MOMENTS),
    same("datetime", "DATETIME(6)", NULL, "'2026-01-01 00:00:00.000001'", "'2026-01-01 00:00:00'", "'2026-01-01 00:00:00.100000'",
         "'0000-00-00 00:00:00'", "'9999-12-31 23:59:59.999999'", "'2026-00-00 00:00:00'", "'2026-02-30 10:00:00'"),
    case("datetime", "DATETIME", "DATETIME(6)", *MOMENTS),
    case("datetime", "DATETIME(3)", "DATETIME(1)", NULL, "'0000-00-00 00:00:00'", "'2026-01-01 10:00:00.5'", "'2026-01-01 10:00:00'"),
    case("datetime", "DATE", "DATETIME", *DATES),
    case("datetime", "DATETIME(6)", "DATE", *DATES),
    case("datetime", "TIMESTAMP", "DATETIME(6)", NULL, "'0000-00-00 00:00:00'", "'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'"),
    same("datetime", "TIMESTAMP(6)", NULL, "'0000-00-00 00:00:00'", "'2026-03-29 01:30:00.000001'", "'2038-01-19 03:14:07.499999'"),
    same("time", "TIME", *TIMES),
    same("time", "TIME(6)", NULL, "'838:59:59.000000'", "'-838:59:59.000000'", "'00:00:00.000001'", "'-00:00:00.000001'", "'00:00:00'"),
    case("time", "TIME", "TIME(3)", *TIMES),
    same("year", "YEAR", NULL, "0", "1901", "2000", "2155", "1970"),
    case("year and integer", "YEAR", "SMALLINT", NULL, "0", "1901", "2155"),
    same("text", "VARCHAR(400)", *TEXTS),
    same("text", "TEXT", *TEXTS),
    case("text", "VARCHAR(400)", "LONGTEXT", *TEXTS),
    same("text", "CHAR(200)", NULL, "''", "'N'", "'a,b'", "'a'", "' a'", "'😀'", "'a\\t'"),
    case("text", "CHAR(20)", "VARCHAR(20)", NULL, "''", "'N'", ("'a '", "'a'"), "'b'"),
    case("text", "CHAR(200)", "TEXT", NULL, "''", "'N'", "'a,b'", "'é'"),
    case("text", "VARCHAR(400) CHARACTER SET latin1", "VARCHAR(400)", NULL, "''", "'N'", "'é'", "'e'", "'ÿ'", "'€'", "'a,é'", "REPEAT('ü',300)"),
    same("text", "VARCHAR(400) CHARACTER SET latin1 COLLATE latin1_bin", NULL, "''", "'N'", "'é'", "'ÿ'", "'a,é'", "REPEAT('ü',300)"),
    case("text", "VARCHAR(400) CHARACTER SET utf8mb3", "VARCHAR(400)", NULL, "''", "'N'", "'é'", "'表'", "REPEAT('表',300)"),
    same("text", "VARCHAR(400) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin", NULL, "''", "'N'", "'é'", "'表'"),
    case("text", "VARCHAR(400) CHARACTER SET ascii", "VARCHAR(400)", NULL, "''", "'N'", "'~'", "'a,b'"),
    case("text", "VARCHAR(400) CHARACTER SET gbk", "VARCHAR(400)", NULL, "''", "'N'", "'表'", "'中文'", "'a,表'"),
    same("text", "VARCHAR(400) CHARACTER SET gbk COLLATE gbk_chinese_ci", NULL, "''", "'N'", "'表'", "'中文'", "'a,表'"),
    case("text", "VARCHAR(400) CHARACTER SET utf16", "VARCHAR(400)", NULL, "''", "'N'", "'表'", "'😀'"),
    case("text", "VARCHAR(400) CHARACTER SET cp1251", "VARCHAR(400)", NULL, "''", "'Ж'", "'a'"),
    case("text", "VARCHAR(400) COLLATE utf8mb4_general_ci", "VARCHAR(400) COLLATE utf8mb4_bin", *TEXTS),
    same("enum", ENUM, *ENUMS),
    case("enum", ENUM, "ENUM('N','c,d','b','a','é',' x')", *ENUMS),
    case("text", ENUM, "VARCHAR(20)", NULL, "'a'", "'b'", "'c,d'", "'N'", "'é'", "' x'", ("0", "''")),
    case("enum", ENUM.replace("',' x'", "'") + " CHARACTER SET latin1", ENUM, NULL, "'a'", "'é'", "'N'"),
    same("set", SET, *SETS),
    case("set", SET, "VARCHAR(50)", *SETS),
    case("set, redefined", SET, "SET('N','b','c d','a','é')", *SETS),
    case("set, redefined", SET, "SET('more','N','b','c d','a','é')", *SETS),
    case("set", SET, "SET('x','a','b','c d','N','é','more')", *SETS),
    same("bytes", "VARBINARY(400)", *BYTES),
    same("bytes", "BLOB", *BYTES),
    case("bytes", "VARBINARY(400)", "LONGBLOB", *BYTES),
    same("bytes", "BINARY(4)", NULL, "''", "'a'", "x'FFFFFFFF'", "x'61202020'", "x'61000001'"),
    case("bytes", "BINARY(4)", "VARBINARY(4)", NULL, "x'FFFFFFFF'", ("'a'", "x'61000000'")),
    case("bytes", "VARCHAR(400)", "VARBINARY(400)", *(t for t in TEXTS if t != "REPEAT('表',300)")),
    same("json", "JSON", *JSONS),
    case("json", "JSON", "LONGTEXT", *JSONS),
)  # fmt: skip


def name_of(c: Case) -> str:
    return f"{c.rule}: {c.source[:40]} - {c.target[:40]}"


@pytest.fixture(scope="module")
def way(shared_databases: Databases) -> Iterator[Road]:
    with road(shared_databases) as found:
        yield found


def create(databases: Databases, c: Case) -> None:
    databases.both("DROP TABLE IF EXISTS t, u")
    for place, (run, kind) in enumerate(((databases.source, c.source), (databases.target, c.target))):
        literals = [v if isinstance(v, str) else v[place] for v in c.values]
        rows = ",".join(f"({n},{literal})" for n, literal in enumerate(literals))
        # What a table holds that was filled long ago: 30 February, and dates with a zero part.
        run("SET SESSION sql_mode='ALLOW_INVALID_DATES'")
        run(f"CREATE TABLE t (id INT PRIMARY KEY, v {kind} NULL)", f"INSERT INTO t VALUES {rows}")


@pytest.mark.parametrize("c", CASES, ids=name_of)
def test_equal_values_give_equal_bytes_and_unlike_values_do_not(
    shared_databases: Databases, way: Road, c: Case
) -> None:
    create(shared_databases, c)
    plan = way.plan("t")
    assert not plan.not_covered
    column = plan.columns[1]
    ours, theirs = way.rows(plan)
    if column.lane is Lane.EXACT:
        assert ours == theirs
        texts = [row[1] for row in ours]
        assert len(set(texts)) == len(texts)
    else:
        for n, row in enumerate(ours):
            equal = [m for m, other in enumerate(theirs) if same_value(column, row[1], other[1])]
            assert equal == [n], (c.values[n], row[1], [theirs[m][1] for m in {n, *equal}])
    assert all((row[1] is None) == (c.values[n] == NULL) for n, row in enumerate(ours))
    found = way.run(plan)
    assert found.verdict is Verdict.MATCH, found.result.reasons
    # Every value beside the next one: each row differs, and none for another reason.
    count = len(c.values)
    shared_databases.target("CREATE TABLE u LIKE t", f"INSERT INTO u SELECT (id+1) % {count}, v FROM t")
    moved = way.verify("t", target="u")
    assert moved.verdict is Verdict.MISMATCH, moved.result.reasons
    assert [(d.key, d.kind, [x.column for x in d.columns]) for d in moved.diffs] == sorted(
        ((str(n),), DiffKind.VALUE_DIFFERS, ["v"]) for n in range(count)
    )


@pytest.mark.parametrize("c", {c.target: c for c in CASES}.values(), ids=name_of)
def test_the_storage_nodes_of_tidb_do_the_sum(shared_databases: Databases, way: Road, c: Case) -> None:
    shared_databases.both("DROP TABLE IF EXISTS t, u")
    shared_databases.source(f"CREATE TABLE t (id INT PRIMARY KEY, v {c.source})")
    shared_databases.target(f"CREATE TABLE t (id INT PRIMARY KEY, v {c.target})")
    if way.target.flavor is not Flavor.TIDB:
        pytest.skip("the target is not TiDB")
    side = way.plan("t").sides[-1].sql
    steps = way.target.query(f"EXPLAIN {checksum_sql(side, KeyRange(('1',), ('9',)))}")
    pushed = any("Agg" in (step[0] or "") and "cop" in (step[2] or "") for step in steps)
    # TiDB pushes no expression on a SET column down; such tables are summed on the TiDB node.
    assert pushed is not c.target.startswith("SET"), steps


def test_every_row_of_the_type_table_has_a_case() -> None:
    assert {rule.name for rule in TYPE_TABLE} == {c.rule for c in CASES}
