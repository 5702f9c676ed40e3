"""Where a reader begins and goes on, decided without a server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from migverify.changes.model import Position
from migverify.changes.server import SourceState, _Reader
from migverify.errors import ChangeError
from migverify.model import Endpoint, Flavor

GTIDS = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"
STATE = SourceState("one", Flavor.MYSQL, True, Position("binlog.000001", 4), Position("binlog.000009", 99), GTIDS)


def reader() -> _Reader:
    made = _Reader(Endpoint("source", "h", 1, "u"), None, follow=True, heartbeat=1, patience=0)
    made.server = "one"
    return made


def test_a_set_counts_where_the_server_has_gtids() -> None:
    both = Position("binlog.000003", 500, GTIDS)
    assert reader()._plan(both, STATE, again=False) == (Position("", 0), Position("", 0, GTIDS), GTIDS)
    assert reader()._plan(both, replace(STATE, gtids=False), again=False) == (both, None, "")


def test_an_offset_without_a_set_is_reached_from_the_head_of_its_file() -> None:
    place = Position("binlog.000003", 500)
    assert reader()._plan(place, STATE, again=False) == (Position("binlog.000003", 4), place, "")
    assert reader()._plan(place, replace(STATE, gtids=False), again=False) == (place, None, "")


def test_after_a_lost_connection_the_offset_is_exact_and_the_first_set_still_left_out() -> None:
    made = reader()
    made._plan(Position("", 0, GTIDS), STATE, again=False)
    done = Position("binlog.000004", 700, f"{GTIDS[:-1]}9")
    assert made._plan(done, STATE, again=True) == (done, Position("", 0, GTIDS), "")


def test_on_another_server_only_a_set_means_the_same_place() -> None:
    done = Position("binlog.000004", 700, GTIDS)
    other = replace(STATE, server="two")
    assert reader()._same_server(done, STATE) == done
    assert reader()._same_server(done, other) == Position("", 0, GTIDS)
    bound = reader()
    bound.ends_at_place = True
    for made, at, state in (
        (reader(), Position("binlog.000004", 700), other),
        (reader(), done, replace(other, gtids=False)),
        (bound, done, other),
    ):
        with pytest.raises(ChangeError, match="another server"):
            made._same_server(at, state)


def test_sets_of_the_other_kind_of_server_are_refused() -> None:
    with pytest.raises(ChangeError, match="knows nothing of"):
        reader()._plan(Position("", 0, "0-1-5"), STATE, again=False)
    with pytest.raises(ChangeError, match="knows nothing of"):
        reader()._plan(Position("", 0, GTIDS), replace(STATE, flavor=Flavor.MARIADB), again=False)
    with pytest.raises(ChangeError, match="cannot start by a GTID set"):
        reader()._plan(Position("", 0, GTIDS), replace(STATE, gtids=False), again=False)


def test_a_connection_that_stays_lost_ends_the_stream_with_the_place() -> None:
    made = reader()
    made.reconnection._since -= 1
    with pytest.raises(ChangeError, match=r"stayed lost") as error:
        made._wait_or_give_up(ChangeError("gone"), Position("binlog.000004", 700))
    assert "binlog.000004:700" in str(error.value)
