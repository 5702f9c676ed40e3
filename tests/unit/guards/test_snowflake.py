"""Snowflake ids of the lab: no clock makes the careful generator repeat one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.errors import LabError
from migverify_lab.snowflake import Snowflake, moment_of


@settings(max_examples=20)
@given(st.lists(st.integers(-10_000, 10_000), min_size=1, max_size=40))
def test_no_shift_of_the_clock_repeats_an_id(tmp_path_factory: pytest.TempPathFactory, shifts: list[int]) -> None:
    clock = tmp_path_factory.mktemp("clock") / "clock"
    made = Snowflake(3, clock)
    ids = []
    for shift in shifts:
        clock.write_text(str(shift))
        ids += [made.next() for _ in range(5)]
    assert len(set(ids)) == len(ids)
    assert ids == sorted(ids)


def test_a_full_millisecond_borrows_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_800_000_000_000_000_000)
    made = Snowflake(0)
    ids = [made.next() for _ in range(10_000)]
    assert len(set(ids)) == 10_000
    assert moment_of(ids[0]) == 1_800_000_000.0


def test_the_naive_one_repeats_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_800_000_000_000]
    monkeypatch.setattr(time, "time_ns", lambda: now[0] * 1_000_000)
    made = Snowflake(0, tmp_path / "clock", careful=False)
    first = made.next()
    now[0] += 4000
    made.next()
    (tmp_path / "clock").write_text("-4000")
    assert made.next() == first


def test_workers_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_800_000_000_000_000_000)
    assert len({Snowflake(worker).next() for worker in range(1024)}) == 1024
    with pytest.raises(LabError):
        Snowflake(1024)
