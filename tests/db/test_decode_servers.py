"""Binlog files of MySQL and MariaDB, decoded, against SELECT of the server that wrote them, and against mysqlbinlog."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from migverify.changes.charsets import COLLATIONS, SINGLE_BYTE, charset_of_collation, text_decoder
from migverify.changes.column_types import Type
from migverify.changes.decode import FIRST_SETS, OFTEN, decoder
from migverify.changes.events import EventType, file_events
from migverify.changes.model import ColumnMap, Op
from migverify.errors import ChangeError
from migverify.lab import mysql
from migverify.lab.museum import TYPE_HALLS
from tests.db.decoding import DecodedServer, decoded_mariadb, decoded_mysql, images, layout

pytestmark = pytest.mark.db

WIDE = ("int", "varchar(300)", "datetime(3)", "decimal(9,2)", "tinyint unsigned", "text", "double")


def wide_row(number: int) -> str:
    values = ("{i}", "'s{i}'", "'2020-01-01 00:00:00.5'", "-1.5", "200", "REPEAT('é',{i})", "1.5e-7")
    return ",".join("NULL" if i * number % 3 == 0 else values[i % 7].format(i=i) for i in range(300))


CHARSETS = "utf16 ucs2 utf32 utf16le gbk sjis cp932 swe7 latin1 big5 euckr ujis eucjpms gb2312 utf8mb3 koi8r cp1251 tis620 greek"
CASES: dict[str, tuple[str, list[str]]] = {
    # A year has a sign too, on MariaDB a geometry a collation: one bit off, and all behind is wrong.
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
MARIADB_CASES: dict[str, tuple[str, list[str]]] = {
    "compressed columns": (
        "v VARCHAR(50) COMPRESSED, b BLOB COMPRESSED, t TEXT CHARACTER SET latin1 COMPRESSED, z VARCHAR(300) CHARACTER SET latin1",
        ["REPEAT('ab',20),REPEAT('ab',2000),REPEAT('é',500),'é'", "'','a','','x'", "NULL,NULL,NULL,NULL"],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def on_mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DecodedServer]:
    with decoded_mysql(tmp_path_factory.mktemp("mysql")) as found:
        yield found


@pytest.fixture(scope="module")
def on_mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DecodedServer]:
    with decoded_mariadb(tmp_path_factory.mktemp("mariadb")) as found:
        yield found


# Not of the module: the order of the tests would then start a server for each change between the two.
@pytest.fixture(params=["mysql", "mariadb"])
def server(request: pytest.FixtureRequest) -> DecodedServer:
    found: DecodedServer = request.getfixturevalue(f"on_{request.param}")
    return found


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


@pytest.mark.parametrize("case", CASES)
def test_images_are_what_select_gives(server: DecodedServer, case: str) -> None:
    rounds(server, *CASES[case])


@pytest.mark.parametrize(
    ("server", "case"),
    [*(("mysql", case) for case in MYSQL_CASES), *(("mariadb", case) for case in MARIADB_CASES)],
    indirect=["server"],
)
def test_images_of_types_that_one_server_has(server: DecodedServer, case: str) -> None:
    rounds(server, *(MYSQL_CASES if server.flavor == "mysql" else MARIADB_CASES)[case])


def changes_of_json(rng: random.Random) -> str:
    """Return a few changes of a document, one in the other, as a client writes them."""
    values = ("1", "-70000", "5000000000", "1.5", "'s'", "NULL", "REPEAT('ä', 300)", "CAST('[1, {\"k\": 2}]' AS JSON)",
              "JSON_OBJECT('zz', 1, 'b', JSON_ARRAY())", "CAST(1.10 AS DECIMAL(5,2))", "TIMESTAMP'2020-01-01 00:00:00.5'")  # fmt: skip
    paths = (
        "$.a",
        "$.b",
        "$.o.x",
        "$.o.y",
        '$.o."q r"',
        "$.l[0]",
        "$.l[2]",
        "$.l[9]",
        "$.l[1].d",
        '$."é.\\"]"',
        "$.new",
        "$.o",
    )
    found = "j"
    for _ in range(rng.randint(1, 3)):
        path = "'" + rng.choice(paths).replace("\\", "\\\\") + "'"
        verb = rng.choice(("JSON_SET", "JSON_SET", "JSON_REPLACE", "JSON_REMOVE"))
        found = (
            f"{verb}({found}, {path})" if verb == "JSON_REMOVE" else f"{verb}({found}, {path}, {rng.choice(values)})"
        )
    return found


@pytest.mark.parametrize("seed", range(4))
def test_changes_of_json_values_become_the_values_that_select_gives(on_mysql: DecodedServer, seed: int) -> None:
    server, rng = on_mysql, random.Random(seed)
    document = r"""{"a": 1, "b": "x", "o": {"x": 1.5, "y": null, "q r": [1]}, "é.\\"]": true,
                    "l": [1, {"d": "e"}, [2, 3], "t"], "pad": "%s"}""" % ("p" * rng.choice((0, 500, 70_000)))
    path = server.new_file()
    server.run("DROP TABLE IF EXISTS t", "CREATE TABLE t (n INT PRIMARY KEY, s VARCHAR(300), j JSON, i INT, k JSON)",
               f"INSERT INTO t VALUES (1, 'a', '{document}', NULL, '[1, 2]'), (2, NULL, '{document}', 5, NULL)",
               "SET binlog_row_value_options = PARTIAL_JSON")  # fmt: skip
    expected = []
    for number in range(60):
        before = server.select("SELECT * FROM t ORDER BY n")
        more = rng.choice(("", f", i = {number}", ", k = JSON_SET(k, '$[0]', 7)", ", s = NULL"))
        server.run(f"UPDATE t SET j = {changes_of_json(rng)}{more} ORDER BY n")
        after = server.select("SELECT * FROM t ORDER BY n")
        expected += [image for old, new in zip(before, after, strict=True) if old != new for image in (old, new)]
    server.run("SET binlog_row_value_options = ''")
    found = server.changes(path)
    assert images(found, Op.UPDATE) == expected
    kinds = [event.type for event in file_events(path.open("rb"), path.name)]
    assert EventType.PARTIAL_UPDATE_ROWS in kinds, "nothing was logged in parts: this proves nothing"


@pytest.mark.parametrize("table", [hall.name for hall in TYPE_HALLS])
def test_the_museum(server: DecodedServer, table: str) -> None:
    hall = next(hall for hall in TYPE_HALLS if hall.name == table)
    create, inserts = hall.create_statement("source", "d"), hall.insert_statements("source", "d")
    if server.flavor == "mariadb":
        create = create.replace("utf8mb4_0900_ai_ci", "utf8mb4_nopad_bin")
    path = server.new_file()
    server.run(create, *inserts)
    found = server.changes(path)
    assert images(found, Op.INSERT) == server.select(f"SELECT * FROM `{hall.name}` ORDER BY id")
    server.run(f"DROP TABLE `{hall.name}`")


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_addresses_and_uuids_of_mariadb_are_bytes(server: DecodedServer) -> None:
    path = server.new_file()
    server.run("CREATE TABLE addresses (n INT PRIMARY KEY, u UUID, i INET6)")
    server.run("INSERT INTO addresses VALUES (1, '123e4567-e89b-12d3-a456-426655440000', '::1'), (2, NULL, '::')")
    assert images(server.changes(path), Op.INSERT) == [
        ("1", "0x123e4567e89b12d3a456426655440000", "0x" + "0" * 31 + "1"), ("2", None, "0x" + "0" * 32),
    ]  # fmt: skip


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_old_temporal_types_of_mariadb(server: DecodedServer) -> None:
    server.run("SET GLOBAL mysql56_temporal_format=OFF")
    try:
        rounds(server, "a DATETIME, b TIMESTAMP NULL, c TIME, d DATE, s VARCHAR(5)",
               ["'2020-01-02 03:04:05','2020-01-02 03:04:05','-838:59:59','2020-01-01','x'",
                "'0000-00-00','0','00:00:01','0000-00-00',NULL", "'2020-00-01',NULL,'-00:00:01','2020-02-00','y'"])  # fmt: skip
        for kind in ("DATETIME(3)", "TIME(2)", "TIMESTAMP(6) NULL"):
            path = server.new_file()
            server.run("DROP TABLE IF EXISTS t", f"CREATE TABLE t (n INT PRIMARY KEY, a {kind}, s VARCHAR(5))",
                       "INSERT INTO t VALUES (1, '2020-01-02 03:04:05.678', 'x')")  # fmt: skip
            # The table map says neither that there is a fraction nor how long it is.
            with pytest.raises(ChangeError, match="row image 1 of a rows event cannot be read"):
                images(server.changes(path), Op.INSERT)
    finally:
        server.run("SET GLOBAL mysql56_temporal_format=ON")


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
    if server.flavor == "mysql":
        rows = server.run("SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS")
    else:
        rows = server.run("SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
                          " WHERE ID IS NOT NULL")  # fmt: skip
    for number, charset in rows:
        assert charset_of_collation(int(number or b"-1")) == (charset or b"").decode()
    assert charset_of_collation(9999) == "collation-9999"


SETS = sorted(set(COLLATIONS) - {"binary", "utf8mb4", "utf8mb3", "ascii"})
UNKNOWN_TO_MARIADB = {"gb18030"}


@pytest.mark.parametrize(
    ("server", "charset"),
    [*(("mysql", name) for name in SETS), *(("mariadb", name) for name in SETS if name not in UNKNOWN_TO_MARIADB)],
    indirect=["server"],
)
def test_every_character_comes_back_as_the_server_gives_it(server: DecodedServer, charset: str) -> None:
    decode = text_decoder(charset)
    assert decode is not None
    server.run("DROP TEMPORARY TABLE IF EXISTS u", "CREATE TEMPORARY TABLE u (u VARBINARY(4))")
    points = [n for n in range(1, 0x10000) if not 0xD800 <= n < 0xE000] + list(range(0x10000, 0x110000, 997))
    for start in range(0, len(points), 10_000):
        values = ",".join(f"(x'{chr(n).encode().hex()}')" for n in points[start : start + 10_000])
        server.run(f"INSERT INTO u VALUES {values}")
    encoded = f"CONVERT(CONVERT(u USING utf8mb4) USING {charset})"
    for raw, text in server.run(f"SELECT CAST({encoded} AS BINARY), CONVERT({encoded} USING utf8mb4) FROM u"):
        assert decode(raw or b"") == (text or b"").decode()
    if charset in SINGLE_BYTE:
        stored = ",".join(f"CONVERT(_{charset} x'{n:02x}' USING utf8mb4)" for n in range(256))
        row = server.run(f"SELECT {stored}")[0]
        assert [decode(bytes((n,))) for n in range(256)] == [(text or b"").decode() for text in row]


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


def test_mysqlbinlog_prints_the_same_values(tmp_path: Path) -> None:
    with decoded_mysql(tmp_path) as server:
        program = mysql.client_command("mysqlbinlog")
        if program is None:
            pytest.skip("no mysqlbinlog")
        path = server.new_file()
        server.run(
            MIXED,
            MIXED_ROWS,
            "UPDATE mixed SET tries=tries+1, note=NULL WHERE id%3=0",
            "DELETE FROM mixed WHERE id%7=0",
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
