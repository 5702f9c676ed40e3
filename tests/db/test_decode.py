"""Decoded row images against SELECT of the same server: every type, every edge value, before and after images."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

import pytest

from migverify.changes.charsets import text_decoder
from migverify.changes.decode import decoder
from migverify.changes.model import Op, Position, Rows
from migverify.changes.server import read_server, source_state
from migverify.db.session import open_session
from migverify.lab.servers import LabServer
from migverify.model import Endpoint
from migverify.sql.quoting import quote_name, quote_text
from tests.conftest import Databases

pytestmark = pytest.mark.db


def endpoint(server: LabServer) -> Endpoint:
    return Endpoint("source", server.host, server.port, server.user)


def here(server: LabServer) -> Position:
    with open_session(endpoint(server), None) as session:
        return source_state(session).end


def events(server: LabServer, database: str, since: Position) -> Iterator[Rows]:
    for item in read_server(endpoint(server), None, since, follow=False):
        if isinstance(item, Rows) and item.table.database == database:
            yield item


def select(databases: Databases, table: str, columns: Sequence[str]) -> list[tuple[str | None, ...]]:
    """The rows as the server's own text; binary columns as 0x and hex, as the decoder gives them; BIT as a number."""
    with open_session(endpoint(databases.pair.source), None) as session:
        kinds = dict(
            session.query(
                "SELECT COLUMN_NAME, LOWER(DATA_TYPE) FROM information_schema.COLUMNS "
                f"WHERE TABLE_SCHEMA='{databases.name}' AND TABLE_NAME={quote_text(table)}"
            )
        )
        cast = ("CAST({} AS UNSIGNED)".format if kinds[c] == "bit" else str for c in columns)
        asked = ",".join(form(quote_name(c)) for form, c in zip(cast, columns, strict=True))
        rows = session.query_bytes(f"SELECT {asked} FROM `{databases.name}`.{quote_name(table)}")
    binary = {c for c, kind in kinds.items() if kind in BINARY_NAMES}
    return [
        tuple(
            None if v is None else "0x" + v.hex() if c in binary else v.decode("utf-8")
            for c, v in zip(columns, row, strict=True)
        )
        for row in rows
    ]


BINARY_NAMES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "geometry", "point",
                "polygon", "linestring", "vector", "geomcollection", "multipoint"}  # fmt: skip


def images(found: Sequence[Rows], op: Op) -> list[tuple[str | None, ...]]:
    return [texts for event in found if event.op is op for texts in decoder(event.table).texts(event.images)]


CASES = {
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


@pytest.mark.parametrize("case", CASES)
def test_images_are_what_select_gives(databases: Databases, case: str) -> None:
    columns, rows = CASES[case]
    _round(
        databases, f"CREATE TABLE t (n INT PRIMARY KEY, {columns})", [f"({n},{row[1:]}" for n, row in enumerate(rows)]
    )


def test_json_images_are_what_select_gives(databases: Databases) -> None:
    quoted = ["'" + j.replace("\\", "\\\\").replace("'", "''") + "'" for j in JSONS]
    rows = [f"({n},{sql})" for n, sql in enumerate([*quoted, *JSON_SQL, "NULL"])]
    _round(databases, "CREATE TABLE t (n INT PRIMARY KEY, j JSON)", rows)


def _round(databases: Databases, create: str, rows: Sequence[str]) -> None:
    source = databases.pair.source
    databases.source("SET sql_mode='ALLOW_INVALID_DATES'", "SET time_zone='+00:00'", create)
    since = here(source)
    databases.source(*(f"INSERT INTO t VALUES {row}" for row in rows))
    names = [str(row[0]) for row in databases.source("SHOW COLUMNS FROM t")]
    wanted = select(databases, "t", names)
    databases.source("UPDATE t SET n=n+1000 ORDER BY n", "DELETE FROM t ORDER BY n")
    found = list(events(source, databases.name, since))
    assert images(found, Op.INSERT) == wanted
    moved = [(str(int(row[0] or 0) + 1000), *row[1:]) for row in wanted]
    updated = images(found, Op.UPDATE)
    assert updated[0::2] == wanted
    assert updated[1::2] == moved
    assert images(found, Op.DELETE) == moved
    # Any choice of columns, in any order, gives the same texts.
    rng = random.Random(1)
    for event in found:
        whole = decoder(event.table).texts(event.images)
        some = rng.sample(names, rng.randint(1, len(names)))
        places = [names.index(name) for name in some]
        assert decoder(event.table, some).texts(event.images) == [tuple(row[p] for p in places) for row in whole]


def test_every_table_of_the_museum_is_read_as_select_gives_it(databases: Databases) -> None:
    from migverify.lab.museum_loader import load

    since = here(databases.pair.source)
    load(databases.pair, databases.name, (), False, lambda _: None)
    found: dict[str, list[Rows]] = {}
    for event in events(databases.pair.source, databases.name, since):
        found.setdefault(event.table.table, []).append(event)
    assert len(found) > 50
    for table, rows in found.items():
        names = [c.name for c in rows[0].table.columns]
        assert sorted(images(rows, Op.INSERT), key=str) == sorted(select(databases, table, names), key=str), table


def test_every_character_of_every_set(databases: Databases) -> None:
    with open_session(endpoint(databases.pair.source), None) as session:
        sets = [
            str(row[0]) for row in session.query("SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS")
        ]
        texts = ["".join(map(chr, range(a, b))) for a, b in itertools.pairwise([0x20, 0x180, 0x400, 0x600])]
        texts += [
            "日本語テキスト",
            "한국어",
            "中文字符測試",
            "ｱｲｳｴｵ",
            "\u20ac\u2018\u2019\u201c\u201d\u2013",
            "¥~\\",
            "🙂",
        ]
        for charset in sets:
            if charset == "binary":
                continue
            decode = text_decoder(charset)
            assert decode is not None, charset
            for text in texts:
                sql = f"SELECT CONVERT(_utf8mb4 x'{text.encode().hex()}' USING {charset})"
                rows = session.query(f"SELECT HEX(c), CONVERT(c USING utf8mb4) FROM ({sql} AS c) AS t")
                assert decode(bytes.fromhex(rows[0][0] or "")) == rows[0][1], (charset, text)
