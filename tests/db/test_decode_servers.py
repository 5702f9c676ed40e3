"""Binlog files of MySQL, decoded, hold what SELECT gives on the server that wrote them, and what mysqlbinlog prints."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from migverify.changes.charsets import COLLATIONS, SINGLE_BYTE, charset_of_collation, text_decoder
from migverify.changes.columns import Type
from migverify.changes.decode import FIRST_SETS, OFTEN, decoder
from migverify.changes.model import ColumnMap, Op
from migverify.errors import ChangeError
from migverify_lab import mysql
from migverify_lab.museum import TYPE_HALLS
from tests.db.decoding import DecodedServer, decoded_mysql, images, layout

pytestmark = pytest.mark.db

WIDE = ("int", "varchar(300)", "datetime(3)", "decimal(9,2)", "tinyint unsigned", "text", "double")


def wide_row(number: int) -> str:
    values = ("{i}", "'s{i}'", "'2020-01-01 00:00:00.5'", "-1.5", "200", "REPEAT('é',{i})", "1.5e-7")
    return ",".join("NULL" if i * number % 3 == 0 else values[i % 7].format(i=i) for i in range(300))


CHARSETS = "utf16 ucs2 utf32 utf16le gbk sjis cp932 swe7 latin1 big5 euckr ujis eucjpms gb2312 utf8mb3 koi8r cp1251 tis620 greek"
CASES: dict[str, tuple[str, list[str]]] = {
    # A year has a sign too: one bit off, and all behind is wrong.
    "signs and sets behind years and geometries": (
        "y YEAR, q INT, i INT UNSIGNED, b BIT(3), d DECIMAL(5,2) UNSIGNED, g GEOMETRY, p POINT, f FLOAT UNSIGNED, u BIGINT UNSIGNED,"
        " y2 YEAR, s SMALLINT UNSIGNED, r SMALLINT, j JSON, l VARCHAR(3) CHARACTER SET latin1, e ENUM('é') CHARACTER SET latin1,"
        " k VARCHAR(3) CHARACTER SET gbk, t SET('ü','ö') CHARACTER SET latin1",
        ["2020,-1,4294967295,1,1.5,POINT(1,2),POINT(3,4),1.5,18446744073709551615,0,65535,-1,'[1]','é','é','中','ü,ö'",
         "NULL,-1,1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL"],
    ),
    "floats": ("a FLOAT, b DOUBLE", [
        f"{v},{v}" for v in (
            "1e15", "1e16", "1e17", "-1e15", "1039514241563211.8", "1e-5", "1e-14", "1e-15", "1e-16", "1.5e-15",
            "123456.5", "1234565", "1234575", "999999.5", "9999995", "3.4e38", "1e-38", "0", "-0.0", "0.1", "16777217",
            "1e-40", "123456789012345.6", "1234567890123456.7", "999999999999999", "9999999999999998", "12345678901234567",
        )
    ]),
    "character sets": (
        ", ".join(f"c_{name} VARCHAR(200) CHARACTER SET {name}" for name in CHARSETS.split()),
        [",".join(["'abc é ß 表 日本 한 Ж ก \\\\ ~ ¥ € ÿ'"] * len(CHARSETS.split()))],
    ),
    "wide characters": (
        "a VARCHAR(20) CHARACTER SET utf16, b VARCHAR(20) CHARACTER SET utf32, c CHAR(10) CHARACTER SET utf16,"
        " d CHAR(10) CHARACTER SET ucs2, e TEXT CHARACTER SET utf16, f CHAR(3) CHARACTER SET utf32,"
        " g ENUM('é','表') CHARACTER SET utf16le, h SET('é','表') CHARACTER SET utf16",
        ["'😀a','😀','😀 x','ab','😀','a','表','é,表'"],
    ),
    "binary labels": (
        "a ENUM('a','b') CHARACTER SET binary, b SET('a','b') CHARACTER SET binary, c CHAR(4) CHARACTER SET binary",
        ["'a','a,b','a'", "'','',''", "NULL,NULL,NULL"],
    ),
    "lengths of one and two bytes": (
        "a CHAR(255), b CHAR(255) CHARACTER SET latin1, c CHAR(64), d BINARY(255), e VARBINARY(256),"
        " f VARCHAR(255) CHARACTER SET latin1, g VARCHAR(256) CHARACTER SET latin1, h VARCHAR(63), i VARCHAR(64),"
        " j CHAR(200) CHARACTER SET utf16, k CHAR(255) CHARACTER SET utf32",
        [",".join(["'x'"] * 11), ",".join(["REPEAT('y',60)"] * 11), ",".join(["''"] * 11)],
    ),
    "spaces at the end": (
        "a CHAR(5), b CHAR(5) CHARACTER SET binary, c VARCHAR(5), d CHAR(5) CHARACTER SET ucs2, e BINARY(5)",
        ["'a  ','a  ','a  ','a  ','a  '"],
    ),
    "many labels": (
        "e ENUM({}), s SET({})".format(",".join(f"'l{i}'" for i in range(300)), ",".join(f"'m{i}'" for i in range(64))),
        ["'l299','m0,m63,m5'", "'l0',''", "0,NULL"],
    ),
    "moments": (
        "a TIMESTAMP NULL, b TIMESTAMP(1) NULL, c TIMESTAMP(3) NULL, d TIMESTAMP(6) NULL, e DATETIME(5), f TIME(5), g TIME(2)",
        ["0,0,0,0,0,0,0", "'1970-01-01 00:00:01','1970-01-01 00:00:01.9','2038-01-19 03:14:07.999',"
         "'2038-01-19 03:14:07.999999','9999-12-31 23:59:59.99999','-838:59:58.99999','-00:00:00.01'"],
    ),
    "decimals": (
        "a DECIMAL(65,0), b DECIMAL(30,30), c DECIMAL(10,1), d DECIMAL(9,9), e DECIMAL(18,9), f DECIMAL(27,9),"
        " g DECIMAL(27,18), h DECIMAL(1,1)",
        ["-0,-0.0,-0.0,-0.000000001,-1.5,123456789012345678.123456789,-123456789.123456789123456789,-0.9",
         f"{'9' * 65},0.1,1,1,1,1,1,0.1", "-1,-0.1,-0.04,-0.1,-0.1,-0.1,-0.1,0"],
    ),
    "generated columns": ("a INT, v INT AS (a+1) VIRTUAL, s INT AS (a+2) STORED, KEY(v)", ["1,DEFAULT,DEFAULT"]),
    # More sets of NULLs than are compiled at once, so the function for any of them is used too.
    "300 columns": (
        ", ".join(f"c{i} {WIDE[i % 7]}" for i in range(300)), [wide_row(n) for n in range(1, FIRST_SETS + 5)]
    ),
}  # fmt: skip
MYSQL_CASES: dict[str, tuple[str, list[str]]] = {
    "a vector before a text": (
        "v VECTOR(3), s VARCHAR(10) CHARACTER SET latin1, w VECTOR, k VARCHAR(3) CHARACTER SET gbk",
        ["STRING_TO_VECTOR('[1,2,3]'),'é',NULL,'中'"],
    ),
    "functional keys": ("a INT, j JSON, KEY((a+1)), KEY((CAST(j->'$[*]' AS UNSIGNED ARRAY)))", ["1,'[1,2]'"]),
    "gb18030": ("a VARCHAR(20) CHARACTER SET gb18030", ["'😀é表𠮷ÿ'", "_utf8mb4 x'EE9F87'"]),
    "JSON from SQL": ("j JSON", [
        "JSON_ARRAY(CAST(REPEAT('x', 300) AS BINARY))", "JSON_OBJECT('y', CAST('2020' AS YEAR))", "CAST(b'1' AS JSON)",
        "JSON_ARRAY(POINT(1,2))", "JSON_ARRAY(CAST(1.1 AS FLOAT))", "JSON_ARRAY(CAST(1 AS DOUBLE), 1e15, 1e16, -0e0)",
        "JSON_ARRAY(TIMESTAMP'2020-01-01 00:00:00', TIME'-00:00:01.5', DATE'0000-00-00')",
        "JSON_ARRAY(CAST('9.99' AS DECIMAL(5,2)), CAST(-0.00 AS DECIMAL(3,2)))", "JSON_ARRAY(TRUE, FALSE, NULL)",
        r"JSON_ARRAY('\u007f\b\f/')", "JSON_OBJECT('a', JSON_OBJECT('b', JSON_ARRAY(REPEAT('z', 70000), 1)))",
    ]),
}  # fmt: skip
EDGES: dict[str, tuple[str, list[str]]] = {
    "integers": ("a TINYINT, b TINYINT UNSIGNED, c SMALLINT, d SMALLINT UNSIGNED, e MEDIUMINT, f MEDIUMINT UNSIGNED, g INT,"
                 " h INT UNSIGNED, i BIGINT, j BIGINT UNSIGNED, k BOOL",
                 ["(-128,255,-32768,65535,-8388608,16777215,-2147483648,4294967295,-9223372036854775808,"
                  "18446744073709551615,1)", "(127,0,32767,0,8388607,0,2147483647,0,9223372036854775807,0,0)",
                  "(NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL)", "(-1,1,-1,1,-1,1,-1,1,-1,1,NULL)"]),
    "decimals": ("a DECIMAL(65,30), b DECIMAL(5,5), c DECIMAL(10,0), d DECIMAL(18,9), e DECIMAL(1,0), f DECIMAL(20,10)",
                 ["(12345678901234567890123456789012345.123456789012345678901234567890,0.12345,-9999999999,-0.000000001,-9,"
                  "-1234567890.0987654321)",
                  "(-99999999999999999999999999999999999.999999999999999999999999999999,-0.99999,0,999999999.999999999,0,0)",
                  "(0,0,1,1.5,9,0.0000000001)", "(-0.000000000000000000000000000001,-0.00001,-1,-1,NULL,-1)"]),
    "floats": ("a FLOAT, b DOUBLE, c FLOAT UNSIGNED, d DOUBLE",
               ["(1.1,1.1,16777216,1e300)", "(-0.0,-0.0,0,1e15)", "(3.4028234e38,1.7976931348623157e308,1e-38,123456789012345678)",
                "(1e-7,1.5e-7,0.1,0.1)", "(999999,999999999999999,1000000,1e16)", "(123456.7,0.30000000000000004,1e20,1e22)"]),
    "moments": ("a DATE, b DATETIME, c DATETIME(6), d TIMESTAMP NULL, e TIMESTAMP(6) NULL, f TIME, g TIME(6), h YEAR,"
                " i DATETIME(1), j DATETIME(3), k TIMESTAMP(3) NULL, l TIME(1), m TIME(4), o TIME(3)",
                ["('2020-02-29','2020-02-29 23:59:59','9999-12-31 23:59:59.999999','2038-01-19 03:14:07',"
                 "'1970-01-01 00:00:01.000001','838:59:59','838:59:58.999999',2155,'2020-01-01 00:00:00.9',"
                 "'2020-01-01 00:00:00.001','2020-01-01 00:00:00.999','-00:00:00.5','-12:34:56.7891','-00:00:00.001')",
                 "('0000-00-00','0000-00-00 00:00:00','0000-00-00 00:00:00','0000-00-00 00:00:00',"
                 "'0000-00-00 00:00:00','-838:59:59','-12:34:56.789',0,'0000-00-00','0000-00-00','0000-00-00','00:00','00:00',"
                 "'-838:59:59')",
                 "('2020-00-00','2020-12-00 01:02:03','2020-00-31 00:00:00.5',NULL,NULL,'-00:00:01','-00:00:00.000001',1901,"
                 "NULL,NULL,NULL,NULL,'00:00:00.0001','11:12:13.987')"]),
    "texts": ("a CHAR(10), b VARCHAR(300), c TINYTEXT, d TEXT, e MEDIUMTEXT, f LONGTEXT, g CHAR(200)",
              ["('abc','',REPEAT('é',100),REPEAT('日',20000),'🙂','','x')", "('','a\\nb\\\\c\\'\"','','','','',REPEAT('ü',200))",
               "('é🙂',REPEAT('x',300),NULL,NULL,REPEAT('m',70000),REPEAT('l',70000),NULL)"]),
    "bytes": ("a BINARY(8), b VARBINARY(300), c TINYBLOB, d BLOB, e MEDIUMBLOB, f LONGBLOB, g BINARY(1)",
              ["(x'0102000000000000','',x'00',x'FF00',REPEAT(x'80',70000),'',x'00')",
               "(x'',x'000000',NULL,NULL,NULL,NULL,NULL)", "(x'2020202020202020',REPEAT(x'20',300),'','','','','a')"]),
    "labels": ("a ENUM('x','é','a,b',''), b SET('a','b','c d','é'), c ENUM('latin','é') CHARACTER SET latin1,"
               " d SET('é','ü') CHARACTER SET latin1",
               ["('é','a,c d','é','é,ü')", "('','','latin','')", "(0,'é',NULL,NULL)", "('a,b','a,b,c d,é','latin','ü')"]),
    "bits": ("a BIT(1), b BIT(10), c BIT(64), d BIT(8), e BIT(9)",
             ["(1,513,18446744073709551615,255,256)", "(0,0,0,0,1)", "(NULL,1,9223372036854775808,NULL,511)"]),
    "spatial": ("a POINT, b GEOMETRY", ["(ST_GeomFromText('POINT(1 2)'), ST_GeomFromText('LINESTRING(0 0,1 1)'))", "(NULL,NULL)"]),
    "vectors": ("a VECTOR(3), b INT", ["(STRING_TO_VECTOR('[1,2,3.5]'),7)", "(NULL,8)"]),
}  # fmt: skip
JSONS = [
    "null", "true", "false", "0", "-1", "65535", "-32768", "2147483647", "4294967295", "-9223372036854775808",
    "18446744073709551615", "1.5", "1.0", "1e300", "-0.0", "1e15", "1e16", "1e-7", "123456789.125", '""', '"é🙂"', "[]", "{}",
    r'"a\"b\\c\n\t\u0001\u001f/"', '{"b":1,"aa":2,"a":3}', '[1,[2,[3,{"k":[null,true]}]]]', '{"":{"":[]}}',
]  # fmt: skip
JSON_SQL = [
    "CAST(CAST('12.30' AS DECIMAL(10,2)) AS JSON)", "CAST(CAST('2020-01-02' AS DATE) AS JSON)",
    "CAST(CAST('2020-01-02 03:04:05.678' AS DATETIME(6)) AS JSON)", "CAST(CAST('-12:34:56.789' AS TIME(6)) AS JSON)",
    "CAST(CAST('11:12:13' AS TIME) AS JSON)", "CAST(x'00FF' AS JSON)", "CAST(b'101' AS JSON)",
    "JSON_OBJECT('k', CAST(REPEAT('x', 200) AS BINARY))", "JSON_ARRAY(CAST(-1.5 AS DECIMAL(65,30)), CAST(0 AS DECIMAL(3,3)))",
    "JSON_ARRAY(REPEAT('y', 70000), REPEAT('z', 40000), 1, 70000, 5000000000)",
]  # fmt: skip
MYSQL_CASES |= {name: (columns, [row[1:-1] for row in rows]) for name, (columns, rows) in EDGES.items()}
MYSQL_CASES["JSON"] = (
    "j JSON",
    [*("'" + j.replace("\\", "\\\\").replace("'", "''") + "'" for j in JSONS), *JSON_SQL, "NULL"],
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DecodedServer]:
    with decoded_mysql(tmp_path_factory.mktemp("mysql")) as found:
        yield found


def rounds(server: DecodedServer, columns: str, rows: list[str]) -> None:
    """Insert, update and delete; images of all three against SELECT."""
    path = server.new_file()
    server.run("DROP TABLE IF EXISTS t", f"CREATE TABLE t (n INT PRIMARY KEY, {columns})")
    server.run(*(f"INSERT INTO t VALUES ({n},{row})" for n, row in enumerate(rows)))
    wanted = server.select("SELECT * FROM t ORDER BY n")
    server.run("UPDATE t SET n=n+1000 ORDER BY n", "DELETE FROM t ORDER BY n")
    found = server.changes(path)
    moved = [(str(int(row[0] or 0) + 1000), *row[1:]) for row in wanted]
    assert images(found, Op.INSERT) == wanted
    assert images(found, Op.UPDATE) == [image for pair in zip(wanted, moved, strict=True) for image in pair]
    assert images(found, Op.DELETE) == moved


@pytest.mark.parametrize("case", CASES | MYSQL_CASES)
def test_images_are_what_select_gives(server: DecodedServer, case: str) -> None:
    rounds(server, *(CASES | MYSQL_CASES)[case])


def test_the_type_corpus(server: DecodedServer) -> None:
    for hall in TYPE_HALLS:
        path = server.new_file()
        server.run(hall.create_statement("source", "d"), *hall.insert_statements("source", "d"))
        found = server.changes(path)
        assert images(found, Op.INSERT) == server.select(f"SELECT * FROM `{hall.name}` ORDER BY id"), hall.name


def test_a_partial_update_of_json_is_refused(server: DecodedServer) -> None:
    path = server.new_file()
    server.run("CREATE TABLE partial (n INT PRIMARY KEY, j JSON)", "INSERT INTO partial VALUES (1, '[1, 2, 3]')",
               "SET binlog_row_value_options = PARTIAL_JSON", "UPDATE partial SET j = JSON_SET(j, '$[0]', 7)",
               "SET binlog_row_value_options = ''")  # fmt: skip
    with pytest.raises(ChangeError, match="parts of JSON values"):
        images(server.changes(path), Op.UPDATE)


def test_layouts_follow_instant_changes(server: DecodedServer) -> None:
    path = server.new_file()
    server.run(
        "CREATE TABLE grown (n INT PRIMARY KEY, a INT NOT NULL)", "INSERT INTO grown VALUES (1, 1)",
        "ALTER TABLE grown ADD b VARCHAR(5) NOT NULL DEFAULT 'x' FIRST, ALGORITHM=INSTANT",
        "INSERT INTO grown VALUES ('y', 2, 2)", "UPDATE grown SET a=3",
        "ALTER TABLE grown DROP COLUMN a, ALGORITHM=INSTANT", "DELETE FROM grown",
    )  # fmt: skip
    found = server.changes(path)
    assert images(found, Op.INSERT) == [("1", "1"), ("y", "2", "2")]
    assert images(found, Op.UPDATE) == [("x", "1", "1"), ("x", "1", "3"), ("y", "2", "2"), ("y", "2", "3")]
    assert images(found, Op.DELETE) == [("x", "1"), ("y", "2")]
    assert [c.name for c in layout(found).columns] == ["n", "a"]


def test_a_layout_knows_its_key(server: DecodedServer) -> None:
    path = server.new_file()
    server.run("CREATE TABLE keyed (a INT, b VARCHAR(30), c INT, PRIMARY KEY (c, b(5)))",
               "INSERT INTO keyed VALUES (1, 'b', 2)")  # fmt: skip
    assert layout(server.changes(path)).key == (2, 1)


def test_metadata_that_is_not_full_is_refused(server: DecodedServer) -> None:
    path = server.new_file()
    server.run("SET GLOBAL binlog_row_metadata=MINIMAL", "CREATE TABLE minimal (a INT, b INT)")
    try:
        server.run("INSERT INTO minimal VALUES (1, 2)")
    finally:
        server.run("SET GLOBAL binlog_row_metadata=FULL")
    with pytest.raises(ChangeError, match=r"d\.minimal.*\n.*binlog_row_metadata=FULL"):
        server.changes(path)


def test_many_rows_of_few_sets_of_nulls(server: DecodedServer) -> None:
    """Sets of NULLs that occur often get a function of their own after the first ones; texts stay the same."""
    path = server.new_file()
    server.run("CREATE TABLE nulls (n INT PRIMARY KEY, a INT, b VARCHAR(9), c DOUBLE, d DECIMAL(9,3), e DATETIME(6))")
    count = OFTEN * 40
    rows = [
        f"({n},{','.join('NULL' if n >> bit & 1 else value for bit, value in enumerate(values))})"
        for n in range(count)
        for values in [(str(n), f"'t{n}'", f"{n}.5", f"-{n}.125", "'2020-01-01 00:00:00.000001'")]
    ]
    for start in range(0, count, 1000):
        server.run(f"INSERT INTO nulls VALUES {','.join(rows[start : start + 1000])}")
    found = server.changes(path)
    assert images(found, Op.INSERT) == server.select("SELECT * FROM nulls ORDER BY n")
    ids = [texts for event in found for texts in decoder(event.table, ["n"]).texts(event.images)]
    assert ids == [(str(n),) for n in range(count)]


# Character sets: data/charsets.json and data/multi_byte.json against the server.


def test_collations_are_those_of_the_server(server: DecodedServer) -> None:
    for number, charset in server.run("SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS"):
        assert charset_of_collation(int(number or b"-1")) == (charset or b"").decode()
    assert charset_of_collation(9999) == "collation-9999"


def test_every_character_comes_back_as_the_server_gives_it(server: DecodedServer) -> None:
    points = [n for n in range(1, 0x10000) if not 0xD800 <= n < 0xE000] + list(range(0x10000, 0x110000, 997))
    server.run("CREATE TEMPORARY TABLE u (u VARBINARY(4))")
    for start in range(0, len(points), 10_000):
        values = ",".join(f"(x'{chr(n).encode().hex()}')" for n in points[start : start + 10_000])
        server.run(f"INSERT INTO u VALUES {values}")
    for charset in sorted(set(COLLATIONS) - {"binary", "utf8mb4", "utf8mb3", "ascii"}):
        decode = text_decoder(charset)
        assert decode is not None, charset
        if charset in SINGLE_BYTE:
            stored = ",".join(f"CONVERT(_{charset} x'{n:02x}' USING utf8mb4)" for n in range(256))
            row = server.run(f"SELECT {stored}")[0]
            assert [decode(bytes((n,))) for n in range(256)] == [(text or b"").decode() for text in row], charset
            continue
        encoded = f"CONVERT(CONVERT(u USING utf8mb4) USING {charset})"
        for raw, text in server.run(f"SELECT CAST({encoded} AS BINARY), CONVERT({encoded} USING utf8mb4) FROM u"):
            assert decode(raw or b"") == (text or b"").decode(), charset


# An independent second decoder.

MIXED = """CREATE TABLE mixed (id BIGINT UNSIGNED PRIMARY KEY, account BIGINT, amount DECIMAL(18,4), currency CHAR(3),
  state ENUM('new','settled','failed'), created DATETIME(6), changed TIMESTAMP(6) NULL, note VARCHAR(120) NULL,
  token BINARY(16), tries INT UNSIGNED, rate DOUBLE NULL, flag TINYINT(1), day DATE, clock TIME(3), y YEAR,
  small SMALLINT, medium MEDIUMINT UNSIGNED, bits BIT(10), tags SET('a','b','c'), body TEXT, raw BLOB, j JSON)"""
MIXED_ROWS = """INSERT INTO mixed WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 400)
  SELECT i, i * -7919, (i - 200) / 7, ELT(1 + i % 3, 'EUR', 'JPY', 'USD'), 1 + i % 3,
  TIMESTAMP('2026-01-01') + INTERVAL i * 977 MICROSECOND, TIMESTAMP('2026-02-01') + INTERVAL i MICROSECOND,
  IF(i % 5 = 0, NULL, REPEAT('n', i % 90)), LEFT(UNHEX(SHA2(i, 256)), 16), i * 10000000, IF(i % 11 = 0, NULL, i / 3),
  i % 2, DATE('2020-01-01') + INTERVAL i DAY, SEC_TO_TIME(i - 200.125), 1901 + i % 200, i - 200, i * 40000, i, i % 8,
  REPEAT('é', i), REPEAT(CHAR(i), 3), JSON_OBJECT('k', i, 'a', JSON_ARRAY(i / 4, 'x')) FROM n"""


def test_mysqlbinlog_prints_the_same_values(server: DecodedServer) -> None:
    program = mysql.client_command("mysqlbinlog")
    if program is None:
        pytest.skip("no mysqlbinlog")
    path = server.new_file()
    server.run(
        MIXED, MIXED_ROWS, "UPDATE mixed SET tries=tries+1, note=NULL WHERE id%3=0", "DELETE FROM mixed WHERE id%7=0"
    )
    found = server.changes(path)
    done = subprocess.run([*program, "--no-defaults", "-v", "--base64-output=DECODE-ROWS", str(path)],
                          capture_output=True, check=True, timeout=60)  # fmt: skip
    ours = [image for op in (Op.INSERT, Op.UPDATE, Op.DELETE) for image in images(found, op)]
    theirs = printed_images(done.stdout.decode("latin-1"))
    assert len(ours) == len(theirs) > 500
    columns = layout(found).columns
    for mine, yours in zip(ours, theirs, strict=True):
        for column, text, printed in zip(columns, mine, yours, strict=True):
            assert as_printed(column, text, printed), (column, text, printed)


def printed_images(text: str) -> list[list[str]]:
    """Values of each image that ``mysqlbinlog -v`` prints: bytes above 0x7f as they are, so the text is latin-1."""
    found: list[list[str]] = []
    for line in text.split("\n"):
        if line in ("### WHERE", "### SET"):
            found.append([])
        elif match := re.match(r"###   @\d+=(.*)", line):
            found[-1].append(match[1])
    return found


def as_printed(column: ColumnMap, text: str | None, printed: str) -> bool:
    """Whether a text is the value that mysqlbinlog printed in its own way."""
    if text is None:
        return printed == "NULL"
    kind, quoted = column.type_code, printed[1:-1]
    if kind in (Type.TINY, Type.SHORT, Type.INT24, Type.LONG, Type.LONGLONG):
        signed, _, unsigned = printed.partition(" ")
        return text == (unsigned[1:-1] if unsigned and column.unsigned else signed)
    if kind == Type.ENUM:
        return text == column.labels[int(printed) - 1]
    if kind == Type.SET:
        return text == ",".join(label for n, label in enumerate(column.labels) if int(printed[2:-1], 2) >> n & 1)
    if kind == Type.TIMESTAMP:
        seconds, _, part = printed.partition(".")
        return text == f"{datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%d %H:%M:%S}.{part}"
    if kind == Type.DOUBLE:
        return float(text) == float(printed)
    if kind == Type.BIT:
        return text == str(int(printed[2:-1], 2))
    if kind == Type.JSON:
        return bool(json.loads(text) == json.loads(unescaped(quoted).decode()))
    if kind in (Type.NEWDECIMAL, Type.YEAR):
        return text == printed
    if column.charset == "binary":
        wanted = unescaped(quoted)
        return bytes.fromhex(text[2:]) == (wanted.ljust(column.meta, b"\0") if kind == Type.STRING else wanted)
    if kind == Type.DATE:
        return text == quoted.replace(":", "-")
    return text.encode() == unescaped(quoted)


ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f", b"v": b"\v", b"a": b"\a", b"0": b"\0"}


def unescaped(printed: str) -> bytes:
    """Bytes of a string that mysqlbinlog printed: ``\\x01`` or ``\\n`` for what cannot be shown."""
    return re.sub(
        rb"\\x([0-9a-fA-F]{2})|\\(.)",
        lambda m: bytes.fromhex(m[1].decode()) if m[1] else ESCAPED.get(m[2], m[2]),
        printed.encode("latin-1"),
        flags=re.DOTALL,
    )
