"""The lab's reverse feed on the real pair: MySQL follows TiDB, and differs by what a fault says, and nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from migverify.changes.carriers.base import Carried, Watermark
from migverify.changes.positions import tso_position
from migverify.model import DiffKind, Verdict
from migverify.store.open import open_store
from migverify_lab import kafka
from migverify_lab.feed.run import ReverseFeed, feed
from migverify_lab.museum import TABLES
from migverify_lab.replicator_faults import RowDifference
from migverify_lab.replicator_target import drop_checkpoint
from migverify_lab.session import connect
from migverify_lab.workload import Workload, WorkloadOptions, create
from tests.conftest import Databases
from tests.db.verifying import Ending, all_diffs, verify, write_config

pytestmark = pytest.mark.db

FORMATS = ("canal-json", "open-protocol")
ACCOUNTS = 100
CORPUS = [table for table in TABLES if table.key and not table.wide and table.target_name is None]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.Broker]:
    pytest.importorskip("confluent_kafka")
    with kafka.broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture
def mirrored(databases: Databases) -> Iterator[Databases]:
    """A database on both sides; the applier of this test is called like it."""
    yield databases
    with connect(databases.pair.source) as connection:
        drop_checkpoint(connection, databases.name)


def carry(mirrored: Databases, folder: Path, **options: Any) -> Any:
    chosen = {"tables": [f"{mirrored.name}.*"], "name": mirrored.name, **options}
    return feed(mirrored.pair, folder / "feed", **chosen)


def verified(folder: Path, mirrored: Databases) -> tuple[Ending, list[RowDifference]]:
    """Verify all tables; returns how it ended and the differences."""
    ended = verify(write_config(folder, mirrored.pair, mirrored.name))
    store = open_store(f"sqlite:///{folder / 'runs.db'}")
    try:
        found = [
            RowDifference(ended.results[pair].source.split("@")[0], diff.key, diff.kind,
                          tuple(column.column for column in diff.columns)
                          if diff.kind is DiffKind.VALUE_DIFFERS else ())
            for pair in ended.results for diff in all_diffs(store, ended.run_id, pair) if diff.state == "diverged"
        ]  # fmt: skip
    finally:
        store.close()
    return ended, found


def assert_only(folder: Path, mirrored: Databases, expected: list[RowDifference]) -> None:
    """Verify: exactly these rows differ, in exactly these columns."""
    ended, found = verified(folder, mirrored)
    assert ended.verdict is (Verdict.MISMATCH if expected else Verdict.MATCH), ended.reasons

    def sorted_differences(some: list[RowDifference]) -> list[tuple[str, ...]]:
        return sorted((one.table, str(one.key), one.kind.value, str(sorted(one.columns))) for one in some)

    assert sorted_differences(found) == sorted_differences(expected)


# --- MySQL follows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", FORMATS)
@pytest.mark.parametrize("out", ["files", "kafka"])
def test_every_row_of_the_corpus_arrives(
    mirrored: Databases, broker: kafka.Broker, tmp_path: Path, protocol: str, out: str
) -> None:
    for side, run in (("source", mirrored.source), ("target", mirrored.target)):
        run(*(table.create_statement(side, mirrored.name) for table in CORPUS))
    options = {"servers": broker.servers, "topic": f"{mirrored.name}-{protocol}"} if out == "kafka" else {}
    rows = 0
    with carry(mirrored, tmp_path, protocol=protocol, out=out, **options) as running:
        for table in CORPUS:
            for statement in table.insert_statements("target", mirrored.name):
                running.write(statement)
            rows += len(table.rows)
        running.drain()
        assert running.emitter.rows == rows >= 500
    ended, found = verified(tmp_path, mirrored)
    assert (ended.verdict, found) == (Verdict.MATCH, []), ended.reasons


@pytest.mark.parametrize("protocol", FORMATS)
def test_a_load_of_several_connections_arrives(mirrored: Databases, tmp_path: Path, protocol: str) -> None:
    pair = mirrored.pair
    create((pair.source, pair.target), mirrored.name, ACCOUNTS, seed=3)
    with carry(mirrored, tmp_path, protocol=protocol, old="changed") as running:
        options = WorkloadOptions(pair.target, mirrored.name, 0.0, 3000, 3, accounts=ACCOUNTS, seed=3, hot=0.3)
        result = Workload(options, open_connection=running.connect).run()
        running.drain()
        assert running.emitter.rows == result.changes
    assert_only(tmp_path, mirrored, [])


def test_rows_that_others_write_are_carried_from_snapshots(mirrored: Databases, tmp_path: Path) -> None:
    mirrored.both("CREATE TABLE small (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO small VALUES (1, 'a')",
                  "CREATE TABLE written (id INT PRIMARY KEY)")  # fmt: skip
    with carry(mirrored, tmp_path, polled=[f"{mirrored.name}.small"]) as running:
        running.write(f"INSERT INTO {mirrored.name}.written VALUES (1)")
        mirrored.target("INSERT INTO small VALUES (2, 'b')", "UPDATE small SET v = 'c' WHERE id = 1")
        running.drain()
        assert mirrored.source("SELECT id, v FROM small ORDER BY id") == [(1, "c"), (2, "b")]
        mirrored.target("DELETE FROM small WHERE id = 1")
        running.drain()
        assert mirrored.source("SELECT id FROM small") == [(2,)]
        assert mirrored.source("SELECT id FROM written") == [(1,)]


def test_a_watermark_waits_for_the_transaction_under_way(mirrored: Databases, tmp_path: Path) -> None:
    mirrored.both("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    with carry(mirrored, tmp_path, apply=False) as running:
        slow = running.connect(database=mirrored.name)
        slow.begin()
        slow.query("INSERT INTO t VALUES (1, 1)")
        quick = [running.write(f"INSERT INTO {mirrored.name}.t VALUES ({number}, 0)") for number in (2, 3)]
        time.sleep(0.5)
        slow.query("UPDATE t SET v = 2 WHERE id = 1")
        commit = slow.commit()
        running.resolved()
        items = [item for path in running.paths for item in running.format.files([path]).read()]
    assert commit > max(quick)
    commits = [item.order.position.offset for item in items if isinstance(item, Carried) and item.order]
    assert sorted(commits) == sorted([*quick, commit])
    for path in running.paths:
        reached = 0
        for item in running.format.files([path]).read():
            if isinstance(item, Watermark):
                reached = item.complete_to
            elif isinstance(item, Carried):
                assert item.order is not None
                assert item.order.position.offset >= reached


def test_what_fails_is_not_carried_and_holds_nothing_back(mirrored: Databases, tmp_path: Path) -> None:
    mirrored.both("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    name = f"{mirrored.name}.t"
    with carry(mirrored, tmp_path) as running:
        running.write(f"INSERT INTO {name} VALUES (1, 1)")
        for statements in (
            (f"INSERT INTO {name} VALUES (2, 2)", f"INSERT INTO {name} VALUES (1, 2)"),
            (f"ALTER TABLE {name} DROP COLUMN nothing",),
        ):
            with pytest.raises(pymysql.err.MySQLError):
                running.write(*statements)
        running.write(f"UPDATE {name} SET v = 1")  # changes nothing
        running.drain()
        assert mirrored.source("SELECT id, v FROM t") == [(1, 1)]
        assert running.emitter.rows == 1


def test_keys_that_move_rows_that_come_and_go_and_ddl(mirrored: Databases, tmp_path: Path) -> None:
    mirrored.both("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(9), UNIQUE KEY (a))")
    name = f"{mirrored.name}.t"
    with carry(mirrored, tmp_path, protocol="open-protocol") as running:
        running.write(f"INSERT INTO {name} (a) VALUES ('x'), ('y'), ('z')")
        running.write(f"UPDATE {name} SET id = id + 10, a = CONCAT(a, '!') WHERE a <> 'x'",
                      f"INSERT INTO {name} VALUES (7, 'gone')", f"DELETE FROM {name} WHERE id = 7")  # fmt: skip
        running.write(f"ALTER TABLE {name} ADD COLUMN w INT")
        running.write(f"REPLACE INTO {name} VALUES (1, 'x', 5), (2, 'y', 6)",
                      f"INSERT INTO {name} VALUES (1, 'q', 0) ON DUPLICATE KEY UPDATE w = w + 1")  # fmt: skip
        running.drain()
        rows = mirrored.source("SELECT id, a, w FROM t ORDER BY id")
        assert rows == [(1, "x", 6), (2, "y", 6), (12, "y!", None), (13, "z!", None)]
    assert_only(tmp_path, mirrored, [])


def test_an_applier_that_starts_again_goes_on_at_its_checkpoint(
    mirrored: Databases, broker: kafka.Broker, tmp_path: Path
) -> None:
    mirrored.both("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    options = {"out": "kafka", "servers": broker.servers, "topic": mirrored.name}
    with carry(mirrored, tmp_path, **options) as running:
        running.write(f"INSERT INTO {mirrored.name}.t VALUES (1, 1), (2, 2)")
        running.drain()
    with carry(mirrored, tmp_path, **options) as running:
        running.write(f"UPDATE {mirrored.name}.t SET v = 3 WHERE id = 1")
        running.drain()
        assert running.applier is not None
        assert running.applier.status.changes == 1
    assert_only(tmp_path, mirrored, [])


# --- faults -------------------------------------------------------------------------------------------------------


def prepare(mirrored: Databases, running: ReverseFeed) -> None:
    rows = ", ".join(f"({n}, 'text {n}', 'other {n}', '2024-01-01 00:00:0{n % 10}')" for n in range(30))
    running.write(f"INSERT INTO {mirrored.name}.t VALUES {rows}")
    running.drain()


def work(mirrored: Databases, running: ReverseFeed) -> None:
    """Change some rows twice, add some, delete some."""
    name = f"{mirrored.name}.t"
    for n in range(8):
        running.write(f"UPDATE {name} SET a = CONCAT(a, ' changed') WHERE id = {n}")
        running.write(f"UPDATE {name} SET a = CONCAT(a, '!'), at = '2025-01-01 00:00:00' WHERE id = {n}")
    running.write(f"INSERT INTO {name} VALUES (100, 'new', 'row', '2024-06-01 00:00:00')",
                  f"DELETE FROM {name} WHERE id = 20")  # fmt: skip


FAULTS = [
    ("message-lost:every=3", 1), ("out-of-order:every=5", 1), ("row-not-applied:every=4", 1),
    ("checkpoint-ahead:every=1,most=3", 1), ("wrong-time-zone", 8), ("truncated-column:every=2", 1),
    ("dropped-column:every=3", 1), ("message-duplicated:every=2", 0), ("across-keys:every=1", 0),
    ("split-partition:every=2", 0),
]  # fmt: skip


@pytest.mark.attack(
    "lab feed", "each fault of the feed is switched on",
    "exactly the rows that it records differ, by a verification of all rows",
)  # fmt: skip
@pytest.mark.parametrize(("fault", "least"), FAULTS)
def test_a_fault_leaves_what_it_records(mirrored: Databases, tmp_path: Path, fault: str, least: int) -> None:
    mirrored.both("CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(40), b VARCHAR(40), at TIMESTAMP NULL)")
    with carry(mirrored, tmp_path) as running:
        prepare(mirrored, running)
        running.fault(fault)
        work(mirrored, running)
        running.drain()
        assert running.faults_done
        standing = running.standing()
        assert len(standing) >= least
        assert bool(standing) == bool(least)
        assert_only(tmp_path, mirrored, standing)
        running.fault_off(fault.partition(":")[0])
        running.write(f"UPDATE {mirrored.name}.t SET b = CONCAT(b, ' again'), a = 'x'")
        running.drain()
        assert all(one.kind is not DiffKind.MISSING_ON_SOURCE for one in running.standing())
        again = tmp_path / "again"
        again.mkdir()
        assert_only(again, mirrored, running.standing())


def test_a_stalled_applier_applies_nothing_and_goes_on(mirrored: Databases, tmp_path: Path) -> None:
    mirrored.both("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    with carry(mirrored, tmp_path) as running:
        running.fault("stalled")
        commit = running.write(f"INSERT INTO {mirrored.name}.t VALUES (1, 1)")
        assert running.applier is not None
        running.applier.wait_until(tso_position(commit))
        running.write(f"INSERT INTO {mirrored.name}.t VALUES (2, 2)")
        running.resolved()
        time.sleep(0.5)
        assert running.applier.status.stalled
        assert mirrored.source("SELECT id FROM t") == [(1,)]
        running.fault_off("stalled")
        running.drain()
        assert mirrored.source("SELECT id FROM t") == [(1,), (2,)]


def test_a_ddl_that_is_not_carried_leaves_its_column_behind(mirrored: Databases, tmp_path: Path) -> None:
    mirrored.both("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    name = f"{mirrored.name}.t"
    with carry(mirrored, tmp_path) as running:
        running.fault("ddl-not-carried")
        running.write(f"INSERT INTO {name} VALUES (1, 1)")
        running.write(f"ALTER TABLE {name} ADD COLUMN w INT")
        running.write(f"INSERT INTO {name} VALUES (2, 2, 2)")
        running.drain()
        (done,) = running.faults_done
        assert (done.table, done.sql) == (name, f"ALTER TABLE {name} ADD COLUMN w INT")
        assert mirrored.source("SELECT * FROM t ORDER BY id") == [(1, 1), (2, 2)]


def test_a_client_that_writes_to_the_old_side(mirrored: Databases, tmp_path: Path) -> None:
    mirrored.both("CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(40), b VARCHAR(40), at TIMESTAMP NULL)")
    with carry(mirrored, tmp_path) as running:
        prepare(mirrored, running)
        running.fault(f"old-side-writer:table={mirrored.name}.t,most=4")
        assert [len(done.columns) for done in running.faults_done] == [1] * 4
        assert_only(tmp_path, mirrored, running.standing())


@pytest.mark.attack(
    "lab feed", "writers commit on threads while watermarks are sent",
    "no watermark is ahead of a commit that follows it",
)  # fmt: skip
def test_writers_on_threads_never_see_a_watermark_ahead_of_them(mirrored: Databases, tmp_path: Path) -> None:
    mirrored.both("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    commits: list[int] = []
    with carry(mirrored, tmp_path, apply=False, interval=0.01) as running:

        def write(number: int) -> None:
            with running.connect(database=mirrored.name) as connection:
                for turn in range(20):
                    connection.begin()
                    connection.query(f"REPLACE INTO t VALUES ({number}, {turn})")
                    commits.append(connection.commit())

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        running.resolved()
        for path in running.paths:
            reached = 0
            for item in running.format.files([path]).read():
                if isinstance(item, Watermark):
                    reached = item.complete_to
                elif isinstance(item, Carried):
                    assert item.order is not None
                    assert item.order.position.offset >= reached
                    commits.remove(item.order.position.offset)
    assert commits == []
