"""Gaps in the numbers of transactions: every one that is cut out is found, and none that never was."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.changes.byte_accounting import Gaps, Numbers
from migverify.changes.gtid import Gtid, GtidSet, parse_gtids

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
SOURCES = [(A, ""), (A, "billing"), (B, "")]


def text(source: tuple[str, str], number: int) -> str:
    return ":".join(part for part in (*source, str(number)) if part)


def prefix(gtid: str) -> str:
    return gtid.rpartition(":")[0]


def number(gtid: str) -> int:
    return int(gtid.rpartition(":")[2])


def numbers(start: str | None, *gtids: str) -> Numbers:
    found = Numbers()
    if start is not None:
        found.start(parse_gtids(start))
    for gtid in gtids:
        server, *tag, last = gtid.split(":")
        found.add(Gtid((server, "".join(tag)), int(last), gtid))
    return found


def members(of: str) -> set[str]:
    return {
        text(s, n)
        for s, intervals in parse_gtids(of).sources
        for first, last in intervals
        for n in range(first, last + 1)
    }


streams = st.lists(st.sampled_from(SOURCES), max_size=40)


@settings(max_examples=40, deadline=None)
@given(streams, st.data())
def test_what_is_cut_out_is_found_and_nothing_else(order: list[tuple[str, str]], data: st.DataObject) -> None:
    counts: dict[tuple[str, str], int] = dict(zip(SOURCES, (5, 0, 7), strict=True))
    start = GtidSet()
    for source, count in counts.items():
        if count:
            start |= GtidSet(((source, ((1, count),)),))
    whole = []
    for source in order:
        counts[source] += 1
        whole.append(text(source, counts[source]))
    cut = data.draw(st.sets(st.sampled_from(whole))) if whole else set()
    executed = start | parse_gtids(",".join(whole))

    kept = numbers(str(start), *(g for g in whole if g not in cut))
    holes = members(kept.gaps().holes)
    # A cut at the end of a source leaves no later number, and only the server's word can tell.
    last = {prefix(g): number(g) for g in whole if g not in cut}
    assert holes == {g for g in cut if number(g) < last.get(prefix(g), 0)}
    kept.word(executed, exact=True)
    gaps = kept.gaps()
    assert members(gaps.lost) == cut
    assert (gaps.holes, gaps.repeated, gaps.foreign) == ("", "", "")


@settings(max_examples=40, deadline=None)
@given(st.permutations(range(1, 12)))
def test_order_does_not_matter(order: list[int]) -> None:
    found = numbers(f"{A}:1-3", *(text((A, ""), n + 3) for n in order))
    assert not found.gaps()
    assert str(found.executed()) == f"{A}:1-14"


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=30))
def test_what_comes_again_is_found(order: list[int]) -> None:
    found = numbers("", *(text((A, ""), n) for n in order))
    assert members(found.gaps().repeated) == {text((A, ""), n) for n in order if order.count(n) > 1}


def test_a_hole_that_the_server_has_too_is_none() -> None:
    assert numbers(f"{A}:1-5:9", f"{A}:10").gaps() == Gaps()
    found = numbers(f"{A}:1-5", f"{A}:6", f"{A}:9")
    assert found.gaps() == Gaps(holes=f"{A}:7-8")
    found.word(parse_gtids(f"{A}:1-6:9"), exact=True)
    assert found.gaps() == Gaps()


def test_what_the_next_file_does_not_know_is_foreign() -> None:
    found = numbers(f"{A}:1-5", f"{A}:6", f"{B}:1")
    found.word(parse_gtids(f"{A}:1-6"), exact=True)
    assert found.gaps() == Gaps(foreign=f"{B}:1")


def test_an_older_word_of_the_server_is_not_held_against_the_stream() -> None:
    found = numbers(f"{A}:1-5", f"{A}:6", f"{A}:7")
    found.word(parse_gtids(f"{A}:1-6"), exact=False)
    assert not found.gaps()


def test_without_a_start_only_what_follows_counts() -> None:
    found = numbers(None, f"{A}:100", f"{A}:101", f"{A}:104")
    assert found.gaps() == Gaps(holes=f"{A}:102-103")
    found.word(parse_gtids(f"{A}:1-105,{B}:1-9"), exact=False)
    assert found.gaps() == Gaps(lost=f"{A}:102-103:105")


def test_a_transaction_of_the_past_is_a_repeat() -> None:
    assert numbers(f"{A}:1-5", f"{A}:5", f"{A}:6").gaps() == Gaps(repeated=f"{A}:5")
