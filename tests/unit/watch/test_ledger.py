"""The ledger: no touched key is lost, whatever happens between a read and its record."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.changes.model import Position
from migverify.errors import StoreError
from migverify.watch.ledger import KeyState, Ledger, ordinal_of

K = ("1",)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path / "deep" / "watch.db")
    yield made
    made.close()


def touch(ledger: Ledger, *keys: str, seq: int = 10, now: float = 100.0, count: int = 1) -> None:
    ledger.touch({(0, (k,)): (count, seq, 0) for k in keys}, {0: (Position("b.000001", seq), seq)}, now)


def test_a_key_waits_for_the_target_and_for_its_time(ledger: Ledger) -> None:
    touch(ledger, "1", seq=10, now=100.0)
    assert ledger.due({0: 9}, 200.0, 10) == []
    assert ledger.due({0: 10}, 99.0, 10) == []
    assert ledger.due({}, 200.0, 10) == []
    assert ledger.due({1: 99}, 200.0, 10) == []  # another source's place says nothing
    (key,) = ledger.due({0: 10}, 100.0, 10)
    assert (key.key, key.ordinal, key.touches, key.state) == (K, 10, 1, KeyState.PENDING)


def test_a_key_does_not_wait_for_a_clock_that_was_set_back(ledger: Ledger) -> None:
    touch(ledger, "1", seq=10, now=86_500.0)
    assert ledger.due({0: 10}, 200.0, 10) == []
    ledger.set_back(86_400.0)
    (key,) = ledger.due({0: 10}, 200.0, 10)
    assert (key.key, key.first) == (K, 100.0)


def test_no_key_waits_for_a_time_of_an_earlier_process(ledger: Ledger) -> None:
    touch(ledger, "ahead", seq=10, now=86_500.0)
    touch(ledger, "in doubt", "diverged", seq=11, now=90.0)
    one, other = (key for key in ledger.due({0: 11}, 90.0, 10))
    ledger.seen([(one, KeyState.DOUBT, "a", None, {0: 11}, 30.0)], 90.0)
    ledger.seen([(other, KeyState.DIVERGED, "a", None, {0: 11}, 30.0)], 90.0)
    assert ledger.due({0: 11}, 100.0, 10) == []
    ledger.reread(100.0)
    found = {key.key[0]: (key.state, key.first) for key in ledger.due({0: 11}, 100.0, 10)}
    assert found == {
        "ahead": (KeyState.PENDING, 100.0), one.key[0]: (KeyState.DOUBT, 90.0), other.key[0]: (KeyState.REREAD, 90.0),
    }  # fmt: skip


def test_a_key_touched_while_it_is_read_is_not_proved(ledger: Ledger) -> None:
    touch(ledger, "1", "2", seq=10)
    keys = ledger.due({0: 10}, 100.0, 10)
    touch(ledger, "1", seq=11)
    assert ledger.proved(keys) == {(0, ("2",))}
    (left,) = ledger.due({0: 11}, 100.0, 10)
    assert (left.key, left.ordinal, left.touches) == (K, 11, 2)
    counts = ledger.counts(0.0)[0]
    assert (counts.pending, counts.proved, counts.images) == (1, 1, 3)


def test_a_read_of_a_key_touched_meanwhile_is_no_witness(ledger: Ledger) -> None:
    touch(ledger, "1", seq=10)
    (key,) = ledger.due({0: 10}, 100.0, 10)
    touch(ledger, "1", seq=12)
    assert ledger.seen([(key, KeyState.DOUBT, "a", "b", {0: 11}, 5.0)], 100.0) == set()
    (left,) = ledger.due({0: 12}, 105.0, 10)
    assert (left.state, left.source_sum, left.reads) == (KeyState.PENDING, None, 1)


def test_doubt_waits_until_the_stream_has_come_by_the_read(ledger: Ledger) -> None:
    touch(ledger, "1", seq=10)
    (key,) = ledger.due({0: 10}, 100.0, 10)
    ledger.seen([(key, KeyState.DOUBT, "a", None, {0: 20}, 1.0)], 100.0)
    assert ledger.due({0: 19}, 200.0, 10) == []
    (again,) = ledger.due({0: 20}, 101.0, 10)
    assert (again.state, again.source_sum, again.target_sum, again.heads) == (KeyState.DOUBT, "a", None, {0: 20})
    assert ledger.open_before({0: 10}) == 1
    ledger.seen([(again, KeyState.DIVERGED, "a", None, {0: 20}, 1.0)], 101.0)
    assert ledger.open_before({0: 10}) == 0
    assert [k.key for k in ledger._keys("diverged=1", [])] == [K]
    touch(ledger, "1", seq=30)
    assert ledger.counts(0.0)[0].diverged == 1  # remembered until it is proved
    assert ledger.open_before({0: 30}) == 1
    assert ledger.since() == {0: {0: 10}}
    ledger.proved(ledger.due({0: 30}, 200.0, 10))
    assert ledger.counts(0.0)[0].diverged == 0
    assert ledger.since() == {}


def test_a_key_that_two_shards_wrote_waits_for_both(ledger: Ledger) -> None:
    """Places of two binlogs have no common order: the larger number of one says nothing of the other."""
    ledger.touch({(0, K): (1, 900, 0)}, {}, 100.0)
    ledger.touch({(0, K): (1, 100, 1)}, {}, 100.0)
    assert ledger.due({0: 899, 1: 100}, 200.0, 10) == []
    assert ledger.due({0: 900, 1: 99}, 200.0, 10) == []
    assert ledger.open_before({0: 900}) == 1
    assert ledger.since() == {0: {1: 0}}
    (key,) = ledger.due({0: 900, 1: 100}, 200.0, 10)
    ledger.seen([(key, KeyState.DOUBT, "a", "b", {0: 950, 1: 120}, 0.0)], 200.0)
    assert ledger.due({0: 949, 1: 120}, 200.0, 10) == ledger.due({0: 950, 1: 119}, 200.0, 10) == []
    (key,) = ledger.due({0: 950, 1: 120}, 200.0, 10)
    assert (key.touches, key.heads) == (2, {0: 950, 1: 120})
    assert ledger.doubted_writes() == {1}


def test_a_new_fact_makes_a_pair_stale_until_it_is_settled(ledger: Ledger) -> None:
    assert ledger.note(0, "ddl", "RENAME at b:1", stale=True)
    assert ledger.note(0, "ddl", "RENAME at b:2", stale=True)
    assert ledger.note(1, "ddl", "RENAME at b:2", stale=True)
    ledger.settle(0, {"identity": "{}"})
    assert not ledger.note(0, "ddl", "RENAME at b:1", stale=True), "read again after a restart: it is settled"
    ledger.settle(0, {"identity": "[]"})
    assert ledger.notes() == [
        (0, "ddl", "RENAME at b:1"), (0, "ddl", "RENAME at b:2"), (0, "identity", "[]"),
        (1, "ddl", "RENAME at b:2"), (1, "stale", "RENAME at b:2"),
    ]  # fmt: skip


def test_hot_keys_are_counted_apart(ledger: Ledger) -> None:
    touch(ledger, "1", "2", now=100.0)
    touch(ledger, "1", seq=11, now=150.0)
    counts = ledger.counts(hot_before=120.0)[0]
    assert (counts.pending, counts.hot, counts.oldest) == (1, 1, 100.0)


def test_notes_are_kept_once(ledger: Ledger) -> None:
    assert ledger.note(0, "ddl", "ALTER")
    assert not ledger.note(0, "ddl", "ALTER")
    assert ledger.note(-1, "ddl", "ALTER")
    ledger.unnote(0, "ddl", "ALTER")
    assert ledger.notes() == [(-1, "ddl", "ALTER")]


def test_a_key_that_was_found_to_differ_while_it_was_read_is_not_proved(ledger: Ledger) -> None:
    ledger.touch({(0, K): (1, 0, 0)}, {}, 100.0, origin="sweep", found=7)
    (key,) = ledger.due({0: 10}, 100.0, 10)
    assert key.found == 7
    ledger.touch({(0, K): (1, 0, 0)}, {}, 100.0, origin="sweep", found=9)
    ledger.touch({(0, K): (1, 0, 0)}, {}, 100.0, origin="sweep", found=8)
    assert ledger.proved([key]) == set()
    (key,) = ledger.due({0: 10}, 100.0, 10)
    assert (key.found, ledger.proved([key])) == (9, {(0, K)})


def test_a_ledger_of_before_moments_were_kept_is_read(tmp_path: Path) -> None:
    path = tmp_path / "watch.db"
    with closing(Ledger(path)) as made:
        touch(made, "1", seq=10)
    with closing(sqlite3.connect(path)) as db:
        db.execute("ALTER TABLE touched DROP COLUMN found")
    with closing(Ledger(path)) as again:
        (key,) = again.due({0: 10}, 100.0, 10)
        assert (key.key, key.found, again.proved([key])) == (K, 0, {(0, K)})


def test_keys_and_position_survive_together(tmp_path: Path) -> None:
    first = Ledger(tmp_path / "w.db")
    touch(first, "1", seq=10)
    # As a killed process leaves it: nothing closed.
    second = Ledger(tmp_path / "w.db")
    assert second.progress() == {0: (Position("b.000001", 10), 10)}
    assert [k.key for k in second.due({0: 10}, 100.0, 10)] == [K]
    second.close()
    first.close()


def test_a_folder_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="ledger"):
        Ledger(tmp_path / "file" / "w.db")


TEXT = st.none() | st.text(max_size=8)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=20, unique=True))
def test_any_key_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, keys: list[tuple[str | None, str | None]]
) -> None:
    ledger = Ledger(tmp_path_factory.mktemp("ledger") / "w.db")
    try:
        ledger.touch({(3, k): (1, 5, 0) for k in keys}, {}, 1.0)
        assert {k.key for k in ledger.due({0: 5}, 2.0, 100)} == set(keys)
    finally:
        ledger.close()


def test_places_grow_along_the_binlog() -> None:
    ordered = [Position("b.000009", 4), Position("b.000009", 2**33), Position("b.000010", 4), Position("b.1000000", 4)]
    assert [ordinal_of(p) for p in ordered] == sorted(ordinal_of(p) for p in ordered)
    with pytest.raises(StoreError, match="no number"):
        ordinal_of(Position("binlog", 4))


def test_keys_are_for_the_owner_of_the_file_only(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "folder" / "watch.db")) as ledger:
        ledger.note(0, "kind", "text")
        modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "folder").iterdir()}
    assert modes == dict.fromkeys(["watch.db", "watch.db-wal", "watch.db-shm"], 0o600)
