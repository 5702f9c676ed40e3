"""``changes audit`` on real servers: a whole stream is a match; what is planted is found with key and column."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from migverify.changes.events import EventType, file_events
from migverify.cli.changes_audit import audit
from migverify.lab.servers import LabServers
from migverify.lab.session import connect
from migverify.sql.quoting import quote_name
from tests.db.binlog_server import BinlogServer, binlog_server
from tests.db.verifying import execute, write_config

pytestmark = pytest.mark.db

TYPES = """
    id BIGINT UNSIGNED PRIMARY KEY, small SMALLINT(5) ZEROFILL, amount DECIMAL(20,4), ratio DOUBLE, part FLOAT,
    born DATE, at DATETIME(3), seen TIMESTAMP(6) NULL, took TIME(2), y YEAR, name VARCHAR(40),
    old VARCHAR(20) CHARACTER SET latin1, kind ENUM('a','b','é'), flags SET('x','y','z'), code BINARY(6), raw BLOB,
    bits BIT(12), doc JSON, note TEXT
"""
ROW = ("({id}, 42, -12345.6789, 0.1, 1.1, '2024-02-29', '2026-01-31 23:59:59.123', '2026-01-31 12:00:00.000001',"
       " '-12:34:56.78', 2026, 'grüße 😀', 'déjà', 'é', 'x,z', x'0102', x'00ff', b'101',"
       " '{{\"b\": 1, \"aa\": [1.5, null]}}', 'it''s')")  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BinlogServer]:
    with binlog_server(tmp_path_factory.mktemp("audited")) as found:
        yield found


class Shop:
    """A database on both sides; ``start`` is the set before its first table, rows go to the target by hand."""

    def __init__(self, source: BinlogServer, pair: LabServers, name: str, folder: Path) -> None:
        self.source, self.folder, self.name = source, folder, name
        self.pair = LabServers(source.server, pair.target)
        source.run(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", f"USE {name}")
        self.start = self.executed()
        self.path = self.configure()

    def configure(self, **more: Any) -> Path:
        self.path = write_config(self.folder, self.pair, self.name, **more)
        return self.path

    def executed(self) -> str:
        return str(self.source.run("SELECT @@GLOBAL.gtid_executed")[0][0]).replace("\n", "")

    def both(self, *statements: str) -> None:
        self.source.run(*statements)
        self.target(*statements)

    def target(self, *statements: str) -> list[tuple[Any, ...]]:
        return execute(self.pair.target, *statements, database=self.name)

    def audit(self, capsys: pytest.CaptureFixture[str], **options: Any) -> tuple[int, dict[str, Any]]:
        code, output = self.command(capsys, as_json=True, **options)
        return code, json.loads(output)

    def command(self, capsys: pytest.CaptureFixture[str], **options: Any) -> tuple[int, str]:
        options = {"since": self.start, "settle": 0.0, "config": self.path, **options}
        with pytest.raises(typer.Exit) as ending:
            audit(**options)
        return ending.value.exit_code, capsys.readouterr().out

    def delivered(self, capsys: pytest.CaptureFixture[str], **options: Any) -> tuple[int, dict[str, Any]]:
        code, found = self.audit(capsys, delivered=True, **{"applied": True, **options})
        result: dict[str, Any] = found["sources"][0]["delivered"]
        return code, result


@pytest.fixture
def shop(source: BinlogServer, pair: LabServers, databases: Any, tmp_path: Path) -> Iterator[Shop]:
    yield Shop(source, pair, databases.name, tmp_path)
    source.run(f"DROP DATABASE {databases.name}")


def only(found: dict[str, Any]) -> dict[str, Any]:
    table: dict[str, Any] = found["tables"][0]
    return table


def ten_rows(shop: Shop) -> None:
    """Rows 0 to 9, some changed and deleted, delivered as they are."""
    shop.both("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), n INT)",
              "INSERT INTO t VALUES " + ",".join(f"({i}, 'v{i}', {i})" for i in range(10)),
              "UPDATE t SET v = 'changed' WHERE id < 3", "DELETE FROM t WHERE id IN (4, 5)",
              "UPDATE t SET id = 100 WHERE id = 6")  # fmt: skip


def test_complete_and_delivered(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    ten_rows(shop)
    code, found = shop.audit(capsys, delivered=True, applied=True)
    one = found["sources"][0]
    assert (code, found["verdict"]) == (0, "MATCH"), one["reasons"]
    assert one["tables"] == {f"{shop.name}.t": {"insert": 10, "update": 4, "delete": 2}}
    assert [change["sql"][:14] for change in one["schema_changes"]] == ["CREATE TABLE t"]
    table = only(one["delivered"])
    assert (table["equal"], table["undelivered"]) == (11, 0)  # 0..9 and 100; 4, 5 and 6 are gone on both sides
    code, text = shop.command(capsys, delivered=True)
    assert code == 0
    assert "the stream is complete" in text
    assert "the range was delivered" in text


def test_what_is_planted_is_found_with_key_and_column(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    ten_rows(shop)
    shop.target("DELETE FROM t WHERE id = 1", "UPDATE t SET v = 'CHANGED', n = NULL WHERE id = 2",
                "INSERT INTO t VALUES (5, 'v5', 5)")  # fmt: skip
    code, found = shop.delivered(capsys)
    assert (code, found["verdict"]) == (1, "MISMATCH")
    diffs = {
        tuple(d["key"]): (d["kind"], [(c["column"], c["kind"]) for c in d["columns"]]) for d in only(found)["diffs"]
    }
    assert diffs == {
        ("1",): ("missing", []), ("2",): ("differs", [("v", "case"), ("n", "null")]),
        ("5",): ("still_there", []),
    }  # fmt: skip
    assert all(d["at"].count(":") == 1 for d in only(found)["diffs"])  # each names its transaction
    assert all(c["masked"] for d in only(found)["diffs"] for c in d["columns"])
    _, text = shop.command(capsys, delivered=True, applied=True)
    assert "missing 1 (last changed by" in text
    assert "CHANGED" not in text  # report.values is off


CHANGES = {
    "small": "43", "amount": "-12345.6788", "ratio": "0.1000000000000001", "part": "1.2", "born": "'2024-02-28'",
    "at": "'2026-01-31 23:59:59.124'", "seen": "'2026-01-31 13:00:00.000001'", "took": "'-12:34:56.79'", "y": "2025",
    "name": "'grüße 😁'", "old": "'deja'", "kind": "'a'", "flags": "'x'", "code": "x'0103'", "raw": "x'00fe'",
    "bits": "b'100'", "doc": "'{\"b\": 1, \"aa\": [1.5, 0]}'", "note": "NULL",
}  # fmt: skip


def test_every_type_is_compared_as_it_is(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    keys = dict(enumerate(CHANGES, 18446744073709551000))
    shop.both(f"CREATE TABLE t ({TYPES})", "INSERT INTO t VALUES " + ",".join(ROW.format(id=i) for i in keys),
              "INSERT INTO t (id) VALUES (7)")  # fmt: skip
    assert [row[0] for row in shop.source.run("SHOW COLUMNS FROM t")][1:] == list(CHANGES)
    shop.configure(report={"values": True})
    code, found = shop.delivered(capsys)
    assert (code, only(found)["equal"]) == (0, len(keys) + 1), found
    shop.target(*(f"UPDATE t SET {column} = {CHANGES[column]} WHERE id = {key}" for key, column in keys.items()))
    code, found = shop.delivered(capsys)
    assert code == 1
    diffs = {d["key"][0]: [c["column"] for c in d["columns"]] for d in only(found)["diffs"]}
    assert diffs == {str(key): [column] for key, column in keys.items()}


SHOWN_OTHERWISE = """
    id INT(8) ZEROFILL, part DECIMAL(12,3) ZEROFILL, f FLOAT(7,2), d DOUBLE(9,3), s SMALLINT(5) UNSIGNED ZEROFILL,
    x FLOAT(5,4), u DOUBLE(12,1) UNSIGNED, PRIMARY KEY (id, part)
