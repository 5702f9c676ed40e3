"""``changes audit`` on real servers: a whole stream is a match, one with a hole a mismatch."""

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
from migverify_lab.servers import LabServers
from tests.db.binlog_server import SourceServer, binlog_server
from tests.db.verifying import write_config

pytestmark = pytest.mark.db


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceServer]:
    with binlog_server(tmp_path_factory.mktemp("audited")) as found:
        yield found


class Shop:
    """A database on both sides; ``start`` is the set before its first table, rows go to the target by hand."""

    def __init__(self, source: SourceServer, pair: LabServers, name: str, folder: Path) -> None:
        self.source, self.folder, self.name = source, folder, name
        source.run(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", f"USE {name}")
        self.start = self.executed()
        self.path = write_config(folder, LabServers(source.server, pair.target), name)

    def executed(self) -> str:
        return str(self.source.run("SELECT @@GLOBAL.gtid_executed")[0][0]).replace("\n", "")

    def audit(self, capsys: pytest.CaptureFixture[str], **options: Any) -> tuple[int, dict[str, Any]]:
        code, output = self.command(capsys, as_json=True, **options)
        return code, json.loads(output)

    def command(self, capsys: pytest.CaptureFixture[str], **options: Any) -> tuple[int, str]:
        options = {"since": self.start, "config": self.path, **options}
        with pytest.raises(typer.Exit) as ending:
            audit(**options)
        return ending.value.exit_code, capsys.readouterr().out


@pytest.fixture
def shop(source: SourceServer, pair: LabServers, databases: Any, tmp_path: Path) -> Iterator[Shop]:
    yield Shop(source, pair, databases.name, tmp_path)
    source.run(f"DROP DATABASE {databases.name}")


def test_a_stream_is_complete(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.source.run("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), n INT)",
                    "INSERT INTO t VALUES " + ",".join(f"({i}, 'v{i}', {i})" for i in range(10)),
                    "UPDATE t SET v = 'changed' WHERE id < 3", "DELETE FROM t WHERE id IN (4, 5)",
                    "UPDATE t SET id = 100 WHERE id = 6")  # fmt: skip
    code, found = shop.audit(capsys)
    one = found["sources"][0]
    assert (code, found["verdict"]) == (0, "MATCH"), one["reasons"]
    assert one["tables"] == {f"{shop.name}.t": {"insert": 10, "update": 4, "delete": 2}}
    assert [change["sql"][:14] for change in one["schema_changes"]] == ["CREATE TABLE t"]
    code, text = shop.command(capsys)
    assert code == 0
    assert "the stream is complete" in text


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
    assert one["tables"][f"{shop.name}.t"]["insert"] == 2  # what precedes it is certain


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
