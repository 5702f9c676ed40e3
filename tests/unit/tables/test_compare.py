"""Row lists as multisets, and their sums."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from migverify.model import ChunkChecksum
from migverify.tables.diff import checksum_of, compare_lists, same_checksum

LISTS = st.lists(st.sampled_from([b"1,a", b"2,b", b"3,c", b"4,d"]), max_size=12)


@given(LISTS, LISTS)
def test_differences_are_those_of_multisets(source: list[bytes], target: list[bytes]) -> None:
    found = compare_lists(source, target)
    assert Counter(found.source_only) == Counter(source) - Counter(target)
    assert Counter(found.target_only) == Counter(target) - Counter(source)
    assert bool(found) is (Counter(source) != Counter(target))


def test_sums_of_both_lanes() -> None:
    assert checksum_of([b"k,a,1", b"l,b,2"], value_lane=True) == ChunkChecksum(2, 2, 0xA + 0xB, 3)
    assert checksum_of([b"k,x,a", b"l,y,b"], value_lane=False) == ChunkChecksum(2, 2, 0xA + 0xB)
    assert checksum_of([], value_lane=True) == ChunkChecksum(0, 0, 0)


def test_a_row_without_checksum_in_either_lane_is_not_hashed() -> None:
    assert checksum_of([b"k,?", b"l,b"], value_lane=False) == ChunkChecksum(2, 1, 0xB)
    assert checksum_of([b"k,?,1", b"l,b,2"], value_lane=True) == ChunkChecksum(2, 1, 0xB, 3)
    assert checksum_of([b"k,a,?", b"l,b,?"], value_lane=True) == ChunkChecksum(2, 0, 0xA + 0xB, 0)


def test_a_pair_of_equal_rows_does_not_cancel() -> None:
    twice = checksum_of([b"1,a", b"1,a"], value_lane=False)
    assert not same_checksum(twice, ChunkChecksum(0, 0, 0))
    assert not same_checksum(twice, checksum_of([b"1,a", b"1,b"], value_lane=False))
