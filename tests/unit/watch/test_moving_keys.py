"""Keys that are written again before their writes are applied: which they are, and to where they are proved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migverify.changes.positions import tso_position
from migverify.tables.moving_rows import MOMENTS, _moments
from migverify.watch.applied import TSO_SHIFT
from migverify.watch.ledger import KeyState, Ledger
from migverify.watch.ledger_moving import MovingKey
from migverify.watch.touched import Touches

KEY = (0, ("1",))
LATER = 1e12


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    one = Ledger(tmp_path / "ledger.db")
    yield one
    one.close()


def write(ledger: Ledger, *places: int, key: tuple[int, tuple[str]] = KEY, there: bool = True) -> None:
    for place in places:
        left = {key} if there else set()
        ledger.touch({key: (1, place, 0)}, {0: (tso_position(place), 1)}, 1000.0, there=left)


def since(ledger: Ledger) -> int | None:
    return ledger.since().get(0, {}).get(0)


def moving(ledger: Ledger, applied: int) -> list[MovingKey]:
    return ledger.moving(0, applied, LATER, 100)


def test_a_key_moves_whose_first_write_is_applied_and_whose_last_is_not(ledger: Ledger) -> None:
    write(ledger, 10, 20)
    assert [moving(ledger, place) for place in (9, 20)] == [[], []]
    assert moving(ledger, 10) == moving(ledger, 19) == [MovingKey(0, ("1",), 10)]
    assert ledger.moving(0, 10, 999.0, 100) == [], "it was written a moment ago"


def test_it_is_proved_to_a_place_and_stays_open_behind_it(ledger: Ledger) -> None:
    write(ledger, 10, 20, 30)
    (key,) = moving(ledger, 15)
    ledger.proved_to([(key, 24, 1500.0)])
    assert since(ledger) == 25
    (found,) = ledger.due({0: 30}, LATER, 10)
    assert (found.ordinal, found.touches, found.first) == (30, 3, 1500.0)
    assert moving(ledger, 24) == []
    assert moving(ledger, 25) == [MovingKey(0, ("1",), 25)]
    assert ledger.counts(1400.0)[0].hot == 0
    ledger.proved([found])
    assert since(ledger) is None


def test_what_is_sent_again_from_before_counts_from_there(ledger: Ledger) -> None:
    write(ledger, 10, 20, 30)
    (key,) = moving(ledger, 15)
    ledger.proved_to([(key, 24, 1500.0)])
    write(ledger, 12)
    assert since(ledger) == 12
    ledger.proved_to([(key, 28, 1500.0)])
    assert since(ledger) == 12, "what was read before it was sent again proves nothing"


def test_of_several_transactions_that_are_read_together_the_first_one_counts() -> None:
    """The last one alone would let all before it pass for proved."""
    touches = Touches()
    for place in (10, 20, 30):
        touches.add(0, iter([("1",)]), [True])
        touches.commit(place, 0)
    touches.add(0, iter([("2",)]), [True])
    touches.commit(40, 0)
    touches.add(0, iter([("1",)]), [True])
    touches.commit(50, 0, late=5)
    assert (touches.done[KEY][:2], touches.firsts) == ((4, 50), {KEY: 5})


def test_a_ledger_takes_the_first_place_of_keys_that_were_read_together(ledger: Ledger) -> None:
    ledger.touch({KEY: (3, 30, 0)}, {0: (tso_position(30), 3)}, 1000.0, there={KEY}, firsts={KEY: 10})
    assert since(ledger) == 10
    assert moving(ledger, 15) == [MovingKey(0, ("1",), 10)]


def test_a_key_that_ended_meanwhile_stays_as_it_is(ledger: Ledger) -> None:
    write(ledger, 10, 20)
    (key,) = moving(ledger, 10)
    (entry,) = ledger.due({0: 20}, LATER, 10)
    ledger.seen([(entry, KeyState.DIVERGED, "a", "b", {0: 20}, 0.0)], 1000.0)
    ledger.proved_to([(key, 15, 1500.0)])
    assert ledger.counts(0.0)[0].diverged == 1
    write(ledger, 40)
    assert moving(ledger, 30) == [], "it was diverged, and is not proved since"
    ledger.proved([entry])
    ledger.proved_to([(key, 15, 1500.0)])
    write(ledger, 50, 60, key=(0, ("2",)), there=False)
    assert moving(ledger, 55) == [], "its row may be deleted: a key on neither side is no proof"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 60), min_size=2, max_size=12), st.integers(1, 60), st.integers(0, 60))
def test_no_write_behind_the_place_is_forgotten(
    tmp_path_factory: pytest.TempPathFactory, places: list[int], applied: int, further: int
) -> None:
    ledger = Ledger(tmp_path_factory.mktemp("ledger") / "ledger.db")
    try:
        write(ledger, *places)
        proof = applied + further
        ledger.proved_to([(key, proof, 1500.0) for key in moving(ledger, applied)])
        opened = since(ledger)
        assert opened is not None
        if opened == min(places):
            return
        assert opened == proof + 1
        assert max(places) > proof, "a key whose last write is proved is read as a whole"
    finally:
        ledger.close()


@given(st.integers(1, 2**40), st.integers(0, 100_000))
def test_moments_lie_behind_what_is_applied_and_not_in_the_future(applied: int, milliseconds: int) -> None:
    last = ((applied >> TSO_SHIFT) + milliseconds) << TSO_SHIFT
    found = list(_moments(applied, last))
    assert all(applied <= one <= last and one % (1 << TSO_SHIFT) == 0 for one in found)
    assert found[:1] == ([last] if last >= applied else [])
    assert len(found) <= 1 + min(MOMENTS, milliseconds)
