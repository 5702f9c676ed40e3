"""A change that a carrier sends again: its rows count as applied only by what was sent behind it."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from migverify.changes.carriers.committed import CommittedChanges
from migverify.changes.model import Commit, DecodedTable, Idle, Op, Rows
from migverify.changes.positions import tso_position
from migverify.model import Endpoint, Flavor
from migverify.sql.key_range import KeyColumn
from migverify.tables.watch_status import is_proved_to
from migverify.watch import applied
from migverify.watch.applied import TSO_SHIFT, Marker, SettleTime
from migverify.watch.collect import ChangeCollector
from migverify.watch.ledger import Ledger
from migverify.watch.stream import Stream, StreamReader
from migverify.watch.touched import WatchedTable
from tests.unit.changes.test_carrier_range import Messages, mark, row


class Side:
    """A server whose newest marker is what a test says."""

    flavor = Flavor.TIDB

    def __init__(self) -> None:
        self.newest = 0

    def query(self, sql: str) -> list[tuple[str | None, ...]]:
        del sql
        return [(str(self.newest),)]

    def execute(self, sql: str) -> int:
        del sql
        return 1


def marker() -> Marker:
    return Marker("m.marker", "m.marker", "w")


def test_a_change_that_comes_again_is_marked_in_the_stream() -> None:
    items = [row(1, 10), mark(20), row(2, 25), row(1, 10), mark(30)]
    changes = CommittedChanges(Messages(items), tso_position(5), feed_start=5)
    ends = [(one.end.offset, one.is_late) for one in changes.items() if isinstance(one, Commit)]
    assert ends == [(10, False), (19, True), (25, False)]


def test_a_place_waits_for_a_marker_that_was_written_behind_what_came_again() -> None:
    source: Any = Side()
    target: Any = Side()
    one = marker()
    assert one.sample(source) == 1
    one.passed(1, 100)
    target.newest = 1
    assert one.ordinal(target) == 100
    one.hold(100)
    assert one.ordinal(target) == 99, "the marker was there before what came again"
    assert one.sample(source) == 2
    one.passed(2, 200)
    one.hold(150)  # marker 2 was written before this one came
    target.newest = 2
    assert one.ordinal(target) == 149
    assert one.sample(source) == 3
    one.passed(3, 300)
    target.newest = 3
    assert one.ordinal(target) == 300


def test_a_place_that_waits_before_the_first_marker_waits_for_one_to_come() -> None:
    source: Any = Side()
    target: Any = Side()
    source.newest = target.newest = 7  # an earlier watch of this name left it
    one = marker()
    one.hold(100)
    one.passed(7, 120)
    assert one.ordinal(target) == 99
    assert one.sample(source) == 8
    one.passed(8, 130)
    target.newest = 8
    assert one.ordinal(target) == 99
    assert one.sample(source) == 9
    one.passed(9, 140)
    target.newest = 9
    assert one.ordinal(target) == 140


def test_many_changes_that_come_again_keep_one_place_a_marker() -> None:
    source: Any = Side()
    one = marker()
    one.sample(source)
    for ordinal in range(1_000):
        one.hold(ordinal)
    assert len(one._held) == 1


def test_a_settle_time_begins_anew_in_both_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(applied.time, "time", lambda: clock[0])
    target: Any = Side()
    one = SettleTime(5.0, has_timestamps=True)
    second = 1000 << TSO_SHIFT
    one.read_to(10 * second, clock[0])
    clock[0] += 6
    one.read_to(16 * second, clock[0])
    assert one.reached(target)[0] == 10 * second
    one.hold(10 * second)
    assert one.reached(target)[0] == 10 * second - 1
    clock[0] += 6
    assert one.reached(target)[0] == 10 * second - 1, "the feed stands still"
    one.read_to(22 * second, clock[0])
    assert one.reached(target)[0] == 16 * second


def test_the_reader_of_a_stream_holds_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    one = marker()
    held: list[int] = []
    monkeypatch.setattr(Marker, "hold", lambda _self, ordinal: held.append(ordinal))

    class Changes:
        hides_cascades = False

        def open(self, since: Any) -> Any:
            pytest.fail(f"nothing is followed here, from {since}")

        def ordinal(self, position: Any) -> int:
            return int(position.offset)

    changes: Any = Changes()
    stream: Any = Stream(None, changes, one, None)  # type: ignore[arg-type]
    reader = StreamReader(0, stream, {}, lambda *_: False, None)
    reader._take_item(Commit("1", tso_position(40), 0.0))
    reader._take_item(Idle(tso_position(50), 0.0))
    assert held == []
    reader._take_item(Commit("1", tso_position(50), 0.0, is_late=True))
    assert held == [50]


def test_a_key_that_is_sent_again_is_open_from_its_own_place_on(tmp_path: Path) -> None:
    """A drain to 30 must not end while the follower may hold the row of 20 again, though 40 was reached."""
    table = DecodedTable.of("app", "t", ("id",), ("id",))
    watched = WatchedTable(0, "target", "app", "t", ("id",), (KeyColumn("`id`", "`id`", "integer", nullable=False),))

    class Changes:
        hides_cascades = False

        def ordinal(self, position: Any) -> int:
            return int(position.offset)

        def open(self, since: Any) -> Any:
            del since
            yield Idle(tso_position(40), 0.0)
            for commit in (25, 20):
                yield Rows(Op.INSERT, table, table.packed([("7",)]), "t/0", 1, 0)
                yield Commit(str(commit), tso_position(40), 0.0, is_late=True)
            yield Rows(Op.INSERT, table, table.packed([("8",)]), "t/0", 1, 0)
            yield Commit("45", tso_position(45), 0.0)

    changes: Any = Changes()
    stream = Stream(Endpoint("target", "h", 1, "u"), changes, marker(), None)
    with closing(Ledger(tmp_path / "w.db")) as ledger:
        collector = ChangeCollector(ledger, [stream], [watched], lambda *_: False, {}, lambda *_: None)
        collector.start()
        collector.readers(0)[0]._thread.join()
        collector.collect()
        assert ledger.since() == {0: {0: 20}}
        assert not is_proved_to({0: 30}, ledger.since())
        assert [(key.key, key.ordinal) for key in ledger.due({0: 45}, time.time(), 9)] == [(("7",), 40), (("8",), 45)]
