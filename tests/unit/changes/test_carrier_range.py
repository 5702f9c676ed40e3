"""A carrier cut to one table and a range of commit timestamps: what is outside of it neither counts nor voids."""

from __future__ import annotations

from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

import pytest

from migverify.changes.carriers.base import (
    Carried,
    CarriedItem,
    CarriedRow,
    CarrierMessage,
    Heartbeat,
    MessageHead,
    MessagePosition,
    Reject,
    Watermark,
)
from migverify.changes.carriers.committed import VOID, CommittedChanges
from migverify.changes.carriers.dead_letters import DeadLetterFile
from migverify.changes.carriers.table_range import TableRange
from migverify.changes.decode import decoder
from migverify.changes.model import Idle, Item, Op, Position, Rows, Statement
from migverify.changes.positions import tso_position
from migverify.errors import ChangeError, PurgedError


class Messages:
    """A carrier of given items: files that are read, or topics that are followed up to their ends."""

    def __init__(
        self, items: Sequence[CarriedItem | Heartbeat], ends: dict[tuple[str, int], int] | None = None
    ) -> None:
        self.items = items
        self.ends = ends or {}
        self.partitions = set(self.ends) or {("t", 0)}
        self.given = 0

    def kept_with(self, topic: str, partition: int) -> tuple[str, int] | None:
        return topic, partition

    def is_added(self, part: tuple[str, int], since: Position, reaching: Set[tuple[str, int]]) -> bool:
        del part, since, reaching
        return False

    def read(self, since: Position | None = None) -> Any:
        del since
        for item in self.items:
            self.given += 1
            yield item

    def follow(self, since: Position | None) -> Any:
        yield from self.read(since)
        pytest.fail("a followed carrier would wait here for ever")


def head(commit: int, partition: int = 0, table: str = "t", offset: int = 0) -> MessageHead:
    return MessageHead.of_commit(
        CarrierMessage(MessagePosition("t", partition, offset), None, None), "d", table, commit
    )  # fmt: skip


def row(number: int, commit: int, partition: int = 0, table: str = "t", offset: int = 0) -> Carried:
    return head(commit, partition, table, offset).rows(Op.INSERT, None, {"id": str(number)}, ["id"])


def mark(complete_to: int, partition: int = 0, offset: int = 0) -> Watermark:
    return Watermark(complete_to, MessagePosition("t", partition, offset))


def bad(partition: int = 0, tables: tuple[tuple[str, str], ...] = (), offset: int = 0) -> Reject:
    return Reject("it is cut", MessagePosition("t", partition, offset), None, b"{", tables)


def cut(items: Sequence[CarriedItem | Heartbeat], start: int = 10, end: int | None = 20, **more: Any) -> list[Any]:
    return list(TableRange(Messages(items, **more), [("d", "t")], start, end).follow(None))


def committed(
    items: Sequence[CarriedItem | Heartbeat], folder: Path, start: int = 10, end: int | None = 20
) -> list[Item]:
    carrier = TableRange(Messages(items), [("d", "t")], start, end)
    letters = DeadLetterFile(folder / "dead.jsonl")
    return list(CommittedChanges(carrier, tso_position(start) if start else None, letters=letters).items())


def ids(items: Sequence[Item]) -> list[str | None]:
    return [image[0] for item in items if isinstance(item, Rows)
            for image in decoder(item.table, ("id",)).texts(item.images)]  # fmt: skip


def voids(items: Sequence[Item]) -> set[str]:
    return {item.sql.removeprefix(VOID) for item in items if isinstance(item, Statement)}


def test_only_rows_of_the_table_in_the_range_are_given(tmp_path: Path) -> None:
    items = [row(1, 5), mark(8), row(2, 11), row(3, 12, table="other"), row(4, 12, table="T"), row(5, 20), mark(21)]
    assert [one.order.position.offset for one in cut(items) if isinstance(one, Carried)] == [5, 11, 12]  # type: ignore[union-attr]
    found = committed(items, tmp_path)
    assert ids(found) == ["2", "4"], "what was committed before shows how far back the carrier reaches, no more"
    assert found[-1] == Idle(tso_position(20), 0.0)


def test_what_comes_again_is_given_once(tmp_path: Path) -> None:
    items = [mark(8), row(1, 11), row(1, 11), row(2, 11), mark(15), row(1, 11), row(3, 16), mark(30), row(3, 16)]
    found = committed(items, tmp_path)
    assert (ids(found), voids(found)) == (["1", "2", "3"], set())


def test_what_comes_again_from_before_the_range_is_not_in_it(tmp_path: Path) -> None:
    """Behind a watermark of after its start, too: its window has it already."""
    assert ids(committed([mark(8), row(1, 9), mark(12), row(1, 9), row(2, 15), mark(30)], tmp_path)) == ["2"]


def test_rows_that_stay_bytes_are_cut_like_others() -> None:
    table = row(1, 5).event.table  # type: ignore[union-attr]
    other = row(1, 5, table="other").event.table  # type: ignore[union-attr]
    rows = [CarriedRow(commit, of, Op.INSERT, b"{}", "t", 0, 0) for of in (table, other) for commit in (9, 11, 11, 20)]
    assert [(one.commit, one.table) for one in cut(rows)] == [(9, table), (11, table), (9, other)]


@pytest.mark.parametrize(("items", "is_void"), [
    ([bad(), mark(11)], False), ([bad(), mark(12)], True), ([mark(19), bad(), mark(30)], True),
    ([mark(20), bad(), mark(30)], False), ([mark(8), bad()], True),
])  # fmt: skip
def test_a_message_voids_the_range_only_where_its_change_may_be_in_it(items: list[CarriedItem], is_void: bool) -> None:
    assert any(isinstance(one, Reject) for one in cut(items)) == is_void


