"""Rows that are written all the time: how often they are looked for, and what a look may conclude."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from migverify.tables import moving_rows
from migverify.tables.moving_rows import EVERY_SECONDS, SHARE, MovingRows


class Clock:
    """A clock that a slow ledger moves on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    monotonic = time


@pytest.mark.parametrize(("takes", "apart"), [(0.001, EVERY_SECONDS), (2.0, 2.0 * SHARE)])
def test_a_ledger_of_millions_is_not_looked_through_all_the_time(
    monkeypatch: pytest.MonkeyPatch, takes: float, apart: float
) -> None:
    clock, asked = Clock(), list[float]()
    monkeypatch.setattr(moving_rows, "time", clock)

    def moving(*_: object) -> list[Any]:
        asked.append(clock.now)
        clock.now += takes
        return []

    ledger: Any = SimpleNamespace(moving=moving)
    past: Any = None
    threads: Any = None
    rows = MovingRows(past, ledger)
    while clock.now < 1000.0 + 5 * apart:
        rows.turn({}, {0: 9}, threads)
        clock.now += 0.05
    gaps = [later - one for one, later in pairwise(asked)]
    assert len(gaps) > 2
    assert min(gaps) >= apart
