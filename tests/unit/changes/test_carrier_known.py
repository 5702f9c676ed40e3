"""A change that comes twice is known, also where a pattern of its kind was made in between."""

from __future__ import annotations

from typing import Any

import pytest

from migverify.changes.carriers.base import Carried, CarriedItem, CarriedRow
from migverify.changes.carriers.canal_json import CanalJson
from migverify.changes.carriers.committed import CommittedChanges
from migverify.changes.carriers.known_changes import KnownChanges, exact_mark, quick_mark
from migverify.changes.carriers.lazy import FEWEST
from migverify.changes.carriers.open_protocol import OpenProtocol
from migverify.changes.carriers.table_range import TableRange
from migverify.changes.model import Rows
from tests.unit.changes.test_carrier_lazy import ROW, canal, opened
from tests.unit.changes.test_carrier_range import Messages, mark

COUNT = FEWEST + 6
CANAL = {
    "insert": lambda row: canal("INSERT", row, None), "delete": lambda row: canal("DELETE", row, None),
    "update": lambda row: canal("UPDATE", row, [{"name": "old"}]),
}  # fmt: skip


def items(form: str, operation: str) -> list[CarriedItem]:
    """Messages of one kind, each of them twice, with a commit timestamp of its own."""
    found: list[CarriedItem] = []
    parser: Any = CanalJson(keys_only=True) if form == "canal" else OpenProtocol(keys_only=True)
    for number in range(1, COUNT + 1):
        row = ROW | {"id": str(number)}
        key, value = None, b""
        if form == "canal":
            value = CANAL[operation](row).replace(b'"commitTs":9', b'"commitTs":%d' % (100 + number))
        else:
            old = ROW | {"id": str(number), "name": "old"} if operation == "update" else None
            key, value = opened(row, old, "d" if operation == "delete" else "u")
            key = key.replace(b'"ts":9', b'"ts":%d' % (100 + number))
            key = key[:8] + (len(key) - 16).to_bytes(8, "big") + key[16:]
        for _ in range(2):
            found += parser.items(key, value, "t", 0, len(found))
    return found


@pytest.mark.parametrize("operation", ["insert", "update", "delete"])
@pytest.mark.parametrize("form", ["canal", "open"])
@pytest.mark.parametrize("mark_of", [quick_mark, exact_mark])
def test_each_change_is_new_once(form: str, operation: str, mark_of: Any) -> None:
    sent = items(form, operation)
    assert {type(one) for one in sent} == {Carried, CarriedRow}, "some were decoded whole, others by a pattern"
    known = KnownChanges(1000, mark_of)
    new = []
    for one in sent:
        assert isinstance(one, Carried | CarriedRow)
        commit = one.commit if isinstance(one, CarriedRow) else one.order.position.offset  # type: ignore[union-attr]
        had = known.has(commit, one)
        assert known.note(commit, one) is not had
        new.append(not had)
        assert known.has(commit, one)
    assert new == [True, False] * COUNT


@pytest.mark.parametrize("operation", ["insert", "update", "delete"])
def test_a_range_gives_each_change_once(operation: str) -> None:
    carrier = TableRange(Messages([*items("canal", operation), mark(200)]), [("d", "t")], 100, 150)
    assert sum(isinstance(one, Carried | CarriedRow) for one in carrier.follow(None)) == COUNT


def test_a_change_that_comes_again_behind_its_watermark_breaks_no_promise() -> None:
    sent = items("canal", "insert")
    first, again = sent[::2], sent[1::2]
    changes = CommittedChanges(Messages([mark(50), *first, mark(200), *again, mark(201)]))
    rows = [one for one in changes.items() if isinstance(one, Rows)]
    assert sum(len(one.table.reader((0,))(one.images)) for one in rows) == 2 * COUNT
    assert not changes.broken


def test_only_the_last_changes_are_remembered() -> None:
    known = KnownChanges(3, quick_mark)
    sent = items("canal", "insert")[::2][-5:]
    for one in sent:
        assert isinstance(one, CarriedRow)
        known.note(one.commit, one)
    assert [known.has(one.commit, one) for one in sent if isinstance(one, CarriedRow)] == [False] * 2 + [True] * 3
