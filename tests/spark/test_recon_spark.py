"""The recon road on Spark gives the pairings and totals of the local engine, and reads Parquet as a server would."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from migverify.db.session import open_session
from migverify.errors import ConfigError, EndpointError, MigverifyError
from migverify.model import ColumnDef, Endpoint, Verdict
from migverify.recon.describe import Describer
from migverify.recon.evaluate import evaluate
from migverify.recon.load import load_rules
from migverify.recon.local import LocalEngine
from migverify.recon.model import ChangesPart, FilePart
from migverify.recon.reads import RangeStep, ReadPiece, deal, plan_steps, read_step, share_ranges
from migverify.recon.relation import ChangeRead, Combine, Cut, FileRead, JoinFilter, Pairing, Relation, SqlRead
from migverify.recon.rule import build, values_for
from migverify.spark.settings import package_root
from migverify.sql.key_range import KeyColumn
from tests.spark.cluster import connect_server

if TYPE_CHECKING:
    from migverify.spark.recon_engine import SparkReconEngine
    from tests.conftest import Databases

SECRET = "pw'@:/%#\"\\ qzx"
DIGITS = "(SELECT 0 n" + "".join(f" UNION ALL SELECT {n}" for n in range(1, 10)) + ")"
NUMBERS = f"(SELECT a.n+10*b.n+100*c.n+1000*d.n k FROM {DIGITS} a,{DIGITS} b,{DIGITS} c,{DIGITS} d)"
INT = ColumnDef("id", 0, "bigint", "bigint", True)
TEXT = ColumnDef("s", 1, "longtext", "longtext", True, charset="utf8mb4")
MONEY = ColumnDef("v", 2, "decimal", "decimal(20,4)", True, precision=20, scale=4)
ID = (KeyColumn("id", "id", "integer", nullable=True),)
SUM = ColumnDef("sum(v)", 2, "decimal", "decimal(65,4)", True, precision=65, scale=4)


@pytest.fixture
def endpoints(databases: Databases) -> dict[str, Endpoint]:
    source, target = databases.pair.source, databases.pair.target
    return {
        "source": Endpoint("source", source.host, source.port, source.user, connections=3),
        "target": Endpoint("target", target.host, target.port, target.user, connections=3),
    }


@pytest.fixture
def session(sessions: Any) -> Any:
    return sessions.get(slots=2)


Maker = Callable[..., "SparkReconEngine"]


@pytest.fixture
def engine(session: Any, endpoints: dict[str, Endpoint]) -> Iterator[Maker]:
    from migverify.spark.recon_engine import SparkReconEngine

    made: list[SparkReconEngine] = []

    def make(**options: Any) -> SparkReconEngine:
        made.append(SparkReconEngine(session, endpoints, {}, 2, owns_session=False, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def read(endpoint: str, table: str, **options: Any) -> SqlRead:
    given: dict[str, Any] = {"key": ("id",), "values": ("s", "v"), "strings": (False, True, False)} | options
    return SqlRead(endpoint, table, **given)


def rows(dataset: str, *reads: Any, carried: int = 0) -> Relation:
    return Relation(dataset, reads, (INT,), (TEXT, MONEY), (Combine.ROW, Combine.ROW), carried)


def groups(dataset: str, *reads: Any) -> Relation:
    return Relation(dataset, reads, (TEXT,), (SUM, SUM, TEXT), (Combine.SUM, Combine.SUM, Combine.TEXT_MAX))


def joined(engine: Any, source: Relation, target: Relation | None, keep: JoinFilter) -> tuple[list[Pairing], Any]:
    answer = engine.join(source, target, keep)
    found = [pairing for batch in answer for pairing in batch]
    assert answer.snapshots or not any(isinstance(r, SqlRead) for r in source.reads)
    return sorted(found, key=repr), answer.totals


def both(
    endpoints: dict[str, Endpoint], spark: Any, source: Relation, target: Relation | None, keep: JoinFilter
) -> Any:
    """Join on both engines; the answers must be the same to the byte."""
    ours = joined(spark, source, target, keep)
    theirs = joined(LocalEngine(endpoints, {}), source, target, keep)
    assert ours[0] == theirs[0]
    assert ours[1] == theirs[1]
    return ours


@pytest.fixture
def rows_pair(databases: Databases) -> str:
    """3,000 rows with planted differences, texts of all sorts, NULL keys, and a key with many unlike rows."""
    databases.both(
        "CREATE TABLE t (id BIGINT NULL, s VARCHAR(100), v DECIMAL(20,4), KEY(id))",
        f"INSERT INTO t SELECT k, CONCAT('row ', k), k * 1.25 FROM {NUMBERS} n WHERE k < 3000",
        "INSERT INTO t VALUES (-5, 'a\\0b', 1), (-6, CONCAT('c', CHAR(1), 'd', CHAR(1), CHAR(5)), 2), (-7, '', 3),"
        " (-8, NULL, NULL), (-9, '-', 4), (-10, '=', 5), (-11, 'N,N;ü😀', 6), (NULL, 'no key', 7)",
        f"INSERT INTO t SELECT 77, CONCAT('hot ', k % 3), 1 FROM {NUMBERS} n WHERE k < 800",
    )
    databases.target(
        "UPDATE t SET v = v + 0.0001 WHERE id = 1234", "DELETE FROM t WHERE id = 2000",
        "UPDATE t SET s = '' WHERE id = -8",
        "INSERT INTO t VALUES (90001, 'only here', 1), (5, 'row 5', 6.25), (NULL, 'another', 8)",
        "UPDATE t SET s = CONCAT('a', CHAR(1), 'b') WHERE id = -5",
    )  # fmt: skip
    return f"`{databases.name}`.t"


PIECES = (ReadPiece(0, ((0, 0),), (RangeStep(rows=5),)),)
HELD: Any = {"source": SimpleNamespace(begin=(), probe="")}
EXPECTED = {("1234",), ("2000",), ("-8",), ("-5",), ("90001",), ("5",), ("77",), (None,)}


RULES = """\
version: recon/v1
defaults: {{rereads: 1, delay: 0s, settle: 0s}}
datasets:
  ours: {{endpoint: source, table: "{table}", key: id}}
  theirs: {{endpoint: target, table: "{table}", key: id}}
