"""The reverse feed without servers: what statements touch, when timestamps are resolved, what faults do."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.changes.model import Texts
from migverify.errors import LabError, UsageError
from migverify.model import DiffKind
from migverify_lab.feed import canal, open_protocol, values
from migverify_lab.feed.emitter import Dispatch, Emitter
from migverify_lab.feed.faults import CarrierFaults, FeedFault, as_pair, change_of, parse_feed_fault
from migverify_lab.feed.model import DdlEvent, Event, FeedColumn, FeedTable, RowEvent
from migverify_lab.feed.options import FeedOptions
from migverify_lab.feed.polling import differences
from migverify_lab.feed.statements import Verb, WriteStatement, key_rows, parse_write
from migverify_lab.feed.writer import Timestamps
from migverify_lab.replicator_faults import Injector, RowDifference
from migverify_lab.workload_payments import Payments

TABLE = FeedTable.of("shop", "t", (
    FeedColumn("id", "int", "int", nullable=False, in_key=True, primary=True),
    FeedColumn("v", "varchar", "varchar(20)", charset="utf8mb4"),
))  # fmt: skip


def test_the_encoders_share_nothing_with_the_decoders() -> None:
    for module in (canal, open_protocol, values):
        tree = ast.parse(Path(module.__file__ or "").read_text())
        names = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        assert not [name for name in names if name.startswith("migverify.changes.carriers")], module


# --- statements ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("INSERT INTO `sh``op`.`t` VALUES (1, 'a, (b''c\\'d', x'00'), (-2, `f`(1, 2), NULL)",
         WriteStatement(Verb.INSERT, "sh`op", "t",
                        rows=(("1", "'a, (b''c\\'d'", "x'00'"), ("-2", "`f`(1, 2)", "NULL")))),
        ("insert into shop.t (v, id) values ('x', 3) on duplicate key update v = values(v)",
         WriteStatement(Verb.INSERT, "shop", "t", ("v", "id"), (("'x'", "3"),), may_replace=True)),
        ("REPLACE INTO t VALUES (1)", WriteStatement(Verb.REPLACE, "", "t", rows=(("1",),), may_replace=True)),
        ("UPDATE `shop`.t SET v = CONCAT(v, ' WHERE '), t.n = n + 1 WHERE id IN (SELECT 1) AND v <> ';'",
         WriteStatement(Verb.UPDATE, "shop", "t", where="id IN (SELECT 1) AND v <> ';'",
                        sets=(("v", "CONCAT(v, ' WHERE ')"), ("n", "n + 1")))),
        ("DELETE FROM `shop`.`t`;", WriteStatement(Verb.DELETE, "shop", "t")),
        ("TRUNCATE shop.t", WriteStatement(Verb.OTHER)),
    ],
)  # fmt: skip
def test_what_a_statement_writes(sql: str, expected: WriteStatement) -> None:
    assert parse_write(sql) == expected


@pytest.mark.parametrize(
    "sql",
    ["INSERT INTO t SELECT * FROM u", "UPDATE t SET v = 1 WHERE id > 1 LIMIT 3", "UPDATE a, b SET a.v = 1",
     "DELETE t FROM t JOIN u", "DELETE FROM t WHERE id > 0 LIMIT 1"],
)  # fmt: skip
def test_a_statement_whose_rows_cannot_be_told_is_refused(sql: str) -> None:
    with pytest.raises(LabError, match="cannot tell which rows"):
        parse_write(sql)


def test_keys_of_an_insert() -> None:
    named = parse_write("INSERT INTO t (v, ID) VALUES ('x', 3), ('y', 4)")
    assert key_rows(("id", "v"), ("id",), named) == [("3",), ("4",)]
    assert key_rows(("id", "v"), ("id",), parse_write("INSERT INTO t (v) VALUES ('x')")) is None
    assert key_rows(("id", "v"), ("id",), parse_write("INSERT INTO t VALUES (NULL, 'x')")) is None


def test_the_statements_of_the_load_are_understood() -> None:
    payments = Payments("`pay`", 0, 0, 100, 1, 0.1, 0, 1.0)
    tables = set()
    for _ in range(200):
        statements, _ = payments.transaction(50)
        for sql, _ in statements:
            found = parse_write(sql)
            assert found.verb is not Verb.OTHER
            assert found.rows or found.where
            tables.add((found.database, found.table))
    assert tables == {("pay", name) for name in ("accounts", "wallets", "payments", "ledger_entries", "outbox")}


# --- timestamps ---------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(("begin", "commit", "tick")), max_size=60), st.randoms())
def test_a_resolved_timestamp_never_runs_ahead_of_a_commit(steps: list[str], random: object) -> None:
    """A model of TiDB: timestamps grow; a transaction's commit is above its begin, which is behind its hold."""
    timestamps, clock, resolved = Timestamps(), 100, 0
    under_way: list[int] = []
    for step in steps:
        clock += 1
        if step == "begin":
            under_way.append(timestamps.hold())
        elif step == "commit" and under_way:
            hold = under_way.pop(random.randrange(len(under_way)))  # type: ignore[attr-defined]
            assert clock > resolved
            timestamps.see(clock)
            timestamps.release(hold)
        elif step == "tick":
            resolved = max(resolved, timestamps.resolved(clock))
            timestamps.see(clock)
    for hold in under_way:
        timestamps.release(hold)
    assert timestamps.resolved(clock) == clock


