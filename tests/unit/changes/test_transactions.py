"""Events -> items: the grammar of the binlog, by events made here."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.changes.buffer import ItemBuffer, whole
from migverify.changes.byte_accounting import ByteAccounting
from migverify.changes.decode import decoder
from migverify.changes.events import GTID_EVENTS, IGNORABLE, EventType, RawEvent
from migverify.changes.gtid import decode_gtids, parse_gtids
from migverify.changes.headers import (
    Query,
    read_gtid,
    read_heartbeat_v2,
    read_query,
    read_xa_prepare,
)
from migverify.changes.model import Begin, Commit, Idle, Item, Op, Position, Rows, Statement, Wanted
from migverify.changes.places import EventStream
from migverify.changes.positions import parse_position
from migverify.changes.source import read_files
from migverify.changes.tail import Change, changes
from migverify.changes.transactions import items
from migverify.errors import ChangeError, PurgedError, UsageError
from tests.binlog_events import SERVER, Binlog, image, made_rotate, numbers


def read(log: Binlog, since: Position | None = None) -> list[Item]:
    return list(whole(items(EventStream([made_rotate(log.name), *log.events()], Position(log.name, 4), since))))


def ids(found: list[Item]) -> list[int]:
    return [number for item in found if isinstance(item, Rows) for number in numbers(item.images)]


def refused(log: Binlog) -> tuple[list[Item], str]:
    """Items before the refusal, and its text."""
    found: list[Item] = []
    with pytest.raises(ChangeError) as error:
        found.extend(whole(items(EventStream([made_rotate(log.name), *log.events()], Position(log.name, 4)))))  # type: ignore[arg-type]
    assert log.name in error.value.message
    return found, str(error.value)


def test_a_transaction_of_rows() -> None:
    log = Binlog().begin().table().rows(image(1, "a"), image(2, None))
    log.rows(image(1, "a"), image(1, "b"), kind=EventType.UPDATE_ROWS).rows(
        image(2, None), kind=EventType.DELETE_ROWS_V1
    )
    begin, insert, update, delete, commit, idle = read(log.xid())
    assert begin == Begin(f"{SERVER}:1", Position(log.name, log.boundaries[0]), 1_800_000_000.0)
    assert [item.op for item in (insert, update, delete)] == [Op.INSERT, Op.UPDATE, Op.DELETE]  # type: ignore[union-attr]
    assert insert.table.name == "d.t"  # type: ignore[union-attr]
    assert commit == Commit(f"{SERVER}:1", Position(log.name, log.boundaries[1], f"{SERVER}:1"), 1_800_000_000.0)
    assert isinstance(idle, Idle)
    assert idle.at == commit.end  # type: ignore[union-attr]


def test_statements() -> None:
    log = Binlog().gtid().query("TRUNCATE TABLE t").boundary().gtid().query("CREATE USER u").boundary()
    log.begin().query("CREATE TABLE `t` (a int) START TRANSACTION").table().rows(image(5, "x")).xid()
    log.gtid().query("CREATE TABLE u (a int) START TRANSACTION").table().rows(image(6, "x")).xid()
    found = read(log)
    assert [type(item) for item in found] == [
        Begin, Statement, Commit, Begin, Commit, Begin, Statement, Rows, Commit, Begin, Statement, Rows, Commit, Idle
    ]  # fmt: skip
    assert [(item.op, item.tables) for item in found if isinstance(item, Statement)] == [
        (Op.TRUNCATE, (("d", "t"),)), (Op.DDL, (("d", "t"),)), (Op.DDL, (("d", "u"),)),
    ]  # fmt: skip
    assert [item.end.offset for item in found if isinstance(item, Commit)] == log.boundaries[1:]


def test_the_invoker_and_the_character_set_of_a_statement() -> None:
    status = b"\x04\x1c\0\x1c\0\x1c\0" + b"\x0b\4root\x09localhost"  # 28: gbk
    log = Binlog().gtid()
    log.add(
        EventType.QUERY,
        struct.pack("<IIBHH", 1, 0, 1, 0, len(status)) + status + b"d\0" + "DROP TABLE `表`".encode("gbk"),
    )
    found = read(log)[1]
    assert isinstance(found, Statement)
    assert (found.user, found.tables) == ("root@localhost", (("d", "表"),))


def xa(log: Binlog, name: str, number: int) -> Binlog:
    quoted = f"X'{name.encode().hex()}',X'',1"
    log.gtid().query(f"XA START {quoted}").table().rows(image(number, "x")).query(f"XA END {quoted}")
    body = b"\0" + struct.pack("<III", 1, len(name), 0) + name.encode()
    return log.add(EventType.XA_PREPARE, body).boundary()


def test_xa_rows_come_with_their_commit() -> None:
    log = xa(xa(Binlog(), "a", 1), "b", 2).insert(3)
    log.gtid().query("XA COMMIT X'61',X'',1").boundary().gtid().query("XA ROLLBACK X'62',X'',1").boundary()
    found = read(log)
    assert ids(found) == [3, 1]
    assert [item.end.offset for item in found if isinstance(item, Commit)] == log.boundaries[1:]
    at = next(place for place, item in enumerate(found) if isinstance(item, Rows) and numbers(item.images) == [1])
    assert found[at - 1].gtid == found[at + 1].gtid == f"{SERVER}:4"  # type: ignore[union-attr]


def test_xa_in_one_phase() -> None:
    log = Binlog().gtid().query("XA START X'61',X'',1").table().rows(image(1, "x")).query("XA END X'61',X'',1")
    log.add(EventType.XA_PREPARE, b"\1" + struct.pack("<III", 1, 1, 0) + b"a")
    assert ids(read(log)) == [1]


def test_xa_prepared_before_the_start(tmp_path: Path) -> None:
    log = xa(Binlog(), "a", 1).insert(2).insert(3).gtid().query("XA COMMIT X'61',X'',1").boundary()
    path = log.write(tmp_path)
    after = [item.end for item in read(log) if isinstance(item, Commit)]
    assert ids(list(read_files([path], after[1]))) == [3, 1]  # looked for in the file
    assert ids(list(read_files([path], Position("", 0, after[1].gtids)))) == [3, 1]
    events = [event for event in log.events() if event.type != EventType.PREVIOUS_GTIDS and event.end > after[1].offset]
    with pytest.raises(ChangeError, match="XA PREPARE lies before"):
        list(items(EventStream(events, after[1])))


def payload(log: Binlog, inner: Binlog, *, algorithm: int = 0, size: int | None = None) -> Binlog:
    plain = b"".join(
        struct.pack("<IBIIIH", e.time, e.type, 1, 19 + len(e.body), 0, e.flags) + e.body for e in inner.events()[2:]
    )
    packed = zstandard.ZstdCompressor().compress(plain) if algorithm == 0 else plain

    def field(kind: int, value: int) -> bytes:
        return bytes((kind, 3)) + b"\xfc" + value.to_bytes(2, "little")

    head = bytes((2, 1, algorithm)) if algorithm < 251 else bytes((2, 3, 252, algorithm, 0))
    head += field(1, len(packed)) + field(3, len(plain) if size is None else size) + b"\0"
    return log.add(EventType.TRANSACTION_PAYLOAD, head + packed).boundary()


@pytest.mark.parametrize("algorithm", [0, 255])
def test_compressed_transactions(algorithm: int) -> None:
    inner = Binlog().query("BEGIN").table().rows(image(1, "a" * 40)).rows(image(2, "b" * 40)).xid()
    log = payload(Binlog().gtid(), inner, algorithm=algorithm).insert(3)
    found = read(log)
    assert ids(found) == [1, 2, 3]
    assert [item.end.offset for item in found if isinstance(item, Commit)] == log.boundaries[1:]
    assert next(item.offset for item in found if isinstance(item, Rows)) == log.boundaries[1]


def test_a_compressed_transaction_that_lies_about_itself() -> None:
    inner = Binlog().query("BEGIN").table().rows(image(1, "a" * 40)).xid()
    assert "unpacks to" in refused(payload(Binlog().gtid(), inner, size=9999))[1]
    assert "does not fit" in refused(payload(Binlog().gtid(), inner, size=20))[1]
    assert "algorithm 7" in refused(payload(Binlog().gtid(), inner, algorithm=7))[1]
    cut = Binlog().query("BEGIN").table().rows(image(1, "a"))
    assert "middle of a transaction" in refused(payload(Binlog().gtid(), cut))[1]


REFUSED = {
    "lost events": lambda log: log.add(EventType.INCIDENT, b"\1\0\0"),
    "binlog_format=ROW": lambda log: log.begin().query("INSERT INTO t VALUES (1)"),
    "by statement": lambda log: log.begin().add(EventType.INTVAR, b"\1" + b"\0" * 8),
    "without a table map": lambda log: log.begin().rows(image(2, "x")),
    "type 99": lambda log: log.add(99, b""),
    "not known": lambda log: log.begin().query("FROB"),
    "before the one in front": lambda log: log.begin().table().gtid(),
    "outside of a transaction": lambda log: log.table(),
    "events are missing": lambda log: log.add(EventType.ROWS_QUERY, b"", end=9999),
    "ROLLBACK": lambda log: log.begin().table().rows(image(2, "x")).query("ROLLBACK"),
    "3 columns": lambda log: log.begin().table().add(EventType.WRITE_ROWS, b"\x09\0\0\0\0\0\1\0\2\0\3\xff"),
    "too short": lambda log: log.begin().table().add(EventType.WRITE_ROWS, b"\x09"),
    "middle of a transaction": lambda log: log.begin().table(),
    "only MySQL's binlog": lambda log: log.add(
        EventType.FORMAT_DESCRIPTION, b"\4\0" + b"10.11.2-MariaDB".ljust(50, b"\0") + b"\0\0\0\0\x13\0"
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_refused_after_what_is_certain(why: str) -> None:
    log = Binlog().insert(1)
    REFUSED[why](log)
    found, text = refused(log)
    assert ids(found) == [1]
    assert why in text


@pytest.mark.attack("watch", "a statement of the binlog that is not known, or that changes rows without images",
                    "it counts for every table: all are compared again")  # fmt: skip
def test_a_reader_of_whole_tables_is_given_what_cannot_be_read_as_a_change_of_any_table() -> None:
    log = Binlog().begin().query("FROB t").xid().begin().add(EventType.INTVAR, b"\1" + b"\0" * 8)
    log.query("INSERT INTO t VALUES (NULL)").xid()
    found = list(items(EventStream([made_rotate(log.name), *log.events()], Position(log.name, 4)), any_table=True))
    statements = [item for item in found if isinstance(item, Statement)]
    assert [(s.op, s.tables) for s in statements] == [(Op.DDL, ())] * 3
    assert [s.sql for s in statements] == [
        "FROB t",
        "rows changed by statement (INTVAR)",
        "INSERT INTO t VALUES (NULL)",
    ]
    assert sum(isinstance(item, Commit) for item in found) == 2


def test_what_is_known_and_harmless_passes() -> None:
    log = Binlog().begin().add(EventType.ROWS_QUERY, b"\1x", flags=0x80).table().rows(image(1, "x"))
    log.query("SAVEPOINT `s`").xid().begin().add(EventType.VIEW_CHANGE, b"x").query("COMMIT").boundary()
    log.begin().query("ROLLBACK").boundary()
    found = read(log)
    assert ids(found) == [1]
    assert [item.end.offset for item in found if isinstance(item, Commit)] == log.boundaries[1:]


def test_a_dummy_rows_event_ends_a_statement() -> None:
    log = Binlog().begin().table().rows(image(1, "x"))
    log.add(EventType.WRITE_ROWS, (0xFFFFFF).to_bytes(6, "little") + b"\1\0\2\0\0")
    assert ids(read(log.xid())) == [1]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 300), max_size=40), max_size=6), st.integers(0, 4000))
def test_buffered_items_keep_their_order_in_a_file(batches: list[list[int]], limit: int) -> None:
    buffer = ItemBuffer(limit)
    table = next(item for item in read(Binlog().insert(1)) if isinstance(item, Rows)).table
    for batch in batches:
        added = [
            Rows(Op.INSERT, table, b"x" * size, "f", size, 3)
            if size % 7
            else Statement(Op.DDL, (), "s", "d", "f", size, 3)
            for size in batch
        ]
        for item in added:
            buffer.add(item)
        assert list(buffer) == added
        buffer.clear()
        assert not buffer


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_resumed_at_any_commit_the_stream_is_the_same(data: st.DataObject) -> None:
    log = Binlog()
    for number in range(data.draw(st.integers(2, 8))):
        log.insert(number) if data.draw(st.booleans()) else log.gtid().query("DROP TABLE x").boundary()
    every = [item for item in read(log) if not isinstance(item, Idle)]
    commits = [place for place, item in enumerate(every) if isinstance(item, Commit)]
    place = data.draw(st.sampled_from(commits))
    end = every[place].end  # type: ignore[union-attr]
    for since in (end, Position(end.file, end.offset), Position("", 0, end.gtids)):
        assert [item for item in read_parts(log, since) if not isinstance(item, Idle)] == every[place + 1 :]


def read_parts(log: Binlog, since: Position) -> Iterator[Item]:
    return read_files([log.name], since, opener=lambda _: _file(log))


def _file(log: Binlog):  # type: ignore[no-untyped-def]
    import io

    return io.BytesIO(bytes(log.data))


def two_files(folder: Path) -> tuple[Binlog, Binlog, list[str]]:
    one = Binlog("binlog.000001").insert(1).insert(2).rotate("binlog.000002")
    two = Binlog("binlog.000002", parse_gtids(f"{SERVER}:1-2").encode())  # type: ignore[union-attr]
    two.number = 2
    two.insert(3).insert(4)
    return one, two, [one.write(folder), two.write(folder)]


def test_files_in_order(tmp_path: Path) -> None:
    one, two, paths = two_files(tmp_path)
    found = list(read_files(paths))
    assert ids(found) == [1, 2, 3, 4]
    assert found[-1].at == Position("binlog.000002", two.boundaries[-1], f"{SERVER}:1-4")  # type: ignore[union-attr]
    assert ids(list(read_files(paths, Position("", 0, f"{SERVER}:1-3")))) == [4]
    assert ids(list(read_files(paths, until=Position("binlog.000002", two.boundaries[1])))) == [1, 2, 3]
    assert ids(list(read_files(paths, until=Position("", 0, f"{SERVER}:1-3")))) == [1, 2, 3]
    assert ids(list(read_files(paths, until=Position("binlog.000002", 4)))) == [1, 2]
    assert ids(list(read_files(paths, parse_position(f"binlog.000001:{len(one.data)}")))) == [3, 4]
    assert ids(list(read_files(paths, Position("", 0, f"{SERVER}:1-4"), Position("", 0, f"{SERVER}:1")))) == []


def test_gaps_between_files(tmp_path: Path) -> None:
    _, _, paths = two_files(tmp_path)
    with pytest.raises(ChangeError, match=r"expected was binlog\.000002"):
        list(read_files([paths[0], Binlog("binlog.000003").write(tmp_path)]))
    cut = Binlog("binlog.000001").insert(1).write(tmp_path)
    with pytest.raises(ChangeError, match=f"{SERVER}:2 were written before"):
        list(read_files([cut, paths[1]]))
    unproved = Binlog("binlog.000002").insert(2).write(tmp_path)
    with pytest.raises(ChangeError, match="no end mark"):
        list(read_files([cut, unproved]))
    _, _, paths = two_files(tmp_path)
    with pytest.raises(ChangeError, match="expected was"):
        list(read_files(paths[::-1]))
    with pytest.raises(PurgedError):
        list(read_files([paths[1]], Position("", 0, f"{SERVER}:1")))
    with pytest.raises(ChangeError, match="lies in none"):
        list(read_files(paths, Position("binlog.000009", 4)))
    with pytest.raises(ChangeError, match=r"before .* was reached"):
        list(read_files(paths, until=Position("", 0, f"{SERVER}:1-9")))
    with pytest.raises(ChangeError, match=r"before .* was reached"):
        list(read_files(paths, until=Position("binlog.000002", 1 << 20)))


def test_a_server_that_died_left_no_end_mark(tmp_path: Path) -> None:
    _, _, paths = two_files(tmp_path)
    paths[0] = Binlog("binlog.000001").insert(1).insert(2).write(tmp_path)
    assert ids(list(read_files(paths))) == [1, 2, 3, 4]


def test_only_boundaries_are_places_to_start(tmp_path: Path) -> None:
    log = Binlog().insert(1).insert(2)
    path = log.write(tmp_path)
    heads = {4, *log.boundaries}
    for offset in range(4, len(log.data) + 3):
        since = Position(log.name, offset)
        try:
            found = ids(list(read_files([path], since)))
        except ChangeError:
            assert offset not in log.boundaries
        else:
            assert offset in heads or offset < log.boundaries[0]
            assert found == [number for number, end in zip((1, 2), log.boundaries[1:], strict=True) if end > offset]


def test_any_cut_and_any_flip_is_found(tmp_path: Path) -> None:
    log = Binlog().insert(1, "one").insert(2, "two").gtid().query("DROP TABLE x").boundary()
    every = read(log)[:-1]
    path = tmp_path / log.name
    for cut in range(0, len(log.data), 3):
        path.write_bytes(bytes(log.data[:cut]))
        found = collected(path)
        assert found == every[: len(found)], cut
        complete = sum(end <= cut for end in log.boundaries[1:])
        assert sum(isinstance(item, Commit) for item in found) == complete
    for place in range(0, len(log.data), 2):
        damaged = bytearray(log.data)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(bytes(damaged))
        found = collected(path)
        assert found == every[: len(found)], place


def collected(path: Path) -> list[Item]:
    found: list[Item] = []
    with contextlib.suppress(ChangeError):
        found.extend(item for item in read_files([str(path)]) if not isinstance(item, Idle))
    return found


def test_large_offsets() -> None:
    start = (1 << 32) - 40
    log = Binlog().insert(1)
    events = []
    offset = start
    for event in log.events()[2:]:
        offset += event.size
        events.append(event._replace(end=offset & 0xFFFFFFFF))
    found = list(items(EventStream(events, Position(log.name, start))))
    assert found[-1].at.offset == start + sum(event.size for event in events) > 1 << 32  # type: ignore[union-attr]


def test_a_heartbeat_that_is_ahead_of_what_came() -> None:
    log = Binlog().insert(1)
    beat = RawEvent(EventType.HEARTBEAT, 0, 1, 32, len(log.data), 0, log.name.encode())
    found = list(items(EventStream([made_rotate(log.name), *log.events(), beat], Position(log.name, 4))))
    assert [type(item) for item in found[-2:]] == [Idle, Idle]
    with pytest.raises(ChangeError, match="did not arrive"):
        list(items(EventStream([made_rotate(log.name), *log.events(), beat._replace(end=9999)], Position(log.name, 4))))


def test_positions_as_text() -> None:
    assert parse_position("binlog.000003:1234") == Position("binlog.000003", 1234)
    assert parse_position(f"{SERVER}:1-5") == Position("", 0, f"{SERVER}:1-5")
    for text in ("", "0-1-5", "binlog", "binlog.000003", "binlog.000003:x", "x:1"):
        with pytest.raises(UsageError):
            parse_position(text)


@settings(max_examples=40, deadline=None)
@given(st.integers(4, 2000), st.integers(0, 255), st.booleans())
def test_damage_without_checksums_is_an_error_and_no_crash(place: int, value: int, shorter: bool) -> None:
    log = (
        Binlog(checksum=False)
        .insert(1, "one")
        .gtid()
        .query("DROP TABLE `x`", status=b"\0\0\0\0\0\4\xff\0\xff\0\xff\0")
        .boundary()
    )
    payload(log.gtid(), Binlog(checksum=False).query("BEGIN").table().rows(image(1, "a" * 40)).xid())
    xa(log, "a", 5).gtid().query("XA COMMIT X'61',X'',1").boundary().rotate("binlog.000002")
    log.data[place % len(log.data)] = value
    if shorter:
        del log.data[place % len(log.data) :]
    try:
        for item in read_parts(log, Position("", 0, f"{SERVER}:1")):
            if isinstance(item, Rows):
                decoder(item.table).texts(item.images)
    except ChangeError:
        pass


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=90))
def test_any_bytes_as_a_head_are_read_or_refused(body: bytes) -> None:
    for reader in (
        *(lambda data, kind=kind: read_gtid(RawEvent(kind, 0, 1, 0, 0, 0, data)) for kind in GTID_EVENTS),
        read_xa_prepare,
        read_query,
        read_heartbeat_v2,
        decode_gtids,
    ):
        try:
            found = reader(body)
            if isinstance(found, Query):
                found.text(), found.invoker(), found.backslash_escapes()
        except ChangeError:
            pass


def strange() -> Binlog:
    """A transaction that changes a table of a type nobody knows beside a table that all know."""
    log = Binlog().insert(1).begin()
    log.strange_table().rows(b"\0" + struct.pack("<i", 7) + b"?????", table_id=10)
    log.rows(b"\0" + struct.pack("<i", 7) + b"???" * 2, kind=EventType.UPDATE_ROWS, table_id=10)
    return log.table().rows(image(2, "x")).xid().insert(3)


@pytest.mark.parametrize("kind", [28, 99, 200])
def test_an_unknown_event_that_may_be_ignored_is_passed_over_and_counted(
    kind: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = (
        Binlog().begin().table().add(kind, b"xy", flags=IGNORABLE).rows(image(1, "a")).add(kind, b"z", flags=IGNORABLE)
    )
    found = read(log.xid().add(kind, b"", flags=IGNORABLE))
    assert [type(item).__name__ for item in found] == ["Begin", "Rows", "Commit", "Idle"]
    assert found[-1].at.offset == log.events()[-1].end
    (said,) = caplog.messages
    assert f"type {kind} " in said
    accounting = ByteAccounting(lambda *_: True)
    for event in log.events():
        accounting.take(event)
    assert accounting.by_type[kind][0] == 3


@pytest.mark.attack("changes", "an event that changes rows by statement says that it may be ignored", "the stream ends")
def test_an_event_that_hides_rows_is_refused_whatever_its_flag_says() -> None:
    assert "by statement" in refused(Binlog().begin().add(EventType.INTVAR, b"", flags=IGNORABLE))[1]


def test_a_table_of_an_unknown_type_ends_no_stream_that_leaves_it_out() -> None:
    log = strange()
    stream = items(EventStream([made_rotate(log.name), *log.events()], Position(log.name, 4)))
    given_out = list(changes(whole(stream), lambda database, table: (database, table) == ("d", "t")))
    assert [c.after["id"] for c in given_out if isinstance(c, Change) and c.after] == ["1", "2", "3"]
    assert sum(isinstance(c, Commit) for c in given_out) == 3


@pytest.mark.parametrize("wanted", [None, lambda *_: True, lambda _, table: table == "vectors"])
def test_a_table_of_an_unknown_type_ends_the_stream_that_has_it_in_scope(wanted: Wanted | None) -> None:
    log = strange()
    stream = changes(whole(items(EventStream([made_rotate(log.name), *log.events()], Position(log.name, 4)))), wanted)
    found: list[Change | Commit] = []
    with pytest.raises(ChangeError, match=r"binlog\.000001:\d+: d\.vectors: .*type 200") as refused:
        found.extend(stream)
    assert "Exclude the table" in refused.value.hint
    assert all(c.table != "d.vectors" for c in found if isinstance(c, Change))


IMAGES = {
    "an insert of d.t holds 1 of 2 columns": lambda log: log.table().rows(b"\0", present=b"\1"),
    "an update of d.t holds 1 of 2 columns": lambda log: log.table().rows(
        b"\0", kind=EventType.UPDATE_ROWS, present=b"\1"
    ),
    "an update of d.t holds parts of JSON values": lambda log: log.table().rows(
        image(2, "x"), kind=EventType.PARTIAL_UPDATE_ROWS, present=b"\xff\xff"
    ),
    "an insert of d.vectors holds 1 of 2 columns": lambda log: log.strange_table().rows(
        b"\0", table_id=10, present=b"\1"
    ),
}


def one_unreadable_image(why: str, spill: bool) -> tuple[Binlog, Iterator[Item]]:
    log = Binlog().insert(1).begin()
    IMAGES[why](log)
    log.table(table_id=11, name="other").rows(image(2, "x"), table_id=11).xid().boundary().insert(3)
    stream = items(EventStream([made_rotate(log.name), *log.events()], Position(log.name, 4)))
    return log, whole(stream, memory_bytes=1 if spill else 1 << 20)


@pytest.mark.parametrize("spill", [False, True])
@pytest.mark.parametrize("why", IMAGES)
def test_an_unreadable_row_image_ends_no_stream_that_leaves_its_table_out(why: str, spill: bool) -> None:
    _, stream = one_unreadable_image(why, spill)
    found = list(changes(stream, lambda _, table: table == "other"))
    assert [c.after for c in found if isinstance(c, Change)] == [{"id": "2", "v": "x"}]
    assert sum(isinstance(c, Commit) for c in found) == 3


@pytest.mark.attack("changes", "row images that lack columns or hold parts of JSON values",
                    "a reader of the table stops, one that leaves it out goes on")  # fmt: skip
@pytest.mark.parametrize("spill", [False, True])
@pytest.mark.parametrize("why", IMAGES)
def test_an_unreadable_row_image_in_scope_names_where_to_begin_behind_it(why: str, spill: bool) -> None:
    log, stream = one_unreadable_image(why, spill)
    found: list[Change | Commit] = []
    with pytest.raises(ChangeError, match=rf"^{log.name}:\d+: .*{why}") as refused:
        found.extend(changes(stream, None))
    assert [c.after and c.after["id"] for c in found if isinstance(c, Change)] == ["1"]
    place = f"{log.name}:{log.boundaries[2]} or {SERVER}:1-2"
    assert refused.value.hint.endswith(f"begins behind this transaction at {place}.")
    _, again = one_unreadable_image(why, spill)
    rest = [item for item in again if isinstance(item, Begin)]
    assert rest[2].start.offset == log.boundaries[2]


def test_rows_of_an_xa_transaction_that_cannot_be_read_name_the_place_behind_its_commit() -> None:
    log = Binlog().gtid().query("XA START X'61',X'',1").table().rows(b"\0", present=b"\1")
    log.query("XA END X'61',X'',1").add(EventType.XA_PREPARE, b"\0" + struct.pack("<III", 1, 1, 0) + b"a").boundary()
    log.insert(2).gtid().query("XA COMMIT X'61',X'',1").boundary()
    with pytest.raises(ChangeError, match="holds 1 of 2") as refused:
        list(changes(whole(items(EventStream([made_rotate(log.name), *log.events()], Position(log.name, 4)))), None))
    assert f"{log.name}:{log.boundaries[-1]} or {SERVER}:1-3" in refused.value.hint
