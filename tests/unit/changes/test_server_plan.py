"""Where a reader begins and goes on, decided without a server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from migverify.changes.model import Position
from migverify.changes.server import BinlogServer, SourceState
from migverify.changes.source import reconnecting
from migverify.errors import ChangeError, RetryableReadError
from migverify.model import Endpoint, Flavor

GTIDS = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"
STATE = SourceState("one", Flavor.MYSQL, True, Position("binlog.000001", 4), Position("binlog.000009", 99), GTIDS)


def reader(state: SourceState = STATE) -> BinlogServer:
    made = BinlogServer(Endpoint("source", "h", 1, "u"), None, follow=True)
    made.state = state
    return made


def test_a_set_counts_where_the_server_has_gtids() -> None:
    both = Position("binlog.000003", 500, GTIDS)
    assert reader()._plan(both, again=False) == (Position("", 0), Position("", 0, GTIDS), GTIDS)
    assert reader(replace(STATE, gtids=False))._plan(both, again=False) == (both, None, "")


def test_an_offset_without_a_set_is_reached_from_the_head_of_its_file() -> None:
    place = Position("binlog.000003", 500)
    assert reader()._plan(place, again=False) == (Position("binlog.000003", 4), place, "")
    assert reader(replace(STATE, gtids=False))._plan(place, again=False) == (place, None, "")


def test_after_a_lost_connection_the_offset_is_exact_and_the_first_set_still_left_out() -> None:
    made = reader()
    made._plan(Position("", 0, GTIDS), again=False)
    done = Position("binlog.000004", 700, f"{GTIDS[:-1]}9")
    assert made._plan(done, again=True) == (done, Position("", 0, GTIDS), "")


def test_on_another_server_only_a_set_means_the_same_place() -> None:
    done = Position("binlog.000004", 700, GTIDS)
    other = replace(STATE, server="two")
    assert reader()._same_server(done, STATE) == done
    assert reader()._same_server(done, other) == Position("", 0, GTIDS)
    bound = reader()
    bound._ends_at_offset = True
    for made, at, state in (
        (reader(), Position("binlog.000004", 700), other),
        (reader(), done, replace(other, gtids=False)),
        (bound, done, other),
    ):
        with pytest.raises(ChangeError, match="another server"):
            made._same_server(at, state)


def test_a_server_without_gtids_cannot_start_by_a_set() -> None:
    with pytest.raises(ChangeError, match="cannot start by a GTID set"):
        reader(replace(STATE, gtids=False))._plan(Position("", 0, GTIDS), again=False)


def test_a_connection_that_stays_lost_ends_the_stream_with_the_place() -> None:
    def connect() -> Iterator[int]:
        yield 1
        raise RetryableReadError("gone")

    stream = reconnecting(connect, "source", -1.0, lambda: "binlog.000004:700")
    assert next(stream) == 1
    with pytest.raises(ChangeError, match=r"stayed lost") as error:
        next(stream)
    assert "binlog.000004:700" in str(error.value)
