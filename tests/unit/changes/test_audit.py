"""The audit of a stream: what is complete is MATCH, and each way to lose something is found."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.changes.audit import AuditScope, StreamAudit, audit_files
from migverify.changes.byte_accounting import ByteAccounting
from migverify.changes.ddl import ddl_finding
from migverify.changes.events import IN_USE, EventType, RawEvent
from migverify.changes.gtid import parse_gtids
from migverify.changes.model import Op, Position, Statement
from migverify.cli.changes_audit_view import audit_as_text
from migverify.errors import ChangeError, PurgedError
from migverify.model import Verdict
from tests.binlog_events import SERVER, TIME, Binlog, image

SCOPE = AuditScope(lambda database, _: database == "d", lambda database: database == "d")


def previous(text: str) -> bytes:
    found = parse_gtids(text)
    return found.encode()  # type: ignore[union-attr]


def one_file(*numbers: int) -> Binlog:
    log = Binlog()
    for number in numbers:
        log.insert(number)
    return log


def two_files(folder: Path) -> list[str]:
    first = one_file(1, 2, 3).rotate("binlog.000002")
    second = Binlog("binlog.000002", previous(f"{SERVER}:1-3"))
    second.number = 3
    second.insert(4).insert(5)
    return [first.write(folder), second.write(folder)]


def audit(log: Binlog, folder: Path) -> StreamAudit:
    return audit_files([log.write(folder)], SCOPE)


def test_a_whole_file_adds_up(tmp_path: Path) -> None:
    log = one_file(1, 2).begin().table()
    log.rows(image(1, "x"), image(1, "y"), image(2, "x"), image(2, "z"), kind=EventType.UPDATE_ROWS).xid()
    log.begin().table().rows(image(1, "y"), kind=EventType.DELETE_ROWS).xid()
    log.gtid().query("ALTER TABLE t ADD COLUMN n INT").boundary()
    found = audit(log, tmp_path)
    assert (found.verdict, found.reasons) == (Verdict.MATCH, ())
    assert found.tables == {"d.t": {"insert": 2, "update": 2, "delete": 1}}
    assert (found.transactions, found.rows_events, found.accounting.anonymous) == (5, 4, 0)
    assert found.accounting.bytes_in == found.accounting.bytes_of_files == len(log.data)
    assert sum(size for _, size in found.events.values()) + 4 == len(log.data)
    assert found.events["GTID"][0] == 5
    assert [str(d) for d in found.ddl] == ["2027-01-15 08:00:00Z unknown on d.t: ALTER TABLE t ADD COLUMN n INT"]
    assert found.ddl[0].gtid == f"{SERVER}:5"
    assert found.largest is not None
    assert (found.largest.gtid, found.largest.rows) == (f"{SERVER}:3", 2)
    assert (found.first, found.last) == (Position("binlog.000001", log.boundaries[0]),
                                         Position("binlog.000001", len(log.data), f"{SERVER}:1-5"))  # fmt: skip
    assert found.first_time == found.last_time == TIME


def strange_file() -> Binlog:
    log = one_file(1).begin().strange_table()
    return log.rows(b"\0" + struct.pack("<i", 7) + b"?????", table_id=10).xid()


def test_a_table_of_an_unknown_type_in_scope_proves_nothing(tmp_path: Path) -> None:
    found = audit_files([strange_file().write(tmp_path)], SCOPE)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert any("d.vectors" in reason and "type 200" in reason for reason in found.reasons)


def without(log: Binlog, place: int, *, smooth: bool) -> Binlog:
    """Cut out the transaction at a place; ``smooth`` rewrites positions and checksums behind it."""
    start, end = log.boundaries[place], log.boundaries[place + 1]
    rest = bytes(log.data[end:])
    del log.data[start:]
    if not smooth:
        log.data += rest
        return log
    at = 0
    while at < len(rest):
        size = int.from_bytes(rest[at + 9 : at + 13], "little")
        event = bytearray(rest[at : at + size - 4])
        struct.pack_into("<I", event, 13, len(log.data) + size)
        log.data += event + struct.pack("<I", zlib.crc32(event))
        at += size
    return log


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_transaction_cut_out_with_care_is_found_by_its_number(tmp_path: Path, place: int) -> None:
    found = audit(without(one_file(1, 2, 3, 4), place, smooth=True), tmp_path)
    assert found.verdict is Verdict.MISMATCH
    assert found.gaps.holes == f"{SERVER}:{place + 1}"
    assert found.tables["d.t"]["insert"] == 3  # what is there is counted all the same


def test_without_gtids_the_bytes_alone_prove_it(tmp_path: Path) -> None:
    log = Binlog()
    for number in range(4):
        log.number = -1
        log.insert(number)
    whole = audit(log, tmp_path)
    assert (whole.verdict, whole.accounting.anonymous) == (Verdict.MATCH, 4)
    assert any("rests on positions alone" in note for note in whole.notes)
    assert audit(without(log, 1, smooth=False), tmp_path).verdict is Verdict.MISMATCH


def test_the_next_file_knows_what_the_end_of_this_one_lost(tmp_path: Path) -> None:
    paths = two_files(tmp_path)
    first = one_file(1, 2).rotate("binlog.000002")
    first.write(tmp_path)
    found = audit_files(paths, SCOPE)
    assert found.verdict is Verdict.MISMATCH
    assert found.gaps.lost == f"{SERVER}:3"


def test_a_missing_file_is_found(tmp_path: Path) -> None:
    third = Binlog("binlog.000003", previous(f"{SERVER}:1-5"))
    paths = [two_files(tmp_path)[0], third.write(tmp_path)]
    found = audit_files(paths, SCOPE)
    assert found.verdict is Verdict.MISMATCH
    assert found.gaps.lost == f"{SERVER}:4-5"
    assert any("binlog.000002" in reason for reason in found.reasons)


def test_a_file_of_another_server_is_no_match(tmp_path: Path) -> None:
    paths = two_files(tmp_path)
    Binlog("binlog.000002", previous(f"{SERVER}:1-2")).write(tmp_path)
    found = audit_files(paths, SCOPE)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.gaps.foreign == f"{SERVER}:3"


def test_the_same_transaction_twice_is_found(tmp_path: Path) -> None:
    log = one_file(1, 2)
    log.number = 1
    log.insert(9)
    found = audit(log, tmp_path)
    assert found.verdict is Verdict.MISMATCH
    assert found.gaps.repeated == f"{SERVER}:2"


def test_a_damaged_byte_is_inconclusive_and_later_files_are_counted(tmp_path: Path) -> None:
    paths = two_files(tmp_path)
    data = bytearray(Path(paths[0]).read_bytes())
    data[-120] ^= 1
    Path(paths[0]).write_bytes(data)
    found = audit_files(paths, SCOPE)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert any("damaged" in reason for reason in found.reasons)
    assert found.events["PREVIOUS_GTIDS"][0] == 2


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_no_cut_anywhere_is_a_match_of_all(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    log = one_file(1, 2, 3)
    whole = bytes(log.data)
    cut = data.draw(st.integers(1, len(whole) - 1))
    log.data = bytearray(whole[:cut])
    try:
        found = audit(log, tmp_path_factory.mktemp("cut"))
    except ChangeError:
        return
    # A copy that ends between two transactions is whole; it may not claim more than it holds.
    assert found.verdict is not Verdict.MISMATCH
    if found.verdict is Verdict.MATCH:
        assert found.transactions == sum(1 for end in log.boundaries[1:] if end <= cut)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda log: log.gtid().query("UPDATE t SET v = 1").boundary(), "by statement"),
        (lambda log: log.begin().table().xid(), "table map without any rows"),
        (lambda log: log.begin().rows(image(1, "x")).xid(), "without a table map"),
        (lambda log: log.add(EventType.INCIDENT, b"\0\0\0"), "lost events"),
        (lambda log: log.gtid().add(99, b"?"), "99"),
        (lambda log: log.begin().table().rows(image(1, "x")), "in the middle of a transaction"),
        (lambda log: log.begin().table().rows(image(1, "x"), present=b"\1").xid(), "columns"),
        (lambda log: log.insert(8).add(EventType.XID, bytes(8), end=77), "positions do not fit"),
    ],
    ids=["statement", "maps-alone", "rows-alone", "incident", "unknown", "unfinished", "image", "position"],
)  # fmt: skip
def test_what_cannot_be_read_exactly_is_inconclusive(tmp_path: Path, make: object, reason: str) -> None:
    log = one_file(1)
    make(log)  # type: ignore[operator]
    found = audit(log, tmp_path)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert any(reason in text for text in found.reasons), found.reasons
    assert found.tables["d.t"]["insert"] >= 1


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(list(EventType)), st.binary(max_size=60), st.integers(0, 0xFFFF), st.integers(0, 200))
def test_no_bytes_break_the_accounts(kind: EventType, body: bytes, flags: int, end: int) -> None:
    accounting = ByteAccounting(SCOPE.wanted)
    for event in one_file(1).events():
        accounting.take(event)
    try:
        accounting.take(RawEvent(kind, TIME, 1, len(body) + 23, end, flags, body))
    except ChangeError:
        return
    accounting.finish()
    assert accounting.by_type[EventType.XID][0] >= 1


def test_maps_of_tables_that_a_statement_did_not_change_are_a_note(tmp_path: Path) -> None:
    log = Binlog().begin().table(9, "t").table(10, "u").rows(image(1, "x")).xid()
    found = audit(log, tmp_path)
    assert found.verdict is Verdict.MATCH
    assert any("d.u: 1 table maps without rows of their own" in note for note in found.notes)


def test_a_relay_log_is_refused_as_evidence(tmp_path: Path) -> None:
    log = one_file(1)
    log.data[4 + 17] |= 0x40
    described = bytes(log.data[4 : 4 + int.from_bytes(log.data[13:17], "little") - 4])
    struct.pack_into("<I", log.data, 4 + len(described), zlib.crc32(described))
    found = audit(log, tmp_path)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert any("relay log" in reason for reason in found.reasons)


def test_a_hole_in_a_replication_group_proves_nothing(tmp_path: Path) -> None:
    log = one_file(1, 2)
    log.number = 1_000_000
    log.add(EventType.VIEW_CHANGE, b"\0").insert(3)
    found = audit(log, tmp_path)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert any("group replication" in reason for reason in found.reasons)


def test_what_lies_outside_of_a_range_is_not_counted_in_its_notes(tmp_path: Path) -> None:
    log = Binlog().begin().table(name="other").xid()
    log.gtid(0).query("BEGIN").table().rows(image(9, "x")).xid()
    log.insert(1).insert(2)
    path = log.write(tmp_path)
    whole = audit_files([path], SCOPE)
    assert whole.accounting.anonymous == 1
    found = audit_files([path], SCOPE, since=Position(log.name, log.boundaries[2]))
    assert (found.accounting.anonymous, found.transactions, found.rows_events) == (0, 2, 2)
    assert not any("no GTID" in note or "table maps" in note for note in found.notes)
    assert not any("table map" in reason for reason in found.reasons)


def test_a_range_counts_its_rows_only(tmp_path: Path) -> None:
    log = one_file(1, 2, 3, 4)
    path = log.write(tmp_path)
    since = Position(log.name, log.boundaries[1])
    found = audit_files([path], SCOPE, since=since, until=Position(log.name, log.boundaries[3]))
    assert (found.verdict, found.transactions, found.tables) == (Verdict.MATCH, 2, {"d.t": {"insert": 2}})
    by_set = audit_files([path], SCOPE, since=Position("", 0, f"{SERVER}:1"), until=Position("", 0, f"{SERVER}:1-3"))
    assert (by_set.verdict, by_set.transactions) == (Verdict.MATCH, 2)
    for one in (found, by_set):
        assert one.events == {"QUERY": (2, one.events["QUERY"][1]), "XID": (2, one.events["XID"][1]),
                              "TABLE_MAP": (2, one.events["TABLE_MAP"][1]), "GTID": (2, one.events["GTID"][1]),
                              "WRITE_ROWS": (2, one.events["WRITE_ROWS"][1])}  # fmt: skip
        assert sum(size for _, size in one.events.values()) == log.boundaries[3] - log.boundaries[1]
        shown = list(audit_as_text("files", one))
        assert f"  in the range  2 transactions, {log.boundaries[3] - log.boundaries[1]} bytes" in shown
    beyond = audit_files([path], SCOPE, until=Position("", 0, f"{SERVER}:1-9"))
    assert beyond.verdict is Verdict.INCONCLUSIVE
    later = Binlog("binlog.000005", previous(f"{SERVER}:1-9")).write(tmp_path)
    with pytest.raises(PurgedError):
        audit_files([later], SCOPE, since=Position("", 0, f"{SERVER}:1"))
    with pytest.raises(ChangeError, match="lies in none of the files"):
        audit_files([path], SCOPE, since=Position("binlog.000009", 4))


def test_a_file_in_use_is_said(tmp_path: Path) -> None:
    log = one_file(1)
    log.data[4 + 17] |= IN_USE  # the server sums the event without this flag
    assert any("was still written" in note for note in audit(log, tmp_path).notes)


class TestDdlFinding:
    def test_who_when_what_where(self) -> None:
        statement = Statement(
            Op.TRUNCATE, (("d", "t"), ("e", "")), "TRUNCATE\n  t", "d", "binlog.000001", 99, TIME, "app@10.0.0.1"
        )
        found = ddl_finding(statement, "uuid:1")
        assert str(found) == "2027-01-15 08:00:00Z app@10.0.0.1 on d.t, e.*: TRUNCATE t"
        assert (found.op, found.gtid, found.offset) == (Op.TRUNCATE, "uuid:1", 99)

    def test_a_password_of_another_engine_is_masked(self) -> None:
        sql = "CREATE TABLE f (a INT) ENGINE=FEDERATED connection = 'mysql://u:it''s\\'secret@h/d/t' COMMENT='kept'"
        found = ddl_finding(Statement(Op.DDL, (("d", "f"),), sql, "d", "f", 1, TIME))
        assert "secret" not in found.sql + str(found)
        assert found.sql.endswith("connection = '***' COMMENT='kept'")

    def test_what_cannot_be_told_is_said(self) -> None:
        found = ddl_finding(Statement(Op.DDL, (), "X" * 600, "d", "f", 1, TIME))
        assert "unknown on any table: " in str(found)
        assert str(found).endswith("(600 characters)")
        assert found.sql == "X" * 600
