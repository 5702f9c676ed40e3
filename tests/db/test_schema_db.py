"""The catalogs of a real MySQL and a real TiDB: nasty names, every type, and every class of difference."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from migverify.db.session import Session, open_session
from migverify.errors import PrivilegeError
from migverify.model import Endpoint, Flavor, SchemaClass, SchemaDifference, TableDef
from migverify.sql.catalog import read_names, read_table, read_tables
from migverify.sql.quoting import quote_name, quote_path, quote_text
from migverify.tables.columns import column_pairs
from migverify.tables.pairs import find_pairs
from migverify.tables.schema import compare_tables

if TYPE_CHECKING:
    from tests.conftest import Databases

# ruff: noqa: E501  (DDL reads better unbroken)
pytestmark = pytest.mark.db

BREAKS, LOSES, COSMETIC = SchemaClass.BREAKS_COMPARISON, SchemaClass.MAY_LOSE_DATA, SchemaClass.COSMETIC
BIN = "DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"
# MySQL's names stay inside the BMP; it replaces other characters by "?".
NASTY = [
    "a`b",
    "``",
    "it's",
    'q"q',
    "back\\slash",
    "a.b",
    " lead",
    "mid dle",
    "ünï",
    "表",
    "'; DROP TABLE x; -- x",
    "%s%d",
    "#",
    "Å",
]


def _labels(labels: list[str]) -> str:
    """Labels for DDL, which takes no introducer; the connection keeps the backslash as an escape."""
    return ", ".join("'" + label.replace("\\", "\\\\").replace("'", "''") + "'" for label in labels)


@dataclass(frozen=True)
class Sides:
    """Both sessions on the fresh database of a test."""

    databases: Databases
    source: Session
    target: Session

    def create(self, source: str, target: str | None = None, name: str = "t") -> tuple[TableDef, TableDef]:
        """Create a table from its body (from the opening parenthesis) on both sides and read it back."""
        place = quote_name(name)
        drop = f"DROP TABLE IF EXISTS {place}"
        relaxed = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'"
        self.databases.source(relaxed, drop, f"CREATE TABLE {place} {source}")
        self.databases.target(relaxed, drop, f"CREATE TABLE {place} {target or source}")
        return self.read(name)

    def read(self, name: str) -> tuple[TableDef, TableDef]:
        """Read one table of both sides."""
        ours = read_table(self.source, "source", self.databases.name, name)
        theirs = read_table(self.target, "target", self.databases.name, name)
        assert ours is not None
        assert theirs is not None
        return ours, theirs

    def compare(self, source: str, target: str | None = None) -> list[SchemaDifference]:
        """Create and compare."""
        return compare_tables(*self.create(source, target))


@contextmanager
def opened(databases: Databases) -> Iterator[Sides]:
    servers = (databases.pair.source, databases.pair.target)
    names = ("source", "target")
    endpoints = [
        Endpoint(name, server.host, server.port, server.user) for name, server in zip(names, servers, strict=True)
    ]
    with open_session(endpoints[0], "") as source, open_session(endpoints[1], "") as target:
        yield Sides(databases, source, target)


@pytest.fixture
def sides(databases: Databases) -> Iterator[Sides]:
    with opened(databases) as found:
        yield found


@pytest.fixture(scope="module")
def shared_sides(shared_databases: Databases) -> Iterator[Sides]:
    with opened(shared_databases) as found:
        yield found


SIMILAR = {
    "integers": "(id INT PRIMARY KEY, a TINYINT UNSIGNED DEFAULT 5, b TINYINT(1), c SMALLINT DEFAULT -3, d MEDIUMINT UNSIGNED,"
    " e INT(11) DEFAULT 0, f BIGINT UNSIGNED DEFAULT 18446744073709551615, g INT(5) ZEROFILL, h BOOLEAN DEFAULT TRUE)",
    "numbers": "(id INT PRIMARY KEY, a DECIMAL(10,2) DEFAULT 1.00, b DECIMAL(65,30), c DECIMAL DEFAULT 0, d NUMERIC(5) UNSIGNED"
    " DEFAULT 7.0, e FLOAT DEFAULT 1.5, f FLOAT(7,4) DEFAULT 1.5, g DOUBLE DEFAULT 1e300, h REAL, i DOUBLE(20,5) UNSIGNED,"
    " j FLOAT(30), k BIT DEFAULT b'1', l BIT(5) DEFAULT b'00101', m DECIMAL(10,4) DEFAULT -0.5000, n DOUBLE DEFAULT 1e-5)",
    "moments": "(id INT PRIMARY KEY, a YEAR DEFAULT 2020, b DATE DEFAULT '2020-01-02', c DATETIME DEFAULT '2020-01-02',"
    " d DATETIME(6) DEFAULT '2020-01-02 03:04:05.100000', e TIME DEFAULT '10:00', f TIME(3) DEFAULT '10:00:00',"
    " g TIMESTAMP NULL DEFAULT NULL, h TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),"
    " i TIMESTAMP DEFAULT NOW(), j DATE DEFAULT (CURDATE()), k YEAR DEFAULT 70, l DATETIME(3) DEFAULT '0000-00-00 00:00:00')",
    "texts": "(id INT PRIMARY KEY, a CHAR(5) DEFAULT '', b VARCHAR(20) NOT NULL DEFAULT 'it''s \\\\ x', c TINYTEXT, d TEXT,"
    " e MEDIUMTEXT, f LONGTEXT, g BINARY(4) DEFAULT 'ab', h VARBINARY(9) DEFAULT 'x\\0y', i TINYBLOB, j BLOB, k LONGBLOB, l JSON,"
    " m VARCHAR(10) DEFAULT 'NULL', n VARCHAR(9) DEFAULT NULL, o CHAR(0), p CHAR(36) DEFAULT (UUID()))",
    "labels": "(id INT PRIMARY KEY, a ENUM('a','b,c','it''s','q\"','b\\\\') DEFAULT 'it''s', b SET('a','b', ' c)') DEFAULT 'a,b',"
    " c ENUM('','é','表'), d ENUM('x\\ny','b\\\\n'), e ENUM('😀') DEFAULT '😀')",
    "charsets": "(id INT PRIMARY KEY, a VARCHAR(9) CHARSET latin1 COLLATE latin1_bin DEFAULT 'é', b VARCHAR(9) CHARSET ascii"
    " COLLATE ascii_bin, c VARCHAR(9) CHARSET utf8mb3 COLLATE utf8mb3_general_ci, d VARCHAR(9) CHARSET gbk COLLATE gbk_chinese_ci,"
    " e VARCHAR(9) COLLATE utf8mb4_general_ci, f VARCHAR(9) COLLATE utf8mb4_unicode_ci, g VARCHAR(9) COLLATE utf8mb4_0900_ai_ci,"
    " h VARCHAR(9) COLLATE utf8mb4_0900_bin)",
    "generated": "(id BIGINT PRIMARY KEY AUTO_INCREMENT, a INT, b VARCHAR(30), j JSON, g1 INT AS (a + 1) VIRTUAL, g2 INT AS"
    " ((a + 1) * 2) STORED, g3 VARCHAR(50) AS (CONCAT(b, 'x', 'y''z')) STORED, g4 VARCHAR(20) AS (UPPER(SUBSTR(b, 1, 3))),"
    " g5 INT AS (IF(a > 3 AND a < 10 OR a IS NULL, 1, 0)), g6 VARCHAR(20) AS (j->>'$.a'), g7 INT AS (YEAR('2020-01-01') + a MOD 3),"
    " g8 INT AS (CASE WHEN a = 1 THEN 2 ELSE 3 END), g9 BIGINT AS (CAST(b AS UNSIGNED)), g10 INT AS (a IN (1, 2, 3)),"
    " g11 INT AS (a BETWEEN 1 AND 2), g12 CHAR(8) AS (LPAD(HEX(a), 8, '0')), g13 INT AS (NOT a), g14 INT AS (NOT (a > 1 AND b = 'x')),"
    " g15 INT AS (b NOT LIKE 'x'), g16 VARCHAR(9) AS (CAST(a AS CHAR)), g17 DATE AS (DATE_ADD('2020-01-01', INTERVAL 1 DAY)),"
    " g18 INT AS (b REGEXP 'x'), g19 BINARY(32) AS (UNHEX(SHA2(b, 256))), g20 INT AS (a IS TRUE))",
    "keys": "(id INT, a INT, b VARCHAR(100), c TEXT, PRIMARY KEY (id), UNIQUE KEY u (a, b(10)), KEY k (b), KEY k2 (c(5)),"
    " UNIQUE KEY u2 (b), KEY ke ((a + 1)), KEY kd (a DESC), KEY kl ((LOWER(b))), KEY inv (a) INVISIBLE, KEY whole (b(100)))",
}


@pytest.mark.parametrize("body", SIMILAR.values(), ids=SIMILAR.keys())
def test_one_statement_on_both_engines_differs_in_looks_at_most(shared_sides: Sides, body: str) -> None:
    found = [
        difference
        for difference in shared_sides.compare(f"{body} {BIN} COMMENT='it''s'")
        if difference.level is not COSMETIC
    ]
    assert found == []


def test_partitioned_tables(sides: Sides) -> None:
    body = f"(id INT PRIMARY KEY, v INT) {BIN} PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE)"
    ours, theirs = sides.create(body)
    assert ours.partitioned
    assert theirs.partitioned
    assert compare_tables(ours, theirs) == []
    assert [d.kind for d in sides.compare(body, f"(id INT PRIMARY KEY, v INT) {BIN}")] == ["partitioning"]


def test_nasty_names_are_read_and_paired(sides: Sides) -> None:
    for name in NASTY:
        quoted = quote_name(name)
        sides.databases.both(
            f"CREATE TABLE {quoted} ({quoted} INT PRIMARY KEY, e ENUM({_labels(NASTY)}), KEY {quoted} (e)) {BIN}"
        )
    mine = sides.databases.name
    catalogs = [
        list(read_tables(session, name, lambda database, _: database == mine))
        for session, name in ((sides.source, "source"), (sides.target, "target"))
    ]
    assert [[table.ref.table for table in catalog] for catalog in catalogs] == [sorted(NASTY)] * 2
    for found in find_pairs(
        {"source": catalogs[0]}, catalogs[1], included=lambda *_: True, route=lambda _, d, t: (d, t)
    ):
        assert found.target is not None
        assert compare_tables(found.sources[0], found.target) == []
        assert found.sources[0].columns[0].name == found.sources[0].ref.table
        assert found.sources[0].columns[1].members == found.target.columns[1].members == tuple(NASTY)


def test_a_database_with_a_nasty_name(sides: Sides) -> None:
    name = f"mv` '{uuid.uuid4().hex[:8]}.\\ 表"
    sides.databases.both(
        f"CREATE DATABASE {quote_name(name)}", f"CREATE TABLE {quote_path(name, 't')} (id INT PRIMARY KEY)"
    )
    try:
        for session in (sides.source, sides.target):
            table = read_table(session, "x", name, "t")
            assert table is not None
            assert table.ref.database == name
    finally:
        sides.databases.both(f"DROP DATABASE {quote_name(name)}")


def test_emoji_names_on_tidb(sides: Sides) -> None:
    if sides.target.flavor is not Flavor.TIDB:
        pytest.skip("the target is not TiDB")
    sides.databases.target("CREATE TABLE `😀` (`🎉` INT PRIMARY KEY, e ENUM('😀'))")
    table = read_table(sides.target, "target", sides.databases.name, "😀")
    assert table is not None
    assert [column.name for column in table.columns] == ["🎉", "e"]
    assert table.columns[1].members == ("😀",)


def test_labels_are_those_the_server_returns(sides: Sides) -> None:
    labels = ["a,b", "it's", "p\\", "", 'dq"', "\t", "%", "é", "q''q", "\\\\", ") x"]
    body = f"(id INT PRIMARY KEY AUTO_INCREMENT, e ENUM({_labels(labels)})) {BIN}"
    tables = sides.create(body)
    insert = "INSERT INTO t (e) VALUES " + ", ".join(f"({number})" for number in range(1, len(labels) + 1))
    sides.databases.both(insert)
    place = quote_path(sides.databases.name, "t")
    for session, table in zip((sides.source, sides.target), tables, strict=True):
        stored = [row[0] for row in session.query(f"SELECT e FROM {place} ORDER BY id")]
        assert list(table.columns[1].members) == stored == labels


def test_labels_with_escapes_on_mysql(sides: Sides) -> None:
    labels = ["x\ny", "b\\n", "r\r", "z\0z", "\\0"]
    sides.databases.source(f"CREATE TABLE e (e ENUM({_labels(labels)})) {BIN}")
    table = read_table(sides.source, "source", sides.databases.name, "e")
    assert table is not None
    assert list(table.columns[0].members) == labels


def test_a_table_of_a_thousand_columns(sides: Sides) -> None:
    body = "(" + ", ".join(f"c{n} INT" for n in range(1000)) + f") {BIN}"
    ours, theirs = sides.create(body)
    assert len(ours.columns) == len(theirs.columns) == 1000
    pairs, rest = column_pairs(ours, theirs)
    assert len(pairs) == 1000
    assert rest == []
    assert compare_tables(ours, theirs) == []


def test_views_and_sequences_are_listed_apart(sides: Sides) -> None:
    sides.create("(id INT PRIMARY KEY)")
    sides.databases.both("CREATE VIEW v AS SELECT 1 AS a")
    mine = sides.databases.name
    for session in (sides.source, sides.target):
        names = read_names(session, lambda database, _: database == mine)
        assert names.tables == ((mine, "t"),)
        assert [(skipped.name, skipped.kind) for skipped in names.skipped] == [("v", "view")]
    if sides.target.flavor is Flavor.TIDB:
        sides.databases.target("CREATE SEQUENCE s")
        assert [s.kind for s in read_names(sides.target, lambda d, _: d == mine).skipped] == ["sequence", "view"]


def test_many_tables_in_several_batches(sides: Sides) -> None:
    for n in range(45):
        sides.databases.source(f"CREATE TABLE t{n:02} (id INT PRIMARY KEY, v VARCHAR(9))")
    mine = sides.databases.name
    tables = list(read_tables(sides.source, "source", lambda database, _: database == mine))
    assert [table.ref.table for table in tables] == [f"t{n:02}" for n in range(45)]


def test_invisible_and_expression_parts(sides: Sides) -> None:
    sides.databases.source("CREATE TABLE i (a INT, h INT INVISIBLE, PRIMARY KEY (a), UNIQUE KEY f ((a + 1), h))")
    table = read_table(sides.source, "source", sides.databases.name, "i")
    assert table is not None
    assert [(column.name, column.invisible) for column in table.columns] == [("a", False), ("h", True)]
    assert {index.name: index.columns for index in table.indexes} == {"PRIMARY": ("a",), "f": (None, "h")}


def test_hidden_columns_of_tidb_never_show(sides: Sides) -> None:
    ours, theirs = sides.create(f"(a INT, b VARCHAR(9), KEY f ((LOWER(b)))) {BIN}")
    assert [column.name for column in theirs.columns] == ["a", "b"]
    assert theirs.indexes[0].columns == ours.indexes[0].columns == (None,)


def test_estimates_and_counters_are_fresh(sides: Sides) -> None:
    sides.create("(id INT PRIMARY KEY AUTO_INCREMENT)")
    sides.databases.both("INSERT INTO t VALUES (41)")
    ours, _ = sides.read("t")
    assert ours.auto_increment == 42
    sides.databases.source("INSERT INTO t VALUES (98)")
    assert sides.read("t")[0].auto_increment == 99


def test_auto_random(sides: Sides) -> None:
    if sides.target.flavor is not Flavor.TIDB:
        pytest.skip("the target is not TiDB")
    found = sides.compare("(id BIGINT PRIMARY KEY AUTO_INCREMENT)", "(id BIGINT PRIMARY KEY AUTO_RANDOM(5))")
    assert [(d.kind, d.target, d.level) for d in found if d.kind == "auto"] == [("auto", "auto_random(5)", COSMETIC)]


def test_column_grants_are_refused(sides: Sides) -> None:
    user, place = f"mv_{uuid.uuid4().hex[:8]}", quote_path(sides.databases.name, "t")
    sides.create("(id INT PRIMARY KEY, a INT, secret INT)")
    sides.databases.source(
        f"CREATE USER {quote_text(user)}@'%' IDENTIFIED BY 'x'",
        f"GRANT SELECT (id, a) ON {place} TO {quote_text(user)}@'%'",
    )
    server = sides.databases.pair.source
    try:
        with (
            open_session(Endpoint("source", server.host, server.port, user), "x") as session,
            pytest.raises(PrivilegeError),
        ):
            list(read_tables(session, "source", lambda *_: True))
    finally:
        sides.databases.source(f"DROP USER {quote_text(user)}@'%'")


GOLDEN: list[tuple[str, str, str, set[tuple[str, str, SchemaClass]]]] = [
    ("narrower text", "c VARCHAR(20)", "c VARCHAR(10)", {("type", "c", LOSES)}),
    ("wider text", "c VARCHAR(10)", "c TEXT", {("type", "c", COSMETIC)}),
    ("narrower integer", "c BIGINT", "c INT", {("type", "c", LOSES)}),
    ("sign", "c INT UNSIGNED", "c INT", {("type", "c", LOSES)}),
    ("fraction", "c DATETIME(6)", "c DATETIME", {("type", "c", LOSES)}),
    ("scale", "c DECIMAL(10,4)", "c DECIMAL(10,2)", {("type", "c", LOSES)}),
    (
        "charset",
        "c VARCHAR(9)",
        "c VARCHAR(9) CHARSET latin1 COLLATE latin1_bin",
        {("charset", "c", LOSES), ("collation", "c", COSMETIC)},
    ),
    (
        "old charset",
        "c VARCHAR(9) CHARSET utf8mb3 COLLATE utf8mb3_bin",
        "c VARCHAR(9)",
        {("charset", "c", COSMETIC), ("collation", "c", COSMETIC)},
    ),
    ("collation", "c VARCHAR(9) COLLATE utf8mb4_0900_ai_ci", "c VARCHAR(9)", {("collation", "c", LOSES)}),
    ("null", "c INT", "c INT NOT NULL", {("nullability", "c", LOSES)}),
    ("not null", "c INT NOT NULL", "c INT", {("nullability", "c", COSMETIC)}),
    ("default", "c INT DEFAULT 1", "c INT DEFAULT 2", {("default", "c", LOSES)}),
    ("unique", "c INT, UNIQUE KEY u (c)", "c INT", {("key-missing", "key u", LOSES)}),
    ("secondary", "c INT, KEY k (c)", "c INT", {("key-missing", "key k", COSMETIC)}),
    ("extra unique", "c INT", "c INT, UNIQUE KEY u (c)", {("key-extra", "key u", LOSES)}),
    ("labels", "c ENUM('a','b')", "c ENUM('b','a')", {("members", "c", LOSES)}),
    ("fewer labels", "c SET('a','b')", "c SET('a')", {("members", "c", LOSES)}),
    ("other labels", "c SET('a','b')", "c SET('x','b')", {("members", "c", LOSES), ("members", "c", COSMETIC)}),
    ("generated", "c INT AS (1 + 1)", "c INT", {("generated", "c", LOSES)}),
    ("expression", "c INT AS (id + 1)", "c INT AS (id + 2)", {("generated", "c", LOSES)}),
    ("stored", "c INT AS (id + 1) STORED", "c INT AS (id + 1) VIRTUAL", {("generated", "c", COSMETIC)}),
    ("on update", "c TIMESTAMP NULL ON UPDATE NOW()", "c TIMESTAMP NULL", {("on-update", "c", LOSES)}),
    ("missing", "c INT, d INT", "d INT", {("column-missing", "c", BREAKS)}),
    ("extra", "d INT", "c INT, d INT", {("column-extra", "c", BREAKS)}),
    ("order", "c INT, d INT", "d INT, c INT", {("column-order", "table", COSMETIC)}),
    ("case", "c INT", "C INT", {("column-name", "c", COSMETIC)}),
    ("no common text", "c JSON", "c INT", {("type", "c", BREAKS), ("type", "c", LOSES)}),
]


@pytest.mark.parametrize(("source", "target", "wanted"), [row[1:] for row in GOLDEN], ids=[row[0] for row in GOLDEN])
def test_each_difference_is_found_and_classed(
    shared_sides: Sides, source: str, target: str, wanted: set[tuple[str, str, SchemaClass]]
) -> None:
    found = shared_sides.compare(f"(id INT PRIMARY KEY, {source}) {BIN}", f"(id INT PRIMARY KEY, {target}) {BIN}")
    assert {(d.kind, d.where, d.level) for d in found} == wanted
