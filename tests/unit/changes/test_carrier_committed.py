"""Transactions out of a carrier's messages: the events and positions of a binlog."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence, Set

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.changes.carriers.base import (
    Carried,
    CarriedItem,
    CarrierMessage,
    MessageHead,
    MessagePosition,
    Reject,
    SkippedMessage,
    Watermark,
)
from migverify.changes.carriers.committed import CommittedChanges
from migverify.changes.decode import count_rows, decoder
from migverify.changes.model import Begin, ChangeSource, Commit, Idle, Item, Op, Position, Rows, Statement
from migverify.changes.positions import before, tso_position, until_position
from migverify.changes.tail import Change, changes
from migverify.errors import ChangeError


class Messages:
    """A carrier of given items."""

    def __init__(self, items: Sequence[CarriedItem], partitions: int = 1) -> None:
        self._items = items
        self.ends: Mapping[tuple[str, int], int] = {("t", number): 1 for number in range(partitions)}
        self.partitions = set(self.ends)

    def kept_with(self, topic: str, partition: int) -> tuple[str, int] | None:
        return topic, partition

    def is_added(self, part: tuple[str, int], since: Position, reaching: Set[tuple[str, int]]) -> bool:
        del part, since, reaching
        return False

    def read(self, since: Position | None = None) -> Iterator[CarriedItem]:
        del since
        return iter(self._items)


def head(commit: int, partition: int = 0, offset: int = 0) -> MessageHead:
    message = CarrierMessage(MessagePosition("t", partition, offset), None, None)
    return MessageHead.of_commit(message, "d", "t", commit)


def row(number: int, commit: int, partition: int = 0, value: str | None = "v") -> Carried:
    image = {"id": str(number), "v": value}
    return head(commit, partition).rows(Op.INSERT, None, image, ["id"])


def mark(complete_to: int, partition: int = 0) -> Watermark:
    return Watermark(complete_to, MessagePosition("t", partition, 0))


def committed(items: Sequence[CarriedItem], partitions: int = 1, since: int | None = None) -> list[Item]:
    source: ChangeSource = CommittedChanges(Messages(items, partitions), None if since is None else tso_position(since))
    return list(source.items())


def shown(items: Sequence[Item]) -> list[object]:
    """Each transaction as its ids, each Idle as its timestamp."""
    found: list[object] = []
    for item in items:
        if isinstance(item, Rows):
            found[-1] += [image[0] for image in decoder(item.table, ("id",)).texts(item.images)]  # type: ignore[operator]
        elif isinstance(item, Statement):
            found[-1] += [item.sql]  # type: ignore[operator]
        elif isinstance(item, Begin):
            found.append([])
        elif isinstance(item, Idle):
            found.append(item.at.offset)
    return found


def test_a_transaction_is_whole_when_every_partition_has_passed_it() -> None:
    items = [row(1, 10), row(2, 11), mark(12), row(3, 10, 1), row(4, 15), mark(11, 1), mark(16), mark(20, 1)]
    found = committed(items, 2)
    assert shown(found) == [["1", "3"], 10, ["2"], ["4"], 15]
    first, *_, commit, idle = found[:5]
    assert first == Begin("10", tso_position(0), 0.0)
    assert (commit, idle) == (Commit("10", tso_position(10), 0.0), Idle(tso_position(10), 0.0))
    assert str(tso_position(10)) == "tso:10"


def test_it_goes_on_after_a_position_and_stops_at_one() -> None:
    items = [row(number, commit) for number, commit in ((1, 10), (2, 11), (3, 12), (4, 13))]
    assert shown(committed([*items, mark(20)], since=11)) == [["3"], ["4"], 19]
    stream = iter(committed([*items, mark(20)]))
    assert shown(list(until_position(stream, tso_position(12)))) == [["1"], ["2"], ["3"]]
    assert before(tso_position(11), tso_position(12))


def test_what_was_sent_again_is_given_again_without_going_back() -> None:
    found = committed([row(1, 10), mark(15), row(1, 10), row(2, 16), mark(17)])
    assert shown(found) == [["1"], 14, ["1"], ["2"], 16]
    ends = [item.end.offset for item in found if isinstance(item, Commit)]
    assert ends == [10, 14, 16]


def test_a_statement_on_every_partition_is_one_and_names_its_tables() -> None:
    rename = [head(10, partition).statement("RENAME TABLE a TO e.b") for partition in (0, 1)]
    found = committed([*rename, mark(11), mark(11, 1)], 2)
    assert shown(found) == [["RENAME TABLE a TO e.b"], 10]
    (statement,) = (item for item in found if isinstance(item, Statement))
    assert (statement.op, statement.tables) == (Op.DDL, (("d", "a"), ("e", "b")))
    assert head(10).statement("/* x */ truncate t").event.op is Op.TRUNCATE
    unread = head(10).statement("a statement of a later version").event
    assert isinstance(unread, Statement)
    assert (unread.op, unread.tables) == (Op.DDL, (("d", "t"),))


def test_rows_are_read_as_those_of_a_binlog() -> None:
    update = head(10).rows(Op.UPDATE, {"id": "1", "v": None}, {"id": "1", "v": "é"}, ["id"])
    assert isinstance(update.event, Rows)
    assert [update.event.table.columns[n].name for n in update.event.table.key] == ["id"]
    assert decoder(update.event.table, ("v", "id")).texts(update.event.images) == [(None, "1"), ("é", "1")]
    assert count_rows(update.event) == 1
    with pytest.raises(ChangeError, match="has no column 'w'"):
        decoder(update.event.table, ("w",))
    (change, commit) = changes(committed([update, mark(11)]))
    assert isinstance(commit, Commit)
    assert change == Change(Op.UPDATE, "d.t", {"id": "1", "v": None}, {"id": "1", "v": "é"}, "10", "t/0", 0, 0.0)


def test_what_is_not_certain_ends_it() -> None:
    place = MessagePosition("t", 0, 7)
    found: list[Item] = []
    stream = CommittedChanges(Messages([row(1, 10), mark(11), Reject("cut", place, None, b"{"), mark(20)])).items()
    with pytest.raises(ChangeError, match="t/0@7: a message cannot be decoded: cut"):
        found.extend(stream)
    assert shown(found) == [["1"], 10], "what came before is certain"
    without = MessageHead(CarrierMessage(place, None, None), "d", "t", 1.0, "", None).rows(Op.INSERT, None, {"id": "1"})
    with pytest.raises(ChangeError, match="names no commit timestamp"):
        committed([without])
    waiting = CommittedChanges(Messages([row(n, n) for n in range(1, 5)]), most_waiting=3).items()
    with pytest.raises(ChangeError, match="4 changes wait"):
        list(waiting)


def test_without_a_watermark_on_every_partition_nothing_is_complete() -> None:
    items: list[CarriedItem] = [row(1, 10), mark(20), SkippedMessage("heartbeat", MessagePosition("t", 0, 3))]
    assert committed(items, 2) == []
    assert shown(committed([*items, row(2, 30, 7), mark(25)], 1)) == [["1"], 19]
    everywhere = Watermark(20, MessagePosition("metadata", 0, 0), everywhere=True)
    assert shown(committed([row(1, 10), row(2, 30), everywhere], 2)) == [["1"], 19]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 4), st.randoms(use_true_random=False))
def test_any_delivery_gives_every_change_in_order(count: int, partitions: int, chance: random.Random) -> None:
    """Partitions run ahead of each other, send again and repeat watermarks."""
    sent = [(number, chance.randrange(1, 3 * count), number % partitions) for number in range(count)]
    queues: list[list[CarriedItem]] = [[] for _ in range(partitions)]
    for number, commit, partition in sorted(sent, key=lambda change: change[1]):
        if chance.random() < 0.4:
            queues[partition].append(mark(commit, partition))
        queues[partition].append(row(number, commit, partition))
        if chance.random() < 0.2:
            queues[partition].append(row(number, commit, partition))
    for partition, queue in enumerate(queues):
        queue.append(mark(3 * count + 1, partition))
    stream: list[CarriedItem] = []
    while any(queues):
        stream.append(chance.choice([queue for queue in queues if queue]).pop(0))
    found = committed(stream, partitions)
    ids = [i for part in shown(found) if isinstance(part, list) for i in part]
    assert set(ids) == {str(number) for number in range(count)}
    places = [item.end.offset if isinstance(item, Commit) else item.at.offset
              for item in found if isinstance(item, Commit | Idle)]  # fmt: skip
    assert places == sorted(places)
    assert places[-1] == 3 * count
    for number, commit, _ in sent:
        before_it = [item for item in found if isinstance(item, Commit) and item.gtid == str(commit)]
        assert len(before_it) == 1, (number, commit)