# --- sending ------------------------------------------------------------------------------------------------------


class Memory:
    """An output that keeps what it is given: events and timestamps by partition."""

    partitions = 3

    def __init__(self) -> None:
        self.sent: list[list[Event | int]] = [[] for _ in range(self.partitions)]

    def send(self, partition: int, events: Sequence[Event]) -> None:
        self.sent[partition] += events

    def resolve(self, timestamp: int) -> None:
        for partition in self.sent:
            partition.append(timestamp)

    def close(self) -> None:
        pass


def change(number: int, commit: int, before: str | None, after: str | None) -> RowEvent:
    images: list[Texts | None] = [None if text is None else (str(number), text) for text in (before, after)]
    return RowEvent(TABLE, commit, *images)


def test_rows_wait_for_the_watermark_and_come_in_the_order_of_their_commits() -> None:
    memory = Memory()
    emitter = Emitter(memory)
    emitter.report([change(1, 30, "b", "c"), change(1, 20, "a", "b")])
    emitter.report([change(1, 10, None, "a"), change(1, 50, "c", "d")])
    emitter.flush(40)
    emitter.flush(40)
    (with_rows,) = [partition for partition in memory.sent if len(partition) > 1]
    assert [getattr(one, "commit", one) for one in with_rows] == [10, 20, 30, 40]
    assert [partition for partition in memory.sent if partition is not with_rows] == [[40], [40]]
    emitter.flush(60)
    assert [getattr(one, "commit", one) for one in with_rows] == [10, 20, 30, 40, 50, 60]


@pytest.mark.parametrize("dispatch", Dispatch)
def test_a_row_stays_on_its_partition_and_a_ddl_goes_to_all(dispatch: Dispatch) -> None:
    memory = Memory()
    emitter = Emitter(memory, dispatch)
    emitter.report([change(number, commit, "a", "b") for number in range(20) for commit in (1, 3)])
    emitter.report([DdlEvent("shop", "t", "ALTER TABLE t ADD x INT", 2, 5)])
    emitter.flush(10)
    where: dict[Texts, set[int]] = {}
    for partition, sent in enumerate(memory.sent):
        assert [one.commit for one in sent if not isinstance(one, int)] == sorted(
            one.commit for one in sent if not isinstance(one, int))  # fmt: skip
        assert sum(isinstance(one, DdlEvent) for one in sent) == 1
        for one in sent:
            if isinstance(one, RowEvent):
                where.setdefault(one.key, set()).add(partition)
    assert all(len(partitions) == 1 for partitions in where.values())
    used = {partition for partitions in where.values() for partition in partitions}
    assert len(used) == (1 if dispatch is Dispatch.TABLE else 3)


def test_differences_of_snapshots() -> None:
    old: dict[Texts, Texts] = {("1",): ("1", "a"), ("2",): ("2", "b")}
    new: dict[Texts, Texts] = {("2",): ("2", "c"), ("3",): ("3", "d")}
    found = {(event.before, event.after) for event in differences(TABLE, old, new, 7)}
    assert found == {(("1", "a"), None), (("2", "b"), ("2", "c")), (None, ("3", "d"))}


# --- faults -------------------------------------------------------------------------------------------------------


def faulty(text: str) -> CarrierFaults:
    faults = CarrierFaults()
    faults.switch_on(parse_feed_fault(text))
    return faults


def test_a_lost_message_leaves_what_the_ledger_says_until_the_row_changes_again() -> None:
    faults = faulty("message-lost:at=2")
    sent = faults.deliver([change(1, 1, None, "a"), change(1, 2, "a", "b"), change(2, 3, None, "x")])
    assert [one.event.commit for one in sent] == [1, 3]
    assert faults.ledger.standing() == [RowDifference("shop.t", ("1",), DiffKind.VALUE_DIFFERS, ("v",))]
    (done,) = faults.faults_done
    assert (done.fault, done.key, done.columns) == ("message-lost", {"id": "1"}, ("v",))
    faults.switch_off(FeedFault.MESSAGE_LOST)
    faults.deliver([change(1, 4, "b", "c")])
    assert faults.ledger.standing() == []