"""


def test_numbers_that_are_shown_otherwise_are_compared_as_numbers(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    """ZEROFILL and the digits of FLOAT(M,D) are in no binlog: neither makes a difference, and a real one is found."""
    shop.both(f"CREATE TABLE t ({SHOWN_OTHERWISE})",
              "INSERT INTO t VALUES (1, 1.5, 12345.68, 123456.789, 7, 0.1, 12345678901.2), (2, 0, 0.1, 0.1, 0, 0, 0),"
              " (3, 3, -99999.99, -999999.999, 65535, -9.9999, 1), (4, 4, 1e5, 100000, 10, 1, 1e10),"
              " (5, 5, 99999.99, NULL, NULL, NULL, NULL), (6, 6, 2.50, 2.500, 6, 2.5, 2.5)",
              "UPDATE t SET f = f + 1, d = d * 2 WHERE id = 6")  # fmt: skip
    code, found = shop.delivered(capsys)
    assert (code, only(found)["equal"]) == (0, 6), found
    shop.configure(report={"values": True})
    # The last FLOAT differs beyond the six digits that SELECT shows of one.
    shop.target("UPDATE t SET s = 8 WHERE id = 1", "UPDATE t SET f = 0.2 WHERE id = 2",
                "UPDATE t SET f = 99999.98 WHERE id = 5", "UPDATE t SET d = -999999.998 WHERE id = 3",
                "UPDATE t SET part = 4.001 WHERE id = 4")  # fmt: skip
    code, found = shop.delivered(capsys)
    assert code == 1
    diffs = {tuple(d["key"]): [c["column"] for c in d["columns"]] for d in only(found)["diffs"]}
    assert diffs == {("1", "1.500"): ["s"], ("2", "0.000"): ["f"], ("3", "3.000"): ["d"], ("4", "4.000"): [],
                     ("5", "5.000"): ["f"]}  # fmt: skip


def test_keys_of_every_kind_find_their_row(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.both("CREATE TABLE t (a VARCHAR(20), b BINARY(3), c DATETIME(2), d DECIMAL(10,2), PRIMARY KEY (a, b, c, d))",
              "INSERT INTO t VALUES ('é', x'01', '2026-01-31 10:00:00.5', 1.5), ('E', x'0102', '2026-01-31', 1)",
              "INSERT INTO t VALUES ('it''s', x'', '2026-01-31', 0)")  # fmt: skip
    code, found = shop.delivered(capsys)
    assert (code, only(found)["equal"]) == (0, 3), found


def test_a_transaction_cut_out_of_a_copy_is_found(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.source.run("CREATE TABLE t (id INT PRIMARY KEY)", "FLUSH BINARY LOGS")
    for number in range(5):
        shop.source.run(f"INSERT INTO t VALUES ({number})")
    whole = shop.source.flush()
    path = shop.folder / Path(whole).name
    shutil.copy(whole, path)
    code, found = shop.audit(capsys, file=[str(path)], since=None)
    assert (code, found["verdict"]) == (0, "MATCH")
    assert found["sources"][0]["bytes_read"] == path.stat().st_size
    start, end, gtid = third_transaction(path)
    data = path.read_bytes()
    path.write_bytes(data[:start] + data[end:])
    code, found = shop.audit(capsys, file=[str(path)], since=None)
    one = found["sources"][0]
    assert (code, found["verdict"]) == (1, "MISMATCH")
    assert one["gaps"]["holes"].endswith(f":{gtid}")
    assert one["tables"][f"{shop.name}.t"]["insert"] == 2  # what stands in front of it is certain


def third_transaction(path: Path) -> tuple[int, int, int]:
    """Return begin, end and number of a file's third transaction."""
    found: list[list[int]] = []
    offset = 4
    with path.open("rb") as stream:
        for event in file_events(stream, path.name):
            if event.type == EventType.GTID:
                found.append([offset, 0, int.from_bytes(event.body[17:25], "little")])
            offset += event.size
            if event.type == EventType.XID:
                found[-1][1] = offset
    start, end, number = found[2]
    return start, end, number