rules:
  - {{name: rows, kind: same_rows, source: ours, target: theirs}}
  - {{name: sums, kind: same_groups, source: ours, target: theirs, groups: s, measures: [count, sum(v)], drill: false}}
  - {{name: one-id, kind: unique, source: theirs}}
"""


def test_findings_have_one_order_on_both_engines(
    engine: Maker, endpoints: dict[str, Endpoint], databases: Databases, rows_pair: str, tmp_path: Path
) -> None:
    databases.target(f"DELETE FROM {rows_pair} WHERE id % 7 = 3", f"UPDATE {rows_pair} SET v = v + 1 WHERE id % 11 = 5")
    path = tmp_path / "recon.yaml"
    path.write_text(RULES.format(table=rows_pair.replace("`", "")))
    rules = load_rules(path, list(endpoints))
    describe = Describer(endpoints, {})
    found: dict[str, list[tuple[Any, ...]]] = {}
    for name, made in (("local", LocalEngine(endpoints, {})), ("spark", engine())):
        found[name] = []

        def sink(findings: Any, into: list[tuple[Any, ...]] = found[name]) -> None:
            into += [(f.rule, f.key, f.kind, f.message, f.deviations, f.counts) for f in findings]

        for rule in rules.rules:
            built = build(rule, rules, None, describe, values_for(rules, {}, None))
            assert evaluate(rule, rules, None, made, built, sink).verdict is Verdict.MISMATCH
    assert found["local"] == found["spark"]
    keys = [key[0] for rule, key, *_ in found["local"] if rule == "rows"]
    assert keys[0] is None
    numbers = [int(key) for key in keys[1:]]
    assert len(numbers) > 500
    assert numbers == sorted(numbers)
    texts = [key[0].encode() for rule, key, *_ in found["local"] if rule == "sums" and key[0] is not None]
    assert texts == sorted(texts)


def test_rows_pair_as_on_the_local_engine(engine: Maker, endpoints: dict[str, Endpoint], rows_pair: str) -> None:
    spark = engine()
    for together in (True, False):
        cut = Cut("id", -20, 90001, nullable=True)
        options: dict[str, Any] = {"cut": cut, "rows": 100_000, "lookup": ID if together else ()}
        source = rows("orders", read("source", rows_pair, **options))
        target = rows("payments", read("target", rows_pair, **options))
        assert share_ranges((source, target), JoinFilter()) is together
        found, totals = both(endpoints, spark, source, target, JoinFilter())
        assert {pairing.key for pairing in found} == EXPECTED
        assert (totals.rows_source, totals.rows_target) == (3808, 3810)
        hot = next(pairing for pairing in found if pairing.key == ("77",))
        assert hot.source is not None
        assert (hot.source.count, hot.source.differing, hot.source.values) == (801, True, ("hot 0", "1.0000"))
    where = "id < 100 OR id > 1900 OR id IS NULL"
    source, target = (rows(e, read(e, rows_pair, where=where)) for e in ("source", "target"))
    for keep in (JoinFilter(missing_target=False, repeated=False), JoinFilter(all=True)):
        assert both(endpoints, spark, source, target, keep)[0]
    found, totals = both(endpoints, spark, rows("orders", read("target", rows_pair)), None, JoinFilter())
    assert {(pairing.key, pairing.source and pairing.source.count) for pairing in found} == {
        (("5",), 2), (("77",), 801), ((None,), 2)
    }  # fmt: skip
    assert totals.rows_target == 0
    # Shards: keys in several of them say so; carried values make no rows different.
    parts = [
        read("source", rows_pair, where="id < 1500", shard="one"),
        read("source", rows_pair, where="id >= 1500", shard="two"),
        read("source", rows_pair, where="id BETWEEN 100 AND 110", shard="three"),
    ]  # fmt: skip
    target = rows("all", read("target", rows_pair, where="id IS NOT NULL"), carried=1)
    by_key = {p.key: p for p in both(endpoints, spark, rows("sharded", *parts, carried=1), target, JoinFilter())[0]}
    assert by_key["100",].source is not None
    assert by_key["100",].source.shards == ("one", "three")
    assert ("1234",) not in by_key  # only the carried value differs


def test_groups_of_shards_and_of_exact_sums(
    engine: Maker, endpoints: dict[str, Endpoint], databases: Databases
) -> None:
    """A group of 60 digits that differs in the last one is found; parts of shards add up exactly."""
    databases.both("CREATE TABLE g (id BIGINT PRIMARY KEY, c VARCHAR(20), v DECIMAL(60,4))",
                   f"INSERT INTO g SELECT k, CONCAT('group ', k % 50), k / 7 FROM {NUMBERS} n WHERE k < 2000",
                   "INSERT INTO g VALUES (9000, 'big', 99999999999999999999999999999999999999999999999999.0001)"
                   )  # fmt: skip
    databases.target("UPDATE g SET v = v + 0.0001 WHERE id IN (9000, 7)", "INSERT INTO g VALUES (9001, 'new', NULL)")
    made = {
        "key": ("CAST(c AS BINARY)",),
        "values": ("CAST(SUM(v) AS DECIMAL(65,4))", "COUNT(*)", "MAX(c)"),
        "grouped": True,
    }
    table = f"`{databases.name}`.g"
    halves = [read("source", table, where=f"id % 2 = {n}", shard=str(n), **made) for n in (0, 1)]
    found, totals = both(
        endpoints, engine(), groups("source", *halves), groups("target", read("target", table, **made)), JoinFilter()
    )
    assert {pairing.key[0] for pairing in found} == {"big", "group 7", "new"}
    big = next(pairing for pairing in found if pairing.key == ("big",))
    assert big.source is not None
    assert big.source.values[0] == "99999999999999999999999999999999999999999999999999.0001"
    assert (totals.keys_source, totals.keys_target, totals.matched) == (51, 52, 49)


def test_rows_against_groups(engine: Maker, endpoints: dict[str, Endpoint], databases: Databases) -> None:
    """Balances against sums of their entries, and parents against children: one side is rows, the other aggregates."""
    databases.source("CREATE TABLE b (id BIGINT, s VARCHAR(20), v DECIMAL(20,4))",
                     f"INSERT INTO b SELECT k, CONCAT('a', k), k * 3 FROM {NUMBERS} n WHERE k < 100",
                     "INSERT INTO b VALUES (7, 'twice', 21), (500, 'no entries', 1)")  # fmt: skip
    databases.target("CREATE TABLE e (id BIGINT, v DECIMAL(20,4))",
                     f"INSERT INTO e SELECT k % 100, FLOOR(k / 100) FROM {NUMBERS} n WHERE k < 300",
                     "UPDATE e SET v = id", "UPDATE e SET v = v + 0.0001 WHERE id = 3 LIMIT 1",
                     "INSERT INTO e VALUES (900, 1), (NULL, 2)")  # fmt: skip
    balances = read("source", f"`{databases.name}`.b", values=("v",), strings=(False, False))
    entries = read("target", f"`{databases.name}`.e", values=("CAST(SUM(v) AS DECIMAL(65,4))",), grouped=True,
                   strings=(False, True))  # fmt: skip
    ours = Relation("b", (balances,), (INT,), (MONEY,), (Combine.ROW,))
    theirs = Relation("e", (entries,), (INT,), (SUM,), (Combine.SUM,))
    found, totals = both(endpoints, engine(), ours, theirs, JoinFilter())
    assert {p.key[0] for p in found} == {"3", "7", "500", "900", None}
    assert totals.matched == 98
    parents = Relation("b", (replace(balances, values=(), strings=(False,)),), (INT,), (), ())
    children = Relation("e", (replace(entries, values=(), strings=(False,)),), (INT,), (), ())
    keep = JoinFilter(missing_source=True, missing_target=True, differing=False, repeated=False)
    found, _ = both(endpoints, engine(), parents, children, keep)
    assert {p.key[0] for p in found} == {"500", "900", None}


def test_steps_hold_every_row_once_however_dense(endpoints: dict[str, Endpoint], databases: Databases) -> None:
    """All rows but two lie in one narrow range of a wide span: it is cut all the same."""
    databases.source("CREATE TABLE d (id BIGINT PRIMARY KEY, s VARCHAR(9), v DECIMAL(20,4))",
                     f"INSERT INTO d SELECT 10*k + x.n + 7000000000, 'x', 1 FROM {NUMBERS} n, {DIGITS} x",
                     "INSERT INTO d VALUES (-9223372036854775808, 'low', 1), (9223372036854775807, 'high', 1)"
                     )  # fmt: skip
    wanted = read("source", f"`{databases.name}`.d", rows=10**6, cut=Cut("id", -(2**63), 2**63 - 1, nullable=False))
    with open_session(endpoints["source"], None) as session:
        steps = plan_steps(wanted, session)
        assert max(step.rows for step in steps) <= 20_000
        assert sum(step.rows for step in steps) == 100_002
        dealt = [step for part in deal(steps, 4) for step in part]
        keys = [key for step in dealt for batch in read_step(session, wanted, 0, step, set()) for key in batch[0]]
        assert len(keys) == len(set(keys)) == 100_002
        # A packed text that the server cuts is noticed and read row by row.
        session.execute("SET SESSION group_concat_max_len=5000")
        again = [key for batch in read_step(session, wanted, 0, RangeStep(rows=30_000), set()) for key in batch[0]]
        assert sorted(again) == sorted(keys)


def test_changes_are_those_of_the_local_engine(
    engine: Maker, endpoints: dict[str, Endpoint], databases: Databases
) -> None:
    """Rows of a live binlog, as rows and as groups; the place up to which it was read is among the snapshots."""
    with open_session(endpoints["source"], None) as session:
        told = session.query_named("SHOW BINARY LOG STATUS")[0]
    databases.source("CREATE TABLE c (id BIGINT PRIMARY KEY, s VARCHAR(20), v DECIMAL(20,4))",
                     f"INSERT INTO c SELECT k, CONCAT('kind ', k % 3), k / 3 FROM {NUMBERS} n WHERE k < 300",
                     "UPDATE c SET v = v + 1 WHERE id < 10", "DELETE FROM c WHERE id = 5")  # fmt: skip
    part = ChangesPart("source", "", databases.name, "c")
    since = f"{told['File']}:{told['Position']}"
    wanted = ChangeRead(part, ("id",), ("_op", "v"), since=since)
    found, totals = both(
        endpoints, engine(), Relation("c", (wanted,), (INT,), (TEXT, MONEY), (Combine.ROW,) * 2), None, JoinFilter()
    )
    assert totals.rows_source == 311
    assert {(p.key[0], p.source and p.source.count) for p in found} == {(str(k), 3 if k == 5 else 2) for k in range(10)}
    summed = ChangeRead(part, ("s",), ("v", "=1"), since=since)
    relation = Relation("c", (summed,), (TEXT,), (SUM, SUM), (Combine.SUM,) * 2)
    found, _ = both(endpoints, engine(), relation, None, JoinFilter(all=True))
    assert {(p.key[0], p.source and p.source.count) for p in found} == {
        ("kind 0", 104),
        ("kind 1", 103),
        ("kind 2", 104),
    }


# --- secrets and errors ----------------------------------------------------------------------------------


def test_secrets_are_in_no_plan_option_or_message(session: Any, endpoints: dict[str, Endpoint], rows_pair: str) -> None:
    from migverify.spark.recon_engine import SparkReconEngine

    wrong = SparkReconEngine(session, endpoints, {"source": SECRET, "target": SECRET}, 2, owns_session=False)
    relations = rows("a", read("source", rows_pair)), None
    frame = wrong.read_pieces(relations, PIECES, HELD)
    shown = io.StringIO()
    with redirect_stdout(shown):
        frame.explain(True)
    assert "ReadPieces" in shown.getvalue()
    with pytest.raises(Exception, match="Access denied") as raised:
        frame.collect()
    with pytest.raises(MigverifyError) as error:
        list(wrong.join(rows("a", read("source", rows_pair)), None, JoinFilter()))
    assert isinstance(error.value, EndpointError)
    for text in (shown.getvalue(), str(raised.value), str(error.value), repr(wrong)):
        assert "qzx" not in text
    settings = session.sparkContext.getConf().getAll()
    assert not [pair for pair in settings if "qzx" in pair[1]]


def test_an_error_of_a_worker_is_raised_as_what_it_is(engine: Maker, rows_pair: str) -> None:
    broken = read("source", rows_pair, values=("s", "no_such_column"))
    with pytest.raises(MigverifyError, match="no_such_column"):
        list(engine().join(rows("a", broken), None, JoinFilter(all=True)))
    with pytest.raises(ConfigError, match="no endpoint nowhere"):
        engine().join(rows("a", read("nowhere", rows_pair)), None, JoinFilter())


# --- Parquet ---------------------------------------------------------------------------------------------


@pytest.fixture
def parquet(tmp_path: Path) -> str:
    """One row per type's edge, as another system would have written what is in the table ``p`` of the test below."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    moment = dt.datetime(2026, 1, 31, 12, 0, 0, 5000)
    table = pa.table({
        "id": pa.array([1, 2, None], pa.int32()),
        "n": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
        "v": pa.array([Decimal("-0.00000001"), Decimal("12345678901234567890.5"), None], pa.decimal128(38, 8)),
        "d": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
        "t": pa.array([moment, dt.datetime(1970, 1, 1), None], pa.timestamp("us", "UTC")),
        "z": pa.array([moment, dt.datetime(1900, 1, 1), None], pa.timestamp("ms")),
        "b": pa.array([b"\x00\xff", b"", None], pa.binary()),
        "s": pa.array(["a\x00b\x01c", "ü😀", None]),
        "f": pa.array([True, False, None]),
        "x": pa.array([1.5, 0.1, None], pa.float64()),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "p.parquet")
    return str(tmp_path / "p.parquet")


def file_read(path: str, **types: tuple[str, dict[str, Any]]) -> FileRead:
    made = tuple(ColumnDef(n, 0, kind, kind, True, **more) for n, (kind, more) in types.items())
    return FileRead(FilePart(path), ("id",), tuple(types)[1:], made)


PARQUET_TYPES: dict[str, tuple[str, dict[str, Any]]] = {
    "id": ("bigint", {}), "n": ("bigint", {}), "v": ("decimal", {"precision": 40, "scale": 10}), "d": ("date", {}),
    "t": ("datetime", {"fsp": 3}), "z": ("datetime", {"fsp": 6}), "b": ("longblob", {}), "s": ("longtext", {}),
    "f": ("decimal", {"precision": 5, "scale": 1}),
}  # fmt: skip


def test_parquet_is_read_to_the_texts_of_a_server(engine: Maker, databases: Databases, parquet: str) -> None:
    databases.source(
        "CREATE TABLE p (id INT, n BIGINT, v DECIMAL(40,10), d DATE, t DATETIME(3), z DATETIME(6), b VARBINARY(9),"
        " s VARCHAR(20), f DECIMAL(5,1))",
        "INSERT INTO p VALUES (1, -9223372036854775808, -0.00000001, '0001-01-01', '2026-01-31 12:00:00.005',"
        " '2026-01-31 12:00:00.005', x'00ff', CONCAT('a', x'00', 'b', x'01', 'c'), 1), (2, 9223372036854775807,"
        " 12345678901234567890.5, '9999-12-31', '1970-01-01', '1900-01-01', '', 'ü😀', 0),"
        " (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    )
    names = ("n", "v", "d", "t", "z", "CONCAT('0x',LOWER(HEX(b)))", "s", "f")
    table = read("source", f"`{databases.name}`.p", key=("id",), values=names, strings=(True,) * 9)
    made = file_read(parquet, **PARQUET_TYPES)
    how = (Combine.ROW,) * len(names)
    source = Relation("table", (table,), made.types[:1], made.types[1:], how)
    target = Relation("file", (made,), made.types[:1], made.types[1:], how)
    found, totals = joined(engine(), source, target, JoinFilter())
    assert found == []
    assert (totals.rows_source, totals.rows_target, totals.matched) == (3, 3, 3)


def test_parquet_floats_are_refused_and_lost_digits_are_seen(engine: Maker, parquet: str) -> None:
    floats = file_read(parquet, id=("bigint", {}), x=("double", {}))
    with pytest.raises(ConfigError, match="column x is DOUBLE"):
        joined(
            engine(),
            Relation("f", (floats,), floats.types[:1], floats.types[1:], (Combine.ROW,)),
            None,
            JoinFilter(all=True),
        )
    narrow = file_read(parquet, id=("bigint", {}), v=("decimal", {"precision": 10, "scale": 2}))
    found, _ = joined(
        engine(),
        Relation("f", (narrow,), narrow.types[:1], narrow.types[1:], (Combine.ROW,)),
        None,
        JoinFilter(all=True),
    )
    texts = {pairing.key: pairing.source.values for pairing in found if pairing.source is not None}
    assert texts == {("1",): ("-0.00000001",), ("2",): ("12345678901234567890.50",), (None,): (None,)}


def test_parquet_groups_are_combined_exactly(engine: Maker, tmp_path: Path) -> None:
    """One group of all rows, of more digits than Spark's decimals have in sum."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    big = Decimal("99999999999999999999999999999999.999999")
    pq.write_table(pa.table({"c": ["a"] * 5000 + ["b"], "v": [big] * 5000 + [None]}), tmp_path / "g.parquet")
    types = (TEXT, SUM, SUM)
    wanted = FileRead(FilePart(str(tmp_path / "g.parquet")), ("c",), ("v", "?v", "=1"), (*types, SUM))
    relation = Relation("g", (wanted,), (TEXT,), (SUM, SUM, SUM), (Combine.SUM,) * 3)
    found, totals = joined(engine(), relation, None, JoinFilter(all=True))
    assert {p.key[0]: p.source and p.source.values for p in found} == {
        "a": ("499999999999999999999999999999999999.995000", "5000", "5000"), "b": (None, "0", "1")
    }  # fmt: skip
    assert (totals.rows_source, totals.keys_source) == (5001, 2)


# --- the job ---------------------------------------------------------------------------------------------


def test_the_job_reads_and_writes_urls(databases: Databases, tmp_path: Path) -> None:
    """spark-submit with everything but the store on URLs: a table against Parquet, with one wrong amount."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.find_spark_home import _find_spark_home

    databases.source("CREATE TABLE o (id BIGINT PRIMARY KEY, amount DECIMAL(20,4))",
                     f"INSERT INTO o SELECT k, k * 1.5 FROM {NUMBERS} n WHERE k < 500")  # fmt: skip
    amounts = [Decimal(k) * Decimal("1.5") + (k == 7) for k in range(500)]
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    types = [pa.array(range(500), pa.int64()), pa.array(amounts, pa.decimal128(20, 2))]
    pq.write_table(pa.table(types, names=["id", "amount"]), tmp_path / "in" / "o.parquet")
    source = databases.pair.source
    (tmp_path / "in" / "migverify.yaml").write_text(
        f'source: {{url: "mysql://{source.user}@{source}", connections: 2}}\n'
        f'target: {{url: "mysql://{source.user}@{source}", connections: 2}}\n'
        'tables: {include: ["no.*"]}\nreport: {values: true}\n'
    )
    (tmp_path / "in" / "rules.yaml").write_text(f"""
version: recon/v1
defaults: {{owner: team}}
datasets:
  orders: {{endpoint: source, table: {databases.name}.o, key: id, static: true}}
  lake: {{parquet: "{tmp_path}/in/o.parquet", key: id, static: true}}
rules:
  - {{name: same, kind: same_rows, source: orders, target: lake, compare: [amount], rereads: 0,
      money: {{column: amount, currency: "'EUR'"}}}}
""")
    job = Path(__file__).parents[2] / "spark_jobs" / "reconcile.py"
    url = f"file://{tmp_path}"
    done = subprocess.run(
        [Path(_find_spark_home()) / "bin" / "spark-submit", "--master", "local[2]", job,
         f"--config={url}/in/migverify.yaml", f"{url}/in/rules.yaml", "--store", f"sqlite:///{tmp_path}/runs.db",
         "--csv", f"{url}/out/findings.csv", "--json"],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable,
                          "PYTHONPATH": str(package_root()), "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr[-3000:]
    # spark-submit mixes the driver's standard error into its output; the answer is the last line.
    assert json.loads(done.stdout.splitlines()[-1])["verdict"] == "MISMATCH"
    with (tmp_path / "out" / "findings.csv").open(newline="") as file:
        found = [(row["rule"], row["key"], row["class"], row["money"]) for row in csv.DictReader(file)]
    assert found == [("same", '["7"]', "value mismatch", "1.0000")]


CLIENT = """
import json, sys
from migverify.errors import MigverifyError
from migverify.model import ColumnDef, Endpoint
from migverify.recon.relation import Combine, Cut, JoinFilter, Relation, SqlRead
from migverify.spark.recon_engine import DRIVER, SparkReconEngine
from migverify.spark.session import open_session
from migverify.sql.key_range import KeyColumn

url, table, addresses, conf = sys.argv[1], sys.argv[2], sys.argv[3:5], json.loads(sys.argv[5])
secret = sys.stdin.readline().strip()
endpoints = {}
for name, address in zip(("source", "target"), addresses):
    user, host, port = address.split(" ")
    endpoints[name] = Endpoint(name, host, int(port), user)

def side(name, lookup=()):
    cut = Cut("id", 0, 3000, nullable=True)
    made = SqlRead(name, table, ("id",), ("s", "v"), cut=cut, rows=10**6, strings=(False, True, False), lookup=lookup)
    text = ColumnDef("x", 0, "longtext", "longtext", True)
    return Relation(name, (made,), (text,), (text, text), (Combine.ROW, Combine.ROW))

session = open_session(None if url == "local" else url, "t", conf, 2)
said = {}
for lookup in ((KeyColumn("id", "id", "integer", nullable=True),), ()):
    engine = SparkReconEngine(session, endpoints, {}, 2, owns_session=False)
    joined = engine.join(side("source", lookup), side("target", lookup), JoinFilter())
    said[str(bool(lookup))] = sorted(str(p.key[0]) for batch in joined for p in batch), joined.totals.rows_source
wrong = SparkReconEngine(session, endpoints, {"source": secret, "target": secret}, 2)
frame_error = ""
try:
    from types import SimpleNamespace
    from migverify.recon.reads import RangeStep, ReadPiece
    held = {"source": SimpleNamespace(begin=(), probe="")}
    wrong.read_pieces((side("source"), None), (ReadPiece(0, ((0, 0),), (RangeStep(rows=5),)),), held).collect()
except Exception as error:
    frame_error = str(error)
said["error"] = frame_error
wrong.close()
print(json.dumps(said))
"""
MARKER = "Zq7secretZq7"


@pytest.mark.parametrize("kind", ["cluster", "connect"])
def test_whole_sessions_show_no_secret_in_logs_and_join_alike(
    endpoints: dict[str, Endpoint], rows_pair: str, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """A driver of its own: event log, server log and messages hold no password; Connect gives what classic gives."""
    if kind == "connect":
        pytest.importorskip("grpc", reason="Spark Connect needs pip install 'pyspark[connect]'")
    log = tmp_path / "events"
    log.mkdir()
    conf = {
        "spark.eventLog.enabled": "true", "spark.eventLog.dir": log.as_uri(), "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }  # fmt: skip
    addresses = [f"{e.user} {e.host} {e.port}" for e in endpoints.values()]

    def run(url: str, more: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", CLIENT, url, rows_pair, *addresses, json.dumps(more)], input=MARKER + "\n",
            capture_output=True, text=True, check=False, timeout=240,
            env=os.environ | {"PYTHONPATH": str(package_root())},
        )  # fmt: skip

    logged = ""
    if kind == "connect":
        with connect_server(2, conf) as server:
            done = run(server.url, {})
            logged = (server.folder / "connect.log").read_text()
    else:
        done = run(request.getfixturevalue("cluster").url, conf)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    expected = sorted(str(key) for (key,) in EXPECTED)
    assert said["True"] == said["False"] == [expected, 3808]
    assert "Access denied" in said["error"]
    events = "".join(path.read_text() for path in log.iterdir())
    assert "ReadPieces" in events
    assert MARKER not in events + logged + done.stdout + done.stderr
