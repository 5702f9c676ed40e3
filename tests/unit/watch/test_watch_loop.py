"""The loop of every watch: its order, its endings, and how often it reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from migverify.watch.loop import Ending, watch


@dataclass
class Toy:
    """Counts its turns by a clock of its own, on which each turn takes ``cost`` seconds."""

    done_at: int | None = None
    fails_at: int | None = None
    cost: float = 0.0
    pause: float = 1.0
    status_cost: float = 0.0
    now: float = 100.0
    turns: int = 0
    calls: list[str] = field(default_factory=list)

    def due(self, began: float) -> float:
        return began + self.pause - self.now

    def check(self, stop: Callable[[], bool]) -> int:
        self.calls.append("check")
        assert stop() in (True, False)
        self.now += self.cost
        return self.turns + 1

    def record(self, work: int) -> None:
        self.calls.append("record")
        self.turns = work

    def ending(self) -> Ending | None:
        return Ending.DONE if self.turns == self.done_at else Ending.FAILED if self.turns == self.fails_at else None

    def status(self, ending: Ending | None = None) -> tuple[int, Ending | None]:
        self.calls.append("status")
        self.now += self.status_cost
        return self.turns, ending

    def wait(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds


def test_each_turn_is_recorded_before_it_is_reported() -> None:
    toy = Toy(done_at=2)
    seen: list[tuple[int, Ending | None]] = []
    last = watch(toy, on_status=seen.append, clock=lambda: toy.now, wait=toy.wait)
    assert toy.calls == ["check", "record", "status", "check", "record", "status"]
    assert (seen, last) == ([(1, None)], (2, Ending.DONE))
    assert toy.now == 101.0


@pytest.mark.parametrize(
    ("toy", "stopped_at", "limit", "ending"),
    [
        (Toy(done_at=3), None, None, Ending.DONE),
        (Toy(fails_at=3), None, None, Ending.FAILED),
        (Toy(), 3, None, Ending.STOPPED),
        (Toy(), None, 2.0, Ending.TIMED_OUT),
        (Toy(done_at=3), 3, 2.0, Ending.DONE),  # what is decided is decided, whoever asked to stop
        (Toy(), 3, 2.0, Ending.STOPPED),
    ],
)
def test_a_watch_ends_for_one_reason(toy: Toy, stopped_at: int | None, limit: float | None, ending: Ending) -> None:
    last = watch(toy, stop=lambda: toy.turns == stopped_at, time_limit=limit, clock=lambda: toy.now, wait=toy.wait)
    assert last == (3, ending)


def test_a_watch_that_is_stopped_while_it_waits_does_not_check_again() -> None:
    toy = Toy()
    assert watch(toy, stop=lambda: toy.now > 100.5, clock=lambda: toy.now, wait=toy.wait) == (1, Ending.STOPPED)


def test_a_time_limit_is_not_waited_out_where_a_turn_takes_longer_than_the_pause() -> None:
    toy = Toy(cost=5.0)
    assert watch(toy, time_limit=12.0, clock=lambda: toy.now, wait=toy.wait) == (3, Ending.TIMED_OUT)
    assert toy.now == 115.0


def test_a_status_that_takes_long_is_made_less_often() -> None:
    quick, slow = Toy(done_at=100), Toy(done_at=100, status_cost=0.5)
    counts = []
    for toy in (quick, slow):
        watch(toy, status_seconds=2.0, clock=lambda toy=toy: toy.now, wait=toy.wait)
        counts.append(toy.calls.count("status") - 1)
    assert counts[0] == 50
    assert counts[1] <= 10
