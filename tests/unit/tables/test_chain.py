"""The proof of coverage sees every gap."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.model import ChunkResult, ChunkState, KeyRange, KeyText
from migverify.tables.chain import Chain, missing_spans

BOUNDS = st.lists(st.integers(-1000, 1000), unique=True, max_size=12).map(sorted)


def key(value: int | None) -> KeyText | None:
    return None if value is None else (str(value),)


def ranges(bounds: list[int]) -> list[KeyRange]:
    edges = [None, *bounds, None]
    return [KeyRange(key(low), key(high)) for low, high in itertools.pairwise(edges)]


def chunk(span: int, number: int, key_range: KeyRange) -> ChunkResult:
    return ChunkResult("t", span, number, key_range, ChunkState.EQUAL, None, None, 0.0, 0.0)


@given(BOUNDS)
def test_consecutive_chunks_prove_a_span(bounds: list[int]) -> None:
    chain = Chain()
    chain.begin(0, KeyRange())
    for number, key_range in enumerate(ranges(bounds)):
        assert chain.gaps()
        assert chain.rest(0) == (number, KeyRange(key_range.lower))
        chain.add(chunk(0, number, key_range))
    assert chain.gaps() == []
    assert chain.rest(0) is None


@given(BOUNDS.filter(lambda b: len(b) > 1), st.data())
def test_one_lost_or_shifted_chunk_breaks_the_proof(bounds: list[int], data: st.DataObject) -> None:
    pieces = ranges(bounds)
    lost = data.draw(st.integers(0, len(pieces) - 1))
    renumbered = data.draw(st.booleans())
    chain = Chain()
    chain.begin(0, KeyRange())
    for place, (number, key_range) in enumerate((n, p) for n, p in enumerate(pieces) if n != lost):
        chain.add(chunk(0, place if renumbered else number, key_range))
    assert chain.gaps()


def test_another_attempt_at_a_chunk_is_no_progress() -> None:
    chain = Chain()
    chain.begin(0, KeyRange())
    for number, key_range in ((0, KeyRange(None, key(5))), (0, KeyRange(None, key(5))), (1, KeyRange(key(5)))):
        chain.add(chunk(0, number, key_range))
    assert chain.gaps() == []


def test_null_keys_are_a_span_of_their_own() -> None:
    chain = Chain()
    chain.begin(3, KeyRange(nulls=True))
    assert chain.gaps() == ["NULL keys was not read"]
    chain.add(chunk(3, 0, KeyRange(nulls=True)))
    assert chain.gaps() == []


def test_a_chunk_of_an_unknown_span_is_a_gap() -> None:
    chain = Chain()
    chain.add(chunk(7, 0, KeyRange()))
    assert "not recorded" in chain.gaps()[0]


@given(BOUNDS, st.booleans(), st.data())
def test_what_a_dead_process_did_not_record_is_found(bounds: list[int], nullable: bool, data: st.DataObject) -> None:
    whole = [*ranges(bounds), *([KeyRange(nulls=True)] if nullable else [])]
    recorded = list(enumerate(whole[: data.draw(st.integers(0, len(whole)))]))
    missing = missing_spans(recorded, nullable=nullable)
    together = [key_range for _, key_range in recorded] + missing
    assert missing_spans(list(enumerate(together)), nullable=nullable) == []
    assert len(missing) <= 2
    if len(recorded) == len(whole):
        assert missing == []


@pytest.mark.parametrize("bounds", [(2, 1), (0, 2)])
def test_spans_out_of_order_or_with_a_hole_are_refused(bounds: tuple[int, int]) -> None:
    spans = list(enumerate(ranges([1, 2, 3])))
    low, high = bounds
    with pytest.raises(ValueError, match="does not follow"):
        missing_spans([(0, spans[low][1]), (1, spans[high][1])], nullable=False)