def test_a_lost_insert_is_a_row_that_the_pair_lacks_on_mysql() -> None:
    faults = faulty("message-lost")
    faults.deliver([change(1, 1, None, "a")])
    assert as_pair(faults.ledger.standing()) == [RowDifference("shop.t", ("1",), DiffKind.MISSING_ON_SOURCE)]


def test_a_former_message_comes_behind_the_watermark() -> None:
    memory, applied = Memory(), [0.0]
    emitter = Emitter(memory, faults=faulty("out-of-order"), applied=lambda: applied[0])
    emitter.report([change(1, 1, None, "a"), change(1, 2, "a", "b"), change(1, 3, "b", "c")])
    emitter.flush(5)
    emitter.flush(6)
    assert emitter.is_late
    assert emitter.faults.faults_done == emitter.faults.ledger.standing() == []
    applied[0] = 5.0
    emitter.flush(7)
    assert not emitter.is_late
    (sent,) = [partition for partition in memory.sent if len(partition) > 5]
    assert [getattr(one, "commit", one) for one in sent] == [1, 2, 3, 5, 6, 1, 7, 7]
    assert emitter.faults.ledger.standing() == [RowDifference("shop.t", ("1",), DiffKind.VALUE_DIFFERS, ("v",))]


def test_harmless_faults_are_recorded_and_leave_nothing() -> None:
    events = [change(1, 1, None, "a"), change(2, 2, None, "b"), change(1, 3, "a", "c")]
    twice = faulty("message-duplicated:at=2")
    assert [one.event.commit for one in twice.deliver(events)] == [1, 2, 2, 3]
    across = faulty("across-keys")
    assert [one.event.commit for one in across.deliver(events)] == [2, 1, 3]
    split = faulty("split-partition")
    assert [(one.event.commit, one.shift) for one in split.deliver(events)] == [(1, 0), (2, 0), (3, 1)]
    for faults in (twice, across, split):
        assert faults.faults_done
        assert faults.ledger.standing() == []


def test_a_ddl_that_is_not_carried_is_recorded() -> None:
    faults = faulty("ddl-not-carried")
    assert faults.deliver([DdlEvent("shop", "t", "ALTER TABLE t ADD x INT", 2, 5)]) == []
    assert faults.uncarried == {"shop.t"}
    assert faults.faults_done[0].sql == "ALTER TABLE t ADD x INT"


TIMED = FeedTable.of("shop", "t", (
    FeedColumn("id", "int", "int", nullable=False, in_key=True, primary=True),
    FeedColumn("v", "varchar", "varchar(20)", charset="utf8mb4"),
    FeedColumn("b", "varbinary", "varbinary(20)"), FeedColumn("d", "datetime", "datetime"),
    FeedColumn("t", "timestamp", "timestamp"),
))  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "applied"),
    [
        ("wrong-time-zone", ("1", "four", "0x00ff", "2024-01-01 00:00:00", "2024-01-01 09:00:00")),
        ("truncated-column", ("1", "fo", "0x00ff", "2024-01-01 00:00:00", "2024-01-01 00:00:00")),
        ("checkpoint-ahead", None),
    ],
)
def test_a_fault_of_the_applier_is_switched_on_and_off(fault: str, applied: Texts | None) -> None:
    row = ("1", "four", "0x00ff", "2024-01-01 00:00:00", "2024-01-01 00:00:00")
    insert = change_of(RowEvent(TIMED, 1, None, row))
    rule, injector = parse_feed_fault(fault), Injector(())
    assert injector.take(insert) == [insert]
    injector.switch_on(rule.rule)
    assert rule.in_applier
    assert [one.after for one in injector.take(insert)] == ([] if applied is None else [applied])
    assert len(injector.standing()) == 1
    injector.switch_off(rule.rule.kind)
    delete = change_of(RowEvent(TIMED, 2, row, None))
    assert injector.take(delete) == [delete]
    assert injector.standing() == []


def test_faults_and_options_are_checked() -> None:
    for fault in FeedFault:
        assert parse_feed_fault(fault.value).fault is fault
    with pytest.raises(UsageError, match="no fault 'lost'"):
        parse_feed_fault("lost")
    with pytest.raises(LabError, match="avro"):
        FeedOptions(protocol="avro")
    with pytest.raises(LabError, match="storage"):
        FeedOptions(out="storage")
    options = FeedOptions(tables=("shop.*", "ops.t"), polled=("shop.small",))
    assert [options.covers(name) for name in ("shop.t", "shop.small", "ops.t", "ops.u")] == [True, False, True, False]
