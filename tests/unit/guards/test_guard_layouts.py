"""Layouts of ids: fields in and out, the known ends, and what samples tell with what confidence."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.errors import UsageError
from migverify.guards.inference import DAY, FEWEST, YEAR, infer
from migverify.guards.layouts import BAIDU, INSTAGRAM, KNOWN, SONYFLAKE, TWITTER, Layout, moment_text, parse_layout

NOW = 1_795_270_000_000
OWN = Layout("own", 41, 10, 12, 1, 1_767_225_600_000)


def sample(
    layout: Layout, seed: int, *, workers: int = 4, span: int = 30 * DAY, end: int = NOW, rows: int = 400
) -> Iterator[tuple[int, int]]:
    """Yield (id, creation time) as a generator at work would make them: a few ids a tick, now and then more."""
    rng = random.Random(seed)
    counter = rng.randrange(10_000)
    made = 0
    while made < rows:
        time = end - int(rng.random() ** 2 * span)
        worker = rng.randrange(workers)
        many = 1 if layout is INSTAGRAM else 1 + int(rng.expovariate(1.3))
        for sequence in range(many):
            counter += 1
            number = layout.make(time, worker, counter % 1024 if layout is INSTAGRAM else sequence)
            made += 1
            yield number, time + rng.randrange(50)


@given(st.sampled_from([*KNOWN, OWN]), st.data())
def test_fields_come_back(layout: Layout, data: st.DataObject) -> None:
    tick = data.draw(st.integers(0, (1 << min(layout.time_bits, 40)) - 1))
    worker = data.draw(st.integers(0, (1 << layout.worker_bits) - 1))
    sequence = data.draw(st.integers(0, (1 << layout.sequence_bits) - 1))
    time = layout.epoch + tick * layout.unit
    number = layout.make(time, worker, sequence)
    assert (layout.time(number), layout.worker(number), layout.sequence(number)) == (time, worker, sequence)
    assert layout.tick(number) == tick


@pytest.mark.parametrize(
    ("layout", "end"),
    [
        (TWITTER, "2080-07-10T17:30:30Z"),
        (BAIDU, "2024-11-20T13:24:16Z"),  # "Timestamp bits is exhausted", as it was reported
        (SONYFLAKE, "2188-11-16T03:28:58Z"),
        (INSTAGRAM, "2081-04-30T12:54:37Z"),
    ],
)
def test_known_ends(layout: Layout, end: str) -> None:
    assert moment_text(layout.end) == end


@pytest.mark.parametrize("layout", KNOWN, ids=lambda one: one.name)
@pytest.mark.parametrize("seed", range(8))
def test_bits_alone_tell_a_known_layout(layout: Layout, seed: int) -> None:
    end = BAIDU.end - 100 * DAY if layout is BAIDU else NOW - seed * 1000
    span = (DAY, 30 * DAY, YEAR // 2)[seed % 3]
    ids = [number for number, _ in sample(layout, seed, workers=(1, 4, 20)[seed % 3], span=span, end=end)]
    guess = infer(ids, end + seed * 1000)
    assert guess.layout == layout
    assert guess.confidence >= 0.6


@pytest.mark.parametrize("layout", [*KNOWN, OWN], ids=lambda one: one.name)
@pytest.mark.parametrize("seed", range(5))
def test_creation_times_tell_any_layout(layout: Layout, seed: int) -> None:
    end = BAIDU.end - 100 * DAY if layout is BAIDU else NOW
    rows = list(sample(layout, seed, end=end))
    guess = infer([number for number, _ in rows], end, [time // 1000 * 1000 for _, time in rows])
    assert guess.layout is not None
    assert replace(guess.layout, name="") == replace(layout, name="")
    assert guess.confidence >= 0.95


@pytest.mark.parametrize("hours", [-8, 5.5, 9])
def test_creation_times_in_a_local_zone_tell_a_known_layout(hours: float) -> None:
    rows = list(sample(TWITTER, 3))
    guess = infer([number for number, _ in rows], NOW, [time + int(hours * 3_600_000) for _, time in rows])
    assert guess.layout == TWITTER


def test_an_epoch_of_their_own_is_not_believed_by_bits() -> None:
    guess = infer([number for number, _ in sample(OWN, 1)], NOW)
    assert guess.layout is None or guess.confidence < 0.6


def test_times_that_are_not_those_of_the_ids_do_not_count() -> None:
    rng = random.Random(5)
    rows = list(sample(TWITTER, 5))
    guess = infer([number for number, _ in rows], NOW, [NOW - rng.randrange(YEAR) for _ in rows])
    assert guess.layout == TWITTER  # by its bits
    assert guess.confidence < 0.95


@pytest.mark.parametrize(
    ("ids", "sure"),
    [
        ([*range(1, 500)], 1.0),
        ([*range(1, FEWEST)], 0.0),
        ([*range(1, 300), *(number for number, _ in sample(TWITTER, 1, rows=50))], 0.0),
    ],
    ids=["counter", "too few", "two generators"],
)
def test_what_is_no_snowflake(ids: list[int], sure: float) -> None:
    guess = infer(ids, NOW)
    assert guess.layout is None
    assert guess.confidence == sure


@given(st.lists(st.integers(1, 2**63 - 1), max_size=200), st.integers(0, 2**42))
def test_random_numbers_are_never_sure(ids: list[int], now: int) -> None:
    guess = infer(ids, now)
    assert 0 <= guess.confidence <= 1
    if guess.layout is not None:
        assert guess.confidence < 0.6 or len(ids) >= FEWEST


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("twitter", TWITTER), ("Leaf", TWITTER), ("baidu", BAIDU),
        ("41/10/12:ms:2026-01-01", replace(OWN, name="given")),
        ("39/8s/16:10ms:2014-09-01", replace(SONYFLAKE, name="given")),
        ("28/22/13:s:1463673600000", replace(BAIDU, name="given")),
    ],
)  # fmt: skip
def test_layouts_by_hand(text: str, layout: Layout) -> None:
    assert parse_layout(text) == layout


@pytest.mark.parametrize("text", ["", "snow", "41/10/12", "60/10/12:ms:2020-01-01", "41/10/12:h:2020-01-01",
                                  "41/10/12:ms:someday"])  # fmt: skip
def test_bad_layouts_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_layout(text)


@pytest.mark.parametrize("top", [1 << 63, 1 << 53, 1 << 32, 1 << 31])
@pytest.mark.parametrize("rows", [60, 1000])
def test_random_keys_are_random(top: int, rows: int) -> None:
    told = []
    for seed in range(20):
        rng = random.Random(seed)
        guess = infer([rng.randrange(1, top) for _ in range(rows)], NOW)
        assert guess.layout is None or guess.confidence < 0.6
        told.append(guess.random)
    assert sum(told) >= 18  # the largest of a few may be far from the end by chance: then nothing is said


@pytest.mark.parametrize("layout", [*KNOWN, OWN], ids=str)
def test_ids_of_a_generator_are_not_random(layout: Layout) -> None:
    for seed in range(3):
        for span in (DAY, 30 * DAY, 5 * YEAR):
            rows = list(sample(layout, seed, span=min(span, NOW - layout.epoch)))
            ids = [number for number, _ in rows]
            assert not infer(ids, NOW).random
            assert not infer(ids, NOW, [time for _, time in rows]).random


def test_random_numbers_that_grow_with_time_are_not_random() -> None:
    rng = random.Random(3)
    ids = sorted(rng.getrandbits(63) for _ in range(500))
    times = [NOW - YEAR + number * 60_000 for number in range(500)]
    assert not infer(ids, NOW, times).random
