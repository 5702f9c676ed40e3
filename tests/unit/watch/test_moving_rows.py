"""Rows that are written all the time: how often they are looked for, and what a look may conclude."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from migverify.errors import ReadError
from migverify.model import KeyText
from migverify.sql.key_range import KeyColumn
from migverify.tables import moving_rows
from migverify.tables.moving_rows import EVERY_SECONDS, SHARE, MovingRows, proved_between
from migverify.watch.applied import TSO_SHIFT
from migverify.watch.ledger_moving import MovingKey


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


class Side:
    """A side that holds rows as elements by key."""

    def __init__(self, rows: dict[str, bytes] | None) -> None:
        self.rows = rows

    def key_list(self, keys: Sequence[KeyText]) -> list[bytes]:
        if self.rows is None:
            raise ReadError("GC life time is shorter than transaction duration")
        return [self.rows[key[0]] for key in keys if key[0] is not None and key[0] in self.rows]


class Past:
    """The target's versions: row 1 is the source's one at the last moment, row 2 never; older moments are gone."""

    def __init__(self) -> None:
        self.last = 5000 << TSO_SHIFT
        self.kept = True

    def now(self) -> int:
        return self.last

    def open(self, pair: object, moment: int) -> Any:
        del pair
        theirs = {"1": b"1,AA", "2": b"2,CC"} if moment == self.last and self.kept else None
        key = (KeyColumn("`id`", "`id`", "integer", nullable=False),)
        return SimpleNamespace(
            sources=[Side({"1": b"1,AA", "2": b"2,BB"})], target=Side(theirs), key=key, close=lambda: None
        )


def test_a_row_that_is_proved_by_a_late_moment_is_proved_though_older_ones_are_gone() -> None:
    """A row that is wrong at every moment leads to moments behind garbage collection; the others are proved."""
    past: Any = Past()
    pair: Any = None
    keys = [MovingKey(0, (text,), 1) for text in ("1", "2")]
    found = proved_between(past, pair, keys, 4000 << TSO_SHIFT)
    assert [(key.key, moment) for key, moment, _ in found] == [(("1",), past.last)]
    past.kept = False
    with pytest.raises(ReadError, match="GC life time"):
        proved_between(past, pair, keys, 4000 << TSO_SHIFT)
