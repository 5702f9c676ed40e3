"""Findings have one order: by key, in the order of its type, whatever the engine gave first."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.recon.candidates import Candidate, Candidates, key_order
from migverify.recon.relation import KeyRows, Pairing
from tests.definitions import column

NUMBER, TEXT, TIME = column("n", "decimal(65,30)"), column("t", "varchar(20)"), column("h", "time(6)")
_DECIMALS = st.decimals(allow_nan=False, allow_infinity=False)


@given(st.lists(st.one_of(st.none(), _DECIMALS, st.integers().map(Decimal)), max_size=8))
def test_numbers_sort_by_value_and_null_comes_first(numbers: list[Decimal | None]) -> None:
    texts = [None if one is None else f"{one:f}" for one in numbers]
    found = sorted(texts, key=lambda text: key_order((text,), (NUMBER,)))
    values = [None if text is None else Decimal(text) for text in found]
    assert values == sorted(values, key=lambda one: (one is not None, one or 0))


@given(st.lists(st.tuples(st.text(max_size=4), st.one_of(st.none(), st.integers(-20, 20))), max_size=8))
def test_parts_sort_one_after_the_other(keys: list[tuple[str, int | None]]) -> None:
    found = sorted(keys, key=lambda key: key_order((key[0], None if key[1] is None else str(key[1])), (TEXT, NUMBER)))
    assert found == sorted(keys, key=lambda key: (key[0].encode("utf-8", "surrogateescape"), key[1] is not None,
                                                  key[1] or 0))  # fmt: skip


@given(_DECIMALS, _DECIMALS)
def test_equal_numbers_have_one_place(one: Decimal, other: Decimal) -> None:
    places = [key_order((f"{number:f}",), (NUMBER,)) for number in (one, other)]
    assert (places[0] == places[1]) == (one == other)


@pytest.mark.parametrize(
    ("definition", "ordered"),
    [
        (NUMBER, [None, "-10", "-9.5", "-0.0", "0.25", "1", "2", "10", "100000000000000000000", "not a number"]),
        (column("i", "bigint unsigned"), ["9", "10", "18446744073709551615"]),
        (column("d", "double"), ["-1e300", "-1", "0.5", "1e17", "1.5e17"]),
        (TIME, ["-100:00:00", "-09:00:01", "00:00:00", "09:00:00", "10:00:00", "100:00:00"]),
        (column("day", "datetime"), ["2025-12-31 00:00:00", "2026-01-01 00:00:00"]),
        (TEXT, [None, "", "10", "9", "A", "a", "é"]),
    ],
)
def test_keys_are_read_back_in_the_order_of_their_type(definition: object, ordered: list[str | None]) -> None:
    shuffled = ordered[:]
    random.Random(4).shuffle(shuffled)
    with Candidates((definition,)) as candidates:  # type: ignore[arg-type]
        for text in shuffled:
            candidates.add(Candidate.of(Pairing((text,), KeyRows(1, (text,)), None)))
        found = [candidate.last.key[0] for batch in candidates.batches(2) for candidate in batch]
        assert found == ordered
        assert candidates.count == len(ordered)
