"""Order, duplicates and completeness of a stream of changes."""

from __future__ import annotations

import random
from dataclasses import replace

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
    SourceOrder,
    Watermark,
)
from migverify.changes.carriers.sequence import OrderCounts, OrderTracker
from migverify.changes.model import Op, Position


def change(
    row: int, commit: int, partition: int = 0, offset: int = 0, *, op: Op = Op.UPDATE, value: str = "v"
) -> Carried:
    image = {"id": str(row), "v": value}
    head = MessageHead.of_commit(CarrierMessage(MessagePosition("t", partition, offset), None, None), "d", "t", commit)
    if op in (Op.DDL, Op.TRUNCATE):
        return head.statement("x")
    return head.rows(op, image if op is not Op.INSERT else None, image if op is not Op.DELETE else None, ["id"])


def counts(items: list[CarriedItem], limit: int = 1000) -> OrderCounts:
    order = OrderTracker(limit)
    for item in items:
        order.see(item)
    return order.counts


def test_a_sound_stream() -> None:
    items: list[CarriedItem] = [change(row % 5, row, row % 2, row // 2) for row in range(20)]
    found = counts([change(row, row, row % 2, row // 2) for row in range(20)])
    assert found == OrderCounts(changes=20)
    assert counts(items).moved > 0


def test_duplicates_are_no_late_versions() -> None:
    first, second = change(1, 10, offset=0), change(1, 20, offset=1, value="w")
    again = change(1, 10, offset=2)
    found = counts([first, second, again])
    assert (found.duplicates, found.out_of_order) == (1, 0)
    found = counts([second, change(1, 10, offset=2, value="other")])
    assert (found.duplicates, found.out_of_order) == (0, 1)


def test_two_changes_of_a_row_in_one_transaction_are_fine() -> None:
    delete = change(1, 10, offset=0, op=Op.DELETE)
    assert counts([delete, change(1, 10, offset=1, op=Op.INSERT)]) == OrderCounts(changes=2)


def test_see_says_what_is_new() -> None:
    order = OrderTracker()
    assert order.see(change(1, 10, offset=0))
    assert not order.see(change(1, 10, offset=1))
    assert not order.see(Watermark(11, MessagePosition("t", 0, 2)))
    assert not order.see(change(2, 12, offset=2)), "the offset was read before"


def test_a_statement_on_every_partition_is_one() -> None:
    order = OrderTracker()
    assert [order.see(change(0, 10, partition, op=Op.DDL)) for partition in range(3)] == [True, False, False]
    assert order.counts == OrderCounts()


def test_changes_of_one_message_share_an_offset() -> None:
    one = change(1, 10, offset=4)
    other = replace(change(2, 10, offset=4), index=1)
    assert counts([one, other]) == OrderCounts(changes=2)
    assert counts([change(1, 10, offset=1), change(2, 11, offset=5)]).offset_gaps == 3


def test_servers_are_not_compared() -> None:
    one, two = change(1, 0), change(1, 0, offset=1, value="w")
    old = replace(one, order=SourceOrder(Position("binlog.000007", 500), "server 1"))
    new = replace(two, order=SourceOrder(Position("binlog.000001", 4), "server 2"))
    assert counts([old, new]).out_of_order == 0
    for order in (
        SourceOrder(Position("binlog.000007", 400), "server 1"),
        SourceOrder(Position("binlog.000006", 900), "server 1"),
    ):
        assert counts([old, replace(two, order=order)]).out_of_order == 1
    rows = [replace(one, order=old.order._replace(row=2)), replace(two, order=old.order._replace(row=1))]
    assert counts(rows).out_of_order == 1


def test_a_change_written_again_into_another_file_is_a_duplicate() -> None:
    one = change(1, 10)
    again = replace(one, place=MessagePosition("other file", 0, 0))
    newer = replace(change(1, 11, value="w"), place=MessagePosition("other file", 0, 1))
    assert counts([one, again, newer]) == OrderCounts(changes=3, duplicates=1)


def test_completeness_is_the_lowest_watermark_and_every_reason() -> None:
    order = OrderTracker(partitions=[("t", 0), ("t", 1)])
    order.see(Watermark(50, MessagePosition("t", 0, 0)))
    assert order.completeness().complete_to is None
    order.see(Watermark(40, MessagePosition("t", 1, 0)))
    assert order.completeness().complete_to == 40
    assert order.completeness().voided == ()
    order.see(Watermark(30, MessagePosition("t", 1, 1)))
    assert order.completeness().complete_to == 40
    order.see(change(1, 39, 1, 2))
    order.see(Reject("r", MessagePosition("t", 0, 1), None, b""))
    order.see(SkippedMessage("tombstone", MessagePosition("t", 0, 2)))
    voided = order.completeness().voided
    assert len(voided) == 2
    assert "could not be decoded" in voided[0]
    assert "after a watermark" in voided[1]


def test_a_watermark_for_everything() -> None:
    order = OrderTracker()
    order.see(change(1, 5, 0, 0))
    order.see(change(2, 6, 1, 0))
    order.see(Watermark(9, MessagePosition("metadata", 0, 0), everywhere=True))
    assert order.completeness().complete_to == 9


def test_what_is_forgotten_is_said() -> None:
    items = [change(row, row, offset=row) for row in range(20)]
    assert counts(list(items), limit=20).exact
    found = counts([*items, change(0, 0, offset=20)], limit=10)
    assert (found.exact, found.duplicates) == (False, 0)
    order = OrderTracker(5)
    for item in items:
        order.see(item)
    assert "were not compared" in order.completeness().voided[-1]
    assert len(order._rows) <= 5
    assert len(order._recent) <= 5


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(0, 20), st.randoms(use_true_random=False))
def test_repeated_tails_give_exactly_their_duplicates(count: int, back: int, chance: random.Random) -> None:
    """A sender that goes back and sends on again: at-least-once delivery."""
    versions: dict[int, int] = {}
    sent = []
    for commit in range(count):
        row = chance.randrange(7)
        versions[row] = commit
        sent.append((row, commit))
    tail = sent[max(0, len(sent) - back) :]
    items = [change(row, commit, row % 2, value=str(commit)) for row, commit in [*sent, *tail]]
    placed: dict[int, int] = {}
    stream: list[CarriedItem] = []
    for item in items:
        offset = placed.get(item.place.partition, 0)
        placed[item.place.partition] = offset + 1
        stream.append(replace(item, place=MessagePosition("t", item.place.partition, offset)))
    found = counts(stream)
    assert (found.duplicates, found.out_of_order, found.moved, found.offset_gaps) == (len(tail), 0, 0, 0)
