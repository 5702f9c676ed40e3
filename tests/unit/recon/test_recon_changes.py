"""Windows of a change stream: what it does not cover is no answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from migverify.changes.model import Begin, Commit, Item, Op, Position, Statement
from migverify.errors import CanceledError, IncompleteReadError
from migverify.model import ColumnDef
from migverify.recon import change_rows
from migverify.recon.change_streams import ChangeStream
from migverify.recon.model import ChangesPart
from migverify.recon.relation import ChangeRead, Relation

WINDOW = ("1970-01-01 00:00:10.000000", "1970-01-01 00:00:20.000000")
KEY = (ColumnDef("id", 1, "bigint", "bigint", False),)


def transactions(*times: float) -> Iterator[Item]:
    for number, time in enumerate(times):
        yield Begin("", Position("b.000002", 4 + number), time)
        yield Commit("", Position("b.000002", 5 + number), time)


def read(items: Iterator[Item], *, birth: bool = False, seen: int | None = None, **fields: Any) -> list[Any]:
    part = ChangesPart("e", "", "d", "t", **fields)
    wanted = ChangeRead(part, ("id",), (), WINDOW)
    relation = Relation("d", (wanted,), KEY, (), ())
    stream = ChangeStream((item for item in items), "e", "mysql", from_birth=birth, seen_until=seen)
    return list(change_rows._rows(relation, wanted, stream, threading.Event()))


def test_a_stream_around_the_window_covers_it() -> None:
    assert read(transactions(9, 15, 20)) == []
    assert read(transactions(15, 20), birth=True) == []
    assert read(transactions(9), seen=20_000_000) == []


@pytest.mark.parametrize(("times", "birth", "words"), [
    ((11, 20), False, "after the window's start"), ((), False, "holds no transaction"),
    ((9, 19.9), False, "before the window's end"),
    ((), True, "read up to nothing"),
])  # fmt: skip
def test_a_stream_that_leaves_out_a_part_is_no_answer(times: tuple[float, ...], birth: bool, words: str) -> None:
    with pytest.raises(IncompleteReadError, match=words):
        read(transactions(*times), birth=birth)


def test_a_clock_before_the_end_of_the_window_is_no_answer() -> None:
    with pytest.raises(IncompleteReadError, match="before the window's end"):
        read(transactions(9, 30), seen=19_999_999)


def truncated(*tables: tuple[str, str]) -> Iterator[Item]:
    yield from transactions(9)
    yield Begin("", Position("b.000002", 50), 15)
    yield Statement(Op.TRUNCATE, tables, "TRUNCATE t", "d", "b.000002", 60, 15)
    yield from transactions(20)


@pytest.mark.parametrize("tables", [(), (("d", "t"),), (("d", ""),)])
def test_rows_that_vanished_without_an_image_are_no_answer(tables: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(IncompleteReadError, match="truncated"):
        read(truncated(*tables))
    assert read(truncated(*tables), operations=("insert",)) == []


def test_another_table_may_be_truncated() -> None:
    assert read(truncated(("d", "other"))) == []


def test_a_reader_stops_when_told() -> None:
    part = ChangesPart("e", "", "d", "t")
    wanted = ChangeRead(part, ("id",), (), WINDOW)
    stream = ChangeStream((item for item in transactions(9, 15)), "e", "mysql", from_birth=False, seen_until=None)
    told = threading.Event()
    told.set()
    with pytest.raises(CanceledError):
        list(change_rows._rows(Relation("d", (wanted,), KEY, (), ()), wanted, stream, told))
