"""Rows of a binlog and of a carrier become the same keys and the same digests where the rows are equal."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from migverify.changes.model import (
    AfterImages,
    Begin,
    ColumnMap,
    Commit,
    DecodedTable,
    Idle,
    Item,
    Op,
    Position,
    Rows,
    TableMap,
)
from migverify.changes.positions import tso_position
from migverify.sql.key_range import KeyColumn
from migverify.watch.key_changes import (
    DIGEST_FAMILIES,
    UNKNOWN,
    DigestedTable,
    KeyChange,
    KeyChangeReader,
    digest_text,
    key_changes,
    merged,
)
from migverify.watch.touched import WatchedTable

COLUMNS = (("id", "integer"), ("name", "text"))
ID = ColumnMap("id", 8, 0, unsigned=False, nullable=False)
BINLOG = TableMap("app", "t", (ID, ColumnMap("name", 15, 40, unsigned=False, nullable=True, charset="utf8mb4")))
CARRIER = DecodedTable.of("app", "t", ("name", "id", "extra"), ("id",))
NAME = ("app", "t")


def watched(*columns: tuple[str, str]) -> DigestedTable:
    key = (KeyColumn("`id`", "`id`", "integer", nullable=False),)
    return DigestedTable(WatchedTable(3, "target", "app", "t", ("id",), key), columns or COLUMNS)


def binlog_row(number: int, name: str | None) -> bytes:
    text = b"" if name is None else bytes([len(name.encode())]) + name.encode()
    return bytes([0 if name is not None else 2]) + struct.pack("<q", number) + text


def binlog(op: Op, *rows: tuple[int, str | None]) -> Rows:
    return Rows(op, BINLOG, b"".join(binlog_row(*row) for row in rows), "binlog.000001", 100, 0)


def carrier(op: Op, *rows: tuple[str, str | None]) -> Rows:
    images = CARRIER.packed([(name, number, "left out") for number, name in rows])
    return Rows(op, CARRIER, images, "topic/0", 5, 0)


def test_equal_rows_of_a_binlog_and_of_a_carrier_are_equal_changes() -> None:
    ours = list(key_changes(watched(), binlog(Op.INSERT, (1, "Zoë"), (2, None), (-3, ""))))
    theirs = list(key_changes(watched(), carrier(Op.INSERT, ("1", "Zoë"), ("2", None), ("-3", ""))))
    assert ours == theirs
    assert len({change.image for change in ours}) == 3
    assert [change.key for change in ours] == [("1",), ("2",), ("-3",)]


def test_an_update_has_its_row_before_and_a_changed_key_is_two_changes() -> None:
    same, gone, new = key_changes(watched(), binlog(Op.UPDATE, (1, "a"), (1, "b"), (2, "a"), (3, "a")))
    assert (same.key, same.inserted, same.changes_nothing) == (("1",), False, False)
    assert same.before is not None
    assert same.before != same.image
    assert (gone.key, gone.image, gone.before is not None) == (("2",), None, True)
    assert (new.key, new.inserted, new.before) == (("3",), True, None)
    (unchanged,) = key_changes(watched(), binlog(Op.UPDATE, (1, "a"), (1, "a")))
    assert unchanged.changes_nothing


def test_an_update_without_the_row_before_is_one_change() -> None:
    layout = AfterImages.of("app", "t", ("name", "id"), ("id",))
    event = Rows(Op.UPDATE, layout, layout.packed([("a", "1"), ("b", "2"), ("c", "3")]), "topic/0", 5, 0)
    assert list(key_changes(watched(), event)) == [
        replace(change, inserted=False)
        for change in key_changes(watched(), carrier(Op.INSERT, ("1", "a"), ("2", "b"), ("3", "c")))
    ]


def test_an_insert_of_a_stream_without_old_values_may_be_an_update() -> None:
    (change,) = key_changes(watched(), carrier(Op.INSERT, ("1", "a")), has_old_values=False)
    assert not change.inserted


def test_a_row_without_a_column_of_the_digest_is_unknown_and_a_deleted_one_is_gone() -> None:
    table = watched(*COLUMNS, ("note", "text"))
    assert [c.image for c in key_changes(table, carrier(Op.INSERT, ("1", "a")))] == [UNKNOWN]
    (gone,) = key_changes(table, carrier(Op.DELETE, ("1", "a")))
    assert (gone.image, gone.changes_nothing) == (None, False)


@pytest.mark.parametrize(
    ("family", "texts"),
    [
        ("integer", ("7", "007", "7.00")),
        ("bit", ("5", "0x05")),
        ("year", ("2026", "2026")),
        ("decimal", ("1.5", "1.500", "01.50")),
        ("decimal", ("0", "-0", "0.00")),
        ("datetime", ("2026-01-31 10:00:00", "2026-01-31 10:00:00.000")),
        ("date", ("2026-01-31", "2026-01-31 00:00:00", "2026-01-31 00:00:00.000000")),
        ("time", ("-01:00:00.5", "-01:00:00.500000")),
        ("text", ("a", "a  ")),
        ("binary", ("0x01", "0x010000")),
        ("binary", ("0x", "0x0000")),
        ("label", ("small", "small")),
    ],
)
def test_texts_of_one_value_have_one_form(family: str, texts: tuple[str, ...]) -> None:
    assert family in DIGEST_FAMILIES
    assert len({digest_text(family, text) for text in texts}) == 1


@pytest.mark.parametrize(
    ("family", "one", "other"),
    [("decimal", "1.5", "1.05"), ("text", "a", "A"), ("text", " a", "a"), ("binary", "0x01", "0x10"),
     ("datetime", "2026-01-31 10:00:00", "2026-01-31 10:00:10"), ("integer", "10", "1")],
)  # fmt: skip
def test_other_values_have_other_forms(family: str, one: str, other: str) -> None:
    assert digest_text(family, one) != digest_text(family, other)


# -- transactions --------------------------------------------------------------------------------------------------


def take(reader: KeyChangeReader, *items: Item) -> list[tuple[list[KeyChange], int]]:
    return [taken for item in items if (taken := reader.take(item)) is not None]


def transaction(*rows: Rows, end: int = 9, gtid: str = "uuid:1") -> list[Item]:
    return [Begin(gtid, Position("f", 0), 5.5), *rows, Commit(gtid, Position("f", end), 5.5)]


def reader(*, merges: bool) -> KeyChangeReader:
    return KeyChangeReader({NAME: watched()}, lambda position: position.offset, merges=merges)


def test_changes_come_with_the_commit_and_its_place() -> None:
    other = replace(BINLOG, table="other")
    rows = [binlog(Op.INSERT, (1, "a")), replace(binlog(Op.INSERT, (2, "a")), table=other)]
    ((changes, end), (idle, read_to)) = take(reader(merges=False), *transaction(*rows), Idle(Position("f", 12), 6.0))
    assert [(change.key, change.position, change.time) for change in changes] == [(("1",), 9, 5.5)]
    assert (end, idle, read_to) == (9, [], 12)


def test_a_transaction_that_was_cut_off_begins_again() -> None:
    rows = binlog(Op.INSERT, (1, "a"))
    ((changes, _),) = take(reader(merges=False), *transaction(rows)[:2], *transaction(rows))
    assert len(changes) == 1


def test_a_replaced_row_is_one_change_on_the_following_side() -> None:
    rows = [
        *(binlog(op, (1, "a")) for op in (Op.DELETE, Op.INSERT)),
        binlog(Op.INSERT, (2, "x")),
        binlog(Op.UPDATE, (2, "x"), (2, "y")),
        *(binlog(op, (3, "x")) for op in (Op.INSERT, Op.DELETE)),
    ]
    ((changes, _),) = take(reader(merges=True), *transaction(*rows))
    replaced, new = changes
    assert (replaced.key, replaced.changes_nothing, replaced.inserted) == (("1",), True, False)
    assert (new.key, new.inserted, new.before) == (("2",), True, None)
    ((every, _),) = take(reader(merges=False), *transaction(*rows))
    assert len(every) == 6
    assert merged([]) == []


def test_what_a_carrier_sends_again_keeps_its_own_commit_timestamp() -> None:
    rows = carrier(Op.INSERT, ("1", "a"))
    items = [Begin("70", tso_position(90), 1.0), rows, Commit("70", tso_position(90), 1.0)]
    ((changes, end),) = take(reader(merges=False), *items)
    assert [(change.position, change.is_late) for change in changes] == [(70, True)]
    assert end == 90
    ((changes, _),) = take(
        reader(merges=False), Begin("91", tso_position(90), 1.0), rows, Commit("91", tso_position(91), 1.0)
    )
    assert [(change.position, change.is_late) for change in changes] == [(91, False)]
