"""One moment per endpoint: all sessions of a snapshot see the same rows, also while others write."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from migverify.db import snapshot
from migverify.db.snapshot import open_snapshot
from migverify.errors import ConfigError, EndpointError
from migverify.model import Endpoint, Flavor
from migverify.recon.model import Dataset, QueryPart, TablePart
from migverify_lab.servers import LabServer
from migverify_lab.session import connect
from tests.conftest import Databases
from tests.db.decoding import DecodedServer, decoded_mariadb
from tests.db.test_recon_reads import PLACE, Desk, endpoint, table

pytestmark = pytest.mark.db


class Writer:
    """Adds rows on a thread of its own until the block ends."""

    def __init__(self, server: LabServer, database: str) -> None:
        self._server, self._database = server, database
        self._end = threading.Event()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with connect(self._server, self._database) as connection, connection.cursor() as cursor:
            while not self._end.is_set():
                cursor.execute("INSERT INTO t VALUES ()")
                self._begun.set()

    def __enter__(self) -> Writer:
        self._thread.start()
        assert self._begun.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def counts(found: snapshot.SnapshotSessions, database: str) -> list[str | None]:
    return [
        session.query(f"SELECT COUNT(*) FROM `{database}`.t")[0][0] for session in (*found.sessions, *found.sessions)
    ]


@pytest.mark.parametrize("side", ["source", "target"])
def test_all_sessions_see_one_state(databases: Databases, side: str) -> None:
    server = getattr(databases.pair, side)
    databases.both("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT)", "INSERT INTO t VALUES ()")
    probe = f"SELECT 1 FROM `{databases.name}`.t LIMIT 1"
    with open_snapshot(endpoint(side, server), {}, 3, probe) as quiet:
        assert len(set(counts(quiet, databases.name))) == 1
        getattr(databases, side)("INSERT INTO t VALUES ()")
        assert len(set(counts(quiet, databases.name))) == 1
    with Writer(server, databases.name), open_snapshot(endpoint(side, server), {}, 3, probe) as found:
        assert len(set(counts(found, databases.name))) == 1
        if found.sessions[0].flavor is Flavor.TIDB:
            assert found.snapshot.exact
            assert found.snapshot.position == found.snapshot.until
        elif not found.snapshot.exact:
            assert len(found.sessions) == 1, "several sessions saw several moments"
            assert found.snapshot.position != found.snapshot.until


@pytest.mark.parametrize("side", ["source", "target"])
def test_sessions_of_another_isolation_level_see_one_state_too(databases: Databases, side: str) -> None:
    databases.both("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT)", "INSERT INTO t VALUES ()")
    loose = replace(
        endpoint(side, getattr(databases.pair, side)), session=(("transaction_isolation", "READ-COMMITTED"),)
    )
    with open_snapshot(loose, {}, 1, f"SELECT 1 FROM `{databases.name}`.t LIMIT 1") as found:
        getattr(databases, side)("INSERT INTO t VALUES ()")
        assert counts(found, databases.name) == ["1", "1"]


def test_a_snapshot_that_is_configured_is_the_one_that_is_read(databases: Databases) -> None:
    databases.target("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT)", "INSERT INTO t VALUES ()")
    plain = endpoint("target", databases.pair.target)
    probe = f"SELECT 1 FROM `{databases.name}`.t LIMIT 1"
    with open_snapshot(plain, {}, 1, probe) as now:
        stamp = now.snapshot.position
    databases.target("INSERT INTO t VALUES ()")
    with open_snapshot(replace(plain, snapshot=stamp), {}, 2, probe) as then:
        assert counts(then, databases.name) == ["1"] * 4
        assert then.snapshot.position == stamp


def test_a_server_without_snapshots_is_read_in_one_transaction(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise EndpointError("target: tidb_snapshot=1 is not in force: reads see current data")

    databases.target("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT)")
    monkeypatch.setattr(snapshot, "check_snapshot", refuse)
    with open_snapshot(endpoint("target", databases.pair.target), {}, 3, "SELECT 1") as found:
        assert len(found.sessions) == 1
        assert found.snapshot.exact


# --- MariaDB ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def maria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DecodedServer]:
    with decoded_mariadb(tmp_path_factory.mktemp("maria")) as server:
        yield server


def maria_endpoint(maria: DecodedServer) -> Endpoint:
    return Endpoint("ledger", "127.0.0.1", int(maria.session.port), "root", connections=3)


def run(maria: DecodedServer, *statements: str) -> None:
    with maria.session.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


TYPES = """CREATE TABLE w.t (id BIGINT PRIMARY KEY, su SMALLINT UNSIGNED, zf INT(6) UNSIGNED ZEROFILL, d DECIMAL(20,4),
    dt DATE, dm DATETIME(6), ts TIMESTAMP(3) NULL, tm TIME(2), y YEAR, c CHAR(5), vc VARCHAR(20) CHARACTER SET latin1,
    tx TEXT, e ENUM('a','b,c'), s SET('x','y'), b BINARY(3), bl BLOB, bi BIT(10))"""
VALUES = """INSERT INTO w.t VALUES (1,65535,42,1.5,'2026-01-31','2026-01-31 12:00:00.000001','2026-01-31 12:00:00.5',
    '-01:02:03.25',2026,'c','é,','😀','b,c','x,y',x'0001',x'2c',513), (2,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,
    NULL,NULL,NULL,NULL,NULL,NULL,NULL)"""


def test_mariadb_agrees_with_tidb(databases: Databases, maria: DecodedServer, tmp_path: Path) -> None:
    run(maria, "SET NAMES utf8mb4", "SET time_zone='+00:00'", "DROP DATABASE IF EXISTS w",
        "CREATE DATABASE w CHARACTER SET utf8mb4", TYPES, VALUES)  # fmt: skip
    ours = f"`{databases.name}`.t"
    databases.target("SET time_zone='+00:00'", TYPES.replace("w.t", ours), VALUES.replace("w.t", ours))
    folder = tmp_path / "spill"
    folder.mkdir()
    desk = Desk({"ledger": maria_endpoint(maria), "target": endpoint("target", databases.pair.target)}, folder)
    ledger = Dataset("ledger", (TablePart("ledger", "w", "t"),), PLACE, key=("id",))
    asked = Dataset("asked", (QueryPart("ledger", "SELECT * FROM w.t"),), PLACE, key=("id",))
    for source in (ledger, asked):
        built = desk.build("same_rows", source, table(databases, "t", "target"))
        joined = desk.engine.join(built.source, built.target, built.keep)
        assert [p for batch in joined for p in batch] == []
        assert joined.totals.matched == 2
        assert [a.flavor for a in joined.snapshots] == ["mariadb", "tidb"]
        assert joined.snapshots[0].exact
        assert joined.snapshots[0].position.startswith("binlog.")
    run(maria, "UPDATE w.t SET vc='e' WHERE id=1")
    built = desk.build("same_rows", asked, table(databases, "t", "target"))
    assert [p.key for p in desk.join(built)[0]] == [("1",)]
    groups = desk.build("zero_sum", ledger, groups=("su",), amount="d")
    assert len(desk.join(groups)[0]) == 2
    run(maria, "ALTER TABLE w.t ADD f DOUBLE")
    databases.target("ALTER TABLE t ADD f DOUBLE")
    desk = Desk(desk.endpoints, folder)
    with pytest.raises(ConfigError, match="MariaDB has no exact text"):
        desk.build("same_rows", ledger, table(databases, "t", "target"))


def test_sessions_on_a_busy_mariadb_see_one_state(maria: DecodedServer) -> None:
    run(maria, "DROP DATABASE IF EXISTS w", "CREATE DATABASE w", "CREATE TABLE w.t (id INT PRIMARY KEY AUTO_INCREMENT)")
    at = maria_endpoint(maria)
    with Writer(LabServer(at.host, at.port, "root", "mariadb", ""), "w"), open_snapshot(at, {}, 3) as found:
        assert len(set(counts(found, "w"))) == 1
        assert found.snapshot.exact or len(found.sessions) == 1