def test_a_damaged_copy_proves_nothing(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.source.run("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", "FLUSH BINARY LOGS",
                    "INSERT INTO t VALUES (1, 'here it is')")  # fmt: skip
    whole = shop.source.flush()
    path = shop.folder / Path(whole).name
    path.write_bytes(Path(whole).read_bytes().replace(b"here it is", b"here it's!"))
    code, found = shop.audit(capsys, file=[str(path)], since=None)
    assert (code, found["verdict"]) == (3, "INCONCLUSIVE")
    assert "damaged" in found["sources"][0]["reasons"][0]


def test_a_truncate_forgets_what_was_before(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.both("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)", "TRUNCATE TABLE t",
              "INSERT INTO t VALUES (2), (3)")  # fmt: skip
    code, found = shop.delivered(capsys)
    assert (code, only(found)["equal"]) == (0, 3), found
    shop.target("INSERT INTO t VALUES (1), (77)")  # 77 was never in the range: the count tells
    code, found = shop.delivered(capsys)
    assert code == 1
    assert [(d["key"], d["kind"]) for d in only(found)["diffs"]] == [(["1"], "still_there")]
    assert only(found)["extra_rows"] == 1


def test_an_added_column_is_judged_where_it_was_written(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.both("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)",
              "ALTER TABLE t ADD COLUMN z INT DEFAULT 5, ADD INDEX (v)", "INSERT INTO t VALUES (2, 2, 2)")  # fmt: skip
    code, found = shop.delivered(capsys)
    assert (code, only(found)["left_out"]) == (0, ["z"]), found
    shop.target("UPDATE t SET z = 3 WHERE id = 2")
    assert shop.delivered(capsys)[0] == 1


@pytest.mark.parametrize(
    "statement", ["ALTER TABLE t DROP COLUMN v", "ALTER TABLE t MODIFY v BIGINT", "RENAME TABLE t TO u, u TO t"]
)
def test_other_schema_changes_leave_nothing_to_judge(
    shop: Shop, capsys: pytest.CaptureFixture[str], statement: str
) -> None:
    shop.both("CREATE TABLE t (id INT PRIMARY KEY, v INT, w INT)", "INSERT INTO t VALUES (1, 1, 1)")
    shop.source.run(statement)
    shop.target("DELETE FROM t")
    code, found = shop.delivered(capsys)
    assert code == 3
    assert "within the range" in only(found)["not_covered"]


def test_a_table_without_a_key_is_named_and_not_judged(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.both("CREATE TABLE t (v INT)", "INSERT INTO t VALUES (1)")
    code, found = shop.delivered(capsys)
    assert (code, found["verdict"]) == (3, "INCONCLUSIVE")
    assert only(found)["not_covered"] == "no key tells its rows apart"


def test_a_table_of_the_source_alone_is_named(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    ten_rows(shop)
    shop.source.run("CREATE TABLE alone (id INT PRIMARY KEY)", "INSERT INTO alone VALUES (1)")
    shop.source.run("CREATE TABLE gone (id INT PRIMARY KEY)", "INSERT INTO gone VALUES (1)", "DROP TABLE gone")
    code, found = shop.delivered(capsys)
    assert code == 3
    named = {t["pair"].partition(".")[2]: t["not_covered"] for t in found["tables"] if t["not_covered"]}
    assert named.keys() == {"alone", "gone"}


def test_a_key_that_changed_after_the_range_is_pending(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    ten_rows(shop)
    until = shop.executed()
    shop.source.run("UPDATE t SET n = 99 WHERE id = 7")
    shop.target("UPDATE t SET n = 98 WHERE id = 7")
    code, found = shop.delivered(capsys, until=until)
    assert (code, found["verdict"]) == (3, "INCONCLUSIVE")
    assert (only(found)["pending"], only(found)["undelivered"]) == (1, 0)


def test_a_write_that_was_never_logged_is_told(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    ten_rows(shop)
    shop.source.run("SET sql_log_bin = 0", "UPDATE t SET n = 99 WHERE id = 7", "SET sql_log_bin = 1")
    shop.target("UPDATE t SET n = 99 WHERE id = 7")
    code, found = shop.delivered(capsys)
    assert (code, only(found)["unlogged"]) == (3, 1)
    assert "without a trace in the binlog" in found["reasons"][0]


def test_a_target_that_lags_is_no_mismatch_until_somebody_says_so(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    ten_rows(shop)
    shop.source.run("INSERT INTO t VALUES (200, 'x', 1)", "INSERT INTO t VALUES (201, 'x', 1)")
    code, found = shop.delivered(capsys, applied=False)
    assert (code, found["verdict"]) == (3, "INCONCLUSIVE")
    assert "may lag" in " ".join(found["reasons"])
    assert [d["key"] for d in only(found)["diffs"]] == [["200"], ["201"]]
    assert shop.delivered(capsys, applied=True)[0] == 1
    shop.target("INSERT INTO t VALUES (201, 'x', 1)")  # a later one arrived, so the earlier one is lost
    assert shop.delivered(capsys, applied=False)[0] == 1


def test_routes_and_renames_lead_to_the_target(
    shop: Shop, pair: LabServers, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.source.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    other = quote_name(shop.name)
    with connect(pair.target) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {other}.elsewhere (id BIGINT PRIMARY KEY, value_of DECIMAL(10,2))")
        cursor.execute(f"INSERT INTO {other}.elsewhere VALUES (1, 1), (2, 3)")
    shop.configure(
        routes=[{"from": f"{shop.name}.t", "to": f"{shop.name}.elsewhere"}],
        overrides=[{"table": f"{shop.name}.t", "rename": {"v": "value_of"}}],
    )
    code, found = shop.delivered(capsys)
    assert code == 1
    assert [(d["key"], d["columns"][0]["column"]) for d in only(found)["diffs"]] == [(["2"], "v")]


def test_compressed_tagged_and_xa_transactions_add_up(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.source.run("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", "SET SESSION binlog_transaction_compression = ON",
                    "INSERT INTO t VALUES (1, REPEAT('x', 1000)), (2, 'y')",
                    "SET SESSION binlog_transaction_compression = OFF", "SET gtid_next = 'AUTOMATIC:audit'",
                    "INSERT INTO t VALUES (3, 'tagged')", "SET gtid_next = 'AUTOMATIC'", "XA START 'a'",
                    "INSERT INTO t VALUES (4, 'xa')", "XA END 'a'", "XA PREPARE 'a'", "XA COMMIT 'a'")  # fmt: skip
    code, found = shop.audit(capsys)
    one = found["sources"][0]
    assert (code, one["reasons"]) == (0, [])
    assert one["tables"][f"{shop.name}.t"] == {"insert": 4}
    assert {"TRANSACTION_PAYLOAD", "GTID_TAGGED", "XA_PREPARE"} <= set(one["events"])
    whole, found = shop.audit(capsys, since=None)  # from the oldest log, by file and offset
    assert whole == 0
    assert found["sources"][0]["transactions"] > one["transactions"]
    files, found = shop.audit(capsys, since=None, file=shop.source.files())
    assert (files, found["sources"][0]["bytes_of_files"]) == (0, found["sources"][0]["bytes_read"])
