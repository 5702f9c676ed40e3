"""Findings have one order: by key, in the order of its type, whatever the engine gave first."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.recon.candidates import CandidateKey, Candidates, key_order
from migverify.recon.relation import KeyRows, Pairing
from tests.definitions import column

NUMBER, TEXT = column("n", "bigint"), column("t", "varchar(20)")


@given(
    st.lists(st.tuples(st.text(max_size=4), st.one_of(st.none(), st.integers(-(1 << 63), (1 << 64) - 1))), max_size=8)
)
def test_parts_sort_one_after_the_other(keys: list[tuple[str, int | None]]) -> None:
    found = sorted(keys, key=lambda key: key_order((key[0], None if key[1] is None else str(key[1])), (TEXT, NUMBER)))
    assert found == sorted(keys, key=lambda key: (key[0].encode("utf-8", "surrogateescape"), key[1] is not None,
                                                  key[1] or 0))  # fmt: skip


@pytest.mark.parametrize(
    ("definition", "ordered"),
    [
        (NUMBER, [None, "-10", "-9", "0", "9", "10", "18446744073709551615", "not a number"]),
        (column("day", "datetime"), ["2025-12-31 00:00:00", "2026-01-01 00:00:00"]),
        (TEXT, [None, "", "10", "9", "A", "a", "é"]),
    ],
)
def test_keys_are_read_back_in_the_order_of_their_type(definition: object, ordered: list[str | None]) -> None:
    shuffled = ordered[:]
    random.Random(4).shuffle(shuffled)
    with Candidates((definition,)) as candidates:  # type: ignore[arg-type]
        for text in shuffled:
            candidates.put(CandidateKey.of(Pairing((text,), KeyRows(1, (text,)), None)))
        found = [candidate.last.key[0] for batch in candidates.batches(2) for candidate in batch]
        assert found == ordered
        assert candidates.count == len(ordered)
