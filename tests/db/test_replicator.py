"""The lab's load and its replicator on the real pair: what is applied is equal, what a fault did is what is found."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from migverify.db.session import open_session
from migverify.errors import LabError
from migverify.model import DiffKind, Verdict
from migverify.store.open import open_store
from migverify.watch.applied import CheckpointTable
from migverify.watch.ledger import ordinal_of
from migverify_lab.replicator import Replicator, ReplicatorOptions
from migverify_lab.replicator_faults import RowDifference
from migverify_lab.replicator_process import (
    ReplicatorProcess,
    make_replicator,
    running_replicator,
    source_position,
)
from migverify_lab.replicator_rules import parse_fault
from migverify_lab.replicator_target import TargetWriter, drop_checkpoint, read_checkpoint
from migverify_lab.session import connect
from migverify_lab.workload import Workload, WorkloadOptions, create
from tests.conftest import Databases
from tests.db.verifying import Ending, all_diffs, execute, verify, write_config
from tests.table_pairs import endpoint

pytestmark = pytest.mark.db

ACCOUNTS = 200


@pytest.fixture
def pay(databases: Databases) -> Iterator[Databases]:
    """The payment tables on both sides; the replicator of this test is called like the database."""
    create((databases.pair.source, databases.pair.target), databases.name, ACCOUNTS, seed=3)
    yield databases
    with connect(databases.pair.target) as connection:
        drop_checkpoint(connection, databases.name)


def load(pay: Databases, changes: int, *, rate: float = 0.0, seed: int = 3, connections: int = 2) -> Workload:
    return Workload(WorkloadOptions(pay.pair.source, pay.name, rate, changes, connections, accounts=ACCOUNTS, seed=seed,
                                    hot=0.3))  # fmt: skip


def options(pay: Databases, *faults: str, **more: object) -> ReplicatorOptions:
    return ReplicatorOptions(pay.pair.target, (pay.name,), name=pay.name, faults=tuple(map(parse_fault, faults)),
                             **more)  # type: ignore[arg-type]  # fmt: skip


@contextmanager
def replicated(pay: Databases, *faults: str, **more: object) -> Iterator[Replicator]:
    """Replicate what the block writes; caught up at its end."""
    since = source_position(pay.pair.source)
    with running_replicator(pay.pair.source, options(pay, *faults, since=since, **more)) as replicator:
        yield replicator
        replicator.wait_until(source_position(pay.pair.source), 120)


Found: TypeAlias = set[tuple[str, tuple[str | None, ...], str, frozenset[str]]]


def verified(folder: Path, pay: Databases) -> tuple[Ending, Found]:
    """Verify all tables; returns how it ended and each difference: table, key, kind, columns."""
    config = write_config(folder, pay.pair, pay.name)
    ended = verify(config)
    store = open_store(f"sqlite:///{folder / 'runs.db'}")
    try:
        found = {
            (ended.results[pair].source.split("@")[0], diff.key, diff.kind.value,
             frozenset(column.column for column in diff.columns)
             if diff.kind is DiffKind.VALUE_DIFFERS else frozenset())
            for pair in ended.results for diff in all_diffs(store, ended.run_id, pair) if diff.state == "diverged"
        }  # fmt: skip
    finally:
        store.close()
    return ended, found


def expected(differences: list[RowDifference]) -> Found:
    return {(one.table, one.key, one.kind.value, frozenset(one.columns)) for one in differences}


# --- the load -----------------------------------------------------------------------------------------------------


def test_money_adds_up_and_a_second_load_goes_on(pay: Databases) -> None:
    first = load(pay, 1000).run()
    before = pay.source("SELECT COUNT(*), MAX(id) FROM ledger_entries")[0]
    result = load(pay, 1000).run()
    assert 1000 <= min(first.changes, result.changes) <= max(first.changes, result.changes) < 1200
    after = pay.source("SELECT COUNT(*), MAX(id) FROM ledger_entries")[0]
    assert after[0] > before[0]
    assert after[1] > before[1]
    unbalanced = pay.source("SELECT payment_id FROM ledger_entries GROUP BY payment_id, currency HAVING SUM(amount)<>0")
    assert unbalanced == []
    wrong = pay.source(
        "SELECT w.account_id FROM wallets w JOIN ledger_entries e USING (account_id, currency)"
        " GROUP BY w.account_id, w.currency, w.balance, w.version"
        " HAVING SUM(e.amount) <> w.balance OR COUNT(*) <> w.version"
    )
    assert wrong == []
    without = pay.source(
        "SELECT COUNT(*) FROM ledger_entries e LEFT JOIN wallets w USING (account_id, currency) WHERE w.version IS NULL"
    )
    assert without[0][0] == 0
    states = {row[0] for row in pay.source("SELECT DISTINCT state FROM payments")}
    assert states == {"created", "authorized", "captured", "settled", "failed", "refunded"}
    orphans = pay.source("SELECT COUNT(*) FROM payments WHERE state = 'captured' AND id NOT IN"
                         " (SELECT payment_id FROM ledger_entries WHERE kind = 'capture')")  # fmt: skip
    assert orphans[0][0] == 0


def test_the_same_seed_writes_the_same_rows(pay: Databases) -> None:
    def checksums() -> list[tuple[object, ...]]:
        create((pay.pair.source,), pay.name, ACCOUNTS, seed=3)
        load(pay, 600).run()
        return pay.source("CHECKSUM TABLE accounts, wallets, payments, ledger_entries, outbox")

    assert checksums() == checksums()


def test_the_load_stops_when_told_and_refuses_foreign_tables(pay: Databases) -> None:
    endless = load(pay, 1 << 40, rate=500.0)
    timer = threading.Timer(1.0, endless.stop)
    timer.start()
    result = endless.run()
    assert 0 < result.changes < 5000
    assert pay.source("SELECT payment_id FROM ledger_entries GROUP BY payment_id, currency HAVING SUM(amount)<>0") == []
    pay.source("DELETE FROM accounts WHERE payments_count > 0")
    with pytest.raises(LabError, match="accounts"):
        load(pay, 100).run()


# --- replication --------------------------------------------------------------------------------------------------


def test_what_is_replicated_is_equal(pay: Databases, tmp_path: Path) -> None:
    with replicated(pay) as replicator:
        load(pay, 3000).run()
    ended, _ = verified(tmp_path, pay)
    assert ended.verdict is Verdict.MATCH, ended.reasons
    assert replicator.status.changes >= 3000
    assert sum(result.rows_target or 0 for result in ended.results.values()) > 1000


FAULTS = [
    ("skip:every=150", "drop-column:every=100"),
    ("twice:every=150", "wrong-time-zone:every=400"),
    ("out-of-order:every=30",),
    ("drop-column:every=20,table=payments,column=state", "skip:at=30,table=ledger_entries"),
]


@pytest.mark.parametrize("faults", FAULTS)
def test_faults_make_the_differences_that_they_print(pay: Databases, tmp_path: Path, faults: tuple[str, ...]) -> None:
    with replicated(pay, *faults) as replicator:
        load(pay, 2000).run()
    standing = replicator.injector.standing()
    assert standing
    assert {done.fault for done in replicator.faults_done} == {fault.partition(":")[0] for fault in faults}
    ended, found = verified(tmp_path, pay)
    assert ended.verdict is Verdict.MISMATCH
    assert found == expected(standing)


def test_every_type_is_applied_exactly(databases: Databases, tmp_path: Path) -> None:
    databases.both(
        "CREATE TABLE types (id BIGINT UNSIGNED PRIMARY KEY, i1 TINYINT, i2 INT UNSIGNED, n DECIMAL(65,30), f FLOAT,"
        " d DOUBLE, b BIT(10), c CHAR(9), v VARCHAR(50), l VARCHAR(50) CHARACTER SET latin1 COLLATE latin1_bin,"
        " x VARBINARY(20), y BINARY(4), t TEXT, bl BLOB, j JSON, e ENUM('a','it''s','é'), s SET('p','q'), dt DATE,"
        " tm TIME(3), ts TIMESTAMP(6) NULL, da DATETIME(6), ye YEAR, g INT AS (i1 + 1) STORED)"
    )
    columns = "id,i1,i2,n,f,d,b,c,v,l,x,y,t,bl,j,e,s,dt,tm,ts,da,ye"
    rows = (
        r"""(18446744073709551615,-128,4294967295,-99999999999999999999999999999999999.999999999999999999999999999999,
        1.1,1e300,b'1000000001','a','it''s \\ \n 🎈','é€',x'00ff27','a','tab\t',x'','{"k": [1, 1.5, null, "\\""]}',
        'it''s','p,q','2024-02-29','-838:59:59.000','2038-01-19 03:14:07.999999','9999-12-31 23:59:59.999999',1901)""",
        "(1,0,0,0.1,16777217,-0.1,b'0','','','',x'',x'','',x'5c27','[]','é','','0000-00-00','00:00:00.001',"
        "'1970-01-01 00:00:01','2024-01-00 00:00:00',0)",
        "(2" + ",NULL" * 21 + ")",
        """(3,1,1,1,3.4028e38,5e-324,b'1','  x','0x41','0x',x'3078','','NULL',x'00','"text"','a','q','1000-01-01',
        '838:59:59.999','2026-06-01 00:00:00','1000-01-01 00:00:00.000001',2155)""",
    )
    name = databases.name
    try:
        with replicated(databases):
            databases.source("SET SESSION sql_mode='', time_zone='+00:00'",
                             *(f"INSERT INTO types ({columns}) VALUES {row}" for row in rows),
                             "UPDATE types SET v=CONCAT(v,'+'), f=f/3, d=d/3 WHERE id<>2",
                             "UPDATE types SET id=9 WHERE id=1")  # fmt: skip
        ended, found = verified(tmp_path, databases)
        assert found == set()
        assert ended.verdict is Verdict.MATCH, ended.reasons
    finally:
        with connect(databases.pair.target) as connection:
            drop_checkpoint(connection, name)


def test_statements_and_tables_without_keys(pay: Databases, tmp_path: Path) -> None:
    with replicated(pay) as replicator:
        pay.source(
            "CREATE TABLE bag (a INT, b VARCHAR(20), c DOUBLE) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
            "INSERT INTO bag VALUES (1,'x',0.1),(1,'x',0.1),(1,'X ',0.1),(2,NULL,NULL),(3,'z',1e20)",
            "UPDATE bag SET b='y' WHERE a=1 LIMIT 1", "DELETE FROM bag WHERE a=2",
            "ALTER TABLE bag ADD COLUMN d INT NOT NULL DEFAULT 7",
            "INSERT INTO bag VALUES (4,'w',2,8)", "TRUNCATE TABLE outbox",
            "CREATE TABLE gone (a INT PRIMARY KEY)", "INSERT INTO gone VALUES (1)", "DROP TABLE gone",
        )  # fmt: skip
        load(pay, 500).run()
    ended, found = verified(tmp_path, pay)
    assert (ended.verdict, found) == (Verdict.MATCH, set()), ended.reasons
    assert ended.results[f"{pay.name}.bag"].rows_target == 5
    assert replicator.status.at is not None


def test_values_of_a_unique_index_change_hands(pay: Databases, tmp_path: Path) -> None:
    pay.both("CREATE TABLE seats (id INT PRIMARY KEY, seat INT UNIQUE)", "INSERT INTO seats VALUES (1,1),(2,2),(3,3)")
    with replicated(pay):
        pay.source(
            "BEGIN", "UPDATE seats SET seat=NULL WHERE id=1", "UPDATE seats SET seat=1 WHERE id=2",
            "UPDATE seats SET seat=2 WHERE id=1", "COMMIT", "DELETE FROM seats WHERE id=3",
            "INSERT INTO seats VALUES (4,3)", "UPDATE seats SET seat=5 WHERE id=4", "INSERT INTO seats VALUES (3,3)",
        )  # fmt: skip
    assert verified(tmp_path, pay)[0].verdict is Verdict.MATCH


# --- how it stops and goes on -------------------------------------------------------------------------------------


def test_a_killed_replicator_goes_on_exactly_where_it_was(pay: Databases, tmp_path: Path) -> None:
    """Killed twice under load; a table without a key would show anything applied twice or not at all."""
    pay.both("CREATE TABLE bag (a BIGINT, b VARCHAR(20))")
    process = ReplicatorProcess(pay.pair.source, pay.pair.target, [pay.name], pay.name)
    process.start()
    process.wait_until(source_position(pay.pair.source))
    writing = load(pay, 6_000, rate=1500.0)
    thread = threading.Thread(target=writing.run)
    thread.start()
    number = 0
    for _ in range(2):
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            number += 1
            pay.source(f"INSERT INTO bag VALUES ({number}, 'x'), ({number}, 'x')",
                       f"DELETE FROM bag WHERE a = {number} LIMIT 1")  # fmt: skip
        process.kill()
        process.start()
    thread.join()
    process.wait_until(source_position(pay.pair.source), 120)
    assert process.stop() == 0
    ended, found = verified(tmp_path, pay)
    assert (ended.verdict, found) == (Verdict.MATCH, set()), ended.reasons
    assert ended.results[f"{pay.name}.bag"].rows_target == number
    with connect(pay.pair.target) as connection:
        checkpoint = read_checkpoint(connection, pay.name)
    assert checkpoint is not None
    assert str(checkpoint.at) == process.ending["applied"]
    with open_session(endpoint("target", pay.pair.target), None) as session:
        told = CheckpointTable("migverify_lab.replicator_checkpoint", pay.name).ordinal(session)
    assert told == ordinal_of(checkpoint.at), "what the watch reads"


class CutOffError(Exception):
    """Stands for the kill."""


def cut_off(_: TargetWriter) -> None:
    raise CutOffError


def cut_off_before(monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    """End each replicator when a transaction that holds a statement is due."""
    whole = TargetWriter._transaction

    def part(self: TargetWriter, texts: list[str]) -> None:
        if any(statement in text for text in texts):
            self.connection.begin()
            for text in texts[: len(texts) // 2]:  # written, and never committed
                self.connection.query(text)
            raise CutOffError
        whole(self, texts)

    monkeypatch.setattr(TargetWriter, "_transaction", part)


def test_a_kill_in_the_middle_of_a_batch(
    pay: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """A batch is applied whole or not at all, and once; shown by tables without keys."""
    bags = [f"bag{number}" for number in range(8)]
    pay.both(*(f"CREATE TABLE {bag} (a BIGINT)" for bag in bags), "CREATE TABLE last (a BIGINT PRIMARY KEY)")
    since = source_position(pay.pair.source)
    rows = ",".join(f"({n})" for n in range(100))
    pay.source("BEGIN", *(f"INSERT INTO {bag} VALUES {rows}" for bag in bags), "COMMIT",
               "BEGIN", *(f"DELETE FROM {bag} WHERE a < 30" for bag in bags), "COMMIT")  # fmt: skip
    with monkeypatch.context() as patch:
        cut_off_before(patch, "bag")
        replicator = make_replicator(pay.pair.source, options(pay, since=since))
        replicator.start()
        with pytest.raises(LabError, match="CutOffError"):
            replicator.wait_until(source_position(pay.pair.source), 30)
        replicator.end()
    applied = [pay.target(f"SELECT COUNT(*) FROM {bag}")[0][0] for bag in bags]
    assert not any(applied), "nothing of it was committed"
    pay.source("INSERT INTO last VALUES (1)", f"INSERT INTO bag0 VALUES {rows}", f"INSERT INTO bag1 VALUES {rows}")
    # Small batches now: they end elsewhere than those of the run that was cut off.
    with running_replicator(pay.pair.source, options(pay, batch_rows=1)) as again:
        again.wait_until(source_position(pay.pair.source), 60)
    ended, found = verified(tmp_path, pay)
    assert (ended.verdict, found) == (Verdict.MATCH, set()), ended.reasons


def test_a_kill_between_a_ddl_and_its_checkpoint(
    pay: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    with replicated(pay):
        pay.source("CREATE TABLE fresh (a INT PRIMARY KEY)")
    with monkeypatch.context() as patch:
        patch.setattr(TargetWriter, "forget", cut_off)  # the step after the statement
        replicator = make_replicator(pay.pair.source, options(pay))
        pay.source("ALTER TABLE fresh ADD COLUMN b INT", "INSERT INTO fresh VALUES (1, 2)")
        replicator.start()
        with pytest.raises(LabError, match="CutOffError"):
            replicator.wait_until(source_position(pay.pair.source), 30)
        replicator.end()
    assert {row[0] for row in pay.target("SHOW COLUMNS FROM fresh")} == {"a", "b"}
    with running_replicator(pay.pair.source, options(pay)) as again:
        again.wait_until(source_position(pay.pair.source), 60)
    assert verified(tmp_path, pay)[0].verdict is Verdict.MATCH
    pay.target("ALTER TABLE fresh ADD COLUMN c INT")
    with running_replicator(pay.pair.source, options(pay)) as replicator:
        pay.source("ALTER TABLE fresh ADD COLUMN c INT")
        with pytest.raises(LabError, match="refuses 'ALTER TABLE fresh"):
            replicator.wait_until(source_position(pay.pair.source), 30)
        replicator.failure = None  # only what was applied before counts as done; this was somebody else's doing


def test_the_command_prints_faults_and_what_stands(pay: Databases, tmp_path: Path) -> None:
    mirror = tmp_path / "position.json"
    arguments = ["--fault", "skip:at=50,table=ledger_entries", "--checkpoint", str(mirror)]
    process = ReplicatorProcess(pay.pair.source, pay.pair.target, [pay.name], pay.name, arguments)
    process.start()
    process.wait_until(source_position(pay.pair.source))
    load(pay, 1000).run()
    process.wait_until(source_position(pay.pair.source), 60)
    assert process.stop() == 0
    assert "FOR REHEARSALS ONLY" in "".join(process.messages)
    assert [fault["fault"] for fault in process.faults_done] == ["skip"]
    fault = process.faults_done[0]
    assert fault["table"] == f"{pay.name}.ledger_entries"
    assert process.ending["faults"] == {"skip": 1}
    [stands] = process.ending["standing"]
    assert (stands["key"], stands["kind"]) == ([fault["key"]["id"]], "missing_on_target")
    position = json.loads(mirror.read_text())
    assert f"{position['file']}:{position['offset']}" == process.ending["applied"]
    _, found = verified(tmp_path, pay)
    assert found == {(fault["table"], (fault["key"]["id"],), "missing_on_target", frozenset())}


def test_it_stops_at_the_first_ddl(pay: Databases) -> None:
    process = ReplicatorProcess(pay.pair.source, pay.pair.target, [pay.name], pay.name, ["--fault", "stop-at-ddl:at=1"])
    process.start()
    process.wait_until(source_position(pay.pair.source))
    load(pay, 200).run()
    pay.source("ALTER TABLE accounts ADD COLUMN more INT")
    with pytest.raises(LabError, match="ended at"):
        process.wait_until(source_position(pay.pair.source), 30)
    assert process.stop() == 3
    # Everything before the statement is there; the server's end also holds what other tests write.
    entries = "SELECT COUNT(*), SUM(id) FROM ledger_entries"
    assert pay.target(entries) == pay.source(entries)
    assert "more" in process.faults_done[0]["sql"]
    assert "more" not in {row[0] for row in pay.target("SHOW COLUMNS FROM accounts")}
    again = make_replicator(pay.pair.source, options(pay))  # without the fault it goes on
    again.start()
    again.wait_until(source_position(pay.pair.source), 60)
    again.stop()
    assert "more" in {row[0] for row in pay.target("SHOW COLUMNS FROM accounts")}


def test_a_stalled_one_lives_and_applies_nothing(pay: Databases, tmp_path: Path) -> None:
    since = source_position(pay.pair.source)
    with running_replicator(pay.pair.source, options(pay, "stall:at=100", since=since)) as replicator:
        load(pay, 1000).run()
        with pytest.raises(LabError, match="is at"):
            replicator.wait_until(source_position(pay.pair.source), 2)
        assert replicator.running
        stalled_at = replicator.status.at
        load(pay, 300).run()
        assert replicator.status.at == stalled_at
    assert verified(tmp_path, pay)[0].verdict is Verdict.MISMATCH
    with running_replicator(pay.pair.source, options(pay)) as replicator:
        replicator.wait_until(source_position(pay.pair.source), 60)
    assert verified(tmp_path, pay)[0].verdict is Verdict.MATCH


def test_a_target_without_the_table_is_one_clear_error(pay: Databases) -> None:
    pay.target("DROP TABLE outbox")
    replicator = make_replicator(pay.pair.source, options(pay, since=source_position(pay.pair.source)))
    replicator.start()
    load(pay, 200).run()
    with pytest.raises(LabError, match=r"outbox does not exist on the target"):
        replicator.wait_until(source_position(pay.pair.source), 30)
    with pytest.raises(LabError):
        replicator.stop()
    execute(pay.pair.target, "SELECT 1")