def test_a_void_comes_before_the_range_is_complete(tmp_path: Path) -> None:
    found = committed([row(9, 9), mark(8), row(1, 11), mark(13), bad(offset=3), mark(25)], tmp_path)
    place = next(n for n, item in enumerate(found) if isinstance(item, Statement))
    assert voids(found) == {"t/0@3: it is cut"}
    assert place < max(n for n, item in enumerate(found) if isinstance(item, Idle))
    assert [one.reason for one in DeadLetterFile(tmp_path / "dead.jsonl").read()] == ["it is cut"]


def test_a_message_about_other_tables_voids_nothing() -> None:
    for tables, is_void in (((("d", "other"),), False), ((("D", "T"),), True), ((("d", ""),), True)):
        items = [mark(11), bad(tables=tables), mark(30)]
        assert any(isinstance(one, Reject) for one in cut(items)) == is_void


def test_a_partition_voids_by_its_own_watermarks() -> None:
    items = [mark(11, 0), mark(25, 1), bad(1), mark(30, 0), mark(30, 1)]
    assert not any(isinstance(one, Reject) for one in cut(items))


def test_a_watermark_of_everything_closes_every_message() -> None:
    everywhere = Watermark(11, MessagePosition("metadata", 0, 0), everywhere=True)
    assert not any(isinstance(one, Reject) for one in cut([bad(1), bad(2), everywhere]))


@pytest.mark.parametrize(("marks", "reason"), [
    ((5, 9, 6, 30), ""), ((5, 15, 12, 30), "a watermark of 12 comes after one of 15"), ((5, 30, 25), ""),
    ((5, 30, 12, 40), "a watermark of 12 comes after one of 30"),
])  # fmt: skip
def test_a_watermark_that_goes_back_voids_the_range_that_it_reaches(
    marks: Sequence[int], reason: str, tmp_path: Path
) -> None:
    found = " ".join(voids(committed([mark(one) for one in marks], tmp_path)))
    assert reason in found
    assert bool(reason) == bool(found)


def test_a_late_change_that_did_not_come_before_voids_its_range(tmp_path: Path) -> None:
    items = [mark(8), mark(15), row(1, 12), mark(30)]
    assert "comes after a watermark that excluded it" in " ".join(voids(committed(items, tmp_path)))
    items = [mark(8), mark(15), row(1, 12, table="other"), mark(30)]
    assert not voids(committed(items, tmp_path))


def test_a_statement_of_the_table_is_given() -> None:
    items = [head(12).statement("TRUNCATE TABLE d.t"), head(12, table="other").statement("TRUNCATE TABLE d.other")]
    assert [one.event.sql for one in cut(items)] == ["TRUNCATE TABLE d.t"]


def test_a_start_that_nothing_shows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PurgedError, match="the first timestamp of the messages is 12"):
        committed([row(1, 12), mark(30)], tmp_path)


def test_topics_are_followed_to_where_they_ended() -> None:
    items = [mark(5, 0, 7), mark(5, 1, 2), Heartbeat(), mark(9, 1, 3), Heartbeat(), mark(11, 0, 8)]
    ends = {("t", 0): 8, ("t", 1): 4}
    assert cut(items, ends=ends) == items[:5]
    quiet = [mark(5, 0, 7), *[Heartbeat()] * 9]
    assert len(cut(quiet, ends=ends)) == 7, "behind the last message may be offsets without one"


def test_messages_of_another_format_do_not_wait_for_a_watermark_for_ever(tmp_path: Path) -> None:
    messages = Messages([bad(offset=n) for n in range(5000)])
    carrier = TableRange(messages, [("d", "t")], 10, 20)
    with pytest.raises(ChangeError, match="none of the first 10 messages can be decoded"):
        list(CommittedChanges(carrier, letters=DeadLetterFile(tmp_path / "dead.jsonl")).items())
    assert messages.given < 1100


def test_a_carrier_that_is_followed_in_another_format_ends_at_its_first_message(tmp_path: Path) -> None:
    other = Reject("no canal-json", MessagePosition("t", 0, 0), None, b"x", (), "open-protocol")
    items: list[CarriedItem | Heartbeat] = [Heartbeat(), other]
    with pytest.raises(ChangeError, match="the messages are open-protocol"):
        committed(items, tmp_path)
    later = Reject("no canal-json", MessagePosition("t", 0, 5), None, b"x", (), "open-protocol")
    assert ids(committed([mark(11), row(1, 12), later, mark(25)], tmp_path)) == ["1"]


def test_broken_promises_are_kept_for_the_reader(tmp_path: Path) -> None:
    messages = Messages([mark(8), mark(15), row(1, 12), mark(30)])
    changes = CommittedChanges(messages, letters=DeadLetterFile(tmp_path / "dead.jsonl"))
    messages.follow = messages.read  # type: ignore[method-assign]
    list(changes.items())
    assert [(one.tables, one.place.offset) for one in changes.broken] == [((("d", "t"),), 0)]


def test_a_range_without_end_is_followed_on() -> None:
    items = [mark(5), row(1, 11), Heartbeat(), row(2, 40, table="other"), bad(tables=(("d", "other"),)), mark(50)]
    messages = Messages(items, {("t", 0): 1})
    stream = TableRange(messages, [("d", "t"), ("d", "u")], 10, endless=True).follow(None)
    assert [next(stream) for _ in range(4)] == [items[0], items[1], items[2], items[5]]
