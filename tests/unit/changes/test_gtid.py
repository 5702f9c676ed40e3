"""GTID sets: what is printed can be read again, and sets behave like sets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.changes.gtid import Executed, Gtid, GtidSet, decode_gtids, parse_gtids
from migverify.errors import ChangeError

SERVERS = ("3e11fa47-71ca-11e1-9e33-c80aa9429562", "0e11fa47-71ca-11e1-9e33-c80aa9429562")
sources = st.tuples(st.sampled_from(SERVERS), st.sampled_from(("", "a", "billing")))
members = st.sets(st.tuples(sources, st.integers(1, 14)), max_size=25)


def build(found: set[tuple[tuple[str, str], int]]) -> GtidSet:
    made = GtidSet()
    for source, number in sorted(found):
        made |= GtidSet(((source, ((number, number),)),))
    return made


@settings(max_examples=40, deadline=None)
@given(members, members)
def test_sets_behave_like_sets(one: set, other: set) -> None:
    left, right = build(one), build(other)
    assert left | right == build(one | other)
    assert left - right == build(one - other)
    assert len(left) == len(one)
    assert all(left.has(*member) == (member in one) for member in one | other)


@settings(max_examples=40, deadline=None)
@given(members)
def test_text_and_bytes_round_trip(found: set) -> None:
    made = build(found)
    assert parse_gtids(str(made)) == made
    assert decode_gtids(made.encode()) == made


@settings(max_examples=40, deadline=None)
@given(members, st.lists(st.tuples(sources, st.integers(1, 20)), max_size=60))
def test_the_running_text_is_the_text_of_the_set(start: set, added: list) -> None:
    running, expected = Executed(build(start)), build(start)
    for source, number in added:
        for step in range(4):
            expected |= build({(source, number + step)})
            assert running.add(Gtid(source, number + step, "")) == str(expected) == str(running)
    assert running.value() == expected


def test_the_servers_own_text() -> None:
    text = f"{SERVERS[1]}:1-3:7,\n{SERVERS[0].upper()}:1-5:Billing:1-9"
    assert str(parse_gtids(text)) == f"{SERVERS[1]}:1-3:7,{SERVERS[0]}:1-5:billing:1-9"
    assert parse_gtids(f"{SERVERS[0]}:billing:4") == build({((SERVERS[0], "billing"), 4)})


def test_the_servers_own_bytes_with_tags() -> None:
    data = bytes.fromhex(
        "010300000000000157884206e57111f1a13402fc000000010001000000000000000100000000000000"
        "0c0000000000000057884206e57111f1a13402fc0000000106616363010000000000000001000000000000000200000000000000"
        "57884206e57111f1a13402fc000000010e62696c6c696e67010000000000000001000000000000000200000000000000"
    )
    assert str(decode_gtids(data)) == "57884206-e571-11f1-a134-02fc00000001:1-11:acc:1:billing:1"
    assert decode_gtids(data).encode() == data
    for cut in range(len(data)):
        with pytest.raises(ChangeError):
            decode_gtids(data[:cut])


@pytest.mark.parametrize(
    "text", ["x", SERVERS[0], f"{SERVERS[0]}:", f"{SERVERS[0]}:0", f"{SERVERS[0]}:5-3", f"{SERVERS[0]}:tag",
             f"{SERVERS[0]}:1-2-3", "0-1", "0-1-2,x", f"{SERVERS[0]}:a:b:1"],
)  # fmt: skip
def test_what_is_no_set_is_refused(text: str) -> None:
    with pytest.raises(ChangeError):
        parse_gtids(text)
