# ruff: noqa: E501  (tables of SQL literals)
"""Relations of rules, read and joined on real servers: what was planted comes back, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from migverify.errors import ConfigError, IncompleteReadError, ReadError
from migverify.model import Endpoint
from migverify.recon.build import Built, drilled
from migverify.recon.describe import Describer
from migverify.recon.fields import Money
from migverify.recon.local import LocalEngine
from migverify.recon.model import ChangesPart, Dataset, Part, QueryPart, RulePlace, TablePart, Window
from migverify.recon.relation import Pairing, Totals
from migverify.recon.rule import RuleSet, build
from migverify_lab.servers import LabServer
from tests.conftest import Databases
from tests.db.binlog_server import SourceServer, binlog_server
from tests.rule_fakes import rule_of

pytestmark = pytest.mark.db
PLACE = RulePlace("rules.yaml", 7)


def endpoint(name: str, server: LabServer) -> Endpoint:
    return Endpoint(name, server.host, server.port, server.user, connections=3)


class Desk:
    """Builds and joins rules over the pair."""

    def __init__(self, endpoints: dict[str, Endpoint], folder: Path) -> None:
        self.endpoints = endpoints
        self.folder = folder
        self.engine = LocalEngine(endpoints, {}, folder=folder, retry_seconds=0.0)
        self.describe = Describer(endpoints, {})

    def build(
        self, kind: str, source: Dataset, target: Dataset | None = None, window: Window | None = None, **fields: Any
    ) -> Built:
        rule = rule_of(kind, source.name, target.name if target else None, **fields)
        datasets = {d.name: d for d in (source, target) if d is not None}
        return build(rule, RuleSet("rules.yaml", (rule,), datasets, {}, (), "x"), window, self.describe, {})

    def join(self, built: Built) -> tuple[list[Pairing], Totals]:
        joined = self.engine.join(built.source, built.target, built.keep)
        found = [pairing for batch in joined for pairing in batch]
        assert not list(self.folder.iterdir()), "temporary files are left"
        assert joined.snapshots or not built.source.reads
        return sorted(found, key=lambda p: str(p.key)), joined.totals

    def check(self, built: Built) -> list[str]:
        answers = [(c, self.engine.query(c.endpoint, c.sql, 1)[1][0][0]) for c in built.checks]
        return [c.message.format(number) for c, number in answers if number != "0"]


@pytest.fixture
def desk(databases: Databases, tmp_path: Path) -> Desk:
    folder = tmp_path / "spill"
    folder.mkdir()
    pair = databases.pair
    return Desk({"source": endpoint("source", pair.source), "target": endpoint("target", pair.target)}, folder)


def table(
    databases: Databases, name: str, of: str = "source", *, key: tuple[str, ...] = ("id",), **fields: Any
) -> Dataset:
    part = TablePart(of, databases.name, name, fields.pop("where", ""), fields.pop("shard", ""))
    return Dataset(f"{of}_{name}", (part,), PLACE, key=key, **fields)


def query(
    databases: Databases, sql: str, of: str = "source", *, key: tuple[str, ...] = ("id",), **fields: Any
) -> Dataset:
    return Dataset(
        f"{of}_query", (QueryPart(of, sql.replace("DB.", f"`{databases.name}`.")),), PLACE, key=key, **fields
    )


ALL_TYPES = """CREATE TABLE t (id BIGINT PRIMARY KEY, ti TINYINT, su SMALLINT UNSIGNED, bu BIGINT UNSIGNED,
    zf INT(6) UNSIGNED ZEROFILL, d DECIMAL(20,4), dw DECIMAL(60,25), du DECIMAL(10,2) UNSIGNED, f FLOAT, db DOUBLE,
    dt DATE, dm DATETIME(6), d0 DATETIME, ts TIMESTAMP(3) NULL, tm TIME(2), y YEAR, c CHAR(5),
    vc VARCHAR(20), tx TEXT, e ENUM('a','b,c'), s SET('x','y'), b BINARY(3), vb VARBINARY(9), bl BLOB, bi BIT(10), j JSON)"""
ROWS = (
    "(1, -128, 65535, 18446744073709551615, 42, 1.5000, 1.5, 0.01, 1.5, 1e300, '2026-01-31', '2026-01-31 12:00:00.000001',"
    " '2026-01-31 12:00:00', '2026-01-31 12:00:00.5', '-01:02:03.25', 2026, 'c', 'naïve, \\'x\\'', '😀,', 'b,c', 'x,y',"
    " x'000102', x'ff', x'2c', 513, '{\"b\": 1.0, \"a\": [1, null]}')",
    "(2" + ", NULL" * 25 + ")",
    "(3, 0, 0, 0, 0, 0, 0, 0, 0, 0, '0000-00-00', '0000-00-00', '0000-00-00', '2026-01-31', 0, 0, '', '', '', 'a', '',"
    " '', '', '', 0, 'null')",
)


def fill(databases: Databases, *rows: str) -> None:
    databases.both("SET sql_mode='ALLOW_INVALID_DATES'", ALL_TYPES, f"INSERT INTO t VALUES {', '.join(rows)}")


def test_rows_of_all_types_agree_as_tables_and_as_queries_and_one_value_of_each_type_is_seen(
    databases: Databases, desk: Desk
) -> None:
    fill(databases, *ROWS)
    tables = [table(databases, "t", of) for of in ("source", "target")]
    queries = [query(databases, "SELECT * FROM DB.t", of) for of in ("source", "target")]
    for source, target in ((tables[0], tables[1]), (queries[0], queries[1]), (tables[0], queries[1])):
        built = desk.build("same_rows", source, target)
        found, totals = desk.join(built)
        # The texts of JSON may differ for one value; the kinds compare it.
        different = [
            (p.key, c.name, a, b) for p in found if p.source and p.target
            for c, a, b in zip(built.columns, p.source.values, p.target.values, strict=True)
            if a != b and c.compare == "text"
        ]  # fmt: skip
        assert not different
        assert all(p.source and p.target for p in found)
        assert (totals.rows_source, totals.rows_target) == (3, 3)
    for own in zip(tables, queries, strict=True):
        found, totals = desk.join(desk.build("same_rows", *own))
        assert (found, totals.matched) == ([], 3), "a query has the texts of its table"
    for column, value in VALUES.items():
        databases.target(f"UPDATE t SET {column}={value} WHERE id=1")
        found, totals = desk.join(desk.build("same_rows", *tables, compare=(column,)))
        assert ([p.key for p in found], totals.matched) == ([("1",)], 2), column


VALUES = {
    "ti": "1", "bu": "18446744073709551614", "d": "1.5001", "dw": "1.5000000000000000000000001", "f": "1.25",
    "db": "1.0000000000000002e300", "dm": "'2026-01-31 12:00:00.000002'", "tm": "'-01:02:03.24'", "y": "2027",
    "vc": "'naïve, \\'x\\' '", "tx": "NULL", "e": "'a'", "s": "'x'", "b": "x'000103'", "vb": "x'fe'", "bi": "512",
}  # fmt: skip
"""Another value for a column of the first row."""


def test_keys_with_null_and_repeated_keys(databases: Databases, desk: Desk) -> None:
    databases.both(
        "CREATE TABLE t (id INT, v VARCHAR(9))",
        "INSERT INTO t VALUES (NULL,'n'),(1,'a'),(2,'b'),(2,'b'),(3,'c'),(3,'d')",
    )
    databases.target("INSERT INTO t VALUES (1,'a')", "DELETE FROM t WHERE id=3")
    built = desk.build("same_rows", table(databases, "t"), table(databases, "t", "target"))
    found, totals = desk.join(built)
    by_key = {p.key: p for p in found}
    assert set(by_key) == {("1",), ("2",), ("3",)}, "NULL equals NULL; the rest is repeated or missing"
    twice = by_key["1",].target
    assert twice
    assert twice.count == 2
    three = by_key["3",].source
    assert three
    assert three.differing
    assert three.values == ("c",)
    assert by_key["3",].target is None
    assert totals.matched == 1
    assert set(desk.engine.lookup(built.source, [(None,), ("3",), ("9",)])) == {(None,), ("3",)}


def test_shards_are_one_side(databases: Databases, desk: Desk) -> None:
    for shard in range(3):
        databases.source(
            f"CREATE TABLE t{shard} (id BIGINT PRIMARY KEY, v DECIMAL(10,{shard}), s VARCHAR(9) CHARACTER SET latin1)",
            f"INSERT INTO t{shard} VALUES ({shard}1, 1, 'é'), ({shard}2, 2, NULL)",
        )
    databases.target("CREATE TABLE t (id BIGINT PRIMARY KEY, v DECIMAL(20,6), s VARCHAR(9))",
                     "INSERT INTO t VALUES (1,1,'é'),(2,2,NULL),(11,1,'é'),(12,2,NULL),(21,1,'é'),(22,2.000001,NULL)")  # fmt: skip
    parts = tuple(TablePart("source", databases.name, f"t{n}", shard=f"s{n}") for n in range(3))
    source = Dataset("shards", parts, PLACE, key=("id",))
    built = desk.build("same_rows", source, table(databases, "t", "target"))
    found, totals = desk.join(built)
    assert [(p.key, p.source and p.source.shards) for p in found] == [(("22",), ("s2",))]
    assert totals.matched == 5
    # A key in two shards: one side may hold it once only, and the other does.
    databases.source("INSERT INTO t1 VALUES (1, 1, 'é')")
    found, totals = desk.join(built)
    assert [p.key for p in found] == [("1",), ("22",)]
    assert found[0].source
    assert found[0].source.shards == ("s0", "s1")


def test_windows_cut_by_time_and_count_what_has_none(databases: Databases, desk: Desk) -> None:
    databases.both("CREATE TABLE t (id INT PRIMARY KEY, at DATETIME(6))", "INSERT INTO t VALUES (1,'2026-01-01'),"
                   "(2,'2026-01-01 23:59:59.999999'),(3,'2026-01-02'),(4,'2025-12-31 23:59:59.999999'),(5,NULL)")  # fmt: skip
    databases.target("DELETE FROM t WHERE id IN (1,3,4)")
    window = Window(datetime(2026, 1, 1), datetime(2026, 1, 2))
    built = desk.build(
        "same_rows", table(databases, "t", time="at"), table(databases, "t", "target", time="at"), window
    )
    found, totals = desk.join(built)
    assert [p.key for p in found] == [("1",)]
    assert (totals.rows_source, totals.rows_target) == (2, 1)
    assert desk.check(built) == [f"1 rows of {d}_t have no at and are in no window" for d in ("source", "target")]


def test_collations_character_sets_and_scales_may_be_unlike(databases: Databases, desk: Desk) -> None:
    databases.source("CREATE TABLE t (id VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_swedish_ci, v DECIMAL(8,2))")
    databases.target("CREATE TABLE t (id VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY, v DECIMAL(12,4))")
    databases.both("INSERT INTO t VALUES ('a',1.5),('A',2),('é',3),('e',4)")
    built = desk.build("same_rows", table(databases, "t"), table(databases, "t", "target"))
    assert desk.join(built)[0] == []
    databases.target("UPDATE t SET v=4.0001 WHERE id='e'", "INSERT INTO t VALUES ('Ä',5),('😀',6)")
    found, _ = desk.join(built)
    assert sorted(p.key[0] or "" for p in found) == ["e", "Ä", "😀"]
    held = desk.engine.lookup(built.source, [("e",), ("E",), ("😀",), ("a",)])
    assert {key[0]: h.values[0] for key, h in held.items()} == {"e": "4.0000", "a": "1.5000"}


def test_a_domain_mapping_renames_computes_and_translates(databases: Databases, desk: Desk) -> None:
    databases.source("CREATE TABLE old (no INT PRIMARY KEY, cents BIGINT, st CHAR(1))",
                     "INSERT INTO old VALUES (1,150,'P'),(2,200,'C'),(3,300,NULL)")  # fmt: skip
    databases.target("CREATE TABLE new (id VARCHAR(20) PRIMARY KEY, amount DECIMAL(20,4), state ENUM('paid','gone'))",
                     "INSERT INTO new VALUES ('p-1',1.5,'paid'),('p-2',2,'paid'),('p-3',3,NULL)")  # fmt: skip
    columns = (("id", "CONCAT('p-', no)"), ("amount", "CAST(cents AS DECIMAL(20,2))/100"), ("state", "st"))
    source = table(databases, "old", columns=columns, values=(("state", (("P", "paid"), ("C", "gone"))),))
    built = desk.build("same_rows", source, table(databases, "new", "target"))
    found, _ = desk.join(built)
    assert [(p.key, p.source and p.source.values[1]) for p in found] == [(("p-2",), "gone")]
    assert set(desk.engine.lookup(built.source, [("p-2",), ("p-9",)])) == {("p-2",)}


def test_money_is_read_along_and_makes_nothing_unlike(databases: Databases, desk: Desk) -> None:
    databases.both("CREATE TABLE t (id INT PRIMARY KEY, v INT, amount DECIMAL(10,2), cur CHAR(3))",
                   "INSERT INTO t VALUES (1,1,10,'EUR'),(2,2,20,'JPY')")  # fmt: skip
    databases.target("UPDATE t SET amount=11, v=3 WHERE id=1", "UPDATE t SET amount=21 WHERE id=2")
    built = desk.build(
        "same_rows", table(databases, "t"), table(databases, "t", "target"), compare=("v",), money=Money(column="amount", currency="cur")
    )  # fmt: skip
    found, totals = desk.join(built)
    assert [c.name for c in built.source.values] == ["v", "amount", "cur"]
    assert [(p.key, p.source and p.source.values) for p in found] == [(("1",), ("1", "10.00", "EUR"))]
    assert totals.matched == 1


def test_groups_are_summed_exactly_and_kept_apart_by_bytes(databases: Databases, desk: Desk) -> None:
    databases.source("CREATE TABLE t (id INT PRIMARY KEY, g VARCHAR(9) COLLATE utf8mb4_0900_ai_ci, v DECIMAL(20,4))")
    databases.target("CREATE TABLE t (id INT PRIMARY KEY, g VARCHAR(9), v DECIMAL(24,6))")
    databases.both("INSERT INTO t VALUES (1,'a',9007199254740993.0001),(2,'A',1),(3,'b',2),(4,NULL,3),(5,'b',NULL)")
    measures = ("count", "sum(v)", "min(v)", "max(id)",
                "checksum(id, v)", "count(v)")  # fmt: skip
    built = desk.build(
        "same_groups", table(databases, "t"), table(databases, "t", "target"), groups=("g",), measures=measures
    )
    assert [c.name for c in built.source.values] == [
        "count(*)", "sum(v)", "min(v)", "max(id)", "checksum(id,v)", "count(v)"]  # fmt: skip
    found, totals = desk.join(built)
    assert not found
    assert (totals.keys_source, totals.rows_source) == (4, 5)
    databases.target("UPDATE t SET v=9007199254740993.0002 WHERE id=1")
    found, _ = desk.join(built)
    assert [p.key for p in found] == [("a",)]
    assert found[0].source
    assert found[0].source.values[1] == "9007199254740993.000100"
    rows = drilled(built, [p.key for p in found])
    assert rows is not None
    unlike, totals = desk.join(rows)
    assert [p.key for p in unlike] == [("1",)]
    assert (totals.rows_source, totals.rows_target) == (1, 1), "'A' is no row of the group 'a'"
    held = desk.engine.lookup(built.source, [("a",), (None,)])
    assert {k: h.count for k, h in held.items()} == {("a",): 1, (None,): 1}


def test_groups_of_shards_are_combined(databases: Databases, desk: Desk) -> None:
    for shard in (0, 1):
        databases.source(f"CREATE TABLE t{shard} (id INT PRIMARY KEY, g INT, v BIGINT, at DATETIME)",
                         f"INSERT INTO t{shard} VALUES (1,1,9007199254740993,'2026-01-0{shard + 1}'),(2,{shard},2,NULL)")  # fmt: skip
    databases.target("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, g INT, v BIGINT, at DATETIME(3))",
                     "INSERT INTO t(g,v,at) VALUES (1,9007199254740993,'2026-01-01'),(1,9007199254740993,'2026-01-02'),"
                     "(0,2,NULL),(1,2,NULL)")  # fmt: skip
    source = Dataset("shards", tuple(TablePart("source", databases.name, f"t{n}", shard=str(n)) for n in (0, 1)), PLACE)
    measures = ("count", "sum(v)", "max(at)", "min(v)", "checksum(v,at)")
    built = desk.build("same_groups", source, table(databases, "t", "target", key=()), groups=("g",), measures=measures)
    found, totals = desk.join(built)
    assert not found
    assert totals.matched == 2
    databases.target("UPDATE t SET v=v+1 WHERE g=0")
    found, _ = desk.join(built)
    assert [p.key for p in found] == [("0",)]


def test_sums_that_are_not_zero(databases: Databases, desk: Desk) -> None:
    databases.source("CREATE TABLE e (id INT PRIMARY KEY, tx INT, cur CHAR(3), amount DECIMAL(20,4))",
                     "INSERT INTO e VALUES (1,1,'EUR',10),(2,1,'EUR',-10),(3,2,'EUR',5),(4,2,'JPY',-5),(5,3,'EUR',NULL)")  # fmt: skip
    built = desk.build("zero_sum", table(databases, "e"), groups=("tx",), amount="amount", currency="cur")
    found, totals = desk.join(built)
    values = {p.key: p.source.values for p in found if p.source}
    assert values == {("2", "EUR"): ("5.0000",), ("2", "JPY"): ("-5.0000",), ("3", "EUR"): (None,)}
    assert (totals.rows_source, totals.keys_source, totals.matched) == (5, 4, 1)
    assert desk.check(built) == ["1 rows of source_e have no amount"]
    assert desk.engine.lookup(built.source, [("1", "EUR")])["1", "EUR"].values == ("0.0000",)


def test_balances_and_their_entries(databases: Databases, desk: Desk) -> None:
    databases.source(
        "CREATE TABLE b (account INT PRIMARY KEY, balance DECIMAL(20,2))", "INSERT INTO b VALUES (1,10),(2,20),(3,0)"
    )
    databases.target("CREATE TABLE e (id INT PRIMARY KEY, acc BIGINT, amount DECIMAL(20,4))",
                     "INSERT INTO e VALUES (1,1,4),(2,1,6),(3,2,20.01),(4,4,1)")  # fmt: skip
    built = desk.build(
        "balance", table(databases, "b", key=("account",)), table(databases, "e", "target"),
        balance="balance", amount="amount", entries_key=("acc",), key=("account",),
    )  # fmt: skip
    found, _ = desk.join(built)
    shown = [(p.key, p.source and p.source.values, p.target and p.target.values) for p in found]
    assert shown == [(("2",), ("20.0000",), ("20.0100",)), (("3",), ("0.0000",), None), (("4",), None, ("1.0000",))]


def test_orphans_both_ways(databases: Databases, desk: Desk) -> None:
    databases.source("CREATE TABLE p (id INT PRIMARY KEY)", "INSERT INTO p VALUES (1),(2)")
    databases.target("CREATE TABLE c (id INT PRIMARY KEY, p BIGINT)", "INSERT INTO c VALUES (1,1),(2,9),(3,9),(4,NULL)")
    sides = table(databases, "p"), table(databases, "c", "target")
    built = desk.build("orphans", *sides, reference=("p",), both=True)
    found, _ = desk.join(built)
    assert [(p.key, p.target and p.target.count) for p in found] == [(("2",), None), (("9",), 2), ((None,), 1)]
    optional = desk.build("orphans", *sides, reference=("p",), optional=True)
    assert [p.key for p in desk.join(optional)[0]] == [("9",)]


def test_repeated_keys_over_shards(databases: Databases, desk: Desk) -> None:
    databases.source("CREATE TABLE a (k VARCHAR(9), v DECIMAL(9,2))", "INSERT INTO a VALUES ('x',1),('X',2),('y',3),('y',3),(NULL,4),(NULL,5)",
                     "CREATE TABLE b (k VARCHAR(9), v DECIMAL(9,2))", "INSERT INTO b VALUES ('x',1),('z',2)")  # fmt: skip
    one = desk.build("unique", table(databases, "a", key=("k",)), ignore_null=True)
    found, totals = desk.join(one)
    assert [(p.key, p.source and p.source.count) for p in found] == [(("y",), 2)]
    assert (totals.rows_source, totals.matched) == (4, 2)
    parts = tuple(TablePart("source", databases.name, name, shard=name) for name in "ab")
    both = desk.build(
        "unique", Dataset("ab", parts, PLACE, key=("k",)), ignore_null=False, money=Money(column="v", currency="'EUR'")
    )
    found, _ = desk.join(both)
    assert [(p.key, p.source and (p.source.count, p.source.shards, p.source.values)) for p in found] == [
        (("x",), (2, ("a", "b"), ("1.00",))), (("y",), (2, ("a",), ("3.00",))), ((None,), (2, ("a",), ("4.00",)))
    ]  # fmt: skip


def test_gaps_of_a_sequence(databases: Databases, desk: Desk) -> None:
    databases.source(
        "CREATE TABLE s (id INT PRIMARY KEY AUTO_INCREMENT, g INT, n BIGINT UNSIGNED, at DATETIME)",
        "INSERT INTO s(g,n,at) VALUES (1,1,'2026-01-01'),(1,2,'2026-01-03'),(1,5,'2026-01-02'),(2,3,'2026-01-04'),(1,18446744073709551615,'2026-01-05')",
    )
    built = desk.build("sequence", table(databases, "s"), column="n", groups=("g",), start=1)
    found, totals = desk.join(built)
    values = {p.key: p.source.values for p in found if p.source}
    assert values == {
        ("1", "4"): ("3", "4"), ("2", "2"): ("1", "2"), ("1", "18446744073709551614"): ("6", "18446744073709551614"),
    }  # fmt: skip
    assert totals.rows_source == 5
    window = Window(datetime(2026, 1, 2), datetime(2026, 1, 3))
    later = desk.build("sequence", table(databases, "s", time="at"), window=window, column="n", groups=("g",))
    assert [p.key for p in desk.join(later)[0]] == [("1", "4")], "what is before the window is still before the number"


def test_illegal_transitions_of_a_history(databases: Databases, desk: Desk) -> None:
    databases.source("CREATE TABLE h (id INT, seq INT, state VARCHAR(9) COLLATE utf8mb4_0900_ai_ci, at DATETIME)",
                     "INSERT INTO h VALUES (1,1,'new','2026-01-01'),(1,2,'paid','2026-01-02'),(1,3,'new','2026-01-03'),"
                     "(2,1,'paid','2026-01-02'),(3,1,'new','2026-01-01'),(3,2,'PAID','2026-01-02'),(3,3,NULL,'2026-01-03')")  # fmt: skip
    options: dict[str, Any] = {"column": "state", "allowed": {"new": ("paid",)}, "initial": ("new",), "order": "seq"}
    built = desk.build("transitions", table(databases, "h"), **options)
    found, totals = desk.join(built)
    assert {p.key: p.source.values for p in found if p.source} == {
        ("1", "3"): ("paid", "new"), ("2", "1"): (None, "paid"), ("3", "2"): ("new", "PAID"), ("3", "3"): ("PAID", None)
    }  # fmt: skip
    assert totals.rows_source == 7
    window = Window(datetime(2026, 1, 3), datetime(2026, 1, 4))
    built = desk.build("transitions", table(databases, "h", time="at"), window=window, **options)
    assert [p.key for p in desk.join(built)[0]] == [("1", "3"), ("3", "3")]
    assert set(desk.engine.lookup(built.source, [("1", "3"), ("1", "2")])) == {("1", "3")}


def test_freshness_coverage_and_rows_that_must_not_be(databases: Databases, desk: Desk) -> None:
    databases.source("CREATE TABLE f (id INT PRIMARY KEY, g INT, at DATETIME(3), ref INT)",
                     "INSERT INTO f VALUES (1,1,'2026-01-01',1),(2,1,'2026-01-02',NULL),(3,2,NULL,7)")  # fmt: skip
    fresh = desk.build("freshness", table(databases, "f"), column="at", groups=("g",), limit=1.0)
    found, _ = desk.join(fresh)
    assert {p.key: p.source.values for p in found if p.source} == {
        ("1",): ("2026-01-02 00:00:00.000",),
        ("2",): (None,),
    }
    columns = desk.build("coverage", table(databases, "f"), columns={"at": Decimal("0.5")}, groups=("g",))
    found, _ = desk.join(columns)
    assert [c.name for c in columns.source.values] == ["count(*)", "count(at)"]
    assert {p.key: p.source.values for p in found if p.source} == {("1",): ("2", "2"), ("2",): ("1", "0")}
    no_rows = desk.build("no_rows", query(databases, "SELECT id, g FROM DB.f WHERE at IS NULL", key=("id",)))
    found, _ = desk.join(no_rows)
    assert [(p.key, p.source and p.source.values) for p in found] == [(("3",), ("2",))]


def refused(desk: Desk, kind: str, *sides: Dataset, **fields: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        desk.build(kind, sides[0], sides[1], **fields)
    assert "rules.yaml:7: rule r: " in caught.value.message
    return str(caught.value)


def test_bad_rules_are_refused_by_name_and_line(databases: Databases, desk: Desk) -> None:
    databases.both("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(9), f DOUBLE, j JSON, tm TIME, w DECIMAL(65,30))")
    source, target = table(databases, "t"), table(databases, "t", "target")
    assert "has no column nmae" in refused(desk, "same_rows", source, target, compare=("nmae",))
    assert "Did you mean name?" in refused(desk, "same_rows", source, target, compare=("nmae",))
    texts = table(databases, "t", "target", columns=(("id", "name"),))
    assert "no common text for" in refused(desk, "same_rows", source, texts, key=("id",), compare=("id",))
    assert "cannot be a key" in refused(desk, "same_rows", source, target, key=("j",))
    for measure, words in (
        ("sum(f)", "exact sum"),
        ("sum(w)", "65 digits"),
        ("min(tm)", "not taken"),
        ("checksum(j)", "one value"),
    ):
        name, _, column = measure.rstrip(")").partition("(")
        assert words in refused(desk, "same_groups", source, target, measures=(f"{name}({column})",), groups=("id",))
    assert "has no table" in refused(desk, "same_rows", table(databases, "lost"), target)
    assert "cannot be read" in refused(desk, "same_rows", query(databases, "SELECT lost FROM DB.t"), target)
    assert "no type" not in refused(desk, "same_rows", source, target, key=("lost",))
    assert "DATE, DATETIME or TIMESTAMP" in refused(
        desk, "same_rows", table(databases, "t", time="name"), target, window=Window(datetime(2026, 1, 1), datetime(2026, 1, 2))
    )  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceServer]:
    """A MySQL with small packets and a binlog of its own."""
    options = (
        "--max-allowed-packet=64K",
        "--gtid-mode=ON",
        "--enforce-gtid-consistency=ON",
        "--binlog-row-metadata=FULL",
    )
    with binlog_server(tmp_path_factory.mktemp("small"), *options) as server:
        yield server


def small_desk(small: SourceServer, tmp_path: Path) -> Desk:
    folder = tmp_path / "spill"
    folder.mkdir()
    return Desk({"source": small.endpoint}, folder)


def own(name: str, table_name: str, **fields: Any) -> Dataset:
    return Dataset(name, (TablePart("source", "w", table_name),), PLACE, key=("id",), **fields)


def test_rows_longer_than_a_packet_are_read_another_way_or_refused(small: SourceServer, tmp_path: Path) -> None:
    desk = small_desk(small, tmp_path)
    text = "REPEAT('x', 40000)"
    small.run("DROP DATABASE IF EXISTS w", "CREATE DATABASE w", "USE w")
    for name in ("a", "b"):
        small.run(f"CREATE TABLE {name} (id INT PRIMARY KEY, u TEXT, v TEXT, l LONGBLOB)",
                  f"INSERT INTO {name} VALUES (1,{text},{text},'short'),(2,'a','b','c')")  # fmt: skip
    small.run("UPDATE b SET v=CONCAT(SUBSTRING(v,2),'y') WHERE id=1")
    built = desk.build("same_rows", own("a", "a"), own("b", "b"))
    assert [p.key for p in desk.join(built)[0]] == [("1",)]
    # Texts that a server turns into NULL would be equal on both sides.
    for name in ("a", "b"):
        small.run(f"UPDATE {name} SET l=REPEAT('x', 40000) WHERE id=1")
    with pytest.raises(IncompleteReadError, match="max_allowed_packet"):
        desk.join(built)
    groups = desk.build("same_groups", own("a", "a"), own("b", "b"), groups=("id",), measures=("checksum(l)",))
    with pytest.raises(IncompleteReadError, match="max_allowed_packet"):
        desk.join(groups)


def test_rows_of_a_change_stream(small: SourceServer, tmp_path: Path) -> None:
    desk = small_desk(small, tmp_path)
    small.run("DROP DATABASE IF EXISTS w", "CREATE DATABASE w", "USE w",
              "CREATE TABLE o (id INT PRIMARY KEY, state VARCHAR(9), amount DECIMAL(10,2), at DATETIME(3))")  # fmt: skip
    start = datetime.fromisoformat(str(small.run("SELECT CAST(UTC_TIMESTAMP(6) AS CHAR)")[0][0]))
    small.run("INSERT INTO o VALUES (1,'new',1,'2026-01-01'),(2,'new',2,NULL),(3,'new',3,'2026-01-01')",
              "UPDATE o SET state='paid' WHERE id=1", "UPDATE o SET amount=5 WHERE id=1", "UPDATE o SET state='new' WHERE id=1",
              "DELETE FROM o WHERE id=2", "UPDATE o SET id=4 WHERE id=3")  # fmt: skip
    small.run("DO SLEEP(0.01)")
    end = datetime.fromisoformat(str(small.run("SELECT CAST(UTC_TIMESTAMP(6) AS CHAR)")[0][0]))
    changes = Dataset("c", (ChangesPart("source", "", "w", "o"),), PLACE, key=("id",))
    built = desk.build("transitions", changes, window=Window(start, end), column="state", allowed={"new": ("paid",)})
    found, totals = desk.join(built)
    assert [p.key for p in found] == sorted([
        ("1", "insert", None, "new"), ("2", "insert", None, "new"), ("3", "insert", None, "new"),
        ("1", "update", "new", "paid"), ("1", "update", "paid", "new"), ("2", "delete", None, "new"),
    ], key=str)  # fmt: skip
    state: tuple[Part, ...] = (ChangesPart("source", "", "w", "o", state=True),)
    same = desk.build("same_rows", Dataset("s", state, PLACE, key=("id",)), own("o", "o"), window=Window(start, end))
    found, totals = desk.join(same)
    assert not found
    assert totals.matched == 2
    small.run("UPDATE o SET amount=6 WHERE id=1")
    assert [p.key for p in desk.join(same)[0]] == [("1",)]
    files = Dataset("f", (ChangesPart("", small.files()[-1], "w", "o", state=True),), PLACE, key=("id",))
    assert [p.key for p in desk.join(desk.build("same_rows", files, own("o", "o")))[0]] == []
    late = desk.build(
        "same_rows",
        Dataset("s", state, PLACE, key=("id",)),
        own("o", "o"),
        window=Window(start, datetime(2999, 1, 1)),
    )
    with pytest.raises(IncompleteReadError, match="before the window's end"):
        desk.join(late)
    small.run("TRUNCATE o")
    with pytest.raises(ReadError, match="truncated"):
        desk.join(desk.build("same_rows", Dataset("s", state, PLACE, key=("id",)), own("o", "o")))
